//! This node's place in a cluster: its identity, its members, and calls to other daemons.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ServerConfig, pki_types::ServerName};
use tokio_rustls::{TlsConnector, rustls};
use whim_journey::job::CredentialsJson;
use whim_net::join::{Asked, JoinError, JoinOptions, JoinReport, Served};
use whim_net::name::{ClusterName, JourneyId, NodeName, SERVER_NAME_NODE};
use whim_net::roster::{Member, SignedRoster};
use whim_net::state::{NodeOptions, State, StateError};
use whim_net::tls::{self, TlsError};
use whim_net::{
    Admitted, Credentials, PeerExpectation, PeerIdentity, RevocationList, Role, SignedRemoval,
};
use whim_secret::{Concealed, Token};

use crate::members::peers::{self, FrameError, NodeReply, NodeRequest};

/// A connection between daemons is made, or given up, within this time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A join is done, on both sides, within this time.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub(crate) enum ClusterError {
    #[error(
        "This node is in no cluster: run 'whim init' for a new one, or 'whim join' with a token"
    )]
    NoCluster,
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Name(#[from] whim_net::name::NameError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(
        "This node holds the CA of the cluster and has members beside it ({0}): remove them first, or take up the CA elsewhere from a backup ('whim ca backup', 'whim init --restore')"
    )]
    HolderLeaves(String),
    #[error(
        "The node that holds the CA ({holder}) cannot be told: {source}; 'whim leave --force' leaves without it, then run 'whim remove' there"
    )]
    Farewell { holder: String, source: CallError },
    #[error("Node {holder} refuses: {reason}")]
    Refused { holder: String, reason: String },
    #[error(
        "{0} processes of this node are away, or guests are here: bring them home first ('whim ps -a'), or 'whim leave --force'"
    )]
    InUse(usize),
    #[error("This machine's name ({0:?}) is no name for a node: give one with --node")]
    HostName(String),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error("A node that wants to join was not answered: {0}")]
    Serve(String),
    #[error(transparent)]
    Token(#[from] whim_secret::token::NotAToken),
    #[error("A new node is being answered just now: try again")]
    Answering,
    #[error("A task of the daemon ended badly ({0}); see its log")]
    Task(String),
    #[error("This node is joining a cluster just now: 'whim nodes' shows when it has")]
    Joining,
    #[error(
        "This node is a member of a cluster already, as {0} ('whim nodes' lists it); 'whim leave' first, if it shall join another one"
    )]
    Member(String),
    #[error(
        "No node can be called {0}, which 'whim migrate' takes for another thing: give another name with --node"
    )]
    Word(String),
    #[error("{0} joined, and was removed from the cluster at once")]
    RemovedAtOnce(String),
}

#[derive(Debug, Error)]
pub(crate) enum CallError {
    #[error("it is no member of this cluster")]
    Unknown,
    #[error("{0}")]
    Identity(String),
    #[error("none of its addresses answers ({0})")]
    Unreachable(String),
    #[error("the connection is refused: {0}")]
    Refused(String),
    #[error("{0}")]
    Removed(String),
    #[error("{0}")]
    Frame(FrameError),
    #[error("it did not answer within {0} s")]
    Timeout(u64),
}

/// In TLS 1.3 a client learns only with the first answer that its certificate is refused.
impl From<FrameError> for CallError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Broken(io) if io.get_ref().is_some() => Self::Refused(refusal(&io)),
            other => Self::Frame(other),
        }
    }
}

/// What an error of the TLS library means for the user.
fn refusal(error: &std::io::Error) -> String {
    let inner = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRevoked)) => {
            "this node was removed from the cluster".into()
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("TLS alert {alert:?}"),
        _ => error.to_string(),
    }
}

/// What this node has while it is a member of a cluster.
#[derive(Debug)]
struct Joined {
    state: Arc<Mutex<State>>,
    revocations: RevocationList,
    credentials: Credentials,
    server: Arc<ServerConfig>,
}

/// The cluster as this node sees it.
#[derive(Debug)]
pub(crate) struct Cluster {
    directory: PathBuf,
    /// `HOST:PORT` from the configuration; if empty, the addresses of our interfaces count.
    advertise: Mutex<Vec<String>>,
    port: std::sync::atomic::AtomicU16,
    class: String,
    joined: Mutex<Option<Joined>>,
    /// Held by who joins.
    joining: tokio::sync::Mutex<()>,
    /// Marked when the list of members changes.
    changed: watch::Sender<()>,
}

