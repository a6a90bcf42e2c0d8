//! What orders say of what they wait for, and of what still holds.

use std::fs;
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Running, ensure};

use super::{SHORT, answers, echoes, knows, node};

/// Longer than a home that has refused is left alone.
const RETRIES: Duration = Duration::from_secs(5);
const STOPPED: &str = "is stopped by job control";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("orders::drain_names_who_cannot_leave", 2, kept_back),
        Case::in_lab("orders::undrain_says_what_still_holds", 2, undrained),
        Case::in_lab("orders::evacuate_is_named", 2, evacuated),
        Case::in_lab("orders::stopped_while_away", 2, stopped),
        Case::in_lab("orders::run_says_who_takes_no_guests", 2, begins_here),
        Case::in_lab(
            "orders::what_a_program_was_told_is_known_away",
            2,
            told_away,
        ),
        Case::in_lab("orders::a_guest_is_known_by_its_own_number", 2, numbers),
    ]
}

fn signal(cluster: &Cluster, name: &str, pid: i32) -> Result<()> {
    let words = ["sh", "-c", "kill -\"$0\" \"$1\"", name, &pid.to_string()];
    cluster.run("n1", &words).map(drop)
}

/// A program that was to go to a node which takes no guests began at home, and nothing said so.
fn begins_here(cluster: &Cluster) -> Result<()> {
    let errors_of = |node: &str, words: &[&str]| -> Result<String> {
        let words = [words, &["--", "true"]].concat();
        let output = process::output(&mut cluster.whim_command(node, &words), SHORT)?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    cluster.whim("n1", &["drain", "n2"])?;
    let said = errors_of("n1", &["run", "--on", "n2"])?;
    ensure!(
        said.starts_with(
            "whim run: Node n2 is being drained: it takes no guests. The program begins here"
        ),
        "{said}"
    );
    let said = errors_of("n1", &["run", "--on", "best"])?;
    ensure!(
        said.starts_with("whim run: No other node takes the program now (Node n2 is being drained"),
        "{said}"
    );
    for words in [&["run"][..], &["run", "--on", "n1"]] {
        let said = errors_of("n1", words)?;
        ensure!(said.is_empty(), "{words:?}: {said}");
    }
    cluster.whim("n1", &["undrain", "n2"])?;
    let said = errors_of("n1", &["run", "--on", "n2"])?;
    ensure!(said.is_empty(), "{said}");
    Ok(())
}

/// Of a program away it was not said where it may go, nor how long its host is waited for.
fn told_away(cluster: &Cluster) -> Result<()> {
    let options = ["--avoid", "@slow", "--class", "batch", "--lease", "60"];
    let mut talks = echoes(cluster, 1, &options)?;
    let pid = talks[0].1;
    for place in ["n2", "home"] {
        cluster.move_to(pid, place)?;
        let said = cluster.whim("n1", &["why", &pid.to_string()])?;
        for sentence in [
            "It may not go to @slow.",
            "(--class batch)",
            "silent for 60 s (--lease)",
        ] {
            ensure!(
                said.contains(sentence),
                "{place}: no {sentence:?} in {said}"
            );
        }
    }
    answers(&mut talks, "told")
}

/// Its host spoke of it as of a program of its own that nothing kept there.
fn numbers(cluster: &Cluster) -> Result<()> {
    const LAST_DESCENDANT: &str = "p=$0; while c=$(cat /proc/$p/task/*/children | cut -d' ' -f1 | head -n1); \
        [ -n \"$c\" ]; do p=$c; done; echo $p";
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("no row of it")?;
    let supervisor = row.guest_supervisor_pid.context("no supervisor")?;
    let there = cluster.run(
        "n2",
        &["sh", "-c", LAST_DESCENDANT, &supervisor.to_string()],
    )?;
    let there = there.trim();
    ensure!(there != supervisor.to_string(), "no guest below {there}");
    let said = cluster.whim("n2", &["why", there])?;
    ensure!(
        said.contains("Not a candidate: it is another node's program, a guest here"),
        "{said}"
    );
    for words in [&["adopt", there][..], &["migrate", there, "n1"]] {
        let said = cluster.refused("n2", words)?;
        ensure!(
            said.contains("It is another node's program"),
            "{words:?}: {said}"
        );
    }
    answers(&mut talks, "numbered")
}

/// It waited for a guest that was stopped by job control, and never said for whom, nor why.
fn kept_back(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    let name = format!("Process {pid} of n1 cannot leave yet: It {STOPPED}");
    for asked in ["n1", "n2"] {
        cluster.move_to(pid, "n2")?;
        signal(cluster, "STOP", pid)?;
        cluster.await_state(pid, "stopped")?;
        let path = cluster.directory().join("drain.txt");
        let file = fs::File::create(&path)?;
        let mut command = cluster.whim_command(asked, &["drain", "n2"]);
        command.stdout(file.try_clone()?).stderr(file);
        let mut draining = Running::spawn(&mut command)?;
        let said = || fs::read_to_string(&path);
        eventually(SHORT, "it says who cannot leave, and why", || {
            Ok(said()?.contains(&name).then_some(()))
        })?;
        ensure!(said()?.contains("1 guest and 0 processes"), "{}", said()?);
        ensure!(draining.wait_up_to(RETRIES)?.is_none(), "{}", said()?);
        ensure!(said()?.matches(&name).count() == 1, "{}", said()?);
        signal(cluster, "CONT", pid)?;
        let status = draining.wait(SHORT)?;
        ensure!(status.success(), "{status}: {}", said()?);
        ensure!(said()?.contains("n2 is drained"), "{}", said()?);
        cluster.whim("n1", &["undrain", "n2"])?;
    }
    answers(&mut talks, "unharmed")
}

/// It said that a node took guests again which took none.
fn undrained(cluster: &Cluster) -> Result<()> {
    const AGAIN: &str = "n2 takes guests again";
    let undrain = |asked: &str| -> Result<String> {
        cluster.whim("n1", &["drain", "n2"])?;
        cluster.whim(asked, &["undrain", "n2"])
    };
    for asked in ["n1", "n2"] {
        for (tell, lift) in [
            (&["block"][..], &["unblock"][..]),
            (&["evacuate"], &["evacuate", "--undo"]),
        ] {
            cluster.whim("n2", tell)?;
            let said = undrain(asked)?;
            let remedy = format!("'whim {}'", lift.join(" "));
            ensure!(said.contains(&remedy) && !said.contains(AGAIN), "{said}");
            let row = node(cluster, "n2")?;
            ensure!(row["state"] == "up" && row["blocked"] == true, "{row}");
            cluster.whim("n2", lift)?;
        }
        cluster.whim("n2", &["stay"])?;
        let said = undrain(asked)?;
        ensure!(said.contains(AGAIN) && said.contains("'whim go'"), "{said}");
        cluster.whim("n2", &["go"])?;
        let said = undrain(asked)?;
        ensure!(said.trim() == AGAIN, "{said}");
    }
    Ok(())
}

/// Refusals named another order and a remedy that was none, and nothing told the two orders apart.
fn evacuated(cluster: &Cluster) -> Result<()> {
    const REMEDY: &str = "'whim evacuate --undo'";
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1.to_string();
    let names_it = |said: &str| -> Result<()> {
        ensure!(said.contains(REMEDY) && !said.contains("unblock"), "{said}");
        Ok(())
    };
    cluster.whim("n2", &["evacuate"])?;
    // At once, whether n1 has heard of it or not.
    names_it(&cluster.refused("n1", &["migrate", &pid, "n2"])?)?;
    for words in [["unblock"], ["go"]] {
        names_it(&cluster.whim("n2", &words)?)?;
    }
    knows(cluster, "n2", "evacuates", &true.into())?;
    ensure!(node(cluster, "n2")?["blocked"] == true);
    names_it(&cluster.refused("n1", &["migrate", &pid, "n2"])?)?;
    for asked in ["n1", "n2"] {
        let said = cluster.whim(asked, &["nodes"])?;
        names_it(&said)?;
        ensure!(said.contains("up, evacuated"), "{said}");
    }
    cluster.whim("n2", &["evacuate", "--undo"])?;
    knows(cluster, "n2", "evacuates", &false.into())?;
    let said = cluster.whim("n1", &["nodes"])?;
    ensure!(!said.contains("evacuate"), "{said}");
    cluster.move_to(talks[0].1, "n2")?;
    answers(&mut talks, "away")
}

/// Nothing said of a program that was away and stopped that it cannot move, nor its host anything of it.
fn stopped(cluster: &Cluster) -> Result<()> {
    const SENTENCE: &str = "It is stopped by job control; continue it and it can move.";
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    cluster.move_to(pid, "n2")?;
    let why = |asked: &str, name: &str| cluster.whim(asked, &["why", name]);
    let (number, of_n1) = (pid.to_string(), format!("n1:{pid}"));
    let said = why("n1", &number)? + &why("n2", &of_n1)?;
    ensure!(!said.contains(STOPPED), "{said}");
    ensure!(said.contains("is on n2 as a guest"), "{said}");
    signal(cluster, "STOP", pid)?;
    let row = cluster.await_state(pid, "stopped")?;
    ensure!(
        row.place == "n2" && row.stay.as_deref() == Some(SENTENCE),
        "{row:?}"
    );
    let said = why("n1", &number)?;
    ensure!(said.contains(SENTENCE), "{said}");
    eventually(SHORT, "its host says that it is stopped", || {
        Ok(why("n2", &of_n1)?.contains(SENTENCE).then_some(()))
    })?;
    let rows = cluster.rows("n2", true)?;
    let guest = rows.iter().find(|row| row.pid == pid && row.home == "n1");
    ensure!(
        guest.is_some_and(|row| row.state == "stopped" && row.stay.as_deref() == Some(SENTENCE)),
        "{guest:?}"
    );
    let refusal = cluster.refused("n2", &["why", &format!("n1:{}", i32::MAX)])?;
    ensure!(refusal.contains("give the command there"), "{refusal}");
    signal(cluster, "CONT", pid)?;
    cluster.await_state(pid, "away")?;
    let said = why("n1", &number)? + &why("n2", &of_n1)?;
    ensure!(!said.contains(STOPPED), "{said}");
    answers(&mut talks, "unharmed")
}
