//! Looks at processes of users: nobody knows how long one takes. A program's file may lie on a file server
//! that is away, or on a file system that its user serves herself; and who reads /proc/PID/maps, cmdline or
//! environ waits for the lock of that address space, which its threads can hold: one reads a page that never
//! comes (a file system of hers in a namespace of hers), another waits to map something.
//!
//! So each probe has a thread for itself, and its caller waits for a limited time only. A thread that does not
//! come back is left behind, and its process is not looked at again until it has. One that does waits for the next
//! probe: where there is more to do than CPUs, the kernel lets a thread that has slept run at once, but a new one
//! waits for its turn behind all others, and a program that is being started with it. Of each user's processes only
//! so many are looked at at a time, and only so many callers wait for that, so that she keeps no one but herself
//! waiting. What is behind no such lock (stat, status, statm, links) is read directly.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_image::sharing::Scans;
use whim_image::stay::StayReason;

use crate::locks::lock;
use crate::settings::CLIENTS_OF_USER_MAX;
use whim_machine::processes;

/// How many processes of one user are looked at at a time, those that are late among them.
const AT_A_TIME: usize = 2;
/// How many threads wait for probes that may come.
const IDLE_MAX: usize = 4;

/// What a thread is to do: a probe, and to say that it has come back.
type Work = Box<dyn FnOnce() + Send>;

/// How long a caller waits for a probe, and how many callers may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Others wait for it, too, and to them this user's processes are only some of many.
    Brief,
    /// Only the client that has asked for it waits. A process may have tens of thousands of mappings, and a user may
    /// start as many programs at once as she may have connections.
    Long,
}

impl Patience {
    fn duration(self) -> Duration {
        match self {
            Self::Brief => Duration::from_secs(1),
            Self::Long => Duration::from_secs(5),
        }
    }

    /// How many callers may wait for their turn.
    fn waiting_max(self) -> usize {
        match self {
            Self::Brief => 8,
            Self::Long => CLIENTS_OF_USER_MAX,
        }
    }
}

/// Why a process could not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum NotSeen {
    #[error("The process has ended")]
    Gone,
    #[error(
        "It cannot be looked at just now: its memory, its program or a file that it maps does not answer: the node has much to do, or a file server is away"
    )]
    Late,
    #[error(
        "It cannot be looked at just now: too many of this user's processes are being looked at; try again"
    )]
    Busy,
}

/// A process: the uid of its user, its pid, and its start time.
type Subject = (u32, i32, u64);

/// Looks at one user's processes.
#[derive(Debug, Default)]
struct OfUser {
    under_way: usize,
    waiting: usize,
    /// Processes whose probes nobody waits for any longer.
    late: Vec<Subject>,
}

/// The probes of processes that are under way, and what earlier ones have found.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Which processes had their memory for themselves at the last probe.
    sharing: Mutex<Scans>,
    users: Mutex<HashMap<u32, OfUser>>,
    /// Threads that wait for work, by where they take it.
    idle: Arc<Mutex<Vec<mpsc::Sender<Work>>>>,
    /// Rung when a probe has come back.
    back: Condvar,
}

/// A probe that is under way.
struct Turn {
    probes: Arc<Probes>,
    subject: Subject,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.probes.came_back(self.subject);
    }
}

impl Probes {
    /// The reason to stay if another process shares the memory of this one.
    pub(crate) fn shares(&self, pid: i32) -> Option<StayReason> {
        lock(&self.sharing).reason(pid)
    }

    /// The command line of a process, or its name in brackets if the command line cannot be read in time.
    pub(crate) fn command(self: &Arc<Self>, pid: i32) -> String {
        self.probe(pid, Patience::Brief, move || processes::command(pid))
            .unwrap_or_else(|_| processes::bracketed(pid))
    }

