//! Where things are: the workspace, its files, its crates and its build output.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The packages of the image toolkit, as cargo's options take them. What names no packages means all others.
pub(crate) const TOOLKIT: &str = "pipt*";

/// The root of the workspace and of its build output.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
}

impl Workspace {
    /// The workspace that this program was built from.
    ///
    /// # Errors
    /// When the directory has no parent, which cannot be in a complete checkout.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("The xtask crate has no workspace above it")?
            .to_owned();
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |directory| root.join(directory));
        Ok(Self { root, target })
    }

    /// A cargo command that runs in the workspace.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// A path for output of these tasks; the directories above it exist afterwards.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub(crate) fn output(&self, name: &str) -> Result<PathBuf> {
        let path = self.target.join("xtask").join(name);
        let directory = path.parent().context("An output path has a directory")?;
        fs::create_dir_all(directory)
            .with_context(|| format!("Could not make the directory {}", directory.display()))?;
        Ok(path)
    }

    /// Every file that belongs to the sources, relative to the root: tracked, or new and not
    /// ignored. Files that are deleted but still tracked are left out.
    ///
    /// # Errors
    /// When git cannot list them.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let listing = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&self.root)
            .output()
            .context("Could not run git to list the sources")?;
        if !listing.status.success() {
            bail!(
                "git could not list the sources of {}: {}",
                self.root.display(),
                String::from_utf8_lossy(&listing.stderr).trim()
            );
        }
        let names = String::from_utf8(listing.stdout).context("A file name is not UTF-8")?;
        let mut files: Vec<PathBuf> = names
            .split('\0')
            .filter(|name| !name.is_empty() && self.root.join(name).is_file())
            .map(PathBuf::from)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The text of a file, or `None` where it is not text.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn text(&self, path: &Path) -> Result<Option<String>> {
        let bytes = fs::read(self.root.join(path))
            .with_context(|| format!("Could not read {}", path.display()))?;
        Ok(String::from_utf8(bytes).ok())
    }

    /// The root file of every library, program and test of the workspace, relative to the root.
    ///
    /// # Errors
    /// When cargo cannot describe the workspace.
    pub(crate) fn crate_roots(&self) -> Result<Vec<PathBuf>> {
        let arguments = [
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ];
        let output = self
            .cargo(&arguments)
            .output()
            .context("Could not run cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .context("cargo metadata printed something that is not JSON")?;
        let mut roots = Vec::new();
        for package in array(&metadata["packages"]) {
            for target in array(&package["targets"]) {
                let source = Path::new(target["src_path"].as_str().unwrap_or_default());
                roots.push(source.strip_prefix(&self.root).unwrap_or(source).to_owned());
            }
        }
        Ok(roots)
    }
}

/// Adds a line to a file, which need not be there yet.
///
/// # Errors
/// It cannot be written.
pub(crate) fn append(path: &Path, line: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .with_context(|| format!("Could not write {}", path.display()))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
