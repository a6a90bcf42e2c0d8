//! Letting a frozen process go on where it is, so that no call notices.
//!
//! A call that the stop has cut off or left short is completed by the continuation stub of
//! `whim_sys::stub`: the thread executes the rest of its call there and jumps back behind its own
//! `syscall` instruction with the result that it would have had. No tracer is needed for that, so
//! none can die in the midst of it. The stubs stand in one small mapping that stays in the process
//! and is found again by its first bytes: a thread may be in it for as long as its call takes.
//!
//! Only a socket's own timeout (SO_RCVTIMEO, SO_SNDTIMEO) cannot be shortened for one call: the
//! tracer stays with that thread as its clock, see [`Held`].

use crate::freeze::{FreezeError, Frozen};
use crate::freeze_calls::{self, Call, CallState, EINTR, TimeoutPlace};
use crate::freeze_observe::{Status as ThreadStatus, handler_is_due, monotonic_ns};
use crate::inject::Op;
use crate::maps::{self, MapEntry};
use crate::model::{PAGE_SIZE, Protection, Range};
use whim_sys::ptrace::{Phase, Running, Status, Stop, Stopped, Tid, TraceError, UserRegs};
use whim_sys::stub::{self, TailData};

/// First bytes of the mapping of continuations; behind them, the offset of its next free byte.
const MAGIC: [u8; 8] = *b"whimcont";
const HEADER: u64 = 16;
/// Its length, in bytes: more than a hundred continuations, or one of 1,024 pieces.
const LENGTH: u64 = 32 << 10;
const ALIGNMENT: u64 = 16;
const MMAP: u64 = 9;
const PROT_READ_EXEC: u64 = 5;
/// MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
const MAP_FLAGS: u64 = 0x2 | 0x20 | 0x10_0000;

/// A thread with which its tracer stays until its call ends, because only the tracer knows when
/// the call's time is over. If the tracer ends, the call takes at most one timeout too long.
///
/// The owner passes on every event of the thread ([`Held::handle`]) and, at
/// [`Held::deadline_ns`], calls [`Held::expire`].
#[derive(Debug)]
pub struct Held {
    pid: i32,
    running: Running,
    number: u64,
    deadline_ns: u64,
    expired: bool,
    /// The call has been entered again.
    in_call: bool,
}

/// What has become of a held thread.
#[derive(Debug)]
pub enum Progress {
    /// Its call goes on.
    Held(Held),
    /// Its call has ended, or it has: the tracer has nothing to do with it any more.
    Over,
}

