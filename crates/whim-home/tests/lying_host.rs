//! A host that lies: what it may have a deputy do, and what not. The program is a real one, converted
//! as for a journey; the host is this test, which sends what no guest supervisor would send.
#![forbid(unsafe_code)]

mod support;

use support::{Converted, Program, ask_with, convert_program};
use whim_attempts::{Attempt, Party};
use whim_home::convert::Original;
use whim_home::deputy::SPARE_THREADS;
use whim_home::homeward;
use whim_home::numbers::OwnTid;
use whim_home::server::{FileMapping, Outgoing, ServeError};
use whim_journey::message::{
    CallRequest, Disposition, ToGuest, WireDirection, WireRegion, WireReturned,
};
use whim_model::{Backing, Mapping, MappingFlags, Protection, Range, Syscall};

const EPERM: i64 = -1;
const EFAULT: i64 = -14;
/// Far above every number that a kernel has given out.
const NUMBERS: u64 = 1024;
/// Calls that would change what runs, look into others, or change the machine.
const NEVER: [(&str, &[&str]); 10] = [
    ("execute a program", &["execve", "execveat"]),
    (
        "look into other processes",
        &[
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "process_madvise",
            "pidfd_getfd",
        ],
    ),
    (
        "change mounts",
        &[
            "mount",
            "umount2",
            "pivot_root",
            "move_mount",
            "fsopen",
            "open_tree",
        ],
    ),
    (
        "load a module or a kernel",
        &[
            "init_module",
            "finit_module",
            "delete_module",
            "kexec_load",
            "kexec_file_load",
        ],
    ),
    ("use keyrings", &["keyctl", "add_key", "request_key"]),
    ("instrument the kernel", &["bpf", "perf_event_open"]),
    ("change the machine", &["reboot", "swapon", "swapoff"]),
    ("change namespaces", &["setns", "unshare"]),
    ("make processes", &["clone", "clone3", "fork", "vfork"]),
    (
        "go round the supervisor",
        &[
            "userfaultfd",
            "io_uring_setup",
            "io_uring_enter",
            "seccomp",
            "mmap",
            "mprotect",
            "munmap",
            "mremap",
            "shmat",
        ],
    ),
];

/// An attempt of a lying host.
fn tries(what: impl Into<String>) -> Attempt {
    Attempt::new(Party::LyingHost, what)
}

fn region(address: u64, length: u64, direction: WireDirection, data_length: u64) -> WireRegion {
    WireRegion {
        address,
        length,
        direction,
        returned: WireReturned::Whole,
        data_length,
    }
}

fn number_of(name: &str) -> u64 {
    let mut all =
        (0..NUMBERS).filter_map(|number| whim_calls::row(number).map(|row| (number, row)));
    let found = all.find(|(_, row)| row.name() == name);
    found.unwrap_or_else(|| panic!("{name} is in no row")).0
}

/// Nothing but a forwarded call is ever executed, whatever number is sent.
#[test]
fn only_what_may_be_forwarded_is_executed() {
    let mut converted = convert_program(Program::python());
    for (what, names) in NEVER {
        let attempt = tries(format!("{what}: forward {}", names.join(", ")));
        for name in names {
            let number = number_of(name);
            assert!(!whim_calls::home_may_execute(number), "{name}");
            let (result, tail) = converted.ask(number, [0; 6], vec![], &[]);
            assert_eq!((result, tail.len()), (EPERM, 0), "{name}");
        }
        attempt.failed("EPERM, and nothing executed");
    }
    let attempt =
        tries("forward every other number that is not of the class forward, and odd ones");
    let odd = [u64::MAX, 1 << 32, 0x4000_003b, u64::from(u32::MAX), 1 << 63];
    let mut refused = 0;
    for number in (0..NUMBERS).chain(odd) {
        if whim_calls::home_may_execute(number) {
            continue;
        }
        let (result, tail) = converted.ask(number, [0; 6], vec![], &[]);
        assert_eq!((result, tail.len()), (EPERM, 0), "call {number}");
        refused += 1;
    }
    assert!(refused > 600, "{refused}");
    attempt.failed("EPERM for each");
    converted.comes_home_unharmed();
}

