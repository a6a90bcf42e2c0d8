//! What daemons say to each other by datagram.
//!
//! | part | |
//! |---|---|
//! | 1 byte | what the rest is: [`Kind`] |
//! | number | version of the sender's list of members |
//! | number | milliseconds since 1970 by the sender's clock |
//! | rest | nothing, a message of [`crate::members::swim`], or rumors |
//!
//! Rumors tell of the load of nodes ([`whim_balance::gossip`]). Each begins with one byte, the length of what
//! follows: the node (8 bytes), the rumor's age, and the state. A *number* has seven bits in each byte, the
//! lowest first; the eighth bit is set where more bytes follow.
//!
//! A state consists of numbers in a fixed order, to which later versions append. A node passes over what
//! follows the numbers that it knows, takes missing ones for 0, and hands on the state as it is. The class
//! and the labels, which are long and change rarely, are represented by their digest only: see [`About`].

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use whim_balance::NodeId;
use whim_balance::gossip::Rumor;
use whim_net::datagram::TEXT_MAX;
use whim_net::tls::digest::sha256;

use whim_control::config::LABELS_MAX;
use whim_machine::class::Class;
use whim_machine::sensors::{Pressure, Report, Speed};

/// Longest state, in bytes.
pub(crate) const STATE_MAX: usize = 160;
/// Node, age and state of the longest rumor.
const RUMOR_MAX: usize = 8 + NUMBER_MAX + STATE_MAX;
const NUMBER_MAX: usize = 10;
/// Longest head, in bytes.
pub(crate) const HEAD_MAX: usize = 1 + 2 * NUMBER_MAX;
/// Longest body, in bytes.
pub(crate) const BODY_MAX: usize = TEXT_MAX - HEAD_MAX;
const _: () = assert!(crate::members::swim::MESSAGE_MAX <= BODY_MAX && RUMOR_MAX < 256);

/// A state as it came from another node: it is handed on unread.
pub(crate) type State = Arc<[u8]>;

/// The number by which messages name a node: a part of the digest of its name.
#[must_use]
pub(crate) fn node_id(name: &str) -> NodeId {
    NodeId(digest(name.as_bytes()))
}

fn digest(bytes: &[u8]) -> u64 {
    let digest = sha256(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// I am here, and have our keys.
    Hello = 0,
    Swim = 1,
    Rumors = 2,
    /// Tell me of yourself, now.
    Ask = 3,
}

/// What stands before every body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub members: u64,
    pub time_ms: u64,
}

impl Head {
    /// The text of a datagram.
    #[must_use]
    pub(crate) fn text(self, body: &[u8]) -> Vec<u8> {
        let mut text = vec![self.kind as u8];
        put(&mut text, self.members);
        put(&mut text, self.time_ms);
        text.extend_from_slice(body);
        text
    }

    /// Head and body of a text; `None` if this version does not know its kind, or the head is not whole.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, mut rest) = text.split_first()?;
        let kind = match kind {
            0 => Kind::Hello,
            1 => Kind::Swim,
            2 => Kind::Rumors,
            3 => Kind::Ask,
            _ => return None,
        };
        let (members, time_ms) = (take(&mut rest)?, take(&mut rest)?);
        let head = Self {
            kind,
            members,
            time_ms,
        };
        Some((head, rest))
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low(number));
}

