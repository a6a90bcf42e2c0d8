//! Links that are cut for longer than anybody would like, under the leases of real clusters.

use std::fs;
use std::time::{Duration, Instant};

use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure};

/// For whatever follows a cut.
const PATIENCE: Duration = Duration::from_secs(150);
const PROGRAMS: usize = 4;
/// Counts aloud and into a file, ten times a second, until it is told to end; then it says how far it came.
const COUNTER: &str = "import os, select, sys, time
print('ready', os.getpid(), flush=True)
count, file = 0, open('count', 'w')
while not select.select([sys.stdin], [], [], 0.1)[0]:
    count += 1
    file.write(f'{count}\\n')
    file.flush()
print(count, flush=True)";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("cuts::full::{name}"), 3, body)
    };
    vec![
        case("lease_30_cut_20", |cluster| {
            survives(cluster, "30", Duration::from_secs(20))
        }),
        case("lease_30_cut_60", |cluster| {
            ends(cluster, "30", Duration::from_secs(60))
        }),
        case("lease_120_cut_60", |cluster| {
            survives(cluster, "120", Duration::from_secs(60))
        }),
    ]
}

/// Programs of n1 on n2, under this lease.
fn start(cluster: &Cluster, lease: &str) -> Result<Vec<(Talk, i32)>> {
    let python = ["python3", "-c", COUNTER];
    (0..PROGRAMS)
        .map(|number| {
            let name = format!("counter-{number}");
            let (talk, pid) = Talk::run_in(cluster, &name, &["--lease", lease], &python)?;
            cluster.move_to(pid, "n2")?;
            Ok((talk, pid))
        })
        .collect()
}

/// Cuts n2 off for this long: nothing can be waited for but the time.
fn cut(cluster: &Cluster, long: Duration) -> Result<()> {
    for other in ["n1", "n3"] {
        cluster.lab(&["cut", other, "n2"])?;
    }
    let until = Instant::now() + long;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
    }
    for other in ["n1", "n3"] {
        cluster.lab(&["heal", other, "n2"])?;
    }
    Ok(())
}

fn all_are_up(cluster: &Cluster) -> Result<()> {
    for on in ["n1", "n2", "n3"] {
        cluster.await_all_up(on, PATIENCE)?;
    }
    Ok(())
}

/// Lines of a counter's file.
fn counted(cluster: &Cluster, number: usize) -> Result<Vec<u64>> {
    let file = cluster.directory().join(format!("counter-{number}/count"));
    let text = fs::read_to_string(file)?;
    text.lines().map(|line| Ok(line.parse()?)).collect()
}

/// Output, status and files are those of a program that nobody has cut off.
fn survives(cluster: &Cluster, lease: &str, long: Duration) -> Result<()> {
    let mut programs = start(cluster, lease)?;
    cut(cluster, long)?;
    all_are_up(cluster)?;
    for (number, (talk, pid)) in programs.iter_mut().enumerate() {
        let at = counted(cluster, number)?.len();
        eventually(PATIENCE, &format!("{pid} goes on"), || {
            Ok((counted(cluster, number)?.len() > at).then_some(()))
        })?;
        ensure!(cluster.place(*pid)? == "n2", "{pid} has left n2");
        talk.say("end")?;
        let said: u64 = talk.line()?.parse()?;
        let lines = counted(cluster, number)?;
        ensure!(
            lines == (1..=said).collect::<Vec<_>>(),
            "{pid} said {said}, and wrote {lines:?}"
        );
    }
    Ok(())
}

/// Every guest across the cut ends as if by SIGKILL, and it is said why.
fn ends(cluster: &Cluster, lease: &str, long: Duration) -> Result<()> {
    let programs = start(cluster, lease)?;
    cut(cluster, long)?;
    all_are_up(cluster)?;
    for (number, (_, pid)) in programs.iter().enumerate() {
        let row = eventually(PATIENCE, &format!("{pid} has ended"), || {
            let rows = cluster.rows("n1", true)?;
            Ok(rows
                .into_iter()
                .find(|row| row.pid == *pid && row.state == "ended"))
        })?;
        let reason = row.reason.context("It ended without a reason")?;
        ensure!(reason.contains("n2"), "{pid}: {reason}");
        let log = cluster.log()?;
        let said = log
            .iter()
            .filter(|row| row["pid"] == *pid && row["what"] == "ended");
        let texts: Vec<&str> = said.filter_map(|row| row["text"].as_str()).collect();
        ensure!(
            texts.len() == 1 && texts[0].contains(&reason),
            "{pid}: {texts:?} is not {reason}"
        );
        // What it did before, it did once and in order.
        let lines = counted(cluster, number)?;
        ensure!(
            lines == (1..=lines.len() as u64).collect::<Vec<_>>(),
            "{lines:?}"
        );
    }
    eventually(PATIENCE, "n2 has no guests", || {
        Ok(cluster.rows("n2", true)?.is_empty().then_some(()))
    })
}
