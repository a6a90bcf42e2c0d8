//! What a package holds beside the programs: man pages and shell completions.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Writes `man/*.1` and `completions/*` below the directory.
///
/// The command line writes them itself, from the definition that also parses it, so they cannot
/// differ from `--help`.
///
/// # Errors
/// When `whim` does not build or cannot write there.
pub(crate) fn run(workspace: &Workspace, directory: &Path) -> Result<()> {
    for kind in ["man", "completions"] {
        let directory = std::path::absolute(directory)?.join(kind);
        fs::create_dir_all(&directory)
            .with_context(|| format!("Could not make the directory {}", directory.display()))?;
        let status = workspace
            .cargo(&[
                "run",
                "--locked",
                "--quiet",
                "--release",
                "--bin",
                "whim",
                "--",
            ])
            .args(["generate", kind])
            .arg(&directory)
            .status()
            .context("Could not run cargo")?;
        if !status.success() {
            bail!("`whim generate {kind} {}` failed", directory.display());
        }
    }
    Ok(())
}
