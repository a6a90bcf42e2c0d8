//! A program of the simulator: phases, and what its home's sensors make of it.

use super::{Micros, SECOND, seconds};
use std::rc::Rc;
use whim_balance::load::{Demand, PromptDemand};

/// Seconds that a call loses by travelling home and back.
pub(crate) const CALL: f64 = 150e-6;
/// Looks during which a program's memory may still be arriving.
const ARRIVES: u32 = 3;
/// Nobody loses more than this of a second, however much it asks.
const LOSES_MOST: f64 = 0.95;

/// When a phase is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// After what takes so many seconds at home, alone on a core of speed 1.
    Work(f64),
    /// After so many seconds, however much was done in them.
    Time(f64),
}

/// What a program does for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    /// Part of the time for which it could run; else it waits, for a disk or for a clock.
    pub cpu: f64,
    /// Calls for home in a second that it has to itself.
    pub calls: f64,
    /// Bytes that its memory grows in such a second, and where that ends.
    pub growth: f64,
    pub most: f64,
    pub end: End,
}

impl Phase {
    #[must_use]
    pub(crate) fn compute(end: End) -> Self {
        Self {
            cpu: 1.0,
            calls: 0.0,
            growth: 0.0,
            most: 0.0,
            end,
        }
    }

    #[must_use]
    pub(crate) fn sleep(seconds: f64) -> Self {
        Self {
            cpu: 0.0,
            ..Self::compute(End::Time(seconds))
        }
    }

    /// Reads its home's disk.
    #[must_use]
    pub(crate) fn read(end: End) -> Self {
        Self {
            cpu: 0.4,
            calls: 5_000.0,
            ..Self::compute(end)
        }
    }

    /// What one second of it takes at a place, as seconds that it could run and others.
    pub(crate) fn takes(&self, place: &Place) -> (f64, f64) {
        let runs = self.cpu / (place.speed * place.share).max(1e-9);
        let asks = if place.away { self.calls * CALL } else { 0.0 };
        (runs, 1.0 - self.cpu + asks)
    }
}

/// What a place offers to a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Of a core.
    pub speed: f64,
    /// Part of a core that each program gets that could run.
    pub share: f64,
    pub away: bool,
}

/// A program as the workload has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub arrives: Micros,
    pub home: usize,
    pub memory: f64,
    pub phases: Rc<[Phase]>,
    /// It begins again when all phases are over.
    pub repeats: bool,
}

impl Spec {
    /// Seconds that it takes at home, alone on a core of speed 1; infinite if it repeats.
    #[must_use]
    pub(crate) fn alone(&self) -> f64 {
        let takes = |phase: &Phase| match phase.end {
            End::Work(seconds) | End::Time(seconds) => seconds,
        };
        match self.repeats {
            true => f64::INFINITY,
            false => self.phases.iter().map(takes).sum(),
        }
    }
}

/// What a program is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    /// It is being moved.
    Frozen,
    /// Its host has not heard of its home for too long.
    Held,
    Over,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// With its host, or cut off from home.
    LostHost,
    /// With its home.
    LostHome,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub spec: Spec,
    pub phase: usize,
    /// Of the phase: seconds of work or of time.
    pub left: f64,
    pub memory: f64,
    /// Seconds of a core of speed 1.
    pub done: f64,
    pub at: usize,
    pub came: Micros,
    pub state: State,
    pub fate: Option<(Micros, Fate)>,
    pub moves: u32,
    /// Sums since its beginning: seconds that it could run, calls.
    pub could_run: f64,
    pub calls: f64,
    pub senses: Senses,
}

/// What its home makes of it: as the daemon's sensors do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Senses {
    /// When, and the sums then.
    last: Option<(Micros, f64, f64, f64)>,
    cpus: PromptDemand,
    growth: PromptDemand,
    asks: Demand,
    /// Since it came to where it is.
    looks: u32,
}

impl Senses {
    #[must_use]
    pub(crate) fn cpus(&self) -> f64 {
        self.cpus.value()
    }

    #[must_use]
    pub(crate) fn growth(&self) -> f64 {
        self.growth.value()
    }

    /// Seconds that it loses in each second away from home.
    #[must_use]
    pub(crate) fn loses(&self) -> f64 {
        (self.asks.value() * CALL).min(LOSES_MOST)
    }
}

impl Program {
    #[must_use]
    pub(crate) fn new(spec: Spec) -> Self {
        let mut program = Self {
            phase: 0,
            left: 0.0,
            memory: spec.memory,
            done: 0.0,
            at: spec.home,
            came: spec.arrives,
            state: State::Runs,
            fate: None,
            moves: 0,
            could_run: 0.0,
            calls: 0.0,
            senses: Senses::default(),
            spec,
        };
        program.begin_phase();
        program
    }

    fn begin_phase(&mut self) {
        self.left = match self.now_in().end {
            End::Work(seconds) | End::Time(seconds) => seconds,
        };
    }

    #[must_use]
    pub(crate) fn now_in(&self) -> &Phase {
        &self.spec.phases[self.phase]
    }

