//! What a lab remembers between two commands: one JSON file, replaced whole at each change.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupSet;
use crate::error::LabError;
use crate::layout::Layout;
use crate::options::{LinkSettings, Options};
use crate::process::ProcessId;

/// Version of the file's shape; a file of another one is not read.
const VERSION: u32 = 1;
const STATE_BYTES_MAX: u64 = 1 << 20;

/// How far `up` or `down` has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Starting,
    Up,
    Stopping,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) version: u32,
    pub(crate) stage: Stage,
    /// When `up` began, in milliseconds since 1970; 0 in a lab of an older version.
    #[serde(default)]
    pub(crate) since_ms: u64,
    pub(crate) options: Options,
    pub(crate) helper: PathBuf,
    /// Made by a plain user: the lab has a user namespace of its own.
    pub(crate) rootless: bool,
    /// The process that holds the switch's network namespace (and the user namespace).
    pub(crate) switch: Option<ProcessId>,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) links: Vec<LinkRecord>,
    pub(crate) cgroups: CgroupSet,
    pub(crate) shares: Vec<PathBuf>,
    /// What could not be had but was not asked for either.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) name: String,
    /// From 1; the last part of the addresses.
    pub(crate) number: usize,
    /// Whether the node is meant to be on.
    pub(crate) on: bool,
    pub(crate) paused: bool,
    /// The node's first process.
    pub(crate) init: Option<ProcessId>,
    pub(crate) daemon: Option<DaemonRecord>,
}

/// The daemon as the node numbers its processes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DaemonRecord {
    pub(crate) process: ProcessId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LinkRecord {
    /// Node numbers, the smaller one first.
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) cut: bool,
    pub(crate) settings: LinkSettings,
    pub(crate) wire: Option<ProcessId>,
}

impl State {
    pub(crate) fn new(options: Options, helper: PathBuf, rootless: bool) -> State {
        let nodes = (1..=options.nodes)
            .map(|number| NodeRecord {
                name: format!("n{number}"),
                number,
                on: false,
                paused: false,
                init: None,
                daemon: None,
            })
            .collect();
        let links = (1..=options.nodes)
            .flat_map(|a| (a + 1..=options.nodes).map(move |b| (a, b)))
            .map(|(a, b)| LinkRecord {
                a,
                b,
                cut: false,
                settings: LinkSettings::default(),
                wire: None,
            })
            .collect();
        State {
            version: VERSION,
            stage: Stage::Starting,
            since_ms: now_ms(),
            options,
            helper,
            rootless,
            switch: None,
            nodes,
            links,
            cgroups: CgroupSet::default(),
            shares: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The state of the lab, or `None` when it has left none.
    pub(crate) fn load(layout: &Layout) -> Result<Option<State>, LabError> {
        let path = layout.state_file();
        // Where labs of others are listed, what has the file's name may be a pipe that nobody writes, or lead to a
        // device that to open is enough.
        let opened = File::options()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits())
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(LabError::file("open", &path)(e)),
        };
        let mut text = String::new();
        file.take(STATE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(LabError::file("read", &path))?;
        let damaged = |why: String| LabError::State {
            lab: layout.name().to_owned(),
            path: path.clone(),
            why,
        };
        let state: State = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        if state.version != VERSION {
            return Err(damaged(format!("version {}, not {VERSION}", state.version)));
        }
        Ok(Some(state))
    }

    /// Writes the state so that a reader sees either the old or the new one.
    pub(crate) fn save(&self, layout: &Layout) -> Result<(), LabError> {
        let path = layout.state_file();
        let next = path.with_extension("json.next");
        let text = serde_json::to_vec(self).map_err(|e| LabError::State {
            lab: layout.name().to_owned(),
            path: path.clone(),
            why: e.to_string(),
        })?;
        let mut file = File::create(&next).map_err(LabError::file("write", &next))?;
        file.write_all(&text)
            .map_err(LabError::file("write", &next))?;
        std::fs::rename(&next, &path).map_err(LabError::file("replace", &path))
    }

    pub(crate) fn node(&self, name: &str) -> Result<&NodeRecord, LabError> {
        self.nodes
            .iter()
            .find(|n| n.name == name)
            .ok_or_else(|| self.no_node(name))
    }

    pub(crate) fn node_mut(&mut self, name: &str) -> Result<&mut NodeRecord, LabError> {
        match self.nodes.iter().position(|n| n.name == name) {
            Some(index) => Ok(&mut self.nodes[index]),
            None => Err(self.no_node(name)),
        }
    }

    fn no_node(&self, name: &str) -> LabError {
        LabError::NoNode {
            lab: self.options.name.clone(),
            node: name.to_owned(),
            count: self.nodes.len(),
        }
    }

    /// The index of the link between two nodes.
    pub(crate) fn link_index(&self, one: &str, other: &str) -> Result<usize, LabError> {
        let (one, other) = (self.node(one)?, self.node(other)?);
        let (a, b) = (one.number.min(other.number), one.number.max(other.number));
        self.links
            .iter()
            .position(|l| (l.a, l.b) == (a, b))
            .ok_or_else(|| LabError::SameNode(one.name.clone()))
    }

    /// The node's first process, if the node is on and it lives.
    pub(crate) fn running_init(&self, name: &str) -> Result<ProcessId, LabError> {
        let node = self.node(name)?;
        node.init
            .filter(|id| node.on && id.is_alive())
            .ok_or_else(|| LabError::NodeOff {
                lab: self.options.name.clone(),
                node: name.to_owned(),
            })
    }
}

fn now_ms() -> u64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The IPv4 address of a node.
pub(crate) fn address4(number: usize) -> String {
    format!("10.99.0.{number}")
}

/// The IPv6 address of a node.
pub(crate) fn address6(number: usize) -> String {
    format!("fd99::{number:x}")
}
