//! Moves that begin away: onward to another host, and home.

use crate::client::Client;
use crate::connections::{Connections, clocks};
use crate::convert::Original;
use crate::held::HeldSignal;
use crate::holding::Holding;
use crate::homeward;
use crate::identity::{Identity, durations};
use crate::journal::{Journal, Syncing};
use crate::locks;
use crate::progress::Progress;
use crate::room;
use crate::server::Server;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use whim_image::ticks;
use whim_journey::commit::{Action, Event as MoveEvent, Limits, Move, Step};
use whim_journey::frame::{Frame, Kind};
use whim_journey::job::{Event, MoveReport, Phase, Slot};
use whim_journey::message::{self, Allowance, ToGuest, ToHome};
use whim_model::{Clocks, CpuTime, PAGE_SIZE, ProcessImage};
use whim_net::Received;
use whim_sys::foreign::Limit;
use whim_sys::{crash, pulse};

/// Longest image, in bytes (a thousand threads with all registers).
const IMAGE_MAX: usize = 64 << 20;
const UNWRITABLE: &str = "The journal cannot be written (free space on its disk)";
/// A wait for home's clock that is longer than this is announced beforehand.
const CLOCK_WAIT_UNSAID: Duration = Duration::from_millis(100);
/// The longest wait for home's clock, unless the lease is shorter. Clocks that run at almost the same pace
/// are never so far apart, and what a host says of its own clock may be a lie.
const CLOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// What is under way.
#[derive(Debug)]
pub(crate) enum Transition {
    Connecting(Box<Connecting>),
    Onward(Box<Onward>),
    Homeward(Box<Homeward>),
}

impl Transition {
    /// Whether the guest may be frozen, so that signals are kept for its next place.
    #[must_use]
    pub(crate) fn holds_signals(&self) -> bool {
        match self {
            Self::Connecting(_) => false,
            Self::Onward(onward) => onward.going.step() != Step::Preparing,
            Self::Homeward(_) => true,
        }
    }
}

/// Connections to the next host are made by a thread of their own, because a host that does not answer must
/// not keep us from serving the guest. (The thread does nothing else; all tracing stays with us.)
#[derive(Debug)]
pub(crate) struct Connecting {
    slot: Slot,
    client: Client,
    connected: Receiver<Result<Connections, String>>,
}

impl Connecting {
    #[must_use]
    pub(crate) fn begin(identity: &Identity, slot: Slot, client: Client) -> Self {
        let (sender, connected) = channel();
        let journey = identity.job.journey.clone();
        let (credentials, lease) = (identity.credentials.clone(), identity.lease);
        let target = slot.clone();
        std::thread::spawn(move || {
            let connections = Connections::connect(&journey, &target, &credentials, lease);
            // Nobody waits any more if the process has ended.
            let _ = sender.send(connections.map_err(|error| error.to_string()));
        });
        Self {
            slot,
            client,
            connected,
        }
    }

    /// The connections, or why there are none, once that is known.
    pub(crate) fn poll(&mut self) -> Option<Result<Connections, String>> {
        match self.connected.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(
                "The connection to the next host could not be made".into(),
            )),
        }
    }

    #[must_use]
    pub(crate) fn goes_to(&self, node: &str) -> bool {
        self.slot.node == node
    }

    #[must_use]
    pub(crate) fn into_parts(self) -> (Slot, Client) {
        (self.slot, self.client)
    }
}

/// From guest to guest. The old guest stays frozen until the new one has started.
#[derive(Debug)]
pub(crate) struct Onward {
    slot: Slot,
    pub connections: Connections,
    pub client: Client,
    /// Its times are counted from `begun`.
    going: Move,
    begun: Instant,
    frozen_at: Option<Instant>,
    syncing: Option<Syncing>,
    bytes: u64,
    moments: Vec<(Phase, f64)>,
    /// What the next host allows; nothing before it has said so.
    allowance: Allowance,
    /// Job control has stopped the process.
    pub stopped: bool,
}

