//! Stopping a whole process so that it does not notice, and letting it go again.
//!
//! # Threads of the tracer
//! Everything happens on the calling OS thread, which becomes the tracer. A thread of the process
//! that waits for its vfork child, or sleeps uninterruptibly, does not stop. No request lets go a
//! thread that was interrupted but has not stopped: only the end of its tracer thread withdraws the
//! interruption. So call [`freeze`] on an OS thread that ends when [`freeze`] returns
//! [`FreezeError::Busy`], and try again later from a new one.
//!
//! # What a stop leaves behind
//! Nothing, until [`crate::inject`] is used; and whatever is changed in a stopped thread undoes
//! itself when the tracer dies. See `freeze_calls` for how calls are kept from noticing.

use crate::freeze_attend::Attended;
use crate::freeze_calls::{self, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, InterruptedCall, Subject};
use crate::freeze_delivery::Delivery;
use crate::freeze_groups::Groups;
use crate::freeze_observe::{Observation, Status, is_runnable, observe_and_stop, sleeping_in};
use crate::freeze_release::Held;
use crate::freeze_vdso::{RunsOn, Vdso};
use crate::inject::Injection;
use crate::maps::{self, MapEntry};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_model::Registers;
use whim_sys::freezer::Freezers;
use whim_sys::process_vm::MemFile;
use whim_sys::ptrace::{Options, Polled, Running, Stop, Stopped, Tid, TraceError, Waited};
use whim_sys::pulse;

/// How often the tracer polls threads that must stop before it sleeps between two polls.
const LOOKS_WITHOUT_SLEEP: u32 = 200;
const SLEEP_BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// Threads that have not stopped only because they were given no CPU (a busy machine, a used-up
/// quota of their control group) get this much more time: they will stop as soon as they run.
const LACKS_CPU_MAX: Duration = Duration::from_secs(2);

/// Bounds of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct FreezeLimits {
    /// How long the threads may take to stop, beyond the time in which they lack a CPU.
    pub wait: Duration,
    /// The largest number of threads that we move.
    pub threads_max: usize,
    /// Threads with seccomp filters are stopped too. Before anything is injected the filters are suspended.
    pub filters: bool,
}

impl Default for FreezeLimits {
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(200),
            threads_max: 4096,
            filters: false,
        }
    }
}

