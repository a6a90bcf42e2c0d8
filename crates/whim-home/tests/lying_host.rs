//! A host that lies: what it may have a deputy do, and what not. The program is a real one, converted
//! as for a journey; the host is this test, which sends what no guest's supervisor would send.
#![forbid(unsafe_code)]

mod support;

use support::{Program, ask_with, convert_program};
use whim_home::homeward;
use whim_home::server::{ServeError, Server};
use whim_image::model::{Backing, Mapping, MappingFlags, Protection, Range};
use whim_journey::message::{CallRequest, WireDirection, WireRegion, WireReturned};

const EPERM: i64 = -1;
const EFAULT: i64 = -14;
/// Far above every number that a kernel has given out.
const NUMBERS: u64 = 1024;
/// Calls that would change what runs, look into others, or change the machine.
const NEVER: [&str; 40] = [
    "execve",
    "execveat",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "mount",
    "umount2",
    "pivot_root",
    "move_mount",
    "fsopen",
    "open_tree",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "reboot",
    "swapon",
    "swapoff",
    "setns",
    "unshare",
    "clone",
    "clone3",
    "fork",
    "vfork",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "seccomp",
    "mmap",
    "mprotect",
    "munmap",
    "mremap",
    "shmat",
    "process_madvise",
];

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
    for name in NEVER {
        let number = number_of(name);
        assert!(!whim_calls::home_may_execute(number), "{name}");
    }
    let mut converted = convert_program(Program::python());
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
    converted.comes_home_unharmed();
}

/// A number with something in its upper half is not the call that the kernel would make of it.
#[test]
fn the_upper_half_of_a_number_is_looked_at() {
    let mut converted = convert_program(Program::python());
    let getppid = libc::SYS_getppid.cast_unsigned();
    assert!(converted.ask(getppid, [0; 6], vec![], &[]).0 > 0);
    let (result, _) = converted.ask(getppid | 1 << 32, [0; 6], vec![], &[]);
    assert_eq!(result, EPERM);
    converted.comes_home_unharmed();
}

/// No buffer is placed outside of the window, wherever it is said to be.
#[test]
fn buffers_outside_of_the_window_are_faults() {
    let mut converted = convert_program(Program::python());
    let reserved = converted.original.reserved;
    let getcwd = libc::SYS_getcwd.cast_unsigned();
    let write = libc::SYS_write.cast_unsigned();
    for (address, length) in [
        (reserved.start, 4096),
        (reserved.start + 4096, 8),
        (reserved.end - 1, 1),
        (reserved.start - 8, 16),
        (u64::MAX - 7, 8),
        (u64::MAX, 4096),
        (0xffff_8000_0000_0000, 4096),
        (0x7fff_ffff_f000, 4096),
    ] {
        let out = region(address, length, WireDirection::Out, 0);
        let (result, _) = converted.ask(getcwd, [address, length, 0, 0, 0, 0], vec![out], &[]);
        assert_eq!(result, EFAULT, "{address:#x}");
        let data = vec![b'x'; usize::try_from(length).expect("small")];
        let region_in = region(address, length, WireDirection::In, length);
        let args = [1, address, length, 0, 0, 0];
        let (result, _) = converted.ask(write, args, vec![region_in], &data);
        assert_eq!(result, EFAULT, "{address:#x}");
    }
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
    for address in [
        reserved.start,
        reserved.start + 4096,
        reserved.start + 4096 + 64,
    ] {
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
    }
    // Nor through the file that writes to memory whatever its protection.
    let path = b"/proc/self/mem\0";
    let name = region(
        pipe,
        path.len() as u64,
        WireDirection::In,
        path.len() as u64,
    );
    let open = [libc::AT_FDCWD.cast_unsigned().into(), pipe, 2, 0, 0, 0];
    let openat = libc::SYS_openat.cast_unsigned();
    let (memory, _) = converted.ask(openat, open, vec![name], path);
    assert!(memory > 0, "{memory}");
    for address in [reserved.start, reserved.start + 4096 + 64] {
        let data = region(pipe, 64, WireDirection::In, 64);
        let args = [memory.cast_unsigned(), pipe, 64, address, 0, 0];
        let pwrite = libc::SYS_pwrite64.cast_unsigned();
        let (result, _) = converted.ask(pwrite, args, vec![data], &evil[..64]);
        assert!(result < 0, "{address:#x}: {result}");
    }
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
        may_block: false,
        masked: 0,
        regions: vec![region(buffer, 5, WireDirection::In, 5)],
    };
    for _ in 0..3 {
        let (written, _) = ask_with(&mut converted.server, request.clone(), b"once\n");
        assert_eq!(written, 5);
    }
    assert_eq!(converted.program.line(), "once");
    let older = CallRequest {
        sequence: 99,
        ..request
    };
    converted
        .server
        .call(older, b"once\n")
        .expect("passed over");
    assert!(converted.server.outgoing.is_empty());
    converted.next_sequence(200);
    converted.comes_home_unharmed();
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
        may_block: false,
        masked: 0,
        regions: vec![],
    };
    let stranger = CallRequest {
        tid: 1,
        ..good.clone()
    };
    let error = converted
        .server
        .call(stranger, &[])
        .expect_err("a stranger");
    assert!(matches!(error, ServeError::UnknownThread(1)), "{error}");
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
    for bad in [many, long, wraps, more_data] {
        let tail = vec![0; 9];
        let error = converted.server.call(bad, &tail).expect_err("broken");
        assert!(matches!(error, ServeError::Protocol(_)), "{error}");
    }
    // Data that was not announced.
    let error = converted.server.call(good, b"more").expect_err("a tail");
    assert!(matches!(error, ServeError::Protocol(_)), "{error}");
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

