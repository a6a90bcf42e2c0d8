//! Many programs that move at the same time, and one that moves a thousand times.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use whim_system_tests::mover::{self, Moves, Plan};
use whim_system_tests::process::{Running, eventually, output, succeed};
use whim_system_tests::random::Random;
use whim_system_tests::{Case, Cluster, Context, Result, anyhow, ensure, guest};

use super::leaks::{Samples, zombies};

/// Those who ask for moves, at the same time.
const MOVERS: u64 = 3;
const LIMIT: Duration = Duration::from_secs(1200);

pub(super) fn cases() -> Vec<Case> {
    let crowd = |name: &str, programs: usize, time: Duration| {
        Case::new(format!("crowds::{name}"), move |setting| {
            let cluster = Cluster::up(4)?;
            let seed = setting.seed;
            cluster.explaining(|| busy(&cluster, programs, time, seed))
        })
    };
    vec![
        crowd("few", 6, Duration::from_secs(6)),
        crowd("full::sixty_four", 64, Duration::from_secs(30 * 60)),
        Case::new("crowds::full::thousand_moves", |setting| {
            let cluster = Cluster::up(4)?;
            let seed = setting.seed;
            cluster.explaining(|| thousand_moves(&cluster, seed))
        }),
    ]
}

/// One of the programs of every day, which does its work again and again.
struct Worker {
    command: String,
    directory: PathBuf,
    expected: String,
    running: Running,
}

/// The commands of `everyday.txt`, evenly chosen.
fn commands(count: usize) -> Result<Vec<String>> {
    let text = fs::read_to_string(guest::source("everyday.txt"))?;
    let all: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    ensure!(all.len() >= count, "There are {} commands only", all.len());
    let chosen = (0..count).map(|index| all[index * all.len() / count].to_owned());
    Ok(chosen.collect())
}

/// What the commands work on.
fn prepare(inputs: &Path) -> Result<()> {
    fs::create_dir_all(inputs.join("tree"))?;
    let generate = guest::c("generate")?;
    let text = inputs.join("text");
    succeed(Command::new(&generate).arg("600000").arg(&text), LIMIT)?;
    let lines = fs::read_to_string(&text)?;
    let other = lines.replace("attic page", "page attic");
    fs::write(inputs.join("other"), other)?;
    fs::copy(&generate, inputs.join("binary"))?;
    fs::copy(guest::source("generate.c"), inputs.join("program.c"))?;
    for (number, line) in lines.lines().take(200).enumerate() {
        fs::write(inputs.join(format!("tree/{number}")), line.repeat(20))?;
    }
    Ok(())
}

/// The sum of what a command prints, as a shell says it. Its errors go to a file: they name times.
fn summed(command: &str) -> String {
    format!("{{ {command}\n}} 2>>errors | sha256sum")
}

impl Worker {
    fn start(cluster: &Cluster, command: String, number: usize) -> Result<Self> {
        let directory = cluster.directory().join(format!("worker-{number}"));
        fs::create_dir_all(&directory)?;
        let once = summed(&command);
        let mut unmoved = cluster.command("n1", &["bash", "-c", &once]);
        let expected = succeed(unmoved.current_dir(&directory), LIMIT)
            .with_context(|| format!("Unmoved: {command}"))?;
        let script = format!("until test -e ../stop; do {once} >>sums || exit 9; done; echo done");
        let mut moved = cluster.run_command("n1", &["bash", "-c", &script]);
        moved
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(File::create(directory.join("output"))?)
            .stderr(File::create(directory.join("complaints"))?);
        let running = Running::spawn(&mut moved)?;
        Ok(Self {
            command,
            directory,
            expected,
            running,
        })
    }

    /// Waits for its end; how often it has done its work.
    fn end(&mut self) -> Result<usize> {
        let status = self.running.wait(LIMIT)?;
        let read = |name: &str| fs::read_to_string(self.directory.join(name));
        let (sums, output) = (read("sums")?, read("output")?);
        let command = &self.command;
        ensure!(
            status.success() && output == "done\n",
            "{command}: {status}, {output}, {}, {}",
            read("complaints")?,
            read("errors").unwrap_or_default()
        );
        for sum in sums.lines() {
            ensure!(
                sum.trim() == self.expected.trim(),
                "{command}: {sum}, and unmoved {}: {}",
                self.expected,
                read("errors").unwrap_or_default()
            );
        }
        Ok(sums.lines().count())
    }
}

