//! Lets threads of a traced process execute system calls: a whole list between two stops.

use super::stub::{ARGUMENTS_OFFSET, DATA_LENGTH, OPERATION_LENGTH, Place, encode};
use nix::errno::Errno;
use thiserror::Error;
use whim_model::Registers;
use whim_model::Syscall;
use whim_sys::process_vm;
use whim_sys::ptrace::{Running, Stop, Stopped, TraceError, Waited};

/// The most operations of one list.
pub const LIST_MAX: usize = 32_768;
/// How many of them are run at a time, if there are no others beside.
const PART: usize = 4096;
/// Bit of a mask of signals.
pub const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

const _: () = assert!(LIST_MAX as u64 * OPERATION_LENGTH == ARGUMENTS_OFFSET);

#[derive(Debug, Error)]
pub enum RunnerError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("Memory of the guest at {address:#x} cannot be used: {errno}")]
    Memory { address: u64, errno: Errno },
    #[error("A list of {0} operations is too long, the limit is {LIST_MAX}")]
    ListTooLong(usize),
    #[error("{0} bytes of arguments do not fit")]
    ArgumentsTooLong(usize),
    #[error("The guest's thread {tid} ended while it worked for its supervisor")]
    Ended { tid: i32 },
    #[error("Thread {tid} of the guest stopped unexpectedly ({stop:?}) at {rip:#x}")]
    Unexpected { tid: i32, stop: Stop, rip: u64 },
    #[error("{what} failed in the guest: {errno}")]
    Call { what: &'static str, errno: Errno },
}

/// Gives a system call's raw result its meaning.
///
/// # Errors
/// [`RunnerError::Call`] for an errno.
pub fn check(what: &'static str, result: i64) -> Result<u64, RunnerError> {
    match result {
        -4095..=-1 => {
            let errno = Errno::from_raw(i32::try_from(-result).unwrap_or(0));
            Err(RunnerError::Call { what, errno })
        }
        value => Ok(value.cast_unsigned()),
    }
}

/// Collects arguments that lie in memory, and returns their addresses.
#[derive(Debug)]
pub struct Arguments {
    start: u64,
    bytes: Vec<u8>,
}

impl Arguments {
    /// Adds bytes; returns the address at which they will lie, a multiple of 16.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        let aligned = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(aligned, 0);
        self.bytes.extend_from_slice(bytes);
        self.start + aligned as u64
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Handles events that come while a list runs and that the runner does not know.
pub type Visitor<'a> = dyn FnMut(Stopped) -> Result<Running, RunnerError> + 'a;

/// The code page and its memory in one process.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    /// Process id, in our own pid namespace.
    pub pid: i32,
    pub place: Place,
}

impl Runner {
    #[must_use]
    pub fn new(pid: i32, place: Place) -> Self {
        Self { pid, place }
    }

    /// An empty set of arguments; they take the place of those of earlier lists.
    #[must_use]
    pub fn arguments(&self) -> Arguments {
        Arguments {
            start: self.place.arguments(),
            bytes: Vec::new(),
        }
    }

    /// Puts the arguments where they were promised to lie.
    ///
    /// # Errors
    /// They are too long, or the process is gone.
    pub fn store(&self, arguments: &Arguments) -> Result<(), RunnerError> {
        if arguments.bytes.len() as u64 > DATA_LENGTH - ARGUMENTS_OFFSET {
            return Err(RunnerError::ArgumentsTooLong(arguments.bytes.len()));
        }
        self.write(arguments.start, &arguments.bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), RunnerError> {
        process_vm::write_exact(self.pid, address, bytes)
            .map_err(|errno| RunnerError::Memory { address, errno })
    }

    /// Reads back what a call has written among the arguments.
    ///
    /// # Errors
    /// The process is gone.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), RunnerError> {
        process_vm::read_exact(self.pid, address, bytes)
            .map_err(|errno| RunnerError::Memory { address, errno })
    }

