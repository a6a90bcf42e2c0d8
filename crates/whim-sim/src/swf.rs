//! Traces in the Standard Workload Format of the Parallel Workloads Archive (Feitelson; version 2.2): a line
//! for each job, of 18 numbers, -1 where nothing is known; lines that begin with `;` are comments.

use thiserror::Error;

/// No trace has more jobs, as far as we read it.
pub const JOBS_MAX: usize = 1_000_000;
/// Processes of a job that are simulated.
pub const PROCESSES_MAX: u32 = 1024;
/// Numbers of a line.
const FIELDS: usize = 18;
/// Times are no longer, in seconds, and memory is no more, in bytes.
const TIME_MAX: f64 = 1e10;
const MEMORY_MAX: f64 = 1e15;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SwfError {
    #[error("Line {0} is not a line of a trace: {FIELDS} numbers, or a comment after ';'")]
    Line(usize),
    #[error("The trace has more than {JOBS_MAX} jobs: cut it into parts")]
    Jobs,
}

/// What a line says that matters here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Seconds.
    pub submitted: f64,
    /// Processes.
    pub processes: u32,
    /// CPU seconds of each.
    pub work: f64,
    /// Bytes of each.
    pub memory: Option<f64>,
    /// A number for who has submitted it.
    pub user: u64,
}

/// Jobs that did something, in the order of the file.
///
/// # Errors
/// What is not a trace, or too long.
pub fn parse(bytes: &[u8]) -> Result<Vec<Job>, SwfError> {
    let mut jobs = Vec::new();
    for line in crate::lines(bytes) {
        let (number, text) = line.map_err(SwfError::Line)?;
        if text.is_empty() || text.starts_with(';') {
            continue;
        }
        jobs.extend(job(text).ok_or(SwfError::Line(number))?);
        if jobs.len() > JOBS_MAX {
            return Err(SwfError::Jobs);
        }
    }
    Ok(jobs)
}

/// `None`: the line is none. `Some(None)`: the job never ran.
fn job(text: &str) -> Option<Option<Job>> {
    let mut fields = [0.0; FIELDS];
    let mut words = text.split_whitespace();
    for field in &mut fields {
        let value = words.next()?.parse::<f64>().ok()?;
        *field = Some(value).filter(|value| value.is_finite())?;
    }
    if words.next().is_some() {
        return None;
    }
    let [_, submitted, _, runs, allocated, cpu, memory, requested, ..] = fields;
    let user = fields[11];
    let processes = if allocated >= 1.0 {
        allocated
    } else {
        requested
    };
    // How long it ran is known nearly always, what of that it computed seldom.
    let work = if cpu > 0.0 { cpu } else { runs };
    if work <= 0.0 || processes < 1.0 {
        return Some(None);
    }
    let good = (0.0..=TIME_MAX).contains(&submitted) && work <= TIME_MAX;
    let memory = (memory > 0.0).then_some(memory * 1024.0);
    if !good || memory.is_some_and(|bytes| bytes > MEMORY_MAX) {
        return None;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "kept within bounds"
    )]
    let (processes, user) = (
        processes.min(f64::from(PROCESSES_MAX)) as u32,
        user.clamp(0.0, 1e9) as u64,
    );
    Some(Some(Job {
        submitted,
        processes,
        work,
        memory,
        user,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "; Version: 2.2\n;\n\
        1 0 5 120 4 100 2048 4 -1 -1 1 7 1 -1 1 -1 -1 -1\n\n\
        2 60 -1 30 -1 -1 -1 2 -1 -1 1 8 1 -1 1 -1 -1 -1\n\
        3 61 -1 -1 -1 -1 -1 2 -1 -1 5 8 1 -1 1 -1 -1 -1\n";

    #[test]
    fn a_trace_is_read() {
        let jobs = parse(TRACE.as_bytes()).expect("a trace");
        let first = Job {
            submitted: 0.0,
            processes: 4,
            work: 100.0,
            memory: Some(2048.0 * 1024.0),
            user: 7,
        };
        let second = Job {
            submitted: 60.0,
            processes: 2,
            work: 30.0,
            memory: None,
            user: 8,
        };
        // The third never ran.
        assert_eq!(jobs, [first, second]);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for odd in [
            "x",
            "1 2 3",
            "1 0 5 120 4 100 2048 4 -1 -1 1 7 1 -1 1 -1 -1 -1 0",
            "1 nan 5 120 4 100 2048 4 -1 -1 1 7 1 -1 1 -1 -1 -1",
            "1 0 5 1e300 4 -1 2048 4 -1 -1 1 7 1 -1 1 -1 -1 -1",
            "1 0 5 120 4 100 1e300 4 -1 -1 1 7 1 -1 1 -1 -1 -1",
            "1 -5 5 120 4 100 2048 4 -1 -1 1 7 1 -1 1 -1 -1 -1",
        ] {
            let text = format!("; a comment\n{odd}");
            assert_eq!(parse(text.as_bytes()), Err(SwfError::Line(2)), "{odd}");
        }
        let long = "; ".to_owned() + &"x".repeat(crate::LINE_MAX);
        assert_eq!(parse(long.as_bytes()), Err(SwfError::Line(1)));
        assert_eq!(parse(b"\xff"), Err(SwfError::Line(1)));
    }

    #[test]
    fn a_job_has_no_more_processes_than_are_simulated() {
        let text = "1 0 5 120 1e8 100 -1 4 -1 -1 1 1e18 1 -1 1 -1 -1 -1";
        let jobs = parse(text.as_bytes()).expect("a trace");
        assert_eq!(
            (jobs[0].processes, jobs[0].user),
            (PROCESSES_MAX, 1_000_000_000)
        );
    }
}
