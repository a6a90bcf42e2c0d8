//! What looks at memory itself: Miri at code that reaches no kernel, `AddressSanitizer` at the rest.
//!
//! Both are told which tests to run: Miri knows no ptrace, and takes minutes for what takes
//! milliseconds; the sanitizer stops at what other processes do to our memory.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process;
use crate::tally::Tally;
use crate::workspace::Workspace;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Of a package, the tests of its library that run, by parts of their names (none: all), and those of
/// them that do not.
struct Tests {
    package: &'static str,
    run: &'static [&'static str],
    skip: &'static [&'static str],
}

/// What asks no kernel. Tests that go up to a limit take hours there.
const MIRI: &[Tests] = &[
    Tests {
        package: "whim-calls",
        run: &[],
        // Looks for thousands of words in megabytes of headers.
        skip: &["every_constant"],
    },
    Tests {
        package: "whim-journey",
        run: &[],
        skip: &["up_to_their_limits", "bounded"],
    },
    Tests {
        package: "whim-image",
        run: &["maps::tests", "fuzz::tests"],
        // Processes are started there, or looked at.
        skip: &["our_own", "ended_process", "executes_one"],
    },
    Tests {
        package: "whim-net",
        run: &[
            "inbox::tests",
            "name::tests",
            "fuzz::tests::corpus_of_frame",
        ],
        skip: &["any_cutting", "garbage_never", "too_long"],
    },
];

/// The crate with all `unsafe`, and the one that uses most of it.
const ADDRESSES: &[Tests] = &[
    Tests {
        package: "whim-sys",
        run: &[],
        skip: &[],
    },
    Tests {
        package: "whim-image",
        run: &[],
        skip: &[],
    },
];

/// Runs the pure tests below Miri; says so where it is missing.
///
/// # Errors
/// It cannot be run.
pub(crate) fn miri(workspace: &Workspace, tally: &mut Tally) -> Result<bool> {
    let has = nightly(&["miri", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has {
        println!("miri: missing; `rustup toolchain install nightly -c miri -c rust-src` brings it");
        return Ok(true);
    }
    let mut all = true;
    for tests in MIRI {
        let mut command = nightly(&["miri", "test", "-p", tests.package, "--lib"]);
        command
            .arg("--target-dir")
            .arg(workspace.target.join("miri"))
            // The corpus is read; everything else of the machine stays out of reach.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            .env("PROPTEST_CASES", "4")
            .current_dir(&workspace.root);
        all &= run(command, "miri", tests, tally)?;
    }
    Ok(all)
}

fn nightly(arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .args(arguments)
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Runs the tests of the crates that hold `unsafe` with `AddressSanitizer`, whose library is part of
/// the toolchain.
///
/// # Errors
/// It cannot be run.
pub(crate) fn memcheck(workspace: &Workspace, tally: &mut Tally) -> Result<bool> {
    if !has_sanitizer(workspace)? {
        println!("memcheck: missing; this toolchain has no library of AddressSanitizer");
        return Ok(true);
    }
    let mut all = true;
    for tests in ADDRESSES {
        let mut command = workspace.cargo(&["test", "-p", tests.package, "--lib"]);
        command
            .args(["--target", TRIPLE, "--target-dir"])
            .arg(workspace.target.join("memcheck"))
            // What the flag does is unstable as an option, not as code.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address");
        all &= run(command, "memcheck", tests, tally)?;
    }
    Ok(all)
}

fn has_sanitizer(workspace: &Workspace) -> Result<bool> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TRIPLE])
        .current_dir(&workspace.root)
        .output()
        .context("Could not run rustc")?;
    let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    Ok(entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| name.ends_with("_rt.asan.a")))
}

/// Runs the tests of one package; each counts as one check.
fn run(mut command: Command, tool: &str, tests: &Tests, tally: &mut Tally) -> Result<bool> {
    let package = tests.package;
    command.arg("--").args(tests.run);
    for name in tests.skip {
        command.args(["--skip", name]);
    }
    let mut passed = 0;
    let status = process::each_line(command, |line| {
        if line.ends_with("... ok") {
            passed += 1;
        } else {
            println!("{line}");
        }
    })?;
    if status.success() && passed > 0 {
        println!("{tool} {package} ... ok ({passed} tests)");
        tally.pass(1);
        return Ok(true);
    }
    println!("{tool} {package} ... FAILED ({passed} tests passed)");
    tally.fail(format!("{tool} {package}: see its output above"));
    Ok(false)
}
