//! A home and some hosts on loopback, without daemons: real supervisors, real connections.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whim_journey::job::{self, Event, GuestJob, HomeJob, MoveReport, Slot, State};
use whim_net::name::{ClusterName, Subject, journey_server_name};
use whim_net::tls::issue::{Authority, NodeSigner, SecretKey};
use whim_net::{Credentials, JourneyId, NodeName, Role};
use whim_sys::credentials::Launch;

/// Nothing here takes longer, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_secs()
}

/// Cluster, certificates, and a directory for sockets.
pub(crate) struct World {
    authority: Authority,
    directory: tempfile::TempDir,
    private_id: Option<u32>,
    lease_ms: Option<u64>,
}

impl World {
    /// As [`World::new`], with this lease.
    pub(crate) fn with_lease(lease_ms: u64) -> Self {
        Self {
            lease_ms: Some(lease_ms),
            ..Self::new()
        }
    }

    pub(crate) fn new() -> Self {
        let cluster = ClusterName::new("test").expect("a name");
        let directory = tempfile::tempdir().expect("a directory");
        let root = nix::unistd::geteuid().is_root();
        Self {
            authority: Authority::create(cluster, now()).expect("a CA"),
            directory,
            private_id: root.then_some(73_000),
            lease_ms: Some(10_000),
        }
    }

    pub(crate) fn credentials(&self, node: &str, journey: &str, role: Role) -> Credentials {
        let name = NodeName::new(node).expect("a name");
        let key = SecretKey::generate().expect("a key");
        let point = key.point();
        let issued = self
            .authority
            .issue_node(&name, &point, now())
            .expect("a certificate");
        let chain = issued.pem.clone();
        let signer = NodeSigner::new(name.clone(), issued, key).expect("a signer");
        let subject = Subject::Journey {
            cluster: self.authority.cluster().clone(),
            node: name,
            journey: JourneyId::new(journey).expect("a name"),
            role,
        };
        let life = Duration::from_secs(3600);
        let (leaf, key_pem) = signer.issue_leaf(&subject, life, now()).expect("a leaf");
        Credentials {
            chain_pem: format!("{}{chain}", leaf.pem),
            key_pem,
            ca_pem: self.authority.certificate_pem().to_owned(),
            revoked: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A supervisor that waits for a guest, and a port that leads to it.
    pub(crate) fn host(&self, node: &str, journey: &str, epoch: u32) -> Host {
        let socket_directory = self.path(&format!("{node}-{epoch}"));
        std::fs::create_dir_all(&socket_directory).expect("a directory");
        if let Some(id) = self.private_id {
            std::os::unix::fs::chown(&socket_directory, Some(id), Some(id)).expect("chown");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.directory.path(), mode).expect("chmod");
        }
        let socket = socket_directory.join("socket");
        let waits = listen(&socket);
        let credentials = self.credentials(node, journey, Role::Guest);
        let job = GuestJob {
            journey: journey.to_owned(),
            epoch,
            node: node.to_owned(),
            home: "n1".to_owned(),
            source: (epoch > 1).then(|| before(node).to_owned()),
            listener: waits.as_raw_fd(),
            credentials: job::CredentialsJson(serde_json::to_value(&credentials).expect("json")),
            lease_ms: self.lease_ms,
            private_id: self.private_id,
            cgroups: Vec::new(),
            memory_limit_bytes: None,
            memory_share: None,
            own_vdso: true,
            crash_at: None,
        };
        let supervisor = Supervisor::start(
            Command::new(env!("CARGO_BIN_EXE_whim-guest")),
            &serde_json::to_string(&job).expect("json"),
            vec![waits.into()],
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let path = socket.clone();
        std::thread::spawn(move || {
            let line = serde_json::to_vec(&job::Command::Channel).expect("json");
            for stream in listener.incoming().flatten() {
                if whim_net::port::send_socket(&path, &stream, &line, PATIENCE).is_err() {
                    return;
                }
            }
        });
        let id = JourneyId::new(journey).expect("a name");
        let slot = Slot {
            node: node.to_owned(),
            addresses: vec![address],
            server_name: journey_server_name(&id, Role::Guest),
            epoch,
        };
        Host {
            slot,
            supervisor,
            socket,
        }
    }

    /// The home supervisor of a process.
    pub(crate) fn home(&self, journey: &str, pid: i32) -> Home {
        let socket = self.path(&format!("{journey}.home"));
        let listener = listen(&socket);
        let journal = self.path(&format!("{journey}.journal"));
        let options = std::fs::File::options().append(true).create(true).clone();
        let journal = options.open(journal).expect("opened");
        let credentials = self.credentials("n1", journey, Role::Home);
        let job = HomeJob {
            journey: journey.to_owned(),
            node: "n1".to_owned(),
            pid,
            start_time: start_time(pid),
            listener: listener.as_raw_fd(),
            journal: journal.as_raw_fd(),
            credentials: job::CredentialsJson(serde_json::to_value(&credentials).expect("json")),
            lease_ms: self.lease_ms,
            allow_root: true,
            requested_by: 0,
            permitted: u64::MAX,
            boot_offset_ns: whim_sys::namespace::boot_offset_ns(),
            crash_at: None,
        };
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.arg("--home");
        let text = serde_json::to_string(&job).expect("json");
        Home {
            supervisor: Supervisor::start(command, &text, vec![listener.into(), journal.into()]),
            socket,
        }
    }
}

/// Field 22 of its stat.
fn start_time(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = text.rsplit_once(')').expect("a name");
    let field = fields.split_whitespace().nth(19).expect("a start time");
    field.parse().expect("a number")
}

/// Listens in place of an earlier supervisor.
fn listen(socket: &Path) -> UnixListener {
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).expect("bound")
}

/// From where guests come to this node, if not from home.
fn before(node: &str) -> &str {
    if node == "n2" { "n3" } else { "n2" }
}

/// A running supervisor; killed when dropped, if it has not ended.
pub(crate) struct Supervisor {
    child: Child,
}

impl Supervisor {
    fn start(mut command: Command, job: &str, handed: Vec<OwnedFd>) -> Self {
        let launch = Launch {
            inherit: handed.iter().map(AsRawFd::as_raw_fd).collect(),
            ..Launch::default()
        };
        launch.apply(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a supervisor");
        drop(handed);
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "{job}").expect("the supervisor reads");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("the supervisor answers");
        assert_eq!(line.trim_end(), "ready");
        Self { child }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Host {
    pub slot: Slot,
    supervisor: Supervisor,
    socket: PathBuf,
}

impl Host {
    /// State of the guest, as its supervisor tells it; `None` when it has ended.
    pub(crate) fn state(&self) -> Option<State> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        let line = serde_json::to_string(&job::Command::Status).expect("json");
        writeln!(stream, "{line}").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        match serde_json::from_str(&line).ok()? {
            Event::Status { status } => Some(status.state),
            _ => None,
        }
    }

    /// Waits until the guest is in this state.
    pub(crate) fn await_state(&self, wanted: State) {
        let begun = std::time::Instant::now();
        while self.state() != Some(wanted) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?} instead of {wanted:?}",
                self.state()
            );
            std::thread::yield_now();
        }
    }

    /// Kills the supervisor.
    pub(crate) fn kill(&mut self) {
        self.supervisor.child.kill().expect("kill");
    }

    /// The supervisor's own process.
    pub(crate) fn process_id(&self) -> u32 {
        self.supervisor.child.id()
    }

    /// Waits for the end of the supervisor, and tells how it ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.supervisor.child.wait().expect("its end")
    }

    /// Waits for the end of the supervisor.
    pub(crate) fn await_end(&mut self) {
        self.supervisor.child.wait().expect("its end");
    }
}

