//! The program that is watched, the plans of crashes, and what has to be true after each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Cluster, Context, Result, Talk, bail, ensure};

use super::SECTION;
use super::workload::Workload;

/// Time for whatever follows a lease, on a busy machine.
pub(crate) const SETTLED: Duration = Duration::from_secs(40);
/// A program that has survived so many crashes ends, and shows its status to its parent.
const TRIALS: u32 = 12;
/// The exit status of the program when it is told to end.
const STATUS: i32 = 7;

/// What became of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Home,
    Away,
    Ended,
}

/// A lab, and the one program in it.
pub(crate) struct Scene<'a> {
    pub cluster: &'a Cluster,
    plans: PathBuf,
    workload: Workload,
    words: Vec<String>,
    /// The program's name, as the kernel has it.
    name: String,
    program: Option<(Talk, i32)>,
    /// The program's, in seconds, or `inf`.
    lease: &'static str,
    trials: u32,
    /// How much the daemon had said when its plan was made.
    said_before: usize,
    /// The program's limits, which nobody is to change for long.
    limits: String,
    /// Names of the processes that nodes have without any program.
    usual: BTreeSet<String>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        plans: &Path,
        (workload, lease): (Workload, &'static str),
    ) -> Result<Self> {
        let (words, name) = workload.command()?;
        let mut scene = Self {
            cluster,
            plans: plans.to_owned(),
            workload,
            words,
            name,
            program: None,
            lease,
            trials: 0,
            said_before: 0,
            limits: String::new(),
            usual: BTreeSet::new(),
        };
        for node in ["n1", "n2", "n3"] {
            let names = scene.look(node)?;
            scene.usual.extend(names.into_iter().map(|(name, _)| name));
        }
        Ok(scene)
    }

    /// The program's pid; one is started if there is none.
    pub(crate) fn program(&mut self) -> Result<i32> {
        self.trials += 1;
        if self.trials.is_multiple_of(TRIALS) {
            self.finish()?;
        }
        if let Some((_, pid)) = &self.program {
            return Ok(*pid);
        }
        let script = format!("{} && exec \"$0\" \"$@\"", self.workload.limits());
        let mut words = vec!["run", "--lease", self.lease, "--", "sh", "-c", &script];
        words.extend(self.words.iter().map(String::as_str));
        let mut talk = Talk::start(self.cluster, &mut self.cluster.whim_command("n1", &words))?;
        let pid = talk.ready()?;
        self.limits = self.limits_of(pid)?;
        self.program = Some((talk, pid));
        Ok(pid)
    }

    fn plan(&self, node: &str, part: &str) -> PathBuf {
        self.plans.join(format!("{node}.{part}"))
    }

    fn daemon_log(&self, node: &str) -> PathBuf {
        self.cluster.state(node).with_file_name("daemon.log")
    }

    /// Whoever is started next as this part of this node ends at a point.
    pub(crate) fn arm(&mut self, node: &str, part: &str, number: u32) -> Result<()> {
        self.said_before = fs::read(self.daemon_log(node))?.len();
        self.plan_of(node, part, &number.to_string())
    }

    /// Whoever is started next as this part of this node has this plan.
    pub(crate) fn plan_of(&self, node: &str, part: &str, text: &str) -> Result<()> {
        let plan = self.plan(node, part);
        let draft = plan.with_extension("draft");
        fs::write(&draft, text)?;
        Ok(fs::rename(draft, plan)?)
    }

    /// Takes a plan back; whether the crash has happened.
    pub(crate) fn disarm(&mut self, node: &str, part: &str, number: u32) -> Result<bool> {
        if fs::remove_file(self.plan(node, part)).is_ok() {
            return Ok(false);
        }
        let crashed = self.crashed(node, part, number)?;
        if !crashed && part == "whimd" {
            // It lives, and counts on.
            self.arm(node, part, 0)?;
        }
        Ok(crashed)
    }

    /// Whether the crash at this point has happened.
    pub(crate) fn crashed(&self, node: &str, part: &str, number: u32) -> Result<bool> {
        let text = format!("Crash point {number}:");
        Ok(self.said(node, part)?.contains(&text))
    }

    /// What the newest supervisor, or the daemon since its plan was made, has said.
    fn said(&self, node: &str, part: &str) -> Result<String> {
        let state = self.cluster.state(node);
        if part == "whimd" {
            let said = fs::read(self.daemon_log(node))?;
            let new = said.get(self.said_before..).unwrap_or_default();
            return Ok(String::from_utf8_lossy(new).into_owned());
        }
        let newest = newest(&state.join("log"), &format!(".{part}.log"))?;
        Ok(newest
            .map(fs::read_to_string)
            .transpose()?
            .unwrap_or_default())
    }

    /// The numbers of the last points that were passed, one for each section of the journey.
    pub(crate) fn passed(&self, node: &str, part: &str) -> Result<Vec<u32>> {
        if part == "whimd" {
            let text = fs::read_to_string(self.plan(node, "passed"))?;
            return Ok(vec![text.trim().parse()?]);
        }
        // By the points themselves: a guest's supervisor that is told to end once its guest is home, as it
        // waits for memory to become free, does not say its sum.
        let said = self.said(node, part)?;
        let passed = points(&said).map(|(number, _)| Ok(number.parse()?));
        let ends = ends_of_sections(&passed.collect::<Result<Vec<u32>>>()?);
        ensure!(
            !ends.is_empty(),
            "The {part} supervisor has not counted: {said}"
        );
        Ok(ends)
    }

    /// Asks for a move; whether it was done.
    pub(crate) fn try_move(&self, pid: i32, target: &str) -> Result<bool> {
        let number = pid.to_string();
        let mut command = self
            .cluster
            .whim_command("n1", &["migrate", &number, target]);
        let output = process::output(&mut command, SETTLED * 2)?;
        Ok(output.status.success())
    }

    /// Starts a daemon unless it runs; whether it answers then. The one that runs may die of its crash
    /// point only while it is being asked, and that is no fault.
    fn start_mortal(&self, node: &str) -> bool {
        let started = self.cluster.lab(&["start", "--daemon", node]);
        if let Err(error) = &started {
            println!("again: {error}");
        }
        started.is_ok()
    }

    /// Starts a daemon unless it runs; again if it dies only now.
    pub(crate) fn restart_daemon(&self, node: &str) -> Result<()> {
        eventually(
            SETTLED,
            &format!("the daemon of {node} is up for all"),
            || {
                if !self.start_mortal(node) {
                    return Ok(None);
                }
                let seen = |from| self.cluster.sees_all_up(from).unwrap_or(false);
                Ok((seen(node) && seen("n1")).then_some(()))
            },
        )
    }

    /// Waits until it is certain what became of the program, and checks that.
    pub(crate) fn settle(&mut self, bring_home: bool) -> Result<Fate> {
        let (cluster, Some((talk, pid))) = (self.cluster, &mut self.program) else {
            bail!("There is no program");
        };
        let pid = *pid;
        let mut said = String::new();
        let fate = eventually(SETTLED, "the program is at home, away or ended", || {
            if talk.ended_within(Duration::ZERO)?.is_some() {
                return Ok(Some(Fate::Ended));
            }
            let Some(row) = cluster.row(pid)? else {
                return Ok(None);
            };
            said = format!("{row:?}");
            match row.state.as_str() {
                "home" => Ok(Some(Fate::Home)),
                "away" if !bring_home => Ok(Some(Fate::Away)),
                "away" => {
                    let _ = cluster.migrate(pid, "home")?;
                    Ok(None)
                }
                _ => Ok(None),
            }
        })
        .with_context(|| format!("`whim ps` says {said}"))?;
        match fate {
            Fate::Ended => self.check_end()?,
            Fate::Home => {
                self.untraced(pid)?;
                self.has_its_limits(pid)?;
                ensure!(self.grows()?, "The program ended at home");
            }
            Fate::Away => {
                if !self.grows()? {
                    // Its supervisor was killed a moment ago, and home's daemon did not know yet.
                    self.check_end()?;
                    return Ok(Fate::Ended);
                }
            }
        }
        Ok(fate)
    }

    fn limits_of(&self, pid: i32) -> Result<String> {
        self.cluster
            .run("n1", &["cat", &format!("/proc/{pid}/limits")])
    }

    fn has_its_limits(&self, pid: i32) -> Result<()> {
        let mut now = String::new();
        let looked = eventually(SETTLED, "the program has its own limits", || {
            now = self.limits_of(pid)?;
            Ok((now == self.limits).then_some(()))
        });
        looked.with_context(|| format!("{now}, before: {}", self.limits))
    }

    /// Numbers of the points of this name that the newest supervisor has passed, or the daemon since
    /// its plan was made, if they were only counted.
    pub(crate) fn numbers_of(&self, node: &str, part: &str, name: &str) -> Result<Vec<u32>> {
        let said = self.said(node, part)?;
        points(&said)
            .filter(|(_, passed)| *passed == name)
            .map(|(number, _)| Ok(number.parse()?))
            .collect()
    }

    fn serial(&self) -> Result<Vec<u8>> {
        let (talk, _) = self.program.as_ref().context("a program")?;
        Ok(fs::read(talk.directory().join("serial"))?)
    }

    /// Waits until the program has done something more; false if it ends instead.
    fn grows(&mut self) -> Result<bool> {
        let before = self.serial()?.len();
        let (cluster, pid) = (self.cluster, self.pid());
        let grown = eventually(SETTLED, "the program goes on", || {
            if let Some((talk, _)) = &mut self.program
                && talk.ended_within(Duration::ZERO)?.is_some()
            {
                return Ok(Some(false));
            }
            Ok((self.serial()?.len() > before).then_some(true))
        });
        let grown = grown.with_context(|| format!("Process {pid}: {:?}", cluster.row(pid)))?;
        check_numbers(&self.serial()?)?;
        Ok(grown)
    }

    fn pid(&self) -> i32 {
        self.program.as_ref().map_or(0, |(_, pid)| *pid)
    }

    /// A program at home has no tracer, and nothing of a deputy in its address space.
    fn untraced(&self, pid: i32) -> Result<()> {
        let script = format!(
            "cat /proc/{pid}/task/*/status | grep TracerPid; grep -c whim-deck /proc/{pid}/maps"
        );
        eventually(SETTLED, "nobody traces the program at home", || {
            let output = process::output(
                &mut self.cluster.command("n1", &["sh", "-c", &script]),
                SETTLED,
            )?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let threads = self.workload.threads();
            let good = text.lines().filter(|line| *line == "TracerPid:\t0").count() == threads
                && text.lines().count() == threads + 1
                && text.ends_with("\n0\n");
            Ok(good.then_some(()))
        })
    }

    /// As if by SIGKILL, with a reason in `ps` and in the log.
    fn check_end(&mut self) -> Result<()> {
        let Some((mut talk, pid)) = self.program.take() else {
            return Ok(());
        };
        let status = talk.end()?;
        use std::os::unix::process::ExitStatusExt;
        ensure!(
            status.signal() == Some(9) || status.code() == Some(137),
            "It ended with {status}: {:?}",
            talk.said
        );
        let reason = self.cluster.ended_row(pid)?.reason.unwrap_or_default();
        ensure!(!reason.is_empty(), "`whim ps -a` does not say why it ended");
        let log = self.cluster.log()?;
        ensure!(
            log.iter()
                .any(|row| row["pid"] == pid && row.to_string().contains(&reason)),
            "`whim log` does not say '{reason}'"
        );
        // Nothing of it has an effect any more, wherever it may be.
        let path = talk.directory().join("serial");
        let numbers = fs::read(&path)?;
        check_numbers(&numbers)?;
        self.nothing_is_left()?;
        ensure!(
            fs::read(&path)? == numbers,
            "It has written after it had ended"
        );
        self.workload.check(talk.directory())
    }

    /// Where the program may have been by its newest journal, the last word first: since the last
    /// place that home has acknowledged, every place that it has committed to. Before the first
    /// commit it is nowhere but at home.
    pub(crate) fn places(&self, pid: i32) -> Result<Vec<String>> {
        let journals = self.cluster.state("n1").join("journeys");
        let newest = newest_of(&journals, &format!("{pid}-"), ".journal")?;
        let text = newest
            .map(fs::read_to_string)
            .transpose()?
            .unwrap_or_default();
        let mut places = Vec::new();
        for line in text.lines() {
            let entry: serde_json::Value = serde_json::from_str(line)?;
            match entry["event"].as_str() {
                Some("commit") => {
                    places.insert(0, entry["to"].as_str().context("a node")?.to_owned())
                }
                Some("acknowledged") => places.truncate(1),
                _ => {}
            }
        }
        Ok(places)
    }

    /// Checks that the contract lets the program end by the death of this supervisor.
    pub(crate) fn may_have_ended(&self, pid: i32, node: &str, part: &str) -> Result<()> {
        let places = self.places(pid)?;
        ensure!(
            !places.is_empty(),
            "The program ended although its journey was not committed"
        );
        let reason = self.cluster.ended_row(pid)?.reason.unwrap_or_default();
        let at_home = reason.starts_with("Its home supervisor ended");
        if part == "guest" {
            ensure!(
                places.iter().any(|place| place == node),
                "The program ended although it was not at {node}, but at one of {places:?}"
            );
        }
        ensure!(
            at_home == (part == "home"),
            "The {part} supervisor was killed, and the reason is '{reason}'"
        );
        Ok(())
    }

    /// Names of a node's processes and whether they are zombies, and what supervisors have there.
    fn look(&self, node: &str) -> Result<Vec<(String, bool)>> {
        let script = "ps -eo stat=,comm=; ls /run/whim/journeys | sed 's/^/supervisor /'";
        let text = self.cluster.run(node, &["sh", "-c", script])?;
        let lines = text.lines().filter_map(|line| {
            let (state, name) = line.trim().split_once(' ')?;
            Some((state, name.trim()))
        });
        Ok(lines
            .map(|(state, name)| match state {
                "supervisor" => (format!("the directory {name}"), false),
                _ => (name.to_owned(), state.starts_with('Z')),
            })
            .collect())
    }

    /// No process of ours, no directory, no control group on any node, but for the program at home.
    pub(crate) fn nothing_is_left(&self) -> Result<()> {
        self.nothing_is_left_by(None)
    }

    /// The same while the daemon of a node is started whenever it has died: it may do so only now, in
    /// cleaning up.
    pub(crate) fn nothing_is_left_by(&self, mortal: Option<&str>) -> Result<()> {
        let mut left = Vec::new();
        let looked = eventually(SETTLED, "nothing is left", || {
            left.clear();
            if mortal.is_some_and(|node| !self.start_mortal(node)) {
                return Ok(None);
            }
            for node in ["n1", "n2", "n3"] {
                for (name, zombie) in self.look(node)? {
                    let at_home = node == "n1" && name == self.name && self.program.is_some();
                    if zombie || !(at_home || self.usual.contains(&name)) {
                        left.push(format!("{node}: {name}"));
                    }
                }
                let groups = self.cluster.guest_groups(node);
                left.extend(groups.iter().map(|path| path.display().to_string()));
            }
            Ok(left.is_empty().then_some(()))
        });
        looked.with_context(|| left.join(", "))
    }

    /// Lets the program end by itself: its parent gets its status.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some((mut talk, _)) = self.program.take() else {
            return Ok(());
        };
        fs::write(talk.directory().join("stop"), "")?;
        let status = talk.end()?;
        ensure!(
            status.code() == Some(STATUS),
            "The program ended with {status}: {:?}",
            talk.said
        );
        check_numbers(&fs::read(talk.directory().join("serial"))?)?;
        self.workload.check(talk.directory())?;
        self.nothing_is_left()
    }
}

