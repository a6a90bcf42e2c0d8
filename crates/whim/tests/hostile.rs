//! A local user who attacks the daemon: through its socket, and around it.
#![forbid(unsafe_code)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::{Daemon, Owned, alone, good, place, until};
use whim_attempts::{Attempt, Party};
use whim_control::protocol::REQUEST_MAX;
use whim_net::join::{self, JoinOptions};
use whim_net::{NodeName, NodeOptions};
use whimd::{CLIENTS_OF_USER_MAX, HANDSHAKES_BURST, HANDSHAKES_PER_SECOND, HELLOS_MAX};

const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(30);

fn tries(what: impl Into<String>) -> Attempt {
    Attempt::new(Party::LocalUser, what)
}

/// To be another user takes root.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A script of Python as a user to whom nothing belongs; `s` in it is the daemon's socket.
fn as_nobody(daemon: &Daemon, script: &str) -> Command {
    let socket = daemon.socket().display().to_string();
    let script = format!("import os, socket, sys, time\ns = {socket:?}\n{script}");
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &script]).current_dir("/");
    command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.trim_end().to_owned()
}

/// Lines of requests, as they are; all that is answered before the daemon hangs up.
fn exchange(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(daemon.socket()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    // The daemon may hang up before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn serves(daemon: &Daemon) {
    good(&daemon.ask(&["nodes"]));
}

#[test]
fn what_is_no_request_is_refused() {
    let place = place();
    let daemon = alone(&place);
    let deep = format!("{}{}\n", "[".repeat(30_000), "]".repeat(30_000));
    let unknown = br#"{"request":"shutdown"}"#;
    for (what, bytes) in [
        ("bytes that are no text", &b"\xff\xfe\x00\x01\n"[..]),
        ("a request of HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        ("JSON of 30,000 levels", deep.as_bytes()),
        (
            "a request that does not exist",
            &[unknown, &b"\n"[..]].concat(),
        ),
        (
            "a process that cannot be",
            br#"{"request":"adopt","pid":-1}"#,
        ),
    ] {
        let attempt = tries(format!("send the daemon {what}"));
        let answer = exchange(&daemon, &[bytes, b"\n"].concat());
        assert!(
            answer.starts_with(r#"{"answer":"refused""#),
            "{what}: {answer}"
        );
        serves(&daemon);
        attempt.failed("refused by a sentence");
    }
    let attempt = tries("send the daemon half a line");
    let answer = exchange(&daemon, br#"{"request":"no"#);
    assert_eq!(answer, "");
    serves(&daemon);
    attempt.failed("hung up");
}

/// At the limit a line is read; one byte above, it is not.
#[test]
fn long_lines_are_not_read() {
    let place = place();
    let daemon = alone(&place);
    let line = |length: usize| {
        let mut line = vec![b' '; length];
        line[..19].copy_from_slice(br#"{"request":"nodes"}"#);
        line[length - 1] = b'\n';
        line
    };
    let answer = exchange(&daemon, &line(REQUEST_MAX));
    assert!(answer.contains(r#""answer":"done""#), "{answer}");
    let attempt = tries("send the daemon a line that is too long");
    assert_eq!(exchange(&daemon, &line(REQUEST_MAX + 1)), "");
    serves(&daemon);
    attempt.failed("hung up");
}

#[test]
fn connections_of_one_user_leave_room_for_others() {
    if !is_root() {
        return;
    }
    let place = place();
    let daemon = alone(&place);
    let attempt = tries("take all of the daemon's connections, and say nothing");
    let mut holder = as_nobody(
        &daemon,
        &format!(
            "
all = []
for i in range({CLIENTS_OF_USER_MAX}):
    c = socket.socket(socket.AF_UNIX); c.connect(s); all.append(c)
# Each has its place when it has been answered.
for c in all:
    c.sendall(b'{{\"request\":\"nodes\"}}\\n')
    last = c.makefile().readline().strip()
print(last, flush=True)
more = socket.socket(socket.AF_UNIX); more.connect(s)
print(more.makefile().readline().strip(), flush=True)
sys.stdin.read()
"
        ),
    );
    let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = Owned::start(holder);
    let mut lines = BufReader::new(holder.0.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let last = line();
    assert!(!last.contains("refused"), "at the limit: {last}");
    let refusal = line();
    let expected = format!("User {NOBODY} has {CLIENTS_OF_USER_MAX} connections");
    assert!(refusal.contains(&expected), "{refusal}");
    serves(&daemon);
    holder.0.kill().expect("kill");
    holder.0.wait().expect("its end");
    until("room again", || {
        let ask = "c = socket.socket(socket.AF_UNIX); c.connect(s)
c.sendall(b'{\"request\":\"nodes\"}\\n'); print(c.makefile().readline())";
        let answer = as_nobody(&daemon, ask).output().expect("python3");
        (!said(&answer).contains("refused")).then_some(())
    });
    attempt.failed("the connection above the limit is refused by a sentence; root is served");
}

/// The most memory that the daemon has had, in KiB.
fn peak(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/status", daemon.process_id());
    let status = std::fs::read_to_string(path).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect("VmHWM").parse().expect("a number")
}

#[test]
fn the_daemons_memory_is_not_filled() {
    /// What one client may cost, far below what is sent here.
    const SPARE_KIB: u64 = 24 << 10;
    let place = place();
    let daemon = alone(&place);
    serves(&daemon);
    let before = peak(&daemon);
    let attempt = tries("fill the daemon's memory with answers that are never read");
    let mut stream = UnixStream::connect(daemon.socket()).expect("connected");
    stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("set");
    let requests = b"{\"request\":\"doctor\"}\n".repeat(100_000);
    let error = stream.write_all(&requests).expect_err("it waits for us");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    serves(&daemon);
    let grown = peak(&daemon) - before;
    assert!(grown < SPARE_KIB, "{grown} KiB");
    attempt.failed("no further request is read while answers wait");
    drop(stream);
    let attempt = tries("fill the daemon's memory behind the request of `whim run`");
    let mut stream = UnixStream::connect(daemon.socket()).expect("connected");
    let request = br#"{"request":"register","options":{}}"#;
    stream
        .write_all(&[request, &b"\n"[..]].concat())
        .expect("written");
    let block = vec![b'x'; 1 << 20];
    for _ in 0..128 {
        stream.write_all(&block).expect("written");
    }
    serves(&daemon);
    let grown = peak(&daemon) - before;
    assert!(grown < SPARE_KIB, "{grown} KiB");
    attempt.failed("nothing of it is kept");
}

/// What a user tries on files and processes of the daemon: a line of Python each.
const AROUND: [(&str, &str); 12] = [
    ("replace the control socket", "os.rename(s, s + '.old')"),
    ("remove the control socket", "os.unlink(s)"),
    (
        "put a link in place of a file in the run directory",
        "os.symlink('/etc/passwd', run + '/guests.share.new')",
    ),
    (
        "put a link where a supervisor's directory will be",
        "os.symlink('/etc', run + '/journeys/x.home')",
    ),
    (
        "make a supervisor's directory",
        "os.mkdir(run + '/journeys/x.home')",
    ),
    ("list the supervisors", "os.listdir(run + '/journeys')"),
    ("read the node's key", "open(state + '/identity/node.key')"),
    ("list the state directory", "os.listdir(state)"),
    (
        "put a link into the state directory",
        "os.symlink('/etc/passwd', state + '/candidates.json')",
    ),
    (
        "write the daemon's log",
        "open(state + '/log/events.jsonl', 'a')",
    ),
    ("end the daemon", "os.kill(pid, 9)"),
    (
        "read the daemon's memory",
        "open('/proc/%d/mem' % pid, 'rb').read(1)",
    ),
];

#[test]
fn files_and_processes_of_the_daemon_are_out_of_reach() {
    if !is_root() {
        return;
    }
    let place = place();
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    for (what, line) in AROUND {
        let attempt = tries(what);
        let script = format!(
            "
pid = {}
run = os.path.dirname(s)
state = os.path.dirname(run) + '/state'
try:
    {line}
    print('done')
except PermissionError as e:
    print(e.strerror)
",
            daemon.process_id()
        );
        let told = said(&as_nobody(&daemon, &script).output().expect("python3"));
        assert!(
            told.contains("not permitted") || told.contains("denied"),
            "{what}: {told}"
        );
        attempt.failed(told);
    }
    let mode = |path: &str| {
        let about = std::fs::metadata(daemon.directory().join(path)).expect(path);
        about.permissions().mode() & 0o777
    };
    // Others may pass through to what is theirs, and see nothing of the rest.
    assert_eq!(
        (mode("state") & 0o066, mode("run/journeys") & 0o066),
        (0, 0)
    );
    assert_eq!(mode("state/identity"), 0o700);
    serves(&daemon);
}

/// What only root and administrators may ask for, said to the daemon itself.
#[test]
fn administrative_requests_are_refused() {
    if !is_root() {
        return;
    }
    let place = place();
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let mut sleeper = Owned::sleeper();
    let pid = sleeper.0.id();
    for (what, request) in [
        ("a token", r#"{"request":"token"}"#.to_owned()),
        (
            "its removal from the cluster",
            r#"{"request":"leave","force":true}"#.to_owned(),
        ),
        (
            "a member's removal",
            r#"{"request":"remove","node":"n1"}"#.to_owned(),
        ),
        (
            "a copy of the CA's key",
            r#"{"request":"ca-copy"}"#.to_owned(),
        ),
        (
            "another user's process as its own",
            format!(r#"{{"request":"adopt","pid":{pid}}}"#),
        ),
        (
            "a move of another user's process",
            format!(r#"{{"request":"migrate","pid":{pid},"to":"best"}}"#),
        ),
        (
            "another user's process held",
            format!(r#"{{"request":"bring","pid":{pid},"hold":true}}"#),
        ),
    ] {
        let attempt = tries(format!("ask the daemon for {what}"));
        let script = format!(
            "c = socket.socket(socket.AF_UNIX); c.connect(s)
c.sendall({:?}.encode() + b'\\n'); print(c.makefile().readline())",
            request
        );
        let told = said(&as_nobody(&daemon, &script).output().expect("python3"));
        let reason = told.strip_prefix(r#"{"answer":"refused","reason":""#);
        let reason = reason.unwrap_or_else(|| panic!("{what}: {told}"));
        assert!(
            reason.contains("whim-admin") || reason.contains("belongs to"),
            "{what}: {told}"
        );
        attempt.failed("refused by a sentence");
    }
    sleeper.0.kill().expect("kill");
}

/// The first bytes of somebody who wants to join.
fn hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    let token = [8, 32, 64].map(|digits| "0".repeat(digits)).join(".");
    let token = token.parse().expect("a token");
    let joining = std::thread::spawn(move || {
        let place = place();
        let options = JoinOptions {
            host,
            token,
            node: NodeOptions {
                node: NodeName::new("n2").expect("a name"),
                addresses: Vec::new(),
                class: String::new(),
            },
            port: 7946,
            timeout: PATIENCE,
        };
        let joined = join::join(&place.path().join("state"), &options, &whim_net::unix_now);
        joined.expect_err("nobody answers");
    });
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut header = [0; 5];
    stream.read_exact(&mut header).expect("a record of TLS");
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut body).expect("all of it");
    drop(stream);
    joining.join().expect("refused");
    [&header[..], &body].concat()
}

/// Strangers at the port who all want to agree on keys: beyond what may begin at once, they are looked
/// at no faster than a node can bear.
#[test]
fn handshakes_beyond_their_rate_wait_their_turn() {
    let place = place();
    let daemon = alone(&place);
    let address = daemon.address();
    let hello = hello();
    let attempt = Attempt::new(
        Party::Stranger,
        "have a node agree on keys with hundreds at once",
    );
    let begun = Instant::now();
    let strangers = HANDSHAKES_BURST + HANDSHAKES_PER_SECOND;
    let mut strangers: Vec<_> = (0..strangers)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("connected");
            stream.write_all(&hello).expect("written");
            stream
        })
        .collect();
    // The users of this node are served meanwhile.
    serves(&daemon);
    for stream in &mut strangers {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let heard = stream.read(&mut [0; 16]);
        let kind = heard.map_err(|error| error.kind());
        assert!(
            matches!(kind, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)),
            "a node that is in no cluster admits nobody: {kind:?}"
        );
    }
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_secs(1), "{taken:?}");
    attempt.failed("256 at once and 200 a second, more wait their turn");
}

/// Strangers at the port who say nothing: as many as are waited for, and one more.
#[test]
fn half_open_connections_wait_their_turn() {
    let place = place();
    let daemon = alone(&place);
    let address = daemon.address();
    let attempt = Attempt::new(
        Party::Stranger,
        "take all of a node's connections, and say nothing",
    );
    let connect = || TcpStream::connect(&address).expect("connected");
    let silent: Vec<_> = (0..HELLOS_MAX).map(|_| connect()).collect();
    let mut next = connect();
    next.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    let heard = |stream: &mut TcpStream, patience: Duration| {
        stream.set_read_timeout(Some(patience)).expect("set");
        stream.read(&mut [0; 16])
    };
    let waits = heard(&mut next, Duration::from_millis(500)).expect_err("it waits");
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    // Whoever is there already, and the users of this node, are served meanwhile.
    serves(&daemon);
    drop(silent);
    let heard = heard(&mut next, PATIENCE);
    let refused = matches!(heard, Ok(0))
        || heard.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
    assert!(refused, "it is looked at, and refused");
    attempt.failed("more wait their turn; each is given up after some seconds");
}
