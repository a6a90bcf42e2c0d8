//! How each program of the list did, kept from run to run, and the document of that.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use whim_system_tests::{Context, Result};

use super::list::Program;

/// How one program did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// It worked away, and its output was the same.
    Moves,
    /// The same; not all of its processes could be moved: why.
    Partly(String),
    /// The same, but it worked away less than two seconds: what brought it home.
    Hardly(String),
    /// Nothing of it that works could be moved: why.
    Stays(String),
    /// It is not run: why.
    LeftOut(String),
    /// It is not here: these packages.
    Missing(String),
    FailsAtHome(String),
    /// Two runs at home differ already.
    Unsteady,
    TooLong,
    Defect(String),
}

impl Verdict {
    const TITLES: [&str; 10] = [
        "Move",
        "Move, but not all of their processes",
        "Move, but work away less than two seconds",
        "Stay",
        "Left out",
        "Not installed where this was run",
        "Fail at home as well",
        "Differ from run to run at home",
        "Take too long at home",
        "Defects",
    ];

    fn told(&self) -> (usize, &str) {
        match self {
            Self::Moves => (0, ""),
            Self::Partly(why) => (1, why),
            Self::Hardly(why) => (2, why),
            Self::Stays(why) => (3, why),
            Self::LeftOut(why) => (4, why),
            Self::Missing(packages) => (5, packages),
            Self::FailsAtHome(why) => (6, why),
            Self::Unsteady => (7, ""),
            Self::TooLong => (8, ""),
            Self::Defect(why) => (9, why),
        }
    }
}

/// What is known of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: String,
    /// What was run: if it changes, this is worth nothing.
    pub(super) script: String,
    pub(super) verdict: Verdict,
    /// CPU time away, in seconds.
    pub(super) away_s: f64,
    pub(super) moves: u32,
}

/// All records, in a file of a line for each.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    known: BTreeMap<String, Record>,
}

impl Records {
    /// What earlier runs have left there; nothing if there is no such file.
    ///
    /// # Errors
    /// When it is not as such runs leave it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let mut known = BTreeMap::new();
        for line in text.lines() {
            let record: Record = serde_json::from_str(line)
                .with_context(|| format!("{}: '{line}' is no record", path.display()))?;
            known.insert(record.name.clone(), record);
        }
        Ok(Self {
            path: path.to_owned(),
            known,
        })
    }

    /// What is known of this program as the list has it now. A package that was missing may have come.
    pub(super) fn of(&self, program: &Program) -> Option<&Record> {
        let record = self.known.get(&program.name)?;
        let holds =
            record.script == program.script && !matches!(record.verdict, Verdict::Missing(_));
        holds.then_some(record)
    }

    /// Adds one, for good.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&mut self, record: Record) -> Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| self.path.display().to_string())?;
        writeln!(file, "{}", serde_json::to_string(&record)?)?;
        self.known.insert(record.name.clone(), record);
        Ok(())
    }

    /// The lists of the document, of these programs.
    pub(super) fn report(&self, programs: &[Program]) -> String {
        let mut text = String::new();
        let record = |program: &Program| {
            let record = self.known.get(&program.name);
            record.filter(|record| record.script == program.script)
        };
        for (kind, title) in Verdict::TITLES.iter().enumerate() {
            let mut rows = Vec::new();
            for program in programs {
                let Some(record) = record(program) else {
                    continue;
                };
                if record.verdict.told().0 == kind {
                    rows.push(row(program, record));
                }
            }
            if rows.is_empty() && *title != "Defects" {
                continue;
            }
            text += &format!("## {title}: {}\n", rows.len());
            if !rows.is_empty() {
                text += "\n| program | what it does | CPU time away | moves | why |\n|---|---|--:|--:|---|\n";
                text += &rows.concat();
            }
            text += "\n";
        }
        let not_run: Vec<&str> = programs
            .iter()
            .filter(|program| record(program).is_none())
            .map(|program| program.name.as_str())
            .collect();
        if !not_run.is_empty() {
            text += &format!(
                "## Not run yet: {}\n\n{}\n",
                not_run.len(),
                not_run.join(", ")
            );
        }
        text.trim_end().to_owned() + "\n"
    }
}

fn row(program: &Program, record: &Record) -> String {
    let away = if record.moves == 0 {
        " | ".to_owned()
    } else {
        format!("{:.1} s | {}", record.away_s, record.moves)
    };
    format!(
        "| {} | {} | {away} | {} |\n",
        program.name,
        program.does.replace('|', "\\|"),
        record.verdict.told().1.replace('|', "\\|")
    )
}
