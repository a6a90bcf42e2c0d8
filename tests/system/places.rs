//! Directories, sockets, files and environments that another user has made ready for a daemon, or for `whim`.

use std::process::Output;
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::{Case, Cluster, Result, Talk, ensure};

/// Who makes things ready.
const MALLORY: u32 = 61_009;
/// For whom.
const VICTIM: u32 = 61_008;
const PATIENCE: Duration = Duration::from_secs(30);
/// A daemon that is to be refused its place ends at once; one that is not ends here.
const REFUSED_WITHIN: &str = "10";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        on_a_node("roots_daemon", roots_daemon),
        on_a_node("configuration", configuration),
        on_a_node("made_ready", made_ready),
        on_a_node("exchanged_meanwhile", exchanged_meanwhile),
        on_a_node("kept_environment", kept_environment),
        on_a_node("two_daemons", two_daemons),
        on_a_node("modes", modes),
        on_a_node("false_daemons", false_daemons),
        on_a_node("roots_command", roots_command),
    ]
}

/// A node with root's daemon, and with a place in which another user may do as he likes.
fn on_a_node(name: &str, body: fn(&Node) -> Result<()>) -> Case {
    Case::new(format!("places::{name}"), move |_| {
        let cluster = Cluster::up_with(1, &["--no-cluster"])?;
        let made = cluster.run("n1", &["mktemp", "-d"])?;
        let node = Node {
            cluster: &cluster,
            room: made.trim().to_owned(),
        };
        node.shell(
            "chmod 755 ROOM && mkdir -m 777 ROOM/open && mkdir -m 755 ROOM/mine && mkdir -m 700 ROOM/home",
        )?;
        let prepare =
            format!("chown {MALLORY}:{MALLORY} ROOM/mine && chown {VICTIM}:{VICTIM} ROOM/home");
        node.shell(&prepare)?;
        cluster.explaining(|| body(&node))
    })
}

struct Node<'a> {
    cluster: &'a Cluster,
    /// In the node's own /tmp.
    room: String,
}

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LocalUser, what)
}

impl Node<'_> {
    /// Words of shell as root; ROOM, WHIM and WHIMD stand for what they say.
    fn filled(&self, script: &str) -> String {
        script
            .replace("ROOM", &self.room)
            .replace("WHIMD", &self.cluster.whimd_path().display().to_string())
            .replace("WHIM ", &format!("{} ", self.cluster.whim_path().display()))
    }

    fn shell(&self, script: &str) -> Result<String> {
        let script = self.filled(script);
        self.cluster.run("n1", &["sh", "-ec", &script])
    }

    fn words(&self, uid: u32, script: &str) -> Vec<String> {
        let uid = uid.to_string();
        let mut words: Vec<String> = ["setpriv", "--clear-groups", "--reuid", &uid, "--regid"]
            .map(str::to_owned)
            .into();
        words.push(uid);
        words.extend(["env", "-u", "XDG_RUNTIME_DIR", "sh", "-ec"].map(str::to_owned));
        words.push(self.filled(script));
        words
    }

    fn as_user(&self, uid: u32, script: &str) -> Result<Output> {
        let words = self.words(uid, script);
        process::output(&mut self.cluster.command_of_root("n1", &words), PATIENCE)
    }

    /// What a program says that has to end with an error, by itself.
    fn complaint(&self, uid: u32, script: &str) -> Result<String> {
        let script = format!("timeout -s KILL {REFUSED_WITHIN} {script}");
        let output = self.as_user(uid, &script)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(1),
            "{script}: {}: {text}",
            output.status
        );
        Ok(text)
    }

    /// That a daemon does not start, for this reason.
    fn refused(&self, uid: u32, script: &str, reason: &str) -> Result<()> {
        let said = self.complaint(uid, script)?;
        ensure!(said.contains(reason), "{script}: {said}");
        Ok(())
    }

    /// A daemon that starts, as it does where nobody has made anything ready.
    fn starts(&self, uid: u32, script: &str, socket: &str) -> Result<Running> {
        let words = self.words(uid, &format!("exec {script}"));
        let running = Running::spawn(&mut self.cluster.command_of_root("n1", &words))?;
        eventually(PATIENCE, "the daemon answers", || {
            let asked = self.as_user(uid, &format!("WHIM --socket {socket} nodes"))?;
            Ok(asked.status.success().then_some(()))
        })?;
        Ok(running)
    }
}

