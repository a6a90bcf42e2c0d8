//! One port for everything: find out who a connection is for, and hand it to its supervisor.
//!
//! The daemon peeks at the server name of each connection and consumes nothing of it. Connections for a
//! supervisor are passed on as they are, by SCM_RIGHTS over its unix socket. So the daemon sees none of their
//! plaintext, and may end meanwhile.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use thiserror::Error;
use whim_sys::fdpass::{self, FdPassError};

use crate::hello::{HELLO_MAX, HelloError, server_name};

/// Longest line on a supervisor's socket, in bytes.
pub const LINE_MAX: usize = 64 << 10;
/// The most descriptors that may wait to be taken from a [`LineReader`].
const WAITING_MAX: usize = 32;

#[derive(Debug, Error)]
pub enum PortError {
    #[error("The connection says nothing of whom it is for: {0}")]
    Hello(HelloError),
    #[error("The connection sent no complete first message within {0:.1} s")]
    Slow(f64),
    #[error("The connection was closed before its first message was complete")]
    Closed,
    #[error("Failed to read the first bytes of a connection: {0}")]
    Read(io::Error),
    #[error("Failed to reach the supervisor at {path}: {source}; it may have ended meanwhile")]
    Supervisor { path: PathBuf, source: io::Error },
    #[error("Failed to hand a connection over at {path}: {source}")]
    HandOver { path: PathBuf, source: FdPassError },
    #[error("A line for a supervisor has {0} bytes or holds a line break; the limit is {LINE_MAX}")]
    Line(usize),
    #[error("A line on the supervisor's socket is longer than {LINE_MAX} bytes")]
    LineTooLong,
    #[error("More than {WAITING_MAX} descriptors arrived that nobody asked for")]
    TooManyDescriptors,
    #[error("The socket was closed before a whole line with a connection had come")]
    Unfinished,
    #[error("What was handed over is no TCP connection")]
    NotTcp,
    #[error("Failed to receive a connection: {0}")]
    Receive(#[from] FdPassError),
}

/// Whether a connection to a supervisor's socket failed because nobody listens there, which means that the
/// supervisor has ended. A full queue or any other failure does not mean that.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

impl PortError {
    /// Whether the supervisor [has ended](is_gone).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Supervisor { source, .. } if is_gone(source))
    }
}

/// Switches a socket to blocking mode, and back when it is dropped.
struct Blocking<'a>(&'a TcpStream, bool);

impl<'a> Blocking<'a> {
    fn new(stream: &'a TcpStream) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL)?);
        let nonblocking = flags.contains(OFlag::O_NONBLOCK);
        stream.set_nonblocking(false)?;
        Ok(Self(stream, nonblocking))
    }
}

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        let _ = self.0.set_read_timeout(None);
        let _ = self.0.set_nonblocking(self.1);
    }
}

/// Server name for which a fresh connection asks; nothing is consumed. `None`: it names none.
///
/// # Errors
/// Not TLS, closed, or not complete within `timeout`, however slowly its bytes trickle in.
pub fn peek_server_name(
    stream: &TcpStream,
    timeout: Duration,
) -> Result<Option<String>, PortError> {
    let started = Instant::now();
    let slow = || PortError::Slow(timeout.as_secs_f64());
    let _blocking = Blocking::new(stream).map_err(PortError::Read)?;
    // One byte more than any hello; the parser never asks for that byte.
    let mut buffer = vec![0; HELLO_MAX + 1];
    let mut wanted = 1;
    let mut had = 0;
    loop {
        let left = timeout
            .checked_sub(started.elapsed())
            .filter(|t| !t.is_zero());
        stream
            .set_read_timeout(Some(left.ok_or_else(slow)?))
            .map_err(PortError::Read)?;
        // MSG_WAITALL waits until so many bytes are there, the peer has closed, or the time is over. So we need
        // no loop that polls for each byte.
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_WAITALL;
        let length = match recv(stream.as_raw_fd(), &mut buffer[..wanted], flags) {
            Ok(length) => length,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(nix::errno::Errno::EAGAIN) => return Err(slow()),
            Err(errno) => return Err(PortError::Read(errno.into())),
        };
        match server_name(&buffer[..length]) {
            Ok(name) => return Ok(name),
            Err(HelloError::Incomplete { needed }) if needed <= HELLO_MAX => {
                if length < wanted {
                    // Cut short by the end of the stream, by a signal, or by the clock.
                    if started.elapsed() >= timeout {
                        return Err(slow());
                    }
                    if length == had {
                        return Err(PortError::Closed);
                    }
                }
                had = length;
                wanted = needed;
            }
            Err(error) => return Err(PortError::Hello(error)),
        }
    }
}

