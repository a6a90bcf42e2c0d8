//! The command, as a user runs it: on files, from end to end.
#![forbid(unsafe_code)]

mod common;

use common::{
    JOB, SIZE, WRITTEN, command, directory, done, levels, pipt, refused, sample, written,
};
use pipt_raster::Samples;
use pipt_tiff::Scale;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn bytes_do_not_depend_on_how_the_work_is_done() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt --threads 1");
    let first = written(&path);
    let mut ways: Vec<String> = vec![
        "--threads 2 --work-tile 64".to_owned(),
        "--threads 4 --work-tile 256".to_owned(),
        "--threads 3 --work-tile 100000".to_owned(),
        "--threads 2 --ram 20M".to_owned(),
    ];
    ways.extend(
        levels()
            .iter()
            .map(|level| format!("--instructions {level}")),
    );
    for way in ways {
        done(&path, &format!("run job.txt --overwrite {way}"));
        assert!(written(&path) == first, "{way}");
    }
}

#[test]
fn work_goes_on_where_it_was_killed() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt --threads 2");
    let first = written(&path);
    let mut resumed = 0;
    for tiles in [1, 2, 5, 9, 14] {
        for name in WRITTEN {
            fs::remove_file(path.join(name)).expect("it is there");
        }
        let mut child = command(&path, "run job.txt --threads 2 --work-tile 128");
        let mut child = child.stderr(Stdio::null()).spawn().expect("it was built");
        let part = path.join("rough.tif.part");
        let end = Instant::now() + Duration::from_secs(60);
        // Killed when so many tiles are there, or a little later; sometimes it is faster.
        let is_far = || fs::metadata(&part).is_ok_and(|about| about.len() > 2000 * tiles);
        while !is_far() && child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "nothing is written");
            std::thread::yield_now();
        }
        child.kill().expect("a signal");
        child.wait().expect("it ended");
        resumed += u32::from(part.exists());
        let again = pipt(&path, "run job.txt --threads 1 --resume --overwrite");
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success(), "{said}");
        assert!(written(&path) == first, "after {tiles}");
    }
    assert!(resumed > 0, "each was faster than the signal");
    let left = fs::read_dir(&path).expect("readable").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2 + WRITTEN.len(), "{left:?}");
}

#[test]
fn what_an_interrupted_run_has_left_is_named_and_replaced() {
    let (_kept, path) = directory();
    fs::write(path.join("m.tif.part"), "half").expect("a file");
    let (status, said) = refused(&path, "median a.tif m.tif");
    assert!(
        status == Some(1) && said.contains("m.tif.part is there already"),
        "{said}"
    );
    let (status, said) = refused(&path, "median a.tif m.tif --resume");
    assert!(
        status == Some(1) && said.contains("m.tif.part.journal"),
        "{said}"
    );
    done(&path, "median a.tif m.tif --overwrite");
    assert!(!path.join("m.tif.part").exists());
}

#[test]
fn a_part_is_what_the_whole_is_there() {
    let (_kept, path) = directory();
    done(&path, "noise a.tif whole.tif --deviation 25 --seed 3");
    done(
        &path,
        "noise a.tif part.tif --deviation 25 --seed 3 --bbox 100,50,260,200",
    );
    // Of the whole, the same part.
    done(
        &path,
        "median whole.tif same.tif --size 1 --bbox 100,50,260,200",
    );
    let said = done(&path, "verify part.tif --against same.tif");
    assert!(
        said.contains("Equal; the greatest difference is 0"),
        "{said}"
    );
    let said = pipt(&path, "verify part.tif --against whole.tif");
    assert_eq!(said.status.code(), Some(1));
}

