//! Nodes of different kernels. That the vDSO differs can be had without another kernel: a host can be
//! told not to use its own.

use whim_system_tests::cluster::Moved;
use whim_system_tests::{Case, Cluster, Result, Talk, bail, ensure, guest};

/// In the reason for which a program comes home that left it within the vDSO.
const CAME_HOME: &str = "it left home in the middle of its kernel's own code";
/// In the reason for which a host that has another vDSO does not take it over; the log has it too.
const UNFINISHED: &str = "kernel's own code, and this host's kernel is another one";
const ROUNDS_MAX: u32 = 50;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("kernels::met_within_the_vdso", |_| met())]
}

/// A signal has met the program within the vDSO, and its handler is on the way when the program moves:
/// to a host that has another vDSO, to one that has the same, and from another one home and on.
fn met() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        cluster.configure("n2", "[guests]\nown_vdso = false\n")?;
        cluster.restart_daemon("n2")?;
        let program = guest::c("in_vdso")?.display().to_string();
        let mut talk = Talk::start(&cluster, &mut cluster.run_command("n1", &[&program]))?;
        let mut unfinished = 0;
        // It may have been met behind all that needs the kernel's data, and goes on at n2 then.
        for round in 0.. {
            let last = met_between(&cluster, &mut talk, "n1", "n2")?;
            if last == "n1" {
                unfinished += 1;
                break;
            }
            ensure!(round < ROUNDS_MAX, "It never has to come home");
        }
        for (met, to) in [("n1", "n3"), ("n2", "n1"), ("n2", "n3")] {
            let last = met_between(&cluster, &mut talk, met, to)?;
            ensure!(last == to, "Met on {met}, moved to {to}, it is on {last}");
        }
        never_met(&cluster, &mut talk, "n3")?;
        drop(talk);
        let log = cluster.whim("n1", &["log"])?;
        let said = log.matches(CAME_HOME).count();
        ensure!(
            said == unfinished,
            "It came home {said} times, not {unfinished}: {log}"
        );
        Ok(())
    })
}

/// Of a host that has home's vDSO no handler sees the middle.
fn never_met(cluster: &Cluster, talk: &mut Talk, node: &str) -> Result<()> {
    let pid = talk.until("outside ")?.trim().parse()?;
    cluster.have_on(pid, node)?;
    talk.go()?;
    let said = talk.line()?;
    ensure!(said.starts_with("never "), "It was met on {node}: {said}");
    Ok(())
}

/// Meets the program on one node and moves it to another one; where it is when it has gone on. Met at
/// one of the few instructions that another host has no room for, it stays, and is met again.
fn met_between(cluster: &Cluster, talk: &mut Talk, met: &str, to: &str) -> Result<String> {
    for _ in 0..ROUNDS_MAX {
        let pid = talk.until("outside ")?.trim().parse()?;
        cluster.have_on(pid, met)?;
        talk.go()?;
        let pid = talk.ready()?;
        let moved = cluster.migrate(pid, to)?;
        talk.go()?;
        talk.until("on ")?;
        match moved {
            Moved::Done(_) => return cluster.place(pid),
            Moved::Refused(why) => ensure!(why.contains(UNFINISHED), "{why}"),
        }
    }
    bail!("It was never met elsewhere than at the beginning of a function")
}
