//! Lines whose connections break.
#![forbid(unsafe_code)]

mod support;

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{TIMEOUT, connect, expect_journey, init, journey};
use whim_attempts::{Attempt, Party};
use whim_journey::frame::{Kind, PROTOCOL_VERSION};
use whim_journey::message::{self, ChannelRole, Hello, Resume};
use whim_journey::session::KEPT_BYTES_MAX;
use whim_net::door::WAITING_MAX;
use whim_net::line::Dialing;
use whim_net::name::journey_server_name;
use whim_net::state::State;
use whim_net::{
    Channel, ChannelError, Credentials, Door, Fresh, Line, Rhythm, Role, meanwhile, unix_now,
};
use whim_sys::pulse;

const LEASE: Duration = Duration::from_secs(20);

/// The waiting side's port: it accepts as long as it is open, and can cut what it has accepted.
struct Port {
    address: SocketAddr,
    door: Arc<Door>,
    open: Arc<AtomicBool>,
    /// In whose name it says that nobody is here any more.
    farewell: Arc<Mutex<Option<Credentials>>>,
    last: Arc<Mutex<Option<TcpStream>>>,
}

impl Port {
    fn new(credentials: Credentials) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = Self {
            address: listener.local_addr().expect("an address"),
            door: Door::new().expect("a descriptor"),
            open: Arc::new(AtomicBool::new(true)),
            farewell: Arc::default(),
            last: Arc::default(),
        };
        let (door, open) = (Arc::clone(&port.door), Arc::clone(&port.open));
        let (last, farewell) = (Arc::clone(&port.last), Arc::clone(&port.farewell));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !open.load(Ordering::SeqCst) {
                    continue;
                }
                *last.lock().expect("whole") = stream.try_clone().ok();
                let expect = expect_journey("j1", Role::Home);
                if let Some(name) = &*farewell.lock().expect("whole") {
                    // Whether it is believed is seen on the other side.
                    let _ = Channel::bid_farewell(stream, name, &expect, TIMEOUT);
                    continue;
                }
                let Ok(mut channel) = Channel::accept(stream, &credentials, &expect, TIMEOUT)
                else {
                    continue;
                };
                let Ok(frame) = channel.receive_frame(TIMEOUT) else {
                    continue;
                };
                let (hello, _) = message::decode::<Hello>(&frame.payload).expect("a Hello");
                let resume = hello.resume;
                door.bring(Fresh { channel, resume });
            }
        });
        port
    }

    /// Cuts the connection that came last, if any.
    fn cut(&self) {
        if let Some(stream) = self.last.lock().expect("whole").take() {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Both ends of a line, and what is between them.
fn lines(lease: Duration) -> (Line, Line, Port) {
    let (_directory, n1) = init("n1", unix_now());
    lines_of(&n1, lease)
}

fn credentials(node: &State, id: &str, role: Role) -> Credentials {
    let made = node.journey_credentials(&journey(id), role, unix_now());
    made.expect("made")
}

fn lines_of(n1: &State, lease: Duration) -> (Line, Line, Port) {
    let port = Port::new(credentials(n1, "j1", Role::Guest));
    let (address, home) = (port.address, credentials(n1, "j1", Role::Home));
    let connect = Arc::new(move |within: Duration| {
        let name = journey_server_name(&journey("j1"), Role::Guest);
        let expect = expect_journey("j1", Role::Guest);
        Channel::connect(address, &name, &home, &expect, within)
    });
    let hello = Hello {
        journey: "j1".into(),
        epoch: 1,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        role: ChannelRole::Calls,
        resume: None,
    };
    let mut channel = connect(TIMEOUT).expect("connected");
    let bytes = message::encode(&hello).expect("encoded");
    channel
        .send_now(Kind::ToGuest, 1, &[&bytes], TIMEOUT)
        .expect("sent");
    let dialing = Dialing {
        connect,
        hello,
        kind: Kind::ToGuest,
        expects_beats: true,
    };
    let left = Line::dialing(channel, 1, dialing, Some(lease)).expect("a line");
    let begun = Instant::now();
    let fresh = loop {
        if let Some(fresh) = port.door.take().pop_front() {
            break fresh;
        }
        assert!(begun.elapsed() < TIMEOUT, "nobody came");
        std::thread::yield_now();
    };
    let door = Arc::clone(&port.door);
    let right = Line::waiting(fresh, 1, door, Some(lease));
    (left, right, port)
}

/// Sends numbers in frames of all sizes while it receives those of the other side.
fn talk(line: &mut Line, mine: u64, others: u64, finished: &AtomicU32) {
    let (mut sent, mut got) = (0, 0);
    while sent < mine || got < others {
        if sent < mine {
            let padding = vec![7; usize::try_from(sent * 7919 % 60_000).expect("small")];
            let parts: [&[u8]; 2] = [&sent.to_le_bytes(), &padding];
            if sent % 3 == 0 {
                line.send_now(Kind::Data, 1, &parts, TIMEOUT).expect("sent");
            } else {
                line.queue(Kind::Data, 1, &parts);
                line.flush().expect("flushed");
            }
            sent += 1;
            line.receive().expect("received");
        }
        while got < others {
            let frame = if sent < mine {
                line.next_frame()
            } else {
                Some(line.receive_frame(TIMEOUT).expect("received"))
            };
            let Some(frame) = frame else { break };
            assert_eq!(frame.payload[..8], u64::to_le_bytes(got));
            let length = usize::try_from(got * 7919 % 60_000).expect("small");
            assert_eq!(frame.payload.len(), 8 + length);
            got += 1;
        }
    }
    finished.fetch_add(1, Ordering::SeqCst);
    // What we have sent may have to be sent again.
    while finished.load(Ordering::SeqCst) < 2 {
        line.tick().expect("ticked");
        line.receive().expect("received");
        line.flush().expect("flushed");
        std::thread::yield_now();
    }
}

#[test]
fn everything_arrives_once_and_in_order_whatever_breaks() {
    let (mut left, mut right, port) = lines(LEASE);
    let finished = AtomicU32::new(0);
    let cuts = std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            let mut cuts = 0;
            while finished.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(3 + cuts % 7 * 5));
                port.cut();
                cuts += 1;
            }
            cuts
        });
        let other = scope.spawn(|| talk(&mut right, 1500, 1700, &finished));
        talk(&mut left, 1700, 1500, &finished);
        other.join().expect("all came");
        cutter.join().expect("joined")
    });
    assert!(cuts > 3, "it was over before anything broke ({cuts})");
}

