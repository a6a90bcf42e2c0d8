//! What a program can notice of itself, away and on the way: each case of the guests below
//! `tests/guests/exact` runs twice, once where nothing is moved, and once out and home again
//! wherever it says that it may be moved. It has to see the same.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest, process};

const SHORT: Duration = Duration::from_secs(30);
/// Where a program goes at each of its meetings; it begins again when it has more.
const WAY: [&str; 4] = ["n2", "home", "n3", "home"];
/// Families whose cases wait most of the time.
const WAITING: [&str; 2] = ["restarts", "timers"];
/// Differing lines that are shown of one case.
const SHOWN: usize = 12;

/// One test for each file of guests.
pub(crate) fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::in_lab("exactness::core", 2, cores)];
    for entry in fs::read_dir(guest::source("exact"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(family) = name.strip_suffix(".c")
            && family != "common"
        {
            let family = family.to_owned();
            let set = if WAITING.contains(&family.as_str()) {
                "full::"
            } else {
                ""
            };
            let name = format!("exactness::{set}{family}");
            cases.push(Case::in_lab(name, 3, move |cluster| {
                compare_all(cluster, &family)
            }));
        }
    }
    Ok(cases)
}

/// What the debugger is asked of a core.
const QUESTIONS: [&str; 7] = [
    "bt",
    "info registers rip r12 r13 r14 rsp eflags",
    "p $xmm7.v2_int64[0]",
    "p marker",
    "x/s heap + 500000",
    "p $_siginfo.si_signo",
    "thread apply all bt 3",
];

/// A program that dies away leaves the same core at home as one that never left, for a debugger: the
/// same functions, registers and memory. Addresses are not randomised, so that they can be compared.
fn cores(cluster: &Cluster) -> Result<()> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if pattern.trim().contains(['|', '/', '%']) {
        // It is the machine's, and not ours to change.
        println!("This machine's cores go to {pattern}: nothing is tested");
        return Ok(());
    }
    let program = guest::c("core")?.display().to_string();
    for how in ["0", "1", "2"] {
        let words = ["setarch", "-R", &program, how];
        let mut answers = Vec::new();
        for moves in [false, true] {
            // Another lease would stand in its environment (WHIM_RULES), and so its stack elsewhere.
            let mut command = if moves {
                cluster.short_command("n1", &words)
            } else {
                cluster.command("n1", &words)
            };
            let mut talk = Talk::start(cluster, &mut command)?;
            let pid = talk.ready()?;
            if moves {
                cluster.move_to(pid, "n2")?;
            }
            talk.go()?;
            let status = talk.end()?;
            answers.push((status, ask_debugger(&program, talk.directory())?));
        }
        println!("core {how}: {:#?}", answers[1]);
        ensure!(
            answers[0].1.iter().any(|line| line.contains("innermost")),
            "No core tells of the end: {answers:#?}"
        );
        ensure!(
            answers[0] == answers[1],
            "core {how}: unmoved {:#?}\nmoved {:#?}",
            answers[0],
            answers[1]
        );
    }
    Ok(())
}

/// What it says of the core in this directory, without the numbers of threads.
fn ask_debugger(program: &str, directory: &Path) -> Result<Vec<String>> {
    let mut names = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let core = names
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("core"))
        })
        .with_context(|| format!("There is no core in {}", directory.display()))?;
    let mut debugger = Command::new("gdb");
    debugger.args(["-batch", "-nx", program]).arg(core);
    for question in QUESTIONS {
        debugger.args(["-ex", question]);
    }
    let said = process::succeed(&mut debugger, SHORT)?;
    Ok(said.lines().map(without_numbers).collect())
}

/// A line without ids of threads. A thread that waited in a call while the process died stands behind
/// that call at home, and right before it where it has come home for the end: its address goes, too.
fn without_numbers(line: &str) -> String {
    let mut line = line.to_owned();
    for before in ["LWP ", "reg-xstate/"] {
        if let Some((start, rest)) = line.split_once(before) {
            let rest = rest.trim_start_matches(|character: char| character.is_ascii_digit());
            line = format!("{start}{before}{rest}");
        }
    }
    match line.split_once(" in ") {
        Some((frame, rest)) if frame.starts_with("#0  0x") => format!("#0  {rest}"),
        _ => line,
    }
}

