//! Control groups of both versions: the limits under which this node lives, and those of its guests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use whim_sys::cgroup::{CgroupMembership, Version, number, of};
use whim_sys::pidfd::Pidfd;

/// Name of the group that holds the group of the supervisors and a group for each guest.
const JOURNEYS: &str = "whim-journeys";
/// Group of all supervisors. It is outside of the daemon's group, so that they survive the daemon's end, and
/// outside of their guests' groups, so that a guest's limits do not hold for them.
const SUPERVISORS: &str = "supervisors";
/// Group of all guests of one daemon; that daemon's prefix precedes this name. The group itself has no
/// processes, so that (version 2) it may hand controllers down.
const GUESTS: &str = "guests";

/// Part of their memory limit at which guests are slowed down. A guest should be on its way home before that:
/// one is sent home at 90 %.
const BRAKE_PERCENT: u64 = 95;
/// Processes in a guest's group beside its own threads: those that make and keep its namespaces.
const SANDBOX: u32 = 2;
/// Limits are whole pages.
const PAGE: u64 = 4096;

/// Leaf in which a lab keeps a node's processes.
pub const LEAF: &str = "main";

/// Smallest value of `read(directory)` over the group and its ancestors.
fn smallest(membership: &CgroupMembership, read: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
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

/// For this long, what was read of this daemon's groups is not read again.
const OWN_LASTS: Duration = Duration::from_secs(10);
/// The most groups that are visited.
const GROUPS_MAX: usize = 4096;

/// The processes of these groups and of the groups below them.
#[must_use]
pub fn pids_below(left: Vec<PathBuf>) -> Vec<i32> {
    listed_below(left, "cgroup.procs")
}

/// The threads of a group and of the groups below it, without the threads of other pid namespaces.
#[must_use]
pub fn threads_below(group: &CgroupMembership) -> Vec<i32> {
    let file = match group.version {
        Version::One => "tasks",
        Version::Two => "cgroup.threads",
    };
    let mut threads = listed_below(vec![group.directory.clone()], file);
    threads.retain(|tid| *tid != 0);
    threads
}

/// The numbers that this file lists in these groups and in the groups below them.
fn listed_below(mut left: Vec<PathBuf>, file: &str) -> Vec<i32> {
    let mut pids = Vec::new();
    let mut seen = 0;
    while let Some(group) = left.pop() {
        seen += 1;
        let text = fs::read_to_string(group.join(file)).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        let below = fs::read_dir(&group).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if seen + left.len() < GROUPS_MAX {
            left.extend(below.map(|entry| entry.path()));
        }
    }
    pids
}

/// The processes of groups whose paths are relative to the root of their hierarchy, such as `batch.slice`.
#[must_use]
pub fn members(names: &[String]) -> Vec<i32> {
    if names.is_empty() {
        return Vec::new();
    }
    // The root of version 2, or those of the hierarchies of version 1, each of which holds all processes.
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root).into_iter().flatten().flatten();
    let roots: Vec<PathBuf> = std::iter::once(root.to_owned())
        .chain(below.map(|entry| entry.path()))
        .collect();
    let find = |name: &String| {
        let name = name.trim_matches('/');
        let mut places = roots.iter().map(|root| root.join(name));
        places.find(|group| group.join("cgroup.procs").exists())
    };
    pids_below(names.iter().filter_map(find).collect())
}

/// The groups of this daemon. They seldom change, so they are read again only after [`OWN_LASTS`].
fn own() -> Arc<Vec<CgroupMembership>> {
    static OWN: Kept<Arc<Vec<CgroupMembership>>> = Mutex::new(None);
    kept(&OWN, || Arc::new(of("self")))
}

/// A value, and when it was found.
type Kept<T> = Mutex<Option<(Instant, T)>>;

/// The value that is known; it is found anew if it is older than [`OWN_LASTS`].
fn kept<T: Clone>(place: &Kept<T>, find: impl FnOnce() -> T) -> T {
    let mut known = place.lock().unwrap_or_else(PoisonError::into_inner);
    match known.as_ref() {
        Some((asked, value)) if asked.elapsed() < OWN_LASTS => value.clone(),
        _ => known.insert((Instant::now(), find())).1.clone(),
    }
}

