//! What follows when the members change: guests and processes of removed nodes leave; this node leaves.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

use crate::host::hosting;
use crate::leaving::eviction;
use crate::members::cluster::{CallError, ClusterError};
use crate::members::membership::ANSWER_TIMEOUT;
use crate::members::peers::{NodeReply, NodeRequest};
use crate::members::upkeep;
use crate::moves::Moves;

/// How often certificates and addresses are checked.
const UPKEEP: Duration = Duration::from_secs(60);
/// How often this node's standing, and its ties to nodes that are no members, are checked while the members do not
/// change.
const CHECK: Duration = Duration::from_secs(1);

/// Runs for ever: does what follows when the members change, and keeps this node a member.
pub(crate) async fn watch(moves: Arc<Moves>) {
    let mut changes = moves.ground().cluster().changes();
    let mut interval = tokio::time::interval(CHECK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut upkeep = Duration::ZERO;
    let mut noted = None;
    loop {
        tokio::select! {
            Ok(()) = changes.changed() => {}
            _ = interval.tick() => upkeep::note_standing(moves.ground()),
        }
        note_name(&moves, &mut noted);
        evict(&moves);
        if upkeep <= moves.ground().clock() && moves.ground().cluster().is_member() {
            upkeep = moves.ground().clock() + UPKEEP;
            let moves = Arc::clone(&moves);
            tokio::spawn(async move { upkeep::keep_up(moves.ground()).await });
        }
    }
}

/// Notes this node's name beside the control socket, unless that was the name at the last attempt.
fn note_name(moves: &Moves, noted: &mut Option<String>) {
    let name = moves.ground().cluster().node();
    if noted.as_ref() != Some(&name) {
        if let Err(error) = moves.ground().settings().note_node(&name) {
            tracing::warn!(%error, "what this node is called is not noted: 'whim run --on', '--only' and '--avoid' wait while there is no daemon");
        }
        *noted = Some(name);
    }
}

/// Parts with nodes that are no members any more: our processes come home from there, and their guests
/// go.
fn evict(moves: &Arc<Moves>) {
    let cluster = moves.ground().cluster();
    if !cluster.is_member() {
        return;
    }
    let members = cluster.members();
    let stranger = |name: &str| !members.iter().any(|member| member.name == name);
    eviction::evict(moves, stranger);
    let guests: Vec<_> = moves.host().guests().by_key.values().cloned().collect();
    for guest in guests.iter().filter(|guest| stranger(&guest.request.home)) {
        let request = &guest.request;
        hosting::release(moves.host(), &request.home, &request.journey, request.epoch);
    }
}

/// `whim leave`.
///
/// # Errors
/// Processes are away or visiting (unless `force`), or the holder of the CA cannot be told.
pub(crate) async fn leave(moves: &Arc<Moves>, force: bool) -> Result<String, ClusterError> {
    let cluster = moves.ground().cluster();
    let holder = cluster.holder().ok_or(ClusterError::NoCluster)?;
    let own = cluster.node();
    let busy = moves.journeys().live().len() + moves.host().guests().by_key.len();
    if busy > 0 && !force {
        return Err(ClusterError::InUse(busy));
    }
    let mut lost = String::new();
    // The CA of a node that was removed is in use elsewhere.
    if cluster.is_holder() && cluster.removed().is_none() {
        let others: Vec<String> = cluster
            .members()
            .into_iter()
            .map(|m| m.name)
            .filter(|n| *n != own)
            .collect();
        if !others.is_empty() && !force {
            return Err(ClusterError::HolderLeaves(others.join(", ")));
        }
        if !others.is_empty() {
            lost = format!(
                ". The CA of the cluster was here. Without it nobody is admitted or removed, and certificates are not renewed: on one of the others ({}), take it up from a backup ('whim leave --force', 'whim init --restore FILE')",
                others.join(", ")
            );
        }
    } else {
        let told = match cluster.removed() {
            // The CA has said so: nobody needs to be told.
            Some(_) => Ok(NodeReply::Done),
            None => {
                let farewell = cluster.call(&holder, &NodeRequest::Leave, ANSWER_TIMEOUT);
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
    cluster.forget()?;
    moves.ground().membership().forget_keys();
    cluster.announce_change();
    moves.ground().events().add(
        None,
        "left-cluster",
        format!("{own} is in no cluster any more"),
    );
    Ok(format!(
        "{own} has left the cluster, and is in none now{lost}"
    ))
}
