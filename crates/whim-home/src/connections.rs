//! The connections of one stay: calls and pages, and what is said on them.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_journey::frame::{Kind, PROTOCOL_VERSION};
use whim_journey::job::Phase;
use whim_journey::job::Slot;
use whim_journey::lease::heartbeat_interval;
use whim_journey::message::{
    self, ChannelRole, ClockPair, Hello, MessageError, TAIL_IN_FRAME_MAX, ToGuest, ToHome,
};
use whim_model::{Clocks, ProcessImage};
use whim_net::line::Dialing;
use whim_net::{
    Channel, ChannelError, Credentials, JourneyId, Line, NodeName, PeerExpectation, Rhythm, Role,
};
use whim_sys::priority::Priority;
use whim_sys::pulse;

/// How long a host may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often a first connection is tried if it breaks before it is of use.
const CONNECT_TRIES: u32 = 5;
/// A host that has accepted a connection may then say nothing for half a lease, within these bounds: its network
/// or its kernel may stand still for seconds, which costs no guest anything, and the process runs on meanwhile.
const SILENT_MIN: Duration = CONNECT_WITHIN;
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Round trips in which clocks are compared, and the time after which no more are begun.
const CLOCK_ROUNDS: u32 = 5;
const CLOCK_ROUNDS_WITHIN: Duration = Duration::from_millis(50);

/// How long to wait for the reason why a host has closed a connection, which it sends before.
const LAST_WORD_WITHIN: Duration = Duration::from_millis(500);

/// How long work without a sign of life is vouched for if there is no lease.
const PATIENCE_WITHOUT_LEASE: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("The host {node} cannot be reached at {address}: {source}")]
    Connect {
        node: String,
        address: String,
        source: ChannelError,
    },
    #[error("No address is known of the host {0}")]
    NoAddress(String),
    #[error("The connection to the host broke: {0}")]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("The host said '{got}' where '{expected}' was due")]
    Unexpected { expected: &'static str, got: String },
    #[error("The host could not take the process over ({phase}): {reason}")]
    Refused { phase: Phase, reason: String },
    #[error("A name in the job is not valid: {0}")]
    Name(String),
    #[error("The host {0} was removed from the cluster")]
    Removed(String),
}

/// Both connections to one guest supervisor.
#[derive(Debug)]
pub struct Connections {
    pub node: String,
    pub epoch: u32,
    pub calls: Line,
    pub pages: Line,
    /// How the host's clocks relate to ours.
    pub clocks: ClockPair,
    /// How long the quickest message took, there and back.
    pub round_trip: Duration,
    /// The host was removed from the cluster: no connection to it is made any more.
    dismissed: Arc<AtomicBool>,
    /// The threads' shares of the CPU that the host knows of, by thread id.
    pub(crate) told: HashMap<i32, Priority>,
    /// The guest was told to stand still because the deputy's control group is frozen.
    pub(crate) told_frozen: bool,
    lease: Option<Duration>,
    /// When the last heartbeat was sent by one of the methods below.
    beaten: Instant,
}

impl Connections {
    /// Connects to the supervisor that waits in `slot`.
    ///
    /// # Errors
    /// The supervisor cannot be reached, or is not the one that we expect.
    pub fn connect(
        journey: &str,
        slot: &Slot,
        credentials: &Credentials,
        lease: Option<Duration>,
    ) -> Result<Self, ConnectionError> {
        let dismissed = Arc::new(AtomicBool::new(false));
        let target = Target::new(journey, slot, credentials, &dismissed)?;
        let calls = open(journey, &target, (ChannelRole::Calls, lease))?;
        let pages = open(journey, &target, (ChannelRole::Pages, lease))?;
        let mut connections = Self {
            node: slot.node.clone(),
            epoch: slot.epoch,
            calls,
            pages,
            clocks: ClockPair::default(),
            round_trip: Duration::MAX,
            dismissed,
            told: HashMap::new(),
            told_frozen: false,
            lease,
            beaten: Instant::now(),
        };
        connections.compare_clocks()?;
        Ok(connections)
    }

