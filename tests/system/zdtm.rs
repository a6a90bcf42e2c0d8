//! The static tests of CRIU (zdtm): programs that make something, wait, and then look whether it is as it
//! was. They are run where somebody has built them: `WHIM_ZDTM_DIR` names the directory of CRIU's sources;
//! without it there is no such test here.
//!
//! Each program runs three times: at home; moved to a second and a third node before it looks; and moved
//! back from there before it looks. What it finds has to be the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use whim_system_tests::mover::without_numbers;
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, guest};

use crate::suites::{self, Account, Mark, Outcome, Suite, shortened};

/// Labs, each of which runs one program at a time: many use the same port, or the same key.
const WORKERS: usize = 2;
/// How long a program may take to look: some read full buffers of 100 MiB in small pieces.
const LOOKS: Duration = Duration::from_secs(240);
/// Whose program it becomes that does not need root.
const USER: &[&str] = &[
    "ZDTM_UID=18943",
    "ZDTM_GID=58467",
    "ZDTM_GROUPS=27495 48244",
];
/// Options that want something else than a name.
const VALUES: &[(&str, &str, &str)] = &[
    ("umask00", "mask", "0345"),
    ("shm-unaligned", "shmem_size", "5000"),
    ("shm-hugetlb", "shmem_size", "4194304"),
];
/// Programs that look at what cannot be hidden.
const VISIBLE: &[(&str, &str)] = &[("cow00", SHARED_PAGES), ("cow01", SHARED_PAGES)];
const SHARED_PAGES: &str =
    "which page frames its processes have in common since a fork (`/proc/PID/pagemap`)";
/// What a program runs in that is only for namespaces of its own.
const OWN_NAMESPACES: &[&str] = &[
    "unshare",
    "--mount",
    "--net",
    "--uts",
    "--ipc",
    "sh",
    "-c",
    "ip link set lo up; exec \"$@\"",
    "sh",
];

pub(crate) fn cases() -> Vec<Case> {
    let Some(directory) = std::env::var_os("WHIM_ZDTM_DIR") else {
        return Vec::new();
    };
    let directory = PathBuf::from(directory);
    vec![Case::new("zdtm::full::static", move |_| {
        run_all(&directory)
    })]
}

#[derive(Debug)]
struct Program {
    name: String,
    /// Nothing if it could not be built.
    path: Option<PathBuf>,
    /// Names of its options.
    options: Vec<String>,
    /// What takes away what it leaves behind.
    hook: Option<PathBuf>,
    /// It stays root.
    root: bool,
    /// It is only for namespaces of its own.
    alone: bool,
}

impl Program {
    /// A program of this source; the lists of the suite say what it is given to write to.
    fn of(name: &str, source: &str, lists: &[(String, Vec<String>)], place: &Path) -> Self {
        let described = fs::read_to_string(place.join(format!("{name}.desc"))).unwrap_or_default();
        let declared = source.lines().filter(|line| line.ends_with(", 1);"));
        let declared = declared.filter_map(|line| line.strip_prefix("TEST_OPTION("));
        let declared = declared.filter_map(|line| Some(line.split_once(',')?.0));
        let special = VALUES.iter().filter(|(program, _, _)| *program == name);
        let mut options: Vec<String> = ["pidfile", "outfile"].map(str::to_owned).into();
        options.extend(
            declared
                .chain(special.map(|value| value.1))
                .map(str::to_owned),
        );
        options.sort();
        options.dedup();
        // Sources that are several programs declare what only some of them take.
        let is_in = |list: &str| {
            let mut lists = lists.iter().filter(|(title, _)| title == list);
            lists.any(|(_, names)| names.iter().any(|one| one == name))
        };
        options.retain(|option| {
            !(option == "filename" && is_in("TST_DIR") || option == "dirname" && is_in("TST_FILE"))
        });
        Self {
            name: name.to_owned(),
            path: Some(place.join(name)).filter(|path| path.is_file()),
            options,
            hook: Some(place.join(format!("{name}.hook"))).filter(|hook| hook.is_file()),
            root: described.contains("suid"),
            alone: described.contains("'ns") || described.contains("\"ns"),
        }
    }

    /// The words that run it in its directory.
    fn words(&self) -> Vec<String> {
        let name = &self.name;
        let mut words = vec![format!("./{name}")];
        for option in &self.options {
            let special = VALUES
                .iter()
                .find(|(program, known, _)| program == name && known == option);
            let value = match (option.as_str(), special) {
                (_, Some((_, _, value))) => (*value).to_owned(),
                ("pidfile", _) => "pid".to_owned(),
                ("outfile", _) => "out".to_owned(),
                // Short: some make names of sockets of it, with all directories.
                _ => option.clone(),
            };
            words.push(format!("--{option}={value}"));
        }
        words
    }
}

