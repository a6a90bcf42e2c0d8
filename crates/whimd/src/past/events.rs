//! What happened on this node, for `whim log`: lines of JSON in the state directory.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use whim_control::protocol::LogRow;
use whim_machine::processes;
use whim_monitor::plain::sentence;

/// A log longer than this is put aside; the one put aside before is removed. In bytes.
const LOG_MAX: u64 = 8 << 20;
/// `whim log` shows this many lines at most.
pub(crate) const SHOWN_MAX: usize = 10_000;
/// Lines that are remembered for the monitors.
const RECENT_MAX: usize = 200;

/// The log. A disk that is full costs lines of the log, never a move.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    file: Mutex<Option<File>>,
    /// What happened since this daemon began, for the monitors.
    recent: Mutex<Recent>,
}

/// The last lines, and how many there have been.
#[derive(Debug, Default)]
struct Recent {
    count: u64,
    rows: VecDeque<LogRow>,
}

/// Milliseconds since 1970.
#[must_use]
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Events {
    /// Opens the log at `path`; without one, lines go to the daemon's own log only.
    #[must_use]
    pub(crate) fn open(path: PathBuf) -> Self {
        let file = Mutex::new(open(&path));
        let recent = Mutex::default();
        Self { path, file, recent }
    }

    /// Adds a line. `what` is one word. A process that lives is named as its kernel names it: that reads nothing of
    /// its memory, so it waits for nobody.
    pub(crate) fn add(&self, pid: Option<i32>, what: &str, text: impl Into<String>) {
        let stat = pid.and_then(|pid| processes::stat(pid).ok());
        let program = stat.map(|stat| stat.name);
        self.add_of(pid, program.as_deref(), what, text);
    }

    /// Adds a line about a process whose program is known, which may have ended.
    pub(crate) fn add_of(
        &self,
        pid: Option<i32>,
        program: Option<&str>,
        what: &str,
        text: impl Into<String>,
    ) {
        let row = LogRow {
            time_ms: now_ms(),
            pid,
            program: program.map(sentence),
            what: what.to_string(),
            // It quotes what others have said: members, users, supervisors.
            text: sentence(&text.into()),
        };
        tracing::info!(pid, what, "{}", row.text);
        let Ok(mut line) = serde_json::to_vec(&row) else {
            return;
        };
        line.push(b'\n');
        self.remember(row);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let full = file
            .as_ref()
            .and_then(|f| f.metadata().ok())
            .is_some_and(|m| m.len() > LOG_MAX);
        if full {
            let _ = fs::rename(&self.path, self.path.with_extension("old"));
            *file = None;
        }
        if file.is_none() {
            *file = open(&self.path);
        }
        if let Some(file) = file.as_mut()
            && let Err(error) = file.write_all(&line)
        {
            tracing::warn!(%error, "the log cannot be written");
        }
    }

    fn remember(&self, row: LogRow) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.rows.len() == RECENT_MAX {
            recent.rows.pop_front();
        }
        recent.rows.push_back(row);
        recent.count += 1;
    }

    /// The lines that came after the first `known` of this daemon's, as far as they are remembered, and how
    /// many there have been by now.
    #[must_use]
    pub(crate) fn after(&self, known: u64) -> (Vec<LogRow>, u64) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = usize::try_from(recent.count.saturating_sub(known)).unwrap_or(usize::MAX);
        let skipped = recent.rows.len().saturating_sub(fresh);
        let rows = recent.rows.iter().skip(skipped).cloned().collect();
        (rows, recent.count)
    }

    /// The last lines, oldest first.
    #[must_use]
    pub(crate) fn last(&self) -> Vec<LogRow> {
        let mut rows: Vec<LogRow> = [self.path.with_extension("old"), self.path.clone()]
            .iter()
            .filter_map(|path| File::open(path).ok())
            .flat_map(|file| BufReader::new(file).lines().map_while(Result::ok))
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect();
        let surplus = rows.len().saturating_sub(SHOWN_MAX);
        rows.drain(..surplus);
        rows
    }
}

fn open(path: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path);
    opened
        .inspect_err(|error| tracing::warn!(%error, "the log cannot be opened"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_up_to_their_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let events = Events::open(directory.path().join("events.jsonl"));
        let shown = || {
            let texts: Vec<String> = events.last().into_iter().map(|row| row.text).collect();
            (texts.len(), texts[0].clone())
        };
        for number in 1..=SHOWN_MAX {
            events.add(None, "moved", number.to_string());
        }
        assert_eq!(shown(), (SHOWN_MAX, "1".to_owned()));
        events.add(None, "moved", "one more");
        assert_eq!(shown(), (SHOWN_MAX, "2".to_owned()));
    }

    #[test]
    fn monitors_are_told_what_is_new() {
        let directory = tempfile::tempdir().expect("directory");
        let events = Events::open(directory.path().join("events.jsonl"));
        assert_eq!(events.after(0), (Vec::new(), 0));
        for number in 1..=RECENT_MAX + 3 {
            events.add(None, "moved", number.to_string());
        }
        let (rows, count) = events.after(0);
        assert_eq!((rows.len(), count), (RECENT_MAX, RECENT_MAX as u64 + 3));
        assert_eq!(rows[0].text, "4");
        let (rows, again) = events.after(count - 2);
        let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        assert_eq!((texts, again), (vec!["202", "203"], count));
        assert_eq!(events.after(count), (Vec::new(), count));
    }

    #[test]
    fn a_program_is_named_while_it_lives_and_when_it_has_ended() {
        let directory = tempfile::tempdir().expect("directory");
        let events = Events::open(directory.path().join("events.jsonl"));
        let own = i32::try_from(std::process::id()).expect("a pid");
        let name = processes::stat(own).expect("we live").name;
        events.add(Some(own), "moved", "one");
        events.add(Some(i32::MAX), "refused", "nobody has this number");
        events.add_of(Some(i32::MAX), Some("xz\u{1b}"), "ended", "two");
        let named: Vec<Option<String>> = events.last().into_iter().map(|row| row.program).collect();
        assert_eq!(named, [Some(name), None, Some("xz ".to_owned())]);
    }

    #[test]
    fn lines_come_back_in_order_and_old_ones_go() {
        let directory = tempfile::tempdir().expect("directory");
        let events = Events::open(directory.path().join("events.jsonl"));
        events.add(Some(1), "moved", "one");
        events.add(None, "joined", "two");
        let texts: Vec<String> = events.last().into_iter().map(|row| row.text).collect();
        assert_eq!(texts, ["one", "two"]);
        let long = "x".repeat(1 << 20);
        for _ in 0..20 {
            events.add(None, "filled", long.clone());
        }
        let length: u64 = fs::read_dir(directory.path())
            .expect("list")
            .flatten()
            .map(|entry| entry.metadata().map_or(0, |m| m.len()))
            .sum();
        assert!(length < 3 * LOG_MAX, "{length}");
    }
}
