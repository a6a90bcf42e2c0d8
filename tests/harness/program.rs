//! Real programs that run twice, unmoved and moved, and have to do the same.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::case::{Case, Setting, number};
use crate::cluster::Cluster;
use crate::compare::{self, Outcome};
use crate::mover::{self, Moves, Plan};
use crate::place;
use crate::process::Running;
use crate::random::Random;

/// A full run takes no less, unmoved.
const FULL_AT_LEAST: Duration = Duration::from_secs(20);
/// The size is chosen so that an unmoved full run takes this long.
const FULL_ABOUT: f64 = 24.0;
const UNMOVED_LIMIT: Duration = Duration::from_secs(240);
/// Sizes that a quick run tries until the program moves often enough.
const QUICK_ATTEMPTS: u32 = 4;
const QUICK_GAP_MAX: Duration = Duration::from_millis(300);
const QUICK_LIMIT: Duration = Duration::from_secs(120);
/// Sizes that a full run tries until the program moves often enough.
const FULL_ATTEMPTS: u32 = 3;
const FULL_LIMIT: Duration = Duration::from_secs(900);

/// What a program is given to be started with.
#[derive(Debug)]
pub struct Setup<'a> {
    /// A directory for its inputs, seen by all nodes; `../prepared` from where it runs.
    pub prepared: &'a Path,
    /// How much it shall do: time grows about in proportion.
    pub size: u32,
}

/// How a program is started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    pub command: Vec<String>,
    /// A program that runs beside it on n1 and never moves: it prints `ready`, a space and a word
    /// that replaces `{ready}` in the command.
    pub companion: Vec<String>,
}

impl Launch {
    pub fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            companion: Vec::new(),
        }
    }

    /// A script for a shell; `$0` is the shell and `$1` the size.
    pub fn script(shell: &str, script: &str, size: u32) -> Self {
        Self::new([shell, "-c", script, shell, &size.to_string()])
    }

    #[must_use]
    pub fn with_companion<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.companion = command.into_iter().map(Into::into).collect();
        self
    }
}

/// A program, as a test.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    setup: fn(&Setup<'_>) -> Result<Launch>,
    quick_size: u32,
    quick_moves: u32,
    full_moves: u32,
    runs: u32,
    focus: &'static [&'static str],
    each: bool,
    between_kernels: bool,
    in_gate: bool,
}

impl Program {
    /// `quick_size` is a size with which it runs some 3 s.
    #[must_use]
    pub const fn new(
        name: &'static str,
        quick_size: u32,
        setup: fn(&Setup<'_>) -> Result<Launch>,
    ) -> Self {
        Self {
            name,
            setup,
            quick_size,
            quick_moves: 3,
            full_moves: 20,
            runs: 5,
            focus: &[],
            each: false,
            between_kernels: false,
            in_gate: true,
        }
    }

    /// Its quick test belongs to the full set, too: others of the gate have what it would show.
    #[must_use]
    pub const fn not_in_gate(mut self) -> Self {
        self.in_gate = false;
        self
    }

    /// Only processes whose command holds one of these words are moved.
    #[must_use]
    pub const fn focus(mut self, words: &'static [&'static str]) -> Self {
        self.focus = words;
        self
    }

