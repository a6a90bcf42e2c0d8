//! The journal of one journey: lines of JSON, the only authority on which epoch is valid.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use whim_journey::job::Event;
use whim_sys::log::deaf;

/// Entries that wait for the disk; further ones are refused.
const MOST_WAITING: usize = 256;
/// How long a note waits to be written. A disk that works takes microseconds, and what was noted is
/// then to be read at once; one that stands still must not keep heartbeats waiting, and leases are of
/// seconds.
const PATIENCE: Duration = Duration::from_millis(10);

/// An entry on its way to the disk.
#[derive(Debug)]
pub(crate) struct Syncing {
    done: Receiver<io::Result<()>>,
}

impl Syncing {
    /// How it ended, once that is known.
    pub(crate) fn poll(&mut self) -> Option<io::Result<()>> {
        match self.done.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(writer_ended())),
        }
    }

    /// How it ended, if it does within this time.
    ///
    /// # Errors
    /// It has not ended: itself.
    pub(crate) fn within(self, time: Duration) -> Result<io::Result<()>, Self> {
        match self.done.recv_timeout(time) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(writer_ended())),
        }
    }

    /// Waits for its end, however long that takes.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.done.recv().unwrap_or_else(|_| Err(writer_ended()))
    }
}

fn writer_ended() -> io::Error {
    io::Error::other("the thread that waited for the disk has ended")
}

/// A line for the journal's file.
#[derive(Debug)]
struct Entry {
    /// With its line feed; empty: nothing is written.
    line: String,
    /// The disk has to have it, too.
    is_synced: bool,
    /// Hears how it ended; none if nobody waits for that.
    done: Option<Sender<io::Result<()>>>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    /// The last line is incomplete, so no other may be joined to it.
    is_torn: bool,
}

impl Writer {
    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        if entry.line.is_empty() {
            return Ok(());
        }
        let gap = if self.is_torn { "\n" } else { "" };
        let line = format!("{gap}{}", entry.line);
        let written = self.file.write_all(line.as_bytes());
        self.is_torn = written.is_err();
        written?;
        if entry.is_synced {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    /// A thread takes the entries, one by one, until there are none.
    is_served: bool,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    writer: Mutex<Writer>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next entry; with the last one this thread's service ends.
    fn next(&self) -> Option<Entry> {
        let mut waiting = self.waiting();
        let entry = waiting.entries.pop_front();
        waiting.is_served = entry.is_some();
        entry
    }

    /// Writes all that waits.
    fn serve(&self) {
        while let Some(entry) = self.next() {
            let written = self.writer().write(&entry);
            // Nobody waits any more for a note that took long, or if the move has failed.
            let unheard = match entry.done {
                Some(done) => done.send(written).err().map_or(Ok(()), |unheard| unheard.0),
                None => written,
            };
            if let Err(error) = unheard {
                tracing::warn!(%error, "the journal lacks an entry");
            }
        }
    }
}

/// An open journal. Its room on the disk was set aside when it was made, as far as the file system
/// can do that.
///
/// Even a write into the page cache waits while a file system is frozen or commits much of others'. So
/// entries are written by a thread of their own, which is there only as long as any wait: the one that
/// has them written also has heartbeats to send.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
}

