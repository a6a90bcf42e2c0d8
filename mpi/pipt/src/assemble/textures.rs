//! What the texture routines ask the kernels for.

use super::{AssembleError, Assembled, Image, Setting, edge, quantisers, thresholds};
use crate::graph::Shape;
use crate::job::WRITE_THRESHOLDS;
use crate::operation::Texture;
use crate::parameter::{Value, Values};
use crate::routine::{FEATURES, Routine};
use pipt_raster::SampleType;
use pipt_simd::texture::{Combine, Feature, Logarithm, Offset, Pairs, Parameters};

/// OTB's own offset, if none is given.
const OTB_OFFSET: Offset = Offset { dx: 1, dy: 1 };

impl Assembled {
    pub(super) fn texture(
        &mut self,
        routine: &Routine,
        of: &Image,
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let quantisers = quantisers::quantisers(&self.graph, of.node, values, setting)?;
        if let Some(name) = values.word(WRITE_THRESHOLDS) {
            let text = thresholds::text(name, &quantisers)?;
            self.texts.push((name.to_owned(), text));
        }
        let levels = quantisers.iter().map(|one| one.levels()).max().unwrap_or(2);
        let parameters = parameters(routine, values, levels);
        let texture = Texture::new(&parameters, edge(values), quantisers);
        let texture = texture.map_err(AssembleError::Texture)?;
        let shape = self.graph.shape(of.node);
        let names = texture.names().iter();
        let name = |band: &str, feature: &str| match band {
            "" => feature.to_owned(),
            band => format!("{band}: {feature}"),
        };
        let bands: Vec<String> = shape
            .bands
            .iter()
            .flat_map(|band| names.clone().map(move |feature| name(band, feature)))
            .collect();
        let bounds = bounds(&parameters).into_iter().cycle().take(bands.len());
        let made = Shape {
            size: shape.size,
            kind: SampleType::F32,
            nodata: Some(f64::NAN),
            bands,
        };
        let numbers = (0..).take(made.bands.len()).collect();
        let bounds = bounds.collect();
        let node = self.graph.make(&[of.node], made, Box::new(texture));
        Ok(Image {
            node: node.map_err(AssembleError::Graph)?,
            tags: of.tags.clone(),
            part: of.part,
            bands: numbers,
            has_holes: true,
            scales: Vec::new(),
            bounds,
        })
    }
}

fn parameters(routine: &Routine, values: &Values, levels: u32) -> Parameters {
    let window = values
        .whole("window")
        .and_then(|window| usize::try_from(window).ok())
        .unwrap_or(9);
    let mut parameters = match values.word("like") {
        Some("otb") => Parameters::otb(window, levels, OTB_OFFSET),
        Some("itk") => Parameters::itk(window, levels),
        _ => Parameters::grass(window, levels),
    };
    let is_free = values.word("like").is_none();
    let says = |name: &str| is_free || values.is_given(name);
    if let (true, Some(Value::Offsets(offsets))) = (says("offsets"), values.get("offsets")) {
        parameters.offsets = offsets
            .iter()
            .map(|(dx, dy)| Offset { dx: *dx, dy: *dy })
            .collect();
    }
    if says("pairs") {
        parameters.pairs = match values.word("pairs") {
            Some("reach") => Pairs::Reach,
            _ => Pairs::Inside,
        };
    }
    if says("combine") {
        parameters.combine = match values.word("combine") {
            Some("sum") => Combine::Sum,
            Some("separate") => Combine::Separate,
            _ => Combine::Mean,
        };
    }
    if says("symmetric") {
        parameters.symmetric = values.flag("symmetric");
    }
    if values.word("logarithm") == Some("e") {
        parameters.logarithm = Logarithm::Natural;
    }
    let powers = ["features", "exponent", "moment", "cluster"];
    let is_said = powers.into_iter().any(|name| values.is_given(name));
    if is_free || is_said || values.get("features").is_none() {
        parameters.features = features(routine, values);
    }
    parameters
}

