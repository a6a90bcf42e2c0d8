//! `whim top` and `whim mon`: what they are told, by whom they are seen, and what their keys do.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use whim_attempts::{Attempt, Party};
use whim_system_tests::process;
use whim_system_tests::talk::WAITS;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, Running, Talk, ensure};

const PATIENCE: Duration = Duration::from_secs(30);
/// What must be seen by nobody but its user and administrators of its home.
const SECRET: &str = "token-4ae81";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("monitors::of_the_whole_cluster", 3, whole_cluster),
        Case::in_lab("monitors::arguments_of_others", 2, arguments_of_others),
        Case::in_lab("monitors::guests_of_others", 2, guests_of_others),
        Case::in_lab("monitors::keys_of_top", 2, keys_of_top),
        Case::in_lab(
            "monitors::list_fits_the_terminal",
            2,
            list_fits_the_terminal,
        ),
        Case::in_lab("monitors::mon", 2, mon),
    ]
}

/// A feed that is being read.
struct Feed {
    talk: Talk,
    rows: HashMap<i64, Value>,
}

impl Feed {
    fn open(cluster: &Cluster, node: &str) -> Result<Self> {
        let mut command = cluster.whim_command(node, &["top", "--json"]);
        let talk = Talk::start(cluster, &mut command)?;
        let rows = HashMap::new();
        Ok(Self { talk, rows })
    }

    /// Reads on until a program is as wanted, or is gone.
    fn until(&mut self, pid: i32, is_so: impl Fn(Option<&Value>) -> bool) -> Result<Option<Value>> {
        loop {
            let update: Value = serde_json::from_str(&self.talk.line()?)?;
            match update["update"].as_str() {
                Some("process") => {
                    let pid = update["pid"].as_i64().context("no pid")?;
                    self.rows.insert(pid, update);
                }
                Some("process-gone") => {
                    self.rows.remove(&update["pid"].as_i64().context("no pid")?);
                }
                Some("tick") if is_so(self.rows.get(&pid.into())) => {
                    return Ok(self.rows.get(&pid.into()).cloned());
                }
                _ => {}
            }
        }
    }

    fn close(mut self) -> Result<()> {
        self.talk.signal_outside(nix::sys::signal::Signal::SIGKILL);
        self.talk.end().map(drop)
    }
}

/// A node that is neither its home nor its host sees a program come, move and end.
fn whole_cluster(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    let mut feed = Feed::open(cluster, "n3")?;
    let row = feed.until(pid, |row| row.is_some())?.context("no row")?;
    ensure!(row["home"] == "n1" && row["where"] == "n1", "{row}");
    let attempt = Attempt::new(
        Party::Member,
        "read the arguments of another node's program",
    );
    let command = row["command"].as_str().unwrap_or_default();
    ensure!(
        command.starts_with("python3") && !command.contains(' '),
        "{row}"
    );
    attempt.failed("the name of the program is told, and no more");
    ensure!(row["user"] == "root" && row["uid"].is_null(), "{row}");
    for place in ["n2", "n3", "n1"] {
        cluster.have_on(pid, place)?;
        feed.until(pid, |row| row.is_some_and(|row| row["where"] == place))?;
    }
    let once = cluster.whim("n2", &["top", "--once"])?;
    ensure!(
        once.contains(&pid.to_string()) && !once.contains(SECRET),
        "{once}"
    );
    talk.go()?;
    talk.succeed()?;
    feed.until(pid, |row| row.is_none())?;
    // What was recorded can be looked at again.
    let lines = r#"{"update":"tick","time_ms":1}"#;
    let record = cluster.directory().join("record");
    std::fs::write(&record, lines)?;
    let record = record.display().to_string();
    let shown = cluster.whim("n1", &["top", "--once", "--from", &record])?;
    ensure!(shown.starts_with("PID"), "{shown}");
    std::fs::write(&record, "no feed\n")?;
    let refused = cluster.refused("n1", &["top", "--once", "--from", &record])?;
    ensure!(refused.contains("no line of a feed"), "{refused}");
    feed.close()
}

