//! The command line's side of the control socket.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_sys::fdpass;
use whim_sys::pidfd::Pidfd;

use crate::owned;
use crate::places::{Environment, Places};
use crate::protocol::{ANSWER_MAX, Answer, NAME_MAX, NODE_FILE, REQUEST_MAX, Request};

#[derive(Debug, Error)]
pub enum ControlError {
    #[error(
        "No daemon answers at {path} ({source}); start it with 'systemctl start whimd', start your own with 'whimd', or try 'whim lab up' for a cluster on this machine"
    )]
    Unreachable { path: PathBuf, source: io::Error },
    #[error(
        "The daemon of node {node} of lab '{lab}' does not answer at {path} ({source}): on the machine itself, 'whim lab start --name {lab} --daemon {node}' starts it again, and 'whim lab status --name {lab} --json' says where its log is"
    )]
    EndedInLab {
        path: PathBuf,
        source: io::Error,
        lab: String,
        node: String,
    },
    #[error(
        "What answers at {path} is not a daemon of yours or root's (it is of uid {uid}): it is told nothing"
    )]
    Foreign { path: PathBuf, uid: u32 },
    #[error("This request has {0} bytes, and the daemon reads no more than {REQUEST_MAX}")]
    TooLong(usize),
    #[error("The connection to the daemon broke ({0}); see its log")]
    Broken(#[source] io::Error),
    #[error("The daemon ended the connection without an answer; see its log")]
    Silent,
    #[error(
        "The daemon's answer is not understood ({0}): whim and whimd are of different versions"
    )]
    Undecodable(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(String),
    /// For want of room that comes back by itself.
    #[error("{0}")]
    Busy(String),
    #[error(
        "The daemon is there, and has not answered in time: it is stopped, or has much to do; see its log. What was asked of it may still be done"
    )]
    Late,
}

impl ControlError {
    /// Whether there is nobody to decide just now: the daemon is not there, was replaced while it was asked, says
    /// nothing, or has no room to hear of more.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::EndedInLab { .. }
            | Self::Broken(_)
            | Self::Silent
            | Self::Late
            | Self::Busy(_)
            | Self::Undecodable(_) => true,
            Self::Foreign { .. } | Self::TooLong(_) | Self::Refused(_) => false,
        }
    }
}