/// Words that stand in the place of a node's name in commands.
const WORDS: [&str; 2] = ["home", "best"];

/// Unix seconds.
#[must_use]
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// This machine's name, as far as it can name a node: up to the first dot, in small letters.
fn host_name() -> String {
    let name = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    let name = name.unwrap_or_default();
    name.split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// How other daemons are answered. The handshake succeeds even with a revoked certificate, so that the node
/// which shows it can be told that, and nothing else ([`Standing::Removed`]).
fn server_config(credentials: &Credentials) -> Result<Arc<ServerConfig>, TlsError> {
    let nobody = RevocationList::default();
    tls::server_config(credentials, nobody, &PeerExpectation::AnyNode)
}

impl Joined {
    fn new(state: State) -> Result<Self, StateError> {
        let credentials = state.credentials(now())?;
        let revocations = state.revocations().clone();
        let server = server_config(&credentials)?;
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            revocations,
            credentials,
            server,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state writes to disk before it changes itself: a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Tells all tasks that watch them that the members may have changed.
    pub(crate) fn announce_change(&self) {
        self.changed.send_replace(());
    }

    /// Sees each change of the members from now on.
    #[must_use]
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Opens the identity in `directory`, if there is one.
    ///
    /// # Errors
    /// It is damaged, or another daemon uses it.
    pub(crate) fn open(
        directory: PathBuf,
        advertise: Vec<String>,
        class: String,
    ) -> Result<Self, ClusterError> {
        let joined = if State::exists(&directory) {
            Some(Joined::new(State::open(&directory)?)?)
        } else {
            None
        };
        Ok(Self {
            directory,
            advertise: Mutex::new(advertise),
            port: std::sync::atomic::AtomicU16::new(whim_control::config::PORT),
            class,
            joined: Mutex::new(joined),
            joining: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(()),
        })
    }

    fn joined(&self) -> MutexGuard<'_, Option<Joined>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut Joined) -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        self.joined()
            .as_mut()
            .map_or(Err(ClusterError::NoCluster), act)
    }

    /// Migration class of this node, as the list of members has it.
    #[must_use]
    pub(crate) fn class(&self) -> &str {
        &self.class
    }

    /// Notes the port on which we really listen.
    pub(crate) fn set_port(&self, port: u16) {
        self.port.store(port, std::sync::atomic::Ordering::Relaxed);
    }

    #[must_use]
    pub(crate) fn is_member(&self) -> bool {
        self.joined().is_some()
    }

    /// Name of this node, or the name of the machine before it has joined.
    #[must_use]
    pub(crate) fn node(&self) -> String {
        self.joined()
            .as_ref()
            .map_or_else(host_name, |joined| joined.state().node().to_string())
    }

    /// Name of this node as a member; `None` if it is not one.
    #[must_use]
    pub(crate) fn identity(&self) -> Option<NodeName> {
        let joined = self.joined();
        joined.as_ref().map(|joined| joined.state().node().clone())
    }

    /// Name of the cluster.
    #[must_use]
    pub(crate) fn name(&self) -> Option<ClusterName> {
        let joined = self.joined();
        joined
            .as_ref()
            .map(|joined| joined.state().cluster().clone())
    }

    /// Name of the node that holds the CA.
    #[must_use]
    pub(crate) fn holder(&self) -> Option<String> {
        self.joined()
            .as_ref()
            .map(|joined| joined.state().roster().holder.to_string())
    }

    #[must_use]
    pub(crate) fn is_holder(&self) -> bool {
        self.joined()
            .as_ref()
            .is_some_and(|joined| joined.state().is_holder())
    }

    /// When this node's certificate expires, in Unix seconds.
    #[must_use]
    pub(crate) fn expires(&self) -> Option<u64> {
        self.joined()
            .as_ref()
            .map(|joined| joined.state().expires())
    }

    /// All members, this node among them.
    #[must_use]
    pub(crate) fn members(&self) -> Vec<Named> {
        let joined = self.joined();
        let Some(joined) = joined.as_ref() else {
            return Vec::new();
        };
        joined
            .state()
            .roster()
            .members
            .iter()
            .map(Named::from)
            .collect()
    }

    #[must_use]
    pub(crate) fn member(&self, name: &str) -> Option<Named> {
        self.members()
            .into_iter()
            .find(|member| member.name == name)
    }

    /// Version of our list of members; 0 without one.
    #[must_use]
    pub(crate) fn version(&self) -> u64 {
        self.joined()
            .as_ref()
            .map_or(0, |joined| joined.state().roster().version)
    }

    #[must_use]
    pub(crate) fn signed_roster(&self) -> Option<SignedRoster> {
        self.joined()
            .as_ref()
            .map(|joined| joined.state().signed_roster().clone())
    }

    /// Accepts a list that came from another node; returns whether it was newer than ours.
    ///
    /// # Errors
    /// It is not signed by our CA, or cannot be written.
    pub(crate) fn accept_roster(&self, signed: &SignedRoster) -> Result<bool, ClusterError> {
        let newer = self.with(|joined| Ok(joined.state().accept_roster(signed)?))?;
        if newer {
            self.announce_change();
        }
        Ok(newer)
    }

    /// Notices of removals, to hand on to other members.
    #[must_use]
    pub(crate) fn removals(&self) -> Vec<SignedRemoval> {
        self.joined()
            .as_ref()
            .map(|joined| joined.state().removals())
            .unwrap_or_default()
    }

    /// The notice for a node that is refused.
    #[must_use]
    pub(crate) fn removal_of(&self, peer: &PeerIdentity) -> Option<SignedRemoval> {
        self.joined()
            .as_ref()
            .and_then(|joined| joined.state().removal_of(peer))
    }

    /// When this node was removed, in Unix seconds, as far as it has heard.
    #[must_use]
    pub(crate) fn removed(&self) -> Option<u64> {
        let joined = self.joined();
        let joined = joined.as_ref()?;
        joined.state().removed().map(|removal| removal.at)
    }

    /// The error of a call that a member refused because, it says, we were removed. We believe that only if
    /// the CA has signed it.
    #[must_use]
    pub(crate) fn refused_by(&self, node: &str, notice: Option<serde_json::Value>) -> CallError {
        let notice = notice.map(serde_json::from_value::<SignedRemoval>);
        let Some(Ok(notice)) = notice else {
            // This proves no more than the alert by which a certificate is refused.
            return CallError::Refused(
                "this node was removed from the cluster, as the other one says".into(),
            );
        };
        match self.with(|joined| Ok(joined.state().accept_removal(&notice)?)) {
            Ok(newly) => {
                if newly {
                    tracing::warn!(node, "this node was removed from the cluster");
                    self.announce_change();
                }
                CallError::Removed("this node was removed from the cluster".into())
            }
            Err(error) => {
                tracing::warn!(node, %error, "a member says that this node was removed");
                CallError::Refused(error.to_string())
            }
        }
    }

    /// How a peer whose connection is open stands now: it may have been removed since.
    #[must_use]
    pub(crate) fn standing(&self, peer: &PeerIdentity) -> Standing {
        match self.joined().as_ref() {
            None => Standing::Removed,
            Some(joined) if joined.revocations.refuses(peer) => Standing::Removed,
            Some(joined) if joined.state().roster().member(&peer.node).is_some() => {
                Standing::Member
            }
            Some(_) => Standing::Unknown,
        }
    }

    /// How other daemons are answered; `None` if we are in no cluster.
    #[must_use]
    pub(crate) fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.joined()
            .as_ref()
            .map(|joined| Arc::clone(&joined.server))
    }

    /// The nodes that tokens have admitted within the last day; only the holder of the CA knows them.
    #[must_use]
    pub(crate) fn admitted(&self) -> Vec<Admitted> {
        self.joined()
            .as_ref()
            .map(|joined| joined.state().admitted(now()))
            .unwrap_or_default()
    }

    /// Answers one new node; only the holder of the CA does.
    ///
    /// # Errors
    /// The connection failed, or brought no valid request.
    pub(crate) async fn serve_join(
        &self,
        stream: std::net::TcpStream,
    ) -> Result<Served, ClusterError> {
        let state = self.with(|joined| Ok(Arc::clone(&joined.state)))?;
        let serving = tokio::task::spawn_blocking(move || {
            whim_net::join::serve(stream, &state, &now, JOIN_TIMEOUT)
        });
        match serving
            .await
            .map_err(|e| ClusterError::Task(e.to_string()))?
        {
            Ok(served) => {
                match &served {
                    Served::Admitted(Asked { node, token, from }) => {
                        tracing::info!(%node, ?token, from, "a node has joined");
                        self.announce_change();
                    }
                    Served::Refused(Asked { node, token, from }, refusal) => {
                        tracing::warn!(%node, ?token, from, %refusal, "a node was refused");
                    }
                }
                Ok(served)
            }
            Err(error) => Err(ClusterError::Serve(error.to_string())),
        }
    }

    /// Credentials for one supervisor here, as its job carries them.
    ///
    /// # Errors
    /// This node is in no cluster.
    pub(crate) fn journey_credentials(
        &self,
        journey: &str,
        role: Role,
    ) -> Result<CredentialsJson, ClusterError> {
        let id = JourneyId::new(journey)?;
        let credentials = self.answering_for(&id, role)?;
        serde_json::to_value(&credentials)
            .map(CredentialsJson)
            .map_err(|e| ClusterError::State(StateError::Encode(e.to_string())))
    }

    /// The same, for the daemon itself: it may speak for a supervisor that has ended.
    ///
    /// # Errors
    /// As [`Cluster::journey_credentials`].
    pub(crate) fn answering_for(
        &self,
        id: &JourneyId,
        role: Role,
    ) -> Result<Credentials, ClusterError> {
        self.with(|joined| Ok(joined.state().journey_credentials(id, role, now())?))
    }

    /// `HOST:PORT` under which other nodes reach this one.
    #[must_use]
    pub(crate) fn addresses(&self) -> Vec<String> {
        let configured = self
            .advertise
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if !configured.is_empty() {
            return configured;
        }
        let port = self.port.load(std::sync::atomic::Ordering::Relaxed);
        let found = interface_addresses();
        found
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port).to_string())
            .collect()
    }

    fn options(
        &self,
        node: Option<String>,
        advertise: Vec<String>,
    ) -> Result<NodeOptions, ClusterError> {
        if !advertise.is_empty() {
            *self
                .advertise
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = advertise;
        }
        let node = match node {
            Some(name) => NodeName::new(name)?,
            None => NodeName::new(host_name()).map_err(|_| ClusterError::HostName(host_name()))?,
        };
        if WORDS.contains(&node.as_str()) {
            return Err(ClusterError::Word(node.to_string()));
        }
        Ok(NodeOptions {
            node,
            addresses: self.addresses(),
            class: self.class.clone(),
        })
    }

    /// `whim init`; `backup` is the content of the CA's backup file, if the CA is taken up from one.
    ///
    /// # Errors
    /// There is an identity already, or it cannot be written.
    pub(crate) fn init(
        &self,
        node: Option<String>,
        advertise: Vec<String>,
        backup: Option<&[u8]>,
    ) -> Result<(), ClusterError> {
        let options = self.options(node, advertise)?;
        let mut joined = self.joined();
        if joined.is_some() {
            return Err(StateError::Exists(self.directory.clone()).into());
        }
        let state = match backup {
            Some(backup) => State::restore(&self.directory, backup, &options, now())?,
            None => State::init(&self.directory, &options, None, now())?,
        };
        *joined = Some(Joined::new(state)?);
        Ok(())
    }

    /// `whim join HOST`.
    ///
    /// # Errors
    /// The error says whether name, route, firewall, clock or token is the cause.
    pub(crate) async fn join(
        self: &Arc<Self>,
        host: String,
        token: &Concealed,
        node: Option<String>,
        advertise: Vec<String>,
    ) -> Result<JoinReport, ClusterError> {
        let _joining = self.joining.try_lock().map_err(|_| ClusterError::Joining)?;
        if self.is_member() {
            return Err(ClusterError::Member(self.node()));
        }
        let options = JoinOptions {
            host,
            token: token.reveal().parse::<Token>()?,
            node: self.options(node, advertise)?,
            port: self.port.load(std::sync::atomic::Ordering::Relaxed),
            timeout: JOIN_TIMEOUT,
        };
        let cluster = Arc::clone(self);
        let joining = tokio::task::spawn_blocking(move || {
            let (state, report) = whim_net::join::join(&cluster.directory, &options, &now)?;
            *cluster.joined() = Some(Joined::new(state)?);
            cluster.announce_change();
            Ok(report)
        });
        joining
            .await
            .unwrap_or_else(|e| Err(ClusterError::Task(e.to_string())))
    }

    /// Calls `act` with this node's state, and returns its result.
    ///
    /// # Errors
    /// The error of `act`, or this node is in no cluster.
    pub(crate) fn with_state<T>(
        &self,
        act: impl FnOnce(&mut State) -> Result<T, StateError>,
    ) -> Result<T, ClusterError> {
        self.with(|joined| Ok(act(&mut joined.state())?))
    }

    /// Forgets this node's identity.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) fn forget(&self) -> Result<(), ClusterError> {
        let mut joined = self.joined();
        let Joined {
            state,
            revocations,
            credentials,
            server,
        } = joined.take().ok_or(ClusterError::NoCluster)?;
        match Arc::try_unwrap(state) {
            Ok(state) => {
                let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(state.forget()?)
            }
            Err(state) => {
                *joined = Some(Joined {
                    state,
                    revocations,
                    credentials,
                    server,
                });
                Err(ClusterError::Answering)
            }
        }
    }

    /// Makes credentials anew after the node's certificate was renewed.
    ///
    /// # Errors
    /// No random numbers.
    pub(crate) fn reissue(&self) -> Result<(), ClusterError> {
        self.with(|joined| {
            let credentials = joined.state().credentials(now())?;
            joined.server = server_config(&credentials)?;
            joined.credentials = credentials;
            Ok(())
        })
    }

    /// Connects to the daemon of `node`, at the first of its addresses that answers.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn connect(&self, node: &str) -> Result<TlsStream<TcpStream>, CallError> {
        let member = self.member(node).ok_or(CallError::Unknown)?;
        let name = NodeName::new(node).map_err(|e| CallError::Identity(e.to_string()))?;
        let config = self.client_config(&PeerExpectation::Node(name))?;
        let mut reasons = Vec::new();
        for address in &member.addresses {
            let connected = async {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                handshake(stream, Arc::clone(&config)).await
            };
            match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) if error.get_ref().is_some() => {
                    return Err(CallError::Refused(refusal(&error)));
                }
                Ok(Err(error)) => reasons.push(format!("{address}: {error}")),
                Err(_) => reasons.push(format!("{address}: silent")),
            }
        }
        Err(CallError::Unreachable(reasons.join("; ")))
    }

    fn client_config(
        &self,
        expect: &PeerExpectation,
    ) -> Result<Arc<rustls::ClientConfig>, CallError> {
        let joined = self.joined();
        let joined = joined.as_ref().ok_or(CallError::Unknown)?;
        let list = joined.revocations.clone();
        tls::client_config(&joined.credentials, list, expect)
            .map_err(|e| CallError::Identity(e.to_string()))
    }

    /// Asks the daemon of `node` one thing, over a connection of its own.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn call(
        &self,
        node: &str,
        request: &NodeRequest,
        timeout: Duration,
    ) -> Result<NodeReply, CallError> {
        let asked = async {
            let mut stream = self.connect(node).await?;
            peers::send(&mut stream, request)
                .await
                .map_err(CallError::from)?;
            match peers::receive(&mut stream).await.map_err(CallError::from)? {
                NodeReply::Removed { notice } => Err(self.refused_by(node, notice)),
                reply => Ok(reply),
            }
        };
        let late = |_| CallError::Timeout(timeout.as_secs());
        tokio::time::timeout(timeout, asked).await.map_err(late)?
    }
}

