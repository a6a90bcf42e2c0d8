//! What the kernel keeps for a process and its threads that is neither memory nor registers, can be
//! told by the process alone, and acts where the process computes: it travels.
//!
//! What acts at home alone stays with the deputy; `whim_calls::prctl` says which is which.

use crate::remarks::{self, STORED_POLICY};
use nix::errno::Errno;
use whim_model::{MemoryErrors, MemoryPolicy, Syscall, ThreadSettings};

const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const PR_TSC_ENABLE: u64 = 1;
const PR_TSC_SIGSEGV: u64 = 2;
const PR_SET_TIMERSLACK: u64 = 29;
const PR_GET_TIMERSLACK: u64 = 30;
const PR_MCE_KILL: u64 = 33;
const PR_MCE_KILL_GET: u64 = 34;
const MCE_KILL_SET: u64 = 1;

/// How many calls [`ask_thread`] makes.
pub const OF_THREAD: usize = 4;
/// How many bytes [`ask_thread`] has stored.
pub const STORED: usize = 8 + STORED_POLICY;

/// The calls by which a thread tells its settings; some store what they say, at `into` ([`STORED`] bytes).
#[must_use]
pub fn ask_thread(into: u64) -> [Syscall; OF_THREAD] {
    let prctl = |args: &[u64]| Syscall::new(libc::SYS_prctl, args);
    [
        prctl(&[PR_GET_TIMERSLACK]),
        prctl(&[PR_MCE_KILL_GET]),
        prctl(&[PR_GET_TSC, into]),
        remarks::ask_own(into + 8),
    ]
}

/// What the results of [`ask_thread`] say, and what it has stored. `None` for the policy if it names nodes of
/// which no image can tell.
#[must_use]
pub fn of_thread(results: &[i64], stored: &[u8]) -> (ThreadSettings, Option<MemoryPolicy>) {
    let result = |index: usize| results.get(index).copied().unwrap_or(0);
    let time_stamps = stored.first().copied().map_or(PR_TSC_ENABLE, u64::from);
    let policy = match result(3) {
        0 => remarks::policy(stored.get(8..).unwrap_or_default()),
        // A kernel without policies.
        _ => Some(MemoryPolicy::default()),
    };
    let settings = ThreadSettings {
        // Any number may be set, the largest ones look negative.
        timer_slack_ns: match result(0) {
            // Refused.
            -4095..0 => 0,
            slack => slack.cast_unsigned(),
        },
        memory_errors: match result(1) {
            0 => MemoryErrors::Late,
            1 => MemoryErrors::Early,
            _ => MemoryErrors::Default,
        },
        denies_time_stamps: result(2) == 0 && time_stamps == PR_TSC_SIGSEGV,
        policy: policy.unwrap_or_default(),
    };
    (settings, policy)
}

/// The calls by which a new thread takes such settings. `nodes` is where the nodes of its policy are stored.
pub fn set_thread(settings: &ThreadSettings, nodes: u64) -> impl Iterator<Item = Syscall> + use<> {
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
    // Trap: what-a-program-denies-itself
    let stamps = settings.denies_time_stamps.then(|| time_stamps(settings));
    let policy = settings.policy;
    let lies = (policy != MemoryPolicy::default()).then(|| remarks::set_own(policy, nodes));
    slack.into_iter().chain(errors).chain(stamps).chain(lies)
}

/// The calls by which a thread that is home again takes what it has changed elsewhere, and home's kernel does
/// not know.
#[must_use]
pub fn set_thread_again(settings: &ThreadSettings, nodes: u64) -> [Syscall; 2] {
    [
        time_stamps(settings),
        remarks::set_own(settings.policy, nodes),
    ]
}

fn time_stamps(settings: &ThreadSettings) -> Syscall {
    let what = if settings.denies_time_stamps {
        PR_TSC_SIGSEGV
    } else {
        PR_TSC_ENABLE
    };
    Syscall::new(libc::SYS_prctl, &[PR_SET_TSC, what])
}

