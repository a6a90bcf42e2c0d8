//! A channel that outlives its connection.
//!
//! It does what [`Channel`] does, for the same callers. When the connection is lost it does not report that:
//! what is to be sent is kept, and goes on over the next connection ([`whim_journey::session`]). The caller
//! decides by its lease when to stop waiting, and steps that block here wait no longer than that either. A peer
//! that says goodbye has closed the line, and has not lost a connection: that is reported at once. So is the
//! end of a peer that could not say goodbye, if its node answers in its place when we connect again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use whim_journey::frame::{Frame, HEADER_LENGTH, Kind};
use whim_journey::message::{self, Hello, Resume};
use whim_journey::session::{Action, Actions, Event, Session, SessionError, Side};

use crate::channel::{Channel, ChannelError, READY_MAX, Received, wait_for};
use crate::door::{Connect, Door, Fresh};
use crate::kept::Kept;
use crate::name::PeerIdentity;

/// Silence after which the dialing side makes a new connection, if there is no lease.
const QUIET: Duration = Duration::from_secs(10);
/// Bounds of the time for one try to connect. The first tries are short, because a try that begins while
/// nothing gets through fails even if the network recovers a moment later.
const TRY_MIN: Duration = Duration::from_millis(250);
const TRY_MAX: Duration = Duration::from_secs(5);
/// If more bytes than this are kept, sending first reads acknowledgements.
const LOOK_BYTES: usize = 2 << 20;
/// How many times a connection that cannot be written to any more is read: there may be so many pieces in the socket.
const LAST_READS: usize = 8;
/// Longest sleep of a step that blocks, before it checks the time again.
const STEP: Duration = Duration::from_millis(100);
/// How long the other side has to receive a goodbye.
const HEARING: Duration = Duration::from_millis(500);
/// The kernel probes an idle peer after so many seconds, and gives up after three unanswered probes, as many
/// seconds apart.
const KEEPALIVE_SECONDS: u32 = 5;

/// How the dialing side gets to the other one.
#[derive(Clone)]
pub struct Dialing {
    pub connect: Connect,
    /// The first message of the first connection.
    pub hello: Hello,
    pub kind: Kind,
    /// Whether the other side sends something of its own accord. Only then does its silence mean anything.
    pub expects_beats: bool,
}

impl std::fmt::Debug for Dialing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialing")
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// One line between two supervisors.
#[derive(Debug)]
pub struct Line {
    session: Session,
    channel: Option<Channel>,
    kept: Kept,
    ready: VecDeque<Frame>,
    ready_bytes: usize,
    dialing: Option<Dialing>,
    door: Arc<Door>,
    epoch: u32,
    peer: PeerIdentity,
    begun: Instant,
    /// Since when there is no connection.
    lost: Option<Instant>,
    lease: Option<Duration>,
    /// The connection has changed since the last [`Line::take_renewed`].
    renewed: bool,
    /// The dialing thread could not be started.
    undialed: bool,
    failed: Option<ChannelError>,
    /// The other side has said goodbye.
    over: bool,
}

