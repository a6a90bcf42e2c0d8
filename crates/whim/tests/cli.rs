//! The command line with real daemons: what users type, what they are told, and how it ends.
#![forbid(unsafe_code)]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use support::{
    Daemon, Network, alone, bad, copy_program, good, place, see_up, three, token, until, whim,
};

fn verbs(words: &[&str]) -> Vec<String> {
    let text = good(
        &Command::new(whim())
            .args(words)
            .arg("--help")
            .output()
            .expect("whim runs"),
    );
    let list = text.split("Commands:\n").nth(1).unwrap_or_default();
    list.lines()
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(ToString::to_string)
        .collect()
}

#[test]
fn help_man_pages_and_completions_agree() {
    let place = place();
    let man = place.path().join("man");
    good(
        &Command::new(whim())
            .arg("generate")
            .arg("man")
            .arg(&man)
            .output()
            .expect("runs"),
    );
    let completions = good(
        &Command::new(whim())
            .args(["completions", "bash"])
            .output()
            .expect("runs"),
    );
    let mut pages = BTreeSet::from(["whim.1".to_string(), "whimd.1".to_string()]);
    let top = verbs(&[]);
    assert!(top.len() > 15, "{top:?}");
    for verb in top {
        pages.insert(format!("whim-{verb}.1"));
        assert!(
            completions.contains(&format!("whim__subcmd__{verb}")),
            "{verb}"
        );
        for below in verbs(&[&verb]) {
            pages.insert(format!("whim-{verb}-{below}.1"));
            good(
                &Command::new(whim())
                    .args([&verb, &below])
                    .arg("--help")
                    .output()
                    .expect("runs"),
            );
        }
    }
    let written: BTreeSet<String> = std::fs::read_dir(&man)
        .expect("pages")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    assert_eq!(written, pages);
    let page = std::fs::read_to_string(man.join("whim-run.1")).expect("page");
    for option in ["on", "only", "avoid", "pin", "lease", "portable", "time"] {
        assert!(page.contains(&format!("\\-\\-{option}")), "{option}");
    }
}

/// `--share` and `--daemon` were found by nobody.
#[test]
fn the_guide_names_each_option_of_a_lab() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/user-guide.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, section) = guide.split_once("\n## The lab\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("an end");
    for verb in verbs(&["lab"]) {
        let mut help = Command::new(whim());
        let help = help.args(["lab", &verb, "--help"]).output().expect("runs");
        let help = good(&help);
        let words = help.split(|c: char| c.is_whitespace() || c == ',');
        for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
            let named = section.contains(option) || ["--help", "--json"].contains(&option);
            assert!(named, "{option} of 'whim lab {verb}' is not in the guide");
        }
    }
}

#[test]
fn wrong_use_is_told_apart_from_failure() {
    let ask = |words: &[&str]| {
        Command::new(whim())
            .env("WHIM_SOCKET", "/nonexistent/control.sock")
            .args(words)
            .output()
            .expect("whim runs")
    };
    for words in [
        &["no-such-verb"][..],
        &["migrate", "12"],
        &["migrate", "x", "n2"],
        &["migrate", "0", "n2"],
        &["adopt", "-5"],
        &["lab", "link", "n1"],
        &[],
    ] {
        bad(&ask(words), 2);
    }
    for (slip, meant) in [("drian", "'drain'"), ("migrat", "'migrate'")] {
        let error = bad(&ask(&[slip, "n2"]), 2);
        assert!(error.contains(meant), "{error}");
    }
    for words in [
        &["run"][..],
        &["run", "--lease", "soon", "true"],
        &["run", "--on", "n2", "--pin", "true"],
    ] {
        bad(&ask(words), 125);
    }
    for words in [
        &["ps"][..],
        &["nodes"],
        &["token"],
        &["migrate", "12", "n2"],
        &["log"],
    ] {
        let error = bad(&ask(words), 1);
        assert!(
            error.contains("No daemon answers at /nonexistent/control.sock"),
            "{error}"
        );
    }
    let error = bad(&ask(&["--wait", "0", "run", "--strict", "true"]), 125);
    assert!(error.contains("No daemon answers"), "{error}");
    let error = bad(&ask(&["doctor"]), 1);
    assert!(error.is_empty(), "{error}");
}

