//! Order statistics and trimmed means, beside those of sorted windows.
#![forbid(unsafe_code)]

#[cfg(feature = "oracles")]
mod scipy;

use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, of_type};
use pipt_simd::Level;
use pipt_simd::rank::*;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

#[derive(Clone, Debug)]
struct Image<T> {
    samples: Vec<T>,
    valid: Option<Vec<bool>>,
    width: usize,
    height: usize,
}

impl<T: Sample> Image<T> {
    fn random(random: &mut Random, width: usize, height: usize) -> Self {
        let bits = 8 * T::TYPE.bytes();
        let any = |random: &mut Random| T::of_key(random.next() >> (64 - bits));
        let few = [any(random), any(random), T::of_f64(1.0)];
        let special = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            1.5,
            1e38,
            5e-324,
            -7.25,
        ];
        let kind = random.below(7);
        let samples = (0..width * height).map(|place| {
            let (x, y) = (place % width, place / width);
            match kind {
                0 => few[0],
                1 => T::of_f64((3 * x + 2 * y) as f64),
                2 => any(random),
                3 => random.one_of(&few),
                4 => T::of_f64(random.one_of(&special)),
                5 => T::of_f64(random.below(200) as f64 * 0.37),
                _ => T::of_f64(
                    (random.below(2000) as f64 - 1000.0)
                        * random.one_of(&[1.0, 3.5, 1e3, 1e6, 1e11]),
                ),
            }
        });
        let samples = samples.collect();
        let holes = random.one_of(&[0, 0, 1, 50, 97, 100]);
        let valid = (holes > 0).then(|| {
            (0..width * height)
                .map(|_| random.below(100) >= holes)
                .collect()
        });
        Self {
            samples,
            valid,
            width,
            height,
        }
    }

    fn input(&self) -> Input<'_, T> {
        let (width, height) = (self.width, self.height);
        Input {
            samples: Plane::new(&self.samples, width, height, width).expect("a plane"),
            valid: self
                .valid
                .as_ref()
                .map(|valid| Plane::new(valid, width, height, width).expect("a plane")),
        }
    }

    fn is_valid(&self, x: usize, y: usize) -> bool {
        let place = y * self.width + x;
        self.valid.as_ref().is_none_or(|valid| valid[place]) && !self.samples[place].is_nan()
    }
}

/// The sum, rounded once: partial sums that do not overlap (Shewchuk 1997), as Python's `fsum`.
fn exact_sum(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for value in values {
        let mut value = *value;
        let mut kept = Vec::new();
        for partial in partials {
            let (large, small) = if value.abs() < partial.abs() {
                (partial, value)
            } else {
                (value, partial)
            };
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                kept.push(low);
            }
            value = high;
        }
        kept.push(value);
        partials = kept;
    }
    let mut sum = partials.pop().unwrap_or(0.0);
    while let Some(partial) = partials.pop() {
        let before = sum;
        sum = before + partial;
        let low = partial - (sum - before);
        if low != 0.0 {
            // What is left decides a tie.
            if partials
                .last()
                .is_some_and(|next| (*next < 0.0) == (low < 0.0))
            {
                let twice = low * 2.0;
                if (sum + twice) - sum == twice {
                    sum += twice;
                }
            }
            break;
        }
    }
    sum
}

/// The mean of samples that differ, as is documented.
fn plain_mean<T: Sample, O: Sample>(kept: &[T]) -> O {
    let numbers: Vec<f64> = kept.iter().map(|sample| sample.to_f64()).collect();
    let count = numbers.len() as f64;
    match T::TYPE {
        SampleType::U64 | SampleType::I64 => {
            let shift = if T::TYPE == SampleType::I64 {
                1i128 << 63
            } else {
                0
            };
            let sum: i128 = kept
                .iter()
                .map(|sample| i128::from(sample.key()) - shift)
                .sum();
            if T::TYPE != O::TYPE {
                return O::of_f64(sum as f64 / count);
            }
            let count = kept.len() as i128;
            let mut mean = sum.div_euclid(count);
            let twice = 2 * sum.rem_euclid(count);
            if twice > count || (twice == count && mean % 2 != 0) {
                mean += 1;
            }
            O::of_key(u64::try_from(mean + shift).expect("between samples"))
        }
        _ if numbers.iter().any(|number| number.is_infinite()) => O::of_f64(numbers.iter().sum()),
        _ => O::of_f64(exact_sum(&numbers) / count + 0.0),
    }
}

