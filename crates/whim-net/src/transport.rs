//! A TLS session on a nonblocking socket.

use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, sendmsg};
use thiserror::Error;
use whim_journey::frame::FrameError;

use crate::tls::session::{Failure, Session};
use crate::tls::{Refusal, TlsError};

/// Size of the buffer for one read(2), in bytes: more than one 64 KiB buffer with its headers, but small enough
/// not to push the plaintext out of the cache.
const READ_LENGTH: usize = 128 << 10;
/// The most bytes of ciphertext that one call of [`Transport::receive`] reads, so that a fast peer cannot keep its
/// caller from other work, and so that what was read is in the caches still when the caller uses it: with 4 MiB a move
/// of 10 MB stood still 7 % longer.
const RECEIVE_MAX: usize = 512 << 10;

#[derive(Debug, Error)]
pub enum ChannelError {
    #[error("Failed to connect to {address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "Nothing came from the peer while {doing}, for {seconds:.1} s: it is overloaded, or the network drops packets"
    )]
    Timeout { doing: &'static str, seconds: f64 },
    #[error("The peer has closed the connection")]
    Closed,
    #[error("The peer's supervisor of this journey has ended, says its node")]
    Gone,
    #[error("The connection is lost: {0}")]
    Lost(io::Error),
    #[error("The peer is refused: {0}")]
    Refused(Refusal),
    #[error("The peer refuses us: {0}")]
    RefusedByPeer(String),
    #[error("The peer breaks the protocol: {0}")]
    Protocol(String),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl From<Failure> for ChannelError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::RefusedByPeer(text) => Self::RefusedByPeer(text),
            Failure::Protocol(text) => Self::Protocol(text),
        }
    }
}

/// Whether the other side may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Open,
    /// It has closed; what it sent before can still be fetched.
    Closed,
}

/// A point in time until which a blocking step may last, and a description of the step.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    started: Instant,
    timeout: Duration,
    doing: &'static str,
}

impl Deadline {
    pub(crate) fn new(timeout: Duration, doing: &'static str) -> Self {
        Self {
            started: Instant::now(),
            timeout,
            doing,
        }
    }

    pub(crate) fn left(&self) -> Result<Duration, ChannelError> {
        match self.timeout.checked_sub(self.started.elapsed()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.missed()),
        }
    }

    fn missed(&self) -> ChannelError {
        ChannelError::Timeout {
            doing: self.doing,
            seconds: self.timeout.as_secs_f64(),
        }
    }

    /// The same point in time, for another step.
    pub(crate) fn doing(self, doing: &'static str) -> Self {
        Self { doing, ..self }
    }
}

/// Receives plaintext, in the order in which it was sent.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), ChannelError> + 'a;

pub(crate) struct Transport {
    stream: TcpStream,
    session: Session,
    buffer: Vec<u8>,
    /// About how many bytes of ciphertext wait to be written.
    queued: usize,
    closed: bool,
    /// The peer has announced that it closes, so the connection has not just broken.
    goodbye: bool,
}

/// Writes to a socket without blocking, and without SIGPIPE whatever the signal's disposition.
struct Outlet<'a>(&'a TcpStream);

