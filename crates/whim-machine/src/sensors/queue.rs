//! How many threads run or wait for a CPU, on average over the time between two samples.
//!
//! If we only checked once a second which threads run at that moment, a thread that works for a hundredth of
//! the time would count as all or nothing. The kernel sums up for each thread how long it has run and how long
//! it has waited for a CPU (`Documentation/scheduler/sched-stats.rst`). The growth of that sum, divided by the
//! time that has passed, is the average.

use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::Duration;
use whim_balance::Millis;

use super::scope::Scope;
use crate::processes;

/// What was seen at the last sample.
#[derive(Debug, Default)]
pub struct Queue {
    at: Option<Millis>,
    /// Nanoseconds that each thread had run or waited, and for how many samples that has not changed.
    threads: HashMap<i32, (u64, u32)>,
    looks: u32,
    /// When the CPU time of the node was last read, and what it was in nanoseconds, without that of this
    /// daemon.
    used: Option<(Millis, u64)>,
    /// For how many more idle samples all threads are assumed to be in the node's groups.
    whole: u32,
}

/// A thread that has done nothing for this many samples is read only once in as many.
const QUIET: u32 = 4;
/// If all threads together use less than this of a core, none is read: a thread that has to wait for a CPU long
/// would get more than that.
const IDLE: f64 = 0.01;
/// While the node is idle, whether all threads are in its groups is checked only once in so many samples:
/// listing them took a third of what an idle daemon used.
const WHOLE_LASTS: u32 = 10;

impl Queue {
    /// Takes a sample. The first one, and each where the kernel sums up nothing, counts the threads of that
    /// moment instead of an average.
    pub fn sample(&mut self, scope: &Scope, now: Millis) -> f64 {
        self.looks = self.looks.wrapping_add(1);
        let idle = self.used(scope, now).filter(|used| *used < IDLE);
        if let (Some(used), Some(left)) = (idle, self.whole.checked_sub(1)) {
            self.whole = left;
            return self.is_idle(used);
        }
        let Some(threads) = scope.threads() else {
            return scope.runnable();
        };
        self.whole = if threads.whole { WHOLE_LASTS } else { 0 };
        if let Some(used) = idle.filter(|_| threads.whole) {
            return self.is_idle(used);
        }
        let threads = self.busy(&threads.numbers);
        let before = self.at.replace(now);
        let mean = before.and_then(|before| self.mean(&threads, now.saturating_sub(before)));
        self.threads = threads;
        mean.unwrap_or_else(|| scope.runnable())
    }

    /// Forgets what is known of each thread, since it will be outdated at the next sample.
    fn is_idle(&mut self, used: f64) -> f64 {
        self.at = None;
        self.threads.clear();
        used
    }

    /// How many CPUs the node's tasks, without this daemon, have used since the last sample.
    fn used(&mut self, scope: &Scope, now: Millis) -> Option<f64> {
        let own = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
        let own = u64::try_from(Duration::from(own).as_nanos()).ok()?;
        let used = scope.used_ns()?.saturating_sub(own);
        let (at, before) = self.used.replace((now, used))?;
        let elapsed = now.checked_sub(at).filter(|elapsed| *elapsed > 0)?;
        Some(super::cpus_worth(used.saturating_sub(before), elapsed))
    }

    /// How long each of these threads has run or waited; threads that are gone are left out.
    fn busy(&self, threads: &[i32]) -> HashMap<i32, (u64, u32)> {
        threads
            .iter()
            .filter_map(|tid| Some((*tid, self.one(*tid)?)))
            .collect()
    }

    fn one(&self, tid: i32) -> Option<(u64, u32)> {
        let Some((before, quiet)) = self.threads.get(&tid).copied() else {
            return Some((read(tid)?, 0));
        };
        let turn = tid
            .unsigned_abs()
            .wrapping_add(self.looks)
            .is_multiple_of(QUIET);
        if quiet >= QUIET && !turn {
            return Some((before, quiet));
        }
        let now = read(tid)?;
        Some((
            now,
            if now == before {
                quiet.saturating_add(1)
            } else {
                0
            },
        ))
    }

    fn mean(&self, threads: &HashMap<i32, (u64, u32)>, elapsed_ms: Millis) -> Option<f64> {
        if elapsed_ms == 0 || threads.is_empty() {
            return None;
        }
        let elapsed = elapsed_ms.saturating_mul(1_000_000);
        let grown = threads.iter().map(|(tid, (now, _))| {
            // The number may have been reused; the sum of the new thread is smaller then.
            let before = self.threads.get(tid).map(|(before, _)| before);
            let before = before.filter(|before| *before <= now);
            (now - before.copied().unwrap_or(0)).min(elapsed)
        });
        Some(super::cpus_worth(grown.sum(), elapsed_ms))
    }
}

/// How long a thread has run or waited, in nanoseconds.
pub fn read(tid: i32) -> Option<u64> {
    sum(&processes::short(format!("/proc/{tid}/schedstat"))?)
}

