//! Ranks in the nodes of a lab.
//!
//! Open MPI's `mpirun` runs in the first node. An agent of its own could not reach the other nodes from there, for each
//! has its own processes and mounts; so its agent (`plm_rsh_agent`) only writes down what is to be started where, in a
//! directory that all see, and each daemon is started from outside, in its node. From then on everything goes over the
//! lab's network.
//!
//! MPICH 4.0.2 of Debian 12 could be started alike (`-launcher manual`), but its ranks talk by UCX 1.13, by TCP between
//! nodes: 16 of 43 jobs hung in `MPI_Finalize`, one rank in `ucp_worker_progress`, the others waiting for it. Other
//! devices, no PUT, and a barrier with progress before did not help. Of 60 such jobs of Open MPI none hung.

use super::error::ExperimentError;
use super::lab::Lab;
use super::watch::{Program, Watch};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Called with a host and the words of a command. A file has its name when it is whole.
const AGENT: &str = "#!/bin/sh\n\
                     at=$(dirname \"$0\")\n\
                     host=$1\n\
                     shift\n\
                     printf '%s\\n' \"$*\" > \"$at/part.$host\" && mv \"$at/part.$host\" \"$at/start.$host\"\n";
/// TCP over the network of the lab alone, without the memory that processes of one machine share; a rank in each node,
/// whose CPUs the lab has set.
const OPTIONS: [&str; 20] = [
    "--allow-run-as-root",
    "--map-by",
    "node",
    "--bind-to",
    "none",
    "--mca",
    "plm_rsh_no_tree_spawn",
    "1",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "tcp,self",
    "--mca",
    "btl_tcp_if_include",
    "eth0",
    "--mca",
    "oob_tcp_if_include",
    "eth0",
];

/// What the agent has written down: the node, and the command for its shell.
struct Starts {
    directory: PathBuf,
    seen: BTreeSet<String>,
}

impl Starts {
    fn begin(directory: PathBuf) -> Result<Self, ExperimentError> {
        let made = fs::create_dir_all(&directory);
        made.map_err(|error| ExperimentError::file("made", &directory, error))?;
        let agent = directory.join("agent");
        let written = fs::write(&agent, AGENT)
            .and_then(|()| fs::set_permissions(&agent, Permissions::from_mode(0o755)));
        written.map_err(|error| ExperimentError::file("written", &agent, error))?;
        Ok(Self {
            directory,
            seen: BTreeSet::new(),
        })
    }

    fn agent(&self) -> PathBuf {
        self.directory.join("agent")
    }

    /// Those of these nodes that were not given before.
    fn next(&mut self, nodes: &[String]) -> Result<Vec<(String, String)>, ExperimentError> {
        let mut all = Vec::new();
        for node in nodes {
            let path = self.directory.join(format!("start.{node}"));
            if self.seen.contains(node) || !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| ExperimentError::file("read", &path, error))?;
            self.seen.insert(node.clone());
            all.push((node.clone(), text.trim().to_owned()));
        }
        Ok(all)
    }
}

/// Runs one rank of `command` in each node, and gives what they printed and how many seconds it took.
///
/// # Errors
///
/// It fails, or a signal has come.
pub fn launch(
    lab: &Lab,
    mpirun: &Path,
    (what, command): (&str, &[String]),
    stem: &Path,
    watch: &Watch,
) -> Result<(String, f64), ExperimentError> {
    let named = |end: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let mut starts = Starts::begin(named("-ranks"))?;
    let mut launcher = lab.on(&lab.nodes[0], mpirun);
    launcher
        .args(OPTIONS)
        .args(["--mca", "plm_rsh_agent"])
        .arg(starts.agent())
        .args([
            "-H",
            &lab.nodes.join(","),
            "-n",
            &lab.nodes.len().to_string(),
        ])
        .args(command);
    let mut mpirun = [Program::start(launcher, what, stem)?];
    let mut daemons = Vec::new();
    watch.finish(&mut mpirun, &mut || {
        for (node, text) in starts.next(&lab.nodes)? {
            let mut daemon = lab.on(&node, Path::new("/bin/sh"));
            daemon.args(["-c", &text]);
            let what = format!("{what}: the daemon of {node}");
            daemons.push(Program::start(daemon, &what, &named(&format!("-{node}")))?);
        }
        Ok(())
    })?;
    watch.finish(&mut daemons, &mut || Ok(()))?;
    Ok((mpirun[0].printed()?, mpirun[0].seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_agent_writes_down_what_is_to_be_started_where() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut starts = Starts::begin(directory.path().join("ranks")).expect("an agent");
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        assert!(starts.next(&nodes).expect("read").is_empty());
        let mut agent = Command::new(starts.agent());
        let ended = agent.args(["n2", "orted", "-mca ess", "\"env\""]).status();
        assert!(ended.expect("it runs").success());
        let wanted = ("n2".to_owned(), "orted -mca ess \"env\"".to_owned());
        assert_eq!(starts.next(&nodes).expect("read"), [wanted]);
        assert!(starts.next(&nodes).expect("read").is_empty());
    }
}
