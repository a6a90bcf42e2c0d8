//! The ranks of an MPI job compute the images of a group together.
//!
//! Threads of each rank compute blocks; the thread that began the job talks with the other ranks. Rank 0 is the manager
//! as well, which costs little: it looks at what comes every millisecond, and computes no less for it.

pub mod fuzz;
mod manager;
mod message;
mod parts;
mod rank;
mod share;

pub use parts::{Has, Place, path_of_rank, rectangles, vrt};
pub use share::{Distribution, files};

use crate::blocks::Block;
use crate::execute::{self, ExecuteError, Group, Means, Sink, Watch};
use crate::graph::{Failure, Graph};
use crate::input::causes;
use crate::output::{Files, Form, Output};
use crate::ranks::{Team, TeamError};
use manager::{Book, Manager};
use message::{Message, Tile, ToManager, ToRank};
use pipt_tiff::TiffError;
use pipt_tiff::writer::{Sealed, TileFile};
use rank::{Event, Given, Hand, Rank, Room, Said};
use share::{Guided, Places, settled};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Pauses between two looks at what comes, while nothing does.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Progress is shown so often.
const SHOWS: Duration = Duration::from_millis(200);
/// Blocks of a wave for each rank, where nothing has to be kept for those before it.
const ALL: u64 = u64::MAX;

/// How what the ranks compute comes into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Collect {
    /// Each rank writes its tiles into the one file, at places that the manager gives.
    #[default]
    Direct,
    /// Each rank sends its tiles to the manager, who writes them, as in the toolkit of the 1990s: only the manager needs
    /// the directory.
    Gather,
    /// Each rank writes a file of its own; a GDAL VRT shows them as one image.
    Parts,
}

impl Collect {
    pub const ALL: [Self; 3] = [Self::Direct, Self::Gather, Self::Parts];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Gather => "gather",
            Self::Parts => "parts",
        }
    }
}

/// Why the ranks did not compute an image.
#[derive(Debug)]
pub enum TogetherError {
    Team(TeamError),
    Execute(ExecuteError),
    Tiff(PathBuf, Box<TiffError>),
    Failed(Failure),
}

impl fmt::Display for TogetherError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Team(error) => write!(to, "{error}"),
            Self::Execute(error) => write!(to, "{error}"),
            Self::Tiff(path, error) => write!(to, "{}: {}", path.display(), causes(error.as_ref())),
            Self::Failed(failure) => write!(to, "{}", causes(failure.as_ref())),
        }
    }
}

impl std::error::Error for TogetherError {}

/// What the ranks compute together, and how.
pub struct Task<'a> {
    pub team: &'a Team<'a>,
    pub graph: &'a Graph,
    pub group: &'a Group,
    pub means: Means,
    pub distribution: Distribution,
    /// Bytes of tiles that a rank may keep until they have their places.
    pub kept: u64,
}

