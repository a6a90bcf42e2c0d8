//! What `prctl` and `arch_prctl` set and tell, option by option, and where each is done for a guest.
//!
//! The kernel keeps most of it for the process or the thread at home, which is the deputy: there it is
//! asked and set, and nothing of it has to travel. What acts where the memory is, or where the thread
//! runs, is set at the guest too; a journey takes it along, as `whim_image::settings` does.

use crate::builder::{Builder, Flow, go_home, run_here};
use crate::decide::special_forward;
use crate::types::{Direction, Returned, Special};

/// Where an option is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// In the guest alone: it concerns its memory or its registers, or the kernel refuses it on this
    /// architecture.
    Here,
    /// By the deputy alone. The option has no pointer.
    Home,
    /// By the deputy alone, which stores an `int` where the second argument points.
    HomeStores,
    /// By the deputy, whose answer counts, and then in the guest.
    Both,
    /// By nobody: the process comes home for it. The words say what it does.
    Returns(&'static str),
    /// As [`decide`] says.
    Decided,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub option: u32,
    /// The name in the kernel's header, without `PR_` or `ARCH_`.
    pub name: &'static str,
    pub done: Done,
}

const fn row(option: u32, name: &'static str, done: Done) -> Row {
    Row { option, name, done }
}

use Done::{Both, Decided, Here, Home, HomeStores, Returns};

const SET_NAME: u32 = 15;
const SET_TSC: u32 = 26;
const SET_TIMERSLACK: u32 = 29;
const SET_THP_DISABLE: u32 = 41;
/// PR_TSC_ENABLE, which every guest has.
const TSC_ENABLE: u32 = 1;

/// All options of prctl, Linux 6.1 to 6.18, by number.
pub(crate) const PRCTL: &[Row] = &[
    row(1, "SET_PDEATHSIG", Home),
    row(2, "GET_PDEATHSIG", HomeStores),
    row(3, "GET_DUMPABLE", Home),
    row(4, "SET_DUMPABLE", Home),
    row(5, "GET_UNALIGN", Here),
    row(6, "SET_UNALIGN", Here),
    row(7, "GET_KEEPCAPS", Home),
    row(8, "SET_KEEPCAPS", Home),
    row(9, "GET_FPEMU", Here),
    row(10, "SET_FPEMU", Here),
    row(11, "GET_FPEXC", Here),
    row(12, "SET_FPEXC", Here),
    row(13, "GET_TIMING", Here),
    row(14, "SET_TIMING", Here),
    // `ps` at home shows it.
    row(SET_NAME, "SET_NAME", Both),
    row(16, "GET_NAME", Here),
    row(19, "GET_ENDIAN", Here),
    row(20, "SET_ENDIAN", Here),
    row(21, "GET_SECCOMP", Home),
    row(22, "SET_SECCOMP", Returns("it installs a seccomp filter")),
    row(23, "CAPBSET_READ", Home),
    row(24, "CAPBSET_DROP", Home),
    row(25, "GET_TSC", Here),
    row(SET_TSC, "SET_TSC", Decided),
    row(27, "GET_SECUREBITS", Home),
    row(28, "SET_SECUREBITS", Home),
    // What is set at both can be asked at either; our own questions must not be reported.
    row(SET_TIMERSLACK, "SET_TIMERSLACK", Both),
    row(30, "GET_TIMERSLACK", Here),
    row(31, "TASK_PERF_EVENTS_DISABLE", Home),
    row(32, "TASK_PERF_EVENTS_ENABLE", Home),
    row(33, "MCE_KILL", Both),
    row(34, "MCE_KILL_GET", Here),
    row(
        35,
        "SET_MM",
        Returns("it edits the description of its memory"),
    ),
    row(36, "SET_CHILD_SUBREAPER", Home),
    row(37, "GET_CHILD_SUBREAPER", HomeStores),
    row(38, "SET_NO_NEW_PRIVS", Home),
    row(39, "GET_NO_NEW_PRIVS", Home),
    row(40, "GET_TID_ADDRESS", Here),
    row(SET_THP_DISABLE, "SET_THP_DISABLE", Both),
    row(42, "GET_THP_DISABLE", Home),
    row(43, "MPX_ENABLE_MANAGEMENT", Here),
    row(44, "MPX_DISABLE_MANAGEMENT", Here),
    row(45, "SET_FP_MODE", Here),
    row(46, "GET_FP_MODE", Here),
    row(47, "CAP_AMBIENT", Home),
    row(50, "SVE_SET_VL", Here),
    row(51, "SVE_GET_VL", Here),
    row(52, "GET_SPECULATION_CTRL", Home),
    row(
        53,
        "SET_SPECULATION_CTRL",
        Returns("it restricts speculation"),
    ),
    row(54, "PAC_RESET_KEYS", Here),
    row(55, "SET_TAGGED_ADDR_CTRL", Here),
    row(56, "GET_TAGGED_ADDR_CTRL", Here),
    row(57, "SET_IO_FLUSHER", Home),
    row(58, "GET_IO_FLUSHER", Home),
    row(
        59,
        "SET_SYSCALL_USER_DISPATCH",
        Returns("it dispatches system calls to itself"),
    ),
    row(60, "PAC_SET_ENABLED_KEYS", Here),
    row(61, "PAC_GET_ENABLED_KEYS", Here),
    row(
        62,
        "SCHED_CORE",
        Returns("it asks with whom it may share a core"),
    ),
    row(63, "SME_SET_VL", Here),
    row(64, "SME_GET_VL", Here),
    row(
        65,
        "SET_MDWE",
        Returns("it denies itself memory that is both writable and executable"),
    ),
    row(66, "GET_MDWE", Here),
    // Equal pages are shared at home, never at a host: who shares them can be told from outside. To stop
    // that the kernel looks at each page of the address space, of which a deputy has a billion.
    row(
        67,
        "SET_MEMORY_MERGE",
        Returns("it says whether it shares equal pages"),
    ),
    row(68, "GET_MEMORY_MERGE", Home),
    row(69, "RISCV_V_SET_CONTROL", Here),
    row(70, "RISCV_V_GET_CONTROL", Here),
    row(71, "RISCV_SET_ICACHE_FLUSH_CTX", Here),
    row(72, "PPC_GET_DEXCR", Here),
    row(73, "PPC_SET_DEXCR", Here),
    row(74, "GET_SHADOW_STACK_STATUS", Here),
    row(75, "SET_SHADOW_STACK_STATUS", Here),
    row(76, "LOCK_SHADOW_STACK_STATUS", Here),
    // Timers are home's.
    row(77, "TIMER_CREATE_RESTORE_IDS", Home),
    // How many buckets the futexes of a process have shows in speed alone.
    row(78, "FUTEX_HASH", Home),
    row(0x4155_5856, "GET_AUXV", Here),
    row(0x5356_4d41, "SET_VMA", Here),
    row(0x5961_6d61, "SET_PTRACER", Home),
];