#[test]
fn a_break_that_lasts_longer_than_the_lease_is_the_end() {
    let lease = Duration::from_millis(300);
    let (mut left, _right, port) = lines(lease);
    port.open.store(false, Ordering::SeqCst);
    port.cut();
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = left.send_now(Kind::Data, 1, &[b"x"], TIMEOUT) {
            break error;
        }
    };
    assert!(matches!(error, ChannelError::Lost(_)), "{error}");
    assert!(begun.elapsed() >= lease, "after {:?}", begun.elapsed());
}

/// The supervisor has died, and its node answers in somebody's name: what the other side hears of it.
fn after_a_farewell(lease: Duration, name: &str, role: Role) -> ChannelError {
    let (_directory, n1) = init("n1", unix_now());
    let (mut left, right, port) = lines_of(&n1, lease);
    *port.farewell.lock().expect("whole") = Some(credentials(&n1, name, role));
    port.cut();
    drop(right);
    loop {
        if let Err(error) = left.send_now(Kind::Data, 1, &[b"x"], TIMEOUT) {
            return error;
        }
    }
}

#[test]
fn a_peer_whose_node_says_that_it_has_ended_is_not_waited_for() {
    let error = after_a_farewell(Duration::MAX, "j1", Role::Guest);
    assert!(matches!(error, ChannelError::Closed), "{error}");
}

#[test]
fn a_farewell_in_another_name_is_not_believed() {
    for (name, role) in [("j2", Role::Guest), ("j1", Role::Home)] {
        let what = format!("end a journey by a farewell in the name of {name} {role}");
        let attempt = Attempt::new(Party::Member, what);
        let error = after_a_farewell(Duration::from_millis(300), name, role);
        assert!(
            matches!(error, ChannelError::Lost(_)),
            "{name} {role}: {error}"
        );
        attempt.failed("not believed: the session waits for the rest of its lease");
    }
}

#[test]
fn whoever_sends_too_much_waits_until_some_of_it_has_come() {
    let attempt = Attempt::new(
        Party::Member,
        "fill a peer's memory with frames that it never acknowledges",
    );
    let (mut left, mut right, _port) = lines(LEASE);
    let payload = vec![1; 1 << 20];
    let mut sent = 0;
    while !left.is_full() {
        left.queue(Kind::Pages, 1, &[&payload]);
        sent += 1;
    }
    assert!(sent * payload.len() <= KEPT_BYTES_MAX);
    let short = Duration::from_millis(50);
    let error = left.send_now(Kind::Pages, 1, &[&payload], short);
    assert!(matches!(error, Err(ChannelError::Timeout { .. })));
    let reader = std::thread::spawn(move || {
        for _ in 0..=sent + 1 {
            right.receive_frame(TIMEOUT).expect("received");
        }
    });
    left.send_now(Kind::Pages, 1, &[&payload], TIMEOUT)
        .expect("room again");
    reader.join().expect("all came");
    attempt.failed("the sender waits");
}

