//! `whim lab`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use thiserror::Error;
use whim_lab::options::{OptionsError, parse_bytes, parse_delay_us, parse_rate_bits, parse_share};
use whim_lab::{
    Bootstrap, Lab, LabError, LabStatus, LinkSettings, ListedLab, NodeState, NodeStatus, Options,
    Place, Step,
};

use crate::arguments::{Lab as Verb, LabName, LabUp, LinkOptions};
use crate::lab_page::{self, LabPageError};
use crate::lab_views::{self, SEEN_WITHIN};
use crate::output;
use crate::recording::{self, RecordingError};
use crate::run::FAILED;

/// A node's daemon answers within this many seconds, or the lab is not made.
const DAEMON_WAIT: &str = "15";

#[derive(Debug, Error)]
pub(crate) enum LaboratoryError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Page(#[from] LabPageError),
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("This program does not know where it lies ({0})")]
    OwnPath(std::io::Error),
    #[error("The daemon of {node} {wrong}")]
    Daemon { node: String, wrong: String },
    #[error("There is no daemon at {0}: build or install whimd, or name it with --daemon")]
    NoDaemon(PathBuf),
}

/// Does what was asked.
///
/// # Errors
/// Why not, as a sentence.
pub(crate) fn perform(verb: Verb) -> Result<ExitCode, LaboratoryError> {
    match verb {
        Verb::Up(up) => start(*up)?,
        Verb::Exec {
            lab,
            user,
            node,
            command,
        } => {
            return Ok(execute(&lab.name, user.as_deref(), &node, &command));
        }
        Verb::Cut { lab, one, other } => {
            Lab::open(&lab.name)?.cut(&one, &other)?;
            done(&lab, &format!("no packet passes between {one} and {other}"));
        }
        Verb::Heal { lab, one, other } => {
            Lab::open(&lab.name)?.heal(&one, &other)?;
            done(&lab, &format!("packets pass between {one} and {other}"));
        }
        Verb::Link {
            lab,
            one,
            other,
            settings,
        } => {
            Lab::open(&lab.name)?.link(&one, &other, &link(&settings)?)?;
        }
        Verb::Kill { lab, node } => {
            Lab::open(&lab.name)?.kill(&node)?;
            done(&lab, &format!("{node} is off"));
        }
        Verb::Start {
            lab,
            node,
            daemon: false,
        } => {
            Lab::open(&lab.name)?.start(&node)?;
            done(&lab, &format!("{node} is on"));
        }
        Verb::Start {
            lab,
            node,
            daemon: true,
        } => {
            let own = std::env::current_exe().map_err(LaboratoryError::OwnPath)?;
            let opened = Lab::open(&lab.name)?;
            opened.start_daemon(&node)?;
            if let Some(wrong) = lab_views::daemon_answers(&opened, &own, &node)? {
                return Err(LaboratoryError::Daemon { node, wrong });
            }
            done(&lab, &format!("the daemon of {node} runs"));
        }
        Verb::Pause { lab, node } => Lab::open(&lab.name)?.pause(&node)?,
        Verb::Resume { lab, node } => Lab::open(&lab.name)?.resume(&node)?,
        Verb::Record { lab, file, seconds } => {
            let told = recording::record(&lab.name, &file, seconds)?;
            output::line(&told.to_string());
        }
        Verb::Status { lab, json } => status(&Lab::status_of(&lab.name)?, json),
        Verb::List { json } => list(&whim_lab::list_all(), json),
        Verb::Web { lab, node } => lab_page::serve(&Lab::open(&lab.name)?, &node)?,
        Verb::Down { lab } => {
            Lab::down(&lab.name)?;
            done(&lab, "it has ended, and nothing of it is left");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what a lab is like now that something was done to it.
fn done(lab: &LabName, what: &str) {
    output::line(&format!("Lab {}: {what}", lab.name));
}

fn link(asked: &LinkOptions) -> Result<LinkSettings, OptionsError> {
    let share = |text: &Option<String>| text.as_deref().map_or(Ok(0.0), parse_share);
    Ok(LinkSettings {
        delay_us: asked.delay.as_deref().map_or(Ok(0), parse_delay_us)?,
        loss: share(&asked.loss)?,
        reorder: share(&asked.reorder)?,
        duplicate: share(&asked.duplicate)?,
        mtu: asked.mtu,
        rate_bits: asked.rate.as_deref().map(parse_rate_bits).transpose()?,
        seed: asked.seed.unwrap_or(0),
    })
}

fn start(up: LabUp) -> Result<(), LaboratoryError> {
    let own = std::env::current_exe().map_err(LaboratoryError::OwnPath)?;
    let daemon = up.daemon.unwrap_or_else(|| own.with_file_name("whimd"));
    if !daemon.is_file() {
        return Err(LaboratoryError::NoDaemon(daemon));
    }
    let is_cluster = !up.no_cluster;
    let mut words = vec![daemon.display().to_string(), "--lab".into()];
    words.extend(up.daemon_arg);
    let memory = up.memory.iter().map(|text| parse_bytes(text));
    let options = Options {
        name: up.lab.name,
        nodes: up.nodes,
        cpu: up.cpu,
        memory: memory.collect::<Result<_, _>>()?,
        link: link(&up.link)?,
        clock_offsets_ms: up.clock.iter().copied().map(milliseconds).collect(),
        shares: up.share,
        helper: None,
        daemon: words,
        bootstrap: if is_cluster {
            cluster(&own)
        } else {
            Bootstrap::daemons_only()
        },
    };
    let lab = Lab::up(&options)?;
    let status = lab.status()?;
    for warning in &status.warnings {
        output::aside(warning);
    }
    let names: Vec<String> = status.nodes.iter().map(|node| node.name.clone()).collect();
    if is_cluster {
        tell_missing(
            &status.name,
            &lab_views::wait(&lab, &own, &names, SEEN_WITHIN),
        );
    }
    output::line(&format!("Lab {} is up: {}", status.name, names.join(", ")));
    Ok(())
}

/// The lab stays: only in it can be found out why.
fn tell_missing(lab: &str, missing: &[String]) {
    if missing.is_empty() {
        return;
    }
    output::aside(&format!(
        "The nodes of lab '{lab}' do not all see each other after {} s; 'whim lab exec --name {lab} NODE -- whim nodes' \
         shows when they do:",
        SEEN_WITHIN.as_secs()
    ));
    for sentence in missing {
        output::aside(&format!("  {sentence}"));
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the kernel refuses what is far beyond its range, and `as` stays at the ends"
)]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

/// From bare nodes to a cluster, on the same path as real machines.
fn cluster(whim: &std::path::Path) -> Bootstrap {
    let whim = whim.display().to_string();
    let run = |on, words: &[&str], input: Option<&str>, capture: Option<&str>| Step::Run {
        on,
        command: [&[whim.as_str(), "--wait", DAEMON_WAIT], words]
            .concat()
            .into_iter()
            .map(ToString::to_string)
            .collect(),
        input: input.map(ToString::to_string),
        capture: capture.map(ToString::to_string),
    };
    Bootstrap {
        first: vec![
            Step::Daemon,
            run(Place::This, &["init", "--node", "{node}"], None, None),
        ],
        others: vec![
            Step::Daemon,
            run(Place::First, &["token"], None, Some("token")),
            run(
                Place::This,
                &["join", "{first_address}", "--node", "{node}"],
                Some("{token}"),
                None,
            ),
        ],
    }
}

fn execute(name: &str, user: Option<&str>, node: &str, command: &[OsString]) -> ExitCode {
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments),
        None => (
            std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()),
            command,
        ),
    };
    let complain = |error: &dyn std::fmt::Display| {
        output::aside(&format!("whim lab exec: {error}"));
        ExitCode::from(FAILED)
    };
    match Lab::open(name).and_then(|lab| lab.told_command(node, user, program)) {
        Ok(mut command) => {
            if let Err(error) = whim_sys::startup::restore() {
                return complain(&error);
            }
            if let Some(path) = path_to_ourselves() {
                command.env("PATH", path);
            }
            complain(&command.args(arguments).exec())
        }
        Err(error) => complain(&error),
    }
}

