//! The life of this node among the others: a task that sends and receives datagrams, and lets
//! [`crate::members::swim`] and [`whim_balance::gossip`] decide what is in them.

mod setups;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use whim_balance::gossip::{Rumor, View};
use whim_balance::{NodeId, sample};
use whim_machine::sensors::Report;
use whim_net::NodeName;
use whim_net::datagram::{DATAGRAM_MAX, DatagramError, Received};

use crate::ground::Ground;
use crate::members::cluster;
use crate::members::discovery;
use crate::members::gossip::{self, About, Head, Kind, State, node_id};
use crate::members::swim::{self, Event, Life, Reach, Swim};
use crate::past::events::now_ms;
use crate::settings::Settings;
use setups::{Setups, Upshot};

/// Each node reports on itself, and on others, when it has sampled its own state: once a second. It does not
/// wait for the sample longer than this.
const TOLD_LATEST: Duration = Duration::from_millis(1500);
/// Least time between two reports: a node that has waited does not hurry then.
const TOLD_EARLIEST: Duration = Duration::from_millis(500);
/// In a cluster of up to so many nodes, each reports to every other one: no rumor is older than a second
/// there, and each node sends fewer datagrams than there are rumors in a message. In a larger cluster it
/// reports to one node, chosen at random.
pub(crate) const ALL_MAX: usize = 9;
/// How many messages wait for keys with one node; the oldest gives way.
const WAITING_MAX: usize = 4;
/// How many datagrams are received before something else has its turn.
const BATCH: usize = 64;
/// Least time between two requests for the list of members.
const ROSTER_PAUSE: Duration = Duration::from_millis(500);
/// A node from which something came within this time is up, even if it is suspected: where round trips are
/// long and messages get lost, single probes fail all the time. When the time is over, a node that died is
/// suspected, and it is down soon after.
const SPOKE: Duration = Duration::from_secs(2);
/// File in the state directory with the number of this node's last life.
const LIFE: &str = "life";
/// Descriptions of nodes that are kept; most nodes of a cluster share theirs.
const ABOUTS_MAX: usize = 2048;

/// Messages that wait to be sealed.
type Waiting = VecDeque<(Kind, Vec<u8>)>;

/// What the pulse has to know of this node, and rooms above know.
pub(crate) trait OwnNode: Send + Sync {
    /// What this node tells of itself.
    fn report(&self) -> Report;
    /// Whether it has programs that the balancer may want to move, so that it wants to know how others are.
    fn decides(&self) -> bool;
}

/// The state of the task.
struct Pulse {
    ground: Arc<Ground>,
    own: Arc<dyn OwnNode>,
    socket: UdpSocket,
    chance: Pcg64Mcg,
    /// While this node is in a cluster.
    swim: Option<Swim>,
    /// This node's name as a member, and the version of its list of members.
    joined: Option<(NodeName, u64)>,
    names: BTreeMap<NodeId, NodeName>,
    reached: HashMap<NodeId, Reach>,
    /// When each node's last datagram came.
    spoke: HashMap<NodeId, Duration>,
    view: View<State>,
    own_about: (About, u64),
    abouts: HashMap<u64, About>,
    waiting: HashMap<NodeName, Waiting>,
    setups: Setups,
    roster_asked: Option<Duration>,
    tell: Duration,
    /// When to call into the network next, where the configuration wants that.
    call: Option<Duration>,
}

/// Runs for ever.
///
/// `looked` is rung when there is something new to report of this node, once a second.
pub(crate) async fn run(
    ground: Arc<Ground>,
    own: Arc<dyn OwnNode>,
    socket: UdpSocket,
    looked: Arc<Notify>,
) {
    let (upshots, mut happened) = mpsc::unbounded_channel();
    let mut changes = ground.cluster().changes();
    let mut pulse = Pulse::new(Arc::clone(&ground), own, socket, upshots);
    let mut buffer = [0; DATAGRAM_MAX + 1];
    loop {
        let due = pulse.due().saturating_sub(ground.clock());
        tokio::select! {
            received = pulse.socket.recv_from(&mut buffer) => {
                if let Ok((length, from)) = received {
                    pulse.receive(from, &mut buffer[..length]);
                    pulse.receive_more(&mut buffer);
                }
            }
            Some(upshot) = happened.recv() => pulse.settle(upshot),
            Ok(()) = changes.changed() => pulse.members(),
            () = looked.notified() => pulse.looked(),
            () = tokio::time::sleep(due) => {}
        }
        pulse.tick();
        pulse.call().await;
    }
}

