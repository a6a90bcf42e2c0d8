//! Real programs go out, onward and home, between real supervisors on loopback.
//!
//! No test harness: this program is the home supervisor too.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use nix::sys::signal::Signal;
use std::io::BufRead;
use std::time::Duration;
use support::{Program, World};
use whim_journey::job::{HomeJob, State};

/// No test takes longer, even on a loaded machine; on an idle one the longest takes some ten seconds.
const CASE_PATIENCE: Duration = Duration::from_secs(300);

/// Answers each line with its computation; everything it does in between goes home.
const CALCULATOR: &str = "
import sys, os
total = 0
for line in sys.stdin:
    total += int(line)
    print(os.getpid() == int(sys.argv[1]) if len(sys.argv) > 1 else '', total, flush=True)
sys.exit(total % 100)
";

fn python_goes_out_and_home() {
    let world = World::new();
    let mut program = Program::start("python3", &["-c", CALCULATOR]);
    assert_eq!(program.ask("5"), " 5");
    let home = world.home("calc", program.pid());
    let host = world.host("n2", "calc", 1);
    let report = home.travel(&host.slot);
    println!(
        "  out: {:.1} ms frozen, {} bytes",
        report.freeze_ms, report.bytes
    );
    for sum in 6..20 {
        assert_eq!(program.ask("1"), format!(" {sum}"));
    }
    let report = home.bring();
    println!(
        "  home: {:.1} ms frozen, {} bytes",
        report.freeze_ms, report.bytes
    );
    assert_eq!(program.ask("10"), " 29");
    assert_eq!(program.finish(), 29);
}

fn python_ends_while_away() {
    let world = World::new();
    let mut program = Program::start("python3", &["-c", CALCULATOR]);
    assert_eq!(program.ask("5"), " 5");
    let home = world.home("exit", program.pid());
    let host = world.host("n2", "exit", 1);
    home.travel(&host.slot);
    assert_eq!(program.ask("38"), " 43");
    assert_eq!(program.finish(), 43);
}

fn bash_goes_on_to_a_third_node() {
    let world = World::new();
    let script = "n=0; while read -r line; do n=$((n+line)); echo $n; done; exit 7";
    let mut program = Program::start("bash", &["-c", script]);
    assert_eq!(program.ask("5"), "5");
    let home = world.home("bash", program.pid());
    let second = world.host("n2", "bash", 1);
    home.travel(&second.slot);
    assert_eq!(program.ask("1"), "6");
    let third = world.host("n3", "bash", 2);
    let report = home.travel(&third.slot);
    println!("  onward: {:.1} ms frozen", report.freeze_ms);
    assert_eq!(program.ask("1"), "7");
    home.bring();
    assert_eq!(program.ask("1"), "8");
    assert_eq!(program.finish(), 7);
}

/// Executes each line and prints what it leaves in `r`.
const SHELL: &str = "
import sys, os, time, threading, signal, select, subprocess
r = ''
for line in sys.stdin:
    try:
        exec(line.strip().replace(';;', chr(10)))
    except BaseException as e:
        r = repr(e)
    print(r, flush=True)
";

/// Whoever starts the tests in the background may have them ignore SIGINT and SIGQUIT; the program does not.
fn shell() -> Program {
    Program::start("env", &["--default-signal", "python3", "-c", SHELL])
}

/// A Python that is away already, its home and its host.
fn away(journey: &str) -> (World, Program, support::Home, support::Host) {
    let world = World::new();
    let mut program = shell();
    assert_eq!(program.ask("r = 1"), "1");
    let home = world.home(journey, program.pid());
    let host = world.host("n2", journey, 1);
    home.travel(&host.slot);
    (world, program, home, host)
}