/// PATH with our own directory at its end, unless there is a `whim` in it already: what is tried out in
/// a lab need not be installed.
fn path_to_ourselves() -> Option<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    if places.iter().any(|place| place.join("whim").exists()) {
        return None;
    }
    places.push(std::env::current_exe().ok()?.parent()?.to_owned());
    std::env::join_paths(places).ok()
}

fn status(status: &LabStatus, json: bool) {
    if json {
        output::json(status);
        return;
    }
    let rows: Vec<Vec<String>> = status
        .nodes
        .iter()
        .map(|node| {
            let daemon = match &node.daemon {
                Some(daemon) if daemon.running => "runs",
                Some(_) => "ended",
                None => "-",
            };
            vec![
                node.name.clone(),
                format!("{:?}", node.state).to_lowercase(),
                daemon.to_string(),
                node.address.clone(),
                node.cpu.map_or("-".into(), |cpu| cpu.to_string()),
                node.memory_bytes.map_or("-".into(), output::bytes),
            ]
        })
        .collect();
    output::table(
        &["NODE", "STATE", "DAEMON", "ADDRESS", "CPU", "MEMORY"],
        &[],
        &rows,
    );
    for link in &status.links {
        let cut = if link.cut { "cut" } else { "open" };
        output::line(&format!("{}-{}: {cut}, {}", link.a, link.b, link.settings));
    }
    for warning in &status.warnings {
        output::line(warning);
    }
    for hint in status
        .nodes
        .iter()
        .filter_map(|node| hint(&status.name, node))
    {
        output::line(&hint);
    }
}

