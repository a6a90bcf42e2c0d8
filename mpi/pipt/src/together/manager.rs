//! The manager: it gives out work and places, and knows when all is done. It knows no clock and no message's way.
//!
//! A tile's way: a rank seals it, the manager gives it its place when those before it have theirs, and then the rank
//! writes it there, or sends it to the manager, who does. So a file has its tiles in their order whoever computed them,
//! and its journal has only tiles that are in the file.

use super::message::{Tile, ToManager, ToRank};
use super::share::Guided;
use crate::graph::Failure;
use pipt_tiff::writer::Sealed;
use std::collections::{BTreeMap, BTreeSet};

/// The files that are written, as the manager sees them. Each has a number.
pub(super) trait Book {
    /// Tiles of each file that have to be there in the end.
    fn tiles(&self) -> Vec<u64>;

    /// Whether the tiles of a file have places that are known before they are encoded.
    fn is_fixed(&self, output: usize) -> bool;

    /// Whether a tile is in its file already.
    fn is_done(&self, tile: Tile) -> bool;

    /// The place of a tile that is as long as this.
    ///
    /// # Errors
    ///
    /// There is no such tile.
    fn reserve(&mut self, tile: Tile, length: u64) -> Result<u64, Failure>;

    /// Writes a tile to its place.
    ///
    /// # Errors
    ///
    /// The disk does not take it.
    fn write(&mut self, tile: Tile, place: u64, bytes: &[u8]) -> Result<(), Failure>;

    /// Enters a tile that is in its place.
    ///
    /// # Errors
    ///
    /// It was entered before, or the disk does not take it.
    fn enter(&mut self, tile: Tile, place: u64, seal: Sealed) -> Result<(), Failure>;
}

/// A message, and the rank that it is for.
pub(super) type Sending = (usize, ToRank);

pub(super) struct Manager<B> {
    book: B,
    ranks: usize,
    /// Gives blocks to those who ask; None: who does what is settled.
    guided: Option<Guided>,
    /// Bytes that may be on their way to the manager; None: ranks write by themselves.
    on_the_way_max: Option<u64>,
    on_the_way: u64,
    files: Vec<File>,
    over: BTreeSet<usize>,
    /// Tiles that are entered, and that have to be.
    entered: u64,
    expected: u64,
}

/// The tiles of one file that are on their way.
#[derive(Default)]
struct File {
    /// The first tile that has no place.
    next: u64,
    /// Those that wait for their place, and those that have it: the rank, and what they are.
    waiting: BTreeMap<u64, (usize, Sealed)>,
    placed: BTreeMap<u64, (usize, Sealed, u64)>,
}

impl<B: Book> Manager<B> {
    pub(super) fn new(
        book: B,
        ranks: usize,
        guided: Option<Guided>,
        on_the_way_max: Option<u64>,
    ) -> Self {
        let tiles = book.tiles();
        let mut files: Vec<File> = tiles.iter().map(|_| File::default()).collect();
        let mut entered = 0;
        for ((output, file), tiles) in (0..).zip(&mut files).zip(&tiles) {
            let is_done = |number: &u64| {
                let number = *number;
                book.is_done(Tile { output, number })
            };
            entered += (0..*tiles).filter(is_done).count() as u64;
            file.next = (0..*tiles)
                .find(|number| !is_done(number))
                .unwrap_or(*tiles);
        }
        Self {
            book,
            ranks,
            guided,
            on_the_way_max,
            on_the_way: 0,
            files,
            over: BTreeSet::new(),
            entered,
            expected: tiles.iter().sum(),
        }
    }

