//! The guest's seccomp program, made from the table.
//!
//! Calls that are never trapped cost nothing: the kernel remembers per number that the program
//! allows them without looking at arguments.

use crate::shape::{Gate, Row};
use crate::table::TABLE;
use crate::types::NATIVE;

/// One classic BPF instruction (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the comparison holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_IF_BITS: u16 = 0x45;
const AND: u16 = 0x54;
/// The index register becomes the accumulator.
const KEEP: u16 = 0x07;
const JUMP_IF_EQUAL_KEPT: u16 = 0x1d;
const JUMP_IF_GREATER_KEPT: u16 = 0x2d;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;

const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const POINTER_AT: u32 = 8;
const ARGS_AT: u32 = 16;

const TEBIBYTE: u64 = 1 << 40;
const TEBIBYTE_HIGH: u32 = 1 << 8;

const MMAP_FLAGS: usize = 3;
const ADVICE: usize = 2;
/// MAP_TYPE, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_HUGETLB
const MMAP_MASK: u32 = 0x0f | 0x20 | 0x100 | 0x4_0000;
const PROTECTION: usize = 2;
/// The most places for which a filter has instructions of their own; more are taken together.
const PLACES_MAX: usize = 8;
/// MAP_PRIVATE | MAP_ANONYMOUS
const MMAP_PLAIN: u32 = 0x02 | 0x20;

fn high(value: u64) -> u32 {
    crate::types::low(value >> 32)
}

fn op(code: u16, k: u32) -> Instruction {
    let (jt, jf) = (0, 0);
    Instruction { code, jt, jf, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn load_low(index: usize) -> Instruction {
    let index = u32::try_from(index).unwrap_or(0);
    op(LOAD, ARGS_AT + 8 * index)
}

fn load_high(index: usize) -> Instruction {
    let index = u32::try_from(index).unwrap_or(0);
    op(LOAD, ARGS_AT + 8 * index + 4)
}

/// The first of the numbers that are negative, and so no call's of whatever architecture (`syscall(-1)`, by
/// which programs find out whether one is known). The kernel answers ENOSYS, and begins nothing again that a
/// signal or a stop has ended: a thread that was trapped there, and stopped, would get the stop's own error
/// (ERESTARTNOINTR).
const NO_CALL: u32 = 1 << 31;

/// Where a guest's memory is not this host's kernel's alone to judge.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// As in [`crate::Context`].
    pub reserved: (u64, u64),
    /// Start and end of each other place; memory calls that begin in the same 4 GiB, or in the 4 GiB below, are
    /// trapped.
    pub others: Vec<(u64, u64)>,
    /// As in [`crate::Context`]: whatever maps memory is trapped.
    pub locks_future: bool,
    /// Descriptors read signals ([`crate::Context`]): calls that concern those are trapped.
    pub reads_signals: bool,
}

/// The same, as the instructions compare it.
struct Watched {
    reserved: (u64, u64),
    /// High halves of the first and last address of each other place.
    others: Vec<(u32, u32)>,
    locks_future: bool,
}

impl Places {
    fn watched(&self) -> Watched {
        Watched {
            reserved: self.reserved,
            others: self.high_halves(),
            locks_future: self.locks_future,
        }
    }

    /// The high halves of the first and last address of each, disjoint.
    fn high_halves(&self) -> Vec<(u32, u32)> {
        let mut halves: Vec<(u32, u32)> = self
            .others
            .iter()
            .filter(|(start, end)| start < end)
            .map(|(start, end)| (high(*start).saturating_sub(1), high(*end - 1)))
            .collect();
        halves.sort_unstable();
        let mut found: Vec<(u32, u32)> = Vec::new();
        for (first, last) in halves {
            match found.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => found.push((first, last)),
            }
        }
        if found.len() > PLACES_MAX {
            let first = found.first().map_or(0, |place| place.0);
            let last = found.last().map_or(0, |place| place.1);
            found = vec![(first, last)];
        }
        found
    }
}

/// Instructions that check the architecture; the next one loads the number.
const HEAD: usize = 6;

