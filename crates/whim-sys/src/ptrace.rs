//! ptrace as a type-state: a traced thread is [`Running`] or [`Stopped`], and only a stopped one
//! can be read, changed or let go.
//!
//! Every request must come from the OS thread that seized the tracee: the kernel answers others
//! with ESRCH. Because the types make every other cause of ESRCH impossible, ESRCH means here that
//! the tracee has ended, [`TraceError::Died`]; a wait for the tracee tells how.
//!
//! Dropping a value does nothing: a stopped thread stays stopped until its tracer ends, at which
//! moment the kernel lets it go on.

mod filters;
mod waits;

use crate::crash;
use crate::dead::Patience;
use libc::{c_int, c_uint, c_void};
use nix::errno::Errno;
use std::ops::BitOr;
use std::time::{Duration, Instant};
use thiserror::Error;
use waits::{Glance, glance, wait_raw, waited};
pub use waits::{has_report, poll_child, wait_any, wait_any_gently, wait_any_nonblocking};
use whim_model::Registers;

pub type Tid = i32;

const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: c_uint = 0x420a;
const PTRACE_SETSIGMASK: c_uint = 0x420b;
const PTRACE_PEEKSIGINFO: c_uint = 0x4209;
const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;
const PTRACE_GET_SYSCALL_INFO: c_uint = 0x420e;
const PTRACE_GET_RSEQ_CONFIGURATION: c_uint = 0x420f;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: c_uint = 0x4211;
const PTRACE_EVENT_STOP: c_int = 128;
/// Largest xstate that we accept, in bytes; today's largest (AMX) is 11,008.
pub const XSTATE_MAX: usize = 64 << 10;
/// Signals read by one PTRACE_PEEKSIGINFO.
const PEEK_BATCH: usize = 32;
/// Queued signals that we carry at most; RLIMIT_SIGPENDING is usually some thousands.
const QUEUED_MAX: usize = 65_536;

#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
pub enum TraceError {
    #[error("The traced thread has ended")]
    Died,
    #[error("{call} failed on thread {tid}: {errno}")]
    Os {
        call: &'static str,
        tid: Tid,
        errno: Errno,
    },
    #[error("Thread {tid} has more than {QUEUED_MAX} queued signals")]
    TooManySignals { tid: Tid },
}

const _: () = assert!(size_of::<Registers>() == size_of::<libc::user_regs_struct>());

/// PTRACE_O_* bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options(u32);

impl Options {
    pub const NONE: Self = Self(0);
    pub const SYSGOOD: Self = Self(0x1);
    pub const TRACE_CLONE: Self = Self(0x8);
    pub const TRACE_EXEC: Self = Self(0x10);
    pub const EXITKILL: Self = Self(0x10_0000);
    /// The thread's seccomp filters judge nothing. To ask for it takes CAP_SYS_ADMIN, each time.
    pub const SUSPEND_SECCOMP: Self = Self(0x20_0000);

    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Options {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// PTRACE_EVENT_STOP after PTRACE_INTERRUPT, at the start of an auto-attached thread, or at the
    /// end of a group stop. The thread stands in `get_signal`, before restarts are decided.
    Interrupt,
    /// Group stop, with the signal that caused it.
    Group(i32),
    /// A signal is about to be delivered.
    Signal(i32),
    /// Entry to or exit from a system call (with [`Options::SYSGOOD`]).
    SyscallStop,
    Exec,
    Clone,
    Fork,
    Vfork,
    VforkDone,
    Exit,
    Seccomp,
}

/// What a wait reported of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Stopped(Stop),
    /// It ended by itself, with this exit code.
    Exited(i32),
    /// A signal ended it.
    Signaled {
        signal: i32,
        core: bool,
    },
    /// A child that is not traced was continued, or a status that the kernel does not document.
    Other(i32),
}

impl Status {
    fn from_raw(raw: c_int) -> Self {
        if libc::WIFEXITED(raw) {
            return Self::Exited(libc::WEXITSTATUS(raw));
        }
        if libc::WIFSIGNALED(raw) {
            return Self::Signaled {
                signal: libc::WTERMSIG(raw),
                core: libc::WCOREDUMP(raw),
            };
        }
        if !libc::WIFSTOPPED(raw) {
            return Self::Other(raw);
        }
        let signal = libc::WSTOPSIG(raw);
        Self::Stopped(match raw >> 16 {
            PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupt,
            PTRACE_EVENT_STOP => Stop::Group(signal),
            libc::PTRACE_EVENT_FORK => Stop::Fork,
            libc::PTRACE_EVENT_VFORK => Stop::Vfork,
            libc::PTRACE_EVENT_CLONE => Stop::Clone,
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            libc::PTRACE_EVENT_VFORK_DONE => Stop::VforkDone,
            libc::PTRACE_EVENT_EXIT => Stop::Exit,
            libc::PTRACE_EVENT_SECCOMP => Stop::Seccomp,
            _ if signal == (libc::SIGTRAP | 0x80) => Stop::SyscallStop,
            _ => Stop::Signal(signal),
        })
    }
}

