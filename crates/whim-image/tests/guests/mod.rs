//! Programs written for the tests: compiled, started, read.
#![allow(dead_code, reason = "each test binary uses a part of this module")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Compiles `tests/guests/NAME.c` and gives the program's path.
pub(crate) fn compile(name: &str) -> PathBuf {
    let source = format!("{}/tests/guests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Several test binaries may compile the same program: the last rename wins.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = program.with_extension(format!("{}.{number}", std::process::id()));
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
        .args([fresh.as_path(), Path::new(&source)])
        .args(["-lrt", "-lutil"])
        .status()
        .expect("a C compiler (cc), which Rust needs as well");
    assert!(status.success(), "{source} does not compile");
    std::fs::rename(&fresh, &program).expect("a rename in the target directory");
    program
}

/// Standard output of a program that ends.
pub(crate) fn output(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("a program that starts");
    String::from_utf8(output.stdout).expect("text")
}

/// A running program whose standard output is read line by line. It is killed when dropped.
pub(crate) struct Guest {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Guest {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let got = self.lines.read_line(&mut line).expect("text");
        (got > 0).then(|| line.trim_end().to_owned())
    }

    /// How it ended; `None` when a tracer of this process was told instead of us.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Small numbers that need not be good, but repeatable.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// From WHIM_SEED, or the clock.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("WHIM_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time after 1970");
        u64::from(now.subsec_nanos())
    })
}
