//! What the lab's helper processes do. The `whim` binary (and `whim-lab-node`) hands its
//! arguments to [`main`] when the first of them is `lab-node`.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde::de::DeserializeOwned;
use whim_sys::namespace::{self, Fork, Set};

use crate::command::run_net_steps;
use crate::process::{MARK, ProcessId};
use crate::role::{Answer, GO, NetTask, NodeTask, SwitchTask, take_byte};
use crate::{enter, mounts, wire_role};

/// The namespaces of a node.
pub(crate) const NODE_NAMESPACES: Set = Set::NET
    .with(Set::PID)
    .with(Set::MOUNT)
    .with(Set::UTS)
    .with(Set::IPC)
    .with(Set::TIME);

/// Runs as a helper of a lab. `arguments` begins with `lab-node`.
///
/// Has to be called before the program starts any thread, and opens no file of its own: most
/// helpers fork, and all of them change namespaces.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let [mark, role, directory, subject, rest @ ..] = &arguments[..] else {
        return wrong_use();
    };
    if mark.as_os_str() != MARK {
        return wrong_use();
    }
    let done = match role.to_str() {
        Some("exec") => return enter::main(Path::new(directory), subject, rest),
        Some("switch") => stay(prepare_switch, begin_switch, sleep_for_ever),
        Some("node") => stay(prepare_node, begin_node, reap_for_ever),
        Some("wire") => stay(wire_role::prepare, wire_role::begin, wire_role::Wire::run),
        Some("net") => configure(),
        _ => return wrong_use(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            answer(&Answer::Failed { why });
            ExitCode::FAILURE
        }
    }
}

fn wrong_use() -> ExitCode {
    let _ = writeln!(std::io::stderr(), "lab-node is used by `whim lab` only");
    ExitCode::from(2)
}

fn answer(answer: &Answer) {
    let Ok(mut line) = serde_json::to_vec(answer) else {
        return;
    };
    line.push(b'\n');
    // Nobody listens any more: then nobody needs to know.
    let _ = std::io::stdout().write_all(&line);
    let _ = std::io::stdout().flush();
}

fn listen() -> Result<String, String> {
    // No buffering: the process that is forked off later reads the next line.
    let input = std::io::stdin();
    let mut unbuffered = fs::File::from(
        nix::unistd::dup(&input).map_err(|e| format!("cannot read its task ({e})"))?,
    );
    let mut line = Vec::new();
    while take_byte(&mut unbuffered, &mut line)? {}
    String::from_utf8(line).map_err(|_| "was given no text".to_owned())
}

fn read_task<T: DeserializeOwned>() -> Result<T, String> {
    let line = listen()?;
    serde_json::from_str(&line).map_err(|e| format!("was given a task it does not know ({e})"))
}

/// The life of a helper that stays: `prepare` in the process that was started, then a fork, and
/// once the starter has taken note of the new process, `begin` and `run` there.
fn stay<T: DeserializeOwned, R>(
    prepare: fn(&T) -> Result<(), String>,
    begin: fn(T) -> Result<R, String>,
    run: fn(R) -> Result<(), String>,
) -> Result<(), String> {
    let task: T = read_task()?;
    let _ = std::env::set_current_dir("/");
    prepare(&task)?;
    if let Fork::Parent(child) = namespace::fork().map_err(|e| e.to_string())? {
        answer(&Answer::Started {
            pid: child.as_raw(),
        });
        return Ok(());
    }
    nix::unistd::setsid().map_err(|e| format!("cannot begin a session ({e})"))?;
    if listen()? != GO {
        return Err("was told something else than to begin".to_owned());
    }
    let running = begin(task)?;
    answer(&Answer::Ready);
    let null = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|e| format!("cannot open /dev/null ({e})"))?;
    nix::unistd::dup2_stdin(&null).map_err(|e| format!("cannot leave its input ({e})"))?;
    nix::unistd::dup2_stdout(&null).map_err(|e| format!("cannot leave its output ({e})"))?;
    run(running)
}