    /// Runs `probe` for this process, and returns what it finds.
    ///
    /// # Errors
    /// [`NotSeen`]
    pub(crate) fn probe<T: Send + 'static>(
        self: &Arc<Self>,
        pid: i32,
        patience: Patience,
        probe: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotSeen> {
        let its = processes::credentials(pid).map_err(|_| NotSeen::Gone)?;
        let stat = processes::stat(pid).map_err(|_| NotSeen::Gone)?;
        let subject = (its.uids[0], pid, stat.start_time);
        // Another thread of the runtime does meanwhile what else this one has to do.
        tokio::task::block_in_place(|| self.within_time(subject, patience, probe))
    }

    fn within_time<T: Send + 'static>(
        self: &Arc<Self>,
        subject: Subject,
        patience: Patience,
        probe: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotSeen> {
        let end = Instant::now() + patience.duration();
        self.begin(subject, patience, end)?;
        let turn = Turn {
            probes: Arc::clone(self),
            subject,
        };
        let (sender, found) = mpsc::channel();
        let begun = self.hand_out(Box::new(move || {
            // Dropped after the thread has sent, and if it panics.
            let _turn = turn;
            // Perhaps nobody waits for it any more.
            let _ = sender.send(probe());
        }));
        if begun.is_err() {
            return Err(NotSeen::Busy);
        }
        let left = end.saturating_duration_since(Instant::now());
        if let Ok(found) = found.recv_timeout(left) {
            return Ok(found);
        }
        let mut users = lock(&self.users);
        // The thread takes its process off the list only after it has sent.
        match found.try_recv() {
            Ok(found) => return Ok(found),
            Err(mpsc::TryRecvError::Disconnected) => {}
            Err(mpsc::TryRecvError::Empty) => {
                users.entry(subject.0).or_default().late.push(subject);
            }
        }
        Err(NotSeen::Late)
    }

    /// Has a thread do this: one that waits, or a new one.
    ///
    /// # Errors
    /// There is no room for one more thread.
    fn hand_out(&self, mut work: Work) -> std::io::Result<()> {
        while let Some(thread) = self.take_idle() {
            match thread.send(work) {
                Ok(()) => return Ok(()),
                // It has ended.
                Err(mpsc::SendError(back)) => work = back,
            }
        }
        let idle = Arc::clone(&self.idle);
        let new = std::thread::Builder::new().name("probe".into());
        new.spawn(move || serve(&idle, work)).map(drop)
    }

    fn take_idle(&self) -> Option<mpsc::Sender<Work>> {
        lock(&self.idle).pop()
    }

