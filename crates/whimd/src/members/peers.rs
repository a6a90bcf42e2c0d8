//! What the daemons of two nodes say to each other, and which nodes are up.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::HashMap;
use std::io;
use std::time::Instant;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use whim_journey::job::Slot;
use whim_net::removal::{REMOVAL_LENGTH_MAX, REMOVALS_MAX};
use whim_net::roster::ROSTER_LENGTH_MAX;

use crate::members::gossip::About;
use crate::members::swim::Reach;
use whim_control::protocol::{NodeState, ProcessRow};
use whim_machine::class::{Class, Features};
use whim_machine::sensors::{Report, float};

/// Assumed speed of a move in bytes a second, until a move has measured it: what one gigabit carries.
const RATE: f64 = 100e6;
/// Longest frame between daemons, in bytes: a list of members with notices of removals. Each of these is a
/// text inside another one, in which its quotes are doubled.
pub(crate) const FRAME_MAX: usize = 2 * ROSTER_LENGTH_MAX + NOTICES_LENGTH_MAX + 4096;
/// What all notices of removals take in a frame, in bytes.
const NOTICES_LENGTH_MAX: usize = REMOVALS_MAX * (2 * REMOVAL_LENGTH_MAX + 512);

/// Processes that a draining node names; the others are counted.
pub(crate) const NAMED_MAX: usize = 1000;
/// Guests that it names because they cannot leave, and bytes of the sentence of each.
pub(crate) const KEPT_MAX: usize = 100;
pub(crate) const KEPT_REASON_MAX: usize = 1000;
/// Members that it names because they have not been told; so many are down in no cluster that is used.
pub(crate) const UNTOLD_MAX: usize = 100;

/// What a node asks before it sends a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdmitRequest {
    pub journey: String,
    pub epoch: u32,
    pub home: String,
    pub pid: i32,
    pub uid: u32,
    pub threads: u32,
    pub memory_bytes: u64,
    pub class: Class,
    /// The CPU features that a portable program was started with.
    pub portable: Option<Features>,
    pub lease_ms: Option<u64>,
    /// CPU time that it has used so far.
    #[serde(default)]
    pub done_ms: u64,
    /// The host from which it comes; `None` if it comes from home. (The field is then left out, because
    /// an older node does not know it.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What a daemon asks of another one. It is JSON, so that an older node passes over the additions of a
/// newer one. Each request is answered by one [`NodeReply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum NodeRequest {
    /// Let this session give us keys for datagrams; it does so only once.
    Keys {
        time_ms: u64,
    },
    /// What does your state leave out?
    About,
    /// Do datagrams of the sender come? A node that does not know this hangs up.
    Heard,
    Admit {
        request: AdmitRequest,
    },
    /// The guest that was admitted will not come.
    Release {
        journey: String,
        epoch: u32,
    },
    /// The host of this journey, which is the sender, wants to be rid of its guest. Answered when the
    /// guest has left.
    TakeAway {
        journey: String,
        epoch: u32,
    },
    /// An administrator of the sender's drains the receiver, or drains it no longer, and is told what is
    /// left. The sender asks again and again, and says that it gave the order before: then nothing is
    /// ordered. A node that does not know `told_before` takes each question for a new order.
    Drain {
        on: bool,
        #[serde(default)]
        told_before: bool,
    },
    /// The sender has just been drained, or is drained no longer: its next report, a second later, says nothing
    /// else. A node that does not know this hangs up, and waits for the report.
    Ordered {
        ordered: Ordered,
    },
    /// A list of members and notices of removals, all signed by the node that holds the CA.
    Members {
        signed: serde_json::Value,
        #[serde(default)]
        removals: Vec<serde_json::Value>,
    },
    /// Which processes have their home with you, and where are they? For the monitors of the sender.
    Processes,
    /// Send me your list of members.
    WantMembers,
    /// To the holder of the CA: sign a new certificate for the sender.
    Renew {
        request: serde_json::Value,
    },
    /// To the holder of the CA: the sender is reached elsewhere, or is of another class.
    Update {
        addresses: Vec<String>,
        class: String,
    },
    /// To the holder of the CA: the sender leaves.
    Leave,
}

