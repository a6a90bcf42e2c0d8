//! Nodes to which a process may go, and the best of them, when somebody asks for a move.

use crate::host::orders::Shut;
use crate::members::cluster::Cluster;
use crate::members::membership;
use crate::members::membership::{ANSWER_TIMEOUT, Membership};
use crate::members::peers::{NodeReply, NodeRequest};
use crate::moves::Moves;
use crate::moves::attempt::{HOME, MoveError, Target};
use crate::moves::candidate::Candidate;
use crate::moves::journeys::Journey;
use whim_control::protocol::NodeState;
use whim_control::similar;
use whim_net::NodeName;

/// Names of the members, for a message.
fn known(cluster: &Cluster) -> String {
    let names: Vec<String> = cluster.members().into_iter().map(|m| m.name).collect();
    if names.is_empty() {
        "no members yet ('whim init' or 'whim join')".into()
    } else {
        names.join(", ")
    }
}

/// Whether there is such a node.
///
/// # Errors
/// There is none; which ones there are, and which one may be meant; or, if none may, that no node can be called so.
pub(crate) fn known_node(moves: &Moves, node: &str) -> Result<(), MoveError> {
    let cluster = moves.ground().cluster();
    if cluster.member(node).is_some() {
        return Ok(());
    }
    let members = cluster.members();
    let names = members.iter().map(|member| member.name.as_str());
    let meant = similar::question(node, names);
    if meant.is_empty() {
        NodeName::new(node)?;
    }
    Err(MoveError::UnknownNode {
        node: node.escape_debug().to_string(),
        meant,
        known: known(cluster),
    })
}

/// Whether a process may go to this node now.
///
/// # Errors
/// Why not.
pub(crate) fn check(moves: &Moves, target: &Target, node: &str) -> Result<(), MoveError> {
    let pid = target.stat.pid;
    known_node(moves, node)?;
    if target
        .journey
        .as_ref()
        .is_some_and(|journey| journey.location() == node)
    {
        return Err(MoveError::There {
            pid,
            node: node.to_string(),
        });
    }
    takes(moves, &target.candidate, node)
}

/// Whether a node takes such a program now.
///
/// # Errors
/// Why not.
pub(crate) fn takes(moves: &Moves, candidate: &Candidate, node: &str) -> Result<(), MoveError> {
    let labels = labels_of(moves.ground().membership(), node);
    if let Some(why) = candidate.forbids(node, &labels) {
        return Err(MoveError::Forbidden {
            pid: candidate.pid,
            node: node.to_owned(),
            why,
        });
    }
    let (state, shut, different) = {
        let peers = moves.ground().peers();
        let report = peers.get(node).map(|health| &health.report);
        let class = report.map(|report| report.class.clone());
        let shut = report.and_then(Shut::of);
        let needed = candidate.features.as_ref();
        let sensors = moves.host().sensors();
        let different = class.and_then(|class| sensors.class().difference(&class, needed));
        (peers.state(node), shut, different)
    };
    let node = node.to_string();
    if let Some(refusal) = membership::refusal(&node, moves.ground().cluster().removed()) {
        return Err(MoveError::Removed(refusal));
    }
    match (state, shut, different) {
        (NodeState::Down, ..) => Err(MoveError::NotUp { node, state }),
        (NodeState::Draining, ..) => Err(MoveError::Draining { node }),
        (_, Some(why), _) => Err(MoveError::Shut { node, why }),
        (NodeState::Up | NodeState::Suspect, None, Some(what)) => {
            Err(MoveError::OtherClass { node, what })
        }
        (NodeState::Up | NodeState::Suspect, None, None) => Ok(()),
    }
}

/// As [`check`]. A node that is said to be drained is asked itself: what it told last may be a second old, and
/// whoever has just lifted the order may move something there at once.
///
/// # Errors
/// Why not.
pub(crate) async fn check_anew(
    moves: &Moves,
    target: &Target,
    node: &str,
) -> Result<(), MoveError> {
    let drained = match check(moves, target, node) {
        Err(drained @ MoveError::Draining { .. }) => drained,
        checked => return checked,
    };
    let request = NodeRequest::Drain {
        on: true,
        told_before: true,
    };
    let cluster = moves.ground().cluster();
    match cluster.call(node, &request, ANSWER_TIMEOUT).await {
        Ok(NodeReply::Drain(remaining)) if remaining.lifted => {
            moves.ground().peers().drains_no_more(node, remaining.still);
            check(moves, target, node)
        }
        _ => Err(drained),
    }
}

