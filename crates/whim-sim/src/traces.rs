//! Programs from files.

use crate::cluster::program::{End, Phase, Spec};
use crate::cluster::{Setting, micros};
use crate::scenario::{MB, UP};
use std::collections::HashMap;
use std::path::Path;
use whim_sim::{record, swf};

/// Of which a trace does not say how much memory it needs.
const UNKNOWN: f64 = 10.0 * MB;
/// More programs are not simulated at once.
const PROGRAMS_MAX: usize = 2_000_000;
/// Who wants less of a core waits for time to pass, not for the CPU.
const IDLE: f64 = 0.05;

/// Fills a setting from a file: a trace, or a record if its name ends with `.jsonl`.
///
/// # Errors
/// A sentence.
pub(crate) fn fill(setting: &mut Setting, path: &Path) -> Result<(), String> {
    let name = path.display();
    let bytes = whim_sim::read(path).map_err(|error| format!("Could not read {name}: {error}"))?;
    let is_record = path
        .extension()
        .is_some_and(|extension| extension == "jsonl");
    let nodes = setting.machines.len();
    setting.programs = if is_record {
        let programs = record::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        recorded(&programs, nodes)
    } else {
        let jobs = swf::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        traced(&jobs, nodes)
    };
    if setting.programs.len() > PROGRAMS_MAX {
        return Err(format!(
            "{name} has more than {PROGRAMS_MAX} processes: cut it into parts"
        ));
    }
    setting.programs.sort_by_key(|spec| spec.arrives);
    setting.until += UP;
    Ok(())
}

fn traced(jobs: &[swf::Job], nodes: usize) -> Vec<Spec> {
    let first = jobs
        .iter()
        .map(|job| job.submitted)
        .fold(f64::INFINITY, f64::min);
    let mut programs = Vec::new();
    for job in jobs {
        // Each user works at a node of his own.
        let home = usize::try_from(job.user).unwrap_or(0) % nodes;
        for _ in 0..job.processes {
            programs.push(Spec {
                arrives: UP + micros(job.submitted - first),
                home,
                memory: job.memory.unwrap_or(UNKNOWN),
                phases: [Phase::compute(End::Work(job.work))].into(),
                repeats: false,
            });
            if programs.len() > PROGRAMS_MAX {
                return programs;
            }
        }
    }
    programs
}

fn recorded(programs: &[record::Program], nodes: usize) -> Vec<Spec> {
    let mut homes: HashMap<&str, usize> = HashMap::new();
    let mut specs = Vec::with_capacity(programs.len());
    for program in programs {
        let next = homes.len() % nodes;
        let home = *homes.entry(program.home.as_str()).or_insert(next);
        let after = program.spans.iter().skip(1).map(|span| span.memory);
        let after = after.chain(program.spans.last().map(|span| span.memory));
        let spans = program.spans.iter().zip(after);
        specs.push(Spec {
            arrives: UP + micros(program.begins),
            home,
            memory: program.spans.first().map_or(0.0, |span| span.memory),
            phases: spans.map(|(span, after)| phase(span, after)).collect(),
            repeats: false,
        });
    }
    specs
}

/// What it got done has to be done again, however long that takes; who waited waits as long.
fn phase(span: &record::Span, after: f64) -> Phase {
    let cpu = span.cpus.min(1.0);
    let end = match cpu < IDLE {
        true => End::Time(span.seconds),
        false => End::Work(span.seconds * (span.ran / span.cpus).clamp(0.01, 1.0)),
    };
    Phase {
        cpu,
        calls: span.calls,
        growth: (after - span.memory).max(0.0) / span.seconds,
        most: after,
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_job_is_a_program_at_its_user_s_node() {
        let job = |submitted, user| swf::Job {
            submitted,
            processes: 2,
            work: 5.0,
            memory: None,
            user,
        };
        let programs = traced(&[job(100.0, 7), job(103.0, 8)], 4);
        let places: Vec<(u64, usize)> = programs.iter().map(|p| (p.arrives - UP, p.home)).collect();
        assert_eq!(places, [(0, 3), (0, 3), (3_000_000, 0), (3_000_000, 0)]);
        assert!((programs[0].alone() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_recorded_program_does_what_it_did() {
        let span = |cpus, ran, memory| record::Span {
            seconds: 2.0,
            cpus,
            ran,
            memory,
            calls: 0.0,
        };
        let program = record::Program {
            begins: 1.0,
            home: "n2".into(),
            spans: vec![span(1.0, 0.5, 10.0), span(0.0, 0.0, 30.0)],
        };
        let programs = recorded(&[program], 3);
        let phases = &programs[0].phases;
        assert_eq!(
            (phases[0].end, phases[1].end),
            (End::Work(1.0), End::Time(2.0))
        );
        assert!((phases[0].growth - 10.0).abs() < 1e-9 && (phases[0].most - 30.0).abs() < 1e-9);
        assert!((programs[0].alone() - 3.0).abs() < 1e-9);
    }
}
