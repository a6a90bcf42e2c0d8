//! Starting a supervisor.

use serde::Serialize;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command as Process};
use whim_machine::processes;
use whim_monitor::plain;
use whim_sys::credentials::Launch;

use crate::blocking::blocking;
use crate::faults::Faults;
use crate::line::conversation::SupervisorError;
use crate::line::directories;
use crate::past::logs;
use crate::settings::SOCKET_PATH_MAX;

/// Longest first line of a supervisor, in bytes.
const LINE_MAX: u64 = 64 << 10;
/// A supervisor that is not ready by then is given up.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// How to start a supervisor. Its job is made once the number of its listening socket is known.
pub(crate) struct Start<'a, M> {
    pub program: PathBuf,
    pub job: M,
    /// Directory of its socket; made here.
    pub directory: &'a Path,
    /// Descriptors that it is handed beside its socket.
    pub inherited: Vec<OwnedFd>,
    pub launch: Launch,
    pub log: PathBuf,
    pub faults: &'a Faults,
}

/// Makes an error of `source`; names a full disk, since that is what an operator meets.
#[must_use]
pub(crate) fn at(path: &Path, source: io::Error) -> SupervisorError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            SupervisorError::DiskFull(path.to_path_buf())
        }
        _ => SupervisorError::Directory {
            path: path.to_path_buf(),
            source,
        },
    }
}

impl<J: Serialize, M: FnOnce(RawFd) -> J> Start<'_, M> {
    /// Starts it and returns once it is ready. On failure nothing of it is left.
    ///
    /// # Errors
    /// Each way in which it can fail, as a sentence.
    pub(crate) async fn run(self) -> Result<Child, SupervisorError> {
        self.begin()?.ready().await
    }

    /// Starts it, without its job: if we end before that is handed over, so does it.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(crate) fn begin(self) -> Result<Begun<J>, SupervisorError> {
        let socket = crate::settings::socket_in(self.directory);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(SupervisorError::PathTooLong(socket));
        }
        let directory = self.directory.to_path_buf();
        self.faults.point("before-socket-made");
        let begun = || match directories::listen(&directory) {
            Ok(listener) => self.spawn(listener),
            Err(source) => Err(at(&directory, source)),
        };
        // It enters its control groups before it runs its program, which is waited for.
        blocking(begun).inspect_err(|_| directories::discard(&directory))
    }

    fn spawn(self, listener: UnixListener) -> Result<Begun<J>, SupervisorError> {
        self.faults.point("socket-made");
        logs::make_room(&self.log);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(|source| at(&self.log, source))?;
        let job = (self.job)(listener.as_raw_fd());
        let mut handed = self.inherited;
        handed.push(listener.into());
        let mut command = std::process::Command::new(&self.program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .current_dir("/");
        let launch = Launch {
            inherit: handed.iter().map(AsRawFd::as_raw_fd).collect(),
            ..self.launch
        };
        launch.apply(&mut command);
        let child = Process::from(command)
            .spawn()
            .map_err(|error| SupervisorError::Start {
                program: self.program.clone(),
                reason: why_not(&error),
            })?;
        // They are the supervisor's alone: it counts as gone once nobody has them any more.
        drop(handed);
        self.faults.point("supervisor-spawned");
        Ok(Begun {
            child,
            job,
            program: self.program,
            directory: self.directory.to_path_buf(),
            log: self.log,
        })
    }
}

/// A supervisor that waits for its job.
pub(crate) struct Begun<J> {
    child: Child,
    job: J,
    program: PathBuf,
    directory: PathBuf,
    log: PathBuf,
}

impl<J: Serialize> Begun<J> {
    /// Its pid and start time, if it has not ended already.
    #[must_use]
    pub(crate) fn number(&self) -> Option<(i32, u64)> {
        let pid = i32::try_from(self.child.id()?).ok()?;
        Some((pid, processes::stat(pid).ok()?.start_time))
    }

