//! A lab of one test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::place;
use crate::process::{self, Running, eventually};
use crate::users::Account;

/// How long a command may take that only asks or tells.
const SHORT: Duration = Duration::from_secs(30);
/// How long a lab may take to come up or go down.
const SLOW: Duration = Duration::from_secs(90);
/// Within this time a thread can be stopped: one that waits in our code for a tracer that is gone leaves after
/// one second, of the time in which it may run.
const STOPPABLE_WITHIN: Duration = Duration::from_secs(10);
/// How long a move may take before it counts as hung.
const MOVE_LIMIT: Duration = Duration::from_secs(120);
/// Lines of each log that are shown when a test fails.
const SHOWN_LINES: usize = 60;

static LABS: AtomicU32 = AtomicU32::new(0);

/// Several nodes on this machine, for one test. Dropping it takes everything down.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    programs: PathBuf,
    directory: PathBuf,
    nodes: usize,
    /// Its nodes move programs by themselves.
    balances: bool,
    /// In a cluster of plain users: who gives commands on which node.
    pub(crate) accounts: Vec<Account>,
    /// Theirs; threads of a test share the cluster.
    pub(crate) daemons: Mutex<Vec<Running>>,
}

/// A row of `whim ps --json`, as far as tests look at it.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    pub pid: i32,
    pub home: String,
    #[serde(rename = "where")]
    pub place: String,
    pub state: String,
    pub reason: Option<String>,
    pub moves: u32,
    pub memory_bytes: u64,
    pub stay: Option<String>,
    pub home_supervisor_pid: Option<i32>,
    pub guest_supervisor_pid: Option<i32>,
    pub command: String,
}

/// What came of a request to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// With the report's last line.
    Done(String),
    /// With exit status 1 and this sentence.
    Refused(String),
}

impl Cluster {
    /// A lab of this many nodes: n1, n2, ...
    ///
    /// # Errors
    /// When it does not come up; nothing of it is left then.
    pub fn up(nodes: usize) -> Result<Self> {
        Self::up_with(nodes, &[])
    }

    /// The same with further options of `whim lab up`.
    ///
    /// # Errors
    /// When it does not come up; nothing of it is left then.
    pub fn up_with(nodes: usize, options: &[&str]) -> Result<Self> {
        Self::prepare(nodes)?.start(options)
    }

    /// The same, and its nodes move programs by themselves. In others only the test moves them.
    ///
    /// # Errors
    /// When it does not come up; nothing of it is left then.
    pub fn balancing(nodes: usize, options: &[&str]) -> Result<Self> {
        let mut cluster = Self::prepare(nodes)?;
        cluster.balances = true;
        cluster.start(options)
    }

    /// The same, where one of our programs runs under limits that [`Self::limit_programs`] sets.
    ///
    /// # Errors
    /// When it does not come up; nothing of it is left then.
    pub fn up_limiting(nodes: usize, program: &str) -> Result<Self> {
        let mut cluster = Self::prepare(nodes)?;
        cluster.programs = place::limited_programs(&cluster.programs, &cluster.directory, program)?;
        cluster.limit_programs("")?;
        cluster.start(&[])
    }

