//! The home supervisor's life: it waits for commands at home, and serves while the process is away.

use crate::apart::{self, Parting};
use crate::away::{Away, Ending, Homecoming};
use crate::convert::{Original, convert};
use crate::holding::Holding;
use crate::journal::Journal;
use crate::link::{Link, LinkError};
use crate::outward::{Departed, Outward, OutwardError, departure};
use crate::subject::Subject;
use crate::taking;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use whim_image::freeze::{FreezeError, FreezeLimits};
use whim_image::sharing::Alone;
use whim_journey::job::{Command, Event, HomeJob, MoveReport, Phase, Slot, State, Status};
use whim_net::Credentials;
use whim_sys::{crash, inherited};

/// A client that does not finish its line in this time is not listened to.
const COMMAND_WITHIN: Duration = Duration::from_secs(2);
/// Whoever starts a supervisor sends it away at once. If that does not happen, the daemon has died in
/// between, and the supervisor ends: a later move begins with a new one.
const SENT_WITHIN: Duration = Duration::from_secs(5);
/// Longest command, in bytes.
const COMMAND_MAX: u64 = 64 << 10;
/// Whoever waits for a move hears so often that it goes on. Steps of one take longer.
const WORKING_EVERY: Duration = Duration::from_secs(5);

/// Someone who asked for something and gets events until it is done.
#[derive(Debug)]
pub struct Client {
    stream: Arc<Mutex<UnixStream>>,
    /// Held as long as this client is told that work goes on.
    working: Option<Sender<()>>,
}

fn write(stream: &Mutex<UnixStream>, event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.write_all(line.as_bytes());
    }
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream: Arc::new(Mutex::new(stream)),
            working: None,
        }
    }

    /// Sends one event; a client that has gone away is no reason to stop.
    pub fn send(&mut self, event: &Event) {
        write(&self.stream, event);
    }

    /// Tells it again and again that work goes on, until it is dropped. By a thread of its own: a step
    /// of a move may take minutes, and this one is then inside it. (That thread takes no signals: they
    /// are the other's.)
    pub fn keep_informed(&mut self) {
        use nix::sys::signal::{SigSet, SigmaskHow};
        let (working, over) = channel();
        let (gave_up, has_no_rights) = channel();
        let stream = Arc::clone(&self.stream);
        let inform = move || {
            // It goes on when the thread that has made it has no rights any more.
            if let Err(error) = taking::give_up_rights() {
                tracing::warn!(%error, "nobody is told that the move goes on");
                return;
            }
            drop(gave_up);
            while over.recv_timeout(WORKING_EVERY) == Err(RecvTimeoutError::Timeout) {
                write(&stream, &Event::Working);
            }
        };
        let Ok(before) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        let thread = std::thread::Builder::new().name("working".into());
        match thread.spawn(inform) {
            Ok(_) => {
                let _: Result<(), _> = has_no_rights.recv();
                self.working = Some(working);
            }
            // The daemon may give a long move up then; the move itself goes on.
            Err(error) => tracing::warn!(%error, "nobody is told that the move goes on"),
        }
        if let Err(errno) = before.thread_set_mask() {
            tracing::warn!(%errno, "the mask of signals stays as it is");
        }
    }

    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.send(&Event::Refused {
            reason: reason.into(),
            stays: false,
        });
    }
}

/// Reads one command from a fresh connection.
///
/// # Errors
/// It is not one line of a known command.
pub fn read_command(stream: UnixStream) -> Result<(Command, Client)> {
    stream.set_read_timeout(Some(COMMAND_WITHIN))?;
    stream.set_write_timeout(Some(COMMAND_WITHIN))?;
    let mut line = String::new();
    let limited = std::io::Read::take(&stream, COMMAND_MAX);
    BufReader::new(limited).read_line(&mut line)?;
    let command = serde_json::from_str(&line).context("The command is not understood")?;
    let mut client = Client::new(stream);
    if matches!(command, Command::Move { .. } | Command::Bring { .. }) {
        client.keep_informed();
    }
    Ok((command, client))
}