/// What a node that is drained has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remaining {
    pub guests: u32,
    /// Processes whose home it is, at home and away.
    pub own: Vec<OwnProcess>,
    /// How many more there are than those that are named.
    pub more: u32,
    /// It is not drained any more: somebody has lifted the order.
    #[serde(default)]
    pub lifted: bool,
    /// Members that do not know of the order yet, where it was given just now.
    #[serde(default)]
    pub untold: Vec<Untold>,
    /// What else holds; not told by a node of an earlier version.
    #[serde(default)]
    pub still: Option<Still>,
    /// Guests that cannot leave, at most [`KEPT_MAX`].
    #[serde(default)]
    pub kept: Vec<KeptGuest>,
}

impl Remaining {
    /// How many processes have their home there.
    pub(crate) fn own_count(&self) -> u64 {
        u64::from(self.more).saturating_add(self.own.len() as u64)
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum NodeReply {
    /// The sender has the keys.
    Keys {
        time_ms: u64,
    },
    About {
        about: About,
    },
    Slot {
        slot: Slot,
        supervisor_pid: i32,
    },
    Members {
        signed: serde_json::Value,
        #[serde(default)]
        removals: Vec<serde_json::Value>,
    },
    /// To a node that was removed, whatever it asks: what the CA says of that, and nothing else.
    Removed {
        notice: Option<serde_json::Value>,
    },
    Renewed {
        certificate: serde_json::Value,
    },
    /// Without arguments of commands; the busiest, if not all fit.
    Processes {
        rows: Vec<ProcessRow>,
    },
    Drain(Remaining),
    Done,
    Refused {
        reason: String,
    },
    /// A process is not taken away: the supervisor that carries its journey does not answer.
    Unanswered {
        reason: String,
    },
}

/// A process whose home is being drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnProcess {
    pub pid: i32,
    pub name: String,
    /// Where it is, if it has a journey.
    pub location: Option<String>,
}

/// What a node was told, but for `drain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Still {
    pub stay: bool,
    pub block: bool,
    pub owner: bool,
    pub evacuate: bool,
}

impl Still {
    /// What the node says of itself when it is not drained.
    fn ordered(self) -> Ordered {
        Ordered {
            draining: false,
            blocked: self.block || self.owner || self.evacuate,
            stays: self.stay || self.evacuate,
            evacuates: self.evacuate,
            owner_here: self.owner,
        }
    }
}

/// A guest that cannot leave the node that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptGuest {
    pub home: String,
    pub pid: i32,
    /// A sentence that names it.
    pub reason: String,
}

/// What a node says of itself in an instant, of all that its reports say: the rest changes anyhow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ordered {
    pub draining: bool,
    pub blocked: bool,
    pub stays: bool,
    /// A node of an earlier version does not say the two.
    #[serde(default)]
    pub evacuates: bool,
    #[serde(default)]
    pub owner_here: bool,
}

impl Ordered {
    #[must_use]
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            draining: report.draining,
            blocked: report.blocked,
            stays: report.stays,
            evacuates: report.evacuates,
            owner_here: report.owner_here,
        }
    }

    fn put_into(self, report: &mut Report) {
        report.draining = self.draining;
        report.blocked = self.blocked;
        report.stays = self.stays;
        report.evacuates = self.evacuates;
        report.owner_here = self.owner_here;
    }
}

/// A member that could not be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Untold {
    pub node: String,
    /// The teller takes it for down, and has not tried.
    pub down: bool,
}

#[derive(Debug, Error)]
pub(crate) enum FrameError {
    #[error("The connection broke ({0})")]
    Broken(#[from] io::Error),
    #[error("The peer has closed the connection")]
    Closed,
    #[error("The peer announced {0} bytes, the limit is {FRAME_MAX}")]
    TooLong(usize),
    #[error("The peer's message is not understood ({0}): upgrade the older of the two nodes")]
    Undecodable(#[from] serde_json::Error),
}

/// Sends one message: its length (u32, little-endian), then JSON.
///
/// # Errors
/// When the connection breaks, or the message is too long.
pub(crate) async fn send<M: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &M,
) -> Result<(), FrameError> {
    let body = serde_json::to_vec(message)?;
    if body.len() > FRAME_MAX {
        return Err(FrameError::TooLong(body.len()));
    }
    let length = u32::try_from(body.len()).map_err(|_| FrameError::TooLong(body.len()))?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await?;
    stream.flush().await?;
    Ok(())
}

/// Receives one message; its length is checked first, and memory is taken only for bytes that have come.
///
/// # Errors
/// See [`FrameError`].
pub(crate) async fn receive<M: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<M, FrameError> {
    let mut length = [0u8; 4];
    match stream.read_exact(&mut length).await {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(FrameError::Closed),
        read => read?,
    };
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(FrameError::TooLong(length));
    }
    let mut body = Vec::new();
    let announced = length as u64;
    if stream.take(announced).read_to_end(&mut body).await? < length {
        return Err(FrameError::Closed);
    }
    Ok(serde_json::from_slice(&body)?)
}

