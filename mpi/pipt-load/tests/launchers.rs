//! Ranks that the launchers of both MPIs start: `examples/ranks.rs` is what they run.

#![cfg(feature = "mpi")]
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// A launcher, and which library is for its ranks.
#[derive(Clone, Copy)]
struct Mpi {
    launcher: &'static str,
    options: &'static [&'static str],
    library: &'static str,
    name: &'static str,
    other: &'static str,
}

const MPICH: Mpi = Mpi {
    launcher: "mpirun.mpich",
    options: &[],
    library: "libwhim_mpi_mpich.so",
    name: "MPICH",
    other: "openmpi",
};
/// Tests may run as root, and on a machine with fewer processors than ranks.
const OPEN_MPI: Mpi = Mpi {
    launcher: "mpirun.openmpi",
    options: &["--allow-run-as-root", "--oversubscribe"],
    library: "libwhim_mpi_openmpi.so",
    name: "Open MPI",
    other: "mpich",
};
const BOTH: [(Mpi, Mpi); 2] = [(MPICH, OPEN_MPI), (OPEN_MPI, MPICH)];

/// Where the programs and the libraries are.
fn built() -> PathBuf {
    let program = env::current_exe().expect("a test has a program");
    let directory = program.parent().and_then(Path::parent);
    directory.expect("it is in `deps`").to_owned()
}

/// Runs so many ranks, and no others at the same time.
fn run(mpi: Mpi, ranks: usize, words: &[&str], variables: &[(&str, &str)]) -> Output {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(mpi.launcher);
    command
        .args(mpi.options)
        .args(["-n", &ranks.to_string()])
        .arg(built().join("examples/ranks"))
        .args(words)
        .env("RUST_BACKTRACE", "0")
        .env_remove("PIPT_MPI")
        .env_remove("PIPT_MPI_LIBRARY")
        .envs(variables.iter().copied());
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{}: {error}: see scripts/bootstrap mpi", mpi.launcher))
}

fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// All ranks say that all is well.
fn well(mpi: Mpi, ranks: usize, words: &[&str]) {
    let output = run(mpi, ranks, words, &[]);
    let said = both(&output);
    assert!(
        output.status.success(),
        "{ranks} ranks of {}: {said}",
        mpi.name
    );
    let wanted = format!("{ranks} ranks of {}", mpi.name);
    assert!(
        said.contains(&wanted) && said.contains(": all well"),
        "{said}"
    );
}

/// The job ends with a failure, and says this.
fn refused(mpi: Mpi, ranks: usize, words: &[&str], variables: &[(&str, &str)], parts: &[&str]) {
    let output = run(mpi, ranks, words, variables);
    let said = both(&output);
    assert!(!output.status.success(), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(!said.contains("all well"), "{said}");
}

fn everything(mpi: Mpi) {
    for ranks in [1, 2, 4, 8] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display().to_string();
        well(mpi, ranks, &["all", &path]);
    }
}

#[test]
fn ranks_of_mpich_do_everything() {
    everything(MPICH);
}

#[test]
fn ranks_of_open_mpi_do_everything() {
    everything(OPEN_MPI);
}

#[test]
fn who_waits_leaves_its_processor_to_others() {
    well(MPICH, 2, &["calm"]);
    well(OPEN_MPI, 2, &["calm"]);
}

#[test]
fn the_library_of_the_other_mpi_is_refused_before_it_is_started() {
    for (mpi, other) in BOTH {
        let library = built().join(other.library);
        let library = library.to_str().expect("a path");
        let parts = [other.library, "is built for", mpi.library];
        refused(mpi, 2, &["calm"], &[("PIPT_MPI_LIBRARY", library)], &parts);
    }
}

#[test]
fn ranks_that_see_a_world_of_their_own_are_refused() {
    for (mpi, other) in BOTH {
        let parts = [
            "The launcher started 3 ranks",
            other.name,
            "sees 1",
            "PIPT_MPI",
        ];
        refused(mpi, 3, &["calm"], &[("PIPT_MPI", mpi.other)], &parts);
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    for (mpi, _) in BOTH {
        let parts = ["/nowhere.so cannot be opened", "make pipt-mpi"];
        refused(
            mpi,
            1,
            &["calm"],
            &[("PIPT_MPI_LIBRARY", "/nowhere.so")],
            &parts,
        );
    }
}

#[test]
fn a_process_without_a_launcher_is_refused() {
    let output = Command::new(built().join("examples/ranks"))
        .arg("calm")
        .output();
    let output = output.expect("the example is built");
    assert!(!output.status.success());
    let said = both(&output);
    assert!(
        said.contains("no MPI launcher") && said.contains("mpirun -n 4"),
        "{said}"
    );
}

#[test]
fn a_rank_that_panics_or_aborts_ends_all() {
    for (mpi, _) in BOTH {
        refused(mpi, 3, &["panic"], &[], &["rank 1 panics, as it was told"]);
        refused(mpi, 3, &["abort"], &[], &[]);
    }
    // Hydra returns 9, the signal by which it kills the others, now and then.
    let output = run(OPEN_MPI, 3, &["abort"], &[]);
    assert_eq!(output.status.code(), Some(7), "{}", both(&output));
}
