//! What supervisors, guests and deputies hold that is not theirs, and what is left of a guest on its host's disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

use crate::bad_input::{counting, goes_on};

const PATIENCE: Duration = Duration::from_secs(30);
/// What a supervisor may hold beside what has no name: files that it was given, or that all may read.
const SUPERVISORS_OWN: [&str; 11] = [
    "pipe:",
    "socket:",
    "anon_inode:",
    "/dev/null",
    "/memfd:",
    "/proc/",
    "/sys/fs/cgroup/",
    "/sys/kernel/ns_last_pid",
    "/run/whim/guests.share",
    "/var/lib/whim/log/",
    "/var/lib/whim/journeys/",
];
/// Swapped out of this, if anything is.
const SWAP_BYTES: &str = "64M";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("leaks::descriptors", |_| descriptors()),
        Case::new("leaks::full::environment", |_| environment()),
        Case::new("leaks::cores", |_| in_lab(cores)),
        Case::new("leaks::cores_of_guests", |_| in_lab(cores_of_guests)),
        Case::new("leaks::swap", |_| in_lab(swap)),
    ]
}

fn in_lab(body: fn(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| body(&cluster))
}

/// The descriptors of a process, each with what it is.
fn held(cluster: &Cluster, node: &str, pid: &str) -> Result<Vec<String>> {
    let script = format!("cd /proc/{pid}/fd && for fd in *; do echo $fd $(readlink $fd); done");
    let told = cluster.run(node, &["sh", "-c", &script])?;
    // An empty directory leaves the pattern as it is.
    Ok(told
        .lines()
        .filter(|line| !line.starts_with('*'))
        .map(str::to_owned)
        .collect())
}

/// The processes on a node that have this name.
fn named(cluster: &Cluster, node: &str, name: &str) -> Result<Vec<String>> {
    let script = format!("ps -eo pid,comm | awk '$2 == \"{name}\" {{ print $1 }}'");
    let told = cluster.run(node, &["sh", "-c", &script])?;
    Ok(told.split_whitespace().map(str::to_owned).collect())
}

/// The one process on n2 that is no other's than the guest: its supervisor's tracee.
fn guest_process(cluster: &Cluster) -> Result<String> {
    let told = cluster.run(
        "n2",
        &["sh", "-c", "grep -l 'TracerPid:.[1-9]' /proc/[0-9]*/status"],
    )?;
    let path = told.lines().next().context("no guest on n2")?;
    Ok(path.split('/').nth(2).unwrap_or_default().to_owned())
}