/// What root's daemon is told to use, and another user can exchange.
fn roots_daemon(node: &Node) -> Result<()> {
    let daemon = "WHIMD --no-balance --listen 127.0.0.1:0";
    node.shell("mkdir -m 755 ROOM/safe && mkdir ROOM/open/root && ln -s ROOM/safe ROOM/open/link")?;
    node.shell(&format!(
        "ln -s ROOM/safe ROOM/link && chown -h {MALLORY} ROOM/link"
    ))?;
    for (what, arguments, reason) in [
        (
            "have root's daemon keep its state in a directory of another user",
            "--state ROOM/mine --run ROOM/safe/run",
            "not a directory of your own",
        ),
        (
            "have root's daemon keep its state below a directory of another user",
            "--state ROOM/mine/below/state --run ROOM/safe/run",
            "belongs to another user",
        ),
        (
            "have root's daemon keep its state below a directory that all may write",
            "--state ROOM/open/root/state --run ROOM/safe/run",
            "can be changed by other users",
        ),
        (
            "lead root's daemon's sockets elsewhere by a link of another user",
            "--state ROOM/safe/state --run ROOM/link/run",
            "belongs to another user",
        ),
        (
            "have root's daemon put its socket below a directory that all may write",
            "--state ROOM/safe/state --run ROOM/open/run",
            "can be changed by other users",
        ),
    ] {
        let attempt = tries(what);
        node.refused(0, &format!("{daemon} {arguments}"), reason)?;
        attempt.failed("the daemon does not start, and says why");
    }
    let left = node.shell("ls -A ROOM/mine ROOM/open/root")?;
    ensure!(
        !left.contains("state") && !left.contains("below"),
        "something was made there: {left}"
    );
    let safe = format!("{daemon} --state ROOM/safe/state --run ROOM/safe/run");
    node.starts(0, &safe, "ROOM/safe/run/control.sock")?;
    Ok(())
}

/// Whoever writes the configuration decides who comes in, and whether root's programs move.
fn configuration(node: &Node) -> Result<()> {
    node.shell("mkdir -m 755 ROOM/safe && echo 'allow_root = true' > ROOM/safe/own.toml")?;
    node.shell("cp ROOM/safe/own.toml ROOM/safe/written.toml && chmod 666 ROOM/safe/written.toml")?;
    node.shell(
        "cp ROOM/safe/own.toml ROOM/safe/group.toml && chown :nogroup ROOM/safe/group.toml",
    )?;
    node.shell("chmod 664 ROOM/safe/group.toml && cp ROOM/safe/own.toml ROOM/open")?;
    let mallorys = "cp ROOM/safe/own.toml ROOM/mine/config.toml; mkfifo ROOM/mine/fifo; \
                    ln -s ROOM/safe/own.toml ROOM/mine/link";
    ensure!(node.as_user(MALLORY, mallorys)?.status.success());
    node.shell(&format!(
        "cp ROOM/safe/own.toml ROOM/safe/given.toml && chown {MALLORY} ROOM/safe/given.toml"
    ))?;
    for (what, file, reason) in [
        ("that all may write", "safe/written.toml", "can be changed"),
        (
            "that a group may write",
            "safe/group.toml",
            "can be changed",
        ),
        ("of another user", "safe/given.toml", "belongs to another"),
        (
            "in a directory of another user",
            "mine/config.toml",
            "belongs to another",
        ),
        (
            "in a directory that all may write",
            "open/own.toml",
            "can be changed",
        ),
        (
            "behind a link of another user",
            "mine/link",
            "belongs to another",
        ),
        (
            "that never ends: a pipe of another user",
            "mine/fifo",
            "belongs to another",
        ),
    ] {
        let attempt = tries(&format!("give root's daemon a configuration {what}"));
        let daemon = format!(
            "WHIMD --no-balance --listen 127.0.0.1:0 --state ROOM/safe/state --run ROOM/safe/run \
             --config ROOM/{file}"
        );
        node.refused(0, &daemon, reason)?;
        attempt.failed("the daemon does not start, and says whose it is");
    }
    let own = "WHIMD --no-balance --listen 127.0.0.1:0 --state ROOM/safe/state --run ROOM/safe/run \
               --config ROOM/safe/own.toml";
    node.starts(0, own, "ROOM/safe/run/control.sock")?;
    Ok(())
}

