//! What the watched program does, and how its files show that everything happened once.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whim_system_tests::{Context, Result, ensure, guest, process};

/// Each appends numbers to the file `serial`, and ends with status 7 once there is a file `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Two threads that also watch their signal masks and registers.
    Serial,
    /// It pays over TCP, and its child at home writes what has come.
    Ledger,
    /// A transaction of sqlite a number.
    Database,
}

impl Workload {
    /// Its command, and the name that the kernel gives it.
    pub(crate) fn command(self) -> Result<(Vec<String>, String)> {
        let (words, program) = match self {
            Self::Serial => Self::of(guest::c("steady")?.as_path()),
            Self::Ledger => Self::of(guest::c("ledger")?.as_path()),
            Self::Database => {
                let python = fs::canonicalize("/usr/bin/python3")?;
                let (mut words, program) = Self::of(&python);
                words.push(guest::script("accounts.py")?.display().to_string());
                (words, program)
            }
        };
        // As the kernel cuts names of processes.
        Ok((words, program.chars().take(15).collect()))
    }

    fn of(path: &Path) -> (Vec<String>, String) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (vec![path.display().to_string()], name.into_owned())
    }

    /// Limits under which it runs.
    pub(crate) fn limits(self) -> &'static str {
        match self {
            // Every departure has to raise them.
            Self::Serial => "ulimit -S -v 4000000 && ulimit -S -n 6",
            Self::Ledger | Self::Database => "ulimit -S -v 4000000",
        }
    }

    /// How many threads it has.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Serial => 2,
            Self::Ledger | Self::Database => 1,
        }
    }

    /// What else its files have to say once it has ended.
    pub(crate) fn check(self, directory: &Path) -> Result<()> {
        match self {
            Self::Serial => Ok(()),
            Self::Ledger => ledger(directory),
            Self::Database => database(directory),
        }
    }
}

/// Every debit is a credit; but for the last one, which may have been on its way.
fn ledger(directory: &Path) -> Result<()> {
    let debits = fs::read_to_string(directory.join("debits"))?;
    let credits = fs::read_to_string(directory.join("serial"))?;
    let rest = debits
        .strip_prefix(&credits)
        .context("What was paid is not what was received")?;
    ensure!(rest.lines().count() <= 1, "Payments are missing: {rest}");
    Ok(())
}

const INSPECT: &str = "
import sqlite3
database = sqlite3.connect('accounts.db')
assert database.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
numbers = [row[0] for row in database.execute('SELECT number FROM entries ORDER BY number')]
assert numbers == list(range(len(numbers))), numbers
total = sum(number * 7 % 101 for number in numbers)
assert database.execute('SELECT amount FROM total').fetchall() == [(total,)]
print(len(numbers))
";

/// The database is whole, and has each number that is in the file; at most one more.
fn database(directory: &Path) -> Result<()> {
    let mut inspection = Command::new("/usr/bin/python3");
    inspection.args(["-c", INSPECT]).current_dir(directory);
    let text = process::succeed(&mut inspection, Duration::from_secs(60))?;
    let entries: usize = text.trim().parse()?;
    let lines = fs::read_to_string(directory.join("serial"))?
        .lines()
        .count();
    ensure!(
        entries == lines || entries == lines + 1,
        "{entries} transactions and {lines} lines"
    );
    Ok(())
}
