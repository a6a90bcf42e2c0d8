//! What a node tells of itself is its own: a neighbour on the same machine is none of its business.

use std::time::Duration;

use serde_json::Value;
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Running, ensure};

const TOLD: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("sensing::load_is_the_node_s_own", |_| {
            load(&Cluster::up_with(2, &["--cpu", "1,0.5"])?)
        }),
        Case::new("sensing::memory_is_the_node_s_own", |_| {
            memory(&Cluster::up_with(2, &["--memory", "256M"])?)
        }),
    ]
}

/// Until n1 has heard of all nodes: until then it can tell nothing of them.
fn heard(cluster: &Cluster) -> Result<()> {
    eventually(TOLD, "n1 has heard of n2", || {
        Ok((told(cluster, "n2")?["load"].is_number()).then_some(()))
    })
}

/// What node `of` is said to be, on n1.
fn told(cluster: &Cluster, of: &str) -> Result<Value> {
    cluster.member("n1", of)
}

fn number(row: &Value, name: &str) -> Result<f64> {
    row[name]
        .as_f64()
        .with_context(|| format!("No {name} in {row}"))
}

fn load(cluster: &Cluster) -> Result<()> {
    cluster.explaining(|| {
        heard(cluster)?;
        let hog = ["sh", "-c", "while :; do :; done"];
        let mut hogs = Vec::new();
        for _ in 0..3 {
            hogs.push(Running::spawn(&mut cluster.command("n2", &hog))?);
        }
        let mut loads = Vec::new();
        let busy = eventually(TOLD, "n2 is busy", || {
            let (ours, theirs) = (told(cluster, "n1")?, told(cluster, "n2")?);
            loads.push((number(&ours, "load")?, number(&theirs, "load")?));
            // All three, kept from running by a limit that both nodes see.
            let throttled = number(&theirs, "throttled_cpus")?;
            let waits = number(&theirs, "cpu_pressure_percent")?;
            let busy = number(&theirs, "load")? > 2.5 && throttled > 0.1 && waits > 10.0;
            Ok(busy.then_some(theirs))
        })?;
        ensure!(
            loads
                .iter()
                .all(|(ours, theirs)| *ours < 1.5 && *theirs < 4.0),
            // Asking costs n1 something, too.
            "n1 took n2's load for its own: {loads:?}"
        );
        ensure!((number(&busy, "cpus")? - 0.5).abs() < 0.01, "{busy}");
        drop(hogs);
        Ok(())
    })
}

fn memory(cluster: &Cluster) -> Result<()> {
    cluster.explaining(|| {
        heard(cluster)?;
        let before = number(&told(cluster, "n2")?, "memory_available_bytes")?;
        ensure!(before < 256.0 * 1_048_576.0, "{before}");
        let eater =
            "import time; b = b'x' * (150 << 20); print('eaten', flush=True); time.sleep(600)";
        let eater = Running::spawn(&mut cluster.command("n2", &["python3", "-c", eater]))?;
        eventually(TOLD, "n2 has less memory, and n1 has not", || {
            let (ours, theirs) = (told(cluster, "n1")?, told(cluster, "n2")?);
            let left = number(&theirs, "memory_available_bytes")?;
            let full = left < before - 140.0 * 1_048_576.0;
            let ours = number(&ours, "memory_available_bytes")?;
            ensure!(ours > 180.0 * 1_048_576.0, "n1 has {ours} left");
            Ok(full.then_some(()))
        })?;
        drop(eater);
        Ok(())
    })
}
