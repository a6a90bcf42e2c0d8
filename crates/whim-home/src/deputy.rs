//! The deputy's threads: which of them executes what, and what the kernel reports of them.

mod births;
mod first;
mod pending;
mod reports;
pub(crate) mod waiting;

use crate::company::Company;
use crate::numbers::OwnTid;
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use thiserror::Error;
use waiting::Waiting;
use whim_image::freeze_calls::{ERESTART_RESTARTBLOCK, ERESTARTSYS};
use whim_model::Syscall;
use whim_net::ChannelError;
use whim_sys::crash;
use whim_sys::freezer::Freezers;
use whim_sys::pidfd;
use whim_sys::ptrace::{self, RawSigInfo, Running, Status, Stop, Stopped, Tid};
use whim_sys::pulse;
use whim_sys::resident::{self, Deck, OPERATIONS_MAX};

/// How long a batch of ours (never a guest's call) may take before we believe that it is lost.
const BATCH_DEADLINE: Duration = Duration::from_secs(60);
/// How often we yield the processor to a batch before we sleep.
const YIELDS_MAX: u32 = 400;
const NAP: Duration = Duration::from_micros(200);
/// The result of a call that the terminal refuses to a process in the background.
const REFUSED: i64 = ERESTARTSYS;
/// Announces a stop that was asked for. Of several pending signals the kernel delivers this one
/// last.
const TICKET_SIGNAL: i32 = 64;
/// Distinguishes our signal from the program's own signals of this number.
const TICKET_MARK: u32 = 0x5748_5354;
const SI_QUEUE: i32 = -1;
/// Threads that may be added while the process is away, besides places of threads that have ended.
pub const SPARE_THREADS: usize = 256;

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
    #[error("While the deputy's control group was frozen, its host was lost: {0}")]
    Company(#[from] ChannelError),
}

/// What happened to a deputy thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeputyEvent {
    /// The batch of this seat is (probably) done.
    Finished(usize),
    /// A signal was sent to the process or to this thread; it was not delivered here.
    Signal {
        seat: usize,
        signal: i32,
        info: RawSigInfo,
    },
    /// The process was stopped by job control; all threads are held.
    GroupStop(i32),
    /// The process continues after a group stop, or a stop that was asked for did not come about.
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

/// Whether the call that a thread executes is to be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    No,
    /// The guest needs the thread; this stays set until the call has ended.
    Asked,
    /// The terminal refuses the call again and again, because the process is in the background.
    Background,
}

#[derive(Debug)]
struct Thread {
    tid: Tid,
    own: OwnTid,
    trace: Trace,
    cut: Cut,
    /// It works for us although job control has stopped the process.
    urgent: bool,
    /// It has been given a stop signal; its next stop tells what became of that signal.
    raised: bool,
    /// Signals that it blocks, as a set: they wait here for a descriptor that reads them (signalfd).
    kept: u64,
}

impl Thread {
    fn new((tid, own): (Tid, OwnTid), trace: Trace, kept: u64) -> Self {
        Self {
            tid,
            own,
            trace,
            kept,
            cut: Cut::No,
            urgent: false,
            raised: false,
        }
    }
}

/// All threads of the deputy, in their resident loops.
#[derive(Debug)]
pub struct Deputy {
    pid: i32,
    own_pid: OwnTid,
    deck: Deck,
    /// Address of the deck's code in the deputy.
    code: u64,
    threads: Vec<Thread>,
    seats: HashMap<Tid, usize>,
    seats_by_own: HashMap<OwnTid, usize>,
    events: VecDeque<DeputyEvent>,
    /// Threads that have done their work, until it is known which signals come first.
    finished: Vec<usize>,
    /// Whether one of them has left a signal in the queue of the process.
    has_sent: bool,
    group_stopped: bool,
    /// How many SIGCONT were delivered since the guest began to count them.
    continues: u32,
    raise: Option<Raise>,
    /// First stops of threads that are being added.
    born: HashMap<Tid, Stop>,
    /// The thread that has been made last.
    cloned: Option<Tid>,
    /// The seat, not the first one, whose thread was given a signal of the process last.
    taker: usize,
    /// The threads that have been given signals that waited, in that order, and have not been heard yet.
    line: Vec<Tid>,
    freezers: Freezers,
    /// How long our waits met a frozen group.
    held: Duration,
    /// The host that is to hear of us while we wait for a thread.
    company: Option<Box<Company>>,
}

