//! What counts as this node, and what the kernel reports of it.
//!
//! Usually a node is a machine with all that runs on it. A node of a lab, a container or a batch job is less:
//! the tasks of a control group, with the limits of that group. Load, pressure and memory are those of the
//! group then, because otherwise a busy neighbour on the same machine would look like our own work.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use whim_sys::cgroup::{self, CgroupMembership, Version};

use crate::cgroup::{LEAF, threads_below};
use crate::processes;

/// The part of the machine that is this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Machine,
    /// All processes of our pid namespace, and the groups that hold them.
    Namespace(Vec<CgroupMembership>),
    /// The processes of these groups.
    Groups(Vec<CgroupMembership>),
}

impl Scope {
    /// Finds out what this daemon's node is. `job` says whether it runs in a batch job.
    #[must_use]
    pub fn find(job: bool) -> Self {
        // Inode of the first pid namespace, fixed in the kernel (PROC_PID_INIT_INO).
        let first = "pid:[4026531836]";
        let ours = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let of_self = cgroup::of("self");
        if job {
            let groups: Vec<CgroupMembership> = of_self.into_iter().filter_map(of_job).collect();
            if !groups.is_empty() {
                return Self::Groups(groups);
            }
        } else if ours.as_os_str() != first {
            return Self::Namespace(of_self.into_iter().map(of_namespace).collect());
        }
        Self::Machine
    }

    fn groups(&self) -> &[CgroupMembership] {
        match self {
            Self::Machine => &[],
            Self::Namespace(groups) | Self::Groups(groups) => groups,
        }
    }

    /// How many threads run or wait for a CPU just now, without those of this daemon.
    #[must_use]
    pub fn runnable(&self) -> f64 {
        let running = match self.threads() {
            // The thread that asks is running.
            None => running_on_machine().unwrap_or(0).saturating_sub(1),
            Some(threads) => threads
                .numbers
                .into_iter()
                .map(|tid| u32::from(runs(tid)))
                .sum(),
        };
        f64::from(running)
    }

    /// The threads that count, without this daemon's; `None` stands for all threads of the machine.
    pub(super) fn threads(&self) -> Option<Threads> {
        let mut threads = match self {
            Self::Machine => return None,
            Self::Namespace(groups) => {
                let numbers = threads_of(groups);
                let known: HashSet<i32> = numbers.iter().copied().collect();
                let whole = processes::pids().is_subset(&known);
                let numbers = if whole { numbers } else { threads_of_all() };
                Threads { numbers, whole }
            }
            Self::Groups(groups) => Threads {
                numbers: threads_of(groups),
                whole: true,
            },
        };
        let own = processes::threads(std::process::id().cast_signed());
        threads.numbers.retain(|tid| !own.contains(tid));
        Some(threads)
    }

    /// CPU time that the tasks of the node's groups, including this daemon, have used, in nanoseconds.
    pub(super) fn used_ns(&self) -> Option<u64> {
        self.groups().iter().find_map(|group| {
            if group.has("cpuacct") {
                let text = processes::short(group.directory.join("cpuacct.usage"))?;
                return text.trim().parse().ok();
            }
            let usage = cpu_stat(group)?.value("usage_usec ")?;
            Some(usage.saturating_mul(1000))
        })
    }

    /// The file with the node's pressure on a resource such as `cpu`. It does not exist in kernels before 4.20,
    /// and where pressure information is switched off.
    pub(super) fn pressure_file(&self, resource: &str) -> Option<PathBuf> {
        if *self == Self::Machine {
            return Some(Path::new("/proc/pressure").join(resource));
        }
        // The limits may be those of version 1, but only version 2, which is mounted beside it, knows pressure.
        let two = self.groups().iter().find(|g| g.version == Version::Two)?;
        Some(two.directory.join(format!("{resource}.pressure")))
    }

    /// How long a limit of CPU time has kept the node's tasks from running, in nanoseconds since the group was
    /// made, summed over CPUs.
    #[must_use]
    pub fn throttled_ns(&self) -> Option<u64> {
        self.groups().iter().find_map(|group| {
            let stat = cpu_stat(group)?;
            // Version 2 counts microseconds, version 1 nanoseconds.
            let microseconds = stat.value("throttled_usec ");
            microseconds
                .map(|us| us.saturating_mul(1000))
                .or_else(|| stat.value("throttled_time "))
        })
    }
}

/// What a group's `cpu.stat` says.
struct CpuStat(String);

/// The `cpu.stat` of a group, if the group counts CPU time.
fn cpu_stat(group: &CgroupMembership) -> Option<CpuStat> {
    let counts = group.version == Version::Two || group.has("cpu");
    let text = || processes::short(group.directory.join("cpu.stat"));
    counts.then(text).flatten().map(CpuStat)
}

impl CpuStat {
    /// A number by its name, which is given with the space behind it.
    fn value(&self, name: &str) -> Option<u64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }
}

