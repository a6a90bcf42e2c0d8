use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A network of nodes, in simulated time.
struct World {
    nodes: Vec<Option<Swim>>,
    now: Duration,
    chance: Pcg64Mcg,
    /// Messages that are lost, in percent.
    loss: u32,
    /// Nodes of different sides do not reach each other.
    sides: Vec<u8>,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    flying: BTreeMap<u64, (usize, NodeId, Vec<u8>)>,
    sent: u64,
    /// The longest message.
    longest: usize,
    members: BTreeSet<NodeId>,
    /// Pairs of a node and another one that it reaches, and yet holds for dead.
    wronged: BTreeSet<(usize, usize)>,
    /// When a pair came to be wronged, and which.
    falls: Vec<(Duration, usize, usize)>,
    /// The node that stands still; the messages in `held` wait for it.
    stopped: Option<usize>,
    held: Vec<u64>,
}

fn id(node: usize) -> NodeId {
    NodeId(node as u64 * 0x0123_4567_89ab + 1)
}

const MS: Duration = Duration::from_millis(1);

impl World {
    fn new(count: usize, seed: u64) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            now: Duration::ZERO,
            chance: Pcg64Mcg::seed_from_u64(seed),
            loss: 0,
            sides: vec![0; count],
            queue: BinaryHeap::new(),
            flying: BTreeMap::new(),
            sent: 0,
            longest: 0,
            members: (0..count).map(id).collect(),
            wronged: BTreeSet::new(),
            falls: Vec::new(),
            stopped: None,
            held: Vec::new(),
        };
        world.nodes = (0..count).map(|_| None).collect();
        for node in 0..count {
            world.start(node, 1);
        }
        world
    }

    /// All nodes know each other, as in a cluster that has been up for long.
    fn settled(count: usize, seed: u64) -> Self {
        let mut world = Self::new(count, seed);
        for (node, swim) in world.nodes.iter_mut().enumerate() {
            let swim = swim.as_mut().expect("started");
            let others = (0..count).filter(|other| *other != node);
            let others = others.map(|other| {
                let node = id(other);
                foca::Member::alive(Life { node, number: 1 })
            });
            let others: Vec<_> = others.collect();
            let mut out = Swim::out(Duration::ZERO, &mut swim.timers);
            swim.foca
                .apply_many(others.into_iter(), false, &mut out)
                .expect("applied");
            // They do not all probe at the same moment.
            let offset = MS * swim.chance.random_range(0..600);
            swim.timers.postpone(offset);
        }
        world
    }

    fn start(&mut self, node: usize, number: u32) {
        let life = Life {
            node: id(node),
            number,
        };
        let mut swim = Swim::new(self.now, life, self.chance.random());
        swim.handle(self.now, Event::Members(&self.members));
        self.nodes[node] = Some(swim);
    }

    fn send(&mut self, from: usize, sends: Vec<Send>) {
        for Send { to, bytes } in sends {
            self.longest = self.longest.max(bytes.len());
            let to = (0..self.nodes.len())
                .find(|node| id(*node) == to)
                .expect("a node");
            self.sent += 1;
            if self.sides[from] != self.sides[to] || self.chance.random_range(0..100) < self.loss {
                continue;
            }
            let at = self.now + MS * self.chance.random_range(1..5);
            self.flying.insert(self.sent, (to, id(from), bytes));
            self.queue.push(Reverse((at, self.sent)));
        }
    }

    fn step(&mut self) {
        let running = |(node, swim): (usize, &Option<Swim>)| {
            let swim = swim.as_ref().filter(|_| self.stopped != Some(node));
            swim.map(Swim::due)
        };
        let ticks = self.nodes.iter().enumerate().filter_map(running).min();
        let arrival = self.queue.peek().map(|Reverse((at, _))| *at);
        let next = ticks
            .into_iter()
            .chain(arrival)
            .min()
            .expect("something is due");
        self.now = self.now.max(next);
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > self.now {
                break;
            }
            self.queue.pop();
            if self.stopped == Some(self.flying[&number].0) {
                self.held.push(number);
                continue;
            }
            let (to, from, bytes) = self.flying.remove(&number).expect("on its way");
            if let Some(swim) = &mut self.nodes[to] {
                let event = Event::Message {
                    from,
                    bytes: &bytes,
                };
                let sends = swim.handle(self.now, event);
                self.send(to, sends);
            }
        }
        for node in 0..self.nodes.len() {
            if let Some(swim) = &mut self.nodes[node]
                && swim.due() <= self.now
                && self.stopped != Some(node)
            {
                let sends = swim.handle(self.now, Event::Tick);
                self.send(node, sends);
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// The time until `seen` holds, which is checked ten times a second.
    fn until(&mut self, most: Duration, seen: impl Fn(&Self) -> bool) -> Option<Duration> {
        let begun = self.now;
        while self.now < begun + most {
            if seen(self) {
                return Some(self.now - begun);
            }
            self.run(100 * MS);
        }
        None
    }

    fn sees(&self, node: usize, other: usize) -> Option<Reach> {
        let mut known = self.nodes[node].as_ref()?.known();
        let found = known.find(|(known, _)| *known == id(other));
        Some(found.map_or(Reach::Down, |(_, reach)| reach))
    }

    fn all_see(&self, other: usize, wanted: Reach) -> bool {
        let others = (0..self.nodes.len()).filter(|node| *node != other);
        others
            .filter_map(|node| self.sees(node, other))
            .all(|seen| seen == wanted)
    }

    fn all_up(&self) -> bool {
        (0..self.nodes.len()).all(|node| self.all_see(node, Reach::Up))
    }

    /// Notes which nodes are held for dead although they live and are reached.
    fn judge(&mut self) {
        for node in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                let reached = node != other
                    && self.nodes[other].is_some()
                    && self.sides[node] == self.sides[other];
                if !reached {
                    continue;
                }
                if self.sees(node, other) != Some(Reach::Down) {
                    self.wronged.remove(&(node, other));
                } else if self.wronged.insert((node, other)) {
                    self.falls.push((self.now, node, other));
                }
            }
        }
    }
}

