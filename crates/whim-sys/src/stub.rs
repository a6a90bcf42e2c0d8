//! Code that runs in a frozen process and undoes itself.
//!
//! # The batch stub
//! Position-independent code followed by its data ([`BatchData`]), placed in the stopped process
//! by its tracer. A thread that enters it runs a list of system calls without a ptrace stop, tells
//! its tracer by a word in memory, and waits for the tracer (see [`set_patience_ms`]). The tracer
//! stops it there and puts its registers and mask back. **If the tracer has died, the thread does
//! that itself**: it blocks all signals, decides whether the call that it came from must end with
//! EINTR, restores flags, mask and registers, and jumps to where it was. No return instruction, no
//! `rt_sigreturn` (it would disable a pending restart), and no stack are used.
//!
//! A thread enters at +0. A thread that stood in a call that can be restarted enters at +2 instead,
//! with the call's number and -ERESTART... in its registers, so that the kernel itself decides. If
//! no handler is due, the kernel subtracts 2 from rip and the thread begins at +0. If a handler is
//! due and the call has to end, rax becomes -EINTR and the thread goes on at +2, which leads past
//! the list, with that result.
//!
//! # The continuation stub
//! Completes one call in place of its tracer: executes `syscall` with arguments that differ from
//! the original ones (the rest of a timeout, the rest of a buffer), restores the changed
//! registers, adds the count that was done before, and jumps to the instruction behind the
//! original call. It changes no flags: `jrcxz` and `lea` are the only decisions and sums.

use std::arch::global_asm;
use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds for which the batch stub waits for its tracer before it undoes itself.
static PATIENCE_MS: AtomicU64 = AtomicU64::new(1000);

/// Sets the time for which a thread waits in the batch stub for its tracer (by default 1 s), so
/// that a test that kills tracers need not wait so long.
pub fn set_patience_ms(milliseconds: u64) {
    PATIENCE_MS.store(milliseconds, Ordering::Relaxed);
}

/// Offset at which a thread enters if it does not stand in a restartable call.
pub const ENTRY: u64 = 0;
/// Offset at which a thread enters if the kernel is to restart or end its call.
pub const RESTART_ENTRY: u64 = 2;
/// Bytes from the word `done` to the two words in which the kernel keeps what is left of the wait.
pub const WAIT_OFFSET: u64 = 16;
/// Words of one operation in memory: number and six arguments.
pub const OPERATION_WORDS: usize = 7;