/// What the thread is made to execute in place of the rest of its call.
struct Continuation {
    number: u64,
    args: [u64; 6],
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
    /// Lets the process go on. Threads that are given back are still traced by this OS thread.
    ///
    /// # Errors
    /// [`FreezeError`]; the process goes on all the same, but a call of it may then show the stop.
    pub fn release(mut self) -> Result<Vec<Held>, FreezeError> {
        let continuations: Vec<Option<Continuation>> = self
            .threads
            .iter()
            .map(|thread| thread.call().and_then(continuation))
            .collect();
        let area = if continuations.iter().any(Option::is_some) {
            // Without room for it the calls show what the kernel alone makes of them.
            self.continuation_area().ok()
        } else {
            None
        };
        self.remove_injection()?;
        if let Some(area) = area {
            self.place_continuations(area, &continuations)?;
        }
        let mut held = Vec::new();
        for index in 0..self.threads.len() {
            match self.let_go(index) {
                Ok(one) => held.extend(one),
                Err(FreezeError::Trace(TraceError::Died)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(held)
    }

    fn let_go(&mut self, index: usize) -> Result<Option<Held>, FreezeError> {
        let pid = self.pid;
        let thread = &mut self.threads[index];
        let Some(stopped) = thread.stopped.take() else {
            return Ok(None);
        };
        let Some((number, rest_ns)) = thread.call().and_then(socket_wait) else {
            stopped.detach(0)?;
            return Ok(None);
        };
        let deadline_ns = monotonic_ns().saturating_add(rest_ns);
        let running = stopped.resume_to_syscall(0)?;
        Ok(Some(Held {
            pid,
            running,
            number,
            deadline_ns,
            expired: false,
            in_call: false,
        }))
    }

    /// The mapping of continuations, made if the process has none.
    fn continuation_area(&mut self) -> Result<Range, FreezeError> {
        let entries = self.entries()?.to_vec();
        if let Some(found) = entries.iter().find(|entry| self.holds_continuations(entry)) {
            return Ok(found.range);
        }
        let tid = self.threads.first().ok_or(FreezeError::Gone(self.pid))?.tid;
        self.prepare_injection(None)?;
        // The injected memory took the middle of the largest hole: look again.
        let entries = maps::read(self.pid)?;
        let within = Range {
            start: maps::USER_BEGIN,
            end: maps::USER_END,
        };
        let area = maps::find_free(&entries, within, LENGTH, PAGE_SIZE)
            .ok_or(FreezeError::NoRoomForMemory)?;
        let map = [area.start, LENGTH, PROT_READ_EXEC, MAP_FLAGS, u64::MAX, 0];
        let result = self.run(tid, &[Op::new(MMAP, &map)])?[0];
        if result < 0 {
            let errno = nix::errno::Errno::from_raw(i32::try_from(-result).unwrap_or(0));
            return Err(FreezeError::MapFailed(errno));
        }
        self.write_header(area, HEADER)?;
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

    fn write_header(&self, area: Range, next: u64) -> Result<(), FreezeError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&next.to_le_bytes());
        self.memory
            .write_all(area.start, &bytes)
            .map_err(FreezeError::Memory)
    }

    fn place_continuations(
        &mut self,
        area: Range,
        continuations: &[Option<Continuation>],
    ) -> Result<(), FreezeError> {
        let mut word = [0u8; 8];
        let at = area.start + MAGIC.len() as u64;
        self.memory
            .read_exact(at, &mut word)
            .map_err(FreezeError::Memory)?;
        let mut next = u64::from_le_bytes(word).clamp(HEADER, LENGTH);
        for (index, continuation) in continuations.iter().enumerate() {
            let Some(continuation) = continuation else {
                continue;
            };
            let length = continuation.length();
            let Some(slot) = self.free_slot(area, next, length) else {
                continue;
            };
            next = (slot.end - area.start).next_multiple_of(ALIGNMENT);
            self.write_header(area, next.min(LENGTH))?;
            match self.enter_continuation(index, slot, continuation) {
                Ok(()) | Err(FreezeError::Trace(TraceError::Died)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next `length` bytes of the area, used in turn, in which no thread stands.
    fn free_slot(&self, area: Range, next: u64, length: u64) -> Option<Range> {
        let candidates = [area.start + next, area.start + HEADER];
        let mut slots = candidates
            .map(|start| Range {
                start,
                end: start + length,
            })
            .into_iter();
        slots.find(|slot| {
            slot.end <= area.end
                && !self.threads.iter().any(|thread| {
                    let around = Range {
                        start: slot.start.saturating_sub(512),
                        end: slot.end,
                    };
                    around.contains(thread.original.rip)
                })
        })
    }

    /// Writes a continuation and, in one request, points the thread at it.
    fn enter_continuation(
        &mut self,
        index: usize,
        slot: Range,
        continuation: &Continuation,
    ) -> Result<(), FreezeError> {
        let thread = &self.threads[index];
        let code = usize::try_from(stub::tail_data_offset()).unwrap_or(0);
        let data = TailData {
            before: continuation.before,
            counts: continuation.counts,
            args: freeze_calls::arguments(&thread.original),
            rip: thread.original.rip,
        };
        let mut bytes = stub::tail_code()[..code].to_vec();
        bytes.extend_from_slice(&data.to_bytes());
        let extra_at = slot.start + bytes.len() as u64;
        bytes.extend_from_slice(&continuation.extra);
        if continuation.message {
            let vectors = extra_at + MESSAGE_HEADER as u64;
            let at = bytes.len() - continuation.extra.len() + MESSAGE_VECTORS;
            bytes[at..at + 8].copy_from_slice(&vectors.to_le_bytes());
        }
        self.memory
            .write_all(slot.start, &bytes)
            .map_err(FreezeError::Memory)?;
        let mut args = continuation.args;
        if let Some(pointer) = continuation.pointer {
            args[pointer] = extra_at;
        }
        let mut registers: UserRegs = thread.original;
        freeze_calls::set_arguments(&mut registers, args);
        if continuation.decide {
            registers.rip = slot.start + stub::RESTART_ENTRY;
        } else {
            registers.rip = slot.start;
            registers.rax = continuation.number;
            registers.orig_rax = u64::MAX;
        }
        thread.stopped()?.set_registers(&registers)?;
        self.threads[index].original = registers;
        Ok(())
    }
}

impl Continuation {
    fn length(&self) -> u64 {
        (stub::tail_code().len() + self.extra.len()) as u64
    }
}

/// How the rest of a call is done by the thread itself; `None` when the kernel's own restart, or
/// nothing, is right.
fn continuation(call: &Call) -> Option<Continuation> {
    let (number, args, further) = call.remainder();
    match &call.state {
        CallState::Cut {
            timeout: Some(timeout),
        } => {
            let (pointer, extra) = match timeout.place {
                TimeoutPlace::Socket => return None,
                TimeoutPlace::Register(_) => (None, Vec::new()),
                TimeoutPlace::Memory(index) => {
                    let nanos = 1_000_000_000;
                    let words = [timeout.rest_ns / nanos, timeout.rest_ns % nanos];
                    (
                        Some(index),
                        words.iter().flat_map(|word| word.to_le_bytes()).collect(),
                    )
                }
            };
            Some(Continuation {
                number,
                args,
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
                number,
                args,
                pointer: None,
                extra: Vec::new(),
                message: false,
                before: *done,
                counts: true,
                decide: false,
            };
            let vectors = freeze_calls::vector_bytes(rest);
            if !further.is_empty() && call.number == freeze_calls::WRITEV {
                (found.number, found.args) = (call.number, call.args);
                found.args[2] = rest.len() as u64;
                (found.pointer, found.extra) = (Some(1), vectors);
            } else if !further.is_empty() && call.number == freeze_calls::SENDMSG {
                (found.number, found.args) = (call.number, call.args);
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

/// The number of a call that waits for a socket with a timeout of its own, and what is left of it.
fn socket_wait(call: &Call) -> Option<(u64, u64)> {
    match call.state {
        CallState::Cut {
            timeout: Some(timeout),
        } if timeout.place == TimeoutPlace::Socket => Some((call.number, timeout.rest_ns)),
        _ => None,
    }
}

impl Held {
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.running.tid()
    }

    /// When its call's time is over, by CLOCK_MONOTONIC.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// To be called when the deadline has passed: cuts the call off.
    ///
    /// # Errors
    /// [`TraceError`]
    pub fn expire(&mut self) -> Result<(), TraceError> {
        self.expired = true;
        if self.in_call {
            self.running.interrupt()
        } else {
            Ok(())
        }
    }

    /// Takes an event of the thread.
    ///
    /// # Errors
    /// [`FreezeError`]
    pub fn handle(self, status: Status) -> Result<Progress, FreezeError> {
        let Status::Stopped(stop) = status else {
            return Ok(Progress::Over);
        };
        let Self {
            pid,
            running,
            number,
            deadline_ns,
            expired,
            in_call,
        } = self;
        let stopped = running.into_stopped(stop);
        let keep = |running, in_call| {
            Progress::Held(Held {
                pid,
                running,
                number,
                deadline_ns,
                expired,
                in_call,
            })
        };
        Ok(match stop {
            Stop::SyscallStop => match stopped.phase()? {
                Phase::Exit => {
                    finish(pid, number, expired, stopped)?;
                    Progress::Over
                }
                _ => {
                    if expired {
                        stopped.interrupt()?;
                    }
                    keep(stopped.resume_to_syscall(0)?, true)
                }
            },
            Stop::Signal(signal) if is_caught(pid, signal) => {
                stopped.detach(signal)?;
                Progress::Over
            }
            Stop::Signal(signal) => keep(stopped.resume_to_syscall(signal)?, in_call),
            Stop::Group(_) => keep(stopped.listen()?, in_call),
            _ => keep(stopped.resume_to_syscall(0)?, in_call),
        })
    }

    /// Lets the thread go with the full timeout of its call before it (the tracer has to end).
    ///
    /// # Errors
    /// [`FreezeError`]
    pub fn abandon(self) -> Result<(), FreezeError> {
        self.running.interrupt()?;
        let stopped = crate::inject::wait_for_interrupt(self.running)?;
        let mut registers = stopped.registers()?;
        if registers.rax.cast_signed() == EINTR && registers.orig_rax == self.number {
            registers.rax = freeze_calls::ERESTARTNOHAND.cast_unsigned();
            stopped.set_registers(&registers)?;
        }
        Ok(stopped.detach(0)?)
    }

    /// Gives the thread back to a freeze: it is running, traced, and its deadline stands.
    pub(crate) fn into_running(self) -> (Running, u64) {
        (self.running, self.deadline_ns)
    }
}

fn is_caught(pid: i32, signal: i32) -> bool {
    ThreadStatus::read(pid, pid)
        .is_ok_and(|status| signal > 0 && status.caught >> (signal - 1) & 1 == 1)
}

/// The call has ended: its result stands, unless it was cut off because its time was over.
fn finish(pid: i32, number: u64, expired: bool, stopped: Stopped) -> Result<(), FreezeError> {
    let mut registers = stopped.registers()?;
    let result = registers.rax.cast_signed();
    if freeze_calls::restarts(registers.rax) {
        // Only in get_signal does the kernel replace such a number.
        stopped.interrupt()?;
        let running = stopped.resume(0)?;
        return Ok(crate::inject::wait_for_interrupt(running)?.detach(0)?);
    }
    if expired && result == EINTR && !handler_is_due(pid, stopped.tid()) {
        registers.rax = freeze_calls::timeout_result(number).cast_unsigned();
        stopped.set_registers(&registers)?;
    }
    Ok(stopped.detach(0)?)
}