    /// Sets the limits of programs that start from now on: lines of shell, such as `ulimit -n 20`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn limit_programs(&self, lines: &str) -> Result<()> {
        Ok(fs::write(self.programs.join(place::LIMITS), lines)?)
    }

    /// The control group of a node, in the hierarchy of a controller.
    #[must_use]
    pub fn group(&self, controller: &str, node: &str) -> Option<PathBuf> {
        let below = Path::new("whim-lab").join(&self.name).join(node);
        [controller, "unified", ""]
            .iter()
            .map(|hierarchy| Path::new("/sys/fs/cgroup").join(hierarchy).join(&below))
            .find(|group| group.join(format!("{controller}.max")).exists())
    }

    /// A node's control groups in hierarchies that are mounted at these places.
    #[must_use]
    pub fn node_groups(&self, node: &str, places: &[&str]) -> Vec<PathBuf> {
        let below = Path::new("whim-lab").join(&self.name).join(node);
        let root = Path::new("/sys/fs/cgroup");
        let groups = places.iter().map(|place| root.join(place).join(&below));
        groups.filter(|group| group.exists()).collect()
    }

    /// A node's control group where the kernel tells of its pressure: version 2, beside limits of version 1.
    #[must_use]
    pub fn pressure_group(&self, node: &str) -> Option<PathBuf> {
        let below = Path::new("whim-lab").join(&self.name).join(node);
        let places = ["unified", ""].map(|place| Path::new("/sys/fs/cgroup").join(place));
        let mut groups = places.iter().map(|place| place.join(&below));
        groups.find(|group| group.join("memory.pressure").exists())
    }

    fn prepare(nodes: usize) -> Result<Self> {
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}-{number}", std::process::id());
        let directory = place::room()?.join(format!("run-{name}"));
        fs::create_dir_all(&directory)?;
        Ok(Self {
            programs: place::programs(&name)?,
            name,
            directory,
            nodes,
            balances: false,
            accounts: Vec::new(),
            daemons: Mutex::default(),
        })
    }

    fn start(self, options: &[&str]) -> Result<Self> {
        self.sweep();
        let count = self.nodes.to_string();
        let mut words = vec!["up", "--nodes", &count];
        words.extend(options);
        if !self.balances {
            words.extend(["--daemon-arg", "--no-balance"]);
        }
        process::succeed(&mut self.lab_command(&words), SLOW).context("The lab did not come up")?;
        Ok(self)
    }

    /// Takes down what tests that were killed have left.
    fn sweep(&self) {
        let labs = Path::new("/run/whim-lab");
        for entry in fs::read_dir(labs).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_abandoned(&name) {
                let mut down = Command::new(self.whim_path());
                let _ = process::output(down.args(["lab", "down", "--name", &name]), SLOW);
            }
        }
        let room = self.directory.parent().unwrap_or(Path::new("/nonexistent"));
        for entry in fs::read_dir(room).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.strip_prefix("run-").is_some_and(is_abandoned) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// A directory of this test's own, seen by all nodes; it goes with the lab.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The homes of plain users, seen by all nodes; it goes with the lab.
    #[must_use]
    pub fn accounts_directory(&self) -> PathBuf {
        place::accounts(&self.name)
    }

    /// What a node keeps: journals, logs, identity; seen from outside of it.
    #[must_use]
    pub fn state(&self, node: &str) -> PathBuf {
        Path::new("/run/whim-lab")
            .join(&self.name)
            .join(node)
            .join("var")
    }

    /// The control groups of guests on a node.
    #[must_use]
    pub fn guest_groups(&self, node: &str) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_dir(root).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for place in controllers.map(|entry| entry.path()).chain([root.into()]) {
            let groups = place.join("whim-lab").join(&self.name).join(node);
            for all in directories(&groups.join("whim-journeys")) {
                if all.to_string_lossy().ends_with("-guests") {
                    found.extend(directories(&all));
                }
            }
        }
        found
    }

    /// A node's control group, in the hierarchy in which memory is limited.
    #[must_use]
    pub fn memory_group(&self, node: &str) -> Option<PathBuf> {
        let below = Path::new("whim-lab").join(&self.name).join(node);
        let places = ["memory", "unified", ""];
        let mut groups = places.map(|place| Path::new("/sys/fs/cgroup").join(place).join(&below));
        let group = groups
            .iter_mut()
            .find(|group| memory_limit(group).is_some());
        group.map(|group| group.clone())
    }

    /// The group of all guests of a node, where memory is limited.
    #[must_use]
    pub fn all_guests_group(&self, node: &str) -> Option<PathBuf> {
        let groups = directories(&self.memory_group(node)?.join("whim-journeys"));
        groups
            .into_iter()
            .find(|group| group.to_string_lossy().ends_with("-guests"))
    }

    /// Writes a node's configuration, for the next daemon there.
    ///
    /// # Errors
    /// When the node does not take it.
    pub fn configure(&self, node: &str, text: &str) -> Result<()> {
        let script = "mkdir -p /etc/whim && printf %s \"$1\" > /etc/whim/config.toml";
        self.run(node, &["sh", "-c", script, "sh", text]).map(drop)
    }

    /// The number of a node's daemon, there.
    ///
    /// # Errors
    /// When the node does not tell.
    pub fn daemon_pid(&self, node: &str) -> Result<String> {
        let words = [
            "sh",
            "-c",
            "ps -eo pid,comm | awk '$2 == \"whimd\" { print $1; exit }'",
        ];
        Ok(self.run(node, &words)?.trim().to_owned())
    }

    /// Waits until the daemon of a node has written down all its programs for the next one, which it does in a moment
    /// after they have begun.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn written_down(&self, node: &str) -> Result<()> {
        let file = self.state(node).join("candidates.json");
        eventually(SHORT, &format!("{node} writes its programs down"), || {
            let rows = self.rows(node, false)?;
            let mut here = rows
                .iter()
                .filter(|row| row.home == node && row.place == node);
            let noted = fs::read_to_string(&file).unwrap_or_default();
            let all = here.all(|row| noted.contains(&format!("\"pid\":{},", row.pid)));
            Ok(all.then_some(()))
        })
    }

    /// Kills the daemon of a node and starts it again.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn restart_daemon(&self, node: &str) -> Result<()> {
        self.written_down(node)?;
        let pid = self.daemon_pid(node)?;
        self.run(node, &["kill", "-KILL", &pid])?;
        eventually(Duration::from_secs(10), "the daemon is gone", || {
            Ok((self.daemon_pid(node)? != pid).then_some(()))
        })?;
        self.start_daemon(node)
    }

    /// Starts the daemon of a node that has none.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn start_daemon(&self, node: &str) -> Result<()> {
        self.lab(&["start", "--daemon", node]).map(drop)
    }

    /// The command line's program.
    #[must_use]
    pub fn whim_path(&self) -> PathBuf {
        self.programs.join("whim")
    }

    /// The daemon's.
    #[must_use]
    pub fn whimd_path(&self) -> PathBuf {
        self.programs.join("whimd")
    }

    pub(crate) fn lab_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.whim_path());
        command
            .args(["lab", words[0], "--name", &self.name])
            .args(&words[1..]);
        command.current_dir(&self.directory);
        command
    }

    /// A verb of `whim lab` for this lab, for example `["cut", "n1", "n2"]`.
    ///
    /// # Errors
    /// When it fails.
    pub fn lab(&self, words: &[&str]) -> Result<String> {
        process::succeed(&mut self.lab_command(words), SLOW)
    }

    /// A command on a node, in the lab's directory, still to be run.
    #[must_use]
    pub fn command<S: AsRef<str>>(&self, node: &str, words: &[S]) -> Command {
        match self.account(node) {
            Some(account) => self.command_of_root(node, &account.words(words)),
            None => self.command_of_root(node, words),
        }
    }

    /// The same for an ordinary user.
    #[must_use]
    pub fn command_as<S: AsRef<str>>(&self, user: &str, node: &str, words: &[S]) -> Command {
        let mut command = self.lab_command(&["exec", node, "--user", user, "--"]);
        command
            .args(words.iter().map(AsRef::as_ref))
            .env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs a command on a node; its standard output.
    ///
    /// # Errors
    /// When it fails.
    pub fn run<S: AsRef<str>>(&self, node: &str, words: &[S]) -> Result<String> {
        process::succeed(&mut self.command(node, words), SHORT)
    }

    /// A command of `whim` on a node, still to be run.
    #[must_use]
    pub fn whim_command(&self, node: &str, words: &[&str]) -> Command {
        let whim = self.whim_path().display().to_string();
        let mut all = vec![whim.as_str()];
        all.extend(words);
        self.command(node, &all)
    }

    /// Runs a command of `whim` on a node; its standard output.
    ///
    /// # Errors
    /// When it fails.
    pub fn whim(&self, node: &str, words: &[&str]) -> Result<String> {
        process::succeed(&mut self.whim_command(node, words), SHORT)
    }

    /// Lets a node join by the one at `host`, by a token that it reads.
    ///
    /// # Errors
    /// When it fails.
    pub fn join(&self, node: &str, host: &str, token: &str) -> Result<String> {
        let mut command = self.whim_command(node, &["join", host, "--node", node]);
        process::succeed_fed(&mut command, token, SHORT)
    }

    /// What a command of `whim` says that has to be refused with exit status 1.
    ///
    /// # Errors
    /// When it is not.
    pub fn refused(&self, node: &str, words: &[&str]) -> Result<String> {
        self.refused_fed(node, words, "")
    }

    /// The same of one that reads this, which is short.
    ///
    /// # Errors
    /// When it is not.
    pub fn refused_fed(&self, node: &str, words: &[&str], input: &str) -> Result<String> {
        let mut command = self.whim_command(node, words);
        // Whoever wants to see the stack of programs of her own has not asked for that of ours.
        command.env("RUST_BACKTRACE", "1");
        let output = process::output_fed(&mut command, input, SHORT)?;
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(!text.contains("backtrace"), "A stack is shown: {text}");
        ensure!(
            output.status.code() == Some(1),
            "`whim {}` was to be refused with exit status 1, but: {}: {text}",
            words.join(" "),
            output.status
        );
        ensure!(
            !text.is_empty(),
            "`whim {}` was refused without a reason",
            words.join(" ")
        );
        Ok(text)
    }

    /// Starts a program on a node so that it may move, still to be run: with the lease that users have. What is shown
    /// is the program, and not what a lab's short lease does to it on a machine that has other things to do.
    #[must_use]
    pub fn run_command<S: AsRef<str>>(&self, node: &str, words: &[S]) -> Command {
        let mut all = vec!["run", "--lease", "30", "--"];
        all.extend(words.iter().map(AsRef::as_ref));
        self.whim_command(node, &all)
    }

    /// The same with the short lease of a lab, for what a loss leaves behind.
    #[must_use]
    pub fn short_command<S: AsRef<str>>(&self, node: &str, words: &[S]) -> Command {
        let mut all = vec!["run", "--"];
        all.extend(words.iter().map(AsRef::as_ref));
        self.whim_command(node, &all)
    }

    /// The rows of `whim ps` on a node, with ended processes if `all`.
    ///
    /// # Errors
    /// When it fails, or its output is not as documented.
    pub fn rows(&self, node: &str, all: bool) -> Result<Vec<Row>> {
        let words: &[&str] = if all {
            &["ps", "-a", "--json"]
        } else {
            &["ps", "--json"]
        };
        let text = self.whim(node, words)?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("Not a row: {line}")))
            .collect()
    }

    /// The row of this process of n1's.
    ///
    /// # Errors
    /// When `whim ps` fails.
    pub fn row(&self, pid: i32) -> Result<Option<Row>> {
        Ok(self
            .rows("n1", false)?
            .into_iter()
            .find(|row| row.pid == pid))
    }

    /// The row of this process, or of one that has ended.
    ///
    /// # Errors
    /// When there is none.
    pub fn ended_row(&self, pid: i32) -> Result<Row> {
        let rows = self.rows("n1", true)?;
        let row = rows
            .iter()
            .find(|row| row.pid == pid && row.state == "ended");
        row.cloned()
            .with_context(|| format!("`whim ps -a` does not show that {pid} ended: {rows:?}"))
    }

    /// Waits until a process of n1's whose command holds this text may move.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn find(&self, text: &str) -> Result<i32> {
        eventually(SHORT, &format!("a process '{text}' in `whim ps`"), || {
            let rows = self.rows("n1", false)?;
            Ok(rows
                .iter()
                .find(|row| row.command.contains(text))
                .map(|row| row.pid))
        })
    }

    /// Waits until the process is in this state, as `whim ps` has it.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn await_state(&self, pid: i32, state: &str) -> Result<Row> {
        eventually(SHORT, &format!("{pid} is in state '{state}'"), || {
            Ok(self.row(pid)?.filter(|row| row.state == state))
        })
    }

    /// Asks n1 to move a process and waits for the answer.
    ///
    /// # Errors
    /// When the answer is neither done nor a refusal, or does not come.
    pub fn migrate(&self, pid: i32, target: &str) -> Result<Moved> {
        let pid = pid.to_string();
        let mut command = self.whim_command("n1", &["migrate", &pid, target]);
        let output = process::output(&mut command, MOVE_LIMIT)?;
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.code() {
            Some(0) => {
                let report = String::from_utf8_lossy(&output.stdout).into_owned();
                Ok(Moved::Done(
                    report.lines().last().unwrap_or_default().to_owned(),
                ))
            }
            Some(1) => Ok(Moved::Refused(text)),
            _ => bail!("`whim migrate {pid} {target}`: {}: {text}", output.status),
        }
    }

    /// Moves a process, which has to work. A thread that cannot be stopped just now, and a host that takes long while
    /// a program with filters stands still, are given time.
    ///
    /// # Errors
    /// When it is refused.
    pub fn move_to(&self, pid: i32, target: &str) -> Result<()> {
        let deadline = Instant::now() + STOPPABLE_WITHIN;
        loop {
            let Moved::Refused(reason) = self.migrate(pid, target)? else {
                return Ok(());
            };
            let passing = ["cannot be stopped now", "was not ready within"];
            let passes = passing.iter().any(|sentence| reason.contains(sentence));
            if !passes || Instant::now() > deadline {
                bail!("{pid} does not move to {target}: {reason}");
            }
        }
    }

    /// Has a process of n1 compute on this node, where it may be already.
    ///
    /// # Errors
    /// As [`move_to`](Self::move_to).
    pub fn have_on(&self, pid: i32, node: &str) -> Result<()> {
        let (node, target) = match node {
            "n1" | "home" => ("n1", "home"),
            other => (other, other),
        };
        if self.place(pid)? == node {
            return Ok(());
        }
        self.move_to(pid, target)
    }

    /// The node on which a process of n1 computes.
    ///
    /// # Errors
    /// It is gone, or n1 does not tell.
    pub fn place(&self, pid: i32) -> Result<String> {
        let row = self.row(pid)?;
        Ok(row.with_context(|| format!("{pid} is gone"))?.place)
    }

    /// The log of n1, as `whim log` prints it.
    ///
    /// # Errors
    /// When it fails.
    pub fn log(&self) -> Result<Vec<Value>> {
        let text = self.whim("n1", &["log", "--json"])?;
        text.lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// What a node's daemon and supervisors have written down so far.
    #[must_use]
    pub fn logs(&self, node: &str) -> String {
        let place = Path::new("/run/whim-lab").join(&self.name).join(node);
        let texts = logs(&place, 4).into_iter().map(fs::read_to_string);
        texts.filter_map(std::result::Result::ok).collect()
    }

    /// Prints what the nodes have to say: for a test that fails.
    pub fn explain(&self) {
        for words in [&["ps", "-a"][..], &["log"], &["nodes"]] {
            let told = process::output(&mut self.whim_command("n1", words), SHORT);
            if let Ok(output) = told {
                let text = [output.stdout, output.stderr].concat();
                show(
                    &format!("whim {}", words.join(" ")),
                    &String::from_utf8_lossy(&text),
                );
            }
        }
        let state = Path::new("/run/whim-lab").join(&self.name);
        let mut told = logs(&state, 5);
        told.extend(logs(&self.accounts_directory(), 5));
        for log in told {
            let text = fs::read(&log).unwrap_or_default();
            show(&log.display().to_string(), &String::from_utf8_lossy(&text));
        }
    }

    /// Runs a test's body; if it fails, the nodes explain themselves before they go down.
    ///
    /// # Errors
    /// Those of the body.
    pub fn explaining<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = body();
        if let Err(error) = &result {
            println!("failed: {error:#}");
            self.explain();
        }
        result
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.explain();
        }
        if let Err(error) = process::succeed(&mut self.lab_command(&["down"]), SLOW) {
            println!("The lab {} did not go down: {error:#}", self.name);
        }
        if std::env::var_os("WHIM_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
            let _ = fs::remove_dir_all(self.accounts_directory());
        }
        if self
            .programs
            .file_name()
            .is_some_and(|last| last == place::copies_of(&self.name).as_str())
        {
            let _ = fs::remove_dir_all(&self.programs);
        }
    }
}

/// Whether this is the name of a lab whose test has ended without taking it down.
fn is_abandoned(name: &str) -> bool {
    let owner = name.strip_prefix('t').and_then(|rest| rest.split_once('-'));
    owner
        .and_then(|(pid, _)| pid.parse::<u32>().ok())
        .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// The log files below a directory, no deeper than `depth`.
fn logs(directory: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() && depth > 0 {
            found.extend(logs(&path, depth - 1));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found
}

/// The file that limits the memory of a control group.
#[must_use]
pub fn memory_limit(group: &Path) -> Option<PathBuf> {
    let files = ["memory.limit_in_bytes", "memory.max"];
    let mut files = files.iter().map(|file| group.join(file));
    files.find(|file| file.exists())
}

fn directories(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

fn show(title: &str, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return;
    }
    println!("  -- {title}");
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        println!("     {line}");
    }
}
