//! Threads of a traced process that was killed.
//!
//! The kernel does not report the end of a process's first thread before all other threads have
//! been reaped, and to reap them is the tracer's task. So a tracer that waits for the first thread
//! alone would wait for ever. Of the first process of a pid namespace it is the last thread that does
//! not end before: in its end it waits until its namespace is empty.

use crate::ptrace::Tid;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most stops come within microseconds, while we yield to the thread that is to stop.
const YIELDS: u32 = 200;
/// After that, each pause is the time waited so far, divided by this.
const PART: u32 = 16;
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// How often to check whether the process is dead.
const LOOK: Duration = Duration::from_millis(20);

/// The pauses in a wait for one thread.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    looked: Instant,
    yields: u32,
}

impl Patience {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
            yields: 0,
        }
    }

    /// Lets some time pass.
    pub(crate) fn pause(&mut self, tid: Tid) {
        if self.yields < YIELDS {
            self.yields += 1;
            std::thread::yield_now();
            return;
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            take_note_of_others(tid);
        }
        std::thread::sleep((self.begun.elapsed() / PART).min(PAUSE_MAX));
    }
}

/// Whether this thread has ended and waits to be reaped by its tracer, or is in the middle of its end.
fn is_dead(task: &Path) -> bool {
    /// include/linux/sched.h
    const PF_EXITING: u32 = 0x4;
    let text = fs::read_to_string(task.join("stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    let Some((_, rest)) = text.rsplit_once(") ") else {
        return false;
    };
    let mut words = rest.split(' ');
    if matches!(words.next(), Some("Z" | "X")) {
        return true;
    }
    // Field 9; the state is field 3.
    let flags = words.nth(5).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// If all threads of the process of this thread have ended, or are ending, reaps the others. While one of
/// them lives, the process is not dead: a first thread may end before others.
pub fn take_note_of_others(thread: Tid) {
    let process = Path::new("/proc").join(thread.to_string());
    if !is_dead(&process) {
        return;
    }
    let entries = fs::read_dir(process.join("task"));
    let tasks: Vec<_> = entries.into_iter().flatten().flatten().collect();
    if !tasks.iter().all(|task| is_dead(&task.path())) {
        return;
    }
    for task in tasks {
        let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(tid) = tid.filter(|tid| *tid != thread) {
            forget(tid);
        }
    }
}

/// Reaps a thread that has ended.
fn forget(tid: Tid) {
    let Ok(id) = libc::id_t::try_from(tid) else {
        return;
    };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // JUSTIFICATION: nix's waitid refuses __WALL, without which threads are not found.
    // SAFETY: the kernel accepts a null pointer where nobody wants to know how it ended.
    let _ = unsafe { libc::waitid(libc::P_PID, id, std::ptr::null_mut(), flags) };
}

#[cfg(test)]
mod tests {
    use crate::ptrace::{Options, Running, Waited};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::time::Duration;

    const ROLE: &str = "WHIM_TEST_SLEEPS";

    /// Not a test of its own: the program of the test below, which has at least two threads.
    #[test]
    fn sleeps_if_told_to() {
        if std::env::var_os(ROLE).is_some() {
            std::thread::sleep(Duration::from_secs(60));
        }
    }

    fn threads(child: &Child) -> Vec<i32> {
        let entries = std::fs::read_dir(format!("/proc/{}/task", child.id()));
        let entries = entries.into_iter().flatten().flatten();
        let mut tids: Vec<i32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        tids
    }

    #[test]
    fn the_first_thread_of_a_killed_process_is_not_waited_for_in_vain() {
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "dead::tests::sleeps_if_told_to"])
            .env(ROLE, "1")
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        while threads(&child).len() < 2 {
            std::thread::yield_now();
        }
        let leader = child.id().cast_signed();
        let (sender, seen) = mpsc::channel();
        let (kill, killed) = mpsc::channel();
        let tids = threads(&child);
        std::thread::spawn(move || {
            for tid in tids {
                Running::seize(tid, Options::NONE).expect("seized");
            }
            kill.send(()).expect("heard");
            sender.send(Running::assume(leader).wait())
        });
        killed.recv().expect("seized");
        child.kill().expect("killed");
        let end = seen.recv_timeout(Duration::from_secs(10));
        // Its tracer may have reaped it already.
        let _ = child.wait();
        assert_eq!(
            end.expect("its end is seen"),
            Ok(Waited::Signaled {
                tid: leader,
                signal: libc::SIGKILL,
                core: false
            })
        );
    }
}
