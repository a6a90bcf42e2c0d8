//! Processes that may move: those that `whim run` or `whim adopt` named, and their descendants.

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::batch::Job;
use crate::class::Features;
use crate::control::{ADMIN_GROUP, RunOptions};
use crate::process::{self, Process};
use crate::processes::{self, Caller, Credentials, Ids, ProcessError, Stat};
use crate::sensors::float;

/// Who put a process into our hands, and what it was then. It may move by itself only as long as both agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    pub uid: u32,
    pub gid: u32,
    /// root, or a member of whim-admin.
    pub admin: bool,
    /// Of the process.
    pub ids: Ids,
}

impl Declaration {
    /// The caller puts a process with these credentials into our hands.
    #[must_use]
    pub fn by(caller: &Caller, credentials: &Credentials) -> Self {
        Self {
            uid: caller.uid,
            gid: caller.gid,
            admin: caller.admin,
            ids: credentials.ids(),
        }
    }

    /// As if the process's own user had put it there; `None`: it has several.
    #[must_use]
    pub fn by_owner(credentials: &Credentials) -> Option<Self> {
        let ids = credentials.ids();
        let alike = |ids: [u32; 3]| ids == [ids[0]; 3];
        let uid = Uid::from_raw(ids.uids[0]);
        (alike(ids.uids) && alike(ids.gids)).then_some(Self {
            uid: ids.uids[0],
            gid: ids.gids[0],
            admin: is_operator(uid),
            ids,
        })
    }

    /// In whose name the process is moved.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller {
            pid: 0,
            uid: self.uid,
            gid: self.gid,
            admin: self.admin && is_admin_still(self.uid, self.gid),
        }
    }

    /// Whether a process with these credentials is still what was declared, or lives in a user namespace of
    /// that user's.
    fn covers(&self, process: &Process, credentials: &Credentials) -> bool {
        credentials.ids() == self.ids || process.is_in_namespace_of(self.ids.uids[1])
    }

    /// What the process may do now, if it may move by itself now.
    ///
    /// # Errors
    /// It has ended, or has other rights than it had when it was declared, or who has declared it may not move
    /// it.
    pub fn check(&self, process: &Process) -> Result<Credentials, ProcessError> {
        let credentials = process.movable_by(&self.caller())?;
        if self.covers(process, &credentials) {
            Ok(credentials)
        } else {
            Err(ProcessError::Changed(process.pid()))
        }
    }
}

/// Root, or whoever runs this daemon.
fn is_operator(uid: Uid) -> bool {
    uid.is_root() || uid == nix::unistd::geteuid()
}

/// Whether an administrator is one still: an operator, or a member of whim-admin.
fn is_admin_still(uid: u32, gid: u32) -> bool {
    use nix::unistd::{Group, User};
    let uid = Uid::from_raw(uid);
    if is_operator(uid) {
        return true;
    }
    let group = Group::from_name(ADMIN_GROUP).ok().flatten();
    let user = User::from_uid(uid).ok().flatten();
    group.is_some_and(|group| {
        group.gid.as_raw() == gid || user.is_some_and(|user| group.mem.contains(&user.name))
    })
}

/// Whether candidacy passes down to this one: nobody's rights but those that the declaration is about.
fn inherits(declaration: &Declaration, child: &Stat) -> bool {
    let process = Process::open_same(child.pid, child.start_time);
    process.is_ok_and(|process| {
        let credentials = process.credentials();
        credentials.is_ok_and(|credentials| declaration.covers(&process, &credentials))
    })
}

/// What a daemon leaves to the next one: pids and start times are of one boot.
#[derive(Serialize, Deserialize)]
struct Noted<C> {
    boot: String,
    candidates: C,
}

