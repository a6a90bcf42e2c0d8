//! `mremap` that shows more of a file than before: a mapping becomes longer, or leaves a fresh one of
//! the same file where it was (MREMAP_DONTUNMAP).
//!
//! Home makes one more mapping of the file first, of the length that the range is to have. The kernel
//! here then does to the memory what the program asks for, and what is new shows that mapping: pages
//! that the program had in the old one must not show there.

use crate::calls::show;
use crate::error::GuestError;
use crate::guest::{Guest, Kind};
use crate::reply::Reply;
use crate::table::Piece;
use whim_journey::message::ToHome;
use whim_model::{MappingId, PAGE_SIZE, Range, Syscall};
use whim_sys::seccomp::Response;

const MREMAP_DONTUNMAP: u64 = 4;
const SEVERAL: &str = "it moves several mappings at once";

impl Guest {
    /// A thread asks for such a change.
    pub(crate) fn remap_file(&mut self, host_tid: i32, call: &Syscall) -> Result<(), GuestError> {
        let new = call.args[2];
        let range = from(call);
        let (pieces, seams) = {
            let table = self.shared.table();
            let pieces: Vec<Piece> = table.overlapping(range).collect();
            (pieces, table.seams(range))
        };
        // Home looks at both ends. What is between them has to be of one of these.
        let (Some(first), Some(last), Some(0 | 1)) = (pieces.first(), pieces.last(), seams) else {
            self.go_home(host_tid, SEVERAL);
            return Ok(());
        };
        if let Some((tid, sequence)) = self.waits(host_tid, Kind::RemapFile) {
            self.tell_released();
            self.say(ToHome::RemapFile {
                tid,
                sequence,
                mapping: first.mapping,
                offset: first.offset,
                length: first.end - first.start,
                new_length: new.next_multiple_of(PAGE_SIZE),
                ends: (last.mapping, last.offset, last.start - first.start),
            });
        }
        Ok(())
    }

    /// Home has made its mapping, or refuses to.
    pub(crate) fn remapped(
        &mut self,
        host_tid: i32,
        call: &Syscall,
        reply: &Reply,
    ) -> Result<(), GuestError> {
        let Some(mapping) = reply.mapping else {
            let result = reply.result.min(-1);
            if result == -i64::from(libc::EFAULT) {
                // For home these are several mappings. What its kernel does with them depends on its version.
                self.go_home(host_tid, SEVERAL);
                return Ok(());
            }
            return self.respond(host_tid, Response::Result(result));
        };
        self.note_longer(call.args[0], mapping);
        let stopped = self.take_out(host_tid)?;
        // Another thread may touch the new part before it is noted.
        // Trap: a-fault-before-its-piece
        self.shared.table().begin_move(from(call));
        let done = self.inject(stopped, &Syscall::new(libc::SYS_mremap, &call.args));
        let noted = match &done {
            Ok((_, result)) => self.note_move(call, *result, mapping),
            Err(_) => Ok(()),
        };
        self.shared.changed();
        noted?;
        let (stopped, result) = done?;
        self.go_on_with(host_tid, stopped, result)
    }

    /// Home's new mapping begins with what is at this address.
    fn note_longer(&self, address: u64, mapping: MappingId) {
        let mut table = self.shared.table();
        if let Some(first) = table.at(address) {
            let begins = (first.mapping, first.offset + (address - first.start));
            table.note_longer(mapping, begins);
        }
    }

    /// Notes where the range is now, and the new mapping. The kernel may have moved the range to a place of which
    /// another thread has not told yet that it has unmapped it, so all of that is waited for. (Dead end: to take a
    /// place for it first counts twice against the limit of the address space, for which another thread is
    /// refused memory.)
    fn note_move(&self, call: &Syscall, result: i64, mapping: MappingId) -> Result<(), GuestError> {
        let [address, old, new, how, ..] = call.args;
        let (old, new) = (
            old.next_multiple_of(PAGE_SIZE),
            new.next_multiple_of(PAGE_SIZE),
        );
        let Some(start) = u64::try_from(result).ok() else {
            self.shared.table().release(mapping);
            return Ok(());
        };
        self.shared.settled().relocate(address, start, old);
        let piece = if how & MREMAP_DONTUNMAP != 0 {
            Piece {
                start: address,
                end: address + old,
                mapping,
                offset: 0,
            }
        } else {
            Piece {
                start: start + old,
                end: start + new,
                mapping,
                offset: old,
            }
        };
        show(&self.shared, piece)
    }
}

/// What the call names to be moved or made longer.
fn from(call: &Syscall) -> Range {
    let [start, old, ..] = call.args;
    Range {
        start,
        end: start.saturating_add(old.next_multiple_of(PAGE_SIZE)),
    }
}