/// Of some calls only certain requests are forwarded; a host may name any.
#[test]
fn only_requests_that_may_be_forwarded_are_executed() {
    let mut converted = convert_program(Program::python());
    let pages = 0x7000_0000_0000;
    for (what, call, args) in [
        (
            "type into a terminal (TIOCSTI)",
            libc::SYS_ioctl,
            [0, 0x5412],
        ),
        (
            "type by the console (TIOCLINUX)",
            libc::SYS_ioctl,
            [0, 0x541c],
        ),
        (
            "take the console's messages (TIOCCONS)",
            libc::SYS_ioctl,
            [0, 0x541d],
        ),
        (
            "have a line discipline loaded (TIOCSETD)",
            libc::SYS_ioctl,
            [0, 0x5423],
        ),
        ("set a filter (PR_SET_SECCOMP)", libc::SYS_prctl, [22, 1]),
        ("move its memory (PR_SET_MM)", libc::SYS_prctl, [35, 1]),
    ] {
        let attempt = tries(what);
        let data = region(pages, 8, WireDirection::In, 8);
        let args = [args[0], args[1], pages, 0, 0, 0];
        let (result, _) = converted.ask(call.cast_unsigned(), args, vec![data], b"x\0\0\0\0\0\0\0");
        assert_eq!(result, EPERM, "{what}");
        attempt.failed("EPERM, and nothing executed");
    }
    converted.comes_home_unharmed();
}

/// A host cannot open the memory of another process of the same user, by whatever name.
#[test]
fn memory_of_other_processes_is_not_opened() {
    let other = Program::python();
    let path = std::env::temp_dir().join(format!("whim-link-{}", other.pid()));
    std::os::unix::fs::symlink(format!("/proc/{}/mem", other.pid()), &path).expect("a link");
    let link = path.display().to_string();
    let mut converted = convert_program(Program::python());
    let own = converted.tid();
    let pages = 0x7000_0000_0000;
    let openat = libc::SYS_openat.cast_unsigned();
    for hidden in [false, true] {
        if hidden {
            let args = [4, 0, 0, 0, 0, 0];
            let prctl = libc::SYS_prctl.cast_unsigned();
            assert_eq!(converted.ask(prctl, args, vec![], &[]).0, 0);
        }
        for (what, name) in [
            ("by its name", format!("/proc/{}/mem", other.pid())),
            (
                "by a thread",
                format!("/proc/{0}/task/{0}/mem", other.pid()),
            ),
            ("by a link", link.clone()),
        ] {
            let whose = if hidden {
                "an undumpable program"
            } else {
                "a program"
            };
            let attempt = tries(format!(
                "open the memory of another process, of {whose}, {what}"
            ));
            let name = name + "\0";
            let length = name.len() as u64;
            let data = region(pages, length, WireDirection::In, length);
            let args = [libc::AT_FDCWD.cast_unsigned().into(), pages, 2, 0, 0, 0];
            let before = descriptors(own);
            let reason = converted.ask_in_vain(openat, args, vec![data], name.as_bytes());
            assert!(reason.contains("memory of another process"), "{reason}");
            assert_eq!(descriptors(own), before, "{what}");
            attempt.failed(
                "it is closed again, the host hears of no result, and the program comes home",
            );
        }
        // Its own are not opened either, because they would show the deputy; others are as usual.
        for name in ["/proc/self/mem\0", "/proc/self/maps\0", "/dev/null\0"] {
            let length = name.len() as u64;
            let data = region(pages, length, WireDirection::In, length);
            let args = [libc::AT_FDCWD.cast_unsigned().into(), pages, 0, 0, 0, 0];
            if name.starts_with("/proc") {
                // Where it may not be traced, it depends on its rights whether the kernel opens them.
                if hidden {
                    continue;
                }
                let reason = converted.ask_in_vain(openat, args, vec![data], name.as_bytes());
                assert!(reason.contains("of the process itself"), "{reason}");
                continue;
            }
            let (fd, _) = converted.ask(openat, args, vec![data], name.as_bytes());
            assert!(fd > 0, "{name}: {fd}");
            let close = libc::SYS_close.cast_unsigned();
            converted.ask(close, [fd.cast_unsigned(), 0, 0, 0, 0, 0], vec![], &[]);
        }
    }
    let args = [4, 1, 0, 0, 0, 0];
    converted.ask(libc::SYS_prctl.cast_unsigned(), args, vec![], &[]);
    converted.comes_home_unharmed();
    std::fs::remove_file(path).expect("ours");
}

