//! Programs of a Slurm job: they stay on the nodes of that job.
//!
//! Slurm gives a job some nodes, and gives the others to other jobs. So a program that was started in one
//! (its environment says so, from its beginning on) goes to the job's nodes alone, whoever asks, unless this
//! node's administrator allows more. The job's end ends the deputy, as it ends any process of the job, and
//! that ends the guest.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use thiserror::Error;

/// No environment is read beyond this, in bytes.
const ENVIRONMENT_MAX: u64 = 4 << 20;
/// No list of nodes is longer, as it is written in bytes, and in nodes.
const LIST_MAX: usize = 64 << 10;
const NODES_MAX: usize = 65_536;
/// Numbers in names of nodes have no more digits.
const DIGITS_MAX: usize = 9;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostlistError {
    #[error("It is longer than {LIST_MAX} bytes, or names more than {NODES_MAX} nodes")]
    TooLong,
    #[error("{0:?} is no name of nodes, such as n1 or n[1-4,7]")]
    Odd(String),
}

/// A job, and the nodes that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub nodes: Vec<String>,
}

impl Job {
    /// The job in which a process was started; `None`: in none.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = File::open(format!("/proc/{pid}/environ")).ok()?;
        file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes).ok()?;
        Self::parse(&bytes)
    }

    /// As an environment tells it: words that end with a zero byte.
    fn parse(environment: &[u8]) -> Option<Self> {
        let value = |name: &str| {
            let mut words = environment.split(|byte| *byte == 0);
            let value = words.find_map(|word| word.strip_prefix(name.as_bytes()));
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let id = value("SLURM_JOB_ID=").filter(|id| !id.is_empty())?;
        let list = value("SLURM_JOB_NODELIST=").unwrap_or_default();
        let nodes = hosts(&list).unwrap_or_else(|error| {
            // None but its home: no node of another job.
            tracing::warn!(id, %error, "the nodes of a Slurm job are not understood");
            Vec::new()
        });
        Some(Self { id, nodes })
    }

    /// Why a program of this job may not go to a node, as a sentence.
    #[must_use]
    pub fn forbids(&self, node: &str) -> Option<String> {
        if self.nodes.iter().any(|own| own == node) {
            return None;
        }
        let nodes = match self.nodes.len() {
            0 => "no other node".to_owned(),
            1..=8 => self.nodes.join(", "),
            count => format!("{count} nodes"),
        };
        Some(format!(
            "It belongs to Slurm job {}, which has {nodes} ([balance] beyond_job allows others)",
            self.id
        ))
    }
}

/// The nodes that a list such as `n[1-3,07],login` names: Slurm's form (`scontrol show hostnames`).
///
/// # Errors
/// [`HostlistError`]
pub fn hosts(list: &str) -> Result<Vec<String>, HostlistError> {
    if list.len() > LIST_MAX {
        return Err(HostlistError::TooLong);
    }
    let mut nodes = Vec::new();
    for part in split(list) {
        let found = expand(part)?;
        if nodes.len() + found.len() > NODES_MAX {
            return Err(HostlistError::TooLong);
        }
        nodes.extend(found);
    }
    Ok(nodes)
}

/// The parts between commas that stand in no brackets.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut depth) = (0, 0u32);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// All names of one part: what stands before the first brackets, each of their numbers, and all names of
/// the rest.
fn expand(part: &str) -> Result<Vec<String>, HostlistError> {
    let odd = || HostlistError::Odd(part.to_owned());
    let mut names = vec![String::new()];
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or_else(odd)?;
        let mut numbers = Vec::new();
        for range in inside.split(',') {
            numbers.extend(numbers_of(range).ok_or_else(odd)??);
            if numbers.len().saturating_mul(names.len()) > NODES_MAX {
                return Err(HostlistError::TooLong);
            }
        }
        let longer = names.iter().flat_map(|name| {
            numbers
                .iter()
                .map(move |number| format!("{name}{before}{number}"))
        });
        names = longer.collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    let is_name = |name: &String| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !name.is_empty() && name.bytes().all(allowed)
    };
    if names.iter().all(is_name) {
        Ok(names)
    } else {
        Err(odd())
    }
}

/// The numbers of a range such as `07-12`, all as wide as its first; `None`: it is none.
fn numbers_of(range: &str) -> Option<Result<Vec<String>, HostlistError>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        let fits =
            (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<usize>().ok().filter(|_| fits)
    };
    let (from, to) = (number(first)?, number(last)?);
    if to < from {
        return None;
    }
    if to - from >= NODES_MAX {
        return Some(Err(HostlistError::TooLong));
    }
    let width = first.len();
    Some(Ok((from..=to)
        .map(|number| format!("{number:0width$}"))
        .collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_nodes_are_understood_as_slurm_does() {
        for (list, nodes) in [
            ("", vec![]),
            ("n1", vec!["n1"]),
            ("n1,login", vec!["n1", "login"]),
            ("n[1-3,7]", vec!["n1", "n2", "n3", "n7"]),
            ("a[08-10]-ib,b", vec!["a08-ib", "a09-ib", "a10-ib", "b"]),
            ("r[1-2]n[3-4]", vec!["r1n3", "r1n4", "r2n3", "r2n4"]),
        ] {
            assert_eq!(
                hosts(list),
                Ok(nodes.into_iter().map(str::to_owned).collect()),
                "{list}"
            );
        }
        for odd in [
            "n[1",
            "n[]",
            "n[a-b]",
            "n[3-1]",
            "n]",
            "n 1",
            "n[1-2",
            "[1234567890]",
            "n[1-]",
        ] {
            assert!(matches!(hosts(odd), Err(HostlistError::Odd(_))), "{odd}");
        }
        for long in ["n[0-65536]", "a[1-999]b[1-999]", "n[0-40000],m[0-40000]"] {
            assert_eq!(hosts(long), Err(HostlistError::TooLong), "{long}");
        }
        assert_eq!(
            hosts(&"n".repeat(LIST_MAX + 1)),
            Err(HostlistError::TooLong)
        );
        assert_eq!(hosts("n[0-65535]").map(|nodes| nodes.len()), Ok(NODES_MAX));
    }

    #[test]
    fn a_program_of_a_job_stays_on_its_nodes() {
        let environment = b"HOME=/\0SLURM_JOB_ID=7\0SLURM_JOB_NODELIST=n[1-2]\0";
        let job = Job::parse(environment).expect("a job");
        assert_eq!(job.forbids("n2"), None);
        let why = job.forbids("n3").expect("another node");
        assert!(
            why.starts_with("It belongs to Slurm job 7, which has n1, n2 ("),
            "{why}"
        );
        assert_eq!(Job::parse(b"HOME=/\0"), None);
        // Rather nowhere than to nodes of other jobs.
        for odd in [
            &b"SLURM_JOB_ID=7\0"[..],
            b"SLURM_JOB_ID=7\0SLURM_JOB_NODELIST=n[\0",
        ] {
            assert!(Job::parse(odd).expect("a job").forbids("n1").is_some());
        }
    }

    proptest! {
        #[test]
        fn no_list_is_too_odd(list in "[a-c0-3\\[\\],-]{0,40}") {
            if let Ok(nodes) = hosts(&list) {
                prop_assert!(nodes.len() <= NODES_MAX);
                prop_assert!(nodes.iter().all(|node| !node.contains(['[', ']', ','])));
            }
        }
    }
}
