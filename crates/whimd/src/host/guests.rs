//! Guests on this node: who is admitted, under which uid and limits.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::host::orders::Shut;
use crate::members::peers::AdmitRequest;
use whim_control::config::Guests as Limits;
use whim_machine::class::Difference;
use whim_machine::process::{self, Process};
use whim_machine::sensors::Report;

/// Part of their share up to which guests are admitted. Beyond it, a guest would have to leave at once.
const FULL_PERCENT: u64 = 90;

/// What a guest needs of its host's memory beside its own, for its supervisor and its sandbox.
const BESIDE_BYTES: u64 = 16 << 20;

/// A stay of a guest, as its host knows it. The home is part of it because a journey belongs to its
/// home: another home may give the same name, and any epoch, to one of its own journeys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StayId {
    pub home: String,
    pub journey: String,
    pub epoch: u32,
}

impl StayId {
    /// The stay's name in file names and control groups: no two stays have the same.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        let digest = whim_net::tls::digest::sha256(self.home.as_bytes());
        let home = whim_secret::hexadecimal::hex(&digest[..8]);
        format!("{}-{}-{home}", self.journey, self.epoch)
    }
}

impl AdmitRequest {
    #[must_use]
    pub(crate) fn stay(&self) -> StayId {
        StayId {
            home: self.home.clone(),
            journey: self.journey.clone(),
            epoch: self.epoch,
        }
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum AdmitError {
    #[error("Node {node} takes no guests now: it is being drained")]
    Draining { node: String },
    #[error("Node {node} takes no guests now: {why}")]
    Shut { node: String, why: Shut },
    #[error("Node {node} has {guests} guests already, as many as [guests] max allows")]
    Guests { node: String, guests: usize },
    #[error(
        "Node {node} has {guests} guests of user {uid} of {home} already, as many as [guests] per_user allows"
    )]
    User {
        node: String,
        home: String,
        uid: u32,
        guests: usize,
    },
    #[error("Node {node} is of another kind than {home}: {what}")]
    Class {
        node: String,
        home: String,
        what: Difference,
    },
    #[error(
        "Node {node} has no room: the process needs {needed} MiB, guests may still take {left} MiB there"
    )]
    Memory {
        node: String,
        needed: u64,
        left: u64,
    },
    #[error("Node {node} admits {limit} threads per guest, the process has {threads}")]
    Threads {
        node: String,
        threads: u32,
        limit: u32,
    },
    #[error("Node {node} has a guest of this journey and epoch already: try again")]
    Twice { node: String },
    #[error(
        "Node {node} has given out all of its uids for guests: enlarge guests.uid_count in its configuration"
    )]
    NoUid { node: String },
}

/// A guest that was admitted; written to the run directory, so that a new daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub request: AdmitRequest,
    pub private_id: Option<u32>,
    pub cgroups: Vec<PathBuf>,
    pub supervisor_pid: i32,
    /// Start time of the supervisor, in the boot with the identifier `boot`. Without both, its pid means
    /// nothing.
    #[serde(default)]
    pub supervisor_start_time: u64,
    #[serde(default)]
    pub boot: String,
    /// Directory of the supervisor's socket.
    pub directory: PathBuf,
    /// Connections for this guest name the stay. An older daemon gave out the name of the journey alone.
    #[serde(default)]
    pub is_named: bool,
}

impl Guest {
    /// Its supervisor, if it lives; never another process that has its pid now.
    #[must_use]
    pub(crate) fn supervisor(&self) -> Option<Process> {
        let known = self.boot == process::boot_id();
        let held =
            known.then(|| Process::open_same(self.supervisor_pid, self.supervisor_start_time));
        held?.ok()
    }
}

/// Users of other nodes, and the uids under which their guests run here. Each user has one of its own,
/// so that guests of different users cannot touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivateIds {
    /// Key: `HOME:UID`.
    given: BTreeMap<String, u32>,
}

