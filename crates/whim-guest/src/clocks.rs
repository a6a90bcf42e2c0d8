//! The guest's clocks, and how far they are ahead of its host's.

use crate::error::GuestError;
use whim_image::capture::clocks_now;
use whim_model::Clocks;

/// How far the guest's clocks are ahead of this host's, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    pub monotonic_ns: i64,
    pub boottime_ns: i64,
}

impl Ahead {
    /// The guest's clocks now.
    ///
    /// # Errors
    /// The host has no such clock.
    pub(crate) fn clocks(self) -> Result<Clocks, GuestError> {
        let host = clocks_now().map_err(|error| GuestError::Unreadable {
            what: "clock",
            source: std::io::Error::other(error),
        })?;
        Ok(Clocks {
            monotonic_ns: host.monotonic_ns.saturating_add_signed(self.monotonic_ns),
            boottime_ns: host.boottime_ns.saturating_add_signed(self.boottime_ns),
            realtime_ns: host.realtime_ns,
        })
    }
}