/// One process that may move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub pid: i32,
    pub start_time: u64,
    pub options: RunOptions,
    /// `None`: an earlier daemon noted it without that.
    #[serde(default)]
    pub declaration: Option<Declaration>,
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
    pub fn new(process: &Stat, options: RunOptions, declaration: Declaration) -> Self {
        Self {
            pid: process.pid,
            start_time: process.start_time,
            options,
            declaration: Some(declaration),
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

    /// What it may do now, if it may move by itself now.
    ///
    /// # Errors
    /// As [`Declaration::check`].
    pub fn check(&self, process: &Process) -> Result<Credentials, ProcessError> {
        let changed = ProcessError::Changed(self.pid);
        let same = (self.pid, self.start_time) == (process.pid(), process.start_time());
        let declaration = self.declaration.as_ref().filter(|_| same);
        declaration.ok_or(changed)?.check(process)
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
        let list = match serde_json::from_slice::<Noted<Vec<Candidate>>>(&text) {
            Ok(noted) if noted.boot == process::boot_id() => noted.candidates,
            Ok(_) => Vec::new(),
            // As daemons wrote it that noted neither the boot nor who had declared what.
            Err(_) => serde_json::from_slice(&text).unwrap_or_default(),
        };
        let mut candidates = Self::default();
        for mut candidate in list {
            if candidate.declaration.is_none() {
                candidate.declaration = owned(candidate.pid, candidate.start_time);
            }
            candidates.by_pid.insert(candidate.pid, candidate);
        }
        candidates.refresh(&processes::all(), 0);
        candidates
    }

    /// What [`Candidates::load`] reads.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let noted = Noted {
            boot: process::boot_id().to_owned(),
            candidates: self.by_pid.values().collect::<Vec<_>>(),
        };
        serde_json::to_vec(&noted).unwrap_or_default()
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
        self.refresh_with(all, now_ms, &inherits)
    }

    fn refresh_with(&mut self, all: &HashMap<i32, Stat>, now_ms: u64, inherits: &Inherits) -> bool {
        let before = self.by_pid.len();
        self.by_pid.retain(|pid, candidate| {
            // One that has been added since that look was taken is not in it.
            all.get(pid).map_or_else(
                || processes::lives(*pid, candidate.start_time),
                |stat| stat.start_time == candidate.start_time,
            )
        });
        let mut changed = before != self.by_pid.len();
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

    /// Takes up what runs in a session whose processes are all candidates, each as if its user had declared
    /// it; `job` tells of each to which job it belongs. False: nothing new.
    pub fn add_members(
        &mut self,
        all: &HashMap<i32, Stat>,
        members: &[i32],
        jobs: &HashMap<i32, Option<Job>>,
    ) -> bool {
        let mut found = false;
        for pid in self.new_members(all, members) {
            if let Some((stat, job)) = all.get(&pid).zip(jobs.get(&pid))
                && let Some(declaration) = owned(pid, stat.start_time)
            {
                self.add(Candidate {
                    job: job.clone(),
                    ..Candidate::new(stat, RunOptions::default(), declaration)
                });
                found = true;
            }
        }
        found
    }

    /// Those of them that are not known.
    #[must_use]
    pub fn new_members(&self, all: &HashMap<i32, Stat>, members: &[i32]) -> Vec<i32> {
        let is_new = |stat: &&Stat| {
            let known = self.by_pid.get(&stat.pid);
            known.is_none_or(|known| known.start_time != stat.start_time)
        };
        let these = members.iter().filter_map(|pid| all.get(pid));
        these.filter(is_new).map(|stat| stat.pid).collect()
    }

    fn add_descendants(&mut self, all: &HashMap<i32, Stat>, inherits: &Inherits) -> bool {
        let mut changed = false;
        loop {
            let found: Vec<Candidate> = all
                .values()
                .filter(|stat| !self.by_pid.contains_key(&stat.pid))
                .filter_map(|stat| {
                    let parent = self.by_pid.get(&stat.parent)?;
                    let declaration = parent.declaration.clone()?;
                    if !inherits(&declaration, stat) {
                        return None;
                    }
                    // Where to go at once was said of the program itself, not of its children.
                    let options = RunOptions {
                        on: None,
                        ..parent.options.clone()
                    };
                    Some(Candidate {
                        features: parent.features.clone(),
                        job: parent.job.clone(),
                        ..Candidate::new(stat, options, declaration)
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

/// Whether candidacy passes down to a process.
type Inherits = dyn Fn(&Declaration, &Stat) -> bool;

/// As if the user of this process had declared it.
fn owned(pid: i32, start_time: u64) -> Option<Declaration> {
    let process = Process::open_same(pid, start_time).ok()?;
    Declaration::by_owner(&process.credentials().ok()?)
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
        candidates.add(candidate(2, options));
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
        candidates.add(candidate(2, RunOptions::default()));
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
        candidates.add(Candidate::new(
            &own,
            options,
            declaration.clone().expect("it has one user"),
        ));
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
        // As it was written before: the list alone, without declarations.
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
        candidates.add(candidate(2, RunOptions::default()));
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
}
