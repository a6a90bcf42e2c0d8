//! CPU time that a process or a thread has used on this host, and on those before it.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use whim_model::CpuTime;
use whim_sys::kernel_file;

/// In nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Length of the ticks in which /proc counts, in nanoseconds (USER_HZ is 100 everywhere).
pub(crate) const TICK_NS: u64 = 10_000_000;

/// CPU time used since a process or thread left home: what it used on other hosts, and this host's
/// count when it arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    before: CpuTime,
    arrived: CpuTime,
}

impl Since {
    /// `before`: used on other hosts; `arrived`: this host's count, now.
    #[must_use]
    pub(crate) fn begin(before: CpuTime, arrived: CpuTime) -> Self {
        Self { before, arrived }
    }

    /// All of it, where this host counts so much now.
    pub(crate) fn at(self, now: CpuTime) -> CpuTime {
        self.before.plus(now.since(self.arrived))
    }
}

/// User and system time as the named file of /proc gives them.
pub(crate) fn ticks(path: &str) -> CpuTime {
    let bytes = kernel_file::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // The name in parentheses may hold any bytes; fields 14 and 15 of proc(5) follow it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |index: usize| {
        let word = fields.split_whitespace().nth(index);
        word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    let (user_ns, system_ns) = (field(11) * TICK_NS, field(12) * TICK_NS);
    CpuTime {
        total_ns: user_ns + system_ns,
        user_ns,
        system_ns,
    }
}

/// What this host's kernel has counted for a process.
#[must_use]
pub(crate) fn of_process(process: i32) -> CpuTime {
    let mut time = ticks(&format!("/proc/{process}/stat"));
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(process));
    if let Ok(exact) = clock.and_then(clock_gettime) {
        let seconds = u64::try_from(exact.tv_sec()).unwrap_or(0);
        let rest = u64::try_from(exact.tv_nsec()).unwrap_or(0);
        time.total_ns = seconds * SECOND + rest;
    }
    time
}

/// Nanoseconds that a thread has run, or waited for a CPU.
pub(crate) fn busy(process: i32, thread: i32) -> u64 {
    let [ran, waited] = on_a_queue(process, thread);
    ran.unwrap_or(0) + waited.unwrap_or(0)
}

/// Nanoseconds that a thread has run, and that it has waited for a CPU.
fn on_a_queue(process: i32, thread: i32) -> [Option<u64>; 2] {
    let path = format!("/proc/{process}/task/{thread}/schedstat");
    let text = kernel_file::read_text(path).unwrap_or_default();
    let mut words = text.split_whitespace();
    [(); 2].map(|()| words.next()?.parse().ok())
}

/// What this host's kernel has counted for a thread.
#[must_use]
pub(crate) fn of_thread(process: i32, thread: i32) -> CpuTime {
    let mut time = ticks(&format!("/proc/{process}/task/{thread}/stat"));
    // We may not read the CPU clock of another process's thread. This is its value when the thread
    // last left a CPU. That is exact for a thread that waits, as the thread that asks does.
    if let [Some(exact), _] = on_a_queue(process, thread) {
        time.total_ns = exact;
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_where_it_was_elsewhere() {
        let time = |total_ns| CpuTime {
            total_ns,
            ..CpuTime::default()
        };
        let since = Since::begin(time(100), time(7));
        assert_eq!(since.at(time(7)), time(100));
        assert_eq!(since.at(time(10)), time(103));
    }
}
