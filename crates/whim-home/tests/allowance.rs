//! A host says what it allows a guest, and a process that has more is not even stopped.
#![forbid(unsafe_code)]

#[path = "support/host.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod host;

use host::{Host, PATIENCE, Program, World};
use std::time::{Duration, Instant};
use whim_journey::job::{Command, Event};
use whim_journey::message::Allowance;

const LEASE: Duration = Duration::from_secs(1);

/// What a host that allows so much is told of why the program does not come.
fn refused_for(allowance: Allowance) -> String {
    let world = World::new(Some(LEASE));
    let program = Program::start();
    let home = world.home(program.pid());
    let mut host = Host::new(&world, "n2", 1, program.pid());
    host.allowance = allowance;
    let slot = host.slot.clone();
    let events = home.ask(&Command::Move { slot });
    host.accept_both();
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "It is not answered");
        host.serve();
        for event in events.try_iter() {
            match event {
                Event::Phase { phase, .. } => {
                    assert_eq!(phase.to_string(), "admit", "It was stopped for that");
                }
                Event::Refused { reason, stays } => {
                    assert!(stays, "{reason}");
                    return reason;
                }
                Event::Done { .. } => panic!("It left"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_host_that_allows_less_is_not_gone_to() {
    let reason = refused_for(Allowance {
        mappings: 5,
        threads: 100,
    });
    let words = [" mappings; node n2 allows a guest 5 ", "vm.max_map_count"];
    assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
    let reason = refused_for(Allowance {
        mappings: 1000,
        threads: 0,
    });
    let sentence = "It has 1 threads; node n2 allows a guest 0";
    assert_eq!(reason, sentence);
}
