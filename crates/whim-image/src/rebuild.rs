//! Rebuild: a blank process becomes the process of an image.
//!
//! The blank process is an exec of [`stub::program`], seized and stopped at its first instruction.
//! Everything is done by the process itself: its supervisor writes lists of system calls into it
//! and lets them run ([`runner`]). Order (`map`, contents, `complete`):
//!
//! 1. the reserved range is taken, code and lists move into it;
//! 2. vDSO and its kin move to the image's addresses (or a copy of home's takes their place, see
//!    [`crate::vdso`]), the stub is unmapped, the mappings are made;
//! 3. pages are written; file mappings are left to a userfaultfd;
//! 4. layout, actions, limits, threads, and in each thread its own registrations;
//! 5. the filter, last, because from then on calls are reported;
//! 6. registers and masks. The threads stay stopped until they are resumed.

mod address_space;
pub mod runner;
mod said;
mod sound;
pub mod stub;
mod threads;

use crate::mapping::flag;
use crate::maps::FlagTable;
use crate::settings;
use crate::vdso::{self, Proxy, VdsoError};
pub use address_space::STACK_ROOM;
use nix::errno::Errno;
use runner::{Arguments, Runner, RunnerError, check};
pub use sound::check_image;
use std::os::fd::OwnedFd;
use stub::Place;
use thiserror::Error;
pub use threads::THREADS_MAX;
use whim_model::Syscall;
use whim_model::{
    Backing, Mapping, MemoryLayout, PAGE_SIZE, ProcessImage, Range, Registers, SignalAction,
};
use whim_sys::pidfd;
use whim_sys::process_vm::{self, MemFile};
use whim_sys::procmap::{Entry, Maps, ProcmapError};
use whim_sys::ptrace::{Options, Running, Stopped, TraceError, Waited};
use whim_sys::pulse;
use whim_sys::seccomp::{self, Listener, Response, SeccompError};
use whim_sys::uffd::{self, Uffd};

const PR_SET_MM_MAP: u64 = 14;
const PR_SET_THP_DISABLE: u64 = 41;
const SIGNALS: usize = 64;

/// Options under which a blank process is seized.
#[must_use]
pub fn trace_options() -> Options {
    Options::SYSGOOD | Options::TRACE_CLONE | Options::TRACE_EXEC | Options::EXITKILL
}

#[derive(Debug, Error)]
pub enum RebuildError {
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error("Tracing the blank process failed: {0}")]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Maps(#[from] ProcmapError),
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    #[error(
        "This host's kernel has no mapping {name} of the size that home's has, though their vDSOs are equal"
    )]
    KernelMapping { name: String },
    #[error(transparent)]
    Vdso(#[from] VdsoError),
    #[error(
        "Thread {0} is in the middle of its kernel's own code, and this host's kernel is another one: try again"
    )]
    InVdso(i32),
    #[error(
        "A signal has met the process at the beginning of its kernel's own code, and this host's kernel is another one: try again when its handler is done"
    )]
    Remembered,
    #[error(
        "This host's kernel has sealed its vDSO at {0:#x}, where the program has memory: try again, the next place is another one"
    )]
    InTheWay(u64),
    #[error(
        "Its memory is to lie on memory nodes that this host does not have so (nodes {nodes:#x}, policy {mode:#x})"
    )]
    Nodes { nodes: u64, mode: u32 },
    #[error("The image is not sound: {0}")]
    Unsound(String),
    #[error("Page {address:#x} of the image cannot be written: {errno}")]
    Page { address: u64, errno: Errno },
    #[error("{what} failed: {errno}")]
    Os { what: &'static str, errno: Errno },
    #[error(
        "The host's CPU does not take the thread's vector registers ({0}): it is of another class"
    )]
    Registers(TraceError),
    #[error(
        "The process may have {wanted} bytes of {what}, and what the host's daemon was started with allows a guest {limit} at most (ulimit -H there)"
    )]
    Limit {
        what: &'static str,
        wanted: u64,
        limit: u64,
    },
}

/// A blank process, seized and stopped at the beginning of the stub.
#[derive(Debug)]
pub struct Blank {
    leader: Stopped,
    runner: Runner,
    /// vDSO and its kin.
    kernel: Vec<Entry>,
}

