//! What is written is read as it was, and the bytes of a file depend on its samples alone.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pipt_raster::source::Memory;
use pipt_raster::{Info, Rect, Sample, SampleType, Samples, Size, Source};
use pipt_tiff::design::Big;
use pipt_tiff::writer::{Sealed, TileFile, journal_of, part_of};
use pipt_tiff::{
    Compression, Design, Interleave, Predict, Predictor, ReadOptions, Reduce, Tag, Tiff, TiffError,
    WriteOptions, Writer,
};
use proptest::prelude::*;

/// Samples that neither repeat nor leave out the high bits.
fn samples(kind: SampleType, count: usize, seed: u64) -> Samples {
    fn of<T: Sample>(count: usize, seed: u64) -> Vec<T> {
        let mut state = seed | 1;
        let numbers = (0..count).map(|at| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed | 1);
            // Smooth in places, so that there is something to compress.
            if at % 5 == 0 { state } else { state & 0xff }
        });
        let bits = 8 * T::TYPE.bytes();
        numbers
            .map(|number| {
                T::of_key(if bits == 64 {
                    number
                } else {
                    number & ((1 << bits) - 1)
                })
            })
            .collect()
    }
    pipt_raster::of_type!(kind, T => of::<T>(count, seed).into())
}

/// Bits, because floats that are no numbers differ from themselves.
fn bits(samples: &Samples) -> Vec<u64> {
    pipt_raster::each!(samples, values => values.iter().map(|value| value.key()).collect())
}

fn image(size: Size, bands: u32, kind: SampleType, seed: u64) -> (Memory, Info) {
    let count = usize::try_from(size.pixels()).expect("small");
    let all = (0..bands).map(|band| samples(kind, count, seed + u64::from(band)));
    let memory = Memory::new(size, all.collect()).expect("an image");
    let info = Info {
        nodata: Some(-1.5),
        names: (0..bands).map(|band| format!("band <{band}>")).collect(),
        ..memory.info().clone()
    };
    (memory, info)
}

fn encoded(design: &Design, image: &Memory, number: u64) -> Vec<u8> {
    let at = design.tile(number).expect("a tile");
    let bands = at.band..at.band + design.bands_of_tile();
    let bands: Vec<Samples> = bands
        .map(|band| image.read(band, at.rect).expect("samples"))
        .collect();
    design.encode_tile(number, &bands).expect("a tile")
}

/// Gives all tiles that are not there, from so many threads.
fn fill(writer: &Writer, image: &Memory, threads: usize) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= writer.design().tiles_to_give() {
                        return;
                    }
                    if !writer.is_done(number) {
                        let bytes = encoded(writer.design(), image, number);
                        writer.put(number, bytes).expect("written");
                    }
                }
            });
        }
    });
}

fn written(path: &Path, image: &Memory, info: &Info, options: &WriteOptions, threads: usize) {
    let design = Design::new(info, options.clone()).expect("a design");
    let writer = Writer::create(path, design).expect("a file");
    fill(&writer, image, threads);
    writer.finish().expect("finished");
}

fn open(path: &Path) -> Tiff {
    Tiff::open(path, ReadOptions::default()).expect("a TIFF file")
}

