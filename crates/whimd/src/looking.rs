//! Looks at what belongs to users: nobody knows how long one takes. A program's file may lie on a file server
//! that is away, or on a file system that its user serves herself.
//!
//! So each look has a thread of its own, and who waits for it does so for a while only. A thread that does not
//! come back is left behind, and its process is not looked at again until it has; of each user only so many
//! are. (Reading a command line cannot be held up so: the kernel takes it from anonymous memory alone, since
//! CVE-2018-1120.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use whim_image::sharing::Looks;
use whim_image::stay::StayReason;

/// So long a look may take; the more of the same user's are late, the less.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many looks at processes of one user may be late at the same time.
const LATE_MAX: usize = 16;

/// Whose process it is, its number, and when it began.
pub type Subject = (u32, i32, u64);

/// Looks at processes, those that are under way and what is known of earlier ones.
#[derive(Debug, Default)]
pub struct Looking {
    /// Who had its memory for itself, at the last look.
    sharing: Mutex<Looks>,
    /// Looks that were not waited for any longer.
    late: Mutex<HashMap<Subject, usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic interrupted is still a whole value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Looking {
    /// Whether somebody else has the memory of this process.
    pub fn shares(&self, pid: i32) -> Option<StayReason> {
        lock(&self.sharing).reason(pid)
    }

    /// What `look` finds; `None`: it does not come back in time, or an earlier one has not.
    pub fn within_time<T: Send + 'static>(
        self: &Arc<Self>,
        subject: Subject,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let patience = self.patience(subject)?;
        let (sender, found) = mpsc::channel();
        let looking = Arc::clone(self);
        std::thread::Builder::new()
            .name("look".into())
            .spawn(move || {
                // Nobody may wait for it any more.
                let _ = sender.send(look());
                looking.came_back(subject);
            })
            .ok()?;
        if let Ok(found) = found.recv_timeout(patience) {
            return Some(found);
        }
        let mut late = lock(&self.late);
        // It takes itself off the list after it has sent.
        if let Ok(found) = found.try_recv() {
            return Some(found);
        }
        *late.entry(subject).or_default() += 1;
        None
    }

    /// How long this one is waited for, if it is looked at now.
    fn patience(&self, subject: Subject) -> Option<Duration> {
        let late = lock(&self.late);
        if late.contains_key(&subject) {
            return None;
        }
        let of_user = late.iter().filter(|((uid, ..), _)| *uid == subject.0);
        let count: usize = of_user.map(|(_, count)| count).sum();
        let share = u32::try_from(count).ok()?.checked_add(1)?;
        (count < LATE_MAX).then(|| PATIENCE / share)
    }

    fn came_back(&self, subject: Subject) {
        let mut late = lock(&self.late);
        if let Some(count) = late.get_mut(&subject) {
            *count -= 1;
            if *count == 0 {
                late.remove(&subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Looks that come back when the sender is dropped.
    fn held_up(looking: &Arc<Looking>, subject: Subject) -> mpsc::Sender<()> {
        let (hold, held) = mpsc::channel::<()>();
        assert_eq!(
            looking.within_time(subject, move || held.recv().is_ok()),
            None
        );
        hold
    }

    fn comes_back(looking: &Arc<Looking>, subject: Subject) {
        let end = Instant::now() + Duration::from_secs(10);
        while looking.within_time(subject, || 7) != Some(7) {
            assert!(Instant::now() < end, "{subject:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_is_held_up_is_left_behind_until_it_comes_back() {
        let looking = Arc::new(Looking::default());
        let (slow, other) = ((1, 10, 100), (1, 11, 100));
        let hold = held_up(&looking, slow);
        let begun = Instant::now();
        assert_eq!(
            looking.within_time(slow, || 7),
            None,
            "it is not tried again"
        );
        assert!(
            begun.elapsed() < PATIENCE / 2,
            "nobody waits for it once more"
        );
        assert_eq!(looking.within_time(other, || 7), Some(7));
        drop(hold);
        comes_back(&looking, slow);
    }

    #[test]
    fn a_user_has_but_so_many_and_nobody_else_feels_it() {
        let looking = Arc::new(Looking::default());
        let count = i32::try_from(LATE_MAX).expect("small");
        let holds: Vec<_> = (0..count)
            .map(|pid| held_up(&looking, (1, pid, 0)))
            .collect();
        assert_eq!(looking.within_time((1, count, 0), || 7), None);
        assert_eq!(looking.patience((2, count, 0)), Some(PATIENCE));
        assert_eq!(looking.within_time((2, count, 0), || 7), Some(7));
        drop(holds);
        comes_back(&looking, (1, count, 0));
        assert!(lock(&looking.late).is_empty() || looking.patience((1, count, 0)).is_some());
    }
}
