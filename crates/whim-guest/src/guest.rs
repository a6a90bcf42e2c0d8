//! The guest process: its threads, their stops, and what is done to stopped threads.

use crate::cpu_time::{self, Since};
use crate::cut::{self, Timed};
use crate::error::GuestError;
use crate::memory::{Memory, binds, growing};
use crate::mirrored::{Mirror, Mirrored};
use crate::pager::Shared;
use crate::queueing::Unqueued;
use crate::sandbox::Numbers;
use crate::tickets::Tickets;
use crate::title::Title;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use whim_calls::judge::{Filters, Judged};
use whim_calls::{Context, NewThread};
use whim_image::freeze_calls::ERESTARTNOINTR;
use whim_image::freeze_observe::Status;
use whim_image::rebuild::Rebuilt;
use whim_image::rebuild::runner::{self, Runner, step_registers};
use whim_image::vdso::Proxy;
use whim_journey::message::{RELEASED_MAX, ToHome};
use whim_model::Syscall;
use whim_model::{
    AWAIT_NUMBER, Activity, Mapping, MappingId, MemoryLayout, ProcessImage, QueuedSignal, Range,
    Registers, Remark, ResourceLimit,
};
use whim_sys::ptrace::{
    self, Polled, Running, Status as WaitStatus, Stop, Stopped, TraceError, Waited,
};
use whim_sys::seccomp::{Delivered, Listener, Notification, Response};

/// Reasons for which all threads are held; several may hold at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    /// Job control at home.
    pub stopped: bool,
    /// Its control group at home is frozen.
    pub frozen: bool,
    /// Home has been silent for too long.
    pub lease: bool,
    /// Frozen for a move.
    pub move_away: bool,
    /// The guest goes home, because there is too little memory for it here.
    pub memory: bool,
    /// The guest waits until another guest that goes home has freed its memory.
    pub pressure: bool,
    /// A signal ends the process at home: no call comes behind that.
    pub ends: bool,
}

impl Holds {
    #[must_use]
    pub(crate) fn any(self) -> bool {
        self.asks_nothing() || self.lease || self.move_away || self.memory || self.pressure
    }

    /// Nothing is asked of home, which holds the process itself, or ends it.
    #[must_use]
    pub(crate) fn asks_nothing(self) -> bool {
        self.stopped || self.frozen || self.ends
    }
}

/// Whether a thread runs, as far as we know.
#[derive(Debug)]
pub(crate) enum Trace {
    Running,
    /// PTRACE_INTERRUPT was sent; its stop has not come yet.
    Interrupted,
    Stopped(Stopped),
}

/// What a thread waits for in its reported call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For pages of its arguments; when they are here, the call is decided.
    Undecided,
    /// For the result of a forwarded call.
    Forward(Forwarded),
    /// For home's part of a file mapping.
    MapFile,
    /// The same, for one that is made longer or stays where it was moved from.
    RemapFile,
    /// For home to know of a signal's new disposition.
    Disposition(Mirror),
    /// For home to make the deputy of a new thread.
    NewThread(NewThread),
    /// For home to end the thread's deputy.
    ThreadExit,
    /// For the process to end.
    ProcessExit,
    /// For the freeze that takes the process home.
    GoHome,
}

/// A region that a forwarded call may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub address: u64,
    pub length: u64,
    /// The kernel writes it even if a signal ends the call.
    pub is_always_written: bool,
}

/// A forwarded call, and what is done with its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub regions: Vec<Place>,
    /// Signal mask that is in force while the call waits.
    pub wait_mask: Option<u64>,
    pub after: After,
    /// Home answers at once, because the call never blocks.
    pub is_quick: bool,
    /// The call asks for the result of another one that was in flight when the thread moved.
    pub is_await: bool,
}

/// What happens once home has done its part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum After {
    #[default]
    Result,
    /// The guest's kernel executes the call too.
    RunHere,
    /// CPU time used here is added.
    AddTimes,
    /// The program's own limit takes the place of the deputy's.
    OwnLimit,
}

