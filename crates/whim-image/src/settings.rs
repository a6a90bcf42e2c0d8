//! What the kernel keeps for a process and its threads that is neither memory nor registers, can be
//! told by the process alone, and acts where the process computes: it travels.
//!
//! What acts at home alone stays with the deputy; `whim_calls::prctl` says which is which.

use nix::errno::Errno;
use whim_model::{MemoryErrors, Syscall, ThreadSettings};

const PR_SET_TIMERSLACK: u64 = 29;
const PR_GET_TIMERSLACK: u64 = 30;
const PR_MCE_KILL: u64 = 33;
const PR_MCE_KILL_GET: u64 = 34;
const MCE_KILL_SET: u64 = 1;

/// How many calls [`ask_thread`] makes.
pub const OF_THREAD: usize = 2;

/// The calls by which a thread tells its settings.
#[must_use]
pub fn ask_thread() -> [Syscall; OF_THREAD] {
    [PR_GET_TIMERSLACK, PR_MCE_KILL_GET].map(|option| Syscall::new(libc::SYS_prctl, &[option]))
}

/// What the results of [`ask_thread`] say.
#[must_use]
pub fn of_thread(results: &[i64]) -> ThreadSettings {
    let result = |index: usize| results.get(index).copied().unwrap_or(0);
    ThreadSettings {
        // The kernel says LONG_MAX where it is more.
        timer_slack_ns: u64::try_from(result(0)).unwrap_or(0),
        memory_errors: match result(1) {
            0 => MemoryErrors::Late,
            1 => MemoryErrors::Early,
            _ => MemoryErrors::Default,
        },
    }
}

/// The calls by which a new thread takes such settings.
pub fn set_thread(settings: &ThreadSettings) -> impl Iterator<Item = Syscall> + use<> {
    let slack = settings.timer_slack_ns;
    // 0 would mean the default; real-time threads, which stay, have no slack.
    let slack = (slack > 0).then(|| Syscall::new(libc::SYS_prctl, &[PR_SET_TIMERSLACK, slack]));
    let policy = match settings.memory_errors {
        MemoryErrors::Late => Some(0),
        MemoryErrors::Early => Some(1),
        MemoryErrors::Default => None,
    };
    let errors =
        policy.map(|policy| Syscall::new(libc::SYS_prctl, &[PR_MCE_KILL, MCE_KILL_SET, policy]));
    slack.into_iter().chain(errors)
}

/// membarrier(2): each way for which a process can register, as bits of its commands: the command
/// that registers, and the one that fails where nothing is registered, if there is one.
const BARRIERS: [(u32, Option<u32>); 4] = [
    (1 << 2, None),
    (1 << 4, Some(1 << 3)),
    (1 << 6, Some(1 << 5)),
    (1 << 8, Some(1 << 7)),
];
/// Linux 6.3
const GET_REGISTRATIONS: u32 = 1 << 9;

fn membarrier(command: u32) -> Syscall {
    Syscall::new(libc::SYS_membarrier, &[u64::from(command)])
}

/// The calls by which a process tells for which memory barriers it is registered. An older kernel does
/// not say it, but refuses barriers that are not registered.
#[must_use]
pub fn ask_barriers() -> Vec<Syscall> {
    let tries = BARRIERS.iter().filter_map(|(_, try_it)| *try_it);
    std::iter::once(GET_REGISTRATIONS)
        .chain(tries)
        .map(membarrier)
        .collect()
}

/// What the results of [`ask_barriers`] say: a bit for each command that registers.
#[must_use]
pub fn barriers(results: &[i64]) -> u32 {
    let all = BARRIERS.iter().fold(0, |all, (register, _)| all | register);
    match results.first() {
        Some(told) if *told >= 0 => u32::try_from(*told).unwrap_or(0) & all,
        // A kernel that has no barriers at all.
        Some(told) if *told == -(Errno::ENOSYS as i64) => 0,
        _ => {
            let mut tried = results.iter().skip(1);
            BARRIERS.iter().fold(0, |found, (register, try_it)| {
                let is = match try_it {
                    Some(_) => tried.next() == Some(&0),
                    // Nothing tells it. Who is registered needlessly waits for others' barriers at times.
                    None => true,
                };
                found | if is { *register } else { 0 }
            })
        }
    }
}