fn files_are_mapped_while_away() {
    let (_world, mut program, home, _host) = away("files");
    assert_eq!(
        program.ask("import decimal, ctypes, hashlib, bz2, json; r = decimal.Decimal(2).sqrt()"),
        "1.414213562373095048801688724"
    );
    assert_eq!(
        program.ask(
            "import sqlite3; r = sqlite3.connect(':memory:').execute('select 6*7').fetchone()[0]"
        ),
        "42"
    );
    assert_eq!(program.ask("import mmap; f = open('/usr/bin/env','rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ|mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE); r = m[1:4]"), "b'ELF'");
    assert_eq!(
        program.ask("m[1:4] = b'XYZ'; r = m[:5]"),
        "b'\\x7fXYZ\\x02'"
    );
    assert_eq!(program.ask("r = os.write(1, m[1:4] + b' ')"), "XYZ 4");
    home.bring();
    assert_eq!(program.ask("r = m[:5]"), "b'\\x7fXYZ\\x02'");
    assert_eq!(
        program.ask("r = decimal.Decimal(3).sqrt()"),
        "1.732050807568877293527446342"
    );
    assert_eq!(program.finish(), 0);
}

/// Waits until the process (or its deputy) waits in `read` on standard input. A signal before that
/// may set the interpreter's flag right behind its last look at it.
fn await_read(pid: i32) {
    let waits = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        text.starts_with("0 0x0 ")
    };
    while !waits() {
        std::thread::yield_now();
    }
}

fn signals_reach_their_handlers() {
    let (_world, mut program, home, _host) = away("signals");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    let usr1 = nix::sys::signal::Signal::SIGUSR1;
    assert_eq!(
        program
            .ask("signal.signal(signal.SIGUSR1, lambda n, f: os.write(1, b'usr1\\n')); r = 'set'"),
        "set"
    );
    // It waits in a forwarded read.
    await_read(pid.as_raw());
    nix::sys::signal::kill(pid, usr1).expect("kill");
    assert_eq!(program.line(), "usr1");
    assert_eq!(
        program.ask("os.kill(os.getpid(), signal.SIGUSR1); r = 'sent'"),
        "usr1"
    );
    assert_eq!(program.line(), "sent");
    assert_eq!(
        program.ask("signal.raise_signal(signal.SIGUSR1); r = 'raised'"),
        "usr1"
    );
    assert_eq!(program.line(), "raised");
    // It computes.
    program.say("t = time.time() + 0.5 ;;while time.time() < t: pass ;;r = 'computed'");
    nix::sys::signal::kill(pid, usr1).expect("kill");
    assert_eq!(program.line(), "usr1");
    assert_eq!(program.line(), "computed");
    home.bring();
    await_read(pid.as_raw());
    nix::sys::signal::kill(pid, usr1).expect("kill");
    assert_eq!(program.line(), "usr1");
    assert_eq!(program.ask("r = 'home'"), "home");
    assert_eq!(program.finish(), 0);
}

