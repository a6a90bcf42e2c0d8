//! Serves the guest's page faults from home. The pager is a thread of its own, because every thread
//! that touches a missing page of the guest, our main thread included, has to wait for that page.

use crate::table::{Page, PageSource, Piece, Table};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_journey::frame::Kind;
use whim_journey::message::{self, MessageError, PAGE_REQUEST_MAX, PageRequest};
use whim_model::{MappingId, PAGE_SIZE, Range};
use whim_net::{ChannelError, Line, Received};
use whim_sys::pagemap::Pagemap;
use whim_sys::pidfd::Pidfd;
use whim_sys::uffd::{Event, Placed, Uffd};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes fetched for one fault, aligned in the mapping: over a network the round trip costs more
/// than the bytes.
const BLOCK: u64 = 64 << 10;
/// Bytes fetched for a fault that goes on where the last one ended.
const BLOCK_SEQUENTIAL: u64 = 256 << 10;
/// Time that the main thread has to end the supervisor once the pager has ended. The main thread
/// does so at once, unless it waits in the kernel for a page that will never come.
const UNHEARD_MAX: Duration = Duration::from_secs(5);
/// Time between two looks whether what threads unmap has been told.
const SETTLING: Duration = Duration::from_micros(50);
/// Longer than that nobody waits for it: a thread that has unmapped a range has only to get the processor once to
/// tell so.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// Most page requests that home has to answer at the same time.
pub const IN_FLIGHT_MAX: usize = 256;

const _: () = assert!(BLOCK_SEQUENTIAL <= PAGE_REQUEST_MAX as u64);

#[derive(Debug, Error)]
pub enum PagerError {
    #[error("The page connection to home broke: {0}")]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("Home has closed the page connection")]
    Closed,
    #[error("Home answers a page request that was never made")]
    Stray,
    #[error("{call} failed in the pager: {errno}")]
    Os { call: &'static str, errno: Errno },
}

/// What main thread and pager share.
#[derive(Debug)]
pub struct Shared {
    table: Mutex<Table>,
    pub uffd: Uffd,
    wishes: Mutex<Vec<Range>>,
    /// Tells the pager to read the wishes.
    wake: EventFd,
    /// Becomes readable when pages that the main thread wished for have come, or when the pager has
    /// failed.
    pub arrived: EventFd,
    awaited: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Held while an answer of home is looked at and placed, so that a change of a file that is told
    /// of comes before it, or after it is noted.
    placing: Mutex<()>,
    protecting: Mutex<Protecting>,
}

/// Pages that are protected for a moment while pages of changed files are dropped.
#[derive(Debug, Default)]
struct Protecting {
    is_under_way: bool,
    /// Where threads wait to write.
    waiting: Vec<u64>,
}

/// A panic while a lock is held ends the process (`abort` after the message), so that a poisoned
/// lock never guards a half-changed table.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// # Errors
    /// No descriptor to be had.
    pub fn new(uffd: Uffd) -> Result<Arc<Self>, PagerError> {
        let event = || {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            EventFd::from_value_and_flags(0, flags).map_err(|errno| PagerError::Os {
                call: "eventfd",
                errno,
            })
        };
        Ok(Arc::new(Self {
            table: Mutex::new(Table::default()),
            uffd,
            wishes: Mutex::new(Vec::new()),
            wake: event()?,
            arrived: event()?,
            awaited: AtomicBool::new(false),
            failure: Mutex::new(None),
            placing: Mutex::new(()),
            protecting: Mutex::default(),
        }))
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// The table, once all is noted that the kernel has unmapped or moved so far.
    ///
    /// A range may be mapped anew before the word comes that it was unmapped, and that word names the whole
    /// of a range, also what was a hole in it: noted behind the new mapping, it would be one of that. So who
    /// puts something new into the table, or lets a thread do so, waits until no word is on its way. (Dead
    /// end: to keep what a new mapping displaces, and take the next word of its place for one of that. A hole
    /// displaces nothing, and a move tells of its old place twice.)
    pub(crate) fn settled(&self) -> MutexGuard<'_, Table> {
        let begun = Instant::now();
        loop {
            // Locked first: what the pager has read by then is noted.
            let table = self.table();
            // Trap: a-place-that-is-mapped-again
            if !self.uffd.is_changing() {
                return table;
            }
            if begun.elapsed() > SETTLED_WITHIN {
                tracing::warn!("a thread does not tell what it has unmapped");
                return table;
            }
            drop(table);
            thread::sleep(SETTLING);
        }
    }

