//! Finds out which members are reached, by all of them together: SWIM.
//!
//! Each node probes one member after the other, by itself and, where that gets no answer, through others.
//! A member that nobody reaches is suspected. If it lives it denies that; if it does not, it is down. What a
//! node finds travels with the probes to all, so each node sends about the same in a cluster of any size.
//!
//! Which nodes *are* members is not decided here: the list that the CA signed says so. A member that is not
//! reached is contacted again and again, so that a network that was split grows together, and a node that
//! was restarted is found.
//!
//! Sans-I/O: times count from any moment and do not go back; randomness comes from a seed.
//!
//! Source: Das, Gupta, Motivala, *SWIM* (DSN 2002), as the crate `foca` implements it. `foca` does not notice
//! that this node itself stood still; we see to it that the node suspects nobody for that ([`STALL`]).

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, Foca, Identity, Notification, PeriodicParams, PostcardCodec, Runtime, Timer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use whim_balance::NodeId;

/// How often each node probes another one. In a cluster of any size a node is probed once in such a period
/// on average, and with a chance of 99.9 % at least once in seven.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_millis(600);
/// Without an answer within this time, other nodes are asked to probe, too.
pub(crate) const PROBE_DIRECT: Duration = Duration::from_millis(250);
/// How many other nodes are asked.
const HELPERS: usize = 3;
/// How long a suspected node has to say that it lives. It has somewhat longer in a large cluster, where it
/// takes longer to hear of the suspicion.
pub(crate) const SUSPECTED: Duration = Duration::from_millis(2_500);
const SUSPECTED_MORE: Duration = Duration::from_millis(100);
/// How often news is sent, and to how many nodes.
const TOLD_EVERY: Duration = Duration::from_millis(200);
const TOLD_TO: usize = 3;
/// How often members that are not reached are contacted, and how many of them: in large clusters a part of
/// them, if that is more.
const CALLED_EVERY: Duration = Duration::from_secs(1);
const CALLED: usize = 8;
const CALLED_PART: usize = 16;
/// How often each node tells the members that it suspects that it does, and how many at a time.
const WARNED_EVERY: Duration = Duration::from_millis(400);
const WARNED: usize = 8;
/// How often a node asks another one anew for all that it knows of the members.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// How long it is remembered that an earlier life of a node has ended.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// A node that ticks later than due by more than this stood still itself.
pub(crate) const STALL: Duration = Duration::from_millis(300);
/// Longest message, in bytes.
pub(crate) const MESSAGE_MAX: usize = 480;

/// A life of a node. A node that was taken for dead, or was restarted, begins another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    pub node: NodeId,
    /// A later life has a higher number.
    pub number: u32,
}

impl Identity for Life {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        let number = self.number.checked_add(1)?;
        Some(Self { number, ..*self })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        self.number > other.number
    }
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Up,
    Suspect,
    Down,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// These are the members now, this node perhaps among them.
    Members(&'a BTreeSet<NodeId>),
    /// A message that is proved to come from this node.
    Message { from: NodeId, bytes: &'a [u8] },
    /// It is time: see [`Swim::due`].
    Tick,
}

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub to: NodeId,
    pub bytes: Vec<u8>,
}

/// What this node knows of the others.
pub(crate) struct Swim {
    foca: Foca<Life, PostcardCodec, Pcg64Mcg, foca::NoCustomBroadcast>,
    chance: Pcg64Mcg,
    timers: Timers,
    members: BTreeSet<NodeId>,
    call: Duration,
    /// When to warn suspected members next; `None` while there are none.
    warn: Option<Duration>,
}

impl std::fmt::Debug for Swim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Swim").field(self.foca.identity()).finish()
    }
}

/// The timers of `foca`, by the time when they are due and the order in which they were set.
#[derive(Debug, Default)]
struct Timers {
    due: BTreeMap<(Duration, u64), Timer<Life>>,
    set: u64,
    /// The timer for sending news is kept apart: it waits while there is none, so that an idle node
    /// sleeps.
    tell: Option<(Duration, Timer<Life>)>,
    news: bool,
}

impl Timers {
    fn set(&mut self, due: Duration, timer: Timer<Life>) {
        self.set += 1;
        self.due.insert((due, self.set), timer);
    }

    fn first(&self) -> Option<Duration> {
        let first = self.due.first_key_value().map(|((due, _), _)| *due);
        let tell = self.tell.as_ref().filter(|_| self.news);
        first.into_iter().chain(tell.map(|(due, _)| *due)).min()
    }

