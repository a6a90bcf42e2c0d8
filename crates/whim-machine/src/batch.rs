//! Programs of a Slurm job: they stay on the nodes of that job.
//!
//! Slurm gives a job some nodes, and gives the others to other jobs. So a program that was started in a job
//! (its environment says so, from its beginning on) goes to the nodes of that job alone, whoever asks, unless
//! this node's administrator allows more. When the job ends, the deputy ends like any process of the job, and
//! that ends the guest.
//!
//! A user can write anything into an environment, and the job is kept for each program. So the nodes are kept
//! as the short text that was written. A job whose number or nodes are too long, or are not understood, counts
//! as a job without any other node.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

use crate::processes::{self, ENVIRONMENT_MAX};

/// The most bytes in the number or name of a job.
const ID_MAX: usize = 64;
/// The most bytes in a list of nodes as it is written, and the most nodes that it may name.
const LIST_MAX: usize = 16 << 10;
const NODES_MAX: usize = 65_536;
/// The most nodes that a message names one by one.
const NAMED_MAX: usize = 8;
/// The most digits of a number in the name of a node.
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
#[serde(from = "Written", into = "Written")]
pub struct Job {
    /// `None`: its number is not understood.
    id: Option<String>,
    nodes: Hostlist,
}

/// A job as it is written down for the next daemon: each node by itself, or several as in `n[1-4]`.
#[derive(Serialize, Deserialize)]
struct Written {
    id: String,
    nodes: Vec<String>,
}

impl From<Written> for Job {
    fn from(written: Written) -> Self {
        Self::new(&written.id, &written.nodes.join(","))
    }
}

impl From<Job> for Written {
    fn from(job: Job) -> Self {
        Self {
            nodes: parts(&job.nodes.text).map(str::to_owned).collect(),
            id: job.id.unwrap_or_default(),
        }
    }
}

impl Job {
    /// The job in which a process was started; `None`: in none.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&processes::environment(pid)?)
    }

    /// Finds the job in an environment, which consists of words that end with a zero byte.
    #[must_use]
    pub fn parse(environment: &[u8]) -> Option<Self> {
        let value = |name: &str| {
            let mut words = environment.split(|byte| *byte == 0);
            words.find_map(|word| word.strip_prefix(name.as_bytes()))
        };
        // If the environment was not read to its end, the variable may be in the rest.
        let whole = u64::try_from(environment.len()).is_ok_and(|length| length < ENVIRONMENT_MAX);
        let id = match value("SLURM_JOB_ID=") {
            Some(id) => Some(id).filter(|id| !id.is_empty())?,
            None if whole => return None,
            None => b"",
        };
        let text = |bytes| str::from_utf8(bytes).unwrap_or(ODD);
        let list = value("SLURM_JOB_NODELIST=").unwrap_or_default();
        Some(Self::new(text(id), text(list)))
    }

    fn new(id: &str, list: &str) -> Self {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
        let is_id = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(allowed);
        if !is_id {
            tracing::warn!("the number of a Slurm job is not understood");
            return Self {
                id: None,
                nodes: Hostlist::default(),
            };
        }
        let nodes = Hostlist::parse(list).unwrap_or_else(|error| {
            // It has no node but its home, and so none that may belong to another job.
            tracing::warn!(id, %error, "the nodes of a Slurm job are not understood");
            Hostlist::default()
        });
        Self {
            id: Some(id.to_owned()),
            nodes,
        }
    }

    /// The most bytes that it takes when it is written down.
    #[must_use]
    pub fn weight(&self) -> usize {
        // Each name has at least one letter, and gets two quotes and a comma.
        2 * ID_MAX + 3 * self.nodes.text.len()
    }

    /// Why a program of this job may not go to a node, as a sentence.
    #[must_use]
    pub fn forbids(&self, node: &str) -> Option<String> {
        let Some(id) = &self.id else {
            return Some(UNKNOWN.to_owned());
        };
        if self.nodes.has(node) {
            return None;
        }
        let nodes = match self.nodes.count {
            0 => "no other node".to_owned(),
            1..=NAMED_MAX => self.nodes.names().join(", "),
            count => format!("{count} nodes"),
        };
        Some(format!(
            "It belongs to Slurm job {id}, which has {nodes} ([balance] beyond_job allows others)"
        ))
    }
}

/// What is said of a program whose job is not known.
const UNKNOWN: &str = "It belongs to a Slurm job whose number is not understood, or its environment is too long to be looked through: it has no other node ([balance] beyond_job allows others)";

/// Stands for bytes that are not UTF-8; it is neither a valid job number nor the name of a node.
const ODD: &str = "?";

/// The nodes that a list such as `n[1-3,07],login` names: Slurm's form (`scontrol show hostnames`). It is kept
/// as it is written, because a few letters can name thousands of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hostlist {
    text: String,
    count: usize,
}

