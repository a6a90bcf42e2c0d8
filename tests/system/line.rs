//! A local user who attacks root's daemon from behind the supervisor of her own program: with its
//! directory, its socket, its journal, and its silence.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, place};

const USER: &str = "nobody";
const PATIENCE: Duration = Duration::from_secs(60);
/// A request that meets a silent supervisor ends within this time, on a machine that is loaded, too.
const GIVEN_UP: Duration = Duration::from_secs(100);
/// As many levels as end a daemon that calls itself for each.
const LEVELS: u32 = 40_000;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("line::{name}"), 2, body)
    };
    vec![
        case("journal_decides_about_no_limit", limits),
        case("directory_is_not_filled", filled),
        case("socket_is_not_replaced", replaced),
        case("deep_tree_is_no_end", deep_tree),
        case("stopped_supervisor_keeps_nobody_waiting", |cluster| {
            stopped(cluster, false)
        }),
        case("full::stopped_supervisor_is_given_up", |cluster| {
            stopped(cluster, true)
        }),
        case("command_line_without_end", endless),
        case("file_server_is_away", server_away),
        case("address_space_is_held", address_space_held),
        Case::new("line::lying_supervisor_is_cut_off", |_| {
            taken_over(LIES, lying)
        }),
        Case::new("line::deaf_supervisor_is_ended", |_| taken_over(DEAF, deaf)),
    ]
}

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LocalUser, what)
}

/// A program of the user's that is on n2, and what its journey is called.
fn away(cluster: &Cluster, lease: &str) -> Result<(Talk, i32, String)> {
    away_as(USER, cluster, lease)
}

fn away_as(user: &str, cluster: &Cluster, lease: &str) -> Result<(Talk, i32, String)> {
    let whim = cluster.whim_path().display().to_string();
    let limited = "ulimit -S -n 1000 && exec \"$@\"";
    let run = ["sh", "-c", limited, "sh", &whim, "run", "--lease", lease];
    let words = [&run[..], &["--", "python3", "-c", WAITS]].concat();
    let mut talk = Talk::start(cluster, &mut cluster.command_as(user, "n1", &words))?;
    let pid = talk.ready()?;
    cluster.move_to(pid, "n2")?;
    let list = "cd /run/whim/journeys && ls -d *.home";
    let names = cluster.run("n1", &["sh", "-c", list])?;
    let id = names.trim().strip_suffix(".home").context("one journey")?;
    Ok((talk, pid, id.to_owned()))
}

/// What the user does; whether it was done, and what was said.
fn as_user(cluster: &Cluster, script: &str) -> Result<(bool, String)> {
    let mut command = cluster.command_as(USER, "n1", &["sh", "-c", script]);
    let output = process::output(&mut command, PATIENCE)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.success(), text))
}

fn denied(what: &str, (done, said): &(bool, String)) -> Result<()> {
    ensure!(!done, "{what} is done");
    ensure!(said.contains("ermission denied"), "{what}: {said}");
    Ok(())
}

/// Brings it home, and waits until its journey is over and cleaned up.
fn brought_home(cluster: &Cluster, pid: i32, id: &str) -> Result<()> {
    cluster.move_to(pid, "home")?;
    let gone = format!("test ! -e /run/whim/journeys/{id}.home");
    eventually(PATIENCE, "its directory is gone", || {
        Ok(cluster.run("n1", &["sh", "-c", &gone]).ok())
    })
    .map(drop)
}

/// Whether root may set limits of others here (CAP_SYS_RESOURCE).
fn sets_limits(cluster: &Cluster) -> Result<bool> {
    let status = cluster.run("n1", &["cat", "/proc/self/status"])?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = u64::from_str_radix(line.context("capabilities")?.trim(), 16)?;
    Ok(mask & (1 << 24) != 0)
}

