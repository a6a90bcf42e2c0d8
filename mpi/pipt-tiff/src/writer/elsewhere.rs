//! Tiles of one file that several processes write, on one machine or on several that share a file system.
//!
//! One process has the [`Writer`]. It says where a tile goes whose length is known ([`Writer::reserve`]), in the
//! order of tiles, so that the file has the bytes that one process alone would have written. Whoever has encoded the
//! tile writes it there ([`TileFile`]), and when that is done the writer enters it ([`Writer::enter_written`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::{Writer, io_error, journal_of, part_of};
use crate::error::TiffError;
use crate::journal::Entry;

/// What is known of an encoded tile without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub length: u64,
    /// Its XXH3, by which a tile is known again that an interrupted run has left.
    pub hash: u64,
}

impl Sealed {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len() as u64,
            hash: xxh3_64(bytes),
        }
    }
}

impl Writer {
    /// The place of a tile that another process has encoded: its first byte. Tiles of compressed files are asked
    /// for in the order of their numbers, without those that are done, and none of the file is given by
    /// [`Self::put`] until all are entered.
    ///
    /// # Errors
    ///
    /// It is not the next one, or no tile of this file is so long.
    pub fn reserve(&self, number: u64, length: u64) -> Result<u64, TiffError> {
        self.check_length(number, length)?;
        if let Some(place) = self.design.fixed_place(number) {
            return Ok(place);
        }
        let mut state = self.state();
        if number != state.reserved.0.max(state.next) {
            let next = state.reserved.0.max(state.next);
            return Err(TiffError::Tile {
                tile: number,
                problem: format!("a place was asked for it, and {next} is the next one"),
            });
        }
        let place = state.reserved.1.max(state.end);
        state.reserved = (number + 1, place + length);
        Ok(place)
    }

    /// Enters a tile that another process has written to its place. In the journal a compressed tile waits for those
    /// before it, as it can only be taken up again behind them.
    ///
    /// # Errors
    ///
    /// It is entered already, or the journal cannot be written.
    pub fn enter_written(&self, number: u64, place: u64, tile: Sealed) -> Result<(), TiffError> {
        self.check_length(number, tile.length)?;
        if self.is_done(number) {
            return Err(TiffError::Tile {
                tile: number,
                problem: "it was entered before".to_owned(),
            });
        }
        let mut state = self.state();
        let entry = Entry {
            number,
            offset: place,
            length: tile.length,
            hash: tile.hash,
        };
        if self.design.fixed_place(number).is_some() {
            return self.enter_all(&mut state, &[entry]);
        }
        state.written.insert(number, entry);
        let mut ready = Vec::new();
        let mut next = state.next;
        while let Some(entry) = state.written.remove(&next) {
            ready.push(entry);
            next += 1;
        }
        self.enter_all(&mut state, &ready)
    }

    fn enter_all(&self, state: &mut super::State, entries: &[Entry]) -> Result<(), TiffError> {
        for entry in entries {
            if let Some(journal) = &mut state.journal {
                let added = journal.add(*entry);
                added.map_err(io_error("write", &journal_of(&self.target)))?;
            }
            state.enter(entry.number, entry.offset, entry.length);
        }
        Ok(())
    }

    pub(super) fn check_length(&self, number: u64, length: u64) -> Result<(), TiffError> {
        let bad = |problem: String| TiffError::Tile {
            tile: number,
            problem,
        };
        if number >= self.design.tiles() {
            return Err(bad(format!("the file has {} tiles", self.design.tiles())));
        }
        let is_fixed = self.design.fixed_place(number).is_some();
        if length > self.design.most_of_a_tile() || (is_fixed && length != self.design.tile_bytes())
        {
            return Err(bad(format!(
                "{length} bytes are no encoded tile of this file"
            )));
        }
        Ok(())
    }
}

/// A file that another process has begun, to write tiles to the places that its writer gives.
#[derive(Debug)]
pub struct TileFile {
    file: File,
    part: PathBuf,
}

impl TileFile {
    /// # Errors
    ///
    /// It is not there: the writer has not begun it, or its directory is not shared.
    pub fn open(target: &Path) -> Result<Self, TiffError> {
        let part = part_of(target);
        let file = OpenOptions::new().write(true).open(&part);
        let file = file.map_err(|source| {
            let lies_elsewhere = source.kind() == io::ErrorKind::NotFound;
            match lies_elsewhere {
                true => io_error("find in a directory that all machines share", &part)(source),
                false => io_error("open", &part)(source),
            }
        })?;
        Ok(Self { file, part })
    }

    /// # Errors
    ///
    /// The disk does not take it.
    pub fn write(&self, place: u64, bytes: &[u8]) -> Result<(), TiffError> {
        let written = self.file.write_all_at(bytes, place);
        written.map_err(io_error("write", &self.part))
    }

    /// Brings what was written to the disk, from where all machines see it.
    ///
    /// # Errors
    ///
    /// The disk does not take it.
    pub fn sync(&self) -> Result<(), TiffError> {
        let synced = self.file.sync_data();
        synced.map_err(io_error("write to the disk", &self.part))
    }
}
