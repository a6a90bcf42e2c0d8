//! A hundred programs that people have, moved while they work (`tests/stays.txt`): who moves, who stays and why, and
//! who does away what it does not do at home.
//!
//! Each runs twice: unmoved, and so that each of its processes is sent to another node as soon as it is there, and
//! again when it has come home. What counts is the CPU time that it had away, and that its output is the same.
//! `cargo xtask stays` runs them one after the other, and what is known of one is kept: without it there is no such
//! test here.

mod list;
mod record;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use whim_system_tests::cluster::{Moved, Row};
use whim_system_tests::mover::without_numbers;
use whim_system_tests::process::Running;
use whim_system_tests::{Case, Cluster, Context, Result, bail, ensure, guest};

use crate::suites::{self, Account, Mark, shortened};
use list::Program;
use record::{Record, Records, Verdict};

/// How long a program may take at home.
const LIMIT: Duration = Duration::from_secs(400);
/// How long it may take at least when it is moved. Some forward each call: a database with a journal 16 for each of its
/// 120,000 transactions, which took 320 s on one day and more than 400 s on another, when CPUs were slow to wake.
const MOVED_LIMIT: Duration = Duration::from_secs(900);
/// How much longer it may take when it is moved, if that is more.
const SLOWER: u32 = 6;
/// Between two looks at what there is to move.
const ROUND: Duration = Duration::from_millis(250);
/// After a refusal, or a move: then the process is looked at again.
const AGAIN: Duration = Duration::from_secs(2);
/// What a program has to do away to be one that moves.
const WORK: Duration = Duration::from_secs(2);
/// The kernel's unit of CPU time in `/proc/PID/stat`, for all programs.
const TICK: Duration = Duration::from_millis(10);
/// How `whim log` begins when a program has come home for a call.
const HOMEWARD: &str = "Home by itself: ";
const TEXT_BYTES: u64 = 64 << 20;
const FILES: usize = 200;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("stays::list", |_| {
            let programs = list::of_project()?;
            ensure!(
                programs.len() >= 100,
                "There are only {} programs",
                programs.len()
            );
            nonsense_is_refused()
        }),
        Case::new("stays::most_move_and_others_say_why", |_| {
            most_move_and_others_say_why()
        }),
        Case::in_lab("stays::full::told_apart", 2, told_apart),
    ];
    if let Some(path) = std::env::var_os("WHIM_STAYS_RECORDS") {
        cases.push(Case::new("stays::full::all", move |_| {
            run_all(Path::new(&path))
        }));
    }
    cases
}

/// What is written down of the list: it is whole, enough of it moves, and nothing else is without a reason.
fn most_move_and_others_say_why() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/what-stays.md");
    let text = fs::read_to_string(path)?;
    let mut title = "";
    let (mut names, mut moved) = (BTreeSet::new(), 0);
    for line in text.lines() {
        title = line.strip_prefix("## ").unwrap_or(title);
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, _, _, _, why] = cells[..] else {
            continue;
        };
        let name = name.trim_start_matches("| ");
        if name == "program" {
            continue;
        }
        ensure!(
            names.insert(name.to_owned()),
            "{name} is written down twice"
        );
        match title.split(':').next() {
            Some("Move") => moved += 1,
            Some(title)
                if title.starts_with("Move, but") || title == "Stay" || title == "Left out" =>
            {
                let why = why.trim_end_matches('|').trim();
                ensure!(why.len() > 10, "{name} has no reason");
            }
            _ => bail!("{name} is among '{title}'"),
        }
    }
    let programs = list::of_project()?.into_iter();
    let listed: BTreeSet<String> = programs.map(|program| program.name).collect();
    ensure!(names == listed, "Of the list there is {names:?}");
    ensure!(moved >= 85, "{moved} move");
    Ok(())
}

