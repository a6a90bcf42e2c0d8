//! The signals that home's kernel is to keep until the program runs: those that waited at the host, and those
//! that came when the guest was frozen already.
//!
//! Meanwhile all signals are masked, and timers go on: the kernel has queued their signals itself. A standard
//! signal that is queued behind one of those would be dropped, with all that it tells.

mod behind;

use super::error::HomewardError;
use crate::deputy::{Deputy, DeputyError, DeputyEvent};
use crate::held::HeldSignal;
use crate::numbers::OwnTid;
use crate::queues::{Arrived, Waited};
use crate::server::Server;
use whim_model::overruns::{self, timer_of, waits_once};
use whim_model::{ProcessImage, Syscall};
use whim_sys::ptrace::RawSigInfo;

/// How often a timer's signal is tried to be queued: a timer that expires each time has many expirations.
const TRIES: usize = 16;
/// Places in the deck's data: the siginfo that is queued, a set of signals, no time, and the siginfo that is taken.
const SET_AT: usize = 128;
const TIME_AT: usize = SET_AT + 8;
const TAKEN_AT: usize = TIME_AT + 16;

/// A signal that is to wait.
#[derive(Debug)]
struct Due {
    /// The thread that queues it.
    seat: usize,
    /// Its own; none if it is for the process.
    tid: Option<OwnTid>,
    signal: i32,
    info: RawSigInfo,
}

/// Queues all signals again.
///
/// # Errors
/// The deputy is lost.
pub fn requeue(
    server: &mut Server,
    image: &ProcessImage,
    held: &mut Vec<HeldSignal>,
) -> Result<(), HomewardError> {
    while let Some(event) = server.deputy.next_event()? {
        match event {
            DeputyEvent::Signal { seat, signal, info } => {
                held.push(server.held(seat, signal, info));
            }
            DeputyEvent::ProcessGone(_) => return Err(HomewardError::Ended),
            _ => {}
        }
    }
    let pid = OwnTid::of_leader(image);
    let mut due = of_image(&server.deputy, image)?;
    let leader = server.deputy.seat_of(pid).ok_or(HomewardError::Ended)?;
    let mut all: Vec<Arrived> = held
        .drain(..)
        .flat_map(|signal| server.queues.arrived(signal))
        .collect();
    let early = server.queues.take_early().into_iter();
    all.extend(early.map(|held| Arrived {
        held,
        waited: Waited::Process,
    }));
    due.extend(all.into_iter().map(|arrived| {
        let tid = server.addressee(&arrived);
        let target = tid.and_then(|tid| Some((tid, server.deputy.seat_of(tid)?)));
        Due {
            seat: target.map_or(leader, |(_, seat)| seat),
            tid: target.map(|(tid, _)| tid),
            signal: arrived.held.signal,
            info: arrived.held.info,
        }
    }));
    overruns::merge(
        &mut due,
        |due| (due.signal, (due.seat, due.tid.is_some())),
        |due| &mut due.info,
    );
    // The kernel delivers by numbers, the lowest first, so the order of two numbers is of no account.
    let (once, many) = due.into_iter().partition(|due| waits_once(due.signal));
    behind::queue_first(&mut server.deputy, (pid, leader), many)?;
    for due in once {
        if timer_of(&due.info).is_some() {
            queue_timers(&mut server.deputy, pid, due)?;
        } else {
            queue(&mut server.deputy, pid, &due)?;
        }
    }
    Ok(())
}

/// Those that waited at the host.
fn of_image(deputy: &Deputy, image: &ProcessImage) -> Result<Vec<Due>, HomewardError> {
    let mut found = Vec::new();
    for thread in &image.threads {
        let tid = OwnTid::of(thread);
        if let Some(seat) = deputy.seat_of(tid) {
            found.extend(thread.pending.iter().map(|signal| Due {
                seat,
                tid: Some(tid),
                signal: i32::from(signal.signal),
                info: padded(&signal.info),
            }));
        }
    }
    let leader = OwnTid::of_leader(image);
    let seat = deputy.seat_of(leader).ok_or(HomewardError::Ended)?;
    found.extend(image.pending.iter().map(|signal| Due {
        seat,
        tid: None,
        signal: i32::from(signal.signal),
        info: padded(&signal.info),
    }));
    Ok(found)
}

