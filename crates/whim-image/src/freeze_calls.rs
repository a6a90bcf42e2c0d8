//! What a stop does to the system call that it interrupts, and how to hide it.
//!
//! Most calls are restarted by the kernel itself, unseen. Three kinds are not: calls that answer
//! every interruption with EINTR; calls whose relative timeout would begin anew; and transfers that
//! answer with a short count. The table of `whim-calls` says which is which.

use crate::freeze_observe::{Observation, elapsed_ns, monotonic_ns};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use whim_calls::{AtStop, Buffer, End, Limit, Time, Transfer, at_stop, relative_time, transfer};
use whim_model::{Range, Registers, Syscall};
use whim_sys::foreign;
use whim_sys::kernel_file;
use whim_sys::process_vm::{self, MemFile};

pub const EINTR: i64 = -4;
pub const ERESTARTSYS: i64 = -512;
/// The call is made again, whatever signal has come.
pub const ERESTARTNOINTR: i64 = -513;
pub const ERESTARTNOHAND: i64 = -514;
pub const ERESTART_RESTARTBLOCK: i64 = -516;
/// `restart_syscall(2)`
pub const RESTART_SYSCALL: u64 = libc::SYS_restart_syscall.cast_unsigned();

/// Code segment of 64-bit user code.
pub const USER_CS: u64 = 0x33;
/// `syscall`.
pub const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
const IOVECS_MAX: u64 = 1024;
/// Most descriptors of one poll whose number is unknown: no address of memory is as low as the next one
/// (`vm.mmap_min_addr`), except where somebody has allowed that.
const POLLED_MAX: usize = 65_535;
/// Longest transfer of one call (the kernel's MAX_RW_COUNT).
const TRANSFER_MAX: u64 = 0x7fff_f000;

/// Where a call keeps its relative timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPlace {
    /// Argument `0..6`, in milliseconds.
    Register(usize),
    /// Argument `0..6` points to a `struct timespec`.
    Memory(usize),
    /// The socket has SO_RCVTIMEO or SO_SNDTIMEO.
    Socket,
}

/// A relative timeout of a call that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    pub place: TimeoutPlace,
    /// When it is over, by CLOCK_MONOTONIC, in nanoseconds.
    pub deadline_ns: u64,
}

impl Timeout {
    /// What is left of it now, in nanoseconds.
    #[must_use]
    pub fn rest_ns(&self) -> u64 {
        self.deadline_ns.saturating_sub(monotonic_ns())
    }
}

/// One piece of a transfer's buffer.
pub type Piece = Range;

/// What has become of the call in which a thread was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallState {
    /// Its result stands in rax.
    Complete,
    /// -512, -513 or -514: the kernel restarts it, exactly.
    Restart,
    /// -516: the kernel continues it by `restart_syscall`, with what is left of its time.
    RestartBlock {
        /// When that time is over, by CLOCK_MONOTONIC, in nanoseconds; known only of futexes.
        deadline_ns: Option<u64>,
    },
    /// The stop ended it with EINTR, or its restart would take its full time again. Its rax is now
    /// -514: the kernel restarts it, or ends it with EINTR if a handler is due.
    Cut { timeout: Option<Timeout> },
    /// A blocking transfer of which the stop let only `done` bytes happen; `rest` is what remains
    /// of its buffer (empty for sendfile, which has a count only).
    Short { done: u64, rest: Vec<Piece> },
}

/// A system call in which a thread was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptedCall {
    /// For a call that is continued by `restart_syscall`: with the original number if the code before
    /// the instruction shows it, else with [`RESTART_SYSCALL`].
    pub syscall: Syscall,
    pub state: CallState,
}

/// The process and the thread that this module examines.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub pid: i32,
    pub tid: i32,
    pub memory: &'a MemFile,
    pub before: &'a Observation,
}

/// Whether the time that a thread has slept in this call has to be known.
#[must_use]
pub fn needs_elapsed(number: u64) -> bool {
    at_stop(number) != AtStop::GoesOn
}

/// Whether rax is one of the kernel's requests to restart.
#[must_use]
pub fn restarts(rax: u64) -> bool {
    matches!(
        rax.cast_signed(),
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK
    )
}

