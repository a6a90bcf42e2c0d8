//! Why a process cannot move now: every reason that can be found without touching the process.
//!
//! What /proc does not show (a local descriptor table, syscall user dispatch) is found when the
//! process is frozen.

use crate::freeze::{FreezeError, Frozen};
use crate::freeze_observe::{Status, text};
use crate::maps::{self, FlagTable, MapEntry, MapsError};
use crate::sharing;
use crate::stay_descriptors;
use crate::stay_filters::{self, FilterReason};
pub use crate::stay_mappings::mapping_reasons;
use crate::stay_mappings::{is_memory_only, no_file};
use crate::stay_threads;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;
use whim_model::Range;
use whim_sys::foreign;
use whim_sys::freezer;
use whim_sys::watched;

/// The most descriptors that a process may have and still move: each of them is examined.
pub(crate) const DESCRIPTORS_MAX: usize = 1 << 20;
/// The most descriptors that are looked at once more when it stands still.
const FROZEN_DESCRIPTORS_MAX: usize = 1024;
const ELF_CLASS_64: u8 = 2;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// What this node allows.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Processes of uid 0 may move.
    pub allow_root: bool,
    /// Home can open, and so watch, all files that are mapped shared and read-only; otherwise only
    /// the files that this user can open by their names.
    pub watches: bool,
    /// Locked memory that a host accepts, in bytes.
    pub locked_max: u64,
    pub threads_max: usize,
    /// The home supervisor can enter the process's time namespace.
    pub enters_time: bool,
    /// The home supervisor can read seccomp filters.
    pub filters: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allow_root: false,
            watches: false,
            locked_max: 64 << 20,
            threads_max: 4096,
            enters_time: false,
            filters: false,
        }
    }
}

