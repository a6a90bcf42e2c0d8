//! Processes that do a job together, each with a number, its rank; rank 0 is the manager.
//!
//! What carries their messages is not known here: [`pipt_load::World`] does it for the command, and Python's mpi4py
//! for the module. All ranks call the same in the same order, but for [`Ranks::send`] and [`Ranks::poll`].

mod team;

pub use team::{About, Team, TeamError};

use crate::graph::Failure;
use pipt_load::World;
use std::cell::RefCell;
use std::collections::VecDeque;

/// The ranks of one job, as one of them sees them. It stays with one thread, which hands on what others have to say.
pub trait Ranks {
    /// Which one this is, from 0 on.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Sends a message, also to this rank itself, and never waits. Those of one rank to another arrive in their order.
    ///
    /// # Errors
    ///
    /// There is no such rank, or it cannot be reached.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// A message that is there, and the rank that it is of; never waits. What is being sent goes on.
    ///
    /// # Errors
    ///
    /// Nothing can be received.
    fn poll(&self) -> Result<Option<(usize, Vec<u8>)>, Failure>;

    /// Gives all ranks the bytes of each of them, in their order. Waits for all.
    ///
    /// # Errors
    ///
    /// They are too many, or a rank cannot be reached.
    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure>;
}

/// All messages of the engine have this tag.
const TAG: u32 = 1;

impl Ranks for World {
    fn rank(&self) -> usize {
        Self::rank(self)
    }

    fn size(&self) -> usize {
        Self::size(self)
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Failure> {
        Ok(Self::send(self, to, TAG, bytes)?)
    }

    fn poll(&self) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        let message = Self::poll(self)?;
        Ok(message.map(|message| (message.from, message.bytes)))
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(Self::all_gather(self, bytes)?)
    }
}

/// The one rank of a process that was started alone.
pub struct Alone(RefCell<VecDeque<Vec<u8>>>);

impl Alone {
    #[must_use]
    pub fn new() -> Self {
        Self(RefCell::default())
    }
}

impl Default for Alone {
    fn default() -> Self {
        Self::new()
    }
}

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn send(&self, _: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.0.borrow_mut().push_back(bytes.to_vec());
        Ok(())
    }

    fn poll(&self) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        Ok(self.0.borrow_mut().pop_front().map(|bytes| (0, bytes)))
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(vec![bytes.to_vec()])
    }
}
