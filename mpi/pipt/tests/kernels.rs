//! Kernels of users beside built-in routines that compute the same.

#![forbid(unsafe_code)]

use pipt::command::{How, Work};
use pipt::graph::Failure;
use pipt::graph::Reading;
use pipt::input::{Input, Wanted};
use pipt::job;
use pipt::kernel::{self, Kernel, Made, Window};
use pipt::{routine, work};
use pipt_raster::{Info, Rect, Sample, SampleType, Samples, Size, of_type};
use pipt_tiff::{Design, WriteOptions, Writer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const SIZE: Size = Size::new(75, 50);
const EDGES: [&str; 6] = [
    "reflect",
    "mirror",
    "replicate",
    "constant",
    "shrink",
    "nodata",
];

/// The mean of the samples of a 5 x 5 square that are there, in Rust.
struct Mean;

impl Kernel for Mean {
    fn halo(&self) -> (u32, u32) {
        (2, 2)
    }

    fn takes(&self) -> Option<SampleType> {
        Some(SampleType::F64)
    }

    fn run(&self, window: &Window<'_>) -> Result<Vec<Made>, Failure> {
        let Samples::F64(samples) = window.samples else {
            return Err("other samples".into());
        };
        let (width, height) = (window.wanted.width as usize, window.wanted.height as usize);
        let stride = width + 4;
        let mut means = Vec::new();
        for pixel in (0..height).flat_map(|y| (0..width).map(move |x| y * stride + x)) {
            let places =
                (0..5).flat_map(|row| (0..5).map(move |column| pixel + row * stride + column));
            let there: Vec<f64> = places
                .filter(|place| window.there[*place])
                .map(|place| samples[place])
                .collect();
            means.push(there.iter().sum::<f64>() / there.len() as f64);
        }
        Ok(vec![Made {
            samples: means.into(),
            there: None,
        }])
    }
}

/// The same in C; and one of two bands, of which the second has no data where the first parameter says so.
const C: &str = r#"
#include "pipt-kernel.h"
static int32_t mean(const void *from, const uint8_t *there, void *to, uint8_t *out_there, const int64_t *shape,
                    const double *parameters) {
    const double *samples = from;
    double *out = to;
    int64_t width = shape[PIPT_WIDTH], stride = width + 2 * shape[PIPT_HALO_ACROSS];
    for (int64_t y = 0; y < shape[PIPT_HEIGHT]; y++)
        for (int64_t x = 0; x < width; x++) {
            double sum = 0, count = 0;
            for (int64_t j = 0; j < 5; j++)
                for (int64_t i = 0; i < 5; i++) {
                    int64_t place = (y + j) * stride + x + i;
                    if (there[place]) { sum += samples[place]; count++; }
                }
            out[y * width + x] = sum / count;
        }
    return 0;
}
const struct pipt_kernel mean5 = {PIPT_KERNEL_VERSION, 2, 2, 1, PIPT_F64, PIPT_ANY, mean};
static int32_t split(const void *from, const uint8_t *there, void *to, uint8_t *out_there, const int64_t *shape,
                   const double *parameters) {
    const uint16_t *samples = from;
    uint16_t *out = to;
    int64_t count = shape[PIPT_WIDTH] * shape[PIPT_HEIGHT];
    if (shape[PIPT_TYPE] != PIPT_U16 || shape[PIPT_PARAMETERS] != 1) return 7;
    for (int64_t i = 0; i < count; i++) {
        out[i] = samples[i];
        out[count + i] = samples[i] + 1;
        if (samples[i] < parameters[0]) out_there[count + i] = 0;
    }
    return 0;
}
const struct pipt_kernel two = {PIPT_KERNEL_VERSION, 0, 0, 2, PIPT_ANY, PIPT_ANY, split};
const struct pipt_kernel old = {99, 0, 0, 1, PIPT_ANY, PIPT_ANY, mean};
"#;

fn compiled(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("mean.c"), directory.join("mean.so"));
    std::fs::write(&source, C).expect("written");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("mpi");
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-I"])
        .arg(header)
        .args([Path::new("-o"), &library, &source])
        .status();
    assert!(done.expect("a C compiler").success());
    library
}

/// An image of this type; 7 stands for no data.
fn image(directory: &Path, kind: SampleType) -> PathBuf {
    fn samples<T: Sample>(rect: Rect) -> Vec<T> {
        let rows = rect.y..rect.y + rect.height;
        let places = rows.flat_map(|y| (rect.x..rect.x + rect.width).map(move |x| (x, y)));
        let number = |(x, y): (u32, u32)| T::of_f64(f64::from((x * 71 + y * 31 + x * y) % 113));
        places.map(number).collect()
    }
    let path = directory.join(format!("{}.tif", kind.name()));
    let info = Info {
        size: SIZE,
        bands: 1,
        kind,
        nodata: Some(7.0),
        names: Vec::new(),
        grain: SIZE,
    };
    let design = Design::new(&info, WriteOptions::default()).expect("a design");
    let writer = Writer::create(&path, design).expect("a file");
    let design = writer.design();
    for number in 0..design.tiles_to_give() {
        let rect = design.tile(number).expect("a tile").rect;
        let values = of_type!(kind, T => samples::<T>(rect).into());
        let bytes = design.encode_tile(number, &[values]).expect("encoded");
        writer.put(number, bytes).expect("written");
    }
    writer.finish().expect("whole");
    path
}

