//! openMosix's words: who may leave a node, who may come, and who has to go.

mod told;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use whim_system_tests::process::{self, eventually};
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, Running, Talk, ensure};

const SHORT: Duration = Duration::from_secs(30);
/// What a command takes that waits for a node's two seconds, on a machine that has other things to do.
const PROMPT: Duration = Duration::from_secs(10);
/// Says who it is, and each line that it hears twice.
const ECHO: &str = "import os, sys
print('ready', os.getpid(), flush=True)
for line in sys.stdin: print(2 * line.strip(), flush=True)";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::in_lab("orders::stay_and_go", 2, stay_and_go),
        Case::in_lab("orders::block_and_unblock", 3, block_and_unblock),
        Case::in_lab("orders::expel", 3, expel),
        Case::in_lab("orders::evacuate", 3, evacuate),
        Case::in_lab("orders::owner", 2, owner),
        Case::in_lab("orders::guests_of_a_user", 2, guests_of_a_user),
        Case::in_lab("orders::sessions", 1, sessions),
        Case::in_lab("orders::bring_all", 3, bring_all),
        Case::in_lab("orders::last_move_and_its_cause", 3, last_move),
        Case::in_lab("orders::why_of_a_silent_host", 2, silent_host),
        Case::in_lab("orders::drain", 3, drain),
        Case::in_lab("orders::drain_is_known_at_once", 3, drain_is_known),
        Case::in_lab(
            "orders::full::who_is_not_told_of_a_drain_is_named",
            3,
            untold_of_a_drain,
        ),
        Case::in_lab("orders::drain_waits_for_its_own", 2, drain_waits),
        Case::in_lab("orders::last_one_holds", 2, last_one_holds),
        Case::in_lab("orders::a_guest_without_lease_and_home", 2, without_home),
        Case::in_lab("orders::candidates", 2, candidates),
        Case::in_lab(
            "orders::refusals_change_nothing",
            2,
            refusals_change_nothing,
        ),
        Case::in_lab("orders::moved_as_soon_as_it_is_begun", 2, at_once),
        Case::in_lab("orders::best_may_be_home", 3, best_may_be_home),
        Case::in_lab("orders::labels", 3, labels),
        Case::in_lab("orders::shell", 2, shell),
        Case::in_lab("orders::only_of_administrators", 2, administrators),
    ];
    cases.extend(told::cases());
    cases
}

/// Programs of n1 that answer, and their pids.
fn echoes(cluster: &Cluster, count: usize, options: &[&str]) -> Result<Vec<(Talk, i32)>> {
    let python = ["python3", "-c", ECHO];
    (0..count)
        .map(|_| Talk::run(cluster, options, &python))
        .collect()
}

fn answers(talks: &mut [(Talk, i32)], word: &str) -> Result<()> {
    for (talk, pid) in talks {
        talk.say(word)?;
        let said = talk.line()?;
        ensure!(said == word.repeat(2), "{pid} said {said}");
    }
    Ok(())
}

/// What n1 knows of a node.
fn node(cluster: &Cluster, name: &str) -> Result<Value> {
    cluster.member("n1", name)
}

/// Waits until n1 knows this of a node.
pub(crate) fn knows(cluster: &Cluster, name: &str, what: &str, value: &Value) -> Result<()> {
    cluster.await_member(("n1", name), (what, value.clone()), SHORT)
}

fn stay_and_go(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1.to_string();
    let said = cluster.whim("n1", &["stay"])?;
    ensure!(said.contains("may not leave"), "{said}");
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    let sentence = "This node keeps its own processes ('whim go' lets them leave).";
    ensure!(refusal.contains(sentence), "{refusal}");
    let why = cluster.whim("n1", &["why", &pid])?;
    ensure!(why.contains(sentence), "{why}");
    ensure!(node(cluster, "n1")?["stays"] == true);
    // It is not forgotten with the daemon.
    cluster.restart_daemon("n1")?;
    knows(cluster, "n2", "state", &"up".into())?;
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains(sentence), "{refusal}");
    let said = cluster.whim("n1", &["go"])?;
    ensure!(said.contains("may leave"), "{said}");
    cluster.move_to(talks[0].1, "n2")?;
    answers(&mut talks, "away")
}

