//! What the simulator checks (`docs/simulation.md`), as many times as it takes to believe it: each seed is
//! another run, and one that fails is printed as the command that repeats it. `cargo test -p whim-sim` does
//! the same for some seconds.

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use whim_system_tests::place::built;
use whim_system_tests::process::{eventually, succeed};
use whim_system_tests::{Case, Cluster, Context, Result, Running, Talk, ensure};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("simulations::of_a_lab", 2, of_a_lab),
        // A hundred seeds in five tests: all of them would be longer than a part of the full set.
        case("pingpong_1", "pingpong --first 0 --seeds 20 --hours 24"),
        case("pingpong_2", "pingpong --first 20 --seeds 20 --hours 24"),
        case("pingpong_3", "pingpong --first 40 --seeds 20 --hours 24"),
        case("pingpong_4", "pingpong --first 60 --seeds 20 --hours 24"),
        case("pingpong_5", "pingpong --first 80 --seeds 20 --hours 24"),
        case("ushering", "ushering --cases 1000"),
        case("faults", "faults --seeds 1000"),
        case("ages", "ages --seeds 3 --nodes 1024"),
        case("spread", "spread --seeds 1000"),
        case("fair", "fair --seeds 100 --hours 24"),
        case("speed", "speed --seeds 1 --nodes 10000"),
    ]
}

/// What programs of a lab do is recorded, wherever they are, and done again by the simulator.
fn of_a_lab(cluster: &Cluster) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let file = cluster.directory().join("lab.jsonl");
    let name = file.display().to_string();
    let wrong = cluster.lab(&["record", "lab.txt"]).err().context("a name");
    ensure!(wrong?.to_string().contains(".jsonl"), "Any name is taken");
    let hog = ["sh", "-c", "echo ready $$; read go; while :; do :; done"];
    let mut hog = Talk::start(cluster, &mut cluster.run_command("n1", &hog))?;
    let pid = hog.ready()?;
    let idle = Running::spawn(&mut cluster.run_command("n2", &["sleep", "1000"]))?;
    let said = thread::scope(|scope| {
        let recorder = scope.spawn(|| cluster.lab(&["record", &name, "--seconds", "12"]));
        let lines = || {
            std::fs::read_to_string(&file)
                .unwrap_or_default()
                .lines()
                .count()
        };
        eventually(PATIENCE, "lines of a record", || {
            Ok((lines() > 4).then_some(()))
        })?;
        hog.go()?;
        cluster.move_to(pid, "n2")?;
        recorder.join().ok().context("the recorder")?
    })?;
    drop((hog, idle));
    ensure!(said.starts_with("2 programs in 12 seconds"), "{said}");
    let text = std::fs::read_to_string(&file)?;
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<Value>, _>>()?;
    let of = |home: &str, node: &str| {
        let here = |line: &&Value| line["home"] == home && line["node"] == node;
        let ran = lines
            .iter()
            .filter(here)
            .filter_map(|line| line["ran"].as_f64());
        (lines.iter().filter(here).count(), ran.fold(0.0, f64::max))
    };
    let (asleep, away, idle) = (of("n1", "n1"), of("n1", "n2"), of("n2", "n2"));
    ensure!(
        asleep.0 > 1 && away.0 > 1 && away.1 > 0.2,
        "{asleep:?}, {away:?}"
    );
    ensure!(idle.0 > 5 && idle.1 < 0.2, "{idle:?}");
    let again = [
        "run",
        "--nodes",
        "1,1",
        "--seconds",
        "60",
        "--json",
        "--workload",
        &name,
    ];
    let again = succeed(
        Command::new(built()?.join("whim-sim")).args(again),
        PATIENCE,
    )?;
    println!("{said}{again}");
    let again: Value = serde_json::from_str(&again)?;
    ensure!(again["done"] == 2, "{again}");
    Ok(())
}

fn case(name: &str, words: &'static str) -> Case {
    Case::new(format!("simulations::full::{name}"), move |_| check(words))
}

fn check(words: &str) -> Result<()> {
    let output = Command::new(built()?.join("whim-sim"))
        .arg("check")
        .args(words.split_whitespace())
        .output()
        .context("Could not start whim-sim: run `cargo build --bins` first")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}{complaint}");
    Ok(())
}
