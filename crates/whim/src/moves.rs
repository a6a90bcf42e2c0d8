//! `whim migrate` and `whim bring`: what happens is shown while it happens.

use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{SigSet, Signal, raise};
use std::io::IsTerminal;
use whim_control::client::{Client, ControlError};
use whim_control::protocol::{Answer, Request};
use whim_journey::job::{Event, MoveReport};

use crate::output;

/// Asks for a move, shows its progress, and prints its report.
///
/// # Errors
/// Why it was refused.
pub(crate) fn perform(
    mut client: Client,
    request: &Request,
    json: bool,
) -> Result<(), ControlError> {
    speak_at_ctrl_c();
    let mut bar: Option<ProgressBar> = None;
    let mut report: Option<MoveReport> = None;
    let text = client.ask(request, |answer| match answer {
        Answer::Notice { text }
        | Answer::Journey {
            event: Event::Notice { text },
        } => output::aside(&text),
        Answer::Journey {
            event: Event::Progress { bytes, of },
        } if !json => {
            show(&mut bar, bytes, of);
        }
        Answer::Journey {
            event: Event::Done { report: done },
        } => report = Some(done),
        _ => {}
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let text = text?;
    match report {
        Some(report) if json => output::json(&report),
        Some(report) => print(&report),
        None => text.iter().for_each(|text| output::line(text)),
    }
    Ok(())
}

/// Ctrl-C ends our waiting alone: says so, and ends as by the signal.
fn speak_at_ctrl_c() {
    let key = SigSet::from(Signal::SIGINT);
    // A shell without job control has what it starts in the background ignore Ctrl-C.
    let ignored = ignores(Signal::SIGINT);
    if ignored || key.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        if key.wait().is_ok() {
            output::aside("whim: The move goes on ('whim ps' shows where the process is)");
            let _ = key.thread_unblock();
            let _ = raise(Signal::SIGINT);
        }
    });
}

/// Whether we were started with a signal ignored.
fn ignores(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> (signal as i32 - 1) & 1 != 0)
}

/// Progress is for people who wait: on a terminal, and where there is something to wait for.
fn show(bar: &mut Option<ProgressBar>, bytes: u64, of: u64) {
    if of < 8 << 20 || !std::io::stderr().is_terminal() {
        return;
    }
    let bar = bar.get_or_insert_with(|| {
        let bar = ProgressBar::new(of);
        let style = "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar
    });
    bar.set_length(of);
    bar.set_position(bytes);
}

fn print(report: &MoveReport) {
    let rows: Vec<Vec<String>> = report
        .phases
        .iter()
        .map(|(phase, ms)| vec![phase.to_string(), format!("{ms:.1} ms")])
        .collect();
    for row in &rows {
        output::line(&format!("{:<9} {:>10}", row[0], row[1]));
    }
    output::line(&format!(
        "{} -> {}: {} bytes in {} pages, freeze {:.1} ms, {:.1} ms in all",
        report.from, report.to, report.bytes, report.pages, report.freeze_ms, report.total_ms
    ));
}
