//! What `whim run` is told about a program, checked against this cluster.

use whim_control::protocol::RunOptions;
use whim_machine::class::{Class, Features};

use crate::daemon::Daemon;
use crate::faces::listing;
use crate::host::Host;
use crate::moves::destinations;

/// The CPU features that all nodes of this register layout have, including nodes that are down, and what
/// the C library here must therefore not use.
pub(crate) fn portable(host: &Host) -> (Features, Vec<String>) {
    let own = host.sensors().class().clone();
    let members = host.ground().cluster().members();
    let peers = host.ground().peers();
    let classes = members.iter().filter_map(|member| {
        let heard = peers.get(&member.name);
        heard.map_or_else(
            || Class::described(&member.class),
            |health| Some(health.report.class.clone()),
        )
    });
    let common = classes
        .filter(|class| own.same_layout(class))
        .fold(own.features(), |common, class| {
            common.common(&class.features())
        });
    let words = Features::here().masked(&common);
    (common, words.into_iter().map(String::from).collect())
}

pub(crate) fn check_options(daemon: &Daemon, options: &RunOptions) -> Result<(), String> {
    options.check()?;
    let named = options.only.iter().chain(&options.avoid).chain(&options.on);
    for name in named {
        if let Some(label) = name.strip_prefix('@') {
            // It is no mistake to avoid a label that no node has.
            if !options.avoid.contains(name) {
                check_label(daemon, label)?;
            }
            continue;
        }
        if name != "best" {
            let known = destinations::known_node(daemon.moves(), name);
            known.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// That some node has the label.
///
/// # Errors
/// None has it: which labels there are.
pub(crate) fn check_label(daemon: &Daemon, label: &str) -> Result<(), String> {
    let rows = listing::nodes(daemon.host());
    let mut known: Vec<String> = rows
        .into_iter()
        .filter_map(|row| row.labels)
        .flatten()
        .collect();
    if known.iter().any(|known| known == label) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let known = if known.is_empty() {
        "none (labels in a node's configuration)".into()
    } else {
        known
            .iter()
            .map(|label| format!("@{label}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Err(format!(
        "No node has the label @{}; this cluster's labels: {known}",
        label.escape_debug()
    ))
}
