//! The processes of this node that may move, and the search for new ones.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use whim_control::protocol::RunOptions;
use whim_control::rules;
use whim_machine::batch::Job;
use whim_machine::{cgroup, processes};

use crate::ground::Ground;
use crate::line::probes::{NotSeen, Patience, Probes};
use crate::locks::lock;
use crate::moves::candidate::Candidate;
use crate::moves::candidates::Candidates;

/// All processes are looked at again after this, in milliseconds.
const SCAN_ALL_EVERY: u64 = 30_000;
/// New candidates are written down after this. A program that begins is not kept waiting for it: where there is more to
/// do than CPUs, what we do before it has begun takes turns from it.
const SAVE_AFTER: Duration = Duration::from_millis(50);
/// In the state directory: the candidates.
const FILE: &str = "candidates.json";

/// Processes that the last scan has seen, and that need not be read again.
#[derive(Debug, Default)]
struct Scanned {
    /// When all processes were read, in milliseconds since the daemon began.
    at: u64,
    others: HashSet<i32>,
    candidates: HashSet<i32>,
}

/// The candidates of this node, and what is needed to find more.
#[derive(Debug)]
pub(crate) struct Census {
    ground: Arc<Ground>,
    candidates: Mutex<Candidates>,
    seen: Mutex<Scanned>,
    probes: Arc<Probes>,
    /// Rung when there are new candidates.
    unsaved: Notify,
}

impl Census {
    /// With the candidates that an earlier daemon has left in its state directory.
    #[must_use]
    pub(crate) fn load(ground: Arc<Ground>, probes: Arc<Probes>) -> Self {
        let file = ground.settings().state.join(FILE);
        Self {
            candidates: Mutex::new(Candidates::load(&file)),
            ground,
            seen: Mutex::default(),
            probes,
            unsaved: Notify::new(),
        }
    }

    pub(crate) fn candidates(&self) -> MutexGuard<'_, Candidates> {
        lock(&self.candidates)
    }

    /// Writes the candidates down for the next daemon. A failure is logged: nobody else needs the file.
    ///
    /// They end with this boot: the disk is not waited for.
    pub(crate) fn save(&self, candidates: &Candidates) {
        let settings = self.ground.settings();
        settings.save_for_this_boot(FILE, &candidates.to_json());
    }

    /// As [`Self::save`], in a moment, and for all programs that begin until then at once. A daemon that is killed
    /// before leaves a program that nobody moves, until it is adopted.
    pub(crate) fn save_soon(&self) {
        self.unsaved.notify_one();
    }

    /// Runs for ever: does what [`Self::save_soon`] promises.
    pub(crate) async fn keep_saved(&self) {
        loop {
            self.unsaved.notified().await;
            tokio::time::sleep(SAVE_AFTER).await;
            self.save(&self.candidates());
        }
    }

    /// The batch job to whose nodes a process is bound.
    ///
    /// # Errors
    /// [`NotSeen`]: it may be in a job.
    pub(crate) fn job_of(&self, pid: i32, patience: Patience) -> Result<Option<Arc<Job>>, NotSeen> {
        if self.ground.config().balance.beyond_job {
            return Ok(None);
        }
        let look = move || Job::of(pid).map(Arc::new);
        self.probes.probe(pid, patience, look)
    }

    /// The batch job to whose nodes a process is bound, and the rules with which it began without a daemon.
    ///
    /// # Errors
    /// [`NotSeen`]: it may be in a job, or have rules.
    pub(crate) fn origin_of(
        &self,
        pid: i32,
        patience: Patience,
    ) -> Result<(Option<Arc<Job>>, RunOptions), NotSeen> {
        let beyond_job = self.ground.config().balance.beyond_job;
        let look = move || {
            let environment = processes::environment(pid).unwrap_or_default();
            let job = (!beyond_job).then(|| Job::parse(&environment)).flatten();
            (job.map(Arc::new), rules::found(&environment))
        };
        self.probes.probe(pid, patience, look)
    }

    fn with_origin(&self, candidate: Candidate) -> Option<Candidate> {
        let (job, rules) = self.origin_of(candidate.pid, Patience::Brief).ok()?;
        Some(Candidate {
            job,
            options: Arc::new(rules),
            ..candidate
        })
    }

    /// Reads the candidates and the processes that are new. A process that is no candidate when it is
    /// first seen becomes one by descent only if there are new candidates, so it is not read again before
    /// that. But pids are reused: after a while all processes are read again.
    fn scan(&self, now: u64) -> HashMap<i32, processes::Stat> {
        let candidates = self.candidates().pids();
        let mut seen = lock(&self.seen);
        if now >= seen.at + SCAN_ALL_EVERY || !candidates.is_subset(&seen.candidates) {
            seen.others.clear();
            seen.at = now;
        }
        let pids = processes::pids();
        seen.others.retain(|pid| pids.contains(pid));
        let asked = |pid: &i32| !seen.others.contains(pid) || candidates.contains(pid);
        let stats = pids.iter().filter(|pid| asked(pid)).filter_map(|pid| {
            let stat = processes::stat(*pid).ok()?;
            Some((*pid, stat))
        });
        let found: HashMap<i32, processes::Stat> = stats.collect();
        seen.others.extend(found.keys());
        seen.candidates = candidates;
        found
    }

    /// Looks at all processes: forgets the dead, finds descendants, measures CPU use.
    pub(crate) fn refresh(&self) {
        let (config, now) = (self.ground.config(), self.ground.clock_ms());
        let sessions = &config.balance.sessions;
        if self.candidates().is_empty() && sessions.is_empty() {
            return;
        }
        let all = self.scan(now);
        let members = cgroup::members(sessions);
        // The jobs are looked up before the candidates are locked, because that may take its time.
        let new = self.candidates().new_members(&all, &members);
        let looked = new
            .into_iter()
            .filter_map(|candidate| self.with_origin(candidate));
        let new: Vec<Candidate> = looked.collect();
        let mut candidates = self.candidates();
        let found = candidates.add_members(new);
        if candidates.refresh(&all, now) || found {
            self.save(&candidates);
        }
    }
}
