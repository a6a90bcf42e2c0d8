//! Calls that a signal without effect has interrupted. Without a tracer the kernel would have dropped
//! the signal, and the call would not have noticed; so it goes on.

use super::{Active, EINTR, Server};
use whim_image::freeze_calls::{self, CallState};
use whim_image::freeze_observe::Status;
use whim_model::Registers;

impl Server {
    /// Whether the program neither handles this signal nor is stopped or ended by it.
    pub(super) fn is_without_effect(&self, signal: i32) -> bool {
        let by_default = matches!(signal, libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH);
        let pid = self.deputy.pid();
        // The deputy has stand-ins for the program's handlers.
        by_default && Status::read(pid, pid).is_ok_and(|s| s.caught >> (signal - 1) & 1 == 0)
    }

    /// Lets the deputy do the rest of a call that such a signal has cut off; false if nothing is left to be
    /// done. `raw` is what the kernel has answered.
    pub(super) fn go_on(&mut self, seat: usize, active: &mut Active, raw: i64) -> bool {
        if !std::mem::take(&mut active.nudged) || active.disturbed || active.expired {
            return false;
        }
        if raw == EINTR && whim_calls::ends_at_stop(active.number) {
            active.deadline_ns = self.deadline(active);
        } else if !self.take_up_rest(seat, active, raw) {
            return false;
        }
        self.start_piece(seat, active);
        true
    }

    /// Turns a transfer that ended before its buffer did into the call for the rest of it; false if there is
    /// no rest.
    fn take_up_rest(&self, seat: usize, active: &mut Active, raw: i64) -> bool {
        let mut registers = Registers {
            orig_rax: active.piecewise,
            rax: raw.cast_unsigned(),
            ..Registers::default()
        };
        registers.set_arguments(active.args);
        let ids = (self.deputy.pid(), self.deputy.traced_as(seat));
        let Some(call) = freeze_calls::left_short(ids, &mut registers) else {
            return false;
        };
        if call.state == CallState::Complete {
            return false;
        }
        let (rest, further) = call.remainder();
        active.already += active.sum + raw;
        active.sum = 0;
        active.piecewise = rest.number;
        active.args = rest.args;
        for piece in further.into_iter().rev() {
            active.further.push_front(piece);
        }
        true
    }
}
