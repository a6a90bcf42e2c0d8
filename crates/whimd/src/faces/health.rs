//! What only the daemon can tell to `whim doctor`.

use crate::daemon::Daemon;
use crate::ground::Ground;
use crate::host::share;
use crate::members::discovery;
use crate::members::membership;
use crate::members::membership::Membership;
use crate::settings::Settings;
use whim_control::protocol::{Finding, Grade, NodeState};

/// Clocks further apart than this are worth a warning, in milliseconds.
const SKEW_WARN_MS: u64 = 1000;
const DAY: u64 = 24 * 60 * 60;
/// What is to be done on a node that was removed and shall be a member again.
pub(crate) const REJOIN: &str = "To be a member again: 'whim leave' here, 'whim token' on the node that holds the CA, and 'whim join HOST' here";

fn finding(subject: &str, grade: Grade, found: String, mend: Option<&str>) -> Finding {
    Finding {
        subject: subject.into(),
        grade,
        found,
        mend: mend.map(ToString::to_string),
    }
}

/// Identity, certificate, members and their clocks, limits for guests.
#[must_use]
pub(crate) fn findings(daemon: &Daemon) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !daemon.settings().root {
        findings.push(finding(
            "rights",
            Grade::Warning,
            "The daemon does not run as root. Meanwhile it moves its own user's programs, and guests run under that user's uid".into(),
            Some("Start whimd as root, for all users of this machine"),
        ));
    }
    findings.extend(filter());
    findings.extend(programs(daemon.settings()));
    findings.extend(discovered(daemon.ground()));
    let Some(expires) = daemon.cluster().expires() else {
        findings.push(finding(
            "cluster",
            Grade::Warning,
            "This node is in no cluster".into(),
            Some("Run 'whim init' for a new one, or 'whim join HOST' with a token"),
        ));
        return findings;
    };
    findings.push(finding(
        "address",
        Grade::Good,
        format!(
            "Other nodes reach this one at {}",
            daemon.cluster().addresses().join(", ")
        ),
        None,
    ));
    let days = expires.saturating_sub(crate::members::cluster::now()) / DAY;
    let expiring = days < 14;
    findings.push(finding(
        "certificate",
        if expiring {
            Grade::Warning
        } else {
            Grade::Good
        },
        format!("Good for {days} days"),
        expiring.then_some("It renews itself while the node that holds the CA is reached"),
    ));
    findings.extend(members(daemon.membership()));
    findings.push(limits(daemon));
    findings
}

/// Finds a filter of system calls that a service manager or a container has set up. It ends calls before
/// we see them, and guests inherit it.
fn filter() -> Option<Finding> {
    let status = whim_machine::processes::short("/proc/self/status")?;
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))?;
    (mode.trim() != "0").then(|| {
        finding(
            "filter",
            Grade::Warning,
            "The daemon runs under a filter of system calls, and so do guests: what it forbids fails or ends them here, and works at their homes".into(),
            Some("Take SystemCallFilter=, SystemCallArchitectures=, Restrict...= and the like out of the unit, or start the container without such a filter"),
        )
    })
}

/// Nodes that could join, or clusters that could be joined.
fn discovered(ground: &Ground) -> Vec<Finding> {
    let (ours, now) = (ground.cluster().name(), ground.clock());
    let heard = ground.membership().discovery();
    let others = heard
        .found(now)
        .filter(|found| !discovery::is_own(found.address.ip()));
    let proposals = others.filter_map(|found| found.proposal(ours.as_ref()));
    proposals
        .map(|(found, mend)| finding("discovered", Grade::Warning, found, Some(&mend)))
        .collect()
}

/// Checks that the supervisors are where the daemon looks for them, and that every user can run them.
fn programs(settings: &Settings) -> Vec<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let missing = ["whim-home", "whim-guest"].iter().filter_map(|name| {
        let path = settings.libexec.join(name);
        let mode = std::fs::metadata(&path).map(|about| about.permissions().mode());
        let found = match mode {
            Err(error) => format!("{} is not usable ({error})", path.display()),
            Ok(mode) if settings.root && mode & 0o001 == 0 => {
                format!("{} is not executable for everybody", path.display())
            }
            Ok(_) => return None,
        };
        let mend = "Install it beside whimd, or start whimd with --libexec DIR";
        Some(finding("supervisors", Grade::Bad, found, Some(mend)))
    });
    missing.collect()
}

fn members(membership: &Membership) -> Vec<Finding> {
    let own = membership.cluster().node();
    let peers = membership.peers();
    let others = membership
        .cluster()
        .members()
        .into_iter()
        .filter(|member| member.name != own);
    others
        .map(|member| {
            let subject = format!("node {}", member.name);
            let state = peers.state(&member.name);
            let skew = peers.get(&member.name).map_or(0, |health| health.skew_ms);
            if let Some(refusal) = membership::refusal(&member.name, peers.refused_since) {
                finding(&subject, Grade::Warning, refusal, Some(REJOIN))
            } else if matches!(state, NodeState::Down | NodeState::Suspect) {
                let found = format!("It is {state}; tried: {}", member.addresses.join(", "));
                let mend = "Check that whimd runs there, and that the port is open for TCP and UDP";
                finding(&subject, Grade::Warning, found, Some(mend))
            } else if skew.unsigned_abs() > SKEW_WARN_MS {
                let found = format!("Its clock differs from ours by {skew} ms");
                finding(
                    &subject,
                    Grade::Warning,
                    found,
                    Some("Run an NTP client on both nodes"),
                )
            } else {
                finding(&subject, Grade::Good, format!("It is {state}"), None)
            }
        })
        .collect()
}

fn limits(daemon: &Daemon) -> Finding {
    let share = share::of_guests(&daemon.config());
    let prefix = daemon.settings().group_prefix();
    let groups = whim_machine::cgroup::make_guest(&prefix, "doctor", Some(share), 16);
    whim_machine::cgroup::remove_guest(&groups.directories);
    if groups.directories.is_empty() {
        finding(
            "cgroups",
            Grade::Warning,
            "This daemon may make no control groups: the kernel does not limit the memory and the threads of its guests. Meanwhile their supervisors count both".into(),
            Some("Run whimd as root, or as a service of the user ('systemctl --user start whimd')"),
        )
    } else if groups.missing.is_empty() {
        finding(
            "cgroups",
            Grade::Good,
            "Guests are limited in memory and threads".into(),
            None,
        )
    } else {
        finding(
            "cgroups",
            Grade::Warning,
            format!("Not every limit can be set: {}", groups.missing.join("; ")),
            Some("Enable the controllers memory and pids for the group of whimd"),
        )
    }
}