/// The sum from a line such as `59597 1200 7`: nanoseconds run, nanoseconds waited, and how often it ran.
fn sum(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_mean_is_what_has_grown() {
        let queue = Queue {
            at: Some(0),
            threads: HashMap::from([(1, (5_000_000_000, 0)), (2, (100, 0)), (4, (900, 0))]),
            ..Queue::default()
        };
        // Half a second of the first, nothing of the second, a quarter of a second of a new thread, and a
        // reused number.
        let sums = [(1, 5_500_000_000), (2, 100), (3, 250_000_000), (4, 800)];
        let now = HashMap::from(sums.map(|(tid, sum)| (tid, (sum, 0))));
        let mean = queue.mean(&now, 1000).expect("a mean");
        assert!((mean - 0.75).abs() < 1e-3, "{mean}");
        // What a thread did before it came here counts for no more than the time that has passed.
        let moved = HashMap::from([(9, (70_000_000_000, 0))]);
        let mean = queue.mean(&moved, 1000).expect("a mean");
        assert!((mean - 1.0).abs() < 1e-9, "{mean}");
        assert_eq!(queue.mean(&now, 0), None);
        assert_eq!(queue.mean(&HashMap::new(), 1000), None);
    }

    #[test]
    fn who_does_nothing_is_looked_at_now_and_then() {
        let own = std::process::id().cast_signed();
        let mut queue = Queue {
            at: Some(0),
            threads: HashMap::from([(own, (1, QUIET))]),
            ..Queue::default()
        };
        let mut seen = 0;
        for _ in 0..QUIET {
            queue.looks += 1;
            seen += u32::from(queue.busy(&[own])[&own].0 != 1);
        }
        assert_eq!(seen, 1);
        // A thread that has just begun is read each time.
        queue.threads = HashMap::from([(own, (1, 0))]);
        assert!(queue.busy(&[own])[&own].0 != 1);
    }

    #[test]
    fn whose_groups_hold_all_threads_is_asked_now_and_then_while_idle() {
        use whim_sys::cgroup::{CgroupMembership, Version};
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let write =
            |name: &str, text: &str| std::fs::write(path.join(name), text).expect("written");
        let own = std::process::id();
        write("tasks", &format!("{own}\n"));
        write("cpuacct.usage", "0");
        let scope = Scope::Groups(vec![CgroupMembership {
            version: Version::One,
            controllers: vec!["cpuacct".to_owned()],
            directory: path.to_owned(),
        }]);
        let mut queue = Queue::default();
        let mut left = Vec::new();
        for second in 1..=u64::from(WHOLE_LASTS) + 2 {
            queue.sample(&scope, second * 1000);
            left.push(queue.whole);
        }
        let down = (0..WHOLE_LASTS).rev();
        let wanted: Vec<u32> = [WHOLE_LASTS]
            .into_iter()
            .chain(down)
            .chain([WHOLE_LASTS])
            .collect();
        assert_eq!(left, wanted);
        // While something works, the threads are listed each time.
        queue.whole = 1;
        write("cpuacct.usage", "900000000000000");
        queue.sample(&scope, 60_000);
        assert_eq!(queue.whole, WHOLE_LASTS);
    }

    #[test]
    fn lines_are_read() {
        assert_eq!(sum("59597 3 1\n"), Some(59600));
        for odd in ["", "7", "a b c", "18446744073709551615 1 0"] {
            assert_eq!(sum(odd), None, "{odd}");
        }
    }

    /// This holds however busy the machine is, because a thread that cannot run waits.
    #[test]
    fn who_computes_counts_as_one_and_who_sleeps_as_nothing() {
        let start = |words: &[&str]| {
            let spawned = Command::new(words[0]).args(&words[1..]).spawn();
            spawned.expect("a process")
        };
        let mut hog = start(&["sh", "-c", "while :; do :; done"]);
        let mut idle = start(&["sleep", "60"]);
        let tids = [hog.id(), idle.id()].map(u32::cast_signed);
        let begun = std::time::Instant::now();
        let queue = Queue {
            at: Some(0),
            threads: Queue::default().busy(&tids),
            ..Queue::default()
        };
        let elapsed = loop {
            let elapsed = u64::try_from(begun.elapsed().as_millis()).expect("short");
            if elapsed >= 1000 {
                break elapsed;
            }
            std::thread::yield_now();
        };
        let now = Queue::default().busy(&tids);
        let mean = |tid: i32| {
            let alone = HashMap::from([(tid, now[&tid])]);
            queue.mean(&alone, elapsed).expect("a mean")
        };
        let (hogs, idles) = (mean(tids[0]), mean(tids[1]));
        for child in [&mut hog, &mut idle] {
            child.kill().expect("it lives");
            child.wait().expect("it ended");
        }
        // The time of a wait is added to the sum only when the thread runs again.
        assert!(hogs > 0.7 && idles < 0.2, "{hogs}, {idles}");
    }
}
