//! The kernel's own tests of its interfaces, at home and moved. They are run where somebody has built them:
//! `WHIM_SELFTESTS_DIR` names a directory that `scripts/selftests` has made; without it there is no such
//! test here.
//!
//! Most of them are over in a moment and wait for nobody, so each is stopped before it begins, moved to
//! another node, and goes on there; and once more, where it is sent round until it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use whim_system_tests::mover::without_numbers;
use whim_system_tests::mover::{self, Moves, Plan};
use whim_system_tests::random::Random;
use whim_system_tests::{Case, Cluster, Context, Result, Setting, Talk, anyhow, guest};

use crate::suites::{self, Account, Compared, Mark, Outcome, Suite};

/// Labs, each of which runs one program at a time.
const WORKERS: usize = 2;
/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(90);
/// The mean time between two moves of one that is sent round.
const GAP: Duration = Duration::from_millis(150);
/// Words in a source of what must not be done on a machine that others use: its clock, its huge pages, how
/// its memory is managed.
const UNWANTED: &[&str] = &[
    "adjtimex",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "stime(",
    "nr_hugepages",
    "/sys/kernel/mm",
    "overcommit_memory",
    "drop_caches",
    "/sys/kernel/debug",
    "/sys/devices/system/memory",
    "/sys/power",
];
/// Programs that are no tests, or that take the whole machine: its memory, or its CPUs, by two hundred threads.
const LEFT_OUT: &[&str] = &[
    "mm/virtual_address_range",
    "mm/transhuge-stress",
    "mm/write_to_hugetlbfs",
    "rseq/basic_percpu_ops_test",
    "seccomp/seccomp_benchmark",
    "timers/rtcpie",
];
/// Programs that look at what cannot be hidden.
const VISIBLE: &[(&str, &str)] = &[
    ("futex/functional/futex_requeue", BEGINNING),
    ("futex/functional/futex_waitv", BEGINNING),
    (
        "rseq/basic_test",
        "which CPU it is on after it has bound itself to one",
    ),
    ("timers/inconsistency-check -t 1 -c 2", CPU_TIME),
    ("timers/inconsistency-check -t 1 -c 3", CPU_TIME),
];
const BEGINNING: &str = "how long threads take to begin: it gives them 10 or 30 ms, and each costs a message home and back";
const CPU_TIME: &str = "a clock of CPU time, which steps back when it comes home";
/// Programs that want arguments, as the scripts beside them give; each is a test of its own.
const ARGUMENTS: &[(&str, &[&[&str]])] = &[
    (
        "mm/userfaultfd",
        &[&["anon", "20", "16"], &["shmem", "20", "16"]],
    ),
    (
        "rseq/param_test",
        &[
            &["-T", "s", "-t", "4", "-r", "1000"],
            &["-T", "l", "-t", "4", "-r", "1000"],
            &["-T", "b", "-t", "4", "-r", "1000"],
            &["-T", "m", "-t", "4", "-r", "1000"],
            &["-T", "i", "-t", "4", "-r", "1000"],
        ],
    ),
    (
        "rseq/param_test_benchmark",
        &[&["-T", "s", "-t", "4", "-r", "1000"]],
    ),
    (
        "rseq/param_test_compare_twice",
        &[&["-T", "s", "-t", "4", "-r", "1000"]],
    ),
    (
        "timers/inconsistency-check",
        &[
            &["-t", "1", "-c", "0"],
            &["-t", "1", "-c", "1"],
            &["-t", "1", "-c", "2"],
            &["-t", "1", "-c", "3"],
            &["-t", "1", "-c", "4"],
            &["-t", "1", "-c", "5"],
            &["-t", "1", "-c", "6"],
            &["-t", "1", "-c", "7"],
        ],
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let Some(directory) = std::env::var_os("WHIM_SELFTESTS_DIR") else {
        return Vec::new();
    };
    let directory = PathBuf::from(directory);
    vec![Case::new("selftests::full::all", move |setting| {
        run_all(&directory, setting)
    })]
}

#[derive(Debug)]
struct Program {
    path: PathBuf,
    arguments: &'static [&'static str],
}

