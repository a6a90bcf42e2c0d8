//! A process that never ran anywhere is rebuilt from a hand-made image, in a real sandbox.
//!
//! No test harness: a sandbox can only be made by a process without threads.

use std::collections::BTreeMap;
use whim_guest::sandbox::{GuestRequest, Sandbox};
use whim_image::model::{
    Activity, Backing, Clocks, Mapping, MappingFlags, MappingId, MemoryLayout, ProcessImage,
    Protection, QueuedSignal, Range, Registers, SignalAction, ThreadImage,
};
use whim_image::rebuild::is_kernel_name;
use whim_sys::process_vm;
use whim_sys::procmap::Maps;
use whim_sys::ptrace::Waited;
use whim_sys::seccomp::Response;
use whim_sys::uffd::{Event, Placed};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const FILE: u64 = 0x60_0000;
const STACK: u64 = 0x7ffd_1000_0000;
const TIB: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// getpid -> [DATA]; gettid -> [DATA + 8 + 8 * index]; read FILE byte -> [DATA + 64];
/// getppid (trapped) -> [DATA + 128 + 8 * index]; then again and again.
///
/// ```text
/// mov ebx, DATA ; mov eax, 39 ; syscall ; mov [rbx], rax
/// mov eax, 186 ; syscall ; mov [rbx + r12*8 + 8], rax
/// mov ecx, FILE ; movzx eax, byte [rcx] ; mov [rbx+64], rax
/// again: mov eax, 110 ; syscall ; mov [rbx + r12*8 + 128], rax ; jmp again
/// ```
const PROGRAM: &[u8] = &[
    0xbb, 0x00, 0x00, 0x50, 0x00, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x48, 0x89, 0x03, 0xb8, 186, 0, 0,
    0, 0x0f, 0x05, 0x4a, 0x89, 0x44, 0xe3, 0x08, 0xb9, 0x00, 0x00, 0x60, 0x00, 0x0f, 0xb6, 0x01,
    0x48, 0x89, 0x43, 0x40, 0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0x4a, 0x89, 0x84, 0xe3, 0x80, 0x00,
    0x00, 0x00, 0xeb, 0xef,
];

fn mapping(start: u64, end: u64, protection: u8, backing: Backing) -> Mapping {
    Mapping {
        start,
        end,
        protection: Protection(protection),
        flags: MappingFlags::default(),
        backing,
    }
}

fn kernel_mappings() -> Vec<Mapping> {
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

fn thread(tid: i32, index: u64) -> ThreadImage {
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
        xstate,
        signal_mask: 1 << 9,
        alternate_stack: Default::default(),
        rseq: None,
        robust_list: (DATA + 0x100, 24),
        tid_address: DATA + 0x200,
        pending: Vec::new(),
        name: format!("hand-{index}"),
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

fn image(pid: i32, threads: usize) -> ProcessImage {
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
    let mut info = vec![0u8; 128];
    info[0..4].copy_from_slice(&10i32.to_le_bytes());
    info[16..20].copy_from_slice(&77i32.to_le_bytes());
    ProcessImage {
        pid,
        threads: (0..threads)
            .map(|i| thread(pid + i32::try_from(i).expect("few"), i as u64))
            .collect(),
        actions,
        pending: vec![QueuedSignal { signal: 10, info }],
        mappings,
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
        reserved: Range {
            start: 16 * TIB,
            end: 48 * TIB,
        },
        clocks: Clocks::default(),
    }
}

fn filter(reserved: Range) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in whim_calls::guest_filter((reserved.start, reserved.end)) {
        bytes.extend_from_slice(&one.code.to_le_bytes());
        bytes.extend_from_slice(&[one.jt, one.jf]);
        bytes.extend_from_slice(&one.k.to_le_bytes());
    }
    bytes
}

fn word(pid: i32, address: u64) -> u64 {
    let mut bytes = [0; 8];
    process_vm::read_exact(pid, address, &mut bytes).expect("read the guest");
    u64::from_le_bytes(bytes)
}

fn rebuild_and_run(private_id: Option<u32>, pid: i32, threads: usize) {
    let started = std::time::Instant::now();
    let mut sandbox = Sandbox::prepare().expect("prepare");
    sandbox.enter(private_id, &[]).expect("enter");
    if let Some(id) = private_id {
        whim_sys::credentials::become_identity(id, id, &[], &[]).expect("become");
    }
    let request = GuestRequest {
        pid,
        monotonic_ns: 5_000_000_000_000,
        boottime_ns: 7_000_000_000_000,
    };
    let (blank, uffd) = sandbox.make_guest(request).expect("guest");
    let made = started.elapsed();
    let image = image(pid, threads);
    let started = std::time::Instant::now();
    let mapped = blank.map(&image, &uffd).expect("map");
    let mapped_in = started.elapsed();
    let at = |address| {
        image
            .mappings
            .iter()
            .find(|m| m.contains(address))
            .expect("mapping")
    };
    let mut code = PROGRAM.to_vec();
    code.resize(4096, 0);
    mapped
        .write_pages(at(CODE), &uffd, CODE, &code)
        .expect("code");
    let rebuilt = mapped
        .complete(&image, &filter(image.reserved))
        .expect("complete");
    let total = started.elapsed();
    println!("  sandbox {made:?}, mapped {mapped_in:?}, rebuilt {total:?}");
    let host_pid = rebuilt.runner.pid;
    check_state(host_pid, &image);
    let listener = rebuilt.listener;
    let mut running = Vec::new();
    for thread in rebuilt.threads {
        // The pending SIGUSR1 is blocked by the image's mask: none of its deliveries is seen.
        running.push(thread.stopped.resume(0).expect("resume"));
    }
    serve_one_fault(&uffd);
    let mut calls: BTreeMap<i32, u32> = BTreeMap::new();
    // Every thread has come back from a call of its own.
    while calls.len() < threads || calls.values().any(|count| *count < 3) {
        let call = listener.receive().expect("receive").expect("a call");
        assert_eq!(call.number, 110);
        *calls.entry(call.tid).or_default() += 1;
        listener
            .respond(call.id, Response::Result(4711))
            .expect("respond");
    }
    println!("  calls {calls:?}");
    let wanted = u64::try_from(pid).expect("positive");
    assert_eq!(word(host_pid, DATA), wanted);
    assert_eq!(word(host_pid, DATA + 8), wanted);
    assert_eq!(word(host_pid, DATA + 64), 0x5a);
    assert_eq!(word(host_pid, DATA + 128), 4711);
    drop(sandbox);
    // The kernel reports the end of a leader after that of all its threads.
    for one in running.into_iter().rev() {
        assert!(matches!(one.wait(), Ok(Waited::Signaled { signal: 9, .. })));
    }
}

fn serve_one_fault(uffd: &whim_sys::uffd::Uffd) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut events = Vec::new();
    while events.is_empty() {
        poll(
            &mut [PollFd::new(uffd.as_fd(), PollFlags::POLLIN)],
            PollTimeout::NONE,
        )
        .expect("poll");
        uffd.read_events(&mut events).expect("events");
    }
    assert_eq!(
        events[0],
        Event::Fault {
            address: FILE,
            write: false
        }
    );
    assert_eq!(uffd.copy(FILE, &[0x5a; 4096]), Ok(Placed::Whole));
}

