//! Counts what passed and failed, and says so in the last line.

use std::fs;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// What has passed and what has failed so far. Everything runs; everything that failed is listed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failures: Vec<String>,
}

impl Tally {
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// Counts one check: passed when it found nothing, failed with each of its findings otherwise.
    pub(crate) fn check(&mut self, name: &str, findings: &[String]) {
        if findings.is_empty() {
            println!("check {name} ... ok");
            self.pass(1);
            return;
        }
        println!("check {name} ... FAILED");
        for finding in findings {
            println!("  {finding}");
        }
        self.fail(format!("{name}: {}", findings.join("; ")));
    }

    fn closing_line(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failures.len())
    }

    /// Prints the failures and the closing line, and leaves the line in `target/xtask/summary`.
    ///
    /// True when nothing failed and something ran: a run of nothing is no success.
    ///
    /// # Errors
    /// When the summary cannot be written.
    pub(crate) fn close(&self, workspace: &Workspace) -> Result<bool> {
        if !self.failures.is_empty() {
            println!("\nFailed:");
            for failure in &self.failures {
                println!("  {failure}");
            }
        }
        let path = workspace.output("summary")?;
        fs::write(&path, self.closing_line() + "\n")
            .with_context(|| format!("Could not write {}", path.display()))?;
        println!("\n{}", self.closing_line());
        Ok(self.failures.is_empty() && self.passed > 0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_check_with_findings_counts_as_one_failure() {
        let mut tally = Tally::default();
        tally.check("nothing found", &[]);
        tally.check("two found", &["a".to_owned(), "b".to_owned()]);
        assert_eq!(tally.closing_line(), "1 passed, 1 failed");
        assert_eq!(tally.failures, ["two found: a; b"]);
    }
}
