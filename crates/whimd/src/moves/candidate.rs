//! A process that may move: who put it into our hands, and what is known of it.

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use whim_control::protocol::{ADMIN_GROUP, RunOptions};
use whim_journey::cause::Cause;
use whim_machine::batch::Job;
use whim_machine::class::Features;
use whim_machine::process::Process;
use whim_machine::processes::{self, Caller, Credentials, Ids, ProcessError, Stat};

/// What is noted of any process, of the CPU features of a portable one, and of a move, in bytes.
pub(crate) const NOTED_OF_ANY: usize = 400;
const NOTED_OF_FEATURES: usize = 600;
const NOTED_OF_MOVE: usize = 250;

/// Who put a process into our hands, and what rights the process had then. It may move by itself only as
/// long as both still hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Declaration {
    pub uid: u32,
    pub gid: u32,
    /// root, or a member of whim-admin.
    pub admin: bool,
    /// The uids and gids of the process.
    pub ids: Ids,
}

impl Declaration {
    /// The caller puts a process with these credentials into our hands.
    #[must_use]
    pub(crate) fn by(caller: &Caller, credentials: &Credentials) -> Self {
        Self {
            uid: caller.uid,
            gid: caller.gid,
            admin: caller.admin,
            ids: credentials.ids(),
        }
    }

    /// As if the process's own user had put it there; `None` if it has several users.
    #[must_use]
    pub(crate) fn by_owner(credentials: &Credentials) -> Option<Self> {
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
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            pid: 0,
            uid: self.uid,
            gid: self.gid,
            admin: self.admin && is_admin_still(self.uid, self.gid),
        }
    }

    /// Whether a process with these credentials still has the rights that were declared, or lives in a
    /// user namespace that belongs to that user.
    pub(super) fn covers(&self, process: &Process, credentials: &Credentials) -> bool {
        credentials.ids() == self.ids || process.is_in_namespace_of(self.ids.uids[1])
    }

    /// What the process may do now, if it may move by itself now.
    ///
    /// # Errors
    /// It has ended, or has other rights than when it was declared, or the one who declared it may not
    /// move it.
    pub(crate) fn check(&self, process: &Process) -> Result<Credentials, ProcessError> {
        let credentials = process.movable_by(&self.caller())?;
        if self.covers(process, &credentials) {
            Ok(credentials)
        } else {
            Err(ProcessError::Changed(process.pid()))
        }
    }
}

/// Root, or the user that runs this daemon.
fn is_operator(uid: Uid) -> bool {
    uid.is_root() || uid == nix::unistd::geteuid()
}

/// Whether an administrator still is one: an operator, or a member of whim-admin.
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

/// A move that a process has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastMove {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub from: String,
    pub to: String,
    pub cause: Cause,
}

impl LastMove {
    /// A sentence for the user.
    #[must_use]
    pub(crate) fn sentence(&self) -> String {
        format!(
            "It last moved from {} to {}, on {}, since {} (cause: {}).",
            self.from,
            self.to,
            whim_monitor::moment::moment(self.at_ms),
            self.cause.because(),
            self.cause.name()
        )
    }
}

