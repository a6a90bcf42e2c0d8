//! A terminal with a person at its keys.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::pty::{Winsize, openpty};

use crate::process::Running;

/// How long a program may take to show what it was asked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Output that is kept of one step, in bytes.
const STEP_MAX: usize = 4 << 20;

/// A pseudo-terminal of 24 lines and 80 columns, and the program that it controls.
#[derive(Debug)]
pub struct Terminal {
    keys: File,
    screen: Receiver<Vec<u8>>,
    /// What was shown since the last successful wait.
    pending: Vec<u8>,
    program: Running,
}

impl Terminal {
    /// Starts a program with the terminal as its controlling one.
    ///
    /// # Errors
    /// When there are no more terminals, or the program cannot be started.
    pub fn start(command: &Command) -> Result<Self> {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).context("There is no pseudo-terminal")?;
        let mut session = Command::new("setsid");
        session
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session
            .env("TERM", "xterm")
            .env_remove("LESS")
            .env_remove("LESSOPEN");
        session
            .stdin(pair.slave.try_clone()?)
            .stdout(pair.slave.try_clone()?)
            .stderr(pair.slave);
        let program = Running::spawn(&mut session)?;
        let keys = File::from(pair.master);
        let (sender, screen) = channel();
        let mut reader = keys.try_clone()?;
        thread::spawn(move || {
            let mut bytes = vec![0; 65536];
            // The last program that holds the terminal ends this with an error.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            keys,
            screen,
            pending: Vec::new(),
            program,
        })
    }

    /// Of the program.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.program.pid()
    }

    /// # Errors
    /// When the terminal is gone.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys
            .write_all(keys.as_bytes())
            .context("The terminal is gone")
    }

    /// Waits until this is shown; everything shown up to its end, since the last wait.
    ///
    /// # Errors
    /// When it is not shown in time, with what was.
    pub fn wait_for(&mut self, text: &str) -> Result<Vec<u8>> {
        self.wait_within(text, PATIENCE)
    }

    /// As [`Terminal::wait_for`], with another patience.
    ///
    /// # Errors
    /// When it is not shown in time; what was shown is kept for the next wait.
    pub fn wait_within(&mut self, text: &str, patience: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let wanted = text.as_bytes();
        loop {
            let found = self
                .pending
                .windows(wanted.len())
                .position(|part| part == wanted);
            if let Some(start) = found {
                let rest = self.pending.split_off(start + wanted.len());
                return Ok(std::mem::replace(&mut self.pending, rest));
            }
            ensure!(
                self.pending.len() < STEP_MAX,
                "Too much is shown while waiting for {text:?}"
            );
            match self
                .screen
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(bytes) => self.pending.extend(bytes),
                Err(error) => {
                    let how = match error {
                        RecvTimeoutError::Timeout => "not shown in time",
                        RecvTimeoutError::Disconnected => "the terminal was closed",
                    };
                    let start = self.pending.len().saturating_sub(2000);
                    let seen = String::from_utf8_lossy(&self.pending[start..]).into_owned();
                    bail!("Waited for {text:?}: {how}; seen {seen:?}")
                }
            }
        }
    }

    /// Presses keys, then waits for a text.
    ///
    /// # Errors
    /// As of [`Terminal::press`] and [`Terminal::wait_for`].
    pub fn ask(&mut self, keys: &str, text: &str) -> Result<Vec<u8>> {
        self.press(keys)?;
        self.wait_for(text)
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn end(&mut self) -> Result<ExitStatus> {
        self.program.wait(PATIENCE)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn keys_reach_a_program_and_signals_too() {
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile", "-i"])
            .env("PS1", "> ");
        let mut terminal = Terminal::start(&command).unwrap();
        terminal.wait_for("> ").unwrap();
        terminal.ask("tty; echo $((40+2))\r", "42\r\n").unwrap();
        // Words show that the program runs in the foreground: an early key would reach the shell.
        let job =
            "bash -c 'trap \"echo resu''med\" CONT; echo go$((1)); while :; do sleep .1; done'\r";
        terminal.ask(job, "go1\r\n").unwrap();
        terminal.ask("\x1a", "Stopped").unwrap();
        terminal.ask("fg\r", "resumed\r\n").unwrap();
        terminal.ask("\x03", "> ").unwrap();
        terminal.press("exit 3\r").unwrap();
        assert_eq!(terminal.end().unwrap().code(), Some(3));
    }
}