fn limits(cluster: &Cluster) -> Result<()> {
    // Elsewhere the daemon reads and sets those of its own user's programs alone.
    let user = if sets_limits(cluster)? { USER } else { "root" };
    let (mut talk, pid, id) = away_as(user, cluster, "10")?;
    let limit = || -> Result<(String, String)> {
        let text = cluster.run("n1", &["cat", &format!("/proc/{pid}/limits")])?;
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let words: Vec<&str> = line.context("a limit")?.split_whitespace().collect();
        Ok((words[3].to_owned(), words[4].to_owned()))
    };
    let attempt = tries("have the daemon raise limits by a line in the journal of her own program");
    let before = limit()?;
    ensure!(before.0 == "1000", "{before:?}");
    let (now, wanted) = (
        format!("[1000,{}]", before.1),
        format!("[2000,{}]", before.1),
    );
    let raised = format!(r#"{{"event":"raised","resource":7,"before":{wanted},"raised":{now}}}"#);
    let script = format!("echo '{raised}' >> /var/lib/whim/journeys/{id}.journal");
    if !as_user(cluster, &script)?.0 {
        // What holds the opened journal can write it.
        cluster.run("n1", &["sh", "-c", &script])?;
    }
    brought_home(cluster, pid, &id)?;
    let after = limit()?;
    ensure!(after == before, "It has been raised: {after:?}");
    attempt.failed("limits are put back to what the daemon has noted, and only lowered");
    talk.go()
}

fn filled(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid, id) = away(cluster, "10")?;
    let attempt = tries("fill /run by the directory of her supervisor's socket");
    let script = format!("head -c 100000000 /dev/zero > /run/whim/journeys/{id}.home/full");
    denied("To fill it", &as_user(cluster, &script)?)?;
    attempt.failed("permission denied");
    brought_home(cluster, pid, &id)?;
    talk.go()
}

/// Puts a listener in place of the supervisor's, and says events until nobody hears them any more.
const FLOODS: &str = "import os, socket, sys
path = sys.argv[1]
os.unlink(path)
s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(8)
print('listens', flush=True)
while True:
    c, _ = s.accept()
    line = b'{\"event\":\"notice\",\"text\":\"' + b'x' * 60000 + b'\"}\\n'
    try:
        while True: c.sendall(line)
    except OSError: pass
";

fn replaced(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid, id) = away(cluster, "10")?;
    let attempt = tries("listen in place of her supervisor, and tell the daemon without end");
    let path = format!("/run/whim/journeys/{id}.home/sock");
    let words = ["timeout", "20", "python3", "-c", FLOODS, &path];
    let output = process::output(&mut cluster.command_as(USER, "n1", &words), PATIENCE)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let listens = output.stdout.starts_with(b"listens");
    denied("To listen there", &(listens, said))?;
    brought_home(cluster, pid, &id)?;
    attempt.failed("permission denied");
    talk.go()
}