fn descriptors() -> Result<()> {
    let secret = tempfile("secret")?;
    // A daemon may be started by somebody who has anything open: a shell, a script, another service.
    fcntl(&secret.1, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let cluster = Cluster::up(2)?;
    let tries = |what: &str| {
        Attempt::new(
            Party::LocalUser,
            format!("have a descriptor that was open when the daemon was started: {what}"),
        )
    };
    cluster.explaining(|| {
        let (mut talk, pid) = counting(&cluster)?;
        let number = pid.to_string();
        let at_home = held(&cluster, "n1", &number)?;
        cluster.move_to(pid, "n2")?;
        for (node, name, what) in [
            ("n1", "whim-home", "by a supervisor at home"),
            ("n2", "whim-guest", "by a guest's supervisor"),
        ] {
            let attempt = tries(what);
            let supervisors = named(&cluster, node, name)?;
            ensure!(!supervisors.is_empty(), "no {name} on {node}");
            for supervisor in supervisors {
                let all = held(&cluster, node, &supervisor)?;
                let foreign = |line: &&String| {
                    let (_, target) = line.split_once(' ').unwrap_or_default();
                    !SUPERVISORS_OWN.iter().any(|own| target.starts_with(own))
                };
                let found = all.iter().find(foreign);
                ensure!(
                    found.is_none(),
                    "{name} {supervisor} has {found:?} of {all:#?}"
                );
                let pipes = all.iter().filter(|line| line.contains("pipe:")).count();
                ensure!(
                    pipes <= 2,
                    "{name} {supervisor} has more than its job's pipes: {all:#?}"
                );
            }
            attempt.failed("it has what it was given, and nothing else");
        }
        let attempt = tries("by a guest");
        let all = held(&cluster, "n2", &guest_process(&cluster)?)?;
        ensure!(all.is_empty(), "the guest has {all:?}");
        attempt.failed("it has none at all");
        let attempt = tries("by a deputy");
        ensure!(
            held(&cluster, "n1", &number)? == at_home,
            "others than before it moved"
        );
        cluster.move_to(pid, "home")?;
        ensure!(
            held(&cluster, "n1", &number)? == at_home,
            "others after its return"
        );
        attempt.failed("it has what the program has");
        let attempt = tries("by a program of 'whim run'");
        let list = ["sh", "-c", "ls /proc/$$/fd"];
        let plain = cluster.run("n1", &list)?;
        let run = process::succeed(&mut cluster.run_command("n1", &list), PATIENCE)?;
        ensure!(plain == run, "without us {plain:?}, by 'whim run' {run:?}");
        attempt.failed("it has what its caller has");
        goes_on(&cluster, pid)?;
        talk.signal_outside(Signal::SIGKILL);
        talk.end().map(drop)
    })?;
    fs::remove_file(secret.0)?;
    Ok(())
}

/// What stood in the environment of a daemon when it was started.
fn environment() -> Result<()> {
    const SECRET: &str = "WHIM_TEST_SECRET=hidden";
    let cluster = Cluster::up_of_confined_users(&format!("env {SECRET}"))?;
    cluster.explaining(|| {
        let program = guest::c("patient")?.display().to_string();
        let words = [program.as_str(), "counts"];
        let mut there = Talk::start(&cluster, &mut cluster.run_command("n2", &words))?;
        let pid = there.ready()?;
        cluster.whim("n2", &["migrate", &pid.to_string(), "n1"])?;
        let (mut here, pid) = counting(&cluster)?;
        cluster.move_to(pid, "n2")?;
        for (name, what) in [
            ("whim-home", "a supervisor at home"),
            ("whim-guest", "a guest's supervisor"),
        ] {
            let attempt = Attempt::new(
                Party::LocalUser,
                format!("read what the daemon's environment was by {what}"),
            );
            let supervisors = named(&cluster, "n2", name)?;
            ensure!(!supervisors.is_empty(), "no {name} on n2");
            for supervisor in supervisors {
                let path = format!("/proc/{supervisor}/environ");
                let mut read = cluster.command_of_root("n2", &["cat", &path]);
                let text = process::succeed(&mut read, PATIENCE)?;
                ensure!(!text.contains(SECRET), "{name}: {text}");
            }
            attempt.failed("it was told nothing of it");
        }
        for talk in [&mut there, &mut here] {
            talk.signal_outside(Signal::SIGKILL);
            talk.end()?;
        }
        Ok(())
    })
}

/// A file that only root may read.
fn tempfile(name: &str) -> Result<(PathBuf, File)> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = whim_system_tests::place::room()?.join(format!("{name}-{}", std::process::id()));
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let file = file.open(&path)?;
    Ok((path, file))
}

/// The limit of cores of a process, soft and hard.
fn core_limit(cluster: &Cluster, node: &str, pid: &str) -> Result<(String, String)> {
    let text = cluster.run(node, &["cat", &format!("/proc/{pid}/limits")])?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"))
        .context("no limit of cores")?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    Ok((word(), word()))
}

