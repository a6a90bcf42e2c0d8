//! How a new node becomes a member: one question and one answer, over TLS. Its server proves that it holds the
//! CA by the hash in the token.
//!
//! Each message is its length as a u32 (little-endian), followed by so many bytes of JSON.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use whim_secret::address::{AddressError, parse_host};
use whim_secret::token::{self, Token};

use crate::name::{NodeName, SERVER_NAME_JOIN};
use crate::roster::{ROSTER_LENGTH_MAX, SignedRoster};
use crate::state::{NodeOptions, RenewRequest, State, StateError, Vacant};
use crate::tls::issue::Issued;
use crate::tls::session::Session;
use crate::tls::{self, Refusal, TlsError, authority_pin};
use crate::token::TokenRefusal;
use crate::transport::{ChannelError, Deadline, Received, Transport};

/// Version of this exchange.
pub const JOIN_VERSION: u16 = 1;
/// Longest request, in bytes.
const REQUEST_MAX: usize = 64 << 10;
/// Longest answer, in bytes: a list of members and a little more. In JSON inside JSON, a quote takes two bytes.
const ANSWER_MAX: usize = 2 * ROSTER_LENGTH_MAX;

/// The request of a new node.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    pub version: u16,
    pub token_id: String,
    /// Safe inside this connection: its server holds the CA.
    pub token_secret: String,
    pub node: NodeName,
    pub addresses: Vec<String>,
    pub class: String,
    pub key: RenewRequest,
    /// The new node's clock, in Unix seconds.
    pub clock: u64,
}

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRequest")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// What an admitted node gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    pub ca_pem: String,
    /// The node's signing certificate.
    pub certificate: Issued,
    pub roster: SignedRoster,
    /// The holder's clock, in Unix seconds.
    pub now: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinRefusal {
    #[error(transparent)]
    Token(TokenRefusal),
    #[error(
        "Its protocol for joining has version {ours}, this node's has version {theirs}: update the older of the two nodes"
    )]
    Version {
        ours: u16,
        /// The version of the node that asked.
        #[serde(default)]
        theirs: u16,
    },
    #[error(
        "The clocks differ by more than a day (the other says {theirs} s since 1970): set them"
    )]
    Clock { theirs: u64 },
    #[error(
        "There is a member of this name already: choose another with --name, or remove the old one with `whim remove`"
    )]
    NameTaken,
    #[error("The cluster has as many members as one may have")]
    Full,
    #[error("The other node could not do it: {0}")]
    Internal(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JoinAnswer {
    Admitted(Admission),
    Refused(JoinRefusal),
}

#[derive(Debug, Error)]
pub enum JoinError {
    #[error(transparent)]
    Host(#[from] AddressError),
    #[error("The name {host} cannot be resolved ({source}): check the name and this node's DNS")]
    Name { host: String, source: io::Error },
    #[error("There is no route to {address} ({source}): check the network and the address")]
    Route {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "{address} refuses the connection: whimd does not run there, listens on another port, or a firewall rejects it"
    )]
    Refused { address: SocketAddr },
    #[error(
        "{address} does not answer within {seconds:.0} s: a firewall drops the packets, or the machine is off"
    )]
    Silent { address: SocketAddr, seconds: f64 },
    #[error("Failed to connect to {address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "{address} does not speak the protocol of Whimbrel ({reason}): another program listens there"
    )]
    NotWhim { address: SocketAddr, reason: String },
    #[error(
        "{address} admits no new nodes: it is not the node that ran `whim init`, or has just lost its identity"
    )]
    NotHolder { address: SocketAddr },
    #[error(
        "{address} belongs to another cluster than the token, or somebody is in between: nothing secret was sent"
    )]
    OtherCluster { address: SocketAddr },
    #[error("This node's clock is wrong by more than a day: set it and join again")]
    Clock,
    #[error(transparent)]
    Token(TokenRefusal),
    #[error("{address} refuses: {refusal}")]
    Rejected {
        address: SocketAddr,
        refusal: JoinRefusal,
    },
    #[error("The connection to {address} failed: {source}")]
    Channel {
        address: SocketAddr,
        source: ChannelError,
    },
    #[error(transparent)]
    State(#[from] StateError),
}

/// `HOST:PORT` of an address, as it is written in the list of members.
#[must_use]
pub fn advertised(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}

