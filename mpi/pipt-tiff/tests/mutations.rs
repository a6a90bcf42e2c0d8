//! Files that are damaged end with an error, never with a panic, and never with much memory.
#![forbid(unsafe_code)]

use pipt_raster::{Info, SampleType, Samples, Size};
use pipt_tiff::design::Big;
use pipt_tiff::{Compression, Design, Interleave, Reduce, WriteOptions, Writer, fuzz::fuzz};
use proptest::prelude::*;

fn file(compression: Compression, interleave: Interleave, big: Big) -> Vec<u8> {
    let size = Size::new(50, 40);
    let info = Info {
        size,
        bands: 2,
        kind: SampleType::F32,
        nodata: Some(0.0),
        names: vec!["a".to_owned(), "b".to_owned()],
        grain: size,
    };
    let options = WriteOptions {
        tile: Size::new(32, 32),
        compression,
        interleave,
        big,
        overviews: Some(Reduce::Nearest),
        ..WriteOptions::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let design = Design::new(&info, options).expect("a design");
    let writer = Writer::create(&path, design.clone()).expect("a file");
    for number in 0..design.tiles_to_give() {
        let at = design.tile(number).expect("a tile").rect;
        let values: Vec<f32> = (0..at.pixels()).map(|n| (n % 97) as f32).collect();
        let bands = vec![Samples::F32(values); design.bands_of_tile() as usize];
        let bytes = design.encode_tile(number, &bands).expect("bytes");
        writer.put(number, bytes).expect("written");
    }
    writer.finish().expect("finished");
    std::fs::read(path).expect("a file")
}

/// Small files of other programs: one of each compression that is not written here.
const FOREIGN: [&[u8]; 6] = [
    include_bytes!("data/jpeg.tif"),
    include_bytes!("data/webp.tif"),
    include_bytes!("data/lzma.tif"),
    include_bytes!("data/group3.tif"),
    include_bytes!("data/group4.tif"),
    include_bytes!("data/packbits12.tif"),
];

fn files() -> Vec<Vec<u8>> {
    let ours = [
        (Compression::None, Interleave::Planar, Big::Auto),
        (Compression::Zstd(3), Interleave::Chunky, Big::Always),
        (Compression::Deflate(6), Interleave::Planar, Big::Auto),
        (Compression::Lzw, Interleave::Chunky, Big::Auto),
    ];
    let ours = ours.map(|(compression, interleave, big)| file(compression, interleave, big));
    let foreign = FOREIGN.iter().map(|file| file.to_vec());
    ours.into_iter().chain(foreign).collect()
}

#[test]
fn files_are_read_when_they_are_whole() {
    for (number, file) in files().iter().enumerate() {
        let pages = fuzz(file).unwrap_or_else(|error| panic!("file {number}: {error}"));
        assert_eq!(pages, if number < 4 { 2 } else { 1 });
    }
}

/// One change: where, to what, and how.
fn change(file: &mut Vec<u8>, (at, value, how): (usize, u32, u8)) {
    // Most changes are made where the directories are.
    let length = file.len().max(1);
    let at = if how & 1 == 0 {
        at % length.min(600)
    } else {
        at % length
    };
    match how >> 1 & 3 {
        0 => file[at] = value.to_le_bytes()[0],
        1 => {
            let end = (at + 4).min(length);
            file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        2 => file[at] ^= 1 << (value % 8),
        _ if value % 8 == 0 => file.truncate(at.max(1)),
        _ => {
            let from = value as usize % length;
            let count = (length - at.max(from)).min(16);
            file.copy_within(from..from + count, at);
        }
    }
}

#[test]
fn thousands_of_damaged_files_end_without_a_panic() {
    let files = files();
    let changes = prop::collection::vec((any::<usize>(), any::<u32>(), any::<u8>()), 1..4);
    let config = ProptestConfig {
        // Ten thousand, where they take seconds.
        cases: if cfg!(debug_assertions) {
            2_000
        } else {
            10_000
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let strategy = (0..files.len(), changes);
    let done = runner.run(&strategy, |(file, changes)| {
        let mut file = files[file].clone();
        for one in changes {
            change(&mut file, one);
        }
        let _outcome = fuzz(&file);
        Ok(())
    });
    done.expect("no panic");
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let peak: u64 = peak.expect("a peak").trim().parse().expect("a number");
    assert!(peak < 512 * 1024, "{peak} KiB at the most");
}
