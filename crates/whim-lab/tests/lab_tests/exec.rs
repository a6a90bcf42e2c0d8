//! A command on a node is like a command here.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{TestLab, needs_root, until};

#[test]
fn status_input_environment_and_directory_pass_through() {
    needs_root!();
    let lab = TestLab::up("exec", |o| o.nodes = 1);
    assert_eq!(lab.output("n1", "exit 42").status.code(), Some(42));
    assert_eq!(lab.output("n1", "kill -TERM $$").status.signal(), Some(15));
    assert_eq!(lab.output("n1", "kill -KILL $$").status.signal(), Some(9));
    assert_eq!(lab.output("n1", "kill -54 $$").status.code(), Some(182));
    let missing = lab
        .lab
        .command("n1", None, "no-such-program")
        .unwrap()
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let forbidden = lab
        .lab
        .command("n1", None, "/etc/passwd")
        .unwrap()
        .output()
        .unwrap();
    assert_eq!(forbidden.status.code(), Some(126));

    let mut command = lab.sh("n1", "cat; echo $WHIM_NODE $WHIM_LAB $OTHER; pwd");
    command.env("OTHER", "thing").current_dir("/usr/lib");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        output,
        format!("typed\nn1 {} thing\n/usr/lib\n", lab.lab.name())
    );
    let ids = "cut -d' ' -f5,6 /proc/$$/stat; echo $$";
    let ids = lab.out("n1", ids);
    let pid = ids.lines().last().unwrap();
    assert_eq!(
        ids.lines().next().unwrap(),
        format!("{pid} {pid}"),
        "a group of its own"
    );
    let cgroups = lab.out("n1", "cat /proc/self/cgroup");
    assert!(
        cgroups.contains(&format!("/{}/n1/main", lab.lab.name())),
        "{cgroups}"
    );
}

/// It started in /root without a word.
#[test]
fn a_directory_that_is_not_shared_is_named() {
    needs_root!();
    let (shared, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let share = shared.path().to_owned();
    let lab = TestLab::up("where", |o| {
        o.nodes = 1;
        o.shares = vec![share];
    });
    let run = |user: Option<&str>, directory: &std::path::Path| {
        let mut command = lab.lab.told_command("n1", user, "pwd").unwrap();
        let output = command.current_dir(directory).env("HOME", "/usr").output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    for seen in [shared.path(), std::path::Path::new("/usr/lib")] {
        assert_eq!(
            run(None, seen),
            (format!("{}\n", seen.display()), String::new())
        );
    }
    let (at, said) = run(None, other.path());
    assert_eq!(at, "/usr\n");
    let (name, directory) = (lab.lab.name(), other.path().display());
    let told = format!(
        "whim lab exec: Lab '{name}' does not share {directory}, so that the command starts in /usr on n1; \
         'whim lab up --share {directory}' makes a lab that does\n"
    );
    assert_eq!(said, told);
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(shared.path(), own).unwrap();
    let (at, said) = run(Some("nobody"), shared.path());
    assert_eq!(at, "/usr\n");
    assert!(
        said.contains("cannot be entered on n1 (Permission denied"),
        "{said}"
    );
    let mut silent = lab.lab.command("n1", None, "pwd").unwrap();
    let output = silent.current_dir(other.path()).output().unwrap();
    assert_eq!(output.stderr, b"");
}

#[test]
fn another_user_can_be_chosen() {
    needs_root!();
    let lab = TestLab::up("user", |o| o.nodes = 1);
    let mut command = lab.lab.command("n1", Some("nobody"), "sh").unwrap();
    let output = command
        .args(["-c", "id -un; id -Gn; echo $USER $HOME"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("nobody\nnogroup\nnobody "), "{text}");
    let stranger = lab
        .lab
        .command("n1", Some("no-such-user"), "true")
        .unwrap()
        .output()
        .unwrap();
    assert_eq!(stranger.status.code(), Some(125));
}

#[test]
fn signals_reach_the_command() {
    needs_root!();
    let lab = TestLab::up("signal", |o| o.nodes = 1);
    let script = "trap 'echo int' INT; trap 'echo usr; exit 7' USR1; echo ready; \
                  while :; do sleep 0.01; done";
    let mut child = lab.sh("n1", script).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut expect = |word: &str| {
        let mut bytes = vec![0; word.len()];
        output.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), word);
    };
    let pid = Pid::from_raw(child.id().cast_signed());
    expect("ready\n");
    kill(pid, Signal::SIGINT).unwrap();
    expect("int\n");
    kill(pid, Signal::SIGUSR1).unwrap();
    expect("usr\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));

    let mut orphan = lab.sh("n1", "exec sleep 98765").spawn().unwrap();
    let find = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 98765' || true";
    until("the command", || (lab.out("n1", find) == "1").then_some(()));
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    until("its end with the stand-in's", || {
        (lab.out("n1", find) == "0").then_some(())
    });
}

#[test]
fn a_terminal_works_with_job_control() {
    needs_root!();
    let lab = TestLab::up("tty", |o| o.nodes = 1);
    let inner = lab.lab.command("n1", None, "bash").unwrap();
    let mut line: Vec<String> = vec![inner.get_program().to_str().unwrap().to_owned()];
    line.extend(inner.get_args().map(|a| a.to_str().unwrap().to_owned()));
    line.extend(["--norc".to_owned(), "-i".to_owned()]);
    // script(1) makes the terminal; what it reads is typed on it.
    let mut child = Command::new("timeout")
        .args([
            "120",
            "script",
            "-q",
            "-e",
            "-c",
            &line.join(" "),
            "/dev/null",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let mut shown = String::new();
    let mut see = |text: &str| {
        let mut byte = [0];
        while !shown.contains(text) {
            assert_eq!(screen.read(&mut byte).unwrap(), 1, "ended; shown: {shown}");
            shown.push(char::from(byte[0]));
        }
        shown.clear();
    };
    let mut type_in = |text: &str| keys.write_all(text.as_bytes()).unwrap();
    see("# ");
    type_in("test -t 0 && stty size > /dev/null && echo ter''minal on $(hostname)\n");
    see("terminal on n1");
    see("# ");
    type_in(
        "(trap 'echo inter''rupted; exit' INT; echo wai''ting; while :; do sleep 0.01; done)\n",
    );
    see("waiting");
    type_in("\x03");
    see("interrupted");
    see("# ");
    // A shell gives the terminal away before it continues a job, so the trap tells of both. The
    // job starts no program: one stopped between vfork and exec would hold its parent.
    let job = "trap 'echo contin''ued' CONT; echo run''ning; while :; do read word; done";
    type_in(&format!("sh -c \"{job}\"\n"));
    see("running");
    type_in("\x1a");
    see("Stopped");
    see("# ");
    type_in("fg\n");
    see("continued");
    type_in("\x03");
    see("# ");
    type_in("echo sta''tus $?\n");
    see("status 130");
    see("# ");
    type_in("exit 5\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}