/// The numbers and names of the points that a supervisor says to have passed.
fn points(said: &str) -> impl Iterator<Item = (&str, &str)> {
    said.lines()
        .filter_map(|line| line.strip_prefix("Passed crash point "))
        .filter_map(|line| line.split_once(": "))
}

/// The last number of each section. A section without a point ends where it begins.
fn ends_of_sections(numbers: &[u32]) -> Vec<u32> {
    let sections = numbers.iter().max().map_or(0, |last| last / SECTION + 1);
    (0..sections)
        .map(|section| {
            let within = numbers.iter().filter(|number| *number / SECTION == section);
            within.max().map_or(section * SECTION, |last| *last)
        })
        .collect()
}

/// Each number is there once, in order.
fn check_numbers(bytes: &[u8]) -> Result<()> {
    let text = str::from_utf8(bytes)?;
    // The last line may be being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, number) in whole.lines().enumerate() {
        ensure!(
            number.parse() == Ok(line),
            "Line {line} of the serial numbers is '{number}'"
        );
    }
    Ok(())
}

fn newest(directory: &Path, end: &str) -> Result<Option<PathBuf>> {
    newest_of(directory, "", end)
}

fn newest_of(directory: &Path, beginning: &str, end: &str) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(beginning) && name.ends_with(end) {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    found.sort();
    Ok(found.pop().map(|(_, path)| path))
}