/// A node that wants to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// What the user typed: see [`parse_host`].
    pub host: String,
    pub token: Token,
    /// If it has no addresses, the local one of the connection to the holder of the CA is used.
    pub node: NodeOptions,
    /// The port of this node, for that address.
    pub port: u16,
    /// The timeout for each address of the host.
    pub timeout: Duration,
}

/// How a join went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinReport {
    pub via: SocketAddr,
    /// The holder's clock minus ours, in seconds.
    pub skew: i64,
}

/// Joins a cluster. `now` tells the time, in Unix seconds.
///
/// # Errors
/// The cause, told apart: name, route, firewall, clock, token, or what else it is.
pub fn join(
    directory: &Path,
    options: &JoinOptions,
    now: &dyn Fn() -> u64,
) -> Result<(State, JoinReport), JoinError> {
    let (host, port) = parse_host(&options.host)?;
    // The directory is claimed before anything is asked, because a full disk must not cost the token.
    let vacant = Vacant::claim(directory)?;
    let (stream, address) = reach(&host, port, options.timeout)?;
    let answer = ask(stream, address, options, &vacant, now)?;
    let admission = match answer {
        JoinAnswer::Admitted(admission) => admission,
        JoinAnswer::Refused(JoinRefusal::Token(refusal)) => return Err(JoinError::Token(refusal)),
        JoinAnswer::Refused(JoinRefusal::Clock { .. }) => return Err(JoinError::Clock),
        JoinAnswer::Refused(refusal) => return Err(JoinError::Rejected { address, refusal }),
    };
    let broken = |reason: &str| JoinError::NotWhim {
        address,
        reason: reason.into(),
    };
    if authority_pin(&admission.ca_pem).map_err(StateError::from)? != options.token.pin() {
        return Err(broken("its answer carries another CA"));
    }
    let skew = i64::try_from(admission.now.abs_diff(now())).unwrap_or(i64::MAX);
    let skew = if admission.now < now() { -skew } else { skew };
    let Admission {
        ca_pem,
        certificate,
        roster,
        ..
    } = admission;
    let state = vacant.settle(options.node.node.clone(), ca_pem, certificate, roster, None)?;
    if state.roster().member(state.node()).is_none() {
        return Err(broken("its list of members does not name us"));
    }
    Ok((state, JoinReport { via: address, skew }))
}

/// Tries each address of a name.
fn reach(host: &str, port: u16, timeout: Duration) -> Result<(TcpStream, SocketAddr), JoinError> {
    let unresolved = |source| JoinError::Name {
        host: host.to_owned(),
        source,
    };
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(unresolved)?
        .collect();
    let mut first = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok((stream, address)),
            Err(source) => {
                first.get_or_insert(unreachable(address, source, timeout));
            }
        }
    }
    let nothing = || unresolved(io::Error::other("it has no addresses"));
    Err(first.unwrap_or_else(nothing))
}

fn unreachable(address: SocketAddr, source: io::Error, timeout: Duration) -> JoinError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => JoinError::Refused { address },
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => JoinError::Silent {
            address,
            seconds: timeout.as_secs_f64(),
        },
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => JoinError::Route { address, source },
        _ => JoinError::Connect { address, source },
    }
}

fn ask(
    stream: TcpStream,
    address: SocketAddr,
    options: &JoinOptions,
    vacant: &Vacant,
    now: &dyn Fn() -> u64,
) -> Result<JoinAnswer, JoinError> {
    let mut addresses = options.node.addresses.clone();
    if addresses.is_empty() {
        let own = stream
            .local_addr()
            .map_err(|source| JoinError::Connect { address, source })?;
        addresses.push(advertised(own.ip(), options.port));
    }
    let node = options.node.node.clone();
    let key = RenewRequest::new(&node, vacant.key()).map_err(StateError::from)?;
    let request = JoinRequest {
        version: JOIN_VERSION,
        token_id: options.token.id(),
        token_secret: options.token.secret(),
        node,
        addresses,
        class: options.node.class.clone(),
        key,
        clock: now(),
    };
    let config = tls::join_client_config(options.token.pin()).map_err(StateError::from)?;
    let session = Session::client(config, SERVER_NAME_JOIN).map_err(StateError::from)?;
    let failed = |error| diagnose(address, error);
    let deadline = Deadline::new(options.timeout, "joining");
    let mut wire = Wire::new(Transport::new(stream, session).map_err(failed)?);
    wire.handshake(deadline).map_err(failed)?;
    wire.send(&request, deadline).map_err(failed)?;
    wire.receive(ANSWER_MAX, deadline).map_err(failed)
}

