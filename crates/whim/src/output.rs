//! Tables and JSON lines.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, UNIX_EPOCH};
use whim_monitor::order::state;
use whimd::control::{LogRow, NodeRow, NodeState, ProcessRow};

/// Writes a line; a reader that has gone (`whim ps | head -1`) is no error.
pub fn line(text: &str) {
    let mut output = io::stdout().lock();
    let _ = output
        .write_all(text.as_bytes())
        .and_then(|()| output.write_all(b"\n"));
}

/// One JSON object on a line.
pub fn json(row: &impl serde::Serialize) {
    if let Ok(text) = serde_json::to_string(row) {
        line(&text);
    }
}

/// Columns as wide as their longest cell; those named in `right` are aligned to the right, and the
/// last one is never padded, but cut at the terminal's edge.
pub fn table(head: &[&str], right: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let limit = io::stdout().is_terminal().then(columns).flatten();
    let first: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&first).chain(rows) {
        let mut text = String::new();
        for (index, cell) in row.iter().enumerate() {
            let pad = widths[index].saturating_sub(cell.chars().count());
            let last = index + 1 == row.len();
            if right.contains(&head[index]) {
                text.push_str(&" ".repeat(pad));
                text.push_str(cell);
            } else {
                text.push_str(cell);
                if !last {
                    text.push_str(&" ".repeat(pad));
                }
            }
            if !last {
                text.push_str("  ");
            }
        }
        if let Some(limit) = limit {
            text = text.chars().take(limit).collect();
        }
        line(text.trim_end());
    }
}

fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// Bytes, as people read them.
#[must_use]
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut whole = count;
    let mut rest = 0;
    let mut unit = 0;
    while whole >= 1024 && unit + 1 < units.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    if unit == 0 || whole >= 100 {
        format!("{whole} {}", units[unit])
    } else {
        format!("{whole}.{} {}", rest * 10 / 1024, units[unit])
    }
}

/// `whim ps`.
pub fn processes(rows: &[ProcessRow]) {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let why = row.stay.as_ref().or(row.reason.as_ref());
            let why = why.or(row.not_candidate.as_ref());
            vec![
                row.pid.to_string(),
                row.home.clone(),
                row.r#where.clone(),
                state(row).to_owned(),
                row.moves.to_string(),
                format!("{:.0}%", row.cpu_percent),
                bytes(row.memory_bytes),
                why.cloned().unwrap_or_else(|| "-".into()),
                row.command.clone(),
            ]
        })
        .collect();
    let head = [
        "PID", "HOME", "WHERE", "STATE", "MOVES", "CPU", "MEM", "STAY", "COMMAND",
    ];
    table(&head, &["PID", "MOVES", "CPU", "MEM"], &cells);
}

/// Whether it is there, and what it was told. A drained node does both of the other two.
fn node_state(row: &NodeRow) -> String {
    let mut state = row.state.to_string();
    if row.state != NodeState::Draining {
        for (told, word) in [(row.blocked, "blocked"), (row.stays, "stays")] {
            if told == Some(true) {
                state = format!("{state}, {word}");
            }
        }
    }
    state
}

/// With a tilde where it is an estimate.
fn speed(row: &NodeRow) -> String {
    let tilde = if row.speed_estimated == Some(true) {
        "~"
    } else {
        ""
    };
    row.speed
        .map_or("-".into(), |speed| format!("{tilde}{speed:.2}"))
}

/// By which token a node became a member, when, and from where.
fn admitted(row: &NodeRow) -> String {
    let Some(admitted) = &row.admitted else {
        return "-".into();
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let ago = now.saturating_sub(Duration::from_millis(admitted.time_ms));
    let minutes = ago.as_secs() / 60;
    let ago = match minutes / 60 {
        0 => format!("{minutes} min"),
        hours => format!("{hours} h"),
    };
    format!("{ago} ago by {} from {}", admitted.token, admitted.from)
}

/// `whim nodes`.
pub fn nodes(rows: &[NodeRow]) {
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".into(),
    };
    let size = |value: Option<u64>| value.map_or("-".into(), bytes);
    let any = rows
        .iter()
        .any(|row| row.labels.as_ref().is_some_and(|labels| !labels.is_empty()));
    let lately = rows.iter().any(|row| row.admitted.is_some());
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let labels = row
                .labels
                .as_ref()
                .map_or("-".into(), |labels| labels.join(","));
            let mut cells = vec![
                row.name.clone(),
                node_state(row),
                number(row.load, 2),
                number(row.cpus, 1),
                speed(row),
                size(row.memory_available_bytes),
                size(row.memory_total_bytes),
                row.guests.map_or("-".into(), |guests| guests.to_string()),
                row.class.clone().unwrap_or_else(|| "-".into()),
            ];
            cells.extend(any.then_some(labels));
            cells.extend(lately.then(|| admitted(row)));
            cells
        })
        .collect();
    let mut head = vec![
        "NAME",
        "STATE",
        "LOAD",
        "CPUS",
        "SPEED",
        "AVAILABLE",
        "MEMORY",
        "GUESTS",
        "CLASS",
    ];
    head.extend(any.then_some("LABELS"));
    head.extend(lately.then_some("ADMITTED"));
    table(
        &head,
        &["LOAD", "CPUS", "SPEED", "AVAILABLE", "MEMORY", "GUESTS"],
        &cells,
    );
}

/// `whim log`.
pub fn log(row: &LogRow) {
    let pid = row.pid.map_or(String::new(), |pid| format!(" {pid}"));
    line(&format!(
        "{} {}{pid}: {}",
        moment(row.time_ms),
        row.what,
        row.text
    ));
}

/// A moment in UTC, to the second.
#[must_use]
pub fn moment(time_ms: u64) -> String {
    let since = (UNIX_EPOCH + Duration::from_millis(time_ms)).duration_since(UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date of the Gregorian calendar, counted from 1 March of the year 0.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_to_a_digit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(200 << 20), "200 MiB");
        assert_eq!(bytes(u64::MAX), "16777215 TiB");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(951_827_696_000), "2000-02-29T12:34:56Z");
        assert_eq!(moment(1_798_761_599_999), "2026-12-31T23:59:59Z");
    }
}