/// How many descriptors a process has.
fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A call number with bits set in its upper half is not taken for the call that the kernel would make of it.
#[test]
fn the_upper_half_of_a_number_is_looked_at() {
    let mut converted = convert_program(Program::python());
    let getppid = libc::SYS_getppid.cast_unsigned();
    assert!(converted.ask(getppid, [0; 6], vec![], &[]).0 > 0);
    let attempt = tries("forward a harmless number with something in its upper half");
    let (result, _) = converted.ask(getppid | 1 << 32, [0; 6], vec![], &[]);
    assert_eq!(result, EPERM);
    attempt.failed("EPERM");
    converted.comes_home_unharmed();
}

/// No buffer is placed outside of the window, wherever it is said to be.
#[test]
fn buffers_outside_of_the_window_are_faults() {
    let mut converted = convert_program(Program::python());
    let reserved = converted.original.reserved;
    let getcwd = libc::SYS_getcwd.cast_unsigned();
    let write = libc::SYS_write.cast_unsigned();
    for (where_to, address, length) in [
        ("the page of requests", reserved.start, 4096),
        ("the deputy's code", reserved.start + 4096, 8),
        ("the end of the reserved range", reserved.end - 1, 1),
        (
            "the window and beyond, into the reserved range",
            reserved.start - 8,
            16,
        ),
        ("the last bytes of all", u64::MAX - 7, 8),
        ("an address that wraps", u64::MAX, 4096),
        ("the kernel's half", 0xffff_8000_0000_0000, 4096),
        ("the first page behind user space", 0x7fff_ffff_f000, 4096),
    ] {
        let attempt = tries(format!("have a buffer placed at {where_to}"));
        let out = region(address, length, WireDirection::Out, 0);
        let (result, _) = converted.ask(getcwd, [address, length, 0, 0, 0, 0], vec![out], &[]);
        assert_eq!(result, EFAULT, "{address:#x}");
        let data = vec![b'x'; usize::try_from(length).expect("small")];
        let region_in = region(address, length, WireDirection::In, length);
        let args = [1, address, length, 0, 0, 0];
        let (result, _) = converted.ask(write, args, vec![region_in], &data);
        assert_eq!(result, EFAULT, "{address:#x}");
        attempt.failed("EFAULT, for output and input");
    }
    converted.comes_home_unharmed();
}

/// A page that was not placed is a fault at once, and home's kernel does not wait for it. (These calls hold
/// no lock: otherwise a kernel that waited would keep this test from its end.)
#[test]
fn what_was_not_placed_is_a_fault_at_once() {
    let mut converted = convert_program(Program::python());
    let page = 0x7000_0000_0000;
    let attempt = tries("name no buffer, so that home's kernel waits for it");
    for (call, args) in [
        (libc::SYS_getcwd, [page, 4096, 0, 0, 0, 0]),
        (libc::SYS_uname, [page, 0, 0, 0, 0, 0]),
        (libc::SYS_sysinfo, [page, 0, 0, 0, 0, 0]),
    ] {
        let (result, _) = converted.ask(call.cast_unsigned(), args, vec![], &[]);
        assert_eq!(result, EFAULT, "call {call}");
    }
    attempt.failed("EFAULT at once");
    converted.comes_home_unharmed();
}

