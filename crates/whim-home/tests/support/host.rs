//! A home supervisor that runs, and a host that is this test: it accepts a process as any host does, and then
//! sends what it likes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use whim_home::connections::clocks;
use whim_journey::frame::{Frame, Kind};
use whim_journey::job::{self, Event, HomeJob, Slot};
use whim_journey::message::{
    self, Allowance, CallRequest, ChannelRole, Hello, ToGuest, ToHome, Used, WireDirection,
    WireRegion, WireReturned,
};
use whim_model::ProcessImage;
use whim_net::name::{ClusterName, Subject, journey_server_name};
use whim_net::tls::issue::{Authority, NodeSigner, SecretKey};
use whim_net::{
    Channel, Credentials, Door, Fresh, JourneyId, Line, NodeName, PeerExpectation, Role,
};
use whim_sys::credentials::Launch;

/// Nothing here takes longer, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const JOURNEY: &str = "removal";
/// Where a call's buffer is said to be: the program has nothing there.
pub(crate) const BUFFER: u64 = 0x7000_0000_0000;
/// What its calls write after the guest was called home.
const LATE: &str = "late\n";

/// Cluster, certificates, and a directory for sockets.
pub(crate) struct World {
    authority: Authority,
    directory: tempfile::TempDir,
    pub lease: Option<Duration>,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock").as_secs()
}

fn id() -> JourneyId {
    JourneyId::new(JOURNEY).expect("a name")
}

impl World {
    pub(crate) fn new(lease: Option<Duration>) -> Self {
        let cluster = ClusterName::new("test").expect("a name");
        Self {
            authority: Authority::create(cluster, now()).expect("a CA"),
            directory: tempfile::tempdir().expect("a directory"),
            lease,
        }
    }