/// What a failed connection means to a node that joins.
fn diagnose(address: SocketAddr, error: ChannelError) -> JoinError {
    match error {
        ChannelError::Refused(Refusal::PinMismatch) => JoinError::OtherCluster { address },
        ChannelError::Refused(Refusal::Expired | Refusal::NotYetValid) => JoinError::Clock,
        ChannelError::Refused(refusal) => JoinError::NotWhim {
            address,
            reason: refusal.to_string(),
        },
        ChannelError::Protocol(reason) => JoinError::NotWhim { address, reason },
        ChannelError::Closed | ChannelError::RefusedByPeer(_) => JoinError::NotHolder { address },
        // A peer that closes without having read everything resets the connection.
        ChannelError::Lost(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            JoinError::NotHolder { address }
        }
        ChannelError::Timeout { seconds, .. } => JoinError::Silent { address, seconds },
        source => JoinError::Channel { address, source },
    }
}

/// The result of one request to the holder.
#[derive(Debug)]
pub enum Served {
    Admitted(Asked),
    Refused(Asked, JoinRefusal),
}

/// The node that asked to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub node: NodeName,
    /// The public part of the token that was presented, if it has the right form.
    pub token: Option<String>,
    /// Address and port of the connection.
    pub from: String,
}

/// Answers one new node, on a connection whose first byte has not been read yet. Blocks: give it a
/// thread. Push [`State::signed_roster`] to the members when a node was admitted.
///
/// # Errors
/// If the connection failed, or brought no valid request.
pub fn serve(
    stream: TcpStream,
    state: &Mutex<State>,
    now: &dyn Fn() -> u64,
    timeout: Duration,
) -> Result<Served, ServeError> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let from = stream.peer_addr().map_err(ChannelError::Lost)?;
    let from = SocketAddr::new(from.ip().to_canonical(), from.port()).to_string();
    let config = lock().join_server_config(now())?;
    let session = Session::server(config).map_err(ChannelError::from)?;
    let deadline = Deadline::new(timeout, "answering a new node");
    let mut wire = Wire::new(Transport::new(stream, session)?);
    wire.handshake(deadline)?;
    let request: JoinRequest = wire.receive(REQUEST_MAX, deadline)?;
    // The state is locked only while it is used, and never while we wait for a slow stranger.
    let result = lock().admit(&request, &from, now());
    let asked = Asked {
        node: request.node,
        token: token::is_id(&request.token_id).then_some(request.token_id),
        from,
    };
    let (answer, served) = match result {
        Ok(admission) => (JoinAnswer::Admitted(admission), Served::Admitted(asked)),
        Err(refusal) => (
            JoinAnswer::Refused(refusal.clone()),
            Served::Refused(asked, refusal),
        ),
    };
    wire.send(&answer, deadline)?;
    wire.link.close();
    Ok(served)
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// Length-prefixed JSON over a link.
struct Wire {
    link: Transport,
    received: Vec<u8>,
}

impl Wire {
    fn new(link: Transport) -> Self {
        Self {
            link,
            received: Vec::new(),
        }
    }

    fn handshake(&mut self, deadline: Deadline) -> Result<(), ChannelError> {
        let received = &mut self.received;
        self.link
            .handshake(deadline, &mut |bytes| keep(received, bytes, REQUEST_MAX))?;
        self.link.session().check_version()?;
        Ok(())
    }

    fn send<T: Serialize>(&mut self, message: &T, deadline: Deadline) -> Result<(), ChannelError> {
        let json = serde_json::to_vec(message).map_err(|e| TlsError::Credentials(e.to_string()))?;
        let length = u32::try_from(json.len())
            .map_err(|_| ChannelError::Protocol("an answer is too long".into()))?;
        self.link
            .seal(&[IoSlice::new(&length.to_le_bytes()), IoSlice::new(&json)])?;
        let received = &mut self.received;
        self.link
            .flush_blocking(deadline, &mut |bytes| keep(received, bytes, ANSWER_MAX))
    }

