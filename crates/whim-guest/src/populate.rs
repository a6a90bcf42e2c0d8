//! `madvise` that has pages made at once (MADV_POPULATE_READ, MADV_POPULATE_WRITE), in a mapping of a file.
//!
//! Behind the end of the file the kernel answers with EFAULT at home. Here such a page is one that was declared
//! broken, and the answer would be EHWPOISON.

use crate::error::GuestError;
use crate::guest::Guest;
use crate::memory::Memory;
use whim_model::{PAGE_SIZE, Syscall};

const POPULATE_READ: u32 = libc::MADV_POPULATE_READ.cast_unsigned();
const POPULATE_WRITE: u32 = libc::MADV_POPULATE_WRITE.cast_unsigned();
/// Pages are asked of home in pieces of this length at least, the first ones first, because nothing behind the
/// end of a file is wanted.
const STEP: u64 = 1 << 20;
/// In so many pieces at most.
const STEPS: u64 = 16;

/// The range, if it is such a call.
fn populated(call: &Syscall) -> Option<(u64, u64)> {
    let [address, length, advice, ..] = call.args;
    let known = [POPULATE_READ, POPULATE_WRITE].map(u64::from);
    let populates = known.contains(&(advice & 0xffff_ffff));
    let is_sound = address.is_multiple_of(PAGE_SIZE) && address.checked_add(length).is_some();
    // Every reported call is asked, so its row is looked up last.
    let advises = || whim_calls::effect(call.number) == whim_calls::Effect::Advises;
    (populates && is_sound && length > 0 && advises()).then_some((address, length))
}

impl Memory {
    /// Notes missing pages that the call would fetch, so that it is known before it runs whether it meets the end
    /// of a file.
    pub(crate) fn prepare_to_populate(&self, call: &Syscall) {
        let Some((address, length)) = populated(call) else {
            return;
        };
        let step = (length / STEPS).next_multiple_of(PAGE_SIZE).max(STEP);
        for at in (address..address + length).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let part = step.min(address + length - at);
            if self.has_behind_end(at, part) || !self.is_here(at, part) {
                return;
            }
        }
    }

    /// Whether the call is such a one, and meets the end of a file.
    pub(crate) fn meets_end(&self, call: &Syscall) -> bool {
        populated(call).is_some_and(|(address, length)| self.has_behind_end(address, length))
    }
}

impl Guest {
    /// Runs such a call, and tells what home would.
    pub(crate) fn populate(&mut self, host_tid: i32, call: &Syscall) -> Result<(), GuestError> {
        let stopped = self.take_out(host_tid)?;
        let operation = Syscall::new(libc::SYS_madvise, &call.args);
        let (stopped, result) = self.inject(stopped, &operation)?;
        let result = if result == -i64::from(libc::EHWPOISON) {
            -i64::from(libc::EFAULT)
        } else {
            result
        };
        self.go_on_with(host_tid, stopped, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sound_call_of_that_kind_is_one() {
        let call = |args: [u64; 3]| Syscall::new(libc::SYS_madvise, &args);
        for advice in [22, 23, 22 | 1 << 32] {
            assert_eq!(populated(&call([4096, 9, advice])), Some((4096, 9)));
        }
        for args in [
            [4096, 9, 21],
            [4097, 9, 22],
            [4096, 0, 22],
            [4096, u64::MAX, 22],
        ] {
            assert_eq!(populated(&call(args)), None, "{args:?}");
        }
        assert_eq!(
            populated(&Syscall::new(libc::SYS_mlock, &[4096, 9, 22])),
            None
        );
    }
}