/// A reported call.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The notification's cookie.
    pub id: u64,
    pub call: Syscall,
    /// The same, as the kernel has it.
    pub judged: Judged,
    pub kind: Kind,
    pub sequence: u64,
    /// A handler is to run: the call is given up as soon as possible.
    pub cancelled: bool,
    /// Home has interrupted the call, which is made again.
    pub again: bool,
}

/// A thread of the guest.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Its number in its own pid namespace, as home knows it.
    pub tid: i32,
    /// Its number in our pid namespace.
    pub host_tid: i32,
    pub trace: Trace,
    pub waiting: Option<Waiting>,
    /// Sequence number of its last message to home.
    pub sequence: u64,
    /// The call in flight at home when the thread came here.
    pub in_flight: Option<Syscall>,
    /// Sequence number of the call in flight; 0 if the thread left home in it.
    pub awaited: u64,
    /// A signal whose delivery must happen at home.
    pub fatal: Option<QueuedSignal>,
    /// Signals that wait until the thread's call has begun, or until it has asked for its call in flight.
    pub postponed: Vec<QueuedSignal>,
    /// Where the thread stood when it was let go on with a call that had begun, and the number of that call.
    pub(crate) restarted: Option<(u64, u64)>,
    /// Its kernel has been told that its call was interrupted, and a handler is about to run.
    pub told_interrupted: bool,
    /// Registers of a call that a handler interrupts under another mask.
    pub suspended: Option<Registers>,
    /// The thread left a call that home executes, and will ask for its result.
    pub awaits: bool,
    /// It came here right before a call that waits for signals, and has not gone on yet.
    pub enters: bool,
    /// It is on its way into that call, with all signals blocked; its own mask.
    pub entering: Option<u64>,
    /// The thread stands where our own work ended, not where a signal came.
    pub at_our_stop: bool,
    /// End of a wait that a freeze has cut off, by this host's CLOCK_MONOTONIC.
    pub deadline_ns: Option<u64>,
    /// A wait that an earlier freeze has cut off, and that the thread makes again.
    pub timed: Option<Timed>,
    pub cpu: Since,
}

/// The parts of the image that do not change during a stay.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub layout: MemoryLayout,
    pub limits: Vec<ResourceLimit>,
    pub personality: u64,
    pub denies_memory: u32,
    /// The program's own filters, as the image has them.
    pub filters: Vec<Vec<u64>>,
    /// The same, to judge calls by.
    pub judges: Filters,
    /// The names among them are carried on where this kernel has none to ask for.
    pub remarks: Vec<Remark>,
    pub reserved: Range,
    pub vdso: Vec<u8>,
    /// What the kernel has mapped at home.
    pub kernel: Vec<Mapping>,
    /// Memory that grows downwards, as far as it had grown when it came.
    pub growing: Vec<Range>,
}

impl Origin {
    fn of(image: &ProcessImage) -> Self {
        Self {
            layout: image.layout.clone(),
            limits: image.limits.clone(),
            personality: image.personality,
            denies_memory: image.denies_memory,
            filters: image.filters.clone(),
            // The image has been checked.
            judges: Filters::of(&image.filters).unwrap_or_default(),
            remarks: image.remarks.clone(),
            reserved: image.reserved,
            vdso: image.vdso.clone(),
            kernel: Proxy::kernel_mappings(image),
            growing: growing(image),
        }
    }
}

/// A message for home, and its tail.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub message: ToHome,
    pub tail: Vec<u8>,
}

