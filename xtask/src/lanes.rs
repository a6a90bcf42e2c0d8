//! Quick system tests of which two run at once.
//!
//! Most of a test's time is waiting: for a lease to end, a node to be missed, a program to say something. Tests of the
//! families below have labs of their own, measure nothing and change nothing of the machine, so that two of them do
//! not disturb each other. All others run alone, after them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// What is before the first `::` of the tests' paths.
const TOGETHER: [&str; 49] = [
    "alone",
    "bad_input",
    "behaviours",
    "breaks",
    "clocks",
    "conformance",
    "counters",
    "crashes",
    "cuts",
    "documents",
    "elevation",
    "escape",
    "exactness",
    "faults",
    "files",
    "filters",
    "freezers",
    "handing",
    "history",
    "hostile",
    "identity",
    "jobs",
    "json",
    "kept",
    "kinds",
    "leaks",
    "line",
    "losses",
    "matrix",
    "membership",
    "memory",
    "messages",
    "metrics",
    "namespaces",
    "observed",
    "orders",
    "page",
    "places",
    "programs",
    "removal",
    "rights",
    "schedules",
    "secrets",
    "signal_descriptors",
    "stay",
    "stops",
    "terminals",
    "threads",
    "unprivileged",
];
/// More would share the two CPUs of the smallest machine on which the gate is to pass.
const LANES: usize = 2;

/// Whether the test of this path may run beside another one.
pub(crate) fn may_have_company(name: &str) -> bool {
    let family = name.split("::").next().unwrap_or_default();
    TOGETHER.contains(&family)
}

/// Does `work` for each of the items, in their order, two at a time.
pub(crate) fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let left = Mutex::new(VecDeque::from(items));
    let next = || lock(&left).pop_front();
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// What a lane that panicked has left is whole: it holds the lock for single additions.
pub(crate) fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn families_are_told_by_what_stands_first() {
        assert!(may_have_company("programs::between_kernels::bash"));
        assert!(!may_have_company("balancing::programs"));
        assert!(TOGETHER.is_sorted());
    }

    #[test]
    fn two_are_done_at_once_and_each_is_done_once() {
        let both = Barrier::new(LANES);
        let done = Mutex::new(Vec::new());
        each((0..6).collect(), |item| {
            // Nobody comes past it alone.
            both.wait();
            lock(&done).push(item);
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 5]);
    }
}