impl Blank {
    /// Takes over a process that has executed the stub and stopped at its first instruction.
    ///
    /// # Errors
    /// It is not such a process.
    pub fn new(leader: Stopped) -> Result<Self, RebuildError> {
        let pid = leader.tid();
        let runner = Runner::new(pid, Place::INITIAL);
        if !runner.is_end(&leader)? {
            return Err(runner::unexpected(&leader).into());
        }
        let mut kernel = Maps::open(pid)?.all()?;
        kernel.retain(|entry| is_kernel_name(&entry.name));
        Ok(Self {
            leader,
            runner,
            kernel,
        })
    }

    /// Waits for the first stop of a process that is about to execute the stub, exec included.
    ///
    /// # Errors
    /// The process ended instead.
    pub fn await_stub(running: Running) -> Result<Self, RebuildError> {
        let mut running = running;
        loop {
            let stopped = runner::stopped(running.wait()?)?;
            let runner = Runner::new(stopped.tid(), Place::INITIAL);
            if runner.is_end(&stopped)? {
                return Self::new(stopped);
            }
            running = stopped.resume(0)?;
        }
    }

    /// Process id, in our own pid namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.runner.pid
    }

    /// Makes the blank process create a userfaultfd for its memory, and takes it over. `device` is
    /// the number of an open `/dev/userfaultfd` in that process; without it the kernel may restrict
    /// us to faults of user mode.
    ///
    /// # Errors
    /// The kernel refuses both ways.
    pub fn userfault(self, device: Option<i32>) -> Result<(Self, Uffd), RebuildError> {
        let flags = u64::from((libc::O_CLOEXEC | libc::O_NONBLOCK).cast_unsigned());
        let for_user_mode = [flags | uffd::USER_MODE_ONLY];
        let mut ways = vec![
            (Syscall::new(libc::SYS_userfaultfd, &[flags]), false),
            (Syscall::new(libc::SYS_userfaultfd, &for_user_mode), true),
        ];
        if let Some(device) = device {
            let number = u64::from(device.cast_unsigned());
            let by_device = Syscall::new(libc::SYS_ioctl, &[number, uffd::IOC_NEW, flags]);
            ways.insert(0, (by_device, false));
        }
        let mut blank = self;
        let (mut result, mut user_mode_only) = (-i64::from(libc::EPERM), true);
        for (way, lesser) in ways {
            let (back, results) = blank.run(&[way])?;
            (blank, result, user_mode_only) = (back, results[0], lesser);
            if result >= 0 {
                break;
            }
        }
        let number = check("userfaultfd", result)?;
        let descriptor = fetch_descriptor(blank.pid(), number)?;
        let device = device.map_or(number, |device| u64::from(device.cast_unsigned()));
        let close = [number, device].map(|fd| Syscall::new(libc::SYS_close, &[fd]));
        let (blank, _) = blank.run(&close)?;
        let features = uffd::FEATURE_EVENT_REMAP | uffd::FEATURE_EVENT_UNMAP;
        let uffd = Uffd::initialize(descriptor, features, user_mode_only);
        let uffd = uffd.map_err(|errno| RebuildError::Os {
            what: "The handshake with userfaultfd",
            errno,
        })?;
        Ok((blank, uffd))
    }

    /// Lets the blank process make system calls; returns their results.
    ///
    /// # Errors
    /// It ended, or stopped for another reason.
    pub fn run(self, list: &[Syscall]) -> Result<(Self, Vec<i64>), RebuildError> {
        let Self {
            leader,
            runner,
            kernel,
        } = self;
        let (leader, results) = runner.run(leader, list)?;
        let blank = Self {
            leader,
            runner,
            kernel,
        };
        Ok((blank, results))
    }

    /// What the kernel itself has mapped in it: its vDSO and the vDSO's data.
    #[must_use]
    pub fn kernel(&self) -> &[Entry] {
        &self.kernel
    }

    /// Gives the process the image's mappings, without contents; file mappings are registered with
    /// `uffd`, whose faults must be served from now on. With `own_vdso` the host's vDSO is used if
    /// it is the same as home's; without it, never.
    ///
    /// # Errors
    /// The image is not sound, or the kernel refuses a mapping (no memory).
    pub fn map(
        self,
        image: &ProcessImage,
        uffd: &Uffd,
        own_vdso: bool,
    ) -> Result<Mapped, RebuildError> {
        check_image(image)?;
        let sealed = self.sealed(image)?;
        let proxy = if own_vdso && sealed.is_empty() && self.has_vdso_of(image)? {
            None
        } else {
            Proxy::of(image)?
        };
        if let Some(proxy) = &proxy {
            let mut threads = image.threads.iter();
            if let Some(thread) = threads.find(|thread| proxy.stands_in(thread.registers.rip)) {
                return Err(RebuildError::InVdso(thread.tid));
            }
        }
        let mut moves = match proxy {
            Some(_) => Vec::new(),
            None => address_space::kernel_moves(image, &self.kernel)?,
        };
        let way = address_space::make_way(&mut moves, image.reserved);
        let (leader, runner) = (self.leader, self.runner);
        let leader = take_steps(leader, &runner, &way)?;
        let (leader, runner) = settle((leader, runner), image.reserved)?;
        let mut operations = address_space::operations(image, &moves, &sealed, runner.place);
        operations.extend(proxy.iter().flat_map(address_space::proxy_steps));
        let leader = take_steps(leader, &runner, &operations)?;
        let leader = match &proxy {
            Some(proxy) => write_proxy(leader, &runner, proxy)?,
            None => leader,
        };
        let leader = said::say(leader, &runner, image)?;
        for range in address_space::file_ranges(&image.mappings) {
            pulse::advance();
            uffd.register(range.start, range.len(), uffd::Mode::MissingAndProtected)
                .map_err(|errno| RebuildError::Os {
                    what: "Registering a file mapping",
                    errno,
                })?;
        }
        let memory = MemFile::open(runner.pid).map_err(|error| RebuildError::Os {
            what: "Opening the blank process's memory",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        Ok(Mapped {
            leader,
            runner,
            memory,
            proxy,
        })
    }

    /// Whether the image's home has exactly the vDSO that this host has.
    fn has_vdso_of(&self, image: &ProcessImage) -> Result<bool, RebuildError> {
        let own = self.kernel.iter().find(|entry| entry.name == "[vdso]");
        let Some(own) = own else {
            return Ok(image.vdso.is_empty());
        };
        let range = Range {
            start: own.start,
            end: own.end,
        };
        Ok(vdso::read(self.runner.pid, range)? == image.vdso)
    }

    /// Mappings of the kernel that cannot be moved (Linux 6.16, by configuration). Fails if the
    /// image has no room for them.
    fn sealed(&self, image: &ProcessImage) -> Result<Vec<Range>, RebuildError> {
        let flags = FlagTable::read(self.runner.pid).map_err(VdsoError::from)?;
        let ranges = self.kernel.iter().map(|entry| Range {
            start: entry.start,
            end: entry.end,
        });
        let sealed: Vec<Range> = ranges.filter(|range| flags.of(*range).sealed).collect();
        if sealed.is_empty() {
            return Ok(sealed);
        }
        let wanted = address_space::with_room(image);
        for range in &sealed {
            let taken = |mapping: &Mapping| mapping.start < range.end && range.start < mapping.end;
            if range.overlaps(image.reserved) || wanted.iter().any(taken) {
                return Err(RebuildError::InTheWay(range.start));
            }
        }
        Ok(sealed)
    }
}

/// Has the process make these calls, and looks at the results of those that matter.
fn take_steps(
    leader: Stopped,
    runner: &Runner,
    steps: &[address_space::Step],
) -> Result<Stopped, RebuildError> {
    let list: Vec<Syscall> = steps.iter().map(|(operation, _)| *operation).collect();
    let (leader, results) = runner.run(leader, &list)?;
    for ((_, what), result) in steps.iter().zip(results) {
        if let Some(what) = what {
            check(what, result)?;
        }
    }
    Ok(leader)
}

/// Moves code and lists into the reserved range, which no image uses.
fn settle(
    (leader, runner): (Stopped, Runner),
    reserved: Range,
) -> Result<(Stopped, Runner), RebuildError> {
    let place = Place::at(reserved.end - Place::LENGTH.next_multiple_of(1 << 21));
    let flags =
        flag(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED);
    let map = |start: u64, length: u64, protection: i32| {
        let protection = flag(protection);
        Syscall::new(
            libc::SYS_mmap,
            &[start, length, protection, flags, u64::MAX, 0],
        )
    };
    let write = libc::PROT_READ | libc::PROT_WRITE;
    let list = [
        map(reserved.start, reserved.len(), libc::PROT_NONE),
        map(place.code, Place::LENGTH, write),
    ];
    let (leader, results) = runner.run(leader, &list)?;
    for result in results {
        check("Taking the reserved range", result)?;
    }
    process_vm::write_exact(runner.pid, place.code, stub::code()).map_err(|errno| {
        RebuildError::Page {
            address: place.code,
            errno,
        }
    })?;
    let execute = flag(libc::PROT_READ | libc::PROT_EXEC);
    let protect = Syscall::new(libc::SYS_mprotect, &[place.code, PAGE_SIZE, execute]);
    let (leader, results) = runner.run(leader, &[protect])?;
    check("mprotect", results[0])?;
    Ok((leader, Runner::new(runner.pid, place)))
}

/// A process with the image's mappings, still without contents.
#[derive(Debug)]
pub struct Mapped {
    leader: Stopped,
    runner: Runner,
    memory: MemFile,
    proxy: Option<Proxy>,
}

impl Mapped {
    /// Process id, in our own pid namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.runner.pid
    }

    /// Writes whole pages at `address`, all of one mapping.
    ///
    /// # Errors
    /// No memory, or the pages are in no mapping.
    pub fn write_pages(
        &self,
        mapping: &Mapping,
        uffd: &Uffd,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), RebuildError> {
        let failed = |errno| RebuildError::Page { address, errno };
        let proxy = self.proxy.as_ref();
        if mapping.protection.writable() && proxy.is_some_and(|proxy| proxy.is_remembered(bytes)) {
            return Err(RebuildError::Remembered);
        }
        match mapping.backing {
            Backing::File { .. } => place_pages(uffd, address, bytes).map_err(failed),
            Backing::Anonymous if mapping.protection.writable() => {
                process_vm::write_exact(self.runner.pid, address, bytes).map_err(failed)
            }
            Backing::Anonymous => self.memory.write_all(address, bytes).map_err(|error| {
                failed(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
            }),
            Backing::Kernel { .. } => Err(RebuildError::Unsound(format!(
                "a page of the kernel's mapping at {address:#x}"
            ))),
        }
    }

    /// Does everything else; `filter` is a seccomp program, 8 bytes per instruction. The threads
    /// stay stopped, ready to be resumed.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn complete(self, image: &ProcessImage, filter: &[u8]) -> Result<Rebuilt, RebuildError> {
        let Self {
            leader,
            runner,
            proxy,
            ..
        } = self;
        let leader = set_process_state(leader, &runner, image)?;
        let mut stopped = threads::create(leader, &runner, &image.threads)?;
        threads::register_all(&mut stopped, &runner, image)?;
        threads::queue_signals(&mut stopped, &runner, image)?;
        threads::start_timers(&mut stopped, &runner, image)?;
        let mut others = stopped.split_off(1);
        let Some(leader) = stopped.pop() else {
            return Err(RebuildError::Unsound("no thread".into()));
        };
        let (leader, listener) = install_filter(leader, &runner, image, filter)?;
        others.insert(0, leader);
        for (thread, state) in others.iter().zip(&image.threads) {
            pulse::advance();
            thread
                .set_xstate(&state.xstate)
                .map_err(RebuildError::Registers)?;
            thread.set_registers(&raw_registers(&state.registers))?;
            thread.set_signal_mask(state.signal_mask)?;
        }
        let threads = others
            .into_iter()
            .zip(&image.threads)
            .map(|(stopped, state)| RebuiltThread {
                tid: state.tid,
                stopped,
            })
            .collect();
        Ok(Rebuilt {
            threads,
            listener,
            runner,
            proxy,
        })
    }
}

