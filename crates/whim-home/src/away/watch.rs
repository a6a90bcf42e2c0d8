//! The lines of a stay are watched, over whichever connections they run.

use super::{Away, CALLS, NEXT_CALLS, PAGES};
use crate::moving::Transition;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use whim_net::Line;

/// Watches a line and the door by which its new connections come.
pub(super) fn begin(epoll: &Epoll, line: &mut Line, token: u64) -> Result<()> {
    line.take_renewed();
    add(epoll, line.door(), token)?;
    add(epoll, line.as_fd(), token)
}

/// A line without a connection is its door: then both are one.
fn add(epoll: &Epoll, descriptor: impl AsFd, token: u64) -> Result<()> {
    match epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, token)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn end(epoll: &Epoll, line: &Line) {
    let _ = epoll.delete(line);
    let _ = epoll.delete(line.door());
}

/// Looks after a line; true if it runs over another connection than before. (The kernel forgets a
/// descriptor that was watched when it is closed.)
fn keep(epoll: Option<&Epoll>, line: &mut Line, token: u64) -> Result<bool> {
    line.tick()?;
    let renewed = line.take_renewed();
    if let (true, Some(epoll)) = (renewed, epoll) {
        add(epoll, line.as_fd(), token)?;
    }
    Ok(renewed)
}

impl Away {
    /// What the kernel tells of files at once.
    pub(super) fn hear_of_files(&mut self) -> Result<()> {
        if self.files.is_told_of_change() && !self.heard_of_files {
            self.heard_of_files = true;
            self.begin_homeward(None, "a file that it maps was written".into())?;
        }
        Ok(())
    }

    /// Not every change of theirs is told.
    pub(super) fn look_at_files(&mut self) -> Result<()> {
        if self.transition.is_some() || !self.until_files_are_looked_at().is_zero() {
            return Ok(());
        }
        self.looked_at_files = Instant::now();
        if self.files.is_changed() {
            self.begin_homeward(None, "a file that it maps has changed".into())?;
        }
        Ok(())
    }

    pub(super) fn until_files_are_looked_at(&self) -> Duration {
        let every = self.files.look_every();
        every.saturating_sub(self.looked_at_files.elapsed())
    }

    pub(super) fn next_is_over(&self) -> bool {
        match &self.transition {
            Some(Transition::Onward(onward)) => onward.link.calls.is_over(),
            _ => false,
        }
    }

    /// Looks after all lines.
    pub(super) fn keep_lines(&mut self) -> Result<()> {
        let epoll = self.epoll.as_ref();
        if keep(epoll, &mut self.link.calls, CALLS)? {
            // Nothing is said there unasked: whether it still works is not known.
            self.link.pages.lose("that of its calls was lost")?;
        }
        keep(epoll, &mut self.link.pages, PAGES)?;
        if let Some(Transition::Onward(onward)) = &mut self.transition {
            keep(epoll, &mut onward.link.calls, NEXT_CALLS)?;
        }
        Ok(())
    }
}