fn padded(info: &[u8]) -> RawSigInfo {
    let mut bytes = [0; 128];
    let length = info.len().min(128);
    bytes[..length].copy_from_slice(&info[..length]);
    bytes
}

/// Lets a thread queue a signal for itself, or the leader one for the process: only these may send any siginfo.
fn queue(deputy: &mut Deputy, pid: OwnTid, due: &Due) -> Result<(), DeputyError> {
    let operation = due.queueing(deputy, pid, 0);
    deputy.run(due.seat, &[operation])?;
    Ok(())
}

impl Due {
    /// The call that queues it; its siginfo is put here in the deck's data.
    fn queueing(&self, deputy: &Deputy, pid: OwnTid, at: usize) -> Syscall {
        deputy.deck().write_data(at, &self.info);
        let data = deputy.address(deputy.deck().data_offset()) + at as u64;
        let (pid, number) = (pid.argument(), i64::from(self.signal).cast_unsigned());
        match self.tid {
            Some(tid) => Syscall::new(
                libc::SYS_rt_tgsigqueueinfo,
                &[pid, tid.argument(), number, data],
            ),
            None => Syscall::new(libc::SYS_rt_sigqueueinfo, &[pid, number, data]),
        }
    }
}

/// Queues a timer's standard signal. What the timer itself has queued is taken out, and added.
fn queue_timers(deputy: &mut Deputy, pid: OwnTid, due: Due) -> Result<(), DeputyError> {
    let mut due = due;
    let (shared, timer) = (due.tid.is_none(), timer_of(&due.info));
    let mut is_tried = false;
    for _ in 0..TRIES {
        let waiting = of_number(deputy.queued_signals(due.seat, shared)?, due.signal);
        if is_tried && waiting.first().is_some_and(|first| is_same(first, &due)) {
            return Ok(());
        }
        if waiting.iter().any(|info| timer_of(info) != timer) {
            // Of somebody else's there is no second one either: neither can be put back behind the other.
            break;
        }
        if !waiting.is_empty() {
            // A thread takes its own signals first.
            let is_next = !shared
                || of_number(deputy.queued_signals(due.seat, false)?, due.signal).is_empty();
            let taken = if is_next { take(deputy, &due)? } else { None };
            let Some(taken) = taken else {
                break;
            };
            let more = overruns::overruns(&taken).saturating_add(1);
            overruns::add(&mut due.info, more);
        }
        queue(deputy, pid, &due)?;
        is_tried = true;
    }
    tracing::debug!(signal = due.signal, "expirations of a timer are lost");
    queue(deputy, pid, &due)
}

fn of_number(mut queued: Vec<RawSigInfo>, signal: i32) -> Vec<RawSigInfo> {
    queued.retain(|info| info[0..4] == signal.to_ne_bytes());
    queued
}

/// Whether this is the signal that we have queued, not the timer's own, which tells no overruns yet and bears
/// the kernel's marks. The number is the kernel's to write.
fn is_same(queued: &RawSigInfo, due: &Due) -> bool {
    // Behind this the kernel keeps nothing of a timer's signal.
    const KEPT: usize = 36;
    queued[8..KEPT] == due.info[8..KEPT]
}

/// Has a thread take a signal out of its queue or out of that of the process; the kernel tells the overruns then.
fn take(deputy: &mut Deputy, due: &Due) -> Result<Option<RawSigInfo>, DeputyError> {
    let set = 1u64 << (due.signal - 1);
    deputy.deck().write_data(SET_AT, &set.to_ne_bytes());
    deputy.deck().write_data(TIME_AT, &[0; 16]);
    let data = deputy.address(deputy.deck().data_offset());
    let place = |at: usize| data + at as u64;
    let operation = Syscall::new(
        libc::SYS_rt_sigtimedwait,
        &[place(SET_AT), place(TAKEN_AT), place(TIME_AT), 8],
    );
    let results = deputy.run(due.seat, &[operation])?;
    if results.first() != Some(&i64::from(due.signal)) {
        return Ok(None);
    }
    let mut taken = [0; 128];
    deputy.deck().read_data(TAKEN_AT, &mut taken);
    Ok(Some(taken))
}