    /// Each of these has to move at least once.
    #[must_use]
    pub const fn each(mut self, words: &'static [&'static str]) -> Self {
        self.focus = words;
        self.each = true;
        self
    }

    /// It is moved once more among nodes of which one does as a host with another kernel does: its
    /// guests have a copy of home's vDSO.
    #[must_use]
    pub const fn between_kernels(mut self) -> Self {
        self.between_kernels = true;
        self
    }

    /// The full set runs it this often, not five times.
    #[must_use]
    pub const fn runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Moves that have to be completed, in the quick and in the full run.
    #[must_use]
    pub const fn moves(mut self, quick: u32, full: u32) -> Self {
        self.quick_moves = quick;
        self.full_moves = full;
        self
    }

    /// The tests of this program: a quick one, and its full runs.
    ///
    /// # Errors
    /// When `WHIM_RUNS` or `WHIM_MOVES` are no numbers.
    pub fn cases(&'static self) -> Result<Vec<Case>> {
        let moves = number("WHIM_MOVES")?.unwrap_or(self.full_moves);
        let runs = number("WHIM_RUNS")?.unwrap_or(self.runs);
        let quick = if self.in_gate {
            format!("programs::{}", self.name)
        } else {
            format!("programs::full::{}::quick", self.name)
        };
        let mut cases = vec![Case::new(quick, move |setting| self.quick(setting, false))];
        if self.between_kernels {
            let name = if self.in_gate {
                format!("programs::between_kernels::{}", self.name)
            } else {
                format!("programs::full::{}::between_kernels", self.name)
            };
            cases.push(Case::new(name, move |setting| self.quick(setting, true)));
        }
        let name = format!("programs::full::{}::unmoved_twice", self.name);
        cases.push(Case::new(name, move |_| self.unmoved_twice()));
        let name = format!("programs::full::{}", self.name);
        cases.push(Case::new(name, move |setting| {
            self.full(setting.seed, runs, moves)
        }));
        Ok(cases)
    }

    fn quick(&'static self, setting: &Setting, between_kernels: bool) -> Result<()> {
        let cluster = Cluster::up(3)?;
        if between_kernels {
            cluster.configure("n2", "[guests]\nown_vdso = false\n")?;
            cluster.restart_daemon("n2")?;
        }
        self.quick_in(&cluster, setting)
    }

    /// The quick test between the accounts of two plain users.
    ///
    /// # Errors
    /// When the moved run differs from the unmoved one.
    pub fn quick_of_users(&'static self, setting: &Setting) -> Result<()> {
        self.quick_in(&Cluster::up_of_users()?, setting)
    }

    fn quick_in(&'static self, cluster: &Cluster, setting: &Setting) -> Result<()> {
        let mut random = Random::new(setting.seed);
        cluster.explaining(|| {
            let site = Site::Lab(cluster);
            let mut size = self.quick_size;
            let mut moves = Moves::default();
            for _ in 0..QUICK_ATTEMPTS {
                moves.add(self.quick_run(&site, size, &mut random)?);
                if self.check(&moves, self.quick_moves).is_ok() {
                    return Ok(());
                }
                // It was over too soon for this machine: it gets more to do.
                size *= 3;
            }
            self.check(&moves, self.quick_moves)
        })
    }

    fn quick_run(&self, site: &Site<'_>, size: u32, random: &mut Random) -> Result<Moves> {
        let stage = Stage::new(site, self, size)?;
        let begun = Instant::now();
        let status = stage.start("unmoved")?.wait(UNMOVED_LIMIT)?;
        let gap = (begun.elapsed() / (self.quick_moves * 2)).min(QUICK_GAP_MAX);
        let plan = Plan {
            focus: self.focus,
            gap,
            limit: QUICK_LIMIT,
        };
        stage.moved(&plan, random, status)
    }

    /// Runs the program once unmoved and then again and again moved; each run has to complete its
    /// moves, and to do what the unmoved one did.
    fn full(&'static self, seed: u64, runs: u32, minimum: u32) -> Result<()> {
        let cluster = Cluster::up(4)?;
        let mut random = Random::new(seed);
        cluster.explaining(|| {
            let site = Site::Lab(&cluster);
            let mut size = self.quick_size * 6;
            let (mut done, mut attempts) = (0, 0);
            while done < runs {
                let (stage, status, took) = self.long_enough(&site, &mut size)?;
                let plan = Plan {
                    focus: self.focus,
                    gap: took / (minimum * 3),
                    limit: FULL_LIMIT,
                };
                while done < runs {
                    let moves = stage.moved(&plan, &mut random, status)?;
                    println!("run {} of {runs}:", done + 1);
                    let checked = self.check(&moves, minimum);
                    if checked.is_ok() {
                        done += 1;
                        continue;
                    }
                    attempts += 1;
                    if attempts > FULL_ATTEMPTS {
                        return checked;
                    }
                    // All moves have to be those of one run: it gets time for them.
                    size = size.saturating_mul(minimum + 20) / (moves.completed + 10);
                    break;
                }
                stage.clean()?;
            }
            Ok(())
        })
    }

    /// An unmoved run that takes long enough, its status and its time; the size is raised until it
    /// does.
    fn long_enough<'a>(
        &self,
        site: &'a Site<'a>,
        size: &mut u32,
    ) -> Result<(Stage<'a>, std::process::ExitStatus, Duration)> {
        loop {
            let stage = Stage::new(site, self, *size)?;
            let begun = Instant::now();
            let status = stage.start("unmoved")?.wait(UNMOVED_LIMIT)?;
            let took = begun.elapsed();
            if took >= FULL_AT_LEAST {
                println!("unmoved: {:.1} s with size {size}", took.as_secs_f64());
                return Ok((stage, status, took));
            }
            stage.clean()?;
            *size = larger(*size, took);
        }
    }

    /// Without a lab: shows that the program does the same each time, or no comparison says much.
    fn unmoved_twice(&'static self) -> Result<()> {
        let site = Site::Here(place::room()?.join(format!("run-t{}-0", std::process::id())));
        let stage = Stage::new(&site, self, self.quick_size)?;
        let mut outcomes = Vec::new();
        for run in ["unmoved", "again"] {
            let begun = Instant::now();
            let status = stage.start(run)?.wait(UNMOVED_LIMIT)?;
            println!(
                "{}: {:.1} s, {status}",
                self.name,
                begun.elapsed().as_secs_f64()
            );
            stage.show_errors(run);
            outcomes.push(stage.outcome(run, status));
        }
        compare::same(&outcomes[0], &outcomes[1])?;
        stage.site.clean()
    }

    fn check(&self, moves: &Moves, minimum: u32) -> Result<()> {
        println!("{}: {moves}", self.name);
        let short = moves.completed < minimum;
        if short {
            mover::print_history(moves);
        }
        ensure!(
            !short,
            "Only {} moves, not {minimum}: {moves}",
            moves.completed
        );
        if self.each {
            for (word, count) in self.focus.iter().zip(&moves.by_focus) {
                ensure!(*count > 0, "{word} never moved: {moves}");
            }
        }
        Ok(())
    }
}

