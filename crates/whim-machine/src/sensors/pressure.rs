//! Pressure stall information: the part of the time in which tasks stood still for want of
//! something.
//!
//! Source: `Documentation/accounting/psi.rst` of the kernel.

use crate::processes::short;
use serde::{Deserialize, Serialize};

use super::scope::Scope;

/// Parts of the last ten seconds, in percent; null where the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited for a CPU.
    pub cpu_some: Option<f64>,
    /// Some task waited for memory.
    pub memory_some: Option<f64>,
    /// All tasks that could have run waited for memory, so nothing was done.
    pub memory_full: Option<f64>,
    /// All tasks that could have run waited for a disk.
    pub io_full: Option<f64>,
}

impl Pressure {
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        let text = |resource| short(scope.pressure_file(resource)?);
        let memory = text("memory");
        let average = |text: &Option<String>, line| average(text.as_deref()?, line);
        Self {
            cpu_some: average(&text("cpu"), "some"),
            memory_some: average(&memory, "some"),
            memory_full: average(&memory, "full"),
            io_full: average(&text("io"), "full"),
        }
    }
}

/// The average over ten seconds from a line such as
/// `some avg10=0.12 avg60=0.03 avg300=0.01 total=4711`.
fn average(text: &str, line: &str) -> Option<f64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut words = lines.find_map(|mut words| (words.next() == Some(line)).then_some(words))?;
    let value = words.find_map(|word| word.strip_prefix("avg10="))?;
    value.parse().ok().filter(|part: &f64| part.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_name() {
        let text = "some avg10=1.25 avg60=0.50 avg300=0.00 total=12\nfull avg10=0.75 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(average(text, "some"), Some(1.25));
        assert_eq!(average(text, "full"), Some(0.75));
        for odd in ["", "some", "some avg60=1", "some avg10=x", "some avg10=nan"] {
            assert_eq!(average(odd, "some"), None, "{odd}");
        }
    }
}
