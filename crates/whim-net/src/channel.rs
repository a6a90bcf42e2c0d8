//! Frames between two supervisors, over TLS 1.3, without threads and without a runtime.
//!
//! A channel is made for an epoll loop: `receive` and `flush` never block. Call `flush` after
//! `queue`, and watch for writability only while it returns false. A frame that fits into one TLS
//! record (16 KiB) is sent in one record, all that is queued is written in as few calls as the
//! socket allows, and one read call reads up to 128 KiB.

use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use whim_journey::frame::{Frame, Header, Kind};
use whim_journey::session::Stamp;

use crate::inbox::{Inbox, InboxError, PREFACE, PREFACE_GONE};
use crate::name::{PeerExpectation, PeerIdentity};
use crate::revocation::RevocationList;
use crate::tls::session::Session;
use crate::tls::{self, Credentials};
pub use crate::transport::{ChannelError, Received};
use crate::transport::{Deadline, Transport};

/// [`Channel::receive`] reads nothing more while received frames of so many bytes have not been
/// fetched.
pub const READY_MAX: usize = 32 << 20;

impl From<InboxError> for ChannelError {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::Preface => {
                Self::Protocol("it is not the supervisor that it should be".into())
            }
            InboxError::Gone => Self::Gone,
            InboxError::Frame(error) => Self::Frame(error),
        }
    }
}

/// One connection between two supervisors.
pub struct Channel {
    link: Transport,
    inbox: Inbox,
    peer: PeerIdentity,
    /// Why the last `queue` failed; the next `flush` returns it.
    failed: Option<ChannelError>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Connects, and returns once the other side has accepted our certificate. `server_name` only
    /// routes ([`crate::name::journey_server_name`]); `expect` decides.
    ///
    /// # Errors
    /// Not reachable, refused by either side, or not done within `timeout`.
    pub fn connect(
        address: SocketAddr,
        server_name: &str,
        credentials: &Credentials,
        expect: &PeerExpectation,
        timeout: Duration,
    ) -> Result<Self, ChannelError> {
        let deadline = Deadline::new(timeout, "connecting");
        let revocations = RevocationList::new(credentials.revoked.clone());
        let config = tls::client_config(credentials, revocations, expect)?;
        let session = Session::client(config, server_name)?;
        let stream = TcpStream::connect_timeout(&address, deadline.left()?)
            .map_err(|source| ChannelError::Connect { address, source })?;
        let mut channel = Self::open(Transport::new(stream, session)?, Inbox::new(true), deadline)?;
        let deadline = deadline.doing("waiting to be accepted");
        while channel.inbox.preface_missing() {
            let inbox = &mut channel.inbox;
            let state = channel
                .link
                .receive_blocking(deadline, &mut |bytes| Ok(inbox.take(bytes)?))?;
            if state == Received::Closed && channel.inbox.preface_missing() {
                return Err(ChannelError::Closed);
            }
        }
        Ok(channel)
    }

    /// Answers a connection whose first byte has not been read yet.
    ///
    /// # Errors
    /// Refused by either side, or not done within `timeout`.
    pub fn accept(
        stream: TcpStream,
        credentials: &Credentials,
        expect: &PeerExpectation,
        timeout: Duration,
    ) -> Result<Self, ChannelError> {
        Self::answer(stream, credentials, expect, (PREFACE, timeout))
    }

    /// Answers in the name of a supervisor that has ended: the side that connects gets
    /// [`ChannelError::Gone`].
    ///
    /// # Errors
    /// As [`Channel::accept`].
    pub fn bid_farewell(
        stream: TcpStream,
        credentials: &Credentials,
        expect: &PeerExpectation,
        timeout: Duration,
    ) -> Result<(), ChannelError> {
        let mut channel = Self::answer(stream, credentials, expect, (PREFACE_GONE, timeout))?;
        channel.close();
        Ok(())
    }

    fn answer(
        stream: TcpStream,
        credentials: &Credentials,
        expect: &PeerExpectation,
        (preface, timeout): (&[u8], Duration),
    ) -> Result<Self, ChannelError> {
        let deadline = Deadline::new(timeout, "accepting a connection");
        let revocations = RevocationList::new(credentials.revoked.clone());
        let config = tls::server_config(credentials, revocations, expect)?;
        let link = Transport::new(stream, Session::server(config)?)?;
        let mut channel = Self::open(link, Inbox::new(false), deadline)?;
        channel.link.seal(&[IoSlice::new(preface)])?;
        let inbox = &mut channel.inbox;
        channel
            .link
            .flush_blocking(deadline, &mut |bytes| Ok(inbox.take(bytes)?))?;
        Ok(channel)
    }