/// A stop that was asked for.
#[derive(Clone, Copy, Debug)]
struct Raise {
    signal: i32,
    /// How many SIGCONT were delivered before the stop signal.
    continues: u32,
}

impl Deputy {
    /// Lets the stopped threads of `pid` enter the loop whose code and seats stand at `code` and behind it in the
    /// deputy's memory, each with the signals that wait here for it. From here on the deputy dies with its supervisor.
    ///
    /// # Errors
    /// A thread died or refused a request.
    pub fn enter(
        (pid, own_pid): (i32, OwnTid),
        deck: Deck,
        code: u64,
        stops: impl ExactSizeIterator<Item = ((OwnTid, Stopped), u64)>,
    ) -> Result<Self, DeputyError> {
        let options =
            // Trap: a-deputy-outlives-its-supervisor
            ptrace::Options::SYSGOOD | ptrace::Options::EXITKILL | ptrace::Options::TRACE_CLONE;
        let mut threads = Vec::with_capacity(stops.len());
        let mut seats = HashMap::new();
        let mut seats_by_own = HashMap::new();
        for (seat, ((own, stopped), kept)) in stops.enumerate() {
            let tid = stopped.tid();
            crash::point("deputy-options");
            stopped.set_options(options)?;
            into_loop(&stopped, (&deck, code), seat, kept)?;
            crash::point("deputy-enter");
            let running = stopped.resume(0)?;
            seats.insert(tid, seat);
            seats_by_own.insert(own, seat);
            threads.push(Thread::new((tid, own), Trace::Running(running), kept));
        }
        Ok(Self {
            pid,
            own_pid,
            deck,
            code,
            threads,
            seats,
            seats_by_own,
            events: VecDeque::new(),
            finished: Vec::new(),
            has_sent: false,
            group_stopped: false,
            continues: 0,
            raise: None,
            born: HashMap::new(),
            cloned: None,
            taker: 0,
            line: Vec::new(),
            freezers: Freezers::looked_at(pid),
            held: Duration::ZERO,
            company: None,
        })
    }

    /// The process's number in our own pid namespace.
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
    pub fn seat_of(&self, own: OwnTid) -> Option<usize> {
        self.seats_by_own.get(&own).copied()
    }

    /// The thread that has this number in our own pid namespace.
    #[must_use]
    pub fn seat_traced_as(&self, tid: Tid) -> Option<usize> {
        self.seats.get(&tid).copied()
    }

    #[must_use]
    pub fn own_of(&self, seat: usize) -> OwnTid {
        self.threads[seat].own
    }

