//! Features of texture, beside their definitions.
#![forbid(unsafe_code)]

mod counts;
mod reference;

use pipt_simd::Level;
use pipt_simd::texture::{
    Combine, Feature, LevelImage, Levels, Logarithm, Offset, Pairs, Parameters, Plan, TextureError,
};
use proptest::prelude::*;
use reference::Picture;

/// All features that symmetric matrices have, with all their exponents.
fn all_features(symmetric: bool) -> Vec<Feature> {
    let mut all = Feature::EIGHT.to_vec();
    all.extend(Feature::HARALICK);
    all.extend([1, 3].map(|exponent| Feature::Contrast { exponent }));
    all.extend([1, 2, 3].map(|exponent| Feature::InverseMoment { exponent }));
    all.extend([3, 4].map(|exponent| Feature::Cluster { exponent }));
    all.extend([2, 3, 4].map(|exponent| Feature::FirstCluster { exponent }));
    all.extend([Feature::FirstCorrelation, Feature::FirstHaralickCorrelation]);
    if symmetric {
        all.extend([Feature::CorrelationByVariance, Feature::HaralickCorrelation]);
    }
    all
}

/// The rectangle that is left of a picture without its margins.
struct Part {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

fn whole(picture: &Picture, plan: &Plan) -> Part {
    let halo = plan.halo();
    let [left, right, above, below] =
        [halo.left, halo.right, halo.above, halo.below].map(|n| n as usize);
    let height = picture.levels.len() / picture.width;
    Part {
        x: left,
        y: above,
        width: picture.width - left - right,
        height: height - above - below,
    }
}

fn samples<T: TryFrom<u32, Error: std::fmt::Debug>>(picture: &Picture) -> Vec<T> {
    let levels = picture.levels.iter();
    levels
        .map(|level| T::try_from(*level).expect("small"))
        .collect()
}

fn run(picture: &Picture, plan: &Plan, part: &Part, level: Level, wide: bool) -> Vec<Vec<f32>> {
    let halo = plan.halo();
    let begin = (part.y - halo.above as usize) * picture.width + part.x - halo.left as usize;
    let mask: Option<Vec<u8>> = picture
        .valid
        .as_ref()
        .map(|valid| valid.iter().map(|v| u8::from(*v) * 7).collect());
    let mask = mask.as_ref().map(|mask| &mask[begin..]);
    let (bytes, words): (Vec<u8>, Vec<u16>);
    let levels = if wide {
        words = samples(picture);
        Levels::U16(&words[begin..])
    } else {
        bytes = samples(picture);
        Levels::U8(&bytes[begin..])
    };
    let image = LevelImage::new(levels, mask, picture.width, part.width, part.height);
    let mut outputs = vec![vec![-1.0; part.width * part.height]; plan.outputs().len()];
    let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    plan.run(level, &image, &mut slices).expect("computed");
    outputs
}

fn bits(outputs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    outputs
        .iter()
        .map(|values| values.iter().map(|value| value.to_bits()).collect())
        .collect()
}

/// Information measure 2 is the root of a difference from 1, which doubles how many digits are lost.
fn agrees(name: &str, is: f64, should_be: f64) -> bool {
    let (is, should_be) =
        if name.starts_with("information-measure-2") || name.starts_with("maximal") {
            (is * is, should_be * should_be)
        } else {
            (is, should_be)
        };
    (is.is_nan() && should_be.is_nan())
        || (is - should_be).abs() <= 1e-5 * is.abs().max(should_be.abs()) + 1e-6
}

/// Compares every pixel with the reference, and the levels and types of samples with each other.
fn check(picture: &Picture, parameters: &Parameters, wide: bool) {
    let plan = Plan::new(parameters).expect("parameters");
    let names = plan.outputs();
    let part = whole(picture, &plan);
    let outputs = run(picture, &plan, &part, Level::best(), wide);
    for y in 0..part.height {
        for x in 0..part.width {
            let should_be = picture.pixel(parameters, part.x + x, part.y + y);
            for ((name, output), should_be) in names.iter().zip(&outputs).zip(should_be) {
                let is = f64::from(output[y * part.width + x]);
                assert!(
                    agrees(name, is, should_be),
                    "{name} at {x},{y}: {is} instead of {should_be}; {parameters:?}"
                );
            }
        }
    }
    for level in Level::here() {
        let same = run(picture, &plan, &part, level, wide);
        assert!(bits(&same) == bits(&outputs), "{level}: {parameters:?}");
    }
    if !wide {
        let same = run(picture, &plan, &part, Level::best(), true);
        assert!(
            bits(&same) == bits(&outputs),
            "16-bit levels: {parameters:?}"
        );
    }
}

/// Numbers that look random, the same each time.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 20
    }
}

