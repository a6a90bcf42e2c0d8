//! Local users who try to pass one process off as another: by a number, by a connection, by a setuid program.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::plans::{Plans, stopped};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// Who attacks, and whose programs are attacked; accounts of nobody else.
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;
/// The system's own, which every user can execute.
const PYTHON: &str = "/usr/bin/python3";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("identity::{name}"), 2, body)
    };
    vec![
        case("kept_connection", kept_connection),
        case("number_that_came_round", number_that_came_round),
        case("descendants_of_another_user", descendants),
        case("own_user_namespace", own_namespace),
        Case::new("identity::balanced_as_another_user", |_| {
            let cluster = Cluster::balancing(2, &["--cpu", "0.5,0.5"])?;
            cluster.explaining(|| balanced(&cluster))
        }),
        Case::new("identity::number_between_check_and_seize", |_| {
            Plans::with_lab(2, between_check_and_seize)
        }),
        Case::new("identity::setuid_exec_in_each_phase", |_| {
            Plans::with_lab(2, setuid_in_each_phase)
        }),
        case("noted_number_of_another", noted_number),
    ]
}

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LocalUser, what)
}

/// A command on n1, as this user gives it.
fn by<S: AsRef<str>>(cluster: &Cluster, uid: u32, words: &[S]) -> Command {
    let mut all = vec!["setpriv".to_owned(), "--clear-groups".to_owned()];
    all.extend([format!("--reuid={uid}"), format!("--regid={uid}")]);
    all.extend(words.iter().map(|word| word.as_ref().to_owned()));
    cluster.command("n1", &all)
}

/// The setuid program by which one user starts programs as another.
fn become_path(cluster: &Cluster) -> Result<String> {
    let program: PathBuf = cluster.directory().join("become");
    if !program.exists() {
        fs::copy(guest::c("become")?, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    }
    Ok(program.display().to_string())
}

fn why(cluster: &Cluster, pid: i32) -> Result<String> {
    cluster.whim("n1", &["why", &pid.to_string()])
}

/// Waits until a program is known as pinned.
fn await_pinned(cluster: &Cluster, pid: i32) -> Result<()> {
    eventually(PATIENCE, &format!("{pid} is pinned"), || {
        let said = why(cluster, pid);
        Ok(said.is_ok_and(|text| text.contains("--pin")).then_some(()))
    })
}

/// Where the kernel says who sends, and not who has connected.
const NOT_ITSELF: &str = "is not the one that asks";

/// Connects, and leaves the connection to a child, which asks by it once it is told to.
const CONNECTS: &str = r#"
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect('/run/whim/control.sock')
named = os.getpid()
print('ready', named, flush=True)
if os.fork() == 0:
    # A number is not free as long as a group of processes has it.
    os.setsid()
    sys.stdin.readline()
    s.sendall(b'{"request":"register","options":{"only":["n2"]}}\n')
    s.settimeout(30)
    answer = s.recv(4096).decode().strip()
    if 'hand-over' in answer:
        # The kernel does not say who has connected: before Linux 6.5.
        descriptor = array.array('i', [os.pidfd_open(named)])
        s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
        answer = s.recv(4096).decode().strip()
    print('answer', answer, flush=True)
    sys.stdin.readline()
    os._exit(0)
"#;

/// The child asks in the name of the process that has connected: what bob has said of it has to stand.
fn asks_in_its_name(cluster: &Cluster, talk: &mut Talk, pid: i32) -> Result<String> {
    await_pinned(cluster, pid)?;
    talk.go()?;
    let answer = talk.until("answer ")?;
    let said = why(cluster, pid)?;
    ensure!(
        said.contains("--pin"),
        "Alice has replaced bob's --pin, answered by {answer}: {said}"
    );
    ensure!(answer.contains("refused"), "{answer}");
    Ok(answer)
}

/// B1: the process that has connected executes a setuid program, and is bob's from then on.
fn kept_connection(cluster: &Cluster) -> Result<()> {
    let become_bob = become_path(cluster)?;
    let whim = cluster.whim_path().display().to_string();
    let bob = BOB.to_string();
    let words = [&become_bob, &bob, &whim];
    let words: Vec<String> = words.into_iter().cloned().collect();
    let script = format!(
        "{CONNECTS}\nwords = {words:?} + ['run', '--pin', '--', 'sleep', '600']
os.execv(words[0], words)"
    );
    let attempt = tries("replace another's --pin by a connection that was kept over a setuid exec");
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &[PYTHON, "-c", &script]))?;
    let pid = talk.ready()?;
    let answer = asks_in_its_name(cluster, &mut talk, pid)?;
    let refused = answer.contains("other rights") || answer.contains(NOT_ITSELF);
    ensure!(refused, "{answer}");
    attempt.failed("refused: the process has other rights than when it connected");
    Ok(())
}

