//! Numbered points at which a fault test lets this process die.
//!
//! Every request that changes another process is enclosed by two points. A test counts them in a
//! run without a fault, then repeats the run once per number and looks at what is left behind.
//! Unarmed, a point costs one relaxed load.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of the point at which to die; 0 = not armed.
static FATAL: AtomicU32 = AtomicU32::new(0);
/// Points passed since the last [`arm`].
static PASSED: AtomicU32 = AtomicU32::new(0);

/// Value for [`arm`] with which points are counted but none is fatal.
pub const COUNT_ONLY: u32 = u32::MAX;
/// Environment variable that [`arm_from_environment`] reads.
pub const VARIABLE: &str = "WHIM_CRASH_AT";

/// Ends this process by SIGKILL at the point with this number (the first is 1); 0 disarms.
pub fn arm(number: u32) {
    PASSED.store(0, Ordering::Relaxed);
    FATAL.store(number, Ordering::Relaxed);
}

/// Arms from [`VARIABLE`], if it holds a number.
pub fn arm_from_environment() {
    if let Some(number) = std::env::var(VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        arm(number);
    }
}

/// Points passed since the last [`arm`].
#[must_use]
pub fn passed() -> u32 {
    PASSED.load(Ordering::Relaxed)
}

/// Points of the n-th section are numbered from n times this.
pub const SECTION: u32 = 1_000_000;

/// Begins a section, so that its points have the same numbers however many were passed before it:
/// in serving a program that depends on what the program does.
pub fn section() {
    if FATAL.load(Ordering::Relaxed) != 0 {
        tell_passed();
        let begun = (passed() / SECTION).saturating_add(1);
        PASSED.store(begun.saturating_mul(SECTION), Ordering::Relaxed);
    }
}

/// Says on standard error how many points were passed, if that was asked for by arming.
pub fn tell_passed() {
    if FATAL.load(Ordering::Relaxed) != 0 {
        eprintln!("Crash points passed: {}", passed());
    }
}

/// One crash point. `name` appears in the trace when WHIM_CRASH_AT names this point.
#[inline]
pub fn point(name: &'static str) {
    let fatal = FATAL.load(Ordering::Relaxed);
    if fatal != 0 {
        pass(fatal, name);
    }
}

#[cold]
fn pass(fatal: u32, name: &'static str) {
    let number = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    if fatal == u32::MAX {
        // Nobody is to end: the points are counted, and a test looks for some by their names.
        eprintln!("Passed crash point {number}: {name}");
    }
    if number == fatal {
        eprintln!("Crash point {number}: {name}");
        // JUSTIFICATION: the point must end the process as an outside SIGKILL would, with no
        // destructor run; std offers only abort, which is another signal.
        // SAFETY: getpid and kill take no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
