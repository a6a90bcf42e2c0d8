//! What calls cost that bring a program home, and what they cost there afterwards; and what it costs to
//! make a thread, which does not.

use whim_system_tests::{Cluster, Result, ensure, guest};

use super::figures::{Row, median};
use super::load::Watch;
use super::worker::{Worker, migrate};

const ROUNDS: usize = 20;
/// Calls at home in each round.
const COUNT: usize = 20;
const MEGABYTES: &str = "10";
const CALLS: [Call; 3] = [
    Call {
        word: "fork",
        name: "fork and wait",
        stays: false,
    },
    Call {
        word: "spawn",
        name: "posix_spawn and wait",
        stays: false,
    },
    Call {
        word: "thread",
        name: "pthread_create and join",
        stays: true,
    },
];

/// What is measured.
#[derive(Clone, Copy)]
struct Call {
    word: &'static str,
    name: &'static str,
    /// It is done where the program is.
    stays: bool,
}

/// Times in milliseconds of one round.
struct Round {
    /// Of a program that has never moved.
    never: Vec<f64>,
    /// Of the call that brings the program home, or is made away.
    going: Vec<f64>,
    /// Of the same call once it is home.
    after: Vec<f64>,
}

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let program = guest::c("bench_calls")?.display().to_string();
        let words = [program.as_str(), MEGABYTES];
        let mut stayed = Worker::start(&cluster, &words, false)?;
        let mut traveller = Worker::start(&cluster, &words, true)?;
        for call in CALLS {
            let kept = watch.steady(ROUNDS, || {
                round(&cluster, &call, &mut stayed, &mut traveller)
            })?;
            let never = kept.all(|round| &round.never);
            let going = kept.all(|round| &round.going);
            let after = kept.all(|round| &round.after);
            let base = median(&never);
            for (what, times) in [
                ("never moved", never),
                (
                    if call.stays {
                        "away"
                    } else {
                        "away, goes home"
                    },
                    going,
                ),
                ("at home again", after),
            ] {
                let row = Row::new("home", format!("{}, {what}", call.name));
                let middle = row.spread("time", &times, "ms")?;
                row.put("to never moved", middle / base, "ratio")?;
                row.load(&kept)?;
            }
        }
        Ok(())
    })
}

fn round(
    cluster: &Cluster,
    call: &Call,
    stayed: &mut Worker,
    traveller: &mut Worker,
) -> Result<Round> {
    let ms = |times: Vec<f64>| times.into_iter().map(|us| us / 1000.0).collect();
    let never = ms(stayed.times_us(&format!("{} {COUNT}", call.word))?);
    migrate(cluster, traveller.pid, "n2")?;
    let count = if call.stays { COUNT } else { 1 };
    let going = ms(traveller.times_us(&format!("{} {count}", call.word))?);
    if call.stays {
        let place = cluster.place(traveller.pid)?;
        ensure!(place == "n2", "{} brings it to {place}", call.name);
        migrate(cluster, traveller.pid, "home")?;
    }
    cluster.await_state(traveller.pid, "home")?;
    let after = ms(traveller.times_us(&format!("{} {COUNT}", call.word))?);
    Ok(Round {
        never,
        going,
        after,
    })
}