/// The guest.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its number in its own pid namespace, as home knows it.
    pub pid: i32,
    /// Its number in our pid namespace.
    pub host_tid: i32,
    /// By `host_tid`.
    pub threads: BTreeMap<i32, Thread>,
    pub listener: Listener,
    pub runner: Runner,
    pub memory: Memory,
    pub shared: Arc<Shared>,
    pub context: Context,
    pub origin: Origin,
    pub tickets: Tickets,
    pub holds: Holds,
    pub outbox: Vec<Outgoing>,
    /// Notifications that were read while we waited for something else.
    pub backlog: Vec<Notification>,
    /// Signals that no thread could queue yet, in their order.
    pub(crate) unqueued: VecDeque<Unqueued>,
    /// The process has ended.
    pub gone: bool,
    pub calls: u64,
    pub title: Title,
    pub cpu: Since,
    /// How many SIGCONT have come from home during this stay.
    pub continues: u32,
    /// Value of `continues` when a stop signal was last left with this host's kernel.
    pub stop_queued: Option<u32>,
    /// Gives new threads their numbers; `None` once that has failed.
    pub numbers: Option<Numbers>,
    /// `host_tid` of a thread that has just been made.
    pub born: Option<i32>,
    /// A copy of home's vDSO, if the host's kernel has another one.
    pub proxy: Option<Proxy>,
    /// Mappings whose files have changed at home, and how much of each its file has.
    pub stale: BTreeMap<MappingId, u64>,
    /// Some of its memory has a policy, or had one here.
    pub binds: bool,
    pub mirrored: Mirrored,
}

impl Thread {
    /// Interrupts the thread, if it runs.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn interrupt(&mut self) -> Result<(), GuestError> {
        if !matches!(self.trace, Trace::Running) {
            return Ok(());
        }
        match Running::assume(self.host_tid).interrupt() {
            Ok(()) => self.trace = Trace::Interrupted,
            // Its end is on its way to us.
            Err(TraceError::Died) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether the thread is about to ask for the call that was in flight when it came here.
    #[must_use]
    pub(crate) fn is_about_to_ask(&self, registers: &Registers) -> bool {
        self.in_flight.is_some() && !self.awaits && cut::rewound(registers).rax == AWAIT_NUMBER
    }

    /// Leaves the forwarded call in which the thread waits to home. The thread is to ask for its
    /// result. Returns false if the thread waits in no such call.
    pub(crate) fn leaves_its_call_to_home(&mut self) -> bool {
        let Some(waiting) = &self.waiting else {
            return false;
        };
        let Kind::Forward(forwarded) = &waiting.kind else {
            return false;
        };
        if !forwarded.is_await {
            self.in_flight = Some(waiting.call);
            self.awaited = waiting.sequence;
        }
        true
    }
}

impl Guest {
    /// Takes over a rebuilt process; its threads are still stopped. `epoch` is the upper half of all
    /// sequence numbers, so that they rise over the whole stay.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn new(
        rebuilt: Rebuilt,
        image: &ProcessImage,
        shared: Arc<Shared>,
        epoch: u32,
    ) -> Result<Self, GuestError> {
        let host_tid = rebuilt.runner.pid;
        let process = host_tid;
        let mut threads = BTreeMap::new();
        for (thread, state) in rebuilt.threads.into_iter().zip(&image.threads) {
            let (number, args) = (state.registers.orig_rax, state.registers.arguments());
            let call = Syscall { number, args };
            let host_tid = thread.stopped.tid();
            let thread = Thread {
                tid: thread.tid,
                host_tid,
                trace: Trace::Stopped(thread.stopped),
                waiting: None,
                sequence: u64::from(epoch) << 32,
                in_flight: (state.activity == Activity::AwaitsHome).then_some(call),
                awaited: state.awaited,
                fatal: None,
                postponed: Vec::new(),
                restarted: None,
                told_interrupted: false,
                suspended: None,
                awaits: false,
                enters: cut::enters(state),
                entering: None,
                at_our_stop: true,
                deadline_ns: None,
                timed: None,
                cpu: Since::begin(state.cpu_away, cpu_time::of_thread(process, host_tid)),
            };
            threads.insert(host_tid, thread);
        }
        let reserved = image.reserved;
        let mut memory = Memory::new(host_tid, Arc::clone(&shared), growing(image))?;
        if !image.guards.is_empty() {
            memory.has_guards();
        }
        Ok(Self {
            pid: image.pid,
            host_tid,
            listener: rebuilt.listener,
            runner: rebuilt.runner,
            memory,
            shared,
            context: Context {
                pid: image.pid,
                threads: image.threads.iter().map(|thread| thread.tid).collect(),
                reserved: (reserved.start, reserved.end),
                locks_future: image.locks_future,
                descriptor_signals: image.descriptor_signals,
            },
            origin: Origin::of(image),
            proxy: rebuilt.proxy,
            binds: binds(&image.remarks),
            numbers: None,
            born: None,
            tickets: Tickets::default(),
            threads,
            holds: Holds::default(),
            outbox: Vec::new(),
            backlog: Vec::new(),
            unqueued: VecDeque::new(),
            gone: false,
            calls: 0,
            title: Title::of(&image.layout),
            cpu: Since::begin(image.cpu_away, cpu_time::of_process(host_tid)),
            continues: 0,
            stop_queued: None,
            mirrored: Mirrored::default(),
            stale: BTreeMap::new(),
        })
    }