    /// The host was removed from the cluster: a connection that is lost is not made again.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
    }

    /// Finds out how the host's clocks relate to ours, from the quickest of a few round trips.
    ///
    /// The guest's clocks must not be behind home's, because a timer of home's would then be seen to expire
    /// before its time. So the host's clocks, read somewhere in the round trip, are paired with ours at its
    /// end. The guest's clocks will then be ahead of home's, by no more than the round trip.
    fn compare_clocks(&mut self) -> Result<(), ConnectionError> {
        let begun = Instant::now();
        let patience = silent_max(self.lease);
        for _ in 0..CLOCK_ROUNDS {
            let asked = Instant::now();
            self.send(&ToGuest::Ping, patience)?;
            let answer = self.receive(patience)?;
            let home = clocks();
            let took = asked.elapsed();
            let ToHome::Pong { clocks: host } = answer else {
                return Err(ConnectionError::Unexpected {
                    expected: "pong",
                    got: format!("{answer:?}"),
                });
            };
            if took < self.round_trip {
                self.round_trip = took;
                self.clocks = ClockPair { host, home };
            }
            if begun.elapsed() > CLOCK_ROUNDS_WITHIN {
                break;
            }
        }
        tracing::debug!(quickest = ?self.round_trip, "clocks compared");
        Ok(())
    }

    /// When the host was last heard of.
    #[must_use]
    pub fn heard(&self) -> Instant {
        self.calls.heard().max(self.pages.heard())
    }

    /// Queues a message; `flush` sends it.
    ///
    /// # Errors
    /// Encoding (never in practice).
    pub fn queue(&mut self, message: &ToGuest, tail: &[u8]) -> Result<(), ConnectionError> {
        let head = message::encode(message)?;
        let mut rest = tail;
        if let ToGuest::Reply { tid, .. } = message {
            while rest.len() > TAIL_IN_FRAME_MAX {
                let (now, later) = rest.split_at(TAIL_IN_FRAME_MAX);
                self.calls
                    .queue(Kind::Data, self.epoch, &[&tid.to_le_bytes(), now]);
                rest = later;
            }
        }
        self.calls.queue(Kind::ToGuest, self.epoch, &[&head, rest]);
        Ok(())
    }

    /// Sends a message before anything else is done.
    ///
    /// # Errors
    /// The connection broke, or the time is over.
    pub fn send(&mut self, message: &ToGuest, within: Duration) -> Result<(), ConnectionError> {
        let head = message::encode(message)?;
        Ok(self
            .calls
            .send_now(Kind::ToGuest, self.epoch, &[&head], within)?)
    }

    /// Sends a heartbeat if one is due: for work that sends and reads nothing for long.
    ///
    /// # Errors
    /// The connection broke for good.
    pub fn beat(&mut self) -> Result<(), ConnectionError> {
        if self.beaten.elapsed() >= heartbeat_interval(self.lease) {
            self.beaten = Instant::now();
            if self.calls.is_connected() {
                self.queue(&ToGuest::Heartbeat { clocks: clocks() }, &[])?;
            }
            self.calls.flush()?;
        }
        Ok(())
    }

    /// Does work on so many mappings and threads, during which the host hears from us
    /// ([`whim_net::meanwhile()`]), and the guest stands still if the deputy's control group is frozen.
    pub fn meanwhile<T>(&mut self, pieces: usize, work: impl FnOnce() -> T) -> T {
        let rhythm = Rhythm {
            every: heartbeat_interval(self.lease),
            patience: self.lease.unwrap_or(PATIENCE_WITHOUT_LEASE),
        };
        let epoch = self.epoch;
        pulse::hold(false);
        let told_frozen = &mut self.told_frozen;
        let beat = move |calls: &mut Line| {
            let frozen =
                (pulse::is_held() && !*told_frozen).then_some(ToGuest::Frozen { frozen: true });
            *told_frozen |= frozen.is_some();
            for message in frozen
                .into_iter()
                .chain([ToGuest::Heartbeat { clocks: clocks() }])
            {
                if let Ok(head) = message::encode(&message) {
                    calls.queue(Kind::ToGuest, epoch, &[&head]);
                }
            }
        };
        whim_net::meanwhile(&mut self.calls, pieces, rhythm, beat, work)
    }

    /// Waits for the next message, passing over heartbeats. The host gets heartbeats from us meanwhile.
    ///
    /// # Errors
    /// The connection broke, the time is over, or the host refused.
    pub fn receive(&mut self, within: Duration) -> Result<ToHome, ConnectionError> {
        let end = Instant::now() + within;
        loop {
            self.beat()?;
            let left = end.saturating_duration_since(Instant::now());
            let step = left.min(heartbeat_interval(self.lease));
            let frame = match self.calls.receive_frame(step) {
                Err(ChannelError::Timeout { .. }) if step < left => continue,
                Err(ChannelError::Timeout { doing, .. }) => {
                    let seconds = within.as_secs_f64();
                    return Err(ChannelError::Timeout { doing, seconds }.into());
                }
                received => received?,
            };
            if frame.kind != Kind::ToHome || frame.epoch != self.epoch {
                continue;
            }
            match message::decode::<ToHome>(&frame.payload)?.0 {
                ToHome::Heartbeat { .. } => {}
                ToHome::Failed { phase, reason } => {
                    return Err(ConnectionError::Refused { phase, reason });
                }
                other => return Ok(other),
            }
        }
    }

    /// Why the host has closed the connection, if it said so.
    pub fn last_word(&mut self) -> Option<ConnectionError> {
        loop {
            match self.receive(LAST_WORD_WITHIN) {
                Ok(_) => {}
                Err(refused @ ConnectionError::Refused { .. }) => return Some(refused),
                Err(_) => return None,
            }
        }
    }

    /// Sends the image in pieces.
    ///
    /// # Errors
    /// The connection broke, or the time is over.
    pub fn send_image(
        &mut self,
        image: &ProcessImage,
        within: Duration,
    ) -> Result<(), ConnectionError> {
        self.send_encoded(&message::encode(image)?, within)
    }

    /// The same, of an image that is encoded already.
    ///
    /// # Errors
    /// As [`send_image`](Self::send_image).
    pub(crate) fn send_encoded(
        &mut self,
        image: &[u8],
        within: Duration,
    ) -> Result<(), ConnectionError> {
        message::send_encoded(image, |parts| {
            let sent = self.calls.send_now(Kind::Image, self.epoch, parts, within);
            sent.map_err(ConnectionError::from)
        })
    }
}