fn a_deadly_signal_kills_with_the_true_status() {
    use std::os::unix::process::ExitStatusExt;
    let (_world, mut program, _home, _host) = away("term");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(program.pid()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("kill");
    let status = program.child.wait().expect("its end");
    assert_eq!(status.signal(), Some(15));
    // Its own; the whole status, with the flag of the core dump, is that of a run at home.
    for (name, line) in [
        ("segv", "import ctypes; ctypes.string_at(0)"),
        ("abort", "os.abort()"),
        ("raise", "signal.raise_signal(signal.SIGFPE)"),
        ("kill", "os.kill(os.getpid(), signal.SIGQUIT)"),
        ("group", "os.setpgid(0, 0); os.kill(0, signal.SIGUSR2)"),
        ("killed", "os.kill(os.getpid(), signal.SIGKILL)"),
        (
            "thread",
            "t = threading.Thread(target=lambda: signal.raise_signal(signal.SIGTERM)); t.start(); t.join()",
        ),
    ] {
        let mut unmoved = shell();
        unmoved.say(line);
        let expected = unmoved.child.wait().expect("its end");
        let (_world, mut program, _home, _host) = away(name);
        program.say(line);
        let status = program.child.wait().expect("its end");
        assert!(status.signal().is_some(), "{name}: {status:?}");
        assert_eq!(status.into_raw(), expected.into_raw(), "{name}");
    }
}

fn children_are_born_at_home() {
    let (_world, mut program, _home, _host) = away("children");
    assert_eq!(
        program.ask("r = subprocess.run(['echo', 'hello'], capture_output=True).stdout"),
        "b'hello\\n'"
    );
    assert_eq!(program.ask("r = subprocess.run(['false']).returncode"), "1");
    assert_eq!(program.finish(), 0);
}

fn threads_travel() {
    let world = World::new();
    let mut program = shell();
    let start = "c = [0]*4 ;;stop = False ;;def f(i): ;; while not stop: c[i] += 1; time.sleep(0.001) if i % 2 else None ;;ts = [threading.Thread(target=f, args=(i,)) for i in range(4)] ;;[t.start() for t in ts] ;;r = len(ts)";
    assert_eq!(program.ask(start), "4");
    let home = world.home("threads", program.pid());
    let host = world.host("n2", "threads", 1);
    home.travel(&host.slot);
    let moved = "a = list(c); time.sleep(0.3); r = all(x < y for x, y in zip(a, c))";
    assert_eq!(program.ask(moved), "True");
    let third = world.host("n3", "threads", 2);
    home.travel(&third.slot);
    assert_eq!(program.ask(moved), "True");
    home.bring();
    assert_eq!(program.ask(moved), "True");
    assert_eq!(
        program.ask("stop = True; [t.join() for t in ts]; r = 'joined'"),
        "joined"
    );
    assert_eq!(program.finish(), 0);
}

fn time_goes_on() {
    let (world, mut program, home, _host) = away("time");
    assert_eq!(
        program.ask("t = time.monotonic(); time.sleep(0.2); r = 0.2 <= time.monotonic() - t < 2"),
        "True"
    );
    assert_eq!(program.ask("t = time.monotonic(); select.select([], [], [], 0.2); r = 0.2 <= time.monotonic() - t < 2"), "True");
    // Moved in the middle of a sleep.
    program.say("t = time.monotonic(); time.sleep(1.5); r = 1.5 <= time.monotonic() - t < 2.9");
    let third = world.host("n3", "time", 2);
    home.travel(&third.slot);
    assert_eq!(program.line(), "True");
    program.say("t = time.monotonic(); time.sleep(1.0); r = 1.0 <= time.monotonic() - t < 2.5");
    home.bring();
    assert_eq!(program.line(), "True");
    assert_eq!(program.finish(), 0);
}

fn bash_substitutes() {
    let script = "for ((i=0; i<2500; i++)); do x=$(echo $i; echo a); [ \"$x\" = \"$i\"$'\\n'a ] || echo \"bad $i $x $EPOCHREALTIME\"; done; echo end";
    let program = Program::start("bash", &["-c", script]);
    wander("substitutes", program.pid(), 12, Duration::from_millis(5));
    assert_eq!(program.rest(), "end\n");
}

fn a_stopped_job_stands_still() {
    let (_world, mut program, home, host) = away("job");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    assert_eq!(
        program.ask("c = [0] ;;def f(): ;; while True: c[0] += 1"),
        "1"
    );
    program.say("signal.signal(signal.SIGUSR1, lambda n, g: os.write(1, b'%d\\n' % c[0])); print('go', flush=True); f()");
    assert_eq!(program.line(), "go");
    // Each answer is at least the last one; it computes if an answer is more.
    let mut last = 0;
    let mut computes = || {
        let before = last;
        while last == before {
            nix::sys::signal::kill(pid, Signal::SIGUSR1).expect("kill");
            let now: u64 = program.line().parse().expect("a number");
            assert!(now >= last);
            last = now;
        }
    };
    computes();
    nix::sys::signal::kill(pid, Signal::SIGSTOP).expect("kill");
    host.await_state(State::Stopped);
    nix::sys::signal::kill(pid, Signal::SIGCONT).expect("kill");
    host.await_state(State::Away);
    computes();
    home.bring();
    computes();
    program.child.kill().expect("kill");
}

/// What the program's parent hears of it next, without waiting for its end.
fn heard(pid: nix::unistd::Pid) -> nix::sys::wait::WaitStatus {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED)).expect("waitpid")
}

