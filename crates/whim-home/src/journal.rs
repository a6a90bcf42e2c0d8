//! The journal of one journey: lines of JSON, the only authority on which epoch is valid.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use whim_journey::job::Event;

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

    /// Appends an entry and waits until it is on disk.
    ///
    /// # Errors
    /// Of the file system.
    pub fn commit(&mut self, event: &Event) -> io::Result<()> {
        self.note(event)?;
        self.file.sync_data()
    }
}
