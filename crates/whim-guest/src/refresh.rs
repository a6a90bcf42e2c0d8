//! Pages of files that change at home.
//!
//! At home a page of a private file mapping that the program has not written shows the file as it is
//! now. Here such a page is a copy, so it is dropped when home says that the file has changed, and
//! fetched anew when it is touched. Only the program's own call drops its pages, so one of its threads
//! is borrowed for it: the one whose call home has just answered, before it goes on, or else one that
//! runs. The pages are protected meanwhile: what another thread writes must not be dropped, and
//! whether a page was written shows in its contents.
//!
//! Memory of the kernel's page cache, mapped by the program as home maps the file, would need none of
//! this. It was left because the fetching of pages, captures and rebuilds stand on anonymous memory.

use crate::cut::without_stop;
use crate::error::GuestError;
use crate::guest::{Guest, Trace};
use crate::table::{Page, PageSource};
use std::ops::Range as Span;
use std::sync::Arc;
use whim_model::{MappingId, PAGE_SIZE, Range, Syscall};
use whim_sys::process_vm::{self, MemFile};
use whim_sys::ptrace::{Running, Stop, Stopped, TraceError};
use whim_sys::seccomp::Response;
use xxhash_rust::xxh3::xxh3_64;

/// Drops pages of locked memory, too (Linux 5.18).
const MADV_DONTNEED_LOCKED: u64 = 24;
/// Pages whose contents are looked at together.
const LOOKED_AT: usize = 256;

/// Neighbouring pages that may have to be dropped.
#[derive(Debug, Default)]
struct Suspects {
    start: u64,
    pages: Vec<Suspect>,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    page: Page,
    /// The page is dropped if its contents have this hash; none if it is dropped whatever it has.
    unless_written: Option<u64>,
}

impl Suspects {
    fn range(&self) -> Range {
        Range {
            start: self.start,
            end: self.start + self.pages.len() as u64 * PAGE_SIZE,
        }
    }

    /// Each page for itself.
    fn single(self) -> impl Iterator<Item = Self> {
        let starts = (self.start..).step_by(4096);
        let alone = |(start, page)| Self {
            start,
            pages: vec![page],
        };
        starts.zip(self.pages).map(alone)
    }
}

impl Guest {
    /// Home says that the file of a mapping has changed, and how many bytes of the mapping it has. Its pages are
    /// dropped before a thread gets a result that comes after this, and otherwise by the next
    /// [`refresh`](Self::refresh), with those of all other mappings that home has told of by then.
    pub(crate) fn file_changed(&mut self, mapping: MappingId, backed: u64) {
        self.shared.renew(mapping);
        if self.shared.table().of(mapping).next().is_none() {
            return;
        }
        // What a truncation has taken does not come back when the file grows again.
        let least = self.stale.entry(mapping).or_insert(backed);
        *least = backed.min(*least);
    }

    /// Drops the pages of changed files, if a thread is to be had for it. If all threads wait for
    /// something, the first one that goes on does it (`respond`).
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn refresh(&mut self) -> Result<(), GuestError> {
        if self.stale.is_empty() || self.holds.any() {
            return Ok(());
        }
        let mut threads = self.threads.values();
        let free = threads.find(|thread| {
            matches!(thread.trace, Trace::Running)
                && thread.waiting.is_none()
                && thread.fatal.is_none()
                && thread.suspended.is_none()
                && thread.timed.is_none()
        });
        let Some(host_tid) = free.map(|thread| thread.host_tid) else {
            return Ok(());
        };
        if self.suspects().is_empty() {
            self.stale.clear();
            return Ok(());
        }
        let taken = self.take_out(host_tid);
        self.borrowed(host_tid, taken)
    }

    /// Whether pages are to be dropped, and a thread that runs has to be found for it.
    #[must_use]
    pub(crate) fn is_stale(&self) -> bool {
        let runs = |thread: &crate::guest::Thread| thread.waiting.is_none();
        !self.stale.is_empty() && !self.holds.any() && self.threads.values().any(runs)
    }

