//! Real daemons in directories, and where it matters network namespaces, of their own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing that is waited for takes longer, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Copies a program that is to be run, by another process: children of other tests would have our
/// descriptor of it for a moment, and what somebody may write is not executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

/// Path of the program under test.
pub(crate) fn whim() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_whim"))
}

/// Path of the daemon, beside the program under test. Who tests the whole workspace has built it;
/// for who tests this package alone, and for the first time, it is built here.
pub(crate) fn whimd() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let path = whim().with_file_name("whimd");
            let all = ["whimd", "whim-home", "whim-guest"];
            if !all.iter().all(|name| path.with_file_name(name).exists()) {
                build();
            }
            path
        })
        .clone()
}

fn build() {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo told us of this package must not reach the build scripts of others: they would
    // run, and everything after them be built, anew.
    let told = std::env::vars().map(|(name, _)| name);
    let kept = ["CARGO_HOME", "CARGO_TARGET_DIR"];
    for name in told.filter(|name| name.starts_with("CARGO") && !kept.contains(&&**name)) {
        cargo.env_remove(name);
    }
    let status = cargo
        .args([
            "build", "--quiet", "--locked", "-p", "whim", "-p", "whimd", "--bins",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "whimd does not build");
}

/// Standard output of a program that has to succeed.
#[track_caller]
pub(crate) fn good(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error of a program that has to end with this code.
#[track_caller]
pub(crate) fn bad(output: &Output, code: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{text}{error}");
    error
}

/// Asks again and again until the answer is there.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process, in a group with what it starts. All of them end with their owner; and with this test, if nobody could
/// drop the owner because the test was killed: a shell waits for the end of a pipe that is ours.
pub(crate) struct Owned(pub Child, Child);

/// Waits for the end of its input, and ends a group then.
const WATCH: &str = "read -r _; exec kill -KILL -- \"-$1\"";

impl Owned {
    /// Starts it with the input and outputs that the command says, or else ours.
    pub(crate) fn start(command: &mut Command) -> Self {
        let program = command.process_group(0).spawn().expect("it starts");
        let watch = Command::new("sh")
            .args(["-c", WATCH, "sh", &program.id().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(program, watch.expect("a shell starts"))
    }

    /// Starts it without any of our outputs: whoever reads those waits for all that have them.
    pub(crate) fn quiet(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self::start(command.stderr(Stdio::null()))
    }

    /// One that does nothing for a minute.
    pub(crate) fn sleeper() -> Self {
        Self::quiet(Command::new("sleep").arg("60"))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // First, so that it does not mistake a later group of this number for ours.
        let _ = self.1.kill();
        let _ = self.1.wait();
        let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        // The number is free again if somebody has waited for the program, unless others of the group live.
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// One daemon.
pub(crate) struct Daemon {
    directory: PathBuf,
    enter: Vec<String>,
    arguments: Vec<String>,
    process: Option<Owned>,
}

impl Daemon {
    /// Starts one, in the network namespace that `enter` (a command that takes a command) enters.
    pub(crate) fn start(directory: PathBuf, enter: Vec<String>, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(&directory).expect("directory");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut daemon = Self {
            directory,
            enter,
            arguments,
            process: None,
        };
        daemon.run();
        daemon
    }

    pub(crate) fn run(&mut self) {
        let mut words = self.enter.clone();
        words.push(whimd().display().to_string());
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("whimd.log"))
            .expect("log");
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("--state")
            .arg(self.directory.join("state"))
            .arg("--run")
            .arg(self.directory.join("run"))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log);
        self.process = Some(Owned::start(&mut command));
        let socket = self.socket();
        until("the control socket", || {
            std::os::unix::net::UnixStream::connect(&socket)
                .is_ok()
                .then_some(())
        });
    }

    /// Ends it as the service manager does.
    pub(crate) fn stop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let pid = nix::unistd::Pid::from_raw(process.0.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("signalled");
        process.0.wait().expect("ended");
    }

    /// Runs a shell script where this daemon sees its files.
    pub(crate) fn in_its_mounts(&self, script: &str) {
        let process = self.process.as_ref().expect("it runs");
        let mut words: Vec<String> = ["nsenter", "--mount", "--target"]
            .map(String::from)
            .to_vec();
        words.push(process.0.id().to_string());
        if !nix::unistd::geteuid().is_root() {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        shell(&words, script);
    }

    /// Where its port is.
    pub(crate) fn address(&self) -> String {
        let path = self.directory.join("whimd.log");
        until("the address", || {
            let text = std::fs::read_to_string(&path).ok()?;
            let (_, rest) = text.split_once("address=")?;
            Some(rest.split_whitespace().next()?.to_owned())
        })
    }

    /// The daemon's own process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("it runs").0.id()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("run/control.sock")
    }

    /// `whim` that talks to this daemon.
    pub(crate) fn whim(&self, words: &[&str]) -> Command {
        let mut command = Command::new(whim());
        command
            .env("WHIM_SOCKET", self.socket())
            .args(words)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        self.whim(words).output().expect("whim runs")
    }

    /// `whim` that reads this from standard input.
    pub(crate) fn tell(&self, words: &[&str], input: &str) -> Output {
        use std::io::Write;
        let mut command = self.whim(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("whim runs");
        let mut stdin = child.stdin.take().expect("its input");
        // Who refuses at once reads nothing.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("whim ends")
    }

    /// `whim join`, which is told its token.
    pub(crate) fn join(&self, host: &str, token: &str, node: &str) -> Output {
        self.tell(&["join", host, "--node", node], &format!("{token}\n"))
    }

    /// Lines of `--json`, parsed.
    #[track_caller]
    pub(crate) fn rows(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let text = good(&self.ask(words));
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// State of a node as this daemon sees it; `None`: it lists no such node.
    pub(crate) fn state_of(&self, node: &str) -> Option<String> {
        let rows = self.rows(&["nodes", "--json"]);
        let row = rows.into_iter().find(|row| row["name"] == node)?;
        row["state"].as_str().map(ToString::to_string)
    }
}

/// A directory in which daemons of any user may work.
pub(crate) fn place() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::Builder::new()
        .prefix("whim-")
        .tempdir()
        .expect("directory");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), mode).expect("mode");
    place
}

/// One daemon on loopback, on a port of its own.
pub(crate) fn alone(place: &TempDir) -> Daemon {
    Daemon::start(
        place.path().join("d"),
        vec!["env".into()],
        &["--listen", "127.0.0.1:0", "--lab"],
    )
}

/// Network namespaces around one bridge.
pub(crate) struct Network {
    bridge: Owned,
    nodes: Vec<Owned>,
}

impl Network {
    /// `count` nodes with the addresses 10.77.0.1, 10.77.0.2, ...
    pub(crate) fn new(count: usize) -> Self {
        let mut unshare = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        let mut network = Self {
            bridge: holder(unshare.arg("--net")),
            nodes: Vec::new(),
        };
        network.at_bridge("ip link add br0 type bridge && ip link set br0 up");
        for index in 1..=count {
            let mut command = Command::new("nsenter");
            command
                .args(network.entry(&network.bridge))
                .args(["unshare", "--net"]);
            let node = holder(&mut command);
            let pid = node.0.id();
            network.at_bridge(&format!(
                "ip link add v{index} type veth peer name eth0 netns {pid} && \
                 ip link set v{index} master br0 up"
            ));
            network.nodes.push(node);
            network.at(index, &format!(
                "ip link set lo up && ip addr add 10.77.0.{index}/24 dev eth0 && ip link set eth0 up"
            ));
        }
        network
    }

    fn entry(&self, owner: &Owned) -> Vec<String> {
        let mut words: Vec<String> =
            vec!["--target".into(), owner.0.id().to_string(), "--net".into()];
        if !nix::unistd::geteuid().is_root() {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words
    }

    /// Words before a command that bring it into the namespace of node `index` (from 1).
    pub(crate) fn enter(&self, index: usize) -> Vec<String> {
        let mut words = vec!["nsenter".to_string()];
        words.extend(self.entry(&self.nodes[index - 1]));
        words
    }

    pub(crate) fn at(&self, index: usize, script: &str) {
        shell(&self.enter(index), script);
    }

    pub(crate) fn at_bridge(&self, script: &str) {
        let mut words = vec!["nsenter".to_string()];
        words.extend(self.entry(&self.bridge));
        shell(&words, script);
    }
}

fn shell(enter: &[String], script: &str) {
    let status = Command::new(&enter[0])
        .args(&enter[1..])
        .args(["sh", "-ec", script])
        .status()
        .expect("a shell runs");
    assert!(status.success(), "{script}");
}

/// A process that does nothing but keep namespaces; it is in them once it has said so.
fn holder(command: &mut Command) -> Owned {
    use std::io::Read;
    let command = command
        .args(["sh", "-c", "echo ready; exec sleep infinity"])
        .stdin(Stdio::null());
    let mut holder = Owned::start(command.stdout(Stdio::piped()));
    let mut line = [0; 6];
    let output = holder.0.stdout.as_mut().expect("output");
    output
        .read_exact(&mut line)
        .expect("the namespaces are there");
    holder
}

/// Three daemons a, b, c in network namespaces of their own, not yet in a cluster.
pub(crate) fn three(place: &TempDir) -> (Network, [Daemon; 3]) {
    let network = Network::new(3);
    let daemon = |index: usize, name: &str| {
        Daemon::start(place.path().join(name), network.enter(index), &["--lab"])
    };
    let daemons = [daemon(1, "a"), daemon(2, "b"), daemon(3, "c")];
    (network, daemons)
}

pub(crate) fn token(daemon: &Daemon) -> String {
    good(&daemon.ask(&["token"])).trim().to_string()
}

#[track_caller]
pub(crate) fn see_up(daemon: &Daemon, names: &[&str]) {
    for name in names {
        until(name, || (daemon.state_of(name)? == "up").then_some(()));
    }
}