/// The CPUs that this process may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpus {
    /// CPUs that are online and that its affinity mask allows.
    pub online: f64,
    /// The limit of its group, in CPUs' worth of time.
    pub limit: Option<f64>,
}

/// The CPUs of this process. They are read again only after ten seconds, because that takes some thirty files.
#[must_use]
pub fn cpus() -> Cpus {
    static CPUS: Kept<Cpus> = Mutex::new(None);
    kept(&CPUS, || {
        let online = std::thread::available_parallelism().map_or(1, usize::from);
        Cpus {
            online: f64::from(u32::try_from(online).unwrap_or(1)),
            limit: cpu_limit(),
        }
    })
}

fn cpu_limit() -> Option<f64> {
    let mut least: Option<f64> = None;
    for membership in own().iter() {
        let limit = match membership.version {
            Version::Two => smallest(membership, |directory| {
                let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
            }),
            Version::One if membership.has("cpu") => smallest(membership, |directory| {
                let text = fs::read_to_string(directory.join("cpu.cfs_quota_us")).ok()?;
                let quota = text.trim().parse::<f64>().ok().filter(|q| *q > 0.0)?;
                let text = fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
                Some(quota / text.trim().parse::<f64>().ok()?)
            }),
            Version::One => None,
        };
        least = [least, limit].into_iter().flatten().reduce(f64::min);
    }
    least
}

/// Limit and use of memory, in bytes, of the group that limits this process, if there is one. Which group that
/// is is looked up again only after ten seconds, since this function is called several times a second.
#[must_use]
pub fn memory_limit() -> Option<(u64, u64)> {
    static LIMITING: Kept<Option<LimitingGroup>> = Mutex::new(None);
    kept(&LIMITING, || LimitingGroup::of(&own()))?.read()
}

/// A group that limits memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LimitingGroup {
    directory: PathBuf,
    version: Version,
}

impl LimitingGroup {
    /// The innermost group with a limit among these groups and their ancestors.
    fn of(groups: &[CgroupMembership]) -> Option<Self> {
        let with_memory = groups
            .iter()
            .filter(|group| group.version == Version::Two || group.has("memory"));
        with_memory.into_iter().find_map(|group| {
            let version = group.version;
            let above = group.directory.ancestors();
            let mut above = above.take_while(|here| here.join("cgroup.procs").exists());
            above.find_map(|here| {
                let directory = here.to_owned();
                let group = Self { directory, version };
                group.limit().is_some().then_some(group)
            })
        })
    }

    /// Its limit. Version 1 writes a number near 2^63 where there is none.
    fn limit(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        number(&self.directory.join(file)).filter(|limit| *limit < 1 << 60)
    }

    /// Limit and use; clean cache is not counted as used.
    fn read(&self) -> Option<(u64, u64)> {
        let limit = self.limit()?;
        let (used, inactive) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file "),
            Version::Two => ("memory.current", "inactive_file "),
        };
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let mut lines = stat.lines();
        let cache = lines.find_map(|line| line.strip_prefix(inactive)?.parse().ok());
        let used = number(&self.directory.join(used)).unwrap_or(0);
        Some((limit, used.saturating_sub(cache.unwrap_or(0))))
    }
}

