//! Collects what this node was like, and what moved, minute by minute.
//!
//! This is the core: it is given the time and samples, and returns minutes to be written.
//! [`crate::past::history_file`] keeps them, and [`crate::past::history_task`] brings both together.

use whim_control::history::{MoveRow, Sample, SampleRow};

/// Moves that wait for the end of their minute; more are not noted.
pub(crate) const WAITING_MAX: usize = 1000;

/// What is to be written together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub sample: Option<SampleRow>,
    pub moves: Vec<MoveRow>,
}

impl Batch {
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.sample.is_none() && self.moves.is_empty()
    }
}

/// What has not been written yet.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    now: Batch,
}

impl Recorder {
    /// Adds a look at this node. If a minute is over with it, returns what is to be written.
    pub(crate) fn add(&mut self, now_ms: u64, sample: &Sample) -> Option<Batch> {
        let fresh = SampleRow::of(now_ms, sample);
        match &mut self.now.sample {
            Some(sample) if sample.time_ms == fresh.time_ms => {
                sample.take(&fresh);
                None
            }
            // Clocks are put back, too: that begins another minute as well.
            Some(_) => {
                let over = std::mem::take(&mut self.now);
                self.now.sample = Some(fresh);
                Some(over)
            }
            None => {
                self.now.sample = Some(fresh);
                None
            }
        }
    }

    /// Adds a move that has ended; returns false if too many wait already.
    pub(crate) fn note(&mut self, row: MoveRow) -> bool {
        let fits = self.now.moves.len() < WAITING_MAX;
        if fits {
            self.now.moves.push(row.cut());
        }
        fits
    }

    /// What has been collected, although its minute is not over.
    #[must_use]
    pub(crate) fn waiting(&self) -> &Batch {
        &self.now
    }

    /// Takes out the same, to be written, because nothing more will come.
    pub(crate) fn end(&mut self) -> Batch {
        std::mem::take(&mut self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_control::history::{MINUTE, Outcome};

    fn sample(load: f64) -> Sample {
        Sample {
            load,
            cpus: 2.0,
            memory_used_bytes: load * 1024.0,
            memory_total_bytes: 1 << 30,
            guests: 1.0,
        }
    }

    fn row(pid: i32) -> MoveRow {
        MoveRow {
            time_ms: 1,
            pid,
            program: "program".into(),
            uid: 1000,
            from: "n1".into(),
            to: "n2".into(),
            cause: whim_journey::cause::Cause::User,
            outcome: Outcome::Done,
            phase: None,
            reason: None,
            bytes: 1,
            freeze_ms: 1.0,
            total_ms: 2.0,
        }
    }

    #[test]
    fn a_minute_is_its_least_its_mean_and_its_most() {
        let mut recorder = Recorder::default();
        let begin = 100 * MINUTE;
        for (second, load) in [(0, 1.0), (5, 4.0), (59, 1.0)] {
            assert_eq!(recorder.add(begin + second * 1000, &sample(load)), None);
        }
        assert!(recorder.note(row(7)));
        let over = recorder
            .add(begin + MINUTE, &sample(9.0))
            .expect("it is over");
        let sample = over.sample.expect("one");
        assert_eq!((sample.time_ms, sample.looks), (begin, 3));
        assert_eq!((sample.load.min, sample.load.max), (1.0, 4.0));
        assert!((sample.load.mean - 2.0).abs() < 1e-9, "{sample:?}");
        assert_eq!(over.moves, [row(7)]);
        // The next minute has begun, with nothing of the last.
        let waiting = recorder.waiting();
        assert_eq!(waiting.sample.as_ref().map(|s| s.load.min), Some(9.0));
        assert!(waiting.moves.is_empty());
        assert!(!recorder.end().is_empty() && recorder.end().is_empty());
    }

    #[test]
    fn a_clock_that_is_put_back_ends_a_minute() {
        let mut recorder = Recorder::default();
        assert_eq!(recorder.add(100 * MINUTE, &sample(1.0)), None);
        let over = recorder.add(50 * MINUTE, &sample(2.0)).expect("it is over");
        assert_eq!(over.sample.map(|sample| sample.time_ms), Some(100 * MINUTE));
    }

    #[test]
    fn moves_that_wait_have_a_limit() {
        let mut recorder = Recorder::default();
        let fit = (0..).take_while(|pid| recorder.note(row(*pid))).count();
        assert_eq!(fit, WAITING_MAX);
        recorder.end();
        assert!(recorder.note(row(1)));
    }
}
