//! Time as a program sees it while it moves.

use std::time::{Duration, Instant};

use whim_system_tests::{Case, Cluster, Context, Result, Talk, anyhow, ensure, guest, process};

/// What the guest `cpu_time` reports, in its order.
const MEASURES: [&str; 6] = [
    "the clock of the process",
    "the clock of its thread",
    "the clock of the other thread",
    "getrusage of the process",
    "getrusage of the thread",
    "times",
];
/// What each of its two threads uses at each place, in microseconds.
const WORK: i64 = 150_000;
/// Some times count in ticks of 10 ms, user and system time apart, on both sides.
const COARSE: i64 = 40_000;
const MOVE_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("clocks::cpu_time", |_| cpu_time()),
        Case::new("clocks::of_a_run", |_| of_a_run()),
        Case::new("clocks::full::waits", |_| waits()),
        Case::new("clocks::nested", |_| nested()),
        Case::new("clocks::full::nested_waits", |_| nested_waits()),
        Case::new("clocks::skewed", |_| skewed()),
        Case::new("clocks::full::far_away", |_| far_away()),
        Case::new("clocks::near_again", |_| near_again()),
        Case::in_lab("clocks::half_read", 3, half_read),
    ]
}

type Times = [i64; MEASURES.len()];

/// CPU time goes on where the program goes. Only on return may it step back, and then to no less
/// than it was at home before: what was used away cannot be added there.
fn cpu_time() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let program = guest::c("cpu_time")?.display().to_string();
        let mut talk = Talk::start(&cluster, &mut cluster.run_command("n1", &[program]))?;
        let mut last = [0; MEASURES.len()];
        let mut at_home = last;
        for target in ["", "n2", "n3", "n2", "home", "n3", "n2", "home"] {
            let pid = talk.ready()?;
            if !target.is_empty() {
                cluster.move_to(pid, target)?;
            }
            talk.go()?;
            let begun = times(&talk.until("begun ")?)?;
            let ended = times(&talk.until("ended ")?)?;
            println!("{target}: {begun:?} to {ended:?}");
            let home = matches!(target, "" | "home");
            let floor = if home { at_home } else { last };
            for (index, what) in MEASURES.iter().enumerate() {
                ensure!(
                    begun[index] >= floor[index],
                    "{what} went back from {} to {} on the way to '{target}'",
                    floor[index],
                    begun[index]
                );
                let threads = if what.contains("thread") { 1 } else { 2 };
                let used = ended[index] - begun[index];
                ensure!(
                    used >= threads * WORK - COARSE,
                    "{what} counts {used} of {} at '{target}'",
                    threads * WORK
                );
                let waited = begun[index] - floor[index];
                ensure!(
                    waited < threads * WORK,
                    "{what} has jumped by {waited} on the way to '{target}'"
                );
            }
            last = ended;
            if home {
                at_home = ended;
            }
        }
        Ok(())
    })
}

/// `whim run --time` adds up what a program has used at home and away, in several stays, the last of
/// which it does not return from.
fn of_a_run() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let program = guest::c("cpu_time")?.display().to_string();
        let words = ["run", "--time", "--", &program];
        let mut talk = Talk::start(&cluster, &mut cluster.whim_command("n1", &words))?;
        for target in ["", "n2", "n3", "home", "n2"] {
            let pid = talk.ready()?;
            if !target.is_empty() {
                cluster.move_to(pid, target)?;
            }
            talk.go()?;
            talk.until("ended ")?;
        }
        talk.ready()?;
        talk.say("end")?;
        talk.succeed()?;
        let said = talk.errors();
        println!("{said}");
        ensure!(said.contains("moves 4\n"), "It has not counted its moves");
        let at_place = 2.0 * seconds(WORK);
        let (all, away) = (used(&said, "")?, used(&said, "of it ")?);
        // Some of it counts in ticks.
        ensure!(all >= 5.0 * at_place - 0.1, "{all} s of {}", 5.0 * at_place);
        ensure!(
            away >= 3.0 * at_place - 0.1 && all - away >= 2.0 * at_place - 0.1,
            "{away} s of {all} s away"
        );
        Ok(())
    })
}

fn seconds(micros: i64) -> f64 {
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
}

