//! The same images through SciPy: `PIPT_PYTHON=python cargo test -p pipt-simd --features oracles scipy`.

use super::*;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const WIDTH: usize = 61;
const HEIGHT: usize = 47;

struct Job {
    name: &'static str,
    window: Window,
    operation: Operation,
    number: f64,
    /// 0 to 2: reflect, mirror, replicate.
    padding: usize,
}

fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (columns, rows) in [
        (1, 1),
        (3, 3),
        (5, 5),
        (7, 7),
        (15, 15),
        (31, 31),
        (4, 6),
        (9, 2),
        (101, 3),
    ] {
        let window = Window::Rectangle {
            width: columns,
            height: rows,
        };
        let pixels = window.pixels();
        let mut push = |name, operation, number, padding| {
            jobs.push(Job {
                name,
                window,
                operation,
                number,
                padding,
            });
        };
        for rank in [0, pixels / 3, pixels - 1] {
            push("rank", Operation::Rank(rank), f64::from(rank), 0);
        }
        if pixels % 2 == 1 {
            push("median", Operation::Median(Even::Lower), 0.0, 1);
        }
        // SciPy takes the value of rank `pixels * percentile / 100`, rounded down.
        push("percentile", Operation::Rank(pixels * 30 / 100), 30.0, 2);
        for part in [0.1, 0.25] {
            push(
                "trimmed",
                Operation::TrimmedMean(Trim::Fraction(part)),
                part,
                0,
            );
        }
    }
    for arm in [1, 3, 7, 20] {
        jobs.push(Job {
            name: "cross",
            window: Window::Cross { arm },
            operation: Operation::Median(Even::Lower),
            number: 0.0,
            padding: 0,
        });
    }
    jobs
}

fn image<T: Sample>() -> Vec<T> {
    let value = |place: usize| {
        let place = u64::try_from(place).unwrap_or(0);
        let mixed = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        T::of_f64((mixed % 256) as f64 * if T::TYPE.bytes() > 1 { 127.0 } else { 0.5 })
    };
    (0..WIDTH * HEIGHT).map(value).collect()
}

fn bytes<T: Sample>(samples: &[T]) -> Vec<u8> {
    let bytes = |sample: &T| match T::TYPE {
        SampleType::F32 => (f32::of_f64(sample.to_f64())).to_le_bytes().to_vec(),
        SampleType::F64 => sample.to_f64().to_le_bytes().to_vec(),
        _ => i64::of_f64(sample.to_f64()).to_le_bytes()[..T::TYPE.bytes()].to_vec(),
    };
    samples.iter().flat_map(bytes).collect()
}

fn filtered<T: Sample, O: Sample>(job: &Job, samples: &[T], level: Level) -> Vec<O> {
    let filter = RankFilter::new(job.window, job.operation, false).expect("a filter");
    let (columns, rows) = job.window.extent();
    let (wide, high) = (WIDTH + columns as usize - 1, HEIGHT + rows as usize - 1);
    let mut padded = vec![T::default(); wide * high];
    let padding = [Padding::Reflect, Padding::Mirror, Padding::Replicate][job.padding];
    let image = Plane::new(samples, WIDTH, HEIGHT, WIDTH).expect("a plane");
    let mut to = PlaneMut::new(&mut padded, wide, high, wide).expect("a plane");
    pad(image, filter.halo(), padding, &mut to).expect("padded");
    let mut results = vec![O::default(); WIDTH * HEIGHT];
    let input = Input {
        samples: Plane::new(&padded, wide, high, wide).expect("a plane"),
        valid: None,
    };
    let output = Output {
        samples: PlaneMut::new(&mut results, WIDTH, HEIGHT, WIDTH).expect("a plane"),
        valid: None,
    };
    filter.apply(level, input, output).expect("filtered");
    results
}

fn numpy_name(kind: SampleType) -> String {
    format!("{}{}", &kind.name()[..1], kind.bytes())
}

fn write_all(directory: &Path) {
    let mut list = String::new();
    for kind in SampleType::ALL {
        for (number, job) in jobs().iter().enumerate() {
            let name = format!("{kind}.{number}");
            of_type!(kind, T => std::fs::write(directory.join(&name), bytes(&image::<T>())).expect("written"));
            let (columns, rows) = job.window.extent();
            let numpy = numpy_name(kind);
            writeln!(
                list,
                "{name} {numpy} {WIDTH} {HEIGHT} {} {columns} {rows} {}",
                job.name, job.number
            )
            .expect("a line");
        }
    }
    std::fs::write(directory.join("jobs"), list).expect("written");
}

#[test]
fn scipy_gives_the_same() {
    let python = std::env::var("PIPT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let directory = std::env::temp_dir().join(format!("pipt-rank-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    write_all(&directory);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rank/with_scipy.py");
    let done = Command::new(python)
        .arg(script)
        .arg(&directory)
        .status()
        .expect("Python runs");
    assert!(done.success());
    let mut compared = 0;
    for kind in SampleType::ALL {
        for (number, job) in jobs().iter().enumerate() {
            let wanted =
                std::fs::read(directory.join(format!("{kind}.{number}.result"))).expect("a result");
            for level in Level::here() {
                let given = of_type!(kind, T => if job.name == "trimmed" {
                    bytes(&filtered::<T, f64>(job, &image::<T>(), level))
                } else {
                    bytes(&filtered::<T, T>(job, &image::<T>(), level))
                });
                // All sums of these images are exact in a float of 64 bits, in any order.
                assert!(
                    given == wanted,
                    "{kind} {} {:?} {level}",
                    job.name,
                    job.window
                );
                compared += WIDTH * HEIGHT;
            }
        }
    }
    println!("{compared} results are the same");
    std::fs::remove_dir_all(&directory).expect("removed");
}
