//! A line that is kept alive while its owner does something long.
//!
//! Nothing of the work knows of the line. Another thread has the line until the work is done: it reads
//! what comes, makes a lost connection again, and sends heartbeats. It vouches for the work only as long
//! as the work gets on ([`whim_sys::pulse`]), so that a hang is found out one patience later than without
//! it.
//!
//! Rejected: heartbeats from the work's own loops. All of them would have to be given the line, those of
//! the kernel (60,000 mappings unmapped by one call, read from one file of /proc) cannot be, and a
//! machine that is short of CPU stretches any piece of work.

use crate::line::Line;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use whim_sys::pulse;

/// With fewer pieces (mappings and threads) than this, work takes a few milliseconds, even on a crowded
/// machine, and is not worth a thread.
const FEW: usize = 500;
/// The keeper encrypts a few small frames; its stack need not be larger. In bytes.
const STACK: usize = 256 << 10;

/// How a line is kept meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Time between two heartbeats.
    pub every: Duration,
    /// Longest time for which the work may show no sign of life and is vouched for all the same.
    pub patience: Duration,
}

/// Set when the work is done, also by a panic.
#[derive(Default)]
struct Done {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    fn set(&self) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for the end of the work; true if it has come within this time.
    fn within(&self, time: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is, time, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

struct SetAtEnd<'a>(&'a Done);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Does `work` on so many pieces (mappings and threads), and keeps `line` alive meanwhile; `beat` queues a
/// heartbeat on it. If no thread is to be had, the work is done all the same.
pub fn meanwhile<T>(
    line: &mut Line,
    pieces: usize,
    rhythm: Rhythm,
    mut beat: impl FnMut(&mut Line) + Send,
    work: impl FnOnce() -> T,
) -> T {
    // Trap: silence-during-long-work
    if pieces < FEW {
        return work();
    }
    let done = Done::default();
    std::thread::scope(|scope| {
        let keeper = Builder::new().name("keeper".into()).stack_size(STACK);
        let kept = keeper.spawn_scoped(scope, || keep(line, rhythm, &mut beat, &done));
        if let Err(error) = kept {
            tracing::warn!(%error, "no heartbeats during long work: no thread is to be had");
        }
        let _end = SetAtEnd(&done);
        work()
    })
}

fn keep(line: &mut Line, rhythm: Rhythm, beat: &mut impl FnMut(&mut Line), done: &Done) {
    let (mut seen, mut since) = (pulse::count(), Instant::now());
    // The owner's last heartbeat may be almost as old as it may get, and a machine that is short of CPU lets this
    // thread wait as well: it beats twice as often as somebody who waits for nothing else.
    let mut next = rhythm.every / 4;
    let mut beaten = Instant::now();
    loop {
        let is_done = done.within(next);
        next = rhythm.every / 2;
        // What follows the work may be as long again.
        if is_done && beaten.elapsed() < rhythm.every / 4 {
            return;
        }
        let now = pulse::count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() <= rhythm.patience {
            if line.is_connected() {
                beat(line);
            }
            line.keep();
            beaten = Instant::now();
        }
        if is_done {
            return;
        }
    }
}
