//! Rows of `whim ps`, `whim nodes` and `whim log`; the names are stable.

use serde::{Deserialize, Serialize};
use whim_journey::job::State;

/// From this load for each CPU on a node counts as overloaded. A node whose CPUs are all busy, and no more, is at 1,
/// and its load wavers about that.
pub const OVERLOAD_FROM: f64 = 1.25;

/// A row of `whim ps`; the names are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    pub pid: i32,
    pub home: String,
    pub r#where: String,
    pub state: State,
    /// Why it ended, or what keeps it in its state.
    pub reason: Option<String>,
    pub moves: u32,
    pub cpu_percent: f64,
    /// CPU time that it has used, at home and away; null: not told.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// Cores that it would keep busy, and those that it got, at the balancer's last looks; null for programs of
    /// other nodes, which the balancer does not look at.
    #[serde(default)]
    pub cpus_wanted: Option<f64>,
    #[serde(default)]
    pub cpus_got: Option<f64>,
    /// Calls to its home in a second; while it is at home, the calls that it would make to it from elsewhere.
    #[serde(default)]
    pub home_calls: Option<f64>,
    pub memory_bytes: u64,
    /// Why it cannot move now, a sentence.
    pub stay: Option<String>,
    /// Why the cluster does not move it by itself, a sentence.
    #[serde(default)]
    pub not_candidate: Option<String>,
    /// The user who runs it at home; null: not reported.
    #[serde(default)]
    pub uid: Option<u32>,
    #[serde(default)]
    pub user: Option<String>,
    /// The process of the same home that has started it; null: not reported.
    #[serde(default)]
    pub parent: Option<i32>,
    pub home_supervisor_pid: Option<i32>,
    /// Its pid in the host's pid namespace.
    pub guest_supervisor_pid: Option<i32>,
    /// The command line. Its arguments may hold secrets, so only its user and administrators of its home see
    /// them; others see the program's name.
    pub command: String,
}

/// State of a node, as `whim nodes` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    Up,
    Suspect,
    Down,
    Draining,
}

impl NodeState {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Draining => "draining",
        }
    }
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// A row of `whim nodes`; the names are stable. The last values of an unreachable node are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    pub name: String,
    pub state: NodeState,
    /// Threads that run or wait for a CPU. It rises at once, and falls over some seconds. This and all that
    /// follows is null if the node was never heard.
    pub load: Option<f64>,
    /// Speed of one core; 1 is an ordinary one.
    pub speed: Option<f64>,
    /// Its speed has not been measured yet.
    #[serde(default)]
    pub speed_estimated: Option<bool>,
    pub cpus: Option<f64>,
    /// CPUs' worth of waiting for a limit of the node's CPU time, in the last second.
    #[serde(default)]
    pub throttled_cpus: Option<f64>,
    /// For what part of the last ten seconds some task waited for a CPU, and for what part no task could go on
    /// for want of memory. Null also where the kernel does not report it.
    #[serde(default)]
    pub cpu_pressure_percent: Option<f64>,
    #[serde(default)]
    pub memory_pressure_percent: Option<f64>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    /// How much of it is promised to guests that have not come completely.
    #[serde(default)]
    pub memory_promised_bytes: Option<u64>,
    pub guests: Option<u32>,
    /// Whether it refuses guests, and whether it keeps its own processes.
    #[serde(default)]
    pub blocked: Option<bool>,
    #[serde(default)]
    pub stays: Option<bool>,
    /// Whether it was told to evacuate, and whether its owner sits before it: it is blocked then.
    #[serde(default)]
    pub evacuates: Option<bool>,
    #[serde(default)]
    pub owner_here: Option<bool>,
    #[serde(default)]
    pub labels: Option<Vec<String>>,
    /// The token by which it became a member, shown for a day; only the node that holds the CA knows it.
    #[serde(default)]
    pub admitted: Option<Admission>,
    /// Why it refuses this node, a sentence; null: it does not, as far as is known.
    #[serde(default)]
    pub refuses: Option<String>,
    /// Short name of its migration class. Programs move between nodes of equal class, and portable ones between
    /// nodes whose classes are equal up to the dash.
    pub class: Option<String>,
}

/// How a node became a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The public part of the token.
    pub token: String,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Address and port from which the node asked to join.
    pub from: String,
}

/// A line of `whim log`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogRow {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    pub pid: Option<i32>,
    /// The program's name, without arguments; null: it had ended already, or nobody has noted it.
    #[serde(default)]
    pub program: Option<String>,
    /// One word: `moved`, `refused`, `ended`, `joined`, ...
    pub what: String,
    pub text: String,
}

