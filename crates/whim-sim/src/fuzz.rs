//! Entries of the fuzz targets in `fuzz/`, and of the tests that replay what those have found.

use crate::{record, swf};

/// A trace in the Standard Workload Format.
///
/// # Panics
/// If what is read is not what it is said to be.
pub fn swf(bytes: &[u8]) {
    if let Ok(jobs) = swf::parse(bytes) {
        assert!(jobs.len() <= swf::JOBS_MAX);
        for job in jobs {
            assert!(job.work.is_finite() && job.work > 0.0 && job.processes >= 1);
            assert!(job.submitted.is_finite() && job.memory.is_none_or(f64::is_finite));
        }
    }
}

/// A record of a lab.
///
/// # Panics
/// If what is read is not what it is said to be.
pub fn record(bytes: &[u8]) {
    if let Ok(programs) = record::parse(bytes) {
        for program in programs {
            assert!(!program.spans.is_empty());
            let good = |value: f64| value.is_finite() && value >= 0.0;
            for span in &program.spans {
                assert!(good(span.cpus) && good(span.ran) && good(span.memory) && good(span.calls));
                assert!(span.seconds.is_finite() && span.seconds > 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_traces() {
        whim_corpus::replay("swf", super::swf);
    }

    #[test]
    fn corpus_of_records() {
        whim_corpus::replay("record", super::record);
    }
}
