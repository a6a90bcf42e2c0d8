//! Room for what the conversion needs: descriptors and addresses in the process, and descriptors and memory
//! of our own.
//!
//! The conversion comes after the guest's start, when a failure would end the process. So room is made
//! before, or the process stays.

use crate::attic::Attic;
use crate::convert::{Original, RAISED};
use crate::deputy::SPARE_THREADS;
use crate::journal::Journal;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use thiserror::Error;
use whim_image::maps;
use whim_journey::job::Event;
use whim_model::{Backing, ProcessImage};
use whim_sys::crash;
use whim_sys::foreign::{self, Limit};
use whim_sys::kernel_file;
use whim_sys::resident::Deck;

/// Descriptors that the conversion has open at one time, and some to spare.
const NEEDED: u64 = 4;
/// Mappings that the conversion adds for a moment, at most; on the way home the deputy has no more of its own.
const MAPPINGS_NEEDED: u64 = maps::SPARE as u64;
/// The value of vm.overcommit_memory with which even a mapping without a reservation counts.
const OVERCOMMIT_NEVER: u64 = 2;
/// Our own descriptors: those of a deputy and of the loop that serves it.
const FOR_CONVERSION: usize = 12;
/// Our own memory that the conversion takes beside the deck, in bytes.
const MEMORY_BESIDE: usize = 1 << 20;
/// Our own descriptors that are open for a moment on the way home.
const FOR_RETURN: usize = 6;

#[derive(Debug, Error)]
pub(crate) enum RoomError {
    #[error(
        "The process has used up its limit of {limit} open files, and that cannot be raised for the move ({errno})"
    )]
    Full { limit: u64, errno: Errno },
    #[error(
        "The process has a hard limit of {limit} KiB on its address space or data (ulimit -v, -d), and that cannot be raised for the move ({errno})"
    )]
    Space { limit: u64, errno: Errno },
    #[error(
        "This node reserves all memory beforehand (vm.overcommit_memory is 2): no process can leave it"
    )]
    Overcommit,
    #[error("The journal cannot be written ({0}); free space on its disk")]
    Journal(std::io::Error),
    #[error("The process has {mappings} mappings, and vm.max_map_count is {limit}: raise that")]
    Mappings { mappings: usize, limit: u64 },
    #[error(
        "The home supervisor may not open as many files as a move needs ({0}); raise whimd's limit (LimitNOFILE)"
    )]
    Ours(std::io::Error),
    #[error(
        "The home supervisor may not use as much memory as a move needs ({0} KiB more); raise whimd's limit (LimitAS, or ulimit -v)"
    )]
    OurMemory(usize),
    #[error(
        "The home supervisor may not make a file of {0} KiB, as the move of so many threads needs: start fewer threads before it is moved"
    )]
    OurFile(usize),
}

/// Descriptors and address space of ours that are kept for steps which must not fail.
#[derive(Debug)]
pub(crate) struct Reserve {
    conversion: Vec<File>,
    homecoming: Vec<File>,
    /// Has the length of what the conversion maps; never touched.
    memory: Vec<u8>,
}

impl Reserve {
    /// Sets aside what a process of so many threads needs.
    ///
    /// # Errors
    /// [`RoomError::Ours`], [`RoomError::OurMemory`], [`RoomError::OurFile`]
    pub(crate) fn take(threads: usize) -> Result<Self, RoomError> {
        let deck = Deck::length_for(threads + SPARE_THREADS);
        let longest = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
        if deck as u64 > longest {
            return Err(RoomError::OurFile(deck >> 10));
        }
        let length = deck + MEMORY_BESIDE;
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(length)
            .map_err(|_| RoomError::OurMemory(length >> 10))?;
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
            memory,
        })
    }

    /// Frees what was set aside for the conversion, which begins.
    pub(crate) fn for_conversion(&mut self) {
        self.conversion.clear();
        self.memory = Vec::new();
    }

    /// Frees what was set aside for the way home, which begins.
    pub(crate) fn for_return(&mut self) {
        self.homecoming.clear();
    }
}

/// Raised limits of the process; put back when dropped. If this supervisor is killed before that,
/// the daemon finds them in the journal and puts them back.
#[derive(Debug)]
pub(crate) struct Room {
    pid: i32,
    before: Vec<Limit>,
}

/// A setting of home's kernel, if it can be read.
fn number(name: &str) -> Option<u64> {
    let text = kernel_file::read_text(format!("/proc/sys/vm/{name}")).ok()?;
    text.trim().parse().ok()
}

/// The most mappings that the deputy has while it becomes this image. File mappings come out of the attic,
/// where parts of them stay until the end.
#[must_use]
pub(crate) fn mappings_for_return(image: &ProcessImage, attic: &Attic) -> u64 {
    let anonymous = |backing: &Backing| matches!(backing, Backing::Anonymous);
    let made = image.mappings.iter().filter(|m| anonymous(&m.backing));
    MAPPINGS_NEEDED + made.count() as u64 + attic.mappings_without(&image.mappings)
}