/// One reason to stay, as a sentence for users.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StayReason {
    #[error("It does not exist, or has ended")]
    Gone,
    #[error("It is a kernel thread")]
    KernelThread,
    #[error("It is thread {thread} of process {process}: name the process")]
    Thread { thread: i32, process: i32 },
    #[error("It runs as root, which this node does not let move (allow-root)")]
    Root,
    #[error("It is traced by process {0} (a debugger or strace)")]
    Traced(i32),
    #[error("It is stopped by job control; continue it and it can move")]
    Stopped,
    #[error("{}", freezer::sentence(.0))]
    Frozen(PathBuf),
    #[error("Its main thread has ended while others run on")]
    LeaderEnded,
    #[error("It has {has} threads; {limit} at most can move")]
    TooManyThreads { has: usize, limit: usize },
    #[error(
        "It has {has} mappings; this node's kernel lets processes move that have {limit} at most (vm.max_map_count)"
    )]
    TooManyMappings { has: usize, limit: usize },
    #[error("It has {has} threads; node {node} allows a guest {limit}")]
    ThreadsThere {
        has: usize,
        node: String,
        limit: u64,
    },
    #[error("It has {has} mappings; node {node} allows a guest {limit} (vm.max_map_count there)")]
    MappingsThere {
        has: usize,
        node: String,
        limit: u64,
    },
    #[error("It has more than {0} open descriptors")]
    TooManyDescriptors(usize),
    #[error(transparent)]
    Filter(#[from] FilterReason),
    #[error(
        "It shares its memory with process {0} (a child of vfork, or one made by clone with CLONE_VM)"
    )]
    SharesMemory(i32),
    #[error(
        "It may share its memory with process {0}, which looks like it and which this daemon may not compare with it"
    )]
    MayShareMemory(i32),
    #[error(
        "It may use the tiles of AMX (ARCH_REQ_XCOMP_PERM), which no other node would let it use"
    )]
    Tiles,
    #[error("It keeps tags in its addresses (linear address masking)")]
    AddressTags,
    #[error("It runs 32-bit code")]
    ThirtyTwoBit,
    #[error("Its program {0} is setuid, setgid or has file capabilities")]
    Privileged(String),
    #[error("It has changed its user ids, so its owner may not trace it")]
    ChangedIds,
    #[error("It does not let itself be traced (PR_SET_DUMPABLE)")]
    NotDumpable,
    #[error("Its threads have different {0}")]
    Split(&'static str),
    #[error("Thread {0} has a real-time scheduling policy")]
    RealTime(i32),
    #[error("A SIGTRAP waits which it blocks; it can move once it has received it")]
    WaitingTrap,
    #[error("It uses shadow stacks (CET)")]
    ShadowStack,
    #[error("It uses io_uring")]
    IoUring,
    #[error("It uses asynchronous I/O (a ring of io_setup)")]
    AsyncIo,
    #[error("It handles page faults itself (userfaultfd)")]
    UserFault,
    #[error("It reads signals from a descriptor (signalfd) that act where it computes")]
    SignalDescriptor,
    #[error("It counts what processes execute, itself or others (perf_event_open)")]
    Counts,
    #[error("It has {0} open, which would show only what stays at home")]
    OwnProc(String),
    #[error("It has a descriptor that works where it was made alone ({0})")]
    HomeDescriptor(String),
    #[error("It has a descriptor of a kind that is not known to work from elsewhere ({0})")]
    UnknownDescriptor(String),
    #[error("It has System V memory, which others may have too ({0})")]
    SystemVMemory(String),
    #[error("It has shared memory to which it or others may write ({0})")]
    SharedWritable(String),
    #[error("It has shared memory ({0}) that cannot be watched")]
    SharedUnheard(String),
    #[error("It has shared memory without a file, which others may have too")]
    SharedAnonymous,
    #[error("It maps the file {0} shared, and this node cannot watch who writes to it")]
    SharedFile(String),
    #[error("It maps memory of a device ({0})")]
    Device(String),
    #[error("It maps memory of a socket ({0})")]
    Socket(String),
    #[error("It maps memory of a kind that is not known to work from elsewhere ({0})")]
    UnknownMapping(String),
    #[error("It uses huge pages of hugetlbfs")]
    HugeTlb,
    #[error("It has memory of a kind that is not known here (flag {0} in its smaps)")]
    UnknownMemory(String),
    #[error("It has sealed memory (mseal) at {0:#x}")]
    Sealed(u64),
    #[error("It uses secret memory (memfd_secret)")]
    SecretMemory,
    #[error("It uses memory protection keys")]
    ProtectionKeys,
    #[error("It is being probed (uprobes)")]
    Probed,
    #[error("It handles its own system calls (syscall user dispatch)")]
    SyscallDispatch,
    #[error("It has segments of its own (modify_ldt)")]
    Segments,
    #[error(
        "It denies itself memory that is both writable and executable (PR_SET_MDWE), and has such memory at {0:#x}, which could not be made again"
    )]
    DeniesWriteExecute(u64),
    #[error("It denies itself CPUID (ARCH_SET_CPUID)")]
    DeniesCpuid,
    #[error("It restricts what its CPU may guess (PR_SET_SPECULATION_CTRL)")]
    RestrictsSpeculation,
    #[error("It says with whom it may share a core (PR_SCHED_CORE)")]
    ChoosesNeighbours,
    #[error("It says where its memory is to lie on a machine of more than 64 memory nodes")]
    ManyNodes,
    #[error("It has locked {has} bytes of memory; a host takes {limit} at most")]
    Locked { has: u64, limit: u64 },
    #[error("Its address space has no free range of {0} bytes for its home")]
    NoFreeRange(u64),
    #[error("It has no vDSO, which it takes to be stopped (unmapped, or vdso=0 at the boot)")]
    NoVdso,
    #[error("It has memory at {0:#x}, where no other node lets it have any (vm.mmap_min_addr)")]
    LowMemory(u64),
    #[error("It lives in a time namespace of its own, which takes root to enter")]
    TimeNamespace,
    #[error("What it is cannot be read: {0}")]
    Unreadable(String),
}

impl From<MapsError> for StayReason {
    fn from(error: MapsError) -> Self {
        match error {
            MapsError::Ended { .. } => Self::Gone,
            other => Self::Unreadable(other.to_string()),
        }
    }
}

/// A file that is mapped shared and read-only: its process may move only while home watches for
/// writes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    pub range: Range,
    pub device: (u32, u32),
    pub inode: u64,
    /// For the log. To open the file, use `/proc/PID/map_files/START-END` (hexadecimal), which is
    /// exact.
    pub name: String,
}

