//! Programs that move between daemons in network namespaces of their own: no lab is involved.
#![forbid(unsafe_code)]

mod support;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use support::{Daemon, Network, Owned, bad, good, place, until};
use tempfile::TempDir;

/// Daemons a, b, c of one cluster; the first arguments are those of all, `more` those of b.
fn cluster(place: &TempDir, more: &[&str]) -> (Network, [Daemon; 3]) {
    let network = Network::new(3);
    let daemon = |index: usize, name: &str, more: &[&str]| {
        let arguments = [&["--lab"], more].concat();
        Daemon::start(place.path().join(name), network.enter(index), &arguments)
    };
    let daemons = [
        daemon(1, "a", &[]),
        daemon(2, "b", more),
        daemon(3, "c", &[]),
    ];
    let [a, b, c] = &daemons;
    good(&a.ask(&["init", "--node", "a"]));
    for (daemon, name) in [(b, "b"), (c, "c")] {
        let token = good(&a.ask(&["token"]));
        good(&daemon.join("10.77.0.1", token.trim(), name));
    }
    for name in ["b", "c"] {
        until(name, || (a.state_of(name)? == "up").then_some(()));
    }
    (network, daemons)
}

/// Counts, says so now and then, and ends with a status of its own.
const COUNT: &str =
    "i=0; while [ $i -lt $1 ]; do i=$((i+1)); [ $((i % 10000)) = 0 ] && echo $i; done; exit 7";

/// Computes for ever.
const SPIN: [&str; 3] = ["sh", "-c", "while :; do :; done"];

/// A program on node a that may move. Its output goes to a file.
struct Program {
    process: Owned,
    output: std::path::PathBuf,
}

impl Program {
    fn start(
        place: &TempDir,
        network: &Network,
        a: &Daemon,
        options: &[&str],
        words: &[&str],
    ) -> Self {
        let output = place.path().join("output");
        let file = std::fs::File::create(&output).expect("a file");
        let mut enter = network.enter(1);
        enter.push(support::whim().display().to_string());
        let mut command = Command::new(&enter[0]);
        command
            .args(&enter[1..])
            .arg("run")
            .args(options)
            .arg("--")
            .args(words)
            .env("WHIM_SOCKET", a.socket())
            .stdin(Stdio::null())
            .stdout(file);
        let program = Self {
            process: Owned::start(&mut command),
            output,
        };
        until("the program", || program.find(a));
        program
    }

    fn pid(&self) -> String {
        self.process.0.id().to_string()
    }

    /// Its row of `whim ps -a`, once the program has replaced `whim run`.
    fn find(&self, a: &Daemon) -> Option<serde_json::Value> {
        let rows = a.rows(&["ps", "-a", "--json"]);
        let own = i64::from(self.process.0.id());
        rows.into_iter().find(|row| {
            row["pid"] == own
                && row["command"]
                    .as_str()
                    .is_some_and(|c| !c.contains("whim run"))
        })
    }

    #[track_caller]
    fn row(&self, a: &Daemon) -> serde_json::Value {
        self.find(a).expect("a row of ps")
    }

    #[track_caller]
    fn go(&self, a: &Daemon, node: &str) -> serde_json::Value {
        let text = good(&a.ask(&["migrate", &self.pid(), node, "--json"]));
        serde_json::from_str(&text).expect("a report")
    }
}

fn lines(count: u64) -> String {
    (1..=count / 10_000)
        .map(|line| format!("{}\n", line * 10_000))
        .collect()
}

#[test]
fn a_program_travels_and_its_result_is_the_same() {
    let place = place();
    let (network, [a, b, c]) = cluster(&place, &[]);
    let count = 3_000_000;
    let words = ["sh", "-c", COUNT, "sh", &count.to_string()];
    let mut program = Program::start(&place, &network, &a, &[], &words);
    let row = program.row(&a);
    assert_eq!(
        (&row["where"], &row["moves"]),
        (&"a".into(), &0.into()),
        "{row}"
    );
    for (moves, (node, at)) in [
        ("b", "b"),
        ("c", "c"),
        ("home", "a"),
        ("b", "b"),
        ("c", "c"),
        ("a", "a"),
    ]
    .iter()
    .enumerate()
    {
        let report = program.go(&a, node);
        assert_eq!(report["to"], *at, "{report}");
        assert!(
            report["freeze_ms"].as_f64().is_some_and(|ms| ms > 0.0),
            "{report}"
        );
        let bytes = report["bytes"].as_u64().expect("bytes");
        assert!(bytes > 50_000 && bytes.is_multiple_of(4096), "{report}");
        let row = program.row(&a);
        assert_eq!(row["where"], *at, "{row}");
        assert_eq!(row["moves"], moves + 1, "{row}");
        let away = *at != "a";
        assert_eq!(row["state"], if away { "away" } else { "home" }, "{row}");
        assert_eq!(row["home_supervisor_pid"].is_i64(), away, "{row}");
        assert_eq!(row["guest_supervisor_pid"].is_i64(), away, "{row}");
        let error = bad(&a.ask(&["migrate", &program.pid(), at]), 1);
        assert!(error.contains("already"), "{error}");
    }
    let log = good(&a.ask(&["log"]));
    assert!(
        log.contains("a to b") && log.contains("b to c") && log.contains("c to a"),
        "{log}"
    );
    let calls = good(&a.ask(&["log", "--calls", &program.pid()]));
    assert!(
        calls.contains(" x write\n") && calls.contains("came home 1 x: asked for"),
        "{calls}"
    );
    assert_eq!(program.process.0.wait().expect("ended").code(), Some(7));
    assert_eq!(
        std::fs::read_to_string(&program.output).expect("output"),
        lines(count)
    );
    for daemon in [&b, &c] {
        until("no guest", || {
            (daemon.rows(&["nodes", "--json"])[0]["guests"] == 0).then_some(())
        });
    }
}

