//! Nodes of different kinds: CPUs, limits. That a CPU lacks something can be had without another CPU: a
//! node can hide features of its own. Real ones: `machines`.

use whim_sys::credentials::{Capability, effective_capabilities};
use whim_system_tests::cluster::Moved;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// What the C library is told when AVX2 and FMA are not to be used.
const MASKED: &str = "glibc.cpu.hwcaps=-FMA,-AVX2,-AVX_Fast_Unaligned_Load";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("kinds::other_features", |_| other_features()),
        Case::new("kinds::portable", |_| portable()),
        Case::new("kinds::stack_grows_on_the_way", |_| {
            stack_grows_on_the_way()
        }),
        Case::new("kinds::stack_limits", |_| stack_limits()),
        Case::new("kinds::daemon_with_low_limits", |_| {
            daemon_with_low_limits()
        }),
        Case::new("kinds::pid_max", |_| pid_max()),
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
    let row = cluster.member(at, node)?;
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

/// Starts the guest `deep` on n1 under a soft limit of its stack, in KiB.
fn deep(cluster: &Cluster, limit: &str) -> Result<Talk> {
    let program = guest::c("deep")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    let script = format!("ulimit -S -s {limit}; exec {whim} run -- {program}");
    Talk::start(cluster, &mut cluster.command("n1", &["sh", "-c", &script]))
}

fn goes(talk: &mut Talk, kib: u32) -> Result<()> {
    talk.say(&kib.to_string())?;
    let depth: u32 = talk.until("was ")?.trim_end_matches(" deep").parse()?;
    ensure!(depth == kib, "It was to go {kib} deep, and was {depth}");
    Ok(())
}

/// A program's stack grows as far as its home's limit says, wherever it is: beyond the host's own, and no
/// further than at home.
fn stack_limits() -> Result<()> {
    let cluster = Cluster::up_limiting(3, "whim-guest")?;
    cluster.explaining(|| {
        // Soft alone: what a guest may have is a matter of the hard one.
        cluster.limit_programs("ulimit -S -s 2048")?;
        let mut talk = deep(&cluster, "16384")?;
        for (target, kib) in [("n2", 200), ("n2", 12_000), ("n3", 3_000), ("home", 15_000)] {
            let pid = talk.ready()?;
            cluster.have_on(pid, target)?;
            goes(&mut talk, kib)?;
        }
        drop(talk);
        cluster.limit_programs("")?;
        for target in ["n1", "n2"] {
            let mut talk = deep(&cluster, "2048")?;
            let pid = talk.ready()?;
            if target != "n1" {
                cluster.move_to(pid, target)?;
            }
            goes(&mut talk, 1500)?;
            talk.ready()?;
            talk.say("2300")?;
            let end = talk.end()?;
            // `whim lab exec` ends as its program did.
            use std::os::unix::process::ExitStatusExt;
            let signal = end.signal().or(end.code().map(|code| code - 128));
            ensure!(signal == Some(11), "At {target} it ends with {end}");
        }
        let logs = cluster.logs("n2");
        let fault = "a fault ends the program: signal 11, code";
        ensure!(logs.contains(fault), "No word of the fault in {logs}");
        Ok(())
    })
}

/// So many stacks grow while they travel.
const GROWING: u32 = 2;

/// A stack that grows until the very moment of the freeze goes on growing on the host. Of a table of its
/// mappings from before the freeze it was missing, and became one that does not grow.
fn stack_grows_on_the_way() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        for _ in 0..GROWING {
            // A new one each time: what a stack has got it keeps.
            let mut talk = deep(&cluster, "16384")?;
            let pid = talk.ready()?;
            talk.say("12000 50")?;
            cluster.move_to(pid, "n2")?;
            let was = talk.until("was ")?;
            ensure!(
                was == "12000 deep",
                "It was to go 12000 deep, and was {was}"
            );
            ensure!(cluster.place(pid)? == "n2", "It has come home");
        }
        Ok(())
    })
}

/// Where a host's daemon was started under lower limits, root lifts them; a daemon that cannot refuses
/// the program with a sentence, and nothing happens to it.
fn daemon_with_low_limits() -> Result<()> {
    let cluster = Cluster::up_limiting(2, "whim-guest")?;
    cluster.explaining(|| {
        cluster.limit_programs("ulimit -s 2048")?;
        let mut talk = deep(&cluster, "8192")?;
        let pid = talk.ready()?;
        let said = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        println!("{said}");
        ensure!(said.contains("bytes of stack"), "{said}");
        goes(&mut talk, 7_000)?;
        drop(talk);
        Ok(())
    })?;
    let cluster = Cluster::up_limiting(2, "whimd")?;
    cluster.explaining(|| {
        cluster.limit_programs("ulimit -s 2048")?;
        cluster.lab(&["kill", "n2"])?;
        cluster.lab(&["start", "n2"])?;
        let limit = std::time::Duration::from_secs(20);
        cluster.await_member(("n1", "n2"), ("state", "up"), limit)?;
        let mut talk = deep(&cluster, "8192")?;
        let pid = talk.ready()?;
        // Not every root may.
        if effective_capabilities() & (1 << Capability::SYS_RESOURCE.0) == 0 {
            let said = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
            ensure!(said.contains("bytes of stack"), "{said}");
            return Ok(());
        }
        cluster.move_to(pid, "n2")?;
        goes(&mut talk, 7_000)
    })
}

/// Numbers of processes go further on some nodes than on others (`pid_max`): a program whose numbers its
/// host would not give out goes there all the same.
fn pid_max() -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let program = guest::c("library")?.display().to_string();
        let whim = cluster.whim_path().display().to_string();
        let limit = "echo 4194304 > /proc/sys/kernel/pid_max";
        let own = "cat /proc/sys/kernel/pid_max";
        let before = cluster.run("n2", &["sh", "-c", own])?;
        cluster.run("n1", &["sh", "-c", limit])?;
        let own_limits = cluster.run("n2", &["sh", "-c", own])? == before;
        let script = format!(
            "echo 3000000 > /proc/sys/kernel/ns_last_pid; {whim} run -- {program}; exit $?"
        );
        let mut talk = Talk::start(&cluster, &mut cluster.command("n1", &["sh", "-c", &script]))?;
        let mut gave = Vec::new();
        for target in ["n2", "n3", "home"] {
            let pid = talk.ready()?;
            ensure!(pid >= 3_000_000, "Its number is {pid}");
            println!("{pid} to {target}; limits of their own: {own_limits}");
            cluster.move_to(pid, target)?;
            talk.go()?;
            gave.push(talk.until("gave ")?);
        }
        gave.dedup();
        ensure!(gave.len() == 1, "It gives {gave:?}");
        Ok(())
    })
}
