//! `whim run`: become a candidate, then become the program.

use nix::errno::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use whim_control::client::{Client, ControlError, node_of};
use whim_control::protocol::{Answer, Request, RunOptions};
use whim_control::rules;
use whim_sys::yama::Scope;

use crate::arguments::Run;
use crate::{hints, output, portable};

/// Exit codes of our own, apart from the program's, as of env(1).
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// For how long a daemon is waited for that is not there: it is back sooner from a restart or an upgrade.
const WAIT: Duration = Duration::from_secs(5);
/// For how long one is waited for that is there, and says nothing: it may have much to do.
const SILENT: Duration = Duration::from_secs(30);
/// The least of that, which `--wait` can ask for.
const SILENT_MIN: Duration = Duration::from_secs(1);
/// Between two attempts to register, while it may come at any moment, and while nobody knows when it comes.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(500);
/// Between two attempts while it hears of as many programs as it can, at most: many of us may be waiting for that.
const BUSY: Duration = Duration::from_millis(300);

/// How the daemon is found.
pub(crate) struct Reach<'a> {
    /// One attempt to connect.
    pub connect: Box<dyn Fn() -> Result<Client, ControlError> + 'a>,
    /// For how long attempts are made, if the user says so.
    pub wait: Option<Duration>,
    /// Where its socket may be.
    pub sockets: Vec<PathBuf>,
}

impl Reach<'_> {
    /// For how long attempts are made.
    fn wait(&self) -> Duration {
        self.wait.unwrap_or(WAIT)
    }

    /// For how long a daemon may say nothing.
    fn silent(&self) -> Duration {
        self.wait.map_or(SILENT, |wait| wait.max(SILENT_MIN))
    }
}

/// What the daemon has said.
struct Registered {
    /// Kept until exec closes it.
    client: Client,
    /// The CPU features that the program has to do without.
    without: Vec<String>,
    /// Why the program does not go now where it is to go.
    said: Option<String>,
}

/// Registers this process and replaces it by the program: same pid, descriptors, terminal,
/// signals, directory and environment. The connection closes by that, which tells the daemon that
/// the program runs. Without a daemon, the program runs here. Returns only on failure.
pub(crate) fn run(reach: &Reach<'_>, arguments: Run) -> ExitCode {
    let strict = arguments.strict;
    let options = RunOptions {
        on: arguments.on,
        only: arguments.hosts.only,
        avoid: arguments.hosts.avoid,
        pin: arguments.pin,
        class: arguments.class,
        lease: arguments.hosts.lease,
        portable: arguments.portable,
        run: arguments.run_name,
    };
    let options = match ruled(options) {
        Ok(options) => options,
        Err(error) => return complain(&error, FAILED),
    };
    if let Some(name) = arguments.command.first().filter(|name| is_missing(name)) {
        return not_found(name);
    }
    if let Some(name) = arguments.command.first().filter(|name| is_no_program(name)) {
        return not_executable(name, Errno::EACCES);
    }
    let registered = match register(reach, &options, strict) {
        Ok(registered) => registered,
        Err(error) => return complain(&error, FAILED),
    };
    let Some(registered) = registered else {
        let environment = ruling(portable::environment(&[]), &options);
        return become_program(&arguments.command, &environment);
    };
    if let Some(text) = &registered.said {
        output::in_passing(&format!("whim run: {text}"));
    }
    if registered.client.daemon_uid() != Some(0) && Scope::here() == Scope::Descendants {
        // If it is refused, the program stays, and the daemon says why.
        let _ = whim_sys::yama::let_own_user_trace_us();
    }
    if options.portable {
        output::in_passing(&format!("whim run: {}", portable::NOT_COVERED));
    }
    let environment = ruling(portable::environment(&registered.without), &options);
    become_program(&arguments.command, &environment)
}

/// These options, under the rules of the program that starts this one.
///
/// # Errors
/// What cannot hold, by itself or under those.
fn ruled(options: RunOptions) -> Result<RunOptions, String> {
    options.check()?;
    let words = whim_sys::startup::environment();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    rules::within(&rules::found(&words.join(&0)), options)
}

