//! What routines for means and smoothing ask for.

use super::histogram::moments;
use super::{AssembleError, Assembled, Image, Setting, edge};
use crate::operation::{Edge, Kernel, Mean, Means, gaussian};
use crate::parameter::Values;
use crate::routine::Routine;
use pipt_raster::SampleType;

impl Assembled {
    pub(super) fn means(
        &mut self,
        routine: &Routine,
        of: &Image,
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let size = side(values);
        let half = size / 2;
        let mean = match routine.name {
            "CrossMean" => Mean::Weighted(Kernel::cross(size)),
            "GaussianSmooth" => Mean::Weighted(smoothing(values)),
            "GeometricMean" => Mean::Geometric(Kernel::square(size)),
            "HarmonicMean" => Mean::Harmonic(Kernel::square(size)),
            "SigmaFilter" => Mean::Near {
                half,
                within: values.number("within").unwrap_or(0.0),
            },
            "AdaptiveWiener" => Mean::Wiener {
                half,
                noise: match values.number("noise") {
                    Some(noise) => vec![noise],
                    None => return self.adaptive(of, values, setting),
                },
            },
            _ => Mean::Weighted(Kernel::square(size)),
        };
        self.mean(of, values, mean)
    }

    /// Adds an image of the same type.
    pub(super) fn mean(
        &mut self,
        of: &Image,
        values: &Values,
        mean: Mean,
    ) -> Result<Image, AssembleError> {
        let shape = self.graph.shape(of.node).clone();
        let edge = edge(values);
        let means = Means {
            mean,
            edge,
            fill: values.flag("fill"),
            kind: shape.kind,
        };
        let has_holes = of.has_holes || edge == Edge::Nodata;
        let image = Image {
            has_holes,
            ..of.clone()
        };
        self.same(image, shape, Box::new(means))
    }

    /// With the mean of all variances for the noise's, of each band by itself.
    fn adaptive(
        &mut self,
        of: &Image,
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let half = side(values) / 2;
        let variance = Means {
            mean: Mean::Variance { half },
            edge: edge(values),
            fill: false,
            kind: SampleType::F64,
        };
        let variances = self.other(&[of], SampleType::F64, Box::new(variance))?;
        let moments = moments(&self.graph, variances.node, setting)?;
        let noise = moments.iter().map(|moments| moments.mean).collect();
        self.mean(of, values, Mean::Wiener { half, noise })
    }
}

fn side(values: &Values) -> usize {
    let size = values.whole("size");
    size.and_then(|size| usize::try_from(size).ok())
        .unwrap_or(3)
}

/// The weights of the normal distribution that is asked for.
pub(super) fn smoothing(values: &Values) -> Kernel {
    let weights = bell(values, false);
    Kernel::Product {
        across: weights.clone(),
        down: weights,
    }
}

pub(super) fn bell(values: &Values, is_second: bool) -> Vec<f64> {
    let number = |name: &str, default: f64| values.number(name).unwrap_or(default);
    gaussian(number("sigma", 1.0), number("truncate", 4.0), is_second)
}
