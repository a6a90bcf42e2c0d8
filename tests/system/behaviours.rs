//! Single behaviours that a move could spoil: each is done away, and compared with the same done
//! at home without any move.

use std::time::Duration;

use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

/// Half of the lab's lease: what takes longer was blocked.
const NOT_BLOCKED: Duration = Duration::from_secs(1);

/// The case of the guest `behave`, its argument, and whether its times are those of a thread that
/// must not be kept waiting.
const BEHAVIOURS: &[(&str, &str, bool)] = &[
    ("cancel", "read", true),
    ("cancel", "accept", true),
    ("cancel", "epoll_wait", true),
    ("cancel", "recv", true),
    ("cancel", "poll", true),
    ("pthread_kill", "read", true),
    ("pthread_kill", "accept", true),
    ("pthread_kill", "epoll_wait", true),
    ("pthread_kill_restart", "read", true),
    ("pthread_kill_restart", "accept", true),
    ("pthread_kill_restart", "epoll_wait", true),
    ("kill", "read", true),
    ("kill", "accept", true),
    ("kill", "epoll_wait", true),
    ("trap_ignored", "", false),
    ("child_ignored", "", false),
    ("child_ignored_away", "", false),
    ("masked_pipe", "", false),
    ("timers", "", true),
    ("queued", "", false),
    ("changed_file_page", "", false),
    ("dropped_file_page", "", false),
    ("short_file", "", false),
    ("fixed_addresses", "", false),
    ("memory_calls", "", false),
    ("large_transfers", "", false),
    ("family", "", false),
    ("restarted", "", false),
    ("rest_of_time", "", false),
    ("reads_and_executes", "", false),
    ("dies", "0", false),
    ("dies", "1", false),
    ("dies", "2", false),
    ("dies", "3", false),
    ("dies", "4", false),
    ("dies", "5", false),
    ("dies", "6", false),
    ("dies", "7", false),
    ("dies", "8", false),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // One lab serves all arguments of a case: a lab costs more than most of them.
    let mut names: Vec<&str> = BEHAVIOURS.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    for name in names {
        cases.push(Case::new(format!("behaviours::{name}"), move |_| {
            let cluster = Cluster::up(3)?;
            cluster.explaining(|| {
                for (_, argument, prompt) in BEHAVIOURS.iter().filter(|(other, ..)| *other == name)
                {
                    compare(&cluster, name, argument, *prompt)?;
                }
                Ok(())
            })
        }));
    }
    cases
}

fn compare(cluster: &Cluster, name: &str, argument: &str, prompt: bool) -> Result<()> {
    let program = guest::c("behave")?.display().to_string();
    let words: Vec<&str> = [program.as_str(), name, argument]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect();
    let mut unmoved = Talk::start(cluster, &mut cluster.command("n1", &words))?;
    while unmoved.ready().is_ok() && unmoved.go().is_ok() {}
    let expected = unmoved.end()?;

    let mut moved = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    // Out for the first part, home for the second, out again for the third.
    for target in ["n2", "home", "n3", "home"] {
        let Ok(pid) = moved.ready() else { break };
        let place = cluster.row(pid)?.map(|row| row.place);
        if target != "home" || place.is_some_and(|place| place != "n1") {
            cluster.move_to(pid, target)?;
        }
        let row = cluster.row(pid)?;
        let there = if target == "home" { "n1" } else { target };
        ensure!(
            row.as_ref().is_some_and(|row| row.place == there),
            "Not on {there}: {row:?}"
        );
        moved.go()?;
    }
    let status = moved.end()?;
    let title = format!("{name} {argument}");
    ensure!(
        unmoved.said == moved.said,
        "{title}: unmoved {:#?}, moved {:#?}, errors: {}",
        unmoved.said,
        moved.said,
        moved.errors()
    );
    ensure!(
        expected == status,
        "{title}: unmoved {expected}, moved {status}"
    );
    let times = moved.times()?;
    println!("{title}: {status}, {times:?} us");
    if prompt {
        let slow = times
            .iter()
            .find(|time| Duration::from_micros(**time) > NOT_BLOCKED);
        ensure!(
            slow.is_none(),
            "{title}: {times:?} us, which is too long: {}",
            moved.errors()
        );
    }
    Ok(())
}
