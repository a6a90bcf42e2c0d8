//! Home again: the deputy's address space becomes that of the returning guest, and its threads go
//! on where the guest's threads stopped.

pub(crate) mod error;
mod requeue;
mod resume;

pub use error::HomewardError;
pub use requeue::requeue;
pub use resume::{Resumption, resume_at_home, resumption};

use crate::attic::Attic;
use crate::convert::Original;
use crate::deputy::waiting::Waiting;
use crate::deputy::{Deputy, DeputyEvent};
use crate::held::HeldSignal;
use crate::numbers::OwnTid;
use crate::remarks;
use crate::server::Server;
use crate::server::timers;
use nix::errno::Errno;
use std::collections::BTreeSet;
use whim_image::freeze_filters::are_filtered;
use whim_image::mapping::{advise, flag, map};
use whim_image::settings;
use whim_model::{
    Backing, CPU_TIMERS, MADV_GUARD_INSTALL, Mapping, PAGE_SIZE, ProcessImage, Range, SignalAction,
    Syscall, ThreadImage,
};
use whim_sys::crash;
use whim_sys::kernel_file;
use whim_sys::process_vm;
use whim_sys::resident;

/// The most mappings that a returning image may have.
const MAPPINGS_MAX: usize = 1 << 18;
/// Bytes of the deck's data that describe one thread's alternate stack and the nodes of its memory policy,
/// and how many threads are described at a time.
const PLACE: usize = 32;
const AT_ONCE: usize = resident::DATA_LENGTH / PLACE;

/// Checks everything of an image that a lying host could use against home's supervisor. To the
/// process itself the host may do anything: that is the stated limit.
///
/// # Errors
/// The first fault found.
pub fn check_image(
    image: &ProcessImage,
    original: &Original,
    server: &Server,
) -> Result<(), HomewardError> {
    let deputy = &server.deputy;
    check_memory(image, original.reserved, &original.kernel, &server.attic)?;
    if image.threads.is_empty() {
        return Err(HomewardError::Unsound("no thread".into()));
    }
    let mut seen = BTreeSet::new();
    for thread in &image.threads {
        let seat = deputy.seat_of(OwnTid::of(thread));
        if seat.is_none_or(|seat| deputy.is_gone(seat)) || !seen.insert(thread.tid) {
            return Err(HomewardError::Unsound(format!("thread {}", thread.tid)));
        }
    }
    Ok(())
}

/// Checks all of an image but its threads, which only the deputy knows.
pub(crate) fn check_memory(
    image: &ProcessImage,
    reserved: Range,
    kernel: &[Range],
    attic: &Attic,
) -> Result<(), HomewardError> {
    let unsound = |what: String| Err(HomewardError::Unsound(what));
    if image.mappings.len() > MAPPINGS_MAX {
        return unsound(format!("{} mappings", image.mappings.len()));
    }
    let mut at = 0;
    for mapping in &image.mappings {
        let aligned = mapping.start % PAGE_SIZE == 0 && mapping.end % PAGE_SIZE == 0;
        if !aligned || mapping.start < at || mapping.end <= mapping.start {
            return unsound(format!("mapping {:#x}-{:#x}", mapping.start, mapping.end));
        }
        if mapping.end > 1 << 47 || (mapping.protection.0 & !7) != 0 {
            return unsound(format!("mapping {:#x}-{:#x}", mapping.start, mapping.end));
        }
        at = mapping.end;
        let range = Range {
            start: mapping.start,
            end: mapping.end,
        };
        if range.overlaps(reserved) {
            return unsound(format!(
                "mapping {:#x} in the reserved range",
                mapping.start
            ));
        }
        match &mapping.backing {
            Backing::File { id, offset } => {
                if attic.locate(*id, *offset, mapping.len()).is_none() {
                    return unsound(format!("file mapping {} at {offset:#x}", id.0));
                }
            }
            Backing::Anonymous => {
                if kernel.iter().any(|kernel| kernel.overlaps(range)) {
                    return unsound(format!("mapping {:#x} over the vDSO", mapping.start));
                }
            }
            Backing::Kernel { .. } => {}
        }
    }
    if !image.has_sound_remarks(reserved) {
        return unsound("remarks on memory that is not its own".into());
    }
    if !image.has_sound_guards() {
        return unsound("guard pages outside of its mappings".into());
    }
    if image.actions.len() != 64 {
        return unsound(format!("{} signal actions", image.actions.len()));
    }
    Ok(())
}

