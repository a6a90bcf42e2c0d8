//! What noise is made of, and that it depends on nothing else.
#![forbid(unsafe_code)]

use pipt_raster::{Rect, Sample, SampleType, of_type};
use pipt_simd::Level;
use pipt_simd::noise::*;

const WIDTH: u32 = 1000;

fn noisy<T: Noisy>(noise: Noise, seed: u64, level: Level, value: T, place: Rect) -> Vec<T> {
    let generator = Generator::new(noise, seed, WIDTH, 3).expect("noise");
    let width = place.width as usize;
    let mut samples = vec![value; width * place.height as usize];
    generator
        .add(level, &mut samples, width, place)
        .expect("a part of the image");
    samples
}

const ALL: [Noise; 6] = [
    Noise::Uniform {
        minimum: -20.0,
        maximum: 30.0,
    },
    Noise::Gaussian {
        mean: 3.0,
        deviation: 25.0,
    },
    Noise::BitError { probability: 0.2 },
    Noise::Laplacian {
        mean: -2.0,
        deviation: 25.0,
    },
    Noise::Speckle {
        mean: 0.0,
        deviation: 0.3,
    },
    Noise::SaltPepper {
        probability: 0.2,
        salt: 0.7,
        ends: None,
    },
];

#[test]
fn parts_levels_and_orders_give_the_same_noise() {
    for noise in ALL {
        for kind in SampleType::ALL {
            of_type!(kind, T => {
                let value = T::of_f64(100.0);
                let whole = noisy::<T>(noise, 9, Level::Scalar, value, Rect::new(0, 5, WIDTH, 12));
                for level in Level::here() {
                    for place in [Rect::new(0, 5, WIDTH, 12), Rect::new(333, 7, 129, 3), Rect::new(999, 16, 1, 1)] {
                        let part = noisy::<T>(noise, 9, level, value, place);
                        for (y, row) in (place.y - 5..).zip(part.chunks(place.width as usize)) {
                            let wanted = &whole[(y * WIDTH + place.x) as usize..][..row.len()];
                            let keys = |row: &[T]| -> Vec<u64> { row.iter().map(|one| one.key()).collect() };
                            assert_eq!(keys(row), keys(wanted), "{noise:?} {kind} {level} {place}");
                        }
                    }
                }
            });
        }
    }
}

#[test]
fn pixels_far_down_a_large_image_differ_from_those_above() {
    let generator = Generator::new(ALL[1], 1, u32::MAX, 0).expect("noise");
    let row = |y| {
        let mut samples = [0.0f64; 100];
        generator
            .add(Level::best(), &mut samples, 100, Rect::new(7, y, 100, 1))
            .expect("a part");
        samples
    };
    assert_ne!(row(0), row(u32::MAX - 1));
    assert_ne!(row(1), row(1 << 31));
}

/// All of a million noisy zeros.
fn noise_alone(noise: Noise, seed: u64) -> Vec<f64> {
    noisy(
        noise,
        seed,
        Level::best(),
        0.0f64,
        Rect::new(0, 0, WIDTH, 1000),
    )
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    values.sum::<f64>() / 1e6
}

/// The largest distance to a distribution function (Kolmogorov and Smirnov).
fn distance(mut values: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let at = |(place, value): (usize, &f64)| {
        let wanted = distribution(*value);
        (wanted - place as f64 / count).max((place + 1) as f64 / count - wanted)
    };
    values.iter().enumerate().map(at).fold(0.0, f64::max)
}

/// The normal distribution function: Abramowitz and Stegun 26.2.10, a series that converges everywhere.
fn normal_distribution(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-15 && n < 300.0 {
        term *= -x * x / (2.0 * n);
        sum += term / (2.0 * n + 1.0);
        n += 1.0;
    }
    0.5 + sum / std::f64::consts::TAU.sqrt()
}

#[test]
fn gaussian_noise_has_its_moments_and_distribution() {
    for seed in 1..=3 {
        let values = noise_alone(
            Noise::Gaussian {
                mean: 0.0,
                deviation: 1.0,
            },
            seed,
        );
        let moment = |power| mean(values.iter().map(|value| value.powi(power)));
        // Four standard errors of a million.
        assert!(moment(1).abs() < 0.004, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.0057, "{}", moment(2));
        assert!(moment(3).abs() < 0.0155, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.04, "{}", moment(4));
        // One in a thousand is above 1.95 / sqrt(n).
        let distance = distance(values, normal_distribution);
        assert!(distance < 0.00195, "{distance}");
    }
}

