//! Guests leave this node, and its own processes come home: `expel`, `bring`, `drain`, `evacuate`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use whim_journey::job::State;

use crate::host::guests::{Guest, StayId};
use crate::host::hosting;
use crate::host::orders::{NotNoted, Orders, Shut};
use crate::members::membership::Membership;
use crate::members::peers::{
    KEPT_MAX, KEPT_REASON_MAX, KeptGuest, NAMED_MAX, NodeReply, NodeRequest, Ordered, OwnProcess,
    Remaining, Still, UNTOLD_MAX, Untold,
};

use crate::moves::Moves;
use crate::moves::destinations;
use crate::moves::journeys::Journey;
use crate::moves::moving;
use crate::moves::watching;
use crate::words::counted;
use whim_control::protocol::{Answer, NodeState};

/// A home has this long to take a guest away, which may be large and travel over a slow link.
const LEAVING: Duration = Duration::from_secs(3600);
/// A home that cannot be asked, or could not take its process away, is asked again after this.
const AGAIN: Duration = Duration::from_secs(2);
/// How often we check what is left.
const LOOK: Duration = Duration::from_millis(200);
/// How often a draining node is asked what it has left.
const ASK: Duration = Duration::from_millis(500);
/// A node's report is heard within this time, even if two get lost.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
const HEARD_LOOK: Duration = Duration::from_millis(50);

type Answers = UnboundedSender<Answer>;

fn tell(answers: &Answers, text: String) {
    let _ = answers.send(Answer::Notice { text });
}

/// Why a guest has not left, and whether its home can take it away later. If not, the supervisor at home
/// does not answer, and nobody waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotLeaving {
    pub reason: String,
    pub waits: bool,
}

