//! Control groups of both kinds: the limits under which this node lives, and those of its guests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the group below which supervisors have one and each guest has its own.
const JOURNEYS: &str = "whim-journeys";
/// Group of all supervisors: outside of the daemon's, so that its end is not theirs, and outside of
/// their guests', so that a guest's limits are not theirs.
const SUPERVISORS: &str = "supervisors";

/// Part of its limit from which on a guest is slowed down.
const BRAKE_PERCENT: u64 = 90;

/// Leaf in which a lab keeps a node's processes.
const LEAF: &str = "main";

/// One hierarchy in which this process has a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub version: Version,
    /// Controllers; empty for version 2.
    pub controllers: Vec<String>,
    /// Directory of the group.
    pub directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// Groups of process `pid` (`self` for ours), where their file systems are mounted.
#[must_use]
pub fn of(pid: &str) -> Vec<Membership> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    parse(&groups, &mounts)
}

fn parse(groups: &str, mounts: &str) -> Vec<Membership> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let version = if controllers.is_empty() {
            Version::Two
        } else {
            Version::One
        };
        let wanted: Vec<&str> = controllers.split(',').filter(|c| !c.is_empty()).collect();
        let mount = mounts
            .lines()
            .rev()
            .find_map(|line| mounted_at(line, version, &wanted, path));
        if let Some(directory) = mount {
            let controllers = wanted.iter().map(ToString::to_string).collect();
            found.push(Membership {
                version,
                controllers,
                directory,
            });
        }
    }
    found
}

/// Directory of group `path` below the mount that `line` of mountinfo describes, if it is the one.
fn mounted_at(line: &str, version: Version, wanted: &[&str], path: &str) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1).unwrap_or_default();
    let matches = match version {
        Version::Two => kind == "cgroup2",
        Version::One => {
            kind == "cgroup" && wanted.iter().all(|c| options.split(',').any(|o| o == *c))
        }
    };
    if !matches {
        return None;
    }
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Smallest of `read(directory)` over the group and those above it.
fn smallest(membership: &Membership, read: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
    let mut directory = Some(membership.directory.as_path());
    let mut least: Option<f64> = None;
    while let Some(here) = directory.filter(|d| d.join("cgroup.procs").exists()) {
        if let Some(value) = read(here) {
            least = Some(least.map_or(value, |l| l.min(value)));
        }
        directory = here.parent();
    }
    least
}

/// CPUs that this process may use, if a group limits them.
#[must_use]
pub fn cpu_limit() -> Option<f64> {
    let mut least: Option<f64> = None;
    for membership in of("self") {
        let limit = match membership.version {
            Version::Two => smallest(&membership, |directory| {
                let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
            }),
            Version::One if membership.controllers.iter().any(|c| c == "cpu") => {
                smallest(&membership, |directory| {
                    let text = fs::read_to_string(directory.join("cpu.cfs_quota_us")).ok()?;
                    let quota = text.trim().parse::<f64>().ok().filter(|q| *q > 0.0)?;
                    let text = fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
                    Some(quota / text.trim().parse::<f64>().ok()?)
                })
            }
            Version::One => None,
        };
        least = [least, limit].into_iter().flatten().reduce(f64::min);
    }
    least
}

/// Limit and use of memory, in bytes, of the group that limits this process, if one does.
#[must_use]
pub fn memory_limit() -> Option<(u64, u64)> {
    for membership in of("self") {
        let (limit, used, inactive) = match membership.version {
            Version::Two => ("memory.max", "memory.current", "inactive_file "),
            Version::One if membership.controllers.iter().any(|c| c == "memory") => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            ),
            Version::One => continue,
        };
        let mut directory = Some(membership.directory.as_path());
        while let Some(here) = directory.filter(|d| d.join("cgroup.procs").exists()) {
            // Version 1 says 'no limit' by a number near 2^63.
            if let Some(limit) = number(&here.join(limit)).filter(|l| *l < 1 << 60) {
                let stat = fs::read_to_string(here.join("memory.stat")).unwrap_or_default();
                let cache = stat
                    .lines()
                    .find_map(|l| l.strip_prefix(inactive)?.parse().ok());
                let used = number(&here.join(used)).unwrap_or(0);
                return Some((limit, used.saturating_sub(cache.unwrap_or(0))));
            }
            directory = here.parent();
        }
    }
    None
}

/// Where our groups are made: beside the group of a daemon that the service manager or a lab runs
/// (the former ends with the daemon, and in both a leaf holds processes), else below our own.
fn journeys_root(membership: &Membership) -> PathBuf {
    let own = &membership.directory;
    let managed = own
        .extension()
        .is_some_and(|e| e == "service" || e == "scope")
        || own.file_name().is_some_and(|name| name == LEAF);
    let base = if managed {
        own.parent().unwrap_or(own)
    } else {
        own
    };
    base.join(JOURNEYS)
}

