//! Who is accepted, and who is not.
#![forbid(unsafe_code)]

mod support;

use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use support::{
    TIMEOUT, connect, expect_journey, init, join_through, journey, name, plain_pair, sockets,
};
use whim_attempts::{Attempt, Party};
use whim_net::channel::{Channel, ChannelError};
use whim_net::name::{ClusterName, Subject};
use whim_net::tls::issue::{Authority, NodeSigner, SecretKey};
use whim_net::tls::{Refusal, join_client_config};
use whim_net::{Credentials, PeerExpectation, Revoked, Role, unix_now};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// A CA and the signing certificates of two nodes, without files.
struct Forge {
    authority: Authority,
    cluster: ClusterName,
}

impl Forge {
    fn new() -> Self {
        let cluster = ClusterName::new("forge").expect("usable");
        // Old enough for everything that the tests date back.
        let authority = Authority::create(cluster.clone(), unix_now() - 400 * DAY).expect("made");
        Self { authority, cluster }
    }

    fn signer(&self, node: &str, now: u64) -> NodeSigner {
        let key = SecretKey::generate().expect("key");
        let issued = self
            .authority
            .issue_node(&name(node), &key.point(), now)
            .expect("issued");
        NodeSigner::new(name(node), issued, key).expect("matching")
    }

    fn subject(&self, node: &str, role: Role) -> Subject {
        let (cluster, node) = (self.cluster.clone(), name(node));
        Subject::Journey {
            cluster,
            node,
            journey: journey("j1"),
            role,
        }
    }

    /// Credentials of the `role` supervisor of j1: what the leaf says may differ from who signs.
    fn leaf(&self, signer: &NodeSigner, subject: &Subject, made: u64, life: u64) -> Credentials {
        let (leaf, key_pem) = signer
            .issue_leaf(subject, Duration::from_secs(life), made)
            .expect("issued");
        Credentials {
            chain_pem: leaf.pem + &signer.certificate().pem,
            key_pem,
            ca_pem: self.authority.certificate_pem().into(),
            revoked: Vec::new(),
        }
    }

    fn good(&self, node: &str, role: Role) -> Credentials {
        let now = unix_now();
        self.leaf(&self.signer(node, now), &self.subject(node, role), now, DAY)
    }
}

fn home() -> PeerExpectation {
    expect_journey("j1", Role::Home)
}

fn guest() -> PeerExpectation {
    expect_journey("j1", Role::Guest)
}

/// The client's credentials are bad: the server must refuse, and the client must hear it.
fn refused(forge: &Forge, bad: &Credentials) -> (Refusal, ChannelError) {
    let server = forge.good("n2", Role::Guest);
    let (left, right) = connect((bad, &guest()), (&server, &home()));
    match right.expect_err("refused") {
        ChannelError::Refused(refusal) => (refusal, left.expect_err("told")),
        other => panic!("another error: {other}"),
    }
}

#[test]
fn supervisors_of_a_journey_meet() {
    let forge = Forge::new();
    let (client, server) = (forge.good("n1", Role::Home), forge.good("n2", Role::Guest));
    let (left, right) = connect((&client, &guest()), (&server, &home()));
    let (left, right) = (left.expect("connected"), right.expect("accepted"));
    assert_eq!(left.peer().node, name("n2"));
    assert_eq!(left.peer().journey, Some((journey("j1"), Role::Guest)));
    assert_eq!(right.peer().node, name("n1"));
    assert_eq!(right.peer().journey, Some((journey("j1"), Role::Home)));
    assert_eq!(client.identity().expect("own").node, name("n1"));
}

