//! Edges and sharpening.

use super::{EDGE, Family, Routine, SIGMA, TRUNCATE, VALUE, routine};
use crate::parameter::{Kind, Parameter};

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Edges,
        "Sobel",
        "the length of the gradient by -1 0 1/-2 0 2/-1 0 1 and the same of rows, as floats",
        &[EDGE, VALUE],
    ),
    routine(
        Family::Edges,
        "Prewitt",
        "the length of the gradient by -1 0 1/-1 0 1/-1 0 1 and the same of rows, as floats",
        &[EDGE, VALUE],
    ),
    routine(
        Family::Edges,
        "Roberts",
        "the length of both differences across the corner to the right below, as floats (Roberts 1965)",
        &[EDGE, VALUE],
    ),
    routine(
        Family::Edges,
        "Kirsch",
        "the greatest of eight sums by 5 5 5/-3 0 -3/-3 -3 -3, turned (Kirsch 1971), as floats",
        &[EDGE, VALUE],
    ),
    routine(
        Family::Edges,
        "Laplacian",
        "the sum of neighbours less as many times the sample, as floats",
        &[
            Parameter::new(
                "neighbours",
                Kind::Choice(&["4", "8"]),
                "4",
                "those at the sides, or those at the corners too",
            ),
            EDGE,
            VALUE,
        ],
    ),
    routine(
        Family::Edges,
        "LaplacianOfGaussian",
        "the second derivatives of the smoothed image in both directions, added (Marr, Hildreth 1980), as floats",
        &[SIGMA, TRUNCATE, EDGE, VALUE],
    ),
    routine(
        Family::Edges,
        "UnsharpMask",
        "the sample and so many times its difference from the smoothed image",
        &[
            SIGMA,
            TRUNCATE,
            Parameter::new("amount", Kind::Number(0.0, 1e6), "1", "how many times"),
            Parameter::new(
                "threshold",
                Kind::Number(0.0, f64::MAX),
                "0",
                "differences below it change nothing",
            ),
            EDGE,
            VALUE,
        ],
    ),
    routine(
        Family::Edges,
        "Convolve",
        "the convolution with weights of one's own, as floats: they are turned by half a circle before they are laid on \
         the image",
        &[
            Parameter {
                name: "kernel",
                kind: Kind::Text,
                default: None,
                about: "rows separated by /, their numbers by commas, as 1,2,1/2,4,2/1,2,1: an odd number of rows and of \
                        columns, 63 at the most",
            },
            Parameter::new(
                "divide",
                Kind::Number(f64::MIN, f64::MAX),
                "1",
                "what sums are divided by",
            ),
            EDGE,
            VALUE,
        ],
    ),
    routine(
        Family::Edges,
        "Canny",
        "1 where an edge is, one pixel wide, else 0, as bytes (Canny 1986): gradients by Sobel, in four directions",
        &[
            Parameter {
                name: "low",
                kind: Kind::Number(0.0, f64::MAX),
                default: None,
                about: "an edge goes on where Sobel's gradient is longer",
            },
            Parameter {
                name: "high",
                kind: Kind::Number(0.0, f64::MAX),
                default: None,
                about: "and has a pixel where it is longer than this",
            },
            Parameter::new(
                "sigma",
                Kind::Number(0.0, 100.0),
                "1",
                "the standard deviation in pixels by which the image is smoothed before; 0: not at all",
            ),
            TRUNCATE,
            EDGE,
            VALUE,
        ],
    ),
];