/// Understands the call at which a thread stands stopped by PTRACE_INTERRUPT; `None` when it
/// computes. If the stop cut the call off, rax in `registers` is rewritten, and the caller must
/// store the registers at once.
#[must_use]
pub fn understand(subject: Subject<'_>, registers: &mut Registers) -> Option<InterruptedCall> {
    if registers.cs != USER_CS || registers.orig_rax.cast_signed() < 0 {
        return None;
    }
    let mut code = [0u8; 7];
    let at = registers.rip.wrapping_sub(code.len() as u64);
    let known = subject.memory.read_exact(at, &mut code).is_ok();
    if !known {
        // The instruction may be the first of its mapping.
        let at = registers.rip.wrapping_sub(SYSCALL_INSTRUCTION.len() as u64);
        subject.memory.read_exact(at, &mut code[5..]).ok()?;
    }
    if code[5..] != SYSCALL_INSTRUCTION {
        return None;
    }
    let args = registers.arguments();
    let restarted = registers.orig_rax == RESTART_SYSCALL;
    let mut number = registers.orig_rax;
    if restarted {
        let shown = number_in_code(&code).filter(|_| known);
        number = shown.unwrap_or_else(|| number_by_arguments(subject.pid, &args));
    }
    let state = match registers.rax.cast_signed() {
        ERESTARTNOHAND if at_stop(number) == AtStop::WaitsAnew => CallState::Cut {
            timeout: timeout(subject, number, &args),
        },
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => CallState::Restart,
        ERESTART_RESTARTBLOCK => CallState::RestartBlock {
            // A restarted wait has slept before, and nobody knows for how long.
            deadline_ns: (at_stop(number) == AtStop::GoesOnHere && !restarted)
                .then(|| timeout(subject, number, &args))
                .flatten()
                .map(|timeout| timeout.deadline_ns),
        },
        // Trap: a-stop-shows-as-eintr
        EINTR => match cut_off(subject, number, &args) {
            Some(state) => {
                registers.rax = ERESTARTNOHAND.cast_unsigned();
                state
            }
            None => CallState::Complete,
        },
        _ => {
            let ids = (subject.pid, subject.tid);
            return left_short(ids, registers).or(Some(InterruptedCall {
                syscall: Syscall { number, args },
                state: CallState::Complete,
            }));
        }
    };
    Some(InterruptedCall {
        syscall: Syscall { number, args },
        state,
    })
}

/// What a thread still has to do if its registers stand behind a transfer that a stop ended before
/// the end of its buffer; `None` when there is nothing. `ids` are those of the process and of the
/// thread. The rest of a request for random bytes is filled in at once, and rax then counts it.
#[must_use]
pub fn left_short(ids: (i32, i32), registers: &mut Registers) -> Option<InterruptedCall> {
    let number = registers.orig_rax;
    let args = registers.arguments();
    // Trap: a-stop-shows-as-a-short-count
    let state = short_count(ids, number, &args, registers.rax.cast_signed())?;
    if state == CallState::Complete
        && let Some(Transfer {
            buffer: Buffer::Flat { length, .. },
            ..
        }) = transfer(number, &args)
    {
        registers.rax = args[length];
    }
    Some(InterruptedCall {
        syscall: Syscall { number, args },
        state,
    })
}

/// Fills in what a stop has left out of a request for random bytes, if the thread stands behind one.
pub fn complete_random(ids: (i32, i32), registers: &mut Registers) {
    if registers.orig_rax == libc::SYS_getrandom.cast_unsigned() {
        // With random bytes nothing is ever left to be done later.
        let _none = left_short(ids, registers);
    }
}

/// The number of the call behind which a thread stands. If the kernel continues the call by
/// `restart_syscall`, only the code before the instruction can show the original number, or the arguments.
#[must_use]
pub fn true_number(pid: i32, registers: &Registers) -> u64 {
    if registers.orig_rax != RESTART_SYSCALL {
        return registers.orig_rax;
    }
    let mut code = [0u8; 7];
    let at = registers.rip.wrapping_sub(code.len() as u64);
    let read = process_vm::read_exact(pid, at, &mut code);
    let shown = read.ok().and_then(|()| number_in_code(&code));
    shown.unwrap_or_else(|| number_by_arguments(pid, &registers.arguments()))
}