/// Those that were asked for; of a routine for one feature that one.
fn features(routine: &Routine, values: &Values) -> Vec<Feature> {
    let one = match routine.name {
        "CoOccurMax" => "max",
        "CoOccurEnergy" => "energy",
        "CoOccurContrast" => "contrast",
        "CoOccurInverseMoment" => "inverse-moment",
        "CoOccurHomogeneity" => "homogeneity",
        "CoOccurCorrelation" => "correlation",
        "CoOccurEntropy" => "entropy",
        "CoOccurCluster" => "cluster",
        _ => "",
    };
    let names: Vec<&str> = match (one, values.get("features")) {
        ("", Some(Value::Words(words))) => words.clone(),
        ("", _) => FEATURES[..8].to_vec(),
        (one, _) => vec![one],
    };
    names
        .into_iter()
        .map(|name| feature(name, values))
        .collect()
}

fn feature(name: &str, values: &Values) -> Feature {
    let exponent = |name: &str| {
        let given = values
            .whole(name)
            .and_then(|exponent| u32::try_from(exponent).ok());
        given.unwrap_or(2)
    };
    match name {
        "energy" => Feature::Energy,
        "contrast" => Feature::Contrast {
            exponent: exponent("exponent"),
        },
        "inverse-moment" if values.word("moment") == Some("gonzalez") => Feature::InverseMoment {
            exponent: exponent("exponent"),
        },
        "inverse-moment" => Feature::InverseDifferenceMoment,
        "homogeneity" => Feature::Homogeneity,
        "correlation" => Feature::Correlation,
        "entropy" => Feature::Entropy,
        "cluster" => Feature::Cluster {
            exponent: exponent("cluster"),
        },
        "variance" => Feature::Variance,
        "sum-average" => Feature::SumAverage,
        "sum-variance" => Feature::SumVariance,
        "sum-entropy" => Feature::SumEntropy,
        "difference-variance" => Feature::DifferenceVariance,
        "difference-entropy" => Feature::DifferenceEntropy,
        "information-1" => Feature::InformationMeasure1,
        "information-2" => Feature::InformationMeasure2,
        "max-correlation" => Feature::MaximalCorrelation,
        "first-correlation" => Feature::FirstCorrelation,
        "first-shade" => Feature::FirstCluster { exponent: 3 },
        "first-prominence" => Feature::FirstCluster { exponent: 4 },
        "first-haralick" => Feature::FirstHaralickCorrelation,
        _ => Feature::Max,
    }
}

/// Between which numbers the outputs of one band can be, by their definitions.
fn bounds(parameters: &Parameters) -> Vec<Option<(f64, f64)>> {
    let one = parameters
        .features
        .iter()
        .map(|feature| bounds_of(*feature, parameters));
    let one: Vec<Option<(f64, f64)>> = one.collect();
    let times = match parameters.combine {
        Combine::Separate => parameters.offsets.len(),
        _ => 1,
    };
    one.iter()
        .copied()
        .cycle()
        .take(one.len() * times)
        .collect()
}

fn bounds_of(feature: Feature, parameters: &Parameters) -> Option<(f64, f64)> {
    let most = f64::from(parameters.levels - 1);
    let power = |base: f64, exponent: u32| base.powi(i32::try_from(exponent).unwrap_or(4));
    let logarithm = |number: f64| match parameters.logarithm {
        Logarithm::Binary => number.log2(),
        Logarithm::Natural => number.ln(),
    };
    let bounds = match feature {
        Feature::Contrast { exponent } => (0.0, power(most, exponent)),
        Feature::Correlation => (-1.0, 1.0),
        Feature::Entropy => (0.0, logarithm((most + 1.0) * (most + 1.0))),
        Feature::Cluster { exponent } | Feature::FirstCluster { exponent } => {
            let bound = power(2.0 * most, exponent);
            (if exponent % 2 == 0 { 0.0 } else { -bound }, bound)
        }
        Feature::Variance | Feature::DifferenceVariance => (0.0, most * most / 4.0),
        Feature::SumAverage => (0.0, 2.0 * most),
        Feature::SumVariance => (0.0, most * most),
        Feature::SumEntropy => (0.0, logarithm(2.0 * most + 1.0)),
        Feature::DifferenceEntropy => (0.0, logarithm(most + 1.0)),
        Feature::InformationMeasure1 => (-1.0, 0.0),
        // A covariance divided by a variance is at most 1, or the largest level where each is of another
        // level, and of n pairs the least variance of whole numbers is (n - 1) / n^2.
        Feature::CorrelationByVariance => {
            let bound = most_counts(parameters) + 2.0;
            (-bound, bound)
        }
        Feature::FirstCorrelation => {
            let bound = most * (most_counts(parameters) + 2.0);
            (-bound, bound)
        }
        // Divided by a variance of frequencies, which can be next to nothing.
        Feature::HaralickCorrelation | Feature::FirstHaralickCorrelation => return None,
        _ => (0.0, 1.0),
    };
    Some(bounds)
}

