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
/// MAP_TYPE, MAP_ANONYMOUS, MAP_HUGETLB
const MMAP_MASK: u32 = 0x0f | 0x20 | 0x4_0000;
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

/// Instructions that check the architecture; the next one loads the number.
const HEAD: usize = 6;

/// Seccomp program for a guest whose reserved range is `[start, end)` (both multiples of 1 TiB,
/// `(0, 0)` for none).
///
/// Allows what the table says is local, and traps everything else: also numbers that it does not
/// know, those with the x32 bit, and 32-bit calls, which [`crate::notified`] sends home. Negative
/// numbers are no calls, and allowed.
///
/// The range is compared by the high halves of addresses only. An address less than 1 TiB below
/// the range is trapped too, and so is a length of 1 TiB or more: then no untrapped call can
/// reach into the range.
pub fn guest_filter(reserved: (u64, u64)) -> Vec<Instruction> {
    let mut program = vec![
        op(LOAD, ARCH_AT),
        jump(JUMP_IF_EQUAL, NATIVE, 4, 0),
        op(LOAD, NUMBER_AT),
        jump(JUMP_IF_GREATER_OR_EQUAL, NO_CALL, 0, 1),
        op(RETURN, ALLOW),
        op(RETURN, NOTIFY),
        op(LOAD, NUMBER_AT),
    ];
    for row in TABLE {
        let block = block(row, reserved);
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
    program
}

/// The same for a host on which the kernel cannot fetch pages from home: calls that run in the
/// guest and have pointers are trapped as well, see [`crate::touched`].
///
/// Calls from code in the reserved range are not trapped, because the supervisor has the guest make
/// calls there while it does not listen. A guest that jumps there gets `EFAULT` for its own missing
/// pages, and nothing else.
pub fn cautious_filter(reserved: (u64, u64)) -> Vec<Instruction> {
    let mut program = guest_filter(reserved);
    let trap = |number| [jump(JUMP_IF_EQUAL, number, 0, 1), op(RETURN, NOTIFY)];
    let mut traps = vec![op(LOAD, NUMBER_AT)];
    traps.extend(crate::touch::touching().flat_map(trap));
    let (start, end) = reserved;
    if let (true, Ok(length)) = (start < end, u8::try_from(traps.len())) {
        let exempt = [
            op(LOAD, POINTER_AT + 4),
            jump(JUMP_IF_GREATER_OR_EQUAL, high(start), 0, 1),
            jump(JUMP_IF_GREATER, high(end - 1), 0, length),
        ];
        traps.splice(0..0, exempt);
    }
    program.splice(HEAD..HEAD, traps);
    program
}

/// The instructions for a row once the number is known. Empty: the call is trapped like everything
/// unknown.
fn block(row: &Row, reserved: (u64, u64)) -> Vec<Instruction> {
    let mut block = Vec::new();
    match row.gate {
        Gate::Trap => return block,
        Gate::Allow => {}
        Gate::Memory { addresses, lengths } => ranges(&mut block, addresses, lengths, reserved),
        Gate::Advice { trapped } => {
            block.push(load_low(ADVICE));
            for value in trapped {
                block.push(jump(JUMP_IF_EQUAL, *value, 0, 1));
                block.push(op(RETURN, NOTIFY));
            }
            ranges(&mut block, &[0], &[1], reserved);
        }
        Gate::Map => {
            block.push(load_low(MMAP_FLAGS));
            block.push(op(AND, MMAP_MASK));
            block.push(jump(JUMP_IF_EQUAL, MMAP_PLAIN, 1, 0));
            block.push(op(RETURN, NOTIFY));
            ranges(&mut block, &[0], &[1], reserved);
        }
        Gate::Remap => {
            show_more(&mut block);
            ranges(&mut block, &[0, 4], &[1, 2], reserved);
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
            for value in values {
                block.push(jump(JUMP_IF_EQUAL, *value, 0, 1));
                block.push(op(RETURN, NOTIFY));
            }
            if negative {
                block.push(jump(JUMP_IF_BITS, 1 << 31, 0, 1));
                block.push(op(RETURN, NOTIFY));
            }
        }
        Gate::AllowNull { index } => {
            for load in [load_low(index), load_high(index)] {
                block.push(load);
                block.push(jump(JUMP_IF_EQUAL, 0, 1, 0));
                block.push(op(RETURN, NOTIFY));
            }
        }
    }
    block.push(op(RETURN, ALLOW));
    block
}

/// Traps an `mremap` after which there is more than before.
fn show_more(block: &mut Vec<Instruction>) {
    const OLD: usize = 1;
    const NEW: usize = 2;
    const HOW: usize = 3;
    block.push(load_low(HOW));
    block.push(jump(JUMP_IF_BITS, crate::decide::MREMAP_DONTUNMAP, 0, 1));
    block.push(op(RETURN, NOTIFY));
    // The upper halves decide, unless they are equal.
    block.extend([load_high(OLD), op(KEEP, 0), load_high(NEW)]);
    block.push(jump(JUMP_IF_GREATER_KEPT, 0, 5, 0));
    block.push(jump(JUMP_IF_EQUAL_KEPT, 0, 0, 5));
    block.extend([load_low(OLD), op(KEEP, 0), load_low(NEW)]);
    block.push(jump(JUMP_IF_GREATER_KEPT, 0, 0, 1));
    block.push(op(RETURN, NOTIFY));
}

fn ranges(
    block: &mut Vec<Instruction>,
    addresses: &[usize],
    lengths: &[usize],
    reserved: (u64, u64),
) {
    let (start, end) = reserved;
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
