//! What follows when the members change: guests and processes of removed nodes, renewals, leaving.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use whim_net::join::{Asked, JoinRefusal, Served};
use whim_net::name::NodeName;
use whim_net::tls::issue::Issued;
use whim_net::token::TokenRefusal;
use whim_net::{PeerIdentity, StateError};

use crate::ground::Ground;
use crate::host::Host;
use crate::host::hosting;
use crate::leaving::eviction;
use crate::members::cluster::{self, CallError, ClusterError};
use crate::members::gossip::About;
use crate::members::membership::{ANSWER_TIMEOUT, date, to_value};
use crate::members::peers::{NodeReply, NodeRequest};
use crate::moves::Moves;

/// How often certificates and addresses are checked.
const UPKEEP: Duration = Duration::from_secs(60);
/// This node's standing, and what others have to do with it, are looked at so often without a change.
const LOOK: Duration = Duration::from_secs(1);

/// Runs for ever: does what follows when the members change, and keeps this node a member.
pub(crate) async fn watch(moves: Arc<Moves>) {
    let mut changes = moves.ground().cluster().changes();
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut upkeep = Duration::ZERO;
    loop {
        tokio::select! {
            Ok(()) = changes.changed() => {}
            _ = interval.tick() => note_standing(moves.ground()),
        }
        evict(&moves);
        if upkeep <= moves.ground().clock() && moves.ground().cluster().is_member() {
            upkeep = moves.ground().clock() + UPKEEP;
            let moves = Arc::clone(&moves);
            tokio::spawn(async move { keep_up(moves.ground()).await });
        }
    }
}

/// Parts with nodes that are no members any more: our processes come home from there, and their guests
/// go.
fn evict(moves: &Arc<Moves>) {
    if !moves.ground().cluster().is_member() {
        return;
    }
    let members = moves.ground().cluster().members();
    let stranger = |name: &str| !members.iter().any(|member| member.name == name);
    eviction::evict(moves, stranger);
    let guests: Vec<_> = moves.host().guests().by_key.values().cloned().collect();
    for guest in guests.iter().filter(|guest| stranger(&guest.request.home)) {
        let request = &guest.request;
        hosting::release(moves.host(), &request.home, &request.journey, request.epoch);
    }
}

/// Notes that a node was admitted, or came with a token that was used before.
pub(crate) fn served(ground: &Ground, served: Served) {
    let with = |token: Option<String>| token.unwrap_or_else(|| "of no known form".into());
    match served {
        Served::Admitted(Asked { node, token, from }) => {
            let text = format!("Node {node}, from {from}, by token {}", with(token));
            ground.events().add(None, "joined", text);
            ground.membership().push();
        }
        // The node that came knows the whole token, so it has come into two hands.
        Served::Refused(Asked { node, token, from }, JoinRefusal::Token(TokenRefusal::Used)) => {
            let text = format!(
                "Node {node}, from {from}, by token {}, which was used before",
                with(token)
            );
            ground.events().add(None, "refused-join", text);
        }
        Served::Refused(..) => {}
    }
}

/// Notes what has become of this node: it was removed, or is a member again.
fn note_standing(ground: &Ground) {
    let removed = ground.cluster().removed();
    let before = std::mem::replace(&mut ground.peers().refused_since, removed);
    if let Some(at) = removed
        && before != removed
    {
        let text = format!("This node, from the cluster, on {}", date(at));
        ground.events().add(None, "removed", text);
    }
}

