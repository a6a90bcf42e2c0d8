//! Keeps this node a member, and tells others of members: renewals, admissions, removals.

use std::time::{Duration, Instant};
use whim_control::protocol::NodeState;
use whim_net::join::{Asked, JoinRefusal, Served};
use whim_net::name::NodeName;
use whim_net::tls::issue::Issued;
use whim_net::token::TokenRefusal;
use whim_net::{PeerIdentity, StateError};

use crate::ground::Ground;
use crate::members::cluster::{self, ClusterError};
use crate::members::gossip::About;
use crate::members::membership::{ANSWER_TIMEOUT, date, to_value};
use crate::members::peers::{NodeReply, NodeRequest};

/// Members that reach each other have heard of each other within this time.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

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
pub(crate) fn note_standing(ground: &Ground) {
    let removed = ground.cluster().removed();
    let before = std::mem::replace(&mut ground.peers().refused_since, removed);
    if let Some(at) = removed
        && before != removed
    {
        let text = format!("This node, from the cluster, on {}", date(at));
        ground.events().add(None, "removed", text);
    }
}

/// Answers what concerns membership; `about`: what this node tells of itself.
pub(crate) fn answer(
    ground: &Ground,
    peer: &PeerIdentity,
    request: NodeRequest,
    about: impl FnOnce() -> About,
) -> NodeReply {
    let result = match request {
        NodeRequest::Members { signed, removals } => {
            return ground.membership().accept_roster(signed, removals);
        }
        NodeRequest::WantMembers => match ground.cluster().signed_roster() {
            Some(signed) => to_value(&signed).map(|signed| NodeReply::Members {
                signed,
                removals: ground.membership().removals(),
            }),
            None => Err(ClusterError::NoCluster),
        },
        NodeRequest::Renew { request } => ground.membership().renew(peer, request),
        NodeRequest::Update { addresses, class } => ground
            .cluster()
            .with_state(|state| state.update_member(&peer.node, &addresses, &class, cluster::now()))
            .map(|changed| {
                if changed {
                    ground.membership().push();
                }
                NodeReply::Done
            }),
        NodeRequest::Keys { .. } => {
            return NodeReply::Refused {
                reason: "This session has given its keys".into(),
            };
        }
        NodeRequest::About => {
            return NodeReply::About { about: about() };
        }
        NodeRequest::Ordered { ordered } => {
            let mut peers = ground.peers();
            peers.ordered(peer.node.as_str(), ordered, Instant::now());
            return NodeReply::Done;
        }
        NodeRequest::Heard => match ground.peers().state(peer.node.as_str()) {
            NodeState::Down => {
                return NodeReply::Refused {
                    reason: "No datagram of yours has come".into(),
                };
            }
            _ => return NodeReply::Done,
        },
        NodeRequest::Leave => remove(ground, &peer.node).map(|()| NodeReply::Done),
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

/// Waits until this node and a member have heard of each other: whoever lists the nodes right behind `whim join` would
/// see the new one as down. False if that has not come about after some seconds, as where a port is open for TCP alone.
pub(crate) async fn is_reached(ground: &Ground, member: &str) -> bool {
    let end = Instant::now() + REACHED_WITHIN;
    while Instant::now() < end {
        if ground.peers().state(member) != NodeState::Down && is_heard(ground, member).await {
            return true;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    false
}

/// Whether datagrams of this node have come to a member. One that does not know the question hangs up.
async fn is_heard(ground: &Ground, member: &str) -> bool {
    let cluster = ground.cluster();
    let told = cluster
        .call(member, &NodeRequest::Heard, ANSWER_TIMEOUT)
        .await;
    !matches!(told, Ok(NodeReply::Refused { .. }))
}

/// Renews certificates in time, and tells the holder when our addresses or our class have changed.
pub(crate) async fn keep_up(ground: &Ground) {
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
