//! From a call to a decision.

use std::sync::LazyLock;

use crate::builder::Builder;
use crate::decide;
use crate::shape::{Class, Gate, Row, Shape};
use crate::table::TABLE;
use crate::types::{AWAIT_NUMBER, Call, Context, Decision, GuestMemory, Special};

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

/// All rows, ordered by number.
pub fn rows() -> &'static [Row] {
    TABLE
}

/// Decides what happens with a call that the guest's filter trapped.
///
/// Every pointer is followed through `memory` once, and the bytes seen are those that are sent:
/// a thread that changes them meanwhile changes nothing. Allocates at most
/// [`crate::AWAY_BYTES_MAX`] bytes for buffers, in at most [`crate::REGIONS_MAX`] regions.
pub fn resolve(call: &Call, context: &Context, memory: &dyn GuestMemory) -> Decision {
    if call.number == AWAIT_NUMBER {
        return Decision::Special(Special::Await);
    }
    let Some(row) = row(call.number) else {
        return Decision::GoHome(NO_NUMBER);
    };
    let mut builder = Builder::new(call, context, memory, row);
    let flow = match (row.class, row.shape, row.gate) {
        (Class::Home, _, _) => return Decision::GoHome(row.reason),
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
    row(number).is_some_and(|row| row.forwards)
}