/// The kernel reads and writes where the arguments say, whether or not a region was named: it finds
/// neither the loop that executes calls nor what it is to execute next.
#[test]
fn what_a_deputy_executes_cannot_be_overwritten() {
    let mut converted = convert_program(Program::python());
    let reserved = converted.original.reserved;
    let pipe = 0x7000_0000_0000;
    let fds = region(pipe, 8, WireDirection::Out, 0);
    let (made, bytes) = converted.ask(
        libc::SYS_pipe2.cast_unsigned(),
        [pipe, 0, 0, 0, 0, 0],
        vec![fds],
        &[],
    );
    assert_eq!(made, 0);
    let fd = |at: usize| u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], 0, 0]));
    let (reader, writer) = (fd(0), fd(4));
    // execve, as an operation of the deputy.
    let mut evil = vec![0u8; 4096];
    evil[..8].copy_from_slice(&59u64.to_le_bytes());
    for (what, address) in [
        ("the page of requests", reserved.start),
        ("the page of operations", reserved.start + 4096),
        ("an operation", reserved.start + 4096 + 64),
    ] {
        let attempt = tries(format!("have read() write execve into {what}"));
        let data = region(pipe, 4096, WireDirection::In, 4096);
        let args = [writer, pipe, 4096, 0, 0, 0];
        let write = libc::SYS_write.cast_unsigned();
        assert_eq!(converted.ask(write, args, vec![data], &evil).0, 4096);
        let args = [reader, address, 64, 0, 0, 0];
        let read = libc::SYS_read.cast_unsigned();
        assert_eq!(
            converted.ask(read, args, vec![], &[]).0,
            EFAULT,
            "{address:#x}"
        );
        let args = [reader, pipe, 4096, 0, 0, 0];
        let back = region(pipe, 4096, WireDirection::Out, 0);
        assert_eq!(converted.ask(read, args, vec![back], &[]).0, 4096);
        attempt.failed("EFAULT; the data is still in the pipe");
    }
    // Nor can it be overwritten through the file that writes to memory whatever its protection.
    let memory = open_own_memory(&mut converted);
    let attempt = tries("overwrite what the deputy executes through /proc/self/mem");
    for address in [reserved.start, reserved.start + 4096 + 64] {
        let data = region(pipe, 64, WireDirection::In, 64);
        let args = [memory.cast_unsigned(), pipe, 64, address, 0, 0];
        let pwrite = libc::SYS_pwrite64.cast_unsigned();
        let (result, _) = converted.ask(pwrite, args, vec![data], &evil[..64]);
        assert!(result < 0, "{address:#x}: {result}");
    }
    attempt.failed("an error from pwrite64, and it goes on unharmed");
    for fd in [reader, writer, memory.cast_unsigned()] {
        converted.ask(
            libc::SYS_close.cast_unsigned(),
            [fd, 0, 0, 0, 0, 0],
            vec![],
            &[],
        );
    }
    converted.comes_home_unharmed();
}

/// A host is given no such descriptor; this is one that the program would have had before.
fn open_own_memory(converted: &mut Converted) -> i64 {
    let tid = converted.tid();
    let deputy = &mut converted.server.deputy;
    let path = deputy.address(deputy.deck().data_offset());
    deputy.deck().write_data(0, b"/proc/self/mem\0");
    let here = libc::AT_FDCWD.cast_unsigned().into();
    let open = Syscall::new(libc::SYS_openat, &[here, path, 2]);
    let seat = deputy.seat_of(OwnTid::named(tid)).expect("its thread");
    let opened = deputy.run(seat, &[open]).expect("run")[0];
    assert!(opened > 0, "{opened}");
    opened
}

/// A request that is sent again is answered from what is kept; one that is older is not answered.
#[test]
fn nothing_is_executed_twice() {
    let mut converted = convert_program(Program::python());
    let buffer = 0x7000_0000_0000;
    let request = CallRequest {
        tid: converted.tid(),
        sequence: 100,
        number: libc::SYS_write.cast_unsigned(),
        args: [1, buffer, 5, 0, 0, 0],
        regions: vec![region(buffer, 5, WireDirection::In, 5)],
        ..CallRequest::default()
    };
    let attempt = tries("have a call executed again by sending it again");
    for _ in 0..3 {
        let (written, _) = ask_with(&mut converted.server, request.clone(), b"once\n");
        assert_eq!(written, 5);
    }
    assert_eq!(converted.program.line(), "once");
    attempt.failed("answered from what is kept");
    let attempt = tries("have an older call executed");
    let older = CallRequest {
        sequence: 99,
        ..request
    };
    converted
        .server
        .call(older, b"once\n")
        .expect("passed over");
    assert!(converted.server.outgoing.is_empty());
    attempt.failed("passed over, no answer");
    converted.next_sequence(200);
    converted.comes_home_unharmed();
}