/// Hands a connection to the supervisor that listens at `path`: one line (`header`, without a line
/// break) with the descriptor attached. Returns the unix connection, for an answer. The caller may
/// close its own copy of the connection; the supervisor's lives on.
///
/// # Errors
/// The supervisor is gone ([`PortError::is_gone`]) or does not take it within `timeout`.
pub fn send_socket(
    path: &Path,
    stream: &TcpStream,
    header: &[u8],
    timeout: Duration,
) -> Result<UnixStream, PortError> {
    if header.len() >= LINE_MAX || header.contains(&b'\n') {
        return Err(PortError::Line(header.len()));
    }
    let unreachable = |source: io::Error| PortError::Supervisor {
        path: path.to_path_buf(),
        source,
    };
    let mut supervisor = connect_within(path, timeout).map_err(unreachable)?;
    let line = [header, b"\n"].concat();
    let sent = fdpass::send(supervisor.as_fd(), &line, &[stream.as_fd()]).map_err(|source| {
        PortError::HandOver {
            path: path.to_path_buf(),
            source,
        }
    })?;
    supervisor.write_all(&line[sent..]).map_err(unreachable)?;
    Ok(supervisor)
}

/// Connects with a time limit, since a stopped supervisor whose queue is full would block us.
fn connect_within(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    // A timeout of 0 would mean no limit at all.
    let limit = TimeVal::new(seconds, i64::from(timeout.subsec_micros()).max(1));
    setsockopt(&fd, sockopt::SendTimeout, &limit)?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &limit)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}

/// The result of one [`LineReader::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something came.
    Some,
    /// Nothing is there now (nonblocking socket, or its read timeout).
    Nothing,
    /// The peer has closed.
    Closed,
}