/// Where in a system call a stopped thread is, as PTRACE_GET_SYSCALL_INFO tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not at a system call stop.
    None,
    Entry,
    Exit,
    Seccomp,
}

/// `rseq(2)` registration of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rseq {
    pub address: u64,
    pub length: u32,
    pub signature: u32,
    pub flags: u32,
}

/// One queued signal: the kernel's `siginfo_t` as 128 raw bytes.
pub type RawSigInfo = [u8; 128];

/// The number that stands at this offset of a siginfo; 0 beyond its end.
#[must_use]
pub fn info_word(info: &[u8], at: usize) -> i32 {
    let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_ne_bytes)
}

/// A seized thread that is not known to be stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct Running {
    tid: Tid,
}

/// A stopped thread.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped {
    tid: Tid,
    stop: Stop,
}

/// What a wait for one thread gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited {
    Stopped(Stopped),
    Exited { tid: Tid, code: i32 },
    Signaled { tid: Tid, signal: i32, core: bool },
}

/// The result of a poll, which does not wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing has happened.
    Still(Running),
    Event(Waited),
}

fn request(
    request: c_uint,
    call: &'static str,
    tid: Tid,
    address: usize,
    data: usize,
) -> Result<i64, TraceError> {
    crash::point(call);
    // JUSTIFICATION: std and nix lack most of these requests; one raw entry serves them all.
    // SAFETY: `data` and `address` are plain numbers or point to live objects of the size which
    // the request demands; each caller in this module guarantees it beside its cast.
    let result = unsafe {
        libc::ptrace(
            request,
            tid,
            std::ptr::with_exposed_provenance_mut::<c_void>(address),
            std::ptr::with_exposed_provenance_mut::<c_void>(data),
        )
    };
    let result = if result == -1 {
        match Errno::last() {
            Errno::ESRCH => Err(TraceError::Died),
            errno => Err(TraceError::Os { call, tid, errno }),
        }
    } else {
        Ok(result)
    };
    crash::point(call);
    result
}

impl Running {
    /// Seizes a thread; it goes on running.
    ///
    /// # Errors
    /// [`TraceError::Died`] when there is no such thread; EPERM when it is not ours to trace or traced
    /// already.
    pub fn seize(tid: Tid, options: Options) -> Result<Self, TraceError> {
        request(
            libc::PTRACE_SEIZE,
            "PTRACE_SEIZE",
            tid,
            0,
            options.bits() as usize,
        )?;
        Ok(Self { tid })
    }

    /// Speaks for a thread that the kernel attached by itself (TRACE_CLONE, TRACE_FORK), or whose
    /// events [`wait_any_nonblocking`] reports.
    #[must_use]
    pub fn assume(tid: Tid) -> Self {
        Self { tid }
    }

    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Asks the kernel to stop the thread; any other stop that comes first consumes the request.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn interrupt(&self) -> Result<(), TraceError> {
        request(libc::PTRACE_INTERRUPT, "PTRACE_INTERRUPT", self.tid, 0, 0).map(drop)
    }

    /// Waits for its next event, without a limit.
    ///
    /// It polls again and again, because a wait in the kernel would not end if the process was
    /// killed meanwhile and its other threads had not been waited for.
    ///
    /// # Errors
    /// [`TraceError::Died`] when it is not ours any more.
    pub fn wait(self) -> Result<Waited, TraceError> {
        self.wait_by(Self::poll)
    }

    /// Polls for its next event, without waiting.
    ///
    /// # Errors
    /// [`TraceError::Died`] when it is not ours any more.
    pub fn poll(self) -> Result<Polled, TraceError> {
        let found = wait_raw(self.tid, libc::__WALL | libc::WNOHANG)?;
        Ok(match found.and_then(|(tid, status)| waited(tid, status)) {
            Some(event) => Polled::Event(event),
            None => Polled::Still(self),
        })
    }

