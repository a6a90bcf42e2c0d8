//! Room at a host: asked for, and given back.

use std::time::Duration;
use whim_control::protocol::LeaseChoice;
use whim_journey::job::Slot;
use whim_net::name::{journey_server_name, stay_server_name};
use whim_net::roster::{ADDRESS_LENGTH_MAX, ADDRESSES_MAX};
use whim_net::{JourneyId, Role};

use crate::members::cluster::Cluster;
use crate::members::peers::AdmitRequest;
use crate::members::peers::{NodeReply, NodeRequest};
use crate::moves::Moves;
use crate::moves::attempt::{MoveError, Target};
use crate::moves::candidate::Candidate;
use crate::moves::journeys::Journey;

/// A host answers a request for room within this time, in which it starts a supervisor.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Asks `node` for room. Returns where the guest is to be sent, and the pid of the supervisor there.
///
/// # Errors
/// The node refuses, or cannot be asked.
pub(crate) async fn admit(
    moves: &Moves,
    target: &Target,
    journey: &str,
    node: &str,
    epoch: u32,
) -> Result<(Slot, i32), MoveError> {
    let cluster = moves.ground().cluster();
    let faults = &moves.ground().settings().faults;
    let class = moves.host().sensors().class().clone();
    let away = target
        .journey
        .as_ref()
        .and_then(|journey| journey.status.as_ref());
    let request = AdmitRequest {
        journey: journey.to_string(),
        epoch,
        home: cluster.node(),
        pid: target.stat.pid,
        uid: target.credentials.uids[0],
        threads: target.stat.threads,
        memory_bytes: away.map_or(target.stat.resident_bytes, |status| status.resident_bytes),
        class,
        portable: target.candidate.features.clone(),
        lease_ms: lease(moves, Some(&target.candidate), target.journey.as_ref()).milliseconds(),
        done_ms: target.candidate.done_ms,
        source: away
            .filter(|status| status.location != status.home)
            .map(|status| status.location.clone()),
    };
    let request = NodeRequest::Admit { request };
    faults.point("before-admit-request");
    let reply = cluster.call(node, &request, ADMIT_TIMEOUT).await;
    faults.point("after-admit-request");
    match reply {
        Ok(NodeReply::Slot {
            slot,
            supervisor_pid,
        }) if is_asked_for(cluster, &slot, (journey, node, epoch)) => Ok((slot, supervisor_pid)),
        Ok(NodeReply::Refused { reason }) => Err(MoveError::Refused(reason)),
        Ok(_) => Err(MoveError::Nonsense(node.to_string())),
        Err(source) => Err(MoveError::Call {
            node: node.to_string(),
            source,
        }),
    }
}

/// Whether a host offers what it was asked for. This is checked because the names in its offer end up in
/// messages to the supervisor.
fn is_asked_for(cluster: &Cluster, slot: &Slot, (journey, node, epoch): (&str, &str, u32)) -> bool {
    let id = JourneyId::new(journey).ok();
    let names = id.zip(cluster.identity()).map(|(id, home)| {
        // A host of an older version knows a journey by its name alone.
        let older = journey_server_name(&id, Role::Guest);
        [stay_server_name(&home, &id, epoch), older]
    });
    slot.node == node
        && slot.epoch == epoch
        && names.is_some_and(|names| names.contains(&slot.server_name))
        && slot.addresses.len() <= ADDRESSES_MAX
        && slot
            .addresses
            .iter()
            .all(|address| address.len() <= ADDRESS_LENGTH_MAX)
}

/// Tells a host that the process is not there. Home alone decides where it is, so the host ends whatever
/// waits or runs there under that epoch. False if the host did not hear it.
pub(crate) async fn release(moves: &Moves, node: &str, journey: &str, epoch: u32) -> bool {
    let faults = &moves.ground().settings().faults;
    let request = NodeRequest::Release {
        journey: journey.to_string(),
        epoch,
    };
    faults.point("before-slot-given-back");
    let called = moves
        .ground()
        .cluster()
        .call(node, &request, ADMIT_TIMEOUT)
        .await;
    if let Err(error) = &called {
        tracing::debug!(%error, node, "a slot was not given back; it ends by itself");
    }
    faults.point("after-slot-given-back");
    called.is_ok()
}

/// The lease (T2) of the journey that this process is on, or else of a journey that begins now.
#[must_use]
pub(crate) fn lease(
    moves: &Moves,
    candidate: Option<&Candidate>,
    journey: Option<&Journey>,
) -> LeaseChoice {
    let noted = journey.and_then(|journey| journey.about.notes.lease);
    let chosen = || candidate.and_then(|candidate| candidate.options.lease);
    noted
        .or_else(chosen)
        .unwrap_or_else(|| moves.ground().config().lease.0)
}
