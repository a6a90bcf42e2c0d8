//! Memory of special kinds, and memory that is not enough.

use whim_system_tests::{Case, Cluster, Result, Talk, guest};

pub fn cases() -> Vec<Case> {
    vec![Case::new("memory::guard_pages", |_| {
        let cluster = Cluster::up(3)?;
        cluster.explaining(|| guards(&cluster))
    })]
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
