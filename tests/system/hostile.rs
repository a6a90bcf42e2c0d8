//! A guest that attacks the supervisor which serves it, and local users who attack supervisors.

use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest, process};

const CONNECT: &str =
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"SOCKET\")'";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("hostile::guest", |_| in_lab(guest_attacks)),
        Case::new("hostile::local_user", |_| in_lab(local_user)),
    ]
}

fn in_lab(body: impl Fn(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| body(&cluster))
}

/// Says where it is, and takes it to n2 again if something made it come home.
fn on_n2(cluster: &Cluster, pid: i32) -> Result<()> {
    let row = cluster
        .row(pid)?
        .with_context(|| format!("{pid} is gone"))?;
    if row.place != "n2" {
        cluster.move_to(pid, "n2")?;
    }
    Ok(())
}

/// Attacks of `tests/guests/hostile.c`, as it calls them.
const ATTACKS: [(&str, &str); 6] = [
    ("crafted pointers", "place arguments where it has no memory"),
    (
        "memory that changes while it is read",
        "change arguments while they are copied",
    ),
    (
        "a storm of signals",
        "send itself more signals than can be carried at once",
    ),
    ("calls in flight", "have 200 calls in flight at once"),
    (
        "the supervisor's pages",
        "change the pages that its supervisor has in it",
    ),
    (
        "the supervisor's own numbers",
        "make the calls that its supervisor makes in its name",
    ),
];

/// It has found the pages of its supervisor, and written to them what it could.
const PLACE_FOUND: &str = "1 places are found";

/// Each attack begins on n2. It is over when the guest says so, and is served on.
fn guest_attacks(cluster: &Cluster) -> Result<()> {
    let program = guest::c_with("hostile", &["-pthread"])?;
    let words = [program.display().to_string()];
    let attempts =
        ATTACKS.map(|(_, what)| Attempt::new(Party::Guest, format!("at its supervisor: {what}")));
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    while let Ok(pid) = guest.ready() {
        if guest.said.last().is_some_and(|line| line == PLACE_FOUND) {
            // Its supervisor works in it by these pages.
            cluster.move_to(pid, "home")?;
        }
        on_n2(cluster, pid)?;
        guest.go()?;
    }
    guest.succeed()?;
    println!("{:#?}", guest.said);
    for ((name, _), attempt) in ATTACKS.iter().zip(attempts) {
        let refused = format!("{name}: refused");
        ensure!(
            guest.said.contains(&refused),
            "'{name}' has succeeded: {:#?}",
            guest.said
        );
        attempt.failed("errors as at home; it is served on");
    }
    let found = guest.said.iter().any(|line| line == PLACE_FOUND);
    ensure!(found, "What its supervisor has in it was not found");
    Ok(())
}

/// A user to whom neither home's supervisor nor the host's belongs.
fn local_user(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = crate::bad_input::counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let home = row.home_supervisor_pid.context("no home supervisor")?;
    let host = row.guest_supervisor_pid.context("no guest supervisor")?;
    for (node, supervisor) in [("n1", home), ("n2", host)] {
        let sockets = "ls /run/whim/journeys/*/sock";
        let socket = cluster.run(node, &["sh", "-c", sockets])?;
        for (what, script) in [
            ("connect to its socket", CONNECT),
            ("end it", "kill -9 PID"),
            ("stop it", "kill -STOP PID"),
            ("read its memory", "head -c 1 /proc/PID/mem"),
            ("list its descriptors", "ls /proc/PID/fd/"),
            ("see its environment", "cat /proc/PID/environ"),
        ] {
            let whose = if node == "n1" { "home's" } else { "a guest's" };
            let attempt = Attempt::new(Party::LocalUser, format!("at {whose} supervisor: {what}"));
            let script = script
                .replace("PID", &supervisor.to_string())
                .replace("SOCKET", socket.trim());
            let mut command = cluster.command_as("nobody", node, &["sh", "-c", &script]);
            let output = process::output(&mut command, PATIENCE)?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(!output.status.success(), "{what} on {node} is done");
            let denied = text.contains("ermi");
            ensure!(denied, "{what} on {node} fails for another reason: {text}");
            attempt.failed("permission denied");
        }
    }
    ensure!(cluster.place(pid)? == "n2", "It was moved");
    crate::bad_input::goes_on(cluster, pid)?;
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}
