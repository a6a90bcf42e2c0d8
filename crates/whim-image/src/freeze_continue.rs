//! Calls that a thread itself completes after a release, see `freeze_release`.
//!
//! The continuation stubs stand in one small mapping that stays in the process and is found again
//! by its first bytes: a thread may be in it for as long as its call takes, and come back to it
//! from a signal handler. Its spots are given out in turn, but never a spot in which a thread
//! stands.

use crate::freeze::{FreezeError, Frozen};
use crate::freeze_calls::{self, CallState, InterruptedCall, TimeoutPlace};
use crate::maps::{self, MapEntry};
use whim_model::Syscall;
use whim_model::{PAGE_SIZE, Protection, Range, Registers};
use whim_sys::process_vm::MemFile;
use whim_sys::ptrace::TraceError;
use whim_sys::stub::{self, TailData};

/// First bytes of the mapping of continuations. Behind them: the offset of the next free byte, the
/// number of spots ever given out, and offset and length of the last [`KEPT`] of them, four bytes
/// each.
const MAGIC: [u8; 8] = *b"whimcont";
const HEADER: u64 = 16 + KEPT as u64 * 8;
/// Number of spots whose places are remembered.
const KEPT: usize = 64;
/// Length of the mapping, in bytes: room for more than a hundred continuations, or for one of 1,024
/// pieces.
const LENGTH: u64 = 32 << 10;
const ALIGNMENT: u64 = 16;
const SYSCALL_LENGTH: u64 = 2;
const PROT_READ_EXEC: u64 = 5;
/// MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
const MAP_FLAGS: u64 = 0x2 | 0x20 | 0x10_0000;

/// What the thread is made to execute in place of the rest of its call.
#[derive(Debug)]
pub(crate) struct Continuation {
    call: Syscall,
    /// Index of the argument that points to `extra`.
    pointer: Option<usize>,
    extra: Vec<u8>,
    /// `extra` is a `struct msghdr` with its vectors behind it.
    message: bool,
    before: u64,
    counts: bool,
    /// The kernel decides between restart and EINTR.
    decide: bool,
}

impl Frozen {
    /// The mapping of continuations, made if the process has none.
    pub(crate) fn continuation_area(&mut self) -> Result<Range, FreezeError> {
        let entries = self.entries()?.to_vec();
        if let Some(found) = entries.iter().find(|entry| self.holds_continuations(entry)) {
            return Ok(found.range);
        }
        let tid = self.threads.first().ok_or(FreezeError::Gone(self.pid))?.tid;
        self.prepare_injection(None)?;
        // The injected memory took the middle of the largest hole, so read the mappings again.
        let entries = maps::read(self.pid)?;
        let within = Range {
            start: maps::USER_BEGIN,
            end: whim_model::USER_END,
        };
        let area = maps::find_free(&entries, within, LENGTH, PAGE_SIZE)
            .ok_or(FreezeError::NoRoomForMemory)?;
        let map = [area.start, LENGTH, PROT_READ_EXEC, MAP_FLAGS, u64::MAX, 0];
        let result = self.run(tid, &[Syscall::new(libc::SYS_mmap, &map)])?[0];
        if result < 0 {
            let errno = nix::errno::Errno::from_raw(i32::try_from(-result).unwrap_or(0));
            return Err(FreezeError::MapFailed(errno));
        }
        Directory::empty().write(&self.memory, area)?;
        Ok(area)
    }

    fn holds_continuations(&self, entry: &MapEntry) -> bool {
        let mut first = [0u8; MAGIC.len()];
        !entry.shared
            && !entry.is_file()
            && entry.range.len() == LENGTH
            && entry.protection == Protection(Protection::READ | Protection::EXEC)
            && self
                .memory
                .read_exact(entry.range.start, &mut first)
                .is_ok()
            && first == MAGIC
    }

