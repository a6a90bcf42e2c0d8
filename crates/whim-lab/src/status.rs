//! What a lab is like now, for people and for `--json`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::layout::Layout;
use crate::options::LinkSettings;
use crate::state::{LinkRecord, NodeRecord, Stage, State, address4, address6};
pub use crate::wire::WireCounters;

/// A lab as it is found.
#[derive(Debug, Clone, Serialize)]
pub struct LabStatus {
    /// Its name.
    pub name: String,
    /// Where its files are.
    pub directory: PathBuf,
    /// Whether it is complete: neither half made nor half ended, and its switch runs.
    pub complete: bool,
    /// Its nodes in order.
    pub nodes: Vec<NodeStatus>,
    /// Links that are not plain.
    pub links: Vec<LinkStatus>,
    /// What could not be had, one sentence each.
    pub warnings: Vec<String>,
}

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// On.
    Up,
    /// All its processes are stopped.
    Paused,
    /// Switched off.
    Off,
    /// It ended without having been switched off.
    Dead,
}

/// One node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeStatus {
    /// n1, n2, ...
    pub name: String,
    /// What it is doing.
    pub state: NodeState,
    /// Its IPv4 address.
    pub address: String,
    /// Its IPv6 address.
    pub address6: String,
    /// Its first process, as the machine numbers it.
    pub pid: Option<i32>,
    /// Its daemon, if one was ever started.
    pub daemon: Option<DaemonStatus>,
    /// CPUs it may use, if limited.
    pub cpu: Option<f64>,
    /// Bytes of memory it may use, if limited.
    pub memory_bytes: Option<u64>,
    /// How far its monotonic clock is ahead of the machine's, in milliseconds.
    pub clock_offset_ms: i64,
    /// Its state directory, as the machine names it.
    pub state_directory: PathBuf,
    /// Output of its daemon, as the machine names it.
    pub log: PathBuf,
    /// Its control group in each hierarchy.
    pub cgroups: Vec<PathBuf>,
}

/// A node's daemon.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DaemonStatus {
    /// As the node numbers it.
    pub pid: i32,
    /// Whether it runs.
    pub running: bool,
}

/// A link that is not plain.
#[derive(Debug, Clone, Serialize)]
pub struct LinkStatus {
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Whether nothing passes.
    pub cut: bool,
    /// Its properties.
    pub settings: LinkSettings,
    /// Whether the process that carries its packets runs; `None`: it needs none.
    pub wire_running: Option<bool>,
    /// From `a` to `b`.
    pub a_to_b: Option<WireCounters>,
    /// From `b` to `a`.
    pub b_to_a: Option<WireCounters>,
}

pub(crate) fn of(layout: &Layout, state: &State) -> LabStatus {
    let switch_runs = state.switch.is_some_and(|s| s.is_alive());
    LabStatus {
        name: layout.name().to_owned(),
        directory: layout.directory(),
        complete: state.stage == Stage::Up && switch_runs,
        nodes: state.nodes.iter().map(|n| node(layout, state, n)).collect(),
        links: state
            .links
            .iter()
            .filter_map(|l| link(layout, state, l))
            .collect(),
        warnings: state.warnings.clone(),
    }
}

fn node(layout: &Layout, state: &State, node: &NodeRecord) -> NodeStatus {
    let init = node.init.filter(|id| id.is_alive());
    let index = node.number - 1;
    let daemon = node.daemon.map(|daemon| DaemonStatus {
        pid: daemon.process.pid,
        running: init.is_some_and(|id| daemon.process.is_alive_in(&node_proc(id.pid))),
    });
    NodeStatus {
        name: node.name.clone(),
        state: match (node.on, init) {
            (false, _) => NodeState::Off,
            (true, None) => NodeState::Dead,
            (true, Some(_)) if node.paused => NodeState::Paused,
            (true, Some(_)) => NodeState::Up,
        },
        address: address4(node.number),
        address6: address6(node.number),
        pid: init.map(|id| id.pid),
        daemon,
        cpu: state.options.cpu_of(index),
        memory_bytes: state.options.memory_of(index),
        clock_offset_ms: state.options.clock_offset_of(index),
        state_directory: layout.node_state(&node.name),
        log: layout.daemon_log(&node.name),
        cgroups: state.cgroups.node_groups(&node.name),
    }
}

/// The node's own /proc, seen through its first process.
pub(crate) fn node_proc(init: i32) -> PathBuf {
    Path::new("/proc").join(init.to_string()).join("root/proc")
}

fn link(layout: &Layout, state: &State, link: &LinkRecord) -> Option<LinkStatus> {
    if !link.cut && link.settings.is_plain() {
        return None;
    }
    let counters = read_counters(layout, link);
    let name = |number: usize| state.nodes[number - 1].name.clone();
    Some(LinkStatus {
        a: name(link.a),
        b: name(link.b),
        cut: link.cut,
        settings: link.settings.clone(),
        wire_running: link
            .settings
            .needs_wire()
            .then(|| link.wire.is_some_and(|w| w.is_alive())),
        a_to_b: counters.map(|c| c[0]),
        b_to_a: counters.map(|c| c[1]),
    })
}

fn read_counters(layout: &Layout, link: &LinkRecord) -> Option<[WireCounters; 2]> {
    if !link.settings.needs_wire() {
        return None;
    }
    let path = layout.wire_counters(&wire_name(link.a, link.b));
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// What the wire between two nodes is called in files and on its command line.
pub(crate) fn wire_name(a: usize, b: usize) -> String {
    format!("wire-n{a}-n{b}")
}
