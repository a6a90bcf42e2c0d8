//! Processes that may move: those that `whim run` or `whim adopt` named, and their descendants.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::moves::candidate::{Candidate, Declaration, LastMove};
pub(crate) use crate::moves::tally::Full;
use crate::moves::tally::Tally;
use whim_control::protocol::RunOptions;
use whim_machine::process::{self, Process};
use whim_machine::processes::{self, Stat};
use whim_machine::sensors::float;

/// The most characters that are kept of why a process could not be moved.
const FAILURE_MAX: usize = 500;

/// Whether candidacy passes down to this child: it must have the rights that were declared.
fn inherits(declaration: &Declaration, child: &Stat) -> bool {
    let process = Process::open_same(child.pid, child.start_time);
    process.is_ok_and(|process| {
        let credentials = process.credentials();
        credentials.is_ok_and(|credentials| declaration.covers(&process, &credentials))
    })
}

/// What a daemon leaves to the next one. The boot is noted because pids and start times belong to one
/// boot.
#[derive(Serialize, Deserialize)]
struct Noted<C> {
    boot: String,
    candidates: C,
}

/// All candidates of this node, by pid.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    by_pid: HashMap<i32, Candidate>,
    /// Users with more candidates than are accepted, for whom that was logged.
    full: HashSet<u32>,
    /// A candidate has moved since they were last written down.
    moved: bool,
    /// The start time of this daemon. What began before, and is not written down, began while none was here: perhaps
    /// by a `whim run` that has said where it may go, so candidacy does not pass down to it.
    began: u64,
}

impl Candidates {
    /// Loads what an earlier daemon wrote down, as far as it still lives.
    #[must_use]
    pub(crate) fn load(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let list = match serde_json::from_slice::<Noted<Vec<Candidate>>>(&text) {
            Ok(noted) if noted.boot == process::boot_id() => noted.candidates,
            Ok(_) => Vec::new(),
            // The format of older daemons, which noted neither the boot nor who had declared what.
            Err(_) => serde_json::from_slice(&text).unwrap_or_default(),
        };
        let mut candidates = Self::default();
        let mut tally = Tally::default();
        for mut candidate in list {
            if candidate.declaration.is_none() {
                candidate.declaration = owned(candidate.pid, candidate.start_time);
            }
            // If an earlier daemon accepted options that we would not, its user has to name the process
            // again.
            if candidate.options.check().is_ok() {
                candidates.take(candidate, &mut tally);
            }
        }
        let own = processes::stat(std::process::id().cast_signed());
        candidates.began = own.map_or(0, |own| own.start_time);
        candidates.refresh(&processes::all(), 0);
        candidates
    }

