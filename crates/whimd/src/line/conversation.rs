//! Talking to a supervisor, as to a peer that may be anybody: everything that it says has a limit, and
//! nobody waits for it for ever.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use whim_journey::job::{Command, Event};

/// Longest line of a supervisor, in bytes.
const LINE_MAX: u64 = 64 << 10;
/// Limits of all that it says in one conversation, in bytes and in events.
const SAID_MAX: u64 = 16 << 20;
const EVENTS_MAX: u32 = 1 << 16;
/// Longest silence: a supervisor that carries a move says every few seconds that it goes on.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Nobody waits longer for one move.
pub(crate) const LASTS_MAX: Duration = Duration::from_secs(3600);
/// A supervisor accepts a passed connection within this time, or it hangs.
const PASS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub(crate) enum SupervisorError {
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
    #[error(
        "It has come home or ended, which its supervisor cannot note, because this node's disk does not answer: try again when it works"
    )]
    Unnoted,
    #[error("The supervisor at {path} broke the connection ({reason})")]
    Broken { path: PathBuf, reason: String },
    #[error("The supervisor at {path} is not heard any more: {reason}")]
    Absurd { path: PathBuf, reason: String },
    #[error(
        "The supervisor at {0} has said nothing for {SILENCE_MAX:?}: it is stopped, or this node is overloaded. What was asked for may still come about"
    )]
    Mute(PathBuf),
    #[error(
        "The supervisor at {0} has not come to an end within {LASTS_MAX:?}. What was asked for may still come about"
    )]
    Endless(PathBuf),
}

impl SupervisorError {
    /// Whether the supervisor is there, but of no use.
    #[must_use]
    pub(crate) fn is_useless(&self) -> bool {
        matches!(self, Self::Mute(_) | Self::Endless(_) | Self::Absurd { .. })
    }
}

/// A conversation with one supervisor.
#[derive(Debug)]
pub(crate) struct Conversation {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    begun: Instant,
    /// How long the supervisor may say nothing.
    patience: Duration,
    said: u64,
    events: u32,
}

impl Conversation {
    /// Connects and sends one command. The socket has to be made by us, or, under the uid `older`, by a
    /// supervisor of an older daemon.
    ///
    /// # Errors
    /// [`SupervisorError::Gone`] when nothing listens there.
    pub(crate) async fn begin(
        path: &Path,
        older: Option<u32>,
        command: &Command,
    ) -> Result<Self, SupervisorError> {
        let gone = |error: io::Error| {
            let path = path.to_path_buf();
            if whim_net::port::is_gone(&error) {
                return SupervisorError::Gone(path);
            }
            // Its queue is full: it has not accepted a connection for long.
            if error.kind() == io::ErrorKind::WouldBlock {
                return SupervisorError::Mute(path);
            }
            let reason = error.to_string();
            SupervisorError::Broken { path, reason }
        };
        let stream = UnixStream::connect(path).await.map_err(gone)?;
        let uid = stream.peer_cred().map_err(gone)?.uid();
        if uid != nix::unistd::geteuid().as_raw() && Some(uid) != older {
            return Err(SupervisorError::Absurd {
                path: path.to_path_buf(),
                reason: format!("uid {uid} listens there, who has no business to"),
            });
        }
        let mut line =
            serde_json::to_vec(command).map_err(|e| SupervisorError::Failed(e.to_string()))?;
        line.push(b'\n');
        let mut stream = BufReader::new(stream);
        // A fresh socket takes a line at once, if it is no long one.
        let written = tokio::time::timeout(PASS_TIMEOUT, stream.write_all(&line)).await;
        written
            .unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
            .map_err(gone)?;
        Ok(Self {
            path: path.to_path_buf(),
            stream,
            begun: Instant::now(),
            patience: SILENCE_MAX,
            said: 0,
            events: 0,
        })
    }

    /// pid of the process that listens there, as the kernel noted it when the socket was made.
    #[must_use]
    pub(crate) fn listener(&self) -> Option<i32> {
        self.stream.get_ref().peer_cred().ok()?.pid()
    }

    /// The error for an event that has no place in a move.
    #[must_use]
    pub(crate) fn nonsense(&self) -> SupervisorError {
        self.absurd("what it says has no place in a move")
    }

