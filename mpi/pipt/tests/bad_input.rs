//! What users give by mistake, and what others send them: a sentence, an exit status, and no file that looks
//! whole.
#![forbid(unsafe_code)]

mod common;

use common::{bytes, command, directory, done, floats, refused};
use pipt_raster::{Samples, Size};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Refused by one line, and there is neither a result nor a part of one.
fn refused_at_once(path: &Path, words: &str, expected: &str) {
    let (status, said) = refused(path, words);
    assert_eq!(status, Some(1), "{words}: {said}");
    assert!(said.contains(expected), "{words}: {said}");
    is_one_sentence(&said, words);
    for name in ["o.tif", "o.tif.part", "o.tif.part.journal"] {
        assert!(!path.join(name).exists(), "{words}: {name}");
    }
}

fn is_one_sentence(said: &str, words: &str) {
    assert!(said.starts_with("pipt: "), "{words}: {said}");
    assert_eq!(said.lines().count(), 1, "{words}: {said}");
    assert!(!said.contains("panicked"), "{words}: {said}");
}

fn samples(path: &Path, band: u32) -> Samples {
    let file = pipt_tiff::Tiff::open(path, pipt_tiff::ReadOptions::default()).expect("a file");
    let all = pipt_raster::Source::info(&file).size.rect();
    pipt_raster::Source::read(&file, band, all).expect("samples")
}

#[test]
fn files_that_are_cut_short_are_refused() {
    let (_kept, path) = directory();
    let whole = fs::read(path.join("a.tif")).expect("an image");
    let length = whole.len();
    let cuts = [0, 1, 7, 8, 9, 60, 300, 500, length / 2, length - 1];
    for cut in cuts {
        fs::write(path.join("cut.tif"), &whole[..cut]).expect("a file");
        let (status, said) = refused(&path, "median cut.tif o.tif --overwrite");
        assert_eq!(status, Some(1), "{cut}: {said}");
        assert!(said.contains("cut.tif"), "{cut}: {said}");
        is_one_sentence(&said, "cut");
        assert!(!path.join("o.tif").exists(), "{cut}");
    }
}

/// As it is where GDAL is not installed: all names that its library may have are those of files that are none.
#[test]
fn without_gdal_the_file_is_named_and_what_to_install() {
    let (_kept, path) = directory();
    let libraries = path.join("libraries");
    fs::create_dir(&libraries).expect("a directory");
    let numbered = (20..60).map(|number| format!("libgdal.so.{number}"));
    for name in numbered.chain(["libgdal.so".to_owned()]) {
        fs::write(libraries.join(name), "no library").expect("a file");
    }
    fs::write(path.join("picture.png"), b"\x89PNG\r\n\x1a\n").expect("a file");
    for (words, expected) in [
        ("median none.tif o.tif", "There is no file none.tif"),
        ("median picture.png o.tif", "picture.png is no TIFF file"),
    ] {
        let mut command = command(&path, words);
        let output = command.env("LD_LIBRARY_PATH", &libraries).output();
        let output = output.expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        for expected in [expected, "libgdal"] {
            assert!(said.contains(expected), "{words}: {said}");
        }
        is_one_sentence(&said, words);
    }
}

/// Where the value of a tag begins in a directory of a TIFF file of less than 4 GiB.
fn value_of(file: &[u8], tag: u16) -> usize {
    let word = |at: usize| u16::from_le_bytes([file[at], file[at + 1]]);
    let begin = u32::from_le_bytes(file[4..8].try_into().expect("four bytes")) as usize;
    let entries = (0..usize::from(word(begin))).map(|entry| begin + 2 + 12 * entry);
    let mut found = entries.filter(|at| word(*at) == tag);
    found.next().expect("the tag is there") + 8
}

