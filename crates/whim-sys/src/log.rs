//! Standard error for who must not wait: supervisors send heartbeats, and their logs are files.
//!
//! Even a write into the page cache waits while a file system is frozen or commits much of others'. So lines are
//! written by a thread of their own, which is there only as long as any wait: a thread that stayed would keep the rights
//! with which it began.

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait for the disk; further ones are left out.
const MOST_WAITING: usize = 1024;
/// How long the end of a process waits for its last lines.
const LAST_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    /// A thread takes the lines, one by one, until there are none.
    is_served: bool,
    left_out: usize,
}

#[derive(Debug)]
struct Log {
    waiting: Mutex<Waiting>,
    /// Rung when nothing waits any more.
    written: Condvar,
}

static LOG: Log = Log::new();

impl Log {
    const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                lines: VecDeque::new(),
                is_served: false,
                left_out: 0,
            }),
            written: Condvar::new(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line; true if a thread has to be made for it.
    fn take(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting();
        if waiting.lines.len() >= MOST_WAITING {
            waiting.left_out += 1;
            return false;
        }
        waiting.lines.push_back(line.to_vec());
        !std::mem::replace(&mut waiting.is_served, true)
    }

    /// The next line; with the last one this thread's service ends.
    fn next(&self) -> Option<Vec<u8>> {
        let mut waiting = self.waiting();
        let left_out = std::mem::take(&mut waiting.left_out);
        if left_out > 0 {
            return Some(format!("{left_out} lines are left out: the disk stood still\n").into());
        }
        let line = waiting.lines.pop_front();
        if line.is_none() {
            waiting.is_served = false;
            self.written.notify_all();
        }
        line
    }

    fn serve(&self, mut output: impl Write) {
        while let Some(line) = self.next() {
            // Nobody can be told that the log cannot be written.
            let _ = output.write_all(&line);
        }
    }

    /// Waits until all is written, or for this time.
    fn settle(&self, within: Duration) {
        let still = |waiting: &mut Waiting| waiting.is_served;
        drop(
            self.written
                .wait_timeout_while(self.waiting(), within, still),
        );
    }
}

/// What is written to this becomes one line of the log.
#[derive(Debug)]
pub struct Line;

/// Where the next line goes.
#[must_use]
pub fn line() -> Line {
    Line
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if LOG.take(text) {
            let thread = std::thread::Builder::new().name("log".into());
            if deaf(|| thread.spawn(|| LOG.serve(io::stderr()))).is_err() {
                // Without a thread it is better to wait than to lack a line.
                LOG.serve(io::stderr());
            }
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a thread that hears no signal: it would inherit what the calling thread hears, and take away what is for that
/// one. A thread that traces waits for SIGCHLD, and waited in vain.
pub fn deaf<T>(start: impl FnOnce() -> T) -> T {
    let mut before = SigSet::empty();
    let all = SigSet::all();
    let blocked = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&all), Some(&mut before));
    let started = start();
    if blocked.is_ok() {
        // As it was: that can be done if the other could.
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
    started
}

/// Waits, at the end of a process, for what is still to be written; not for long, if the disk stands still.
pub fn settle() {
    LOG.settle(LAST_WITHIN);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A log whose disk takes nothing until it is read.
    fn stuck(log: &'static Log) -> UnixStream {
        let (disk, reader) = UnixStream::pair().expect("a pair");
        disk.set_nonblocking(true).expect("set");
        while (&disk).write(&[0; 4096]).is_ok() {}
        disk.set_nonblocking(false).expect("set");
        assert!(log.take(b"first\n"));
        std::thread::spawn(move || log.serve(disk));
        while !log.waiting().lines.is_empty() {
            std::thread::yield_now();
        }
        reader
    }

    fn read_all(mut reader: UnixStream) -> String {
        let mut all = Vec::new();
        io::Read::read_to_end(&mut reader, &mut all).expect("read");
        let text = all.into_iter().filter(|byte| *byte != 0).collect();
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn lines_wait_for_the_disk_and_nobody_waits_for_them() {
        static STUCK: Log = Log::new();
        let reader = stuck(&STUCK);
        assert!(!STUCK.take(b"second\n"), "a thread is there");
        STUCK.settle(Duration::from_millis(1));
        assert!(STUCK.waiting().is_served, "the disk stands still");
        assert_eq!(read_all(reader), "first\nsecond\n");
        STUCK.settle(LAST_WITHIN);
        assert!(STUCK.take(b"third\n"), "the thread has ended");
    }

    #[test]
    fn a_thread_that_is_started_deaf_takes_no_signal() {
        let hears = || {
            let mut mask = SigSet::empty();
            pthread_sigmask(SigmaskHow::SIG_BLOCK, None, Some(&mut mask)).expect("asked");
            !mask.contains(nix::sys::signal::Signal::SIGCHLD)
        };
        assert!(hears());
        let thread = deaf(|| std::thread::spawn(hears));
        assert!(!thread.join().expect("ended"), "it would take SIGCHLD");
        assert!(hears(), "it is as it was");
    }

    #[test]
    fn what_is_left_out_is_counted() {
        static FULL: Log = Log::new();
        let reader = stuck(&FULL);
        for _ in 0..2 * MOST_WAITING {
            FULL.take(b"more\n");
        }
        let text = read_all(reader);
        let more = text.lines().filter(|line| *line == "more").count();
        let told = format!("{} lines are left out", 2 * MOST_WAITING - more);
        assert!(text.contains(&told), "{told}");
        assert_eq!(more, MOST_WAITING);
    }
}