    fn absurd(&self, reason: impl ToString) -> SupervisorError {
        SupervisorError::Absurd {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// [`SupervisorError::Broken`] when the supervisor ends, [`SupervisorError::Absurd`] when it sends
    /// something that is no event, or too much; [`SupervisorError::Mute`] and [`SupervisorError::Endless`]
    /// when it takes too long.
    pub(crate) async fn next(&mut self) -> Result<Event, SupervisorError> {
        let broken = |reason: String| SupervisorError::Broken {
            path: self.path.clone(),
            reason,
        };
        self.events += 1;
        if self.events > EVENTS_MAX || self.said > SAID_MAX {
            return Err(self.absurd("it says too much"));
        }
        let left = LASTS_MAX.saturating_sub(self.begun.elapsed());
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut line);
        let length = match tokio::time::timeout(left.min(self.patience), read).await {
            Ok(read) => read.map_err(|e| broken(e.to_string()))?,
            Err(_) if left < self.patience => {
                return Err(SupervisorError::Endless(self.path.clone()));
            }
            Err(_) => return Err(SupervisorError::Mute(self.path.clone())),
        };
        if length == 0 {
            return Err(broken("it ended in the middle of an answer".into()));
        }
        self.said = self.said.saturating_add(length as u64);
        if !line.ends_with(b"\n") && (length as u64) < LINE_MAX {
            return Err(broken("it ended in the middle of a line".into()));
        }
        serde_json::from_slice(&line).map_err(|error| self.absurd(error))
    }
}

/// Hands a raw connection to a supervisor.
///
/// # Errors
/// [`SupervisorError::Gone`] when nothing listens there; otherwise the supervisor hangs.
pub(crate) async fn pass(path: PathBuf, connection: Arc<TcpStream>) -> Result<(), SupervisorError> {
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

    fn notice(padding: usize) -> Event {
        Event::Notice {
            text: "x".repeat(padding),
        }
    }

    fn line(event: &Event) -> String {
        serde_json::to_string(event).expect("encoded") + "\n"
    }

    struct Scene {
        listener: tokio::net::UnixListener,
        path: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("directory");
            let path = directory.path().join("sock");
            Self {
                listener: tokio::net::UnixListener::bind(&path).expect("bound"),
                path,
                _directory: directory,
            }
        }

        async fn begin(&self) -> (Conversation, UnixStream) {
            let begun = Conversation::begin(&self.path, None, &Command::Status).await;
            let (stream, _) = self.listener.accept().await.expect("accepted");
            (begun.expect("connected"), stream)
        }
    }

    #[tokio::test]
    async fn lines_of_a_supervisor_are_read_up_to_their_limit() {
        let scene = Scene::new();
        // Its newline may be left unread.
        let largest = usize::try_from(LINE_MAX).expect("small") + 1 - line(&notice(0)).len();
        let hear = async |padding: usize| {
            let (mut conversation, mut stream) = scene.begin().await;
            let text = line(&notice(padding));
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
        assert!(matches!(error, SupervisorError::Absurd { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_supervisor_that_goes_on_and_on_is_heard_up_to_a_limit() {
        let scene = Scene::new();
        for event in [Event::Working, notice(50_000)] {
            let (mut conversation, mut stream) = scene.begin().await;
            let floods = async move {
                let text = line(&event);
                while stream.write_all(text.as_bytes()).await.is_ok() {}
            };
            let hears = async move {
                let mut heard = 0;
                loop {
                    match conversation.next().await {
                        Ok(_) => heard += 1,
                        Err(error) => return (heard, error),
                    }
                }
            };
            let ((heard, error), ()) = tokio::join!(hears, floods);
            assert!(error.to_string().contains("it says too much"), "{error}");
            assert!(heard <= EVENTS_MAX, "{heard}");
        }
    }

    #[tokio::test]
    async fn a_supervisor_that_says_nothing_is_given_up() {
        let scene = Scene::new();
        let (mut conversation, _stream) = scene.begin().await;
        conversation.patience = Duration::from_millis(20);
        let error = conversation.next().await.expect_err("silence");
        assert!(matches!(error, SupervisorError::Mute(_)), "{error}");
        let Some(begun) = Instant::now().checked_sub(LASTS_MAX) else {
            return;
        };
        // A supervisor that only says that it goes on is given up too, in the end.
        let (mut conversation, _stream) = scene.begin().await;
        conversation.begun = begun;
        let error = conversation.next().await.expect_err("too long");
        assert!(matches!(error, SupervisorError::Endless(_)), "{error}");
    }

    #[tokio::test]
    async fn nobody_is_spoken_to_who_has_no_business_there() {
        let scene = Scene::new();
        drop(scene.listener);
        let begun = Conversation::begin(&scene.path, None, &Command::Status).await;
        let error = begun.expect_err("nobody listens");
        assert!(matches!(error, SupervisorError::Gone(_)), "{error}");
    }
}