impl Pulse {
    fn new(
        ground: Arc<Ground>,
        own: Arc<dyn OwnNode>,
        socket: UdpSocket,
        upshots: mpsc::UnboundedSender<Upshot>,
    ) -> Self {
        let about = About::of(&own.report());
        let digest = about.digest();
        let call = ground.config().discover.then_some(Duration::ZERO);
        // It makes no secrets: it decides which member comes next.
        let seed = whim_net::tls::digest::random().map_or_else(|_| now_ms(), u64::from_le_bytes);
        Self {
            setups: Setups::new(Arc::clone(&ground), upshots),
            ground,
            own,
            socket,
            chance: Pcg64Mcg::seed_from_u64(seed),
            swim: None,
            joined: None,
            names: BTreeMap::new(),
            reached: HashMap::new(),
            spoke: HashMap::new(),
            view: View::new(NodeId(0)),
            own_about: (about, digest),
            abouts: HashMap::new(),
            waiting: HashMap::new(),
            roster_asked: None,
            tell: Duration::ZERO,
            call,
        }
    }

    /// This node has sampled its own state: it reports now, unless it has just done so.
    fn looked(&mut self) {
        let now = self.ground.clock();
        if now + TOLD_LATEST >= self.tell + TOLD_EARLIEST {
            self.tell = now;
        }
    }

    fn due(&self) -> Duration {
        let swim = self.swim.as_ref().map(Swim::due);
        let others = swim.into_iter().chain(self.call);
        others.fold(self.tell, Duration::min)
    }

    /// Announces this node in the networks of this machine, when it is time.
    async fn call(&mut self) {
        let now = self.ground.clock();
        if self.call.is_some_and(|due| due <= now) {
            self.call = Some(now + discovery::EVERY);
            discovery::call(self.ground.cluster(), &self.socket).await;
        }
    }

    /// Notes that somebody called. A call proves nothing, so no more is done.
    fn called(&self, from: SocketAddr, call: &[u8]) {
        if self.call.is_none() {
            return;
        }
        let found = self
            .ground
            .membership()
            .discovery()
            .hear(self.ground.clock(), from, call);
        // Our own calls come back.
        let others = found.filter(|found| !discovery::is_own(found.address.ip()));
        let ours = self.ground.cluster().name();
        if let Some((found, mend)) = others.and_then(|found| found.proposal(ours.as_ref())) {
            tracing::info!("{found}. {mend}");
        }
    }

    fn tick(&mut self) {
        let now = self.ground.clock();
        if self.tell <= now {
            self.tell = now + TOLD_LATEST;
            self.members();
            self.send_rumors();
        }
        if self.swim.as_ref().is_some_and(|swim| swim.due() <= now) {
            self.swim(now, Event::Tick);
        }
    }

    /// Takes up a new list of members, and notices that this node has joined or left.
    fn members(&mut self) {
        let cluster = &self.ground.cluster();
        let joined = cluster.identity().map(|own| (own, cluster.version()));
        if joined == self.joined {
            return;
        }
        let now = self.ground.clock();
        let before = self.joined.as_ref().map(|(own, _)| own);
        if before != joined.as_ref().map(|(own, _)| own) {
            self.swim = None;
        }
        let members = cluster.members();
        let names = members.iter().filter_map(|member| {
            let name = NodeName::new(member.name.as_str()).ok()?;
            Some((node_id(name.as_str()), name))
        });
        let names: BTreeMap<_, _> = names.collect();
        self.ground.membership().drop_keys();
        let gone = self.names.iter().filter(|(id, _)| !names.contains_key(id));
        for (id, name) in gone {
            self.ground.peers().forget(name.as_str());
            self.waiting.remove(name);
            self.setups.forget(name);
            self.reached.remove(id);
            self.spoke.remove(id);
        }
        self.names = names;
        self.joined = joined;
        let Some((own, _)) = &self.joined else {
            self.ground.membership().forget_keys();
            self.view = View::new(NodeId(0));
            return;
        };
        if self.swim.is_none() {
            let node = node_id(own.as_str());
            let number = next_life(self.ground.settings());
            self.swim = Some(Swim::new(now, Life { node, number }, self.chance.random()));
            self.view = View::new(node);
        }
        let ids = self.names.keys().copied().collect();
        self.swim(now, Event::Members(&ids));
    }