/// Whether another node, with this label, takes such a program now; this node has it already.
///
/// # Errors
/// None does; why the last of them does not.
pub(crate) fn any_takes(
    moves: &Moves,
    candidate: &Candidate,
    label: Option<&str>,
) -> Result<(), String> {
    let cluster = moves.ground().cluster();
    let mut why = String::new();
    for member in cluster.members() {
        if label.is_some_and(|label| !is_labelled(moves, &member.name, label)) {
            continue;
        }
        if member.name == cluster.node() {
            match label {
                Some(_) => return Ok(()),
                None => continue,
            }
        }
        match takes(moves, candidate, &member.name) {
            Ok(()) => return Ok(()),
            Err(error) => why = format!(" ({error})"),
        }
    }
    Err(match label {
        Some(label) => format!("No node with the label @{label} takes the program now{why}"),
        None => format!("No other node takes the program now{why}"),
    })
}

/// The labels of a node, as it reported them last.
fn labels_of(membership: &Membership, node: &str) -> Vec<String> {
    let peers = membership.peers();
    let heard = peers.get(node);
    heard.map_or_else(Vec::new, |health| health.report.labels.clone())
}

fn is_labelled(moves: &Moves, node: &str, label: &str) -> bool {
    let labels = labels_of(moves.ground().membership(), node);
    labels.iter().any(|has| has == label)
}

/// Of the nodes with this label, the least loaded one that could take the process.
///
/// # Errors
/// [`MoveError::NoneLabelled`].
pub(crate) fn best_labelled(
    moves: &Moves,
    target: &Target,
    label: &str,
) -> Result<String, MoveError> {
    let found = least_loaded(moves, target, |node| is_labelled(moves, node, label));
    found
        .map(|(_, node)| node)
        .ok_or_else(|| MoveError::NoneLabelled {
            pid: target.stat.pid,
            label: label.to_owned(),
        })
}

/// The least loaded node that could take the process; [`HOME`], if the process is away and home is that.
///
/// # Errors
/// [`MoveError::NoneBest`].
pub(crate) fn best(moves: &Moves, target: &Target) -> Result<String, MoveError> {
    let found = least_loaded(moves, target, |_| true);
    let is_away = |journey: &Journey| !journey.is_at_home();
    if target.journey.as_ref().is_some_and(is_away) {
        let own = moves.host().report();
        let load = own.load / own.cpus.max(0.01);
        if found.as_ref().is_none_or(|(least, _)| load < *least) {
            return Ok(HOME.to_owned());
        }
    }
    found
        .map(|(_, node)| node)
        .ok_or(MoveError::NoneBest(target.stat.pid))
}

/// The least loaded of these nodes that could take the process, and its load per CPU. Home, and the node
/// where the process is, are left out.
pub(crate) fn least_loaded(
    moves: &Moves,
    target: &Target,
    is_meant: impl Fn(&str) -> bool,
) -> Option<(f64, String)> {
    let home = moves.ground().cluster().node();
    let here = target
        .journey
        .as_ref()
        .map_or(home.as_str(), Journey::location)
        .to_string();
    let mut nodes: Vec<(f64, String)> = Vec::new();
    for member in moves.ground().cluster().members() {
        if member.name == home || member.name == here || !is_meant(&member.name) {
            continue;
        }
        let usable = check(moves, target, &member.name).is_ok();
        let peers = moves.ground().peers();
        let up = peers.state(&member.name) == NodeState::Up;
        let Some(health) = peers.get(&member.name).filter(|_| usable && up) else {
            continue;
        };
        if health.report.memory_available_bytes > target.stat.resident_bytes {
            nodes.push((
                health.report.load / health.report.cpus.max(0.01),
                member.name,
            ));
        }
    }
    nodes.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
}
