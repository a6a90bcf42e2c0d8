//! A frozen process made of stops that somebody else brought about.

use crate::freeze::{FreezeError, Frozen, FrozenThread, unreadable};
use crate::freeze_observe::Status;
use std::time::Instant;
use whim_sys::process_vm::MemFile;
use whim_sys::ptrace::{Options, Stopped};

impl Frozen {
    /// Whether the process ends with its tracer (true), or survives it, which is what a freeze
    /// begins with: changes that could not undo themselves are made only while it would not.
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
    /// # Errors
    /// The process has ended, or its registers cannot be read.
    pub fn assemble(pid: i32, stops: Vec<Stopped>) -> Result<Self, FreezeError> {
        let status = Status::read(pid, pid).map_err(|error| unreadable(pid, error))?;
        let memory = MemFile::open(pid).map_err(FreezeError::Memory)?;
        let mut threads = Vec::with_capacity(stops.len());
        for stopped in stops {
            threads.push(FrozenThread {
                tid: stopped.tid(),
                original: stopped.registers()?,
                call: None,
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
        })
    }
}
