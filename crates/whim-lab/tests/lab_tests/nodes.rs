//! What a node is, and how it is switched, stalled and limited.

use std::time::Duration;

use whim_lab::{Bootstrap, Lab, LabError, NodeState, Place, Step};

use crate::support::{TestLab, needs_root, options, until};

#[test]
fn nodes_are_machines_of_their_own() {
    needs_root!();
    let lab = TestLab::up("own", |o| o.clock_offsets_ms = vec![500_000, -2_000]);
    assert_eq!(lab.out("n1", "hostname; cat /etc/hostname"), "n1\nn1");
    assert_eq!(lab.out("n3", "uname -n"), "n3");
    let machine = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let ahead = |node| uptime(&lab.out(node, "cat /proc/uptime")) - uptime(&machine);
    assert!(
        (505.0..565.0).contains(&ahead("n1")),
        "500 s and 1 %: {}",
        ahead("n1")
    );
    assert!((-2.1..58.0).contains(&ahead("n2")), "{}", ahead("n2"));
    assert!((3030.0..3090.0).contains(&ahead("n3")), "{}", ahead("n3"));
    assert!(
        lab.out("n1", "cat /proc/self/timens_offsets")
            .contains(" 500 ")
    );

    for directory in ["/tmp", "/run", "/dev/shm"] {
        let file = format!("{directory}/whim-lab-test-{}", std::process::id());
        lab.out("n1", &format!("echo x > {file}"));
        assert!(
            !std::path::Path::new(&file).exists(),
            "{file} on the machine"
        );
        assert_eq!(
            lab.output("n2", &format!("test -e {file}")).status.code(),
            Some(1)
        );
    }
    let secrets = ["n1", "n2"].map(|n| lab.out(n, "cat /etc/whim-node /etc/machine-id"));
    assert_ne!(secrets[0], secrets[1]);
    assert!(secrets[0].starts_with("node n1 of lab "), "{}", secrets[0]);
    assert!(!std::path::Path::new("/etc/whim-node").exists());
    let added = format!("/etc/whim-lab-test-{}", std::process::id());
    lab.out("n1", &format!("echo x > {added} && cat {added}"));
    assert!(
        !std::path::Path::new(&added).exists(),
        "{added} on the machine"
    );
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    assert_eq!(lab.out("n2", "cat /etc/passwd"), passwd.trim());
    assert_eq!(
        lab.out("n2", "getent hosts n3 | tr -s ' ' | cut -d' ' -f2"),
        "n3"
    );

    assert_eq!(lab.out("n1", "cat /proc/1/comm"), "whim-lab-node");
    let seen = lab.out("n1", "ls -d /proc/[0-9]* | wc -l");
    // The first process, the daemon, and what counts them.
    assert!(seen.parse::<usize>().unwrap() <= 5, "{seen}");
    for kind in ["net", "pid", "mnt", "uts", "ipc", "time"] {
        let path = format!("/proc/self/ns/{kind}");
        let here = std::fs::read_link(&path).unwrap().display().to_string();
        let [one, two] = ["n1", "n2"].map(|n| lab.out(n, &format!("readlink {path}")));
        assert!(one != two && one != here && two != here, "{kind}");
    }
}

#[test]
fn state_and_shares_are_where_they_should_be() {
    needs_root!();
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let other = tempfile::tempdir_in("/tmp").unwrap();
    let shared = directory.path().display().to_string();
    let lab = TestLab::up("state", |o| o.shares = vec![directory.path().to_owned()]);
    lab.out("n1", "echo one > /var/lib/whim/file");
    let state = lab.node("n1").state_directory;
    assert_eq!(
        std::fs::read_to_string(state.join("file")).unwrap(),
        "one\n"
    );
    assert!(!std::path::Path::new("/var/lib/whim/file").exists());
    assert_eq!(
        lab.output("n2", "test -e /var/lib/whim/file").status.code(),
        Some(1)
    );

    lab.out("n1", &format!("echo both > {shared}/file"));
    assert_eq!(lab.out("n2", &format!("cat {shared}/file")), "both");
    assert_eq!(
        std::fs::read_to_string(directory.path().join("file")).unwrap(),
        "both\n"
    );
    let share = lab.lab.share().join("file");
    std::fs::write(&share, "of the lab").unwrap();
    assert_eq!(
        lab.out("n3", &format!("cat {}", share.display())),
        "of the lab"
    );
    // Nothing of the machine's /tmp but the share and what is on the way to the lab's program.
    let names = lab.out("n3", "ls -A /tmp");
    let names: Vec<&str> = names.lines().collect();
    let of_share = directory.path().file_name().unwrap().to_str().unwrap();
    assert!(names.contains(&of_share), "{names:?}");
    let of_machine = other.path().file_name().unwrap().to_str().unwrap();
    assert!(!names.contains(&of_machine), "{names:?}");
}