pub(crate) struct Home {
    supervisor: Supervisor,
    socket: PathBuf,
}

impl Home {
    /// Sends a signal to the supervisor.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.supervisor.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("kill");
    }

    /// Waits until the process is home or has ended: the supervisor's work is done then.
    pub(crate) fn wait_end(&mut self) {
        self.supervisor.child.wait().expect("its end");
    }

    pub(crate) fn travel(&self, slot: &Slot) -> MoveReport {
        self.try_travel(slot).expect("it travels")
    }

    /// Why it did not travel, if it did not.
    pub(crate) fn try_travel(&self, slot: &Slot) -> Result<MoveReport, String> {
        ask(&self.socket, &job::Command::Move { slot: slot.clone() })
    }

    pub(crate) fn bring(&self) -> MoveReport {
        self.try_bring().expect("it comes home")
    }

    /// Why it was not brought home, if it was not: it may have come by itself.
    pub(crate) fn try_bring(&self) -> Result<MoveReport, String> {
        ask(&self.socket, &job::Command::Bring { hold: false })
    }
}

/// Sends a command; gives the report that ends its answer, or the refusal.
fn ask(socket: &Path, command: &job::Command) -> Result<MoveReport, String> {
    let mut stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let line = serde_json::to_string(command).expect("json");
    writeln!(stream, "{line}").map_err(|error| error.to_string())?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(|error| error.to_string())?;
        match serde_json::from_str(&line).expect("an event") {
            Event::Done { report } => return Ok(report),
            Event::Refused { reason, .. } => return Err(reason),
            _ => {}
        }
    }
    Err("the supervisor ended without an answer".to_owned())
}

/// A program whose standard input and output are pipes.
pub(crate) struct Program {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(command: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(command)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is installed");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn say(&mut self, text: &str) {
        let input = self.input.as_mut().expect("open");
        // One write: a pipe's reader may see the pieces of several.
        input
            .write_all(format!("{text}\n").as_bytes())
            .expect("the program reads");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("output");
        line.trim_end().to_owned()
    }

    /// Says something and gives the answer.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.say(text);
        self.line()
    }

    /// All that it still prints, up to its end.
    pub(crate) fn rest(mut self) -> String {
        drop(self.input.take());
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut text).expect("output");
        self.child.wait().expect("its end");
        text
    }

    pub(crate) fn finish(mut self) -> i32 {
        drop(self.input.take());
        self.child.wait().expect("its end").code().unwrap_or(-1)
    }
}
