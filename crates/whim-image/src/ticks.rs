//! The coarse monotonic clock. It shows the time of the last tick of its kernel, up to 10 ms ago, so that a program that
//! stood still for less could see it step back on another machine, whose ticks come at other times.

use nix::time::{ClockId, clock_getres, clock_gettime};
use std::time::Duration;

/// How long it takes until the coarse monotonic clock of a process, which is `ahead_ns` ahead of ours, is not before
/// this time; zero if it is not.
#[must_use]
pub fn until(then_ns: u64, ahead_ns: i64) -> Duration {
    let nanoseconds = |time: nix::sys::time::TimeSpec| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    };
    let coarse = ClockId::CLOCK_MONOTONIC_COARSE;
    let (Ok(shown), Ok(step), Ok(now)) = (
        clock_gettime(coarse),
        clock_getres(coarse),
        clock_gettime(ClockId::CLOCK_MONOTONIC),
    ) else {
        // A program has no such clock here either.
        return Duration::ZERO;
    };
    let ahead = |time| nanoseconds(time).saturating_add_signed(ahead_ns);
    let left = left(then_ns, (ahead(shown), nanoseconds(step)), ahead(now));
    Duration::from_nanos(left)
}

/// The same in nanoseconds, of a clock that shows this now and goes by such steps.
fn left(then: u64, (shown, step): (u64, u64), now: u64) -> u64 {
    let missing = then.saturating_sub(shown);
    let ticks = missing.div_ceil(step.max(1));
    let shows_then = shown.saturating_add(ticks.saturating_mul(step));
    if missing == 0 {
        return 0;
    }
    shows_then.saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_tick_is_waited_for_if_the_clock_is_behind() {
        assert_eq!(left(1000, (1000, 400), 1300), 0);
        assert_eq!(left(1001, (1000, 400), 1300), 100);
        assert_eq!(left(1400, (1000, 400), 1300), 100);
        assert_eq!(left(1401, (1000, 400), 1300), 500);
        assert_eq!(left(1001, (1000, 400), 1500), 0, "the tick is late");
        assert_eq!(left(1001, (1000, 0), 1001), 0, "no step is told");
    }

    #[test]
    fn for_now_no_more_than_a_step_is_waited() {
        let step = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).expect("told");
        let now = || clock_gettime(ClockId::CLOCK_MONOTONIC).expect("shown");
        for _ in 0..20 {
            let then = u64::try_from(Duration::from(now()).as_nanos()).expect("small");
            let wait = until(then, 0);
            assert!(wait <= Duration::from(step), "{wait:?}");
        }
        assert_eq!(until(1, 0), Duration::ZERO);
    }
}