#[test]
fn daemons_restart_while_guests_run() {
    let place = place();
    let (network, [mut a, mut b, _c]) = cluster(&place, &[]);
    let count = 2_000_000;
    let words = ["sh", "-c", COUNT, "sh", &count.to_string()];
    let mut program = Program::start(&place, &network, &a, &["--on", "b"], &words);
    // It is at b while the move is still being noted.
    let before = until("the first move", || {
        Some(program.row(&a)).filter(|row| row["where"] == "b" && row["state"] == "away")
    });
    a.stop();
    b.stop();
    b.run();
    a.run();
    let row = program.row(&a);
    for name in [
        "pid",
        "where",
        "state",
        "moves",
        "home_supervisor_pid",
        "guest_supervisor_pid",
    ] {
        assert_eq!(row[name], before[name], "{name}: {row}");
    }
    assert_eq!(b.rows(&["nodes", "--json"])[0]["guests"], 1);
    until("c is up", || (a.state_of("c")? == "up").then_some(()));
    program.go(&a, "c");
    until("the guest has left", || {
        (b.rows(&["nodes", "--json"])[0]["guests"] == 0).then_some(())
    });
    program.go(&a, "home");
    assert_eq!(program.process.0.wait().expect("ended").code(), Some(7));
    assert_eq!(
        std::fs::read_to_string(&program.output).expect("output"),
        lines(count)
    );
}

