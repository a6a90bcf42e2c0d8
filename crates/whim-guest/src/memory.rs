//! The guest's memory, as the resolver of calls sees it.

use crate::pager::Shared;
use nix::errno::Errno;
use std::cell::RefCell;
use std::sync::Arc;
use whim_calls::GuestMemory;
use whim_image::maps::FlagTable;
use whim_model::{
    MADV_GUARD_INSTALL, MemoryPolicy, PAGE_SIZE, ProcessImage, Range, Remark, Syscall,
};
use whim_sys::cpu;
use whim_sys::pagemap::Pagemap;
use whim_sys::process_vm::{self, MemFile};
use whim_sys::procmap::{Maps, ProcmapError};

/// The most room, in bytes, that memory which grows downwards has below it.
pub(crate) const STACK_ROOM: u64 = whim_image::rebuild::STACK_ROOM;

/// What of an image grows downwards.
pub(crate) fn growing(image: &ProcessImage) -> Vec<Range> {
    let mappings = image.mappings.iter();
    let growing = mappings.filter(|mapping| mapping.flags.grows_down);
    growing
        .map(|mapping| Range {
            start: mapping.start,
            end: mapping.end,
        })
        .collect()
}

/// Whether one of these remarks is a policy by which memory is bound to nodes of the machine.
pub(crate) fn binds(remarks: &[Remark]) -> bool {
    let none = MemoryPolicy::default();
    remarks.iter().any(|remark| remark.policy != none)
}

/// How guard pages are found.
#[derive(Debug)]
enum Guards {
    Told(Pagemap),
    /// Before Linux 6.15 nobody tells where they are.
    Tried,
}

/// Memory of one guest. It does not wait for pages that have not come from home yet. It notes them,
/// and the caller tries again when they are here.
#[derive(Debug)]
pub(crate) struct Memory {
    pid: i32,
    maps: Maps,
    shared: Arc<Shared>,
    /// As in [`crate::guest::Origin`].
    growing: Vec<Range>,
    needed: RefCell<Vec<Range>>,
    /// Only a guest that may have guard pages pays for the look at each buffer.
    guards: Option<Guards>,
}

impl Memory {
    /// # Errors
    /// The guest is gone.
    pub(crate) fn new(
        pid: i32,
        shared: Arc<Shared>,
        growing: Vec<Range>,
    ) -> Result<Self, ProcmapError> {
        Ok(Self {
            pid,
            maps: Maps::open(pid)?,
            shared,
            growing,
            needed: RefCell::new(Vec::new()),
            guards: None,
        })
    }

    /// Notes a call that runs here, if it makes guard pages. All of these are reported.
    pub(crate) fn note(&mut self, call: &Syscall) {
        let installs = call.args[2] & 0xffff_ffff == u64::from(MADV_GUARD_INSTALL);
        if installs && whim_calls::effect(call.number) == whim_calls::Effect::Advises {
            self.has_guards();
        }
    }

    /// From now on the guest may have guard pages, which its mappings do not show.
    pub(crate) fn has_guards(&mut self) {
        if self.guards.is_some() {
            return;
        }
        let told = Pagemap::open(self.pid).ok().and_then(|mut pages| {
            let tells = pages.only_guards();
            tells.then_some(pages)
        });
        self.guards = Some(told.map_or(Guards::Tried, Guards::Told));
    }

    fn meets_guard(&self, guards: &Guards, start: u64, end: u64) -> bool {
        match guards {
            Guards::Told(pages) => !pages.runs(start, end).is_ok_and(|runs| runs.is_empty()),
            // A page that has still to come is no guard yet, and is looked at when it is here.
            Guards::Tried if !self.is_here(start, end - start) => false,
            Guards::Tried => (start..end).step_by(4096).any(|page| !self.opens(page)),
        }
    }

    /// Whether the kernel finds memory in a page that is mapped.
    fn opens(&self, page: u64) -> bool {
        let forced = |end| self.force(end, page, &mut [0], 0) == 1;
        process_vm::read(self.pid, page, &mut [0]) == Ok(1)
            || self.unread_until(page).is_some_and(forced)
    }

