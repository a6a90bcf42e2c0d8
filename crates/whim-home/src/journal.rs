//! The journal of one journey: lines of JSON, the only authority on which epoch is valid.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use whim_journey::job::Event;

/// An entry on its way to the disk.
#[derive(Debug)]
pub struct Syncing {
    done: Receiver<io::Result<()>>,
}

impl Syncing {
    /// How it ended, once that is known.
    pub fn poll(&mut self) -> Option<io::Result<()>> {
        match self.done.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(io::Error::other(
                "the thread that waited for the disk has ended",
            ))),
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file })
    }

    /// Appends an entry that need not survive a power failure.
    ///
    /// # Errors
    /// Of the file system.
    pub fn note(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())
    }

    /// Appends an entry whose way to the disk somebody else waits for: a disk may take longer than
    /// a lease, and heartbeats have to go on meanwhile.
    ///
    /// # Errors
    /// Of the file system.
    pub fn begin_commit(&mut self, event: &Event) -> io::Result<Syncing> {
        self.note(event)?;
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
    /// Of the file system.
    pub fn commit(&mut self, event: &Event) -> io::Result<()> {
        self.note(event)?;
        self.file.sync_data()
    }
}