fn programs(directory: &Path) -> Result<Vec<(String, Program)>> {
    let root = directory.join("programs");
    let mut found = Vec::new();
    let mut places = vec![root.clone()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                places.push(path);
                continue;
            }
            let source = fs::read_to_string(path.with_extension("c")).unwrap_or_default();
            let name = path.strip_prefix(&root)?.display().to_string();
            let is_program = path.extension().is_none() && is_binary(&path);
            let unwanted = UNWANTED.iter().any(|word| source.contains(word));
            if !is_program || unwanted || LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let known = ARGUMENTS.iter().find(|(program, _)| *program == name);
            for &arguments in known.map_or(&[&[][..]][..], |(_, all)| all) {
                let words: Vec<&str> = [&[name.as_str()], arguments].concat();
                let name = words.join(" ");
                let path = path.clone();
                if suites::is_wanted(&name) {
                    found.push((name, Program { path, arguments }));
                }
            }
        }
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(found)
}

fn is_binary(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

fn run_all(directory: &Path, setting: &Setting) -> Result<()> {
    let shim = guest::c_with("ltp_shim", &["-shared", "-fPIC", "-ldl"])?;
    let programs = programs(directory)?;
    let labs: Vec<Cluster> = (0..WORKERS)
        .map(|_| Cluster::up(3))
        .collect::<Result<_>>()?;
    let suite = Suite {
        head: head(directory)?,
        file: "WHIM_SELFTESTS_FILE",
        reasons: true,
        visible: VISIBLE,
    };
    suites::judge_all(&suite, &labs, &programs, |cluster, program| {
        judge(cluster, &shim, program, setting.seed)
    })
}

fn head(directory: &Path) -> Result<String> {
    let version = fs::read_to_string(directory.join("version")).unwrap_or_default();
    let version: Vec<&str> = version
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|field| field.1)
        .collect();
    Ok(format!(
        "\
# The kernel's selftests

Written by `cargo xtask selftests --write`, which fetches the distribution's package of the kernel's source
and builds what tests the interfaces that travel: clone3, futex, membarrier, mm, pidfd, ptrace, rseq,
seccomp, sigaltstack and timers (`scripts/selftests`). Each program runs unmoved; moved before it begins;
and moved before it begins and then sent round between three nodes until it ends. Its status and what it
prints of passes, failures and skips have to be the same. Left out are programs that set the machine's
clock or change how its memory is managed, and those that need all of its memory or CPUs (but
for mm/protection_keys, which asks for ten huge pages).

{}, {}.

",
        version.join(" "),
        suites::here()?
    ))
}

/// What is done with a program while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Unmoved,
    Away,
    Moving,
}

fn judge(cluster: &Cluster, shim: &Path, program: &Program, seed: u64) -> Result<Outcome> {
    let mut all = Account::default();
    let mut results = Vec::new();
    for mode in [Mode::Away, Mode::Moving] {
        // What it told at home the first time is good for both.
        let mut known = (mode == Mode::Moving).then_some(results);
        let at_home = || match known.take() {
            Some(results) => Ok(results),
            None => {
                let mut nothing = Account::default();
                run(cluster, shim, program, Mode::Unmoved, seed, &mut nothing)
            }
        };
        let moved = || run(cluster, shim, program, mode, seed, &mut all);
        results = match suites::compare(at_home, moved)? {
            Compared::Same(results) => results,
            Compared::Differs(how) => return Ok(Outcome::Defect(format!("{mode:?}: {how}"))),
            Compared::Unsteady => return Ok(Outcome::Unsteady),
            Compared::TooLong => return Ok(Outcome::TooLong),
        };
    }
    if !all.failures.is_empty() {
        let failures: Vec<_> = all.failures.iter().cloned().collect();
        return Ok(Outcome::Defect(suites::shortened(&failures.join(" / "))));
    }
    let begins = |line: &&String, beginning: &str| line.starts_with(beginning);
    let failure = |line: &&String| {
        begins(line, "not ok")
            || begins(line, "status") && !matches!(line.as_str(), "status 0" | "status 4")
    };
    if let Some(failure) = results.iter().find(failure) {
        return Ok(Outcome::FailsAtHome(suites::shortened(failure)));
    }
    let mut passes = results.iter().filter(|line| begins(line, "ok")).peekable();
    let only_skips = passes.peek().is_some() && passes.all(|line| line.contains("SKIP"));
    if only_skips || results.iter().any(|line| line == "status 4") {
        return Ok(Outcome::NotHere);
    }
    Ok(match (all.moves, all.stays.is_empty()) {
        (0, _) => Outcome::Stays(all.reasons()),
        (_, true) => Outcome::Passes,
        (_, false) => Outcome::PassesPartly(all.reasons()),
    })
}