/// The name of the node whose daemon listens at `socket`, or did when it ended; `None` if a daemon of this user
/// or root's has not noted it there.
#[must_use]
pub fn node_of(socket: &Path) -> Option<String> {
    let own = [0, nix::unistd::geteuid().as_raw()];
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(socket.with_file_name(NODE_FILE))
        .ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || !own.contains(&about.uid()) {
        return None;
    }
    let limit = u64::try_from(NAME_MAX).ok()?;
    let mut name = String::new();
    file.take(limit).read_to_string(&mut name).ok()?;
    (!name.is_empty()).then_some(name)
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// How long each answer may take as a whole.
    patience: Option<Duration>,
}

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`].
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(path).map_err(|source| ControlError::Unreachable {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Self::new(stream))
    }

    fn new(stream: UnixStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            patience: None,
        }
    }

    /// Connects to the daemon that this user started, or else to root's. A path that another user has made, or
    /// could exchange, is skipped, so that nobody else can answer in a daemon's place or keep us waiting.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`] for root's daemon, [`ControlError::Foreign`].
    pub fn find() -> Result<Self, ControlError> {
        let own = Environment::here();
        let [of_own, of_root] = Self::found_at(&own);
        if own.uid != 0
            && owned::check_above(&of_own).is_ok()
            && let Ok(client) = Self::connect(&of_own)
        {
            return client.of_own_or_root(&of_own);
        }
        Self::connect(&of_root)?.of_own_or_root(&of_root)
    }

    /// Where [`Client::find`] looks, in this order.
    #[must_use]
    pub fn found_at(own: &Environment) -> [PathBuf; 2] {
        [own, &Environment::default()].map(|whose| Places::of(whose).socket())
    }

    /// Waits no longer than this for each answer: [`ControlError::Late`] then.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Connects to the socket that the environment names. The variable may be left over from another user
    /// (`su`, `sudo` with a kept environment). So, unlike a path that was given by hand, it never makes users
    /// talk to a daemon that is neither theirs nor root's.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`], [`ControlError::Foreign`].
    pub fn of_environment(path: &Path) -> Result<Self, ControlError> {
        Self::connect(path)?.of_own_or_root(path)
    }

    fn of_own_or_root(self, path: &Path) -> Result<Self, ControlError> {
        match self.daemon_uid() {
            Some(uid) if uid == 0 || uid == nix::unistd::geteuid().as_raw() => Ok(self),
            uid => Err(ControlError::Foreign {
                path: path.to_path_buf(),
                uid: uid.unwrap_or(u32::MAX),
            }),
        }
    }

    /// The uid of the user who has started the daemon.
    #[must_use]
    pub fn daemon_uid(&self) -> Option<u32> {
        let peer = whim_sys::credentials::peer(self.stream.get_ref()).ok()?;
        Some(peer.uid)
    }

    /// Sends a request, the answers to which are then read by [`Client::receive`].
    ///
    /// # Errors
    /// When the connection breaks, or when the daemon would not read so long a request.
    pub fn send(&mut self, request: &Request) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(request).map_err(ControlError::Undecodable)?;
        line.push(b'\n');
        if line.len() > REQUEST_MAX {
            return Err(ControlError::TooLong(line.len()));
        }
        self.write(&line)
    }

    /// A daemon that takes no request, or refuses one, may hang up before it has read these bytes; its answer, which
    /// comes next, says why.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        match self.stream.get_mut().write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(ControlError::Broken),
        }
    }

    /// The next answer; `Refused` and `Busy` become errors, so that no caller overlooks them.
    ///
    /// # Errors
    /// When the connection breaks, or when the daemon refuses.
    pub fn receive(&mut self) -> Result<Answer, ControlError> {
        let line = self.line().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Late,
            _ => ControlError::Broken(error),
        })?;
        if line.is_empty() {
            return Err(ControlError::Silent);
        }
        match serde_json::from_slice(&line).map_err(ControlError::Undecodable)? {
            Answer::Refused { reason } => Err(ControlError::Refused(reason)),
            Answer::Busy { reason } => Err(ControlError::Busy(reason)),
            answer => Ok(answer),
        }
    }

    /// A line with its end, or what there is before the end of the connection; no more than an answer has.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let deadline = self.patience.map(|patience| Instant::now() + patience);
        let mut line = Vec::new();
        loop {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.stream.get_ref().set_read_timeout(Some(left))?;
            }
            let piece = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            let piece = &piece[..piece.len().min(ANSWER_MAX - line.len())];
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            line.extend_from_slice(&piece[..taken]);
            self.stream.consume(taken);
            if taken == 0 || end.is_some() {
                return Ok(line);
            }
        }
    }

    /// Shows the daemon which process this is, by a pidfd.
    fn hand_over(&mut self) -> Result<(), ControlError> {
        let broken = |error: io::Error| ControlError::Broken(error);
        let own = std::process::id().cast_signed();
        let own = Pidfd::open(own).map_err(|errno| broken(errno.into()))?;
        let socket = self.stream.get_ref().as_fd();
        fdpass::send(socket, b"\n", &[own.as_fd()])
            .map_err(|error| broken(io::Error::other(error)))?;
        Ok(())
    }

    /// Sends a request, hands every answer but the last to `take`, and returns the text of the last one.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn ask(
        &mut self,
        request: &Request,
        take: impl FnMut(Answer),
    ) -> Result<Option<String>, ControlError> {
        self.ask_with(request, &[], take)
    }

    /// As [`Client::ask`], with bytes that belong to the request and follow it.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn ask_with(
        &mut self,
        request: &Request,
        bytes: &[u8],
        mut take: impl FnMut(Answer),
    ) -> Result<Option<String>, ControlError> {
        self.send(request)?;
        self.write(bytes)?;
        loop {
            match self.receive()? {
                Answer::Done { text } => return Ok(text),
                Answer::HandOver => self.hand_over()?,
                answer => take(answer),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was said that no daemon answers.
    #[test]
    fn what_a_daemon_says_before_it_hangs_up_is_heard() {
        let (mut daemon, stream) = UnixStream::pair().expect("sockets");
        let reason = "enough".to_owned();
        let answer = serde_json::to_vec(&Answer::Busy { reason }).expect("encoded");
        daemon
            .write_all(&[&answer[..], b"\n"].concat())
            .expect("said");
        drop(daemon);
        let asked = Client::new(stream).ask(&Request::Nodes, |_| {});
        assert!(matches!(asked, Err(ControlError::Busy(reason)) if reason == "enough"));
    }

    #[test]
    fn no_request_is_sent_that_the_daemon_would_not_read() {
        let request = |length: usize| Request::Undrain {
            node: "n".repeat(length),
        };
        let around = serde_json::to_vec(&request(0)).expect("encoded").len() + 1;
        let sent = |length: usize| {
            let (daemon, stream) = UnixStream::pair().expect("sockets");
            let sent = Client::new(stream).send(&request(length));
            let mut heard = Vec::new();
            (&daemon).read_to_end(&mut heard).expect("read");
            (sent, heard.len())
        };
        let (done, heard) = sent(REQUEST_MAX - around);
        done.expect("sent");
        assert_eq!(heard, REQUEST_MAX);
        let (error, heard) = sent(REQUEST_MAX - around + 1);
        let error = error.expect_err("one byte more");
        assert!(matches!(error, ControlError::TooLong(_)), "{error}");
        assert_eq!(heard, 0);
    }

    #[test]
    fn a_node_is_named_beside_its_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("control.sock");
        let note = directory.path().join(NODE_FILE);
        assert_eq!(node_of(&socket), None);
        std::fs::write(&note, "n1").expect("written");
        assert_eq!(node_of(&socket).as_deref(), Some("n1"));
        std::fs::remove_file(&note).expect("removed");
        // Nobody ever writes to it.
        nix::unistd::mkfifo(&note, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(node_of(&socket), None);
    }

    #[test]
    fn a_daemon_that_says_nothing_is_not_waited_for_for_ever() {
        let (_daemon, stream) = UnixStream::pair().expect("sockets");
        let mut client = Client::new(stream);
        client.be_patient(Duration::from_millis(1));
        let error = client.ask(&Request::Nodes, |_| {}).expect_err("silence");
        assert!(error.is_absence(), "{error}");
    }

    /// The time was counted anew with each byte.
    #[test]
    fn a_daemon_that_never_ends_its_line_is_not_waited_for_for_ever() {
        let (mut daemon, stream) = UnixStream::pair().expect("sockets");
        let drips = std::thread::spawn(move || {
            while daemon.write_all(b" ").is_ok() {
                std::thread::yield_now();
            }
        });
        let mut client = Client::new(stream);
        client.be_patient(Duration::from_millis(50));
        let error = client.receive().expect_err("no line");
        assert!(error.is_absence(), "{error}");
        drop(client);
        drips.join().expect("ended");
    }

    #[test]
    fn answers_are_read_up_to_their_limit() {
        let answer = |padding| Answer::Notice {
            text: "x".repeat(padding),
        };
        let line = |padding| serde_json::to_vec(&answer(padding)).expect("encoded");
        // The answer's newline may be left unread.
        let largest = ANSWER_MAX - line(0).len();
        let heard = |padding: usize| {
            let (mut daemon, stream) = UnixStream::pair().expect("sockets");
            std::thread::scope(|scope| {
                // The client may hang up before it has read the whole answer.
                scope.spawn(move || daemon.write_all(&[&line(padding)[..], b"\n"].concat()));
                Client::new(stream).receive()
            })
        };
        assert_eq!(heard(largest).expect("understood"), answer(largest));
        let error = heard(largest + 1).expect_err("one byte more");
        assert!(matches!(error, ControlError::Undecodable(_)), "{error}");
    }
}
