//! Point operations: each sample by itself, or with that of another image.

use super::{Family, Routine, routine};
use crate::parameter::{Kind, Parameter};

const ANY: Kind = Kind::Number(f64::MIN, f64::MAX);

const TYPE: Parameter = Parameter::new(
    "type",
    Kind::Choice(&[
        "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64",
    ]),
    "",
    "of the result; that of the first image without it",
);

const RANGE: Parameter = Parameter::new(
    "range",
    Kind::Range(&["type"]),
    "type",
    "from which number to which: all of the type, of floats 0:1; or LEAST:MOST",
);

const LEAST: Parameter = Parameter::new(
    "least",
    ANY,
    "",
    "the lower limit; without it there is none",
);
const MOST: Parameter =
    Parameter::new("most", ANY, "", "the upper limit; without it there is none");

/// One that is made of two images.
const fn of_two(
    name: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
) -> Routine {
    Routine {
        images: 2,
        ..routine(Family::Points, name, about, parameters)
    }
}

/// All of them.
pub(super) const ALL: &[Routine] = &[
    of_two(
        "Add",
        "the sum of two images; one of a single band goes with each band of the first",
        &[TYPE],
    ),
    of_two("Subtract", "the first image less the second", &[TYPE]),
    of_two("Multiply", "the product of two images", &[TYPE]),
    of_two(
        "Divide",
        "the first image divided by the second",
        &[
            TYPE,
            Parameter::new(
                "by-zero",
                ANY,
                "",
                "what a quotient by 0 is; without it there is no data",
            ),
        ],
    ),
    of_two(
        "AndOrXor",
        "the bits of two images of whole numbers",
        &[
            Parameter::new(
                "bits",
                Kind::Choice(&["and", "or", "xor"]),
                "and",
                "those that both have; either has; only one has",
            ),
            TYPE,
        ],
    ),
    routine(
        Family::Points,
        "Invert",
        "bright becomes dark: least + most - sample",
        &[RANGE],
    ),
    routine(
        Family::Points,
        "LogExp",
        "logarithms or powers, as floats; of what is not above 0 there is no logarithm, and so no data",
        &[
            Parameter::new(
                "function",
                Kind::Choice(&["log", "exp"]),
                "log",
                "the logarithm, or the power of the base",
            ),
            Parameter::new("base", Kind::Choice(&["e", "2", "10"]), "e", "of both"),
        ],
    ),
    routine(
        Family::Points,
        "Gamma",
        "least + (most - least) * ((sample - least) / (most - least))^gamma",
        &[
            Parameter::new(
                "gamma",
                Kind::Number(1e-6, 1e6),
                "1",
                "the power: below 1 dark places become brighter",
            ),
            RANGE,
        ],
    ),
    routine(
        Family::Points,
        "Threshold",
        "1 for samples from the lower to the upper limit, else 0, as bytes",
        &[LEAST, MOST],
    ),
    routine(
        Family::Points,
        "Clip",
        "what is beyond a limit becomes the limit",
        &[LEAST, MOST],
    ),
    routine(
        Family::Points,
        "Quantise",
        "equal steps",
        &[
            Parameter::new("levels", Kind::Whole(1, 65_536), "16", "how many"),
            RANGE,
            Parameter::new(
                "as",
                Kind::Choice(&["number", "middle"]),
                "number",
                "the number of the step, from 0, as 8 or 16 bits; or what lies in its middle, as the image's type",
            ),
        ],
    ),
];