#[test]
fn a_node_that_dies_is_down_everywhere_within_ten_seconds() {
    for (count, seeds) in [(2, 40), (3, 40), (4, 40), (8, 20), (20, 10), (200, 2)] {
        let mut times = Vec::new();
        for seed in 0..seeds {
            let mut world = World::settled(count, seed);
            world.run(MS * 3_000);
            assert!(world.all_up(), "{count} nodes, seed {seed}");
            world.nodes[0] = None;
            let took = world.until(Duration::from_secs(10), |w| w.all_see(0, Reach::Down));
            times.push(took.unwrap_or_else(|| panic!("{count} nodes, seed {seed}: not down")));
            let others = (1..count).all(|node| world.all_see(node, Reach::Up));
            assert!(others, "{count} nodes, seed {seed}: another one is not up");
        }
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{count} nodes: median {median:?}, worst {worst:?}");
    }
}

#[test]
fn nodes_that_start_find_each_other_and_one_that_returns_is_found() {
    for (count, seed) in [(2, 1), (3, 2), (20, 3), (100, 4)] {
        let mut world = World::new(count, seed);
        let most = Duration::from_secs(30);
        let took = world.until(most, World::all_up);
        println!("{count} nodes: all up after {:?}", took.expect("all up"));
        // It is back before anybody has noticed.
        world.start(1, 2);
        world.until(most, World::all_up).expect("all up");
        world.nodes[1] = None;
        let down = world.until(most, |world| world.all_see(1, Reach::Down));
        down.expect("down");
        world.start(1, 3);
        let took = world.until(most, World::all_up).expect("all up");
        println!("{count} nodes: it is back after {took:?}");
        assert!(world.longest <= MESSAGE_MAX);
    }
}

#[test]
fn a_network_that_was_split_grows_together() {
    for (count, apart, seed) in [(2, 1, 1), (3, 1, 2), (8, 4, 3), (20, 7, 4), (60, 30, 5)] {
        let mut world = World::settled(count, seed);
        world.run(MS * 2_000);
        for side in &mut world.sides[..apart] {
            *side = 1;
        }
        let most = Duration::from_secs(30);
        let split = world.until(most, |w| {
            let mut pairs = (0..apart).flat_map(|a| (apart..count).map(move |b| (a, b)));
            pairs.all(|(a, b)| {
                let sees = (w.sees(a, b), w.sees(b, a));
                sees == (Some(Reach::Down), Some(Reach::Down))
            })
        });
        split.expect("both sides have noticed");
        world.run(Duration::from_secs(60));
        world.sides.fill(0);
        let took = world.until(most, World::all_up).expect("all up");
        println!("{count} nodes: whole again after {took:?}");
    }
}

#[test]
fn a_cut_of_any_length_heals() {
    for count in [2, 3, 5] {
        for length in 0..40 {
            let mut world = World::settled(count, length);
            world.run(MS * 2_000);
            world.sides[0] = 1;
            world.run(Duration::from_millis(200 * length));
            world.sides[0] = 0;
            // Not just for a moment: a suspected node may be down soon.
            let most = Duration::from_secs(20);
            let healed = world.until(most, World::all_up);
            assert!(healed.is_some(), "{count} nodes, {length}");
            world.run(Duration::from_secs(10));
            assert!(world.all_up(), "{count} nodes, {length}");
        }
    }
}