/// Seccomp program for a guest. Its reserved range begins and ends at multiples of 4 GiB (`(0, 0)`: none).
///
/// Allows what the table says is local, and traps everything else: also numbers that it does not
/// know, those with the x32 bit, and 32-bit calls, which [`crate::notified`] sends home. Negative
/// numbers are no calls, and allowed.
///
/// The range is compared by the high halves of addresses only. An address less than 1 TiB below
/// the range is trapped too, and so is a length of 1 TiB or more: then no untrapped call can
/// reach into the range.
pub fn guest_filter(places: &Places) -> Vec<Instruction> {
    let mut program = vec![
        op(LOAD, ARCH_AT),
        jump(JUMP_IF_EQUAL, NATIVE, 4, 0),
        op(LOAD, NUMBER_AT),
        jump(JUMP_IF_GREATER_OR_EQUAL, NO_CALL, 0, 1),
        op(RETURN, ALLOW),
        op(RETURN, NOTIFY),
        op(LOAD, NUMBER_AT),
    ];
    let watched = places.watched();
    // Of calls that are looked at, this one alone is made as often as a program can: it comes first.
    let is_first = |row: &&Row| row.name == "futex";
    let first = TABLE.iter().filter(is_first);
    for row in first.chain(TABLE.iter().filter(|row| !is_first(row))) {
        let block = block(row, &watched);
        let (Ok(number), Ok(length)) = (u32::try_from(row.number), u8::try_from(block.len()))
        else {
            continue;
        };
        if length > 0 {
            program.push(jump(JUMP_IF_EQUAL, number, 0, length));
            program.extend(block);
        }
    }
    program.extend([
        jump(JUMP_IF_GREATER_OR_EQUAL, NO_CALL, 0, 1),
        op(RETURN, ALLOW),
        op(RETURN, NOTIFY),
    ]);
    if places.reads_signals {
        let numbers = crate::signal_masks::TRAPPED.into_iter();
        trap_outside(&mut program, places, numbers.map(i64::cast_unsigned));
    }
    program
}

/// Has the program trap calls of these numbers, but for those from code in the reserved range.
fn trap_outside(
    program: &mut Vec<Instruction>,
    places: &Places,
    numbers: impl Iterator<Item = u64>,
) {
    let trap = |number: u64| {
        let number = crate::types::low(number);
        [jump(JUMP_IF_EQUAL, number, 0, 1), op(RETURN, NOTIFY)]
    };
    let mut traps = vec![op(LOAD, NUMBER_AT)];
    traps.extend(numbers.flat_map(trap));
    let (start, end) = places.reserved;
    if let (true, Ok(length)) = (start < end, u8::try_from(traps.len())) {
        let exempt = [
            op(LOAD, POINTER_AT + 4),
            jump(JUMP_IF_GREATER_OR_EQUAL, high(start), 0, 1),
            jump(JUMP_IF_GREATER, high(end - 1), 0, length),
        ];
        traps.splice(0..0, exempt);
    }
    program.splice(HEAD..HEAD, traps);
}

/// The same for a host on which the kernel cannot fetch pages from home: calls that run in the
/// guest and have pointers are trapped as well, see [`crate::touched`].
///
/// Calls from code in the reserved range are not trapped, because the supervisor has the guest make
/// calls there while it does not listen. A guest that jumps there gets `EFAULT` for its own missing
/// pages, and nothing else.
pub fn cautious_filter(places: &Places) -> Vec<Instruction> {
    let mut program = guest_filter(places);
    trap_outside(&mut program, places, crate::touch::touching());
    program
}

/// The instructions for a row once the number is known. Empty: the call is trapped like everything
/// unknown.
fn block(row: &Row, places: &Watched) -> Vec<Instruction> {
    let mut block = Vec::new();
    match row.gate {
        Gate::Trap => return block,
        Gate::Allow => {}
        Gate::Memory { addresses, lengths } => ranges(&mut block, addresses, lengths, places),
        Gate::Break => {
            allow_null(&mut block, 0);
            if places.locks_future {
                block.push(op(RETURN, NOTIFY));
                return block;
            }
            ranges(&mut block, &[0], &[], places);
        }
        Gate::Protect => {
            block.push(load_low(PROTECTION));
            block.push(jump(JUMP_IF_BITS, crate::decide::PROT_EXEC, 0, 1));
            block.push(op(RETURN, NOTIFY));
            ranges(&mut block, &[0], &[1], places);
        }
        Gate::Advice { trapped } => {
            block.push(load_low(ADVICE));
            trap_values(&mut block, trapped);
            ranges(&mut block, &[0], &[1], places);
        }
        Gate::Map => {
            if places.locks_future {
                return block;
            }
            block.push(load_low(MMAP_FLAGS));
            block.push(op(AND, MMAP_MASK));
            block.push(jump(JUMP_IF_EQUAL, MMAP_PLAIN, 1, 0));
            block.push(op(RETURN, NOTIFY));
            ranges(&mut block, &[0], &[1], places);
        }
        Gate::Remap => {
            show_more(&mut block);
            ranges(&mut block, &[0, 4], &[1, 2], places);
        }
        Gate::AllowIf { index, values } => {
            block.push(load_low(index));
            for value in values {
                block.push(jump(JUMP_IF_EQUAL, *value, 0, 1));
                block.push(op(RETURN, ALLOW));
            }
            block.push(op(RETURN, NOTIFY));
            return block;
        }
        Gate::TrapIf {
            index,
            values,
            negative,
        } => {
            block.push(load_low(index));
            trap_values(&mut block, values);
            if negative {
                block.push(jump(JUMP_IF_BITS, 1 << 31, 0, 1));
                block.push(op(RETURN, NOTIFY));
            }
        }
        Gate::AllowNull { index } => {
            unless_null(&mut block, index);
        }
    }
    block.push(op(RETURN, ALLOW));
    block
}

