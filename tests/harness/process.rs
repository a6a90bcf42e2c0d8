//! Other programs: run with a time limit, watched, and ended with the test at the latest.

use std::io::Write;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Gap between two looks at a condition that nothing announces.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A program that was started; dropping it ends it.
#[derive(Debug)]
pub struct Running {
    name: String,
    pid: Pid,
    endings: Receiver<std::io::Result<ExitStatus>>,
    status: Option<ExitStatus>,
}

impl Running {
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = describe(command);
        let mut child = command
            .spawn()
            .with_context(|| format!("Could not run {name}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        let (sender, endings) = channel();
        thread::spawn(move || {
            // Nobody listens any more when the test has ended before its program.
            let _ = sender.send(child.wait());
        });
        Ok(Self {
            name,
            pid,
            endings,
            status: None,
        })
    }

    /// Waits no longer than this for the end; nothing if it goes on.
    ///
    /// # Errors
    /// When the system cannot tell how it ended.
    pub fn wait_up_to(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            match self.endings.recv_timeout(limit) {
                Ok(status) => self.status = Some(status.context("Could not wait for a program")?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("The watch of {} broke", self.name),
            }
        }
        Ok(self.status)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When it has not ended after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.wait_up_to(limit)?
            .ok_or_else(|| anyhow!("{} has not ended after {limit:?}", self.name))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal to it, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.wait_up_to(Duration::ZERO), Ok(None)) {
            let _ = kill(self.pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.wait_up_to(Duration::from_secs(10));
    }
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    let mut text = words.join(" ");
    if let Some((end, _)) = text.char_indices().nth(300) {
        text.truncate(end);
    }
    text
}

/// Runs a program without input to its end.
///
/// # Errors
/// When it cannot be started, or has not ended after `limit`: then it is killed.
pub fn output(command: &mut Command, limit: Duration) -> Result<Output> {
    output_of(command.stdin(Stdio::null()), limit)
}

/// Runs a program that reads this, which is short, to its end.
///
/// # Errors
/// As of [`output`].
pub fn output_fed(command: &mut Command, input: &str, limit: Duration) -> Result<Output> {
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(input.as_bytes())?;
    drop(writer);
    let result = output_of(command.stdin(reader), limit);
    // The command keeps its end, and with it what was not read.
    command.stdin(Stdio::null());
    result
}

fn output_of(command: &mut Command, limit: Duration) -> Result<Output> {
    let name = describe(command);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("Could not run {name}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (sender, outputs) = channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait_with_output());
    });
    match outputs.recv_timeout(limit) {
        Ok(output) => output.with_context(|| format!("Could not wait for {name}")),
        Err(_) => {
            let _ = kill(pid, Signal::SIGKILL);
            bail!("{name} has not ended after {limit:?}")
        }
    }
}

/// Runs a program that has to succeed; its standard output.
///
/// # Errors
/// When it fails, with what it says.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<String> {
    let name = describe(command);
    succeeded(&name, &output(command, limit)?)
}

/// The same of one that reads this, which is short.
///
/// # Errors
/// As of [`succeed`].
pub fn succeed_fed(command: &mut Command, input: &str, limit: Duration) -> Result<String> {
    let name = describe(command);
    succeeded(&name, &output_fed(command, input, limit)?)
}

fn succeeded(name: &str, output: &Output) -> Result<String> {
    ensure!(
        output.status.success(),
        "{name}: {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Looks until there is something to see.
///
/// # Errors
/// When there is nothing after `limit`, or looking fails.
pub fn eventually<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        ensure!(Instant::now() < deadline, "Not within {limit:?}: {what}");
        thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_end_and_a_limit_are_told_apart() {
        let mut running = Running::spawn(Command::new("sleep").arg("1000")).unwrap();
        assert!(running.wait(Duration::from_millis(50)).is_err());
        running.signal(Signal::SIGTERM);
        assert!(!running.wait(Duration::from_secs(10)).unwrap().success());
        assert!(succeed(&mut Command::new("false"), Duration::from_secs(10)).is_err());
        let text = succeed(Command::new("echo").arg("x"), Duration::from_secs(10)).unwrap();
        assert_eq!(text, "x\n");
    }
}
