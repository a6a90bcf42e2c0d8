//! From a blank process to a guest: the way in, as far as home's commit.

use crate::clocks::Ahead;
use crate::connections::{Assembly, ConnectionError};
use crate::error::GuestError;
use crate::guest::Guest;
use crate::memory::{STACK_ROOM, growing};
use crate::pager::{self, PagerError, Shared};
use crate::sandbox::{GuestRequest, Sandbox, SandboxError};
use crate::table::{PageSource, Piece};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use whim_calls::Places;
use whim_calls::judge::Filters;
use whim_image::rebuild::{Blank, Mapped, RebuildError, Rebuilt};
use whim_image::ticks;
use whim_journey::message::ClockPair;
use whim_model::{Backing, Clocks, Mapping, PAGE_SIZE, ProcessImage};
use whim_net::Line;
use whim_sys::pagemap::Pagemap;
use whim_sys::pidfd::Pidfd;
use whim_sys::pulse;

/// Longest wait for a clock: the two machines' clocks run at almost the same pace.
const CLOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Of an image, a mapping or a thread takes about so many bytes, or more.
const BYTES_OF_PIECE: usize = 64;

#[derive(Debug, Error)]
pub enum ArrivalError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error(transparent)]
    Pager(#[from] PagerError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error("The pager's thread cannot be made: {0}")]
    Thread(std::io::Error),
    #[error("'{0}' came out of turn")]
    Turn(&'static str),
}

/// How far the arrival has come.
#[derive(Debug)]
enum Stage {
    /// Nothing has been asked for.
    Idle,
    /// The blank process waits for the image.
    Blank {
        blank: Blank,
        shared: Arc<Shared>,
    },
    /// The mappings are there; pages are coming.
    Mapped {
        mapped: Mapped,
        shared: Arc<Shared>,
        image: Box<ProcessImage>,
    },
    /// Everything is there.
    Rebuilt {
        rebuilt: Rebuilt,
        shared: Arc<Shared>,
        image: Box<ProcessImage>,
    },
    Over,
}

/// A guest on its way in.
#[derive(Debug)]
pub(crate) struct Arrival {
    stage: Stage,
    assembly: Assembly,
    ahead: Ahead,
    pid: i32,
    /// Its number in its own pid namespace.
    own_pid: i32,
    /// Its user id, as it sees it.
    uid: u32,
    /// Bytes of pages that came.
    bytes: u64,
    /// The guest gets this host's vDSO where it is the same as home's.
    own_vdso: bool,
}

impl Arrival {
    /// `own_vdso`: as [`Blank::map`] has it.
    #[must_use]
    pub(crate) fn new(own_vdso: bool) -> Self {
        Self {
            stage: Stage::Idle,
            assembly: Assembly::default(),
            ahead: Ahead::default(),
            pid: 0,
            own_pid: 0,
            uid: 0,
            bytes: 0,
            own_vdso,
        }
    }

    /// How far the guest's clocks are ahead of ours.
    #[must_use]
    pub(crate) fn ahead(&self) -> Ahead {
        self.ahead
    }

    /// Bytes of the pages that have come so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many mappings and threads the image may have of which so much has come.
    pub(crate) fn pieces_to_come(&self) -> usize {
        self.assembly.len() / BYTES_OF_PIECE
    }

    /// How many mappings and threads the image has; 0 before it is known.
    #[must_use]
    pub(crate) fn pieces(&self) -> usize {
        match &self.stage {
            Stage::Mapped { image, .. } | Stage::Rebuilt { image, .. } => image.pieces(),
            Stage::Idle | Stage::Blank { .. } | Stage::Over => 0,
        }
    }

    /// Number of the process at home, as home's node knows it; 0 before it is known.
    #[must_use]
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Makes the blank process: home is about to freeze the original.
    ///
    /// # Errors
    /// The kernel refuses something: nothing has been touched at home.
    pub(crate) fn prepare(
        &mut self,
        sandbox: &mut Sandbox,
        (pid, own_pid, uid): (i32, i32, u32),
        clocks: &ClockPair,
    ) -> Result<(), ArrivalError> {
        if !matches!(self.stage, Stage::Idle) {
            return Err(ArrivalError::Turn("prepare"));
        }
        let ahead = |home: u64, host: u64| home.wrapping_sub(host).cast_signed();
        let (home, host) = (&clocks.home, &clocks.host);
        self.ahead = Ahead {
            monotonic_ns: ahead(home.monotonic_ns, host.monotonic_ns),
            boottime_ns: ahead(home.boottime_ns, host.boottime_ns),
        };
        let (blank, uffd) = sandbox.make_guest(GuestRequest {
            pid: own_pid,
            monotonic_ns: self.ahead.monotonic_ns,
            boottime_ns: self.ahead.boottime_ns,
        })?;
        (self.pid, self.own_pid, self.uid) = (pid, own_pid, uid);
        let shared = Shared::new(uffd)?;
        self.stage = Stage::Blank { blank, shared };
        Ok(())
    }

    /// Accepts a piece of the image; returns the image with the last one.
    ///
    /// # Errors
    /// The image is not sound.
    pub(crate) fn image_piece(
        &mut self,
        payload: &[u8],
    ) -> Result<Option<ProcessImage>, ArrivalError> {
        if !matches!(self.stage, Stage::Blank { .. }) {
            return Err(ArrivalError::Turn("image"));
        }
        Ok(self.assembly.add(payload)?)
    }

    /// Gives the process the mappings of its image, and starts the pager with `pages`, the line to
    /// home's attic.
    ///
    /// # Errors
    /// The image is not sound, or there is no memory for it.
    pub(crate) fn map(
        &mut self,
        image: ProcessImage,
        pages: &mut Option<Line>,
        epoch: u32,
    ) -> Result<(), ArrivalError> {
        let Stage::Blank { blank, shared } = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(ArrivalError::Turn("image"));
        };
        if image.pid != self.own_pid {
            return Err(ArrivalError::Turn("image of another process"));
        }
        let guest = Pidfd::open(blank.pid()).map_err(|errno| PagerError::Os {
            call: "pidfd_open",
            errno,
        })?;
        let pagemap = Pagemap::open(blank.pid()).map_err(|error| PagerError::Os {
            call: "opening the pagemap",
            errno: nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        let mapped = blank.map(&image, &shared.uffd, self.own_vdso)?;
        let pages = pages
            .take()
            .ok_or(ArrivalError::Turn("image without page connection"))?;
        for mapping in &image.mappings {
            if let Backing::File { id, offset } = mapping.backing {
                let mut table = shared.table();
                table.insert(Piece {
                    start: mapping.start,
                    end: mapping.end,
                    mapping: id,
                    offset,
                });
                table.restrict(id, mapping.flags);
            }
        }
        pager::start(Arc::clone(&shared), pages, epoch, (guest, pagemap))
            .map_err(ArrivalError::Thread)?;
        self.stage = Stage::Mapped {
            mapped,
            shared,
            image: Box::new(image),
        };
        Ok(())
    }

    /// Accepts a frame of pages: the address, then their contents.
    ///
    /// # Errors
    /// They belong to no mapping, or there is no memory.
    pub(crate) fn pages(&mut self, payload: &[u8]) -> Result<(), ArrivalError> {
        let Stage::Mapped {
            mapped,
            shared,
            image,
        } = &self.stage
        else {
            return Err(ArrivalError::Turn("pages"));
        };
        let (head, bytes) = payload
            .split_first_chunk::<8>()
            .ok_or(ArrivalError::Turn("pages without an address"))?;
        let mut at = u64::from_le_bytes(*head);
        let mut rest = bytes;
        if !(at | rest.len() as u64).is_multiple_of(PAGE_SIZE) {
            return Err(ArrivalError::Turn("a part of a page"));
        }
        while !rest.is_empty() {
            let index = image.mappings.partition_point(|mapping| mapping.end <= at);
            let mapping = image
                .mappings
                .get(index)
                .filter(|mapping| mapping.contains(at));
            let mapping = mapping.ok_or(ArrivalError::Turn("a page of no mapping"))?;
            let length = usize::try_from(mapping.end - at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(length.min(rest.len()));
            mapped.write_pages(mapping, &shared.uffd, at, now)?;
            note_own(shared, mapping, at, now.len() as u64);
            at += now.len() as u64;
            rest = later;
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// All pages have come: the rest of the process is made.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub(crate) fn complete(&mut self) -> Result<(), ArrivalError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Mapped {
            mapped,
            shared,
            image,
        } = stage
        else {
            return Err(ArrivalError::Turn("complete"));
        };
        let filter = filter(&image, shared.uffd.is_user_mode_only())?;
        let rebuilt = mapped.complete(&image, &filter)?;
        self.stage = Stage::Rebuilt {
            rebuilt,
            shared,
            image,
        };
        Ok(())
    }

    /// Home has committed: the process is the guest now. Its threads are still stopped. This waits
    /// until its clocks are not behind those of the original at the freeze.
    ///
    /// # Errors
    /// Out of turn, or the process is gone.
    pub(crate) fn commit(&mut self, epoch: u32) -> Result<Guest, ArrivalError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Rebuilt {
            rebuilt,
            shared,
            image,
        } = stage
        else {
            return Err(ArrivalError::Turn("commit"));
        };
        self.wait_for_clocks(&image.clocks)?;
        let mut guest = Guest::new(rebuilt, &image, shared, epoch)?;
        guest.tickets.uid = self.uid;
        guest.take_up_waits(&image, self.ahead);
        Ok(guest)
    }

    fn wait_for_clocks(&self, then: &Clocks) -> Result<(), ArrivalError> {
        let now = self.ahead.clocks()?;
        let behind = then
            .monotonic_ns
            .saturating_sub(now.monotonic_ns)
            .max(then.boottime_ns.saturating_sub(now.boottime_ns));
        let tick = ticks::until(then.monotonic_ns, self.ahead.monotonic_ns);
        let behind = Duration::from_nanos(behind).max(tick);
        if !behind.is_zero() {
            pulse::sleep(behind.min(CLOCK_WAIT_MAX));
        }
        Ok(())
    }
}

/// Pages of file mappings that came with the image are the guest's own: home does not have them.
fn note_own(shared: &Shared, mapping: &Mapping, at: u64, length: u64) {
    let Backing::File { id, offset } = mapping.backing else {
        return;
    };
    let first = (offset + (at - mapping.start)) / PAGE_SIZE;
    let mut table = shared.table();
    for number in first..first + length / PAGE_SIZE {
        table.note((id, number), PageSource::Own);
    }
}

/// The guest's system call filter, as the kernel reads it.
fn filter(image: &ProcessImage, cautious: bool) -> Result<Vec<u8>, GuestError> {
    let never_write = image.mappings.iter();
    let never_write = never_write.filter(|mapping| mapping.flags.never_write);
    let never_write = never_write.map(|mapping| (mapping.start, mapping.end));
    let rooms = growing(image).into_iter();
    let rooms = rooms.map(|range| (range.start.saturating_sub(STACK_ROOM), range.start));
    let places = Places {
        reserved: (image.reserved.start, image.reserved.end),
        others: never_write.chain(rooms).collect(),
        locks_future: image.locks_future,
        reads_signals: image.descriptor_signals != 0,
    };
    let mut bytes = Vec::new();
    let program = if cautious {
        whim_calls::cautious_filter(&places)
    } else {
        whim_calls::guest_filter(&places)
    };
    // What is as long as images may have it has room before ours. Without it nobody would judge local calls.
    let own = Filters::of(&image.filters).map_err(|_| GuestError::Filters)?;
    let program = own.before(&program).ok_or(GuestError::Filters)?;
    for one in program {
        bytes.extend_from_slice(&one.code.to_le_bytes());
        bytes.extend_from_slice(&[one.jt, one.jf]);
        bytes.extend_from_slice(&one.k.to_le_bytes());
    }
    Ok(bytes)
}
