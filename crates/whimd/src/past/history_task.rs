//! Makes this node's history: samples the node every few seconds, and writes each minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ground::Ground;
use crate::locks::lock;
use crate::past::events::now_ms;
use crate::past::history::FILE;
use crate::past::history::History;
use crate::past::history_file::{HistoryError, SAMPLES_TOLD_MAX};
use crate::past::recorder::Batch;
use whim_control::history::{HistoryRow, Keep, MINUTE, MoveRow, Sample, SampleRow, span, thin};
use whim_machine::processes::Caller;

/// How often the node is sampled. Its load stays up for some seconds, so none of its peaks is missed.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// How long the daemon waits for the last write when it ends.
const END_MAX: Duration = Duration::from_secs(2);

/// Writes a batch, and reports what went wrong, once.
fn write(ground: &Ground, batch: &Batch) {
    let history = ground.history();
    let written = lock(&history.file).write(now_ms(), batch);
    let Err(error) = written else {
        history.failing.store(false, Ordering::Relaxed);
        return;
    };
    ground.metrics().counters().history_lost();
    let said = history.failing.swap(true, Ordering::Relaxed);
    match error {
        HistoryError::Damaged { .. } => {
            ground.events().add(None, "damaged", error.to_string());
            // The new file takes what the damaged one did not.
            let again = lock(&history.file).write(now_ms(), batch);
            history.failing.store(again.is_err(), Ordering::Relaxed);
        }
        _ if said => tracing::debug!(%error, "a minute of history is lost"),
        _ => tracing::warn!("{error}"),
    }
}

/// Runs for ever, unless nothing is to be kept. `sample` looks at the node.
pub(crate) async fn run(ground: Arc<Ground>, sample: impl Fn() -> Sample) {
    if ground.history().keep == Keep::Off {
        return;
    }
    let mut interval = tokio::time::interval(SAMPLE_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let sample = sample();
        let batch = lock(&ground.history().recorder).add(now_ms(), &sample);
        if let Some(batch) = batch {
            let ground = Arc::clone(&ground);
            let written = tokio::task::spawn_blocking(move || write(&ground, &batch)).await;
            if let Err(error) = written {
                tracing::error!(%error, "writing the history failed");
            }
        }
    }
}

/// Writes what there is, since the daemon ends.
pub(crate) async fn end(ground: &Arc<Ground>) {
    let batch = lock(&ground.history().recorder).end();
    if ground.history().keep == Keep::Off || batch.is_empty() {
        return;
    }
    let ground = Arc::clone(ground);
    let written = tokio::task::spawn_blocking(move || write(&ground, &batch));
    let _ = tokio::time::timeout(END_MAX, written).await;
}

/// Rows of `whim history`: minutes, merged where they are many, and moves, without the reasons of those
/// that the caller may not see.
///
/// # Errors
/// No history is kept, or it cannot be read.
pub(crate) async fn rows(
    ground: &Arc<Ground>,
    caller: &Caller,
    from_ms: u64,
    to_ms: u64,
) -> Result<Vec<HistoryRow>, HistoryError> {
    let (asked, caller) = (Arc::clone(ground), caller.clone());
    let read = tokio::task::spawn_blocking(move || read(asked.history(), &caller, from_ms, to_ms));
    read.await.unwrap_or_else(|error| {
        Err(HistoryError::Unread {
            path: FILE.into(),
            reason: error.to_string(),
        })
    })
}

fn read(
    history: &History,
    caller: &Caller,
    from_ms: u64,
    to_ms: u64,
) -> Result<Vec<HistoryRow>, HistoryError> {
    let history = &history;
    let (mut samples, mut moves) = lock(&history.file).read(from_ms, to_ms)?;
    {
        let recorder = lock(&history.recorder);
        let is_in = |time_ms: u64| (from_ms..to_ms).contains(&time_ms);
        let waiting = recorder.waiting();
        samples.extend(waiting.sample.clone().filter(|s| is_in(s.time_ms)));
        moves.extend(
            waiting
                .moves
                .iter()
                .filter(|row| is_in(row.time_ms))
                .cloned(),
        );
    }
    Ok(told(samples, moves, caller))
}

/// Rows in the order of their times, without what this caller may not see.
fn told(samples: Vec<SampleRow>, moves: Vec<MoveRow>, caller: &Caller) -> Vec<HistoryRow> {
    let first = samples.first().map_or(0, |sample| sample.time_ms);
    let last = samples.last().map_or(0, |sample| sample.time_ms + MINUTE);
    let samples = thin(samples, span(first, last, SAMPLES_TOLD_MAX));
    let hidden = moves.into_iter().map(|mut row| {
        if !caller.may_see(row.uid) {
            row.reason = None;
        }
        HistoryRow::Move(row)
    });
    let mut rows: Vec<HistoryRow> = samples.into_iter().map(HistoryRow::Sample).collect();
    rows.extend(hidden);
    rows.sort_by_key(|row| match row {
        HistoryRow::Sample(sample) => sample.time_ms,
        HistoryRow::Move(row) => row.time_ms,
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_attempts::{Attempt, Party};
    use whim_control::history::Outcome;

    fn row(uid: u32) -> MoveRow {
        MoveRow {
            time_ms: MINUTE,
            pid: 7,
            program: "program".into(),
            uid,
            from: "n1".into(),
            to: "n2".into(),
            cause: whim_journey::cause::Cause::User,
            outcome: Outcome::Failed,
            phase: None,
            reason: Some("It has a secret file open".into()),
            bytes: 0,
            freeze_ms: 0.0,
            total_ms: 0.0,
        }
    }

    #[test]
    fn reasons_are_for_their_user_and_administrators() {
        let reasons = |uid: u32, admin: bool| -> Vec<bool> {
            let caller = Caller {
                pid: 1,
                uid,
                gid: uid,
                admin,
            };
            let rows = told(Vec::new(), vec![row(1000), row(1001)], &caller);
            let seen =
                |row: &HistoryRow| matches!(row, HistoryRow::Move(row) if row.reason.is_some());
            rows.iter().map(seen).collect()
        };
        let attempt = Attempt::new(
            Party::LocalUser,
            "read from the history why another user's program did not move",
        );
        assert_eq!(reasons(1000, false), [true, false]);
        attempt.failed("its name and where it went are told, and no more");
        assert_eq!(reasons(7, true), [true, true]);
    }
}