/// What a call is that was made by `syscall(2)`, which takes its number from a register that is lost by now, and that
/// the kernel continues by `restart_syscall`. These are nanosleep, `clock_nanosleep`, poll and futex. The sleeps are
/// alike, but the others use memory that home does not have while the program is away: a futex its word, poll its list.
/// A futex's operation is neither a clock's flag nor a pointer, its address an aligned one, and its fourth argument,
/// which the others do not have, points to a time. A list can be read as far as it is long; a clock's number
/// is no address, and what is left of a sleep is told to none that is as small as a count.
fn number_by_arguments(pid: i32, args: &[u64; 6]) -> u64 {
    let [address, operation, value, ..] = *args;
    let reads = |bytes: &mut [u8]| process_vm::read_exact(pid, address, bytes).is_ok();
    let futex = || {
        let mut word = [0u8; 4];
        let times = memory_times(pid, args[3]);
        address.is_multiple_of(4)
            && reads(&mut word)
            // `nanosleep(time, NULL)` looks like a wait without flags, but that its time says what the word should.
            && (operation != 0 || u64::from(u32::from_le_bytes(word)) == value & 0xffff_ffff)
            && times.is_some_and(|(_, nanoseconds)| nanoseconds < 1_000_000_000)
    };
    if whim_calls::waits_for_futex(args) && futex() {
        return libc::SYS_futex.cast_unsigned();
    }
    let polled = usize::try_from(operation).unwrap_or(usize::MAX);
    if (1..=POLLED_MAX).contains(&polled) && reads(&mut vec![0; polled * 8]) {
        return libc::SYS_poll.cast_unsigned();
    }
    RESTART_SYSCALL
}

/// `mov eax, NUMBER` directly before the `syscall` instruction, as C libraries write it.
fn number_in_code(code: &[u8; 7]) -> Option<u64> {
    let (immediate, _) = code.strip_prefix(&[0xb8])?.split_first_chunk::<4>()?;
    Some(u64::from(u32::from_le_bytes(*immediate)))
}

fn cut_off(subject: Subject<'_>, number: u64, args: &[u64; 6]) -> Option<CallState> {
    match at_stop(number) {
        AtStop::Ends => {}
        AtStop::EndsOnSocket(_) => {
            // If anything else (FUSE, a driver) answers with EINTR, that is its own affair.
            if !file_type((subject.pid, subject.tid), args[0])?.is_socket() {
                return None;
            }
        }
        _ => return None,
    }
    Some(CallState::Cut {
        timeout: timeout(subject, number, args),
    })
}

/// The metadata of descriptor `fd` as this thread has it.
fn metadata(ids: (i32, i32), fd: u64) -> Option<std::fs::Metadata> {
    let (pid, tid) = ids;
    let fd = fd & 0xffff_ffff;
    std::fs::metadata(format!("/proc/{pid}/task/{tid}/fd/{fd}")).ok()
}

fn file_type(ids: (i32, i32), fd: u64) -> Option<std::fs::FileType> {
    metadata(ids, fd).map(|found| found.file_type())
}

fn timeout(subject: Subject<'_>, number: u64, args: &[u64; 6]) -> Option<Timeout> {
    let (place, total_ns) = relative_timeout(subject.pid, number, args)?;
    let deadline_ns = subject.before.held_until_ns().unwrap_or_else(|| {
        let elapsed = elapsed_ns(subject.pid, subject.tid, subject.before);
        // Trap: a-timeout-begins-anew
        monotonic_ns().saturating_add(total_ns.saturating_sub(elapsed))
    });
    Some(Timeout { place, deadline_ns })
}

