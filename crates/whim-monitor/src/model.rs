//! The picture of the cluster that a feed gives.

use crate::feed::{Key, Update};
use crate::history::History;
use crate::rows::{LogRow, NodeRow, NodeState, ProcessRow};
use std::collections::{BTreeMap, VecDeque};
use whim_journey::job::State;

/// The most processes, nodes and lines of the log that are shown.
pub const PROCESSES_MAX: usize = 100_000;
pub const NODES_MAX: usize = 10_000;
pub const LOG_MAX: usize = 1_000;
/// How long a process that has moved is drawn between two nodes, in milliseconds.
pub const FLIGHT_MS: u64 = 1_500;

/// A node, and its recent values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub row: NodeRow,
    /// Load per CPU; at 1 all CPUs are busy.
    pub load: History,
    /// Memory in use, as a part of all memory.
    pub memory: History,
}

/// A process that has just moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub key: Key,
    pub from: String,
    pub to: String,
    /// When it was first seen at its new place, in milliseconds since 1970.
    pub since_ms: u64,
}

/// Sums over the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    pub nodes: usize,
    /// Of these, how many can be reached.
    pub up: usize,
    pub cpus: f64,
    pub load: f64,
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    pub processes: usize,
    pub away: usize,
    pub moves: u64,
}

/// The cluster, as far as the feed has described it.
#[derive(Clone, Debug, Default)]
pub struct Model {
    nodes: BTreeMap<String, Node>,
    processes: BTreeMap<Key, ProcessRow>,
    flights: Vec<Flight>,
    log: VecDeque<LogRow>,
    time_ms: u64,
}

impl Model {
    /// Applies a line of the feed; returns true when the picture is whole.
    pub fn apply(&mut self, update: Update) -> bool {
        match update {
            Update::Node(row) => self.put_node(row),
            Update::NodeGone { name } => drop(self.nodes.remove(&name)),
            Update::Process(row) => self.put_process(row),
            Update::ProcessGone(key) => drop(self.processes.remove(&key)),
            Update::Log(row) => {
                if self.log.len() == LOG_MAX {
                    self.log.pop_front();
                }
                self.log.push_back(row);
            }
            Update::Tick { time_ms } => {
                self.tick(time_ms);
                return true;
            }
        }
        false
    }

    fn put_node(&mut self, row: NodeRow) {
        if let Some(node) = self.nodes.get_mut(&row.name) {
            node.row = row;
        } else if self.nodes.len() < NODES_MAX {
            let node = Node {
                load: History::new(),
                memory: History::new(),
                row,
            };
            self.nodes.insert(node.row.name.clone(), node);
        }
    }

    fn put_process(&mut self, row: ProcessRow) {
        let key = Key::of(&row);
        let has_room = self.processes.len() < PROCESSES_MAX;
        match self.processes.get_mut(&key) {
            Some(known) => {
                if known.r#where != row.r#where {
                    let (from, to) = (known.r#where.clone(), row.r#where.clone());
                    let since_ms = self.time_ms;
                    self.flights.retain(|flight| flight.key != key);
                    self.flights.push(Flight {
                        key,
                        from,
                        to,
                        since_ms,
                    });
                }
                *known = row;
            }
            None if has_room => {
                self.processes.insert(key, row);
            }
            None => {}
        }
    }

    /// Histories get one sample a second, however often ticks come.
    fn tick(&mut self, time_ms: u64) {
        let second = time_ms / 1000 != self.time_ms / 1000;
        for node in self.nodes.values_mut().filter(|_| second) {
            let is_there = !matches!(node.row.state, NodeState::Down);
            let now = |part: Option<f64>| part.filter(|_| is_there).unwrap_or(0.0);
            node.load.push(now(node.row.load_part()));
            node.memory.push(now(node.row.memory_part()));
        }
        self.time_ms = time_ms;
        self.flights
            .retain(|flight| flight.since_ms + FLIGHT_MS > time_ms);
    }

