//! A process that is traced while it runs, before it is stopped: it does not notice, and is let go by the
//! end of its tracer.
#![forbid(unsafe_code)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use whim_attempts::{Attempt, Party};
use whim_image::freeze::{FreezeError, FreezeLimits};
use whim_image::freeze_attend::Attended;
use whim_image::freeze_observe::Status;
use whim_sys::freezer::Freezers;

const PATIENCE: Duration = Duration::from_secs(20);
const THREADS_MAX: usize = 4096;

/// Threads come and go, processes are made in three ways, and signals come each millisecond; each line of
/// input is answered by how often all that was done.
const BUSY: &str = "
import os, signal, subprocess, sys, threading
rounds = signals = 0
def tick(number, frame):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def work():
    global rounds
    while True:
        made = threading.Thread(target=sum, args=(range(500),))
        made.start()
        made.join()
        child = os.fork()
        if child == 0:
            os._exit(7)
        if os.waitpid(child, 0)[1] != 7 << 8:
            os._exit(3)
        if rounds % 20 == 0 and subprocess.run(['true']).returncode != 0:
            os._exit(4)
        rounds += 1
threading.Thread(target=work, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    print(rounds, signals, flush=True)
";

struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Program {
    fn start(script: &str) -> Self {
        Self::start_with(script, "")
    }

    fn start_with(script: &str, argument: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", script, argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        let program = Self {
            child,
            input,
            lines,
        };
        assert_eq!(program.line(), "ready");
        program
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn line(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("it says something")
    }

    /// What it has done so far.
    fn done(&mut self) -> (u64, u64) {
        writeln!(self.input, "tell").expect("it reads");
        numbers(&self.line())
    }

    /// As [`Self::done`], for who must not wait, as its tracer must not: the answer to the question before
    /// this one, if it has come. The first question is the caller's.
    fn done_meanwhile(&mut self) -> Option<(u64, u64)> {
        let told = numbers(&self.lines.try_recv().ok()?);
        writeln!(self.input, "tell").expect("it reads");
        Some(told)
    }

    fn tracer(&self) -> i32 {
        Status::read(self.pid(), self.pid())
            .expect("it runs")
            .tracer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Two of them in a line.
fn numbers(line: &str) -> (u64, u64) {
    let (rounds, signals) = line.split_once(' ').expect("two numbers");
    (rounds.parse().expect("one"), signals.parse().expect("one"))
}

/// Looks after it until `over`.
fn attend(attended: &mut Attended, mut over: impl FnMut() -> bool) -> Result<(), FreezeError> {
    let begun = Instant::now();
    while !over() {
        attended.poll()?;
        assert!(begun.elapsed() < PATIENCE, "it does not get on");
        std::thread::yield_now();
    }
    Ok(())
}

/// Whether so much was done since `before` as nobody does who is held up, however slow the machine is.
fn got_on(before: (u64, u64), now: (u64, u64)) -> bool {
    now.0 > before.0 + 10 && now.1 > before.1 + 100
}

/// In a thread of its own, whose end lets the process go.
fn by_a_tracer<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

#[test]
fn a_busy_process_goes_on_while_it_is_traced_and_after() {
    let mut program = Program::start(BUSY);
    let pid = program.pid();
    for freezes in [true, false] {
        let before = program.done();
        by_a_tracer(|| {
            let mut attended = Attended::seize(pid, THREADS_MAX).expect("ours");
            writeln!(program.input, "tell").expect("it reads");
            attend(&mut attended, || {
                program
                    .done_meanwhile()
                    .is_some_and(|now| got_on(before, now))
            })
            .expect("traced");
            if freezes {
                let frozen = attended
                    .freeze(&FreezeLimits::default(), Freezers::of(pid))
                    .expect("stopped");
                assert!(frozen.threads().len() >= 2);
                assert!(frozen.release().expect("let go").is_empty());
            }
        });
        // The answer that was still to come.
        let traced = numbers(&program.line());
        let end = Instant::now() + PATIENCE;
        while program.tracer() != 0 {
            assert!(Instant::now() < end, "it is still traced");
            std::thread::yield_now();
        }
        while !got_on(traced, program.done()) {
            assert!(Instant::now() < end, "it does not go on when it is let go");
        }
    }
}

#[test]
fn a_program_that_becomes_another_one_is_let_go_at_once() {
    let mut program = Program::start(
        "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execvp('cat', ['cat'])",
    );
    let pid = program.pid();
    let error = by_a_tracer(|| {
        let mut attended = Attended::seize(pid, THREADS_MAX).expect("ours");
        writeln!(program.input, "go").expect("it reads");
        let error = attend(&mut attended, || false).expect_err("another program");
        assert_eq!(Status::read(pid, pid).expect("it runs").tracer, 0);
        error
    });
    assert!(
        matches!(error, FreezeError::Replaced(of) if of == pid),
        "{error}"
    );
    writeln!(program.input, "said to the other one").expect("it reads");
    assert_eq!(program.line(), "said to the other one");
}

/// As root alone: who traces with rights lets a setuid program have those of its file, and must not hold it.
#[test]
fn a_setuid_program_gets_its_rights_and_is_not_held() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let path = format!(
        "{}/setuid-cat-{}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    std::fs::copy("/bin/cat", &path).expect("a copy");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("ours");
    let script = "import os, sys; os.setresuid(65534, 65534, 65534); print('ready', flush=True); \
                  sys.stdin.readline(); os.execv(sys.argv[1], ['cat'])";
    let mut program = Program::start_with(script, &path);
    let pid = program.pid();
    let attempt = Attempt::new(
        Party::LocalUser,
        "have a setuid program traced by executing it while a move is tried",
    );
    let error = by_a_tracer(|| {
        let mut attended = Attended::seize(pid, THREADS_MAX).expect("ours");
        writeln!(program.input, "go").expect("it reads");
        attend(&mut attended, || false).expect_err("another program")
    });
    assert!(matches!(error, FreezeError::Replaced(_)), "{error}");
    let status = Status::read(pid, pid).expect("it runs");
    assert_eq!((status.tracer, status.uids), (0, vec![65534, 0, 0, 0]));
    attempt.failed(
        "it has its rights, and is let go before its first instruction; the move is refused",
    );
    writeln!(program.input, "said to the other one").expect("it reads");
    assert_eq!(program.line(), "said to the other one");
    std::fs::remove_file(path).expect("ours");
}

#[test]
fn job_control_works_on_a_traced_process() {
    let mut program = Program::start(BUSY);
    let pid = program.pid();
    by_a_tracer(|| {
        let mut attended = Attended::seize(pid, THREADS_MAX).expect("ours");
        kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("ours");
        let begun = Instant::now();
        attend(&mut attended, || {
            begun.elapsed() > Duration::from_millis(200)
        })
        .expect("traced");
        let error = attended
            .freeze(&FreezeLimits::default(), Freezers::of(pid))
            .expect_err("a stopped job");
        assert!(
            matches!(error, FreezeError::JobStopped(of) if of == pid),
            "{error}"
        );
    });
    let end = Instant::now() + PATIENCE;
    while Status::read(pid, pid).expect("it is there").state != 'T' {
        assert!(Instant::now() < end, "it is not stopped as before");
        std::thread::yield_now();
    }
    by_a_tracer(|| {
        let error = Attended::seize(pid, THREADS_MAX).expect_err("a stopped job");
        assert!(matches!(error, FreezeError::JobStopped(_)), "{error}");
    });
    kill(Pid::from_raw(pid), Signal::SIGCONT).expect("ours");
    let before = program.done();
    std::thread::sleep(Duration::from_millis(50));
    assert!(program.done().1 >= before.1);
}