fn a_program_stops_itself() {
    use nix::sys::signal::kill;
    use nix::sys::wait::WaitStatus::{Continued, Stopped};
    let (_world, mut program, home, host) = away("stops");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    // The kernel stops nobody whose group is orphaned: let its parent be of another group.
    assert_eq!(program.ask("os.setpgid(0, 0); r = 'group'"), "group");
    let continued = |program: &mut Program| {
        host.await_state(State::Stopped);
        kill(pid, Signal::SIGCONT).expect("kill");
        assert_eq!(heard(pid), Continued(pid));
        program.line()
    };
    for (call, signal) in [
        ("os.kill(os.getpid(), signal.SIGTSTP)", Signal::SIGTSTP),
        ("os.kill(0, signal.SIGTTIN)", Signal::SIGTTIN),
        ("signal.raise_signal(signal.SIGTTOU)", Signal::SIGTTOU),
        ("os.kill(os.getpid(), signal.SIGSTOP)", Signal::SIGSTOP),
    ] {
        program.say(&format!("{call}; r = '{signal} is over'"));
        assert_eq!(heard(pid), Stopped(pid, signal));
        assert_eq!(continued(&mut program), format!("{signal} is over"));
    }
    // A signal that it blocks stops it when it blocks it no more.
    let mask = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])";
    program.say(&format!(
        "{mask}; os.kill(os.getpid(), signal.SIGTSTP); print('goes on', flush=True); \
         signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP]); r = 'over'"
    ));
    assert_eq!(program.line(), "goes on");
    assert_eq!(heard(pid), Stopped(pid, Signal::SIGTSTP));
    assert_eq!(continued(&mut program), "over");
    // From outside, while it waits for a line.
    kill(pid, Signal::SIGTSTP).expect("kill");
    assert_eq!(heard(pid), Stopped(pid, Signal::SIGTSTP));
    program.say("r = 'read'");
    assert_eq!(continued(&mut program), "read");
    // With a handler it is not stopped; at home it stops as any process does.
    assert_eq!(
        program.ask("signal.signal(signal.SIGTSTP, lambda n, f: os.write(1, b'caught ')); r = 1"),
        "1"
    );
    assert_eq!(
        program.ask("os.kill(os.getpid(), signal.SIGTSTP); r = 'and on'"),
        "caught and on"
    );
    home.bring();
    program.say("signal.signal(signal.SIGTSTP, signal.SIG_DFL); os.kill(0, signal.SIGTSTP)");
    assert_eq!(heard(pid), Stopped(pid, Signal::SIGTSTP));
    program.child.kill().expect("kill");
}

/// A SIGCONT that comes right behind a stop signal leaves the process running, whoever is first.
fn a_stop_and_its_end_come_together() {
    use nix::sys::signal::kill;
    let (_world, mut program, _home, _host) = away("together");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    assert_eq!(program.ask("os.setpgid(0, 0); r = 'group'"), "group");
    for round in 0..200 {
        let signal = if round % 2 == 0 {
            Signal::SIGTSTP
        } else {
            Signal::SIGSTOP
        };
        kill(pid, signal).expect("kill");
        if round % 3 == 0 {
            program.say(&format!("r = {round}"));
        }
        kill(pid, Signal::SIGCONT).expect("kill");
        if round % 3 == 0 {
            assert_eq!(program.line(), round.to_string());
        }
    }
    assert_eq!(program.ask("r = 'runs'"), "runs");
    program.child.kill().expect("kill");
}

/// SIGCONT discards a stop that is blocked, as at home.
fn a_continue_discards_a_stop_that_waits() {
    use nix::sys::signal::kill;
    let (_world, mut program, home, _host) = away("discards");
    let pid = nix::unistd::Pid::from_raw(program.pid());
    let block = "r = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])";
    let unblock = "r = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])";
    assert_eq!(program.ask("os.setpgid(0, 0); r = 'group'"), "group");
    for round in 0..4 {
        assert_eq!(program.ask(block), "set()");
        kill(pid, Signal::SIGTSTP).expect("kill");
        let waits = "import time;;while not signal.sigpending(): time.sleep(.001);;r = 'waits'";
        assert_eq!(program.ask(waits), "waits", "round {round}");
        kill(pid, Signal::SIGCONT).expect("kill");
        let gone = "while signal.sigpending(): time.sleep(.001);;r = 'gone'";
        assert_eq!(program.ask(gone), "gone", "round {round}");
        assert_eq!(program.ask(unblock), "{<Signals.SIGTSTP: 20>}");
        assert_eq!(program.ask("r = 'runs'"), "runs");
    }
    home.bring();
    assert_eq!(program.ask("r = 'home'"), "home");
    assert_eq!(program.finish(), 0);
}

