//! What a freeze tells of real programs, what it leaves behind (nothing), and what it refuses.
#![forbid(unsafe_code)]

mod guests;

use guests::compile;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use whim_image::capture::{CaptureOptions, Captured, InFlight};
use whim_image::freeze::{FreezeError, FreezeLimits, Frozen, freeze};
use whim_image::maps;
use whim_image::reserve;
use whim_image::sharing::Alone;
use whim_image::stay::{self, Policy, StayReason};
use whim_image::stay_filters::FilterReason;
use whim_model::Syscall;
use whim_model::{AWAIT_NUMBER, Activity, Backing, Protection, ThreadImage};
use whim_sys::process_vm;
use whim_sys::ptrace::{Options, Running, Waited};

/// A state that has not come after this time will not come.
const PATIENCE: Duration = Duration::from_secs(20);
const READ: u64 = 0;
const WRITE: u64 = 1;
const NANOSLEEP: u64 = 35;
const FUTEX: u64 = 202;
const EPOLL_WAIT: u64 = 232;
const RT_SIGTIMEDWAIT: u64 = 128;

/// A running `states` program.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    known: HashMap<String, u64>,
}

impl Program {
    fn start(state: &str) -> Self {
        static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
        let mut child = Command::new(PROGRAM.get_or_init(|| compile("states")))
            .arg(state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that starts");
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut program = Self {
            child,
            input,
            lines,
            known: HashMap::new(),
        };
        while program.line() != "ready" {}
        program
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let got = self.lines.read_line(&mut line).expect("text");
        assert!(got > 0, "the program has ended");
        let line = line.trim_end().to_owned();
        if let Some((key, value)) = line.split_once(' ') {
            let value = u64::from_str_radix(value, 16).expect("a number");
            self.known.insert(key.to_owned(), value);
        }
        line
    }

    fn known(&self, key: &str) -> u64 {
        *self
            .known
            .get(key)
            .unwrap_or_else(|| panic!("the program says nothing of {key}"))
    }

    /// Whether a storm goes on.
    fn ask(&mut self) -> String {
        self.input
            .as_mut()
            .expect("a pipe")
            .write_all(b"?")
            .expect("a program that listens");
        self.line()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn begins_in_guest(number: u64) -> bool {
    matches!(number, 34 | NANOSLEEP | RT_SIGTIMEDWAIT | 130 | FUTEX | 230)
}

fn capture(frozen: &mut Frozen) -> Captured {
    let entries = frozen.entries().expect("the mappings");
    let reserved = reserve::choose(entries).expect("a free range");
    let options = CaptureOptions {
        reserved,
        begins_in_guest: &begins_in_guest,
    };
    frozen.capture(&options).expect("a capture")
}

fn frozen(pid: i32) -> Frozen {
    freeze(pid, &FreezeLimits::default()).expect("a freeze")
}

fn allowed() -> Policy {
    Policy {
        allow_root: true,
        watches: true,
        ..Policy::default()
    }
}

#[test]
fn a_capture_agrees_with_what_the_program_knows() {
    let program = Program::start("known");
    let pid = program.pid();
    let before = std::fs::read(format!("/proc/{pid}/maps")).expect("the mappings");
    let mut frozen = frozen(pid);
    let captured = capture(&mut frozen);
    assert!(frozen.release().expect("a release").is_empty());
    let after = std::fs::read(format!("/proc/{pid}/maps")).expect("the mappings");
    assert_eq!(
        String::from_utf8_lossy(&before),
        String::from_utf8_lossy(&after)
    );

    let image = &captured.image;
    let thread = &image.threads[0];
    assert_eq!((image.pid, thread.tid, image.threads.len()), (pid, pid, 1));
    assert_eq!(thread.name, b"a name (x) 1");
    assert_eq!(thread.signal_mask, program.known("mask"));
    assert_eq!(thread.tid_address, program.known("tid_address"));
    assert_eq!(
        thread.rseq.map_or(0, |rseq| rseq.address),
        program.known("rseq")
    );
    assert_eq!(thread.alternate_stack.address, program.known("altstack"));
    assert_eq!(
        (thread.alternate_stack.size, thread.alternate_stack.flags),
        (65536, 0)
    );
    assert!(thread.xstate.len() >= 576 && thread.robust_list.1 == 24);
    assert_eq!(image.layout.brk, program.known("brk"));
    let usr1 = image.actions[9];
    assert_eq!(usr1.handler, program.known("handler"));
    assert_eq!((usr1.flags & 0x1800_0000, usr1.mask), (0x1800_0000, 1));
    assert_eq!(
        (image.actions[11].handler, image.actions[14].handler),
        (1, 0)
    );
    let files = image
        .limits
        .iter()
        .find(|limit| limit.resource == 7)
        .expect("a limit");
    assert_eq!((files.soft, files.hard), (123, 456));
    check_mappings(&program, &captured);
}

fn check_mappings(program: &Program, captured: &Captured) {
    let page = 4096;
    let begin = program.known("mapping");
    let at = |address: u64| {
        let mut found = captured.image.mappings.iter();
        found
            .find(|mapping| mapping.contains(address))
            .expect("a mapping")
    };
    assert_eq!(at(begin + page).protection, Protection(0));
    assert!(at(begin + 8 * page).flags.dont_fork && !at(begin + 7 * page).flags.dont_fork);
    assert!(at(begin + 39 * page).flags.wipe_on_fork);
    assert_eq!(at(begin).backing, Backing::Anonymous);
    let file = at(program.known("file"));
    let Backing::File { id, offset: 0 } = file.backing else {
        panic!("{file:?}")
    };
    let found = captured
        .files
        .iter()
        .find(|file| file.id == id)
        .expect("a file");
    assert!(found.entry.name.ends_with("states"), "{}", found.entry.name);
    let kernel = |name: &str| {
        let backing = Backing::Kernel { name: name.into() };
        captured
            .image
            .mappings
            .iter()
            .any(|mapping| mapping.backing == backing)
    };
    assert!(kernel("[vdso]") && kernel("[vvar]"));
    let stack = captured.image.layout.start_stack;
    assert!(at(stack).flags.grows_down);
}

#[test]
fn our_code_leaves_the_vdso_as_it_was() {
    let program = Program::start("plain");
    let pid = program.pid();
    let entries = maps::read(pid).expect("the mappings");
    let vdso = entries
        .iter()
        .find(|entry| entry.name == "[vdso]")
        .expect("a vDSO")
        .range;
    let read = || {
        let mut bytes = vec![0u8; usize::try_from(vdso.len()).expect("a small vDSO")];
        process_vm::read_exact(pid, vdso.start, &mut bytes).expect("the vDSO");
        bytes
    };
    let before = read();
    let mut frozen = frozen(pid);
    let scratch = frozen.scratch().expect("memory");
    assert!(scratch.len() >= 16 << 10);
    process_vm::write_exact(pid, scratch.start, b"hello").expect("writable memory");
    let ops = vec![Syscall::new(libc::SYS_getpid, &[]); 200];
    let results = frozen.run(pid, &ops).expect("injected calls");
    assert!(results.len() == 200 && results.iter().all(|result| *result == i64::from(pid)));
    let failed = frozen
        .run(pid, &[Syscall::new(3, &[u64::MAX])])
        .expect("an injected close");
    assert_eq!(failed, [-9]);
    frozen.release().expect("a release");
    assert_eq!(before, read());
}

/// A word of the program's memory.
fn peek(pid: i32, address: u64) -> u64 {
    let mut bytes = [0; 8];
    process_vm::read_exact(pid, address, &mut bytes).expect("its memory");
    u64::from_le_bytes(bytes)
}

/// What comes while the program makes calls of ours waits until it goes on.
#[test]
fn no_handler_runs_while_calls_are_made_in_it() {
    let program = Program::start("handles");
    let (pid, handled) = (program.pid(), program.known("handled"));
    let mut frozen = frozen(pid);
    let calls = vec![Syscall::new(libc::SYS_getpid, &[]); 60];
    frozen.run(pid, &calls).expect("injected calls");
    for _ in 0..20 {
        kill(Pid::from_raw(pid), Signal::SIGUSR1).expect("a signal");
        let results = frozen.run(pid, &calls).expect("injected calls");
        assert!(results.iter().all(|result| *result == i64::from(pid)));
        assert_eq!(peek(pid, handled), 0, "a handler has run in the middle");
    }
    frozen.release().expect("a release");
    let end = Instant::now() + PATIENCE;
    while peek(pid, handled) != 1 {
        assert!(Instant::now() < end, "the signal is lost");
        std::thread::yield_now();
    }
}

/// The kernel aborts a restartable sequence whose thread goes elsewhere, and forgets it. So does a move.
#[test]
fn a_restartable_sequence_is_aborted() {
    let program = Program::start("sequence");
    if program.known.contains_key("refused") {
        return;
    }
    let (pid, aborted) = (program.pid(), program.known("aborted"));
    // Each time slice aborts it: the time of one is enough.
    let mut limit = 2000;
    while limit > 0 {
        let mut frozen = frozen(pid);
        let before = peek(pid, aborted);
        let captured = capture(&mut frozen);
        let thread = frozen.threads()[1].tid();
        let rip = thread_in(&captured, thread).registers.rip;
        frozen.release().expect("a release");
        let mut code = [0; 4];
        process_vm::read_exact(pid, rip - 4, &mut code).expect("its code");
        // What stands before an abort's address is agreed upon.
        if u32::from_le_bytes(code) == 0x5305_3053 {
            let end = Instant::now() + PATIENCE;
            while peek(pid, aborted) == before {
                assert!(Instant::now() < end, "it does not abort");
                std::thread::yield_now();
            }
            return;
        }
        process_vm::read_exact(pid, rip, &mut code).expect("its code");
        assert_ne!(code[..2], [0xeb, 0xfe], "it goes on within the sequence");
        limit -= 1;
    }
    panic!("it was never met within the sequence");
}

/// A thread on its way out has given up its share of the descriptors already; it is no reason to stay.
#[test]
fn threads_on_their_way_out_are_no_reason_to_stay() {
    let mut program = Program::start("leaves");
    let pid = program.pid();
    let tids = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let mut tids = tids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let tid: i32 = tids.find(|tid| *tid != pid).expect("a second thread");
    // Its tracer keeps what is left of it.
    let traced = Running::seize(tid, Options::SYSGOOD).expect("its tracer");
    assert_eq!(program.ask(), "more 1");
    let end = Instant::now() + PATIENCE;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
        if stat.expect("a thread").contains(") Z ") {
            break;
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::yield_now();
    }
    let found = stay::reasons(pid, &allowed());
    // Until its tracer has taken note of its end the process cannot be ended either.
    assert!(matches!(traced.wait(), Ok(Waited::Exited { .. })));
    assert_eq!(found, []);
}

fn thread_in(captured: &Captured, tid: i32) -> &ThreadImage {
    captured
        .image
        .threads
        .iter()
        .find(|thread| thread.tid == tid)
        .expect("a thread")
}

fn flight(captured: &Captured, number: u64) -> &InFlight {
    let mut calls = captured.in_flight.iter();
    let found = calls.find(|call| call.original_number == number);
    let found = found.unwrap_or_else(|| panic!("no call {number}: {:?}", captured.in_flight));
    let thread = thread_in(captured, found.tid);
    assert_eq!(thread.activity, Activity::AwaitsHome);
    assert_eq!(thread.registers.rax, AWAIT_NUMBER);
    found
}

#[test]
fn each_call_in_flight_is_taken_up_as_it_must_be() {
    let program = Program::start("calls");
    let before = ["0", "0", "1", "128", "202", "202", "232", "35", "running"];
    wait_for_calls(program.pid(), &before);
    let mut frozen = frozen(program.pid());
    let captured = capture(&mut frozen);
    let read = flight(&captured, READ);
    let wanted = program.known("read.fd");
    let reads = captured.in_flight.iter().filter(|call| call.number == READ);
    assert!(reads.clone().any(|call| call.args[0] == wanted), "{read:?}");
    assert_eq!(reads.count(), 2, "the leader reads its standard input");
    let wait = flight(&captured, EPOLL_WAIT);
    assert!((30_000..=60_000).contains(&wait.args[3]), "{wait:?}");
    assert_eq!(
        (wait.original_args[3], wait.restart, wait.already),
        (60_000, false, 0)
    );
    let sleep = flight(&captured, NANOSLEEP);
    assert!(sleep.restart);
    let write = flight(&captured, WRITE);
    assert_eq!(
        (write.args[0], write.already),
        (program.known("write.fd"), 65_536)
    );
    assert_eq!(write.args[1], write.original_args[1] + 65_536);
    assert_eq!(write.args[2], (1 << 20) - 65_536);
    assert_eq!(captured.begun_anew.len(), 1);
    let begun = &captured.begun_anew[0];
    assert_eq!(begun.number, RT_SIGTIMEDWAIT);
    assert!(begun.rest_ns.is_some_and(|rest| rest < 60_000_000_000));
    let mut rests = Vec::new();
    let mut waits_for_signals = 0;
    for thread in &captured.image.threads {
        if thread.activity == Activity::Computing {
            // Of those that stand before their calls, a wait for signals is told from the others.
            let waits = thread.registers.rax == RT_SIGTIMEDWAIT;
            let marked = if waits { RT_SIGTIMEDWAIT } else { u64::MAX };
            assert_eq!(thread.registers.orig_rax, marked);
            waits_for_signals += u32::from(waits);
            if thread.registers.rax == FUTEX {
                let rest = |end: u64| end.saturating_sub(captured.image.clocks.monotonic_ns);
                rests.push(thread.deadline_ns.map(rest));
            }
        }
    }
    assert_eq!(waits_for_signals, 1);
    // A wait without a time begins anew, one with a time is made again for the rest of it.
    rests.sort_unstable();
    assert!(
        matches!(rests.as_slice(), [None, Some(rest)] if (30_000_000_000..60_000_000_000).contains(rest)),
        "{rests:?}"
    );
    frozen.release().expect("a release");
    // restart_syscall (219) continues the sleep and the timed futex wait.
    let after = ["0", "0", "1", "128", "202", "219", "219", "232", "running"];
    wait_for_calls(program.pid(), &after);
}

/// Waits until the threads of a process stand in the calls with these numbers.
fn wait_for_calls(pid: i32, expected: &[&str]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut numbers: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
            let path = entry.expect("a thread").path().join("syscall");
            let text = std::fs::read_to_string(path).expect("its call");
            numbers.push(text.split(' ').next().unwrap_or_default().trim().to_owned());
        }
        numbers.sort();
        if numbers == expected {
            return;
        }
        assert!(Instant::now() < end, "{numbers:?} instead of {expected:?}");
        std::thread::yield_now();
    }
}

#[test]
fn threads_and_children_may_come_and_go() {
    for state in ["storm", "forks"] {
        let mut program = Program::start(state);
        let pid = program.pid();
        for _ in 0..60 {
            // A tracer thread of its own, as it has to be.
            let busy = std::thread::spawn(move || match freeze(pid, &FreezeLimits::default()) {
                Ok(mut frozen) => {
                    capture(&mut frozen);
                    frozen.release().expect("a release");
                    false
                }
                Err(FreezeError::Busy { .. }) => true,
                Err(error) => panic!("{state}: {error}"),
            });
            busy.join().expect("no panic");
        }
        assert_eq!(program.ask(), "more 1", "{state}");
    }
}

#[test]
fn a_parent_in_vfork_is_left_alone() {
    let mut program = Program::start("vfork");
    let pid = program.pid();
    let tried = std::thread::spawn(move || freeze(pid, &FreezeLimits::default()).map(drop));
    let error = tried
        .join()
        .expect("no panic")
        .expect_err("its child does not let it stop");
    assert!(matches!(error, FreezeError::Busy { .. }), "{error}");
    assert_eq!(program.line(), "after 1");
    assert_eq!(program.line(), "ready");
    frozen(pid).release().expect("a release");
}

#[test]
fn what_cannot_be_frozen_is_told() {
    let limits = FreezeLimits::default();
    let gone = freeze(i32::MAX, &limits).expect_err("no such process");
    assert!(matches!(gone, FreezeError::Gone(_)), "{gone}");
    let program = Program::start("calls");
    let pid = program.pid();
    let mut frozen = frozen(pid);
    let thread = frozen.threads()[1].tid();
    let part = freeze(thread, &limits).expect_err("a thread");
    assert!(
        matches!(part, FreezeError::NotAProcess(_, process) if process == pid),
        "{part}"
    );
    let twice = freeze(pid, &limits).expect_err("traced by us");
    assert!(matches!(twice, FreezeError::Traced { .. }), "{twice}");
    assert!(matches!(
        frozen.run(1, &[Syscall::new(libc::SYS_getpid, &[])]),
        Err(FreezeError::UnknownThread(1))
    ));
    drop(frozen);
    let few = FreezeLimits {
        threads_max: 2,
        ..limits
    };
    let many = freeze(pid, &few).expect_err("nine threads");
    assert!(matches!(many, FreezeError::TooManyThreads { .. }), "{many}");
    let filtered = Program::start("seccomp");
    let error = freeze(filtered.pid(), &limits).expect_err("a filter");
    assert!(matches!(error, FreezeError::Filtered(_)), "{error}");
}

/// Whose memory it was when it was looked at says nothing of later, nor does what can be asked of its
/// first thread say anything of the others.
#[test]
fn memory_that_comes_to_be_shared_is_noticed_while_it_is_frozen() {
    let mut program = Program::start("joined");
    let pid = program.pid();
    let alone = Alone::scan(pid).expect("nobody shares it yet");
    {
        let _frozen = frozen(pid);
        assert_eq!(alone.no_longer(), None);
    }
    assert_eq!(program.ask(), "more 1");
    let frozen = frozen(pid);
    let found = alone.no_longer();
    assert!(
        matches!(found, Some(StayReason::SharesMemory(other)) if other != pid),
        "{found:?}"
    );
    drop(frozen);
    assert!(matches!(
        stay::reasons(pid, &allowed()).as_slice(),
        [StayReason::SharesMemory(_)]
    ));
}

#[test]
fn a_filter_of_another_thread_is_seen_before_that_is_stopped() {
    let program = Program::start("confined");
    let pid = program.pid();
    let error = freeze(pid, &FreezeLimits::default()).expect_err("a filter");
    assert!(matches!(error, FreezeError::Filtered(_)), "{error}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    assert!(status.contains("Threads:\t2"), "{status}");
}

#[test]
fn a_stopped_job_stays_stopped() {
    let mut program = Program::start("storm");
    let pid = program.pid();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("a signal");
    let state = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        text[text.rfind(')').expect("a name") + 2..].chars().next()
    };
    while state() != Some('T') {
        std::thread::yield_now();
    }
    let error = freeze(pid, &FreezeLimits::default()).expect_err("a stopped job");
    assert!(matches!(error, FreezeError::JobStopped(_)), "{error}");
    assert_eq!(state(), Some('T'));
    assert_eq!(stay::reasons(pid, &allowed()), [StayReason::Stopped]);
    kill(Pid::from_raw(pid), Signal::SIGCONT).expect("a signal");
    assert_eq!(program.ask(), "more 1");
}

/// Signals that stop and continue it come all the time; neither side is confused.
#[test]
fn job_control_and_freezes_do_not_disturb_each_other() {
    let mut program = Program::start("storm");
    let pid = program.pid();
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            // Until it is told, or the other side is gone.
            let goes_on = Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            while stopped.recv_timeout(Duration::from_millis(1)) == goes_on {
                kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("a signal");
                kill(Pid::from_raw(pid), Signal::SIGCONT).expect("a signal");
            }
        });
        let mut done = 0;
        for _ in 0..100 {
            let one = scope.spawn(move || {
                let mut frozen = freeze(pid, &FreezeLimits::default())?;
                capture(&mut frozen);
                frozen.release().map(drop)
            });
            match one.join().expect("no panic") {
                Ok(()) => done += 1,
                Err(FreezeError::JobStopped(_) | FreezeError::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        stop.send(()).expect("the other thread");
        assert!(done > 10, "{done}");
    });
    kill(Pid::from_raw(pid), Signal::SIGCONT).expect("a signal");
    assert_eq!(program.ask(), "more 1");
}

