//! Tables and JSON lines.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;
use whim_control::protocol::{LogRow, NodeRow, NodeState, ProcessRow};
pub(crate) use whim_monitor::moment::moment;
use whim_monitor::order::state;

use crate::letters;

/// Between two columns.
const GAP: &str = "  ";
/// What a reason leaves for the command on a terminal.
const COMMAND_LEAST: usize = 16;

/// For how long a remark waits for a reader that takes nothing, in milliseconds.
const PASSING: u8 = 100;

/// Why nothing can be written any more.
static FAULT: OnceLock<io::Error> = OnceLock::new();

/// Writes a line; nothing comes behind one that could not be written.
pub(crate) fn line(text: &str) {
    if is_over() {
        return;
    }
    let mut output = io::stdout().lock();
    let line = format!("{text}\n");
    note(whim_sys::startup::bear_file_limit(|| {
        output.write_all(line.as_bytes())
    }));
}

/// Notes what became of something that was written to the output.
pub(crate) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        // The first one is told.
        let _ = FAULT.set(error);
    }
}

/// Whether nothing can be written any more: whoever writes without end ends.
pub(crate) fn is_over() -> bool {
    FAULT.get().is_some()
}

/// The exit status, at the end of all output: nothing succeeds whose output is not whole. A reader that has gone
/// (`whim ps | head -1`) has what it wanted.
pub(crate) fn settle(status: ExitCode) -> ExitCode {
    note(io::stdout().flush());
    match FAULT.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            aside(&format!(
                "whim: The output could not be written ({error}): what is there is not whole"
            ));
            if status == ExitCode::SUCCESS {
                ExitCode::FAILURE
            } else {
                status
            }
        }
        _ => status,
    }
}

/// Says something beside the output. Who cannot be told (a full disk, a terminal or a reader that has gone) is no reason to
/// do nothing of what was asked: `eprintln!` would panic.
pub(crate) fn aside(text: &str) {
    let mut errors = io::stderr().lock();
    let line = format!("{text}\n");
    let _ = whim_sys::startup::bear_file_limit(|| errors.write_all(line.as_bytes()));
}

/// Says something that nobody has to hear, and stops for nobody: neither for a pipe that is full or a terminal that is held
/// (Ctrl-S), nor as a job in the background whose terminal lets none write (`stty tostop`).
pub(crate) fn in_passing(text: &str) {
    let errors = io::stderr();
    let mut ready = [PollFd::new(errors.as_fd(), PollFlags::POLLOUT)];
    if !matches!(poll(&mut ready, PollTimeout::from(PASSING)), Ok(1)) {
        return;
    }
    let stops = SigSet::from(Signal::SIGTTOU);
    let before = stops.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    aside(text);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}

/// One JSON object on a line.
pub(crate) fn json(row: &impl serde::Serialize) {
    if let Ok(text) = serde_json::to_string(row) {
        line(&text);
    }
}

/// Columns as wide as their longest cell; those named in `right` are aligned to the right, and the
/// last one is never padded, but cut at the terminal's edge.
pub(crate) fn table(head: &[&str], right: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let limit = columns();
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
                text.push_str(GAP);
            }
        }
        line(&letters::shown(cut(text.trim_end(), limit)));
    }
}

/// A line of at most so many characters, with a mark where it goes on.
fn cut(text: &str, limit: Option<usize>) -> String {
    match limit {
        Some(limit) if text.chars().count() > limit => {
            text.chars().take(limit - 1).chain(['…']).collect()
        }
        _ => text.to_owned(),
    }
}

/// How wide the terminal is; `None`: the output goes elsewhere, and is whole. Shells know `COLUMNS` but do not hand it on,
/// unless somebody wants another width than the terminal's.
fn columns() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let wanted = std::env::var("COLUMNS").ok();
    let wanted = wanted.and_then(|columns| columns.parse().ok());
    let size = || ratatui::crossterm::terminal::size().ok();
    let columns = wanted.or_else(|| size().map(|(columns, _)| usize::from(columns)));
    columns.filter(|columns| *columns > 0)
}

