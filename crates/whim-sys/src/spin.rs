//! A short, polite spin before sleep.
//!
//! Waking a sleeping thread on another CPU costs 20 to 40 us in a virtual machine, as much as a
//! whole forwarded call. A supervisor that has just worked therefore polls for more work for 50 us,
//! and yields the processor between polls. If a yield ever takes long, another process needs the
//! CPU, and for a while the supervisor sleeps at once. (Measured during design:
//! docs/decisions/0001.)

use std::time::{Duration, Instant};

/// How long to poll for more work.
const SPIN: Duration = Duration::from_micros(50);
/// A yield that takes longer than this gave away a time slice.
const CROWDED: Duration = Duration::from_micros(100);
/// How long not to spin after such a yield.
const REST: Duration = Duration::from_millis(200);

/// Decides whether to poll once more before going to sleep.
#[derive(Debug, Default)]
pub struct Spin {
    worked: Option<Instant>,
    resting_until: Option<Instant>,
}

impl Spin {
    /// There was work: more may follow at once.
    pub fn worked(&mut self) {
        self.worked = Some(Instant::now());
    }

    /// Yields the processor and returns whether to poll again instead of sleeping.
    pub fn once_more(&mut self) -> bool {
        let Some(worked) = self.worked else {
            return false;
        };
        let before = Instant::now();
        if self.resting_until.is_some_and(|until| before < until) || before - worked > SPIN {
            self.worked = None;
            return false;
        }
        std::thread::yield_now();
        if before.elapsed() > CROWDED {
            self.resting_until = Some(before + REST);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Spin;

    #[test]
    fn without_recent_work_it_sleeps_at_once() {
        let mut spin = Spin::default();
        assert!(!spin.once_more());
        spin.worked();
        while spin.once_more() {}
        assert!(!spin.once_more());
    }
}
