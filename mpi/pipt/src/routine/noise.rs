//! Noise.

use super::{Family, Routine, routine};
use crate::parameter::{Kind, Parameter};

const SEED: Parameter = Parameter::new(
    "seed",
    Kind::Whole(0, u64::MAX),
    "0",
    "another seed is other noise",
);

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Noise,
        "AddUniform",
        "adds numbers between two limits",
        &[
            Parameter::new(
                "least",
                Kind::Number(f64::MIN, f64::MAX),
                "-10",
                "the lower limit",
            ),
            Parameter::new(
                "most",
                Kind::Number(f64::MIN, f64::MAX),
                "10",
                "the upper limit",
            ),
            SEED,
        ],
    ),
    routine(
        Family::Noise,
        "AddGaussian",
        "adds normally distributed numbers",
        &[
            Parameter::new("mean", Kind::Number(f64::MIN, f64::MAX), "0", "their mean"),
            Parameter::new(
                "deviation",
                Kind::Number(0.0, f64::MAX),
                "10",
                "their standard deviation",
            ),
            SEED,
        ],
    ),
    routine(
        Family::Noise,
        "AddBitError",
        "turns bits round",
        &[
            Parameter::new("probability", Kind::Number(0.0, 1.0), "0.01", "of each bit"),
            SEED,
        ],
    ),
];