/// Where a call of this process keeps its relative timeout, and how long it is in nanoseconds. The
/// process must still have the memory and the descriptors of the call.
#[must_use]
pub fn relative_timeout(pid: i32, number: u64, args: &[u64; 6]) -> Option<(TimeoutPlace, u64)> {
    let own = relative_time(number, args).and_then(|time| match time {
        Time::Milliseconds(index) => {
            let low = u32::try_from(args[index] & 0xffff_ffff).ok()?.cast_signed();
            let ms = u64::try_from(low).ok()?;
            Some((TimeoutPlace::Register(index), ms.saturating_mul(1_000_000)))
        }
        Time::Timespec(index) => memory_timeout(pid, args, index),
    });
    own.or_else(|| match at_stop(number) {
        AtStop::EndsOnSocket(limit) => socket_timeout(pid, limit, args),
        _ => None,
    })
}

/// A `struct timespec` of a process: seconds and nanoseconds.
fn memory_times(pid: i32, address: u64) -> Option<(u64, u64)> {
    let mut bytes = [0u8; 16];
    if address == 0 {
        return None;
    }
    process_vm::read_exact(pid, address, &mut bytes).ok()?;
    Some((word(&bytes, 0)?, word(&bytes, 8)?))
}

fn memory_timeout(pid: i32, args: &[u64; 6], index: usize) -> Option<(TimeoutPlace, u64)> {
    let (seconds, nanos) = memory_times(pid, args[index])?;
    let total = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Some((TimeoutPlace::Memory(index), total))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn socket_timeout(pid: i32, limit: Limit, args: &[u64; 6]) -> Option<(TimeoutPlace, u64)> {
    let fd = i32::try_from(args[0] & 0xffff_ffff).ok()?;
    let timeouts = foreign::socket_timeouts(pid, fd).ok()?;
    let limit = match limit {
        Limit::Receive => timeouts.receive,
        Limit::Send => timeouts.send,
    }?;
    let total = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Some((TimeoutPlace::Socket, total))
}

/// The state of a transfer that ended before its buffer did.
fn short_count(ids: (i32, i32), number: u64, args: &[u64; 6], done: i64) -> Option<CallState> {
    let done = u64::try_from(done).ok().filter(|done| *done > 0)?;
    let transfer = transfer(number, args)?;
    let (pieces, kind) = (pieces(ids, transfer.buffer, args)?, transfer.end);
    let wanted = pieces
        .iter()
        .fold(0u64, |sum, piece| sum.saturating_add(piece.len()));
    if done >= wanted.min(TRANSFER_MAX) || !is_blocking_transfer(ids, args[0], kind) {
        return None;
    }
    // A handler of the program is due: then the short count is the program's own business.
    if crate::freeze_observe::handler_is_due(ids.0, ids.1) {
        return None;
    }
    if matches!(kind, End::Random | End::RandomDevice) {
        return fill(ids, &rest_of(pieces, done)).then_some(CallState::Complete);
    }
    let rest = match transfer.buffer {
        Buffer::Count(_) => Vec::new(),
        _ => rest_of(pieces, done),
    };
    Some(CallState::Short { done, rest })
}

/// Completes a request for random bytes; any random bytes will do.
fn fill(ids: (i32, i32), rest: &[Piece]) -> bool {
    /// A longer request is left short: that is legal, and no program asks for so much.
    const RANDOM_MAX: u64 = 64 << 20;
    let Some(piece) = rest.first().filter(|piece| piece.len() <= RANDOM_MAX) else {
        return false;
    };
    let mut bytes = vec![0u8; usize::try_from(piece.len()).unwrap_or(0)];
    let source = std::fs::File::open("/dev/urandom");
    let read = source.and_then(|mut source| std::io::Read::read_exact(&mut source, &mut bytes));
    read.is_ok() && process_vm::write_exact(ids.0, piece.start, &bytes).is_ok()
}

/// The pieces of a transfer's buffer; for a mere count, one piece at address 0.
fn pieces(ids: (i32, i32), buffer: Buffer, args: &[u64; 6]) -> Option<Vec<Piece>> {
    match buffer {
        Buffer::Flat { address, length } => Some(vec![piece(args[address], args[length])]),
        Buffer::Vector { address, count } => vectors(ids, args[address], args[count]),
        Buffer::Message { address } => message(ids, args[address]),
        Buffer::Count(count) => Some(vec![piece(0, args[count])]),
    }
}

fn is_blocking_transfer(ids: (i32, i32), fd: u64, kind: End) -> bool {
    if kind == End::Random {
        return true;
    }
    let Some(found) = metadata(ids, fd) else {
        return false;
    };
    let file_type = found.file_type();
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    let fits = match kind {
        End::Stream => {
            let terminal = file_type.is_char_device() && matches!(major, 4 | 5 | 136..=143);
            file_type.is_fifo() || file_type.is_socket() || terminal
        }
        End::Socket => file_type.is_socket(),
        End::RandomDevice => file_type.is_char_device() && major == 1 && matches!(minor, 8 | 9),
        End::Random => true,
    };
    fits && !is_non_blocking(ids, fd)
}

fn is_non_blocking(ids: (i32, i32), fd: u64) -> bool {
    let (pid, tid) = ids;
    let fd = fd & 0xffff_ffff;
    let text = kernel_file::read_text(format!("/proc/{pid}/task/{tid}/fdinfo/{fd}"));
    let flags = text.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    });
    flags.is_none_or(|flags| flags & libc::O_NONBLOCK.cast_unsigned() != 0)
}

