//! The program of a blank process: a page of code that executes lists of system calls.

use whim_model::{Registers, Syscall};

/// Where the program is linked; the lowest address that every kernel lets a program have.
pub const STUB_BASE: u64 = 0x1_0000;
/// Where its writable memory is.
pub const STUB_DATA: u64 = 0x10_0000;
/// Length of the writable memory: operations in the first half, arguments in the second.
pub const DATA_LENGTH: u64 = 4 << 20;
/// Offset of the arguments in the writable memory.
pub const ARGUMENTS_OFFSET: u64 = DATA_LENGTH / 2;
/// Length of one operation: number, six arguments, result.
pub const OPERATION_LENGTH: u64 = 64;

const PAGE: u64 = 4096;
/// Offset of the code in the program, behind the headers.
const CODE_OFFSET: u64 = 0x200;

/// Position-independent; uses neither stack nor data, so that it runs on a thread in any state.
///
/// ```text
///  0 stop:  int3                      ; the tracer takes over
///  1        jmp stop
///  3 run:   mov rbx, rdi              ; operations
///  6        mov rbp, rsi              ; how many
///  9 next:  test rbp, rbp
///  c        jz stop
///  e        mov rax, [rbx]            ; number
/// 11        mov rdi, [rbx+8]
/// 15        mov rsi, [rbx+16]
/// 19        mov rdx, [rbx+24]
/// 1d        mov r10, [rbx+32]
/// 21        mov r8, [rbx+40]
/// 25        mov r9, [rbx+48]
/// 29        syscall
/// 2b        mov [rbx+56], rax         ; result
/// 2f        add rbx, 64
/// 33        dec rbp
/// 36        jmp next
/// 38 one:   syscall                   ; for a call that the tracer steps through
/// 3a        int3
/// 3b        jmp one
/// ```
const CODE: [u8; 61] = [
    0xcc, 0xeb, 0xfd, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xf5, 0x48, 0x85, 0xed, 0x74, 0xf2, 0x48, 0x8b,
    0x03, 0x48, 0x8b, 0x7b, 0x08, 0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x53, 0x18, 0x4c, 0x8b, 0x53,
    0x20, 0x4c, 0x8b, 0x43, 0x28, 0x4c, 0x8b, 0x4b, 0x30, 0x0f, 0x05, 0x48, 0x89, 0x43, 0x38, 0x48,
    0x83, 0xc3, 0x40, 0x48, 0xff, 0xcd, 0xeb, 0xd1, 0x0f, 0x05, 0xcc, 0xeb, 0xfb,
];
const RUN_OFFSET: u64 = 3;
const ONE_OFFSET: u64 = 0x38;

pub fn encode(call: &Syscall) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0..8].copy_from_slice(&call.number.to_le_bytes());
    for (index, value) in call.args.iter().enumerate() {
        bytes[8 + index * 8..16 + index * 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Where the code and its memory are in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub code: u64,
    pub data: u64,
}

impl Place {
    /// Right after the exec of the stub.
    pub const INITIAL: Self = Self {
        code: STUB_BASE + CODE_OFFSET,
        data: STUB_DATA,
    };

    /// Bytes that a place takes, code page included.
    pub const LENGTH: u64 = PAGE + DATA_LENGTH;

    /// The place whose code page is at `start`, its memory behind it.
    #[must_use]
    pub fn at(start: u64) -> Self {
        Self {
            code: start,
            data: start + PAGE,
        }
    }

    /// Start of the arguments.
    #[must_use]
    pub fn arguments(&self) -> u64 {
        self.data + ARGUMENTS_OFFSET
    }

    /// The `syscall` instruction that the tracer steps through.
    #[must_use]
    pub fn one(&self) -> u64 {
        self.code + ONE_OFFSET
    }

    /// Registers with which a thread executes `count` operations at `operations`.
    #[must_use]
    pub fn run_registers(&self, before: &Registers, operations: u64, count: u64) -> Registers {
        Registers {
            rip: self.code + RUN_OFFSET,
            rdi: operations,
            rsi: count,
            orig_rax: u64::MAX,
            rax: 0,
            // No single steps, no alignment checks, forward string direction.
            eflags: 0x202,
            ..*before
        }
    }
}

/// The code, for a page of its own.
#[must_use]
pub fn code() -> &'static [u8] {
    &CODE
}

/// The whole program, an ELF file: one page of headers and code, and zeroed memory.
#[must_use]
pub fn program() -> Vec<u8> {
    const HEADER: u64 = 64;
    const ENTRY: u64 = 56;
    let mut file = vec![0u8; usize::try_from(PAGE).unwrap_or(0)];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).unwrap_or(0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    // ELF, 64 bit, little endian, version 1, System V; executable, x86-64.
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    put(16, &2u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    put(24, &(STUB_BASE + CODE_OFFSET).to_le_bytes());
    put(32, &HEADER.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &3u16.to_le_bytes());
    put(58, &64u16.to_le_bytes());
    // Kind, flags (1 = execute, 2 = write, 4 = read), address, length in file, length in memory.
    let segments: [(u32, u32, u64, u64, u64); 3] = [
        (1, 5, STUB_BASE, PAGE, PAGE),
        (1, 6, STUB_DATA, 0, DATA_LENGTH),
        // PT_GNU_STACK: the stack is not executable.
        (0x6474_e551, 6, 0, 0, 0),
    ];
    for ((kind, flags, address, in_file, in_memory), at) in
        segments.into_iter().zip((HEADER..).step_by(56))
    {
        debug_assert!(at + ENTRY <= CODE_OFFSET);
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        put(at + 16, &address.to_le_bytes());
        put(at + 24, &address.to_le_bytes());
        put(at + 32, &in_file.to_le_bytes());
        put(at + 40, &in_memory.to_le_bytes());
        put(at + 48, &PAGE.to_le_bytes());
    }
    put(CODE_OFFSET, &CODE);
    file
}
