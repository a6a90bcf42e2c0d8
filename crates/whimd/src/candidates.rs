//! Processes that may move: those that `whim run` or `whim adopt` named, and their descendants.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::batch::Job;
use crate::class::Features;
use crate::control::RunOptions;
use crate::processes::{self, Stat};
use crate::sensors::float;

/// One process that may move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub pid: i32,
    pub start_time: u64,
    pub options: RunOptions,
    /// The CPU features that a portable program was started with.
    #[serde(default)]
    pub features: Option<Features>,
    /// The batch job to which it belongs.
    #[serde(default)]
    pub job: Option<Job>,
    /// Kept at home by `whim bring --hold`.
    pub held: bool,
    /// Moves of its journeys that are over.
    pub moves: u32,
    /// `whim run` became it, and let its user trace it where only that helps (Yama).
    #[serde(default)]
    pub declared: bool,
    /// Why it had to stay at the last try, if that was found only in its stopped threads.
    #[serde(default)]
    pub found: Option<String>,
    /// Last look at its CPU time: (milliseconds of our clock, ticks).
    #[serde(skip)]
    pub seen: Option<(u64, u64)>,
    #[serde(skip)]
    pub cpu_percent: f64,
}

impl Candidate {
    #[must_use]
    pub fn new(pid: i32, start_time: u64, options: RunOptions) -> Self {
        Self {
            pid,
            start_time,
            options,
            features: None,
            job: None,
            held: false,
            moves: 0,
            declared: false,
            found: None,
            seen: None,
            cpu_percent: 0.0,
        }
    }

    /// The process, as long as it is the same one.
    #[must_use]
    pub fn stat(&self) -> Option<Stat> {
        let stat = processes::stat(self.pid).ok()?;
        (stat.start_time == self.start_time).then_some(stat)
    }

    /// Why this candidate may not go to `node`, which has these labels, whatever its state; a sentence.
    #[must_use]
    pub fn forbids(&self, node: &str, labels: &[String]) -> Option<String> {
        let options = &self.options;
        if self.held {
            return Some(format!(
                "It is kept at home by 'whim bring --hold'; 'whim go {}' frees it",
                self.pid
            ));
        }
        if options.pin {
            return Some("It was started with 'whim run --pin'".into());
        }
        if let Some(forbidden) = self.job.as_ref().and_then(|job| job.forbids(node)) {
            return Some(forbidden);
        }
        let named = |name: &&String| match name.strip_prefix('@') {
            Some(label) => labels.iter().any(|has| has == label),
            None => *name == node,
        };
        if let Some(avoid) = options.avoid.iter().find(named) {
            return Some(format!("It was started with 'whim run --avoid {avoid}'"));
        }
        if !options.only.is_empty() && !options.only.iter().any(|only| named(&only)) {
            return Some(format!(
                "It was started with 'whim run --only {}'",
                options.only.join(",")
            ));
        }
        None
    }
}

/// All candidates of this node, by pid.
#[derive(Debug, Default)]
pub struct Candidates {
    by_pid: HashMap<i32, Candidate>,
}

impl Candidates {
    /// Takes up what an earlier daemon wrote down, as far as it still lives.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let list: Vec<Candidate> = serde_json::from_slice(&text).unwrap_or_default();
        let mut candidates = Self::default();
        for candidate in list {
            candidates.by_pid.insert(candidate.pid, candidate);
        }
        candidates.refresh(&processes::all(), 0);
        candidates
    }

    /// What [`Candidates::load`] reads.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let list: Vec<&Candidate> = self.by_pid.values().collect();
        serde_json::to_vec(&list).unwrap_or_default()
    }

    pub fn add(&mut self, candidate: Candidate) {
        self.by_pid.insert(candidate.pid, candidate);
    }

    #[must_use]
    pub fn get(&self, pid: i32) -> Option<&Candidate> {
        self.by_pid.get(&pid)
    }

    pub fn get_mut(&mut self, pid: i32) -> Option<&mut Candidate> {
        self.by_pid.get_mut(&pid)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    #[must_use]
    pub fn pids(&self) -> HashSet<i32> {
        self.by_pid.keys().copied().collect()
    }

    #[must_use]
    pub fn sorted(&self) -> Vec<Candidate> {
        let mut list: Vec<Candidate> = self.by_pid.values().cloned().collect();
        list.sort_by_key(|candidate| candidate.pid);
        list
    }

    /// Forgets the dead, finds new descendants and measures CPU use. `now_ms` rises steadily.
    /// Returns whether the set has changed.
    pub fn refresh(&mut self, all: &HashMap<i32, Stat>, now_ms: u64) -> bool {
        let before = self.by_pid.len();
        self.by_pid.retain(|pid, candidate| {
            // One that has been added since that look was taken is not in it.
            all.get(pid).map_or_else(
                || processes::lives(*pid, candidate.start_time),
                |stat| stat.start_time == candidate.start_time,
            )
        });
        let mut changed = before != self.by_pid.len();
        changed |= self.add_descendants(all);
        for (pid, candidate) in &mut self.by_pid {
            let Some(stat) = all.get(pid) else { continue };
            if let Some((then, ticks)) = candidate.seen
                && now_ms < then + 200
                && stat.cpu_ticks >= ticks
            {
                continue;
            }
            candidate.cpu_percent = percent(candidate.seen, (now_ms, stat.cpu_ticks));
            candidate.seen = Some((now_ms, stat.cpu_ticks));
        }
        changed
    }

    /// Takes up what runs in a session whose processes are all candidates; `job` tells of each to which job
    /// it belongs. False: nothing new.
    pub fn add_members(
        &mut self,
        all: &HashMap<i32, Stat>,
        members: &[i32],
        job: impl Fn(i32) -> Option<Job>,
    ) -> bool {
        let mut found = false;
        for stat in members.iter().filter_map(|pid| all.get(pid)) {
            let known = self.by_pid.get(&stat.pid);
            if known.is_none_or(|known| known.start_time != stat.start_time) {
                self.add(Candidate {
                    job: job(stat.pid),
                    ..Candidate::new(stat.pid, stat.start_time, RunOptions::default())
                });
                found = true;
            }
        }
        found
    }

    fn add_descendants(&mut self, all: &HashMap<i32, Stat>) -> bool {
        let mut changed = false;
        loop {
            let found: Vec<Candidate> = all
                .values()
                .filter(|stat| !self.by_pid.contains_key(&stat.pid))
                .filter_map(|stat| {
                    let parent = self.by_pid.get(&stat.parent)?;
                    // Where to go at once was said of the program itself, not of its children.
                    let options = RunOptions {
                        on: None,
                        ..parent.options.clone()
                    };
                    Some(Candidate {
                        features: parent.features.clone(),
                        job: parent.job.clone(),
                        ..Candidate::new(stat.pid, stat.start_time, options)
                    })
                })
                .collect();
            if found.is_empty() {
                return changed;
            }
            changed = true;
            found.into_iter().for_each(|candidate| self.add(candidate));
        }
    }
}

