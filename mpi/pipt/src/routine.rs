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

const fn parameter(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        default: Some(default),
        about,
    }
}

const EDGE: Parameter = parameter(
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

const VALUE: Parameter = parameter(
    "value",
    Kind::Number(f64::MIN, f64::MAX),
    "0",
    "the sample beyond the edge, with edge=constant",
);

/// What all texture routines take; those of one feature have another one behind them.
macro_rules! texture {
    ($($more:expr),*) => {
        &[
            parameter("window", Kind::Odd(3, 63), "9", "pixels to a side of the window"),
            parameter("levels", Kind::Whole(2, 65_536), "64", "grey levels to which samples are reduced"),
            parameter(
                "range",
                Kind::Range(&["minmax", "quantiles", "type"]),
                "minmax",
                "what is divided into levels: from the least to the greatest sample of the whole image, in \
                 equal steps (minmax) or so that all levels are as frequent (quantiles); all numbers of the \
                 type; or LEAST:MOST",
            ),
            parameter("thresholds", Kind::Text, "", "a file of thresholds, a number a line, instead of a range"),
            parameter("offsets", Kind::Offsets, "1:0,1:1,0:1,-1:1", "from one pixel of a pair to the other"),
            parameter(
                "pairs",
                Kind::Choice(&["inside", "reach"]),
                "inside",
                "whether both pixels of a pair lie in the window, or only the first has to",
            ),
            parameter(
                "combine",
                Kind::Choice(&["mean", "sum", "separate"]),
                "mean",
                "of several offsets: the mean of their features; those of all pairs together; or each by itself",
            ),
            parameter("symmetric", Kind::YesNo, "yes", "whether a pair counts both ways"),
            parameter(
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

const EXPONENT: Parameter = parameter(
    "exponent",
    Kind::Whole(1, 4),
    "2",
    "the power of the distance between two levels",
);

const MOMENT: Parameter = parameter(
    "moment",
    Kind::Choice(&["haralick", "gonzalez"]),
    "haralick",
    "P / (1 + (i - j)^2); or P / |i - j|^2 of those that differ",
);

const CLUSTER: Parameter = parameter(
    "cluster",
    Kind::Whole(2, 4),
    "2",
    "the power: 2 is the tendency, 3 the shade, 4 the prominence",
);

const LOGARITHM: Parameter = parameter(
    "logarithm",
    Kind::Choice(&["2", "e"]),
    "2",
    "the base of the logarithm",
);

/// The eight features of the toolkit, and Haralick's others (Haralick, Shanmugam, Dinstein 1973).
pub const FEATURES: [&str; 17] = [
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
];

const SIZE: Parameter = parameter(
    "size",
    Kind::Odd(1, 255),
    "3",
    "pixels to a side of the window",
);
const ARMS: Parameter = parameter(
    "size",
    Kind::Odd(1, 255),
    "3",
    "pixels across the cross, each way",
);
const TRIM: Parameter = parameter(
    "trim",
    Kind::Number(0.0, 0.5),
    "0.1",
    "the part of the samples that is left out at each end",
);
const FILL: Parameter = parameter(
    "fill",
    Kind::YesNo,
    "no",
    "whether a pixel without data is given a value, where its window has some",
);
const BANDS: Parameter = parameter(
    "seed",
    Kind::Whole(0, u64::MAX),
    "0",
    "another seed is other noise",
);

macro_rules! order {
    ($($first:expr),*) => { &[$($first,)* EDGE, VALUE, FILL] };
}

const fn texture(
    name: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
) -> Routine {
    Routine {
        name,
        family: Family::Texture,
        about,
        parameters,
    }
}

const fn order(
    name: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
) -> Routine {
    Routine {
        name,
        family: Family::Order,
        about,
        parameters,
    }
}

const fn noise(
    name: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
) -> Routine {
    Routine {
        name,
        family: Family::Noise,
        about,
        parameters,
    }
}

/// All of them, by family.
pub const ALL: &[Routine] = &[
    texture(
        "CoOccur",
        "several features at once, a band for each",
        texture!(
            parameter(
                "features",
                Kind::Words(&FEATURES),
                "max,energy,contrast,inverse-moment,homogeneity,correlation,entropy,cluster",
                "which, in the order of the bands",
            ),
            EXPONENT,
            MOMENT,
            CLUSTER,
            LOGARITHM
        ),
    ),
    texture("CoOccurMax", "the greatest probability, max P", texture!()),
    texture("CoOccurEnergy", "sum of P^2", texture!()),
    texture("CoOccurContrast", "sum of |i - j|^k P", texture!(EXPONENT)),
    texture(
        "CoOccurInverseMoment",
        "sum of P / (1 + (i - j)^2)",
        texture!(MOMENT),
    ),
    texture("CoOccurHomogeneity", "sum of P / (1 + |i - j|)", texture!()),
    texture(
        "CoOccurCorrelation",
        "sum of (i - mean)(j - mean) P / variance",
        texture!(),
    ),
    texture("CoOccurEntropy", "- sum of P log P", texture!(LOGARITHM)),
    texture(
        "CoOccurCluster",
        "sum of (i + j - 2 mean)^k P",
        texture!(CLUSTER),
    ),
    order("SquareMedian", "the median of a square", order!(SIZE)),
    order("CrossMedian", "the median of a cross", order!(ARMS)),
    order(
        "ATrimmedSqMean",
        "the mean of a square's samples but the least and the greatest",
        order!(SIZE, TRIM),
    ),
    order(
        "ATrimmedCrMean",
        "the mean of a cross's samples but the least and the greatest",
        order!(ARMS, TRIM),
    ),
    noise(
        "AddUniform",
        "adds numbers between two limits",
        &[
            parameter(
                "least",
                Kind::Number(f64::MIN, f64::MAX),
                "-10",
                "the lower limit",
            ),
            parameter(
                "most",
                Kind::Number(f64::MIN, f64::MAX),
                "10",
                "the upper limit",
            ),
            BANDS,
        ],
    ),
    noise(
        "AddGaussian",
        "adds normally distributed numbers",
        &[
            parameter("mean", Kind::Number(f64::MIN, f64::MAX), "0", "their mean"),
            parameter(
                "deviation",
                Kind::Number(0.0, f64::MAX),
                "10",
                "their standard deviation",
            ),
            BANDS,
        ],
    ),
    noise(
        "AddBitError",
        "turns bits round",
        &[
            parameter("probability", Kind::Number(0.0, 1.0), "0.01", "of each bit"),
            BANDS,
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