fn block_and_unblock(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 2, &[])?;
    let (first, second) = (talks[0].1, talks[1].1);
    cluster.move_to(first, "n2")?;
    let said = cluster.whim("n2", &["block"])?;
    ensure!(said.contains("guests are refused"), "{said}");
    // At once, whether n1 has heard of it or not.
    let refusal = cluster.refused("n1", &["migrate", &second.to_string(), "n2"])?;
    ensure!(refusal.contains("it is blocked"), "{refusal}");
    knows(cluster, "n2", "blocked", &true.into())?;
    cluster.move_to(second, "best")?;
    ensure!(cluster.place(second)? == "n3");
    // Those that are there may stay.
    ensure!(cluster.place(first)? == "n2");
    cluster.whim("n2", &["unblock"])?;
    knows(cluster, "n2", "blocked", &false.into())?;
    cluster.move_to(second, "n2")?;
    answers(&mut talks, "both")
}

fn expel(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 4, &[])?;
    for (_, pid) in &talks {
        cluster.move_to(*pid, "n2")?;
    }
    let said = cluster.whim("n2", &["expel"])?;
    ensure!(said.contains("No guests are left"), "{said}");
    for (_, pid) in &talks {
        let place = cluster.place(*pid)?;
        ensure!(place != "n2", "{pid} is on {place}");
    }
    let guests = cluster.rows("n2", true)?;
    ensure!(guests.is_empty(), "n2 has {guests:?}");
    let pid = talks[0].1.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains("it is blocked"), "{refusal}");
    answers(&mut talks, "unharmed")
}

/// A program of n2's own, and its pid there.
fn sleeper_of_n2(cluster: &Cluster) -> Result<(Running, i32)> {
    let running = Running::spawn(&mut cluster.run_command("n2", &["sleep", "1000"]))?;
    let pid = eventually(SHORT, "n2 has one of its own", || {
        let rows = cluster.rows("n2", false)?;
        let row = rows.iter().find(|row| row.command.contains("sleep"));
        Ok(row.map(|row| row.pid))
    })?;
    Ok((running, pid))
}

/// What a shutdown, a UPS or a spot notice calls.
fn evacuate(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 3, &[])?;
    for (_, pid) in &talks {
        cluster.move_to(*pid, "n2")?;
    }
    let (_own, _) = sleeper_of_n2(cluster)?;
    let said = cluster.whim("n2", &["evacuate"])?;
    let sentence = "No guests are left; 1 process whose home this is would end with it";
    ensure!(said.contains(sentence) && said.contains("sleep"), "{said}");
    ensure!(cluster.rows("n2", true)?.iter().all(|row| row.home == "n2"));
    let pid = talks[0].1.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains("takes no guests now"), "{refusal}");
    cluster.whim("n2", &["evacuate", "--undo"])?;
    knows(cluster, "n2", "blocked", &false.into())?;
    cluster.move_to(talks[0].1, "n2")?;
    // It is no order for the time after the next start.
    let mut evacuating = Running::spawn(&mut cluster.whim_command("n2", &["evacuate"]))?;
    evacuating.wait(SHORT)?;
    cluster.restart_daemon("n2")?;
    knows(cluster, "n2", "blocked", &false.into())?;
    answers(&mut talks, "unharmed")
}

/// Somebody types at a terminal of n2, which is his.
/// A shell before n2, in a terminal of which this is the path.
pub(crate) fn desktop(cluster: &Cluster) -> Result<(Terminal, String)> {
    let mut terminal = Terminal::start(&cluster.command("n2", &["sh"]))?;
    let shown = terminal.ask("tty\n", "/dev/pts/")?;
    let rest = terminal.wait_for("\r")?;
    let number = String::from_utf8_lossy(&rest).trim().to_owned();
    ensure!(
        !shown.is_empty() && number.parse::<u32>().is_ok(),
        "No terminal: {number}"
    );
    Ok((terminal, format!("/dev/pts/{number}")))
}

