//! Taking a lab away, whatever state it is in.
//!
//! Nothing here trusts that the state file is complete: processes are found by the file, by the
//! lab's cgroups and by the command lines of helpers, whichever there are.

use std::path::Path;

use crate::cgroup::CgroupSet;
use crate::error::LabError;
use crate::layout::Layout;
use crate::process::{ProcessId, end_all, find_helpers};
use crate::state::State;

/// Ends and removes everything that belongs to the lab.
pub(crate) fn clear(layout: &Layout, state: Option<&State>) -> Result<(), LabError> {
    let planned;
    let cgroups = match state {
        Some(state) if !state.cgroups.is_empty() => &state.cgroups,
        _ => {
            planned = CgroupSet::plan(layout.name());
            &planned
        }
    };
    let noted = noted_processes(state);
    kill_nodes_first(layout, state, cgroups);
    let directory = layout.directory();
    let remaining = || {
        let mut found: Vec<ProcessId> = noted.iter().copied().filter(|id| id.is_alive()).collect();
        found.extend(find_helpers(&directory).into_iter().map(|h| h.id));
        found.extend(cgroups.processes());
        found
    };
    end_all(remaining, "a process of the lab")?;
    cgroups.remove()?;
    remove_directory(&directory)
}

fn noted_processes(state: Option<&State>) -> Vec<ProcessId> {
    let Some(state) = state else {
        return Vec::new();
    };
    let inits = state.nodes.iter().filter_map(|n| n.init);
    let wires = state.links.iter().filter_map(|l| l.wire);
    inits.chain(wires).chain(state.switch).collect()
}

/// A node ends as a whole with its first process; doing that before anything else spares the
/// daemons from noticing each other's end. A paused node has to go on in order to end.
fn kill_nodes_first(layout: &Layout, state: Option<&State>, cgroups: &CgroupSet) {
    let mut inits: Vec<ProcessId> = state
        .iter()
        .flat_map(|s| &s.nodes)
        .filter_map(|n| n.init)
        .collect();
    let helpers = find_helpers(&layout.directory());
    inits.extend(helpers.iter().filter(|h| h.role == "node").map(|h| h.id));
    for init in inits {
        init.kill();
    }
    let known = state.map_or(0, |s| s.nodes.len()).max(helpers.len());
    for number in 1..=known {
        // Groups that do not exist or are not frozen answer with an error that means nothing.
        let _ = cgroups.thaw(&format!("n{number}"));
    }
}

fn remove_directory(directory: &Path) -> Result<(), LabError> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::file("remove", directory)(e))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
