//! The corpus of the fuzz target: each file is read or refused, and what is whole is read.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipt_raster::{Info, Sample, SampleType, Samples, Size, Source};
use pipt_tiff::design::Big;
use pipt_tiff::fuzz::fuzz;
use pipt_tiff::{
    Complex, Compression, Design, Interleave, Narrow, ReadOptions, Reduce, Tiff, WriteOptions,
    Writer,
};

/// Files whose names begin so have an image that is read.
const WHOLE: &str = "whole-";

/// All of them together take no more than this.
const KIBIBYTES: u64 = 512 * 1024;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/tiff")
}

#[test]
fn each_file_of_the_corpus_is_read_or_refused() {
    let (mut whole, mut others) = (0, 0);
    for entry in fs::read_dir(directory()).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let bytes = fs::read(&path).expect("a file");
        let outcome = fuzz(&bytes);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(WHOLE) {
            outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
            read(&name, bytes);
            whole += 1;
        } else {
            others += 1;
        }
    }
    assert!(whole >= 20 && others >= 15, "{whole} and {others} files");
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let peak: u64 = peak.expect("a peak").trim().parse().expect("a number");
    assert!(peak < KIBIBYTES, "{peak} KiB at the most");
}

/// Reads all samples of the first image.
fn read(name: &str, bytes: Vec<u8>) {
    let options = ReadOptions {
        narrow: Narrow::Widen,
        complex: Complex::Magnitude,
        ..ReadOptions::default()
    };
    let image = Tiff::of(Arc::new(bytes), options).expect("it was opened before");
    let info = image.info();
    let bands = image.read_bands(0, info.bands, info.size.rect());
    let bands = bands.unwrap_or_else(|error| panic!("{name}: {error}"));
    let differ = |band: &Samples| band.to_f64().windows(2).any(|pair| pair[0] != pair[1]);
    let is_flat = name.ends_with("one-strip");
    assert!(
        is_flat || bands.iter().any(differ),
        "{name}: all samples are one number"
    );
}

/// The files that were made here are in the corpus; with `PIPT_CORPUS=write` they are written there anew, for who
/// has changed what follows.
#[test]
fn the_corpus_has_a_file_of_each_kind() {
    let mut files = tiled();
    files.extend(striped());
    files.extend(foreign());
    files.extend(bad(&files));
    let is_written = std::env::var_os("PIPT_CORPUS").is_some_and(|word| word == "write");
    for (name, bytes) in files {
        let path = directory().join(&name);
        if is_written {
            fs::write(&path, &bytes).expect("written");
        }
        assert!(path.exists(), "{name}: write it with PIPT_CORPUS=write");
        let (now, kept) = (fuzz(&bytes), fuzz(&fs::read(&path).expect("a file")));
        assert_eq!(now.ok(), kept.ok(), "{name}");
    }
}

type Named = (String, Vec<u8>);

/// Files of our own writer.
fn tiled() -> Vec<Named> {
    let ways = [
        ("none", Compression::None, SampleType::U16, Big::Auto),
        ("zstd", Compression::Zstd(3), SampleType::F32, Big::Always),
        (
            "deflate",
            Compression::Deflate(6),
            SampleType::I64,
            Big::Auto,
        ),
        ("lzw", Compression::Lzw, SampleType::U8, Big::Auto),
    ];
    let mut files = Vec::new();
    for (name, compression, kind, big) in ways {
        for interleave in [Interleave::Planar, Interleave::Chunky] {
            let options = WriteOptions {
                tile: Size::new(16, 16),
                compression,
                interleave,
                big,
                overviews: Some(Reduce::Nearest),
                ..WriteOptions::default()
            };
            let layout = format!("{interleave:?}").to_lowercase();
            files.push((
                format!("{WHOLE}tiles-{name}-{layout}"),
                tiles(kind, options),
            ));
        }
    }
    files
}

