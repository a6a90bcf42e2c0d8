//! The resident loop: how the threads of a deputy execute calls without being stopped by a tracer.
//!
//! One memfd, the *deck*, is mapped by the supervisor and by the deputy. Its first page holds code
//! (mapped R-X in the deputy); then comes a page of requests per deputy thread (mapped R-- there), then
//! a page of answers for each, then a data area for structures that calls need. The first thread has
//! more pages of both, for the long lists of calls that make an address space. A deputy thread waits
//! on its `request` word, executes the requested operations in order, stores each result, sets `done`
//! to `request` and, if `notify` is 2, raises a breakpoint trap, which its tracer sees. It uses no
//! stack and no thread-local state.
//!
//! Requests are on pages of their own because the kernel writes the output of forwarded calls into
//! the deputy: a lying host that directs such a write into the deck must not reach the numbers of
//! calls. Even `/proc/self/mem` cannot write to a shared mapping that is read-only.
//!
//! A parked thread sleeps in `futex`; a signal ends that sleep in a signal-delivery-stop, so that
//! the tracer sees every signal at once. (A merely ptrace-stopped deputy would not report any.)
//! Rejected: registers by SETREGS for every call (16 us a call instead of 6), a loop that ends in a
//! stop (hides signals). Measured during design; see docs/decisions.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use whim_model::Syscall;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Operations that one batch holds.
pub const OPERATIONS_MAX: usize = 60;
/// The same for the first thread. Each batch costs a wake-up and a look, which on a crowded machine take
/// milliseconds.
pub const LONG_MAX: usize = 4092;
/// Pages of requests and of answers of the first thread.
const LONG_REQUESTS: usize = (OPERATIONS + LONG_MAX * OPERATION_LENGTH).div_ceil(PAGE);
const LONG_ANSWERS: usize = (RESULTS + LONG_MAX * 8).div_ceil(PAGE);
/// Bytes of the data area behind the seats.
pub const DATA_LENGTH: usize = 64 << 10;

// In a page of requests:
const REQUEST: usize = 0;
const NOTIFY: usize = 8;
const COUNT: usize = 16;
const OPERATIONS: usize = 64;
const OPERATION_LENGTH: usize = 64;
// In a page of answers:
const DONE: usize = 4;
const ASLEEP: usize = 12;
const PROGRESS: usize = 20;
const RESULTS: usize = 64;

// The code below is data for this process: it is copied into the deck and runs in a deputy.
// r15 = requests, rbx = answers. Offsets are those of the constants above.
std::arch::global_asm!(
    ".pushsection .rodata",
    ".balign 16",
    ".global whim_resident_begin",
    ".global whim_resident_after",
    ".global whim_resident_trap",
    ".global whim_resident_end",
    "whim_resident_begin:",
    "2: mov r12d, dword ptr [r15]",
    "   cmp r12d, dword ptr [rbx + 4]",
    "   jne 3f",
    "   mov dword ptr [rbx + 12], 1",
    "   mfence",
    "   mov eax, 202",
    "   mov rdi, r15",
    "   xor esi, esi",
    "   mov edx, r12d",
    "   xor r10d, r10d",
    "   xor r8d, r8d",
    "   xor r9d, r9d",
    "   syscall",
    "   mov dword ptr [rbx + 12], 0",
    "   jmp 2b",
    "3: xor r13d, r13d",
    "   lea r14, [r15 + 64]",
    "4: mov dword ptr [rbx + 20], r13d",
    "   cmp r13d, dword ptr [r15 + 16]",
    "   jae 5f",
    "   mov rax, qword ptr [r14]",
    "   mov rdi, qword ptr [r14 + 8]",
    "   mov rsi, qword ptr [r14 + 16]",
    "   mov rdx, qword ptr [r14 + 24]",
    "   mov r10, qword ptr [r14 + 32]",
    "   mov r8, qword ptr [r14 + 40]",
    "   mov r9, qword ptr [r14 + 48]",
    "   syscall",
    "whim_resident_after:",
    "   mov qword ptr [rbx + r13*8 + 64], rax",
    "   add r14, 64",
    "   inc r13d",
    "   jmp 4b",
    "5: mov dword ptr [rbx + 4], r12d",
    "   mfence",
    "   cmp dword ptr [r15 + 8], 2",
    "   jne 2b",
    "   int3",
    "whim_resident_trap:",
    "   jmp 2b",
    "whim_resident_end:",
    ".popsection",
);