fn low(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for place in 0..NUMBER_MAX {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        let shifted = bits << (7 * place);
        if shifted >> (7 * place) != bits {
            return None;
        }
        number |= shifted;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Packs rumors into as many bodies of datagrams as it takes.
#[must_use]
pub(crate) fn pack(rumors: &[Rumor<State>]) -> Vec<Vec<u8>> {
    let mut bodies = vec![Vec::new()];
    for rumor in rumors {
        let mut bytes = rumor.node.0.to_le_bytes().to_vec();
        put(&mut bytes, rumor.age_ms.into());
        bytes.extend_from_slice(&rumor.state);
        let Ok(length) = u8::try_from(bytes.len()) else {
            continue;
        };
        if bodies
            .last()
            .is_none_or(|body| body.len() + 1 + bytes.len() > BODY_MAX)
        {
            bodies.push(Vec::new());
        }
        if let Some(body) = bodies.last_mut() {
            body.push(length);
            body.append(&mut bytes);
        }
    }
    bodies
}

/// The rumors of a body; those that cannot be understood are left out.
#[must_use]
pub(crate) fn unpack(mut body: &[u8]) -> Vec<Rumor<State>> {
    let mut rumors = Vec::new();
    while let Some((length, rest)) = body.split_first() {
        let Some((bytes, rest)) = rest.split_at_checked(usize::from(*length)) else {
            break;
        };
        body = rest;
        rumors.extend(unpack_rumor(bytes));
    }
    rumors
}

fn unpack_rumor(bytes: &[u8]) -> Option<Rumor<State>> {
    let (node, mut rest) = bytes.split_first_chunk::<8>()?;
    let age = take(&mut rest)?;
    (rest.len() <= STATE_MAX).then(|| Rumor {
        node: NodeId(u64::from_le_bytes(*node)),
        age_ms: u32::try_from(age).unwrap_or(u32::MAX),
        state: rest.into(),
    })
}

/// The part of a report that is long and rarely changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub class: Class,
    pub labels: Vec<String>,
}

impl About {
    #[must_use]
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            class: report.class.clone(),
            labels: report.labels.clone(),
        }
    }

    /// The digest by which a state names it.
    #[must_use]
    pub(crate) fn digest(&self) -> u64 {
        digest(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Whether a configuration could hold these labels.
    #[must_use]
    pub(crate) fn is_sound(&self) -> bool {
        let short = |label: &String| label.len() <= 63;
        self.labels.len() <= LABELS_MAX && self.labels.iter().all(short)
    }
}

const BLOCKED: u64 = 1;
const STAYS: u64 = 2;
const DRAINING: u64 = 4;
const ESTIMATED: u64 = 8;
// Unknown to nodes of earlier versions, which pass them over.
const EVACUATES: u64 = 16;
const OWNER_HERE: u64 = 32;

/// A report as a state; `about` is the digest of the rest of it.
#[must_use]
pub(crate) fn encode(report: &Report, about: u64) -> State {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let flags = flag(report.blocked, BLOCKED)
        | flag(report.stays, STAYS)
        | flag(report.draining, DRAINING)
        | flag(report.speed.estimated, ESTIMATED)
        | flag(report.evacuates, EVACUATES)
        | flag(report.owner_here, OWNER_HERE);
    let pressure = &report.pressure;
    let numbers = [
        flags,
        fixed(report.load),
        fixed(report.cpus),
        fixed(report.speed.value),
        fixed(report.throttled_cpus),
        report.memory_total_bytes / 1024,
        report.memory_available_bytes / 1024,
        report.memory_promised_bytes.div_ceil(1024),
        percent(pressure.cpu_some),
        percent(pressure.memory_some),
        percent(pressure.memory_full),
        percent(pressure.io_full),
        report.guests.into(),
        fixed(report.running),
        float(report.urgency),
        float(report.memory_growth_bytes),
        report.guests_left_bytes / 1024,
        // Append here, and at the end of `decode`.
    ];
    let mut bytes = about.to_le_bytes().to_vec();
    for number in numbers {
        put(&mut bytes, number);
    }
    bytes.into()
}

/// Digest of what is not in a state ([`About`]), and the rest of the report.
#[must_use]
pub(crate) fn decode(state: &[u8]) -> Option<(u64, Report)> {
    let (about, mut rest) = state.split_first_chunk::<8>()?;
    let mut next = || take(&mut rest).unwrap_or(0);
    let flags = next();
    let report = Report {
        blocked: flags & BLOCKED != 0,
        stays: flags & STAYS != 0,
        draining: flags & DRAINING != 0,
        evacuates: flags & EVACUATES != 0,
        owner_here: flags & OWNER_HERE != 0,
        load: fraction(next()),
        cpus: fraction(next()),
        speed: Speed {
            value: fraction(next()),
            estimated: flags & ESTIMATED != 0,
        },
        throttled_cpus: fraction(next()),
        memory_total_bytes: next().saturating_mul(1024),
        memory_available_bytes: next().saturating_mul(1024),
        memory_promised_bytes: next().saturating_mul(1024),
        pressure: Pressure {
            cpu_some: of_percent(next()),
            memory_some: of_percent(next()),
            memory_full: of_percent(next()),
            io_full: of_percent(next()),
        },
        guests: u32::try_from(next()).unwrap_or(u32::MAX),
        running: fraction(next()),
        urgency: of_float(next()),
        memory_growth_bytes: of_float(next()),
        guests_left_bytes: next().saturating_mul(1024),
        ..Report::default()
    };
    Some((u64::from_le_bytes(*about), report))
}

/// In thousandths; a value that cannot be told so becomes the nearest that can.
fn fixed(value: f64) -> u64 {
    // A cast of a float stays within the range of its target.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let thousandths = (value * 1000.0).round() as u32;
    thousandths.into()
}

fn fraction(thousandths: u64) -> f64 {
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 1000.0
}

/// With 24 significant bits, however large or small it is.
fn float(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation)]
    let bits = (value as f32).to_bits();
    bits.into()
}

fn of_float(bits: u64) -> f64 {
    let value = u32::try_from(bits).map_or(0.0, f32::from_bits);
    if value.is_finite() { value.into() } else { 0.0 }
}

/// In hundredths, plus one; 0 where nothing is known.
fn percent(value: Option<f64>) -> u64 {
    value.map_or(0, |value| 1 + fixed(value) / 10)
}

