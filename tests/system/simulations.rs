//! What the simulator checks (`docs/simulation.md`), as many times as it takes to believe it: each seed is
//! another run, and one that fails is printed as the command that repeats it. `cargo test -p whim-sim` does
//! the same for some seconds.

use std::process::Command;

use whim_system_tests::place::built;
use whim_system_tests::{Case, Context, Result, ensure};

pub fn cases() -> Vec<Case> {
    vec![
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
        case("speed", "speed --seeds 1 --nodes 10000"),
    ]
}

fn case(name: &str, words: &'static str) -> Case {
    Case::new(format!("simulations::full::{name}"), move |_| check(words))
}

fn check(words: &str) -> Result<()> {
    let output = Command::new(built()?.join("whim-sim"))
        .arg("check")
        .args(words.split_whitespace())
        .output()
        .context("Could not start whim-sim: run `cargo build --workspace --bins` first")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}{complaint}");
    Ok(())
}
