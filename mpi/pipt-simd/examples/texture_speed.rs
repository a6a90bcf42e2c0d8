//! Mega-pixels per second of processor time of one thread, for textures of eight features.
//!
//! `texture_speed [SET [FILE WIDTH]]`: of one instruction set, or of all of them. Without a file, an image of
//! smoothed noise with grain; a file has one byte a pixel, row by row.

mod clock;

use std::error::Error;

use clock::cpu_time;
use pipt_simd::Level;
use pipt_simd::texture::{Combine, Feature, LevelImage, Levels, Offset, Pairs, Parameters, Plan};

const SIDE: usize = 512;
const RUNS: usize = 2;

/// Smoothed noise and grain, from 0 to 255.
fn landscape(side: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u8::try_from(state >> 56).unwrap_or(0)
    };
    let coarse: Vec<u8> = (0..side * side).map(|_| next()).collect();
    let mut all = vec![0; side * side];
    for (place, pixel) in all.iter_mut().enumerate() {
        let (x, y) = (place % side, place / side);
        let at = |scale: usize| {
            let corner = |dx: usize, dy: usize| {
                let place = (y / scale + dy) * 97 + x / scale + dx;
                usize::from(coarse[place % coarse.len()])
            };
            let (u, v) = (x % scale, y % scale);
            let above = corner(0, 0) * (scale - u) + corner(1, 0) * u;
            let below = corner(0, 1) * (scale - u) + corner(1, 1) * u;
            (above * (scale - v) + below * v) / (scale * scale)
        };
        let grain = usize::from(next()) / 8;
        let value = (at(64) + at(16)) / 2 * 7 / 8 + grain;
        *pixel = u8::try_from(value).unwrap_or(u8::MAX);
    }
    all
}

/// The best of some runs, in nanoseconds.
fn time(plan: &Plan, level: Level, image: &LevelImage<'_>) -> Result<f64, Box<dyn Error>> {
    let mut outputs = vec![vec![0.0_f32; SIDE * SIDE]; plan.outputs().len()];
    let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        // The clock may go in steps of some milliseconds.
        let before = cpu_time()?;
        let (mut runs, mut taken) = (0, 0);
        while taken < 80_000_000 {
            plan.run(level, image, &mut slices)?;
            runs += 1;
            taken = cpu_time()? - before;
        }
        best = best.min(taken as f64 / f64::from(runs));
    }
    Ok(best)
}

/// Four directions apart and together, and one of them.
fn conventions(window: usize, levels: u32) -> [(&'static str, Parameters); 3] {
    let mean = Parameters::new(window, levels, &Feature::EIGHT);
    let sum = Parameters {
        combine: Combine::Sum,
        ..mean.clone()
    };
    let one = Parameters {
        offsets: vec![Offset::new(1, 0)],
        pairs: Pairs::Reach,
        ..mean.clone()
    };
    [("mean of 4", mean), ("sum of 4", sum), ("1, reach", one)]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (image, stride) = match &arguments[..] {
        [_, file, width] => (std::fs::read(file)?, width.parse()?),
        _ => (landscape(SIDE + 16), SIDE + 16),
    };
    let wanted = arguments.first().map(|set| set.parse::<Level>());
    let wanted = wanted.transpose()?;
    println!(
        "offsets    window levels set      Mpixel/s  masked (best of {RUNS}, {SIDE} x {SIDE} pixels, 8 features)"
    );
    let mask: Vec<u8> = (0..image.len())
        .map(|place| u8::from(place % 997 != 0))
        .collect();
    for (window, levels) in [(5, 8_u16), (9, 8), (9, 32), (15, 8), (15, 64), (15, 256)] {
        let quantised = image
            .iter()
            .map(|p| u8::try_from(u16::from(*p) * levels / 256).unwrap_or(u8::MAX));
        let quantised: Vec<u8> = quantised.collect();
        for (name, parameters) in conventions(window, levels.into()) {
            let plan = Plan::new(&parameters)?;
            for level in Level::here().filter(|level| wanted.is_none_or(|of| of == *level)) {
                let mut speeds = [0.0; 2];
                for (mask, speed) in [None, Some(&mask[..])].into_iter().zip(&mut speeds) {
                    let image = LevelImage::new(Levels::U8(&quantised), mask, stride, SIDE, SIDE);
                    *speed = (SIDE * SIDE) as f64 * 1e3 / time(&plan, level, &image)?;
                }
                let [speed, masked] = speeds;
                println!(
                    "{name:10} {window:6} {levels:6} {level:8} {speed:8.2}  {masked:6.2}",
                    level = level.name()
                );
            }
        }
    }
    Ok(())
}
