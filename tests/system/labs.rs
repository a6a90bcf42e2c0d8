//! The lab as somebody meets it who tries it out: it says what there is, and what to do next.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, place};

const PATIENCE: Duration = Duration::from_secs(30);
/// Opens a link as a browser does, and shows what is said to the cookie that it gets.
const BROWSER: &str = "
import http.client, sys, urllib.parse
link = urllib.parse.urlsplit(sys.argv[1])
page = http.client.HTTPConnection(link.hostname, link.port, timeout=30)
page.request('GET', link.path + '?' + link.query)
answer = page.getresponse()
answer.read()
cookie = answer.headers['Set-Cookie'].split(';')[0]
page.request('GET', '/', headers={'Cookie': cookie})
print(page.getresponse().read().decode())
";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("labs::say_what_there_is", 2, say_what_there_is),
        Case::in_lab("labs::page_on_the_machine", 1, page_on_the_machine),
        Case::in_lab("labs::slips_are_told", 2, slips_are_told),
        Case::in_lab("labs::odd_names_are_told", 2, odd_names_are_told),
        Case::in_lab("labs::what_was_meant_is_told", 2, what_was_meant),
        Case::new("labs::up_means_that_all_see_all", |_| {
            up_means_that_all_see_all()
        }),
        Case::new("labs::tour_of_the_readme", |_| tour_of_the_readme()),
    ]
}

fn lab_name(cluster: &Cluster) -> Result<String> {
    let status: Value = serde_json::from_str(&cluster.lab(&["status", "--json"])?)?;
    let name = status["name"].as_str().context("A lab has a name")?;
    Ok(name.to_owned())
}

fn listed(cluster: &Cluster, name: &str) -> Result<Value> {
    let mut list = Command::new(cluster.whim_path());
    let text = process::succeed(list.args(["lab", "list", "--json"]), PATIENCE)?;
    let mut rows = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = rows.find(|row| row["name"] == name);
    row.with_context(|| format!("{name} is not in {text}"))
}

fn say_what_there_is(cluster: &Cluster) -> Result<()> {
    let name = lab_name(cluster)?;
    let row = listed(cluster, &name)?;
    ensure!(
        row["nodes"] == 2
            && row["nodes_on"] == 2
            && row["owner_uid"] == 0
            && row["since_ms"].is_number(),
        "{row}"
    );
    completed(cluster, &name)?;
    let pid = cluster.daemon_pid("n2")?;
    cluster.run("n2", &["kill", "-KILL", &pid])?;
    let start = format!("whim lab start --name {name}");
    eventually(
        PATIENCE,
        "the status says that the daemon has ended",
        || {
            let status = cluster.lab(&["status"])?;
            let hint = format!("n2 is on, but its daemon has ended: '{start} --daemon n2'");
            Ok(status.contains(&hint).then_some(()))
        },
    )?;
    let refused = cluster.refused("n2", &["ps"])?;
    ensure!(
        refused.contains(&format!("{start} --daemon n2")),
        "{refused}"
    );
    cluster.lab(&["kill", "n2"])?;
    let status = cluster.lab(&["status"])?;
    ensure!(
        status.contains(&format!("n2 is off: '{start} n2'")),
        "{status}"
    );
    let refused = process::output(&mut cluster.command("n2", &["true"]), PATIENCE)?;
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.contains(&format!("{start} n2")), "{refused}");
    let row = listed(cluster, &name)?;
    ensure!(row["nodes_on"] == 1, "{row}");
    changes_are_told(cluster, &name)
}

/// What changes a lab says what it is like then; it was silent.
fn changes_are_told(cluster: &Cluster, name: &str) -> Result<()> {
    for (words, told) in [
        (["start", "n2", ""], "n2 is on"),
        (["start", "--daemon", "n2"], "the daemon of n2 runs"),
        (["cut", "n1", "n2"], "no packet passes between n1 and n2"),
        (["heal", "n1", "n2"], "packets pass between n1 and n2"),
        (["kill", "n2", ""], "n2 is off"),
    ] {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let said = cluster.lab(&words)?;
        ensure!(said == format!("Lab {name}: {told}\n"), "{words:?}: {said}");
    }
    Ok(())
}