fn deep_tree(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid, id) = away(cluster, "10")?;
    let attempt = tries("end the daemon by a deep tree in the directory that it removes");
    let script = format!(
        "exec python3 -c '
import os
at = os.open(\"/run/whim/journeys/{id}.home\", os.O_DIRECTORY)
for i in range({LEVELS}):
    os.mkdir(\"d\", dir_fd=at)
    below = os.open(\"d\", os.O_DIRECTORY, dir_fd=at)
    os.close(at)
    at = below
'"
    );
    if !as_user(cluster, &script)?.0 {
        // As the user of a daemon that gave it to her has left it.
        cluster.run("n1", &["sh", "-c", &script])?;
    }
    let daemon = cluster.daemon_pid("n1")?;
    brought_home(cluster, pid, &id)?;
    let empty = "test -z \"$(ls /run/whim/journeys)\"";
    eventually(PATIENCE, "all of it is removed", || {
        Ok(cluster.run("n1", &["sh", "-c", empty]).ok())
    })?;
    ensure!(cluster.daemon_pid("n1")? == daemon, "The daemon has ended");
    cluster.whim("n1", &["nodes"])?;
    attempt.failed("removed bit by bit, one level at a time");
    talk.go()
}

/// How long it takes to ask for all processes, some times.
fn asking(cluster: &Cluster) -> Result<Duration> {
    let begun = Instant::now();
    for _ in 0..10 {
        cluster.whim("n1", &["ps"])?;
    }
    Ok(begun.elapsed())
}

/// A request that ends, in whatever way; what was said.
fn ends(cluster: &Cluster, node: &str, words: &[&str]) -> Result<String> {
    let output = process::output(&mut cluster.whim_command(node, words), GIVEN_UP)
        .with_context(|| format!("whim {words:?} does not end"))?;
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    Ok(format!("{said}{errors}"))
}

/// `by_all`: whoever can wait for it does so, one after the other, half a minute each.
fn stopped(cluster: &Cluster, given_up: bool) -> Result<()> {
    // Without the end of a lease only those who are asked can end the wait.
    let (mut talk, pid, _) = away(cluster, "inf")?;
    let others = tries("keep others waiting by a supervisor of her own that she has stopped");
    let before = asking(cluster)?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let supervisor = row.home_supervisor_pid.context("no home supervisor")?;
    let (done, said) = as_user(cluster, &format!("kill -STOP {supervisor}"))?;
    ensure!(done, "It is her own: {said}");
    // Whoever is the first to ask may find out.
    cluster.whim("n1", &["ps"])?;
    let after = asking(cluster)?;
    println!("ten times whim ps: {before:?}, then {after:?}");
    let spare = Duration::from_secs(2);
    ensure!(after < before + spare, "{after:?} instead of {before:?}");
    others.failed("nobody waits for one that has not answered");
    if given_up {
        is_given_up(cluster, pid)?;
    }
    as_user(cluster, &format!("kill -CONT {supervisor}"))?;
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}

/// By whoever asks for it.
fn is_given_up(cluster: &Cluster, pid: i32) -> Result<()> {
    let waits = tries("have the daemon wait for ever for a supervisor that she has stopped");
    let said = ends(cluster, "n1", &["bring", &pid.to_string()])?;
    ensure!(said.contains("has said nothing for 30s"), "{said}");
    let said = ends(cluster, "n1", &["bring"])?;
    ensure!(said.contains("0 processes have come home"), "{said}");
    let said = ends(cluster, "n2", &["expel"])?;
    println!("{said}");
    waits.failed("given up after 30 s with a sentence");
    Ok(())
}

/// Says that its command line is a gigabyte long, and waits. Any process may (prctl(2), PR_SET_MM_MAP).
const ENDLESS: &str = "
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
fields = open('/proc/self/stat').read().rpartition(')')[2].split()
field = lambda number: int(fields[number - 3])
length = 1 << 30
room = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(room))
words = [field(26), field(27), field(45), field(46), field(47), libc.sbrk(0), field(28), start, start + length,
         field(50), field(51), 0]
table = ctypes.create_string_buffer(struct.pack('12QII', *words, 0, 2**32 - 1))
if libc.prctl(35, 14, ctypes.addressof(table), 104, 0) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
room[:9] = b'gigabytes'
print('ready', os.getpid(), flush=True)
sys.stdin.readline()
";

fn endless(cluster: &Cluster) -> Result<()> {
    let attempt = tries("fill the daemon's memory by a command line of a gigabyte");
    let words = ["python3", "-c", ENDLESS];
    let mut talk = Talk::start(cluster, &mut cluster.command_as(USER, "n1", &words))?;
    let pid = talk.ready()?;
    let before = peak(cluster)?;
    let adopt = cluster.command_as(
        USER,
        "n1",
        &[
            &cluster.whim_path().display().to_string(),
            "adopt",
            &pid.to_string(),
        ],
    );
    let said = process::succeed(&mut { adopt }, PATIENCE)?;
    ensure!(said.contains("gigabytes"), "{said}");
    let rows = cluster.whim("n1", &["ps"])?;
    ensure!(rows.contains("gigabytes"), "{rows}");
    let more = peak(cluster)?.saturating_sub(before);
    ensure!(
        more < SPARE_KIB,
        "The daemon's memory has grown by {more} KiB"
    );
    attempt.failed("no more of it is read than is shown");
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}

/// A file server, and where its file is. It is root's: users may not open /dev/fuse everywhere.
fn file_server(cluster: &Cluster) -> Result<(Talk, String)> {
    let server = place::guests().join("file_server.py");
    let directory = cluster.directory().join("away");
    fs::create_dir_all(&directory)?;
    let (server, at) = (
        server.display().to_string(),
        directory.display().to_string(),
    );
    let words = ["python3", &server, &at, "/bin/cat"];
    let mut server = Talk::start_in(cluster, "server", &mut cluster.command("n1", &words))?;
    server.until("serves")?;
    Ok((server, format!("{at}/f")))
}

/// Holds the lock of its address space for as long as a file server says nothing.
const HOLDS: &str = "
import ctypes, mmap, os, sys, threading
room = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, access=mmap.ACCESS_COPY)
address = ctypes.addressof(ctypes.c_char.from_buffer(room))
memory = os.open('/proc/self/mem', os.O_RDONLY)
print('ready', os.getpid(), flush=True)
sys.stdin.readline()
threading.Thread(target=os.pread, args=(memory, 1, address)).start()
while True:
    mmap.mmap(-1, 4096).close()