    fn credentials(&self, node: &str, role: Role) -> Credentials {
        let name = NodeName::new(node).expect("a name");
        let key = SecretKey::generate().expect("a key");
        let issued = self.authority.issue_node(&name, &key.point(), now());
        let issued = issued.expect("a certificate");
        let chain = issued.pem.clone();
        let signer = NodeSigner::new(name.clone(), issued, key).expect("a signer");
        let subject = Subject::Journey {
            cluster: self.authority.cluster().clone(),
            node: name,
            journey: id(),
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

    /// The home supervisor of a process, from `WHIM_BIN_DIR` if that names a directory.
    pub(crate) fn home(&self, pid: i32) -> Home {
        let path = |name: &str| self.directory.path().join(name);
        let (socket, journal) = (path("home"), path("journal"));
        let listener = UnixListener::bind(&socket).expect("bound");
        let file = File::options().append(true).create(true).open(&journal);
        let file = file.expect("opened");
        let job = HomeJob {
            journey: JOURNEY.to_owned(),
            node: "n1".to_owned(),
            pid,
            start_time: start_time(pid),
            listener: listener.as_raw_fd(),
            journal: file.as_raw_fd(),
            credentials: job::CredentialsJson(
                serde_json::to_value(self.credentials("n1", Role::Home)).expect("json"),
            ),
            lease_ms: self
                .lease
                .map(|lease| lease.as_millis().try_into().expect("short")),
            allow_root: true,
            requested_by: 0,
            permitted: u64::MAX,
            boot_offset_ns: whim_sys::namespace::boot_offset_ns(),
            crash_at: None,
        };
        let own = PathBuf::from(env!("CARGO_BIN_EXE_whim-home"));
        let named = std::env::var_os("WHIM_BIN_DIR").map(|bin| Path::new(&bin).join("whim-home"));
        let is_named = named.is_some();
        let program = named.unwrap_or(own);
        let job = serde_json::to_value(&job).expect("json");
        let child = match start(&program, &job, vec![listener.into(), file.into()]) {
            Err(_) if is_named => start(&program, &older(job, &socket, &journal), Vec::new()),
            started => started,
        };
        let child = child.expect("a supervisor");
        Home { child, socket }
    }
}

/// The same job in the form for an older supervisor, which made socket and journal by itself.
fn older(mut job: serde_json::Value, socket: &Path, journal: &Path) -> serde_json::Value {
    std::fs::remove_file(socket).expect("removed");
    let fields = job.as_object_mut().expect("an object");
    for name in ["listener", "permitted", "boot_offset_ns"] {
        fields.remove(name);
    }
    let mut put = |name: &str, path: &Path| {
        fields.insert(name.to_owned(), path.display().to_string().into());
    };
    put("socket", socket);
    put("journal", journal);
    job
}

/// Starts a supervisor; the error is what it says instead of being ready.
fn start(program: &Path, job: &serde_json::Value, handed: Vec<OwnedFd>) -> Result<Child, String> {
    let mut command = Command::new(program);
    let launch = Launch {
        inherit: handed.iter().map(AsRawFd::as_raw_fd).collect(),
        ..Launch::default()
    };
    launch.apply(&mut command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("a supervisor");
    drop(handed);
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "{job}").expect("read");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut line).expect("the supervisor answers");
    match line.trim_end() {
        "ready" => Ok(child),
        said => {
            child.wait().expect("it has ended");
            Err(said.to_owned())
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

pub(crate) struct Home {
    pub child: Child,
    socket: PathBuf,
}

impl Home {
    /// Asks for something; the events come by the channel, up to the end.
    pub(crate) fn ask(&self, command: &job::Command) -> Receiver<Event> {
        let (sender, events) = channel();
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let line = serde_json::to_string(command).expect("json");
        writeln!(stream, "{line}").expect("it reads");
        std::thread::spawn(move || tell(stream, &sender));
        events
    }

    /// Does what a daemon does for a host that was removed: a supervisor that does not know the command is
    /// asked to bring the process home.
    pub(crate) fn evict(&self, node: &str) -> Receiver<Event> {
        let events = self.ask(&job::Command::Evict { node: node.into() });
        match events.recv_timeout(Duration::from_millis(500)) {
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                self.ask(&job::Command::Bring { hold: false })
            }
            _ => events,
        }
    }
}

fn tell(stream: UnixStream, sender: &Sender<Event>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if sender
            .send(serde_json::from_str(&line).expect("an event"))
            .is_err()
        {
            return;
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that computes, and whose output is recorded with the time when it came.
pub(crate) struct Program {
    pub child: Child,
    lines: Receiver<Effect>,
}

/// A line that it has written, and when that was seen.
struct Effect {
    at: Instant,
    line: String,
}

impl Program {
    pub(crate) fn start() -> Self {
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", "print('ready', flush=True)\nwhile True: pass"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is installed");
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || note(output, &sender));
        lines.recv_timeout(PATIENCE).expect("it is ready");
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// When the last output so far came; and how many outputs came of calls that the host sent after the
    /// guest was called home.
    pub(crate) fn effects(&self) -> (Option<Instant>, usize) {
        let mut late = 0;
        let mut last = None;
        for effect in self.lines.try_iter() {
            late += usize::from(effect.line == LATE.trim_end());
            last = Some(effect.at);
        }
        (last, late)
    }

    /// Its exit status, if it ends before `end`.
    pub(crate) fn ends_until(&mut self, end: Instant) -> Option<ExitStatus> {
        loop {
            let ended = self.child.try_wait().expect("its state");
            if ended.is_some() || Instant::now() > end {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// User time that it has used here, in ticks of the kernel.
    pub(crate) fn used(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it lives");
        let after = stat.rsplit_once(')').expect("a name").1;
        let field = after.split_whitespace().nth(11).expect("a field");
        field.parse().expect("a number")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn note(output: ChildStdout, sender: &Sender<Effect>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let at = Instant::now();
        if sender.send(Effect { at, line }).is_err() {
            return;
        }
    }
}

/// What a guest that comes home brings along.
#[derive(Default)]
pub(crate) struct Luggage {
    image: Vec<u8>,
    contents: Vec<Vec<u8>>,
}

impl Luggage {
    pub(crate) fn image(&self) -> ProcessImage {
        message::decode(&self.image).expect("home's own").0
    }
}

pub(crate) struct Host {
    listener: TcpListener,
    credentials: Credentials,
    pub slot: Slot,
    calls: Option<Line>,
    pages: Option<Line>,
    doors: [std::sync::Arc<Door>; 2],
    sockets: Vec<TcpStream>,
    pub luggage: Luggage,
    tid: i32,
    sequence: u64,
    pub pieces: u32,
    /// A call is under way.
    asked: bool,
    /// Home's answer to the last call.
    result: Option<i64>,
    beaten: Instant,
    /// Home has said that the guest is to leave.
    pub called_home: bool,
    /// The same, but it stays set until the guest goes on here.
    recalled: bool,
    /// Once recalled, it sends one call after another, answered or not; none of them may be executed.
    pub insists: bool,
    /// Home has said that the guest goes on here.
    pub resumed: bool,
    pub over: bool,
    /// What it says that it allows.
    pub allowance: Allowance,
}

impl Host {
    pub(crate) fn new(world: &World, node: &str, epoch: u32, pid: i32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        listener.set_nonblocking(true).expect("a flag");
        let door = || Door::new().expect("a descriptor");
        Self {
            listener,
            credentials: world.credentials(node, Role::Guest),
            slot: Slot {
                node: node.to_owned(),
                addresses: vec![address],
                server_name: journey_server_name(&id(), Role::Guest),
                epoch,
            },
            calls: None,
            pages: None,
            doors: [door(), door()],
            sockets: Vec::new(),
            luggage: Luggage::default(),
            tid: pid,
            sequence: u64::from(epoch) << 32,
            pieces: 0,
            asked: false,
            result: None,
            beaten: Instant::now(),
            called_home: false,
            recalled: false,
            insists: false,
            resumed: false,
            over: false,
            allowance: Allowance {
                mappings: u64::MAX,
                threads: u64::MAX,
            },
        }
    }

    /// Accepts a connection, if one has come: the first of its kind, or one that takes its place.
    pub(crate) fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        stream.set_nonblocking(false).expect("a flag");
        let socket = stream.try_clone().expect("a descriptor");
        let expect = PeerExpectation::Supervisor { id: id() };
        let accepted = Channel::accept(stream, &self.credentials, &expect, PATIENCE);
        let Ok(mut channel) = accepted else {
            return false;
        };
        let Ok(frame) = channel.receive_frame(PATIENCE) else {
            return false;
        };
        let (hello, _) = message::decode::<Hello>(&frame.payload).expect("a greeting");
        self.sockets.push(socket);
        let resume = hello.resume;
        let fresh = Fresh { channel, resume };
        let (line, door) = match hello.role {
            ChannelRole::Calls => (&mut self.calls, &self.doors[0]),
            _ => (&mut self.pages, &self.doors[1]),
        };
        if line.is_some() {
            door.bring(fresh);
        } else {
            let (epoch, door) = (self.slot.epoch, std::sync::Arc::clone(door));
            *line = Some(Line::waiting(fresh, epoch, door, None));
        }
        true
    }

    /// Waits for both connections.
    pub(crate) fn accept_both(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.calls.is_none() || self.pages.is_none() {
            assert!(Instant::now() < end, "home does not connect");
            if !self.accept() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Breaks its connections, without a goodbye.
    pub(crate) fn break_all(&mut self) {
        for socket in self.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn queue(&mut self, kind: Kind, parts: &[&[u8]]) {
        let epoch = self.slot.epoch;
        self.calls
            .as_mut()
            .expect("connected")
            .queue(kind, epoch, parts);
    }

    pub(crate) fn say(&mut self, message: &ToHome, tail: &[u8]) {
        let head = message::encode(message).expect("encoded");
        self.queue(Kind::ToHome, &[&head, tail]);
    }

    pub(crate) fn beat(&mut self) {
        if self.beaten.elapsed() > Duration::from_millis(100) {
            self.beaten = Instant::now();
            self.say(
                &ToHome::Heartbeat {
                    clocks: clocks(),
                    used: Used::default(),
                },
                &[],
            );
        }
    }

    /// Sends a call that writes a line to the program's output, if none is under way.
    pub(crate) fn call(&mut self) {
        if std::mem::replace(&mut self.asked, true) && !(self.recalled && self.insists) {
            return;
        }
        let line = if self.recalled { LATE } else { "x\n" };
        let length = line.len() as u64;
        let write = [1, BUFFER, length, 0, 0, 0];
        self.request(libc::SYS_write, write, line.as_bytes());
    }

    /// Sends a call; `data` is what it reads at `BUFFER`.
    fn request(&mut self, number: i64, args: [u64; 6], data: &[u8]) {
        self.sequence += 1;
        let length = data.len() as u64;
        let region = WireRegion {
            address: BUFFER,
            length,
            direction: WireDirection::In,
            returned: WireReturned::Nothing,
            data_length: length,
        };
        let request = CallRequest {
            tid: self.tid,
            sequence: self.sequence,
            number: number.cast_unsigned(),
            args,
            may_block: false,
            looks_for: None,
            masked: 0,
            regions: if data.is_empty() {
                Vec::new()
            } else {
                vec![region]
            },
        };
        self.say(&ToHome::Call(request), data);
    }

    /// Sends a call and returns its result, or `None` if home calls the guest home instead.
    pub(crate) fn ask(&mut self, number: i64, args: [u64; 6], data: &[u8]) -> Option<i64> {
        self.result = None;
        self.request(number, args, data);
        let end = Instant::now() + PATIENCE;
        while self.result.is_none() && !self.called_home && !self.over {
            assert!(Instant::now() < end, "home says nothing");
            self.serve();
            self.beat();
        }
        self.result
    }

    /// Sends the next piece of an image of a megabyte, a byte long.
    pub(crate) fn piece(&mut self) {
        let offset = self.pieces;
        self.pieces += 1;
        self.piece_at(offset, &[0]);
    }

    /// Sends a piece of an image of a megabyte.
    pub(crate) fn piece_at(&mut self, offset: u32, piece: &[u8]) {
        let total: u32 = 1 << 20;
        self.queue(
            Kind::Image,
            &[&total.to_le_bytes(), &offset.to_le_bytes(), piece],
        );
    }

    /// Sends an image, and none of its pages.
    pub(crate) fn sends_image(&mut self, image: &ProcessImage) {
        message::send_image::<message::MessageError>(image, |parts| {
            self.queue(Kind::Image, parts);
            Ok(())
        })
        .expect("encoded");
    }

    /// Sends the program home, as it came or changed, at `rate` bytes a second.
    pub(crate) fn sends_home(&mut self, image: &ProcessImage, rate: usize) {
        let mut frames = Vec::new();
        message::send_image::<message::MessageError>(image, |parts| {
            frames.push((Kind::Image, parts.concat()));
            Ok(())
        })
        .expect("encoded");
        let contents = self.luggage.contents.clone();
        for piece in contents {
            let (head, bytes) = piece.split_first_chunk::<8>().expect("an address");
            let start = u64::from_le_bytes(*head);
            for (number, part) in bytes.chunks(64 << 10).enumerate() {
                let address = start + (number * (64 << 10)) as u64;
                frames.push((Kind::Pages, [&address.to_le_bytes()[..], part].concat()));
            }
        }
        let begun = Instant::now();
        let mut sent = 0;
        for (kind, frame) in frames {
            sent += frame.len();
            self.queue(kind, &[&frame]);
            let due = Duration::from_secs_f64(sent as f64 / rate as f64);
            while !self.over && begun.elapsed() < due {
                self.serve();
                self.beat();
            }
        }
        self.say(&ToHome::Complete, &[]);
    }

    /// Handles what home sends, for a moment.
    pub(crate) fn serve(&mut self) {
        self.accept();
        let calls = self.calls.as_mut().expect("connected");
        // What cannot be sent now is kept.
        let _ = calls.flush();
        let _ = calls.tick();
        match calls.receive_frame(Duration::from_millis(10)) {
            Ok(frame) => self.frame(&frame),
            Err(_) => self.over = self.calls.as_ref().is_some_and(Line::is_over),
        }
        if let Some(pages) = &mut self.pages {
            let _ = pages.receive();
            let _ = pages.tick();
        }
    }

    fn frame(&mut self, frame: &Frame) {
        match frame.kind {
            Kind::Image => self.luggage.image.extend_from_slice(&frame.payload[8..]),
            Kind::Pages => self.luggage.contents.push(frame.payload.clone()),
            Kind::ToGuest => {
                let (message, _) = message::decode::<ToGuest>(&frame.payload).expect("ours");
                self.message(&message);
            }
            _ => {}
        }
    }

    fn message(&mut self, message: &ToGuest) {
        match message {
            ToGuest::Ping => self.say(&ToHome::Pong { clocks: clocks() }, &[]),
            ToGuest::Prepare { .. } => {
                let allowance = self.allowance;
                self.say(&ToHome::Prepared { allowance }, &[]);
            }
            ToGuest::Complete { .. } => {
                let pages = self.luggage.contents.iter();
                let bytes = pages.map(|pages| pages.len() as u64 - 8).sum();
                self.say(&ToHome::Ready { bytes }, &[]);
            }
            ToGuest::Commit { .. } => self.say(&ToHome::Started { clocks: clocks() }, &[]),
            ToGuest::Reply { result, .. } => {
                self.asked = false;
                self.result = Some(*result);
            }
            ToGuest::Freeze => (self.called_home, self.recalled) = (true, true),
            ToGuest::Resume => (self.resumed, self.recalled) = (true, false),
            ToGuest::Discard | ToGuest::Ended => self.over = true,
            _ => {}
        }
    }
}

/// The program has left for a host, which is ready to lie.
pub(crate) fn away(world: &World) -> (Program, Home, Host) {
    let program = Program::start();
    let home = world.home(program.pid());
    let mut host = Host::new(world, "n2", 1, program.pid());
    let slot = host.slot.clone();
    let events = home.ask(&job::Command::Move { slot });
    host.accept_both();
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "it does not leave");
        host.serve();
        match events.try_recv() {
            Ok(Event::Done { .. }) => return (program, home, host),
            Ok(Event::Refused { reason, .. }) => panic!("{reason}"),
            _ => {}
        }
    }
}
