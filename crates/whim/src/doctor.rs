//! `whim doctor`: what hinders programs from moving, found by trying, and how to mend it.

mod rights;

use nix::sys::wait::{WaitStatus, waitpid};
use std::fs;
use std::path::Path;
use whim_control::client::{Client, ControlError};
use whim_control::protocol::{Answer, Finding, Grade, Request};
use whim_sys::namespace::{self, Fork};

use crate::output;

fn finding(subject: &str, grade: Grade, found: impl Into<String>, mend: &str) -> Finding {
    let mend = (grade != Grade::Good && !mend.is_empty()).then(|| mend.to_string());
    Finding {
        subject: subject.into(),
        grade,
        found: found.into(),
        mend,
    }
}

/// Looks at everything, prints it, and tells whether programs can move.
pub(crate) fn examine(client: Result<Client, ControlError>, json: bool) -> bool {
    let mut findings = vec![kernel(), pidfd(), seccomp(), clear_refs()];
    // A daemon of somebody else has that one's rights, not ours.
    let daemon = client.as_ref().ok().and_then(Client::daemon_uid);
    if daemon.is_none_or(|uid| uid == nix::unistd::geteuid().as_raw()) {
        findings.extend(rights::findings());
    }
    findings.extend([tunnels(), programs()]);
    match client.and_then(|mut client| {
        client.ask(&Request::Doctor, |answer| {
            if let Answer::Finding(found) = answer {
                findings.push(found);
            }
        })
    }) {
        Ok(_) => {}
        Err(error) => findings.push(no_daemon(&error)),
    }
    for found in &findings {
        if json {
            output::json(found);
        } else {
            print(found);
        }
    }
    findings.iter().all(|found| found.grade != Grade::Bad)
}

/// The advice is said once, where it is looked for.
fn no_daemon(error: &ControlError) -> Finding {
    match error {
        ControlError::Unreachable { path, source } => finding(
            "daemon",
            Grade::Bad,
            format!("No daemon answers at {} ({source})", path.display()),
            "Start it with 'systemctl start whimd', or your own with 'whimd'",
        ),
        error => finding("daemon", Grade::Bad, error.to_string(), ""),
    }
}

fn print(found: &Finding) {
    let mark = match found.grade {
        Grade::Good => "good   ",
        Grade::Warning => "warning",
        Grade::Bad => "bad    ",
    };
    output::line(&format!("{mark}  {}: {}", found.subject, found.found));
    if let Some(mend) = &found.mend {
        output::line(&format!("         -> {mend}"));
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_string())
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    if cfg!(target_arch = "x86_64") {
        finding("kernel", Grade::Good, format!("Linux {release}"), "")
    } else {
        finding(
            "kernel",
            Grade::Bad,
            "This is no x86-64 machine",
            "Use one that is",
        )
    }
}

/// Tries something in a child, so that nothing of it sticks to this process; gives its exit status.
fn try_in_child(attempt: impl FnOnce() -> i32) -> Option<i32> {
    match namespace::fork().ok()? {
        Fork::Child => std::process::exit(attempt()),
        Fork::Parent(child) => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => Some(code),
            _ => None,
        },
    }
}

fn pidfd() -> Finding {
    let own = i32::try_from(std::process::id()).unwrap_or(1);
    match namespace::PidFd::open(own) {
        Ok(_) => finding("pidfd", Grade::Good, "Descriptors of processes work", ""),
        Err(error) => finding(
            "pidfd",
            Grade::Bad,
            format!("Descriptors of processes do not work ({error})"),
            "Use a kernel of 5.10 or later",
        ),
    }
}

fn seccomp() -> Finding {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split(' ').any(|action| action == "user_notif") {
        finding("seccomp", Grade::Good, "System calls can be reported", "")
    } else {
        finding(
            "seccomp",
            Grade::Bad,
            "System calls cannot be reported to a supervisor: this machine cannot host guests",
            "Use a kernel of 5.19 or later with CONFIG_SECCOMP_FILTER",
        )
    }
}

fn clear_refs() -> Finding {
    if Path::new("/proc/self/pagemap").exists() && Path::new("/proc/self/map_files").exists() {
        finding(
            "pagemap",
            Grade::Good,
            "Pages and mapped files of processes can be read",
            "",
        )
    } else {
        finding(
            "pagemap",
            Grade::Bad,
            "/proc does not show the pages of processes: nothing can leave this machine",
            "Use a kernel with CONFIG_PROC_PAGE_MONITOR and CONFIG_CHECKPOINT_RESTORE",
        )
    }
}

fn tunnels() -> Finding {
    if Path::new("/dev/net/tun").exists() {
        finding("tun", Grade::Good, "Labs can have slow and lossy links", "")
    } else {
        finding(
            "tun",
            Grade::Warning,
            "There is no /dev/net/tun: links of a lab can be cut but not slowed",
            "Load the module tun",
        )
    }
}

fn programs() -> Finding {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&paths).any(|path| path.join(name).exists());
    let sbin = |name: &str| Path::new("/usr/sbin").join(name).exists() || has(name);
    if sbin("ip") && sbin("tc") {
        finding("iproute2", Grade::Good, "ip and tc are there, for labs", "")
    } else {
        let mend = "Install the package iproute2";
        finding(
            "iproute2",
            Grade::Warning,
            "ip or tc is missing: no lab can be made",
            mend,
        )
    }
}
