//! What many runs say: means with their 95 % intervals, medians, and paired comparisons.

use crate::study::{Assumptions, Outcome, Policy, run};
use serde::Serialize;

/// A figure and half of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub value: f64,
    pub within: f64,
}

/// A policy in all runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub policy: Policy,
    /// Mean slowdown over all jobs of all runs.
    pub per_job: Figure,
    /// Mean over runs, of each run's mean.
    pub per_run: Figure,
    /// Of the runs' means: the median, and the worst.
    pub median: f64,
    pub worst: f64,
    /// Per job.
    pub moves: f64,
    /// Of one process in any run.
    pub most_moves: u32,
    #[serde(skip)]
    runs: Vec<Outcome>,
}

/// Two policies on the same jobs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    pub better: Policy,
    pub worse: Policy,
    /// How much larger the mean of a run is under the worse one, run by run.
    pub difference: Figure,
    /// Mean slowdown over all jobs: the better one's, over the worse one's.
    pub ratio: Figure,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    pub runs: u64,
    pub first_seed: u64,
    pub rows: Vec<Row>,
    pub pairs: Vec<Pair>,
}

impl Table {
    /// Runs the policies, the worst first, on jobs of so many seeds.
    #[must_use]
    pub(crate) fn of(
        policies: &[Policy],
        first_seed: u64,
        runs: u64,
        assumed: &Assumptions,
    ) -> Self {
        let outcomes = |policy| {
            let seeds = first_seed..first_seed + runs;
            seeds.map(|seed| run(policy, seed, assumed)).collect()
        };
        let row = |policy: &Policy| Row::of(*policy, outcomes(*policy));
        let rows: Vec<Row> = policies.iter().map(row).collect();
        let mut pairs: Vec<Pair> = rows.windows(2).map(|two| pair(&two[0], &two[1])).collect();
        let compared = |one: &Pair| one.better == Policy::Ours && one.worse == Policy::Mosix;
        let of = |policy| rows.iter().find(|row| row.policy == policy);
        if let (Some(mosix), Some(ours)) = (of(Policy::Mosix), of(Policy::Ours))
            && !pairs.iter().any(compared)
        {
            pairs.push(pair(mosix, ours));
        }
        Self {
            runs,
            first_seed,
            rows,
            pairs,
        }
    }

    pub(crate) fn print(&self) {
        println!(
            "slowdown, mean and 95 % interval; {} runs from seed {}",
            self.runs, self.first_seed
        );
        println!();
        println!(
            "| policy | per job | per run | median run | worst run | moves per job | most moves |"
        );
        println!("|---|---|---|---|---|---|---|");
        for row in &self.rows {
            println!(
                "| {} | {} | {} | {:.3} | {:.1} | {:.2} | {} |",
                name(row.policy),
                shown(row.per_job),
                shown(row.per_run),
                row.median,
                row.worst,
                row.moves,
                row.most_moves,
            );
        }
        println!();
        println!("| pair | difference per run | ratio per job |");
        println!("|---|---|---|");
        for pair in &self.pairs {
            println!(
                "| {} < {} | {} | {} |",
                name(pair.better),
                name(pair.worse),
                shown(pair.difference),
                shown(pair.ratio),
            );
        }
    }
}

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Pvm => "PVM",
        Policy::EPvm => "E-PVM",
        Policy::MosixShipped => "MOSIX as shipped",
        Policy::Mosix => "MOSIX",
        Policy::EMosix => "E-MOSIX",
        Policy::Ours => "ours",
    }
}

fn shown(figure: Figure) -> String {
    format!("{:.3} ± {:.3}", figure.value, figure.within)
}

impl Row {
    fn of(policy: Policy, runs: Vec<Outcome>) -> Self {
        let mut means: Vec<f64> = runs.iter().map(|run| run.sum / run.jobs).collect();
        let per_run = mean(&means);
        means.sort_by(f64::total_cmp);
        let jobs: f64 = runs.iter().map(|run| run.jobs).sum();
        let moves: f64 = runs.iter().map(|run| run.moves as f64).sum();
        Self {
            policy,
            per_job: ratio(runs.iter().map(|run| (run.sum, run.jobs))),
            per_run,
            median: means.get(means.len() / 2).copied().unwrap_or(f64::NAN),
            worst: means.last().copied().unwrap_or(f64::NAN),
            moves: moves / jobs,
            most_moves: runs.iter().map(|run| run.most_moves).max().unwrap_or(0),
            runs,
        }
    }
}

