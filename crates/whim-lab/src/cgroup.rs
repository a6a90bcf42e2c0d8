//! Control groups of a lab, on version 1 and version 2 hierarchies alike.
//!
//! In each hierarchy: `whim-lab/LAB/switch` for the lab's own processes, `whim-lab/LAB/NODE` with
//! a node's limits, and `whim-lab/LAB/NODE/main` for its processes. The node's group itself stays
//! empty, because version 2 lets only such a group hand controllers to its children, and the
//! node's daemon wants to make some.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::process::ProcessId;

/// The version 1 controllers that are used.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "freezer"];
/// A short period keeps the stalls of a throttled node below the lengths that tests measure.
const CPU_PERIOD_US: u64 = 20_000;
const FREEZE_LIMIT: Duration = Duration::from_secs(5);
/// After this, processes that stand still without being frozen are taken as paused.
const SETTLED: Duration = Duration::from_millis(500);
const REMOVE_LIMIT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(2);
/// Deepest nesting below a lab's group that is followed when it is removed.
const DEPTH_MAX: usize = 16;
/// So often another lab's end may remove the common parent under our hands, before that counts as an error.
const MEETINGS_MAX: usize = 1000;

/// What can fail with control groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// A limit was asked for that cannot be set.
    #[error(
        "Cannot limit the {what} of a node: no {what} cgroup can be written ({why}); run as root, have a cgroup delegated, or ask for no limit"
    )]
    NoController { what: &'static str, why: String },
    /// A file of a group could not be written.
    #[error("Cannot write '{value}' to {path}: {source}", path = .path.display())]
    Write {
        path: PathBuf,
        value: String,
        source: io::Error,
    },
    /// Freezing takes too long.
    #[error("Cannot pause all processes below {path} within {seconds} s; one may wait for a device", path = .path.display())]
    Freeze { path: PathBuf, seconds: u64 },
    /// A group could not be removed.
    #[error("Cannot remove the cgroup {path}: {source}", path = .path.display())]
    Remove { path: PathBuf, source: io::Error },
}

/// The lab's own group in one hierarchy.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hierarchy {
    /// Version 1: its controllers. Version 2: empty.
    controllers: Vec<String>,
    version2: bool,
    /// `.../whim-lab`
    parent: PathBuf,
    /// `.../whim-lab/LAB`
    lab: PathBuf,
}

/// The lab's groups in all hierarchies that can be written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CgroupSet {
    hierarchies: Vec<Hierarchy>,
    refusals: Vec<String>,
}

