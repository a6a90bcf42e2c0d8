//! How an image is divided for work, and in which order its tiles are written.
//!
//! A thread works on a block: some tiles beside each other. Blocks come in the order of the tiles in the
//! file, row by row, so the file's bytes are the same for blocks of any length, and no more has to wait for
//! its turn than the threads are working on. (Squares of tiles would share more of a large halo; but in
//! their order a whole row of the image has to wait, or the tiles lie in the file in an order of our own.)

use pipt_raster::{Rect, Size};

/// An image as square tiles; those at its right and lower edge may hang over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub size: Size,
    /// Pixels to a side.
    pub tile: u32,
}

/// Some tiles that are worked on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its pixels.
    pub rect: Rect,
    /// Its first tile's place in the order in which they are written.
    pub first: u64,
    /// How many there are.
    pub tiles: u32,
}

/// One tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its pixels within the image.
    pub rect: Rect,
    /// Its place in the order in which they are written.
    pub turn: u64,
}

impl Grid {
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.size.width.div_ceil(self.tile)
    }

    #[must_use]
    pub fn rows(&self) -> u32 {
        self.size.height.div_ceil(self.tile)
    }

    /// How many blocks of so many tiles there are.
    #[must_use]
    pub fn count(&self, tiles: u32) -> u64 {
        u64::from(self.columns().div_ceil(tiles.max(1))) * u64::from(self.rows())
    }

    /// One of the blocks of so many tiles, by its place in the order in which they are written.
    #[must_use]
    pub fn block(&self, tiles: u32, number: u64) -> Block {
        let (tiles, columns) = (tiles.max(1), self.columns());
        let of_row = u64::from(columns.div_ceil(tiles)).max(1);
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (row, column) = (whole(number / of_row), whole(number % of_row) * tiles);
        let count = tiles.min(columns - column);
        Block {
            rect: self.pixels(column, row, count),
            first: u64::from(row) * u64::from(columns) + u64::from(column),
            tiles: count,
        }
    }

    /// Blocks of so many tiles, or what is left of a row; in the order in which they are written.
    pub fn blocks(&self, tiles: u32) -> impl Iterator<Item = Block> + use<> {
        let grid = *self;
        (0..grid.count(tiles)).map(move |number| grid.block(tiles, number))
    }

    /// The tiles of a block, in the order in which they are written.
    pub fn tiles(&self, block: &Block) -> impl Iterator<Item = Tile> + use<> {
        let (tile, rect) = (self.tile, block.rect);
        (0..block.tiles)
            .zip(block.first..)
            .map(move |(number, turn)| {
                let x = rect.x + number * tile;
                let width = tile.min(rect.width - number * tile);
                Tile {
                    rect: Rect { x, width, ..rect },
                    turn,
                }
            })
    }

    fn pixels(&self, column: u32, row: u32, tiles: u32) -> Rect {
        let from = |tiles: u32| tiles.saturating_mul(self.tile);
        let (x, y) = (from(column), from(row));
        Rect::new(x, y, from(tiles), self.tile).intersection(self.size.rect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tiles_come_row_by_row() {
        let grid = Grid {
            size: Size::new(40, 25),
            tile: 16,
        };
        let blocks: Vec<Block> = grid.blocks(2).collect();
        let firsts: Vec<_> = blocks
            .iter()
            .map(|block| (block.first, block.tiles))
            .collect();
        assert_eq!(firsts, [(0, 2), (2, 1), (3, 2), (5, 1)]);
        let tiles: Vec<Tile> = grid.tiles(&blocks[2]).collect();
        assert_eq!(tiles[1].rect, Rect::new(16, 16, 16, 9));
        assert_eq!(tiles[1].turn, 4);
        assert_eq!(blocks[3].rect, Rect::new(32, 16, 8, 9));
    }

    proptest! {
        #[test]
        fn the_order_of_tiles_is_that_of_blocks_of_any_length(
            width in 1..300u32, height in 1..300u32, tiles in 1..30u32,
        ) {
            let grid = Grid { size: Size::new(width, height), tile: 16 };
            let order = |tiles: u32| {
                let blocks = grid.blocks(tiles);
                blocks.flat_map(move |block| grid.tiles(&block)).collect::<Vec<_>>()
            };
            let one = order(1);
            prop_assert_eq!(&order(tiles), &one);
            let turns: Vec<u64> = one.iter().map(|tile| tile.turn).collect();
            prop_assert_eq!(turns, (0..one.len() as u64).collect::<Vec<_>>());
            let pixels: u64 = one.iter().map(|tile| tile.rect.pixels()).sum();
            prop_assert_eq!(pixels, grid.size.pixels());
            let blocks: u64 = grid.blocks(tiles).map(|block| block.rect.pixels()).sum();
            prop_assert_eq!(blocks, grid.size.pixels());
        }
    }

    #[test]
    fn images_may_be_as_large_as_files_can_say() {
        let grid = Grid {
            size: Size::new(u32::MAX, 1),
            tile: 16,
        };
        let blocks: Vec<Block> = grid.blocks(1 << 24).collect();
        assert_eq!(blocks.len(), 16);
        let pixels: u64 = blocks.iter().map(|block| block.rect.pixels()).sum();
        assert_eq!(pixels, u64::from(u32::MAX));
    }
}
