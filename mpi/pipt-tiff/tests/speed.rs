//! How fast files are read and written: processor time of one thread, MB of samples in a second.
#![forbid(unsafe_code)]

use std::time::Duration;

use pipt_raster::{Info, SampleType, Samples, Size, Source};
use pipt_tiff::{Compression, Design, Interleave, ReadOptions, Tiff, WriteOptions, Writer};

/// Processor time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

/// The best of five.
fn best(bytes: u64, mut what: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        // The clock moves by some milliseconds.
        let (begin, mut times) = (spent(), 0);
        while spent() - begin < Duration::from_millis(200) {
            what();
            times += 1;
        }
        best = best.min((spent() - begin) / times);
    }
    #[allow(clippy::cast_precision_loss, reason = "some millions")]
    let bytes = bytes as f64;
    bytes / 1e6 / best.as_secs_f64()
}

/// A slope with noise of some bits, as photographs have it.
fn picture(kind: SampleType, size: Size) -> Samples {
    fn of<T: pipt_raster::Sample>(size: Size) -> Vec<T> {
        let mut state = 1_u32;
        let pixel = |at: u64| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (x, y) = (at % u64::from(size.width), at / u64::from(size.width));
            let slope = u32::try_from((x + y) / 20 % 200).unwrap_or(0);
            T::of_f64(f64::from(slope + (state >> 28)))
        };
        (0..size.pixels()).map(pixel).collect()
    }
    pipt_raster::of_type!(kind, T => of::<T>(size).into())
}

#[test]
fn speed_of_each_compression() {
    let size = Size::new(2048, 2048);
    let directory = tempfile::tempdir().expect("a directory");
    let compressions = [
        Compression::None,
        Compression::Lzw,
        Compression::Deflate(6),
        Compression::Deflate(1),
        Compression::Zstd(1),
        Compression::Zstd(3),
    ];
    for kind in [SampleType::U8, SampleType::U16, SampleType::F32] {
        let image = picture(kind, size);
        let image = pipt_raster::source::Memory::new(size, vec![image]).expect("an image");
        for compression in compressions {
            let info = Info {
                grain: size,
                ..image.info().clone()
            };
            let options = WriteOptions {
                compression,
                interleave: Interleave::Planar,
                ..WriteOptions::default()
            };
            let design = Design::new(&info, options).expect("a design");
            let tiles: Vec<_> = (0..design.tiles()).collect();
            let given: Vec<_> = tiles
                .iter()
                .map(|tile| {
                    image
                        .read(0, design.tile(*tile).expect("a tile").rect)
                        .expect("samples")
                })
                .collect();
            let bytes = size.pixels() * kind.bytes() as u64;
            let mut encoded = Vec::new();
            let write = best(bytes, || {
                let all = tiles.iter().zip(&given);
                let encode = |(tile, samples): (&u64, &Samples)| {
                    design
                        .encode_tile(*tile, std::slice::from_ref(samples))
                        .expect("bytes")
                };
                encoded = all.map(encode).collect();
            });
            let path = directory.path().join("image.tif");
            let writer = Writer::create(&path, design.clone()).expect("a file");
            for (tile, bytes) in tiles.iter().zip(&encoded) {
                writer.put(*tile, bytes.clone()).expect("written");
            }
            let length = writer.finish().expect("finished").bytes;
            let tiff = Tiff::open(&path, ReadOptions::default()).expect("a TIFF file");
            let read = best(bytes, || {
                tiff.read(0, size.rect()).expect("samples");
            });
            println!(
                "{kind:4} {compression:?}: encodes {write:.0} MB/s, reads {read:.0} MB/s, {:.2} of its size",
                f64::from(u32::try_from(length).expect("small"))
                    / f64::from(u32::try_from(bytes).expect("small"))
            );
        }
    }
}