    pub(crate) fn place_continuations(
        &mut self,
        area: Range,
        continuations: &[Option<Continuation>],
    ) -> Result<(), FreezeError> {
        let mut directory = Directory::read(&self.memory, area)?;
        for (index, continuation) in continuations.iter().enumerate() {
            let Some(continuation) = continuation else {
                continue;
            };
            let occupied = self.occupied(area, &directory);
            let Some(spot) = directory.find(area, continuation.length(), &occupied) else {
                continue;
            };
            directory.give_out(area, spot);
            directory.write(&self.memory, area)?;
            match self.enter_continuation(index, spot, continuation) {
                Ok(()) | Err(FreezeError::Trace(TraceError::Died)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The spots in which threads stand, or to which they will come back from another spot (a call
    /// that was frozen again while it was being continued).
    fn occupied(&self, area: Range, directory: &Directory) -> Vec<Range> {
        let mut found = Vec::new();
        for thread in &self.threads {
            let mut rip = thread.original.rip;
            while area.contains(rip) {
                let Some(spot) = directory.spot_of(area, rip) else {
                    // This spot was forgotten long ago: keep clear of every place where it may be.
                    found.push(Range {
                        start: rip.saturating_sub(LENGTH),
                        end: rip + LENGTH,
                    });
                    break;
                };
                if found.contains(&spot) {
                    break;
                }
                found.push(spot);
                let back = spot.start + stub::tail_data_offset() + TailData::RIP_OFFSET;
                let mut word = [0u8; 8];
                if self.memory.read_exact(back, &mut word).is_err() {
                    break;
                }
                rip = u64::from_le_bytes(word);
            }
        }
        found
    }

    /// Writes a continuation and, in one request, points the thread at it.
    fn enter_continuation(
        &mut self,
        index: usize,
        spot: Range,
        continuation: &Continuation,
    ) -> Result<(), FreezeError> {
        let thread = &self.threads[index];
        let code = usize::try_from(stub::tail_data_offset()).unwrap_or(0);
        // A thread of a process that was assembled stands before its call, in a stop in which the
        // kernel decides nothing.
        let stands_before = thread.original.orig_rax == u64::MAX;
        let behind = if stands_before { SYSCALL_LENGTH } else { 0 };
        let data = TailData {
            before: continuation.before,
            counts: continuation.counts,
            args: thread.original.arguments(),
            rip: thread.original.rip + behind,
        };
        let mut bytes = stub::tail_code()[..code].to_vec();
        bytes.extend_from_slice(&data.to_bytes());
        let extra_at = spot.start + bytes.len() as u64;
        bytes.extend_from_slice(&continuation.extra);
        if continuation.message {
            let vectors = extra_at + MESSAGE_HEADER as u64;
            let at = bytes.len() - continuation.extra.len() + MESSAGE_VECTORS;
            bytes[at..at + 8].copy_from_slice(&vectors.to_le_bytes());
        }
        self.memory
            .write_all(spot.start, &bytes)
            .map_err(FreezeError::Memory)?;
        let mut args = continuation.call.args;
        if let Some(pointer) = continuation.pointer {
            args[pointer] = extra_at;
        }
        let mut registers: Registers = thread.original;
        registers.set_arguments(args);
        if continuation.decide && !stands_before {
            registers.rip = spot.start + stub::RESTART_ENTRY;
        } else {
            registers.rip = spot.start;
            registers.rax = continuation.call.number;
            registers.orig_rax = u64::MAX;
        }
        thread.stopped()?.set_registers(&registers)?;
        self.threads[index].original = registers;
        Ok(())
    }
}

/// Which parts of the mapping have been given out; kept at its beginning.
#[derive(Debug)]
struct Directory {
    /// Offset of the first byte that is free in this round; 0 = none was given out yet.
    next: u32,
    count: u32,
    /// Offset and length.
    spots: [(u32, u32); KEPT],
}

impl Directory {
    fn empty() -> Self {
        Self {
            next: 0,
            count: 0,
            spots: [(0, 0); KEPT],
        }
    }

    fn read(memory: &MemFile, area: Range) -> Result<Self, FreezeError> {
        let mut bytes = vec![0u8; usize::try_from(HEADER).unwrap_or(0)];
        memory
            .read_exact(area.start, &mut bytes)
            .map_err(FreezeError::Memory)?;
        let words = bytes[MAGIC.len()..].chunks_exact(4);
        let mut words = words.map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        let mut next = || words.next().unwrap_or(0);
        let (begin, count) = (next(), next());
        let spots = std::array::from_fn(|_| (next(), next()));
        Ok(Self {
            next: begin,
            count,
            spots,
        })
    }

    fn write(&self, memory: &MemFile, area: Range) -> Result<(), FreezeError> {
        let spots = self
            .spots
            .iter()
            .flat_map(|(offset, length)| [*offset, *length]);
        let words = [self.next, self.count].into_iter().chain(spots);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(words.flat_map(u32::to_le_bytes));
        memory
            .write_all(area.start, &bytes)
            .map_err(FreezeError::Memory)
    }

    /// The spot that was last given out with this address in it.
    fn spot_of(&self, area: Range, address: u64) -> Option<Range> {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let newest_first = (1..=count.min(KEPT)).map(|back| self.spots[(count - back) % KEPT]);
        newest_first
            .map(|(offset, length)| {
                let start = area.start + u64::from(offset);
                Range {
                    start,
                    end: start + u64::from(length),
                }
            })
            .find(|spot| spot.contains(address))
    }

    /// The next `length` bytes, in turn, that no thread uses.
    fn find(&self, area: Range, length: u64, occupied: &[Range]) -> Option<Range> {
        let begin = u64::from(self.next).clamp(HEADER, LENGTH);
        let behind = occupied
            .iter()
            .map(|spot| spot.end.saturating_sub(area.start));
        let mut offsets: Vec<u64> = [begin, HEADER].into_iter().chain(behind).collect();
        offsets
            .iter_mut()
            .for_each(|offset| *offset = offset.next_multiple_of(ALIGNMENT));
        let spots = offsets.into_iter().map(|offset| {
            let start = area.start + offset;
            Range {
                start,
                end: start + length,
            }
        });
        spots
            .filter(|spot| spot.start >= area.start + HEADER && spot.end <= area.end)
            .find(|spot| !occupied.iter().any(|other| other.overlaps(*spot)))
    }

    fn give_out(&mut self, area: Range, spot: Range) {
        let offset = u32::try_from(spot.start - area.start).unwrap_or(0);
        let length = u32::try_from(spot.len()).unwrap_or(0);
        self.next = offset + length;
        self.spots[usize::try_from(self.count).unwrap_or(0) % KEPT] = (offset, length);
        self.count = self.count.wrapping_add(1);
    }
}

impl Continuation {
    fn length(&self) -> u64 {
        (stub::tail_code().len() + self.extra.len()) as u64
    }
}

/// How the thread itself does the rest of a call; `None` when the kernel's own restart, or nothing,
/// is right.
pub(crate) fn continuation(interrupted: &InterruptedCall) -> Option<Continuation> {
    let (call, further) = interrupted.remainder();
    match &interrupted.state {
        CallState::Cut {
            timeout: Some(timeout),
        } => {
            let (pointer, extra) = match timeout.place {
                TimeoutPlace::Socket => return None,
                TimeoutPlace::Register(_) => (None, Vec::new()),
                TimeoutPlace::Memory(index) => {
                    let (rest_ns, nanos) = (timeout.rest_ns(), 1_000_000_000);
                    let words = [rest_ns / nanos, rest_ns % nanos];
                    (
                        Some(index),
                        words.iter().flat_map(|word| word.to_le_bytes()).collect(),
                    )
                }
            };
            Some(Continuation {
                call,
                pointer,
                extra,
                message: false,
                before: 0,
                counts: false,
                decide: true,
            })
        }
        CallState::Short { done, rest } => {
            let mut found = Continuation {
                call,
                pointer: None,
                extra: Vec::new(),
                message: false,
                before: *done,
                counts: true,
                decide: false,
            };
            let vectors = freeze_calls::vector_bytes(rest);
            let original = interrupted.syscall;
            let is = |number: i64| !further.is_empty() && original.number == number.cast_unsigned();
            if is(libc::SYS_writev) {
                found.call = original;
                found.call.args[2] = rest.len() as u64;
                (found.pointer, found.extra) = (Some(1), vectors);
            } else if is(libc::SYS_sendmsg) {
                found.call = original;
                found.pointer = Some(1);
                found.extra = message_header(rest.len() as u64);
                found.extra.extend(vectors);
                found.message = true;
            }
            Some(found)
        }
        _ => None,
    }
}

/// Offset of `msg_iov` in a `struct msghdr`, and the length of the structure.
const MESSAGE_VECTORS: usize = 16;
const MESSAGE_HEADER: usize = 56;

/// A `struct msghdr` without address and control data: both went with the first part.
fn message_header(count: u64) -> Vec<u8> {
    let mut header = vec![0u8; MESSAGE_HEADER];
    header[24..32].copy_from_slice(&count.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_are_given_out_in_turn_and_never_while_used() {
        let area = Range {
            start: 0x10000,
            end: 0x10000 + LENGTH,
        };
        let mut directory = Directory::empty();
        let mut first = None;
        for _ in 0..1000 {
            let used: Vec<Range> = first.into_iter().collect();
            let spot = directory.find(area, 200, &used).expect("room");
            assert!(spot.start >= area.start + HEADER && spot.end <= area.end);
            assert!(!used.iter().any(|other| other.overlaps(spot)));
            directory.give_out(area, spot);
            assert_eq!(directory.spot_of(area, spot.start + 2), Some(spot));
            first.get_or_insert(spot);
        }
        assert!(directory.find(area, LENGTH, &[]).is_none());
        assert!(directory.find(area, 200, &[area]).is_none());
    }
}
