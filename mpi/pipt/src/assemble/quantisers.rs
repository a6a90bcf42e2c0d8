//! How the samples of an image become grey levels: by one rule for the whole of it, never for a part.

use super::look::Look;
use super::{AssembleError, Setting, thresholds};
use crate::graph::{Graph, Part};
use crate::parameter::{Value, Values};
use crate::survey::{Extent, Ranks};
use pipt_raster::{Sample, SampleType, of_type};
use pipt_simd::texture::{QuantiseError, Quantiser};
use std::sync::{Mutex, PoisonError};

/// One for each band of a node.
pub(super) fn quantisers(
    graph: &Graph,
    node: usize,
    values: &Values,
    setting: &Setting<'_>,
) -> Result<Vec<Quantiser>, AssembleError> {
    let bands = graph.shape(node).bands.len();
    let kind = graph.shape(node).kind;
    let levels = values
        .whole("levels")
        .and_then(|levels| u32::try_from(levels).ok())
        .unwrap_or(64);
    let all = |one: Result<Quantiser, QuantiseError>| {
        one.map(|one| vec![one; bands])
            .map_err(AssembleError::Levels)
    };
    if let Some(name) = values.word("thresholds") {
        return thresholds::read(name, bands);
    }
    match values.get("range") {
        Some(Value::Range(least, most)) => all(Quantiser::equal(*least, *most, levels)),
        Some(Value::Word(word)) if word == "type" => {
            let (least, most) = numbers_of(kind).ok_or(AssembleError::NoRange)?;
            all(Quantiser::equal(least, most, levels))
        }
        Some(Value::Word(word)) if word == "quantiles" => {
            let found = quantiles(graph, node, levels, setting)?;
            let quantisers = found.iter().map(|bounds| match bounds.is_empty() {
                // There is one number, or none.
                true => Quantiser::equal(0.0, 1.0, levels),
                false => Quantiser::bounds(bounds),
            });
            quantisers
                .collect::<Result<_, _>>()
                .map_err(AssembleError::Levels)
        }
        _ => {
            let extents = extents(graph, node, setting)?;
            let quantisers = extents.iter().map(|extent| {
                let (least, most) = extent.least.zip(extent.greatest).unwrap_or((0.0, 1.0));
                // All the same: any range has it in one level.
                let most = if least < most {
                    most
                } else {
                    least + least.abs().max(1.0)
                };
                Quantiser::equal(least, most, levels)
            });
            quantisers
                .collect::<Result<_, _>>()
                .map_err(AssembleError::Levels)
        }
    }
}

/// The least and the greatest number of a type of whole numbers.
pub(super) fn numbers_of(kind: SampleType) -> Option<(f64, f64)> {
    fn of<T: Sample>() -> (f64, f64) {
        (T::of_f64(f64::MIN).to_f64(), T::of_f64(f64::MAX).to_f64())
    }
    (!kind.is_float()).then(|| of_type!(kind, T => of::<T>()))
}

pub(super) fn extents(
    graph: &Graph,
    node: usize,
    setting: &Setting<'_>,
) -> Result<Vec<Extent>, AssembleError> {
    let look = Look {
        all: Mutex::new(vec![Extent::default(); graph.shape(node).bands.len()]),
        fresh: |_: &Extent| Extent::default(),
        take: |extent: &mut Extent, part: &Part| extent.take(&part.samples, part.there.as_deref()),
        join: |all: &mut Extent, one: &Extent| all.join(one),
    };
    look.through(graph, node, setting)?;
    Ok(look
        .all
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

/// Of each band the samples before which so many parts of all lie, each once.
fn quantiles(
    graph: &Graph,
    node: usize,
    levels: u32,
    setting: &Setting<'_>,
) -> Result<Vec<Vec<f64>>, AssembleError> {
    let kind = graph.shape(node).kind;
    let extents = extents(graph, node, setting)?;
    let ranks = extents.iter().map(|extent| {
        let (count, levels) = (u128::from(extent.count), u128::from(levels));
        let rank = |level: u128| u64::try_from(level * count / levels).unwrap_or(u64::MAX);
        let ranks: Vec<u64> = match count {
            0 => Vec::new(),
            _ => (1..levels).map(rank).collect(),
        };
        Ranks::new(kind.bytes(), &ranks)
    });
    let found = ranked(graph, node, ranks.collect(), setting)?;
    let of = |(ranks, extent): (&Ranks, &Extent)| bounds(kind, ranks, extent);
    Ok(found.iter().zip(&extents).map(of).collect())
}

/// The samples of these ranks, of each band.
pub(super) fn ranked(
    graph: &Graph,
    node: usize,
    ranks: Vec<Ranks>,
    setting: &Setting<'_>,
) -> Result<Vec<Ranks>, AssembleError> {
    let look = Look {
        all: Mutex::new(ranks),
        fresh: Ranks::fresh,
        take: |ranks: &mut Ranks, part: &Part| ranks.take(&part.samples, part.there.as_deref()),
        join: |all: &mut Ranks, one: &Ranks| all.join(one),
    };
    loop {
        let mut all = look.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(Ranks::wants_more) {
            return Ok(all.clone());
        }
        drop(all);
        look.through(graph, node, setting)?;
        all = look.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut()
            .filter(|ranks| ranks.wants_more())
            .for_each(Ranks::next);
    }
}

/// The samples that were found, as numbers.
pub(super) fn numbers(kind: SampleType, ranks: &Ranks) -> impl Iterator<Item = f64> {
    fn value<T: Sample>(key: u64) -> f64 {
        T::of_key(key).to_f64()
    }
    ranks
        .keys()
        .map(move |key| of_type!(kind, T => value::<T>(key)))
}

/// Bounds of levels: those that are as low as all samples would make a level of which nothing is.
fn bounds(kind: SampleType, ranks: &Ranks, extent: &Extent) -> Vec<f64> {
    let mut bounds: Vec<f64> = numbers(kind, ranks).collect();
    bounds.retain(|bound| extent.least.is_some_and(|least| *bound > least));
    bounds.dedup();
    bounds
}