    /// What [`Candidates::load`] reads.
    #[must_use]
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let noted = Noted {
            boot: process::boot_id().to_owned(),
            candidates: self.by_pid.values().collect::<Vec<_>>(),
        };
        serde_json::to_vec(&noted).unwrap_or_default()
    }

    /// Adds a candidate, in place of what was known of its pid.
    ///
    /// # Errors
    /// [`Full`]; nothing has been changed then.
    pub(crate) fn add(&mut self, candidate: Candidate) -> Result<(), Full> {
        let tally = self.tally(Some(candidate.pid));
        tally.room(candidate.user(), candidate.weight())?;
        self.by_pid.insert(candidate.pid, candidate);
        Ok(())
    }

    /// Ends the time in which somebody tried to move a process: it stays a candidate, or is what it was before.
    pub(crate) fn end_try(
        &mut self,
        (pid, start_time): (i32, u64),
        kept: bool,
        was: Option<Candidate>,
    ) {
        let known = self.by_pid.get_mut(&pid);
        let Some(known) = known.filter(|known| known.start_time == start_time && known.tried)
        else {
            return;
        };
        known.tried = false;
        if kept {
            return;
        }
        match was {
            Some(was) => self.by_pid.insert(pid, was),
            None => self.by_pid.remove(&pid),
        };
    }

    /// Adds a candidate where there is nobody to tell of an error; false if it is not accepted.
    fn take(&mut self, candidate: Candidate, tally: &mut Tally) -> bool {
        match tally.room(candidate.user(), candidate.weight()) {
            Ok(()) => {
                tally.count(&candidate);
                self.by_pid.insert(candidate.pid, candidate);
                true
            }
            Err(full) => {
                self.log(full);
                false
            }
        }
    }

    /// Counts all candidates but one.
    fn tally(&self, but: Option<i32>) -> Tally {
        let mut tally = Tally::default();
        let others = self.by_pid.values().filter(|one| Some(one.pid) != but);
        others.for_each(|candidate| tally.count(candidate));
        tally
    }

    /// Logs that a user has too many candidates, once for each user.
    fn log(&mut self, full: Full) {
        if self.full.insert(full.uid) {
            tracing::warn!(%full, "further processes are no candidates");
        }
    }

    #[must_use]
    pub(crate) fn get(&self, pid: i32) -> Option<&Candidate> {
        self.by_pid.get(&pid)
    }

    pub(crate) fn get_mut(&mut self, pid: i32) -> Option<&mut Candidate> {
        self.by_pid.get_mut(&pid)
    }

    /// Notes the move of a process. It is known from now on, and written down at the next refresh.
    pub(crate) fn note_move(&mut self, pid: i32, last_move: LastMove) {
        if let Some(candidate) = self.by_pid.get_mut(&pid) {
            candidate.last_move = Some(last_move);
            candidate.last_failure = None;
            self.moved = true;
        }
    }

    /// Notes why a process could not be moved, for whoever asks why it stays.
    pub(crate) fn note_failure(&mut self, pid: i32, why: &str) {
        if let Some(candidate) = self.by_pid.get_mut(&pid) {
            candidate.last_failure = Some(why.chars().take(FAILURE_MAX).collect());
        }
    }

    /// Notes the CPU time that each process has used so far, in milliseconds.
    pub(crate) fn note_done(&mut self, done: impl Iterator<Item = (i32, u64)>) {
        for (pid, done_ms) in done {
            if let Some(candidate) = self.get_mut(pid) {
                candidate.done_ms = done_ms;
            }
        }
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    #[must_use]
    pub(crate) fn pids(&self) -> HashSet<i32> {
        self.by_pid.keys().copied().collect()
    }

    #[must_use]
    pub(crate) fn sorted(&self) -> Vec<Candidate> {
        let mut list: Vec<Candidate> = self.by_pid.values().cloned().collect();
        list.sort_by_key(|candidate| candidate.pid);
        list
    }

    /// Forgets the dead, finds new descendants and measures CPU use. `now_ms` rises steadily.
    /// Returns whether the set has changed.
    pub(crate) fn refresh(&mut self, all: &HashMap<i32, Stat>, now_ms: u64) -> bool {
        self.refresh_with(all, now_ms, &inherits)
    }

    fn refresh_with(&mut self, all: &HashMap<i32, Stat>, now_ms: u64, inherits: &Inherits) -> bool {
        let before = self.by_pid.len();
        self.by_pid.retain(|pid, candidate| {
            // A candidate that was added after that scan is not in it.
            all.get(pid).map_or_else(
                || processes::lives(*pid, candidate.start_time),
                |stat| stat.start_time == candidate.start_time,
            )
        });
        let mut changed = before != self.by_pid.len() || std::mem::take(&mut self.moved);
        changed |= self.add_descendants(all, inherits);
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

    /// Processes that are not known yet, of sessions whose processes are all candidates, each as if its
    /// user had declared it. Their jobs are not looked at. Processes beyond what their user may have are
    /// left out, so that they are not looked at each second for nothing.
    #[must_use]
    pub(crate) fn new_members(
        &mut self,
        all: &HashMap<i32, Stat>,
        members: &[i32],
    ) -> Vec<Candidate> {
        let mut tally = self.tally(None);
        let mut new = Vec::new();
        for stat in members.iter().filter_map(|pid| all.get(pid)) {
            let known = self.by_pid.get(&stat.pid);
            if known.is_some_and(|known| known.start_time == stat.start_time) {
                continue;
            }
            let Some(declaration) = owned(stat.pid, stat.start_time) else {
                continue;
            };
            let candidate = Candidate::new(stat, RunOptions::default(), declaration);
            match tally.room(candidate.user(), candidate.weight()) {
                Ok(()) => {
                    tally.count(&candidate);
                    new.push(candidate);
                }
                Err(full) => self.log(full),
            }
        }
        new
    }

    /// Adds these candidates; false if none was accepted.
    pub(crate) fn add_members(&mut self, new: Vec<Candidate>) -> bool {
        let mut tally = self.tally(None);
        let mut found = false;
        for candidate in new {
            found |= self.take(candidate, &mut tally);
        }
        found
    }

    fn add_descendants(&mut self, all: &HashMap<i32, Stat>, inherits: &Inherits) -> bool {
        let mut tally = self.tally(None);
        let mut changed = false;
        loop {
            let mut found = Vec::new();
            let mut refused = None;
            for stat in all
                .values()
                .filter(|stat| !self.by_pid.contains_key(&stat.pid))
            {
                match self.descendant(stat, &mut tally, inherits) {
                    Ok(child) => found.extend(child),
                    Err(full) => refused = Some(full),
                }
            }
            if let Some(full) = refused {
                self.log(full);
            }
            if found.is_empty() {
                return changed;
            }
            changed = true;
            for child in found {
                self.by_pid.insert(child.pid, child);
            }
        }
    }

    /// A process as a candidate, if its parent is one and passes candidacy on.
    fn descendant(
        &self,
        stat: &Stat,
        tally: &mut Tally,
        inherits: &Inherits,
    ) -> Result<Option<Candidate>, Full> {
        if stat.start_time < self.began {
            return Ok(None);
        }
        let parent = self.by_pid.get(&stat.parent);
        let parent = parent.filter(|parent| !parent.tried);
        let declared = parent.and_then(|parent| Some((parent, parent.declaration.as_ref()?)));
        let Some((parent, declaration)) = declared else {
            return Ok(None);
        };
        // `inherits` comes last: it reads a file or two, and any number of processes may not be
        // accepted.
        tally.room(parent.user(), parent.weight())?;
        if !inherits(declaration, stat) {
            return Ok(None);
        }
        let child = parent.child(stat, declaration);
        tally.count(&child);
        Ok(Some(child))
    }
}

/// Whether candidacy passes down to a process.
type Inherits = dyn Fn(&Declaration, &Stat) -> bool;

/// The declaration of a process as if its user had made it.
fn owned(pid: i32, start_time: u64) -> Option<Declaration> {
    let process = Process::open_same(pid, start_time).ok()?;
    Declaration::by_owner(&process.credentials().ok()?)
}

/// CPU use between two samples (milliseconds, ticks), in percent of one CPU.
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
    use std::sync::Arc;
    use whim_machine::processes::Ids;

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
            code: (0, 0),
        };
        (pid, stat)
    }

    fn declaration() -> Declaration {
        let (uids, gids) = ([1000; 3], [1000; 3]);
        Declaration {
            uid: 1000,
            gid: 1000,
            admin: false,
            ids: Ids { uids, gids },
        }
    }

    fn candidate(pid: i32, options: RunOptions) -> Candidate {
        Candidate::new(&stat(pid, 1, 0).1, options, declaration())
    }

    #[test]
    fn descendants_inherit_where_they_may_go_and_outlive_their_parents() {
        let options = RunOptions {
            on: Some("n2".into()),
            pin: true,
            ..RunOptions::default()
        };
        let mut candidates = Candidates::default();
        candidates.add(candidate(2, options)).expect("room");
        let all = HashMap::from([stat(2, 1, 0), stat(3, 2, 0), stat(4, 3, 0), stat(9, 1, 0)]);
        assert!(candidates.refresh_with(&all, 0, &|_, _| true));
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
    fn candidacy_ends_where_other_rights_begin() {
        let mut candidates = Candidates::default();
        candidates
            .add(candidate(2, RunOptions::default()))
            .expect("room");
        let all = HashMap::from([stat(2, 1, 0), stat(3, 2, 0), stat(4, 3, 0), stat(5, 2, 0)]);
        let same_rights = |_: &Declaration, stat: &Stat| stat.pid != 3;
        assert!(candidates.refresh_with(&all, 0, &same_rights));
        let pids: Vec<i32> = candidates.sorted().iter().map(|c| c.pid).collect();
        assert_eq!(pids, [2, 5], "neither 3, nor what that starts");
    }

    #[test]
    fn what_an_earlier_daemon_wrote_holds_for_its_boot() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("candidates.json");
        let own = processes::stat(std::process::id().cast_signed()).expect("it lives");
        let mut candidates = Candidates::default();
        let declaration = owned(own.pid, own.start_time);
        let options = RunOptions {
            pin: true,
            ..RunOptions::default()
        };
        let declared = declaration.clone().expect("it has one user");
        let added = candidates.add(Candidate::new(&own, options, declared));
        added.expect("room");
        let text = String::from_utf8(candidates.to_json()).expect("text");
        let load = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Candidates::load(&path).sorted()
        };
        let loaded = load(&text);
        assert!(loaded[0].options.pin);
        assert_eq!(loaded[0].declaration, declaration);
        let process = Process::open(own.pid).expect("it lives");
        loaded[0].check(&process).expect("the same");
        let other_boot = text.replace(process::boot_id(), "another");
        assert!(load(&other_boot).is_empty());
        // The older format: the list alone, without declarations.
        let mut list = serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        let mut list = list["candidates"].take();
        list[0]
            .as_object_mut()
            .expect("a candidate")
            .remove("declaration");
        let loaded = load(&list.to_string());
        assert!(loaded[0].options.pin);
        assert_eq!(loaded[0].declaration, declaration);
    }

    #[test]
    fn cpu_use_is_measured_between_looks() {
        let mut candidates = Candidates::default();
        candidates
            .add(candidate(2, RunOptions::default()))
            .expect("room");
        candidates.refresh(&HashMap::from([stat(2, 1, 100)]), 1000);
        candidates.refresh(&HashMap::from([stat(2, 1, 150)]), 2000);
        let percent = candidates.get(2).expect("there").cpu_percent;
        assert!((percent - 50.0).abs() < 0.01, "{percent}");
    }

    #[test]
    fn options_forbid_nodes_by_name() {
        let candidate = |options| candidate(2, options);
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

    #[test]
    fn descendants_share_what_was_said_of_them_all() {
        let avoid = vec!["n2".into(); 256];
        let mut first = candidate(
            2,
            RunOptions {
                avoid,
                ..RunOptions::default()
            },
        );
        let job = r#"{"id":"7","nodes":["n[1-65536]"]}"#;
        first.job = Some(serde_json::from_str(job).map(Arc::new).expect("a job"));
        let mut candidates = Candidates::default();
        candidates.add(first).expect("room");
        let all = HashMap::from([stat(2, 1, 0), stat(3, 2, 0), stat(4, 3, 0)]);
        assert!(candidates.refresh_with(&all, 0, &|_, _| true));
        let list = candidates.sorted();
        assert_eq!(list.len(), 3);
        for one in &list {
            assert!(Arc::ptr_eq(&one.options, &list[0].options));
            let [job, first] = [&one.job, &list[0].job].map(|job| job.as_ref().expect("a job"));
            assert!(Arc::ptr_eq(job, first));
        }
    }

    #[test]
    fn one_user_s_candidates_are_so_many_and_can_be_written() {
        let mut candidates = Candidates::default();
        let options = RunOptions {
            run: Some("\u{1}".repeat(whim_control::protocol::RUN_NAME_MAX)),
            ..RunOptions::default()
        };
        assert_eq!(options.check(), Ok(()));
        candidates.add(candidate(2, options)).expect("room");
        let all: HashMap<i32, Stat> = (2..60_000).map(|pid| stat(pid, pid / 2, 0)).collect();
        let of_others = |declaration: &Declaration, _: &Stat| declaration.uid == 1000;
        assert!(candidates.refresh_with(&all, 0, &of_others));
        let count = candidates.pids().len();
        assert!((1000..10_000).contains(&count), "{count}");
        let length = candidates.to_json().len();
        assert!(length <= 5 << 20, "{length}");
        // The accepted ones stay, and others of that user are refused.
        assert!(!candidates.refresh_with(&all, 1000, &of_others));
        let error = candidates
            .add(candidate(70_000, RunOptions::default()))
            .and_then(|()| {
                let many = vec!["n2".into(); 256];
                candidates.add(candidate(
                    70_001,
                    RunOptions {
                        avoid: many,
                        ..RunOptions::default()
                    },
                ))
            });
        assert!(error.is_err_and(|full| full.to_string().contains("uid 1000")));
        candidates
            .add(candidate(2, RunOptions::default()))
            .expect("in place of itself");
        let mut other = candidate(80_000, RunOptions::default());
        if let Some(declaration) = &mut other.declaration {
            declaration.ids.uids = [1001; 3];
        }
        candidates.add(other).expect("another user's");
    }
}
