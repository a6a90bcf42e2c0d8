use super::record::{Look, Move, Picture, Process, Spread, Started, Timed};
use super::*;
use std::fs;
use std::path::Path;

fn asked() -> Livecd {
    Livecd {
        images: PathBuf::from("images"),
        nodes: 3,
        all_routines: false,
        small: true,
        cpu: None,
        report: PathBuf::from("report"),
        window: 15,
        levels: 64,
        instructions: "scalar".to_owned(),
        moves_max: 4,
    }
}

fn run_of(routine: &str, seconds: f64) -> Run {
    let images = ["a", "b"].map(|image| Timed {
        image: image.to_owned(),
        seconds: seconds / 2.0,
        sha256: format!("{routine}-{image}"),
    });
    Run {
        routine: routine.to_owned(),
        seconds,
        images: images.to_vec(),
    }
}

fn moved(routine: &str, pid: i64, time_ms: u64, (from, to): (&str, &str)) -> Move {
    Move {
        routine: routine.to_owned(),
        pid,
        time_ms,
        from: from.to_owned(),
        to: to.to_owned(),
        cause: "load".to_owned(),
        bytes: 20 << 20,
        freeze_ms: 150.0,
        total_ms: 400.0,
    }
}

fn outcome() -> Outcome {
    let names = ["CoOccurMax", "CoOccurEnergy"];
    let processes = names.iter().zip([7, 8]).map(|(name, pid)| Process {
        routine: (*name).to_owned(),
        pid,
        moves: if pid == 7 { 2 } else { 0 },
        begin_ms: 1_000,
        seconds: 20.0,
    });
    let places = |node: &str| {
        vec![
            ("CoOccurEnergy".to_owned(), "n1".to_owned()),
            ("CoOccurMax".to_owned(), node.to_owned()),
        ]
    };
    let look = |time_ms, node| Look {
        time_ms,
        group: 0,
        places: places(node),
    };
    Outcome {
        setting: Setting::of(&asked(), 0.6),
        images: vec![Picture {
            image: "a".to_owned(),
            width: 10,
            height: 20,
            bands: 1,
            kind: "u8".to_owned(),
            bytes: 300,
        }],
        plain: names.map(|name| run_of(name, 4.0)).to_vec(),
        ranks: names.map(|name| run_of(name, 6.0)).to_vec(),
        spread: Spread {
            runs: names.map(|name| run_of(name, 20.0)).to_vec(),
            groups: vec![Started {
                routines: names.map(str::to_owned).to_vec(),
                begin_ms: 1_000,
                seconds: 21.0,
            }],
            processes: processes.collect(),
            moves: vec![
                moved("CoOccurMax", 7, 3_000, ("n1", "n2")),
                moved("CoOccurMax", 7, 9_000, ("n2", "n3")),
            ],
            looks: vec![look(1_500, "n1"), look(4_000, "n2"), look(10_000, "n3")],
        },
        checks: Vec::new(),
    }
}

#[test]
fn an_outcome_as_it_should_be_passes() {
    let outcome = checked(outcome(), 4);
    assert_eq!(outcome.failed(), Vec::<String>::new());
    assert_eq!(outcome.checks.len(), 3);
    assert!((outcome.ranks_seconds() - 12.0).abs() < 1e-9);
    assert!((outcome.spread_seconds() - 21.0).abs() < 1e-9);
}

#[test]
fn a_file_that_differs_in_either_half_is_named() {
    for half in ["ranks", "spread"] {
        let mut outcome = outcome();
        let runs = match half {
            "ranks" => &mut outcome.ranks,
            _ => &mut outcome.spread.runs,
        };
        runs[1].images[0].sha256 = "other".to_owned();
        let failed = checked(outcome, 4).failed();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].contains("CoOccurEnergy of a"), "{failed:?}");
    }
}

#[test]
fn a_process_that_moves_too_often_fails_the_experiment() {
    let failed = checked(outcome(), 1).failed();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].contains("CoOccurMax moved most: 2 times"),
        "{failed:?}"
    );
    let mut unseen = outcome();
    unseen.spread.moves.pop();
    let failed = checked(unseen, 4).failed();
    assert!(
        failed[0].contains("1 in the history, 2 counted"),
        "{failed:?}"
    );
}