/// With 0 the kernel writes no file and still asks a handler, which sees all memory; with 1 it does neither.
fn cores(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    let daemon = cluster.daemon_pid("n2")?;
    let home = named(cluster, "n1", "whim-home")?;
    let host = named(cluster, "n2", "whim-guest")?;
    let visitor = guest_process(cluster)?;
    for (what, node, pids) in [
        ("a daemon", "n2", vec![daemon]),
        ("a supervisor at home", "n1", home),
        ("a guest's supervisor", "n2", host),
        ("a guest", "n2", vec![visitor]),
    ] {
        let attempt = Attempt::new(
            Party::LocalUser,
            format!("have the memory of {what} in a core, or in the hands of a handler of cores"),
        );
        for pid in pids {
            let limits = core_limit(cluster, node, &pid)?;
            ensure!(
                limits == ("1".into(), "1".into()),
                "{what}, {pid}: {limits:?}"
            );
        }
        attempt.failed("its limit of cores is 1, and cannot be raised");
    }
    let attempt = Attempt::new(
        Party::LocalUser,
        "have the limits of the daemon by a program that moves",
    );
    let plain = cluster.run("n1", &["sh", "-c", "ulimit -c; ulimit -Hc"])?;
    cluster.move_to(pid, "home")?;
    let (soft, hard) = core_limit(cluster, "n1", &pid.to_string())?;
    let told: Vec<&str> = plain.split_whitespace().collect();
    ensure!(
        told == [soft.as_str(), hard.as_str()],
        "{told:?}, {soft}, {hard}"
    );
    attempt.failed("it has those that it was started with");
    talk.signal_outside(Signal::SIGKILL);
    talk.end().map(drop)
}

/// Cores where a process of a node that is not in a directory of this test would leave one.
fn core_files(cluster: &Cluster, node: &str) -> Result<Vec<String>> {
    let script = "find / -maxdepth 1 -name 'core*' -type f; \
                  find /run /tmp /var/lib/whim -xdev -name 'core*' -type f";
    let told = cluster.run(node, &["sh", "-c", script])?;
    Ok(told.lines().map(str::to_owned).collect())
}

/// A program that dies away leaves its core at home, where it would without us, and with its owner's rights.
fn cores_of_guests(cluster: &Cluster) -> Result<()> {
    let program = guest::c("core")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    for (how, what) in [
        ("0", "by a fault"),
        ("1", "by abort"),
        ("2", "by a signal to itself"),
    ] {
        let attempt = Attempt::new(
            Party::LocalUser,
            format!(
                "find the memory of a program that died away {what} where it is not its owner's"
            ),
        );
        let words = [whim.as_str(), "run", "--", &program, how];
        let mut talk = Talk::start(cluster, &mut cluster.command_as("nobody", "n1", &words))?;
        let pid = talk.ready()?;
        cluster.move_to(pid, "n2")?;
        talk.go()?;
        talk.end()?;
        for entry in fs::read_dir(talk.directory())?.flatten() {
            use std::os::unix::fs::MetadataExt;
            let about = entry.metadata()?;
            let mode = about.mode() & 0o777;
            ensure!(
                about.uid() == 65_534 && mode & 0o077 == 0,
                "{}: uid {}, mode {mode:o}",
                entry.path().display(),
                about.uid()
            );
        }
        attempt.failed("its core is at home, its owner's alone");
    }
    let attempt = Attempt::new(
        Party::LocalUser,
        "find the memory of a guest on its host, whose supervisor was aborted",
    );
    let (mut talk, pid) = counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    let supervisor = cluster
        .row(pid)?
        .and_then(|row| row.guest_supervisor_pid)
        .context("no supervisor")?;
    cluster.run("n2", &["kill", "-ABRT", &supervisor.to_string()])?;
    talk.end()?;
    let left = core_files(cluster, "n2")?;
    ensure!(left.is_empty(), "{left:?}");
    attempt.failed("nothing of it is on the disk");
    let attempt = Attempt::new(
        Party::LocalUser,
        "find the memory of a guest on its host, which was ended there by a fault",
    );
    let (mut talk, pid) = counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    cluster.run("n2", &["kill", "-SEGV", &guest_process(cluster)?])?;
    talk.end()?;
    let left = core_files(cluster, "n2")?;
    ensure!(left.is_empty(), "{left:?}");
    attempt.failed("nothing of it is on the disk");
    Ok(())
}

/// A swap file of this machine, for as long as this lives.
struct SwapFile(PathBuf);

