//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

use std::time::Duration;

use whim_balance::NodeId;
use whim_balance::gossip::View;
use whim_control::fuzz::{again, again_nearly};
use whim_journey::job::{Command, Event, GuestJob, HomeJob, Status};
use whim_net::datagram::TEXT_MAX;

use crate::host::guests::PrivateIds;
use crate::line::journal::summarize;
use crate::members::gossip::{self, Head, Kind};
use crate::members::peers::{NodeReply, NodeRequest};
use crate::members::swim::{self, Life, Swim};
use crate::moves::candidate::Candidate;
use crate::moves::journeys::About;

/// What arrives at the control socket or leaves it, and what daemons say to each other.
pub fn control(data: &[u8]) {
    whim_control::fuzz::protocol(data);
    again_nearly::<NodeRequest>(data);
    again_nearly::<NodeReply>(data);
}

/// What a member says by datagrams: heads, rumors, and news of members. The input is a row of texts, each
/// behind two bytes that are its length.
pub fn rumor(data: &[u8]) {
    let (own, other) = (NodeId(1), NodeId(2));
    let life = Life {
        node: own,
        number: 7,
    };
    let mut now = Duration::ZERO;
    let mut swim = Swim::new(now, life, 5);
    let members = [own, other, NodeId(3)].into();
    let _ = swim.handle(now, swim::Event::Members(&members));
    let mut view = View::new(own);
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(TEXT_MAX);
        let (text, after) = after.split_at(length.min(after.len()));
        rest = after;
        now += Duration::from_millis(100);
        let Some((head, body)) = Head::read(text) else {
            continue;
        };
        assert_eq!(Head::read(&head.text(body)), Some((head, body)));
        let (from, bytes) = (other, body);
        let mut sends = match head.kind {
            Kind::Swim => swim.handle(now, swim::Event::Message { from, bytes }),
            Kind::Rumors => rumors(&mut view, body),
            Kind::Hello | Kind::Ask => Vec::new(),
        };
        if swim.due() <= now {
            sends.extend(swim.handle(now, swim::Event::Tick));
        }
        let longest = sends.iter().map(|send| send.bytes.len()).max();
        assert!(longest.unwrap_or(0) <= swim::MESSAGE_MAX && sends.len() < 100);
        assert_eq!(swim.own().node, own, "nobody else says who we are");
    }
}

fn rumors(view: &mut View<gossip::State>, body: &[u8]) -> Vec<swim::Send> {
    let rumors = gossip::unpack(body);
    view.merge(200_000, &rumors);
    assert!(
        rumors
            .iter()
            .all(|rumor| rumor.state.len() <= gossip::STATE_MAX)
    );
    let again = gossip::pack(&rumors);
    assert!(again.iter().all(|body| body.len() <= gossip::BODY_MAX));
    let again: Vec<_> = again.iter().flat_map(|body| gossip::unpack(body)).collect();
    assert_eq!(again, rumors);
    for rumor in rumors {
        if let Some((about, report)) = gossip::decode(&rumor.state) {
            let numbers = [report.load, report.cpus, report.urgency, report.running];
            assert!(numbers.iter().all(|number| number.is_finite()));
            let _ = gossip::encode(&report, about);
        }
    }
    Vec::new()
}

/// Journals and files of jobs, as they are read back: a damaged line costs no other line.
pub fn journal(data: &[u8]) {
    let read = summarize(data);
    let lines = data.split(|byte| *byte == b'\n').count();
    let counted = u64::from(read.commits) + u64::from(read.acknowledged) + u64::from(read.done);
    assert!(counted <= lines as u64 && read.raised.len() <= lines);
    assert!(read.homeward.values().all(|count| *count as usize <= lines));
    let damaged = [b"{\"event\":\"commit\",\"epo\n", data, b"\n\xff\xfe\0"].concat();
    assert_eq!(
        summarize(&damaged[..]),
        read,
        "damaged lines are passed over"
    );
    let epoch = u32::MAX;
    let line = format!("\n{{\"event\":\"commit\",\"epoch\":{epoch},\"to\":\"n9\"}}\n");
    let longer = summarize(&[data, line.as_bytes()].concat()[..]);
    assert_eq!((longer.epoch, longer.commits), (epoch, read.commits + 1));
    assert_eq!(longer.last_host.as_deref(), Some("n9"));
    for line in data.split(|byte| *byte == b'\n') {
        again::<About>(line);
        again::<Command>(line);
        again::<Status>(line);
        again_nearly::<Candidate>(line);
        again::<PrivateIds>(line);
        again_nearly::<Event>(line);
        again_nearly::<HomeJob>(line);
        again_nearly::<GuestJob>(line);
    }
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_control_messages() {
        replay("control", super::control);
    }

    #[test]
    fn corpus_of_rumors() {
        replay("rumor", super::rumor);
    }

    #[test]
    fn corpus_of_journals() {
        replay("journal", super::journal);
    }
}
