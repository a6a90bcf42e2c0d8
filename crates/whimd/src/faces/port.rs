//! The port of this node: each connection is handed to the supervisor, the join, or the daemon that it
//! asks for; all others are refused and logged.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use whim_net::name::Route;
use whim_net::tls::Secret;
use whim_net::{PeerIdentity, port};

use crate::daemon::Daemon;
use crate::faces::telling;
use crate::host::hosting;
use crate::leaving::evacuation::{self, NotLeaving};
use crate::members::cluster::Standing;
use crate::members::gossip::About;
use crate::members::handshakes::Handshakes;
use crate::members::peers::{self, FrameError, NodeReply, NodeRequest};
use crate::members::upkeep;

/// A connection says what it is for within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// A handshake of a daemon is done within this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A daemon that says nothing for this long has gone; it connects again when it comes back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections whose peers have not identified themselves yet, or that have not been handed on; further
/// ones wait their turn.
pub const HELLOS_MAX: usize = 256;

/// How many ports are tried where any will do: the same number may be taken for the other protocol.
const PORTS_TRIED: u32 = 16;

/// Opens the port, for connections and for datagrams: as asked, or on IPv4 alone where the machine has
/// no IPv6.
///
/// # Errors
/// The port is taken, or we may not open it.
pub(crate) async fn open(address: SocketAddr) -> std::io::Result<(TcpListener, UdpSocket)> {
    let mut tried = 1;
    loop {
        match open_both(address).await {
            Err(error)
                if address.ip().is_unspecified() && address.is_ipv6() && !is_taken(&error) =>
            {
                return open_both((Ipv4Addr::UNSPECIFIED, address.port()).into()).await;
            }
            Err(error) if address.port() == 0 && is_taken(&error) && tried < PORTS_TRIED => {
                tried += 1;
            }
            opened => return opened,
        }
    }
}

async fn open_both(address: SocketAddr) -> std::io::Result<(TcpListener, UdpSocket)> {
    let listener = TcpListener::bind(address).await?;
    let socket = UdpSocket::bind(listener.local_addr()?).await?;
    Ok((listener, socket))
}

fn is_taken(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::AddrInUse
}

/// Accepts for ever.
pub(crate) async fn serve(daemon: Arc<Daemon>, listener: TcpListener) {
    accept(daemon, listener, Arc::default()).await;
}

