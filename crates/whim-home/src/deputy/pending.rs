//! What the kernel keeps for a thread of the deputy whose signals are masked.

use super::{Deputy, DeputyError, Trace, stop_idle};
use whim_sys::ptrace::{RawSigInfo, Running, Stop, info_word};

impl Deputy {
    /// The signals that wait here for some thread, as a set.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.threads.iter().fold(0, |all, thread| all | thread.kept)
    }

    /// The signals that wait for a thread, or, if `shared`, for the process, in their order. The thread must
    /// have no work, and its signals must be masked.
    ///
    /// # Errors
    /// The thread died.
    pub fn queued_signals(
        &mut self,
        seat: usize,
        shared: bool,
    ) -> Result<Vec<RawSigInfo>, DeputyError> {
        let tid = self.threads[seat].tid;
        let (Trace::Running(running) | Trace::Listening(running)) =
            std::mem::replace(&mut self.threads[seat].trace, Trace::Gone)
        else {
            return Err(DeputyError::Ended);
        };
        // Whatever goes wrong: it is ours until its end is reported.
        self.threads[seat].trace = Trace::Running(Running::assume(tid));
        running.interrupt()?;
        let stopped = stop_idle(running)?;
        let queued = stopped.queued_signals(shared)?;
        self.threads[seat].trace = if matches!(stopped.stop(), Stop::Group(_)) {
            Trace::Listening(stopped.listen()?)
        } else {
            Trace::Running(stopped.resume(0)?)
        };
        Ok(queued)
    }

    /// Whether the process has brought this signal upon itself, by a call or by kill.
    #[must_use]
    pub fn is_its_own(&self, info: &RawSigInfo) -> bool {
        (info_word(info, 8), info_word(info, 16)) == (libc::SI_USER, self.own_pid.number())
    }
}
