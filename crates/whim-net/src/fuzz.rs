//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use whim_journey::frame::{FRAME_PAYLOAD_MAX, Frame, HEADER_LENGTH, Header, Kind};
use whim_journey::message::{self, TAIL_MAX, Tails, ToGuest, ToHome};
use whim_journey::session::{self, Action, KEPT_BYTES_MAX, KEPT_FRAMES_MAX, Session, Side, Stamp};
use whim_journey::stay::{self, Stay};
use whim_journey::turn::{Request, Turn, Verdict};

use crate::datagram::{self, Keyring, Received};
use crate::inbox::Inbox;
use crate::join::{Admission, JoinAnswer, JoinRequest};
use crate::name::{
    NAME_MAX, NodeName, PeerExpectation, Route, Subject, journey_server_name, stay_server_name,
};
use crate::removal::{Removal, SignedRemoval};
use crate::roster::{
    ADDRESS_LENGTH_MAX, ADDRESSES_MAX, CLASS_LENGTH_MAX, Member, Roster, SignedRoster,
};
use crate::tls::{self, Part, Secret};
use crate::token::TokenBook;
use whim_secret::Token;
use whim_secret::address::parse_host;

pub use crate::hello::fuzz_client_hello as client_hello;

/// The messages of a node that joins, and the answers: each is accepted as it was written, or refused.
pub fn join(data: &[u8]) {
    again::<JoinRequest>(data);
    again::<JoinAnswer>(data);
    again::<Admission>(data);
    again::<Roster>(data);
    again::<PeerExpectation>(data);
    if let Ok(signed) = serde_json::from_slice::<SignedRoster>(data) {
        let cluster = crate::name::ClusterName::new("c").expect("a name");
        assert!(
            signed.open(&[4; 65], &cluster).is_err(),
            "nobody has signed it"
        );
    }
    again::<Removal>(data);
    if let Ok(signed) = serde_json::from_slice::<SignedRemoval>(data) {
        let cluster = crate::name::ClusterName::new("c").expect("a name");
        assert!(
            signed.open(&[4; 65], &cluster).is_err(),
            "nobody has signed it"
        );
    }
    if let Ok(member) = serde_json::from_slice::<Member>(data)
        && member.check().is_ok()
    {
        assert!(member.addresses.len() <= ADDRESSES_MAX && member.class.len() <= CLASS_LENGTH_MAX);
        let sound = |address: &String| (1..=ADDRESS_LENGTH_MAX).contains(&address.len());
        assert!(member.addresses.iter().all(sound));
    }
    if let Ok(mut book) = serde_json::from_slice::<TokenBook>(data) {
        let token = book.issue([7; 32], 9);
        if let Ok(token) = token {
            assert!(book.check(&token.id(), &token.secret(), 10).is_ok());
            assert!(book.redeem(&token.id(), &token.secret(), 10).is_ok());
            assert!(
                book.redeem(&token.id(), &token.secret(), 10).is_err(),
                "it is spent"
            );
        }
    }
}

/// What can be parsed is the same after it was written and parsed again.
fn again<T: serde::Serialize + serde::de::DeserializeOwned>(data: &[u8]) {
    if let Ok(first) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_string(&first).expect("written");
        let second: T = serde_json::from_str(&text).expect("taken again");
        assert_eq!(serde_json::to_string(&second).expect("written"), text);
    }
}

/// Names, tokens and addresses as users and certificates write them.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = NodeName::new(text.as_ref()) {
        assert!((1..=NAME_MAX).contains(&name.as_str().len()));
        assert_eq!(name.as_str(), text);
        assert!(
            !text.contains(['/', '.', ':', '\0']),
            "{text:?} is one label"
        );
    }
    if let Ok(subject) = text.parse::<Subject>() {
        assert_eq!(subject.to_string(), text);
    }
    match Route::of(&text) {
        Some(Route::Supervisor(id, role)) => assert_eq!(journey_server_name(&id, role), text),
        Some(Route::Stay {
            home,
            journey,
            epoch,
        }) => assert_eq!(stay_server_name(&home, &journey, epoch), text),
        _ => {}
    }
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string(), text.trim().to_ascii_lowercase());
        assert!(!format!("{token:?}").contains(&token.secret()));
    }
    if let Ok((host, port)) = parse_host(&text) {
        assert!(port != 0 && !host.is_empty() && host.len() <= 255);
        let whole = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        assert_eq!(parse_host(&whole).expect("understood"), (host, port));
    }
    certificates(data);
}

