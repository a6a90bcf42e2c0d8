//! What the suites of others have in common: programs that are run at home and moved, and whose results are
//! compared, and the document that says how they did.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use whim_system_tests::cluster::Moved;
use whim_system_tests::mover::without_numbers;
use whim_system_tests::process::succeed;
use whim_system_tests::{Cluster, Result, bail, ensure};

/// Rights over the whole machine that no test gets: its clock is that of everybody here.
const WITHOUT: &str = "-sys_time,-sys_boot,-sys_module,-sys_rawio,-syslog";
/// Names on a line of a list.
const ON_A_LINE: usize = 6;
/// Letters of a reason.
const REASON_MAX: usize = 400;

/// How one program did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Passes,
    /// It passes; not all of its processes, or not all moves, were possible: why.
    PassesPartly(String),
    /// It finds nothing that it could test on this machine.
    NotHere,
    /// It could not be built here.
    NotBuilt,
    /// It fails in the same way without a move.
    FailsAtHome(String),
    /// Two runs at home differ already.
    Unsteady,
    /// The preloaded library costs it the counts of its children, and it gives up before its end.
    BreaksOff,
    /// It does not end in time at home either.
    TooLong,
    /// It was not moved: why.
    Stays(String),
    /// It tells the difference, by what the user guide says cannot be hidden: what that is.
    Shows(String),
    Defect(String),
}

impl Outcome {
    const TITLES: [&str; 11] = [
        "Pass at home and away",
        "Pass, with processes or moves that were not possible",
        "Test nothing on this machine",
        "Could not be built here",
        "Fail at home as well",
        "Differ from run to run at home",
        "Break off early, at home and away alike",
        "Take too long at home",
        "Stay at home",
        "Look at what cannot be hidden",
        "Defects",
    ];

    /// Its heading, and what is to be said beside the name.
    fn told(&self) -> (usize, &str) {
        match self {
            Self::Passes => (0, ""),
            Self::PassesPartly(why) => (1, why),
            Self::NotHere => (2, ""),
            Self::NotBuilt => (3, ""),
            Self::FailsAtHome(why) => (4, why),
            Self::Unsteady => (5, ""),
            Self::BreaksOff => (6, ""),
            Self::TooLong => (7, ""),
            Self::Stays(why) => (8, why),
            Self::Shows(what) => (9, what),
            Self::Defect(why) => (10, why),
        }
    }
}

/// A suite: what its document says first, and who wants it written.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) head: String,
    /// The environment's variable that names the file to be written.
    pub(crate) file: &'static str,
    /// Say why a program failed or stayed, where the lists of a large suite have names alone.
    pub(crate) reasons: bool,
    /// Programs that look at what cannot be hidden (user guide), and what that is.
    pub(crate) visible: &'static [(&'static str, &'static str)],
}

/// Has the workers judge all programs, one after the other, and says how they did.
///
/// # Errors
/// When there are none, or one has a defect.
pub(crate) fn judge_all<W: Sync, P: Sync>(
    suite: &Suite,
    workers: &[W],
    programs: &[(String, P)],
    judge: impl Fn(&W, &P) -> Result<Outcome> + Sync,
) -> Result<()> {
    ensure!(!programs.is_empty(), "There are no programs");
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(|| {
                while let Some((name, program)) = programs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let started = Instant::now();
                    let mut outcome = judge(worker, program)
                        .unwrap_or_else(|error| Outcome::Defect(shortened(&format!("{error:#}"))));
                    println!("{name}: {outcome:?} ({:.1?})", started.elapsed());
                    let visible = suite.visible.iter().find(|(which, _)| which == name);
                    if let (Outcome::Defect(_), Some((_, what))) = (&outcome, visible) {
                        outcome = Outcome::Shows((*what).to_owned());
                    }
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.insert(name.clone(), outcome);
                    }
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_default();
    let report = report(suite, &outcomes);
    println!("{report}");
    if let Some(path) = std::env::var_os(suite.file) {
        let took = if suite.reasons {
            summary(&outcomes, begun.elapsed())
        } else {
            String::new()
        };
        fs::write(path, format!("{}{took}{report}", suite.head))?;
    }
    let defects: Vec<&String> = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Defect(_)))
        .map(|(name, _)| name)
        .collect();
    if !defects.is_empty() {
        bail!("Defects: {defects:?}");
    }
    Ok(())
}

fn summary(outcomes: &BTreeMap<String, Outcome>, took: Duration) -> String {
    let minutes = took.as_secs().div_ceil(60);
    format!(
        "{} programs; the run took {minutes} minutes.\n\n",
        outcomes.len()
    )
}