    /// Hands over its job and returns once it is ready. On failure nothing of it is left.
    ///
    /// # Errors
    /// As [`Start::run`].
    pub(crate) async fn ready(mut self) -> Result<Child, SupervisorError> {
        let ready = hand_over(&mut self.child, &self.job);
        let failed = match tokio::time::timeout(START_TIMEOUT, ready).await {
            Ok(Ok(())) => return Ok(self.child),
            Ok(Err(Some(reason))) => {
                let _ = self.child.wait().await;
                SupervisorError::Failed(reason)
            }
            Ok(Err(None)) => {
                let _ = self.child.start_kill();
                let status = self.child.wait().await;
                SupervisorError::Ended {
                    program: self.program,
                    status: status.map_or_else(|e| e.to_string(), |s| s.to_string()),
                    log: self.log,
                }
            }
            Err(_) => {
                let _ = self.child.kill().await;
                SupervisorError::Slow(self.program)
            }
        };
        directories::discard(&self.directory);
        Err(failed)
    }

    /// Ends it before it has its job.
    pub(crate) async fn give_up(mut self) {
        let _ = self.child.kill().await;
        directories::discard(&self.directory);
    }
}

/// What the operator can do about a program that does not start.
fn why_not(error: &io::Error) -> String {
    use nix::errno::Errno;
    let advice = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => "install it beside whimd, or name its directory with --libexec",
        Some(Errno::EAGAIN) => "this node may start no more processes: see its limits of pids",
        Some(Errno::ENOMEM) => "this node has no memory left",
        Some(Errno::EMFILE | Errno::ENFILE) => {
            "the daemon has no descriptors left: raise its limit of open files"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Writes the job and waits for `ready`. The error is the supervisor's own sentence, if it has one.
async fn hand_over(child: &mut Child, job: &impl Serialize) -> Result<(), Option<String>> {
    let mut line = serde_json::to_vec(job).map_err(|e| Some(e.to_string()))?;
    line.push(b'\n');
    let mut input = child.stdin.take().ok_or(None)?;
    // A supervisor that ends before it has read its job may still have said why.
    let written = input.write_all(&line).await;
    drop(input);
    let output = child.stdout.take().ok_or(None)?;
    let mut answer = String::new();
    BufReader::new(output.take(LINE_MAX))
        .read_line(&mut answer)
        .await
        .map_err(|_| None)?;
    match answer.trim_end() {
        "ready" => written.map_err(|_| None),
        other => Err(other.strip_prefix("failed: ").map(plain::sentence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn script(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("mode");
        path
    }

    async fn start(text: &str) -> Result<Child, SupervisorError> {
        let directory = tempfile::tempdir().expect("directory");
        let own = directory.path().join("x.home");
        start_in(&directory, &own, text).await
    }

    async fn start_in(
        directory: &tempfile::TempDir,
        own: &Path,
        text: &str,
    ) -> Result<Child, SupervisorError> {
        Start {
            program: script(directory.path(), text),
            job: |_| "the job",
            directory: own,
            inherited: Vec::new(),
            faults: &Faults::default(),
            launch: Launch {
                new_session: true,
                ..Launch::default()
            },
            log: directory.path().join("log"),
        }
        .run()
        .await
    }

    #[tokio::test]
    async fn a_supervisor_reads_its_job_and_says_ready() {
        let mut child = start("read job; test \"$job\" = '\"the job\"' && echo ready")
            .await
            .expect("ready");
        assert!(child.wait().await.expect("ended").success());
    }

    #[tokio::test]
    async fn a_supervisor_that_fails_says_why() {
        let error = start("read job; echo 'failed: No room'")
            .await
            .expect_err("failed");
        assert_eq!(error.to_string(), "No room");
        let error = start("exit 3").await.expect_err("ended");
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[tokio::test]
    async fn a_path_of_a_socket_has_a_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let ready = "read job; echo ready";
        let name = SOCKET_PATH_MAX - directory.path().as_os_str().len() - "//sock".len();
        let own = directory.path().join("x".repeat(name));
        let mut child = start_in(&directory, &own, ready).await.expect("ready");
        assert!(child.wait().await.expect("ended").success());
        let socket = crate::settings::socket_in(&own);
        assert_eq!(socket.as_os_str().len(), SOCKET_PATH_MAX);
        assert!(socket.exists(), "the kernel takes it");
        let longer = directory.path().join("x".repeat(name + 1));
        let error = start_in(&directory, &longer, ready).await;
        let error = error.expect_err("one byte more").to_string();
        assert!(
            error.ends_with("start whimd with a shorter --run"),
            "{error}"
        );
        assert!(!longer.exists(), "nothing of it is left");
    }
}
