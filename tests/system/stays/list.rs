//! What is in `tests/stays.txt`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use whim_system_tests::process::{output, succeed};
use whim_system_tests::{Context, Result, bail, ensure};

/// How long a package may take to come.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);
const PROBE_LIMIT: Duration = Duration::from_secs(120);
/// Where programs are found: those of the packages, whatever else its people have put on the machine.
pub(super) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A program of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    /// What it does, for people.
    pub(super) does: String,
    needs: Vec<Need>,
    /// Only processes whose command holds this are moved.
    pub(super) moves: Option<String>,
    /// Why it is not run.
    pub(super) left_out: Option<String>,
    /// For bash.
    pub(super) script: String,
}

/// A package, and what shows that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    package: String,
    shown_by: String,
}

impl Program {
    fn new(line: &str) -> Result<Self> {
        let parts = line.split_once(':');
        let (name, does) = parts.with_context(|| format!("'{line}' has no colon"))?;
        ensure!(
            !name.is_empty() && name.chars().all(|letter| !letter.is_whitespace()),
            "'{name}' is no name of a program"
        );
        Ok(Self {
            name: name.to_owned(),
            does: does.trim().to_owned(),
            needs: Vec::new(),
            moves: None,
            left_out: None,
            script: String::new(),
        })
    }

    /// Takes up an indented line.
    fn add(&mut self, line: &str) -> Result<()> {
        let begins = self.script.is_empty();
        if let (true, Some(words)) = (begins, line.strip_prefix("needs ")) {
            for word in words.split_whitespace() {
                let parts = word.split_once('=');
                let (package, shown_by) =
                    parts.with_context(|| format!("'{word}' is not PACKAGE=WHAT"))?;
                self.needs.push(Need {
                    package: package.to_owned(),
                    shown_by: shown_by.to_owned(),
                });
            }
        } else if let (true, Some(word)) = (begins, line.strip_prefix("moves ")) {
            self.moves = Some(word.to_owned());
        } else if let (true, Some(reason)) = (begins, line.strip_prefix("left out ")) {
            self.left_out = Some(reason.to_owned());
        } else {
            self.script += line;
            self.script += "\n";
        }
        Ok(())
    }

    /// The packages that are not there.
    pub(super) fn missing(&self) -> Vec<&str> {
        let missing = self.needs.iter().filter(|need| !need.is_met());
        missing.map(|need| need.package.as_str()).collect()
    }
}

impl Need {
    fn is_met(&self) -> bool {
        let what = self.shown_by.as_str();
        let probe = if let Some(module) = what.strip_prefix("py:") {
            format!("python3 -c 'import {module}'")
        } else if what.starts_with('/') {
            format!("compgen -G '{what}'")
        } else {
            format!("command -v '{what}'")
        };
        let mut command = Command::new("bash");
        command.args(["-c", &probe]).env("PATH", PATH);
        output(&mut command, PROBE_LIMIT).is_ok_and(|output| output.status.success())
    }
}

/// Reads a list.
///
/// # Errors
/// When a line means nothing, a name is there twice, or a program has neither script nor reason.
pub(super) fn parse(text: &str) -> Result<Vec<Program>> {
    let mut programs: Vec<Program> = Vec::new();
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix("    "), programs.last_mut()) {
            (Some(line), Some(program)) => program.add(line)?,
            (Some(_), None) => bail!("'{line}' belongs to no program"),
            (None, _) => programs.push(Program::new(line)?),
        }
    }
    for (index, program) in programs.iter().enumerate() {
        let name = &program.name;
        ensure!(
            programs[..index].iter().all(|other| other.name != *name),
            "{name} is there twice"
        );
        ensure!(
            program.script.is_empty() == program.left_out.is_some(),
            "{name} has to have a script, or the reason why it is left out"
        );
    }
    Ok(programs)
}

/// The list of the project.
///
/// # Errors
/// As [`parse`], or when it cannot be read.
pub(super) fn of_project() -> Result<Vec<Program>> {
    let path = path();
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("stays.txt")
}

/// Installs what a program needs and this machine does not have.
///
/// # Errors
/// When apt cannot.
pub(super) fn install(program: &Program) -> Result<()> {
    let missing = program.missing();
    if missing.is_empty() {
        return Ok(());
    }
    println!("{}: installs {}", program.name, missing.join(" "));
    let mut command = Command::new("apt-get");
    command
        .args(["install", "-q", "-y", "--no-install-recommends"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    succeed(&mut command, INSTALL_LIMIT).map(drop)
}
