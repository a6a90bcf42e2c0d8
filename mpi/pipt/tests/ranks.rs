//! The command as ranks that the launchers of both MPIs start: `make test-mpi`, which builds the libraries for both.
#![cfg(feature = "mpi")]
#![forbid(unsafe_code)]

mod common;

use common::{JOB, command, directory, done, written};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests may run as root, and on a machine with fewer processors than ranks.
const LAUNCHERS: [(&str, &[&str]); 2] = [
    ("mpirun.mpich", &[]),
    (
        "mpirun.openmpi",
        &["--allow-run-as-root", "--oversubscribe"],
    ),
];
const SETTLED: [&str; 4] = ["rows", "tiles", "weighted", "dynamic"];

/// Images are looked through as a whole here, in all ways that there are.
const LOOKS: &str = "
in a.tif
calm = SquareMedian a size=3
level = HistEqualise calm
alike = HistMatch calm level
wide = ContrastStretch a percent=2
lines = Canny a sigma=1.5 low=200 high=600
stats = Stats a calm write-table=stats.csv
rough = CoOccur calm window=5 levels=16 range=quantiles features=energy write-thresholds=levels.txt
write level rough.tif tile=64 compress=none
write lines soft.tif tile=64
write alike loud.tif tile=128 compress=none
write wide wide.tif tile=64
write rough energy.tif tile=64 overviews=yes
write stats stats.tif tile=64
";

/// So that ranks of several tests do not wait for each other's processors.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mpirun(directory: &Path, launcher: (&str, &[&str]), ranks: usize, words: &str) -> Command {
    let pipt = command(directory, words);
    let mut command = Command::new(launcher.0);
    command
        .args(launcher.1)
        .args(["-n", &ranks.to_string()])
        .arg(pipt.get_program())
        .args(pipt.get_args())
        .current_dir(directory)
        .env_remove("PIPT_MPI")
        .env_remove("PIPT_MPI_LIBRARY");
    command
}

