//! The list of members as it spreads, keys, renewals, and leaving.

use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use whim_net::join::{Asked, JoinRefusal, Served};
use whim_net::name::NodeName;
use whim_net::roster::SignedRoster;
use whim_net::state::RenewRequest;
use whim_net::tls::issue::Issued;
use whim_net::tls::{Part, Secret};
use whim_net::token::TokenRefusal;
use whim_net::{PeerIdentity, StateError};

use crate::cluster::{self, CallError, ClusterError};
use crate::daemon::Daemon;
use crate::events::now_ms;
use crate::peers::{self, NodeReply, NodeRequest};
use crate::word::About;
use crate::{hosting, moving};

/// An answer of another daemon that takes longer does not come any more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What has to do with nodes that are no members any more: our processes come home from there, and
/// their guests go.
pub fn evict(daemon: &Arc<Daemon>) {
    if !daemon.cluster.is_member() {
        return;
    }
    let members = daemon.cluster.members();
    let stranger = |name: &str| !members.iter().any(|member| member.name == name);
    for journey in daemon.journeys().live() {
        if stranger(journey.location()) && !daemon.is_moving(journey.about.pid) {
            let daemon = Arc::clone(daemon);
            tokio::spawn(async move {
                // What goes wrong is in the log of events; it is tried again in a second.
                let _ = moving::bring_back(&daemon, &journey).await;
            });
        }
    }
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
pub async fn agree(daemon: &Arc<Daemon>, node: &NodeName) -> Result<(), CallError> {
    let mut stream = daemon.cluster.connect(node.as_str()).await?;
    let sent = now_ms();
    let reply = ask(&mut stream, &NodeRequest::Keys { time_ms: sent }).await?;
    let NodeReply::Keys { time_ms } = reply else {
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
pub fn agreed(daemon: &Daemon, peer: &PeerIdentity, secret: &Secret, time_ms: u64) -> NodeReply {
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
pub async fn about(daemon: &Daemon, node: &str) -> Result<About, CallError> {
    let request = NodeRequest::About;
    match daemon.cluster.call(node, &request, ANSWER_TIMEOUT).await? {
        NodeReply::About { about } if about.is_sound() => Ok(about),
        _ => Err(CallError::Refused("it tells no class and labels".into())),
    }
}

/// Takes up the list of a member that has a newer one.
///
/// # Errors
/// It is not reached.
pub async fn fetch_roster(daemon: &Arc<Daemon>, node: &str) -> Result<(), CallError> {
    let request = NodeRequest::WantMembers;
    let reply = daemon.cluster.call(node, &request, ANSWER_TIMEOUT).await?;
    if let NodeReply::Members { signed } = reply {
        take_roster(daemon, signed);
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
    let signed = serde_json::to_value(daemon.cluster.signed_roster()?).ok()?;
    Some(NodeRequest::Members { signed })
}

fn take_roster(daemon: &Arc<Daemon>, signed: serde_json::Value) -> NodeReply {
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
    match daemon.cluster.accept_roster(&signed) {
        Ok(newer) => {
            if newer {
                drop_keys(daemon);
                tracing::info!(
                    version = daemon.cluster.version(),
                    "the list of members changed"
                );
            }
            NodeReply::Done
        }
        Err(error) => refused(&error),
    }
}

/// Whoever is no member any more is not listened to from now on.
pub fn drop_keys(daemon: &Daemon) {
    let members = daemon.cluster.members();
    let is_member = |name: &NodeName| members.iter().any(|member| member.name == name.as_str());
    // Without a cluster there are no keys.
    let _ = daemon.with_keyring(|ring, _| ring.retain(is_member));
}

/// Somebody was admitted, or not.
pub fn served(daemon: &Arc<Daemon>, served: Served) {
    let with = |token: Option<String>| token.unwrap_or_else(|| "of no known form".into());
    match served {
        Served::Admitted(Asked { node, token, from }) => {
            let text = format!("Node {node}, from {from}, by token {}", with(token));
            daemon.events.add(None, "joined", text);
            push(daemon);
        }
        // Whoever shows this knows the whole token: it has come into two hands.
        Served::Refused(Asked { node, token, from }, JoinRefusal::Token(TokenRefusal::Used)) => {
            let text = format!(
                "Node {node}, from {from}, by token {}, which was used before",
                with(token)
            );
            daemon.events.add(None, "refused-join", text);
        }
        Served::Refused(..) => {}
    }
}

/// Sends our list of members to all of them, at once.
pub fn push(daemon: &Arc<Daemon>) {
    let Some(request) = roster_request(daemon) else {
        return;
    };
    let own = daemon.cluster.node();
    for member in daemon
        .cluster
        .members()
        .into_iter()
        .filter(|m| m.name != own)
    {
        let (daemon, request) = (Arc::clone(daemon), request.clone());
        tokio::spawn(async move {
            // One that does not hear it now learns of it by the next datagram.
            if let Err(error) = daemon
                .cluster
                .call(&member.name, &request, ANSWER_TIMEOUT)
                .await
            {
                tracing::debug!(name = member.name, %error, "a member was not told of a change");
            }
        });
    }
}

/// Answers what concerns membership.
pub fn answer(daemon: &Arc<Daemon>, peer: &PeerIdentity, request: NodeRequest) -> NodeReply {
    let result = match request {
        NodeRequest::Members { signed } => return take_roster(daemon, signed),
        NodeRequest::WantMembers => match daemon.cluster.signed_roster() {
            Some(signed) => to_value(&signed).map(|signed| NodeReply::Members { signed }),
            None => Err(ClusterError::NoCluster),
        },
        NodeRequest::Renew { request } => renew(daemon, peer, request),
        NodeRequest::Update { addresses, class } => daemon
            .cluster
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
        .cluster
        .with_state(|state| state.renew(peer, &request, cluster::now()))?;
    Ok(NodeReply::Renewed {
        certificate: to_value(&issued)?,
    })
}

/// `whim remove NODE`: out of the list, refused here at once and elsewhere with the next message.
///
/// # Errors
/// We do not hold the CA, or there is no such member.
pub fn remove(daemon: &Arc<Daemon>, node: &NodeName) -> Result<(), ClusterError> {
    daemon
        .cluster
        .with_state(|state| state.remove(node, cluster::now()))?;
    drop_keys(daemon);
    daemon.cluster.changed.notify_one();
    daemon.peers().forget(node.as_str());
    daemon.events.add(
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
pub async fn leave(daemon: &Arc<Daemon>, force: bool) -> Result<(), ClusterError> {
    let holder = daemon.cluster.holder().ok_or(ClusterError::NoCluster)?;
    let own = daemon.cluster.node();
    let busy = daemon.journeys().live().len() + daemon.guests().by_key.len();
    if busy > 0 && !force {
        return Err(ClusterError::InUse(busy));
    }
    if daemon.cluster.is_holder() {
        let others: Vec<String> = daemon
            .cluster
            .members()
            .into_iter()
            .map(|m| m.name)
            .filter(|n| *n != own)
            .collect();
        if !others.is_empty() && !force {
            return Err(ClusterError::HolderLeaves(others.join(", ")));
        }
    } else {
        match daemon
            .cluster
            .call(&holder, &NodeRequest::Leave, ANSWER_TIMEOUT)
            .await
        {
            Ok(NodeReply::Refused { reason }) if !force => {
                return Err(ClusterError::Refused { holder, reason });
            }
            // Refused by its certificate: it was removed there before.
            Ok(_) | Err(CallError::Refused(_)) => {}
            Err(source) if !force => return Err(ClusterError::Farewell { holder, source }),
            Err(_) => {}
        }
    }
    daemon.cluster.forget()?;
    daemon.forget_keys();
    daemon.cluster.changed.notify_one();
    daemon.events.add(
        None,
        "left-cluster",
        format!("{own} is in no cluster any more"),
    );
    Ok(())
}

/// Renews certificates in time, and tells the holder when our addresses or our class have changed.
pub async fn keep_up(daemon: &Arc<Daemon>) {
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
        .cluster
        .with_state(|state| Ok(state.renew_due(now)))?
    {
        return Ok(());
    }
    if daemon.cluster.is_holder() {
        daemon.cluster.with_state(|state| state.renew_self(now))?;
    } else {
        let holder = daemon.cluster.holder().ok_or(ClusterError::NoCluster)?;
        let renewal = daemon.cluster.with_state(|state| state.start_renewal())?;
        let request = NodeRequest::Renew {
            request: to_value(&renewal.request)?,
        };
        let reply = daemon.cluster.call(&holder, &request, ANSWER_TIMEOUT).await;
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
            .cluster
            .with_state(|state| state.finish_renewal(renewal, issued))?;
    }
    daemon.cluster.reissue()?;
    daemon
        .events
        .add(None, "renewed", "This node has a new certificate");
    Ok(())
}

async fn keep_addresses(daemon: &Arc<Daemon>) -> Result<(), ClusterError> {
    let own = daemon.cluster.node();
    let addresses = daemon.cluster.addresses();
    let class = daemon.cluster.class().to_string();
    let known = daemon.cluster.member(&own);
    if known.is_none_or(|known| known.addresses == addresses && known.class == class) {
        return Ok(());
    }
    if daemon.cluster.is_holder() {
        let name = NodeName::new(own)?;
        let now = cluster::now();
        if daemon
            .cluster
            .with_state(|s| s.update_member(&name, &addresses, &class, now))?
        {
            push(daemon);
        }
        return Ok(());
    }
    let holder = daemon.cluster.holder().ok_or(ClusterError::NoCluster)?;
    let request = NodeRequest::Update { addresses, class };
    match daemon.cluster.call(&holder, &request, ANSWER_TIMEOUT).await {
        Ok(NodeReply::Refused { reason }) => Err(ClusterError::Refused { holder, reason }),
        Ok(_) => Ok(()),
        Err(source) => Err(ClusterError::Farewell { holder, source }),
    }
}