/// Sorts every window.
fn plain<T: Sample, O: Sample>(
    image: &Image<T>,
    window: Window,
    operation: Operation,
    fill: bool,
) -> Vec<Option<O>> {
    let (columns, rows) = window.extent();
    let (columns, rows) = (columns as usize, rows as usize);
    let (left, above) = (columns / 2, rows / 2);
    let mut results = Vec::new();
    for y in 0..image.height + 1 - rows {
        for x in 0..image.width + 1 - columns {
            let mut found = Vec::new();
            for (j, i) in (0..rows).flat_map(|j| (0..columns).map(move |i| (j, i))) {
                let within = matches!(window, Window::Rectangle { .. }) || i == left || j == above;
                if within && image.is_valid(x + i, y + j) {
                    found.push(image.samples[(y + j) * image.width + x + i]);
                }
            }
            found.sort_by_key(|sample| sample.key());
            let wanted = fill || image.is_valid(x + left, y + above);
            results
                .push((wanted && !found.is_empty()).then(|| of_sorted(&found, window, operation)));
        }
    }
    results
}

fn of_sorted<T: Sample, O: Sample>(found: &[T], window: Window, operation: Operation) -> O {
    let (count, all) = (found.len(), window.pixels() as usize);
    let last = count - 1;
    let kept = match operation {
        Operation::Minimum => 0..=0,
        Operation::Maximum => last..=last,
        Operation::Median(Even::Lower) => last / 2..=last / 2,
        Operation::Median(Even::Mean) => last / 2..=count / 2,
        Operation::Rank(rank) => {
            let rank = (rank as usize * last).checked_div(all - 1).unwrap_or(0);
            rank..=rank
        }
        Operation::TrimmedMean(Trim::Count(trim)) => {
            let trim = trim as usize * count / all;
            trim..=last - trim
        }
        Operation::TrimmedMean(Trim::Fraction(part)) => {
            let left_out = |trim: &usize| *trim as f64 <= part * count as f64;
            let trim = (0..count).take_while(left_out).last().unwrap_or(0);
            trim..=last - trim
        }
    };
    let kept = &found[kept];
    if kept.iter().all(|sample| sample.key() == kept[0].key()) {
        return if T::TYPE == O::TYPE {
            O::of_key(kept[0].key())
        } else {
            O::of_f64(kept[0].to_f64())
        };
    }
    plain_mean(kept)
}

fn filtered<T: Sample, O: Sample>(
    filter: &RankFilter,
    level: Level,
    image: &Image<T>,
) -> Vec<Option<O>> {
    let (columns, rows) = filter.window().extent();
    let (width, height) = (
        image.width + 1 - columns as usize,
        image.height + 1 - rows as usize,
    );
    // What is not written would be seen.
    let mut samples = vec![O::of_f64(77.0); width * height];
    let mut valid = vec![false; width * height];
    let output = Output {
        samples: PlaneMut::new(&mut samples, width, height, width).expect("a plane"),
        valid: Some(PlaneMut::new(&mut valid, width, height, width).expect("a plane")),
    };
    filter
        .apply(level, image.input(), output)
        .expect("sizes that fit");
    let results = samples.iter().zip(&valid);
    results
        .map(|(sample, valid)| {
            assert!(
                *valid || sample.is_nan() || *sample == O::default(),
                "{sample:?} where nothing is"
            );
            valid.then_some(*sample)
        })
        .collect()
}

fn same<O: Sample>(one: &[Option<O>], other: &[Option<O>]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Some(one), Some(other)) => {
                one.key() == other.key() || (one.is_nan() && other.is_nan())
            }
            (one, other) => one.is_none() == other.is_none(),
        })
}