fn random(width: usize, height: usize, levels: u32, seed: u64) -> Picture {
    let mut next = noise(seed);
    let levels =
        (0..width * height).map(|_| u32::try_from(next() % u64::from(levels)).expect("a level"));
    Picture {
        width,
        levels: levels.collect(),
        valid: None,
    }
}

fn masked(mut picture: Picture, seed: u64, one_in: u64) -> Picture {
    let mut next = noise(seed + 77);
    picture.valid = Some(
        picture
            .levels
            .iter()
            .map(|_| !next().is_multiple_of(one_in))
            .collect(),
    );
    picture
}

fn conventions() -> Vec<(Pairs, Combine, bool)> {
    let mut all = Vec::new();
    for pairs in [Pairs::Inside, Pairs::Reach] {
        for combine in [Combine::Separate, Combine::Mean, Combine::Sum] {
            for symmetric in [true, false] {
                all.push((pairs, combine, symmetric));
            }
        }
    }
    all
}

fn asked(
    window: usize,
    levels: u32,
    (pairs, combine, symmetric): (Pairs, Combine, bool),
) -> Parameters {
    let mut features = all_features(symmetric);
    // The reference takes long for it.
    features.retain(|feature| levels <= 8 || *feature != Feature::MaximalCorrelation);
    Parameters {
        pairs,
        combine,
        symmetric,
        ..Parameters::new(window, levels, &features)
    }
}

#[test]
fn every_feature_is_what_its_definition_says() {
    for (seed, convention) in (1..).zip(conventions()) {
        for (window, levels) in [(3, 2), (5, 8), (7, 64), (9, 256)] {
            let picture = random(window + 18, window + 3, levels, seed);
            check(&picture, &asked(window, levels, convention), false);
            let picture = masked(picture, seed, 4);
            check(&picture, &asked(window, levels, convention), false);
        }
    }
}

#[test]
fn entropies_are_in_the_unit_asked_for() {
    let parameters = Parameters {
        logarithm: Logarithm::Natural,
        ..asked(5, 16, (Pairs::Inside, Combine::Mean, true))
    };
    check(&random(30, 12, 16, 5), &parameters, false);
}

#[test]
fn offsets_may_point_anywhere() {
    for convention in conventions() {
        let parameters = Parameters {
            offsets: [(-3, 0), (0, -2), (4, -4), (-2, 3), (1, 4), (-1, -1)]
                .map(|(dx, dy)| Offset::new(dx, dy))
                .to_vec(),
            ..asked(5, 8, convention)
        };
        check(&masked(random(26, 17, 8, 9), 3, 9), &parameters, false);
        check(&random(26, 17, 8, 9), &parameters, false);
    }
}

#[test]
fn images_without_variety_have_defined_features() {
    type Draw = fn(usize, usize) -> u32;
    let pictures: [(&str, Draw); 5] = [
        ("constant", |_, _| 0),
        ("constant and largest", |_, _| 255),
        (
            "checkerboard",
            |x, y| if (x + y) % 2 == 0 { 0 } else { 255 },
        ),
        ("stripes", |x, _| u32::from(x % 2 == 0)),
        ("ramp", |x, y| {
            u32::try_from((x * 7 + y * 31) % 256).expect("a level")
        }),
    ];
    for (name, level) in pictures {
        for window in [3, 11, 15, 17] {
            let (width, height) = (window + 4, window + 2);
            let levels = (0..width * height).map(|place| level(place % width, place / width));
            let picture = Picture {
                width,
                levels: levels.collect(),
                valid: None,
            };
            // The reference says what a uniform margin gives by rounding; here it is 0 / 0.
            let mut features = all_features(true);
            features.retain(|feature| *feature != Feature::HaralickCorrelation);
            let parameters = Parameters {
                features,
                ..asked(window, 256, (Pairs::Reach, Combine::Mean, true))
            };
            check(&picture, &parameters, false);
            println!("{name} {window}");
        }
    }
}