    /// Hands an event to the membership core, and sends the messages that come of it.
    fn swim(&mut self, now: Duration, event: Event<'_>) {
        let Some(swim) = &mut self.swim else {
            return;
        };
        let life = swim.own();
        let sends = swim.handle(now, event);
        let own = swim.own();
        if own != life {
            tracing::info!("this node was held for dead, and says that it lives");
            save_life(self.ground.settings(), own.number);
        }
        for swim::Send { to, bytes } in sends {
            let Some(name) = self.names.get(&to).cloned() else {
                continue;
            };
            if self.reached.get(&to) == Some(&Reach::Down) {
                // It may have other keys or another address by now; a session finds out.
                self.setups.want(&name);
            }
            self.send(&name, Kind::Swim, bytes);
        }
        self.note_reached();
    }

    /// Tells the rest of the daemon which nodes are reached, as far as that has changed.
    fn note_reached(&mut self) {
        let Some(swim) = &self.swim else {
            return;
        };
        let now = self.ground.clock();
        let mut risen = Vec::new();
        for (node, reach) in swim.known() {
            let Some(name) = self.names.get(&node) else {
                continue;
            };
            let spoke = self.spoke.get(&node).is_some_and(|at| now < *at + SPOKE);
            let reach = match reach {
                Reach::Suspect if spoke => Reach::Up,
                reach => reach,
            };
            let before = self.reached.insert(node, reach);
            if before == Some(reach) {
                continue;
            }
            let counters = self.ground.metrics().counters();
            match (before, reach) {
                (Some(Reach::Up | Reach::Suspect), Reach::Down) => counters.link_lost(),
                (Some(Reach::Down), Reach::Up | Reach::Suspect) => counters.link_healed(),
                _ => {}
            }
            self.ground.peers().stands(name.as_str(), reach);
            tracing::info!(node = %name, ?reach, "a member");
            if reach == Reach::Up && before != Some(Reach::Suspect) {
                risen.push(name.clone());
            }
        }
        if !risen.is_empty() && self.names.len() <= ALL_MAX {
            self.tell_to(&risen);
        }
    }

    /// Sends out this node's load, and what it knows of others'.
    fn send_rumors(&mut self) {
        let own = self.view_owner();
        let up = |reach: Option<&Reach>| reach.is_some_and(|reach| *reach != Reach::Down);
        let others = self.names.iter().filter(|(id, _)| Some(**id) != own);
        let live = others.filter(|(id, _)| up(self.reached.get(id)));
        let mut live: Vec<NodeName> = live.map(|(_, name)| name.clone()).collect();
        self.ask_some(&live);
        if self.names.len() > ALL_MAX && !live.is_empty() {
            let place = self.chance.random_range(0..live.len());
            live = vec![live.swap_remove(place)];
        }
        let now = self.ground.clock_ms();
        let names = &self.names;
        self.view.forget_old(now);
        self.view.forget(|node| !names.contains_key(&node));
        self.tell_to(&live);
    }

    fn view_owner(&self) -> Option<NodeId> {
        self.swim.as_ref().map(|swim| swim.own().node)
    }

    fn tell_to(&mut self, nodes: &[NodeName]) {
        if nodes.is_empty() {
            return;
        }
        let rumors = self.view.message(self.ground.clock_ms(), self.state());
        let bodies = gossip::pack(&rumors);
        for node in nodes {
            for body in &bodies {
                self.send(node, Kind::Rumors, body.clone());
            }
        }
    }

    /// The state of this node now.
    fn state(&self) -> State {
        gossip::encode(&self.own.report(), self.own_about.1)
    }

    /// A node that is about to decide asks for the state of this one: an answer is no longer than what other
    /// nodes would tell of it anyhow.
    fn tell_own(&mut self, to: &NodeName) {
        let Some(node) = self.view_owner() else {
            return;
        };
        let own = Rumor {
            node,
            age_ms: 0,
            state: self.state(),
        };
        for body in gossip::pack(&[own]) {
            self.send(to, Kind::Rumors, body);
        }
    }