/// The sentence that refuses so many mappings, if home's kernel does not allow them.
#[must_use]
pub(crate) fn lack_of_mappings(needed: u64) -> Option<String> {
    let limit = number("max_map_count")?;
    (needed > limit).then(|| {
        format!(
            "Home has no room for the {needed} mappings that its return takes: vm.max_map_count is {limit} there; raise that"
        )
    })
}

/// Makes room in `pid`, which has so many mappings: for descriptors, if its table is full, and for the
/// window, which covers its whole address space, if that is limited. A limit that is raised is noted in the
/// journal first.
///
/// # Errors
/// [`RoomError`]; the limits are then as before.
pub(crate) fn make(pid: i32, mappings: usize, journal: &mut Journal) -> Result<Room, RoomError> {
    if number("overcommit_memory") == Some(OVERCOMMIT_NEVER) {
        return Err(RoomError::Overcommit);
    }
    let limit = number("max_map_count").unwrap_or(u64::MAX);
    if mappings as u64 + MAPPINGS_NEEDED > limit {
        return Err(RoomError::Mappings { mappings, limit });
    }
    let mut room = Room {
        pid,
        before: Vec::new(),
    };
    room.for_descriptors(journal)?;
    room.for_window(libc::RLIMIT_AS, journal)?;
    room.for_window(libc::RLIMIT_DATA, journal)?;
    Ok(room)
}

/// Gives a deputy the address space that it needs to become the process again, in case that somebody else has
/// limited it meanwhile. Returns the limits that the process is to have.
#[must_use]
pub(crate) fn lift(pid: i32, original: &Original) -> Vec<Limit> {
    let own = |resource: u32| {
        let mut limits = original.limits.iter();
        let own = limits.find(|limit| limit.resource == resource)?;
        Some(Limit {
            resource,
            soft: own.soft,
            hard: own.hard,
        })
    };
    let mut found = Vec::new();
    for resource in RAISED {
        let free = Limit {
            resource,
            soft: u64::MAX,
            hard: u64::MAX,
        };
        let now = foreign::limit(pid, resource).unwrap_or(free);
        if now == free {
            found.extend(own(resource));
        } else {
            // Without the right to do that, it may still have room enough.
            let _ = foreign::set_limit(pid, free);
            found.push(now);
        }
    }
    found
}

/// Sets limits on the memory of a process that has come home.
pub(crate) fn limit(pid: i32, limits: &[Limit]) {
    for limit in limits {
        if let Err(errno) = foreign::set_limit(pid, *limit) {
            tracing::warn!(?limit, %errno, "a limit of the process was not set again");
        }
    }
}

impl Room {
    fn for_descriptors(&mut self, journal: &mut Journal) -> Result<(), RoomError> {
        let Ok(before) = foreign::limit(self.pid, libc::RLIMIT_NOFILE) else {
            return Ok(());
        };
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count);
        let open = open as u64;
        if open + NEEDED <= before.soft {
            return Ok(());
        }
        let soft = open.max(before.soft) + NEEDED;
        let full = |errno| RoomError::Full {
            limit: before.soft,
            errno,
        };
        self.raise(before, soft, journal)?.map_err(full)
    }

    fn for_window(&mut self, resource: u32, journal: &mut Journal) -> Result<(), RoomError> {
        let Ok(before) = foreign::limit(self.pid, resource) else {
            return Ok(());
        };
        if before.soft == u64::MAX {
            return Ok(());
        }
        let space = |errno| RoomError::Space {
            limit: before.hard >> 10,
            errno,
        };
        self.raise(before, u64::MAX, journal)?.map_err(space)
    }

    /// The inner error is the kernel's refusal.
    fn raise(
        &mut self,
        before: Limit,
        soft: u64,
        journal: &mut Journal,
    ) -> Result<Result<(), Errno>, RoomError> {
        let raised = Limit {
            soft,
            hard: before.hard.max(soft),
            ..before
        };
        let noted = Event::Raised {
            resource: before.resource,
            before: (before.soft, before.hard),
            raised: (raised.soft, raised.hard),
        };
        journal.append(&noted).map_err(RoomError::Journal)?;
        crash::point("before-limit-raised");
        let set = foreign::set_limit(self.pid, raised);
        crash::point("limit-raised");
        if set.is_ok() {
            self.before.push(before);
        }
        Ok(set)
    }

    /// Keeps only the limit on descriptors to be put back. The process is a deputy now, whose address space
    /// is home's affair; the program's own limits on it come back with the program.
    pub(crate) fn converted(mut self) {
        self.before
            .retain(|limit| limit.resource == libc::RLIMIT_NOFILE);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for before in &self.before {
            // The process may have ended: then nothing is to be put back.
            let _ = foreign::set_limit(self.pid, *before);
        }
    }
}