/// Where our groups are made. If the service manager or a lab runs the daemon, that is beside the daemon's
/// group: the service manager ends that group with the daemon, and in both cases it is a leaf, which holds
/// processes. Otherwise it is below our own group.
fn journeys_root(membership: &CgroupMembership) -> PathBuf {
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

fn guests_root(membership: &CgroupMembership, prefix: &str) -> PathBuf {
    journeys_root(membership).join(format!("{prefix}{GUESTS}"))
}

/// What was made for one guest.
#[derive(Debug, Default)]
pub struct GuestGroups {
    pub directories: Vec<PathBuf>,
    /// Sentences about what could not be set.
    pub missing: Vec<String>,
}

/// Makes the groups of guest `name`, limited to `pids` threads, in those of all guests of the daemon of this
/// prefix, which are limited to `share` bytes together. A failure is reported and not fatal, because the
/// guest supervisor limits what it can by other means.
#[must_use]
pub fn make_guest(prefix: &str, name: &str, share: Option<u64>, pids: u32) -> GuestGroups {
    let mut made = GuestGroups::default();
    for membership in of("self") {
        if membership.version == Version::One
            && !["memory", "pids", "cpu"].iter().any(|c| membership.has(c))
        {
            continue;
        }
        let all = guests_root(&membership, prefix);
        let group = make_group(&membership, &all).and_then(|()| {
            prepare_share(&membership, &all);
            forbid_swap(&all, &mut made.missing);
            if let Some(share) = share {
                limit_share(&membership, &all, share, &mut made.missing);
            }
            let group = all.join(name);
            make_group(&membership, &group)?;
            forbid_swap(&group, &mut made.missing);
            limit_guest(&membership, &group, pids, &mut made.missing);
            Ok(group)
        });
        match group {
            Ok(group) => made.directories.push(group),
            Err(error) => made.missing.push(format!("{}: {error}", all.display())),
        }
    }
    if share.is_some() && guests_use(prefix).is_none() {
        made.missing.push("no group counts memory".into());
    }
    made
}

/// Keeps the memory of a group, and of groups that are made in it, out of this node's swap. Otherwise pages of
/// programs and keys of journeys would stay on its disk when both are gone. Version 1 still swaps guests out
/// when the machine has no other memory left.
fn forbid_swap(group: &Path, missing: &mut Vec<String>) {
    for file in ["memory.swap.max", "memory.swappiness"] {
        if group.join(file).exists() {
            set(group, file, "0", missing);
        }
    }
}

/// Makes a group below our root, and its ancestors, which hand their controllers down.
fn make_group(membership: &CgroupMembership, group: &Path) -> io::Result<()> {
    let above = group.parent().unwrap_or(group);
    fs::create_dir_all(above)?;
    if membership.version == Version::Two {
        let root = journeys_root(membership);
        let top = root.parent().unwrap_or(&root);
        let mut line: Vec<&Path> = above
            .ancestors()
            .take_while(|a| a.starts_with(top))
            .collect();
        line.reverse();
        // The kernel refuses this where our own group holds processes ('no internal processes'). The group is
        // still of use then, to find and end all of a guest's processes.
        for group in line {
            for controller in ["+memory", "+pids", "+cpu"] {
                let _ = fs::write(group.join("cgroup.subtree_control"), controller);
            }
        }
    }
    match fs::create_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Before kernel 5.11, a group of version 1 may count its memory without that of the groups below it. That can
/// be changed only as long as there are none below.
fn prepare_share(membership: &CgroupMembership, all: &Path) {
    let hierarchical = all.join("memory.use_hierarchy");
    if membership.version == Version::One && number(&hierarchical) == Some(0) {
        let _ = fs::write(hierarchical, "1");
    }
}

/// Writes a limit unless it has that value already, since each write may cost the group its cached pages.
fn set(group: &Path, file: &str, value: &str, missing: &mut Vec<String>) {
    let path = group.join(file);
    if fs::read_to_string(&path).is_ok_and(|text| text.trim() == value) {
        return;
    }
    if let Err(error) = fs::write(&path, value) {
        missing.push(format!("{}: {error}", path.display()));
    }
}

/// Limits all guests of a daemon together. A limit below their present use has to wait until a guest has left:
/// version 1 would refuse it, and version 2 would kill guests.
fn limit_share(membership: &CgroupMembership, all: &Path, share: u64, missing: &mut Vec<String>) {
    let share = share / PAGE * PAGE;
    match membership.version {
        Version::Two if all.join("memory.max").exists() => {
            let brake = share / 100 * BRAKE_PERCENT / PAGE * PAGE;
            set(all, "memory.high", &brake.to_string(), missing);
            if number(&all.join("memory.current")).is_none_or(|used| used < share) {
                set(all, "memory.max", &share.to_string(), missing);
            }
        }
        Version::One if membership.has("memory") => {
            // At the limit guests wait and none is killed, because a supervisor sends one home.
            let control = fs::read_to_string(all.join("memory.oom_control")).unwrap_or_default();
            if !control.starts_with("oom_kill_disable 1") {
                set(all, "memory.oom_control", "1", missing);
            }
            if number(&all.join("memory.usage_in_bytes")).is_none_or(|used| used < share) {
                set(all, "memory.limit_in_bytes", &share.to_string(), missing);
            }
            if number(&all.join("memory.use_hierarchy")) == Some(0) {
                missing.push(format!(
                    "{} counts without the groups below it",
                    all.display()
                ));
            }
        }
        _ => {}
    }
}

fn limit_guest(membership: &CgroupMembership, group: &Path, pids: u32, missing: &mut Vec<String>) {
    if group.join("pids.max").exists() {
        let pids = pids.saturating_add(SANDBOX);
        set(group, "pids.max", &pids.to_string(), missing);
    } else if membership.has("pids") {
        missing.push(format!("{} does not count threads", group.display()));
    }
}

/// Sets the limit of a daemon's guests again, where their groups exist. An earlier daemon may have had another
/// limit, and it is raised for a moment when a guest leaves.
pub fn hold_share(prefix: &str, share: u64) {
    for membership in own().iter() {
        let all = guests_root(membership, prefix);
        let mut missing = Vec::new();
        if all.is_dir() {
            forbid_swap(&all, &mut missing);
            limit_share(membership, &all, share, &mut missing);
        }
        for missing in missing {
            tracing::debug!(missing, "the limit of guests cannot be set");
        }
    }
}

/// What all guests of a daemon use, in bytes, where a group counts it.
#[must_use]
pub fn guests_use(prefix: &str) -> Option<u64> {
    own().iter().find_map(|membership| {
        let all = guests_root(membership, prefix);
        let files = ["memory.usage_in_bytes", "memory.current"];
        files.iter().find_map(|file| number(&all.join(file)))
    })
}

/// Files through which a supervisor enters its group, which is outside of the daemon's.
#[must_use]
pub fn supervisors() -> Vec<PathBuf> {
    let ours = of("self");
    let groups = ours
        .iter()
        .filter(|m| m.version == Version::Two || !m.controllers.is_empty());
    groups
        .filter_map(|membership| {
            let group = journeys_root(membership).join(SUPERVISORS);
            make_group(membership, &group).ok()?;
            let mut missing = Vec::new();
            forbid_swap(&group, &mut missing);
            for missing in missing {
                tracing::warn!(missing, "keys of supervisors may be swapped out");
            }
            Some(group)
        })
        .map(|directory| directory.join("cgroup.procs"))
        .collect()
}

/// The existing groups of a daemon's single guests.
#[must_use]
pub fn guests(prefix: &str) -> Vec<PathBuf> {
    let memberships = of("self");
    let roots = memberships
        .iter()
        .map(|membership| guests_root(membership, prefix));
    roots
        .flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten())
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn pids_in(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let numbers = text.lines().filter_map(|line| line.trim().parse().ok());
    numbers.filter(|pid| *pid > 0).collect()
}

/// Kills the processes of a group, but no other process that has got the number of one of them meanwhile.
fn kill_members(group: &Path) {
    let found = pids_in(group).into_iter();
    let held: Vec<(i32, Pidfd)> = found
        .filter_map(|pid| Some((pid, Pidfd::open(pid).ok()?)))
        .collect();
    // A member that has the number of a held process now either is that process, or that process has ended.
    let members = pids_in(group);
    for (_, process) in held.iter().filter(|(pid, _)| members.contains(pid)) {
        let _ = process.signal(nix::libc::SIGKILL);
    }
}

/// Kills what is left in a guest's groups and removes them. Returns those that could not be removed.
pub fn remove_guest(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for directory in directories {
        let _ = fs::write(directory.join("cgroup.kill"), "1");
        kill_members(directory);
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

    #[test]
    fn groups_are_made_beside_a_managed_daemon_and_below_any_other() {
        let root = |directory: &str| {
            journeys_root(&CgroupMembership {
                version: Version::Two,
                controllers: Vec::new(),
                directory: directory.into(),
            })
        };
        assert_eq!(root("/c/whimd.service"), Path::new("/c/whim-journeys"));
        assert_eq!(root("/c/n1/main"), Path::new("/c/n1/whim-journeys"));
        assert_eq!(root("/c/a"), Path::new("/c/a/whim-journeys"));
    }
}
