//! Memory of special kinds, and memory that is not enough.

use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("memory::guard_pages", |_| {
            let cluster = Cluster::up(3)?;
            cluster.explaining(|| guards(&cluster))
        }),
        Case::new("memory::a_guest_outgrows_its_host", |_| {
            let cluster = Cluster::up_with(2, &["--memory", "2G,160M"])?;
            cluster.explaining(|| {
                // As fast as it can, and slowly.
                outgrows(&cluster, "0")?;
                outgrows(&cluster, "5000")
            })
        }),
    ]
}

/// Pages that MADV_GUARD_INSTALL has closed stay closed, at the host and back at home; those that
/// are opened while it is away show what they show at home.
fn guards(cluster: &Cluster) -> Result<()> {
    let program = guest::c("guards")?.display().to_string();
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &[program]))?;
    let first = guest.line()?;
    if first.starts_with("impossible") {
        println!("skipped, this kernel does not have it: {first}");
        return Ok(());
    }
    let pid: i32 = first.trim_start_matches("ready ").parse()?;
    for place in ["n2", "n3", "home", "n2"] {
        cluster.move_to(pid, place)?;
        guest.go()?;
        guest.until("checked")?;
    }
    cluster.move_to(pid, "home")?;
    guest.go()?;
    guest.succeed()
}

/// A guest that comes near the limit of its host goes home, and goes on there, rather than be killed.
fn outgrows(cluster: &Cluster, pause: &str) -> Result<()> {
    let program = guest::c("grow")?.display().to_string();
    let words = [program.as_str(), "300", pause];
    let mut unmoved = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    unmoved.ready()?;
    unmoved.go()?;
    let expected = unmoved.until("sum ")?;
    unmoved.go()?;
    unmoved.succeed()?;
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    let sum = guest.until("sum ")?;
    ensure!(
        sum == expected,
        "{sum} after a move, {expected} without one"
    );
    let row = cluster.row(pid)?;
    ensure!(
        row.as_ref().is_some_and(|row| row.place == "n1"),
        "It is not at home: {row:?}"
    );
    let log = cluster.whim("n1", &["log"])?;
    ensure!(
        log.contains("memory limit"),
        "The log does not say why: {log}"
    );
    guest.go()?;
    guest.succeed()
}