impl Hostlist {
    fn parse(text: &str) -> Result<Self, HostlistError> {
        if text.len() > LIST_MAX {
            return Err(HostlistError::TooLong);
        }
        let mut count = 0;
        for part in parts(text) {
            count += Part::parse(part)?.count()?;
            if count > NODES_MAX {
                return Err(HostlistError::TooLong);
            }
        }
        let text = text.to_owned();
        Ok(Self { text, count })
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        parts(&self.text).filter_map(|part| Part::parse(part).ok())
    }

    fn has(&self, node: &str) -> bool {
        self.parts().any(|part| part.has(node))
    }

    /// The names of all nodes; only to be used where there are few.
    fn names(&self) -> Vec<String> {
        self.parts().flat_map(|part| part.names()).collect()
    }
}

/// Splits a list at the commas outside of brackets.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    let parts = list.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

/// One part of a list: the pairs of a text and the content of the brackets behind it, then the rest.
struct Part<'a> {
    numbered: Vec<(&'a str, &'a str)>,
    rest: &'a str,
}

impl<'a> Part<'a> {
    fn parse(part: &'a str) -> Result<Self, HostlistError> {
        let odd = || HostlistError::Odd(part.chars().take(ID_MAX).collect());
        let mut numbered = Vec::new();
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, after) = after.split_once(']').ok_or_else(odd)?;
            if inside.split(',').any(|range| Range::parse(range).is_none()) {
                return Err(odd());
            }
            numbered.push((before, inside));
            rest = after;
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let mut between = numbered.iter().map(|(before, _)| *before).chain([rest]);
        if between.all(|text| text.bytes().all(allowed)) {
            Ok(Self { numbered, rest })
        } else {
            Err(odd())
        }
    }

    fn count(&self) -> Result<usize, HostlistError> {
        let mut count = 1usize;
        for (_, inside) in &self.numbered {
            count = count.saturating_mul(ranges(inside).map(|range| range.count()).sum());
            // Checked after each factor, because the product of many would overflow.
            if count > NODES_MAX {
                return Err(HostlistError::TooLong);
            }
        }
        Ok(count)
    }

    /// Whether this part names the node. `ends` holds the places in the name where the brackets so far may end:
    /// there can be several, since it may be open where the digits of one number end and those of the next
    /// begin.
    fn has(&self, node: &str) -> bool {
        let mut ends = BTreeSet::from([0]);
        for (before, inside) in &self.numbered {
            let begins = ends.iter().filter_map(|end| {
                let begin = end + before.len();
                (node.get(*end..begin)? == *before).then_some(begin)
            });
            ends = begins
                .flat_map(|begin| number_ends(node, begin, inside))
                .collect();
        }
        ends.iter().any(|end| node.get(*end..) == Some(self.rest))
    }

    fn names(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        for (before, inside) in &self.numbered {
            let longer = names.iter().flat_map(|name| {
                let numbers = ranges(inside).flat_map(Range::numbers);
                numbers.map(move |number| format!("{name}{before}{number}"))
            });
            names = longer.collect();
        }
        names.iter_mut().for_each(|name| name.push_str(self.rest));
        names
    }
}

fn ranges(inside: &str) -> impl Iterator<Item = Range> {
    inside.split(',').filter_map(Range::parse)
}

/// The places in a node's name where a number from the brackets may end, if it begins at `begin`.
fn number_ends(node: &str, begin: usize, inside: &str) -> Vec<usize> {
    let digits = node.bytes().skip(begin).take_while(u8::is_ascii_digit);
    let longest = digits.take(DIGITS_MAX).count();
    let ends = (1..=longest).map(|length| begin + length);
    let is_one = |end: &usize| {
        let digits = &node[begin..*end];
        ranges(inside).any(|range| range.has(digits))
    };
    ends.filter(is_one).collect()
}

/// Numbers such as `07-12`, all as wide as the first.
struct Range {
    from: usize,
    to: usize,
    width: usize,
}

