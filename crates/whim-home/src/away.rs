//! While the process is away: one loop over the guest's frames, the deputy's stops and commands.

mod commands;
mod files;
mod frozen_group;
mod job_control;
mod lines;
mod memory;
mod onward;
mod priorities;
mod recall;
mod reports;
mod requests;
mod watch;

use crate::client::Client;
use crate::company::Lent;
use crate::connections::clocks;
use crate::convert::Original;
use crate::deputy::DeputyEvent;
use crate::held::HeldSignal;
use crate::holding::Holding;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::moving::Transition;
use crate::room::Reserve;
use crate::server::{Outgoing, ServeError, Server};
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use whim_journey::frame::{Frame, Kind};
use whim_journey::job::{Event, Phase};
use whim_journey::lease::{Action as WatchAction, Event as WatchEvent, Watch};
use whim_journey::message::{self, PageRequest, Tails, ToGuest, ToHome};
use whim_journey::recall::{Event as RecallEvent, Recall};
use whim_model::{CpuTime, MappingId};
use whim_net::{Line, Received};
use whim_sys::spin::Spin;
use whim_sys::watched::WatchedFiles;

/// What is to be told once the process is home.
#[derive(Debug, Default)]
pub(crate) struct Homecoming {
    pub holding: Holding,
    pub clients: Vec<Client>,
    pub report: Option<whim_journey::job::MoveReport>,
    /// Given up last, because the kernel takes up to 15 ms to close what tells of changes.
    pub files: Option<WatchedFiles>,
}

/// How the stay ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The process runs at home; some threads may be held until their call ends.
    Home(Box<Homecoming>),
    /// It ended by itself.
    Gone,
    /// Host or guest are lost: the process is to be ended.
    Lost(String),
}

/// Within this time the kernel reports the end of a process that was found to be ending.
const DEPUTY_ENDS_WITHIN: Duration = Duration::from_millis(200);
/// Most events of the deputy in one turn. It may have tens of thousands of signals, and the host is to hear from us.
const EVENTS_IN_A_TURN: u32 = 256;

/// The answer to clients that want to move a process that moves.
const MOVING: &str = "The process is moving already; try again when it has arrived";

const STOPS: u64 = 0;
const CALLS: u64 = 1;
const PAGES: u64 = 2;
const COMMANDS: u64 = 3;
const NEXT_CALLS: u64 = 4;
const FILES: u64 = 5;

/// One stay away.
#[derive(Debug)]
pub(crate) struct Away {
    server: Server,
    connections: Lent,
    original: Original,
    tails: Tails,
    held: Vec<HeldSignal>,
    /// Results of calls that have brought a signal which is held: the program may not see the one before the other.
    withheld: Vec<Outgoing>,
    transition: Option<Transition>,
    moves: u32,
    epoll: Option<Epoll>,
    /// Watches the lease; its times are counted from `begun`.
    watch: Watch,
    begun: Instant,
    lease: Option<Duration>,
    /// How long a return may take, by the same clock.
    recall: Recall,
    /// The client that waits for the return from a host that was removed.
    evicting: Option<Client>,
    /// When the loop last stopped waiting.
    awake: Instant,
    /// The guest met something that only home can do, while it was moving.
    wants_home: Option<String>,
    /// Why the return has to wait.
    lacks_memory: Option<String>,
    /// Home refused its many mappings: when that turned out, and how many they are.
    excess: Option<(Instant, u64)>,
    /// CPU time that the process has used away.
    cpu_away: CpuTime,
    /// As in [`whim_journey::job::Status`].
    busy_ns: u64,
    counted_ms: u64,
    resident_bytes: u64,
    /// How far the guest's clock was ahead of ours, by its last report.
    clock_ahead: Duration,
    stopped: bool,
    /// The deputy has more events than were handled in this turn.
    has_events: bool,
    /// Whether a frozen control group holds the process.
    group: frozen_group::Group,
    /// The whole image is here, but job control has stopped the process, or its control group is frozen: it
    /// goes on at home when that is over.
    home_waits: bool,
    spin: Spin,
    finish: Option<Ending>,
    /// Dropped with the stay, when the process is home or gone.
    files: WatchedFiles,
    /// Whether the first notice of a change of a mapped file was acted upon.
    heard_of_files: bool,
    looked_at_files: Instant,
    /// The kernel tells of changes of files.
    has_notices: bool,
    /// Mappings whose files have changed, until the guest is told.
    unsaid: BTreeSet<MappingId>,
    /// When it was last told.
    said: Instant,
    reserve: Reserve,
}