/// One process that may move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub pid: i32,
    pub start_time: u64,
    /// Shared with its descendants, as its job is: there may be thousands.
    #[serde(with = "shared")]
    pub options: Arc<RunOptions>,
    /// `None` if an earlier daemon noted the candidate without it.
    #[serde(default)]
    pub declaration: Option<Declaration>,
    /// The CPU features that a portable program was started with.
    #[serde(default)]
    pub features: Option<Features>,
    /// The batch job to which it belongs.
    #[serde(default, with = "shared_if_any")]
    pub job: Option<Arc<Job>>,
    /// Kept at home by `whim bring --hold`.
    pub held: bool,
    /// Moves of its journeys that are over.
    pub moves: u32,
    /// `whim run` became it, and let its user trace it where only that helps (Yama).
    #[serde(default)]
    pub declared: bool,
    /// Why it had to stay at the last try, if that was found only in its stopped threads.
    #[serde(default, rename = "found")]
    pub found_to_stay: Option<String>,
    /// Its last move, as long as it lives.
    #[serde(default)]
    pub last_move: Option<LastMove>,
    /// Why it could not be moved when that was tried last, if it has not moved since; a sentence.
    #[serde(skip)]
    pub last_failure: Option<String>,
    /// It is a candidate only for as long as somebody tries to move it. What it starts is none.
    #[serde(skip)]
    pub tried: bool,
    /// Last sample of its CPU time: (milliseconds of our clock, ticks).
    #[serde(skip)]
    pub seen: Option<(u64, u64)>,
    #[serde(skip)]
    pub cpu_percent: f64,
    /// CPU time that the balancer has seen it use, in milliseconds.
    #[serde(skip)]
    pub done_ms: u64,
}

impl Candidate {
    #[must_use]
    pub(crate) fn new(process: &Stat, options: RunOptions, declaration: Declaration) -> Self {
        Self {
            pid: process.pid,
            start_time: process.start_time,
            options: Arc::new(options),
            declaration: Some(declaration),
            features: None,
            job: None,
            held: false,
            moves: 0,
            declared: false,
            found_to_stay: None,
            last_move: None,
            last_failure: None,
            tried: false,
            seen: None,
            cpu_percent: 0.0,
            done_ms: 0,
        }
    }

    /// The user whose process it is.
    pub(crate) fn user(&self) -> Option<u32> {
        let declaration = self.declaration.as_ref()?;
        Some(declaration.ids.uids[0])
    }

    /// About how many bytes are noted of it.
    pub(crate) fn weight(&self) -> usize {
        let features = self.features.as_ref().map_or(0, |_| NOTED_OF_FEATURES);
        let job = self.job.as_ref().map_or(0, |job| job.weight());
        let found = self.found_to_stay.as_ref().map_or(0, String::len);
        let last_move = self.last_move.as_ref().map_or(0, |_| NOTED_OF_MOVE);
        NOTED_OF_ANY + self.options.weight() + features + job + found + last_move
    }

    /// A child of this process as a candidate, with what it inherits.
    pub(super) fn child(&self, stat: &Stat, declaration: &Declaration) -> Self {
        // The node to which to go at once was given for the program itself, not for its children.
        let options = match self.options.on {
            None => Arc::clone(&self.options),
            Some(_) => Arc::new(RunOptions {
                on: None,
                ..(*self.options).clone()
            }),
        };
        Self {
            options,
            features: self.features.clone(),
            job: self.job.clone(),
            ..Self::new(stat, RunOptions::default(), declaration.clone())
        }
    }

    /// The process, as long as it is the same one.
    #[must_use]
    pub(crate) fn stat(&self) -> Option<Stat> {
        let stat = processes::stat(self.pid).ok()?;
        (stat.start_time == self.start_time).then_some(stat)
    }

    /// What it may do now, if it may move by itself now.
    ///
    /// # Errors
    /// As [`Declaration::check`].
    pub(crate) fn check(&self, process: &Process) -> Result<Credentials, ProcessError> {
        let changed = ProcessError::Changed(self.pid);
        let same = (self.pid, self.start_time) == (process.pid(), process.start_time());
        let declaration = self.declaration.as_ref().filter(|_| same);
        declaration.ok_or(changed)?.check(process)
    }

    /// Why this candidate may not go to `node`, which has these labels, whatever its state; a sentence.
    #[must_use]
    pub(crate) fn forbids(&self, node: &str, labels: &[String]) -> Option<String> {
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

/// What candidates share is noted with each of them.
pub(crate) mod shared {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        shared: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(shared, serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// The same for what not all candidates have.
pub(crate) mod shared_if_any {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        shared: &Option<Arc<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        shared.as_deref().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(Arc::new))
    }
}