fn busy(cluster: &Cluster, programs: usize, time: Duration, seed: u64) -> Result<()> {
    prepare(&cluster.directory().join("in"))?;
    let mut workers = Vec::new();
    for (number, command) in commands(programs)?.into_iter().enumerate() {
        workers.push(Worker::start(cluster, command, number)?);
    }
    let (moves, samples) = move_all(cluster, time, seed)?;
    fs::write(cluster.directory().join("stop"), "")?;
    let mut rounds = 0;
    for worker in &mut workers {
        rounds += worker.end()?;
    }
    println!("{programs} programs, {rounds} times: {moves}");
    ensure!(moves.completed > 0, "Nothing has moved");
    eventually(LIMIT, "no supervisor and no zombie is left", || {
        Ok((zombies(cluster)?.is_empty() && cluster.rows("n1", false)?.is_empty()).then_some(()))
    })?;
    if time > Duration::from_secs(60) {
        samples.show_no_growth()?;
    }
    Ok(())
}

/// Moves whatever there is for so long.
fn move_all(cluster: &Cluster, time: Duration, seed: u64) -> Result<(Moves, Samples)> {
    let plan = Plan {
        focus: &[],
        gap: Duration::from_millis(100),
        limit: time * 2,
    };
    let mut samples = Samples::default();
    let moves = std::thread::scope(|scope| {
        let mut ends = Vec::new();
        let mut movers = Vec::new();
        for number in 0..MOVERS {
            let (end, ended) = mpsc::channel();
            let (plan, mut random) = (&plan, Random::new(seed + number));
            ends.push(end);
            movers.push(scope.spawn(move || {
                let progress = Arc::new(AtomicU32::new(0));
                mover::drive_until(cluster, &ended, plan, &mut random, progress)
            }));
        }
        let (keeps, over) = mpsc::channel::<()>();
        let begun = Instant::now();
        while begun.elapsed() < time {
            samples.take(cluster)?;
            // Nobody says anything: a wait with an end.
            let _ = over.recv_timeout((time / 120).min(time.saturating_sub(begun.elapsed())));
        }
        drop((keeps, ends));
        let mut all = Moves::default();
        for mover in movers {
            all.add(mover.join().map_err(|_| anyhow!("A mover panicked"))??);
        }
        Ok::<_, whim_system_tests::Error>(all)
    })?;
    Ok((moves, samples))
}

/// A program of twenty threads, at an even pace from node to node and home.
fn thousand_moves(cluster: &Cluster, seed: u64) -> Result<()> {
    const MOVES: u32 = 1000;
    let program = guest::c("holders")?.display().to_string();
    let size = seed % 7 + 20_000;
    let words = [program, size.to_string()];
    let unmoved = output(&mut cluster.command("n1", &words), LIMIT)?;
    ensure!(unmoved.status.success(), "Unmoved: {unmoved:?}");
    let log = cluster.directory().join("moved.out");
    let mut command = cluster.run_command("n1", &words);
    let mut running = Running::spawn(command.stdin(Stdio::null()).stdout(File::create(&log)?))?;
    let pid = cluster.find("holders")?;
    let mut samples = Samples::default();
    let route = ["n2", "n3", "n4", "n2", "n4", "n3", "home"];
    let begun = Instant::now();
    for (number, target) in (0..MOVES).zip(route.iter().cycle()) {
        cluster
            .move_to(pid, target)
            .with_context(|| format!("Move {number}"))?;
        samples.take(cluster)?;
    }
    println!("{MOVES} moves in {:.0} s", begun.elapsed().as_secs_f64());
    samples.show_no_growth()?;
    cluster.have_on(pid, "home")?;
    let status = running.wait(LIMIT)?;
    ensure!(
        status == unmoved.status && fs::read(&log)? == unmoved.stdout,
        "Moved: {status}, {}",
        fs::read_to_string(&log)?
    );
    Ok(())
}