/// What we know of another node.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// When the node reported this of itself.
    pub heard: Instant,
    pub report: Report,
    /// Its clock minus ours, in milliseconds, as its last message showed it; 0 while none has.
    pub skew_ms: i64,
}

/// What is known of other nodes, by name.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_name: HashMap<String, Health>,
    /// What nodes said between two reports, and when: older reports, which other nodes hand on, do not undo it.
    ordered: HashMap<String, (Ordered, Instant)>,
    reached: HashMap<String, Reach>,
    skews: HashMap<String, i64>,
    /// When this node was removed, in Unix seconds: members that have heard of it refuse us.
    pub refused_since: Option<u64>,
    /// Bytes a second that the last move to a node, or from it home, achieved.
    rates: HashMap<String, f64>,
}

impl Peers {
    /// Notes what a node reported of itself at the time `heard`.
    pub(crate) fn heard(&mut self, name: &str, mut report: Report, heard: Instant) {
        match self.ordered.get(name) {
            Some((ordered, at)) if heard < *at => ordered.put_into(&mut report),
            Some(_) => drop(self.ordered.remove(name)),
            None => {}
        }
        let skew_ms = self.skews.get(name).copied().unwrap_or(0);
        let health = Health {
            heard,
            report,
            skew_ms,
        };
        self.by_name.insert(name.to_string(), health);
    }

    /// Notes what a node said of its orders at the time `at`, ahead of its next report.
    pub(crate) fn ordered(&mut self, name: &str, ordered: Ordered, at: Instant) {
        if let Some(health) = self.by_name.get_mut(name) {
            ordered.put_into(&mut health.report);
        }
        self.ordered.insert(name.to_string(), (ordered, at));
    }

    /// A node has said, since its last report, that it is not drained any more. One of an earlier version does not
    /// say what still holds: whether it refuses guests for something else, it says when it is asked for room.
    pub(crate) fn drains_no_more(&mut self, name: &str, still: Option<Still>) {
        if let Some(health) = self.by_name.get_mut(name)
            && health.report.draining
        {
            let ordered = still.unwrap_or_default().ordered();
            ordered.put_into(&mut health.report);
        }
    }

    /// Notes whether a node is reached.
    pub(crate) fn stands(&mut self, name: &str, reach: Reach) {
        self.reached.insert(name.to_string(), reach);
    }

    /// Notes how far a node's clock is from ours.
    pub(crate) fn differs(&mut self, name: &str, skew_ms: i64) {
        if let Some(health) = self.by_name.get_mut(name) {
            health.skew_ms = skew_ms;
        }
        match self.skews.get_mut(name) {
            Some(known) => *known = skew_ms,
            None => drop(self.skews.insert(name.to_string(), skew_ms)),
        }
    }

    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&Health> {
        self.by_name.get(name)
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
        self.ordered.remove(name);
        self.reached.remove(name);
        self.skews.remove(name);
        self.rates.remove(name);
    }

    /// State of a member; a member of which nothing is known is down.
    #[must_use]
    pub(crate) fn state(&self, name: &str) -> NodeState {
        match self.reached.get(name) {
            _ if self.refused_since.is_some() => NodeState::Down,
            None | Some(Reach::Down) => NodeState::Down,
            Some(Reach::Suspect) => NodeState::Suspect,
            Some(Reach::Up) if self.is_draining(name) => NodeState::Draining,
            Some(Reach::Up) => NodeState::Up,
        }
    }

