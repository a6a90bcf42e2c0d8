//! Tests of how pairs are counted, and of what is finished in 32-bit numbers.

use super::*;

/// All that is made in 32-bit numbers.
const BRIEF: [Feature; 15] = [
    Feature::Max,
    Feature::Energy,
    Feature::Contrast { exponent: 1 },
    Feature::Contrast { exponent: 2 },
    Feature::InverseDifferenceMoment,
    Feature::InverseMoment { exponent: 1 },
    Feature::InverseMoment { exponent: 2 },
    Feature::Homogeneity,
    Feature::SumAverage,
    Feature::SumVariance,
    Feature::Variance,
    Feature::Correlation,
    Feature::DifferenceVariance,
    Feature::Entropy,
    Feature::Cluster { exponent: 2 },
];

#[test]
fn few_pairs_and_levels_are_finished_in_32_bits() {
    // The largest sums that fit are those of windows of 15 with 103 levels, whose pairs reach.
    let cases = [
        (3, 2),
        (5, 8),
        (7, 16),
        (9, 32),
        (15, 64),
        (15, 103),
        (3, 256),
    ];
    for (seed, (window, levels)) in (1..).zip(cases) {
        for pairs in [Pairs::Inside, Pairs::Reach] {
            for combine in [Combine::Separate, Combine::Mean] {
                let parameters = Parameters {
                    features: BRIEF.to_vec(),
                    ..asked(window, levels, (pairs, combine, true))
                };
                let plan = Plan::new(&parameters).expect("parameters");
                assert!(plan.is_brief(), "{parameters:?}");
                let mut picture = random(window + 69, window + 4, levels, seed);
                check(&picture, &parameters, false);
                check(&masked(picture.clone(), seed, 5), &parameters, false);
                // Black and white, so that sums are as large as they can be.
                let ends = picture.levels.iter_mut();
                ends.for_each(|level| *level = if *level % 9 == 0 { 0 } else { levels - 1 });
                check(&picture, &parameters, false);
            }
        }
    }
}

#[test]
fn what_does_not_fit_32_bits_is_finished_in_64() {
    let is_brief = |parameters: &Parameters| Plan::new(parameters).expect("parameters").is_brief();
    let brief = Parameters {
        features: BRIEF.to_vec(),
        ..asked(15, 103, (Pairs::Reach, Combine::Mean, true))
    };
    assert!(is_brief(&brief));
    let levels = Parameters {
        levels: 105,
        ..brief.clone()
    };
    let summed = Parameters {
        combine: Combine::Sum,
        levels: 8,
        window: 5,
        ..brief.clone()
    };
    let ordered = Parameters {
        symmetric: false,
        ..brief.clone()
    };
    let mut shade = brief;
    shade.features.push(Feature::Cluster { exponent: 3 });
    for parameters in [levels, summed, ordered, shade] {
        assert!(!is_brief(&parameters), "{parameters:?}");
    }
}

/// Without features whose entropies need more digits than compared pairs have.
fn comparable(window: usize, levels: u32, pairs: Pairs, combine: Combine) -> Parameters {
    let mut parameters = asked(window, levels, (pairs, combine, true));
    parameters.features.retain(|feature| {
        !matches!(
            feature,
            Feature::InformationMeasure1
                | Feature::InformationMeasure2
                | Feature::MaximalCorrelation
        )
    });
    parameters
}

#[test]
fn compared_pairs_are_counted_as_in_a_histogram() {
    // Up to 8 levels each code is counted; 22 are the most that have codes of a byte; windows of 17 are not compared.
    // Windows of up to 5 are counted in registers.
    let cases = [
        (3, 2),
        (3, 9),
        (5, 8),
        (5, 22),
        (5, 256),
        (7, 5),
        (15, 8),
        (7, 22),
        (9, 23),
        (15, 64),
        (13, 256),
        (17, 8),
    ];
    for (seed, (window, levels)) in (1..).zip(cases) {
        for pairs in [Pairs::Inside, Pairs::Reach] {
            for combine in [Combine::Separate, Combine::Mean, Combine::Sum] {
                let parameters = comparable(window, levels, pairs, combine);
                // Of more rows than are counted together.
                let height = if window > 5 { window + 4 } else { 39 };
                let picture = random(window + 69, height, levels, seed);
                check(&picture, &parameters, false);
                check(&masked(picture, seed, 5), &parameters, false);
            }
        }
    }
}

#[test]
fn counts_up_to_the_largest_are_compared_right() {
    let coded = [(5, 3), (9, 60), (15, 2), (15, 100)].map(|(window, same)| (window, same, 8));
    let compared = [(9, 2), (9, 60), (13, 7), (15, 2), (15, 5), (15, 100)];
    let compared = compared.map(|(window, same)| (window, same, 40));
    // With AVX2 a window of 15 is compared above 64 levels alone.
    let many = [(15, 2, 100), (15, 5, 100)];
    for (window, same, most) in compared.into_iter().chain(coded).chain(many) {
        for combine in [Combine::Mean, Combine::Sum] {
            let parameters = comparable(window, most, Pairs::Reach, combine);
            let mut picture = random(window + 100, window + 3, same, 6);
            let levels = picture.levels.iter_mut();
            levels.for_each(|level| *level = if *level == 1 { most - 1 } else { 5 });
            check(&picture, &parameters, false);
            check(&masked(picture, 3, 40), &parameters, false);
        }
    }
}

