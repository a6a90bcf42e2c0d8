//! What was said of memory that its mapping does not show: where it is to lie (memory policies), and its
//! name. Both travel, and come home.
//!
//! A policy names memory nodes of the machine. A host whose nodes do not let it be set as it was does not
//! get the program: it would read something else than it has set, and its memory would lie elsewhere.
//! Which node of a list comes first (`set_mempolicy_home_node`) no kernel tells, so that does not travel.

use crate::maps::MapEntry;
use whim_model::{MemoryPolicy, Range, Remark, Syscall};

/// Bytes that a question about a policy has stored: its mode, and a set of all nodes that Linux can have.
pub const STORED_POLICY: usize = 8 + NODES_MAX / 8;
/// MAX_NUMNODES of the largest kernels.
const NODES_MAX: usize = 1024;
/// `get_mempolicy`: of the memory at an address.
const OF_ADDRESS: u64 = 2;
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: u64 = 0;
/// The kernel looks at one bit less than it is told that there are.
const fn bits(count: usize) -> u64 {
    count as u64 + 1
}

/// The question for the policy of the calling thread.
#[must_use]
pub fn ask_own(into: u64) -> Syscall {
    let args = [into, into + 8, bits(NODES_MAX), 0, 0];
    Syscall::new(libc::SYS_get_mempolicy, &args)
}

/// The question for the policy of the memory at `address`.
#[must_use]
pub fn ask(address: u64, into: u64) -> Syscall {
    let args = [into, into + 8, bits(NODES_MAX), address, OF_ADDRESS];
    Syscall::new(libc::SYS_get_mempolicy, &args)
}

/// As [`ask`], for the mode alone: 4 bytes.
#[must_use]
pub fn ask_mode(address: u64, into: u64) -> Syscall {
    Syscall::new(libc::SYS_get_mempolicy, &[into, 0, 0, address, OF_ADDRESS])
}

/// What an answered question has stored; `None` if it names a node beyond the 64 of which an image tells.
#[must_use]
pub fn policy(stored: &[u8]) -> Option<MemoryPolicy> {
    let mode = stored.first_chunk::<4>().copied().unwrap_or_default();
    let nodes = stored.get(8..).unwrap_or_default();
    let (low, high) = nodes.split_at_checked(8).unwrap_or_default();
    let low = low.first_chunk::<8>().copied().unwrap_or_default();
    high.iter().all(|byte| *byte == 0).then_some(MemoryPolicy {
        mode: u32::from_ne_bytes(mode),
        nodes: u64::from_ne_bytes(low),
    })
}

/// The nodes as an argument: where they are stored, and how many bits that is.
fn named(policy: MemoryPolicy, nodes: u64) -> (u64, u64) {
    match policy.nodes {
        0 => (0, 0),
        _ => (nodes, bits(64)),
    }
}

/// Sets the policy of the calling thread; `nodes`: where its nodes are stored.
#[must_use]
pub fn set_own(policy: MemoryPolicy, nodes: u64) -> Syscall {
    let (nodes, count) = named(policy, nodes);
    Syscall::new(
        libc::SYS_set_mempolicy,
        &[u64::from(policy.mode), nodes, count],
    )
}

/// Sets the policy of a range; `nodes`: where its nodes are stored.
#[must_use]
pub fn bind(range: Range, policy: MemoryPolicy, nodes: u64) -> Syscall {
    let (nodes, count) = named(policy, nodes);
    let mode = u64::from(policy.mode);
    let args = [range.start, range.len(), mode, nodes, count, 0];
    Syscall::new(libc::SYS_mbind, &args)
}

/// Names a range; `name`: where its name is stored, with a NUL behind it. Kernels without names refuse that.
#[must_use]
pub fn name(range: Range, name: u64) -> Syscall {
    let args = [
        PR_SET_VMA,
        PR_SET_VMA_ANON_NAME,
        range.start,
        range.len(),
        name,
    ];
    Syscall::new(libc::SYS_prctl, &args)
}