    /// Whether it could run, if it were let.
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Runs
    }

    /// Seconds until its phase is over, if nothing changes.
    #[must_use]
    pub(crate) fn until_change(&self, place: &Place) -> f64 {
        let phase = self.now_in();
        match phase.end {
            End::Time(_) => self.left,
            End::Work(_) => {
                let (runs, waits) = phase.takes(place);
                self.left * (runs + waits)
            }
        }
    }

    /// Lets time pass, no more than until the next change; gives whether it has ended.
    pub(crate) fn pass(&mut self, seconds: f64, place: &Place) -> bool {
        /// Of a second: clocks count in millionths.
        const NOTHING: f64 = 2e-6;
        let phase = *self.now_in();
        let (runs, waits) = phase.takes(place);
        let progress = seconds / (runs + waits);
        self.could_run += progress * runs;
        self.calls += progress * phase.calls;
        self.done += progress * phase.cpu;
        if self.memory < phase.most {
            self.memory = (self.memory + progress * phase.growth).min(phase.most);
        }
        self.left -= match phase.end {
            End::Time(_) => seconds,
            End::Work(_) => progress,
        };
        if self.left > NOTHING {
            return false;
        }
        self.phase += 1;
        if self.phase == self.spec.phases.len() {
            if !self.spec.repeats {
                return true;
            }
            self.phase = 0;
        }
        self.begin_phase();
        false
    }

    /// Its home looks at it. What home knows is as old as `at`, and what it finds of CPUs is wrong by the factor `about`.
    pub(crate) fn sense(&mut self, at: Micros, about: f64) {
        let sums = (at, self.could_run, self.calls, self.memory);
        let Some((then, could_run, calls, memory)) = self.senses.last.replace(sums) else {
            return;
        };
        let elapsed = seconds(at.saturating_sub(then));
        if elapsed < 0.1 {
            self.senses.last = Some((then, could_run, calls, memory));
            return;
        }
        let could_run = (self.could_run - could_run) / elapsed;
        self.senses.cpus.sample(could_run * about);
        self.senses.asks.sample((self.calls - calls) / elapsed);
        // Memory that has just come did not grow here.
        self.senses.looks += 1;
        if self.moves == 0 || self.senses.looks > ARRIVES {
            self.senses.growth.sample((self.memory - memory) / elapsed);
        }
    }

    /// It has come to a node: what was measured in between says nothing.
    pub(crate) fn arrive(&mut self, node: usize, now: Micros) {
        self.at = node;
        self.came = now;
        self.moves += 1;
        self.senses.last = None;
        self.senses.looks = 0;
    }

    #[must_use]
    pub(crate) fn age(&self, now: Micros) -> f64 {
        seconds(now - self.spec.arrives)
    }

    /// How much longer it took than alone.
    #[must_use]
    pub(crate) fn slowdown(&self) -> Option<f64> {
        let (at, fate) = self.fate?;
        let took = (at - self.spec.arrives) as f64 / SECOND as f64;
        (fate == Fate::Done).then(|| took / self.spec.alone().max(1e-3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(phases: &[Phase], repeats: bool) -> Program {
        Program::new(Spec {
            arrives: 0,
            home: 0,
            memory: 10.0,
            phases: phases.into(),
            repeats,
        })
    }

    const HOME: Place = Place {
        speed: 1.0,
        share: 1.0,
        away: false,
    };

    #[test]
    fn work_waits_for_the_cpu_and_time_does_not() {
        let half = Place { share: 0.5, ..HOME };
        let mut two = program(&[Phase::compute(End::Work(1.0)), Phase::sleep(3.0)], false);
        assert!((two.until_change(&half) - 2.0).abs() < 1e-9);
        assert!(!two.pass(2.0, &half));
        assert!((two.done - 1.0).abs() < 1e-9 && (two.could_run - 2.0).abs() < 1e-9);
        assert!((two.until_change(&half) - 3.0).abs() < 1e-9);
        assert!(two.pass(3.0, &half));
        assert!((two.could_run - 2.0).abs() < 1e-9);
    }

    #[test]
    fn who_asks_home_waits_for_it() {
        let away = Place { away: true, ..HOME };
        let read = program(&[Phase::read(End::Work(1.0))], true);
        assert!((read.until_change(&HOME) - 1.0).abs() < 1e-9);
        assert!((read.until_change(&away) - 1.75).abs() < 1e-9);
    }

    #[test]
    fn memory_grows_to_its_end() {
        let eater = Phase {
            growth: 50.0,
            most: 100.0,
            ..Phase::compute(End::Work(10.0))
        };
        let mut eater = program(&[eater], false);
        eater.pass(1.0, &HOME);
        assert!((eater.memory - 60.0).abs() < 1e-9);
        eater.pass(1.0, &HOME);
        assert!((eater.memory - 100.0).abs() < 1e-9);
    }

    #[test]
    fn sensors_find_what_it_wants() {
        let mut hog = program(&[Phase::compute(End::Time(1000.0))], false);
        let third = Place {
            share: 1.0 / 3.0,
            ..HOME
        };
        for second in 0..20 {
            hog.sense(second * SECOND, 1.0);
            hog.pass(1.0, &third);
        }
        assert!((hog.senses.cpus() - 1.0).abs() < 0.01 && hog.senses.loses() < 1e-9);
    }
}