fn tiles(kind: SampleType, options: WriteOptions) -> Vec<u8> {
    let size = Size::new(19, 9);
    let info = Info {
        size,
        bands: 2,
        kind,
        nodata: Some(0.0),
        names: vec!["a".to_owned(), "<b>".to_owned()],
        grain: size,
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image.tif");
    let design = Design::new(&info, options).expect("a design");
    let writer = Writer::create(&path, design).expect("a file");
    let design = writer.design();
    for number in 0..design.tiles_to_give() {
        let at = design.tile(number).expect("a tile").rect;
        let values = 0..u8::try_from(at.pixels()).expect("few");
        let band: Samples = pipt_raster::of_type!(kind, T => {
            values.map(|n| T::of_f64(n.into())).collect::<Vec<T>>().into()
        });
        let bands = vec![band; design.bands_of_tile() as usize];
        let bytes = design.encode_tile(number, &bands).expect("bytes");
        writer.put(number, bytes).expect("written");
    }
    writer.finish().expect("finished");
    fs::read(path).expect("a file")
}

/// A tag with values of two bytes, or of four.
#[derive(Clone)]
enum Value {
    Short(Vec<u16>),
    Long(Vec<u32>),
}

/// A file with strips, as the specification has it.
#[derive(Clone)]
struct Strips {
    is_big_endian: bool,
    tags: Vec<(u16, Value)>,
    strips: Vec<Vec<u8>>,
}

impl Strips {
    /// Of 8 x 6 pixels, two rows a strip.
    fn new(bits: u16, bands: u16, strip: usize) -> Self {
        let strips = (0..3).map(|number| {
            let bytes = (0..strip).map(|at| (at * 37 + number * 11).to_le_bytes()[0]);
            bytes.collect()
        });
        let short = |value: u16| Value::Short(vec![value]);
        Self {
            is_big_endian: false,
            tags: vec![
                (256, short(8)),
                (257, short(6)),
                (258, Value::Short(vec![bits; bands.into()])),
                (259, short(1)),
                (262, short(1)),
                (277, short(bands)),
                (278, short(2)),
            ],
            strips: strips.collect(),
        }
    }

    fn with(mut self, tag: u16, value: Value) -> Self {
        self.tags.retain(|(number, _)| *number != tag);
        self.tags.push((tag, value));
        self
    }

    fn short(self, tag: u16, value: u16) -> Self {
        self.with(tag, Value::Short(vec![value]))
    }

    fn two(&self, value: u16) -> [u8; 2] {
        match self.is_big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        }
    }

    fn four(&self, value: usize) -> [u8; 4] {
        let value = u32::try_from(value).expect("small");
        match self.is_big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        }
    }

    /// Header, strips, directory, values.
    fn bytes(mut self) -> Vec<u8> {
        let mut file = match self.is_big_endian {
            true => b"MM\0*\0\0\0\0".to_vec(),
            false => b"II*\0\0\0\0\0".to_vec(),
        };
        let (mut places, mut lengths) = (Vec::new(), Vec::new());
        for strip in &self.strips {
            places.push(u32::try_from(file.len()).expect("small"));
            lengths.push(u32::try_from(strip.len()).expect("small"));
            file.extend(strip);
        }
        for (tag, value) in [(273, Value::Long(places)), (279, Value::Long(lengths))] {
            if self.tags.iter().all(|(number, _)| *number != tag) {
                self.tags.push((tag, value));
            }
        }
        self.tags.sort_by_key(|(number, _)| *number);
        file.resize(file.len().next_multiple_of(2), 0);
        let begin = self.four(file.len());
        file[4..8].copy_from_slice(&begin);
        file.extend(self.two(u16::try_from(self.tags.len()).expect("few")));
        let mut values = Vec::new();
        let behind = file.len() + 12 * self.tags.len() + 4;
        for (tag, value) in &self.tags {
            let (kind, count, mut bytes): (u16, usize, Vec<u8>) = match value {
                Value::Short(all) => {
                    let bytes = all.iter().flat_map(|value| self.two(*value));
                    (3, all.len(), bytes.collect())
                }
                Value::Long(all) => {
                    let bytes = all.iter().flat_map(|value| self.four(*value as usize));
                    (4, all.len(), bytes.collect())
                }
            };
            file.extend(self.two(*tag));
            file.extend(self.two(kind));
            file.extend(self.four(count));
            if bytes.len() > 4 {
                file.extend(self.four(behind + values.len()));
                values.extend(bytes);
            } else {
                bytes.resize(4, 0);
                file.extend(bytes);
            }
        }
        file.extend([0; 4]);
        file.extend(values);
        file
    }
}

