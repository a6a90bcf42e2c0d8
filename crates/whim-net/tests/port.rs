//! One port: daemons, new nodes and supervisors behind it.
#![forbid(unsafe_code)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use support::{TIMEOUT, expect_journey, init, journey, name, sockets};
use whim_journey::frame::Kind;
use whim_net::channel::Channel;
use whim_net::name::{Route, SERVER_NAME_NODE, journey_server_name};
use whim_net::port::{peek_server_name, receive_socket, send_socket};
use whim_net::{PeerExpectation, Role, peer_identity, unix_now};

#[test]
fn a_supervisor_is_reached_through_the_daemons_port() {
    let now = unix_now();
    let (directory, n1) = init("n1", now);
    let id = journey("j-with-a-long-name-0123456789");
    let home = n1.journey_credentials(&id, Role::Home, now).expect("made");
    let guest = n1.journey_credentials(&id, Role::Guest, now).expect("made");
    let path = directory.path().join("supervisor");
    let waiting = UnixListener::bind(&path).expect("bind");
    let (address, listener) = sockets();
    std::thread::scope(|scope| {
        // The daemon: it never reads a byte of the connection.
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("accept");
            let name = peek_server_name(&stream, TIMEOUT)
                .expect("peeked")
                .expect("a name");
            assert_eq!(
                Route::of(&name),
                Some(Route::Supervisor(id.clone(), Role::Guest))
            );
            send_socket(&path, &stream, br#"{"command":"channel"}"#, TIMEOUT).expect("sent");
        });
        // The guest supervisor.
        scope.spawn(|| {
            let (unix, _) = waiting.accept().expect("accept");
            let (stream, line) = receive_socket(&unix, TIMEOUT).expect("received");
            assert_eq!(line, br#"{"command":"channel"}"#);
            let expect = expect_journey(id.as_str(), Role::Home);
            let mut channel = Channel::accept(stream, &guest, &expect, TIMEOUT).expect("accepted");
            let frame = channel.receive_frame(TIMEOUT).expect("received");
            channel
                .send_now(Kind::ToHome, frame.epoch, &[&frame.payload], TIMEOUT)
                .expect("sent");
        });
        let server_name = journey_server_name(&id, Role::Guest);
        let expect = expect_journey(id.as_str(), Role::Guest);
        let mut channel =
            Channel::connect(address, &server_name, &home, &expect, TIMEOUT).expect("connected");
        channel
            .send_now(Kind::ToGuest, 4, &[b"hello"], TIMEOUT)
            .expect("sent");
        let frame = channel.receive_frame(TIMEOUT).expect("received");
        assert_eq!((frame.epoch, &frame.payload[..]), (4, &b"hello"[..]));
    });
}

/// As the daemon does through its runtime: the configurations alone, with any TLS stream.
#[test]
fn daemons_meet() {
    let now = unix_now();
    let (_directory, n1) = init("n1", now);
    let server = n1.server_config(now).expect("config");
    let (address, listener) = sockets();
    let accepting = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("accept");
        assert_eq!(
            peek_server_name(&tcp, TIMEOUT).expect("peeked").as_deref(),
            Some(SERVER_NAME_NODE)
        );
        let mut tls = rustls::ServerConnection::new(server).expect("server");
        let mut text = [0; 4];
        rustls::Stream::new(&mut tls, &mut tcp)
            .read_exact(&mut text)
            .expect("read");
        rustls::Stream::new(&mut tls, &mut tcp)
            .write_all(b"pong")
            .expect("written");
        (peer_identity(&tls).expect("proved"), text)
    });
    let client = n1
        .client_config(&PeerExpectation::Node(name("n1")), now)
        .expect("config");
    let mut tls = rustls::ClientConnection::new(
        Arc::clone(&client),
        SERVER_NAME_NODE.try_into().expect("name"),
    )
    .expect("client");
    let mut tcp = TcpStream::connect(address).expect("connect");
    let mut text = [0; 4];
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    stream.write_all(b"ping").expect("written");
    stream.read_exact(&mut text).expect("read");
    assert_eq!(&text, b"pong");
    assert_eq!(peer_identity(&tls).expect("proved").node, name("n1"));
    let (peer, text) = accepting.join().expect("joined");
    assert_eq!((peer.node, &text), (name("n1"), b"ping"));
    // A session is never taken up again: it would skip the list of revocations.
    assert!(tls.handshake_kind() == Some(rustls::HandshakeKind::Full));
}
