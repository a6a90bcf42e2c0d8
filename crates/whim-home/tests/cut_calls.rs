//! Calls of a deputy end when its guest needs their threads, whatever else disturbs them.
#![forbid(unsafe_code)]

mod support;

use support::{Program, convert_program};
use whim_home::homeward;
use whim_home::numbers::OwnTid;
use whim_journey::message::{CallRequest, WireDirection, WireRegion, WireReturned};
use whim_sys::crash;

const ROUNDS: u32 = 100;
/// A cut passes fewer than thirty points. A cut that a timer kept from coming about passed half a million.
const POINTS_MAX: u32 = 100;
const BUFFER: u64 = 0x7000_0000_0000;

fn region(length: u64, direction: WireDirection, data_length: u64) -> WireRegion {
    WireRegion {
        address: BUFFER,
        length,
        direction,
        returned: WireReturned::Whole,
        data_length,
    }
}

/// A timer interrupts the call each millisecond, and the kernel makes the call again each time.
#[test]
fn a_call_is_cut_soon_although_a_timer_interrupts_it_again_and_again() {
    let mut away = convert_program(Program::python());
    let timer: Vec<u8> = [0_i64, 1000, 0, 1000]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let number = libc::SYS_setitimer.cast_unsigned();
    let regions = vec![region(32, WireDirection::In, 32)];
    let (set, _) = away.ask(number, [0, BUFFER, 0, 0, 0, 0], regions, &timer);
    assert_eq!(set, 0);
    let (tid, mut held) = (away.tid(), Vec::new());
    // Points are counted, and this one is never reached.
    crash::arm(u32::MAX - 2);
    for round in 0..u64::from(ROUNDS) {
        let request = CallRequest {
            tid,
            sequence: 2 + round,
            number: libc::SYS_read.cast_unsigned(),
            args: [0, BUFFER, 1, 0, 0, 0],
            may_block: true,
            looks_for: None,
            masked: 0,
            regions: vec![region(1, WireDirection::Out, 0)],
        };
        away.server.call(request, &[]).expect("served");
        homeward::quiesce(&mut away.server, &mut held).expect("quiet");
    }
    let each = crash::passed() / ROUNDS;
    crash::arm(0);
    assert!(each < POINTS_MAX, "{each} points for each of {ROUNDS} cuts");
    assert!(!held.is_empty(), "the timer never fired");
    away.program.child.kill().expect("ended");
    away.program.child.wait().expect("its end");
}

/// Two sockets of the program, connected with each other, whose waits have this time limit.
fn sockets_with_limit(away: &mut support::Converted, seconds: i64) -> (u64, u64) {
    let (family, kind) = (
        libc::AF_UNIX.unsigned_abs(),
        libc::SOCK_STREAM.unsigned_abs(),
    );
    let number = libc::SYS_socketpair.cast_unsigned();
    let args = [family.into(), kind.into(), 0, BUFFER, 0, 0];
    let (made, pair) = away.ask(number, args, vec![region(8, WireDirection::Out, 0)], &[]);
    assert_eq!(made, 0);
    let socket = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four"));
    let (one, other) = (socket(&pair[..4]), socket(&pair[4..]));
    let limit: Vec<u8> = [seconds, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let number = libc::SYS_setsockopt.cast_unsigned();
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let level = libc::SOL_SOCKET.unsigned_abs().into();
        let args = [
            one.into(),
            level,
            option.unsigned_abs().into(),
            BUFFER,
            16,
            0,
        ];
        let regions = vec![region(16, WireDirection::In, 16)];
        assert_eq!(away.ask(number, args, regions, &limit).0, 0);
    }
    (one.into(), other.into())
}

/// `struct mmsghdr` at `BUFFER`, which begins as `struct msghdr` does, with one piece of 64 bytes.
fn message() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(16, BUFFER + 128);
    put(24, 1);
    put(128, BUFFER + 256);
    put(136, 64);
    bytes
}

/// Waits of a socket with a time limit: the kernel ends them with EINTR at any stop, and no program sees that.
#[test]
fn no_wait_of_a_socket_notices_that_it_was_cut() {
    /// The kernel restarts it, or makes EINTR of it where a handler is due.
    const ERESTARTNOHAND: i64 = -514;
    let mut away = convert_program(Program::python());
    let (socket, _other) = sockets_with_limit(&mut away, 60);
    let full = vec![0_u8; 4096];
    loop {
        let flags = libc::MSG_DONTWAIT.unsigned_abs().into();
        let args = [socket, BUFFER, 4096, flags, 0, 0];
        let regions = vec![region(4096, WireDirection::In, 4096)];
        if away
            .ask(libc::SYS_sendto.cast_unsigned(), args, regions, &full)
            .0
            < 0
        {
            break;
        }
    }
    let (tid, mut held, mut sequence) = (away.tid(), Vec::new(), 10_000);
    for (name, number, args) in [
        ("recvmsg", libc::SYS_recvmsg, [socket, BUFFER, 0, 0, 0, 0]),
        ("recvmmsg", libc::SYS_recvmmsg, [socket, BUFFER, 1, 0, 0, 0]),
        ("sendmsg", libc::SYS_sendmsg, [socket, BUFFER, 0, 0, 0, 0]),
        ("sendmmsg", libc::SYS_sendmmsg, [socket, BUFFER, 1, 0, 0, 0]),
    ] {
        sequence += 1;
        let request = CallRequest {
            tid,
            sequence,
            number: number.cast_unsigned(),
            args,
            may_block: true,
            looks_for: None,
            masked: 0,
            regions: vec![region(512, WireDirection::InOut, 512)],
        };
        away.server.call(request, &message()).expect("served");
        homeward::quiesce(&mut away.server, &mut held).expect("quiet");
        let seat = away
            .server
            .deputy
            .seat_of(OwnTid::named(tid))
            .expect("its thread");
        let finished = away.server.result_of(seat, sequence).expect("it is over");
        assert_eq!(finished.result, ERESTARTNOHAND, "{name}");
        assert!(finished.deadline_ns.is_some(), "{name} would wait anew");
    }
    away.program.child.kill().expect("ended");
    away.program.child.wait().expect("its end");
}
