//! What is planned: events by their time, and of equal time the one that was planned first.

use super::{Event, Micros};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    at: Micros,
    turn: u64,
    event: Event,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
pub(super) struct Agenda {
    turn: u64,
    events: BinaryHeap<Reverse<Planned>>,
    /// Most events are looks of nodes, each a second after the last one: what is planned last there comes
    /// last, and needs no heap.
    looks: VecDeque<Planned>,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: Micros, event: Event) {
        let planned = self.planned(at, event);
        self.events.push(Reverse(planned));
    }

    /// The same for an event after which no other one was planned in this way.
    pub(super) fn plan_last(&mut self, at: Micros, event: Event) {
        let planned = self.planned(at, event);
        match self.looks.back() {
            Some(last) if *last > planned => self.events.push(Reverse(planned)),
            _ => self.looks.push_back(planned),
        }
    }

    fn planned(&mut self, at: Micros, event: Event) -> Planned {
        self.turn += 1;
        let turn = self.turn;
        Planned { at, turn, event }
    }

    /// What comes next, if that is not after this time.
    pub(super) fn next(&mut self, until: Micros) -> Option<(Micros, Event)> {
        let event = self.events.peek().map(|Reverse(planned)| *planned);
        let look = self.looks.front().copied();
        let next = event.into_iter().chain(look).min()?;
        if next.at > until {
            return None;
        }
        if look == Some(next) {
            self.looks.pop_front();
        } else {
            self.events.pop();
        }
        Some((next.at, next.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_planned() {
        let mut agenda = Agenda::default();
        agenda.plan(5, Event::Tick(1));
        agenda.plan_last(4, Event::Tick(2));
        agenda.plan_last(5, Event::Tick(3));
        agenda.plan(5, Event::Tick(4));
        agenda.plan_last(3, Event::Tick(5));
        agenda.plan_last(9, Event::Tick(6));
        let next = |agenda: &mut Agenda| match agenda.next(5) {
            Some((at, Event::Tick(node))) => Some((at, node)),
            _ => None,
        };
        let come: Vec<_> = std::iter::from_fn(|| next(&mut agenda)).collect();
        assert_eq!(come, [(3, 5), (4, 2), (5, 1), (5, 3), (5, 4)]);
        assert_eq!(agenda.next(9), Some((9, Event::Tick(6))));
        assert_eq!(agenda.next(Micros::MAX), None);
    }
}
