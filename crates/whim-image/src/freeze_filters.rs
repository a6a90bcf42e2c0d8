//! The seccomp filters of a frozen process: read, judged, and suspended for as long as nothing of the program
//! runs.

use crate::freeze::{self, FreezeError, Frozen, FrozenThread};
use crate::freeze_observe::Status;
use crate::stay_filters::{self, FilterReason};
use whim_calls::judge::{self, Filters};
use whim_calls::needed;
use whim_sys::ptrace::{Options, Stopped, TraceError};

/// Whether any thread of a process has a seccomp filter.
#[must_use]
pub fn are_filtered(pid: i32) -> bool {
    freeze::thread_ids(pid)
        .unwrap_or_default()
        .into_iter()
        .any(|tid| freeze::is_filtered(pid, tid))
}

impl Frozen {
    /// Reads the filters of all threads, which takes CAP_SYS_ADMIN, and judges them. Those that can travel are
    /// carried in the image, and suspended until [`Self::set_exit_kill`] or [`Self::release`].
    ///
    /// # Errors
    /// It ended. Within: why it has to stay.
    pub fn take_filters(&mut self) -> Result<Result<(), FilterReason>, FreezeError> {
        // Before anything else: to release a program that stays, too, calls may have to be made in it.
        if let Err(error) = self.suspend() {
            let _ = self.begin_calls_anew();
            return Err(error);
        }
        let taken = self.judge_filters()?;
        Ok(taken.map(|filters| self.filters = filters))
    }

    fn judge_filters(&mut self) -> Result<Result<Vec<Vec<u64>>, FilterReason>, FreezeError> {
        let mut first: Option<Vec<Vec<u64>>> = None;
        let mut differ = false;
        for thread in &mut self.threads {
            let mode = Status::read(self.pid, thread.tid).map_or(0, |status| status.seccomp);
            let own = match read(thread.stopped()?) {
                Err(TraceError::Died) => return Err(TraceError::Died.into()),
                _ if mode == stay_filters::STRICT => Err(FilterReason::Strict),
                Ok(own) if own.is_empty() && mode != 0 => Err(FilterReason::Hidden),
                read => read.map_err(FilterReason::Unreadable),
            };
            let own = match own {
                Ok(own) => own,
                Err(reason) => {
                    self.begin_calls_anew()?;
                    return Ok(Err(reason));
                }
            };
            if !judge::allow_restart(&own) {
                // The kernel's own restart_syscall would end the program.
                thread.restart_by_number()?;
            }
            match &first {
                Some(first) => differ |= *first != own,
                None => first = Some(own),
            }
        }
        if differ {
            return Ok(Err(FilterReason::Differ));
        }
        let raw = first.unwrap_or_default();
        let filters = match Filters::of(&raw) {
            Ok(filters) => filters,
            Err(unfit) => return Ok(Err(FilterReason::Unfit(unfit))),
        };
        Ok(match needed::refused(&filters) {
            Some(call) => Err(FilterReason::Refuses(call)),
            None => Ok(raw),
        })
    }

    /// Has no thread go on by restart_syscall, which filters that are not known may refuse, or end it for.
    pub(crate) fn begin_calls_anew(&mut self) -> Result<(), TraceError> {
        let mut threads = self.threads.iter_mut();
        threads.try_for_each(FrozenThread::restart_by_number)
    }

    fn suspend(&mut self) -> Result<(), FreezeError> {
        self.suspended = true;
        for thread in &self.threads {
            thread
                .stopped()?
                .set_options(Options::SYSGOOD | Options::SUSPEND_SECCOMP)?;
        }
        Ok(())
    }

    /// Lets the filters judge again.
    pub(crate) fn resume_filters(&mut self) -> Result<(), FreezeError> {
        if !std::mem::take(&mut self.suspended) {
            return Ok(());
        }
        for thread in &self.threads {
            match thread
                .stopped()
                .and_then(|stopped| stopped.set_options(Options::SYSGOOD))
            {
                // The others are to be let go all the same.
                Ok(()) | Err(TraceError::Died) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the process has filters that judge nothing now.
    #[must_use]
    pub fn has_suspended_filters(&self) -> bool {
        self.suspended
    }
}

/// All filters of one thread, the oldest first. No more are read than may travel.
fn read(thread: &Stopped) -> Result<Vec<Vec<u64>>, TraceError> {
    let mut found = Vec::new();
    while found.len() <= judge::FILTERS_MAX {
        match thread.seccomp_filter(found.len()) {
            Ok(Some(filter)) => found.push(filter),
            // A thread without filters says so by EINVAL.
            Err(TraceError::Os {
                errno: nix::errno::Errno::EINVAL,
                ..
            }) if found.is_empty() => break,
            Ok(None) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
