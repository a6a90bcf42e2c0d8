use super::*;
use crate::prctl::{ARCH_PRCTL, Done, PRCTL, Row};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of the newest linux-raw-sys that cargo has fetched: this workspace depends on it, by rustix.
fn raw_sys() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.expect("a home").join("registry/src");
    let below = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(Result::ok).map(|entry| entry.path())
    };
    let mut crates: Vec<PathBuf> = below(&sources)
        .flat_map(|registry| below(&registry).collect::<Vec<_>>())
        .filter(|path| path.to_string_lossy().contains("/linux-raw-sys-0."))
        .collect();
    let version = |path: &PathBuf| {
        let name = path.to_string_lossy().into_owned();
        let (_, version) = name.rsplit_once("-0.").unwrap_or_default();
        let parts: Vec<u32> = version
            .split('.')
            .filter_map(|part| part.parse().ok())
            .collect();
        parts
    };
    crates.sort_by_key(version);
    let newest = crates.pop().expect("linux-raw-sys is fetched");
    below(&newest.join("src/x86_64")).collect()
}

/// The constants of this prefix that a text defines: `#define NAME`, `pub const NAME`, or in an enum.
fn defined(text: &str, prefix: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("#define").unwrap_or(line).trim_start();
        let line = line.strip_prefix("pub const ").unwrap_or(line);
        let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = line.split_at(end.unwrap_or(line.len()));
        let defines = rest.trim_start().is_empty() || rest.starts_with([' ', '\t', ',', ':', '=']);
        (defines && name.starts_with(prefix)).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// A prefix, where linux-libc-dev has it, and constants that say nothing which is kept: what is done at once,
/// what only asks, masks, and names of others.
struct Family {
    prefix: &'static str,
    headers: &'static [&'static str],
    nothing: &'static [&'static str],
    at_least: usize,
}

const FAMILIES: &[Family] = &[
    Family {
        prefix: "MADV_",
        headers: &["asm-generic/mman-common.h"],
        nothing: &[
            "MADV_WILLNEED",
            "MADV_DONTNEED",
            "MADV_FREE",
            "MADV_REMOVE",
            "MADV_HWPOISON",
            "MADV_SOFT_OFFLINE",
            "MADV_COLD",
            "MADV_PAGEOUT",
            "MADV_POPULATE_READ",
            "MADV_POPULATE_WRITE",
            "MADV_DONTNEED_LOCKED",
            "MADV_COLLAPSE",
        ],
        at_least: 25,
    },
    Family {
        prefix: "MAP_",
        headers: &[
            "asm-generic/mman-common.h",
            "asm-generic/mman.h",
            "linux/mman.h",
        ],
        nothing: &[
            "MAP_FIXED",
            "MAP_FIXED_NOREPLACE",
            "MAP_ANONYMOUS",
            "MAP_POPULATE",
            "MAP_NONBLOCK",
            "MAP_STACK",
            "MAP_UNINITIALIZED",
            "MAP_FILE",
            "MAP_TYPE",
            "MAP_DENYWRITE",
            "MAP_EXECUTABLE",
            "MAP_32BIT",
            "MAP_ABOVE4G",
        ],
        at_least: 15,
    },
    Family {
        prefix: "MCL_",
        headers: &["asm-generic/mman.h"],
        nothing: &[],
        at_least: 3,
    },
    Family {
        prefix: "MLOCK_",
        headers: &["asm-generic/mman-common.h"],
        nothing: &["MLOCK_LIMIT"],
        at_least: 1,
    },
    Family {
        prefix: "MPOL_",
        headers: &["linux/mempolicy.h"],
        nothing: &[
            "MPOL_MAX",
            "MPOL_MODE_FLAGS",
            "MPOL_F_NODE",
            "MPOL_F_ADDR",
            "MPOL_F_MEMS_ALLOWED",
            "MPOL_F_SHARED",
            "MPOL_F_MOF",
            "MPOL_F_MORON",
            "MPOL_MF_STRICT",
            "MPOL_MF_MOVE",
            "MPOL_MF_MOVE_ALL",
            "MPOL_MF_LAZY",
            "MPOL_MF_INTERNAL",
            "MPOL_MF_VALID",
        ],
        at_least: 10,
    },
    Family {
        prefix: "MEMBARRIER_CMD_",
        headers: &["linux/membarrier.h"],
        nothing: &[
            "MEMBARRIER_CMD_QUERY",
            "MEMBARRIER_CMD_GLOBAL",
            "MEMBARRIER_CMD_SHARED",
            "MEMBARRIER_CMD_GLOBAL_EXPEDITED",
            "MEMBARRIER_CMD_PRIVATE_EXPEDITED",
            "MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE",
            "MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ",
            "MEMBARRIER_CMD_GET_REGISTRATIONS",
            "MEMBARRIER_CMD_FLAG_CPU",
        ],
        at_least: 10,
    },
    Family {
        prefix: "SCHED_",
        headers: &["linux/sched.h"],
        nothing: &[
            "SCHED_FLAG_KEEP_POLICY",
            "SCHED_FLAG_KEEP_PARAMS",
            "SCHED_FLAG_KEEP_ALL",
            "SCHED_FLAG_UTIL_CLAMP",
            "SCHED_FLAG_ALL",
        ],
        at_least: 12,
    },
    Family {
        prefix: "IOPRIO_CLASS_",
        headers: &["linux/ioprio.h"],
        nothing: &[
            "IOPRIO_CLASS_SHIFT",
            "IOPRIO_CLASS_MASK",
            "IOPRIO_CLASS_INVALID",
        ],
        at_least: 4,
    },
    Family {
        prefix: "RLIMIT_",
        headers: &["asm-generic/resource.h"],
        nothing: &[],
        at_least: 10,
    },
    Family {
        prefix: "SECCOMP_SET_MODE_",
        headers: &["linux/seccomp.h"],
        nothing: &[],
        at_least: 2,
    },
    Family {
        prefix: "LANDLOCK_RESTRICT_SELF_",
        headers: &[],
        nothing: &[],
        at_least: 3,
    },
];