/// A chain of certificates, each preceded by its length (2 bytes).
fn certificates(mut data: &[u8]) {
    let mut chain = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (certificate, rest) = rest.split_at(length);
        chain.push(CertificateDer::from(certificate.to_vec()));
        data = rest;
        if chain.len() == 3 {
            break;
        }
    }
    if let Ok(identity) = tls::identify(&chain) {
        assert_eq!(chain.len(), 2);
        assert!(!identity.serial.is_empty());
    }
}

/// Reads numbers from an input.
struct Steps<'a>(&'a [u8]);

impl<'a> Steps<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// The parts of a supervisor that frames of a peer reach and that are pure: the bytes of the connection, the
/// session, tails and messages, the turns of a thread, the stay.
struct Peer {
    inbox: Inbox,
    session: Session,
    tails: Tails,
    turn: Turn,
    stay: Stay,
    committed: bool,
    acknowledged: bool,
    executed: u64,
    sent: u64,
    forgotten: u64,
    received: u64,
    now: Duration,
}

impl Peer {
    fn new(side: Side) -> Self {
        let lease = Some(Duration::from_secs(2));
        Self {
            inbox: Inbox::new(false),
            session: Session::new(Duration::ZERO, side),
            tails: Tails::default(),
            turn: Turn::default(),
            stay: Stay::new(Duration::ZERO, lease),
            committed: false,
            acknowledged: false,
            executed: 0,
            sent: 0,
            forgotten: 0,
            received: 0,
            now: Duration::ZERO,
        }
    }

    /// Does what the session wants; returns false if the peer has broken the protocol.
    fn event(&mut self, event: session::Event, frame: Option<&Frame>) -> bool {
        let Ok(actions) = self.session.handle(self.now, event) else {
            return false;
        };
        for action in actions {
            match action {
                Action::Forget { through } => {
                    assert!(self.forgotten < through && through <= self.sent);
                    self.forgotten = through;
                }
                Action::Write { first, last } => {
                    assert!(self.forgotten < first && first <= last && last == self.sent);
                }
                Action::Ask { received, .. } | Action::Answer { received } => {
                    assert_eq!(received, self.received);
                }
                Action::Deliver => {
                    self.received += 1;
                    let frame = frame.expect("a frame has come");
                    let low = self.received.to_le_bytes();
                    assert_eq!(frame.stamp.number, u16::from_le_bytes([low[0], low[1]]));
                    self.deliver(frame);
                }
                Action::Close | Action::Reject | Action::Dial | Action::Acknowledge => {}
            }
        }
        assert!(self.session.kept_bytes() < KEPT_BYTES_MAX + 2 * FRAME_PAYLOAD_MAX);
        assert!(self.sent - self.forgotten <= KEPT_FRAMES_MAX as u64);
        assert_eq!(self.session.is_settled(), self.sent == self.forgotten);
        true
    }

    fn send(&mut self, bytes: usize) {
        if !self.session.is_full() {
            self.sent += 1;
            self.event(session::Event::Send { bytes }, None);
        }
    }

    /// Handles a frame as a line does with what its channel brings.
    fn frame(&mut self, frame: &Frame) -> bool {
        let event = match frame.kind {
            Kind::Answer => {
                let received = frame
                    .payload
                    .first_chunk()
                    .map_or(0, |b| u64::from_le_bytes(*b));
                session::Event::Answered { received }
            }
            kind => session::Event::Frame {
                stamp: frame.stamp,
                bytes: frame.payload.len(),
                numbered: kind != Kind::Acknowledgement,
            },
        };
        self.event(event, Some(frame))
    }

    fn deliver(&mut self, frame: &Frame) {
        match frame.kind {
            Kind::Data => {
                let _ = self.tails.add(&frame.payload);
            }
            Kind::ToHome => {
                if let Ok((message, tail)) = message::decode::<ToHome>(&frame.payload) {
                    self.message_home(message, tail);
                }
            }
            Kind::ToGuest => {
                if let Ok((message, _)) = message::decode::<ToGuest>(&frame.payload) {
                    self.message_guest(&message);
                }
            }
            _ => {}
        }
    }