    /// The file of a mapping has changed at home. Pages that home has read before are not placed any
    /// more; those that were placed already are noted.
    pub fn renew(&self, mapping: MappingId) {
        let _placing = lock(&self.placing);
        self.table().renew(mapping);
    }

    /// No page is placed and noted while this is held. Nothing that waits for the pager may be done
    /// meanwhile.
    pub(crate) fn hold_placing(&self) -> MutexGuard<'_, ()> {
        lock(&self.placing)
    }

    /// Pages are protected from now on, and those who want to write wait until [`done_protecting`].
    ///
    /// [`done_protecting`]: Self::done_protecting
    pub(crate) fn protecting(&self) {
        lock(&self.protecting).is_under_way = true;
    }

    /// No page is protected any more. A thread may still wait for a page that was left protected because its
    /// neighbour was unmapped just then: it goes on.
    pub(crate) fn done_protecting(&self) {
        let waiting = {
            let mut protecting = lock(&self.protecting);
            protecting.is_under_way = false;
            std::mem::take(&mut protecting.waiting)
        };
        waiting
            .into_iter()
            .for_each(|address| self.release(address));
    }

    /// A thread waits to write to a protected page.
    fn waits_to_write(&self, address: u64) {
        let mut protecting = lock(&self.protecting);
        if protecting.is_under_way {
            protecting.waiting.push(address);
        } else {
            // Trap: a-page-that-is-left-protected
            self.release(address);
        }
    }

    /// Lets whoever waits to write to a page do so.
    fn release(&self, address: u64) {
        let page = address & !(PAGE_SIZE - 1);
        // If it is gone by now, nobody waits for it.
        let _ = self.uffd.protect(page, PAGE_SIZE, false);
        let _ = self.uffd.wake(page, PAGE_SIZE);
    }

    /// The pieces are as they are noted: faults that had none are looked at again.
    pub fn changed(&self) {
        self.table().end_move();
        let _ = self.wake.write(1);
    }

    /// Asks for pages; `arrived` becomes readable when some have come.
    pub fn wish(&self, ranges: Vec<Range>) {
        lock(&self.wishes).extend(ranges);
        self.awaited.store(true, Ordering::Release);
        // This can only fail when the counter is at its limit, and then the pager is awake anyway.
        let _ = self.wake.write(1);
    }

    /// Resets `arrived`; returns an error if the pager has ended.
    ///
    /// # Errors
    /// Why it ended.
    pub fn take_arrived(&self) -> Result<(), String> {
        let _ = self.arrived.read();
        match lock(&self.failure).clone() {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}

/// What a request was for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    mapping: MappingId,
    offset: u64,
    length: u64,
    /// As the table has it when home is asked.
    generation: u64,
}

/// The thread's own state.
struct Pager {
    shared: Arc<Shared>,
    line: Line,
    epoch: u32,
    next: u64,
    in_flight: HashMap<u64, Asked>,
    pages: HashSet<Page>,
    /// Pages that are being waited for.
    demanded: HashSet<Page>,
    /// Requests that are not sent yet, because too many are in flight.
    waiting: Vec<Asked>,
    /// Faults at addresses that are about to get a piece.
    unclear: Vec<u64>,
    /// Mapping and end of the last fault's block.
    last: Option<(MappingId, u64)>,
    /// Finds the guest's guard pages, if the kernel reports them.
    guards: Option<Pagemap>,
}