    /// Whether reported calls may be read now, as far as the guest is concerned. A call that has
    /// not been read yet can still be taken back.
    #[must_use]
    pub(crate) fn listens(&self) -> bool {
        !self.holds.any() && !self.gone
    }

    /// As [`tell_title`](Self::tell_title), before a call is forwarded, unless there are too many of them.
    pub(crate) fn tell_title_before_call(&mut self) {
        if self.title.may_look() {
            self.tell_title();
        }
    }

    /// Tells home how the program has changed its arguments and environment.
    pub(crate) fn tell_title(&mut self) {
        if let Some((address, tail)) = self.title.look(self.host_tid) {
            let message = ToHome::Title { address };
            self.outbox.push(Outgoing { message, tail });
        }
    }

    /// Tells home which of its mappings are shown no more: as long as it has them, their files keep their room.
    pub(crate) fn tell_released(&mut self) {
        loop {
            let mappings = self.shared.table().take_released(RELEASED_MAX);
            if mappings.is_empty() {
                return;
            }
            self.say(ToHome::Released { mappings });
        }
    }

    /// Whether a thread waits for an answer from home that may come quickly.
    #[must_use]
    pub(crate) fn expects_answer(&self) -> bool {
        self.threads.values().any(|thread| {
            let kind = thread.waiting.as_ref().map(|waiting| &waiting.kind);
            matches!(kind, Some(Kind::Forward(forwarded)) if forwarded.is_quick)
        })
    }

    /// Whether a thread that was interrupted may still run.
    #[must_use]
    pub(crate) fn is_stopping(&self) -> bool {
        let mut threads = self.threads.values();
        threads.any(|thread| thread.waiting.is_none() && !matches!(thread.trace, Trace::Stopped(_)))
    }

    pub(crate) fn say(&mut self, message: ToHome) {
        self.outbox.push(Outgoing {
            message,
            tail: Vec::new(),
        });
    }

    /// The thread that home knows by this number.
    pub(crate) fn thread_of(&mut self, tid: i32) -> Option<&mut Thread> {
        self.threads.values_mut().find(|thread| thread.tid == tid)
    }

    /// Signal sets of a thread; empty sets if the thread is ending.
    #[must_use]
    pub(crate) fn status(&self, host_tid: i32) -> Status {
        Status::read(self.host_tid, host_tid).unwrap_or_default()
    }