fn owner(cluster: &Cluster) -> Result<()> {
    let (mut terminal, path) = desktop(cluster)?;
    let text = format!("owner = true\nowner_idle = 2\nowner_terminals = [\"{path}\"]\n");
    cluster.configure("n2", &text)?;
    cluster.restart_daemon("n2")?;
    // What was typed just now was typing, too.
    knows(cluster, "n2", "blocked", &false.into())?;
    let mut talks = echoes(cluster, 2, &[])?;
    for (_, pid) in &talks {
        eventually(SHORT, "n2 takes guests", || {
            Ok(cluster
                .whim("n1", &["migrate", &pid.to_string(), "n2"])
                .ok())
        })?;
    }
    eventually(SHORT, "the guests have left", || {
        terminal.press(":\n")?;
        Ok(cluster.rows("n2", true)?.is_empty().then_some(()))
    })?;
    let pid = talks[0].1.to_string();
    eventually(SHORT, "a move is refused with the reason", || {
        terminal.press(":\n")?;
        let refused = cluster.whim("n1", &["migrate", &pid, "n2"]).err();
        let said = refused.map(|error| format!("{error:#}"));
        let named = said.is_some_and(|said| said.contains("its owner sits before it"));
        Ok(named.then_some(()))
    })?;
    knows(cluster, "n2", "blocked", &true.into())?;
    for (_, pid) in &talks {
        ensure!(cluster.place(*pid)? == "n1");
    }
    let log = cluster.whim("n2", &["log"])?;
    ensure!(
        log.contains("Its owner sits before this node: guests leave"),
        "{log}"
    );
    knows(cluster, "n2", "blocked", &false.into())?;
    answers(&mut talks, "unharmed")
}

fn guests_of_a_user(cluster: &Cluster) -> Result<()> {
    cluster.configure("n2", "[guests]\nper_user = 1\n")?;
    cluster.restart_daemon("n2")?;
    knows(cluster, "n2", "state", &"up".into())?;
    let mut talks = echoes(cluster, 2, &[])?;
    cluster.move_to(talks[0].1, "n2")?;
    let refusal = cluster.refused("n1", &["migrate", &talks[1].1.to_string(), "n2"])?;
    let sentence = "has 1 guests of user 0 of n1 already, as many as [guests] per_user allows";
    ensure!(refusal.contains(sentence), "{refusal}");
    answers(&mut talks, "both")
}

/// What runs in a session that is opted in is a candidate, whoever has started it.
fn sessions(cluster: &Cluster) -> Result<()> {
    let group = cluster
        .memory_group("n1")
        .or_else(|| cluster.group("pids", "n1"));
    let group = group.context("n1 has no control group")?.join("batch");
    let root = std::path::Path::new("/sys/fs/cgroup");
    let below = group.strip_prefix(root)?;
    let hierarchy = below.starts_with("whim-lab");
    let name = if hierarchy {
        below.to_path_buf()
    } else {
        below.iter().skip(1).collect()
    };
    std::fs::create_dir(&group)?;
    cluster.configure(
        "n1",
        &format!("[balance]\nsessions = [\"{}\"]\n", name.display()),
    )?;
    cluster.restart_daemon("n1")?;
    let other = Running::spawn(&mut cluster.command("n1", &["sleep", "4712"]))?;
    let script = format!(
        "echo 0 > {}/cgroup.procs && exec sleep 4711",
        group.display()
    );
    let session = Running::spawn(&mut cluster.command("n1", &["sh", "-c", &script]))?;
    let row = eventually(SHORT, "it is a candidate", || {
        let rows = cluster.rows("n1", false)?;
        Ok(rows.into_iter().find(|row| row.command.contains("4711")))
    })?;
    let why = cluster.whim("n1", &["why", &row.pid.to_string()])?;
    ensure!(!why.contains("Not a candidate"), "{why}");
    ensure!(
        cluster
            .rows("n1", false)?
            .iter()
            .all(|row| !row.command.contains("4712"))
    );
    drop((session, other));
    eventually(SHORT, "the group is empty", || {
        Ok(std::fs::remove_dir(&group).is_ok().then_some(()))
    })
}

/// Where a program moved last, and why, is known for as long as it lives.
fn last_move(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    let number = pid.to_string();
    let says = |from: &str, to: &str, cause: &str| -> Result<()> {
        let why = cluster.whim("n1", &["why", &number])?;
        let (moved, cause) = (
            format!("It last moved from {from} to {to}, on "),
            format!("(cause: {cause})"),
        );
        ensure!(why.contains(&moved) && why.contains(&cause), "{why}");
        Ok(())
    };
    let why = cluster.whim("n1", &["why", &number])?;
    ensure!(!why.contains("It last moved"), "{why}");
    cluster.move_to(pid, "n2")?;
    says("n1", "n2", "user")?;
    // Its host wants to be rid of it.
    cluster.whim("n2", &["expel"])?;
    let place = cluster.place(pid)?;
    says("n2", &place, "host")?;
    cluster.restart_daemon("n1")?;
    says("n2", &place, "host")?;
    if place == "n1" {
        cluster.move_to(pid, "n3")?;
    }
    cluster.whim("n1", &["bring"])?;
    says("n3", "n1", "order")?;
    let log = cluster.whim("n1", &["log"])?;
    for cause in ["user", "host", "order"] {
        let named =
            |line: &str| line.contains("moved") && line.ends_with(&format!("cause: {cause}"));
        ensure!(log.lines().any(named), "{cause}: {log}");
    }
    answers(&mut talks, "there and back")
}

