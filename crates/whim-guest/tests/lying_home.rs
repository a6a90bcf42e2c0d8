//! A home that lies: what it may have a host's supervisor do, and what not. The supervisor is a real
//! one; the home is this test, which sends what no home would send.
#![forbid(unsafe_code)]

#[path = "support/image.rs"]
mod image;
#[path = "support/liar.rs"]
mod liar;
#[allow(dead_code, reason = "each test uses a part")]
mod support;

use image::{DATA, FILE, PAGE, STACK, TIB, mapping};
use liar::{Liar, PATIENCE, PID, prepare};
use std::time::{Duration, Instant};
use support::{Host, World};
use whim_attempts::{Attempt, Party};
use whim_home::connections::Connections;
use whim_journey::frame::{Kind, PROTOCOL_VERSION};
use whim_journey::job::State;
use whim_journey::message::{self, ChannelRole, ClockPair, Hello, PageRequest, ToGuest, ToHome};
use whim_model::{Backing, Clocks, MappingId, ProcessImage, QueuedSignal, Range, SignalAction};
use whim_net::{Channel, ChannelError, JourneyId, PeerExpectation, Role};
use whim_sys::process_vm;

fn tries(what: impl Into<String>) -> Attempt {
    Attempt::new(Party::LyingHome, what)
}

