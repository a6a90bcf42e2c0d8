//! For tests: a child that does nothing.

use std::process::{Child, Command, Stdio};

/// A child that waits until it is dropped, and has ended then, also where a test fails before.
pub(super) struct Waiting(Child);

impl Waiting {
    pub(super) fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn();
        Self(child.expect("cat starts"))
    }

    pub(super) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