global_asm!(
    ".pushsection .rodata.whim_stub, \"a\", @progbits",
    // Visible in the whole program, because functions that name them are inlined in other crates.
    ".globl whim_batch_begin",
    ".hidden whim_batch_begin",
    ".globl whim_batch_waiting",
    ".hidden whim_batch_waiting",
    ".globl whim_batch_finish",
    ".hidden whim_batch_finish",
    ".globl whim_batch_data",
    ".hidden whim_batch_data",
    ".globl whim_batch_end",
    ".hidden whim_batch_end",
    ".globl whim_tail_begin",
    ".hidden whim_tail_begin",
    ".globl whim_tail_data",
    ".hidden whim_tail_data",
    ".globl whim_tail_end",
    ".hidden whim_tail_end",
    ".balign 16",
    "whim_batch_begin:",
    ".byte 0xeb, whim_batch_go - whim_batch_begin - 2",
    ".byte 0xeb, whim_batch_interrupted - whim_batch_begin - 4",
    "whim_batch_interrupted:",
    "mov eax, 14",
    "xor edi, edi",
    "lea rsi, [rip + whim_batch_all]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "jmp 7f",
    // The list of operations.
    "whim_batch_go:",
    "mov r13, [rip + whim_batch_count]",
    "test r13, r13",
    "jz 5f",
    "mov r12, [rip + whim_batch_operations]",
    "mov r14, [rip + whim_batch_results]",
    "xor r15d, r15d",
    "2:",
    "mov rax, [r12]",
    "mov rdi, [r12 + 8]",
    "mov rsi, [r12 + 16]",
    "mov rdx, [r12 + 24]",
    "mov r10, [r12 + 32]",
    "mov r8, [r12 + 40]",
    "mov r9, [r12 + 48]",
    "syscall",
    "test r14, r14",
    "jz 3f",
    "mov [r14], rax",
    "add r14, 8",
    "3:",
    // r15: the first error.
    "cmp rax, -4095",
    "jb 4f",
    "test r15, r15",
    "jnz 4f",
    "mov r15, rax",
    "4:",
    "add r12, 56",
    "dec r13",
    "jnz 2b",
    // Tell the tracer and wait for it. r12: how often the wait may be begun anew; r13: how long it
    // is. If the timeout is in memory of ours, the kernel writes the rest of it back each time, so
    // all waits together are no longer. Where there is no such memory yet, the timeout is in the
    // code itself, which the kernel cannot write.
    "mov r12d, 8",
    "lea r13, [rip + whim_batch_patience]",
    "mov r14, [rip + whim_batch_done]",
    "test r14, r14",
    "jz 4f",
    "mov r12d, 1000",
    "mov rax, [r13]",
    "mov rdx, [r13 + 8]",
    "lea r13, [r14 + 16]",
    "mov [r13], rax",
    "mov [r13 + 8], rdx",
    "mov rax, [rip + whim_batch_sequence]",
    "mov [r14], rax",
    "4:",
    "mov eax, 271",
    "xor edi, edi",
    "xor esi, esi",
    "mov rdx, r13",
    "xor r10d, r10d",
    "mov r8d, 8",
    "syscall",
    "whim_batch_waiting:",
    // SIGSTOP and SIGCONT, which cannot be blocked, have cut the wait short, or another tracer,
    // which found us here and let us go on. What comes again and again must not keep us here for
    // ever.
    "cmp rax, -4",
    "jne 5f",
    "dec r12",
    "jnz 4b",
    // The tracer has died (or the list is empty).
    "whim_batch_finish:",
    "5:",
    "mov eax, 14",
    "xor edi, edi",
    "lea rsi, [rip + whim_batch_all]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov rax, [rip + whim_batch_interrupting]",
    "test rax, rax",
    "jz 6f",
    "mov eax, 127",
    "mov rdi, [rip + whim_batch_pending]",
    "mov esi, 8",
    "syscall",
    "test rax, rax",
    "jnz 6f",
    "mov rax, [rdi]",
    "and rax, [rip + whim_batch_interrupting]",
    "jnz 7f",
    // rbx: 0 = the call ends with EINTR, 1 = as saved.
    "6:",
    "mov ebx, 1",
    "jmp 8f",
    "7:",
    "xor ebx, ebx",
    // From popfq on there are only moves: the flags are the program's.
    "8:",
    "lea rsp, [rip + whim_batch_flags]",
    "popfq",
    "mov rsp, [rip + whim_batch_rsp]",
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rip + whim_batch_mask]",
    "mov edx, 0",
    "mov r10d, 8",
    "syscall",
    "mov rcx, rbx",
    "mov r15, [rip + whim_batch_r15]",
    "mov r14, [rip + whim_batch_r14]",
    "mov r13, [rip + whim_batch_r13]",
    "mov r12, [rip + whim_batch_r12]",
    "mov rbp, [rip + whim_batch_rbp]",
    "mov rbx, [rip + whim_batch_rbx]",
    "mov r11, [rip + whim_batch_r11]",
    "mov r10, [rip + whim_batch_r10]",
    "mov r9, [rip + whim_batch_r9]",
    "mov r8, [rip + whim_batch_r8]",
    "mov rdx, [rip + whim_batch_rdx]",
    "mov rsi, [rip + whim_batch_rsi]",
    "mov rdi, [rip + whim_batch_rdi]",
    "jrcxz 9f",
    "mov rax, [rip + whim_batch_rax]",
    "mov rcx, [rip + whim_batch_rcx]",
    "jmp [rip + whim_batch_rip]",
    "9:",
    "mov rax, -4",
    "mov rcx, [rip + whim_batch_rcx]",
    "jmp [rip + whim_batch_interrupted_rip]",
    ".balign 8",
    "whim_batch_data:",
    "whim_batch_operations: .quad 0",
    "whim_batch_count: .quad 0",
    "whim_batch_results: .quad 0",
    "whim_batch_done: .quad 0",
    "whim_batch_sequence: .quad 0",
    "whim_batch_pending: .quad 0",
    "whim_batch_interrupting: .quad 0",
    "whim_batch_all: .quad 0",
    "whim_batch_mask: .quad 0",
    "whim_batch_flags: .quad 0",
    "whim_batch_rsp: .quad 0",
    "whim_batch_rax: .quad 0",
    "whim_batch_rcx: .quad 0",
    "whim_batch_r11: .quad 0",
    "whim_batch_rbx: .quad 0",
    "whim_batch_rbp: .quad 0",
    "whim_batch_rdi: .quad 0",
    "whim_batch_rsi: .quad 0",
    "whim_batch_rdx: .quad 0",
    "whim_batch_r10: .quad 0",
    "whim_batch_r8: .quad 0",
    "whim_batch_r9: .quad 0",
    "whim_batch_r12: .quad 0",
    "whim_batch_r13: .quad 0",
    "whim_batch_r14: .quad 0",
    "whim_batch_r15: .quad 0",
    "whim_batch_rip: .quad 0",
    "whim_batch_interrupted_rip: .quad 0",
    "whim_batch_patience: .quad 1, 0",
    "whim_batch_end:",
    // The continuation stub.
    ".balign 16",
    "whim_tail_begin:",
    "syscall",
    // rdx: 0, or all ones for an error.
    "cqo",
    "mov rcx, rdx",
    "jrcxz 2f",
    // An error: what was done before, or the error itself if nothing was.
    "mov rcx, [rip + whim_tail_counts]",
    "jrcxz 3f",
    "mov rax, [rip + whim_tail_before]",
    "jmp 3f",
    "2:",
    "mov rcx, [rip + whim_tail_before]",
    "lea rax, [rax + rcx]",
    "3:",
    "mov rdi, [rip + whim_tail_rdi]",
    "mov rsi, [rip + whim_tail_rsi]",
    "mov rdx, [rip + whim_tail_rdx]",
    "mov r10, [rip + whim_tail_r10]",
    "mov r8, [rip + whim_tail_r8]",
    "mov r9, [rip + whim_tail_r9]",
    "mov rcx, [rip + whim_tail_rip]",
    "jmp [rip + whim_tail_rip]",
    ".balign 8",
    "whim_tail_data:",
    "whim_tail_before: .quad 0",
    "whim_tail_counts: .quad 0",
    "whim_tail_rdi: .quad 0",
    "whim_tail_rsi: .quad 0",
    "whim_tail_rdx: .quad 0",
    "whim_tail_r10: .quad 0",
    "whim_tail_r8: .quad 0",
    "whim_tail_r9: .quad 0",
    "whim_tail_rip: .quad 0",
    "whim_tail_end:",
    ".popsection",
);

