//! Every flavour is read as tifffile reads it, or refused by name.
//!
//! `PIPT_PYTHON` names a Python that has tifffile and imagecodecs (else `python3`), `PIPT_TIFFS` a directory
//! below which further files lie to compare. The table of what was found goes to the standard output.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a few small images"
)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use pipt_raster::{Info, Rect, Sample, SampleType, Samples, Size, Source, each, of_type};
use pipt_tiff::metadata::UNSCALED;
use pipt_tiff::{
    Complex, Compression, Design, Interleave, Narrow, ReadOptions, Reduce, Scale, Tiff, TiffError,
    WriteOptions, Writer,
};

fn oracle(arguments: &[PathBuf]) -> Vec<serde_json::Value> {
    let python = std::env::var("PIPT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.py");
    let done = Command::new(python).arg(script).args(arguments).output();
    let done = done.expect("Python");
    eprintln!("{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "the oracle failed");
    let lines = String::from_utf8(done.stdout).expect("text");
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn bytes(samples: &Samples) -> Vec<u8> {
    each!(samples, values => values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// The whole image, in four parts, so that chunks are cut everywhere.
fn read(line: &serde_json::Value) -> Result<(Tiff, Vec<Samples>), TiffError> {
    let complex = match line["part"].as_str() {
        Some("imaginary") => Complex::Imaginary,
        _ => Complex::Real,
    };
    let page = line["page"].as_u64().expect("a number");
    let options = ReadOptions {
        page: usize::try_from(page).expect("a small one"),
        narrow: Narrow::Widen,
        complex,
        cache_bytes: 1 << 20,
        ..ReadOptions::default()
    };
    let tiff = Tiff::open(Path::new(line["file"].as_str().expect("a name")), options)?;
    let (size, bands) = (tiff.info().size, tiff.info().bands);
    let whole = tiff.read_bands(0, bands, size.rect())?;
    let (x, y) = (size.width / 3, size.height / 2);
    for band in 0..bands {
        for rect in [
            Rect::new(0, 0, x, y),
            Rect::new(x, y, size.width - x, size.height - y),
        ] {
            let part = tiff.read(band, rect)?;
            let memory = pipt_raster::source::Memory::new(size, vec![whole[band as usize].clone()]);
            let same = memory.expect("an image").read(0, rect).expect("a part");
            assert_eq!(bytes(&part), bytes(&same), "{line} in parts");
        }
    }
    Ok((tiff, whole))
}

/// The largest difference, if there is any; none if the images cannot be compared.
fn difference(line: &serde_json::Value, tiff: &Tiff, samples: &[Samples]) -> Option<f64> {
    let number = |name: &str| line[name].as_u64().expect("a number") as u32;
    let info = tiff.info();
    let shape = (info.size.width, info.size.height, info.bands);
    if shape != (number("width"), number("height"), number("bands"))
        || info.kind.name() != line["kind"].as_str().expect("a type")
    {
        return None;
    }
    let wanted = std::fs::read(line["raw"].as_str().expect("a name")).expect("samples");
    let has: Vec<u8> = samples.iter().flat_map(bytes).collect();
    if has == wanted {
        return Some(0.0);
    }
    let value = |bytes: &[u8]| match info.kind.name() {
        "u8" => bytes[0].into(),
        "u16" => u16::from_le_bytes(bytes.try_into().expect("2")).into(),
        "f32" => f32::from_le_bytes(bytes.try_into().expect("4")).into(),
        "f64" => f64::from_le_bytes(bytes.try_into().expect("8")),
        _ => {
            if bytes.iter().all(|byte| *byte == 0) {
                0.0
            } else {
                f64::MAX
            }
        }
    };
    let width = info.kind.bytes();
    let pairs = has.chunks(width).zip(wanted.chunks(width));
    let differences = pairs.map(|(has, wanted)| {
        let (is, should) = (value(has), value(wanted));
        // What is no number is that by any of many bits.
        if has == wanted || (is.is_nan() && should.is_nan()) {
            0.0
        } else {
            (is - should).abs().max(f64::MIN_POSITIVE)
        }
    });
    Some(differences.fold(0.0, f64::max))
}

/// Files which tifffile reads otherwise without a word. The strips of the first have no lengths: tifffile takes one of
/// six, and GDAL reads it as we do. The others are refused here: lines lack their ends, or fuzzers broke them, and
/// tifffile and libtiff paint what is left open.
const BROKEN: [&str; 4] = [
    "id=000019,sig=06,src=000001,op=havoc,rep=8",
    "g3aoe.tif",
    "crash-63b1dffefc8c075ddc606c0a2f5fdc15ece78863.tif",
    "crash-74d2a78403a5a59db1fb0a2b8735ac068a75f6e3.tif",
];

/// What decoders of lossy formats may differ in, one from another: their specifications leave the rounding
/// of transforms and the widening of chroma open.
fn tolerance(line: &serde_json::Value) -> f64 {
    match line["codec"].as_str() {
        Some("JPEG") => 5.0,
        Some("WEBP") => 2.0,
        _ => 0.0,
    }
}

/// What came of a page, in the words of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Equal,
    Near,
    /// Equal to what libtiff reads, where tifffile reads nothing or something else.
    ByLibtiff,
    /// Only we read it.
    Alone,
    Refused,
    /// Neither libtiff nor we read it. tifffile may: it goes on behind broken streams and tags.
    Damaged,
    Wrong,
}

const OUTCOMES: [(Outcome, &str); 7] = [
    (Outcome::Equal, "equal"),
    (Outcome::Near, "near"),
    (Outcome::ByLibtiff, "libtiff"),
    (Outcome::Alone, "only we"),
    (Outcome::Refused, "refused"),
    (Outcome::Damaged, "damaged"),
    (Outcome::Wrong, "WRONG"),
];

/// What the oracle says of libtiff where it reads what tifffile reads.
const SAME: &str = "the same";

fn judge(line: &serde_json::Value) -> (Outcome, String) {
    let problem = line["refused"].as_str();
    let is_broken = BROKEN.contains(&line["flavour"].as_str().unwrap_or_default());
    let libtiff = &line["libtiff"];
    let (tiff, samples) = match read(line) {
        Ok(image) => image,
        Err(TiffError::Refused { flavour, .. }) => return (Outcome::Refused, flavour),
        Err(error) => {
            // libtiff goes on behind broken JPEG.
            let goes_on = libtiff.is_object() && line["codec"] == "JPEG";
            let is_foreign = libtiff.is_string() && libtiff != SAME;
            let outcome = match problem.is_some() && (goes_on || is_foreign) {
                false if !libtiff.is_null() && !is_broken => Outcome::Wrong,
                _ => Outcome::Damaged,
            };
            return (
                outcome,
                format!("{error} / {}", problem.unwrap_or_default()),
            );
        }
    };
    let by = match problem {
        None => difference(line, &tiff, &samples),
        Some(_) => None,
    };
    match by {
        Some(0.0) => return (Outcome::Equal, String::new()),
        Some(by) if by <= tolerance(line) => return (Outcome::Near, by.to_string()),
        _ => {}
    }
    let instead = format!("tifffile: {}", problem.unwrap_or("something else"));
    let second = match libtiff.is_object() {
        true => difference(libtiff, &tiff, &samples),
        false => None,
    };
    match second {
        Some(by) if by <= tolerance(line) => (Outcome::ByLibtiff, instead),
        _ if is_broken => (Outcome::ByLibtiff, instead),
        None if problem.is_some() => (Outcome::Alone, instead),
        _ => (Outcome::Wrong, format!("by {by:?} and {second:?}")),
    }
}

fn compare(lines: &[serde_json::Value]) {
    let judged = lines.iter().map(|line| {
        let (outcome, said) = judge(line);
        let part = line["part"].as_str().unwrap_or_default();
        (
            outcome,
            format!("{} {} {part}: {said}", line["file"], line["page"]),
        )
    });
    let judged: Vec<_> = judged.collect();
    for (outcome, word) in OUTCOMES {
        let of = judged.iter().filter(|(is, _)| *is == outcome);
        of.clone()
            .for_each(|(_, said)| println!("{word:<8} {said}"));
        println!("{word}: {} of {}", of.count(), judged.len());
    }
    assert!(
        judged.iter().all(|(is, _)| *is != Outcome::Wrong),
        "see above"
    );
}

#[test]
fn every_flavour_is_read_as_tifffile_reads_it_or_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = oracle(&[directory.path().to_owned()]);
    assert!(lines.len() > 56, "{} flavours", lines.len());
    compare(&lines);
}

#[test]
fn files_from_elsewhere_are_read_as_tifffile_reads_them_or_refused() {
    let Some(files) = std::env::var_os("PIPT_TIFFS") else {
        println!("PIPT_TIFFS names no directory of files");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let mut arguments = vec![directory.path().to_owned()];
    find(Path::new(&files), &mut arguments);
    arguments[1..].sort();
    compare(&oracle(&arguments));
}

/// All files below a directory that begin as a TIFF does, whatever their names end with.
fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find(&path, files);
            continue;
        }
        let mut begins = [0; 4];
        let file = std::fs::File::open(&path);
        let read = file.and_then(|mut file| file.read_exact(&mut begins));
        if read.is_ok() && [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].contains(&&begins) {
            files.push(path);
        }
    }
}