/// An environment with what holds for the program, in the place of what held for this one. A daemon may hear of the
/// program later, and programs that it starts may ask for other rules.
fn ruling(mut environment: Vec<CString>, options: &RunOptions) -> Vec<CString> {
    let name = format!("{}=", rules::VARIABLE);
    let written = rules::written(options).map(|value| CString::new(format!("{name}{value}")));
    if let Some(Ok(word)) = written {
        environment.retain(|word| !word.as_bytes().starts_with(name.as_bytes()));
        environment.push(word);
    }
    environment
}

/// Waits for a daemon, and registers this process; `None` if the program is to run here without one.
///
/// # Errors
/// The daemon refuses; or there is none, and it is `strict`, or names what no node can be called.
fn register(
    reach: &Reach<'_>,
    options: &RunOptions,
    strict: bool,
) -> Result<Option<Registered>, ControlError> {
    let begun = Instant::now();
    let (mut told, mut waits, mut pause) = (false, false, SOON);
    loop {
        let error = match attempt(reach, options, &mut told) {
            Err(error) if error.is_absence() => error,
            decided => return decided.map(Some),
        };
        // A daemon says which name was meant.
        options.check_names().map_err(ControlError::Refused)?;
        if begun.elapsed() < reach.wait() {
            std::thread::sleep(pause);
            if matches!(error, ControlError::Busy(_)) {
                pause = (pause * 2).min(BUSY);
            }
            continue;
        }
        if strict {
            return Err(error);
        }
        let nobody = nobody_answers(&error, begun.elapsed());
        let Some(option) = not_held_here(reach, options, told) else {
            output::in_passing(&format!(
                "whim run: {nobody}: the program runs here, and stays ('whim adopt {}' lets it move once a daemon answers)",
                std::process::id(),
            ));
            return Ok(None);
        };
        if !std::mem::replace(&mut waits, true) {
            output::in_passing(&format!(
                "whim run: {nobody}, and {option} would not hold: the program begins once a daemon has heard of it"
            ));
        }
        std::thread::sleep(LATER);
    }
}

/// That nobody has decided about this program for so long.
fn nobody_answers(error: &ControlError, since: Duration) -> String {
    let seconds = since.as_secs();
    match error {
        ControlError::Busy(reason) => {
            format!("The daemon has not taken it up for {seconds} s ({reason})")
        }
        ControlError::Late => format!("The daemon is there and has not answered for {seconds} s"),
        ControlError::Undecodable(_) | ControlError::Silent | ControlError::Broken(_) => {
            format!("No daemon has given an answer for {seconds} s ({error})")
        }
        _ => format!("No daemon has answered for {seconds} s"),
    }
}

/// What would not hold if the program ran here. Daemons of this user's and of root's, of today and of before, may have
/// noted different names for this node: it has to hold by each of them.
fn not_held_here(reach: &Reach<'_>, options: &RunOptions, told: bool) -> Option<String> {
    let mut names = reach.sockets.iter().filter_map(|at| node_of(at)).peekable();
    if names.peek().is_none() {
        return not_held(options, None, told);
    }
    names.find_map(|name| not_held(options, Some(&name), told))
}

/// One attempt to register; `told` is set if the daemon may have heard of it.
fn attempt(
    reach: &Reach<'_>,
    options: &RunOptions,
    told: &mut bool,
) -> Result<Registered, ControlError> {
    let mut client = (reach.connect)()?;
    client.be_patient(reach.silent());
    let options = options.clone();
    let mut without = Vec::new();
    *told = true;
    let said = client.ask(&Request::Register { options }, |answer| {
        if let Answer::Without { hwcaps } = answer {
            without = hwcaps;
        }
    })?;
    Ok(Registered {
        client,
        without,
        said,
    })
}

