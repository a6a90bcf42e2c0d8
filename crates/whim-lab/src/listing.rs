//! The labs of this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User, geteuid};
use serde::Serialize;

use crate::error::LabError;
use crate::layout::{Layout, directories_of_all};
use crate::options::check_name;
use crate::process::ProcessId;
use crate::state::{Stage, State};

/// A lab, as `whim lab list` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedLab {
    /// Its name, unique among the labs of its owner.
    pub name: String,
    /// The user who made it.
    pub owner_uid: u32,
    /// How many nodes it has; 0 if its state cannot be read.
    pub nodes: usize,
    /// How many of them are on.
    pub nodes_on: usize,
    /// When it was made, in milliseconds since 1970; `None`: an older version has not noted it.
    pub since_ms: Option<u64>,
    /// Whether it is neither half made nor half ended, and its switch runs.
    pub complete: bool,
}

/// The labs of all users, as far as this one may look, by owner and name.
#[must_use]
pub fn list_all() -> Vec<ListedLab> {
    let mut labs: Vec<ListedLab> = directories_of_all()
        .iter()
        .flat_map(|directory| list_in(directory))
        .collect();
    labs.sort_by(|a, b| (a.owner_uid, &a.name).cmp(&(b.owner_uid, &b.name)));
    labs
}

/// Why this user has no lab of this name.
pub(crate) fn missing(name: &str) -> LabError {
    let others = list_all().into_iter().filter(|lab| lab.name == name);
    let mut owners = others.map(|lab| Uid::from_raw(lab.owner_uid));
    match owners.find(|owner| *owner != geteuid()) {
        None => LabError::NoLab(name.to_owned()),
        Some(owner) => {
            let user = User::from_uid(owner).ok().flatten();
            LabError::OfAnother {
                lab: name.to_owned(),
                owner: user.map_or_else(|| format!("uid {owner}"), |user| user.name),
            }
        }
    }
}

fn list_in(labs: &Path) -> Vec<ListedLab> {
    let entries = std::fs::read_dir(labs).into_iter().flatten().flatten();
    let names = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| check_name(name).is_ok());
    names.filter_map(|name| listed(labs, &name)).collect()
}

fn listed(labs: &Path, name: &str) -> Option<ListedLab> {
    let layout = Layout::below(labs, name).ok()?;
    let owner_uid = std::fs::symlink_metadata(layout.directory()).ok()?.uid();
    let state = State::load(&layout).ok().flatten();
    // The state may be another user's own writing: nothing that it names is opened, and no number in it is a place.
    let nodes = state.as_ref().map_or(&[][..], |state| &state.nodes);
    let runs = |id: Option<ProcessId>| id.is_some_and(|id| id.is_alive());
    Some(ListedLab {
        name: name.to_owned(),
        owner_uid,
        nodes: nodes.len(),
        nodes_on: nodes
            .iter()
            .filter(|node| node.on && runs(node.init))
            .count(),
        since_ms: state
            .as_ref()
            .map(|state| state.since_ms)
            .filter(|ms| *ms > 0),
        complete: state.is_some_and(|state| state.stage == Stage::Up && runs(state.switch)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn labs_of_all_shapes_are_listed() {
        let labs = tempfile::tempdir().expect("a directory");
        for name in ["whole", "torn", "Not a lab"] {
            std::fs::create_dir(labs.path().join(name)).expect("made");
        }
        let layout = Layout::below(labs.path(), "whole").expect("a name");
        let options = Options {
            nodes: 2,
            ..Options::default()
        };
        let state = State::new(options, "/bin/true".into(), false);
        state.save(&layout).expect("saved");
        std::fs::write(labs.path().join("torn/lab.json"), "{").expect("written");
        let mut found = list_in(labs.path());
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let short: Vec<(&str, usize, bool)> = found
            .iter()
            .map(|lab| (lab.name.as_str(), lab.nodes, lab.since_ms.is_some()))
            .collect();
        assert_eq!(short, [("torn", 0, false), ("whole", 2, true)]);
        assert!(found.iter().all(|lab| !lab.complete && lab.nodes_on == 0));
    }

    #[test]
    fn numbers_that_others_have_written_are_no_places() {
        let labs = tempfile::tempdir().expect("a directory");
        let layout = Layout::below(labs.path(), "forged").expect("a name");
        std::fs::create_dir(layout.directory()).expect("made");
        let options = Options {
            nodes: 2,
            ..Options::default()
        };
        let mut state = State::new(options, "/bin/true".into(), false);
        state.nodes[0].number = 0;
        state.links[0].a = 99;
        state.save(&layout).expect("saved");
        let found = list_in(labs.path());
        assert_eq!((found[0].nodes, found[0].complete), (2, false));
    }

    #[test]
    fn a_link_in_place_of_a_state_is_not_followed() {
        let labs = tempfile::tempdir().expect("a directory");
        let layout = Layout::below(labs.path(), "linked").expect("a name");
        std::fs::create_dir(layout.directory()).expect("made");
        std::os::unix::fs::symlink("/dev/null", layout.state_file()).expect("a link");
        assert!(State::load(&layout).is_err());
        assert_eq!(list_in(labs.path())[0].nodes, 0);
    }

    #[test]
    fn a_pipe_in_place_of_a_state_holds_nobody_up() {
        let labs = tempfile::tempdir().expect("a directory");
        let layout = Layout::below(labs.path(), "piped").expect("a name");
        std::fs::create_dir(layout.directory()).expect("made");
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&layout.state_file(), mode).expect("a pipe");
        assert_eq!(list_in(labs.path()).len(), 1);
    }
}
