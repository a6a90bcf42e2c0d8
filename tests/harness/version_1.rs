//! The CPU controller of a machine that has it in a hierarchy of version 1. A container with control groups of its own,
//! which are of version 2, has no such controller then, as it would have on a machine of today; so it is lent to it.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

/// Where a container sees it.
pub(crate) const PLACE: &str = "/run/cpu-controller";

/// The hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfCpu {
    pub(crate) root: PathBuf,
    /// What has to be said to mount it once more: `cpu`, or `cpu,cpuacct`.
    pub(crate) options: String,
}

impl OfCpu {
    /// That of this machine; `None` if it has none.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn here() -> Result<Option<Self>> {
        Ok(Self::among(&fs::read_to_string("/proc/self/mounts")?))
    }

    fn among(mounts: &str) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, root, "cgroup", options, ..] = words[..] else {
                return None;
            };
            let has = |name: &str| options.split(',').any(|option| option == name);
            let together = ["cpu", "cpuacct"].into_iter().filter(|name| has(name));
            has("cpu").then(|| Self {
                root: root.into(),
                options: together.collect::<Vec<&str>>().join(","),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_by_its_options() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,cpu 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0
";
        let found = OfCpu::among(mounts).expect("there is one");
        assert_eq!(found.root, PathBuf::from("/sys/fs/cgroup/cpu"));
        assert_eq!(found.options, "cpu,cpuacct");
        assert_eq!(OfCpu::among("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"), None);
    }
}