fn a_guest_without_home_stops_and_ends() {
    let world = World::with_lease(1500);
    let mut program = shell();
    assert_eq!(program.ask("r = 1"), "1");
    let mut home = world.home("lost", program.pid());
    let mut host = world.host("n2", "lost", 1);
    home.travel(&host.slot);
    assert_eq!(program.ask("r = 2"), "2");
    home.signal(Signal::SIGSTOP);
    host.await_state(State::InDoubt);
    host.await_end();
    home.signal(Signal::SIGCONT);
    home.wait_end();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(program.child.wait().expect("its end").signal(), Some(9));
}

fn a_guest_ends_with_its_supervisor() {
    let (_world, mut program, _home, mut host) = away("killed");
    host.kill();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(program.child.wait().expect("its end").signal(), Some(9));
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Moves a program about until it ends: from home to a host, to another one, home, and so on.
/// A program that goes home by itself (to start a thread) is taken out again.
fn wander(name: &str, pid: i32, moves: usize, pause: Duration) {
    let world = World::new();
    let mut round = 0;
    let mut done = 0;
    while done < moves && lives(pid) {
        round += 1;
        let journey = format!("{name}-{round}");
        let mut home = world.home(&journey, pid);
        let mut hosts = Vec::new();
        for epoch in 1..=1 + u32::from(round % 3 != 0) + u32::from(round % 2 == 0) {
            let host = world.host(if epoch % 2 == 1 { "n2" } else { "n3" }, &journey, epoch);
            match home.try_travel(&host.slot) {
                Ok(_) => done += 1,
                Err(reason) => {
                    println!("  stays: {reason}");
                    assert!(!reason.contains("ended without"), "{reason}");
                    break;
                }
            }
            hosts.push(host);
            std::thread::sleep(pause);
        }
        match home.try_bring() {
            Ok(_) => done += 1,
            Err(reason) => println!("  not brought: {reason}"),
        }
        home.wait_end();
        std::thread::sleep(pause);
    }
}

/// Compiles a program of the tests.
fn compiled(directory: &std::path::Path, source: &std::path::Path) -> std::path::PathBuf {
    let program = directory.join("program");
    let made = std::process::Command::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-lm")
        .status()
        .expect("a C compiler");
    assert!(made.success());
    program
}

/// SIGUSR1 is blocked but while `ppoll` waits; a second thread waits in `sigwaitinfo` for SIGUSR2.
const MASKED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int handled;
static void handler(int s, siginfo_t *i, void *c) { handled += i->si_code == SI_USER; }
static void *waiter(void *a) {
    sigset_t s; siginfo_t i; sigemptyset(&s); sigaddset(&s, SIGUSR2);
    for (;;) if (sigwaitinfo(&s, &i) == SIGUSR2) printf("usr2\n");
}
int main(void) {
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigset_t s, empty, now; pthread_t t; char line[64];
    setvbuf(stdout, 0, _IOLBF, 0);
    sigemptyset(&empty); sigemptyset(&s); sigaddset(&s, SIGUSR1); sigaddset(&s, SIGUSR2);
    sigprocmask(SIG_BLOCK, &s, 0); sigaction(SIGUSR1, &a, 0);
    pthread_create(&t, 0, waiter, 0);
    printf("ready\n");
    for (;;) {
        struct pollfd p = {0, POLLIN, 0};
        sigset_t m; sigemptyset(&m); sigaddset(&m, SIGUSR2);
        int r = ppoll(&p, 1, 0, &m);
        sigprocmask(SIG_SETMASK, 0, &now);
        if (r < 0) printf("errno %d handled %d blocked %d\n", errno, handled, sigismember(&now, SIGUSR1));
        else if (read(0, line, sizeof line) <= 0) return 5;
        else printf("line\n");
    }
}
"#;

fn masks_of_waiting_calls_act() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("masked.c");
    std::fs::write(&source, MASKED).expect("written");
    let program = compiled(directory.path(), &source);
    let mut program = Program::start(&program.display().to_string(), &[]);
    assert_eq!(program.line(), "ready");
    let world = World::new();
    let home = world.home("masks", program.pid());
    let host = world.host("n2", "masks", 1);
    home.travel(&host.slot);
    let pid = nix::unistd::Pid::from_raw(program.pid());
    for count in 1..4 {
        nix::sys::signal::kill(pid, Signal::SIGUSR1).expect("kill");
        assert_eq!(program.line(), format!("errno 4 handled {count} blocked 1"));
        nix::sys::signal::kill(pid, Signal::SIGUSR2).expect("kill");
        assert_eq!(program.line(), "usr2");
        assert_eq!(program.ask("x"), "line");
    }
    home.bring();
    nix::sys::signal::kill(pid, Signal::SIGUSR1).expect("kill");
    assert_eq!(program.line(), "errno 4 handled 4 blocked 1");
    nix::sys::signal::kill(pid, Signal::SIGUSR2).expect("kill");
    assert_eq!(program.line(), "usr2");
    assert_eq!(program.finish(), 5);
}

