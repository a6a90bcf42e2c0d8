//! `whim`: the command line.
#![forbid(unsafe_code)]
// `output` writes what may be written, and bears that nobody can read it.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whim_control::client::{Client, ControlError};
use whim_control::places::Environment;
use whim_control::protocol::{Answer, ProcessRow, Request, Why};
use whim_control::similar;

mod arguments;
mod authority;
mod check;
mod completion;
mod confirm;
mod doctor;
mod generated;
mod hints;
mod history;
mod lab_page;
mod lab_views;
mod laboratory;
mod letters;
mod monitor;
mod moves;
mod output;
mod portable;
mod recording;
mod run;
mod timing;
mod token;
mod tune;

use arguments::{Ca, ConfigVerb, Generated, Logged, NodeOptions, ProcessName, Seen, Verb};

/// Names the control socket where `--socket` does not.
const SOCKET_VARIABLE: &str = "WHIM_SOCKET";
/// Between two attempts to reach a daemon that is being started.
const RETRY: Duration = Duration::from_millis(20);

/// A daemon that is there and says nothing for so long is stopped.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// The least room for our own stack, in bytes. The parser takes some 130 KiB.
const STACK: usize = 1 << 20;

/// Exit status of wrong use.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    match words.nth(1) {
        // A helper of a lab: it forks, so nothing may have been started before.
        Some(word) if word == "lab-node" => {
            return whim_lab::node::main(std::env::args_os().skip(1));
        }
        Some(word) if word == lab_page::RELAY => return lab_page::relay(words.next()),
        _ => {}
    }
    output::settle(with_room(obey))
}

/// Does the work in a thread with a stack of its own where `ulimit -s` leaves us too little for the command line's parser:
/// the program that is to be run may need no more. It becomes the process's only thread by exec.
fn with_room(work: fn() -> ExitCode) -> ExitCode {
    let (soft, _) = getrlimit(Resource::RLIMIT_STACK).unwrap_or((u64::MAX, u64::MAX));
    if soft >= STACK as u64 {
        return work();
    }
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    // Without a thread, as well as it goes.
    thread.map_or_else(
        |_| work(),
        |thread| thread.join().unwrap_or(ExitCode::FAILURE),
    )
}

fn obey() -> ExitCode {
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) => return wrong_use(error),
    };
    let socket = arguments.socket;
    let wait = Duration::from_secs(arguments.wait.unwrap_or(0));
    let patience = patience(&arguments.verb);
    let connect = || {
        let mut client = connect(socket.as_deref(), wait)?;
        if let Some(patience) = patience {
            client.be_patient(patience);
        }
        Ok(client)
    };
    let start = |run| run::run(&reach(socket.as_deref(), arguments.wait), run);
    match arguments.verb {
        Verb::Run(run) if run.time => timing::run(&connect),
        Verb::Run(run) => start(*run),
        Verb::Shell(shell) => start(shell.run()),
        Verb::Doctor { json } if doctor::examine(connect(), json) => ExitCode::SUCCESS,
        Verb::Doctor { .. } => ExitCode::FAILURE,
        Verb::Top(seen) => watched(monitor::top, socket, wait, &seen),
        Verb::Mon(seen) => watched(monitor::mon, socket, wait, &seen),
        Verb::CompleteWords { line } => {
            completion::answer(&line, Arc::new(move || connect_once(socket.as_deref())))
        }
        Verb::Lab(verb) => laboratory::perform(*verb).unwrap_or_else(|error| refuse(&error)),
        Verb::Join {
            host, token_file, ..
        } if token::is_argument(&host, token_file.as_deref()) => misuse(token::AS_ARGUMENT),
        verb => match perform(verb, &connect) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&causes(&error)),
        },
    }
}

/// How long the daemon may take for each answer to this verb; `None` where it does something that takes its time.
fn patience(verb: &Verb) -> Option<Duration> {
    match verb {
        Verb::Migrate { .. }
        | Verb::Bring { .. }
        | Verb::Drain { .. }
        | Verb::Undrain { .. }
        | Verb::Expel
        | Verb::Evacuate { .. }
        | Verb::Init { .. }
        | Verb::Join { .. }
        | Verb::Leave { .. }
        | Verb::Remove { .. }
        | Verb::Run(_)
        | Verb::Shell(_)
        | Verb::Top(_)
        | Verb::Mon(_) => None,
        _ => Some(ANSWERS_WITHIN),
    }
}

/// A monitor, which connects from its own threads.
fn watched(
    show: impl Fn(&monitor::Connect, &monitor::Options) -> Result<()>,
    socket: Option<PathBuf>,
    wait: Duration,
    seen: &Seen,
) -> ExitCode {
    let connect: monitor::Connect = Arc::new(move || connect(socket.as_deref(), wait));
    let options = monitor::Options {
        json: seen.json,
        once: seen.once,
        from: seen.from.clone(),
    };
    match show(&connect, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&causes(&error)),
    }
}

