//! A program has the same niceness and policy wherever it is, whoever changes them.

use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

const TOLD: Duration = Duration::from_secs(20);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::in_lab("priorities::travel", 3, travel)]
}

fn travel(cluster: &Cluster) -> Result<()> {
    let program = guest::script("nice.py")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    let words = ["nice", "-n", "4", &whim, "run", "--", "python3", &program];
    let mut guest = Talk::start(cluster, &mut cluster.command("n1", &words))?;
    let pid = guest.ready()?;
    // Whoever runs the tests may be nice himself.
    let base: i32 = cluster.run("n1", &["nice"])?.trim().parse()?;
    let share = |(policy, nice): (&str, i32)| format!("{policy} {}", base + nice);
    let seen = |node: &str, expected: [(&str, i32); 2]| {
        let mut expected = expected.map(share);
        expected.sort();
        eventually(TOLD, &format!("{node} has it as {expected:?}"), || {
            Ok((shares(cluster, node)? == expected).then_some(()))
        })
    };
    let mut says = |question: &str, expected: [(&str, i32); 2]| -> Result<()> {
        guest.say(question)?;
        for expected in expected.map(share) {
            let said = guest.line()?;
            ensure!(said == expected, "{question}: {said}, not {expected}");
        }
        Ok(())
    };
    says("tell", [("TS", 4), ("TS", 6)])?;
    cluster.move_to(pid, "n2")?;
    seen("n2", [("TS", 4), ("TS", 6)])?;
    says("nice 3", [("TS", 7), ("TS", 6)])?;
    seen("n2", [("TS", 6), ("TS", 7)])?;
    says("batch", [("B", 7), ("TS", 6)])?;
    seen("n2", [("B", 7), ("TS", 6)])?;
    // From outside, at home, which is where it is for everybody.
    let (number, nice) = (pid.to_string(), (base + 12).to_string());
    cluster.run("n1", &["renice", "-n", &nice, "-p", &number])?;
    seen("n2", [("B", 12), ("TS", 6)])?;
    cluster.move_to(pid, "n3")?;
    seen("n3", [("B", 12), ("TS", 6)])?;
    cluster.move_to(pid, "home")?;
    says("tell", [("B", 12), ("TS", 6)])
}

/// Policy and niceness of each of the program's threads, as a node's ps(1) tells them, in order.
fn shares(cluster: &Cluster, node: &str) -> Result<Vec<String>> {
    let shown = cluster.run(node, &["ps", "-eLo", "cls=,ni=,comm="])?;
    let mut shares: Vec<String> = shown
        .lines()
        .filter_map(|line| line.trim().strip_suffix("python3"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    shares.sort();
    Ok(shares)
}