/// Ends every call in flight. The server keeps the results; calls that had no effect end with -51x.
///
/// # Errors
/// A call cannot be interrupted; the process ended.
pub fn quiesce(server: &mut Server, held: &mut Vec<HeldSignal>) -> Result<(), HomewardError> {
    let mut waiting = Waiting::begin();
    server.interrupt_all()?;
    loop {
        let active = server.active_seats();
        let Some(&first) = active.first() else {
            return Ok(());
        };
        match server.deputy.next_event()? {
            Some(DeputyEvent::Finished(seat)) => server.finished(seat)?,
            Some(DeputyEvent::Signal { seat, signal, info }) => {
                held.push(server.held(seat, signal, info));
            }
            Some(DeputyEvent::ProcessGone(_)) => return Err(HomewardError::Ended),
            Some(_) => {}
            None => {
                for seat in active {
                    server.finished(seat)?;
                }
                if server.deputy.is_late(&mut waiting, error::QUIET_WITHIN)? {
                    return Err(HomewardError::Busy(server.deputy.traced_as(first)));
                }
                std::thread::yield_now();
            }
        }
    }
}

/// Masks all signals in every deputy thread. From then on the kernel keeps them pending until the
/// threads run with their own masks again.
///
/// # Errors
/// The deputy is lost.
pub fn mask_signals(deputy: &mut Deputy) -> Result<(), HomewardError> {
    deputy.deck().write_data(0, &u64::MAX.to_le_bytes());
    let data = deputy.address(deputy.deck().data_offset());
    let set = Syscall::new(libc::SYS_rt_sigprocmask, &[2, data, 0, 8]);
    let work: Vec<_> = (0..deputy.thread_count())
        .filter(|seat| !deputy.is_gone(*seat))
        .map(|seat| (seat, vec![set]))
        .collect();
    deputy.run_each(&work)?;
    Ok(())
}