    /// Whether the kernel would let the guest touch all pages of a range that is mapped. Of pages that have not
    /// come yet nothing is known: they are noted, so that who asks waits for them, and asks again.
    fn is_accessible(&self, address: u64, length: u64) -> bool {
        let start = address & !(PAGE_SIZE - 1);
        let end = address.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(end);
        // Trap: a-buffer-in-a-guard-page
        let guards = self.guards.as_ref();
        if guards.is_some_and(|guards| self.meets_guard(guards, start, end)) {
            return false;
        }
        // Trap: a-buffer-behind-the-end-of-a-file
        let behind_end = self.pages_behind_end(address, length);
        // The program may have dropped such a page since, and then it is looked for anew.
        behind_end.iter().all(|page| self.opens(*page))
    }

    /// The pages of a range that are behind the end of their file. Those that have not come are noted, of the same
    /// moment: what is missing now may be known to be behind the end a moment later.
    fn pages_behind_end(&self, address: u64, length: u64) -> Vec<u64> {
        let table = self.shared.table();
        let missing = table.missing(address, length);
        self.needed.borrow_mut().extend(missing);
        table.behind_end(address, length)
    }

    /// Returns the pages that have been found missing since the last call.
    pub(crate) fn take_needed(&self) -> Vec<Range> {
        self.needed.take()
    }

    /// Notes the pages of a range that are missing; returns false if there are any.
    pub(crate) fn is_here(&self, address: u64, length: u64) -> bool {
        let missing = self.shared.table().missing(address, length);
        let here = missing.is_empty();
        self.needed.borrow_mut().extend(missing);
        here
    }

    /// Whether a page of the range was behind the end of its file when it was asked for.
    pub(crate) fn has_behind_end(&self, address: u64, length: u64) -> bool {
        !self.shared.table().behind_end(address, length).is_empty()
    }

    /// Notes the missing pages of the memory that the kernel may touch for a call which runs here,
    /// if the kernel's own page faults cannot be served.
    pub(crate) fn prepare(&self, call: &Syscall) {
        if self.shared.uffd.is_user_mode_only() {
            for (address, length) in whim_calls::touched(call, self) {
                self.is_here(address, length);
            }
        }
    }

    /// The end of a mapping that may be written or executed and not read, if one contains this address. The
    /// processor knows no such thing, without protection keys, and so a call that reads it succeeds; reading
    /// it from outside is refused. With them, the kernel takes a key for memory that is only executed, but not where
    /// its right was asked for with others that mean nothing.
    fn unread_until(&self, address: u64) -> Option<u64> {
        let entry = self.maps.covering_or_next(address).ok()??;
        let within = entry.start <= address && !entry.readable;
        let range = Range {
            start: entry.start,
            end: entry.end,
        };
        let reads = || entry.writable || entry.executable && !self.has_key(range);
        (within && reads()).then_some(entry.end)
    }

    fn has_key(&self, mapping: Range) -> bool {
        cpu::has_protection_keys()
            && FlagTable::read(self.pid).is_ok_and(|table| table.of(mapping).protection_key != 0)
    }

    /// Reads on from where `read` bytes of the buffer at `address` have been read, up to `end`.
    fn force(&self, end: u64, address: u64, buffer: &mut [u8], read: usize) -> usize {
        let from = address + read as u64;
        let most = usize::try_from(end - from).unwrap_or(usize::MAX);
        let rest = &mut buffer[read..];
        let length = rest.len().min(most);
        let file = MemFile::open(self.pid);
        let got = file.and_then(|file| file.read(from, &mut rest[..length]));
        got.unwrap_or(0)
    }