    fn take(&mut self, now: Duration) -> Option<Timer<Life>> {
        if self.news && self.tell.as_ref().is_some_and(|(due, _)| *due <= now) {
            return self.tell.take().map(|(_, timer)| timer);
        }
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Notes whether there is news to send.
    fn tell(&mut self, now: Duration, news: bool) {
        if news
            && !self.news
            && let Some((due, _)) = &mut self.tell
        {
            *due = now.max(*due);
        }
        self.news = news;
    }

    fn postpone(&mut self, by: Duration) {
        let due = std::mem::take(&mut self.due);
        let later = due
            .into_iter()
            .map(|((at, set), timer)| ((at + by, set), timer));
        self.due = later.collect();
        if let Some((due, _)) = &mut self.tell {
            *due += by;
        }
    }
}

/// Collects the timers and messages that `foca` asks for.
struct Out<'a> {
    now: Duration,
    timers: &'a mut Timers,
    sends: Vec<Send>,
}

impl Runtime<Life> for Out<'_> {
    fn notify(&mut self, _: Notification<'_, Life>) {}

    fn send_to(&mut self, to: Life, bytes: &[u8]) {
        let (to, bytes) = (to.node, bytes.to_vec());
        self.sends.push(Send { to, bytes });
    }

    fn submit_after(&mut self, timer: Timer<Life>, after: Duration) {
        match timer {
            Timer::PeriodicGossip(_) => self.timers.tell = Some((self.now + after, timer)),
            timer => self.timers.set(self.now + after, timer),
        }
    }
}

fn some(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}

fn config(members: usize) -> Config {
    let doublings = members.max(1).ilog2();
    let digits = u8::try_from(members.max(1).ilog10()).unwrap_or(0) + 1;
    Config {
        probe_period: PROBE_PERIOD,
        probe_rtt: PROBE_DIRECT,
        num_indirect_probes: some(HELPERS),
        // Eight in a small cluster: one in ten messages may be lost.
        max_transmissions: NonZeroU8::new(4 + 4 * digits).unwrap_or(NonZeroU8::MIN),
        suspect_to_down_after: SUSPECTED + SUSPECTED_MORE * doublings.saturating_sub(3),
        remove_down_after: Some(REMEMBERED),
        max_packet_size: some(MESSAGE_MAX),
        notify_down_members: true,
        periodic_announce: Some(PeriodicParams {
            frequency: ASKED_EVERY,
            num_members: some(1),
        }),
        // We do that ourselves: foca does nothing while it knows no live node, as after a cut between two.
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(PeriodicParams {
            frequency: TOLD_EVERY,
            num_members: some(TOLD_TO),
        }),
    }
}

impl Swim {
    /// This node's life has to have a higher number than all its earlier ones.
    #[must_use]
    pub(crate) fn new(now: Duration, own: Life, seed: u64) -> Self {
        let mut chance = Pcg64Mcg::seed_from_u64(seed);
        let foca = Foca::new(
            own,
            config(1),
            Pcg64Mcg::from_rng(&mut chance),
            PostcardCodec,
        );
        Self {
            foca,
            chance,
            timers: Timers::default(),
            members: BTreeSet::new(),
            call: now,
            warn: None,
        }
    }

    /// This node as others know it.
    #[must_use]
    pub(crate) fn own(&self) -> Life {
        *self.foca.identity()
    }

    /// When to tick next.
    #[must_use]
    pub(crate) fn due(&self) -> Duration {
        let others = self.timers.first().into_iter().chain(self.warn);
        others.fold(self.call, Duration::min)
    }

    /// All nodes that have been heard of, members or not, and whether they are reached; in no order.
    pub(crate) fn known(&self) -> impl Iterator<Item = (NodeId, Reach)> {
        self.foca.iter_membership_state().map(|member| {
            let reach = match member.state() {
                foca::State::Alive => Reach::Up,
                foca::State::Suspect => Reach::Suspect,
                foca::State::Down => Reach::Down,
            };
            (member.id().node, reach)
        })
    }

    /// Handles an event, and returns the messages that are to be sent for it.
    pub(crate) fn handle(&mut self, now: Duration, event: Event<'_>) -> Vec<Send> {
        let own = self.own();
        let mut sends = match event {
            Event::Members(members) => self.set_members(now, members),
            Event::Message { from, bytes } => self.receive(now, from, bytes),
            Event::Tick => self.tick(now),
        };
        if self.own() != own {
            // foca waits for a message before it probes in a new life. Where none comes it would hold all
            // others for alive for ever.
            let mut out = Self::out(now, &mut self.timers);
            let result = self.foca.apply_many(std::iter::empty(), false, &mut out);
            sends.extend(done(result, out.sends));
        }
        self.timers.tell(now, self.foca.updates_backlog() > 0);
        let mut members = self.foca.iter_members();
        let suspects = members.any(|member| member.state() == foca::State::Suspect);
        self.warn = match self.warn {
            Some(warn) if suspects => Some(warn),
            _ => suspects.then(|| now + WARNED_EVERY),
        };
        sends
    }

