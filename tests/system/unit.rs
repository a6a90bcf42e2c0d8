//! Which rights the service manager gives the daemon: enough for what it and its supervisors do, and none
//! that nothing of ours uses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

const NOBODY: &str = "nobody";
const PATIENCE: Duration = Duration::from_secs(20);
/// What a daemon that was taken over could do to its machine with rights that it does not need: the
/// command, and what it would be good for.
const BEYOND: [(&str, &str); 2] = [
    (
        "ip address add 192.0.2.1/32 dev lo",
        "change the node's network",
    ),
    ("chroot / true", "have another root directory"),
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("unit::enough_and_no_more", |_| of_the_unit())]
}

/// The words by which a program is started with the rights that the unit names.
fn words_of_the_unit() -> Result<String> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/whimd.service");
    let unit = fs::read_to_string(unit)?;
    ensure!(unit.contains("NoNewPrivileges=yes"), "{unit}");
    let lines = unit.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = lines.flat_map(str::split_whitespace);
    let names = names.map(|name| name.strip_prefix("CAP_").context("no name of a capability"));
    let names: Vec<String> = names
        .map(|name| Ok(format!("+{}", name?.to_lowercase())))
        .collect::<Result<_>>()?;
    ensure!(!names.is_empty(), "{unit}");
    let set = names.join(",");
    Ok(format!(
        "setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,{set}"
    ))
}

/// Programs of plain users move, come home and are ended under daemons that have these rights alone.
fn of_the_unit() -> Result<()> {
    let words = words_of_the_unit()?;
    let cluster = Cluster::up_limiting(2, "whimd")?;
    cluster.explaining(|| {
        cluster.limit_programs(&format!("exec {words} \"$0.real\" \"$@\"\n"))?;
        for node in ["n1", "n2"] {
            cluster.lab(&["kill", node])?;
            cluster.lab(&["start", node])?;
        }
        cluster.await_all_up("n1", PATIENCE)?;
        let bounds =
            "grep -h CapBnd /proc/$(pgrep -o whimd)/status /proc/self/status | uniq | wc -l";
        let different = cluster.run(
            "n1",
            &["sh", "-c", &format!("exec {words} sh -c '{bounds}'")],
        )?;
        ensure!(different.trim() == "1", "The daemon has other rights");
        let whim = cluster.whim_path().display().to_string();
        let program = guest::c("stay")?.display().to_string();
        let run = [whim.as_str(), "run", "--", &program, "none"];
        let mut talk = Talk::start(&cluster, &mut cluster.command_as(NOBODY, "n1", &run))?;
        let pid = talk.ready()?;
        for target in ["n2", "home", "n2"] {
            cluster.move_to(pid, target)?;
        }
        cluster.whim("n2", &["expel"])?;
        ensure!(cluster.place(pid)? == "n1", "It is not at home");
        talk.go()?;
        talk.line()?;
        talk.go()?;
        talk.succeed()?;
        for (command, what) in BEYOND {
            let what = format!("in place of a daemon that was taken over: {what}");
            let attempt = Attempt::new(Party::Stranger, what);
            let tried = format!("{words} {command} 2>&1; true");
            let said = cluster.run("n1", &["sh", "-c", &tried])?;
            ensure!(said.contains("Operation not permitted"), "{said}");
            attempt.failed(said.trim());
        }
        Ok(())
    })
}
