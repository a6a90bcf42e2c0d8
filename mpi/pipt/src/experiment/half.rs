//! Routines over all images: by one process, and with manager and workers over MPI.

use super::Livecd;
use super::error::ExperimentError;
use super::jobs;
use super::lab::Lab;
use super::launcher;
use super::programs::Programs;
use super::record::{Run, Timed, Written, objects};
use super::watch::{Program, Watch};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What all parts of the experiment need.
pub struct Setup<'a> {
    pub asked: &'a Livecd,
    pub programs: &'a Programs,
    /// A directory that goes away, which all nodes see.
    pub work: &'a Path,
    pub watch: &'a Watch,
}

impl Setup<'_> {
    /// Writes a routine's batch file for a part of the experiment, and makes the directory of its results: both.
    pub(super) fn job(
        &self,
        part: &str,
        routine: &str,
    ) -> Result<(PathBuf, PathBuf), ExperimentError> {
        let to = self.work.join(part).join(routine);
        fs::create_dir_all(&to).map_err(|error| ExperimentError::file("made", &to, error))?;
        let job = self.work.join(format!("{part}-{routine}.job"));
        jobs::write(&job, &jobs::job(self.asked, routine, self.work, &to))?;
        Ok((job, to))
    }

    /// The words that do a job, by one thread.
    pub(super) fn words(&self, job: &Path) -> Vec<String> {
        let program = self.programs.pipt.to_string_lossy();
        let job = job.to_string_lossy();
        [
            "run",
            &job,
            "--threads",
            "1",
            "--json",
            "--instructions",
            &self.asked.instructions,
        ]
        .iter()
        .fold(vec![program.into_owned()], |mut words, word| {
            words.push((*word).to_owned());
            words
        })
    }

    /// A run of what a program printed; the files that it has written are summed, and removed.
    pub(super) fn run_of(
        &self,
        routine: &str,
        (said, seconds): (&str, f64),
        ranks: usize,
    ) -> Result<Run, ExperimentError> {
        let mut images = Vec::new();
        for one in objects::<Written>("pipt run --json", said)? {
            if one.ranks != ranks {
                let line = format!(
                    "{} of {} ranks instead of {ranks}",
                    one.written.display(),
                    one.ranks
                );
                return Err(ExperimentError::Output("pipt run --json", line));
            }
            images.push(Timed {
                image: jobs::stem(&one.written),
                seconds: one.seconds,
                sha256: sum(&one.written)?,
            });
            let failed = |error| ExperimentError::file("removed", &one.written, error);
            fs::remove_file(&one.written).map_err(failed)?;
        }
        let wanted = jobs::list(&self.work.join("images"))?.len();
        if images.len() != wanted {
            let line = format!("{routine}: {} of {wanted} images", images.len());
            return Err(ExperimentError::Output("pipt run --json", line));
        }
        Ok(Run {
            routine: routine.to_owned(),
            seconds,
            images,
        })
    }

    /// Each routine by one process outside of the lab, one after the other.
    ///
    /// # Errors
    ///
    /// One fails, or a signal has come.
    pub fn plain(&self, routines: &[&str]) -> Result<Vec<Run>, ExperimentError> {
        let run = |routine: &&str| {
            let (job, to) = self.job("plain", routine)?;
            let words = self.words(&job);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            let what = format!("{routine} by one process");
            let mut program = [Program::start(command, &what, &to)?];
            self.watch.finish(&mut program, &mut || Ok(()))?;
            self.run_of(routine, (&program[0].printed()?, program[0].seconds()), 1)
        };
        routines.iter().map(run).collect()
    }

    /// One job for each routine, in which all nodes work on each image: the manager reads it, gives equal slices out
    /// and puts their results together.
    ///
    /// # Errors
    ///
    /// One fails, or a signal has come.
    pub fn ranks(&self, lab: &Lab, say: &dyn Fn(&str)) -> Result<Vec<Run>, ExperimentError> {
        let mut runs = Vec::new();
        for routine in self.asked.routines() {
            let (job, to) = self.job("mpi", routine)?;
            let mut words = self.words(&job);
            let how = ["--distribute", "rows", "--collect", "gather"];
            words.extend(how.map(str::to_owned));
            let what = format!("{routine} over MPI");
            let mpirun = &self.programs.mpirun;
            let (said, seconds) = launcher::launch(lab, mpirun, (&what, &words), &to, self.watch)?;
            runs.push(self.run_of(routine, (&said, seconds), lab.nodes.len())?);
            say(&format!("{what}: {seconds:.1} s"));
        }
        Ok(runs)
    }
}

fn sum(path: &Path) -> Result<String, ExperimentError> {
    let failed = |error| ExperimentError::file("read", path, error);
    let mut sum = Sha256::new();
    let mut file = File::open(path).map_err(failed)?;
    io::copy(&mut file, &mut sum).map_err(failed)?;
    Ok(format!("{:x}", sum.finalize()))
}
