//! The toolkit's side of `make bench-pipt`, which compares its kernels with those of other programs: prints the
//! seconds of CPU time that each repetition took, on one thread, of an image that is in memory already.
//!
//! ```text
//! peer_speed REPEAT LEVEL texture eight|grass|otb|itk WINDOW LEVELS whole|holes IMAGE STRIDE SIDE
//! peer_speed REPEAT LEVEL median|trimmed SIZE u8|u16|f32 IMAGE SIDE
//! peer_speed REPEAT LEVEL gaussian DEVIATION u8|u16|f32 IMAGE SIDE
//! ```
//!
//! IMAGE is a file of raw samples, row by row. Results are `SIDE` x `SIDE` pixels: of textures those whose
//! windows lie within the image, so it has to be larger; of ranks all, its edges being reflected.

mod clock;

use std::error::Error;
use std::time::Duration;

use clock::cpu_time;
use pipt_raster::{Rect, Sample, SampleType, of_type};
use pipt_simd::Level;
use pipt_simd::noise::{Generator, Noise, Noisy};
use pipt_simd::rank::{
    Even, Input, Operation, Output, Padding, Plane, PlaneMut, RankFilter, Trim, Window, pad,
};
use pipt_simd::texture::{Feature, LevelImage, Levels, Offset, Parameters, Plan};

type Failure = Box<dyn Error>;

/// How often, and with which instruction set.
struct Setting {
    repeat: usize,
    level: Level,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [repeat, level, what, rest @ ..] = &arguments[..] else {
        return Err("give REPEAT LEVEL and what to measure".into());
    };
    let setting = Setting {
        repeat: repeat.parse()?,
        level: level.parse()?,
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (what.as_str(), &rest[..]) {
        ("texture", [like, window, levels, mask, image, stride, side]) => {
            let parameters = parameters(like, window.parse()?, levels.parse()?)?;
            let image = std::fs::read(image)?;
            let sizes = (stride.parse()?, side.parse()?);
            texture(&setting, &parameters, &image, *mask == "holes", sizes)
        }
        ("median" | "trimmed", [size, kind, image, side]) => {
            let window = Window::square(size.parse()?);
            let operation = match what.as_str() {
                "median" => Operation::Median(Even::Lower),
                _ => Operation::TrimmedMean(Trim::Count(window.pixels() / 4)),
            };
            let filter = RankFilter::new(window, operation, false)?;
            let (kind, side): (SampleType, usize) = (kind_of(kind)?, side.parse()?);
            of_type!(kind, T => rank::<T>(&setting, &filter, &samples::<T>(image)?, side))
        }
        ("gaussian", [deviation, kind, image, side]) => {
            let noise = Noise::Gaussian {
                mean: 0.0,
                deviation: deviation.parse()?,
            };
            let (kind, side): (SampleType, u32) = (kind_of(kind)?, side.parse()?);
            let generator = Generator::new(noise, 1, side, 0)?;
            of_type!(kind, T => add::<T>(&setting, &generator, &samples::<T>(image)?, side))
        }
        _ => Err(format!("'{what}' with these arguments is not measured").into()),
    }
}

fn kind_of(name: &str) -> Result<SampleType, Failure> {
    let mut all = SampleType::ALL.into_iter();
    all.find(|kind| kind.name() == name)
        .ok_or_else(|| format!("There is no type '{name}'").into())
}

/// The features of each program in its own conventions, or our eight in those of GRASS.
fn parameters(like: &str, window: usize, levels: u32) -> Result<Parameters, Failure> {
    Ok(match like {
        "eight" => Parameters::new(window, levels, &Feature::EIGHT),
        "grass" => Parameters {
            features: vec![
                Feature::Energy,
                Feature::Contrast { exponent: 2 },
                Feature::Correlation,
                Feature::InverseDifferenceMoment,
                Feature::Entropy,
            ],
            ..Parameters::grass(window, levels)
        },
        "otb" => Parameters::otb(window, levels, Offset::new(1, 0)),
        "itk" => Parameters::itk(window, levels),
        other => return Err(format!("No conventions are called '{other}'").into()),
    })
}

fn samples<T: Sample>(file: &str) -> Result<Vec<T>, Failure> {
    let bytes = std::fs::read(file)?;
    let value = |bytes: &[u8]| -> Result<T, Failure> {
        Ok(T::of_f64(match T::TYPE {
            SampleType::U8 => f64::from(bytes[0]),
            SampleType::U16 => f64::from(u16::from_le_bytes(bytes.try_into()?)),
            SampleType::F32 => f64::from(f32::from_le_bytes(bytes.try_into()?)),
            other => return Err(format!("Files of {other} are not read").into()),
        }))
    };
    bytes.chunks_exact(T::TYPE.bytes()).map(value).collect()
}

/// The clock ticks every few milliseconds on some machines, so what is quick is done many times.
const SHORTEST: Duration = Duration::from_millis(60);

fn measure(
    setting: &Setting,
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut timed = |rounds: u32| {
        let begin = cpu_time()?;
        for _ in 0..rounds {
            work()?;
        }
        Ok::<_, Failure>(Duration::from_nanos(cpu_time()? - begin))
    };
    // The first time, memory is touched and tables are made.
    let mut rounds = 1;
    while timed(rounds)? < SHORTEST {
        rounds *= 2;
    }
    for _ in 0..setting.repeat {
        println!("{:.9}", timed(rounds)?.as_secs_f64() / f64::from(rounds));
    }
    Ok(())
}

fn texture(
    setting: &Setting,
    parameters: &Parameters,
    image: &[u8],
    holes: bool,
    (stride, side): (usize, usize),
) -> Result<(), Failure> {
    let plan = Plan::new(parameters)?;
    // Holes all over the image: few windows of 15 x 15 pixels and more are without one.
    let mask: Vec<u8> = (0..image.len())
        .map(|place| u8::from(place % 997 != 0))
        .collect();
    let mask = holes.then_some(&mask[..]);
    let mut outputs = vec![vec![0.0_f32; side * side]; plan.outputs().len()];
    measure(setting, || {
        let image = LevelImage::new(Levels::U8(image), mask, stride, side, side);
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        Ok(plan.run(setting.level, &image, &mut slices)?)
    })
}

fn rank<T: Sample>(
    setting: &Setting,
    filter: &RankFilter,
    samples: &[T],
    side: usize,
) -> Result<(), Failure> {
    let (columns, rows) = filter.window().extent();
    let (wide, high) = (side + columns as usize - 1, side + rows as usize - 1);
    let mut padded = vec![T::default(); wide * high];
    let mut results = vec![T::default(); side * side];
    measure(setting, || {
        // Other programs have the image without its margins too.
        pad(
            Plane::new(samples, side, side, side)?,
            filter.halo(),
            Padding::Reflect,
            &mut PlaneMut::new(&mut padded, wide, high, wide)?,
        )?;
        let input = Input {
            samples: Plane::new(&padded, wide, high, wide)?,
            valid: None,
        };
        let output = Output {
            samples: PlaneMut::new(&mut results, side, side, side)?,
            valid: None,
        };
        Ok(filter.apply(setting.level, input, output)?)
    })
}

fn add<T: Noisy>(
    setting: &Setting,
    generator: &Generator,
    samples: &[T],
    side: u32,
) -> Result<(), Failure> {
    let mut noisy = samples.to_vec();
    measure(setting, || {
        noisy.copy_from_slice(samples);
        let whole = Rect::new(0, 0, side, side);
        Ok(generator.add(setting.level, &mut noisy, side as usize, whole)?)
    })
}
