//! A rank's own side: its threads bring tiles, which are kept until they have a place.

use super::message::{Tile, ToManager, sealed};
use crate::blocks::{Block, Grid};
use crate::execute::{ExecuteError, Sink};
use crate::graph::{Failure, Part};
use crate::output::{Form, in_files};
use pipt_tiff::writer::{Sealed, TileFile};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Condvar, Mutex, PoisonError};

/// What the threads of a rank say to the one that talks with the other ranks.
pub(super) enum Event {
    /// There are few blocks left.
    Ask,
    /// Tiles of a block.
    Kept(Vec<Kept>),
    /// All blocks are computed, or one could not be.
    Computed(Result<(), ExecuteError>),
}

/// A tile that has no place yet.
pub(super) type Kept = (Tile, Sealed, Vec<u8>);

/// Bytes that may be kept, by all threads of a rank.
pub(super) struct Room {
    most: u64,
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    bytes: u64,
    is_closed: bool,
}

impl Room {
    pub(super) fn new(most: u64) -> Self {
        Self {
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits until there is room; what is too much by itself is let in alone.
    fn take(&self, bytes: u64) -> Result<(), Failure> {
        let held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full =
            |held: &mut Held| !held.is_closed && held.bytes > 0 && held.bytes + bytes > self.most;
        let held = self.changed.wait_while(held, is_full);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        if held.is_closed {
            return Err("The work was given up".into());
        }
        held.bytes += bytes;
        Ok(())
    }

    fn give(&self, bytes: u64) {
        let mut held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes = held.bytes.saturating_sub(bytes);
        drop(held);
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub(super) fn close(&self) {
        let mut held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        held.is_closed = true;
        drop(held);
        self.changed.notify_all();
    }
}

/// Takes what the threads compute.
pub(super) struct Hand<'a> {
    pub forms: &'a [Form],
    pub grid: Grid,
    pub room: &'a Room,
    pub events: Sender<Event>,
}

impl Sink for Hand<'_> {
    /// The tiles of a band, in their order, with their seals: made by the thread that made the tile, for all of a
    /// rank's tiles pass through one that talks.
    type Ready = Vec<(Sealed, Vec<u8>)>;

    fn ready(
        &self,
        image: usize,
        band: u32,
        block: &Block,
        part: Part,
    ) -> Result<Self::Ready, Failure> {
        let tiles = self.forms[image].encode(self.grid, block, band, &part)?;
        let sealed = tiles.into_iter().map(|bytes| (Sealed::of(&bytes), bytes));
        Ok(sealed.collect())
    }

    fn keep(&self, block: &Block, ready: Vec<Self::Ready>) -> Result<(), Failure> {
        let tiles = in_files(self.forms.iter(), self.grid, block, ready)?;
        let tiles = tiles.into_iter().map(|(output, number, (seal, bytes))| {
            let output = u32::try_from(output)?;
            Ok((Tile { output, number }, seal, bytes))
        });
        let kept = tiles.collect::<Result<Vec<Kept>, Failure>>()?;
        let bytes = kept.iter().map(|(_, seal, _)| seal.length).sum();
        self.room.take(bytes)?;
        let sent = self.events.send(Event::Kept(kept));
        sent.map_err(|_| "The work was given up".into())
    }
}

/// Blocks as the manager gives them; more are asked for while the last ones are being computed.
pub(super) struct Given {
    pub places: Receiver<Range<u64>>,
    pub current: Range<u64>,
    /// What is asked for again when so few are left.
    pub few: u64,
    pub is_asked: bool,
    pub events: Sender<Event>,
}

impl Iterator for Given {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if !self.is_asked && self.current.end.saturating_sub(self.current.start) <= self.few {
            // Where nobody hears it, nothing comes either.
            let _heard = self.events.send(Event::Ask);
            self.is_asked = true;
        }
        if self.current.is_empty() {
            self.current = self.places.recv().ok()?;
            self.is_asked = false;
        }
        self.current.next()
    }
}

/// A message for the manager, and the bytes of tiles behind it.
pub(super) type Said = (ToManager, Vec<u8>);

/// Tiles that a rank keeps.
pub(super) struct Rank<'a> {
    room: &'a Room,
    kept: BTreeMap<Tile, Vec<u8>>,
    /// Where it writes them itself.
    files: Option<Vec<TileFile>>,
    is_computed: bool,
    is_over: bool,
}

impl<'a> Rank<'a> {
    pub(super) fn new(room: &'a Room, files: Option<Vec<TileFile>>) -> Self {
        Self {
            room,
            kept: BTreeMap::new(),
            files,
            is_computed: false,
            is_over: false,
        }
    }

    /// Its threads have brought tiles.
    pub(super) fn keep(&mut self, tiles: Vec<Kept>) -> Said {
        let seals = tiles.iter().map(|(tile, seal, _)| sealed(*tile, *seal));
        let said = ToManager::Sealed(seals.collect());
        let tiles = tiles.into_iter().map(|(tile, _, bytes)| (tile, bytes));
        self.kept.extend(tiles);
        (said, Vec::new())
    }

    /// Its threads have computed all.
    pub(super) fn computed(&mut self) {
        self.is_computed = true;
    }

    /// Its tiles have places.
    ///
    /// # Errors
    ///
    /// It has no such tile, or the disk does not take it.
    pub(super) fn place(&mut self, places: Vec<(Tile, Option<u64>)>) -> Result<Vec<Said>, Failure> {
        let (mut written, mut sent, mut tail) = (Vec::new(), Vec::new(), Vec::new());
        for (tile, place) in places {
            let bytes = self.kept.remove(&tile);
            let bytes = bytes.ok_or("The manager gave a place to a tile that there is not")?;
            let length = bytes.len() as u64;
            match (&self.files, place) {
                // It is there already.
                (_, None) => {}
                (Some(files), Some(place)) => {
                    let file = files.get(tile.output as usize);
                    file.ok_or("There is no such file")?.write(place, &bytes)?;
                    written.push(tile);
                }
                (None, Some(_)) => {
                    tail.extend(bytes);
                    sent.push((tile, length));
                }
            }
            self.room.give(length);
        }
        let mut said = Vec::new();
        if !written.is_empty() {
            said.push((ToManager::Written(written), Vec::new()));
        }
        if !sent.is_empty() {
            said.push((ToManager::Bytes(sent), tail));
        }
        Ok(said)
    }

    /// Says once that it is over, when it is.
    ///
    /// # Errors
    ///
    /// The disk does not take what was written.
    pub(super) fn over(&mut self) -> Result<Option<Said>, Failure> {
        if self.is_over || !self.is_computed || !self.kept.is_empty() {
            return Ok(None);
        }
        self.is_over = true;
        for file in self.files.iter().flatten() {
            file.sync()?;
        }
        Ok(Some((ToManager::Over, Vec::new())))
    }
}