#[test]
fn the_daemon_is_a_child_of_the_nodes_first_process() {
    needs_root!();
    let lab = TestLab::up("daemon", |_| {});
    let node = lab.node("n2");
    let daemon = node.daemon.unwrap();
    assert!(daemon.running);
    assert_eq!(
        lab.out(
            "n2",
            &format!("awk '{{print $4}}' /proc/{}/stat", daemon.pid)
        ),
        "1"
    );
    let log = || std::fs::read_to_string(&node.log).unwrap();
    until("the daemon's words", || {
        log().contains("daemon of n2 at 10.99.0.2\n").then_some(())
    });
    assert!(
        lab.out("n2", &format!("cat /proc/{}/cgroup", daemon.pid))
            .contains("/n2/main")
    );

    lab.out("n2", &format!("kill -9 {}", daemon.pid));
    until("its end", || {
        (!lab.node("n2").daemon.unwrap().running).then_some(())
    });
    assert_eq!(
        lab.node("n2").state,
        NodeState::Up,
        "the node goes on without it"
    );
    lab.lab.start_daemon("n2").unwrap();
    assert!(lab.node("n2").daemon.unwrap().running);
    assert_ne!(lab.node("n2").daemon.unwrap().pid, daemon.pid);
}

#[test]
fn a_cluster_is_made_by_steps() {
    needs_root!();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let run = |on, line, input: Option<&str>, capture: Option<&str>| Step::Run {
        on,
        command: words(line),
        input: input.map(str::to_owned),
        capture: capture.map(str::to_owned),
    };
    let lab = TestLab::up("steps", |o| {
        o.bootstrap = Bootstrap {
            first: vec![
                Step::Daemon,
                run(Place::This, "touch /var/lib/whim/{node}", None, None),
            ],
            others: vec![
                Step::Daemon,
                run(Place::First, "echo token-{node}", None, Some("token")),
                run(
                    Place::This,
                    "touch /var/lib/whim/{first_address}-{token}",
                    None,
                    None,
                ),
                run(
                    Place::This,
                    "dd of=/var/lib/whim/secret",
                    Some("{token}"),
                    None,
                ),
            ],
        };
    });
    assert_eq!(lab.out("n1", "ls /var/lib/whim"), "n1");
    assert_eq!(
        lab.out("n2", "ls /var/lib/whim"),
        "10.99.0.1-token-n2\nsecret"
    );
    assert_eq!(lab.out("n2", "cat /var/lib/whim/secret"), "token-n2");
    assert_eq!(
        lab.out("n3", "ls /var/lib/whim"),
        "10.99.0.1-token-n3\nsecret"
    );
}

#[test]
fn a_failing_step_ends_up_with_its_reason_and_leaves_nothing() {
    needs_root!();
    let mut wanted = options("fails");
    wanted.bootstrap.others.push(Step::Run {
        on: Place::This,
        command: ["sh", "-c", "echo no way >&2; exit 3"]
            .map(str::to_owned)
            .to_vec(),
        input: None,
        capture: None,
    });
    let error = Lab::up(&wanted).unwrap_err().to_string();
    assert!(error.contains("n2") && error.contains("no way"), "{error}");
    assert!(!Lab::list().unwrap().contains(&wanted.name));
    wanted.daemon = vec!["/no/such/daemon".to_owned()];
    let error = Lab::up(&wanted).unwrap_err().to_string();
    assert!(
        error.contains("/no/such/daemon") && error.contains("n1"),
        "{error}"
    );
    assert!(matches!(Lab::down(&wanted.name), Err(LabError::NoLab(_))));
}

