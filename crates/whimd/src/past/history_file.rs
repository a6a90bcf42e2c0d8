//! The file of this node's history: a `redb` database in the state directory.
//!
//! There is one durable commit a minute. It also removes what is too old to be kept, and the oldest moves
//! beyond their limit. Nothing depends on the file: a damaged one is set aside, and whatever goes wrong
//! costs history alone.

use redb::TableDefinition;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use thiserror::Error;

use crate::past::recorder::Batch;
use whim_control::history::{Keep, MINUTE, MoveRow, SampleRow, add, span};

/// What the database keeps in memory, in bytes.
pub(crate) const CACHE_MAX: usize = 4 << 20;
/// How many moves are kept, however young the oldest are.
pub(crate) const MOVES_MAX: u64 = 50_000;
/// Samples that one answer holds: if there are more, they are merged.
pub(crate) const SAMPLES_TOLD_MAX: u64 = 1500;
/// Moves that one answer holds: if there are more, the last of them.
pub(crate) const MOVES_TOLD_MAX: usize = 2000;
/// Rows from the future were written while the clock was wrong. Beyond this, in milliseconds, they are
/// removed.
const AHEAD_MAX: u64 = 24 * 60 * MINUTE;

/// Minutes, by the beginning of each; [`SampleRow`] as `postcard` encodes it. Other rows need another table.
const SAMPLES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("samples-1");
/// Moves, by their time and a number that keeps moves of one millisecond apart; [`MoveRow`] likewise.
const MOVES: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("moves-1");

#[derive(Debug, Error)]
pub(crate) enum HistoryError {
    #[error("The history {path} cannot be opened ({reason}): it begins again when that is mended")]
    Unopened { path: PathBuf, reason: String },
    #[error(
        "The history {path} is damaged ({reason}): it was set aside as {aside}, and a new one begins; remove what was set aside when nobody wants it"
    )]
    Damaged {
        path: PathBuf,
        aside: PathBuf,
        reason: String,
    },
    #[error("The history {path} cannot be written ({reason}): minutes are lost until it can")]
    Unwritten { path: PathBuf, reason: String },
    #[error("The history {path} cannot be read ({reason})")]
    Unread { path: PathBuf, reason: String },
    #[error("No history is kept on this node: [history] keep in its configuration says so")]
    Off,
}

/// The file, opened when it is first needed.
#[derive(Debug)]
pub(crate) struct HistoryFile {
    path: PathBuf,
    keep: Keep,
    database: Option<Database>,
}

/// Whether the file is to blame, and not the disk that it is on.
fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted => true,
        redb::Error::TableTypeMismatch { .. } | redb::Error::TypeDefinitionChanged { .. } => true,
        // No database at all, or one that ends too early.
        redb::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

/// Runs what may stumble over a damaged file. The database is meant not to panic then, but if it does, that
/// is no reason for the daemon to end.
fn caught<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let what = "reading it ended in a panic";
        Err(redb::Error::Corrupted(what.to_owned()))
    })
}

impl HistoryFile {
    #[must_use]
    pub(crate) fn new(path: PathBuf, keep: Keep) -> Self {
        let database = None;
        Self {
            path,
            keep,
            database,
        }
    }

    /// Writes what a minute has brought, durably, and removes what is too old.
    ///
    /// # Errors
    /// [`HistoryError::Off`], [`HistoryError::Unopened`], [`HistoryError::Damaged`],
    /// [`HistoryError::Unwritten`]: the batch is lost, and the next one is tried again.
    pub(crate) fn write(&mut self, now_ms: u64, batch: &Batch) -> Result<(), HistoryError> {
        let keep = self.keep.milliseconds();
        self.open()?;
        let Some(database) = &self.database else {
            return Err(HistoryError::Off);
        };
        match caught(|| commit(database, now_ms, keep, batch)) {
            Ok(()) => Ok(()),
            Err(error) if is_damage(&error) => Err(self.set_aside(&error)),
            Err(error) => {
                // After an error of the disk the database has to be opened anew.
                self.database = None;
                Err(HistoryError::Unwritten {
                    path: self.path.clone(),
                    reason: error.to_string(),
                })
            }
        }
    }

