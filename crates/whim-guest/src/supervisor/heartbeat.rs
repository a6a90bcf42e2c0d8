//! Heartbeats for home during work that cannot be interrupted.

use super::Supervisor;
use crate::clocks::Ahead;
use std::time::Duration;
use whim_journey::frame::Kind;
use whim_journey::lease::heartbeat_interval;
use whim_journey::message::{self, ToHome, Used};
use whim_net::{Line, Rhythm};

/// How long work without a sign of life is vouched for if there is no lease.
const PATIENCE_WITHOUT_LEASE: Duration = Duration::from_secs(60);

/// All that a heartbeat takes but the line, so that the work may use everything else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    epoch: u32,
    ahead: Ahead,
    /// Bytes of pages that have arrived.
    arrived: u64,
    rhythm: Rhythm,
}

impl Supervisor {
    pub(super) fn heartbeat(&self) -> Heartbeat {
        let rhythm = Rhythm {
            every: heartbeat_interval(self.lease),
            patience: self.lease.unwrap_or(PATIENCE_WITHOUT_LEASE),
        };
        let arrived = match self.guest {
            Some(_) => 0,
            None => self.arrival.bytes(),
        };
        Heartbeat {
            epoch: self.parties.epoch,
            ahead: self.arrival.ahead(),
            arrived,
            rhythm,
        }
    }
}

impl Heartbeat {
    /// Does work on so many mappings and threads, during which home hears from us.
    pub(super) fn meanwhile<T>(
        self,
        calls: &mut Option<Line>,
        pieces: usize,
        work: impl FnOnce() -> T,
    ) -> T {
        match calls {
            Some(calls) => {
                let beat = move |calls: &mut Line| self.queue(calls);
                whim_net::meanwhile(calls, pieces, self.rhythm, beat, work)
            }
            None => work(),
        }
    }

    fn queue(self, calls: &mut Line) {
        // Without a clock, or without an encoding, there is only silence.
        let Ok(clocks) = self.ahead.clocks() else {
            return;
        };
        let heartbeat = ToHome::Heartbeat {
            clocks,
            used: Used {
                resident_bytes: self.arrived,
                ..Used::default()
            },
        };
        if let Ok(head) = message::encode(&heartbeat) {
            calls.queue(Kind::ToHome, self.epoch, &[&head]);
        }
    }
}
