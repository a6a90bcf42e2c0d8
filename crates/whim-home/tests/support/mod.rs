//! Real programs as deputies, without a network: what every test of a deputy needs.
#![allow(dead_code)] // no test needs all of it

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use whim_home::convert::{Original, convert};
use whim_home::homeward;
use whim_home::server::Server;
use whim_image::capture::{CaptureOptions, Captured};
use whim_image::freeze::{FreezeLimits, Frozen, freeze};
use whim_image::reserve;
use whim_journey::message::{CallRequest, ToGuest, WireRegion};
use whim_model::{Backing, ProcessImage};
use whim_sys::pagemap;

/// An answer that has not come after this time will not come.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Program {
    pub child: Child,
    pub input: ChildStdin,
    pub output: BufReader<std::process::ChildStdout>,
}

impl Program {
    pub(crate) fn start(command: &str, args: &[&str]) -> Self {
        let mut child = Command::new(command)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is installed");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
        }
    }

    /// [`PYTHON`], started; its first line is read.
    pub(crate) fn python() -> Self {
        let mut program = Self::start("/usr/bin/python3", &["-c", PYTHON]);
        assert_eq!(program.line(), program.pid().to_string());
        program
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("output");
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, text: &str) {
        writeln!(self.input, "{text}").expect("the program reads");
    }
}

pub(crate) fn begins_in_guest(number: u64) -> bool {
    !whim_calls::home_may_execute(number)
}

pub(crate) type Contents = Vec<(u64, Vec<u8>)>;

pub(crate) fn take(pid: i32) -> (Frozen, Captured, Contents) {
    let entries = whim_image::maps::read(pid).expect("maps");
    let reserved = reserve::choose(&entries).expect("a free range");
    let mut frozen = freeze(pid, &FreezeLimits::default()).expect("freeze");
    let options = CaptureOptions {
        reserved,
        begins_in_guest: &begins_in_guest,
    };
    let mut captured = frozen.capture(&options).expect("capture");
    for call in &captured.in_flight {
        captured.image.threads[0].registers.orig_rax = call.original_number;
    }
    let scanner = pagemap::Pagemap::open(pid).expect("pagemap");
    let mut contents = Vec::new();
    for mapping in &captured.image.mappings {
        if matches!(mapping.backing, Backing::Kernel { .. }) {
            continue;
        }
        for run in scanner.runs(mapping.start, mapping.end).expect("runs") {
            if run.kind == pagemap::Kind::Private {
                let mut bytes = vec![0; usize::try_from(run.len()).expect("small")];
                frozen
                    .memory()
                    .read_exact(run.start, &mut bytes)
                    .expect("readable");
                contents.push((run.start, bytes));
            }
        }
    }
    (frozen, captured, contents)
}

pub(crate) fn put_back(
    mut server: Server,
    image: &ProcessImage,
    original: &Original,
    contents: &Contents,
) {
    let mut held = Vec::new();
    homeward::check_image(image, original, &server).expect("sound");
    homeward::quiesce(&mut server, &mut held).expect("quiet");
    homeward::mask_signals(&mut server.deputy).expect("masked");
    homeward::restore_mappings(&mut server, image, original).expect("mappings");
    for (address, bytes) in contents {
        homeward::write_pages(image.pid, image, *address, bytes).expect("pages");
    }
    homeward::restore_process(&mut server, image).expect("process");
    homeward::restore_threads(&mut server, image).expect("threads");
    homeward::requeue(&mut server, image, &mut held).expect("signals");
    homeward::resume_at_home(server, image, original, &[]).expect("resumed");
}

/// The sender's side of one call: region data, and the reply.
pub(crate) fn ask_with(server: &mut Server, request: CallRequest, tail: &[u8]) -> (i64, Vec<u8>) {
    server.call(request, tail).expect("served");
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "home's kernel does not answer");
        while let Some(event) = server.deputy.next_event().expect("events") {
            if let whim_home::deputy::DeputyEvent::Finished(seat) = event {
                server.finished(seat).expect("finished");
            }
        }
        for seat in server.active_seats() {
            server.finished(seat).expect("finished");
        }
        if let Some(out) = server.outgoing.pop() {
            let ToGuest::Reply { result, .. } = out.message else {
                panic!("{:?}", out.message)
            };
            return (result, out.tail);
        }
        std::thread::yield_now();
    }
}

pub(crate) const PYTHON: &str = "
import sys, threading, os
table = {i: str(i) * 3 for i in range(50000)}
print(os.getpid(), flush=True)
for line in sys.stdin:
    number = int(line)
    print(table[number], sum(len(v) for v in table.values()), flush=True)
";

/// A program that is a deputy, and all that left home.
pub(crate) struct Converted {
    pub program: Program,
    pub server: Server,
    pub captured: Captured,
    pub original: Original,
    contents: Contents,
    sequence: u64,
}

pub(crate) fn convert_program(program: Program) -> Converted {
    let (frozen, captured, contents) = take(program.pid());
    let original = Original::of(&captured.image, captured.locks_future);
    let server = convert(frozen, None, &original).expect("converted");
    Converted {
        program,
        server,
        captured,
        original,
        contents,
        sequence: 0,
    }
}

impl Converted {
    pub(crate) fn tid(&self) -> i32 {
        self.program.pid()
    }

    pub(crate) fn next_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// A forwarded call of its first thread: result and outputs.
    pub(crate) fn ask(
        &mut self,
        number: u64,
        args: [u64; 6],
        regions: Vec<WireRegion>,
        tail: &[u8],
    ) -> (i64, Vec<u8>) {
        self.sequence += 1;
        let request = CallRequest {
            tid: self.tid(),
            sequence: self.sequence,
            number,
            args,
            may_block: false,
            looks_for: None,
            masked: 0,
            regions,
        };
        ask_with(&mut self.server, request, tail)
    }

    /// Makes a call that home does not answer, since the program has to come home for it. Returns
    /// the reason.
    pub(crate) fn ask_in_vain(
        &mut self,
        number: u64,
        args: [u64; 6],
        regions: Vec<WireRegion>,
        tail: &[u8],
    ) -> &'static str {
        self.sequence += 1;
        let request = CallRequest {
            tid: self.tid(),
            sequence: self.sequence,
            number,
            args,
            may_block: false,
            looks_for: None,
            masked: 0,
            regions,
        };
        self.server.call(request, tail).expect("served");
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "home's kernel does not answer");
            while let Some(event) = self.server.deputy.next_event().expect("events") {
                if let whim_home::deputy::DeputyEvent::Finished(seat) = event {
                    self.server.finished(seat).expect("finished");
                }
            }
            for seat in self.server.active_seats() {
                self.server.finished(seat).expect("finished");
            }
            assert!(self.server.outgoing.is_empty(), "it was answered");
            if let Some(reason) = self.server.wants_home.take() {
                return reason;
            }
            std::thread::yield_now();
        }
    }

    /// It comes home with what it left with.
    pub(crate) fn comes_home(self) -> Program {
        let Self {
            program,
            server,
            captured,
            original,
            contents,
            ..
        } = self;
        put_back(server, &captured.image, &original, &contents);
        program
    }

    /// It comes home as it left, and goes on.
    pub(crate) fn comes_home_unharmed(self) {
        let mut program = self.comes_home();
        program.say("7");
        assert!(program.line().starts_with("777 "));
        drop(program.input);
        assert!(program.child.wait().expect("ended").success());
    }
}