/// An error and what caused it, as far as it does not say so itself.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    output::aside(&format!("whim: {error}"));
    ExitCode::FAILURE
}

/// The command line was wrong, in a way that its parser does not know.
fn misuse(text: &str) -> ExitCode {
    output::aside(&format!("whim: {text}"));
    ExitCode::from(WRONG_USE)
}

/// Help and version are no errors; wrong use of `run` ends as env(1) does, since 1 and 2 are codes
/// of the program.
fn wrong_use(error: clap::Error) -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let verb = verb_of(&words).unwrap_or_default().to_owned();
    // The parser repeats what it does not understand.
    let is_former = verb == "join" && token::is_former(&error);
    if is_former || error.exit_code() != 0 && token::in_words(std::env::args_os()) {
        return misuse(token::AS_ARGUMENT);
    }
    let error = hints::mend(error, &words);
    output::note(error.print());
    let runs = verb == "run" || verb == "shell";
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if runs => ExitCode::from(run::FAILED),
        _ => ExitCode::from(WRONG_USE),
    }
}

/// The verb of a command line that was not understood: what stands behind the options of all verbs.
fn verb_of(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1);
    loop {
        match words.next()?.as_str() {
            "--socket" | "--wait" => words.next().map(drop)?,
            option if option.starts_with('-') => {}
            verb => return Some(verb),
        }
    }
}

/// The socket that the environment names.
fn named_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

fn connect_once(socket: Option<&Path>) -> Result<Client, ControlError> {
    match (socket, named_socket()) {
        (Some(path), _) => Client::connect(path),
        (None, Some(path)) => Client::of_environment(&path),
        (None, None) => Client::find(),
    }
}

/// How a program that is started finds its daemon.
fn reach(socket: Option<&Path>, wait: Option<u64>) -> run::Reach<'_> {
    run::Reach {
        connect: Box::new(move || connect_once(socket).map_err(in_lab)),
        wait: wait.map(Duration::from_secs),
        sockets: match socket.map(PathBuf::from).or_else(named_socket) {
            Some(path) => vec![path],
            None => Client::found_at(&Environment::here()).into(),
        },
    }
}

fn connect(socket: Option<&Path>, wait: Duration) -> Result<Client, ControlError> {
    let deadline = Instant::now() + wait;
    let attempt = || connect_once(socket);
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            result => return result.map_err(in_lab),
        }
    }
}

/// In a node of a lab no service manager starts daemons, but the lab does.
fn in_lab(error: ControlError) -> ControlError {
    match (error, named("WHIM_LAB"), named("WHIM_NODE")) {
        (ControlError::Unreachable { path, source }, Some(lab), Some(node)) => {
            ControlError::EndedInLab {
                path,
                source,
                lab,
                node,
            }
        }
        (error, ..) => error,
    }
}

/// What the environment says of the lab.
fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

type Connect<'a> = dyn Fn() -> Result<Client, ControlError> + 'a;

/// Does what the verb says; of a number that is none here, says whether it is a guest's.
fn perform(verb: Verb, connect: &Connect<'_>) -> Result<()> {
    let number = number_of(&verb);
    let done = perform_here(verb, connect);
    done.map_err(|error| match number {
        Some(pid) if error.to_string().starts_with("There is no process") => {
            match guest(pid, connect) {
                Some(guest) => anyhow::anyhow!("{error}; {guest}"),
                None => error,
            }
        }
        _ => error,
    })
}

/// The process that the verb is about, if it is named by its number alone.
fn number_of(verb: &Verb) -> Option<i32> {
    let (Verb::Migrate { pid: name, .. }
    | Verb::Bring {
        pid: Some(name), ..
    }
    | Verb::Adopt { pid: name }
    | Verb::Go { pid: Some(name) }
    | Verb::Why { pid: name, .. }) = verb
    else {
        return None;
    };
    name.home.is_none().then_some(name.pid)
}

/// Says that a guest has this number at its home.
fn guest(pid: i32, connect: &Connect<'_>) -> Option<String> {
    let row = find_row(connect, |row| row.pid == pid).ok()??;
    let home = row.home;
    Some(format!(
        "{pid} is a guest's number at its home: give the command on {home}, or ask 'whim why {home}:{pid}'"
    ))
}

/// The first row of `whim ps` of which this holds.
fn find_row(
    connect: &Connect<'_>,
    is_it: impl Fn(&ProcessRow) -> bool,
) -> Result<Option<ProcessRow>> {
    let mut found = None;
    connect()?.ask(&Request::Processes { all: false }, |answer| {
        if let Answer::Process(row) = answer
            && found.is_none()
            && is_it(&row)
        {
            found = Some(row);
        }
    })?;
    Ok(found)
}