/// Allows the call if this argument is 0. So a program asks where its heap ends, whatever lies at low addresses: its
/// supervisor has it ask that while it listens to no trapped call.
fn allow_null(block: &mut Vec<Instruction>, index: usize) {
    block.extend([
        load_high(index),
        jump(JUMP_IF_EQUAL, 0, 0, 3),
        load_low(index),
        jump(JUMP_IF_EQUAL, 0, 0, 1),
        op(RETURN, ALLOW),
    ]);
}

/// Traps the call unless this argument is 0.
fn unless_null(block: &mut Vec<Instruction>, index: usize) {
    for load in [load_low(index), load_high(index)] {
        block.push(load);
        block.push(jump(JUMP_IF_EQUAL, 0, 1, 0));
        block.push(op(RETURN, NOTIFY));
    }
}

/// Traps the call if what has been loaded is one of these.
fn trap_values(block: &mut Vec<Instruction>, values: &[u32]) {
    for value in values {
        block.push(jump(JUMP_IF_EQUAL, *value, 0, 1));
        block.push(op(RETURN, NOTIFY));
    }
}

/// Traps an `mremap` after which there is more than before, or which may concern several mappings.
fn show_more(block: &mut Vec<Instruction>) {
    const OLD: usize = 1;
    const NEW: usize = 2;
    const HOW: usize = 3;
    block.push(load_low(HOW));
    block.push(jump(JUMP_IF_BITS, crate::decide::MREMAP_TRAPPED, 0, 1));
    block.push(op(RETURN, NOTIFY));
    // The upper halves decide, unless they are equal.
    block.extend([load_high(OLD), op(KEEP, 0), load_high(NEW)]);
    block.push(jump(JUMP_IF_GREATER_KEPT, 0, 5, 0));
    block.push(jump(JUMP_IF_EQUAL_KEPT, 0, 0, 5));
    block.extend([load_low(OLD), op(KEEP, 0), load_low(NEW)]);
    block.push(jump(JUMP_IF_GREATER_KEPT, 0, 0, 1));
    block.push(op(RETURN, NOTIFY));
}

fn ranges(block: &mut Vec<Instruction>, addresses: &[usize], lengths: &[usize], places: &Watched) {
    for index in addresses {
        block.push(load_high(*index));
        for (first, last) in &places.others {
            block.push(jump(JUMP_IF_GREATER_OR_EQUAL, *first, 0, 2));
            block.push(jump(JUMP_IF_GREATER, *last, 1, 0));
            block.push(op(RETURN, NOTIFY));
        }
    }
    let (start, end) = places.reserved;
    if start >= end {
        return;
    }
    let first = high(start.saturating_sub(TEBIBYTE));
    let last = high(end - 1);
    for index in addresses {
        block.push(load_high(*index));
        block.push(jump(JUMP_IF_GREATER_OR_EQUAL, first, 0, 2));
        block.push(jump(JUMP_IF_GREATER, last, 1, 0));
        block.push(op(RETURN, NOTIFY));
    }
    for index in lengths {
        block.push(load_high(*index));
        block.push(jump(JUMP_IF_GREATER_OR_EQUAL, TEBIBYTE_HIGH, 0, 1));
        block.push(op(RETURN, NOTIFY));
    }
}
