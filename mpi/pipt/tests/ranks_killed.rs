//! Random ranks that are killed at random moments: `make test-pipt-full`.
#![forbid(unsafe_code)]

mod common;

use common::{JOB, Random, command, directory, done};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KILLED: u32 = 20;
const RANKS: u32 = 3;
const FILES: [&str; 3] = ["rough.tif", "soft.tif", "loud.tif"];
const WAYS: [(&str, &str); 8] = [
    ("rows", "direct"),
    ("rows", "gather"),
    ("tiles", "direct"),
    ("weighted", "gather"),
    ("weighted", "direct"),
    ("dynamic", "direct"),
    ("dynamic", "gather"),
    ("tiles", "gather"),
];

fn mpirun(directory: &Path, openmpi: bool, words: &str) -> Command {
    let mut mpirun = Command::new(if openmpi {
        "mpirun.openmpi"
    } else {
        "mpirun.mpich"
    });
    if openmpi {
        mpirun.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    // Each rank leaves its number, by which it is found to be killed.
    let script = "echo $$ > rank.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec \"$@\"";
    let pipt = command(directory, words);
    mpirun.args(["-n", &RANKS.to_string(), "sh", "-c", script, "sh"]);
    mpirun.arg(pipt.get_program()).args(pipt.get_args());
    mpirun
        .current_dir(directory)
        .stderr(Stdio::null())
        .stdout(Stdio::null());
    mpirun
}

fn files(directory: &Path) -> Vec<Vec<u8>> {
    FILES
        .map(|name| fs::read(directory.join(name)).expect("written"))
        .to_vec()
}

#[test]
fn a_random_rank_is_killed_and_the_work_goes_on_to_the_same_bytes() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt --threads 1");
    let expected = files(&path);
    let mut random = Random::seeded();
    let how = "run job.txt --threads 1 --work-tile 64 --overwrite";
    let mut takes = [Duration::MAX; 2];
    for (openmpi, takes) in [false, true].into_iter().zip(&mut takes) {
        // The shortest of three, so that one that was held up does not let the others end before their moment.
        for _ in 0..3 {
            let begun = Instant::now();
            assert!(
                mpirun(&path, openmpi, how)
                    .status()
                    .expect("it is there")
                    .success()
            );
            *takes = begun.elapsed().min(*takes);
        }
    }
    let mut killed = 0;
    for number in 0..KILLED {
        for name in FILES {
            fs::remove_file(path.join(name)).expect("it is there");
        }
        let openmpi = number % 2 == 1;
        let moment = takes[usize::from(openmpi)] * random.below(1000) / 1000;
        let (distribute, collect) = WAYS[number as usize % WAYS.len()];
        let words = format!("{how} --distribute {distribute} --collect {collect}");
        let mut job = mpirun(&path, openmpi, &words).spawn().expect("it is there");
        // Nothing is waited for but the moment itself.
        std::thread::sleep(moment);
        let victim = format!("rank.{}", random.below(RANKS));
        if let Ok(pid) = fs::read_to_string(path.join(&victim)) {
            let kill = Command::new("kill")
                .args(["-9", pid.trim()])
                .stderr(Stdio::null())
                .status();
            kill.expect("there is such a command");
        }
        let ended = job.wait().expect("it ended");
        killed += u32::from(!ended.success());
        let again = mpirun(&path, !openmpi, &format!("{how} --resume")).status();
        assert!(
            again.expect("it is there").success(),
            "{number}, after {moment:?}: {words}"
        );
        assert!(
            files(&path) == expected,
            "{number}, after {moment:?}: {words}"
        );
        println!("{number}: {victim} after {moment:?}, {ended}: {words}");
        for rank in 0..RANKS {
            fs::remove_file(path.join(format!("rank.{rank}"))).expect("each left its number");
        }
    }
    assert!(
        killed > KILLED / 2,
        "only {killed} were killed before they ended"
    );
}
