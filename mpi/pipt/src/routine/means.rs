//! Means and smoothing.

use super::{ARMS, EDGE, FILL, Family, Routine, SIGMA, SIZE, TRUNCATE, VALUE, routine};
use crate::parameter::{Kind, Parameter};

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Means,
        "SquareMean",
        "the mean of a square",
        &[SIZE, EDGE, VALUE, FILL],
    ),
    routine(
        Family::Means,
        "CrossMean",
        "the mean of a cross",
        &[ARMS, EDGE, VALUE, FILL],
    ),
    routine(
        Family::Means,
        "GaussianSmooth",
        "a mean in which pixels weigh as the normal distribution of their distance",
        &[SIGMA, TRUNCATE, EDGE, VALUE, FILL],
    ),
    routine(
        Family::Means,
        "GeometricMean",
        "the root of the product of a square's samples; 0 where one is not above 0",
        &[SIZE, EDGE, VALUE, FILL],
    ),
    routine(
        Family::Means,
        "HarmonicMean",
        "the number of a square's samples divided by the sum of 1 / sample; 0 where one is not above 0",
        &[SIZE, EDGE, VALUE, FILL],
    ),
    routine(
        Family::Means,
        "SigmaFilter",
        "the mean of those samples of a square that differ little from the one in the middle (Lee 1983)",
        &[
            SIZE,
            Parameter {
                name: "within",
                kind: Kind::Number(0.0, f64::MAX),
                default: None,
                about: "by how much at the most; twice the noise's standard deviation, as a rule",
            },
            EDGE,
            VALUE,
        ],
    ),
    routine(
        Family::Means,
        "AdaptiveWiener",
        "the mean of a square where it varies no more than noise does, and the sample itself the more it varies (Lim 1990)",
        &[
            SIZE,
            Parameter::new(
                "noise",
                Kind::Number(0.0, f64::MAX),
                "",
                "its variance; without it the mean of the variances of all squares of the image",
            ),
            EDGE,
            VALUE,
        ],
    ),
];
