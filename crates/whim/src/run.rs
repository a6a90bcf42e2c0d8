//! `whim run`: become a candidate, then become the program.

use nix::errno::Errno;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use whim_control::client::{Client, ControlError};
use whim_control::protocol::{Answer, Request, RunOptions};
use whim_sys::yama::Scope;

use crate::arguments::Run;
use crate::portable;

/// Exit codes of our own, apart from the program's, as of env(1).
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Registers this process and replaces it by the program: same pid, descriptors, terminal,
/// signals, directory and environment. The connection closes by that, which tells the daemon that
/// the program runs. Returns only on failure.
pub(crate) fn run(client: Result<Client, ControlError>, arguments: Run) -> ExitCode {
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
    let portable = options.portable;
    let mut without = Vec::new();
    let registered = client.and_then(|mut client| {
        client.ask(&Request::Register { options }, |answer| {
            if let Answer::Without { hwcaps } = answer {
                without = hwcaps;
            }
        })?;
        Ok(client)
    });
    // Kept until exec closes it.
    let client = match registered {
        Ok(client) => client,
        Err(error) => return complain(&error, FAILED),
    };
    if client.daemon_uid() != Some(0) && Scope::here() == Scope::Descendants {
        // If it is refused, the program stays, and the daemon says why.
        let _ = whim_sys::yama::let_own_user_trace_us();
    }
    if portable {
        eprintln!("whim run: {}", portable::NOT_COVERED);
    }
    become_program(&arguments.command, &portable::environment(&without))
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("whim run: {error}");
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
    let name = command
        .first()
        .map(|name| name.display().to_string())
        .unwrap_or_default();
    match errno {
        Errno::ENOENT => complain(&format!("There is no program {name}"), NOT_FOUND),
        errno => {
            let reason = errno.desc();
            complain(
                &format!("{name} cannot be executed: {reason}"),
                NOT_EXECUTABLE,
            )
        }
    }
}