/// Strips of other programs' flavours.
fn striped() -> Vec<Named> {
    let plain = Strips::new(8, 1, 16);
    let planes = Strips {
        strips: [plain.strips.clone(), plain.strips.clone()].concat(),
        ..Strips::new(8, 2, 16)
    };
    let files = [
        ("u8", plain.clone()),
        (
            "u16-big-endian",
            Strips {
                is_big_endian: true,
                ..Strips::new(16, 3, 96)
            },
        ),
        ("u8-planes", planes.short(284, 2)),
        ("bits-1-white-is-0", Strips::new(1, 1, 2).short(262, 0)),
        (
            "bits-1-filled-from-below",
            Strips::new(1, 1, 2).short(266, 2),
        ),
        ("bits-4", Strips::new(4, 1, 8)),
        ("bits-12", Strips::new(12, 1, 24)),
        ("floats-of-16-bits", Strips::new(16, 1, 32).short(339, 3)),
        ("floats-of-24-bits", Strips::new(24, 1, 48).short(339, 3)),
        ("complex", Strips::new(64, 1, 128).short(339, 6)),
        ("complex-integers", Strips::new(32, 1, 64).short(339, 5)),
        ("differences", Strips::new(16, 2, 64).short(317, 2)),
        (
            "no-lengths",
            plain.clone().with(279, Value::Long(vec![0; 3])),
        ),
        (
            "one-strip",
            Strips {
                strips: vec![vec![9; 48]],
                ..plain.short(278, 6)
            },
        ),
    ];
    let named = files.map(|(name, file)| (format!("{WHOLE}strips-{name}"), file.bytes()));
    named.into()
}

/// What is not written here.
fn foreign() -> Vec<Named> {
    let names = ["jpeg", "webp", "lzma", "group3", "group4", "packbits12"];
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str| fs::read(from.join(format!("{name}.tif"))).expect("a file");
    let named = names.map(|name| (format!("{WHOLE}{name}"), read(name)));
    named.into()
}

/// Files that end too early, or say what is not so.
fn bad(files: &[Named]) -> Vec<Named> {
    let mut bad: Vec<Named> = vec![("bad-empty".to_owned(), Vec::new())];
    let cut = [
        "tiles-zstd-planar",
        "tiles-lzw-chunky",
        "strips-u8-planes",
        "jpeg",
        "group4",
    ];
    for name in cut {
        let whole = files.iter().find(|(own, _)| own[WHOLE.len()..] == *name);
        let (_, bytes) = whole.expect("it is one of them");
        for part in [4, 2] {
            let length = bytes.len() - bytes.len() / part;
            bad.push((format!("bad-cut-{name}-{part}"), bytes[..length].to_vec()));
        }
    }
    let long = |values: &[u32]| Value::Long(values.to_vec());
    let plain = Strips::new(8, 1, 16);
    let lies = [
        ("width", plain.clone().with(256, long(&[u32::MAX]))),
        ("height", plain.clone().with(257, long(&[u32::MAX]))),
        (
            "both",
            plain
                .clone()
                .with(256, long(&[u32::MAX]))
                .with(257, long(&[u32::MAX])),
        ),
        ("no-width", plain.clone().short(256, 0)),
        ("rows-of-a-strip", plain.clone().short(278, 0)),
        ("bits", plain.clone().short(258, 255)),
        ("bands", plain.clone().short(277, 65_535)),
        ("places", plain.clone().with(273, long(&[u32::MAX, 0, 8]))),
        ("lengths", plain.clone().with(279, long(&[u32::MAX, 0, 1]))),
        ("one-place", plain.clone().with(273, long(&[8]))),
        (
            "tiles-and-strips",
            plain.clone().short(322, 16).short(323, 16),
        ),
        ("float-predictor", plain.clone().short(317, 3)),
    ];
    bad.extend(lies.map(|(name, file)| (format!("bad-{name}"), file.bytes())));
    for codec in [2, 3, 4, 5, 7, 8, 32_773, 34_925, 50_000, 50_001] {
        let file = plain.clone().short(259, codec).bytes();
        bad.push((format!("bad-stream-{codec}"), file));
    }
    bad
}

