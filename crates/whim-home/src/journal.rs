//! The journal of one journey: lines of JSON, the only authority on which epoch is valid.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use whim_journey::job::Event;

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
            Err(TryRecvError::Disconnected) => Some(Err(io::Error::other(
                "the thread that waited for the disk has ended",
            ))),
        }
    }
}

/// An open journal. Its room on the disk was set aside when it was made, as far as the file system
/// can do that.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// The last line is incomplete, so no other may be joined to it.
    is_torn: bool,
}

impl Journal {
    /// Takes the file as the daemon has opened it, for appending.
    #[must_use]
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            is_torn: false,
        }
    }

    /// Appends an entry on which nothing depends except what is told of the journey. A failure is only
    /// logged, because a full disk must not cost the process.
    pub(crate) fn note(&mut self, event: &Event) {
        if let Err(error) = self.append(event) {
            tracing::warn!(%error, "the journal lacks an entry");
        }
    }

    /// Appends an entry that need not survive a power failure.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        if self.is_torn {
            line.insert(0, '\n');
        }
        let written = self.file.write_all(line.as_bytes());
        self.is_torn = written.is_err();
        written
    }

    /// Appends an entry, and has another thread wait until it is on disk: a disk may take longer than a
    /// lease, and heartbeats have to go on meanwhile.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn begin_commit(&mut self, event: &Event) -> io::Result<Syncing> {
        self.append(event)?;
        let file = self.file.try_clone()?;
        let (sender, done) = channel();
        std::thread::Builder::new().spawn(move || {
            // Nobody waits any more if the move has failed.
            let _ = sender.send(file.sync_data());
        })?;
        Ok(Syncing { done })
    }

    /// Appends an entry and waits until it is on disk.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn commit(&mut self, event: &Event) -> io::Result<()> {
        self.append(event)?;
        self.file.sync_data()
    }
}

impl Drop for Journal {
    /// Gives back the room that was set aside and not used.
    fn drop(&mut self) {
        if let Ok(about) = self.file.metadata() {
            let _ = self.file.set_len(about.len());
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
        journal.file = opened(&path);
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
}
