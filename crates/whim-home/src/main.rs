//! `whim-home`: reads one job from its standard input and carries it out. Started by `whimd`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use std::io::Write;
use whim_journey::job::HomeJob;

/// Longest job, in bytes.
const JOB_MAX: u64 = 1 << 20;

fn main() -> Result<()> {
    // A lease may break before anybody listens: SIGIO must not end us then.
    let mut quiet = nix::sys::signal::SigSet::empty();
    quiet.add(nix::sys::signal::Signal::SIGIO);
    quiet.thread_block()?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        // It would tell of a full disk on standard error, which is on that disk, and panic.
        .log_internal_errors(false)
        // The log is a file.
        .with_ansi(false)
        .init();
    let outcome = read_job().and_then(whim_home::supervisor::run);
    whim_sys::crash::tell_passed();
    if let Err(error) = &outcome {
        // The daemon may have ended before us: nobody listens then.
        let _ = writeln!(std::io::stdout(), "failed: {error:#}");
    }
    outcome
}

fn read_job() -> Result<HomeJob> {
    let mut line = Vec::new();
    let mut input = std::io::Read::take(std::io::stdin().lock(), JOB_MAX);
    std::io::BufRead::read_until(&mut std::io::BufReader::new(&mut input), b'\n', &mut line)?;
    drop(input);
    whim_sys::crash::arm_from_environment();
    let job: HomeJob = serde_json::from_slice(&line).context("The job is not understood")?;
    if let Some(plan) = &job.crash_at {
        whim_sys::crash::arm_by(plan);
    }
    Ok(job)
}