/// The option that does not hold for a program that runs here, on this node, and of which no daemon knows; `None`
/// if all hold. A program's home may always have it, and its environment tells who else. A daemon that was `told` of a
/// portable program may have noted of it that it does without features of which it has not told us.
fn not_held(options: &RunOptions, node: Option<&str>, told: bool) -> Option<String> {
    if let Some(on) = options.on.as_ref().filter(|on| node != Some(on)) {
        return Some(format!("--on {on}"));
    }
    (options.portable && told).then(|| "--portable".to_owned())
}

/// Whether there is no program of this name for certain; the kernel decides.
fn is_missing(name: &OsStr) -> bool {
    let missing = |path: &Path| {
        let found = std::fs::metadata(path);
        found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    if name.as_bytes().contains(&b'/') {
        return missing(Path::new(name));
    }
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    std::env::split_paths(&path).all(|place| missing(&place.join(name)))
}

/// Whether the kernel executes no file of this name for certain.
fn is_no_program(name: &OsStr) -> bool {
    use nix::unistd::{AccessFlags, access};
    name.as_bytes().contains(&b'/')
        && (Path::new(name).is_dir() || access(name, AccessFlags::X_OK) == Err(Errno::EACCES))
}

fn not_executable(name: &OsStr, errno: Errno) -> ExitCode {
    let (name, reason) = (name.display(), errno.desc());
    complain(
        &format!("{name} cannot be executed: {reason}"),
        NOT_EXECUTABLE,
    )
}

fn not_found(name: &OsStr) -> ExitCode {
    let name = name.display().to_string();
    let hint = hints::of_program(&name);
    complain(&format!("There is no program {name}{hint}"), NOT_FOUND)
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    output::aside(&format!("whim run: {error}"));
    ExitCode::from(code)
}

fn become_program(command: &[OsString], environment: &[CString]) -> ExitCode {
    let words: Result<Vec<CString>, _> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    let Ok(words) = words else {
        return complain(&"The command holds a zero byte", FAILED);
    };
    let Some(program) = words.first() else {
        return complain(&"There is no command", FAILED);
    };
    if let Err(error) = whim_sys::startup::restore() {
        return complain(&error, FAILED);
    }
    let Err(errno) = nix::unistd::execvpe(program, &words, environment);
    let name = command.first().map(OsString::as_os_str).unwrap_or_default();
    match errno {
        Errno::ENOENT => not_found(name),
        errno => not_executable(name, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_without_a_daemon_is_known_by_names_alone() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let on = |on: &str| RunOptions {
            on: Some(on.into()),
            ..RunOptions::default()
        };
        let only = |list: &[&str]| RunOptions {
            only: names(list),
            ..RunOptions::default()
        };
        let avoid = |list: &[&str]| RunOptions {
            avoid: names(list),
            ..RunOptions::default()
        };
        let pin = RunOptions {
            pin: true,
            ..RunOptions::default()
        };
        for (options, here, nowhere) in [
            (RunOptions::default(), true, true),
            (pin, true, true),
            (on("n1"), true, false),
            (on("n2"), false, false),
            (on("best"), false, false),
            (only(&["n2", "@gpu"]), true, true),
            (avoid(&["n1", "@gpu"]), true, true),
        ] {
            let holds = |node| not_held(&options, node, true).is_none();
            assert_eq!(holds(Some("n1")), here, "{options:?}");
            assert_eq!(holds(None), nowhere, "{options:?}");
        }
        let portable = RunOptions {
            portable: true,
            ..RunOptions::default()
        };
        assert_eq!(not_held(&portable, None, false), None);
        assert!(not_held(&portable, None, true).is_some());
    }

    #[test]
    fn a_node_can_be_called_what_its_certificate_can_hold() {
        let long = "n".repeat(64);
        let names = [
            "n1",
            "0",
            "a-b",
            "",
            "N1",
            "-a",
            "a-",
            "a_b",
            "a.b",
            "ä",
            &long,
            &long[1..],
        ];
        for name in names {
            let can_be = whim_control::protocol::can_be_node(name);
            assert_eq!(can_be, whim_net::NodeName::new(name).is_ok(), "{name:?}");
        }
    }
}
