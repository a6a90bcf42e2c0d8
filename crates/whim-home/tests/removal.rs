//! Hosts that do not let go of a process: removed from the cluster, or asked to send it home.
//! The supervisor is the program itself (that of `WHIM_BIN_DIR`, if it names one); the host is this test.
#![forbid(unsafe_code)]

#[path = "support/host.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod host;

use host::{BUFFER, Home, Host, PATIENCE, Program, World, away};
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use whim_attempts::{Attempt, Party};
use whim_journey::frame::Kind;
use whim_journey::job::{Command, Event};
use whim_journey::message::ToHome;
use whim_model::{Backing, Mapping, MappingFlags, ProcessImage};

const LEASE: Duration = Duration::from_secs(1);
/// The promise is that the last effect comes within a lease and this time.
const BEYOND: Duration = Duration::from_secs(2);
/// Time for a busy machine, until the end is seen.
const SEEN: Duration = Duration::from_secs(2);

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LyingHost, what)
}

/// The last outcome that was reported.
fn last(events: &Receiver<Event>) -> String {
    events
        .try_iter()
        .filter_map(|event| match event {
            Event::Refused { reason, .. } => Some(reason),
            Event::Done { .. } => Some("done".to_owned()),
            _ => None,
        })
        .last()
        .unwrap_or_else(|| "nothing".to_owned())
}

/// Has the host lie until the program has ended, by calls of `lie`, which gets the time since the host should
/// have let go. Checks that the program ends as by SIGKILL and in time, and that nothing is done after that.
/// Also returns how many calls were made that the host sent after the guest was called home.
fn ends(
    (mut program, home, mut host): (Program, Home, Host),
    events: &Receiver<Event>,
    (begun, mut lie): (Instant, impl FnMut(&mut Host, Duration)),
) -> (String, usize) {
    let latest = begun + LEASE + BEYOND;
    let status = loop {
        lie(&mut host, begun.elapsed());
        host.serve();
        if let Some(status) = program.ends_until(Instant::now()) {
            break status;
        }
        assert!(
            Instant::now() < latest + SEEN,
            "The host still has the program after {:?}; called home: {}, {}",
            begun.elapsed(),
            host.called_home,
            last(events)
        );
    };
    let took = begun.elapsed();
    assert_eq!(status.signal(), Some(9), "{status}");
    let (last_effect, late) = program.effects();
    if let Some(last) = last_effect {
        assert!(last < latest, "An effect came {:?} too late", last - latest);
    }
    let said = events.recv_timeout(PATIENCE).map(|_| ());
    drop(home);
    println!("ended after {took:?}: {said:?} {}", last(events));
    let said = format!("the program ended, as by SIGKILL: no effect after a lease and {BEYOND:?}");
    (said, late)
}

/// The host is removed, and goes on lying.
fn removed(what: &str, lie: impl FnMut(&mut Host, Duration)) {
    let attempt = tries(&format!("after its removal: {what}"));
    let world = World::new(Some(LEASE));
    let (program, home, mut host) = away(&world);
    for _ in 0..10 {
        host.call();
        host.serve();
    }
    host.insists = true;
    let events = home.evict("n2");
    let (said, late) = ends((program, home, host), &events, (Instant::now(), lie));
    assert_eq!(late, 0, "calls that were made for a removed host");
    attempt.failed(said);
}

#[test]
fn a_removed_host_that_ignores_the_recall_loses_its_guest() {
    removed("ignore that the guest is called home", |host, _| {
        host.beat()
    });
}

#[test]
fn a_removed_host_that_goes_on_calling_loses_its_guest() {
    removed("go on sending calls", |host, _| {
        host.beat();
        host.call();
    });
}

#[test]
fn a_removed_host_that_sends_a_byte_now_and_then_loses_its_guest() {
    removed("send a byte of an image each second", |host, since| {
        host.beat();
        host.call();
        if host.called_home && since.as_secs() >= u64::from(host.pieces) {
            host.piece();
        }
    });
}

#[test]
fn a_removed_host_that_answers_nothing_loses_its_guest() {
    removed("answer nothing", |_, _| {});
}

#[test]
fn a_removed_host_that_says_it_cannot_loses_its_guest() {
    removed("say that the guest cannot be stopped", |host, _| {
        host.beat();
        host.call();
        if std::mem::take(&mut host.called_home) {
            let reason = "not now".to_owned();
            let phase = whim_journey::job::Phase::Home;
            host.say(&ToHome::Failed { phase, reason }, &[]);
        }
    });
}

