//! What the daemon knows, in the words of the metrics.

use whim_balance::balancer::{Fixed, Verdict};
use whim_balance::decide::Stay;
use whim_balance::pace;
use whim_journey::job;
use whim_metrics::labels;

use crate::host::guests::AdmitError;
use crate::host::hosting::HostError;
use crate::moves::moving::MoveError;

#[must_use]
pub fn cause(cause: pace::Cause) -> labels::Cause {
    match cause {
        pace::Cause::Load => labels::Cause::Load,
        pace::Cause::Calls => labels::Cause::Calls,
        pace::Cause::Terminal => labels::Cause::Terminal,
        pace::Cause::Memory => labels::Cause::Memory,
        pace::Cause::Turn => labels::Cause::Turn,
    }
}

#[must_use]
pub fn phase(phase: job::Phase) -> labels::Phase {
    match phase {
        job::Phase::Admit => labels::Phase::Admit,
        job::Phase::Freeze => labels::Phase::Freeze,
        job::Phase::Capture => labels::Phase::Capture,
        job::Phase::Transfer => labels::Phase::Transfer,
        job::Phase::Rebuild => labels::Phase::Rebuild,
        job::Phase::Commit => labels::Phase::Commit,
        job::Phase::Convert => labels::Phase::Convert,
        job::Phase::Away => labels::Phase::Away,
        job::Phase::Onward => labels::Phase::Onward,
        job::Phase::Home => labels::Phase::Home,
    }
}

#[must_use]
pub fn verdict(verdict: &Verdict) -> labels::Verdict {
    match verdict {
        Verdict::Move(_) => labels::Verdict::Move,
        Verdict::Moving => labels::Verdict::Moving,
        Verdict::Fixed(Fixed::Told) => labels::Verdict::Told,
        Verdict::Fixed(Fixed::Interactive) => labels::Verdict::Interactive,
        Verdict::Fixed(Fixed::Placed) => labels::Verdict::Placed,
        Verdict::Young { .. } => labels::Verdict::Young,
        Verdict::Light { .. } => labels::Verdict::Light,
        Verdict::Terminal => labels::Verdict::Terminal,
        Verdict::Spent { .. } => labels::Verdict::Spent,
        Verdict::Paced(_) => labels::Verdict::Paced,
        Verdict::Failed { .. } => labels::Verdict::Failed,
        Verdict::Stay(Stay::NoCandidate) => labels::Verdict::NoCandidate,
        Verdict::Stay(Stay::NoNode) => labels::Verdict::NoNode,
        Verdict::Stay(Stay::JustCame) => labels::Verdict::JustCame,
        Verdict::Stay(Stay::NoRoom) => labels::Verdict::NoRoom,
        Verdict::Stay(Stay::NotCheaper(_)) => labels::Verdict::NotCheaper,
        Verdict::Stay(Stay::NotWorth(_)) => labels::Verdict::NotWorth,
    }
}

/// Of a move that has not begun.
#[must_use]
pub fn refusal(error: &MoveError) -> labels::Refusal {
    match error {
        MoveError::Stay { .. } => labels::Refusal::Stay,
        MoveError::OtherClass { .. } => labels::Refusal::Kind,
        MoveError::Forbidden(_) => labels::Refusal::Bounds,
        MoveError::There { .. } | MoveError::AtHome(_) => labels::Refusal::There,
        MoveError::Busy(_) => labels::Refusal::Busy,
        MoveError::Process(_) | MoveError::OtherUser(_) => labels::Refusal::Process,
        _ => labels::Refusal::Node,
    }
}

#[must_use]
pub fn unadmitted(error: &HostError) -> labels::Unadmitted {
    let HostError::Admit(error) = error else {
        return labels::Unadmitted::Other;
    };
    match error {
        AdmitError::Draining { .. } => labels::Unadmitted::Draining,
        AdmitError::Blocked { .. } => labels::Unadmitted::Blocked,
        AdmitError::Guests { .. } => labels::Unadmitted::Guests,
        AdmitError::User { .. } => labels::Unadmitted::User,
        AdmitError::Class { .. } => labels::Unadmitted::Kind,
        AdmitError::Memory { .. } => labels::Unadmitted::Memory,
        AdmitError::Threads { .. } => labels::Unadmitted::Threads,
        AdmitError::Twice { .. } | AdmitError::NoUid { .. } => labels::Unadmitted::Other,
    }
}
