//! A guest that tries everything reaches nothing of its host.

use std::collections::BTreeMap;

use whim_attempts::{Attempt, Party};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// One more than the highest number that is tried.
const NUMBERS: u32 = 472;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("escape::ways", |_| in_lab(ways)),
        Case::new("escape::numbers", |_| {
            in_lab(|cluster| numbers(cluster, 32))
        }),
        Case::new("escape::full::each_number", |_| {
            in_lab(|cluster| numbers(cluster, 1))
        }),
    ]
}

fn in_lab(body: impl Fn(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| body(&cluster))
}

/// What a node keeps to itself; a guest of n2 must not learn n2's.
fn secret(cluster: &Cluster, node: &str) -> Result<String> {
    let text = cluster.run(node, &["cat", "/etc/whim-node"])?;
    let line = text.lines().find_map(|line| line.strip_prefix("secret "));
    line.map(str::to_owned)
        .with_context(|| format!("{node} has no secret: {text}"))
}

/// Runs the guest's steps, each begun on n2 if `moves`; where each ended, and what was said.
fn run(cluster: &Cluster, words: &[&str], moves: bool) -> Result<(Vec<String>, Vec<String>)> {
    let program = guest::c("escape")?.display().to_string();
    let all: Vec<&str> = [program.as_str()]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    let mut command = if moves {
        cluster.run_command("n1", &all)
    } else {
        cluster.command("n1", &all)
    };
    let mut guest = Talk::start(cluster, &mut command)?;
    let mut places = Vec::new();
    while let Ok(pid) = guest.ready() {
        if moves {
            let place = cluster
                .row(pid)?
                .with_context(|| format!("{pid} is gone"))?
                .place;
            places.push(place.clone());
            if place != "n2" {
                cluster.move_to(pid, "n2")?;
            }
        }
        guest.go()?;
    }
    guest.succeed()?;
    ensure!(
        guest.said.last().is_some_and(|line| line == "done"),
        "It ended too soon"
    );
    Ok((places, guest.said.clone()))
}

fn check_secret(cluster: &Cluster, said: &[String]) -> Result<()> {
    let hosts = secret(cluster, "n2")?;
    ensure!(
        hosts != secret(cluster, "n1")?,
        "The lab's nodes have the same secret"
    );
    let leak = said.iter().find(|line| line.contains(&hosts));
    ensure!(
        leak.is_none(),
        "The guest has learnt its host's secret: {leak:?}"
    );
    Ok(())
}

pub(crate) fn ways(cluster: &Cluster) -> Result<()> {
    let (_, expected) = run(cluster, &["ways"], false)?;
    let (places, said) = run(cluster, &["ways"], true)?;
    for line in &said {
        println!("{line}");
    }
    println!("after each step it was on: {}", places.join(" "));
    check_secret(cluster, &said)?;
    ensure!(
        said.len() == expected.len(),
        "Away, it sees {said:#?}\nat home {expected:#?}"
    );
    for (away, home) in said.iter().zip(&expected) {
        // Nothing else has a name in front: `ready` and `done` are of the talk.
        let Some((what, _)) = away.split_once(": ") else {
            ensure!(away == home, "Away '{away}', at home '{home}'");
            continue;
        };
        let attempt = Attempt::new(Party::Guest, format!("reach its host: {what}"));
        ensure!(away == home, "Away '{away}', at home '{home}'");
        attempt.failed("what answers is home");
    }
    Ok(())
}

pub(crate) fn numbers(cluster: &Cluster, step: u32) -> Result<()> {
    let (to, step_text) = (NUMBERS.to_string(), step.to_string());
    let words = ["0", to.as_str(), step_text.as_str()];
    let attempt = Attempt::new(Party::Guest, "act on its host by any system call number");
    let (_, expected) = run(cluster, &words, false)?;
    let (places, said) = run(cluster, &words, true)?;
    check_secret(cluster, &said)?;
    let split = |lines: &[String]| -> BTreeMap<u32, String> {
        lines
            .iter()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(number, what)| Some((number.parse().ok()?, what.to_owned())))
            .collect()
    };
    let (expected, said) = (split(&expected), split(&said));
    let mut different = Vec::new();
    for number in 0..NUMBERS {
        let (home, away) = (expected.get(&number), said.get(&number));
        // Where it was after this number is known when the next one begins.
        let place = if step == 1 {
            places
                .get(usize::try_from(number)? + 1)
                .map_or("", String::as_str)
        } else {
            ""
        };
        let place = if place == "n1" { ", went home" } else { "" };
        println!(
            "{number}: {}{place}",
            away.map_or("nothing", String::as_str)
        );
        if home != away {
            different.push(format!("{number}: at home {home:?}, away {away:?}"));
        }
    }
    ensure!(different.is_empty(), "Results differ: {different:#?}");
    attempt.failed("each answers as at home, and the host's secret is in none");
    Ok(())
}
