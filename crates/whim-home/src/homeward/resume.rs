//! How each thread goes on once its process is home again.

use super::error::HomewardError;
use crate::convert::Original;
use crate::deputy::DeputyError;
use crate::holding::Holding;
use crate::locks;
use crate::numbers::OwnTid;
use crate::room;
use crate::server::{Finished, Server};
use std::collections::HashMap;
use whim_image::freeze::Frozen;
use whim_image::freeze_assemble::Wait;
use whim_image::freeze_calls::{
    ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTSYS, RESTART_SYSCALL,
};
use whim_image::freeze_entries::ends_by_default;
use whim_model::{Activity, ProcessImage, Registers, Syscall, ThreadImage};
use whim_sys::crash;
use whim_sys::foreign::Limit;
use whim_sys::process_vm;
use whim_sys::ptrace::Tid;

/// How a thread goes on at home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumption {
    pub registers: Registers,
    /// Outputs of a call that ended meanwhile.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// For a call with a relative timeout, which is made again for the rest of it: when its time is
    /// over, by CLOCK_MONOTONIC.
    pub deadline_ns: Option<u64>,
}

/// Works out how a thread goes on at home.
#[must_use]
pub fn resumption(thread: &ThreadImage, finished: Option<Finished>) -> Resumption {
    const SYSCALL_LENGTH: u64 = 2;
    let mut found = Resumption {
        registers: thread.registers,
        ..Resumption::default()
    };
    found.registers.orig_rax = u64::MAX;
    if thread.activity == Activity::Computing {
        found.deadline_ns = thread.deadline_ns;
        return found;
    }
    let Some(finished) = finished else {
        // Home never got the call: it is made here, for the first time.
        found.registers.rax = thread.registers.orig_rax;
        return found;
    };
    match finished.result {
        ERESTART_RESTARTBLOCK => found.registers.rax = RESTART_SYSCALL,
        ERESTARTNOHAND..=ERESTARTSYS => {
            found.registers.rax = finished.number;
            found.deadline_ns = finished.deadline_ns;
        }
        result => {
            found.registers.rax = result.cast_unsigned();
            // Wrapping, because a host may say that the thread stands at the end of all addresses.
            found.registers.rip = found.registers.rip.wrapping_add(SYSCALL_LENGTH);
            if finished.disturbed {
                // By this number `Frozen::assemble` sees whether something is left to be done.
                found.registers.orig_rax = finished.number;
            }
        }
    }
    let mut offset = 0;
    for (region, length) in finished.regions.iter().zip(&finished.outputs) {
        let end = (offset + *length as usize).min(finished.tail.len());
        found
            .writes
            .push((region.address, finished.tail[offset..end].to_vec()));
        offset = end;
    }
    found
}

impl Resumption {
    fn wait(&self, tid: Tid) -> Option<Wait> {
        Some(Wait {
            tid,
            call: Syscall {
                number: self.registers.rax,
                args: self.registers.arguments(),
            },
            deadline_ns: self.deadline_ns?,
        })
    }
}

/// The thread for which a signal waits that ends the process.
fn ended_by_signal(image: &ProcessImage) -> Option<OwnTid> {
    let ends = |thread: &&ThreadImage| {
        let mut waiting = thread.pending.iter().map(|signal| i32::from(signal.signal));
        waiting.any(|signal| {
            let index = usize::try_from(signal - 1).unwrap_or(usize::MAX);
            let is_default = image.actions.get(index).is_some_and(|one| one.handler == 0);
            let is_blocked = thread.signal_mask >> index & 1 == 1;
            is_default && !is_blocked && ends_by_default(signal)
        })
    };
    image.threads.iter().find(ends).map(OwnTid::of)
}

/// The last step: sets registers and masks, unmaps the reserved range, and gives the process the limits on its
/// memory, which would be too narrow while all that is there.
///
/// # Errors
/// A thread died; the kernel refused a register set.
pub fn resume_at_home(
    server: Server,
    image: &ProcessImage,
    original: &Original,
    limits: &[Limit],
) -> Result<Holding, HomewardError> {
    let pid = server.deputy.pid();
    let mut resumptions = HashMap::new();
    for thread in &image.threads {
        let Some(seat) = server.deputy.seat_of(OwnTid::of(thread)) else {
            continue;
        };
        let found = resumption(thread, server.result_of(seat, thread.awaited));
        for (address, bytes) in &found.writes {
            // This fails if the guest has unmapped the buffer meanwhile: the kernel would answer
            // EFAULT as well.
            let _ = process_vm::write(pid, *address, bytes);
        }
        resumptions.insert(OwnTid::of(thread), (thread, found));
    }
    crash::point("home-leave");
    let (_deck, threads) = server.deputy.leave()?;
    let (mut stops, mut waits) = (Vec::new(), Vec::new());
    let ending = ended_by_signal(image);
    let ending = threads.iter().find(|(own, _)| Some(*own) == ending);
    let ending = ending.map(|(_, stopped)| stopped.tid());
    for (own, stopped) in threads {
        let Some((thread, found)) = resumptions.get(&own) else {
            stops.push(stopped);
            continue;
        };
        waits.extend(found.wait(stopped.tid()));
        stopped
            .set_xstate(&thread.xstate)
            .map_err(DeputyError::Trace)?;
        let mut registers = whim_image::rebuild::raw_registers(&found.registers);
        registers.orig_rax = found.registers.orig_rax;
        stopped
            .set_registers(&registers)
            .map_err(DeputyError::Trace)?;
        stopped
            .set_signal_mask(thread.signal_mask)
            .map_err(DeputyError::Trace)?;
        stops.push(stopped);
    }
    let mut frozen = Frozen::assemble(pid, stops, &waits)?;
    let reserved = original.reserved;
    let unmap = Syscall::new(libc::SYS_munmap, &[reserved.start, reserved.len()]);
    let calls: Vec<Syscall> = std::iter::once(unmap)
        .chain(locks::future(original))
        .collect();
    frozen.run(pid, &calls)?;
    room::limit(pid, limits);
    // Only now is nothing of the deputy left in the process.
    frozen.set_exit_kill(false)?;
    Ok(Holding::new(frozen.release_after(ending)?))
}