/// Starts words on n1, as root, in a process of this number.
pub(crate) fn come_round(cluster: &Cluster, pid: i32, words: &[&str]) -> Result<Running> {
    let gone = format!("/proc/{pid}");
    eventually(PATIENCE, &format!("{pid} is free"), || {
        Ok(cluster.run("n1", &["test", "!", "-e", &gone]).ok())
    })?;
    let script = "p=$1; shift
while :; do
    echo $((p - 1)) > /proc/sys/kernel/ns_last_pid || exit 1
    sh -c 'p=$1; shift; [ $$ -eq $p ] && exec \"$@\"' sh \"$p\" \"$@\" && exit
done";
    let number = pid.to_string();
    let all = [&["sh", "-c", script, "sh", &number], words].concat();
    let mut command = cluster.command("n1", &all);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Running::spawn(&mut command)
}

/// B1: the process that has connected is gone, and bob's has its number.
fn number_that_came_round(cluster: &Cluster) -> Result<()> {
    let attempt = tries("replace another's --pin by a connection of a process whose number it has");
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &[PYTHON, "-c", CONNECTS]))?;
    let pid = talk.ready()?;
    let whim = cluster.whim_path().display().to_string();
    let ids = [format!("--reuid={BOB}"), format!("--regid={BOB}")];
    let to_bob = ["setpriv", "--clear-groups", &ids[0], &ids[1]];
    let words = [&to_bob[..], &[&whim, "run", "--pin", "sleep", "600"]].concat();
    let _bobs = come_round(cluster, pid, &words)?;
    let answer = asks_in_its_name(cluster, &mut talk, pid)?;
    let refused = answer.contains("has ended") || answer.contains(NOT_ITSELF);
    ensure!(refused, "{answer}");
    attempt.failed("refused: the process that had connected has ended");
    Ok(())
}

/// B2: what a candidate starts by a setuid program runs as another user, who has declared nothing.
fn descendants(cluster: &Cluster) -> Result<()> {
    let become_bob = become_path(cluster)?;
    let attempt = tries("have another user's process taken up, and kept to a node, by descent");
    let script = format!(
        "{become_bob} {BOB} sh -c 'sleep 602 & echo bobs $!; exec sleep 600' &
echo ready $!
sleep 601 & echo own $!
wait"
    );
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--only", "n2", "--", "sh", "-c", &script];
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &words))?;
    let mut heard = [0; 3];
    for (number, word) in heard.iter_mut().zip(["ready ", "own ", "bobs "]) {
        let said = talk.said.iter().find_map(|line| line.strip_prefix(word));
        let said = match said {
            Some(said) => said.to_owned(),
            None => talk.until(word)?,
        };
        *number = said.parse()?;
    }
    let [bobs, own, bobs_child] = heard;
    // Both have been looked at when one of them is known.
    eventually(PATIENCE, "her own child is a candidate", || {
        cluster.row(own)
    })?;
    for pid in [bobs, bobs_child] {
        let row = cluster.row(pid)?;
        ensure!(row.is_none(), "Bob's process is taken up: {row:?}");
    }
    let said = why(cluster, bobs)?;
    ensure!(!said.contains("It may go only to n2"), "{said}");
    attempt.failed("candidacy passes down to the same uids and gids alone");
    Ok(())
}