#[test]
fn a_paused_node_stalls_and_does_not_notice() {
    needs_root!();
    let lab = TestLab::up("pause", |o| o.nodes = 2);
    let file = lab.lab.share().join("count");
    let script = format!(
        "i=0; while :; do i=$((i+1)); echo $i > {}; done",
        file.display()
    );
    let mut counter = lab.sh("n1", &script).spawn().unwrap();
    let count = || {
        std::fs::read_to_string(&file)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    until("the counter", count);
    lab.lab.pause("n1").unwrap();
    assert_eq!(lab.node("n1").state, NodeState::Paused);
    assert!(matches!(
        lab.lab.command("n1", None, "true"),
        Err(LabError::NodePaused { .. })
    ));
    let stalled = std::fs::read_to_string(&file).unwrap();
    // Not for anything to happen: to see that nothing does.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), stalled);
    assert_eq!(lab.out("n2", "echo alive"), "alive");
    lab.lab.resume("n1").unwrap();
    until("the counter to go on", || {
        (count()? > stalled.trim().parse().unwrap_or(0)).then_some(())
    });
    assert_eq!(lab.node("n1").state, NodeState::Up);
    lab.lab.pause("n1").unwrap();
    lab.lab.kill("n1").unwrap();
    assert!(
        !counter.wait().unwrap().success(),
        "a paused node can be switched off"
    );
}

#[test]
fn a_node_comes_back_with_its_state() {
    needs_root!();
    let lab = TestLab::up("power", |o| o.nodes = 2);
    let before = lab.out(
        "n2",
        "echo kept > /var/lib/whim/file; touch /run/lost; cat /etc/whim-node",
    );
    lab.lab.kill("n2").unwrap();
    assert_eq!(lab.node("n2").state, NodeState::Off);
    assert!(matches!(
        lab.lab.command("n2", None, "true"),
        Err(LabError::NodeOff { .. })
    ));
    lab.lab.kill("n2").unwrap();
    lab.lab.start("n2").unwrap();
    assert!(matches!(lab.lab.start("n2"), Err(LabError::NodeOn { .. })));
    assert_eq!(
        lab.out(
            "n2",
            "cat /var/lib/whim/file; ls /run/lost 2>&1 | wc -l; cat /etc/whim-node"
        ),
        format!("kept\n1\n{before}")
    );
    assert!(lab.node("n2").daemon.unwrap().running);
    for _ in 0..5 {
        lab.lab.kill("n2").unwrap();
        lab.lab.start("n2").unwrap();
    }
}

#[test]
fn limits_are_set_and_the_daemon_may_make_groups() {
    needs_root!();
    let lab = TestLab::up("limit", |o| {
        o.cpu = vec![0.8, 0.4];
        o.memory = vec![512 << 20];
    });
    assert_eq!(
        (lab.node("n1").cpu, lab.node("n3").cpu),
        (Some(0.8), Some(0.4))
    );
    let read = |node: &str, files: [&str; 2]| -> String {
        let groups = lab.node(node).cgroups;
        let mut found = groups.iter().flat_map(|g| files.map(|f| g.join(f)));
        let file = found.find(|f| f.exists()).expect("a limit's file");
        std::fs::read_to_string(file)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(read("n1", ["cpu.cfs_quota_us", "cpu.max"]), "16000");
    assert_eq!(read("n2", ["cpu.cfs_quota_us", "cpu.max"]), "8000");
    assert_eq!(
        read("n3", ["memory.limit_in_bytes", "memory.max"]),
        "536870912"
    );
    for group in lab.node("n1").cgroups {
        let child = group.join("guests");
        lab.out(
            "n1",
            &format!("mkdir {0} && echo $$ > {0}/cgroup.procs", child.display()),
        );
    }
    let hog = "head -c 700M /dev/zero | tail -c 600M > /dev/null";
    assert_eq!(
        lab.output("n1", hog).status.code(),
        Some(137),
        "killed for want of memory"
    );
    assert_eq!(lab.node("n1").state, NodeState::Up);
}

#[test]
fn two_labs_live_side_by_side() {
    needs_root!();
    let (one, two) = (
        TestLab::up("one", |o| o.nodes = 2),
        TestLab::up("two", |o| o.nodes = 2),
    );
    assert!(matches!(
        Lab::up(&options("one")),
        Err(LabError::AlreadyUp(_))
    ));
    let names = Lab::list().unwrap();
    assert!(
        names.contains(&one.lab.name().to_owned()) && names.contains(&two.lab.name().to_owned())
    );
    assert_ne!(
        one.out("n1", "cat /etc/whim-node"),
        two.out("n1", "cat /etc/whim-node")
    );
    one.lab.cut("n1", "n2").unwrap();
    let ping = |lab: &TestLab| {
        let address = "10.99.0.2:9".parse().unwrap();
        let error = lab.on_network("n1", || {
            std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).unwrap_err()
        });
        error.kind()
    };
    assert_eq!(
        ping(&two),
        std::io::ErrorKind::ConnectionRefused,
        "nobody listens, but it answers"
    );
    assert_eq!(ping(&one), std::io::ErrorKind::TimedOut);
    drop(one);
    assert_eq!(two.out("n1", "hostname"), "n1");
}

#[test]
fn wrong_names_are_told() {
    needs_root!();
    let lab = TestLab::up("wrong", |o| o.nodes = 2);
    for answer in [
        lab.lab.kill("n3"),
        lab.lab.cut("n1", "n9"),
        lab.lab.pause("x"),
    ] {
        assert!(matches!(answer, Err(LabError::NoNode { .. })), "{answer:?}");
    }
    assert!(matches!(
        lab.lab.cut("n1", "n1"),
        Err(LabError::SameNode(_))
    ));
    assert!(matches!(Lab::open("no-such-lab"), Err(LabError::NoLab(_))));
    assert!(matches!(Lab::down("no-such-lab"), Err(LabError::NoLab(_))));
    assert!(matches!(Lab::open("../x"), Err(LabError::Options(_))));
}