fn compare<T: Sample, O: Sample>(
    image: &Image<T>,
    window: Window,
    operation: Operation,
    fill: bool,
) {
    let filter = RankFilter::new(window, operation, fill).expect("a filter");
    let wanted = plain::<T, O>(image, window, operation, fill);
    for level in Level::here() {
        let given = filtered::<T, O>(&filter, level, image);
        let first = given
            .iter()
            .zip(&wanted)
            .find(|(given, wanted)| !same(&[**given], &[**wanted]));
        assert!(
            same(&given, &wanted),
            "{window:?} {operation:?} fill {fill} {} {level}: {first:?}",
            T::TYPE
        );
    }
}

fn operation(random: &mut Random, window: Window) -> Operation {
    let pixels = window.pixels();
    let count =
        |random: &mut Random, end: u32| u32::try_from(random.below(end as usize)).expect("a u32");
    match random.below(9) {
        0 => Operation::Minimum,
        1 => Operation::Maximum,
        2 | 3 => Operation::Median(Even::Lower),
        4 => Operation::Median(Even::Mean),
        5 => Operation::Rank(count(random, pixels)),
        6 => Operation::TrimmedMean(Trim::Fraction(random.one_of(&[0.0, 0.1, 0.25, 0.499]))),
        _ => Operation::TrimmedMean(Trim::Count(count(random, pixels.div_ceil(2)))),
    }
}

#[test]
fn every_filter_gives_what_sorting_each_window_gives() {
    let mut random = Random(1);
    for _ in 0..900 {
        let across = u32::try_from(1 + random.below(12)).expect("small");
        let down = u32::try_from(1 + random.below(12)).expect("small");
        let window = match random.below(5) {
            0 | 1 => Window::Rectangle {
                width: across,
                height: down,
            },
            2 => Window::Cross { arm: across / 2 },
            3 => Window::square(random.one_of(&[3, 5, 7])),
            _ => Window::square(across),
        };
        let (columns, rows) = window.extent();
        let (width, height) = (1 + random.below(30), 1 + random.below(6));
        let (width, height) = (width + columns as usize - 1, height + rows as usize - 1);
        let operation = operation(&mut random, window);
        let fill = random.below(2) == 0;
        of_type!(random.one_of(&SampleType::ALL), T => {
            let image = Image::<T>::random(&mut random, width, height);
            compare::<T, T>(&image, window, operation, fill);
            compare::<T, f64>(&image, window, operation, fill);
            compare::<T, f32>(&image, window, operation, fill);
        });
    }
}

#[test]
fn windows_of_all_sizes_up_to_31_and_some_large_ones() {
    let mut random = Random(2);
    let squares = (1..=31).map(Window::square);
    let crosses = [9, 20, 127].map(|arm| Window::Cross { arm });
    let large = [(255, 255), (101, 3), (1, 255), (64, 40)];
    let large = large.map(|(width, height)| Window::Rectangle { width, height });
    for window in squares.chain(crosses).chain(large) {
        let (columns, rows) = window.extent();
        let (width, height) = (columns as usize + 8, rows as usize + 1);
        let trimmed = Operation::TrimmedMean(Trim::Count((window.pixels() - 1) / 4));
        let mut image = Image::<u8>::random(&mut random, width, height);
        image.valid = None;
        compare::<u8, u8>(&image, window, Operation::Median(Even::Mean), false);
        compare::<u8, f64>(&image, window, trimmed, false);
        let mut image = Image::<i8>::random(&mut random, width, height);
        image.valid = None;
        compare::<i8, i8>(&image, window, trimmed, false);
        let mut image = Image::<i64>::random(&mut random, width, height);
        image.valid = None;
        compare::<i64, i64>(&image, window, Operation::Median(Even::Lower), false);
        let mut image = Image::<f32>::random(&mut random, width, height);
        image.valid = None;
        for sample in &mut image.samples {
            *sample = if sample.is_nan() { 0.5 } else { *sample };
        }
        compare::<f32, f32>(&image, window, Operation::Median(Even::Lower), false);
        compare::<f32, f32>(&image, window, trimmed, false);
    }
}

