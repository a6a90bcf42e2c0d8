//! The gate: every check runs, and every failure is listed.

use std::sync::Mutex;

use crate::lanes;
use crate::pictures;
use crate::tally::Tally;
use crate::tidy;
use crate::units;
use crate::workspace::Workspace;

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
    units::run(workspace, tally, |tally| docs(workspace, tally));
    deny(workspace, tally);
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

/// Long, and in nobody's way: the tests run beside it.
fn docs(workspace: &Workspace, tally: &Mutex<&mut Tally>) {
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
    lanes::lock(tally).check("docs", &findings);
}
