//! The jobs of the study, and what its paper leaves open about them.

use clap::{Args, ValueEnum};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What the paper leaves open about the jobs. It says: "Each incoming job required 2/r seconds of CPU
/// time on the fastest machine and (1/m)% of the largest machine memory, where r and m were
/// independently generated random numbers between 0 and 1 ... 5% of all jobs instead required 20/r
/// seconds, and were divided into 1 to 20 parallel components. Jobs arrived at about one per ten seconds
/// for ten thousand simulated seconds, distributed randomly to provide a variety of load conditions ...
/// All random distributions were uniform."
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Jobs {
    /// Least r: a job needs 2/r seconds
    ///
    /// Of 1/r neither mean nor variance exists, so a mean slowdown without a bound would be that of the
    /// few longest jobs. The bound is what the thousand jobs of one run are expected to reach.
    #[arg(long, default_value_t = 0.001)]
    pub least_r: f64,
    /// Least m: a job holds 1/m percent of the largest machine's memory
    ///
    /// At 0.01 the largest job fills the largest machine; one that fits nowhere would be slow under
    /// every policy.
    #[arg(long, default_value_t = 0.01)]
    pub least_m: f64,
    /// What each process of a parallel job has of the job's seconds
    ///
    /// "Divided" says a share. With the whole, load would be beyond what the machines can do.
    #[arg(long, value_enum, default_value_t = Part::Share)]
    pub parallel_work: Part,
    /// What each has of the job's memory
    ///
    /// "Divided" again.
    #[arg(long, value_enum, default_value_t = Part::Share)]
    pub parallel_memory: Part,
    /// Jobs of a run: 1000, give or take up to this part
    ///
    /// "A variety of load conditions". That the published means per job are 7 to 10 % above those per
    /// execution says that runs differ in their number of jobs, and busier ones are slower.
    #[arg(long, default_value_t = 0.5)]
    pub vary: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Share,
    Whole,
}

/// Jobs of a run, in the mean: one in ten seconds.
const JOBS: f64 = 1000.0;
/// Jobs arrive for so long; all that arrive are finished.
const ARRIVALS: f64 = 10_000.0;
/// Of the jobs so many are parallel.
const PARALLEL: f64 = 0.05;

/// Its slowdown is the time from its arrival until its last process ends, over `work`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub arrives: f64,
    pub processes: u32,
    /// Of each process: seconds of the fastest machine.
    pub work: f64,
    /// Of each process: MB.
    pub memory: f64,
}

/// The jobs of one run, by their time.
#[must_use]
pub(crate) fn jobs(seed: u64, assumed: &Jobs, largest_memory: f64) -> Vec<Job> {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let count = JOBS * (1.0 + assumed.vary * (2.0 * chance.random::<f64>() - 1.0));
    let mut times: Vec<f64> = (1..)
        .take_while(|number| f64::from(*number) <= count)
        .map(|_| chance.random::<f64>() * ARRIVALS)
        .collect();
    times.sort_by(f64::total_cmp);
    let job = |arrives| job(arrives, &mut chance, assumed, largest_memory);
    times.into_iter().map(job).collect()
}

fn job(arrives: f64, chance: &mut Pcg64Mcg, assumed: &Jobs, largest_memory: f64) -> Job {
    let mut above = |least: f64| least + (1.0 - least) * chance.random::<f64>();
    let (r, m) = (above(assumed.least_r), above(assumed.least_m));
    let (work, processes) = match chance.random::<f64>() < PARALLEL {
        true => (20.0 / r, 1 + chance.next_u32() % 20),
        false => (2.0 / r, 1),
    };
    let part = |whole: f64, part: Part| match part {
        Part::Share => whole / f64::from(processes),
        Part::Whole => whole,
    };
    Job {
        arrives,
        processes,
        work: part(work, assumed.parallel_work),
        memory: part(0.01 / m * largest_memory, assumed.parallel_memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUMED: Jobs = Jobs {
        least_r: 0.001,
        least_m: 0.01,
        parallel_work: Part::Share,
        parallel_memory: Part::Share,
        vary: 0.5,
    };

    #[test]
    fn jobs_are_those_of_the_paper() {
        let all: Vec<Vec<Job>> = (0..200).map(|seed| jobs(seed, &ASSUMED, 64.0)).collect();
        let counts: Vec<usize> = all.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (500..=1500).contains(count)));
        assert!(counts.iter().any(|n| *n < 600) && counts.iter().any(|n| *n > 1400));
        let all: Vec<Job> = all.into_iter().flatten().collect();
        let part = |wanted: fn(&Job) -> bool| {
            all.iter().filter(|job| wanted(job)).count() as f64 / all.len() as f64
        };
        // One of the twenty sizes of parallel jobs is a single process.
        assert!((part(|job| job.processes > 1) - 0.05 * 0.95).abs() < 0.003);
        let single = part(|job| job.processes == 1);
        // 2/r is below 4 for half of them, and 0.64/m below 1.28 MB.
        let short = part(|job| job.processes == 1 && job.work < 4.0) / single;
        let small = part(|job| job.processes == 1 && job.memory < 1.28) / single;
        assert!((short - 0.5).abs() < 0.01 && (small - 0.5).abs() < 0.01);
        let bound = |job: &Job| job.memory <= 64.0 + 1e-9 && job.work >= 1.0 && job.work <= 2e4;
        assert!(all.iter().all(bound));
        assert!(all.iter().all(|job| (0.0..ARRIVALS).contains(&job.arrives)));
    }

    #[test]
    fn a_seed_gives_the_same_jobs_always() {
        assert_eq!(jobs(7, &ASSUMED, 64.0), jobs(7, &ASSUMED, 64.0));
        assert_ne!(jobs(7, &ASSUMED, 64.0), jobs(8, &ASSUMED, 64.0));
    }
}
