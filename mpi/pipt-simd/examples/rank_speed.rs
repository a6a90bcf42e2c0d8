//! Prints how many million pixels per second of CPU time each filter makes, on one thread:
//! `cargo run --release -p pipt-simd --example rank_speed [RAW SIDE]`, where RAW is a square of 8-bit
//! samples; without it the image is made up.

mod clock;

use clock::cpu_time;
use pipt_raster::{Sample, of_type};
use pipt_simd::Level;
use pipt_simd::rank::{
    Even, Input, Operation, Output, Padding, Plane, PlaneMut, RankFilter, Trim, Window, pad,
};
use std::error::Error;

struct Image {
    bytes: Vec<u8>,
    side: usize,
}

impl Image {
    fn of_arguments() -> Result<Self, Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let [path, side] = &arguments[..] {
            let (bytes, side) = (std::fs::read(path)?, side.parse()?);
            return Ok(Self { bytes, side });
        }
        let side = 1024;
        // A blurred pattern with noise, so that neighbours resemble each other.
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 27) as usize
        });
        let bytes = (0..side * side).zip(noise).map(|(place, noise)| {
            let (x, y) = (place % side, place / side);
            u8::try_from((x / 7 + y / 5 + (x * y) / 900) % 200 + noise).unwrap_or(u8::MAX)
        });
        Ok(Self {
            bytes: bytes.collect(),
            side,
        })
    }

    /// 8-bit samples spread over the type, with something below that differs.
    fn samples<T: Sample>(&self) -> Vec<T> {
        let most = match T::TYPE.bytes() {
            1 => 1.0,
            _ => 200.0,
        };
        let below = |place: usize| ((place * 7919) % 200) as f64;
        let spread = |(place, byte): (usize, &u8)| {
            let more = if T::TYPE.bytes() == 1 {
                0.0
            } else {
                below(place)
            };
            T::of_f64(f64::from(*byte) * most + more)
        };
        self.bytes.iter().enumerate().map(spread).collect()
    }
}

fn measure<T: Sample>(
    image: &Image,
    level: Level,
    window: Window,
    operation: Operation,
) -> Result<f64, Box<dyn Error>> {
    let side = image.side;
    let samples = image.samples::<T>();
    let filter = RankFilter::new(window, operation, false)?;
    let (columns, rows) = window.extent();
    let (wide, high) = (side + columns as usize - 1, side + rows as usize - 1);
    let mut padded = vec![T::default(); wide * high];
    pad(
        Plane::new(&samples, side, side, side)?,
        filter.halo(),
        Padding::Reflect,
        &mut PlaneMut::new(&mut padded, wide, high, wide)?,
    )?;
    let mut results = vec![T::default(); side * side];
    let mut best = u64::MAX;
    // The clock ticks every few milliseconds.
    let rounds = if columns < 6 || operation == Operation::Minimum {
        12
    } else {
        1
    };
    for _ in 0..4 {
        let begin = cpu_time()?;
        for _ in 0..rounds {
            let input = Input {
                samples: Plane::new(&padded, wide, high, wide)?,
                valid: None,
            };
            let output = Output {
                samples: PlaneMut::new(&mut results, side, side, side)?,
                valid: None,
            };
            filter.apply(level, input, output)?;
        }
        best = best.min(cpu_time()? - begin);
    }
    Ok((rounds * side * side) as f64 * 1000.0 / best as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = Image::of_arguments()?;
    let median = Operation::Median(Even::Lower);
    let trimmed = |window: Window| Operation::TrimmedMean(Trim::Count(window.pixels() / 4));
    let square = |size| (Window::square(size), format!("square {size}"));
    let cross = |arm| (Window::Cross { arm }, format!("cross {}", 2 * arm + 1));
    let windows = [3, 5, 7, 9, 15, 21, 31, 51, 101].map(square);
    let crosses = [3, 7, 15].map(cross);
    let only: Vec<String> = std::env::var("ONLY")
        .map(|text| text.split(',').map(String::from).collect())
        .unwrap_or_default();
    for (window, name) in windows.iter().chain(&crosses) {
        for (operation, what) in [
            (median, "median"),
            (Operation::Minimum, "minimum"),
            (trimmed(*window), "trimmed mean"),
        ] {
            for kind in [
                pipt_raster::SampleType::U8,
                pipt_raster::SampleType::U16,
                pipt_raster::SampleType::F32,
                pipt_raster::SampleType::F64,
            ] {
                for level in Level::here() {
                    let label = format!("{what:13} {name:10} {kind:4} {level:7}");
                    if !only.iter().all(|part| label.contains(part.as_str())) {
                        continue;
                    }
                    let speed =
                        of_type!(kind, T => measure::<T>(&image, level, *window, operation))?;
                    println!("{label} {speed:9.2} Mpx/s");
                }
            }
        }
    }
    Ok(())
}