async fn handshake(
    stream: TcpStream,
    config: Arc<rustls::ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(SERVER_NAME_NODE).map_err(std::io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

/// What a node with a valid certificate is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Member,
    /// Our list does not name it: it may be newer than the list.
    Unknown,
    Removed,
}

/// A member, with its name as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub name: String,
    pub addresses: Vec<String>,
    /// Its migration class, as it described it when it joined or last changed it.
    pub class: String,
}

impl From<&Member> for Named {
    fn from(member: &Member) -> Self {
        Self {
            name: member.name.to_string(),
            addresses: member.addresses.clone(),
            class: member.class.clone(),
        }
    }
}

/// Addresses of our interfaces that others could reach, IPv4 first; loopback only where there is
/// nothing else.
pub(crate) fn interface_addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        use nix::net::if_::InterfaceFlags as Flags;
        let Some(address) = interface.address else {
            continue;
        };
        if !interface.flags.contains(Flags::IFF_UP | Flags::IFF_RUNNING) {
            continue;
        }
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
        let v6 = address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip()));
        if let Some(ip) = v4.or(v6)
            && !ip.is_loopback()
            && !is_link_local(&ip)
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found.truncate(whim_net::roster::ADDRESSES_MAX);
    if found.is_empty() {
        found.push(IpAddr::from([127, 0, 0, 1]));
    }
    found
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