fn run(text: &str, threads: usize, tile: u32) -> Result<(), String> {
    let job = job::parse(text).map_err(|faults| faults.to_string())?;
    let how = How {
        threads: Some(threads),
        memory: 1 << 28,
        tile: Some(tile),
        instructions: None,
        part: None,
        json: false,
        quiet: true,
        overwrite: true,
        resume: false,
        percent: false,
        distribution: Default::default(),
        collect: Default::default(),
        stop: Default::default(),
    };
    let done = work::run(&Work { job, how }, None, &|_, _| {});
    done.map(|_| ()).map_err(|error| error.to_string())
}

fn samples(path: &Path, band: u32) -> pipt::graph::Part {
    let name = path.to_str().expect("UTF-8");
    let input = Input::open(name, &Wanted::default()).expect("opened");
    input.part(band, SIZE.rect()).expect("read")
}

#[test]
fn kernels_of_rust_and_of_c_are_equal_to_the_mean_with_all_edges_and_types() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let library = compiled(at);
    kernel::register("mean", Arc::new(Mean)).expect("registered");
    // The routine rounds for whole numbers, and a kernel that gives floats does not.
    let floats = image(at, SampleType::F64);
    for kind in SampleType::ALL {
        let image = image(at, kind);
        for edge in EDGES {
            let text = format!(
                "in {} as a\nin {} as f\nm = SquareMean f size=5 edge={edge} value=3\n\
                 r = User a kernel=mean edge={edge} value=3\n\
                 c = User a kernel={}:mean5 edge={edge} value=3\n\
                 write m {at}/m.tif tile=16\nwrite r {at}/r.tif tile=16\nwrite c {at}/c.tif tile=16\n",
                image.display(),
                floats.display(),
                library.display(),
                at = at.display(),
            );
            let mut kept = None;
            for (threads, tile) in [(1, 16), (3, 48), (2, 4096)] {
                run(&text, threads, tile).unwrap_or_else(|error| panic!("{kind} {edge}: {error}"));
                let all = ["m", "r", "c"].map(|name| samples(&at.join(format!("{name}.tif")), 0));
                let [mean, rust, c] = &all;
                assert_eq!(
                    (&mean.there, &mean.there),
                    (&rust.there, &c.there),
                    "{kind} {edge}"
                );
                for other in [rust, c] {
                    let both = mean
                        .samples
                        .to_f64()
                        .into_iter()
                        .zip(other.samples.to_f64());
                    for (place, (one, other)) in both.enumerate() {
                        let is_there = mean.there.as_ref().is_none_or(|there| there[place]);
                        let is_equal = (one - other).abs() <= 1e-9;
                        assert!(is_equal || !is_there, "{kind} {edge}: {one} {other}");
                    }
                }
                let bits = |part: &pipt::graph::Part| {
                    part.samples
                        .to_f64()
                        .iter()
                        .map(|v| v.to_bits())
                        .collect::<Vec<_>>()
                };
                let bits = (bits(rust), bits(c));
                assert_eq!(
                    *kept.get_or_insert_with(|| bits.clone()),
                    bits,
                    "{kind} {edge} {threads} {tile}"
                );
            }
        }
    }
}

#[test]
fn kernels_make_bands_and_take_data_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let library = compiled(at);
    let image = image(at, SampleType::U16);
    let text = |parameters: &str| {
        format!(
            "in {} as a\nb = User a kernel={}:two {parameters}\nwrite b {}/b.tif tile=16\n",
            image.display(),
            library.display(),
            at.display()
        )
    };
    run(&text("parameters=50"), 2, 16).expect("done");
    let (source, made) = (
        samples(&image, 0),
        [0, 1].map(|band| samples(&at.join("b.tif"), band)),
    );
    let there = |part: &pipt::graph::Part, place: usize| {
        part.there.as_ref().is_none_or(|there| there[place])
    };
    for (place, value) in source.samples.to_f64().into_iter().enumerate() {
        assert_eq!(there(&made[0], place), value != 7.0);
        assert_eq!(there(&made[1], place), value >= 50.0);
        if value >= 50.0 {
            assert_eq!(made[1].samples.to_f64()[place], value + 1.0);
        }
    }
    let refused = run(&text("parameters=1,2"), 1, 16).expect_err("two numbers");
    assert!(
        refused.contains("The kernel two could not compute") && refused.contains('7'),
        "{refused}"
    );
}

#[test]
fn what_is_no_kernel_is_refused_by_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let library = compiled(at);
    let image = image(at, SampleType::U8);
    let refused = |kernel: &str| {
        let text = format!(
            "in {} as a\nb = User a kernel={kernel}\nwrite b {}/b.tif\n",
            image.display(),
            at.display()
        );
        run(&text, 1, 16).expect_err(kernel)
    };
    assert!(refused("nobody").contains("No kernel is called 'nobody'"));
    assert!(refused("/nowhere/mean.so:mean5").contains("There is no library /nowhere/mean.so"));
    assert!(refused(&format!("{}:mean5", image.display())).contains("cannot be opened"));
    assert!(refused(&format!("{}:median", library.display())).contains("exports no"));
    assert!(refused(&format!("{}:old", library.display())).contains("of version 99"));
    struct Far;
    impl Kernel for Far {
        fn halo(&self) -> (u32, u32) {
            (5000, 0)
        }
        fn run(&self, _: &Window<'_>) -> Result<Vec<Made>, Failure> {
            Err("never run".into())
        }
    }
    let far = kernel::register("far", Arc::new(Far)).expect_err("too far");
    assert!(far.to_string().contains("5000 columns"), "{far}");
    let bad = kernel::register("a:b", Arc::new(Mean)).expect_err("no name");
    assert!(bad.to_string().contains("cannot be the name"), "{bad}");
    assert_eq!(
        routine::all().count(),
        64,
        "kernels of users are apart from the routines"
    );
}