fn of_percent(number: u64) -> Option<f64> {
    let hundredths = number.checked_sub(1)?;
    Some(fraction(hundredths.saturating_mul(10)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_balance::gossip::RUMORS_MAX;

    fn report() -> Report {
        Report {
            load: 2.125,
            cpus: 0.5,
            speed: Speed {
                value: 1.25,
                estimated: true,
            },
            throttled_cpus: 0.75,
            memory_total_bytes: 16 << 30,
            memory_available_bytes: 5 << 30,
            memory_promised_bytes: 3 << 20,
            pressure: Pressure {
                cpu_some: Some(12.5),
                memory_some: Some(0.0),
                memory_full: None,
                io_full: Some(100.0),
            },
            guests: 7,
            running: 1.5,
            urgency: 0.000_976_562_5,
            memory_growth_bytes: 5e7,
            guests_left_bytes: 1 << 30,
            blocked: true,
            stays: false,
            draining: true,
            evacuates: true,
            owner_here: true,
            ..Report::default()
        }
    }

    #[test]
    fn a_report_is_told_in_few_bytes() {
        let state = encode(&report(), 0x0123_4567_89ab_cdef);
        assert!(state.len() <= 60, "{}", state.len());
        assert_eq!(decode(&state), Some((0x0123_4567_89ab_cdef, report())));
        let nothing = Report::default();
        assert_eq!(decode(&encode(&nothing, 1)), Some((1, nothing)));
        let odd = Report {
            load: f64::NAN,
            urgency: f64::INFINITY,
            cpus: -1.0,
            memory_total_bytes: u64::MAX,
            throttled_cpus: f64::INFINITY,
            ..Report::default()
        };
        let (_, told) = decode(&encode(&odd, 1)).expect("understood");
        assert_eq!((told.load, told.cpus, told.urgency), (0.0, 0.0, 0.0));
        assert!(told.throttled_cpus > 1e6 && told.throttled_cpus.is_finite());
        assert_eq!(told.memory_total_bytes, u64::MAX / 1024 * 1024);
    }

    #[test]
    fn versions_with_more_and_with_fewer_numbers_understand_each_other() {
        let state = encode(&report(), 5);
        let longer = [&state[..], &[1, 0x80, 0x7f]].concat();
        assert_eq!(decode(&longer), Some((5, report())));
        // An older node does not send the last number, which has three bytes here.
        let (_, told) = decode(&state[..state.len() - 3]).expect("understood");
        let less = Report {
            guests_left_bytes: 0,
            ..report()
        };
        assert_eq!(told, less);
        assert_eq!(decode(&[1; 7]), None);
    }

    #[test]
    fn a_whole_message_travels_in_small_datagrams() {
        let rumor = |number: usize| Rumor {
            node: NodeId(number as u64 * 77),
            age_ms: u32::try_from(number * 100).expect("small"),
            state: encode(&report(), number as u64),
        };
        let rumors: Vec<_> = (0..=RUMORS_MAX).map(rumor).collect();
        let bodies = pack(&rumors);
        println!("{} datagrams", bodies.len());
        assert!(bodies.len() <= 10);
        assert!(bodies.iter().all(|body| body.len() <= BODY_MAX));
        let back: Vec<_> = bodies.iter().flat_map(|body| unpack(body)).collect();
        assert_eq!(back, rumors);
        // What nodes of a small cluster tell each other every second is one datagram.
        assert_eq!(pack(&rumors[..7]).len(), 1);
    }

    #[test]
    fn states_are_taken_up_to_their_limit() {
        let rumor = |length: usize| Rumor {
            node: NodeId(5),
            age_ms: 1,
            state: vec![7; length].into(),
        };
        let rumors = [rumor(STATE_MAX), rumor(STATE_MAX + 1), rumor(0)];
        let bodies = pack(&rumors);
        let back: Vec<_> = bodies.iter().flat_map(|body| unpack(body)).collect();
        assert_eq!(back, [rumors[0].clone(), rumors[2].clone()]);
        // A rumor that is cut off ends the message; one that makes no sense is merely left out.
        let body = [&[3, 1, 2, 3][..], &bodies[0], &[200, 1]].concat();
        assert_eq!(unpack(&body), unpack(&bodies[0]));
    }

    #[test]
    fn heads_and_numbers_are_read_as_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let head = Head {
                kind: Kind::Rumors,
                members: number,
                time_ms: number / 2,
            };
            let text = head.text(b"rest");
            assert!(text.len() <= HEAD_MAX + 4);
            assert_eq!(Head::read(&text), Some((head, &b"rest"[..])));
        }
        for odd in [&[][..], &[4, 1, 1], &[1, 0x80], &[1, 5], &[1; 2]] {
            assert_eq!(Head::read(odd), None, "{odd:?}");
        }
        let endless = [&[1][..], &[0xff; 20]].concat();
        assert_eq!(Head::read(&endless), None);
    }
}