/// What is wrong with an image.
type Fault = (&'static str, fn(&mut ProcessImage));

/// Each fault in an image of its own, shown to a supervisor of its own.
fn each_is_refused(faults: &[Fault]) {
    let sound = image::image(PID, 2);
    for (what, fault) in faults {
        let attempt = tries(format!("send an image with {what}"));
        let mut lie = sound.clone();
        fault(&mut lie);
        let mut liar = Liar::prepared();
        liar.shows(&lie);
        // What cannot be seen before is seen when it is carried out.
        let clocks = Clocks::default();
        let _ = liar
            .connections
            .send(&ToGuest::Complete { clocks }, PATIENCE);
        attempt.failed(liar.refused(what));
    }
}

/// The image that all the others are made from is none of the lies.
#[test]
fn the_sound_image_is_taken() {
    let liar = Liar::started(&image::image(PID, 2));
    liar.passed_over(State::Away);
}

#[test]
fn false_mappings_are_refused() {
    each_is_refused(&[
        ("a mapping in the reserved range", |image| {
            let at = image.reserved.start;
            let lie = mapping(at, at + PAGE, 7, Backing::Anonymous);
            let behind = image.mappings.partition_point(|m| m.start < at);
            image.mappings.insert(behind, lie);
        }),
        ("mappings that overlap", |image| {
            image.mappings[1].start = image.mappings[0].start;
        }),
        ("mappings out of order", |image| image.mappings.swap(0, 1)),
        ("a mapping beyond user space", |image| {
            let last = image.mappings.len() - 1;
            image.mappings[last].end = 1 << 62;
        }),
        ("a mapping of a part of a page", |image| {
            image.mappings[0].end -= 1;
        }),
        ("a mapping that ends before it begins", |image| {
            image.mappings[0].end = image.mappings[0].start - PAGE;
        }),
        ("a protection that does not exist", |image| {
            image.mappings[0].protection.0 = 0xff;
        }),
        ("a file's mapping whose offset wraps", |image| {
            let id = MappingId(3);
            let offset = u64::MAX - 4095;
            image.mappings[2].backing = Backing::File { id, offset };
        }),
        ("a file's mapping from within a page", |image| {
            let id = MappingId(3);
            image.mappings[2].backing = Backing::File { id, offset: 7 };
        }),
        ("more mappings than a process can have", |image| {
            let at = |n: u64| mapping(n * PAGE, (n + 1) * PAGE, 1, Backing::Anonymous);
            image.mappings = (16..17 + (1 << 18)).map(at).collect();
        }),
        ("guard pages outside of its mappings", |image| {
            image.guards = vec![Range {
                start: STACK,
                end: STACK + PAGE,
            }];
        }),
        ("no reserved range", |image| {
            image.reserved = Range::default()
        }),
        ("a reserved range beyond user space", |image| {
            image.reserved.end = 1 << 50;
        }),
        ("a reserved range that is not aligned", |image| {
            image.reserved.start += PAGE;
        }),
    ]);
}

#[test]
fn a_false_vdso_is_refused() {
    each_is_refused(&[
        ("a vDSO that is none", |image| image.vdso = vec![0x90; 8192]),
        ("a vDSO that is cut off", |image| image.vdso.truncate(64)),
        ("a vDSO that is too long", |image| {
            image.vdso = vec![0; (64 << 10) + 1];
        }),
        ("a mapping of the kernel's that it has not", |image| {
            let name = "[vsyscall]".to_owned();
            image.mappings[0].backing = Backing::Kernel { name };
        }),
        ("the vDSO twice", |image| {
            let name = "[vdso]".to_owned();
            let found = image
                .mappings
                .iter()
                .find(|m| matches!(&m.backing, Backing::Kernel { name } if name == "[vdso]"));
            let length = found.expect("a vDSO").len();
            let at = FILE + 64 * PAGE;
            let again = mapping(at, at + length, 5, Backing::Kernel { name });
            let behind = image.mappings.partition_point(|m| m.start < at);
            image.mappings.insert(behind, again);
        }),
    ]);
}

#[test]
fn false_threads_are_refused() {
    each_is_refused(&[
        ("no thread", |image| image.threads.clear()),
        ("another leader", |image| image.threads.swap(0, 1)),
        ("a thread twice", |image| image.threads[1].tid = PID),
        ("a thread with a negative number", |image| {
            image.threads[1].tid = -1;
        }),
        ("more threads than a guest may have", |image| {
            let first = image.threads[0].clone();
            let numbered = |tid| {
                let mut thread = first.clone();
                // Short, so that the image is not refused for its length.
                thread.xstate = Vec::new();
                thread.tid = tid;
                thread
            };
            image.threads = (PID..=PID + 4096).map(numbered).collect();
        }),
        ("the base of a segment in the kernel's half", |image| {
            image.threads[0].registers.fs_base = 0xffff_8000_0000_0000;
        }),
        ("the other base in the kernel's half", |image| {
            image.threads[1].registers.gs_base = 1 << 63;
        }),
        ("the kernel's code segment", |image| {
            image.threads[0].registers.cs = 0x10;
        }),
        ("vector registers that are cut off", |image| {
            image.threads[0].xstate.truncate(100);
        }),
        ("vector registers of no CPU", |image| {
            image.threads[0].xstate[512..576].fill(0xff);
        }),
        ("vector registers of a megabyte", |image| {
            image.threads[0].xstate.resize(1 << 20, 0);
        }),
        ("an rseq area in the kernel's half", |image| {
            image.threads[0].rseq = Some(whim_model::RseqRegistration {
                address: 0xffff_8000_0000_0000,
                length: 32,
                signature: 1,
                flags: 0,
            });
        }),
        ("a list of robust locks of no length", |image| {
            image.threads[0].robust_list = (DATA, 7);
        }),
    ]);
}

#[test]
fn false_process_state_is_refused() {
    each_is_refused(&[
        ("another process's number", |image| {
            image.pid = 1;
            image.threads[0].tid = 1;
        }),
        ("an action too few", |image| {
            image.actions.pop();
        }),
        ("an action too many", |image| {
            image.actions.push(SignalAction::default());
        }),
        ("a signal 0 that waits", |image| {
            image.pending = vec![QueuedSignal {
                signal: 0,
                info: vec![0; 128],
            }];
        }),
        ("a signal 65 that waits for a thread", |image| {
            image.threads[1].pending = vec![QueuedSignal {
                signal: 65,
                info: vec![0; 128],
            }];
        }),
        ("a signal with a short siginfo", |image| {
            image.pending[0].info.truncate(12);
        }),
        ("an auxiliary vector of 3 MiB", |image| {
            image.layout.auxv = vec![1; 3 << 20];
        }),
        ("a heap in the kernel's half", |image| {
            image.layout.brk = u64::MAX;
        }),
    ]);
}

/// Registers with which the kernel lets a thread run, to its own harm.
#[test]
fn a_guest_with_false_registers_harms_itself_alone() {
    let lies: [Fault; 3] = [
        ("rip in the kernel's half", |image| {
            image.threads[0].registers.rip = 0xffff_8000_0000_0000;
        }),
        ("a rip that is not canonical", |image| {
            image.threads[0].registers.rip = 1 << 60;
        }),
        ("flags that only the kernel may set", |image| {
            image.threads[0].registers.eflags = u64::MAX;
            image.threads[0].registers.rip = 1 << 60;
        }),
    ];
    for (what, fault) in lies {
        let attempt = tries(format!("run a guest with {what}"));
        let mut lie = image::image(PID, 1);
        lie.threads[0].signal_mask = 0;
        fault(&mut lie);
        let mut liar = Liar::started(&lie);
        // Its death is home's to bring about.
        let said = liar.hears();
        assert!(matches!(said, ToHome::GoHome { .. }), "{said:?}");
        liar.passed_over(State::Away);
        attempt.failed("a fatal signal of the guest's, which home is asked to deliver");
    }
}

/// What is said out of turn.
#[test]
fn frames_out_of_turn_are_refused() {
    type Lie = (&'static str, fn() -> Liar, fn(&mut Liar));
    let lies: [Lie; 14] = [
        ("Commit without an image", Liar::prepared, |liar| {
            let clocks = Clocks::default();
            liar.say(&ToGuest::Commit { clocks });
        }),
        ("Complete without an image", Liar::prepared, |liar| {
            let clocks = Clocks::default();
            liar.say(&ToGuest::Complete { clocks });
        }),
        ("Prepare twice", Liar::prepared, |liar| {
            liar.say(&prepare(PID));
        }),
        ("an image without Prepare", Liar::connected, |liar| {
            liar.shows(&image::image(PID, 1));
        }),
        ("Acknowledged without a guest", Liar::prepared, |liar| {
            liar.say(&ToGuest::Acknowledged);
        }),
        ("pages without an image", Liar::prepared, |liar| {
            liar.sends_pages(DATA, &[0; 4096]);
        }),
        ("pages of no mapping", shown, |liar| {
            liar.sends_pages(0x10_0000, &[0; 4096]);
        }),
        ("pages into the reserved range", shown, |liar| {
            liar.sends_pages(16 * TIB, &[0; 4096]);
        }),
        ("pages at an address that wraps", shown, |liar| {
            liar.sends_pages(u64::MAX - 4095, &[0; 8192]);
        }),
        ("a part of a page", shown, |liar| {
            liar.sends_pages(DATA, &[0; 4095]);
        }),
        ("pages without an address", shown, |liar| {
            liar.send(Kind::Pages, &[0; 7]);
        }),
        ("an image twice", shown, |liar| {
            liar.shows(&image::image(PID, 1));
        }),
        ("a request for pages", shown, |liar| {
            liar.send(Kind::PageRequest, &[0; 24]);
        }),
        ("a message that is none", Liar::connected, |liar| {
            liar.send(Kind::ToGuest, &[0xff; 64]);
        }),
    ];
    for (what, begin, lie) in lies {
        let attempt = tries(format!("send {what}"));
        let mut liar = begin();
        lie(&mut liar);
        attempt.failed(liar.refused(what));
    }
}

/// An image is there, its pages are awaited.
fn shown() -> Liar {
    let mut liar = Liar::prepared();
    liar.shows(&image::image(PID, 1));
    liar
}

#[test]
fn false_pieces_of_an_image_are_refused() {
    let piece = |total: u32, offset: u32, bytes: &[u8]| {
        [&total.to_le_bytes()[..], &offset.to_le_bytes(), bytes].concat()
    };
    for (what, payload) in [
        ("a piece that is not the first", piece(4096, 8, &[0; 8])),
        (
            "a piece that is longer than the whole",
            piece(8, 0, &[0; 9]),
        ),
        ("a first piece of 65 MiB", piece(65 << 20, 0, &[0; 9])),
        ("a piece without a head", vec![0; 7]),
        ("an image of nothing", piece(0, 0, &[])),
        ("an image of zeros", piece(64, 0, &[0; 64])),
        ("an image of other bytes", piece(64, 0, &[0xff; 64])),
    ] {
        let attempt = tries(format!("send {what}"));
        let mut liar = Liar::prepared();
        liar.send(Kind::Image, &payload);
        attempt.failed(liar.refused(what));
    }
}

#[test]
fn processes_that_cannot_be_are_refused() {
    for pid in [0, -1, i32::MIN, i32::MAX] {
        let attempt = tries(format!("have process {pid} made"));
        let mut liar = Liar::connected();
        liar.say(&prepare(pid));
        attempt.failed(liar.refused("a process number"));
    }
    let attempt = tries("have a process made with clocks that no kernel sets");
    let mut liar = Liar::connected();
    let far = Clocks {
        monotonic_ns: u64::MAX / 2,
        boottime_ns: u64::MAX / 2 + 7,
        realtime_ns: 0,
    };
    let clocks = ClockPair {
        host: Clocks::default(),
        home: far,
    };
    liar.say(&ToGuest::Prepare {
        pid: PID,
        own_pid: PID,
        uid: 0,
        threads: 1,
        resident_bytes: 0,
        clocks,
        lease_ms: Some(u64::MAX),
    });
    attempt.failed(liar.refused("clocks"));
}

#[test]
fn frames_of_another_epoch_are_passed_over() {
    let attempt = tries("command a guest by frames of another epoch");
    let mut liar = Liar::started(&image::image(PID, 1));
    let discard = message::encode(&ToGuest::Discard).expect("encoded");
    for epoch in [0, 2, u32::MAX] {
        let calls = &mut liar.connections.calls;
        let sent = calls.send_now(Kind::ToGuest, epoch, &[&discard], PATIENCE);
        sent.expect("sent");
    }
    // Whatever was sent before it has been looked at when this is answered.
    liar.say(&ToGuest::Ping);
    while !matches!(liar.hears(), ToHome::Pong { .. }) {}
    liar.passed_over(State::Away);
    attempt.failed("passed over");
}

/// Data for messages that never come.
#[test]
fn data_without_messages_is_bounded() {
    let attempt = tries("fill a supervisor's memory with data of one thread");
    let mut liar = Liar::prepared();
    let payload = [&7i32.to_le_bytes()[..], &[0; 1 << 20]].concat();
    for _ in 0..36 {
        let (calls, epoch) = (&mut liar.connections.calls, liar.connections.epoch);
        if calls
            .send_now(Kind::Data, epoch, &[&payload], PATIENCE)
            .is_err()
        {
            break;
        }
    }
    attempt.failed(liar.refused("data of one thread"));
    let attempt = tries("fill a supervisor's memory with data of many threads");
    let mut liar = Liar::prepared();
    for tid in 0..65i32 {
        liar.connections
            .calls
            .queue(Kind::Data, 1, &[&tid.to_le_bytes(), b"x"]);
    }
    liar.connections.calls.flush().expect("sent");
    attempt.failed(liar.refused("data of many threads"));
}

#[test]
fn answers_and_signals_that_cannot_be_are_passed_over() {
    let attempt =
        tries("answer a call with more than its buffers hold, and calls that nobody made");
    let mut liar = Liar::started(&image::image(PID, 1));
    let request = liar.page_request();
    liar.answers_page(request.request, 0, &vec![0x5a; 8 << 12]);
    let call = loop {
        if let ToHome::Call(call) = liar.hears() {
            break call;
        }
    };
    for (tid, sequence) in [(call.tid, call.sequence + 1), (1, call.sequence), (-1, 0)] {
        liar.say(&ToGuest::Reply {
            tid,
            sequence,
            result: 1,
            outputs: vec![u32::MAX; 100],
            mapping: Some(MappingId(u32::MAX)),
        });
    }
    liar.say(&ToGuest::Reply {
        tid: call.tid,
        sequence: call.sequence,
        result: 77,
        outputs: vec![u32::MAX; 100],
        mapping: Some(MappingId(7)),
    });
    let next = loop {
        if let ToHome::Call(call) = liar.hears() {
            break call;
        }
    };
    assert_eq!((next.tid, next.number), (call.tid, call.number));
    attempt.failed("it is given the result alone");
    let attempt = tries("deliver signals that do not exist, or without their siginfo");
    for (signal, length) in [(0u8, 128), (65, 128), (255, 128), (10, 0), (10, 129)] {
        for tid in [None, Some(PID), Some(-5)] {
            let info = vec![0xff; length];
            liar.say(&ToGuest::Signal { tid, signal, info });
        }
    }
    liar.say(&ToGuest::Ping);
    while !matches!(liar.hears(), ToHome::Pong { .. }) {}
    liar.passed_over(State::Away);
    attempt.failed("passed over");
}

/// The guest's process: the one below this one that has the image's memory.
fn guest_below(process: u32) -> Option<i32> {
    let children = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(children).ok()?;
    let memory = format!("{DATA:08x}-");
    children.split_whitespace().find_map(|child| {
        let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).ok()?;
        let child: u32 = child.parse().ok()?;
        if maps.lines().any(|line| line.starts_with(&memory)) {
            return i32::try_from(child).ok();
        }
        guest_below(child)
    })
}

/// A kernel that is given a restart number while no signal is due shows it to the program.
#[test]
fn an_interrupted_call_is_made_again_where_no_signal_is_due() {
    const ERESTARTSYS: i64 = -512;
    let attempt = tries("have a program see a number that is the kernel's own");
    let mut liar = Liar::started(&image::image(PID, 1));
    let request = liar.page_request();
    liar.answers_page(request.request, 0, &vec![0x5a; 8 << 12]);
    // What the program has been told when it makes its next call.
    let told = |liar: &mut Liar| {
        let call = loop {
            if let ToHome::Call(call) = liar.hears() {
                break call;
            }
        };
        let guest = guest_below(liar.host.process_id()).expect("a guest");
        let mut bytes = [0; 8];
        process_vm::read_exact(guest, DATA + 128, &mut bytes).expect("its memory");
        (call, i64::from_ne_bytes(bytes))
    };
    let (mut call, before) = told(&mut liar);
    assert_eq!(before, 0);
    for (result, expected) in [(77, 77), (ERESTARTSYS, 77), (78, 78)] {
        liar.say(&ToGuest::Reply {
            tid: call.tid,
            sequence: call.sequence,
            result,
            outputs: Vec::new(),
            mapping: None,
        });
        let (next, seen) = told(&mut liar);
        assert_eq!(seen, expected, "after {result}");
        assert_eq!((next.number, next.tid), (call.number, call.tid));
        call = next;
    }
    liar.passed_over(State::Away);
    attempt.failed("the call is made again");
}

#[test]
fn false_pages_end_the_guest_alone() {
    type Lie = (&'static str, fn(&mut Liar, PageRequest));
    let lies: [Lie; 3] = [
        ("pages that nobody asked for", |liar, request| {
            liar.answers_page(request.request + 1000, 0, &[0; 4096]);
        }),
        ("pages without a number", |liar, _| {
            let epoch = liar.connections.epoch;
            let pages = &mut liar.connections.pages;
            let sent = pages.send_now(Kind::PageReply, epoch, &[&[0; 15]], PATIENCE);
            sent.expect("sent");
        }),
        ("the same pages twice", |liar, request| {
            liar.answers_page(request.request, 0, &vec![0; 8 << 12]);
            liar.answers_page(request.request, 0, &vec![0; 8 << 12]);
        }),
    ];
    for (what, lie) in lies {
        let attempt = tries(format!("send {what}"));
        let mut liar = Liar::started(&image::image(PID, 1));
        let request = liar.page_request();
        lie(&mut liar, request);
        attempt.failed(liar.refused(what));
    }
    let attempt = tries("send more pages than were asked for");
    let mut liar = Liar::started(&image::image(PID, 1));
    let request = liar.page_request();
    liar.answers_page(request.request, 0, &vec![0x5a; 1 << 20]);
    while !matches!(liar.hears(), ToHome::Call(_)) {}
    liar.passed_over(State::Away);
    attempt.failed("only those that were asked for are placed");
}

#[test]
fn nothing_of_a_refused_guest_stays() {
    let attempt = tries("leave a process behind at a host that refused its image");
    let mut liar = shown();
    let supervisor = liar.host.process_id();
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let begun: Vec<String> = std::fs::read_to_string(&children)
        .expect("its children")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert!(!begun.is_empty(), "it has a sandbox");
    liar.send(Kind::ToGuest, &[0xff; 64]);
    liar.refused("no message");
    let patience = Instant::now();
    for child in begun {
        while std::path::Path::new(&format!("/proc/{child}")).exists() {
            assert!(patience.elapsed() < PATIENCE, "{child} is still there");
            std::thread::yield_now();
        }
    }
    attempt.failed("the sandbox ends with its supervisor");
}

/// A first message for a connection of its own, by whoever these credentials are of; what the
/// supervisor says before it closes, if anything.
fn greets(world: &World, host: &Host, (node, role): (&str, Role), hello: &Hello) -> Option<String> {
    let credentials = world.credentials(node, "lies", role);
    let id = JourneyId::new("lies").expect("a name");
    let expect = PeerExpectation::Journey {
        id,
        node: None,
        role: Role::Guest,
    };
    let address = host.slot.addresses[0].parse().expect("an address");
    let name = &host.slot.server_name;
    let mut channel =
        Channel::connect(address, name, &credentials, &expect, PATIENCE).expect("connected");
    let bytes = message::encode(hello).expect("encoded");
    let sent = channel.send_now(Kind::ToGuest, hello.epoch, &[&bytes], PATIENCE);
    sent.expect("sent");
    match channel.receive_frame(PATIENCE) {
        Ok(frame) => match message::decode(&frame.payload).expect("a message").0 {
            ToHome::Failed { reason, .. } => Some(reason),
            other => panic!("{other:?}"),
        },
        Err(ChannelError::Closed | ChannelError::Lost(_)) => None,
        Err(error) => panic!("it was not refused: {error}"),
    }
}

fn hello(role: ChannelRole) -> Hello {
    Hello {
        journey: "lies".into(),
        epoch: 1,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        role,
        resume: None,
    }
}

#[test]
fn other_versions_are_refused_by_a_sentence_with_both() {
    let world = World::new();
    let host = world.host("n2", "lies", 1);
    for (what, min, max) in [
        ("older", 1, PROTOCOL_VERSION - 1),
        ("newer", PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 3),
        ("empty", PROTOCOL_VERSION + 1, PROTOCOL_VERSION - 1),
        ("highest", u16::MAX, u16::MAX),
    ] {
        let what = format!("begin a journey by versions of the protocol that are {what}");
        let attempt = Attempt::new(Party::OldVersion, what);
        for role in [ChannelRole::Calls, ChannelRole::Pages] {
            let strange = Hello {
                version_min: min,
                version_max: max,
                ..hello(role)
            };
            let told = greets(&world, &host, ("n1", Role::Home), &strange).expect("told why");
            let theirs = format!("n1 speaks versions {min} to {max}");
            let ours = format!("version {PROTOCOL_VERSION}");
            assert!(told.contains(&theirs) && told.contains(&ours), "{told}");
        }
        assert_eq!(host.state(), Some(State::Moving), "it waits for its home");
        attempt.failed("refused by a sentence that names both sides' versions");
    }
}

/// Nodes of the cluster that have no part in this journey, or another one than they say.
#[test]
fn others_do_not_get_into_a_journey() {
    let world = World::new();
    let host = world.host("n2", "lies", 1);
    let calls = || hello(ChannelRole::Calls);
    let other_journey = Hello {
        journey: "other".into(),
        ..calls()
    };
    let epoch = |epoch| Hello { epoch, ..calls() };
    let (home, guest) = (Role::Home, Role::Guest);
    for (what, who, hello) in [
        ("be home of another node's process", ("n3", home), calls()),
        ("fetch its pages", ("n3", home), hello(ChannelRole::Pages)),
        ("be home with a guest's certificate", ("n1", guest), calls()),
        (
            "send an image with a home's certificate",
            ("n1", home),
            hello(ChannelRole::Source),
        ),
        ("name another journey", ("n1", home), other_journey),
        ("come back in an older epoch", ("n1", home), epoch(0)),
        ("come in a later epoch", ("n1", home), epoch(2)),
    ] {
        let attempt = Attempt::new(Party::Member, format!("at a guest's supervisor: {what}"));
        let told = greets(&world, &host, who, &hello);
        assert_eq!(told, None, "{what}");
        assert_eq!(host.state(), Some(State::Moving), "{what}");
        attempt.failed("the connection is closed; the supervisor waits for its home");
    }
}

/// Every member can make a certificate for a guest of every journey, and was perhaps a host of it before.
#[test]
fn only_the_host_that_is_left_sends_a_guest() {
    let world = World::new();
    let hello = Hello {
        epoch: 2,
        ..hello(ChannelRole::Source)
    };
    let host = world.host("n3", "lies", 2);
    let from_home = Hello {
        epoch: 1,
        ..hello.clone()
    };
    let first = world.host("n2", "lies", 1);
    for (what, host, hello) in [
        ("another host than the one that it leaves", &host, &hello),
        ("a host, where it comes from home", &first, &from_home),
    ] {
        let attempt = Attempt::new(
            Party::Member,
            format!("at a guest's supervisor: send the image as {what}"),
        );
        let told = greets(&world, host, ("n4", Role::Guest), hello);
        assert_eq!(told, None, "{what}");
        assert_eq!(host.state(), Some(State::Moving), "{what}");
        attempt.failed("the connection is closed; the supervisor waits for the right one");
    }
}

/// Connections that say nothing hold each other up, not the home that comes when they are over.
#[test]
fn silent_connections_are_bounded() {
    /// As many as are greeted at the same time.
    const GREETED: usize = 8;
    let attempt = Attempt::new(
        Party::Stranger,
        "keep a guest's supervisor busy with silent connections",
    );
    let world = World::new();
    let host = world.host("n2", "lies", 1);
    let address = &host.slot.addresses[0];
    let silent = || std::net::TcpStream::connect(address).expect("connected");
    let mut kept: Vec<_> = (0..GREETED).map(|_| silent()).collect();
    let mut above = silent();
    let patience = Some(Duration::from_millis(2500));
    above.set_read_timeout(patience).expect("set");
    // Before any of the others is given up, which takes longer.
    let read = std::io::Read::read(&mut above, &mut [0; 16]);
    assert!(matches!(read, Ok(0)) || is_reset(&read), "{read:?}");
    let first = &mut kept[0];
    first.set_nonblocking(true).expect("set");
    let read = std::io::Read::read(first, &mut [0; 16]);
    let error = read.expect_err("it is still greeted");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop((kept, above));
    let credentials = world.credentials("n1", "lies", Role::Home);
    Connections::connect("lies", &host.slot, &credentials, None).expect("home gets in");
    attempt.failed("the ninth is closed at once; home gets in when they are over");
}

fn is_reset(read: &std::io::Result<usize>) -> bool {
    let reset = std::io::ErrorKind::ConnectionReset;
    read.as_ref().is_err_and(|error| error.kind() == reset)
}
