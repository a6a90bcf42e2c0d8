//! A process that never ran anywhere is rebuilt from a hand-made image, in a real sandbox.
//!
//! No test harness: a sandbox can only be made by a process without threads.
#![forbid(unsafe_code)]

#[path = "support/image.rs"]
mod image;

use image::{CODE, DATA, FILE, PROGRAM, image, kernel_mappings};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use whim_attempts::{Attempt, Party};
use whim_guest::sandbox::{GuestRequest, Sandbox};
use whim_image::rebuild::is_kernel_name;
use whim_image::rebuild::runner::{Arguments, Runner};
use whim_model::Syscall;
use whim_model::{Backing, ProcessImage, Range};
use whim_sys::process_vm;
use whim_sys::procmap::Maps;
use whim_sys::ptrace::{Polled, Stopped, TraceError, Waited};
use whim_sys::seccomp::{Delivered, Response};
use whim_sys::uffd::{Event, Placed};

fn filter(reserved: Range) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in whim_calls::guest_filter(&whim_calls::Places {
        reserved: (reserved.start, reserved.end),
        ..whim_calls::Places::default()
    }) {
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
    let mapped = blank.map(&image, &uffd, true).expect("map");
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
    let last = listener.receive().expect("receive").expect("a call");
    drop(sandbox);
    // The kernel reports the end of a leader after that of all its threads.
    for one in running.into_iter().rev() {
        let end = one.wait();
        // The last thread of a namespace's first process ends when all others have been reaped: who waits for
        // one of them sees to that.
        let reaped = pid == 1 && matches!(end, Err(TraceError::Died));
        assert!(reaped || matches!(end, Ok(Waited::Signaled { signal: 9, .. })));
    }
    // Nobody is there any more to be answered, and that is no error.
    let answer = listener.respond(last.id, Response::Result(4711));
    assert_eq!(answer.expect("respond"), Delivered::Gone);
}

fn serve_one_fault(uffd: &whim_sys::uffd::Uffd) {
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
            write: false,
            protected: false
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
    assert_eq!(field("SigBlk:"), "0000000000000a00");
    assert_eq!(field("ShdPnd:"), "0000000000000200");
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks") {
        let path = task.expect("a task").path().join("status");
        let status = std::fs::read_to_string(path).expect("status");
        assert!(status.contains("SigPnd:\t0000000000000800"), "{status}");
    }
    assert_eq!(field("SigCgt:"), "0000000000000200");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("fd")
        .count();
    assert_eq!(descriptors, 0);
}

/// A guest without a filter, stopped, with a runner for its calls.
fn unfiltered(program: &[u8]) -> (Sandbox, Runner, Stopped) {
    let mut sandbox = Sandbox::prepare().expect("prepare");
    sandbox.enter(Some(70_010), &[]).expect("enter");
    whim_sys::credentials::become_identity(70_010, 70_010, &[], &[]).expect("become");
    let request = GuestRequest {
        pid: 4000,
        monotonic_ns: 0,
        boottime_ns: 0,
    };
    let (blank, uffd) = sandbox.make_guest(request).expect("guest");
    let image = image(4000, 1);
    let mapped = blank.map(&image, &uffd, true).expect("map");
    let mut rebuilt = mapped.complete(&image, program).expect("complete");
    // Kept: with its last copy the filter would answer every report with ENOSYS.
    std::mem::forget(rebuilt.listener);
    std::mem::forget(uffd);
    let leader = rebuilt.threads.remove(0).stopped;
    (sandbox, rebuilt.runner, leader)
}

/// Lets everything through but `close`, which the rebuild itself waits for.
const ALLOW_ALL: [[u8; 8]; 4] = [
    [0x20, 0, 0, 0, 0, 0, 0, 0],
    [0x15, 0, 0, 1, 3, 0, 0, 0],
    [0x06, 0, 0, 0, 0, 0, 0xc0, 0x7f],
    [0x06, 0, 0, 0, 0, 0, 0xff, 0x7f],
];

/// What is tried, and the results that are right.
struct Try {
    what: &'static str,
    operation: Syscall,
    right: Vec<i32>,
}

/// `right`: results as the kernel gives them, errnos negative.
fn attempt(what: &'static str, number: i64, args: &[u64], right: &[i32]) -> Try {
    Try {
        what,
        operation: Syscall::new(number, args),
        right: right.to_vec(),
    }
}

const NO: i32 = -libc::EPERM;
/// Of what this kernel was built without.
const NONE: i32 = -libc::ENOSYS;
const ABSENT: i32 = -libc::ENOENT;
const READ_ONLY: i32 = -libc::EROFS;
const INVALID: i32 = -libc::EINVAL;