#[test]
fn of_too_many_fresh_connections_the_older_ones_go() {
    let (_directory, n1) = init("n1", unix_now());
    let (home, guest) = (
        credentials(&n1, "j1", Role::Home),
        credentials(&n1, "j1", Role::Guest),
    );
    let (to_home, to_guest) = (
        expect_journey("j1", Role::Home),
        expect_journey("j1", Role::Guest),
    );
    let door = Door::new().expect("a descriptor");
    let mut others = Vec::new();
    let mut bring = |attempt| {
        let (other, channel) = connect((&home, &to_guest), (&guest, &to_home));
        others.push(other.expect("connected"));
        door.bring(Fresh {
            channel: channel.expect("accepted"),
            resume: Some(Resume {
                attempt,
                received: 0,
            }),
        });
    };
    let attempts = || -> Vec<u32> {
        let fresh = door.take().into_iter();
        fresh.filter_map(|one| Some(one.resume?.attempt)).collect()
    };
    let limit = u32::try_from(WAITING_MAX).expect("small");
    (1..=limit).for_each(&mut bring);
    assert_eq!(attempts(), (1..=limit).collect::<Vec<_>>());
    (1..=limit + 1).for_each(&mut bring);
    assert_eq!(attempts(), (2..=limit + 1).collect::<Vec<_>>());
    // Who made the one that went sees it.
    let gone = &mut others[WAITING_MAX];
    let seen = gone.receive_frame(TIMEOUT).expect_err("closed");
    assert!(
        matches!(seen, ChannelError::Closed | ChannelError::Lost(_)),
        "{seen}"
    );
}

#[test]
fn a_peer_that_takes_nothing_is_waited_for_as_long_as_it_is_heard_of() {
    let (mut left, mut right, _port) = lines(LEASE);
    let payload = vec![1; 1 << 20];
    let mut sent = 0;
    while !left.is_full() {
        left.queue(Kind::Pages, 1, &[&payload]);
        sent += 1;
    }
    let silence = Duration::from_millis(200);
    let reader = std::thread::spawn(move || {
        for _ in 0..20 {
            right.queue(Kind::ToGuest, 1, &[b"beat"]);
            right.flush().expect("flushed");
            right.receive().expect("received");
            std::thread::sleep(silence / 4);
        }
        for _ in 0..=sent {
            right.receive_frame(TIMEOUT).expect("received");
        }
        right
    });
    left.send_to_a_living(Kind::Pages, 1, &[&payload], silence)
        .expect("it was heard of");
    let _silent = reader.join().expect("all came");
    while !left.is_full() {
        left.queue(Kind::Pages, 1, &[&payload]);
    }
    let begun = Instant::now();
    let error = left.send_to_a_living(Kind::Pages, 1, &[&payload], silence);
    assert!(matches!(error, Err(ChannelError::Timeout { .. })));
    assert!(begun.elapsed() >= silence);
}

/// How many heartbeats come within this time, and when the last one did.
fn beats(line: &mut Line, within: Duration) -> (u32, Duration) {
    let begun = Instant::now();
    let (mut count, mut last) = (0, Duration::ZERO);
    while begun.elapsed() < within {
        line.flush().expect("flushed");
        match line.receive_frame(Duration::from_millis(10)) {
            Ok(_) => (count, last) = (count + 1, begun.elapsed()),
            Err(ChannelError::Timeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (count, last)
}

#[test]
fn work_that_hangs_is_vouched_for_no_longer_than_its_patience() {
    let rhythm = Rhythm {
        every: Duration::from_millis(20),
        patience: Duration::from_millis(200),
    };
    let long = Duration::from_millis(1000);
    let (mut left, mut right, port) = lines(LEASE);
    let beat = |line: &mut Line| line.queue(Kind::ToGuest, 1, &[b"beat"]);
    let mut during = |pieces: usize, work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| beats(&mut right, long));
            meanwhile(&mut left, pieces, rhythm, beat, work);
            other.join().expect("joined")
        })
    };
    // It gets on, and what breaks meanwhile is made again.
    let (count, last) = during(usize::MAX, &|| {
        pulse::sleep(long / 2);
        port.cut();
        pulse::sleep(long / 2);
    });
    assert!(count > 10 && last > long * 3 / 4, "{count}, until {last:?}");
    let (count, last) = during(usize::MAX, &|| std::thread::sleep(long));
    assert!(count > 3 && last < long / 2, "{count}, until {last:?}");
    // A few pieces are not worth a thread.
    let (count, _) = during(3, &|| pulse::sleep(long));
    assert_eq!(count, 0);
}