impl Journal {
    /// Takes the file as the daemon has opened it, for appending.
    #[must_use]
    pub(crate) fn new(file: File) -> Self {
        let writer = Writer {
            file,
            is_torn: false,
        };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                writer: Mutex::new(writer),
            }),
        }
    }

    /// Appends an entry on which nothing depends except what is told of the journey. A failure is only
    /// logged, because a full disk must not cost the process; nor is a disk waited for that stands still.
    pub(crate) fn note(&mut self, event: &Event) {
        let written = match self.enter(event, false) {
            Ok(syncing) => syncing.within(PATIENCE).unwrap_or(Ok(())),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the journal lacks an entry");
        }
    }

    /// As [`note`](Self::note), without a wait: it is written before whatever comes next, and is to be read behind
    /// [`settle`](Self::settle).
    pub(crate) fn note_soon(&mut self, event: &Event) {
        let entered = self.line(event).and_then(|line| {
            let (is_synced, done) = (false, None);
            self.enter_entry(Entry {
                line,
                is_synced,
                done,
            })
        });
        if let Err(error) = entered {
            tracing::warn!(%error, "the journal lacks an entry");
        }
    }

    /// Waits until all is written that was noted soon, unless the disk stands still.
    pub(crate) fn settle(&self) {
        if !self.shared.waiting().is_served {
            return;
        }
        let last = self.enter_line(String::new(), false);
        let _ = last.map(|syncing| syncing.within(PATIENCE));
    }

    /// Appends an entry that need not survive a power failure, and waits until it is written.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn append(&mut self, event: &Event) -> io::Result<()> {
        self.enter(event, false)?.wait()
    }

    /// Appends an entry, and has another thread wait until it is on disk: a disk may take longer than a
    /// lease, and heartbeats have to go on meanwhile.
    ///
    /// # Errors
    /// There is no thread for it, or too much waits for the disk.
    pub(crate) fn begin_commit(&mut self, event: &Event) -> io::Result<Syncing> {
        self.enter(event, true)
    }

    /// Appends an entry and waits until it is on disk.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn commit(&mut self, event: &Event) -> io::Result<()> {
        self.enter(event, true)?.wait()
    }

    fn enter(&self, event: &Event, is_synced: bool) -> io::Result<Syncing> {
        self.enter_line(self.line(event)?, is_synced)
    }

    /// The line of an event, if there is room for it.
    fn line(&self, event: &Event) -> io::Result<String> {
        if self.shared.waiting().entries.len() >= MOST_WAITING {
            return Err(io::Error::other(format!(
                "{MOST_WAITING} entries wait for the disk already"
            )));
        }
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        Ok(line)
    }

    /// Hands a line over, however many wait: the last one, on which [`Drop`] waits, has to find room.
    fn enter_line(&self, line: String, is_synced: bool) -> io::Result<Syncing> {
        let (sender, done) = channel();
        self.enter_entry(Entry {
            line,
            is_synced,
            done: Some(sender),
        })?;
        Ok(Syncing { done })
    }

    fn enter_entry(&self, entry: Entry) -> io::Result<()> {
        let is_synced = entry.is_synced;
        let mut waiting = self.shared.waiting();
        waiting.entries.push_back(entry);
        if !waiting.is_served {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new();
            let thread = deaf(|| thread.spawn(move || shared.serve()));
            match thread {
                Ok(_) => waiting.is_served = true,
                Err(error) if is_synced => {
                    waiting.entries.pop_back();
                    return Err(error);
                }
                // Without a thread it is better to wait than to lack an entry.
                Err(_) => {
                    drop(waiting);
                    self.shared.serve();
                }
            }
        }
        Ok(())
    }
}

impl Drop for Journal {
    /// Writes what waits, and gives back the room that was set aside and not used.
    fn drop(&mut self) {
        let last = self.enter_line(String::new(), false);
        let _ = last.and_then(Syncing::wait);
        let writer = self.shared.writer();
        if let Ok(about) = writer.file.metadata() {
            let _ = writer.file.set_len(about.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::path::Path;

    #[test]
    fn an_entry_is_not_joined_to_one_that_found_no_room() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        let opened = |path: &Path| OpenOptions::new().append(true).open(path).expect("opened");
        let mut journal = Journal::new(opened(Path::new("/dev/full")));
        let event = |epoch| Event::Acknowledged { epoch };
        assert!(journal.append(&event(1)).is_err());
        journal.note(&event(2));
        // As it is when a part of an entry has reached the disk, and room was made then.
        std::fs::write(&path, "{\"event\":\"ackn").expect("written");
        journal.shared.writer().file = opened(&path);
        journal.commit(&event(3)).expect("written");
        journal.note(&event(4));
        drop(journal);
        let text = std::fs::read_to_string(&path).expect("read");
        let whole = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let whole: Vec<Event> = whole.collect();
        assert_eq!(whole, [event(3), event(4)], "{text}");
    }

    #[test]
    fn the_end_waits_for_all_that_waits() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;
        let (disk, mut reader) = UnixStream::pair().expect("a pair");
        disk.set_nonblocking(true).expect("set");
        while (&disk).write(&[b'\n'; 4096]).is_ok() {}
        disk.set_nonblocking(false).expect("set");
        let mut journal = Journal::new(File::from(std::os::fd::OwnedFd::from(disk)));
        let event = |epoch| Event::Acknowledged { epoch };
        let taken = (0..).take_while(|epoch| journal.begin_commit(&event(*epoch)).is_ok());
        let taken = taken.count();
        assert!(taken >= MOST_WAITING, "{taken}");
        let shared = Arc::clone(&journal.shared);
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        drop(journal);
        assert!(shared.waiting().entries.is_empty(), "some wait still");
        drop(shared);
        let text = read.join().expect("ended").expect("text");
        let entries = text.lines().filter(|line| !line.is_empty());
        assert_eq!(entries.count(), taken);
    }
}
