//! A cluster that is not there: the feed that its daemon would tell, to see how fast the monitors draw it.

use whim_journey::job::State;
use whim_monitor::feed::{Teller, Update};
use whim_monitor::rows::{NodeRow, NodeState, ProcessRow};

/// Nodes, and the processes on them; all of them change with each batch.
#[derive(Debug)]
pub struct Simulation {
    nodes: u32,
    processes: u32,
    step: u32,
    teller: Teller,
}

/// Of so many processes one moves with each batch.
const MOVES_ONE_OF: u32 = 50;

impl Simulation {
    #[must_use]
    pub fn new(nodes: u32, processes: u32) -> Self {
        Self {
            nodes,
            processes,
            step: 0,
            teller: Teller::default(),
        }
    }

    /// The next batch. `mark` is the name of the first process, which uses more CPU than all others.
    pub fn next(&mut self, time_ms: u64, mark: &str) -> Vec<Update> {
        self.step += 1;
        let nodes = (0..self.nodes).map(|number| self.node(number)).collect();
        let mut processes: Vec<ProcessRow> = (0..self.processes)
            .map(|number| self.process(number))
            .collect();
        if let Some(first) = processes.first_mut() {
            mark.clone_into(&mut first.command);
            first.cpu_percent = 999.0;
        }
        self.teller.tell(time_ms, nodes, processes, Vec::new())
    }

    fn wave(&self, number: u32) -> f64 {
        f64::from((number * 37 + self.step * 11) % 100) / 100.0
    }

    fn node(&self, number: u32) -> NodeRow {
        NodeRow {
            name: name(number),
            state: NodeState::Up,
            load: Some(2.0 * self.wave(number)),
            speed: Some(1.0),
            speed_estimated: Some(false),
            cpus: Some(2.0),
            throttled_cpus: None,
            cpu_pressure_percent: Some(100.0 * self.wave(number)),
            memory_pressure_percent: Some(0.0),
            memory_total_bytes: Some(8 << 30),
            memory_available_bytes: Some((4 << 30) + u64::from(self.step % 64) * (16 << 20)),
            memory_promised_bytes: None,
            guests: Some(0),
            blocked: None,
            stays: None,
            evacuates: None,
            owner_here: None,
            labels: None,
            admitted: None,
            refuses: None,
            class: None,
        }
    }

    fn process(&self, number: u32) -> ProcessRow {
        let home = number % self.nodes;
        // How often it was its turn to move.
        let moves = (self.step + number) / MOVES_ONE_OF;
        let at = (home + moves) % self.nodes;
        ProcessRow {
            pid: i32::try_from(10_000 + number).unwrap_or(i32::MAX),
            home: name(home),
            r#where: name(at),
            state: if at == home { State::Home } else { State::Away },
            reason: None,
            moves,
            cpu_percent: 100.0 * self.wave(number),
            cpu_seconds: Some(f64::from(self.step)),
            cpus_wanted: Some(1.0),
            cpus_got: Some(self.wave(number)),
            home_calls: Some(0.0),
            memory_bytes: 64 << 20,
            stay: None,
            not_candidate: None,
            uid: Some(1000),
            user: Some("user".into()),
            parent: None,
            home_supervisor_pid: None,
            guest_supervisor_pid: None,
            command: format!("render --frame {number}"),
        }
    }
}

fn name(number: u32) -> String {
    format!("n{}", number + 1)
}

/// A name for each batch, of which no letter is that of the one before: a terminal draws it as a whole.
#[must_use]
pub fn mark(step: u32) -> String {
    let letter = |at: u32| char::from_u32(u32::from('a') + (step * 7 + at * 3) % 26).unwrap_or('a');
    (0..8).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_share_no_letter_with_the_last_one() {
        for step in 0..100 {
            let (one, other) = (mark(step), mark(step + 1));
            let same = one.chars().zip(other.chars()).filter(|(a, b)| a == b);
            assert_eq!(same.count(), 0, "{one} {other}");
        }
    }

    #[test]
    fn everything_changes_with_each_batch() {
        let mut simulation = Simulation::new(50, 1000);
        let of = |updates: &[Update]| {
            let processes = updates.iter().filter(|u| matches!(u, Update::Process(_)));
            let nodes = updates.iter().filter(|u| matches!(u, Update::Node(_)));
            (nodes.count(), processes.count())
        };
        for step in 1..10 {
            assert_eq!(of(&simulation.next(step, &mark(1))), (50, 1000));
        }
    }
}