/// Who asks after a program learns that its host's daemon is gone, which leaves the guest alone.
fn silent_host(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    cluster.move_to(pid, "n2")?;
    let daemon = cluster.daemon_pid("n2")?;
    cluster.run("n2", &["kill", "-KILL", &daemon])?;
    eventually(SHORT, "it is said", || {
        let why = cluster.whim("n1", &["why", &pid.to_string()])?;
        Ok(why
            .contains("The daemon of n2 is not reached")
            .then_some(()))
    })?;
    answers(&mut talks, "away")
}

fn bring_all(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 3, &[])?;
    for ((_, pid), to) in talks.iter().zip(["n2", "n3", "n3"]) {
        cluster.move_to(*pid, to)?;
    }
    let said = cluster.whim("n1", &["bring"])?;
    ensure!(said.contains("3 processes have come home"), "{said}");
    for (_, pid) in &talks {
        ensure!(cluster.place(*pid)? == "n1");
    }
    let pid = talks[0].1.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains("keeps its own processes"), "{refusal}");
    answers(&mut talks, "home")
}

/// Asked on n1, n2 loses its guests, refuses others and keeps its own.
fn drain(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 3, &[])?;
    for (_, pid) in &talks {
        cluster.move_to(*pid, "n2")?;
    }
    let (_own, own) = sleeper_of_n2(cluster)?;
    let said = cluster.whim("n1", &["drain", "n2"])?;
    ensure!(said.contains("n2 is drained"), "{said}");
    ensure!(said.contains(&format!("{own}  sleep")), "{said}");
    knows(cluster, "n2", "state", &"draining".into())?;
    for (_, pid) in &talks {
        ensure!(cluster.place(*pid)? != "n2");
    }
    let pid = talks[0].1.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains("is being drained"), "{refusal}");
    let refusal = cluster.refused("n2", &["migrate", &own.to_string(), "n3"])?;
    ensure!(refusal.contains("its own processes stay"), "{refusal}");
    // Nobody has to wait until n1 has heard of it.
    cluster.whim("n2", &["undrain", "n2"])?;
    cluster.whim("n1", &["migrate", &pid, "n2"])?;
    answers(&mut talks, "again")
}

/// Other nodes learned of it from the next report, up to a second later, and sent guests meanwhile.
fn drain_is_known(cluster: &Cluster) -> Result<()> {
    let all_know = |node: &str, state: &str| -> Result<()> {
        for asked in ["n1", "n2", "n3"] {
            let row = cluster.member(asked, node)?;
            ensure!(row["state"] == state, "{asked} is to know {state}: {row}");
        }
        Ok(())
    };
    // Nodes of a cluster that has just been made may not have met yet.
    for asked in ["n1", "n2", "n3"] {
        cluster.await_all_up(asked, SHORT)?;
    }
    // The order is given at the node, and from afar.
    for (from, node) in [("n2", "n2"), ("n3", "n3"), ("n1", "n2"), ("n2", "n3")] {
        let said = cluster.whim(from, &["drain", node])?;
        ensure!(!said.contains("has not been told"), "{said}");
        all_know(node, "draining")?;
        cluster.whim(from, &["undrain", node])?;
        all_know(node, "up")?;
    }
    Ok(())
}

/// A node that died holds nobody up, and is named.
fn untold_of_a_drain(cluster: &Cluster) -> Result<()> {
    cluster.lab(&["kill", "n3"])?;
    let begun = Instant::now();
    let said = cluster.whim("n1", &["drain", "n2"])?;
    ensure!(
        said.contains("n3 has not been told: it did not answer n2"),
        "{said}"
    );
    ensure!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    ensure!(node(cluster, "n2")?["state"] == "draining");
    cluster.await_member(("n2", "n3"), ("state", "down"), SHORT)?;
    for from in ["n1", "n2"] {
        let begun = Instant::now();
        let said = cluster.whim(from, &["undrain", "n2"])?;
        ensure!(said.contains("n3 has not been told: it is down"), "{said}");
        ensure!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    }
    Ok(())
}

