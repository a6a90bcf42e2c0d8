use super::super::message::sealed;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Files in memory, which see what a disk would.
struct Paper {
    tiles: Vec<u64>,
    is_fixed: bool,
    done: BTreeSet<Tile>,
    ends: Vec<u64>,
    /// Where each tile is, and how long.
    places: BTreeMap<Tile, (u64, u64)>,
    written: BTreeSet<Tile>,
}

/// A tile is so long if its place is fixed.
const LENGTH: u64 = 40;

fn length(tile: Tile, is_fixed: bool) -> u64 {
    match is_fixed {
        true => LENGTH,
        false => 1 + (tile.number * 7 + u64::from(tile.output)) % 31,
    }
}

fn bytes(tile: Tile, is_fixed: bool) -> Vec<u8> {
    let length = length(tile, is_fixed);
    (0..length)
        .map(|place| u8::try_from((tile.number + place) % 251).expect("small"))
        .collect()
}

impl Book for Paper {
    fn tiles(&self) -> Vec<u64> {
        self.tiles.clone()
    }

    fn is_fixed(&self, _: usize) -> bool {
        self.is_fixed
    }

    fn is_done(&self, tile: Tile) -> bool {
        self.done.contains(&tile)
    }

    fn reserve(&mut self, tile: Tile, length: u64) -> Result<u64, Failure> {
        let end = &mut self.ends[tile.output as usize];
        let place = match self.is_fixed {
            true => tile.number * LENGTH,
            false => *end,
        };
        *end = place + length;
        self.places.insert(tile, (place, length));
        Ok(place)
    }

    fn write(&mut self, tile: Tile, place: u64, bytes: &[u8]) -> Result<(), Failure> {
        assert_eq!(self.places.get(&tile), Some(&(place, bytes.len() as u64)));
        assert!(self.written.insert(tile), "{tile:?} is written twice");
        Ok(())
    }

    fn enter(&mut self, tile: Tile, place: u64, seal: Sealed) -> Result<(), Failure> {
        assert_eq!(self.places.get(&tile), Some(&(place, seal.length)));
        assert!(self.done.insert(tile), "{tile:?} is entered twice");
        Ok(())
    }
}

/// Ranks whose messages come in some order, but those of one rank in their own.
struct Ranks {
    manager: Manager<Paper>,
    is_fixed: bool,
    gathers: bool,
    /// Of each rank: what it has yet to seal, what it has said that is not heard yet, and whether it is over.
    todo: Vec<VecDeque<Vec<Tile>>>,
    said: Vec<VecDeque<(ToManager, Vec<u8>)>>,
    sealed: Vec<usize>,
    ended: usize,
    most_on_the_way: u64,
}

impl Ranks {
    fn seal(&mut self, rank: usize) {
        let Some(tiles) = self.todo[rank].pop_front() else {
            return;
        };
        self.sealed[rank] += tiles.len();
        let seal = |tile: &Tile| sealed(*tile, Sealed::of(&bytes(*tile, self.is_fixed)));
        let seals = tiles.iter().map(seal);
        self.said[rank].push_back((ToManager::Sealed(seals.collect()), Vec::new()));
    }

    /// The manager hears one message of a rank.
    fn hear(&mut self, rank: usize) {
        let Some((word, tail)) = self.said[rank].pop_front() else {
            return;
        };
        let sendings = self.manager.handle(rank, word, &tail).expect("it goes on");
        self.most_on_the_way = self.most_on_the_way.max(self.manager.on_the_way);
        for (to, word) in sendings {
            self.answer(to, word);
        }
    }

    fn answer(&mut self, rank: usize, word: ToRank) {
        match word {
            ToRank::Places(places) => {
                self.sealed[rank] -= places.len();
                let own: Vec<Tile> = places
                    .iter()
                    .filter(|place| place.1.is_some())
                    .map(|place| place.0)
                    .collect();
                let said = match self.gathers {
                    _ if own.is_empty() => None,
                    false => Some((ToManager::Written(own), Vec::new())),
                    true => {
                        let tail = own
                            .iter()
                            .flat_map(|tile| bytes(*tile, self.is_fixed))
                            .collect();
                        let tiles = own.iter().map(|tile| (*tile, length(*tile, self.is_fixed)));
                        Some((ToManager::Bytes(tiles.collect()), tail))
                    }
                };
                self.said[rank].extend(said);
            }
            ToRank::End => self.ended += 1,
            other => panic!("{other:?}"),
        }
    }

