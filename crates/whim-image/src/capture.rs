//! From a frozen process to its image.

use crate::capture_plan::plan;
use crate::capture_remarks::{self, MODE};
use crate::capture_told::Told;
use crate::descriptor_signals;
use crate::freeze::{FreezeError, Frozen};
use crate::freeze_calls::Piece;
use crate::freeze_observe::Status;
use crate::inject::OPERATIONS_MAX;
use crate::maps::{self, FlagTable, MapEntry, MapsError};
use crate::settings::{self, promises};
use crate::stay::StayReason;
use crate::vdso::{self, VdsoError};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use std::io;
use thiserror::Error;
use whim_model::Syscall;
use whim_model::{
    Activity, AlternateStack, Backing, CPU_TIMERS, Clocks, CpuTime, CpuTimer, Mapping, MappingId,
    MemoryLayout, ProcessImage, Protection, Range, Registers, ResourceLimit, RseqRegistration,
    SignalAction, ThreadImage, ThreadSettings,
};
use whim_sys::kernel_file;
use whim_sys::ptrace::TraceError;
use whim_sys::{cpu, foreign, pulse};

const SIGNALS: u64 = 64;
const SIGKILL: u64 = 9;
const SIGSTOP: u64 = 19;
const LDT_READ: u64 = 0;
const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
const SA_RESTART: u64 = 0x1000_0000;
const PR_GET_TID_ADDRESS: u64 = 40;
/// In the scratch memory: one `struct sigaction` of the kernel per signal.
const ACTION_SIZE: u64 = 32;
/// In the scratch memory: where the CPU timers are stored.
const TIMERS_OFFSET: u64 = 2048;
/// In the scratch memory: the parts of the registers that the process may use.
const PARTS_OFFSET: u64 = 3072;
/// In the scratch memory: the modes of memory policies that are asked for together with the rest.
const MODES_OFFSET: usize = 3200;
const _: () = assert!((MODES_OFFSET + OPERATIONS_MAX * MODE) as u64 <= THREADS_OFFSET);
/// In the scratch memory: where the threads' own results begin, and the size of each.
const THREADS_OFFSET: u64 = 4096;
const THREAD_SIZE: u64 = 256;
const TID_ADDRESS_OFFSET: u64 = 24;
const CORE_OFFSET: u64 = 32;
const SETTINGS_OFFSET: u64 = 40;
const _: () = assert!(SETTINGS_OFFSET + settings::STORED as u64 <= THREAD_SIZE);
/// In the results of a thread: those that its scratch memory holds come first, then its settings, then
/// what it has promised itself. In those of the leader, what concerns the process follows.
const OWN_QUESTIONS: usize = 2;
const THREAD_QUESTIONS: usize = OWN_QUESTIONS + settings::OF_THREAD + promises::COUNT;
/// In the results about the process: where the memory barriers begin.
const BARRIERS_AT: usize = 3 + CPU_TIMERS.len();

#[derive(Debug, Error)]
pub enum CaptureError {
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    #[error(transparent)]
    Vdso(#[from] VdsoError),
    #[error("{what} of process {pid} cannot be read: {source}")]
    Unreadable {
        what: &'static str,
        pid: i32,
        source: io::Error,
    },
    #[error("{what} of process {pid} cannot be understood")]
    Malformed { what: &'static str, pid: i32 },
    #[error("The kernel refused {call} in thread {tid}: {errno}")]
    Refused {
        call: &'static str,
        tid: i32,
        errno: Errno,
    },
    #[error("The mapping at {0:#x} reaches into the range that home keeps for itself")]
    Reserved(u64),
    #[error("The clock cannot be read: {0}")]
    Clock(Errno),
}

impl From<TraceError> for CaptureError {
    fn from(error: TraceError) -> Self {
        Self::Freeze(error.into())
    }
}

impl From<MapsError> for CaptureError {
    fn from(error: MapsError) -> Self {
        Self::Freeze(error.into())
    }
}

/// What [`Frozen::capture`] needs to know.
#[derive(Clone, Copy)]
pub struct CaptureOptions<'a> {
    /// Where home will keep attic, seats and code; nothing may be mapped there.
    pub reserved: Range,
    /// Whether the guest makes a call (given by its number) once more if the freeze interrupted it
    /// before it had any effect; other calls go on at home.
    pub begins_in_guest: &'a dyn Fn(u64) -> bool,
}

/// A call that the freeze has interrupted; the thread still waits for its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The thread, by its number in the process's own pid namespace, as the image has it.
    pub tid: i32,
    /// The call to be executed, and its arguments. They hold the rest of a relative timeout if that
    /// is in a register, and the rest of the buffer if a part of a transfer was done.
    pub number: u64,
    pub args: [u64; 6],
    /// The original call, as the program made it.
    pub original_number: u64,
    pub original_args: [u64; 6],
    /// It must be continued by `restart_syscall` (219) in the same thread.
    pub restart: bool,
    /// Bytes of a transfer that were done before. They are added to a result that is not an error,
    /// and replace a result that is one. 0: the result is taken as it is.
    pub already: i64,
    /// What is left of a relative timeout that is not in a register, in nanoseconds.
    pub rest_ns: Option<u64>,
    /// When a relative timeout that was begun is over, by home's CLOCK_MONOTONIC.
    pub deadline_ns: Option<u64>,
    /// Further pieces of the buffer, to be transferred by the same call one after the other, as
    /// long as each is complete.
    pub further: Vec<Piece>,
}