/// All reasons for which process `pid` has to stay; empty when it may move.
#[must_use]
pub fn reasons(pid: i32, policy: &Policy) -> Vec<StayReason> {
    reasons_by(pid, policy, sharing::reason)
}

/// As [`reasons`]; `shares` says whether another process has its memory ([`sharing::reason`], or a
/// function that knows of earlier scans: [`sharing::Scans`]).
#[must_use]
pub fn reasons_by(
    pid: i32,
    policy: &Policy,
    shares: impl FnOnce(i32) -> Option<StayReason>,
) -> Vec<StayReason> {
    let mut found = Vec::new();
    let status = match Status::read(pid, pid) {
        Ok(status) if !matches!(status.state, 'X') => status,
        _ => return vec![StayReason::Gone],
    };
    if status.tgid != pid {
        return vec![StayReason::Thread {
            thread: pid,
            process: status.tgid,
        }];
    }
    let threads = thread_ids(pid);
    if status.state == 'Z' {
        let reason = if threads.len() > 1 {
            StayReason::LeaderEnded
        } else {
            StayReason::Gone
        };
        return vec![reason];
    }
    found.extend(freezer::frozen_group_of(pid).map(StayReason::Frozen));
    state_reasons(&status, policy, &mut found);
    if program_reasons(pid, &status, policy, &mut found).is_none() {
        return found;
    }
    stay_threads::reasons(pid, &threads, policy, &mut found);
    found.extend(shares(pid));
    stay_descriptors::reasons((pid, status.own_id), DESCRIPTORS_MAX, &mut found);
    match (maps::read_executed(pid), FlagTable::read(pid)) {
        (Ok(entries), Ok(flags)) => {
            found.extend(mapping_reasons(
                pid,
                status.own_id,
                &entries,
                &flags,
                policy,
            ));
        }
        (Err(error), _) | (_, Err(error)) => found.push(error.into()),
    }
    if fs::metadata(format!("/proc/{pid}")).is_err() {
        return vec![StayReason::Gone];
    }
    found
}

/// The files that `pid` maps shared and read-only.
///
/// # Errors
/// [`MapsError`]
pub fn shared_read_only(pid: i32) -> Result<Vec<SharedFile>, MapsError> {
    Ok(shared_read_only_of(&maps::read(pid)?))
}

/// As [`shared_read_only`], of an address space that was read before.
#[must_use]
pub fn shared_read_only_of(entries: &[MapEntry]) -> Vec<SharedFile> {
    let watched = |entry: &&MapEntry| {
        let reads = entry.shared && entry.is_file() && !entry.protection.writable();
        // What is no file is not opened: that may do something.
        reads && !is_memory_only(entry) && no_file(entry).is_none()
    };
    entries.iter().filter(watched).map(SharedFile::of).collect()
}

impl SharedFile {
    pub(crate) fn of(entry: &MapEntry) -> Self {
        Self {
            range: entry.range,
            device: entry.device,
            inode: entry.inode,
            name: entry.name.clone(),
        }
    }

    /// Whether its name, as we see it, still is the name of the same file.
    #[must_use]
    pub fn is_named_so(&self) -> bool {
        fs::metadata(&self.name).is_ok_and(|now| self.is(&now))
    }

    fn is(&self, about: &fs::Metadata) -> bool {
        let device = about.dev();
        let same = (libc::major(device), libc::minor(device)) == self.device;
        // Some file systems show another device in mappings, for example btrfs for its subvolumes.
        about.ino() == self.inode && (same || self.device.0 == 0)
    }

    /// Whether watching it takes no privilege.
    pub(crate) fn is_watchable(&self) -> bool {
        // The name may now be that of anything: opening a FIFO waits, and opening a device may do
        // something. So the file is first held, then examined, and then opened through the
        // descriptor that holds it.
        let held = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&self.name);
        let is_it = |held: &fs::File| {
            let about = held.metadata();
            about.is_ok_and(|about| about.is_file() && self.is(&about))
        };
        held.is_ok_and(|held| {
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            is_it(&held) && fs::File::open(path).is_ok_and(|file| watched::is_possible(&file))
        })
    }
}

