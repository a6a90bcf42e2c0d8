//! Reasons to stay as they are told: one sentence for one reason, however many things give it.

use std::mem::{Discriminant, discriminant};

use crate::stay::StayReason;

/// The sentences of these reasons, in their order, without full stops. Of a reason that several things give, the
/// first of them is named, and the others are counted.
#[must_use]
pub fn sentences(reasons: &[StayReason]) -> Vec<String> {
    let mut kinds: Vec<(Discriminant<StayReason>, StayReason, Vec<String>)> = Vec::new();
    let mut told: Vec<StayReason> = Vec::new();
    for reason in reasons {
        let kind = discriminant(reason);
        let known = kinds.iter_mut().find(|(known, ..)| *known == kind);
        let name = name(&mut reason.clone()).map(|name| name.clone());
        match (name, known) {
            (Some(name), Some((_, _, others))) => {
                if !others.contains(&name) {
                    others.push(name);
                }
            }
            (Some(name), None) => {
                kinds.push((kind, reason.clone(), vec![name]));
                told.push(reason.clone());
            }
            (None, _) if told.contains(reason) => {}
            (None, _) => told.push(reason.clone()),
        }
    }
    let mut sentences = Vec::with_capacity(told.len());
    for reason in told {
        let names = kinds.iter().find(|(_, first, _)| *first == reason);
        let count = names.map_or(0, |(_, _, names)| names.len());
        sentences.push(match count {
            0 | 1 => reason.to_string(),
            count => counted(reason, count - 1).to_string(),
        });
    }
    sentences
}

/// What gives the reason, where several things can.
fn name(reason: &mut StayReason) -> Option<&mut String> {
    use StayReason::{
        Device, HomeDescriptor, OwnProc, SharedFile, SharedUnheard, SharedWritable, Socket,
        SystemVMemory, UnknownDescriptor, UnknownMapping,
    };
    match reason {
        SystemVMemory(name)
        | SharedWritable(name)
        | SharedUnheard(name)
        | SharedFile(name)
        | OwnProc(name)
        | HomeDescriptor(name)
        | UnknownDescriptor(name)
        | Device(name)
        | Socket(name)
        | UnknownMapping(name) => Some(name),
        _ => None,
    }
}

fn counted(mut reason: StayReason, more: usize) -> StayReason {
    if let Some(name) = name(&mut reason) {
        name.push_str(&format!(" and {more} more"));
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_however_many_things_give_it() {
        let shared = |name: &str| StayReason::SharedWritable(format!("/dev/shm/{name}"));
        let reasons = [
            StayReason::IoUring,
            shared("sem.x"),
            shared("sem.x"),
            StayReason::RealTime(4),
            shared("ring"),
            StayReason::IoUring,
            StayReason::OwnProc("/proc/self/maps".into()),
            shared("queue"),
            StayReason::RealTime(5),
        ];
        assert_eq!(
            sentences(&reasons),
            [
                "It uses io_uring",
                "It has shared memory to which it or others may write (/dev/shm/sem.x and 2 more)",
                "Thread 4 has a real-time scheduling policy",
                "It has /proc/self/maps open, which would show only what stays at home",
                "Thread 5 has a real-time scheduling policy",
            ]
        );
    }
}