";

/// Whoever reads what her program maps, or its command line, waits until her file server answers.
fn address_space_held(cluster: &Cluster) -> Result<()> {
    let (mut server, file) = file_server(cluster)?;
    let (mut other, others) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--", "python3", "-c", HOLDS, &file];
    let mut talk = Talk::start_in(cluster, "hers", &mut cluster.command_as(USER, "n1", &words))?;
    let pid = talk.ready()?.to_string();

    // Asked now: ps(1) waits for command lines, too.
    let daemon = cluster.daemon_pid("n1")?;
    let attempt = tries("keep root's daemon waiting by the lock of an address space of hers");
    server.say("no more")?;
    server.until("silent")?;
    talk.say("hold")?;
    let look = ["timeout", "1", "cat", &format!("/proc/{pid}/cmdline")];
    eventually(PATIENCE, "its lock is held", || {
        let looked = process::output(&mut cluster.command("n1", &look), PATIENCE)?;
        Ok((!looked.status.success()).then_some(()))
    })?;
    let hers = [&whim, "why", &pid];
    let mut why = cluster.command_as(USER, "n1", &hers);
    let asking: Vec<_> = (0..12).map(|_| why.stdout(Stdio::null()).spawn()).collect();
    let seen = "cannot be looked at just now";
    for (words, says) in [
        (&["ps", "-a"][..], seen),
        (&["nodes"], "n2"),
        (&["why", &pid], seen),
        (&["migrate", &pid, "n2"], seen),
    ] {
        let begun = Instant::now();
        let said = ends(cluster, "n1", words)?;
        println!("whim {words:?} takes {:?}", begun.elapsed());
        ensure!(said.contains(says), "{words:?}: {said}");
    }
    let nodes = cluster.whim("n2", &["nodes"])?;
    ensure!(!nodes.contains("down"), "{nodes}");
    cluster.move_to(others, "n2")?;
    cluster.run("n1", &["kill", "-TERM", &daemon])?;
    let is_there = ["test", "-e", &format!("/proc/{daemon}")];
    eventually(PATIENCE, "the daemon has ended", || {
        let looked = process::output(&mut cluster.command("n1", &is_there), PATIENCE)?;
        Ok((!looked.status.success()).then_some(()))
    })?;
    attempt.failed("it stays, with the reason; others move, and the daemon can be ended");

    server.say("again")?;
    server.until("serves")?;
    for asker in asking {
        asker?.wait()?;
    }
    cluster.lab(&["start", "--daemon", "n1"])?;
    other.go()?;
    other.succeed()?;
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}

/// Her program lies on a file system that she serves herself, and serves no more.
fn server_away(cluster: &Cluster) -> Result<()> {
    let (mut server, file) = file_server(cluster)?;
    let (mut other, others) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    let whim = cluster.whim_path().display().to_string();
    let script = format!("echo ready $$ && exec {file}");
    let words = [&whim, "run", "--", "sh", "-c", &script];
    let mut talk = Talk::start_in(cluster, "hers", &mut cluster.command_as(USER, "n1", &words))?;
    let pid = talk.ready()?;
    talk.say("executed")?;
    ensure!(talk.line()? == "executed", "{:?}", talk.said);
    let why = || cluster.whim("n1", &["why", &pid.to_string()]);
    let before = why()?;
    ensure!(before.contains("Nothing in it keeps it here"), "{before}");

    let attempt = tries("keep root's daemon waiting for a file server of her own");
    server.say("no more")?;
    server.until("silent")?;
    let said = ends(cluster, "n1", &["why", &pid.to_string()])?;
    ensure!(said.contains("cannot be looked at just now"), "{said}");
    let begun = Instant::now();
    let rows = ends(cluster, "n1", &["ps", "-a"])?;
    ensure!(rows.contains("cannot be looked at just now"), "{rows}");
    println!("whim ps takes {:?}", begun.elapsed());
    let said = ends(cluster, "n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(said.contains("cannot be looked at just now"), "{said}");
    cluster.move_to(others, "n2")?;
    attempt.failed("it stays, with the reason, and others move");

    server.say("again")?;
    server.until("serves")?;
    eventually(PATIENCE, "it is looked at again", || {
        let said = why()?;
        Ok(said.contains("Nothing in it keeps it here").then_some(()))
    })?;
    other.go()?;
    other.succeed()?;
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}

/// In place of a home supervisor: it says one thing, again and again, to whoever asks for a move.
const LIES: &str = "#!/usr/bin/python3
import json, socket, sys
job = json.loads(sys.stdin.readline())
if 'listener' in job:
    s = socket.socket(fileno=job['listener'])
else:
    s = socket.socket(socket.AF_UNIX); s.bind(job['socket']); s.listen(8)
print('ready', flush=True)
line = json.dumps({'event': 'notice', 'text': 'x' * 60000}).encode() + b'\\n'
while True:
    c, _ = s.accept()
    try:
        if json.loads(c.makefile().readline())['command'] == 'move':
            while True: c.sendall(line)
    except OSError: pass
    c.close()
";

/// The daemon's memory, in KiB, at most so far.
pub(crate) fn peak(cluster: &Cluster) -> Result<u64> {
    let path = format!("/proc/{}/status", cluster.daemon_pid("n1")?);
    let status = cluster.run("n1", &["cat", &path])?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("VmHWM")?.parse()?)
}

