//! Attempts at breaking in or out, declared by the tests that make them.
//!
//! An attempt is begun where it is made and says how it failed once the test has seen that. One that
//! is begun and never seen to fail counts as a success, whatever the reason: an assertion, an error
//! that is passed on, a forgotten line. `cargo xtask attempts` runs these tests with a file to write
//! to, and compares what was written with `docs/attempts.md`; a test that is run otherwise writes
//! nothing.
#![forbid(unsafe_code)]

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// The environment variable that names the file to which attempts are written, a line each.
pub const FILE: &str = "WHIM_ATTEMPTS";

/// Who tries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    LyingHost,
    LyingHome,
    /// A node of the cluster that takes no part in the journey, or pretends to be another one.
    Member,
    /// A node of another cluster, or of one that it was removed from.
    ForeignNode,
    OldVersion,
    Guest,
    LocalUser,
    /// Whoever reaches the port.
    Stranger,
}

impl Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LyingHost => "lying host",
            Self::LyingHome => "lying home",
            Self::Member => "member",
            Self::ForeignNode => "foreign node",
            Self::OldVersion => "old version",
            Self::Guest => "guest",
            Self::LocalUser => "local user",
            Self::Stranger => "stranger",
        })
    }
}

/// The test that runs, where that is not the name of its thread: in runners of our own.
static TEST: Mutex<Option<String>> = Mutex::new(None);

/// Opened once, and where a runner says that a test begins: the test may give up its rights later.
static OUTPUT: OnceLock<Option<File>> = OnceLock::new();

fn output() -> Option<&'static File> {
    let open = || {
        let path = std::env::var_os(FILE)?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let fault = |error| eprintln!("Could not write {}: {error}", path.display());
        file.map_err(fault).ok()
    };
    OUTPUT.get_or_init(open).as_ref()
}

/// Names the test that begins. For runners that give their tests no thread of that name.
pub fn begin_test(name: &str) {
    output();
    *TEST
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(name.to_owned());
}

fn test_name() -> String {
    let begun = TEST
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let of_thread = || std::thread::current().name().unwrap_or("?").to_owned();
    begun.clone().unwrap_or_else(of_thread)
}

/// An attempt that has begun. It has succeeded unless [`Attempt::failed`] is called.
#[must_use = "an attempt counts as a success until it has failed"]
#[derive(Debug)]
pub struct Attempt {
    party: Party,
    what: String,
    test: String,
    failed: bool,
}

impl Attempt {
    /// `what` is tried from here on.
    pub fn new(party: Party, what: impl Into<String>) -> Self {
        Self {
            party,
            what: what.into(),
            test: test_name(),
            failed: false,
        }
    }

    /// The test has seen that it failed, and how.
    pub fn failed(mut self, how: impl Display) {
        self.failed = true;
        self.write("failed", &how.to_string());
    }

    /// It was none: what was done is allowed.
    pub fn none(mut self) {
        self.failed = true;
    }

    fn write(&self, outcome: &str, how: &str) {
        let Some(mut file) = output() else {
            return;
        };
        let clean = |text: &str| text.replace(['\t', '\n', '|'], " ");
        let Self { party, test, .. } = self;
        let (what, how) = (clean(&self.what), clean(how));
        let line = format!("{party}\t{what}\t{test}\t{outcome}\t{how}\n");
        // One write of a file that is only appended to: tests run beside each other.
        if let Err(error) = file.write_all(line.as_bytes()) {
            eprintln!("An attempt could not be written: {error}");
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.failed {
            self.write("succeeded", "the test did not see it fail");
        }
    }
}
