//! The pager, between a userfaultfd and a home that does not answer.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use support::World;
use whim_guest::pager::{self, IN_FLIGHT_MAX, Shared};
use whim_guest::table::{PageSource, Piece};
use whim_journey::frame::Kind;
use whim_journey::message::{self, PageRequest};
use whim_journey::session::Stamp;
use whim_model::{MappingId, PAGE_SIZE, Range};
use whim_net::name::journey_server_name;
use whim_net::{Channel, ChannelError, Door, Fresh, JourneyId, Line, PeerExpectation, Role};
use whim_sys::pagemap::Pagemap;
use whim_sys::pidfd::Pidfd;
use whim_sys::uffd::{Mode, Uffd};

const JOURNEY: &str = "pager";
const EPOCH: u32 = 1;
const MAPPING: MappingId = MappingId(1);
/// Where the mapping begins.
const START: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(10);

/// Both ends of a page connection: home's, the guest's.
fn channels() -> (Channel, Line) {
    let world = World::new();
    let id = || JourneyId::new(JOURNEY).expect("a name");
    let server = world.credentials("n2", JOURNEY, Role::Guest);
    let client = world.credentials("n1", JOURNEY, Role::Home);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let accept = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let expect = PeerExpectation::Supervisor { id: id() };
        Channel::accept(stream, &server, &expect, PATIENCE).expect("accepted")
    });
    let expect = PeerExpectation::Journey {
        id: id(),
        node: None,
        role: Role::Guest,
    };
    let name = journey_server_name(&id(), Role::Guest);
    let home = Channel::connect(address, &name, &client, &expect, PATIENCE).expect("connected");
    let guest = accept.join().expect("accepted");
    let door = Door::new().expect("a descriptor");
    let first = Fresh {
        channel: guest,
        resume: None,
    };
    (home, Line::waiting(first, 1, door, None))
}

fn hears(shared: &Shared) -> bool {
    let patience = PollTimeout::try_from(PATIENCE).expect("short");
    let mut set = [PollFd::new(shared.arrived.as_fd(), PollFlags::POLLIN)];
    poll(&mut set, patience).expect("poll") > 0
}

/// A pager that serves one mapping, of so many bytes; home's end, and what stands for the guest.
fn started(length: u64) -> (Channel, Child, Arc<Shared>) {
    let (home, line) = channels();
    let guest = Command::new("sleep").arg("60").spawn().expect("a process");
    let pid = guest.id().cast_signed();
    let shared = Shared::new(Uffd::create(true, 0).expect("a userfaultfd")).expect("descriptors");
    shared.table().insert(Piece {
        start: START,
        end: START + length,
        mapping: MAPPING,
        offset: 0,
    });
    let watched = (
        Pidfd::open(pid).expect("it lives"),
        Pagemap::open(pid).expect("it lives"),
    );
    pager::start(Arc::clone(&shared), line, EPOCH, watched).expect("a thread");
    (home, guest, shared)
}

fn page(start: u64) -> Range {
    let end = start + PAGE_SIZE;
    Range { start, end }
}

fn asked(home: &mut Channel) -> PageRequest {
    let frame = home.receive_frame(PATIENCE).expect("a request");
    assert_eq!(frame.kind, Kind::PageRequest);
    message::decode(&frame.payload).expect("decoded").0
}

