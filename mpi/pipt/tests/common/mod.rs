//! What tests of the command have in common: images, and running it as a user does.

// Each test program uses a part of it.
#![allow(dead_code)]

use pipt_raster::{Info, Rect, SampleType, Samples, Size};
use pipt_tiff::{Compression, Design, WriteOptions, Writer};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const SIZE: Size = Size::new(700, 500);

/// Waves with a little noise of their own: no two rows alike.
pub(crate) fn sample(x: u32, y: u32, band: u32) -> u16 {
    let wave = f64::from(x * (band + 1)) / 17.0 + f64::from(y) / 23.0;
    let grain = u64::from(x) * 7919 + u64::from(y) * 104_729 + u64::from(band);
    let value = 2000.0 + 900.0 * wave.sin() + f64::from(u32::try_from(grain % 301).unwrap_or(0));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1100 to 3201"
    )]
    let value = value as u16;
    value
}

/// An image with two bands, in which 0 stands for no data: a square of it has none.
pub(crate) fn image(path: &Path) {
    let info = Info {
        size: SIZE,
        bands: 2,
        kind: SampleType::U16,
        nodata: Some(0.0),
        names: vec!["red".to_owned(), "green".to_owned()],
        grain: SIZE,
    };
    let is_hole = |x: u32, y: u32| (300..340).contains(&x) && (200..230).contains(&y);
    let all = |rect: Rect, band: u32| {
        let places = places(rect).map(|(x, y)| match is_hole(x, y) {
            true => 0,
            false => sample(x, y, band),
        });
        places.collect::<Vec<u16>>().into()
    };
    write(path, &info, 128, Compression::Zstd(3), all);
}

/// An image with one band of floats, which are computed of columns and rows.
pub(crate) fn floats(path: &Path, size: Size, of: impl Fn(u32, u32) -> f32) {
    let info = Info {
        size,
        bands: 1,
        kind: SampleType::F32,
        nodata: None,
        names: Vec::new(),
        grain: size,
    };
    let all = |rect: Rect, _: u32| {
        let places = places(rect).map(|(x, y)| of(x, y));
        places.collect::<Vec<f32>>().into()
    };
    write(path, &info, 16, Compression::None, all);
}

/// An image with one band of bytes, all of them 7.
pub(crate) fn bytes(path: &Path, size: Size, nodata: Option<f64>) {
    let info = Info {
        size,
        bands: 1,
        kind: SampleType::U8,
        nodata,
        names: Vec::new(),
        grain: size,
    };
    let all = |rect: Rect, _: u32| places(rect).map(|_| 7).collect::<Vec<u8>>().into();
    write(path, &info, 16, Compression::Lzw, all);
}

fn places(rect: Rect) -> impl Iterator<Item = (u32, u32)> {
    let columns = move |y| (rect.x..rect.x + rect.width).map(move |x| (x, y));
    (rect.y..rect.y + rect.height).flat_map(columns)
}

fn write(
    path: &Path,
    info: &Info,
    tile: u32,
    compression: Compression,
    all: impl Fn(Rect, u32) -> Samples,
) {
    let options = WriteOptions {
        tile: Size::new(tile, tile),
        compression,
        ..WriteOptions::default()
    };
    let design = Design::new(info, options).expect("a design");
    let writer = Writer::create(path, design).expect("a file");
    let design = writer.design();
    for number in 0..design.tiles_to_give() {
        let at = design.tile(number).expect("a tile");
        let bytes = design.encode_tile(number, &[all(at.rect, at.band)]);
        writer
            .put(number, bytes.expect("encoded"))
            .expect("written");
    }
    writer.finish().expect("whole");
}

pub(crate) fn pipt(directory: &Path, words: &str) -> Output {
    let output = command(directory, words).output();
    output.expect("it was built")
}

pub(crate) fn command(directory: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipt"));
    command
        .args(words.split_whitespace())
        .current_dir(directory);
    command
}

pub(crate) fn done(directory: &Path, words: &str) -> String {
    let output = pipt(directory, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn refused(directory: &Path, words: &str) -> (Option<i32>, String) {
    let output = pipt(directory, words);
    assert!(!output.status.success(), "{words}");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

pub(crate) fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    image(&path.join("a.tif"));
    (directory, path)
}

/// The same instruction sets as the kernels: those that this machine has.
pub(crate) fn levels() -> Vec<&'static str> {
    pipt_simd::Level::here()
        .map(pipt_simd::Level::name)
        .collect()
}

/// Noise, a median of it and texture of that; and a trimmed mean of the noise.
pub(crate) const JOB: &str = "
in a.tif
loud = AddGaussian a deviation=40 seed=7
calm = SquareMedian loud size=5
rough = CoOccur calm window=5 levels=16 features=energy,entropy,contrast edge=shrink
soft = ATrimmedCrMean loud size=7 trim=0.2 edge=nodata
write rough rough.tif tile=128
write soft soft.tif tile=128 compress=deflate
write loud loud.tif tile=64 compress=lzw overviews=yes
";

/// The files that it writes.
pub(crate) const WRITTEN: [&str; 3] = ["rough.tif", "soft.tif", "loud.tif"];

/// Their bytes.
pub(crate) fn written(directory: &Path) -> Vec<Vec<u8>> {
    let read = |name: &&str| fs::read(directory.join(name)).expect("written");
    WRITTEN.iter().map(read).collect()
}

/// A random number below 2^31 after the other.
pub(crate) struct Random(u64);

impl Random {
    /// By the clock, or that of a run that is to be repeated.
    pub(crate) fn seeded() -> Self {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = clock.map_or(1, |since| u64::from(since.subsec_nanos()));
        let given = std::env::var("PIPT_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or(clock);
        println!("PIPT_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(((self.0 >> 33) * u64::from(bound)) >> 31).expect("it is below the bound")
    }
}
