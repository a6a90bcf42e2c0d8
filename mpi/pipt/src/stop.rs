//! Work that is told to stop from outside, as by a user's Ctrl-C.

use crate::graph::{Failure, Part, Reading};
use pipt_raster::Rect;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by one who wants work to end; looked at whenever a part of an image is read, so that passes over whole images
/// end too.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// It says nothing of what is done.
impl PartialEq for Stop {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Work ended because it was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "It was stopped")
    }
}

impl std::error::Error for Stopped {}

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An image whose reading fails from when it is stopped.
pub struct Stoppable<R> {
    pub reading: R,
    pub stop: Stop,
}

impl<R: Reading> Reading for Stoppable<R> {
    fn part(&self, band: u32, rect: Rect) -> Result<Part, Failure> {
        match self.stop.is_set() {
            true => Err(Box::new(Stopped)),
            false => self.reading.part(band, rect),
        }
    }
}