impl io::Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.0.as_raw_fd(), parts, &[], flags, None).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport {
    /// Takes over a connected socket: it is nonblocking from here on, and small writes are sent at once.
    pub(crate) fn new(stream: TcpStream, session: Session) -> Result<Self, ChannelError> {
        stream.set_nonblocking(true).map_err(ChannelError::Lost)?;
        stream.set_nodelay(true).map_err(ChannelError::Lost)?;
        Ok(Self {
            stream,
            session,
            buffer: vec![0; READ_LENGTH],
            queued: 0,
            closed: false,
            goodbye: false,
        })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Does the handshake. Application data that comes along goes to `sink`.
    pub(crate) fn handshake(
        &mut self,
        deadline: Deadline,
        sink: &mut Sink<'_>,
    ) -> Result<(), ChannelError> {
        while self.session.is_handshaking() {
            if !self.flush()? {
                self.wait(PollFlags::POLLOUT, deadline)?;
                continue;
            }
            // The first flush of a client may complete nothing yet, a server has nothing to send.
            if self.session.is_handshaking() {
                self.wait(PollFlags::POLLIN, deadline)?;
                if self.receive_handshake(sink)? == Received::Closed
                    && self.session.is_handshaking()
                {
                    return Err(ChannelError::Closed);
                }
            }
        }
        self.flush_blocking(deadline, sink)
    }

    /// As [`Transport::receive`], but on failure the peer is told the reason, while it still listens.
    fn receive_handshake(&mut self, sink: &mut Sink<'_>) -> Result<Received, ChannelError> {
        self.receive(sink).inspect_err(|_| {
            let _ = self.flush();
            let _ = self.stream.shutdown(Shutdown::Write);
        })
    }

    /// Reads what the socket has, within bounds, and decrypts it into `sink`.
    pub(crate) fn receive(&mut self, sink: &mut Sink<'_>) -> Result<Received, ChannelError> {
        let mut total = 0;
        while !self.closed && total < RECEIVE_MAX {
            match self.stream.read(&mut self.buffer) {
                Ok(0) => self.closed = true,
                Ok(length) => {
                    self.goodbye = self.session.feed(&self.buffer[..length], sink)?;
                    self.closed = self.goodbye;
                    total += length;
                    if length < self.buffer.len() {
                        // The socket is empty, so do not pay for another call to learn that.
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(ChannelError::Lost(e)),
            }
        }
        Ok(if self.closed {
            Received::Closed
        } else {
            Received::Open
        })
    }

    /// Encrypts one run of bytes; nothing is written yet.
    pub(crate) fn seal(&mut self, parts: &[IoSlice<'_>]) -> Result<(), ChannelError> {
        self.queued += self.session.seal(parts)?;
        Ok(())
    }

    pub(crate) fn said_goodbye(&self) -> bool {
        self.goodbye
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Writes as much as the socket accepts; returns true when nothing is left.
    pub(crate) fn flush(&mut self) -> Result<bool, ChannelError> {
        while self.session.wants_write() {
            match self.session.write_to(&mut Outlet(&self.stream)) {
                Ok(length) => self.queued = self.queued.saturating_sub(length),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(ChannelError::Lost(e)),
            }
        }
        self.queued = 0;
        Ok(true)
    }

    /// Writes all. It reads meanwhile, so that two sides that both write a lot cannot block each other.
    pub(crate) fn flush_blocking(
        &mut self,
        deadline: Deadline,
        sink: &mut Sink<'_>,
    ) -> Result<(), ChannelError> {
        while !self.flush()? {
            let interest = if self.closed {
                PollFlags::POLLOUT
            } else {
                PollFlags::POLLOUT | PollFlags::POLLIN
            };
            if self.wait(interest, deadline)?.contains(PollFlags::POLLIN) {
                self.receive(sink)?;
            }
        }
        Ok(())
    }

    /// Waits until there is something to read, and writes what is queued meanwhile.
    pub(crate) fn receive_blocking(
        &mut self,
        deadline: Deadline,
        sink: &mut Sink<'_>,
    ) -> Result<Received, ChannelError> {
        loop {
            let interest = if self.flush()? {
                PollFlags::POLLIN
            } else {
                PollFlags::POLLIN | PollFlags::POLLOUT
            };
            let ready = self.wait(interest, deadline)?;
            if ready.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                return self.receive(sink);
            }
        }
    }

    fn wait(&self, interest: PollFlags, deadline: Deadline) -> Result<PollFlags, ChannelError> {
        loop {
            // Rounded up: a wait of 0 ms would spin through the last millisecond.
            let left = deadline.left()?.as_millis().saturating_add(1);
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut set = [PollFd::new(self.stream.as_fd(), interest)];
            match poll(&mut set, left) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(set[0].revents().unwrap_or(PollFlags::POLLERR)),
                Err(e) => return Err(ChannelError::Lost(e.into())),
            }
        }
    }

    /// Says goodbye, as far as the socket accepts it at once.
    pub(crate) fn close(&mut self) {
        self.session.close();
        let _ = self.flush();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