#[test]
fn a_node_without_a_cluster_lists_itself_and_says_what_to_do() {
    let place = place();
    let daemon = alone(&place);
    assert_eq!(good(&daemon.ask(&["ps", "--json"])), "");
    let rows = daemon.rows(&["nodes", "--json"]);
    assert_eq!(rows.len(), 1);
    let names: BTreeSet<&str> = rows[0]
        .as_object()
        .expect("object")
        .keys()
        .map(String::as_str)
        .collect();
    let expected = BTreeSet::from([
        "name",
        "state",
        "load",
        "speed",
        "speed_estimated",
        "cpus",
        "throttled_cpus",
        "cpu_pressure_percent",
        "memory_pressure_percent",
        "memory_total_bytes",
        "memory_available_bytes",
        "memory_promised_bytes",
        "guests",
        "blocked",
        "stays",
        "evacuates",
        "owner_here",
        "labels",
        "admitted",
        "refuses",
        "class",
    ]);
    assert_eq!(names, expected);
    assert_eq!(rows[0]["state"], "up");
    assert_eq!(rows[0]["speed"], 1.0);
    for words in [&["token"][..], &["leave"], &["remove", "n2"]] {
        let error = bad(&daemon.ask(words), 1);
        assert!(error.contains("whim init"), "{error}");
    }
    let own = std::process::id().to_string();
    let error = bad(&daemon.ask(&["migrate", &own, "n2"]), 1);
    assert!(error.contains("no node n2"), "{error}");
    let error = bad(&daemon.ask(&["migrate", &own, "home"]), 1);
    assert!(error.contains("at home already"), "{error}");
    let findings = daemon.rows(&["doctor", "--json"]);
    assert!(
        findings
            .iter()
            .any(|row| row["subject"] == "cluster" && row["grade"] == "warning")
    );
}

/// A process that has ended and was waited for: nobody has its pid for some time.
fn pid_of_the_dead() -> String {
    let mut child = Command::new("true").spawn().expect("true runs");
    child.wait().expect("ended");
    child.id().to_string()
}

#[test]
fn wrong_processes_are_refused_with_a_sentence() {
    let place = place();
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let dead = pid_of_the_dead();
    for words in [["migrate", &dead, "best"], ["migrate", &dead, "home"]] {
        let error = bad(&daemon.ask(&words), 1);
        assert!(
            error.contains(&format!("There is no process {dead}")),
            "{error}"
        );
    }
    for verb in ["adopt", "bring", "go", "why"] {
        let error = bad(&daemon.ask(&[verb, &dead]), 1);
        assert!(
            error.contains(&format!("There is no process {dead}")),
            "{verb}: {error}"
        );
    }
    let own = std::process::id().to_string();
    let error = bad(&daemon.ask(&["migrate", &own, "n1"]), 1);
    assert!(error.contains("at home already"), "{error}");
    let error = bad(&daemon.ask(&["migrate", &own, "n9"]), 1);
    assert!(
        error.contains("no node n9") && error.contains("n1"),
        "{error}"
    );
    let error = bad(&daemon.ask(&["migrate", &own, "best"]), 1);
    assert!(error.contains("No other node"), "{error}");
    let error = bad(&daemon.ask(&["migrate", &format!("n2:{own}"), "n1"]), 1);
    assert!(error.contains("no node n2"), "{error}");
    let error = bad(&daemon.ask(&["run", "--only", "n1,n7", "true"]), 125);
    assert!(error.contains("no node n7"), "{error}");
}

