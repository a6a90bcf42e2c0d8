//! `whim history`: what this node was like, with bars, and what moved.

use std::time::{SystemTime, UNIX_EPOCH};
use whim_control::client::{Client, ControlError};
use whim_control::history::{HistoryRow, MoveRow, Outcome, SampleRow, span, thin};
use whim_control::protocol::{Answer, Request};

use crate::arguments::Ago;
use crate::output;

/// Rows of the table of minutes: what fits on a screen.
const ROWS_MAX: u64 = 30;
/// Width of a bar, in cells.
const BAR: usize = 10;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Asks, and prints minutes and moves.
///
/// # Errors
/// The daemon does not answer, or keeps nothing.
pub(crate) fn show(mut client: Client, since: Ago, json: bool) -> Result<(), ControlError> {
    let now_ms = now_ms();
    let from_ms = now_ms.saturating_sub(since.milliseconds);
    let request = Request::History {
        from_ms,
        // Of the minute that has just begun, too.
        to_ms: now_ms.saturating_add(1),
    };
    let (mut samples, mut moves) = (Vec::new(), Vec::new());
    client.ask(&request, |answer| match answer {
        Answer::History(row) if json => output::json(&row),
        Answer::History(HistoryRow::Sample(row)) => samples.push(row),
        Answer::History(HistoryRow::Move(row)) => moves.push(row),
        _ => {}
    })?;
    if json {
        return Ok(());
    }
    // Of a node that was not always there, what there is fills the table.
    let begin = samples.first().map_or(from_ms, |sample| sample.time_ms);
    let samples = thin(samples, span(begin, now_ms, ROWS_MAX));
    print_samples(&samples, &moves);
    if !moves.is_empty() {
        output::line("");
        print_moves(&moves);
    }
    Ok(())
}

/// Eighths of a cell.
fn bar(part: f64) -> String {
    let full = f64::from(u32::try_from(BAR * 8).unwrap_or(80));
    let wanted = (part.clamp(0.0, 1.0) * full).round();
    let mut cells = String::new();
    for cell in 0..BAR {
        let begin = f64::from(u32::try_from(cell * 8).unwrap_or(0));
        let eighths = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
        let filled = (1..=8).take_while(|n| begin + f64::from(*n) <= wanted);
        cells.push(eighths[filled.count()]);
    }
    cells
}

/// Moves that ended while a sample stands, and those of them that failed.
fn moved(sample: &SampleRow, until_ms: u64, moves: &[MoveRow]) -> String {
    let those = moves
        .iter()
        .filter(|row| (sample.time_ms..until_ms).contains(&row.time_ms));
    let (done, failed): (Vec<&MoveRow>, Vec<&MoveRow>) =
        those.partition(|row| row.outcome == Outcome::Done);
    match (done.len(), failed.len()) {
        (0, 0) => "-".to_owned(),
        (done, 0) => done.to_string(),
        (done, failed) => format!("{done} ({failed} failed)"),
    }
}

fn print_samples(samples: &[SampleRow], moves: &[MoveRow]) {
    let ends = samples.iter().skip(1).map(|next| next.time_ms);
    let rows: Vec<Vec<String>> = (samples.iter().zip(ends.chain([u64::MAX])))
        .map(|(sample, until_ms)| {
            let load = sample.load;
            let total =
                f64::from(u32::try_from(sample.memory_total_bytes >> 20).unwrap_or(u32::MAX));
            let used = sample.memory_used_bytes.mean / f64::from(1 << 20);
            vec![
                output::moment(sample.time_ms),
                format!("{:.2}", load.min),
                format!("{:.2}", load.mean),
                format!("{:.2}", load.max),
                bar(load.mean / sample.cpus.max(0.01)),
                format!("{:.0}%", used / total.max(1.0) * 100.0),
                bar(used / total.max(1.0)),
                format!("{:.1}", sample.guests.mean),
                moved(sample, until_ms, moves),
            ]
        })
        .collect();
    let head = [
        "TIME",
        "MIN",
        "LOAD",
        "MAX",
        "OF CPUS",
        "MEM",
        "OF MEMORY",
        "GUESTS",
        "MOVES",
    ];
    output::table(&head, &["MIN", "LOAD", "MAX", "MEM", "GUESTS"], &rows);
}

fn print_moves(moves: &[MoveRow]) {
    let rows: Vec<Vec<String>> = moves
        .iter()
        .map(|row| {
            let timed = |ms: f64| match row.total_ms > 0.0 {
                true => format!("{ms:.0} ms"),
                false => "-".to_owned(),
            };
            let outcome = match (row.outcome, &row.phase) {
                (Outcome::Done, _) => "done".to_owned(),
                (Outcome::Failed, Some(phase)) => format!("failed at {phase}"),
                (Outcome::Failed, None) => "failed".to_owned(),
            };
            vec![
                output::moment(row.time_ms),
                row.pid.to_string(),
                row.program.clone(),
                row.from.clone(),
                row.to.clone(),
                row.cause.name().to_owned(),
                outcome,
                timed(row.freeze_ms),
                timed(row.total_ms),
                row.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let head = [
        "TIME", "PID", "PROGRAM", "FROM", "TO", "CAUSE", "OUTCOME", "FROZEN", "IN ALL", "WHY",
    ];
    output::table(&head, &["PID", "FROZEN", "IN ALL"], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!(bar(0.0), " ".repeat(BAR));
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(7.0), bar(1.0));
        assert_eq!(bar(-1.0), bar(0.0));
        assert_eq!(bar(0.5), format!("{}{}", "█".repeat(5), " ".repeat(5)));
        assert_eq!(bar(0.26), format!("██▋{}", " ".repeat(7)));
    }
}