    /// Writes a list behind `skip` other operations and sets the thread's registers to it; the
    /// list runs when the thread is resumed.
    ///
    /// # Errors
    /// Too long, or the process is gone.
    pub fn prepare(
        &self,
        thread: &Stopped,
        skip: usize,
        operations: &[Syscall],
    ) -> Result<(), RunnerError> {
        if skip + operations.len() > LIST_MAX {
            return Err(RunnerError::ListTooLong(skip + operations.len()));
        }
        let start = self.place.data + skip as u64 * OPERATION_LENGTH;
        let bytes: Vec<u8> = operations.iter().flat_map(encode).collect();
        self.write(start, &bytes)?;
        let before = thread.registers()?;
        let count = operations.len() as u64;
        Ok(thread.set_registers(&self.place.run_registers(&before, start, count))?)
    }

    /// The results of a list that has run.
    ///
    /// # Errors
    /// The process is gone.
    pub fn results(&self, skip: usize, count: usize) -> Result<Vec<i64>, RunnerError> {
        let length = usize::try_from(OPERATION_LENGTH).unwrap_or(64);
        let mut bytes = vec![0; count * length];
        self.read(self.place.data + skip as u64 * OPERATION_LENGTH, &mut bytes)?;
        let result = |operation: &[u8]| {
            let mut word = [0; 8];
            word.copy_from_slice(&operation[56..64]);
            i64::from_le_bytes(word)
        };
        Ok(bytes.chunks_exact(length).map(result).collect())
    }

    /// Runs a list; the thread is then stopped behind it, and its registers have no meaning.
    ///
    /// SIGTRAP must neither be ignored nor blocked: the kernel would reset its action.
    ///
    /// # Errors
    /// The thread ended, or the process is gone.
    pub fn run(
        &self,
        thread: Stopped,
        operations: &[Syscall],
    ) -> Result<(Stopped, Vec<i64>), RunnerError> {
        let refuse: &mut Visitor<'_> = &mut |stopped| Err(unexpected(&stopped));
        self.run_visited(thread, operations, refuse)
    }

    /// As [`run`](Self::run), but `visit` handles the stops on the way (PTRACE_EVENT_*).
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of `visit`.
    pub fn run_visited(
        &self,
        thread: Stopped,
        operations: &[Syscall],
        visit: &mut Visitor<'_>,
    ) -> Result<(Stopped, Vec<i64>), RunnerError> {
        let (mut thread, mut results) = (thread, Vec::with_capacity(operations.len()));
        // The end of each part is a sign of life.
        for part in operations.chunks(PART) {
            self.prepare(&thread, 0, part)?;
            thread = self.await_end(thread.resume(0)?, visit)?;
            results.extend(self.results(0, part.len())?);
        }
        Ok((thread, results))
    }

    /// Waits for the stop behind a list.
    ///
    /// # Errors
    /// As [`run_visited`](Self::run_visited).
    pub fn await_end(
        &self,
        running: Running,
        visit: &mut Visitor<'_>,
    ) -> Result<Stopped, RunnerError> {
        let mut running = running;
        loop {
            let stopped = stopped(running.wait()?)?;
            if self.is_end(&stopped)? {
                return Ok(stopped);
            }
            running = visit(stopped)?;
        }
    }

    /// Whether the thread stands at the `int3` behind its list.
    ///
    /// # Errors
    /// The thread died.
    pub fn is_end(&self, stopped: &Stopped) -> Result<bool, RunnerError> {
        // Behind the int3, whose length is 1.
        Ok(stopped.stop() == Stop::Signal(libc::SIGTRAP)
            && stopped.registers()?.rip == self.place.code + 1)
    }

    /// Executes one system call between two syscall stops; no signal is raised for it.
    ///
    /// # Errors
    /// The thread ended, or stopped for another reason.
    pub fn step(
        &self,
        thread: Stopped,
        operation: &Syscall,
    ) -> Result<(Stopped, i64), RunnerError> {
        let before = thread.registers()?;
        thread.set_registers(&step_registers(&before, self.place.one(), operation))?;
        let entry = self.syscall_stop(thread.resume_to_syscall(0)?)?;
        let exit = self.syscall_stop(entry.resume_to_syscall(0)?)?;
        let result = exit.registers()?.rax.cast_signed();
        Ok((exit, result))
    }