impl Onward {
    #[must_use]
    pub(crate) fn new(
        slot: Slot,
        connections: Connections,
        client: Client,
        lease: Option<Duration>,
    ) -> Self {
        let mut onward = Self {
            slot,
            connections,
            client,
            going: Move::new(Duration::ZERO, Limits::onward(lease)),
            begun: Instant::now(),
            frozen_at: None,
            syncing: None,
            bytes: 0,
            moments: Vec::new(),
            allowance: Allowance {
                mappings: 0,
                threads: 0,
            },
            stopped: false,
        };
        onward.phase(Phase::Admit);
        onward
    }

    fn phase(&mut self, phase: Phase) {
        let at_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        self.moments.push((phase, at_ms));
        self.client.send(&Event::Phase { phase, at_ms });
        crash::step("onward", phase);
    }

    /// Reads what the next host says; true when the guest has started there.
    ///
    /// # Errors
    /// It refused, or its connection broke: the old guest is to go on.
    pub(crate) fn receive(&mut self, old: &mut Connections, journal: &mut Journal) -> Result<bool> {
        let state = self.connections.calls.receive()?;
        while let Some(frame) = self.connections.calls.next_frame() {
            if frame.kind != Kind::ToHome || frame.epoch != self.connections.epoch {
                continue;
            }
            let (message, _) = message::decode::<ToHome>(&frame.payload)?;
            if self.message(message, old, journal)? {
                return Ok(true);
            }
        }
        if matches!(state, Received::Closed) {
            bail!(
                "The next host {} has closed the connection",
                self.connections.node
            );
        }
        Ok(false)
    }

    fn message(
        &mut self,
        message: ToHome,
        old: &mut Connections,
        journal: &mut Journal,
    ) -> Result<bool> {
        let step = self.going.step();
        let unexpected = format!("{message:?} came while {step:?}");
        let (event, reason) = match message {
            ToHome::Heartbeat { used, .. } => {
                let bytes = used.resident_bytes;
                (MoveEvent::Came { bytes }, unexpected)
            }
            ToHome::Prepared { allowance } => {
                self.allowance = allowance;
                (MoveEvent::Prepared, unexpected)
            }
            ToHome::Ready { bytes } => {
                self.bytes = bytes;
                (MoveEvent::Ready, unexpected)
            }
            ToHome::Started { .. } => (MoveEvent::Started, unexpected),
            ToHome::Failed { phase, reason } => {
                let node = &self.slot.node;
                let refusal = format!("{node} could not take the process over ({phase}): {reason}");
                (MoveEvent::Failed, refusal)
            }
            _ => (MoveEvent::Failed, unexpected),
        };
        self.go_on(event, reason, (old, journal))
    }

    /// Does what the move demands after this event; true when the guest has started there.
    fn go_on(
        &mut self,
        event: MoveEvent,
        reason: String,
        (old, journal): (&mut Connections, &mut Journal),
    ) -> Result<bool> {
        match self.going.handle(self.begun.elapsed(), event) {
            None => {}
            Some(Action::Send) => self.send(old)?,
            Some(Action::Journal) => {
                self.phase(Phase::Commit);
                let entry = Event::Commit {
                    epoch: self.slot.epoch,
                    to: self.slot.node.clone(),
                };
                self.syncing = Some(journal.begin_commit(&entry).context(UNWRITABLE)?);
            }
            Some(Action::Commit) => {
                self.connections
                    .queue(&ToGuest::Commit { clocks: clocks() }, &[])?;
                self.connections.calls.flush()?;
            }
            Some(Action::Acknowledge) => {
                if self.stopped {
                    // Sent before its calls flow, because a stopped process does nothing.
                    self.connections.queue(&ToGuest::Stop, &[])?;
                }
                self.connections.queue(&ToGuest::Acknowledged, &[])?;
                self.connections.calls.flush()?;
                return Ok(true);
            }
            Some(Action::GiveUp) => bail!(reason),
        }
        Ok(false)
    }

    fn send(&mut self, old: &mut Connections) -> Result<()> {
        let onward = ToGuest::Onward {
            addresses: self.slot.addresses.clone(),
            server_name: self.slot.server_name.clone(),
            node: self.slot.node.clone(),
            epoch: self.slot.epoch,
            allowance: self.allowance,
        };
        old.queue(&onward, &[])?;
        old.calls.flush()?;
        self.frozen_at = Some(Instant::now());
        self.phase(Phase::Onward);
        Ok(())
    }

