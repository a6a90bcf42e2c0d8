//! Calls of a deputy end when its guest needs their threads, whatever else disturbs them.
#![forbid(unsafe_code)]

mod support;

use support::{Program, convert_program};
use whim_home::homeward;
use whim_journey::message::{CallRequest, WireDirection, WireRegion, WireReturned};
use whim_sys::crash;

const ROUNDS: u32 = 100;
/// A cut takes fewer than thirty points; one that a timer kept from coming about took half a million.
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

/// A timer interrupts the call each millisecond, and it is made again each time.
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
    // Counted, and never reached.
    crash::arm(u32::MAX - 2);
    for round in 0..u64::from(ROUNDS) {
        let request = CallRequest {
            tid,
            sequence: 2 + round,
            number: libc::SYS_read.cast_unsigned(),
            args: [0, BUFFER, 1, 0, 0, 0],
            may_block: true,
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
