//! What happens to packets on a link, as a pure function of their numbers: no clock, no socket.
//!
//! Chance is a hash of (seed, direction, packet number, question), not a stream of random
//! numbers: the fate of packet 17 is the same whatever happened to packet 16, so a run with the
//! same traffic loses the same packets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::options::LinkSettings;

/// A packet that is overtaken comes this much later, or half the delay if that is more.
const OVERTAKEN_US: u64 = 5_000;
/// Most bytes under way in one direction; a longer queue loses what arrives, as a router does.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Counted since the link got its properties. Each packet that arrives is in exactly one of
/// `lost`, `overflowed` or (once or twice) `forwarded`, or still under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireCounters {
    /// Packets that came to the link.
    pub arrived: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets lost because too many were under way.
    pub overflowed: u64,
    /// Packets sent twice.
    pub doubled: u64,
    /// Packets made to be overtaken.
    pub reordered: u64,
    /// Packets that left the link, doubles included.
    pub forwarded: u64,
}

/// One direction of a link. Times are microseconds of any one monotonic clock.
#[derive(Debug)]
pub(crate) struct OneWay {
    settings: LinkSettings,
    key: u64,
    queue: BinaryHeap<Reverse<Waiting>>,
    queued_bytes: usize,
    order: u64,
    pub(crate) counters: WireCounters,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    release_us: u64,
    order: u64,
    packet: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Question {
    Lost = 1,
    Doubled = 2,
    Overtaken = 3,
}

impl OneWay {
    pub(crate) fn new(settings: LinkSettings, direction: u64) -> OneWay {
        let key = mix(settings.seed ^ mix(direction.wrapping_add(1)));
        OneWay {
            settings,
            key,
            queue: BinaryHeap::new(),
            queued_bytes: 0,
            order: 0,
            counters: WireCounters::default(),
        }
    }

    /// A packet comes to the link.
    pub(crate) fn arrive(&mut self, now_us: u64, packet: &[u8]) {
        let number = self.counters.arrived;
        self.counters.arrived += 1;
        if self.happens(number, Question::Lost, self.settings.loss) {
            self.counters.lost += 1;
            return;
        }
        let mut release_us = now_us + self.settings.delay_us;
        if self.happens(number, Question::Overtaken, self.settings.reorder) {
            self.counters.reordered += 1;
            release_us += OVERTAKEN_US.max(self.settings.delay_us / 2);
        }
        let doubled = self.happens(number, Question::Doubled, self.settings.duplicate);
        self.counters.doubled += u64::from(doubled);
        for _ in 0..=usize::from(doubled) {
            self.enqueue(release_us, packet);
        }
    }

    fn enqueue(&mut self, release_us: u64, packet: &[u8]) {
        if self.queued_bytes + packet.len() > QUEUE_BYTES_MAX {
            self.counters.overflowed += 1;
            return;
        }
        self.queued_bytes += packet.len();
        let order = self.order;
        self.order += 1;
        self.queue.push(Reverse(Waiting {
            release_us,
            order,
            packet: packet.to_vec(),
        }));
    }

    fn happens(&self, number: u64, question: Question, share: f64) -> bool {
        let hash = mix(self.key ^ mix(number.wrapping_mul(8).wrapping_add(question as u64)));
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let uniform = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < share
    }

    /// The next packet that is due, if one is.
    pub(crate) fn release(&mut self, now_us: u64) -> Option<Vec<u8>> {
        if self.next_release_us()? > now_us {
            return None;
        }
        let Reverse(waiting) = self.queue.pop()?;
        self.queued_bytes -= waiting.packet.len();
        self.counters.forwarded += 1;
        Some(waiting.packet)
    }

    /// When the next packet is due.
    pub(crate) fn next_release_us(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(w)| w.release_us)
    }
}

/// The finalizer of splitmix64: every bit of the input touches every bit of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> LinkSettings {
        LinkSettings {
            seed: 7,
            ..LinkSettings::default()
        }
    }

    fn arrivals(way: &mut OneWay, count: u32) {
        for i in 0..count {
            way.arrive(u64::from(i), &i.to_be_bytes());
        }
    }

    fn drain(way: &mut OneWay, now_us: u64) -> Vec<u32> {
        std::iter::from_fn(|| way.release(now_us))
            .map(|p| u32::from_be_bytes(p.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn a_plain_delay_keeps_the_order_and_holds_the_packets() {
        let mut way = OneWay::new(
            LinkSettings {
                delay_us: 1000,
                ..settings()
            },
            0,
        );
        arrivals(&mut way, 100);
        assert_eq!(drain(&mut way, 999), Vec::<u32>::new());
        assert_eq!(way.next_release_us(), Some(1000));
        assert_eq!(drain(&mut way, 1049), (0..50).collect::<Vec<_>>());
        assert_eq!(drain(&mut way, 5000), (50..100).collect::<Vec<_>>());
        assert_eq!(way.next_release_us(), None);
    }

    #[test]
    fn loss_has_the_asked_share_and_repeats_with_the_seed() {
        let lossy = LinkSettings {
            loss: 0.1,
            ..settings()
        };
        let run = |settings: &LinkSettings, direction| {
            let mut way = OneWay::new(settings.clone(), direction);
            arrivals(&mut way, 10_000);
            assert_eq!(way.counters.arrived, 10_000);
            (way.counters.lost, drain(&mut way, u64::MAX / 2))
        };
        let (lost, first) = run(&lossy, 0);
        assert!((900..1100).contains(&lost), "{lost}");
        assert_eq!(first.len() as u64 + lost, 10_000);
        assert_eq!(run(&lossy, 0).1, first);
        assert_ne!(run(&lossy, 1).1, first, "the directions differ");
        assert_ne!(run(&LinkSettings { seed: 8, ..lossy }, 0).1, first);
    }

    #[test]
    fn the_ends_of_the_scale_are_exact() {
        let mut none = OneWay::new(settings(), 0);
        arrivals(&mut none, 1000);
        assert_eq!(drain(&mut none, 1000).len(), 1000);
        let mut all = OneWay::new(
            LinkSettings {
                loss: 1.0,
                ..settings()
            },
            0,
        );
        arrivals(&mut all, 1000);
        assert_eq!(drain(&mut all, u64::MAX / 2).len(), 0);
        let mut twice = OneWay::new(
            LinkSettings {
                duplicate: 1.0,
                ..settings()
            },
            0,
        );
        arrivals(&mut twice, 1000);
        assert_eq!(drain(&mut twice, 1000).len(), 2000);
        assert_eq!(twice.counters.doubled, 1000);
    }

    #[test]
    fn reordered_packets_are_overtaken() {
        let mut way = OneWay::new(
            LinkSettings {
                reorder: 0.1,
                ..settings()
            },
            0,
        );
        arrivals(&mut way, 1000);
        let order = drain(&mut way, u64::MAX / 2);
        let late = order.windows(2).filter(|w| w[0] > w[1]).count();
        assert!(late > 0);
        assert!(way.counters.reordered > 50);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_loses_what_arrives() {
        let mut way = OneWay::new(
            LinkSettings {
                delay_us: 1,
                ..settings()
            },
            0,
        );
        let packet = vec![0; 60_000];
        for _ in 0..2000 {
            way.arrive(0, &packet);
        }
        assert!(way.counters.overflowed > 0);
        let released = std::iter::from_fn(|| way.release(10)).count() as u64;
        assert_eq!(released + way.counters.overflowed, 2000);
    }
}