fn pair(worse: &Row, better: &Row) -> Pair {
    let both = || better.runs.iter().zip(&worse.runs);
    let difference =
        |(one, other): (&Outcome, &Outcome)| other.sum / other.jobs - one.sum / one.jobs;
    let differences: Vec<f64> = both().map(difference).collect();
    Pair {
        better: better.policy,
        worse: worse.policy,
        difference: mean(&differences),
        ratio: ratio(both().map(|(one, other)| (one.sum, other.sum))),
    }
}

/// Of a normal distribution 95 % lie within so many standard deviations.
const WITHIN: f64 = 1.96;

fn mean(values: &[f64]) -> Figure {
    let count = values.len() as f64;
    let value = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
    Figure {
        value,
        within: WITHIN * (squares / (count - 1.0).max(1.0) / count).sqrt(),
    }
}

/// A ratio of two sums, whose interval comes from what each part deviates from it.
fn ratio(parts: impl Iterator<Item = (f64, f64)> + Clone) -> Figure {
    let sum = |(one, other): (f64, f64), (more, most)| (one + more, other + most);
    let (over, under) = parts.clone().fold((0.0, 0.0), sum);
    let value = over / under;
    let deviations: Vec<f64> = parts.map(|(over, under)| over - value * under).collect();
    Figure {
        value,
        within: mean(&deviations).within * deviations.len() as f64 / under,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Counted;
    use crate::workload::{Jobs, Part};

    const ASSUMED: Assumptions = Assumptions {
        jobs: Jobs {
            least_r: 0.001,
            least_m: 0.01,
            parallel_work: Part::Share,
            parallel_memory: Part::Share,
            vary: 0.5,
        },
        look_every: 1.0,
        contacts: 3,
        until: None,
        counted: Counted::Jobs,
        cost_rate: None,
    };

    #[test]
    fn intervals_are_those_of_the_books() {
        let figure = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((figure.value - 3.0).abs() < 1e-12);
        assert!((figure.within - 1.96 * (2.5f64 / 5.0).sqrt()).abs() < 1e-12);
        // Parts in a fixed proportion leave no doubt about it.
        let exact = ratio([(1.0, 2.0), (3.0, 6.0), (5.0, 10.0)].into_iter());
        assert!((exact.value - 0.5).abs() < 1e-12 && exact.within.abs() < 1e-12);
        // Equal denominators: it is a mean.
        let same = ratio([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)].into_iter());
        assert!((same.within - mean(&[1.0, 2.0, 3.0]).within).abs() < 1e-12);
    }

    #[test]
    fn the_published_order_holds_and_ours_is_the_best() {
        let policies = [
            Policy::Pvm,
            Policy::EPvm,
            Policy::Mosix,
            Policy::EMosix,
            Policy::Ours,
        ];
        let table = Table::of(&policies, 0, 6, &ASSUMED);
        table.print();
        for pair in &table.pairs {
            assert!(pair.difference.value > 0.0, "{pair:?}");
        }
    }

    #[test]
    fn a_cost_of_moves_does_not_undo_them() {
        let costly = Assumptions {
            cost_rate: Some(100e6),
            ..ASSUMED
        };
        let table = Table::of(&[Policy::Mosix, Policy::Ours], 100, 12, &costly);
        assert!(table.pairs.iter().all(|pair| pair.ratio.value <= 0.95));
        // A process rests for a tenth of its age: from its tenth second, when a rest is as long as the
        // time between two looks, its age grows by a tenth from move to move.
        let ours = table.rows.last().expect("two rows");
        assert!((1..=80).contains(&ours.most_moves), "{}", ours.most_moves);
    }
}
