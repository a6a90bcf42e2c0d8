//! Reading an image from end to end, and comparing it with another one.

use crate::command::Verify;
use crate::graph::{Failure, Reading};
use crate::input::{Input, Wanted};
use pipt_raster::{Rect, Samples, each};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt;

/// Rows are read so many at a time.
const ROWS: u32 = 256;
/// Decoded samples that are kept, in bytes.
const CACHE: usize = 256 << 20;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    file: String,
    samples: u64,
    /// Samples without data.
    absent: u64,
    /// Of the samples' bytes, the lowest first, band by band, row by row.
    sha256: String,
    against: Option<Difference>,
}

/// How an image differs from another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Difference {
    /// Samples that differ by more than is allowed, or of which one has no data.
    count: u64,
    /// The greatest difference, and where it is: band, column, row.
    greatest: f64,
    place: Option<(u32, u32, u32)>,
}

impl Found {
    /// Whether it is as it should be.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.against.is_none_or(|difference| difference.count == 0)
    }

    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "file": self.file,
            "samples": self.samples,
            "without_data": self.absent,
            "sha256": self.sha256,
            "differ": self.against.map(|difference| difference.count),
            "greatest_difference": self.against.map(|difference| difference.greatest),
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            to,
            "{}: {} samples, {} of them without data\nSHA-256 of the samples: {}",
            self.file, self.samples, self.absent, self.sha256
        )?;
        match self.against {
            None => Ok(()),
            Some(Difference {
                count: 0, greatest, ..
            }) => {
                writeln!(to, "Equal; the greatest difference is {greatest}")
            }
            Some(Difference {
                count,
                greatest,
                place,
            }) => {
                write!(to, "{count} samples differ, by up to {greatest}")?;
                match place {
                    Some((band, x, y)) => writeln!(to, ": band {}, column {x}, row {y}", band + 1),
                    None => writeln!(to),
                }
            }
        }
    }
}

/// # Errors
///
/// A file cannot be read, or they are of different sizes.
pub fn verify(asked: &Verify) -> Result<Found, Failure> {
    let wanted = Wanted {
        cache: CACHE,
        ..Wanted::default()
    };
    let file = asked.file.display().to_string();
    let image = Input::open(&file, &wanted)?;
    let other = asked
        .against
        .as_ref()
        .map(|path| Input::open(&path.display().to_string(), &wanted));
    let other = other.transpose()?;
    let shape = image.shape();
    if let Some(other) = &other {
        let (own, its) = (shape.clone(), other.shape());
        if (own.size, own.bands.len()) != (its.size, its.bands.len()) {
            return Err(format!(
                "{file} has {} pixels and {} bands, the other one {} and {}",
                own.size,
                own.bands.len(),
                its.size,
                its.bands.len()
            )
            .into());
        }
    }
    let (mut sum, mut samples, mut absent) = (Sha256::new(), 0, 0);
    let mut difference = Difference::default();
    for band in 0..u32::try_from(shape.bands.len())? {
        for y in (0..shape.size.height).step_by(ROWS as usize) {
            let rows = Rect::new(0, y, shape.size.width, ROWS.min(shape.size.height - y));
            let part = image.part(band, rows)?;
            add(&mut sum, &part.samples);
            samples += part.samples.len() as u64;
            let there = part.there.iter().flatten().filter(|there| !**there);
            absent += there.count() as u64;
            if let Some(other) = &other {
                difference.take(asked, (band, rows), &part, &other.part(band, rows)?);
            }
        }
    }
    Ok(Found {
        file,
        samples,
        absent,
        sha256: sum
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        against: other.map(|_| difference),
    })
}

fn add(sum: &mut Sha256, samples: &Samples) {
    each!(samples, values => {
        for value in values {
            sum.update(value.to_le_bytes());
        }
    });
}

impl Difference {
    fn take(
        &mut self,
        asked: &Verify,
        (band, rows): (u32, Rect),
        own: &crate::graph::Part,
        other: &crate::graph::Part,
    ) {
        let is_there = |part: &crate::graph::Part, place: usize| {
            part.there.as_ref().is_none_or(|there| there[place])
        };
        let pairs = own.samples.to_f64().into_iter().zip(other.samples.to_f64());
        for (place, (a, b)) in pairs.enumerate() {
            let there = (is_there(own, place), is_there(other, place));
            let off = match there {
                (true, true) => (a - b).abs(),
                (false, false) => continue,
                _ => f64::INFINITY,
            };
            if a == b && there.0 == there.1 {
                continue;
            }
            let allowed = asked.relative * a.abs().max(b.abs()) + asked.absolute;
            // A difference that is no number is none that is allowed.
            self.count += u64::from(off.is_nan() || off > allowed);
            if off > self.greatest || self.place.is_none() {
                self.greatest = off;
                let width = (rows.width as usize).max(1);
                let at = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
                self.place = Some((band, at(place % width), rows.y + at(place / width)));
            }
        }
    }
}
