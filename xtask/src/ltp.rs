//! Runs the Linux Test Project's tests of system calls at home and away, where somebody has built
//! them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

const TEST: &str = "ltp::full::calls";
const DOCUMENT: &str = "docs/ltp.md";

/// True when no program does away what it does not do at home.
///
/// # Errors
/// When the directory is not there, or nothing can be built.
pub(crate) fn run(workspace: &Workspace, directory: &Path, write: bool) -> Result<bool> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("Could not find {}", directory.display()))?;
    let mut build = Command::new("cargo");
    build.args(["build", "--bins"]).current_dir(&workspace.root);
    if !process::each_line(build, |line| println!("{line}"))?.success() {
        return Ok(false);
    }
    let mut test = Command::new("cargo");
    test.args(["test", "-p", "whim-system-tests", "--test", "system", "--"])
        .args(["--exact", TEST])
        .current_dir(&workspace.root)
        .env("WHIM_LTP_DIR", directory);
    if write {
        test.env("WHIM_LTP_FILE", workspace.root.join(DOCUMENT));
    }
    Ok(process::each_line(test, |line| println!("{line}"))?.success())
}
