//! What orders say of what they wait for, and of what still holds.

use std::fs;
use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Result, Running, ensure};

use super::{SHORT, answers, echoes};

/// Longer than a home that has refused is left alone.
const RETRIES: Duration = Duration::from_secs(5);
const STOPPED: &str = "is stopped by job control";

pub(super) fn cases() -> Vec<Case> {
    vec![Case::in_lab(
        "orders::drain_names_who_cannot_leave",
        2,
        kept_back,
    )]
}

fn signal(cluster: &Cluster, name: &str, pid: i32) -> Result<()> {
    let words = ["sh", "-c", "kill -\"$0\" \"$1\"", name, &pid.to_string()];
    cluster.run("n1", &words).map(drop)
}

/// It waited for a guest that was stopped by job control, and never said for whom, nor why.
fn kept_back(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    let name = format!("Process {pid} of n1 cannot leave yet: The process {STOPPED}");
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