/// A mapping of a file: its pages wait in home's attic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    pub id: MappingId,
    pub entry: MapEntry,
}

/// A process, captured.
#[derive(Clone, Debug)]
pub struct Captured {
    pub image: ProcessImage,
    /// A reason to stay that only the process itself could report.
    pub has_to_stay: Option<StayReason>,
    /// Memory that it will map is locked at once (MCL_FUTURE).
    pub locks_future: bool,
    /// Calls of threads that await home.
    pub in_flight: Vec<InFlight>,
    /// Calls that begin anew in the guest although a part of their timeout has passed.
    pub begun_anew: Vec<InFlight>,
    pub files: Vec<FileMapping>,
    /// The address space at the freeze, for a second check of the reasons to stay.
    pub entries: Vec<MapEntry>,
    pub flags: FlagTable,
}

/// Clocks of this node (of this time namespace), now.
///
/// # Errors
/// When the kernel has no such clock.
pub fn clocks_now() -> Result<Clocks, CaptureError> {
    let read = |clock: ClockId| -> Result<u64, CaptureError> {
        let time = clock_gettime(clock).map_err(CaptureError::Clock)?;
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        Ok(seconds * 1_000_000_000 + nanos)
    };
    Ok(Clocks {
        monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?,
        boottime_ns: read(ClockId::CLOCK_BOOTTIME)?,
        realtime_ns: read(ClockId::CLOCK_REALTIME)?,
    })
}

impl Frozen {
    /// Takes the image of the frozen process. Calls are injected (and leave no trace): our code
    /// stays in the process until [`Frozen::remove_injection`] or the release.
    ///
    /// # Errors
    /// [`CaptureError`]; the process is still frozen.
    pub fn capture(&mut self, options: &CaptureOptions<'_>) -> Result<Captured, CaptureError> {
        let clocks = clocks_now()?;
        let entries = self.entries()?.to_vec();
        let flags = FlagTable::read(self.pid)?;
        let starts = capture_remarks::starts(&entries);
        let answers = self.ask(&starts)?;
        let threads = self.thread_images(&answers.threads, options)?;
        let (mappings, files) = mappings(&entries, &flags, options.reserved)?;
        let remarks = self.remarks(&entries, answers.policies)?;
        let has_to_stay = answers.has_to_stay.or_else(|| {
            let beyond = remarks.is_none().then_some(StayReason::ManyNodes);
            beyond.or_else(|| cannot_be_made_again(answers.denies_memory, &entries))
        });
        let descriptor_signals = self.descriptor_signals()?;
        let read_away = !descriptor_signals::all_wait_at_home(descriptor_signals);
        let has_to_stay = has_to_stay.or(read_away.then_some(StayReason::SignalDescriptor));
        let guards = maps::guards(self.pid, &mappings).map_err(FreezeError::Memory)?;
        let mut layout = layout(self.pid)?;
        layout.brk = answers.brk;
        let locks_future = self.locks_future();
        let image = ProcessImage {
            pid: self.status.own_id,
            threads: threads.images,
            actions: answers.actions,
            // Those that travel are put in later.
            pending: Vec::new(),
            mappings,
            guards,
            layout,
            limits: limits(self.pid)?,
            personality: personality(self.pid)?,
            no_transparent_huge_pages: !self.status.transparent_huge_pages,
            barriers: answers.barriers,
            denies_memory: answers.denies_memory,
            filters: self.filters.clone(),
            locks_future,
            descriptor_signals,
            remarks: remarks.unwrap_or_default(),
            reserved: options.reserved,
            vdso: vdso::own()?.to_vec(),
            clocks,
            cpu_away: CpuTime::default(),
            cpu_timers: answers.cpu_timers,
        };
        Ok(Captured {
            image,
            has_to_stay,
            locks_future,
            in_flight: threads.in_flight,
            begun_anew: threads.begun_anew,
            files,
            entries,
            flags,
        })
    }