#[test]
fn a_removed_host_that_connects_again_loses_its_guest() {
    removed("connect again under its old certificate", |host, since| {
        if since < LEASE / 4 {
            host.break_all();
        }
        host.accept();
        host.beat();
        host.call();
    });
}

/// A mapping that may be written, from which others are made.
fn writable(image: &ProcessImage) -> &Mapping {
    let is_one = |mapping: &&Mapping| {
        let anonymous = matches!(mapping.backing, Backing::Anonymous);
        anonymous && mapping.protection.writable() && !mapping.flags.grows_down
    };
    image.mappings.iter().rev().find(is_one).expect("there is")
}

/// Adds to the image a mapping of a TiB of which nothing has been touched, so that the process may have that
/// much.
fn with_a_tebibyte(image: &mut ProcessImage) {
    let start = 16 << 40;
    let flags = MappingFlags {
        no_reserve: true,
        ..MappingFlags::default()
    };
    let more = Mapping {
        start,
        end: start + (1 << 40),
        flags,
        ..writable(image).clone()
    };
    image.mappings.push(more);
    image.mappings.sort_by_key(|mapping| mapping.start);
}

/// The host sends more than has to come in a lease, but the same page each time.
#[test]
fn a_removed_host_that_sends_the_same_page_again_loses_its_guest() {
    let mut page = 0u64;
    let mut next = Duration::ZERO;
    removed(
        "send one page of the image again and again",
        |host, since| {
            host.beat();
            if std::mem::take(&mut host.called_home) {
                let mut image = host.luggage.image();
                page = writable(&image).start;
                with_a_tebibyte(&mut image);
                host.sends_image(&image);
                next = since;
            }
            if page > 0 && since >= next {
                next = since + LEASE / 2;
                for _ in 0..70 {
                    host.queue(Kind::Pages, &[&page.to_le_bytes(), &[0; 4096]]);
                }
            }
        },
    );
}

/// The headers of these pieces are more than what has to come in a lease.
#[test]
fn a_removed_host_that_sends_empty_pieces_loses_its_guest() {
    let mut next = Duration::ZERO;
    removed("send empty pieces of an image", |host, since| {
        host.beat();
        if host.called_home && since >= next {
            next = since + LEASE / 2;
            for _ in 0..33_000 {
                host.piece_at(0, &[]);
            }
        }
    });
}

/// Each of its tries brings more than what has to come in a lease, and the next one brings the same.
#[test]
fn a_removed_host_that_begins_again_and_again_loses_its_guest() {
    let mut tries = 0;
    removed(
        "begin to send an image, fail, and begin again",
        |host, _| {
            host.beat();
            if std::mem::take(&mut host.called_home) {
                tries += 1;
                host.piece_at(0, &vec![0; 300 << 10]);
                let reason = "not now".to_owned();
                let phase = whim_journey::job::Phase::Home;
                host.say(&ToHome::Failed { phase, reason }, &[]);
            }
        },
    );
    assert!(tries > 1, "it was called once");
}

/// A move onward keeps a guest from being called home: the next host waits for what never comes.
#[test]
fn a_removed_host_that_was_to_send_its_guest_on_loses_it() {
    let attempt = tries("after its removal: be asked to send the guest on, and keep it");
    let world = World::new(Some(LEASE));
    let (program, home, mut host) = away(&world);
    let mut next = Host::new(&world, "n3", 2, program.pid());
    let slot = next.slot.clone();
    let onward = home.ask(&Command::Move { slot });
    while !next.accept() {
        host.beat();
        host.serve();
    }
    let honest = std::thread::spawn(move || {
        next.accept_both();
        while !next.over {
            next.serve();
            next.beat();
        }
    });
    // The next host is ready, and the guest is told to go there.
    let mut phases = 0;
    while phases < 2 {
        host.beat();
        host.serve();
        phases += onward
            .try_iter()
            .filter(|e| matches!(e, Event::Phase { .. }))
            .count();
    }
    host.insists = true;
    let events = home.evict("n2");
    let lie = |host: &mut Host, _| {
        host.beat();
        host.call();
    };
    let (said, late) = ends((program, home, host), &events, (Instant::now(), lie));
    assert_eq!(late, 0, "calls that were made for a removed host");
    attempt.failed(said);
    honest.join().expect("it was told");
}

