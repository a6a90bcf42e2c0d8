//! The ranks of a job as those who agree: they tell each other what they found, and what went wrong.

use super::Ranks;
use crate::graph::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::{fmt, fs, thread};

/// Ranks of another version are refused: they might make other bytes, or not understand each other. Its beginning is
/// looked for where a program is changed to be another version.
const VERSION: &str = concat!("pipt-ranks-of-version:", env!("CARGO_PKG_VERSION"), ":1");

/// Why the ranks of a job do not go on together.
#[derive(Debug)]
pub enum TeamError {
    /// What went wrong at another rank, and which one that is.
    Elsewhere(usize, String),
    /// Another rank's version, which one it is, and this one's.
    Version(usize, String, String),
    /// Another rank does something else.
    Work(usize),
    /// A rank said what cannot be read.
    Words(usize),
    /// They cannot be reached.
    Ranks(Failure),
}

impl fmt::Display for TeamError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere(rank, sentence) => write!(to, "Rank {rank}: {sentence}"),
            Self::Version(rank, version, own) => write!(
                to,
                "Rank {rank} is pipt {version:?}, and this one is {own:?}: start all ranks from the same program, on \
                 all machines"
            ),
            Self::Work(rank) => write!(
                to,
                "Rank {rank} was asked for another job than this one: start all ranks with the same words, and with \
                 the same batch file on all machines"
            ),
            Self::Words(rank) => write!(
                to,
                "Rank {rank} said what cannot be read: start all ranks from the same program"
            ),
            Self::Ranks(failure) => write!(to, "{failure}"),
        }
    }
}

impl std::error::Error for TeamError {}

/// What ranks know of each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The machine that it runs on.
    node: String,
    /// The CPUs that it may use there, as the kernel lists them, and how many threads they are for.
    cpus: String,
    threads: usize,
    /// Of what it was asked for.
    work: u64,
}

impl About {
    /// This process, which was asked for the work of this sum.
    #[must_use]
    pub fn this(work: u64) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        // In a lab several nodes are of one boot, and in a cluster of images several may have one name.
        let node = ["random/boot_id", "hostname"]
            .map(|name| read(&format!("/proc/sys/kernel/{name}")).trim().to_owned());
        let status = read("/proc/self/status");
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self {
            node: node.join(" "),
            cpus: cpus.unwrap_or_default().trim().to_owned(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            work,
        }
    }

    /// The threads that one of these may have for its part of a machine's CPUs: ranks that a launcher has bound to CPUs
    /// of their own do not share them.
    fn share(&self, all: &[Self]) -> usize {
        let others = all
            .iter()
            .filter(|other| other.node == self.node && other.cpus == self.cpus);
        (self.threads / others.count().max(1)).max(1)
    }
}

/// Whether all is well with a rank, and what it has to say, or what went wrong.
#[derive(Serialize, Deserialize)]
enum Word<T> {
    Well(T),
    Failed(String),
}

/// The ranks of a job.
pub struct Team<'a> {
    ranks: &'a dyn Ranks,
    threads: usize,
    /// Whether all know that the work has failed.
    is_over: Cell<bool>,
}

impl<'a> Team<'a> {
    /// Greets all ranks. All of them call this.
    ///
    /// # Errors
    ///
    /// They are of different versions, were asked for different things, or cannot be reached.
    pub fn greet(ranks: &'a dyn Ranks, about: &About) -> Result<Self, TeamError> {
        // Plainly, so that any version can read it.
        let versions = ranks.all_gather(VERSION.as_bytes());
        let versions = versions.map_err(TeamError::Ranks)?;
        for (rank, version) in versions.iter().enumerate() {
            if version != VERSION.as_bytes() {
                let theirs = version.get(..version.len().min(VERSION.len() * 2));
                let theirs = String::from_utf8_lossy(theirs.unwrap_or_default());
                return Err(TeamError::Version(
                    rank,
                    of_version(&theirs),
                    of_version(VERSION),
                ));
            }
        }
        let team = Self {
            ranks,
            threads: 1,
            is_over: Cell::new(false),
        };
        let all = team.gather(about)?;
        if let Some(rank) = all.iter().position(|other| other.work != about.work) {
            return Err(TeamError::Work(rank));
        }
        Ok(Self {
            threads: about.share(&all),
            ..team
        })
    }

