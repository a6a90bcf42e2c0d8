//! How old what nodes know of each other is, against `libgossip`'s formula.

use super::{Figure, Found, Limit};
use crate::cluster::{Cluster, Setting};
use crate::scenario;
use whim_balance::gossip::{RUMORS_MAX, expected_age};

/// Clusters of 128, 256 ... nodes, up to so many.
#[must_use]
pub(super) fn one(seed: u64, most: usize) -> Found {
    let sizes = std::iter::successors(Some(128usize), |nodes| Some(2 * nodes));
    let figure = |nodes: usize| {
        let setting = Setting::new(seed, scenario::equal(nodes), 200.0);
        let count = u32::try_from(nodes).unwrap_or(u32::MAX);
        let rumors = u32::try_from(RUMORS_MAX).unwrap_or(u32::MAX);
        let expected = expected_age(count, rumors);
        let measured = Cluster::new(setting).mean_age(120);
        let what = format!("{nodes} nodes: mean age, off the expected {expected:.2} s by");
        Figure::new(what, (measured / expected - 1.0).abs(), Limit::AtMost(0.2))
    };
    let sizes = sizes.take_while(|nodes| *nodes <= most.min(1024));
    (sizes.map(figure).collect(), Vec::new())
}