fn compressions() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        (1..13).prop_map(Compression::Deflate),
        (1..8).prop_map(Compression::Zstd),
        Just(Compression::Lzw),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_type_and_layout_comes_back(
        kind in prop::sample::select(SampleType::ALL.to_vec()), compression in compressions(),
        predict in 0..3, planar in any::<bool>(), big in any::<bool>(), bands in 1_u32..5,
        width in 1_u32..90, height in 1_u32..90, tile in 1_u32..4, seed in any::<u32>(),
        corner in any::<[u8; 4]>(),
    ) {
        let (memory, info) = image(Size::new(width, height), bands, kind, seed.into());
        let predict = match (predict, compression, kind.is_float()) {
            (0, ..) | (_, Compression::None, _) => Predict::Auto,
            (1, ..) => Predict::Is(Predictor::Horizontal),
            (_, _, true) => Predict::Is(Predictor::Float),
            _ => Predict::Is(Predictor::None),
        };
        let options = WriteOptions {
            tile: Size::new(16 * tile, 32),
            compression,
            predict,
            interleave: if planar { Interleave::Planar } else { Interleave::Chunky },
            big: if big { Big::Always } else { Big::Auto },
            ..WriteOptions::default()
        };
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image.tif");
        written(&path, &memory, &info, &options, 1);
        let tiff = open(&path);
        prop_assert_eq!(tiff.header().big, big);
        let grain = Size::new(width.min(16 * tile), height.min(32));
        prop_assert_eq!(tiff.info(), &Info { grain, ..info });
        let [x, y, w, h] = corner.map(u32::from);
        let (x, y) = (x % width, y % height);
        let rect = Rect::new(x, y, w % (width - x + 1), h % (height - y + 1));
        for rect in [rect, tiff.info().size.rect()] {
            let all = tiff.read_bands(0, bands, rect).expect("samples");
            for band in 0..bands {
                let wanted = bits(&memory.read(band, rect).expect("samples"));
                prop_assert_eq!(&bits(&tiff.read(band, rect).expect("samples")), &wanted);
                prop_assert_eq!(&bits(&all[band as usize]), &wanted);
            }
        }
    }
}

fn some_options(compression: Compression) -> WriteOptions {
    WriteOptions {
        tile: Size::new(32, 16),
        compression,
        overviews: Some(Reduce::Average),
        waiting: 3,
        resumable: true,
        ..WriteOptions::default()
    }
}

#[test]
fn the_bytes_of_a_file_do_not_depend_on_threads() {
    let directory = tempfile::tempdir().expect("a directory");
    let (memory, info) = image(Size::new(150, 130), 3, SampleType::U16, 5);
    for compression in [Compression::None, Compression::Zstd(3), Compression::Lzw] {
        let mut files = [1, 2, 3].map(|threads| {
            let path = directory.path().join(format!("{threads}.tif"));
            let options = WriteOptions {
                threads,
                ..some_options(compression)
            };
            written(&path, &memory, &info, &options, threads);
            std::fs::read(&path).expect("a file")
        });
        files.sort();
        assert!(files[0] == files[2], "{compression:?}");
    }
    let names = std::fs::read_dir(directory.path())
        .expect("a directory")
        .count();
    assert_eq!(names, 3, "nothing else stays");
}

/// As [`fill`], by others who have encoded tiles in any order: each is written where the writer says, and entered
/// in an order of its own.
fn fill_elsewhere(writer: &Writer, path: &Path, image: &Memory, entered: usize) {
    let file = TileFile::open(path).expect("the file of the writer");
    let missing = (0..writer.design().tiles_to_give()).filter(|number| !writer.is_done(*number));
    let mut tiles: Vec<_> = missing
        .map(|number| {
            let bytes = encoded(writer.design(), image, number);
            let sealed = Sealed::of(&bytes);
            let place = writer.reserve(number, sealed.length).expect("a place");
            (number, place, sealed, bytes)
        })
        .collect();
    tiles.reverse();
    for (number, place, sealed, bytes) in tiles.into_iter().take(entered) {
        file.write(place, &bytes).expect("written");
        let done = writer.enter_written(number, place, sealed);
        done.expect("entered");
    }
    file.sync().expect("on the disk");
}

#[test]
fn tiles_that_others_write_make_the_same_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let (memory, info) = image(Size::new(150, 130), 3, SampleType::U16, 5);
    for compression in [Compression::None, Compression::Zstd(3), Compression::Lzw] {
        let options = some_options(compression);
        let [alone, together] =
            ["alone.tif", "together.tif"].map(|name| directory.path().join(name));
        written(&alone, &memory, &info, &options, 1);
        let design = Design::new(&info, options).expect("a design");
        let writer = Writer::create(&together, design.clone()).expect("a file");
        // Some are missing when it is interrupted; what is there is known by the journal.
        fill_elsewhere(&writer, &together, &memory, 20);
        drop(writer);
        let writer = Writer::resume(&together, design).expect("the same file");
        fill_elsewhere(&writer, &together, &memory, usize::MAX);
        writer.finish().expect("finished");
        let [alone, together] =
            [&alone, &together].map(|path| std::fs::read(path).expect("a file"));
        assert!(alone == together, "{compression:?}");
        std::fs::remove_file(directory.path().join("alone.tif")).expect("removed");
        std::fs::remove_file(directory.path().join("together.tif")).expect("removed");
    }
}