/// Answers what concerns membership.
pub(crate) fn answer(host: &Host, peer: &PeerIdentity, request: NodeRequest) -> NodeReply {
    let result = match request {
        NodeRequest::Members { signed, removals } => {
            return host.ground().membership().accept_roster(signed, removals);
        }
        NodeRequest::WantMembers => match host.ground().cluster().signed_roster() {
            Some(signed) => to_value(&signed).map(|signed| NodeReply::Members {
                signed,
                removals: host.ground().membership().removals(),
            }),
            None => Err(ClusterError::NoCluster),
        },
        NodeRequest::Renew { request } => host.ground().membership().renew(peer, request),
        NodeRequest::Update { addresses, class } => host
            .ground()
            .cluster()
            .with_state(|state| state.update_member(&peer.node, &addresses, &class, cluster::now()))
            .map(|changed| {
                if changed {
                    host.ground().membership().push();
                }
                NodeReply::Done
            }),
        NodeRequest::Keys { .. } => {
            return NodeReply::Refused {
                reason: "This session has given its keys".into(),
            };
        }
        NodeRequest::About => {
            let about = About::of(&host.report());
            return NodeReply::About { about };
        }
        NodeRequest::Leave => remove(host.ground(), &peer.node).map(|()| NodeReply::Done),
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

/// `whim remove NODE`: strikes it off the list. It is refused here at once, and elsewhere with the next
/// message.
///
/// # Errors
/// We do not hold the CA, or there is no such member.
pub(crate) fn remove(ground: &Ground, node: &NodeName) -> Result<(), ClusterError> {
    ground
        .cluster()
        .with_state(|state| state.remove(node, cluster::now()))?;
    ground.membership().drop_keys();
    ground.cluster().announce_change();
    ground.peers().forget(node.as_str());
    ground.events().add(
        None,
        "removed",
        format!("Node {node} is no member any more"),
    );
    ground.membership().push();
    Ok(())
}

/// `whim leave`.
///
/// # Errors
/// Processes are away or visiting (unless `force`), or the holder of the CA cannot be told.
pub(crate) async fn leave(moves: &Arc<Moves>, force: bool) -> Result<Option<String>, ClusterError> {
    let holder = moves
        .ground()
        .cluster()
        .holder()
        .ok_or(ClusterError::NoCluster)?;
    let own = moves.ground().cluster().node();
    let busy = moves.journeys().live().len() + moves.host().guests().by_key.len();
    if busy > 0 && !force {
        return Err(ClusterError::InUse(busy));
    }
    let mut lost = None;
    // The CA of a node that was removed is in use elsewhere.
    if moves.ground().cluster().is_holder() && moves.ground().cluster().removed().is_none() {
        let others: Vec<String> = moves
            .ground()
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
        let told = match moves.ground().cluster().removed() {
            // The CA has said so: nobody needs to be told.
            Some(_) => Ok(NodeReply::Done),
            None => {
                let farewell =
                    moves
                        .ground()
                        .cluster()
                        .call(&holder, &NodeRequest::Leave, ANSWER_TIMEOUT);
                farewell.await
            }
        };
        match told {
            Ok(NodeReply::Refused { reason }) if !force => {
                return Err(ClusterError::Refused { holder, reason });
            }
            // This node's certificate was refused: it was removed there before.
            Ok(_) | Err(CallError::Refused(_) | CallError::Removed(_)) => {}
            Err(source) if !force => return Err(ClusterError::Farewell { holder, source }),
            Err(_) => {}
        }
    }
    moves.ground().cluster().forget()?;
    moves.ground().membership().forget_keys();
    moves.ground().cluster().announce_change();
    moves.ground().events().add(
        None,
        "left-cluster",
        format!("{own} is in no cluster any more"),
    );
    Ok(lost)
}

/// Renews certificates in time, and tells the holder when our addresses or our class have changed.
async fn keep_up(ground: &Ground) {
    if let Err(error) = keep_certificate(ground).await {
        tracing::warn!(%error, "this node's certificate was not renewed; trying again in a minute");
    }
    if let Err(error) = ground.membership().keep_addresses().await {
        tracing::debug!(%error, "new addresses were not told");
    }
}

async fn keep_certificate(ground: &Ground) -> Result<(), ClusterError> {
    let now = cluster::now();
    if !ground
        .cluster()
        .with_state(|state| Ok(state.renew_due(now)))?
    {
        return Ok(());
    }
    if ground.cluster().is_holder() {
        ground.cluster().with_state(|state| state.renew_self(now))?;
    } else {
        let holder = ground.cluster().holder().ok_or(ClusterError::NoCluster)?;
        let renewal = ground.cluster().with_state(|state| state.start_renewal())?;
        let request = NodeRequest::Renew {
            request: to_value(&renewal.request)?,
        };
        let reply = ground
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
        ground
            .cluster()
            .with_state(|state| state.finish_renewal(renewal, issued))?;
    }
    ground.cluster().reissue()?;
    ground
        .events()
        .add(None, "renewed", "This node has a new certificate");
    Ok(())
}
