//! The Linux Test Project's tests of system calls, at home and away. They are run where somebody has
//! built them: `WHIM_LTP_DIR` names the directory; without it there is no such test here.
//!
//! Each program runs once at home and once with the process that does the test moved to another
//! node before it begins. What it prints of passes, failures and skips has to be the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use whim_system_tests::cluster::Moved;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, guest};

use crate::suites::{self, Compared, Outcome, Suite};

/// Programs that run at the same time: most of them wait most of the time.
const WORKERS: usize = 3;
/// What a test must not do on a machine that others use, or cannot do without shared memory.
const UNWANTED: &[&str] = &[
    ".needs_device",
    ".mount_device",
    ".all_filesystems",
    ".needs_hugetlbfs",
    ".hugepages",
    ".restore_wallclock",
    ".needs_cgroup",
    ".needs_drivers",
    ".save_restore",
    ".needs_checkpoints",
    ".min_mem_avail",
    "TST_CHECKPOINT",
    "MAP_SHARED",
    "shmget",
    "kill(-1",
    "SAFE_MOUNT",
    "needs_overlay",
    "clock_settime",
    "settimeofday",
    "adjtime",
    "stime(",
    "wallclock",
];
/// Calls whose tests change the machine, or write back all of its files.
const UNWANTED_CALLS: &[&str] = &["adjtimex", "clock_adjtime", "syslog", "sync", "syncfs"];
const HEAD: &str = "\
# The Linux Test Project's tests

Written by `cargo xtask ltp DIR --write`, where `DIR` is a directory in which somebody has built the
Linux Test Project. Its programs for the system calls that are local, forwarded or decided by
argument run once at home and once away: the process that does the test moves before it begins.
What they print of passes, failures and skips has to be the same. Left out are programs that need
disks, mounts, hugepages, control groups or shared memory between their processes, and those that set
the machine's clock.

";
/// What it says then.
const UNCOUNTED: &str = "haven't reported results";
const VERDICTS: &[&str] = &["TPASS", "TFAIL", "TBROK", "TCONF", "TWARN"];

pub(crate) fn cases() -> Vec<Case> {
    let Some(directory) = std::env::var_os("WHIM_LTP_DIR") else {
        return Vec::new();
    };
    let directory = PathBuf::from(directory);
    vec![Case::in_lab("ltp::full::calls", 2, move |cluster| {
        run_all(cluster, &directory)
    })]
}

#[derive(Debug)]
struct Program {
    name: String,
    path: PathBuf,
    /// It tests in its first process.
    old: bool,
}

/// Calls of the classes that are not "go home", as the table's document says.
fn wanted_calls() -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/syscalls.md");
    let text = fs::read_to_string(path)?;
    let table = text.split("## Go home").next().unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let is_row = cells.next()?.parse::<u32>().is_ok();
        is_row.then(|| cells.next().map(str::to_owned))?
    };
    Ok(table.lines().filter_map(row).collect())
}

fn programs(directory: &Path) -> Result<Vec<Program>> {
    let calls = wanted_calls()?;
    let mut found = Vec::new();
    for call in calls {
        let place = directory.join("testcases/kernel/syscalls").join(&call);
        if UNWANTED_CALLS.contains(&call.as_str()) || !place.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&place)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let source = fs::read_to_string(place.join(format!("{name}.c"))).unwrap_or_default();
            let unwanted = UNWANTED.iter().any(|word| source.contains(word));
            if source.is_empty() || unwanted || !suites::is_wanted(name) {
                continue;
            }
            found.push(Program {
                name: name.to_owned(),
                old: !source.contains("tst_test.h") && !source.contains("struct tst_test"),
                path: path.clone(),
            });
        }
    }
    found.sort_by(|left: &Program, right| left.name.cmp(&right.name));
    Ok(found)
}