    fn is_draining(&self, name: &str) -> bool {
        match self.get(name) {
            Some(health) => health.report.draining,
            None => self
                .ordered
                .get(name)
                .is_some_and(|(ordered, _)| ordered.draining),
        }
    }

    /// Notes how fast a move went, in bytes and milliseconds.
    pub(crate) fn moved(&mut self, node: &str, bytes: u64, milliseconds: f64) {
        // Small moves measure round trips, not the network.
        if bytes > 8 << 20 && milliseconds > 0.0 {
            let rate = float(bytes) * 1000.0 / milliseconds;
            self.rates.insert(node.to_string(), rate);
        }
    }

    /// Bytes a second at which programs move, averaged over the nodes to which it was measured.
    #[must_use]
    pub(crate) fn rate(&self) -> f64 {
        let count = u32::try_from(self.rates.len()).unwrap_or(u32::MAX);
        match count {
            0 => RATE,
            count => self.rates.values().sum::<f64>() / f64::from(count),
        }
    }

    /// Expected freeze for so many bytes, in seconds.
    #[must_use]
    pub(crate) fn expected_freeze(&self, node: &str, bytes: u64) -> f64 {
        let rate = self.rates.get(node).copied().unwrap_or(RATE);
        float(bytes) / rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_net::SignedRoster;

    /// The rate of a node that was removed went on to count in the mean.
    #[test]
    fn nothing_is_kept_of_a_node_that_is_forgotten() {
        let mut peers = Peers::default();
        peers.stands("slow", Reach::Up);
        peers.differs("slow", 7);
        peers.moved("slow", 9 << 20, 1000.0);
        assert!(peers.rate() < RATE);
        peers.forget("slow");
        assert!((peers.rate() - RATE).abs() < 1.0);
        assert!(peers.reached.is_empty() && peers.skews.is_empty());
    }

    #[tokio::test]
    async fn messages_pass_and_long_ones_are_refused_unread() {
        let (mut ours, mut theirs) = tokio::io::duplex(4096);
        send(&mut ours, &NodeRequest::WantMembers)
            .await
            .expect("sent");
        let got: NodeRequest = receive(&mut theirs).await.expect("received");
        assert_eq!(got, NodeRequest::WantMembers);
        ours.write_all(&u32::MAX.to_le_bytes())
            .await
            .expect("written");
        let error = receive::<NodeRequest>(&mut theirs)
            .await
            .expect_err("too long");
        assert!(matches!(error, FrameError::TooLong(_)));
    }

    #[tokio::test]
    async fn the_longest_list_of_members_passes_and_nothing_longer() {
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 20);
        let signed = SignedRoster {
            // Each byte takes two inside of another text.
            json: "\"".repeat(ROSTER_LENGTH_MAX),
            signature: "0".repeat(256),
        };
        let notice = serde_json::json!({
            "json": "\"".repeat(REMOVAL_LENGTH_MAX),
            "signature": "0".repeat(256),
        });
        let list = NodeRequest::Members {
            signed: serde_json::to_value(&signed).expect("encoded"),
            removals: vec![notice; REMOVALS_MAX],
        };
        let (sent, got) = tokio::join!(send(&mut ours, &list), receive(&mut theirs));
        sent.expect("sent");
        let got: NodeRequest = got.expect("received");
        assert!(got == list);
        let mut longest = serde_json::to_vec(&NodeRequest::WantMembers).expect("encoded");
        longest.resize(FRAME_MAX, b' ');
        let length = u32::try_from(FRAME_MAX).expect("small");
        let frame = [&length.to_le_bytes()[..], &longest].concat();
        let (written, got) = tokio::join!(ours.write_all(&frame), receive(&mut theirs));
        written.expect("written");
        let got: NodeRequest = got.expect("received");
        assert_eq!(got, NodeRequest::WantMembers);
        let above = (length + 1).to_le_bytes();
        ours.write_all(&above).await.expect("written");
        let error = receive::<NodeRequest>(&mut theirs).await;
        let error = error.expect_err("one byte more");
        assert!(matches!(error, FrameError::TooLong(_)), "{error}");
    }

