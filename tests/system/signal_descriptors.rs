//! Programs that people have, and that read signals from a descriptor: they hear away of the end of their children,
//! which are at home.

use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure};

/// What their child executes. Its end is theirs.
const CHILD: &str = "echo waiting; read line; echo heard $line; exit 7";
const ENDS_WITH: i32 = 7;
/// Where they go, before their child ends.
const WAY: [&str; 5] = ["n2", "n3", "home", "n3", "n2"];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab(
            "signal_descriptors::full::monitor_of_bubblewrap",
            3,
            |cluster| {
                let engine = "bwrap --unshare-all --die-with-parent --ro-bind / / --proc /proc --dev /dev -- sh -c";
                let words: Vec<&str> = engine.split(' ').chain([CHILD]).collect();
                hears(cluster, "bwrap", &words)
            },
        ),
        Case::in_lab(
            "signal_descriptors::full::recorder_of_a_terminal",
            3,
            |cluster| {
                hears(
                    cluster,
                    "script",
                    &[
                        "script",
                        "--quiet",
                        "--return",
                        "--command",
                        CHILD,
                        "/dev/null",
                    ],
                )
            },
        ),
    ]
}

/// Moves the first process of this name, again and again, and has its child end while it is away.
fn hears(cluster: &Cluster, name: &str, words: &[&str]) -> Result<()> {
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", words))?;
    talk.until("waiting")?;
    let first = cluster.run("n1", &["pgrep", "--exact", "--oldest", name])?;
    let pid: i32 = first.trim().parse().context("the number of a process")?;
    for node in WAY {
        cluster.move_to(pid, node).with_context(|| node)?;
    }
    let place = cluster.place(pid)?;
    ensure!(place == WAY[WAY.len() - 1], "It is on {place}");
    talk.say("something")?;
    talk.until("heard something")?;
    let status = talk.end()?;
    ensure!(
        status.code() == Some(ENDS_WITH),
        "{status}: {}",
        talk.errors()
    );
    Ok(())
}
