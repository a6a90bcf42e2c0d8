//! Writes the tiles of a file, which many threads encode.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use crate::design::Design;
use crate::error::TiffError;
use crate::journal::{Entry, Journal};
use crate::overview;

mod elsewhere;

pub use elsewhere::{Sealed, TileFile};

/// A file that is being written, under a temporary name beside its own: `NAME.part`, with its journal
/// `NAME.part.journal`. It gets its name when it is finished, with all its bytes on the disk. If it is dropped
/// before, both go away, unless the design says that it can be resumed.
///
/// Tiles come from any thread in any order. Compressed ones go to the file in the order of their numbers, so
/// that its bytes depend on neither threads nor time; at most [`WriteOptions::waiting`] wait for those
/// before them, and who brings one further ahead is kept waiting. Each thread should therefore take the
/// lowest tile that no other has taken. Uncompressed tiles have fixed places and wait for nothing.
///
/// [`WriteOptions::waiting`]: crate::design::WriteOptions::waiting
#[derive(Debug)]
pub struct Writer {
    design: Design,
    file: Arc<File>,
    target: PathBuf,
    state: Mutex<State>,
    turn: Condvar,
    finished: bool,
}

#[derive(Debug)]
struct State {
    /// Offset and length of the tiles that are written.
    places: Vec<Option<(u64, u64)>>,
    /// The first tile that is not written; of those in order.
    next: u64,
    end: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    /// The first tile for which no place was asked, and where it would begin; of those that others write.
    reserved: (u64, u64),
    /// Tiles that others have written while some before them are not.
    written: BTreeMap<u64, Entry>,
    journal: Option<Journal>,
    given_up: Option<String>,
}

/// A file that is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub path: PathBuf,
    pub bytes: u64,
    /// With those of overviews.
    pub tiles: u64,
}

fn beside(target: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(end);
    name.into()
}

/// The name of a file until it is finished.
#[must_use]
pub fn part_of(target: &Path) -> PathBuf {
    beside(target, ".part")
}

/// The name of its journal.
#[must_use]
pub fn journal_of(target: &Path) -> PathBuf {
    beside(target, ".part.journal")
}

/// Removes the journal of a file that is finished: it cannot be resumed any more.
///
/// # Errors
///
/// It is not there, or cannot be removed.
pub fn forget(target: &Path) -> Result<(), TiffError> {
    let journal = journal_of(target);
    std::fs::remove_file(&journal).map_err(io_error("remove", &journal))
}

