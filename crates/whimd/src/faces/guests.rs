//! What `whim ps` shows of programs of other nodes that are here.

use std::collections::HashSet;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use whim_control::protocol::ProcessRow;
use whim_journey::job::{Command, Event, State};
use whim_machine::processes::{self, Stat, TICKS_PER_SECOND};
use whim_machine::sensors::float;
use whim_monitor::plain;

use crate::host::Host;
use crate::host::guests::{Guest, StayId};
use crate::line::conversation::Conversation;
use crate::moves::stay;
use crate::settings::socket_in;

/// How long all of their supervisors may take to say how they are.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Guests that job control has stopped, as far as their supervisors say so in time.
pub(super) async fn stopped(host: &Host) -> HashSet<StayId> {
    let guests: Vec<Guest> = host.guests().by_key.values().cloned().collect();
    let mut asked = JoinSet::new();
    for guest in guests {
        // If the supervisor is gone, whoever listens at its socket is another process.
        if guest.supervisor().is_some() {
            asked.spawn(async move { is_stopped(&guest).await.then(|| guest.request.stay()) });
        }
    }
    let mut stopped = HashSet::new();
    let collected = async {
        while let Some(answer) = asked.join_next().await {
            stopped.extend(answer.ok().flatten());
        }
    };
    let _ = tokio::time::timeout(ANSWERS_WITHIN, collected).await;
    stopped
}

async fn is_stopped(guest: &Guest) -> bool {
    let socket = socket_in(&guest.directory);
    let begun = Conversation::begin(&socket, guest.private_id, &Command::Status).await;
    let Ok(mut conversation) = begun else {
        return false;
    };
    match conversation.next().await {
        Ok(Event::Status { status }) => status.state == State::Stopped,
        _ => false,
    }
}

pub(super) fn rows(host: &Host, stopped: &HashSet<StayId>) -> Vec<ProcessRow> {
    let node = host.ground().cluster().node();
    let guests: Vec<Guest> = host.guests().by_key.values().cloned().collect();
    let here = guests.into_iter().map(|guest| {
        let stat = program(&guest);
        let row = row(&node, &guest, stat.as_ref(), since_boot());
        match stopped.contains(&guest.request.stay()) {
            true => ProcessRow {
                state: State::Stopped,
                stay: Some(stay::stopped()),
                ..row
            },
            false => row,
        }
    });
    let mut rows: Vec<ProcessRow> = here.collect();
    rows.sort_by(|one, other| (&one.home, one.pid).cmp(&(&other.home, other.pid)));
    rows
}

/// The guest's process on this node, if it has been rebuilt.
fn program(guest: &Guest) -> Option<Stat> {
    let supervisor = guest.supervisor()?;
    let mut generation = vec![supervisor.pid()];
    for _ in 0..stay::GUEST_GENERATIONS_MAX {
        let next: Vec<i32> = generation.iter().flat_map(|pid| children(*pid)).collect();
        if next.is_empty() {
            break;
        }
        generation = next;
    }
    generation.retain(|pid| *pid != supervisor.pid());
    generation
        .into_iter()
        .find_map(|pid| processes::stat(pid).ok())
}

fn children(pid: i32) -> Vec<i32> {
    let of_thread = |thread| {
        let path = format!("/proc/{pid}/task/{thread}/children");
        let text = processes::short(path).unwrap_or_default();
        let children = text
            .split_whitespace()
            .filter_map(|child| child.parse().ok());
        children.collect::<Vec<i32>>()
    };
    processes::threads(pid)
        .into_iter()
        .flat_map(of_thread)
        .collect()
}

/// Time since the boot, in ticks.
fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_millis() / u128::from(1000 / TICKS_PER_SECOND)).unwrap_or(u64::MAX)
}

/// `now`: in ticks since the boot.
fn row(node: &str, guest: &Guest, stat: Option<&Stat>, now: u64) -> ProcessRow {
    let request = &guest.request;
    let name = stat.map(|stat| plain::text(&stat.name));
    let whose = format!("[guest of uid {} of {}]", request.uid, request.home);
    ProcessRow {
        pid: request.pid,
        home: request.home.clone(),
        r#where: node.to_owned(),
        state: State::Away,
        reason: None,
        moves: request.epoch,
        cpu_seconds: None,
        cpus_wanted: None,
        cpus_got: None,
        home_calls: None,
        cpu_percent: stat.map_or(0.0, |stat| percent(stat, now)),
        memory_bytes: stat.map_or(request.memory_bytes, |stat| stat.resident_bytes),
        stay: None,
        not_candidate: None,
        uid: guest.private_id,
        user: Some(format!("uid {} of {}", request.uid, request.home)),
        parent: None,
        home_supervisor_pid: None,
        guest_supervisor_pid: Some(guest.supervisor_pid),
        command: match name {
            Some(name) => format!("{name} {whose}"),
            None => whose,
        },
    }
}

/// What it has used of a CPU on average since it came here: nobody samples it before it is asked for.
fn percent(stat: &Stat, now: u64) -> f64 {
    let here = now.saturating_sub(stat.start_time);
    match here {
        0 => 0.0,
        here => 100.0 * float(stat.cpu_ticks) / float(here),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::waiting::Waiting;

    #[test]
    fn a_guest_is_shown_with_what_it_uses() {
        let text = "77 (awk) R 76 77 77 0 -1 0 0 0 0 0 40 10 0 0 20 0 1 0 1000 4096 300 0 64 128";
        let stat = processes::parse_stat(text).expect("a line of /proc");
        assert!((percent(&stat, 1100) - 50.0).abs() < 0.001);
        assert!(percent(&stat, 1000).abs() < 0.001);
        assert!(percent(&stat, 0).abs() < 0.001);
    }

    #[test]
    fn children_are_found() {
        let child = Waiting::start();
        let own = i32::try_from(std::process::id()).expect("a pid");
        let found = children(own);
        assert!(found.contains(&child.pid()), "{found:?}");
    }
}