    /// As [`poll`](Self::poll), but leaves a signal that is about to be delivered in the kernel's
    /// hands. So if the tracer dies before it resumes the thread, the thread goes on with its
    /// signal.
    ///
    /// To be used where the process survives its tracer. The stop must be answered before the next
    /// [`wait_any`], which would report it again.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_gently(self) -> Result<Polled, TraceError> {
        match glance(self.tid)? {
            Glance::Nothing => Ok(Polled::Still(self)),
            // Trap: a-signal-dies-with-its-tracer
            Glance::Signal(signal) => {
                let stopped = self.into_stopped(Stop::Signal(signal));
                Ok(Polled::Event(Waited::Stopped(stopped)))
            }
            Glance::Other => self.poll(),
        }
    }

    /// As [`wait`](Self::wait), by [`poll_gently`](Self::poll_gently).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_gently(self) -> Result<Waited, TraceError> {
        self.wait_by(Self::poll_gently)
    }

    /// As [`wait_gently`](Self::wait_gently), but no longer than this.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_gently_for(self, limit: Duration) -> Result<Polled, TraceError> {
        let (tid, mut running) = (self.tid, self);
        let (begun, mut patience) = (Instant::now(), Patience::new());
        loop {
            match running.poll_gently()? {
                Polled::Still(still) if begun.elapsed() < limit => running = still,
                polled => return Ok(polled),
            }
            patience.pause(tid);
        }
    }

    fn wait_by(self, poll: fn(Self) -> Result<Polled, TraceError>) -> Result<Waited, TraceError> {
        let (tid, mut running) = (self.tid, self);
        let mut patience = Patience::new();
        loop {
            match poll(running)? {
                Polled::Event(event) => {
                    crate::pulse::advance();
                    return Ok(event);
                }
                Polled::Still(still) => running = still,
            }
            patience.pause(tid);
        }
    }

    /// Takes note of a stop that [`wait_any_nonblocking`] has reported.
    #[must_use]
    pub fn into_stopped(self, stop: Stop) -> Stopped {
        Stopped {
            tid: self.tid,
            stop,
        }
    }
}