/// Reads lines and the descriptors that come with them. Such a socket must be read only through this, because a
/// plain read(2) would lose descriptors.
#[derive(Debug, Default)]
pub struct LineReader {
    bytes: VecDeque<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl LineReader {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One recvmsg(2).
    ///
    /// # Errors
    /// A limit is passed, or the socket fails.
    pub fn read(&mut self, stream: &UnixStream) -> Result<Progress, PortError> {
        let mut buffer = [0; 4096];
        let (length, descriptors) = match fdpass::receive(stream.as_fd(), &mut buffer) {
            Ok(received) => received,
            Err(error) if error.would_block() => return Ok(Progress::Nothing),
            Err(error) => return Err(error.into()),
        };
        if length == 0 {
            return Ok(Progress::Closed);
        }
        self.bytes.extend(&buffer[..length]);
        self.descriptors.extend(descriptors);
        if self.descriptors.len() > WAITING_MAX {
            return Err(PortError::TooManyDescriptors);
        }
        if self.bytes.len() > LINE_MAX && !self.bytes.contains(&b'\n') {
            return Err(PortError::LineTooLong);
        }
        Ok(Progress::Some)
    }

    /// The next whole line, without its line break.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|b| *b == b'\n')?;
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// The oldest descriptor, as a TCP connection; `None`: there is none.
    ///
    /// # Errors
    /// If it is no TCP connection; it is closed then.
    pub fn next_connection(&mut self) -> Result<Option<TcpStream>, PortError> {
        let Some(descriptor) = self.descriptors.pop_front() else {
            return Ok(None);
        };
        let stream = TcpStream::from(descriptor);
        match stream.peer_addr() {
            Ok(_) => Ok(Some(stream)),
            // It was a TCP connection that was reset on the way: its user will notice.
            Err(e) if e.kind() == io::ErrorKind::NotConnected && stream.local_addr().is_ok() => {
                Ok(Some(stream))
            }
            Err(_) => Err(PortError::NotTcp),
        }
    }
}

/// The other end of [`send_socket`], if nothing else comes over that socket: waits for one line and its
/// connection. Supervisors, over whose sockets more comes, have a [`LineReader`] in their loops; this is for tests.
///
/// # Errors
/// Closed, too slow, or not a TCP connection.
pub fn receive_socket(
    stream: &UnixStream,
    timeout: Duration,
) -> Result<(TcpStream, Vec<u8>), PortError> {
    let started = Instant::now();
    let slow = || PortError::Slow(timeout.as_secs_f64());
    let failed = |e: io::Error| PortError::Read(e);
    stream.set_nonblocking(false).map_err(failed)?;
    let mut reader = LineReader::new();
    loop {
        if let Some(line) = reader.next_line() {
            let connection = reader.next_connection()?.ok_or(PortError::Unfinished)?;
            return Ok((connection, line));
        }
        let left = timeout
            .checked_sub(started.elapsed())
            .filter(|t| !t.is_zero());
        stream
            .set_read_timeout(Some(left.ok_or_else(slow)?))
            .map_err(failed)?;
        if reader.read(stream)? == Progress::Closed {
            return Err(PortError::Unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        (client, listener.accept().expect("accept").0)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn garbage_silence_and_closing_are_told_apart() {
        let (mut client, server) = pair();
        client
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .expect("written");
        let error = peek_server_name(&server, SECOND).expect_err("no TLS");
        assert!(
            matches!(error, PortError::Hello(HelloError::Malformed(_))),
            "{error}"
        );

        let (mut client, server) = pair();
        let short = Duration::from_millis(50);
        assert!(matches!(
            peek_server_name(&server, short),
            Err(PortError::Slow(_))
        ));
        client.write_all(&[22, 3, 1, 2, 0, 1]).expect("written");
        assert!(matches!(
            peek_server_name(&server, short),
            Err(PortError::Slow(_))
        ));
        drop(client);
        assert!(matches!(
            peek_server_name(&server, SECOND),
            Err(PortError::Closed)
        ));
        let mut all = Vec::new();
        (&server).read_to_end(&mut all).expect("read");
        assert_eq!(all, [22, 3, 1, 2, 0, 1], "peeking takes nothing");
    }

    #[test]
    fn peeking_leaves_the_mode_of_the_socket() {
        let (_client, server) = pair();
        server.set_nonblocking(true).expect("set");
        let _ = peek_server_name(&server, Duration::from_millis(5));
        let error = (&server).read(&mut [0; 1]).expect_err("nothing there");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_connection_goes_to_its_supervisor() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("supervisor");
        let listener = UnixListener::bind(&path).expect("bind");
        let (mut client, server) = pair();
        client.write_all(b"before").expect("written");
        let kept = send_socket(&path, &server, br#"{"command":"channel"}"#, SECOND).expect("sent");
        let (unix, _) = listener.accept().expect("accept");
        let (mut got, line) = receive_socket(&unix, SECOND).expect("received");
        assert_eq!(line, br#"{"command":"channel"}"#);
        drop((kept, server));
        client.write_all(b" after").expect("written");
        drop(client);
        let mut text = String::new();
        got.read_to_string(&mut text).expect("read");
        assert_eq!(text, "before after");
    }

    #[test]
    fn hand_over_errors() {
        let directory = tempfile::tempdir().expect("directory");
        let gone = directory.path().join("gone");
        let error = send_socket(&gone, &pair().1, b"{}", SECOND).expect_err("nobody");
        assert!(error.is_gone(), "{error}");
        let error = send_socket(&gone, &pair().1, b"{}\n", SECOND).expect_err("line break");
        assert!(matches!(error, PortError::Line(3)), "{error}");

        let (mut left, right) = UnixStream::pair().expect("pair");
        left.write_all(b"{}\n").expect("written");
        let error = receive_socket(&right, SECOND).expect_err("no descriptor");
        assert!(matches!(error, PortError::Unfinished), "{error}");
        fdpass::send(left.as_fd(), b"{}\n", &[left.as_fd()]).expect("sent");
        let error = receive_socket(&right, SECOND).expect_err("a unix socket");
        assert!(matches!(error, PortError::NotTcp), "{error}");
        // The reader may stop at the limit, so writing may fail; only the reader's error counts.
        let writer = std::thread::spawn(move || left.write_all(&vec![b'x'; LINE_MAX + 1]));
        let error = receive_socket(&right, SECOND).expect_err("too long");
        assert!(matches!(error, PortError::LineTooLong), "{error}");
        drop(right);
        let _ = writer.join().expect("joined");
    }
}