fn ran(directory: &Path, launcher: (&str, &[&str]), ranks: usize, words: &str) -> Output {
    let output = mpirun(directory, launcher, ranks, words).output();
    output.unwrap_or_else(|error| panic!("{}: {error}: see scripts/bootstrap mpi", launcher.0))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn well(directory: &Path, launcher: (&str, &[&str]), ranks: usize, words: &str) -> String {
    let output = ran(directory, launcher, ranks, words);
    let what = format!("{ranks} ranks of {}: {words}", launcher.0);
    assert!(output.status.success(), "{what}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One sum of these files.
fn sum(directory: &Path, names: &[&str]) -> String {
    let mut sum = Sha256::new();
    for name in names {
        let bytes = fs::read(directory.join(name)).expect("written");
        sum.update((bytes.len() as u64).to_le_bytes());
        sum.update(bytes);
    }
    format!("{:x}", sum.finalize())
}

/// A directory with the image and this job, what one process makes of it, and the names of that.
fn made(job: &str, names: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, String) {
    let (kept, path) = directory();
    fs::write(path.join("job.txt"), job).expect("a job");
    done(&path, "run job.txt --threads 1");
    let sum = sum(&path, names);
    (kept, path, sum)
}

const FILES: [&str; 3] = ["rough.tif", "soft.tif", "loud.tif"];
const LOOKED: [&str; 8] = [
    "rough.tif",
    "soft.tif",
    "loud.tif",
    "wide.tif",
    "energy.tif",
    "stats.tif",
    "stats.csv",
    "levels.txt",
];

#[test]
fn one_sum_for_all_ranks_launchers_and_ways() {
    let _alone = alone();
    let (_kept, path, expected) = made(JOB, &FILES);
    // All of them where there is time.
    let counts = if cfg!(feature = "full") { 1..=8 } else { 2..=4 };
    for launcher in LAUNCHERS {
        for ranks in counts.clone() {
            for (number, distribution) in SETTLED.iter().enumerate() {
                // Each with each, over the numbers of ranks.
                let collect = ["direct", "gather"][(number + ranks) % 2];
                let words = format!(
                    "run job.txt --overwrite --threads 1 --work-tile 64 --distribute {distribution} --collect {collect}"
                );
                well(&path, launcher, ranks, &words);
                assert_eq!(
                    sum(&path, &FILES),
                    expected,
                    "{ranks} of {}: {words}",
                    launcher.0
                );
            }
        }
    }
}

#[test]
fn little_memory_changes_no_byte() {
    let _alone = alone();
    let (_kept, path, expected) = made(JOB, &FILES);
    for collect in ["direct", "gather"] {
        for distribution in SETTLED {
            let words = format!(
                "run job.txt --overwrite --ram 24M --distribute {distribution} --collect {collect}"
            );
            well(&path, LAUNCHERS[0], 3, &words);
            assert_eq!(sum(&path, &FILES), expected, "{words}");
        }
    }
}

#[test]
fn ranks_look_through_an_image_together_and_see_the_same() {
    let _alone = alone();
    let (_kept, path, expected) = made(LOOKS, &LOOKED);
    for launcher in LAUNCHERS {
        for (ranks, distribution) in [(2, "rows"), (3, "dynamic"), (5, "weighted")] {
            let words = format!("run job.txt --overwrite --distribute {distribution}");
            well(&path, launcher, ranks, &words);
            assert_eq!(
                sum(&path, &LOOKED),
                expected,
                "{ranks} of {}: {words}",
                launcher.0
            );
        }
    }
}

/// The parts of a VRT: which file has which rectangle, of the first band.
fn sources(text: &str) -> Vec<(String, pipt_raster::Rect)> {
    let band = text.split("</VRTRasterBand>").next().expect("a band");
    let between = |text: &str, from: &str, to: &str| {
        let rest = text.split_once(from).expect("it is there").1;
        rest.split_once(to).expect("it ends").0.to_owned()
    };
    let number = |text: &str, name: &str| -> u32 {
        let value = between(text, &format!("{name}=\""), "\"");
        value.parse().expect("a number")
    };
    let sources = band.split("<SimpleSource>").skip(1).map(|source| {
        let place = between(source, "<DstRect ", "/>");
        assert_eq!(place, between(source, "<SrcRect ", "/>"));
        let [x, y, width, height] =
            ["xOff", "yOff", "xSize", "ySize"].map(|name| number(&place, name));
        let file = between(source, "relativeToVRT=\"1\">", "<");
        (file, pipt_raster::Rect::new(x, y, width, height))
    });
    sources.collect()
}

#[test]
fn files_of_ranks_have_the_pixels_of_the_one_file() {
    use pipt_raster::Source;
    let _alone = alone();
    let (_kept, path, _) = made(&JOB.replace(" overviews=yes", ""), &FILES);
    let open = |name: &str| {
        let options = pipt_tiff::ReadOptions::default();
        pipt_tiff::Tiff::open(&path.join(name), options).expect("a file")
    };
    for (ranks, distribution) in [(1, "rows"), (2, "rows"), (3, "tiles"), (4, "dynamic")] {
        let words = format!("run job.txt --overwrite --collect parts --distribute {distribution}");
        well(&path, LAUNCHERS[0], ranks, &words);
        for name in FILES {
            let text = fs::read_to_string(path.join(name).with_extension("vrt")).expect("a VRT");
            let (whole, mut pixels) = (open(name), 0);
            for (file, rect) in sources(&text) {
                let part = open(&file);
                pixels += rect.pixels();
                for band in 0..whole.info().bands {
                    let [one, other] =
                        [&part, &whole].map(|file| file.read(band, rect).expect("read"));
                    let [one, other] = [one, other].map(|samples| format!("{samples:?}"));
                    assert!(one == other, "{words}: {file} {rect}");
                }
            }
            assert_eq!(pixels, whole.info().size.pixels(), "{words}: {name}");
            assert!(
                !path
                    .join(name)
                    .with_extension("0.tif.part.journal")
                    .exists()
            );
        }
    }
}

#[test]
fn ranks_do_whole_files_each() {
    let _alone = alone();
    let (_kept, path) = directory();
    for name in ["b", "c", "d", "e"] {
        fs::copy(path.join("a.tif"), path.join(format!("{name}.tif"))).expect("a copy");
    }
    let job = "foreach ?.tif as file\nin file\ncalm = CrossMedian file size=5\nwrite calm calm-{file}.tif tile=64\n";
    fs::write(path.join("job.txt"), job).expect("a job");
    done(&path, "run job.txt");
    let names = ["a", "b", "c", "d", "e"].map(|name| format!("calm-{name}.tif"));
    let names = names.each_ref().map(String::as_str);
    let expected = sum(&path, &names);
    for launcher in LAUNCHERS {
        let said = well(
            &path,
            launcher,
            3,
            "run job.txt --overwrite --distribute files --json",
        );
        assert_eq!(said.lines().count(), 5, "{said}");
        assert_eq!(sum(&path, &names), expected);
    }
    let output = ran(
        &path,
        LAUNCHERS[0],
        2,
        "median a.tif x.tif --distribute files",
    );
    assert!(
        !output.status.success() && said(&output).contains("has no foreach"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_goes_wrong_is_said_once() {
    let _alone = alone();
    let (_kept, path) = directory();
    for launcher in LAUNCHERS {
        for words in [
            "median missing.tif x.tif",
            "median a.tif x.tif --range quantiles",
        ] {
            let output = ran(&path, launcher, 3, words);
            assert!(!output.status.success(), "{words}");
        }
        let output = ran(&path, launcher, 3, "median missing.tif x.tif");
        assert_eq!(
            said(&output).matches("pipt: ").count(),
            1,
            "{}",
            said(&output)
        );
        // A damaged tile in the middle is met by one rank, and the others are told.
        let mut bytes = fs::read(path.join("a.tif")).expect("an image");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 2000].fill(0x55);
        fs::write(path.join("damaged.tif"), bytes).expect("another one");
        for collect in ["direct", "gather", "parts"] {
            let words = format!("median damaged.tif x.tif --tile 64 --collect {collect}");
            let output = ran(&path, launcher, 3, &words);
            assert!(!output.status.success(), "{words}");
            let said = said(&output);
            assert_eq!(said.matches("pipt: ").count(), 1, "{words}: {said}");
            for left in fs::read_dir(&path).expect("readable").flatten() {
                if left.file_name().to_string_lossy().starts_with("x.") {
                    fs::remove_file(left.path()).expect("it was there");
                }
            }
        }
    }
}

#[test]
fn ranks_of_another_version_or_job_are_refused() {
    let _alone = alone();
    let (_kept, path) = directory();
    let pipt = command(&path, "").get_program().to_owned();
    let mut program = fs::read(&pipt).expect("the program");
    let version = concat!("pipt-ranks-of-version:", env!("CARGO_PKG_VERSION"));
    let place = program
        .windows(version.len())
        .position(|bytes| bytes == version.as_bytes());
    let place = place.expect("it says its version") + version.len() - 1;
    program[place] = b'9';
    // Beside the first, where the libraries are.
    let other = Path::new(&pipt).with_file_name("pipt-of-another-version");
    fs::write(&other, program).expect("written");
    fs::set_permissions(&other, fs::metadata(&pipt).expect("there").permissions()).expect("set");
    let two = |launcher: (&str, &[&str]), one: (&Path, &str), other: (&Path, &str)| {
        let mut command = Command::new(launcher.0);
        command.args(launcher.1).current_dir(&path);
        command.args(["-n", "1"]).arg(one.0).args(one.1.split(' '));
        command
            .args([":", "-n", "2"])
            .arg(other.0)
            .args(other.1.split(' '));
        let output = command.output().expect("the launcher is there");
        assert!(!output.status.success());
        said(&output)
    };
    let words = "median a.tif x.tif";
    for launcher in LAUNCHERS {
        let said = two(launcher, (Path::new(&pipt), words), (&other, words));
        assert!(
            said.contains("start all ranks from the same program"),
            "{said}"
        );
        let own = Path::new(&pipt);
        let said = two(launcher, (own, words), (own, "median a.tif x.tif --size 5"));
        assert!(said.contains("was asked for another job"), "{said}");
        assert!(!path.join("x.tif").exists() && !path.join("x.tif.part").exists());
    }
    fs::remove_file(&other).expect("it was there");
}

#[test]
fn a_rank_that_is_killed_ends_the_job_with_a_sentence_and_it_goes_on() {
    let _alone = alone();
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt");
    let expected = written(&path);
    for launcher in LAUNCHERS {
        for name in FILES {
            fs::remove_file(path.join(name)).expect("it is there");
        }
        // One of the ranks kills itself, when it has the first tiles of the first file behind it.
        let script = "if [ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 1 ]; then \"$@\" & pid=$!; \
                      while [ ! -s rough.tif.part.journal ]; do :; done; kill -9 $pid; wait $pid; kill -9 $$; \
                      else exec \"$@\"; fi";
        let pipt = command(&path, "run job.txt --work-tile 64 --threads 1");
        let mut command = Command::new(launcher.0);
        command
            .args(launcher.1)
            .args(["-n", "3", "sh", "-c", script, "sh"]);
        command
            .arg(pipt.get_program())
            .args(pipt.get_args())
            .current_dir(&path);
        let output = command.output().expect("the launcher is there");
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        assert_eq!(
            said.matches("start it again with --resume").count(),
            1,
            "{}: {said}",
            launcher.0
        );
        well(
            &path,
            launcher,
            4,
            "run job.txt --resume --overwrite --distribute tiles --collect gather",
        );
        assert!(written(&path) == expected, "{}", launcher.0);
    }
}