unsafe extern "C" {
    static whim_resident_begin: u8;
    static whim_resident_after: u8;
    static whim_resident_trap: u8;
    static whim_resident_end: u8;
}

/// The loop's bytes, and the offsets that its tracer has to know.
fn code() -> &'static [u8] {
    let begin = &raw const whim_resident_begin;
    let length = offset_of_symbol(&raw const whim_resident_end);
    // JUSTIFICATION: the loop is assembled into this binary; it is read as bytes to be copied.
    // SAFETY: both symbols lie in one section of this binary, begin before end, never written.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

fn offset_of_symbol(symbol: *const u8) -> usize {
    symbol as usize - (&raw const whim_resident_begin) as usize
}

/// Offset of the instruction behind the `syscall` of an operation: a thread that is stopped in an
/// operation's call has its `rip` here.
#[must_use]
pub fn after_call_offset() -> u64 {
    offset_of_symbol(&raw const whim_resident_after) as u64
}

/// Offset behind the trap that announces a finished batch.
#[must_use]
pub fn after_trap_offset() -> u64 {
    offset_of_symbol(&raw const whim_resident_trap) as u64
}

/// Where something of each seat stands, in pages, if the first seat has `first` of them.
fn within(seat: usize, first: usize) -> usize {
    if seat == 0 { 0 } else { first + seat - 1 }
}

/// The page at which the requests of a seat begin; of the seat behind the last: where they end.
fn requests_of(seat: usize) -> usize {
    1 + within(seat, LONG_REQUESTS)
}

fn pages_before_data(seats: usize) -> usize {
    requests_of(seats) + within(seats, LONG_ANSWERS)
}

/// The supervisor's mapping of the deck.
#[derive(Debug)]
pub struct Deck {
    base: *mut u8,
    length: usize,
    seats: usize,
}

// JUSTIFICATION: the deck may be moved to the thread that supervises.
// SAFETY: all access goes through atomics or volatile copies; nothing is bound to a thread.
unsafe impl Send for Deck {}

impl Deck {
    /// Bytes of a deck for that many threads.
    #[must_use]
    pub fn length_for(threads: usize) -> usize {
        PAGE * pages_before_data(threads) + DATA_LENGTH
    }

