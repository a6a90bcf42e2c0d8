//! Traps: what goes wrong in moving programs unless somebody sees to it, and the test that shows it.
//!
//! `tests/traps.toml` names for each trap its cure and a test. The cure stands in a source, below a comment
//! `// Trap: NAME`; the file says how many lines it is, and what there is without it. This task takes the cures out of a copy of the sources, one after the other, and
//! looks whether the test fails without. `docs/traps.md` is written from the same file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use crate::tidy;
use crate::workspace::Workspace;

const TRAPS: &str = "tests/traps.toml";
const DOCUMENT: &str = "docs/traps.md";
const SYSTEM: &str = "whim-system-tests";
const INTRODUCTION: &str = "\
# Traps

Written by `cargo xtask traps --write` from `tests/traps.toml`. Each of these spoils a moving program in a
way that is easily overlooked; each has a cure, and a test that fails without it. `cargo xtask traps
[NAME...]` takes the cures out of a copy of the sources and looks whether that is still so. A trap
without a text to take out is avoided by how things are built; its test shows what would be lost. Of
those that are marked *open*, no test is known yet that fails without the cure.

";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    trap: Vec<Trap>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trap {
    name: String,
    /// What happens to who does not know it.
    what: String,
    /// What is done about it.
    cure: String,
    /// The package of the test, and the test.
    package: String,
    test: String,
    /// Other tests that show it as well.
    #[serde(default)]
    others: Vec<String>,
    /// Where the cure stands, how many lines it is, and what there is without it.
    #[serde(default)]
    file: Option<PathBuf>,
    #[serde(default = "one")]
    lines: usize,
    #[serde(default)]
    without: String,
    /// No test has been seen to fail without the cure yet.
    #[serde(default)]
    open: bool,
    /// Environment of the test: what makes it likelier that the trap springs.
    #[serde(default)]
    environment: std::collections::BTreeMap<String, String>,
}

fn one() -> usize {
    1
}

impl Trap {
    /// A source without the cure.
    ///
    /// # Errors
    /// How often the comment stands there that marks it, if that is not once, or with nothing below.
    fn spring(&self, text: &str) -> Result<String, String> {
        let mark = format!("// Trap: {}", self.name);
        let lines: Vec<&str> = text.lines().collect();
        let marked = lines.iter().enumerate();
        let marked: Vec<usize> = marked
            .filter(|(_, line)| line.trim() == mark)
            .map(|(index, _)| index)
            .collect();
        let &[at] = marked.as_slice() else {
            return Err(format!("'{mark}' stands there {} times", marked.len()));
        };
        let (before, cure) = lines.split_at(at + 1);
        let Some((_, after)) = cure.split_at_checked(self.lines.max(1)) else {
            return Err(format!("below '{mark}' are fewer lines than it says"));
        };
        let without = self.without.lines();
        let mut sprung = before.to_vec();
        sprung.extend(without);
        sprung.extend(after);
        Ok(sprung.join("\n") + "\n")
    }
}

fn load(workspace: &Workspace) -> Result<Vec<Trap>> {
    let text = fs::read_to_string(workspace.root.join(TRAPS))
        .with_context(|| format!("Could not read {TRAPS}"))?;
    let file: File = toml::from_str(&text).with_context(|| format!("{TRAPS} is not sound"))?;
    Ok(file.trap)
}

/// Takes the cures of these traps (of all, if none is named) out, and runs their tests; true when each
/// fails. With `--write`, writes the document instead.
///
/// # Errors
/// When the copy of the sources cannot be made, or a trap is not as it is described.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<bool> {
    let traps = load(workspace)?;
    if words == ["--write"] {
        fs::write(workspace.root.join(DOCUMENT), document(&traps))?;
        return Ok(true);
    }
    let known = |word: &&&str| traps.iter().any(|trap| trap.name == ***word);
    if let Some(unknown) = words.iter().find(|word| !known(word)) {
        bail!("There is no trap '{unknown}' in {TRAPS}");
    }
    let copy = Copy::make(workspace)?;
    let mut all_fail = true;
    for trap in &traps {
        let wanted = words.is_empty() || words.contains(&trap.name.as_str());
        let Some(file) = trap.file.as_ref().filter(|_| wanted) else {
            continue;
        };
        let sprung = copy.springs(trap, file)?;
        println!(
            "{}: without its cure, {} {}",
            trap.name,
            trap.test,
            if sprung { "fails" } else { "PASSES" }
        );
        all_fail &= sprung;
    }
    Ok(all_fail)
}

/// What is wrong, for the checks of the sources.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn findings(workspace: &Workspace) -> Result<Vec<String>> {
    let traps = load(workspace)?;
    let tests = tidy::sources(workspace)?;
    let mut findings = Vec::new();
    let mut names = BTreeSet::new();
    for trap in &traps {
        let name = &trap.name;
        if !names.insert(name) {
            findings.push(format!("{TRAPS}: {name} is there twice"));
        }
        for test in std::iter::once(&trap.test).chain(&trap.others) {
            if !tidy::has_test(&tests, test) {
                findings.push(format!("{TRAPS}: {name}: there is no test {test}"));
            }
        }
        if let Some(file) = &trap.file {
            let text = fs::read_to_string(workspace.root.join(file)).unwrap_or_default();
            if let Err(what) = trap.spring(&text) {
                findings.push(format!("{TRAPS}: {name}: {}: {what}", file.display()));
            }
        }
    }
    let stored = fs::read_to_string(workspace.root.join(DOCUMENT)).unwrap_or_default();
    if stored != document(&traps) {
        findings.push(format!(
            "{DOCUMENT} is stale: run `cargo xtask traps --write`"
        ));
    }
    Ok(findings)
}

