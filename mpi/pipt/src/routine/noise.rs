//! Noise.

use super::{Family, Routine, routine};
use crate::parameter::{Kind, Parameter};

const SEED: Parameter = Parameter::new(
    "seed",
    Kind::Whole(0, u64::MAX),
    "0",
    "another seed is other noise",
);

const MEAN: Parameter = Parameter::new("mean", Kind::Number(f64::MIN, f64::MAX), "0", "their mean");

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
            MEAN,
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
    routine(
        Family::Noise,
        "AddSaltPepper",
        "makes some samples the least or the largest",
        &[
            Parameter::new(
                "probability",
                Kind::Number(0.0, 1.0),
                "0.05",
                "of each sample",
            ),
            Parameter::new(
                "salt",
                Kind::Number(0.0, 1.0),
                "0.5",
                "the part of these that becomes the largest",
            ),
            Parameter::new(
                "ends",
                Kind::Range(&["type"]),
                "type",
                "the least and the largest: those of the samples' type, of floats 0 and 1",
            ),
            SEED,
        ],
    ),
    routine(
        Family::Noise,
        "AddLaplacian",
        "adds numbers of Laplace's distribution",
        &[
            MEAN,
            Parameter::new(
                "deviation",
                Kind::Number(0.0, f64::MAX),
                "10",
                "their standard deviation, sqrt(2) times the mean distance from the mean",
            ),
            SEED,
        ],
    ),
    routine(
        Family::Noise,
        "AddSpeckle",
        "adds to each sample its product with a normally distributed number",
        &[
            MEAN,
            Parameter::new(
                "deviation",
                Kind::Number(0.0, f64::MAX),
                "0.2",
                "their standard deviation",
            ),
            SEED,
        ],
    ),
];
