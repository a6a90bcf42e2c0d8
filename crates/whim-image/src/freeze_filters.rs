//! The seccomp filters of a frozen process: read, judged, and suspended for as long as nothing of the program
//! runs.

use crate::freeze::{self, FreezeError, Frozen};
use crate::stay_filters::FilterReason;
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
        let taken = self.judge_filters()?;
        match taken {
            Ok(filters) => {
                self.filters = filters;
                self.suspend()?;
                Ok(Ok(()))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn judge_filters(&mut self) -> Result<Result<Vec<Vec<u64>>, FilterReason>, FreezeError> {
        let mut first: Option<Vec<Vec<u64>>> = None;
        let mut differ = false;
        for thread in &mut self.threads {
            let own = match read(thread.stopped()?) {
                Ok(own) => own,
                Err(TraceError::Died) => return Err(TraceError::Died.into()),
                Err(error) => return Ok(Err(FilterReason::Unreadable(error))),
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