/// The words that a shell gets for a lab, and for its nodes.
fn completed(cluster: &Cluster, name: &str) -> Result<()> {
    for (line, expected) in [
        (["whim", "lab", "down", "--name", ""].as_slice(), vec![name]),
        (
            &["whim", "lab", "kill", "--name", name, ""],
            vec!["n1", "n2"],
        ),
    ] {
        // A busy machine may be slower than whoever presses the key is patient.
        eventually(PATIENCE, &format!("words for {line:?}"), || {
            let mut ask = Command::new(cluster.whim_path());
            ask.args(["complete-words", "--"]).args(line);
            let said = process::succeed(&mut ask, PATIENCE)?;
            let words: Vec<&str> = said.lines().filter_map(|l| l.split('\t').next()).collect();
            Ok(expected
                .iter()
                .all(|word| words.contains(word))
                .then_some(()))
        })?;
    }
    Ok(())
}

/// What is not there is named, with what may be meant, and nothing is left on a question's way.
fn slips_are_told(cluster: &Cluster) -> Result<()> {
    let refused = cluster.refused("n1", &["drain", "n9"])?;
    ensure!(refused.trim_end().ends_with("it has: n1, n2"), "{refused}");
    for (words, told) in [
        (["drain", "n22", ""], "(did you mean n2?)"),
        (["tune", "balance.fiar", ""], "(did you mean balance.fair?)"),
        (
            ["ca", "backup", "/nowhere/copy"],
            "The directory of /nowhere/copy is not there",
        ),
        (
            ["ca", "backup", "/proc/copy"],
            "/proc/copy cannot be made: /proc takes no new files",
        ),
        (
            ["migrate", "n22:3", "n2"],
            "There is no node n22 in this cluster; it has: n1, n2 (did you mean n2?)",
        ),
        (
            ["migrate", "n2:3", "n1"],
            "Process 3 has its home on n2: give the command there",
        ),
    ] {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let refused = cluster.refused("n1", &words)?;
        ensure!(refused.contains(told), "{refused}");
    }
    cluster.whim("n1", &["drain", "n2"])?;
    let nodes = cluster.whim("n1", &["nodes"])?;
    ensure!(nodes.contains("draining"), "{nodes}");
    for (node, words) in [("n1", &["remove", "n2"][..]), ("n2", &["leave"])] {
        let mut terminal = Terminal::start(&cluster.whim_command(node, words))?;
        terminal.wait_for("[y/N]")?;
        terminal.ask("n\r", "Nothing was done")?;
        for node in ["n1", "n2"] {
            let nodes = cluster.whim(node, &["nodes", "--json"])?;
            ensure!(nodes.lines().count() == 2, "{words:?}: {nodes}");
        }
    }
    Ok(())
}

/// Who asks at the wrong place, as the wrong user or too late learns what to do.
fn what_was_meant(cluster: &Cluster) -> Result<()> {
    let lab = lab_name(cluster)?;
    let whim = cluster.whim_path().display().to_string();
    for verb in [&["exec", "n1", "true"][..], &["status"], &["down"]] {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            &whim,
            "lab",
            verb[0],
        ]);
        command.args(["--name", &lab]).args(&verb[1..]);
        let output = process::output(&mut command, PATIENCE)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("is root's") && said.contains("sudo"),
            "{said}"
        );
    }
    // No process of n2 is to have its number.
    let uses_numbers = "for i in $(seq 300); do /bin/true; done";
    cluster.run("n1", &["sh", "-c", uses_numbers])?;
    let (_program, pid) = Talk::run(cluster, &[], &["sh", "-c", "echo ready $$; exec cat"])?;
    cluster.move_to(pid, "n2")?;
    let pid = pid.to_string();
    for words in [
        &["migrate", &pid, "n1"][..],
        &["bring", &pid],
        &["why", &pid],
    ] {
        let refused = cluster.refused("n2", words)?;
        ensure!(refused.contains(&format!("whim why n1:{pid}")), "{refused}");
    }
    cluster.whim("n1", &["migrate", &pid, "home"])?;
    broken_daemon(cluster, &lab)?;
    // A host that stands still has the move wait.
    let daemon = cluster.daemon_pid("n2")?;
    cluster.run("n2", &["kill", "-STOP", &daemon])?;
    let mut terminal = Terminal::start(&cluster.whim_command("n1", &["migrate", &pid, "n2"]))?;
    let asks = format!("cat /proc/$(pgrep -n -f 'whim migrate {pid} n2$')/status");
    eventually(PATIENCE, "it listens to keys", || {
        let status = process::output(&mut cluster.command("n1", &["sh", "-c", &asks]), PATIENCE)?;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        Ok(status.contains("SigBlk:\t0000000000000002").then_some(()))
    })?;
    terminal.ask("\u{3}", "The move goes on")?;
    cluster.run("n2", &["kill", "-CONT", &daemon])?;
    cluster.await_state(pid.parse()?, "away").map(drop)
}

