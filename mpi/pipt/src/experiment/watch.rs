//! Waiting for programs, with an eye on who wants the experiment to end.

use super::error::ExperimentError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Programs are looked at so often.
const LOOKS_MS: u16 = 20;
/// No program may take longer.
const LIMIT: Duration = Duration::from_secs(3600);
/// What is kept of what a program says.
const SAID_MAX: u64 = 16 << 20;

/// The signals by which a user ends a program, as something that is asked for.
pub struct Watch {
    signals: SignalFd,
    before: SigSet,
}

impl Watch {
    /// From here on they wait, until this is dropped. Programs that are started have them as ever.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    pub fn begin() -> Result<Self, ExperimentError> {
        let before = SigSet::thread_get_mask().map_err(ExperimentError::Signals)?;
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().map_err(ExperimentError::Signals)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).map_err(ExperimentError::Signals)?;
        Ok(Self { signals, before })
    }

    /// Waits a moment.
    ///
    /// # Errors
    ///
    /// A signal has come.
    pub fn look(&self) -> Result<(), ExperimentError> {
        let mut waits = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits, PollTimeout::from(LOOKS_MS)) {
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) => Err(ExperimentError::Interrupted),
            Err(error) => Err(ExperimentError::Signals(error)),
        }
    }

    /// Waits for all, and calls `between` while it does.
    ///
    /// # Errors
    ///
    /// One of them failed or takes too long, a signal has come, or `between` fails.
    pub fn finish(
        &self,
        programs: &mut [Program],
        between: &mut dyn FnMut() -> Result<(), ExperimentError>,
    ) -> Result<(), ExperimentError> {
        loop {
            let mut all = true;
            for program in programs.iter_mut() {
                all &= program.ended()?;
            }
            if all {
                return Ok(());
            }
            self.look()?;
            between()?;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // What is left of the signal was heard.
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let _restored = self.before.thread_set_mask();
    }
}

/// A program that runs, ended when this is dropped.
pub struct Program {
    child: Child,
    what: String,
    begun: Instant,
    took: Option<Duration>,
    output: PathBuf,
    errors: PathBuf,
}

impl Program {
    /// Starts it; what it prints goes into files that are called `stem`, with `.out` and `.err`.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(mut command: Command, what: &str, stem: &Path) -> Result<Self, ExperimentError> {
        let named = |end: &str| {
            let mut name = stem.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let (output, errors) = (named(".out"), named(".err"));
        let file = |path: &PathBuf| {
            File::create(path).map_err(|error| ExperimentError::file("made", path, error))
        };
        let (to, errors_to) = (file(&output)?, file(&errors)?);
        // A group of its own: Ctrl-C is for us, who end it in our turn.
        let command = command.stdin(Stdio::null()).process_group(0);
        let child = command.stdout(to).stderr(errors_to).spawn();
        let child = child.map_err(|error| ExperimentError::Start(what.to_owned(), error))?;
        Ok(Self {
            child,
            what: what.to_owned(),
            begun: Instant::now(),
            took: None,
            output,
            errors,
        })
    }

    /// Whether it has ended, as it should.
    ///
    /// # Errors
    ///
    /// It has failed, or takes too long.
    pub fn ended(&mut self) -> Result<bool, ExperimentError> {
        if self.took.is_some() {
            return Ok(true);
        }
        let status = self.child.try_wait();
        let status = status.map_err(|error| ExperimentError::Start(self.what.clone(), error))?;
        match status {
            None if self.begun.elapsed() > LIMIT => {
                Err(ExperimentError::Late(self.what.clone(), LIMIT.as_secs()))
            }
            None => Ok(false),
            Some(status) if status.success() => {
                self.took = Some(self.begun.elapsed());
                Ok(true)
            }
            Some(status) => Err(self.failed(status)),
        }
    }

    fn failed(&self, status: ExitStatus) -> ExperimentError {
        let said = read(&self.errors).unwrap_or_default() + &read(&self.output).unwrap_or_default();
        ExperimentError::Failed(self.what.clone(), status.to_string(), said)
    }

    /// What it has printed up to now.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn printed(&self) -> Result<String, ExperimentError> {
        read(&self.output)
    }

    /// From its begin to its end, which was seen.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.took
            .unwrap_or_else(|| self.begun.elapsed())
            .as_secs_f64()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.took.is_none() {
            let _ended_before = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

fn read(path: &Path) -> Result<String, ExperimentError> {
    let failed = |error| ExperimentError::file("read", path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(SAID_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a program to its end, and gives what it printed.
///
/// # Errors
///
/// It fails, or a signal has come.
pub fn done(
    command: Command,
    what: &str,
    stem: &Path,
    watch: &Watch,
) -> Result<String, ExperimentError> {
    let mut program = [Program::start(command, what, stem)?];
    watch.finish(&mut program, &mut || Ok(()))?;
    let said = program[0].printed();
    for end in ["out", "err"] {
        let mut name = stem.as_os_str().to_owned();
        name.push(format!(".{end}"));
        let _kept = fs::remove_file(name);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn what_a_program_says_and_how_it_ends_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let stem = directory.path().join("it");
        let watch = Watch::begin().expect("signals");
        let said = done(shell("echo well"), "it", &stem, &watch).expect("it does well");
        assert_eq!(said, "well\n");
        let error = done(shell("echo why >&2; exit 3"), "It", &stem, &watch).expect_err("3");
        let error = error.to_string();
        assert!(
            error.starts_with("It failed (exit status: 3): why"),
            "{error}"
        );
        let error = done(Command::new("/nowhere/x"), "x", &stem, &watch).expect_err("nothing");
        assert!(error.to_string().starts_with("x cannot be started"));
    }

    #[test]
    fn a_signal_ends_the_waiting_and_the_program() {
        let directory = tempfile::tempdir().expect("a directory");
        let stem = directory.path().join("it");
        let watch = Watch::begin().expect("signals");
        let mut program = [Program::start(shell("exec sleep 1000"), "it", &stem).expect("a shell")];
        let pid = program[0].child.id();
        // To this thread, so that no other test's has it.
        nix::sys::signal::raise(Signal::SIGHUP).expect("a signal");
        let error = watch
            .finish(&mut program, &mut || Ok(()))
            .expect_err("hung up");
        assert!(matches!(error, ExperimentError::Interrupted));
        drop(program);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