/// Starts the pager. It ends the guest if it loses home, because then nothing can serve the guest's
/// faults, and a thread that waits for a page must not wait for ever.
///
/// # Errors
/// No thread to be had.
pub fn start(
    shared: Arc<Shared>,
    line: Line,
    epoch: u32,
    (guest, mut pagemap): (Pidfd, Pagemap),
) -> std::io::Result<()> {
    let mut pager = Pager {
        shared,
        line,
        epoch,
        next: 1,
        in_flight: HashMap::new(),
        pages: HashSet::new(),
        demanded: HashSet::new(),
        waiting: Vec::new(),
        unclear: Vec::new(),
        last: None,
        guards: pagemap.only_guards().then_some(pagemap),
    };
    let run = move || {
        let error = loop {
            if let Err(error) = pager.turn() {
                break error;
            }
        };
        // At the end of a stay home closes its connections; what else ends a guest is to be found in the log,
        // whatever the main thread says first.
        if !matches!(error, PagerError::Closed | PagerError::Channel(_)) {
            tracing::error!(%error, "the pager ends, and the guest with it");
        }
        *lock(&pager.shared.failure) = Some(error.to_string());
        // If this fails, the guest has ended already.
        let _ = guest.signal(libc::SIGKILL);
        let _ = pager.shared.arrived.write(1);
        thread::sleep(UNHEARD_MAX);
        tracing::error!("The supervisor waits for a page in vain; it is ended");
        whim_sys::log::settle();
        std::process::exit(1);
    };
    thread::Builder::new()
        .name("pager".into())
        .spawn(run)
        .map(drop)
}