fn run_all(cluster: &Cluster, directory: &Path) -> Result<()> {
    let shim = guest::c_with("ltp_shim", &["-shared", "-fPIC", "-ldl"])?;
    let programs = programs(directory)?.into_iter();
    let programs: Vec<_> = programs
        .map(|program| (program.name.clone(), program))
        .collect();
    let suite = Suite {
        head: HEAD.to_owned(),
        file: "WHIM_LTP_FILE",
        reasons: false,
        visible: &[],
    };
    suites::judge_all(
        &suite,
        &[cluster; WORKERS],
        &programs,
        |cluster, program| judge(cluster, &shim, program),
    )
}

/// What a program prints of its results, and why it was not moved.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    results: Vec<String>,
    stays: Option<String>,
}

fn judge(cluster: &Cluster, shim: &Path, program: &Program) -> Result<Outcome> {
    let mut stays = None;
    let at_home = || Ok(run(cluster, shim, program, false)?.results);
    let compared = suites::compare(at_home, || {
        let told = run(cluster, shim, program, true)?;
        stays = told.stays;
        Ok(told.results)
    })?;
    let results = match compared {
        Compared::Same(results) => results,
        Compared::Differs(how) => return Ok(Outcome::Defect(how)),
        Compared::Unsteady => return Ok(Outcome::Unsteady),
        Compared::TooLong => return Ok(Outcome::TooLong),
    };
    let has = |kind: &str| results.iter().find(|line| line.contains(kind));
    let failures = || {
        let mut lines = results.iter();
        lines.find(|line| {
            line.contains("TFAIL") || line.contains("TBROK") && !line.contains(UNCOUNTED)
        })
    };
    if failures().is_none() && has(UNCOUNTED).is_some() {
        return Ok(Outcome::BreaksOff);
    }
    if let Some(failure) = failures() {
        return Ok(Outcome::FailsAtHome(failure.clone()));
    }
    if has("TPASS").is_none() {
        return Ok(Outcome::NotHere);
    }
    Ok(stays.map_or(Outcome::Passes, Outcome::Stays))
}

fn run(cluster: &Cluster, shim: &Path, program: &Program, moves: bool) -> Result<Told> {
    // Not for our own programs: only what they start loads it.
    let mut words = suites::confined(&[
        format!("LD_PRELOAD={}", shim.display()),
        "LTP_COLORIZE_OUTPUT=0".to_owned(),
        "LTP_TIMEOUT_MUL=3".to_owned(),
    ]);
    if program.old {
        words.push("WHIM_LTP_OLD=1".to_owned());
    }
    words.push(program.path.display().to_string());
    let mut command: Command = if moves {
        cluster.run_command("n1", &words)
    } else {
        cluster.command("n1", &words)
    };
    let mut talk = Talk::start(cluster, &mut command)?;
    let mut told = Told::default();
    while let Ok(pid) = talk.ready() {
        if moves && let Moved::Refused(reason) = cluster.migrate(pid, "n2")? {
            told.stays = Some(reason);
        }
        talk.go()?;
    }
    talk.end().context(program.name.clone())?;
    let said = talk.said.join("\n") + "\n" + &talk.errors();
    told.results = said.lines().filter_map(result_of).collect();
    told.results.sort();
    Ok(told)
}

/// A line that tells a result, without what differs by nature.
fn result_of(line: &str) -> Option<String> {
    if !VERDICTS.iter().any(|verdict| line.contains(verdict)) {
        return None;
    }
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find("LTP_") {
        out += &rest[..start];
        let tail = &rest[start + 4..];
        let end = tail
            .find(|character: char| !character.is_ascii_alphanumeric())
            .unwrap_or(tail.len());
        out += "LTP#";
        rest = &tail[end..];
    }
    out += rest;
    // The number of the line in its source stays: it tells which check it was.
    let (place, text) = match out.split_once(": T") {
        Some((place, text)) => (place.to_owned(), text.to_owned()),
        None => (String::new(), out),
    };
    let mut numberless = String::new();
    for character in text.chars() {
        if !character.is_ascii_hexdigit() || character.is_ascii_uppercase() {
            numberless.push(character);
        } else if character.is_ascii_digit() {
            if !numberless.ends_with('#') {
                numberless.push('#');
            }
        } else if !numberless.ends_with('#') {
            numberless.push(character);
        }
    }
    Some(format!("{place}: T{numberless}"))
}