/// A daemon that cannot start is not said to run.
fn broken_daemon(cluster: &Cluster, lab: &str) -> Result<()> {
    let daemon = cluster.daemon_pid("n2")?;
    let breaks = format!("kill -KILL {daemon}; echo x > /var/lib/whim/identity/node.json");
    cluster.run(
        "n2",
        &[
            "sh",
            "-c",
            &format!("cp -r /var/lib/whim /tmp/kept; {breaks}"),
        ],
    )?;
    let lab_starts = |cluster: &Cluster| {
        let mut start = Command::new(cluster.whim_path());
        start.args(["lab", "start", "--name", lab, "--daemon", "n2"]);
        process::output(&mut start, PATIENCE)
    };
    let output = lab_starts(cluster)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("has ended at once; its log is"),
        "{said}"
    );
    cluster.run("n2", &["cp", "-r", "/tmp/kept/.", "/var/lib/whim/"])?;
    ensure!(
        lab_starts(cluster)?.status.success(),
        "It does not start again"
    );
    cluster.await_all_up("n1", PATIENCE)?;
    Ok(())
}

/// A name that no node can have is said to be none, by each verb that takes one, and shown as it was given.
fn odd_names_are_told(cluster: &Cluster) -> Result<()> {
    let _program = Running::spawn(&mut cluster.run_command("n1", &["sleep", "1000"]))?;
    let pid = cluster.find("sleep 1000")?.to_string();
    for name in ["", "a\nb", "N_7"] {
        let told = format!("The name {name:?} is not usable: give 1 to 63 characters");
        for words in [
            ["drain", name].as_slice(),
            &["undrain", name],
            &["remove", name],
            &["migrate", &pid, name],
        ] {
            let refused = cluster.refused("n1", words)?;
            ensure!(refused.contains(&told), "{words:?}: {refused}");
        }
    }
    for (words, told) in [
        (["migrate", &pid, "N2"], "it has: n1, n2 (did you mean n2?)"),
        (["drain", "N1", ""], "it has: n1, n2 (did you mean n1?)"),
        (["remove", "N2", ""], "it has: n1, n2 (did you mean n2?)"),
        (
            ["migrate", &pid, "@a\nb"],
            "No node has the label @a\\nb; this",
        ),
        (["why", "a\nb:3", ""], "There is no node a\\nb in this"),
    ] {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let refused = cluster.refused("n1", &words)?;
        ensure!(refused.contains(told), "{words:?}: {refused}");
    }
    let mut run = cluster.whim_command("n1", &["run", "--on", "N2", "--", "true"]);
    let said = process::output(&mut run, PATIENCE)?;
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.code() == Some(125), "{said:?}");
    ensure!(told.contains("(did you mean n2?)"), "{told}");
    let name = lab_name(cluster)?;
    let mut exec = Command::new(cluster.whim_path());
    exec.args(["lab", "exec", "--name", &name, "a\nb", "--", "true"]);
    let said = process::output(&mut exec, PATIENCE)?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.contains("has no node 'a\\nb'"), "{said}");
    Ok(())
}

