//! Crash points for the fault tests: where this daemon, and the supervisors that it starts, end.
//!
//! A test writes a plan (see [`crash::arm_by`]) into a file and thereby arms it once: the daemon that reads
//! the file removes it, so a daemon that is started again after its crash does not meet the same point.

use std::fs;
use std::path::PathBuf;
use whim_sys::crash;

/// The files of the plan, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    plan: Option<PathBuf>,
}

impl Faults {
    #[must_use]
    pub(crate) fn new(plan: Option<PathBuf>) -> Self {
        Self { plan }
    }

    fn take(&self, whom: &str) -> Option<String> {
        let path = self.plan.as_ref()?.with_extension(whom);
        let plan = fs::read_to_string(&path).ok()?;
        fs::remove_file(&path).ok()?;
        Some(plan)
    }

    /// Where the home supervisor that is started next is to end.
    #[must_use]
    pub(crate) fn of_home(&self) -> Option<String> {
        self.take("home")
    }

    /// Where the guest supervisor that is started next is to end.
    #[must_use]
    pub(crate) fn of_guest(&self) -> Option<String> {
        self.take("guest")
    }

    /// A crash point of the daemon itself: one before and one after each step that others see.
    pub(crate) fn point(&self, name: &'static str) {
        if self.plan.is_none() {
            return;
        }
        if let Some(plan) = self.take("whimd") {
            crash::arm_by(&plan);
        }
        crash::point(name);
        if crash::passed() > 0
            && let Some(plan) = &self.plan
        {
            // From this file the test learns how many points there are.
            let _ = fs::write(plan.with_extension("passed"), crash::passed().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_serves_once() {
        let directory = tempfile::tempdir().expect("directory");
        let faults = Faults::new(Some(directory.path().join("n1")));
        assert_eq!(faults.of_home(), None);
        fs::write(directory.path().join("n1.home"), "17\n").expect("plan");
        assert_eq!(faults.of_guest(), None);
        assert_eq!(faults.of_home().as_deref(), Some("17\n"));
        assert_eq!(faults.of_home(), None);
        assert_eq!(Faults::default().of_home(), None);
    }
}
