//! How long a return may take.
//!
//! Home calls a guest back ([`ToGuest::Freeze`](crate::message::ToGuest)), but its host may be
//! unable or unwilling to comply: it may go on sending calls, or send the image so slowly that it
//! never ends. So a return has to make progress: [`RECALL_BYTES_MIN`] bytes in a lease. As long as
//! it does, it may take any length of time. If it does not, it is *cut*: no call is executed any
//! more, and the program ends as if its host had been lost.
//!
//! Only bytes that were not here before count. A return that fails and begins anew makes progress
//! only once it has come further than the try before; otherwise a host could send the same
//! beginning again and again.
//!
//! Once a host was *removed* from the cluster, none of its calls are executed, whether or not its
//! guest stops. (A call that is not executed is made at home, when the guest is there.) Home's own
//! stalls do not excuse such a host.

use crate::lease::STALL;
use std::time::Duration;

/// Bytes of its image that a guest must bring home in a lease, or fewer if no more are left.
pub const RECALL_BYTES_MIN: u64 = 256 << 10;
/// Time that a return has in addition to a lease, because it begins by stopping the threads and
/// capturing their state.
pub const RECALL_GRACE: Duration = Duration::from_secs(1);
/// The same for each mapping and each thread with which the process has left: tens of thousands of mappings, or
/// thousands of threads, take seconds on a crowded machine.
pub const RECALL_PER_MAPPING: Duration = Duration::from_micros(50);
pub const RECALL_PER_THREAD: Duration = Duration::from_millis(1);
/// Used in place of the lease where there is none.
pub const RECALL_UNLEASED: Duration = Duration::from_secs(30);

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The guest is told to come home.
    Called,
    /// Its host is no longer a member of the cluster.
    Removed,
    /// So many bytes of its image have arrived in this try; bytes that came twice are counted once.
    Came { total: u64 },
    /// The guest could not leave, and goes on where it is.
    Failed,
    /// The guest is at another host now.
    Left,
    /// The whole image is here: nothing more is needed from the host.
    Whole,
    /// We did not listen for this long.
    Stalled { duration: Duration },
    /// For this long somebody kept home itself from working, by freezing the control group of its half. That
    /// is no fault of the host's, and nothing that a host can bring about.
    Held { duration: Duration },
    /// Time passes.
    Tick,
}

/// The return is given up, and the program is to be ended. `idle` is how long there was no
/// progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub idle: Duration,
}

/// A return that is under way, or one that may become necessary.
#[derive(Clone, Copy, Debug)]
pub struct Recall {
    limit: Duration,
    /// When it last made progress; `None` if no return is under way.
    since: Option<Duration>,
    /// New bytes that have come since then.
    came: u64,
    /// How far the best of its tries has come, in bytes.
    furthest: u64,
    /// By how much `since` was moved forward because of our own stalls.
    excused: Duration,
    is_removed: bool,
    is_cut: bool,
}

impl Recall {
    #[must_use]
    pub fn new(lease: Option<Duration>) -> Self {
        let limit = lease.unwrap_or(RECALL_UNLEASED) + RECALL_GRACE;
        Self {
            limit,
            since: None,
            came: 0,
            furthest: 0,
            excused: Duration::ZERO,
            is_removed: false,
            is_cut: false,
        }
    }

    /// For a process with so much to be captured when it left. (What its host says that it has now is no
    /// reason to wait.)
    #[must_use]
    pub fn of_size(mut self, mappings: usize, threads: usize) -> Self {
        let times = |each: Duration, count: usize| {
            each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
        };
        self.limit += times(RECALL_PER_MAPPING, mappings) + times(RECALL_PER_THREAD, threads);
        self
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Duration, event: Event) -> Option<Cut> {
        match event {
            Event::Called => self.begin(now),
            Event::Removed => {
                self.is_removed = true;
                self.begin(now);
            }
            Event::Came { total } => self.came(now, total),
            // A host that was removed is given no second lease for trying again.
            Event::Failed if self.is_removed => {}
            Event::Failed | Event::Whole => self.since = None,
            Event::Left => {
                self.since = None;
                self.is_removed = false;
            }
            Event::Stalled { duration } => self.stalled(now, duration),
            Event::Held { .. } if self.is_removed => {}
            Event::Held { duration } => {
                self.since = self.since.map(|since| (since + duration).min(now));
            }
            Event::Tick => return self.tick(now),
        }
        None
    }

