//! The daemon's log, in lines of bounded length; and logs of supervisors: each has one of its own, and the newest are
//! kept.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use whim_monitor::plain;

/// Longest line of the daemon's log, in bytes: a line may quote what anybody has sent.
const LINE_MAX: usize = 2048;
/// Stands in place of what is cut off.
const REST: &[u8] = b" ...\n";

/// Writes to standard error; each write is one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(&bounded(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A line of bounded length, which is one line, and does nothing to a terminal.
fn bounded(line: &[u8]) -> Vec<u8> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) if line.len() <= LINE_MAX => (text, &b"\n"[..]),
        None if line.len() <= LINE_MAX => (line, &b""[..]),
        _ => (&line[..LINE_MAX - REST.len()], REST),
    };
    let text = String::from_utf8_lossy(text);
    let mut shown = plain::text(&text).into_bytes();
    shown.extend_from_slice(end);
    shown
}

/// Logs of supervisors of one kind that are kept. Most have a line or none.
const LOGS_KEPT: usize = 1000;

/// Removes the oldest logs of the kind of `log` (what follows the first dot of its name), so that
/// there is room for it.
pub(crate) fn make_room(log: &Path) {
    keep_newest(log, LOGS_KEPT - 1);
}

fn keep_newest(log: &Path, kept: usize) {
    let (Some(directory), Some(kind)) = (log.parent(), kind(log)) else {
        return;
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let same = entries.map(|entry| entry.path());
    let mut all: Vec<PathBuf> = same.filter(|path| self::kind(path) == Some(kind)).collect();
    if all.len() <= kept {
        return;
    }
    all.sort_by_cached_key(|path| {
        let written = fs::metadata(path).and_then(|about| about.modified());
        written.unwrap_or(SystemTime::UNIX_EPOCH)
    });
    for path in &all[..all.len() - kept] {
        // A supervisor that still writes into one of these keeps it as long as it lives.
        let _ = fs::remove_file(path);
    }
}

fn kind(log: &Path) -> Option<&str> {
    let (_, kind) = log.file_name()?.to_str()?.split_once('.')?;
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        assert_eq!(bounded(b"ready\n"), b"ready\n");
        assert_eq!(
            bounded("a\nfalse\u{1b}[7m line\r\n".as_bytes()),
            b"a false [7m line \n"
        );
        let long = bounded(&[&[b'A'; 1 << 20][..], b"\n"].concat());
        assert_eq!(long.len(), LINE_MAX);
        assert!(long.ends_with(REST));
        assert_eq!(bounded(&[b'A'; LINE_MAX]).len(), LINE_MAX);
    }
    use std::time::Duration;

    #[test]
    fn the_newest_logs_of_a_kind_are_kept() {
        let directory = tempfile::tempdir().expect("directory");
        let place = |name: &str| directory.path().join(name);
        let old = |name: &str, age: u64| {
            let file = fs::File::create(place(name)).expect("created");
            let when = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(when).expect("set");
        };
        for age in 1..=6 {
            old(&format!("{age}-j.home.log"), age);
        }
        old("7-j-1.guest.log", 700);
        old("events.jsonl", 800);
        keep_newest(&place("new.home.log"), 6);
        assert!(place("6-j.home.log").exists());
        keep_newest(&place("new.home.log"), 4);
        let left = |age: &u64| place(&format!("{age}-j.home.log")).exists();
        assert_eq!((1..=6).filter(left).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(place("7-j-1.guest.log").exists() && place("events.jsonl").exists());
    }
}