unsafe extern "C" {
    static whim_batch_begin: u8;
    static whim_batch_waiting: u8;
    static whim_batch_finish: u8;
    static whim_batch_data: u8;
    static whim_batch_end: u8;
    static whim_tail_begin: u8;
    static whim_tail_data: u8;
    static whim_tail_end: u8;
}

fn between(begin: *const u8, end: *const u8) -> &'static [u8] {
    let length = end.addr() - begin.addr();
    // JUSTIFICATION: the bytes of the stubs are known to the assembler only.
    // SAFETY: both labels stand in one read-only section, `begin` before `end`; the bytes between
    // them live as long as the program and are never written.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// Bytes of the batch stub, with empty data at their end.
#[must_use]
pub fn batch_code() -> &'static [u8] {
    between(&raw const whim_batch_begin, &raw const whim_batch_end)
}

/// Offset of [`BatchData`] in the batch stub.
#[must_use]
pub fn batch_data_offset() -> u64 {
    between(&raw const whim_batch_begin, &raw const whim_batch_data).len() as u64
}

/// Offset of the instruction behind the call in which a thread waits for its tracer.
#[must_use]
pub fn batch_waiting_offset() -> u64 {
    between(&raw const whim_batch_begin, &raw const whim_batch_waiting).len() as u64
}

/// Offset behind the last instruction that a thread executes while its tracer lives.
#[must_use]
pub fn batch_finish_offset() -> u64 {
    between(&raw const whim_batch_begin, &raw const whim_batch_finish).len() as u64
}

