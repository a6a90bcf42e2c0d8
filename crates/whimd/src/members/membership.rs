//! The list of members as it spreads, keys, renewals, and leaving.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use whim_monitor::moment::moment;
use whim_net::join::{Asked, JoinRefusal, Served};
use whim_net::name::NodeName;
use whim_net::removal::{REMOVALS_MAX, SignedRemoval};
use whim_net::roster::SignedRoster;
use whim_net::state::RenewRequest;
use whim_net::tls::issue::Issued;
use whim_net::tls::{Part, Secret};
use whim_net::token::TokenRefusal;
use whim_net::{PeerIdentity, StateError};

use crate::daemon::Daemon;
use crate::host::hosting;
use crate::members::cluster::{self, CallError, ClusterError};
use crate::members::peers::{self, NodeReply, NodeRequest};
use crate::members::word::About;
use crate::moves::eviction;
use crate::past::events::now_ms;

/// An answer of another daemon that takes longer does not come any more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// So much of what a removed node asks is taken, unread, in bytes.
const QUESTION_MAX: u64 = 64 << 10;

/// What has to do with nodes that are no members any more: our processes come home from there, and
/// their guests go.
pub(crate) fn evict(daemon: &Arc<Daemon>) {
    if !daemon.cluster().is_member() {
        return;
    }
    let members = daemon.cluster().members();
    let stranger = |name: &str| !members.iter().any(|member| member.name == name);
    eviction::evict(daemon, stranger);
    let guests: Vec<_> = daemon.guests().by_key.values().cloned().collect();
    for guest in guests.iter().filter(|guest| stranger(&guest.request.home)) {
        let request = &guest.request;
        hosting::release(daemon, &request.home, &request.journey, request.epoch);
    }
}

/// Agrees with a member on keys for datagrams, in a session for that alone.
///
/// # Errors
/// It is not reached, or does not want to.
pub(crate) async fn agree(daemon: &Arc<Daemon>, node: &NodeName) -> Result<(), CallError> {
    let mut stream = daemon.cluster().connect(node.as_str()).await?;
    let sent = now_ms();
    let time_ms = match ask(&mut stream, &NodeRequest::Keys { time_ms: sent }).await? {
        NodeReply::Keys { time_ms } => Some(time_ms),
        NodeReply::Removed { notice } => {
            return Err(daemon.cluster().refused_by(node.as_str(), notice));
        }
        _ => None,
    };
    let Some(time_ms) = time_ms else {
        // It does not know us: its list is older than ours.
        if let Some(request) = roster_request(daemon) {
            ask(&mut stream, &request).await?;
        }
        return Err(CallError::Unknown);
    };
    // Half of the round trip lies between its clock's reading and ours.
    let middle = sent.midpoint(now_ms());
    let skew = time_ms.cast_signed().saturating_sub(middle.cast_signed());
    daemon.peers().differs(node.as_str(), skew);
    let (socket, session) = stream.get_ref();
    let address = socket.peer_addr().map_err(peers::FrameError::from)?;
    let identity = |error: whim_net::tls::TlsError| CallError::Identity(error.to_string());
    let secret = Secret::of_session(session).map_err(identity)?;
    daemon.with_keyring(|ring, now| {
        let installed = ring.install(now, node, &secret, Part::Asking, Some(address));
        installed.map(drop).map_err(identity)
    })?
}