/// Nobody was removed; the client that asked for the return is told why it does not come about.
#[test]
fn a_host_that_ignores_a_return_loses_its_guest() {
    let attempt = tries("ignore that the guest is brought home, and go on sending calls");
    let world = World::new(Some(LEASE));
    let (program, home, host) = away(&world);
    let events = home.ask(&Command::Bring { hold: false });
    let lie = |host: &mut Host, _| {
        host.beat();
        host.call();
    };
    // As long as the host is a member, its calls are made.
    let (said, late) = ends((program, home, host), &events, (Instant::now(), lie));
    assert_ne!(late, 0, "calls that were made");
    attempt.failed(said);
}

/// The program is home: it computes here, and its supervisor is done with it.
fn is_home(program: &Program, home: &mut Home, within: Duration) {
    let end = Instant::now() + within;
    let before = program.used();
    while program.used() <= before + 5 {
        assert!(Instant::now() < end, "It does not compute at home");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(home.child.wait().expect("its end").success());
}

/// A slow return that gets on takes its time, also from a host that was removed.
#[test]
fn a_slow_return_from_a_removed_host_comes_home() {
    let world = World::new(Some(LEASE));
    let (program, mut home, mut host) = away(&world);
    let events = home.evict("n2");
    let begun = Instant::now();
    called_home(&mut host);
    let image = host.luggage.image();
    host.sends_home(&image, 1 << 19);
    while !host.over {
        host.serve();
    }
    let took = begun.elapsed();
    assert!(took > LEASE + BEYOND, "{took:?} is not slow");
    is_home(&program, &mut home, PATIENCE);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Done { .. }))
    );
}

/// The host behaves until its guest is called home.
fn called_home(host: &mut Host) {
    while !host.called_home {
        host.serve();
        host.beat();
    }
}

/// The reason why a request was refused.
fn refusal(events: &Receiver<Event>, host: &mut Host) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "It is not answered");
        host.serve();
        host.beat();
        for event in events.try_iter() {
            match event {
                Event::Refused { reason, .. } => return reason,
                Event::Done { .. } => panic!("It came home"),
                _ => {}
            }
        }
    }
}

/// The host's kernel allows more mappings than home's. The process goes on there, though it was sent already.
#[test]
fn a_process_with_more_mappings_than_home_makes_goes_on_away() {
    const APART: u64 = 0x2000;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a setting");
    let limit: u64 = text.trim().parse().expect("a number");
    assert!(limit < 200_000, "no image has more than home makes here");
    let world = World::new(Some(LEASE));
    let (program, mut home, mut host) = away(&world);
    let events = home.ask(&Command::Bring { hold: false });
    called_home(&mut host);
    let mut image = host.luggage.image();
    let one = writable(&image).clone();
    for number in 0..limit {
        let start = (16 << 40) + number * APART;
        let end = start + APART / 2;
        image.mappings.push(Mapping {
            start,
            end,
            ..one.clone()
        });
    }
    image.mappings.sort_by_key(|mapping| mapping.start);
    host.sends_home(&image, 1 << 30);
    let reason = refusal(&events, &mut host);
    assert!(reason.contains("vm.max_map_count"), "{reason}");
    // The host hears of it on another way than the one who asked.
    let end = Instant::now() + PATIENCE;
    while !host.resumed {
        assert!(Instant::now() < end && !host.over);
        host.serve();
        host.beat();
    }
    // Its calls are made again, and when it has fewer mappings, it comes home.
    host.called_home = false;
    for _ in 0..3 {
        let write = [1, BUFFER, 2, 0, 0, 0];
        assert_eq!(host.ask(libc::SYS_write, write, b"x\n"), Some(2));
    }
    let _events = home.ask(&Command::Bring { hold: false });
    called_home(&mut host);
    let image = host.luggage.image();
    host.sends_home(&image, 1 << 30);
    while !host.over {
        host.serve();
    }
    is_home(&program, &mut home, SEEN);
}

/// A clock that lies stops the program for no longer than a lease.
#[test]
fn a_returning_clock_is_not_waited_for_longer_than_a_lease() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let attempt = tries("have a returning program stand still, by a clock that is an hour ahead");
    let world = World::new(Some(LEASE));
    let (program, mut home, mut host) = away(&world);
    let events = home.ask(&Command::Bring { hold: false });
    called_home(&mut host);
    let mut image = host.luggage.image();
    image.clocks.monotonic_ns += HOUR_NS;
    image.clocks.boottime_ns += HOUR_NS;
    host.sends_home(&image, 1 << 30);
    let begun = Instant::now();
    while !host.over {
        host.serve();
        assert!(begun.elapsed() < LEASE + BEYOND + SEEN, "It stands still");
    }
    is_home(&program, &mut home, SEEN);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Done { .. }))
    );
    attempt.failed("it goes on by home's clock after a lease");
}