fn drain_waits(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    cluster.move_to(talks[0].1, "n2")?;
    let mut waiting = Running::spawn(&mut cluster.whim_command("n1", &["drain", "--wait", "n1"]))?;
    knows(cluster, "n1", "state", &"draining".into())?;
    answers(&mut talks, "still")?;
    ensure!(
        waiting.wait_up_to(Duration::ZERO)?.is_none(),
        "It did not wait"
    );
    drop(talks);
    let status = waiting.wait(SHORT)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Whoever lifts an order while others wait for what it brings about has the last word: those are told so,
/// and the order of a client that is dead is not given again.
fn last_one_holds(cluster: &Cluster) -> Result<()> {
    let (_own, _) = sleeper_of_n2(cluster)?;
    for node in ["n1", "n2"] {
        let mut dead = draining(cluster, node)?;
        dead.client.signal(Signal::SIGKILL);
        dead.client.wait(SHORT)?;
        let mut waiting = draining(cluster, node)?;
        knows(cluster, "n2", "state", &"draining".into())?;
        cluster.whim("n1", &["undrain", "n2"])?;
        let status = waiting.client.wait(SHORT)?;
        let said = fs::read_to_string(&waiting.said)?;
        let lifted = said.contains("'whim undrain' was given meanwhile");
        ensure!(!status.success() && lifted, "{status}: {said}");
        knows(cluster, "n2", "state", &"up".into())?;
    }
    Ok(())
}

struct Draining {
    client: Running,
    said: PathBuf,
}

/// `whim drain --wait n2`, which has been told what is left, and waits.
fn draining(cluster: &Cluster, from: &str) -> Result<Draining> {
    let said = cluster.directory().join("drain.txt");
    let file = fs::File::create(&said)?;
    let mut command = cluster.whim_command(from, &["drain", "--wait", "n2"]);
    command.stdout(file.try_clone()?).stderr(file);
    let client = Running::spawn(&mut command)?;
    eventually(SHORT, "it is told what is left", || {
        let told = fs::read_to_string(&said)?.contains("of its own are left");
        Ok(told.then_some(()))
    })?;
    Ok(Draining { client, said })
}

/// Its home is gone, and its lease does not end: nobody else would ever end it.
fn without_home(cluster: &Cluster) -> Result<()> {
    let talks = echoes(cluster, 1, &["--lease", "inf"])?;
    cluster.move_to(talks[0].1, "n2")?;
    cluster.lab(&["kill", "n1"])?;
    let output = process::output(
        &mut cluster.whim_command("n2", &["expel"]),
        Duration::from_secs(60),
    )?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("its lease has no end"), "{said}");
    ensure!(said.contains("No guests are left"), "{said}");
    Ok(())
}

/// What the cluster does not move by itself is said, with the reason.
fn candidates(cluster: &Cluster) -> Result<()> {
    let why = |pid: i32| cluster.whim("n1", &["why", &pid.to_string()]);
    let talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    let said = why(pid)?;
    ensure!(!said.contains("Not a candidate"), "{said}");
    let daemon: i32 = cluster.daemon_pid("n1")?.trim().parse()?;
    let said = why(daemon)?;
    ensure!(
        said.contains("Not a candidate: it is a program of Whimbrel's own"),
        "{said}"
    );
    parts_of_the_system_stay(cluster, pid, daemon)?;
    // As on a machine that is no lab.
    cluster.configure("n1", "[balance]\nuid_min = 1000\n")?;
    cluster.restart_daemon("n1")?;
    let sentence = "Not a candidate: its user has uid 0, and those below 1000 are the system's";
    let said = why(pid)?;
    ensure!(said.contains(sentence), "{said}");
    let shown = cluster.whim("n1", &["ps"])?;
    ensure!(shown.contains(sentence), "{shown}");
    Ok(())
}