/// The sum of a matrix is not above this.
fn most_counts(parameters: &Parameters) -> f64 {
    let offsets = match parameters.combine {
        Combine::Sum => parameters.offsets.len(),
        Combine::Mean | Combine::Separate => 1,
    };
    let orders = if parameters.symmetric { 2 } else { 1 };
    let counts = parameters.window * parameters.window * offsets * orders;
    // At most 63 x 63 x 8 x 2.
    u32::try_from(counts).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routine;

    fn made(name: &str, given: &[(&'static str, &'static str)]) -> Parameters {
        let routine = routine::of(name).expect("a routine");
        let values = Values::read(routine.parameters, given.iter().copied());
        parameters(routine, &values.expect("values"), 32)
    }

    #[test]
    fn a_program_has_its_features_and_conventions() {
        for (like, should_be) in [
            ("grass", Parameters::grass(9, 32)),
            ("otb", Parameters::otb(9, 32, OTB_OFFSET)),
            ("itk", Parameters::itk(9, 32)),
        ] {
            assert_eq!(made("CoOccur", &[("like", like)]), should_be);
        }
        // What is given counts.
        let some = made(
            "CoOccur",
            &[("like", "itk"), ("features", "first-shade,max")],
        );
        assert_eq!(
            some.features,
            [Feature::FirstCluster { exponent: 3 }, Feature::Max]
        );
        assert_eq!(some.offsets, Parameters::itk(9, 32).offsets);
        let powers = made("CoOccur", &[("like", "otb"), ("cluster", "4")]);
        assert_eq!(powers.features[7], Feature::Cluster { exponent: 4 });
        let one = made("CoOccurEnergy", &[("like", "itk")]);
        assert_eq!(one.features, [Feature::Energy]);
    }

    #[test]
    fn each_name_is_a_feature_of_its_own() {
        let names = FEATURES.join(",");
        let values: &'static str = names.leak();
        let features = made("CoOccur", &[("features", values)]).features;
        assert_eq!(features.len(), FEATURES.len());
        for (place, feature) in features.iter().enumerate() {
            assert!(!features[..place].contains(feature), "{feature:?}");
        }
        // All of ITK's have one.
        let itk = Parameters::itk(9, 32).features;
        assert!(itk.iter().all(|feature| features.contains(feature)));
    }

    #[test]
    fn quotients_by_a_variance_have_bounds_that_hold() {
        // Of 3 pairs the first level differs once, and the second one as much as it can: in the way of the
        // covariance, 1/3 - 1/3 * 1/3 times 31, divided by the square of the variance 2/9.
        let mut parameters = Parameters::itk(3, 32);
        let (variance, covariance): (f64, f64) = (2.0 / 9.0, 2.0 / 9.0 * 31.0);
        let (_, most) = bounds_of(Feature::FirstCorrelation, &parameters).expect("bounds");
        assert!(covariance / (variance * variance) <= most);
        // The least variance of as many pairs as there can be.
        for symmetric in [false, true] {
            parameters.symmetric = symmetric;
            let counts = most_counts(&parameters);
            let variance = (counts - 1.0) / (counts * counts);
            let (_, most) = bounds_of(Feature::CorrelationByVariance, &parameters).expect("bounds");
            assert!(1.0 / variance <= most && most < 1.1 / variance);
        }
        let haralick = Feature::FirstHaralickCorrelation;
        assert_eq!(bounds_of(haralick, &parameters), None);
    }
}