/// The group with another directory.
fn at(group: CgroupMembership, directory: PathBuf) -> CgroupMembership {
    CgroupMembership { directory, ..group }
}

/// The group that stands for a whole node. A lab keeps its node's processes in a leaf of the node's group. In a
/// container we see nothing above its own group, which is the highest visible one.
fn of_namespace(group: CgroupMembership) -> CgroupMembership {
    if group.directory.file_name().is_some_and(|name| name == LEAF) {
        let node = group.directory.parent().map(Path::to_path_buf);
        let directory = node.unwrap_or_else(|| group.directory.clone());
        return at(group, directory);
    }
    let visible = group
        .directory
        .ancestors()
        .take_while(|above| above.join("cgroup.procs").exists());
    let highest = visible.last().map(Path::to_path_buf);
    let directory = highest.unwrap_or_else(|| group.directory.clone());
    at(group, directory)
}

/// The group of a whole job: Slurm's plugins keep it in a group `job_NUMBER`, and its steps below that.
fn of_job(group: CgroupMembership) -> Option<CgroupMembership> {
    let is_job = |path: &&Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix("job_"))
            .is_some_and(|number| number.parse::<u64>().is_ok())
    };
    let directory = group.directory.ancestors().find(is_job)?.to_path_buf();
    Some(at(group, directory))
}

fn running_on_machine() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace()
        .nth(3)?
        .split('/')
        .next()?
        .parse()
        .ok()
}

fn runs(tid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state == Some('R')
}

/// Threads of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads {
    pub numbers: Vec<i32>,
    /// All threads of the node are in its groups.
    pub whole: bool,
}

/// The threads of these groups and of the groups below them.
fn threads_of(groups: &[CgroupMembership]) -> Vec<i32> {
    // All hierarchies hold the same threads, so we read one: the deepest, which has the fewest groups below it.
    // In a hierarchy where the node has no group of its own, we would find all threads of the machine.
    let deepest = groups
        .iter()
        .max_by_key(|group| group.directory.components().count());
    deepest.map(threads_below).unwrap_or_default()
}

/// The threads of all processes that we see.
fn threads_of_all() -> Vec<i32> {
    let of = |stat: processes::Stat| match stat.threads {
        1 => vec![stat.pid],
        _ => processes::threads(stat.pid),
    };
    processes::all().into_values().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(directory: &str) -> CgroupMembership {
        CgroupMembership {
            version: Version::Two,
            controllers: Vec::new(),
            directory: directory.into(),
        }
    }

    #[test]
    fn a_lab_s_node_is_the_group_above_its_leaf() {
        let found = of_namespace(group("/c/whim-lab/a/n1/main"));
        assert_eq!(found.directory, Path::new("/c/whim-lab/a/n1"));
    }

    #[test]
    fn a_container_is_the_highest_group_that_it_sees() {
        let top = tempfile::tempdir().expect("a directory");
        let own = top.path().join("system.slice/whimd.service");
        fs::create_dir_all(&own).expect("made");
        for directory in [&own, &top.path().join("system.slice")] {
            fs::write(directory.join("cgroup.procs"), "").expect("written");
        }
        let found = of_namespace(at(group("/"), own.clone()));
        assert_eq!(found.directory, top.path().join("system.slice"));
    }

    #[test]
    fn a_batch_job_is_its_own_group() {
        let step = "/c/system.slice/slurmstepd.scope/job_17/step_0/user/task_0";
        let found = of_job(group(step)).expect("a job");
        assert_eq!(
            found.directory,
            Path::new("/c/system.slice/slurmstepd.scope/job_17")
        );
        assert_eq!(of_job(group("/c/user.slice/job_x")), None);
    }

    #[test]
    fn the_threads_of_a_group_are_found_in_those_below_too() {
        let top = tempfile::tempdir().expect("a directory");
        let below = top.path().join("step_0/task_1");
        fs::create_dir_all(&below).expect("made");
        fs::write(top.path().join("cgroup.threads"), "7\n").expect("written");
        fs::write(below.join("cgroup.threads"), "8\n0\n9\n").expect("written");
        let found = threads_of(&[at(group("/"), top.path().to_path_buf())]);
        assert_eq!(found, [7, 8, 9]);
    }

    #[test]
    fn what_throttles_is_told_in_nanoseconds_by_both_versions() {
        let top = tempfile::tempdir().expect("a directory");
        let scope = Scope::Groups(vec![at(group("/"), top.path().to_path_buf())]);
        let file = top.path().join("cpu.stat");
        assert_eq!(scope.throttled_ns(), None);
        fs::write(&file, "nr_periods 9\nnr_throttled 2\nthrottled_time 5000\n").expect("written");
        assert_eq!(scope.throttled_ns(), Some(5000));
        fs::write(&file, "usage_usec 9\nthrottled_usec 6\n").expect("written");
        assert_eq!(scope.throttled_ns(), Some(6000));
    }
}
