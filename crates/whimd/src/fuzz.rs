//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whim_balance::NodeId;
use whim_balance::window::View;
use whim_journey::job::{Command, Event, GuestJob, HomeJob, Status};
use whim_net::datagram::TEXT_MAX;

use crate::candidates::Candidate;
use crate::config::{Config, Lease};
use crate::control::{Answer, LeaseChoice, Request};
use crate::guests::PrivateIds;
use crate::journeys::{About, summarize};
use crate::peers::{NodeReply, NodeRequest};
use crate::processes::{Stat, parse_stat, parse_status};
use crate::swim::{self, Life, Swim};
use crate::word::{self, Head, Kind};

/// What is taken is written and taken again as the same.
fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(first) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&first).expect("written");
        let second: T = serde_json::from_slice(&text).expect("taken again");
        assert_eq!(first, second);
    }
}

/// The same of what holds fractions, whose last digit may change when they are read.
fn again_nearly<T: Serialize + DeserializeOwned>(data: &[u8]) {
    if let Ok(first) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&first).expect("written");
        let _: T = serde_json::from_slice(&text).expect("taken again");
    }
}

/// What comes to the control socket and from it, and what daemons say to each other.
pub fn control(data: &[u8]) {
    again::<Request>(data);
    again_nearly::<Answer>(data);
    again_nearly::<NodeRequest>(data);
    again_nearly::<NodeReply>(data);
    if let Ok(Request::Register { options }) = serde_json::from_slice(data)
        && let Some(lease) = options.lease
    {
        let _ = lease.milliseconds();
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(lease) = text.parse::<LeaseChoice>() {
        assert!(is_sound(lease), "{text:?} is {lease:?}");
    }
}

fn is_sound(lease: LeaseChoice) -> bool {
    lease
        .milliseconds()
        .is_none_or(|ms| (100..=31_536_000_000).contains(&ms))
}

/// What a member says by datagrams: heads, words, and news of members, one after the other. The input is
/// cut into texts by two bytes before each, its length.
pub fn word(data: &[u8]) {
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
            Kind::Words => words(&mut view, body),
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

fn words(view: &mut View<word::State>, body: &[u8]) -> Vec<swim::Send> {
    let words = word::unpack(body);
    view.merge(200_000, &words);
    assert!(words.iter().all(|word| word.state.len() <= word::STATE_MAX));
    let again = word::pack(&words);
    assert!(again.iter().all(|body| body.len() <= word::BODY_MAX));
    let again: Vec<_> = again.iter().flat_map(|body| word::unpack(body)).collect();
    assert_eq!(again, words);
    for word in words {
        if let Some((about, report)) = word::decode(&word.state) {
            let numbers = [report.load, report.cpus, report.urgency, report.running];
            assert!(numbers.iter().all(|number| number.is_finite()));
            let _ = word::encode(&report, about);
        }
    }
    Vec::new()
}

/// A configuration that is taken respects every limit, and says nothing that was not written.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let path = Path::new("config.toml");
    let Ok(config) = Config::parse(&text, path) else {
        return;
    };
    config.check().expect("it was checked");
    let Lease(lease) = config.lease;
    assert!(is_sound(lease), "{lease:?}");
    let guests = &config.guests;
    assert!(guests.max <= 65_536);
    assert!((1..=100).contains(&guests.memory_percent) && (16..=65_536).contains(&guests.pids));
    assert!(guests.uid_start >= 1000 && guests.uid_start.checked_add(guests.uid_count).is_some());
    for total in [0, 1, 1 << 30, u64::MAX] {
        assert!(guests.share(total) <= total);
    }
    if !text.contains("allow_root") && !text.contains('\\') {
        assert!(!config.allow_root, "nobody has allowed it");
    }
}

/// Journals and files of jobs, as they are read back: a damaged line costs itself alone.
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

/// What /proc says of a process: its name, which its user chooses, is nothing but a name.
pub fn processes(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(stat) = parse_stat(&text) {
        assert!(text.contains(&stat.name));
    }
    let _ = parse_status(&text, 7);
    let name: Vec<u8> = data
        .iter()
        .copied()
        .filter(|byte| *byte != 0)
        .take(15)
        .collect();
    let shown = String::from_utf8_lossy(&name).into_owned();
    let fields: String = (4..=52).map(|number| format!(" {number}")).collect();
    let expected = Stat {
        pid: 70,
        name: shown.clone(),
        state: 'S',
        parent: 4,
        group: 5,
        terminal: 7,
        foreground: 8,
        reaped_faults: 11,
        cpu_ticks: 14 + 15,
        threads: 20,
        start_time: 22,
        resident_bytes: 24 * 4096,
    };
    assert_eq!(
        parse_stat(&format!("70 ({shown}) S{fields}\n")),
        Some(expected)
    );
    let escaped = shown.replace('\\', "\\\\").replace('\n', "\\n");
    let rest = "\nTracerPid:\t3\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t0000000000000011\n";
    let credentials =
        parse_status(&format!("Name:\t{escaped}{rest}"), 2).expect("as it is written");
    assert_eq!((credentials.uids, credentials.gids), ([1, 2, 3], [5, 6, 7]));
    assert_eq!(
        (credentials.tracer, credentials.permitted_capabilities),
        (3, 0x11)
    );
    assert_eq!(credentials.groups, [9, 10]);
    assert!(credentials.dumpable);
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_control_messages() {
        replay("control", super::control);
    }

    #[test]
    fn corpus_of_configurations() {
        replay("config", super::config);
    }

    #[test]
    fn corpus_of_words() {
        replay("word", super::word);
    }

    #[test]
    fn corpus_of_journals() {
        replay("journal", super::journal);
    }

    #[test]
    fn corpus_of_processes() {
        replay("processes", super::processes);
    }
}
