//! Watches the lines and the files of a stay.

use super::lines::keep;
use super::{Away, CALLS, NEXT_CALLS, PAGES};
use crate::moving::Transition;
use anyhow::Result;
use std::time::{Duration, Instant};

impl Away {
    /// Acts on changes of files of which the kernel gives notice: at once, and before the guest gets a
    /// result, which may be that of a write.
    pub(super) fn hear_of_files(&mut self) -> Result<()> {
        let results = !self.server.outgoing.is_empty();
        if !std::mem::take(&mut self.has_notices) && !results {
            return Ok(());
        }
        if self.files.is_told_of_change() && !self.heard_of_files {
            self.heard_of_files = true;
            self.begin_homeward(None, "a file that it maps was written".into())?;
        }
        Ok(())
    }

    /// Checks the files themselves, because the kernel does not give notice of every change.
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
            Some(Transition::Onward(onward)) => onward.connections.calls.is_over(),
            _ => false,
        }
    }

    /// Maintains all lines.
    pub(super) fn keep_lines(&mut self) -> Result<()> {
        let epoll = self.epoll.as_ref();
        if keep(epoll, &mut self.connections.calls, CALLS)? {
            // Nothing is sent there unasked, so it is not known whether that line still works.
            self.connections.pages.lose("that of its calls was lost")?;
        }
        keep(epoll, &mut self.connections.pages, PAGES)?;
        if let Some(Transition::Onward(onward)) = &mut self.transition {
            keep(epoll, &mut onward.connections.calls, NEXT_CALLS)?;
        }
        Ok(())
    }
}
