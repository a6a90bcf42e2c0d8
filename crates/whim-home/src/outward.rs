//! The way out: from the frozen original to a guest that has started.
//!
//! One contract: *on failure before commit the process goes on where it was, unharmed.* Between our
//! journal's commit entry and the guest's `Started` the journey is in doubt: the guest forwards
//! nothing, the original is neither converted nor released, and at the end of the lease it resumes.

use crate::connections::{ConnectionError, Connections, clocks};
use crate::convert::ConvertError;
use crate::convert::early::early_uffd;
use crate::holding::Holding;
use crate::journal::Journal;
use crate::numbers::Ids;
use crate::room::{self, Reserve, Room, RoomError};
use crate::seize::{SeizeError, Seized};
use crate::server::Continuation;
use crate::subject::{Subject, SubjectError};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_calls::{GuestMemory, has_signals_of_its_own};
use whim_image::capture::{CaptureError, CaptureOptions, Captured, InFlight};
use whim_image::freeze::{FreezeError, Frozen};
use whim_image::freeze_calls;
use whim_image::maps;
use whim_image::reserve;
use whim_image::sharing::Alone;
use whim_image::stay::{
    Policy, SharedFile, StayReason, frozen_reason, has_own_time, mapping_reasons,
    shared_read_only_of,
};
use whim_journey::commit::{Action, Event as MoveEvent, Limits, Move};
use whim_journey::frame::Kind;
use whim_journey::job::{Event, Phase};
use whim_journey::message::{
    self, Allowance, ToGuest, ToHome, WireDirection, WireRegion, WireReturned,
};
use whim_model::{Backing, Mapping, PAGE_SIZE, ProcessImage, Range};
use whim_sys::uffd::Uffd;
use whim_sys::watched::{WatchError, WatchedFiles};
use whim_sys::{crash, freezer, pagemap, process_vm, pulse};

/// How long the host may take to build what it needs before the freeze.
const PREPARE_WITHIN: Duration = Duration::from_secs(20);
/// How long the transfer may stand still.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes between two reports of progress.
const PROGRESS_STEP: u64 = 64 << 20;
/// Bytes of pages in one frame. The host can place a frame once all of it has come: with small ones
/// both sides work at the same time, on bytes that their caches still hold.
const PAGES_IN_FRAME: usize = 128 << 10;
/// How long a disk that works may take. Only if it takes longer does another thread keep the lines.
const DISK_WITHIN: Duration = Duration::from_millis(20);