#[derive(Debug, Error)]
pub enum FreezeError {
    #[error("Process {0} does not exist or has ended")]
    Gone(i32),
    #[error("Process {0} began to execute another program just now: try again")]
    Replaced(i32),
    #[error("{0} is a thread, not a process: name its process {1}")]
    NotAProcess(i32, i32),
    #[error("Process {pid} is traced by process {tracer}: end that tracer first")]
    Traced { pid: i32, tracer: i32 },
    #[error("Process {0} may not be traced by this user")]
    NotPermitted(i32),
    #[error("Process {pid} cannot be stopped now ({reason}): try again later")]
    Busy { pid: i32, reason: String },
    #[error("Process {pid} cannot go on: its control group {} is frozen; thaw that and it can move", .group.display())]
    GroupFrozen { pid: i32, group: PathBuf },
    #[error("Process {0} has a seccomp filter of its own, which may end it when it is stopped")]
    Filtered(i32),
    #[error("Process {0} is stopped by job control: continue it first")]
    JobStopped(i32),
    #[error("Process {0} runs on without its main thread")]
    LeaderEnded(i32),
    #[error("Process {pid} has more than {limit} threads")]
    TooManyThreads { pid: i32, limit: usize },
    #[error("Thread {0} runs 32-bit code")]
    NotSixtyFourBit(Tid),
    #[error("The process has no room for our code at the end of its vDSO")]
    NoRoomForCode,
    #[error("The process has no room in its address space for our memory")]
    NoRoomForMemory,
    #[error("The process could not map our memory: {0}")]
    MapFailed(nix::errno::Errno),
    #[error("Thread {0} has left our code before we were done: the machine is overloaded")]
    Escaped(Tid),
    #[error("Thread {0} is not one of the frozen threads")]
    UnknownThread(Tid),
    #[error("{0} operations were asked of one thread at once")]
    TooManyOperations(usize),
    #[error("Memory of the process cannot be reached: {0}")]
    Memory(io::Error),
    #[error("/proc cannot be read: {0}")]
    Proc(io::Error),
    #[error(transparent)]
    Maps(#[from] crate::maps::MapsError),
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// One stopped thread.
#[derive(Debug)]
pub struct FrozenThread {
    pub(crate) tid: Tid,
    pub(crate) stopped: Option<Stopped>,
    pub(crate) original: Registers,
    pub(crate) call: Option<InterruptedCall>,
    pub(crate) mask: Option<u64>,
    /// Address of the instance of the stub in which it stands.
    pub(crate) inside: Option<u64>,
}

impl FrozenThread {
    /// Takes a freshly stopped thread in, and at once keeps its call from noticing the stop.
    pub(crate) fn take_in(
        pid: i32,
        memory: &MemFile,
        stopped: Stopped,
        before: &Observation,
    ) -> Result<Self, TraceError> {
        let tid = stopped.tid();
        let mut original = stopped.registers()?;
        let rax = original.rax;
        let call = freeze_calls::understand(
            Subject {
                pid,
                tid,
                memory,
                before,
            },
            &mut original,
        );
        if original.rax != rax {
            stopped.set_registers(&original)?;
        }
        let stopped = Some(stopped);
        Ok(Self {
            tid,
            stopped,
            original,
            call,
            mask: None,
            inside: None,
        })
    }

    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The registers with which it is to be resumed. If the stop cut off its call, rax is -514.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.original
    }

    /// The system call in which it was stopped; `None` when it was computing.
    #[must_use]
    pub fn call(&self) -> Option<&InterruptedCall> {
        self.call.as_ref()
    }

    pub(crate) fn stopped(&self) -> Result<&Stopped, TraceError> {
        self.stopped.as_ref().ok_or(TraceError::Died)
    }

    pub(crate) fn take(&mut self) -> Result<Stopped, TraceError> {
        self.stopped.take().ok_or(TraceError::Died)
    }

    /// Its signal mask, read once and kept (while our code runs in it, it blocks everything).
    pub(crate) fn mask(&mut self) -> Result<u64, TraceError> {
        if let Some(mask) = self.mask {
            return Ok(mask);
        }
        let mask = self.stopped()?.signal_mask()?;
        self.mask = Some(mask);
        Ok(mask)
    }

    /// Makes a call that would go on by `restart_syscall` begin anew, because the thread's filter
    /// may not allow `restart_syscall`. The call began after we had checked for filters, so none of
    /// its time is lost.
    pub(crate) fn restart_by_number(&mut self) -> Result<(), TraceError> {
        if self.original.rax == ERESTART_RESTARTBLOCK.cast_unsigned() {
            self.original.rax = ERESTARTNOHAND.cast_unsigned();
            self.stopped()?.set_registers(&self.original)?;
        }
        Ok(())
    }

    /// Whether it stands in a call that the kernel would restart.
    pub(crate) fn restartable(&self) -> bool {
        self.call.is_some() && freeze_calls::restarts(self.original.rax)
    }
}

/// All threads of a process, stopped. Dropping it lets the process go on.
#[derive(Debug)]
pub struct Frozen {
    pub(crate) pid: i32,
    pub(crate) threads: Vec<FrozenThread>,
    pub(crate) status: Status,
    pub(crate) memory: MemFile,
    pub(crate) injection: Option<Injection>,
    /// Signals whose handlers do not restart calls, as far as their actions have been read.
    pub(crate) no_restart: u64,
    /// A thread did not wait for us in our code, which must stay mapped.
    pub(crate) escaped: bool,
    /// The address space as it was when it was first read in this freeze.
    pub(crate) entries: Option<Vec<MapEntry>>,
    pub(crate) began: Instant,
    /// The process, if this OS thread traced it before the freeze.
    pub(crate) attended: Option<Attended>,
    pub(crate) groups: Groups,
    /// Its threads' seccomp filters, once they have been read.
    pub(crate) filters: Vec<Vec<u64>>,
    /// Its filters judge nothing.
    pub(crate) suspended: bool,
    /// Where its vDSO is, once somebody has asked.
    pub(crate) vdso: Vdso,
}

/// A thread on its way to a stop.
struct Pending {
    running: Option<Running>,
    tid: Tid,
    before: Observation,
    delivery: Delivery,
    runs_on: RunsOn,
}

/// Stops all threads of process `pid`.
///
/// # Errors
/// [`FreezeError`]; the process then runs on as before. After [`FreezeError::Busy`] the calling
/// thread must end (see the module's text).
pub fn freeze(pid: i32, limits: &FreezeLimits) -> Result<Frozen, FreezeError> {
    freeze_again(pid, limits, Vec::new(), Freezers::of(pid))
}

/// As [`freeze`], for a process of which this OS thread still holds some threads after an earlier
/// release. `freezers` are the process's; if they were looked at before, the freeze takes less time.
///
/// # Errors
/// As [`freeze`]; threads that were held are then let go or end with the calling thread.
pub fn freeze_again(
    pid: i32,
    limits: &FreezeLimits,
    held: Vec<Held>,
    freezers: Freezers,
) -> Result<Frozen, FreezeError> {
    let ours = !held.is_empty();
    begin((pid, freezers), limits, (held, None), ours)
}

/// As [`freeze`], for a process that this OS thread traces already.
///
/// # Errors
/// As [`freeze`].
pub(crate) fn freeze_attended(
    attended: Attended,
    limits: &FreezeLimits,
    freezers: Freezers,
) -> Result<Frozen, FreezeError> {
    let of = (attended.pid(), freezers);
    begin(of, limits, (Vec::new(), Some(attended)), true)
}

fn begin(
    (pid, freezers): (i32, Freezers),
    limits: &FreezeLimits,
    (held, attended): (Vec<Held>, Option<Attended>),
    ours: bool,
) -> Result<Frozen, FreezeError> {
    let status = Status::read(pid, pid).map_err(|error| unreadable(pid, error))?;
    check(pid, &status, ours, limits.filters)?;
    let memory = MemFile::open(pid).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => FreezeError::NotPermitted(pid),
        _ => unreadable(pid, error),
    })?;
    let groups = Groups::new(pid, freezers, false);
    let began = Instant::now();
    let mut frozen = Frozen {
        pid,
        threads: Vec::new(),
        status,
        memory,
        injection: None,
        no_restart: 0,
        escaped: false,
        entries: None,
        began,
        attended,
        groups,
        filters: Vec::new(),
        suspended: false,
        vdso: Vdso::new(pid),
    };
    // On an error `frozen` is dropped, which lets the stopped threads go.
    let stopped = frozen.stop_all(limits, held);
    if stopped.is_err() && limits.filters {
        // Best effort: a thread that has ended has no call to begin anew.
        let _ = frozen.begin_calls_anew();
    }
    stopped.map_err(|error| frozen.groups.explain(error))?;
    Ok(frozen)
}