impl From<SessionError> for ChannelError {
    fn from(error: SessionError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl Line {
    /// The side that has connected, and has sent its `Hello`.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn dialing(
        channel: Channel,
        epoch: u32,
        dialing: Dialing,
        lease: Option<Duration>,
    ) -> Result<Self, ChannelError> {
        let quiet = lease.map_or(QUIET, |lease| lease / 3);
        let quiet = if dialing.expects_beats {
            quiet
        } else {
            Duration::MAX
        };
        let door = Door::new().map_err(|errno| ChannelError::Lost(errno.into()))?;
        let mut line = Self::new(channel, epoch, Side::Dialing { quiet }, door, lease);
        line.dialing = Some(dialing);
        Ok(line)
    }

    /// The side to which the other one connects; further connections come through `door`. Even the first may
    /// replace one that was lost before anything came over it.
    #[must_use]
    pub fn waiting(first: Fresh, epoch: u32, door: Arc<Door>, lease: Option<Duration>) -> Self {
        let Fresh { channel, resume } = first;
        let mut line = Self::new(channel, epoch, Side::Waiting, door, lease);
        if let Some(channel) = line.channel.take_if(|_| resume.is_some()) {
            line.door.bring(Fresh { channel, resume });
        }
        line
    }

    fn new(
        channel: Channel,
        epoch: u32,
        side: Side,
        door: Arc<Door>,
        lease: Option<Duration>,
    ) -> Self {
        keep_alive(&channel);
        Self {
            session: Session::new(Duration::ZERO, side),
            peer: channel.peer().clone(),
            channel: Some(channel),
            kept: Kept::default(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            dialing: None,
            door,
            epoch,
            begun: Instant::now(),
            lost: None,
            lease,
            renewed: false,
            undialed: false,
            failed: None,
            over: false,
        }
    }

    /// The identity of the other end, which its certificates prove.
    #[must_use]
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// Sets another lease than the one that was known at the beginning.
    pub fn set_lease(&mut self, lease: Option<Duration>) {
        self.lease = lease;
    }

    /// The descriptor at which a new connection shows itself; to be watched beside the line itself.
    #[must_use]
    pub fn door(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }

    /// Whether the connection has changed since the last call. A caller that watches its descriptor by more
    /// than poll(2) has to start that anew then.
    pub fn take_renewed(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// Whether the other side has closed the line or is gone, so that nothing more happens on it. Otherwise
    /// only [`Line::receive`] reports this.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether there is a connection that carries frames.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    /// Back pressure: while this is true, nothing should be queued that can wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.session.is_full()
    }

    /// Whether frames have come that have not been fetched yet.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When something last came from the other side.
    #[must_use]
    pub fn heard(&self) -> Instant {
        self.begun + self.session.heard()
    }

    fn handle(&mut self, event: Event) -> Result<Actions, ChannelError> {
        Ok(self.session.handle(self.begun.elapsed(), event)?)
    }

    /// As [`Channel::receive`], but the caller is not told of a lost connection.
    ///
    /// # Errors
    /// The peer breaks the protocol.
    pub fn receive(&mut self) -> Result<Received, ChannelError> {
        if self.door.is_waiting() {
            self.renew()?;
        }
        if self.ready_bytes < READY_MAX
            && let Some(channel) = &mut self.channel
        {
            let received = channel.receive();
            self.take_frames()?;
            match received {
                Ok(Received::Open) => {}
                Ok(Received::Closed) => self.closed()?,
                Err(error) => self.passed_over(error)?,
            }
        }
        Ok(if self.over {
            Received::Closed
        } else {
            Received::Open
        })
    }

    fn closed(&mut self) -> Result<(), ChannelError> {
        self.over |= self.channel.as_ref().is_some_and(Channel::said_goodbye);
        if self.over {
            self.door.close();
            return Ok(());
        }
        self.lose("it was closed")
    }

    /// A connection that breaks is replaced; anything else is an error.
    fn passed_over(&mut self, error: ChannelError) -> Result<(), ChannelError> {
        match error {
            ChannelError::Lost(reason) => self.lose(&reason.to_string()),
            ChannelError::Closed => self.lose("it was closed"),
            other => Err(other),
        }
    }

    /// Gives up the connection, which is of no use any more.
    ///
    /// # Errors
    /// None in practice.
    pub fn lose(&mut self, reason: &str) -> Result<(), ChannelError> {
        if self.channel.is_none() {
            return Ok(());
        }
        tracing::warn!(peer = %self.peer, reason, "a connection is lost; waiting for another");
        let actions = self.handle(Event::Broken)?;
        self.carry_out(actions, None);
        Ok(())
    }

    fn take_frames(&mut self) -> Result<(), ChannelError> {
        let now = self.begun.elapsed();
        while let Some(channel) = &mut self.channel {
            let Some(frame) = channel.next_frame()? else {
                break;
            };
            let event = match frame.kind {
                Kind::Answer => Event::Answered {
                    received: answer_of(&frame)?,
                },
                _ => Event::Frame {
                    stamp: frame.stamp,
                    bytes: frame.payload.len(),
                    numbered: frame.kind != Kind::Acknowledgement,
                },
            };
            let actions = self.session.handle(now, event)?;
            if self.carry_out(actions, None) {
                self.ready_bytes += HEADER_LENGTH + frame.payload.len();
                self.ready.push_back(frame);
            }
        }
        Ok(())
    }

    /// Does what the session says; returns true if the frame that has just come is to be delivered.
    fn carry_out(&mut self, actions: Actions, mut fresh: Option<Channel>) -> bool {
        let mut deliver = false;
        for action in actions {
            match action {
                Action::Close => {
                    self.channel = None;
                    self.lost.get_or_insert_with(Instant::now);
                }
                Action::Reject => fresh = None,
                Action::Forget { through } => self.kept.forget(through),
                Action::Dial => self.dial(),
                Action::Ask { attempt, received } => {
                    self.take_over(fresh.take());
                    self.ask(Resume { attempt, received });
                }
                Action::Answer { received } => {
                    self.take_over(fresh.take());
                    self.say(Kind::Answer, &received.to_le_bytes());
                }
                Action::Write { first, .. } => self.write_again(first),
                Action::Acknowledge => self.say(Kind::Acknowledgement, &[]),
                Action::Deliver => deliver = true,
            }
        }
        if self.session.is_connected()
            && let Some(lost) = self.lost.take()
        {
            tracing::info!(peer = %self.peer, after = ?lost.elapsed(), "the line goes on");
        }
        deliver
    }

    fn take_over(&mut self, fresh: Option<Channel>) {
        if let Some(channel) = &fresh {
            keep_alive(channel);
        }
        self.channel = fresh;
        self.renewed = true;
    }

    /// Queues a frame that is not kept.
    fn say(&mut self, kind: Kind, payload: &[u8]) {
        let stamp = self.session.stamp(0);
        if let Some(channel) = &mut self.channel {
            channel.queue_stamped(kind, self.epoch, stamp, &[payload]);
        }
    }

    fn ask(&mut self, resume: Resume) {
        let Some(dialing) = &self.dialing else {
            return;
        };
        let hello = Hello {
            resume: Some(resume),
            ..dialing.hello.clone()
        };
        match message::encode(&hello) {
            Ok(bytes) => self.say(dialing.kind, &bytes),
            Err(error) => self.failed = Some(ChannelError::Protocol(error.to_string())),
        }
    }

    fn write_again(&mut self, first: u64) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        for (number, frame) in self.kept.from(first) {
            let stamp = self.session.stamp(number);
            channel.queue_stamped(frame.kind, frame.epoch, stamp, &frame.parts);
        }
    }

    fn dial(&mut self) {
        let Some(dialing) = &self.dialing else {
            return;
        };
        let part = |of| {
            self.lease
                .map_or(TRY_MAX, |lease| lease / of)
                .clamp(TRY_MIN, TRY_MAX)
        };
        self.undialed = !self.door.dial(&dialing.connect, (part(16), part(4)));
    }

    /// Handles new connections that have come.
    fn renew(&mut self) -> Result<(), ChannelError> {
        for Fresh { channel, resume } in self.door.take() {
            let event = match (&self.dialing, resume) {
                (Some(_), None) => Event::Opened,
                (None, Some(Resume { attempt, received })) => Event::Asked { attempt, received },
                _ => continue,
            };
            let actions = self.handle(event)?;
            self.carry_out(actions, Some(channel));
        }
        if self.door.is_gone() && !self.over {
            tracing::warn!(peer = %self.peer, "its node says that it has ended");
            self.over = true;
            self.door.close();
        }
        self.flush().map(drop)
    }

    /// To be called now and then, because a connection can die silently.
    ///
    /// # Errors
    /// The peer breaks the protocol.
    pub fn tick(&mut self) -> Result<(), ChannelError> {
        if std::mem::take(&mut self.undialed) {
            self.dial();
        }
        if self.door.is_waiting() {
            self.renew()?;
        }
        let actions = self.handle(Event::Tick)?;
        self.carry_out(actions, None);
        Ok(())
    }

    /// Takes in what has come, sends what is queued, and makes a lost connection again. For an owner that has
    /// something else to do: what is wrong with the line is reported by the next [`Line::flush`].
    pub fn keep(&mut self) {
        let mut kept = self.receive().map(drop);
        // As long as nothing is read, the other side's silence means nothing.
        if self.ready_bytes < READY_MAX {
            kept = kept.and_then(|()| self.tick());
        }
        if let Err(error) = kept.and_then(|()| self.flush().map(drop)) {
            self.failed.get_or_insert(error);
        }
    }

    /// The next frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let frame = self.ready.pop_front()?;
        self.ready_bytes -= HEADER_LENGTH + frame.payload.len();
        Some(frame)
    }