/// Links so slow that a node's join has ended long before the others have heard of it.
fn up_means_that_all_see_all() -> Result<()> {
    let name = format!("t{}-901", std::process::id());
    let whim = place::built()?.join("whim");
    let lab = |words: &[&str]| {
        let (verb, rest) = words.split_first().unwrap_or((&"list", &[]));
        let mut command = Command::new(&whim);
        command.args(["lab", verb, "--name", &name]).args(rest);
        process::succeed(&mut command, 2 * PATIENCE)
    };
    let names = ["n1", "n2", "n3"];
    let up = lab(&["up", "--nodes", "3", "--delay", "300ms"]);
    let seen: Result<Vec<String>> = names
        .iter()
        .map(|node| lab(&["exec", node, "--", "whim", "nodes", "--json"]))
        .collect();
    lab(&["down"])?;
    println!("{}", up?);
    for (by, seen) in names.iter().zip(seen?) {
        let rows: Vec<Value> = seen
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        ensure!(rows.len() == names.len(), "{by} knows {} nodes", rows.len());
        for row in rows {
            ensure!(row["state"] == "up", "{by} sees {row}");
        }
    }
    Ok(())
}

/// In a network of its own, where the port is free whatever else this machine does.
fn page_on_the_machine(cluster: &Cluster) -> Result<()> {
    let lab = lab_name(cluster)?;
    let here = process::output(&mut cluster.whim_command("n1", &["web"]), PATIENCE)?;
    let hint = String::from_utf8_lossy(&here.stderr);
    ensure!(
        hint.contains(&format!("'whim lab web --name {lab} n1'")),
        "{hint}"
    );
    let told = cluster.directory().join("link");
    let mut web = Command::new("unshare");
    web.args(["-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    web.arg(cluster.whim_path());
    web.args(["lab", "web", "--name", &lab, "n1"]);
    let mut web = Running::spawn(web.stdout(File::create(&told)?))?;
    let link = eventually(PATIENCE, "there is a link", || {
        let text = fs::read_to_string(&told)?;
        Ok(text.ends_with('\n').then(|| text.trim().to_owned()))
    })?;
    let mut browser = Command::new("nsenter");
    browser.args(["-t", &web.pid().to_string(), "-n"]);
    browser.args(["python3", "-c", BROWSER, &link]);
    let page = process::succeed(&mut browser, PATIENCE)?;
    ensure!(
        page.contains("<!DOCTYPE html>") || page.contains("<!doctype html>"),
        "{page}"
    );
    ensure!(page.contains("n1"), "{page}");
    cluster.lab(&["down"])?;
    ensure!(web.wait(PATIENCE)?.success(), "It goes on without its lab");
    Ok(())
}

/// The lab's commands in the README, as they stand there, but in a lab of this test's own.
fn tour_of_the_readme() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md"))?;
    let mut blocks = readme.split("\n```\n");
    let tour = blocks.find(|block| block.starts_with("n1$ sudo whim lab up"));
    let tour = tour.context("The README has a tour")?;
    // Of this form, so that a later test takes it down if this one is killed.
    let name = format!("t{}-900", std::process::id());
    let mut script = String::from("set -e\nexec 2>&1\n");
    for line in tour.lines() {
        let line = line.strip_prefix("n1$ sudo ");
        let mut line = line.context("Each line is typed as root")?.to_owned();
        // A person needs a moment for the next line; here it is waited for what that line needs.
        if line.ends_with('&') {
            line.push_str("\nuntil whim lab exec n1 -- pgrep -x awk; do :; done");
        }
        for verb in ["up", "exec", "down"] {
            let words = format!("whim lab {verb}");
            line = line.replace(&words, &format!("{words} --name {name}"));
        }
        script.push_str(&format!("{line}\n"));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let programs = place::built()?;
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(root);
    shell.env("PATH", format!("{}:{path}", programs.display()));
    let said = process::succeed(&mut shell, 4 * PATIENCE);
    if said.is_err() {
        let mut down = Command::new(programs.join("whim"));
        let _ = process::output(down.args(["lab", "down", "--name", &name]), PATIENCE);
    }
    let said = said?;
    println!("{said}");
    for expected in [
        "Lab",
        "n1 -> n2:",
        "awk [guest of uid 0 of n1]",
        "n2 -> n1:",
        "It last moved from n2 to n1",
    ] {
        ensure!(said.contains(expected), "{expected:?} is not in {said}");
    }
    Ok(())
}
