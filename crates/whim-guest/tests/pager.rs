//! The pager, between a userfaultfd and a home that does not answer.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::World;
use whim_guest::pager::{self, Shared};
use whim_guest::table::{Arrival, Piece};
use whim_image::model::{MappingId, PAGE_SIZE, Range};
use whim_net::name::journey_server_name;
use whim_net::{Channel, Door, Fresh, JourneyId, Line, PeerExpectation, Role};
use whim_sys::pagemap::Pagemap;
use whim_sys::pidfd::Pidfd;
use whim_sys::uffd::Uffd;

const JOURNEY: &str = "pager";
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

#[test]
fn pages_that_came_before_they_were_missed_are_told_of() {
    let (mut home, channel) = channels();
    let mut guest = Command::new("sleep").arg("60").spawn().expect("a process");
    let pid = guest.id().cast_signed();
    let shared = Shared::new(Uffd::create(true, 0).expect("a userfaultfd")).expect("descriptors");
    let mapping = MappingId(1);
    let start = 1 << 30;
    let end = start + PAGE_SIZE;
    shared.table().insert(Piece {
        start,
        end,
        mapping,
        offset: 0,
    });
    let watched = (
        Pidfd::open(pid).expect("it lives"),
        Pagemap::open(pid).expect("it lives"),
    );
    pager::start(Arc::clone(&shared), channel, 1, watched).expect("a thread");
    let missing = shared.table().missing(start, PAGE_SIZE);
    assert_eq!(missing, [Range { start, end }]);
    // A fault of another thread has brought it meanwhile.
    shared.table().note((mapping, 0), Arrival::Fetched(0));
    shared.wish(missing);
    assert!(hears(&shared), "nobody says that the page is here");
    assert_eq!(shared.take_arrived(), Ok(()));
    home.close();
    assert!(hears(&shared), "nobody says that home is lost");
    assert!(shared.take_arrived().is_err());
    let _ = guest.wait().expect("it was killed");
}