    /// A thread's number in our own pid namespace.
    #[must_use]
    pub fn traced_as(&self, seat: usize) -> Tid {
        self.threads[seat].tid
    }

    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Lets a thread end by `exit`, and waits for that, so that the next scan of the threads finds
    /// it gone. The end of the process's first thread is reported with the process's.
    ///
    /// # Errors
    /// Tracing failed, or the thread did not end for a minute.
    pub fn end_thread(&mut self, seat: usize, code: i32) -> Result<(), DeputyError> {
        let exit = Syscall::new(libc::SYS_exit, &[i64::from(code).cast_unsigned()]);
        self.start(seat, &[exit], 0);
        // Trap: a-deputy-s-thread-is-about-to-end
        if self.threads[seat].tid == self.pid {
            return Ok(());
        }
        let mut waiting = Waiting::begin();
        while !self.is_gone(seat) {
            self.drain()?;
            self.urge(seat)?;
            if self.is_late(&mut waiting, BATCH_DEADLINE)? {
                return Err(DeputyError::Stuck(1));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Threads that have not ended.
    #[must_use]
    pub fn living(&self) -> usize {
        let gone = (0..self.threads.len()).filter(|seat| self.is_gone(*seat));
        self.threads.len() - gone.count()
    }

    #[must_use]
    pub fn is_gone(&self, seat: usize) -> bool {
        matches!(self.threads[seat].trace, Trace::Gone)
    }

    /// Whether job control has stopped the process.
    #[must_use]
    pub fn is_group_stopped(&self) -> bool {
        self.group_stopped
    }

    /// Starts a batch whose end is announced by [`DeputyEvent::Finished`]. For calls that do not
    /// block, the processor is yielded to the deputy `patience` times first. Returns true if the
    /// batch is done on return; then no event has to be waited for, though one may come.
    pub fn start(&mut self, seat: usize, operations: &[Syscall], patience: u32) -> bool {
        self.threads[seat].cut = Cut::No;
        self.deck.submit(seat, operations, patience == 0);
        for _ in 0..patience {
            if self.deck.is_done(seat) {
                return true;
            }
            std::thread::yield_now();
        }
        patience > 0 && self.deck.ask_for_notice(seat)
    }

    /// Runs operations to their end, in as many batches as it takes.
    ///
    /// # Errors
    /// The deputy died, or did not answer for a minute.
    pub fn run(&mut self, seat: usize, operations: &[Syscall]) -> Result<Vec<i64>, DeputyError> {
        let mut results = Vec::with_capacity(operations.len());
        for batch in operations.chunks(Deck::longest_batch(seat)) {
            self.deck.submit(seat, batch, false);
            self.wait_done(seat, batch.len())?;
            results.extend((0..batch.len()).map(|index| self.deck.result(seat, index)));
        }
        if operations.len() > OPERATIONS_MAX {
            self.deck.forget_long();
        }
        Ok(results)
    }

    /// Runs one batch on each of several threads, at the same time.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_each(
        &mut self,
        work: &[(usize, Vec<Syscall>)],
    ) -> Result<Vec<Vec<i64>>, DeputyError> {
        for (seat, batch) in work {
            self.deck.submit(*seat, batch, false);
        }
        let mut results = Vec::with_capacity(work.len());
        for (seat, batch) in work {
            self.wait_done(*seat, batch.len())?;
            results.push(
                (0..batch.len())
                    .map(|index| self.deck.result(*seat, index))
                    .collect(),
            );
        }
        Ok(results)
    }

    fn wait_done(&mut self, seat: usize, count: usize) -> Result<(), DeputyError> {
        let mut waiting = Waiting::begin();
        let (mut rounds, mut done) = (0u32, 0);
        while !self.deck.is_done(seat) {
            rounds += 1;
            if rounds.is_multiple_of(8) {
                let before = self.events.len();
                self.drain()?;
                let new = self.events.range(before..);
                let signals = new.len() > 0;
                let is_own = |event: &DeputyEvent| matches!(event, DeputyEvent::Signal { seat: of, .. } if *of == seat);
                let own_signals = new.filter(|event| is_own(event)).count() > 0;
                if matches!(self.threads[seat].trace, Trace::Gone) {
                    return Err(DeputyError::Ended);
                }
                self.urge(seat)?;
                let now = self.deck.progress(seat);
                if now != done || signals {
                    (done, waiting) = (now, Waiting::begin());
                    pulse::advance();
                }
                if own_signals {
                    // It stops for each of them, and does our work only when no further one waits: a nap at each
                    // would leave it no time for that.
                    rounds = 0;
                }
                if self.is_late(&mut waiting, BATCH_DEADLINE)? {
                    return Err(DeputyError::Stuck(count));
                }
            }
            if rounds < YIELDS_MAX {
                std::thread::yield_now();
            } else {
                // The processor that we yield may be what the deputy lacks.
                std::thread::sleep(NAP);
            }
        }
        pulse::advance();
        self.relax(seat)
    }

    /// Lets a thread do our work even if job control has stopped the process. Otherwise a request
    /// that the guest made before it knew of the stop would keep us from serving it, and from being
    /// heard.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn urge(&mut self, seat: usize) -> Result<(), DeputyError> {
        let thread = &mut self.threads[seat];
        if let Trace::Listening(running) = &thread.trace
            && !thread.urgent
        {
            thread.urgent = true;
            interrupt(running)?;
        }
        Ok(())
    }

    /// Ends [`urge`](Self::urge): the thread stops with the others again.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn relax(&mut self, seat: usize) -> Result<(), DeputyError> {
        let thread = &mut self.threads[seat];
        if std::mem::take(&mut thread.urgent)
            && self.group_stopped
            && let Trace::Running(running) = &thread.trace
        {
            interrupt(running)?;
        }
        Ok(())
    }

