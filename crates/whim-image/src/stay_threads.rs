//! Reasons to stay that lie in single threads: all threads of a guest are alike in what they may do.

use crate::freeze_observe::{Status, text};
use crate::rebuild::runner::working_mask;
use crate::stay::{FLAGS, Policy, StayReason, stat_field};
use crate::stay_filters::{self, FilterReason};
use whim_sys::foreign::{self, Resource};

/// Reasons that lie in its threads.
pub(crate) fn reasons(pid: i32, threads: &[i32], policy: &Policy, found: &mut Vec<StayReason>) {
    if threads.len() > policy.threads_max {
        found.push(StayReason::TooManyThreads {
            has: threads.len(),
            limit: policy.threads_max,
        });
        return;
    }
    let shared = [
        (Resource::Descriptors, "descriptor tables"),
        (Resource::Directory, "working directories"),
    ];
    let first = Status::read(pid, pid);
    let of_first = personality(pid, pid);
    let mut add = |reason: StayReason| {
        if !found.contains(&reason) {
            found.push(reason);
        }
    };
    for tid in threads {
        if is_real_time(pid, *tid) {
            add(StayReason::RealTime(*tid));
        }
        for (resource, name) in shared {
            let split = *tid != pid && foreign::shares(pid, *tid, resource) == Ok(false);
            // A thread that is ending gives up its share of everything before it disappears.
            // Trap: threads-on-their-way-out
            let split = split && !is_ending(pid, *tid);
            if split {
                add(StayReason::Split(name));
            }
        }
        let Ok(own) = Status::read(pid, *tid) else {
            continue;
        };
        // Trap: a-waiting-sigtrap
        if own.all_pending() & own.blocked & !working_mask() != 0 {
            add(StayReason::WaitingTrap);
        }
        // Each thread has filters of its own.
        // Trap: a-filter-of-one-thread
        if own.seccomp != 0 {
            let _ = stay_filters::reason(&own, policy).map(&mut add);
        }
        let differs = first
            .as_ref()
            .is_ok_and(|first| first.seccomp != own.seccomp);
        if differs && policy.filters {
            add(FilterReason::Differ.into());
        }
        if let Some(what) = first.as_ref().ok().and_then(|first| first.differs_in(&own)) {
            add(StayReason::Split(what));
        }
        let split = personality(pid, *tid).zip(of_first.as_ref());
        if split.is_some_and(|(own, first)| own != *first) {
            add(StayReason::Split("personalities"));
        }
    }
}

/// As the kernel writes it; nothing where it does not let us read it.
fn personality(pid: i32, tid: i32) -> Option<String> {
    text(&format!("/proc/{pid}/task/{tid}/personality")).ok()
}

/// Whether a thread is on its way out of the kernel, or gone.
fn is_ending(pid: i32, tid: i32) -> bool {
    const PF_EXITING: u32 = 4;
    stat_field(pid, tid, FLAGS).is_none_or(|flags: u32| flags & PF_EXITING != 0)
}

fn is_real_time(pid: i32, tid: i32) -> bool {
    const SCHED_FIFO: u32 = 1;
    const SCHED_RR: u32 = 2;
    const SCHED_DEADLINE: u32 = 6;
    const POLICY: usize = 41;
    let policy = stat_field(pid, tid, POLICY);
    matches!(policy, Some(SCHED_FIFO | SCHED_RR | SCHED_DEADLINE))
}
