//! Which weak pixels hang together with a strong one, across all tiles of an image.
//!
//! Tiles come row by row. Of each is kept which of its regions have a strong pixel, and regions at its sides are joined
//! with those of the tiles before it: a row of numbers above and a column to the left are all that is looked at.

use super::regions::{NONE, Regions, Sets};
use pipt_raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Classes of pixels.
pub const WEAK: u8 = 1;
pub const STRONG: u8 = 2;

/// The regions of one tile's pixels that are weak or strong.
#[must_use]
pub fn regions(size: Size, classes: &[u8]) -> Regions {
    Regions::of(size, |place| {
        classes.get(place).is_some_and(|class| *class >= WEAK)
    })
}

/// What is kept of a tile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Its first column.
    x: u32,
    /// Of each region.
    is_strong: Vec<bool>,
    /// The numbers of the first and last row and of the first and last column.
    rows: [Vec<u32>; 2],
    columns: [Vec<u32>; 2],
}

impl Piece {
    #[must_use]
    pub fn of(rect: Rect, classes: &[u8]) -> Self {
        let regions = regions(rect.size(), classes);
        let mut is_strong = vec![false; regions.count];
        let all = regions.numbers.iter().zip(classes);
        for (number, _) in all.filter(|(_, class)| **class == STRONG) {
            is_strong[*number as usize] = true;
        }
        let (width, numbers) = (rect.width as usize, &regions.numbers);
        let row = |from: usize| numbers[from..from + width].to_vec();
        let column = |from: usize| numbers[from..].iter().step_by(width).copied().collect();
        Self {
            x: rect.x,
            is_strong,
            rows: [row(0), row(numbers.len() - width)],
            columns: [column(0), column(width - 1)],
        }
    }
}

/// Of each tile, in their order, which of its regions have a strong pixel somewhere.
pub type Strong = Vec<Bits>;

/// So many yes and no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Box<[u64]>);

impl Bits {
    fn of(all: &[bool]) -> Self {
        let words = all.chunks(64).map(|bits| {
            let set = bits.iter().enumerate().filter(|(_, bit)| **bit);
            set.fold(0, |word, (place, _)| word | 1 << place)
        });
        Self(words.collect())
    }

    fn set(&mut self, place: u32) {
        if let Some(word) = self.0.get_mut(place as usize / 64) {
            *word |= 1 << (place % 64);
        }
    }

