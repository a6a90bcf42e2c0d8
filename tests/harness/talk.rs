//! A guest that waits for a word before it goes on, so that something can be done meanwhile.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::cluster::Cluster;
use crate::process::Running;

/// How long a guest may take for a step.
const PATIENCE: Duration = Duration::from_secs(30);

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A program of Python's that says that it is ready and waits for a line; arguments are nothing to it.
pub const WAITS: &str = "import os, sys
print('ready', os.getpid(), flush=True)
sys.stdin.readline()";

/// A guest, what is said to it, and what it says. Dropping it ends it.
#[derive(Debug)]
pub struct Talk {
    words: PipeWriter,
    directory: PathBuf,
    lines: Receiver<String>,
    errors: PathBuf,
    /// Every line that it has said, but for `ready`.
    pub said: Vec<String>,
    program: Running,
    patience: Duration,
}

impl Talk {
    /// Starts a guest of a lab in a directory of its own, or in `command`'s if it has one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(cluster: &Cluster, command: &mut Command) -> Result<Self> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Self::start_in(cluster, &format!("talk-{number}"), command)
    }

    /// The same in a directory of this name.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in(cluster: &Cluster, name: &str, command: &mut Command) -> Result<Self> {
        let directory = cluster.directory().join(name);
        fs::create_dir_all(&directory)?;
        // Other users write there, too.
        fs::set_permissions(
            &directory,
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )?;
        let errors = cluster.directory().join(format!("{name}.err"));
        Self::start_at(directory, errors, command)
    }

    /// The same of whatever machine: in this directory, with this file for what it says of errors.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_at(directory: PathBuf, errors: PathBuf, command: &mut Command) -> Result<Self> {
        let (stdin, words) = std::io::pipe()?;
        let (output, stdout) = std::io::pipe()?;
        command.current_dir(&directory);
        command
            .stdin(stdin)
            .stdout(stdout)
            .stderr(File::create(&errors)?);
        let program = Running::spawn(command)?;
        // Our copies of its ends go, so that either side sees the other's end.
        command
            .stdin(File::open("/dev/null")?)
            .stdout(File::open("/dev/null")?);
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
            }
        });
        Ok(Self {
            words,
            directory,
            lines,
            errors,
            said: Vec::new(),
            program,
            patience: PATIENCE,
        })
    }

    /// Starts a guest on n1 by `whim run`, with these options, and waits until it is ready; gives its pid, too.
    ///
    /// # Errors
    /// When it cannot be started, or is not ready in time.
    pub fn run(cluster: &Cluster, options: &[&str], words: &[&str]) -> Result<(Self, i32)> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Self::run_in(cluster, &format!("talk-{number}"), options, words)
    }

    /// The same in a directory of this name.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_in(
        cluster: &Cluster,
        name: &str,
        options: &[&str],
        words: &[&str],
    ) -> Result<(Self, i32)> {
        let all = [&["run"], options, &["--"], words].concat();
        let mut talk = Self::start_in(cluster, name, &mut cluster.whim_command("n1", &all))?;
        let pid = talk.ready()?;
        Ok((talk, pid))
    }

    /// Where it runs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A guest whose work takes longer than that of others.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The next line.
    ///
    /// # Errors
    /// When there is none in time, or it has said its last.
    pub fn line(&mut self) -> Result<String> {
        let line = match self.lines.recv_timeout(self.patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "The guest has said nothing for {:?}; before: {:?}",
                    self.patience,
                    self.said
                )
            }
            Err(RecvTimeoutError::Disconnected) => bail!(
                "The guest says no more (status {:?}); before: {:?}; errors: {}",
                self.program.wait_up_to(PATIENCE)?,
                self.said,
                self.errors()
            ),
        };
        if !line.starts_with("ready ") {
            self.said.push(line.clone());
        }
        Ok(line)
    }

    /// Waits for a line that begins with this; the rest of it.
    ///
    /// # Errors
    /// As of [`Talk::line`].
    pub fn until(&mut self, beginning: &str) -> Result<String> {
        loop {
            if let Some(rest) = self.line()?.strip_prefix(beginning) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// Waits until it is ready; its pid.
    ///
    /// # Errors
    /// As of [`Talk::line`].
    pub fn ready(&mut self) -> Result<i32> {
        let pid = self.until("ready ")?;
        pid.parse().with_context(|| format!("'{pid}' is no pid"))
    }

    /// Tells it to go on.
    ///
    /// # Errors
    /// When it does not listen any more.
    pub fn go(&mut self) -> Result<()> {
        self.say("go")
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// When it does not listen any more.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let line = format!("{line}\n");
        self.words.write_all(line.as_bytes()).with_context(|| {
            format!(
                "The guest does not listen; it said {:?}; {}",
                self.said,
                self.errors()
            )
        })
    }

    /// Waits for its end, and hears what it still has to say.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let status = self
            .program
            .wait(PATIENCE)
            .with_context(|| format!("It said {:?}; {}", self.said, self.errors()))?;
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.said.push(line);
        }
        Ok(status)
    }

    /// Waits for its end, which has to be a success.
    ///
    /// # Errors
    /// When it is not.
    pub fn succeed(&mut self) -> Result<()> {
        let status = self.end()?;
        ensure!(
            status.success(),
            "The guest ended with {status}: {:?} {}",
            self.said,
            self.errors()
        );
        Ok(())
    }

    /// Sends a signal to whoever stands in for the guest outside of the lab.
    pub fn signal_outside(&mut self, signal: nix::sys::signal::Signal) {
        self.program.signal(signal);
    }

    /// Waits no longer than this for its end.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.program.wait_up_to(limit)
    }

    /// What it has written to standard error.
    #[must_use]
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// The microseconds of the lines `took MICROSECONDS WHAT` on standard error.
    ///
    /// # Errors
    /// When such a line has no number.
    pub fn times(&self) -> Result<Vec<u64>> {
        self.errors()
            .lines()
            .filter_map(|line| line.strip_prefix("took "))
            .map(|rest| {
                let number = rest.split(' ').next().and_then(|word| word.parse().ok());
                number.ok_or_else(|| anyhow!("No time in '{rest}'"))
            })
            .collect()
    }
}