/// Computes images into files that the manager has begun; gives them back to it, with all tiles.
///
/// # Errors
///
/// Something cannot be read, computed or written, here or at another rank.
pub fn one_file(
    task: &Task<'_>,
    forms: &[Form],
    outputs: Option<Vec<Output>>,
    collect: Collect,
    show: &dyn Fn(u64, u64),
) -> Result<Option<Vec<Output>>, TogetherError> {
    let team = task.team;
    let todo = outputs.as_ref().map(|outputs| {
        let missing = |block: &Block| outputs.iter().any(|output| misses(task, output, block));
        ranges(&Places::of(blocks_that(task, missing)))
    });
    // The manager has begun the files when the others know what there is to do.
    let todo = Places::of_ranges(team.of_manager(todo).map_err(TogetherError::Team)?);
    let open = |form: &Form| {
        let file = TileFile::open(form.path());
        file.map_err(|error| TogetherError::Tiff(form.path().to_owned(), Box::new(error)))
    };
    let files = || forms.iter().map(open).collect::<Result<Vec<_>, _>>();
    let own = match collect {
        Collect::Gather => None,
        _ => Some(files()?),
    };
    let is_fixed = forms
        .iter()
        .all(|form| form.design().fixed_place(0).is_some());
    let most = forms.iter().map(|form| {
        form.design().most_of_a_tile() * form.design().planes() * u64::from(task.means.tiles)
    });
    let of_block = most.sum::<u64>().max(1);
    // Half of what a rank keeps, so that it can go on with the next wave while others are yet in this one.
    let of_rank = match is_fixed && collect == Collect::Direct {
        true => ALL,
        false => (task.kept / 2 / of_block).max(1),
    };
    let on_the_way = (collect == Collect::Gather).then_some(task.kept);
    let book = match outputs {
        None => None,
        Some(outputs) => Some(Pages {
            files: files()?,
            outputs,
        }),
    };
    let room = Room::new(task.kept);
    let (events, heard) = mpsc::channel();
    let hand = Hand {
        forms,
        grid: task.group.grid,
        room: &room,
        events: events.clone(),
    };
    let manager = |book| {
        let guided = guided(task, &todo, of_rank);
        Manager::new(book, team.ranks().size(), guided, on_the_way)
    };
    let mut talk = Talk::new(team, book.map(manager), Rank::new(&room, own), &room);
    talk.work(task, &todo, of_rank, &hand, (events, heard), show)?;
    Ok(talk.manager.map(|manager| manager.into_book().outputs))
}

/// Computes images into files of each rank's own; gives the numbers of the tiles in it of each file.
///
/// # Errors
///
/// Those of [`one_file`].
pub fn parts(task: &Task<'_>, files: &Files, show: &dyn Fn(u64, u64)) -> Result<(), TogetherError> {
    let team = task.team;
    let has = |block: &Block| {
        !files
            .outputs
            .iter()
            .any(|output| misses(task, output, block))
    };
    let done = ranges(&Places::of(blocks_that(task, has)));
    let done: Vec<Vec<Range<u64>>> = team.gather(&done).map_err(TogetherError::Team)?;
    let mut is_done = vec![false; usize::try_from(count(task)).unwrap_or(0)];
    for range in done.into_iter().flatten() {
        let all = usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok());
        if let Some(all) = all.and_then(|(start, end)| is_done.get_mut(start..end)) {
            all.fill(true);
        }
    }
    let missing = (0..).zip(&is_done).filter(|(_, is_done)| !**is_done);
    let todo = Places::of(missing.map(|(number, _)| number));
    let room = Room::new(task.kept);
    let manager = team.is_manager().then(|| {
        let guided = guided(task, &todo, ALL);
        Manager::new(Pages::none(), team.ranks().size(), guided, None)
    });
    let mut talk = Talk::new(team, manager, Rank::new(&room, None), &room);
    talk.work(task, &todo, ALL, files, mpsc::channel(), show)
}

fn count(task: &Task<'_>) -> u64 {
    task.group.grid.count(task.means.tiles)
}

/// The numbers of the blocks for which this holds.
fn blocks_that(task: &Task<'_>, is: impl Fn(&Block) -> bool) -> impl Iterator<Item = u64> {
    let (grid, tiles) = (task.group.grid, task.means.tiles);
    (0..count(task)).filter(move |number| is(&grid.block(tiles, *number)))
}

fn misses(task: &Task<'_>, output: &Output, block: &Block) -> bool {
    let planes = output.writer.design().planes();
    let mut tiles = task.group.grid.tiles(block);
    tiles.any(|tile| (0..planes).any(|band| !output.writer.is_done(tile.turn * planes + band)))
}

fn ranges(places: &Places) -> Vec<Range<u64>> {
    places.ranges().to_vec()
}

fn guided(task: &Task<'_>, todo: &Places, of_rank: u64) -> Option<Guided> {
    let ranks = task.team.ranks().size();
    let is_asked = task.distribution == Distribution::Dynamic;
    is_asked.then(|| Guided::new(todo.count(), ranks, of_rank))
}

