//! The guest's half of a stay: when it begins, when its calls flow, when it stands still, and when
//! its host ends it.

use crate::lease::{heartbeat_interval, later};
use std::time::Duration;

/// How long home may be silent before there is a guest. After that no guest is expected any more.
const ALONE_MAX: Duration = Duration::from_secs(120);
/// The same without a connection: two leases, but no less than this. It is shorter because home
/// connects at once.
const UNCONNECTED_MIN: Duration = Duration::from_secs(5);
/// The same without a connection if there is no lease.
const UNCONNECTED: Duration = Duration::from_secs(20);

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a connection to home, or none any more.
    Connected(bool),
    /// The process is rebuilt, and home has committed.
    Commit,
    /// Home has heard of the start.
    Acknowledged,
    /// The guest is frozen and sent away.
    Leave,
    /// The guest's move has failed, and the guest goes on here.
    Resume,
    /// Home has no use for the guest any more.
    Dismissed,
    /// Home was last heard of at this time.
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
    /// Let the threads run, and tell home that they do.
    Start,
    /// Calls may be forwarded from now on.
    Flow,
    /// Stop the threads: home is silent.
    Hold,
    /// Home is there again.
    Release,
    /// Let the threads that were frozen for a move go on.
    Thaw,
    Beat,
    /// End the guest: home does not want it.
    End,
    /// End the guest because home is lost.
    Desert {
        silent: Duration,
    },
    /// The message is out of place here, which is an error of home's.
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no guest yet.
    Arriving,
    /// It runs, but home may not know that yet.
    InDoubt,
    /// It is the process.
    Valid,
    Over,
}

/// A stay, as its host sees it.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    phase: Phase,
    lease: Option<Duration>,
    connected: bool,
    leaving: bool,
    held: bool,
    heard: Duration,
    beaten: Duration,
}

impl Stay {
    #[must_use]
    pub fn new(now: Duration, lease: Option<Duration>) -> Self {
        Self {
            phase: Phase::Arriving,
            lease,
            connected: false,
            leaving: false,
            held: false,
            heard: now,
            beaten: now,
        }
    }

    pub fn set_lease(&mut self, lease: Option<Duration>) {
        self.lease = lease;
    }

    /// Handles an event; returns at most two actions.
    pub fn handle(&mut self, now: Duration, event: Event) -> impl Iterator<Item = Action> + use<> {
        let mut actions = [None, None];
        match event {
            Event::Connected(connected) => self.connected = connected,
            Event::Heard { at } => self.heard = self.heard.max(at),
            Event::Stalled { duration } => self.heard = later(self.heard, duration, now),
            Event::Tick => actions = self.tick(now),
            other => actions[0] = self.turn(other),
        }
        actions.into_iter().flatten()
    }

    fn turn(&mut self, event: Event) -> Option<Action> {
        Some(match (event, self.phase) {
            (Event::Dismissed, _) => {
                self.phase = Phase::Over;
                Action::End
            }
            (Event::Commit, Phase::Arriving) => {
                // Trap: effects-in-doubt
                self.phase = Phase::InDoubt;
                Action::Start
            }
            (Event::Acknowledged, Phase::InDoubt) => {
                self.phase = Phase::Valid;
                Action::Flow
            }
            (Event::Leave, Phase::Valid) => {
                self.leaving = true;
                return None;
            }
            (Event::Resume, Phase::Valid) => {
                self.leaving = false;
                Action::Thaw
            }
            _ => Action::Refuse,
        })
    }

    fn tick(&mut self, now: Duration) -> [Option<Action>; 2] {
        let mut actions = [None, None];
        let silent = now.saturating_sub(self.heard);
        match (self.phase, self.lease) {
            (Phase::Arriving, _) if silent > self.patience_alone() => {
                actions[0] = Some(self.desert(silent));
            }
            (Phase::InDoubt | Phase::Valid, Some(lease)) if silent > lease * 2 => {
                actions[0] = Some(self.desert(silent));
            }
            (Phase::InDoubt | Phase::Valid, Some(lease)) => {
                let hold = silent > lease / 3;
                if hold != self.held {
                    self.held = hold;
                    actions[0] = Some(if hold { Action::Hold } else { Action::Release });
                }
            }
            _ => {}
        }
        actions[1] = self.beats(now).then_some(Action::Beat);
        actions
    }

