//! Nodes of different kinds: CPUs, limits. That a CPU lacks something can be had without another CPU: a
//! node can hide features of its own. Real ones: `machines`.

use serde_json::Value;
use whim_system_tests::cluster::Moved;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// What the C library is told when AVX2 and FMA are not to be used.
const MASKED: &str = "glibc.cpu.hwcaps=-FMA,-AVX2,-AVX_Fast_Unaligned_Load";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("kinds::other_features", |_| other_features()),
        Case::new("kinds::portable", |_| portable()),
    ]
}

/// Hides these features on a node, and waits until the others know it.
fn hide(cluster: &Cluster, node: &str, features: &str) -> Result<()> {
    let before = class(cluster, "n1", node)?;
    cluster.configure(node, &format!("[cpu]\nhide = [{features}]\n"))?;
    cluster.restart_daemon(node)?;
    let limit = std::time::Duration::from_secs(20);
    whim_system_tests::process::eventually(limit, "the others hear of the class", || {
        Ok((class(cluster, "n1", node)? != before).then_some(()))
    })
}

/// The class of a node, as another one shows it.
fn class(cluster: &Cluster, at: &str, node: &str) -> Result<String> {
    let rows = cluster.whim(at, &["nodes", "--json"])?;
    let rows = rows.lines().map(serde_json::from_str::<Value>);
    let rows: Vec<Value> = rows.collect::<Result<_, _>>()?;
    let row = rows.iter().find(|row| row["name"] == node);
    let row = row.with_context(|| format!("{at} does not list {node}"))?;
    Ok(row["class"].as_str().unwrap_or("-").to_owned())
}

/// Nodes of other classes are shown as such, and refused with a sentence that names what differs: by
/// home, and by the host itself.
fn other_features() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let usual = class(&cluster, "n1", "n1")?;
        for node in ["n1", "n2", "n3"] {
            ensure!(
                class(&cluster, node, "n2")? == usual,
                "{node} sees another class"
            );
        }
        hide(&cluster, "n2", r#""avx2", "fma""#)?;
        let other = class(&cluster, "n1", "n2")?;
        let (layout, _) = usual.split_once('-').context("Not two halves")?;
        ensure!(
            other != usual && other.starts_with(layout),
            "{usual}, hidden: {other}"
        );
        let program = guest::c("library")?.display().to_string();
        let mut talk = Talk::start(&cluster, &mut cluster.run_command("n1", &[&program]))?;
        let pid = talk.ready()?;
        let said = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        println!("{said}");
        for part in [
            "Node n2 is of another kind",
            "lacks fma and avx2",
            "--portable",
        ] {
            ensure!(said.contains(part), "Nothing of '{part}': {said}");
        }
        cluster.move_to(pid, "n3")?;
        let said = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(said.contains("lacks fma and avx2"), "From a host: {said}");
        cluster.move_to(pid, "home")?;
        talk.go()?;
        talk.until("gave ")?;
        // The other way round, too: what is loaded there would not run at home.
        let mut talk = Talk::start(&cluster, &mut cluster.run_command("n2", &[&program]))?;
        let pid = talk.ready()?.to_string();
        let said = cluster.refused("n2", &["migrate", &pid, "n1"])?;
        ensure!(said.contains("has fma and avx2 besides"), "{said}");
        Ok(())
    })
}

/// A portable program does without what any node lacks, says what that does not cover, goes where all
/// that it was started with is there, and nowhere else.
fn portable() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        hide(&cluster, "n2", r#""avx2", "fma""#)?;
        let words = [
            "run",
            "--portable",
            "--",
            "sh",
            "-c",
            "echo $GLIBC_TUNABLES",
        ];
        let told = cluster.whim("n1", &words)?;
        ensure!(told.trim() == MASKED, "The C library is told '{told}'");
        let program = guest::c("library")?.display().to_string();
        let words = ["run", "--portable", "--", &program];
        let mut talk = Talk::start(&cluster, &mut cluster.whim_command("n1", &words))?;
        let mut gave = Vec::new();
        for target in ["", "n2", "n3", "n2", "home", "n2"] {
            let pid = talk.ready()?;
            if !target.is_empty() {
                cluster.move_to(pid, target)?;
            }
            talk.go()?;
            gave.push(talk.until("gave ")?);
        }
        gave.dedup();
        ensure!(gave.len() == 1, "It gives {gave:?}");
        let said = talk.errors();
        ensure!(
            said.lines().count() == 1 && said.contains("CPUID"),
            "Its user is told: '{said}'"
        );
        let pid = talk.ready()?;
        cluster.move_to(pid, "home")?;
        hide(&cluster, "n3", r#""avx2", "bmi2""#)?;
        match cluster.migrate(pid, "n3")? {
            Moved::Refused(why) => ensure!(
                why.contains("lacks bmi2, with which this program was started"),
                "{why}"
            ),
            Moved::Done(_) => whim_system_tests::bail!("It has gone where bmi2 is not"),
        }
        // A node that is down counts as one that comes back, even with a daemon that never heard it.
        cluster.lab(&["kill", "n2"])?;
        cluster.restart_daemon("n1")?;
        let words = [
            "run",
            "--portable",
            "--",
            "sh",
            "-c",
            "echo $GLIBC_TUNABLES",
        ];
        let told = cluster.whim("n1", &words)?;
        let expected = MASKED.replace("-AVX2,", "-AVX2,-BMI2,");
        ensure!(told.trim() == expected, "The C library is told '{told}'");
        Ok(())
    })
}
