//! What a home supervisor may do beyond its user, and for how long: nothing, once it speaks to a host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use whim_attempts::{Attempt, Party};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest, process};

const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: &str = "nobody";
const NOBODYS_ID: u32 = 65_534;
/// Far less than /proc/sys/fs/lease-break-time, and far more than an open takes.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Tries for a while, as fast as it can, to get at each home supervisor of its own user.
const SPY: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, tries, end = 0x4206, 0, time.time() + float(sys.argv[1])
def mine():
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and open(f"/proc/{name}/comm").read() == "whim-home\n":
                if f"Uid:\t{os.getuid()}" in open(f"/proc/{name}/status").read():
                    yield int(name)
        except OSError:
            pass
while time.time() < end:
    for pid in mine():
        for what, look in [
            ("memory", lambda: open(f"/proc/{pid}/mem", "r+b").close()),
            ("descriptors", lambda: [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]),
            ("environment", lambda: open(f"/proc/{pid}/environ").read(1)),
            ("mappings", lambda: open(f"/proc/{pid}/maps").read(1)),
        ]:
            try:
                look()
                # Of one that is ending, and has no memory any more, nothing is left to be seen.
                if "VmSize" in open(f"/proc/{pid}/status").read():
                    print("got", what, flush=True)
            except (PermissionError, FileNotFoundError, ProcessLookupError):
                tries += 1
        if libc.ptrace(SEIZE, pid, 0, 0) == 0:
            print("got the right to trace", flush=True)
            sys.exit(1)
        tries += 1
print("tried", tries, flush=True)
"#;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("rights::none_while_away", |_| in_lab(none_while_away)),
        Case::new("rights::own_user_in_each_phase", |_| in_lab(own_user)),
        Case::new("rights::stopped_supervisors", |_| in_lab(stopped)),
        Case::new("rights::undumpable_while_away", |_| in_lab(undumpable)),
        Case::new("rights::other_ids_while_away", |_| in_lab(other_ids)),
    ]
}

fn in_lab(body: fn(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| body(&cluster))
}

/// Runs a program under the daemon as a plain user, with a lease that outlasts every pause of the test.
fn run_as_nobody(cluster: &Cluster, program: &[&str]) -> Result<(Talk, i32)> {
    let whim = cluster.whim_path().display().to_string();
    let words = [&[whim.as_str(), "run", "--lease", "120", "--"], program].concat();
    let mut guest = Talk::start(cluster, &mut cluster.command_as(NOBODY, "n1", &words))?;
    let pid = guest.ready()?;
    Ok((guest, pid))
}

fn hides(cluster: &Cluster) -> Result<(Talk, i32)> {
    let program = guest::script("hides.py")?.display().to_string();
    run_as_nobody(cluster, &["python3", &program, "/tmp"])
}

fn supervisor(cluster: &Cluster, pid: i32) -> Result<i32> {
    let row = cluster.row(pid)?.context("It is gone")?;
    row.home_supervisor_pid.context("It has no supervisor")
}

fn asked(guest: &mut Talk, word: &str) -> Result<String> {
    guest.say(word)?;
    guest.line()
}

fn none_while_away(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = hides(cluster)?;
    cluster.move_to(pid, "n2")?;
    let supervisor = supervisor(cluster, pid)?;
    let script = format!("cat /proc/{supervisor}/task/*/status");
    let status = cluster.run("n1", &["sh", "-c", &script])?;
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        let attempt = Attempt::new(
            Party::LyingHost,
            format!("find a capability in home's supervisor of a user's program ({set})"),
        );
        let found: Vec<&str> = status
            .lines()
            .filter(|line| line.starts_with(set))
            .collect();
        ensure!(!found.is_empty(), "{status}");
        for line in found {
            ensure!(line.ends_with("\t0000000000000000"), "While away: {line}");
        }
        attempt.failed("it is empty, in every thread");
    }
    ensure!(status.contains("NoNewPrivs:\t1"), "{status}");
    asked(&mut guest, "work")?;
    cluster.move_to(pid, "home")?;
    asked(&mut guest, "work").map(drop)
}

fn own_user(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = hides(cluster)?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "at her own home supervisor, from its start to its end: trace it, read its memory, descriptors, \
         environment and mappings",
    );
    let mut spy = cluster.command_as(NOBODY, "n1", &["python3", "-c", SPY, "12"]);
    let spying = std::thread::spawn(move || process::succeed(&mut spy, PATIENCE));
    for _ in 0..4 {
        cluster.move_to(pid, "n2")?;
        asked(&mut guest, "work")?;
        cluster.move_to(pid, "home")?;
    }
    let said = spying.join().expect("no panic")?;
    let tries: u32 = said
        .trim()
        .strip_prefix("tried ")
        .with_context(|| format!("It got something: {said}"))?
        .parse()?;
    ensure!(tries > 100, "It has tried only {tries} times");
    attempt.failed("permission denied, each time");
    asked(&mut guest, "work").map(drop)
}