impl Away {
    #[must_use]
    pub(crate) fn new(
        server: Server,
        connections: Lent,
        original: Original,
        (files, reserve): (WatchedFiles, Reserve),
        lease: Option<Duration>,
    ) -> Self {
        let (mappings, threads) = (original.mappings.len(), original.threads.len());
        Self {
            server,
            connections,
            original,
            tails: Tails::default(),
            held: Vec::new(),
            withheld: Vec::new(),
            transition: None,
            moves: 1,
            epoll: None,
            watch: Watch::new(Duration::ZERO, lease),
            begun: Instant::now(),
            lease,
            recall: Recall::new(lease).of_size(mappings, threads),
            evicting: None,
            awake: Instant::now(),
            wants_home: None,
            lacks_memory: None,
            excess: None,
            cpu_away: CpuTime::default(),
            busy_ns: 0,
            counted_ms: 0,
            resident_bytes: 0,
            clock_ahead: Duration::ZERO,
            stopped: false,
            has_events: false,
            group: frozen_group::Group::default(),
            home_waits: false,
            spin: Spin::default(),
            finish: None,
            files,
            heard_of_files: false,
            looked_at_files: Instant::now(),
            has_notices: true,
            unsaid: BTreeSet::new(),
            said: Instant::now(),
            reserve,
        }
    }

