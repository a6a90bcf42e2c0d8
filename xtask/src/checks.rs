//! The gate: every check runs, and every failure is listed.

use anyhow::Result;

use crate::pictures;
use crate::process;
use crate::tally::Tally;
use crate::tidy;
use crate::workspace::{TOOLKIT, Workspace};

/// The package whose tests need a lab; they have a runner of their own.
pub(crate) const SYSTEM_TESTS: &str = "whim-system-tests";

/// Runs the whole gate of the migration core; `make test-pipt` is that of the image toolkit.
pub(crate) fn run_all(workspace: &Workspace, tally: &mut Tally) {
    cargo_check(workspace, tally, "formatting", &["fmt", "--all", "--check"]);
    tidy(workspace, tally);
    let clippy = [
        "clippy",
        "--locked",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    cargo_check(workspace, tally, "lints", &clippy);
    tests(workspace, tally);
    deny(workspace, tally);
    docs(workspace, tally);
    pictures(workspace, tally);
}

/// Runs the checks of the sources.
pub(crate) fn tidy(workspace: &Workspace, tally: &mut Tally) {
    for check in tidy::CHECKS {
        let findings = (check.run)(workspace).unwrap_or_else(|error| vec![format!("{error:#}")]);
        tally.check(check.name, &findings);
    }
}

fn cargo_check(workspace: &Workspace, tally: &mut Tally, name: &str, arguments: &[&str]) {
    let shown = format!("cargo {}", arguments.join(" "));
    println!("--- {name}: {shown}");
    let ran = workspace.cargo(arguments).status();
    let findings = match ran {
        Ok(status) if status.success() => Vec::new(),
        Ok(_) => vec![format!("`{shown}` failed, see its output above")],
        Err(error) => vec![format!("`{shown}` could not be run: {error}")],
    };
    tally.check(name, &findings);
}

/// Unit, integration and documentation tests: each test counts by itself.
fn tests(workspace: &Workspace, tally: &mut Tally) {
    let arguments = [
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        TOOLKIT,
        "--exclude",
        SYSTEM_TESTS,
        "--no-fail-fast",
    ];
    println!("--- tests: cargo {}", arguments.join(" "));
    if let Err(error) = count_tests(workspace, tally, &arguments) {
        tally.fail(format!("tests: {error:#}"));
    }
}

fn count_tests(workspace: &Workspace, tally: &mut Tally, arguments: &[&str]) -> Result<()> {
    let mut failed = 0_usize;
    let status = process::each_line(workspace.cargo(arguments), |line| {
        println!("{line}");
        match test_result(line) {
            Some((name, true)) if !name.is_empty() => tally.pass(1),
            Some((name, false)) => {
                failed += 1;
                tally.fail(format!("test {name}"));
            }
            _ => {}
        }
    })?;
    if !status.success() && failed == 0 {
        tally.fail("tests: `cargo test` failed before or outside a test, see its output above");
    }
    Ok(())
}

/// The name of the test that this line of libtest reports, and whether it passed.
fn test_result(line: &str) -> Option<(&str, bool)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    match result {
        "ok" => Some((name, true)),
        "FAILED" => Some((name, false)),
        _ => None,
    }
}

/// Licences, sources and doubled versions of the dependencies. The advisory database is not asked:
/// the gate works without a network.
fn deny(workspace: &Workspace, tally: &mut Tally) {
    let found = workspace.cargo(&["deny", "--version"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let finding = "cargo-deny is not installed: run `scripts/bootstrap test`, \
                       and start this through make or `scripts/with-rust`";
        tally.check("dependencies", &[finding.to_owned()]);
        return;
    }
    // What no build has needed yet must be there as well, or cargo-deny cannot read it.
    let fetch = [
        "fetch",
        "--quiet",
        "--locked",
        "--target",
        "x86_64-unknown-linux-gnu",
    ];
    let fetched = workspace.cargo(&fetch).status();
    if !fetched.is_ok_and(|status| status.success()) {
        println!("`cargo fetch` failed; what is there already may be enough");
    }
    let check = [
        "deny",
        "--offline",
        "--locked",
        "check",
        "--hide-inclusion-graph",
    ];
    let arguments = [&check[..], &["bans", "licenses", "sources"]].concat();
    cargo_check(workspace, tally, "dependencies", &arguments);
}

/// Whether the pictures of the documents show what the policy does now.
fn pictures(workspace: &Workspace, tally: &mut Tally) {
    let findings = pictures::stale(workspace).unwrap_or_else(|error| vec![format!("{error:#}")]);
    tally.check("pictures", &findings);
}

fn docs(workspace: &Workspace, tally: &mut Tally) {
    println!("--- docs: cargo doc");
    let ran = workspace
        .cargo(&[
            "doc",
            "--locked",
            "--no-deps",
            "--document-private-items",
            "--quiet",
        ])
        .env("RUSTDOCFLAGS", "-D warnings")
        .status();
    let findings = match ran {
        Ok(status) if status.success() => Vec::new(),
        Ok(_) => vec!["`cargo doc` failed, see its output above".to_owned()],
        Err(error) => vec![format!("`cargo doc` could not be run: {error}")],
    };
    tally.check("docs", &findings);
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lines_of_libtest_are_understood() {
        assert_eq!(test_result("test a::b ... ok"), Some(("a::b", true)));
        assert_eq!(
            test_result("test a::b - should panic ... ok"),
            Some(("a::b", true))
        );
        let failed = test_result("test src/lib.rs - f (line 3) ... FAILED");
        assert_eq!(failed, Some(("src/lib.rs - f (line 3)", false)));
        assert_eq!(
            test_result("test result: ok. 3 passed; 0 failed; 0 ignored"),
            None
        );
        assert_eq!(test_result("running 3 tests"), None);
    }
}