    fn begin(&mut self, now: Duration) {
        if self.since.is_none() {
            (self.since, self.came, self.excused) = (Some(now), 0, Duration::ZERO);
            self.furthest = 0;
        }
    }

    fn came(&mut self, now: Duration, total: u64) {
        if self.since.is_none() {
            return;
        }
        self.came += total.saturating_sub(self.furthest);
        self.furthest = self.furthest.max(total);
        if self.came >= RECALL_BYTES_MIN {
            (self.since, self.came, self.excused) = (Some(now), 0, Duration::ZERO);
        }
    }

    /// A host may itself keep us so busy that we hardly listen. So our stalls excuse it for no more
    /// than `limit` in all, until it makes progress again.
    fn stalled(&mut self, now: Duration, duration: Duration) {
        if let Some(since) = self.since
            && !self.is_removed
            && duration > STALL
        {
            let excuse = duration.min(self.limit.saturating_sub(self.excused));
            self.excused += excuse;
            self.since = Some((since + excuse).min(now));
        }
    }

    fn tick(&mut self, now: Duration) -> Option<Cut> {
        let idle = now.saturating_sub(self.since?);
        self.is_cut |= idle > self.limit;
        self.is_cut.then_some(Cut { idle })
    }

    /// Whether calls of this host are executed.
    #[must_use]
    pub fn may_execute(&self) -> bool {
        !self.is_removed && !self.is_cut
    }

