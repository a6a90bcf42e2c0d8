//! The home supervisor's life: it waits for commands at home, and serves while the process is away.

use crate::apart::{self, Parting};
use crate::away::{Away, Ending, Homecoming};
use crate::client::{Client, read_command};
use crate::company::Lent;
use crate::connections::{ConnectionError, Connections};
use crate::convert::{Original, convert};
use crate::holding::Holding;
use crate::identity::{Identity, durations};
use crate::journal::Journal;
use crate::outward::{Departed, Outward, OutwardError, departure};
use crate::server::Server;
use crate::subject::Subject;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use whim_image::freeze::{FreezeError, FreezeLimits};
use whim_image::sharing::Alone;
use whim_image::stay::StayReason;
use whim_journey::job::{Command, Event, HomeJob, MoveReport, Phase, Slot, Status};
use whim_net::Credentials;
use whim_sys::{crash, freezer, inherited, pulse};

/// A supervisor is told to send its process away right after its start. If that does not happen, the daemon
/// has died in between, and the supervisor ends; a later move begins with a new one.
const SENT_WITHIN: Duration = Duration::from_secs(5);

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

/// Waits for a connection: while threads are held, only as long as they allow, and before the first move, no
/// longer than `idle`.
fn next_client(
    listener: &UnixListener,
    holding: &mut Holding,
    idle: Option<Duration>,
) -> Result<Option<UnixStream>> {
    let mut patience = idle;
    if !holding.is_empty() {
        holding.attend()?;
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
    let (departed, connections, mut phases) = match departed {
        Ok(departed) => departed,
        Err(error) => {
            let error = of_its_group(identity.job.pid, error);
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
    let away = match settle(departed, connections, identity.lease) {
        Ok(away) => away,
        Err(error) => {
            // The guest runs, but the original cannot serve it: one of the promised ends.
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
    crash::point("departure-told");
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

/// Tells the clients that have waited for it that the process is home.
fn tell(home: Homecoming) {
    for mut client in home.clients {
        if let Some(report) = home.report.clone() {
            client.send(&Event::Done { report });
        }
    }
    drop(home.files);
}

/// Handles a move that did not come about. Its client is told so when the next move may begin.
fn stays_home(
    listener: &UnixListener,
    (error, again): (&OutwardError, bool),
    mut client: Client,
    (journal, holding, parting): (&mut Journal, &mut Holding, &mut Parting),
) {
    let reason = match error {
        // The right to seize the threads that are not held any more went with the first move. This supervisor
        // ends now.
        OutwardError::Freeze(FreezeError::NotPermitted(pid)) if again => {
            format!(
                "Process {pid} was still being let go from its last stop, which is over now: try again"
            )
        }
        error => describe(error),
    };
    tracing::warn!("{reason}");
    let stays = error.keeps_it();
    let refused = Event::Refused { reason, stays };
    journal.note(&refused);
    retire(listener, holding);
    if holding.is_empty() {
        parting.say(client, refused);
    } else {
        client.send(&refused);
    }
}

/// A process in a frozen group stays for that, whatever it was in which that showed.
fn of_its_group(pid: i32, error: OutwardError) -> OutwardError {
    let shows_it = matches!(
        error,
        OutwardError::Freeze(_) | OutwardError::Capture(_) | OutwardError::Deputy(_)
    );
    match freezer::frozen_group_of(pid) {
        Some(group) if shows_it => OutwardError::Stay(StayReason::Frozen(group)),
        _ => error,
    }
}

/// Stops listening when nothing is left to do, before any client is told so. A client that then wants to move
/// the process begins a new journey, and does not meet a supervisor that is about to end.
fn retire(listener: &UnixListener, holding: &Holding) {
    if holding.is_empty() {
        inherited::retire(listener);
    }
}

type Left = (Departed, Connections, Vec<(Phase, f64)>);

fn depart(
    identity: &Identity,
    slot: &Slot,
    client: &mut Client,
    journal: &mut Journal,
    (begun, holding): (Instant, &mut Holding),
) -> Result<Left, OutwardError> {
    let patience = FreezeLimits::default().wait;
    let alone = Alone::scan_within(identity.job.pid, patience).map_err(OutwardError::Stay)?;
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
        allowance: None,
    };
    let (journey, credentials) = (identity.job.journey.clone(), identity.credentials.clone());
    let (target, lease) = (slot.clone(), identity.lease);
    let connect = move || Connections::connect(&journey, &target, &credentials, lease);
    let (taken, mut connections) = outward.approach(connect)?;
    let departed = outward
        .go(&mut connections, taken)
        .map_err(|error| with_reason(error, &mut connections))?;
    Ok((departed, connections, phases))
}

/// The reason that the host gave, if it gave one: a host that gives up says why before it closes the
/// connection, and we may have been writing then.
fn with_reason(error: OutwardError, connections: &mut Connections) -> OutwardError {
    match error {
        OutwardError::Connection(ConnectionError::Channel(_)) => connections
            .last_word()
            .map_or(error, OutwardError::Connection),
        other => other,
    }
}

/// Converts the original, and lets its calls in flight go on.
fn settle(
    departed: Departed,
    mut connections: Connections,
    lease: Option<Duration>,
) -> Result<Away> {
    let original = Original::of(&departed.image, departed.locks_future);
    let files = departed.files;
    let mut reserve = departed.reserve;
    connections.queue(&whim_journey::message::ToGuest::Acknowledged, &[])?;
    connections.calls.flush()?;
    reserve.for_conversion();
    let (frozen, uffd, room) = (departed.frozen, departed.uffd, departed.room);
    let continuations = departed.continuations;
    // However little there is to be done: a frozen control group may keep us from it.
    let server = connections.meanwhile(usize::MAX, || -> Result<Server> {
        let mut server = convert(frozen, uffd, &original)?;
        if let Some(room) = room {
            room.converted();
        }
        for continuation in continuations {
            server.continue_in_flight(continuation)?;
            pulse::advance();
        }
        Ok(server)
    })?;
    Ok(Away::new(
        server,
        Lent::new(connections, lease),
        original,
        (files, reserve),
        lease,
    ))
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