#[test]
fn a_flat_window_has_the_correlation_asked_for() {
    let flat = Picture {
        width: 5,
        levels: vec![3; 25],
        valid: None,
    };
    for flat_correlation in [0.0, 1.0, f32::NAN] {
        let parameters = Parameters {
            flat_correlation,
            ..Parameters::new(
                3,
                8,
                &[
                    Feature::Correlation,
                    Feature::Entropy,
                    Feature::Max,
                    Feature::FirstCorrelation,
                ],
            )
        };
        for symmetric in [true, false] {
            let plan = Plan::new(&Parameters {
                symmetric,
                ..parameters.clone()
            });
            let plan = plan.expect("parameters");
            let outputs = run(&flat, &plan, &whole(&flat, &plan), Level::best(), false);
            for is in [outputs[0][0], outputs[3][0]] {
                assert!(
                    is == flat_correlation || is.is_nan() && flat_correlation.is_nan(),
                    "{is}"
                );
            }
            assert_eq!((outputs[1][0], outputs[2][0]), (0.0, 1.0));
        }
    }
}

/// What ITK's filter says of one window.
#[test]
fn features_of_the_first_level_are_those_of_itk() {
    let rows = [
        [0, 3, 1, 7, 2],
        [5, 5, 0, 1, 6],
        [2, 4, 4, 3, 3],
        [7, 0, 6, 2, 1],
        [1, 1, 3, 5, 0],
    ];
    let itk = [
        0.028_163_582,
        5.280_493_3,
        -0.040_427_06,
        0.253_519_65,
        11.097_222,
        4.388_038_6,
        142.166_29,
        3_976.285_6,
    ];
    let picture = Picture {
        width: 5,
        levels: rows.concat(),
        valid: None,
    };
    let plan = Plan::new(&Parameters::itk(5, 8)).expect("parameters");
    let outputs = run(
        &picture,
        &plan,
        &whole(&picture, &plan),
        Level::best(),
        false,
    );
    for ((name, is), should_be) in plan.outputs().iter().zip(&outputs).zip(itk) {
        let is = f64::from(is[0]);
        assert!(
            agrees(name, is, should_be),
            "{name}: {is} instead of {should_be}"
        );
    }
}

#[test]
fn where_every_level_is_as_frequent_haralick_correlations_are_what_is_asked_for() {
    let picture = Picture {
        width: 3,
        levels: vec![0, 1, 0, 1, 0, 1, 0, 1, 0],
        valid: None,
    };
    for flat_correlation in [0.0, 0.5] {
        let parameters = Parameters {
            flat_correlation,
            ..Parameters::itk(3, 2)
        };
        check(&picture, &parameters, false);
        let plan = Plan::new(&parameters).expect("parameters");
        let all = whole(&picture, &plan);
        let outputs = run(&picture, &plan, &all, Level::best(), false);
        assert_eq!(outputs[7], [flat_correlation]);
    }
}

#[test]
fn large_windows_and_many_levels_are_exact() {
    for (window, levels) in [(21, 32), (33, 256), (63, 9)] {
        let mut parameters = asked(window, levels, (Pairs::Inside, Combine::Mean, true));
        parameters
            .features
            .retain(|feature| *feature != Feature::MaximalCorrelation);
        check(
            &random(window + 5, window + 2, levels, 4),
            &parameters,
            false,
        );
    }
}

#[test]
fn sixteen_bit_levels_are_exact() {
    for (window, levels) in [(3, 65_536), (5, 1000), (9, 4096), (21, 65_536)] {
        for (pairs, combine, symmetric) in conventions() {
            let mut parameters = asked(window, levels, (pairs, combine, symmetric));
            parameters.features.retain(|feature| {
                !matches!(
                    feature,
                    Feature::MaximalCorrelation
                        | Feature::Contrast { exponent: 3 }
                        | Feature::HaralickCorrelation
                )
            });
            if window > 5 && combine == Combine::Separate {
                continue;
            }
            let picture = random(window + 5, window + 2, levels, 8);
            check(&picture, &parameters, true);
            check(&masked(picture, 8, 3), &parameters, true);
            // Large levels that hardly differ: what loses digits in floats.
            let mut close = random(window + 5, window + 2, 2, 8);
            close
                .levels
                .iter_mut()
                .for_each(|level| *level += levels - 2);
            check(&close, &parameters, true);
        }
    }
}

#[test]
fn a_pixel_without_any_pair_is_nan() {
    let mut picture = random(20, 20, 8, 1);
    picture.valid = Some((0..400).map(|place| place % 20 < 5).collect());
    check(
        &picture,
        &asked(5, 8, (Pairs::Inside, Combine::Mean, true)),
        false,
    );
    picture.valid = Some(vec![false; 400]);
    let plan = Plan::new(&Parameters::new(5, 8, &Feature::EIGHT)).expect("parameters");
    let outputs = run(
        &picture,
        &plan,
        &whole(&picture, &plan),
        Level::best(),
        false,
    );
    assert!(outputs.iter().flatten().all(|value| value.is_nan()));
}