#[test]
fn another_ca_is_refused_by_both_sides() {
    let (forge, other) = (Forge::new(), Forge::new());
    // Same names throughout: only the key of the CA differs.
    let attempt = Attempt::new(Party::ForeignNode, "call with a certificate of another CA");
    let mut stranger = other.good("n1", Role::Home);
    stranger.ca_pem = forge.authority.certificate_pem().into();
    let (refusal, told) = refused(&forge, &stranger);
    assert_eq!(refusal, Refusal::OtherAuthority);
    assert!(told.to_string().contains("another cluster"), "{told}");
    attempt.failed(refusal);

    let attempt = Attempt::new(
        Party::ForeignNode,
        "answer with a certificate of another CA",
    );
    let client = forge.good("n1", Role::Home);
    let mut stranger = other.good("n2", Role::Guest);
    stranger.ca_pem = forge.authority.certificate_pem().into();
    let (left, right) = connect((&client, &guest()), (&stranger, &home()));
    assert!(
        matches!(left, Err(ChannelError::Refused(Refusal::OtherAuthority))),
        "{left:?}"
    );
    assert!(
        matches!(right, Err(ChannelError::RefusedByPeer(_))),
        "{right:?}"
    );
    attempt.failed(Refusal::OtherAuthority);
}

#[test]
fn dates_are_checked_with_a_day_of_tolerance() {
    let forge = Forge::new();
    let now = unix_now();
    let subject = forge.subject("n1", Role::Home);
    let server = forge.good("n2", Role::Guest);
    let made = now - 10 * DAY;
    let signer = forge.signer("n1", made);
    // Expired 12 hours ago: the clocks may differ so much. Then 36 hours ago.
    let late = forge.leaf(&signer, &subject, made, 10 * DAY - 12 * HOUR);
    let (left, right) = connect((&late, &guest()), (&server, &home()));
    assert!(left.is_ok() && right.is_ok(), "{left:?} {right:?}");
    let attempt = Attempt::new(Party::ForeignNode, "call with an expired certificate");
    let expired = forge.leaf(&signer, &subject, made, 10 * DAY - 36 * HOUR);
    let (refusal, told) = refused(&forge, &expired);
    assert_eq!(refusal, Refusal::Expired);
    assert!(told.to_string().contains("expired"), "{told}");
    attempt.failed(refusal);
    // Certificates begin a day before they are made; another day is granted.
    let signer = forge.signer("n1", now + 36 * HOUR);
    let early = forge.leaf(&signer, &subject, now + 36 * HOUR, DAY);
    let (left, right) = connect((&early, &guest()), (&server, &home()));
    assert!(left.is_ok() && right.is_ok(), "{left:?} {right:?}");
    let attempt = Attempt::new(Party::ForeignNode, "call with a certificate of the future");
    let signer = forge.signer("n1", now + 60 * HOUR);
    let future = forge.leaf(&signer, &subject, now + 60 * HOUR, DAY);
    let (refusal, _) = refused(&forge, &future);
    assert_eq!(refusal, Refusal::NotYetValid);
    attempt.failed(refusal);
    // The signing certificate counts as well as the leaf.
    let attempt = Attempt::new(
        Party::ForeignNode,
        "outlive the own certificate by a leaf that lasts longer",
    );
    let old = forge.signer("n1", now - 95 * DAY);
    let leaf = forge.leaf(&old, &subject, now - 95 * DAY, 200 * DAY);
    let (refusal, _) = refused(&forge, &leaf);
    assert_eq!(refusal, Refusal::Expired);
    attempt.failed(refusal);
}

#[test]
fn an_hour_of_a_stepped_clock_keeps_nobody_out() {
    let forge = Forge::new();
    let now = unix_now();
    let server = forge.good("n2", Role::Guest);
    // Made by a clock that has been put right since then, and the other way round.
    for made in [now - HOUR, now + HOUR] {
        let signer = forge.signer("n1", made);
        let leaf = forge.leaf(&signer, &forge.subject("n1", Role::Home), made, DAY);
        let (left, right) = connect((&leaf, &guest()), (&server, &home()));
        assert!(left.is_ok() && right.is_ok(), "{left:?} {right:?}");
    }
}