/// A thread, stopped where the image says.
#[derive(Debug)]
pub struct RebuiltThread {
    /// In the process's own pid namespace.
    pub tid: i32,
    pub stopped: Stopped,
}

/// The process of the image, all threads stopped.
#[derive(Debug)]
pub struct Rebuilt {
    /// The leader first.
    pub threads: Vec<RebuiltThread>,
    /// Where its calls are reported.
    pub listener: Listener,
    /// For work in the frozen process later on.
    pub runner: Runner,
    /// Where it has a copy of home's vDSO.
    pub proxy: Option<Proxy>,
}

fn write_proxy(leader: Stopped, runner: &Runner, proxy: &Proxy) -> Result<Stopped, RebuildError> {
    let (range, bytes) = proxy.contents();
    process_vm::write_exact(runner.pid, range.start, bytes).map_err(|errno| {
        RebuildError::Page {
            address: range.start,
            errno,
        }
    })?;
    let execute = flag(libc::PROT_READ | libc::PROT_EXEC);
    let protect = Syscall::new(libc::SYS_mprotect, &[range.start, range.len(), execute]);
    let (leader, results) = runner.run(leader, &[protect])?;
    check("mprotect", results[0])?;
    Ok(leader)
}

/// Places pages in a registered range; pages that are present already stay.
///
/// # Errors
/// ENOMEM; ENOENT when the range is not registered.
pub fn place_pages(uffd: &Uffd, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let page = usize::try_from(PAGE_SIZE).unwrap_or(4096);
    let mut done = 0;
    while done < bytes.len() {
        match uffd.copy(address + done as u64, &bytes[done..])? {
            uffd::Placed::Whole => return Ok(()),
            uffd::Placed::UntilPresent(count) => {
                let count = usize::try_from(count).unwrap_or(0);
                // Go on behind the page that is there.
                done += count + if count == 0 { page } else { 0 };
            }
            uffd::Placed::Again(count) => {
                done += usize::try_from(count).unwrap_or(0);
                std::thread::yield_now();
            }
            uffd::Placed::Gone => return Err(Errno::ENOENT),
        }
    }
    Ok(())
}

