//! Membership: who is in the cluster, how they are reached, and what is agreed on with them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use whim_control::protocol::NodeState;
use whim_monitor::moment::moment;
use whim_net::PeerIdentity;
use whim_net::StateError;
use whim_net::datagram::Keyring;
use whim_net::name::NodeName;
use whim_net::removal::{REMOVALS_MAX, SignedRemoval};
use whim_net::roster::SignedRoster;
use whim_net::state::RenewRequest;
use whim_net::tls::{Part, Secret};

use crate::locks::lock;
use crate::members::cluster::{self, CallError, Cluster, ClusterError};
use crate::members::discovery::Discovery;
use crate::members::gossip::About;
use crate::members::peers::{self, NodeReply, NodeRequest, Peers, Untold};
use crate::past::events::now_ms;

/// How long we wait for an answer of another daemon.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How much of a removed node's question is received and thrown away, in bytes.
const QUESTION_MAX: u64 = 64 << 10;

/// What this node knows of its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    cluster: Arc<Cluster>,
    peers: Mutex<Peers>,
    /// For datagrams; of the name that this node has now.
    keyring: Mutex<Option<Keyring>>,
    discovery: Mutex<Discovery>,
    /// Held while all are told something.
    telling: tokio::sync::Mutex<()>,
    started: Instant,
}

impl Membership {
    #[must_use]
    pub(crate) fn new(cluster: Cluster) -> Arc<Self> {
        Arc::new(Self {
            cluster: Arc::new(cluster),
            peers: Mutex::default(),
            keyring: Mutex::default(),
            discovery: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
            started: Instant::now(),
        })
    }