/// How long a host that has accepted a connection may say nothing before it is given up.
fn silent_max(lease: Option<Duration>) -> Duration {
    lease.map_or(SILENT_MAX, |lease| {
        (lease / 2).clamp(SILENT_MIN, SILENT_MAX)
    })
}

/// Where a supervisor waits, and what it has to prove.
#[derive(Clone)]
struct Target {
    slot: Slot,
    credentials: Credentials,
    expect: PeerExpectation,
    dismissed: Arc<AtomicBool>,
}

impl Target {
    fn new(
        journey: &str,
        slot: &Slot,
        credentials: &Credentials,
        dismissed: &Arc<AtomicBool>,
    ) -> Result<Self, ConnectionError> {
        let name = |error: whim_net::name::NameError| ConnectionError::Name(error.to_string());
        Ok(Self {
            slot: slot.clone(),
            credentials: credentials.clone(),
            expect: PeerExpectation::Journey {
                id: JourneyId::new(journey).map_err(name)?,
                node: Some(NodeName::new(slot.node.clone()).map_err(name)?),
                role: Role::Guest,
            },
            dismissed: Arc::clone(dismissed),
        })
    }

    /// Makes a connection that takes the place of a lost one, but none to a host that was removed meanwhile.
    fn connect_again(&self, within: Duration) -> Result<Channel, ChannelError> {
        let is_dismissed = || self.dismissed.load(Ordering::Acquire);
        let made = if is_dismissed() {
            Err(ConnectionError::Removed(self.slot.node.clone()))
        } else {
            self.connect(within)
        };
        match made {
            Ok(_) if is_dismissed() => Err(ChannelError::Closed),
            Ok(channel) => Ok(channel),
            Err(ConnectionError::Connect { source, .. } | ConnectionError::Channel(source)) => {
                Err(source)
            }
            Err(other) => Err(ChannelError::Protocol(other.to_string())),
        }
    }