#[test]
fn a_lost_host_ends_the_process_and_is_named() {
    let place = place();
    let (network, [a, _b, _c]) = cluster(&place, &[]);
    let mut program = Program::start(&place, &network, &a, &[], &SPIN);
    program.go(&a, "b");
    network.at_bridge("ip link set v2 nomaster");
    let status = program.process.0.wait().expect("ended");
    assert_eq!(status.signal(), Some(9), "{status}");
    let row = until("its end", || {
        program.find(&a).filter(|row| row["state"] == "ended")
    });
    assert!(
        row["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains('b')),
        "{row}"
    );
    assert_eq!(row["where"], "b");
    let why = good(&a.ask(&["why", &program.pid()]));
    assert!(why.contains("has ended"), "{why}");
    assert!(good(&a.ask(&["log"])).contains("ended"));
}

#[test]
fn two_moves_at_once_exclude_each_other() {
    let place = place();
    let (network, [a, _b, _c]) = cluster(&place, &[]);
    let program = Program::start(&place, &network, &a, &[], &SPIN);
    let pid = program.pid();
    let both: Vec<_> = ["b", "c"]
        .iter()
        .map(|node| {
            let mut command = a.whim(&["migrate", &pid, node]);
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("runs")
        })
        .collect();
    let ended: Vec<_> = both
        .into_iter()
        .map(|c| c.wait_with_output().expect("ended"))
        .collect();
    let refused: Vec<_> = ended
        .iter()
        .filter(|output| !output.status.success())
        .collect();
    assert!(refused.len() <= 1, "{refused:?}");
    for output in refused {
        assert!(bad(output, 1).contains("being moved just now"));
    }
    assert_eq!(program.row(&a)["state"], "away");
    program.go(&a, "home");
}

/// It was held although the return was refused, and stayed so unseen.
#[test]
fn a_return_that_is_refused_holds_nothing() {
    let place = place();
    let (network, [a, _b, _c]) = cluster(&place, &[]);
    let script = "x=$(head -c 48000000 /dev/zero | tr '\\0' x); echo full; while :; do :; done";
    let program = Program::start(&place, &network, &a, &[], &["sh", "-c", script]);
    until("its memory", || {
        (std::fs::read_to_string(&program.output).ok()? == "full\n").then_some(())
    });
    let pid = program.pid();
    let refused = (0..20).any(|_| {
        program.go(&a, "b");
        let mut command = a.whim(&["migrate", &pid, "c"]);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut moving = quiet.spawn().expect("runs");
        let output = a.ask(&["bring", "--hold", &pid]);
        moving.wait().expect("ended");
        if output.status.success() {
            // It came before the other move had begun, or after it.
            good(&a.ask(&["go", &pid]));
            return false;
        }
        bad(&output, 1).contains("being moved just now")
    });
    assert!(refused, "no return was asked for while it was moved");
    let went = good(&a.ask(&["go", &pid]));
    assert!(went.contains("was not kept at home"), "{went}");
    program.go(&a, "home");
}

#[test]
fn a_host_without_room_refuses_with_a_sentence() {
    let place = place();
    let file = place.path().join("b.toml");
    std::fs::write(&file, "[guests]\nmemory_percent = 1\n").expect("written");
    let path = file.display().to_string();
    let (network, [a, b, _c]) = cluster(&place, &["--config", &path]);
    let total = b.rows(&["nodes", "--json"])[0]["memory_total_bytes"]
        .as_u64()
        .expect("bytes");
    let megabytes = (total / 100) / 1_000_000 + 32;
    let script = format!(
        "x=$(head -c {megabytes}000000 /dev/zero | tr '\\0' x); echo full; while :; do :; done"
    );
    let program = Program::start(&place, &network, &a, &[], &["sh", "-c", &script]);
    until("its memory", || {
        (std::fs::read_to_string(&program.output).ok()? == "full\n").then_some(())
    });
    let pid = program.pid();
    let error = bad(&a.ask(&["migrate", &pid, "b"]), 1);
    assert!(error.contains("Node b has no room"), "{error}");
    assert_eq!(program.row(&a)["state"], "home");
}

#[test]
fn a_host_with_as_many_guests_as_it_takes_refuses_with_a_sentence() {
    let place = place();
    let file = place.path().join("b.toml");
    std::fs::write(&file, "[guests]\nmax = 1\n").expect("written");
    let path = file.display().to_string();
    let (network, [a, b, _c]) = cluster(&place, &["--config", &path]);
    let first = Program::start(&place, &network, &a, &[], &SPIN);
    let second = Program::start(&place, &network, &a, &[], &SPIN);
    first.go(&a, "b");
    let error = bad(&a.ask(&["migrate", &second.pid(), "b"]), 1);
    let sentence = "Node b has 1 guests already, as many as [guests] max allows";
    assert!(error.contains(sentence), "{error}");
    assert_eq!(second.row(&a)["state"], "home");
    first.go(&a, "home");
    until("an empty host", || {
        (b.rows(&["nodes", "--json"])[0]["guests"] == 0).then_some(())
    });
    second.go(&a, "b");
}

#[test]
fn programs_come_home_from_a_removed_node() {
    let place = place();
    let (network, [a, b, _c]) = cluster(&place, &[]);
    let program = Program::start(&place, &network, &a, &[], &SPIN);
    program.go(&a, "b");
    good(&a.ask(&["remove", "b"]));
    until("its return", || {
        (program.row(&a)["state"] == "home").then_some(())
    });
    until("an empty host", || {
        (b.rows(&["nodes", "--json"])[0]["guests"] == 0).then_some(())
    });
}

/// Words that start a daemon with a small state directory of its own.
fn on_small_disk(place: &TempDir, name: &str, mut enter: Vec<String>) -> Vec<String> {
    let state = place.path().join(name).join("state");
    std::fs::create_dir_all(&state).expect("directory");
    let script = "mount -t tmpfs -o size=600k whim \"$0\" && exec \"$@\"";
    enter.extend(["unshare", "--mount", "sh", "-c", script].map(ToString::to_string));
    enter.push(state.display().to_string());
    enter
}

fn fill_disk(daemon: &Daemon) {
    let file = daemon.directory().join("state/fill");
    let file = file.display();
    daemon.in_its_mounts(&format!(
        "dd if=/dev/zero of={file} bs=512 2>/dev/null || :"
    ));
}

fn free_disk(daemon: &Daemon) {
    let file = daemon.directory().join("state/fill");
    daemon.in_its_mounts(&format!("rm {}", file.display()));
}

/// It was said to be drained, and the next daemon took guests again.
#[test]
fn an_order_that_cannot_be_noted_is_not_followed() {
    let place = place();
    let network = Network::new(1);
    let enter = on_small_disk(&place, "a", network.enter(1));
    let a = Daemon::start(place.path().join("a"), enter, &["--lab"]);
    good(&a.ask(&["init", "--node", "a"]));
    fill_disk(&a);
    for words in [&["stay"][..], &["block"], &["drain", "a"]] {
        let error = bad(&a.ask(words), 1);
        assert!(error.contains("does not follow it"), "{error}");
        assert!(error.contains("full"), "{error}");
    }
    assert_eq!(a.state_of("a").as_deref(), Some("up"));
    free_disk(&a);
    good(&a.ask(&["drain", "a"]));
    assert_eq!(a.state_of("a").as_deref(), Some("draining"));
}

#[test]
fn a_full_disk_at_home_refuses_the_move() {
    let place = place();
    let network = Network::new(2);
    let daemon = |index: usize, name: &str| {
        let enter = on_small_disk(&place, name, network.enter(index));
        Daemon::start(place.path().join(name), enter, &["--lab"])
    };
    let (a, b) = (daemon(1, "a"), daemon(2, "b"));
    good(&a.ask(&["init", "--node", "a"]));
    let token = good(&a.ask(&["token"]));
    good(&b.join("10.77.0.1", token.trim(), "b"));
    let program = Program::start(&place, &network, &a, &[], &SPIN);
    let pid = program.pid();
    fill_disk(&a);
    let error = bad(&a.ask(&["migrate", &pid, "b"]), 1);
    assert!(error.contains("full"), "{error}");
    let row = program.row(&a);
    assert_eq!(
        (&row["state"], &row["moves"]),
        (&"home".into(), &0.into()),
        "{row}"
    );
    free_disk(&a);
    // A host keeps nothing on its disk that a guest would need.
    fill_disk(&b);
    program.go(&a, "b");
    program.go(&a, "home");
}

#[test]
fn users_decide_where_their_programs_may_go_and_nobody_leaves_with_a_guest() {
    let place = place();
    let (network, [a, b, _c]) = cluster(&place, &[]);
    let program = Program::start(&place, &network, &a, &["--avoid", "c"], &SPIN);
    let pid = program.pid();
    let error = bad(&a.ask(&["migrate", &pid, "c"]), 1);
    assert!(error.contains("--avoid c"), "{error}");
    let report = program.go(&a, "best");
    assert_eq!(report["to"], "b");
    let error = bad(&b.ask(&["leave"]), 1);
    assert!(error.contains("guests are here"), "{error}");
    good(&a.ask(&["bring", "--hold", &pid]));
    let error = bad(&a.ask(&["migrate", &pid, "b"]), 1);
    assert!(error.contains("whim go"), "{error}");
    good(&a.ask(&["go", &pid]));
    program.go(&a, "b");
    let why = good(&a.ask(&["why", &pid]));
    assert!(why.contains("It is on b"), "{why}");
}

#[test]
fn supervisors_have_their_owners_rights_and_guests_a_private_uid() {
    if !nix::unistd::geteuid().is_root() {
        // Other users than the one who tests take root.
        return;
    }
    let place = place();
    let programs = place.path().join("bin");
    std::fs::create_dir(&programs).expect("directory");
    for name in ["whim", "whim-home", "whim-guest"] {
        support::copy_program(&support::whim().with_file_name(name), &programs.join(name));
    }
    let network = Network::new(2);
    let libexec = programs.display().to_string();
    let start = |index: usize, name: &str| {
        let arguments = ["--lab", "--libexec", &libexec];
        Daemon::start(place.path().join(name), network.enter(index), &arguments)
    };
    let (a, b) = (start(1, "a"), start(2, "b"));
    good(&a.ask(&["init", "--node", "a"]));
    let token = good(&a.ask(&["token"]));
    good(&b.join("10.77.0.1", token.trim(), "b"));
    let mut command = Command::new(programs.join("whim"));
    command
        .env("WHIM_SOCKET", a.socket())
        .args(["run", "sleep", "1000"])
        .current_dir("/");
    let program = Owned::quiet(command.uid(65_534).gid(65_534));
    let pid = program.0.id().to_string();
    let ps = || a.rows(&["ps", "--json"]);
    until("the program", || {
        (ps().first()?["command"] == "sleep 1000").then_some(())
    });
    good(&a.ask(&["migrate", &pid, "b"]));
    let row = ps().remove(0);
    let field = |pid: &serde_json::Value, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("field");
        line.split_whitespace()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let home = &row["home_supervisor_pid"];
    assert_eq!(field(home, "Uid:"), ["65534"; 4]);
    assert_eq!(field(home, "Gid:"), ["65534"; 4]);
    let guest = &row["guest_supervisor_pid"];
    let uid: u32 = field(guest, "Uid:")[0].parse().expect("uid");
    assert!((0x6f00_0000..0x6f01_0000).contains(&uid), "{uid}");
    assert_eq!(
        field(guest, "Uid:"),
        [
            uid.to_string(),
            uid.to_string(),
            uid.to_string(),
            uid.to_string()
        ]
    );
    good(&a.ask(&["bring", &pid]));
}