/// Whether a mapping of this name is the kernel's own and moves by `mremap`.
#[must_use]
pub fn is_kernel_name(name: &str) -> bool {
    matches!(name, "[vdso]" | "[vvar]" | "[vvar_vclock]")
}

/// Registers for PTRACE_SETREGS; no system call is pending behind them.
#[must_use]
pub fn raw_registers(registers: &Registers) -> Registers {
    Registers {
        orig_rax: u64::MAX,
        ..*registers
    }
}

fn fetch_descriptor(pid: i32, number: u64) -> Result<OwnedFd, RebuildError> {
    let number = i32::try_from(number).unwrap_or(-1);
    pidfd::take_descriptor(pid, number).map_err(|errno| RebuildError::Os {
        what: "Taking a descriptor of the blank process",
        errno,
    })
}

/// Layout, personality, actions and limits. Handlers cannot run yet: nobody sends signals.
fn set_process_state(
    leader: Stopped,
    runner: &Runner,
    image: &ProcessImage,
) -> Result<Stopped, RebuildError> {
    let mut arguments = runner.arguments();
    let mut list = vec![layout_operation(&image.layout, &mut arguments)];
    list.push(Syscall::new(
        libc::SYS_personality,
        &[image.personality & 0xffff_ffff],
    ));
    if image.no_transparent_huge_pages {
        list.push(Syscall::new(libc::SYS_prctl, &[PR_SET_THP_DISABLE, 1]));
    }
    list.extend(limit_operations(image, &mut arguments)?);
    let barriers = list.len();
    list.extend(settings::set_barriers(image.barriers));
    let denied = list.len();
    // Behind everything that maps memory, and before the program's first instruction.
    if image.denies_memory != 0 {
        // Trap: what-a-program-denies-itself
        list.push(settings::deny(image.denies_memory));
    }
    let required = list.len();
    for (index, action) in image.actions.iter().enumerate() {
        // The defaults are set too, because the blank process has inherited what its supervisor
        // ignores (SIGPIPE).
        if !is_special(index) {
            list.push(action_operation(index, action, &mut arguments));
        }
    }
    runner.store(&arguments)?;
    let (leader, results) = runner.run(leader, &list)?;
    check("Setting the memory layout", results[0])?;
    check("personality", results[1])?;
    for result in &results[barriers..denied] {
        check("Registering for memory barriers", *result)?;
    }
    for result in &results[denied..required] {
        check("Denying memory both writable and executable", *result)?;
    }
    for result in &results[required..] {
        check("rt_sigaction", *result)?;
    }
    Ok(leader)
}