const USERS_DAEMON: &str = "env HOME=ROOM/home WHIMD --no-balance --listen 127.0.0.1:0";

/// In /tmp, everybody may be quicker than the user whose sockets are to be there.
fn made_ready(node: &Node) -> Result<()> {
    let run = format!("/tmp/whim-{VICTIM}");
    for (what, script, reason) in [
        (
            "a directory that all may write",
            format!("mkdir -m 777 {run}"),
            "not a directory of your own",
        ),
        (
            "a link to a directory of theirs",
            format!("ln -s ROOM/home {run}"),
            "not a directory of your own",
        ),
        (
            "a link to nothing",
            format!("ln -s ROOM/mine/nothing {run}"),
            "cannot be made",
        ),
        ("a file", format!("touch {run}"), "cannot be made"),
        ("a pipe", format!("mkfifo {run}"), "cannot be made"),
        (
            "a socket",
            format!(
                "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{run}\")'"
            ),
            "cannot be made",
        ),
    ] {
        let attempt = tries(&format!(
            "make ready for another user's daemon, in place of its directory, {what}"
        ));
        let made = node.as_user(MALLORY, &script)?;
        ensure!(made.status.success(), "{script}: {made:?}");
        let before = node.shell("stat -c '%a %u' ROOM/home")?;
        node.refused(VICTIM, USERS_DAEMON, reason)?;
        ensure!(
            node.shell("stat -c '%a %u' ROOM/home")? == before,
            "its mode was changed"
        );
        ensure!(
            node.shell("ls -A ROOM/mine")?.is_empty(),
            "something was made"
        );
        node.shell(&format!("rm -r {run}"))?;
        attempt.failed("the daemon does not start there, and says why");
    }
    Ok(())
}

/// The directory is one thing when it is looked at, and another one when it is used.
fn exchanged_meanwhile(node: &Node) -> Result<()> {
    const TIMES: u32 = 20;
    let run = format!("/tmp/whim-{VICTIM}");
    let attempt = tries("exchange a daemon's directory between a look at it and its use");
    node.shell("mkdir -m 755 ROOM/theirs && chmod 755 ROOM/home")?;
    let theirs = format!("chown {VICTIM}:{VICTIM} ROOM/theirs");
    node.shell(&theirs)?;
    let script = format!(
        "while :; do mkdir -m 777 {run} 2>/dev/null || :; rmdir {run} 2>/dev/null || :; \
         ln -s ROOM/theirs {run} 2>/dev/null || :; rm -f {run} 2>/dev/null || :; done"
    );
    let words = node.words(MALLORY, &script);
    let _exchanging = Running::spawn(&mut node.cluster.command_of_root("n1", &words))?;
    for _ in 0..TIMES {
        // It may come to have its own directory between two of the other's; then it ends for want of this address.
        let script = "env HOME=ROOM/home WHIMD --no-balance --listen 192.0.2.1:1";
        let ended = node.as_user(VICTIM, script)?;
        ensure!(ended.status.code() == Some(1), "{ended:?}");
        let mode = node.shell("stat -c %a ROOM/theirs && ls -A ROOM/theirs")?;
        ensure!(
            mode.trim() == "755",
            "another directory was changed: {mode}"
        );
        node.as_user(VICTIM, &format!("rm -rf {run}"))?;
    }
    attempt.failed("what was looked at is what is used");
    Ok(())
}