#[test]
fn page_requests_beyond_their_limit_wait_their_turn() {
    // Far enough apart to be asked for one by one.
    const STRIDE: u64 = 1 << 20;
    let limit = u32::try_from(IN_FLIGHT_MAX).expect("small");
    let last = u64::from(limit);
    let (mut home, mut guest, shared) = started((last + 2) * STRIDE);
    let ranges = (0..=last).map(|number| page(START + number * STRIDE));
    shared.wish(ranges.collect());
    for number in 0..last {
        let request = asked(&mut home);
        assert_eq!(
            (request.request, request.offset),
            (number + 1, number * STRIDE)
        );
    }
    // Once the pager has answered this, it has done all that it does about the others.
    let here = (last + 1) * STRIDE;
    let number = here / PAGE_SIZE;
    shared
        .table()
        .note((MAPPING, number), PageSource::Fetched(0));
    shared.wish(vec![page(START + here)]);
    assert!(hears(&shared), "nobody says that the page is here");
    let received = home.receive_frame(Duration::ZERO);
    assert!(
        matches!(received, Err(ChannelError::Timeout { .. })),
        "one more than may be: {received:?}"
    );
    let mut socket = [PollFd::new(home.as_fd(), PollFlags::POLLIN)];
    let waiting = poll(&mut socket, PollTimeout::ZERO).expect("poll");
    assert_eq!(waiting, 0, "one more than may be");
    // Home has nothing of the first one.
    let reply = [&1u64.to_le_bytes()[..], &[0; 8]].concat();
    let first = Stamp {
        number: 1,
        acknowledged: limit,
    };
    home.queue_stamped(Kind::PageReply, EPOCH, first, &[&reply]);
    assert!(home.flush().expect("sent"));
    let request = asked(&mut home);
    assert_eq!((request.request, request.offset), (last + 1, last * STRIDE));
    home.close();
    let _ = guest.wait().expect("it was killed");
}

#[test]
fn pages_that_came_before_they_were_missed_are_told_of() {
    let (mut home, mut guest, shared) = started(PAGE_SIZE);
    let end = START + PAGE_SIZE;
    let missing = shared.table().missing(START, PAGE_SIZE);
    assert_eq!(missing, [Range { start: START, end }]);
    // A fault of another thread has brought it meanwhile.
    shared.table().note((MAPPING, 0), PageSource::Fetched(0));
    shared.wish(missing);
    assert!(hears(&shared), "nobody says that the page is here");
    assert_eq!(shared.take_arrived(), Ok(()));
    home.close();
    assert!(hears(&shared), "nobody says that home is lost");
    assert!(shared.take_arrived().is_err());
    let _ = guest.wait().expect("it was killed");
}

#[test]
fn a_page_that_is_left_protected_can_be_written() {
    let (mut home, mut guest, shared) = started(PAGE_SIZE);
    let mut bytes = vec![1u8; 1 << 20];
    let address = bytes.as_ptr().expose_provenance() as u64;
    let first = address.next_multiple_of(PAGE_SIZE);
    let index = usize::try_from(first - address).expect("less than a page");
    let uffd = &shared.uffd;
    uffd.register(first, PAGE_SIZE, Mode::MissingAndProtected)
        .expect("registered");
    uffd.protect(first, PAGE_SIZE, true).expect("protected");
    let (done, written) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        bytes[index] = 2;
        let _ = done.send(bytes[index]);
    });
    assert_eq!(written.recv_timeout(PATIENCE), Ok(2), "it waits for ever");
    home.close();
    let _ = guest.wait().expect("it was killed");
}

/// The answer of a home that had the file as it was before.
fn answer(home: &mut Channel, request: u64, number: u16, bytes: &[u8]) {
    let head = [&request.to_le_bytes()[..], &[0; 8]].concat();
    let stamp = Stamp {
        number,
        acknowledged: number.into(),
    };
    home.queue_stamped(Kind::PageReply, EPOCH, stamp, &[&head, bytes]);
    assert!(home.flush().expect("sent"));
}

#[test]
fn what_home_has_read_before_a_change_is_asked_for_anew() {
    let (mut home, mut guest, shared) = started(2 * PAGE_SIZE);
    shared.wish(vec![page(START)]);
    let first = asked(&mut home);
    assert_eq!((first.offset, first.length), (0, 8192));
    // Home tells of the change on the other connection, and so it may overtake the pages.
    shared.renew(MAPPING);
    answer(&mut home, first.request, 1, &[b'a'; 8192]);
    let again = asked(&mut home);
    assert_eq!(
        (again.offset, again.length),
        (0, 4096),
        "what nobody waits for is not asked for"
    );
    assert_eq!(shared.table().arrival((MAPPING, 0)), None);
    answer(&mut home, again.request, 2, &[b'b'; 4096]);
    assert!(hears(&shared), "nobody says that it has come");
    let hash = xxhash_rust::xxh3::xxh3_64(&[b'b'; 4096]);
    let arrival = shared.table().arrival((MAPPING, 0));
    assert_eq!(arrival, Some(PageSource::Fetched(hash)));
    home.close();
    let _ = guest.wait().expect("it was killed");
}
