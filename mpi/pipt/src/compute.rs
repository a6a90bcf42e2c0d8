//! Computing a part of an image into memory.

use crate::blocks::Grid;
use crate::execute::{self, ExecuteError, Group};
use crate::graph::{Failure, Graph, Part};
use crate::stop::Stop;
use pipt_raster::Rect;
use pipt_simd::Level;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Rows of what a thread works on at a time.
const TILE: u32 = 256;
/// The most columns of it.
const MOST: u32 = 1024;
/// The columns of the first.
const FIRST: u32 = 64;
/// The least columns.
const LEAST: u32 = 8;
/// What a thread works on is as large as takes it so long: work stops as soon, when it is told to.
const PIECE: Duration = Duration::from_millis(250);

/// How it is done.
#[derive(Clone, Debug)]
pub struct Means {
    pub threads: usize,
    /// Bytes.
    pub memory: u64,
    pub level: Level,
    pub stop: Stop,
}

/// Computes a rectangle of an image; `put` is given its parts, a band and a rectangle within the whole image each, in
/// any order and by several threads at once.
///
/// # Errors
///
/// Something cannot be computed or put, there is too little memory, or it was stopped.
pub fn window(
    graph: &Graph,
    node: usize,
    rect: Rect,
    means: &Means,
    put: &(dyn Fn(u32, Rect, Part) -> Result<(), Failure> + Sync),
) -> Result<(), ExecuteError> {
    let grid = Grid {
        size: rect.size(),
        tile: TILE,
    };
    let group = Group {
        grid,
        nodes: vec![node],
    };
    let groups = std::slice::from_ref(&group);
    let (threads, tiles) = execute::means(graph, groups, means.memory, means.threads, MOST)?;
    let bands = u32::try_from(graph.shape(node).bands.len()).unwrap_or(u32::MAX);
    let (pieces, failed) = (
        Pieces::new(rect, tiles.saturating_mul(TILE)),
        Mutex::new(None::<Failure>),
    );
    let failure = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |block: Rect| -> Result<(), Failure> {
        let mut at = graph.at(&[node], block, means.level);
        for band in 0..bands {
            put(band, block, at.band(node, band)?)?;
            if means.stop.is_set() {
                break;
            }
        }
        Ok(())
    };
    let work = || {
        while !means.stop.is_set() && failure().is_none() {
            let Some(block) = pieces.take() else { return };
            let begun = Instant::now();
            if let Err(error) = one(block) {
                failure().get_or_insert(error);
            }
            pieces.took(block, begun.elapsed());
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    if means.stop.is_set() {
        return Err(ExecuteError::Stopped);
    }
    match failure().take() {
        Some(error) => Err(ExecuteError::Failed(error)),
        None => Ok(()),
    }
}

/// A rectangle that is worked on piece by piece, row of pieces after row of pieces. How wide they are follows from how
/// long those before have taken; what is computed is the same, whatever they are.
struct Pieces {
    rect: Rect,
    most: u32,
    next: Mutex<Next>,
}

struct Next {
    /// From the rectangle's corner.
    x: u32,
    y: u32,
    width: u32,
}

impl Pieces {
    /// `most` is how many columns memory allows.
    fn new(rect: Rect, most: u32) -> Self {
        let most = most.min(rect.width).max(1);
        let next = Mutex::new(Next {
            x: 0,
            y: 0,
            width: FIRST.min(most),
        });
        Self { rect, most, next }
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece; none behind the last one.
    fn take(&self) -> Option<Rect> {
        let (mut next, whole) = (self.next(), self.rect);
        if next.y >= whole.height {
            return None;
        }
        let piece = Rect {
            x: whole.x + next.x,
            y: whole.y + next.y,
            width: next.width.min(whole.width - next.x),
            height: TILE.min(whole.height - next.y),
        };
        next.x += piece.width;
        if next.x >= whole.width {
            (next.x, next.y) = (0, next.y + piece.height);
        }
        Some(piece)
    }

    /// A piece has taken so long.
    fn took(&self, piece: Rect, time: Duration) {
        let mut next = self.next();
        // Of the narrow ends of rows, the margin around them takes most.
        if piece.width < next.width {
            return;
        }
        let columns = PIECE.as_nanos() * u128::from(piece.width) / time.as_nanos().max(1);
        let columns = u32::try_from(columns).unwrap_or(u32::MAX);
        // The first ones tell little of those that follow.
        let columns = columns.min(piece.width.saturating_mul(4)).max(LEAST);
        next.width = columns.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_of_any_width_cover_a_rectangle_once(
            width in 1..3000u32, height in 1..600u32, most in 1..2000u32,
            times in prop::collection::vec(0..2_000_000_000u64, 1..9),
        ) {
            let rect = Rect::new(7, 11, width, height);
            let pieces = Pieces::new(rect, most);
            let (mut pixels, mut end) = (0, (rect.x, rect.y));
            for time in times.iter().cycle() {
                let Some(piece) = pieces.take() else { break };
                prop_assert!(piece.width <= most && piece.height <= TILE);
                prop_assert_eq!((piece.x, piece.y), end);
                pixels += piece.pixels();
                end = match piece.x + piece.width == rect.x + width {
                    true => (rect.x, piece.y + piece.height),
                    false => (piece.x + piece.width, piece.y),
                };
                pieces.took(piece, Duration::from_nanos(*time));
            }
            prop_assert_eq!(pixels, rect.pixels());
            prop_assert_eq!(end, (rect.x, rect.y + height));
        }
    }

    #[test]
    fn pieces_shrink_to_what_takes_a_quarter_of_a_second() {
        let pieces = Pieces::new(Rect::new(0, 0, 5000, 5000), 1024);
        let mut widths = Vec::new();
        for nanoseconds_of_a_column in [1_000, 1_000, 1_000, 5_000_000, 5_000_000, 900_000_000] {
            let piece = pieces.take().unwrap();
            widths.push(piece.width);
            let time = Duration::from_nanos(nanoseconds_of_a_column * u64::from(piece.width));
            pieces.took(piece, time);
        }
        assert_eq!(widths, [64, 256, 1024, 1024, 50, 50]);
        assert_eq!(pieces.take().unwrap().width, LEAST);
    }
}
