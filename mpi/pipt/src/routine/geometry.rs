//! Pixels in other places.

use super::{Family, Routine, routine};
use crate::parameter::{Kind, Parameter};

/// Longer sides no file has.
const SIDE: Kind = Kind::Whole(1, 1 << 30);

/// All of them.
pub(super) const ALL: &[Routine] = &[
    routine(
        Family::Geometry,
        "Crop",
        "a rectangle of an image, which keeps its place on the map",
        &[
            Parameter::new(
                "x",
                Kind::Whole(0, 1 << 30),
                "0",
                "its first column, from 0",
            ),
            Parameter::new("y", Kind::Whole(0, 1 << 30), "0", "its first row, from 0"),
            Parameter::new("width", SIDE, "", "its columns; all that follow without it"),
            Parameter::new("height", SIDE, "", "its rows; all that follow without it"),
        ],
    ),
    routine(
        Family::Geometry,
        "FlipRotate90",
        "turned by quarters of a circle, or mirrored",
        &[Parameter::new(
            "how",
            Kind::Choice(&[
                "90",
                "180",
                "270",
                "left-right",
                "top-bottom",
                "transpose",
                "transverse",
            ]),
            "90",
            "degrees clockwise; or which ends change places; or columns with rows, over either diagonal",
        )],
    ),
    routine(
        Family::Geometry,
        "Resample",
        "in more or fewer pixels, each a weighted mean; what lies beyond the edge does not count",
        &[
            Parameter::new("width", SIDE, "", "columns of the result"),
            Parameter::new(
                "height",
                SIDE,
                "",
                "rows of the result; one of both gives the other one",
            ),
            Parameter::new(
                "factor",
                Kind::Number(1e-6, 1e6),
                "",
                "instead of these: by what columns and rows are multiplied",
            ),
            Parameter::new(
                "method",
                Kind::Choice(&["nearest", "average", "linear", "cubic", "lanczos"]),
                "cubic",
                "which pixels count: the nearest; those that a pixel covers; those within 1, 2 or 3 pixels, or as many \
                 of the new ones where these are larger",
            ),
        ],
    ),
];
