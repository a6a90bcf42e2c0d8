//! What the guest supervisor reports of the guest.

use super::Away;
use crate::moving::behind;
use whim_journey::message::ToHome;
use whim_model::CpuTime;

impl Away {
    pub(super) fn heartbeat(&mut self, message: &ToHome) {
        if let ToHome::Heartbeat {
            clocks: guest,
            used,
        } = message
        {
            self.clock_ahead = behind(guest, self.connections.round_trip / 2);
            self.used(used.cpu_away);
            if used.busy_ns > 0 {
                self.busy_ns = used.busy_ns;
                self.counted_ms = guest.monotonic_ns / 1_000_000;
            }
            if used.resident_bytes > 0 {
                self.resident_bytes = used.resident_bytes;
            }
        }
    }

    /// CPU time away only grows; a zero says nothing, and is passed over.
    pub(super) fn used(&mut self, cpu_away: CpuTime) {
        if cpu_away.total_ns > self.cpu_away.total_ns {
            self.cpu_away = cpu_away;
        }
    }
}