#[test]
fn other_users_may_look_but_not_touch() {
    if !nix::unistd::geteuid().is_root() {
        // To be another user takes root; the rule itself is tested without.
        return;
    }
    let place = place();
    let daemon = alone(&place);
    let program = place.path().join("whim");
    copy_program(&whim(), &program);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .env("WHIM_SOCKET", daemon.socket())
            .args(words)
            .uid(65_534)
            .gid(65_534);
        command.current_dir("/").output().expect("whim runs")
    };
    for words in [
        &["init"][..],
        &["token"],
        &["leave"],
        &["remove", "n2"],
        &["ca", "backup", "/x"],
    ] {
        let error = bad(&as_nobody(words), 1);
        assert!(error.contains("whim-admin"), "{error}");
    }
    good(&as_nobody(&["ps"]));
    good(&as_nobody(&["nodes"]));
    let mut sleeper = support::Owned::sleeper();
    let pid = sleeper.0.id().to_string();
    for words in [
        &["adopt", &pid][..],
        &["migrate", &pid, "best"],
        &["bring", &pid],
        &["go", &pid],
    ] {
        let error = bad(&as_nobody(words), 1);
        assert!(error.contains("belongs to root"), "{error}");
    }
    good(&daemon.ask(&["adopt", &pid]));
    assert!(
        daemon
            .rows(&["ps", "--json"])
            .iter()
            .any(|row| row["pid"] == i64::from(sleeper.0.id()))
    );
    sleeper.0.kill().expect("killed");
}