fn perform_here(verb: Verb, connect: &Connect<'_>) -> Result<()> {
    match verb {
        Verb::Migrate { pid, to, json } => {
            let request = Request::Migrate {
                pid: here(&pid, connect)?,
                to,
            };
            Ok(moves::perform(connect()?, &request, json)?)
        }
        Verb::Bring { pid: None, .. } => say(connect, &Request::BringAll),
        Verb::Bring {
            hold,
            pid: Some(pid),
            json,
        } => {
            let request = Request::Bring {
                pid: here(&pid, connect)?,
                hold,
            };
            Ok(moves::perform(connect()?, &request, json)?)
        }
        Verb::Adopt { pid } => say(
            connect,
            &Request::Adopt {
                pid: here(&pid, connect)?,
            },
        ),
        Verb::Go { pid: None } => say(connect, &Request::Stay { on: false }),
        Verb::Go { pid: Some(pid) } => say(
            connect,
            &Request::Go {
                pid: here(&pid, connect)?,
            },
        ),
        Verb::Why { pid, json } => why(&pid, connect).map(|why| show_why(&why, json)),
        Verb::Ps { all, json } => list_processes(connect()?, all, json),
        Verb::Nodes { json } => list_nodes(connect()?, json),
        Verb::Web { json } => show_link(connect()?, json),
        Verb::Log(arguments) => show_log(connect, arguments),
        Verb::History { since, json } => Ok(history::show(connect()?, since, json)?),
        Verb::Config(ConfigVerb::Check { file, json }) => check::perform(file.as_deref(), json),
        Verb::Tune { key, value, json } => tune::perform(connect()?, key, value, json),
        Verb::Completions { shell } => {
            generated::completions(shell);
            Ok(())
        }
        Verb::Generate {
            kind: Generated::Man,
            directory,
        } => generated::man_pages(&directory).with_context(|| unwritten(&directory)),
        Verb::Generate {
            kind: Generated::Completions,
            directory,
        } => generated::completion_files(&directory).with_context(|| unwritten(&directory)),
        Verb::Init {
            node,
            restore: Some(file),
        } => authority::restore(connect, node, &file),
        Verb::Ca(Ca::Backup { file }) => authority::back_up(connect, &file),
        administrative => {
            confirm(&administrative)?;
            say(connect, &administrative_request(administrative)?)
        }
    }
}

/// Asks before what cannot be taken back.
fn confirm(verb: &Verb) -> Result<(), confirm::NotConfirmed> {
    match verb {
        Verb::Leave { yes, .. } => confirm::ask(
            "This node leaves the cluster, and needs a new token to come back.",
            *yes,
        ),
        Verb::Remove { node, yes } => {
            let what = format!(
                "{node} is put out of the cluster: guests that it does not let go end, and it needs a new token to \
                 come back."
            );
            confirm::ask(&what, *yes)
        }
        _ => Ok(()),
    }
}

/// What changes the cluster.
fn administrative_request(verb: Verb) -> Result<Request> {
    Ok(match verb {
        Verb::Init { node, .. } => {
            let NodeOptions { node, advertise } = node;
            Request::Init {
                node,
                advertise,
                restore: None,
            }
        }
        Verb::Join {
            host,
            token_file,
            node,
        } => {
            let NodeOptions { node, advertise } = node;
            whim_secret::address::parse_host(&host)?;
            Request::Join {
                host,
                token: token::get(token_file.as_deref())?,
                node,
                advertise,
            }
        }
        Verb::Stay => Request::Stay { on: true },
        Verb::Block => Request::Block { on: true },
        Verb::Unblock => Request::Block { on: false },
        Verb::Expel => Request::Expel,
        Verb::Evacuate { undo } => Request::Evacuate { undo },
        Verb::Drain { wait, node } => Request::Drain { node, wait },
        Verb::Undrain { node } => Request::Undrain { node },
        Verb::Token => Request::Token,
        Verb::Leave { force, .. } => Request::Leave { force },
        Verb::Remove { node, .. } => Request::Remove { node },
        other => anyhow::bail!("{other:?} is answered elsewhere"),
    })
}

fn unwritten(directory: &Path) -> String {
    format!("{} cannot be written", directory.display())
}

/// The pid, if it is one of this node.
fn here(name: &ProcessName, connect: &Connect<'_>) -> Result<i32> {
    let Some(home) = &name.home else {
        return Ok(name.pid);
    };
    // The first is this node.
    let mut nodes = Vec::new();
    connect()?.ask(&Request::Nodes, |answer| {
        if let Answer::Node(row) = answer {
            nodes.push(row.name);
        }
    })?;
    anyhow::ensure!(
        nodes.contains(home),
        "There is no node {} in this cluster; it has: {}{}",
        home.escape_debug(),
        nodes.join(", "),
        similar::question(home, nodes.iter().map(String::as_str))
    );
    anyhow::ensure!(
        nodes.first() == Some(home),
        "Process {} has its home on {home}: give the command there",
        name.pid
    );
    Ok(name.pid)
}

