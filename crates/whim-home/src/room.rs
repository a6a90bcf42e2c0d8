//! Room for descriptors: for two in a process whose table is full, and for our own.
//!
//! The conversion needs them for a moment (the deck, the userfaultfd). It comes after the guest's
//! start, when a failure would end the process: so room is made before, or the process stays.

use nix::errno::Errno;
use std::fs::File;
use thiserror::Error;
use whim_sys::foreign::{self, Limit};

/// Descriptors that the conversion has open at one time, and some to spare.
const NEEDED: u64 = 4;
/// Of our own: those of a deputy and of the loop that serves it.
const FOR_CONVERSION: usize = 12;
/// Of our own: what is open for a moment on the way home.
const FOR_RETURN: usize = 6;

#[derive(Debug, Error)]
pub enum RoomError {
    #[error(
        "The process has used up its limit of {limit} open files, and that cannot be raised for the move ({errno})"
    )]
    Full { limit: u64, errno: Errno },
    #[error(
        "The home supervisor may not open as many files as a move needs ({0}); raise whimd's limit (LimitNOFILE)"
    )]
    Ours(std::io::Error),
}

/// Descriptors of ours that are kept for steps which must not fail.
#[derive(Debug)]
pub struct Reserve {
    conversion: Vec<File>,
    homecoming: Vec<File>,
}

impl Reserve {
    /// # Errors
    /// [`RoomError::Ours`]
    pub fn take() -> Result<Self, RoomError> {
        let some = |count| {
            let open = || File::open("/dev/null");
            (0..count)
                .map(|_| open())
                .collect::<std::io::Result<Vec<File>>>()
                .map_err(RoomError::Ours)
        };
        Ok(Self {
            conversion: some(FOR_CONVERSION)?,
            homecoming: some(FOR_RETURN)?,
        })
    }

    /// The conversion begins.
    pub fn for_conversion(&mut self) {
        self.conversion.clear();
    }

    /// The way home begins.
    pub fn for_return(&mut self) {
        self.homecoming.clear();
    }
}

/// A raised limit; put back when dropped.
#[derive(Debug)]
pub struct Room {
    pid: i32,
    before: Limit,
}

/// Raises the limit on open files of `pid`, if its table leaves no room.
///
/// # Errors
/// [`RoomError::Full`]
pub fn make(pid: i32) -> Result<Option<Room>, RoomError> {
    let Ok(before) = foreign::limit(pid, libc::RLIMIT_NOFILE) else {
        return Ok(None);
    };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as u64;
    if open + NEEDED <= before.soft {
        return Ok(None);
    }
    let soft = open.max(before.soft) + NEEDED;
    let raised = Limit {
        soft,
        hard: before.hard.max(soft),
        ..before
    };
    foreign::set_limit(pid, raised).map_err(|errno| RoomError::Full {
        limit: before.soft,
        errno,
    })?;
    Ok(Some(Room { pid, before }))
}

impl Drop for Room {
    fn drop(&mut self) {
        // The process may have ended: then nothing is to be put back.
        let _ = foreign::set_limit(self.pid, self.before);
    }
}
