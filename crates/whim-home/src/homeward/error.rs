//! What keeps a program from going on at home.

use nix::errno::Errno;
use std::time::Duration;
use thiserror::Error;
use whim_image::freeze::FreezeError;
use whim_sys::ptrace::Tid;

use crate::deputy::DeputyError;
use crate::server::ServeError;

/// How long an interrupted call may take to end (a device that does not listen to signals).
pub(super) const QUIET_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub enum HomewardError {
    #[error("The returning image is not sound: {0}")]
    Unsound(String),
    #[error(transparent)]
    Deputy(#[from] DeputyError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("Restoring {what} failed: {errno}")]
    Call { what: &'static str, errno: Errno },
    #[error("Resuming at home failed: {0}")]
    Freeze(#[from] FreezeError),
    #[error("A call of thread {0} did not end within {QUIET_WITHIN:?}")]
    Busy(Tid),
    #[error("The process ended meanwhile")]
    Ended,
}