/// The operations that give the deputy the image's mappings: the required ones first, then those
/// whose failure costs speed alone.
#[must_use]
pub fn mapping_operations(image: &ProcessImage, attic: &Attic) -> (Vec<Syscall>, Vec<Syscall>) {
    let mut required = Vec::new();
    let mut wished = Vec::new();
    for mapping in &image.mappings {
        match &mapping.backing {
            Backing::Kernel { .. } => continue,
            Backing::Anonymous => {
                required.push(map(mapping, mapping.end));
                wished.extend(advise(mapping, mapping.end));
            }
            Backing::File { id, offset } => {
                let Some(from) = attic.locate(*id, *offset, mapping.len()) else {
                    continue;
                };
                let how = flag(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
                required.push(Syscall::new(
                    libc::SYS_mremap,
                    &[from, mapping.len(), mapping.len(), how, mapping.start],
                ));
                required.push(Syscall::new(
                    libc::SYS_mprotect,
                    &[mapping.start, mapping.len(), flag(mapping.rights())],
                ));
                wished.extend(advise(mapping, mapping.end));
            }
        }
    }
    for guard in &image.guards {
        required.push(Syscall::new(
            libc::SYS_madvise,
            &[guard.start, guard.len(), u64::from(MADV_GUARD_INSTALL)],
        ));
    }
    (required, wished)
}

/// Unmaps the window and gives the deputy the image's mappings, without their contents.
///
/// # Errors
/// The kernel refused a mapping (no memory).
pub fn restore_mappings(
    server: &mut Server,
    image: &ProcessImage,
    original: &Original,
) -> Result<(), HomewardError> {
    crash::point("home-unmap-window");
    let seat = server
        .deputy
        .seat_of(OwnTid::of_leader(image))
        .ok_or(HomewardError::Ended)?;
    let pieces = server.window.pieces().to_vec();
    let unmap: Vec<Syscall> = pieces
        .iter()
        .map(|piece| Syscall::new(libc::SYS_munmap, &[piece.start, piece.len()]))
        .collect();
    expect("the address space", &server.deputy.run(seat, &unmap)?)?;
    // Not asked of the deputy: its own filter may not let it, nor change it. Memory of such a program becomes
    // executable.
    let own = own_personality(server.deputy.pid());
    let implies = own & READ_IMPLIES_EXEC != 0 && !are_filtered(server.deputy.pid());
    if implies {
        // Trap: memory-becomes-executable
        let without = personality(own & !READ_IMPLIES_EXEC);
        server.deputy.run(seat, &[without])?;
    }
    let (required, wished) = mapping_operations(image, &server.attic);
    expect("a mapping", &server.deputy.run(seat, &required)?)?;
    server.deputy.run(seat, &wished)?;
    remarks::restore(&mut server.deputy, seat, image, original)?;
    if implies {
        let back = server.deputy.run(seat, &[personality(own)])?;
        expect("the personality", &back)?;
    }
    Ok(())
}

/// With this personality whatever is mapped or protected to be read may be executed, too (`sys/personality.h`).
const READ_IMPLIES_EXEC: u64 = 0x0040_0000;

fn personality(new: u64) -> Syscall {
    Syscall::new(libc::SYS_personality, &[new])
}

fn own_personality(pid: i32) -> u64 {
    let text = kernel_file::read_text(format!("/proc/{pid}/personality"));
    text.map_or(0, |text| u64::from_str_radix(text.trim(), 16).unwrap_or(0))
}

fn expect(what: &'static str, results: &[i64]) -> Result<(), HomewardError> {
    for result in results {
        if (-4095..0).contains(result) {
            let errno = Errno::from_raw(i32::try_from(-result).unwrap_or(0));
            return Err(HomewardError::Call { what, errno });
        }
    }
    Ok(())
}

/// Writes contents of pages that came from the guest.
///
/// # Errors
/// The range is not the guest's, or home's memory is exhausted.
pub fn write_pages(
    pid: i32,
    image: &ProcessImage,
    address: u64,
    bytes: &[u8],
) -> Result<(), HomewardError> {
    let end = address.saturating_add(bytes.len() as u64);
    let mut at = address;
    while at < end {
        let index = image.mappings.partition_point(|mapping| mapping.end <= at);
        let mapping = image
            .mappings
            .get(index)
            .filter(|mapping| mapping.contains(at))
            .filter(|mapping| !matches!(mapping.backing, Backing::Kernel { .. }))
            .ok_or_else(|| HomewardError::Unsound(format!("page {at:#x} of no mapping")))?;
        let stop = end.min(mapping.end);
        let from = usize::try_from(at - address).unwrap_or(usize::MAX);
        let to = usize::try_from(stop - address).unwrap_or(usize::MAX);
        write_piece(pid, mapping, at, &bytes[from..to])?;
        at = stop;
    }
    Ok(())
}

fn write_piece(pid: i32, mapping: &Mapping, at: u64, bytes: &[u8]) -> Result<(), HomewardError> {
    let written = write_at(pid, mapping, at, bytes);
    let written = match mapping.backing {
        Backing::File { .. } if written.is_err() => write_backed(pid, mapping, at, bytes),
        _ => written,
    };
    written.map_err(|errno| HomewardError::Call {
        what: "the contents of a page",
        errno,
    })
}

fn write_at(pid: i32, mapping: &Mapping, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    if mapping.protection.writable() {
        process_vm::write_exact(pid, at, bytes)
    } else {
        process_vm::MemFile::open(pid)
            .and_then(|file| file.write_all(at, bytes))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}

/// Writes the pages that are there. A file that was truncated has taken the others from the program.
fn write_backed(pid: i32, mapping: &Mapping, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let memory = process_vm::MemFile::open(pid).map_err(|_| Errno::ESRCH)?;
    for (start, page) in (at..).step_by(4096).zip(bytes.chunks(4096)) {
        let written = write_at(pid, mapping, start, page);
        // Trap: a-truncated-page-comes-home
        if written.is_err() && matches!(memory.read(start, &mut [0]), Ok(1)) {
            return written;
        }
    }
    Ok(())
}

/// Per-process state: program break and layout, dispositions.
///
/// # Errors
/// The deputy is lost, or the kernel refuses the layout.
pub fn restore_process(server: &mut Server, image: &ProcessImage) -> Result<(), HomewardError> {
    let seat = server
        .deputy
        .seat_of(OwnTid::of_leader(image))
        .ok_or(HomewardError::Ended)?;
    let data = server.deputy.address(server.deputy.deck().data_offset());
    let layout = &image.layout;
    // struct prctl_mm_map: eleven u64, pointer to auxv, its size, exe_fd.
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
    ];
    let mut map = Vec::with_capacity(104);
    for field in fields {
        map.extend_from_slice(&field.to_le_bytes());
    }
    // With an auxv of 0 the deputy keeps its own, which its exec made.
    map.extend_from_slice(&0u64.to_le_bytes());
    map.extend_from_slice(&0u32.to_le_bytes());
    map.extend_from_slice(&u32::MAX.to_le_bytes());
    server.deputy.deck().write_data(0, &map);
    const PR_SET_MM_MAP: u64 = 14;
    let operation = Syscall::new(
        libc::SYS_prctl,
        &[
            flag(libc::PR_SET_MM),
            PR_SET_MM_MAP,
            data,
            map.len() as u64,
            0,
        ],
    );
    expect("the memory layout", &server.deputy.run(seat, &[operation])?)?;
    // What it was registered for before it left it still is. A host that lies about more costs it time.
    let barriers: Vec<Syscall> = settings::set_barriers(image.barriers).collect();
    let registered = server.deputy.run(seat, &barriers)?;
    // Its own filter may refuse that, and then it has not registered itself while it was away.
    if image.filters.is_empty() {
        expect("memory barriers", &registered)?;
    }
    restore_actions(&mut server.deputy, seat, &image.actions)
}

fn restore_actions(
    deputy: &mut Deputy,
    seat: usize,
    actions: &[SignalAction],
) -> Result<(), HomewardError> {
    const DEFAULT: u64 = 0;
    const IGNORE: u64 = 1;
    let base = deputy.address(deputy.deck().data_offset());
    let kept = timers::ignored_with_timers(deputy.pid());
    let mut operations = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let signal = index as u64 + 1;
        if signal == flag(libc::SIGKILL) || signal == flag(libc::SIGSTOP) {
            continue;
        }
        if action.handler == IGNORE && kept >> index & 1 == 1 {
            // It is ignored already. Setting it again would discard a timer's signal that waits to
            // be taken by `sigwait`, and since Linux 6.13 the timer with it.
            continue;
        }
        if matches!(action.handler, DEFAULT | IGNORE) && deputy.kept() >> index & 1 == 1 {
            // This is its action here already, too. Setting it again would discard a signal that waits for a
            // descriptor.
            continue;
        }
        let mut bytes = [0; 32];
        bytes[0..8].copy_from_slice(&action.handler.to_le_bytes());
        bytes[8..16].copy_from_slice(&action.flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&action.restorer.to_le_bytes());
        bytes[24..32].copy_from_slice(&action.mask.to_le_bytes());
        deputy.deck().write_data(index * 32, &bytes);
        let address = base + index as u64 * 32;
        operations.push(Syscall::new(
            libc::SYS_rt_sigaction,
            &[signal, address, 0, 8],
        ));
    }
    expect("a signal action", &deputy.run(seat, &operations)?)
}