    /// Answers a thread's reported call, and drops what is stale before the thread goes on.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn answer_afresh(
        &mut self,
        host_tid: i32,
        response: Response,
    ) -> Result<(), GuestError> {
        let thread = self.threads.get(&host_tid);
        let ready =
            thread.is_some_and(|one| one.waiting.is_some() && matches!(one.trace, Trace::Running));
        if self.holds.any() || !ready {
            return self.answer(host_tid, response);
        }
        if self.suspects().is_empty() {
            self.stale.clear();
            return self.answer(host_tid, response);
        }
        Running::assume(host_tid).interrupt()?;
        self.set_trace(host_tid, Trace::Interrupted);
        self.answer(host_tid, response)?;
        let taken = self.await_stop(host_tid);
        self.borrowed(host_tid, taken)
    }

    /// A thread has stopped for us: it drops the pages, and goes on where it was.
    fn borrowed(
        &mut self,
        host_tid: i32,
        taken: Result<Stopped, GuestError>,
    ) -> Result<(), GuestError> {
        let done = taken.and_then(|stopped| self.drop_in(host_tid, stopped));
        match done {
            // The call that was answered was the thread's end.
            Err(GuestError::Ended | GuestError::Trace(TraceError::Died)) => Ok(()),
            other => other,
        }
    }

    fn drop_in(&mut self, host_tid: i32, stopped: Stopped) -> Result<(), GuestError> {
        if stopped.stop() != Stop::Interrupt {
            // A signal came first. The pages are dropped at the next occasion.
            self.set_trace(host_tid, Trace::Stopped(stopped));
            return self.resume();
        }
        let before = stopped.registers()?;
        let stopped = self.drop_stale(stopped)?;
        // As in `queue_exactly`: the kernel restarts a call only behind a stop of this kind.
        Running::assume(host_tid).interrupt()?;
        stopped.resume(0)?;
        let stopped = self.await_stop(host_tid)?;
        stopped.set_registers(&without_stop(&before))?;
        self.go_on(host_tid, stopped)
    }

    /// Pages of changed files that are here, and that the program has not brought along.
    fn suspects(&self) -> Vec<Suspects> {
        let table = self.shared.table();
        let mut found: Vec<Suspects> = Vec::new();
        for (mapping, backed) in &self.stale {
            for piece in table.of(*mapping) {
                for (at, page, arrival) in table.here(piece) {
                    let is_backed = page.1 * PAGE_SIZE < *backed;
                    let unless_written = match arrival {
                        PageSource::Fetched(hash) if is_backed => Some(hash),
                        // A truncation removes the program's own pages, too.
                        // Trap: a-truncated-page-stays
                        PageSource::Fetched(_) | PageSource::Own if !is_backed => None,
                        PageSource::Nothing if is_backed => None,
                        _ => continue,
                    };
                    let suspect = Suspect {
                        page,
                        unless_written,
                    };
                    match found.last_mut() {
                        Some(last) if last.range().end == at => last.pages.push(suspect),
                        _ => found.push(Suspects {
                            start: at,
                            pages: vec![suspect],
                        }),
                    }
                }
            }
        }
        found
    }

    /// Has a stopped thread drop what is stale. Afterwards its registers are as before.
    pub(crate) fn drop_stale(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        self.shared.protecting();
        let dropped = self.drop_runs(stopped);
        self.shared.done_protecting();
        dropped
    }

    fn drop_runs(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        let mut runs = self.suspects();
        self.stale.clear();
        let mut stopped = stopped;
        while let Some(run) = runs.pop() {
            let range = run.range();
            // A page that is missing, although it came once, comes now: it could not be protected.
            let _ = self.unwritten(&run);
            // Trap: a-write-while-pages-are-dropped
            if let Err(errno) = self.shared.uffd.protect(range.start, range.len(), true) {
                // A part of them may be protected.
                self.release(range);
                if run.pages.len() > 1 {
                    // Linux before 6.3 protects within one mapping only; or a part has just been unmapped.
                    runs.extend(run.single());
                } else {
                    tracing::warn!(start = range.start, %errno, "a page of a changed file stays");
                }
                continue;
            }
            let dropped = self.unwritten(&run);
            // What comes in the middle would be noted as here, and be dropped.
            let shared = Arc::clone(&self.shared);
            let placing = shared.hold_placing();
            for span in &dropped {
                let mut table = shared.table();
                for suspect in &run.pages[span.clone()] {
                    table.forget(suspect.page);
                }
            }
            for span in &dropped {
                let start = run.start + span.start as u64 * PAGE_SIZE;
                let length = span.len() as u64 * PAGE_SIZE;
                let advice = [start, length, MADV_DONTNEED_LOCKED];
                let call = Syscall::new(libc::SYS_madvise, &advice);
                let (back, result) = self
                    .inject(stopped, &call)
                    .inspect_err(|_| self.release(range))?;
                stopped = back;
                if result < 0 {
                    tracing::warn!(start, result, "pages of a changed file stay");
                }
            }
            drop(placing);
            self.release(range);
        }
        Ok(stopped)
    }

    /// Lets threads that wait to write to the pages do so.
    fn release(&self, range: Range) {
        // If the range is gone by now, nobody waits for it.
        let _ = self.shared.uffd.protect(range.start, range.len(), false);
        let _ = self.shared.uffd.wake(range.start, range.len());
    }

    /// Which of these pages are to be dropped.
    fn unwritten(&self, run: &Suspects) -> Vec<Span<usize>> {
        let mut found: Vec<Span<usize>> = Vec::new();
        let mut buffer = vec![0; LOOKED_AT.min(run.pages.len()) * 4096];
        let mut add = |index: usize| match found.last_mut() {
            Some(last) if last.end == index => last.end += 1,
            _ => found.push(index..index + 1),
        };
        for (number, pages) in run.pages.chunks(LOOKED_AT).enumerate() {
            let first = number * LOOKED_AT;
            let start = run.start + first as u64 * PAGE_SIZE;
            let bytes = &mut buffer[..pages.len() * 4096];
            let read = self.read_whole(start, bytes);
            for (index, suspect) in pages.iter().enumerate() {
                let at = index * 4096;
                let drops = match suspect.unless_written {
                    None => true,
                    Some(hash) if at + 4096 <= read => xxh3_64(&bytes[at..at + 4096]) == hash,
                    Some(hash) => {
                        // What is before it could not be read.
                        let mut page = [0; 4096];
                        let address = start + at as u64;
                        self.read_whole(address, &mut page) == page.len() && xxh3_64(&page) == hash
                    }
                };
                if drops {
                    add(first + index);
                }
            }
        }
        found
    }

    /// How many bytes could be read, whatever their protection.
    fn read_whole(&self, address: u64, bytes: &mut [u8]) -> usize {
        let got = process_vm::read(self.host_tid, address, bytes).unwrap_or(0);
        if got == bytes.len() {
            return got;
        }
        let rest = &mut bytes[got..];
        let file = MemFile::open(self.host_tid);
        got + file
            .and_then(|file| file.read(address + got as u64, rest))
            .unwrap_or(0)
    }
}