#[test]
fn places_are_given_in_the_order_of_tiles() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, info) = image(Size::new(150, 130), 1, SampleType::U8, 5);
    let design = Design::new(&info, some_options(Compression::Zstd(3))).expect("a design");
    let begin = design.begin();
    let writer = Writer::create(&directory.path().join("a.tif"), design).expect("a file");
    assert!(writer.reserve(1, 10).is_err());
    assert_eq!(writer.reserve(0, 10).expect("a place"), begin);
    assert!(writer.reserve(0, 10).is_err());
    assert_eq!(writer.reserve(1, 7).expect("a place"), begin + 10);
    assert!(writer.reserve(2, u64::MAX).is_err());
}

#[test]
fn a_file_may_have_some_of_its_tiles() {
    let directory = tempfile::tempdir().expect("a directory");
    let (memory, info) = image(Size::new(150, 130), 1, SampleType::U16, 5);
    for compression in [Compression::None, Compression::Zstd(3)] {
        let path = directory.path().join(format!("{compression:?}.tif"));
        let options = WriteOptions {
            sparse: true,
            overviews: None,
            ..some_options(compression)
        };
        let design = Design::new(&info, options).expect("a design");
        let writer = Writer::create(&path, design.clone()).expect("a file");
        for number in [7, 3] {
            let bytes = encoded(&design, &memory, number);
            writer.put(number, bytes).expect("in any order");
        }
        drop(writer);
        let writer = Writer::resume(&path, design.clone()).expect("the same file");
        assert!(writer.is_done(7) && writer.is_done(3) && !writer.is_done(0));
        writer.finish().expect("finished");
        let tile = design.tile(7).expect("a tile").rect;
        let there = open(&path).read(0, tile).expect("samples");
        assert_eq!(bits(&there), bits(&memory.read(0, tile).expect("samples")));
    }
}

#[test]
fn overviews_are_means_of_the_image() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let (memory, info) = image(Size::new(100, 37), 2, SampleType::U8, 9);
    written(
        &path,
        &memory,
        &info,
        &some_options(Compression::Deflate(6)),
        2,
    );
    let tiff = open(&path);
    assert_eq!(tiff.pages(), 3);
    let small = tiff.page(1).expect("an overview");
    assert_eq!(small.info().size, Size::new(50, 19));
    assert_eq!(small.info().nodata, info.nodata);
    for (x, y) in [(0, 0), (49, 17), (31, 8)] {
        let four = memory
            .read(1, Rect::new(2 * x, 2 * y, 2, 2))
            .expect("samples")
            .to_f64();
        let mean = four.iter().sum::<f64>() / 4.0;
        let has = small
            .read(1, Rect::new(x, y, 1, 1))
            .expect("a sample")
            .to_f64()[0];
        assert_eq!(has, mean.round_ties_even(), "at ({x}, {y})");
    }
    assert_eq!(
        tiff.page(2).expect("an overview").info().size,
        Size::new(25, 10)
    );
    assert!(matches!(
        tiff.page(3),
        Err(TiffError::NoPage { page: 3, pages: 3 })
    ));
}