/// A size with which a program that took too little time takes enough.
fn larger(size: u32, took: Duration) -> u32 {
    let factor = (FULL_ABOUT / took.as_secs_f64().max(0.2)).clamp(1.2, 12.0);
    // Sizes are small numbers; the product stays far below the limits of both types.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let larger = (f64::from(size) * factor).ceil() as u32;
    larger
}

/// Where programs run.
enum Site<'a> {
    Lab(&'a Cluster),
    /// On this machine, in this directory.
    Here(PathBuf),
}

impl Site<'_> {
    fn directory(&self) -> &Path {
        match self {
            Self::Lab(cluster) => cluster.directory(),
            Self::Here(directory) => directory,
        }
    }

    /// A command on n1 that stays there.
    fn command(&self, words: &[String]) -> Command {
        match self {
            Self::Lab(cluster) => cluster.command("n1", words),
            Self::Here(_) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).env("LC_ALL", "C.UTF-8");
                command
            }
        }
    }

    /// One in which the program can make files, whoever runs it.
    fn make_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path)?;
        if self.is_of_users() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(())
    }

    fn is_of_users(&self) -> bool {
        matches!(self, Self::Lab(cluster) if cluster.account("n1").is_some())
    }

    fn clean(&self) -> Result<()> {
        if let Self::Here(directory) = self {
            fs::remove_dir_all(directory)?;
        }
        Ok(())
    }
}

/// A program with its inputs, ready to run in directories of its own.
struct Stage<'a> {
    site: &'a Site<'a>,
    base: PathBuf,
    launch: Launch,
}

/// A program that was started, and what runs beside it.
struct Started {
    program: Running,
    _companion: Option<Running>,
}

impl Started {
    fn wait(&mut self, limit: Duration) -> Result<std::process::ExitStatus> {
        self.program.wait(limit)
    }
}

impl<'a> Stage<'a> {
    fn new(site: &'a Site<'a>, program: &Program, size: u32) -> Result<Self> {
        let base = site.directory().join(format!("{}-{size}", program.name));
        let prepared = base.join("prepared");
        fs::create_dir_all(&prepared)?;
        let launch = (program.setup)(&Setup {
            prepared: &prepared,
            size,
        })
        .with_context(|| format!("{} could not be prepared", program.name))?;
        Ok(Self { site, base, launch })
    }

    /// Removes everything of its runs.
    fn clean(&self) -> Result<()> {
        fs::remove_dir_all(&self.base)
            .with_context(|| format!("Could not remove {}", self.base.display()))
    }

    fn directory(&self, run: &str) -> PathBuf {
        self.base.join(run)
    }

    fn output(&self, run: &str) -> PathBuf {
        self.base.join(format!("{run}.out"))
    }