/// Bytes of the continuation stub, with empty data at their end.
#[must_use]
pub fn tail_code() -> &'static [u8] {
    between(&raw const whim_tail_begin, &raw const whim_tail_end)
}

/// Offset of [`TailData`] in the continuation stub.
#[must_use]
pub fn tail_data_offset() -> u64 {
    between(&raw const whim_tail_begin, &raw const whim_tail_data).len() as u64
}

/// Data of one instance of the batch stub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchData {
    /// Address of the operations, [`OPERATION_WORDS`] words each.
    pub operations: u64,
    /// Number of operations; 0: the thread undoes itself at once.
    pub count: u64,
    /// Address where one word per operation is stored, its result; 0 = nowhere.
    pub results: u64,
    /// Address of the word that becomes `sequence` when all are done; 0 = none. The third and
    /// fourth word from there on belong to the stub too ([`WAIT_OFFSET`]).
    pub done: u64,
    pub sequence: u64,
    /// Address of 8 writable bytes.
    pub pending: u64,
    /// Signals that, if they came meanwhile, end the thread's call with EINTR.
    pub interrupting: u64,
    /// The signal mask to be restored.
    pub mask: u64,
    /// The registers to be restored. In rip and rax the restart of the call is already applied.
    pub registers: whim_model::Registers,
    /// rip for the case of EINTR: behind the `syscall` instruction.
    pub interrupted_rip: u64,
}

/// Trap flag and resume flag: never carried into a stub.
const FLAGS_CLEARED: u64 = 0x1_0100;

impl BatchData {
    /// In the order of the assembler's labels.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let r = &self.registers;
        let patience = PATIENCE_MS.load(Ordering::Relaxed);
        let words = [
            self.operations,
            self.count,
            self.results,
            self.done,
            self.sequence,
            self.pending,
            self.interrupting,
            u64::MAX,
            self.mask,
            r.eflags & !FLAGS_CLEARED,
            r.rsp,
            r.rax,
            r.rcx,
            r.r11,
            r.rbx,
            r.rbp,
            r.rdi,
            r.rsi,
            r.rdx,
            r.r10,
            r.r8,
            r.r9,
            r.r12,
            r.r13,
            r.r14,
            r.r15,
            r.rip,
            self.interrupted_rip,
            patience / 1000,
            patience % 1000 * 1_000_000,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Offset of `count` in the data.
    pub const COUNT_OFFSET: u64 = 8;
}

/// Data of one instance of the continuation stub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailData {
    /// Added to a result that is not an error.
    pub before: u64,
    /// Whether an error is replaced by `before` (a transfer of which a part was done).
    pub counts: bool,
    /// rdi, rsi, rdx, r10, r8, r9 as the program had them.
    pub args: [u64; 6],
    /// Behind the original `syscall` instruction.
    pub rip: u64,
}

impl TailData {
    /// Offset of `rip` in the data.
    pub const RIP_OFFSET: u64 = 64;

    /// In the order of the assembler's labels.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut words = vec![self.before, u64::from(self.counts)];
        words.extend_from_slice(&self.args);
        words.push(self.rip);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_the_size_that_the_assembler_reserved() {
        let batch = batch_code().len() - usize::try_from(batch_data_offset()).unwrap();
        assert_eq!(BatchData::default().to_bytes().len(), batch);
        let tail = tail_code().len() - usize::try_from(tail_data_offset()).unwrap();
        assert_eq!(TailData::default().to_bytes().len(), tail);
        assert!(
            batch_code().len() + 2 * OPERATION_WORDS * 8 <= 1024,
            "{}",
            batch_code().len()
        );
        assert!(tail_code().len() <= 192, "{}", tail_code().len());
    }

    #[test]
    fn entries_are_two_short_jumps() {
        let code = batch_code();
        assert_eq!((code[0], code[2]), (0xeb, 0xeb));
        let waiting = usize::try_from(batch_waiting_offset()).unwrap();
        assert_eq!(code[waiting - 2..waiting], [0x0f, 0x05]);
        assert_eq!(tail_code()[..2], [0x0f, 0x05]);
    }
}
