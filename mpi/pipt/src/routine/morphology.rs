//! Grey-scale morphology with flat squares and crosses (J. Serra, "Image Analysis and Mathematical Morphology", 1982).
//! Both are symmetric, so that nothing has to be turned round.

use super::{EDGE, FILL, Family, Routine, SIZE, VALUE, routine};
use crate::parameter::{Kind, Parameter};

const SHAPE: Parameter = Parameter::new(
    "shape",
    Kind::Choice(&["square", "cross"]),
    "square",
    "of the window",
);

const ALL_OF_THEM: &[Parameter] = &[SIZE, SHAPE, EDGE, VALUE, FILL];

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Morphology,
        "Erode",
        "the least sample of each window",
        ALL_OF_THEM,
    ),
    routine(
        Family::Morphology,
        "Dilate",
        "the greatest sample of each window",
        ALL_OF_THEM,
    ),
    routine(
        Family::Morphology,
        "Open",
        "what is left of the bright after Erode and then Dilate: bright spots smaller than the window are gone",
        ALL_OF_THEM,
    ),
    routine(
        Family::Morphology,
        "Close",
        "the same of the dark, after Dilate and then Erode",
        ALL_OF_THEM,
    ),
];