const PR_SET_MDWE: u64 = 65;
const PR_GET_MDWE: u64 = 66;

/// The call by which a process tells what its memory may never be.
#[must_use]
pub fn ask_denied() -> Syscall {
    Syscall::new(libc::SYS_prctl, &[PR_GET_MDWE])
}

/// What the result of [`ask_denied`] says.
#[must_use]
pub fn denied(result: i64) -> u32 {
    // -EINVAL: this kernel knows of no such thing.
    u32::try_from(result).unwrap_or(0)
}

/// The call that denies it; it cannot be taken back.
#[must_use]
pub fn deny(what: u32) -> Syscall {
    Syscall::new(libc::SYS_prctl, &[PR_SET_MDWE, u64::from(what)])
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

/// The calls by which a process tells for which memory barriers it is registered: barriers that are not
/// are refused. What the kernel tells of them itself, since Linux 6.3, is more than there is: who has registered
/// for one of the other two private ones is said to have registered for the plain one, too, which is refused.
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
    let told = match results.first() {
        Some(told) if *told >= 0 => u32::try_from(*told).unwrap_or(0),
        // A kernel that has no barriers at all.
        Some(told) if *told == -(Errno::ENOSYS as i64) => 0,
        // Nothing tells it. Who is registered needlessly waits for others' barriers at times.
        _ => u32::MAX,
    };
    let mut tried = results.iter().skip(1);
    BARRIERS.iter().fold(0, |found, (register, try_it)| {
        let is = match try_it {
            Some(_) => tried.next() == Some(&0),
            None => told & register != 0,
        };
        found | if is { *register } else { 0 }
    })
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
        let not = -1;
        assert_eq!(barriers(&[0, not, not, not]), 0);
        // What Linux says of who has registered for SYNC_CORE alone.
        assert_eq!(barriers(&[0x50, not, 0, not]), 1 << 6);
        let unknown = -22;
        let found = barriers(&[unknown, 0, not, 0]);
        assert_eq!(found, 1 << 2 | 1 << 4 | 1 << 8);
        assert_eq!(barriers(&[-38, -38, -38, -38]), 0);
        assert_eq!(set_barriers(1 << 4 | 1 << 8).count(), 2);
        assert_eq!(set_barriers(u32::MAX).count(), 4);
    }

    #[test]
    fn a_thread_takes_what_is_not_the_default() {
        let mut stored = [0; STORED];
        stored[0] = 2;
        // MPOL_BIND to node 0
        (stored[8], stored[16]) = (2, 1);
        let (told, policy) = of_thread(&[777_777, 1, 0, 0], &stored);
        assert_eq!(policy, Some(MemoryPolicy { mode: 2, nodes: 1 }));
        let calls: Vec<Syscall> = set_thread(&told, 0x1000).collect();
        assert_eq!(calls[0].args[..2], [PR_SET_TIMERSLACK, 777_777]);
        let (told, _) = of_thread(&[i64::MIN, 1, 0, 0], &stored);
        assert_eq!(told.timer_slack_ns, 1 << 63);
        assert_eq!(calls[1].args[..3], [PR_MCE_KILL, MCE_KILL_SET, 1]);
        assert_eq!(calls[2].args[..2], [PR_SET_TSC, PR_TSC_SIGSEGV]);
        assert_eq!(calls[3].number, libc::SYS_set_mempolicy.cast_unsigned());
        assert_eq!(calls[3].args[..2], [2, 0x1000]);
        stored[0] = 1;
        // A kernel without policies has stored nothing, whatever stands there.
        let (told, policy) = of_thread(&[0, 2, 0, -38], &stored);
        assert_eq!(policy, Some(MemoryPolicy::default()));
        assert_eq!(set_thread(&told, 0).count(), 0);
        assert_eq!(set_thread_again(&told, 0)[0].args[..2], [PR_SET_TSC, 1]);
        // The 65th node.
        stored[24] = 1;
        assert_eq!(of_thread(&[0, 2, 0, 0], &stored).1, None);
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