/// Signals whose action cannot be set, or (SIGTRAP) is set last, because the runner depends on it.
fn is_special(index: usize) -> bool {
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGTRAP]
        .iter()
        .any(|signal| usize::try_from(*signal).is_ok_and(|signal| signal == index + 1))
}

fn action_operation(index: usize, action: &SignalAction, arguments: &mut Arguments) -> Syscall {
    let mut bytes = [0; 32];
    bytes[0..8].copy_from_slice(&action.handler.to_le_bytes());
    bytes[8..16].copy_from_slice(&action.flags.to_le_bytes());
    bytes[16..24].copy_from_slice(&action.restorer.to_le_bytes());
    bytes[24..32].copy_from_slice(&action.mask.to_le_bytes());
    let address = arguments.add(&bytes);
    Syscall::new(libc::SYS_rt_sigaction, &[index as u64 + 1, address, 0, 8])
}

fn layout_operation(layout: &MemoryLayout, arguments: &mut Arguments) -> Syscall {
    // The kernel keeps at most 2 * AT_VECTOR_SIZE words; more is refused as a whole.
    let auxv = arguments.add(&layout.auxv);
    let fields = [
        layout.start_code,
        layout.end_code,
        layout.start_data,
        layout.end_data,
        layout.start_brk,
        layout.brk,
        layout.start_stack,
        layout.arg_start,
        layout.arg_end,
        layout.env_start,
        layout.env_end,
        auxv,
    ];
    let mut bytes: Vec<u8> = fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect();
    let length = u32::try_from(layout.auxv.len()).unwrap_or(0);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    let address = arguments.add(&bytes);
    let what = flag(libc::PR_SET_MM);
    Syscall::new(
        libc::SYS_prctl,
        &[what, PR_SET_MM_MAP, address, bytes.len() as u64, 0],
    )
}