fn nonsense_is_refused() -> Result<()> {
    for text in [
        "    a line of nobody",
        "no colon",
        "a: neither script nor reason",
        "a: x\n    needs word\n    script",
        "a: x\n    script\na: y\n    script",
        "a: x\n    left out it is not here\n    and a script",
    ] {
        ensure!(list::parse(text).is_err(), "'{text}' is a list");
    }
    Ok(())
}

/// The names of the command line: none are all.
fn wanted(programs: &[Program]) -> Result<Option<BTreeSet<String>>> {
    let names = std::env::var("WHIM_STAYS_NAMES").unwrap_or_default();
    let names: BTreeSet<String> = names.split_whitespace().map(str::to_owned).collect();
    for name in &names {
        ensure!(
            programs.iter().any(|program| program.name == *name),
            "tests/stays.txt has no program '{name}'"
        );
    }
    Ok((!names.is_empty()).then_some(names))
}

/// Runs those that are asked for, or of which nothing is known yet.
fn run_all(path: &Path) -> Result<()> {
    let programs = list::of_project()?;
    let wanted = wanted(&programs)?;
    let mut records = Records::open(path)?;
    let cluster = Cluster::up(2)?;
    prepare(&cluster)?;
    for program in &programs {
        let run = match &wanted {
            Some(names) => names.contains(&program.name),
            None => records.of(program).is_none(),
        };
        if run {
            if std::env::var_os("WHIM_STAYS_INSTALL").is_some() && program.left_out.is_none() {
                list::install(program)?;
            }
            let record = judge(&cluster, program)
                .with_context(|| program.name.clone())
                .unwrap_or_else(|error| broken(program, &error));
            println!(
                "{}: {:?} ({:.1} s away)",
                record.name, record.verdict, record.away_s
            );
            records.add(record)?;
        }
    }
    let report = records.report(&programs);
    println!("{report}");
    if let Some(document) = std::env::var_os("WHIM_STAYS_FILE") {
        fs::write(document, head()? + &report)?;
    }
    let concerns = |program: &&Program| match &wanted {
        Some(names) => names.contains(&program.name),
        None => true,
    };
    let defects: Vec<&str> = programs
        .iter()
        .filter(concerns)
        .filter_map(|program| records.of(program))
        .filter(|record| matches!(record.verdict, Verdict::Defect(_)))
        .map(|record| record.name.as_str())
        .collect();
    ensure!(defects.is_empty(), "Defects: {defects:?}");
    Ok(())
}

fn broken(program: &Program, error: &whim_system_tests::Error) -> Record {
    record_of(
        program,
        Verdict::Defect(shortened(&format!("{error:#}"))),
        &Told::default(),
    )
}

fn head() -> Result<String> {
    Ok(format!(
        "\
# What stays

Written by `cargo xtask stays --write`, which moves the programs of `tests/stays.txt` while they work, one after the
other. Each runs unmoved, and then so that each of its processes is sent to a second node as soon as it is there, and
again two seconds after it has come home; servers that have parted from whoever started them are adopted first. A
program moves if its output is the same, and it had at least two seconds of CPU time away. One that stays says why: the
sentence is that of `whim migrate`.

Debian 12, {}.

",
        suites::here()?
    ))
}

/// What the scripts find in `../in`.
fn prepare(cluster: &Cluster) -> Result<()> {
    let inputs = cluster.directory().join("in");
    fs::create_dir_all(inputs.join("tree"))?;
    let text = guest::text(TEXT_BYTES)?;
    std::os::unix::fs::symlink(&text, inputs.join("text"))?;
    let text = fs::read_to_string(&text)?;
    for (number, line) in text.lines().take(FILES).enumerate() {
        fs::write(
            inputs.join(format!("tree/{number}")),
            format!("{line}\n").repeat(20),
        )?;
    }
    Ok(())
}