/// CPU use between two looks of (milliseconds, ticks), in percent of one CPU.
fn percent(before: Option<(u64, u64)>, now: (u64, u64)) -> f64 {
    let Some(before) = before else { return 0.0 };
    let elapsed = now.0.saturating_sub(before.0);
    let ticks = now.1.saturating_sub(before.1);
    if elapsed == 0 {
        return 0.0;
    }
    let milliseconds = ticks * 1000 / processes::TICKS_PER_SECOND;
    let tenths = milliseconds.saturating_mul(1000) / elapsed;
    float(tenths) / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32, cpu_ticks: u64) -> (i32, Stat) {
        let stat = Stat {
            pid,
            name: String::new(),
            state: 'S',
            parent,
            group: pid,
            terminal: 0,
            foreground: -1,
            reaped_faults: 0,
            cpu_ticks,
            threads: 1,
            start_time: 5,
            resident_bytes: 0,
        };
        (pid, stat)
    }

    #[test]
    fn descendants_inherit_where_they_may_go_and_outlive_their_parents() {
        let options = RunOptions {
            on: Some("n2".into()),
            pin: true,
            ..RunOptions::default()
        };
        let mut candidates = Candidates::default();
        candidates.add(Candidate::new(2, 5, options));
        let all = HashMap::from([stat(2, 1, 0), stat(3, 2, 0), stat(4, 3, 0), stat(9, 1, 0)]);
        assert!(candidates.refresh(&all, 0));
        let pids: Vec<i32> = candidates.sorted().iter().map(|c| c.pid).collect();
        assert_eq!(pids, [2, 3, 4]);
        let child = candidates.get(4).expect("found");
        assert!(child.options.pin && child.options.on.is_none());
        let later = HashMap::from([stat(4, 1, 0)]);
        assert!(candidates.refresh(&later, 1000));
        assert_eq!(candidates.sorted().len(), 1);
        assert!(!candidates.refresh(&later, 2000));
    }

    #[test]
    fn cpu_use_is_measured_between_looks() {
        let mut candidates = Candidates::default();
        candidates.add(Candidate::new(2, 5, RunOptions::default()));
        candidates.refresh(&HashMap::from([stat(2, 1, 100)]), 1000);
        candidates.refresh(&HashMap::from([stat(2, 1, 150)]), 2000);
        let percent = candidates.get(2).expect("there").cpu_percent;
        assert!((percent - 50.0).abs() < 0.01, "{percent}");
    }

    #[test]
    fn options_forbid_nodes_by_name() {
        let candidate = |options| Candidate::new(2, 5, options);
        let only = RunOptions {
            only: vec!["n2".into()],
            ..RunOptions::default()
        };
        assert!(candidate(only.clone()).forbids("n2", &[]).is_none());
        assert!(
            candidate(only)
                .forbids("n3", &[])
                .is_some_and(|s| s.contains("--only n2"))
        );
        let avoid = RunOptions {
            avoid: vec!["n2".into()],
            ..RunOptions::default()
        };
        assert!(candidate(avoid).forbids("n2", &[]).is_some());
        let labelled = |avoid| {
            let words = vec!["@fast".to_owned()];
            candidate(if avoid {
                RunOptions {
                    avoid: words,
                    ..RunOptions::default()
                }
            } else {
                RunOptions {
                    only: words,
                    ..RunOptions::default()
                }
            })
        };
        let fast = ["big".to_owned(), "fast".to_owned()];
        assert_eq!(labelled(false).forbids("n2", &fast), None);
        let why = labelled(false).forbids("fast", &fast[..1]);
        assert!(why.is_some_and(|s| s.contains("--only @fast")));
        assert_eq!(labelled(true).forbids("fast", &fast[..1]), None);
        let why = labelled(true).forbids("n2", &fast);
        assert!(why.is_some_and(|s| s.contains("--avoid @fast")));
        let mut held = candidate(RunOptions::default());
        held.held = true;
        assert!(
            held.forbids("n2", &[])
                .is_some_and(|s| s.contains("whim go 2"))
        );
    }
}
