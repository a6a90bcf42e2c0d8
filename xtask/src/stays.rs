//! Moves a hundred programs that people have, one after the other, and keeps how each did (`tests/stays.txt`).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// The system test that does it.
const TEST: &str = "stays::full::all";
const DOCUMENT: &str = "docs/what-stays.md";
/// What is known of each program, below the workspace's root.
const RECORDS: &str = "target/stays.jsonl";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish<'a> {
    /// Writes the document.
    write: bool,
    /// Installs packages that programs need.
    install: bool,
    /// Forgets what earlier runs have found.
    anew: bool,
    /// Only these, although they are known: none are all that are not.
    names: Vec<&'a str>,
}

impl<'a> Wish<'a> {
    /// Reads the words behind the task.
    ///
    /// # Errors
    /// When there is an option that means nothing.
    pub(crate) fn parse(words: &[&'a str]) -> Result<Self> {
        let mut wish = Self::default();
        for word in words {
            match *word {
                "--write" => wish.write = true,
                "--install" => wish.install = true,
                "--anew" => wish.anew = true,
                option if option.starts_with('-') => bail!("'{option}' means nothing here"),
                name => wish.names.push(name),
            }
        }
        if wish.anew && !wish.names.is_empty() {
            bail!(
                "Programs that are named run again anyhow: leave out --anew, which forgets all others"
            );
        }
        Ok(wish)
    }
}

/// True when no program that has run does away what it does not do at home.
///
/// # Errors
/// When nothing can be built, or what is known cannot be forgotten.
pub(crate) fn run(workspace: &Workspace, wish: &Wish<'_>) -> Result<bool> {
    let records = workspace.root.join(RECORDS);
    if wish.anew && records.exists() {
        fs::remove_file(&records)
            .with_context(|| format!("Could not remove {}", records.display()))?;
    }
    let mut build = Command::new("cargo");
    build.args(["build", "--bins"]).current_dir(&workspace.root);
    if !process::each_line(build, |line| println!("{line}"))?.success() {
        return Ok(false);
    }
    let mut test = Command::new("cargo");
    test.args(["test", "-p", "whim-system-tests", "--test", "system", "--"])
        .args(["--exact", TEST])
        .current_dir(&workspace.root)
        .env("WHIM_STAYS_RECORDS", &records)
        .env("WHIM_STAYS_NAMES", wish.names.join(" "));
    if wish.install {
        test.env("WHIM_STAYS_INSTALL", "1");
    }
    if wish.write {
        test.env("WHIM_STAYS_FILE", workspace.root.join(DOCUMENT));
    }
    Ok(process::each_line(test, |line| println!("{line}"))?.success())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_run_again_and_leave_others_as_they_are() {
        let wish = Wish::parse(&["--install", "xz", "zstd"]).unwrap();
        assert_eq!(wish.names, ["xz", "zstd"]);
        assert!(wish.install && !wish.write && !wish.anew);
        assert!(Wish::parse(&["--write"]).unwrap().write);
        assert!(Wish::parse(&["--anew", "xz"]).is_err());
        assert!(Wish::parse(&["--wirte"]).is_err());
    }
}