    /// Whether it is time for a heartbeat. For long steps that cannot be interrupted, during which
    /// nothing else is decided.
    pub fn beats(&mut self, now: Duration) -> bool {
        let due = now.saturating_sub(self.beaten) >= heartbeat_interval(self.lease);
        if due {
            self.beaten = now;
        }
        due
    }

    fn desert(&mut self, silent: Duration) -> Action {
        self.phase = Phase::Over;
        Action::Desert { silent }
    }

    fn patience_alone(&self) -> Duration {
        match self.lease {
            _ if self.connected => ALONE_MAX,
            Some(lease) => (lease * 2).clamp(UNCONNECTED_MIN, ALONE_MAX),
            None => UNCONNECTED,
        }
    }

    /// Whether calls may be forwarded just now.
    #[must_use]
    pub fn may_forward(&self) -> bool {
        self.phase == Phase::Valid && !self.leaving && !self.held
    }

    /// Whether there is no guest yet.
    #[must_use]
    pub fn is_arriving(&self) -> bool {
        self.phase == Phase::Arriving
    }

    /// Whether home knows that the guest runs.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.phase == Phase::Valid
    }

    /// Whether the guest stands still because home is silent.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
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

    const LEASE: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn all(stay: &mut Stay, now: Duration, event: Event) -> Vec<Action> {
        let actions = stay.handle(now, event);
        actions.filter(|action| *action != Action::Beat).collect()
    }

    #[test]
    fn calls_flow_once_home_knows_of_the_start_and_while_it_is_heard() {
        let mut stay = Stay::new(at(0), Some(LEASE));
        all(&mut stay, at(0), Event::Connected(true));
        assert_eq!(all(&mut stay, at(1), Event::Acknowledged), [Action::Refuse]);
        assert_eq!(all(&mut stay, at(1), Event::Commit), [Action::Start]);
        assert!(!stay.may_forward());
        assert_eq!(all(&mut stay, at(2), Event::Acknowledged), [Action::Flow]);
        assert!(stay.may_forward());
        assert_eq!(all(&mut stay, at(1100), Event::Tick), [Action::Hold]);
        assert!(!stay.may_forward());
        all(&mut stay, at(1200), Event::Heard { at: at(1200) });
        assert_eq!(all(&mut stay, at(1200), Event::Tick), [Action::Release]);
        assert!(stay.may_forward());
        let silent = at(6001);
        let end = all(&mut stay, at(7201), Event::Tick);
        assert_eq!(end, [Action::Desert { silent }]);
        assert!(!stay.may_forward());
    }

    #[test]
    fn a_guest_that_leaves_forwards_nothing_until_it_is_told_to_go_on() {
        let mut stay = Stay::new(at(0), None);
        all(&mut stay, at(1), Event::Commit);
        all(&mut stay, at(1), Event::Acknowledged);
        all(&mut stay, at(1), Event::Leave);
        assert!(!stay.may_forward());
        assert_eq!(all(&mut stay, at(9_000_000), Event::Tick), []);
        assert_eq!(all(&mut stay, at(9_000_000), Event::Resume), [Action::Thaw]);
        assert!(stay.may_forward());
        let end = all(&mut stay, at(9_000_000), Event::Dismissed);
        assert_eq!(end, [Action::End]);
    }

    #[test]
    fn what_we_did_not_listen_for_is_no_silence_of_home() {
        let mut stay = Stay::new(at(0), Some(LEASE));
        all(&mut stay, at(1), Event::Commit);
        all(&mut stay, at(1), Event::Acknowledged);
        all(&mut stay, at(1), Event::Heard { at: at(1) });
        let duration = at(60_000);
        all(&mut stay, at(60_001), Event::Stalled { duration });
        assert_eq!(all(&mut stay, at(60_001), Event::Tick), []);
        assert_eq!(all(&mut stay, at(61_002), Event::Tick), [Action::Hold]);
    }

    #[test]
    fn nobody_waits_for_ever_for_a_guest_that_does_not_come() {
        let mut stay = Stay::new(at(0), Some(LEASE));
        assert_eq!(all(&mut stay, at(5900), Event::Tick), []);
        let silent = at(6001);
        assert_eq!(
            all(&mut stay, at(6001), Event::Tick),
            [Action::Desert { silent }]
        );
    }
}