/// Who was never put into our hands is not there by a request that was refused, nor is what it starts.
fn refusals_change_nothing(cluster: &Cluster) -> Result<()> {
    let program = "python3";
    let mut command = cluster.command("n1", &[program, "-c", ECHO]);
    let mut talk = Talk::start(cluster, &mut command)?;
    let pid = talk.ready()?.to_string();
    let refuse = |words: &[&str]| cluster.refused("n1", words);
    let outside = || -> Result<()> {
        let said = cluster.whim("n1", &["why", &pid])?;
        ensure!(said.contains("Not a candidate: it was started"), "{said}");
        ensure!(!said.contains("just put it"), "{said}");
        let shown = cluster.whim("n1", &["ps"])?;
        ensure!(!shown.contains(program), "{shown}");
        Ok(())
    };
    let said = refuse(&["migrate", &pid, "nowhere"])?;
    ensure!(said.contains("There is no node nowhere"), "{said}");
    outside()?;
    refuse(&["migrate", &pid, "home"])?;
    outside()?;
    cluster.whim("n1", &["go", &pid])?;
    outside()?;
    cluster.whim("n1", &["drain", "n2"])?;
    refuse(&["migrate", &pid, "n2"])?;
    outside()?;
    cluster.whim("n1", &["undrain", "n2"])?;
    cluster.whim("n1", &["migrate", &pid, "n2"])?;
    let shown = cluster.whim("n1", &["ps"])?;
    ensure!(shown.contains(program), "{shown}");
    cluster.whim("n1", &["migrate", &pid, "home"])?;
    let said = cluster.whim("n1", &["why", &pid])?;
    ensure!(!said.contains("Not a candidate"), "{said}");
    talk.say("unharmed")?;
    ensure!(talk.line()? == "unharmedunharmed");
    Ok(())
}

/// Not even root sends away what the node itself stands on. What it is decides, and not what it is called.
fn parts_of_the_system_stay(cluster: &Cluster, pid: i32, daemon: i32) -> Result<()> {
    cluster.move_to(pid, "n2")?;
    let supervisor = cluster.row(pid)?.and_then(|row| row.home_supervisor_pid);
    let supervisor = supervisor.context("No home supervisor")?;
    let whim = cluster.whim_path().display().to_string();
    let (same, other) = (
        cluster.directory().join("other"),
        cluster.directory().join("whim"),
    );
    fs::hard_link(&whim, &same).or_else(|_| std::os::unix::fs::symlink(&whim, &same))?;
    fs::copy("/bin/cat", &other)?;
    let start = |words: &[&str]| -> Result<(Talk, i32)> {
        let script = "echo ready $$; exec \"$@\"";
        let all = [&["sh", "-c", script, "sh"], words].concat();
        let mut talk = Talk::start(cluster, &mut cluster.command("n1", &all))?;
        let pid = talk.ready()?;
        Ok((talk, pid))
    };
    let (_feed, feed) = start(&[&same.display().to_string(), "mon", "--json"])?;
    let ours = "It is a program of Whimbrel's own";
    for (pid, sentence) in [
        (1, "It is the first process of this machine"),
        (daemon, ours),
        (supervisor, ours),
        (feed, ours),
    ] {
        let named = pid.to_string();
        eventually(SHORT, "it is said what it is", || {
            let said = cluster.whim("n1", &["why", &named])?;
            Ok((said.contains(sentence) && said.contains("Not a candidate")).then_some(()))
        })?;
        for words in [&["migrate", &named, "n2"][..], &["adopt", &named]] {
            let said = cluster.refused("n1", words)?;
            ensure!(said.contains(sentence), "{said}");
        }
    }
    let (_cat, cat) = start(&[&other.display().to_string()])?;
    cluster.move_to(cat, "n2")?;
    cluster.move_to(pid, "home")
}

/// Who asks for a program as soon as the shell has told its number may come before `whim run` is that program.
fn at_once(cluster: &Cluster) -> Result<()> {
    const TIMES: usize = 12;
    let script = "\"$0\" run -- sleep 1000 & \"$0\" migrate $! n2; ended=$?; kill $!; exit $ended";
    let whim = cluster.whim_path().display().to_string();
    for _ in 0..TIMES {
        let mut command = cluster.command("n1", &["sh", "-c", script, &whim]);
        process::succeed(&mut command, SHORT)?;
    }
    Ok(())
}

/// A program that is away goes home by `best`, where that is the least loaded of all.
fn best_may_be_home(cluster: &Cluster) -> Result<()> {
    let mut talks = echoes(cluster, 1, &[])?;
    let pid = talks[0].1;
    cluster.move_to(pid, "n2")?;
    let mut hogs = Vec::new();
    for _ in 0..4 {
        let words = ["sh", "-c", "while :; do :; done"];
        hogs.push(Running::spawn(&mut cluster.command("n3", &words))?);
    }
    eventually(SHORT, "n3 has much to do", || {
        let load = node(cluster, "n3")?["load"].as_f64();
        Ok(load.is_some_and(|load| load > 3.0).then_some(()))
    })?;
    cluster.move_to(pid, "best")?;
    ensure!(cluster.place(pid)? == "n1", "It is elsewhere");
    drop(hogs);
    answers(&mut talks, "at home")
}