/// Sends all guests away, and returns when none is left that is worth waiting for. Returns how many are
/// left. New guests have to be refused before.
async fn send_all_away(moves: &Arc<Moves>, answers: &Answers) -> usize {
    let mut asked: JoinSet<(StayId, Result<(), NotLeaving>)> = JoinSet::new();
    let mut waiting: HashSet<StayId> = HashSet::new();
    let mut given_up: HashSet<StayId> = HashSet::new();
    let mut refused: HashMap<StayId, (Instant, String)> = HashMap::new();
    loop {
        let guests: Vec<Guest> = moves.host().guests().by_key.values().cloned().collect();
        let remaining = guests.len();
        let mut guests = guests;
        guests.retain(|guest| !given_up.contains(&guest.request.stay()));
        if guests.is_empty() && !moves.host().guests().expects_some() {
            return remaining;
        }
        for guest in guests {
            let key = guest.request.stay();
            let pause = refused
                .get(&key)
                .is_some_and(|(when, _)| when.elapsed() < AGAIN);
            if !pause && waiting.insert(key.clone()) {
                let (moves, answers) = (Arc::clone(moves), answers.clone());
                asked.spawn(async move { (key, send_away(&moves, &guest, &answers).await) });
            }
        }
        tokio::select! {
            Some(done) = asked.join_next() => {
                let Ok((key, result)) = done else {
                    tracing::error!("asking a home for its guest failed");
                    continue;
                };
                waiting.remove(&key);
                let Err(NotLeaving { reason, waits }) = result else {
                    // It may be listed here for a moment yet.
                    moves.host().kept_back().remove(&key);
                    refused.insert(key, (Instant::now(), String::new()));
                    continue;
                };
                if !waits {
                    given_up.insert(key.clone());
                }
                moves.host().kept_back().insert(key.clone(), reason.clone());
                let before = refused.insert(key, (Instant::now(), reason.clone()));
                if before.is_none_or(|(_, before)| before != reason) {
                    tell(answers, reason);
                }
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Asks a guest's home to take it away.
async fn send_away(moves: &Moves, guest: &Guest, answers: &Answers) -> Result<(), NotLeaving> {
    let request = &guest.request;
    let (home, pid) = (&request.home, request.pid);
    let ask = NodeRequest::TakeAway {
        journey: request.journey.clone(),
        epoch: request.epoch,
    };
    let asked = tokio::select! {
        said = moves.ground().cluster().call(home, &ask, LEAVING) => said.map_err(|error| error.to_string()),
        // A home that lost its power never answers, however long we wait.
        () = down(moves.ground().membership(), home) => Err("its home is down".to_owned()),
    };
    let mut waits = true;
    let said = match asked {
        Ok(NodeReply::Refused { reason }) => reason,
        Ok(NodeReply::Unanswered { reason }) => {
            waits = false;
            reason
        }
        Ok(_) => return Ok(()),
        // If its lease has no end, nothing else would ever end it. It is told first: as soon as no guest
        // is left, nobody hears of what this returns.
        Err(_) if request.lease_ms.is_none() && is_down(moves.ground().membership(), home) => {
            let reason = format!(
                "Process {pid} of {home} is ended: its home is down, and its lease has no end"
            );
            tell(answers, reason);
            hosting::release(moves.host(), home, &request.journey, request.epoch);
            return Ok(());
        }
        Err(error) => error,
    };
    let yet = if waits { " yet" } else { "" };
    let reason = format!("Process {pid} of {home} cannot leave{yet}: {said}");
    Err(NotLeaving { reason, waits })
}

fn is_down(membership: &Membership, node: &str) -> bool {
    membership.peers().state(node) == NodeState::Down
}

/// Waits until a node is considered down.
async fn down(membership: &Membership, node: &str) {
    while !is_down(membership, node) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Takes one of our processes away from a host that wants to be rid of it: to another node, or home.
pub(crate) async fn take_away(
    moves: &Arc<Moves>,
    asker: &str,
    id: &str,
    epoch: u32,
) -> Result<(), NotLeaving> {
    watching::refresh(moves, id).await;
    let journey = moves.journeys().by_id.get(id).cloned();
    let Some(journey) = journey.filter(|journey| is_there(journey, asker, epoch)) else {
        let reason = format!("No process of ours is on {asker} by that name");
        let waits = true;
        return Err(NotLeaving { reason, waits });
    };
    let moved = moving::take_away(moves, &journey).await;
    moved.map(drop).map_err(|error| NotLeaving {
        reason: error.reason(),
        waits: !error.is_unanswered(),
    })
}

/// Whether a process computes on this node, in the stay of this epoch. The highest epoch that was asked
/// for may be another one, if an onward move has failed.
fn is_there(journey: &Journey, node: &str, epoch: u32) -> bool {
    let status = journey.status.as_ref();
    journey.is_live() && status.is_some_and(|now| now.location == node && now.epoch == epoch)
}

/// Brings all of this node's processes home, and returns when they are there, with how many were away.
/// The orders to keep them there have to be given before.
pub(crate) async fn bring_all(moves: &Arc<Moves>, answers: &Answers) -> usize {
    let mut brought = HashSet::new();
    let mut told = HashSet::new();
    // Journeys whose supervisors do not answer: nobody waits for them.
    let mut given_up = HashSet::new();
    loop {
        watching::refresh_all(moves).await;
        let away = |journey: &Journey| {
            let home = matches!(journey.state(), State::Home | State::Ended);
            !home && !given_up.contains(&journey.about.journey)
        };
        let journeys = moves.journeys().live();
        let journeys: Vec<Journey> = journeys.into_iter().filter(away).collect();
        if journeys.is_empty() {
            return brought.len();
        }
        let mut returns = JoinSet::new();
        for journey in journeys {
            brought.insert(journey.about.journey.clone());
            let moves = Arc::clone(moves);
            returns.spawn(async move {
                let result = moving::bring_back(&moves, &journey).await;
                (journey.about.journey, journey.about.pid, result)
            });
        }
        while let Some(done) = returns.join_next().await {
            let Ok((id, pid, Err(error))) = done else {
                continue;
            };
            if told.insert(pid) {
                tell(answers, format!("Process {pid} does not come yet: {error}"));
            }
            if error.is_unanswered() {
                brought.remove(&id);
                given_up.insert(id);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends all guests away for as long as `holds` is true of the node's orders, or until none is left that
/// is worth waiting for. Returns how many are left, or nothing if the order was lifted.
pub(crate) async fn clear(
    moves: &Arc<Moves>,
    answers: &Answers,
    holds: impl Fn(Orders) -> bool,
) -> Option<usize> {
    let lifted = async {
        while holds(moves.host().orders()) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        left = send_all_away(moves, answers) => Some(left).filter(|_| holds(moves.host().orders())),
        () = lifted => None,
    }
}

/// `whim expel`: guests are refused from now on; returns when none is left.
///
/// # Errors
/// It cannot be noted, or somebody has lifted the order.
pub(crate) async fn expel(moves: &Arc<Moves>, answers: &Answers) -> Result<String, String> {
    let noted = moves.host().change_orders(|orders| orders.block = true);
    noted.map_err(|error| error.to_string())?;
    let left = match clear(moves, answers, |orders| orders.block).await {
        Some(0) => "No guests are left".to_owned(),
        Some(1) => "1 guest does not leave".to_owned(),
        Some(left) => format!("{left} guests do not leave"),
        None => {
            let now = moves.host().orders().sentence();
            return Err(format!("'whim unblock' was given meanwhile. {now}"));
        }
    };
    let mut others = moves.host().orders();
    others.block = false;
    let also = match others.refuses() {
        true => format!(". Without that: {}", others.sentence()),
        false => String::new(),
    };
    Ok(format!(
        "{left}, and new ones are refused: 'whim unblock' admits them{also}"
    ))
}

/// `whim evacuate`: this node goes down. Names the node's own processes, which go down with it, and
/// returns when no guest is left.
///
/// # Errors
/// It cannot be noted.
pub(crate) async fn evacuate(moves: &Arc<Moves>, answers: &Answers) -> Result<String, NotNoted> {
    moves
        .host()
        .change_orders(|orders| orders.evacuate = true)?;
    let remaining = look_for_remaining(moves).await;
    name_own(&moves.ground().cluster().node(), &remaining, answers);
    clear(moves, answers, Orders::refuses).await;
    if !moves.host().orders().evacuate {
        let now = moves.host().orders().sentence();
        return Ok(format!("This node does not go down any more. {now}"));
    }
    let guests = match moves.host().guests().count() {
        0 => "No guests are".to_owned(),
        1 => "1 guest is".to_owned(),
        guests => format!("{guests} guests are"),
    };
    let own = counted(remaining.own_count(), "process", "processes");
    Ok(format!(
        "{guests} left; {own} whose home this is would end with it"
    ))
}

/// Orders this node to drain, or not to, unless it was `told_before`, and returns what is left on it, when all members
/// that can be reached know of the order. Guests go on leaving after that, for as long as the order holds.
///
/// # Errors
/// It cannot be noted.
pub(crate) async fn drain(
    moves: &Arc<Moves>,
    on: bool,
    told_before: bool,
) -> Result<Remaining, NotNoted> {
    if !told_before {
        moves.host().change_orders(|orders| orders.drain = on)?;
        // What kept guests when they were last asked to leave may be over.
        moves.host().kept_back().clear();
    }
    if moves.host().orders().drain {
        let moves = Arc::clone(moves);
        tokio::spawn(async move {
            // One task at a time: a second request finds it at work.
            let Ok(_only) = moves.host().expelling().try_lock() else {
                return;
            };
            let (answers, _unheard) = unbounded_channel();
            clear(&moves, &answers, |orders| orders.drain).await;
        });
    }
    let (mut remaining, untold) = tokio::join!(look_for_remaining(moves), async {
        if told_before {
            return Vec::new();
        }
        let news = || NodeRequest::Ordered {
            ordered: Ordered::of(&moves.host().report()),
        };
        moves.ground().membership().tell_all(news).await
    });
    remaining.untold = untold;
    remaining.untold.truncate(UNTOLD_MAX);
    Ok(remaining)
}

/// What this node has left.
async fn look_for_remaining(moves: &Arc<Moves>) -> Remaining {
    let shared = Arc::clone(moves);
    let remaining = tokio::task::spawn_blocking(move || remaining(&shared)).await;
    remaining.unwrap_or_else(|error| {
        tracing::error!(%error, "looking at the processes failed");
        // What is left is not known, so the node must not look empty.
        Remaining {
            guests: moves.host().guests().count(),
            own: Vec::new(),
            more: 1,
            lifted: !moves.host().orders().drain,
            untold: Vec::new(),
            still: Some(moves.host().orders().still()),
            kept: Vec::new(),
        }
    })
}

/// The guests that are here and cannot leave, as far as is known.
fn kept(moves: &Moves) -> Vec<KeptGuest> {
    let guests = moves.host().guests();
    let mut kept_back = moves.host().kept_back();
    // Those that have ended need no reason any more.
    kept_back.retain(|key, _| guests.by_key.contains_key(key));
    let here = kept_back.iter().filter_map(|(key, reason)| {
        let request = &guests.by_key.get(key)?.request;
        let mut reason = reason.clone();
        // No boundary is beyond the end of a text, but its end is one.
        let end = (0..=KEPT_REASON_MAX).rfind(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        Some(KeptGuest {
            home: request.home.clone(),
            pid: request.pid,
            reason,
        })
    });
    here.take(KEPT_MAX).collect()
}

fn remaining(moves: &Moves) -> Remaining {
    moves.census().refresh();
    let journeys = moves.journeys().live();
    let candidates = moves.candidates().sorted();
    let own = candidates.iter().filter_map(|candidate| {
        let stat = candidate.stat()?;
        let journey = journeys.iter().find(|j| j.about.pid == candidate.pid);
        Some(OwnProcess {
            pid: candidate.pid,
            // Arguments may hold secrets, and this is told to other nodes.
            name: stat.name,
            location: journey.map(|journey| journey.location().to_string()),
        })
    });
    let mut own: Vec<OwnProcess> = own.collect();
    let more = own.len().saturating_sub(NAMED_MAX);
    own.truncate(NAMED_MAX);
    let kept = kept(moves);
    Remaining {
        guests: moves.host().guests().count(),
        own,
        more: u32::try_from(more).unwrap_or(u32::MAX),
        lifted: !moves.host().orders().drain,
        untold: Vec::new(),
        still: Some(moves.host().orders().still()),
        kept,
    }
}

/// What whoever waits for a node to be drained has been told.
#[derive(Debug)]
struct Told {
    /// Guests and own processes that are left.
    counts: Option<(u32, u64)>,
    changed: Instant,
    /// By home and pid.
    kept: HashMap<(String, i32), String>,
}

impl Told {
    fn new() -> Self {
        Self {
            counts: None,
            changed: Instant::now(),
            kept: HashMap::new(),
        }
    }

    /// Says what is new in an answer: how many are left, and who cannot leave, and why.
    fn tell(&mut self, remaining: &Remaining, answers: &Answers) {
        let counts = (remaining.guests, remaining.own_count());
        if self.counts.replace(counts) != Some(counts) {
            let guests = counted(counts.0.into(), "guest", "guests");
            let own = counted(counts.1, "process", "processes");
            tell(answers, format!("{guests} and {own} of its own are left"));
            self.changed = Instant::now();
        }
        for KeptGuest { home, pid, reason } in &remaining.kept {
            let before = self.kept.insert((home.clone(), *pid), reason.clone());
            if before.as_ref() != Some(reason) {
                tell(answers, reason.clone());
            }
        }
    }
}

/// `whim drain NODE`: returns when its guests have left and, with `wait`, its own processes have ended.
///
/// The order is given once. Whoever lifts it while we wait has said the last word.
///
/// # Errors
/// The node cannot be asked, or refuses; or the order was lifted.
pub(crate) async fn drain_node(
    moves: &Arc<Moves>,
    node: &str,
    wait: bool,
    answers: &Answers,
) -> Result<String, String> {
    let mut remaining = ask(moves, node, DrainOrder::Drain).await?;
    name_own(node, &remaining, answers);
    name_untold(node, &remaining, answers);
    let mut told = Told::new();
    loop {
        if remaining.lifted {
            return Err(format!(
                "{node} is not drained: 'whim undrain' was given meanwhile. {}",
                undrained(moves, node, &remaining)
            ));
        }
        told.tell(&remaining, answers);
        if remaining.guests > 0 && told.changed.elapsed() > LEAVING {
            let guests = match remaining.guests {
                1 => {
                    format!("1 guest of {node} has not left for an hour: its home does not take it")
                }
                guests => format!(
                    "{guests} guests of {node} have not left for an hour: their homes do not take them"
                ),
            };
            return Err(format!("{guests} away. It is drained on"));
        }
        if remaining.guests == 0 && (remaining.own_count() == 0 || !wait) {
            until_heard(moves, node).await;
            return Ok(format!(
                "{node} is drained: 'whim undrain {node}' ends that"
            ));
        }
        if answers.is_closed() {
            return Err("Whoever waited for this has gone away".into());
        }
        tokio::time::sleep(ASK).await;
        remaining = ask(moves, node, DrainOrder::Remaining).await?;
    }
}

/// Waits until the node has reported that it is drained, so that whoever asks for the nodes next sees it. It has told
/// us as all others; one of an earlier version, or whose word was lost, reports a second later.
async fn until_heard(moves: &Arc<Moves>, node: &str) {
    let ground = moves.ground();
    let deadline = Instant::now() + HEARD_WITHIN;
    let is_known =
        || node == ground.cluster().node() || ground.peers().state(node) == NodeState::Draining;
    while !is_known() && Instant::now() < deadline {
        tokio::time::sleep(HEARD_LOOK).await;
    }
}

/// `whim undrain NODE`.
///
/// # Errors
/// As [`drain_node`].
pub(crate) async fn undrain_node(
    moves: &Arc<Moves>,
    node: &str,
    answers: &Answers,
) -> Result<String, String> {
    let remaining = ask(moves, node, DrainOrder::Undrain).await?;
    name_untold(node, &remaining, answers);
    let said = undrained(moves, node, &remaining);
    moves.ground().peers().drains_no_more(node, remaining.still);
    Ok(said)
}

/// Whether a node that is not drained any more takes guests, or what it still was told.
fn undrained(moves: &Moves, node: &str, remaining: &Remaining) -> String {
    let shut = match remaining.still {
        Some(still) => Shut::all(still),
        // Of an earlier version. It has told us of the order as all others.
        None => {
            let peers = moves.ground().peers();
            let report = peers.get(node).map(|health| &health.report);
            let report = report.filter(|report| !report.draining);
            report.and_then(Shut::of).into_iter().collect()
        }
    };
    let stays = match remaining.still {
        Some(Still { stay: true, .. }) => {
            "; its own processes stay ('whim go' there lets them leave)"
        }
        _ => "",
    };
    if shut.is_empty() {
        return format!("{node} takes guests again{stays}");
    }
    let shut: Vec<String> = shut.iter().map(Shut::to_string).collect();
    format!(
        "{node} is not drained any more, but takes no guests: {}{stays}",
        shut.join(", and ")
    )
}

/// What a node is told about being drained, or asked.
#[derive(Clone, Copy)]
enum DrainOrder {
    Drain,
    Undrain,
    /// It was told before: what is left?
    Remaining,
}

async fn ask(moves: &Arc<Moves>, node: &str, order: DrainOrder) -> Result<Remaining, String> {
    let (on, told_before) = match order {
        DrainOrder::Drain => (true, false),
        DrainOrder::Undrain => (false, false),
        DrainOrder::Remaining => (true, true),
    };
    if node == moves.ground().cluster().node() {
        let said = drain(moves, on, told_before).await;
        return said.map_err(|error| error.to_string());
    }
    destinations::known_node(moves, node).map_err(|error| error.to_string())?;
    let request = NodeRequest::Drain { on, told_before };
    let said = moves
        .ground()
        .cluster()
        .call(node, &request, Duration::from_secs(5))
        .await;
    match said {
        Ok(NodeReply::Drain(mut remaining)) => {
            // What it says of nodes that we do not know is nothing for our users.
            let is_known = |node: &str| destinations::known_node(moves, node).is_ok();
            remaining.untold.retain(|untold| is_known(&untold.node));
            remaining.kept.retain(|kept| is_known(&kept.home));
            Ok(remaining)
        }
        Ok(NodeReply::Refused { reason }) => Err(reason),
        Ok(_) => Err(format!(
            "Node {node} gave an answer that makes no sense: upgrade the older of the two nodes"
        )),
        Err(error) => Err(format!("Node {node} cannot be asked: {error}")),
    }
}

/// Says who has not heard of an order to this node.
fn name_untold(node: &str, remaining: &Remaining, answers: &Answers) {
    for Untold { node: other, down } in &remaining.untold {
        let why = if *down {
            "it is down".to_owned()
        } else {
            format!("it did not answer {node}, whose next report tells it")
        };
        tell(answers, format!("{other} has not been told: {why}"));
    }
}

fn name_own(node: &str, remaining: &Remaining, answers: &Answers) {
    if remaining.own.is_empty() {
        return;
    }
    tell(
        answers,
        format!("Processes whose home is {node} end with it:"),
    );
    for process in &remaining.own {
        let place = process.location.as_deref().unwrap_or(node);
        tell(
            answers,
            format!("{:>8}  {:<15}  on {place}", process.pid, process.name),
        );
    }
    if remaining.more > 0 {
        tell(answers, format!("and {} more", remaining.more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::journeys::{About, End};
    use whim_journey::job::{Phase, Status};
    use whim_model::CpuTime;

    #[test]
    fn only_the_host_of_a_process_may_ask_to_be_rid_of_it() {
        let mut journey = Journey::new(About::invented("j"));
        assert!(!is_there(&journey, "n2", 1), "Nothing is known of it yet");
        journey.status = Some(Status {
            journey: "j".into(),
            pid: 7,
            home: "n1".into(),
            location: "n2".into(),
            state: State::Away,
            phase: Phase::Away,
            epoch: 1,
            moves: 1,
            supervisor_pid: 8,
            cpu_ns: 0,
            busy_ns: 0,
            counted_ms: 0,
            resident_bytes: 0,
            forwarded_calls: 0,
            held_threads: 0,
            reason: None,
        });
        // An onward move was tried, and has failed.
        journey.epoch = 2;
        assert!(is_there(&journey, "n2", 1));
        for (node, epoch) in [("n3", 1), ("n1", 1), ("n2", 0), ("n2", 2)] {
            assert!(!is_there(&journey, node, epoch), "{node}, {epoch}");
        }
        journey.about.end = Some(End {
            at_ms: 0,
            at_home: false,
            reason: "over".into(),
            moves: 1,
            location: None,
            cpu_away: CpuTime::default(),
        });
        assert!(!is_there(&journey, "n2", 1));
    }
}