    fn message_home(&mut self, message: ToHome, tail: &[u8]) {
        let ToHome::Call(request) = message else {
            return;
        };
        let whole = self.tails.finish(request.tid, tail);
        assert!(whole.len() <= TAIL_MAX + FRAME_PAYLOAD_MAX);
        if request.check().is_err() {
            return;
        }
        let sequence = request.sequence;
        if self.turn.handle(Request::Call { sequence }, None, None) == Verdict::Execute {
            assert!(
                sequence > self.executed,
                "call {sequence} is executed twice"
            );
            self.executed = sequence;
        }
    }

    fn message_guest(&mut self, message: &ToGuest) {
        let event = match message {
            ToGuest::Commit { .. } => stay::Event::Commit,
            ToGuest::Acknowledged => stay::Event::Acknowledged,
            ToGuest::Freeze => stay::Event::Leave,
            ToGuest::Resume => stay::Event::Resume,
            ToGuest::Discard | ToGuest::Ended => stay::Event::Dismissed,
            _ => stay::Event::Heard { at: self.now },
        };
        for action in self.stay.handle(self.now, event) {
            match action {
                stay::Action::Start => {
                    assert!(!self.committed, "it begins once");
                    self.committed = true;
                }
                stay::Action::Flow => {
                    assert!(self.committed && !self.acknowledged);
                    self.acknowledged = true;
                }
                _ => {}
            }
        }
        assert!(!self.stay.may_forward() || self.acknowledged);
    }
}

/// Frames of a hostile or broken peer, in any order: nothing breaks, each is accepted once and in its order, no
/// limit is exceeded, and nothing flows before its time.
///
/// The input consists of steps of one byte, each with the bytes that it needs. Frames go through the bytes of a
/// connection, cut in pieces.
pub fn frames(data: &[u8]) {
    let mut steps = Steps(data);
    let side = match steps.byte() {
        Some(byte) if byte % 2 == 0 => Side::Waiting,
        _ => Side::Dialing {
            quiet: Duration::from_millis(700),
        },
    };
    let mut peer = Peer::new(side);
    let mut garbage = false;
    while let Some(step) = steps.byte() {
        let fine = match step % 8 {
            0..=3 => one_frame(&mut peer, &mut steps, garbage),
            4 => {
                peer.send(usize::from(step) << 12);
                true
            }
            5 => connections(&mut peer, &mut steps),
            6 => {
                peer.now += Duration::from_millis(u64::from(step) * 8);
                let _ = peer.stay.handle(peer.now, stay::Event::Tick).count();
                peer.event(session::Event::Tick, None)
            }
            _ => {
                garbage = true;
                let length = usize::from(step);
                let bytes = steps.bytes(length);
                peer.inbox.take(bytes).is_ok() && take_all(&mut peer)
            }
        };
        if !fine || peer.inbox.is_broken() {
            return;
        }
    }
}

/// Feeds a well-formed frame; returns whether the connection goes on.
fn one_frame(peer: &mut Peer, steps: &mut Steps<'_>, garbage: bool) -> bool {
    let [kind, number, acknowledged, length] = [(); 4].map(|()| steps.byte().unwrap_or(0));
    let kind = [
        Kind::ToGuest,
        Kind::ToHome,
        Kind::Data,
        Kind::Acknowledgement,
        Kind::Answer,
        Kind::Image,
    ][usize::from(kind % 6)];
    // Mostly the number that is due, and an acknowledgement of what has been sent.
    let due = (peer.received + 1)
        .wrapping_add(u64::from(number))
        .to_le_bytes();
    let said = peer
        .sent
        .wrapping_sub(u64::from(acknowledged))
        .to_le_bytes();
    let payload = steps.bytes(usize::from(length));
    let stamp = Stamp {
        number: u16::from_le_bytes([due[0], due[1]]),
        acknowledged: u32::from_le_bytes([said[0], said[1], said[2], said[3]]),
    };
    let header = Header {
        length: payload.len(),
        kind,
        epoch: 1,
        stamp,
    };
    let bytes = [&header.encode()[..], payload].concat();
    let cut = usize::from(length) % (HEADER_LENGTH + 1);
    let (front, back) = bytes.split_at(cut.min(bytes.len()));
    if peer.inbox.take(front).is_err() || peer.inbox.take(back).is_err() {
        return false;
    }
    if !garbage {
        let frame = peer
            .inbox
            .next()
            .expect("it is well formed")
            .expect("it is whole");
        assert_eq!((frame.kind, frame.stamp), (kind, stamp));
        assert_eq!(frame.payload, payload);
        return peer.frame(&frame);
    }
    take_all(peer)
}

