//! The attic at work: pages that the guest asks for, mappings of files that become longer, and those
//! that it gives back.

use super::{EFAULT, EINVAL, ENOMEM, ServeError, Server};
use nix::errno::Errno;
use whim_image::mapping::flag;
use whim_journey::message::{MessageError, PAGE_REQUEST_MAX, PageRequest, RELEASED_MAX};
use whim_journey::turn::Request;
use whim_model::{MappingId, PAGE_SIZE, Syscall};
use whim_sys::process_vm;

/// `mremap` of a file mapping, as the guest asked for it: see `ToHome::RemapFile`.
#[derive(Clone, Debug)]
pub struct FileRemapping {
    pub tid: i32,
    pub sequence: u64,
    pub mapping: MappingId,
    pub offset: u64,
    pub length: u64,
    pub new_length: u64,
    pub ends: (MappingId, u64, u64),
}

impl FileRemapping {
    fn is_sound(&self) -> bool {
        let (_, last, apart) = self.ends;
        let all = self.offset | self.length | self.new_length | last | apart;
        all.is_multiple_of(PAGE_SIZE) && self.length > 0 && self.length <= self.new_length
    }
}

impl Server {
    /// Makes one more mapping of a file in the attic, from a place of another one on.
    ///
    /// # Errors
    /// The deputy is lost.
    pub fn remap_file(&mut self, call: &FileRemapping) -> Result<(), ServeError> {
        let sequence = call.sequence;
        let Some(seat) = self.judge_request(call.tid, Request::Other { sequence })? else {
            return Ok(());
        };
        let (result, mapping) = match self.make_more(seat, call)? {
            Ok(id) => (0, Some(id)),
            Err(errno) => (errno, None),
        };
        self.answer_with_mapping(call.tid, call.sequence, result, mapping);
        Ok(())
    }

    fn make_more(
        &mut self,
        seat: usize,
        call: &FileRemapping,
    ) -> Result<Result<MappingId, i64>, ServeError> {
        if !call.is_sound() {
            return Ok(Err(EINVAL));
        }
        let begins = (call.mapping, call.offset);
        let (last, further, apart) = call.ends;
        let from = self.attic.locate(call.mapping, call.offset, call.length);
        // Trap: two-mappings-are-taken-for-one
        let is_one = self.attic.are_one(begins, (last, further), apart);
        let Some(from) = from.filter(|_| is_one) else {
            return Ok(Err(EFAULT));
        };
        let Some((id, to)) = self.attic.prepare_more(begins, call.new_length) else {
            return Ok(Err(ENOMEM));
        };
        // A copy of the mapping: nothing is in memory of it but the file.
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let length = call.length;
        let copy = Syscall::new(libc::SYS_mremap, &[from, length, length, flag(how), to]);
        let mut result = self.deputy.run(seat, &[copy])?[0];
        if result >= 0 && call.new_length > length {
            let longer = Syscall::new(libc::SYS_mremap, &[to, length, call.new_length, 0, 0]);
            result = self.deputy.run(seat, &[longer])?[0];
            if result < 0 {
                let unmap = Syscall::new(libc::SYS_munmap, &[to, length]);
                self.deputy.run(seat, &[unmap])?;
            }
        }
        if result < 0 {
            self.attic.withdraw(id);
            return Ok(Err(result));
        }
        Ok(Ok(id))
    }

    /// Notes what the guest does not show any more, to be unmapped by the thread that asks next.
    ///
    /// # Errors
    /// They are too many.
    pub fn give_back(&mut self, mappings: Vec<MappingId>) -> Result<(), ServeError> {
        if mappings.len() > RELEASED_MAX {
            return Err(MessageError::TooManyReleased(mappings.len()).into());
        }
        let known = mappings.into_iter().filter(|id| self.attic.has(*id));
        self.given_back.extend(known);
        Ok(())
    }

    /// Unmaps what was given back.
    pub(super) fn release_given_back(&mut self, seat: usize) -> Result<(), ServeError> {
        let given_back = std::mem::take(&mut self.given_back).into_iter();
        let gone = given_back.filter_map(|id| self.attic.withdraw(id));
        let unmaps: Vec<Syscall> = gone
            .map(|kept| Syscall::new(libc::SYS_munmap, &[kept.address, kept.length]))
            .collect();
        if !unmaps.is_empty() {
            self.deputy.run(seat, &unmaps)?;
        }
        Ok(())
    }

    /// Reads pages of the attic. The error is the errno that the guest has to be told.
    pub fn pages(&mut self, request: PageRequest) -> Result<Vec<u8>, Errno> {
        if request.length > PAGE_REQUEST_MAX {
            return Err(Errno::EINVAL);
        }
        let address = self
            .attic
            .locate(request.mapping, request.offset, u64::from(request.length))
            .ok_or(Errno::EFAULT)?;
        self.attic.note_asked(request.mapping);
        let mut bytes = vec![0; request.length as usize];
        let got = self.read(address, &mut bytes);
        if got == 0 {
            return Err(Errno::EFAULT);
        }
        bytes.truncate(got);
        Ok(bytes)
    }

    /// How many bytes of the attic could be read: fewer where the file ends.
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let got = process_vm::read(self.deputy.pid(), address, bytes).unwrap_or(0);
        if got == bytes.len() {
            return got;
        }
        // Not readable by its protection, or beyond the end of the file.
        let more = process_vm::MemFile::open(self.deputy.pid())
            .and_then(|file| file.read(address + got as u64, &mut bytes[got..]));
        got + more.unwrap_or(0)
    }

    /// How many bytes of a mapping its file has, in whole pages. The mapping itself tells, whatever
    /// has become of the file's name.
    #[must_use]
    pub fn backed(&self, mapping: MappingId) -> u64 {
        let Some(kept) = self.attic.get(mapping) else {
            return 0;
        };
        let has = |page: u64| self.read(kept.address + page * PAGE_SIZE, &mut [0]) == 1;
        let (mut least, mut most) = (0, kept.length / PAGE_SIZE);
        if most > 0 && has(most - 1) {
            return kept.length;
        }
        while least < most {
            let middle = least + (most - least) / 2;
            if has(middle) {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least * PAGE_SIZE
    }
}