fn threads_with_locks_and_wide_registers_wander() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guests/holders.c");
    let program = compiled(directory.path(), source.as_ref());
    let mut child = std::process::Command::new(&program)
        .args(["1000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(100));
    wander(
        "holders",
        child.id().cast_signed(),
        8,
        Duration::from_millis(100),
    );
    let mut output = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().expect("piped"), &mut output)
        .expect("output");
    println!("  {output}");
    assert!(child.wait().expect("its end").success());
}

fn bash_wanders() {
    let script = "s=0; for ((i=0; i<300000; i++)); do s=$(( (s*31+i) % 1000003 )); if ((i % 10000 == 0)); then echo $i $s; fi; done; echo end $s";
    let plain = std::process::Command::new("bash")
        .args(["-c", script])
        .output()
        .expect("bash");
    let program = Program::start("bash", &["-c", script]);
    let pid = program.pid();
    wander("bashes", pid, 10, Duration::from_millis(30));
    let output = program.rest();
    assert_eq!(output, String::from_utf8_lossy(&plain.stdout));
}

fn home() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a job");
    let job: HomeJob = serde_json::from_str(&line).expect("a job");
    whim_home::supervisor::run(job).expect("the home supervisor");
}

/// Ends the tests where one of them stands still: a program that never answers is a failure, not a pause.
fn in_time(name: &str, case: fn()) {
    let (done, ends) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ends.recv_timeout(CASE_PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("test {name} stands still since {CASE_PATIENCE:?}");
                std::process::exit(101);
            }
        });
        case();
        drop(done);
    });
}

fn main() {
    let filter = std::env::var("WHIM_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let cases: [(&str, fn()); 19] = [
        ("python_goes_out_and_home", python_goes_out_and_home),
        ("python_ends_while_away", python_ends_while_away),
        ("bash_goes_on_to_a_third_node", bash_goes_on_to_a_third_node),
        ("files_are_mapped_while_away", files_are_mapped_while_away),
        ("signals_reach_their_handlers", signals_reach_their_handlers),
        (
            "a_deadly_signal_kills_with_the_true_status",
            a_deadly_signal_kills_with_the_true_status,
        ),
        ("children_are_born_at_home", children_are_born_at_home),
        ("threads_travel", threads_travel),
        ("time_goes_on", time_goes_on),
        ("a_stopped_job_stands_still", a_stopped_job_stands_still),
        ("a_program_stops_itself", a_program_stops_itself),
        (
            "a_stop_and_its_end_come_together",
            a_stop_and_its_end_come_together,
        ),
        (
            "a_continue_discards_a_stop_that_waits",
            a_continue_discards_a_stop_that_waits,
        ),
        (
            "a_guest_without_home_stops_and_ends",
            a_guest_without_home_stops_and_ends,
        ),
        (
            "a_guest_ends_with_its_supervisor",
            a_guest_ends_with_its_supervisor,
        ),
        ("masks_of_waiting_calls_act", masks_of_waiting_calls_act),
        ("bash_wanders", bash_wanders),
        ("bash_substitutes", bash_substitutes),
        (
            "threads_with_locks_and_wide_registers_wander",
            threads_with_locks_and_wide_registers_wander,
        ),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == "--home" {
        return home();
    }
    for (name, case) in cases {
        if name.contains(&wanted) {
            println!("test {name} ...");
            in_time(name, case);
            println!("test {name} ... ok");
        }
    }
}
