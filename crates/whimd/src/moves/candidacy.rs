//! What the balancer has to know of a process before it touches it.

use std::fs;
use std::path::Path;
use whim_balance::candidate::{self, Facts, NotCandidate};

use crate::line::probes::Patience;
use crate::moves::{Moves, stay};
use whim_machine::process::Process;
use whim_machine::processes;

/// Where logind describes the sessions, each in a file.
const SESSIONS: &str = "/run/systemd/sessions";
/// No such file is longer, in bytes.
const SESSION_MAX: u64 = 64 << 10;

/// Why the balancer does not touch a process, as a sentence; `None` if it may.
#[must_use]
pub(crate) fn reason(moves: &Moves, pid: i32) -> Option<String> {
    let not = check(moves, pid).err()?;
    Some(format!("Not a candidate: {not}."))
}

/// # Errors
/// Why it is no candidate.
pub(crate) fn check(moves: &Moves, pid: i32) -> Result<(), NotCandidate> {
    let process = Process::open(pid).ok();
    let known = process.as_ref().and_then(|process| {
        let candidates = moves.candidates();
        let known = candidates.get(pid).cloned();
        known.filter(|known| known.start_time == process.start_time())
    });
    let may = known.as_ref().zip(process.as_ref());
    let may = may.and_then(|(known, process)| known.check(process).ok());
    let changed = may.is_none();
    let credentials = may.or_else(|| process.and_then(|process| process.credentials().ok()));
    // A process that has just ended belongs to nobody.
    let uid = credentials.map_or(0, |credentials| credentials.uids[0]);
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let stat = processes::stat(pid).ok();
    candidate::check(&Facts {
        part: stat.and_then(|stat| stay::part_of_the_system(moves, &stat, Patience::Brief)),
        uid,
        uid_min: moves.ground().config().balance.uid_min,
        registered: known.is_some(),
        changed,
        service: service(&groups),
        leads: leads(Path::new(SESSIONS), pid),
    })
}

/// The system's service to which a process belongs, by its control groups. Services of a user's own
/// manager are below `user.slice`, and do not count.
fn service(groups: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let below = path.strip_prefix("/system.slice/")?;
        let parts = below.split('/');
        parts
            .map(str::to_owned)
            .find(|part| Path::new(part).extension().is_some_and(|e| e == "service"))
    })
}

/// The kind of the session that a process leads, if it leads one of a user.
fn leads(sessions: &Path, pid: i32) -> Option<String> {
    use std::io::Read;
    let files = fs::read_dir(sessions).into_iter().flatten().flatten();
    // Beside the files are pipes (`2.ref`), from which nothing can be read until the session ends.
    let files = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    files.into_iter().find_map(|file| {
        let mut text = String::new();
        let file = fs::File::open(file.path()).ok()?;
        file.take(SESSION_MAX).read_to_string(&mut text).ok()?;
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        };
        let is_leader = field("LEADER").and_then(|leader| leader.parse().ok()) == Some(pid);
        is_leader.then(|| field("TYPE").unwrap_or("unknown").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_the_system_are_known_by_their_groups() {
        for (groups, found) in [
            ("0::/system.slice/cron.service", Some("cron.service")),
            (
                "4:memory:/system.slice/system-x.slice/x@1.service/a\n0::/",
                Some("x@1.service"),
            ),
            ("0::/user.slice/user-1000.slice/session-2.scope", None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
                None,
            ),
            ("0::/system.slice/docker-17.scope", None),
            ("0::/whim-lab/lab/n1/main", None),
            ("", None),
        ] {
            assert_eq!(service(groups).as_deref(), found, "{groups}");
        }
    }

    #[test]
    fn leaders_of_sessions_are_known_by_logind_s_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("written");
        };
        write("2", "# private data\nUID=1000\nTYPE=wayland\nLEADER=4711\n");
        write("3", "UID=1001\nTYPE=tty\nLEADER=815\n");
        write("4", "UID=1001\n");
        let leads = |pid| leads(directory.path(), pid);
        assert_eq!(leads(4711).as_deref(), Some("wayland"));
        assert_eq!(leads(815).as_deref(), Some("tty"));
        assert_eq!(leads(471), None);
        assert_eq!(super::leads(Path::new("/nowhere"), 1), None);
    }

    #[test]
    fn the_pipes_of_sessions_are_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("2.ref");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        // logind opens it like this, and waits for the other end to be closed.
        let held = fs::OpenOptions::new().read(true).write(true).open(&pipe);
        let _held = held.expect("opened");
        let (sender, led) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(leads(directory.path(), 4711)));
        let led = led.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(led, Ok(None));
    }
}