/// The name that was given to a mapping of anonymous memory. Of the heap and of the main stack the kernel
/// shows no other name than these.
#[must_use]
pub fn name_of(entry: &MapEntry) -> Option<&[u8]> {
    let name = entry.name.strip_prefix("[anon:")?.strip_suffix(']')?;
    let known = !entry.is_file() && name.len() <= Remark::NAME_MAX;
    known.then_some(name.as_bytes())
}

/// The remarks of an address space: its names, and these policies of single mappings.
pub fn all<'a>(
    entries: impl Iterator<Item = &'a MapEntry>,
    policy_of: impl Fn(u64) -> MemoryPolicy,
) -> Vec<Remark> {
    let remark = |entry: &MapEntry| Remark {
        range: entry.range,
        policy: policy_of(entry.range.start),
        name: name_of(entry).unwrap_or_default().to_vec(),
    };
    let says =
        |remark: &Remark| remark.policy != MemoryPolicy::default() || !remark.name.is_empty();
    entries.map(remark).filter(says).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> MapEntry {
        crate::maps::parse(1, line.as_bytes())
            .expect("a line")
            .remove(0)
    }

    #[test]
    fn names_are_those_of_anonymous_memory() {
        let named = |line| name_of(&entry(line)).map(<[u8]>::to_vec);
        let name = named("1000-2000 rw-p 0 00:00 0 [anon:a heap: mine]");
        assert_eq!(name, Some(b"a heap: mine".to_vec()));
        let longest = "x".repeat(Remark::NAME_MAX);
        let line = format!("1000-2000 rw-p 0 00:00 0 [anon:{longest}]");
        assert_eq!(named(&line), Some(longest.into_bytes()));
        let line = format!("1000-2000 rw-p 0 00:00 0 [anon:{}]", "x".repeat(80));
        assert_eq!(named(&line), None);
        for line in [
            "1000-2000 rw-p 0 00:00 0 [heap]",
            "1000-2000 rw-p 0 00:00 0 ",
            "1000-2000 rw-p 0 08:01 7 [anon:x]",
        ] {
            assert_eq!(named(line), None, "{line}");
        }
    }

    #[test]
    fn an_address_space_has_remarks_where_something_was_said() {
        let entries = [
            entry("1000-2000 rw-p 0 00:00 0 "),
            entry("2000-3000 rw-p 0 00:00 0 [anon:x]"),
            entry("3000-4000 rw-p 0 08:01 7 /lib"),
        ];
        let interleaved = MemoryPolicy { mode: 3, nodes: 1 };
        let policy = |start| match start {
            0x3000 => interleaved,
            _ => MemoryPolicy::default(),
        };
        let found = all(entries.iter(), policy);
        let said = |remark: &Remark| (remark.range.start, remark.policy.mode, remark.name.len());
        let said: Vec<_> = found.iter().map(said).collect();
        assert_eq!(said, [(0x2000, 0, 1), (0x3000, 3, 0)]);
    }

    #[test]
    fn policies_are_set_as_they_were_told() {
        let mut stored = [0; STORED_POLICY];
        // MPOL_BIND | MPOL_F_STATIC_NODES
        stored[..4].copy_from_slice(&0x8002u32.to_ne_bytes());
        stored[8] = 5;
        let told = policy(&stored).expect("few nodes");
        assert_eq!((told.mode, told.nodes), (0x8002, 5));
        assert_eq!(set_own(told, 0x700).args[..3], [0x8002, 0x700, 65]);
        let range = Range {
            start: 0x1000,
            end: 0x3000,
        };
        let expected = [0x1000, 0x2000, 0x8002, 0x700, 65, 0];
        assert_eq!(bind(range, told, 0x700).args, expected);
        // MPOL_LOCAL names none.
        let local = MemoryPolicy { mode: 4, nodes: 0 };
        assert_eq!(set_own(local, 0x700).args[..3], [4, 0, 0]);
        stored[STORED_POLICY - 1] = 0x80;
        assert_eq!(policy(&stored), None);
    }
}
