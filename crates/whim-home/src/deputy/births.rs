//! Threads that are added while the process is away.

use super::waiting::Waiting;
use super::{BATCH_DEADLINE, Deputy, DeputyError, Thread, Trace, into_loop};
use crate::numbers::OwnTid;
use whim_calls::NewThread;
use whim_model::Syscall;
use whim_sys::ptrace::{Running, Stop, Stopped, Tid};

impl Deputy {
    /// Has the thread in `seat`, which has nothing to do, make one more thread. Returns its number,
    /// or a negative errno if the kernel refuses it or there is no place for it. The new thread
    /// shares the other threads' undo list of semaphores, or has none.
    ///
    /// # Errors
    /// The deputy died, or did not answer for a minute.
    pub fn add_thread(
        &mut self,
        seat: usize,
        shares_undo: bool,
    ) -> Result<Result<OwnTid, i64>, DeputyError> {
        let gone = (0..self.threads.len()).find(|place| self.is_gone(*place));
        let place = gone.unwrap_or(self.threads.len());
        if place == self.deck.seats() {
            return Ok(Err(-i64::from(libc::EAGAIN)));
        }
        let undo = if shares_undo { libc::CLONE_SYSVSEM } else { 0 };
        let flags = u64::from((NewThread::FLAGS | undo).cast_unsigned());
        // It stops before its first instruction: no stack of its own is needed.
        let clone = Syscall::new(libc::SYS_clone, &[flags, 0, 0, 0, 0]);
        self.cloned = None;
        let result = self.run(seat, &[clone])?[0];
        let Ok(own) = i32::try_from(result) else {
            return Err(DeputyError::Ended);
        };
        if own < 0 {
            return Ok(Err(result));
        }
        // The call tells the number in the process's namespace, its tracer hears the one in ours.
        // Trap: a-thread-has-two-numbers
        let (own, tid) = (OwnTid::named(own), self.cloned.take());
        let tid = tid.ok_or(DeputyError::Ended)?;
        let stopped = self.await_birth(tid)?;
        self.deck.clear(place);
        // The guest's thread has the mask of the one that makes it, too.
        let kept = self.threads[seat].kept;
        into_loop(&stopped, (&self.deck, self.code), place, kept)?;
        let trace = match stopped.stop() {
            Stop::Group(_) => Trace::Listening(stopped.listen()?),
            _ => Trace::Running(stopped.resume(0)?),
        };
        let thread = Thread::new((tid, own), trace, kept);
        if place == self.threads.len() {
            self.threads.push(thread);
        } else {
            let before = std::mem::replace(&mut self.threads[place], thread);
            // The numbers of the thread that was there may be another thread's by now.
            if self.seats.get(&before.tid) == Some(&place) {
                self.seats.remove(&before.tid);
            }
            if self.seats_by_own.get(&before.own) == Some(&place) {
                self.seats_by_own.remove(&before.own);
            }
        }
        self.seats.insert(tid, place);
        self.seats_by_own.insert(own, place);
        Ok(Ok(own))
    }

    /// Waits for the first stop of a new thread.
    fn await_birth(&mut self, tid: Tid) -> Result<Stopped, DeputyError> {
        let mut waiting = Waiting::begin();
        loop {
            if let Some(stop) = self.born.remove(&tid) {
                return Ok(Running::assume(tid).into_stopped(stop));
            }
            self.drain()?;
            let mut threads = self.threads.iter();
            if threads.all(|thread| matches!(thread.trace, Trace::Gone)) {
                return Err(DeputyError::Ended);
            }
            if self.is_late(&mut waiting, BATCH_DEADLINE)? {
                return Err(DeputyError::Stuck(1));
            }
            std::thread::yield_now();
        }
    }
}
