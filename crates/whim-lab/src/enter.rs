//! A command on a node: the helper behind `whim lab exec`.
//!
//! The helper goes into the node's namespaces and forks; the child becomes the command, in the
//! node's cgroup. The helper stays outside as the command's stand-in: it hands on the signals
//! that a terminal does not send by itself, stops and continues with the command, and ends as it
//! ends. Terminal, descriptors, environment and working directory are the caller's own.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, User};
use whim_sys::namespace::{self, Fork, PidFd, Set};
use whim_sys::ptrace::{self, Status};

use crate::layout::Layout;
use crate::node::NODE_NAMESPACES;
use crate::state::State;

/// Exit codes of our own, apart from the command's, as of env(1).
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// An option: whoever looks on is told where the command starts.
pub(crate) const TOLD: &str = "--told";
/// `si_code` of a signal that the kernel sent, as it does for a terminal's keys.
const SI_KERNEL: i32 = 0x80;

pub(crate) fn main(directory: &Path, node: &OsStr, rest: &[OsString]) -> ExitCode {
    let entering = Request::parse(node, rest).and_then(|request| Entry::open(directory, request));
    match entering.and_then(Entry::run) {
        Ok(code) => code,
        Err(why) => complain(&why),
    }
}

fn complain(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "whim lab exec: {why}");
    ExitCode::from(FAILED)
}

struct Request {
    node: String,
    user: Option<String>,
    /// Leaves the command running as a child of the node's first process, and reports its id.
    detach: bool,
    /// Says where the command starts, if it is not the caller's directory.
    told: bool,
    command: Vec<OsString>,
}

impl Request {
    fn parse(node: &OsStr, rest: &[OsString]) -> Result<Request, String> {
        let node = node
            .to_str()
            .ok_or("The node's name is no text")?
            .to_owned();
        let mut request = Request {
            node,
            user: None,
            detach: false,
            told: false,
            command: Vec::new(),
        };
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--user") => {
                    let user = words.next().and_then(|u| u.to_str());
                    request.user = Some(user.ok_or("--user needs a name")?.to_owned());
                }
                Some("--detach") => request.detach = true,
                Some(TOLD) => request.told = true,
                Some("--") => {
                    request.command = words.cloned().collect();
                    break;
                }
                _ => return Err(format!("Unknown option '{}'", word.display())),
            }
        }
        if request.command.is_empty() {
            return Err("There is no command to run".to_owned());
        }
        Ok(request)
    }
}

/// All that is needed on the way in, opened while the machine's own files can be seen.
struct Entry {
    request: Request,
    lab: String,
    handle: PidFd,
    namespaces: Set,
    cgroup_entries: Vec<File>,
    log: Option<File>,
    directory: Option<PathBuf>,
}

impl Entry {
    fn open(directory: &Path, request: Request) -> Result<Entry, String> {
        let layout = Layout::from_directory(directory).ok_or("There is no such lab")?;
        let state = State::load(&layout)
            .map_err(|e| e.to_string())?
            .ok_or_else(|| format!("There is no lab '{}'", layout.name()))?;
        let init = state
            .running_init(&request.node)
            .map_err(|e| e.to_string())?;
        if state.node(&request.node).is_ok_and(|n| n.paused) {
            return Err(format!("Node {} is paused", request.node));
        }
        if state.rootless && request.user.is_some() {
            return Err(
                "A lab of a plain user has only that user; --user needs a lab \
                        that root has started"
                    .to_owned(),
            );
        }
        let handle = init.open().ok_or("The node has just ended")?;
        let mut cgroup_entries = Vec::new();
        for path in state.cgroups.entries(&request.node) {
            let opened = OpenOptions::new().write(true).open(&path);
            cgroup_entries
                .push(opened.map_err(|e| format!("Cannot open {}: {e}", path.display()))?);
        }
        let log = request
            .detach
            .then(|| open_log(&layout.daemon_log(&request.node)));
        let user = if state.rootless { Set::USER } else { Set::NONE };
        Ok(Entry {
            lab: layout.name().to_owned(),
            handle,
            namespaces: user | NODE_NAMESPACES,
            cgroup_entries,
            log: log.transpose()?,
            directory: std::env::current_dir().ok(),
            request,
        })
    }

    fn run(self) -> Result<ExitCode, String> {
        let (signals, mask) = block_signals()?;
        self.handle
            .enter(self.namespaces)
            .map_err(|e| e.to_string())?;
        match namespace::fork().map_err(|e| e.to_string())? {
            Fork::Parent(child) => {
                drop(self);
                stand_in(child, &signals)
            }
            Fork::Child => {
                drop(signals);
                mask.thread_set_mask()
                    .map_err(|e| format!("Cannot restore signals: {e}"))?;
                if self.request.detach {
                    self.detach()
                } else {
                    self.become_command()
                }
            }
        }
    }