/// In a user namespace of alice's own, as rootless containers are, all users are hers.
fn own_namespace(cluster: &Cluster) -> Result<()> {
    let below = "echo within $(id -u); sleep 601 & echo child $!; wait";
    let within = format!(
        "echo ready $$; read line; exec setpriv --clear-groups --reuid=7 --regid=7 sh -c '{below}'"
    );
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--", "unshare", "-U", "sh", "-c", &within];
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &words))?;
    let pid = talk.ready()?;
    // What newuidmap does for who has ranges in /etc/subuid.
    for map in ["uid_map", "gid_map"] {
        let script = format!("printf '0 {ALICE} 1\\n1 200000 10\\n' > /proc/{pid}/{map}");
        cluster.run("n1", &["sh", "-c", &script])?;
    }
    talk.go()?;
    ensure!(talk.line()? == "within 7", "{:?}", talk.said);
    let child: i32 = talk.until("child ")?.parse()?;
    eventually(
        PATIENCE,
        "what runs as another user there is taken up",
        || cluster.row(child),
    )?;
    for pid in [pid, child] {
        let said = why(cluster, pid)?;
        ensure!(!said.contains("Not a candidate"), "{said}");
        let words = [&whim, "adopt", &pid.to_string()];
        process::succeed(&mut by(cluster, ALICE, &words), PATIENCE)?;
        let attempt = tries("take up what runs in another's user namespace");
        let output = process::output(&mut by(cluster, BOB, &words), PATIENCE)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.contains("belongs to"), "{said}");
        attempt.failed("it belongs to the namespace's owner");
    }
    Ok(())
}

/// B2: a candidate itself becomes another user, and would leave by itself.
fn balanced(cluster: &Cluster) -> Result<()> {
    const COMPUTES: &str = "import os
print('ready', os.getpid(), flush=True)
while True:
    sum(range(100_000))";
    let become_bob = become_path(cluster)?;
    let attempt = tries("have the balancer move a program that has become another user's");
    let whim = cluster.whim_path().display().to_string();
    let bob = BOB.to_string();
    let options = ["run", "--only", "n2", "--class", "batch", "--"];
    let words = [
        &[whim.as_str()],
        &options[..],
        &[&become_bob, &bob, PYTHON, "-c", COMPUTES],
    ]
    .concat();
    let start = || -> Result<(Talk, i32)> {
        let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &words))?;
        let pid = talk.ready()?;
        Ok((talk, pid))
    };
    let programs = [start()?, start()?, start()?];
    for (_, pid) in &programs {
        eventually(PATIENCE, &format!("{pid} is no candidate"), || {
            for (_, other) in &programs {
                let place = cluster.place(*other)?;
                ensure!(place == "n1", "The balancer has moved {other} to {place}");
            }
            let said = why(cluster, *pid)?;
            Ok(said
                .contains("Not a candidate: it runs with other rights")
                .then_some(()))
        })?;
    }
    attempt.failed("who has declared it may not move it any more: it is no candidate");
    Ok(())
}

/// Alice's request to move one of her programs to n2; it is not waited for.
fn ask_to_move(cluster: &Cluster, pid: i32) -> Result<Running> {
    let whim = cluster.whim_path().display().to_string();
    let number = pid.to_string();
    let mut command = by(cluster, ALICE, &[&whim, "migrate", &number, "n2"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Running::spawn(&mut command)
}

/// L2: the daemon has looked at one process, and its supervisor finds another one of that number.
fn between_check_and_seize(cluster: &Cluster, plans: &Plans) -> Result<()> {
    let attempt = tries("have a program moved by the number of another, after that was looked at");
    let waits = "echo ready $$; read line";
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &["sh", "-c", waits]))?;
    let pid = talk.ready()?;
    plans.stop("whimd", "before-home-started")?;
    let mut moving = ask_to_move(cluster, pid)?;
    let daemon = eventually(PATIENCE, "the daemon stops", || stopped(cluster, "whimd"))?;
    talk.go()?;
    let ids = [format!("--reuid={ALICE}"), format!("--regid={ALICE}")];
    let to_alice = ["setpriv", "--clear-groups", &ids[0], &ids[1]];
    let words = [&to_alice[..], &["sleep", "600"]].concat();
    let _other = come_round(cluster, pid, &words)?;
    let comm = format!("/proc/{pid}/comm");
    eventually(PATIENCE, "the number has come round", || {
        let name = cluster.run("n1", &["cat", &comm]);
        Ok(name.is_ok_and(|name| name.trim() == "sleep").then_some(()))
    })?;
    cluster.run("n1", &["kill", "-CONT", &daemon])?;
    let status = moving.wait(PATIENCE)?;
    ensure!(
        status.code() == Some(1),
        "It was not refused, but: {status}"
    );
    let away = cluster.row(pid)?.is_some_and(|row| row.place != "n1");
    ensure!(!away, "A process that nobody has named was moved");
    attempt.failed("refused by the supervisor: that process has ended");
    Ok(())
}