fn tries_on_files(arguments: &mut Arguments) -> Vec<Try> {
    use libc::{SYS_mkdir, SYS_mknod, SYS_open};
    let mut path = |text: &str| arguments.add(format!("{text}\0").as_bytes());
    let new = path("/new");
    vec![
        attempt(
            "open /etc/whim-node",
            SYS_open,
            &[path("/etc/whim-node"), 0],
            &[ABSENT],
        ),
        attempt(
            "open /etc/passwd",
            SYS_open,
            &[path("/etc/passwd"), 0],
            &[ABSENT],
        ),
        attempt(
            "open /proc/self",
            SYS_open,
            &[path("/proc/self/status"), 0],
            &[ABSENT],
        ),
        attempt(
            "open above /",
            SYS_open,
            &[path("/../../etc/passwd"), 0],
            &[ABSENT],
        ),
        attempt(
            "open /dev/null",
            SYS_open,
            &[path("/dev/null"), 2],
            &[ABSENT],
        ),
        attempt("create /new", SYS_open, &[new, 0o102, 0o600], &[READ_ONLY]),
        attempt("mkdir /new", SYS_mkdir, &[new, 0o700], &[READ_ONLY]),
        attempt(
            "mknod /new",
            SYS_mknod,
            &[new, 0o020_600, 0x103],
            &[READ_ONLY, NO],
        ),
    ]
}

