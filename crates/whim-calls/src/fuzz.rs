//! Entry of a fuzz target in `fuzz/`; its corpus is replayed by the tests of this crate.

use crate::types::word;
use crate::{
    AWAY_BYTES_MAX, Context, Decision, Direction, Forward, GuestMemory, REGIONS_MAX, Region,
    Special, home_may_execute, resolve, row, rows, signal_action,
};
use whim_model::Syscall;

const PAGE: u64 = 4096;
/// Where the guest's memory begins: two writable pages, a read-only page, a hole, and one more
/// writable page.
const BASE: u64 = 0x1_0000;
const PAGES: [Option<bool>; 5] = [Some(true), Some(true), Some(false), None, Some(true)];
const RESERVED: (u64, u64) = (32 << 40, 33 << 40);
const PID: i32 = 100;
const THREADS: [i32; 2] = [100, 101];
/// Flags that make a new task a thread of the process, and flags that may be added (`clone(2)`).
const THREAD_FLAGS: u64 = 0x0001_0f00;
const THREAD_OPTIONS: u64 = 0x017c_0000;

/// A small address space that holds the contents of the input.
struct Memory<'a>(&'a [u8]);

impl Memory<'_> {
    /// Whether the page of an address may be written; `None` if there is no page.
    fn page(address: u64) -> Option<bool> {
        let index = usize::try_from(address.checked_sub(BASE)? / PAGE).ok()?;
        *PAGES.get(index)?
    }

    fn byte(&self, address: u64) -> u8 {
        let at = usize::try_from(address - BASE).unwrap_or(usize::MAX);
        // Pages begin alike, so that short inputs reach all of them.
        self.0.get(at % 4096).copied().unwrap_or(0)
    }
}

impl GuestMemory for Memory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut count = 0;
        for place in buffer {
            let at = address.wrapping_add(count);
            if Self::page(at).is_none() {
                break;
            }
            *place = self.byte(at);
            count += 1;
        }
        usize::try_from(count).unwrap_or(0)
    }

    fn writable(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else {
            return false;
        };
        let mut at = address;
        while at < end {
            if Self::page(at) != Some(true) {
                return false;
            }
            at = (at / PAGE + 1) * PAGE;
        }
        true
    }
}

/// Every call has a decision, whatever its arguments and the memory are, and what is forwarded stays
/// within its limits: the kernel at home touches what the guest may touch, and nothing else.
///
/// The input: the number (2 bytes: a row of the table, or from 0x8000 on the first word of the
/// memory is the number), six arguments of 8 bytes, and the contents of the memory.
pub fn calls(data: &[u8]) {
    let Some((head, contents)) = data.split_at_checked(50) else {
        return;
    };
    let place = usize::from(head[0]) | usize::from(head[1]) << 8;
    let number = match place {
        // Numbers that are in no row, from every part of the range.
        0x8000.. => word(contents, 0),
        _ => rows()[place % rows().len()].number(),
    };
    let args = std::array::from_fn(|index| word(head, 2 + index * 8));
    let call = Syscall { number, args };
    let context = Context {
        pid: PID,
        threads: THREADS.to_vec(),
        reserved: RESERVED,
        locks_future: place.is_multiple_of(7),
        descriptor_signals: if place.is_multiple_of(5) {
            0x0001_0200
        } else {
            0
        },
    };
    let memory = Memory(contents);
    let decision = resolve(&call, &context, &memory);
    assert_eq!(decision, resolve(&call, &context, &memory), "it is decided");
    check(&call, &decision, &memory);
    if let Some(action) = signal_action(&call, &memory) {
        assert_eq!(
            action.signal,
            i32::from_le_bytes(head[2..6].try_into().unwrap_or_default())
        );
    }
}

fn check(call: &Syscall, decision: &Decision, memory: &Memory<'_>) {
    match decision {
        Decision::Continue => assert!(row(call.number).is_some()),
        Decision::GoHome(reason) => assert!(!reason.is_empty(), "{call:?} goes home for nothing"),
        Decision::Answer(value) => assert!((-4095..=0).contains(value), "{call:?}: {value}"),
        Decision::Forward(forward)
        | Decision::Special(
            Special::ProcessTimes(forward) | Special::Both(forward) | Special::Limit(forward),
        ) => {
            check_forward(call, forward, memory);
        }
        Decision::Special(Special::Signal(signal)) => {
            assert!((1..=64).contains(&signal.signal));
            assert!(signal.tgid.is_none_or(|tgid| tgid == PID));
            assert!(signal.tid.is_none_or(|tid| tid > 0));
            check_forward(call, &signal.forward, memory);
        }
        Decision::Special(Special::NewThread(thread)) => {
            assert_eq!(thread.flags & THREAD_FLAGS, THREAD_FLAGS);
            assert_eq!(thread.flags & !(THREAD_FLAGS | THREAD_OPTIONS), 0);
            assert!(thread.written().count() <= 2);
        }
        Decision::Special(_) => {}
    }
}

fn check_forward(call: &Syscall, forward: &Forward, memory: &Memory<'_>) {
    assert!(home_may_execute(call.number), "{call:?}");
    assert!(forward.regions.len() <= REGIONS_MAX);
    let lengths = forward.regions.iter().map(|region| region.length);
    assert!(lengths.fold(0, u64::saturating_add) <= AWAY_BYTES_MAX);
    assert!(forward.timeout.is_none_or(|timeout| timeout.index < 6));
    for region in &forward.regions {
        check_region(call, region, memory);
        let whole = region.direction == Direction::Out || region.data.len() as u64 == region.length;
        let ends = region.address.checked_add(region.length).is_some();
        assert!((whole && ends) || forward.may_fault, "{call:?}: {region:?}");
    }
}

fn check_region(call: &Syscall, region: &Region, memory: &Memory<'_>) {
    let told = |what: &str| format!("{call:?}: {what}: {region:x?}");
    assert!(region.length > 0, "{}", told("its length"));
    let end = region.address.saturating_add(region.length);
    let reserved = region.address < RESERVED.1 && end > RESERVED.0;
    assert!(!reserved, "{}", told("reserved"));
    assert!(
        region.data.len() as u64 <= region.length,
        "{}",
        told("data")
    );
    // The data comes first: at its end the address is not advanced, which may already be the last
    // one.
    for (byte, address) in region.data.iter().zip(region.address..) {
        assert_eq!(memory.byte(address), *byte, "{}", told("what is sent"));
    }
    let filled = matches!(region.direction, Direction::Out | Direction::InOut);
    if filled {
        let writable = memory.writable(region.address, region.length);
        assert!(writable, "{}", told("it may not be written"));
    }
    if region.direction == Direction::Out {
        assert!(region.data.is_empty(), "{}", told("output with data"));
    }
    for result in [i64::MIN, -4096, -14, -1, 0, 1, 7, 1 << 20, i64::MAX] {
        let back = region.returned.bytes(region.length, result);
        assert!(back <= region.length, "{}", told("more comes back"));
        assert!(back == 0 || filled, "{}", told("input comes back"));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_calls() {
        whim_corpus::replay("calls", super::calls);
    }
}