fn take_all(peer: &mut Peer) -> bool {
    loop {
        match peer.inbox.next() {
            Ok(Some(frame)) => {
                assert!(frame.payload.len() <= FRAME_PAYLOAD_MAX);
                if !peer.frame(&frame) {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Datagrams of strangers and of a member, in any order: only what the member sealed is accepted, whole and
/// once.
///
/// The input consists of steps of one byte, each with the bytes that it needs.
pub fn datagram(data: &[u8]) {
    let mut steps = Steps(data);
    let [one, two] = ["n1", "n2"].map(|name| NodeName::new(name).expect("a name"));
    let (mut ours, mut theirs) = (Keyring::new(one.clone()), Keyring::new(two.clone()));
    let from = SocketAddr::from(([192, 0, 2, 1], 7946));
    let mut now = Duration::ZERO;
    let mut sealed: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut used = std::collections::BTreeSet::new();
    let mut agree = |ours: &mut Keyring, theirs: &mut Keyring, now, byte| {
        // No two sessions give the same secret.
        if !used.insert(byte) {
            return;
        }
        let secret = Secret::made_up(byte);
        let asked = theirs.install(now, &one, &secret, Part::Asking, Some(from));
        let answered = ours.install(now, &two, &secret, Part::Answering, None);
        assert_eq!(asked.expect("a key"), answered.expect("a key"));
    };
    agree(&mut ours, &mut theirs, now, 0);
    while let Some(step) = steps.byte() {
        let number = usize::from(steps.byte().unwrap_or(0));
        match step % 6 {
            0 => {
                let text = steps.bytes(number).to_vec();
                if let Ok((datagram, _)) = theirs.seal(&one, &text) {
                    assert!(datagram.len() <= datagram::DATAGRAM_MAX);
                    sealed.push((datagram, text));
                }
            }
            1 if !sealed.is_empty() => {
                let (mut datagram, text) = sealed.remove(number % sealed.len());
                let again = datagram.clone();
                if let Ok(Received::Text { text: got, .. }) = ours.receive(now, from, &mut datagram)
                {
                    assert_eq!(got, text);
                }
                let twice = ours.receive(now, from, &mut again.clone());
                assert!(!matches!(twice, Ok(Received::Text { .. })), "it came twice");
            }
            2 if !sealed.is_empty() => {
                let (datagram, _) = &sealed[number % sealed.len()];
                let mut changed = datagram.clone();
                let place = usize::from(steps.byte().unwrap_or(0)) % changed.len();
                changed[place] ^= 1 << (step / 6 % 8);
                let taken = ours.receive(now, from, &mut changed);
                assert!(
                    !matches!(taken, Ok(Received::Text { .. })),
                    "it was changed"
                );
            }
            3 => now += Duration::from_millis(100 * number as u64),
            4 => agree(&mut ours, &mut theirs, now, step / 6),
            _ => {
                let mut bytes = steps.bytes(3 * number).to_vec();
                let taken = ours.receive(now, from, &mut bytes);
                assert!(!matches!(taken, Ok(Received::Text { .. })), "it is made up");
            }
        }
    }
}

fn connections(peer: &mut Peer, steps: &mut Steps<'_>) -> bool {
    let (what, number) = (steps.byte().unwrap_or(0), steps.byte().unwrap_or(0));
    let received = match what / 4 {
        0..=31 => peer.forgotten + u64::from(number),
        32..=47 => peer.forgotten.wrapping_sub(u64::from(number)),
        _ => u64::MAX - u64::from(number),
    };
    let attempt = u32::from(what);
    let event = match what % 4 {
        0 => session::Event::Broken,
        1 => session::Event::Opened,
        2 => session::Event::Asked { attempt, received },
        _ => session::Event::Answered { received },
    };
    peer.event(event, None)
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_client_hellos() {
        replay("client_hello", super::client_hello);
    }

    #[test]
    fn corpus_of_datagrams() {
        replay("datagram", super::datagram);
    }

    #[test]
    fn corpus_of_joins() {
        replay("join", super::join);
    }

    #[test]
    fn corpus_of_names() {
        replay("names", super::names);
    }

    #[test]
    fn corpus_of_frame_sequences() {
        replay("frames", super::frames);
    }
}
