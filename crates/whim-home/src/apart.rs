//! The tracer's thread, and what is said once it is over.
//!
//! Threads that run can be let go only by the end of the thread that traces them. So the supervisor's work
//! is done by a thread of its own; and whoever waits for a move that did not come about hears of it when
//! nothing is traced any more, and a new one may begin.

use crate::client::Client;
use crate::taking;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use whim_journey::job::Event;

/// The kernel lets go what a thread has traced right after it has woken those who wait for its end.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// What is to be said when the tracer's thread is over.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    last: Option<(Client, Event)>,
}

impl Parting {
    pub(crate) fn say(&mut self, client: Client, event: Event) {
        self.last = Some((client, event));
    }
}

/// Has `work` done by a thread of its own, and waits until that is over. The calling thread gives up its
/// rights before: what it could do, others of this process could have it do.
///
/// # Errors
/// Those of `work`; no thread can be made.
pub(crate) fn run(work: impl FnOnce(&mut Parting) -> Result<()> + Send) -> Result<()> {
    let (alone, may_begin) = channel();
    let (parting, result) = std::thread::scope(|scope| {
        let traced = std::thread::Builder::new().spawn_scoped(scope, move || {
            let mut parting = Parting::default();
            let tracer = nix::unistd::gettid().as_raw();
            // The other side says nothing if it could not give up its rights.
            let result = match may_begin.recv() {
                Ok(()) => work(&mut parting),
                Err(_) => Ok(()),
            };
            (parting, tracer, result)
        });
        let traced = traced.context("No thread can be made")?;
        match taking::give_up_rights() {
            Ok(()) => drop(alone.send(())),
            Err(error) => {
                drop(alone);
                return Err(error.into());
            }
        }
        let ended = traced.join();
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
