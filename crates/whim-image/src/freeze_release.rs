//! Letting a frozen process go on where it is, so that no call notices.
//!
//! A call that the stop has cut off or left short is completed by the continuation stub of
//! `whim_sys::stub`: the thread executes the rest of its call there and jumps back behind its own
//! `syscall` instruction with the result that it would have had. No tracer is needed for that, so
//! none can die in the midst of it. The stubs stand in one small mapping that stays in the process
//! and is found again by its first bytes: a thread may be in it for as long as its call takes.
//!
//! Only a socket's own timeout (SO_RCVTIMEO, SO_SNDTIMEO) cannot be shortened for one call: the
//! tracer stays with that thread as its clock, see [`Held`].

use crate::freeze::{FreezeError, Frozen};
use crate::freeze_calls::{self, CallState, EINTR, InterruptedCall, TimeoutPlace};
use crate::freeze_continue::{Continuation, continuation};
use crate::freeze_observe::{Status as ThreadStatus, handler_is_due, monotonic_ns};
use std::time::{Duration, Instant};
use whim_sys::ptrace::{Phase, Polled, Running, Stop, Stopped, Tid, TraceError, Waited};

/// How long a process that is about to end may take for it, a core dump included, and how often it is looked.
const END_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

/// A thread with which its tracer stays until its call ends, because only the tracer knows when
/// the call's time is over. If the tracer ends, the call takes at most one timeout too long.
///
/// The owner asks it again and again for what has happened ([`Held::poll`]).
#[derive(Debug)]
pub struct Held {
    pid: i32,
    running: Running,
    number: u64,
    deadline_ns: u64,
    expired: bool,
    /// The call has been entered again.
    in_call: bool,
}

/// What has become of a held thread.
#[derive(Debug)]
pub enum Progress {
    /// Its call goes on.
    Held(Held),
    /// Its call or the thread itself has ended: the tracer has nothing more to do with it.
    Over,
}

impl Frozen {
    /// Lets the process go on. Threads that are given back are still traced by this OS thread.
    ///
    /// # Errors
    /// [`FreezeError`]; the process goes on all the same, but a call of it may then show the stop.
    pub fn release(self) -> Result<Vec<Held>, FreezeError> {
        self.release_after(None)
    }