    fn connect(&self, within: Duration) -> Result<Channel, ConnectionError> {
        let node = &self.slot.node;
        let mut failure = ConnectionError::NoAddress(node.clone());
        for address in &self.slot.addresses {
            for resolved in resolve(address) {
                let name = &self.slot.server_name;
                match Channel::connect(resolved, name, &self.credentials, &self.expect, within) {
                    Ok(channel) => return Ok(channel),
                    Err(source) => {
                        // No other address would give another answer.
                        let gone = matches!(source, ChannelError::Gone);
                        failure = ConnectionError::Connect {
                            node: node.clone(),
                            address: address.clone(),
                            source,
                        };
                        if gone {
                            return Err(failure);
                        }
                    }
                }
            }
        }
        Err(failure)
    }
}

/// Makes the first connection, and makes it again if it breaks meanwhile, or if the host accepts it and then says
/// nothing for as long as a try takes.
fn begin(
    target: &Target,
    hello: &Hello,
    lease: Option<Duration>,
) -> Result<Channel, ConnectionError> {
    let bytes = message::encode(hello)?;
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        let made = target.connect(CONNECT_WITHIN).and_then(|mut channel| {
            channel.send_now(Kind::ToGuest, hello.epoch, &[&bytes], CONNECT_WITHIN)?;
            Ok(channel)
        });
        let (Err(ConnectionError::Connect { source, .. }) | Err(ConnectionError::Channel(source))) =
            &made
        else {
            return made;
        };
        let again = match source {
            ChannelError::Lost(_) | ChannelError::Closed => tries < CONNECT_TRIES,
            ChannelError::Timeout { .. } => begun.elapsed() < silent_max(lease),
            _ => false,
        };
        if !again {
            return made;
        }
        tracing::debug!(%source, "a connection broke before it was made");
    }
}

fn open(
    journey: &str,
    target: &Target,
    (role, lease): (ChannelRole, Option<Duration>),
) -> Result<Line, ConnectionError> {
    let epoch = target.slot.epoch;
    let hello = Hello {
        journey: journey.to_owned(),
        epoch,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        role,
        resume: None,
    };
    let channel = begin(target, &hello, lease)?;
    let again = target.clone();
    let dialing = Dialing {
        connect: Arc::new(move |within| again.connect_again(within)),
        hello,
        kind: Kind::ToGuest,
        expects_beats: role == ChannelRole::Calls,
    };
    Ok(Line::dialing(channel, epoch, dialing, lease)?)
}

fn resolve(address: &str) -> Vec<SocketAddr> {
    address
        .to_socket_addrs()
        .map(Iterator::collect)
        .unwrap_or_default()
}

/// Clocks of this node now, as the process sees them (same time namespace).
#[must_use]
pub fn clocks() -> Clocks {
    use nix::time::{ClockId, clock_gettime};
    let read = |clock| {
        clock_gettime(clock).map_or(0, |time| {
            u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000
                + u64::try_from(time.tv_nsec()).unwrap_or(0)
        })
    };
    Clocks {
        monotonic_ns: read(ClockId::CLOCK_MONOTONIC),
        boottime_ns: read(ClockId::CLOCK_BOOTTIME),
        realtime_ns: read(ClockId::CLOCK_REALTIME),
    }
}