/// Restores what each thread's own calls restore, and the timers on CPU time.
///
/// # Errors
/// The deputy is lost.
pub fn restore_threads(server: &mut Server, image: &ProcessImage) -> Result<(), HomewardError> {
    for threads in image.threads.chunks(AT_ONCE) {
        restore_own(&mut server.deputy, threads)?;
    }
    let leader = server
        .deputy
        .seat_of(OwnTid::of_leader(image))
        .ok_or(HomewardError::Ended)?;
    let data = server.deputy.address(server.deputy.deck().data_offset());
    for (which, timer) in CPU_TIMERS.into_iter().zip(image.cpu_timers) {
        server.deputy.deck().write_data(0, &timer.to_kernel());
        let operation = Syscall::new(libc::SYS_setitimer, &[which, data, 0]);
        server.deputy.run(leader, &[operation])?;
    }
    Ok(())
}

/// Has these threads, all at the same time, make the calls by which each restores what is its own.
fn restore_own(deputy: &mut Deputy, threads: &[ThreadImage]) -> Result<(), HomewardError> {
    let base = deputy.address(deputy.deck().data_offset());
    let mut work = Vec::with_capacity(threads.len());
    for (index, thread) in threads.iter().enumerate() {
        let Some(seat) = deputy.seat_of(OwnTid::of(thread)) else {
            continue;
        };
        let stack = thread.alternate_stack;
        let mut bytes = [0; 24];
        bytes[0..8].copy_from_slice(&stack.address.to_le_bytes());
        // SS_ONSTACK is a report, not a request.
        bytes[8..12].copy_from_slice(&(stack.flags & !libc::SS_ONSTACK).to_le_bytes());
        bytes[16..24].copy_from_slice(&stack.size.to_le_bytes());
        let place = index * PLACE;
        deputy.deck().write_data(place, &bytes);
        let nodes = thread.settings.policy.nodes.to_le_bytes();
        deputy.deck().write_data(place + bytes.len(), &nodes);
        let stack = base + place as u64;
        let nodes = stack + bytes.len() as u64;
        let mut batch = vec![
            Syscall::new(libc::SYS_sigaltstack, &[stack, 0]),
            Syscall::new(libc::SYS_set_tid_address, &[thread.tid_address]),
            Syscall::new(
                libc::SYS_set_robust_list,
                &[thread.robust_list.0, thread.robust_list.1],
            ),
        ];
        if let Some(rseq) = thread.rseq {
            batch.push(Syscall::new(
                libc::SYS_rseq,
                &[
                    rseq.address,
                    u64::from(rseq.length),
                    0,
                    u64::from(rseq.signature),
                ],
            ));
        }
        batch.extend(settings::set_thread_again(&thread.settings, nodes));
        work.push((seat, batch));
    }
    deputy.run_each(&work)?;
    Ok(())
}