    fn syscall_stop(&self, running: Running) -> Result<Stopped, RunnerError> {
        let mut running = running;
        loop {
            let stopped = stopped(running.wait()?)?;
            match stopped.stop() {
                Stop::SyscallStop => return Ok(stopped),
                // Trap: interrupt-after-another-stop
                // As in `pass_over_interrupt`.
                Stop::Interrupt => running = stopped.resume_to_syscall(0)?,
                _ => return Err(unexpected(&stopped)),
            }
        }
    }
}

/// A visitor for threads that were stopped in the middle of their own work. An interrupt that was
/// sent to a thread which had already stopped for another reason is still due, and comes as soon as
/// the thread does something for us.
///
/// # Errors
/// It is another stop.
pub fn pass_over_interrupt(at: Stopped) -> Result<Running, RunnerError> {
    match at.stop() {
        Stop::Interrupt => Ok(at.resume(0)?),
        _ => Err(unexpected(&at)),
    }
}

/// Registers with which a thread executes the `syscall` instruction at `address`.
#[must_use]
pub fn step_registers(before: &Registers, address: u64, operation: &Syscall) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = operation.args;
    Registers {
        rip: address,
        rax: operation.number,
        orig_rax: u64::MAX,
        eflags: 0x202,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*before
    }
}

/// The mask under which a thread may run lists: everything but SIGTRAP, which the runner uses.
#[must_use]
pub fn working_mask() -> u64 {
    !SIGTRAP_BIT
}

/// The stop that a wait returned.
///
/// # Errors
/// The thread has ended.
pub fn stopped(waited: Waited) -> Result<Stopped, RunnerError> {
    match waited {
        Waited::Stopped(stopped) => Ok(stopped),
        Waited::Exited { tid, .. } | Waited::Signaled { tid, .. } => {
            Err(RunnerError::Ended { tid })
        }
    }
}

/// The error for an unexpected stop.
#[must_use]
pub fn unexpected(stopped: &Stopped) -> RunnerError {
    RunnerError::Unexpected {
        tid: stopped.tid(),
        stop: stopped.stop(),
        rip: stopped.registers().map_or(0, |registers| registers.rip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebuild::stub;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    use whim_sys::ptrace::Options;

    #[test]
    fn an_interrupt_that_is_due_does_not_disturb_the_work() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("stub");
        fs::write(&program, stub::program()).expect("a program");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("ours");
        let mut child = Command::new("sh")
            .args(["-c", "read go && exec \"$0\""])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let pid = child.id().cast_signed();
        let running = Running::seize(pid, Options::SYSGOOD).expect("ours to trace");
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "go").expect("it reads");
        let runner = Runner::new(pid, Place::INITIAL);
        let thread = runner.await_end(running, &mut |at| Ok(at.resume(0)?));

        let getpid = Syscall::new(libc::SYS_getpid, &[]);
        let thread = thread.expect("at its first instruction");
        thread.interrupt().expect("it lives");
        let (thread, result) = runner.step(thread, &getpid).expect("a step");
        assert_eq!(result, i64::from(pid));
        thread.interrupt().expect("it lives");
        let list = [getpid; 2];
        let ran = runner.run_visited(thread, &list, &mut pass_over_interrupt);
        let (thread, results) = ran.expect("a list");
        assert_eq!(results, [i64::from(pid); 2]);

        // Without that visitor no interrupt is expected, so the stop is reported as an error.
        thread.interrupt().expect("it lives");
        let error = runner.run(thread, &list).expect_err("an interrupt");
        let RunnerError::Unexpected { tid, stop, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((tid, stop), (pid, Stop::Interrupt));
        child.kill().expect("it lives");
        child.wait().expect("it ended");
    }
}
