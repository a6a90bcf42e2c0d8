//! What has to be hidden when a stop interrupts a call, as the call's row says.

use crate::resolve::row;
use crate::stopped::{AtStop, Stopped, Time, Transfer};

fn stopped(number: u64) -> Stopped {
    row(number).map_or(Stopped::NOT, |row| row.stopped)
}

/// What becomes of this call when a stop interrupts it while it waits.
pub fn at_stop(number: u64) -> AtStop {
    stopped(number).at_stop
}

/// Whether the call waits for signals themselves, by the kernel on which it is made: under a mask of
/// its own, or for signals that it takes out of the queue.
#[must_use]
pub fn waits_for_signals(number: u64) -> bool {
    stopped(number).waits_for_signals
}

/// Whether the call may end for no reason, with 0.
#[must_use]
pub fn ends_for_nothing(number: u64) -> bool {
    stopped(number).ends_for_nothing
}

/// Whether other signals may interrupt a call with these arguments than those that its thread does
/// not block: it waits under a mask of its own, or takes signals out of the queue.
#[must_use]
pub fn has_signals_of_its_own(number: u64, args: &[u64; 6]) -> bool {
    let stopped = stopped(number);
    stopped.waits_for_signals || stopped.own_mask.is_some_and(|index| args[index] != 0)
}

/// True if a mere stop can end the call with EINTR; on a socket only if that has a time limit.
pub fn ends_at_stop(number: u64) -> bool {
    matches!(at_stop(number), AtStop::Ends | AtStop::EndsOnSocket(_))
}

/// Where a call with these arguments has a relative timeout.
pub fn relative_time(number: u64, args: &[u64; 6]) -> Option<Time> {
    let (time, only) = stopped(number).time?;
    only.is_none_or(|only| only.holds(args)).then_some(time)
}

/// What a call answers when its time is over.
pub fn result_when_over(number: u64) -> i64 {
    stopped(number).expired
}

/// The argument that points to where the kernel writes what is left of the call's time when it is interrupted.
#[must_use]
pub fn rest_of_time(number: u64) -> Option<usize> {
    stopped(number).rest
}

/// The transfer of a call with these arguments, if a stop may leave it short. (It has to block as well.)
pub fn transfer(number: u64, args: &[u64; 6]) -> Option<Transfer> {
    let transfer = stopped(number).transfer?;
    let waits = transfer.waits.is_none_or(|only| only.holds(args));
    waits.then_some(transfer)
}

/// True if a thread that sleeps in this call can be stopped only when another process lets it go.
pub fn waits_for_child(number: u64) -> bool {
    stopped(number).waits_for_child
}

/// True if a signal may end the call with -ERESTARTSYS although it runs in the guest. For any other
/// call that has not been forwarded, -ERESTARTSYS means that it has not begun.
pub fn restarts_here(number: u64) -> bool {
    stopped(number).restarts_here
}
