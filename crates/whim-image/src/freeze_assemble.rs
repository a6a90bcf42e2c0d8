//! A frozen process made of threads that other code has stopped.

use crate::freeze::{FreezeError, Frozen, FrozenThread, unreadable};
use crate::freeze_calls::{self, CallState, InterruptedCall, Timeout};
use crate::freeze_groups::Groups;
use crate::freeze_observe::Status;
use crate::freeze_vdso::Vdso;
use std::collections::HashMap;
use std::time::Instant;
use whim_model::Syscall;
use whim_sys::freezer::Freezers;
use whim_sys::process_vm::MemFile;
use whim_sys::ptrace::{Options, Stopped, Tid};

/// A call with a relative timeout that was cut off, and is to be made again for the rest of its
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub tid: Tid,
    pub call: Syscall,
    /// When its time is over, by CLOCK_MONOTONIC.
    pub deadline_ns: u64,
}

impl Wait {
    fn interrupted(&self, pid: i32) -> Option<InterruptedCall> {
        let Syscall { number, args } = self.call;
        let (place, _) = freeze_calls::relative_timeout(pid, number, &args)?;
        let deadline_ns = self.deadline_ns;
        Some(InterruptedCall {
            syscall: self.call,
            state: CallState::Cut {
                timeout: Some(Timeout { place, deadline_ns }),
            },
        })
    }
}

impl Frozen {
    /// Sets whether the process ends with its tracer (`true`) or survives it (`false`, with which a
    /// freeze begins). Changes that could not undo themselves are made only while the process would
    /// end with its tracer.
    ///
    /// # Errors
    /// The process has ended.
    pub fn set_exit_kill(&self, on: bool) -> Result<(), FreezeError> {
        let options = if on {
            Options::SYSGOOD | Options::EXITKILL
        } else {
            Options::SYSGOOD
        };
        let stops = self.threads.iter().filter_map(|one| one.stopped.as_ref());
        for stopped in stops {
            stopped.set_options(options)?;
        }
        Ok(())
    }

    /// Takes over threads that are stopped already (in EVENT_STOP), with the registers and masks
    /// with which they are to go on. The leader may come at any place.
    ///
    /// `waits` belong to threads that are about to make a call again (their registers stand before
    /// the call). When they are released, they wait no longer than the time that is left. A thread
    /// whose registers stand behind a transfer that ended before its buffer did makes the rest of
    /// the transfer.
    ///
    /// # Errors
    /// The process has ended, or its registers cannot be read.
    pub fn assemble(pid: i32, stops: Vec<Stopped>, waits: &[Wait]) -> Result<Self, FreezeError> {
        let status = Status::read(pid, pid).map_err(|error| unreadable(pid, error))?;
        let memory = MemFile::open(pid).map_err(FreezeError::Memory)?;
        let waits: HashMap<Tid, &Wait> = waits.iter().map(|wait| (wait.tid, wait)).collect();
        let mut threads = Vec::with_capacity(stops.len());
        for stopped in stops {
            let tid = stopped.tid();
            let mut original = stopped.registers()?;
            let call = match waits.get(&tid) {
                Some(wait) => wait.interrupted(pid),
                None => freeze_calls::left_short((pid, tid), &mut original),
            };
            if call.is_some() {
                stopped.set_registers(&original)?;
            }
            threads.push(FrozenThread {
                tid,
                original,
                call,
                mask: Some(stopped.signal_mask()?),
                inside: None,
                stopped: Some(stopped),
            });
        }
        threads.sort_by_key(|thread| thread.tid != pid);
        Ok(Self {
            pid,
            threads,
            status,
            memory,
            injection: None,
            no_restart: 0,
            escaped: false,
            entries: None,
            began: Instant::now(),
            attended: None,
            // There is no way back.
            groups: Groups::new(pid, Freezers::of(pid), true),
            filters: Vec::new(),
            suspended: false,
            vdso: Vdso::new(pid),
        })
    }
}