/// Compares every level with the scalar one, in more bands than one.
fn check_levels(picture: &Picture, parameters: &Parameters) {
    let plan = Plan::new(parameters).expect("parameters");
    let part = whole(picture, &plan);
    let should_be = run(picture, &plan, &part, Level::Scalar, false);
    for level in Level::here() {
        for wide in [false, true] {
            let is = run(picture, &plan, &part, level, wide);
            assert!(bits(&is) == bits(&should_be), "{level}: {parameters:?}");
        }
    }
}

/// What is made of each histogram, by itself and with the others.
fn counted_features(symmetric: bool) -> Vec<Vec<Feature>> {
    let mut features = vec![
        vec![Feature::Energy],
        vec![Feature::Entropy, Feature::Max],
        vec![Feature::SumEntropy, Feature::Cluster { exponent: 4 }],
        vec![Feature::DifferenceEntropy, Feature::Homogeneity],
        vec![Feature::InformationMeasure1, Feature::InformationMeasure2],
        Feature::EIGHT.to_vec(),
        all_features(symmetric),
    ];
    if symmetric {
        features.push(vec![Feature::HaralickCorrelation]);
    }
    let maximal = |feature: &Feature| *feature == Feature::MaximalCorrelation;
    features
        .iter_mut()
        .for_each(|features| features.retain(|feature| !maximal(feature)));
    features
}

#[test]
fn few_levels_are_counted_in_no_histogram() {
    for (window, levels) in [(3, 2), (5, 8), (7, 5)] {
        for (pairs, combine, symmetric) in conventions() {
            for features in counted_features(symmetric) {
                let parameters = Parameters {
                    features,
                    ..asked(window, levels, (pairs, combine, symmetric))
                };
                let plan = Plan::new(&parameters).expect("parameters");
                // With AVX-512 pairs of small windows are compared.
                let levels = [Level::Avx2, Level::Avx512];
                for level in levels.into_iter().take(if window > 5 { 2 } else { 1 }) {
                    let twice = symmetric && combine == Combine::Sum && window == 7;
                    let logarithm = parameters.features.contains(&Feature::InformationMeasure1);
                    // The margin of so many pairs, each counted twice, does not fit a byte.
                    let fits = !(twice && logarithm);
                    let counted = plan.is_counted(level);
                    assert_eq!(counted, fits, "{level}: {parameters:?}");
                }
                assert!(!plan.is_counted(Level::Sse42));
            }
        }
    }
}

#[test]
fn codes_are_counted_as_in_a_histogram() {
    for (seed, (window, levels)) in (1..).zip([(3, 2), (5, 8), (5, 3), (7, 5), (9, 7)]) {
        for (pairs, combine, symmetric) in conventions() {
            for features in counted_features(symmetric) {
                let parameters = Parameters {
                    features,
                    ..asked(window, levels, (pairs, combine, symmetric))
                };
                // A band and a vector, and parts of the next ones.
                let picture = random(window + 73, window + 38, levels, seed);
                check_levels(&picture, &parameters);
                check_levels(&masked(picture, seed, 5), &parameters);
                let picture = random(window + 3, window + 2, levels, seed);
                check(&picture, &parameters, false);
                check(&masked(picture, seed, 5), &parameters, false);
            }
        }
    }
}

#[test]
fn counts_of_codes_may_be_as_large_as_a_byte() {
    let some = |count: usize| {
        let all = Offset::FOUR.into_iter().chain([Offset::new(-2, 1)]);
        all.take(count).collect::<Vec<Offset>>()
    };
    // 225, 242, 245 and 196 of them.
    let cases = [(15, 1, 1), (11, 1, 2), (7, 5, 1), (7, 2, 2)];
    for (window, offsets, each) in cases {
        for (symmetric, same) in [(true, 2), (false, 2), (true, 60), (false, 60)] {
            let mut features = all_features(symmetric);
            features.retain(|feature| {
                *feature != Feature::MaximalCorrelation
                    && *feature != Feature::HaralickCorrelation
                    && (each == 2
                        || !matches!(
                            feature,
                            Feature::InformationMeasure1 | Feature::InformationMeasure2
                        ))
            });
            let parameters = Parameters {
                offsets: some(offsets),
                features,
                ..asked(window, 8, (Pairs::Reach, Combine::Sum, symmetric))
            };
            let plan = Plan::new(&parameters).expect("parameters");
            assert!(plan.is_counted(Level::Avx2));
            let mut picture = random(window + 80, window + 3, same, 6);
            let levels = picture.levels.iter_mut();
            levels.for_each(|level| *level = if *level == 1 { 7 } else { 5 });
            check(&picture, &parameters, false);
            check_levels(&masked(picture, 3, 40), &parameters);
        }
    }
}