/// What a case may do, as the guest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing that it does away brings it home.
    Away,
    /// Something brings it home, in each part that begins away.
    Home,
    Anywhere,
}

fn program(family: &str) -> Result<String> {
    let source = format!("{family}.c");
    let files = ["../meet.h", "common.h", "common.c", source.as_str()];
    let program = guest::c_of("exact", &format!("exact-{family}"), &files)?;
    Ok(program.display().to_string())
}

/// `WHIM_CASES=NAME` runs one case alone, for those who look for a fault.
fn compare_all(cluster: &Cluster, family: &str) -> Result<()> {
    let program = program(family)?;
    let list = process::succeed(&mut Command::new(&program), SHORT)?;
    let only = std::env::var("WHIM_CASES").ok();
    let mut faults = Vec::new();
    let mut count = 0;
    for line in list.lines() {
        let (name, place) = line.split_once(' ').context("A list of cases")?;
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let place = match place {
            "away" => Place::Away,
            "home" => Place::Home,
            "anywhere" => Place::Anywhere,
            _ => bail!("No place is called {place}"),
        };
        count += 1;
        if let Err(error) = compare(cluster, &[&program, name], place) {
            faults.push(format!("{name}: {error:#}"));
        }
    }
    println!("{family}: {count} cases");
    ensure!(count > 0, "{family} has no cases");
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn compare(cluster: &Cluster, words: &[&str], place: Place) -> Result<()> {
    let mut unmoved = Talk::start(cluster, &mut cluster.command("n1", words))?;
    while unmoved.ready().is_ok() && unmoved.go().is_ok() {}
    let expected = unmoved.end()?;
    let mut moved = Talk::start(cluster, &mut cluster.run_command("n1", words))?;
    let status = go_about(cluster, &mut moved, place)
        .with_context(|| format!("It said {:#?}; {}", moved.said, moved.errors()))?;
    let pairs = unmoved.said.iter().zip(&moved.said);
    let differing: Vec<String> = pairs
        .filter(|(unmoved, moved)| unmoved != moved)
        .take(SHOWN)
        .map(|(unmoved, moved)| format!("unmoved {unmoved}\n  moved {moved}"))
        .collect();
    ensure!(differing.is_empty(), "\n  {}", differing.join("\n  "));
    ensure!(
        unmoved.said.len() == moved.said.len(),
        "unmoved {:#?}\nmoved {:#?}\n{}",
        unmoved.said,
        moved.said,
        moved.errors()
    );
    ensure!(expected == status, "unmoved {expected}, moved {status}");
    let fault = moved.said.iter().find(|line| line.starts_with("fault"));
    ensure!(fault.is_none(), "{fault:?}");
    Ok(())
}

/// Moves it at each of its meetings, until it ends.
fn go_about(cluster: &Cluster, moved: &mut Talk, place: Place) -> Result<ExitStatus> {
    let mut before: Option<(i32, &str)> = None;
    for target in WAY.iter().cycle() {
        let Ok(pid) = moved.ready() else { break };
        if let Some((last, sent)) = before
            && last == pid
            && sent != "home"
        {
            let now = place_of(cluster, pid)?;
            ensure!(
                place != Place::Away || now == sent,
                "It was to stay on {sent} and is on {now}: {}",
                why_home(cluster)?
            );
            ensure!(
                place != Place::Home || now == "n1",
                "It was to come home and is on {now}"
            );
        }
        if *target != "home" || place_of(cluster, pid)? != "n1" {
            cluster.move_to(pid, target)?;
        }
        before = Some((pid, target));
        moved.go()?;
    }
    moved.end()
}

fn place_of(cluster: &Cluster, pid: i32) -> Result<String> {
    let row = cluster.row(pid)?;
    Ok(row.with_context(|| format!("{pid} is gone"))?.place)
}

fn why_home(cluster: &Cluster) -> Result<String> {
    let log = cluster.log()?;
    let last = log.iter().rev().find_map(|event| {
        let text = event.to_string();
        text.contains("Home by itself").then_some(text)
    });
    Ok(last.unwrap_or_default())
}
