//! The part of a virtual machine's CPUs that its programs really get: a hypervisor may give the CPUs to other
//! machines meanwhile.
//!
//! The kernel counts how long a CPU of this machine wanted to run and could not ("steal", proc(5)). If programs
//! get three quarters of the time that they should get, two CPUs are worth one and a half.

use crate::processes;
use crate::sensors::float;

/// CPU time of the whole machine since it began, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    ran: u64,
    stolen: u64,
}

/// The part of the wanted time that the machine got, as a fading average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Got {
    last: Option<Ticks>,
    part: f64,
}

/// Fewer ticks than this since the last sample tell nothing: a tick is a hundredth of a second.
const LEAST: u64 = 5;
/// A CPU that gets a smaller part is treated as if it got this one.
const PART_LEAST: f64 = 0.05;

impl Default for Got {
    fn default() -> Self {
        Self {
            last: None,
            part: 1.0,
        }
    }
}

impl Got {
    /// Takes a sample; to be called once a second.
    pub(super) fn sample(&mut self) {
        let line = processes::short("/proc/stat").unwrap_or_default();
        if let Some(now) = ticks(&line) {
            self.take(now);
        }
    }

    fn take(&mut self, now: Ticks) {
        let Some(before) = self.last.replace(now) else {
            return;
        };
        let ran = now.ran.saturating_sub(before.ran);
        let stolen = now.stolen.saturating_sub(before.stolen);
        if ran + stolen < LEAST {
            return;
        }
        let part = float(ran) / float(ran + stolen);
        self.part = (7.0 * self.part + part) / 8.0;
    }

    /// The part, from [`PART_LEAST`] to 1.
    #[must_use]
    pub(super) fn part(self) -> f64 {
        self.part.max(PART_LEAST)
    }
}

/// Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, and guests' time,
/// which is contained in user.
fn ticks(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let fields: Vec<u64> = fields.collect::<Option<_>>()?;
    let ran = [0, 1, 2, 5, 6].into_iter();
    let ran = ran.map(|field| fields.get(field).copied());
    Some(Ticks {
        ran: ran.sum::<Option<u64>>()?,
        stolen: *fields.get(7)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ran: u64, stolen: u64) -> Ticks {
        Ticks { ran, stolen }
    }

    #[test]
    fn the_first_line_is_read() {
        let text = "cpu  10 2 30 400 50 6 7 8 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(ticks(text), Some(of(55, 8)));
        for odd in [
            "",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu  1 2 3",
            "cpu  1 2 x 4 5 6 7 8",
        ] {
            assert_eq!(ticks(odd), None, "{odd}");
        }
        let mut got = Got::default();
        got.sample();
        assert!(got.last.is_some());
    }

    #[test]
    fn what_is_stolen_lowers_what_is_got_and_idle_time_tells_nothing() {
        let mut got = Got::default();
        got.take(of(0, 0));
        for look in 1..=100 {
            got.take(of(75 * look, 25 * look));
        }
        assert!((got.part() - 0.75).abs() < 1e-3, "{got:?}");
        let before = got.part();
        got.take(of(75 * 100 + 4, 25 * 100));
        assert!((got.part() - before).abs() < 1e-12);
        // All time is stolen, but something is left to divide by.
        for look in 101..=200 {
            got.take(of(75 * 100 + 4, 25 * 100 * look));
        }
        assert!((got.part() - PART_LEAST).abs() < 1e-12, "{got:?}");
    }
}
