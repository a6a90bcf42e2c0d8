//! A home that lies: the connections to a real supervisor, on which anything may be sent.

use super::image::{CODE, PROGRAM};
use super::support::{Host, World};
use std::time::Duration;
use whim_home::connections::{ConnectionError, Connections};
use whim_journey::frame::Kind;
use whim_journey::job::State;
use whim_journey::message::{self, ClockPair, PageRequest, ToGuest, ToHome};
use whim_model::{Clocks, ProcessImage};
use whim_net::Role;

/// Nothing here takes longer, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const PID: i32 = 4000;

/// Home's end of the connections, and the supervisor that waits for a guest.
pub(crate) struct Liar {
    pub connections: Connections,
    pub host: Host,
    /// Its directory goes with it.
    _world: World,
}

impl Liar {
    pub(crate) fn connected() -> Self {
        let world = World::new();
        let host = world.host("n2", "lies", 1);
        let credentials = world.credentials("n1", "lies", Role::Home);
        let lease = Some(Duration::from_secs(10));
        let connections =
            Connections::connect("lies", &host.slot, &credentials, lease).expect("connected");
        Self {
            connections,
            host,
            _world: world,
        }
    }

    pub(crate) fn say(&mut self, message: &ToGuest) {
        self.connections.send(message, PATIENCE).expect("sent");
    }

    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) {
        let epoch = self.connections.epoch;
        let sent = self
            .connections
            .calls
            .send_now(kind, epoch, &[payload], PATIENCE);
        sent.expect("sent");
    }

    pub(crate) fn hears(&mut self) -> ToHome {
        self.connections.receive(PATIENCE).expect("an answer")
    }

    /// A blank process waits for its image.
    pub(crate) fn prepared() -> Self {
        let mut liar = Self::connected();
        liar.say(&prepare(PID));
        let said = liar.hears();
        assert!(matches!(said, ToHome::Prepared { .. }), "{said:?}");
        liar
    }

    /// Sends an image, which may be refused before all of it is sent.
    pub(crate) fn shows(&mut self, image: &ProcessImage) {
        match self.connections.send_image(image, PATIENCE) {
            Ok(()) | Err(ConnectionError::Channel(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn sends_pages(&mut self, address: u64, bytes: &[u8]) {
        let payload = [&address.to_le_bytes(), bytes].concat();
        self.send(Kind::Pages, &payload);
    }

    /// The process of an image runs, and home has acknowledged it.
    pub(crate) fn started(image: &ProcessImage) -> Self {
        let mut liar = Self::prepared();
        liar.shows(image);
        let mut code = vec![0; 4096];
        code[..PROGRAM.len()].copy_from_slice(PROGRAM);
        liar.sends_pages(CODE, &code);
        let clocks = Clocks::default();
        liar.say(&ToGuest::Complete { clocks });
        let ready = liar.hears();
        assert!(matches!(ready, ToHome::Ready { .. }), "{ready:?}");
        liar.say(&ToGuest::Commit { clocks });
        let started = liar.hears();
        assert!(matches!(started, ToHome::Started { .. }), "{started:?}");
        liar.say(&ToGuest::Acknowledged);
        liar
    }

    /// The supervisor says why it refuses, and ends by itself: with an error, not by a panic (whose
    /// status is another one) or a signal.
    pub(crate) fn refused(mut self, what: &str) -> String {
        let reason = loop {
            match self.connections.receive(PATIENCE) {
                Ok(taken @ ToHome::Ready { .. }) => panic!("{what}: {taken:?}"),
                Ok(_) => {}
                Err(ConnectionError::Refused { reason, .. }) => break reason,
                Err(error) => panic!("{what}: it did not say why: {error}"),
            }
        };
        assert_eq!(self.host.ended().code(), Some(1), "{what}: {reason}");
        reason
    }

    /// The supervisor has passed over what was said, and does its work.
    pub(crate) fn passed_over(mut self, state: State) {
        assert_eq!(self.host.state(), Some(state));
        self.say(&ToGuest::Discard);
        assert_eq!(self.host.ended().code(), Some(0));
    }

    /// The next page that the guest asks for.
    pub(crate) fn page_request(&mut self) -> PageRequest {
        loop {
            let frame = self
                .connections
                .pages
                .receive_frame(PATIENCE)
                .expect("a request");
            if frame.kind == Kind::PageRequest {
                return message::decode(&frame.payload).expect("a request").0;
            }
        }
    }

    pub(crate) fn answers_page(&mut self, request: u64, status: u32, bytes: &[u8]) {
        let head = [&request.to_le_bytes()[..], &status.to_le_bytes(), &[0; 4]].concat();
        let epoch = self.connections.epoch;
        let parts: [&[u8]; 2] = [&head, bytes];
        let pages = &mut self.connections.pages;
        let sent = pages.send_now(Kind::PageReply, epoch, &parts, PATIENCE);
        sent.expect("sent");
    }
}

pub(crate) fn prepare(pid: i32) -> ToGuest {
    ToGuest::Prepare {
        pid,
        own_pid: pid,
        uid: 0,
        threads: 1,
        resident_bytes: 0,
        clocks: ClockPair::default(),
        lease_ms: Some(10_000),
    }
}
