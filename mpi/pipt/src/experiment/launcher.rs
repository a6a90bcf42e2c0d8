//! Ranks in the nodes of a lab.
//!
//! Hydra, MPICH's `mpirun`, runs in the first node. A launcher of its own could not reach the other nodes from there,
//! for each has its own processes and mounts; so it is asked to say what would have to be launched
//! (`-launcher manual`), and each of its proxies is started from outside, in its node. From then on everything goes
//! over the lab's network.

use super::error::ExperimentError;
use super::lab::Lab;
use super::watch::{Program, Watch};
use std::path::Path;

/// Before the command of a proxy, and after the last of them.
const PROXY: &str = "HYDRA_LAUNCH:";
const ALL: &str = "HYDRA_LAUNCH_END";
/// MPICH of Debian talks by UCX: by TCP, and not by the memory that ranks of one node share.
const TRANSPORT: [(&str, &str); 1] = [("UCX_TLS", "tcp,self")];

/// The commands of the proxies, once they are all there; a command has no blanks within its words.
#[must_use]
pub fn proxies(said: &str) -> Option<Vec<Vec<String>>> {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let end = lines.iter().position(|line| *line == ALL)?;
    let commands = lines[..end].iter().filter_map(|line| {
        let words = line.strip_prefix(PROXY)?.split_whitespace();
        Some(words.map(str::to_owned).collect())
    });
    Some(commands.collect())
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
    let mut hydra = lab.on(&lab.nodes[0], mpirun);
    hydra
        .args(["-launcher", "manual", "-hosts", &lab.nodes.join(",")])
        .args(["-n", &lab.nodes.len().to_string()])
        .args(command)
        .envs(TRANSPORT);
    let mut programs = vec![Program::start(hydra, what, stem)?];
    let commands = loop {
        if let Some(commands) = proxies(&programs[0].printed()?) {
            break commands;
        }
        if programs[0].ended()? {
            let said = programs[0].printed()?;
            return Err(ExperimentError::Output(
                "mpirun.mpich -launcher manual",
                said,
            ));
        }
        watch.look()?;
    };
    if commands.len() != lab.nodes.len() || commands.iter().any(Vec::is_empty) {
        let said = programs[0].printed()?;
        return Err(ExperimentError::Output(
            "mpirun.mpich -launcher manual",
            said,
        ));
    }
    for (node, words) in lab.nodes.iter().zip(&commands) {
        let mut proxy = lab.on(node, Path::new(&words[0]));
        proxy.args(&words[1..]).envs(TRANSPORT);
        let mut own = stem.as_os_str().to_owned();
        own.push(format!("-{node}"));
        let what = format!("{what}: the proxy of {node}");
        programs.push(Program::start(proxy, &what, Path::new(&own))?);
    }
    watch.finish(&mut programs, &mut || Ok(()))?;
    Ok((programs[0].printed()?, programs[0].seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_when_all_are_there() {
        let two = "HYDRA_LAUNCH: /usr/bin/hydra_pmi_proxy --control-port n1:39219 --proxy-id 0 \n\
                   HYDRA_LAUNCH: /usr/bin/hydra_pmi_proxy --control-port n1:39219 --proxy-id 1 \n";
        assert_eq!(proxies(two), None);
        let whole = format!("{two}HYDRA_LAUNCH_END\nHYDRA_LAUNCH: what a rank printed\n");
        let found = proxies(&whole).expect("all are there");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1][4], "1");
        assert_eq!(found[0][0], "/usr/bin/hydra_pmi_proxy");
    }
}
