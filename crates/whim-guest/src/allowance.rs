//! What this host allows one guest besides memory: it is told to home before the process is frozen.

use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::path::Path;
use whim_image::maps;
use whim_image::rebuild::THREADS_MAX;
use whim_image::stay::StayReason;
use whim_journey::message::Allowance;

/// Processes and threads of a sandbox and its supervisor, which count as the guest's of the same user do.
const OURS: u64 = 16;
/// Those of a sandbox, which are in the guest's control groups.
const IN_GROUP: u64 = 2;

/// What a guest in these control groups may have.
#[must_use]
pub(crate) fn of(cgroups: &[String]) -> Allowance {
    let limits = [
        Some(THREADS_MAX as u64),
        number(Path::new("/proc/sys/kernel/threads-max")),
        of_user(),
    ];
    let groups = cgroups
        .iter()
        .filter_map(|group| in_group(Path::new(group)));
    let threads = limits.into_iter().flatten().chain(groups).min();
    Allowance {
        mappings: maps::allowed() as u64,
        threads: threads.unwrap_or(u64::MAX),
    }
}

/// Why a guest cannot go to a host that allows it less than it has.
pub(crate) fn exceeded(
    (pid, threads): (i32, usize),
    node: &str,
    allowance: Allowance,
) -> Option<StayReason> {
    let node = node.to_owned();
    if threads as u64 > allowance.threads {
        return Some(StayReason::ThreadsThere {
            has: threads,
            node,
            limit: allowance.threads,
        });
    }
    // The reserved range and our own code are few mappings, for which the allowance has room.
    let mappings = maps::count(pid).ok()?;
    (mappings as u64 > allowance.mappings).then_some(StayReason::MappingsThere {
        has: mappings,
        node,
        limit: allowance.mappings,
    })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The limit of threads of a user, which every process of a guest inherits. Root has none.
fn of_user() -> Option<u64> {
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let (soft, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    (soft != libc::RLIM_INFINITY).then(|| soft.saturating_sub(OURS))
}

/// What is left in a group and all groups above it; `None` if none of them has a limit.
fn in_group(group: &Path) -> Option<u64> {
    let left = |group: &Path| {
        let limit = number(&group.join("pids.max"))?;
        let used = number(&group.join("pids.current")).unwrap_or(0);
        Some(limit.saturating_sub(used.max(IN_GROUP)))
    };
    group.ancestors().filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_groups_above_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let above = directory.path();
        let group = above.join("guests/g1");
        fs::create_dir_all(&group).expect("made");
        assert_eq!(in_group(&group), None);
        fs::write(group.join("pids.max"), "max\n").expect("written");
        assert_eq!(in_group(&group), None);
        fs::write(above.join("pids.max"), "1000\n").expect("written");
        fs::write(above.join("pids.current"), "400\n").expect("written");
        assert_eq!(in_group(&group), Some(600));
        fs::write(group.join("pids.max"), "200\n").expect("written");
        fs::write(group.join("pids.current"), "1\n").expect("written");
        assert_eq!(in_group(&group), Some(198));
        let allowed = of(&[group.display().to_string()]);
        assert!(allowed.threads <= 198, "{allowed:?}");
        assert!(allowed.mappings > 1000, "{allowed:?}");
    }
}
