//! The tracer's thread, and the answer that is sent once it has ended.
//!
//! Threads that run can be let go only by the end of the thread that traces them. So the supervisor's work is
//! done by a thread of its own. A client that waited for a move which did not come about is answered only
//! when nothing is traced any more, so that a new move may begin.

use crate::client::Client;
use crate::seize;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use whim_journey::job::Event;

/// Threads that wait for the tracer's thread are woken before the kernel has let the traced threads go. That takes
/// less than this.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// What is to be sent when the tracer's thread has ended.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    last: Option<(Client, Event)>,
}

impl Parting {
    pub(crate) fn say(&mut self, client: Client, event: Event) {
        self.last = Some((client, event));
    }
}

/// Runs `work` on a thread of its own, and waits until that has ended. The calling thread gives up its rights
/// first, because other threads of this process could otherwise have it use them.
///
/// # Errors
/// The error of `work`; no thread can be made; the rights cannot be given up.
pub(crate) fn run(work: impl FnOnce(&mut Parting) -> Result<()> + Send) -> Result<()> {
    let (alone, may_begin) = channel();
    let (parting, result) = std::thread::scope(|scope| {
        let tracing = std::thread::Builder::new().spawn_scoped(scope, move || {
            let mut parting = Parting::default();
            let tracer = nix::unistd::gettid().as_raw();
            // The calling thread sends nothing if it could not give up its rights.
            let result = match may_begin.recv() {
                Ok(()) => work(&mut parting),
                Err(_) => Ok(()),
            };
            (parting, tracer, result)
        });
        let tracing = tracing.context("No thread can be made")?;
        match seize::give_up_rights() {
            Ok(()) => drop(alone.send(())),
            Err(error) => {
                drop(alone);
                return Err(error.into());
            }
        }
        let ended = tracing.join();
        let (parting, tracer, result) =
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        await_end(tracer);
        anyhow::Ok((parting, result))
    })?;
    if let Some((mut client, event)) = parting.last {
        client.send(&event);
    }
    result
}

fn await_end(tid: i32) {
    let begun = Instant::now();
    let path = format!("/proc/self/task/{tid}");
    while Path::new(&path).exists() && begun.elapsed() < GONE_WITHIN {
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_parting_comes_when_the_thread_is_over() {
        let mut tracer = 0;
        run(|_| {
            tracer = nix::unistd::gettid().as_raw();
            Ok(())
        })
        .expect("done");
        assert_ne!(tracer, nix::unistd::gettid().as_raw());
        assert!(!Path::new(&format!("/proc/self/task/{tracer}")).exists());
        let error = run(|_| anyhow::bail!("why")).expect_err("passed on");
        assert_eq!(error.to_string(), "why");
    }
}