/// Asks one thing and prints what is answered.
fn say(connect: &Connect<'_>, request: &Request) -> Result<()> {
    let text = connect()?.ask(request, |answer| match answer {
        Answer::Notice { text } => output::line(&text),
        Answer::Token { token, id } => {
            // Beside it, not in it: what reads our output gets the token alone.
            output::aside(&format!(
                "Token {id} admits one node within 15 minutes: there, run 'whim join HOST', which asks for it"
            ));
            output::line(token.reveal());
        }
        _ => {}
    })?;
    text.iter().for_each(|text| output::line(text));
    Ok(())
}

fn show_why(why: &Why, json: bool) {
    if json {
        output::json(why);
    } else {
        why.sentences.iter().for_each(|text| output::line(text));
    }
}

/// What keeps a process where it is. Of a guest, this node tells what it knows itself.
fn why(name: &ProcessName, connect: &Connect<'_>) -> Result<Why> {
    let pid = match here(name, connect) {
        Ok(pid) => pid,
        Err(error) => return why_guest(name, connect)?.ok_or(error),
    };
    let mut told = None;
    connect()?.ask(&Request::Why { pid }, |answer| {
        if let Answer::Why(why) = answer {
            told = Some(why);
        }
    })?;
    told.context("The daemon has not said why: whim and whimd are of different versions")
}

fn why_guest(name: &ProcessName, connect: &Connect<'_>) -> Result<Option<Why>> {
    let is_it = |row: &ProcessRow| row.pid == name.pid && Some(&row.home) == name.home.as_ref();
    let guest = find_row(connect, is_it)?;
    Ok(guest.map(|row| {
        let (pid, home, place) = (row.pid, &row.home, &row.r#where);
        let mut sentences = vec![format!(
            "Process {pid} of {home} is on {place} as a guest: {}",
            row.command
        )];
        sentences.extend(row.stay);
        sentences.push(format!("Its home knows more: give the command on {home}."));
        Why {
            pid,
            sentences,
            decision: None,
        }
    }))
}

fn list_processes(mut client: Client, all: bool, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    client.ask(&Request::Processes { all }, |answer| {
        if let Answer::Process(row) = answer {
            rows.push(row);
        }
    })?;
    if json {
        rows.iter().for_each(output::json);
    } else {
        output::processes(&rows);
    }
    Ok(())
}

fn list_nodes(mut client: Client, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    client.ask(&Request::Nodes, |answer| {
        if let Answer::Node(row) = answer {
            rows.push(row);
        }
    })?;
    if json {
        rows.iter().for_each(output::json);
    } else {
        output::nodes(&rows);
    }
    Ok(())
}

fn show_link(mut client: Client, json: bool) -> Result<()> {
    client.ask(&Request::Web, |answer| match answer {
        Answer::Link(link) if json => output::json(&link),
        Answer::Link(link) => {
            output::line(&link.url);
            if let (Some(lab), Some(node)) = (named("WHIM_LAB"), named("WHIM_NODE")) {
                output::aside(&format!(
                    "A browser of the machine itself does not reach this node of lab '{lab}': 'whim lab web --name {lab} {node}' there gives a link for it"
                ));
            }
            if let Some(fingerprint) = link.certificate_sha256 {
                output::line(&format!(
                    "The browser will warn of the certificate: trust it if its SHA-256 is {fingerprint}"
                ));
            }
        }
        _ => {}
    })?;
    Ok(())
}

fn show_log(connect: &Connect<'_>, arguments: Logged) -> Result<()> {
    let pid_of = |name: Option<ProcessName>| name.map(|name| here(&name, connect)).transpose();
    let (only, calls) = (pid_of(arguments.pid)?, pid_of(arguments.calls)?);
    let since = arguments
        .since
        .map_or(0, |ago| history::now_ms().saturating_sub(ago.milliseconds));
    let mut shown = false;
    connect()?.ask(&Request::Log { calls }, |answer| {
        if let Answer::Log(row) = answer
            && row.time_ms >= since
            && (only.is_none() || row.pid == only)
        {
            shown = true;
            match arguments.json {
                true => output::json(&row),
                false => output::log(&row),
            }
        }
    })?;
    if let Some(pid) = calls.or(only).filter(|_| !shown) {
        output::aside(&format!("whim: Nothing is known of what process {pid} did"));
    }
    Ok(())
}