/// A returning image is checked for all that could be turned against home's supervisor.
#[test]
fn a_returning_image_is_checked() {
    let converted = convert_program(Program::python());
    let (original, image) = (&converted.original, &converted.captured.image);
    let attic = &converted.server.attic;
    let reserved = original.reserved;
    homeward::check_image(image, original, attic).expect("the true one is sound");
    let vdso = original.kernel.first().copied().expect("a vDSO");
    let file = |offset| Mapping {
        backing: Backing::File {
            id: whim_image::model::MappingId(60_000),
            offset,
        },
        ..anonymous(0x10_0000, 0x20_0000)
    };
    let bad = [
        vec![anonymous(reserved.start, reserved.start + 4096)],
        vec![anonymous(reserved.start - 4096, reserved.start + 4096)],
        vec![anonymous(vdso.start, vdso.end)],
        vec![anonymous(0x1001, 0x2001)],
        vec![anonymous(0x3000, 0x2000)],
        vec![anonymous(0x2000, 0x4000), anonymous(0x3000, 0x5000)],
        vec![anonymous(0x2000, 1 << 62)],
        vec![file(0)],
        vec![file(u64::MAX - 4095)],
        vec![anonymous(0x1000, 0x2000); (1 << 18) + 1],
    ];
    for mappings in bad {
        let mut lie = image.clone();
        lie.mappings = mappings;
        let first = lie.mappings[0].clone();
        let found = homeward::check_image(&lie, original, attic);
        assert!(found.is_err(), "{first:x?}");
    }
    let mut lie = image.clone();
    lie.threads[0].tid = 1;
    assert!(homeward::check_image(&lie, original, attic).is_err());
    let mut lie = image.clone();
    lie.actions.pop();
    assert!(homeward::check_image(&lie, original, attic).is_err());
    let mut lie = image.clone();
    lie.guards = vec![Range {
        start: reserved.start,
        end: reserved.start + 4096,
    }];
    assert!(homeward::check_image(&lie, original, attic).is_err());
    converted.comes_home_unharmed();
}

#[test]
fn pages_of_files_are_served_within_them_only() {
    let converted = convert_program(Program::python());
    let image = &converted.captured.image;
    let mut ids = image
        .mappings
        .iter()
        .filter_map(|mapping| match mapping.backing {
            Backing::File { id, .. } => Some((id, mapping.len())),
            _ => None,
        });
    let (id, length) = ids.next_back().expect("a file is mapped");
    let server: &Server = &converted.server;
    let ask = |mapping, offset, length| {
        server.pages(whim_journey::message::PageRequest {
            request: 1,
            mapping,
            offset,
            length,
        })
    };
    assert!(ask(id, 0, 4096).is_ok());
    assert!(ask(whim_image::model::MappingId(60_000), 0, 4096).is_err());
    for (offset, length) in [
        (length, 4096),
        (u64::MAX - 4095, 4096),
        (1 << 62, 4096),
        (0, u32::MAX),
    ] {
        let pages = ask(id, offset, length);
        assert!(pages.is_err(), "{offset:#x}");
    }
    converted.comes_home_unharmed();
}