/// The signals that home's kernel ignores for a process.
fn ignored(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(line.expect("a set").trim(), 16).expect("a number")
}

/// The same holds for requests beside calls, which a guest of ours never sends again.
#[test]
fn nothing_beside_calls_is_done_twice() {
    let mut converted = convert_program(Program::python());
    let (tid, usr1) = (converted.tid(), libc::SIGUSR1);
    let server = &mut converted.server;
    let signal = u8::try_from(usr1).expect("small");
    let is_ignored = || ignored(tid) & (1 << (usr1 - 1)) != 0;
    server
        .disposition(tid, 100, signal, Disposition::Ignore, 0)
        .expect("done");
    assert_eq!(server.outgoing.drain(..).count(), 1);
    assert!(is_ignored());
    for sequence in [100, 99, 0] {
        server
            .disposition(tid, sequence, signal, Disposition::Default, 0)
            .expect("passed over");
        server.thread_exit(tid, sequence, 0).expect("passed over");
        let mapping = FileMapping {
            tid,
            sequence,
            length: 4096,
            protection: 1,
            flags: 0,
            fd: 0,
            offset: 0,
        };
        server.map_file(&mapping).expect("passed over");
        assert!(server.outgoing.is_empty(), "{sequence}");
        assert!(is_ignored(), "{sequence}");
    }
    server
        .disposition(tid, 101, signal, Disposition::Default, 0)
        .expect("done");
    assert_eq!(server.outgoing.drain(..).count(), 1);
    assert!(!is_ignored());
    converted.comes_home_unharmed();
}

/// A thread that waits in a call asks for nothing else.
#[test]
fn a_thread_does_one_thing_at_a_time() {
    let converted = &mut convert_program(Program::python());
    let tid = converted.tid();
    let read = CallRequest {
        tid,
        sequence: 1,
        number: libc::SYS_read.cast_unsigned(),
        args: [0, 0x7000_0000_0000, 1, 0, 0, 0],
        may_block: true,
        regions: vec![region(0x7000_0000_0000, 1, WireDirection::Out, 0)],
        ..CallRequest::default()
    };
    let server = &mut converted.server;
    server.call(read.clone(), &[]).expect("it waits");
    // Sent again, as after a connection that broke; the call goes on waiting.
    server.call(read.clone(), &[]).expect("passed over");
    let next = CallRequest {
        sequence: 2,
        ..read
    };
    let mapping = FileMapping {
        tid,
        sequence: 2,
        length: 4096,
        protection: 1,
        flags: 0,
        fd: 0,
        offset: 0,
    };
    let ignore = Disposition::Ignore;
    for result in [
        server.call(next, &[]),
        server.map_file(&mapping),
        server.disposition(tid, 2, 10, ignore, 0),
        server.new_thread(tid, 2, 0),
        server.thread_exit(tid, 2, 0),
    ] {
        let error = result.expect_err("too much");
        assert!(matches!(error, ServeError::Overlap(_)), "{error}");
    }
    assert!(server.outgoing.is_empty());
}

/// What breaks the protocol ends the journey, with an error and before anything is executed.
#[test]
fn broken_requests_are_errors() {
    let converted = &mut convert_program(Program::python());
    let good = CallRequest {
        tid: converted.tid(),
        sequence: 1,
        number: libc::SYS_getppid.cast_unsigned(),
        args: [0; 6],
        regions: vec![],
        ..CallRequest::default()
    };
    let attempt = tries("have a thread act that is none of the process's");
    let stranger = CallRequest {
        tid: 1,
        ..good.clone()
    };
    let error = converted
        .server
        .call(stranger, &[])
        .expect_err("a stranger");
    assert!(matches!(error, ServeError::UnknownThread(1)), "{error}");
    attempt.failed(error);
    let many = CallRequest {
        regions: vec![region(0, 0, WireDirection::In, 0); 5000],
        ..good.clone()
    };
    let long = CallRequest {
        regions: vec![region(0x7000_0000_0000, 1 << 62, WireDirection::Out, 0)],
        ..good.clone()
    };
    let wraps = CallRequest {
        regions: vec![region(0x7000_0000_0000, 8, WireDirection::In, u64::MAX); 2],
        ..good.clone()
    };
    let more_data = CallRequest {
        regions: vec![region(0x7000_0000_0000, 8, WireDirection::In, 9)],
        ..good.clone()
    };
    // Data that was not announced.
    let unannounced = good;
    for (what, bad) in [
        ("more buffers than a call can have", many),
        ("a buffer of 2^62 bytes", long),
        ("lengths whose sum wraps", wraps),
        ("more data than the buffer holds", more_data),
        ("data for no buffer", unannounced),
    ] {
        let attempt = tries(format!("send a call with {what}"));
        let tail = vec![0; 9];
        let error = converted.server.call(bad, &tail).expect_err("broken");
        assert!(matches!(error, ServeError::Protocol(_)), "{error}");
        attempt.failed(error);
    }
    assert!(converted.server.outgoing.is_empty());
}