    /// Interrupts the call that this thread executes, so that it ends with a result, or with
    /// -512..-516 when it had no effect.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn cancel(&mut self, seat: usize) -> Result<(), DeputyError> {
        self.threads[seat].cut = Cut::Asked;
        if let Trace::Running(running) | Trace::Listening(running) = &self.threads[seat].trace {
            crash::point("deputy-interrupt");
            interrupt(running)?;
        }
        Ok(())
    }

    /// How many SIGCONT were delivered.
    #[must_use]
    pub fn continues(&self) -> u32 {
        self.continues
    }

    /// Begins to count anew, for a new guest that will hear of `continues` SIGCONT.
    pub fn count_continues_from(&mut self, continues: u32) {
        self.continues = continues;
    }

    /// Gives the process a stop signal that is to take its default effect at home, unless there was
    /// a SIGCONT beyond `continues`. Home's kernel decides whether it does (not in an orphaned
    /// group); [`DeputyEvent::GroupStop`] or [`DeputyEvent::GroupContinue`] reports the outcome.
    ///
    /// Sending the stop signal itself would discard a SIGCONT that waits to be delivered, and stop
    /// the process for good. So we send a signal of our own, which is delivered after SIGCONT, and
    /// replace it by the stop signal on delivery. The kernel discards the stop if a SIGCONT comes
    /// at that moment.
    ///
    /// # Errors
    /// errno of `rt_sigqueueinfo`.
    pub fn raise(&mut self, signal: i32, continues: u32) -> Result<(), DeputyError> {
        self.raise = Some(Raise { signal, continues });
        match pidfd::queue_signal(self.pid, None, TICKET_SIGNAL, &ticket()) {
            // The process is ending, which is reported separately.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(nix::errno::Errno::EAGAIN) => {
                tracing::warn!("A stop is lost: the user's limit of queued signals is reached");
                self.events.push_back(DeputyEvent::GroupContinue);
                Ok(())
            }
            Err(errno) => Err(DeputyError::Refused {
                what: "stop signal",
                errno,
            }),
        }
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

    /// Whether the process has ended, or does so within this time.
    pub fn await_end(&mut self, within: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let drained = self.drain();
            let ends = |event: &DeputyEvent| matches!(event, DeputyEvent::ProcessGone(_));
            if self.events.iter().any(ends) {
                return true;
            }
            if drained.is_err() || begun.elapsed() > within {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Answers what the kernel reports of the threads; the events are kept for
    /// [`next_event`](Self::next_event).
    ///
    /// # Errors
    /// Tracing failed.
    pub fn attend(&mut self) -> Result<(), DeputyError> {
        self.drain()
    }

    fn ended(&mut self, seat: usize, status: Status) {
        self.threads[seat].trace = Trace::Gone;
        self.events.push_back(DeputyEvent::ThreadGone(seat));
        if self.threads[seat].tid == self.pid {
            self.events.push_back(DeputyEvent::ProcessGone(status));
        }
    }

    fn stopped(&mut self, seat: usize, stop: Stop) -> Result<(), DeputyError> {
        let trace = std::mem::replace(&mut self.threads[seat].trace, Trace::Gone);
        let (Trace::Running(running) | Trace::Listening(running)) = trace else {
            return Ok(());
        };
        let stopped = running.into_stopped(stop);
        match self.answer(seat, stopped) {
            Ok(trace) => self.threads[seat].trace = trace,
            Err(DeputyError::Trace(ptrace::TraceError::Died)) => {
                // The thread was killed in this stop; its end is reported next.
                self.threads[seat].trace = Trace::Running(Running::assume(self.threads[seat].tid));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn answer(&mut self, seat: usize, stopped: Stopped) -> Result<Trace, DeputyError> {
        crash::point("deputy-stop");
        // Any other stop consumes a pending interrupt (docs/traps.md,
        // `interrupt-after-another-stop`). If we ask again before the thread goes on, its call ends
        // here; if we ask later, the call has been set up once more.
        if matches!(stopped.stop(), Stop::Signal(_) | Stop::SyscallStop) && self.is_to_be_cut(seat)
        {
            stopped.interrupt()?;
        }
        let trace = match stopped.stop() {
            Stop::Signal(signal) => self.signal(seat, signal, stopped)?,
            Stop::Group(signal) => {
                self.threads[seat].raised = false;
                if !self.group_stopped {
                    self.group_stopped = true;
                    self.events.push_back(DeputyEvent::GroupStop(signal));
                }
                let urgent = self.threads[seat].urgent && !self.deck.is_done(seat);
                if urgent || self.is_to_be_cut(seat) {
                    Trace::Running(self.interrupted(seat, stopped)?)
                } else {
                    // Trap: a-stopped-job-runs-on
                    Trace::Listening(stopped.listen()?)
                }
            }
            Stop::Interrupt => {
                let raised = std::mem::take(&mut self.threads[seat].raised);
                if self.group_stopped || raised {
                    self.group_stopped = false;
                    self.events.push_back(DeputyEvent::GroupContinue);
                }
                Trace::Running(self.interrupted(seat, stopped)?)
            }
            Stop::Clone => {
                self.cloned = Tid::try_from(stopped.event_message()?).ok();
                Trace::Running(stopped.resume(0)?)
            }
            _ => Trace::Running(stopped.resume(0)?),
        };
        // The stop that this brings about tells whether the signal that was raised has stopped the
        // process.
        if self.threads[seat].raised
            && let Trace::Running(running) = &trace
        {
            running.interrupt()?;
        }
        Ok(trace)
    }

    fn is_to_be_cut(&self, seat: usize) -> bool {
        self.threads[seat].cut != Cut::No && !self.deck.is_done(seat)
    }

    fn signal(&mut self, seat: usize, signal: i32, stopped: Stopped) -> Result<Trace, DeputyError> {
        if signal == libc::SIGTRAP {
            let registers = stopped.registers()?;
            if registers.rip == self.code + resident::after_trap_offset() {
                self.note_finished(seat, &stopped)?;
                return Ok(Trace::Running(stopped.resume(0)?));
            }
        }
        let info = stopped.signal_info()?;
        if signal == libc::SIGSTOP {
            let signal = if self.is_immune(&info) { 0 } else { signal };
            return Ok(Trace::Running(stopped.resume(signal)?));
        }
        if signal == TICKET_SIGNAL && is_ticket(&info) {
            let raise = self.raise.take();
            let raise = raise.filter(|raise| raise.continues >= self.continues);
            self.threads[seat].raised = raise.is_some();
            let signal = raise.map_or(0, |raise| raise.signal);
            return Ok(Trace::Running(stopped.resume(signal)?));
        }
        if matches!(signal, libc::SIGTTIN | libc::SIGTTOU) {
            self.leave_terminal(seat, &stopped)?;
        }
        self.note_signal(seat, signal, info);
        if signal == libc::SIGCONT {
            self.continues += 1;
            // Stops that the guest knows of and the kernel does not know of yet are void. If the
            // guest heard this before the signal, it could ask for another stop in between, and
            // would not hear of that stop's end.
            if !self.group_stopped {
                self.events.push_back(DeputyEvent::GroupContinue);
            }
        }
        Ok(Trace::Running(stopped.resume(0)?))
    }

    /// The terminal refuses a call of a process in the background: it sends this signal to the
    /// whole group and has the call made again, which would go on for ever if nothing stopped the
    /// process. Here the call ends with -512 instead, and the guest makes it again when it has
    /// dealt with the signal. The signal may have reached another thread than the one that makes
    /// the call.
    fn leave_terminal(&mut self, seat: usize, stopped: &Stopped) -> Result<(), DeputyError> {
        if self.cut_call(stopped, &(REFUSED..=REFUSED))? {
            return Ok(());
        }
        for other in (0..self.threads.len()).filter(|other| *other != seat) {
            let idle = self.deck.is_done(other) || self.threads[other].cut != Cut::No;
            if let (false, Trace::Running(running)) = (idle, &self.threads[other].trace) {
                interrupt(running)?;
                self.threads[other].cut = Cut::Background;
            }
        }
        Ok(())
    }

    /// Ends a call that is about to be made again for one of these reasons, so that it returns the
    /// reason. Returns whether there was such a call.
    fn cut_call(
        &self,
        stopped: &Stopped,
        reasons: &RangeInclusive<i64>,
    ) -> Result<bool, DeputyError> {
        let mut registers = stopped.registers()?;
        let in_call = registers.rip == self.code + resident::after_call_offset()
            && registers.orig_rax.cast_signed() >= 0;
        let cut = in_call && reasons.contains(&registers.rax.cast_signed());
        // Trap: an-interrupted-call-restarts-in-the-deputy
        if cut {
            registers.orig_rax = u64::MAX;
            stopped.set_registers(&registers)?;
        }
        Ok(cut)
    }

    /// Handles an interrupt: a call that had no effect yet ends with -512..-516; a result stays.
    ///
    /// A thread that stands elsewhere (this includes one that stands before its call because the
    /// kernel is about to make it again) is stopped when it enters its next call. If it were
    /// interrupted again at once, it would not get there: with a timer that sent a signal each
    /// millisecond, this took seconds.
    fn interrupted(&mut self, seat: usize, stopped: Stopped) -> Result<Running, DeputyError> {
        if !self.is_to_be_cut(seat) {
            return Ok(stopped.resume(0)?);
        }
        let cut = self.threads[seat].cut;
        let reasons = if cut == Cut::Asked {
            ERESTART_RESTARTBLOCK..=ERESTARTSYS
        } else {
            REFUSED..=REFUSED
        };
        // A thread that does not use the terminal now is left alone.
        if self.cut_call(&stopped, &reasons)? || cut == Cut::Background {
            self.threads[seat].cut = Cut::No;
            return Ok(stopped.resume(0)?);
        }
        // Trap: a-cut-asked-again-and-again
        Ok(stopped.resume_to_syscall(0)?)
    }

    /// Stops all threads where they wait for work, for the way home. The caller must have masked
    /// the signals of every thread before.
    ///
    /// # Errors
    /// A thread died.
    pub fn leave(mut self) -> Result<(Deck, Vec<(OwnTid, Stopped)>), DeputyError> {
        let threads = self.threads.drain(..);
        let running: Vec<(OwnTid, Running)> = threads
            .filter_map(|thread| match thread.trace {
                Trace::Running(running) | Trace::Listening(running) => Some((thread.own, running)),
                Trace::Gone => None,
            })
            .collect();
        // All are interrupted before one is waited for: they stop at the same time.
        for (_, thread) in &running {
            thread.interrupt()?;
        }
        let stops = running
            .into_iter()
            .map(|(own, running)| stop_idle(running).map(|stopped| (own, stopped)));
        Ok((self.deck, stops.collect::<Result<_, DeputyError>>()?))
    }
}

/// Prepares a stopped thread for the loop whose code stands at `code`; all signals but those that are kept are let
/// through to its tracer.
fn into_loop(
    stopped: &Stopped,
    (deck, code): (&Deck, u64),
    seat: usize,
    kept: u64,
) -> Result<(), ptrace::TraceError> {
    let mut registers = stopped.registers()?;
    registers.rip = code;
    // The loop has no use for a stack, and the alternate stack on which a handler runs could not be changed.
    // Trap: the-deputy-stands-on-an-old-stack
    registers.rsp = 0;
    let (requests, answers) = deck.seat_offsets(seat);
    (registers.r15, registers.rbx) = (code + requests, code + answers);
    registers.orig_rax = u64::MAX;
    registers.rax = 0;
    registers.eflags = 0x202;
    stopped.set_registers(&registers)?;
    stopped.set_signal_mask(kept)
}

/// The siginfo by which we know our own signal again.
fn ticket() -> RawSigInfo {
    let mut info = [0; 128];
    info[0..4].copy_from_slice(&TICKET_SIGNAL.to_ne_bytes());
    info[8..12].copy_from_slice(&SI_QUEUE.to_ne_bytes());
    info[24..28].copy_from_slice(&TICKET_MARK.to_ne_bytes());
    info[28..32].copy_from_slice(&std::process::id().to_ne_bytes());
    info
}

/// Whether this is our own signal. The kernel puts its sender's ids, as the process's namespaces have them,
/// in the place of ours.
fn is_ticket(info: &RawSigInfo) -> bool {
    let ticket = ticket();
    let equal = |from: usize, to: usize| info[from..to] == ticket[from..to];
    equal(0, 4) && equal(8, 12) && equal(24, 32)
}

/// Interrupts a thread. It is no error if the thread dies meanwhile, because its end is reported
/// separately.
fn interrupt(running: &Running) -> Result<(), DeputyError> {
    match running.interrupt() {
        Ok(()) | Err(ptrace::TraceError::Died) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the stop of a thread that was interrupted.
fn stop_idle(running: Running) -> Result<Stopped, DeputyError> {
    let mut running = running;
    loop {
        match running.wait()? {
            ptrace::Waited::Stopped(stopped)
                if matches!(stopped.stop(), Stop::Interrupt | Stop::Group(_)) =>
            {
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