#[test]
fn run_ends_as_its_program_does() {
    let place = place();
    let daemon = alone(&place);
    let run = |words: &[&str]| daemon.ask(&[&["run"], words].concat());
    good(&run(&["true"]));
    bad(&run(&["sh", "-c", "exit 7"]), 7);
    let output = run(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
    let error = bad(&run(&["/nonexistent/program"]), 127);
    assert!(
        error.contains("There is no program /nonexistent/program"),
        "{error}"
    );
    bad(&run(&["/dev/null"]), 126);
    assert_eq!(good(&run(&["--", "echo", "--pin", "-x"])), "--pin -x\n");
}

/// What a program sees of how it was started.
const LOOK: &str = r#"
    pwd; echo "$LOOK_AT"; set -- $(ps -o ppid=,pgid=,sid= -p $$)
    test "$2" = $$ && echo leads a group; echo "$1 $3"
    grep -E '^(SigBlk|SigIgn|SigCgt|TracerPid|Seccomp|NoNewPrivs|Cap|Uid|Gid|Groups)' /proc/self/status
    ls /proc/self/fd | tr '\n' ' '; ulimit -a; umask; env | sort | grep -v '^_='
"#;

#[test]
fn run_is_transparent() {
    let place = place();
    let daemon = alone(&place);
    let look = |run: bool, prepare: &dyn Fn(&mut Command)| {
        let mut command = if run {
            daemon.whim(&["run", "--", "sh", "-c", LOOK])
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", LOOK]).stdin(Stdio::null());
            command
        };
        command
            .env("LOOK_AT", "a b\nc")
            .env("WHIM_SOCKET", daemon.socket());
        command.current_dir(place.path());
        prepare(&mut command);
        good(&command.output().expect("runs"))
    };
    let same = |prepare: &dyn Fn(&mut Command)| {
        assert_eq!(look(true, prepare), look(false, prepare));
    };
    same(&|_| {});
    same(&|command| {
        command.process_group(0);
    });
    // The shell hands an ignored SIGPIPE and closed descriptors on, as nohup and daemons do.
    for before in [
        "trap '' PIPE",
        "trap '' PIPE HUP",
        "exec 0<&-",
        "exec 2>&-",
        "umask 077",
    ] {
        let outer = |words: &str| {
            let script = format!("{before}; {words}");
            let mut command = Command::new("sh");
            command
                .args(["-c", &script])
                .env("WHIM_SOCKET", daemon.socket());
            command.env("SHOWN", LOOK).stdin(Stdio::null());
            command.output().expect("runs").stdout
        };
        let with = outer(&format!(
            "exec {} run -- sh -c \"$SHOWN\"",
            whim().display()
        ));
        let without = outer("exec sh -c \"$SHOWN\"");
        assert_eq!(
            String::from_utf8_lossy(&with),
            String::from_utf8_lossy(&without),
            "{before}"
        );
    }
}

#[test]
fn pipes_pass_through_run() {
    let place = place();
    let daemon = alone(&place);
    let mut child = daemon.whim(&["run", "cat"]);
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    child
        .stdin
        .take()
        .expect("input")
        .write_all(b"through")
        .expect("written");
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("output")
        .read_to_string(&mut text)
        .expect("read");
    assert_eq!(text, "through");
    assert!(child.wait().expect("ended").success());
}

/// Names of a row of `whim ps --json`.
const NAMES: [&str; 20] = [
    "pid",
    "home",
    "where",
    "state",
    "reason",
    "moves",
    "cpu_percent",
    "cpu_seconds",
    "cpus_got",
    "cpus_wanted",
    "home_calls",
    "memory_bytes",
    "stay",
    "not_candidate",
    "uid",
    "user",
    "parent",
    "home_supervisor_pid",
    "guest_supervisor_pid",
    "command",
];

fn names(row: &serde_json::Value) -> BTreeSet<&str> {
    let row = row.as_object().expect("object");
    row.keys().map(String::as_str).collect()
}

#[test]
fn candidates_and_their_descendants_are_listed_across_a_restart() {
    let place = place();
    let mut daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let mut command = daemon.whim(&["run", "--pin", "sh", "-c", "sleep 1000 & wait"]);
    let program = support::Owned::quiet(&mut command);
    let pid = i64::from(program.0.id());
    let rows = until("both processes", || {
        let rows = daemon.rows(&["ps", "--json"]);
        // The child shows the shell's words until it has become its program.
        let child = rows.iter().any(|row| row["command"] == "sleep 1000");
        (rows.len() == 2 && child).then_some(rows)
    });
    let row = rows
        .iter()
        .find(|row| row["pid"] == pid)
        .expect("the shell");
    assert_eq!(names(row), BTreeSet::from(NAMES));
    assert_eq!((&row["home"], &row["where"]), (&"n1".into(), &"n1".into()));
    assert_eq!((&row["state"], &row["moves"]), (&"home".into(), &0.into()));
    assert!(
        row["stay"]
            .as_str()
            .is_some_and(|stay| stay.contains("--pin")),
        "{row}"
    );
    let child = rows
        .iter()
        .find(|row| row["pid"] != pid)
        .expect("the child");
    assert_eq!(child["command"], "sleep 1000");
    let child = child["pid"].as_i64().expect("pid");
    daemon.stop();
    daemon.run();
    assert_eq!(daemon.rows(&["ps", "--json"]).len(), 2);
    let why = good(&daemon.ask(&["why", &pid.to_string()]));
    assert!(why.contains("--pin"), "{why}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child).expect("pid")),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("killed");
    until("an empty list", || {
        good(&daemon.ask(&["ps", "--json"]))
            .is_empty()
            .then_some(())
    });
}

#[test]
fn held_processes_stay_until_they_are_let_go() {
    let place = place();
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let sleeper = support::Owned::sleeper();
    let pid = sleeper.0.id().to_string();
    let text = good(&daemon.ask(&["bring", "--hold", &pid]));
    assert!(text.contains("whim go"), "{text}");
    let row = daemon.rows(&["ps", "--json"]).remove(0);
    assert!(
        row["stay"]
            .as_str()
            .is_some_and(|stay| stay.contains("--hold")),
        "{row}"
    );
    let text = good(&daemon.ask(&["go", &pid]));
    assert!(text.contains("may move again"), "{text}");
    let row = daemon.rows(&["ps", "--json"]).remove(0);
    assert!(!row["stay"].to_string().contains("--hold"), "{row}");
}

#[test]
fn a_cluster_is_made_joined_and_left() {
    let place = place();
    let (_network, [mut a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    let error = bad(&a.ask(&["init", "--node", "a"]), 1);
    assert!(error.contains("identity already"), "{error}");
    let first = token(&a);
    good(&b.join("10.77.0.1", &first, "b"));
    // Who lists the nodes now does not see as down what has just joined.
    assert_eq!(a.state_of("b").as_deref(), Some("up"));
    see_up(&a, &["a", "b"]);
    see_up(&b, &["a", "b"]);
    let error = bad(&c.join("10.77.0.1", &first, "c"), 1);
    assert!(error.contains("used before"), "{error}");
    let error = bad(&c.join("10.77.0.1", &token(&a), "b"), 1);
    assert!(error.contains("member of this name already"), "{error}");
    let error = bad(&b.ask(&["token"]), 1);
    assert!(error.contains("Only a holds the CA"), "{error}");
    let late = token(&a);
    a.stop();
    expire_tokens(&a);
    a.run();
    let error = bad(&c.join("10.77.0.1", &late, "c"), 1);
    assert!(error.contains("has expired"), "{error}");
    good(&c.join("10.77.0.1:7946", &token(&a), "c"));
    for daemon in [&a, &b, &c] {
        see_up(daemon, &["a", "b", "c"]);
    }
    let said = good(&b.ask(&["leave"]));
    assert!(said.contains("b has left the cluster"), "{said}");
    until("b is gone at a", || a.state_of("b").is_none().then_some(()));
    until("b is gone at c", || c.state_of("b").is_none().then_some(()));
    assert_eq!(b.rows(&["nodes", "--json"]).len(), 1);
    good(&b.join("10.77.0.1", &token(&a), "b"));
    see_up(&c, &["a", "b"]);
    let error = bad(&a.ask(&["leave"]), 1);
    assert!(error.contains("holds the CA"), "{error}");
}

/// Sets the clock of the tokens back; the daemon must not run.
fn expire_tokens(daemon: &Daemon) {
    let file = daemon.directory().join("state/identity/authority.json");
    let text = std::fs::read_to_string(&file).expect("the book of the CA");
    let mut book: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let now = std::time::UNIX_EPOCH.elapsed().expect("time").as_secs();
    for token in book["tokens"]["tokens"].as_array_mut().expect("tokens") {
        assert!(token["expires"].as_u64().expect("a time") > now + 14 * 60);
        token["expires"] = (now - 1).into();
    }
    std::fs::write(&file, book.to_string()).expect("written");
}

#[test]
fn a_join_that_fails_says_why() {
    let place = place();
    let (network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    let one = token(&a);
    let join = |host: &str, token: &str| bad(&b.join(host, token, "b"), 1);
    let error = join("10.77.0.1", "nonsense");
    assert!(error.contains("no token"), "{error}");
    let error = join("10.77.0.1:9", &one);
    assert!(error.contains("refuses the connection"), "{error}");
    let error = join("10.78.0.1", &one);
    assert!(error.contains("no route"), "{error}");
    let error = join("no-such-host.invalid", &one);
    assert!(error.contains("cannot be resolved"), "{error}");
    network.at(1, "ip route add blackhole 10.77.0.2/32");
    let error = join("10.77.0.1", &one);
    assert!(error.contains("firewall"), "{error}");
    network.at(1, "ip route del blackhole 10.77.0.2/32");
    good(&c.ask(&["init", "--node", "c"]));
    let error = join("10.77.0.1", &token(&c));
    assert!(error.contains("another cluster"), "{error}");
    good(&c.ask(&["leave"]));
    good(&c.join("10.77.0.1", &token(&a), "c"));
    let error = join("10.77.0.3", &one);
    assert!(error.contains("admits no new nodes"), "{error}");
    let error = bad(&b.join("10.77.0.1", &one, "B!"), 1);
    assert!(error.contains("not usable"), "{error}");
    // None of this has spent the token.
    good(&b.join("10.77.0.1", &one, "b"));
    see_up(&a, &["b"]);
}

#[test]
fn a_removed_node_is_refused_at_once() {
    let place = place();
    let (_network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    good(&b.join("10.77.0.1", &token(&a), "b"));
    good(&c.join("10.77.0.1", &token(&a), "c"));
    for daemon in [&a, &b, &c] {
        see_up(daemon, &["a", "b", "c"]);
    }
    let error = bad(&b.ask(&["remove", "c"]), 1);
    assert!(error.contains("Only a holds the CA"), "{error}");
    let error = bad(&a.ask(&["remove", "nobody"]), 1);
    assert!(
        error.contains("no node nobody in this cluster; it has: a, b, c"),
        "{error}"
    );
    let said = good(&a.ask(&["remove", "c"]));
    assert!(said.contains("c is no member of the cluster"), "{said}");
    assert_eq!(a.state_of("c"), None);
    until("b has heard", || b.state_of("c").is_none().then_some(()));
    let sleeper = support::Owned::sleeper();
    let pid = sleeper.0.id().to_string();
    // c still believes to be a member, and both others refuse it.
    for node in ["a", "b"] {
        let error = bad(&c.ask(&["migrate", &pid, node]), 1);
        assert!(
            error.contains("removed from the cluster")
                || error.contains("down")
                || error.contains(&format!("{node} refuses this node: it was removed on 20")),
            "{error}"
        );
    }
    until("c sees nobody, and says why", || {
        let text = String::from_utf8_lossy(&c.ask(&["doctor"]).stdout).into_owned();
        let told = ["a", "b"].iter().all(|name| {
            let sentence = format!("{name} refuses this node: it was removed on 20");
            text.contains(&sentence)
        });
        (c.state_of("a")? == "down" && told).then_some(text)
    });
    let nodes = good(&c.ask(&["nodes"]));
    assert!(
        nodes.contains("a refuses this node: it was removed on 20"),
        "{nodes}"
    );
    let error = bad(&c.ask(&["migrate", &pid, "a"]), 1);
    assert!(
        error.contains("a refuses this node: it was removed on 20"),
        "{error}"
    );
    good(&c.ask(&["leave"]));
    good(&c.join("10.77.0.1", &token(&a), "c"));
    see_up(&b, &["c"]);
}

#[test]
fn a_silent_node_goes_down_and_comes_back() {
    let place = place();
    let (network, [a, b, mut c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    good(&b.join("10.77.0.1", &token(&a), "b"));
    good(&c.join("10.77.0.1", &token(&a), "c"));
    see_up(&b, &["a", "c"]);
    network.at_bridge("ip link set v2 nomaster");
    until("b is suspected", || {
        (a.state_of("b")? == "suspect").then_some(())
    });
    until("b is down", || (a.state_of("b")? == "down").then_some(()));
    assert_eq!(a.state_of("c").as_deref(), Some("up"));
    let sleeper = support::Owned::sleeper();
    let error = bad(&a.ask(&["migrate", &sleeper.0.id().to_string(), "b"]), 1);
    assert!(error.contains("it is down"), "{error}");
    network.at_bridge("ip link set v2 master br0");
    see_up(&a, &["b"]);
    see_up(&b, &["a", "c"]);
    c.stop();
    until("c is down", || (a.state_of("c")? == "down").then_some(()));
    c.run();
    see_up(&a, &["c"]);
    see_up(&c, &["a", "b"]);
}

#[test]
fn nodes_that_call_into_the_network_are_proposed_and_no_more() {
    let place = place();
    let file = place.path().join("discover.toml");
    std::fs::write(&file, "discover = true\n").expect("written");
    let network = Network::new(3);
    let with = ["--lab", "--config", &file.display().to_string()];
    let [a, b] = [(1, "a"), (2, "b")]
        .map(|(index, name)| Daemon::start(place.path().join(name), network.enter(index), &with));
    let c = Daemon::start(place.path().join("c"), network.enter(3), &["--lab"]);
    good(&a.ask(&["init", "--node", "a"]));
    let says = |daemon: &Daemon| {
        let output = daemon.ask(&["doctor"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    until("a has heard of b, and b of a's cluster", || {
        let (ours, theirs) = (says(&a), says(&b));
        let heard = ours.contains("Somebody at 10.77.0.2:7946 says that it is node")
            && theirs.contains("Somebody at 10.77.0.1:7946 says that it is node a of cluster")
            && theirs.contains("whim join 10.77.0.1:7946'");
        heard.then_some(())
    });
    // Who does not want it neither calls nor listens, and nobody is a member by it.
    assert!(!says(&a).contains("10.77.0.3") && !says(&c).contains("Somebody"));
    assert_eq!(a.rows(&["nodes", "--json"]).len(), 1);
    good(&b.join("10.77.0.1", &token(&a), "b"));
    see_up(&a, &["b"]);
    until("nothing is proposed any more", || {
        let quiet = !says(&a).contains("Somebody") && !says(&b).contains("Somebody");
        quiet.then_some(())
    });
}

/// Lets this node's certificate look as if most of its life were over; the daemon must not run.
fn age_certificate(daemon: &Daemon) {
    let file = daemon.directory().join("state/identity/node.json");
    let text = std::fs::read_to_string(&file).expect("the identity");
    let mut node: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let begin = node["certificate"]["not_before"].as_u64().expect("a time");
    node["certificate"]["not_before"] = (begin - 200 * 24 * 60 * 60).into();
    std::fs::write(&file, node.to_string()).expect("written");
}

#[test]
fn certificates_renew_themselves() {
    let place = place();
    let (_network, [mut a, mut b, _c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    good(&b.join("10.77.0.1", &token(&a), "b"));
    for daemon in [&mut a, &mut b] {
        daemon.stop();
        age_certificate(daemon);
        daemon.run();
        until("the renewal", || {
            good(&daemon.ask(&["log"]))
                .contains("renewed")
                .then_some(())
        });
    }
    see_up(&a, &["b"]);
    see_up(&b, &["a"]);
    b.stop();
    b.run();
    see_up(&a, &["b"]);
    see_up(&b, &["a"]);
}

#[test]
fn strangers_are_refused_and_logged() {
    let place = place();
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let log = || std::fs::read_to_string(daemon.directory().join("whimd.log")).expect("log");
    let address = daemon.address();
    let mut stranger = std::net::TcpStream::connect(&address).expect("connected");
    stranger
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("written");
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    until("a line in the log", || {
        log().contains("a connection is refused").then_some(())
    });
}

#[test]
fn the_ca_is_taken_up_elsewhere_from_its_backup() {
    let place = place();
    let (_network, [mut a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    good(&b.join("10.77.0.1", &token(&a), "b"));
    see_up(&b, &["a"]);
    let file = place.path().join("backup");
    let path = file.display().to_string();
    good(&a.ask(&["ca", "backup", &path]));
    let mode = std::fs::metadata(&file).expect("backup").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
    let error = bad(&a.ask(&["ca", "backup", &path]), 1);
    assert!(error.contains("exists already"), "{error}");
    a.stop();
    good(&c.ask(&["init", "--restore", &path, "--node", "c"]));
    see_up(&c, &["b"]);
    see_up(&b, &["c"]);
    let error = bad(&b.ask(&["token"]), 1);
    assert!(error.contains("Only c holds the CA"), "{error}");
    good(&c.ask(&["remove", "a"]));
    until("a is gone at b", || b.state_of("a").is_none().then_some(()));
}
