//! Convert: the original becomes the deputy, after the guest's start is certain.
//!
//! Order matters twice. Every thread gives up what the kernel writes into user memory by itself
//! (rseq, robust list, clear_child_tid) before that memory goes; and the file mappings are in the
//! attic before the window covers everything, because the window's `mmap` is also what frees the
//! anonymous memory.

pub(crate) mod early;

use crate::attic::Attic;
use crate::deputy::{Deputy, DeputyError, SPARE_THREADS};
use crate::numbers::OwnTid;
use crate::queues::Queues;
use crate::server::Server;
use crate::window::Window;
use nix::errno::Errno;
use std::os::fd::{AsFd, OwnedFd};
use thiserror::Error;
use whim_image::freeze::{FreezeError, Frozen};
use whim_image::mapping::flag;
use whim_model::Syscall;
use whim_model::{
    Backing, CPU_TIMERS, CpuTimer, MemoryPolicy, PAGE_SIZE, ProcessImage, Range, Remark,
    ResourceLimit, ThreadImage,
};
use whim_sys::pidfd::Pidfd;
use whim_sys::process_vm;
use whim_sys::ptrace::{Stopped, TraceError};
use whim_sys::resident::Deck;
use whim_sys::uffd::{self, Uffd};

/// Linux 6.13
const MADV_GUARD_REMOVE: u64 = 103;
/// Arguments and environment longer than this are not kept in sight of `ps`.
const ARGUMENTS_MAX: u64 = 1 << 20;
/// Limits that a deputy must not have: its window covers the whole address space.
// Trap: a-limit-set-away
pub(crate) const RAISED: [u32; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];

