//! Prints how many million pixels per second of CPU time each noise is added to, on one thread:
//! `cargo run --release -p pipt-simd --example noise_speed`.

mod clock;

use clock::cpu_time;
use pipt_raster::{Rect, SampleType, of_type};
use pipt_simd::Level;
use pipt_simd::noise::{Generator, Noise, Noisy};
use std::error::Error;

const SIDE: u32 = 1024;

fn measure<T: Noisy>(noise: Noise, level: Level) -> Result<f64, Box<dyn Error>> {
    let side = SIDE as usize;
    let mut samples = vec![T::of_f64(100.0); side * side];
    let generator = Generator::new(noise, 1, SIDE, 0)?;
    let mut best = u64::MAX;
    // The clock ticks every few milliseconds.
    let rounds = 16;
    for _ in 0..4 {
        let begin = cpu_time()?;
        for _ in 0..rounds {
            generator.add(level, &mut samples, side, Rect::new(0, 0, SIDE, SIDE))?;
        }
        best = best.min(cpu_time()? - begin);
    }
    Ok((rounds * side * side) as f64 * 1000.0 / best as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (noise, name) in [
        (
            Noise::Gaussian {
                mean: 0.0,
                deviation: 10.0,
            },
            "gaussian",
        ),
        (
            Noise::Uniform {
                minimum: -10.0,
                maximum: 10.0,
            },
            "uniform",
        ),
        (Noise::BitError { probability: 0.01 }, "bit error"),
    ] {
        for kind in [SampleType::U8, SampleType::U16, SampleType::F32] {
            for level in Level::here() {
                let speed = of_type!(kind, T => measure::<T>(noise, level))?;
                println!("{name:10} {kind:4} {level:7} {speed:9.2} Mpx/s");
            }
        }
    }
    Ok(())
}
