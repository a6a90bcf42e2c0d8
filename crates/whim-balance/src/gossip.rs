//! How nodes hear of each other's load: each pushes its freshest reports to one other node a second.
//!
//! A node knows the newest report ([`Rumor`]) of up to [`VIEW_MAX`] nodes. It sends its own and the [`RUMORS_MAX`]
//! freshest ones to a member that is chosen at random. Traffic per node is the same in a cluster of any size,
//! and no node is in the middle. Messages carry ages and not times, so clocks need not agree.
//!
//! Source: the gossip of MOSIX as `gossimon` has it (`libgossip`); [`expected_age`] is its formula.

use crate::{Millis, NodeId};
use serde::{Deserialize, Serialize};

/// Reports about other nodes in a message; in a cluster of up to so many, all of them.
pub const RUMORS_MAX: usize = 64;
/// The most nodes that one node knows of. In a larger cluster it knows a part of the others, and each node
/// knows another part.
pub const VIEW_MAX: usize = 1024;
/// How many of the newest reports are kept when a view is full. Making room for each message by itself took a
/// quarter of the time of a large simulation.
const KEPT: usize = VIEW_MAX - VIEW_MAX / 4;
/// At least as many as a view has entries while a message is merged.
const PLACES: u64 = 2 * VIEW_MAX as u64;
/// An older report says nothing about a node any more.
pub const AGE_MAX_MS: Millis = 120_000;

/// What was heard of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<S> {
    pub node: NodeId,
    /// When the node was in this state, by our clock.
    pub at: Millis,
    pub state: S,
}

/// One report in a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rumor<S> {
    pub node: NodeId,
    /// How old it was when it was sent, in milliseconds.
    pub age_ms: u32,
    pub state: S,
}

/// What one node knows of the others.
#[derive(Clone, Debug)]
pub struct View<S> {
    own: NodeId,
    /// In the order of nodes.
    entries: Vec<Entry<S>>,
    /// No report is older than this. As long as this time is not too old, no search for old reports is needed.
    oldest: Millis,
    /// Reports up to this age are likely to be those of the next message. It is a little more than the age in
    /// the last one.
    likely: Millis,
}

impl<S: Clone> View<S> {
    #[must_use]
    pub fn new(own: NodeId) -> Self {
        Self {
            own,
            entries: Vec::new(),
            oldest: Millis::MAX,
            likely: 0,
        }
    }

    /// All that is known, in the order of nodes.
    #[must_use]
    pub fn entries(&self) -> &[Entry<S>] {
        &self.entries
    }

    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<&Entry<S>> {
        let place = self.place(node).ok()?;
        self.entries.get(place)
    }