/// The lists of the document.
fn report(suite: &Suite, outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut text = String::new();
    for (kind, title) in Outcome::TITLES.iter().enumerate() {
        let of_kind: Vec<(&str, &str)> = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.told().0 == kind)
            .map(|(name, outcome)| (name.as_str(), outcome.told().1))
            .collect();
        if of_kind.is_empty() && *title != "Defects" {
            continue;
        }
        text += &format!("## {title}: {}\n", of_kind.len());
        text += &if suite.reasons && of_kind.iter().any(|(_, why)| !why.is_empty()) {
            table(&of_kind)
        } else {
            list(&of_kind)
        };
        text += "\n";
    }
    text.trim_end().to_owned() + "\n"
}

fn list(names: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (index, (name, _)) in names.iter().enumerate() {
        text += if index % ON_A_LINE == 0 { "\n" } else { " " };
        text += name;
    }
    text + "\n"
}

fn table(rows: &[(&str, &str)]) -> String {
    let mut text = "\n| test | why |\n|---|---|\n".to_owned();
    for (name, why) in rows {
        text += &format!("| {name} | {} |\n", why.replace('|', "\\|"));
    }
    text
}

/// What came of running a program at home and moved.
#[derive(Debug)]
pub(crate) enum Compared {
    /// These results, at home and moved.
    Same(Vec<String>),
    Differs(String),
    /// It differs from itself at home already.
    Unsteady,
    /// It does not end at home.
    TooLong,
}

/// Compares what a program prints at home with what it prints when it is moved.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn compare(
    mut home: impl FnMut() -> Result<Vec<String>>,
    mut moved: impl FnMut() -> Result<Vec<String>>,
) -> Result<Compared> {
    let Ok(mut at_home) = home() else {
        return Ok(Compared::TooLong);
    };
    let mut away = moved()?;
    if at_home != away {
        // Once more: many of them depend on time, or on what others do.
        let again = home()?;
        if again != at_home && again != away {
            return Ok(Compared::Unsteady);
        }
        at_home = again;
        away = moved()?;
    }
    Ok(if at_home == away {
        Compared::Same(at_home)
    } else {
        Compared::Differs(difference(&at_home, &away))
    })
}

/// What two runs have not in common.
fn difference(home: &[String], away: &[String]) -> String {
    let missing = home.iter().filter(|line| !away.contains(line)).take(4);
    let added = away.iter().filter(|line| !home.contains(line)).take(4);
    format!(
        "only at home {:?}, only away {:?}",
        missing.collect::<Vec<_>>(),
        added.collect::<Vec<_>>()
    )
}

/// The words by which a program of a suite is started: without rights over the machine, and with these in
/// its environment, which our own programs do not get.
pub(crate) fn confined(environment: &[String]) -> Vec<String> {
    let mut words = vec![
        "setpriv".to_owned(),
        format!("--bounding-set={WITHOUT}"),
        format!("--inh-caps={WITHOUT}"),
        "env".to_owned(),
    ];
    words.extend_from_slice(environment);
    words
}

/// A few programs, for who looks for a fault: those whose name holds a word of `WHIM_CASES`.
pub(crate) fn is_wanted(name: &str) -> bool {
    let only = std::env::var("WHIM_CASES").unwrap_or_default();
    // `WHIM_SUITE_FROM=NAME` goes on where a run was broken off.
    let from = std::env::var("WHIM_SUITE_FROM").unwrap_or_default();
    name >= from.as_str() && (only.is_empty() || only.split(',').any(|word| name.contains(word)))
}

/// What `whim migrate` says before a reason to stay.
const STAYS: &str = "cannot move now. ";
/// Said of a process that has ended between two looks, which is no reason to stay.
const ENDED: &str = "It does not exist, or has ended";

/// What came of the moves of a program's processes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) moves: u32,
    /// Why processes were not moved.
    pub(crate) stays: BTreeSet<String>,
    /// Moves that were refused for another reason than one to stay.
    pub(crate) failures: BTreeSet<String>,
}

impl Account {
    /// Takes note of a refusal.
    pub(crate) fn refused(&mut self, sentence: &str) {
        let (stays, text) = match sentence.split_once(STAYS) {
            Some((_, reason)) => (true, reason),
            // Not a failure of the move: it had nothing to do.
            None if sentence.contains("at home already") => return,
            None if sentence.contains("has ended") => return,
            None => (false, sentence),
        };
        let text = without_numbers(&without_places(text));
        if stays {
            let sentences = text.split_inclusive(". ").map(str::trim_end);
            let lasting = sentences.filter(|sentence| !sentence.starts_with(ENDED));
            self.stays.extend(lasting.map(str::to_owned));
        } else {
            self.failures.insert(text);
        }
    }

