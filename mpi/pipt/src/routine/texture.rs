//! Texture: features of grey-level co-occurrence.

use super::{EDGE, Family, Routine, VALUE, routine};
use crate::parameter::{Kind, Parameter};

/// What all texture routines take; those of one feature have another one behind them.
macro_rules! texture {
    ($($more:expr),*) => {
        &[
            Parameter::new("window", Kind::Odd(3, 63), "9", "pixels to a side of the window"),
            Parameter::new("levels", Kind::Whole(2, 65_536), "64", "grey levels to which samples are reduced"),
            Parameter::new(
                "range",
                Kind::Range(&["minmax", "quantiles", "type"]),
                "minmax",
                "what is divided into levels: from the least to the greatest sample of the whole image, in \
                 equal steps (minmax) or so that all levels are as frequent (quantiles); all numbers of the \
                 type; or LEAST:MOST",
            ),
            Parameter::new("thresholds", Kind::Text, "", "a file of thresholds, a number a line, instead of a range"),
            Parameter::new(
                "write-thresholds",
                Kind::Text,
                "",
                "a file for the thresholds of this image, so that thresholds= makes the same levels of others",
            ),
            Parameter::new("offsets", Kind::Offsets, "1:0,1:1,0:1,-1:1", "from one pixel of a pair to the other"),
            Parameter::new(
                "pairs",
                Kind::Choice(&["inside", "reach"]),
                "inside",
                "whether both pixels of a pair lie in the window, or only the first has to",
            ),
            Parameter::new(
                "combine",
                Kind::Choice(&["mean", "sum", "separate"]),
                "mean",
                "of several offsets: the mean of their features; those of all pairs together; or each by itself",
            ),
            Parameter::new("symmetric", Kind::YesNo, "yes", "whether a pair counts both ways"),
            Parameter::new(
                "like",
                Kind::Choice(&["grass", "otb", "itk"]),
                "",
                "the conventions of that program, for all that is not given",
            ),
            EDGE,
            VALUE,
            $($more),*
        ]
    };
}

const EXPONENT: Parameter = Parameter::new(
    "exponent",
    Kind::Whole(1, 4),
    "2",
    "the power of the distance between two levels",
);

const MOMENT: Parameter = Parameter::new(
    "moment",
    Kind::Choice(&["haralick", "gonzalez"]),
    "haralick",
    "P / (1 + (i - j)^2); or P / |i - j|^2 of those that differ",
);

const CLUSTER: Parameter = Parameter::new(
    "cluster",
    Kind::Whole(2, 4),
    "2",
    "the power: 2 is the tendency, 3 the shade, 4 the prominence",
);

const LOGARITHM: Parameter = Parameter::new(
    "logarithm",
    Kind::Choice(&["2", "e"]),
    "2",
    "the base of the logarithm",
);

/// The eight features of the toolkit, Haralick's others (Haralick, Shanmugam, Dinstein 1973), and what ITK's filter
/// has instead of some of these.
pub const FEATURES: [&str; 21] = [
    "max",
    "energy",
    "contrast",
    "inverse-moment",
    "homogeneity",
    "correlation",
    "entropy",
    "cluster",
    "variance",
    "sum-average",
    "sum-variance",
    "sum-entropy",
    "difference-variance",
    "difference-entropy",
    "information-1",
    "information-2",
    "max-correlation",
    "first-correlation",
    "first-shade",
    "first-prominence",
    "first-haralick",
];

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Texture,
        "CoOccur",
        "several features at once, a band for each",
        texture!(
            Parameter::new(
                "features",
                Kind::Words(&FEATURES),
                "max,energy,contrast,inverse-moment,homogeneity,correlation,entropy,cluster",
                "which, in the order of the bands; with like=, where neither they nor their powers are given, those of \
                 that program. ITK's correlation, shade, prominence and Haralick correlation are first-...: the mean \
                 and the variance of a pair's first level are taken for both levels",
            ),
            EXPONENT,
            MOMENT,
            CLUSTER,
            LOGARITHM
        ),
    ),
    routine(
        Family::Texture,
        "CoOccurMax",
        "the greatest probability, max P",
        texture!(),
    ),
    routine(Family::Texture, "CoOccurEnergy", "sum of P^2", texture!()),
    routine(
        Family::Texture,
        "CoOccurContrast",
        "sum of |i - j|^k P",
        texture!(EXPONENT),
    ),
    routine(
        Family::Texture,
        "CoOccurInverseMoment",
        "sum of P / (1 + (i - j)^2)",
        texture!(MOMENT),
    ),
    routine(
        Family::Texture,
        "CoOccurHomogeneity",
        "sum of P / (1 + |i - j|)",
        texture!(),
    ),
    routine(
        Family::Texture,
        "CoOccurCorrelation",
        "sum of (i - mean)(j - mean) P / variance",
        texture!(),
    ),
    routine(
        Family::Texture,
        "CoOccurEntropy",
        "- sum of P log P",
        texture!(LOGARITHM),
    ),
    routine(
        Family::Texture,
        "CoOccurCluster",
        "sum of (i + j - 2 mean)^k P",
        texture!(CLUSTER),
    ),
];