#[test]
fn tags_are_carried_from_one_file_to_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let (first, second) = (
        directory.path().join("1.tif"),
        directory.path().join("2.tif"),
    );
    let (memory, info) = image(Size::new(20, 20), 1, SampleType::F32, 1);
    let tags = vec![
        Tag::text(270, "a description"),
        Tag::doubles(33550, &[10.0, 10.0, 0.0]),
        Tag::doubles(33922, &[0.0, 0.0, 0.0, 5e5, 6e6, 0.0]),
        Tag::shorts(34735, &[1, 1, 0, 1, 1024, 0, 1, 1]),
        Tag::text(
            42112,
            "<GDALMetadata><Item name=\"AREA\">x</Item></GDALMetadata>",
        ),
    ];
    let options = WriteOptions {
        tags: tags.clone(),
        ..WriteOptions::default()
    };
    written(&first, &memory, &info, &options, 1);
    let carried = open(&first).carried_tags();
    let options = WriteOptions {
        tags: carried.clone(),
        ..WriteOptions::default()
    };
    written(&second, &memory, &info, &options, 1);
    let again = open(&second).carried_tags();
    assert_eq!(carried, again);
    for tag in &tags[..4] {
        assert!(again.contains(tag), "{tag:?}");
    }
    let metadata = again
        .iter()
        .find(|tag| tag.number == 42112)
        .and_then(Tag::as_text);
    assert!(metadata.expect("metadata").contains("\"AREA\">x<"));
}

#[test]
fn the_size_of_the_array_in_a_description_is_not_carried() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let (memory, info) = image(Size::new(20, 20), 1, SampleType::F32, 1);
    let options = WriteOptions {
        tags: vec![Tag::text(270, "{\"shape\": [20, 20]}")],
        ..WriteOptions::default()
    };
    written(&path, &memory, &info, &options, 1);
    let carried = open(&path).carried_tags();
    assert!(carried.iter().all(|tag| tag.number != 270), "{carried:?}");
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let (memory, info) = image(Size::new(64, 64), 1, SampleType::U8, 1);
    for resumable in [false, true] {
        let options = WriteOptions {
            resumable,
            ..some_options(Compression::Lzw)
        };
        let design = Design::new(&info, options).expect("a design");
        let writer = Writer::create(&path, design.clone()).expect("a file");
        writer
            .put(0, encoded(&design, &memory, 0))
            .expect("written");
        let twice = writer
            .put(0, encoded(&design, &memory, 0))
            .expect_err("twice");
        assert!(twice.to_string().contains("given before"), "{twice}");
        if !resumable {
            let missing = writer.finish().expect_err("missing");
            assert!(matches!(
                missing,
                TiffError::Missing {
                    missing: 7,
                    tiles: 8,
                    first: 1
                }
            ));
        }
        assert_eq!(part_of(&path).exists(), resumable);
    }
    let design = Design::new(&info, some_options(Compression::Lzw)).expect("a design");
    let exists = Writer::create(&path, design).expect_err("there");
    assert!(matches!(exists, TiffError::Exists { .. }), "{exists}");
    let other = WriteOptions {
        identity: 1,
        ..some_options(Compression::Lzw)
    };
    let other = Design::new(&info, other).expect("a design");
    let refused = Writer::resume(&path, other).expect_err("another job");
    assert!(matches!(refused, TiffError::Resume { .. }), "{refused}");
}

#[test]
fn a_thread_that_gives_up_wakes_those_that_wait() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let (memory, info) = image(Size::new(320, 16), 1, SampleType::U8, 1);
    let design = Design::new(&info, some_options(Compression::Lzw)).expect("a design");
    let writer = Arc::new(Writer::create(&path, design.clone()).expect("a file"));
    let bytes = encoded(&design, &memory, 9);
    let far = std::thread::spawn({
        let writer = Arc::clone(&writer);
        move || writer.put(9, bytes)
    });
    writer.give_up("the sea is rough");
    let error = far.join().expect("no panic").expect_err("given up");
    assert!(error.to_string().contains("the sea is rough"), "{error}");
}

