//! A program with a timer comes home: no expiration is lost, and none is told twice.
#![forbid(unsafe_code)]

mod support;

use support::{Program, convert_program};
use whim_model::QueuedSignal;

/// A timer of a millisecond sends a standard signal, which is blocked.
const COUNTS: &str = "
import ctypes, signal, sys, time
libc = ctypes.CDLL(None)
number = int(signal.SIGUSR2)
signal.pthread_sigmask(signal.SIG_BLOCK, [number])
event = (ctypes.c_int * 16)(0, 0, number, 0)
timer = ctypes.c_void_p()
assert libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer)) == 0
before = time.monotonic()
period = (ctypes.c_long * 4)(0, 1000000, 0, 1000000)
assert libc.timer_settime(timer, 0, period, None) == 0
begun = time.monotonic()
print(timer.value or 0, flush=True)
sys.stdin.readline()
told = 0
awaited = (ctypes.c_ulong * 16)(1 << (number - 1))
for _ in range(2):
    least = int((time.monotonic() - begun) * 1000)
    info = (ctypes.c_int * 32)()
    assert libc.sigwaitinfo(awaited, info) == number
    told += 1 + info[5]
print(told, least, int((time.monotonic() - before) * 1000), flush=True)
";
/// What a signal tells that has waited at the host.
const AWAY: i32 = 1_000_000;
/// The program rounds down, and the kernel may be late by one.
const NEARLY: i32 = 2;

#[test]
fn a_standard_signal_of_a_timer_tells_all_expirations_at_home() {
    let mut program = Program::start("/usr/bin/python3", &["-c", COUNTS]);
    let timer: i32 = program.line().parse().expect("a timer's number");
    let mut away = convert_program(program);
    let mut info = vec![0; 128];
    let words = [
        (0, libc::SIGUSR2),
        (8, libc::SI_TIMER),
        (16, timer),
        (20, AWAY),
    ];
    for (at, word) in words {
        info[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let signal = 12;
    let waiting = QueuedSignal { signal, info };
    away.captured.image.pending.push(waiting);
    let mut program = away.comes_home();
    program.say("");
    let told = program.line();
    let numbers: Vec<i32> = told.split(' ').flat_map(str::parse).collect();
    let [told, least_ms, most_ms] = numbers[..] else {
        panic!("three numbers: {told}");
    };
    let here = told - AWAY - 1;
    assert!(
        (least_ms - NEARLY..=most_ms + NEARLY).contains(&here),
        "{here} expirations at home in {least_ms} to {most_ms} ms"
    );
    drop(program.input);
    assert!(program.child.wait().expect("ended").success());
}
