//! From a call to a decision.

use std::sync::LazyLock;

use crate::builder::Builder;
use crate::decide;
use crate::ioctl;
use crate::prctl;
use crate::shape::{CallClass, Effect, Gate, Row, Shape};
use crate::table::TABLE;
use crate::types::{AWAIT_NUMBER, Context, Decision, GuestMemory, Special};
use whim_model::Syscall;

const NO_NUMBER: &str = "this system call is not in the table";

/// Where in the table a number stands.
static INDEX: LazyLock<Vec<Option<usize>>> = LazyLock::new(|| {
    let last = TABLE.iter().map(|row| row.number).max().unwrap_or(0);
    let mut index = vec![None; usize::try_from(last).unwrap_or(0) + 1];
    for (place, row) in TABLE.iter().enumerate() {
        if let Ok(number) = usize::try_from(row.number) {
            index[number] = Some(place);
        }
    }
    index
});

/// The row of a number, if the table has one.
pub fn row(number: u64) -> Option<&'static Row> {
    let place = *INDEX.get(usize::try_from(number).ok()?)?;
    TABLE.get(place?)
}

/// What a call of this number changes when it succeeds.
#[must_use]
pub fn effect(number: u64) -> Effect {
    row(number).map_or(Effect::Other, Row::effect)
}

/// Whether a call is there to send signals, which may be for the process that makes it.
#[must_use]
pub fn may_signal(call: &Syscall) -> bool {
    effect(call.number) == Effect::Signals || ioctl::is_signal_of_terminal(call)
}

/// All rows, ordered by number.
pub fn rows() -> &'static [Row] {
    TABLE
}

/// Decides what happens with a call that the guest's filter trapped.
///
/// Every pointer is followed through `memory` once, and the bytes seen are those that are sent:
/// a thread that changes them meanwhile changes nothing. Allocates at most
/// [`crate::AWAY_BYTES_MAX`] bytes for buffers, in at most [`crate::REGIONS_MAX`] regions.
pub fn resolve(call: &Syscall, context: &Context, memory: &dyn GuestMemory) -> Decision {
    if call.number == AWAIT_NUMBER {
        return Decision::Special(Special::Await);
    }
    let Some(row) = row(call.number) else {
        return Decision::GoHome(NO_NUMBER);
    };
    let mut builder = Builder::new(call, context, memory, row);
    let flow = match (row.class, row.shape, row.gate) {
        (CallClass::Home, _, _) => return Decision::GoHome(row.reason),
        (_, Shape::Flat(arguments), _) => builder.flat(arguments),
        (_, Shape::Code(code, _), _) => code(&mut builder),
        (_, Shape::None, Gate::Memory { addresses, lengths }) => {
            let length = lengths.first().map_or(1, |index| call.args[*index]);
            let ranges: Vec<(u64, u64)> = addresses
                .iter()
                .map(|index| (call.args[*index], length))
                .collect();
            decide::memory_call(&builder, &ranges)
        }
        (_, Shape::None, _) => return Decision::Continue,
    };
    match flow {
        Ok(()) => Decision::Forward(builder.finish()),
        Err(decision) => *decision,
    }
}

/// Home's own allow-list: may home execute this number for a guest at all?
///
/// True only for calls that the table may forward. Calls that change the machine, its mounts,
/// modules, keys or other processes never are, whatever the other side asks.
pub fn home_may_execute(number: u64) -> bool {
    // Trap: calls-that-change-the-machine
    row(number).is_some_and(|row| row.forwards)
}

/// As [`home_may_execute`], for a whole call: some calls are forwarded only for certain requests.
#[must_use]
pub fn home_may_execute_call(call: &Syscall) -> bool {
    // The kernel looks at 32 bits of these arguments.
    let argument =
        |index: usize| u32::try_from(call.args[index] & u64::from(u32::MAX)).unwrap_or(0);
    home_may_execute(call.number)
        && match i64::from_ne_bytes(call.number.to_ne_bytes()) {
            libc::SYS_ioctl => !ioctl::is_refused(argument(1)),
            libc::SYS_prctl => prctl::is_forwarded(argument(0)),
            libc::SYS_personality => argument(0) == u32::MAX,
            libc::SYS_close_range => argument(2) & decide::CLOSE_RANGE_UNSHARE == 0,
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_some_calls_only_certain_requests_are_executed() {
        let may = |number: i64, args: [u64; 6]| {
            let number = number.cast_unsigned();
            home_may_execute_call(&Syscall { number, args })
        };
        let high = 1 << 32;
        assert!(may(libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]));
        for request in [0x5412, 0x541c, 0x541d, 0x5423, 0x5412 | high] {
            assert!(
                !may(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]),
                "{request:#x}"
            );
        }
        assert!(may(libc::SYS_prctl, [4, 0, 0, 0, 0, 0]));
        for option in [22, 35, 59, 22 | high, 9999] {
            assert!(!may(libc::SYS_prctl, [option, 0, 0, 0, 0, 0]), "{option}");
        }
        assert!(may(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]));
        assert!(!may(libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0, 0]));
        assert!(!may(libc::SYS_close_range, [0, 9, 2, 0, 0, 0]));
        assert!(!may(libc::SYS_pidfd_getfd, [0; 6]));
    }
}