fn anonymous(start: u64, end: u64) -> Mapping {
    Mapping {
        start,
        end,
        protection: Protection(3),
        flags: MappingFlags::default(),
        backing: Backing::Anonymous,
    }
}

/// Mappings that no returning image may have.
fn false_mappings(original: &Original) -> [(&'static str, Vec<Mapping>); 10] {
    let reserved = original.reserved;
    let vdso = original.kernel.first().copied().expect("a vDSO");
    let file = |offset| Mapping {
        backing: Backing::File {
            id: whim_model::MappingId(60_000),
            offset,
        },
        ..anonymous(0x10_0000, 0x20_0000)
    };
    let many = vec![anonymous(0x1000, 0x2000); (1 << 18) + 1];
    [
        (
            "a mapping over the page of requests",
            vec![anonymous(reserved.start, reserved.start + 4096)],
        ),
        (
            "a mapping into the reserved range",
            vec![anonymous(reserved.start - 4096, reserved.start + 4096)],
        ),
        (
            "a mapping in place of home's vDSO",
            vec![anonymous(vdso.start, vdso.end)],
        ),
        (
            "a mapping of parts of pages",
            vec![anonymous(0x1001, 0x2001)],
        ),
        (
            "a mapping that ends before it begins",
            vec![anonymous(0x3000, 0x2000)],
        ),
        (
            "mappings that overlap",
            vec![anonymous(0x2000, 0x4000), anonymous(0x3000, 0x5000)],
        ),
        (
            "a mapping beyond user space",
            vec![anonymous(0x2000, 1 << 62)],
        ),
        ("a mapping of a file that is not mapped", vec![file(0)]),
        (
            "a mapping at an offset that wraps",
            vec![file(u64::MAX - 4095)],
        ),
        ("more mappings than a process can have", many),
    ]
}

/// A returning image is checked for all that could be turned against home's supervisor.
#[test]
fn a_returning_image_is_checked() {
    let converted = convert_program(Program::python());
    let (original, image) = (&converted.original, &converted.captured.image);
    let server = &converted.server;
    let reserved = original.reserved;
    homeward::check_image(image, original, server).expect("the true one is sound");
    for (what, mappings) in false_mappings(original) {
        let attempt = tries(format!("return with {what}"));
        let mut lie = image.clone();
        lie.mappings = mappings;
        let first = lie.mappings[0].clone();
        let found = homeward::check_image(&lie, original, server);
        attempt.failed(found.expect_err(&format!("{first:x?}")));
    }
    let mut thread = image.clone();
    thread.threads[0].tid = 1;
    let mut twice = image.clone();
    twice.threads.push(twice.threads[0].clone());
    let mut nobody = image.clone();
    nobody.threads.clear();
    let mut action = image.clone();
    action.actions.pop();
    let mut guard = image.clone();
    guard.guards = vec![Range {
        start: reserved.start,
        end: reserved.start + 4096,
    }];
    for (what, lie) in [
        ("a thread that is none of the process's", thread),
        ("a thread that is there twice", twice),
        ("no thread", nobody),
        ("an action too few", action),
        ("guard pages in the reserved range", guard),
    ] {
        let attempt = tries(format!("return with {what}"));
        let found = homeward::check_image(&lie, original, server);
        attempt.failed(found.expect_err(what));
    }
    converted.comes_home_unharmed();
}

#[test]
fn pages_of_files_are_served_within_them_only() {
    let mut converted = convert_program(Program::python());
    let image = &converted.captured.image;
    let mut ids = image
        .mappings
        .iter()
        .filter_map(|mapping| match mapping.backing {
            Backing::File { id, .. } => Some((id, mapping.len())),
            _ => None,
        });
    let (id, length) = ids.next_back().expect("a file is mapped");
    let server = &mut converted.server;
    let mut ask = |mapping, offset, length| {
        server.pages(whim_journey::message::PageRequest {
            request: 1,
            mapping,
            offset,
            length,
        })
    };
    assert!(ask(id, 0, 4096).is_ok());
    for (what, mapping, offset, length) in [
        (
            "of a file that is not mapped",
            whim_model::MappingId(60_000),
            0,
            4096,
        ),
        ("behind the mapping", id, length, 4096),
        ("at an offset that wraps", id, u64::MAX - 4095, 4096),
        (
            "just below the end of all offsets",
            id,
            u64::MAX - 8191,
            4096,
        ),
        ("far behind the mapping", id, 1 << 62, 4096),
        ("of 4 GiB at once", id, 0, u32::MAX),
    ] {
        let attempt = tries(format!("ask for pages {what}"));
        let error = ask(mapping, offset, length).expect_err(what);
        attempt.failed(error);
    }
    let attempt = tries("map a file of a length that wraps");
    let mapping = FileMapping {
        tid: converted.tid(),
        sequence: 1,
        length: u64::MAX,
        protection: 1,
        flags: 0,
        fd: 0,
        offset: 0,
    };
    converted.server.map_file(&mapping).expect("answered");
    let answer = converted.server.outgoing.pop().expect("an answer");
    let ToGuest::Reply { result, .. } = answer.message else {
        panic!("{answer:?}");
    };
    assert_eq!(result, -i64::from(libc::ENOMEM));
    attempt.failed("ENOMEM");
    converted.comes_home_unharmed();
}

/// A host that asks for threads gets threads of that process, once each and up to a number, whatever
/// it says they shall be; and the process comes home with those that are left.
#[test]
fn threads_are_made_of_the_process_alone() {
    let mut converted = convert_program(Program::python());
    let tid = converted.tid();
    let pid = converted.server.deputy.pid();
    let count = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        tasks.expect("it lives").count()
    };
    let before = count();
    let made = |outgoing: &Outgoing| match outgoing.message {
        ToGuest::Reply { result, .. } => result,
        ref other => panic!("{other:?}"),
    };
    let attempt = tries("ask for a thread with every flag of clone");
    let server = &mut converted.server;
    server.new_thread(tid, 1, u64::MAX).expect("a plain one");
    let first = i32::try_from(made(&server.outgoing[0])).expect("a number");
    assert_eq!(count(), before + 1);
    let spaces = |tid: i32| {
        let directory = format!("/proc/{pid}/task/{tid}/ns");
        ["pid", "user", "mnt", "net"].map(|space| {
            let link = std::fs::read_link(format!("{directory}/{space}"));
            link.expect("a namespace")
        })
    };
    assert_eq!(spaces(first), spaces(tid));
    attempt.failed("a thread of the process, in its namespaces");
    server.new_thread(tid, 1, 0).expect("passed over");
    assert_eq!(count(), before + 1, "once is once");
    let attempt = tries("ask for threads without end");
    let mut numbers = vec![first];
    for sequence in 2.. {
        server
            .new_thread(tid, sequence, 0)
            .expect("made or refused");
        let result = made(server.outgoing.last().expect("an answer"));
        if result < 0 {
            assert_eq!(result, -i64::from(libc::EAGAIN));
            break;
        }
        numbers.push(i32::try_from(result).expect("a number"));
        assert!(numbers.len() <= SPARE_THREADS);
    }
    assert_eq!(numbers.len(), SPARE_THREADS);
    attempt.failed("no place for another thread");
    for number in &numbers {
        server.thread_exit(*number, 1, 0).expect("it ends");
    }
    assert_eq!(count(), before);
    server.outgoing.clear();
    converted.comes_home_unharmed();
}
