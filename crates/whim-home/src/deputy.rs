//! The deputy's threads: who executes what, and what the kernel reports of them.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_sys::crash;
use whim_sys::ptrace::{self, RawSigInfo, Running, Status, Stop, Stopped, Tid};
use whim_sys::resident::{self, Deck, OPERATIONS_MAX, Operation};

/// How long a batch of ours (never a guest's call) may take before we believe that it is lost.
const BATCH_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum DeputyError {
    #[error("Tracing the deputy failed: {0}")]
    Trace(#[from] ptrace::TraceError),
    #[error("The deputy ended while it was being prepared")]
    Ended,
    #[error("The deputy did not finish {0} operations within a minute")]
    Stuck(usize),
    #[error("The deputy's {what} failed: {errno}")]
    Refused {
        what: &'static str,
        errno: nix::errno::Errno,
    },
}

/// What happened to a deputy thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeputyEvent {
    /// The batch of this slot is (probably) done.
    Finished(usize),
    /// A signal was sent to the process or to this thread; it was not delivered here.
    Signal {
        slot: usize,
        signal: i32,
        info: RawSigInfo,
    },
    /// The process was stopped by job control; all threads are held.
    GroupStop(i32),
    /// The process continues after a group stop.
    GroupContinue,
    /// One thread is gone.
    ThreadGone(usize),
    /// The whole process is gone.
    ProcessGone(Status),
}

#[derive(Debug)]
enum Trace {
    Running(Running),
    /// Group stop, under PTRACE_LISTEN.
    Listening(Running),
    Gone,
}

#[derive(Debug)]
struct Thread {
    tid: Tid,
    trace: Trace,
    /// Interrupt the call that it executes; stays until the call has ended.
    cancel: bool,
}

/// All threads of the deputy, in their resident loops.
#[derive(Debug)]
pub struct Deputy {
    pid: i32,
    deck: Deck,
    /// Address of the deck's code in the deputy.
    code: u64,
    threads: Vec<Thread>,
    slots: HashMap<Tid, usize>,
    events: VecDeque<DeputyEvent>,
    /// Stop signals that we sent ourselves and that are to be delivered.
    deliver: Vec<i32>,
    group_stopped: bool,
}

impl Deputy {
    /// Lets the stopped threads of `pid` enter the loop whose code and slots stand at `code` and
    /// behind it in the deputy's memory. From here on the deputy dies with its supervisor.
    ///
    /// # Errors
    /// A thread died or refused a request.
    pub fn enter(
        pid: i32,
        deck: Deck,
        code: u64,
        stops: Vec<Stopped>,
    ) -> Result<Self, DeputyError> {
        let options = ptrace::Options::SYSGOOD | ptrace::Options::EXITKILL;
        let mut threads = Vec::with_capacity(stops.len());
        let mut slots = HashMap::new();
        for (slot, stopped) in stops.into_iter().enumerate() {
            let tid = stopped.tid();
            let mut registers = stopped.registers()?;
            registers.rip = code;
            registers.r15 = code + deck.slot_offset(slot);
            registers.orig_rax = u64::MAX;
            registers.rax = 0;
            registers.eflags = 0x202;
            crash::point("deputy-options");
            stopped.set_options(options)?;
            stopped.set_registers(&registers)?;
            stopped.set_signal_mask(0)?;
            crash::point("deputy-enter");
            let running = stopped.resume(0)?;
            slots.insert(tid, slot);
            threads.push(Thread {
                tid,
                trace: Trace::Running(running),
                cancel: false,
            });
        }
        Ok(Self {
            pid,
            deck,
            code,
            threads,
            slots,
            events: VecDeque::new(),
            deliver: Vec::new(),
            group_stopped: false,
        })
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    #[must_use]
    pub fn deck(&self) -> &Deck {
        &self.deck
    }

    /// Address in the deputy of an offset in the deck.
    #[must_use]
    pub fn address(&self, deck_offset: u64) -> u64 {
        self.code + deck_offset
    }

    #[must_use]
    pub fn slot_of(&self, tid: Tid) -> Option<usize> {
        self.slots.get(&tid).copied()
    }

    #[must_use]
    pub fn tid_of(&self, slot: usize) -> Tid {
        self.threads[slot].tid
    }

    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    #[must_use]
    pub fn is_gone(&self, slot: usize) -> bool {
        matches!(self.threads[slot].trace, Trace::Gone)
    }

    /// Starts a batch whose end is announced by [`DeputyEvent::Finished`]. For calls that do not
    /// block, `patience` yields the processor to the deputy that many times first; true if the
    /// batch is done on return (then no event is to be waited for, though one may come).
    pub fn start(&mut self, slot: usize, operations: &[Operation], patience: u32) -> bool {
        self.threads[slot].cancel = false;
        self.deck.submit(slot, operations, patience == 0);
        for _ in 0..patience {
            if self.deck.is_done(slot) {
                return true;
            }
            std::thread::yield_now();
        }
        patience > 0 && self.deck.ask_for_notice(slot)
    }

    /// Runs operations to their end, in as many batches as it takes.
    ///
    /// # Errors
    /// The deputy died, or did not answer for a minute.
    pub fn run(&mut self, slot: usize, operations: &[Operation]) -> Result<Vec<i64>, DeputyError> {
        let mut results = Vec::with_capacity(operations.len());
        for batch in operations.chunks(OPERATIONS_MAX) {
            self.deck.submit(slot, batch, false);
            self.wait_done(slot, batch.len())?;
            results.extend((0..batch.len()).map(|index| self.deck.result(slot, index)));
        }
        Ok(results)
    }

    /// One batch on each of several threads, at the same time.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_each(
        &mut self,
        work: &[(usize, Vec<Operation>)],
    ) -> Result<Vec<Vec<i64>>, DeputyError> {
        for (slot, batch) in work {
            self.deck.submit(*slot, batch, false);
        }
        let mut results = Vec::with_capacity(work.len());
        for (slot, batch) in work {
            self.wait_done(*slot, batch.len())?;
            results.push(
                (0..batch.len())
                    .map(|index| self.deck.result(*slot, index))
                    .collect(),
            );
        }
        Ok(results)
    }