#[derive(Debug, Error)]
pub enum ConvertError {
    #[error("Working in the frozen process failed: {0}")]
    Freeze(#[from] FreezeError),
    #[error(transparent)]
    Deputy(#[from] DeputyError),
    #[error("The deputy's {what} failed: {errno}")]
    Call { what: &'static str, errno: Errno },
    #[error("The file mappings do not fit the attic")]
    AtticFull,
}

fn check(what: &'static str, result: i64) -> Result<i64, ConvertError> {
    if (-4095..0).contains(&result) {
        let number = i32::try_from(-result).unwrap_or(0);
        return Err(ConvertError::Call {
            what,
            errno: Errno::from_raw(number),
        });
    }
    Ok(result)
}

/// What the deputy needs to know of the image that has left.
#[derive(Debug)]
pub struct Original {
    pub leader: OwnTid,
    pub threads: Vec<ThreadImage>,
    pub reserved: Range,
    pub kernel: Vec<Range>,
    pub arguments: Range,
    pub mappings: Vec<whim_model::Mapping>,
    pub guards: Vec<Range>,
    /// Some of its memory has a policy (`mbind`), which mappings of files keep in the attic.
    pub has_policies: bool,
    /// Memory that the process maps from now on is locked at once (MCL_FUTURE).
    pub locks_future: bool,
    /// The signals that its descriptors read (signalfd).
    pub descriptor_signals: u64,
    /// Its limits on address space and data, which a deputy does not have. Programs set them at home alone.
    pub limits: Vec<ResourceLimit>,
}

impl Original {
    #[must_use]
    pub fn of(image: &ProcessImage, locks_future: bool) -> Self {
        let kernel = image
            .mappings
            .iter()
            .filter(|mapping| matches!(mapping.backing, Backing::Kernel { .. }))
            .map(|mapping| Range {
                start: mapping.start,
                end: mapping.end,
            })
            .collect();
        let limits = image.limits.iter();
        let limits = limits.filter(|limit| RAISED.contains(&limit.resource));
        let has_policy = |remark: &Remark| remark.policy != MemoryPolicy::default();
        let layout = &image.layout;
        let start = layout.arg_start & !(PAGE_SIZE - 1);
        let end = layout
            .env_end
            .max(layout.arg_end)
            .next_multiple_of(PAGE_SIZE);
        let sensible = start != 0 && end > start && end - start <= ARGUMENTS_MAX;
        let arguments = if sensible {
            Range { start, end }
        } else {
            Range::default()
        };
        Self {
            leader: OwnTid::of_leader(image),
            threads: image.threads.clone(),
            reserved: image.reserved,
            kernel,
            arguments,
            mappings: image.mappings.clone(),
            guards: image.guards.clone(),
            has_policies: image.remarks.iter().any(has_policy),
            locks_future,
            descriptor_signals: image.descriptor_signals,
            limits: limits.copied().collect(),
        }
    }
}

/// Turns the frozen original into a serving deputy. If its control group is frozen meanwhile, that is waited
/// for. `early` is what a filtered process has made before the commit (`early_uffd`).
///
/// # Errors
/// Any refusal of the kernel. The guest runs already: the caller ends both.
pub fn convert(
    mut frozen: Frozen,
    early: Option<Uffd>,
    original: &Original,
) -> Result<Server, ConvertError> {
    // What follows is not undone if we die. The guest runs already, so the original must not go on
    // then.
    let pid = frozen.pid();
    frozen.set_exit_kill(true)?;
    frozen.outlast_frozen_groups(true);
    let leader = original.leader;
    let count = frozen.threads().len();
    let places = count + SPARE_THREADS;
    let length = Deck::length_for(places) as u64;
    let file = make_deck(&mut frozen, length)?;
    let deck = Deck::map(file.as_fd(), places).map_err(|errno| ConvertError::Call {
        what: "mapping of the deck",
        errno,
    })?;
    let code = original.reserved.start;
    let read_only = Deck::read_only_length(places) as u64;
    map_deck(&mut frozen, code, (read_only, length))?;
    let mut stops = Vec::with_capacity(count);
    // The image has the threads in the order in which they were frozen.
    for (thread, state) in frozen.into_parts()?.into_iter().zip(&original.threads) {
        let stopped = thread.into_stopped().map_err(DeputyError::Trace)?;
        stops.push((OwnTid::of(state), stopped));
    }
    let queues = queues(&stops).map_err(DeputyError::Trace)?;
    let masks = original.threads.iter().map(|thread| thread.signal_mask);
    let kept = masks.map(|mask| mask & original.descriptor_signals);
    let mut deputy = Deputy::enter((pid, leader), deck, code, stops.into_iter().zip(kept))?;
    // Trap: kernel-writes-to-gone-memory
    give_up_kernel_writes(&mut deputy, original)?;
    let seat = deputy.seat_of(leader).ok_or(DeputyError::Ended)?;
    let arguments = read_arguments(pid, original.arguments);
    let uffd = match early {
        Some(uffd) => uffd,
        None => make_uffd(&mut deputy, seat, pid)?,
    };
    let attic_start = code + length.next_multiple_of(1 << 21) + (1 << 21);
    let mut attic = Attic::new(Range {
        start: attic_start,
        end: original.reserved.end,
    });
    fill_attic(&mut deputy, seat, &mut attic, original)?;
    let mut window = Window::new(original.reserved, &original.kernel);
    open_window(&mut deputy, seat, &window, &uffd)?;
    if !arguments.is_empty() && uffd.copy(original.arguments.start, &arguments).is_ok() {
        window.pin(original.arguments);
    }
    Ok(Server::new(deputy, window, attic, uffd, queues))
}

/// The signals that wait for these threads, and for their process.
fn queues(stops: &[(OwnTid, Stopped)]) -> Result<Queues, TraceError> {
    let own = stops.iter();
    let own = own.map(|(_, thread)| thread.queued_signals(false));
    let own = own.collect::<Result<_, _>>()?;
    let shared = match stops.first() {
        Some((_, leader)) => leader.queued_signals(true)?,
        None => Vec::new(),
    };
    Ok(Queues::new(own, shared))
}

/// The memory file of the deck, made by the process itself and taken from it. This needs no path
/// and no access rights, and no descriptor stays in the program's table.
fn make_deck(frozen: &mut Frozen, length: u64) -> Result<OwnedFd, ConvertError> {
    let pid = frozen.pid();
    let scratch = frozen.scratch()?;
    process_vm::write_exact(pid, scratch.start, b"whim-deck\0").map_err(|errno| {
        ConvertError::Call {
            what: "name of the deck",
            errno,
        }
    })?;
    // Trap: the-deck-would-be-locked
    let unlock = Syscall::new(libc::SYS_munlockall, &[]);
    let create = Syscall::new(
        libc::SYS_memfd_create,
        &[scratch.start, u64::from(libc::MFD_CLOEXEC)],
    );
    let fd = check("memfd_create", frozen.run(pid, &[unlock, create])?[1])?;
    let in_process = i32::try_from(fd).unwrap_or(-1);
    let file = Pidfd::open(pid)
        .and_then(|process| process.take(in_process))
        .map_err(|errno| ConvertError::Call {
            what: "descriptor of the deck",
            errno,
        })?;
    nix::unistd::ftruncate(&file, i64::try_from(length).unwrap_or(i64::MAX)).map_err(|errno| {
        ConvertError::Call {
            what: "ftruncate of the deck",
            errno,
        }
    })?;
    // The descriptor stays open in the process until `map_deck` has mapped it; its number is kept
    // in the process's scratch memory.
    process_vm::write_exact(pid, scratch.start, &fd.to_le_bytes()).map_err(|errno| {
        ConvertError::Call {
            what: "number of the deck",
            errno,
        }
    })?;
    Ok(file)
}

fn map_deck(
    frozen: &mut Frozen,
    code: u64,
    (read_only, length): (u64, u64),
) -> Result<(), ConvertError> {
    let scratch = frozen.scratch()?;
    let mut bytes = [0; 8];
    process_vm::read_exact(frozen.pid(), scratch.start, &mut bytes).map_err(|errno| {
        ConvertError::Call {
            what: "number of the deck",
            errno,
        }
    })?;
    let fd = u64::from_le_bytes(bytes);
    let flags = flag(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    let execute = flag(libc::PROT_READ | libc::PROT_EXEC);
    let write = flag(libc::PROT_READ | libc::PROT_WRITE);
    let read = flag(libc::PROT_READ);
    let map = |from: u64, to: u64, protection: u64| {
        let args = [code + from, to - from, protection, flags, fd, from];
        Syscall::new(libc::SYS_mmap, &args)
    };
    let operations = [
        map(0, PAGE_SIZE, execute),
        map(PAGE_SIZE, read_only, read),
        map(read_only, length, write),
        Syscall::new(libc::SYS_close, &[fd]),
    ];
    for result in frozen.run(frozen.pid(), &operations)? {
        check("mapping of the deck", result)?;
    }
    Ok(())
}

fn give_up_kernel_writes(deputy: &mut Deputy, original: &Original) -> Result<(), ConvertError> {
    const RSEQ_FLAG_UNREGISTER: u64 = 1;
    // The guest has its timers on CPU time, so those here are of no use to anybody.
    let base = deputy.address(deputy.deck().data_offset());
    deputy
        .deck()
        .write_data(0, &CpuTimer::default().to_kernel());
    let mut work = Vec::new();
    for thread in &original.threads {
        let Some(seat) = deputy.seat_of(OwnTid::of(thread)) else {
            continue;
        };
        let mut batch = vec![
            Syscall::new(libc::SYS_set_robust_list, &[0, 24]),
            Syscall::new(libc::SYS_set_tid_address, &[0]),
        ];
        if let Some(rseq) = thread.rseq {
            batch.push(Syscall::new(
                libc::SYS_rseq,
                &[
                    rseq.address,
                    u64::from(rseq.length),
                    RSEQ_FLAG_UNREGISTER,
                    u64::from(rseq.signature),
                ],
            ));
        }
        if OwnTid::of(thread) == original.leader {
            batch.extend(
                CPU_TIMERS.map(|which| Syscall::new(libc::SYS_setitimer, &[which, base, 0])),
            );
        }
        work.push((seat, batch));
    }
    for results in deputy.run_each(&work)? {
        if let Some(rseq) = results.get(2) {
            check("rseq", *rseq)?;
        }
    }
    Ok(())
}

fn read_arguments(pid: i32, range: Range) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(range.len()).unwrap_or(0)];
    match process_vm::read_exact(pid, range.start, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

/// Has the deputy make a userfaultfd, and takes it.
fn make_uffd(deputy: &mut Deputy, seat: usize, pid: i32) -> Result<Uffd, ConvertError> {
    let fd = deputy.run(seat, &[userfaultfd()])?[0];
    let fd = check("userfaultfd", fd)?;
    let in_process = i32::try_from(fd).unwrap_or(-1);
    let taken = Pidfd::open(pid).and_then(|process| process.take(in_process));
    let close = Syscall::new(libc::SYS_close, &[fd.cast_unsigned()]);
    deputy.run(seat, &[close])?;
    initialize(taken.map_err(call("userfaultfd taking"))?)
}

fn userfaultfd() -> Syscall {
    const USER_MODE_ONLY: i32 = 1;
    // Trap: home-waits-with-a-lock-held
    let flags = flag(libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY);
    Syscall::new(libc::SYS_userfaultfd, &[flags])
}

fn initialize(taken: OwnedFd) -> Result<Uffd, ConvertError> {
    Uffd::initialize(taken, 0, true).map_err(call("userfaultfd handshake"))
}

fn call(what: &'static str) -> impl Fn(Errno) -> ConvertError {
    move |errno| ConvertError::Call { what, errno }
}

fn fill_attic(
    deputy: &mut Deputy,
    seat: usize,
    attic: &mut Attic,
    original: &Original,
) -> Result<(), ConvertError> {
    let storings = attic
        .store_all(&original.mappings)
        .ok_or(ConvertError::AtticFull)?;
    let mut operations = Vec::new();
    for storing in &storings {
        let length = storing.from.len();
        let how = flag(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let guards = &original.guards;
        let first = guards.partition_point(|guard| guard.end <= storing.from.start);
        let within = |guard: &&Range| guard.start < storing.from.end;
        for guard in guards[first..].iter().take_while(within) {
            // The attic shows what the file has. The guest knows where the guard pages are.
            let arguments = [guard.start, guard.len(), MADV_GUARD_REMOVE];
            let remove = Syscall::new(libc::SYS_madvise, &arguments);
            operations.push((remove, "removal of guard pages"));
        }
        // Before it moves: then no page has to move with it.
        operations.push((
            Syscall::new(
                libc::SYS_madvise,
                &[storing.from.start, length, flag(libc::MADV_DONTNEED)],
            ),
            "release",
        ));
        operations.push((
            Syscall::new(
                libc::SYS_mremap,
                &[storing.from.start, length, length, how, storing.to],
            ),
            "mremap into the attic",
        ));
    }
    let list: Vec<Syscall> = operations.iter().map(|(operation, _)| *operation).collect();
    let results = deputy.run(seat, &list)?;
    for ((_, what), result) in operations.into_iter().zip(results) {
        check(what, result)?;
    }
    Ok(())
}

fn open_window(
    deputy: &mut Deputy,
    seat: usize,
    window: &Window,
    uffd: &Uffd,
) -> Result<(), ConvertError> {
    raise_limits(deputy, seat)?;
    let flags =
        flag(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED);
    let protection = flag(libc::PROT_READ | libc::PROT_WRITE);
    let mut operations = Vec::new();
    for piece in window.pieces() {
        operations.push(Syscall::new(
            libc::SYS_mmap,
            &[piece.start, piece.len(), protection, flags, u64::MAX, 0],
        ));
        for advice in [libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
            operations.push(Syscall::new(
                libc::SYS_madvise,
                &[piece.start, piece.len(), flag(advice)],
            ));
        }
    }
    for (index, result) in deputy.run(seat, &operations)?.into_iter().enumerate() {
        // madvise may be compiled out (NOHUGEPAGE): it is an optimisation, the mapping is not.
        if index % 3 == 0 {
            check("mapping of the window", result)?;
        }
    }
    for piece in window.pieces() {
        uffd.register(piece.start, piece.len(), uffd::Mode::MissingAndProtected)
            .map_err(|errno| ConvertError::Call {
                what: "registration of the window",
                errno,
            })?;
    }
    Ok(())
}

/// A soft limit on address space or data would refuse the window. The program's own limits come
/// back with its image, when it returns.
fn raise_limits(deputy: &mut Deputy, seat: usize) -> Result<(), ConvertError> {
    let data = deputy.address(deputy.deck().data_offset());
    for resource in RAISED {
        let read = Syscall::new(libc::SYS_prlimit64, &[0, u64::from(resource), 0, data]);
        check("prlimit", deputy.run(seat, &[read])?[0])?;
        let mut limit = [0; 16];
        deputy.deck().read_data(0, &mut limit);
        let (soft, hard) = limit.split_at_mut(8);
        soft.copy_from_slice(hard);
        deputy.deck().write_data(0, &limit);
        let write = Syscall::new(libc::SYS_prlimit64, &[0, u64::from(resource), data, 0]);
        check("prlimit", deputy.run(seat, &[write])?[0])?;
    }
    Ok(())
}