    #[must_use]
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        lock(&self.peers)
    }

    pub(crate) fn discovery(&self) -> MutexGuard<'_, Discovery> {
        lock(&self.discovery)
    }

    /// Lets something be done with the keys for datagrams, at this time.
    ///
    /// # Errors
    /// This node is in no cluster.
    pub(crate) fn with_keyring<T>(
        &self,
        act: impl FnOnce(&mut Keyring, Duration) -> T,
    ) -> Result<T, CallError> {
        let mut keyring = lock(&self.keyring);
        let own = self.cluster.identity().ok_or(CallError::Unknown)?;
        let ring = match &mut *keyring {
            Some(ring) if *ring.own() == own => ring,
            other => other.insert(Keyring::new(own)),
        };
        Ok(act(ring, self.started.elapsed()))
    }

    /// Forgets the keys of all others: this node left its cluster.
    pub(crate) fn forget_keys(&self) {
        *lock(&self.keyring) = None;
    }

    /// Agrees with a member on keys for datagrams, in a session for that alone.
    ///
    /// # Errors
    /// The member is not reached, or refuses.
    pub(crate) async fn agree(&self, node: &NodeName) -> Result<(), CallError> {
        let mut stream = self.cluster.connect(node.as_str()).await?;
        let sent = now_ms();
        let time_ms = match ask(&mut stream, &NodeRequest::Keys { time_ms: sent }).await? {
            NodeReply::Keys { time_ms } => Some(time_ms),
            NodeReply::Removed { notice } => {
                return Err(self.cluster.refused_by(node.as_str(), notice));
            }
            _ => None,
        };
        let Some(time_ms) = time_ms else {
            // It does not know us: its list is older than ours.
            if let Some(request) = self.roster_request() {
                ask(&mut stream, &request).await?;
            }
            return Err(CallError::Unknown);
        };
        // Half of the round trip lies between its clock's reading and ours.
        let middle = sent.midpoint(now_ms());
        let skew = time_ms.cast_signed().saturating_sub(middle.cast_signed());
        self.peers().differs(node.as_str(), skew);
        let (socket, session) = stream.get_ref();
        let address = socket.peer_addr().map_err(peers::FrameError::from)?;
        let identity = |error: whim_net::tls::TlsError| CallError::Identity(error.to_string());
        let secret = Secret::of_session(session).map_err(identity)?;
        self.with_keyring(|ring, now| {
            let installed = ring.install(now, node, &secret, Part::Asking, Some(address));
            installed.map(drop).map_err(identity)
        })?
    }

    /// A member asks for keys, in the session that gives this secret.
    pub(crate) fn agreed(&self, peer: &PeerIdentity, secret: &Secret, time_ms: u64) -> NodeReply {
        let now = now_ms();
        let skew = time_ms.cast_signed().saturating_sub(now.cast_signed());
        self.peers().differs(peer.node.as_str(), skew);
        let installed = self.with_keyring(|ring, at| {
            let fresh = ring.install(at, &peer.node, secret, Part::Answering, None);
            fresh.map_err(|error| CallError::Identity(error.to_string()))
        });
        match installed {
            Ok(Ok(_)) => NodeReply::Keys { time_ms: now },
            Ok(Err(error)) | Err(error) => NodeReply::Refused {
                reason: error.to_string(),
            },
        }
    }

    /// Asks a member for the class and the labels, which its state leaves out.
    ///
    /// # Errors
    /// It is not reached, or its answer makes no sense.
    pub(crate) async fn about(&self, node: &str) -> Result<About, CallError> {
        let request = NodeRequest::About;
        match self.cluster.call(node, &request, ANSWER_TIMEOUT).await? {
            NodeReply::About { about } if about.is_sound() => Ok(about),
            _ => Err(CallError::Refused("it tells no class and labels".into())),
        }
    }

    /// Fetches the list of a member that has a newer one, and accepts it.
    ///
    /// # Errors
    /// It is not reached.
    pub(crate) async fn fetch_roster(&self, node: &str) -> Result<(), CallError> {
        let request = NodeRequest::WantMembers;
        let reply = self.cluster.call(node, &request, ANSWER_TIMEOUT).await?;
        if let NodeReply::Members { signed, removals } = reply {
            self.accept_roster(signed, removals);
        }
        Ok(())
    }

    fn roster_request(&self) -> Option<NodeRequest> {
        let signed = serde_json::to_value(self.cluster.signed_roster()?).ok()?;
        let removals = self.removals();
        Some(NodeRequest::Members { signed, removals })
    }

    pub(crate) fn removals(&self) -> Vec<serde_json::Value> {
        let all = self.cluster.removals().into_iter();
        all.filter_map(|signed| serde_json::to_value(signed).ok())
            .collect()
    }

    pub(crate) fn accept_roster(
        &self,
        signed: serde_json::Value,
        removals: Vec<serde_json::Value>,
    ) -> NodeReply {
        let refused = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "a list of members is refused");
            NodeReply::Refused {
                reason: error.to_string(),
            }
        };
        let signed: SignedRoster = match serde_json::from_value(signed) {
            Ok(signed) => signed,
            Err(error) => return refused(&error),
        };
        let removals = removals.into_iter().take(REMOVALS_MAX);
        let removals: Vec<SignedRemoval> = removals
            .filter_map(|signed| serde_json::from_value(signed).ok())
            .collect();
        // They are notices of nodes that the new list leaves out. Without them those are refused too, but are not
        // told why.
        let noted = self
            .cluster
            .with_state(|state| state.accept_removals(&removals));
        if let Err(error) = noted {
            tracing::warn!(%error, "a notice of a removal is not taken");
        }
        match self.cluster.accept_roster(&signed) {
            Ok(newer) => {
                if newer {
                    self.drop_keys();
                    tracing::info!(
                        version = self.cluster.version(),
                        "the list of members changed"
                    );
                }
                NodeReply::Done
            }
            Err(error) => refused(&error),
        }
    }

    /// Drops the keys of nodes that are no members any more: they are not listened to from now on.
    pub(crate) fn drop_keys(&self) {
        let members = self.cluster.members();
        let is_member = |name: &NodeName| members.iter().any(|member| member.name == name.as_str());
        // Without a cluster there are no keys.
        let _ = self.with_keyring(|ring, _| ring.retain(is_member));
    }

    /// Sends our list of members to all of them, at once.
    pub(crate) fn push(self: &Arc<Self>) {
        let Some(request) = self.roster_request() else {
            return;
        };
        let own = self.cluster.node();
        for member in self.cluster.members().into_iter().filter(|m| m.name != own) {
            let (membership, request) = (Arc::clone(self), request.clone());
            tokio::spawn(async move {
                // A member that does not hear it now learns of it from the next datagram.
                if let Err(error) = membership
                    .cluster
                    .call(&member.name, &request, ANSWER_TIMEOUT)
                    .await
                {
                    tracing::debug!(name = member.name, %error, "a member was not told of a change");
                }
            });
        }
    }

    /// Tells all members what `news` gives, and returns when each has answered or had its time. Whoever is held for
    /// down is not tried. `news` is asked in its turn, so that of two changes nobody hears the earlier one last.
    pub(crate) async fn tell_all(
        self: &Arc<Self>,
        news: impl FnOnce() -> NodeRequest,
    ) -> Vec<Untold> {
        let _turn = self.telling.lock().await;
        let request = news();
        let own = self.cluster.node();
        let mut untold = Vec::new();
        let mut telling = JoinSet::new();
        for member in self.cluster.members().into_iter().filter(|m| m.name != own) {
            let node = member.name;
            if self.peers().state(&node) == NodeState::Down {
                untold.push(Untold { node, down: true });
                continue;
            }
            let (membership, request) = (Arc::clone(self), request.clone());
            telling.spawn(async move {
                let cluster = &membership.cluster;
                let said = cluster.call(&node, &request, ANSWER_TIMEOUT).await;
                (!matches!(said, Ok(NodeReply::Done))).then_some(Untold { node, down: false })
            });
        }
        untold.extend(telling.join_all().await.into_iter().flatten());
        untold.sort_by(|one, other| one.node.cmp(&other.node));
        untold
    }

    /// Tells a node that was removed what the CA says of it, and no more, before we hang up. What the node says
    /// meanwhile is not looked at.
    pub(crate) async fn tell_removed(
        &self,
        peer: &PeerIdentity,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) {
        let reply = self.removed_reply(peer);
        let telling = async {
            peers::send(stream, &reply).await?;
            stream.shutdown().await?;
            // Its question is received, because unread data would break the connection before our answer is
            // there.
            let mut question = stream.take(QUESTION_MAX);
            tokio::io::copy(&mut question, &mut tokio::io::sink()).await?;
            Ok::<(), peers::FrameError>(())
        };
        // A node that does not listen is not told.
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, telling).await;
    }

    /// The answer to whatever a removed node asks.
    #[must_use]
    pub(crate) fn removed_reply(&self, peer: &PeerIdentity) -> NodeReply {
        let notice = self.cluster.removal_of(peer);
        NodeReply::Removed {
            notice: notice.and_then(|notice| serde_json::to_value(notice).ok()),
        }
    }

    pub(crate) fn renew(
        &self,
        peer: &PeerIdentity,
        request: serde_json::Value,
    ) -> Result<NodeReply, ClusterError> {
        let request: RenewRequest =
            serde_json::from_value(request).map_err(|e| StateError::Encode(e.to_string()))?;
        let issued = self
            .cluster
            .with_state(|state| state.renew(peer, &request, cluster::now()))?;
        Ok(NodeReply::Renewed {
            certificate: to_value(&issued)?,
        })
    }

    pub(crate) async fn keep_addresses(self: &Arc<Self>) -> Result<(), ClusterError> {
        let own = self.cluster.node();
        let addresses = self.cluster.addresses();
        let class = self.cluster.class().to_string();
        let known = self.cluster.member(&own);
        if known.is_none_or(|known| known.addresses == addresses && known.class == class) {
            return Ok(());
        }
        if self.cluster.is_holder() {
            let name = NodeName::new(own)?;
            let now = cluster::now();
            if self
                .cluster
                .with_state(|s| s.update_member(&name, &addresses, &class, now))?
            {
                self.push();
            }
            return Ok(());
        }
        let holder = self.cluster.holder().ok_or(ClusterError::NoCluster)?;
        let request = NodeRequest::Update { addresses, class };
        match self.cluster.call(&holder, &request, ANSWER_TIMEOUT).await {
            Ok(NodeReply::Refused { reason }) => Err(ClusterError::Refused { holder, reason }),
            Ok(_) => Ok(()),
            Err(source) => Err(ClusterError::Farewell { holder, source }),
        }
    }
}

async fn ask(
    stream: &mut TlsStream<TcpStream>,
    request: &NodeRequest,
) -> Result<NodeReply, CallError> {
    let asked = async {
        peers::send(stream, request).await?;
        peers::receive(stream).await
    };
    let late = |_| CallError::Timeout(ANSWER_TIMEOUT.as_secs());
    Ok(tokio::time::timeout(ANSWER_TIMEOUT, asked)
        .await
        .map_err(late)??)
}

/// A sentence that says why a member refuses this node; `None` if it does not, as far as is known.
#[must_use]
pub(crate) fn refusal(node: &str, removed: Option<u64>) -> Option<String> {
    removed.map(|at| format!("{node} refuses this node: it was removed on {}", date(at)))
}

/// The day and time of a Unix second, as messages have it.
pub(crate) fn date(seconds: u64) -> String {
    moment(seconds.saturating_mul(1000))
}

pub(crate) fn to_value(value: &impl serde::Serialize) -> Result<serde_json::Value, ClusterError> {
    serde_json::to_value(value).map_err(|e| StateError::Encode(e.to_string()).into())
}
