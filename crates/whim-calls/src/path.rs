//! Paths that show the process itself.
//!
//! In `/proc` the kernel would show the deputy: its memory map is the attic and the window, and
//! its threads sleep. Such paths go home. What truly lives at home (descriptors, working
//! directory, executable, mounts) is shown rightly by the deputy and is forwarded.

use syscalls::Sysno;

use crate::builder::{Builder, Flow, go_home};
use crate::types::Context;

/// Entries of /proc/self that show what stays at home.
const HOME_ENTRIES: &[&[u8]] = &[
    b"exe",
    b"cwd",
    b"root",
    b"fd",
    b"fdinfo",
    b"mounts",
    b"mountinfo",
    b"mountstats",
    b"cgroup",
    b"loginuid",
    b"sessionid",
    b"net",
    b"ns",
    b"attr",
    b"oom_adj",
    b"oom_score_adj",
    b"uid_map",
    b"gid_map",
    b"projid_map",
    b"setgroups",
];
/// Of these, the ones below which plain names may follow.
const HOME_DIRECTORIES: &[&[u8]] = &[b"fd", b"fdinfo", b"net", b"ns", b"attr"];

/// Calls that only query a name. realpath asks for the target of each directory on its way, so the
/// process's own directory may be queried. It may not be opened, because names below it could
/// follow.
const LOOKING: &[Sysno] = &[
    Sysno::stat,
    Sysno::lstat,
    Sysno::newfstatat,
    Sysno::statx,
    Sysno::access,
    Sysno::faccessat,
    Sysno::faccessat2,
    Sysno::readlink,
    Sysno::readlinkat,
];

impl Builder<'_> {
    /// A path in an argument.
    pub(crate) fn path(&mut self, index: usize) -> Flow {
        let text = self.text(index)?;
        let end = text.iter().position(|byte| *byte == 0);
        let path = &text[..end.unwrap_or(text.len())];
        let looks = LOOKING
            .iter()
            .any(|sysno| *sysno as u64 == self.call.number);
        if shows_itself(path, looks, self.context) {
            return go_home("this path shows the process itself in /proc");
        }
        Ok(())
    }
}

/// True if the path, read as text, leads into the process's own part of /proc, to something that
/// the deputy would show wrongly.
fn shows_itself(path: &[u8], looks: bool, context: &Context) -> bool {
    if path.first() != Some(&b'/') {
        return false;
    }
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    let [b"proc", who, rest @ ..] = names.as_slice() else {
        return false;
    };
    // Trap: the-deputy-s-own-proc
    if !names_itself(who, context) {
        return false;
    }
    !(looks && rest.is_empty() || is_of_home(rest))
}

/// Whether the deputy shows this rightly: names below a process's own directory in /proc.
#[must_use]
pub fn is_of_home(names: &[&[u8]]) -> bool {
    match names {
        [entry] => HOME_ENTRIES.contains(entry),
        [entry, _] => HOME_DIRECTORIES.contains(entry),
        _ => false,
    }
}

fn names_itself(who: &[u8], context: &Context) -> bool {
    if who == b"self" || who == b"thread-self" {
        return true;
    }
    std::str::from_utf8(who)
        .ok()
        .and_then(|text| text.parse::<i32>().ok())
        .is_some_and(|id| context.is_own(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_proc_is_recognised_however_it_is_written() {
        let context = Context {
            pid: 42,
            threads: vec![42, 43],
            ..Context::default()
        };
        for path in [
            "/proc/self",
            "/proc/self/maps",
            "//proc//self/./status",
            "/proc/../proc/self/mem",
            "/proc/thread-self/stat",
            "/proc/42/maps",
            "/proc/43/comm",
            "/proc/self/task/42/stat",
            "/proc/self/root/proc/self/maps",
            "/proc/self/fd/3/self/maps",
            "/proc/self/cwd/maps",
        ] {
            assert!(shows_itself(path.as_bytes(), false, &context), "{path}");
        }
        for path in [
            "",
            "proc/self/maps",
            "/proc/1/maps",
            "/proc/cpuinfo",
            "/proc/self/exe",
            "/proc/self/fd",
            "/proc/self/fd/5",
            "/proc/self/mountinfo",
            "/procession/self",
            "/tmp/proc/self",
            "/proc/424",
        ] {
            assert!(!shows_itself(path.as_bytes(), false, &context), "{path}");
        }
        assert!(!shows_itself(b"/proc/self", true, &context));
        assert!(shows_itself(b"/proc/self/maps", true, &context));
    }
}