impl NodeRow {
    /// Memory in use, as a part of all memory; `None`: not known.
    #[must_use]
    pub fn memory_part(&self) -> Option<f64> {
        let (total, available) = (self.memory_total_bytes?, self.memory_available_bytes?);
        let used = total.saturating_sub(available);
        (total > 0).then(|| float(used) / float(total))
    }

    /// How many times as much wants to run as the CPUs can carry; `None`: they can, or the node is not there.
    #[must_use]
    pub fn overload(&self) -> Option<f64> {
        let times = self.load_part().filter(|part| *part >= OVERLOAD_FROM);
        times.filter(|_| self.state != NodeState::Down)
    }

    /// Its state in a word for people: a node that is being drained is drained when its last guest has left.
    #[must_use]
    pub fn state_word(&self) -> &'static str {
        match self.state {
            NodeState::Draining if self.guests == Some(0) => "drained",
            state => state.word(),
        }
    }

    /// Load for each CPU; `None`: not known.
    #[must_use]
    pub fn load_part(&self) -> Option<f64> {
        let cpus = self.cpus.filter(|cpus| *cpus > 0.0)?;
        Some(self.load? / cpus)
    }
}

/// A multiple, as people read it: `2.6x`, `18x`.
#[must_use]
pub fn times(multiple: f64) -> String {
    if multiple < 10.0 {
        format!("{multiple:.1}x")
    } else {
        format!("{multiple:.0}x")
    }
}

/// A count as a floating-point number; exact below 2^53.
#[must_use]
pub fn float(count: u64) -> f64 {
    let half = |bits: u64| f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX));
    half(count >> 32) * 4_294_967_296.0 + half(count)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn process(home: &str, pid: i32) -> ProcessRow {
        ProcessRow {
            pid,
            home: home.into(),
            r#where: home.into(),
            state: State::Home,
            reason: None,
            moves: 0,
            cpu_percent: 50.0,
            cpu_seconds: None,
            cpus_wanted: None,
            cpus_got: None,
            home_calls: None,
            memory_bytes: 1 << 20,
            stay: None,
            not_candidate: None,
            uid: Some(1000),
            user: None,
            parent: None,
            home_supervisor_pid: None,
            guest_supervisor_pid: None,
            command: format!("program {pid}"),
        }
    }

    pub(crate) fn node(name: &str) -> NodeRow {
        NodeRow {
            name: name.into(),
            state: NodeState::Up,
            load: Some(1.0),
            speed: Some(1.0),
            speed_estimated: None,
            cpus: Some(2.0),
            throttled_cpus: None,
            cpu_pressure_percent: None,
            memory_pressure_percent: None,
            memory_total_bytes: Some(8 << 30),
            memory_available_bytes: Some(6 << 30),
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

    #[test]
    fn a_row_of_ps_has_the_documented_names() {
        let row = ProcessRow {
            state: State::InDoubt,
            ..process("n1", 7)
        };
        let value = serde_json::to_value(&row).expect("json");
        let mut names: Vec<_> = value.as_object().expect("object").keys().cloned().collect();
        names.sort();
        let mut expected = vec![
            "pid",
            "home",
            "where",
            "state",
            "reason",
            "moves",
            "cpu_percent",
            "cpu_seconds",
            "cpus_wanted",
            "cpus_got",
            "home_calls",
            "memory_bytes",
            "stay",
            "not_candidate",
            "uid",
            "user",
            "parent",
            "home_supervisor_pid",
            "guest_supervisor_pid",
            "command",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(value["state"], "in-doubt");
    }

    #[test]
    fn what_the_cpus_cannot_carry_is_overload() {
        let loaded = |load: f64, cpus: f64, state| NodeRow {
            load: Some(load),
            cpus: Some(cpus),
            state,
            ..node("n1")
        };
        let told = |row: &NodeRow| row.overload().map(times);
        assert_eq!(told(&loaded(2.0, 2.0, NodeState::Up)), None);
        assert_eq!(told(&loaded(9.0, 0.5, NodeState::Up)), Some("18x".into()));
        let draining = loaded(5.2, 2.0, NodeState::Draining);
        assert_eq!(told(&draining), Some("2.6x".into()));
        assert_eq!(told(&loaded(9.0, 0.5, NodeState::Down)), None);
        assert_eq!(told(&loaded(9.0, 0.0, NodeState::Up)), None);
        assert_eq!(draining.state_word(), "drained");
        let guests = Some(2);
        assert_eq!(NodeRow { guests, ..draining }.state_word(), "draining");
    }

    #[test]
    fn parts_are_of_what_is_known() {
        let row = node("n1");
        assert_eq!(
            (row.memory_part(), row.load_part()),
            (Some(0.25), Some(0.5))
        );
        let unknown = NodeRow {
            load: None,
            memory_total_bytes: Some(0),
            ..row
        };
        assert_eq!((unknown.memory_part(), unknown.load_part()), (None, None));
    }
}
