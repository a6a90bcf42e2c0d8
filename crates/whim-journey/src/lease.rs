//! Home's side of the lease: when home sends a heartbeat, and when it gives a host up.

use std::time::Duration;

/// Longest time between two heartbeats, of either side.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(1);
/// If a turn of a loop takes longer than this, or a sleep lasts so much longer than it should, that
/// is a stall of our own (a slow disk, a crowded processor), for which the other side is not to
/// blame.
pub const STALL: Duration = Duration::from_millis(100);

/// Time between two heartbeats.
#[must_use]
pub fn heartbeat_interval(lease: Option<Duration>) -> Duration {
    lease.map_or(HEARTBEAT_MAX, |lease| (lease / 10).min(HEARTBEAT_MAX))
}

/// When the other side counts as last heard of, after a time in which we did not listen.
pub(crate) fn later(heard: Duration, stalled: Duration, now: Duration) -> Duration {
    if stalled > STALL {
        (heard + stalled).min(now)
    } else {
        heard
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The host was last heard of at this time.
    Heard {
        at: Duration,
    },
    /// We did not listen for this long. To be reported after the last `Heard` from before that
    /// time.
    Stalled {
        duration: Duration,
    },
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Beat,
    /// The host is lost (T2). It has stopped the guest after a third of that time (T1).
    GiveUp {
        silent: Duration,
    },
}

/// Home's watch over one host.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    lease: Option<Duration>,
    heard: Duration,
    beaten: Duration,
}

impl Watch {
    #[must_use]
    pub fn new(now: Duration, lease: Option<Duration>) -> Self {
        Self {
            lease,
            heard: now,
            beaten: now,
        }
    }

    /// Begins to watch another host.
    pub fn begin(&mut self, now: Duration) {
        *self = Self::new(now, self.lease);
    }

    /// Handles an event; returns at most two actions.
    pub fn handle(&mut self, now: Duration, event: Event) -> impl Iterator<Item = Action> + use<> {
        let mut actions = [None, None];
        match event {
            Event::Heard { at } => self.heard = self.heard.max(at),
            Event::Stalled { duration } => self.heard = later(self.heard, duration, now),
            Event::Tick => {
                if now.saturating_sub(self.beaten) >= heartbeat_interval(self.lease) {
                    self.beaten = now;
                    actions[0] = Some(Action::Beat);
                }
                let silent = now.saturating_sub(self.heard);
                if self.lease.is_some_and(|lease| silent > lease) {
                    actions[1] = Some(Action::GiveUp { silent });
                }
            }
        }
        actions.into_iter().flatten()
    }

    /// How long nothing has to be done.
    #[must_use]
    pub fn patience(&self, now: Duration) -> Duration {
        heartbeat_interval(self.lease).saturating_sub(now.saturating_sub(self.beaten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_it_but_not_our_own_stalls() {
        let second = Duration::from_secs(1);
        let mut watch = Watch::new(Duration::ZERO, Some(second * 2));
        let mut all = |now, event| watch.handle(now, event).collect::<Vec<_>>();
        assert_eq!(all(second, Event::Tick), [Action::Beat]);
        all(second, Event::Heard { at: second / 2 });
        assert_eq!(all(second * 5 / 2, Event::Tick), [Action::Beat]);
        let duration = second;
        all(second * 7 / 2, Event::Stalled { duration });
        assert_eq!(all(second * 7 / 2, Event::Tick), [Action::Beat]);
        let silent = second * 21 / 10;
        let end = all(second * 36 / 10, Event::Tick);
        assert_eq!(end, [Action::GiveUp { silent }]);
        let mut endless = Watch::new(Duration::ZERO, None);
        let actions: Vec<_> = endless.handle(second * 1000, Event::Tick).collect();
        assert_eq!(actions, [Action::Beat]);
    }
}
