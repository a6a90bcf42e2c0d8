//! Whatever is killed at whatever moment: `down` and the next `up` leave nothing behind.
//!
//! Each test runs again in a world of its own (PID, mount and network namespaces, an own /run),
//! where it can count everything there is: processes, mounts, interfaces, groups, namespaces.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use whim_lab::{Lab, LabError, LinkSettings};
use whim_sys::namespace::PidFd;

use crate::support::{needs_root, options, until};

/// Set in the test's own world; the value is the test's name.
const WORLD: &str = "WHIM_LAB_TEST_WORLD";
/// Set for a process that only does `up` of the lab of this name.
const ONLY_UP: &str = "WHIM_LAB_TEST_UP";
const LAB: &str = "crash";

/// Runs the test named so in a world of its own. False: it is that run already.
fn in_a_world_of_its_own(test: &str) -> bool {
    if std::env::var_os(WORLD).is_some() {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    // The shell stays as the world's first process and collects orphans.
    let script =
        "mount -t tmpfs tmpfs /run && \"$0\" --exact \"$1\" --nocapture; code=$?; exit $code";
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--net",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["sh", "-c", script])
        .arg(program)
        .arg(format!("lab_tests::leftovers::{test}"))
        .env(WORLD, test)
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its own world");
    true
}

/// A lab of its own name, because control groups are not private to the world.
fn wanted() -> whim_lab::Options {
    let mut wanted = options(LAB);
    wanted.name = std::env::var(ONLY_UP).unwrap_or_else(|_| {
        // Process ids of different worlds can be equal; namespaces' numbers cannot.
        let world =
            std::fs::metadata("/proc/self/ns/pid").map(|m| std::os::unix::fs::MetadataExt::ino(&m));
        format!("{LAB}-{}", world.unwrap())
    });
    // All kinds of processes and interfaces: a wire for each pair.
    wanted.link = LinkSettings {
        delay_us: 100,
        rate_bits: Some(1_000_000_000),
        ..LinkSettings::default()
    };
    wanted.nodes = 2;
    wanted
}

#[test]
fn only_up() {
    // The other half of the tests below, run by them as a process that can be killed.
    if std::env::var_os(ONLY_UP).is_some() {
        Lab::up(&wanted()).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn start_up(name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lab_tests::leftovers::only_up"])
        .env(ONLY_UP, name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// All there is in this world, in words.
fn everything(lab: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    found.extend(
        read("/proc/self/mountinfo")
            .lines()
            .map(|l| format!("mount {l}")),
    );
    found.extend(
        read("/proc/net/dev")
            .lines()
            .skip(2)
            .map(|l| format!("interface {}", l.split(':').next().unwrap().trim())),
    );
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        // A zombie has no command line and waits for the world's first process alone.
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        found.insert(format!("process {pid} {}", line.replace('\0', " ")));
        for namespace in std::fs::read_dir(entry.path().join("ns"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = std::fs::read_link(namespace.path()).unwrap_or_default();
            found.insert(format!("namespace {}", target.display()));
        }
    }
    files(Path::new("/run"), &mut found);
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        let group = hierarchy.path().join("whim-lab").join(lab);
        if group.exists() {
            found.insert(format!("group {}", group.display()));
        }
    }
    found
}

fn files(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        found.insert(format!("file {}", entry.path().display()));
        files(&entry.path(), found);
    }
}

fn assert_nothing_left(before: &BTreeSet<String>, when: &str) {
    let lab = wanted().name;
    let after = everything(&lab);
    let left: Vec<&String> = after.difference(before).collect();
    assert!(left.is_empty(), "{when}: left {left:#?}");
    let lost: Vec<&String> = before.difference(&after).collect();
    assert!(lost.is_empty(), "{when}: lost {lost:#?}");
}

#[test]
fn down_leaves_nothing() {
    needs_root!();
    if in_a_world_of_its_own("down_leaves_nothing") {
        return;
    }
    let wanted = wanted();
    let before = everything(&wanted.name);
    let lab = Lab::up(&wanted).unwrap();
    let during = everything(&wanted.name);
    for kind in ["process", "namespace", "file", "group"] {
        let count = |all: &BTreeSet<String>| all.iter().filter(|l| l.starts_with(kind)).count();
        assert!(count(&during) > count(&before), "{kind}");
    }
    for kind in ["mount", "interface"] {
        let of = |all: &BTreeSet<String>| -> Vec<String> {
            all.iter()
                .filter(|l| l.starts_with(kind))
                .cloned()
                .collect()
        };
        assert_eq!(
            of(&during),
            of(&before),
            "a lab has none of these on the machine"
        );
    }
    lab.link("n1", "n2", &LinkSettings::default()).unwrap();
    lab.pause("n2").unwrap();
    lab.kill("n1").unwrap();
    Lab::down(lab.name()).unwrap();
    assert_nothing_left(&before, "after down");
}

#[test]
fn up_can_be_killed_at_any_moment() {
    needs_root!();
    if in_a_world_of_its_own("up_can_be_killed_at_any_moment") {
        return;
    }
    let name = wanted().name;
    let before = everything(&name);
    // The shortest of some, or most of the moments below would lie behind the end where another one was disturbed.
    let a_whole_one = || {
        let began = Instant::now();
        assert!(start_up(&name).wait().unwrap().success());
        let whole = began.elapsed();
        Lab::down(&name).unwrap();
        assert_nothing_left(&before, "after a whole up");
        whole
    };
    let whole = [a_whole_one(), a_whole_one(), a_whole_one()];
    let whole = whole.into_iter().min().unwrap();

    // Too early for most clocks: killed with nothing made but the lock.
    let labs = Path::new("/run/whim-lab");
    std::fs::create_dir(labs).unwrap();
    std::fs::write(labs.join(format!("{name}.lock")), "").unwrap();
    Lab::down(&name).unwrap();
    assert_nothing_left(&before, "killed with the lock alone");
    std::fs::create_dir(labs).unwrap();
    assert!(matches!(Lab::down(&name), Err(LabError::NoLab(_))));
    assert_nothing_left(&before, "killed before the lock");

    const MOMENTS: u32 = 40;
    let mut interrupted = 0;
    for moment in 0..MOMENTS {
        let mut up = start_up(&name);
        // The moments themselves are what is being tried.
        std::thread::sleep(whole * moment / MOMENTS);
        up.kill().unwrap();
        up.wait().unwrap();
        let when = format!("killed at {moment}/{MOMENTS} of {whole:?}");
        if moment % 4 == 3 {
            // The next `up` clears away by itself.
            match Lab::up(&wanted()) {
                Ok(_) => interrupted += 1,
                Err(LabError::AlreadyUp(_)) => {}
                Err(e) => panic!("{when}: {e}"),
            }
        } else if Lab::open(&name).is_err() {
            interrupted += 1;
        }
        match Lab::down(&name) {
            Ok(()) | Err(LabError::NoLab(_)) => {}
            Err(e) => panic!("{when}: {e}"),
        }
        assert_nothing_left(&before, &when);
    }
    assert!(
        interrupted > MOMENTS / 2,
        "only {interrupted} of {MOMENTS} were in the middle"
    );
}

#[test]
fn anything_else_can_be_killed() {
    needs_root!();
    if in_a_world_of_its_own("anything_else_can_be_killed") {
        return;
    }
    let wanted = wanted();
    let before = everything(&wanted.name);
    for victims in [
        vec!["switch"],
        vec!["node"],
        vec!["wire"],
        vec!["switch", "node", "wire"],
    ] {
        for again in [false, true] {
            let when = format!("{victims:?} killed, up again: {again}");
            Lab::up(&wanted).unwrap_or_else(|e| panic!("{when}: {e}"));
            let lab = Lab::open(&wanted.name).unwrap();
            let shell = lab
                .command("n1", None, "sh")
                .unwrap()
                .args(["-c", "exec sleep 100000"])
                .spawn();
            let mut shell = shell.unwrap();
            for role in &victims {
                kill_role(role);
            }
            if again && Lab::up(&wanted).is_err() {
                // Without its switch a lab counts as ended; with it, as up.
                assert!(!victims.contains(&"switch"), "{when}");
            }
            Lab::down(&wanted.name).unwrap_or_else(|e| panic!("{when}: {e}"));
            shell.wait().unwrap();
            assert_nothing_left(&before, &when);
        }
    }
}

fn kill_role(role: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains(&format!("lab-node\0{role}\0")) {
            let handle = PidFd::open(pid).unwrap();
            handle.signal(Signal::SIGKILL).unwrap();
            assert!(handle.wait_end(Duration::from_secs(10)).unwrap());
        }
    }
}

#[test]
fn a_stopped_stand_in_does_not_hold_a_node_up() {
    needs_root!();
    if in_a_world_of_its_own("a_stopped_stand_in_does_not_hold_a_node_up") {
        return;
    }
    let wanted = wanted();
    let before = everything(&wanted.name);
    let lab = Lab::up(&wanted).unwrap();
    let mut command = lab.command("n1", None, "sh").unwrap();
    let mut child = command
        .args(["-c", "echo on > /run/mark; exec sleep 100000"])
        .spawn()
        .unwrap();
    until("the command", || {
        let look = lab
            .command("n1", None, "cat")
            .unwrap()
            .arg("/run/mark")
            .output()
            .unwrap();
        look.status.success().then_some(())
    });
    let handle = PidFd::open(child.id().cast_signed()).unwrap();
    handle.signal(Signal::SIGSTOP).unwrap();
    lab.kill("n1").unwrap();
    child.wait().unwrap();
    lab.start("n1").unwrap();
    Lab::down(&wanted.name).unwrap();
    assert_nothing_left(&before, "after a stopped stand-in");
}

#[test]
fn a_state_file_that_cannot_be_read_is_no_hindrance() {
    needs_root!();
    if in_a_world_of_its_own("a_state_file_that_cannot_be_read_is_no_hindrance") {
        return;
    }
    let wanted = wanted();
    let before = everything(&wanted.name);
    for damage in [Some("{\"version\": 99}"), Some("not json"), None] {
        let lab = Lab::up(&wanted).unwrap();
        let file = lab.status().unwrap().directory.join("lab.json");
        match damage {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        assert!(matches!(
            lab.status(),
            Err(LabError::State { .. } | LabError::NoLab(_))
        ));
        Lab::down(&wanted.name).unwrap();
        assert_nothing_left(&before, &format!("state file damaged: {damage:?}"));
    }
}