#[test]
fn a_node_cannot_speak_for_another() {
    let forge = Forge::new();
    let now = unix_now();
    let attempt = Attempt::new(Party::Member, "sign for another node");
    let signer = forge.signer("n3", now);
    let foreign = forge.leaf(&signer, &forge.subject("n1", Role::Home), now, DAY);
    let refusal = refused_chain(&forge, &foreign.chain_pem, &foreign.key_pem);
    assert!(matches!(refusal, Refusal::ForeignName { .. }), "{refusal}");
    attempt.failed(refusal);
    let attempt = Attempt::new(Party::Member, "sign for a cluster that it is not in");
    // Nor for a cluster that it is not in, although the CA is the same.
    let cluster = ClusterName::new("elsewhere").expect("usable");
    let subject = Subject::Node {
        cluster,
        node: name("n3"),
    };
    let foreign = forge.leaf(&signer, &subject, now, DAY);
    let refusal = refused_chain(&forge, &foreign.chain_pem, &foreign.key_pem);
    assert!(matches!(refusal, Refusal::ForeignName { .. }), "{refusal}");
    // Our own side does not even start with such credentials.
    assert!(foreign.identity().is_err());
    attempt.failed(refusal);
}

#[test]
fn a_node_cannot_make_another_signer() {
    let forge = Forge::new();
    let now = unix_now();
    let n1 = forge.signer("n1", now);
    let attempt = Attempt::new(Party::Member, "make another signer");
    // n1 issues a leaf to a key of its own making, and tries to sign with that.
    let node = Subject::Node {
        cluster: forge.cluster.clone(),
        node: name("n1"),
    };
    let (middle, middle_key) = n1
        .issue_leaf(&node, Duration::from_secs(DAY), now)
        .expect("issued");
    let key = SecretKey::from_pem(&middle_key).expect("key");
    let false_signer = NodeSigner::new(name("n1"), middle.clone(), key).expect("matching");
    let credentials = forge.leaf(&false_signer, &forge.subject("n1", Role::Home), now, DAY);
    let two = refused_chain(&forge, &credentials.chain_pem, &credentials.key_pem);
    assert!(
        matches!(two, Refusal::Invalid(_) | Refusal::OtherAuthority),
        "{two}"
    );
    attempt.failed(two);
    let attempt = Attempt::new(Party::Member, "show a chain that is longer");
    let three = credentials.chain_pem.clone() + &n1.certificate().pem;
    let three = refused_chain(&forge, &three, &credentials.key_pem);
    assert_eq!(three, Refusal::ChainLength(3));
    attempt.failed(three);
    let attempt = Attempt::new(Party::Member, "call with the signing certificate itself");
    // Nor can a signing certificate serve as a leaf, nor a leaf come alone.
    let signer = &n1.certificate().pem;
    assert_eq!(
        refused_chain(&forge, signer, &n1.key_pem()),
        Refusal::ChainLength(1)
    );
    let twice = refused_chain(&forge, &signer.repeat(2), &n1.key_pem());
    assert!(matches!(twice, Refusal::Invalid(_)), "{twice}");
    attempt.failed(twice);
}

/// Offers a chain that our own client would not send.
fn refused_chain(forge: &Forge, chain_pem: &str, key_pem: &str) -> Refusal {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("chain");
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("key");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("version")
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Anything))
        .with_client_auth_cert(chain, key)
        .expect("matching");
    match call(forge, config).1 {
        ChannelError::Refused(refusal) => refusal,
        other => panic!("another error: {other}"),
    }
}

/// A foreign TLS client calls a supervisor: what each side says.
fn call(forge: &Forge, config: rustls::ClientConfig) -> (std::io::Error, ChannelError) {
    let (address, listener) = sockets();
    let server = forge.good("n2", Role::Guest);
    let accepting = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        Channel::accept(stream, &server, &home(), TIMEOUT)
    });
    let name = "node.whim".try_into().expect("name");
    let mut tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("client");
    let mut tcp = std::net::TcpStream::connect(address).expect("connect");
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let _ = stream.write_all(b"hello");
    let heard = stream.read(&mut [0; 16]).expect_err("refused");
    (
        heard,
        accepting.join().expect("joined").expect_err("refused"),
    )
}