/// The number behind this word, of user and system time together.
fn used(said: &str, before: &str) -> Result<f64> {
    let number = |name: &str| -> Result<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        let text = line.with_context(|| format!("It does not say '{name}'"))?;
        let text = text.split_once(before).map_or("", |(_, text)| text);
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    };
    Ok(number("user ")? + number("sys ")?)
}

fn times(line: &str) -> Result<Times> {
    let numbers: Vec<i64> = line
        .split_whitespace()
        .map(|word| word.parse().with_context(|| format!("No time: '{word}'")))
        .collect::<Result<_>>()?;
    numbers
        .try_into()
        .map_err(|_| anyhow!("Not {} times: '{line}'", MEASURES.len()))
}

/// Where messages take long, no clock of the guest is behind home's: its timers, which are home's, are
/// never early; on return it waits until home's clock has caught up, and that is said beforehand.
fn far_away() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        for node in ["n2", "n3"] {
            cluster.lab(&["link", "n1", node, "--delay", "120ms"])?;
        }
        let program = guest::c("expiry")?.display().to_string();
        let words = ["run", "--lease", "30", "--", &program];
        let mut talk = Talk::start(&cluster, &mut cluster.whim_command("n1", &words))?;
        for target in ["n2", "n3", "home"] {
            let pid = talk.ready()?;
            let words = ["migrate", &pid.to_string(), target];
            let moved = process::output(&mut cluster.whim_command("n1", &words), MOVE_WITHIN)?;
            let said = String::from_utf8_lossy(&moved.stderr).into_owned();
            ensure!(moved.status.success(), "Not moved to {target}: {said}");
            ensure!(
                target != "home" || said.contains("clock is ahead of this node's"),
                "Nothing is said of the wait for the clock: '{said}'"
            );
            talk.go()?;
            talk.until("tried")?;
        }
        without_fault(&talk)
    })
}

/// The guest `expiry` has found nothing wrong.
fn without_fault(talk: &Talk) -> Result<()> {
    let faults: Vec<_> = talk.said.iter().filter(|l| l.contains("fault")).collect();
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

/// What was far away when a program came is near when it goes: it is home before home's clock has caught
/// up with what it has seen, and waits for that.
fn near_again() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let link = |delay: &str| cluster.lab(&["link", "n1", "n2", "--delay", delay]);
        let program = guest::c("expiry")?.display().to_string();
        let words = ["run", "--lease", "30", "--", &program];
        let mut talk = Talk::start(&cluster, &mut cluster.whim_command("n1", &words))?;
        link("200ms")?;
        for target in ["n2", "home"] {
            let pid = talk.ready()?.to_string();
            let mut command = cluster.whim_command("n1", &["migrate", &pid, target]);
            process::succeed(&mut command, MOVE_WITHIN)?;
            link("0ms")?;
            talk.go()?;
            talk.until("tried")?;
        }
        without_fault(&talk)
    })
}

/// Starts a program in a time namespace of its own, below the node's. A machine that has just been switched on
/// has no boot time to be put back by more.
const NESTED: [&str; 8] = [
    "unshare",
    "--time",
    "--fork",
    "--monotonic",
    "500000",
    "--boottime",
    "-20",
    "--",
];

/// A program whose monotonic and boot clocks are not its node's, as in some containers, keeps them
/// wherever it goes, and none of its timers is early.
fn nested() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let program = guest::c("expiry")?.display().to_string();
        let mut words = NESTED.to_vec();
        words.push(&program);
        let mut command = cluster.run_command("n1", &words);
        steady_from(
            &cluster,
            "n1",
            &mut command,
            &["n2", "n3", "n2", "home", "n3"],
        )
    })
}

/// Clocks that are a little apart, in both directions: too little for a leap to be seen, enough for a
/// clock that steps back. They are told apart to the millisecond.
fn skewed() -> Result<()> {
    let cluster = Cluster::up_with(3, &["--clock", "0,0.08,-0.08"])?;
    cluster.explaining(|| {
        let program = guest::c("expiry")?.display().to_string();
        for home in ["n1", "n2", "n3"] {
            let mut command = cluster.run_command(home, &[&program]);
            let others = ["n1", "n2", "n3"].into_iter().filter(|node| *node != home);
            let others: Vec<&str> = others.collect();
            let targets = [others[0], others[1], "home", others[1], others[0], "home"];
            steady_from(&cluster, home, &mut command, &targets)?;
        }
        Ok(())
    })
}

