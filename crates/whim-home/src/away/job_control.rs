//! Job control of a process that is away: its stops happen at home, and the guest stands still.
//!
//! Only the guest knows whether a signal is blocked or has a handler, and only home's kernel can stop
//! the process so that its parent and the terminal's shell see it. So a stop signal travels to the
//! guest, comes back as [`ToHome::DefaultStop`], and is raised here;
//! home's kernel still refuses to stop an orphaned group. Deciding at home from the mirrored
//! dispositions alone was rejected: a mask changes without home's knowledge.

use super::Away;
use crate::moving::Transition;
use crate::numbers::OwnTid;
use crate::server::Outgoing;
use anyhow::{Result, bail};
use whim_journey::message::{ToGuest, ToHome};

impl Away {
    /// Queues a message behind the signals that came before, because a `Continue` must not overtake the stop
    /// that it ends.
    fn tell(&mut self, message: ToGuest) {
        let tail = Vec::new();
        self.server.outgoing.push(Outgoing { message, tail });
    }

    pub(super) fn stopped(&mut self) -> Result<()> {
        self.stopped = true;
        self.tell(ToGuest::Stop);
        Ok(())
    }

    /// Handles a signal that stops the process by default: home's kernel stops it, with its job control.
    pub(super) fn default_stop(&mut self, message: &ToHome) -> Result<()> {
        let ToHome::DefaultStop {
            tid,
            signal,
            info,
            continues,
        } = message
        else {
            return Ok(());
        };
        let signal = i32::from(*signal);
        let info = <[u8; 128]>::try_from(info.as_slice()).ok();
        let seat = self.server.deputy.seat_of(OwnTid::named(*tid));
        let (Some(seat), Some(info), libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) =
            (seat, info, signal)
        else {
            bail!("The guest cannot be stopped by signal {signal} of thread {tid}");
        };
        if *continues < self.server.deputy.continues() {
            // A later SIGCONT discards the stop, as it does in the kernel; the guest goes on already.
            tracing::debug!(signal, "a stop is void");
            return Ok(());
        }
        if matches!(self.transition, Some(Transition::Homeward(_))) {
            self.held.push(self.server.held(seat, signal, info));
            return Ok(());
        }
        Ok(self.server.deputy.raise(signal, *continues)?)
    }

    pub(super) fn continued(&mut self) -> Result<()> {
        self.stopped = false;
        self.tell(ToGuest::Continue);
        self.do_what_waited()
    }

    /// Does what had to wait for the end of a stop, or of a freeze of its group. If the other of these lasts
    /// on, it waits on.
    pub(super) fn do_what_waited(&mut self) -> Result<()> {
        if std::mem::take(&mut self.home_waits) {
            self.completed()?;
        }
        if self.transition.is_none()
            && let Some(reason) = self.wants_home.take()
        {
            self.begin_homeward(None, reason)?;
        }
        Ok(())
    }
}