    fn over(&mut self) {
        for rank in 0..self.todo.len() {
            assert_eq!((self.todo[rank].len(), self.sealed[rank]), (0, 0));
            self.said[rank].push_back((ToManager::Over, Vec::new()));
        }
    }
}

fn ranks(owners: &[usize], is_fixed: bool, gathers: bool, done: u64) -> Ranks {
    let (count, size) = (owners.len() as u64, 4);
    let tile = |output, number| Tile { output, number };
    let paper = Paper {
        tiles: vec![count, count],
        is_fixed,
        done: (0..2)
            .flat_map(|output| (0..done).map(move |number| tile(output, number)))
            .collect(),
        ends: vec![1000, 2000],
        places: BTreeMap::new(),
        written: BTreeSet::new(),
    };
    let mut todo = vec![VecDeque::new(); size];
    for (number, owner) in (0..).zip(owners) {
        // A block has a tile of each file; those before `done` are as if a block was done in part.
        todo[*owner].push_back(vec![tile(0, number), tile(1, number)]);
    }
    Ranks {
        manager: Manager::new(paper, size, None, gathers.then_some(60)),
        is_fixed,
        gathers,
        todo,
        said: vec![VecDeque::new(); size],
        sealed: vec![0; size],
        ended: 0,
        most_on_the_way: 0,
    }
}

proptest! {
    #[test]
    fn files_are_the_same_whatever_comes_first(
        owners in proptest::collection::vec(0..4_usize, 0..40),
        order in proptest::collection::vec((0..4_usize, any::<bool>()), 0..400),
        is_fixed: bool, gathers: bool, done in 0..10_u64,
    ) {
        let count = owners.len() as u64;
        let mut all = ranks(&owners, is_fixed, gathers, done.min(count));
        for (rank, seals) in order {
            match seals {
                true => all.seal(rank),
                false => all.hear(rank),
            }
        }
        // What is left, without an order of its own.
        for _ in 0..4 * (count + 4) {
            for rank in 0..4 {
                all.seal(rank);
                all.hear(rank);
            }
        }
        all.over();
        for rank in 0..4 {
            all.hear(rank);
        }
        prop_assert_eq!(all.ended, 4);
        prop_assert_eq!(all.manager.progress(), (2 * count, 2 * count));
        prop_assert!(all.most_on_the_way <= 60 + LENGTH);
        let paper = all.manager.into_book();
        prop_assert_eq!(paper.done.len() as u64, 2 * count);
        for output in 0..2_u32 {
            let mut end = 1000 * (u64::from(output) + 1);
            for number in done.min(count)..count {
                let tile = Tile { output, number };
                let place = if is_fixed { number * LENGTH } else { end };
                prop_assert_eq!(paper.places.get(&tile), Some(&(place, length(tile, is_fixed))));
                end += length(tile, is_fixed);
                prop_assert_eq!(paper.written.contains(&tile), gathers);
            }
        }
    }

    #[test]
    fn what_a_rank_cannot_mean_is_an_error_and_no_more(
        words in proptest::collection::vec((0..4_usize, 0..6_u8, 0..4_u32, 0..6_u64, 0..50_u64), 1..60),
    ) {
        let mut all = ranks(&[0, 1, 2, 3], false, true, 0);
        for (rank, kind, output, number, length) in words {
            let tile = Tile { output, number };
            let (word, tail) = match kind {
                0 => (ToManager::Ask, Vec::new()),
                1 => (ToManager::Sealed(vec![(tile, length, 5)]), Vec::new()),
                2 => (ToManager::Written(vec![tile]), Vec::new()),
                3 => (ToManager::Bytes(vec![(tile, length)]), vec![0; usize::try_from(length).expect("small")]),
                4 => (ToManager::Bytes(vec![(tile, u64::MAX)]), vec![1, 2]),
                _ => (ToManager::Failed("no".to_owned()), Vec::new()),
            };
            // The first error ends the work.
            if all.manager.handle(rank, word, &tail).is_err() {
                break;
            }
        }
    }
}

#[test]
fn tiles_that_nobody_brought_are_missed_in_the_end() {
    let mut all = ranks(&[0, 1], true, false, 0);
    all.seal(0);
    all.hear(0);
    all.hear(0);
    let over = |rank, all: &mut Ranks| all.manager.handle(rank, ToManager::Over, &[]);
    for rank in 0..3 {
        assert_eq!(over(rank, &mut all).expect("others go on"), []);
    }
    let error = over(3, &mut all).expect_err("tiles are missing");
    assert!(error.to_string().contains("2 tiles are missing"), "{error}");
}