/// Reasons that only its stopped threads show; the check changes nothing in them.
///
/// # Errors
/// It ended.
pub fn frozen_reason(frozen: &Frozen) -> Result<Option<StayReason>, FreezeError> {
    if frozen.status().has_address_tags() {
        return Ok(Some(StayReason::AddressTags));
    }
    for thread in frozen.threads() {
        // A call that we had it make would be reported to it as a signal.
        if thread.stopped()?.syscall_dispatch_on()? {
            return Ok(Some(StayReason::SyscallDispatch));
        }
    }
    // What it has opened since it was looked at has one of the lowest numbers; to look at all would have some stand still
    // for seconds.
    // Trap: opened-as-it-is-stopped
    let mut found = Vec::new();
    let ids = (frozen.pid(), frozen.status().own_id);
    stay_descriptors::of_first(ids, FROZEN_DESCRIPTORS_MAX, &mut found);
    Ok(found.into_iter().next())
}

pub(crate) fn thread_ids(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().filter_map(Result::ok);
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn state_reasons(status: &Status, policy: &Policy, found: &mut Vec<StayReason>) {
    if status.tracer != 0 {
        found.push(StayReason::Traced(status.tracer));
    }
    if status.state == 'T' {
        found.push(StayReason::Stopped);
    }
    found.extend(stay_filters::reason(status, policy));
    if status.features.contains("shstk") {
        found.push(StayReason::ShadowStack);
    }
    if status.has_address_tags() {
        found.push(StayReason::AddressTags);
    }
    if status.locked > policy.locked_max {
        found.push(StayReason::Locked {
            has: status.locked,
            limit: policy.locked_max,
        });
    }
    match status.uids.as_slice() {
        [first, others @ ..] if others.iter().any(|other| other != first) => {
            found.push(StayReason::ChangedIds);
        }
        [0, ..] if !policy.allow_root => found.push(StayReason::Root),
        _ => {}
    }
}

/// Whether its monotonic and boot clocks differ from ours.
#[must_use]
pub fn has_own_time(pid: i32) -> bool {
    let ours = fs::read_link("/proc/self/ns/time");
    let its = fs::read_link(format!("/proc/{pid}/ns/time"));
    matches!((ours, its), (Ok(ours), Ok(its)) if ours != its)
}

/// By the flags that /proc/PID/stat shows.
pub(crate) fn is_kernel_thread(pid: i32) -> bool {
    /// include/linux/sched.h
    const PF_KTHREAD: u32 = 0x0020_0000;
    stat_field(pid, pid, FLAGS).is_some_and(|flags: u32| flags & PF_KTHREAD != 0)
}

/// Reasons that lie in its program file; `None` when it has no program file.
fn program_reasons(
    pid: i32,
    status: &Status,
    policy: &Policy,
    found: &mut Vec<StayReason>,
) -> Option<()> {
    let path = format!("/proc/{pid}/exe");
    let Ok(name) = fs::read_link(&path) else {
        let has_no_memory = command_line(pid).is_ok_and(|line| line.is_empty());
        found.push(match has_no_memory {
            true if is_kernel_thread(pid) => StayReason::KernelThread,
            // It is about to be gone.
            true => StayReason::Gone,
            false => StayReason::Unreadable("its program file".into()),
        });
        return None;
    };
    let of_root = |file: fs::Metadata| file.uid() == 0;
    if let (Ok(program), Some(uid)) = (fs::metadata(&path), status.uids.first()) {
        let mode = program.permissions().mode();
        let changes = mode & SETUID != 0 && program.uid() != *uid || mode & SETGID != 0;
        if *uid != 0 && (changes || has_capabilities(&path)) {
            found.push(StayReason::Privileged(name.to_string_lossy().into_owned()));
        } else if *uid != 0 && fs::metadata(format!("/proc/{pid}/status")).is_ok_and(of_root) {
            // The directory itself has its user for an owner in any case.
            found.push(StayReason::NotDumpable);
        }
    }
    let mut head = [0u8; 5];
    let read = fs::File::open(&path)
        .and_then(|mut program| std::io::Read::read_exact(&mut program, &mut head));
    if read.is_ok() && head.starts_with(b"\x7fELF") && head[4] != ELF_CLASS_64 {
        found.push(StayReason::ThirtyTwoBit);
    }
    if !policy.enters_time && has_own_time(pid) {
        found.push(StayReason::TimeNamespace);
    }
    Some(())
}

fn has_capabilities(path: &str) -> bool {
    foreign::has_attribute(path, c"security.capability")
}

/// The number of the field that has the flags (PF_*).
pub(crate) const FLAGS: usize = 9;

/// A field of `/proc/PID/task/TID/stat`, by its number in proc(5), from 3 on.
pub(crate) fn stat_field<T: FromStr>(pid: i32, tid: i32, number: usize) -> Option<T> {
    let text = text(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; field 3 follows it.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(number - 3)?.parse().ok()
}

/// When a process began, in ticks since the boot: field 22 of its stat.
#[must_use]
pub fn start_time(pid: i32) -> Option<u64> {
    const START_TIME: usize = 22;
    stat_field(pid, pid, START_TIME)
}

/// The command line of a process, as far as it matters here. The process itself says where that
/// text ends, which may be anywhere.
pub(crate) fn command_line(pid: i32) -> io::Result<Vec<u8>> {
    const LINE_MAX: u64 = 4096;
    let mut line = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/cmdline"))?;
    file.take(LINE_MAX).read_to_end(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VDSO: &str = "7ffffffd0000-7ffffffd2000 r-xp 0 00:00 0 [vdso]";

    fn entry(line: &str) -> MapEntry {
        maps::parse(1, line.as_bytes()).unwrap().remove(0)
    }

    fn reason(line: &str, policy: &Policy) -> Option<StayReason> {
        let entries = [entry(line), entry(VDSO)];
        mapping_reasons(7, 7, &entries, &FlagTable::default(), policy)
            .into_iter()
            .next()
    }

    #[test]
    fn shared_memory_stays_but_for_the_named_exceptions() {
        let strict = Policy::default();
        let watches = Policy {
            watches: true,
            ..strict
        };
        let cache = "101000-102000 r--s 00000000 08:01 12 /usr/lib/gconv-modules.cache";
        let name = "/usr/lib/gconv-modules.cache".to_owned();
        assert_eq!(reason(cache, &strict), Some(StayReason::SharedFile(name)));
        assert_eq!(reason(cache, &watches), None);
        assert_eq!(shared_read_only_of(&[entry(cache)]).len(), 1);
        let java = "101000-102000 rw-s 00000000 08:01 12 /tmp/hsperfdata_me/7";
        assert_eq!(reason(java, &strict), None);
        let mono = "101000-102000 rw-s 00000000 00:1b 5 /dev/shm/mono.7";
        assert_eq!(reason(mono, &strict), None);
        for other in ["/dev/shm/mono.8", "/dev/shm/mono.", "/tmp/mono.7"] {
            let line = mono.replace("/dev/shm/mono.7", other);
            assert!(reason(&line, &watches).is_some(), "{other}");
        }
        let other = "101000-102000 rw-s 00000000 08:01 12 /tmp/hsperfdata_me/8";
        assert!(matches!(
            reason(other, &watches),
            Some(StayReason::SharedWritable(_))
        ));
        let anonymous = "101000-102000 rw-s 00000000 00:01 12 /dev/zero (deleted)";
        assert_eq!(
            reason(anonymous, &watches),
            Some(StayReason::SharedAnonymous)
        );
        let memfd = "101000-102000 rw-s 00000000 00:01 12 /memfd:x (deleted)";
        assert!(matches!(
            reason(memfd, &watches),
            Some(StayReason::SharedWritable(_))
        ));
        let sealed = "101000-102000 r--s 00000000 00:01 12 /memfd:x (deleted)";
        let unheard = Some(StayReason::SharedUnheard("/memfd:x".into()));
        assert_eq!(reason(sealed, &watches), unheard);
        let segment = "101000-102000 rw-s 00000000 00:01 12 /SYSV00000000 (deleted)";
        assert!(matches!(
            reason(segment, &watches),
            Some(StayReason::SystemVMemory(_))
        ));
    }

    #[test]
    fn special_mappings_stay() {
        let policy = Policy {
            watches: true,
            ..Policy::default()
        };
        for (line, expected) in [
            (
                "101000-102000 rw-s 0 00:05 3 /dev/dri/card0",
                StayReason::Device("/dev/dri/card0".into()),
            ),
            (
                "101000-102000 r--p 0 00:17 9 /sys/kernel/btf/vmlinux",
                StayReason::Device("/sys/kernel/btf/vmlinux".into()),
            ),
            (
                "101000-102000 rw-s 0 00:05 3 /[aio] (deleted)",
                StayReason::AsyncIo,
            ),
            (
                "101000-102000 rw-s 0 00:05 3 anon_inode:[io_uring]",
                StayReason::IoUring,
            ),
            (
                "101000-102000 rw-s 0 00:05 3 anon_inode:[perf_event]",
                StayReason::Counts,
            ),
            (
                "101000-102000 rw-s 0 00:05 3 /secretmem (deleted)",
                StayReason::SecretMemory,
            ),
        ] {
            assert_eq!(reason(line, &policy), Some(expected), "{line}");
        }
        let socket = |how: &str| format!("101000-102000 {how} 0 00:08 31 socket:[31]");
        let expected = StayReason::Socket("socket:[31]".into());
        for how in ["r--s", "rw-s", "r--p"] {
            let line = socket(how);
            assert_eq!(reason(&line, &policy), Some(expected.clone()), "{line}");
        }
        assert_eq!(shared_read_only_of(&[entry(&socket("r--s"))]), []);
        let device = "101000-102000 r--s 0 00:05 3 /dev/rtc0";
        assert_eq!(shared_read_only_of(&[entry(device)]), []);
        let unknown = StayReason::UnknownMapping("anon_inode:bpf-map".into());
        let map = "101000-102000 r--s 0 00:0f 9 anon_inode:bpf-map";
        assert_eq!(reason(map, &policy), Some(unknown));
        for plain in [
            "101000-102000 r--p 0 08:01 3 /usr/bin/x",
            "101000-102000 rw-p 0 00:00 0 [anon:name]",
            "101000-102000 rw-p 0 00:00 0 ",
        ] {
            assert_eq!(reason(plain, &policy), None, "{plain}");
        }
    }

    #[test]
    fn an_address_space_without_room_stays() {
        let full = "10000-7ffffffff000 rw-p 0 00:00 0";
        assert!(matches!(
            reason(full, &Policy::default()),
            Some(StayReason::NoFreeRange(_))
        ));
        let ours = maps::read(i32::try_from(std::process::id()).unwrap()).unwrap();
        let found = |entries: &[MapEntry]| {
            mapping_reasons(7, 7, entries, &FlagTable::default(), &Policy::default())
        };
        let plain = entry("10000-20000 rw-p 0 00:00 0");
        assert_eq!(found(std::slice::from_ref(&plain)), [StayReason::NoVdso]);
        let low = entry("1000-20000 rw-p 0 00:00 0");
        assert_eq!(found(&[low, entry(VDSO)]), [StayReason::LowMemory(0x1000)]);
        assert_eq!(found(&[plain, entry(VDSO)]), []);
        let range = crate::reserve::choose(&ours).unwrap();
        assert_eq!(range.start % crate::reserve::ALIGNMENT, 0);
        assert!(!ours.iter().any(|entry| entry.range.overlaps(range)));
    }

    fn of_root() -> Policy {
        let allow_root = true;
        Policy {
            allow_root,
            ..Policy::default()
        }
    }

    #[test]
    fn every_sentence_ends_without_a_full_stop_and_begins_with_it() {
        let sentence = StayReason::Locked { has: 1, limit: 0 }.to_string();
        let expected = "It has locked 1 bytes of memory; a host takes 0 at most";
        assert_eq!(sentence, expected);
        assert_eq!(reasons(i32::MAX, &Policy::default()), [StayReason::Gone]);
        let found = reasons(2, &of_root());
        // In a pid namespace there may be no process 2, or another one.
        assert!(
            found
                .iter()
                .all(|reason| !reason.to_string().ends_with('.'))
        );
    }

    #[test]
    fn a_process_that_has_ended_is_no_kernel_thread() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let id = nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(pid));
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(id, flags).unwrap();
        assert_eq!(reasons(pid, &of_root()), [StayReason::Gone]);
        child.wait().unwrap();
    }
}
