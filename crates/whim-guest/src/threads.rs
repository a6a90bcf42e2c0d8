//! Threads that the guest makes. Each has two halves: one here, and its deputy at home.
//!
//! Home's half comes first, because its number is the thread's. The half here is then made under
//! that number. `clone` may do here only what has been checked, because we set the registers that
//! are its arguments. If one half cannot be made, the other is removed, and the process goes home
//! for its new thread.

use crate::cpu_time::{self, Since};
use crate::cut::end_call;
use crate::error::GuestError;
use crate::guest::{Guest, Thread, Trace};
use crate::numbers::low;
use whim_calls::NewThread;
use whim_journey::message::ToHome;
use whim_model::CpuTime;
use whim_model::Syscall;
use whim_sys::priority::{self, Priority};
use whim_sys::ptrace::{Running, Stopped, TraceError, Waited};

const NO_NUMBERS: &str = "threads cannot be made on this host";
const NO_DEPUTY: &str = "home has no thread for it";

/// The upper half of a sequence number is the epoch. A new thread's numbers begin with the epoch of
/// its maker.
const EPOCH_SHIFT: u32 = 32;

impl Guest {
    /// A thread asks for a new thread.
    pub(crate) fn new_thread(&mut self, host_tid: i32, new: NewThread) {
        if self.numbers.is_none() {
            self.go_home(host_tid, NO_NUMBERS);
            return;
        }
        // The kernel writes these words, and must not meet a page that is not here.
        for word in new.written() {
            self.memory.is_here(word, 4);
        }
        if self.must_wait() {
            return;
        }
        if let Some((tid, sequence)) = self.waits(host_tid, crate::guest::Kind::NewThread(new)) {
            self.say(ToHome::NewThread {
                tid,
                sequence,
                flags: new.flags,
            });
        }
    }

    /// Home has made the deputy of the thread that `host_tid` asked for, or has failed to.
    pub(crate) fn begin_thread(
        &mut self,
        host_tid: i32,
        new: &NewThread,
        result: i64,
    ) -> Result<(), GuestError> {
        let number = low(result.cast_unsigned());
        if result <= 0 {
            self.go_home(host_tid, NO_DEPUTY);
            return Ok(());
        }
        let Some(sequence) = self.threads.get(&host_tid).map(|thread| thread.sequence) else {
            self.without_thread(number, 0);
            return Ok(());
        };
        let sequence = (sequence >> EPOCH_SHIFT) << EPOCH_SHIFT;
        // Trap: a-thread-away-has-another-number
        let chosen = self.numbers.as_ref().map(|numbers| numbers.next(number));
        if let Some(Err(error)) = &chosen {
            tracing::warn!(%error, number, "a thread cannot have its number");
        }
        if !matches!(chosen, Some(Ok(()))) {
            self.without_thread(number, sequence);
            self.numbers = None;
            self.go_home(host_tid, NO_NUMBERS);
            return Ok(());
        }
        let made = self.make_thread(host_tid, new, (number, sequence));
        if !matches!(made, Ok(true)) {
            self.without_thread(number, sequence);
        }
        made.map(drop)
    }

    /// Takes the maker out of its call, and has it make the thread. Returns false if it could not.
    fn make_thread(
        &mut self,
        host_tid: i32,
        new: &NewThread,
        (number, sequence): (i32, u64),
    ) -> Result<bool, GuestError> {
        let maker = self.take_out(host_tid)?;
        let mask = maker.signal_mask()?;
        self.born = None;
        let clone = Syscall::new(libc::SYS_clone, &new.arguments());
        let (maker, result) = self.inject(maker, &clone)?;
        let born = match self.born.take() {
            Some(born) => first_stop(born)?,
            None => None,
        };
        match born {
            Some(thread) if result == i64::from(number) => {
                self.set_off(&maker, &thread, new, mask)?;
                end_call(&maker, result)?;
                self.admit(thread, number, sequence)?;
                self.go_on(host_tid, maker)?;
                Ok(true)
            }
            other => {
                tracing::warn!(number, result, "a thread could not be made");
                if let Some(thread) = other {
                    self.dismiss(thread)?;
                }
                self.numbers = None;
                make_again(&maker)?;
                self.go_on(host_tid, maker)?;
                Ok(false)
            }
        }
    }

