//! Histograms and measures: what is found from a whole image, and what its samples become by that.

use super::{Family, Routine, routine};
use crate::parameter::{Kind, Parameter};

const BINS: Parameter = Parameter::new(
    "bins",
    Kind::Whole(2, 1 << 24),
    "65536",
    "equal steps from the least to the greatest sample in which samples of more than 16 bits, and floats, are counted; \
     others are counted by number",
);

const RESULT: Parameter = Parameter::new(
    "result",
    Kind::Range(&["type"]),
    "type",
    "between which numbers the results lie: all of the type, of floats 0:1; or LEAST:MOST",
);

const TABLE: Parameter = Parameter {
    name: crate::job::WRITE_TABLE,
    kind: Kind::Text,
    default: None,
    about: "the file of comma-separated values that is written; the image goes on as it is",
};

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Histogram,
        "Histogram",
        "how many samples lie in each of equal steps, as a table",
        &[
            TABLE,
            Parameter::new("bins", Kind::Whole(1, 1 << 24), "256", "how many steps"),
            Parameter::new(
                "range",
                Kind::Range(&["minmax", "type"]),
                "minmax",
                "from the least to the greatest sample; all numbers of the type; or LEAST:MOST. The greatest belongs \
                 to the last step",
            ),
        ],
    ),
    routine(
        Family::Histogram,
        "HistEqualise",
        "all numbers as frequent as each other, as far as that goes without parting equal ones",
        &[RESULT, BINS],
    ),
    Routine {
        images: 2,
        ..routine(
            Family::Histogram,
            "HistMatch",
            "samples as frequent as in a second image, which may have any size",
            &[BINS],
        )
    },
    routine(
        Family::Histogram,
        "ContrastStretch",
        "in proportion, so that samples fill a range",
        &[
            RESULT,
            Parameter::new(
                "range",
                Kind::Range(&["percent"]),
                "percent",
                "what becomes the least and the greatest result: samples by percent=, or LEAST:MOST",
            ),
            Parameter::new(
                "percent",
                Kind::Number(0.0, 50.0),
                "0",
                "how many of all samples lie below, and as many above: 0 is from the least to the greatest",
            ),
        ],
    ),
    Routine {
        optional: 1,
        ..routine(
            Family::Histogram,
            "Stats",
            "count, least, greatest, mean and standard deviation as a table; with a second image also the mean squared \
             difference and the peak signal-to-noise ratio",
            &[
                TABLE,
                Parameter::new(
                    "peak",
                    Kind::Number(0.0, f64::MAX),
                    "",
                    "of the signal, in decibels of whose square to the mean squared difference the ratio is; without it \
                     the greatest number of the type, of floats 1",
                ),
            ],
        )
    },
];
