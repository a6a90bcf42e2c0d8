//! `whim-home`: reads one job from its standard input and carries it out. Started by `whimd`.
#![forbid(unsafe_code)]

use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;
use whim_journey::job::{self, HomeJob};

/// Longest job, in bytes.
const JOB_MAX: u64 = 1 << 20;

fn main() -> ExitCode {
    let outcome = begin()
        .and_then(|()| take_job())
        .and_then(whim_home::supervisor::run);
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The daemon may have ended before us: nobody listens then.
            let _ = writeln!(std::io::stdout(), "failed: {error:#}");
            // As the result of main it would come with a stack, where RUST_BACKTRACE asks for that of other programs.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    whim_sys::log::settle();
    code
}

fn begin() -> Result<()> {
    // Before anything else: other programs of this user must not read or dump what this process holds beyond
    // its user's rights, neither while it holds them nor when it has given them up.
    whim_sys::credentials::set_dumpable(false)?;
    // SIGIO announces that somebody wants a file lease back; we ask for one only in passing. SIGCHLD is heard
    // by the tracing thread alone.
    let mut quiet = nix::sys::signal::SigSet::empty();
    quiet.add(nix::sys::signal::Signal::SIGIO);
    quiet.add(nix::sys::signal::Signal::SIGCHLD);
    quiet.thread_block()?;
    tracing_subscriber::fmt()
        .with_writer(whim_sys::log::line)
        // It would report a full disk on standard error, which is on that disk, and panic.
        .log_internal_errors(false)
        // The log is a file.
        .with_ansi(false)
        .init();
    whim_sys::heap::share();
    whim_sys::heap::keep();
    Ok(())
}

fn take_job() -> Result<HomeJob> {
    whim_sys::crash::arm_from_environment();
    let job: HomeJob = job::read(std::io::stdin().lock(), JOB_MAX)?;
    if let Some(plan) = &job.crash_at {
        whim_sys::crash::arm_by(plan);
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(padding: usize) -> String {
        let job = HomeJob {
            journey: "j".repeat(padding),
            node: "n1".into(),
            pid: 7,
            start_time: 1,
            listener: 3,
            journal: 4,
            credentials: whim_journey::job::CredentialsJson(serde_json::Value::Null),
            lease_ms: None,
            allow_root: false,
            requested_by: 1000,
            permitted: 0,
            boot_offset_ns: 0,
            crash_at: None,
        };
        serde_json::to_string(&job).expect("encoded") + "\n"
    }

    #[test]
    fn a_job_is_read_up_to_its_limit() {
        // Its newline may be left unread.
        let limit = usize::try_from(JOB_MAX).expect("small");
        let largest = limit + 1 - line(0).len();
        let read = |line: String| job::read::<HomeJob>(line.as_bytes(), JOB_MAX);
        let job = read(line(largest)).expect("understood");
        assert_eq!(job.journey.len(), largest);
        let error = read(line(largest + 1)).expect_err("one byte more");
        assert_eq!(error.to_string(), "The job is not understood");
    }
}