    /// Puts the new thread behind the maker's call, with the registers and the mask that the call
    /// gives it.
    fn set_off(
        &self,
        maker: &Stopped,
        thread: &Stopped,
        new: &NewThread,
        mask: u64,
    ) -> Result<(), GuestError> {
        let mut registers = maker.registers()?;
        let own = thread.registers()?;
        (registers.fs_base, registers.gs_base) = (own.fs_base, own.gs_base);
        if new.stack != 0 {
            registers.rsp = new.stack;
        }
        registers.rax = 0;
        registers.orig_rax = u64::MAX;
        thread.set_registers(&registers)?;
        thread.set_signal_mask(mask)?;
        Ok(())
    }

    /// From here on the thread is one of the guest's.
    fn admit(&mut self, thread: Stopped, number: i32, sequence: u64) -> Result<(), GuestError> {
        let host_tid = thread.tid();
        let began = cpu_time::of_thread(self.host_tid, host_tid);
        self.context.threads.push(number);
        self.threads.insert(
            host_tid,
            Thread {
                tid: number,
                host_tid,
                trace: Trace::Running,
                waiting: None,
                sequence,
                in_flight: None,
                awaited: 0,
                fatal: None,
                postponed: Vec::new(),
                restarted: None,
                told_interrupted: false,
                suspended: None,
                awaits: false,
                enters: false,
                entering: None,
                at_our_stop: false,
                deadline_ns: None,
                timed: None,
                cpu: Since::begin(CpuTime::default(), began),
            },
        );
        self.go_on(host_tid, thread)
    }

    /// Ends a thread that has the wrong number, before it has run.
    fn dismiss(&mut self, thread: Stopped) -> Result<(), GuestError> {
        let exit = Syscall::new(libc::SYS_exit, &[0]);
        match self.inject(thread, &exit) {
            Err(GuestError::Ended | GuestError::Trace(TraceError::Died)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Home has changed a thread's share of the CPU. Here it gets no more than this host gives it.
    pub(crate) fn set_priority(&self, tid: i32, priority: Priority) {
        let Some(thread) = self.threads.values().find(|thread| thread.tid == tid) else {
            return;
        };
        if let Err(errno) = priority::set(thread.host_tid, priority) {
            tracing::debug!(tid, ?priority, %errno, "a share of the CPU cannot be set");
        }
    }

    /// Whether the process goes on without this thread, which is its first one. What is left of the
    /// first thread at home could do nothing for the process any more.
    pub(crate) fn outlives_first(&self, host_tid: i32) -> bool {
        host_tid == self.host_tid && self.threads.len() > 1
    }

    /// Home's half is not needed. It ends as if its thread had ended.
    fn without_thread(&mut self, number: i32, sequence: u64) {
        self.say(ToHome::ThreadExit {
            tid: number,
            sequence: sequence + 1,
            code: 0,
        });
    }
}

/// Lets a thread make its call again. The kernel would see to that at the stop in which the thread
/// left its call, but does not do so after a call that we have injected.
fn make_again(thread: &Stopped) -> Result<(), TraceError> {
    const SYSCALL_LENGTH: u64 = 2;
    let mut registers = thread.registers()?;
    registers.rax = registers.orig_rax;
    registers.rip -= SYSCALL_LENGTH;
    registers.orig_rax = u64::MAX;
    thread.set_registers(&registers)
}

/// Waits for the stop of a new thread before its first instruction.
fn first_stop(host_tid: i32) -> Result<Option<Stopped>, GuestError> {
    match Running::assume(host_tid).wait()? {
        Waited::Stopped(stopped) => Ok(Some(stopped)),
        Waited::Exited { .. } | Waited::Signaled { .. } => Ok(None),
    }
}