/// Users see of each other's programs that they are there, and not how they were started.
fn arguments_of_others(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    let own = cluster.whim("n1", &["ps"])?;
    ensure!(own.contains(SECRET), "{own}");
    let whim = cluster.whim_path().display().to_string();
    let number = pid.to_string();
    for words in [
        &["ps", "--all"][..],
        &["ps", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["why", &number],
    ] {
        let what = format!(
            "read the arguments of another user's program by whim {}",
            words.join(" ")
        );
        let attempt = Attempt::new(Party::LocalUser, what.replace(&number, "PID"));
        let all = [&[whim.as_str()], words].concat();
        let mut command = cluster.command_as("nobody", "n1", &all);
        let text = process::succeed(&mut command, PATIENCE)?;
        ensure!(
            text.contains("python3") && !text.contains(SECRET),
            "{words:?}: {text}"
        );
        attempt.failed("the name of the program is told, and no more");
    }
    talk.go()?;
    talk.succeed()?;
    let what = "read the arguments of another user's program when it has ended";
    let attempt = Attempt::new(Party::LocalUser, what);
    let all = [whim.as_str(), "ps", "--all"];
    let text = process::succeed(&mut cluster.command_as("nobody", "n1", &all), PATIENCE)?;
    ensure!(!text.contains(SECRET), "{text}");
    attempt.failed("it is not told");
    Ok(())
}

/// A long reason takes no line beyond the terminal's edge, and leaves room for the command; elsewhere it is whole.
fn list_fits_the_terminal(cluster: &Cluster) -> Result<()> {
    let child =
        "r, w = os.pipe()\nif not os.fork():\n    os.close(w)\n    os.read(r, 1)\n    os._exit(0)";
    let shares = format!("import mmap, os\nshared = mmap.mmap(-1, 4096)\n{child}\n{WAITS}");
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", &shares])?;
    let whole = cluster.whim("n1", &["ps"])?;
    let of_it = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(&pid.to_string()));
        line.map(|line| line.trim_end().to_owned())
    };
    let line = of_it(&whole).context("it is not listed")?;
    ensure!(
        line.contains("It has shared memory without a file") && !line.contains('…'),
        "{line}"
    );
    let mut ps = cluster.whim_command("n1", &["ps"]);
    let mut terminal = Terminal::start(ps.env("LC_ALL", "C.UTF-8"))?;
    let mut shown = terminal.wait_for("…")?;
    shown.extend(terminal.wait_for("\r\n")?);
    let line = of_it(&String::from_utf8_lossy(&shown)).context("it is not shown")?;
    ensure!(line.contains("It has sh") && line.contains('…'), "{line}");
    ensure!(line.chars().count() <= 80, "{line}");
    ensure!(terminal.end()?.success(), "ps has failed");
    talk.go()?;
    talk.succeed()
}

/// A host's own people see whose a guest is, from where, what it is, and what it costs them.
fn guests_of_others(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let words = [&whim, "run", "--", "awk", "BEGIN { while (1) i++ }"];
    let _program = Running::spawn(&mut cluster.command_as("nobody", "n1", &words))?;
    let pid = cluster.find("awk BEGIN")?;
    cluster.move_to(pid, "n2")?;
    process::eventually(PATIENCE, "its host shows that it computes", || {
        let text = cluster.whim("n2", &["ps", "--json"])?;
        let mut rows = text.lines().map(serde_json::from_str::<Value>);
        let row = rows.next().context("n2 shows nothing")??;
        let command = row["command"].as_str().unwrap_or_default();
        let uid = nobody()?;
        ensure!(
            row["home"] == "n1"
                && row["pid"] == pid
                && row["user"] == format!("uid {uid} of n1")
                && command.ends_with(&format!("awk [guest of uid {uid} of n1]")),
            "{row}"
        );
        let (cpu, memory) = (&row["cpu_percent"], &row["memory_bytes"]);
        let costs = cpu.as_f64() > Some(10.0) && memory.as_u64() > Some(100_000);
        Ok(costs.then_some(()))
    })?;
    let shown = cluster.whim("n2", &["ps"])?;
    ensure!(shown.contains("of n1]"), "{shown}");
    Ok(())
}

fn nobody() -> Result<u32> {
    let user = nix::unistd::User::from_name("nobody")?;
    Ok(user.context("There is no user nobody")?.uid.as_raw())
}