    fn wait_done(&mut self, slot: usize, count: usize) -> Result<(), DeputyError> {
        let begun = Instant::now();
        let mut rounds = 0u32;
        while !self.deck.is_done(slot) {
            rounds += 1;
            if rounds.is_multiple_of(8) {
                self.drain()?;
                if matches!(self.threads[slot].trace, Trace::Gone) {
                    return Err(DeputyError::Ended);
                }
                if begun.elapsed() > BATCH_DEADLINE {
                    return Err(DeputyError::Stuck(count));
                }
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Interrupts the call that this thread executes, so that it ends with a result, or with
    /// -512..-516 when it had no effect.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn cancel(&mut self, slot: usize) -> Result<(), DeputyError> {
        self.threads[slot].cancel = true;
        if let Trace::Running(running) = &self.threads[slot].trace {
            crash::point("deputy-interrupt");
            match running.interrupt() {
                Ok(()) | Err(ptrace::TraceError::Died) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends a signal to the process itself that is to take its default effect at home.
    ///
    /// # Errors
    /// errno of kill.
    pub fn raise(&mut self, signal: i32) -> Result<(), DeputyError> {
        self.deliver.push(signal);
        let number =
            nix::sys::signal::Signal::try_from(signal).map_err(|errno| DeputyError::Refused {
                what: "signal",
                errno,
            })?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), number).map_err(|errno| {
            DeputyError::Refused {
                what: "kill",
                errno,
            }
        })
    }

    /// Next event, if the kernel has reported one.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn next_event(&mut self) -> Result<Option<DeputyEvent>, DeputyError> {
        if self.events.is_empty() {
            self.drain()?;
        }
        Ok(self.events.pop_front())
    }

    /// Answers what the kernel reports of the threads; the events are kept for
    /// [`next_event`](Self::next_event).
    ///
    /// # Errors
    /// Tracing failed.
    pub fn attend(&mut self) -> Result<(), DeputyError> {
        self.drain()
    }

    fn drain(&mut self) -> Result<(), DeputyError> {
        loop {
            let (tid, status) = match ptrace::wait_any_nonblocking() {
                Ok(Some(reported)) => reported,
                // No thread is left: their ends have been reported.
                Ok(None) | Err(ptrace::TraceError::Died) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(&slot) = self.slots.get(&tid) else {
                continue;
            };
            match status {
                Status::Stopped(stop) => self.stopped(slot, stop)?,
                ended => self.ended(slot, ended),
            }
        }
    }

    fn ended(&mut self, slot: usize, status: Status) {
        self.threads[slot].trace = Trace::Gone;
        self.events.push_back(DeputyEvent::ThreadGone(slot));
        if self.threads[slot].tid == self.pid {
            self.events.push_back(DeputyEvent::ProcessGone(status));
        }
    }

    fn stopped(&mut self, slot: usize, stop: Stop) -> Result<(), DeputyError> {
        let trace = std::mem::replace(&mut self.threads[slot].trace, Trace::Gone);
        let (Trace::Running(running) | Trace::Listening(running)) = trace else {
            return Ok(());
        };
        let stopped = running.into_stopped(stop);
        match self.answer(slot, stopped) {
            Ok(trace) => self.threads[slot].trace = trace,
            Err(DeputyError::Trace(ptrace::TraceError::Died)) => {
                // It was killed in this stop; its end is reported next.
                self.threads[slot].trace = Trace::Running(Running::assume(self.threads[slot].tid));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn answer(&mut self, slot: usize, stopped: Stopped) -> Result<Trace, DeputyError> {
        crash::point("deputy-stop");
        let trace = match stopped.stop() {
            Stop::Signal(signal) => self.signal(slot, signal, stopped)?,
            Stop::Group(signal) => {
                if !self.group_stopped {
                    self.group_stopped = true;
                    self.events.push_back(DeputyEvent::GroupStop(signal));
                }
                Trace::Listening(stopped.listen()?)
            }
            Stop::Interrupt => {
                if self.group_stopped {
                    self.group_stopped = false;
                    self.events.push_back(DeputyEvent::GroupContinue);
                }
                Trace::Running(self.interrupted(slot, stopped)?)
            }
            _ => Trace::Running(stopped.resume(0)?),
        };
        // Any other stop consumes a pending interrupt (freeze.md A2): ask again.
        if self.threads[slot].cancel
            && !self.deck.is_done(slot)
            && let Trace::Running(running) = &trace
        {
            running.interrupt()?;
        }
        Ok(trace)
    }

    fn signal(&mut self, slot: usize, signal: i32, stopped: Stopped) -> Result<Trace, DeputyError> {
        if signal == libc::SIGTRAP {
            let registers = stopped.registers()?;
            if registers.rip == self.code + resident::after_trap_offset() {
                self.events.push_back(DeputyEvent::Finished(slot));
                return Ok(Trace::Running(stopped.resume(0)?));
            }
        }
        if let Some(at) = self.deliver.iter().position(|expected| *expected == signal) {
            self.deliver.swap_remove(at);
            return Ok(Trace::Running(stopped.resume(signal)?));
        }
        if signal == libc::SIGSTOP {
            return Ok(Trace::Running(stopped.resume(signal)?));
        }
        let info = stopped.signal_info()?;
        self.events
            .push_back(DeputyEvent::Signal { slot, signal, info });
        Ok(Trace::Running(stopped.resume(0)?))
    }

    /// At an interrupt: a call that had no effect yet is ended with -512..-516; a result stays.
    fn interrupted(&mut self, slot: usize, stopped: Stopped) -> Result<Running, DeputyError> {
        if self.threads[slot].cancel && !self.deck.is_done(slot) {
            let mut registers = stopped.registers()?;
            let in_call = registers.rip == self.code + resident::after_call_offset()
                && registers.orig_rax.cast_signed() >= 0;
            if in_call && (-516..=-512).contains(&registers.rax.cast_signed()) {
                registers.orig_rax = u64::MAX;
                stopped.set_registers(&registers)?;
                self.threads[slot].cancel = false;
            }
        }
        Ok(stopped.resume(0)?)
    }

    /// Stops all threads where they wait for work, for the way home. Signals must be masked in
    /// every thread before (an operation of the caller's).
    ///
    /// # Errors
    /// A thread died.
    pub fn leave(mut self) -> Result<(Deck, Vec<Stopped>), DeputyError> {
        let mut stops = Vec::new();
        for thread in self.threads.drain(..) {
            let Trace::Running(running) = thread.trace else {
                continue;
            };
            stops.push(stop_idle(running)?);
        }
        Ok((self.deck, stops))
    }
}

fn stop_idle(running: Running) -> Result<Stopped, DeputyError> {
    let mut running = running;
    running.interrupt()?;
    loop {
        match running.wait()? {
            ptrace::Waited::Stopped(stopped) if stopped.stop() == Stop::Interrupt => {
                return Ok(stopped);
            }
            ptrace::Waited::Stopped(stopped) => {
                running = stopped.resume(0)?;
                running.interrupt()?;
            }
            _ => return Err(DeputyError::Ended),
        }
    }
}
