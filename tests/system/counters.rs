//! Files in which runtimes count about themselves, mapped shared and writable: each has one writer, so they are the
//! named exceptions among shared memory.

use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::program::require;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// A Java VM counts twenty times in a second.
const SOON: Duration = Duration::from_secs(30);
/// Some begin slowly, where everything they do is looked at.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("counters::full::java", 3, java),
        Case::in_lab("counters::full::mono", 3, mono),
    ]
}

/// A Java VM's file is whole when the program has come home, and it goes on counting there.
fn java(cluster: &Cluster) -> Result<()> {
    require("javac")?;
    require("jcmd")?;
    let classes = guest::java("Counts")?.display().to_string();
    let words = ["java", "-XX:+UseSerialGC", "-cp", &classes, "Counts"];
    let mut guest = start(cluster, &words)?;
    let (pid, file) = travels(cluster, &mut guest, "/hsperfdata_")?;
    // For whom the file is: it tells of a program that is away what it told of it at home.
    cluster.move_to(pid, "n2")?;
    let listed = cluster.run("n1", &["jcmd", "-l"])?;
    ensure!(listed.contains(&format!("{pid} Counts")), "{listed}");
    let counted = cluster.run("n1", &["jcmd", &pid.to_string(), "PerfCounter.print"])?;
    ensure!(counted.contains("java.cls.loadedClasses="), "{counted}");
    cluster.move_to(pid, "home")?;
    let content = || cluster.run("n1", &["od", "-An", "-v", "-tx1", &file]);
    let before = content()?;
    ensure!(
        before.trim_start().starts_with("ca fe c0 c0"),
        "{file} begins with {:.40}",
        before
    );
    eventually(SOON, "it counts on at home", || {
        Ok((content()? != before).then_some(()))
    })
}

/// Mono's is among the shared memory of its machine.
fn mono(cluster: &Cluster) -> Result<()> {
    require("mono")?;
    require("mcs")?;
    let program = guest::mono("counts")?.display().to_string();
    let mut guest = start(cluster, &["mono", &program])?;
    travels(cluster, &mut guest, "/dev/shm/mono.").map(drop)
}

fn start(cluster: &Cluster, words: &[&str]) -> Result<Talk> {
    let guest = Talk::start(cluster, &mut cluster.run_command("n1", words))?;
    Ok(guest.patient(PATIENCE))
}

/// It computes the same at home and away, and at home again has its file, which is this one.
fn travels(cluster: &Cluster, guest: &mut Talk, name: &str) -> Result<(i32, String)> {
    let pid = guest.ready()?;
    let file = counts_in(cluster, pid, name)?;
    guest.go()?;
    let expected = guest.until("sum ")?;
    for place in ["n2", "n3", "home", "n2"] {
        cluster.move_to(pid, place)?;
        guest.go()?;
        let sum = guest.until("sum ")?;
        ensure!(sum == expected, "On {place} {sum}, at home {expected}");
    }
    cluster.move_to(pid, "home")?;
    guest.go()?;
    let sum = guest.until("sum ")?;
    ensure!(sum == expected, "Back at home {sum}, before {expected}");
    let after = counts_in(cluster, pid, name)?;
    ensure!(after == file, "It counts in {after}, and before in {file}");
    Ok((pid, file))
}

/// The file of this name that a program maps shared, to write to it.
fn counts_in(cluster: &Cluster, pid: i32, name: &str) -> Result<String> {
    let maps = cluster.run("n1", &["cat", &format!("/proc/{pid}/maps")])?;
    let mut lines = maps.lines().filter(|line| line.contains("rw-s"));
    let line = lines.find(|line| line.contains(name));
    let line = line.with_context(|| format!("It maps no {name}... shared: {maps}"))?;
    Ok(line[line.find('/').unwrap_or(0)..].to_owned())
}