/// The part of a run that ends with the process. It is a test, so that it is in this program; by itself it
/// does nothing.
#[test]
fn a_run_that_is_killed() {
    let Some(path) = std::env::var_os("PIPT_TIFF_KILL_PATH") else {
        return;
    };
    let variable = |name: &str| {
        std::env::var(name)
            .expect(name)
            .parse::<u64>()
            .expect("a number")
    };
    let compression = [Compression::Zstd(3), Compression::None];
    let compression = compression[usize::from(variable("PIPT_TIFF_KILL_PLAIN") == 1)];
    let last = variable("PIPT_TIFF_KILL_AT");
    let (memory, info) = image(Size::new(200, 100), 2, SampleType::F32, 77);
    let path = Path::new(&path);
    let design = Design::new(&info, some_options(compression)).expect("a design");
    let writer = if part_of(path).exists() {
        Writer::resume(path, design).expect("a file")
    } else {
        Writer::create(path, design).expect("a file")
    };
    for number in 0..writer.design().tiles_to_give() {
        if number == last {
            std::process::abort();
        }
        if !writer.is_done(number) {
            let bytes = encoded(writer.design(), &memory, number);
            writer.put(number, bytes).expect("written");
        }
    }
    writer.finish().expect("finished");
}

#[test]
fn a_run_that_was_killed_gives_the_same_bytes_when_it_is_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    for (plain, compression) in [("0", Compression::Zstd(3)), ("1", Compression::None)] {
        let undisturbed = directory.path().join(format!("undisturbed{plain}.tif"));
        let (memory, info) = image(Size::new(200, 100), 2, SampleType::F32, 77);
        written(&undisturbed, &memory, &info, &some_options(compression), 2);
        let wanted = std::fs::read(undisturbed).expect("a file");
        for kills in [[0, 1, 7], [3, 3, 40], [90, 91, 97]] {
            let path = directory.path().join(format!("{plain}.{}.tif", kills[2]));
            for (round, at) in kills.into_iter().chain([u64::MAX]).enumerate() {
                let run =
                    std::process::Command::new(std::env::current_exe().expect("this program"))
                        .args(["--exact", "a_run_that_is_killed"])
                        .env("PIPT_TIFF_KILL_PATH", &path)
                        .env("PIPT_TIFF_KILL_PLAIN", plain)
                        .env("PIPT_TIFF_KILL_AT", at.to_string())
                        .output()
                        .expect("a run");
                assert_eq!(run.status.success(), at == u64::MAX, "{at}: {run:?}");
                if round == 1 {
                    damage(&path);
                }
            }
            let has = std::fs::read(&path).expect("a file");
            assert!(has == wanted, "{kills:?}, {compression:?}");
            assert!(!journal_of(&path).exists());
        }
    }
}

#[test]
fn a_run_that_was_killed_before_its_first_tile_is_begun_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let (memory, info) = image(Size::new(200, 100), 2, SampleType::F32, 77);
    let options = || some_options(Compression::Zstd(3));
    let undisturbed = directory.path().join("undisturbed.tif");
    written(&undisturbed, &memory, &info, &options(), 2);
    let wanted = std::fs::read(undisturbed).expect("a file");
    let path = directory.path().join("killed.tif");
    // Without a journal, with one that is empty, or ends within its head.
    for journal in [None, Some(0), Some(5)] {
        std::fs::write(part_of(&path), []).expect("a part");
        if let Some(length) = journal {
            std::fs::write(journal_of(&path), vec![b'P'; length]).expect("a journal");
        }
        let design = Design::new(&info, options()).expect("a design");
        let writer = Writer::resume(&path, design).expect("a file");
        for number in 0..writer.design().tiles_to_give() {
            let bytes = encoded(writer.design(), &memory, number);
            writer.put(number, bytes).expect("written");
        }
        writer.finish().expect("finished");
        let has = std::fs::read(&path).expect("a file");
        assert!(has == wanted, "{journal:?}");
        assert!(!journal_of(&path).exists());
    }
    // What has tiles is not thrown away.
    std::fs::write(part_of(&path), [1; 100]).expect("a part");
    let design = Design::new(&info, options()).expect("a design");
    assert!(Writer::resume(&path, design).is_err());
    assert_eq!(std::fs::read(part_of(&path)).expect("a part"), [1; 100]);
}