/// How one run went.
#[derive(Debug, Default)]
struct Told {
    /// Its end and its output; nothing if it did not end in time.
    result: Option<(String, Vec<u8>)>,
    errors: String,
    account: Account,
    away: Duration,
    /// What has brought it home, or has kept it from being stopped.
    hindered: BTreeSet<String>,
    took: Duration,
}

fn record_of(program: &Program, verdict: Verdict, told: &Told) -> Record {
    Record {
        name: program.name.clone(),
        script: program.script.clone(),
        verdict,
        away_s: told.away.as_secs_f64(),
        moves: told.account.moves,
    }
}

fn judge(cluster: &Cluster, program: &Program) -> Result<Record> {
    let nothing = Told::default();
    if let Some(reason) = &program.left_out {
        return Ok(record_of(
            program,
            Verdict::LeftOut(reason.clone()),
            &nothing,
        ));
    }
    let missing = program.missing();
    if !missing.is_empty() {
        let verdict = Verdict::Missing(missing.join(", "));
        return Ok(record_of(program, verdict, &nothing));
    }
    let home = run(cluster, program, None)?;
    let Some((status, output)) = &home.result else {
        return Ok(record_of(program, Verdict::TooLong, &nothing));
    };
    if status != SUCCESS || output.is_empty() {
        let verdict = Verdict::FailsAtHome(shortened(&format!("{status}: {}", home.errors)));
        return Ok(record_of(program, verdict, &nothing));
    }
    let limit = MOVED_LIMIT.max(home.took * SLOWER);
    let mut moved = run(cluster, program, Some(limit))?;
    if moved.account.moves == 0 && moved.account.stays.is_empty() {
        // On a machine that has other things to do it may have ended before anybody was asked.
        moved = run(cluster, program, Some(limit))?;
    }
    let verdict = if moved.result == home.result {
        compared(&moved)
    } else if run(cluster, program, None)?.result == home.result {
        Verdict::Defect(difference(&home, &moved))
    } else {
        Verdict::Unsteady
    };
    Ok(record_of(program, verdict, &moved))
}

/// What is to be said of a program whose output is the same.
fn compared(moved: &Told) -> Verdict {
    let failures: Vec<&str> = moved.account.failures.iter().map(String::as_str).collect();
    let stays = moved.account.reasons();
    if !failures.is_empty() {
        Verdict::Defect(shortened(&failures.join(" / ")))
    } else if moved.away < WORK && !stays.is_empty() {
        Verdict::Stays(stays)
    } else if moved.away < WORK {
        let hindered: Vec<&str> = moved.hindered.iter().map(String::as_str).collect();
        Verdict::Hardly(match hindered.as_slice() {
            [] => "it ended before".to_owned(),
            reasons => shortened(&reasons.join("; ")),
        })
    } else if stays.is_empty() {
        Verdict::Moves
    } else {
        Verdict::Partly(stays)
    }
}

fn difference(home: &Told, moved: &Told) -> String {
    let shown = |told: &Told| match &told.result {
        None => format!("no end within {:?}", told.took),
        Some((status, output)) => {
            let end = String::from_utf8_lossy(&output[output.len().saturating_sub(80)..]);
            format!("{status}, {} bytes, ...{end:?}", output.len())
        }
    };
    shortened(&format!(
        "At home {}; moved {}. {}",
        shown(home),
        shown(moved),
        moved.errors
    ))
}

const SUCCESS: &str = "exit status: 0";

