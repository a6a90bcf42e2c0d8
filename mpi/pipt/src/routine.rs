//! The routines by name: what each does, how many images it takes, and its parameters.
//!
//! The names are those of the Parallel Image Processing Toolkit of 1995 to 2000, as far as they are known;
//! its parameters are not, so these are ours.

use crate::parameter::{Kind, Parameter};

/// A routine, as `pipt list` shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routine {
    pub name: &'static str,
    pub family: Family,
    pub about: &'static str,
    pub parameters: &'static [Parameter],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Texture,
    Order,
    Noise,
}

impl Family {
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Texture => "Texture: grey-level co-occurrence in a window around each pixel",
            Self::Order => "Order statistics: the samples of a window, sorted",
            Self::Noise => "Noise: the same for each pixel, however the work is divided",
        }
    }
}

/// The routine of this name.
#[must_use]
pub fn of(name: &str) -> Option<&'static Routine> {
    ALL.iter().find(|routine| routine.name == name)
}

/// Names that are nearly this one, for who mistyped it.
#[must_use]
pub fn like(name: &str) -> Vec<&'static str> {
    let lower = name.to_lowercase();
    let near = |routine: &&Routine| {
        let known = routine.name.to_lowercase();
        known == lower || distance(&known, &lower) <= 2
    };
    ALL.iter()
        .filter(near)
        .map(|routine| routine.name)
        .collect()
}

/// Letters that have to be put in, left out or changed (Levenshtein 1965).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in (1..).zip(one.chars()) {
        let mut this = vec![row];
        for (column, wanted) in other.iter().enumerate() {
            let changed = last[column] + usize::from(letter != *wanted);
            this.push(changed.min(last[column + 1] + 1).min(this[column] + 1));
        }
        last = this;
    }
    last.last().copied().unwrap_or(0)
}

const EDGE: Parameter = Parameter::new(
    "edge",
    Kind::Choice(&[
        "reflect",
        "mirror",
        "replicate",
        "constant",
        "shrink",
        "nodata",
    ]),
    "reflect",
    "what lies beyond the edge of the image: its pixels again, turned round with or without the last one; \
     the last one; VALUE; nothing; or the result is no data there",
);

const VALUE: Parameter = Parameter::new(
    "value",
    Kind::Number(f64::MIN, f64::MAX),
    "0",
    "the sample beyond the edge, with edge=constant",
);

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

const SIZE: Parameter = Parameter::new(
    "size",
    Kind::Odd(1, 255),
    "3",
    "pixels to a side of the window",
);
const ARMS: Parameter = Parameter::new(
    "size",
    Kind::Odd(1, 255),
    "3",
    "pixels across the cross, each way",
);
const TRIM: Parameter = Parameter::new(
    "trim",
    Kind::Number(0.0, 0.5),
    "0.1",
    "the part of the samples that is left out at each end",
);
const FILL: Parameter = Parameter::new(
    "fill",
    Kind::YesNo,
    "no",
    "whether a pixel without data is given a value, where its window has some",
);
const SEED: Parameter = Parameter::new(
    "seed",
    Kind::Whole(0, u64::MAX),
    "0",
    "another seed is other noise",
);

macro_rules! order {
    ($($first:expr),*) => { &[$($first,)* EDGE, VALUE, FILL] };
}

const fn routine(
    family: Family,
    name: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
) -> Routine {
    Routine {
        name,
        family,
        about,
        parameters,
    }
}

/// All of them, by family.
pub const ALL: &[Routine] = &[
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Values;

    #[test]
    fn defaults_are_what_may_be_given() {
        for routine in ALL {
            let values = Values::read(routine.parameters, []);
            assert!(values.is_ok(), "{}: {values:?}", routine.name);
            let mut names: Vec<&str> = routine.parameters.iter().map(|p| p.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), routine.parameters.len(), "{}", routine.name);
        }
    }

    #[test]
    fn the_fifteen_of_the_paper_are_there() {
        let of = |family| {
            ALL.iter()
                .filter(|routine| routine.family == family)
                .count()
        };
        // One more gives several features at once.
        assert_eq!(
            (of(Family::Texture), of(Family::Order), of(Family::Noise)),
            (9, 4, 3)
        );
        assert_eq!(like("squaremedain"), ["SquareMedian"]);
        assert_eq!(like("coOccurMax"), ["CoOccurMax"]);
        assert!(like("Sobel").is_empty());
    }
}
