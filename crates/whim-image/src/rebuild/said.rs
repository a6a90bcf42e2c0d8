//! What was said of the image's memory is said again, before its pages come.

use super::RebuildError;
use super::address_space::with_room;
use super::runner::Runner;
use crate::remarks::{self, STORED_POLICY};
use whim_model::{MemoryPolicy, ProcessImage, Remark};
use whim_sys::ptrace::Stopped;

/// Remarks that are made with one list: their names and nodes take a part of the room for arguments.
const AT_ONCE: usize = 4096;

/// Makes the image's remarks. Names are a wish: not every kernel has them.
pub(super) fn say(
    leader: Stopped,
    runner: &Runner,
    image: &ProcessImage,
) -> Result<Stopped, RebuildError> {
    let mut leader = leader;
    let all = on_room_too(image);
    for some in all.chunks(AT_ONCE) {
        let mut arguments = runner.arguments();
        let mut list = Vec::with_capacity(some.len() * 2);
        let mut answers = Vec::new();
        for remark in some {
            if remark.policy != MemoryPolicy::default() {
                let nodes = arguments.add(&remark.policy.nodes.to_le_bytes());
                let told = arguments.add(&[0; STORED_POLICY]);
                list.push(remarks::bind(remark.range, remark.policy, nodes));
                list.push(remarks::ask(remark.range.start, told));
                answers.push((told, remark.policy));
            }
            if !remark.name.is_empty() {
                let name = arguments.add(&[&remark.name, [0].as_slice()].concat());
                list.push(remarks::name(remark.range, name));
            }
        }
        runner.store(&arguments)?;
        (leader, _) = runner.run(leader, &list)?;
        for (told, policy) in answers {
            check(runner, told, policy)?;
        }
    }
    Ok(leader)
}

/// The remarks. What was said of memory that grows is true of what it grows by, and here that has room already.
fn on_room_too(image: &ProcessImage) -> Vec<Remark> {
    let mut remarks = image.remarks.clone();
    if remarks.is_empty() {
        return remarks;
    }
    for (mapping, with_room) in image.mappings.iter().zip(with_room(image)) {
        if with_room.start >= mapping.start {
            continue;
        }
        let mut its = remarks.iter_mut();
        let its = its.find(|remark| remark.range.start == mapping.start);
        if let Some(remark) = its {
            remark.range.start = with_room.start;
        }
    }
    remarks
}

/// Fails unless the kernel has told, at `told`, that a policy is as it was wished to be: of the nodes of a
/// policy it leaves out without a word those that it does not have.
pub(super) fn check(runner: &Runner, told: u64, policy: MemoryPolicy) -> Result<(), RebuildError> {
    let mut stored = [0; STORED_POLICY];
    runner.read(told, &mut stored)?;
    if remarks::policy(&stored) == Some(policy) {
        return Ok(());
    }
    Err(RebuildError::Nodes {
        nodes: policy.nodes,
        mode: policy.mode,
    })
}