fn run(
    cluster: &Cluster,
    shim: &Path,
    program: &Program,
    mode: Mode,
    seed: u64,
    account: &mut Account,
) -> Result<Vec<String>> {
    let stem = program
        .path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let mark = Mark::new(&stem);
    let place = program.path.parent().unwrap_or(Path::new("/"));
    let mut words = suites::confined(&[
        format!("LD_PRELOAD={}", shim.display()),
        format!("LD_LIBRARY_PATH={}", place.display()),
        "WHIM_LTP_OLD=1".to_owned(),
        mark.variable(),
    ]);
    words.push(program.path.display().to_string());
    words.extend(program.arguments.iter().map(|&word| word.to_owned()));
    let mut command = match mode {
        Mode::Unmoved => cluster.command("n1", &words),
        Mode::Away | Mode::Moving => cluster.run_command("n1", &words),
    };
    let mut talk = Talk::start_in(cluster, &mark.name, &mut command)?;
    let result = attended(cluster, &mut talk, mode, seed, &mark, account);
    mark.end_all()?;
    let _ = fs::remove_dir_all(talk.directory());
    result.with_context(|| program.path.display().to_string())
}

/// Moves it, waits for its end, and gives its results.
fn attended(
    cluster: &Cluster,
    talk: &mut Talk,
    mode: Mode,
    seed: u64,
    mark: &Mark,
    account: &mut Account,
) -> Result<Vec<String>> {
    // A program that the library is not loaded into does not wait.
    if talk.ready().is_ok() {
        if mode != Mode::Unmoved {
            for process in mark.processes()? {
                account.move_to(cluster, &process, "n2")?;
            }
        }
        talk.go()?;
    }
    let ended = match mode {
        Mode::Moving => sent_round(cluster, talk, seed, account)?,
        Mode::Unmoved | Mode::Away => talk.ended_within(LIMIT)?.is_some(),
    };
    if !ended {
        return Err(anyhow!("It has not ended after {LIMIT:?}"));
    }
    let status = talk.end()?;
    let mut results = vec![match status.code() {
        Some(code) => format!("status {code}"),
        None => format!("status: {status}"),
    }];
    let said = talk.said.join("\n") + "\n" + &talk.errors();
    results.extend(said.lines().filter_map(result_of));
    results.sort();
    Ok(results)
}

/// Has it travel until it ends; false if it does not in time.
fn sent_round(
    cluster: &Cluster,
    talk: &mut Talk,
    seed: u64,
    account: &mut Account,
) -> Result<bool> {
    let (over, end) = channel();
    let plan = &Plan {
        focus: &[],
        gap: GAP,
        limit: 2 * LIMIT,
    };
    let (ended, moves) = std::thread::scope(|scope| {
        let mover = scope.spawn(move || {
            let mut random = Random::new(seed);
            mover::drive_until(cluster, &end, plan, &mut random, Arc::default())
        });
        let ended = talk.ended_within(LIMIT);
        let _ = over.send(());
        let moves = mover
            .join()
            .unwrap_or_else(|_| Err(anyhow!("The mover panicked")));
        (ended, moves)
    });
    note(account, &moves?);
    Ok(ended?.is_some())
}

fn note(account: &mut Account, moves: &Moves) {
    account.moves += moves.completed;
    for sentence in moves.refused.keys() {
        account.refused(sentence);
    }
}

/// A line that tells a result, without what differs by nature.
fn result_of(line: &str) -> Option<String> {
    let line = line.trim_start_matches(['#', ' ']);
    let is_result = line.starts_with("ok ") || line.starts_with("not ok ");
    is_result.then(|| without_numbers(line.trim_end()))
}