    /// Waits for a turn to probe.
    fn begin(&self, subject: Subject, patience: Patience, end: Instant) -> Result<(), NotSeen> {
        let mut users = lock(&self.users);
        let own = users.entry(subject.0).or_default();
        if own.late.contains(&subject) {
            return Err(NotSeen::Late);
        }
        // Late probes may hold this user's places for good, so nobody waits for such a place.
        if own.late.len() >= AT_A_TIME || own.waiting >= patience.waiting_max() {
            return Err(NotSeen::Busy);
        }
        own.waiting += 1;
        loop {
            let own = users.entry(subject.0).or_default();
            let left = end.saturating_duration_since(Instant::now());
            if own.under_way < AT_A_TIME || left.is_zero() {
                own.waiting -= 1;
                let turn = own.under_way < AT_A_TIME;
                own.under_way += usize::from(turn);
                return if turn { Ok(()) } else { Err(NotSeen::Busy) };
            }
            let waited = self.back.wait_timeout(users, left);
            users = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn came_back(&self, subject: Subject) {
        let mut users = lock(&self.users);
        if let Some(own) = users.get_mut(&subject.0) {
            own.under_way = own.under_way.saturating_sub(1);
            own.late.retain(|late| *late != subject);
            if own.under_way == 0 && own.waiting == 0 {
                users.remove(&subject.0);
            }
        }
        self.back.notify_all();
    }
}

/// A thread of probes. It ends if enough others wait, or if a probe panics.
fn serve(idle: &Mutex<Vec<mpsc::Sender<Work>>>, first: Work) {
    first();
    let (sender, work) = mpsc::channel();
    loop {
        let mut waiting = lock(idle);
        if waiting.len() >= IDLE_MAX {
            return;
        }
        waiting.push(sender.clone());
        drop(waiting);
        // Its sender is ours, too: it ends with the daemon.
        match work.recv() {
            Ok(next) => next(),
            Err(mpsc::RecvError) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    /// A probe that comes back when the sender is dropped.
    fn held_up(probes: &Arc<Probes>, subject: Subject) -> mpsc::Sender<()> {
        let (hold, held) = mpsc::channel::<()>();
        let probe = move || held.recv().is_ok();
        assert_eq!(
            probes.within_time(subject, Patience::Brief, probe),
            Err(NotSeen::Late)
        );
        hold
    }

    fn sees(probes: &Arc<Probes>, subject: Subject) -> Result<i32, NotSeen> {
        probes.within_time(subject, Patience::Long, || 7)
    }

    fn comes_back(probes: &Arc<Probes>, subject: Subject) {
        let end = Instant::now() + Duration::from_secs(10);
        while sees(probes, subject) != Ok(7) {
            assert!(Instant::now() < end, "{subject:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_is_held_up_is_left_behind_until_it_comes_back() {
        let probes = Arc::new(Probes::default());
        let (slow, other) = ((1, 10, 100), (1, 11, 100));
        let hold = held_up(&probes, slow);
        let begun = Instant::now();
        assert_eq!(sees(&probes, slow), Err(NotSeen::Late));
        assert!(begun.elapsed() < LONG / 2, "nobody waits for it once more");
        assert_eq!(sees(&probes, other), Ok(7));
        drop(hold);
        comes_back(&probes, slow);
    }

    #[test]
    fn a_user_keeps_nobody_else_waiting() {
        let probes = Arc::new(Probes::default());
        let holds = [0, 1].map(|pid| held_up(&probes, (1, pid, 0)));
        assert_eq!(holds.len(), AT_A_TIME);
        let begun = Instant::now();
        assert_eq!(sees(&probes, (1, 2, 0)), Err(NotSeen::Busy));
        assert!(
            begun.elapsed() < LONG / 2,
            "nobody waits for a place of hers"
        );
        assert_eq!(sees(&probes, (2, 2, 0)), Ok(7));
        drop(holds);
        comes_back(&probes, (1, 2, 0));
        comes_back(&probes, (1, 0, 0));
    }

    #[test]
    fn many_who_ask_take_turns() {
        let probes = Arc::new(Probes::default());
        let most = Arc::new(Mutex::new((0usize, 0usize)));
        std::thread::scope(|scope| {
            for pid in 0..100 {
                let (probes, most) = (Arc::clone(&probes), Arc::clone(&most));
                scope.spawn(move || {
                    let probe = move || {
                        let mut now = lock(&most);
                        now.0 += 1;
                        now.1 = now.1.max(now.0);
                        drop(now);
                        std::thread::yield_now();
                        lock(&most).0 -= 1;
                    };
                    assert_eq!(
                        probes.within_time((1, pid, 0), Patience::Long, probe),
                        Ok(())
                    );
                });
            }
        });
        assert!(lock(&most).1 <= AT_A_TIME, "{:?}", lock(&most));
    }

    #[test]
    fn a_probe_that_panics_keeps_no_place() {
        let probes = Arc::new(Probes::default());
        for _ in 0..=AT_A_TIME {
            let found =
                probes.within_time((1, 1, 0), Patience::Long, || -> i32 { panic!("as a test") });
            assert_eq!(found, Err(NotSeen::Late));
        }
        assert_eq!(sees(&probes, (1, 1, 0)), Ok(7));
    }
}
