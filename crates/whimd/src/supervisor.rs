//! Starting a supervisor, and talking to one.

use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command as Process};
use whim_journey::job::{Command, Event};
use whim_sys::credentials::Launch;

use crate::logs;
use crate::settings::SOCKET_PATH_MAX;

/// No line of a supervisor is longer, in bytes.
const LINE_MAX: u64 = 1 << 20;
/// A supervisor that is not ready by then is given up.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// A supervisor takes a passed connection within this time, or is hung.
const PASS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SupervisorError {
    #[error("The path {0} is too long for a unix socket: start whimd with a shorter --run")]
    PathTooLong(PathBuf),
    #[error(
        "The disk that holds {0} is full: free some space there and try again; nothing was touched"
    )]
    DiskFull(PathBuf),
    #[error("{path} cannot be made ({source})")]
    Directory { path: PathBuf, source: io::Error },
    #[error("{program} cannot be started ({reason})")]
    Start { program: PathBuf, reason: String },
    #[error("{0}")]
    Failed(String),
    #[error("{program} ended before it was ready ({status}); see {log}")]
    Ended {
        program: PathBuf,
        status: String,
        log: PathBuf,
    },
    #[error("{0} was not ready within 15 seconds: this node is overloaded")]
    Slow(PathBuf),
    #[error("The supervisor at {0} is gone")]
    Gone(PathBuf),
    #[error("The supervisor at {path} broke the connection ({reason})")]
    Broken { path: PathBuf, reason: String },
}

/// How to start one.
#[derive(Debug)]
pub struct Start<'a, J> {
    pub program: PathBuf,
    pub job: &'a J,
    /// Directory of its socket; made here, for `owner` alone.
    pub directory: &'a Path,
    /// uid and gid that it runs under, or will.
    pub owner: Option<(u32, u32)>,
    pub launch: Launch,
    pub log: PathBuf,
}

/// Makes a directory that only `owner` can use.
///
/// # Errors
/// [`SupervisorError::DiskFull`] by name.
pub fn make_directory(path: &Path, owner: Option<(u32, u32)>) -> Result<(), SupervisorError> {
    let made = match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    made.and_then(|()| match owner {
        Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    })
    .map_err(|source| at(path, source))
}

/// Names a full disk, since that is what an operator meets.
#[must_use]
pub fn at(path: &Path, source: io::Error) -> SupervisorError {
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

impl<J: Serialize> Start<'_, J> {
    /// Starts it and returns once it is ready. On failure nothing of it is left.
    ///
    /// # Errors
    /// Each way in which it can fail, as a sentence.
    pub async fn run(self) -> Result<Child, SupervisorError> {
        let socket = crate::settings::socket_in(self.directory);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(SupervisorError::PathTooLong(socket));
        }
        make_directory(self.directory, self.owner)?;
        let directory = self.directory.to_path_buf();
        let started = self.spawn().await;
        if started.is_err() {
            let _ = fs::remove_dir_all(&directory);
        }
        started
    }

    async fn spawn(self) -> Result<Child, SupervisorError> {
        logs::make_room(&self.log);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(|source| at(&self.log, source))?;
        let mut command = std::process::Command::new(&self.program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .current_dir("/");
        self.launch.apply(&mut command);
        let mut child = Process::from(command)
            .spawn()
            .map_err(|error| SupervisorError::Start {
                program: self.program.clone(),
                reason: why_not(&error),
            })?;
        let ready = hand_over(&mut child, self.job);
        match tokio::time::timeout(START_TIMEOUT, ready).await {
            Ok(Ok(())) => Ok(child),
            Ok(Err(Some(reason))) => {
                let _ = child.wait().await;
                Err(SupervisorError::Failed(reason))
            }
            Ok(Err(None)) => {
                let _ = child.start_kill();
                let status = child
                    .wait()
                    .await
                    .map_or_else(|e| e.to_string(), |s| s.to_string());
                Err(SupervisorError::Ended {
                    program: self.program,
                    status,
                    log: self.log,
                })
            }
            Err(_) => {
                let _ = child.kill().await;
                Err(SupervisorError::Slow(self.program))
            }
        }
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
    // One that ends before it has read its job may still have said why.
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
        other => Err(other.strip_prefix("failed: ").map(ToString::to_string)),
    }
}