fn piece(address: u64, length: u64) -> Piece {
    Range {
        start: address,
        end: address.saturating_add(length),
    }
}

/// The `struct iovec` array at `address`.
fn vectors(ids: (i32, i32), address: u64, count: u64) -> Option<Vec<Piece>> {
    let count = usize::try_from(count.min(IOVECS_MAX)).ok()?;
    let mut bytes = vec![0u8; count * 16];
    process_vm::read_exact(ids.0, address, &mut bytes).ok()?;
    bytes
        .chunks_exact(16)
        .map(|pair| Some(piece(word(pair, 0)?, word(pair, 8)?)))
        .collect()
}

/// A `struct iovec` array.
#[must_use]
pub fn vector_bytes(pieces: &[Piece]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|piece| [piece.start, piece.len()])
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// The buffers of the `struct msghdr` at `address`.
fn message(ids: (i32, i32), address: u64) -> Option<Vec<Piece>> {
    let mut header = [0u8; 56];
    process_vm::read_exact(ids.0, address, &mut header).ok()?;
    vectors(ids, word(&header, 16)?, word(&header, 24)?)
}

/// The pieces behind the first `done` bytes.
fn rest_of(pieces: Vec<Piece>, mut done: u64) -> Vec<Piece> {
    let mut rest = Vec::new();
    for mut piece in pieces {
        let skip = done.min(piece.len());
        piece.start += skip;
        done -= skip;
        if !piece.is_empty() {
            rest.push(piece);
        }
    }
    rest
}