/// `su` and `sudo` may leave the environment as it was: another user's.
fn kept_environment(node: &Node) -> Result<()> {
    let daemon = "WHIMD --no-balance --listen 127.0.0.1:0";
    let ready = "mkdir -m 777 ROOM/mine/open ROOM/mine/whim; \
                 echo 'listen = \"[::]:0\"' > ROOM/mine/whim/config.toml";
    ensure!(node.as_user(MALLORY, ready)?.status.success());
    let home = "HOME=ROOM/home";
    for (what, variables, reason) in [
        (
            "HOME",
            "HOME=ROOM/mine/open".to_owned(),
            "belongs to another",
        ),
        (
            "XDG_STATE_HOME",
            format!("{home} XDG_STATE_HOME=ROOM/mine/open"),
            "belongs to another",
        ),
        (
            "XDG_STATE_HOME where all may write",
            format!("{home} XDG_STATE_HOME=ROOM/open"),
            "can be changed",
        ),
        (
            "XDG_CONFIG_HOME",
            format!("{home} XDG_CONFIG_HOME=ROOM/mine"),
            "belongs to another",
        ),
    ] {
        let attempt = tries(&format!(
            "have a plain user's daemon live by another user's environment: {what}"
        ));
        node.refused(VICTIM, &format!("env {variables} {daemon}"), reason)?;
        attempt.failed("the daemon does not start, and says why");
    }
    let left = node.shell("ls -A ROOM/mine/open")?;
    ensure!(left.trim().is_empty(), "it has made something: {left}");
    let attempt =
        tries("have a plain user's daemon live by another user's environment: XDG_RUNTIME_DIR");
    let own = format!("env {home} XDG_RUNTIME_DIR=ROOM/mine/open {daemon}");
    let socket = format!("/tmp/whim-{VICTIM}/control.sock");
    let _daemon = node.starts(VICTIM, &own, &socket)?;
    let left = node.shell("ls -A ROOM/mine/open")?;
    ensure!(left.trim().is_empty(), "it has made something: {left}");
    attempt.failed("it is passed over");
    // Root's programs know of no user's directories.
    for (what, command) in [
        ("daemon", "WHIMD --no-balance --listen 127.0.0.1:0"),
        ("command", "WHIM nodes"),
    ] {
        let attempt = tries(&format!(
            "have root's {what} live by another user's environment"
        ));
        let variables = "HOME=ROOM/mine XDG_RUNTIME_DIR=ROOM/mine XDG_STATE_HOME=ROOM/mine \
                         XDG_CONFIG_HOME=ROOM/mine";
        let script = format!("timeout -s KILL {REFUSED_WITHIN} env {variables} {command}");
        let output = node.as_user(0, &script)?;
        // Root's own daemon is there already, and answers.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = if what == "daemon" {
            said.contains("another daemon") || said.contains("/var/lib/whim")
        } else {
            output.status.success()
        };
        ensure!(expected, "{what}: {}: {said}", output.status);
        let left = node.shell("ls -A ROOM/mine/open && ls -A ROOM/mine/whim")?;
        ensure!(left.trim() == "config.toml", "something was made: {left}");
        attempt.failed("it uses the system's directories");
    }
    Ok(())
}