/// A conversation with one supervisor.
#[derive(Debug)]
pub struct Conversation {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Conversation {
    /// Connects and sends one command.
    ///
    /// # Errors
    /// [`SupervisorError::Gone`] when nothing listens there.
    pub async fn begin(path: &Path, command: &Command) -> Result<Self, SupervisorError> {
        let gone = |error: io::Error| {
            let path = path.to_path_buf();
            if whim_net::port::is_gone(&error) {
                return SupervisorError::Gone(path);
            }
            let reason = error.to_string();
            SupervisorError::Broken { path, reason }
        };
        let stream = UnixStream::connect(path).await.map_err(gone)?;
        let mut line =
            serde_json::to_vec(command).map_err(|e| SupervisorError::Failed(e.to_string()))?;
        line.push(b'\n');
        let mut stream = BufReader::new(stream);
        stream.write_all(&line).await.map_err(gone)?;
        Ok(Self {
            path: path.to_path_buf(),
            stream,
        })
    }

    /// The next event.
    ///
    /// # Errors
    /// [`SupervisorError::Broken`] when the supervisor ends or sends what is no event.
    pub async fn next(&mut self) -> Result<Event, SupervisorError> {
        let broken = |reason: String| SupervisorError::Broken {
            path: self.path.clone(),
            reason,
        };
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_MAX);
        let length = limited
            .read_until(b'\n', &mut line)
            .await
            .map_err(|e| broken(e.to_string()))?;
        if length == 0 {
            return Err(broken("it ended in the middle of an answer".into()));
        }
        serde_json::from_slice(&line).map_err(|e| broken(e.to_string()))
    }
}

/// Hands a raw connection to a supervisor.
///
/// # Errors
/// [`SupervisorError::Gone`] when nothing listens there, otherwise it is hung.
pub async fn pass(path: PathBuf, connection: Arc<TcpStream>) -> Result<(), SupervisorError> {
    let task = tokio::task::spawn_blocking(move || {
        let broken = |reason: String| SupervisorError::Broken {
            path: path.clone(),
            reason,
        };
        let line = serde_json::to_vec(&Command::Channel).map_err(|e| broken(e.to_string()))?;
        // The supervisor says nothing to this: its answer is on the connection itself.
        match whim_net::port::send_socket(&path, &connection, &line, PASS_TIMEOUT) {
            Ok(_) => Ok(()),
            Err(error) if error.is_gone() => Err(SupervisorError::Gone(path)),
            Err(error) => Err(broken(error.to_string())),
        }
    });
    task.await
        .unwrap_or_else(|e| Err(SupervisorError::Failed(e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            job: &"the job",
            directory: own,
            owner: None,
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
        std::os::unix::net::UnixListener::bind(&socket).expect("the kernel takes it");
        let longer = directory.path().join("x".repeat(name + 1));
        let error = start_in(&directory, &longer, ready).await;
        let error = error.expect_err("one byte more").to_string();
        assert!(
            error.ends_with("start whimd with a shorter --run"),
            "{error}"
        );
        assert!(!longer.exists(), "nothing of it is left");
    }

    #[tokio::test]
    async fn lines_of_a_supervisor_are_read_up_to_their_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("sock");
        let listener = tokio::net::UnixListener::bind(&path).expect("bound");
        let notice = |padding| Event::Notice {
            text: "x".repeat(padding),
        };
        let line = |padding| serde_json::to_string(&notice(padding)).expect("encoded") + "\n";
        // Its newline may be left unread.
        let largest = usize::try_from(LINE_MAX).expect("small") + 1 - line(0).len();
        let hear = async |padding: usize| {
            let begun = Conversation::begin(&path, &Command::Status).await;
            let mut conversation = begun.expect("connected");
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let text = line(padding);
            let says = async {
                // The daemon may hang up before it has read all of it.
                let _ = stream.write_all(text.as_bytes()).await;
                drop(stream);
            };
            let hears = async move { conversation.next().await };
            tokio::join!(hears, says).0
        };
        assert_eq!(hear(largest).await.expect("an event"), notice(largest));
        let error = hear(largest + 1).await.expect_err("one byte more");
        assert!(matches!(error, SupervisorError::Broken { .. }), "{error}");
    }
}