impl CgroupSet {
    /// Finds out where groups can be made; makes only the common parent, which is kept when it
    /// was there before.
    pub(crate) fn plan(lab: &str) -> CgroupSet {
        let user = geteuid();
        let parent = if user.is_root() {
            "whim-lab".to_owned()
        } else {
            format!("whim-lab-{user}")
        };
        let mut set = CgroupSet::default();
        for mount in mounted_hierarchies() {
            match first_writable(&mount, &parent) {
                Ok(parent) => set.hierarchies.push(Hierarchy {
                    lab: parent.join(lab),
                    parent,
                    controllers: mount.controllers,
                    version2: mount.version2,
                }),
                Err(e) => set.refusals.push(format!("{}: {e}", mount.root.display())),
            }
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hierarchies.is_empty()
    }

    /// Why hierarchies are missing, in one line.
    pub(crate) fn refusals(&self) -> String {
        if self.refusals.is_empty() {
            return "none is mounted below /sys/fs/cgroup".to_owned();
        }
        self.refusals.join("; ")
    }

    /// Makes the groups of the lab, of its switch and of these nodes.
    pub(crate) fn create(&self, nodes: &[String]) -> Result<(), CgroupError> {
        for hierarchy in &self.hierarchies {
            make_lab(hierarchy)?;
            make(&hierarchy.lab.join("switch"))?;
            if hierarchy.version2 {
                hand_down_controllers(&hierarchy.parent, &hierarchy.lab);
            }
            for node in nodes {
                make(&hierarchy.lab.join(node))?;
                make(&hierarchy.lab.join(node).join("main"))?;
            }
        }
        Ok(())
    }

    /// Sets a node's limits: CPUs, and bytes.
    pub(crate) fn limit(
        &self,
        node: &str,
        cpu: Option<f64>,
        memory: Option<u64>,
    ) -> Result<(), CgroupError> {
        if let Some(cpu) = cpu {
            let hierarchy = self.with_controller("cpu", "cpu.max")?;
            set_cpu(hierarchy, &hierarchy.lab.join(node), cpu)?;
        }
        if let Some(memory) = memory {
            let hierarchy = self.with_controller("memory", "memory.max")?;
            set_memory(hierarchy, &hierarchy.lab.join(node), memory)?;
        }
        Ok(())
    }

    fn with_controller(&self, what: &'static str, file: &str) -> Result<&Hierarchy, CgroupError> {
        self.hierarchies
            .iter()
            .find(|h| {
                if h.version2 {
                    h.lab.join("switch").join(file).exists()
                } else {
                    h.controllers.iter().any(|c| c == what)
                }
            })
            .ok_or_else(|| CgroupError::NoController {
                what,
                why: self.refusals(),
            })
    }

    /// The files to which a process writes `0` in order to belong to the node (or `switch`).
    pub(crate) fn entries(&self, node: &str) -> Vec<PathBuf> {
        let leaf = |h: &Hierarchy| match node {
            "switch" => h.lab.join("switch"),
            _ => h.lab.join(node).join("main"),
        };
        self.hierarchies
            .iter()
            .map(|h| leaf(h).join("cgroup.procs"))
            .collect()
    }

    /// The node's group in each hierarchy.
    pub(crate) fn node_groups(&self, node: &str) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|h| h.lab.join(node)).collect()
    }

    /// Stops all processes of a node, unseen by them. False when no hierarchy can do so.
    pub(crate) fn freeze(&self, node: &str) -> Result<bool, CgroupError> {
        let Some(freezer) = self.freezer(node) else {
            return Ok(false);
        };
        freezer.set(true)?;
        let deadline = Instant::now() + FREEZE_LIMIT;
        let settled = Instant::now() + SETTLED;
        while !freezer.is_frozen() {
            if Instant::now() >= settled && freezer.nothing_runs() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                freezer.set(false)?;
                let seconds = FREEZE_LIMIT.as_secs();
                return Err(CgroupError::Freeze {
                    path: freezer.group,
                    seconds,
                });
            }
            std::thread::sleep(RETRY);
        }
        Ok(true)
    }

    /// Lets all processes of a node go on. False when no hierarchy can do so.
    pub(crate) fn thaw(&self, node: &str) -> Result<bool, CgroupError> {
        match self.freezer(node) {
            Some(freezer) => freezer.set(false).map(|()| true),
            None => Ok(false),
        }
    }

    fn freezer(&self, node: &str) -> Option<Freezer> {
        // Version 2 first: there a frozen process can be killed without being thawed.
        let version2 = self.hierarchies.iter().filter(|h| h.version2);
        let version1 = self.hierarchies.iter().filter(|h| !h.version2);
        version2
            .map(|h| Freezer {
                group: h.lab.join(node),
                file: "cgroup.freeze",
            })
            .chain(version1.map(|h| Freezer {
                group: h.lab.join(node),
                file: "freezer.state",
            }))
            .find(|f| f.group.join(f.file).exists())
    }

    /// The processes in all groups of the lab.
    pub(crate) fn processes(&self) -> Vec<ProcessId> {
        let mut found = Vec::new();
        for hierarchy in &self.hierarchies {
            collect_processes(&hierarchy.lab, 0, &mut found);
        }
        found.sort_by_key(|id| id.pid);
        found.dedup();
        found.retain(|id| id.is_alive());
        found
    }

    /// Removes the groups of the lab, once no process is left in them.
    pub(crate) fn remove(&self) -> Result<(), CgroupError> {
        for hierarchy in &self.hierarchies {
            remove_tree(&hierarchy.lab)?;
            // Fails, as it should, while another lab has its groups there.
            let _ = std::fs::remove_dir(&hierarchy.parent);
        }
        Ok(())
    }
}

struct Freezer {
    group: PathBuf,
    file: &'static str,
}