    /// Samples and moves from `from_ms` on and before `to_ms`, in the order of time. Samples are merged if
    /// there are more than [`SAMPLES_TOLD_MAX`].
    ///
    /// # Errors
    /// [`HistoryError::Off`], [`HistoryError::Unopened`], [`HistoryError::Damaged`],
    /// [`HistoryError::Unread`].
    pub(crate) fn read(
        &mut self,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<(Vec<SampleRow>, Vec<MoveRow>), HistoryError> {
        self.open()?;
        let Some(database) = &self.database else {
            return Err(HistoryError::Off);
        };
        match caught(|| fetch(database, from_ms, to_ms)) {
            Ok(rows) => Ok(rows),
            Err(error) if is_damage(&error) => Err(self.set_aside(&error)),
            Err(error) => Err(HistoryError::Unread {
                path: self.path.clone(),
                reason: error.to_string(),
            }),
        }
    }

    fn open(&mut self) -> Result<(), HistoryError> {
        if self.keep == Keep::Off {
            return Err(HistoryError::Off);
        }
        if self.database.is_some() {
            return Ok(());
        }
        match caught(|| open(&self.path)) {
            Ok(database) => {
                self.database = Some(database);
                Ok(())
            }
            Err(error) if is_damage(&error) => Err(self.set_aside(&error)),
            Err(error) => Err(HistoryError::Unopened {
                path: self.path.clone(),
                reason: error.to_string(),
            }),
        }
    }

    /// Sets the file aside, in place of the one that was set aside before: there is never more than one.
    fn set_aside(&mut self, error: &redb::Error) -> HistoryError {
        self.database = None;
        let aside = self.path.with_extension("damaged");
        if let Err(error) = fs::rename(&self.path, &aside) {
            tracing::warn!(%error, "a damaged history could not be set aside");
        }
        HistoryError::Damaged {
            path: self.path.clone(),
            aside,
            reason: error.to_string(),
        }
    }
}

fn open(path: &Path) -> Result<Database, redb::Error> {
    // Nobody else may read the file, but the database would make it as the umask has it.
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    drop(options.mode(0o600).open(path)?);
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_MAX);
    // The whole file is read once, so that damage shows now, and not when somebody asks.
    builder.set_check_integrity_on_open(true);
    Ok(builder.create(path)?)
}

fn commit(
    database: &Database,
    now_ms: u64,
    keep_ms: u64,
    batch: &Batch,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut samples = transaction.open_table(SAMPLES)?;
        if let Some(sample) = &batch.sample {
            // A daemon that ended in this minute may have written a part of it.
            let before = samples.get(sample.time_ms)?;
            let whole = match before.and_then(|bytes| decode::<SampleRow>(bytes.value())) {
                Some(mut before) => {
                    before.take(sample);
                    before
                }
                None => sample.clone(),
            };
            samples.insert(sample.time_ms, encode(&whole).as_slice())?;
        }
        let mut moves = transaction.open_table(MOVES)?;
        for row in &batch.moves {
            let of_this_moment = moves.range((row.time_ms, 0)..=(row.time_ms, u32::MAX))?;
            let last = of_this_moment.last().transpose()?;
            let number = last.map_or(0, |(key, _)| key.value().1.saturating_add(1));
            moves.insert((row.time_ms, number), encode(row).as_slice())?;
        }
        let oldest = now_ms.saturating_sub(keep_ms);
        let newest = now_ms.saturating_add(AHEAD_MAX);
        samples.retain_in(..oldest, |_, _| false)?;
        samples.retain_in(newest.., |_, _| false)?;
        moves.retain_in(..(oldest, 0), |_, _| false)?;
        moves.retain_in((newest, 0).., |_, _| false)?;
        while moves.len()? > MOVES_MAX {
            moves.pop_first()?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn fetch(
    database: &Database,
    from_ms: u64,
    to_ms: u64,
) -> Result<(Vec<SampleRow>, Vec<MoveRow>), redb::Error> {
    let transaction = database.begin_read()?;
    let (mut samples, mut moves) = (Vec::new(), Vec::new());
    if from_ms >= to_ms {
        return Ok((samples, moves));
    }
    // A database that was just made has no tables.
    if let Some(table) = there(transaction.open_table(SAMPLES))? {
        let span_ms = span_of(&table, from_ms, to_ms)?;
        for entry in table.range(from_ms..to_ms)? {
            if let Some(sample) = decode(entry?.1.value()) {
                add(&mut samples, sample, span_ms);
            }
        }
    }
    if let Some(table) = there(transaction.open_table(MOVES))? {
        let newest_first = table.range((from_ms, 0)..(to_ms, 0))?.rev();
        for entry in newest_first.take(MOVES_TOLD_MAX) {
            moves.extend(decode(entry?.1.value()));
        }
        moves.reverse();
    }
    Ok((samples, moves))
}

/// How much time each sample of an answer has to cover, so that the answer holds all. That depends on the
/// samples that there are, not on the time that was asked for.
fn span_of(
    table: &impl ReadableTable<u64, &'static [u8]>,
    from_ms: u64,
    to_ms: u64,
) -> Result<u64, redb::Error> {
    let mut range = table.range(from_ms..to_ms)?;
    let first = range.next().transpose()?.map(|(key, _)| key.value());
    let last = range.next_back().transpose()?.map(|(key, _)| key.value());
    let first = first.unwrap_or(0);
    let end = last.unwrap_or(first).saturating_add(MINUTE);
    Ok(span(first, end, SAMPLES_TOLD_MAX))
}

fn there<T>(opened: Result<T, redb::TableError>) -> Result<Option<T>, redb::Error> {
    match opened {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn encode(row: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_stdvec(row).unwrap_or_default()
}

/// Decodes a row; `None` if it makes no sense: it is passed over.
fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests;