    /// Whether the journal has no entry yet, so that the old guest may go on as if nothing had been tried.
    #[must_use]
    pub(crate) fn can_be_given_up(&self) -> bool {
        matches!(self.going.step(), Step::Preparing | Step::Transferring)
    }

    #[must_use]
    pub(crate) fn waits_for_journal(&self) -> bool {
        self.syncing.is_some()
    }

    /// Polls the journal's entry and the clock; has to be called again and again.
    ///
    /// # Errors
    /// The disk failed, the connection broke, or it takes too long: the old guest is to go on.
    pub(crate) fn tick(&mut self, old: &mut Connections, journal: &mut Journal) -> Result<()> {
        if let Some(ended) = self.syncing.as_mut().and_then(Syncing::poll) {
            self.syncing = None;
            let written = ended.is_ok();
            let reason = ended.err().map(|error| format!("{UNWRITABLE}: {error}"));
            let event = MoveEvent::Journaled { written };
            self.go_on(
                event,
                reason.unwrap_or_default(),
                (&mut *old, &mut *journal),
            )?;
        }
        let at = self
            .connections
            .heard()
            .saturating_duration_since(self.begun);
        for event in [MoveEvent::Heard { at }, MoveEvent::Tick] {
            let limit = self.going.limit();
            let left = &old.node;
            let reason = if self.waits_for_journal() {
                format!(
                    "This node's disk took no entry of the move within {limit:.0?}: try again when \
                     it works"
                )
            } else {
                format!("The move from {left} did not get on within {limit:.0?}")
            };
            self.go_on(event, reason, (&mut *old, &mut *journal))?;
        }
        Ok(())
    }

    /// Ends the move. Returns the new connections, the client that asked, and the report.
    #[must_use]
    pub(crate) fn into_arrival(self, from: String) -> (Connections, Client, MoveReport) {
        let total_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        let frozen = self
            .frozen_at
            .map_or(0.0, |at| at.elapsed().as_secs_f64() * 1000.0);
        let report = MoveReport {
            from,
            to: self.slot.node,
            phases: durations(&self.moments, total_ms),
            bytes: self.bytes,
            pages: self.bytes / PAGE_SIZE,
            freeze_ms: frozen,
            total_ms,
            reason: None,
        };
        (self.connections, self.client, report)
    }
}

/// The process is home.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub client: Option<Client>,
    pub report: MoveReport,
    pub holding: Holding,
    /// CPU time that it has used away.
    pub cpu_away: CpuTime,
}

/// From guest to home.
#[derive(Debug)]
pub(crate) struct Homeward {
    pub client: Option<Client>,
    pub reason: String,
    begun: Instant,
    moments: Vec<(Phase, f64)>,
    encoded: Vec<u8>,
    image: Option<ProcessImage>,
    received: Progress,
    /// How many mappings it needs, if home cannot make so many. Its guest then goes on once it has sent
    /// everything.
    excess: Option<u64>,
    /// The control group that was frozen when the image came. Its guest then goes on as well.
    frozen: Option<PathBuf>,
    /// What it is to have on its memory when it is home.
    limits: Vec<Limit>,
    lease: Option<Duration>,
}

impl Homeward {
    /// `room` is how many bytes home has memory for.
    #[must_use]
    pub(crate) fn new(
        client: Option<Client>,
        reason: String,
        lease: Option<Duration>,
        room: u64,
    ) -> Self {
        let mut homeward = Self {
            client,
            reason,
            begun: Instant::now(),
            moments: Vec::new(),
            encoded: Vec::new(),
            image: None,
            received: Progress::new(room),
            excess: None,
            frozen: None,
            limits: Vec::new(),
            lease,
        };
        homeward.phase(Phase::Freeze);
        homeward
    }

    fn phase(&mut self, phase: Phase) {
        let at_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        self.moments.push((phase, at_ms));
        if let Some(client) = &mut self.client {
            client.send(&Event::Phase { phase, at_ms });
        }
        crash::step("homeward", phase);
    }

    /// Tells the client that home's clock will have to catch up with the guest's, if that takes long.
    pub(crate) fn announce_wait(&mut self, ahead: Duration) {
        if let Some(client) = &mut self.client
            && ahead > CLOCK_WAIT_UNSAID
        {
            let wait = ahead.min(longest_wait(self.lease)).as_secs_f64();
            client.send(&Event::Notice {
                text: format!(
                    "Its clock is ahead of this node's: it will stand still for another {wait:.1} s"
                ),
            });
        }
    }