/// Limits that the guest's own kernel applies to it. The host's hard limits stay above them.
fn limit_operations(
    image: &ProcessImage,
    arguments: &mut Arguments,
) -> Result<Vec<Syscall>, RebuildError> {
    let local = [
        libc::RLIMIT_STACK,
        libc::RLIMIT_DATA,
        libc::RLIMIT_AS,
        libc::RLIMIT_MEMLOCK,
    ];
    let mut list = Vec::new();
    for limit in &image.limits {
        if !local.contains(&limit.resource) {
            continue;
        }
        let mut soft = limit.soft;
        if limit.resource == libc::RLIMIT_DATA && soft != 0 && soft != u64::MAX {
            // Of our own memory this is what is private and can be written. Whatever shows a file is as it is at
            // home: memory that can be written is private there too. No limit at all but the hard one is said
            // by 0, and stays that.
            // Trap: our-data-counts
            soft = soft.saturating_add(stub::DATA_LENGTH);
        }
        if limit.resource == libc::RLIMIT_AS && soft != u64::MAX {
            // The reserved range is not memory of the program, nor what its stack has not grown by.
            // Trap: room-counts
            let beside = image.reserved.len() + address_space::room(image);
            soft = soft.saturating_add(beside);
        }
        let Ok(resource) = nix_resource(limit.resource) else {
            continue;
        };
        let hard = nix::sys::resource::getrlimit(resource).map_or(soft, |(_, hard)| hard);
        if limit.resource == libc::RLIMIT_MEMLOCK {
            // Home has applied its own limit when the memory was locked.
            soft = hard;
        }
        // With a lower limit the guest would be killed where at home it would go on.
        if soft > hard {
            return Err(RebuildError::Limit {
                what: match limit.resource {
                    libc::RLIMIT_STACK => "stack",
                    libc::RLIMIT_DATA => "data",
                    _ => "address space",
                },
                wanted: soft,
                limit: hard,
            });
        }
        let mut bytes = [0; 16];
        bytes[0..8].copy_from_slice(&soft.to_le_bytes());
        bytes[8..16].copy_from_slice(&hard.to_le_bytes());
        let address = arguments.add(&bytes);
        list.push(Syscall::new(
            libc::SYS_prlimit64,
            &[0, u64::from(limit.resource), address, 0],
        ));
    }
    // Cores are written at home, where a fatal signal is delivered. A limit of 1 byte, unlike 0,
    // also keeps the kernel from calling the host's core handler.
    let one = 1u64.to_le_bytes();
    let none = arguments.add(&[one, one].concat());
    list.push(Syscall::new(
        libc::SYS_prlimit64,
        &[0, u64::from(libc::RLIMIT_CORE), none, 0],
    ));
    Ok(list)
}

