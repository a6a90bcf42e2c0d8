//! Order statistics: the samples of a window, sorted.

use super::{ARMS, EDGE, FILL, Family, Routine, SIZE, VALUE, routine};
use crate::parameter::{Kind, Parameter};

const TRIM: Parameter = Parameter::new(
    "trim",
    Kind::Number(0.0, 0.5),
    "0.1",
    "the part of the samples that is left out at each end",
);
const RANK: Parameter = Parameter {
    name: "rank",
    kind: Kind::Whole(0, 65_024),
    default: None,
    about: "how many samples of the window are before it: 0 is the least; where some are missing as large a part of \
            those that are there",
};

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
    routine(
        Family::Order,
        "SquareMin",
        "the least sample of a square",
        order!(SIZE),
    ),
    routine(
        Family::Order,
        "SquareMax",
        "the greatest sample of a square",
        order!(SIZE),
    ),
    routine(
        Family::Order,
        "CrossMin",
        "the least sample of a cross",
        order!(ARMS),
    ),
    routine(
        Family::Order,
        "CrossMax",
        "the greatest sample of a cross",
        order!(ARMS),
    ),
    routine(
        Family::Order,
        "SquareRank",
        "the sample of a square that has so many before it",
        order!(SIZE, RANK),
    ),
    routine(
        Family::Order,
        "CrossRank",
        "the sample of a cross that has so many before it",
        order!(ARMS, RANK),
    ),
];
