//! The threads of a process that is being rebuilt.

use super::runner::{
    Arguments, LIST_MAX, Runner, RunnerError, check, pass_over_interrupt, stopped, unexpected,
    working_mask,
};
use super::{RebuildError, said};
use crate::mapping::flag;
use crate::remarks::{self, STORED_POLICY};
use crate::settings;
use nix::errno::Errno;
use whim_model::Syscall;
use whim_model::{CPU_TIMERS, CpuTimer, MemoryPolicy, ProcessImage, QueuedSignal, ThreadImage};
use whim_sys::ptrace::{Running, Stop, Stopped};

/// The most threads that an image may have.
pub const THREADS_MAX: usize = 4096;
/// The most operations that one thread's own list may have.
const OWN_MAX: usize = 11;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

const CLONE_FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// Creates all threads but the leader, with their numbers. Returns all threads in the image's
/// order, the leader first, all stopped.
pub(super) fn create(
    leader: Stopped,
    runner: &Runner,
    threads: &[ThreadImage],
) -> Result<Vec<Stopped>, RebuildError> {
    let mut arguments = runner.arguments();
    let mut list = Vec::new();
    for thread in &threads[1..] {
        let number = arguments.add(&thread.tid.to_le_bytes());
        let mut request = [0u8; 88];
        request[0..8].copy_from_slice(&flag(CLONE_FLAGS).to_le_bytes());
        request[64..72].copy_from_slice(&number.to_le_bytes());
        request[72..80].copy_from_slice(&1u64.to_le_bytes());
        let address = arguments.add(&request);
        list.push(Syscall::new(libc::SYS_clone3, &[address, 88]));
    }
    if list.is_empty() {
        return Ok(vec![leader]);
    }
    runner.store(&arguments)?;
    let mut born: Vec<i32> = Vec::new();
    let (leader, results) = runner.run_visited(leader, &list, &mut |at| {
        if at.stop() != Stop::Clone {
            return Err(unexpected(&at));
        }
        born.push(i32::try_from(at.event_message()?).unwrap_or(-1));
        Ok(at.resume(0)?)
    })?;
    for result in results {
        check("Creating a thread", result)?;
    }
    let mut all = vec![leader];
    for tid in born {
        let first = stopped(Running::assume(tid).wait().map_err(RunnerError::from)?)?;
        if first.stop() != Stop::Interrupt {
            return Err(unexpected(&first).into());
        }
        all.push(first);
    }
    if all.len() != threads.len() {
        return Err(RebuildError::Unsound(format!(
            "{} threads of {} could be made",
            all.len(),
            threads.len()
        )));
    }
    Ok(all)
}

/// What only the thread itself can do: registrations with the kernel, and giving up capabilities.
/// All threads work at the same time.
pub(super) fn register_all(
    threads: &mut Vec<Stopped>,
    runner: &Runner,
    image: &ProcessImage,
) -> Result<(), RebuildError> {
    // With all that a thread may set there is not room for the lists of as many threads as there may be.
    let at_once = LIST_MAX / OWN_MAX;
    let mut done = Vec::with_capacity(threads.len());
    for states in image.threads.chunks(at_once) {
        let rest = threads.split_off(states.len().min(threads.len()));
        let some = std::mem::replace(threads, rest);
        done.extend(register(some, runner, states)?);
    }
    *threads = done;
    Ok(())
}

fn register(
    threads: Vec<Stopped>,
    runner: &Runner,
    states: &[ThreadImage],
) -> Result<Vec<Stopped>, RebuildError> {
    let mut arguments = runner.arguments();
    let mut answers = Vec::new();
    let lists: Vec<Vec<Syscall>> = states
        .iter()
        .map(|thread| own_operations(thread, &mut arguments, &mut answers))
        .collect();
    runner.store(&arguments)?;
    let mut running = Vec::with_capacity(threads.len());
    for (index, (thread, list)) in threads.into_iter().zip(&lists).enumerate() {
        debug_assert!(list.len() <= OWN_MAX);
        runner.prepare(&thread, index * OWN_MAX, list)?;
        running.push(thread.resume(0)?);
    }
    let mut stopped = Vec::with_capacity(running.len());
    for thread in running {
        stopped.push(runner.await_end(thread, &mut |at| Err(unexpected(&at)))?);
    }
    for (told, policy) in answers {
        said::check(runner, told, policy)?;
    }
    for (index, list) in lists.iter().enumerate() {
        let results = runner.results(index * OWN_MAX, list.len())?;
        for (operation, result) in list.iter().zip(results) {
            check(name_of(operation.number.cast_signed()), result)?;
        }
    }
    Ok(stopped)
}

fn name_of(number: i64) -> &'static str {
    match number {
        libc::SYS_sigaltstack => "sigaltstack",
        libc::SYS_set_tid_address => "set_tid_address",
        libc::SYS_set_robust_list => "set_robust_list",
        libc::SYS_rseq => "rseq",
        libc::SYS_prctl => "prctl",
        libc::SYS_set_mempolicy | libc::SYS_get_mempolicy => "set_mempolicy",
        _ => "capset",
    }
}

