//! Reasons to stay that lie in what a process has open. Its descriptors stay at home with the deputy: that works
//! for all that is known to mean nothing of the process itself.

use crate::descriptor_signals::{all_wait_at_home, read_by};
use crate::stay::StayReason;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use std::fs;
use std::path::Path;
use whim_calls::kept::{Fate, of_descriptor};

/// File systems of the kernel whose inodes are shown as their kind and a number: pipes, sockets, namespaces.
const NUMBERED: &[&str] = &[
    "cgroup",
    "ipc",
    "mnt",
    "net",
    "pid",
    "pid_for_children",
    // Linux 6.9
    "pidfd",
    "pipe",
    "socket",
    "time",
    "time_for_children",
    "user",
    "uts",
];

/// Looks at no more than `limit` descriptors. `ids`: the process's id as we see it, and in its own namespace.
pub(crate) fn reasons(ids: (i32, i32), limit: usize, found: &mut Vec<StayReason>) {
    if !of_first(ids, limit, found) {
        // A descriptor that was not examined may be of any kind.
        found.push(StayReason::TooManyDescriptors(limit));
    }
}

/// Looks at the first `limit` descriptors; false if there are more.
pub(crate) fn of_first(ids: (i32, i32), limit: usize, found: &mut Vec<StayReason>) -> bool {
    let (pid, _) = ids;
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut look = |path: &Path| {
        let Ok(target) = fs::read_link(path) else {
            return;
        };
        // What looks like it may be a file of anybody's, of that name.
        let is_proc =
            || statfs(path).is_ok_and(|about| about.filesystem_type() == PROC_SUPER_MAGIC);
        let name = target.to_string_lossy();
        let reason = if name == "anon_inode:[signalfd]" {
            // One that is closed meanwhile has none.
            let waits = read_by(path).is_ok_and(all_wait_at_home);
            (!waits && path.exists()).then_some(StayReason::SignalDescriptor)
        } else {
            reason(&name, ids, is_proc)
        };
        found.extend(reason.filter(|reason| !found.contains(reason)));
    };
    look(Path::new(&format!("/proc/{pid}/cwd")));
    for (number, entry) in entries.filter_map(Result::ok).enumerate() {
        if number >= limit {
            return false;
        }
        look(&entry.path());
    }
    true
}

fn reason(name: &str, ids: (i32, i32), is_proc: impl FnOnce() -> bool) -> Option<StayReason> {
    if let Some(kind) = name.strip_prefix("anon_inode:") {
        return match kind {
            "[io_uring]" => Some(StayReason::IoUring),
            "[userfaultfd]" => Some(StayReason::UserFault),
            "[perf_event]" => Some(StayReason::Counts),
            kind => match of_descriptor(kind) {
                // Whoever calls it is the deputy.
                Some(Fate::AtHome | Fate::Travels) => None,
                Some(Fate::Stays) => Some(StayReason::HomeDescriptor(kind.to_owned())),
                None => Some(StayReason::UnknownDescriptor(kind.to_owned())),
            },
        };
    }
    if let Some((kind, number)) = name.split_once(":[") {
        let is_plain = name.starts_with(['/', '(']) || NUMBERED.contains(&kind);
        let numbered = number.ends_with(']');
        return (numbered && !is_plain).then(|| StayReason::UnknownDescriptor(kind.to_owned()));
    }
    let shown = shows_itself(name, ids)?;
    is_proc().then_some(StayReason::OwnProc(shown))
}

/// What a name shows that the deputy shows wrongly, if it is of the process's own directory in /proc: its name
/// as the process itself would write it. `ids`: the process's id as we see it, and in its own namespace.
#[must_use]
pub fn shows_itself(name: &str, ids: (i32, i32)) -> Option<String> {
    let below = of_own_directory(name, ids)?;
    let bytes: Vec<&[u8]> = below.iter().map(|name| name.as_bytes()).collect();
    (!whim_calls::is_of_home(&bytes)).then(|| {
        let all = std::iter::once("/proc/self").chain(below);
        all.collect::<Vec<_>>().join("/")
    })
}

/// The names that follow the process's own directory in a name that may be one of /proc; those of a thread are
/// taken for the process's.
fn of_own_directory(name: &str, (pid, own): (i32, i32)) -> Option<Vec<&str>> {
    let names: Vec<&str> = name.split('/').collect();
    let is_own = |name: &&str| {
        let id = name.parse::<i32>();
        let is_thread = |id: i32| Path::new(&format!("/proc/{pid}/task/{id}")).exists();
        id.is_ok_and(|id| id == pid || id == own || is_thread(id))
    };
    let at = names.iter().position(is_own)?;
    let mut below = &names[at + 1..];
    if let ["task", _, rest @ ..] = below {
        below = rest;
    }
    Some(below.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stay::DESCRIPTORS_MAX;

    #[test]
    fn descriptors_are_looked_at_up_to_their_limit() {
        let sleep = std::process::Command::new("sleep").arg("60").spawn();
        let mut sleep = sleep.expect("a process");
        let pid = sleep.id().cast_signed();
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let count = open.expect("its descriptors").count();
        let reasons = |limit| {
            let mut found = Vec::new();
            super::reasons((pid, pid), limit, &mut found);
            found
        };
        let (as_many, one_above) = (reasons(count), reasons(count - 1));
        sleep.kill().expect("it lives");
        sleep.wait().expect("it ended");
        assert_eq!(as_many, []);
        assert_eq!(one_above, [StayReason::TooManyDescriptors(count - 1)]);
        let sentence = StayReason::TooManyDescriptors(DESCRIPTORS_MAX).to_string();
        assert_eq!(sentence, "It has more than 1048576 open descriptors");
    }

    fn found(name: &str) -> Option<StayReason> {
        reason(name, (47, 11), || true)
    }

    #[test]
    fn what_means_the_process_itself_stays_and_what_is_unknown() {
        for name in [
            "anon_inode:[eventfd]",
            "anon_inode:inotify",
            "pipe:[17]",
            "net:[4026531840]",
            "/proc/47/fd",
            "/proc/11/mountinfo",
            "/proc/47/task/48/ns/net",
            "/proc/48/maps",
            "/srv/data:[1]",
            "/memfd:x (deleted)",
        ] {
            assert_eq!(found(name), None, "{name}");
        }
        let own = |file: &str| Some(StayReason::OwnProc(file.into()));
        for (name, file) in [
            ("/proc/47/mem", "/proc/self/mem"),
            ("/11/pagemap", "/proc/self/pagemap"),
            ("/proc/47/task/48/stat", "/proc/self/stat"),
            ("/proc/47", "/proc/self"),
            ("/proc/47/task", "/proc/self/task"),
            ("/proc/47/task/48", "/proc/self"),
        ] {
            assert_eq!(found(name), own(file), "{name}");
        }
        assert_eq!(reason("/srv/47/mem", (47, 11), || false), None);
        for (name, kind) in [("anon_inode:[whim]", "[whim]"), ("whim:[17]", "whim")] {
            let unknown = StayReason::UnknownDescriptor(kind.into());
            assert_eq!(found(name), Some(unknown), "{name}");
        }
        assert_eq!(found("anon_inode:[perf_event]"), Some(StayReason::Counts));
        for kind in ["bpf-map", "[fscontext]", "kvm-vcpu:0"] {
            let at_home = StayReason::HomeDescriptor(kind.into());
            assert_eq!(found(&format!("anon_inode:{kind}")), Some(at_home));
        }
    }
}
