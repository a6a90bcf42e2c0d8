//! The seccomp filters of a stopped thread.

use super::{Stopped, TraceError};
use libc::{c_uint, c_void};
use nix::errno::Errno;

const PTRACE_SECCOMP_GET_FILTER: c_uint = 0x420c;
/// The most instructions that the kernel takes as one filter.
const INSTRUCTIONS_MAX: usize = 4096;

impl Stopped {
    /// The filter number `index` of the thread, the oldest first, 8 bytes per instruction; `None` behind the
    /// newest one. It takes CAP_SYS_ADMIN, and a caller without filters.
    ///
    /// # Errors
    /// [`TraceError::Died`]; EMEDIUMTYPE for a filter that the kernel has not kept as it was given.
    pub fn seccomp_filter(&self, index: usize) -> Result<Option<Vec<u64>>, TraceError> {
        let mut program = vec![0u64; INSTRUCTIONS_MAX];
        // JUSTIFICATION: the kernel's interface is ptrace.
        // SAFETY: the kernel writes no more instructions, of 8 bytes each, than a filter has, and it takes no
        // longer ones than `program` has room for.
        let result = unsafe {
            libc::ptrace(
                PTRACE_SECCOMP_GET_FILTER,
                self.tid(),
                index as *mut c_void,
                program.as_mut_ptr().cast::<c_void>(),
            )
        };
        match Errno::result(result) {
            Ok(length) => {
                program.truncate(usize::try_from(length).unwrap_or(0));
                Ok(Some(program))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(Errno::ESRCH) => Err(TraceError::Died),
            Err(errno) => Err(TraceError::Os {
                call: "PTRACE_SECCOMP_GET_FILTER",
                tid: self.tid(),
                errno,
            }),
        }
    }
}