    /// Whether its host was removed from the cluster.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// How long nothing has to be done.
    #[must_use]
    pub fn patience(&self, now: Duration) -> Duration {
        self.since.map_or(Duration::MAX, |since| {
            (since + self.limit).saturating_sub(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);
    const LIMIT: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn called() -> Recall {
        let mut recall = Recall::new(Some(LEASE));
        assert_eq!(
            recall.handle(at(900_000), Event::Tick),
            None,
            "nobody called"
        );
        assert_eq!(recall.handle(at(0), Event::Called), None);
        recall
    }

    #[test]
    fn a_return_that_gets_on_takes_its_time_and_one_that_does_not_is_cut() {
        let mut recall = called();
        // 10 GB at 10 MB/s.
        for second in 1..=1000 {
            let now = Duration::from_secs(second);
            let total = second * 10_000_000;
            recall.handle(now, Event::Came { total });
            assert_eq!(recall.handle(now, Event::Tick), None);
        }
        let last = Duration::from_secs(1000);
        assert_eq!(recall.handle(last + LIMIT, Event::Tick), None);
        let late = last + LIMIT + at(1);
        let idle = LIMIT + at(1);
        assert_eq!(recall.handle(late, Event::Tick), Some(Cut { idle }));
        assert!(!recall.may_execute());
        // There is no way back.
        recall.handle(late, Event::Came { total: 1 << 40 });
        assert!(recall.handle(late, Event::Tick).is_some() && !recall.may_execute());
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let mut recall = called();
        for second in 1..=3 {
            let now = Duration::from_secs(second);
            recall.handle(now, Event::Came { total: second });
            assert_eq!(recall.handle(now, Event::Tick), None);
        }
        assert!(recall.handle(at(3001), Event::Tick).is_some());
        let mut recall = called();
        let total = RECALL_BYTES_MIN;
        recall.handle(at(2999), Event::Came { total: total - 1 });
        recall.handle(at(3000), Event::Came { total });
        assert_eq!(recall.handle(at(6000), Event::Tick), None);
        assert!(recall.handle(at(6001), Event::Tick).is_some());
    }

    #[test]
    fn a_return_that_begins_again_has_to_come_further() {
        let total = 2 * RECALL_BYTES_MIN;
        let mut recall = called();
        recall.handle(at(0), Event::Removed);
        let mut again = |ms, total| {
            recall.handle(at(ms), Event::Came { total });
            recall.handle(at(ms), Event::Failed);
            recall.handle(at(ms), Event::Called);
            recall.handle(at(ms), Event::Tick)
        };
        assert_eq!(again(2000, total), None);
        assert_eq!(again(3500, total), None);
        // So far it has made progress at 2 seconds only, and now it does again.
        assert_eq!(again(5000, total + RECALL_BYTES_MIN), None);
        assert_eq!(again(6500, total + RECALL_BYTES_MIN), None);
        assert_eq!(again(8000, total), None);
        assert!(again(8001, total + RECALL_BYTES_MIN).is_some());
        // If a member could not let the guest go and is asked again later, that is a new return.
        let mut recall = called();
        recall.handle(at(1), Event::Came { total });
        recall.handle(at(2), Event::Failed);
        recall.handle(at(90_000), Event::Called);
        recall.handle(at(92_000), Event::Came { total });
        assert_eq!(recall.handle(at(95_000), Event::Tick), None);
    }

    #[test]
    fn our_own_stalls_are_excused_once_and_not_to_a_host_that_was_removed() {
        let mut recall = called();
        let duration = at(60_000);
        recall.handle(duration, Event::Stalled { duration });
        assert_eq!(recall.handle(at(6000), Event::Tick), None);
        assert!(recall.handle(at(6001), Event::Tick).is_some());
        let mut recall = called();
        for tenth in 1..=60 {
            let now = at(tenth * 150);
            let duration = at(150);
            recall.handle(now, Event::Stalled { duration });
        }
        assert!(
            recall.handle(at(9000), Event::Tick).is_some(),
            "it is kept busy"
        );
        let mut recall = Recall::new(Some(LEASE));
        recall.handle(at(0), Event::Removed);
        recall.handle(at(2000), Event::Stalled { duration: at(2000) });
        assert!(recall.handle(at(3001), Event::Tick).is_some());
    }

    #[test]
    fn what_holds_home_itself_is_excused_however_long() {
        let mut recall = called();
        let duration = at(60_000);
        recall.handle(at(61_000), Event::Held { duration });
        assert_eq!(recall.handle(at(63_000), Event::Tick), None);
        assert!(recall.handle(at(63_001), Event::Tick).is_some());
        let mut recall = Recall::new(Some(LEASE));
        recall.handle(at(0), Event::Removed);
        recall.handle(at(3001), Event::Held { duration });
        assert!(recall.handle(at(3001), Event::Tick).is_some());
    }

    #[test]
    fn calls_of_a_host_that_was_removed_are_not_executed() {
        let mut recall = called();
        assert!(recall.may_execute(), "the return may fail");
        recall.handle(at(2000), Event::Removed);
        assert!(!recall.may_execute() && recall.is_removed());
        recall.handle(at(2500), Event::Failed);
        recall.handle(at(2600), Event::Called);
        assert_eq!(recall.handle(at(3000), Event::Tick), None);
        assert!(recall.handle(at(3001), Event::Tick).is_some());
        let mut recall = called();
        recall.handle(at(1), Event::Failed);
        assert_eq!(recall.handle(at(90_000), Event::Tick), None);
        recall.handle(at(90_000), Event::Removed);
        recall.handle(at(90_001), Event::Left);
        assert_eq!(recall.handle(at(900_000), Event::Tick), None);
        assert!(recall.may_execute());
    }

    #[test]
    fn who_has_more_to_be_captured_has_more_time() {
        let lease = Duration::from_secs(2);
        let mut recall = Recall::new(Some(lease)).of_size(60_000, 1000);
        recall.handle(Duration::ZERO, Event::Called);
        let limit = lease + RECALL_GRACE + Duration::from_secs(4);
        assert_eq!(recall.handle(limit, Event::Tick), None);
        let late = limit + Duration::from_millis(1);
        assert!(recall.handle(late, Event::Tick).is_some());
    }

    #[test]
    fn without_a_lease_a_return_still_ends() {
        let mut recall = Recall::new(None);
        recall.handle(at(0), Event::Removed);
        let limit = RECALL_UNLEASED + RECALL_GRACE;
        assert_eq!(recall.handle(limit, Event::Tick), None);
        assert!(recall.handle(limit + at(1), Event::Tick).is_some());
    }
}
