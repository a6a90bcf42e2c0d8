//! Computing a part of an image into memory.

use crate::blocks::Grid;
use crate::execute::{self, ExecuteError, Group};
use crate::graph::{Failure, Graph, Part};
use crate::stop::Stop;
use pipt_raster::Rect;
use pipt_simd::Level;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Pixels to a side of what a thread works on at a time: little enough for work to stop soon.
const TILE: u32 = 256;
/// The most of a row.
const MOST: u32 = 1024;

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
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None::<Failure>));
    let failure = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let count = grid.count(tiles);
    let one = |number: u64| -> Result<(), Failure> {
        let block = grid.block(tiles, number).rect;
        let block = Rect {
            x: block.x + rect.x,
            y: block.y + rect.y,
            ..block
        };
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
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(error) = one(number) {
                failure().get_or_insert(error);
            }
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
