//! Hosts that accept a connection and then say nothing: how long home waits for them, and that the process goes on.
//! The supervisor is the program itself (that of `WHIM_BIN_DIR`, if it names one); the host is this test.
#![forbid(unsafe_code)]

#[path = "support/host.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod host;

use host::{Home, Host, PATIENCE, Program, World};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use whim_journey::job::{Command, Event};

/// The lease of a user who says nothing.
const LEASE: Duration = Duration::from_secs(30);
/// Longer than one try, and shorter than half of that lease.
const SILENCE: Duration = Duration::from_secs(7);

fn asked(world: &World) -> (Program, Home, Host, Receiver<Event>) {
    let program = Program::start();
    let home = world.home(program.pid());
    let host = Host::new(world, "n2", 1, program.pid());
    let slot = host.slot.clone();
    let events = home.ask(&Command::Move { slot });
    (program, home, host, events)
}

/// Serves until the move is over; the error is why it was refused.
fn over(host: &mut Host, events: &Receiver<Event>) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        host.serve();
        match events.try_recv() {
            Ok(Event::Done { .. }) => return Ok(()),
            Ok(Event::Refused { reason, .. }) => return Err(reason),
            _ => {}
        }
    }
    Err("it does not end".to_owned())
}

#[test]
fn a_host_that_says_nothing_for_a_while_gets_the_process() {
    let (_program, _home, mut host, events) = asked(&World::new(Some(LEASE)));
    host.accept_both();
    // The silence is the fault.
    std::thread::sleep(SILENCE);
    assert_eq!(over(&mut host, &events), Ok(()));
}

#[test]
fn a_host_that_agrees_on_keys_after_a_while_gets_the_process() {
    let (_program, _home, mut host, events) = asked(&World::new(Some(LEASE)));
    // Its kernel accepts, and it does not.
    std::thread::sleep(SILENCE);
    host.accept_both();
    assert_eq!(over(&mut host, &events), Ok(()));
}

#[test]
fn a_host_that_says_nothing_for_longer_is_given_up() {
    let (mut program, _home, mut host, events) = asked(&World::new(Some(Duration::from_secs(1))));
    let begun = Instant::now();
    host.accept_both();
    let refused = events.iter().find_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason),
        _ => None,
    });
    let reason = refused.expect("it is refused");
    assert!(reason.contains("for 5.0 s"), "{reason}");
    assert!(
        begun.elapsed() < SILENCE + Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    // It goes on where it was.
    let used = program.used();
    let end = Instant::now() + PATIENCE;
    while program.used() == used {
        assert!(Instant::now() < end, "it stands still");
        assert!(program.ends_until(Instant::now()).is_none(), "it has ended");
    }
}
