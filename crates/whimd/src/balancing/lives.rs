//! How long programs lived in the past, which tells whether it pays to move one that has just begun.
//!
//! Most processes end within a second, and by looking at a process one cannot tell whether it will last.
//! Its name tells more: a user who runs `mksquashfs` again will wait again. A program whose last lives
//! were all long is moved at once; any other has to live for a while first.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lives of each program that are kept.
const KEPT: usize = 8;
/// How many lives have to be known before they say anything.
const ENOUGH: usize = 3;
/// CPU seconds that each of them must have lasted.
const LASTING: f64 = 5.0;
/// Programs that are remembered; the one that ended longest ago makes room.
const PROGRAMS_MAX: usize = 1000;

/// The past lives of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Past {
    /// CPU seconds, the newest last.
    seconds: Vec<f64>,
    /// A number that grows with each life that ends.
    ended: u64,
}

/// The past lives of programs, by user and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Lives {
    by_program: BTreeMap<String, Past>,
    ended: u64,
}

impl Lives {
    /// Where they are written down, in the directory of the daemon's state.
    pub(super) const FILE: &str = "lives.json";

    /// What an earlier daemon wrote down; nothing if that is damaged.
    #[must_use]
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut lives: Self = serde_json::from_slice(text).unwrap_or_default();
        lives
            .by_program
            .values_mut()
            .for_each(|past| past.seconds.truncate(KEPT));
        while lives.by_program.len() > PROGRAMS_MAX {
            lives.forget_one();
        }
        lives
    }

    /// How many lives have been noted. When this has grown, there is something new to write down.
    #[must_use]
    pub(super) fn count(&self) -> u64 {
        self.ended
    }

    fn key(uid: u32, name: &str) -> String {
        format!("{uid}:{name}")
    }

    /// A program has ended, after so many seconds of CPU time.
    pub(super) fn ended(&mut self, uid: u32, name: &str, seconds: f64) {
        self.ended += 1;
        let past = self.by_program.entry(Self::key(uid, name)).or_default();
        past.ended = self.ended;
        past.seconds.push(seconds);
        if past.seconds.len() > KEPT {
            past.seconds.remove(0);
        }
        if self.by_program.len() > PROGRAMS_MAX {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        let oldest = self.by_program.iter().min_by_key(|(_, past)| past.ended);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.by_program.remove(&key);
        }
    }

    /// Whether it pays to move this program as soon as it has begun.
    #[must_use]
    pub(super) fn last(&self, uid: u32, name: &str) -> bool {
        self.by_program
            .get(&Self::key(uid, name))
            .is_some_and(|past| {
                past.seconds.len() >= ENOUGH
                    && past.seconds.iter().all(|seconds| *seconds >= LASTING)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_always_lasted_is_expected_to() {
        let mut lives = Lives::default();
        for _ in 0..ENOUGH {
            assert!(!lives.last(7, "solve"));
            lives.ended(7, "solve", 60.0);
        }
        assert!(lives.last(7, "solve") && !lives.last(8, "solve") && !lives.last(7, "ls"));
        lives.ended(7, "solve", 0.1);
        assert!(!lives.last(7, "solve"));
        (0..KEPT).for_each(|_| lives.ended(7, "solve", 60.0));
        assert!(lives.last(7, "solve"));
    }

    #[test]
    fn the_one_that_ended_longest_ago_makes_room() {
        let mut lives = Lives::default();
        for round in 0..ENOUGH {
            for number in 0..=PROGRAMS_MAX {
                if round == 0 || number > 0 {
                    lives.ended(1, &format!("p{number}"), 9.0);
                }
            }
        }
        assert_eq!(lives.by_program.len(), PROGRAMS_MAX);
        assert!(!lives.last(1, "p0") && lives.last(1, "p1"));
        let text = serde_json::to_vec(&lives).expect("encoded");
        assert_eq!(Lives::parse(&text), lives);
        assert_eq!(Lives::parse(b"[damaged"), Lives::default());
    }
}