/// A member asks for keys, in the session that gives this secret.
pub(crate) fn agreed(
    daemon: &Daemon,
    peer: &PeerIdentity,
    secret: &Secret,
    time_ms: u64,
) -> NodeReply {
    let now = now_ms();
    let skew = time_ms.cast_signed().saturating_sub(now.cast_signed());
    daemon.peers().differs(peer.node.as_str(), skew);
    let installed = daemon.with_keyring(|ring, at| {
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

/// Asks a member what its state leaves out.
///
/// # Errors
/// It is not reached, or its answer makes no sense.
pub(crate) async fn about(daemon: &Daemon, node: &str) -> Result<About, CallError> {
    let request = NodeRequest::About;
    match daemon
        .cluster()
        .call(node, &request, ANSWER_TIMEOUT)
        .await?
    {
        NodeReply::About { about } if about.is_sound() => Ok(about),
        _ => Err(CallError::Refused("it tells no class and labels".into())),
    }
}

/// Takes up the list of a member that has a newer one.
///
/// # Errors
/// It is not reached.
pub(crate) async fn fetch_roster(daemon: &Arc<Daemon>, node: &str) -> Result<(), CallError> {
    let request = NodeRequest::WantMembers;
    let reply = daemon
        .cluster()
        .call(node, &request, ANSWER_TIMEOUT)
        .await?;
    if let NodeReply::Members { signed, removals } = reply {
        take_roster(daemon, signed, removals);
    }
    Ok(())
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

fn roster_request(daemon: &Daemon) -> Option<NodeRequest> {
    let signed = serde_json::to_value(daemon.cluster().signed_roster()?).ok()?;
    let removals = removals(daemon);
    Some(NodeRequest::Members { signed, removals })
}

fn removals(daemon: &Daemon) -> Vec<serde_json::Value> {
    let all = daemon.cluster().removals().into_iter();
    all.filter_map(|signed| serde_json::to_value(signed).ok())
        .collect()
}

fn take_roster(
    daemon: &Arc<Daemon>,
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
    // They are for whoever is refused by the list: without them it is refused with less of a reason.
    let noted = daemon
        .cluster()
        .with_state(|state| state.accept_removals(&removals));
    if let Err(error) = noted {
        tracing::warn!(%error, "a notice of a removal is not taken");
    }
    match daemon.cluster().accept_roster(&signed) {
        Ok(newer) => {
            if newer {
                drop_keys(daemon);
                tracing::info!(
                    version = daemon.cluster().version(),
                    "the list of members changed"
                );
            }
            NodeReply::Done
        }
        Err(error) => refused(&error),
    }
}

/// Whoever is no member any more is not listened to from now on.
pub(crate) fn drop_keys(daemon: &Daemon) {
    let members = daemon.cluster().members();
    let is_member = |name: &NodeName| members.iter().any(|member| member.name == name.as_str());
    // Without a cluster there are no keys.
    let _ = daemon.with_keyring(|ring, _| ring.retain(is_member));
}

/// Somebody was admitted, or not.
pub(crate) fn served(daemon: &Arc<Daemon>, served: Served) {
    let with = |token: Option<String>| token.unwrap_or_else(|| "of no known form".into());
    match served {
        Served::Admitted(Asked { node, token, from }) => {
            let text = format!("Node {node}, from {from}, by token {}", with(token));
            daemon.events().add(None, "joined", text);
            push(daemon);
        }
        // Whoever shows this knows the whole token: it has come into two hands.
        Served::Refused(Asked { node, token, from }, JoinRefusal::Token(TokenRefusal::Used)) => {
            let text = format!(
                "Node {node}, from {from}, by token {}, which was used before",
                with(token)
            );
            daemon.events().add(None, "refused-join", text);
        }
        Served::Refused(..) => {}
    }
}

/// Sends our list of members to all of them, at once.
pub(crate) fn push(daemon: &Arc<Daemon>) {
    let Some(request) = roster_request(daemon) else {
        return;
    };
    let own = daemon.cluster().node();
    for member in daemon
        .cluster()
        .members()
        .into_iter()
        .filter(|m| m.name != own)
    {
        let (daemon, request) = (Arc::clone(daemon), request.clone());
        tokio::spawn(async move {
            // One that does not hear it now learns of it by the next datagram.
            if let Err(error) = daemon
                .cluster()
                .call(&member.name, &request, ANSWER_TIMEOUT)
                .await
            {
                tracing::debug!(name = member.name, %error, "a member was not told of a change");
            }
        });
    }
}

/// What a node is told that was removed, before it is hung up on: what the CA says of it, and no more. What
/// it says meanwhile is not looked at.
pub(crate) async fn tell_removed(
    daemon: &Daemon,
    peer: &PeerIdentity,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) {
    let reply = removed_reply(daemon, peer);
    let telling = async {
        peers::send(stream, &reply).await?;
        stream.shutdown().await?;
        // Its question is taken from it: what is unread would break the connection before our answer is
        // there.
        let mut question = stream.take(QUESTION_MAX);
        tokio::io::copy(&mut question, &mut tokio::io::sink()).await?;
        Ok::<(), peers::FrameError>(())
    };
    // Who does not listen is not told.
    let _ = tokio::time::timeout(ANSWER_TIMEOUT, telling).await;
}

/// The answer to whatever a node asks that was removed.
#[must_use]
pub(crate) fn removed_reply(daemon: &Daemon, peer: &PeerIdentity) -> NodeReply {
    let notice = daemon.cluster().removal_of(peer);
    NodeReply::Removed {
        notice: notice.and_then(|notice| serde_json::to_value(notice).ok()),
    }
}

/// Notes what has become of this node: it was removed, or is a member again.
pub(crate) fn note_standing(daemon: &Daemon) {
    let removed = daemon.cluster().removed();
    let before = std::mem::replace(&mut daemon.peers().refused_since, removed);
    if let Some(at) = removed
        && before != removed
    {
        let text = format!("This node, from the cluster, on {}", date(at));
        daemon.events().add(None, "removed", text);
    }
}

/// Why a member refuses this node, a sentence; `None`: as far as is known it does not.
#[must_use]
pub(crate) fn refusal(node: &str, removed: Option<u64>) -> Option<String> {
    removed.map(|at| format!("{node} refuses this node: it was removed on {}", date(at)))
}

fn date(seconds: u64) -> String {
    moment(seconds.saturating_mul(1000))
}

/// Answers what concerns membership.
pub(crate) fn answer(daemon: &Arc<Daemon>, peer: &PeerIdentity, request: NodeRequest) -> NodeReply {
    let result = match request {
        NodeRequest::Members { signed, removals } => {
            return take_roster(daemon, signed, removals);
        }
        NodeRequest::WantMembers => match daemon.cluster().signed_roster() {
            Some(signed) => to_value(&signed).map(|signed| NodeReply::Members {
                signed,
                removals: removals(daemon),
            }),
            None => Err(ClusterError::NoCluster),
        },
        NodeRequest::Renew { request } => renew(daemon, peer, request),
        NodeRequest::Update { addresses, class } => daemon
            .cluster()
            .with_state(|state| state.update_member(&peer.node, &addresses, &class, cluster::now()))
            .map(|changed| {
                if changed {
                    push(daemon);
                }
                NodeReply::Done
            }),
        NodeRequest::Keys { .. } => {
            return NodeReply::Refused {
                reason: "This session has given its keys".into(),
            };
        }
        NodeRequest::About => {
            let about = About::of(&daemon.report());
            return NodeReply::About { about };
        }
        NodeRequest::Leave => remove(daemon, &peer.node).map(|()| NodeReply::Done),
        _ => {
            return NodeReply::Refused {
                reason: "This is no question of membership".into(),
            };
        }
    };
    result.unwrap_or_else(|error| NodeReply::Refused {
        reason: error.to_string(),
    })
}

fn to_value(value: &impl serde::Serialize) -> Result<serde_json::Value, ClusterError> {
    serde_json::to_value(value).map_err(|e| StateError::Encode(e.to_string()).into())
}

fn renew(
    daemon: &Daemon,
    peer: &PeerIdentity,
    request: serde_json::Value,
) -> Result<NodeReply, ClusterError> {
    let request: RenewRequest =
        serde_json::from_value(request).map_err(|e| StateError::Encode(e.to_string()))?;
    let issued = daemon
        .cluster()
        .with_state(|state| state.renew(peer, &request, cluster::now()))?;
    Ok(NodeReply::Renewed {
        certificate: to_value(&issued)?,
    })
}

/// `whim remove NODE`: out of the list, refused here at once and elsewhere with the next message.
///
/// # Errors
/// We do not hold the CA, or there is no such member.
pub(crate) fn remove(daemon: &Arc<Daemon>, node: &NodeName) -> Result<(), ClusterError> {
    daemon
        .cluster()
        .with_state(|state| state.remove(node, cluster::now()))?;
    drop_keys(daemon);
    daemon.cluster().changed.notify_one();
    daemon.peers().forget(node.as_str());
    daemon.events().add(
        None,
        "removed",
        format!("Node {node} is no member any more"),
    );
    push(daemon);
    Ok(())
}

/// `whim leave`.
///
/// # Errors
/// Processes are away or visiting (unless `force`), or the holder of the CA cannot be told.
pub(crate) async fn leave(
    daemon: &Arc<Daemon>,
    force: bool,
) -> Result<Option<String>, ClusterError> {
    let holder = daemon.cluster().holder().ok_or(ClusterError::NoCluster)?;
    let own = daemon.cluster().node();
    let busy = daemon.journeys().live().len() + daemon.guests().by_key.len();
    if busy > 0 && !force {
        return Err(ClusterError::InUse(busy));
    }
    let mut lost = None;
    // The CA of a node that was removed is in use elsewhere.
    if daemon.cluster().is_holder() && daemon.cluster().removed().is_none() {
        let others: Vec<String> = daemon
            .cluster()
            .members()
            .into_iter()
            .map(|m| m.name)
            .filter(|n| *n != own)
            .collect();
        if !others.is_empty() && !force {
            return Err(ClusterError::HolderLeaves(others.join(", ")));
        }
        lost = (!others.is_empty()).then(|| {
            format!(
                "The CA of the cluster was here. Without it nobody is admitted or removed, and certificates are not renewed: on one of the others ({}), take it up from a backup ('whim leave --force', 'whim init --restore FILE')",
                others.join(", ")
            )
        });
    } else {
        let told = match daemon.cluster().removed() {
            // The CA has said so: nobody needs to be told.
            Some(_) => Ok(NodeReply::Done),
            None => {
                let farewell = daemon
                    .cluster()
                    .call(&holder, &NodeRequest::Leave, ANSWER_TIMEOUT);
                farewell.await
            }
        };
        match told {
            Ok(NodeReply::Refused { reason }) if !force => {
                return Err(ClusterError::Refused { holder, reason });
            }
            // Refused by its certificate: it was removed there before.
            Ok(_) | Err(CallError::Refused(_) | CallError::Removed(_)) => {}
            Err(source) if !force => return Err(ClusterError::Farewell { holder, source }),
            Err(_) => {}
        }
    }
    daemon.cluster().forget()?;
    daemon.forget_keys();
    daemon.cluster().changed.notify_one();
    daemon.events().add(
        None,
        "left-cluster",
        format!("{own} is in no cluster any more"),
    );
    Ok(lost)
}

/// Renews certificates in time, and tells the holder when our addresses or our class have changed.
pub(crate) async fn keep_up(daemon: &Arc<Daemon>) {
    if let Err(error) = keep_certificate(daemon).await {
        tracing::warn!(%error, "this node's certificate was not renewed; trying again in a minute");
    }
    if let Err(error) = keep_addresses(daemon).await {
        tracing::debug!(%error, "new addresses were not told");
    }
}

async fn keep_certificate(daemon: &Arc<Daemon>) -> Result<(), ClusterError> {
    let now = cluster::now();
    if !daemon
        .cluster()
        .with_state(|state| Ok(state.renew_due(now)))?
    {
        return Ok(());
    }
    if daemon.cluster().is_holder() {
        daemon.cluster().with_state(|state| state.renew_self(now))?;
    } else {
        let holder = daemon.cluster().holder().ok_or(ClusterError::NoCluster)?;
        let renewal = daemon.cluster().with_state(|state| state.start_renewal())?;
        let request = NodeRequest::Renew {
            request: to_value(&renewal.request)?,
        };
        let reply = daemon
            .cluster()
            .call(&holder, &request, ANSWER_TIMEOUT)
            .await;
        let certificate = match reply {
            Ok(NodeReply::Renewed { certificate }) => certificate,
            Ok(NodeReply::Refused { reason }) => {
                return Err(ClusterError::Refused { holder, reason });
            }
            Ok(_) => {
                return Err(ClusterError::Refused {
                    holder,
                    reason: "no answer".into(),
                });
            }
            Err(source) => return Err(ClusterError::Farewell { holder, source }),
        };
        let issued: Issued =
            serde_json::from_value(certificate).map_err(|e| StateError::Encode(e.to_string()))?;
        daemon
            .cluster()
            .with_state(|state| state.finish_renewal(renewal, issued))?;
    }
    daemon.cluster().reissue()?;
    daemon
        .events()
        .add(None, "renewed", "This node has a new certificate");
    Ok(())
}

async fn keep_addresses(daemon: &Arc<Daemon>) -> Result<(), ClusterError> {
    let own = daemon.cluster().node();
    let addresses = daemon.cluster().addresses();
    let class = daemon.cluster().class().to_string();
    let known = daemon.cluster().member(&own);
    if known.is_none_or(|known| known.addresses == addresses && known.class == class) {
        return Ok(());
    }
    if daemon.cluster().is_holder() {
        let name = NodeName::new(own)?;
        let now = cluster::now();
        if daemon
            .cluster()
            .with_state(|s| s.update_member(&name, &addresses, &class, now))?
        {
            push(daemon);
        }
        return Ok(());
    }
    let holder = daemon.cluster().holder().ok_or(ClusterError::NoCluster)?;
    let request = NodeRequest::Update { addresses, class };
    match daemon
        .cluster()
        .call(&holder, &request, ANSWER_TIMEOUT)
        .await
    {
        Ok(NodeReply::Refused { reason }) => Err(ClusterError::Refused { holder, reason }),
        Ok(_) => Ok(()),
        Err(source) => Err(ClusterError::Farewell { holder, source }),
    }
}