    /// As [`Channel::queue`]; the frame is kept until the other side has it.
    ///
    /// # Panics
    /// As [`Channel::queue`].
    pub fn queue(&mut self, kind: Kind, epoch: u32, parts: &[&[u8]]) {
        self.kept.push(kind, epoch, parts);
        let bytes = parts.iter().map(|part| part.len()).sum();
        // The time at which we send something ourselves means nothing.
        let sent = self.session.handle(Duration::ZERO, Event::Send { bytes });
        for action in sent.into_iter().flatten() {
            if let (Action::Write { last, .. }, Some(channel)) = (action, &mut self.channel) {
                let stamp = self.session.stamp(last);
                channel.queue_stamped(kind, epoch, stamp, parts);
            }
        }
    }

    /// As [`Channel::flush`]; true also while there is no connection.
    ///
    /// # Errors
    /// The peer breaks the protocol, or encryption failed.
    pub fn flush(&mut self) -> Result<bool, ChannelError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.over {
            return Ok(true);
        }
        let Some(channel) = &mut self.channel else {
            return Ok(true);
        };
        match channel.flush() {
            Ok(done) => Ok(done),
            Err(error) => {
                // The last bytes that the peer sent may still be there to be read.
                let mut last = channel.receive();
                for _ in 1..LAST_READS {
                    if !matches!(last, Ok(Received::Open)) {
                        break;
                    }
                    last = channel.receive();
                }
                self.take_frames()?;
                match last {
                    Ok(Received::Closed) => self.closed()?,
                    _ => self.passed_over(error)?,
                }
                Ok(true)
            }
        }
    }

    /// About how many bytes wait to be written to the connection.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.channel.as_ref().map_or(0, Channel::queued_bytes)
    }

    /// As [`Channel::send_now`]; it also waits while the line [is full](Self::is_full).
    ///
    /// # Errors
    /// As [`Line::flush`]; not done within `timeout`; no connection for longer than the lease.
    pub fn send_now(
        &mut self,
        kind: Kind,
        epoch: u32,
        parts: &[&[u8]],
        timeout: Duration,
    ) -> Result<(), ChannelError> {
        self.queue_and_look(kind, epoch, parts)?;
        let begun = Instant::now();
        while !self.is_sent()? {
            self.wait(begun, timeout, "sending a frame")?;
            self.receive()?;
        }
        Ok(())
    }

    /// As [`send_now`](Self::send_now), for as long as the peer is heard of: it may take nothing while it waits
    /// for something that takes long, and say so.
    ///
    /// # Errors
    /// As [`send_now`](Self::send_now); not done, and nothing heard of the peer, for `silence`.
    pub fn send_to_a_living(
        &mut self,
        kind: Kind,
        epoch: u32,
        parts: &[&[u8]],
        silence: Duration,
    ) -> Result<(), ChannelError> {
        self.queue_and_look(kind, epoch, parts)?;
        let begun = Instant::now();
        while !self.is_sent()? {
            self.wait(begun.max(self.heard()), silence, "sending a frame")?;
            self.receive()?;
        }
        Ok(())
    }

    fn queue_and_look(
        &mut self,
        kind: Kind,
        epoch: u32,
        parts: &[&[u8]],
    ) -> Result<(), ChannelError> {
        self.queue(kind, epoch, parts);
        if self.session.kept_bytes() > LOOK_BYTES {
            self.receive()?;
        }
        Ok(())
    }

    /// Whether all is written, and the peer may still be sent more.
    fn is_sent(&mut self) -> Result<bool, ChannelError> {
        let sent = self.flush()? && self.is_connected() && !self.is_full();
        if !sent && self.over {
            return Err(ChannelError::Closed);
        }
        Ok(sent)
    }

    /// As [`Channel::receive_frame`].
    ///
    /// # Errors
    /// As [`Line::send_now`].
    pub fn receive_frame(&mut self, timeout: Duration) -> Result<Frame, ChannelError> {
        let begun = Instant::now();
        loop {
            if let Some(frame) = self.next_frame() {
                return Ok(frame);
            }
            if self.over {
                return Err(ChannelError::Closed);
            }
            self.flush()?;
            self.wait(begun, timeout, "waiting for a frame")?;
            self.receive()?;
        }
    }

    /// Waits for something to happen, at most for [`STEP`].
    fn wait(
        &mut self,
        begun: Instant,
        timeout: Duration,
        doing: &'static str,
    ) -> Result<(), ChannelError> {
        self.tick()?;
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            let seconds = timeout.as_secs_f64();
            return Err(ChannelError::Timeout { doing, seconds });
        }
        if let (Some(lost), Some(lease)) = (self.lost, self.lease)
            && lost.elapsed() > lease
        {
            return Err(ChannelError::Lost(io::Error::other(
                "it broke, and no other could be made within the lease",
            )));
        }
        let left = left.min(STEP);
        match &self.channel {
            Some(channel) => channel.wait_beside(self.door.as_fd(), left),
            None => wait_for(
                &mut [PollFd::new(self.door.as_fd(), PollFlags::POLLIN)],
                left,
            ),
        }
    }

    /// Sends what waits, says goodbye, and keeps reading until the other side has received it. If a connection
    /// is closed while bytes are unread, those that are on their way to the other side are lost, too.
    pub fn finish(mut self, within: Duration) {
        let begun = Instant::now();
        let doing = "saying goodbye";
        while !self.over {
            let written = matches!(self.flush(), Ok(true));
            if written && self.is_connected() {
                break;
            }
            if self.wait(begun, within, doing).is_err() || self.receive().is_err() {
                break;
            }
        }
        self.close();
        let begun = Instant::now();
        while !self.over && self.channel.is_some() {
            self.ready.clear();
            self.ready_bytes = 0;
            if self.wait(begun, HEARING, doing).is_err() || self.receive().is_err() {
                return;
            }
        }
    }

    /// Says goodbye: nothing more is sent, and nothing is waited for.
    pub fn close(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.close();
        }
        self.door.close();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.close();
    }
}

impl AsFd for Line {
    /// The connection's descriptor; without one, the door's.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.channel {
            Some(channel) => channel.as_fd(),
            None => self.door.as_fd(),
        }
    }
}

fn answer_of(frame: &Frame) -> Result<u64, ChannelError> {
    let bytes = <[u8; 8]>::try_from(frame.payload.as_slice());
    bytes
        .map(u64::from_le_bytes)
        .map_err(|_| ChannelError::Protocol("its answer is not a number".into()))
}

/// A connection on which nothing is sent may be dead; the kernel is to find out.
fn keep_alive(channel: &Channel) {
    let socket = channel.socket();
    // If this fails, the death of an idle connection is noticed later; nothing else changes.
    let _ = setsockopt(socket, sockopt::KeepAlive, &true);
    let _ = setsockopt(socket, sockopt::TcpKeepIdle, &KEEPALIVE_SECONDS);
    let _ = setsockopt(socket, sockopt::TcpKeepInterval, &KEEPALIVE_SECONDS);
    let _ = setsockopt(socket, sockopt::TcpKeepCount, &3);
}
