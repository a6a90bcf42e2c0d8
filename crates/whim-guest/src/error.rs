//! What may go wrong with a guest.

use nix::errno::Errno;
use thiserror::Error;
use whim_image::rebuild::RebuildError;
use whim_image::rebuild::runner::RunnerError;
use whim_journey::message::MessageError;
use whim_sys::procmap::ProcmapError;
use whim_sys::ptrace::TraceError;
use whim_sys::seccomp::SeccompError;

#[derive(Debug, Error)]
pub enum GuestError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
    #[error(transparent)]
    Maps(#[from] ProcmapError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("The guest's {what} cannot be read: {source}")]
    Unreadable {
        what: &'static str,
        source: std::io::Error,
    },
    #[error("{what} failed: {errno}")]
    Os { what: &'static str, errno: Errno },
    #[error(
        "The program's seccomp filters are not those that travel: they are malformed, or too long"
    )]
    Filters,
    #[error("The guest has ended")]
    Ended,
}