/// Runs a program in a directory of its own: unmoved, or moved for so long.
fn run(cluster: &Cluster, program: &Program, moved: Option<Duration>) -> Result<Told> {
    let mark = Mark::new(&program.name);
    let directory = cluster.directory().join(&mark.name);
    fs::create_dir_all(&directory)?;
    // Some programs become another user.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
    fs::write(directory.join("steps"), &program.script)?;
    let variable = mark.variable();
    let words = ["env", &variable, "bash", "steps"];
    let mut command = match moved {
        None => cluster.command("n1", &words),
        Some(_) => cluster.run_command("n1", &words),
    };
    command
        .current_dir(&directory)
        .env("PATH", list::PATH)
        .stdin(Stdio::null())
        .stdout(File::create(directory.join("output"))?)
        .stderr(File::create(directory.join("errors"))?);
    let before = cluster.log()?.len();
    let begun = Instant::now();
    let mut running = Running::spawn(&mut command)?;
    let mut told = Told::default();
    let status = match moved {
        None => running.wait_up_to(LIMIT)?,
        Some(limit) => attend(cluster, program, &mut running, &mark, limit, &mut told)?,
    };
    told.took = begun.elapsed();
    mark.end_all()?;
    if let Some(status) = status {
        told.result = Some((status.to_string(), fs::read(directory.join("output"))?));
    }
    told.errors = String::from_utf8_lossy(&fs::read(directory.join("errors"))?).into_owned();
    for row in cluster.log()?.iter().skip(before) {
        let text = row.get("text").and_then(|text| text.as_str());
        if let Some(why) = text.and_then(|text| text.strip_prefix(HOMEWARD)) {
            told.hindered
                .insert(format!("it came home: {}", without_numbers(why)));
        }
    }
    if std::env::var_os("WHIM_KEEP").is_none() {
        let _ = fs::remove_dir_all(&directory);
    }
    Ok(told)
}

/// Sends each process away that is at home, until the program ends.
fn attend(
    cluster: &Cluster,
    program: &Program,
    running: &mut Running,
    mark: &Mark,
    limit: Duration,
    told: &mut Told,
) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut work = Work::new(cluster);
    let mut tried: BTreeMap<i32, Instant> = BTreeMap::new();
    let mut adopted: BTreeSet<i32> = BTreeSet::new();
    let status = loop {
        if let Some(status) = running.wait_up_to(ROUND)? {
            break Some(status);
        }
        if begun.elapsed() > limit {
            break None;
        }
        let processes = mark.processes()?;
        let mut rows = cluster.rows("n1", false)?;
        // A server that has parted from whoever started it is nobody's candidate until it is given to us.
        for process in processes {
            if rows.iter().all(|row| row.pid != process.pid) && adopted.insert(process.pid) {
                let _ = cluster.whim("n1", &["adopt", &process.pid.to_string()]);
            }
        }
        // Those that were made last first: the others wait for them.
        rows.sort_by_key(|row| Reverse(row.pid));
        for row in rows {
            work.look()?;
            let waits = tried.get(&row.pid).is_some_and(|at| at.elapsed() < AGAIN);
            if waits || !is_to_move(program, &row) {
                continue;
            }
            send(cluster, row.pid, told)?;
            tried.insert(row.pid, Instant::now());
        }
        work.look()?;
    };
    told.away = work.sum();
    Ok(status)
}

fn is_to_move(program: &Program, row: &Row) -> bool {
    let is_meant = |word: &String| row.command.contains(word.as_str());
    row.state == "home" && program.moves.as_ref().is_none_or(is_meant)
}

/// Moves a process, or notes why not; one that ends meanwhile is none of our business.
fn send(cluster: &Cluster, pid: i32, told: &mut Told) -> Result<()> {
    match cluster.migrate(pid, "n2")? {
        Moved::Done(_) => told.account.moves += 1,
        // It is asked again.
        Moved::Refused(sentence) if sentence.contains("cannot be stopped now") => {
            told.hindered.insert(without_numbers(&sentence));
        }
        Moved::Refused(sentence) => {
            let stays = sentence.contains("cannot move now");
            if stays || cluster.row(pid)?.is_some() {
                told.account.refused(&sentence);
            }
        }
    }
    Ok(())
}

/// The CPU time of guests.
#[derive(Debug)]
struct Work {
    /// Whose children they are.
    supervisor: PathBuf,
    /// Of each process, by its number and when it was started.
    seen: BTreeMap<(i32, u64), u64>,
}

