//! Reasons to stay that lie in the address space.

use crate::counters;
use crate::maps::{self, FlagTable, MapEntry, SpecialFlags, USER_BEGIN};
use crate::reserve;
use crate::stay::{Policy, SharedFile, StayReason};
use whim_model::Protection;

/// Reasons that lie in its address space; also for a second check while it is frozen. `own_id` is
/// its id in its own pid namespace.
#[must_use]
pub fn mapping_reasons(
    pid: i32,
    own_id: i32,
    entries: &[MapEntry],
    flags: &FlagTable,
    policy: &Policy,
) -> Vec<StayReason> {
    let mut found = Vec::new();
    let (has, limit) = (entries.len(), maps::allowed());
    if has > limit {
        found.push(StayReason::TooManyMappings { has, limit });
    }
    for entry in entries {
        let special = flags.of(entry.range);
        let reason = special_reason(entry, special).or_else(|| {
            entry
                .shared
                .then(|| shared_reason(pid, own_id, entry, special, policy))?
        });
        found.extend(reason.filter(|reason| !found.contains(reason)));
    }
    if let Some(low) = entries.first().map(|entry| entry.range.start)
        && low < USER_BEGIN
    {
        found.push(StayReason::LowMemory(low));
    }
    // A process that has ended meanwhile has no mappings at all.
    if !entries.is_empty() && !entries.iter().any(|entry| entry.name == "[vdso]") {
        found.push(StayReason::NoVdso);
    }
    if reserve::choose(entries).is_none() {
        found.push(StayReason::NoFreeRange(reserve::needed(entries)));
    }
    found
}

fn special_reason(entry: &MapEntry, special: SpecialFlags) -> Option<StayReason> {
    if entry.name == "[uprobes]" {
        return Some(StayReason::Probed);
    }
    if entry.is_kernel() {
        // Sealed or not, the kernel's own mappings do not travel: the host has its own.
        return None;
    }
    if entry.name.starts_with("/secretmem") {
        Some(StayReason::SecretMemory)
    } else if entry.name.starts_with("/[aio]") {
        Some(StayReason::AsyncIo)
    } else if special.huge_tlb {
        Some(StayReason::HugeTlb)
    } else if let Some(reason) = no_file(entry) {
        Some(reason)
    } else if special.device {
        Some(StayReason::Device(entry.name.clone()))
    // Trap: sealed-memory
    } else if special.sealed {
        Some(StayReason::Sealed(entry.range.start))
    } else if special.user_fault {
        Some(StayReason::UserFault)
    } else if special.shadow_stack {
        Some(StayReason::ShadowStack)
    } else if special.protection_key != 0 {
        Some(StayReason::ProtectionKeys)
    } else {
        let flag =
            |[first, second]: [u8; 2]| format!("{}{}", char::from(first), char::from(second));
        special
            .unknown
            .map(|word| StayReason::UnknownMemory(flag(word)))
    }
}

/// The reason that lies in what is mapped being no file, by its name: a device, a socket, a ring.
pub(crate) fn no_file(entry: &MapEntry) -> Option<StayReason> {
    let name = entry.name.as_str();
    let is_below = |directory: &&str| name.starts_with(*directory);
    // What the kernel's own file systems let be mapped is memory of devices or of the kernel.
    let is_device = ["/dev/", "/sys/", "/proc/"].iter().any(is_below)
        && !name.starts_with("/dev/shm/")
        && name != "/dev/zero";
    // A path, one that does not lead to the process's root, or a name that it has given memory.
    let is_path = name.is_empty() || name.starts_with(['/', '(', '[']);
    if is_device || name.starts_with("/dmabuf:") {
        Some(StayReason::Device(name.to_owned()))
    } else if !entry.is_file() || is_path {
        None
    // Trap: memory-of-a-socket
    } else if name.starts_with("socket:") {
        Some(StayReason::Socket(name.to_owned()))
    } else if name.starts_with("anon_inode:[io_uring]") {
        Some(StayReason::IoUring)
    } else if name.starts_with("anon_inode:[perf_event]") {
        Some(StayReason::Counts)
    } else {
        Some(StayReason::UnknownMapping(name.to_owned()))
    }
}

/// Shared memory that has no file of its own that another node could be given.
pub(crate) fn is_memory_only(entry: &MapEntry) -> bool {
    let name = entry.name.as_str();
    entry.deleted
        && (name == "/dev/zero" || name.starts_with("/memfd:") || name.starts_with("/SYSV"))
}

fn shared_reason(
    pid: i32,
    own_id: i32,
    entry: &MapEntry,
    special: SpecialFlags,
    policy: &Policy,
) -> Option<StayReason> {
    let name = entry.name.clone();
    if name.starts_with("/SYSV") && entry.deleted {
        return Some(StayReason::SystemVMemory(name));
    }
    if counters::are_in(&name, &[pid, own_id]) {
        return None;
    }
    if !entry.is_file() || (is_memory_only(entry) && name == "/dev/zero") {
        return Some(StayReason::SharedAnonymous);
    }
    // A mapping that mprotect could make writable is as good as writable.
    let writable = entry.protection.0 & Protection::WRITE != 0 || special.may_write;
    if writable {
        return Some(StayReason::SharedWritable(name));
    }
    if is_memory_only(entry) {
        return Some(StayReason::SharedUnheard(name));
    }
    let watched = policy.watches || SharedFile::of(entry).is_watchable();
    (!watched).then_some(StayReason::SharedFile(name))
}