#[test]
fn medians_are_those_of_the_sorted_window() {
    let (_kept, path) = directory();
    done(&path, "median a.tif m.tif --size 3");
    let file = pipt_tiff::Tiff::open(&path.join("m.tif"), pipt_tiff::ReadOptions::default());
    let file = file.expect("a file");
    let Samples::U16(found) = pipt_raster::Source::read(&file, 1, SIZE.rect()).expect("samples")
    else {
        panic!("another type");
    };
    for (x, y) in [(1, 1), (250, 100), (698, 498), (77, 311)] {
        let mut window: Vec<u16> = (y - 1..=y + 1)
            .flat_map(|y| (x - 1..=x + 1).map(move |x| sample(x, y, 1)))
            .collect();
        window.sort_unstable();
        let place = y as usize * SIZE.width as usize + x as usize;
        assert_eq!(found[place], window[4], "({x}, {y})");
    }
    let hole = 210 * SIZE.width as usize + 310;
    assert_eq!(found[hole], 0, "there is no data");
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let (_kept, path) = directory();
    fs::write(path.join("text.tif"), "no image").expect("a file");
    fs::write(path.join("old.tif"), "mine").expect("a file");
    for (words, code, expected) in [
        ("median none.tif o.tif", 1, "none.tif"),
        ("median text.tif o.tif", 1, "text.tif"),
        ("median a.tif old.tif", 1, "old.tif is there already"),
        ("median a.tif o.tif --size 4", 2, "size=4 cannot be"),
        ("median a.tif o.tif --bands 3", 1, "has no band 3: it has 2"),
        (
            "median a.tif o.tif --bbox 9000,9000,9001,9001",
            1,
            "lies in the part",
        ),
        ("median a.tif /nowhere/o.tif", 1, "/nowhere/o.tif"),
        (
            "texture a.tif o.tif --instructions mmx",
            1,
            "no instruction set 'mmx'",
        ),
        ("texture a.tif o.tif --range 5", 2, "range=5 cannot be"),
        ("median a.tif o.tif --scale u16", 1, "scale= is for texture"),
        ("run a.tif", 2, "a.tif cannot be read"),
    ] {
        let (status, said) = refused(&path, words);
        assert_eq!(status, Some(code), "{words}: {said}");
        assert!(said.contains(expected), "{words}: {said}");
        assert!(
            !path.join("o.tif").exists() && !path.join("o.tif.part").exists(),
            "{words}"
        );
    }
    assert_eq!(
        fs::read(path.join("old.tif")).expect("it is there"),
        b"mine"
    );
}

#[test]
fn what_it_would_take_is_said_before_it_is_done() {
    let (_kept, path) = directory();
    let said = done(
        &path,
        "texture a.tif o.tif --window 5 --features energy --plan --json --ram 64M",
    );
    let planned: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (&planned["width"], &planned["bands"]),
        (&700.into(), &2.into())
    );
    assert_eq!(planned["type"], "f32");
    assert!(
        planned["memory_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes <= 64 << 20),
        "{planned}"
    );
    assert!(!path.join("o.tif").exists());
    let said = done(&path, "info a.tif --json");
    let about: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (&about["names"][1], &about["nodata"]),
        (&"green".into(), &0.0.into())
    );
}

#[test]
fn each_file_of_a_pattern_is_worked_on() {
    let (_kept, path) = directory();
    fs::copy(path.join("a.tif"), path.join("b.tif")).expect("a copy");
    let job =
        "foreach ?.tif as one\nin one bands=2\nm = CrossMedian one size=5\nwrite m out-{one}.tif\n";
    fs::write(path.join("job.txt"), job).expect("a job");
    let said = done(&path, "run job.txt --json");
    assert_eq!(said.lines().count(), 2, "{said}");
    let said = done(&path, "verify out-a.tif --against out-b.tif");
    assert!(said.contains("Equal"), "{said}");
    let (status, said) = refused(&path, "run job.txt");
    assert!(status == Some(1) && said.contains("--overwrite"), "{said}");
}

#[test]
fn features_as_whole_numbers_are_near_those_as_floats() {
    let (_kept, path) = directory();
    let texture = "--window 5 --levels 16 --features energy,correlation";
    done(&path, &format!("texture a.tif f.tif {texture}"));
    let open = |name: &str| {
        let file = pipt_tiff::Tiff::open(&path.join(name), pipt_tiff::ReadOptions::default());
        file.expect("a file")
    };
    let read = |file: &pipt_tiff::Tiff| {
        let bands = file.read_bands(0, 2, SIZE.rect()).expect("bands");
        bands.iter().map(Samples::to_f64).collect::<Vec<_>>()
    };
    let floats = open("f.tif");
    assert_eq!(floats.scales(), []);
    let floats = read(&floats);
    for (kind, nodata) in [("u16", 65_535.0), ("i16", -32_768.0)] {
        let name = format!("{kind}.tif");
        let words = format!("texture a.tif {name} {texture} --scale {kind}");
        done(&path, &words);
        let file = open(&name);
        assert_eq!(pipt_raster::Source::info(&file).nodata, Some(nodata));
        let (whole, scales) = (read(&file), file.scales());
        assert_eq!(scales.len(), 4, "each of two bands has two features");
        for (band, (least, most)) in [(0.0, 1.0), (-1.0, 1.0)].into_iter().enumerate() {
            let Scale { offset, step } = scales[band];
            assert!((step - (most - least) / 65_534.0).abs() < 1e-9, "{step}");
            for (float, whole) in floats[band].iter().zip(&whole[band]) {
                match float.is_nan() {
                    true => assert!((whole - nodata).abs() < 0.5, "{whole}"),
                    false => {
                        let stands_for = offset + step * whole;
                        assert!((stands_for - float).abs() <= step, "{float} {whole}");
                    }
                }
            }
        }
    }
}

