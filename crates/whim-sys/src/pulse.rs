//! Signs that long work gets on, for who vouches for this process meanwhile.
//!
//! Work on thousands of mappings or threads cannot answer anybody before it is done. Its loops say here
//! that they get on, without knowing who wants to know; another thread vouches for the process only as
//! long as the count rises, so that a loop that hangs is found out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest part of a sleep between two signs.
const NAP: Duration = Duration::from_millis(50);

static COUNT: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicBool = AtomicBool::new(false);

/// A piece of long work is done.
pub fn advance() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// How many pieces were done so far, by all threads of this process.
#[must_use]
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Says, again and again while it is so, that the work waits for somebody who froze the control group that it
/// is done in; and that it does no more.
pub fn hold(held: bool) {
    HELD.store(held, Ordering::Relaxed);
    if held {
        advance();
    }
}

/// Whether the work waits for that.
#[must_use]
pub fn is_held() -> bool {
    HELD.load(Ordering::Relaxed)
}

/// A sleep that is no hang.
pub fn sleep(duration: Duration) {
    let begun = Instant::now();
    while let Some(left) = duration.checked_sub(begun.elapsed()) {
        advance();
        std::thread::sleep(left.min(NAP));
        if left.is_zero() {
            break;
        }
    }
    advance();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_as_long_as_it_should_be_and_is_no_hang() {
        let (begun, before) = (Instant::now(), count());
        sleep(NAP * 3);
        assert!(begun.elapsed() >= NAP * 3);
        assert!(count() >= before + 3);
    }
}
