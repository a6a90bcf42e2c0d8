//! The checks of the sources that neither compiler, clippy nor rustfmt makes.

mod circles;
mod commits;
mod documents;
mod glossary;
mod limits;
mod manifests;
mod order;
mod promises;
mod rooms;
mod rust;
mod ways;

use anyhow::Result;

pub(crate) use promises::{has_test, sources};

use crate::attempts;
use crate::conformance;
use crate::workspace::Workspace;

/// A check and what it finds: one finding per line, each naming file, line and what to do.
pub(crate) struct Check {
    pub name: &'static str,
    pub run: fn(&Workspace) -> Result<Vec<String>>,
}

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "file-length",
        run: rust::file_length,
    },
    Check {
        name: "forbid-unsafe",
        run: rust::forbid_unsafe,
    },
    Check {
        name: "unsafe-comments",
        run: rust::unsafe_comments,
    },
    Check {
        name: "leftovers",
        run: rust::leftovers,
    },
    Check {
        name: "machine-paths",
        run: documents::machine_paths,
    },
    Check {
        name: "conformance",
        run: conformance::findings,
    },
    Check {
        name: "links",
        run: documents::links,
    },
    Check {
        name: "threat-model",
        run: promises::tests_exist,
    },
    Check {
        name: "traps",
        run: crate::traps::findings,
    },
    Check {
        name: "limits",
        run: limits::as_documented,
    },
    Check {
        name: "attempts",
        run: attempts::tests_exist,
    },
    Check {
        name: "commits",
        run: commits::say_why,
    },
    Check {
        name: "glossary",
        run: glossary::names_one_thing,
    },
    Check {
        name: "order",
        run: order::of_crates,
    },
    Check {
        name: "circles",
        run: circles::are_small,
    },
    Check {
        name: "rooms",
        run: rooms::use_what_is_below,
    },
    Check {
        name: "ways",
        run: ways::are_there,
    },
    Check {
        name: "changelog",
        run: documents::changelog,
    },
    Check {
        name: "dependency-reasons",
        run: manifests::dependency_reasons,
    },
    Check {
        name: "unused-dependencies",
        run: manifests::unused,
    },
    Check {
        name: "manifests",
        run: manifests::members,
    },
];