    fn thread_images(
        &self,
        answers: &[ThreadAnswer],
        options: &CaptureOptions<'_>,
    ) -> Result<Threads, CaptureError> {
        let mut taken = Threads::default();
        for (index, answer) in answers.iter().enumerate() {
            pulse::advance();
            let mut plan = plan(&self.threads[index], options.begins_in_guest);
            let own = self.own_id(self.threads[index].tid)?;
            if let Some(call) = &mut plan.call {
                call.tid = own;
            }
            match plan.activity {
                Activity::AwaitsHome => taken.in_flight.extend(plan.call),
                Activity::Computing => taken.begun_anew.extend(plan.call),
            }
            let (goes_on, ids) = ((plan.registers, plan.activity), (index, own));
            taken.images.push(ThreadImage {
                deadline_ns: plan.deadline_ns,
                ..self.thread_image(ids, goes_on, *answer)?
            });
        }
        Ok(taken)
    }

    /// Whether MCL_FUTURE is set. The kernel does not show it, but it locks our own memory in the
    /// process too.
    fn locks_future(&self) -> bool {
        let ours = self.injected_range().map_or(0, Range::len);
        let now = Status::read(self.pid, self.pid).map_or(0, |status| status.locked);
        ours > 0 && now == self.status.locked + ours
    }

    fn descriptor_signals(&self) -> Result<u64, CaptureError> {
        let (what, pid) = ("The list of descriptors", self.pid);
        let found = descriptor_signals::read_by_all(pid);
        found.map_err(|source| CaptureError::Unreadable { what, pid, source })
    }

    fn thread_image(
        &self,
        (index, own): (usize, i32),
        (registers, activity): (Registers, Activity),
        answer: ThreadAnswer,
    ) -> Result<ThreadImage, CaptureError> {
        let thread = &self.threads[index];
        let (pid, tid) = (self.pid, thread.tid);
        let stopped = thread.stopped()?;
        let robust_list = foreign::robust_list(tid).map_err(|errno| CaptureError::Refused {
            call: "get_robust_list",
            tid,
            errno,
        })?;
        let mut name = read_bytes("The name", pid, &format!("task/{tid}/comm"))?;
        // The kernel ends it with a newline.
        name.pop();
        Ok(ThreadImage {
            tid: own,
            registers,
            activity,
            awaited: 0,
            xstate: stopped.xstate()?,
            signal_mask: answer.mask,
            alternate_stack: answer.alternate_stack,
            rseq: stopped.rseq()?.map(|rseq| RseqRegistration {
                address: rseq.address,
                length: rseq.length,
                signature: rseq.signature,
                flags: rseq.flags,
            }),
            robust_list,
            tid_address: answer.tid_address,
            pending: Vec::new(),
            name,
            settings: answer.settings,
            deadline_ns: None,
            cpu_away: CpuTime::default(),
        })
    }

    /// The id of a thread in the process's own pid namespace.
    fn own_id(&self, tid: i32) -> Result<i32, CaptureError> {
        if self.status.namespaces <= 1 {
            return Ok(tid);
        }
        let status = Status::read(self.pid, tid).map_err(|_| TraceError::Died)?;
        Ok(status.own_id)
    }