#[test]
fn laplacian_noise_has_its_moments_and_distribution() {
    for seed in 1..=3 {
        let (mean_wanted, deviation) = (0.0, 1.0);
        let noise = Noise::Laplacian {
            mean: mean_wanted,
            deviation,
        };
        let values = noise_alone(noise, seed);
        let moment = |power| mean(values.iter().map(|value| value.powi(power)));
        // Four standard errors of a million: the even moments are n! / 2^(n / 2).
        assert!(moment(1).abs() < 0.004, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.009, "{}", moment(2));
        assert!(moment(3).abs() < 0.038, "{}", moment(3));
        assert!((moment(4) - 6.0).abs() < 0.2, "{}", moment(4));
        let distance = distance(values, |x| {
            let tail = 0.5 * (-x.abs() * std::f64::consts::SQRT_2).exp();
            if x < 0.0 { tail } else { 1.0 - tail }
        });
        assert!(distance < 0.00195, "{distance}");
    }
}

#[test]
fn speckle_grows_with_the_sample() {
    let noise = Noise::Speckle {
        mean: 0.5,
        deviation: 0.25,
    };
    let place = Rect::new(0, 0, WIDTH, 1000);
    for value in [4.0f64, -4.0] {
        let values = noisy(noise, 1, Level::best(), value, place);
        let factors = || values.iter().map(|noisy| (noisy - value) / value);
        assert!((mean(factors()) - 0.5).abs() < 0.001);
        let square = mean(factors().map(|factor| (factor - 0.5).powi(2)));
        assert!((square - 0.0625).abs() < 0.0004, "{square}");
    }
    assert_eq!(noisy(noise, 1, Level::best(), 0u8, place), [0; 1_000_000]);
    // 2.5 times 3 is 7.5: 8 are added, the even one of its neighbours.
    let exactly = Noise::Speckle {
        mean: 2.5,
        deviation: 0.0,
    };
    let row = Rect::new(0, 0, 70, 1);
    assert_eq!(noisy(exactly, 1, Level::best(), 3u16, row), [11; 70]);
    assert_eq!(noisy(exactly, 1, Level::best(), 200u8, row), [255; 70]);
    assert_eq!(
        noisy(exactly, 1, Level::best(), i64::MIN / 2, row),
        [i64::MIN; 70]
    );
}

#[test]
fn salt_and_pepper_are_as_frequent_as_wanted() {
    let place = Rect::new(0, 0, WIDTH, 1000);
    for (probability, salt) in [(0.0, 0.5), (0.05, 0.5), (0.3, 0.2), (1.0, 1.0)] {
        let noise = Noise::SaltPepper {
            probability,
            salt,
            ends: None,
        };
        let values = noisy(noise, 7, Level::best(), 100u16, place);
        let part = |of: u16| mean(values.iter().map(|value| f64::from(*value == of)));
        for (found, wanted) in [
            (part(u16::MAX), probability * salt),
            (part(0), probability * (1.0 - salt)),
            (part(100), 1.0 - probability),
        ] {
            let error = (wanted * (1.0 - wanted) / 1e6f64).sqrt();
            assert!((found - wanted).abs() <= 4.0 * error, "{found} {wanted}");
        }
    }
    let noise = |ends| Noise::SaltPepper {
        probability: 1.0,
        salt: 0.5,
        ends,
    };
    let both = |noise| {
        let mut values = noisy(noise, 1, Level::best(), 7.0f32, place);
        values.sort_by(f32::total_cmp);
        values.dedup();
        values
    };
    assert_eq!(both(noise(None)), [0.0, 1.0]);
    assert_eq!(both(noise(Some((-3.5, 9.0)))), [-3.5, 9.0]);
}

#[test]
fn uniform_noise_has_its_moments_and_distribution() {
    for seed in 1..=3 {
        let values = noise_alone(
            Noise::Uniform {
                minimum: -1.0,
                maximum: 3.0,
            },
            seed,
        );
        let average = mean(values.iter().copied());
        assert!((average - 1.0).abs() < 0.0047, "{average}");
        assert!(values.iter().all(|value| *value > -1.0 && *value < 3.0));
        let distance = distance(values, |x| (x + 1.0) / 4.0);
        assert!(distance < 0.00195, "{distance}");
    }
}

#[test]
fn neighbours_are_not_correlated() {
    for noise in [
        Noise::Gaussian {
            mean: 0.0,
            deviation: 1.0,
        },
        Noise::Uniform {
            minimum: -1.7,
            maximum: 1.7,
        },
    ] {
        let values = noise_alone(noise, 5);
        for lag in [1, 2, 15, 16, 17, 32, 48, 64, 1000, 1001] {
            let products = values
                .iter()
                .zip(&values[lag..])
                .map(|(one, other)| one * other);
            let correlation = mean(products);
            assert!(correlation.abs() < 0.0045, "{noise:?} {lag}: {correlation}");
        }
        let other = noise_alone(noise, 6);
        let correlation = mean(values.iter().zip(&other).map(|(one, other)| one * other));
        assert!(correlation.abs() < 0.0045, "seeds: {correlation}");
    }
}