impl Work {
    fn new(cluster: &Cluster) -> Self {
        Self {
            supervisor: cluster.whim_path().with_file_name("whim-guest"),
            seen: BTreeMap::new(),
        }
    }

    /// What guests have had so far.
    fn look(&mut self) -> Result<()> {
        let mut supervisors = BTreeSet::new();
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(pid) = name.and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if fs::read_link(path.join("exe")).is_ok_and(|exe| exe == self.supervisor) {
                supervisors.insert(pid);
            }
            let text = fs::read(path.join("stat")).unwrap_or_default();
            all.extend(Times::of(pid, &String::from_utf8_lossy(&text)));
        }
        for times in all {
            if supervisors.contains(&times.parent) && !supervisors.contains(&times.pid) {
                let key = (times.pid, times.started);
                self.seen.insert(key, times.ticks);
            }
        }
        Ok(())
    }

    fn sum(&self) -> Duration {
        let ticks: u64 = self.seen.values().sum();
        TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}

/// What `/proc/PID/stat` tells of a process.
#[derive(Clone, Copy, Debug)]
struct Times {
    pid: i32,
    parent: i32,
    ticks: u64,
    started: u64,
}

impl Times {
    fn of(pid: i32, text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
            started: number(19)?,
        })
    }
}

/// One that moves, one that stays, and one that tells the difference: its parent looks whether it is traced.
const EXAMPLES: &str = "
mover: a loop
    x=1; for ((i = 0; i < 5000000; i++)); do ((x = (x * 48271 + i) % 2147483647)); done; echo $x
stayer: a loop beside shared memory
    echo 'import mmap
    shared = mmap.mmap(-1, 4096); x = 1
    for i in range(30000000): x = (x * 48271 + i) % 2147483647
    print(x)' > a.py; exec python3 a.py
defect: a loop whose parent looks
    moves count
    echo 'for ((i = 0; i < 2500000; i++)); do ((x = i)); done' > count; bash count & seen=0
    while kill -0 $! 2> gone; do grep -q 'TracerPid:.[1-9]' /proc/$!/status 2> gone && seen=1; sleep 0.1; done
    echo $seen
absent: a package that nobody has
    needs no-such-package=/no/such/file
    true
silent: a program that fails
    false
";

fn told_apart(cluster: &Cluster) -> Result<()> {
    prepare(cluster)?;
    let programs = list::parse(EXAMPLES)?;
    let path = cluster.directory().join("records");
    let mut records = Records::open(&path)?;
    for program in &programs {
        let record = judge(cluster, program)?;
        println!("{record:?}");
        let as_expected = match (program.name.as_str(), &record.verdict) {
            ("mover", Verdict::Moves) => record.away_s >= WORK.as_secs_f64(),
            ("stayer", Verdict::Stays(why)) => why.contains("shared memory"),
            ("defect", Verdict::Defect(how)) => how.contains("moved exit status: 0, 2 bytes"),
            ("absent", Verdict::Missing(packages)) => packages == "no-such-package",
            ("silent", Verdict::FailsAtHome(how)) => how.contains("exit status: 1"),
            _ => false,
        };
        ensure!(as_expected, "{record:?}");
        records.add(record)?;
    }
    // Who goes on finds what there is, but for what may have come meanwhile or was changed.
    let records = Records::open(&path)?;
    let known = programs
        .iter()
        .filter(|program| records.of(program).is_some());
    ensure!(known.count() == 4, "{records:?}");
    let mut changed = programs[0].clone();
    changed.script += "true\n";
    ensure!(records.of(&changed).is_none(), "It was another script");
    let report = records.report(&programs);
    for title in ["Move: 1", "Stay: 1", "Defects: 1"] {
        ensure!(report.contains(&format!("## {title}\n")), "{report}");
    }
    Ok(())
}