#[derive(Debug, Error)]
pub(crate) enum OutwardError {
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    #[error("The process could not be stopped: {0}")]
    Freeze(#[from] FreezeError),
    #[error("The state of the process could not be read: {0}")]
    Capture(#[from] CaptureError),
    #[error("The process could not be prepared to stay as a deputy: {0}")]
    Deputy(#[from] ConvertError),
    #[error(transparent)]
    Taking(#[from] SeizeError),
    #[error("{0}")]
    Room(#[from] RoomError),
    #[error("{0}")]
    Subject(#[from] SubjectError),
    #[error("{0}")]
    Stay(StayReason),
    #[error("The process was mapping a file just now; try again")]
    MappedMeanwhile,
    #[error("A file that the process maps was written just now; try again")]
    WrittenMeanwhile,
    #[error("The process has no free address range for its mappings of files to wait in, any more")]
    NoRange,
    #[error("Memory of the process at {address:#x} could not be read: {errno}")]
    Memory {
        address: u64,
        errno: nix::errno::Errno,
    },
    #[error("The host did not confirm the start within the lease; the process goes on here")]
    InDoubt(#[source] ConnectionError),
    #[error("The journal cannot be written ({0}); free space on its disk")]
    Journal(#[from] std::io::Error),
}

impl OutwardError {
    /// Whether that lies in the process, which would be refused again until something changes in it.
    #[must_use]
    pub(crate) fn keeps_it(&self) -> bool {
        matches!(
            self,
            Self::Stay(_)
                | Self::Room(RoomError::Space { .. })
                | Self::Taking(SeizeError::Watch(WatchError::Refused { .. }))
        )
    }
}

/// Everything that the conversion needs once the guest has started.
#[derive(Debug)]
pub(crate) struct Departed {
    pub frozen: Frozen,
    /// The deputy's, if it could not be made later.
    pub uffd: Option<Uffd>,
    /// The files that the process maps shared and read-only; they are watched as long as it is away.
    pub files: WatchedFiles,
    /// Kept until the conversion is done.
    pub room: Option<Room>,
    pub reserve: Reserve,
    pub image: ProcessImage,
    /// Memory that the process maps from now on is locked at once (MCL_FUTURE).
    pub locks_future: bool,
    pub continuations: Vec<Continuation>,
    pub frozen_at: Instant,
    pub bytes: u64,
    pub pages: u64,
}

/// What has gone to the guest.
struct Carried {
    uffd: Option<Uffd>,
    image: ProcessImage,
    locks_future: bool,
    continuations: Vec<Continuation>,
    bytes: u64,
    pages: u64,
}

/// What was taken of the frozen process.
struct Taken {
    image: ProcessImage,
    encoded: Vec<u8>,
    locks_future: bool,
    continuations: Vec<Continuation>,
}

/// Memory of the original, from which the shapes of calls in flight are read.
struct HomeMemory<'a> {
    pid: i32,
    mappings: &'a [Mapping],
}

impl GuestMemory for HomeMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        process_vm::read(self.pid, address, buffer).unwrap_or(0)
    }

    fn writable(&self, address: u64, length: u64) -> bool {
        let mut at = address;
        let end = address.saturating_add(length);
        while at < end {
            let index = self.mappings.partition_point(|mapping| mapping.end <= at);
            let at_it = self.mappings.get(index);
            let Some(mapping) = at_it.filter(|mapping| mapping.contains(at)) else {
                return false;
            };
            if !mapping.protection.writable() {
                return false;
            }
            at = mapping.end;
        }
        true
    }
}

/// What the journey reports while it goes on.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Event);

/// One attempt to leave.
pub(crate) struct Outward<'a> {
    pub pid: i32,
    pub subject: &'a Subject,
    pub lease: Option<Duration>,
    pub report: Report<'a>,
    pub begun: Instant,
    /// That the process had its memory for itself before.
    pub alone: Alone,
    /// Gets the commit entry, and what is to be undone if this supervisor is killed.
    pub journal: &'a mut Journal,
    /// Threads that we go on tracing if the process did not leave.
    pub holding: &'a mut Holding,
    /// Limits of the process that were raised for the conversion.
    pub room: Option<Room>,
    /// Its times are counted from `begun`.
    pub going: Move,
    /// What the host allows, once it has said so.
    pub allowance: Option<Allowance>,
}

/// A move that begins, with the limits at which it is given up.
#[must_use]
pub(crate) fn departure(begun: Instant, lease: Option<Duration>) -> Move {
    let limits = Limits {
        preparing: PREPARE_WITHIN,
        silent: STALL_MAX,
        ..Limits::of(lease)
    };
    Move::new(begun.elapsed(), limits)
}

impl Outward<'_> {
    fn phase(&mut self, phase: Phase) {
        let at_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        (self.report)(Event::Phase { phase, at_ms });
        crash::step("out", phase);
    }

    /// Goes from the host's message that it is prepared to the guest's start.
    ///
    /// # Errors
    /// Whatever failed; the process goes on at home.
    pub(crate) fn go(
        &mut self,
        connections: &mut Connections,
        mut taken: Seized,
    ) -> Result<Departed, OutwardError> {
        let node = connections.node.clone();
        // Thousands of mappings take a while to be read.
        let counted = connections.meanwhile(usize::MAX, || {
            let entries = maps::read(self.pid).map_err(FreezeError::from)?;
            let pieces = self.count(entries.len(), &node)?;
            let reserved = reserve::choose(&entries).ok_or(OutwardError::NoRange)?;
            whim_image::vdso::own().map_err(CaptureError::from)?;
            Ok::<_, OutwardError>((pieces, reserved))
        });
        let (pieces, reserved) = match counted {
            Ok(counted) => counted,
            Err(error) => {
                taken.threads.let_go(self.holding);
                return Err(error);
            }
        };
        crash::point("before-freeze");
        self.phase(Phase::Freeze);
        let (threads, of) = (taken.threads, (self.pid, taken.freezers));
        let by = (self.subject, &mut *self.holding);
        let mut ours = connections.meanwhile(pieces, || Seized::freeze(threads, of, by))?;
        let frozen_at = ours.began();
        crash::point("identity-checked");
        match self.carry(&mut ours, connections, (&mut taken.files, reserved, pieces)) {
            Ok(carried) => Ok(Departed {
                frozen: ours.depart(),
                uffd: carried.uffd,
                files: taken.files,
                room: self.room.take(),
                reserve: taken.reserve,
                image: carried.image,
                locks_future: carried.locks_future,
                continuations: carried.continuations,
                frozen_at,
                bytes: carried.bytes,
                pages: carried.pages,
            }),
            Err(error) => {
                crash::point("before-release");
                ours.let_go(self.holding)?;
                Err(error)
            }
        }
    }

    /// How many mappings and threads it has, if this node and the host allow so many.
    fn count(&self, mappings: usize, node: &str) -> Result<usize, OutwardError> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let threads = threads.map_or(1, Iterator::count);
        let node = node.to_owned();
        let reason = match self.allowance {
            _ if mappings > maps::allowed() => StayReason::TooManyMappings {
                has: mappings,
                limit: maps::allowed(),
            },
            Some(allowance) if mappings as u64 > allowance.mappings => StayReason::MappingsThere {
                has: mappings,
                node,
                limit: allowance.mappings,
            },
            Some(allowance) if threads as u64 > allowance.threads => StayReason::ThreadsThere {
                has: threads,
                node,
                limit: allowance.threads,
            },
            _ => return Ok(mappings + threads),
        };
        Err(OutwardError::Stay(reason))
    }

    /// Takes hold of the process, and has the host prepare for it.
    ///
    /// # Errors
    /// Whatever failed; the process has not been stopped.
    pub(crate) fn approach(
        &mut self,
        connect: impl FnOnce() -> Result<Connections, ConnectionError> + Send + 'static,
    ) -> Result<(Seized, Connections), OutwardError> {
        // Checked before a right is used on the process, and once more when it is traced.
        self.subject.check()?;
        if let Some(group) = freezer::frozen_group_of(self.pid) {
            return Err(OutwardError::Stay(StayReason::Frozen(group)));
        }
        crash::point("subject-checked");
        let mut taken = crate::seize::seize(self.pid, self.subject, self.holding)?;
        match self.admit(&mut taken, connect) {
            Ok(connections) => Ok((taken, connections)),
            Err(error) => {
                taken.threads.let_go(self.holding);
                Err(error)
            }
        }
    }

    /// Has the host prepare, while the process is attended.
    fn admit(
        &mut self,
        taken: &mut Seized,
        connect: impl FnOnce() -> Result<Connections, ConnectionError> + Send + 'static,
    ) -> Result<Connections, OutwardError> {
        self.phase(Phase::Admit);
        self.subject.check()?;
        let (lease, limit) = (self.lease, self.going.limit());
        let ids = Ids::of(self.pid).map_err(|_| FreezeError::Gone(self.pid))?;
        let heard = taken.while_attended(self.holding, move || {
            let mut connections = connect()?;
            let answer = prepare(&mut connections, (ids, lease), limit);
            Ok((connections, answer))
        })?;
        let (connections, answer) = heard?;
        let mut allowance = None;
        self.heard(answer, Action::Send, |said| {
            let ToHome::Prepared { allowance: told } = said else {
                return None;
            };
            allowance = Some(*told);
            Some(MoveEvent::Prepared)
        })?;
        self.allowance = allowance;
        Ok(connections)
    }

    fn carry(
        &mut self,
        frozen: &mut Frozen,
        connections: &mut Connections,
        (files, reserved, pieces): (&mut WatchedFiles, Range, usize),
    ) -> Result<Carried, OutwardError> {
        // This comes first, because what we do to its memory is done to that of all processes which share it.
        if let Some(reason) = connections.meanwhile(pieces, || self.alone.no_longer()) {
            return Err(OutwardError::Stay(reason));
        }
        if let Some(reason) = connections.meanwhile(pieces, || frozen_reason(frozen))? {
            return Err(OutwardError::Stay(reason));
        }
        connections.beat()?;
        self.phase(Phase::Capture);
        let taken = connections.meanwhile(pieces, || self.take(frozen, (files, reserved)))?;
        let Taken {
            image,
            encoded,
            locks_future,
            continuations,
        } = taken;
        self.phase(Phase::Transfer);
        connections.send_encoded(&encoded, STALL_MAX)?;
        // The host begins to build meanwhile.
        let runs = connections.meanwhile(pieces, || self.runs(&image))?;
        let (bytes, pages) = self.send_pages(runs, connections)?;
        crash::point("pages-sent");
        connections.send(&ToGuest::Complete { clocks: clocks() }, STALL_MAX)?;
        self.phase(Phase::Rebuild);
        // While the host builds: the process stands still for no longer.
        let uffd = connections.meanwhile(pieces, || early_uffd(frozen))?;
        self.hear(connections, Action::Journal, |said| {
            (*said == ToHome::Ready { bytes }).then_some(MoveEvent::Ready)
        })?;
        self.commit(frozen, &image, connections)?;
        Ok(Carried {
            uffd,
            image,
            locks_future,
            continuations,
            bytes,
            pages,
        })
    }

    /// Takes the image of the frozen process, and makes room for what follows its departure.
    fn take(
        &mut self,
        frozen: &mut Frozen,
        (files, reserved): (&mut WatchedFiles, Range),
    ) -> Result<Taken, OutwardError> {
        let options = CaptureOptions {
            reserved,
            begins_in_guest: &begins_in_guest,
        };
        let captured = frozen.capture(&options)?;
        self.look_again(&captured, files)?;
        // Trap: no-room-for-the-deputy
        self.room = Some(room::make(self.pid, captured.entries.len(), self.journal)?);
        let mut image = captured.image;
        let mut calls = captured.in_flight.iter().chain(&captured.begun_anew);
        if !calls.any(|call| has_signals_of_its_own(call.original_number, &call.original_args)) {
            // Trap: blocked-signals-come-late
            frozen.embark_signals(&mut image)?;
        }
        let calls = captured.in_flight.iter();
        // By this number the guest resolves where the outputs of the call go.
        let numbers: HashMap<i32, u64> =
            calls.map(|call| (call.tid, call.original_number)).collect();
        for thread in &mut image.threads {
            if let Some(number) = numbers.get(&thread.tid) {
                thread.registers.orig_rax = *number;
            }
        }
        let memory = HomeMemory {
            pid: self.pid,
            mappings: &image.mappings,
        };
        let context = whim_calls::Context {
            pid: image.pid,
            threads: image.threads.iter().map(|thread| thread.tid).collect(),
            reserved: (image.reserved.start, image.reserved.end),
            locks_future: image.locks_future,
            descriptor_signals: image.descriptor_signals,
        };
        let calls = captured.in_flight.into_iter();
        let continuations = calls
            .map(|call| {
                pulse::advance();
                continuation(call, &context, &memory)
            })
            .collect();
        let encoded = message::encode(&image).map_err(ConnectionError::from)?;
        Ok(Taken {
            image,
            encoded,
            locks_future: captured.locks_future,
            continuations,
        })
    }

    /// The pages that travel, ascending, and whether those that are zero need not.
    fn runs(&self, image: &ProcessImage) -> Result<Vec<(pagemap::Run, bool)>, OutwardError> {
        let runs = maps::private_runs(self.pid, &image.mappings).map_err(|error| {
            let errno = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            OutwardError::Memory { address: 0, errno }
        })?;
        let elides = |mapping: &Mapping| mapping.backing == Backing::Anonymous;
        let runs = runs.into_iter();
        Ok(runs.map(|(one, run)| (run, elides(one))).collect())
    }

    /// Goes from the journal's entry to the guest's start. In between it is in doubt which of the two runs.
    fn commit(
        &mut self,
        frozen: &mut Frozen,
        image: &ProcessImage,
        connections: &mut Connections,
    ) -> Result<(), OutwardError> {
        self.phase(Phase::Commit);
        // The guest would run on although the group is frozen.
        frozen.check_groups()?;
        crash::point("before-commit");
        let entry = Event::Commit {
            epoch: connections.epoch,
            to: connections.node.clone(),
        };
        let written = self.journal.begin_commit(&entry).and_then(|syncing| {
            // However small the process is, a disk may take longer than a lease.
            syncing
                .within(DISK_WITHIN)
                .unwrap_or_else(|syncing| connections.meanwhile(usize::MAX, || syncing.wait()))
        });
        let event = MoveEvent::Journaled {
            written: written.is_ok(),
        };
        let next = self.going.handle(self.begun.elapsed(), event);
        written?;
        crash::point("after-commit-entry");
        let doubt = |error: ConnectionError| OutwardError::InDoubt(error);
        if next == Some(Action::Commit) {
            match frozen.let_signals_go(image) {
                Ok(missing) if missing.is_empty() => {}
                Ok(missing) => tracing::warn!(?missing, "signals that travel were not found"),
                // If it has died, so will the guest.
                Err(error) => tracing::warn!(%error, "signals that travel may come twice"),
            }
            let commit = ToGuest::Commit { clocks: clocks() };
            connections
                .send(&commit, self.going.limit())
                .map_err(doubt)?;
        }
        self.hear(connections, Action::Acknowledge, |said| {
            matches!(said, ToHome::Started { .. }).then_some(MoveEvent::Started)
        })
        .map_err(doubt)?;
        crash::point("after-started");
        Ok(())
    }

    /// Waits for the host's next message, as long as this step of the move may take. The event that `event`
    /// makes of it has to bring the move to `due`; otherwise the move is given up.
    fn hear(
        &mut self,
        connections: &mut Connections,
        due: Action,
        event: impl FnOnce(&ToHome) -> Option<MoveEvent>,
    ) -> Result<(), ConnectionError> {
        let answer = connections.receive(self.going.limit());
        self.heard(answer, due, event)
    }

    /// Handles a message of the host, as `hear` does.
    fn heard(
        &mut self,
        answer: Result<ToHome, ConnectionError>,
        due: Action,
        event: impl FnOnce(&ToHome) -> Option<MoveEvent>,
    ) -> Result<(), ConnectionError> {
        let event = answer.as_ref().ok().and_then(event);
        let event = event.unwrap_or(MoveEvent::Failed);
        let next = self.going.handle(self.begun.elapsed(), event);
        if next == Some(due) {
            return Ok(());
        }
        Err(ConnectionError::Unexpected {
            expected: match due {
                Action::Send => "prepared",
                Action::Journal => "ready",
                _ => "started",
            },
            got: format!("{:?}", answer?),
        })
    }

    /// Checks the reasons to stay once more. They were checked before the freeze, and the address space may
    /// have changed since.
    fn look_again(
        &self,
        captured: &Captured,
        files: &mut WatchedFiles,
    ) -> Result<(), OutwardError> {
        if let Some(reason) = &captured.has_to_stay {
            return Err(OutwardError::Stay(reason.clone()));
        }
        // This supervisor was started in the process's time namespace, but the process may have changed it.
        if has_own_time(self.pid) {
            return Err(OutwardError::Stay(StayReason::TimeNamespace));
        }
        let policy = Policy {
            watches: true,
            ..Policy::default()
        };
        let (entries, flags) = (&captured.entries, &captured.flags);
        let reasons = mapping_reasons(self.pid, captured.image.pid, entries, flags, &policy);
        if let Some(reason) = reasons.into_iter().next() {
            return Err(OutwardError::Stay(reason));
        }
        let unwatched = |file: &SharedFile| !crate::seize::is_watched(files, file);
        if shared_read_only_of(entries).iter().any(unwatched) {
            return Err(OutwardError::MappedMeanwhile);
        }
        if files.is_changed() {
            return Err(OutwardError::WrittenMeanwhile);
        }
        Ok(())
    }

    fn send_pages(
        &mut self,
        runs: Vec<(pagemap::Run, bool)>,
        connections: &mut Connections,
    ) -> Result<(u64, u64), OutwardError> {
        let of = runs.iter().map(|(run, _)| run.len()).sum();
        let (mut sent, mut looked, mut told) = (0, 0, 0);
        let mut buffer = vec![0; PAGES_IN_FRAME];
        for (run, elide) in runs {
            let mut at = run.start;
            while at < run.end {
                let length = usize::try_from((run.end - at).min(PAGES_IN_FRAME as u64))
                    .unwrap_or(PAGES_IN_FRAME);
                read_pages(self.pid, at, &mut buffer[..length])?;
                sent += send_nonzero(connections, at, &buffer[..length], elide)?;
                at += length as u64;
                looked += length as u64;
                // Pages that are all zero do not travel, and so say nothing of us.
                connections.beat()?;
            }
            if looked - told >= PROGRESS_STEP {
                told = looked;
                (self.report)(Event::Progress { bytes: looked, of });
            }
        }
        Ok((sent, sent / PAGE_SIZE))
    }
}

/// Has the host build what it needs, which takes longer than a freeze may.
fn prepare(
    connections: &mut Connections,
    (ids, lease): (Ids, Option<Duration>),
    limit: Duration,
) -> Result<ToHome, ConnectionError> {
    let prepare = ToGuest::Prepare {
        pid: ids.pid,
        own_pid: ids.own_pid.number(),
        uid: ids.uid,
        threads: 1,
        resident_bytes: 0,
        clocks: connections.clocks,
        lease_ms: lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
    };
    connections.send(&prepare, PREPARE_WITHIN)?;
    connections.receive(limit)
}

/// Whether a call that the freeze has met, and that has had no effect yet, begins anew in the guest. A call
/// that the deputy must not execute (above all, making a thread or a process) cannot go on in it. The guest
/// makes it instead, with the effect that such a call has away.
fn begins_in_guest(number: u64) -> bool {
    // Trap: a-clone-in-the-moment-of-a-freeze
    !whim_calls::home_may_execute(number)
}

fn read_pages(pid: i32, address: u64, buffer: &mut [u8]) -> Result<(), OutwardError> {
    if process_vm::read_exact(pid, address, buffer).is_ok() {
        return Ok(());
    }
    // The protection does not let it be read (PROT_NONE over written pages).
    process_vm::MemFile::open(pid)
        .and_then(|file| file.read_exact(address, buffer))
        .map_err(|error| OutwardError::Memory {
            address,
            errno: nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
        })
}

/// Sends the pages of `bytes` that are not zero (all of them, if `elide` is false).
fn send_nonzero(
    connections: &mut Connections,
    address: u64,
    bytes: &[u8],
    elide: bool,
) -> Result<u64, OutwardError> {
    let page = 4096;
    let mut sent = 0;
    let mut begin = None;
    let count = bytes.len() / page;
    for index in 0..=count {
        let here = index * page;
        let wanted =
            index < count && (!elide || bytes[here..here + page].iter().any(|byte| *byte != 0));
        match (wanted, begin) {
            (true, None) => begin = Some(here),
            (false, Some(from)) => {
                let head = (address + from as u64).to_le_bytes();
                connections
                    .calls
                    .send_now(
                        Kind::Pages,
                        connections.epoch,
                        &[&head, &bytes[from..here]],
                        STALL_MAX,
                    )
                    .map_err(ConnectionError::from)?;
                sent += (here - from) as u64;
                begin = None;
            }
            _ => {}
        }
    }
    Ok(sent)
}

/// Makes what the deputy needs to go on with a call. The regions are those of the call as the program made
/// it, whatever is left to be done, so that guest and home mean the same buffers.
fn continuation(
    call: InFlight,
    context: &whim_calls::Context,
    memory: &HomeMemory<'_>,
) -> Continuation {
    let original = whim_model::Syscall {
        number: call.original_number,
        args: call.original_args,
    };
    let mut made = Continuation {
        args: call.args,
        call,
        regions: Vec::new(),
        tail: Vec::new(),
        may_block: true,
    };
    let decision = whim_calls::resolve(&original, context, memory);
    let whim_calls::Decision::Forward(forward) = decision else {
        made.regions.extend(rest_of_sleep(&original, memory));
        return made;
    };
    if made.call.number == original.number {
        for (argument, (new, old)) in made
            .args
            .iter_mut()
            .zip(forward.args.iter().zip(&original.args))
        {
            // A signal mask that has to act in the guest, and not in the deputy.
            if new != old {
                *argument = *new;
            }
        }
    }
    for region in &forward.regions {
        let mut wire = WireRegion::from(region);
        if made.call.already > 0 && wire.direction == WireDirection::Out {
            // What has arrived before travels back with what arrives now.
            let mut bytes = vec![0; usize::try_from(region.length).unwrap_or(0)];
            let read = memory.read(region.address, &mut bytes);
            bytes.truncate(read);
            wire.direction = WireDirection::InOut;
            wire.data_length = bytes.len() as u64;
            made.tail.extend_from_slice(&bytes);
        }
        made.regions.push(wire);
        made.tail.extend_from_slice(&region.data);
    }
    made
}

/// A sleep is the guest's own affair, but a sleep that was in flight goes on in the deputy. If it is
/// interrupted there, the kernel writes what is left of it to the program's structure, whose page has to be
/// present (else the sleep would end with EFAULT). If a sleep was stopped before, it may be unknown which
/// call it is; then any of its arguments may point there.
fn rest_of_sleep(call: &whim_model::Syscall, memory: &impl GuestMemory) -> Vec<WireRegion> {
    const TIMESPEC_LENGTH: u64 = 16;
    let is_unknown = call.number == freeze_calls::RESTART_SYSCALL;
    let calls = whim_calls::rows().iter().map(whim_calls::Row::number);
    let calls = calls.filter(|number| is_unknown || *number == call.number);
    let pointers = calls.filter_map(whim_calls::rest_of_time);
    let writable = |address: &u64| memory.writable(*address, TIMESPEC_LENGTH);
    let places = pointers.map(|index| call.args[index]).filter(writable);
    places
        .map(|address| WireRegion {
            address,
            length: TIMESPEC_LENGTH,
            direction: WireDirection::Out,
            returned: WireReturned::Nothing,
            data_length: 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_deputy_must_not_execute_begins_in_the_guest() {
        for number in [
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_execve,
            libc::SYS_futex,
            libc::SYS_mmap,
        ] {
            assert!(begins_in_guest(number.cast_unsigned()), "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_wait4, libc::SYS_epoll_wait] {
            assert!(!begins_in_guest(number.cast_unsigned()), "{number}");
        }
    }
}