/// The uids that may be given; `None` if they would go beyond the last there is.
fn range(limits: &Limits) -> Option<std::ops::Range<u32>> {
    Some(limits.uid_start..limits.uid_start.checked_add(limits.uid_count)?)
}

fn key(home: &str, uid: u32) -> String {
    format!("{home}:{uid}")
}

impl PrivateIds {
    /// The same as [`Self::give`] gives, if that was given before.
    pub(crate) fn given(&self, home: &str, uid: u32, limits: &Limits) -> Option<u32> {
        let range = range(limits)?;
        let id = self.given.get(&key(home, uid)).copied();
        id.filter(|id| range.contains(id))
    }

    /// The uid (and gid) for guests of `uid` of node `home`; it stays the same as long as the range
    /// does.
    pub(crate) fn give(&mut self, home: &str, uid: u32, limits: &Limits) -> Option<u32> {
        if let Some(id) = self.given(home, uid, limits) {
            return Some(id);
        }
        range(limits)?;
        let key = key(home, uid);
        // Uids are given by digest rather than one after the other, so that a node that loses its table
        // gives the same again.
        let first = xxh3_64(key.as_bytes()) % u64::from(limits.uid_count);
        let first = u32::try_from(first).ok()?;
        let free = (0..limits.uid_count)
            .map(|step| limits.uid_start + (first + step) % limits.uid_count)
            .find(|id| !self.given.values().any(|given| given == id))?;
        self.given.insert(key, free);
        Some(free)
    }
}

/// All guests of this node.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    pub by_key: HashMap<StayId, Guest>,
    /// Admitted guests whose supervisors are being started: bytes, and whose they are.
    starting: HashMap<StayId, (u64, (String, u32))>,
}

impl Guests {
    #[must_use]
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.by_key.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is such a guest, or will be in a moment.
    #[must_use]
    pub(crate) fn knows(&self, key: &StayId) -> bool {
        self.by_key.contains_key(key) || self.starting.contains_key(key)
    }

    /// How many guests one user of one home has here.
    fn of_user(&self, home: &str, uid: u32) -> usize {
        let here = self.by_key.values().map(|guest| &guest.request);
        let here = here.filter(|request| request.home == home && request.uid == uid);
        let coming = self.starting.values();
        here.count()
            + coming
                .filter(|(_, user)| (user.0.as_str(), user.1) == (home, uid))
                .count()
    }

    /// The memory with which all guests were admitted, in bytes.
    #[must_use]
    pub(crate) fn taken(&self) -> u64 {
        let guests = self.by_key.values().map(|guest| guest.request.memory_bytes);
        guests
            .chain(self.starting.values().map(|(bytes, _)| *bytes))
            .sum()
    }

    /// Whether some guests are admitted and not here yet.
    #[must_use]
    pub(crate) fn expects_some(&self) -> bool {
        !self.starting.is_empty()
    }

    /// How many guests are admitted and have no supervisor yet.
    #[must_use]
    pub(crate) fn starting(&self) -> u32 {
        u32::try_from(self.starting.len()).unwrap_or(u32::MAX)
    }

    /// Whether this is the name of a guest that is here, or will be in a moment.
    #[must_use]
    pub(crate) fn knows_name(&self, name: &str) -> bool {
        let all = self.by_key.keys().chain(self.starting.keys());
        all.map(StayId::name).any(|known| known == name)
    }

    /// The guest of a journey to which connections come by the journey's name alone: the newest of those that
    /// an older daemon has admitted.
    #[must_use]
    pub(crate) fn unnamed(&self, journey: &str) -> Option<&Guest> {
        let of_journey = |guest: &&Guest| !guest.is_named && guest.request.journey == journey;
        let guests = self.by_key.values().filter(of_journey);
        guests.max_by_key(|guest| guest.request.epoch)
    }

