//! What nodes tell each other, and what one of them knows when it decides.

use super::node::Told;
use super::{Cluster, SECOND, id, millis, number, seconds};
use rand::RngExt;
use whim_balance::balancer::Known;
use whim_balance::gossip::Entry;
use whim_balance::sample;

/// Clusters of up to so many nodes tell everybody each second.
const ALL: usize = 9;

impl Cluster {
    /// A node tells what it knows.
    pub(super) fn gossip(&mut self, own: usize) {
        let all = self.nodes.len();
        if all < 2 {
            return;
        }
        let now = millis(self.now);
        let members = self.members(own);
        let view = &mut self.nodes[own].view;
        view.forget_old(now);
        if !members.are_all() {
            view.forget(|node| !members.has(number(node)));
        }
        let rumors = view.message(now, ());
        self.outcome.words += rumors.len() as u64;
        if all <= ALL {
            for other in (0..all).filter(|other| *other != own) {
                self.hear(own, other, &rumors);
            }
            return;
        }
        let other = self.chance.random_range(0..all - 1);
        let other = other + usize::from(other >= own);
        self.hear(own, other, &rumors);
    }

    fn hear(&mut self, from: usize, to: usize, rumors: &[whim_balance::gossip::Rumor<()>]) {
        if self.reach(from, to) {
            let now = millis(self.now);
            self.nodes[to].view.merge(now, rumors);
        }
    }

    fn known_of(&self, own: usize, entry: &Entry<()>) -> Known {
        let node = number(entry.node);
        let age = millis(self.now).saturating_sub(entry.at);
        // Nodes speak at moments of their own: what was said since this rumor is the rest of its age.
        let ago = usize::try_from(age / 1000).unwrap_or(usize::MAX);
        let told = self.nodes[node].told(ago);
        let takes = self.believes(own, node);
        self.nodes[node].known(entry.node, &told, entry.at, takes)
    }

    /// What it would answer if it were asked now.
    fn fresh(&self, own: usize, node: usize) -> Option<Known> {
        if !self.reach(own, node) {
            return None;
        }
        let asked = &self.nodes[node];
        let told = Told {
            memory: asked.used + asked.promised,
            ..asked.told(0)
        };
        Some(asked.known(id(node), &told, millis(self.now), true))
    }

    /// This node alone.
    pub(super) fn known_now(&self, own: usize) -> Vec<Known> {
        self.fresh(own, own).into_iter().collect()
    }

    /// This node, and what it knows of others; of many it asks some.
    pub(super) fn known(&mut self, own: usize) -> Vec<Known> {
        let mut known = self.known_now(own);
        let all = self.nodes[own].view.entries().len();
        if all <= sample::ALL_UP_TO {
            let entries = self.nodes[own].view.entries().iter();
            known.extend(entries.map(|entry| self.known_of(own, entry)));
            return known;
        }
        let mut asked = sample::some(all, sample::ALL_UP_TO, |limit| {
            self.chance.random_range(0..limit)
        });
        let entries = self.nodes[own].view.entries();
        let mut nodes: Vec<usize> = asked
            .drain(..)
            .map(|place| number(entries[place].node))
            .collect();
        // Where its programs are it knows anyhow.
        let away = self.nodes[own]
            .own
            .iter()
            .map(|program| self.programs[*program].at);
        nodes.extend(away.filter(|at| *at != own));
        nodes.sort_unstable();
        nodes.dedup();
        known.extend(nodes.into_iter().filter_map(|node| self.fresh(own, node)));
        known
    }

    /// The mean age of what nodes know of each other, in seconds; and how many rumors that is.
    #[must_use]
    pub(crate) fn ages(&self) -> (f64, usize) {
        let entries = self.nodes.iter().flat_map(|node| node.view.entries());
        let ages = entries.map(|entry| seconds(self.now - entry.at * (SECOND / 1000)));
        let (sum, count) = ages.fold((0.0, 0), |(sum, count), age| (sum + age, count + 1));
        (sum / f64::max(count as f64, 1.0), count)
    }

    /// Runs for so many seconds without an end, and gives the mean of the ages in the second half.
    #[must_use]
    pub(crate) fn mean_age(mut self, seconds: u64) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for second in 1..=seconds {
            while let Some((at, event)) = self.agenda.next(second * SECOND) {
                self.now = at;
                self.happen(event);
            }
            self.now = second * SECOND;
            if second > seconds / 2 {
                sum += self.ages().0;
                count += 1.0;
            }
        }
        sum / count
    }
}