impl Freezer {
    fn set(&self, frozen: bool) -> Result<(), CgroupError> {
        let value = match (self.file, frozen) {
            ("freezer.state", true) => "FROZEN",
            ("freezer.state", false) => "THAWED",
            (_, true) => "1",
            (_, false) => "0",
        };
        write(&self.group.join(self.file), value)
    }

    /// Whether no thread of the group can run. One that waits in the kernel without listening to
    /// signals (a guest whose call is at its supervisor's, who is frozen) is not counted as frozen
    /// by the kernel, but stands still all the same.
    fn nothing_runs(&self) -> bool {
        let mut members = Vec::new();
        collect_processes(&self.group, 0, &mut members);
        members.iter().all(|member| !has_running_thread(member.pid))
    }

    fn is_frozen(&self) -> bool {
        if self.file == "freezer.state" {
            return std::fs::read_to_string(self.group.join(self.file))
                .is_ok_and(|t| t.trim() == "FROZEN");
        }
        std::fs::read_to_string(self.group.join("cgroup.events"))
            .is_ok_and(|t| t.lines().any(|l| l == "frozen 1"))
    }
}

fn has_running_thread(pid: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|rest| rest.starts_with('R'))
    })
}

struct Mounted {
    root: PathBuf,
    version2: bool,
    controllers: Vec<String>,
    /// Path of this process's group below the root.
    own: PathBuf,
}

fn mounted_hierarchies() -> Vec<Mounted> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found: Vec<Mounted> = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, root, kind @ ("cgroup" | "cgroup2"), options, ..] = fields[..] else {
            continue;
        };
        let version2 = kind == "cgroup2";
        let controllers: Vec<String> = options
            .split(',')
            .filter(|o| !version2 && CONTROLLERS.contains(o))
            .map(str::to_owned)
            .collect();
        let known = found
            .iter()
            .any(|f| f.version2 == version2 && f.controllers == controllers);
        if known || (!version2 && controllers.is_empty()) {
            continue;
        }
        let own = own_group(&own, version2, controllers.first().map(String::as_str));
        found.push(Mounted {
            root: PathBuf::from(root),
            version2,
            controllers,
            own,
        });
    }
    found
}

fn own_group(listing: &str, version2: bool, controller: Option<&str>) -> PathBuf {
    for line in listing.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let matches = match controller {
            Some(wanted) => controllers.split(',').any(|c| c == wanted),
            None => version2 && controllers.is_empty(),
        };
        if matches {
            return PathBuf::from(path.trim_start_matches('/'));
        }
    }
    PathBuf::new()
}

fn first_writable(mount: &Mounted, parent: &str) -> io::Result<PathBuf> {
    let at_root = mount.root.join(parent);
    let at_own = mount.root.join(&mount.own).join(parent);
    match make_usable(&at_root) {
        Ok(()) => Ok(at_root),
        Err(first) => make_usable(&at_own).map(|()| at_own).map_err(|_| first),
    }
}

fn make_usable(group: &Path) -> io::Result<()> {
    // A delegated group can be made without the right to move processes into it.
    let writable = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open(group.join("cgroup.procs"))
            .map(drop)
    };
    in_common_parent(group, writable)
}

/// Makes the lab's group. Once it is there, nobody can remove the common parent.
fn make_lab(hierarchy: &Hierarchy) -> Result<(), CgroupError> {
    in_common_parent(&hierarchy.parent, || create(&hierarchy.lab))
        .map_err(|source| not_made(&hierarchy.lab, source))
}

/// Makes the common parent and does something in it, again where another lab's end has removed it in between.
fn in_common_parent<T>(parent: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut meetings = 0;
    loop {
        create(parent)?;
        match act() {
            Err(e) if e.kind() == io::ErrorKind::NotFound && meetings < MEETINGS_MAX => {
                meetings += 1
            }
            done => return done,
        }
    }
}

fn make(group: &Path) -> Result<(), CgroupError> {
    create(group).map_err(|source| not_made(group, source))
}