/// The lists of the suite's makefile: `NAME = program program`.
fn lists(place: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let text = fs::read_to_string(place.join("Makefile"))?.replace("\\\n", " ");
    let list = |line: &str| {
        let (title, names) = line.split_once('=')?;
        let title = title.trim_end_matches([':', '+', ' ', '\t']).trim_start();
        let names = names.split_whitespace().map(str::to_owned).collect();
        title.starts_with("TST").then(|| (title.to_owned(), names))
    };
    Ok(text.lines().filter_map(list).collect())
}

fn programs(directory: &Path) -> Result<Vec<(String, Program)>> {
    let place = directory.join("test/zdtm/static");
    let lists = lists(&place)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let (Some(name), true) = (stem, path.extension().is_some_and(|end| end == "c")) else {
            continue;
        };
        let source = fs::read_to_string(&path).unwrap_or_default();
        if source.contains("test_init") && suites::is_wanted(name) {
            found.push((name.to_owned(), Program::of(name, &source, &lists, &place)));
        }
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(found)
}

/// A lab whose sockets hold as much as the kernel's own default lets them. Some tests fill them, by calls of 4 KiB
/// each, and some machines let them hold ten times as much.
fn lab() -> Result<Cluster> {
    let cluster = Cluster::up(3)?;
    for node in ["n1", "n2", "n3"] {
        let script = "echo 4096 131072 6291456 > /proc/sys/net/ipv4/tcp_rmem";
        cluster.run(node, &["sh", "-c", script])?;
    }
    Ok(cluster)
}

fn run_all(directory: &Path) -> Result<()> {
    let shim = guest::c_with("zdtm_shim", &["-shared", "-fPIC", "-ldl"])?;
    let programs = programs(directory)?;
    let labs: Vec<Cluster> = (0..WORKERS).map(|_| lab()).collect::<Result<_>>()?;
    let suite = Suite {
        head: head(directory)?,
        file: "WHIM_ZDTM_FILE",
        reasons: true,
        visible: VISIBLE,
    };
    suites::judge_all(&suite, &labs, &programs, |cluster, program| {
        judge(cluster, &shim, program)
    })
}

fn head(directory: &Path) -> Result<String> {
    let versions = fs::read_to_string(directory.join("Makefile.versions")).unwrap_or_default();
    let number = |which: &str| {
        let beginning = format!("CRIU_VERSION_{which}");
        let line = versions.lines().find(|line| line.starts_with(&beginning))?;
        Some(line.split_once('=')?.1.trim().to_owned())
    };
    let version = match (number("MAJOR"), number("MINOR")) {
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => "of unknown version".to_owned(),
    };
    Ok(format!(
        "\
# CRIU's static tests

Written by `cargo xtask zdtm DIR --write`, where `DIR` holds the sources of CRIU and somebody has built
the programs of `test/zdtm/static` there. Such a program makes something, waits for a signal, and then
looks whether it is as it was. Each runs three times: unmoved; moved to a second and a third node before
it looks; and moved home again before it looks. Each of its processes is moved. Those that are not
root's by need run as a user, and those that CRIU runs only in namespaces of their own do so here.

A preloaded library (`tests/guests/zdtm_shim.c`) makes one page private by which the program's first
process learns that the test has begun, and which would keep all of them at home; it is told by a pipe.

CRIU {version}, {}.

",
        suites::here()?
    ))
}

/// Where a program is when it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Unmoved,
    Away,
    Back,
}

impl Mode {
    fn targets(self) -> &'static [&'static str] {
        match self {
            Self::Unmoved => &[],
            Self::Away => &["n2", "n3"],
            Self::Back => &["n2", "n3", "home"],
        }
    }
}

/// How one run went.
#[derive(Debug, Default)]
struct Told {
    passed: bool,
    /// What it says of its failure.
    text: String,
    account: Account,
    /// Between its beginning and its look.
    between: Duration,
}

fn judge(cluster: &Cluster, shim: &Path, program: &Program) -> Result<Outcome> {
    if program.path.is_none() {
        return Ok(Outcome::NotBuilt);
    }
    for last in [false, true] {
        match run(cluster, shim, program, Mode::Unmoved, Duration::ZERO) {
            Ok(home) if home.passed => break,
            Ok(home) if last => return Ok(Outcome::FailsAtHome(home.text)),
            Err(_) if last => return Ok(Outcome::TooLong),
            // Once more: something else may have been in its way.
            _ => {}
        }
    }
    let mut all = Account::default();
    for mode in [Mode::Away, Mode::Back] {
        let told = run(cluster, shim, program, mode, Duration::ZERO)?;
        if !told.passed || !told.account.failures.is_empty() {
            for _ in 0..2 {
                // Where what it looks at changes by itself, with time, it fails unmoved as well.
                if !run(cluster, shim, program, Mode::Unmoved, 2 * told.between)?.passed {
                    return Ok(Outcome::Unsteady);
                }
            }
            let again = run(cluster, shim, program, mode, Duration::ZERO)?;
            let failures: Vec<_> = told.account.failures.iter().cloned().collect();
            let which = format!(
                "{mode:?}, then {}",
                if again.passed { "not" } else { "again" }
            );
            let text = shortened(&format!("{which}: {} {}", failures.join(" / "), told.text));
            return Ok(Outcome::Defect(text));
        }
        all.moves += told.account.moves;
        all.stays.extend(told.account.stays);
    }
    Ok(match (all.moves, all.stays.is_empty()) {
        (0, true) => Outcome::Defect("There was no process to move".to_owned()),
        (0, false) => Outcome::Stays(all.reasons()),
        (_, true) => Outcome::Passes,
        (_, false) => Outcome::PassesPartly(all.reasons()),
    })
}