fn io_error(what: &str, path: &Path) -> impl Fn(io::Error) -> TiffError {
    let (what, path) = (what.to_owned(), path.display().to_string());
    move |source| {
        let full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let doing = match full {
            true => format!("{what} {path}, because its disk or quota is full: make room"),
            false => format!("{what} {path}"),
        };
        TiffError::Io { doing, source }
    }
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or one with its temporary name is there already.
    pub fn create(target: &Path, design: Design) -> Result<Self, TiffError> {
        let part = part_of(target);
        let create = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&part);
        let file = match create {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(TiffError::Exists { path: part });
            }
            other => other.map_err(io_error("create", &part))?,
        };
        Self::begin(target, design, file)
    }

    /// With a file that has nothing yet.
    fn begin(target: &Path, design: Design, file: File) -> Result<Self, TiffError> {
        let journal = journal_of(target);
        // A journal alone is left by one who was killed after the file had got its name.
        match std::fs::remove_file(&journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &journal)(error));
            }
            _ => {}
        }
        let keep = design.options.resumable;
        let writer = Self::of(target, design, file);
        if keep {
            let new = Journal::create(&journal, fingerprint(&writer.design));
            writer.state().journal = Some(new.map_err(io_error("create", &journal))?);
        }
        Ok(writer)
    }

    fn of(target: &Path, design: Design, file: File) -> Self {
        let tiles = usize::try_from(design.tiles()).unwrap_or(usize::MAX);
        let state = State {
            places: vec![None; tiles],
            next: 0,
            end: design.begin(),
            waiting: BTreeMap::new(),
            reserved: (0, 0),
            written: BTreeMap::new(),
            journal: None,
            given_up: None,
        };
        Self {
            design,
            file: Arc::new(file),
            target: target.to_owned(),
            state: Mutex::new(state),
            turn: Condvar::new(),
            finished: false,
        }
    }

    /// Takes up a file that was interrupted. Tiles that its journal has and whose bytes are whole need not
    /// be given again ([`Self::is_done`]); the file will have the same bytes as one that was not interrupted.
    ///
    /// # Errors
    ///
    /// There is no such file, or it is of another design or job.
    pub fn resume(target: &Path, design: Design) -> Result<Self, TiffError> {
        let (part, journal) = (part_of(target), journal_of(target));
        if design.options.sparse && journal.exists() && !part.exists() {
            // It has got its name, and others of the image have not.
            std::fs::rename(target, &part).map_err(io_error("take up", target))?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&part);
        let file = file.map_err(io_error("open", &part))?;
        let length = file.metadata().map_err(io_error("read", &part))?.len();
        if length == 0 && !Journal::is_begun(&journal) {
            // Whoever began it was killed between the two files.
            return Self::begin(target, design, file);
        }
        let entries = Journal::entries(&journal, fingerprint(&design));
        let entries = entries.map_err(io_error("read", &journal))?;
        let entries = entries.ok_or_else(|| TiffError::Resume {
            path: part.clone(),
            problem: "its journal is of another file, or was written with other options".to_owned(),
        })?;
        let writer = Self::of(target, design, file);
        let mut kept = 0;
        for entry in entries {
            if !writer.take_up(entry) {
                break;
            }
            kept += 1;
        }
        let mut state = writer.state();
        // What lies behind the last whole tile is written anew.
        writer
            .file
            .set_len(state.end)
            .map_err(io_error("cut", &part))?;
        let resumed = Journal::resume(&journal, kept);
        state.journal = Some(resumed.map_err(io_error("open", &journal))?);
        drop(state);
        Ok(writer)
    }

    /// Enters a tile of the journal, if its bytes are in the file.
    fn take_up(&self, entry: Entry) -> bool {
        let Entry {
            number,
            offset,
            length,
            hash,
        } = entry;
        let mut state = self.state();
        let sparse = self.design.options.sparse;
        let fits = match self.design.fixed_place(number) {
            Some(place) => offset == place && length == self.design.tile_bytes(),
            None => (sparse || number == state.next) && offset == state.end,
        };
        let known = usize::try_from(number)
            .ok()
            .and_then(|n| state.places.get(n));
        if !fits || known != Some(&None) || length > self.design.most_of_a_tile() {
            return false;
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        if self.file.read_exact_at(&mut bytes, offset).is_err() || xxh3_64(&bytes) != hash {
            return false;
        }
        state.enter(number, offset, length);
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// Whether a tile is in the file already.
    #[must_use]
    pub fn is_done(&self, number: u64) -> bool {
        let state = self.state();
        let place = usize::try_from(number)
            .ok()
            .and_then(|n| state.places.get(n));
        place.is_some_and(Option::is_some)
    }

    /// Gives the bytes of a tile ([`Design::encode_tile`]), and waits while it is too far ahead.
    ///
    /// # Errors
    ///
    /// There is no such tile, it was given before, the file cannot be written, or another thread gave up.
    pub fn put(&self, number: u64, bytes: Vec<u8>) -> Result<(), TiffError> {
        let bad = |problem: String| TiffError::Tile {
            tile: number,
            problem,
        };
        self.check_length(number, bytes.len() as u64)?;
        if let Some(place) = self.design.fixed_place(number) {
            let done = self.write(number, place, &bytes);
            return done.inspect_err(|error| self.give_up(&error.to_string()));
        }
        let mut state = self.state();
        if self.design.options.sparse {
            let place = state.end;
            self.write_at(place, &bytes)?;
            return self.enter(&mut state, number, place, &bytes);
        }
        loop {
            if let Some(why) = &state.given_up {
                return Err(TiffError::GivenUp { why: why.clone() });
            }
            if number < state.next || state.waiting.contains_key(&number) {
                return Err(bad("it was given before".to_owned()));
            }
            if number - state.next < self.design.options.waiting {
                break;
            }
            state = self
                .turn
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.insert(number, bytes);
        let done = self.write_waiting(&mut state);
        drop(state);
        self.turn.notify_all();
        done.inspect_err(|error| self.give_up(&error.to_string()))
    }

    /// Writes the tiles whose turn it is.
    fn write_waiting(&self, state: &mut State) -> Result<(), TiffError> {
        loop {
            let (number, offset) = (state.next, state.end);
            let Some(bytes) = state.waiting.remove(&number) else {
                return Ok(());
            };
            self.write_at(offset, &bytes)?;
            self.enter(state, number, offset, &bytes)?;
        }
    }

    /// Writes a tile that has its place.
    fn write(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), TiffError> {
        self.write_at(offset, bytes)?;
        let mut state = self.state();
        if state.places[usize::try_from(number).unwrap_or(usize::MAX)].is_some() {
            return Err(TiffError::Tile {
                tile: number,
                problem: "it was given before".to_owned(),
            });
        }
        self.enter(&mut state, number, offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TiffError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(io_error("write", &part_of(&self.target)))
    }

    fn enter(
        &self,
        state: &mut State,
        number: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), TiffError> {
        let length = bytes.len() as u64;
        if let Some(journal) = &mut state.journal {
            let hash = xxh3_64(bytes);
            let added = journal.add(Entry {
                number,
                offset,
                length,
                hash,
            });
            added.map_err(io_error("write", &journal_of(&self.target)))?;
        }
        state.enter(number, offset, length);
        Ok(())
    }

    /// Ends the waiting of all threads with an error: for one that will not bring its tile.
    pub fn give_up(&self, why: &str) {
        self.state().given_up.get_or_insert_with(|| why.to_owned());
        self.turn.notify_all();
    }

    /// Writes the header and the directories as far as tiles are there.
    pub(crate) fn write_front(&self) -> Result<(), TiffError> {
        let state = self.state();
        let front = self.design.front(|number| {
            let place = usize::try_from(number)
                .ok()
                .and_then(|n| state.places.get(n));
            place.copied().flatten().unwrap_or((0, 0))
        });
        drop(state);
        self.write_at(0, &front)
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Makes the overviews, writes the directories, and gives the file its name. One that had the name
    /// before is replaced. The journal of a file with some of an image's tiles stays, so that it can be resumed until
    /// all of the image is there ([`forget`]).
    ///
    /// # Errors
    ///
    /// Tiles are missing, or the file cannot be written.
    pub fn finish(mut self) -> Result<Finished, TiffError> {
        let tiles = match self.design.options.sparse {
            true => 0,
            false => self.design.tiles_to_give(),
        };
        let missing = |number: &u64| !self.is_done(*number);
        if let Some(first) = (0..tiles).find(missing) {
            let missing = (first..tiles).filter(missing).count() as u64;
            return Err(TiffError::Missing {
                missing,
                tiles,
                first,
            });
        }
        if let Some(reduce) = self.design.options.overviews {
            overview::make(&self, reduce)?;
        }
        self.write_front()?;
        let part = part_of(&self.target);
        self.file
            .sync_all()
            .map_err(io_error("write to the disk", &part))?;
        std::fs::rename(&part, &self.target).map_err(io_error("give its name to", &part))?;
        self.finished = true;
        // The name is on the disk when the directory is.
        let directory = self
            .target
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(io_error("write to the disk", directory))?;
        let has_journal = self.state().journal.take().is_some();
        if has_journal && !self.design.options.sparse {
            forget(&self.target)?;
        }
        let bytes = self.state().end;
        Ok(Finished {
            path: self.target.clone(),
            bytes,
            tiles: self.design.tiles(),
        })
    }
}

impl State {
    fn enter(&mut self, number: u64, offset: u64, length: u64) {
        if let Some(place) = usize::try_from(number)
            .ok()
            .and_then(|n| self.places.get_mut(n))
        {
            *place = Some((offset, length));
        }
        self.next = self.next.max(number + 1);
        self.end = self.end.max(offset + length);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.finished || self.state().journal.is_some() {
            return;
        }
        // Nobody can be told that it stays.
        let _gone = std::fs::remove_file(part_of(&self.target));
    }
}

/// Tells apart what would be written differently.
fn fingerprint(design: &Design) -> u64 {
    let mut bytes = design.front(|_| (0, 0));
    let options = &design.options;
    bytes.extend(
        format!(
            "{:?} {:?} {:?}",
            options.compression, options.overviews, design.predictor
        )
        .bytes(),
    );
    bytes.extend(options.identity.to_le_bytes());
    xxh3_64(&bytes)
}