fn create(group: &Path) -> io::Result<()> {
    match std::fs::create_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn not_made(group: &Path, source: io::Error) -> CgroupError {
    CgroupError::Write {
        path: group.to_owned(),
        value: "(new group)".to_owned(),
        source,
    }
}

/// Lets the groups below the lab's have the controllers that exist. What fails here shows when a
/// limit is asked for.
fn hand_down_controllers(parent: &Path, lab: &Path) {
    let above = parent.parent();
    for group in above.into_iter().chain([parent, lab]) {
        for controller in ["cpu", "memory", "pids"] {
            let available = std::fs::read_to_string(group.join("cgroup.controllers"));
            if available.is_ok_and(|t| t.split_whitespace().any(|c| c == controller)) {
                let _ = std::fs::write(
                    group.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                );
            }
        }
    }
}

fn set_cpu(hierarchy: &Hierarchy, group: &Path, cpus: f64) -> Result<(), CgroupError> {
    #[allow(clippy::cast_precision_loss, reason = "20,000")]
    let quota = (cpus * CPU_PERIOD_US as f64).round().max(1000.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1e3 to 2.1e7"
    )]
    let quota = quota as u64;
    if hierarchy.version2 {
        return write(&group.join("cpu.max"), &format!("{quota} {CPU_PERIOD_US}"));
    }
    write(&group.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
    write(&group.join("cpu.cfs_quota_us"), &quota.to_string())
}

fn set_memory(hierarchy: &Hierarchy, group: &Path, bytes: u64) -> Result<(), CgroupError> {
    let bytes = bytes.to_string();
    if hierarchy.version2 {
        // No swap where there is any: memory limited by swapping is not what was asked for.
        let _ = std::fs::write(group.join("memory.swap.max"), "0");
        return write(&group.join("memory.max"), &bytes);
    }
    // The limit of memory with swap may never be the smaller one, so it is set after.
    write(&group.join("memory.limit_in_bytes"), &bytes)?;
    let _ = std::fs::write(group.join("memory.memsw.limit_in_bytes"), &bytes);
    Ok(())
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    std::fs::write(path, value).map_err(|source| CgroupError::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

fn collect_processes(group: &Path, depth: usize, found: &mut Vec<ProcessId>) {
    let listing = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(
        listing
            .lines()
            .filter_map(|l| ProcessId::of(l.parse().ok()?)),
    );
    if depth < DEPTH_MAX {
        for child in children(group) {
            collect_processes(&child, depth + 1, found);
        }
    }
}

fn children(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(group) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect()
}

fn remove_tree(group: &Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + REMOVE_LIMIT;
    loop {
        match try_remove(group, 0) {
            Ok(()) => return Ok(()),
            // The last process of a group leaves it a moment after its end is seen.
            Err(e) if Instant::now() >= deadline => {
                return Err(CgroupError::Remove {
                    path: group.to_owned(),
                    source: e,
                });
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn try_remove(group: &Path, depth: usize) -> io::Result<()> {
    if depth < DEPTH_MAX {
        for child in children(group) {
            try_remove(&child, depth + 1)?;
        }
    }
    match std::fs::remove_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_by_controller() {
        let listing = "4:cpu,cpuacct:/a/b\n2:memory:/m\n0::/unified/x\n";
        assert_eq!(own_group(listing, false, Some("cpuacct")), Path::new("a/b"));
        assert_eq!(own_group(listing, false, Some("memory")), Path::new("m"));
        assert_eq!(own_group(listing, true, None), Path::new("unified/x"));
        assert_eq!(own_group(listing, false, Some("pids")), Path::new(""));
    }

    /// Directories are made and removed as control groups are, so this needs no rights.
    #[test]
    fn a_lab_can_begin_while_another_ends() {
        let above = std::env::temp_dir().join(format!("whim-lab-groups-{}", std::process::id()));
        std::fs::create_dir_all(&above).unwrap();
        let set = |lab: &str| CgroupSet {
            hierarchies: vec![Hierarchy {
                controllers: Vec::new(),
                version2: false,
                parent: above.join("whim-lab"),
                lab: above.join("whim-lab").join(lab),
            }],
            refusals: Vec::new(),
        };
        std::thread::scope(|scope| {
            for lab in ["one", "two"] {
                let set = set(lab);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        set.create(&["n1".to_owned()]).unwrap();
                        set.remove().unwrap();
                    }
                });
            }
        });
        std::fs::remove_dir(&above).unwrap();
    }

    #[test]
    fn a_parent_that_cannot_be_made_is_told() {
        let nowhere = Path::new("/proc/none/whim-lab");
        assert_eq!(
            make_usable(nowhere).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
