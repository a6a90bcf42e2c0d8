//! Control groups of both versions: in which groups a process is, and how much memory they leave it.

use crate::kernel_file;
use std::path::{Path, PathBuf};

/// A limit beyond this stands for no limit, for which version 1 gives a number near 2^63.
const UNLIMITED: u64 = 1 << 60;

/// One hierarchy in which this process has a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMembership {
    pub version: Version,
    /// Controllers; empty for version 2.
    pub controllers: Vec<String>,
    /// Directory of the group.
    pub directory: PathBuf,
}

impl CgroupMembership {
    /// Whether the group is of this controller's hierarchy (version 1).
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|have| have == controller)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// Groups of process `pid` (`self` for ours), where their file systems are mounted.
#[must_use]
pub fn of(pid: &str) -> Vec<CgroupMembership> {
    let groups = kernel_file::read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = kernel_file::read_text("/proc/self/mountinfo").unwrap_or_default();
    parse(&groups, &mounts)
}

fn parse(groups: &str, mounts: &str) -> Vec<CgroupMembership> {
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
            found.push(CgroupMembership {
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

/// The number that a file holds; `None` for what is no number, such as `max`.
#[must_use]
pub fn number(path: &Path) -> Option<u64> {
    kernel_file::read_text(path).ok()?.trim().parse().ok()
}

/// The group that leaves a process the least memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// What the process may still take, in bytes, before a process of the group is killed.
    pub left: u64,
    /// Limit of the group; `None` if no group leaves less than the machine's memory.
    pub limit: Option<u64>,
}

/// How much memory process `pid` may still take: what the machine has, or less by its groups' limits.
/// Cached pages of files count as free, and swap as memory.
#[must_use]
pub fn memory_room(pid: i32) -> MemoryRoom {
    let text = kernel_file::read_text("/proc/meminfo").unwrap_or_default();
    let field = |name| value_of(&text, name).map_or(0, |kib| kib.saturating_mul(1024));
    let swap = field("SwapFree:");
    let mut room = MemoryRoom {
        left: field("MemAvailable:").saturating_add(swap),
        limit: None,
    };
    for membership in of(&pid.to_string()) {
        let mut directory = Some(membership.directory.as_path());
        while let Some(here) = directory.filter(|here| here.join("cgroup.procs").exists()) {
            let found = match membership.version {
                Version::Two => room_of_two(here, swap),
                Version::One => room_of_one(here, swap),
            };
            room = found
                .into_iter()
                .fold(room, |a, b| if b.left < a.left { b } else { a });
            directory = here.parent();
        }
    }
    room
}

fn value_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cached(group: &Path, names: [&str; 2]) -> u64 {
    let text = kernel_file::read_text(group.join("memory.stat")).unwrap_or_default();
    names.iter().filter_map(|name| value_of(&text, name)).sum()
}

fn room_of_two(group: &Path, swap: u64) -> Option<MemoryRoom> {
    let limit = number(&group.join("memory.max"))?;
    let used = number(&group.join("memory.current"))?;
    let swap = match number(&group.join("memory.swap.max")) {
        Some(most) => {
            let swapped = number(&group.join("memory.swap.current")).unwrap_or(0);
            most.saturating_sub(swapped).min(swap)
        }
        None => swap,
    };
    let cache = cached(group, ["inactive_file ", "active_file "]);
    Some(MemoryRoom {
        left: limit
            .saturating_sub(used.saturating_sub(cache))
            .saturating_add(swap),
        limit: Some(limit),
    })
}

fn room_of_one(group: &Path, swap: u64) -> Option<MemoryRoom> {
    let cache = cached(group, ["total_inactive_file ", "total_active_file "]);
    let left = |kind: &str| {
        let limit = number(&group.join(format!("{kind}.limit_in_bytes")))?;
        let used = number(&group.join(format!("{kind}.usage_in_bytes")))?;
        let left = limit.saturating_sub(used.saturating_sub(cache));
        (limit < UNLIMITED).then_some((left, limit))
    };
    let memory = left("memory").map(|(left, limit)| (left.saturating_add(swap), limit));
    let (left, limit) = memory.into_iter().chain(left("memory.memsw")).min()?;
    Some(MemoryRoom {
        left,
        limit: Some(limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
    }

    /// A group as files.
    fn group(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let place = std::env::temp_dir().join(format!("whim-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        for (file, text) in files {
            fs::write(place.join(file), text).expect("written");
        }
        place
    }

    #[test]
    fn room_is_what_the_limit_leaves_with_cached_files_and_swap() {
        let two = group(
            "two",
            &[
                ("memory.max", "1000\n"),
                ("memory.current", "700\n"),
                ("memory.swap.max", "60\n"),
                ("memory.swap.current", "10\n"),
                (
                    "memory.stat",
                    "anon 500\ninactive_file 30\nactive_file 20\n",
                ),
            ],
        );
        let room = |left| {
            Some(MemoryRoom {
                left,
                limit: Some(1000),
            })
        };
        assert_eq!(room_of_two(&two, 1 << 30), room(400));
        assert_eq!(room_of_two(&two, 5), room(355));
        fs::write(two.join("memory.max"), "max\n").expect("written");
        assert_eq!(room_of_two(&two, 5), None);
        let one = group(
            "one",
            &[
                ("memory.limit_in_bytes", "1000\n"),
                ("memory.usage_in_bytes", "1000\n"),
                (
                    "memory.stat",
                    "total_inactive_file 0\ntotal_active_file 90\n",
                ),
            ],
        );
        assert_eq!(room_of_one(&one, 5), room(95));
        fs::write(one.join("memory.memsw.limit_in_bytes"), "1000\n").expect("written");
        fs::write(one.join("memory.memsw.usage_in_bytes"), "1000\n").expect("written");
        assert_eq!(room_of_one(&one, 5), room(90));
        fs::write(one.join("memory.limit_in_bytes"), "9223372036854771712\n").expect("written");
        fs::write(
            one.join("memory.memsw.limit_in_bytes"),
            "9223372036854771712\n",
        )
        .expect("written");
        assert_eq!(room_of_one(&one, 5), None);
        for place in [one, two] {
            let _ = fs::remove_dir_all(place);
        }
    }
}
