//! What the guest asks for beside calls: files to be mapped, dispositions, new threads, and ends of
//! threads and of the process.

use super::{
    Caller, EAGAIN, ENOMEM, HANDLER_STAND_IN, Outgoing, RESTART_UNLESS_HANDLED, ServeError, Server,
    dropping,
};
use crate::numbers::OwnTid;
use nix::sys::statvfs::FsFlags;
use whim_journey::message::{Disposition, MAPPED_WITHOUT_EXECUTION, ToGuest};
use whim_journey::turn::Request;
use whim_model::Syscall;
use whim_model::{MappingId, PAGE_SIZE, Protection};

/// `mmap` of a file, as the guest asked for it.
#[derive(Clone, Debug)]
pub struct FileMapping {
    pub tid: i32,
    pub sequence: u64,
    pub length: u64,
    pub protection: u32,
    pub flags: u32,
    pub fd: i32,
    pub offset: u64,
}

impl Server {
    /// Maps a file into the attic for the guest.
    ///
    /// # Errors
    /// The deputy is lost.
    pub fn map_file(&mut self, call: &FileMapping) -> Result<(), ServeError> {
        let sequence = call.sequence;
        let Some(seat) = self.judge_request(call.tid, Request::Other { sequence })? else {
            return Ok(());
        };
        // Trap: memory-that-is-no-file-s
        if self.is_special(seat, call.fd)? {
            // The program comes home, and makes the call there.
            self.answer(call.tid, sequence, RESTART_UNLESS_HANDLED);
            return Ok(());
        }
        let protection = Protection(u8::try_from(call.protection & 7).unwrap_or(0));
        // A host may name any length.
        let length = call.length.checked_next_multiple_of(PAGE_SIZE);
        let place = length.and_then(|length| self.attic.prepare(length, protection));
        let Some((id, address)) = place else {
            self.answer(call.tid, call.sequence, ENOMEM);
            return Ok(());
        };
        // These the kernel refuses for most files, and nobody else knows for which.
        let asked = call.flags.cast_signed() & (libc::MAP_GROWSDOWN | libc::MAP_SYNC);
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | asked;
        let operation = Syscall::new(
            libc::SYS_mmap,
            &[
                address,
                call.length,
                u64::from(call.protection),
                u64::from(flags.cast_unsigned()),
                i64::from(call.fd).cast_unsigned(),
                call.offset,
            ],
        );
        let result = self.deputy.run(seat, &[operation])?[0];
        let mapping = if (-4095..0).contains(&result) {
            self.attic.withdraw(id);
            None
        } else {
            self.mapped = Some((id, call.fd));
            Some(id)
        };
        let result = match mapping {
            Some(_) if self.is_without_programs(call.fd) => MAPPED_WITHOUT_EXECUTION,
            Some(_) => 0,
            None => result,
        };
        self.answer_with_mapping(call.tid, call.sequence, result, mapping);
        Ok(())
    }

    /// Whether a file of the program is on a file system whose files are not executed (`noexec`).
    fn is_without_programs(&self, fd: i32) -> bool {
        let file = format!("/proc/{}/fd/{fd}", self.deputy.pid());
        let about = nix::sys::statvfs::statvfs(file.as_str());
        about.is_ok_and(|about| about.flags().contains(FsFlags::ST_NOEXEC))
    }

    /// The answer to a request for a file mapping.
    pub(super) fn answer_with_mapping(
        &mut self,
        tid: i32,
        sequence: u64,
        result: i64,
        mapping: Option<MappingId>,
    ) {
        let message = ToGuest::Reply {
            tid,
            sequence,
            result,
            outputs: Vec::new(),
            mapping,
        };
        self.outgoing.push(Outgoing {
            message,
            tail: Vec::new(),
        });
    }

