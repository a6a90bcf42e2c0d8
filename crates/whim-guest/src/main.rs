//! The guest supervisor of one visiting process. The daemon starts it: see `whim-journey::job`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use whim_guest::sandbox::{self, Sandbox};
use whim_guest::supervisor;
use whim_image::stay::Policy;
use whim_journey::job::{self, GuestJob};
use whim_sys::crash;

/// Longest job, in bytes.
const JOB_MAX: u64 = 4 << 20;
/// Longest file that this supervisor may write, in bytes. The only file is its log.
const FILE_MAX: u64 = 16 << 20;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("WHIM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(whim_sys::log::line)
        // It would report a full disk on standard error, which is on that same disk, and panic.
        .log_internal_errors(false)
        .with_ansi(false)
        .init();
    whim_sys::heap::share();
    whim_sys::heap::keep();
    let code = match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Read by the daemon, if it has not read "ready" yet.
            let _ = writeln!(std::io::stdout(), "failed: {error:#}");
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    whim_sys::log::settle();
    code
}

/// Guests lock the memory that they have locked at home, up to the limit that a host accepts. Where
/// this node does not let us, the memory is locked again when the guest is back home.
fn allow_locking() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let wanted = Policy::default().locked_max;
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) {
        let most = hard.max(wanted);
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, most, most)
            .or_else(|_| setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard));
    }
}

fn run() -> anyhow::Result<()> {
    allow_locking();
    sandbox::allow_files()?;
    // Before anything secret is in memory, which the sandbox's processes would inherit.
    let sandbox = Sandbox::prepare()?;
    // The processes made so far do not inherit this limit. The guest, which comes from them, gets
    // limits of its own.
    whim_sys::credentials::limit_files(FILE_MAX)?;
    let job: GuestJob = job::read(std::io::stdin().lock(), JOB_MAX)?;
    match &job.crash_at {
        Some(plan) => crash::arm_by(plan),
        None => crash::arm_from_environment(),
    }
    supervisor::run(job, sandbox)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(padding: usize) -> String {
        let job = GuestJob {
            journey: "j".repeat(padding),
            epoch: 1,
            node: "n2".into(),
            home: "n1".into(),
            source: None,
            listener: 3,
            credentials: whim_journey::job::CredentialsJson(serde_json::Value::Null),
            lease_ms: None,
            private_id: None,
            cgroups: Vec::new(),
            memory_limit_bytes: None,
            memory_share: None,
            own_vdso: true,
            crash_at: None,
        };
        serde_json::to_string(&job).expect("encoded") + "\n"
    }

    #[test]
    fn a_guests_job_is_read_up_to_its_limit() {
        // Its newline may be left unread.
        let limit = usize::try_from(JOB_MAX).expect("small");
        let largest = limit + 1 - line(0).len();
        let read = |line: String| job::read::<GuestJob>(line.as_bytes(), JOB_MAX);
        let job = read(line(largest)).expect("understood");
        assert_eq!(job.journey.len(), largest);
        let error = read(line(largest + 1)).expect_err("one byte more");
        assert_eq!(error.to_string(), "The job is not understood");
    }
}