#[test]
fn files_that_lie_are_refused_with_little_memory() {
    let (_kept, path) = directory();
    let whole = fs::read(path.join("a.tif")).expect("an image");
    let change = |tag: u16, value: u32| {
        let mut file = whole.clone();
        let at = value_of(&file, tag);
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        file
    };
    let mut endless = whole.clone();
    let begin = endless[4..8].to_vec();
    let count = usize::from(u16::from_le_bytes([endless[8], endless[9]]));
    endless[8 + 2 + 12 * count..][..4].copy_from_slice(&begin);
    for (name, file) in [
        ("width", change(256, u32::MAX)),
        ("height", change(257, u32::MAX)),
        ("width of a tile", change(322, u32::MAX)),
        ("height of a tile", change(323, 0x7fff_fff0)),
        ("bands", change(277, 0xffff)),
        ("compression", change(259, 7)),
        ("places of tiles", change(324, 0xffff_fff0)),
    ] {
        fs::write(path.join("lie.tif"), file).expect("a file");
        // What it needs beyond this much would end it by another sentence, or by a signal.
        let output = limited(
            &path,
            "median lie.tif o.tif --overwrite --threads 1 --ram 64M",
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        is_one_sentence(&said, name);
        assert!(!path.join("o.tif").exists(), "{name}: {said}");
    }
    // Nobody who wants the first image needs the end of such a list.
    fs::write(path.join("endless.tif"), endless).expect("a file");
    done(&path, "median endless.tif o.tif --overwrite");
}

/// With 512 MiB of address space.
fn limited(path: &Path, words: &str) -> Output {
    let script = format!(
        "ulimit -v 524288; exec {} {words}",
        env!("CARGO_BIN_EXE_pipt")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(path);
    command.output().expect("a shell")
}

#[test]
fn an_image_without_numbers_gives_one_without_numbers() {
    let (_kept, path) = directory();
    floats(&path.join("nan.tif"), Size::new(40, 30), |_, _| f32::NAN);
    for words in [
        "texture nan.tif o.tif --features energy --overwrite",
        "texture nan.tif o.tif --features energy --range quantiles --overwrite",
        "median nan.tif o.tif --size 5 --overwrite",
        "median nan.tif o.tif --kind cross-mean --fill yes --overwrite",
        "noise nan.tif o.tif --overwrite",
    ] {
        done(&path, words);
        let Samples::F32(found) = samples(&path.join("o.tif"), 0) else {
            panic!("{words}: another type");
        };
        assert!(found.iter().all(|sample| sample.is_nan()), "{words}");
    }
    let infinite = |x: u32, y: u32| if (x, y) == (3, 4) { f32::INFINITY } else { 1.0 };
    floats(&path.join("inf.tif"), Size::new(40, 30), infinite);
    let (status, said) = refused(&path, "texture inf.tif p.tif");
    assert!(
        status == Some(1) && said.contains("There is no range from 1 to inf"),
        "{said}"
    );
    is_one_sentence(&said, "infinity");
}

#[test]
fn what_has_no_data_is_never_written_as_data() {
    let (_kept, path) = directory();
    let size = Size::new(40, 30);
    floats(&path.join("mask.tif"), size, |x, _| {
        f32::from(u8::from(x > 9))
    });
    let plain = |name: &str, nodata: Option<f64>| bytes(&path.join(name), size, nodata);
    plain("plain.tif", None);
    plain("other.tif", Some(-9999.0));
    for name in ["plain.tif", "other.tif"] {
        let expected = "give nodata= for what is read, a number of the type u8";
        refused_at_once(
            &path,
            &format!("median {name} o.tif --mask mask.tif"),
            expected,
        );
        refused_at_once(
            &path,
            &format!("median {name} o.tif --edge nodata"),
            expected,
        );
        let words = format!("median {name} m.tif --mask mask.tif --nodata 200 --overwrite");
        done(&path, &words);
        let Samples::U8(found) = samples(&path.join("m.tif"), 0) else {
            panic!("another type");
        };
        assert_eq!(
            found[..11],
            [200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 7]
        );
    }
    done(&path, "median plain.tif whole.tif");
    done(&path, "median mask.tif floats.tif --edge nodata");
    let file = pipt_tiff::Tiff::open(&path.join("floats.tif"), pipt_tiff::ReadOptions::default());
    let nodata = pipt_raster::Source::info(&file.expect("a file")).nodata;
    assert!(nodata.is_some_and(f64::is_nan), "{nodata:?}");
}

#[test]
fn an_image_of_one_number_has_the_features_of_one_level() {
    let (_kept, path) = directory();
    floats(&path.join("one.tif"), Size::new(40, 30), |_, _| -7.5);
    for range in ["minmax", "quantiles", "-10:10"] {
        let features = "energy,contrast,entropy,homogeneity,correlation,max";
        done(
            &path,
            &format!("texture one.tif o.tif --range {range} --features {features} --overwrite"),
        );
        // Correlation: a window without variance follows a rule of its own.
        for (band, expected) in [(0, 1.0), (1, 0.0), (2, 0.0), (3, 1.0), (5, 1.0)] {
            let Samples::F32(found) = samples(&path.join("o.tif"), band) else {
                panic!("another type");
            };
            let is_it = |sample: &f32| (sample - expected).abs() < 1e-6;
            assert!(
                found.iter().all(is_it),
                "{range}, band {band}: {:?}",
                found[0]
            );
        }
    }
}

#[test]
fn a_window_may_be_larger_than_the_image() {
    let (_kept, path) = directory();
    floats(&path.join("small.tif"), Size::new(5, 4), |x, y| {
        (x + 5 * y) as f32
    });
    for edge in ["reflect", "mirror", "replicate", "constant", "shrink"] {
        done(
            &path,
            &format!("median small.tif o.tif --size 15 --edge {edge} --overwrite"),
        );
        let Samples::F32(found) = samples(&path.join("o.tif"), 0) else {
            panic!("another type");
        };
        assert!(
            found.iter().all(|sample| (0.0..20.0).contains(sample)),
            "{edge}: {found:?}"
        );
        if edge == "shrink" {
            assert!(found.iter().all(|sample| *sample == 9.0), "{found:?}");
        }
        done(
            &path,
            &format!(
                "texture small.tif o.tif --window 63 --edge {edge} --features max --overwrite"
            ),
        );
    }
    done(
        &path,
        "median small.tif o.tif --size 15 --edge nodata --overwrite",
    );
    let Samples::F32(found) = samples(&path.join("o.tif"), 0) else {
        panic!("another type");
    };
    assert!(found.iter().all(|sample| sample.is_nan()), "{found:?}");
}

#[test]
fn names_that_cannot_be_written_to_are_refused_before_the_work() {
    let (_kept, path) = directory();
    fs::create_dir(path.join("there")).expect("a directory");
    std::os::unix::fs::symlink("a.tif", path.join("link.tif")).expect("a link");
    let image = fs::read(path.join("a.tif")).expect("an image");
    for (words, expected) in [
        ("median a.tif there", "there is a directory or a device"),
        (
            "median a.tif there --overwrite",
            "there is a directory or a device",
        ),
        (
            "median a.tif /dev/full --overwrite",
            "/dev/full is a directory or a device",
        ),
        (
            "median a.tif a.tif --overwrite",
            "a.tif is read, and cannot be written too",
        ),
        (
            "median a.tif ./a.tif --overwrite",
            "./a.tif is read, and cannot be",
        ),
        (
            "median link.tif a.tif --overwrite",
            "a.tif is read, and cannot be",
        ),
        (
            "median a.tif link.tif --overwrite",
            "link.tif is read, and cannot be",
        ),
        (
            "texture a.tif o.tif --write-thresholds o.tif",
            "Two results would be o.tif",
        ),
        (
            "texture a.tif o.tif --write-thresholds a.tif --overwrite",
            "a.tif is read, and cannot be",
        ),
        (
            "texture a.tif o.tif --write-thresholds there",
            "there is a directory",
        ),
        (
            "texture a.tif o.tif --write-thresholds no/t.txt",
            "no/t.txt cannot be written",
        ),
        ("median a.tif no/o.tif", "no/o.tif"),
        ("median there o.tif", "there"),
        ("median a.tif o.tif --mask there", "there"),
        (
            "texture a.tif o.tif --thresholds there",
            "The thresholds in there",
        ),
        (
            "texture a.tif o.tif --thresholds a.tif",
            "The thresholds in a.tif",
        ),
    ] {
        refused_at_once(&path, words, expected);
        let left = fs::read_dir(path.join("there")).expect("readable").count();
        assert_eq!(left, 0, "{words}");
    }
    assert!(fs::read(path.join("a.tif")).expect("it is there") == image);
    // Of two directories, two files of one name.
    for directory in ["x", "y"] {
        fs::create_dir(path.join(directory)).expect("a directory");
        fs::copy(path.join("a.tif"), path.join(directory).join("a.tif")).expect("a copy");
    }
    let job = "foreach [xy]/*.tif as one\nin one\nm = SquareMedian one\nwrite m out-{one}.tif\n";
    fs::write(path.join("job.txt"), job).expect("a job");
    refused_at_once(
        &path,
        "run job.txt --overwrite",
        "Two results would be out-a.tif",
    );
    assert!(!path.join("out-a.tif").exists());
}

/// Runs a script where a file system of a few bytes, or one that cannot be written to, can be mounted at `small`;
/// None where the kernel does not let us.
fn in_own_mounts(path: &Path, script: &str) -> Option<Output> {
    fs::create_dir_all(path.join("small")).expect("a directory");
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-ec", script]).current_dir(path);
        command.env("PIPT", env!("CARGO_BIN_EXE_pipt")).output()
    };
    let can = run("mount -t tmpfs none small").is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("not tried: mounting is not allowed here");
        return None;
    }
    Some(run(script).expect("it could be run before"))
}