/// What to do about a node that does nothing: one that is off, and one whose daemon has ended, are not the same.
fn hint(lab: &str, node: &NodeStatus) -> Option<String> {
    let name = &node.name;
    match (node.state, &node.daemon) {
        (NodeState::Off, _) => Some(format!(
            "{name} is off: 'whim lab start --name {lab} {name}' switches it on"
        )),
        (NodeState::Dead, _) => Some(format!(
            "{name} has ended without having been switched off: 'whim lab start --name {lab} {name}' switches it on"
        )),
        (NodeState::Paused, _) => Some(format!(
            "{name} is paused: 'whim lab resume --name {lab} {name}' lets it go on"
        )),
        (NodeState::Up, Some(daemon)) if !daemon.running => Some(format!(
            "{name} is on, but its daemon has ended: 'whim lab start --name {lab} --daemon {name}' starts it \
             again; its log is {}",
            node.log.display()
        )),
        (NodeState::Up, _) => None,
    }
}

fn list(labs: &[ListedLab], json: bool) {
    if json {
        labs.iter().for_each(output::json);
        return;
    }
    if labs.is_empty() {
        output::line("There is no lab on this machine: 'whim lab up' makes one");
        return;
    }
    let rows: Vec<Vec<String>> = labs
        .iter()
        .map(|lab| {
            let uid = nix::unistd::Uid::from_raw(lab.owner_uid);
            let user = nix::unistd::User::from_uid(uid).ok().flatten();
            vec![
                lab.name.clone(),
                format!("{} of {} on", lab.nodes_on, lab.nodes),
                user.map_or_else(|| uid.to_string(), |user| user.name),
                lab.since_ms.map_or("-".into(), output::moment),
                if lab.complete { "up" } else { "incomplete" }.into(),
            ]
        })
        .collect();
    output::table(&["LAB", "NODES", "OWNER", "SINCE", "STATE"], &[], &rows);
}
