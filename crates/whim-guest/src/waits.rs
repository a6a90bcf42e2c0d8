//! Waits with a relative time that a freeze cuts off in the guest.

use crate::guest::{Guest, GuestError, Trace};
use whim_image::freeze_calls::{arguments, relative_timeout};
use whim_image::freeze_observe::{
    Observation, elapsed_ns, monotonic_ns, observe_sleep, sleeping_in,
};
use whim_sys::process_vm;

/// A thread that sleeps in such a call, looked at before it is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    host: i32,
    number: u64,
    before: Observation,
}

impl Guest {
    /// Looks at all threads before they are stopped.
    pub(crate) fn sleepers(&self) -> Vec<Sleeper> {
        let sleeper = |host: &i32| {
            let number = sleeping_in(self.host, *host)?;
            let known = matches!(
                i64::try_from(number).ok()?,
                libc::SYS_nanosleep
                    | libc::SYS_clock_nanosleep
                    | libc::SYS_futex
                    | libc::SYS_rt_sigtimedwait
            );
            known.then(|| Sleeper {
                host: *host,
                number,
                before: observe_sleep(self.host, *host),
            })
        };
        self.threads.keys().filter_map(sleeper).collect()
    }

    /// Waits begin anew.
    pub(crate) fn forget_deadlines(&mut self) {
        for thread in self.threads.values_mut() {
            thread.deadline_ns = None;
        }
    }

    /// Notes until when those wait that are stopped in their call now.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn note_deadlines(&mut self, sleepers: &[Sleeper]) -> Result<(), GuestError> {
        self.forget_deadlines();
        for sleeper in sleepers {
            let process = self.host;
            let Some(thread) = self.threads.get_mut(&sleeper.host) else {
                continue;
            };
            let Trace::Stopped(stopped) = &thread.trace else {
                continue;
            };
            let registers = stopped.registers()?;
            if registers.orig_rax != sleeper.number || !crate::capture::was_cut(&registers) {
                continue;
            }
            let args = arguments(&registers);
            let rest = rest_ns(process, sleeper, &args);
            thread.deadline_ns = rest.map(|rest| monotonic_ns() + rest);
        }
        Ok(())
    }
}

/// What is left of the call's time.
fn rest_ns(process: i32, sleeper: &Sleeper, args: &[u64; 6]) -> Option<u64> {
    let (_, total) = relative_timeout(process, sleeper.number, args)?;
    let told = match i64::try_from(sleeper.number).ok()? {
        libc::SYS_nanosleep => args[1],
        libc::SYS_clock_nanosleep => args[3],
        _ => 0,
    };
    if told == 0 {
        let elapsed = elapsed_ns(process, sleeper.host, &sleeper.before);
        return Some(total.saturating_sub(elapsed));
    }
    // The kernel has written it there; often that is where the whole was read from.
    let mut bytes = [0; 16];
    process_vm::read_exact(process, told, &mut bytes).ok()?;
    let (seconds, rest) = bytes.split_at(8);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    Some(
        word(seconds)?
            .saturating_mul(1_000_000_000)
            .saturating_add(word(rest)?),
    )
}
