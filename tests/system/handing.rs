//! Descriptors handed over (SCM_RIGHTS) to the daemon and to supervisors: by the wrong party, of the wrong kind, or
//! more than anybody can hold.

use std::time::Duration;

use nix::sys::signal::Signal;
use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

use crate::bad_input::{counting, goes_on};

const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors that are open for moments.
const SPARE: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("handing::to_the_daemon", |_| {
            let cluster = Cluster::up(1)?;
            cluster.explaining(|| to_the_daemon(&cluster))
        }),
        Case::new("handing::to_supervisors", |_| {
            let cluster = Cluster::up(2)?;
            cluster.explaining(|| to_supervisors(&cluster))
        }),
        Case::new("handing::to_a_guest", |_| {
            let cluster = Cluster::up(2)?;
            cluster.explaining(|| to_a_guest(&cluster))
        }),
    ]
}

/// How many descriptors a process has.
fn count(cluster: &Cluster, node: &str, pid: &str) -> Result<usize> {
    let script = format!("ls /proc/{pid}/fd | wc -l");
    Ok(cluster.run(node, &["sh", "-c", &script])?.trim().parse()?)
}

const NOT_TAKEN: &str = "in connections that it has not taken yet";
const TO_THE_DAEMON: [(&str, &str); 6] = [
    (
        "with each of many requests",
        "
s = connect()
for i in range(100):
    socket.send_fds(s, [b'{\"request\":\"nodes\"}\\n'], many)
    s.makefile().readline()",
    ),
    (
        "with half a request",
        "
for i in range(20):
    s = connect(); keep.append(s)
    socket.send_fds(s, [b'{\"request\":'], many)",
    ),
    (
        "behind the request of 'whim run'",
        "
s = connect(); keep.append(s)
s.sendall(b'{\"request\":\"register\",\"options\":{}}\\n'); s.makefile().readline()
for i in range(100):
    socket.send_fds(s, [b'x'], many)",
    ),
    (
        "to the feed of the monitors",
        "
s = connect(); keep.append(s)
s.sendall(b'{\"request\":\"watch\"}\\n'); s.makefile().readline()
for i in range(20):
    try: socket.send_fds(s, [b'x'], many)
    except OSError: break",
    ),
    (
        "that name the connection itself, and each other",
        "
for i in range(50):
    s = connect(); keep.append(s)
    a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [b.fileno(), s.fileno()])
    socket.send_fds(s, [b'x'], [a.fileno(), b.fileno(), s.fileno()])",
    ),
    (
        NOT_TAKEN,
        "
for i in range(100):
    s = connect(); keep.append(s)
    try: socket.send_fds(s, [b'x'], many)
    except OSError: break",
    ),
];

/// As `tests/guests/handed.py` uses them.
const HANDED: [&str; 14] = [
    "memory without a name, written",
    "memory without a name, mapped",
    "a process",
    "its own process, signalled",
    "a directory, listed",
    "a directory, opened below",
    "a name without rights",
    "what /proc says of a process",
    "an event",
    "a watch on files",
    "an epoll",
    "a pipe",
    "faults of memory",
    "a socket that listens",
];

/// A plain user gives the daemon descriptors, which it never asks for.
fn to_the_daemon(cluster: &Cluster) -> Result<()> {
    let daemon = cluster.daemon_pid("n1")?;
    cluster.whim("n1", &["nodes"])?;
    let before = count(cluster, "n1", &daemon)?;
    for (what, lines) in TO_THE_DAEMON {
        let is_late = what == NOT_TAKEN;
        let attempt = Attempt::new(
            Party::LocalUser,
            format!("fill the daemon with descriptors {what}"),
        );
        let script = format!(
            "import os, socket, sys\nkeep = []\nmany = [0] * 250\n\
             def connect():\n    s = socket.socket(socket.AF_UNIX); s.settimeout(20)\n    \
             s.connect('/run/whim/control.sock'); return s\n\
             sys.stdin.readline()\n{lines}\n\
             print('ready', os.getpid(), flush=True)\nsys.stdin.read()"
        );
        let words = ["python3", "-c", &script];
        let mut command = cluster.command_as("nobody", "n1", &words);
        let mut talk = Talk::start(cluster, &mut command)?;
        if is_late {
            cluster.run("n1", &["kill", "-STOP", &daemon])?;
        }
        talk.go()?;
        talk.ready()?;
        cluster.run("n1", &["kill", "-CONT", &daemon])?;
        // Its connections, and none that it has given.
        let now = count(cluster, "n1", &daemon)?;
        ensure!(now <= before + 128 + SPARE, "{what}: {before}, now {now}");
        cluster.whim("n1", &["nodes"])?;
        talk.signal_outside(Signal::SIGKILL);
        talk.end()?;
        eventually(PATIENCE, &format!("{what}: all are closed"), || {
            let now = count(cluster, "n1", &daemon)?;
            Ok((now <= before + SPARE).then_some(()))
        })?;
        attempt.failed("they are closed as they come; the daemon answers");
    }
    Ok(())
}