fn nix_resource(number: u32) -> Result<nix::sys::resource::Resource, Errno> {
    use nix::sys::resource::Resource;
    match number {
        libc::RLIMIT_STACK => Ok(Resource::RLIMIT_STACK),
        libc::RLIMIT_DATA => Ok(Resource::RLIMIT_DATA),
        libc::RLIMIT_AS => Ok(Resource::RLIMIT_AS),
        libc::RLIMIT_MEMLOCK => Ok(Resource::RLIMIT_MEMLOCK),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets SIGTRAP's action, then installs the filter. The action is set only here, because up to here
/// the runner depends on SIGTRAP: an ignored SIGTRAP would be reset by the next `int3`. From here
/// on calls are stepped instead.
fn install_filter(
    leader: Stopped,
    runner: &Runner,
    image: &ProcessImage,
    filter: &[u8],
) -> Result<(Stopped, Listener), RebuildError> {
    let mut arguments = runner.arguments();
    let program = arguments.add(filter);
    let count = u16::try_from(filter.len() / 8)
        .map_err(|_| RebuildError::Unsound("a filter that is too long".into()))?;
    let mut header = [0; 16];
    header[0..2].copy_from_slice(&count.to_le_bytes());
    header[8..16].copy_from_slice(&program.to_le_bytes());
    let header = arguments.add(&header);
    let trap_index = usize::try_from(libc::SIGTRAP - 1).unwrap_or(4);
    let trap = image.actions[trap_index];
    let trap_operation = action_operation(trap_index, &trap, &mut arguments);
    runner.store(&arguments)?;
    let mut leader = leader;
    if trap != SignalAction::default() {
        // Trap: trap-resets-its-action
        let (back, result) = runner.step(leader, &trap_operation)?;
        check("rt_sigaction", result)?;
        leader = back;
    }
    let install = Syscall::new(
        libc::SYS_seccomp,
        // Trap: signals-cancel-reported-calls
        &[seccomp::SET_MODE_FILTER, seccomp::FILTER_FLAGS, header],
    );
    let (leader, result) = runner.step(leader, &install)?;
    let number = check("Installing the system call filter", result)?;
    let listener = Listener::from_descriptor(fetch_descriptor(runner.pid, number)?);
    // Waking the guest on our CPU saves a wake-up across CPUs; older kernels cannot.
    let _ = listener.prefer_same_cpu();
    let leader = close_under_filter(leader, runner, &listener, number)?;
    Ok((leader, listener))
}

/// Closes the guest's own copy of the listener: the filter reports the call to us.
fn close_under_filter(
    leader: Stopped,
    runner: &Runner,
    listener: &Listener,
    number: u64,
) -> Result<Stopped, RebuildError> {
    let before = leader.registers()?;
    let close = Syscall::new(libc::SYS_close, &[number]);
    leader.set_registers(&runner::step_registers(&before, runner.place.one(), &close))?;
    let entry = leader.resume_to_syscall(0)?.wait()?;
    let Waited::Stopped(entry) = entry else {
        return Err(RunnerError::Ended { tid: runner.pid }.into());
    };
    let running = entry.resume_to_syscall(0)?;
    if let Some(notification) = listener.receive()? {
        listener.respond(notification.id, Response::Continue)?;
    }
    let exit = runner::stopped(running.wait()?)?;
    check("close", exit.registers()?.rax.cast_signed())?;
    Ok(exit)
}
