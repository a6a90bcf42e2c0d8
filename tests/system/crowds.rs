//! Programs that have much of everything.

mod busy;
mod leaks;

use std::time::Duration;

use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, words: [&'static str; 4]| {
        Case::in_lab(format!("crowds::{name}"), 3, move |cluster| {
            vast(cluster, words)
        })
    };
    let mut cases = vec![
        case("many", ["64", "100", "2000", "500"]),
        // MiB, threads, mappings, open files.
        case("full::vast", ["8192", "1000", "60000", "10000"]),
    ];
    cases.extend(busy::cases());
    cases
}

/// Out, onward and home; each time it finds all that it had.
fn vast(cluster: &Cluster, words: [&str; 4]) -> Result<()> {
    let program = guest::c("vast")?.display().to_string();
    let all: Vec<&str> = [program.as_str()].into_iter().chain(words).collect();
    let started = Talk::start(cluster, &mut cluster.run_command("n1", &all))?;
    // To fill gigabytes, and to look at them, takes its time.
    let mut talk = started.patient(Duration::from_secs(300));
    let pid = talk.ready()?;
    for target in ["n2", "n3", "home"] {
        cluster.move_to(pid, target)?;
        talk.go()?;
        ensure!(talk.ready()? == pid, "Another pid on {target}");
    }
    for row in cluster.log()? {
        println!("{row}");
    }
    Ok(())
}
