//! Plans: where the daemons and supervisors of a lab are to stop, so that a test can do something just then.

use std::fs;
use std::path::PathBuf;

use crate::{Cluster, Result, place};

/// The directory of a lab's plans.
#[derive(Debug)]
pub struct Plans(PathBuf);

impl Plans {
    /// A lab of so many nodes whose daemons and supervisors stop where plans say.
    ///
    /// # Errors
    /// The lab's, or those of `body`.
    pub fn with_lab(nodes: usize, body: impl Fn(&Cluster, &Self) -> Result<()>) -> Result<()> {
        let directory = place::room()?.join(format!("plans-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let option = format!("--daemon-arg=--crash-plan={}/{{node}}", directory.display());
        let share = format!("--share={}", directory.display());
        let plans = Self(directory);
        let cluster = Cluster::up_with(nodes, &[&option, &share])?;
        let result = cluster.explaining(|| body(&cluster, &plans));
        drop(cluster);
        fs::remove_dir_all(&plans.0)?;
        result
    }

    /// Whoever is started next as this part of n1 (`home`, `guest`) stops at the point of this name. The daemon
    /// (`whimd`) does so itself.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn stop(&self, part: &str, name: &str) -> Result<()> {
        let draft = self.0.join("draft");
        fs::write(&draft, format!("stop {name}"))?;
        Ok(fs::rename(draft, self.0.join(format!("n1.{part}")))?)
    }
}

/// Whoever of this name on n1 is stopped.
///
/// # Errors
/// The node cannot be asked.
pub fn stopped(cluster: &Cluster, name: &str) -> Result<Option<String>> {
    let script =
        format!("ps -eo pid=,stat=,comm= | awk '$3 == \"{name}\" && $2 ~ /^T/ {{ print $1 }}'");
    let pid = cluster.run("n1", &["sh", "-c", &script])?;
    let pid = pid.trim().to_owned();
    Ok((!pid.is_empty()).then_some(pid))
}