/// Where home's supervisor stops while the program executes a setuid program: until its threads stop, and after.
const BEFORE_THE_STOP: [&str; 3] = ["out-admit", "before-freeze", "out-freeze"];
const AFTER_THE_STOP: [&str; 5] = [
    "out-capture",
    "out-transfer",
    "out-commit",
    "out-convert",
    "away",
];

/// What a program executes there.
#[derive(Clone, Copy, Debug)]
enum Rights {
    /// A setuid program, and is root.
    Root,
    /// A setgid program that lets itself be dumped, and has its group.
    Group,
}

/// The group of the setgid program.
const GROUP: u32 = 61_005;

impl Rights {
    fn words(self, cluster: &Cluster) -> Result<Vec<String>> {
        let path = become_path(cluster)?;
        let words: &[&str] = match self {
            Self::Root => {
                let script = "echo rights $(id -u); read line; echo end $(id -u)";
                &[&path, "0", "sh", "-c", script]
            }
            Self::Group => {
                let own = cluster.directory().join("become-group");
                fs::copy(&path, &own)?;
                chown(&own, Some(0), Some(GROUP))?;
                fs::set_permissions(&own, fs::Permissions::from_mode(0o2755))?;
                return Ok(vec![own.display().to_string(), "group".into()]);
            }
        };
        Ok(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Group => GROUP,
        }
    }

    fn refusal(self) -> &'static str {
        match self {
            Self::Root => "belongs to root",
            Self::Group => "runs with another group than yours",
        }
    }
}

/// Executes that program once it is told to.
fn changes(cluster: &Cluster, rights: Rights) -> Result<(Talk, i32)> {
    let words = rights.words(cluster)?;
    let script = format!(
        "import os, sys
print('ready', os.getpid(), flush=True)
sys.stdin.readline()
words = {words:?}
os.execv(words[0], words)"
    );
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--lease", "30", "--", PYTHON, "-c", &script];
    let mut talk = Talk::start(cluster, &mut by(cluster, ALICE, &words))?;
    let pid = talk.ready()?;
    Ok((talk, pid))
}

fn setuid_in_each_phase(cluster: &Cluster, plans: &Plans) -> Result<()> {
    for rights in [Rights::Root, Rights::Group] {
        for phase in BEFORE_THE_STOP {
            before_the_stop(cluster, plans, (rights, phase))?;
        }
        for phase in AFTER_THE_STOP {
            after_the_stop(cluster, plans, (rights, phase))?;
        }
    }
    Ok(())
}

/// Alice asks for a move, and home's supervisor has stopped at this phase of it.
fn until_stopped(
    cluster: &Cluster,
    plans: &Plans,
    pid: i32,
    phase: &str,
) -> Result<(Running, String)> {
    plans.stop("home", phase)?;
    let moving = ask_to_move(cluster, pid)?;
    let home = eventually(PATIENCE, &format!("home stops at {phase}"), || {
        stopped(cluster, "whim-home")
    })?;
    Ok((moving, home))
}