/// What supervisor and journey are called by those who ask.
#[derive(Debug)]
pub struct Identity {
    pub job: HomeJob,
    pub credentials: Credentials,
    pub lease: Option<Duration>,
    pub subject: Subject,
}

impl Identity {
    fn at_home(&self, phase: Phase) -> Status {
        Status {
            journey: self.job.journey.clone(),
            pid: self.job.pid,
            home: self.job.node.clone(),
            location: self.job.node.clone(),
            state: State::Home,
            phase,
            epoch: 0,
            moves: 0,
            supervisor_pid: i32::try_from(std::process::id()).unwrap_or(0),
            cpu_ns: 0,
            resident_bytes: 0,
            forwarded_calls: 0,
            held_threads: 0,
            reason: None,
        }
    }
}

/// Carries the job out, until the process is home again or has ended.
///
/// # Errors
/// The socket or the journal was not handed over; a job that is not valid.
pub fn run(job: HomeJob) -> Result<()> {
    let credentials: Credentials =
        serde_json::from_value(job.credentials.0.clone()).context("The job's credentials")?;
    let lease = job.lease_ms.map(Duration::from_millis);
    let subject = Subject::of(&job)?;
    let listener = inherited::listener(job.listener).context("The supervisor's socket")?;
    let mut journal = Journal::new(inherited::file(job.journal).context("The journal")?);
    let identity = Identity {
        job,
        credentials,
        lease,
        subject,
    };
    writeln!(std::io::stdout(), "ready").context("Nobody waits for this supervisor any more")?;
    let result = apart::run(|parting| serve(&identity, &listener, &mut journal, parting));
    inherited::retire(&listener);
    result
}