fn check_state(pid: i32, image: &ProcessImage) {
    let maps = Maps::open(pid).expect("maps").all().expect("maps");
    for mapping in &image.mappings {
        let found = maps
            .iter()
            .find(|e| e.start <= mapping.start && mapping.end <= e.end);
        let found = found.unwrap_or_else(|| panic!("{mapping:x?} is missing in {maps:x?}"));
        assert_eq!(
            found.writable,
            mapping.protection.writable(),
            "{mapping:x?}"
        );
    }
    for entry in &maps {
        let known = image
            .mappings
            .iter()
            .any(|m| m.start < entry.end && entry.start < m.end);
        let reserved = image.reserved.contains(entry.start);
        assert!(
            known || reserved || entry.name == "[vsyscall]",
            "{entry:x?} is left over"
        );
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let field = |name: &str| {
        let line = status
            .lines()
            .find(|l| l.starts_with(name))
            .expect("a field");
        line.split_once(':').expect("colon").1.trim().to_owned()
    };
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapPrm:"), "0000000000000000");
    assert_eq!(field("CapBnd:"), "0000010000000000");
    assert_eq!(field("CapAmb:"), "0000000000000000");
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    assert_eq!(field("Name:"), "hand-0");
    assert_eq!(field("SigBlk:"), "0000000000000200");
    assert_eq!(field("ShdPnd:"), "0000000000000200");
    assert_eq!(field("SigCgt:"), "0000000000000200");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("fd")
        .count();
    assert_eq!(descriptors, 0);
}

/// Each case in a process of its own, because it gives up its rights.
fn main() {
    let cases: [(&str, Option<u32>, i32, usize); 3] = [
        ("as-we-are", None, 4242, 1),
        ("private-id", Some(70_001), 31_000, 1),
        ("threads", Some(70_002), 500, 5),
    ];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(case) = cases
        .iter()
        .find(|c| arguments.first().is_some_and(|a| a == c.0))
    {
        return rebuild_and_run(case.1, case.2, case.3);
    }
    let me = std::env::current_exe().expect("our own path");
    let mut failed = false;
    for (name, ..) in cases {
        let status = std::process::Command::new(&me)
            .arg(name)
            .status()
            .expect("run");
        println!(
            "test {name} ... {}",
            if status.success() { "ok" } else { "FAILED" }
        );
        failed |= !status.success();
    }
    assert!(!failed, "a case has failed");
}