    /// Bytes of pages that have come so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.received.pages()
    }

    /// How many of the bytes that came count as progress.
    #[must_use]
    pub(crate) fn progress(&self) -> u64 {
        self.received.progress()
    }

    /// How many mappings it needs, if home cannot make so many; then nothing has been changed here.
    #[must_use]
    pub(crate) fn excess(&self) -> Option<u64> {
        self.excess
    }

    /// The control group whose freeze keeps it away; then nothing has been changed here.
    #[must_use]
    pub(crate) fn frozen(&self) -> Option<&Path> {
        self.frozen.as_deref()
    }

    /// Whether its guest has to go on where it is, because home could not take it.
    #[must_use]
    pub(crate) fn is_declined(&self) -> bool {
        self.excess.is_some() || self.frozen.is_some()
    }

    /// Whether the deputy's address space has been changed already.
    #[must_use]
    pub(crate) fn begun_restoring(&self) -> bool {
        self.image.is_some()
    }

    /// How much there is to be done, in mappings and threads.
    #[must_use]
    pub(crate) fn pieces(&self) -> usize {
        self.image.as_ref().map_or(0, ProcessImage::pieces)
    }

    /// Takes a piece of the image, or pages. Returns the encoded image when the whole of it is here, with which
    /// [`begin`](Self::begin) has to be called next.
    ///
    /// # Errors
    /// The image is not sound, or home's kernel refuses it.
    pub(crate) fn frame(&mut self, server: &Server, frame: &Frame) -> Result<Option<Vec<u8>>> {
        if frame.kind == Kind::Image {
            return self.image_piece(&frame.payload);
        }
        let (head, bytes) = frame
            .payload
            .split_first_chunk::<8>()
            .context("A frame of pages has no address")?;
        let address = u64::from_le_bytes(*head);
        self.received.add_pages(address, bytes.len())?;
        match &self.image {
            Some(image) => homeward::write_pages(server.deputy.pid(), image, address, bytes)?,
            // These pages were on their way when it turned out that the process stays where it is.
            None if self.is_declined() => {}
            None => bail!("Pages came before their image"),
        }
        Ok(None)
    }

    fn image_piece(&mut self, payload: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.image.is_some() || self.is_declined() {
            bail!("A second image came, before the first one is at home");
        }
        let before = self.encoded.len();
        let is_whole = add_piece(&mut self.encoded, payload)?;
        self.received.add_piece(self.encoded.len() - before);
        Ok(is_whole.then(|| std::mem::take(&mut self.encoded)))
    }

    /// Takes over the image, without its pages: what comes next is restored in the deputy.
    ///
    /// # Errors
    /// The image is not sound, or home's kernel refuses it.
    pub(crate) fn begin(
        &mut self,
        server: &mut Server,
        original: &Original,
        held: &mut Vec<HeldSignal>,
        encoded: &[u8],
    ) -> Result<()> {
        let (image, _) = message::decode::<ProcessImage>(encoded)?;
        homeward::check_image(&image, original, server)?;
        // This is the last moment at which its guest can go on.
        let needed = room::mappings_for_return(&image, &server.attic);
        if room::lack_of_mappings(needed).is_some() {
            self.excess = Some(needed);
            return Ok(());
        }
        self.frozen = server.deputy.frozen_group();
        if self.frozen.is_some() {
            return Ok(());
        }
        self.phase(Phase::Transfer);
        homeward::quiesce(server, held)?;
        homeward::mask_signals(&mut server.deputy)?;
        self.limits = room::lift(server.deputy.pid(), original);
        homeward::restore_mappings(server, &image, original)?;
        self.image = Some(image);
        Ok(())
    }

    /// The last steps, after the last page.
    ///
    /// # Errors
    /// The deputy is lost, or home's kernel refuses.
    pub(crate) fn finish(
        mut self,
        mut server: Server,
        original: &Original,
        held: &mut Vec<HeldSignal>,
        journal: &Journal,
    ) -> Result<Arrival> {
        let image = self.image.take().context("No image")?;
        self.phase(Phase::Rebuild);
        locks::restore(&mut server, &image, original)?;
        homeward::restore_process(&mut server, &image)?;
        homeward::restore_threads(&mut server, &image)?;
        homeward::requeue(&mut server, &image, held)?;
        wait_for_clock(&image, self.lease);
        // Who sees it go on may ask at once why it came home.
        journal.settle();
        let holding = homeward::resume_at_home(server, &image, original, &self.limits)?;
        let total_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        let report = MoveReport {
            from: String::new(),
            to: "home".into(),
            phases: durations(&self.moments, total_ms),
            bytes: self.received.pages(),
            pages: self.received.pages() / PAGE_SIZE,
            freeze_ms: total_ms,
            total_ms,
            reason: self.client.is_none().then_some(self.reason),
        };
        Ok(Arrival {
            client: self.client,
            report,
            holding,
            cpu_away: image.cpu_away,
        })
    }
}