    /// As [`release`](Self::release), for a process that a signal ends which waits for one of its threads. No other
    /// thread executes an instruction before that.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_after(mut self, ending: Option<Tid>) -> Result<Vec<Held>, FreezeError> {
        let continuations: Vec<Option<Continuation>> = self
            .threads
            .iter()
            .map(|thread| thread.call().and_then(continuation))
            .collect();
        let area = if continuations.iter().any(Option::is_some) {
            // Without room for the continuations, the calls show what the kernel alone makes of
            // them.
            self.continuation_area().ok()
        } else {
            None
        };
        self.remove_injection()?;
        self.resume_filters()?;
        if let Some(area) = area {
            self.place_continuations(area, &continuations)?;
        }
        let ending = ending.and_then(|tid| self.threads.iter().position(|one| one.tid == tid));
        if let Some(index) = ending {
            self.back_in_its_call(index)?;
            if let Some(stopped) = self.threads[index].stopped.take() {
                stopped.detach(0)?;
            }
            self.await_end();
        }
        let mut held = Vec::new();
        for index in 0..self.threads.len() {
            match self
                .back_in_its_call(index)
                .and_then(|()| self.let_go(index))
            {
                Ok(one) => held.extend(one),
                Err(FreezeError::Trace(TraceError::Died)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(held)
    }

    /// Waits until the threads that are still stopped have been ended, and takes note of it, so that the program's
    /// parent hears of the end although this tracer lives on. Those that live after a second go on as ever.
    fn await_end(&mut self) {
        let begun = Instant::now();
        // The first thread's end is told last, when all others have been taken note of.
        for thread in self.threads.iter_mut().rev() {
            let Some(stopped) = &thread.stopped else {
                continue;
            };
            while !matches!(stopped.registers(), Err(TraceError::Died)) {
                if begun.elapsed() >= END_WITHIN {
                    return;
                }
                std::thread::sleep(PAUSE);
            }
            let running = Running::assume(thread.tid);
            let _ = running.wait_gently_for(END_WITHIN.saturating_sub(begun.elapsed()));
            thread.stopped = None;
        }
    }

    fn let_go(&mut self, index: usize) -> Result<Option<Held>, FreezeError> {
        let pid = self.pid;
        let thread = &mut self.threads[index];
        let Some(stopped) = thread.stopped.take() else {
            return Ok(None);
        };
        let Some((number, deadline_ns)) = thread.call().and_then(socket_wait) else {
            stopped.detach(0)?;
            return Ok(None);
        };
        let running = stopped.resume_to_syscall(0)?;
        Ok(Some(Held {
            pid,
            running,
            number,
            deadline_ns,
            expired: false,
            in_call: false,
        }))
    }
}

/// The number of a call that waits for a socket with a timeout of its own, and its deadline.
fn socket_wait(call: &InterruptedCall) -> Option<(u64, u64)> {
    match call.state {
        CallState::Cut {
            timeout: Some(timeout),
        } if timeout.place == TimeoutPlace::Socket => {
            Some((call.syscall.number, timeout.deadline_ns))
        }
        _ => None,
    }
}

impl Held {
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.running.tid()
    }

    /// The deadline has passed: cuts the call off.
    fn expire(&mut self) -> Result<(), TraceError> {
        self.expired = true;
        if self.in_call {
            self.running.interrupt()
        } else {
            Ok(())
        }
    }

    /// Polls for an event of the thread, without waiting, and checks the clock.
    ///
    /// # Errors
    /// [`FreezeError`]
    pub fn poll(mut self) -> Result<Progress, FreezeError> {
        if !self.expired && monotonic_ns() >= self.deadline_ns {
            match self.expire() {
                // If the thread has ended, the poll below says so.
                Ok(()) | Err(TraceError::Died) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let tid = self.running.tid();
        match self.running.poll_gently() {
            Ok(Polled::Still(running)) => Ok(Progress::Held(Self { running, ..self })),
            Ok(Polled::Event(Waited::Stopped(stopped))) => {
                let stop = stopped.stop();
                let again = Self {
                    running: Running::assume(tid),
                    ..self
                };
                again.handle(stop)
            }
            Ok(Polled::Event(_)) | Err(TraceError::Died) => Ok(Progress::Over),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers a stop of the thread.
    fn handle(self, stop: Stop) -> Result<Progress, FreezeError> {
        let Self {
            pid,
            running,
            number,
            deadline_ns,
            expired,
            in_call,
        } = self;
        let stopped = running.into_stopped(stop);
        let keep = |running, in_call| {
            Progress::Held(Held {
                pid,
                running,
                number,
                deadline_ns,
                expired,
                in_call,
            })
        };
        Ok(match stop {
            Stop::SyscallStop => match stopped.phase()? {
                Phase::Exit => {
                    finish(pid, number, expired, stopped)?;
                    Progress::Over
                }
                _ => {
                    if expired {
                        stopped.interrupt()?;
                    }
                    keep(stopped.resume_to_syscall(0)?, true)
                }
            },
            Stop::Signal(signal) if is_caught(pid, signal) => {
                stopped.detach(signal)?;
                Progress::Over
            }
            Stop::Signal(signal) => keep(stopped.resume_to_syscall(signal)?, in_call),
            Stop::Group(_) => keep(stopped.listen()?, in_call),
            _ => keep(stopped.resume_to_syscall(0)?, in_call),
        })
    }

    /// Gives the thread back to a freeze: it is running, traced, and its deadline stands.
    pub(crate) fn into_running(self) -> (Running, u64) {
        (self.running, self.deadline_ns)
    }
}

fn is_caught(pid: i32, signal: i32) -> bool {
    ThreadStatus::read(pid, pid)
        .is_ok_and(|status| signal > 0 && status.caught >> (signal - 1) & 1 == 1)
}

/// The call has ended: its result stands, unless it was cut off because its time was over.
fn finish(pid: i32, number: u64, expired: bool, stopped: Stopped) -> Result<(), FreezeError> {
    let mut registers = stopped.registers()?;
    let result = registers.rax.cast_signed();
    if freeze_calls::restarts(registers.rax) {
        // The kernel replaces such a number only in get_signal.
        stopped.interrupt()?;
        let running = stopped.resume(0)?;
        return Ok(crate::inject::wait_for_interrupt(running)?.detach(0)?);
    }
    if expired && result == EINTR && !handler_is_due(pid, stopped.tid()) {
        registers.rax = whim_calls::result_when_over(number).cast_unsigned();
        stopped.set_registers(&registers)?;
    }
    Ok(stopped.detach(0)?)
}
