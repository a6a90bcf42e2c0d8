//! Tracing a process that runs on, for the time in which it is about to be frozen.
//!
//! The kernel checks the right to trace when a thread is seized, and not again. So a tracer that is
//! to give up its rights before it hears of a host seizes first, and freezes later. Meanwhile the
//! process must not notice: each thread that stops for its tracer is let go at once, with the
//! signal that it stopped for. If the tracer ends, the process goes on by itself.

use crate::freeze::{self, FreezeError, FreezeLimits, Frozen};
use crate::freeze_observe::Status as ThreadStatus;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use whim_sys::freezer::Freezers;
use whim_sys::ptrace::{
    Options, Polled, Running, Status, Stop, Stopped, Tid, TraceError, Waited, wait_any_gently,
};

/// All threads of a running process, traced by this OS thread. [`Attended::poll`] must be called
/// whenever SIGCHLD comes. [`Attended::let_go`] lets them go, and so does the end of the tracer's thread.
#[derive(Debug)]
pub struct Attended {
    pid: i32,
    threads: BTreeSet<Tid>,
    /// The threads that job control has stopped.
    stopped: BTreeSet<Tid>,
}

impl Attended {
    /// Seizes all threads of `pid`, and the threads that they make from now on; all of them run on.
    ///
    /// # Errors
    /// [`FreezeError`]; the end of this OS thread lets the seized threads go.
    pub fn seize(pid: i32, threads_max: usize) -> Result<Self, FreezeError> {
        let status =
            ThreadStatus::read(pid, pid).map_err(|error| freeze::unreadable(pid, error))?;
        freeze::check(pid, &status, false, false)?;
        let mut attended = Self {
            pid,
            threads: BTreeSet::new(),
            stopped: BTreeSet::new(),
        };
        loop {
            let found = freeze::thread_ids(pid)?;
            let fresh: Vec<Tid> = found
                .into_iter()
                .filter(|tid| !attended.threads.contains(tid))
                .collect();
            if fresh.is_empty() {
                return attended.with_leader();
            }
            if attended.threads.len() + fresh.len() > threads_max {
                return Err(FreezeError::TooManyThreads {
                    pid,
                    limit: threads_max,
                });
            }
            for tid in fresh {
                attended.seize_one(tid)?;
            }
            attended.poll()?;
        }
    }

    fn with_leader(self) -> Result<Self, FreezeError> {
        match self.threads.contains(&self.pid) {
            true => Ok(self),
            false => Err(FreezeError::Gone(self.pid)),
        }
    }

    fn seize_one(&mut self, tid: Tid) -> Result<(), FreezeError> {
        let options = Options::SYSGOOD | Options::TRACE_CLONE | Options::TRACE_EXEC;
        match Running::seize(tid, options) {
            Ok(_) => {
                self.threads.insert(tid);
            }
            // The thread is ending.
            Err(TraceError::Died) => {
                self.threads.insert(tid);
            }
            Err(TraceError::Os {
                errno: nix::errno::Errno::EPERM,
                ..
            }) => {
                match freeze::refused(self.pid, tid) {
                    // A thread that we trace has made it since they were listed, so the kernel has attached it by itself.
                    Some(FreezeError::Traced { tracer, .. })
                        if tracer == nix::unistd::gettid().as_raw() => {}
                    Some(error) => return Err(error),
                    None => {}
                }
                self.threads.insert(tid);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Answers all stops that the kernel has reported, without waiting for one.
    ///
    /// # Errors
    /// [`FreezeError::Gone`]; [`FreezeError::Replaced`] when the process executes another program,
    /// which may have other rights: the process was let go at once.
    pub fn poll(&mut self) -> Result<(), FreezeError> {
        loop {
            let (tid, status) = match wait_any_gently() {
                Ok(Some(reported)) => reported,
                Ok(None) => return Ok(()),
                Err(TraceError::Died) => return Err(FreezeError::Gone(self.pid)),
                Err(error) => return Err(error.into()),
            };
            let answered = match status {
                Status::Stopped(stop) => self.answer(Running::assume(tid).into_stopped(stop)),
                _ if tid == self.pid => return Err(FreezeError::Gone(self.pid)),
                _ => {
                    self.threads.remove(&tid);
                    self.stopped.remove(&tid);
                    Ok(())
                }
            };
            match answered {
                // Its end is reported next.
                Ok(()) | Err(FreezeError::Trace(TraceError::Died)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, stopped: Stopped) -> Result<(), FreezeError> {
        let tid = stopped.tid();
        match stopped.stop() {
            Stop::Exec => {
                stopped.detach(0)?;
                return Err(FreezeError::Replaced(self.pid));
            }
            Stop::Signal(signal) => {
                stopped.resume(signal)?;
            }
            Stop::Group(_) => {
                self.stopped.insert(tid);
                stopped.listen()?;
            }
            stop => {
                if stop == Stop::Interrupt && !self.is_ours(tid) {
                    // A process that a thread has made by `clone`: it was attached like a thread.
                    stopped.detach(0)?;
                    return Ok(());
                }
                self.stopped.remove(&tid);
                stopped.resume(0)?;
            }
        }
        Ok(())
    }

    fn is_ours(&mut self, tid: Tid) -> bool {
        let known = self.threads.contains(&tid);
        let ours = known || Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists();
        if ours {
            self.threads.insert(tid);
        }
        ours
    }

    /// Whether `tid` is traced by us already.
    pub(crate) fn has(&self, tid: Tid) -> bool {
        self.threads.contains(&tid)
    }

    /// Stops all threads, as [`freeze::freeze_again`] does.
    ///
    /// # Errors
    /// As [`freeze::freeze_again`].
    pub fn freeze(
        mut self,
        limits: &FreezeLimits,
        freezers: Freezers,
    ) -> Result<Frozen, FreezeError> {
        self.poll()?;
        if !self.stopped.is_empty() {
            return Err(FreezeError::JobStopped(self.pid));
        }
        freeze::freeze_attended(self, limits, freezers)
    }

    /// Lets all threads go before this OS thread ends. Each has to stop for a moment, for up to `limit` in all;
    /// those that have not are let go by the end of this OS thread.
    pub fn let_go(self, limit: Duration) {
        let begun = Instant::now();
        let traced = || self.threads.iter().map(|tid| Running::assume(*tid));
        for running in traced() {
            let _ = running.interrupt();
        }
        for running in traced() {
            let left = limit.saturating_sub(begun.elapsed());
            let Ok(Polled::Event(Waited::Stopped(stopped))) = running.wait_gently_for(left) else {
                continue;
            };
            let signal = match stopped.stop() {
                Stop::Signal(signal) => signal,
                _ => 0,
            };
            let _ = stopped.detach(signal);
        }
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }
}