/// A person moves a program, asks why it is there, and ends it, in a real terminal.
fn keys_of_top(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    let mut terminal = Terminal::start(&cluster.whim_command("n1", &["top"]))?;
    terminal.wait_for("python3")?;
    // What is refused is told with its reason.
    cluster.whim("n2", &["block"])?;
    terminal.ask("m", "best")?;
    terminal.ask("\x1b[F\r", "blocked")?;
    ensure!(cluster.place(pid)? == "n1", "It has gone");
    cluster.whim("n2", &["unblock"])?;
    crate::orders::knows(cluster, "n2", "blocked", &false.into())?;
    // Only letters that change on the screen are sent: of "home" and "away", all four.
    terminal.ask("m", "best")?;
    // To the last line of the menu, which is n2.
    terminal.ask("\x1b[F\r", "away")?;
    ensure!(cluster.place(pid)? == "n2", "It is elsewhere");
    terminal.ask("w", "epoch")?;
    // Any key closes the text; Esc and a letter at once would be one key, with Alt.
    terminal.press("x")?;
    terminal.ask("k", "SIGTERM")?;
    terminal.press("\r")?;
    let status = talk.end()?;
    ensure!(!status.success(), "It has ended by itself");
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "top has failed");
    Ok(())
}

fn mon(cluster: &Cluster) -> Result<()> {
    let mut terminal = Terminal::start(&cluster.whim_command("n2", &["mon"]))?;
    terminal.wait_for("n2")?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "mon has failed");
    let once = cluster.whim("n2", &["mon", "--once"])?;
    ensure!(once.lines().count() == 3 && once.contains("n1"), "{once}");
    poor_terminals(cluster)?;
    outlast_a_daemon(cluster)?;
    words_of_states(cluster)
}

/// A monitor goes on when the daemon is back that it looks through.
fn outlast_a_daemon(cluster: &Cluster) -> Result<()> {
    let mut terminal = Terminal::start(&cluster.whim_command("n2", &["mon"]))?;
    terminal.wait_for("n1")?;
    cluster.restart_daemon("n2")?;
    terminal.wait_for("A daemon answers again")?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "mon has failed");
    Ok(())
}

/// A terminal without a screen is given lines, and one without our letters others.
fn poor_terminals(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    for verb in ["top", "mon"] {
        let words = ["env", "TERM=dumb", &whim, verb];
        let mut terminal = Terminal::start(&cluster.command("n2", &words))?;
        let shown = terminal.wait_for("\r\n")?;
        ensure!(!shown.contains(&b'\x1b'), "{verb}: {shown:?}");
        ensure!(terminal.end()?.success(), "{verb} has failed");
    }
    let words = ["env", "LC_ALL=C", &whim, "top"];
    let mut terminal = Terminal::start(&cluster.command("n2", &words))?;
    terminal.wait_for("CPU%v")?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "top has failed");
    Ok(())
}

/// A feed in which everything is at once: a node that is overloaded, one that is drained, one that is down; a program
/// that is away, one that stays, one that moves.
fn eventful() -> String {
    let node = |name: &str, state: &str, load: f64| {
        json!({"update": "node", "name": name, "state": state, "load": load, "speed": 1.0, "cpus": 0.5, "guests": 0,
               "memory_total_bytes": 8u64 << 30, "memory_available_bytes": 4u64 << 30, "class": "a-b"})
    };
    let process = |pid: i32, place: &str, state: &str, stay: Option<&str>| {
        json!({"update": "process", "pid": pid, "home": "n1", "where": place, "state": state, "reason": null,
               "moves": 1, "cpu_percent": 100 - pid, "cpu_seconds": 7509.0, "memory_bytes": 1, "stay": stay,
               "home_supervisor_pid": null, "guest_supervisor_pid": null, "command": "x"})
    };
    let lines = [
        node("n1", "up", 9.0),
        node("n2", "draining", 0.1),
        node("n3", "down", 0.1),
        process(1, "n1", "home", Some("Device")),
        process(2, "n2", "away", None),
        process(3, "n1", "moving", None),
        json!({"update": "tick", "time_ms": 1}),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

/// Spaces are not sent, so words are waited for, in the order in which they stand on the screen.
fn words_of_states(cluster: &Cluster) -> Result<()> {
    let record = cluster.directory().join("eventful");
    std::fs::write(&record, eventful())?;
    let record = record.display().to_string();
    let cases: [(&str, &[&str]); 2] = [
        (
            "mon",
            &["overloaded:", "18x", "###", "18x", "drained", "down"],
        ),
        (
            "top",
            &[
                "overloaded:",
                "18x",
                "away",
                "TIME+",
                "stays",
                "2h05:09",
                "(Devi",
                "away",
                "moving",
                "stays:",
            ],
        ),
    ];
    for (command, words) in cases {
        let words_of_command = [command, "--from", &record];
        let mut terminal = Terminal::start(&cluster.whim_command("n2", &words_of_command))?;
        for word in words {
            terminal.wait_for(word)?;
        }
        terminal.press("q")?;
        ensure!(terminal.end()?.success(), "{command} has failed");
    }
    Ok(())
}