pub(crate) fn check(
    pid: i32,
    status: &Status,
    held: bool,
    filters: bool,
) -> Result<(), FreezeError> {
    if status.tgid != pid {
        return Err(FreezeError::NotAProcess(pid, status.tgid));
    }
    let ours = held && status.tracer == nix::unistd::gettid().as_raw();
    if status.tracer != 0 && !ours {
        return Err(FreezeError::Traced {
            pid,
            tracer: status.tracer,
        });
    }
    if status.seccomp != 0 && !filters {
        // Our calls, and the kernel's own restart_syscall, may not pass its filter.
        return Err(FreezeError::Filtered(pid));
    }
    match status.state {
        'Z' | 'X' if thread_ids(pid)?.len() > 1 => Err(FreezeError::LeaderEnded(pid)),
        'Z' | 'X' => Err(FreezeError::Gone(pid)),
        'T' => Err(FreezeError::JobStopped(pid)),
        _ => Ok(()),
    }
}

/// Interrupts a thread that is traced already.
fn take_back(held: Held) -> Result<Option<Pending>, FreezeError> {
    let tid = held.tid();
    let (running, deadline_ns) = held.into_running();
    match running.interrupt() {
        Ok(()) => {
            let before = Observation::held(deadline_ns);
            Ok(Some(Pending {
                running: Some(running),
                tid,
                before,
                delivery: Delivery::default(),
                runs_on: RunsOn::default(),
            }))
        }
        Err(TraceError::Died) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Usually, but not always, an unreadable file of /proc/PID means that the process has ended.
pub(crate) fn unreadable(pid: i32, error: io::Error) -> FreezeError {
    let gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
    if gone {
        FreezeError::Gone(pid)
    } else {
        FreezeError::Proc(error)
    }
}

/// Whether a seccomp filter restricts the calls of a thread; `false` for a thread that has ended.
pub(crate) fn is_filtered(pid: i32, tid: Tid) -> bool {
    Status::read(pid, tid).is_ok_and(|status| status.seccomp != 0)
}

/// Why a thread could not be seized; `None` when it was because it is ending.
pub(crate) fn refused(pid: i32, tid: Tid) -> Option<FreezeError> {
    let status = Status::read(pid, tid).ok()?;
    match status.state {
        'Z' | 'X' => None,
        _ if status.tracer != 0 => Some(FreezeError::Traced {
            pid,
            tracer: status.tracer,
        }),
        _ => Some(FreezeError::NotPermitted(pid)),
    }
}

/// The threads of a process, in the order of /proc.
pub(crate) fn thread_ids(pid: i32) -> Result<Vec<Tid>, FreezeError> {
    let entries =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| unreadable(pid, error))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(FreezeError::Proc)?;
        found.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<Tid>().ok()),
        );
    }
    Ok(found)
}