#[test]
fn images_larger_than_what_is_worked_on_at_a_time() {
    let mut random = Random(5);
    let (width, height) = (1100, 300);
    let mut image = Image::<u8>::random(&mut random, width, height);
    image.valid = None;
    let mean = Operation::TrimmedMean(Trim::Count(3));
    compare::<u8, f32>(&image, Window::square(4), mean, false);
    let long = Window::Rectangle {
        width: 2,
        height: 40,
    };
    compare::<u8, u8>(&image, long, Operation::Rank(50), false);
    let mut image = Image::<u32>::random(&mut random, width, 70);
    image.valid = None;
    let median = Operation::Median(Even::Lower);
    compare::<u32, u32>(&image, Window::square(9), median, false);
}

fn parts_are_the_whole<T: Sample>(random: &mut Random, window: Window, operation: Operation) {
    let (columns, rows) = window.extent();
    let (width, height) = (1100, 70);
    let (wide, high) = (width + columns as usize - 1, height + rows as usize - 1);
    let mut image = Image::<T>::random(random, wide, high);
    // Holes at one side only: there are parts with and without.
    let valid = (0..wide * high).map(|place| place % wide > wide / 4 || random.below(40) > 0);
    image.valid = Some(valid.collect());
    let filter = RankFilter::new(window, operation, true).expect("a filter");
    let whole = filtered::<T, T>(&filter, Level::best(), &image);
    for level in Level::here() {
        let (x, y) = (random.below(width - 1), random.below(height - 1));
        let (w, h) = (
            1 + random.below((width - x).min(300)),
            1 + random.below(height - y),
        );
        let cut = |values: &[bool]| -> Vec<bool> { cut(values, wide, (x, y), (w, h), window) };
        let part = Image {
            samples: self::cut(&image.samples, wide, (x, y), (w, h), window),
            valid: image.valid.as_deref().map(cut),
            width: w + columns as usize - 1,
            height: h + rows as usize - 1,
        };
        let given = filtered::<T, T>(&filter, level, &part);
        let wanted: Vec<Option<T>> = (y..y + h)
            .flat_map(|y| whole[y * width + x..][..w].iter().copied())
            .collect();
        assert!(
            same(&given, &wanted),
            "{window:?} {operation:?} {} {level}",
            T::TYPE
        );
    }
}

fn cut<T: Copy>(
    values: &[T],
    stride: usize,
    (x, y): (usize, usize),
    (width, height): (usize, usize),
    window: Window,
) -> Vec<T> {
    let (columns, rows) = window.extent();
    let rows = y..y + height + rows as usize - 1;
    rows.flat_map(|y| {
        values[y * stride + x..][..width + columns as usize - 1]
            .iter()
            .copied()
    })
    .collect()
}

#[test]
fn parts_of_an_image_become_the_same_as_the_whole() {
    let mut random = Random(3);
    for window in [
        Window::square(3),
        Window::square(7),
        Window::Cross { arm: 3 },
    ] {
        for operation in [
            Operation::Median(Even::Lower),
            Operation::Maximum,
            Operation::TrimmedMean(Trim::Count(2)),
        ] {
            parts_are_the_whole::<u8>(&mut random, window, operation);
            parts_are_the_whole::<u16>(&mut random, window, operation);
            parts_are_the_whole::<f32>(&mut random, window, operation);
            parts_are_the_whole::<f64>(&mut random, window, operation);
        }
    }
}

#[test]
fn means_of_numbers_far_apart_are_exact() {
    let mut random = Random(4);
    for _ in 0..60 {
        let mut image = Image::<f64>::random(&mut random, 9, 7);
        for sample in &mut image.samples {
            let power = i32::try_from(random.below(1900)).expect("small") - 1060;
            let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
            *sample = sign * (1.0 + random.below(1 << 30) as f64 / 7.0) * 2f64.powi(power);
        }
        let mean = Operation::TrimmedMean(Trim::Count(random.one_of(&[0, 1, 3])));
        compare::<f64, f64>(&image, Window::square(3), mean, true);
        compare::<f64, f32>(&image, Window::square(4), mean, true);
    }
}

