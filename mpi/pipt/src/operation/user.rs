//! A kernel of a user as an operation.

use super::{Edge, around, without_edges};
use crate::graph::{Failure, Given, Operation, Part};
use crate::kernel::{Kernel, Made, Window};
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Samples, Size, each, of_type};
use std::sync::Arc;

/// A kernel, and how it is run.
pub struct User {
    pub kernel: Arc<dyn Kernel>,
    /// For messages.
    pub name: String,
    pub parameters: Vec<f64>,
    pub edge: Edge,
    /// Whether a pixel without data is given what the kernel makes of it.
    pub fill: bool,
    /// Of the result.
    pub kind: SampleType,
}

/// Samples as a kernel takes them: of what is not there NaN, or 0 where there is none.
fn taken<T: Sample>(values: Vec<T>, there: &[bool], takes: Option<SampleType>) -> Samples
where
    Samples: From<Vec<T>>,
{
    let kind = takes.unwrap_or(T::TYPE);
    if kind != T::TYPE {
        return of_type!(kind, U => {
            let both = values.iter().zip(there);
            let converted = both.map(|(value, there)| U::of_f64(if *there { value.to_f64() } else { f64::NAN }));
            converted.collect::<Vec<U>>().into()
        });
    }
    let mut values = values;
    let missing = values.iter_mut().zip(there).filter(|(_, there)| !**there);
    missing.for_each(|(value, _)| *value = T::of_f64(f64::NAN));
    values.into()
}

impl User {
    fn wrong(&self, what: &str) -> Failure {
        format!("The kernel {} gives {what}", self.name).into()
    }

    /// What a kernel has made, with data where there can be some.
    fn part(&self, given: &Given<'_>, made: Made, middle: &[bool]) -> Result<Part, Failure> {
        if made.samples.kind() != self.kind {
            let what = format!(
                "samples of {}, and not of {}",
                made.samples.kind(),
                self.kind
            );
            return Err(self.wrong(&what));
        }
        let flags = made.there.as_ref().map_or(middle.len(), Vec::len);
        if made.samples.len() != middle.len() || flags != middle.len() {
            let what = format!("{} samples for {} pixels", made.samples.len(), middle.len());
            return Err(self.wrong(&what));
        }
        let mut there = made.there.unwrap_or_else(|| middle.to_vec());
        if !self.fill {
            there
                .iter_mut()
                .zip(middle)
                .for_each(|(there, middle)| *there &= middle);
        }
        if self.kind.is_float() {
            each!(&made.samples, values => {
                there.iter_mut().zip(values).for_each(|(there, value)| *there &= !value.is_nan());
            });
        }
        if self.edge == Edge::Nodata {
            without_edges(given, self.halo(), &mut there);
        }
        Ok(Part {
            samples: made.samples,
            there: there.contains(&false).then_some(there),
        })
    }
}

impl Operation for User {
    fn halo(&self) -> Halo {
        let (across, down) = self.kernel.halo();
        Halo {
            left: across,
            right: across,
            above: down,
            below: down,
        }
    }

    fn outputs(&self) -> usize {
        self.kernel.bands().len()
    }

    fn scratch(&self, wanted: Size, kind: SampleType) -> u64 {
        let around = wanted.grown(self.halo()).pixels();
        let taken = self.kernel.takes().unwrap_or(kind).bytes() as u64;
        let flags = wanted.pixels() * (self.outputs() as u64 * 2 + 1);
        around * (kind.bytes() as u64 + taken + 2) + flags + self.kernel.scratch(wanted.pixels())
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let halo = self.halo();
        let (samples, there) = each!(&given.part.samples, values => {
            let around = around(given, values, halo, self.edge)?;
            let mut there = around.there.unwrap_or_else(|| vec![true; around.samples.len()]);
            let both = there.iter_mut().zip(&around.samples);
            both.for_each(|(there, value)| *there &= !value.is_nan());
            (taken(around.samples, &there, self.kernel.takes()), there)
        });
        let wanted = given.wanted;
        let stride = (wanted.width + halo.left + halo.right) as usize;
        let rows = there.chunks_exact(stride.max(1)).skip(halo.above as usize);
        let columns = halo.left as usize..(halo.left + wanted.width) as usize;
        let middle = rows
            .take(wanted.height as usize)
            .flat_map(|row| row[columns.clone()].iter().copied());
        let middle: Vec<bool> = middle.collect();
        let made = self.kernel.run(&Window {
            samples: &samples,
            there: &there,
            halo: (halo.left, halo.above),
            wanted,
            size: given.size,
            band: given.band,
            parameters: &self.parameters,
        })?;
        if made.len() != self.outputs() {
            let what = format!("{} bands, and not {}", made.len(), self.outputs());
            return Err(self.wrong(&what));
        }
        made.into_iter()
            .map(|made| self.part(given, made, &middle))
            .collect()
    }
}