/// What was made for one guest.
#[derive(Debug, Default)]
pub struct GuestGroups {
    pub directories: Vec<PathBuf>,
    /// Sentences about what could not be set.
    pub missing: Vec<String>,
}

/// Makes the groups of guest `name`, limited to `memory` bytes and `pids` threads. What cannot be
/// made is told, not fatal: the guest's supervisor limits what it can by other means.
#[must_use]
pub fn make_guest(name: &str, memory: Option<u64>, pids: u32) -> GuestGroups {
    let mut made = GuestGroups::default();
    for membership in of("self") {
        let has = |c: &str| membership.controllers.iter().any(|have| have == c);
        if membership.version == Version::One && !has("memory") && !has("pids") && !has("cpu") {
            continue;
        }
        let root = journeys_root(&membership);
        match make_group(&membership, &root, name) {
            Ok(directory) => {
                limit(&membership, &directory, memory, pids, &mut made.missing);
                made.directories.push(directory);
            }
            Err(error) => made.missing.push(format!("{}: {error}", root.display())),
        }
    }
    made
}

fn make_group(membership: &Membership, root: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(root)?;
    if membership.version == Version::Two {
        // Refused where our own group holds processes ('no internal processes'); the group is
        // then still of use to find and end all of a guest.
        for above in [root.parent(), Some(root)].into_iter().flatten() {
            for controller in ["+memory", "+pids", "+cpu"] {
                let _ = fs::write(above.join("cgroup.subtree_control"), controller);
            }
        }
    }
    let directory = root.join(name);
    match fs::create_dir(&directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(directory),
    }
}

fn limit(
    membership: &Membership,
    directory: &Path,
    memory: Option<u64>,
    pids: u32,
    missing: &mut Vec<String>,
) {
    let mut set = |file: &str, value: String| {
        let path = directory.join(file);
        if let Err(error) = fs::write(&path, value) {
            missing.push(format!("{}: {error}", path.display()));
        }
    };
    let has = |c: &str| membership.controllers.iter().any(|have| have == c);
    match membership.version {
        Version::Two => {
            let available =
                fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
            if available.split_whitespace().any(|c| c == "pids") {
                set("pids.max", pids.to_string());
            }
            if let Some(memory) = memory
                && available.split_whitespace().any(|c| c == "memory")
            {
                set("memory.max", memory.to_string());
                // Slowed down from here on, so that its supervisor can send it home.
                set("memory.high", (memory / 100 * BRAKE_PERCENT).to_string());
            }
        }
        Version::One => {
            if has("pids") {
                set("pids.max", pids.to_string());
            }
            if let Some(memory) = memory
                && has("memory")
            {
                set("memory.limit_in_bytes", memory.to_string());
                // At the limit it waits, and is not killed: its supervisor sends it home.
                set("memory.oom_control", "1".into());
            }
        }
    }
}

/// Files through which a supervisor enters its group, outside of the daemon's.
#[must_use]
pub fn supervisors() -> Vec<PathBuf> {
    let ours = of("self");
    let groups = ours
        .iter()
        .filter(|m| m.version == Version::Two || !m.controllers.is_empty());
    groups
        .filter_map(|membership| {
            let root = journeys_root(membership);
            make_group(membership, &root, SUPERVISORS).ok()
        })
        .map(|directory| directory.join("cgroup.procs"))
        .collect()
}

/// Names of the guests' groups that exist, of whichever daemon.
#[must_use]
pub fn guests() -> Vec<(String, PathBuf)> {
    let roots = of("self")
        .into_iter()
        .map(|membership| journeys_root(&membership));
    roots
        .flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten())
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| name != SUPERVISORS)
        .collect()
}

/// Ends what is left in a guest's groups and removes them.
pub fn remove_guest(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for directory in directories {
        let _ = fs::write(directory.join("cgroup.kill"), "1");
        let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        for pid in members
            .lines()
            .filter_map(|line| line.trim().parse::<i32>().ok())
        {
            if pid > 0 {
                let pid = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
        if let Err(error) = fs::remove_dir(directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(directory = %directory.display(), %error, "a guest's group stays");
            left.push(directory.clone());
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 /part /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";

    #[test]
    fn groups_of_both_versions_are_found() {
        let found = parse(
            "4:memory:/part/a\n3:cpu,cpuacct:/b\n1:name=systemd:/x\n0::/c.service",
            MOUNTS,
        );
        let directories: Vec<_> = found
            .iter()
            .map(|m| m.directory.to_str().unwrap_or(""))
            .collect();
        assert_eq!(
            directories,
            [
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/cpu,cpuacct/b",
                "/sys/fs/cgroup/unified/c.service"
            ]
        );
        assert_eq!(
            journeys_root(&found[2]),
            Path::new("/sys/fs/cgroup/unified/whim-journeys")
        );
        assert_eq!(
            journeys_root(&found[0]),
            Path::new("/sys/fs/cgroup/memory/a/whim-journeys")
        );
    }
}