/// As a power failure does: bytes that the journal has are not those of the tile, and the journal ends
/// within an entry.
fn damage(path: &Path) {
    use std::io::Write;
    let part = part_of(path);
    let mut bytes = std::fs::read(&part).expect("a file");
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    std::fs::write(&part, bytes).expect("written");
    let mut journal = std::fs::OpenOptions::new()
        .append(true)
        .open(journal_of(path))
        .expect("a file");
    journal.write_all(&[7; 11]).expect("written");
}

#[test]
fn a_disk_that_is_full_is_said_to_be() {
    // A limit for the size of files is what a test can set without a disk of its own.
    if let Some(path) = std::env::var_os("PIPT_TIFF_FULL_PATH") {
        let (memory, info) = image(Size::new(400, 400), 1, SampleType::F64, 3);
        let options = WriteOptions {
            resumable: false,
            ..some_options(Compression::None)
        };
        let design = Design::new(&info, options).expect("a design");
        let writer = Writer::create(Path::new(&path), design).expect("a file");
        let mut all = 0..writer.design().tiles_to_give();
        let error = all.find_map(|number| {
            writer
                .put(number, encoded(writer.design(), &memory, number))
                .err()
        });
        let text = error.expect("full").to_string();
        assert!(text.contains("disk or quota is full"), "{text}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let program = std::env::current_exe().expect("this program");
    let run = std::process::Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact a_disk_that_is_full_is_said_to_be",
        ])
        .arg(program)
        .env("PIPT_TIFF_FULL_PATH", &path)
        .output()
        .expect("a run");
    assert!(run.status.success(), "{run:?}");
    assert!(!path.exists() && !part_of(&path).exists());
}

#[test]
fn designs_that_cannot_be_are_refused() {
    let (_, info) = image(Size::new(10, 10), 1, SampleType::U8, 1);
    let base = WriteOptions::default();
    let bad = [
        WriteOptions {
            tile: Size::new(100, 16),
            ..base.clone()
        },
        WriteOptions {
            compression: Compression::Zstd(99),
            ..base.clone()
        },
        WriteOptions {
            predict: Predict::Is(Predictor::Float),
            ..base.clone()
        },
        WriteOptions {
            photometric: 2,
            ..base.clone()
        },
        WriteOptions {
            tags: vec![Tag::shorts(256, &[1])],
            ..base.clone()
        },
        WriteOptions {
            waiting: 0,
            ..base.clone()
        },
        WriteOptions {
            tile: Size::new(1 << 20, 1 << 20),
            ..base
        },
    ];
    for options in bad {
        Design::new(&info, options.clone()).expect_err(&format!("{options:?}"));
    }
    let huge = Info {
        size: Size::new(1 << 20, 1 << 20),
        ..info
    };
    let design = Design::new(&huge, WriteOptions::default()).expect("a design");
    assert!(design.is_big(), "1 TiB needs a BigTIFF");
}

#[test]
fn many_threads_read_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let (memory, info) = image(Size::new(120, 90), 2, SampleType::I16, 11);
    let options = WriteOptions {
        interleave: Interleave::Chunky,
        ..some_options(Compression::Zstd(1))
    };
    written(&path, &memory, &info, &options, 2);
    // Room for a few tiles alone, so that they are thrown out while others look.
    let options = ReadOptions {
        cache_bytes: 10_000,
        ..ReadOptions::default()
    };
    let tiff = Tiff::open(&path, options).expect("a TIFF file");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (tiff, memory) = (&tiff, &memory);
            scope.spawn(move || {
                for step in 0..200 {
                    let (x, y) = ((step * 7 + thread * 31) % 100, (step * 13) % 70);
                    let rect = Rect::new(x, y, 20, 20);
                    let band = step % 2;
                    let has = tiff.read(band, rect).expect("samples");
                    assert_eq!(has, memory.read(band, rect).expect("samples"), "{rect}");
                }
            });
        }
    });
}