impl SwapFile {
    /// None where this machine takes none.
    fn on() -> Result<Option<Self>> {
        let path = whim_system_tests::place::room()?.join(format!("swap-{}", std::process::id()));
        let own = Self(path);
        let script = "umask 077 && fallocate -l \"$2\" \"$1\" && mkswap \"$1\" && swapon \"$1\"";
        let mut words = std::process::Command::new("sh");
        words.args(["-c", script, "sh"]).arg(&own.0).arg(SWAP_BYTES);
        let made = process::output(&mut words, PATIENCE)?;
        if made.status.success() {
            return Ok(Some(own));
        }
        println!("no swap here: {}", String::from_utf8_lossy(&made.stderr));
        Ok(None)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let mut off = std::process::Command::new("swapoff");
        let off = process::output(off.arg(&self.0), PATIENCE);
        if !off.is_ok_and(|off| off.status.success()) {
            println!("{} is not swapped on", self.0.display());
        }
        let _ = fs::remove_file(&self.0);
    }
}

/// What is swapped out of a group, in bytes; and how to make the kernel try.
fn swapped(group: &Path) -> Result<u64> {
    if let Ok(text) = fs::read_to_string(group.join("memory.swap.current")) {
        return Ok(text.trim().parse()?);
    }
    let text = fs::read_to_string(group.join("memory.stat"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("swap "));
    Ok(line.unwrap_or("0").trim().parse()?)
}

fn swap_out(group: &Path) {
    // The kernel says so when it cannot reclaim as much: that is what is looked for.
    let _ = fs::write(group.join("memory.force_empty"), "0");
    let _ = fs::write(group.join("memory.reclaim"), "64M");
}

fn swap(cluster: &Cluster) -> Result<()> {
    let Some(own) = cluster.memory_group("n2") else {
        println!("no group limits memory here");
        return Ok(());
    };
    let script = "import os, sys; x = bytearray(os.urandom(1 << 20) * 32)\n\
                  print('ready', os.getpid(), flush=True)\n\
                  sys.stdin.readline(); print(len(set(x[::4096])) > 1, flush=True)";
    let words = ["python3", "-c", script];
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = talk.ready()?;
    cluster.move_to(pid, "n2")?;
    let all = cluster
        .all_guests_group("n2")
        .context("no group of guests")?;
    let guests = cluster.guest_groups("n2");
    let guest = guests
        .iter()
        .find(|group| group.starts_with(&all))
        .context("no group of the guest")?;
    let supervisors = own.join("whim-journeys/supervisors");
    for (what, group) in [
        ("of a guest", guest),
        ("of all guests", &all),
        ("of supervisors", &supervisors),
    ] {
        let attempt = Attempt::new(
            Party::LocalUser,
            format!("have the memory {what} in a host's swap, by the group's setting"),
        );
        let files = ["memory.swap.max", "memory.swappiness"];
        let said = files
            .iter()
            .find_map(|file| fs::read_to_string(group.join(file)).ok())
            .context("no setting")?;
        ensure!(said.trim() == "0", "{}: {said}", group.display());
        attempt.failed("the group's memory is not swapped out");
    }
    if let Some(_swap) = SwapFile::on()? {
        for (what, group) in [("of a guest", guest), ("of supervisors", &supervisors)] {
            swap_out(group);
            let out = swapped(group)?;
            ensure!(out == 0, "{out} bytes {what} are in the swap of this node");
        }
    }
    talk.go()?;
    ensure!(talk.line()? == "True", "{:?}", talk.said);
    // Asked once: it may end between two questions.
    let place = cluster.place(pid);
    ensure!(place.as_ref().map_or(true, |at| at == "n2"), "it went home");
    talk.succeed()?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "have the memory of a guest in a host's swap after a new daemon has begun",
    );
    cluster.restart_daemon("n2")?;
    eventually(PATIENCE, "the group of guests is held", || {
        let files = ["memory.swap.max", "memory.swappiness"];
        let said = files
            .iter()
            .find_map(|file| fs::read_to_string(all.join(file)).ok());
        Ok(said.filter(|said| said.trim() == "0"))
    })?;
    attempt.failed("the group's memory is not swapped out");
    Ok(())
}