    /// # Errors
    /// EFAULT where nothing writable is mapped.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        process_vm::write_exact(self.pid, address, bytes)
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let missing = self.shared.table().missing(address, buffer.len() as u64);
        let mut length = buffer.len();
        if let Some(first) = missing.first() {
            let before = first.start.saturating_sub(address);
            length = usize::try_from(before).unwrap_or(length).min(length);
            self.needed.borrow_mut().extend(missing);
        }
        if length == 0 {
            return 0;
        }
        let buffer = &mut buffer[..length];
        let mut read = process_vm::read(self.pid, address, buffer).unwrap_or(0);
        while read < buffer.len()
            && let Some(end) = self.unread_until(address + read as u64)
        {
            let forced = self.force(end, address, buffer, read);
            if forced == 0 {
                break;
            }
            read += forced;
            // What comes behind it may be read again.
            let rest = &mut buffer[read..];
            read += process_vm::read(self.pid, address + read as u64, rest).unwrap_or(0);
        }
        read
    }

    fn has_file(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length);
        let range = Range {
            start: address,
            end,
        };
        self.shared.table().overlapping(range).next().is_some()
    }

    fn is_file(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length).next_multiple_of(PAGE_SIZE);
        let range = Range {
            start: address,
            end,
        };
        let mut at = address;
        for piece in self.shared.table().overlapping(range) {
            if piece.start != at {
                return false;
            }
            at = piece.end;
        }
        at == end
    }

    fn is_run(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length).next_multiple_of(PAGE_SIZE);
        let range = Range {
            start: address,
            end,
        };
        self.shared.table().seams(range) == Some(0)
    }

    fn is_one(&self, address: u64, length: u64) -> bool {
        let entry = self.maps.covering_or_next(address).ok().flatten();
        entry.is_some_and(|entry| entry.start <= address && entry.end - address >= length)
    }

    fn forbids(&self, address: u64, length: u64, protection: u32) -> bool {
        let wants = |right: i32| protection & right.cast_unsigned() != 0;
        let range = Range {
            start: address,
            end: address.saturating_add(length),
        };
        let table = self.shared.table();
        table.overlapping(range).any(|piece| {
            let (never_write, never_execute) = table.restrictions(piece.mapping);
            wants(libc::PROT_WRITE) && never_write || wants(libc::PROT_EXEC) && never_execute
        })
    }

    fn is_room(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length.max(1));
        let has_room = |came: &&Range| {
            let below = address < came.start && came.start - address <= STACK_ROOM;
            below
                && self.maps.covering_or_next(came.start).is_ok_and(|entry| {
                    entry.is_some_and(|entry| entry.start < came.start && end > entry.start)
                })
        };
        // What of it was used is the program's.
        self.growing.iter().filter(has_room).any(|came| {
            let used = Pagemap::open(self.pid).and_then(|pages| pages.runs(address, came.start));
            used.is_ok_and(|runs| runs.first().is_none_or(|first| first.start > address))
        })
    }

    fn writable(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else {
            return false;
        };
        let mut at = address;
        while at < end {
            match self.maps.covering_or_next(at) {
                Ok(Some(entry)) if entry.start <= at && entry.writable => at = entry.end,
                _ => return false,
            }
        }
        self.is_accessible(address, length)
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::pager::Shared;
    use crate::table::{PageSource, Piece};
    use std::sync::Arc;
    use whim_calls::GuestMemory;
    use whim_model::{MappingId, PAGE_SIZE, Range};
    use whim_sys::uffd::Uffd;

    /// Whether a buffer is one is not decided on what is not known of it: who asks is told to wait for its pages.
    #[test]
    fn a_buffer_of_which_nothing_is_known_is_waited_for() {
        const PAGE: usize = 4096;
        let shared = Shared::new(Uffd::create(true, 0).expect("a userfaultfd")).expect("made");
        let here = vec![0u8; 3 * PAGE];
        let start = (here.as_ptr().addr() as u64).next_multiple_of(PAGE_SIZE);
        let range = Range {
            start,
            end: start + PAGE_SIZE,
        };
        let piece = Piece {
            start,
            end: range.end,
            mapping: MappingId(1),
            offset: 0,
        };
        shared.table().insert(piece);
        let own = std::process::id().cast_signed();
        let memory = Memory::new(own, Arc::clone(&shared), Vec::new()).expect("it lives");
        assert!(memory.writable(start + 9, 1), "as far as is known");
        assert_eq!(memory.take_needed(), [range]);
        shared
            .table()
            .note(piece.page(start), PageSource::Fetched(0));
        assert!(memory.writable(start + 9, 1));
        assert_eq!(memory.take_needed(), []);
    }
}