impl Pager {
    fn turn(&mut self) -> Result<(), PagerError> {
        let flushed = self.line.flush()?;
        let talk = if flushed {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        };
        let mut set = [
            PollFd::new(self.shared.uffd.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.line.as_fd(), talk),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.line.door(), PollFlags::POLLIN),
        ];
        match poll(&mut set, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(PagerError::Os {
                    call: "poll",
                    errno,
                });
            }
        }
        let ready: Vec<bool> = set
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            .collect();
        if ready[0] {
            self.faults()?;
        }
        if ready[2] {
            let _ = self.shared.wake.read();
            for address in std::mem::take(&mut self.unclear) {
                self.fault(address)?;
            }
            let wishes = std::mem::take(&mut *lock(&self.shared.wishes));
            for range in &wishes {
                self.want(*range)?;
            }
            // Trap: a-supervisor-waits-for-itself
            self.answer_for_what_is_here(&wishes);
        }
        if ready[1] || ready[3] {
            self.replies()?;
        }
        Ok(())
    }

    /// Pages that the main thread missed may have come, with those of a fault, before it wished for
    /// them. Then nothing is asked of home, and no reply would ever tell that they are here.
    fn answer_for_what_is_here(&self, wishes: &[Range]) {
        let table = self.shared.table();
        let is_here = |range: &Range| table.missing(range.start, range.len()).is_empty();
        if wishes.iter().any(is_here) {
            // If other pages are still missing, the main thread wishes for them again.
            let _ = self.shared.arrived.write(1);
        }
    }

    /// Reads what the kernel reports. The table is locked from before the read until its changes
    /// are noted, because the read lets a thread go on that has just moved or unmapped memory.
    fn faults(&mut self) -> Result<(), PagerError> {
        let mut events = Vec::new();
        let mut missing = Vec::new();
        let mut gone = Vec::new();
        {
            let mut table = self.shared.table();
            self.shared
                .uffd
                .read_events(&mut events)
                .map_err(|errno| PagerError::Os {
                    call: "reading the userfaultfd",
                    errno,
                })?;
            for event in events {
                match event {
                    Event::Fault {
                        protected: true,
                        address,
                        ..
                    } => self.shared.waits_to_write(address),
                    Event::Fault { address, .. } => missing.push(address),
                    // Trap: moved-pages-are-forgotten
                    Event::Remap { from, to, length } => {
                        table.moved(from, to, length);
                        gone.push((from, length));
                    }
                    Event::Unmap { start, end } => {
                        table.unmapped(Range { start, end });
                        gone.push((start, end - start));
                    }
                    Event::Remove { .. } | Event::Fork { .. } => {}
                }
            }
        }
        for (start, length) in gone {
            // Threads that wait for pages there find that nothing is mapped.
            // Trap: a-page-that-is-unmapped-is-waited-for
            let _ = self.shared.uffd.wake(start, length);
        }
        for address in missing {
            self.fault(address)?;
        }
        Ok(())
    }

    fn fault(&mut self, address: u64) -> Result<(), PagerError> {
        let (found, is_moving) = {
            let table = self.shared.table();
            (table.at(address), table.is_moving())
        };
        let Some(piece) = found else {
            if is_moving {
                self.unclear.push(address);
                return Ok(());
            }
            return self.refuse(address, PAGE_SIZE);
        };
        let page = piece.page(address);
        if !self.pages.contains(&page) {
            // Trap: dropped-pages-rise-again
            self.shared.table().forget(page);
        }
        self.demanded.insert(page);
        let offset = page.1 * PAGE_SIZE;
        let sequential = self.last == Some((piece.mapping, offset & !(BLOCK - 1)));
        let length = if sequential { BLOCK_SEQUENTIAL } else { BLOCK };
        let first = offset & !(BLOCK - 1);
        self.last = Some((piece.mapping, first + length));
        let end = piece.offset + (piece.end - piece.start);
        self.ask(
            piece.mapping,
            first.max(piece.offset),
            (first + length).min(end),
        )
    }

    fn want(&mut self, range: Range) -> Result<(), PagerError> {
        let pieces: Vec<Piece> = self.shared.table().overlapping(range).collect();
        for piece in pieces {
            let whole = self.shared.table().at(piece.start).unwrap_or(piece);
            let end = piece.offset + (piece.end - piece.start);
            let limit = whole.offset + (whole.end - whole.start);
            let from = (piece.offset & !(BLOCK - 1)).max(whole.offset);
            let wanted = (piece.offset / PAGE_SIZE)..end.div_ceil(PAGE_SIZE);
            let wanted = wanted.map(|number| (piece.mapping, number));
            self.demanded.extend(wanted);
            self.ask(piece.mapping, from, end.next_multiple_of(BLOCK).min(limit))?;
        }
        Ok(())
    }

    /// Asks for the pages of a part of a mapping that are neither here nor on their way.
    fn ask(&mut self, mapping: MappingId, from: u64, to: u64) -> Result<(), PagerError> {
        let mut begin = None;
        for offset in (from..to + PAGE_SIZE).step_by(4096) {
            let page = (mapping, offset / PAGE_SIZE);
            let wanted = offset < to
                && !self.pages.contains(&page)
                && self.shared.table().arrival(page).is_none();
            let full = begin.is_some_and(|begin| offset - begin >= u64::from(PAGE_REQUEST_MAX));
            match (wanted && !full, begin) {
                (true, None) => begin = Some(offset),
                (false, Some(start)) => {
                    self.waiting.push(Asked {
                        mapping,
                        offset: start,
                        length: offset - start,
                        generation: 0,
                    });
                    begin = wanted.then_some(offset);
                }
                _ => {}
            }
            if wanted {
                self.pages.insert(page);
            }
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), PagerError> {
        while self.in_flight.len() < IN_FLIGHT_MAX && !self.waiting.is_empty() {
            let mut asked = self.waiting.remove(0);
            asked.generation = self.shared.table().generation(asked.mapping);
            let request = PageRequest {
                request: self.next,
                mapping: asked.mapping,
                offset: asked.offset,
                length: u32::try_from(asked.length).unwrap_or(PAGE_REQUEST_MAX),
            };
            let bytes = message::encode(&request)?;
            self.line.queue(Kind::PageRequest, self.epoch, &[&bytes]);
            self.in_flight.insert(self.next, asked);
            self.next += 1;
        }
        self.line.flush()?;
        Ok(())
    }

    fn replies(&mut self) -> Result<(), PagerError> {
        let state = self.line.receive()?;
        while let Some(frame) = self.line.next_frame() {
            // Heartbeats and frames of an older stay mean nothing here.
            if frame.kind == Kind::PageReply && frame.epoch == self.epoch {
                self.reply(&frame.payload)?;
            }
        }
        if state == Received::Closed {
            return Err(PagerError::Closed);
        }
        self.send()
    }

    fn reply(&mut self, payload: &[u8]) -> Result<(), PagerError> {
        let (head, bytes) = payload.split_first_chunk::<16>().ok_or(PagerError::Stray)?;
        let mut id = [0; 8];
        id.copy_from_slice(&head[..8]);
        let status = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let asked = self
            .in_flight
            .remove(&u64::from_le_bytes(id))
            .ok_or(PagerError::Stray)?;
        let length = usize::try_from(asked.length).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(length)];
        for offset in (asked.offset..asked.offset + asked.length).step_by(4096) {
            self.pages.remove(&(asked.mapping, offset / PAGE_SIZE));
        }
        let shared = Arc::clone(&self.shared);
        let placing = lock(&shared.placing);
        if shared.table().generation(asked.mapping) != asked.generation {
            // Trap: old-pages-on-their-way
            drop(placing);
            return self.ask_anew(asked);
        }
        // Only whole pages; home fills the last page of a file with zeros.
        let whole = if status == 0 { bytes.len() & !4095 } else { 0 };
        self.place(asked.mapping, asked.offset, &bytes[..whole])?;
        let missing = asked.length - whole as u64;
        if missing > 0 {
            self.beyond(asked, whole as u64)?;
        }
        drop(placing);
        if self.shared.awaited.swap(false, Ordering::AcqRel) {
            let _ = self.shared.arrived.write(1);
        }
        Ok(())
    }

    /// Home has read these pages before its file changed, or may have. Those that are being waited
    /// for are asked for once more.
    fn ask_anew(&mut self, asked: Asked) -> Result<(), PagerError> {
        for offset in (asked.offset..asked.offset + asked.length).step_by(4096) {
            let page = (asked.mapping, offset / PAGE_SIZE);
            if self.demanded.contains(&page) {
                self.ask(asked.mapping, offset, offset + PAGE_SIZE)?;
            }
        }
        Ok(())
    }

    /// Home has no more than `done` bytes of what was asked for; its file may end there. If a
    /// missing page is being waited for, home is asked for that page alone. If home does not have
    /// that page either, an access to it is a SIGBUS, as at home. Pages that were only fetched
    /// along stay missing, because the file may have grown by the time they are needed.
    fn beyond(&mut self, asked: Asked, done: u64) -> Result<(), PagerError> {
        let alone = asked.length == PAGE_SIZE;
        for offset in (asked.offset + done..asked.offset + asked.length).step_by(4096) {
            let page = (asked.mapping, offset / PAGE_SIZE);
            if !self.demanded.contains(&page) {
                continue;
            }
            if !alone {
                self.ask(asked.mapping, offset, offset + PAGE_SIZE)?;
                continue;
            }
            self.demanded.remove(&page);
            let places = self.shared.table().places(page.0, offset, PAGE_SIZE);
            for piece in places {
                self.shared.table().note(page, PageSource::Nothing);
                self.refuse(piece.start, PAGE_SIZE)?;
            }
        }
        Ok(())
    }

    /// Makes an access to a page a SIGBUS. If it is present or unmapped by now, who waits for it looks again.
    fn refuse(&mut self, address: u64, length: u64) -> Result<(), PagerError> {
        loop {
            let uffd = &self.shared.uffd;
            let placed = match uffd.poison(address, length) {
                // Linux before 6.6 cannot poison a page, so zeros take the place of the SIGBUS.
                Err(_) => uffd.zero(address, length),
                placed => placed,
            };
            match placed {
                Ok(Placed::Whole) => return Ok(()),
                Ok(Placed::UntilPresent(_) | Placed::Gone) => {
                    let _ = uffd.wake(address, length);
                    return Ok(());
                }
                // The address space is changing, and the change can only go on once its event has been read.
                Ok(Placed::Again(_)) => self.faults()?,
                Err(errno) => {
                    return Err(PagerError::Os {
                        call: "UFFDIO_ZEROPAGE",
                        errno,
                    });
                }
            }
        }
    }

    /// Puts bytes of a mapping wherever the guest has mapped them. A page is noted only once it is
    /// there, because the main thread lets the kernel touch every page that is noted.
    fn place(&mut self, mapping: MappingId, offset: u64, bytes: &[u8]) -> Result<(), PagerError> {
        for at in (offset..offset + bytes.len() as u64).step_by(4096) {
            self.demanded.remove(&(mapping, at / PAGE_SIZE));
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let left = (bytes.len() - done) as u64;
            let places = self.shared.table().places(mapping, at, left);
            let Some(piece) = places.iter().min_by_key(|piece| piece.offset) else {
                return Ok(());
            };
            let skip = usize::try_from(piece.offset - at).unwrap_or(usize::MAX);
            let length = usize::try_from(piece.end - piece.start).unwrap_or(0);
            let from = done + skip;
            let (count, again) = self.copy(piece.start, &bytes[from..from + length])?;
            done = from + count;
            self.note(mapping, piece.offset, &bytes[from..done]);
            if again {
                // The address space is changing, and the change can only go on once its event has
                // been read.
                self.faults()?;
            }
        }
        Ok(())
    }

    fn note(&self, mapping: MappingId, offset: u64, bytes: &[u8]) {
        let mut table = self.shared.table();
        for (number, page) in (offset / PAGE_SIZE..).zip(bytes.chunks_exact(4096)) {
            table.note((mapping, number), PageSource::Fetched(xxh3_64(page)));
        }
    }

    /// The first run of guard pages in a range. UFFDIO_COPY would put ordinary pages in their
    /// place.
    fn first_guard(&self, address: u64, length: usize) -> Option<Range> {
        let end = address + length as u64;
        let runs = self.guards.as_ref()?.runs(address, end).ok()?;
        let first = runs.first()?;
        Some(Range {
            start: first.start,
            end: first.end,
        })
    }

    /// Places as much as can be placed in one go. Returns how many bytes are done with, and whether
    /// faults have to be read before the rest.
    fn copy(&mut self, address: u64, bytes: &[u8]) -> Result<(usize, bool), PagerError> {
        let mut bytes = bytes;
        if let Some(guard) = self.first_guard(address, bytes.len()) {
            if guard.start == address {
                // A thread that waits here had its fault before the guard was set.
                let _ = self.shared.uffd.wake(address, guard.len());
                let skipped = usize::try_from(guard.len()).unwrap_or(usize::MAX);
                return Ok((skipped.min(bytes.len()), false));
            }
            let before = usize::try_from(guard.start - address).unwrap_or(0);
            bytes = &bytes[..before];
        }
        let placed = self
            .shared
            .uffd
            .copy(address, bytes)
            .map_err(|errno| PagerError::Os {
                call: "UFFDIO_COPY",
                errno,
            })?;
        match placed {
            // Trap: pages-across-two-mappings
            Placed::Gone if bytes.len() > 4096 => self.copy(address, &bytes[..4096]),
            Placed::Whole | Placed::Gone => Ok((bytes.len(), false)),
            Placed::UntilPresent(count) => {
                let count = usize::try_from(count).unwrap_or(0);
                // The next page is there already. Wake the threads that had their fault before it
                // came.
                let present = if count == 0 { 4096 } else { 0 };
                if present > 0 {
                    let _ = self.shared.uffd.wake(address, PAGE_SIZE);
                }
                Ok((count + present, false))
            }
            Placed::Again(count) => Ok((usize::try_from(count).unwrap_or(0), true)),
        }
    }
}