/// Users choose by words for kinds of nodes.
fn labels(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let mut command = cluster.command("n1", &[&whim, "run", "--on", "@fast", "--", "true"]);
    let output = process::output(&mut command, SHORT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125), "{output:?}");
    ensure!(said.contains("this cluster's labels: none"), "{said}");
    cluster.configure("n3", "labels = [\"fast\", \"big\"]\n")?;
    cluster.restart_daemon("n3")?;
    let both = serde_json::json!(["fast", "big"]);
    knows(cluster, "n3", "labels", &both)?;
    let mut talks = echoes(cluster, 1, &["--only", "@fast"])?;
    let pid = talks[0].1;
    let refusal = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(refusal.contains("--only @fast"), "{refusal}");
    cluster.move_to(pid, "best")?;
    ensure!(cluster.place(pid)? == "n3");
    talks.extend(echoes(cluster, 1, &["--avoid", "@big,@slow"])?);
    let pid = talks[1].1;
    let refusal = cluster.refused("n1", &["migrate", &pid.to_string(), "n3"])?;
    ensure!(refusal.contains("--avoid @big"), "{refusal}");
    let refusal = cluster.refused("n1", &["migrate", &pid.to_string(), "@fast"])?;
    ensure!(
        refusal.contains("No node with the label @fast"),
        "{refusal}"
    );
    let words = [&whim, "run", "--on", "@big", "--", "sleep", "1000"];
    let _sleeper = Running::spawn(&mut cluster.command("n1", &words))?;
    let pid = cluster.find("sleep 1000")?;
    eventually(SHORT, "it is on the node with that label", || {
        Ok((cluster.place(pid)? == "n3").then_some(()))
    })?;
    let shown = cluster.whim("n1", &["nodes"])?;
    ensure!(shown.contains("fast,big"), "{shown}");
    answers(&mut talks, "labelled")
}

/// What is typed in `whim shell` may move, and its status is the shell's.
fn shell(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let words = ["env", "SHELL=/bin/sh", &whim, "shell", "--avoid", "n9"];
    let output = process::output(&mut cluster.command("n1", &words), SHORT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125), "{output:?}");
    ensure!(said.contains("There is no node n9"), "{said}");
    let words = ["env", "SHELL=/bin/sh", &whim, "shell"];
    let mut talk = Talk::start(cluster, &mut cluster.command("n1", &words))?;
    talk.say("python3 -c 'import os, sys; print(\"ready\", os.getpid(), flush=True); sys.stdin.readline(); print(\"heard\")'")?;
    let pid = talk.ready()?;
    cluster.find("sys.stdin.readline")?;
    cluster.move_to(pid, "n2")?;
    talk.say("a line for it")?;
    // Python reads more than a line where there is more: the next one is for the shell.
    talk.until("heard")?;
    talk.say("echo still here")?;
    let said = talk.line()?;
    ensure!(said == "still here", "{said}");
    // What it is asked by is no program of the user's.
    talk.say(&format!("'{whim}' ps --json | grep -c 'ps --jso[n]'"))?;
    let count = talk.line()?;
    ensure!(count == "0", "{count} lines name it");
    talk.say("exit 7")?;
    let status = talk.end()?;
    ensure!(status.code() == Some(7), "{status}");
    Ok(())
}

fn administrators(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let words: [&[&str]; 8] = [
        &["stay"],
        &["go"],
        &["block"],
        &["unblock"],
        &["expel"],
        &["bring"],
        &["drain", "n2"],
        &["undrain", "n2"],
    ];
    for words in words {
        let all = [&[whim.as_str()], words].concat();
        let output = process::output(&mut cluster.command_as("nobody", "n1", &all), SHORT)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{words:?}: {output:?}");
        ensure!(
            said.contains("only root or a member of"),
            "{words:?}: {said}"
        );
    }
    for name in ["n1", "n2"] {
        let row = node(cluster, name)?;
        ensure!(row["blocked"] == false && row["stays"] == false, "{row}");
    }
    Ok(())
}