fn before_the_stop(
    cluster: &Cluster,
    plans: &Plans,
    (rights, phase): (Rights, &str),
) -> Result<()> {
    let attempt = tries(&format!(
        "move a program that gets rights at {phase}: {rights:?}"
    ));
    let (mut talk, pid) = changes(cluster, rights)?;
    let (mut moving, home) = until_stopped(cluster, plans, pid, phase)?;
    talk.go()?;
    // It is traced already: its exec is reported, and waits for the supervisor, which is stopped.
    let status = format!("/proc/{pid}/status");
    eventually(PATIENCE, "its exec is reported", || {
        let status = cluster.run("n1", &["cat", &status])?;
        Ok(status.contains("State:\tt").then_some(()))
    })?;
    cluster.run("n1", &["kill", "-CONT", &home])?;
    let said = talk.line()?;
    ensure!(said == format!("rights {}", rights.id()), "{said}");
    let status = moving.wait(PATIENCE)?;
    ensure!(
        status.code() == Some(1),
        "{rights:?} at {phase} is not refused: {status}"
    );
    let log = cluster.log()?;
    let said = log.iter().rev().find(|row| row["what"] == "refused");
    let said = said.map(|row| row["text"].to_string());
    println!("{rights:?} at {phase}: {said:?}");
    goes_on(cluster, (&mut talk, pid), rights)?;
    attempt.failed("refused, and the program goes on with its rights");
    Ok(())
}

fn after_the_stop(cluster: &Cluster, plans: &Plans, (rights, phase): (Rights, &str)) -> Result<()> {
    let attempt = tries(&format!(
        "have a host hold a program that gets rights at {phase}: {rights:?}"
    ));
    let (mut talk, pid) = changes(cluster, rights)?;
    let mut moving = if phase == "away" {
        ask_to_move(cluster, pid)?
    } else {
        let (moving, home) = until_stopped(cluster, plans, pid, phase)?;
        // It stands still, and executes when it runs again: at the host.
        talk.go()?;
        cluster.run("n1", &["kill", "-CONT", &home])?;
        moving
    };
    let status = moving.wait(PATIENCE)?;
    ensure!(status.success(), "{rights:?} at {phase}: {status}");
    if phase == "away" {
        talk.go()?;
    }
    let said = talk.line()?;
    ensure!(said == format!("rights {}", rights.id()), "{said}");
    goes_on(cluster, (&mut talk, pid), rights)?;
    attempt.failed("it comes home first, and has its rights there alone");
    Ok(())
}

/// It is at home with its rights, alice may not move it, and it ends well.
fn goes_on(cluster: &Cluster, (talk, pid): (&mut Talk, i32), rights: Rights) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let number = pid.to_string();
    let mut again = by(cluster, ALICE, &[&whim, "migrate", &number, "n2"]);
    let output = process::output(&mut again, PATIENCE)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains(rights.refusal()), "{said}");
    let row = cluster.row(pid)?.context("It is gone")?;
    ensure!(row.place == "n1", "{row:?}");
    talk.go()?;
    let said = talk.line()?;
    ensure!(said == format!("end {}", rights.id()), "{said}");
    talk.succeed()
}

/// L1: the number that the daemon noted of a supervisor has become another process's, and home says that the
/// guest is none any more.
fn noted_number(cluster: &Cluster) -> Result<()> {
    let attempt = tries("have a process ended by the number that a supervisor once had");
    let (mut guest, pid) = crate::bad_input::counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let home = row.home_supervisor_pid.context("no home supervisor")?;
    let host = row.guest_supervisor_pid.context("no guest supervisor")?;
    let waits = ["sh", "-c", "echo ready $$; exec sleep 600"];
    let mut other = Talk::start(cluster, &mut cluster.command("n2", &waits))?;
    let number = other.ready()?;
    let noted = format!("s/\"supervisor_pid\":{host}\\b/\"supervisor_pid\":{number}/");
    let edit = format!("sed -i '{noted}' /run/whim/journeys/*.json");
    cluster.run("n2", &["sh", "-c", &edit])?;
    let look = format!("grep -q '\"supervisor_pid\":{number}\\b' /run/whim/journeys/*.json");
    cluster.run("n2", &["sh", "-c", &look])?;
    cluster.restart_daemon("n2")?;
    cluster.run("n1", &["kill", "-KILL", &home.to_string()])?;
    eventually(PATIENCE, "the guest is gone", || {
        let script = format!("test ! -e /proc/{host}");
        Ok(cluster.run("n2", &["sh", "-c", &script]).ok())
    })?;
    let ended = other.ended_within(Duration::ZERO)?;
    ensure!(ended.is_none(), "It was ended: {ended:?}");
    attempt.failed("a number alone is not signalled; the guest ends by its lease");
    other.signal_outside(nix::sys::signal::Signal::SIGKILL);
    other.end()?;
    guest.end().map(drop)
}