/// Cuts the cells of a column, so that so much is left for the next ones in lines of `limit` characters.
fn narrow(head: &[&str], column: usize, left: usize, limit: usize, rows: &mut [Vec<String>]) {
    let width = |index: usize| {
        let cells = rows.iter().map(|row| row[index].chars().count());
        cells.chain([head[index].chars().count()]).max()
    };
    let before: usize = (0..column)
        .filter_map(width)
        .map(|width| width + GAP.len())
        .sum();
    let room = limit.saturating_sub(before + GAP.len() + left);
    let room = room.max(head[column].chars().count());
    for row in rows {
        let cell = &mut row[column];
        if cell.chars().count() > room {
            *cell = cell.chars().take(room - 1).chain(['…']).collect();
        }
    }
}

/// Bytes, as people read them.
#[must_use]
pub(crate) fn bytes(count: u64) -> String {
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

/// Resident memory; a program has some, so none means that nobody has counted it yet.
#[must_use]
pub(crate) fn resident(count: u64) -> String {
    match count {
        0 => "-".into(),
        count => bytes(count),
    }
}

/// `whim ps`. On a terminal a long reason is cut, for one makes the lines of all programs too long: `whim why` has it.
pub(crate) fn processes(rows: &[ProcessRow]) {
    let mut cells: Vec<Vec<String>> = rows
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
                resident(row.memory_bytes),
                why.cloned().unwrap_or_else(|| "-".into()),
                row.command.clone(),
            ]
        })
        .collect();
    let head = [
        "PID", "HOME", "WHERE", "STATE", "MOVES", "CPU", "MEM", "STAY", "COMMAND",
    ];
    if let Some(limit) = columns() {
        narrow(&head, head.len() - 2, COMMAND_LEAST, limit, &mut cells);
    }
    table(&head, &["PID", "MOVES", "CPU", "MEM"], &cells);
}

/// Whether it is there, and what it was told. A drained node, and one that is evacuated, blocks and stays.
fn node_state(row: &NodeRow) -> String {
    if row.refuses.is_some() {
        return "refuses".into();
    }
    let holds = |told: Option<bool>| told == Some(true);
    let is_drained = row.state == NodeState::Draining;
    let does_both = is_drained || holds(row.evacuates);
    let words = [
        (holds(row.evacuates), "evacuated"),
        (holds(row.owner_here), "owner here"),
        (
            !does_both && !holds(row.owner_here) && holds(row.blocked),
            "blocked",
        ),
        (!does_both && holds(row.stays), "stays"),
    ];
    let words = words.into_iter().filter(|(holds, _)| *holds);
    words.fold(row.state.to_string(), |state, (_, word)| {
        format!("{state}, {word}")
    })
}

/// What no other column tells of how an order is lifted.
fn remedy(row: &NodeRow) -> Option<String> {
    let name = &row.name;
    let evacuated = row.evacuates == Some(true) && row.refuses.is_none();
    evacuated.then(|| {
        format!("{name} is evacuated: 'whim evacuate --undo' there has it take guests again")
    })
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
pub(crate) fn nodes(rows: &[NodeRow]) {
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
    for refusal in rows.iter().filter_map(|row| row.refuses.as_ref()) {
        line(refusal);
    }
    rows.iter().filter_map(remedy).for_each(|text| line(&text));
}

/// `whim log`.
pub(crate) fn log(row: &LogRow) {
    let pid = row.pid.map_or(String::new(), |pid| format!(" {pid}"));
    line(&format!(
        "{} {}{pid}: {}",
        moment(row.time_ms),
        row.what,
        row.text
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_leaves_room_for_the_command() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["17", "It is traced.", "perl"]), row(["4", "-", "sh"])];
        let narrowed = |limit| {
            let mut rows = rows.clone();
            narrow(&["PID", "STAY", "COMMAND"], 1, 4, limit, &mut rows);
            rows.map(|row| row[1].clone())
        };
        // 3 + 2 + 13 + 2 + 4
        assert_eq!(narrowed(24), ["It is traced.", "-"]);
        assert_eq!(narrowed(23), ["It is trace…", "-"]);
        assert_eq!(narrowed(0), ["It …", "-"]);
    }

    #[test]
    fn a_line_that_goes_on_is_marked() {
        let cut = |limit| cut("größer", limit);
        assert_eq!([cut(None), cut(Some(6))], ["größer", "größer"]);
        assert_eq!([cut(Some(5)), cut(Some(1))], ["größ…", "…"]);
    }

    #[test]
    fn sizes_are_rounded_down_to_a_digit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!([0, 1536].map(resident), ["-", "1.5 KiB"]);
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(200 << 20), "200 MiB");
        assert_eq!(bytes(u64::MAX), "16777215 TiB");
    }
}
