//! Numbered points at which a fault test lets this process die, or stop.
//!
//! Every request that changes another process is enclosed by two points. A test counts them in a
//! run without a fault, then repeats the run once per number and looks at what is left behind. Or
//! it names one point, at which this process stops, and does something to another process at that
//! moment of the journey. Unarmed, a point costs one relaxed load.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of the point at which to die; 0 = not armed.
static FATAL: AtomicU32 = AtomicU32::new(0);
/// Points passed since the last [`arm`].
static PASSED: AtomicU32 = AtomicU32::new(0);
/// Name of the point at which to stop, while [`FATAL`] is [`STOPS`].
static STOPS_AT: Mutex<String> = Mutex::new(String::new());

/// Value of [`FATAL`] with which no point is fatal, and the point named in [`STOPS_AT`] stops this
/// process.
const STOPS: u32 = u32::MAX - 1;
/// Prefix of a plan that names a point.
const STOP_WORD: &str = "stop ";

/// Value for [`arm`] with which points are counted but none is fatal.
pub const COUNT_ONLY: u32 = u32::MAX;
/// Environment variable that [`arm_from_environment`] reads.
pub const VARIABLE: &str = "WHIM_CRASH_AT";

/// Ends this process by SIGKILL at the point with this number (the first is 1); 0 disarms.
pub fn arm(number: u32) {
    PASSED.store(0, Ordering::Relaxed);
    FATAL.store(number, Ordering::Relaxed);
}

/// Arms by what a test has planned: a number, or `stop NAME` for the first point of that name. Anything
/// else arms nothing.
pub fn arm_by(plan: &str) {
    let plan = plan.trim();
    if let Some(name) = plan.strip_prefix(STOP_WORD) {
        name.clone_into(&mut STOPS_AT.lock().unwrap_or_else(PoisonError::into_inner));
        arm(STOPS);
    } else if let Ok(number) = plan.parse() {
        arm(number);
    }
}

/// Arms from [`VARIABLE`], if it is set.
pub fn arm_from_environment() {
    if let Ok(plan) = std::env::var(VARIABLE) {
        arm_by(&plan);
    }
}

/// Points passed since the last [`arm`].
#[must_use]
pub fn passed() -> u32 {
    PASSED.load(Ordering::Relaxed)
}

/// Points of the n-th section are numbered from n times this.
pub const SECTION: u32 = 1_000_000;

/// Begins a section, so that its points have the same numbers however many were passed before it.
/// While a program is served, that number depends on what the program does.
pub fn section() {
    if FATAL.load(Ordering::Relaxed) != 0 {
        let begun = (passed() / SECTION).saturating_add(1);
        PASSED.store(begun.saturating_mul(SECTION), Ordering::Relaxed);
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
    if fatal == STOPS {
        return stop_at(name);
    }
    if fatal == u32::MAX {
        // No point is fatal: the points are counted, and a test looks for some by their names.
        eprintln!("Passed crash point {number}: {name}");
    }
    if number == fatal {
        eprintln!("Crash point {number}: {name}");
        // As a SIGKILL from outside would: no destructor runs.
        send_ourselves(libc::SIGKILL);
    }
}

/// A step of a journey at which a plan may stop this process. Its name is `DIRECTION-PHASE`; it has
/// no number.
#[inline]
pub fn step(direction: &'static str, phase: impl std::fmt::Display) {
    if FATAL.load(Ordering::Relaxed) == STOPS {
        stop_at(&format!("{direction}-{phase}"));
    }
}

/// Stops this process at the point that the plan names, once.
fn stop_at(name: &str) {
    let planned = STOPS_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if *planned == name {
        FATAL.store(0, Ordering::Relaxed);
        eprintln!("Stops at {name}");
        send_ourselves(libc::SIGSTOP);
    }
}

fn send_ourselves(signal: i32) {
    // To this thread, because another thread might get a signal to the process, and this one would
    // go on meanwhile.
    // JUSTIFICATION: std offers only abort, which is another signal.
    // SAFETY: raise takes no pointers.
    unsafe { libc::raise(signal) };
}