    /// Tells home's kernel what the guest does with a signal. By this the kernel decides whether
    /// children are reaped by themselves, whether a write to a closed pipe kills, and the like.
    ///
    /// # Errors
    /// The deputy is lost.
    pub fn disposition(
        &mut self,
        tid: i32,
        sequence: u64,
        signal: u8,
        disposition: Disposition,
        flags: u64,
    ) -> Result<(), ServeError> {
        let Some(seat) = self.judge_request(tid, Request::Other { sequence })? else {
            return Ok(());
        };
        // The resident loop depends on SIGTRAP (docs/traps.md, `trap-resets-its-action`).
        let result = if i32::from(signal) == libc::SIGTRAP {
            0
        } else {
            self.set_disposition(seat, signal, disposition, flags)?
        };
        self.answer(tid, sequence, result);
        Ok(())
    }

    /// As [`disposition`](Self::disposition), without an answer.
    ///
    /// # Errors
    /// The deputy is lost.
    pub fn set_disposition(
        &mut self,
        seat: usize,
        signal: u8,
        disposition: Disposition,
        flags: u64,
    ) -> Result<i64, ServeError> {
        let kept = (libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT).cast_unsigned();
        let handler = match disposition {
            Disposition::Default => 0,
            // Trap: home-reaps-as-if-nobody-had-said
            Disposition::Ignore => 1,
            Disposition::Caught => HANDLER_STAND_IN,
        };
        let mut action = [0u8; 32];
        action[0..8].copy_from_slice(&u64::to_le_bytes(handler));
        action[8..16].copy_from_slice(&u64::to_le_bytes(flags & u64::from(kept)));
        self.deputy.deck().write_data(0, &action);
        let data = self.deputy.address(self.deputy.deck().data_offset());
        let operation = Syscall::new(libc::SYS_rt_sigaction, &[u64::from(signal), data, 0, 8]);
        Ok(self.deputy.run(seat, &[operation])?[0])
    }

    /// Makes the deputy's half of a thread that the guest makes. Each half's own kernel sees to what
    /// concerns its memory: numbers that are written, thread-local storage, the stack.
    ///
    /// # Errors
    /// An unknown thread, or the loss of the deputy.
    pub fn new_thread(&mut self, tid: i32, sequence: u64, flags: u64) -> Result<(), ServeError> {
        let Some(seat) = self.judge_request(tid, Request::Other { sequence })? else {
            return Ok(());
        };
        let shares_undo = flags & u64::from(libc::CLONE_SYSVSEM.cast_unsigned()) != 0;
        let made = self.deputy.add_thread(seat, shares_undo)?;
        if let Ok(new) = made.and_then(|new| self.deputy.seat_of(new).ok_or(EAGAIN)) {
            if new == self.callers.len() {
                self.callers.push(Caller::default());
            } else {
                self.callers[new] = Caller::default();
            }
        }
        let number = |own: OwnTid| i64::from(own.number());
        self.answer(tid, sequence, made.map_or_else(|errno| errno, number));
        Ok(())
    }

    /// The guest's thread has ended; its deputy thread follows.
    ///
    /// # Errors
    /// An unknown thread.
    pub fn thread_exit(&mut self, tid: i32, sequence: u64, code: i32) -> Result<(), ServeError> {
        let Some(seat) = self.judge_request(tid, Request::Other { sequence })? else {
            return Ok(());
        };
        let drops = self.window.forget(seat);
        let drops: Vec<Syscall> = drops.into_iter().map(dropping).collect();
        self.deputy.run(seat, &drops)?;
        self.deputy.end_thread(seat, code)?;
        self.answer(tid, sequence, 0);
        Ok(())
    }

    /// The process ends, and the deputy ends with it, with the same status.
    ///
    /// # Errors
    /// An unknown thread.
    pub fn process_exit(&mut self, tid: i32, code: i32) -> Result<(), ServeError> {
        let seat = self.seat(tid)?;
        let operation = Syscall::new(libc::SYS_exit_group, &[i64::from(code).cast_unsigned()]);
        self.deputy.start(seat, &[operation], 0);
        Ok(())
    }
}