    /// How much memory one more guest may bring along, in bytes.
    #[must_use]
    pub(crate) fn left(&self, here: &Report, used: u64, limits: &Limits) -> u64 {
        let share = limits.share(here.memory_total_bytes) / 100 * FULL_PERCENT;
        let beside = BESIDE_BYTES.saturating_mul(self.starting.len() as u64 + 1);
        share
            .saturating_sub(self.taken().max(used))
            .min(here.memory_available_bytes.saturating_sub(beside))
    }

    /// Decides whether a guest is admitted, and reserves its room until [`Guests::settle`]. `used` is
    /// what the guests that are here use now, which may be more than they came with.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub(crate) fn reserve(
        &mut self,
        request: &AdmitRequest,
        here: &Report,
        used: u64,
        node: &str,
        limits: &Limits,
    ) -> Result<(), AdmitError> {
        let node = node.to_string();
        if here.draining {
            return Err(AdmitError::Draining { node });
        }
        if let Some(why) = Shut::of(here) {
            return Err(AdmitError::Shut { node, why });
        }
        if let Some(what) = request
            .class
            .difference(&here.class, request.portable.as_ref())
        {
            return Err(AdmitError::Class {
                node,
                home: request.home.clone(),
                what,
            });
        }
        if request.threads > limits.pids {
            let (threads, limit) = (request.threads, limits.pids);
            return Err(AdmitError::Threads {
                node,
                threads,
                limit,
            });
        }
        let key = request.stay();
        if self.knows(&key) {
            return Err(AdmitError::Twice { node });
        }
        let guests = self.by_key.len() + self.starting.len();
        if guests >= usize::try_from(limits.max).unwrap_or(usize::MAX) {
            return Err(AdmitError::Guests { node, guests });
        }
        let guests = self.of_user(&request.home, request.uid);
        if guests >= usize::try_from(limits.per_user).unwrap_or(usize::MAX) {
            let (home, uid) = (request.home.clone(), request.uid);
            return Err(AdmitError::User {
                node,
                home,
                uid,
                guests,
            });
        }
        let left = self.left(here, used, limits);
        if request.memory_bytes > left {
            let needed = request.memory_bytes.div_ceil(1 << 20);
            return Err(AdmitError::Memory {
                node,
                needed,
                left: left >> 20,
            });
        }
        let user = (request.home.clone(), request.uid);
        self.starting.insert(key, (request.memory_bytes, user));
        Ok(())
    }

    /// The supervisor of a reserved guest was started, or not.
    pub(crate) fn settle(&mut self, request: &AdmitRequest, guest: Option<Guest>) {
        let key = request.stay();
        self.starting.remove(&key);
        if let Some(guest) = guest {
            self.by_key.insert(key, guest);
        }
    }
}