    /// In the child: everything up to the exec. Comes back only with an error.
    fn become_command(self) -> Result<ExitCode, String> {
        if File::open("/dev/tty").is_err() {
            // Without a terminal nobody's job control is disturbed by a session of our own, and
            // the command gets group and session ids that exist inside the node.
            let _ = nix::unistd::setsid();
        }
        self.enter_cgroups()?;
        let mut command = self.command()?;
        // Set last: a change of user clears it.
        namespace::set_parent_death_signal(Some(Signal::SIGKILL)).map_err(|e| e.to_string())?;
        let error = command.exec();
        let _ = writeln!(std::io::stderr(), "{}", self.exec_failure(&error));
        Ok(ExitCode::from(
            if error.kind() == std::io::ErrorKind::NotFound {
                NOT_FOUND
            } else {
                NOT_EXECUTABLE
            },
        ))
    }

    /// In the child: forks once more, so that the command becomes an orphan of this node, whose
    /// first process then is its parent.
    fn detach(self) -> Result<ExitCode, String> {
        self.enter_cgroups()?;
        if let Fork::Parent(grandchild) = namespace::fork().map_err(|e| e.to_string())? {
            let _ = writeln!(std::io::stdout(), "{}", grandchild.as_raw());
            return Ok(ExitCode::SUCCESS);
        }
        nix::unistd::setsid().map_err(|e| format!("Cannot begin a session: {e}"))?;
        // Kept until the exec, for its error; the reader sees the end of it when that succeeds.
        let answer = duplicate(std::io::stdout().as_fd())?;
        let null = File::options()
            .read(true)
            .open("/dev/null")
            .map_err(|e| format!("Cannot open /dev/null: {e}"))?;
        let log = self
            .log
            .as_ref()
            .ok_or("There is no log for a detached command")?;
        let redirect = || {
            nix::unistd::dup2_stdin(&null)?;
            nix::unistd::dup2_stdout(log)?;
            nix::unistd::dup2_stderr(log)
        };
        redirect().map_err(|e| format!("Cannot redirect the command's output: {e}"))?;
        let error = self.command()?.exec();
        let _ = writeln!(File::from(answer), "{}", self.exec_failure(&error));
        Ok(ExitCode::from(FAILED))
    }

    fn exec_failure(&self, error: &std::io::Error) -> String {
        let program = self.request.command[0].display();
        format!(
            "whim lab exec: Cannot run '{program}' on {}: {error}",
            self.request.node
        )
    }

    fn enter_cgroups(&self) -> Result<(), String> {
        for mut entry in &self.cgroup_entries {
            entry
                .write_all(b"0")
                .map_err(|e| format!("Cannot enter the node's cgroup: {e}"))?;
        }
        Ok(())
    }

    fn command(&self) -> Result<Command, String> {
        let mut command = Command::new(&self.request.command[0]);
        command
            .args(&self.request.command[1..])
            .env("WHIM_LAB", &self.lab)
            .env("WHIM_NODE", &self.request.node);
        if let Some(name) = &self.request.user {
            become_user(name, &mut command)?;
        }
        self.enter_directory();
        Ok(command)
    }

    /// Goes into the caller's directory, or the nearest to it that there is on the node.
    fn enter_directory(&self) {
        let missed = self.directory.as_ref().and_then(|directory| {
            let error = std::env::set_current_dir(directory).err()?;
            Some((directory, error))
        });
        if self.directory.is_some() && missed.is_none() {
            return;
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let others = [home, Some(PathBuf::from("/"))];
        let mut others = others.into_iter().flatten();
        let place = others.find(|directory| std::env::set_current_dir(directory).is_ok());
        if let (true, Some((directory, error)), Some(place)) = (self.request.told, missed, place) {
            let said = elsewhere(&self.lab, &self.request.node, directory, &error, &place);
            let _ = writeln!(std::io::stderr(), "whim lab exec: {said}");
        }
    }
}

/// That a command starts at another place than the caller's directory, and what to do about that.
fn elsewhere(
    lab: &str,
    node: &str,
    directory: &Path,
    error: &std::io::Error,
    place: &Path,
) -> String {
    let (directory, place) = (directory.display(), place.display());
    if error.kind() == std::io::ErrorKind::NotFound {
        return format!(
            "Lab '{lab}' does not share {directory}, so that the command starts in {place} on {node}; \
             'whim lab up --share {directory}' makes a lab that does"
        );
    }
    format!("{directory} cannot be entered on {node} ({error}): the command starts in {place}")
}

fn open_log(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|e| format!("Cannot open {}: {e}", path.display()))
}

