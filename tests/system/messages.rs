//! The table of messages in `docs/administration.md`: each row is said by something real, here or in a test
//! that is named here.

use std::path::Path;
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest};

const DOCUMENT: &str = "docs/administration.md";
/// Stands for what differs from one message to the next.
const VARIABLE: &str = "…";
const SHORT: Duration = Duration::from_secs(30);
/// Where n1 is in a lab.
const FIRST: &str = "10.99.0.1";

/// Messages that take more than this test has: how they begin, and which test of which file shows them.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "… can be changed by other users",
        "tests/system/places.rs",
        "can be changed by other users",
    ),
    (
        "… belongs to another user",
        "tests/system/places.rs",
        "belongs to another user",
    ),
    (
        "The configuration … is not taken",
        "tests/system/places.rs",
        "fn configuration(",
    ),
    (
        "The token has expired",
        "crates/whim/tests/cli.rs",
        "fn a_cluster_is_made_joined_and_left",
    ),
    (
        "No token has come on standard input",
        "crates/whim/tests/tokens.rs",
        "fn a_token_is_read_and_never_an_argument",
    ),
    (
        "This is no token",
        "crates/whim/tests/cli.rs",
        "fn a_join_that_fails_says_why",
    ),
    (
        "… can be read by others",
        "crates/whim/tests/tokens.rs",
        "fn a_file_of_a_token_is_private",
    ),
    (
        "… refuses this node: it was removed on",
        "crates/whim/tests/cli.rs",
        "fn a_removed_node_is_refused_at_once",
    ),
    (
        "… admits no new nodes",
        "crates/whim/tests/cli.rs",
        "fn a_join_that_fails_says_why",
    ),
    (
        "No daemon answers at …",
        "crates/whim/tests/cli.rs",
        "No daemon answers at /nonexistent/control.sock",
    ),
    (
        "It is traced by process",
        "tests/system/stay.rs",
        "stay::reasons_come_and_go",
    ),
    (
        "It stands still, because its control group",
        "tests/system/freezers.rs",
        "fn refused_at_once",
    ),
    (
        "It shares its memory with process",
        "tests/system/stay.rs",
        "stay::child_of_vfork",
    ),
    (
        "Node … is of another kind than this one",
        "tests/system/machines.rs",
        "is of another kind than this one: its CPU",
    ),
    (
        "Process … has got rights meanwhile",
        "tests/system/identity.rs",
        "identity::setuid_exec_in_each_phase",
    ),
    (
        "Node … has … guests already",
        "crates/whim/tests/moves.rs",
        "fn a_host_with_as_many_guests_as_it_takes_refuses_with_a_sentence",
    ),
    (
        "Node … takes no guests now: it is evacuated",
        "tests/system/orders/told.rs",
        "fn evacuated",
    ),
    (
        "Node … takes no guests now: its owner sits before it",
        "tests/system/orders.rs",
        "its owner sits before it",
    ),
    (
        "It belongs to a Slurm job whose number is not understood",
        "tests/system/jobs.rs",
        "it has no other node",
    ),
    (
        "… processes of uid … may move already",
        "crates/whimd/src/moves/candidates.rs",
        "fn one_user_s_candidates_are_so_many_and_can_be_written",
    ),
    (
        "The supervisor at … has said nothing",
        "tests/system/line.rs",
        "stopped_supervisor_is_given_up",
    ),
    (
        "The host … does not send the process home",
        "crates/whim-home/tests/removal.rs",
        "fn a_host_that_ignores_a_return_loses_its_guest",
    ),
    (
        "The host … was removed from the cluster",
        "crates/whim-home/tests/removal.rs",
        "fn a_removed_host_that_ignores_the_recall_loses_its_guest",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("messages::of_the_table", |_| {
        let cluster = Cluster::up_with(3, &["--memory", "4G,4G,96M"])?;
        cluster.explaining(|| of_the_table(&cluster))
    })]
}

/// What was said, line by line.
struct Heard<'a> {
    cluster: &'a Cluster,
    said: Vec<String>,
}

impl Heard<'_> {
    fn refused(&mut self, node: &str, words: &[&str]) -> Result<()> {
        let text = self.cluster.refused(node, words)?;
        println!("{text}");
        self.said.push(text);
        Ok(())
    }

    fn refused_to_join(&mut self, host: &str, token: &str, name: &str) -> Result<()> {
        let words = ["join", host, "--node", name];
        let text = self.cluster.refused_fed("n3", &words, token)?;
        println!("{text}");
        self.said.push(text);
        Ok(())
    }

    fn told(&mut self, node: &str, words: &[&str]) -> Result<()> {
        self.said.push(self.cluster.whim(node, words)?);
        Ok(())
    }

    /// As an ordinary user of n1.
    fn refused_to_others(&mut self, words: &[&str]) -> Result<()> {
        let whim = self.cluster.whim_path().display().to_string();
        let words = [&[whim.as_str()], words].concat();
        let mut command = self.cluster.command_as("nobody", "n1", &words);
        let output = process::output(&mut command, SHORT)?;
        ensure!(
            output.status.code() == Some(1),
            "{words:?}: {}",
            output.status
        );
        self.said
            .push(String::from_utf8_lossy(&output.stderr).into_owned());
        Ok(())
    }
}