    #[must_use]
    pub fn ranks(&self) -> &'a dyn Ranks {
        self.ranks
    }

    /// The threads that this rank should have, if nothing is said.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    #[must_use]
    pub fn is_manager(&self) -> bool {
        self.ranks.rank() == 0
    }

    /// Tells all ranks something, and gives what each has told, in their order. All of them call this.
    ///
    /// # Errors
    ///
    /// Something went wrong at another rank.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, TeamError> {
        let word = postcard::to_allocvec(&Word::Well(own));
        let word = word.map_err(|error| TeamError::Ranks(error.into()))?;
        let words = self.ranks.all_gather(&word).map_err(TeamError::Ranks)?;
        let read = |(rank, bytes): (usize, Vec<u8>)| match postcard::from_bytes(&bytes) {
            Ok(Word::Well(told)) => Ok(told),
            Ok(Word::Failed(sentence)) => Err(TeamError::Elsewhere(rank, sentence)),
            Err(_) => Err(TeamError::Words(rank)),
        };
        let told: Result<Vec<T>, TeamError> = words.into_iter().enumerate().map(read).collect();
        if matches!(told, Err(TeamError::Elsewhere(..))) {
            self.is_over.set(true);
        }
        told
    }

    /// How many tiles long a block is, of what each rank has the memory for: blocks have numbers among all ranks, so
    /// they are as long at each. All of them call this.
    ///
    /// # Errors
    ///
    /// Those of [`Self::gather`].
    pub fn shortest(&self, tiles: u32) -> Result<u32, TeamError> {
        let all = self.gather(&tiles)?;
        Ok(all.into_iter().min().unwrap_or(tiles))
    }

    /// What the manager tells all. All of them call this, and what others bring is not looked at.
    ///
    /// # Errors
    ///
    /// Those of [`Self::gather`].
    pub fn of_manager<T: Serialize + DeserializeOwned>(
        &self,
        own: Option<T>,
    ) -> Result<T, TeamError> {
        let own = own.filter(|_| self.is_manager());
        let told = self.gather(&own)?.into_iter().next().flatten();
        told.ok_or(TeamError::Words(0))
    }

    /// Takes note that all ranks know, by messages, that the work has failed.
    pub fn all_know(&self) {
        self.is_over.set(true);
    }

    /// Tells all ranks, wherever they gather next, that something went wrong here; not if they know that already. Gives
    /// whether this rank should say it: of several where something went wrong at the same time, the first does.
    #[must_use]
    pub fn fail(&self, sentence: &str) -> bool {
        if self.is_over.replace(true) {
            return true;
        }
        let Ok(word) = postcard::to_allocvec(&Word::<()>::Failed(sentence.to_owned())) else {
            return true;
        };
        // Who cannot be told is not there any more.
        let words = self.ranks.all_gather(&word).unwrap_or_default();
        let failed =
            |word: &Vec<u8>| matches!(postcard::from_bytes(word), Ok(Word::<()>::Failed(_)));
        let first = words.iter().position(failed);
        first.is_none_or(|first| first == self.ranks.rank())
    }
}

/// What a user reads of it.
fn of_version(version: &str) -> String {
    let own = version.split(':').nth(1).unwrap_or(version);
    own.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::Alone;

    fn about(node: &str, cpus: &str) -> About {
        About {
            node: node.to_owned(),
            cpus: cpus.to_owned(),
            threads: 8,
            work: 1,
        }
    }

    #[test]
    fn ranks_of_one_machine_share_its_processors_unless_each_is_bound_to_its_own() {
        let shared = [about("a", "0-7"), about("a", "0-7"), about("b", "0-7")];
        assert_eq!(shared[0].share(&shared), 4);
        assert_eq!(shared[2].share(&shared), 8);
        let bound = [about("a", "0-3"), about("a", "4-7")];
        assert_eq!(bound[0].share(&bound), 8);
        let many = vec![about("a", "0-7"); 20];
        assert_eq!(many[0].share(&many), 1);
    }

    #[test]
    fn one_rank_agrees_with_itself() {
        let alone = Alone::new();
        let team = Team::greet(&alone, &About::this(3)).expect("greeted");
        assert!(team.is_manager() && team.threads() > 0);
        assert_eq!(team.gather(&vec![1_u64, 2]).expect("told"), [[1, 2]]);
        assert_eq!(team.of_manager(Some(7_u8)).expect("told"), 7);
        assert!(matches!(
            team.of_manager::<u8>(None),
            Err(TeamError::Words(0))
        ));
    }
}