/// The calls that register a process so; registering twice does nothing.
pub fn set_barriers(registered: u32) -> impl Iterator<Item = Syscall> {
    let wanted = BARRIERS.iter().map(|(register, _)| *register);
    let wanted = wanted.filter(move |register| registered & register != 0);
    wanted.map(membarrier)
}

/// What keeps a process at home, because no host would hold to it: asked of each thread.
pub(crate) mod promises {
    use super::Syscall;

    const PR_GET_SPECULATION_CTRL: u64 = 52;
    const PR_SCHED_CORE: u64 = 62;
    const ARCH_GET_CPUID: u64 = 0x1011;
    /// PR_SPEC_DISABLE, FORCE_DISABLE, DISABLE_NOEXEC; for flushing the cache, ENABLE (2) is what a
    /// thread asks for.
    const RESTRICTED: [i64; 3] = [4 | 8 | 16, 4 | 8 | 16, 2];

    /// How many calls [`ask`] makes.
    pub(crate) const COUNT: usize = 5;

    /// The calls; that on the core stores 8 bytes at `core`, or nothing on kernels that do not know it.
    pub(crate) fn ask(core: u64) -> [Syscall; COUNT] {
        let speculation =
            |kind: u64| Syscall::new(libc::SYS_prctl, &[PR_GET_SPECULATION_CTRL, kind]);
        [
            speculation(0),
            speculation(1),
            speculation(2),
            Syscall::new(libc::SYS_arch_prctl, &[ARCH_GET_CPUID]),
            Syscall::new(libc::SYS_prctl, &[PR_SCHED_CORE, 0, 0, 0, core]),
        ]
    }

    /// Whether the thread has restricted what its CPU may guess.
    pub(crate) fn restricts_speculation(results: &[i64]) -> bool {
        let mut told = results.iter().zip(RESTRICTED);
        // Bit 0: the thread itself decides. Without it the machine does.
        told.any(|(told, bits)| *told > 0 && told & 1 == 1 && told & bits != 0)
    }

    /// Whether CPUID faults in the thread.
    pub(crate) fn denies_cpuid(results: &[i64]) -> bool {
        results.get(3) == Some(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_are_told_by_new_kernels_and_found_out_on_old_ones() {
        assert_eq!(barriers(&[0x154, 0, 0, 0]), 0x154);
        assert_eq!(barriers(&[0, 0, 0, 0]), 0);
        let (unknown, not_registered) = (-22, -1);
        let found = barriers(&[unknown, 0, not_registered, 0]);
        assert_eq!(found, 1 << 2 | 1 << 4 | 1 << 8);
        assert_eq!(barriers(&[-38, -38, -38, -38]), 0);
        assert_eq!(set_barriers(1 << 4 | 1 << 8).count(), 2);
        assert_eq!(set_barriers(u32::MAX).count(), 4);
    }

    #[test]
    fn a_thread_takes_what_is_not_the_default() {
        let told = of_thread(&[777_777, 1]);
        let calls: Vec<Syscall> = set_thread(&told).collect();
        assert_eq!(calls[0].args[..2], [PR_SET_TIMERSLACK, 777_777]);
        assert_eq!(calls[1].args[..3], [PR_MCE_KILL, MCE_KILL_SET, 1]);
        assert_eq!(set_thread(&of_thread(&[0, 2])).count(), 0);
    }

    #[test]
    fn promises_are_those_that_a_thread_has_made_itself() {
        use promises::{denies_cpuid, restricts_speculation};
        // PR_SPEC_PRCTL | PR_SPEC_ENABLE, and PR_SPEC_NOT_AFFECTED; no cache is flushed.
        assert!(!restricts_speculation(&[3, 0, 5, 1, -22]));
        // The machine has disabled it for all.
        assert!(!restricts_speculation(&[4, 4, -19, 1, -22]));
        for told in [[5, 0, 5], [3, 9, 5], [17, 0, 5], [3, 0, 3]] {
            assert!(restricts_speculation(&told), "{told:?}");
        }
        assert!(denies_cpuid(&[3, 0, 5, 0]) && !denies_cpuid(&[3, 0, 5, 1]));
        assert!(!denies_cpuid(&[3, 0, 5, -19]));
    }
}
