//! The deputy's userfaultfd, made before the commit.
//!
//! A program's filters may refuse `userfaultfd` (Docker's own does, and systemd's end a program for it), and judge
//! again as soon as the process is to end with its tracer. So it is made while they are suspended, and that is
//! before the commit: whatever refuses it then keeps the program at home, unharmed. It does nothing to the process
//! as long as no memory is registered with it.

use super::{ConvertError, call, check, initialize, userfaultfd};
use nix::errno::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use whim_image::freeze::{FreezeError, Frozen};
use whim_model::Syscall;
use whim_sys::pidfd::Pidfd;
use whim_sys::process_vm;
use whim_sys::uffd::Uffd;

/// How long the process keeps what it has made for us, in milliseconds: longer each time that we were too late.
const KEPT_MS: [u64; 5] = [1, 4, 16, 64, 256];

/// The userfaultfd of a process whose filters are suspended; others make it when they are deputies.
///
/// # Errors
/// The kernel refuses, or its control group is frozen.
pub(crate) fn early_uffd(frozen: &mut Frozen) -> Result<Option<Uffd>, ConvertError> {
    if !frozen.has_suspended_filters() {
        return Ok(None);
    }
    frozen.check_groups()?;
    // A group that freezes now is waited for. Otherwise a descriptor of ours might be left in the program.
    frozen.outlast_frozen_groups(true);
    let mut tries = KEPT_MS.iter();
    let made = tries.find_map(|kept| made_in_passing(frozen, *kept).transpose());
    frozen.outlast_frozen_groups(false);
    match made {
        Some(taken) => initialize(taken?).map(Some),
        None => Err(call("userfaultfd taking")(Errno::ETIMEDOUT)),
    }
}

/// Has the process make a userfaultfd, keep it for so long and close it, in one go: it closes it even if we die
/// meanwhile. `None` if it could not be taken in that time.
fn made_in_passing(frozen: &mut Frozen, kept_ms: u64) -> Result<Option<OwnedFd>, ConvertError> {
    let pid = frozen.pid();
    let word = frozen.scratch()?.start;
    let number = free_descriptor(pid)?;
    // A futex that nobody wakes, and its timeout.
    let words = [0, 0, kept_ms * 1_000_000].map(u64::to_le_bytes);
    process_vm::write_exact(pid, word, &words.concat()).map_err(call("userfaultfd wait"))?;
    let wait = [
        word,
        super::flag(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG),
        0,
        word + 8,
    ];
    let operations = [
        userfaultfd(),
        Syscall::new(libc::SYS_futex, &wait),
        Syscall::new(libc::SYS_close, &[i64::from(number).cast_unsigned()]),
    ];
    let process = Pidfd::open(pid).map_err(call("userfaultfd taking"))?;
    let over = AtomicBool::new(false);
    let (results, taken) = thread::scope(|scope| {
        let taking = || take_in_time(&process, number, &over);
        let taking = thread::Builder::new().spawn_scoped(scope, taking);
        let taking = taking.map_err(|_| call("userfaultfd taking")(Errno::EAGAIN))?;
        let results = frozen.run(pid, &operations);
        over.store(true, Ordering::Relaxed);
        Ok::<_, ConvertError>((results, taking.join().ok().flatten()))
    })?;
    check("userfaultfd", results?[0])?;
    Ok(taken)
}

/// Takes this descriptor as soon as the process has it.
fn take_in_time(process: &Pidfd, number: i32, over: &AtomicBool) -> Option<OwnedFd> {
    loop {
        let late = over.load(Ordering::Relaxed);
        match process.take(number) {
            Ok(taken) => return Some(taken),
            Err(_) if late => return None,
            Err(_) => thread::yield_now(),
        }
    }
}

/// The number of the next descriptor that a stopped process opens: the lowest that is free.
fn free_descriptor(pid: i32) -> Result<i32, ConvertError> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).map_err(FreezeError::Proc)?;
    let numbers = entries.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(lowest_without(numbers.collect()))
}

fn lowest_without(mut numbers: Vec<i32>) -> i32 {
    numbers.sort_unstable();
    let free = (0..).zip(&numbers).find(|(free, number)| free != *number);
    free.map_or(
        i32::try_from(numbers.len()).unwrap_or(i32::MAX),
        |(free, _)| free,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_descriptor_is_the_lowest_that_is_free() {
        assert_eq!(lowest_without(vec![]), 0);
        assert_eq!(lowest_without(vec![2, 0, 1]), 3);
        assert_eq!(lowest_without(vec![5, 0, 1, 3]), 2);
        assert_eq!(lowest_without(vec![1]), 0);
    }
}
