//! The routines by name: what each does, how many images it takes, and its parameters.
//!
//! The names are those of the Parallel Image Processing Toolkit of 1995 to 2000, as far as they are known;
//! its parameters are not, so these are ours.

use crate::parameter::{Kind, Parameter};

mod edges;
mod geometry;
mod histogram;
mod means;
mod morphology;
mod noise;
mod order;
mod points;
mod texture;
mod user;

pub use texture::FEATURES;
pub use user::USER;

/// A routine, as `pipt list` shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routine {
    pub name: &'static str,
    pub family: Family,
    pub about: &'static str,
    /// How many images it is made of.
    pub images: usize,
    /// How many more it may be given.
    pub optional: usize,
    pub parameters: &'static [Parameter],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Texture,
    Order,
    Morphology,
    Means,
    Edges,
    Points,
    Histogram,
    Geometry,
    Noise,
    /// Kernels of users.
    User,
}

impl Family {
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Texture => "Texture: grey-level co-occurrence in a window around each pixel",
            Self::Order => "Order statistics: the samples of a window, sorted",
            Self::Morphology => "Morphology: least and greatest samples, of bright and dark spots",
            Self::Means => "Means and smoothing: each pixel from those around it",
            Self::Edges => "Edges and sharpening: how samples change from pixel to pixel",
            Self::Points => {
                "Point operations: each sample by itself, or with that of another image"
            }
            Self::Histogram => "Histograms and measures: what is found from the whole image",
            Self::Geometry => "Geometry: pixels in other places",
            Self::Noise => "Noise: the same for each pixel, however the work is divided",
            Self::User => {
                "Kernels of users: what a registered or compiled kernel makes of a window"
            }
        }
    }
}

/// The routine of this name.
#[must_use]
pub fn of(name: &str) -> Option<&'static Routine> {
    listed().find(|routine| routine.name == name)
}

/// A name with more wrong letters is another one.
const MISTYPED: usize = 2;

/// The names that are nearest to this one, for who mistyped it.
#[must_use]
pub fn like(name: &str) -> Vec<&'static str> {
    let lower = name.to_lowercase();
    let far = |routine: &Routine| distance(&routine.name.to_lowercase(), &lower);
    let nearest = listed().map(far).min().filter(|far| *far <= MISTYPED);
    let near = listed().filter(|routine| Some(far(routine)) == nearest);
    near.map(|routine| routine.name).collect()
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
const FILL: Parameter = Parameter::new(
    "fill",
    Kind::YesNo,
    "no",
    "whether a pixel without data is given a value, where its window has some",
);
/// A deviation of more pixels would make windows of a thousand.
const SIGMA: Parameter = Parameter::new(
    "sigma",
    Kind::Number(0.1, 100.0),
    "1",
    "the standard deviation of the normal distribution, in pixels",
);

const TRUNCATE: Parameter = Parameter::new(
    "truncate",
    Kind::Number(1.0, 8.0),
    "4",
    "after how many standard deviations weights are 0",
);

/// One that is made of one image.
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
        images: 1,
        optional: 0,
        parameters,
    }
}

/// All of them, by family.
pub fn all() -> impl Iterator<Item = &'static Routine> {
    let families = [
        texture::ALL,
        order::ALL,
        morphology::ALL,
        means::ALL,
        edges::ALL,
        points::ALL,
        histogram::ALL,
        geometry::ALL,
        noise::ALL,
    ];
    families.into_iter().flatten()
}

/// All of them, and that which runs kernels of users.
pub fn listed() -> impl Iterator<Item = &'static Routine> {
    all().chain([&USER])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Values;

    #[test]
    fn defaults_are_what_may_be_given() {
        for routine in all() {
            // Those without a default have to be given.
            let given = routine.parameters.iter().filter(|p| p.default.is_some());
            let given: Vec<Parameter> = given.copied().collect();
            let values = Values::read(&given, []);
            assert!(values.is_ok(), "{}: {values:?}", routine.name);
            let mut names: Vec<&str> = routine.parameters.iter().map(|p| p.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), routine.parameters.len(), "{}", routine.name);
        }
    }

    #[test]
    fn all_routines_are_there() {
        let of = |family| all().filter(|routine| routine.family == family).count();
        // One more gives several features at once.
        assert_eq!(of(Family::Texture), 8 + 1);
        assert_eq!(of(Family::Order), 4 + 6);
        assert_eq!(of(Family::Noise), 3 + 3);
        assert_eq!(of(Family::Means), 7);
        assert_eq!(of(Family::Edges), 9);
        assert_eq!(of(Family::Points), 11);
        assert_eq!(of(Family::Histogram), 4 + 1);
        assert_eq!(of(Family::Morphology), 4);
        assert_eq!(of(Family::Geometry), 3);
        assert_eq!(all().count(), 63 + 1);
    }

    #[test]
    fn names_are_guessed() {
        assert_eq!(like("squaremedan"), ["SquareMedian", "SquareMean"]);
        assert_eq!(like("crossmedia"), ["CrossMedian"]);
        assert_eq!(like("coOccurMax"), ["CoOccurMax"]);
        assert!(like("Cubism").is_empty());
    }
}