#[test]
fn only_the_expected_peer_is_admitted() {
    let forge = Forge::new();
    let now = unix_now();
    let server = forge.good("n2", Role::Guest);
    let client = forge.good("n1", Role::Home);
    let other_journey = expect_journey("j2", Role::Home);
    let other_node = PeerExpectation::Journey {
        id: journey("j1"),
        node: Some(name("n3")),
        role: Role::Home,
    };
    for (what, wanted) in [
        ("take the other role in a journey", &guest()),
        ("take part in another journey", &other_journey),
        ("take part in another node's journey", &other_node),
        (
            "speak for its node with a journey's certificate",
            &PeerExpectation::AnyNode,
        ),
    ] {
        let attempt = Attempt::new(Party::Member, what);
        let (left, right) = connect((&client, &guest()), (&server, wanted));
        let error = right.expect_err("refused");
        assert!(
            matches!(error, ChannelError::Refused(Refusal::Unexpected { .. })),
            "{error}"
        );
        assert!(
            matches!(left, Err(ChannelError::RefusedByPeer(_))),
            "{left:?}"
        );
        attempt.failed(error);
    }
    let attempt = Attempt::new(
        Party::Member,
        "take part in a journey with its node's certificate",
    );
    // A node's own leaf is no supervisor's, and is admitted as a node.
    let node = Subject::Node {
        cluster: forge.cluster.clone(),
        node: name("n1"),
    };
    let daemon = forge.leaf(&forge.signer("n1", now), &node, now, DAY);
    let (_, right) = connect((&daemon, &guest()), (&server, &home()));
    let error = right.expect_err("refused");
    assert!(matches!(
        error,
        ChannelError::Refused(Refusal::Unexpected { .. })
    ));
    attempt.failed(error);
    for wanted in [PeerExpectation::AnyNode, PeerExpectation::Node(name("n1"))] {
        let (_, right) = connect((&daemon, &guest()), (&server, &wanted));
        assert_eq!(right.expect("accepted").peer().journey, None);
    }
    let (_, right) = connect(
        (&daemon, &guest()),
        (&server, &PeerExpectation::Node(name("n9"))),
    );
    assert!(right.is_err());
    // The client's expectation counts as well.
    let (left, _) = connect((&client, &home()), (&server, &home()));
    assert!(matches!(
        left,
        Err(ChannelError::Refused(Refusal::Unexpected { .. }))
    ));
}

#[test]
fn the_revoked_are_refused() {
    let forge = Forge::new();
    let client = forge.good("n1", Role::Home);
    let identity = client.identity().expect("own");
    for (what, entry) in [
        ("as a node that was removed", Revoked::Node(name("n1"))),
        (
            "with a leaf that was revoked",
            Revoked::Serial(identity.serial),
        ),
        (
            "with a leaf of a certificate that was revoked",
            Revoked::Serial(identity.node_serial),
        ),
    ] {
        let attempt = Attempt::new(Party::ForeignNode, format!("call {what}"));
        let mut server = forge.good("n2", Role::Guest);
        server.revoked = vec![Revoked::Node(name("n7")), entry];
        let (left, right) = connect((&client, &guest()), (&server, &home()));
        let error = right.expect_err("refused");
        assert!(
            matches!(error, ChannelError::Refused(Refusal::Revoked(_))),
            "{error}"
        );
        let told = left.expect_err("told");
        assert!(
            told.to_string().contains("was removed from the cluster"),
            "{told}"
        );
        attempt.failed(error);
    }
}

