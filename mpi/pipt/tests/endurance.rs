//! What takes minutes: `cargo test -p pipt --features full --test endurance -- --nocapture`.
#![forbid(unsafe_code)]

mod common;

use common::{JOB, Random, WRITTEN, command, directory, done, levels, pipt, written};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs that are killed.
const KILLED: u32 = 20;

/// One sum of all files that are written.
fn sum(path: &Path) -> String {
    let mut sum = Sha256::new();
    for file in written(path) {
        sum.update((file.len() as u64).to_le_bytes());
        sum.update(file);
    }
    format!("{:x}", sum.finalize())
}

#[test]
fn killed_at_any_moment_the_work_goes_on_to_the_same_bytes() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    let mut random = Random::seeded();
    // The shortest of three, so that one that was held up does not let the others end before their moment.
    let takes = |_| {
        let begun = Instant::now();
        done(&path, "run job.txt --threads 2 --work-tile 128 --overwrite");
        begun.elapsed()
    };
    let (whole, expected) = ((0..3).map(takes).min().expect("three"), sum(&path));
    println!("{expected} in {whole:?}");
    let mut killed = 0;
    for number in 0..KILLED {
        for name in WRITTEN {
            fs::remove_file(path.join(name)).expect("it is there");
        }
        let moment = whole * random.below(1000) / 1000;
        let mut child = command(&path, "run job.txt --threads 2 --work-tile 128");
        let mut child = child.stderr(Stdio::null()).spawn().expect("it was built");
        // Nothing is waited for but the moment itself.
        std::thread::sleep(moment);
        child.kill().expect("a signal");
        let ended = child.wait().expect("it ended");
        killed += u32::from(!ended.success());
        let parts = WRITTEN.map(|name| path.join(format!("{name}.part")).exists());
        let threads = 1 + random.below(4);
        let tile = 64 << random.below(4);
        let words =
            format!("run job.txt --threads {threads} --work-tile {tile} --resume --overwrite");
        let again = pipt(&path, &words);
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success(), "{number}, after {moment:?}: {said}");
        assert_eq!(sum(&path), expected, "{number}, after {moment:?}: {words}");
        println!("{number}: killed after {moment:?} with the parts {parts:?}; {words}");
        let left = fs::read_dir(&path).expect("readable").count();
        assert_eq!(left, 2 + WRITTEN.len(), "{number}");
    }
    assert!(
        killed > KILLED / 2,
        "only {killed} were killed before they ended"
    );
    assert!(
        whole > Duration::from_millis(100),
        "too short to be killed within"
    );
}

#[test]
fn one_sum_for_all_threads_blocks_and_instruction_sets() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt --threads 1 --instructions scalar");
    let expected = sum(&path);
    println!("{expected}");
    let mut runs = 0;
    for level in levels() {
        for threads in [1, 2, 4] {
            for how in [
                "--ram 20M",
                "--ram 64M --work-tile 192",
                "--ram 1G --work-tile 65536",
            ] {
                let words = format!(
                    "run job.txt --overwrite --instructions {level} --threads {threads} {how}"
                );
                done(&path, &words);
                assert_eq!(sum(&path), expected, "{words}");
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
    assert!(runs >= 9, "{runs} runs");
}