    fn place(&self, node: NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&node, |entry| entry.node)
    }

    /// What to send now: our own state, and the freshest reports of others.
    #[must_use]
    pub fn message(&mut self, now: Millis, state: S) -> Vec<Rumor<S>> {
        let places = self.freshest(now);
        let own = Rumor {
            node: self.own,
            age_ms: 0,
            state,
        };
        let others = places.into_iter().map(|place| {
            let entry = &self.entries[place];
            let age = now.saturating_sub(entry.at);
            Rumor {
                node: entry.node,
                age_ms: u32::try_from(age).unwrap_or(u32::MAX),
                state: entry.state.clone(),
            }
        });
        std::iter::once(own).chain(others).collect()
    }

    /// Places of the entries that go into a message, in the order of nodes, in which the receiver needs them.
    fn freshest(&mut self, now: Millis) -> Vec<usize> {
        if self.entries.len() <= RUMORS_MAX {
            return (0..self.entries.len()).collect();
        }
        // Of a thousand reports a tenth is fresh enough, and selecting takes far longer than filtering.
        let mut ages = self.ages(now, self.likely);
        if ages.len() < RUMORS_MAX {
            ages = self.ages(now, Millis::MAX);
        }
        let (_, last, _) = ages.select_nth_unstable(RUMORS_MAX - 1);
        let age = *last / PLACES;
        self.likely = age + age / 4;
        let place = |key: &u64| usize::try_from(key % PLACES).unwrap_or(0);
        let mut places: Vec<usize> = ages[..RUMORS_MAX].iter().map(place).collect();
        places.sort_unstable();
        places
    }

    /// The ages of all reports that are no older than this, with their places. Among equal ages the smaller
    /// place comes first, so that the same run gives the same messages.
    fn ages(&self, now: Millis, most: Millis) -> Vec<u64> {
        let mut ages = Vec::with_capacity(4 * RUMORS_MAX);
        let all = self.entries.iter().enumerate();
        let all = all.map(|(place, entry)| (place, now.saturating_sub(entry.at)));
        let fresh = all.filter(|(_, age)| *age <= most);
        ages.extend(fresh.map(|(place, age)| key(age, place)));
        ages
    }

    /// Merges a message into the view. Reports of others about ourselves are ignored, as are reports that are
    /// too old.
    pub fn merge(&mut self, now: Millis, rumors: &[Rumor<S>]) {
        let rumors = rumors.iter().take(RUMORS_MAX + 1);
        let credible =
            |rumor: &Rumor<S>| rumor.node != self.own && Millis::from(rumor.age_ms) <= AGE_MAX_MS;
        let mut news: Vec<&Rumor<S>> = rumors.filter(|rumor| credible(rumor)).collect();
        let times = news.iter().map(|rumor| time_of(now, rumor));
        self.oldest = times.fold(self.oldest, Millis::min);
        // Of two reports about the same node, keep the newer one, or the first.
        news.sort_by_key(|rumor| (rumor.node, rumor.age_ms));
        news.dedup_by_key(|rumor| rumor.node);
        let unknown = self.renew(now, &news);
        self.insert(now, &unknown);
        if self.entries.len() > VIEW_MAX {
            self.keep_newest(KEPT);
        }
    }

    /// Takes over what is newer than what is known, and returns the reports of unknown nodes. The reports are
    /// in the order of nodes, so that a view of a thousand is read once, from end to end. Searching for each
    /// report by itself took most of the time of a large simulation.
    fn renew<'a>(&mut self, now: Millis, news: &[&'a Rumor<S>]) -> Vec<&'a Rumor<S>> {
        let mut unknown = Vec::new();
        let mut place = 0;
        for rumor in news {
            while self
                .entries
                .get(place)
                .is_some_and(|entry| entry.node < rumor.node)
            {
                place += 1;
            }
            match self.entries.get_mut(place) {
                Some(entry) if entry.node == rumor.node => {
                    let new = entry_of(now, rumor);
                    if entry.at < new.at {
                        *entry = new;
                    }
                }
                _ => unknown.push(*rumor),
            }
        }
        unknown
    }

    /// Inserts reports of nodes that are not known: all at once, because inserting each by itself would move
    /// half of the view, and from the end on, so that nothing is copied but what has to move.
    fn insert(&mut self, now: Millis, unknown: &[&Rumor<S>]) {
        let mut known = self.entries.len();
        let fresh = unknown.iter().map(|rumor| entry_of(now, rumor));
        self.entries.extend(fresh);
        let mut left = unknown.len();
        while let Some(rumor) = left.checked_sub(1).map(|last| unknown[last]) {
            let to = known + left - 1;
            if known > 0 && self.entries[known - 1].node > rumor.node {
                self.entries.swap(known - 1, to);
                known -= 1;
            } else {
                self.entries[to] = entry_of(now, rumor);
                left -= 1;
            }
        }
    }

    /// Keeps the newest `count` reports; there must be more.
    fn keep_newest(&mut self, count: usize) {
        let times = self.entries.iter().enumerate();
        let mut times: Vec<u64> = times.map(|(place, entry)| key(entry.at, place)).collect();
        let extra = times.len() - count;
        let (_, oldest_kept, _) = times.select_nth_unstable(extra);
        let oldest_kept = *oldest_kept;
        self.oldest = oldest_kept / PLACES;
        let mut place = 0;
        self.entries.retain(|entry| {
            place += 1;
            key(entry.at, place - 1) >= oldest_kept
        });
    }

    /// Forgets nodes that are no longer members.
    pub fn forget(&mut self, is_gone: impl Fn(NodeId) -> bool) {
        self.entries.retain(|entry| !is_gone(entry.node));
    }

    /// Forgets reports that are too old.
    pub fn forget_old(&mut self, now: Millis) {
        let is_old = |at: Millis| at.saturating_add(AGE_MAX_MS) < now;
        if is_old(self.oldest) {
            self.entries.retain(|entry| !is_old(entry.at));
            let times = self.entries.iter().map(|entry| entry.at);
            self.oldest = times.min().unwrap_or(Millis::MAX);
        }
    }
}

/// A time and a place as one number, which sorts by the place among equal times. Numbers are sorted several
/// times as fast as pairs, and a node sorts a thousand each second.
#[inline]
fn key(time: Millis, place: usize) -> u64 {
    time.min(u64::MAX / PLACES - 1) * PLACES + place as u64
}

/// When the node was in this state, by our clock.
fn time_of<S>(now: Millis, rumor: &Rumor<S>) -> Millis {
    now.saturating_sub(Millis::from(rumor.age_ms))
}

fn entry_of<S: Clone>(now: Millis, rumor: &Rumor<S>) -> Entry<S> {
    Entry {
        node: rumor.node,
        at: time_of(now, rumor),
        state: rumor.state.clone(),
    }
}