    /// Maps the deck's memory file (of at least [`Deck::length_for`] bytes) and writes the code.
    ///
    /// # Errors
    /// errno of `mmap`.
    pub fn map(file: BorrowedFd<'_>, threads: usize) -> Result<Self, Errno> {
        let length = Self::length_for(threads);
        // JUSTIFICATION: shared memory with another process is what the deck is.
        // SAFETY: a fresh mapping at an address the kernel chooses; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let deck = Self {
            base: base.cast(),
            length,
            seats: threads,
        };
        deck.write(0, code());
        Ok(deck)
    }

    /// For how many threads it has seats.
    #[must_use]
    pub fn seats(&self) -> usize {
        self.seats
    }

    /// Makes a seat ready for a new thread, whatever the one before it left there.
    pub fn clear(&self, seat: usize) {
        let request = self.requested(seat, REQUEST).load(Ordering::SeqCst);
        self.requested(seat, NOTIFY).store(0, Ordering::Relaxed);
        self.answered(seat, ASLEEP).store(0, Ordering::Relaxed);
        self.answered(seat, PROGRESS).store(0, Ordering::Relaxed);
        self.answered(seat, DONE).store(request, Ordering::SeqCst);
    }

    /// Offsets in the deck of a thread's requests and answers, for r15 and rbx.
    ///
    /// # Panics
    /// When there is no such seat.
    #[must_use]
    pub fn seat_offsets(&self, seat: usize) -> (u64, u64) {
        assert!(seat < self.seats, "seat {seat} of {}", self.seats);
        let requests = PAGE * requests_of(seat);
        (requests as u64, (PAGE * self.answers_of(seat)) as u64)
    }

    /// How much of the deck, from its first byte on, the deputy must not be able to write: code and
    /// requests.
    #[must_use]
    pub fn read_only_length(threads: usize) -> usize {
        PAGE * requests_of(threads)
    }

    fn answers_of(&self, seat: usize) -> usize {
        requests_of(self.seats) + within(seat, LONG_ANSWERS)
    }

    fn data_start(&self) -> usize {
        PAGE * pages_before_data(self.seats)
    }

    /// How many operations a batch of this thread may have.
    #[must_use]
    pub fn longest_batch(seat: usize) -> usize {
        if seat == 0 { LONG_MAX } else { OPERATIONS_MAX }
    }

    /// Offset of the data area.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        self.data_start() as u64
    }

    /// Copies bytes into the data area.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write_data(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= DATA_LENGTH, "data area exceeded");
        self.write(self.data_start() + offset, bytes);
    }

    /// Copies bytes out of the data area.
    ///
    /// # Panics
    /// When the range is outside.
    pub fn read_data(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= DATA_LENGTH, "data area exceeded");
        // JUSTIFICATION: the memory is shared with another process, no Rust reference may exist.
        // SAFETY: the range was checked to lie in the mapping; the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.add(self.data_start() + offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length, "deck exceeded");
        // JUSTIFICATION: as in `read_data`.
        // SAFETY: the range was checked to lie in the mapping; the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(offset), bytes.len());
        }
    }

    fn requested(&self, seat: usize, offset: usize) -> &AtomicU32 {
        self.word(seat, requests_of(seat), offset)
    }

    fn answered(&self, seat: usize, offset: usize) -> &AtomicU32 {
        self.word(seat, self.answers_of(seat), offset)
    }

    fn word(&self, seat: usize, page: usize, offset: usize) -> &AtomicU32 {
        let at = self.base.wrapping_add(PAGE * page + offset);
        assert!(seat < self.seats && offset + 4 <= PAGE, "seat exceeded");
        // JUSTIFICATION: words of the seat are shared with the deputy.
        // SAFETY: in the mapping (checked), aligned to 4 (page plus constant), lives as long as
        // self; all access is atomic.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    fn long(&self, seat: usize, page: usize, offset: usize) -> &AtomicU64 {
        let at = self.base.wrapping_add(PAGE * page + offset);
        assert!(
            seat < self.seats && PAGE * page + offset + 8 <= self.data_start(),
            "seat exceeded"
        );
        // JUSTIFICATION: as in `word`.
        // SAFETY: as in `word`; aligned to 8.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Hands a batch to an idle thread and wakes it. With `notify`, its end raises a trap.
    ///
    /// # Panics
    /// When there are more operations than [`Deck::longest_batch`].
    pub fn submit(&self, seat: usize, operations: &[Syscall], notify: bool) {
        assert!(
            operations.len() <= Self::longest_batch(seat),
            "a batch is split by its caller"
        );
        for (index, operation) in operations.iter().enumerate() {
            let at = OPERATIONS + index * OPERATION_LENGTH;
            let page = requests_of(seat);
            self.long(seat, page, at)
                .store(operation.number, Ordering::Relaxed);
            for (position, argument) in operation.args.iter().enumerate() {
                self.long(seat, page, at + 8 + position * 8)
                    .store(*argument, Ordering::Relaxed);
            }
        }
        let count = u32::try_from(operations.len()).unwrap_or(u32::MAX);
        self.requested(seat, COUNT).store(count, Ordering::Relaxed);
        self.answered(seat, PROGRESS).store(0, Ordering::Relaxed);
        self.requested(seat, NOTIFY)
            .store(if notify { 2 } else { 0 }, Ordering::Relaxed);
        self.requested(seat, REQUEST).fetch_add(1, Ordering::SeqCst);
        if self.answered(seat, ASLEEP).load(Ordering::SeqCst) != 0 {
            self.wake(seat);
        }
    }

    /// Gives back the memory of a long batch that is done.
    pub fn forget_long(&self) {
        for (page, pages) in [
            (requests_of(0), LONG_REQUESTS),
            (self.answers_of(0), LONG_ANSWERS),
        ] {
            let (from, length) = (PAGE * (page + 1), PAGE * (pages - 1));
            let at = self.base.wrapping_add(from);
            // JUSTIFICATION: nix's madvise knows this advice, but takes no raw address of ours.
            // SAFETY: whole pages within the mapping, to which no reference exists; they read as
            // zeros afterwards, and are written again before they are used. If it fails, they stay.
            unsafe { libc::madvise(at.cast(), length, libc::MADV_REMOVE) };
        }
    }

    fn wake(&self, seat: usize) {
        let word: *const AtomicU32 = self.requested(seat, REQUEST);
        // JUSTIFICATION: no library wakes a futex that is shared between processes.
        // SAFETY: the address is a word of the mapping; FUTEX_WAKE touches no memory.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1, 0, 0, 0) };
    }

    /// Whether the last batch is done.
    #[must_use]
    pub fn is_done(&self, seat: usize) -> bool {
        let request = self.requested(seat, REQUEST).load(Ordering::Acquire);
        self.answered(seat, DONE).load(Ordering::Acquire) == request
    }

    /// Asks for a trap at the end of the running batch; true if the batch had ended already (a trap
    /// may still come, and is to be ignored).
    #[must_use]
    pub fn ask_for_notice(&self, seat: usize) -> bool {
        self.requested(seat, NOTIFY).store(2, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.is_done(seat)
    }

    /// How many operations of the running batch have ended.
    #[must_use]
    pub fn progress(&self, seat: usize) -> usize {
        self.answered(seat, PROGRESS).load(Ordering::Acquire) as usize
    }

    /// Result of one operation of the last batch.
    #[must_use]
    pub fn result(&self, seat: usize, operation: usize) -> i64 {
        assert!(
            operation < Self::longest_batch(seat),
            "operation {operation}"
        );
        let at = RESULTS + operation * 8;
        let page = self.answers_of(seat);
        self.long(seat, page, at)
            .load(Ordering::Acquire)
            .cast_signed()
    }
}

impl Drop for Deck {
    fn drop(&mut self) {
        // JUSTIFICATION: the mapping is ours to give back.
        // SAFETY: `base` and `length` are those of `map`; no reference into it outlives self.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_fits_its_page_and_ends_where_its_tracer_believes() {
        let bytes = code();
        assert!(bytes.len() < 256);
        let after = usize::try_from(after_call_offset()).expect("small");
        assert_eq!(
            &bytes[after - 2..after],
            &[0x0f, 0x05],
            "syscall stands before it"
        );
        let trap = usize::try_from(after_trap_offset()).expect("small");
        assert_eq!(bytes[trap - 1], 0xcc, "int3 stands before it");
        assert_eq!((DONE, NOTIFY, ASLEEP, COUNT, PROGRESS), (4, 8, 12, 16, 20));
        assert_eq!((REQUEST, OPERATIONS, RESULTS), (0, 64, 64));
        const { assert!(OPERATIONS + OPERATIONS_MAX * OPERATION_LENGTH <= PAGE) };
    }

    #[test]
    fn no_two_seats_of_a_deck_overlap() {
        let (name, seats) = (c"deck", 5);
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        let file = nix::sys::memfd::memfd_create(name, flags).expect("a memory file");
        let length = Deck::length_for(seats);
        nix::unistd::ftruncate(&file, length.cast_signed() as i64).expect("its length");
        let deck = Deck::map(std::os::fd::AsFd::as_fd(&file), seats).expect("mapped");
        let mut ranges = vec![(0, PAGE)];
        for seat in 0..seats {
            let (requests, answers) = deck.seat_offsets(seat);
            let longest = Deck::longest_batch(seat);
            let at = |start: u64, used: usize| {
                let start = usize::try_from(start).expect("small");
                (start, start + used)
            };
            ranges.push(at(requests, OPERATIONS + longest * OPERATION_LENGTH));
            ranges.push(at(answers, RESULTS + longest * 8));
            assert_eq!(
                requests < Deck::read_only_length(seats) as u64,
                answers >= Deck::read_only_length(seats) as u64
            );
        }
        let data = usize::try_from(deck.data_offset()).expect("small");
        ranges.push((data, data + DATA_LENGTH));
        ranges.sort_unstable();
        assert!(
            ranges.windows(2).all(|two| two[0].1 <= two[1].0),
            "{ranges:?}"
        );
        assert!(ranges.last().is_some_and(|last| last.1 <= length));
        let call = Syscall::new(1, &[2]);
        deck.submit(0, &vec![call; LONG_MAX], false);
        assert_eq!(deck.result(0, LONG_MAX - 1), 0);
        deck.forget_long();
    }
}
