//! Order statistics: the samples of a window, sorted.

use super::{ARMS, EDGE, FILL, Family, Routine, SIZE, VALUE, routine};
use crate::parameter::{Kind, Parameter};

const TRIM: Parameter = Parameter::new(
    "trim",
    Kind::Number(0.0, 0.5),
    "0.1",
    "the part of the samples that is left out at each end",
);
macro_rules! order {
    ($($first:expr),*) => { &[$($first,)* EDGE, VALUE, FILL] };
}

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Order,
        "SquareMedian",
        "the median of a square",
        order!(SIZE),
    ),
    routine(
        Family::Order,
        "CrossMedian",
        "the median of a cross",
        order!(ARMS),
    ),
    routine(
        Family::Order,
        "ATrimmedSqMean",
        "the mean of a square's samples but the least and the greatest",
        order!(SIZE, TRIM),
    ),
    routine(
        Family::Order,
        "ATrimmedCrMean",
        "the mean of a cross's samples but the least and the greatest",
        order!(ARMS, TRIM),
    ),
];