#[test]
fn a_mask_of_valid_pixels_changes_nothing() {
    for convention in conventions() {
        let mut picture = random(40, 20, 16, 3);
        let plan = Plan::new(&asked(7, 16, convention)).expect("parameters");
        let without = run(
            &picture,
            &plan,
            &whole(&picture, &plan),
            Level::best(),
            false,
        );
        picture.valid = Some(vec![true; 800]);
        let with = run(
            &picture,
            &plan,
            &whole(&picture, &plan),
            Level::best(),
            false,
        );
        assert_eq!(bits(&without), bits(&with));
    }
}

#[test]
fn a_pixel_is_the_same_in_every_rectangle() {
    let features = all_features(true);
    for (window, levels, mask) in [
        (5, 8, false),
        (5, 256, true),
        (9, 64, false),
        (15, 16, true),
        (23, 64, false),
    ] {
        let mut picture = random(window + 150, window + 75, levels, 2);
        if mask {
            picture = masked(picture, 5, 10);
        }
        let mut parameters = Parameters::new(window, levels, &features);
        parameters
            .features
            .retain(|feature| *feature != Feature::MaximalCorrelation);
        let plan = Plan::new(&parameters).expect("parameters");
        let all = whole(&picture, &plan);
        let outputs = run(&picture, &plan, &all, Level::best(), false);
        for (x, y, width, height) in [
            (0, 0, 1, 1),
            (3, 40, 64, 30),
            (17, 1, 65, 70),
            (100, 33, 33, 1),
        ] {
            let part = Part {
                x: all.x + x,
                y: all.y + y,
                width,
                height,
            };
            for level in Level::here() {
                let some = run(&picture, &plan, &part, level, false);
                for (some, output) in some.iter().zip(&outputs) {
                    for row in 0..height {
                        let begin = (y + row) * all.width + x;
                        let (is, should_be) = (
                            &some[row * width..(row + 1) * width],
                            &output[begin..begin + width],
                        );
                        let same = is
                            .iter()
                            .zip(should_be)
                            .all(|(a, b)| a.to_bits() == b.to_bits());
                        assert!(same, "window {window} at {x},{y} row {row}, {level}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let good = Parameters::new(5, 8, &Feature::EIGHT);
    let refused = |parameters: Parameters| Plan::new(&parameters).err();
    for window in [0, 1, 4, 65, usize::MAX] {
        assert_eq!(
            refused(Parameters {
                window,
                ..good.clone()
            }),
            Some(TextureError::Window(window))
        );
    }
    for levels in [0, 1, 65_537, u32::MAX] {
        assert_eq!(
            refused(Parameters {
                levels,
                ..good.clone()
            }),
            Some(TextureError::Levels(levels))
        );
    }
    for offset in [(0, 0), (5, 0), (0, -5), (i32::MIN, i32::MAX)] {
        let offset = Offset::new(offset.0, offset.1);
        let parameters = Parameters {
            offsets: vec![offset],
            ..good.clone()
        };
        assert_eq!(refused(parameters), Some(TextureError::Offset(offset, 5)));
    }
    for count in [0, 9] {
        let parameters = Parameters {
            offsets: vec![Offset::new(1, 0); count],
            ..good.clone()
        };
        assert_eq!(refused(parameters), Some(TextureError::Offsets(count)));
    }
    assert_eq!(
        refused(Parameters::new(5, 8, &[])),
        Some(TextureError::NoFeature)
    );
}

#[test]
fn features_that_cannot_be_exact_are_refused() {
    let refused = |parameters: Parameters| Plan::new(&parameters).err();
    for feature in [
        Feature::Contrast { exponent: 0 },
        Feature::Cluster { exponent: 5 },
        Feature::InverseMoment { exponent: 9 },
    ] {
        let error = refused(Parameters::new(5, 8, &[feature]));
        assert!(
            matches!(error, Some(TextureError::Exponent(..))),
            "{error:?}"
        );
    }
    let error = refused(Parameters::new(
        5,
        65_536,
        &[Feature::Contrast { exponent: 4 }],
    ));
    assert!(
        matches!(error, Some(TextureError::TooLarge(_))),
        "{error:?}"
    );
    let error = refused(Parameters::new(5, 257, &[Feature::MaximalCorrelation]));
    assert!(
        matches!(error, Some(TextureError::TooManyLevels(..))),
        "{error:?}"
    );
    let parameters = Parameters {
        symmetric: false,
        features: vec![Feature::HaralickCorrelation],
        ..Parameters::new(5, 8, &[])
    };
    assert!(matches!(
        refused(parameters),
        Some(TextureError::NotSymmetric(_))
    ));
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let plan = Plan::new(&Parameters::new(3, 8, &[Feature::Energy])).expect("parameters");
    let levels = [0_u8; 25];
    let attempt = |levels: &[u8], mask: Option<&[u8]>, stride, width, height, room: usize| {
        let mut output = vec![0.0; room];
        let image = LevelImage::new(Levels::U8(levels), mask, stride, width, height);
        plan.run(Level::best(), &image, &mut [&mut output]).err()
    };
    assert_eq!(attempt(&levels, None, 5, 3, 3, 9), None);
    assert_eq!(attempt(&levels, None, 5, 0, 3, 0), None);
    assert_eq!(
        attempt(&levels[..24], None, 5, 3, 3, 9),
        Some(TextureError::Image(24, 25))
    );
    assert_eq!(
        attempt(&levels, Some(&levels[1..]), 5, 3, 3, 9),
        Some(TextureError::Mask(24, 25))
    );
    assert_eq!(
        attempt(&levels, None, 4, 3, 3, 9),
        Some(TextureError::Stride(4, 5))
    );
    assert_eq!(
        attempt(&levels, None, 5, 3, 3, 8),
        Some(TextureError::Output(8, 9))
    );
    assert_eq!(
        attempt(&[8; 25], None, 5, 3, 3, 9),
        Some(TextureError::Level(8, 8))
    );
    assert_eq!(attempt(&[8; 25], Some(&[0; 25]), 5, 3, 3, 9), None);
    for (width, height) in [(usize::MAX, 1), (3, usize::MAX), (usize::MAX / 2, 4)] {
        let error = attempt(&levels, None, usize::MAX, width, height, 9);
        assert!(
            matches!(
                error,
                Some(TextureError::Size(..) | TextureError::Image(..))
            ),
            "{error:?}"
        );
    }
    let image = LevelImage::new(Levels::U8(&levels), None, 5, 3, 3);
    assert_eq!(
        plan.run(Level::best(), &image, &mut []),
        Err(TextureError::Outputs(0, 1))
    );
}

#[test]
fn outputs_have_names() {
    let parameters = Parameters::otb(5, 8, Offset::new(1, -1));
    let plan = Plan::new(&parameters).expect("parameters");
    assert_eq!(plan.outputs()[6], "cluster-4(1,-1)");
    let halo = plan.halo();
    assert_eq!(
        (halo.left, halo.right, halo.above, halo.below),
        (2, 3, 3, 2)
    );
    assert_eq!(
        Plan::new(&Parameters::itk(5, 8))
            .expect("parameters")
            .outputs(),
        [
            "energy",
            "entropy",
            "first-correlation",
            "inverse-difference-moment",
            "contrast-2",
            "first-cluster-3",
            "first-cluster-4",
            "first-haralick-correlation"
        ]
    );
    assert_eq!(
        Plan::new(&Parameters::grass(5, 8))
            .expect("parameters")
            .outputs()[6],
        "information-measure-1"
    );
    assert!(plan.scratch_bytes(1000) > 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn random_parameters_give_what_their_definitions_say(
        half in 1_usize..6,
        levels in 2_u32..257,
        seed in any::<u32>(),
        offsets in proptest::collection::vec((-10_i32..11, -10_i32..11), 1..5),
        convention in 0_usize..12,
        one_in in 2_u64..20,
    ) {
        let window = 2 * half + 1;
        let most = i32::try_from(window).expect("small") - 1;
        let offsets = offsets.into_iter().map(|(dx, dy)| Offset::new(dx.clamp(-most, most), dy.clamp(-most, most)));
        let mut offsets: Vec<Offset> = offsets.filter(|offset| *offset != Offset::new(0, 0)).collect();
        offsets.push(Offset::new(1, 0));
        let mut parameters = Parameters { offsets, ..asked(window, levels, conventions()[convention]) };
        if seed % 2 == 0 {
            parameters.features = Feature::EIGHT.to_vec();
        }
        let picture = random(3 * window + 1, 3 * window - 2, levels, u64::from(seed));
        check(&picture, &parameters, false);
        check(&masked(picture, 2, one_in), &parameters, false);
    }
}