    /// Waits, at most for `patience`, until there is something to read, or room to write if bytes
    /// wait to be written, or until `other` is readable.
    ///
    /// # Errors
    /// poll(2) fails.
    pub(crate) fn wait_beside(
        &self,
        other: BorrowedFd<'_>,
        patience: Duration,
    ) -> Result<(), ChannelError> {
        let interest = if self.queued_bytes() > 0 {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        wait_for(
            &mut [
                PollFd::new(self.as_fd(), interest),
                PollFd::new(other, PollFlags::POLLIN),
            ],
            patience,
        )
    }

    fn open(
        mut link: Transport,
        mut inbox: Inbox,
        deadline: Deadline,
    ) -> Result<Self, ChannelError> {
        let shaking = deadline.doing("agreeing on keys");
        link.handshake(shaking, &mut |bytes| Ok(inbox.take(bytes)?))?;
        let peer = link.session().peer()?;
        Ok(Self {
            link,
            inbox,
            peer,
            failed: None,
        })
    }

    /// The identity of the other end, which its certificates prove.
    #[must_use]
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Reads what the socket has, at most about half a MiB a call, and nothing while [`READY_MAX`] bytes
    /// wait to be fetched: fetch all frames before you wait again.
    ///
    /// # Errors
    /// The connection is lost, or the peer breaks the protocol.
    pub fn receive(&mut self) -> Result<Received, ChannelError> {
        if self.inbox.ready_bytes() >= READY_MAX {
            return Ok(Received::Open);
        }
        let inbox = &mut self.inbox;
        self.link.receive(&mut |bytes| Ok(inbox.take(bytes)?))
    }

    /// The next whole frame that was received. Frames before a bad one come first, then its error,
    /// then [`ChannelError::Closed`] for ever.
    ///
    /// # Errors
    /// A frame too long, of unknown kind, or with unknown bits.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ChannelError> {
        match self.inbox.next()? {
            None if self.inbox.is_broken() => Err(ChannelError::Closed),
            frame => Ok(frame),
        }
    }

    /// Queues one frame, made of `parts` one after the other. Nothing is written before `flush`.
    ///
    /// # Panics
    /// If the parts are longer than a frame may be: senders split before they queue.
    pub fn queue(&mut self, kind: Kind, epoch: u32, parts: &[&[u8]]) {
        self.queue_stamped(kind, epoch, Stamp::default(), parts);
    }

    /// As [`Channel::queue`], with the session's stamp in the header.
    ///
    /// # Panics
    /// As [`Channel::queue`].
    pub fn queue_stamped(&mut self, kind: Kind, epoch: u32, stamp: Stamp, parts: &[&[u8]]) {
        let length = parts.iter().map(|p| p.len()).sum();
        let header = Header {
            length,
            kind,
            epoch,
            stamp,
        }
        .encode();
        let sealed = match parts {
            // The usual numbers of parts cost no allocation.
            [] => self.link.seal(&[IoSlice::new(&header)]),
            [one] => self.link.seal(&[IoSlice::new(&header), IoSlice::new(one)]),
            [one, two] => {
                self.link
                    .seal(&[IoSlice::new(&header), IoSlice::new(one), IoSlice::new(two)])
            }
            many => {
                let mut slices = Vec::with_capacity(many.len() + 1);
                slices.push(IoSlice::new(&header));
                slices.extend(many.iter().map(|p| IoSlice::new(p)));
                self.link.seal(&slices)
            }
        };
        if let Err(error) = sealed {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes as much as the socket accepts; returns true when nothing is left.
    ///
    /// # Errors
    /// The connection is lost, or broke before.
    pub fn flush(&mut self) -> Result<bool, ChannelError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.link.flush(),
        }
    }

    /// Whether the peer has closed the channel, and not only the connection.
    pub(crate) fn said_goodbye(&self) -> bool {
        self.link.said_goodbye()
    }

    /// About how many bytes wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.link.queued()
    }

    /// Sends one frame, and all that was queued before it, before it returns. What arrives
    /// meanwhile is kept for `next_frame`, so that two sides that send at the same time do not
    /// block each other.
    ///
    /// # Errors
    /// As [`Channel::flush`], or not done within `timeout`.
    pub fn send_now(
        &mut self,
        kind: Kind,
        epoch: u32,
        parts: &[&[u8]],
        timeout: Duration,
    ) -> Result<(), ChannelError> {
        self.queue(kind, epoch, parts);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let inbox = &mut self.inbox;
        let deadline = Deadline::new(timeout, "sending a frame");
        self.link
            .flush_blocking(deadline, &mut |bytes| Ok(inbox.take(bytes)?))
    }

    /// Waits for the next frame; writes what is queued meanwhile.
    ///
    /// # Errors
    /// As [`Channel::receive`] and [`Channel::next_frame`]; closed; or none within `timeout`.
    pub fn receive_frame(&mut self, timeout: Duration) -> Result<Frame, ChannelError> {
        let deadline = Deadline::new(timeout, "waiting for a frame");
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(frame);
            }
            let inbox = &mut self.inbox;
            let state = self
                .link
                .receive_blocking(deadline, &mut |bytes| Ok(inbox.take(bytes)?))?;
            if state == Received::Closed {
                return self.next_frame()?.ok_or(ChannelError::Closed);
            }
        }
    }

    /// Tells the peer that nothing more comes. Of what is queued, only as much is written as the
    /// socket accepts at once.
    pub fn close(&mut self) {
        self.link.close();
    }

    /// The socket, for its addresses and statistics. Neither read nor write it.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        self.link.stream()
    }
}

/// Waits until one of these is ready, at most for `patience`.
pub(crate) fn wait_for(set: &mut [PollFd<'_>], patience: Duration) -> Result<(), ChannelError> {
    let left = patience.as_millis().saturating_add(1);
    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(set, left) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(ChannelError::Lost(error.into())),
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.link.stream().as_raw_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