    /// Asks the process itself for what cannot be read from outside. `starts`: mappings that may have policies;
    /// not all of them may be asked about.
    fn ask(&mut self, starts: &[u64]) -> Result<Answers, CaptureError> {
        let scratch = self.scratch()?;
        // Actions that are no handlers have flags and a mask as well. They come last: what concerns the memory has
        // room in the first list then.
        let settable = (1..=SIGNALS).filter(|signal| !matches!(*signal, SIGKILL | SIGSTOP));
        let (caught, others): (Vec<u64>, Vec<u64>) =
            settable.partition(|signal| self.status.caught >> (signal - 1) & 1 == 1);
        let action = |signal: &u64| {
            let into = scratch.start + (signal - 1) * ACTION_SIZE;
            Syscall::new(libc::SYS_rt_sigaction, &[*signal, 0, into, 8])
        };
        let mut lists: Vec<(i32, Vec<Syscall>)> = self
            .threads
            .iter()
            .enumerate()
            .map(|(index, thread)| (thread.tid, ask_thread(thread_scratch(scratch, index))))
            .collect();
        lists[0].1.extend(ask_process(scratch));
        let room = OPERATIONS_MAX - lists[0].1.len();
        let (first, later) = caught.split_at(room.min(caught.len()));
        lists[0].1.extend(first.iter().map(action));
        let room = OPERATIONS_MAX - lists[0].1.len();
        let starts = &starts[..room.min(starts.len())];
        let modes = capture_remarks::ask_modes(starts, scratch.start + MODES_OFFSET as u64);
        lists[0].1.extend(modes);
        let results = self.run_many(&lists)?;
        let more: Vec<Syscall> = later.iter().chain(&others).map(action).collect();
        let leader = self.threads[0].tid;
        self.run(leader, &more)?;
        for ((tid, _), results) in lists.iter().zip(&results) {
            accepted("sigaltstack", *tid, results[0])?;
            accepted("prctl(PR_GET_TID_ADDRESS)", *tid, results[1])?;
        }
        self.answers(scratch, &[caught, others].concat(), starts, &results)
    }

    /// The actions of all signals; `word` reads what the process has stored of those that were asked for.
    fn actions(&mut self, asked: &[u64], word: impl Fn(u64) -> u64) -> Vec<SignalAction> {
        let mut actions: Vec<SignalAction> = (0..SIGNALS)
            .map(|bit| SignalAction {
                handler: self.status.ignored >> bit & 1,
                ..SignalAction::default()
            })
            .collect();
        self.no_restart = 0;
        for signal in asked {
            let at = (signal - 1) * ACTION_SIZE;
            let action = SignalAction {
                handler: word(at),
                flags: word(at + 8),
                restorer: word(at + 16),
                mask: word(at + 24),
            };
            if action.handler > 1 && action.flags & SA_RESTART == 0 {
                self.no_restart |= 1 << (signal - 1);
            }
            actions[usize::try_from(signal - 1).unwrap_or(0)] = action;
        }
        actions
    }

