//! The guest supervisor's life: one loop over home's frames, the guest's calls and stops, and the
//! daemon's commands.

mod departure;
mod heartbeat;
mod memory;
mod visits;

use crate::allowance;
use crate::arrival::{Arrival, ArrivalError};
use crate::clocks::Ahead;
use crate::connections::{self, ConnectionError, Next, Parties, STALL_MAX};
use crate::control::ControlError;
use crate::error::GuestError;
use crate::guest::{Guest, Outgoing};
use crate::limits::Limits;
use crate::reception::{Reception, ReceptionError};
use crate::reply::Reply;
use crate::sandbox::{Sandbox, SandboxError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_journey::frame::{Frame, Kind};
use whim_journey::job::{GuestJob, Phase};
use whim_journey::message::{self, MessageError, Tails, ToGuest, ToHome, Used};
use whim_journey::stay::{Action, Event as StayEvent, Stay};
use whim_net::{Channel, ChannelError, Credentials, Line, Received};
use whim_sys::credentials::{self, CredentialError};
use whim_sys::inherited;
use whim_sys::priority::Priority;

/// Time in which the last messages to home have to leave.
const FAREWELL: Duration = Duration::from_secs(2);
/// While an answer is due and answers are quick, the loop polls for this long before it sleeps,
/// because a wake-up costs more.
const SPIN: Duration = Duration::from_micros(50);
/// A yield that takes longer means that others need the CPU, so the loop stops spinning for a
/// while.
const YIELD_MAX: Duration = Duration::from_micros(100);
const SPIN_PAUSE: Duration = Duration::from_millis(200);
/// A guest with so many threads or fewer runs before home is told that it does.
const FEW_THREADS: usize = 64;

/// Time after which a thread is looked for again that can drop pages of changed files.
const STALE_MAX: Duration = Duration::from_millis(2);

#[derive(Debug, Error)]
pub enum SupervisorError {
    #[error("The job's credentials are damaged: {0}")]
    Credentials(serde_json::Error),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Identity(#[from] CredentialError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Reception(#[from] ReceptionError),
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("The connection to home broke: {0}")]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("The pager has ended: {0}")]
    Pager(String),
    #[error("{what} failed: {errno}")]
    Os { what: &'static str, errno: Errno },
    #[error("Standard output is closed: {0}")]
    Output(std::io::Error),
    #[error("Home breaks the protocol: {0}")]
    Protocol(String),
    #[error("Home has not been heard of for {0:.1?}")]
    Silent(Duration),
}

/// Where the frozen guest goes.
#[derive(Debug)]
enum Destination {
    Home,
    /// To the next host, over this connection and under this epoch.
    Onward(Box<Channel>, u32),
}

/// One supervisor.
#[derive(Debug)]
pub struct Supervisor {
    job: GuestJob,
    parties: Parties,
    lease: Option<Duration>,
    sandbox: Sandbox,
    reception: Reception,
    children: SignalFd,
    calls: Option<Line>,
    pages: Option<Line>,
    /// `calls` and `pages` are both connected, or were: home may begin.
    paired: bool,
    source: Option<Channel>,
    arrival: Arrival,
    guest: Option<Guest>,
    tails: Tails,
    /// Destination of a freeze that waits for answers which cannot be taken back.
    wanted: Option<Destination>,
    /// The next host, while we connect to it.
    next: Option<Next>,
    begun: Instant,
    /// What is decided about the guest; its times count from `begun`.
    stay: Stay,
    /// When the loop last looked at the clocks, and how long it has slept at most since then.
    turned: Instant,
    slept: Duration,
    /// No spinning before this moment.
    spin_after: Instant,
    /// The last answers came quickly.
    quick: bool,
    limits: Limits,
    /// When the guest's memory is to be checked again.
    memory_due: Instant,
    done: bool,
}

/// Carries a job out: from the sandbox to the end of the guest.
///
/// # Errors
/// What ended it before its time.
pub fn run(job: GuestJob, mut sandbox: Sandbox) -> Result<(), SupervisorError> {
    let credentials: Credentials =
        serde_json::from_value(job.credentials.0.clone()).map_err(SupervisorError::Credentials)?;
    let share = job.memory_share.as_deref();
    let limits = Limits::open(job.memory_limit_bytes, &job.cgroups, share);
    sandbox.enter(job.private_id, &job.cgroups)?;
    match job.private_id {
        Some(id) => credentials::become_identity(id, id, &[], &[])?,
        None => credentials::drop_all_capabilities()?,
    }
    credentials::set_dumpable(false)?;
    let children = watch_children()?;
    let parties = Parties {
        journey: job.journey.clone(),
        epoch: job.epoch,
        home: job.home.clone(),
        source: job.source.clone(),
        credentials,
    };
    let listener = inherited::listener(job.listener).map_err(ControlError::from)?;
    let reception = Reception::open(listener, parties.clone())?;
    let lease = job.lease_ms.map(Duration::from_millis);
    let mut supervisor = Supervisor {
        parties,
        lease,
        arrival: Arrival::new(job.own_vdso),
        job,
        sandbox,
        reception,
        children,
        calls: None,
        pages: None,
        paired: false,
        source: None,
        guest: None,
        tails: Tails::default(),
        wanted: None,
        next: None,
        begun: Instant::now(),
        stay: Stay::new(Duration::ZERO, lease),
        turned: Instant::now(),
        slept: Duration::ZERO,
        spin_after: Instant::now(),
        quick: true,
        limits,
        memory_due: Instant::now(),
        done: false,
    };
    writeln!(std::io::stdout(), "ready").map_err(SupervisorError::Output)?;
    let result = supervisor.serve();
    supervisor.reception.retire();
    drop(supervisor.sandbox);
    supervisor.limits.await_release();
    result
}

fn watch_children() -> Result<SignalFd, SupervisorError> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let failed = |what| move |errno| SupervisorError::Os { what, errno };
    set.thread_block().map_err(failed("Blocking SIGCHLD"))?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&set, flags).map_err(failed("signalfd"))
}

