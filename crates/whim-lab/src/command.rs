//! Running other programs and noting what they say.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::sys::memfd::MFdFlags;
use whim_sys::namespace::PidFd;

use crate::network::NetStep;

/// Most of a program's output that is kept.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// What came of a program.
pub(crate) struct Outcome {
    /// `None`: it was ended because it took too long.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs a program to its end, or ends it after `limit`.
///
/// Its output goes to files in memory rather than pipes: a process that it leaves behind may hold
/// them as long as it likes.
pub(crate) fn run(
    command: &mut Command,
    input: &str,
    limit: Option<Duration>,
) -> std::io::Result<Outcome> {
    let (mut output, mut errors, mut stdin) = (memory()?, memory()?, memory()?);
    stdin.write_all(input.as_bytes())?;
    stdin.seek(SeekFrom::Start(0))?;
    command
        .stdin(stdin)
        .stdout(output.try_clone()?)
        .stderr(errors.try_clone()?);
    let mut child = command.spawn()?;
    let ended = match limit {
        Some(limit) => {
            let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
            let wait = PidFd::open(pid).and_then(|p| p.wait_end(limit));
            wait.map_err(std::io::Error::other)?
        }
        None => true,
    };
    if !ended {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(Outcome {
        status: ended.then_some(status),
        output: read_back(&mut output)?,
        errors: read_back(&mut errors)?,
    })
}

fn memory() -> std::io::Result<File> {
    Ok(File::from(nix::sys::memfd::memfd_create(
        "output",
        MFdFlags::MFD_CLOEXEC,
    )?))
}

fn read_back(file: &mut File) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Does configuration steps in the caller's network namespace; says what went wrong first.
pub(crate) fn run_net_steps(steps: &[NetStep]) -> Result<(), String> {
    for step in steps {
        let mut command = Command::new(&step.program);
        command.args(&step.arguments).env("PATH", PROGRAM_PATH);
        let outcome = run(&mut command, &step.input, None)
            .map_err(|e| format!("{} cannot be started: {e}", step.program))?;
        if outcome.status.is_some_and(|s| s.success()) || step.forgiving {
            continue;
        }
        return Err(format!(
            "{} {}: {} (input: {})",
            step.program,
            step.arguments.join(" "),
            outcome.errors.trim(),
            step.input.trim().replace('\n', "; "),
        ));
    }
    Ok(())
}

/// Plain users often lack the directories in which `ip` and `tc` are.
const PROGRAM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether a program is installed where [`run_net_steps`] looks.
pub(crate) fn is_installed(program: &str) -> bool {
    PROGRAM_PATH
        .split(':')
        .any(|d| std::path::Path::new(d).join(program).exists())
}