#[test]
fn nobody_is_held_for_dead_while_one_message_in_ten_is_lost() {
    let mut falls = 0;
    for seed in 0..3 {
        let mut world = World::settled(10, seed);
        world.loss = 10;
        let end = Duration::from_secs(600);
        while world.now < end {
            world.run(200 * MS);
            world.judge();
        }
        falls += world.falls.len();
        println!(
            "seed {seed}: {} falls, {} messages",
            world.falls.len(),
            world.sent
        );
    }
    assert_eq!(falls, 0);
}

#[test]
fn who_stood_still_suspects_nobody_and_is_back_at_once() {
    let mut world = World::settled(5, 6);
    world.run(MS * 2_000);
    // The node is stopped while it waits for an answer, and goes on when the others hold it
    // for dead.
    let probes = |(_, from, bytes): &(usize, NodeId, Vec<u8>)| {
        let header = postcard::from_bytes::<foca::Header<Life>>(bytes).expect("a message");
        *from == id(0) && matches!(header.message, foca::Message::Ping(_))
    };
    while !world.flying.values().any(probes) {
        world.step();
    }
    world.stopped = Some(0);
    world.run(Duration::from_secs(20));
    assert!(world.all_see(0, Reach::Down));
    world.stopped = None;
    let late = world.nodes[0].as_mut().expect("it runs");
    let sends = late.handle(world.now, Event::Tick);
    world.send(0, sends);
    for number in std::mem::take(&mut world.held) {
        world.queue.push(Reverse((world.now, number)));
    }
    for _ in 0..30 {
        let wronged = (1..5).find(|other| world.sees(0, *other) != Some(Reach::Up));
        assert_eq!(wronged, None);
        world.run(100 * MS);
    }
    assert!(world.all_up());
}

#[test]
fn who_is_cut_off_in_a_new_life_notices_it() {
    let mut world = World::settled(3, 9);
    world.run(MS * 2_000);
    let told = Life {
        node: id(0),
        number: 1,
    };
    let other = world.nodes[1].as_mut().expect("it runs");
    let header = foca::Header {
        src: other.own(),
        src_incarnation: 0,
        dst: told,
        message: foca::Message::TurnUndead,
    };
    let bytes = postcard::to_stdvec(&header).expect("encoded");
    let swim = world.nodes[0].as_mut().expect("it runs");
    let (from, bytes) = (id(1), &bytes[..]);
    swim.handle(world.now, Event::Message { from, bytes });
    assert_eq!(swim.own().number, 2);
    world.sides[0] = 1;
    world.flying.clear();
    world.queue.clear();
    let alone = |world: &World| (1..3).all(|other| world.sees(0, other) == Some(Reach::Down));
    let took = world.until(Duration::from_secs(20), alone);
    assert!(took.is_some());
}

#[test]
fn a_member_that_was_removed_is_forgotten_and_may_come_back() {
    let mut world = World::settled(4, 7);
    world.run(MS * 1_000);
    let all = world.members.clone();
    let left: BTreeSet<_> = all.iter().copied().filter(|node| *node != id(3)).collect();
    world.nodes[3] = None;
    world.members.clone_from(&left);
    for node in 0..3 {
        let swim = world.nodes[node].as_mut().expect("it runs");
        let sends = swim.handle(world.now, Event::Members(&left));
        world.send(node, sends);
        assert_eq!(world.sees(node, 3), Some(Reach::Down));
    }
    world.run(Duration::from_secs(5));
    assert!(world.all_see(3, Reach::Down));
    world.members.clone_from(&all);
    for node in 0..3 {
        let swim = world.nodes[node].as_mut().expect("it runs");
        swim.handle(world.now, Event::Members(&all));
    }
    world.start(3, 2);
    let most = Duration::from_secs(10);
    world.until(most, World::all_up).expect("it is back");
}

#[test]
fn nobody_speaks_for_another() {
    let mut world = World::settled(3, 8);
    let swim = world.nodes[1].as_mut().expect("it runs");
    let mut out = Swim::out(Duration::ZERO, &mut swim.timers);
    let to = Life {
        node: id(0),
        number: 1,
    };
    swim.foca.announce(to, &mut out).expect("made");
    let message = out.sends.remove(0).bytes;
    let swim = world.nodes[0].as_mut().expect("it runs");
    let event = |from| Event::Message {
        from,
        bytes: &message,
    };
    assert!(swim.handle(MS, event(id(2))).is_empty());
    assert_eq!(swim.handle(MS, event(id(1))).len(), 1);
}