impl Supervisor {
    fn serve(&mut self) -> Result<(), SupervisorError> {
        while !self.done {
            if let Err(error) = self.turn() {
                self.fail(&error);
                return Err(error);
            }
        }
        self.farewell();
        Ok(())
    }

    /// Tells home of the error, if there is a connection.
    fn fail(&mut self, error: &SupervisorError) {
        let phase = match &self.guest {
            Some(_) => Phase::Away,
            None => Phase::Rebuild,
        };
        let message = ToHome::Failed {
            phase,
            reason: error.to_string(),
        };
        let out = Outgoing {
            message,
            tail: Vec::new(),
        };
        if let Some(calls) = &mut self.calls {
            let _ = connections::queue(calls, self.parties.epoch, &out);
        }
        self.farewell();
    }

    fn farewell(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.finish(FAREWELL);
        }
    }

    fn turn(&mut self) -> Result<(), SupervisorError> {
        self.send()?;
        let ready = self.wait()?;
        if ready.children {
            while matches!(self.children.read_signal(), Ok(Some(_))) {}
            if let Some(guest) = &mut self.guest {
                guest.reap()?;
            }
        }
        if ready.calls {
            self.read_calls()?;
        }
        if ready.source {
            self.read_source()?;
        }
        if ready.arrived {
            self.pages_arrived()?;
        }
        if ready.listener
            && let Some(guest) = &mut self.guest
        {
            guest.take_calls()?;
        }
        if ready.control {
            self.visits()?;
        }
        self.freeze_if_settled()?;
        self.refresh()?;
        self.keep_lease()?;
        self.watch_memory()?;
        self.check_end()
    }

    /// Drops pages of changed files for which no thread was to be had before.
    fn refresh(&mut self) -> Result<(), SupervisorError> {
        match &mut self.guest {
            Some(guest) => Ok(guest.refresh()?),
            None => Ok(()),
        }
    }

    /// Sends what is queued, as far as it can be written at once.
    fn send(&mut self) -> Result<(), SupervisorError> {
        let Some(calls) = &mut self.calls else {
            return Ok(());
        };
        if let Some(guest) = &mut self.guest {
            for out in guest.outbox.drain(..) {
                connections::queue(calls, self.parties.epoch, &out)?;
            }
        }
        calls.flush()?;
        Ok(())
    }

    /// Sends all that is queued before it returns.
    fn send_all(&mut self) -> Result<(), SupervisorError> {
        self.send()?;
        if let Some(calls) = &mut self.calls
            && calls.queued_bytes() > 0
        {
            let clocks = self.arrival.ahead().clocks()?;
            let heartbeat = message::encode(&ToHome::Heartbeat {
                clocks,
                used: Used::default(),
            })?;
            calls.send_now(Kind::ToHome, self.parties.epoch, &[&heartbeat], STALL_MAX)?;
        }
        Ok(())
    }

    fn say(&mut self, message: ToHome) -> Result<(), SupervisorError> {
        let calls = self
            .calls
            .as_mut()
            .ok_or_else(|| SupervisorError::Protocol("there is no connection".into()))?;
        let out = Outgoing {
            message,
            tail: Vec::new(),
        };
        connections::queue(calls, self.parties.epoch, &out)?;
        calls.flush()?;
        Ok(())
    }

    /// Waits for something to do.
    fn wait(&mut self) -> Result<Ready, SupervisorError> {
        let begun = Instant::now();
        let due = self.guest.as_ref().is_some_and(Guest::expects_answer);
        let spin = due && self.quick && begun >= self.spin_after;
        while spin && begun.elapsed() < SPIN {
            let ready = self.poll(PollTimeout::ZERO)?;
            if ready.any() {
                return Ok(ready);
            }
            let yielded = Instant::now();
            std::thread::yield_now();
            if yielded.elapsed() > YIELD_MAX {
                self.spin_after = Instant::now() + SPIN_PAUSE;
                break;
            }
        }
        self.slept = self.patience();
        let patience = PollTimeout::try_from(self.slept).unwrap_or(PollTimeout::MAX);
        let ready = self.poll(patience)?;
        if due && ready.calls {
            // After slow answers, the first quick one makes polling worthwhile again.
            self.quick = begun.elapsed() < SPIN * 4;
        }
        Ok(ready)
    }

    fn patience(&self) -> Duration {
        let left = self.stay.patience(self.begun.elapsed());
        let left = match &self.guest {
            Some(guest) => left
                .min(self.memory_due.saturating_duration_since(Instant::now()))
                .min(guest.until_end_of_wait()),
            None => left,
        };
        if self.has_frames() {
            return Duration::ZERO;
        }
        let stale = self.guest.as_ref().is_some_and(Guest::is_stale);
        let left = if stale { left.min(STALE_MAX) } else { left };
        left.max(Duration::from_millis(1))
    }

    fn poll(&self, patience: PollTimeout) -> Result<Ready, SupervisorError> {
        let queued = self
            .calls
            .as_ref()
            .is_some_and(|calls| calls.queued_bytes() > 0);
        let guest = self.guest.as_ref();
        // A full line accepts no more calls: the program waits until home has what was sent.
        let full = self.calls.as_ref().is_some_and(Line::is_full);
        // A guest that is to leave begins nothing more, because a call that has not been read yet
        // can still be taken back.
        let forwards = self.stay.may_forward() && !full && self.wanted.is_none();
        let listens = guest.filter(|guest| forwards && guest.listens());
        let calls = self.calls.as_ref();
        let watched: [Option<BorrowedFd<'_>>; 7] = [
            calls.map(AsFd::as_fd),
            self.source.as_ref().map(AsFd::as_fd),
            listens.map(|guest| guest.listener.as_fd()),
            guest.map(|guest| guest.shared.arrived.as_fd()),
            Some(self.children.as_fd()),
            Some(self.reception.as_fd()),
            calls.map(Line::door),
        ];
        let mut set = Vec::with_capacity(watched.len());
        let mut places = [None; 7];
        for ((index, fd), place) in watched.iter().enumerate().zip(&mut places) {
            let Some(fd) = fd else { continue };
            let mut events = PollFlags::POLLIN;
            if index == 0 && queued {
                events |= PollFlags::POLLOUT;
            }
            *place = Some(set.len());
            set.push(PollFd::new(*fd, events));
        }
        match poll(&mut set, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(SupervisorError::Os {
                    what: "poll",
                    errno,
                });
            }
        }
        let is = |at: Option<usize>| {
            let events = at.and_then(|at| set[at].revents());
            events.is_some_and(|events| !events.is_empty())
        };
        let backlog = listens.is_some_and(|guest| !guest.backlog.is_empty());
        let waiting = self.has_frames();
        Ok(Ready {
            calls: is(places[0]) || is(places[6]) || waiting,
            source: is(places[1]),
            listener: is(places[2]) || backlog,
            arrived: is(places[3]),
            children: is(places[4]),
            control: is(places[5]),
        })
    }

    fn read_calls(&mut self) -> Result<(), SupervisorError> {
        let Some(calls) = &mut self.calls else {
            return Ok(());
        };
        let state = calls.receive()?;
        while self.paired
            && let Some(frame) = self.calls.as_mut().and_then(Line::next_frame)
        {
            self.frame(frame)?;
            if self.done {
                return Ok(());
            }
            // If home wants the guest, the guest must be frozen before it learns a result that
            // comes behind that request, because home may have made the request for what has
            // changed meanwhile.
            self.freeze_if_settled()?;
        }
        if state == Received::Closed {
            return self.deserted();
        }
        Ok(())
    }

    /// Whether home has sent frames that have not been handled. Frames that come before both
    /// connections are there wait for the other connection.
    fn has_frames(&self) -> bool {
        self.paired && self.calls.as_ref().is_some_and(Line::has_frames)
    }

    /// Home has closed a connection. A guest that has been sent away is not needed any more; its
    /// `Discard` may have been lost.
    fn deserted(&mut self) -> Result<(), SupervisorError> {
        if self
            .guest
            .as_ref()
            .is_some_and(|guest| guest.holds.move_away)
        {
            self.done = true;
            return Ok(());
        }
        Err(ChannelError::Closed.into())
    }

    fn frame(&mut self, frame: Frame) -> Result<(), SupervisorError> {
        if frame.epoch != self.parties.epoch {
            tracing::warn!(epoch = frame.epoch, "a frame of another stay is refused");
            return Ok(());
        }
        match frame.kind {
            Kind::Image => self.image_piece(&frame.payload),
            Kind::Pages => self.pages(&frame.payload),
            Kind::Data => Ok(self.tails.add(&frame.payload)?),
            Kind::ToGuest => {
                let (message, tail) = message::decode::<ToGuest>(&frame.payload)?;
                self.message(message, tail)
            }
            kind => Err(SupervisorError::Protocol(format!(
                "a frame of kind {kind:?}"
            ))),
        }
    }

    fn image_piece(&mut self, payload: &[u8]) -> Result<(), SupervisorError> {
        let heartbeat = self.heartbeat();
        let pieces = self.arrival.pieces_to_come();
        let arrival = &mut self.arrival;
        let image =
            heartbeat.meanwhile(&mut self.calls, pieces, || arrival.image_piece(payload))?;
        let Some(image) = image else {
            return Ok(());
        };
        let (epoch, pieces) = (self.parties.epoch, image.pieces());
        let (arrival, pages) = (&mut self.arrival, &mut self.pages);
        let map = || arrival.map(image, pages, epoch);
        Ok(heartbeat.meanwhile(&mut self.calls, pieces, map)?)
    }

    /// Thousands of such frames may have come at once: home hears of us in between.
    fn pages(&mut self, payload: &[u8]) -> Result<(), SupervisorError> {
        self.arrival.pages(payload)?;
        if self.stay.beats(self.begun.elapsed()) && self.is_connected() {
            self.report()?;
        }
        Ok(())
    }

    fn message(&mut self, message: ToGuest, tail: &[u8]) -> Result<(), SupervisorError> {
        match message {
            ToGuest::Ping => {
                let clocks = Ahead::default().clocks()?;
                self.say(ToHome::Pong { clocks })
            }
            ToGuest::Prepare {
                pid,
                own_pid,
                uid,
                clocks,
                lease_ms,
                ..
            } => {
                self.lease = lease_ms.map(Duration::from_millis).or(self.lease);
                self.stay.set_lease(self.lease);
                for line in [&mut self.calls, &mut self.pages].into_iter().flatten() {
                    line.set_lease(self.lease.map(|lease| lease * 2));
                }
                // Before the guest's own first thread is there.
                let allowance = allowance::of(&self.job.cgroups);
                let ids = (pid, own_pid, uid);
                self.arrival.prepare(&mut self.sandbox, ids, &clocks)?;
                self.say(ToHome::Prepared { allowance })
            }
            ToGuest::Complete { .. } => self.complete(),
            ToGuest::Commit { .. } => self.decide(StayEvent::Commit),
            ToGuest::Acknowledged => self.decide(StayEvent::Acknowledged),
            ToGuest::Resume => self.decide(StayEvent::Resume),
            ToGuest::Heartbeat { .. } => Ok(()),
            ToGuest::Discard | ToGuest::Ended => self.decide(StayEvent::Dismissed),
            ToGuest::Freeze => {
                self.wanted = Some(Destination::Home);
                Ok(())
            }
            ToGuest::Onward {
                addresses,
                server_name,
                node,
                epoch,
                allowance,
            } => {
                let next = Next {
                    addresses,
                    server_name,
                    node,
                    epoch,
                };
                self.connect_onward(next, allowance)
            }
            other => self.guest_message(other, tail),
        }
    }

    /// Messages that need a guest.
    fn guest_message(&mut self, message: ToGuest, tail: &[u8]) -> Result<(), SupervisorError> {
        let Some(guest) = &mut self.guest else {
            return Err(SupervisorError::Protocol("there is no guest yet".into()));
        };
        match message {
            ToGuest::Reply {
                tid,
                sequence,
                result,
                outputs,
                mapping,
            } => {
                let tail = self.tails.finish(tid, tail);
                guest.replied(&Reply {
                    tid,
                    sequence,
                    result,
                    outputs,
                    mapping,
                    tail,
                })?;
            }
            ToGuest::FileChanged { mapping, backed } => guest.file_changed(mapping, backed),
            ToGuest::Signal { tid, signal, info } => guest.signal(tid, signal, &info)?,
            ToGuest::Stop => {
                guest.holds.stopped = true;
                guest.interrupt_all()?;
            }
            ToGuest::Continue => guest.goes_on()?,
            ToGuest::Frozen { frozen } => guest.stands_still(frozen)?,
            ToGuest::Priority { tid, policy, nice } => {
                guest.set_priority(tid, Priority { policy, nice });
            }
            other => return Err(SupervisorError::Protocol(format!("{other:?}"))),
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), SupervisorError> {
        let (heartbeat, pieces) = (self.heartbeat(), self.arrival.pieces());
        let complete = || self.arrival.complete();
        heartbeat.meanwhile(&mut self.calls, pieces, complete)?;
        self.source = None;
        let bytes = self.arrival.bytes();
        self.say(ToHome::Ready { bytes })
    }

    fn start(&mut self) -> Result<(), SupervisorError> {
        let (heartbeat, pieces) = (self.heartbeat(), self.arrival.pieces());
        let commit = || self.arrival.commit(self.parties.epoch);
        let mut guest = heartbeat.meanwhile(&mut self.calls, pieces, commit)?;
        guest.numbers = Some(self.sandbox.numbers()?);
        // Thousands of threads that run leave us no CPU to say so within the lease.
        let many = guest.threads.len() > FEW_THREADS;
        if !many {
            guest.resume()?;
        }
        self.guest = Some(guest);
        let clocks = self.arrival.ahead().clocks()?;
        self.say(ToHome::Started { clocks })?;
        if let Some(guest) = self.guest.as_mut().filter(|_| many) {
            heartbeat.meanwhile(&mut self.calls, pieces, || guest.resume())?;
        }
        whim_sys::heap::give_back();
        Ok(())
    }

    /// Reads frames from the guest being left, if the process comes from another host.
    fn read_source(&mut self) -> Result<(), SupervisorError> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let state = source.receive()?;
        while let Some(source) = &mut self.source
            && let Some(frame) = source.next_frame()?
        {
            if frame.epoch != self.parties.epoch {
                continue;
            }
            match frame.kind {
                Kind::Image => self.image_piece(&frame.payload)?,
                Kind::Pages => self.pages(&frame.payload)?,
                Kind::ToHome => match message::decode::<ToHome>(&frame.payload)?.0 {
                    ToHome::Complete => self.complete()?,
                    other => return Err(SupervisorError::Protocol(format!("{other:?}"))),
                },
                kind => {
                    return Err(SupervisorError::Protocol(format!(
                        "a frame of kind {kind:?}"
                    )));
                }
            }
        }
        if state == Received::Closed && self.source.is_some() {
            return Err(SupervisorError::Protocol(
                "the guest being left has closed its connection".into(),
            ));
        }
        Ok(())
    }

    fn pages_arrived(&mut self) -> Result<(), SupervisorError> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        match guest.shared.take_arrived() {
            Ok(()) => Ok(guest.decide_again()?),
            Err(_) if guest.holds.move_away => self.deserted(),
            Err(reason) => Err(SupervisorError::Pager(reason)),
        }
    }

    /// Handles home's silence, heartbeats, and all that waits for a point in time.
    fn keep_lease(&mut self) -> Result<(), SupervisorError> {
        if let Some(guest) = &mut self.guest {
            guest.end_waits()?;
            guest.queue_what_waits()?;
        }
        let turned = std::mem::replace(&mut self.turned, Instant::now());
        let duration = (self.turned - turned).saturating_sub(std::mem::take(&mut self.slept));
        if let Some(heard) = self.calls.as_ref().map(Line::heard) {
            let at = heard.saturating_duration_since(self.begun);
            self.decide(StayEvent::Heard { at })?;
        }
        self.decide(StayEvent::Connected(self.is_connected()))?;
        self.decide(StayEvent::Stalled { duration })?;
        self.decide(StayEvent::Tick)
    }

    fn is_connected(&self) -> bool {
        self.calls.as_ref().is_some_and(Line::is_connected)
    }

    /// Does what the state of the stay demands after this event.
    fn decide(&mut self, event: StayEvent) -> Result<(), SupervisorError> {
        for action in self.stay.handle(self.begun.elapsed(), event) {
            match action {
                Action::Start => self.start()?,
                // From now on `look` lets calls be read.
                Action::Flow => {}
                Action::Hold => self.hold(true)?,
                Action::Release => self.hold(false)?,
                Action::Thaw => self.thaw()?,
                Action::Beat if self.is_connected() => self.report()?,
                Action::Beat => {}
                Action::End => self.done = true,
                Action::Desert { silent } => return Err(SupervisorError::Silent(silent)),
                Action::Refuse => {
                    return Err(SupervisorError::Protocol(format!(
                        "{event:?} has no place here"
                    )));
                }
            }
        }
        Ok(())
    }

    fn hold(&mut self, hold: bool) -> Result<(), SupervisorError> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        tracing::warn!(hold, "home's silence");
        guest.holds.lease = hold;
        Ok(guest.hold(hold)?)
    }

    /// The move for which the guest was frozen has failed.
    fn thaw(&mut self) -> Result<(), SupervisorError> {
        (self.wanted, self.next) = (None, None);
        if let Some(guest) = &mut self.guest {
            guest.holds.memory = false;
            guest.holds.pressure = false;
            guest.thaw()?;
        }
        Ok(())
    }

    fn report(&mut self) -> Result<(), SupervisorError> {
        let clocks = self.arrival.ahead().clocks()?;
        // While a guest is on its way in, home is told how much of it has come, and so sees whether
        // it is being sent.
        let used = match &mut self.guest {
            Some(guest) => {
                guest.tell_title();
                guest.used()
            }
            None => Used {
                resident_bytes: self.arrival.bytes(),
                ..Used::default()
            },
        };
        self.say(ToHome::Heartbeat { clocks, used })
    }

    /// Handles the end of a guest. If it has ended without an order of home, it was killed here; by
    /// our own pager, if the pager has failed.
    fn check_end(&mut self) -> Result<(), SupervisorError> {
        let Some(guest) = self.guest.as_ref().filter(|guest| guest.gone) else {
            return Ok(());
        };
        if self.done {
            return Ok(());
        }
        if !guest.holds.move_away {
            // The guest's death may be seen before or after the pager's report.
            guest
                .shared
                .take_arrived()
                .map_err(SupervisorError::Pager)?;
        }
        tracing::warn!("the guest was killed");
        self.done = true;
        Ok(())
    }
}

/// What has something to read.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    calls: bool,
    source: bool,
    listener: bool,
    arrived: bool,
    children: bool,
    control: bool,
}

impl Ready {
    fn any(self) -> bool {
        self.calls || self.source || self.listener || self.arrived || self.children || self.control
    }
}
