//! A real program becomes a deputy and comes back, without a network in between: what leaves is
//! what returns, so that conversion and return are tested by themselves.
#![forbid(unsafe_code)]

mod support;

use support::{PYTHON, Program, ask_with, put_back, take};
use whim_home::convert::{Original, convert};
use whim_home::server::{Outgoing, Server};
use whim_journey::message::{CallRequest, ToGuest, WireDirection, WireRegion, WireReturned};
use whim_model::{Backing, ProcessImage};
use whim_sys::process_vm;

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

#[test]
fn a_program_that_waits_for_input_goes_on_after_its_return() {
    let mut program = Program::start("/usr/bin/python3", &["-c", PYTHON]);
    assert_eq!(program.line(), program.pid().to_string());
    program.say("7");
    let expected = program.line();
    for _ in 0..5 {
        let before = resident_kib(program.pid());
        let (frozen, captured, contents) = take(program.pid());
        let original = Original::of(&captured.image, captured.locks_future);
        let server = convert(frozen, None, &original).expect("converted");
        let while_away = resident_kib(program.pid());
        assert!(
            while_away * 3 < before,
            "{before} KiB at home, {while_away} KiB away"
        );
        put_back(server, &captured.image, &original, &contents);
        program.say("7");
        assert_eq!(program.line(), expected);
        let tracer = std::fs::read_to_string(format!("/proc/{}/status", program.pid()));
        assert!(tracer.expect("status").contains("TracerPid:\t0"));
    }
    drop(program.input);
    assert!(program.child.wait().expect("ended").success());
}

fn the_attic_shows_the_file(image: &ProcessImage, server: &mut Server) {
    let code = image
        .mappings
        .iter()
        .find(|mapping| matches!(mapping.backing, Backing::File { offset: 0, .. }));
    let Some(Backing::File { id, .. }) = code.map(|mapping| mapping.backing.clone()) else {
        panic!("no file is mapped");
    };
    let request = whim_journey::message::PageRequest {
        request: 1,
        mapping: id,
        offset: 0,
        length: 4096,
    };
    assert_eq!(&server.pages(request).expect("the page")[..4], b"\x7fELF");
}

/// Maps a file and writes to two of its pages; what they hold is told for each line.
const MAPS_A_FILE: &str = "
import mmap, os, sys
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 37 * 4096, mmap.MAP_PRIVATE)
memory[0], memory[36 * 4096] = b'XY'
print(os.getpid(), flush=True)
sys.stdin.readline()
print(chr(memory[0]), os.fstat(file.fileno()).st_size, flush=True)
";

#[test]
fn a_page_behind_the_end_of_its_file_does_not_come_home() {
    // As long as no library's.
    const LENGTH: u64 = 37 * 4096;
    let path = std::env::temp_dir().join(format!("whim-truncated-{}", std::process::id()));
    std::fs::write(&path, [b'a'; 37 * 4096]).expect("a temporary file");
    let name = path.display().to_string();
    let mut program = Program::start("/usr/bin/python3", &["-c", MAPS_A_FILE, &name]);
    assert_eq!(program.line(), program.pid().to_string());
    let converted = support::convert_program(program);
    let written = |mapping: &&whim_model::Mapping| {
        mapping.len() == LENGTH && matches!(mapping.backing, Backing::File { .. })
    };
    let mut mappings = converted.captured.image.mappings.iter();
    let Some(Backing::File { id, .. }) = mappings.find(written).map(|one| one.backing.clone())
    else {
        panic!("the file is not mapped");
    };
    assert_eq!(converted.server.backed(id), LENGTH);
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    let file = file.expect("ours");
    for (length, backed) in [(4097, 8192), (1, 4096), (0, 0), (8192, 8192), (4096, 4096)] {
        file.set_len(length).expect("ours");
        assert_eq!(converted.server.backed(id), backed, "of {length} bytes");
    }
    let mut program = converted.comes_home();
    program.say("");
    assert_eq!(program.line(), "X 4096", "its other page is here");
    assert!(program.child.wait().expect("ended").success());
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn calls_are_executed_with_their_buffers_at_the_original_addresses() {
    let mut program = Program::start("/usr/bin/python3", &["-c", PYTHON]);
    program.line();
    let (frozen, captured, contents) = take(program.pid());
    let original = Original::of(&captured.image, captured.locks_future);
    let mut server = convert(frozen, None, &original).expect("converted");
    let tid = program.pid();
    let mut sequence = 0;
    let mut ask = |server: &mut Server, number: i64, args: [u64; 6], regions, tail: &[u8]| {
        sequence += 1;
        let number = number.cast_unsigned();
        let request = CallRequest {
            tid,
            sequence,
            number,
            args,
            may_block: false,
            looks_for: None,
            masked: 0,
            regions,
        };
        ask_with(server, request, tail)
    };
    let (pid, _) = ask(&mut server, libc::SYS_getppid, [0; 6], vec![], &[]);
    assert_eq!(pid, i64::from(std::process::id()));
    let region = |address, length, direction, data_length| WireRegion {
        address,
        length,
        direction,
        returned: WireReturned::Whole,
        data_length,
    };
    let buffer = 0x7000_0000_0ff8;
    let write = region(buffer, 12, WireDirection::In, 12);
    let args = [1, buffer, 12, 0, 0, 0];
    let (written, _) = ask(
        &mut server,
        libc::SYS_write,
        args,
        vec![write],
        b"hello\nworld\n",
    );
    assert_eq!(written, 12);
    assert_eq!(
        (program.line(), program.line()),
        ("hello".into(), "world".into())
    );
    // A page that nobody placed is a fault at once, and nothing happens.
    let args = [1, 0x7000_1000_0000, 12, 0, 0, 0];
    assert_eq!(ask(&mut server, libc::SYS_write, args, vec![], &[]).0, -14);
    let out = region(0x6000_0000_0100, 4096, WireDirection::Out, 0);
    let args = [0x6000_0000_0100, 4096, 0, 0, 0, 0];
    let (length, cwd) = ask(&mut server, libc::SYS_getcwd, args, vec![out], &[]);
    assert!(length > 1 && cwd.starts_with(b"/"));
    the_attic_shows_the_file(&captured.image, &mut server);
    // A call that is asked about again is answered from the kept result; a call that never came is
    // not mistaken for it.
    let mut again =
        |question: u64, awaited| ask_again(&mut server, tid, (1 << 32) + question, awaited);
    assert_eq!(again(1, sequence), length);
    assert_eq!(again(2, sequence + 1), -514);
    // The thread stood in read(2), which home never got as a call: it is made anew.
    put_back(server, &captured.image, &original, &contents);
    program.say("7");
    assert!(program.line().starts_with("777 "));
    drop(program.input);
    assert!(program.child.wait().expect("ended").success());
    let mut probe = [0; 1];
    assert!(process_vm::read_exact(tid, 1, &mut probe).is_err());
}

/// The answer of home to a thread that asks what became of a call.
fn ask_again(server: &mut Server, tid: i32, question: u64, awaited: u64) -> i64 {
    server
        .await_call(tid, question, awaited)
        .expect("a known thread");
    let answers = std::mem::take(&mut server.outgoing);
    match answers.as_slice() {
        [
            Outgoing {
                message: ToGuest::Reply {
                    sequence, result, ..
                },
                ..
            },
        ] => {
            assert_eq!(*sequence, question);
            *result
        }
        other => panic!("{other:?}"),
    }
}
