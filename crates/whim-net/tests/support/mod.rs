//! What the tests of this crate share: clusters on disk and sockets on loopback.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use whim_net::channel::{Channel, ChannelError};
use whim_net::join::{self, JoinError, JoinOptions, JoinReport};
use whim_net::name::journey_server_name;
use whim_net::{
    Credentials, JourneyId, NodeName, NodeOptions, PeerExpectation, Role, State, unix_now,
};
use whim_secret::Token;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("usable")
}

pub(crate) fn journey(text: &str) -> JourneyId {
    JourneyId::new(text).expect("usable")
}

pub(crate) fn options(node: &str) -> NodeOptions {
    NodeOptions {
        node: name(node),
        addresses: vec![format!("{node}.test:7946")],
        class: "x86-64".into(),
    }
}

pub(crate) fn init(node: &str, now: u64) -> (TempDir, State) {
    let directory = tempfile::tempdir().expect("directory");
    let state = State::init(&directory.path().join("state"), &options(node), None, now);
    (directory, state.expect("made"))
}

pub(crate) fn expect_journey(id: &str, role: Role) -> PeerExpectation {
    PeerExpectation::Journey {
        id: journey(id),
        node: None,
        role,
    }
}

/// A connected pair of sockets: the side that connects, the side that accepts.
pub(crate) fn sockets() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    (listener.local_addr().expect("address"), listener)
}

/// Joins through a real socket; the holder answers in a thread.
pub(crate) fn join_through(
    holder: &Mutex<State>,
    directory: &TempDir,
    node: &str,
    token: &Token,
    now: u64,
) -> Result<(State, JoinReport), JoinError> {
    let (address, listener) = sockets();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            // What went wrong is judged at the other end.
            let _ = join::serve(stream, holder, &unix_now, TIMEOUT);
        });
        let options = JoinOptions {
            host: address.to_string(),
            token: token.clone(),
            node: options(node),
            port: 7946,
            timeout: TIMEOUT,
        };
        let result = join::join(&directory.path().join("state"), &options, &|| now);
        if result.is_err() && !serving.is_finished() {
            // It may have failed before it called anybody.
            let _ = TcpStream::connect(address);
        }
        result
    })
}

pub(crate) type Ends = (Result<Channel, ChannelError>, Result<Channel, ChannelError>);

/// Connects two supervisors; what each side expects is given with its credentials.
pub(crate) fn connect(
    client: (&Credentials, &PeerExpectation),
    server: (&Credentials, &PeerExpectation),
) -> Ends {
    let (address, listener) = sockets();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            Channel::accept(stream, server.0, server.1, TIMEOUT)
        });
        let server_name = journey_server_name(&journey("j1"), Role::Guest);
        let connected = Channel::connect(address, &server_name, client.0, client.1, TIMEOUT);
        if !accepting.is_finished() && connected.is_err() {
            // A client that failed before it called anybody must not leave the server waiting.
            let _ = TcpStream::connect(address);
        }
        (connected, accepting.join().expect("joined"))
    })
}

/// A channel of journey j1, between n1 (home) and n2 (guest).
pub(crate) fn channel() -> (Channel, Channel, Vec<TempDir>) {
    let now = unix_now();
    let (first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = tempfile::tempdir().expect("directory");
    let (n2, _) = join_through(&holder, &second, "n2", &token, now).expect("joined");
    let n1 = holder.into_inner().expect("whole");
    let home = n1
        .journey_credentials(&journey("j1"), Role::Home, now)
        .expect("made");
    let guest = n2
        .journey_credentials(&journey("j1"), Role::Guest, now)
        .expect("made");
    let (left, right) = connect(
        (&home, &expect_journey("j1", Role::Guest)),
        (&guest, &expect_journey("j1", Role::Home)),
    );
    (
        left.expect("connected"),
        right.expect("accepted"),
        vec![first, second],
    )
}

/// A TCP pair without TLS.
pub(crate) fn plain_pair() -> (TcpStream, TcpStream) {
    let (address, listener) = sockets();
    let client = TcpStream::connect(address).expect("connect");
    (client, listener.accept().expect("accept").0)
}