    fn receive<T: DeserializeOwned>(
        &mut self,
        limit: usize,
        deadline: Deadline,
    ) -> Result<T, ChannelError> {
        loop {
            if let Some((prefix, rest)) = self.received.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
                if length > limit {
                    let text = format!("a message of {length} bytes is announced");
                    return Err(ChannelError::Protocol(text));
                }
                if let Some(json) = rest.get(..length) {
                    return serde_json::from_slice(json)
                        .map_err(|e| ChannelError::Protocol(e.to_string()));
                }
            }
            let received = &mut self.received;
            let mut sink = |bytes: &[u8]| keep(received, bytes, limit);
            if self.link.receive_blocking(deadline, &mut sink)? == Received::Closed
                && !self.has_whole()
            {
                return Err(ChannelError::Closed);
            }
        }
    }

    fn has_whole(&self) -> bool {
        self.received
            .split_first_chunk::<4>()
            .is_some_and(|(prefix, rest)| {
                usize::try_from(u32::from_le_bytes(*prefix)).is_ok_and(|n| rest.len() >= n)
            })
    }
}

/// Keeps bytes of the one message that is expected, up to its limit.
fn keep(received: &mut Vec<u8>, bytes: &[u8], limit: usize) -> Result<(), ChannelError> {
    if received.len() + bytes.len() > limit + 4 {
        return Err(ChannelError::Protocol(
            "more was sent than one message".into(),
        ));
    }
    received.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::issue::SecretKey;
    use std::net::TcpListener;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn node(name: &str) -> NodeOptions {
        NodeOptions {
            node: NodeName::new(name).expect("a name"),
            addresses: vec![format!("{name}.test:7946")],
            class: String::new(),
        }
    }

    /// How the holder handles what a peer sends after the handshake.
    fn served(
        holder: &Mutex<State>,
        token: &Token,
        say: impl FnOnce(&mut Wire, Deadline) + Send,
    ) -> Result<Served, ServeError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let config = tls::join_client_config(token.pin()).expect("a configuration");
                let session = Session::client(config, SERVER_NAME_JOIN).expect("a session");
                let stream = TcpStream::connect(address).expect("connected");
                let deadline = Deadline::new(TIMEOUT, "joining");
                let mut wire = Wire::new(Transport::new(stream, session).expect("a link"));
                wire.handshake(deadline).expect("keys");
                say(&mut wire, deadline);
                // The answer is checked at the other end.
                let _ = wire.receive::<JoinAnswer>(ANSWER_MAX, deadline);
            });
            let (stream, _) = listener.accept().expect("a connection");
            serve(stream, holder, &crate::unix_now, TIMEOUT)
        })
    }

    /// A request of so many bytes. Its secret of that length admits nobody.
    fn request(token: &Token, length: usize) -> JoinRequest {
        let options = node("n2");
        let key = SecretKey::generate().expect("a key");
        let mut request = JoinRequest {
            version: JOIN_VERSION,
            token_id: token.id(),
            token_secret: String::new(),
            node: options.node.clone(),
            addresses: options.addresses,
            class: String::new(),
            key: RenewRequest::new(&options.node, &key).expect("a request"),
            clock: crate::unix_now(),
        };
        let rest = serde_json::to_vec(&request).expect("encoded").len();
        request.token_secret = "x".repeat(length - rest);
        request
    }

    #[test]
    fn requests_to_join_are_read_up_to_their_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let now = crate::unix_now();
        let state = State::init(&directory.path().join("state"), &node("n1"), None, now);
        let mut n1 = state.expect("made");
        let token = n1.token(now).expect("token");
        let holder = Mutex::new(n1);
        let largest = request(&token, REQUEST_MAX);
        let read = served(&holder, &token, |wire, deadline| {
            wire.send(&largest, deadline).expect("sent");
        });
        let read = read.expect("read");
        let refused = matches!(read, Served::Refused(_, JoinRefusal::Token(_)));
        assert!(refused, "{read:?}");
        // The announced length is enough to be refused.
        let error = served(&holder, &token, |wire, deadline| {
            let length = u32::try_from(REQUEST_MAX + 1).expect("small").to_le_bytes();
            wire.link.seal(&[IoSlice::new(&length)]).expect("sealed");
            let flushed = wire.link.flush_blocking(deadline, &mut |_| Ok(()));
            flushed.expect("sent");
        });
        let error = error.expect_err("one byte more").to_string();
        let sentence = "a message of 65537 bytes is announced";
        assert!(error.ends_with(sentence), "{error}");
    }
}
