//! A program that works when it is told to, and says what came of it.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use whim_system_tests::{Cluster, Context, Result, Running, bail, ensure, process};

/// How long a program may take for one order.
const PATIENCE: Duration = Duration::from_secs(180);
const MOVE_LIMIT: Duration = Duration::from_secs(180);
/// A thread that cannot be stopped just now is given time.
const TRIES: usize = 20;

/// A program, what it is told, and what it says. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Worker {
    orders: PipeWriter,
    lines: Receiver<String>,
    /// As its own node numbers it.
    pub pid: i32,
    running: Running,
}

impl Worker {
    /// Starts a program that may move, or one that does not, in the lab's directory on n1. It says
    /// `pid` and its number first.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(cluster: &Cluster, words: &[&str], may_move: bool) -> Result<Self> {
        let command = if may_move {
            cluster.run_command("n1", words)
        } else {
            cluster.command("n1", words)
        };
        let mut worker = Self::spawn(command)?;
        let line = worker.line()?;
        let pid = line.strip_prefix("pid ").context("It says no pid")?;
        worker.pid = pid.parse()?;
        if may_move {
            cluster.await_state(worker.pid, "home")?;
        }
        Ok(worker)
    }

    /// Starts any program that takes orders.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn spawn(mut command: Command) -> Result<Self> {
        let (stdin, orders) = std::io::pipe()?;
        let (output, stdout) = std::io::pipe()?;
        let running = Running::spawn(command.stdin(stdin).stdout(stdout))?;
        // Our copies of its ends go, so that its end is seen.
        command
            .stdin(File::open("/dev/null")?)
            .stdout(File::open("/dev/null")?);
        Ok(Self {
            orders,
            lines: lines_of(output),
            pid: 0,
            running,
        })
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// When it says nothing in time, or has ended.
    pub(super) fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(_) => bail!(
                "The program says nothing; its status is {:?}",
                self.running.wait_up_to(Duration::ZERO)?
            ),
        }
    }

    /// Lines that have come already.
    pub(super) fn heard(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Gives an order and waits for the answer.
    ///
    /// # Errors
    /// When there is none in time.
    pub(super) fn ask(&mut self, order: &str) -> Result<String> {
        writeln!(self.orders, "{order}").context("The program takes no orders any more")?;
        self.line()
    }

    /// Gives an order that is answered by times in nanoseconds; the same in microseconds.
    ///
    /// # Errors
    /// When there is no answer in time, or another one.
    pub(super) fn times_us(&mut self, order: &str) -> Result<Vec<f64>> {
        let line = self.ask(order)?;
        line.split_ascii_whitespace()
            .map(|word| {
                let ns: f64 = word
                    .parse()
                    .with_context(|| format!("'{word}' is no time"))?;
                Ok(ns / 1000.0)
            })
            .collect()
    }

    /// Ends it on its node, and everything that the lab has for it.
    ///
    /// # Errors
    /// When it does not end.
    pub(super) fn end(mut self, cluster: &Cluster) -> Result<()> {
        cluster.run("n1", &["kill", "-KILL", &self.pid.to_string()])?;
        self.running.wait(PATIENCE)?;
        Ok(())
    }
}

fn lines_of(output: PipeReader) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Moves a process; the report of `whim migrate --json`.
///
/// # Errors
/// When it is refused.
pub(super) fn migrate(cluster: &Cluster, pid: i32, target: &str) -> Result<Value> {
    let pid = pid.to_string();
    let mut reason = String::new();
    for _ in 0..TRIES {
        let mut command = cluster.whim_command("n1", &["migrate", &pid, target, "--json"]);
        let output = process::output(&mut command, MOVE_LIMIT)?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().last().context("The move has no report")?;
            return serde_json::from_str(line).with_context(|| format!("Not a report: {line}"));
        }
        reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(
            output.status.code() == Some(1) && reason.contains("busy"),
            "{pid} does not move to {target}: {}: {reason}",
            output.status
        );
    }
    bail!("{pid} does not move to {target}: {reason}")
}

/// A number of a report.
///
/// # Errors
/// When the report has no such number.
pub(super) fn number(report: &Value, name: &str) -> Result<f64> {
    report[name]
        .as_f64()
        .with_context(|| format!("The report has no '{name}': {report}"))
}