/// All options of arch_prctl (x86), by number.
pub(crate) const ARCH_PRCTL: &[Row] = &[
    row(0x1001, "SET_GS", Here),
    row(0x1002, "SET_FS", Here),
    row(0x1003, "GET_FS", Here),
    row(0x1004, "GET_GS", Here),
    row(0x1011, "GET_CPUID", Here),
    row(0x1012, "SET_CPUID", Returns("it switches CPUID on or off")),
    row(0x1021, "GET_XCOMP_SUPP", Here),
    row(0x1022, "GET_XCOMP_PERM", Here),
    row(
        0x1023,
        "REQ_XCOMP_PERM",
        Returns("it asks for larger registers"),
    ),
    row(0x1024, "GET_XCOMP_GUEST_PERM", Here),
    row(
        0x1025,
        "REQ_XCOMP_GUEST_PERM",
        Returns("it asks for larger registers"),
    ),
    row(0x1030, "XCOMP_TILECFG", Here),
    row(0x1031, "XCOMP_TILEDATA", Here),
    row(0x2001, "MAP_VDSO_X32", Returns(MAPS_VDSO)),
    row(0x2002, "MAP_VDSO_32", Returns(MAPS_VDSO)),
    row(0x2003, "MAP_VDSO_64", Returns(MAPS_VDSO)),
    row(0x4001, "GET_UNTAG_MASK", Returns(TAGS)),
    row(0x4002, "ENABLE_TAGGED_ADDR", Returns(TAGS)),
    row(0x4003, "GET_MAX_TAG_BITS", Returns(TAGS)),
    row(0x4004, "FORCE_TAGGED_SVA", Returns(TAGS)),
    row(0x5001, "SHSTK_ENABLE", Returns(SHADOWS)),
    row(0x5002, "SHSTK_DISABLE", Returns(SHADOWS)),
    row(0x5003, "SHSTK_LOCK", Returns(SHADOWS)),
    row(0x5004, "SHSTK_UNLOCK", Returns(SHADOWS)),
    row(0x5005, "SHSTK_STATUS", Here),
];

const MAPS_VDSO: &str = "it maps the kernel's code once more";
const TAGS: &str = "it uses address tagging";
const SHADOWS: &str = "it uses a shadow stack";

/// Options that the guest's filter lets through.
pub(crate) const PRCTL_HERE: &[u32] = &here::<{ count(PRCTL) }>(PRCTL);
pub(crate) const ARCH_PRCTL_HERE: &[u32] = &here::<{ count(ARCH_PRCTL) }>(ARCH_PRCTL);

const fn count(rows: &[Row]) -> usize {
    let (mut found, mut index) = (0, 0);
    while index < rows.len() {
        if matches!(rows[index].done, Here) {
            found += 1;
        }
        index += 1;
    }
    found
}

const fn here<const COUNT: usize>(rows: &[Row]) -> [u32; COUNT] {
    let mut all = [0; COUNT];
    let (mut found, mut index) = (0, 0);
    while index < rows.len() {
        if matches!(rows[index].done, Here) {
            all[found] = rows[index].option;
            found += 1;
        }
        index += 1;
    }
    all
}

fn find(rows: &[Row], option: u32) -> Option<Done> {
    let row = rows.iter().find(|row| row.option == option);
    row.map(|row| row.done)
}