    fn out(now: Duration, timers: &mut Timers) -> Out<'_> {
        let sends = Vec::new();
        Out { now, timers, sends }
    }

    fn set_members(&mut self, now: Duration, members: &BTreeSet<NodeId>) -> Vec<Send> {
        let gone: Vec<_> = self.members.difference(members).copied().collect();
        self.members.clone_from(members);
        // foca refuses only changes of what is fixed while it runs; we change none of that.
        let _ = self.foca.set_config(config(members.len()));
        self.call = now;
        let known = self.foca.iter_members().map(|member| *member.id());
        let gone = known.filter(|life| gone.contains(&life.node));
        let gone: Vec<_> = gone.map(foca::Member::down).collect();
        let mut out = Self::out(now, &mut self.timers);
        let result = self.foca.apply_many(gone.into_iter(), true, &mut out);
        done(result, out.sends)
    }

    fn receive(&mut self, now: Duration, from: NodeId, bytes: &[u8]) -> Vec<Send> {
        // No node speaks for another one.
        let header = postcard::take_from_bytes::<foca::Header<Life>>(bytes);
        if !header.is_ok_and(|(header, _)| header.src.node == from) {
            tracing::debug!("a message of another sender, or of none, is refused");
            return Vec::new();
        }
        let mut out = Self::out(now, &mut self.timers);
        let result = self.foca.handle_data(bytes, &mut out);
        done(result, out.sends)
    }

    fn tick(&mut self, now: Duration) -> Vec<Send> {
        let late = now.saturating_sub(self.due());
        if late > STALL {
            // We stood still: answers wait to be read, and nobody was asked anything.
            self.timers.postpone(late);
        }
        let mut sends = Vec::new();
        while let Some(timer) = self.timers.take(now) {
            let mut out = Self::out(now, &mut self.timers);
            let result = self.foca.handle_timer(timer, &mut out);
            sends.extend(done(result, out.sends));
        }
        if self.call <= now {
            self.call = now + CALLED_EVERY;
            sends.extend(self.call_out(now));
        }
        if self.warn.is_some_and(|warn| warn <= now) {
            self.warn = Some(now + WARNED_EVERY);
            sends.extend(self.warnings());
        }
        sends
    }

    /// Tells members directly that they are suspected: those that live deny it at once. Without this a node
    /// whose own life was renewed would suspect others for ever: foca then forgets when it wanted to decide,
    /// and the others, which answer its probes, never learn what they should deny.
    fn warnings(&self) -> Vec<Send> {
        let members = self.foca.iter_members();
        let suspects = members.filter(|member| member.state() == foca::State::Suspect);
        let warning = |suspect: &foca::Member<Life>| {
            let header = foca::Header {
                src: self.own(),
                // foca does not tell us our own one; a lower one says nothing new.
                src_incarnation: 0,
                dst: *suspect.id(),
                message: foca::Message::Gossip,
            };
            let mut bytes = postcard::to_stdvec(&header).ok()?;
            bytes.extend_from_slice(&1u16.to_be_bytes());
            bytes.extend(postcard::to_stdvec(suspect).ok()?);
            let to = suspect.id().node;
            Some(Send { to, bytes })
        };
        suspects.take(WARNED).filter_map(warning).collect()
    }

    /// Contacts members that are not reached.
    fn call_out(&mut self, now: Duration) -> Vec<Send> {
        let own = self.own().node;
        let active: BTreeSet<_> = self
            .foca
            .iter_members()
            .map(|member| member.id().node)
            .collect();
        let silent = self
            .members
            .iter()
            .filter(|node| **node != own && !active.contains(node));
        let mut silent: Vec<_> = silent.copied().collect();
        let most = CALLED.max(silent.len() / CALLED_PART);
        let mut sends = Vec::new();
        for _ in 0..most.min(silent.len()) {
            let node = silent.swap_remove(self.chance.random_range(0..silent.len()));
            // Any number will do for its life, of which we may never have heard.
            let life = Life { node, number: 0 };
            let mut out = Self::out(now, &mut self.timers);
            let result = self.foca.announce(life, &mut out);
            sends.extend(done(result, out.sends));
        }
        sends
    }
}

fn done(result: Result<(), foca::Error>, sends: Vec<Send>) -> Vec<Send> {
    if let Err(error) = result {
        // A message of another version, or one that came too late.
        tracing::debug!(%error, "news of members are passed over");
    }
    sends
}

#[cfg(test)]
mod tests;
