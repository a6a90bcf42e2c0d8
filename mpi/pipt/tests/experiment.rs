//! The experiment of the paper in its small form, in a lab, as root:
//! `make build pipt-mpi && cargo test --release -p pipt --features full --test experiment`.
#![forbid(unsafe_code)]

mod common;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pipt_raster::Size;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const IMAGES: usize = 6;
/// Larger than what the small form keeps.
const SIZE: Size = Size::new(1100, 1030);

/// One lab at a time: two would share the machine's CPUs.
static ALONE: Mutex<()> = Mutex::new(());

fn images(place: &Path) -> PathBuf {
    let images = place.join("images");
    fs::create_dir(&images).expect("a directory");
    for number in 0..IMAGES {
        let shift = u32::try_from(number).expect("a few") * 37;
        common::floats(&images.join(format!("scene{number}.tif")), SIZE, |x, y| {
            f32::from(common::sample(x + shift, y, 0))
        });
    }
    images
}

/// Where the experiment has its temporary directory: below `place`, so that what is left of it would be seen.
fn begin(place: &Path, report: &Path) -> Child {
    let temporary = place.join("temporary");
    fs::create_dir_all(&temporary).expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipt"));
    command
        .args(["experiment", "livecd", "--small", "--images"])
        .arg(place.join("images"))
        .arg("--report")
        .arg(report)
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("it was built")
}

/// No lab, no process, no directory.
fn nothing_is_left(pid: u32, place: &Path) {
    let lab = format!("pipt-{pid}");
    assert!(
        !Path::new("/run/whim-lab").join(&lab).exists(),
        "{lab} is still there"
    );
    let left = fs::read_dir(place.join("temporary"))
        .expect("a directory")
        .count();
    assert_eq!(left, 0, "something is left in the temporary directory");
    let ours = fs::read_dir("/proc").expect("processes").flatten();
    for process in ours {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        assert!(!words.contains(&lab), "it still runs: {words}");
    }
}

#[test]
fn the_small_form_runs_end_to_end_and_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = tempfile::tempdir().expect("a directory");
    let place = kept.path();
    images(place);
    let report = place.join("report");
    let child = begin(place, &report);
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    nothing_is_left(pid, place);
    let data = fs::read_to_string(report.join("data.json")).expect("the data");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    assert!(
        data["checks"]
            .as_array()
            .expect("checks")
            .iter()
            .all(|check| check["passed"] == true)
    );
    for (half, routines) in [
        (&data["plain"], 15),
        (&data["ranks"], 8),
        (&data["spread"]["runs"], 8),
    ] {
        let runs = half.as_array().expect("runs");
        assert_eq!(runs.len(), routines);
        for run in runs {
            let images = run["images"].as_array().expect("images");
            assert_eq!(images.len(), IMAGES, "{}", run["routine"]);
            assert_eq!(images[0]["sha256"].as_str().map(str::len), Some(64));
        }
    }
    let groups = data["spread"]["groups"].as_array().expect("groups");
    let sizes: Vec<usize> = groups
        .iter()
        .map(|group| group["routines"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(sizes, [5, 3], "the paper's groups");
    let moves = data["spread"]["moves"].as_array().expect("moves");
    assert!(
        moves.iter().any(|one| one["cause"] == "load"),
        "nothing moved: {said}"
    );
    let text = fs::read_to_string(report.join("report.md")).expect("the report");
    for number in 1..=6 {
        let name = format!("figure-{number}.svg");
        assert!(
            text.contains(&name) && report.join(&name).is_file(),
            "{name}"
        );
    }
}

#[test]
fn an_interrupt_takes_the_lab_down() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = tempfile::tempdir().expect("a directory");
    let place = kept.path();
    images(place);
    let report = place.join("report");
    let mut child = begin(place, &report);
    let pid = child.id();
    let errors = child.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(errors);
    let mut said = String::new();
    // One routine over MPI was done: the next is under way.
    while !said.contains("over MPI") {
        let read = lines.read_line(&mut said).expect("text");
        assert!(read > 0, "it ended: {said}");
    }
    let number = i32::try_from(pid).expect("a process");
    kill(Pid::from_raw(number), Signal::SIGINT).expect("it runs");
    lines.read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("Interrupted"), "{said}");
    assert!(!report.exists(), "there is nothing to report");
    nothing_is_left(pid, place);
}