impl Frozen {
    fn put_leader_first(&mut self) -> Result<(), FreezeError> {
        match self
            .threads
            .iter()
            .position(|thread| thread.tid == self.pid)
        {
            Some(leader) => self.threads.swap(0, leader),
            None if self.threads.is_empty() => return Err(FreezeError::Gone(self.pid)),
            None => return Err(FreezeError::LeaderEnded(self.pid)),
        }
        Ok(())
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The leader first.
    #[must_use]
    pub fn threads(&self) -> &[FrozenThread] {
        &self.threads
    }

    /// When the first thread was interrupted.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The leader's /proc/PID/status, read before the stop.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The process's memory, whatever its protection.
    #[must_use]
    pub fn memory(&self) -> &MemFile {
        &self.memory
    }

    /// The address space as it was before anything was injected.
    ///
    /// # Errors
    /// [`FreezeError::Maps`].
    pub fn entries(&mut self) -> Result<&[MapEntry], FreezeError> {
        if self.entries.is_none() {
            self.entries = Some(maps::read(self.pid)?);
        }
        Ok(self.entries.as_deref().unwrap_or_default())
    }

    fn stop_all(&mut self, limits: &FreezeLimits, held: Vec<Held>) -> Result<(), FreezeError> {
        let deadline = self.began + limits.wait;
        let mut seen: Vec<Tid> = held.iter().map(Held::tid).collect();
        let mut pending = Vec::with_capacity(held.len());
        for one in held {
            pending.extend(take_back(one)?);
        }
        self.wait_for_stops(pending, deadline)?;
        loop {
            let mut fresh = thread_ids(self.pid)?;
            fresh.retain(|tid| !seen.contains(tid));
            if fresh.is_empty() {
                break;
            }
            if seen.len() + fresh.len() > limits.threads_max {
                let limit = limits.threads_max;
                return Err(FreezeError::TooManyThreads {
                    pid: self.pid,
                    limit,
                });
            }
            let mut pending = Vec::with_capacity(fresh.len());
            for tid in &fresh {
                match self.seize(*tid, (deadline, limits.filters)) {
                    Ok(found) => pending.extend(found),
                    Err(error) => {
                        self.wait_for_stops(pending, deadline)?;
                        return Err(error);
                    }
                }
            }
            seen.extend(fresh);
            self.wait_for_stops(pending, deadline)?;
        }
        self.put_leader_first()?;
        self.attended = None;
        if !limits.filters {
            self.refuse_filters()?;
        }
        // A handler may have been set or a mask changed between the first reading and the stop.
        self.status =
            Status::read(self.pid, self.pid).map_err(|error| unreadable(self.pid, error))?;
        Ok(())
    }

    /// Refuses threads with filters. Each thread has filters of its own, and may have set one up to
    /// the moment when it stopped.
    fn refuse_filters(&mut self) -> Result<(), FreezeError> {
        let mut filtered = false;
        for thread in &mut self.threads {
            if is_filtered(self.pid, thread.tid) {
                filtered = true;
                thread.restart_by_number()?;
            }
        }
        if filtered {
            return Err(FreezeError::Filtered(self.pid));
        }
        Ok(())
    }

    /// Seizes and interrupts one thread; `None` when it has ended meanwhile.
    fn seize(
        &self,
        tid: Tid,
        (deadline, filters): (Instant, bool),
    ) -> Result<Option<Pending>, FreezeError> {
        // The leader's filters were checked before.
        if !filters && tid != self.pid && is_filtered(self.pid, tid) {
            return Err(FreezeError::Filtered(self.pid));
        }
        let mut sleeping = sleeping_in(self.pid, tid);
        while sleeping.is_some_and(whim_calls::waits_for_child) && !self.awaits_us(tid) {
            // It would not stop before its child lets it go: wait without touching it.
            if Instant::now() >= deadline {
                let reason = format!("thread {tid} waits for a child that it has just made");
                return Err(FreezeError::Busy {
                    pid: self.pid,
                    reason,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
            sleeping = sleeping_in(self.pid, tid);
        }
        let attended = self.attended.as_ref();
        let seized = if attended.is_some_and(|attended| attended.has(tid)) {
            Ok(Running::assume(tid))
        } else {
            Running::seize(tid, Options::SYSGOOD)
        };
        match seized {
            Ok(running) => self.interrupt(running),
            // Trap: threads-vanish
            Err(TraceError::Died) => Ok(None),
            Err(TraceError::Os {
                errno: nix::errno::Errno::EPERM,
                ..
            }) => match refused(self.pid, tid) {
                Some(FreezeError::Traced { tracer, .. })
                    if tracer == nix::unistd::gettid().as_raw() =>
                {
                    // One of the threads that we trace has made this thread meanwhile.
                    self.interrupt(Running::assume(tid))
                }
                refused => refused.map_or(Ok(None), Err),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a thread that was traced before has already stopped for us, to report the thread
    /// that it has made.
    fn awaits_us(&self, tid: Tid) -> bool {
        self.attended.is_some()
            && Status::read(self.pid, tid).is_ok_and(|status| status.state == 't')
    }

    fn interrupt(&self, running: Running) -> Result<Option<Pending>, FreezeError> {
        let tid = running.tid();
        pulse::advance();
        let interrupt = || running.interrupt();
        let concerns = freeze_calls::needs_elapsed;
        let (seen, interrupted) = observe_and_stop(self.pid, tid, concerns, interrupt);
        let before = seen.map(|(_, before)| before).unwrap_or_default();
        match interrupted {
            Ok(()) | Err(TraceError::Died) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Some(Pending {
            running: Some(running),
            tid,
            before,
            delivery: Delivery::default(),
            runs_on: RunsOn::default(),
        }))
    }

    fn wait_for_stops(
        &mut self,
        mut pending: Vec<Pending>,
        deadline: Instant,
    ) -> Result<(), FreezeError> {
        let mut looks = 0;
        let mut failed = None;
        while !pending.is_empty() {
            let pending_before = pending.len();
            let mut still = Vec::with_capacity(pending_before);
            for mut one in pending {
                match self.poll(&mut one) {
                    Ok(true) => {}
                    Ok(false) => still.push(one),
                    // The other threads must stop all the same, to be let go again.
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if still.len() < pending_before {
                pulse::advance();
            }
            pending = still;
            let now = Instant::now();
            let lack_cpu = |pending: &[Pending]| {
                now < deadline + LACKS_CPU_MAX
                    && pending.iter().all(|one| is_runnable(self.pid, one.tid))
            };
            if let Some(first) = pending.first()
                && now >= deadline
                && !lack_cpu(&pending)
            {
                let reason = format!("thread {} does not stop", first.tid);
                return Err(FreezeError::Busy {
                    pid: self.pid,
                    reason,
                });
            }
            looks += 1;
            if looks < LOOKS_WITHOUT_SLEEP {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SLEEP_BETWEEN_LOOKS);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Polls whether a thread has stopped or ended; `true` when it need not be polled again.
    fn poll(&mut self, one: &mut Pending) -> Result<bool, FreezeError> {
        let Some(running) = one.running.take() else {
            return Ok(true);
        };
        let stopped = match running.poll_gently() {
            Ok(Polled::Still(running)) => {
                if one.runs_on.is_over() {
                    running.interrupt()?;
                }
                one.running = Some(one.delivery.awaited(running)?);
                return Ok(false);
            }
            Ok(Polled::Event(Waited::Stopped(stopped))) => stopped,
            Ok(Polled::Event(_)) | Err(TraceError::Died) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        match stopped.stop() {
            // Trap: a-stop-comes-before-a-delivery
            Stop::Interrupt if one.delivery.is_due(self.pid, &stopped)? => {
                one.running = Some(stopped.resume(0)?);
                Ok(false)
            }
            // Trap: a-clock-half-read
            Stop::Interrupt if one.runs_on.has_to(&stopped.registers()?, &self.vdso) => {
                one.runs_on.begins();
                one.running = Some(stopped.resume(0)?);
                Ok(false)
            }
            Stop::Interrupt => self.take_note(stopped, &one.before).map(|()| true),
            Stop::Group(_) => {
                let tid = stopped.tid();
                let original = Registers::default();
                let stopped = Some(stopped);
                let thread = FrozenThread {
                    tid,
                    stopped,
                    original,
                    call: None,
                    mask: None,
                    inside: None,
                };
                self.threads.push(thread);
                Err(FreezeError::JobStopped(self.pid))
            }
            Stop::Exec => {
                // The process may have other rights now.
                stopped.detach(0)?;
                Err(FreezeError::Replaced(self.pid))
            }
            stop => {
                if stop == Stop::Clone {
                    self.let_new_process_go(&stopped)?;
                }
                // Any other stop has consumed the interruption.
                one.delivery.came();
                let signal = if let Stop::Signal(signal) = stop {
                    signal
                } else {
                    0
                };
                let again = stopped.interrupt().and_then(|()| stopped.resume(signal));
                match again {
                    Ok(running) => one.running = Some(running),
                    Err(TraceError::Died) => return Ok(true),
                    Err(error) => return Err(error.into()),
                }
                Ok(false)
            }
        }
    }

    /// Lets a process go that a traced thread has made by `clone`: the kernel attaches it like a
    /// thread.
    fn let_new_process_go(&self, maker: &Stopped) -> Result<(), FreezeError> {
        let made = Tid::try_from(maker.event_message()?).unwrap_or(0);
        if thread_ids(self.pid)?.contains(&made) {
            return Ok(());
        }
        match Running::assume(made).wait_gently() {
            Ok(Waited::Stopped(stopped)) => Ok(stopped.detach(0)?),
            Ok(_) | Err(TraceError::Died) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_note(&mut self, stopped: Stopped, before: &Observation) -> Result<(), FreezeError> {
        let tid = stopped.tid();
        if self.attended.is_some() {
            match stopped.set_options(Options::SYSGOOD) {
                Err(TraceError::Died) => return Ok(()),
                set => set?,
            }
        }
        match FrozenThread::take_in(self.pid, &self.memory, stopped, before) {
            Ok(thread) => {
                let foreign = thread.original.cs != freeze_calls::USER_CS;
                self.threads.push(thread);
                if foreign {
                    Err(FreezeError::NotSixtyFourBit(tid))
                } else {
                    Ok(())
                }
            }
            Err(TraceError::Died) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn index_of(&self, tid: Tid) -> Result<usize, FreezeError> {
        let found = self.threads.iter().position(|thread| thread.tid == tid);
        found.ok_or(FreezeError::UnknownThread(tid))
    }

    /// Hands the stopped threads over, with their own registers and masks; the caller resumes or
    /// detaches them. The leader comes first.
    ///
    /// # Errors
    /// [`FreezeError`] when our code cannot be taken out of the process; it runs on then.
    pub fn into_parts(mut self) -> Result<Vec<FrozenThread>, FreezeError> {
        self.remove_injection()?;
        Ok(std::mem::take(&mut self.threads))
    }
}

impl FrozenThread {
    /// The stop itself, to be resumed or detached.
    ///
    /// # Errors
    /// [`TraceError::Died`] when the thread has ended.
    pub fn into_stopped(mut self) -> Result<Stopped, TraceError> {
        self.take()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // There is no caller to report an error to; the end of the tracer lets the other threads
        // go.
        let _ended = self.remove_injection();
        for thread in &mut self.threads {
            if let Some(stopped) = thread.stopped.take() {
                let _ended = stopped.detach(0);
            }
        }
    }
}
