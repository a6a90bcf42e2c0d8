//! Doing the work: blocks of an image are computed by threads, and given on in their order.

use crate::blocks::{Block, Grid};
use crate::graph::{Failure, Graph, Part};
use crate::input::causes;
use pipt_raster::Size;
use pipt_simd::Level;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Images that are computed together: they are of one size, and are written in tiles of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub grid: Grid,
    /// Of the graph.
    pub nodes: Vec<usize>,
}

/// Where the images of a group go. Blocks come in their order, whatever thread has computed them.
pub trait Sink: Sync {
    /// What a block becomes before its turn comes: tiles, compressed. Called by many threads at once.
    type Ready: Send;

    /// Makes a band of an image of the group ready.
    ///
    /// # Errors
    ///
    /// It cannot be encoded.
    fn ready(
        &self,
        image: usize,
        band: u32,
        block: &Block,
        part: Part,
    ) -> Result<Self::Ready, Failure>;

    /// Keeps a block: all bands of all images of the group, in their order. Called by one thread at a time,
    /// block after block.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    fn keep(&self, block: &Block, ready: Vec<Self::Ready>) -> Result<(), Failure>;
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    pub threads: usize,
    /// Tiles of a block.
    pub tiles: u32,
    pub level: Level,
}

/// Why work was not done.
#[derive(Debug)]
pub enum ExecuteError {
    /// Memory that is wanted at least, and that there is, in bytes.
    Memory {
        least: u64,
        given: u64,
    },
    Failed(Failure),
    /// It was told to stop.
    Stopped,
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: &u64| bytes.div_ceil(1 << 20);
        match self {
            Self::Memory { least, given } => write!(
                to,
                "It needs at least {} MiB of memory, and may use {}: give --ram {}M, or write smaller tiles",
                mebibytes(least),
                mebibytes(given),
                mebibytes(least)
            ),
            Self::Failed(failure) => write!(to, "{}", causes(failure.as_ref())),
            Self::Stopped => write!(to, "It was stopped"),
        }
    }
}

impl std::error::Error for ExecuteError {}

/// Bytes that a thread takes at the most for a block: the parts while they are computed, and the finished
/// bands until their turn comes.
#[must_use]
pub fn memory(graph: &Graph, group: &Group, tiles: u32) -> u64 {
    let (whole, tile) = (group.grid.size, group.grid.tile);
    let size = Size::new(
        tiles.saturating_mul(tile).min(whole.width),
        tile.min(whole.height),
    );
    let kept = group.nodes.iter().map(|node| {
        let shape = graph.shape(*node);
        size.pixels() * shape.bands.len() as u64 * shape.kind.bytes() as u64
    });
    graph.memory(&group.nodes, size) + kept.sum::<u64>()
}

/// The most threads, and then the longest blocks, up to those wanted, that memory allows. A block of more
/// than `most` pixels gains nothing.
///
/// # Errors
///
/// There is not enough for one thread with blocks of one tile.
pub fn means(
    graph: &Graph,
    groups: &[Group],
    bytes: u64,
    threads: usize,
    most: u32,
) -> Result<(usize, u32), ExecuteError> {
    let of = |tiles| {
        let all = groups.iter().map(|group| memory(graph, group, tiles));
        all.max().unwrap_or(0)
    };
    let least = of(1);
    if least > bytes {
        return Err(ExecuteError::Memory {
            least,
            given: bytes,
        });
    }
    let tile = groups
        .iter()
        .map(|group| group.grid.tile)
        .max()
        .unwrap_or(1);
    let mut threads = threads.max(1);
    while threads as u64 * least > bytes {
        threads -= 1;
    }
    let mut tiles = 1;
    while (tiles + 1) * tile <= most && threads as u64 * of(tiles + 1) <= bytes {
        tiles += 1;
    }
    Ok((threads, tiles))
}

/// Computes a group's images, from the block with the tile `skip` on; `pixels` counts those that are kept, and `stop` ends
/// the work after the blocks that are being computed.
///
/// # Errors
///
/// Something cannot be read, computed or written, or it was stopped.
pub fn execute<S: Sink>(
    graph: &Graph,
    group: &Group,
    sink: &S,
    means: Means,
    skip: u64,
    watch: &Watch,
) -> Result<(), ExecuteError> {
    let blocks = group.grid.blocks(means.tiles);
    let blocks = blocks.filter(move |block| block.first + u64::from(block.tiles) > skip);
    execute_blocks(graph, group, sink, means, blocks, watch)
}

/// Computes these blocks of a group's images, which are kept in this order.
///
/// # Errors
///
/// Those of [`execute`].
pub fn execute_blocks<S: Sink>(
    graph: &Graph,
    group: &Group,
    sink: &S,
    means: Means,
    blocks: impl Iterator<Item = Block> + Send,
    watch: &Watch,
) -> Result<(), ExecuteError> {
    let queue = Queue {
        blocks: Mutex::new((0, blocks)),
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
    };
    let work = || {
        while let Some((number, block)) = queue.take(watch) {
            let done = ready(graph, group, sink, means.level, &block);
            let kept = done.and_then(|ready| queue.in_turn(number, || sink.keep(&block, ready)));
            match kept {
                Ok(true) => {
                    watch
                        .pixels
                        .fetch_add(block.rect.pixels(), Ordering::Relaxed);
                }
                // Another one has failed.
                Ok(false) => return,
                Err(failure) => return queue.fail(failure),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..means.threads {
            scope.spawn(work);
        }
        work();
    });
    let state = queue
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match state.failure {
        Some(failure) => Err(ExecuteError::Failed(failure)),
        None if watch.stop.load(Ordering::Relaxed) => Err(ExecuteError::Stopped),
        None => Ok(()),
    }
}

/// What others see of work, and how they end it.
#[derive(Debug, Default)]
pub struct Watch {
    pub pixels: AtomicU64,
    pub stop: AtomicBool,
}

/// Computes a block.
///
/// # Errors
///
/// Something cannot be read or computed.
pub fn ready<S: Sink>(
    graph: &Graph,
    group: &Group,
    sink: &S,
    level: Level,
    block: &Block,
) -> Result<Vec<S::Ready>, Failure> {
    let mut at = graph.at(&group.nodes, block.rect, level);
    let mut ready = Vec::new();
    for (image, node) in group.nodes.iter().enumerate() {
        let bands = u32::try_from(graph.shape(*node).bands.len())?;
        for band in 0..bands {
            let part = at.band(*node, band)?;
            ready.push(sink.ready(image, band, block, part)?);
        }
    }
    Ok(ready)
}

/// Blocks that are yet to be computed, and whose turn it is to be kept.
struct Queue<I> {
    blocks: Mutex<(u64, I)>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    turn: u64,
    failure: Option<Failure>,
}

impl<I: Iterator<Item = Block>> Queue<I> {
    fn take(&self, watch: &Watch) -> Option<(u64, Block)> {
        if watch.stop.load(Ordering::Relaxed) {
            return None;
        }
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let block = blocks.1.next()?;
        let number = blocks.0;
        blocks.0 += 1;
        Some((number, block))
    }

    /// Waits for the turn of a block; false if another one has failed and none will come.
    fn in_turn(
        &self,
        number: u64,
        keep: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut State| state.turn != number && state.failure.is_none();
        let waited = self.changed.wait_while(state, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.failure.is_some() {
            return Ok(false);
        }
        // The lock is kept: who comes next has to wait for this one anyway.
        keep()?;
        state.turn += 1;
        self.changed.notify_all();
        Ok(true)
    }

    fn fail(&self, failure: Failure) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.get_or_insert(failure);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