    fn answers(
        &mut self,
        scratch: Range,
        asked: &[u64],
        starts: &[u64],
        results: &[Vec<i64>],
    ) -> Result<Answers, CaptureError> {
        let length = THREADS_OFFSET + self.threads.len() as u64 * THREAD_SIZE;
        let mut bytes = vec![0u8; usize::try_from(length).unwrap_or(0)];
        self.memory
            .read_exact(scratch.start, &mut bytes)
            .map_err(FreezeError::Memory)?;
        let word = |at: u64| {
            let at = usize::try_from(at).unwrap_or(0);
            let bytes = bytes
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        let actions = self.actions(asked, word);
        let mut threads = Vec::with_capacity(self.threads.len());
        let mut told = told(results, word);
        for (index, thread) in self.threads.iter_mut().enumerate() {
            let at = THREADS_OFFSET + index as u64 * THREAD_SIZE;
            let stored = usize::try_from(at + SETTINGS_OFFSET).unwrap_or(usize::MAX);
            let stored = bytes.get(stored..).unwrap_or_default();
            let stored = stored.get(..settings::STORED).unwrap_or_default();
            let (settings, policy) = settings::of_thread(&results[index][OWN_QUESTIONS..], stored);
            told.names_many_nodes |= policy.is_none();
            threads.push(ThreadAnswer {
                mask: thread.mask()?,
                alternate_stack: AlternateStack {
                    address: word(at),
                    // The upper half is padding; SS_ONSTACK is a state, not a property.
                    flags: alternate_stack_flags(word(at + 8)),
                    size: word(at + 16),
                },
                tid_address: word(at + TID_ADDRESS_OFFSET),
                settings,
            });
        }
        let timer = |index: u64| {
            let at = TIMERS_OFFSET + index * CpuTimer::LENGTH as u64;
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            CpuTimer::from_kernel(bytes.get(at..).unwrap_or_default())
        };
        let cpu_timers = [timer(0), timer(1)];
        let of_process = &results[0][THREAD_QUESTIONS..];
        let modes = bytes.get(MODES_OFFSET..).unwrap_or_default();
        let last = &results[0][results[0].len() - starts.len()..];
        let found = capture_remarks::with_policy(starts, modes, last).collect();
        Ok(Answers {
            actions,
            policies: (starts.len(), found),
            threads,
            brk: of_process[0].cast_unsigned(),
            barriers: settings::barriers(&of_process[BARRIERS_AT..]),
            denies_memory: settings::denied(of_process[2]),
            has_to_stay: told.reason(),
            cpu_timers,
        })
    }
}

/// What the threads and the process have said of what keeps them here; `word` reads the scratch memory.
fn told(results: &[Vec<i64>], word: impl Fn(u64) -> u64) -> Told {
    let mut told = Told::default();
    for (index, results) in (0..).zip(results) {
        let at = THREADS_OFFSET + index * THREAD_SIZE;
        let promises = &results[OWN_QUESTIONS + settings::OF_THREAD..];
        told.denies_cpuid |= promises::denies_cpuid(promises);
        told.restricts_speculation |= promises::restricts_speculation(promises);
        told.chooses_neighbours |= word(at + CORE_OFFSET) != 0;
    }
    let of_process = &results[0][THREAD_QUESTIONS..];
    // 0: it has no table; -ENOSYS: this kernel has none.
    told.has_segments = of_process[1] > 0;
    told.may_use_tiles = has_tiles_among(word(PARTS_OFFSET));
    told
}

/// Whether it denies itself memory such as it has, made before it said so: that cannot be made once more at
/// home, where the denial stays.
fn cannot_be_made_again(denies: u32, entries: &[MapEntry]) -> Option<StayReason> {
    const BOTH: u8 = Protection::WRITE | Protection::EXEC;
    let has_both = |entry: &&MapEntry| entry.protection.0 & BOTH == BOTH && !entry.is_kernel();
    let found = entries.iter().find(has_both).filter(|_| denies != 0);
    found.map(|entry| StayReason::DeniesWriteExecute(entry.range.start))
}

/// What a thread is asked; its answers are stored at `into`.
fn ask_thread(into: u64) -> Vec<Syscall> {
    let prctl = |option: u64, offset: u64| Syscall::new(libc::SYS_prctl, &[option, into + offset]);
    let mut list = vec![
        Syscall::new(libc::SYS_sigaltstack, &[0, into]),
        prctl(PR_GET_TID_ADDRESS, TID_ADDRESS_OFFSET),
    ];
    list.extend(settings::ask_thread(into + SETTINGS_OFFSET));
    list.extend(promises::ask(into + CORE_OFFSET));
    list
}

/// What the leader is asked about the process, besides the actions of its signals.
fn ask_process(scratch: Range) -> Vec<Syscall> {
    // One entry is enough to know. It goes to the place of SIGKILL's action, which is never asked for.
    let unused = scratch.start + (SIGKILL - 1) * ACTION_SIZE;
    let mut list = vec![
        Syscall::new(libc::SYS_brk, &[0]),
        Syscall::new(libc::SYS_modify_ldt, &[LDT_READ, unused, 8]),
        settings::ask_denied(),
    ];
    for (index, which) in (0..).zip(CPU_TIMERS) {
        let into = scratch.start + TIMERS_OFFSET + index * CpuTimer::LENGTH as u64;
        list.push(Syscall::new(libc::SYS_getitimer, &[which, into]));
    }
    debug_assert_eq!(list.len(), BARRIERS_AT);
    list.extend(settings::ask_barriers());
    // On a CPU without tiles no process can have been allowed them. Kernels that do not know tiles refuse
    // the call.
    if cpu::has_tiles() {
        let into = scratch.start + PARTS_OFFSET;
        list.push(Syscall::new(
            libc::SYS_arch_prctl,
            &[ARCH_GET_XCOMP_PERM, into],
        ));
    }
    list
}

/// Whether the parts of the registers that a process may use (one bit each) include those for which
/// it has to ask.
fn has_tiles_among(parts: u64) -> bool {
    // Trap: registers-by-permission
    parts >> cpu::TILES & 1 == 1
}

fn alternate_stack_flags(word: u64) -> i32 {
    const SS_ONSTACK: u32 = 1;
    let low = u32::try_from(word & 0xffff_ffff).unwrap_or(0);
    (low & !SS_ONSTACK).cast_signed()
}

fn thread_scratch(scratch: Range, index: usize) -> u64 {
    scratch.start + THREADS_OFFSET + index as u64 * THREAD_SIZE
}

fn accepted(call: &'static str, tid: i32, result: i64) -> Result<(), CaptureError> {
    if result >= 0 {
        return Ok(());
    }
    let errno = Errno::from_raw(i32::try_from(-result).unwrap_or(0));
    Err(CaptureError::Refused { call, tid, errno })
}

struct Answers {
    actions: Vec<SignalAction>,
    /// In the order of the frozen threads.
    threads: Vec<ThreadAnswer>,
    brk: u64,
    barriers: u32,
    denies_memory: u32,
    /// Of how many mappings it was asked whether they have a policy, and which have.
    policies: (usize, Vec<u64>),
    has_to_stay: Option<StayReason>,
    cpu_timers: [CpuTimer; 2],
}

/// All threads of an image, the calls that go on at home, and those that begin anew.
#[derive(Default)]
struct Threads {
    images: Vec<ThreadImage>,
    in_flight: Vec<InFlight>,
    begun_anew: Vec<InFlight>,
}

#[derive(Clone, Copy)]
struct ThreadAnswer {
    mask: u64,
    alternate_stack: AlternateStack,
    tid_address: u64,
    settings: ThreadSettings,
}

/// The mappings of the image, and the files among them.
fn mappings(
    entries: &[MapEntry],
    flags: &FlagTable,
    reserved: Range,
) -> Result<(Vec<Mapping>, Vec<FileMapping>), CaptureError> {
    let mut mappings = Vec::with_capacity(entries.len());
    let mut files = Vec::new();
    let mut next = 0;
    for entry in entries {
        if entry.range.overlaps(reserved) {
            return Err(CaptureError::Reserved(entry.range.start));
        }
        let backing = if entry.is_kernel() {
            Backing::Kernel {
                name: entry.name.clone(),
            }
        } else if entry.is_file() {
            let id = MappingId(next);
            next += 1;
            files.push(FileMapping {
                id,
                entry: entry.clone(),
            });
            Backing::File { id, offset: 0 }
        } else {
            Backing::Anonymous
        };
        mappings.push(Mapping {
            start: entry.range.start,
            end: entry.range.end,
            protection: entry.protection,
            flags: flags.of(entry.range).flags,
            backing,
        });
    }
    Ok((mappings, files))
}

fn read_bytes(what: &'static str, pid: i32, file: &str) -> Result<Vec<u8>, CaptureError> {
    kernel_file::read(format!("/proc/{pid}/{file}")).map_err(|source| CaptureError::Unreadable {
        what,
        pid,
        source,
    })
}

fn read_text(what: &'static str, pid: i32, file: &str) -> Result<String, CaptureError> {
    Ok(String::from_utf8_lossy(&read_bytes(what, pid, file)?).into_owned())
}

fn layout(pid: i32) -> Result<MemoryLayout, CaptureError> {
    let what = "The memory layout";
    let text = read_text(what, pid, "stat")?;
    let malformed = || CaptureError::Malformed { what, pid };
    // The name, in parentheses, may hold anything; field 3 follows it.
    let rest = text
        .rfind(')')
        .and_then(|end| text.get(end + 2..))
        .ok_or_else(malformed)?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| {
        let found = fields
            .get(number - 3)
            .and_then(|field| field.parse::<u64>().ok());
        found.ok_or_else(malformed)
    };
    Ok(MemoryLayout {
        start_code: field(26)?,
        end_code: field(27)?,
        start_stack: field(28)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        brk: field(47)?,
        arg_start: field(48)?,
        arg_end: field(49)?,
        env_start: field(50)?,
        env_end: field(51)?,
        auxv: read_bytes("The auxiliary vector", pid, "auxv")?,
    })
}

fn limits(pid: i32) -> Result<Vec<ResourceLimit>, CaptureError> {
    let found = foreign::limits(pid).map_err(|errno| CaptureError::Refused {
        call: "prlimit",
        tid: pid,
        errno,
    })?;
    let convert = |limit: foreign::Limit| ResourceLimit {
        resource: limit.resource,
        soft: limit.soft,
        hard: limit.hard,
    };
    Ok(found.into_iter().map(convert).collect())
}

fn personality(pid: i32) -> Result<u64, CaptureError> {
    let what = "The personality";
    let text = read_text(what, pid, "personality")?;
    u64::from_str_radix(text.trim(), 16).map_err(|_| CaptureError::Malformed { what, pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are what Linux shows for a program that has asked for nothing, and for one that
    /// has asked.
    #[test]
    fn whoever_was_allowed_tiles_is_recognised() {
        assert!(!has_tiles_among(0));
        assert!(!has_tiles_among(0x2e7), "AVX-512 and protection keys");
        assert!(!has_tiles_among(0x202e7), "their shape needs no permission");
        assert!(has_tiles_among(0x602e7));
    }
}