/// The mean age, in steps, of what a node knows in a cluster of `nodes` whose messages hold `window` reports:
/// `libgossip`'s formula.
#[must_use]
pub fn expected_age(nodes: u32, window: u32) -> f64 {
    let (n, w) = (f64::from(nodes), f64::from(window));
    let time = (w * (n - 1.0) / (n - w)).ln() * (n - 1.0) / n;
    let e = (n * time / (n - 1.0)).exp();
    let x = n * e / (n - 1.0 + e);
    let in_window = time - (n - 1.0) / x * ((n - 1.0 + e).ln() - n.ln());
    1.0 / (1.0 - (1.0 - 1.0 / (n - 1.0)).powf(x)) + in_window
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time after which each node sends its next message.
    const STEP_MS: Millis = 1000;

    /// Random numbers for tests: `splitmix64` (Steele, Lea, Flood 2014).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            usize::try_from(mixed % limit as u64).unwrap_or(0)
        }
    }

    /// The mean age of all entries, in steps, in a cluster that has talked for a while.
    fn measured_age(nodes: usize, seed: u64) -> f64 {
        let mut chance = Chance(seed);
        let mut views: Vec<View<()>> = (0..nodes as u64)
            .map(|number| View::new(NodeId(number)))
            .collect();
        let (mut sum, mut count) = (0.0, 0.0);
        let steps = 100;
        for step in 1..=steps {
            // In a step each node sends once, at a moment of its own.
            for sender in 0..nodes {
                let now = step * STEP_MS + (sender * 1000 / nodes) as u64;
                let other = chance.below(nodes - 1);
                let receiver = other + usize::from(other >= sender);
                let rumors = views[sender].message(now, ());
                views[receiver].merge(now, &rumors);
            }
            if step > steps / 2 {
                let now = (step + 1) * STEP_MS;
                for entry in views.iter().flat_map(View::entries) {
                    sum += (now - entry.at) as f64 / STEP_MS as f64;
                    count += 1.0;
                }
            }
        }
        sum / count
    }

    #[test]
    fn the_newest_words_are_kept_and_sent() {
        let mut view: View<u64> = View::new(NodeId(0));
        let rumor = |node: u64, age_ms: u32| Rumor {
            node: NodeId(node),
            age_ms,
            state: node,
        };
        for node in 1..=VIEW_MAX as u64 + 10 {
            let age = u32::try_from(node).expect("small");
            view.merge(1_000_000, &[rumor(node, age)]);
        }
        // One report too many made it forget some; nine more have come since.
        assert_eq!(view.entries().len(), KEPT + 9);
        assert!(view.of(NodeId(KEPT as u64)).is_some());
        assert!(view.of(NodeId(KEPT as u64 + 1)).is_none());
        let message = view.message(1_000_500, 77);
        assert_eq!(message.len(), RUMORS_MAX + 1);
        assert_eq!(
            (message[0].node, message[0].age_ms, message[0].state),
            (NodeId(0), 0, 77)
        );
        let mut others: Vec<u64> = message[1..].iter().map(|rumor| rumor.node.0).collect();
        others.sort_unstable();
        assert_eq!(others, (1..=RUMORS_MAX as u64).collect::<Vec<_>>());
        assert_eq!(
            message.iter().find(|w| w.node.0 == 3).map(|w| w.age_ms),
            Some(503)
        );
    }

    #[test]
    fn words_come_in_any_order_and_twice() {
        let mut view: View<u8> = View::new(NodeId(0));
        let rumor = |node: u64, age_ms: u32, state| Rumor {
            node: NodeId(node),
            age_ms,
            state,
        };
        view.merge(9_000, &[rumor(5, 10, 1), rumor(3, 10, 2)]);
        view.merge(
            9_000,
            &[
                rumor(9, 10, 3),
                rumor(1, 20, 4),
                rumor(4, 10, 5),
                rumor(1, 5, 6),
                rumor(1, 5, 7),
                rumor(5, 9, 8),
            ],
        );
        let known = view.entries().iter();
        let known: Vec<(u64, u8)> = known.map(|entry| (entry.node.0, entry.state)).collect();
        assert_eq!(known, [(1, 6), (3, 2), (4, 5), (5, 8), (9, 3)]);
    }

    #[test]
    fn old_words_replace_nothing_and_nobody_speaks_for_us() {
        let mut view: View<&str> = View::new(NodeId(1));
        let rumor = |node: u64, age_ms: u32, state| Rumor {
            node: NodeId(node),
            age_ms,
            state,
        };
        view.merge(500_000, &[rumor(2, 100, "new"), rumor(1, 0, "false")]);
        view.merge(
            500_000,
            &[rumor(2, 200, "old"), rumor(3, 120_001, "too old")],
        );
        let known: Vec<&str> = view.entries().iter().map(|entry| entry.state).collect();
        assert_eq!(known, ["new"]);
        view.forget_old(500_000 + AGE_MAX_MS - 100);
        assert_eq!(view.entries().len(), 1);
        view.forget_old(500_000 + AGE_MAX_MS - 99);
        assert!(view.entries().is_empty());
        view.merge(500_000, &[rumor(2, 100, "new"), rumor(3, 50, "gone")]);
        view.forget(|node| node == NodeId(3));
        let known: Vec<&str> = view.entries().iter().map(|entry| entry.state).collect();
        assert_eq!(known, ["new"]);
    }

    #[test]
    fn what_is_known_is_as_old_as_the_formula_says() {
        for nodes in [128, 256, 512] {
            let expected = expected_age(nodes, 64);
            let measured = measured_age(nodes as usize, 7);
            println!("{nodes} nodes: {measured:.2} steps, expected {expected:.2}");
            assert!((measured / expected - 1.0).abs() < 0.2);
        }
    }
}