/// `answers` gets where the kernel tells of the thread's policy, and what it has to be.
fn own_operations(
    thread: &ThreadImage,
    arguments: &mut Arguments,
    answers: &mut Vec<(u64, MemoryPolicy)>,
) -> Vec<Syscall> {
    let mut list = Vec::with_capacity(OWN_MAX);
    let stack = thread.alternate_stack;
    if stack.size != 0 && stack.flags & libc::SS_DISABLE == 0 {
        let mut bytes = [0; 24];
        bytes[0..8].copy_from_slice(&stack.address.to_le_bytes());
        // SS_ONSTACK is a report, not a request.
        bytes[8..12].copy_from_slice(&(stack.flags & !libc::SS_ONSTACK).to_le_bytes());
        bytes[16..24].copy_from_slice(&stack.size.to_le_bytes());
        let address = arguments.add(&bytes);
        list.push(Syscall::new(libc::SYS_sigaltstack, &[address, 0]));
    }
    list.push(Syscall::new(
        libc::SYS_set_tid_address,
        &[thread.tid_address],
    ));
    let (robust, length) = thread.robust_list;
    if robust != 0 {
        list.push(Syscall::new(libc::SYS_set_robust_list, &[robust, length]));
    }
    if let Some(rseq) = thread.rseq {
        list.push(Syscall::new(
            libc::SYS_rseq,
            &[
                rseq.address,
                u64::from(rseq.length),
                0,
                u64::from(rseq.signature),
            ],
        ));
    }
    let mut name = [0; 16];
    for (place, byte) in name.iter_mut().take(15).zip(thread.name.iter().copied()) {
        *place = byte;
    }
    let name = arguments.add(&name);
    list.push(Syscall::new(
        libc::SYS_prctl,
        &[flag(libc::PR_SET_NAME), name],
    ));
    let policy = thread.settings.policy;
    let nodes = arguments.add(&policy.nodes.to_le_bytes());
    list.extend(settings::set_thread(&thread.settings, nodes));
    if policy != MemoryPolicy::default() {
        let told = arguments.add(&[0; STORED_POLICY]);
        list.push(remarks::ask_own(told));
        answers.push((told, policy));
    }
    let mut header = [0; 8];
    header[0..4].copy_from_slice(&LINUX_CAPABILITY_VERSION_3.to_le_bytes());
    let header = arguments.add(&header);
    let nothing = arguments.add(&[0; 24]);
    list.push(Syscall::new(libc::SYS_capset, &[header, nothing]));
    list
}

/// Queues the image's pending signals, exactly as they were. That is possible because a thread may
/// send any siginfo to itself, and the leader any to the process. Every thread blocks them until
/// its own mask is set.
pub(super) fn queue_signals(
    threads: &mut Vec<Stopped>,
    runner: &Runner,
    image: &ProcessImage,
) -> Result<(), RebuildError> {
    let pending = |thread: &ThreadImage| !thread.pending.is_empty();
    if image.pending.is_empty() && !image.threads.iter().any(pending) {
        return Ok(());
    }
    for thread in threads.iter() {
        thread.set_signal_mask(working_mask())?;
    }
    for (index, state) in image.threads.iter().enumerate() {
        let shared: &[QueuedSignal] = if index == 0 { &image.pending } else { &[] };
        if shared.is_empty() && state.pending.is_empty() {
            continue;
        }
        let thread = threads.remove(index);
        let thread = queue_own(
            thread,
            runner,
            (image.pid, state.tid),
            shared,
            &state.pending,
        )?;
        threads.insert(index, thread);
    }
    Ok(())
}

/// Lets the leader start the timers on CPU time. Their signals stay blocked until the threads have
/// their own masks.
pub(super) fn start_timers(
    threads: &mut Vec<Stopped>,
    runner: &Runner,
    image: &ProcessImage,
) -> Result<(), RebuildError> {
    if image.cpu_timers == <[CpuTimer; 2]>::default() {
        return Ok(());
    }
    for thread in threads.iter() {
        thread.set_signal_mask(working_mask())?;
    }
    let mut arguments = runner.arguments();
    let timers = CPU_TIMERS.into_iter().zip(image.cpu_timers);
    let list: Vec<Syscall> = timers
        .map(|(which, timer)| {
            let timer = arguments.add(&timer.to_kernel());
            Syscall::new(libc::SYS_setitimer, &[which, timer, 0])
        })
        .collect();
    runner.store(&arguments)?;
    let (leader, results) =
        runner.run_visited(threads.remove(0), &list, &mut pass_over_interrupt)?;
    threads.insert(0, leader);
    for result in results {
        check("setitimer", result)?;
    }
    Ok(())
}

fn queue_own(
    thread: Stopped,
    runner: &Runner,
    (pid, tid): (i32, i32),
    shared: &[QueuedSignal],
    own: &[QueuedSignal],
) -> Result<Stopped, RebuildError> {
    let number = |id: i32| i64::from(id).cast_unsigned();
    let mut arguments = runner.arguments();
    let mut list = Vec::with_capacity(shared.len() + own.len());
    for signal in shared {
        let (signal, info) = queued(signal, &mut arguments)?;
        let args = [number(pid), signal, info];
        list.push(Syscall::new(libc::SYS_rt_sigqueueinfo, &args));
    }
    for signal in own {
        let (signal, info) = queued(signal, &mut arguments)?;
        let args = [number(pid), number(tid), signal, info];
        list.push(Syscall::new(libc::SYS_rt_tgsigqueueinfo, &args));
    }
    runner.store(&arguments)?;
    // The kernel tells the tracer of each thread when a SIGCONT is sent to any of them.
    let (thread, results) = runner.run_visited(thread, &list, &mut pass_over_interrupt)?;
    for result in results {
        match check("Queueing a pending signal", result) {
            // The host's own limit of queued signals; a standard signal is queued nevertheless.
            Err(RunnerError::Call {
                errno: Errno::EAGAIN,
                ..
            }) => {}
            other => {
                other?;
            }
        }
    }
    Ok(thread)
}

fn queued(signal: &QueuedSignal, arguments: &mut Arguments) -> Result<(u64, u64), RebuildError> {
    if !(1..=64).contains(&signal.signal) || signal.info.len() != 128 {
        return Err(RebuildError::Unsound(format!(
            "a pending signal {}",
            signal.signal
        )));
    }
    Ok((u64::from(signal.signal), arguments.add(&signal.info)))
}