    fn errors(&self, run: &str) -> PathBuf {
        self.base.join(format!("{run}.err"))
    }

    /// Starts the program in a new directory on n1; the run called `moved` so that it may move.
    fn start(&self, run: &str) -> Result<Started> {
        let directory = self.directory(run);
        self.site.make_directory(&directory)?;
        let (companion, word) = self.companion(run)?;
        let words: Vec<String> = self
            .launch
            .command
            .iter()
            .map(|part| part.replace("{ready}", &word))
            .collect();
        let mut command = match self.site {
            Site::Lab(cluster) if run == "moved" => cluster.run_command("n1", &words),
            site => site.command(&words),
        };
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(File::create(self.output(run))?)
            .stderr(File::create(self.errors(run))?);
        Ok(Started {
            program: Running::spawn(&mut command)?,
            _companion: companion,
        })
    }

    fn companion(&self, run: &str) -> Result<(Option<Running>, String)> {
        if self.launch.companion.is_empty() {
            return Ok((None, String::new()));
        }
        let directory = self.base.join(format!("{run}-companion"));
        self.site.make_directory(&directory)?;
        let (reader, writer) = std::io::pipe()?;
        let mut command = self.site.command(&self.launch.companion);
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(writer);
        let running = Running::spawn(&mut command)?;
        // Its end of the pipe goes with it, so that an early end is seen.
        drop(command);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line)?;
        match line.trim().strip_prefix("ready ") {
            Some(word) => Ok((Some(running), word.to_owned())),
            None => bail!(
                "The companion said '{}' and not that it is ready",
                line.trim()
            ),
        }
    }

    /// Runs the program once more while it is moved, and compares it with the unmoved run, which
    /// ended with this status.
    fn moved(
        &self,
        plan: &Plan<'_>,
        random: &mut Random,
        unmoved: std::process::ExitStatus,
    ) -> Result<Moves> {
        let Site::Lab(cluster) = self.site else {
            bail!("There is no lab to move in")
        };
        let _ = fs::remove_dir_all(self.directory("moved"));
        let mut started = self.start("moved")?;
        let begun = Instant::now();
        let driven = mover::drive(cluster, &mut started.program, plan, random);
        let (status, moves) = driven.inspect_err(|_| self.show_errors("moved"))?;
        let took = begun.elapsed();
        let compared = if is_its_own(unmoved) {
            compare::same(
                &self.outcome("unmoved", unmoved),
                &self.outcome("moved", status),
            )
        } else {
            let errors = fs::read_to_string(self.errors("unmoved")).unwrap_or_default();
            Err(anyhow!(
                "Even unmoved, the program fails: {unmoved}: {errors}"
            ))
        };
        if compared.is_err() {
            self.show_errors("moved");
            println!("{moves}");
            mover::print_history(&moves);
        }
        compared?;
        println!("moved: {:.1} s", took.as_secs_f64());
        if std::env::var_os("WHIM_HISTORY").is_some() {
            mover::print_history(&moves);
        }
        Ok(moves)
    }

    fn outcome(&self, run: &str, status: std::process::ExitStatus) -> Outcome {
        Outcome {
            status,
            output: self.output(run),
            directory: self.directory(run),
        }
    }

    fn show_errors(&self, run: &str) {
        let text = fs::read(self.errors(run)).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines().take(40) {
            println!("  stderr: {line}");
        }
    }
}

/// Programs end with statuses of their own choice, which are compared, but not with those by which
/// interpreters and shells report a mistake of the test.
fn is_its_own(status: std::process::ExitStatus) -> bool {
    status
        .code()
        .is_some_and(|code| !matches!(code, 1 | 2 | 125..=255))
}

/// A program of the guests' sources run by an interpreter.
///
/// # Errors
/// When its source cannot be put where nodes see it.
pub fn interpreted(interpreter: &str, source: &str, size: u32) -> Result<Launch> {
    let source = crate::guest::script(source)?.display().to_string();
    Ok(Launch::new([
        interpreter.to_owned(),
        source,
        size.to_string(),
    ]))
}

/// Whether a program is there; for messages that are better than "not found".
///
/// # Errors
/// When it is not.
pub fn require(program: &str) -> Result<()> {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .status()?;
    ensure!(
        found.success(),
        "{program} is not installed: run scripts/bootstrap test"
    );
    Ok(())
}
