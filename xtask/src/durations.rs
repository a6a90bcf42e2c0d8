//! How long each test took when it was measured last.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::fuzz;
use crate::system;
use crate::workspace::{self, Workspace};

/// What a test took, in seconds, and its name: a line each.
const FILE: &str = "tests/durations.txt";
const HEAD: &str =
    "# Seconds that tests took: `cargo xtask parts N --write` takes over what was measured.\n";
/// A test that was never measured counts as this long.
const QUICK_ASSUMED: Duration = Duration::from_secs(10);
const FULL_ASSUMED: Duration = Duration::from_secs(300);
/// Before the names of fuzz targets.
pub(crate) const FUZZ: &str = "fuzz ";

#[derive(Debug, Default)]
pub(crate) struct Durations(BTreeMap<String, Duration>);

impl Durations {
    /// What the sources say.
    ///
    /// # Errors
    /// A line is not understood.
    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        Self::of_file(&workspace.root.join(FILE))
    }

    /// An empty one where there is no such file.
    fn of_file(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text).with_context(|| format!("{} is not understood", path.display()))
    }

    /// # Errors
    /// A line that is neither a comment nor a number of seconds and a name.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut durations = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (seconds, name) = line.split_once(' ').with_context(|| line.to_owned())?;
            let seconds = seconds.parse().with_context(|| line.to_owned())?;
            let took = Duration::try_from_secs_f64(seconds).with_context(|| line.to_owned())?;
            durations.insert(name.to_owned(), took);
        }
        Ok(Self(durations))
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// What is known, or else assumed.
    pub(crate) fn of(&self, name: &str) -> Duration {
        if let Some(measured) = self.0.get(name) {
            return *measured;
        }
        match name.strip_prefix(FUZZ) {
            Some(_) => Duration::from_secs(fuzz::SECONDS),
            None if system::is_quick(name) => QUICK_ASSUMED,
            None => FULL_ASSUMED,
        }
    }

    pub(crate) fn sum<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Duration {
        names.into_iter().map(|name| self.of(name)).sum()
    }

    /// Takes over what was measured here, forgets tests that are no more, and writes the file.
    ///
    /// # Errors
    /// A file is not understood, or cannot be written.
    pub(crate) fn take_over(&mut self, workspace: &Workspace, all: &[String]) -> Result<()> {
        self.0.extend(Self::of_file(&measured(workspace)?)?.0);
        self.0.retain(|name, _| all.contains(name));
        let mut text = HEAD.to_owned();
        for (name, took) in &self.0 {
            text += &line(name, *took);
            text.push('\n');
        }
        let path = workspace.root.join(FILE);
        fs::write(&path, text).with_context(|| format!("Could not write {}", path.display()))
    }
}

fn line(name: &str, took: Duration) -> String {
    format!("{:.1} {name}", took.as_secs_f64())
}

/// What was measured in this build directory; the last line about a test counts.
fn measured(workspace: &Workspace) -> Result<PathBuf> {
    workspace.output("durations")
}

/// Notes what a test took.
///
/// # Errors
/// It cannot be written.
pub(crate) fn note(workspace: &Workspace, name: &str, took: Duration) -> Result<()> {
    workspace::append(&measured(workspace)?, &line(name, took))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_never_measured_is_assumed() {
        let durations = Durations::parse("# seconds name\n1.5 c d").unwrap();
        assert_eq!(durations.of("c d"), Duration::from_millis(1500));
        assert_eq!(durations.of("a::b"), QUICK_ASSUMED);
        assert_eq!(durations.of("a::full::b"), FULL_ASSUMED);
        assert_eq!(durations.of("fuzz a"), Duration::from_secs(fuzz::SECONDS));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["many a", "1.5", "-1 a", "inf a"] {
            let error = Durations::parse(text).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }
}