#[test]
fn a_removed_member_is_refused_by_the_others_and_may_come_back() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let tokens = [n1.token(now).expect("token"), n1.token(now).expect("token")];
    let holder = Mutex::new(n1);
    let second = tempfile::tempdir().expect("directory");
    let (n2, _) = join_through(&holder, &second, "n2", &tokens[0], now).expect("joined");
    let old = n2
        .journey_credentials(&journey("j1"), Role::Guest, now)
        .expect("made");
    holder
        .lock()
        .expect("whole")
        .remove(&name("n2"), now)
        .expect("removed");
    let home_now = || {
        let n1 = holder.lock().expect("whole");
        n1.journey_credentials(&journey("j1"), Role::Home, now)
            .expect("made")
    };
    let attempt = Attempt::new(Party::ForeignNode, "answer for a journey after its removal");
    let (left, _) = connect((&home_now(), &guest()), (&old, &home()));
    let error = left.expect_err("refused");
    assert!(
        matches!(error, ChannelError::Refused(Refusal::Revoked(_))),
        "{error}"
    );
    attempt.failed(error);
    n2.forget().expect("forgotten");
    let (n2, _) = join_through(&holder, &second, "n2", &tokens[1], now).expect("joined again");
    let new = n2
        .journey_credentials(&journey("j1"), Role::Guest, now)
        .expect("made");
    let (left, right) = connect((&home_now(), &guest()), (&new, &home()));
    assert!(left.is_ok() && right.is_ok(), "{left:?} {right:?}");
}

#[test]
fn who_shows_no_certificate_is_refused() {
    let attempt = Attempt::new(Party::Stranger, "call a supervisor without a certificate");
    // The client that joins shows none; here it calls a supervisor instead.
    let forge = Forge::new();
    let mut config = (*join_client_config([0; 32]).expect("config")).clone();
    config
        .dangerous()
        .set_certificate_verifier(std::sync::Arc::new(Anything));
    let (heard, error) = call(&forge, config);
    assert!(heard.to_string().contains("CertificateRequired"), "{heard}");
    assert!(
        error.to_string().contains("shows no certificate"),
        "{error}"
    );
    attempt.failed(error);
}

/// A client that trusts everybody, as no code of ours does.
#[derive(Debug)]
struct Anything;

impl rustls::client::danger::ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn garbage_and_silence_are_refused() {
    let forge = Forge::new();
    let server = forge.good("n2", Role::Guest);
    let attempt = Attempt::new(Party::Stranger, "send a supervisor garbage");
    let (mut client, stream) = plain_pair();
    client.write_all(&[b'x'; 5000]).expect("written");
    let error = Channel::accept(stream, &server, &home(), TIMEOUT).expect_err("garbage");
    assert!(matches!(error, ChannelError::Protocol(_)), "{error}");
    attempt.failed(error);

    let attempt = Attempt::new(Party::Stranger, "keep a supervisor waiting for a handshake");
    let (client, stream) = plain_pair();
    let short = Duration::from_millis(50);
    let error = Channel::accept(stream, &server, &home(), short).expect_err("silence");
    assert!(matches!(error, ChannelError::Timeout { .. }), "{error}");
    attempt.failed(error);
    drop(client);

    let (client, stream) = plain_pair();
    drop(client);
    let error = Channel::accept(stream, &server, &home(), TIMEOUT).expect_err("closed");
    assert!(
        matches!(error, ChannelError::Closed | ChannelError::Lost(_)),
        "{error}"
    );
}

#[test]
fn damaged_credentials_are_an_error() {
    let forge = Forge::new();
    let good = forge.good("n1", Role::Home);
    let other = forge.good("n1", Role::Home);
    for bad in [
        Credentials {
            chain_pem: String::new(),
            ..good.clone()
        },
        Credentials {
            ca_pem: "x".into(),
            ..good.clone()
        },
        Credentials {
            key_pem: other.key_pem,
            ..good.clone()
        },
        Credentials {
            key_pem: String::new(),
            ..good.clone()
        },
    ] {
        let (_, stream) = plain_pair();
        let error = Channel::accept(stream, &bad, &home(), TIMEOUT).expect_err("damaged");
        assert!(matches!(error, ChannelError::Tls(_)), "{error}");
    }
    let json = serde_json::to_string(&good).expect("written");
    assert_eq!(
        serde_json::from_str::<Credentials>(&json).expect("read"),
        good
    );
    assert!(!format!("{good:?}").contains("PRIVATE"));
}