#[test]
fn gdal_reads_scales_names_and_no_data() {
    let (_kept, path) = directory();
    done(
        &path,
        "texture a.tif u.tif --window 5 --levels 16 --features energy,correlation --bands 1 --scale u16",
    );
    // What is done to whole numbers leaves what they stand for.
    done(&path, "median u.tif m.tif --bands 2");
    let said = done(&path, "info m.tif --json");
    let about: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(about["scales"], serde_json::json!([[-1.0, 2.0 / 65_534.0]]));
    let said = done(
        &path,
        "texture u.tif t.tif --features max --scale i16 --plan --json",
    );
    let planned: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(planned["type"], "i16");
    let said = done(&path, "info u.tif --json");
    let about: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let step = 2.0 / 65_534.0;
    assert_eq!(about["scales"][1], serde_json::json!([-1.0, step]));
    let gdal = Command::new("gdalinfo")
        .args(["-json", "u.tif"])
        .current_dir(&path)
        .output();
    let Ok(gdal) = gdal else {
        eprintln!("not compared: there is no gdalinfo here");
        return;
    };
    assert!(gdal.status.success(), "{gdal:?}");
    let found: serde_json::Value = serde_json::from_slice(&gdal.stdout).expect("JSON");
    let second = &found["bands"][1];
    assert_eq!(second["type"], "UInt16");
    assert_eq!(second["description"], "red: correlation");
    assert_eq!(second["offset"], -1.0);
    // It prints fifteen digits behind the point.
    let scale = second["scale"].as_f64().expect("a number");
    assert!((scale - step).abs() < 1e-14, "{scale}");
    assert_eq!(second["noDataValue"], 65_535.0);
}

#[test]
fn a_series_has_the_levels_of_its_first_image() {
    let (_kept, path) = directory();
    // The second image is another one: its own range would give other levels.
    done(&path, "noise a.tif b.tif --deviation 200 --seed 5");
    let texture = "--window 5 --features energy,contrast --bbox 280,180,480,330";
    for (number, levels) in [
        "--levels 16",
        "--levels 40 --range quantiles",
        "--levels 300",
    ]
    .iter()
    .enumerate()
    {
        let words = format!("{texture} {levels} --write-thresholds t{number}.txt");
        done(&path, &format!("texture a.tif a{number}.tif {words}"));
        let with = format!("{texture} --thresholds t{number}.txt");
        done(&path, &format!("texture a.tif again{number}.tif {with}"));
        let read = |name: String| fs::read(path.join(name)).expect("written");
        let same = read(format!("a{number}.tif")) == read(format!("again{number}.tif"));
        assert!(same, "{levels}");
        done(
            &path,
            &format!("texture b.tif own{number}.tif {texture} {levels}"),
        );
        done(&path, &format!("texture b.tif b{number}.tif {with}"));
        let same = read(format!("own{number}.tif")) == read(format!("b{number}.tif"));
        assert!(!same, "{levels}: they are the levels of the other image");
    }
    // Both bands have the same range, and other quantiles.
    for (name, of_bands, numbers) in [("t0.txt", false, 15), ("t1.txt", true, 2 * 39)] {
        let text = fs::read_to_string(path.join(name)).expect("written");
        assert_eq!(text.contains("\nband 2\n"), of_bands, "{text}");
        let found = text.lines().filter(|line| line.parse::<f64>().is_ok());
        assert_eq!(found.count(), numbers, "{text}");
    }
    let words = format!("texture a.tif o.tif {texture} --write-thresholds t0.txt");
    let (status, said) = refused(&path, &words);
    assert!(
        status == Some(1) && said.contains("t0.txt is there already"),
        "{said}"
    );
    let words = format!("texture a.tif o.tif {texture} --bands 1 --thresholds t1.txt");
    let (status, said) = refused(&path, &words);
    assert!(
        status == Some(1) && said.contains("are of 2 bands, and the image has 1"),
        "{said}"
    );
    assert!(!path.join("o.tif").exists() && !path.join("o.tif.part").exists());
    let job = "foreach [ab].tif as one\nin one bands=2\n\
               t = CoOccurMax one window=3 write-thresholds=levels-{one}.txt\nwrite t out-{one}.tif\n";
    fs::write(path.join("job.txt"), job).expect("a job");
    done(&path, "run job.txt --plan");
    assert!(!path.join("levels-a.txt").exists(), "a plan writes nothing");
    done(&path, "run job.txt");
    let read = |name: &str| fs::read_to_string(path.join(name)).expect("written");
    assert!(read("levels-a.txt") != read("levels-b.txt"));
}