/// How many blocks this rank would compute in a thousand seconds: one is tried.
fn speed(task: &Task<'_>, todo: &Places) -> Result<u64, TogetherError> {
    let Some(number) = todo.get(todo.count() / 2) else {
        return Ok(1);
    };
    let block = task.group.grid.block(task.means.tiles, number);
    let begun = Instant::now();
    let mut at = task
        .graph
        .at(&task.group.nodes, block.rect, task.means.level);
    for node in &task.group.nodes {
        for band in (0..).take(task.graph.shape(*node).bands.len()) {
            at.band(*node, band).map_err(TogetherError::Failed)?;
        }
    }
    let seconds = begun.elapsed().as_secs_f64().max(1e-6);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and 1e13"
    )]
    let speed = (1e3 / seconds * task.means.threads as f64) as u64;
    Ok(speed.max(1))
}

/// Files that the manager has begun.
struct Pages {
    outputs: Vec<Output>,
    files: Vec<TileFile>,
}

impl Pages {
    fn none() -> Self {
        Self {
            outputs: Vec::new(),
            files: Vec::new(),
        }
    }
}

impl Book for Pages {
    fn tiles(&self) -> Vec<u64> {
        let all = self.outputs.iter();
        all.map(|output| output.writer.design().tiles_to_give())
            .collect()
    }

    fn is_fixed(&self, output: usize) -> bool {
        self.outputs[output]
            .writer
            .design()
            .fixed_place(0)
            .is_some()
    }

    fn is_done(&self, tile: Tile) -> bool {
        self.outputs[tile.output as usize]
            .writer
            .is_done(tile.number)
    }

    fn reserve(&mut self, tile: Tile, length: u64) -> Result<u64, Failure> {
        let writer = &self.outputs[tile.output as usize].writer;
        Ok(writer.reserve(tile.number, length)?)
    }

    fn write(&mut self, tile: Tile, place: u64, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.files[tile.output as usize].write(place, bytes)?)
    }

    fn enter(&mut self, tile: Tile, place: u64, seal: Sealed) -> Result<(), Failure> {
        let writer = &self.outputs[tile.output as usize].writer;
        Ok(writer.enter_written(tile.number, place, seal)?)
    }
}

/// The talk of one rank with the others, while its threads compute.
struct Talk<'a> {
    team: &'a Team<'a>,
    /// At rank 0.
    manager: Option<Manager<Pages>>,
    rank: Rank<'a>,
    room: &'a Room,
    /// What this rank has to say to itself.
    own: VecDeque<(Message, Vec<u8>)>,
    /// For blocks that the manager gives.
    blocks: Option<Sender<Range<u64>>>,
    watch: Watch,
    has_ended: bool,
}

impl<'a> Talk<'a> {
    fn new(
        team: &'a Team<'a>,
        manager: Option<Manager<Pages>>,
        rank: Rank<'a>,
        room: &'a Room,
    ) -> Self {
        Self {
            team,
            manager,
            rank,
            room,
            own: VecDeque::new(),
            blocks: None,
            watch: Watch::default(),
            has_ended: false,
        }
    }

    /// Lets threads compute, and talks until all ranks have all done.
    fn work<S: Sink>(
        &mut self,
        task: &Task<'_>,
        todo: &Places,
        of_rank: u64,
        sink: &S,
        (events, heard): (Sender<Event>, Receiver<Event>),
        show: &dyn Fn(u64, u64),
    ) -> Result<(), TogetherError> {
        let places = self.places(task, todo, of_rank, &events)?;
        let (grid, tiles) = (task.group.grid, task.means.tiles);
        let blocks = places.filter_map(|place| Some(grid.block(tiles, todo.get(place)?)));
        let watch = std::mem::take(&mut self.watch);
        thread::scope(|scope| {
            let (events, watching) = (events.clone(), &watch);
            let (graph, group, means) = (task.graph, task.group, task.means);
            scope.spawn(move || {
                let done = execute::execute_blocks(graph, group, sink, means, blocks, watching);
                // Who does not hear it has given up.
                let _heard = events.send(Event::Computed(done));
            });
            let talked = self.talk(&heard, task.group.grid.size.pixels(), show);
            talked.map_err(|error| {
                watch.stop.store(true, Ordering::Relaxed);
                self.room.close();
                self.blocks = None;
                self.give_up(error)
            })
        })
    }