    /// In a large cluster what is known of most nodes is old. While there is something to decide, we ask some
    /// nodes, different ones each time, and only fresh rumors count (`balancing`).
    fn ask_some(&mut self, live: &[NodeName]) {
        let above = self.ground.config().balance.ask_above;
        if live.len() <= above || !self.own.decides() {
            return;
        }
        let chance = &mut self.chance;
        let asked = sample::some(live.len(), above, |limit| chance.random_range(0..limit));
        for place in asked {
            if let Some(node) = live.get(place) {
                self.send(node, Kind::Ask, Vec::new());
            }
        }
    }

    fn head(&self, kind: Kind) -> Head {
        Head {
            kind,
            members: self.joined.as_ref().map_or(0, |(_, version)| *version),
            time_ms: now_ms(),
        }
    }

    /// Sends a text, or keeps it until there are keys.
    fn send(&mut self, to: &NodeName, kind: Kind, body: Vec<u8>) {
        let text = self.head(kind).text(&body);
        let sealed = self.ground.membership().with_keyring(|ring, now| {
            let wanted = ring.wants_keys(now, to);
            (wanted, ring.seal(to, &text))
        });
        let Ok((wanted, sealed)) = sealed else {
            return;
        };
        if wanted {
            self.setups.want(to);
        }
        match sealed {
            Ok((datagram, address)) => self.put(&datagram, address),
            Err(DatagramError::NoKeys | DatagramError::NoAddress) => {
                let waiting = self.waiting.entry(to.clone()).or_default();
                if waiting.len() >= WAITING_MAX {
                    waiting.pop_front();
                }
                waiting.push_back((kind, body));
            }
            Err(error) => tracing::warn!(%to, %error, "a datagram is not sent"),
        }
    }

    /// A datagram that cannot be sent now counts as lost: everything is sent again.
    fn put(&self, datagram: &[u8], to: SocketAddr) {
        let wide = self.socket.local_addr().is_ok_and(|own| own.is_ipv6());
        let ip = match to.ip() {
            IpAddr::V4(ip) if wide => ip.to_ipv6_mapped().into(),
            IpAddr::V6(ip) if !wide => ip.to_ipv4_mapped().map_or(ip.into(), IpAddr::from),
            ip => ip,
        };
        if let Err(error) = self.socket.try_send_to(datagram, (ip, to.port()).into()) {
            tracing::debug!(%to, %error, "a datagram was not sent");
        }
    }

