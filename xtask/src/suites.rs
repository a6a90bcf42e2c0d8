//! Runs suites of others at home and away: what somebody has built of them is not ours, and stays out of
//! the sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// A suite: its test, its document, and the environment's variables that name where it is built and what
/// is to be written.
#[derive(Debug)]
pub(crate) struct Suite {
    test: &'static str,
    document: &'static str,
    directory: &'static str,
    file: &'static str,
    /// Where a user gets it, when the directory does not hold it.
    source: &'static str,
    /// What the directory has to hold.
    holds: &'static str,
}

/// The Linux Test Project's tests of system calls.
pub(crate) const LTP: Suite = Suite {
    test: "ltp::full::calls",
    document: "docs/ltp.md",
    directory: "WHIM_LTP_DIR",
    file: "WHIM_LTP_FILE",
    source: "github.com/linux-test-project/ltp",
    holds: "testcases/kernel/syscalls",
};

/// CRIU's static tests.
pub(crate) const ZDTM: Suite = Suite {
    test: "zdtm::full::static",
    document: "docs/zdtm.md",
    directory: "WHIM_ZDTM_DIR",
    file: "WHIM_ZDTM_FILE",
    source: "github.com/checkpoint-restore/criu",
    holds: "test/zdtm/static",
};

/// The kernel's own tests.
pub(crate) const SELFTESTS: Suite = Suite {
    test: "selftests::full::all",
    document: "docs/selftests.md",
    directory: "WHIM_SELFTESTS_DIR",
    file: "WHIM_SELFTESTS_FILE",
    source: "scripts/selftests",
    holds: "programs",
};

/// What is asked of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish<'a> {
    write: bool,
    /// Only programs whose name holds one of these words, with commas between.
    filter: &'a str,
}

impl<'a> Wish<'a> {
    /// Reads the words behind the directory.
    ///
    /// # Errors
    /// When there are too many of them, or the document would be written of a part.
    pub(crate) fn parse(words: &[&'a str]) -> Result<Self> {
        let mut wish = Self::default();
        for word in words {
            match *word {
                "--write" => wish.write = true,
                filter if wish.filter.is_empty() && !filter.starts_with('-') => {
                    wish.filter = filter;
                }
                other => bail!("'{other}' means nothing here"),
            }
        }
        if wish.write && !wish.filter.is_empty() {
            bail!(
                "The document is of the whole suite: leave out '{}'",
                wish.filter
            );
        }
        Ok(wish)
    }
}

/// True when no program does away what it does not do at home.
///
/// # Errors
/// When the directory is not there, or nothing can be built.
pub(crate) fn run(
    workspace: &Workspace,
    suite: &Suite,
    directory: &Path,
    wish: Wish<'_>,
) -> Result<bool> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("Could not find {}", directory.display()))?;
    if !directory.join(suite.holds).is_dir() {
        bail!(
            "{} has no {}: it has to hold what somebody has built of {}",
            directory.display(),
            suite.holds,
            suite.source
        );
    }
    let mut build = Command::new("cargo");
    build.args(["build", "--bins"]).current_dir(&workspace.root);
    if !process::each_line(build, |line| println!("{line}"))?.success() {
        return Ok(false);
    }
    let mut test = Command::new("cargo");
    test.args(["test", "-p", "whim-system-tests", "--test", "system", "--"])
        .args(["--exact", suite.test])
        .current_dir(&workspace.root)
        .env(suite.directory, directory)
        .env("WHIM_CASES", wish.filter);
    if wish.write {
        test.env(suite.file, workspace.root.join(suite.document));
    }
    Ok(process::each_line(test, |line| println!("{line}"))?.success())
}

/// The same of the kernel's own tests, which are fetched and built first if they are not there.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_selftests(workspace: &Workspace, wish: Wish<'_>) -> Result<bool> {
    let directory = workspace.root.join(".toolchain/selftests");
    let mut fetch = Command::new(workspace.root.join("scripts/selftests"));
    fetch.arg(&directory);
    if !process::each_line(fetch, |line| println!("{line}"))?.success() {
        return Ok(false);
    }
    run(workspace, &SELFTESTS, &directory, wish)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_document_is_of_the_whole_suite() {
        let wish = Wish::parse(&["futex"]).unwrap();
        assert_eq!((wish.write, wish.filter), (false, "futex"));
        assert!(Wish::parse(&["--write"]).unwrap().write);
        assert!(Wish::parse(&["--write", "futex"]).is_err());
        assert!(Wish::parse(&["a", "b"]).is_err());
        assert!(Wish::parse(&["--wirte"]).is_err());
    }
}