fn document(traps: &[Trap]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("| trap | without the cure | cure | test |\n|---|---|---|---|\n");
    for trap in traps {
        let tests: Vec<String> = std::iter::once(&trap.test)
            .chain(&trap.others)
            .map(|test| format!("`{test}`"))
            .collect();
        let place = match &trap.file {
            Some(file) => format!(" (`{}`)", file.display()),
            None => String::new(),
        };
        let (what, cure) = (&trap.what, &trap.cure);
        let name = match trap.open {
            true => format!("{} (*open*)", trap.name),
            false => trap.name.clone(),
        };
        let _ = writeln!(
            text,
            "| {name} | {what} | {cure}{place} | {} |",
            tests.join(", ")
        );
    }
    text
}

/// A copy of the sources as they are committed, with a target directory of its own.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn make(workspace: &Workspace) -> Result<Self> {
        let place = workspace.root.join("target/traps");
        let (tree, target) = (place.join("tree"), place.join("target"));
        fs::create_dir_all(&place)?;
        let git = |words: &[&str], at: &Path| {
            let mut command = Command::new("git");
            let output = command.args(words).current_dir(at).output()?;
            ensure!(
                output.status.success(),
                "git {words:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let head = git(&["rev-parse", "HEAD"], &workspace.root)?;
        let head = head.trim();
        if tree.join(".git").exists() {
            git(&["fetch", "-q", "origin"], &tree)?;
        } else {
            let root = workspace.root.display().to_string();
            git(&["clone", "-q", "--shared", &root, "tree"], &place)?;
        }
        git(&["reset", "-q", "--hard", head], &tree)?;
        let toolchain = workspace.root.join(".toolchain");
        let link = tree.join(".toolchain");
        if toolchain.exists() && !link.exists() {
            std::os::unix::fs::symlink(toolchain, link)?;
        }
        Ok(Self { tree, target })
    }

    /// Whether the trap's test fails without the cure; with it, it has to pass.
    fn springs(&self, trap: &Trap, file: &Path) -> Result<bool> {
        let path = self.tree.join(file);
        let text = fs::read_to_string(&path)?;
        let sprung = trap.spring(&text);
        let sprung = sprung.map_err(|what| anyhow!("{}: {}: {what}", trap.name, file.display()))?;
        ensure!(
            self.passes(trap)?,
            "{}: {} fails with the cure",
            trap.name,
            trap.test
        );
        fs::write(&path, sprung)?;
        let passes = self.passes(trap);
        fs::write(&path, text)?;
        Ok(!passes?)
    }

    fn passes(&self, trap: &Trap) -> Result<bool> {
        let cargo = |words: &[&str]| {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command
                .args(words)
                .current_dir(&self.tree)
                .env("CARGO_TARGET_DIR", &self.target)
                // What is dead without the cure is no reason not to build.
                .env("RUSTFLAGS", "--cap-lints warn")
                .envs(&trap.environment);
            command
        };
        let built = cargo(&["build", "-q", "--bins"]).status()?;
        ensure!(built.success(), "{} does not build", trap.name);
        let tests = cargo(&["test", "-q", "-p", &trap.package, "--no-run"]).status()?;
        ensure!(
            tests.success(),
            "The tests of {} do not build",
            trap.package
        );
        let mut test = if trap.package == SYSTEM {
            cargo(&[
                "test", "-q", "-p", SYSTEM, "--test", "system", "--", "--exact", &trap.test,
            ])
        } else {
            cargo(&["test", "-q", "-p", &trap.package, "--", &trap.test])
        };
        let output = test.output()?;
        Ok(output.status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trap(lines: usize, without: &str) -> Trap {
        let text = format!(
            "name = 'n'\nwhat = ''\ncure = ''\npackage = 'p'\ntest = 't'\nlines = {lines}\nwithout = '{without}'"
        );
        toml::from_str(&text).expect("a trap")
    }

    #[test]
    fn a_cure_is_the_lines_below_its_mark() {
        let text = "a\n    // Trap: n\n    b\n    c\nd\n";
        assert_eq!(
            trap(1, "").spring(text).as_deref(),
            Ok("a\n    // Trap: n\n    c\nd\n")
        );
        assert_eq!(
            trap(2, "x").spring(text).as_deref(),
            Ok("a\n    // Trap: n\nx\nd\n")
        );
        assert!(trap(4, "x").spring(text).is_err());
        assert!(trap(1, "x").spring("a\n").is_err());
        assert!(trap(1, "x").spring(&text.repeat(2)).is_err());
    }
}