/// Adds a piece to an image; true when it is whole.
fn add_piece(encoded: &mut Vec<u8>, payload: &[u8]) -> Result<bool> {
    let (head, piece) = payload
        .split_first_chunk::<8>()
        .context("A piece of an image has no header")?;
    let total = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let offset = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if total > IMAGE_MAX || offset != encoded.len() || offset + piece.len() > total {
        bail!("The image of {total} bytes is too long or out of order");
    }
    if piece.is_empty() {
        // No guest sends that: a return could go on by such pieces without anything coming.
        bail!("A piece of an image is empty");
    }
    encoded.extend_from_slice(piece);
    Ok(encoded.len() == total)
}

/// Monotonic time must never step back, so the process waits until home's clock has caught up. No honest
/// host's clock is ahead by more than the limit; beyond that the process goes on by home's.
fn wait_for_clock(image: &ProcessImage, lease: Option<Duration>) {
    let tick = ticks::until(image.clocks.monotonic_ns, 0);
    let behind = behind(&image.clocks, Duration::ZERO).max(tick);
    let longest = longest_wait(lease);
    if behind > longest {
        tracing::warn!(
            ?behind,
            "its clock is further ahead than any host's can be: it steps back"
        );
    }
    if !behind.is_zero() {
        // Trap: a-clock-steps-back
        pulse::sleep(behind.min(longest));
    }
}

fn longest_wait(lease: Option<Duration>) -> Duration {
    lease.unwrap_or(CLOCK_WAIT_MAX).min(CLOCK_WAIT_MAX)
}

/// How far our clocks are behind those of a guest, which were read `ago` before now.
#[must_use]
pub(crate) fn behind(guest: &Clocks, ago: Duration) -> Duration {
    let now = clocks();
    let ago = u64::try_from(ago.as_nanos()).unwrap_or(0);
    let behind = |guest: u64, now: u64| guest.saturating_add(ago).saturating_sub(now);
    let monotonic = behind(guest.monotonic_ns, now.monotonic_ns);
    Duration::from_nanos(monotonic.max(behind(guest.boottime_ns, now.boottime_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(total: usize, offset: usize, length: usize) -> Vec<u8> {
        let word = |number: usize| u32::try_from(number).expect("small").to_le_bytes();
        [&word(total)[..], &word(offset), &vec![0; length]].concat()
    }

    #[test]
    fn a_returning_image_is_put_together_up_to_its_limit() {
        const PIECE: usize = 1 << 20;
        let mut encoded = Vec::new();
        for offset in (0..IMAGE_MAX).step_by(PIECE) {
            let whole = add_piece(&mut encoded, &piece(IMAGE_MAX, offset, PIECE));
            assert_eq!(whole.expect("in order"), offset + PIECE == IMAGE_MAX);
        }
        for wrong in [
            piece(IMAGE_MAX + 1, 0, PIECE),
            piece(PIECE, 1, 1),
            piece(PIECE, 0, PIECE + 1),
        ] {
            let error = add_piece(&mut Vec::new(), &wrong).expect_err("refused");
            let sentence = error.to_string();
            assert!(sentence.contains("is too long or out of order"), "{error}");
        }
        let nothing = add_piece(&mut Vec::new(), &piece(PIECE, 0, 0));
        assert!(nothing.expect_err("refused").to_string().contains("empty"));
    }
}