    #[test]
    fn all_processes_that_a_draining_node_names_fit_into_an_answer() {
        // A name has 15 bytes, each of which JSON may write as six.
        let process = OwnProcess {
            pid: i32::MIN,
            name: "\u{1}".repeat(15),
            location: Some("n".repeat(63)),
        };
        let untold = Untold {
            node: "n".repeat(63),
            down: false,
        };
        let kept = KeptGuest {
            home: "n".repeat(63),
            pid: i32::MIN,
            reason: "\u{1}".repeat(KEPT_REASON_MAX),
        };
        let reply = NodeReply::Drain(Remaining {
            guests: u32::MAX,
            own: vec![process; NAMED_MAX],
            more: u32::MAX,
            lifted: false,
            untold: vec![untold; UNTOLD_MAX],
            still: Some(Still::default()),
            kept: vec![kept; KEPT_MAX],
        });
        let length = serde_json::to_vec(&reply).expect("encoded").len();
        assert!(length <= FRAME_MAX, "{length}");
    }

    #[test]
    fn a_node_is_as_it_is_reached_and_as_it_says() {
        let mut peers = Peers::default();
        assert_eq!(peers.state("n2"), NodeState::Down);
        peers.stands("n2", Reach::Up);
        assert_eq!(peers.state("n2"), NodeState::Up);
        let draining = Report {
            draining: true,
            ..Report::default()
        };
        peers.differs("n2", 7);
        peers.heard("n2", draining, Instant::now());
        assert_eq!(peers.state("n2"), NodeState::Draining);
        assert_eq!(peers.get("n2").map(|health| health.skew_ms), Some(7));
        peers.stands("n2", Reach::Suspect);
        assert_eq!(peers.state("n2"), NodeState::Suspect);
        peers.stands("n2", Reach::Down);
        assert_eq!(peers.state("n2"), NodeState::Down);
        peers.forget("n2");
        assert!(peers.get("n2").is_none());
    }

    /// Other nodes hand on what a node reported before it was drained, and that may come after its own word.
    #[test]
    fn an_older_report_does_not_undo_what_a_node_said_of_its_orders() {
        let mut peers = Peers::default();
        peers.stands("n2", Reach::Up);
        let begun = Instant::now();
        let later = begun + std::time::Duration::from_millis(10);
        let drained = Ordered {
            draining: true,
            blocked: true,
            stays: true,
            ..Ordered::default()
        };
        peers.ordered("n2", drained, later);
        assert_eq!(peers.state("n2"), NodeState::Draining, "without any report");
        peers.heard("n2", Report::default(), begun);
        assert_eq!(peers.state("n2"), NodeState::Draining);
        let known = peers.get("n2").map(|health| Ordered::of(&health.report));
        assert_eq!(known, Some(drained));
        peers.heard("n2", Report::default(), later);
        assert_eq!(peers.state("n2"), NodeState::Up);
        peers.ordered("n2", drained, later);
        assert_eq!(peers.state("n2"), NodeState::Draining, "with a report");
        peers.forget("n2");
        peers.stands("n2", Reach::Up);
        assert_eq!(peers.state("n2"), NodeState::Up);
    }

    #[test]
    fn what_still_holds_of_a_node_that_is_not_drained_is_known() {
        let mut peers = Peers::default();
        let drained = Report {
            draining: true,
            blocked: true,
            stays: true,
            ..Report::default()
        };
        let mut lifted = |still: Option<Still>| {
            peers.heard("n2", drained.clone(), Instant::now());
            peers.drains_no_more("n2", still);
            peers.get("n2").map(|health| Ordered::of(&health.report))
        };
        let blocked = Still {
            block: true,
            ..Still::default()
        };
        let refuses = lifted(Some(blocked)).expect("known");
        assert!(refuses.blocked && !refuses.stays && !refuses.draining);
        assert_eq!(lifted(None), Some(Ordered::default()));
        let earlier: Remaining =
            serde_json::from_str(r#"{"guests":0,"own":[],"more":0}"#).expect("understood");
        assert_eq!((earlier.still, earlier.kept), (None, Vec::new()));
    }

    #[test]
    fn expected_freeze_follows_what_was_measured() {
        let mut peers = Peers::default();
        assert!(peers.expected_freeze("n2", 1 << 30) > 5.0);
        peers.moved("n2", 1 << 30, 1000.0);
        assert!((peers.expected_freeze("n2", 1 << 30) - 1.0).abs() < 0.01);
    }
}
