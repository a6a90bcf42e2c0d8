//! Ranks as threads of one process, without any MPI: what they tell each other goes through channels. `ranks.rs` has the
//! same with the launchers of real ones.
#![forbid(unsafe_code)]

mod common;

use common::{JOB, WRITTEN, directory, done, written};
use pipt::command::{self, Asked, Work};
use pipt::graph::Failure;
use pipt::ranks::Ranks;
use pipt::work::{self, WorkError, Written};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What all bring to a gathering, and the gatherings that are over.
#[derive(Default)]
struct Table {
    brought: Vec<Option<Vec<u8>>>,
    all: Arc<Vec<Vec<u8>>>,
    number: u64,
}

struct Thread {
    rank: usize,
    senders: Vec<Sender<(usize, Vec<u8>)>>,
    receiver: RefCell<Receiver<(usize, Vec<u8>)>>,
    table: Arc<(Mutex<Table>, Condvar)>,
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.senders.len()
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Failure> {
        let sent = self.senders[to].send((self.rank, bytes.to_vec()));
        sent.map_err(|_| "It is gone".into())
    }

    fn poll(&self) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        Ok(self.receiver.borrow().try_recv().ok())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let (table, changed) = &*self.table;
        let mut table = table.lock().expect("no rank panics");
        table.brought[self.rank] = Some(bytes.to_vec());
        let number = table.number;
        if table.brought.iter().all(Option::is_some) {
            let all = table
                .brought
                .iter_mut()
                .map(|brought| brought.take().expect("each has"));
            table.all = Arc::new(all.collect());
            table.number += 1;
            changed.notify_all();
        }
        let waited = changed.wait_while(table, |table| table.number == number);
        Ok(waited.expect("no rank panics").all.to_vec())
    }
}

fn threads(count: usize) -> Vec<Thread> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel()).unzip();
    let table = Table {
        brought: vec![None; count],
        ..Table::default()
    };
    let table = Arc::new((Mutex::new(table), Condvar::new()));
    let of = |(rank, receiver)| Thread {
        rank,
        senders: senders.clone(),
        receiver: RefCell::new(receiver),
        table: Arc::clone(&table),
    };
    receivers.into_iter().enumerate().map(of).collect()
}

/// A job whose names are below a directory.
fn work(directory: &Path, job: &str, words: &str) -> Work {
    let place = |word: &str| match word.ends_with(".tif") || word.ends_with(".csv") {
        true => directory.join(word).display().to_string(),
        false => word.to_owned(),
    };
    let lines = job
        .lines()
        .map(|line| line.split(' ').map(place).collect::<Vec<_>>().join(" "));
    let path = directory.join("job-of-threads.txt");
    fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("a job");
    let path = path.display().to_string();
    let words = ["pipt", "run", &path]
        .into_iter()
        .chain(words.split_whitespace());
    let matches = command::command()
        .try_get_matches_from(words)
        .expect("words");
    match command::asked(&matches).expect("a job") {
        Asked::Run(work) => work,
        other => panic!("{other:?}"),
    }
}

fn run(work: &Work, ranks: usize) -> Vec<Result<Vec<Written>, WorkError>> {
    thread::scope(|scope| {
        let start = |rank: Thread| scope.spawn(move || work::run(work, Some(&rank), &|_, _| {}));
        let running: Vec<_> = threads(ranks).into_iter().map(start).collect();
        running
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"))
            .collect()
    })
}

#[test]
fn ranks_write_the_bytes_of_one_process() {
    let (_kept, path) = directory();
    fs::write(path.join("job.txt"), JOB).expect("a job");
    done(&path, "run job.txt");
    let expected = written(&path);
    for (ranks, distribution, collect) in [
        (1, "dynamic", "direct"),
        (2, "rows", "gather"),
        (3, "tiles", "direct"),
        (4, "dynamic", "gather"),
        (5, "weighted", "direct"),
        (7, "dynamic", "direct"),
    ] {
        let words = format!(
            "--overwrite --threads 1 --work-tile 64 --distribute {distribution} --collect {collect}"
        );
        for told in run(&work(&path, JOB, &words), ranks) {
            let told = told.expect("all is well");
            assert_eq!(told.len(), WRITTEN.len());
            assert!(told.iter().all(|one| one.ranks == ranks));
        }
        assert!(written(&path) == expected, "{ranks} ranks: {words}");
    }
}

#[test]
fn where_one_rank_fails_all_do_and_one_says_it() {
    let (_kept, path) = directory();
    let mut bytes = fs::read(path.join("a.tif")).expect("an image");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 2000].fill(0x55);
    fs::write(path.join("a.tif"), bytes).expect("a damaged one");
    for collect in ["direct", "gather", "parts"] {
        let job = "in a.tif\ncalm = SquareMedian a size=3\nwrite calm calm.tif tile=64";
        let words = format!("--overwrite --threads 2 --collect {collect}");
        let told = run(&work(&path, job, &words), 4);
        assert!(told.iter().all(Result::is_err), "{collect}");
        let own = told.iter().filter_map(|told| told.as_ref().err());
        let own: Vec<String> = own
            .filter(|error| !error.is_elsewhere())
            .map(ToString::to_string)
            .collect();
        assert_eq!(own.len(), 1, "{collect}: {own:?}");
        assert!(own[0].contains("damaged"), "{own:?}");
    }
}

#[test]
fn another_rank_resumes_what_some_have_begun() {
    let (_kept, path) = directory();
    let job = "in a.tif\nrough = CoOccur a window=5 levels=16 range=0:5000\nwrite rough rough.tif tile=64\nwrite a soft.tif tile=64 compress=none";
    let all = run(&work(&path, job, "--threads 1"), 3);
    assert!(all.iter().all(Result::is_ok));
    let whole = ["rough.tif", "soft.tif"].map(|name| fs::read(path.join(name)).expect("written"));
    // As if it had been killed: half of each file, and the journal up to there, is what an interrupted run leaves.
    for name in ["rough.tif", "soft.tif"] {
        fs::remove_file(path.join(name)).expect("it is there");
    }
    let damaged = path.join("a.tif");
    let good = fs::read(&damaged).expect("an image");
    let mut bytes = good.clone();
    let end = bytes.len() - bytes.len() / 4;
    bytes[end..end + 2000].fill(0x55);
    fs::write(&damaged, &bytes).expect("a damaged one");
    let told = run(&work(&path, job, "--threads 1 --distribute rows"), 2);
    assert!(told.iter().all(Result::is_err));
    assert!(path.join("rough.tif.part.journal").exists(), "{told:?}");
    fs::write(&damaged, good).expect("mended");
    let told = run(
        &work(&path, job, "--threads 1 --resume --collect gather"),
        4,
    );
    for told in told {
        told.expect("it goes on");
    }
    let again = ["rough.tif", "soft.tif"].map(|name| fs::read(path.join(name)).expect("written"));
    assert!(again == whole);
}
