//! Looking through a whole image before a pixel of a result is computed.

use super::{AssembleError, Setting};
use crate::blocks::{Block, Grid};
use crate::execute::{self, ExecuteError, Group, Means, Sink, Watch};
use crate::graph::{Failure, Graph, Part};
use crate::ranks::TeamError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Mutex, PoisonError};

/// Pixels to a side of the tiles that are looked through.
pub(super) const TILE: u32 = 512;
/// Pixels of a row that one thread looks through at a time.
const MOST: u32 = 4096;
/// After so many blocks each, ranks tell each other what they have seen.
const BLOCKS_OF_A_WAVE: usize = 64;

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
    S: Send + Serialize + DeserializeOwned,
    F: Fn(&S) -> S + Sync,
    T: Fn(&mut S, &Part) + Sync,
    J: Fn(&mut S, &S) + Sync,
{
    /// Looks through all of an image; of several ranks each through some of it.
    pub(super) fn through(
        &self,
        graph: &Graph,
        node: usize,
        setting: &Setting<'_>,
    ) -> Result<(), AssembleError> {
        let all = || self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = all().iter().map(&self.fresh).collect();
        let seen = Seen {
            look: self,
            seen: Mutex::new(fresh),
        };
        let whole = grid(graph, node, TILE);
        let (group, means) = group(graph, whole, node, setting)?;
        let (ranks, rank) = places(setting);
        let own = (rank..whole.count(means.tiles)).step_by(ranks);
        let own = own.map(|number| whole.block(means.tiles, number));
        let done = execute::execute_blocks(graph, &group, &seen, means, own, &Watch::default());
        done.map_err(AssembleError::Survey)?;
        let seen = seen
            .seen
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let told = match setting.team {
            None => vec![seen],
            Some(team) => team.gather(&seen).map_err(AssembleError::Team)?,
        };
        for seen in told {
            let mut all = all();
            all.iter_mut()
                .zip(&seen)
                .for_each(|(all, one)| (self.join)(all, one));
        }
        Ok(())
    }
}

/// How many ranks look, and which one this is.
fn places(setting: &Setting<'_>) -> (usize, u64) {
    let ranks = setting.team.map(|team| team.ranks());
    ranks.map_or((1, 0), |ranks| (ranks.size(), ranks.rank() as u64))
}

fn group(
    graph: &Graph,
    grid: Grid,
    node: usize,
    setting: &Setting<'_>,
) -> Result<(Group, Means), AssembleError> {
    let group = Group {
        grid,
        nodes: vec![node],
    };
    let groups = [group];
    let means = execute::means(graph, &groups, setting.memory, setting.threads, MOST);
    let (threads, mut tiles) = means.map_err(AssembleError::Survey)?;
    if let Some(team) = setting.team {
        tiles = team.shortest(tiles).map_err(AssembleError::Team)?;
    }
    let means = Means {
        threads,
        tiles,
        level: setting.level,
    };
    let [group] = groups;
    Ok((group, means))
}

/// Looks through all of an image, and keeps what was seen block after block; each of several ranks keeps it all.
pub(super) fn through<S: Sink<Ready: Serialize + DeserializeOwned>>(
    graph: &Graph,
    grid: Grid,
    node: usize,
    setting: &Setting<'_>,
    sink: &S,
) -> Result<(), AssembleError> {
    let (group, means) = group(graph, grid, node, setting)?;
    let watch = Watch::default();
    let Some(team) = setting.team else {
        let done = execute::execute(graph, &group, sink, means, 0, &watch);
        return done.map_err(AssembleError::Survey);
    };
    let (ranks, rank) = places(setting);
    let blocks = grid.count(means.tiles);
    let wave = (ranks * BLOCKS_OF_A_WAVE) as u64;
    for begin in (0..blocks).step_by(ranks * BLOCKS_OF_A_WAVE) {
        let own = (begin + rank..blocks.min(begin + wave)).step_by(ranks);
        let own = own.map(|number| grid.block(means.tiles, number));
        let told = Told {
            sink,
            ready: Mutex::default(),
        };
        let done = execute::execute_blocks(graph, &group, &told, means, own, &watch);
        done.map_err(AssembleError::Survey)?;
        let own = told
            .ready
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let all = team.gather(&own).map_err(AssembleError::Team)?;
        // The blocks of a wave came to the ranks by turns.
        let mut all: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
        for number in begin..blocks.min(begin + wave) {
            let of = usize::try_from(number - begin).unwrap_or(0) % ranks;
            let ready = all.get_mut(of).and_then(Iterator::next);
            let ready = ready.ok_or(AssembleError::Team(TeamError::Words(of)))?;
            let kept = sink.keep(&grid.block(means.tiles, number), ready);
            kept.map_err(|error| AssembleError::Survey(ExecuteError::Failed(error)))?;
        }
    }
    Ok(())
}

/// What a rank has to tell of its blocks.
struct Told<'a, S: Sink> {
    sink: &'a S,
    ready: Mutex<Vec<Vec<S::Ready>>>,
}

impl<S: Sink> Sink for Told<'_, S> {
    type Ready = S::Ready;

    fn ready(
        &self,
        image: usize,
        band: u32,
        block: &Block,
        part: Part,
    ) -> Result<S::Ready, Failure> {
        self.sink.ready(image, band, block, part)
    }

    fn keep(&self, _: &Block, ready: Vec<S::Ready>) -> Result<(), Failure> {
        let mut all = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(ready);
        Ok(())
    }
}

/// An image in tiles of this size.
pub(super) fn grid(graph: &Graph, node: usize, tile: u32) -> Grid {
    let size = graph.shape(node).size;
    Grid { size, tile }
}

/// What this rank has seen.
struct Seen<'a, S, F, T, J> {
    look: &'a Look<S, F, T, J>,
    seen: Mutex<Vec<S>>,
}

impl<S, F, T, J> Sink for Seen<'_, S, F, T, J>
where
    S: Send,
    F: Fn(&S) -> S + Sync,
    T: Fn(&mut S, &Part) + Sync,
    J: Fn(&mut S, &S) + Sync,
{
    type Ready = S;

    fn ready(&self, _: usize, band: u32, _: &Block, part: Part) -> Result<S, Failure> {
        let mut one = {
            let all = self.look.all.lock().unwrap_or_else(PoisonError::into_inner);
            (self.look.fresh)(all.get(band as usize).ok_or("There is no such band")?)
        };
        (self.look.take)(&mut one, &part);
        Ok(one)
    }

    fn keep(&self, _: &Block, ready: Vec<S>) -> Result<(), Failure> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let both = seen.iter_mut().zip(&ready);
        both.for_each(|(seen, one)| (self.look.join)(seen, one));
        Ok(())
    }
}
