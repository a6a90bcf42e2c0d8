//! A lab of nodes, as `whim lab` makes it, for as long as this is kept.

use super::error::ExperimentError;
use super::programs::Programs;
use super::watch::{Watch, done};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Lab {
    whim: PathBuf,
    name: String,
    pub nodes: Vec<String>,
    is_up: bool,
}

impl Lab {
    /// Starts one, with a cluster of all nodes.
    ///
    /// # Errors
    ///
    /// It cannot be started, or a signal has come; nothing is left of it then.
    pub fn up(
        programs: &Programs,
        nodes: usize,
        cpu: f64,
        work: &Path,
        watch: &Watch,
    ) -> Result<Self, ExperimentError> {
        let lab = Self {
            whim: programs.whim.clone(),
            name: format!("pipt-{}", std::process::id()),
            nodes: (1..=nodes).map(|number| format!("n{number}")).collect(),
            is_up: true,
        };
        let mut command = Command::new(&lab.whim);
        command.args(["lab", "up", "--name", &lab.name]);
        command.args(["--nodes", &nodes.to_string(), "--cpu", &cpu.to_string()]);
        // Nodes have a /tmp and a /run of their own.
        if ["/tmp", "/run"].iter().any(|own| work.starts_with(own)) {
            command.arg("--share").arg(work);
        }
        done(command, "whim lab up", &work.join("lab"), watch)?;
        Ok(lab)
    }

    /// A command on a node.
    #[must_use]
    pub fn on(&self, node: &str, program: &Path) -> Command {
        let mut command = Command::new(&self.whim);
        command.args(["lab", "exec", "--name", &self.name, node, "--"]);
        command.arg(program);
        command
    }

    /// `whim` with these words on a node: what it prints.
    ///
    /// # Errors
    ///
    /// It fails, or a signal has come.
    pub fn ask(
        &self,
        node: &str,
        words: &[&str],
        work: &Path,
        watch: &Watch,
    ) -> Result<String, ExperimentError> {
        let mut command = self.on(node, &self.whim);
        command.args(words);
        let what = format!("whim {} on {node}", words.join(" "));
        done(command, &what, &work.join("ask"), watch)
    }

    /// Ends it and everything in it.
    ///
    /// # Errors
    ///
    /// It cannot be ended.
    pub fn down(mut self) -> Result<(), ExperimentError> {
        self.is_up = false;
        let what = format!("whim lab down --name {}", self.name);
        let output = self.ending().output();
        let output = output.map_err(|error| ExperimentError::Start(what.clone(), error))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(ExperimentError::Failed(
                    what,
                    output.status.to_string(),
                    said,
                ))
            }
        }
    }

    fn ending(&self) -> Command {
        let mut command = Command::new(&self.whim);
        command.args(["lab", "down", "--name", &self.name]);
        command.stdin(Stdio::null());
        // A second Ctrl-C does not keep it from being done.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_up {
            // Something has failed before, which is what the user is told.
            let _said = self.ending().output();
        }
    }
}