#[test]
fn a_full_disk_is_named_and_the_work_goes_on_with_room() {
    let (_kept, path) = directory();
    done(&path, "noise a.tif whole.tif --tile 64");
    // The second run has the room that the first one lacks, and takes up what that one has left.
    let script = "mount -t tmpfs -o size=256k none small
        status=0; $PIPT noise a.tif small/o.tif --tile 64 --threads 2 2>said || status=$?
        echo $status; ls small
        mount -o remount,size=16m small
        $PIPT noise a.tif small/o.tif --tile 64 --resume
        cmp small/o.tif whole.tif; ls small";
    let Some(output) = in_own_mounts(&path, script) else {
        return;
    };
    let said = fs::read_to_string(path.join("said")).expect("written");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("bytes,"))
        .collect();
    assert_eq!(
        lines,
        ["1", "o.tif.part", "o.tif.part.journal", "o.tif"],
        "{said}"
    );
    assert!(
        said.contains("its disk or quota is full: make room"),
        "{said}"
    );
    is_one_sentence(&said, "full");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let (_kept, path) = directory();
    let script = "mount -t tmpfs -o ro none small
        $PIPT median a.tif small/o.tif";
    let Some(output) = in_own_mounts(&path, script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("small/o.tif.part") && said.contains("Read-only"),
        "{said}"
    );
    is_one_sentence(&said, "read-only");
}

#[test]
fn who_reads_no_further_makes_no_failure() {
    let script = format!("{} list | head -n 1", env!("CARGO_BIN_EXE_pipt"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &script])
        .output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{output:?}");
}