    fn receive_more(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Ok((length, from)) = self.socket.try_recv_from(buffer) else {
                return;
            };
            self.receive(from, &mut buffer[..length]);
        }
    }

    fn receive(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        if datagram.first() == Some(&discovery::CALL) {
            self.called(from, datagram);
            return;
        }
        let received = self
            .ground
            .membership()
            .with_keyring(|ring, now| ring.receive(now, from, datagram));
        match received {
            Ok(Ok(Received::Text { from, text })) => self.take(&from, &text),
            Ok(Ok(Received::Doubted { node })) => self.setups.want(&node),
            Ok(Ok(Received::Answer(answer))) => self.put(&answer, from),
            // Anybody may send anything, so this is not worth a warning each time.
            Ok(Err(error)) => tracing::debug!(%from, %error, "a datagram is refused"),
            Err(_) => {}
        }
    }

    /// Takes in a text that a member has sent.
    fn take(&mut self, from: &NodeName, text: &[u8]) {
        self.setups.heard(from);
        self.spoke
            .insert(node_id(from.as_str()), self.ground.clock());
        self.flush(from);
        let Some((head, body)) = Head::read(text) else {
            tracing::debug!(%from, "a datagram of a later version is passed over");
            return;
        };
        let skew = head
            .time_ms
            .cast_signed()
            .saturating_sub(now_ms().cast_signed());
        self.ground.peers().differs(from.as_str(), skew);
        let ours = self.joined.as_ref().map_or(0, |(_, version)| *version);
        if head.members > ours {
            self.want_roster(from);
        }
        match head.kind {
            Kind::Hello => {}
            Kind::Swim => {
                let event = Event::Message {
                    from: node_id(from.as_str()),
                    bytes: body,
                };
                self.swim(self.ground.clock(), event);
            }
            Kind::Rumors => self.receive_rumors(body),
            Kind::Ask => self.tell_own(from),
        }
    }

    fn want_roster(&mut self, from: &NodeName) {
        let now = self.ground.clock();
        let early = |asked: Duration| now < asked + ROSTER_PAUSE;
        if self.roster_asked.is_some_and(early) {
            return;
        }
        self.roster_asked = Some(now);
        let (ground, from) = (Arc::clone(&self.ground), from.clone());
        tokio::spawn(async move {
            if let Err(error) = ground.membership().fetch_roster(from.as_str()).await {
                tracing::debug!(%from, %error, "a newer list of members was not got");
            }
        });
    }

    fn receive_rumors(&mut self, body: &[u8]) {
        let rumors = gossip::unpack(body);
        let now = self.ground.clock_ms();
        let own = self.view_owner();
        let known =
            |rumor: &Rumor<State>| Some(rumor.node) != own && self.names.contains_key(&rumor.node);
        let rumors: Vec<_> = rumors.into_iter().filter(known).collect();
        let before: Vec<_> = rumors
            .iter()
            .map(|rumor| self.view.of(rumor.node).map(|entry| entry.at))
            .collect();
        self.view.merge(now, &rumors);
        for (rumor, before) in rumors.iter().zip(before) {
            if self.view.of(rumor.node).map(|entry| entry.at) != before {
                self.note_rumor(rumor.node);
            }
        }
    }

    /// Hands the newest rumor of a node on to the rest of the daemon, with the class and the labels, which it
    /// leaves out.
    fn note_rumor(&mut self, node: NodeId) {
        let (Some(entry), Some(name)) = (self.view.of(node), self.names.get(&node)) else {
            return;
        };
        let Some((digest, mut report)) = gossip::decode(&entry.state) else {
            return;
        };
        let Some(about) = self.abouts.get(&digest) else {
            self.setups.ask_about(name, digest);
            return;
        };
        report.class = about.class.clone();
        report.labels.clone_from(&about.labels);
        let age = self.ground.clock_ms().saturating_sub(entry.at);
        let heard = Instant::now().checked_sub(Duration::from_millis(age));
        self.ground
            .peers()
            .heard(name.as_str(), report, heard.unwrap_or_else(Instant::now));
    }

    /// Takes up the outcome of a session that [`Setups`] began.
    fn settle(&mut self, upshot: Upshot) {
        match upshot {
            Upshot::Keys { node, result } => {
                self.setups.done(&node, result.is_ok());
                match result {
                    Ok(()) if !self.waiting.contains_key(&node) => {
                        // Only when it hears from us does it know that we have the keys.
                        self.send(&node, Kind::Hello, Vec::new());
                    }
                    Ok(()) => self.flush(&node),
                    Err(error) => tracing::debug!(%node, %error, "no keys were agreed on"),
                }
            }
            Upshot::About { digest, result } => {
                self.setups.told(digest);
                match result {
                    Ok(about) => {
                        self.keep_about(about);
                        let nodes: Vec<_> = self.view.entries().iter().map(|e| e.node).collect();
                        nodes.into_iter().for_each(|node| self.note_rumor(node));
                    }
                    Err(error) => tracing::debug!(%error, "a member did not describe itself"),
                }
            }
        }
    }

    fn keep_about(&mut self, about: About) {
        if self.abouts.len() >= ABOUTS_MAX {
            let states = self.view.entries().iter();
            let used: BTreeSet<_> = states
                .filter_map(|entry| Some(gossip::decode(&entry.state)?.0))
                .collect();
            self.abouts.retain(|digest, _| used.contains(digest));
        }
        // Filed by the digest of what it says, not by the one we asked for: no node describes another one.
        self.abouts.insert(about.digest(), about);
    }

    /// Sends what waited for keys.
    fn flush(&mut self, node: &NodeName) {
        for (kind, body) in self.waiting.remove(node).unwrap_or_default() {
            self.send(node, kind, body);
        }
    }
}

/// The number of a life that begins: higher than that of any before, even if the clock was set back.
fn next_life(settings: &Settings) -> u32 {
    let path = settings.state.join(LIFE);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let last = text.trim().parse::<u32>().unwrap_or(0);
    let clock = u32::try_from(cluster::now()).unwrap_or(0);
    let number = clock.max(last.saturating_add(1));
    save_life(settings, number);
    number
}

fn save_life(settings: &Settings, number: u32) {
    settings.save(LIFE, number.to_string().as_bytes());
}