fn tries_on_the_network(arguments: &mut Arguments, port: u16, name: &str) -> Vec<Try> {
    use libc::{SYS_connect, SYS_socket};
    let mut inet = vec![2u8, 0];
    inet.extend_from_slice(&port.to_be_bytes());
    inet.extend_from_slice(&[127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let inet = arguments.add(&inet);
    let mut unix = vec![1u8, 0, 0];
    unix.extend_from_slice(name.as_bytes());
    let length = unix.len() as u64;
    let unix = arguments.add(&unix);
    let (unreachable, refused) = (-libc::ENETUNREACH, -libc::ECONNREFUSED);
    vec![
        attempt("socket", SYS_socket, &[2, 1, 0], &[0]),
        attempt(
            "connect to the host",
            SYS_connect,
            &[0, inet, 16],
            &[unreachable],
        ),
        attempt("unix socket", SYS_socket, &[1, 1, 0], &[1]),
        attempt(
            "connect to a socket",
            SYS_connect,
            &[1, unix, length],
            &[refused],
        ),
        attempt("raw socket", SYS_socket, &[2, 3, 1], &[NO]),
        attempt("packet socket", SYS_socket, &[17, 3, 0], &[NO]),
    ]
}

fn tries_for_rights(arguments: &mut Arguments) -> Vec<Try> {
    let root = arguments.add(b"/\0");
    let tmpfs = arguments.add(b"tmpfs\0");
    let zeros = arguments.add(&[0; 512]);
    let host = u64::from(std::process::id());
    let restart = [0xfee1_dead, 672_274_793, 0, 0];
    vec![
        attempt("mount", libc::SYS_mount, &[tmpfs, root, tmpfs, 0, 0], &[NO]),
        attempt("umount", libc::SYS_umount2, &[root, 2], &[NO]),
        attempt("pivot_root", libc::SYS_pivot_root, &[root, root], &[NO]),
        attempt("chroot", libc::SYS_chroot, &[root], &[NO]),
        attempt("sethostname", libc::SYS_sethostname, &[root, 1], &[NO]),
        attempt("setuid 0", libc::SYS_setuid, &[0], &[NO, INVALID]),
        attempt("setgid 0", libc::SYS_setgid, &[0], &[NO, INVALID]),
        attempt("trace init", libc::SYS_ptrace, &[16, 1, 0, 0], &[NO]),
        attempt("seize init", libc::SYS_ptrace, &[0x4206, 1, 0, 0], &[NO]),
        attempt(
            "signal the host",
            libc::SYS_kill,
            &[host, 0],
            &[-libc::ESRCH],
        ),
        attempt("reboot", libc::SYS_reboot, &restart, &[NO]),
        attempt("set the clock", libc::SYS_clock_settime, &[0, zeros], &[NO]),
        attempt(
            "load a module",
            libc::SYS_init_module,
            &[0, 0, root],
            &[NO, NONE],
        ),
        attempt("kexec", libc::SYS_kexec_load, &[0, 0, 0, 0], &[NO, NONE]),
        attempt("bpf", libc::SYS_bpf, &[5, zeros, 16], &[NO, NONE]),
        attempt("swapon", libc::SYS_swapon, &[root, 0], &[NO, NONE]),
        attempt(
            "real time",
            libc::SYS_sched_setscheduler,
            &[0, 1, zeros],
            &[NO, INVALID],
        ),
        attempt("setns", libc::SYS_setns, &[0, 0], &[NO, INVALID]),
        attempt("iopl", libc::SYS_iopl, &[3], &[NO, NONE]),
        attempt("syslog", libc::SYS_syslog, &[3, zeros, 512], &[NO, NONE]),
    ]
}

/// Whatever a guest tries, even if its filter let everything through: there is nothing to reach.
fn escapes_without_a_filter() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = tcp.local_addr().expect("address").port();
    let name = format!("whim-escape-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _unix = UnixListener::bind_addr(&address).expect("listen");
    let (sandbox, runner, leader) = unfiltered(ALLOW_ALL.as_flattened());
    let mut arguments = runner.arguments();
    let mut tries = tries_on_the_network(&mut arguments, port, &name);
    tries.extend(tries_on_files(&mut arguments));
    tries.extend(tries_for_rights(&mut arguments));
    let root = arguments.add(b"/\0");
    let out = arguments.add(&[0; 512]);
    runner.store(&arguments).expect("store");
    let list: Vec<Syscall> = tries.iter().map(|each| each.operation).collect();
    let (leader, results) = runner.run(leader, &list).expect("run");
    for (each, result) in tries.iter().zip(&results) {
        println!("  {}: {result}", each.what);
        let what = format!("without its filter: {}", each.what);
        let attempt = Attempt::new(Party::Guest, what);
        let right = each.right.iter().any(|right| i64::from(*right) == *result);
        assert!(right, "{}: {result}, expected {:?}", each.what, each.right);
        // To make a socket of its own, empty network is no attempt.
        if *result < 0 {
            let errno = i32::try_from(-result).expect("an errno");
            attempt.failed(nix::errno::Errno::from_raw(errno));
        } else {
            attempt.none();
        }
    }
    // The root directory holds nothing but itself.
    let attempt = Attempt::new(Party::Guest, "without its filter: list the root directory");
    let list = [
        Syscall::new(libc::SYS_open, &[root, 0o200_000]),
        Syscall::new(libc::SYS_getdents64, &[2, out, 512]),
        Syscall::new(libc::SYS_uname, &[out]),
    ];
    let (_, results) = runner.run(leader, &list).expect("run");
    assert_eq!(results, [2, 48, 0], "two entries of 24 bytes");
    attempt.failed("it is empty");
    let attempt = Attempt::new(Party::Guest, "without its filter: learn the host's name");
    let mut uname = [0; 130];
    process_vm::read_exact(runner.pid, out, &mut uname).expect("read");
    assert!(uname[65..].starts_with(b"guest\0"));
    attempt.failed("it is called guest");
    drop(sandbox);
}

/// Every number that is not local is reported, whatever its arguments, and so are those that no
/// kernel knows.
fn every_number_is_local_or_reported() {
    let reserved = image(4000, 1).reserved;
    let mut sandbox = Sandbox::prepare().expect("prepare");
    sandbox.enter(Some(70_011), &[]).expect("enter");
    whim_sys::credentials::become_identity(70_011, 70_011, &[], &[]).expect("become");
    let request = GuestRequest {
        pid: 4000,
        monotonic_ns: 0,
        boottime_ns: 0,
    };
    let (blank, uffd) = sandbox.make_guest(request).expect("guest");
    let image = image(4000, 1);
    let mapped = blank.map(&image, &uffd, true).expect("map");
    let mut rebuilt = mapped
        .complete(&image, &filter(reserved))
        .expect("complete");
    let runner = rebuilt.runner;
    let local = |number: u64| {
        whim_calls::row(number).is_some_and(|row| row.class() == whim_calls::CallClass::Local)
    };
    // uretprobe and uprobe: the kernel shows them to no filter, and answers SIGILL or an errno.
    let hidden = [335, 336];
    let (here, reported): (Vec<u64>, Vec<u64>) = (0..600u64)
        .filter(|number| !hidden.contains(number))
        .chain([1000, 0x4000_0000, 0x4000_0001, 0x4000_003b, 0x5748_494d])
        .partition(|n| local(*n));
    println!("  local: {here:?}");
    println!("  reported: {} numbers", reported.len());
    let list: Vec<Syscall> = reported
        .iter()
        .map(|number| Syscall::new(i64::try_from(*number).expect("small"), &[]))
        .collect();
    let leader = rebuilt.threads.remove(0).stopped;
    runner.prepare(&leader, 0, &list).expect("prepare");
    let mut running = leader.resume(0).expect("resume");
    let mut seen = std::collections::BTreeSet::new();
    let stopped = loop {
        let mut set = [PollFd::new(rebuilt.listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut set, PollTimeout::from(20u8)).expect("poll") > 0 {
            let call = rebuilt
                .listener
                .receive()
                .expect("receive")
                .expect("a call");
            seen.insert(u64::from(call.number.cast_unsigned()));
            rebuilt
                .listener
                .respond(call.id, Response::Result(-38))
                .expect("respond");
            continue;
        }
        match running.poll().expect("poll") {
            Polled::Still(still) => running = still,
            Polled::Event(Waited::Stopped(stopped)) => break stopped,
            Polled::Event(other) => panic!("{other:?}"),
        }
    };
    let at_end = runner.is_end(&stopped).expect("registers");
    assert!(at_end, "{stopped:?} {:x?}", stopped.registers());
    for number in reported.iter().filter(|number| !seen.contains(number)) {
        let name = whim_calls::row(*number).map_or("?", |row| row.name());
        println!("  local for arguments of zero: {number} {name}");
        assert!(gated(name), "{number} {name}");
    }
    drop(sandbox);
}

/// A host whose kernel has another vDSO than home's, and one whose kernel lets nobody move its own: the
/// guest has home's code at home's place, and its functions are calls.
fn another_vdso(sealed: bool) {
    /// Linux 6.10
    const SYS_MSEAL: libc::c_long = 462;
    let mut sandbox = Sandbox::prepare().expect("prepare");
    sandbox.enter(Some(70_012), &[]).expect("enter");
    whim_sys::credentials::become_identity(70_012, 70_012, &[], &[]).expect("become");
    let request = GuestRequest {
        pid: 4000,
        monotonic_ns: 0,
        boottime_ns: 0,
    };
    let (mut blank, uffd) = sandbox.make_guest(request).expect("guest");
    let mut image = image(4000, 1);
    if sealed {
        let seal = |entry: &whim_sys::procmap::Entry| {
            Syscall::new(SYS_MSEAL, &[entry.start, entry.end - entry.start, 0])
        };
        let list: Vec<Syscall> = blank.kernel().iter().map(seal).collect();
        let (back, results) = blank.run(&list).expect("run");
        if results.contains(&-i64::from(libc::ENOSYS)) {
            println!("  this kernel has no mseal");
            return;
        }
        assert!(results.iter().all(|result| *result == 0), "{results:?}");
        blank = back;
    } else {
        // In the padding at the end.
        *image.vdso.last_mut().expect("a vDSO") = 1;
    }
    let mapped = blank.map(&image, &uffd, true).expect("map");
    let rebuilt = mapped
        .complete(&image, &filter(image.reserved))
        .expect("complete");
    let home = kernel_mappings();
    let home = home
        .iter()
        .find(|m| {
            m.backing
                == Backing::Kernel {
                    name: "[vdso]".into(),
                }
        })
        .expect("a vDSO");
    let mut found = vec![0; image.vdso.len()];
    process_vm::read_exact(rebuilt.runner.pid, home.start, &mut found).expect("read");
    let proxy = rebuilt.proxy.expect("it has a copy");
    assert_eq!(proxy.contents().1, found);
    let same = found
        .iter()
        .zip(&image.vdso)
        .filter(|(a, b)| a == b)
        .count();
    assert!(same < found.len() && same > found.len() - 200, "{same}");
    let maps = Maps::open(rebuilt.runner.pid)
        .expect("maps")
        .all()
        .expect("maps");
    let hosts = maps
        .iter()
        .filter(|entry| is_kernel_name(&entry.name))
        .count();
    assert_eq!(hosts > 0, sealed, "{maps:x?}");
    drop(sandbox);
}

/// Calls of other classes whose gate lets arguments of zero through: they act on the guest alone.
fn gated(name: &str) -> bool {
    matches!(
        name,
        "rt_sigaction"
            | "clock_gettime"
            | "clock_getres"
            | "clock_nanosleep"
            | "migrate_pages"
            | "move_pages"
            | "getitimer"
            | "setitimer"
            | "get_robust_list"
            | "set_mempolicy"
            | "get_mempolicy"
    )
}

/// Each case in a process of its own, because it gives up its rights.
fn main() {
    let cases: [(&str, fn()); 8] = [
        ("as-we-are", || rebuild_and_run(None, 4242, 1)),
        ("private-id", || rebuild_and_run(Some(70_001), 31_000, 1)),
        ("threads", || rebuild_and_run(Some(70_002), 500, 5)),
        ("first", || rebuild_and_run(Some(70_003), 1, 5)),
        ("escapes", escapes_without_a_filter),
        ("numbers", every_number_is_local_or_reported),
        ("another-vdso", || another_vdso(false)),
        ("sealed-vdso", || another_vdso(true)),
    ];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((_, case)) = cases
        .iter()
        .find(|c| arguments.first().is_some_and(|a| a == c.0))
    {
        whim_attempts::begin_test(&format!("rebuild::{}", arguments[0]));
        return case();
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