async fn accept(daemon: Arc<Daemon>, listener: TcpListener, handshakes: Arc<Handshakes>) {
    let hellos = Arc::new(Semaphore::new(HELLOS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&hellos).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (daemon, handshakes) = (Arc::clone(&daemon), Arc::clone(&handshakes));
                tokio::spawn(async move {
                    if let Err(reason) = sort(&daemon, &handshakes, stream, from, permit).await {
                        tracing::warn!(%from, reason, "a connection is refused");
                    }
                });
            }
            Err(error) => {
                // Mostly we are out of descriptors: other connections end and free some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn sort(
    daemon: &Arc<Daemon>,
    handshakes: &Handshakes,
    stream: TcpStream,
    from: SocketAddr,
    permit: OwnedSemaphorePermit,
) -> Result<(), String> {
    let stream = stream.into_std().map_err(|e| e.to_string())?;
    let peeked = tokio::task::spawn_blocking(move || {
        let name = port::peek_server_name(&stream, HELLO_TIMEOUT);
        (stream, name)
    });
    let (stream, name) = peeked.await.map_err(|e| e.to_string())?;
    let name = name.map_err(|e| e.to_string())?.unwrap_or_default();
    let route = Route::of(&name)
        .ok_or_else(|| format!("it asks for {name:?}, which is nothing of ours"))?;
    // A peer that has identified itself talks on without further turns.
    handshakes.turn().await;
    match route {
        Route::Node => converse(daemon, stream, from, permit).await,
        Route::Join => {
            let served = daemon.cluster().serve_join(stream).await;
            upkeep::served(daemon.ground(), served.map_err(|e| e.to_string())?);
            Ok(())
        }
        Route::Supervisor(id, role) => hosting::route(daemon.host(), &id, role, stream)
            .await
            .map_err(|e| e.to_string()),
        Route::Stay {
            home,
            journey,
            epoch,
        } => hosting::route_to_stay(daemon.host(), (&home, &journey, epoch), stream)
            .await
            .map_err(|e| e.to_string()),
    }
}

/// Talks with another daemon until one of us ends it.
async fn converse(
    daemon: &Arc<Daemon>,
    stream: std::net::TcpStream,
    from: SocketAddr,
    permit: OwnedSemaphorePermit,
) -> Result<(), String> {
    let config = daemon
        .cluster()
        .server_config()
        .ok_or("this node is in no cluster")?;
    stream.set_nonblocking(true).map_err(|e| e.to_string())?;
    let stream = TcpStream::from_std(stream).map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let handshake = TlsAcceptor::from(config).accept(stream);
    let mut stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(|_| "its handshake did not end".to_string())?
        .map_err(|e| e.to_string())?;
    let peer = whim_net::peer_identity(stream.get_ref().1).map_err(|e| e.to_string())?;
    if daemon.cluster().standing(&peer) == Standing::Removed {
        daemon.membership().tell_removed(&peer, &mut stream).await;
        return Err(format!("{peer} was removed from the cluster"));
    }
    // Connections of members may stay.
    drop(permit);
    let mut keyed = false;
    loop {
        let request = tokio::time::timeout(IDLE_TIMEOUT, peers::receive(&mut stream)).await;
        let request: NodeRequest = match request {
            Ok(Ok(request)) => request,
            Ok(Err(FrameError::Closed | FrameError::Broken(_))) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(format!("{peer}: {error}")),
        };
        let reply = match (daemon.cluster().standing(&peer), request) {
            (Standing::Removed, _) => {
                let reply = daemon.membership().removed_reply(&peer);
                // A node that does not listen is not told.
                let _ = peers::send(&mut stream, &reply).await;
                return Err(format!("{peer} was removed from the cluster"));
            }
            (Standing::Member, NodeRequest::Keys { time_ms }) if !keyed => {
                keyed = true;
                match Secret::of_session(stream.get_ref().1) {
                    Ok(secret) => daemon.membership().agreed(&peer, &secret, time_ms),
                    Err(error) => refused(&error),
                }
            }
            // A list is proved by its signature, and may be the first to name the sender to us.
            (Standing::Member, request) | (_, request @ NodeRequest::Members { .. }) => {
                answer(daemon, &peer, request).await
            }
            (Standing::Unknown, _) => NodeReply::Refused {
                reason: format!("Its list of members does not name {peer}"),
            },
        };
        tracing::trace!(%peer, %from, "answered");
        if peers::send(&mut stream, &reply).await.is_err() {
            return Ok(());
        }
    }
}

fn refused(error: &dyn std::fmt::Display) -> NodeReply {
    NodeReply::Refused {
        reason: error.to_string(),
    }
}

async fn answer(daemon: &Arc<Daemon>, peer: &PeerIdentity, request: NodeRequest) -> NodeReply {
    match request {
        NodeRequest::Admit { request } => {
            match hosting::admit(daemon.host(), peer.node.as_str(), request).await {
                Ok((slot, supervisor_pid)) => NodeReply::Slot {
                    slot,
                    supervisor_pid,
                },
                Err(error) => refused(&error),
            }
        }
        NodeRequest::Release { journey, epoch } => {
            hosting::release(daemon.host(), peer.node.as_str(), &journey, epoch);
            NodeReply::Done
        }
        NodeRequest::TakeAway { journey, epoch } => {
            match evacuation::take_away(daemon.moves(), peer.node.as_str(), &journey, epoch).await {
                Ok(()) => NodeReply::Done,
                Err(NotLeaving {
                    reason,
                    waits: true,
                }) => NodeReply::Refused { reason },
                Err(NotLeaving { reason, .. }) => NodeReply::Unanswered { reason },
            }
        }
        NodeRequest::Drain { on, told_before } => {
            match evacuation::drain(daemon.moves(), on, told_before).await {
                Ok(remaining) => NodeReply::Drain(remaining),
                Err(error) => refused(&error),
            }
        }
        NodeRequest::Processes => NodeReply::Processes {
            rows: telling::for_peers(daemon).await,
        },
        other => upkeep::answer(daemon.ground(), peer, other, || About::of(&daemon.report())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;
    use crate::members::cluster::Cluster;
    use crate::members::handshakes::{HANDSHAKES_BURST, HANDSHAKES_PER_SECOND};
    use crate::settings::Settings;
    use std::path::Path;
    use whim_attempts::{Attempt, Party};
    use whim_control::config::Config;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A daemon that is alone in its cluster, and its port.
    async fn alone(directory: &Path) -> (Arc<Daemon>, TcpListener) {
        let opened = open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        let (listener, _) = opened.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let identity = directory.join("identity");
        let cluster = Cluster::open(identity, vec![address], "x86-64".into()).expect("opened");
        let made = cluster.init(Some("n1".into()), Vec::new(), None);
        made.expect("a cluster");
        let settings = Settings {
            state: directory.to_path_buf(),
            run: directory.to_path_buf(),
            configured: Config::lab(),
            libexec: directory.to_path_buf(),
            root: false,
            faults: Faults::default(),
        };
        (Daemon::new(settings, cluster), listener)
    }

    #[tokio::test]
    async fn a_session_gives_keys_once() {
        let directory = tempfile::tempdir().expect("directory");
        let (daemon, listener) = alone(directory.path()).await;
        tokio::spawn(accept(Arc::clone(&daemon), listener, Arc::default()));
        let mut member = daemon.cluster().connect("n1").await.expect("a handshake");
        let attempt = Attempt::new(
            Party::Member,
            "have a session give the same keys for datagrams twice",
        );
        let mut replies = Vec::new();
        for _ in 0..2 {
            let asked = async {
                peers::send(&mut member, &NodeRequest::Keys { time_ms: 5 }).await?;
                peers::receive::<NodeReply>(&mut member).await
            };
            let reply = tokio::time::timeout(PATIENCE, asked).await;
            replies.push(reply.expect("in time").expect("an answer"));
        }
        assert!(matches!(replies[0], NodeReply::Keys { .. }), "{replies:?}");
        let NodeReply::Refused { reason } = &replies[1] else {
            panic!("{replies:?}");
        };
        attempt.failed(reason);
    }

    /// A second member, which knows the port of the first one.
    async fn joined(directory: &Path, daemon: &Arc<Daemon>) -> Arc<Cluster> {
        let token = daemon
            .cluster()
            .with_state(|state| state.token(crate::members::cluster::now()))
            .expect("a token");
        let [address] = &daemon.cluster().addresses()[..] else {
            panic!("one address")
        };
        let own = vec!["127.0.0.1:1".to_owned()];
        let n2 = Cluster::open(directory.join("n2"), own, "x86-64".into()).expect("opened");
        let n2 = Arc::new(n2);
        let token = whim_secret::Concealed::new(token.to_string());
        let done = n2.join(address.clone(), &token, Some("n2".into()), Vec::new());
        done.await.expect("joined");
        n2
    }

    async fn asked(
        stream: &mut tokio_rustls::client::TlsStream<TcpStream>,
        question: &NodeRequest,
    ) -> Result<NodeReply, FrameError> {
        let asked = async {
            peers::send(stream, question).await?;
            peers::receive(stream).await
        };
        let reply = tokio::time::timeout(PATIENCE, asked).await;
        reply.expect("in time")
    }

    fn remove_n2(daemon: &Daemon) -> whim_net::SignedRemoval {
        let n2 = whim_net::NodeName::new("n2").expect("a name");
        let now = crate::members::cluster::now();
        let removed = daemon.cluster().with_state(|state| state.remove(&n2, now));
        removed.expect("removed");
        daemon.cluster().removals().pop().expect("its notice")
    }

    #[tokio::test]
    async fn a_removed_member_is_told_that_and_nothing_else() {
        let directory = tempfile::tempdir().expect("directory");
        let (daemon, listener) = alone(directory.path()).await;
        tokio::spawn(accept(Arc::clone(&daemon), listener, Arc::default()));
        let n2 = joined(directory.path(), &daemon).await;
        let mut before = n2.connect("n1").await.expect("a member's session");
        remove_n2(&daemon);
        let questions = [
            NodeRequest::WantMembers,
            NodeRequest::Keys { time_ms: 5 },
            NodeRequest::Processes,
            NodeRequest::Drain {
                on: true,
                told_before: false,
            },
            NodeRequest::Leave,
        ];
        for question in &questions {
            let what = format!("ask as a node that was removed: {question:?}");
            let attempt = Attempt::new(Party::ForeignNode, what);
            let mut after = n2.connect("n1").await.expect("a handshake");
            let reply = asked(&mut after, question).await.expect("an answer");
            let NodeReply::Removed { notice } = &reply else {
                panic!("{reply:?}");
            };
            assert!(notice.is_some(), "{reply:?}");
            let said = serde_json::to_string(&reply).expect("encoded");
            assert!(
                !said.contains("n1") && !said.contains("127.0.0.1"),
                "{said}"
            );
            let again = asked(&mut after, question).await;
            again.expect_err("hung up");
            attempt.failed("it is told when it was removed, and hung up on");
        }
        // A session from before the removal ends with its next question.
        let reply = asked(&mut before, &NodeRequest::WantMembers).await;
        let reply = reply.expect("an answer");
        assert!(matches!(reply, NodeReply::Removed { .. }), "{reply:?}");
        assert!(!daemon.report().draining);
        // The removed node believes what the CA has signed, and keeps it.
        assert_eq!(n2.removed(), None);
        let error = n2.call("n1", &NodeRequest::WantMembers, PATIENCE).await;
        let error = error.expect_err("refused");
        assert!(
            matches!(error, crate::members::cluster::CallError::Removed(_)),
            "{error}"
        );
        assert!(n2.removed().is_some());
    }

    #[tokio::test]
    async fn a_lying_member_makes_nobody_believe_that_it_was_removed() {
        let directory = tempfile::tempdir().expect("directory");
        let (daemon, listener) = alone(directory.path()).await;
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(accept(Arc::clone(&daemon), listener, Arc::default()));
        let n2 = joined(directory.path(), &daemon).await;
        serving.abort();
        let _ = serving.await;
        let (other, _) = alone(&directory.path().join("other")).await;
        let other_directory = directory.path().join("another");
        let elsewhere = {
            let (other, listener) = alone(&other_directory).await;
            tokio::spawn(accept(Arc::clone(&other), listener, Arc::default()));
            joined(&other_directory, &other).await;
            remove_n2(&other)
        };
        drop(other);
        let changed = elsewhere.json.replace("n2", "n1");
        let notice = |json: String| {
            Some(serde_json::json!({"json": json, "signature": elsewhere.signature}))
        };
        let listener = TcpListener::bind(address).await.expect("its port again");
        for (what, notice) in [
            ("without a proof", None),
            ("by what is no notice", Some(serde_json::json!({"json": 5}))),
            ("by a notice of another CA", notice(elsewhere.json.clone())),
            ("by a notice that was changed", notice(changed)),
        ] {
            let attempt = Attempt::new(
                Party::Member,
                format!("tell a member that it was removed, {what}"),
            );
            let lie = NodeReply::Removed { notice };
            let lying = async {
                let (stream, _) = listener.accept().await.expect("a connection");
                let config = daemon.cluster().server_config().expect("a member's");
                let mut stream = TlsAcceptor::from(config)
                    .accept(stream)
                    .await
                    .expect("a handshake");
                let _: NodeRequest = peers::receive(&mut stream).await.expect("a question");
                peers::send(&mut stream, &lie).await.expect("told");
            };
            let asking = n2.call("n1", &NodeRequest::WantMembers, PATIENCE);
            let ((), answer) = tokio::join!(lying, asking);
            let error = answer.expect_err("no list");
            assert!(
                matches!(error, crate::members::cluster::CallError::Refused(_)),
                "{error}"
            );
            assert_eq!(n2.removed(), None, "{what}");
            attempt.failed(error);
        }
    }

    #[tokio::test]
    async fn members_talk_on_through_a_flood() {
        let directory = tempfile::tempdir().expect("directory");
        let (daemon, listener) = alone(directory.path()).await;
        let handshakes = Arc::new(Handshakes::default());
        tokio::spawn(accept(
            Arc::clone(&daemon),
            listener,
            Arc::clone(&handshakes),
        ));
        let mut member = daemon.cluster().connect("n1").await.expect("a handshake");
        // Strangers have taken the turns of a whole minute.
        for _ in 0..HANDSHAKES_BURST + 60 * HANDSHAKES_PER_SECOND {
            handshakes.take();
        }
        let shaking = daemon.cluster().connect("n1");
        let shaking = tokio::time::timeout(Duration::from_millis(500), shaking).await;
        assert!(!matches!(shaking, Ok(Ok(_))), "it waits its turn");
        for _ in 0..3 {
            let asked = async {
                peers::send(&mut member, &NodeRequest::WantMembers).await?;
                peers::receive::<NodeReply>(&mut member).await
            };
            let reply = tokio::time::timeout(PATIENCE, asked).await;
            let reply = reply.expect("in time").expect("an answer");
            assert!(matches!(reply, NodeReply::Members { .. }), "{reply:?}");
        }
    }
}