    /// The places of the blocks that this rank computes.
    fn places(
        &mut self,
        task: &Task<'_>,
        todo: &Places,
        of_rank: u64,
        events: &Sender<Event>,
    ) -> Result<Box<dyn Iterator<Item = u64> + Send>, TogetherError> {
        let ranks = self.team.ranks();
        if task.distribution == Distribution::Dynamic {
            let (sender, places) = mpsc::channel();
            self.blocks = Some(sender);
            return Ok(Box::new(Given {
                places,
                current: 0..0,
                few: task.means.threads as u64,
                is_asked: false,
                events: events.clone(),
            }));
        }
        let own = match task.distribution {
            Distribution::Weighted => speed(task, todo)?,
            _ => 1,
        };
        let speeds: Vec<u64> = self.team.gather(&own).map_err(TogetherError::Team)?;
        let wave = of_rank.saturating_mul(speeds.len() as u64);
        let rank = ranks.rank();
        Ok(settled(
            task.distribution,
            rank,
            &speeds,
            todo.count(),
            wave,
        ))
    }

    fn talk(
        &mut self,
        heard: &Receiver<Event>,
        pixels: u64,
        show: &dyn Fn(u64, u64),
    ) -> Result<(), TogetherError> {
        let (mut pause, mut shown) = (PAUSE_MIN, Instant::now());
        let ranks = self.team.ranks();
        while !self.has_ended {
            let mut is_idle = true;
            while let Ok(event) = heard.try_recv() {
                is_idle = false;
                self.event(event)?;
            }
            while let Some((message, tail)) = self.own.pop_front() {
                is_idle = false;
                self.message(ranks.rank(), message, &tail)?;
            }
            while let Some((from, bytes)) = ranks.poll().map_err(TogetherError::Failed)? {
                is_idle = false;
                let read = Message::read(from, &bytes).map_err(TogetherError::Failed)?;
                self.message(from, read.0, read.1)?;
            }
            pause = if is_idle { pause } else { PAUSE_MIN };
            if is_idle {
                match heard.recv_timeout(pause) {
                    Ok(event) => self.event(event)?,
                    Err(RecvTimeoutError::Timeout) => {}
                    // Its threads have ended; only others have something to say.
                    Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
            if shown.elapsed() >= SHOWS {
                shown = Instant::now();
                self.show(pixels, show);
            }
        }
        Ok(())
    }

    /// Of rank 0, which alone knows what all have done.
    fn show(&self, pixels: u64, show: &dyn Fn(u64, u64)) {
        let progress = self.manager.as_ref().map(Manager::progress);
        if let Some((done, all)) = progress.filter(|(_, all)| *all > 0) {
            let part = u128::from(pixels) * u128::from(done) / u128::from(all);
            show(u64::try_from(part).unwrap_or(pixels), pixels);
        }
    }

    fn event(&mut self, event: Event) -> Result<(), TogetherError> {
        match event {
            Event::Ask => self.say((ToManager::Ask, Vec::new()))?,
            Event::Kept(tiles) => {
                let said = self.rank.keep(tiles);
                self.say(said)?;
            }
            Event::Computed(done) => {
                done.map_err(TogetherError::Execute)?;
                self.rank.computed();
            }
        }
        self.look_whether_over()
    }

    fn look_whether_over(&mut self) -> Result<(), TogetherError> {
        match self.rank.over().map_err(TogetherError::Failed)? {
            Some(said) => self.say(said),
            None => Ok(()),
        }
    }

    /// To the manager.
    fn say(&mut self, (word, tail): Said) -> Result<(), TogetherError> {
        self.send(0, Message::ToManager(word), tail)
    }

    fn send(&mut self, to: usize, message: Message, tail: Vec<u8>) -> Result<(), TogetherError> {
        let ranks = self.team.ranks();
        if to == ranks.rank() {
            self.own.push_back((message, tail));
            return Ok(());
        }
        let mut bytes = message.bytes().map_err(TogetherError::Failed)?;
        bytes.extend(tail);
        ranks.send(to, &bytes).map_err(TogetherError::Failed)
    }

    fn message(&mut self, from: usize, message: Message, tail: &[u8]) -> Result<(), TogetherError> {
        match message {
            Message::ToManager(ToManager::Failed(sentence)) => {
                let error = TeamError::Elsewhere(from, sentence.clone());
                self.tell_others(from, &sentence);
                Err(TogetherError::Team(error))
            }
            Message::ToManager(word) => {
                let manager = self.manager.as_mut();
                let manager = manager.ok_or_else(|| {
                    TogetherError::Failed("A rank takes this one for the manager".into())
                })?;
                let sendings = manager.handle(from, word, tail);
                for (to, word) in sendings.map_err(TogetherError::Failed)? {
                    self.send(to, Message::ToRank(word), Vec::new())?;
                }
                Ok(())
            }
            Message::ToRank(word) => self.word(word),
        }
    }

    /// Of the manager.
    fn word(&mut self, word: ToRank) -> Result<(), TogetherError> {
        match word {
            ToRank::Places(places) => {
                let said = self.rank.place(places).map_err(TogetherError::Failed)?;
                for said in said {
                    self.say(said)?;
                }
                self.look_whether_over()?;
            }
            ToRank::Blocks(range) if range.is_empty() => self.blocks = None,
            ToRank::Blocks(range) => {
                if let Some(blocks) = &self.blocks {
                    // Its threads may have given up.
                    let _taken = blocks.send(range);
                }
            }
            ToRank::End => self.has_ended = true,
            ToRank::Failed(rank, sentence) => {
                let rank = usize::try_from(rank).unwrap_or(usize::MAX);
                return Err(TogetherError::Team(TeamError::Elsewhere(rank, sentence)));
            }
        }
        Ok(())
    }

    /// Lets all know why this rank cannot go on, if they do not know, and gives what it says itself: where several
    /// cannot go on, as they read the same, the first one whom the manager has heard says it.
    fn give_up(&mut self, error: TogetherError) -> TogetherError {
        self.team.all_know();
        if matches!(error, TogetherError::Team(TeamError::Elsewhere(..))) {
            return error;
        }
        let sentence = error.to_string();
        if self.manager.is_some() {
            self.tell_others(0, &sentence);
            return error;
        }
        match self.verdict(sentence) {
            Ok(first) if first != self.team.ranks().rank() => {
                TogetherError::Team(TeamError::Elsewhere(first, error.to_string()))
            }
            // Or nobody can be reached.
            _ => error,
        }
    }

    /// Tells the manager that this rank cannot go on, and waits until it says whom it has heard first.
    fn verdict(&mut self, sentence: String) -> Result<usize, TogetherError> {
        let said = self.say((ToManager::Failed(sentence), Vec::new()));
        let ranks = self.team.ranks();
        loop {
            while let Some((from, bytes)) = ranks.poll().map_err(TogetherError::Failed)? {
                let read = Message::read(from, &bytes).map_err(TogetherError::Failed)?;
                if let Message::ToRank(ToRank::Failed(first, _)) = read.0 {
                    return Ok(usize::try_from(first).unwrap_or(usize::MAX));
                }
            }
            // A manager that has gone has said whom it had heard before it went, or says nothing any more.
            if said.is_err() {
                return said.map(|()| usize::MAX);
            }
            thread::sleep(PAUSE_MAX);
        }
    }

    fn tell_others(&mut self, from: usize, sentence: &str) {
        let ranks = self.team.ranks();
        // Also the one that cannot go on, so that it knows that it was the first.
        let others = (0..ranks.size()).filter(|rank| *rank != ranks.rank());
        for rank in others {
            let word = ToRank::Failed(from as u64, sentence.to_owned());
            let _told = self.send(rank, Message::ToRank(word), Vec::new());
        }
    }
}