#[test]
fn the_report_has_tables_figures_and_all_data() {
    let kept = tempfile::tempdir().expect("a directory");
    let place = kept.path().join("report");
    report::is_free(&place).expect("there is none yet");
    report::write(&place, &checked(outcome(), 4)).expect("it is written");
    let text = fs::read_to_string(place.join("report.md")).expect("the report");
    for part in [
        "about 3 h 10 min",
        "about 3 h 4 min",
        "its machines of 2004",
        "| CoOccurMax | 4.00 (2.000) | 6.00 (3.000) | 20.00 (10.000) |",
        "| 2.0 s | CoOccurMax | n1 | n2 | load | 20 | 150 ms | 400 ms |",
        "![Figure 6",
        "| a | 10 x 20 | 1 | u8 | 300 |",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let data = fs::read_to_string(place.join("data.json")).expect("the data");
    let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(data["spread"]["moves"][1]["to"], "n3");
    for number in 1..=6 {
        let figure = fs::read_to_string(place.join(format!("figure-{number}.svg")));
        let figure = figure.expect("a figure");
        assert!(figure.starts_with("<svg") && figure.ends_with("</svg>\n"));
        assert!(figure.contains("prefers-color-scheme:dark"));
        assert!(
            !figure.contains("NaN") && !figure.contains("inf"),
            "{figure}"
        );
    }
    let error = report::is_free(&place).expect_err("it is there now");
    assert!(error.to_string().contains("--report"), "{error}");
}

#[test]
fn figures_show_bars_snapshots_and_moves() {
    let outcome = outcome();
    let bars = figures::bars("times", &outcome.ranks);
    assert_eq!(bars.matches("class=\"bar\"").count(), 2);
    assert!(bars.contains("[2] CoOccurEnergy") && bars.contains("3.00 s"));
    let look = figures::spread_out(&outcome.spread, 0).expect("there were looks");
    assert_eq!(
        look.time_ms, 4_000,
        "the first at which they were on two nodes"
    );
    let snapshot = figures::snapshot("who", 3, look);
    assert_eq!(snapshot.matches("class=\"node\"").count(), 3);
    assert_eq!(snapshot.matches("class=\"away").count(), 1);
    let moves = figures::moves("moves", 3, &outcome);
    assert_eq!(moves.matches("marker-end").count(), 2);
    assert_eq!(
        moves.matches("stroke-width=\"4\"").count(),
        4,
        "three stays and one"
    );
}

#[test]
fn images_are_found_and_odd_names_refused() {
    let kept = tempfile::tempdir().expect("a directory");
    let place = kept.path();
    let list = || jobs::list(place).map_err(|error| error.to_string());
    assert!(list().expect_err("none").contains("has 0 images"));
    for name in ["b.TIF", "a.png", "notes.txt"] {
        fs::write(place.join(name), "").expect("a file");
    }
    assert_eq!(
        list().expect("two"),
        [place.join("a.png"), place.join("b.TIF")]
    );
    fs::write(place.join("a.jpg"), "").expect("a file");
    assert!(list().expect_err("two of one name").contains("called a"));
    fs::rename(place.join("a.jpg"), place.join("a[1].jpg")).expect("a file");
    assert!(list().expect_err("a pattern").contains("rename the file"));
}

#[test]
fn the_batch_files_of_all_routines_are_understood() {
    let work = Path::new("/some where/w");
    let mut all = asked();
    all.all_routines = true;
    assert_eq!(all.routines().len(), 15);
    assert_eq!(asked().routines(), TEXTURES);
    for routine in all.routines() {
        let text = jobs::job(&all, routine, work, &work.join("mpi"));
        let job = crate::job::parse(&text).expect(routine);
        assert_eq!(job.writes.len(), 1);
    }
    let text = jobs::copy(Path::new("/a b/c.png"), Path::new("/d/c.tif"), (3, 4));
    crate::job::parse(&text).expect("a copy");
}
