//! What our processes hold, sampled while they work: what grows without end is a leak.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use whim_system_tests::{Cluster, Result, ensure};

/// What may be added from the first third of a run to its last: this share, or this much.
const SHARE_PERCENT: u64 = 2;
const MEMORY: u64 = 1 << 20;
const DESCRIPTORS: u64 = 2;

/// Of one process.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    resident: u64,
    descriptors: u64,
}

type Field = fn(&Held) -> u64;

/// Samples of a run, by program: each the mean of the processes that ran it then.
#[derive(Debug, Default)]
pub(super) struct Samples {
    taken: BTreeMap<&'static str, Vec<Held>>,
}

const PROGRAMS: [&str; 3] = ["whimd", "whim-home", "whim-guest"];

impl Samples {
    /// Looks at all processes of the lab's programs.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub(super) fn take(&mut self, cluster: &Cluster) -> Result<()> {
        let mut found: BTreeMap<&str, Vec<Held>> = BTreeMap::new();
        for (_, directory) in processes()? {
            let Ok(program) = fs::read_link(format!("{directory}/exe")) else {
                continue;
            };
            let ours = program.parent() == cluster.whim_path().parent();
            let name = PROGRAMS.iter().find(|name| program.ends_with(name));
            if let (true, Some(name), Some(held)) = (ours, name, held(&directory)) {
                found.entry(name).or_default().push(held);
            }
        }
        for (name, all) in found {
            let count = all.len() as u64;
            let mean = |field: Field| all.iter().map(field).sum::<u64>() / count;
            let held = Held {
                resident: mean(|held| held.resident),
                descriptors: mean(|held| held.descriptors),
            };
            let name = PROGRAMS.iter().find(|known| **known == name);
            self.taken
                .entry(name.copied().unwrap_or_default())
                .or_default()
                .push(held);
        }
        Ok(())
    }

    /// Compares the last third with the first.
    ///
    /// # Errors
    /// Something has grown.
    pub(super) fn show_no_growth(&self) -> Result<()> {
        for (name, samples) in &self.taken {
            let third = samples.len() / 3;
            ensure!(third > 0, "{} samples of {name} are too few", samples.len());
            let mean = |part: &[Held], field: Field| {
                part.iter().map(field).sum::<u64>() / part.len() as u64
            };
            let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
            let resident: Field = |held| held.resident;
            let descriptors: Field = |held| held.descriptors;
            let fields = [
                ("bytes of memory", resident, MEMORY),
                ("descriptors", descriptors, DESCRIPTORS),
            ];
            for (what, field, least) in fields {
                let (before, after) = (mean(first, field), mean(last, field));
                println!("{name}: {before} {what} in the first third, {after} in the last");
                let most = before + least.max(before * SHARE_PERCENT / 100);
                ensure!(
                    after <= most,
                    "{name} has grown from {before} {what} to {after}"
                );
            }
        }
        Ok(())
    }
}

/// Numbers and directories of all processes.
fn processes() -> Result<Vec<(i32, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            all.push((pid, format!("/proc/{pid}")));
        }
    }
    Ok(all)
}

fn held(directory: &str) -> Option<Held> {
    let status = fs::read_to_string(format!("{directory}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let descriptors = fs::read_dir(format!("{directory}/fd")).ok()?.count();
    Some(Held {
        resident: kibibytes << 10,
        descriptors: descriptors as u64,
    })
}

/// Processes of the lab that have ended and that nobody has taken note of.
///
/// # Errors
/// /proc cannot be read.
pub(super) fn zombies(cluster: &Cluster) -> Result<Vec<i32>> {
    let parents: Vec<i32> = (processes()?.into_iter())
        .filter(|(_, directory)| {
            let program = fs::read_link(format!("{directory}/exe"));
            program.is_ok_and(|program| is_of_lab(&program, cluster))
        })
        .map(|(pid, _)| pid)
        .collect();
    let mut found = Vec::new();
    for (pid, directory) in processes()? {
        let text = fs::read_to_string(format!("{directory}/stat")).unwrap_or_default();
        let Some((_, rest)) = text.rsplit_once(") ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        let is_zombie = fields.next() == Some("Z");
        let parent = fields.next().and_then(|field| field.parse().ok());
        if is_zombie && parent.is_some_and(|parent| parents.contains(&parent)) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_of_lab(program: &Path, cluster: &Cluster) -> bool {
    program.parent() == cluster.whim_path().parent()
}