/// What such a move may cost the daemon, in KiB.
pub(crate) const SPARE_KIB: u64 = 32 << 10;

/// In place of a home supervisor: it listens to nobody, and does not end.
const DEAF: &str = "#!/usr/bin/python3
import json, os, socket, sys, time
job = json.loads(sys.stdin.readline())
if 'listener' in job:
    os.close(job['listener'])
else:
    s = socket.socket(socket.AF_UNIX); s.bind(job['socket']); s.close()
print('ready', flush=True)
while True: time.sleep(60)
";

/// A user who has taken over the supervisors of her own programs: this is executed in their place.
fn taken_over(script: &str, body: fn(&Cluster) -> Result<()>) -> Result<()> {
    let programs = place::room()?.join(format!("lies-{}", std::process::id()));
    fs::create_dir_all(&programs)?;
    let home = programs.join("whim-home");
    fs::write(&home, script)?;
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755))?;
    fs::copy(
        place::built()?.join("whim-guest"),
        programs.join("whim-guest"),
    )?;
    let [libexec, share] = ["--daemon-arg=--libexec", "--share"]
        .map(|option| format!("{option}={}", programs.display()));
    let cluster = Cluster::up_with(2, &[&libexec, &share])?;
    let result = cluster.explaining(|| body(&cluster));
    drop(cluster);
    fs::remove_dir_all(programs)?;
    result
}

fn lying(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    let attempt = tries("tell the daemon of a move without end");
    let before = peak(cluster)?;
    // What is said without end is not kept here either.
    let whim = cluster.whim_path();
    let last = format!(
        "timeout 30 {} migrate {pid} n2 2>&1 | tail -c 400",
        whim.display()
    );
    let said = cluster.run("n1", &["sh", "-c", &last])?;
    ensure!(said.contains("has no place in a move"), "{said}");
    let grown = peak(cluster)?.saturating_sub(before);
    ensure!(grown < SPARE_KIB, "{grown} KiB");
    attempt.failed("not heard any more after a few sentences");
    talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
    talk.end().map(drop)
}

/// Supervisors of this cluster that live, by their numbers on n1.
fn supervisors(cluster: &Cluster) -> Result<String> {
    cluster.run("n1", &["sh", "-c", "pgrep -f [w]him-home || true"])
}

fn deaf(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    let attempt =
        tries("have her journey forgotten behind a closed socket while its supervisor lives");
    let said = ends(cluster, "n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(!said.contains("moved to n2"), "{said}");
    eventually(PATIENCE, "it is ended", || {
        Ok(supervisors(cluster)?.trim().is_empty().then_some(()))
    })?;
    let left = cluster.run(
        "n1",
        &["sh", "-c", "ls -d /run/whim/journeys/*.home || true"],
    )?;
    ensure!(left.trim().is_empty(), "{left}");
    let log = cluster.logs("n1");
    ensure!(log.contains("a home supervisor listens to nobody"), "{log}");
    attempt.failed("that is ended, and then its journey");
    talk.go()?;
    talk.succeed()
}
