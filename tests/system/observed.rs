//! Others who look at a program that is away: its title and name are those that it has set, and its memory is
//! read not at all rather than wrongly.

use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

use nix::errno::Errno;
use std::time::Duration;

/// Heartbeats bring what no call has brought before.
const SOON: Duration = Duration::from_secs(3);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("observed::title", 3, title),
        Case::in_lab("observed::memory", 3, memory),
    ]
}

/// What process_vm_readv, /proc/PID/mem and PTRACE_ATTACH say of a program that is away.
const REFUSED: [Errno; 3] = [Errno::EFAULT, Errno::EIO, Errno::EPERM];

fn refused(errno: Errno) -> String {
    format!("errno {}", errno as i32)
}

/// A parent that looks, and the number of its child.
fn start(cluster: &Cluster) -> Result<(Talk, i32)> {
    let program = guest::c("observed")?.display().to_string();
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &[program.as_str()]))?;
    let child = talk.ready()?;
    eventually(SOON, "the child may move", || cluster.row(child))?;
    Ok((talk, child))
}

fn ask(talk: &mut Talk, what: &str) -> Result<String> {
    talk.say(what)?;
    talk.line()
}

/// The program writes its title, and tells of that by a call: who hears it finds the title.
fn title(cluster: &Cluster) -> Result<()> {
    let (mut talk, child) = start(cluster)?;
    for (turn, place) in ["n1", "n2", "n3", "home", "n2"].into_iter().enumerate() {
        cluster.have_on(child, place)?;
        for _ in 0..10 {
            let said = ask(&mut talk, "title")?;
            ensure!(said == "fresh", "On {place}: {said}");
        }
        let name = format!("name-{turn}");
        ask(&mut talk, &format!("name {name}"))?;
        let shown = ask(&mut talk, "comm")?;
        ensure!(shown == name, "On {place} its name is {shown}, not {name}");
    }
    talk.say("end")?;
    talk.succeed()
}

/// Whoever reads memory of a program that is away is told that it cannot be read; a program that reads that
/// of others does so at home.
fn memory(cluster: &Cluster) -> Result<()> {
    let (mut talk, child) = start(cluster)?;
    let ways = |talk: &mut Talk| -> Result<[String; 3]> {
        Ok([ask(talk, "vm")?, ask(talk, "mem")?, ask(talk, "trace")?])
    };
    for place in ["n1", "n2", "n3", "home"] {
        cluster.have_on(child, place)?;
        let told = ways(&mut talk)?;
        println!("{place}: {told:?}");
        let expected = match place {
            "n2" | "n3" => REFUSED.map(refused),
            _ => ["found", "found", "traced"].map(str::to_owned),
        };
        ensure!(told == expected, "On {place}: {told:?}");
    }
    let parent = cluster.rows("n1", false)?;
    let parent = parent
        .iter()
        .find(|row| row.pid != child && row.command.contains("observed"));
    let parent = parent.context("no parent")?.pid;
    for place in ["n1", "n2"] {
        cluster.have_on(child, place)?;
        for (index, way) in ["vm", "mem", "trace"].into_iter().enumerate() {
            cluster.have_on(parent, "n3")?;
            let told = ask(&mut talk, way)?;
            let expected = match (place, index) {
                ("n1", 2) => "traced".to_owned(),
                ("n1", _) => "found".to_owned(),
                _ => refused(REFUSED[index]),
            };
            ensure!(told == expected, "The child is on {place}, {way}: {told}");
            // It has its answer at home before the daemon hears that it is there. Done away, it would stay there.
            let row = cluster.await_state(parent, "home")?;
            ensure!(row.place == "n1", "{way} was done away from home");
        }
    }
    talk.say("end")?;
    talk.succeed()
}