/// Whether home executes this option of prctl for a guest.
pub(crate) fn is_forwarded(option: u32) -> bool {
    matches!(find(PRCTL, option), Some(Home | HomeStores | Both))
}

pub(crate) fn decide(builder: &mut Builder<'_>) -> Flow {
    match find(PRCTL, builder.unsigned(0)) {
        Some(Here) => run_here(),
        Some(Home) => Ok(()),
        Some(HomeStores) => builder.region(builder.value(1), 4, Direction::Out, Returned::Whole),
        // What it excepts (Linux 6.18) a host's kernel may not know; it shows in speed alone.
        Some(Both) if builder.unsigned(0) == SET_THP_DISABLE && builder.value(2) != 0 => Ok(()),
        // What it returns to home alone knows: what its parent had when it was made.
        Some(Both) if builder.unsigned(0) == SET_TIMERSLACK && builder.value(1) == 0 => {
            go_home("it takes its first timer slack again")
        }
        Some(Both) => {
            if builder.unsigned(0) == SET_NAME {
                // The kernel reads at most 15 bytes and adds its own NUL.
                let name = builder.value(1);
                builder.region(name, 16, Direction::In, Returned::Nothing)?;
            }
            special_forward(builder, Special::Both)
        }
        Some(Returns(what)) => go_home(what),
        Some(Decided) if builder.unsigned(1) == TSC_ENABLE => run_here(),
        Some(Decided) => go_home("it denies itself the time stamp counter"),
        None => go_home("this prctl option is not in the table"),
    }
}

pub(crate) fn decide_arch(builder: &mut Builder<'_>) -> Flow {
    match find(ARCH_PRCTL, builder.unsigned(0)) {
        Some(Here) => run_here(),
        Some(Returns(what)) => go_home(what),
        _ => go_home("this arch_prctl option is not in the table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the distribution (linux-libc-dev), whose constants may be fewer than ours.
    fn header(path: &str, prefix: &str) -> Vec<(String, u32)> {
        let text = std::fs::read_to_string(path).expect("linux-libc-dev is installed");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let constant = |line: &str| {
            // Options begin a line; their arguments are indented behind the #.
            let mut words = line.strip_prefix("#define ")?.split_whitespace();
            let name = words.next()?.strip_prefix(prefix)?;
            Some((name.to_owned(), number(words.next()?)?))
        };
        text.lines().filter_map(constant).collect()
    }

    /// Names of the header that are arguments and not options, though nothing marks them as such.
    const ARGUMENTS: &[&str] = &[
        "UNALIGN_",
        "FPEMU_",
        "FP_EXC_",
        "TIMING_",
        "ENDIAN_",
        "TSC_",
        "MCE_KILL_CLEAR",
        "MCE_KILL_SET",
        "MCE_KILL_LATE",
        "MCE_KILL_EARLY",
        "MCE_KILL_DEFAULT",
        "SET_MM_",
        "FP_MODE_F",
        "CAP_AMBIENT_",
        "SVE_SET_VL_ONEXEC",
        "SVE_VL_",
        "SPEC_",
        "PAC_AP",
        "TAGGED_ADDR_ENABLE",
        "MTE_",
        "PMLEN_",
        "SYS_DISPATCH_",
        "SYSCALL_DISPATCH_",
        "SCHED_CORE_",
        "SME_SET_VL_ONEXEC",
        "SME_VL_",
        "MDWE_",
        "SET_VMA_ANON_NAME",
        "RISCV_V_VSTATE",
        "RISCV_V_SET_CONTROL_",
        "RISCV_CTX",
        "RISCV_SCOPE",
        "PPC_DEXCR_",
        "SHADOW_STACK_",
        "TIMER_CREATE_RESTORE_IDS_",
        "FUTEX_HASH_",
        "THP_DISABLE_",
        "SET_PTRACER_ANY",
    ];

    #[test]
    fn every_option_of_the_header_is_in_the_table() {
        let options = header("/usr/include/linux/prctl.h", "PR_");
        let options = options
            .iter()
            .filter(|(name, _)| !ARGUMENTS.iter().any(|argument| name.starts_with(argument)));
        let mut seen = 0;
        for (name, option) in options {
            let row = PRCTL.iter().find(|row| row.option == *option);
            assert_eq!(row.map(|row| row.name), Some(name.as_str()), "{option}");
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn every_option_of_the_architecture_is_in_the_table() {
        let options = header("/usr/include/x86_64-linux-gnu/asm/prctl.h", "ARCH_");
        assert!(options.len() > 10, "{options:?}");
        for (name, option) in options {
            let row = ARCH_PRCTL.iter().find(|row| row.option == option);
            let known = row.is_some_and(|row| row.name == name);
            assert!(known || name.starts_with("SHSTK_"), "{name} {option:#x}");
        }
    }

    #[test]
    fn rows_ascend() {
        for rows in [PRCTL, ARCH_PRCTL] {
            assert!(rows.is_sorted_by(|left, right| left.option < right.option));
        }
        assert!(PRCTL_HERE.contains(&16) && !PRCTL_HERE.contains(&29));
    }
}