/// Whoever is stopped in the middle of reading a clock reads it right. At home a program has the machine's own clocks, as
/// it has without a lab, or those of a namespace, as in some containers: the kernel's code reads them differently.
fn half_read(cluster: &Cluster) -> Result<()> {
    let program = guest::c("readers")?.display().to_string();
    for words in [
        &["machine", "interrupted"][..],
        &["machine", "ignoring"],
        &["interrupted"],
    ] {
        let moved = cluster.run_command("n1", &[&[program.as_str()], words].concat());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec 9</proc/self/ns/time; exec \"$@\"", "sh"]);
        command.arg(moved.get_program()).args(moved.get_args());
        for (name, value) in moved.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let mut talk = Talk::start(cluster, &mut command)?;
        let pid = talk.ready()?;
        let places = ["n2", "home", "n3", "n2", "n3", "home"];
        for place in places.iter().cycle().take(12) {
            cluster.move_to(pid, place)?;
        }
        talk.say("end")?;
        let line = talk.line()?;
        ensure!(line == "0 wrong", "{words:?}: {line}");
        talk.succeed()?;
    }
    Ok(())
}

/// The guest `expiry` of this home finds no fault wherever it goes.
fn steady_from(
    cluster: &Cluster,
    home: &str,
    command: &mut std::process::Command,
    targets: &[&str],
) -> Result<()> {
    let mut talk = Talk::start(cluster, command)?;
    for target in targets {
        let pid = talk.ready()?.to_string();
        cluster.whim(home, &["migrate", &pid, target])?;
        talk.go()?;
        talk.until("tried")?;
    }
    without_fault(&talk).with_context(|| format!("From {home} by {targets:?}"))
}

/// How long each call waits.
const WAIT: Duration = Duration::from_millis(2500);
/// Into the wait, the moves begin.
const MEANWHILE: Duration = Duration::from_millis(700);
/// How late a wait may end, besides the time of the moves: less than what has passed before them.
const LATE: Duration = Duration::from_millis(400);

/// A wait that is met by moves ends when it would have ended without them.
fn waits() -> Result<()> {
    waits_below(&[])
}

/// The same for a program whose clocks are not its node's: its deadlines are by its own ones.
fn nested_waits() -> Result<()> {
    waits_below(&NESTED)
}

/// Waits of a program that is started by these words.
fn waits_below(starter: &[&str]) -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let program = guest::c("waits")?.display().to_string();
        let milliseconds = WAIT.as_millis().to_string();
        let mut words = starter.to_vec();
        words.extend([program.as_str(), &milliseconds]);
        let mut talk = Talk::start(&cluster, &mut cluster.command("n1", &words))?;
        talk.ready()?;
        talk.go()?;
        talk.until("waited")?;
        let expected = std::mem::take(&mut talk.said);
        drop(talk);
        let mut talk = Talk::start(&cluster, &mut cluster.run_command("n1", &words))?;
        let mut checked = 0;
        for targets in [&["n2"][..], &["n3"], &["home"], &["n2", "n3", "home"]] {
            let pid = talk.ready()?;
            talk.go()?;
            talk.until("waiting")?;
            let begun = Instant::now();
            // Not a wait for something: this is the time at which the moves are to meet the calls.
            std::thread::sleep(MEANWHILE);
            for target in targets {
                cluster.move_to(pid, target)?;
            }
            // `select` and its kin slip by the time of the stop.
            let latest = WAIT + begun.elapsed().saturating_sub(MEANWHILE) + LATE;
            talk.until("waited")?;
            let said = std::mem::take(&mut talk.said);
            let errors = talk.errors();
            let took: Vec<&str> = errors.lines().skip(checked).collect();
            checked += took.len();
            println!("{targets:?}: {took:?}");
            ensure!(
                said == expected,
                "{targets:?}: {said:#?}, not {expected:#?}"
            );
            let mut bad = took.clone();
            bad.retain(|line| !in_time(line, latest));
            ensure!(bad.is_empty(), "On the way to {targets:?}: {bad:#?}");
        }
        Ok(())
    })
}

/// `took MICROSECONDS NAME`
fn in_time(line: &str, latest: Duration) -> bool {
    let word = line.split(' ').nth(1);
    let took = word.and_then(|word| word.parse().ok());
    let took = took.map(Duration::from_micros);
    took.is_some_and(|took| took >= WAIT && took < latest)
}