    /// The nodes, in the order of their names.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The processes, in the order of home and pid.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessRow> {
        self.processes.values()
    }

    #[must_use]
    pub fn process(&self, key: &Key) -> Option<&ProcessRow> {
        self.processes.get(key)
    }

    /// The processes that have just moved.
    #[must_use]
    pub fn flights(&self) -> &[Flight] {
        &self.flights
    }

    /// The last lines of the log, the oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &LogRow> {
        self.log.iter()
    }

    /// The time of the last whole picture, in milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            nodes: self.nodes.len(),
            processes: self.processes.len(),
            ..Totals::default()
        };
        let is_up = |node: &&Node| !matches!(node.row.state, NodeState::Down);
        for Node { row, .. } in self.nodes.values().filter(is_up) {
            totals.up += 1;
            totals.cpus += row.cpus.unwrap_or(0.0);
            totals.load += row.load.unwrap_or(0.0);
            totals.memory_total_bytes += row.memory_total_bytes.unwrap_or(0);
            totals.memory_available_bytes += row.memory_available_bytes.unwrap_or(0);
        }
        for row in self.processes.values() {
            totals.away += usize::from(row.home != row.r#where && row.state != State::Ended);
            totals.moves += u64::from(row.moves);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{node, process};

    fn told(model: &mut Model, updates: impl IntoIterator<Item = Update>, time_ms: u64) {
        for update in updates {
            assert!(!model.apply(update));
        }
        assert!(model.apply(Update::Tick { time_ms }));
    }

    #[test]
    fn who_moves_flies_for_a_while() {
        let mut model = Model::default();
        told(&mut model, [Update::Process(process("n1", 7))], 10_000);
        assert!(model.flights().is_empty());
        let away = ProcessRow {
            r#where: "n2".into(),
            ..process("n1", 7)
        };
        told(&mut model, [Update::Process(away.clone())], 11_000);
        let flight = &model.flights()[0];
        assert_eq!((flight.from.as_str(), flight.to.as_str()), ("n1", "n2"));
        // It moves on at once, so only its last flight is left.
        let onward = ProcessRow {
            r#where: "n3".into(),
            ..away
        };
        told(&mut model, [Update::Process(onward)], 11_100);
        assert_eq!(model.flights().len(), 1);
        assert_eq!(model.flights()[0].from, "n2");
        told(&mut model, [], 11_000 + FLIGHT_MS);
        assert!(model.flights().is_empty());
    }

    #[test]
    fn totals_are_of_what_is_up() {
        let mut model = Model::default();
        let down = NodeRow {
            state: NodeState::Down,
            ..node("n2")
        };
        let away = ProcessRow {
            r#where: "n2".into(),
            moves: 3,
            ..process("n1", 8)
        };
        let updates = [
            Update::Node(node("n1")),
            Update::Node(down),
            Update::Process(process("n1", 7)),
            Update::Process(away),
        ];
        told(&mut model, updates, 1000);
        let totals = model.totals();
        assert_eq!((totals.nodes, totals.up, totals.cpus), (2, 1, 2.0));
        assert_eq!((totals.processes, totals.away, totals.moves), (2, 1, 3));
        assert_eq!(totals.memory_total_bytes, 8 << 30);
    }

    #[test]
    fn histories_have_a_sample_a_second() {
        let mut model = Model::default();
        told(&mut model, [Update::Node(node("n1"))], 1000);
        for ms in [1010, 1500, 1999, 2000, 2500, 3100] {
            told(&mut model, [], ms);
        }
        let samples: Vec<f64> = model.node("n1").expect("known").load.latest(9).collect();
        assert_eq!(samples, [0.5, 0.5, 0.5]);
    }

    #[test]
    fn more_than_its_limits_is_not_kept() {
        let mut model = Model::default();
        for pid in 0..=i32::try_from(PROCESSES_MAX).expect("small") {
            model.apply(Update::Process(process("n1", pid)));
        }
        assert_eq!(model.processes().count(), PROCESSES_MAX);
        for number in 0..=NODES_MAX {
            model.apply(Update::Node(node(&format!("n{number}"))));
        }
        assert_eq!(model.nodes().count(), NODES_MAX);
        let row = |time_ms| LogRow {
            time_ms,
            pid: None,
            program: None,
            what: "moved".into(),
            text: String::new(),
        };
        for time in 0..=LOG_MAX as u64 {
            model.apply(Update::Log(row(time)));
        }
        assert_eq!(model.log().count(), LOG_MAX);
        assert_eq!(
            model.log().next_back().map(|row| row.time_ms),
            Some(LOG_MAX as u64)
        );
    }
}
