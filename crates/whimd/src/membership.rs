//! Heartbeats, the list of members as it spreads, renewals, and leaving.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use whim_net::name::NodeName;
use whim_net::roster::SignedRoster;
use whim_net::state::RenewRequest;
use whim_net::tls::issue::Issued;
use whim_net::{PeerIdentity, StateError};

use crate::cluster::{self, CallError, ClusterError};
use crate::daemon::Daemon;
use crate::events::now_ms;
use crate::peers::{self, HEARTBEAT, NodeReply, NodeRequest};
use crate::sensors::Report;
use crate::{hosting, moving};

/// An answer to a heartbeat that takes longer does not come any more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Certificates and addresses are looked at this often.
const UPKEEP: Duration = Duration::from_secs(60);

/// Runs for ever: keeps one conversation with every member.
pub async fn beat(daemon: Arc<Daemon>) {
    let mut talks: HashMap<String, JoinHandle<()>> = HashMap::new();
    let mut upkeep = Instant::now();
    let mut interval = tokio::time::interval(HEARTBEAT);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = daemon.cluster.changed.notified() => {}
        }
        let own = daemon.cluster.node();
        let members: Vec<String> = daemon
            .cluster
            .members()
            .into_iter()
            .map(|m| m.name)
            .filter(|n| *n != own)
            .collect();
        talks.retain(|name, talk| {
            let stays = members.contains(name) && !talk.is_finished();
            if !stays {
                talk.abort();
                if !members.contains(name) {
                    daemon.peers().forget(name);
                }
            }
            stays
        });
        evict(&daemon, &own, &members);
        for name in members {
            let daemon = Arc::clone(&daemon);
            talks
                .entry(name.clone())
                .or_insert_with(|| tokio::spawn(async move { talk(&daemon, &name).await }));
        }
        if daemon.cluster.is_member() && upkeep <= Instant::now() {
            upkeep = Instant::now() + UPKEEP;
            let daemon = Arc::clone(&daemon);
            tokio::spawn(async move { keep_up(&daemon).await });
        }
    }
}

/// What has to do with nodes that are no members any more: our processes come home from there, and
/// their guests go.
fn evict(daemon: &Arc<Daemon>, own: &str, others: &[String]) {
    let stranger = |name: &str| name != own && !others.iter().any(|other| other == name);
    if !daemon.cluster.is_member() {
        return;
    }
    for journey in daemon.journeys().live() {
        if stranger(journey.location()) && !daemon.is_moving(journey.about.pid) {
            let daemon = Arc::clone(daemon);
            tokio::spawn(async move { moving::recall(&daemon, &journey).await });
        }
    }
    let guests: Vec<_> = daemon.guests().by_key.values().cloned().collect();
    for guest in guests.iter().filter(|guest| stranger(&guest.request.home)) {
        let request = &guest.request;
        hosting::release(daemon, &request.home, &request.journey, request.epoch);
    }
}

/// Tells one member each second that we live; connects again for as long as it is a member.
async fn talk(daemon: &Arc<Daemon>, name: &str) {
    loop {
        match daemon.cluster.connect(name).await {
            Ok(mut stream) => {
                if let Err(error) = converse(daemon, name, &mut stream).await {
                    tracing::debug!(name, %error, "a conversation ended");
                }
            }
            Err(error) => tracing::debug!(name, %error, "a member is not reached"),
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

async fn converse(
    daemon: &Arc<Daemon>,
    name: &str,
    stream: &mut TlsStream<TcpStream>,
) -> Result<(), CallError> {
    let mut interval = tokio::time::interval(HEARTBEAT);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let sent = now_ms();
        let beat = NodeRequest::Heartbeat {
            report: daemon.report(),
            members: daemon.cluster.version(),
            time_ms: sent,
        };
        let reply = ask(stream, &beat).await?;
        let NodeReply::Heartbeat {
            report,
            members,
            time_ms,
        } = reply
        else {
            // It does not know us: its list is older than ours.
            if let Some(request) = roster_request(daemon) {
                ask(stream, &request).await?;
            }
            continue;
        };
        // Half of the round trip lies between its clock's reading and ours.
        let middle = sent.midpoint(now_ms());
        let skew = time_ms.cast_signed().saturating_sub(middle.cast_signed());
        daemon.peers().heard(name, report, skew, Instant::now());
        let ours = daemon.cluster.version();
        if members > ours {
            if let NodeReply::Members { signed } = ask(stream, &NodeRequest::WantMembers).await? {
                take_roster(daemon, signed);
            }
        } else if members < ours
            && let Some(request) = roster_request(daemon)
        {
            ask(stream, &request).await?;
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
            // One that does not hear it now learns of it by the next heartbeat.
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

/// A heartbeat of another node came in.
pub fn heard(
    daemon: &Daemon,
    name: &str,
    report: Report,
    _members: u64,
    time_ms: u64,
) -> NodeReply {
    let now = now_ms();
    let skew = time_ms.cast_signed().saturating_sub(now.cast_signed());
    daemon.peers().heard(name, report, skew, Instant::now());
    NodeReply::Heartbeat {
        report: daemon.report(),
        members: daemon.cluster.version(),
        time_ms: now,
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
    daemon.events.add(
        None,
        "left-cluster",
        format!("{own} is in no cluster any more"),
    );
    Ok(())
}

/// Renews certificates in time, and tells the holder when our addresses or our class have changed.
async fn keep_up(daemon: &Arc<Daemon>) {
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
