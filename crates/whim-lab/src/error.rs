//! What a lab's verbs can answer when they fail.

use std::io;
use std::path::PathBuf;

use whim_sys::namespace::NamespaceError;

use crate::cgroup::CgroupError;
use crate::options::OptionsError;

/// Why a verb of the lab failed. The text is meant for the user as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Something asked for makes no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The lab runs already.
    #[error(
        "Lab '{0}' is up already; end it with `whim lab down --name {0}`, or choose another name"
    )]
    AlreadyUp(String),
    /// There is no such lab.
    #[error(
        "There is no lab '{0}'; `whim lab list` shows which there are, `whim lab up --name {0}` makes one"
    )]
    NoLab(String),
    /// Another user has a lab of this name.
    #[error(
        "Lab '{lab}' is {owner}'s, and you have none of this name: give the command as {owner}{}; `whim lab up --name \
         {lab}` makes one of your own",
        if .owner == "root" { " (sudo)" } else { "" }
    )]
    OfAnother { lab: String, owner: String },
    /// There is no such node.
    #[error(
        "Lab '{lab}' has no node '{}'; {}",
        .node.escape_debug(),
        match .count {
            1 => "its only node is n1".to_owned(),
            count => format!("its nodes are n1 to n{count}"),
        }
    )]
    NoNode {
        lab: String,
        node: String,
        count: usize,
    },
    /// A verb that needs a running node met one that is not.
    #[error(
        "Node {node} of lab '{lab}' is off; switch it on with `whim lab start --name {lab} {node}`"
    )]
    NodeOff { lab: String, node: String },
    /// `start` of a node that runs.
    #[error("Node {node} of lab '{lab}' is on already")]
    NodeOn { lab: String, node: String },
    /// A verb that needs the node's processes met a paused node.
    #[error(
        "Node {node} of lab '{lab}' is paused; let it go on with `whim lab resume --name {lab} {node}`"
    )]
    NodePaused { lab: String, node: String },
    /// A link from a node to itself.
    #[error("A link needs two different nodes, not {0} twice")]
    SameNode(String),
    /// The lab is half made or half ended.
    #[error(
        "Lab '{0}' is not complete (an `up` or `down` was interrupted); \
         `whim lab down --name {0}` clears it away"
    )]
    Incomplete(String),
    /// Another command holds the lab.
    #[error("Another command has been changing lab '{0}' for {1} s; try again when it is done")]
    Busy(String, u64),
    /// A file or directory of the lab.
    #[error("Cannot {what} {path}: {source}", path = .path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The state file does not hold what this version writes.
    #[error(
        "The lab's state file {path} is damaged or of another version ({why}); \
         end the lab with `whim lab down --name {lab}`", path = .path.display()
    )]
    State {
        lab: String,
        path: PathBuf,
        why: String,
    },
    /// The directory of labs belongs to somebody else.
    #[error("The directory {path} belongs to user {owner}, not to you; remove it, or set XDG_RUNTIME_DIR", path = .path.display())]
    ForeignDirectory { path: PathBuf, owner: u32 },
    /// A program that the lab needs is missing.
    #[error("The lab needs the program '{0}'; install it with `apt-get install {1}`")]
    MissingProgram(&'static str, &'static str),
    /// A helper process could not be started.
    #[error("Cannot start {program} as the lab's helper: {source}", program = .program.display())]
    Spawn { program: PathBuf, source: io::Error },
    /// A helper process answered with an error.
    #[error("{role} of lab '{lab}': {why}")]
    Role {
        lab: String,
        role: String,
        why: String,
    },
    /// Network configuration failed.
    #[error("Cannot configure the network of lab '{lab}': {why}")]
    Network { lab: String, why: String },
    /// A step of the cluster's start failed.
    #[error("On {node}, `{command}` {why}")]
    Step {
        node: String,
        command: String,
        why: String,
    },
    /// Processes that do not end.
    #[error(
        "Process {pid} ({what}) did not end within {seconds} s of SIGKILL; it may wait for a device or a tracer"
    )]
    Survivor {
        pid: i32,
        what: String,
        seconds: u64,
    },
    /// Namespaces, signals, pidfds.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Control groups.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl LabError {
    /// Wraps an error of the file system: `what` is a verb, as in "Cannot {what} {path}".
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { what, path, source }
    }
}
