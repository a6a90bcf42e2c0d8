//! An entry for tests with messages that nobody meant.

use super::manager::{Book, Manager};
use super::message::{Message, Tile};
use super::share::Guided;
use crate::graph::Failure;
use pipt_tiff::writer::Sealed;
use std::collections::BTreeSet;

/// Two files of so many tiles.
const TILES: u64 = 16;
const RANKS: usize = 4;

/// Files that are nowhere.
#[derive(Default)]
struct Nowhere {
    end: u64,
    done: BTreeSet<Tile>,
}

impl Book for Nowhere {
    fn tiles(&self) -> Vec<u64> {
        vec![TILES, TILES]
    }

    fn is_fixed(&self, output: usize) -> bool {
        output == 1
    }

    fn is_done(&self, tile: Tile) -> bool {
        self.done.contains(&tile)
    }

    fn reserve(&mut self, tile: Tile, length: u64) -> Result<u64, Failure> {
        if tile.number >= TILES || length > 1 << 20 {
            return Err("no tile of this file".into());
        }
        self.end += length;
        Ok(self.end - length)
    }

    fn write(&mut self, _: Tile, place: u64, bytes: &[u8]) -> Result<(), Failure> {
        assert!(
            place + bytes.len() as u64 <= self.end,
            "beyond what was given"
        );
        Ok(())
    }

    fn enter(&mut self, tile: Tile, _: u64, _: Sealed) -> Result<(), Failure> {
        assert!(tile.number < TILES, "{tile:?} is none");
        assert!(self.done.insert(tile), "{tile:?} is entered twice");
        Ok(())
    }
}

/// Lets a manager hear messages: each has a byte for its rank, one for its length, and so many bytes. Gives how many were
/// messages.
#[must_use]
pub fn fuzz(mut data: &[u8]) -> usize {
    let guided = Guided::new(100, RANKS, 8);
    let mut manager = Manager::new(Nowhere::default(), RANKS, Some(guided), Some(1000));
    let mut heard = 0;
    while let [from, length, rest @ ..] = data {
        let (bytes, next) = rest.split_at(usize::from(*length).min(rest.len()));
        data = next;
        let from = usize::from(*from) % RANKS;
        let Ok((Message::ToManager(word), tail)) = Message::read(from, bytes) else {
            continue;
        };
        heard += 1;
        // The first error ends the work.
        if manager.handle(from, word, tail).is_err() {
            break;
        }
        let (entered, all) = manager.progress();
        assert!(entered <= all, "{entered} of {all}");
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn corpus_of_ranks() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ranks");
        let mut heard = 0;
        for entry in std::fs::read_dir(corpus).expect("a corpus") {
            heard += fuzz(&std::fs::read(entry.expect("an entry").path()).expect("a file"));
        }
        assert!(heard > 0, "nothing in it is a message");
    }
}