impl Stopped {
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop
    }

    fn get<T>(
        &self,
        code: c_uint,
        call: &'static str,
        address: usize,
        out: &mut T,
    ) -> Result<i64, TraceError> {
        let pointer = std::ptr::from_mut(out).expose_provenance();
        request(code, call, self.tid, address, pointer)
    }

    fn put<T>(
        &self,
        code: c_uint,
        call: &'static str,
        address: usize,
        value: &T,
    ) -> Result<(), TraceError> {
        let pointer = std::ptr::from_ref(value).expose_provenance();
        request(code, call, self.tid, address, pointer).map(drop)
    }

    /// # Errors
    /// [`TraceError::Died`].
    pub fn registers(&self) -> Result<Registers, TraceError> {
        let mut registers = Registers::default();
        self.get(libc::PTRACE_GETREGS, "PTRACE_GETREGS", 0, &mut registers)?;
        Ok(registers)
    }

    /// # Errors
    /// [`TraceError::Died`]; EIO for segment or base registers that the kernel refuses.
    pub fn set_registers(&self, registers: &Registers) -> Result<(), TraceError> {
        self.put(libc::PTRACE_SETREGS, "PTRACE_SETREGS", 0, registers)
    }

    /// Floating point and vector state, in the kernel's standard format.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn xstate(&self) -> Result<Vec<u8>, TraceError> {
        let mut bytes = vec![0u8; XSTATE_MAX];
        let mut vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        self.get(
            libc::PTRACE_GETREGSET,
            "PTRACE_GETREGSET",
            NT_X86_XSTATE,
            &mut vector,
        )?;
        bytes.truncate(vector.iov_len);
        Ok(bytes)
    }

    /// # Errors
    /// [`TraceError::Died`]; EFAULT or EINVAL for a state that this CPU does not have.
    pub fn set_xstate(&self, bytes: &[u8]) -> Result<(), TraceError> {
        let mut copy = bytes.to_vec();
        let vector = libc::iovec {
            iov_base: copy.as_mut_ptr().cast(),
            iov_len: copy.len(),
        };
        self.put(
            libc::PTRACE_SETREGSET,
            "PTRACE_SETREGSET",
            NT_X86_XSTATE,
            &vector,
        )
    }

    /// Blocked signals, bit n-1 for signal n; inside sigsuspend, pselect and their kin the mask
    /// that will be restored.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn signal_mask(&self) -> Result<u64, TraceError> {
        let mut mask = 0u64;
        self.get(
            PTRACE_GETSIGMASK,
            "PTRACE_GETSIGMASK",
            size_of::<u64>(),
            &mut mask,
        )?;
        Ok(mask)
    }

    /// # Errors
    /// [`TraceError::Died`].
    pub fn set_signal_mask(&self, mask: u64) -> Result<(), TraceError> {
        self.put(
            PTRACE_SETSIGMASK,
            "PTRACE_SETSIGMASK",
            size_of::<u64>(),
            &mask,
        )
    }

    /// `siginfo_t` of the signal at whose delivery it stopped.
    ///
    /// # Errors
    /// [`TraceError::Died`]; EINVAL at a stop that has none.
    pub fn signal_info(&self) -> Result<RawSigInfo, TraceError> {
        let mut info = [0u8; 128];
        self.get(libc::PTRACE_GETSIGINFO, "PTRACE_GETSIGINFO", 0, &mut info)?;
        Ok(info)
    }

    /// # Errors
    /// [`TraceError::Died`]; EINVAL at a stop that has none.
    pub fn set_signal_info(&self, info: &RawSigInfo) -> Result<(), TraceError> {
        self.put(libc::PTRACE_SETSIGINFO, "PTRACE_SETSIGINFO", 0, info)
    }

    /// Signals queued for the thread, or (`shared`) for its process; they stay queued.
    ///
    /// # Errors
    /// [`TraceError::Died`], [`TraceError::TooManySignals`].
    pub fn queued_signals(&self, shared: bool) -> Result<Vec<RawSigInfo>, TraceError> {
        self.queued_up_to(QUEUED_MAX, shared)
    }

    /// Whether any signal is queued for the thread, or (`shared`) for its process.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn has_queued(&self, shared: bool) -> Result<bool, TraceError> {
        match self.queued_up_to(1, shared) {
            Ok(found) => Ok(!found.is_empty()),
            Err(TraceError::TooManySignals { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn queued_up_to(&self, limit: usize, shared: bool) -> Result<Vec<RawSigInfo>, TraceError> {
        #[repr(C)]
        struct PeekArguments {
            offset: u64,
            flags: u32,
            count: i32,
        }
        let mut found: Vec<RawSigInfo> = Vec::new();
        loop {
            let mut batch = [[0u8; 128]; PEEK_BATCH];
            let arguments = PeekArguments {
                offset: found.len() as u64,
                flags: if shared { PTRACE_PEEKSIGINFO_SHARED } else { 0 },
                count: 32,
            };
            let address = std::ptr::from_ref(&arguments).expose_provenance();
            let got = self.get(
                PTRACE_PEEKSIGINFO,
                "PTRACE_PEEKSIGINFO",
                address,
                &mut batch,
            )?;
            let got = usize::try_from(got).unwrap_or(0).min(PEEK_BATCH);
            found.extend_from_slice(&batch[..got]);
            if found.len() > limit {
                return Err(TraceError::TooManySignals { tid: self.tid });
            }
            if got < PEEK_BATCH {
                return Ok(found);
            }
        }
    }

    /// The rseq registration, if there is one.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn rseq(&self) -> Result<Option<Rseq>, TraceError> {
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            length: u32,
            signature: u32,
            flags: u32,
            padding: u32,
        }
        let mut found = Configuration::default();
        self.get(
            PTRACE_GET_RSEQ_CONFIGURATION,
            "PTRACE_GET_RSEQ_CONFIGURATION",
            size_of::<Configuration>(),
            &mut found,
        )?;
        Ok((found.address != 0).then_some(Rseq {
            address: found.address,
            length: found.length,
            signature: found.signature,
            flags: found.flags,
        }))
    }

    /// Whether syscall user dispatch is on (false on kernels that cannot say, before 6.4).
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn syscall_dispatch_on(&self) -> Result<bool, TraceError> {
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            mode: u64,
            selector: u64,
            offset: u64,
            length: u64,
        }
        let mut found = Configuration::default();
        let answer = self.get(
            PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
            "PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG",
            size_of::<Configuration>(),
            &mut found,
        );
        match answer {
            Ok(_) => Ok(found.mode != 0),
            Err(TraceError::Os { .. }) => Ok(false),
            Err(TraceError::Died) => Err(TraceError::Died),
            Err(other) => Err(other),
        }
    }

    /// Number that came with the event: new tid, exit status.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn event_message(&self) -> Result<u64, TraceError> {
        let mut message = 0u64;
        self.get(
            libc::PTRACE_GETEVENTMSG,
            "PTRACE_GETEVENTMSG",
            0,
            &mut message,
        )?;
        Ok(message)
    }

    /// Whether it stands before or after a system call.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn phase(&self) -> Result<Phase, TraceError> {
        let mut information = [0u64; 16];
        self.get(
            PTRACE_GET_SYSCALL_INFO,
            "PTRACE_GET_SYSCALL_INFO",
            size_of_val(&information),
            &mut information,
        )?;
        Ok(match information[0] & 0xff {
            1 => Phase::Entry,
            2 => Phase::Exit,
            3 => Phase::Seccomp,
            _ => Phase::None,
        })
    }

    /// # Errors
    /// [`TraceError::Died`].
    pub fn set_options(&self, options: Options) -> Result<(), TraceError> {
        request(
            libc::PTRACE_SETOPTIONS,
            "PTRACE_SETOPTIONS",
            self.tid,
            0,
            options.bits() as usize,
        )
        .map(drop)
    }

    /// Asks the kernel to stop it again, in `get_signal`, once it has been resumed.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn interrupt(&self) -> Result<(), TraceError> {
        request(libc::PTRACE_INTERRUPT, "PTRACE_INTERRUPT", self.tid, 0, 0).map(drop)
    }

    fn go(self, code: c_uint, call: &'static str, signal: i32) -> Result<Running, TraceError> {
        let signal = usize::try_from(signal).unwrap_or(0);
        request(code, call, self.tid, 0, signal)?;
        Ok(Running { tid: self.tid })
    }

    /// Lets it run; at a signal-delivery stop with this signal (0 = none).
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn resume(self, signal: i32) -> Result<Running, TraceError> {
        self.go(libc::PTRACE_CONT, "PTRACE_CONT", signal)
    }

    /// Lets it run up to the next entry to or exit from a system call.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn resume_to_syscall(self, signal: i32) -> Result<Running, TraceError> {
        self.go(libc::PTRACE_SYSCALL, "PTRACE_SYSCALL", signal)
    }

    /// Lets it execute one instruction, without the signal that it may have stopped for. The kernel then sends it a
    /// SIGTRAP that cannot be blocked or ignored: if it is, its action is the default one afterwards.
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn step(self) -> Result<Running, TraceError> {
        self.go(libc::PTRACE_SINGLESTEP, "PTRACE_SINGLESTEP", 0)
    }

    /// Leaves it in its group stop but listens for the events that end it.
    ///
    /// # Errors
    /// [`TraceError::Died`]; EIO when it is not in a group stop.
    pub fn listen(self) -> Result<Running, TraceError> {
        self.go(libc::PTRACE_LISTEN, "PTRACE_LISTEN", 0)
    }

    /// Lets it go for good; at a signal-delivery stop with this signal (0 = none).
    ///
    /// # Errors
    /// [`TraceError::Died`].
    pub fn detach(self, signal: i32) -> Result<(), TraceError> {
        self.go(libc::PTRACE_DETACH, "PTRACE_DETACH", signal)
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd::queue_signal;
    use std::process::Command;

    #[test]
    fn queued_signals_are_read_up_to_their_limit() {
        const REAL_TIME: i32 = 40;
        let sleep = Command::new("sleep").arg("60").spawn();
        let mut sleep = sleep.expect("a process");
        let pid = sleep.id().cast_signed();
        let running = Running::seize(pid, Options::NONE).expect("ours to trace");
        running.interrupt().expect("it lives");
        let Ok(Waited::Stopped(stopped)) = running.wait() else {
            panic!("it did not stop");
        };
        let mut info: RawSigInfo = [0; 128];
        info[0..4].copy_from_slice(&REAL_TIME.to_ne_bytes());
        info[8..12].copy_from_slice(&(-1i32).to_ne_bytes());
        let add = || queue_signal(pid, None, REAL_TIME, &info).expect("queued");
        // Whole batches and parts of one.
        let mut queued = 0;
        for limit in [PEEK_BATCH - 1, PEEK_BATCH, PEEK_BATCH + 1, 2 * PEEK_BATCH] {
            (queued..limit).for_each(|_| add());
            let found = stopped
                .queued_up_to(limit, true)
                .expect("as many as may be");
            assert_eq!(found.len(), limit);
            add();
            queued = limit + 1;
            let error = stopped.queued_up_to(limit, true).expect_err("one more");
            assert_eq!(error, TraceError::TooManySignals { tid: pid });
        }
        sleep.kill().expect("it lives");
        sleep.wait().expect("it ended");
    }
}