    #[must_use]
    pub fn has(&self, place: u32) -> bool {
        let word = self.0.get(place as usize / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// Joins the tiles of a band.
#[derive(Debug)]
pub struct Joined {
    /// Regions that reach the side of a tile.
    sets: Sets,
    is_strong: Vec<bool>,
    /// Those of the row above the row of tiles that comes, over the whole width, and of the last row of this one.
    above: Vec<u32>,
    below: Vec<u32>,
    /// Those of the last column of the tile before.
    left: Vec<u32>,
    strong: Strong,
    /// Of each tile: its regions that are in a set, and which one.
    outer: Vec<Vec<(u32, u32)>>,
}

impl Joined {
    /// For an image of this width.
    #[must_use]
    pub fn new(width: u32) -> Self {
        let row = vec![NONE; width as usize];
        Self {
            sets: Sets::default(),
            is_strong: Vec::new(),
            above: row.clone(),
            below: row,
            left: Vec::new(),
            strong: Vec::new(),
            outer: Vec::new(),
        }
    }

    /// Takes the next tile up.
    pub fn take(&mut self, piece: &Piece) {
        if piece.x == 0 {
            std::mem::swap(&mut self.above, &mut self.below);
            self.below.fill(NONE);
            self.left.clear();
        }
        let mut numbers = vec![NONE; piece.is_strong.len()];
        let mut outer = Vec::new();
        for number in piece.rows.iter().chain(&piece.columns).flatten() {
            if *number != NONE && numbers[*number as usize] == NONE {
                let set = self.sets.add();
                numbers[*number as usize] = set;
                self.is_strong.push(piece.is_strong[*number as usize]);
                outer.push((*number, set));
            }
        }
        let sets = |side: &[u32]| -> Vec<u32> {
            let sets = side
                .iter()
                .map(|number| numbers.get(*number as usize).copied());
            sets.map(|set| set.unwrap_or(NONE)).collect()
        };
        let x = piece.x as usize;
        touch(&mut self.sets, &sets(&piece.rows[0]), &self.above, x);
        touch(&mut self.sets, &sets(&piece.columns[0]), &self.left, 0);
        let last = sets(&piece.rows[1]);
        self.below[x..x + last.len()].copy_from_slice(&last);
        self.left = sets(&piece.columns[1]);
        self.strong.push(Bits::of(&piece.is_strong));
        self.outer.push(outer);
    }

    /// All tiles have been taken up.
    #[must_use]
    pub fn strong(mut self) -> Strong {
        let count = u32::try_from(self.is_strong.len()).unwrap_or(NONE);
        for set in 0..count {
            if self.is_strong[set as usize] {
                let root = self.sets.root(set);
                self.is_strong[root as usize] = true;
            }
        }
        for (bits, outer) in self.strong.iter_mut().zip(&self.outer) {
            for (number, set) in outer {
                if self.is_strong[self.sets.root(*set) as usize] {
                    bits.set(*number);
                }
            }
        }
        self.strong
    }
}

/// Joins what lies at a side with the three of the other side that each touches; this one begins at place `from` of the
/// other.
fn touch(sets: &mut Sets, own: &[u32], other: &[u32], from: usize) {
    for (place, set) in own.iter().enumerate().filter(|(_, set)| **set != NONE) {
        let at = from + place;
        let near = at.saturating_sub(1)..(at + 2).min(other.len());
        let near = other.get(near).unwrap_or_default();
        for neighbour in near.iter().filter(|set| **set != NONE) {
            sets.join(*set, *neighbour);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Grid;
    use proptest::prelude::*;

    /// The classes of a tile.
    fn tile(classes: &[u8], width: u32, rect: Rect) -> Vec<u8> {
        let rows = classes.chunks(width as usize).skip(rect.y as usize);
        let columns = rect.x as usize..(rect.x + rect.width) as usize;
        let rows = rows.take(rect.height as usize);
        rows.flat_map(|row| row[columns.clone()].to_vec()).collect()
    }

    proptest! {
        #[test]
        fn tiles_give_what_the_whole_gives(
            classes in proptest::collection::vec(prop_oneof![3 => Just(0u8), 3 => Just(WEAK), 1 => Just(STRONG)], 13 * 11),
            side in 1..14u32,
        ) {
            let size = Size::new(13, 11);
            let whole = regions(size, &classes);
            let mut is_strong = vec![false; whole.count];
            for (number, class) in whole.numbers.iter().zip(&classes) {
                if *class == STRONG {
                    is_strong[*number as usize] = true;
                }
            }
            let wanted: Vec<bool> = whole.numbers.iter().map(|number| *number != NONE && is_strong[*number as usize]).collect();
            let grid = Grid { size, tile: side };
            let tiles = || grid.blocks(1).flat_map(move |block| grid.tiles(&block));
            let mut joined = Joined::new(size.width);
            for one in tiles() {
                joined.take(&Piece::of(one.rect, &tile(&classes, size.width, one.rect)));
            }
            for (one, strong) in tiles().zip(joined.strong()) {
                let numbers = regions(one.rect.size(), &tile(&classes, size.width, one.rect)).numbers;
                for (place, number) in (0..).zip(&numbers) {
                    let (x, y) = (one.rect.x + place % one.rect.width, one.rect.y + place / one.rect.width);
                    let found = *number != NONE && strong.has(*number);
                    prop_assert_eq!(found, wanted[(y * size.width + x) as usize], "{} {}", x, y);
                }
            }
        }
    }
}