#[test]
fn zeros_have_an_order_and_infinities_count() {
    let samples = vec![0.0f32, -0.0, 0.0, f32::INFINITY, f32::NAN];
    let image = Image {
        samples,
        valid: None,
        width: 5,
        height: 1,
    };
    let window = Window::Rectangle {
        width: 5,
        height: 1,
    };
    let result = |operation| {
        let filter = RankFilter::new(window, operation, true).expect("a filter");
        filtered::<f32, f32>(&filter, Level::best(), &image)[0]
            .expect("a value")
            .to_bits()
    };
    assert_eq!(result(Operation::Minimum), (-0.0f32).to_bits());
    assert_eq!(result(Operation::Median(Even::Lower)), 0.0f32.to_bits());
    assert_eq!(result(Operation::Maximum), f32::INFINITY.to_bits());
    assert_eq!(
        result(Operation::TrimmedMean(Trim::Count(0))),
        f32::INFINITY.to_bits()
    );
}

#[test]
fn images_are_padded_as_documented() {
    let letters = [1u8, 2, 3];
    let padded = |padding, image: &[u8]| {
        let halo = Halo {
            left: 4,
            right: 3,
            above: 1,
            below: 0,
        };
        let mut to = vec![99; 2 * (image.len() + 7)];
        let width = image.len() + 7;
        pad(
            Plane::new(image, image.len(), 1, image.len()).expect("a plane"),
            halo,
            padding,
            &mut PlaneMut::new(&mut to, width, 2, width).expect("a plane"),
        )
        .expect("padded");
        to
    };
    // As numpy.pad of 1 2 3 with (4, 3): symmetric, reflect, edge, constant.
    let reflect = [3, 3, 2, 1, 1, 2, 3, 3, 2, 1];
    assert_eq!(
        padded(Padding::Reflect, &letters),
        [reflect, reflect].concat()
    );
    let mirror = [1, 2, 3, 2, 1, 2, 3, 2, 1, 2];
    assert_eq!(padded(Padding::Mirror, &letters), [mirror, mirror].concat());
    let replicate = [1, 1, 1, 1, 1, 2, 3, 3, 3, 3];
    assert_eq!(
        padded(Padding::Replicate, &letters),
        [replicate, replicate].concat()
    );
    let constant = [7, 7, 7, 7, 1, 2, 3, 7, 7, 7];
    assert_eq!(
        padded(Padding::Constant(7), &letters),
        [[7; 10], constant].concat()
    );
    // An image smaller than the halo, again and again.
    assert_eq!(
        padded(Padding::Reflect, &[1, 2])[9..],
        [1, 2, 2, 1, 1, 2, 2, 1, 1][..]
    );
    assert_eq!(padded(Padding::Mirror, &[5]), [5; 16]);
}

#[test]
fn what_cannot_be_is_refused() {
    let new = |window, operation| RankFilter::new(window, operation, false).map(|_| ());
    let large = Window::Rectangle {
        width: 256,
        height: 1,
    };
    assert_eq!(
        new(large, Operation::Minimum),
        Err(RankError::WindowSize(large))
    );
    let cross = Window::Cross { arm: u32::MAX };
    assert_eq!(
        new(cross, Operation::Minimum),
        Err(RankError::WindowSize(cross))
    );
    assert!(new(Window::square(0), Operation::Minimum).is_err());
    let refused = new(Window::square(3), Operation::Rank(9)).expect_err("9 values are 0 to 8");
    assert!(refused.to_string().contains("0 to 8"), "{refused}");
    for trim in [
        Trim::Count(5),
        Trim::Fraction(0.5),
        Trim::Fraction(f64::NAN),
    ] {
        assert!(
            new(Window::square(3), Operation::TrimmedMean(trim)).is_err(),
            "{trim:?}"
        );
    }
    assert!(Plane::new(&[0u8; 5], 3, 2, 3).is_err() && Plane::new(&[0u8; 9], 3, 2, 2).is_err());
    let filter = RankFilter::new(Window::square(3), Operation::Minimum, false).expect("a filter");
    let mut result = [0u8];
    let input = Input {
        samples: Plane::new(&[0u8; 6], 3, 2, 3).expect("a plane"),
        valid: None,
    };
    let samples = PlaneMut::new(&mut result, 1, 1, 1).expect("a plane");
    let refused = filter.apply(
        Level::best(),
        input,
        Output {
            samples,
            valid: None,
        },
    );
    assert!(
        matches!(refused, Err(RankError::Sizes { what: "input", .. })),
        "{refused:?}"
    );
}