/// What stands for a connection, as Python makes it.
const KINDS: [(&str, &str); 12] = [
    ("no descriptor", ""),
    ("a pipe", "os.pipe()[0]"),
    ("a directory", "os.open('/', os.O_RDONLY)"),
    (
        "a socket of this machine",
        "socket.socketpair()[0].detach()",
    ),
    ("its own memory", "os.open('/proc/self/mem', os.O_RDWR)"),
    ("an epoll", "epoll()"),
    ("a file of nothing", "os.memfd_create('x')"),
    (
        "a socket of datagrams",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()",
    ),
    ("a socket that listens", "listener()"),
    ("a connection to nobody", "socket.socket().detach()"),
    ("a connection to a stranger", "stranger()"),
    (
        "a name of a file without rights to it",
        "os.open('/etc/shadow', os.O_PATH)",
    ),
];

/// Whoever may reach a supervisor's socket hands it what is no connection of its journey.
fn to_supervisors(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let home = row.home_supervisor_pid.context("no home supervisor")?;
    let host = row.guest_supervisor_pid.context("no guest supervisor")?;
    for (node, supervisor, whose) in [("n1", home, "home's"), ("n2", host, "a guest's")] {
        let supervisor = supervisor.to_string();
        let sockets = cluster.run(node, &["find", "/run/whim/journeys", "-type", "s"])?;
        let socket = sockets.lines().next().context("no socket")?;
        let before = count(cluster, node, &supervisor)?;
        for (what, made) in KINDS {
            let attempt = Attempt::new(
                Party::LocalUser,
                format!("hand {whose} supervisor {what} as a connection"),
            );
            hand(cluster, node, socket, &format!("[{made}]"), 1)?;
            attempt.failed("refused; it goes on");
        }
        for (what, made, times) in [
            ("more descriptors than a message may have", "[0] * 200", 1),
            (
                "hundreds of connections that say nothing",
                "[stranger()]",
                300,
            ),
        ] {
            let attempt = Attempt::new(Party::LocalUser, format!("hand {whose} supervisor {what}"));
            hand(cluster, node, socket, made, times)?;
            attempt.failed("refused; it goes on");
        }
        goes_on(cluster, pid)?;
        eventually(PATIENCE, "all that was handed over is closed", || {
            let now = count(cluster, node, &supervisor)?;
            Ok((now <= before + SPARE).then_some(()))
        })?;
    }
    ensure!(cluster.place(pid)? == "n2", "It was moved");
    cluster.move_to(pid, "home")?;
    goes_on(cluster, pid)?;
    talk.signal_outside(Signal::SIGKILL);
    talk.end().map(drop)
}

/// Sends a command that announces a connection, with these descriptors, so many times.
fn hand(cluster: &Cluster, node: &str, socket: &str, made: &str, times: u32) -> Result<()> {
    let script = format!(
        "import os, select, socket\nkept = []\n\
         def listener():\n    l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); kept.append(l); return l.fileno()\n\
         def epoll():\n    kept.append(select.epoll()); return kept[-1].fileno()\n\
         def stranger():\n    \
             l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n    \
             c = socket.socket(); c.connect(l.getsockname()); kept.append(c); return c.fileno()\n\
         for i in range({times}):\n    \
             s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('{socket}')\n    \
             try: socket.send_fds(s, [b'{{\"command\":\"channel\"}}\\n'], {made})\n    \
             except BrokenPipeError: pass\n    \
             s.close()\n    kept.clear()"
    );
    process::succeed(
        &mut cluster.command_of_root(node, &["python3", "-c", &script]),
        PATIENCE,
    )
    .map(drop)
}

/// A program that is away uses what a helper at home has opened: with the helper's rights at home, and nothing of
/// the host's.
fn to_a_guest(cluster: &Cluster) -> Result<()> {
    let program = guest::script("handed.py")?.display().to_string();
    let tell = |moves: bool| -> Result<Vec<String>> {
        let whim = cluster.whim_path().display().to_string();
        let words = [whim.as_str(), "run", "--", "/usr/bin/python3", &program];
        let mut talk = Talk::start(cluster, &mut cluster.command_as("nobody", "n1", &words))?;
        while let Ok(pid) = talk.ready() {
            if moves {
                cluster.have_on(pid, "n2")?;
            }
            talk.go()?;
        }
        talk.succeed()?;
        Ok(talk.said.clone())
    };
    let attempts = HANDED.map(|what| {
        Attempt::new(
            Party::Guest,
            format!("reach its host by a descriptor that a helper at home has handed it: {what}"),
        )
    });
    let (home, away) = (tell(false)?, tell(true)?);
    println!("{away:#?}");
    ensure!(home.len() == HANDED.len(), "{home:#?}");
    for ((home, away), attempt) in home.iter().zip(&away).zip(attempts) {
        ensure!(home == away, "At home {home}, away {away}");
        attempt.failed("what answers is home");
    }
    Ok(())
}