fn of_the_table(cluster: &Cluster) -> Result<()> {
    let rows = rows()?;
    ensure!(rows.len() >= 30, "{} rows", rows.len());
    let mut heard = Heard {
        cluster,
        said: Vec::new(),
    };
    names(&mut heard)?;
    kept(&mut heard)?;
    orders(&mut heard)?;
    rooms(&mut heard)?;
    of_root(&mut heard)?;
    membership(&mut heard)?;
    loss(&mut heard)?;
    let mut missing = Vec::new();
    for row in &rows {
        let said = heard.said.iter().any(|text| says(text, row));
        if !said && !elsewhere(row)? {
            missing.push(row.as_str());
        }
    }
    ensure!(
        missing.is_empty(),
        "Nobody has said:\n{}\n\nSaid was:\n{}",
        missing.join("\n"),
        heard.said.join("\n")
    );
    Ok(())
}

/// The first column of the table.
fn rows() -> Result<Vec<String>> {
    let text = read(DOCUMENT)?;
    let (_, table) = text
        .split_once("<!-- begin messages -->")
        .context("The table has no beginning")?;
    let (table, _) = table
        .split_once("<!-- end messages -->")
        .context("The table has no end")?;
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let first = |row: &str| row.split_once("` |").map(|(first, _)| first.to_owned());
    rows.map(|row| first(row).with_context(|| format!("'{row}' has no message")))
        .collect()
}

fn read(path: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).with_context(|| format!("Could not read {path}"))
}