fn run(
    cluster: &Cluster,
    shim: &Path,
    program: &Program,
    mode: Mode,
    pause: Duration,
) -> Result<Told> {
    let mark = Mark::new(&program.name);
    let directory = cluster.directory().join(&mark.name);
    fs::create_dir_all(&directory)?;
    let path = program.path.as_deref().unwrap_or(Path::new("/nonexistent"));
    fs::copy(path, directory.join(&program.name))?;
    let mut environment = vec![format!("LD_PRELOAD={}", shim.display()), mark.variable()];
    if !program.root {
        environment.extend(USER.iter().map(|&word| word.to_owned()));
    }
    let mut words = suites::confined(&environment);
    if program.alone {
        words.extend(OWN_NAMESPACES.iter().map(|&word| word.to_owned()));
    }
    words.extend(program.words());
    let result = started(cluster, &words, (mode, pause), &mark);
    mark.end_all()?;
    if let Some(hook) = &program.hook {
        // Where there is nothing to take away it fails.
        let clean = ["sh", "-c", "cd \"$1\"; \"$2\" --clean", "sh"];
        let places = [&directory, hook].map(|path| path.display().to_string());
        let words = [&clean[..], &[&places[0], &places[1]]].concat();
        let _ = cluster.run("n1", &words);
    }
    let _ = fs::remove_dir_all(&directory);
    result
}

/// Starts it, waits so long, moves it, has it look, and reads what it found.
fn started(
    cluster: &Cluster,
    words: &[String],
    (mode, pause): (Mode, Duration),
    mark: &Mark,
) -> Result<Told> {
    let mut talk = Talk::start_in(cluster, &mark.name, &mut cluster.run_command("n1", words))?;
    let directory = talk.directory().to_owned();
    let status = talk.end()?;
    let mut told = Told::default();
    let pid = fs::read_to_string(directory.join("pid")).unwrap_or_default();
    if !status.success() || pid.is_empty() {
        told.text = what_failed(&directory, &talk.errors());
        return Ok(told);
    }
    let processes = mark.processes()?;
    let begun = Instant::now();
    thread::sleep(pause);
    for target in mode.targets() {
        for process in &processes {
            told.account.move_to(cluster, process, target)?;
        }
    }
    told.between = begun.elapsed();
    cluster.run("n1", &["kill", "-TERM", &pid])?;
    let is_gone = || {
        let main = processes
            .iter()
            .find(|process| process.pid.to_string() == pid);
        main.is_none_or(|main| !main.lives())
    };
    let out = directory.join("out");
    let looked = eventually(LOOKS, "it has looked", || {
        Ok((out.exists() || is_gone()).then_some(()))
    });
    let text = fs::read(&out).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    told.passed = text.lines().any(|line| line.trim_end().ends_with("PASS"));
    if !told.passed {
        let why = looked
            .err()
            .map_or(String::new(), |error| format!("{error:#}"));
        told.text = what_failed(&directory, &why);
    }
    Ok(told)
}

/// The lines of its output that tell of failures, without time and pid.
fn what_failed(directory: &Path, said: &str) -> String {
    let mut all = String::new();
    for file in ["out", "out.inprogress"] {
        let bytes = fs::read(directory.join(file)).unwrap_or_default();
        all += &String::from_utf8_lossy(&bytes);
    }
    all += said;
    let content = |line: &str| {
        let of_library = line.starts_with(|first: char| first.is_ascii_digit());
        let rest = line.splitn(3, ": ").nth(2).filter(|_| of_library);
        let rest = rest.unwrap_or(line).trim().to_owned();
        (!rest.is_empty()).then_some(rest)
    };
    let lines: Vec<String> = all.lines().filter_map(content).collect();
    let failures = lines
        .iter()
        .filter(|line| line.contains("FAIL") || line.contains("ERR"));
    let failures: Vec<&str> = failures.map(String::as_str).collect();
    let last = || lines.last().map_or("It says nothing", String::as_str);
    let text = if failures.is_empty() {
        last().to_owned()
    } else {
        failures.join(" ")
    };
    shortened(&without_numbers(&text))
}