fn serve(
    identity: &Identity,
    listener: &UnixListener,
    journal: &mut Journal,
    parting: &mut Parting,
) -> Result<()> {
    let mut holding = Holding::default();
    let mut moved = false;
    let begun = Instant::now();
    loop {
        if moved && holding.is_empty() {
            return Ok(());
        }
        let idle = (!moved).then(|| SENT_WITHIN.saturating_sub(begun.elapsed()));
        let Some(stream) = next_client(listener, &mut holding, idle)? else {
            if idle.is_some() && begun.elapsed() >= SENT_WITHIN {
                tracing::warn!("Nobody has sent the process away within {SENT_WITHIN:?}");
                return Ok(());
            }
            continue;
        };
        let (command, mut client) = match read_command(stream) {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!("{error:#}");
                continue;
            }
        };
        match command {
            Command::Status => {
                let held = u32::try_from(holding.len()).unwrap_or(u32::MAX);
                let status = Status {
                    held_threads: held,
                    ..identity.at_home(Phase::Admit)
                };
                client.send(&Event::Status { status });
            }
            Command::Calls => client.send(&Event::Calls { calls: Vec::new() }),
            Command::Bring { .. } | Command::Evict { .. } => {
                client.refuse("The process is at home");
            }
            Command::Channel => client.refuse("Home makes its connections itself"),
            Command::Move { slot } => {
                moved = true;
                let ends = (&mut holding, &mut *parting);
                if !leave(identity, &slot, client, (listener, journal), ends)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for a connection; while threads are held, only as long as they allow; before the first
/// move, no longer than `idle`.
fn next_client(
    listener: &UnixListener,
    holding: &mut Holding,
    idle: Option<Duration>,
) -> Result<Option<UnixStream>> {
    let mut patience = idle;
    if !holding.is_empty() {
        holding.look()?;
        patience = Some(holding.patience());
    }
    if let Some(patience) = patience {
        let patience = PollTimeout::try_from(patience)?;
        let mut events = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut events, patience)? == 0 {
            return Ok(None);
        }
    }
    listener.set_nonblocking(false)?;
    Ok(Some(listener.accept()?.0))
}

/// Carries the process away and serves it; true if it is at home afterwards.
fn leave(
    identity: &Identity,
    slot: &Slot,
    mut client: Client,
    (listener, journal): (&UnixListener, &mut Journal),
    (holding, parting): (&mut Holding, &mut Parting),
) -> Result<bool> {
    let begun = Instant::now();
    let again = !holding.is_empty();
    let departed = depart(identity, slot, &mut client, journal, (begun, &mut *holding));
    let (departed, link, mut phases) = match departed {
        Ok(departed) => departed,
        Err(error) => {
            let why = (&error, again);
            stays_home(listener, why, client, (journal, holding, parting));
            return Ok(true);
        }
    };
    let freeze_ms = departed.frozen_at.elapsed().as_secs_f64() * 1000.0;
    phases.push((Phase::Convert, begun.elapsed().as_secs_f64() * 1000.0));
    client.send(&Event::Phase {
        phase: Phase::Convert,
        at_ms: begun.elapsed().as_secs_f64() * 1000.0,
    });
    crash::step("out", Phase::Convert);
    let (bytes, pages) = (departed.bytes, departed.pages);
    let away = match settle(departed, link, identity.lease) {
        Ok(away) => away,
        Err(error) => {
            // The guest runs, the original cannot serve it: one of the promised ends.
            let reason = format!("The process could not be kept as a deputy: {error:#}");
            identity.subject.end();
            journal.commit(&Event::Ended {
                reason: reason.clone(),
                status: None,
            })?;
            client.refuse(reason);
            return Ok(false);
        }
    };
    journal.note(&Event::Acknowledged { epoch: slot.epoch });
    let report = MoveReport {
        from: identity.job.node.clone(),
        to: slot.node.clone(),
        phases: durations(&phases, begun.elapsed().as_secs_f64() * 1000.0),
        bytes,
        pages,
        freeze_ms,
        total_ms: begun.elapsed().as_secs_f64() * 1000.0,
        reason: None,
    };
    journal.note(&Event::Done {
        report: report.clone(),
    });
    client.send(&Event::Done { report });
    drop(client);
    crash::section();
    match away.run(identity, listener, journal)? {
        Ending::Home(mut home) => {
            *holding = std::mem::take(&mut home.holding);
            retire(listener, holding);
            tell(*home);
            Ok(true)
        }
        Ending::Gone => Ok(false),
        Ending::Lost(reason) => {
            tracing::warn!("{reason}");
            Ok(false)
        }
    }
}

/// Tells whoever has waited for it that the process is home.
fn tell(home: Homecoming) {
    for mut client in home.clients {
        if let Some(report) = home.report.clone() {
            client.send(&Event::Done { report });
        }
    }
}

/// The move did not come about; whoever asked for it is told when the next one may begin.
fn stays_home(
    listener: &UnixListener,
    (error, again): (&OutwardError, bool),
    mut client: Client,
    (journal, holding, parting): (&mut Journal, &mut Holding, &mut Parting),
) {
    let reason = match error {
        // The right to seize the others went with the first move. This supervisor ends now.
        OutwardError::Freeze(FreezeError::NotPermitted(pid)) if again => {
            format!(
                "Process {pid} was still being let go from its last stop, which is over now: try again"
            )
        }
        error => describe(error),
    };
    tracing::warn!("{reason}");
    let stays = matches!(error, OutwardError::Stay(_));
    let refused = Event::Refused { reason, stays };
    journal.note(&refused);
    retire(listener, holding);
    if holding.is_empty() {
        parting.say(client, refused);
    } else {
        client.send(&refused);
    }
}

/// With nothing left to do, nobody is listened to any more before anybody is told: whoever then wants
/// to move the process begins a new journey, and does not meet a supervisor that is about to end.
fn retire(listener: &UnixListener, holding: &Holding) {
    if holding.is_empty() {
        inherited::retire(listener);
    }
}

/// Turns the moments at which phases began into how long each took.
#[must_use]
pub fn durations(moments: &[(Phase, f64)], end: f64) -> Vec<(Phase, f64)> {
    moments
        .iter()
        .enumerate()
        .map(|(index, (phase, at))| {
            let next = moments.get(index + 1).map_or(end, |(_, next)| *next);
            (*phase, next - at)
        })
        .collect()
}

type Left = (Departed, Link, Vec<(Phase, f64)>);

fn depart(
    identity: &Identity,
    slot: &Slot,
    client: &mut Client,
    journal: &mut Journal,
    (begun, holding): (Instant, &mut Holding),
) -> Result<Left, OutwardError> {
    let patience = FreezeLimits::default().wait;
    let alone = Alone::look_within(identity.job.pid, patience).map_err(OutwardError::Stay)?;
    let mut phases = Vec::new();
    let mut report = |event: Event| {
        if let Event::Phase { phase, at_ms } = &event {
            phases.push((*phase, *at_ms));
        }
        client.send(&event);
    };
    let mut outward = Outward {
        pid: identity.job.pid,
        subject: &identity.subject,
        lease: identity.lease,
        report: &mut report,
        begun,
        alone,
        journal,
        holding,
        room: None,
        going: departure(begun, identity.lease),
    };
    let (journey, credentials) = (identity.job.journey.clone(), identity.credentials.clone());
    let (target, lease) = (slot.clone(), identity.lease);
    let connect = move || Link::connect(&journey, &target, &credentials, lease);
    let (taken, mut link) = outward.approach(connect)?;
    let departed = outward
        .go(&mut link, taken)
        .map_err(|error| with_reason(error, &mut link))?;
    Ok((departed, link, phases))
}

/// A host that gives up says why before it closes the connection; we may have been writing then.
fn with_reason(error: OutwardError, link: &mut Link) -> OutwardError {
    match error {
        OutwardError::Link(LinkError::Channel(_)) => {
            link.last_word().map_or(error, OutwardError::Link)
        }
        other => other,
    }
}

/// Conversion of the original, and its calls in flight go on.
fn settle(departed: Departed, mut link: Link, lease: Option<Duration>) -> Result<Away> {
    let original = Original::of(&departed.image, departed.locks_future);
    let files = departed.files;
    let mut reserve = departed.reserve;
    link.queue(&whim_journey::message::ToGuest::Acknowledged, &[])?;
    link.calls.flush()?;
    reserve.for_conversion();
    let mut server = convert(departed.frozen, &original)?;
    if let Some(room) = departed.room {
        room.converted();
    }
    for continuation in departed.continuations {
        server.take_up(continuation)?;
    }
    Ok(Away::new(server, link, original, (files, reserve), lease))
}

/// A chain of causes as one sentence.
fn describe(error: &OutwardError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_journey::job::Slot;

    #[test]
    fn commands_are_read_up_to_their_limit() {
        let command = |padding: usize| Command::Move {
            slot: Slot {
                node: "n".repeat(padding),
                addresses: Vec::new(),
                server_name: String::new(),
                epoch: 1,
            },
        };
        let line = |padding| serde_json::to_string(&command(padding)).expect("encoded");
        let limit = usize::try_from(COMMAND_MAX).expect("small");
        let largest = limit - line(0).len();
        let read = |padding| {
            let (mut asker, stream) = UnixStream::pair().expect("sockets");
            let line = line(padding) + "\n";
            asker.write_all(line.as_bytes()).expect("it fits");
            read_command(stream).map(|(command, _)| command)
        };
        assert_eq!(read(largest).expect("understood"), command(largest));
        let error = read(largest + 1).expect_err("one byte more");
        assert_eq!(error.to_string(), "The command is not understood");
    }

    #[test]
    fn who_waits_for_a_move_hears_that_it_goes_on() {
        let (asker, stream) = UnixStream::pair().expect("sockets");
        asker
            .set_read_timeout(Some(4 * WORKING_EVERY))
            .expect("set");
        let mut client = Client::new(stream);
        client.keep_informed();
        let mut heard = BufReader::new(asker);
        let mut line = String::new();
        heard.read_line(&mut line).expect("in time");
        let event: Event = serde_json::from_str(&line).expect("an event");
        assert_eq!(event, Event::Working);
        drop(client);
        line.clear();
        assert_eq!(
            heard.read_line(&mut line).expect("in time"),
            0,
            "until it is over"
        );
    }
}
