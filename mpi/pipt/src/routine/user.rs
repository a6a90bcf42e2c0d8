//! Kernels of users, all as one routine.

use super::{EDGE, FILL, Family, Routine, VALUE, routine};
use crate::parameter::{Kind, Parameter};

/// It is not among the routines of the toolkit.
pub static USER: Routine = routine(
    Family::User,
    "User",
    "what a kernel makes of each pixel's window",
    &[
        Parameter {
            name: "kernel",
            kind: Kind::Text,
            default: None,
            about: "the name of a kernel that is registered, or PATH.so:SYMBOL for one in a library, as pipt-kernel.h \
                    describes it",
        },
        Parameter::new(
            "parameters",
            Kind::Numbers,
            "",
            "what the kernel is given beside the window",
        ),
        EDGE,
        VALUE,
        FILL,
    ],
);