impl InterruptedCall {
    /// The call that does the rest of a cut or short one, as far as one call can; and the pieces
    /// of the buffer that are left after it.
    #[must_use]
    pub fn remainder(&self) -> (Syscall, Vec<Piece>) {
        let Syscall {
            mut number,
            mut args,
        } = self.syscall;
        let mut further = Vec::new();
        match &self.state {
            CallState::Cut {
                timeout: Some(timeout),
            } => {
                if let TimeoutPlace::Register(index) = timeout.place {
                    args[index] = timeout.rest_ns().div_ceil(1_000_000);
                }
            }
            CallState::Short { done, rest } => {
                let Some(transfer) = transfer(number, &args) else {
                    return (self.syscall, further);
                };
                number = transfer.rest;
                let first = rest.first().copied().unwrap_or_default();
                further.extend(rest.iter().skip(1).copied());
                match transfer.buffer {
                    Buffer::Count(count) => args[count] = args[count].saturating_sub(*done),
                    Buffer::Flat { address, length } => {
                        (args[address], args[length]) = (first.start, first.len());
                    }
                    Buffer::Vector { address, .. } => {
                        (args[address], args[address + 1]) = (first.start, first.len());
                    }
                    Buffer::Message { .. } => {
                        let flags = args[2];
                        args = [args[0], first.start, first.len(), flags, 0, 0];
                    }
                }
            }
            _ => {}
        }
        (Syscall { number, args }, further)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_pieces_begins_where_the_count_ended() {
        let pieces = vec![piece(100, 10), piece(200, 0), piece(300, 5), piece(400, 7)];
        assert_eq!(
            rest_of(pieces.clone(), 3),
            [piece(103, 7), piece(300, 5), piece(400, 7)]
        );
        assert_eq!(rest_of(pieces.clone(), 10), [piece(300, 5), piece(400, 7)]);
        assert_eq!(rest_of(pieces, 16), [piece(401, 6)]);
    }

    #[test]
    fn remainders_use_calls_with_one_buffer() {
        let state = CallState::Short {
            done: 4,
            rest: vec![piece(0x1004, 6), piece(0x2000, 8)],
        };
        let call = InterruptedCall {
            syscall: Syscall::new(libc::SYS_writev, &[5, 0x9000, 2, 0, 0, 0]),
            state: state.clone(),
        };
        let (rest, further) = call.remainder();
        assert_eq!(rest, Syscall::new(libc::SYS_write, &[5, 0x1004, 6]));
        assert_eq!(further, [piece(0x2000, 8)]);
        let call = InterruptedCall {
            syscall: Syscall::new(libc::SYS_sendmsg, &[5, 0x9000, 0x4000, 0, 0, 0]),
            state,
        };
        assert_eq!(call.remainder().0.args, [5, 0x1004, 6, 0x4000, 0, 0]);
        let state = CallState::Short {
            done: 4,
            rest: Vec::new(),
        };
        let call = InterruptedCall {
            syscall: Syscall::new(libc::SYS_sendfile, &[5, 6, 0x77, 100, 0, 0]),
            state,
        };
        assert_eq!(call.remainder().0.args, [5, 6, 0x77, 96, 0, 0]);
    }

    #[test]
    fn a_number_before_the_instruction_is_found() {
        assert_eq!(number_in_code(&[0xb8, 0xca, 0, 0, 0, 0x0f, 5]), Some(202));
        assert_eq!(number_in_code(&[0x90, 0xca, 0, 0, 0, 0x0f, 5]), None);
    }

    #[test]
    fn a_continued_wait_is_known_by_its_arguments() {
        let pid = std::process::id().cast_signed();
        let address = |value: &u32| std::ptr::from_ref(value).addr() as u64;
        let (time, no_time) = ([1u64, 2], [1u64, 1_000_000_000]);
        let at = |time: &[u64; 2]| time.as_ptr().addr() as u64;
        let word = 7u32;
        let known = |args: [u64; 4]| {
            let [one, two, three, four] = args;
            number_by_arguments(pid, &[one, two, three, four, 0, 0xffff_ffff])
        };
        let futex = libc::SYS_futex.cast_unsigned();
        for (operation, value) in [
            (0, 7),
            (0, 7 | 1 << 32),
            (128, 8),
            (9, 7),
            (128 | 256 | 9, 1),
        ] {
            let args = [address(&word), operation, value, at(&time)];
            assert_eq!(known(args), futex, "{operation} {value}");
        }
        for args in [
            // nanosleep(time, NULL)
            [at(&time), 0, 7, at(&time)],
            [at(&time), at(&time), 0, at(&time)],
            // clock_nanosleep(CLOCK_BOOTTIME, 0, time, rest)
            [7, 0, at(&time), at(&time)],
            // poll(NULL, 0, 1000)
            [0, 0, 1000, 0],
            [8, 128, 7, at(&time)],
        ] {
            assert_eq!(known(args), RESTART_SYSCALL, "{args:x?}");
        }
        let list = vec![0u64; 200];
        let list = list.as_ptr().addr() as u64;
        for args in [
            [list, 3, 1000, 0],
            [list, 1, u64::MAX, at(&time)],
            [list, 128, 7, at(&no_time)],
            [list, 128, 7, 8],
            [list + 1, 128, 7, at(&time)],
        ] {
            assert_eq!(known(args), libc::SYS_poll.cast_unsigned(), "{args:x?}");
        }
    }
}
