//! A process image that no process ever had.
#![allow(dead_code)] // no test needs all of it

use whim_image::rebuild::is_kernel_name;
use whim_image::vdso;
use whim_model::{
    Activity, Backing, Clocks, CpuTime, Mapping, MappingFlags, MappingId, MemoryLayout,
    ProcessImage, Protection, QueuedSignal, Range, Registers, SignalAction, ThreadImage,
};
use whim_sys::procmap::Maps;
use whim_sys::ptrace::Waited;

pub(crate) const CODE: u64 = 0x40_0000;
pub(crate) const DATA: u64 = 0x50_0000;
pub(crate) const FILE: u64 = 0x60_0000;
pub(crate) const STACK: u64 = 0x7ffd_1000_0000;
pub(crate) const TIB: u64 = 1 << 40;
pub(crate) const PAGE: u64 = 4096;

/// getpid -> [DATA]; gettid -> [DATA + 8 + 8 * index]; read FILE byte -> [DATA + 64];
/// getppid (trapped) -> [DATA + 128 + 8 * index]; then again and again.
///
/// ```text
/// mov ebx, DATA ; mov eax, 39 ; syscall ; mov [rbx], rax
/// mov eax, 186 ; syscall ; mov [rbx + r12*8 + 8], rax
/// mov ecx, FILE ; movzx eax, byte [rcx] ; mov [rbx+64], rax
/// again: mov eax, 110 ; syscall ; mov [rbx + r12*8 + 128], rax ; jmp again
/// ```
pub(crate) const PROGRAM: &[u8] = &[
    0xbb, 0x00, 0x00, 0x50, 0x00, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x48, 0x89, 0x03, 0xb8, 186, 0, 0,
    0, 0x0f, 0x05, 0x4a, 0x89, 0x44, 0xe3, 0x08, 0xb9, 0x00, 0x00, 0x60, 0x00, 0x0f, 0xb6, 0x01,
    0x48, 0x89, 0x43, 0x40, 0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0x4a, 0x89, 0x84, 0xe3, 0x80, 0x00,
    0x00, 0x00, 0xeb, 0xef,
];

pub(crate) fn mapping(start: u64, end: u64, protection: u8, backing: Backing) -> Mapping {
    Mapping {
        start,
        end,
        protection: Protection(protection),
        flags: MappingFlags::default(),
        backing,
    }
}

pub(crate) fn kernel_mappings() -> Vec<Mapping> {
    let maps = Maps::open(std::process::id().cast_signed()).expect("maps");
    let mut own = maps.all().expect("maps");
    own.retain(|entry| is_kernel_name(&entry.name));
    let base = own[0].start;
    // At the same distances, but elsewhere.
    own.into_iter()
        .map(|entry| {
            let start = 0x7ffe_0000_0000 + (entry.start - base);
            let backing = Backing::Kernel { name: entry.name };
            mapping(start, start + (entry.end - entry.start), 5, backing)
        })
        .collect()
}

pub(crate) fn thread(tid: i32, index: u64) -> ThreadImage {
    let mut xstate = own_xstate();
    // MXCSR: something that is not the default.
    xstate[24..28].copy_from_slice(&0x1fa0u32.to_le_bytes());
    ThreadImage {
        tid,
        registers: Registers {
            rip: CODE,
            rsp: STACK - 64,
            r12: index,
            eflags: 0x202,
            cs: 0x33,
            ss: 0x2b,
            orig_rax: u64::MAX,
            ..Registers::default()
        },
        activity: Activity::Computing,
        awaited: 0,
        xstate,
        signal_mask: 1 << 9 | 1 << 11,
        alternate_stack: Default::default(),
        rseq: None,
        robust_list: (DATA + 0x100, 24),
        tid_address: DATA + 0x200,
        pending: vec![pending(12, -6)],
        name: format!("hand-{index}").into_bytes(),
        settings: Default::default(),
        deadline_ns: None,
        cpu_away: CpuTime::default(),
    }
}

/// A state with a header that says "x87 and SSE are in use", as long as this CPU's.
fn own_xstate() -> Vec<u8> {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("sleep");
    let pid = child.id().cast_signed();
    let running =
        whim_sys::ptrace::Running::seize(pid, whim_sys::ptrace::Options::NONE).expect("seize");
    running.interrupt().expect("interrupt");
    let Ok(Waited::Stopped(stopped)) = running.wait() else {
        panic!("no stop")
    };
    let mut bytes = stopped.xstate().expect("xstate");
    child.kill().expect("kill");
    child.wait().expect("wait");
    bytes[512..520].copy_from_slice(&3u64.to_le_bytes());
    bytes[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    bytes
}

/// A signal that only the process itself may queue: sent by `kill` (code 0) or `tgkill` (-6).
pub(crate) fn pending(signal: u8, code: i32) -> QueuedSignal {
    let mut info = vec![0u8; 128];
    info[0..4].copy_from_slice(&i32::from(signal).to_le_bytes());
    info[8..12].copy_from_slice(&code.to_le_bytes());
    info[16..20].copy_from_slice(&77i32.to_le_bytes());
    QueuedSignal { signal, info }
}

pub(crate) fn image(pid: i32, threads: usize) -> ProcessImage {
    let mut mappings = vec![
        mapping(CODE, CODE + PAGE, 5, Backing::Anonymous),
        mapping(DATA, DATA + 4 * PAGE, 3, Backing::Anonymous),
        mapping(
            FILE,
            FILE + 8 * PAGE,
            1,
            Backing::File {
                id: MappingId(3),
                offset: 0,
            },
        ),
        mapping(STACK - 32 * PAGE, STACK, 3, Backing::Anonymous),
    ];
    mappings[3].flags.grows_down = true;
    mappings.extend(kernel_mappings());
    mappings.sort_by_key(|m| m.start);
    let mut actions = vec![SignalAction::default(); 64];
    actions[9] = SignalAction {
        handler: CODE,
        flags: 0x0400_0000,
        restorer: CODE,
        mask: 0,
    };
    ProcessImage {
        pid,
        threads: (0..threads)
            .map(|i| thread(pid + i32::try_from(i).expect("few"), i as u64))
            .collect(),
        actions,
        pending: vec![pending(10, 0)],
        mappings,
        guards: Vec::new(),
        layout: MemoryLayout {
            start_code: CODE,
            end_code: CODE + PAGE,
            start_data: DATA,
            end_data: DATA + PAGE,
            start_brk: DATA + 4 * PAGE,
            brk: DATA + 4 * PAGE,
            start_stack: STACK - 128,
            arg_start: STACK - 128,
            arg_end: STACK - 127,
            env_start: STACK - 127,
            env_end: STACK - 126,
            auxv: [6u64, 4096, 0, 0]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect(),
        },
        limits: Vec::new(),
        personality: 0,
        no_transparent_huge_pages: false,
        barriers: 0,
        denies_memory: 0,
        filters: Vec::new(),
        locks_future: false,
        descriptor_signals: 0,
        remarks: Vec::new(),
        vdso: vdso::own().expect("a vDSO").to_vec(),
        reserved: Range {
            start: 16 * TIB,
            end: 48 * TIB,
        },
        clocks: Clocks::default(),
        cpu_away: CpuTime::default(),
        cpu_timers: Default::default(),
    }
}