    /// Lets every stopped thread go on, if nothing holds them any more.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn resume(&mut self) -> Result<(), GuestError> {
        if self.holds.any() {
            return Ok(());
        }
        let host_tids: Vec<i32> = self.threads.keys().copied().collect();
        for host_tid in host_tids {
            if self.holds.any() {
                // A signal that was about to be delivered stops the process.
                return Ok(());
            }
            let Some(thread) = self.threads.get_mut(&host_tid) else {
                continue;
            };
            if thread.fatal.is_some() || !matches!(thread.trace, Trace::Stopped(_)) {
                continue;
            }
            let ours = std::mem::take(&mut thread.at_our_stop);
            match std::mem::replace(&mut thread.trace, Trace::Running) {
                Trace::Stopped(stopped) if ours => {
                    self.resume_in_time(stopped)?;
                }
                Trace::Stopped(stopped) => self.stopped(stopped)?,
                other => thread.trace = other,
            }
        }
        Ok(())
    }

    /// Holds all threads from now on, or lets them go on if nothing else holds them.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn hold(&mut self, hold: bool) -> Result<(), GuestError> {
        if hold {
            self.interrupt_all()
        } else {
            self.resume()
        }
    }

    /// Begins to hold all threads. Threads that wait in a reported call stay there; the interrupt
    /// stops them when the call returns.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn interrupt_all(&mut self) -> Result<(), GuestError> {
        for thread in self.threads.values_mut() {
            thread.interrupt()?;
        }
        Ok(())
    }

    /// Handles all that the kernel reports about the guest's threads.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn reap(&mut self) -> Result<(), GuestError> {
        loop {
            match ptrace::wait_any_nonblocking() {
                Ok(Some((host_tid, status))) => self.event(host_tid, status)?,
                Ok(None) => return Ok(()),
                Err(TraceError::Died) => {
                    self.gone = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn event(&mut self, host_tid: i32, status: WaitStatus) -> Result<(), GuestError> {
        match status {
            WaitStatus::Stopped(stop) if self.threads.contains_key(&host_tid) => {
                self.stopped(Running::assume(host_tid).into_stopped(stop))
            }
            WaitStatus::Stopped(_) | WaitStatus::Other(_) => Ok(()),
            WaitStatus::Exited(_) | WaitStatus::Signaled { .. } => {
                self.ended(host_tid);
                Ok(())
            }
        }
    }

    /// A thread has ended.
    pub(crate) fn ended(&mut self, host_tid: i32) {
        if let Some(thread) = self.threads.remove(&host_tid) {
            self.context.threads.retain(|tid| *tid != thread.tid);
        }
        if self.threads.is_empty() || host_tid == self.host_tid {
            self.gone = true;
        }
    }

    /// A thread has stopped, and no code of ours has been waiting for that.
    fn stopped(&mut self, stopped: Stopped) -> Result<(), GuestError> {
        match self.answer_stop(stopped) {
            Err(GuestError::Trace(TraceError::Died)) => Ok(()),
            other => other,
        }
    }

    fn answer_stop(&mut self, stopped: Stopped) -> Result<(), GuestError> {
        let host_tid = stopped.tid();
        if self.holds.any() {
            // Any other stop serves as well as that of the interrupt, because it holds the thread.
            let stopped = self.stopped_on_its_way(stopped)?;
            self.set_trace(host_tid, Trace::Stopped(stopped));
            return Ok(());
        }
        self.has_entered(&stopped)?;
        // The code that follows must be able to interrupt the thread again.
        self.set_trace(host_tid, Trace::Running);
        match stopped.stop() {
            Stop::Signal(signal) => self.deliver(stopped, signal),
            Stop::SyscallStop => self.in_a_wait(stopped),
            _ => self.resume_in_time(stopped),
        }
    }

    pub(crate) fn set_trace(&mut self, host_tid: i32, trace: Trace) {
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.trace = trace;
        }
    }

    /// Answers a thread's reported call. It must not see of a file what home has told us has changed.
    ///
    /// # Errors
    /// Tracing failed, or the listener is broken.
    pub(crate) fn respond(&mut self, host_tid: i32, response: Response) -> Result<(), GuestError> {
        if self.stale.is_empty() {
            return self.answer(host_tid, response);
        }
        self.answer_afresh(host_tid, response)
    }

    /// Answers a thread's reported call, and does no more.
    ///
    /// # Errors
    /// The listener is broken.
    pub(crate) fn answer(&mut self, host_tid: i32, response: Response) -> Result<(), GuestError> {
        let waiting = self
            .threads
            .get_mut(&host_tid)
            .and_then(|thread| thread.waiting.take());
        if let Some(waiting) = waiting
            && self.listener.respond(waiting.id, response)? == Delivered::Gone
        {
            tracing::debug!(host_tid, "a thread ended in its call");
        }
        Ok(())
    }

    /// Takes a thread out of its reported call, whose result becomes -ERESTARTNOINTR. Returns the
    /// stopped thread, with the registers that the call left.
    ///
    /// # Errors
    /// The thread ended.
    pub(crate) fn take_out(&mut self, host_tid: i32) -> Result<Stopped, GuestError> {
        Running::assume(host_tid).interrupt()?;
        self.set_trace(host_tid, Trace::Interrupted);
        let restart = Response::Result(ERESTARTNOINTR);
        self.answer(host_tid, restart)?;
        // A call that was read while another thread worked for us ends for nothing else.
        // Trap: calls-kept-for-later
        for unread in self.backlog.extract_if(.., |unread| unread.tid == host_tid) {
            self.listener.respond(unread.id, restart)?;
        }
        self.await_stop(host_tid)
    }

    /// Lets a thread go, and stops it before it executes anything: what it is in is over then, for the kernel too.
    ///
    /// # Errors
    /// As [`await_stop`](Self::await_stop).
    pub(crate) fn stop_anew(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        let host_tid = stopped.tid();
        Running::assume(host_tid).interrupt()?;
        stopped.resume(0)?;
        self.await_stop(host_tid)
    }

    /// Waits for the next stop of one thread.
    ///
    /// # Errors
    /// The thread ended instead.
    pub(crate) fn await_stop(&mut self, host_tid: i32) -> Result<Stopped, GuestError> {
        match Running::assume(host_tid).wait()? {
            Waited::Stopped(stopped) => self.stopped_on_its_way(stopped),
            Waited::Exited { .. } | Waited::Signaled { .. } => {
                self.ended(host_tid);
                Err(GuestError::Ended)
            }
        }
    }

    /// Executes one system call in a stopped thread. Afterwards its registers and mask are as they
    /// were before. A call that the filter reports is let through.
    ///
    /// # Errors
    /// The thread ended.
    pub(crate) fn inject(
        &mut self,
        thread: Stopped,
        operation: &Syscall,
    ) -> Result<(Stopped, i64), GuestError> {
        let host_tid = thread.tid();
        let (before, mask) = (thread.registers()?, thread.signal_mask()?);
        thread.set_signal_mask(u64::MAX)?;
        let at = self.runner.place.one();
        thread.set_registers(&step_registers(&before, at, operation))?;
        let entry = self.syscall_stop(thread.resume_to_syscall(0)?)?;
        let exit = self.syscall_stop(entry.resume_to_syscall(0)?)?;
        debug_assert_eq!(exit.tid(), host_tid);
        let result = exit.registers()?.rax.cast_signed();
        exit.set_registers(&before)?;
        exit.set_signal_mask(mask)?;
        Ok((exit, result))
    }

    /// Waits for a syscall stop. If the filter reports the thread's call meanwhile, it is let
    /// through.
    fn syscall_stop(&mut self, running: Running) -> Result<Stopped, GuestError> {
        let host_tid = running.tid();
        let mut running = running;
        // Most calls are not reported, and their stop comes within microseconds.
        let mut patience = 200u32;
        loop {
            match running.poll()? {
                Polled::Event(Waited::Stopped(stopped)) => match stopped.stop() {
                    Stop::SyscallStop => return Ok(stopped),
                    Stop::Clone => {
                        self.born = i32::try_from(stopped.event_message()?).ok();
                        running = stopped.resume_to_syscall(0)?;
                    }
                    // This interrupt was sent before this work began. The thread is stopped after
                    // the work, as it should be.
                    Stop::Interrupt => running = stopped.resume_to_syscall(0)?,
                    _ => return Err(runner::unexpected(&stopped).into()),
                },
                Polled::Event(Waited::Exited { .. } | Waited::Signaled { .. }) => {
                    self.ended(host_tid);
                    return Err(GuestError::Ended);
                }
                Polled::Still(still) => running = still,
            }
            patience = patience.saturating_sub(1);
            if patience > 0 {
                std::thread::yield_now();
                continue;
            }
            whim_sys::dead::take_note_of_others(host_tid);
            self.pass_through(host_tid)?;
        }
    }

    /// Lets a reported call of this thread through, and keeps the calls of other threads for later.
    fn pass_through(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let mut set = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::from(1u8);
        let ready = poll(&mut set, limit).map_err(|errno| GuestError::Os {
            what: "poll",
            errno,
        })?;
        if ready == 0 {
            return Ok(());
        }
        if let Some(notification) = self.listener.receive()? {
            if notification.tid == host_tid {
                self.listener.respond(notification.id, Response::Continue)?;
            } else {
                self.backlog.push(notification);
            }
        }
        Ok(())
    }
}