    /// Serves until the process is home or gone.
    ///
    /// # Errors
    /// Nothing that concerns the process: only epoll and the like.
    pub(crate) fn run(
        mut self,
        identity: &Identity,
        listener: &UnixListener,
        journal: &mut Journal,
    ) -> Result<Ending> {
        whim_sys::heap::give_back();
        self.follow_files();
        let stops = watch_children()?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&stops, EpollEvent::new(EpollFlags::EPOLLIN, STOPS))?;
        epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, COMMANDS))?;
        if let Some(notices) = self.files.notices() {
            epoll.add(notices, EpollEvent::new(EpollFlags::EPOLLIN, FILES))?;
        }
        lines::begin(&epoll, &mut self.connections.calls, CALLS)?;
        lines::begin(&epoll, &mut self.connections.pages, PAGES)?;
        self.epoll = Some(epoll);
        self.watch.begin(self.begun.elapsed());
        loop {
            if let Err(error) = self.turn(&stops, identity, listener, journal) {
                let reason = format!("The journey broke: {error:#}");
                // What fails in a process that ends by itself says nothing about the journey.
                let ended = self.server.deputy.await_end(DEPUTY_ENDS_WITHIN);
                self.finish = Some(if ended {
                    Ending::Gone
                } else {
                    Ending::Lost(reason)
                });
            }
            if let Some(ending) = self.finish.take() {
                self.conclude(&ending, identity, journal)?;
                if matches!(ending, Ending::Home(_)) {
                    return self.come_home(identity, journal);
                }
                return Ok(ending);
            }
        }
    }

    fn turn(
        &mut self,
        stops: &SignalFd,
        identity: &Identity,
        listener: &UnixListener,
        journal: &mut Journal,
    ) -> Result<()> {
        // The guest must be told to come home before it gets a result that makes it look for what was
        // written.
        self.hear_of_files()?;
        // Trap: a-changed-file-shows-old-pages
        self.tell_of_written()?;
        if let Some(reason) = self.server.wants_home.take() {
            self.begin_homeward(None, reason.into())?;
        }
        self.send_all()?;
        let mut events = [EpollEvent::empty(); 8];
        let timeout = u16::try_from(self.patience().as_millis()).unwrap_or(u16::MAX);
        let asleep = Instant::now();
        let count = self.wait(&mut events, timeout)?;
        self.excuse(
            asleep
                .elapsed()
                .saturating_sub(Duration::from_millis(timeout.into())),
        );
        self.awake = Instant::now();
        if count > 0 {
            self.spin.worked();
        }
        for event in &events[..count] {
            match event.data() {
                STOPS => Self::read_signals(stops)?,
                CALLS => self.read_calls(identity)?,
                PAGES => self.read_pages()?,
                COMMANDS => self.read_commands(identity, listener)?,
                NEXT_CALLS => self.read_next(journal)?,
                FILES => self.has_notices = true,
                _ => {}
            }
        }
        self.keep_lines()?;
        // A line that is over and has no connection has nothing left by which it could show that.
        if self.connections.calls.has_frames() || self.connections.calls.is_over() {
            self.read_calls(identity)?;
        }
        if self.connections.pages.has_frames() || self.connections.pages.is_over() {
            self.read_pages()?;
        }
        if self.next_is_over() {
            self.read_next(journal)?;
        }
        self.deputy_events()?;
        self.server.expire()?;
        self.excuse(self.awake.elapsed());
        self.keep_lease()?;
        self.watch_group()?;
        self.look_at_files()?;
        self.check_transition(identity, journal)
    }

    /// Time in which we did not listen does not count as silence of the host.
    fn excuse(&mut self, duration: Duration) {
        let at = self
            .connections
            .heard()
            .saturating_duration_since(self.begun);
        for event in [WatchEvent::Heard { at }, WatchEvent::Stalled { duration }] {
            let _ = self.watch.handle(self.begun.elapsed(), event).count();
        }
        self.recall(RecallEvent::Stalled { duration });
    }

    /// SIGCHLD says no more than that something happened.
    fn read_signals(stops: &SignalFd) -> Result<()> {
        while stops.read_signal()?.is_some() {}
        Ok(())
    }

    fn wait(&mut self, events: &mut [EpollEvent], timeout: u16) -> Result<usize> {
        let epoll = self.epoll.as_ref().context("epoll")?;
        loop {
            let again = self.spin.once_more();
            let patience = if again {
                EpollTimeout::ZERO
            } else {
                EpollTimeout::from(timeout)
            };
            match epoll.wait(events, patience) {
                Ok(0) if again => {}
                Ok(count) => return Ok(count),
                Err(nix::errno::Errno::EINTR) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How long the loop may sleep.
    fn patience(&self) -> Duration {
        if self.connections.calls.queued_bytes() + self.connections.pages.queued_bytes() > 0 {
            return Duration::from_millis(1);
        }
        let polls = match &self.transition {
            Some(Transition::Connecting(_)) => true,
            Some(Transition::Onward(onward)) => onward.waits_for_journal(),
            _ => false,
        };
        if polls {
            return Duration::from_millis(2);
        }
        let work = |line: &Line| line.has_frames() && !line.is_full();
        if work(&self.connections.calls) || work(&self.connections.pages) || self.has_events {
            return Duration::ZERO;
        }
        let left = self.watch.patience(self.begun.elapsed());
        let left = left.min(self.server.until_expiry());
        let left = left.min(self.until_files_are_looked_at());
        let left = left.min(self.until_said());
        let left = left.min(self.until_group_is_watched());
        let left = left.min(self.until_cut());
        left.max(Duration::from_millis(1))
    }

    fn send_all(&mut self) -> Result<()> {
        let outgoing = std::mem::take(&mut self.server.outgoing);
        for out in outgoing {
            self.connections.queue(&out.message, &out.tail)?;
        }
        if self.server.priorities_changed || self.connections.told.is_empty() {
            self.tell_priorities()?;
        }
        self.connections.calls.flush()?;
        self.connections.pages.flush()?;
        Ok(())
    }

    /// Does what is due by the lease: notices silence, sends heartbeats.
    fn keep_lease(&mut self) -> Result<()> {
        self.look_at_return()?;
        for action in self.watch.handle(self.begun.elapsed(), WatchEvent::Tick) {
            match action {
                WatchAction::Beat => self.beat()?,
                WatchAction::GiveUp { .. } if self.home_waits => {}
                WatchAction::GiveUp { silent } => bail!(
                    "The host {} has not been heard of for {silent:.1?}",
                    self.connections.node
                ),
            }
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<()> {
        let clocks = clocks();
        if self.connections.calls.is_connected() {
            self.connections
                .queue(&ToGuest::Heartbeat { clocks }, &[])?;
        }
        // Another process may have changed them (`renice`).
        self.tell_priorities()?;
        self.try_home_again()?;
        self.tell_evicting();
        if let Some(Transition::Onward(onward)) = &mut self.transition {
            onward
                .connections
                .queue(&ToGuest::Heartbeat { clocks }, &[])?;
            onward.connections.calls.flush()?;
        }
        Ok(())
    }

    fn read_calls(&mut self, identity: &Identity) -> Result<()> {
        let state = self.connections.calls.receive()?;
        // Accept no more work than the line can keep results of; the guest's further calls wait meanwhile.
        while !self.connections.calls.is_full()
            && let Some(frame) = self.connections.calls.next_frame()
        {
            self.frame(frame, identity)?;
            if self.finish.is_some() {
                return Ok(());
            }
        }
        if matches!(state, Received::Closed) && !self.home_waits {
            bail!(
                "The host {} has closed the connection",
                self.connections.node
            );
        }
        Ok(())
    }

    fn frame(&mut self, frame: Frame, identity: &Identity) -> Result<()> {
        if frame.epoch != self.connections.epoch {
            tracing::warn!("A frame of epoch {} is refused", frame.epoch);
            return Ok(());
        }
        match frame.kind {
            Kind::Data => Ok(self.tails.add(&frame.payload)?),
            Kind::ToHome => {
                let (message, tail) = message::decode::<ToHome>(&frame.payload)?;
                self.message(message, tail, identity)
            }
            Kind::Image | Kind::Pages => self.returning(&frame),
            _ => bail!("A frame of kind {:?} has no place here", frame.kind),
        }
    }

    fn message(&mut self, message: ToHome, tail: &[u8], identity: &Identity) -> Result<()> {
        match message {
            ToHome::ProcessExit {
                tid,
                code,
                cpu_away,
            } => {
                self.used(cpu_away);
                self.server.process_exit(tid, code)?;
            }
            ToHome::GoHome { tid, reason } => {
                tracing::info!("Thread {tid} goes home: {reason}");
                self.begin_homeward(None, reason)?;
            }
            ToHome::DefaultStop { .. } => self.default_stop(&message)?,
            ToHome::Complete => self.completed()?,
            ToHome::Failed { phase, reason } => self.guest_failed(phase, &reason)?,
            ToHome::Heartbeat { .. } => self.heartbeat(&message),
            ToHome::Pong { .. }
            | ToHome::Prepared { .. }
            | ToHome::Ready { .. }
            | ToHome::Started { .. } => {
                let journey = &identity.job.journey;
                bail!("{message:?} does not belong here ({journey})")
            }
            request if self.does(&request, tail) => {
                self.accompanied(|away| away.request(request, tail))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn read_pages(&mut self) -> Result<()> {
        let state = self.connections.pages.receive()?;
        while !self.connections.pages.is_full()
            && let Some(frame) = self.connections.pages.next_frame()
        {
            if frame.kind != Kind::PageRequest || frame.epoch != self.connections.epoch {
                continue;
            }
            let epoch = frame.epoch;
            let (request, _) = message::decode::<PageRequest>(&frame.payload)?;
            let id = request.request.to_le_bytes();
            match self.server.pages(request) {
                Ok(bytes) => {
                    let parts: [&[u8]; 3] = [&id, &[0; 8], &bytes];
                    self.connections.pages.queue(Kind::PageReply, epoch, &parts);
                }
                Err(errno) => {
                    let mut status = [0; 8];
                    status[..4].copy_from_slice(&(errno as i32).to_le_bytes());
                    self.connections
                        .pages
                        .queue(Kind::PageReply, epoch, &[&id, &status]);
                }
            }
        }
        self.connections.pages.flush()?;
        if matches!(state, Received::Closed) && self.transition.is_none() {
            bail!(
                "The host {} has closed the page connection",
                self.connections.node
            );
        }
        Ok(())
    }

    fn deputy_events(&mut self) -> Result<()> {
        let mut left = EVENTS_IN_A_TURN;
        self.has_events = false;
        while !self.connections.calls.is_full()
            && let Some(event) = self.server.deputy.next_event()?
        {
            left -= 1;
            self.has_events = left == 0;
            match event {
                DeputyEvent::Finished(seat) => {
                    let before = self.server.outgoing.len();
                    self.accompanied(|away| away.server.finished(seat))?;
                    if self.held.iter().any(|held| held.seat == seat) {
                        self.withheld.extend(self.server.outgoing.drain(before..));
                    }
                }
                DeputyEvent::Signal { seat, signal, info } => {
                    self.server.interrupted_by(seat, signal);
                    let transition = self.transition.as_ref();
                    let signal = self.server.held(seat, signal, info);
                    if transition.is_some_and(Transition::holds_signals) {
                        self.held.push(signal);
                    } else {
                        self.server.signal(signal);
                    }
                }
                DeputyEvent::GroupStop(_) => self.stopped()?,
                DeputyEvent::GroupContinue => self.continued()?,
                DeputyEvent::ThreadGone(_) => {}
                DeputyEvent::ProcessGone(_) => {
                    self.finish = Some(Ending::Gone);
                    return Ok(());
                }
            }
            if self.has_events {
                break;
            }
        }
        Ok(())
    }

    fn conclude(
        &mut self,
        ending: &Ending,
        identity: &Identity,
        journal: &mut Journal,
    ) -> Result<()> {
        if matches!(ending, Ending::Lost(_)) {
            // This comes first, so that what is in flight in the deputy has no effect any more.
            identity.subject.end();
        }
        journal.note_soon(&Event::Calls {
            calls: self.server.counts(),
        });
        let time = self.cpu_away;
        journal.note_soon(&Event::CpuAway { time });
        let last = match ending {
            Ending::Home(_) => {
                self.note_homeward(journal);
                return Ok(());
            }
            Ending::Gone => (ToGuest::Ended, "It ended while it was away".to_owned()),
            Ending::Lost(reason) => (ToGuest::Discard, reason.clone()),
        };
        if self.connections.queue(&last.0, &[]).is_ok() {
            let _ = self.connections.calls.flush();
        }
        if let Some(Transition::Homeward(homeward)) = &mut self.transition
            && let Some(client) = &mut homeward.client
        {
            client.refuse(last.1.clone());
        }
        if let Some(client) = &mut self.evicting {
            client.refuse(last.1.clone());
        }
        journal.commit(&Event::Ended {
            reason: last.1,
            status: None,
        })?;
        Ok(())
    }

    fn note_homeward(&self, journal: &mut Journal) {
        if let Some(Transition::Homeward(homeward)) = &self.transition {
            let reason = homeward.reason.clone();
            journal.note_soon(&Event::Homeward { reason });
        }
    }

    fn release_held(&mut self) {
        for held in std::mem::take(&mut self.held) {
            self.server.signal(held);
        }
        self.server.outgoing.append(&mut self.withheld);
    }

    fn guest_failed(&mut self, phase: Phase, reason: &str) -> Result<()> {
        match self.transition.take() {
            Some(Transition::Onward(onward)) => {
                self.onward_failed(*onward, &format!("{phase}: {reason}"))
            }
            Some(Transition::Homeward(mut homeward)) if phase != Phase::Onward => {
                if homeward.begun_restoring() {
                    return Err(anyhow!(
                        "The guest could not be sent home ({phase}): {reason}"
                    ));
                }
                if let Some(client) = &mut homeward.client {
                    client.refuse(format!("{phase}: {reason}"));
                }
                self.return_failed(reason);
                self.say_unsaid()?;
                self.connections.queue(&ToGuest::Resume, &[])?;
                self.release_held();
                Ok(())
            }
            other => {
                self.transition = other;
                if phase == Phase::Onward {
                    // We have given up that move already, because the next host was lost to us as well.
                    return Ok(());
                }
                Err(anyhow!("The guest failed ({phase}): {reason}"))
            }
        }
    }

    fn check_transition(&mut self, identity: &Identity, journal: &mut Journal) -> Result<()> {
        if let Some(Transition::Connecting(connecting)) = &mut self.transition
            && let Some(connected) = connecting.poll()
        {
            let Some(Transition::Connecting(connecting)) = self.transition.take() else {
                return Ok(());
            };
            let (slot, mut client) = connecting.into_parts();
            match connected {
                Ok(connections) => match self.stays() {
                    Some(reason) => client.refuse(reason),
                    None => self.begin_onward(slot, connections, client, identity)?,
                },
                Err(reason) => client.refuse(reason),
            }
        }
        let Some(Transition::Onward(mut onward)) = self.transition.take_if(is_onward) else {
            return Ok(());
        };
        match onward.tick(&mut self.connections, journal) {
            Ok(()) => {
                self.transition = Some(Transition::Onward(onward));
                Ok(())
            }
            Err(error) => self.onward_failed(*onward, &format!("{error:#}")),
        }
    }

    /// Finishes the return: the whole image is here, and the process goes on at home.
    fn come_home(mut self, identity: &Identity, journal: &mut Journal) -> Result<Ending> {
        let Some(Transition::Homeward(homeward)) = self.transition.take() else {
            bail!("The process is not on its way home");
        };
        let from = self.connections.node.clone();
        let (server, original, held) = (self.server, &self.original, &mut self.held);
        let pieces = homeward.pieces();
        let finished = self
            .connections
            .meanwhile(pieces, || homeward.finish(server, original, held, journal));
        match finished {
            Ok(arrival) => {
                let time = arrival.cpu_away;
                journal.note_soon(&Event::CpuAway { time });
                self.connections.queue(&ToGuest::Discard, &[])?;
                let _ = self.connections.calls.flush();
                let to = identity.job.node.clone();
                let report = whim_journey::job::MoveReport {
                    from,
                    to,
                    ..arrival.report
                };
                journal.note(&Event::Done {
                    report: report.clone(),
                });
                let clients = arrival.client.into_iter().chain(self.evicting);
                Ok(Ending::Home(Box::new(Homecoming {
                    holding: arrival.holding,
                    clients: clients.collect(),
                    report: Some(report),
                    files: Some(self.files),
                })))
            }
            Err(error) => {
                let reason = format!("The process could not be resumed at home: {error:#}");
                identity.subject.end();
                if let Some(client) = &mut self.evicting {
                    client.refuse(reason.clone());
                }
                let _ = self.connections.queue(&ToGuest::Discard, &[]);
                let _ = self.connections.calls.flush();
                journal.commit(&Event::Ended {
                    reason: reason.clone(),
                    status: None,
                })?;
                Ok(Ending::Lost(reason))
            }
        }
    }
}

fn is_onward(transition: &mut Transition) -> bool {
    matches!(transition, Transition::Onward(_))
}

fn watch_children() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

impl From<ServeError> for Ending {
    fn from(error: ServeError) -> Self {
        Self::Lost(error.to_string())
    }
}