fn opened(bytes: Vec<u8>) -> Result<Tiff, pipt_tiff::TiffError> {
    Tiff::of(Arc::new(bytes), ReadOptions::default())
}

/// A tag of a number, whose values would be more than the file has.
fn with_too_much(strips: &Strips, tag: u16) -> Vec<u8> {
    let mut bytes = strips.clone().with(tag, Value::Long(vec![0; 2])).bytes();
    let [low, high] = tag.to_le_bytes();
    let entry = [low, high, 4, 0, 2, 0, 0, 0];
    let at = bytes.windows(8).position(|bytes| *bytes == entry);
    let count = at.expect("the tag") + 4;
    bytes[count..count + 4].copy_from_slice(&0x3fff_ffff_u32.to_le_bytes());
    bytes
}

/// It takes no memory, so there is no limit to raise for it.
#[test]
fn a_tag_that_is_not_needed_may_lie_outside_of_the_file() {
    let strips = Strips::new(8, 1, 16);
    let image = opened(with_too_much(&strips, 305)).expect("the tag is not needed");
    let whole = opened(strips.clone().bytes()).expect("an image");
    let all = image.info().size.rect();
    let read = |image: &Tiff| image.read(0, all).expect("samples");
    assert_eq!(read(&image), read(&whole));
    let error = opened(with_too_much(&strips, 277)).expect_err("it is needed");
    let error = error.to_string();
    assert!(
        error.contains("its values would lie at the bytes"),
        "{error}"
    );
}

#[test]
fn where_there_is_no_chroma_it_is_not_subsampled() {
    let of = |photometric: u16, planes: u16| {
        let strips = Strips::new(8, 3, 48).short(262, photometric);
        let by = Value::Short(vec![2, 2]);
        let strips = strips.short(284, planes).with(530, by);
        let strips = Strips {
            strips: vec![vec![0; 48]; 9],
            ..strips
        };
        opened(strips.bytes()).map(|image| image.info().bands)
    };
    for photometric in [1, 2, 5] {
        assert_eq!(of(photometric, 1).expect("no chroma"), 3);
    }
    for (planes, name) in [(1, "chroma, not in JPEG"), (2, "chroma in planes")] {
        let error = of(6, planes).expect_err("chroma").to_string();
        assert!(error.contains(name), "{error}");
    }
}

/// What only a stream says of itself is a flavour too, not a damage.
#[test]
fn lossless_jpeg_is_refused_by_name() {
    let stream = vec![0xff, 0xd8, 0xff, 0xc3, 0, 11, 8, 0, 2, 0, 8, 1, 1, 17, 0];
    let strips = Strips {
        strips: vec![stream; 3],
        ..Strips::new(8, 1, 16)
    };
    let image = opened(strips.short(259, 7).bytes()).expect("JPEG");
    let error = image.read(0, image.info().size.rect());
    let error = error.expect_err("lossless").to_string();
    assert!(error.contains("has lossless JPEG, which is"), "{error}");
}

#[test]
fn pixtiff_has_a_number_of_its_own_for_deflate() {
    let plain = Strips::new(8, 1, 16);
    let deflated = plain.strips.iter().map(|strip| {
        let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut bytes = vec![0; deflate.zlib_compress_bound(strip.len())];
        let length = deflate.zlib_compress(strip, &mut bytes).expect("room");
        bytes.truncate(length);
        bytes
    });
    let packed = Strips {
        strips: deflated.collect(),
        ..plain.clone().short(259, 50_013)
    };
    let read = |strips: Strips| {
        let image = opened(strips.bytes()).expect("an image");
        image.read(0, image.info().size.rect()).expect("samples")
    };
    assert_eq!(read(packed), read(plain));
}

#[test]
fn it_is_said_where_the_first_directory_should_be() {
    let mut bytes = Strips::new(8, 1, 16).bytes();
    bytes[4..8].copy_from_slice(&0x7fff_0000_u32.to_le_bytes());
    let error = opened(bytes).expect_err("no directory").to_string();
    assert!(error.contains("2147418112"), "{error}");
}