/// A user who has logged in has other directories than one who has not: the state is the same.
fn two_daemons(node: &Node) -> Result<()> {
    let home = "HOME=ROOM/home";
    let daemon = "WHIMD --no-balance --listen 127.0.0.1:0";
    let socket = format!("/tmp/whim-{VICTIM}/control.sock");
    let mut first = node.starts(VICTIM, &format!("env {home} {daemon}"), &socket)?;
    let asked = node.as_user(VICTIM, &format!("WHIM --socket {socket} init --node n1"))?;
    ensure!(asked.status.success(), "{asked:?}");
    for (what, variables) in [
        ("where the first one's sockets are", home.to_owned()),
        (
            "with sockets elsewhere",
            format!("{home} XDG_RUNTIME_DIR=ROOM/home"),
        ),
    ] {
        let attempt = tries(&format!("start a second daemon of one user, {what}"));
        node.refused(
            VICTIM,
            &format!("env {variables} {daemon}"),
            "Another process uses",
        )?;
        let asked = node.as_user(VICTIM, &format!("WHIM --socket {socket} nodes"))?;
        ensure!(asked.status.success(), "the first one is gone: {asked:?}");
        attempt.failed("refused by a sentence; the first one answers on");
    }
    let attempt = tries("take the place of a daemon that has ended: the socket that it left");
    node.as_user(VICTIM, "pkill -KILL -u $(id -u) whimd")?;
    first.wait(PATIENCE)?;
    let taken = node.as_user(
        MALLORY,
        &format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{socket}\")'"),
    )?;
    ensure!(!taken.status.success(), "another user's socket is there");
    node.starts(VICTIM, &format!("env {home} {daemon}"), &socket)?;
    attempt.failed("its directory is closed; the next daemon takes it over");
    Ok(())
}

/// Whoever starts a daemon may have any umask.
fn modes(node: &Node) -> Result<()> {
    let attempt = tries("read or write what a daemon has made that was started with umask 0");
    let daemon = "WHIMD --no-balance --listen 127.0.0.1:0";
    let socket = format!("/tmp/whim-{VICTIM}/control.sock");
    let users = format!("sh -c 'umask 0; HOME=ROOM/home exec {daemon}'");
    let _users = node.starts(VICTIM, &users, &socket)?;
    node.shell("mkdir -m 755 ROOM/safe")?;
    let roots =
        format!("sh -c 'umask 0; exec {daemon} --state ROOM/safe/state --run ROOM/safe/run'");
    let _roots = node.starts(0, &roots, "ROOM/safe/run/control.sock")?;
    for (uid, socket) in [(VICTIM, socket.as_str()), (0, "ROOM/safe/run/control.sock")] {
        let asked = node.as_user(uid, &format!("WHIM --socket {socket} init --node n1"))?;
        ensure!(asked.status.success(), "{asked:?}");
    }
    // What all may use is root's control socket alone, which asks who comes, and what all may read is the name of
    // root's node, which that socket tells all.
    let places = format!("ROOM/home/.local /tmp/whim-{VICTIM} ROOM/safe/state ROOM/safe/run");
    let open = node.shell(&format!(
        "find {places} ! -type l -perm /022 ! -path 'ROOM/home/.local' ! -path '*/.local/state'"
    ))?;
    let expected = [
        format!("/tmp/whim-{VICTIM}/control.sock"),
        format!("{}/safe/run/control.sock", node.room),
    ];
    ensure!(
        open.lines()
            .all(|line| expected.iter().any(|all| all == line)),
        "others may write: {open}"
    );
    let reading = format!(
        "find {places} ! -type d -readable ! -name control.sock ! -path '*/safe/run/node'; cat /tmp/whim-{VICTIM}/* 2>/dev/null || true"
    );
    let seen = node.as_user(MALLORY, &reading)?;
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    ensure!(seen.trim().is_empty(), "another user may read: {seen}");
    attempt.failed("files and directories are closed all the same");
    let attempt = tries("find an abstract socket of a daemon, which no directory closes");
    let sockets = node.shell("cat /proc/net/unix")?;
    ensure!(!sockets.contains('@'), "{sockets}");
    attempt.failed("there is none");
    Ok(())
}