    /// Tiles that are in their files, and all that have to be.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.entered, self.expected)
    }

    /// The files, in the end.
    pub(super) fn into_book(self) -> B {
        self.book
    }

    /// What follows of a message of a rank; the bytes of tiles are behind it.
    ///
    /// # Errors
    ///
    /// A file cannot be written, or the rank says what it cannot mean. The work cannot go on.
    pub(super) fn handle(
        &mut self,
        from: usize,
        message: ToManager,
        mut tail: &[u8],
    ) -> Result<Vec<Sending>, Failure> {
        match message {
            ToManager::Ask => {
                let guided = self.guided.as_mut();
                let guided = guided.ok_or_else(|| format!("Rank {from} asks for no reason"))?;
                return Ok(vec![(from, ToRank::Blocks(guided.give()))]);
            }
            ToManager::Sealed(tiles) => {
                let mut needless = Vec::new();
                for (tile, length, hash) in tiles {
                    match self.is_needless(from, tile)? {
                        true => needless.push((tile, None)),
                        false => {
                            let seal = Sealed { length, hash };
                            let file = &mut self.files[tile.output as usize];
                            file.waiting.insert(tile.number, (from, seal));
                        }
                    }
                }
                let mut sendings = self.give_places()?;
                if !needless.is_empty() {
                    sendings.push((from, ToRank::Places(needless)));
                }
                return Ok(sendings);
            }
            ToManager::Written(tiles) => {
                for tile in tiles {
                    let (seal, place) = self.placed(from, tile)?;
                    self.enter(tile, place, seal)?;
                }
            }
            ToManager::Bytes(tiles) => {
                for (tile, length) in tiles {
                    let (seal, place) = self.placed(from, tile)?;
                    let bytes = usize::try_from(length).ok();
                    let (bytes, rest) = bytes
                        .and_then(|length| tail.split_at_checked(length))
                        .ok_or_else(|| format!("Rank {from} did not send what it said"))?;
                    tail = rest;
                    if Sealed::of(bytes) != seal {
                        return Err(
                            format!("Rank {from} sent another tile than it had sealed").into()
                        );
                    }
                    self.book.write(tile, place, bytes)?;
                    self.on_the_way = self.on_the_way.saturating_sub(length);
                    self.enter(tile, place, seal)?;
                }
                return self.give_places();
            }
            ToManager::Over => {
                self.over.insert(from);
                return self.end();
            }
            ToManager::Failed(sentence) => return Err(format!("Rank {from}: {sentence}").into()),
        }
        Ok(Vec::new())
    }

    /// Whether a tile need not be written any more; an error, if it is none, or another rank has it.
    fn is_needless(&self, from: usize, tile: Tile) -> Result<bool, Failure> {
        let file = self.files.get(tile.output as usize);
        let file = file.ok_or_else(|| format!("Rank {from} has a tile of no file"))?;
        if file.waiting.contains_key(&tile.number) || file.placed.contains_key(&tile.number) {
            return Err(format!(
                "Rank {from} has tile {}, which another one has too",
                tile.number
            )
            .into());
        }
        Ok(self.book.is_done(tile))
    }

    /// Gives places to tiles whose turn it is.
    fn give_places(&mut self) -> Result<Vec<Sending>, Failure> {
        let mut places: BTreeMap<usize, Vec<(Tile, Option<u64>)>> = BTreeMap::new();
        for (output, file) in (0..).zip(&mut self.files) {
            let is_fixed = self.book.is_fixed(output as usize);
            loop {
                let is_full = self
                    .on_the_way_max
                    .is_some_and(|most| self.on_the_way >= most);
                let next = match is_fixed {
                    true => file.waiting.keys().next().copied(),
                    false => Some(file.next),
                };
                let Some(number) = next.filter(|_| !is_full) else {
                    break;
                };
                let tile = Tile { output, number };
                let Some((rank, seal)) = file.waiting.remove(&number) else {
                    break;
                };
                let place = self.book.reserve(tile, seal.length)?;
                file.placed.insert(number, (rank, seal, place));
                file.next = number + 1;
                if self.on_the_way_max.is_some() {
                    self.on_the_way += seal.length;
                }
                places.entry(rank).or_default().push((tile, Some(place)));
            }
        }
        let told = places.into_iter();
        Ok(told
            .map(|(rank, places)| (rank, ToRank::Places(places)))
            .collect())
    }

    /// A tile of a rank that has its place, and will be entered.
    fn placed(&mut self, from: usize, tile: Tile) -> Result<(Sealed, u64), Failure> {
        let file = self.files.get_mut(tile.output as usize);
        let placed = file.and_then(|file| file.placed.remove(&tile.number));
        match placed {
            Some((rank, seal, place)) if rank == from => Ok((seal, place)),
            _ => Err(format!(
                "Rank {from} wrote tile {} without a place for it",
                tile.number
            )
            .into()),
        }
    }

    fn enter(&mut self, tile: Tile, place: u64, seal: Sealed) -> Result<(), Failure> {
        self.book.enter(tile, place, seal)?;
        self.entered += 1;
        Ok(())
    }

    /// Whether all is done, once all ranks are.
    fn end(&self) -> Result<Vec<Sending>, Failure> {
        if self.over.len() < self.ranks {
            return Ok(Vec::new());
        }
        if self.entered < self.expected {
            let missing = self.expected - self.entered;
            return Err(format!("All ranks are done, and {missing} tiles are missing").into());
        }
        Ok((0..self.ranks).map(|rank| (rank, ToRank::End)).collect())
    }
}

#[cfg(test)]
mod tests;