    /// Moves a process, if it can be moved.
    ///
    /// # Errors
    /// When the answer is neither done nor a refusal.
    pub(crate) fn move_to(
        &mut self,
        cluster: &Cluster,
        process: &Process,
        target: &str,
    ) -> Result<()> {
        let mut failure = String::new();
        // Some threads cannot be stopped for a moment.
        for _ in 0..3 {
            match cluster.migrate(process.pid, target)? {
                Moved::Done(_) => {
                    self.moves += 1;
                    return Ok(());
                }
                Moved::Refused(sentence) => failure = sentence,
            }
            if !failure.contains("cannot be stopped now") {
                break;
            }
        }
        self.refused(&failure);
        Ok(())
    }

    /// The reasons as one text.
    pub(crate) fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.stays.iter().map(String::as_str).collect();
        shortened(&reasons.join(" "))
    }
}

/// A text in one line, of bounded length.
pub(crate) fn shortened(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// In the paths of files that tests have made, or that were fetched.
const PLACES: [&str; 2] = ["/run-t", "/.toolchain/"];

/// The text without what differs from run to run: the directories of tests, and keys of System V memory.
fn without_places(text: &str) -> String {
    let word = |word: &str| match (word.find('/'), word.rfind('/')) {
        (Some(first), Some(last)) if PLACES.iter().any(|place| word.contains(place)) => {
            format!("{}{}", &word[..first], &word[last + 1..])
        }
        (Some(first), _) if word[first..].starts_with("/SYSV") => {
            format!("{}/SYSV...)", &word[..first])
        }
        _ => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The kernel and the day, for the head of a document.
///
/// # Errors
/// When this machine does not tell.
pub(crate) fn here() -> Result<String> {
    let short = Duration::from_secs(10);
    let kernel = succeed(Command::new("uname").arg("-r"), short)?;
    let day = succeed(Command::new("date").arg("+%F"), short)?;
    // Without what its builder calls it.
    let release = kernel.trim().split('-').next().unwrap_or_default();
    Ok(format!("kernel {release}, {}", day.trim()))
}

static RUNS: AtomicU32 = AtomicU32::new(0);

/// What all processes of one run of a program have in their environment.
#[derive(Debug)]
pub(crate) struct Mark {
    /// A name that no other run has.
    pub(crate) name: String,
    /// The processes that were found to have it: one that is away is not found.
    known: RefCell<Vec<Process>>,
}

impl Mark {
    const VARIABLE: &str = "WHIM_SUITE_RUN";

    pub(crate) fn new(program: &str) -> Self {
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        Self {
            name: format!("{program}-{number}"),
            known: RefCell::default(),
        }
    }

    /// For the environment.
    pub(crate) fn variable(&self) -> String {
        format!("{}={}", Self::VARIABLE, self.name)
    }

    /// The processes that have it; not those that are away, whose memory is elsewhere.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub(crate) fn processes(&self) -> Result<Vec<Process>> {
        let variable = self.variable();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if environments(pid).any(|environment| {
                let mut entries = environment.split(|&byte| byte == 0);
                entries.any(|entry| entry == variable.as_bytes())
            }) {
                found.extend(Process::of(pid));
            }
        }
        found.sort_by_key(|process| process.pid);
        self.known.borrow_mut().extend(found.iter().cloned());
        Ok(found)
    }

    /// Ends those that have it, and those that had it.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub(crate) fn end_all(&self) -> Result<()> {
        self.processes()?;
        self.known.borrow().iter().for_each(Process::end);
        Ok(())
    }
}

/// A process of a program.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// In the test's own namespace.
    outer: i32,
    /// On its node.
    pub(crate) pid: i32,
    started: String,
}

impl Process {
    fn of(outer: i32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{outer}/status")).ok()?;
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        let pid = numbers.split_whitespace().nth(1)?.parse().ok()?;
        let started = start_of(outer)?;
        Some(Self {
            outer,
            pid,
            started,
        })
    }

    /// Whether it has not ended.
    pub(crate) fn lives(&self) -> bool {
        start_of(self.outer).is_some_and(|started| started == self.started)
    }

    /// Kills it, if it has not ended.
    fn end(&self) {
        if self.lives() {
            let _ = kill(Pid::from_raw(self.outer), Signal::SIGKILL);
        }
    }
}

/// The environment of a process, or if its main thread has ended, and shows none, of its threads.
fn environments(pid: i32) -> impl Iterator<Item = Vec<u8>> {
    let own = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let tasks = own
        .is_empty()
        .then(|| fs::read_dir(format!("/proc/{pid}/task")));
    let tasks = tasks.into_iter().flatten().flatten().flatten();
    let others = tasks.filter_map(|task| fs::read(task.path().join("environ")).ok());
    [own].into_iter().chain(others)
}

/// When a process was started, if it is there and no zombie: not if only its main thread has ended.
fn start_of(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?;
    (!matches!(state, "Z" | "X") || threads > 1).then(|| started.to_owned())
}