#[test]
fn what_only_the_process_can_tell_is_a_reason_to_stay() {
    for (state, expected) in [
        ("plain", None),
        ("known", None),
        ("denies_memory", None),
        ("denies_time_stamps", None),
    ] {
        let program = Program::start(state);
        if program.known.contains_key("refused") {
            continue;
        }
        let mut frozen = frozen(program.pid());
        let found = capture(&mut frozen).has_to_stay;
        assert_eq!(found, expected, "{state}");
        // What was asked of it has left nothing behind.
        frozen.release().expect("it goes on");
        assert_eq!(stay::reasons(program.pid(), &allowed()), [], "{state}");
    }
}

#[test]
fn reasons_to_stay_are_found_without_touching_it() {
    let check = |state: &str, expected: &dyn Fn(&StayReason) -> bool| {
        let program = Program::start(state);
        if program.known.contains_key("refused") {
            // This kernel, or this user, cannot get into that state.
            return;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let found = stay::reasons(program.pid(), &allowed());
            if found.iter().any(expected) {
                break;
            }
            assert!(Instant::now() < end, "{state}: {found:?}");
        }
    };
    check("shared", &|reason| *reason == StayReason::SharedAnonymous);
    check("sysv", &|reason| {
        matches!(reason, StayReason::SystemVMemory(_))
    });
    let of_root = StayReason::Filter(FilterReason::OfRoot);
    check("seccomp", &|reason| *reason == of_root);
    check("confined", &|reason| *reason == of_root);
    check("realtime", &|reason| {
        matches!(reason, StayReason::RealTime(_))
    });
    check("locked", &|reason| {
        matches!(reason, StayReason::Locked { .. })
    });
    check("userfault", &|reason| *reason == StayReason::UserFault);
    check("sealed", &|reason| matches!(reason, StayReason::Sealed(_)));
    check("io_uring", &|reason| *reason == StayReason::IoUring);
    check("aio", &|reason| *reason == StayReason::AsyncIo);
    check("split", &|reason| matches!(reason, StayReason::Split(_)));
    let plain = Program::start("plain");
    assert_eq!(stay::reasons(plain.pid(), &allowed()), []);
    let busy = Program::start("calls");
    assert_eq!(stay::reasons(busy.pid(), &allowed()), []);
    let thread = std::fs::read_dir(format!("/proc/{}/task", busy.pid()))
        .expect("its threads")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(|tid| *tid != busy.pid())
        .expect("a second thread");
    let process = busy.pid();
    assert_eq!(
        stay::reasons(thread, &allowed()),
        [StayReason::Thread { thread, process }]
    );
    if nix::unistd::getuid().is_root() {
        assert_eq!(
            stay::reasons(plain.pid(), &Policy::default()),
            [StayReason::Root]
        );
    }
}
