//! Runs other programs: echoing what they print, or with a time limit.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often a running test is looked at. Small beside the time that any system test takes.
const POLL: Duration = Duration::from_millis(20);

/// Runs a command, hands each line of its standard output to `line` and returns its status.
///
/// # Errors
/// When it cannot be started or waited for.
pub(crate) fn each_line(mut command: Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let name = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("Could not run {name}"))?;
    if let Some(output) = child.stdout.take() {
        for text in BufReader::new(output).split(b'\n') {
            let text = text.with_context(|| format!("Could not read what {name} prints"))?;
            line(&String::from_utf8_lossy(&text));
        }
    }
    child
        .wait()
        .with_context(|| format!("Could not wait for {name}"))
}

/// How a command with a time limit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeded,
    Failed,
    TimedOut,
}

/// Runs a command with its output in `log`; at the limit its whole process group is killed.
///
/// The output goes to a file and not to a pipe, because a process that outlives the command would
/// keep a pipe open.
///
/// # Errors
/// When it cannot be started or waited for.
pub(crate) fn with_limit(mut command: Command, log: &File, limit: Duration) -> Result<Ending> {
    let name = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("Could not share the log file")?)
        .stderr(log.try_clone().context("Could not share the log file")?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("Could not run {name}"))?;
    let deadline = Instant::now() + limit;
    loop {
        let ended = child
            .try_wait()
            .with_context(|| format!("Could not wait for {name}"))?;
        match ended {
            Some(status) if status.success() => return Ok(Ending::Succeeded),
            Some(_) => return Ok(Ending::Failed),
            None if Instant::now() >= deadline => break,
            None => thread::sleep(POLL),
        }
    }
    kill_group(&mut child)?;
    Ok(Ending::TimedOut)
}

fn kill_group(child: &mut Child) -> Result<()> {
    Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .status()
        .context("Could not run kill to end a test that ran too long")?;
    child
        .wait()
        .context("Could not wait for a test that was ended")?;
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_and_status_are_reported() {
        let mut lines = Vec::new();
        let status = each_line(shell("echo a; printf b; exit 3"), |line| {
            lines.push(line.to_owned())
        });
        assert_eq!(lines, ["a", "b"]);
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_command_that_runs_too_long_is_ended_with_its_children() {
        let log = File::options().write(true).open("/dev/null").unwrap();
        let limit = Duration::from_millis(200);
        let ending = with_limit(shell("sleep 1000 & wait"), &log, limit).unwrap();
        assert_eq!(ending, Ending::TimedOut);
        let ending = with_limit(shell("exit 1"), &log, Duration::from_secs(60)).unwrap();
        assert_eq!(ending, Ending::Failed);
        let ending = with_limit(shell("exit 0"), &log, Duration::from_secs(60)).unwrap();
        assert_eq!(ending, Ending::Succeeded);
    }
}