#[test]
fn bits_are_turned_as_often_as_wanted() {
    for probability in [0.0, 0.001, 0.3, 1.0] {
        let noise = Noise::BitError { probability };
        let values = noisy(noise, 4, Level::best(), 0u16, Rect::new(0, 0, WIDTH, 1000));
        for bit in 0..16 {
            let turned = mean(values.iter().map(|value| f64::from(value >> bit & 1)));
            let error = (probability * (1.0 - probability) / 1e6f64).sqrt();
            assert!(
                (turned - probability).abs() <= 4.0 * error,
                "{probability} {bit}: {turned}"
            );
        }
        let both = mean(values.iter().map(|value| f64::from(value & value >> 1 & 1)));
        assert!(
            (both - probability * probability).abs() < 0.002,
            "{probability}: {both}"
        );
    }
}

#[test]
fn sums_saturate_and_round() {
    let exactly = |value| Noise::Uniform {
        minimum: value,
        maximum: value,
    };
    let place = Rect::new(0, 0, 70, 1);
    let level = Level::best();
    assert_eq!(noisy(exactly(300.0), 1, level, 5u8, place), [255; 70]);
    assert_eq!(
        noisy(exactly(-1e300), 1, level, -5i16, place),
        [i16::MIN; 70]
    );
    assert_eq!(noisy(exactly(2.5), 1, level, 3u8, place), [5; 70]);
    assert_eq!(noisy(exactly(3.5), 1, level, -3i8, place), [1; 70]);
    assert_eq!(
        noisy(exactly(1.0), 1, level, u64::MAX - 1, place),
        [u64::MAX; 70]
    );
    assert_eq!(
        noisy(exactly(-2.0), 1, level, i64::MIN + 1, place),
        [i64::MIN; 70]
    );
    assert_eq!(noisy(exactly(1e10), 1, level, 7u32, place), [u32::MAX; 70]);
    assert_eq!(noisy(exactly(-1e10), 1, level, 7i32, place), [i32::MIN; 70]);
    assert_eq!(noisy(exactly(0.25), 1, level, 1.0f32, place), [1.25; 70]);
}

#[test]
fn bands_and_kinds_of_noise_are_independent() {
    let numbers = |band| {
        let mut samples = vec![0.0f64; 1000];
        let generator = Generator::new(ALL[1], 8, WIDTH, band).expect("noise");
        generator
            .add(Level::best(), &mut samples, 1000, Rect::new(0, 0, 1000, 1))
            .expect("a row");
        samples
    };
    let (one, other) = (numbers(0), numbers(1));
    let same = one.iter().zip(&other).filter(|(one, other)| one == other);
    assert!(same.count() < 3);
}

#[test]
fn what_cannot_be_is_refused() {
    let new = |noise| Generator::new(noise, 0, 10, 0).map(|_| ());
    for noise in [
        Noise::Uniform {
            minimum: 2.0,
            maximum: 1.0,
        },
        Noise::Uniform {
            minimum: f64::NAN,
            maximum: 1.0,
        },
        Noise::Gaussian {
            mean: f64::INFINITY,
            deviation: 1.0,
        },
        Noise::Gaussian {
            mean: 0.0,
            deviation: -1.0,
        },
        Noise::Laplacian {
            mean: 0.0,
            deviation: -1.0,
        },
        Noise::Speckle {
            mean: f64::NAN,
            deviation: 1.0,
        },
        Noise::SaltPepper {
            probability: 0.1,
            salt: 1.1,
            ends: None,
        },
        Noise::SaltPepper {
            probability: 0.1,
            salt: 0.5,
            ends: Some((2.0, 1.0)),
        },
        Noise::BitError { probability: 1.5 },
        Noise::BitError {
            probability: f64::NAN,
        },
    ] {
        assert!(new(noise).is_err(), "{noise:?}");
    }
    let generator = Generator::new(ALL[0], 0, 10, 0).expect("noise");
    let mut samples = [0u8; 20];
    let mut add = |stride, place| generator.add(Level::best(), &mut samples, stride, place);
    assert!(matches!(
        add(10, Rect::new(5, 0, 6, 1)),
        Err(NoiseError::Outside(..))
    ));
    assert!(matches!(
        add(10, Rect::new(0, 0, 10, 3)),
        Err(NoiseError::Short { .. })
    ));
    assert!(matches!(
        add(5, Rect::new(0, 0, 6, 2)),
        Err(NoiseError::Short { .. })
    ));
    assert_eq!(add(10, Rect::new(0, 0, 0, 3)), Ok(()));
}
