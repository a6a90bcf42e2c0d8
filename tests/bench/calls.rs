//! What a forwarded call costs beside the round trips that it cannot do without.

use std::collections::BTreeMap;
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use whim_system_tests::{Cluster, Context, Result, ensure, guest};

use super::figures::{Goals, Row, median};
use super::load::{Kept, Watch};
use super::peer::Peers;
use super::worker::{Worker, migrate};

/// Goal: a small call takes at most this more than a round trip over TLS, on one CPU.
const GOAL_US: f64 = 30.0;
/// Twenty threads that are blocked in forwarded calls may make this of it.
const FLAT: f64 = 1.15;
const CALLS: [&str; 6] = [
    "getppid",
    "write_64",
    "write_4096",
    "read_4096",
    "read_65536",
    "fstat",
];
/// The calls that the goal is about.
const SMALL: [&str; 3] = ["getppid", "write_64", "read_4096"];
const BLOCKED: u32 = 20;
const ROUNDS: usize = 10;
const COUNT: usize = 300;

/// Times in microseconds of one round, by what was done.
type Round = BTreeMap<String, Vec<f64>>;

pub(super) fn one_cpu() -> Result<()> {
    // Inherited by everything that this test starts.
    let all = sched_getaffinity(Pid::from_raw(0))?;
    let last = (0..CpuSet::count())
        .rev()
        .find(|cpu| all.is_set(*cpu) == Ok(true));
    let mut one = CpuSet::new();
    one.set(last.context("There is no CPU")?)?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    measure("one CPU", true)
}

pub(super) fn two_cpus() -> Result<()> {
    ensure!(
        thread::available_parallelism()?.get() > 1,
        "There is only one CPU"
    );
    measure("two CPUs", false)
}

fn measure(on: &str, goal: bool) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let program = guest::c("bench_calls")?.display().to_string();
        let mut stayed = Worker::start(&cluster, &[&program], false)?;
        let mut away = Worker::start(&cluster, &[&program], true)?;
        let mut peers = Peers::start(&cluster)?;
        migrate(&cluster, away.pid, "n2")?;
        let kept = watch.steady(ROUNDS, || round(&mut peers, &mut stayed, &mut away))?;
        ensure_away(&cluster, &away)?;
        // Threads are made at home.
        migrate(&cluster, away.pid, "home")?;
        let said = away.ask(&format!("block {BLOCKED}"))?;
        ensure!(said == format!("blocked {BLOCKED}"), "It said '{said}'");
        migrate(&cluster, away.pid, "n2")?;
        let crowded = watch.steady(ROUNDS, || round(&mut peers, &mut stayed, &mut away))?;
        ensure_away(&cluster, &away)?;
        write(on, &kept, &crowded, goal)
    })
}

/// The figures would be those of home otherwise.
fn ensure_away(cluster: &Cluster, worker: &Worker) -> Result<()> {
    let row = cluster.row(worker.pid)?.context("It is not listed")?;
    ensure!(row.state == "away", "The program is not away: {row:?}");
    Ok(())
}

fn round(peers: &mut Peers, stayed: &mut Worker, away: &mut Worker) -> Result<Round> {
    let mut round = Round::new();
    for over in ["tcp", "tls"] {
        round.insert(over.to_owned(), peers.round_trips(over, COUNT)?);
    }
    for name in CALLS {
        let order = format!("{name} {COUNT}");
        round.insert(format!("home {name}"), stayed.times_us(&order)?);
        round.insert(name.to_owned(), away.times_us(&order)?);
    }
    Ok(round)
}

fn of<'a>(kept: &'a Kept<Round>, name: &str) -> Vec<f64> {
    kept.all(|round: &'a Round| round.get(name).map_or(&[], Vec::as_slice))
}

fn write(on: &str, kept: &Kept<Round>, crowded: &Kept<Round>, goal: bool) -> Result<()> {
    let mut goals = Goals::default();
    for (over, name) in [("tcp", "TCP round trip"), ("tls", "TLS round trip")] {
        let row = Row::new("calls", format!("{name}, {on}"));
        row.spread("time", &of(kept, over), "µs")?;
        row.load(kept)?;
    }
    for (rounds, threads) in [(kept, ""), (crowded, ", 20 threads blocked")] {
        let tls = median(&of(rounds, "tls"));
        for name in CALLS {
            let row = Row::new(
                "calls",
                format!("{}{threads}, {on}", name.replace('_', " ")),
            );
            let middle = row.spread("time", &of(rounds, name), "µs")?;
            row.put("above TLS", middle - tls, "µs")?;
            row.put("to TLS", middle / tls, "ratio")?;
            row.put(
                "at home",
                median(&of(rounds, &format!("home {name}"))),
                "µs",
            )?;
            row.load(rounds)?;
            if goal && SMALL.contains(&name) {
                let what = format!(
                    "{name}{threads}: {middle:.1} µs, {:.1} of {GOAL_US} µs above TLS",
                    middle - tls
                );
                goals.judge(&what, middle - tls <= GOAL_US, rounds.disturbed);
            }
        }
    }
    for name in SMALL {
        let flat = median(&of(crowded, name)) / median(&of(kept, name));
        let what = format!("{name} with 20 threads blocked: {flat:.2} of {FLAT} of without, {on}");
        let disturbed = kept.disturbed || crowded.disturbed;
        goals.judge(&what, flat <= FLAT, disturbed || !goal);
    }
    goals.conclude()
}