/// Whether a text holds the parts of a message, one after the other.
fn says(text: &str, message: &str) -> bool {
    let mut rest = text;
    message.split(VARIABLE).all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Whether a message is shown by another test, which is there.
fn elsewhere(message: &str) -> Result<bool> {
    let Some((_, file, test)) = ELSEWHERE
        .iter()
        .find(|(begins, _, _)| message.starts_with(begins))
    else {
        return Ok(false);
    };
    if !read(file)?.contains(test) {
        bail!("'{message}': {file} has no '{test}'");
    }
    Ok(true)
}

/// A program of n1 that waits, and its pid.
fn waiting(cluster: &Cluster, options: &[&str]) -> Result<(Talk, String)> {
    let words = ["sh", "-c", "echo ready $$; exec cat"];
    let (talk, pid) = Talk::run(cluster, options, &words)?;
    Ok((talk, pid.to_string()))
}

/// Wrong pids, names and places.
fn names(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    let (_talk, pid) = waiting(cluster, &[])?;
    heard.refused("n1", &["--socket", "/nonexistent/whim", "nodes"])?;
    heard.refused("n1", &["migrate", "999999", "n2"])?;
    heard.refused("n1", &["migrate", &pid, "n9"])?;
    heard.refused("n1", &["migrate", &pid, "home"])?;
    heard.refused("n1", &["why", "n2:1"])?;
    cluster.move_to(pid.parse()?, "n2")?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    // Its host may not be left while it has a guest.
    heard.refused("n2", &["leave"])?;
    heard.refused_to_others(&["migrate", &pid, "home"])?;
    heard.refused_to_others(&["token"])?;
    heard.refused("n1", &["remove", "n9"])?;
    heard.refused("n1", &["remove", "n1"])?;
    heard.refused("n2", &["token"])?;
    heard.refused("n1", &["init"])?;
    let output = process::output(
        &mut cluster.whim_command("n1", &["run", "--on", "@gpu", "--", "true"]),
        SHORT,
    )?;
    heard
        .said
        .push(String::from_utf8_lossy(&output.stderr).into_owned());
    let script = "echo 'unheard = 1' > bad.toml";
    cluster.run("n1", &["sh", "-c", script])?;
    heard.refused("n1", &["config", "check", "bad.toml"])?;
    cluster.whim("n1", &["ca", "backup", "ca.backup"])?;
    heard.refused("n1", &["ca", "backup", "ca.backup"])
}

/// Programs that stay.
fn kept(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    for options in [&["--pin"][..], &["--only", "n1,n3"], &["--avoid", "n2"]] {
        let (_talk, pid) = waiting(cluster, options)?;
        heard.refused("n1", &["migrate", &pid, "n2"])?;
    }
    let job = "export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1; exec \"$0\" run -- sh -c 'echo ready $$; exec cat'";
    let whim = cluster.whim_path().display().to_string();
    let mut talk = Talk::start(
        cluster,
        &mut cluster.command("n1", &["sh", "-c", job, &whim]),
    )?;
    let pid = talk.ready()?.to_string();
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    let shares = "import mmap, os, sys; kept = mmap.mmap(-1, 4096); kept[0] = 1
print('ready', os.getpid(), flush=True); sys.stdin.readline()";
    let (_talk, pid) = Talk::run(cluster, &[], &["python3", "-c", shares])?;
    heard.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    let (_talk, pid) = waiting(cluster, &[])?;
    cluster.whim("n1", &["bring", "--hold", &pid])?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster.whim("n1", &["go", &pid])?;
    cluster.run("n1", &["sh", "-c", "kill -STOP \"$0\"", &pid])?;
    let number = pid.parse()?;
    eventually(SHORT, "it is seen to be stopped", || {
        let row = cluster.row(number)?;
        Ok(row.is_some_and(|row| row.state == "stopped").then_some(()))
    })?;
    heard.told("n1", &["why", &pid])?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster
        .run("n1", &["sh", "-c", "kill -CONT \"$0\"", &pid])
        .map(drop)
}

/// Root's programs, where they may not move.
fn of_root(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    cluster.configure("n3", "allow_root = false\n")?;
    cluster.restart_daemon("n3")?;
    cluster.await_all_up("n3", SHORT)?;
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--", "sh", "-c", "echo ready $$; exec cat"];
    let mut talk = Talk::start(cluster, &mut cluster.command("n3", &words))?;
    let pid = talk.ready()?.to_string();
    heard.refused("n3", &["migrate", &pid, "n2"])
}

/// What administrators have told nodes.
fn orders(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    let (_talk, pid) = waiting(cluster, &[])?;
    cluster.whim("n1", &["stay"])?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster.whim("n1", &["go"])?;
    cluster.whim("n1", &["drain", "n1"])?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster.whim("n1", &["undrain", "n1"])?;
    cluster.whim("n2", &["block"])?;
    crate::orders::knows(cluster, "n2", "blocked", &true.into())?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster.whim("n2", &["unblock"])?;
    cluster.whim("n2", &["drain", "n2"])?;
    crate::orders::knows(cluster, "n2", "state", &"draining".into())?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    cluster.whim("n2", &["undrain", "n2"])?;
    crate::orders::knows(cluster, "n2", "state", &"up".into())
}

/// A host without room.
fn rooms(heard: &mut Heard) -> Result<()> {
    let program = guest::c("patient")?.display().to_string();
    let (_talk, pid) = Talk::run(heard.cluster, &[], &[&program, "holds", "300"])?;
    heard.refused("n1", &["migrate", &pid.to_string(), "n3"])
}

/// Who joins badly, and who may not leave.
fn membership(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    heard.refused("n1", &["leave"])?;
    cluster.whim("n3", &["leave"])?;
    heard.refused("n3", &["token"])?;
    let token = cluster.whim("n1", &["token"])?.trim().to_owned();
    let parts: Vec<&str> = token.split('.').collect();
    let [id, secret, pin] = parts[..] else {
        bail!("A token is of three parts")
    };
    let unknown = format!("{}.{secret}.{pin}", other(id));
    let foreign = format!("{id}.{secret}.{}", other(pin));
    for (host, token) in [
        ("no-such-host.invalid", &token),
        ("203.0.113.1", &token),
        (&format!("{FIRST}:9"), &token),
        (FIRST, &unknown),
        (FIRST, &foreign),
    ] {
        heard.refused_to_join(host, token, "n3")?;
    }
    heard.refused_to_join(FIRST, &token, "n2")?;
    cluster.lab(&["cut", "n1", "n3"])?;
    heard.refused_to_join(FIRST, &token, "n3")?;
    cluster.lab(&["heal", "n1", "n3"])?;
    let again = cluster.whim("n1", &["token"])?;
    cluster.join("n3", FIRST, &again)?;
    cluster.whim("n3", &["leave"])?;
    heard.refused_to_join(FIRST, &again, "n3")
}

/// The same length in other hexadecimal digits.
fn other(digits: &str) -> String {
    let turned = |digit: char| if digit == '0' { '1' } else { '0' };
    digits.chars().map(turned).collect()
}

/// A host that is lost, and one that is not there.
fn loss(heard: &mut Heard) -> Result<()> {
    let cluster = heard.cluster;
    let (_talk, pid) = waiting(cluster, &[])?;
    let (_lost, lost) = waiting(cluster, &[])?;
    let number = lost.parse()?;
    cluster.move_to(number, "n2")?;
    cluster.lab(&["kill", "n2"])?;
    let reason = eventually(SHORT, "the guest of n2 is given up", || {
        let mut rows = cluster.rows("n1", true)?.into_iter();
        let row = rows.find(|row| row.pid == number && row.state == "ended");
        Ok(row.and_then(|row| row.reason))
    })?;
    heard.said.push(reason);
    crate::orders::knows(cluster, "n2", "state", &"down".into())?;
    heard.refused("n1", &["migrate", &pid, "n2"])?;
    heard.refused("n1", &["migrate", &pid, "best"])
}