fn headers(family: &Family) -> String {
    let read = |name: &&str| fs::read_to_string(Path::new("/usr/include").join(name));
    let texts: Result<Vec<String>, _> = family.headers.iter().map(read).collect();
    texts.expect("linux-libc-dev is installed").concat()
}

#[test]
fn every_constant_of_the_kernel_is_in_the_table() {
    let bindings = raw_sys().into_iter().map(fs::read_to_string);
    let bindings: Result<Vec<String>, _> = bindings.collect();
    let bindings = bindings.expect("readable").concat();
    let mut missing = Vec::new();
    for family in FAMILIES {
        let mut names = defined(&headers(family), family.prefix);
        names.extend(defined(&bindings, family.prefix));
        names.retain(|name| !name.starts_with("MAP_HUGE_"));
        assert!(
            names.len() >= family.at_least,
            "{}: {names:?}",
            family.prefix
        );
        let known = |name: &String| KEPT.iter().any(|row| row.name == name);
        names.retain(|name| !family.nothing.contains(&name.as_str()) && !known(name));
        missing.extend(names);
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_personality_is_in_the_table() {
    let text = fs::read_to_string("/usr/include/linux/personality.h");
    let text = text.expect("linux-libc-dev is installed");
    let (flags, _) = text
        .split_once("PER_CLEAR_ON_SETID")
        .expect("flags come first");
    let names = defined(flags, "");
    let upper = |name: &&String| name.len() > 6 && name.to_uppercase() == **name;
    let names: Vec<&String> = names.iter().filter(upper).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        let known = KEPT.iter().any(|row| row.name == name);
        // Of other architectures, and the header's own guard.
        assert!(
            known || name == "FDPIC_FUNCPTRS" || name.starts_with('_'),
            "{name}"
        );
    }
}

/// Options that keep nothing: they ask, or x86-64 does not have them.
fn keeps_nothing(row: &Row) -> bool {
    const OTHERS: &[&str] = &[
        "UNALIGN",
        "FPEMU",
        "FPEXC",
        "TIMING",
        "ENDIAN",
        "MPX_",
        "FP_MODE",
        "SVE_",
        "SME_",
        "PAC_",
        "TAGGED_ADDR_CTRL",
        "RISCV_",
        "PPC_",
        "SHADOW_STACK_STATUS",
        "XCOMP_TILE",
        "SHSTK_STATUS",
        "CAPBSET_READ",
        "MCE_KILL_GET",
    ];
    let other = OTHERS.iter().any(|part| row.name.contains(part));
    row.name.starts_with("GET_") || other
}

fn options_agree(call: &str, prefix: &str, rows: &[Row]) {
    for row in rows.iter().filter(|row| !keeps_nothing(row)) {
        let name = format!("{prefix}{}", row.name);
        let kept = KEPT
            .iter()
            .find(|kept| kept.call == call && kept.name == name);
        let kept = kept.unwrap_or_else(|| panic!("{name} is not in the table"));
        let agrees = match row.done {
            Done::Home | Done::HomeStores => kept.fate == AtHome,
            Done::Both | Done::Here => kept.fate == Travels,
            // It is said at home, or keeps its program there.
            Done::Returns(_) | Done::Decided => kept.fate != AtHome || !kept.remark.is_empty(),
        };
        assert!(agrees, "{name}: {:?}, {:?}", row.done, kept.fate);
    }
}

#[test]
fn the_options_of_prctl_are_done_as_the_table_says() {
    options_agree("prctl", "PR_", PRCTL);
    options_agree("arch_prctl", "ARCH_", ARCH_PRCTL);
}

#[test]
fn nothing_is_said_twice() {
    let mut seen = BTreeSet::new();
    for row in KEPT {
        assert!(
            seen.insert((row.call, row.name)),
            "{} {}",
            row.call,
            row.name
        );
    }
    assert!(DESCRIPTORS.is_sorted_by(|left, right| left.0 < right.0));
    assert_eq!(of_descriptor("kvm-vcpu:3"), Some(Stays));
    assert_eq!(of_descriptor("inotify"), Some(AtHome));
    assert_eq!(of_descriptor("[whim]"), None);
}