/// Puts the caller into these cgroups.
pub(crate) fn enter_cgroups(entries: &[PathBuf]) -> Result<(), String> {
    for entry in entries {
        fs::write(entry, "0").map_err(|e| format!("cannot enter {}: {e}", entry.display()))?;
    }
    Ok(())
}

/// Puts the caller into the switch's network namespace (and the lab's user namespace).
pub(crate) fn enter_switch(switch: ProcessId, rootless: bool) -> Result<(), String> {
    let handle = switch.open().ok_or("the switch process is gone")?;
    let set = if rootless {
        Set::USER | Set::NET
    } else {
        Set::NET
    };
    handle.enter(set).map_err(|e| e.to_string())
}

fn prepare_switch(task: &SwitchTask) -> Result<(), String> {
    enter_cgroups(&task.cgroup_entries)?;
    if task.rootless {
        let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
        namespace::unshare(Set::USER).map_err(|e| e.to_string())?;
        namespace::map_single_user(0, user.as_raw(), 0, group.as_raw())
            .map_err(|e| e.to_string())?;
    }
    namespace::unshare(Set::NET).map_err(|e| e.to_string())
}

fn begin_switch(task: SwitchTask) -> Result<(), String> {
    let settings = [
        ("ipv4/ip_forward", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/default/send_redirects", "0"),
        ("ipv6/conf/all/forwarding", "1"),
    ];
    for (name, value) in settings {
        let path = Path::new("/proc/sys/net").join(name);
        if path.exists() {
            fs::write(&path, value).map_err(|e| format!("cannot set {}: {e}", path.display()))?;
        }
    }
    run_net_steps(&task.steps)
}

fn sleep_for_ever((): ()) -> Result<(), String> {
    loop {
        nix::unistd::pause();
    }
}

fn prepare_node(task: &NodeTask) -> Result<(), String> {
    enter_cgroups(&task.cgroup_entries)?;
    if let Some(holder) = task.user_namespace_of {
        let handle = holder.open().ok_or("the switch process is gone")?;
        handle.enter(Set::USER).map_err(|e| e.to_string())?;
    }
    namespace::unshare(NODE_NAMESPACES).map_err(|e| e.to_string())?;
    namespace::make_mounts_private().map_err(|e| e.to_string())?;
    // A little apart from each other, as on a machine that has slept before.
    let offset = task.clock_offset_ms;
    namespace::set_clock_offsets(offset, offset + offset.abs() / 100).map_err(|e| e.to_string())
}

fn begin_node(task: NodeTask) -> Result<(), String> {
    nix::unistd::sethostname(&task.name).map_err(|e| format!("cannot set its name ({e})"))?;
    mounts::lay_out(&task)?;
    run_net_steps(&task.steps)
}

/// The first process of a node: whatever is left without a parent becomes its child.
fn reap_for_ever((): ()) -> Result<(), String> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    // Blocked signals reach even the first process of a PID namespace, which otherwise is spared
    // those it has no handler for.
    signals
        .thread_block()
        .map_err(|e| format!("cannot block signals ({e})"))?;
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                // nix does not know real-time signals; such a child has been taken note of all the same.
                Ok(_) | Err(nix::errno::Errno::EINVAL) => {}
                Err(_) => break,
            }
        }
        match signals.wait() {
            Ok(Signal::SIGTERM) => return Ok(()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(format!("cannot wait for signals ({e})")),
        }
    }
}

fn configure() -> Result<(), String> {
    namespace::set_parent_death_signal(Some(Signal::SIGKILL)).map_err(|e| e.to_string())?;
    let task: NetTask = read_task()?;
    enter_cgroups(&task.cgroup_entries)?;
    enter_switch(task.switch, task.rootless)?;
    run_net_steps(&task.steps)?;
    answer(&Answer::Ready);
    Ok(())
}