/// Somebody who listens where a daemon of the victim would be, and tells what he hears. `silent`: nobody is
/// ever taken up, and the queue is full.
fn listener(node: &Node, path: &str, is_silent: bool) -> Result<Talk> {
    let then = if is_silent {
        "all = []\n\
         for i in range(4):\n    \
             c = socket.socket(socket.AF_UNIX); c.setblocking(False)\n    \
             c.connect_ex(path); all.append(c)\n\
         print('ready 1', flush=True)\n\
         sys.stdin.read()"
    } else {
        "print('ready 1', flush=True)\n\
         s.settimeout(20)\n\
         while True:\n    \
             c = s.accept()[0]; c.settimeout(5)\n    \
             print('heard', len(c.recv(4096)), flush=True)"
    };
    let script = format!(
        "import os, socket, sys\npath = '{path}'\n\
         os.makedirs(os.path.dirname(path), 0o777, exist_ok=True)\nos.chmod(os.path.dirname(path), 0o777)\n\
         s = socket.socket(socket.AF_UNIX); s.bind(path); os.chmod(path, 0o777); s.listen(1)\n{then}"
    );
    let script = node.filled(&script);
    let uid = MALLORY.to_string();
    let words = [
        "setpriv",
        "--clear-groups",
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "/usr/bin/python3",
        "-c",
        &script,
    ];
    let mut listener = Talk::start(
        node.cluster,
        &mut node.cluster.command_of_root("n1", &words),
    )?;
    listener.ready()?;
    Ok(listener)
}

/// Who has no daemon asks root's, whatever another user has put where it would be.
fn false_daemons(node: &Node) -> Result<()> {
    let run = format!("/tmp/whim-{VICTIM}");
    let asks = |what: &str| -> Result<()> {
        let script = format!("HOME=ROOM/home timeout -s KILL {REFUSED_WITHIN} WHIM nodes");
        let asked = node.as_user(VICTIM, &script)?;
        ensure!(asked.status.success(), "{what}: {asked:?}");
        Ok(())
    };
    asks("nothing was made ready")?;
    for (what, is_silent) in [
        ("by answering in the place of theirs", false),
        ("by a socket that takes nobody up", true),
    ] {
        let attempt = tries(&format!("keep others from root's daemon {what}"));
        let listener = listener(node, &format!("{run}/control.sock"), is_silent)?;
        asks(what)?;
        drop(listener);
        node.shell(&format!("rm -r {run}"))?;
        attempt.failed("root's daemon answers; the false one is not asked");
    }
    for (what, script) in [
        ("by a link", format!("ln -s ROOM/mine {run}")),
        ("by a file", format!("touch {run}")),
        (
            "by a pipe",
            format!("mkdir {run}; mkfifo {run}/control.sock"),
        ),
    ] {
        let attempt = tries(&format!("keep others from root's daemon {what}"));
        ensure!(node.as_user(MALLORY, &script)?.status.success());
        asks(what)?;
        node.shell(&format!("rm -r {run}"))?;
        attempt.failed("root's daemon answers");
    }
    Ok(())
}

/// With what looks like a token.
const JOINS: &str = "sh -c 'printf %08d.%032d.%064d 1 2 3 | WHIM join 127.0.0.1'";

/// Root's command in an environment that another user has left.
fn roots_command(node: &Node) -> Result<()> {
    let path = format!("{}/mine/control.sock", node.room);
    for (what, command) in [
        ("join", JOINS),
        ("token", "WHIM token"),
        ("ca backup", "WHIM ca backup ROOM/backup"),
        ("run", "WHIM run -- true"),
        ("adopt", "WHIM adopt 1"),
    ] {
        let attempt = tries(&format!(
            "hear what root's command says to a daemon that the environment names: {what}"
        ));
        node.shell(&format!("rm -f {path}"))?;
        let mut listener = listener(node, &path, false)?;
        let script = format!("timeout -s KILL {REFUSED_WITHIN} env WHIM_SOCKET={path} {command}");
        let output = node.as_user(0, &script)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            said.contains("not a daemon of yours or root's"),
            "{command}: {}: {said}",
            output.status
        );
        let heard = listener.line()?;
        ensure!(heard == "heard 0", "{command}: {heard}");
        attempt.failed("it is told nothing");
    }
    Ok(())
}