/// File that describes the guest in `directory`, for a daemon that comes after us.
#[must_use]
pub(crate) fn about_file(directory: &Path) -> PathBuf {
    directory.with_extension("guest.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_attempts::{Attempt, Party};
    use whim_control::config::GUESTS_MAX;
    use whim_machine::class::Class;

    fn request(memory_bytes: u64) -> AdmitRequest {
        AdmitRequest {
            journey: format!("j{memory_bytes}"),
            epoch: 1,
            home: "n1".into(),
            pid: 7,
            uid: 1000,
            threads: 4,
            memory_bytes,
            class: class(),
            portable: None,
            lease_ms: Some(2000),
            done_ms: 0,
            source: None,
        }
    }

    fn class() -> Class {
        Class::here(&[])
    }

    fn here() -> Report {
        Report {
            memory_total_bytes: 1000 << 20,
            memory_available_bytes: 900 << 20,
            class: class(),
            ..Report::default()
        }
    }

    #[test]
    fn memory_is_promised_once() {
        let limits = Limits::default();
        let mut guests = Guests::default();
        guests
            .reserve(&request(500 << 20), &here(), 0, "n2", &limits)
            .expect("room");
        assert_eq!(
            guests.reserve(&request(400 << 20), &here(), 0, "n2", &limits),
            Err(AdmitError::Memory {
                node: "n2".into(),
                needed: 400,
                left: 220
            })
        );
        assert!(matches!(
            guests.reserve(&request(500 << 20), &here(), 0, "n2", &limits),
            Err(AdmitError::Twice { .. })
        ));
        guests.settle(&request(500 << 20), None);
        // The guests that are there have grown.
        assert!(matches!(
            guests.reserve(&request(400 << 20), &here(), 330 << 20, "n2", &limits),
            Err(AdmitError::Memory { left: 390, .. })
        ));
        guests
            .reserve(&request(400 << 20), &here(), 0, "n2", &limits)
            .expect("room again");
    }

    #[test]
    fn a_user_has_no_more_guests_than_are_allowed() {
        let limits = Limits {
            per_user: 1,
            ..Limits::default()
        };
        let mut guests = Guests::default();
        let ask = |number: u32, home: &str, uid| AdmitRequest {
            journey: format!("j{number}"),
            home: home.into(),
            uid,
            ..request(1)
        };
        let mut reserve =
            |request: &AdmitRequest| guests.reserve(request, &here(), 0, "n2", &limits);
        reserve(&ask(1, "n1", 1000)).expect("the first");
        reserve(&ask(2, "n1", 1001)).expect("of another user");
        reserve(&ask(3, "n3", 1000)).expect("of another home");
        let error = reserve(&ask(4, "n1", 1000))
            .expect_err("one more")
            .to_string();
        let sentence =
            "Node n2 has 1 guests of user 1000 of n1 already, as many as [guests] per_user allows";
        assert_eq!(error, sentence);
    }

    #[test]
    fn guests_are_admitted_up_to_their_limit() {
        let limits = Limits::default();
        let mut guests = Guests::default();
        let ask = |number: u32| AdmitRequest {
            journey: format!("j{number}"),
            ..request(1)
        };
        let guest = |request: &AdmitRequest| Guest {
            request: request.clone(),
            private_id: None,
            cgroups: Vec::new(),
            supervisor_pid: 7,
            supervisor_start_time: 0,
            boot: String::new(),
            directory: PathBuf::new(),
            is_named: true,
        };
        for number in 1..GUESTS_MAX {
            let request = ask(number);
            let admitted = guests.reserve(&request, &here(), 0, "n2", &limits);
            admitted.expect("below the limit");
            guests.settle(&request, Some(guest(&request)));
        }
        let (last, above) = (ask(GUESTS_MAX), ask(GUESTS_MAX + 1));
        let mut reserve = |request| guests.reserve(request, &here(), 0, "n2", &limits);
        reserve(&last).expect("the last one that there may be");
        // It counts while its supervisor is being started, and when it is there.
        let error = reserve(&above).expect_err("one more").to_string();
        let sentence = "Node n2 has 1024 guests already, as many as [guests] max allows";
        assert_eq!(error, sentence);
        guests.settle(&last, Some(guest(&last)));
        let mut reserve = |request| guests.reserve(request, &here(), 0, "n2", &limits);
        assert_eq!(reserve(&above).expect_err("one more").to_string(), sentence);
        guests.by_key.remove(&ask(5).stay()).expect("it was there");
        let admitted = guests.reserve(&above, &here(), 0, "n2", &limits);
        admitted.expect("one has left");
    }

    /// A journey of another home with the same name and a higher epoch is another journey.
    #[test]
    fn journeys_of_two_homes_are_told_apart() {
        let limits = Limits::default();
        let mut guests = Guests::default();
        let ask = |home: &str, epoch| AdmitRequest {
            home: home.into(),
            epoch,
            ..request(1)
        };
        let mut stay = |home: &str, epoch, is_named| {
            let request = ask(home, epoch);
            let admitted = guests.reserve(&request, &here(), 0, "n2", &limits);
            admitted.expect("another one");
            let guest = Guest {
                request: request.clone(),
                private_id: None,
                cgroups: Vec::new(),
                supervisor_pid: 7,
                supervisor_start_time: 0,
                boot: String::new(),
                directory: PathBuf::from(home),
                is_named,
            };
            guests.settle(&request, Some(guest));
            request.stay()
        };
        let (old, ours, other) = (
            stay("n0", 1, false),
            stay("n1", 1, true),
            stay("n3", 9, true),
        );
        assert_ne!(ours.name(), stay("n3", 1, true).name());
        let attempt = Attempt::new(
            Party::Member,
            "take over a journey's connections at its host, by a higher epoch of the same name",
        );
        let found = |key| guests.by_key.get(key).map(|guest| guest.directory.clone());
        assert_eq!(found(&ours), Some(PathBuf::from("n1")));
        assert_eq!(found(&other), Some(PathBuf::from("n3")));
        // A guest that an older daemon admitted keeps its connections, too.
        let unnamed = guests
            .unnamed(&old.journey)
            .map(|guest| guest.request.stay());
        assert_eq!(unnamed, Some(old));
        attempt.failed("a connection goes to the stay of its home");
    }

    #[test]
    fn a_guest_takes_more_than_its_own_memory() {
        let limits = Limits::default();
        let mut guests = Guests::default();
        let nearly_full = |megabytes: u64| Report {
            memory_available_bytes: megabytes << 20,
            ..here()
        };
        assert!(matches!(
            guests.reserve(&request(2 << 20), &nearly_full(17), 0, "n2", &limits),
            Err(AdmitError::Memory { left: 1, .. })
        ));
        guests
            .reserve(&request(2 << 20), &nearly_full(18), 0, "n2", &limits)
            .expect("room");
        // The first guest does not use its part yet.
        assert!(matches!(
            guests.reserve(&request(1 << 20), &nearly_full(30), 0, "n2", &limits),
            Err(AdmitError::Memory { left: 0, .. })
        ));
    }

    #[test]
    fn others_kinds_of_cpu_too_many_threads_and_drained_nodes_are_refused() {
        let limits = Limits::default();
        let mut guests = Guests::default();
        let many = AdmitRequest {
            threads: 5000,
            ..request(1)
        };
        let newer = AdmitRequest {
            class: Class::here(&["sse3".into()]),
            ..request(2)
        };
        let blocked = Report {
            blocked: true,
            ..here()
        };
        assert_eq!(
            guests.reserve(&request(3), &blocked, 0, "n2", &limits),
            Err(AdmitError::Shut {
                node: "n2".into(),
                why: Shut::Blocked
            })
        );
        let draining = Report {
            draining: true,
            ..here()
        };
        assert!(matches!(
            guests.reserve(&many, &here(), 0, "n2", &limits),
            Err(AdmitError::Threads { .. })
        ));
        assert!(matches!(
            guests.reserve(&newer, &here(), 0, "n2", &limits),
            Err(AdmitError::Class {
                what: Difference::Features(_),
                ..
            })
        ));
        assert!(matches!(
            guests.reserve(&request(3), &draining, 0, "n2", &limits),
            Err(AdmitError::Draining { .. })
        ));
        let portable = AdmitRequest {
            portable: Some(newer.class.features()),
            ..newer
        };
        guests
            .reserve(&portable, &here(), 0, "n2", &limits)
            .expect("admitted");
    }

    #[test]
    fn each_user_of_each_node_has_a_uid_of_its_own() {
        let limits = Limits {
            uid_start: 5000,
            uid_count: 3,
            ..Limits::default()
        };
        let mut ids = PrivateIds::default();
        let first = ids.give("n1", 1000, &limits).expect("free");
        assert_eq!(ids.give("n1", 1000, &limits), Some(first));
        let second = ids.give("n1", 1001, &limits).expect("free");
        let third = ids.give("n2", 1000, &limits).expect("free");
        let mut all = [first, second, third];
        all.sort_unstable();
        assert_eq!(all, [5000, 5001, 5002]);
        assert_eq!(ids.give("n3", 1000, &limits), None);
    }
}