/// A file of root's that everybody may read, and one of the user's that a group may write to.
fn stopped(cluster: &Cluster) -> Result<()> {
    let program = guest::script("watches.py")?.display().to_string();
    for own in [false, true] {
        let file = cluster.directory().join(format!("own-{own}"));
        fs::write(&file, "before\n")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664))?;
        let path = file.display().to_string();
        if own {
            std::os::unix::fs::chown(&file, Some(NOBODYS_ID), Some(0))?;
        }
        cluster.run("n1", &["touch", "-d", "1 hour ago", &path])?;
        let (mut guest, pid) = run_as_nobody(cluster, &["python3", &program, &path])?;
        cluster.move_to(pid, "n2")?;
        let supervisor = supervisor(cluster, pid)?.to_string();
        let whose = if own { "her own" } else { "root's" };
        let attempt = Attempt::new(
            Party::LocalUser,
            format!("stop her supervisor, so that root waits for a file of {whose} that it maps"),
        );
        cluster.run("n1", &["kill", "-STOP", &supervisor])?;
        let moved = format!("{path}.moved");
        for (what, script) in [
            ("read", format!("head -c 1 {path}")),
            ("lock", format!("flock {path} true")),
            (
                "open for writing",
                format!("exec 3<>{path}; printf after! >&3"),
            ),
            ("move", format!("mv {path} {moved} && mv {moved} {path}")),
        ] {
            let begun = Instant::now();
            let mut command = cluster.command("n1", &["sh", "-c", &script]);
            process::succeed(&mut command, PATIENCE)?;
            let took = begun.elapsed();
            ensure!(took < AT_ONCE, "To {what} {path} took {took:.1?}");
        }
        attempt.failed("nobody waits");
        cluster.run("n1", &["kill", "-CONT", &supervisor])?;
        ensure!(asked(&mut guest, "tell")? == "after!", "{:?}", guest.said);
    }
    Ok(())
}

fn undumpable(cluster: &Cluster) -> Result<()> {
    goes_on_undumpable(cluster, hides)
}

/// The same under a daemon of that user's own.
pub(crate) fn undumpable_of_users(cluster: &Cluster) -> Result<()> {
    goes_on_undumpable(cluster, |cluster| {
        let program = guest::script("hides.py")?.display().to_string();
        let words = ["python3", &program, "/tmp"];
        let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
        let pid = guest.ready()?;
        Ok((guest, pid))
    })
}

/// It forbids everybody to look at it, away, and works on there, and at home.
fn goes_on_undumpable(
    cluster: &Cluster,
    start: impl Fn(&Cluster) -> Result<(Talk, i32)>,
) -> Result<()> {
    let (mut guest, pid) = start(cluster)?;
    let (mut other, beside) = start(cluster)?;
    let mut same = |guest: &mut Talk, where_to: &str| -> Result<()> {
        let (here, there) = (asked(guest, "work")?, asked(&mut other, "work")?);
        ensure!(here == there, "{where_to}: {here}, and {there} as it stays");
        Ok(())
    };
    for _ in 0..2 {
        cluster.move_to(pid, "n2")?;
        same(&mut guest, "away")?;
        ensure!(
            asked(&mut guest, "hide")?.starts_with("0 "),
            "{:?}",
            guest.said
        );
        same(&mut guest, "away, hidden")?;
        ensure!(cluster.place(pid)? == "n2", "It went home by itself");
        cluster.move_to(pid, "home")?;
        same(&mut guest, "at home, hidden")?;
        ensure!(
            asked(&mut guest, "show")?.starts_with("1 "),
            "{:?}",
            guest.said
        );
    }
    ensure!(cluster.place(beside)? != "n2", "It was moved");
    Ok(())
}

/// One of root's gives up its ids away, as daemons do.
fn other_ids(cluster: &Cluster) -> Result<()> {
    let program = guest::script("hides.py")?.display().to_string();
    let words = ["python3", &program, "/tmp"];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    asked(&mut guest, "work")?;
    let become_nobody = format!("become {NOBODYS_ID}");
    let said = asked(&mut guest, &become_nobody)?;
    ensure!(said.ends_with(&format!(" {NOBODYS_ID}")), "{said}");
    asked(&mut guest, "work")?;
    ensure!(cluster.place(pid)? == "n2", "It went home by itself");
    cluster.move_to(pid, "home")?;
    asked(&mut guest, "work").map(drop)
}
