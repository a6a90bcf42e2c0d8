//! How many candidates one user may have, and what may be noted of them.
//!
//! All candidates are kept in memory, looked at each second, and written to one file
//! (`candidates.json`). One user cannot make that file longer than these limits allow: a process beyond
//! them is no candidate, so it stays.

use std::collections::HashMap;
use thiserror::Error;

use crate::moves::candidate::{Candidate, NOTED_OF_ANY};

/// How many processes of one user may move, and how much may be noted of them in all, in bytes.
const OF_USER_MAX: usize = 10_000;
const NOTED_MAX: usize = 4 << 20;
/// The greatest number of candidates fits into `NOTED_MAX`, if no options are noted with them.
const _: () = assert!(OF_USER_MAX * NOTED_OF_ANY <= NOTED_MAX);

/// A user has as many candidates as are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{count} processes of uid {uid} may move already, with {noted} bytes noted of them: no more are taken than {OF_USER_MAX} of one user, and {NOTED_MAX} bytes"
)]
pub(crate) struct Full {
    pub(crate) uid: u32,
    count: usize,
    noted: usize,
}

/// How many candidates each user has, and what is noted of them, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Tally(HashMap<u32, (usize, usize)>);

impl Tally {
    /// Checks that there is room for one more candidate.
    pub(crate) fn room(&self, user: Option<u32>, weight: usize) -> Result<(), Full> {
        let Some(uid) = user else { return Ok(()) };
        let (count, noted) = self.0.get(&uid).copied().unwrap_or_default();
        if count < OF_USER_MAX && noted + weight <= NOTED_MAX {
            Ok(())
        } else {
            Err(Full { uid, count, noted })
        }
    }

    pub(crate) fn count(&mut self, candidate: &Candidate) {
        if let Some(uid) = candidate.user() {
            let (count, noted) = self.0.entry(uid).or_default();
            *count += 1;
            *noted += candidate.weight();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_each_user_alone() {
        let of = |count, noted| Tally(HashMap::from([(1000, (count, noted))]));
        let room = |tally: Tally, uid, weight| tally.room(Some(uid), weight).is_ok();
        assert!(room(Tally::default(), 1000, NOTED_OF_ANY));
        assert!(room(of(OF_USER_MAX - 1, 0), 1000, NOTED_OF_ANY));
        assert!(!room(of(OF_USER_MAX, 0), 1000, NOTED_OF_ANY));
        assert!(room(of(OF_USER_MAX, NOTED_MAX), 1001, NOTED_OF_ANY));
        assert!(room(of(1, NOTED_MAX - 9), 1000, 9));
        assert!(!room(of(1, NOTED_MAX - 9), 1000, 10));
    }
}
