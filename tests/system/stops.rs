//! No call notices that its process moved: each kind of call is made in a loop by a real program,
//! which checks every answer, while it moves out, onward and home at random moments. (That a mere
//! stop is not noticed either is shown by a test of whim-image, with the same program.)

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use whim_system_tests::cluster::Moved;
use whim_system_tests::process::{self, Running};
use whim_system_tests::random::Random;
use whim_system_tests::{Case, Cluster, Context, Result, Setting, anyhow, bail, ensure, guest};

/// For how long each case of the quick test runs, in seconds, and of the slow one.
const QUICK: u32 = 3;
const SLOW: u32 = 12;
/// How often a case that moved too little on a busy machine gets three times as long.
const LONGER: u32 = 2;
/// Of the quick test: one of each kind of wait.
const SAMPLE: [&str; 10] = [
    "epoll_pwait2",
    "recv_timeout",
    "clock_nanosleep_absolute",
    "futex",
    "timerfd",
    "pipe_writev",
    "waitall",
    "interrupted_epoll",
    "interrupted_read",
    "sigsuspend",
];
/// A program with rings for asynchronous input and output stays where it is.
const LEFT_OUT: [&str; 2] = ["io_getevents", "io_pgetevents"];
/// Cases at the same time; more would only make each other late.
const WORKERS: usize = 2;
/// Completed moves that each case needs.
const MOVES_MIN: u32 = 4;
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("stops::sample", |setting| {
            let names: Vec<String> = SAMPLE.iter().map(|name| (*name).to_owned()).collect();
            all(setting, &program()?, names, QUICK)
        }),
        Case::new("stops::full::signals_without_effect", |_| nudged()),
        Case::new("stops::full::every_call", |setting| {
            let program = program()?;
            let mut list = std::process::Command::new(&program);
            let list = process::succeed(list.arg("list"), LIMIT)?;
            let names = list.lines().map(str::to_owned);
            let names = names.filter(|name| !LEFT_OUT.contains(&name.as_str()));
            // For those who look for a fault.
            let only = std::env::var("WHIM_CASES").ok();
            let names = names.filter(|name| {
                let only = only.as_ref();
                only.is_none_or(|only| only.split(' ').any(|one| one == name))
            });
            all(setting, &program, names.collect(), SLOW)
        }),
    ]
}

fn program() -> Result<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/whim-image/tests/guests/calls.c");
    guest::c_at("calls", &source, &["-lrt", "-lutil"])
}

fn all(setting: &Setting, program: &Path, names: Vec<String>, seconds: u32) -> Result<()> {
    let cluster = Cluster::up(3)?;
    let queue = Mutex::new(names);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cluster, queue, failures) = (&cluster, &queue, &failures);
            scope.spawn(move || {
                let mut random = Random::new(setting.seed + worker as u64);
                loop {
                    let next = queue.lock().map(|mut queue| queue.pop());
                    let Ok(Some(name)) = next else { break };
                    match often(cluster, program, &name, seconds, &mut random) {
                        Ok(moves) => println!("{name}: {moves} moves"),
                        Err(error) => {
                            println!("{name}: {error:#}");
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(format!("{name}: {error:#}"));
                            }
                        }
                    }
                }
            });
        }
    });
    let failures = failures
        .into_inner()
        .map_err(|_| anyhow!("A worker panicked"))?;
    cluster.explaining(|| {
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        Ok(())
    })
}

/// Runs one case until it has moved often enough in one run.
fn often(
    cluster: &Cluster,
    program: &Path,
    name: &str,
    mut seconds: u32,
    random: &mut Random,
) -> Result<u32> {
    let mut moves = 0;
    for _ in 0..=LONGER {
        moves = one(cluster, program, name, seconds, random)?;
        if moves >= MOVES_MIN {
            return Ok(moves);
        }
        println!("{name}: {moves} moves in {seconds} s; once more, for longer");
        seconds *= 3;
    }
    bail!("It moved {moves} times only")
}

/// Runs one case while it moves; how often it moved.
fn one(
    cluster: &Cluster,
    program: &Path,
    name: &str,
    seconds: u32,
    random: &mut Random,
) -> Result<u32> {
    let seconds = &seconds.to_string();
    let output = cluster.directory().join(name);
    let words = [
        program.display().to_string(),
        name.to_owned(),
        seconds.clone(),
    ];
    let mut command = cluster.run_command("n1", &words);
    command.stdout(File::create(&output)?);
    let mut running = Running::spawn(&mut command)?;
    let mut moves = 0;
    let begun = std::time::Instant::now();
    let status = loop {
        let gap = Duration::from_micros(random.below(150_000));
        if let Some(status) = running.wait_up_to(gap)? {
            break status;
        }
        ensure!(begun.elapsed() < LIMIT, "It has not ended after {LIMIT:?}");
        // Its helpers are children of its, and have higher numbers.
        let own = format!(" {name} {seconds}");
        let rows = cluster.rows("n1", false)?;
        let row = rows
            .iter()
            .filter(|row| row.command.ends_with(&own))
            .filter(|row| !row.command.contains("whim run"))
            .min_by_key(|row| row.pid);
        let Some(row) = row else { continue };
        let places: Vec<&str> = ["home", "n2", "n3"]
            .into_iter()
            .filter(|place| row.place != if *place == "home" { "n1" } else { place })
            .collect();
        let target = random.pick(&places).context("a place")?;
        match cluster.migrate(row.pid, target)? {
            Moved::Done(_) => moves += 1,
            Moved::Refused(reason) => println!("{name} to {target}: {reason}"),
        }
    };
    let told = std::fs::read_to_string(&output)?;
    let last = told.lines().last().unwrap_or_default();
    let words: Vec<&str> = last.split(' ').collect();
    ensure!(
        status.success() && matches!(words.as_slice(), ["done", good, "0"] if *good != "0"),
        "after {moves} moves: {status}: {told}"
    );
    Ok(moves)
}

/// Calls of a program that is away do not notice a signal that has no effect, as they would not at
/// home, where the kernel drops it.
fn nudged() -> Result<()> {
    let cluster = Cluster::up(2)?;
    let program = program()?.display().to_string();
    cluster.explaining(|| {
        for name in [
            "epoll_pwait2",
            "recv_timeout",
            "pipe_writev",
            "sendmsg",
            "waitall",
        ] {
            let output = cluster.directory().join(name);
            let words = [program.as_str(), name, &QUICK.to_string(), "when-told"];
            let mut command = cluster.run_command("n1", &words);
            let (input, mut tell) = std::io::pipe()?;
            command.stdin(input).stdout(File::create(&output)?);
            let mut running = Running::spawn(&mut command)?;
            let pid = cluster.find(&format!(" {name} {QUICK}"))?;
            cluster.move_to(pid, "n2")?;
            let script = format!("while kill -WINCH {pid}; do sleep 0.007; done 2> /dev/null");
            let mut sender = Running::spawn(&mut cluster.command("n1", &["sh", "-c", &script]))?;
            // However long the move took: its time begins when it is away.
            tell.write_all(b"\n")?;
            let status = running.wait(LIMIT)?;
            sender.wait(LIMIT)?;
            let told = std::fs::read_to_string(&output)?;
            ensure!(
                status.success() && told.lines().last().is_some_and(|l| l.ends_with(" 0")),
                "{name}: {status}: {told}"
            );
            println!("{name}: {}", told.lines().last().unwrap_or_default());
        }
        Ok(())
    })
}