fn duplicate(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, String> {
    descriptor
        .try_clone_to_owned()
        .map_err(|e| format!("Cannot duplicate a descriptor: {e}"))
}

/// Changes this process to the user, as a login would, and tells the command so.
fn become_user(name: &str, command: &mut Command) -> Result<(), String> {
    let user = User::from_name(name)
        .map_err(|e| format!("Cannot look up the user '{name}': {e}"))?
        .ok_or_else(|| format!("There is no user '{name}' on this machine"))?;
    let c_name = std::ffi::CString::new(name).map_err(|_| "A user's name has no NUL")?;
    let change = || -> nix::Result<()> {
        nix::unistd::initgroups(&c_name, user.gid)?;
        nix::unistd::setresgid(user.gid, user.gid, user.gid)?;
        nix::unistd::setresuid(user.uid, user.uid, user.uid)
    };
    change().map_err(|e| format!("Cannot become user '{name}': {e}"))?;
    command
        .env("HOME", &user.dir)
        .env("SHELL", &user.shell)
        .env("USER", name)
        .env("LOGNAME", name);
    Ok(())
}

/// Makes all signals that can be handed on wait for [`stand_in`]; also the mask as it was.
fn block_signals() -> Result<(SignalFd, SigSet), String> {
    let mut set = SigSet::all();
    // Faults are this process's own; they must not wait.
    for fault in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGFPE,
        Signal::SIGTRAP,
    ] {
        set.remove(fault);
    }
    // A caller may ignore SIGCHLD; then no exit status would come to us.
    namespace::restore_default_action(Signal::SIGCHLD).map_err(|e| e.to_string())?;
    let before = set
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(|e| format!("Cannot block signals: {e}"))?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)
        .map_err(|e| format!("Cannot wait for signals: {e}"))?;
    Ok((signals, before))
}

/// In the process outside: acts for the command towards the caller.
fn stand_in(child: Pid, signals: &SignalFd) -> Result<ExitCode, String> {
    // The namespaces entered before the fork are the command's; a pidfd is not confused by them.
    let handle = PidFd::open(child.as_raw()).map_err(|e| e.to_string())?;
    loop {
        let received = match signals.read_signal() {
            Ok(Some(received)) => received,
            Ok(None) | Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(format!("Cannot wait for signals: {e}")),
        };
        let number = i32::try_from(received.ssi_signo).unwrap_or(0);
        let Ok(signal) = Signal::try_from(number) else {
            continue;
        };
        if signal == Signal::SIGCHLD {
            if let Some(code) = follow(child)? {
                return Ok(code);
            }
        } else if received.ssi_code != SI_KERNEL {
            // What a terminal sends reaches the command by itself. It may have just ended.
            let _ = handle.signal(signal);
        }
    }
}

/// Does what the command did: stop, go on, or end.
fn follow(child: Pid) -> Result<Option<ExitCode>, String> {
    loop {
        let status = ptrace::poll_child(child.as_raw());
        match status.map_err(|e| format!("Cannot wait for the command: {e}"))? {
            Some(Status::Exited(code)) => {
                return Ok(Some(ExitCode::from(
                    u8::try_from(code & 0xff).unwrap_or(FAILED),
                )));
            }
            Some(Status::Signaled { signal, .. }) => return end_by(signal).map(Some),
            Some(Status::Stopped(_)) => {
                // The caller's shell sees the stop; the shell's SIGCONT goes to both of us.
                let _ = nix::sys::signal::raise(Signal::SIGSTOP);
            }
            Some(Status::Other(_)) => {}
            None => return Ok(None),
        }
    }
}

/// Ends this process by a signal, as the command was; by a real-time signal it says so as a shell does.
fn end_by(number: i32) -> Result<ExitCode, String> {
    use nix::sys::resource::{Resource, setrlimit};
    let code = ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILED));
    let Ok(signal) = Signal::try_from(number) else {
        return Ok(code);
    };
    // One core dump is enough.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
        namespace::restore_default_action(signal).map_err(|e| e.to_string())?;
    }
    let mut set = SigSet::empty();
    set.add(signal);
    let _ = nix::sys::signal::raise(signal);
    let _ = set.thread_unblock();
    // Not reached, unless the signal's default is to do nothing.
    Ok(code)
}