#[test]
fn files_that_are_written_here_are_read_by_tifffile() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut arguments = vec![directory.path().join("oracle")];
    let compressions = [
        Compression::None,
        Compression::Deflate(6),
        Compression::Zstd(3),
        Compression::Lzw,
    ];
    for kind in SampleType::ALL {
        for compression in compressions {
            for interleave in [Interleave::Planar, Interleave::Chunky] {
                let name = format!("{kind} {compression:?} {interleave:?}.tif");
                let path = directory.path().join(name);
                write(&path, kind, compression, interleave);
                arguments.push(path);
            }
        }
    }
    let lines = oracle(&arguments);
    let refused: Vec<_> = lines
        .iter()
        .filter(|line| !line["refused"].is_null())
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let scales = SCALES.map(|scale| [scale.offset, scale.step]);
    for line in &lines {
        assert_eq!(line["scales"], serde_json::json!(scales), "{line}");
    }
    compare(&lines);
    for path in &arguments[1..] {
        is_understood_by_gdal(path);
    }
}

/// Names of bands, the value for no data and overviews are where GDAL looks for them, if it is installed.
fn is_understood_by_gdal(path: &Path) {
    let Ok(told) = Command::new("gdalinfo").arg(path).output() else {
        println!("gdalinfo is not installed");
        return;
    };
    let told = String::from_utf8_lossy(&told.stdout);
    let expected = [
        "Description = energy",
        "Description = entropy & more",
        "NoData Value=7",
        "Offset: -1,   Scale:0.25",
        "Overviews: 75x35, 38x18",
        "Block=64x32",
    ];
    for text in expected {
        assert!(told.contains(text), "{text} of {}: {told}", path.display());
    }
}

