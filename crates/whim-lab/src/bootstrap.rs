//! From bare nodes to a cluster: the steps of a lab's start, and its daemons.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use crate::command;
use crate::error::LabError;
use crate::lab::{Work, exec_command};
use crate::options::{Place, Step};
use crate::process::ProcessId;
use crate::state::{DaemonRecord, address4, address6};
use crate::status::node_proc;

/// How long one step of the cluster's start may take.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Most of a log that goes into an error.
const LOG_TAIL_BYTES: usize = 2000;

impl Work {
    pub(crate) fn bootstrap(&mut self) -> Result<(), LabError> {
        let steps = self.state.options.bootstrap.clone();
        for (index, name) in self.node_names().iter().enumerate() {
            let mut captured = BTreeMap::new();
            let steps = if index == 0 {
                &steps.first
            } else {
                &steps.others
            };
            for step in steps {
                match step {
                    Step::Daemon => self.start_daemon(name)?,
                    Step::Run {
                        on,
                        command,
                        input,
                        capture,
                    } => {
                        let input = input.as_deref().unwrap_or_default();
                        let output = self.run_step(name, *on, command, input, &captured)?;
                        if let Some(key) = capture {
                            captured.insert(key.clone(), output);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn run_step(
        &self,
        node: &str,
        on: Place,
        words: &[String],
        input: &str,
        captured: &BTreeMap<String, String>,
    ) -> Result<String, LabError> {
        let place = match on {
            Place::First => "n1",
            Place::This => node,
        };
        let words = self.fill_in(node, words, captured)?;
        let input = self.fill_in(node, &[input.to_owned()], captured)?.concat();
        let Some((program, arguments)) = words.split_first() else {
            return Ok(String::new());
        };
        let shown = words.join(" ");
        let failed = |why: String| LabError::Step {
            node: place.to_owned(),
            command: shown.clone(),
            why: format!("{why}{}", self.log_tail(place)),
        };
        let mut command = exec_command(
            &self.layout,
            &self.state,
            place,
            None,
            &[],
            program.as_ref(),
        );
        command.args(arguments);
        let outcome = command::run(&mut command, &input, Some(STEP_LIMIT))
            .map_err(|e| failed(format!("could not be started: {e}")))?;
        match outcome.status {
            Some(status) if status.success() => Ok(outcome.output.trim().to_owned()),
            Some(status) => Err(failed(format!(
                "failed ({status}): {}",
                outcome.errors.trim()
            ))),
            None => Err(failed(format!(
                "did not end within {} s",
                STEP_LIMIT.as_secs()
            ))),
        }
    }

    /// Puts addresses and names into a command.
    fn fill_in(
        &self,
        node: &str,
        words: &[String],
        captured: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, LabError> {
        let number = self.state.node(node)?.number;
        let mut known = captured.clone();
        for (key, value) in [
            ("lab", self.layout.name().to_owned()),
            ("node", node.to_owned()),
            ("address", address4(number)),
            ("address6", address6(number)),
            ("first_address", address4(1)),
            ("first_address6", address6(1)),
        ] {
            known.insert(key.to_owned(), value);
        }
        let fill = |word: &String| {
            known.iter().fold(word.clone(), |w, (key, value)| {
                w.replace(&format!("{{{key}}}"), value)
            })
        };
        Ok(words.iter().map(fill).collect())
    }

    pub(crate) fn start_daemon(&mut self, name: &str) -> Result<(), LabError> {
        let words = self.fill_in(name, &self.state.options.daemon, &BTreeMap::new())?;
        let Some((program, arguments)) = words.split_first() else {
            return Ok(());
        };
        let init = self.state.running_init(name)?;
        let before = self.state.node(name)?.daemon;
        if before.is_some_and(|d| d.process.outlives_its_signals_in(&node_proc(init.pid))) {
            return Ok(());
        }
        let mut command = self.roles().command("exec", name);
        command
            .arg("--detach")
            .arg("--")
            .arg(program)
            .args(arguments)
            .current_dir("/");
        let failed = |why: String| LabError::Step {
            node: name.to_owned(),
            command: words.join(" "),
            why,
        };
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed(format!("could not be started: {e}")))?;
        // One line with the process id, and another one only if it could not be executed.
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let pid: i32 = match first.parse() {
            Ok(pid) if output.status.success() && rest.is_empty() => pid,
            _ => return Err(failed(format!("failed: {}{}", rest.trim(), errors.trim()))),
        };
        let process = ProcessId::of_in(&node_proc(init.pid), pid)
            .ok_or_else(|| failed(format!("ended at once{}", self.log_tail(name))))?;
        self.state.node_mut(name)?.daemon = Some(DaemonRecord { process });
        self.save()
    }

    fn log_tail(&self, node: &str) -> String {
        let bytes = std::fs::read(self.layout.daemon_log(node)).unwrap_or_default();
        let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..];
        if tail.is_empty() {
            return String::new();
        }
        format!(
            "\nThe end of the daemon's output on {node}:\n{}",
            String::from_utf8_lossy(tail)
        )
    }
}
