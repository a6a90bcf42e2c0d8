//! By hand: whether all is known that the source of a kernel has of flags of mappings and of descriptors
//! without a file. The lists here are those of Debian's linux-source-6.1 (6.1.192) and linux-source-6.12
//! (6.12.117); for another one:
//!
//! ```text
//! WHIM_KERNEL_SOURCE=DIRECTORY cargo test -p whim-image kernel_source
//! ```
//!
//! Without a source there is nothing to compare.

use crate::maps::FlagTable;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use whim_calls::kept::of_descriptor;
use whim_model::Range;

/// Kinds that only the kernel's own tests have.
const OF_TESTS: &[&str] = &["[iommufd_test_staccess]"];
/// Flags that x86-64 does not have: arm64's, and protection keys, which show as nothing.
const OF_OTHERS: &[&str] = &["bt", "mt", "gc", ""];

fn source() -> Option<PathBuf> {
    std::env::var_os("WHIM_KERNEL_SOURCE").map(PathBuf::from)
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a kind");
        let path = entry.path();
        if kind.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path);
        }
    }
}

/// The names that a file gives to descriptors where it writes them out.
fn kinds(text: &str, found: &mut BTreeSet<String>) {
    for part in text.split("anon_inode_").skip(1) {
        let Some((call, rest)) = part.split_once('(') else {
            continue;
        };
        let makes = call.contains("get")
            && call
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let name = rest.trim_start().strip_prefix('"');
        if let Some((name, _)) = name.filter(|_| makes).and_then(|name| name.split_once('"')) {
            found.insert(name.to_owned());
        }
    }
}

#[test]
fn kernel_source_has_no_other_descriptors() {
    let Some(source) = source() else {
        return;
    };
    let (mut all, mut found) = (Vec::new(), BTreeSet::new());
    for part in [
        "arch/x86", "drivers", "fs", "io_uring", "kernel", "mm", "security", "sound", "virt",
    ] {
        files(&source.join(part), &mut all);
    }
    for file in all {
        kinds(
            &String::from_utf8_lossy(&fs::read(file).expect("readable")),
            &mut found,
        );
    }
    assert!(found.len() > 30, "{found:?}");
    let unknown =
        |kind: &String| of_descriptor(kind).is_none() && !OF_TESTS.contains(&kind.as_str());
    found.retain(unknown);
    assert_eq!(found, BTreeSet::new());
}

#[test]
fn kernel_source_has_no_other_flags() {
    let Some(source) = source() else {
        return;
    };
    let text = fs::read_to_string(source.join("fs/proc/task_mmu.c")).expect("readable");
    let (_, table) = text
        .split_once("mnemonics[BITS_PER_LONG]")
        .expect("the table");
    let (table, _) = table.split_once("};").expect("its end");
    let flags: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    assert!(flags.len() > 25, "{flags:?}");
    for flag in flags
        .iter()
        .filter(|flag| !OF_OTHERS.contains(flag) && **flag != "??")
    {
        let text = format!("1000-2000 rw-p 0 00:00 0 \nVmFlags: rd wr {flag} \n");
        let table = FlagTable::parse(text.as_bytes());
        let range = Range {
            start: 0x1000,
            end: 0x2000,
        };
        assert_eq!(table.of(range).unknown, None, "{flag}");
    }
}