/// Of the bands of the files that are written.
const SCALES: [Scale; 3] = [
    Scale {
        offset: -1.0,
        step: 0.25,
    },
    Scale {
        offset: 3.5,
        step: 2.0 / 65_534.0,
    },
    UNSCALED,
];

fn write(path: &Path, kind: SampleType, compression: Compression, interleave: Interleave) {
    fn values<T: Sample>(rect: Rect, band: u32) -> Vec<T> {
        let rows = rect.y..rect.y + rect.height;
        let pixels = rows.flat_map(|y| (rect.x..rect.x + rect.width).map(move |x| (x, y)));
        let value = |(x, y)| T::of_f64(f64::from(x * 3 + y * 7 + band * 40) / 1.5 - 30.0);
        pixels.map(value).collect()
    }
    let size = Size::new(150, 70);
    let info = Info {
        size,
        bands: 3,
        kind,
        nodata: Some(7.0),
        names: vec![
            "energy".to_owned(),
            "entropy & more".to_owned(),
            String::new(),
        ],
        grain: size,
    };
    let options = WriteOptions {
        tile: Size::new(64, 32),
        compression,
        interleave,
        overviews: Some(Reduce::Average),
        scales: SCALES.to_vec(),
        ..WriteOptions::default()
    };
    let design = Design::new(&info, options).expect("a design");
    let writer = Writer::create(path, design.clone()).expect("a file");
    for number in 0..design.tiles_to_give() {
        let at = design.tile(number).expect("a tile");
        let bands = at.band..at.band + design.bands_of_tile();
        let bands = bands.map(|band| of_type!(kind, T => values::<T>(at.rect, band).into()));
        let bands: Vec<Samples> = bands.collect();
        let bytes = design.encode_tile(number, &bands).expect("bytes");
        writer.put(number, bytes).expect("written");
    }
    writer.finish().expect("finished");
}
