//! The guest's memory, as the resolver of calls sees it.

use crate::mappings::STACK_ROOM;
use crate::pager::Shared;
use nix::errno::Errno;
use std::cell::RefCell;
use std::sync::Arc;
use whim_calls::GuestMemory;
use whim_model::Syscall;
use whim_model::{PAGE_SIZE, Range};
use whim_sys::cpu;
use whim_sys::pagemap::Pagemap;
use whim_sys::process_vm::{self, MemFile};
use whim_sys::procmap::{Maps, ProcmapError};

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
        })
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
    /// it from outside is refused.
    fn unread_until(&self, address: u64) -> Option<u64> {
        let entry = self.maps.covering_or_next(address).ok()??;
        let reads = entry.writable || entry.executable && !cpu::has_protection_keys();
        let within = entry.start <= address && reads && !entry.readable;
        within.then_some(entry.end)
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
        let read = process_vm::read(self.pid, address, buffer).unwrap_or(0);
        if read < buffer.len()
            && let Some(end) = self.unread_until(address + read as u64)
        {
            return read + self.force(end, address, buffer, read);
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
        true
    }
}
