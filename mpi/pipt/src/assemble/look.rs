//! Looking through a whole image before a pixel of a result is computed.

use super::{AssembleError, Setting};
use crate::blocks::{Block, Grid};
use crate::execute::{self, Group, Means, Sink, Watch};
use crate::graph::{Failure, Graph, Part};
use std::sync::{Mutex, PoisonError};

/// Pixels to a side of the tiles that are looked through.
pub(super) const TILE: u32 = 512;
/// Pixels of a row that one thread looks through at a time.
const MOST: u32 = 4096;

/// Something that is learnt of each band of an image.
pub(super) struct Look<S, F, T, J> {
    pub all: Mutex<Vec<S>>,
    /// Of what is known, where nothing was seen yet.
    pub fresh: F,
    pub take: T,
    pub join: J,
}

impl<S, F, T, J> Look<S, F, T, J>
where
    S: Send,
    F: Fn(&S) -> S + Sync,
    T: Fn(&mut S, &Part) + Sync,
    J: Fn(&mut S, &S) + Sync,
{
    pub(super) fn through(
        &self,
        graph: &Graph,
        node: usize,
        setting: &Setting<'_>,
    ) -> Result<(), AssembleError> {
        through(graph, grid(graph, node, TILE), node, setting, self)
    }
}

/// Looks through all of an image.
pub(super) fn through(
    graph: &Graph,
    grid: Grid,
    node: usize,
    setting: &Setting<'_>,
    sink: &impl Sink,
) -> Result<(), AssembleError> {
    let group = Group {
        grid,
        nodes: vec![node],
    };
    let groups = [group];
    let (threads, tiles) = execute::means(graph, &groups, setting.memory, setting.threads, MOST)
        .map_err(AssembleError::Survey)?;
    let means = Means {
        threads,
        tiles,
        level: setting.level,
    };
    let [group] = &groups;
    execute::execute(graph, group, sink, means, 0, &Watch::default()).map_err(AssembleError::Survey)
}

/// An image in tiles of this size.
pub(super) fn grid(graph: &Graph, node: usize, tile: u32) -> Grid {
    let size = graph.shape(node).size;
    Grid { size, tile }
}

impl<S, F, T, J> Sink for Look<S, F, T, J>
where
    S: Send,
    F: Fn(&S) -> S + Sync,
    T: Fn(&mut S, &Part) + Sync,
    J: Fn(&mut S, &S) + Sync,
{
    type Ready = S;

    fn ready(&self, _: usize, band: u32, _: &Block, part: Part) -> Result<S, Failure> {
        let mut one = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            (self.fresh)(all.get(band as usize).ok_or("There is no such band")?)
        };
        (self.take)(&mut one, &part);
        Ok(one)
    }

    fn keep(&self, _: &Block, ready: Vec<S>) -> Result<(), Failure> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut()
            .zip(&ready)
            .for_each(|(all, one)| (self.join)(all, one));
        Ok(())
    }
}
