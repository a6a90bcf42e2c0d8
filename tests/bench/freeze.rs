//! How long a move keeps a program from running, as home counts it and as the program sees it.

use std::collections::BTreeMap;
use std::fs;

use whim_system_tests::{Cluster, Result, guest};

use super::figures::{Goals, Row, median};
use super::load::{Kept, Watch};
use super::peer::Peers;
use super::worker::{Worker, migrate, number};

/// Goal for a move of a program with 10 MB.
const GOAL_MS: f64 = 25.0;
/// From where to where, in this order.
const LEGS: [(&str, &str); 3] = [("out", "n2"), ("onward", "n3"), ("home", "home")];

struct Subject {
    name: &'static str,
    megabytes: u64,
    words: Vec<String>,
    rounds: usize,
    goal: bool,
}

/// One move.
#[derive(Clone, Debug)]
struct Sample {
    freeze_ms: f64,
    total_ms: f64,
    seen_ms: f64,
    megabytes: f64,
    phases: Vec<(String, f64)>,
}

/// One of each leg, and a transfer over TLS.
#[derive(Clone, Debug)]
struct Round {
    moves: Vec<Sample>,
    transfer_ms: f64,
}

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let mut peers = Peers::start(&cluster)?;
        let mut goals = Goals::default();
        for subject in subjects(&cluster)? {
            let rounds = of_subject(&cluster, &mut watch, &subject, &mut peers)?;
            write(&subject, &rounds, &mut goals)?;
        }
        goals.conclude()
    })
}

fn subjects(cluster: &Cluster) -> Result<Vec<Subject>> {
    let compiled = guest::c("bench_stamps")?.display().to_string();
    // Nodes do not see sources that lie below /tmp.
    let script = cluster.directory().join("bench_stamps.py");
    fs::copy(guest::source("bench_stamps.py"), &script)?;
    let script = script.display().to_string();
    let subject = |name, megabytes: u64, rounds, goal| Subject {
        name,
        megabytes,
        words: vec![compiled.clone(), megabytes.to_string()],
        rounds,
        goal,
    };
    Ok(vec![
        subject("10 MB", 10, 30, true),
        Subject {
            name: "Python, 10 MB of objects",
            megabytes: 10,
            words: vec!["python3".into(), script, "10".into()],
            rounds: 10,
            goal: false,
        },
        subject("100 MB", 100, 10, false),
        subject("1 GB", 1024, 5, false),
    ])
}

/// Rounds of moves.
fn of_subject(
    cluster: &Cluster,
    watch: &mut Watch,
    subject: &Subject,
    peers: &mut Peers,
) -> Result<Kept<Round>> {
    let words: Vec<&str> = subject.words.iter().map(String::as_str).collect();
    let bytes = subject.megabytes << 20;
    let mut worker = Worker::start(cluster, &words, true)?;
    // The first journey fills caches, which later ones find.
    round(cluster, &mut worker, peers, bytes)?;
    let kept = watch.steady(subject.rounds, || round(cluster, &mut worker, peers, bytes))?;
    worker.end(cluster)?;
    Ok(kept)
}

fn write(subject: &Subject, kept: &Kept<Round>, goals: &mut Goals) -> Result<()> {
    let transfer_ms = median(&kept.each(|round| round.transfer_ms));
    for (index, (leg, _)) in LEGS.iter().enumerate() {
        let row = Row::new("freeze", format!("{}, {leg}", subject.name));
        let freeze_ms = row.spread(
            "freeze",
            &kept.each(|round| round.moves[index].freeze_ms),
            "ms",
        )?;
        row.spread(
            "seen by it",
            &kept.each(|round| round.moves[index].seen_ms),
            "ms",
        )?;
        let total_ms = median(&kept.each(|round| round.moves[index].total_ms));
        row.put("total, median", total_ms, "ms")?;
        let sent = median(&kept.each(|round| round.moves[index].megabytes));
        row.put("sent", sent, "MB")?;
        row.put("same bytes over TLS, median", transfer_ms, "ms")?;
        row.put("freeze to that", freeze_ms / transfer_ms, "ratio")?;
        let moves = f64::from(u32::try_from(kept.samples.len())?);
        row.put("moves", moves, "count")?;
        row.load(kept)?;
        show_phases(leg, kept.samples.iter().map(|round| &round.moves[index]));
        if subject.goal {
            let what = format!("freeze {leg} at 10 MB: {freeze_ms:.1} ms of {GOAL_MS} ms");
            goals.judge(&what, freeze_ms <= GOAL_MS, kept.disturbed);
        }
    }
    Ok(())
}

/// Out, onward and home, and the same number of bytes without a move.
fn round(cluster: &Cluster, worker: &mut Worker, peers: &mut Peers, bytes: u64) -> Result<Round> {
    let moves = LEGS
        .iter()
        .map(|(_, target)| one_move(cluster, worker, target));
    Ok(Round {
        moves: moves.collect::<Result<_>>()?,
        transfer_ms: peers.transfer_ms("tls", bytes)?,
    })
}

fn one_move(cluster: &Cluster, worker: &mut Worker, target: &str) -> Result<Sample> {
    worker.heard();
    let report = migrate(cluster, worker.pid, target)?;
    let freeze_ms = number(&report, "freeze_ms")?;
    let seen_ms = seen_ms(worker)?;
    let phases = report["phases"].as_array().into_iter().flatten();
    Ok(Sample {
        freeze_ms,
        total_ms: number(&report, "total_ms")?,
        seen_ms,
        megabytes: number(&report, "bytes")? / f64::from(1 << 20),
        phases: phases
            .filter_map(|phase| Some((phase[0].as_str()?.to_owned(), phase[1].as_f64()?)))
            .collect(),
    })
}

/// The largest gap that the program has seen until now.
fn seen_ms(worker: &mut Worker) -> Result<f64> {
    let mut seen_ms: f64 = 0.0;
    let mut lines = worker.heard();
    // A tick that comes from now on follows what it has to say of the move.
    let mut tick = false;
    while !tick {
        let line = worker.line()?;
        tick = line == "tick";
        lines.push(line);
    }
    for line in lines {
        if let Some(gap) = line.strip_prefix("gap ") {
            seen_ms = seen_ms.max(gap.parse::<f64>()? / 1000.0);
        }
    }
    Ok(seen_ms)
}

/// Prints the medians of the phases, for those who look for time to save.
fn show_phases<'a>(leg: &str, samples: impl Iterator<Item = &'a Sample>) {
    let mut phases: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (phase, ms) in samples.flat_map(|sample| &sample.phases) {
        phases.entry(phase).or_default().push(*ms);
    }
    for (phase, times) in phases {
        println!("    {leg}: {phase}: {:.2} ms", median(&times));
    }
}
