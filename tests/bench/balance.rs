//! Sixteen programs that compute are started on one of four nodes of different speed: how long until the last
//! has ended, against a fluid that could be divided at will.

use std::process::Command;
use std::time::{Duration, Instant};

use whim_system_tests::{Cluster, Result, Running, ensure, guest, process};

use super::figures::{Goals, Row, median};
use super::load::Watch;

const QUOTAS: &[&str] = &["--cpu", "0.8,0.4,0.4,0.2", "--memory", "2G"];
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
/// The best division that does not change: nodes of 0.8, 0.4, 0.4 and 0.2 cores.
const STATIC: [usize; 4] = [6, 4, 4, 2];
const HOGS: usize = 16;
/// Of these, so many with so much memory, in MiB.
const HEAVY: usize = 10;
const HEAVY_MIB: &str = "150";
/// CPU seconds of each.
const WORK_S: f64 = 10.0;
const RUNS: usize = 3;
/// A makespan above this part of the ideal is too long.
const GOAL: f64 = 1.15;
const GOAL_HEAVY: f64 = 1.3;
const LIMIT: Duration = Duration::from_secs(900);

pub(super) fn measure() -> Result<()> {
    let program = guest::c("bench_hog")?.display().to_string();
    let cluster = Cluster::balancing(4, QUOTAS)?;
    cluster.explaining(|| {
        let bench = Bench {
            rounds: rounds(&program)?,
            program,
            cluster: &cluster,
        };
        let mut watch = Watch::new(&cluster)?;
        let mut goals = Goals::default();
        bench.spread(&mut watch, &mut goals, "16 hogs", 0, GOAL)?;
        bench.spread(
            &mut watch,
            &mut goals,
            "16 hogs, 10 with 150 MiB",
            HEAVY,
            GOAL_HEAVY,
        )?;
        goals.conclude()
    })
}

/// How many rounds take a core so many seconds.
fn rounds(program: &str) -> Result<String> {
    let few = 200.0;
    let mut times = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        process::succeed(Command::new(program).args(["200", "0"]), LIMIT)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(format!("{:.0}", few * WORK_S / least))
}

struct Bench<'a> {
    cluster: &'a Cluster,
    program: String,
    rounds: String,
}

/// One run of everything, in seconds.
struct Sample {
    ideal: f64,
    balanced: f64,
}

impl Bench<'_> {
    fn spread(
        &self,
        watch: &mut Watch,
        goals: &mut Goals,
        name: &'static str,
        heavy: usize,
        goal: f64,
    ) -> Result<()> {
        let row = Row::new("balance", name);
        let kept = watch.steady(RUNS, || {
            let ideal = self.ideal()?;
            let balanced = self.makespan(|_| ("n1", true), heavy)?;
            println!("balance: {name}: {balanced:.1} s, ideal {ideal:.1} s");
            Ok(Sample { ideal, balanced })
        })?;
        let ratio = median(&kept.each(|sample| sample.balanced / sample.ideal));
        row.put(
            "fluid ideal",
            median(&kept.each(|sample| sample.ideal)),
            "s",
        )?;
        row.put(
            "balanced",
            median(&kept.each(|sample| sample.balanced)),
            "s",
        )?;
        row.put("balanced to ideal", ratio, "ratio")?;
        let divided = |number: usize| {
            let mut left = number;
            let place = STATIC.iter().position(|count| {
                let here = left < *count;
                left = left.saturating_sub(if here { 0 } else { *count });
                here
            });
            (NODES[place.unwrap_or(0)], false)
        };
        row.put("best static split", self.makespan(divided, heavy)?, "s")?;
        if heavy == 0 {
            row.put(
                "no balancing",
                self.makespan(|_| ("n1", false), heavy)?,
                "s",
            )?;
        }
        row.load(&kept)?;
        let group = self.cluster.memory_group("n1");
        let killed = group.map_or(0, |group| oom_kills(&group));
        ensure!(
            killed == 0,
            "{killed} programs were killed for want of memory"
        );
        goals.judge(
            &format!("{name}: {ratio:.3} of the ideal, at most {goal}"),
            ratio <= goal,
            kept.disturbed,
        );
        Ok(())
    }

    /// All work over the rates of all nodes, each of which is measured with one program, at the same time.
    fn ideal(&self) -> Result<f64> {
        let times = self.run(NODES.iter().map(|node| (*node, false)), 0)?;
        let rates: f64 = times.iter().map(|seconds| 1.0 / seconds).sum();
        let count = f64::from(u32::try_from(HOGS)?);
        Ok(count / rates)
    }

    /// Seconds until the last of all has ended; `place`: where each is started, and whether it may move.
    fn makespan(&self, place: impl Fn(usize) -> (&'static str, bool), heavy: usize) -> Result<f64> {
        let times = self.run((0..HOGS).map(place), heavy)?;
        Ok(times.into_iter().fold(0.0, f64::max))
    }

    /// The seconds that each took.
    fn run(
        &self,
        places: impl Iterator<Item = (&'static str, bool)>,
        heavy: usize,
    ) -> Result<Vec<f64>> {
        let begun = Instant::now();
        let start = |(number, (node, moves)): (usize, (&str, bool))| {
            let memory = if number < heavy { HEAVY_MIB } else { "0" };
            let words = [self.program.as_str(), &self.rounds, memory];
            let mut command = if moves {
                self.cluster.run_command(node, &words)
            } else {
                self.cluster.command(node, &words)
            };
            command.stdout(std::process::Stdio::null());
            Running::spawn(&mut command)
        };
        let mut running: Vec<Option<Running>> = places
            .enumerate()
            .map(|one| start(one).map(Some))
            .collect::<Result<_>>()?;
        let mut times = vec![0.0; running.len()];
        while running.iter().any(Option::is_some) {
            for (slot, time) in running.iter_mut().zip(&mut times) {
                let Some(program) = slot else { continue };
                if let Some(status) = program.wait_up_to(Duration::from_millis(10))? {
                    ensure!(status.success(), "A program ended with {status}");
                    *time = begun.elapsed().as_secs_f64();
                    *slot = None;
                }
            }
            ensure!(
                begun.elapsed() < LIMIT,
                "The programs took longer than {LIMIT:?}"
            );
        }
        Ok(times)
    }
}

fn oom_kills(group: &std::path::Path) -> u64 {
    ["memory.oom_control", "memory.events"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(group.join(file)).ok())
        .filter_map(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok())
        })
        .sum()
}