impl Range {
    fn parse(range: &str) -> Option<Self> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let fits =
                (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<usize>().ok().filter(|_| fits)
        };
        let (from, to, width) = (number(first)?, number(last)?, first.len());
        (from <= to).then_some(Self { from, to, width })
    }

    fn count(&self) -> usize {
        self.to - self.from + 1
    }

    /// Whether these digits write a number of this range.
    fn has(&self, digits: &str) -> bool {
        let wide =
            digits.len() == self.width || digits.len() > self.width && !digits.starts_with('0');
        let number = digits.parse::<usize>();
        wide && number.is_ok_and(|number| (self.from..=self.to).contains(&number))
    }

    fn numbers(self) -> impl Iterator<Item = String> {
        let width = self.width;
        (self.from..=self.to).map(move |number| format!("{number:0width$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(list: &str) -> Result<Vec<String>, HostlistError> {
        Hostlist::parse(list).map(|list| list.names())
    }

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
        let dimensions = "[0-9]".repeat(1000);
        for long in [
            "n[0-65536]",
            "a[1-999]b[1-999]",
            "n[0-40000],m[0-40000]",
            &dimensions,
        ] {
            assert_eq!(hosts(long), Err(HostlistError::TooLong), "{long}");
        }
        assert_eq!(
            hosts(&"n".repeat(LIST_MAX + 1)),
            Err(HostlistError::TooLong)
        );
        assert_eq!(hosts("n[0-65535]").map(|nodes| nodes.len()), Ok(NODES_MAX));
    }

    #[test]
    fn a_name_is_of_a_list_as_slurm_writes_it() {
        for (list, node, has) in [
            ("n[1-65536]", "n65536", true),
            ("n[1-65536]", "n65537", false),
            ("n[1-65536]", "n01", false),
            ("n[01-12]", "n7", false),
            ("n[01-12]", "n07", true),
            ("n[8-12]", "n10", true),
            ("a[1,11][1,11]", "a111", true),
            ("a[1,11][1,11]", "a11111", false),
            ("a[1-2]b,b[3]", "b3", true),
            ("a[1-2]b", "a1", false),
            ("a[1]", "ä1", false),
            ("", "", false),
        ] {
            let list = Hostlist::parse(list).expect(list);
            assert_eq!(list.has(node), has, "{list:?} {node}");
        }
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
        assert_eq!(Job::parse(b"SLURM_JOB_ID=\0"), None);
        // Better to forbid every node than to allow the nodes of other jobs.
        for odd in [
            &b"SLURM_JOB_ID=7\0"[..],
            b"SLURM_JOB_ID=7\0SLURM_JOB_NODELIST=n[\0",
            b"SLURM_JOB_ID=7\0SLURM_JOB_NODELIST=n1,\xff\0",
        ] {
            assert!(Job::parse(odd).expect("a job").forbids("n1").is_some());
        }
    }

    #[test]
    fn a_number_that_is_none_is_a_job_without_other_nodes_and_is_not_told() {
        let long = "1".repeat(130_000);
        let escape = "1\u{1b}]0;owned\u{7}\u{1b}[2J";
        for odd in [&long, escape, "1\n2", "1\u{202e}2", &"1".repeat(ID_MAX + 1)] {
            let environment = format!("SLURM_JOB_ID={odd}\0SLURM_JOB_NODELIST=n[1-2]\0");
            let job = Job::parse(environment.as_bytes()).expect("a job");
            let why = job.forbids("n1").expect("nowhere");
            assert!(!why.contains(odd) && why.len() < 300, "{why}");
            assert!(why.contains("no other node"), "{why}");
        }
        for usual in ["17", "17_4", "17+1", &"1".repeat(ID_MAX)] {
            let environment = format!("SLURM_JOB_ID={usual}\0SLURM_JOB_NODELIST=n[1-2]\0");
            let job = Job::parse(environment.as_bytes()).expect("a job");
            assert_eq!(job.forbids("n1"), None, "{usual}");
        }
        let most = usize::try_from(ENVIRONMENT_MAX).expect("small");
        let cut = Job::parse(&vec![b'x'; most]).expect("perhaps one");
        assert!(cut.forbids("n1").is_some());
        assert_eq!(Job::parse(&vec![b'x'; most - 1]), None);
    }

    #[test]
    fn what_an_earlier_daemon_noted_is_understood_and_a_few_letters_stay_few() {
        let noted = r#"{"id":"7","nodes":["n1","n2"]}"#;
        let job: Job = serde_json::from_str(noted).expect("a job");
        assert_eq!(job.forbids("n2"), None);
        assert_eq!(serde_json::to_string(&job).expect("written"), noted);
        let many = Job::new("7", "n[1-65534],m[1,2]");
        let written = serde_json::to_string(&many).expect("written");
        assert_eq!(written, r#"{"id":"7","nodes":["n[1-65534]","m[1,2]"]}"#);
        assert!(written.len() <= many.weight());
        assert_eq!(serde_json::from_str::<Job>(&written).expect("a job"), many);
        let names = vec!["n1000"; NODES_MAX];
        let noted = serde_json::json!({"id": "x".repeat(1000), "nodes": names});
        let job: Job = serde_json::from_value(noted).expect("a job");
        assert!(job.forbids("n1000").is_some());
    }

    proptest! {
        #[test]
        fn no_list_is_too_odd(list in "[a-c0-3\\[\\],-]{0,40}", node in "[a-c0-3]{0,6}") {
            if let Ok(list) = Hostlist::parse(&list) {
                let nodes = list.names();
                prop_assert_eq!(nodes.len(), list.count);
                prop_assert!(nodes.len() <= NODES_MAX);
                prop_assert!(nodes.iter().all(|node| !node.contains(['[', ']', ','])));
                prop_assert!(nodes.iter().take(100).all(|node| list.has(node)));
                prop_assert_eq!(nodes.contains(&node), list.has(&node));
            }
        }

        #[test]
        fn a_name_is_found_if_it_would_be_written(
            list in "a(\\[[0-3]{1,2}(,[0-3]{1,2})?\\]){1,3}", node in "a[0-3]{1,6}"
        ) {
            let list = Hostlist::parse(&list).expect("a list");
            prop_assert_eq!(list.names().contains(&node), list.has(&node));
        }
    }
}
