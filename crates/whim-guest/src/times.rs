//! Answers about a guest's CPU time: what home's kernel knows, what the hosts before this one have seen, and what
//! was used here.
//!
//! The guest's CPU clocks go on from home's when it leaves, and never go back as long as it is
//! away. When it is back home, nothing can be added: the process has no tracer and no filter there,
//! and the kernel lets nobody set a CPU clock.

use crate::cpu_time::{SECOND, TICK_NS, busy, of_process, of_thread, ticks};
use crate::guest::{Guest, Thread};
use crate::numbers::low;
use whim_journey::message::Used;
use whim_model::CpuTime;
use whim_model::Syscall;

/// Of more threads it would take too long, several times a second, to ask how long each has waited.
const THREADS_ASKED_MAX: usize = 64;

impl Guest {
    /// CPU time used by the guest here, in nanoseconds: user and system.
    #[must_use]
    pub(crate) fn cpu_times(&self) -> (u64, u64) {
        let time = ticks(&format!("/proc/{}/stat", self.host_tid));
        (time.user_ns, time.system_ns)
    }

    /// What home is told of it now and then.
    pub(crate) fn used(&self) -> Used {
        Used {
            cpu_away: self.cpu_away(),
            busy_ns: self.busy_ns(),
            resident_bytes: self.status(self.host_tid).resident,
        }
    }

    /// Nanoseconds for which its threads have run or waited for a CPU here; 0 where they are too many to be asked.
    fn busy_ns(&self) -> u64 {
        if self.threads.len() > THREADS_ASKED_MAX {
            return 0;
        }
        let threads = self.threads.keys();
        threads.map(|thread| busy(self.host_tid, *thread)).sum()
    }

    /// CPU time of the process since it left home.
    #[must_use]
    pub(crate) fn cpu_away(&self) -> CpuTime {
        self.cpu.at(of_process(self.host_tid))
    }

    /// CPU time of a thread since it left home.
    #[must_use]
    pub(crate) fn thread_cpu_away(&self, thread: &Thread) -> CpuTime {
        thread.cpu.at(of_thread(self.host_tid, thread.host_tid))
    }

    /// Adds the CPU time used away to what home's kernel has answered.
    pub(crate) fn add_times(
        &self,
        host_tid: i32,
        call: &Syscall,
        address: u64,
        mut bytes: Vec<u8>,
    ) {
        let asked = Asked::of(call);
        let thread = match asked.thread {
            Some(0) => self.threads.get(&host_tid),
            Some(tid) => self.threads.values().find(|thread| thread.tid == tid),
            None => None,
        };
        let time = match (asked.thread, thread) {
            (None, _) => self.cpu_away(),
            (_, Some(thread)) => self.thread_cpu_away(thread),
            (Some(_), None) => return,
        };
        match asked.answer {
            // struct rusage begins with two struct timeval, struct tms with two clock_t.
            Answer::Usage => {
                add_pair(&mut bytes, 0, time.user_ns / 1000, 1_000_000);
                add_pair(&mut bytes, 16, time.system_ns / 1000, 1_000_000);
            }
            Answer::Ticks => {
                add(&mut bytes, 0, time.user_ns / TICK_NS);
                add(&mut bytes, 8, time.system_ns / TICK_NS);
            }
            Answer::Clock => add_pair(&mut bytes, 0, time.total_ns, SECOND),
            Answer::ClockOfTicks => {
                add_pair(&mut bytes, 0, time.user_ns + time.system_ns, SECOND);
            }
            Answer::ClockOfUser => add_pair(&mut bytes, 0, time.user_ns, SECOND),
        }
        // The guest may have unmapped it meanwhile, in another thread.
        let _ = self.memory.write(address, &bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Usage,
    Ticks,
    Clock,
    ClockOfTicks,
    ClockOfUser,
}

/// Whose time a call asks for, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// `None`: the process; 0: the thread that asks.
    thread: Option<i32>,
    answer: Answer,
}

impl Asked {
    fn of(call: &Syscall) -> Self {
        let first = low(call.args[0]);
        match i64::try_from(call.number).unwrap_or(-1) {
            libc::SYS_getrusage => Self {
                thread: (first == libc::RUSAGE_THREAD).then_some(0),
                answer: Answer::Usage,
            },
            libc::SYS_times => Self {
                thread: None,
                answer: Answer::Ticks,
            },
            _ => Self::of_clock(first),
        }
    }

    /// Clock numbers below 0 hold, from the lowest bit: the kind of time (user and system, user,
    /// scheduled), whether a thread is meant, and the complement of its number.
    fn of_clock(clock: i32) -> Self {
        let (thread, kind) = match clock {
            libc::CLOCK_PROCESS_CPUTIME_ID => (None, 2),
            libc::CLOCK_THREAD_CPUTIME_ID => (Some(0), 2),
            _ => ((clock & 4 != 0).then_some(!(clock >> 3)), clock & 3),
        };
        let answer = match kind {
            0 => Answer::ClockOfTicks,
            1 => Answer::ClockOfUser,
            _ => Answer::Clock,
        };
        Self { thread, answer }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn add(bytes: &mut [u8], at: usize, amount: u64) {
    if let Some(value) = word(bytes, at) {
        set_word(bytes, at, value.wrapping_add(amount));
    }
}

/// Adds to a pair of seconds and parts of a second.
fn add_pair(bytes: &mut [u8], at: usize, parts: u64, parts_per_second: u64) {
    let (Some(seconds), Some(old)) = (word(bytes, at), word(bytes, at + 8)) else {
        return;
    };
    let sum = old.wrapping_add(parts);
    set_word(bytes, at, seconds.wrapping_add(sum / parts_per_second));
    set_word(bytes, at + 8, sum % parts_per_second);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_carried_into_seconds() {
        let mut bytes = vec![0; 16];
        set_word(&mut bytes, 0, 1);
        set_word(&mut bytes, 8, 900_000);
        add_pair(&mut bytes, 0, 1_600_000, 1_000_000);
        assert_eq!(word(&bytes, 0), Some(3));
        assert_eq!(word(&bytes, 8), Some(500_000));
    }

    #[test]
    fn a_clock_tells_whose_time_it_is() {
        let clock = |id| Asked::of_clock(id);
        let asked = |thread, answer| Asked { thread, answer };
        assert_eq!(
            clock(libc::CLOCK_PROCESS_CPUTIME_ID),
            asked(None, Answer::Clock)
        );
        assert_eq!(
            clock(libc::CLOCK_THREAD_CPUTIME_ID),
            asked(Some(0), Answer::Clock)
        );
        // As clock_getcpuclockid and pthread_getcpuclockid make them.
        assert_eq!(clock(!4711 << 3 | 2), asked(None, Answer::Clock));
        assert_eq!(clock(!4711 << 3 | 6), asked(Some(4711), Answer::Clock));
        assert_eq!(clock(!0 << 3 | 5), asked(Some(0), Answer::ClockOfUser));
        assert_eq!(clock(!0 << 3), asked(None, Answer::ClockOfTicks));
    }
}
