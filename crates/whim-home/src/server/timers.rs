//! Timers of the process, which are the deputy's.

use whim_sys::kernel_file;
use whim_sys::ptrace::Tid;

/// The thread to which a timer sends its signals, by its number in our own pid namespace; none if they are
/// for the process.
pub fn thread_of(pid: i32, timer: i32) -> Option<Tid> {
    let text = kernel_file::read_text(format!("/proc/{pid}/timers")).ok()?;
    thread_in(&text, timer)
}

/// Signals that the process ignores although timers send them, as a set.
pub fn ignored_with_timers(pid: i32) -> u64 {
    let sent = kernel_file::read_text(format!("/proc/{pid}/timers")).unwrap_or_default();
    let status = kernel_file::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    signals_in(&sent) & ignored.unwrap_or(0)
}

fn signals_in(text: &str) -> u64 {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("signal: "));
    let numbers = lines.filter_map(|rest| rest.split_once('/')?.0.parse::<u32>().ok());
    numbers
        .filter(|number| (1..=64).contains(number))
        .fold(0, |set, number| set | 1 << (number - 1))
}

fn thread_in(text: &str, timer: i32) -> Option<i32> {
    let id = format!("ID: {timer}");
    let mut lines = text.lines().skip_while(|line| *line != id).skip(1);
    let notify = lines
        .by_ref()
        .take_while(|line| !line.starts_with("ID: "))
        .find_map(|line| line.strip_prefix("notify: "))?;
    notify.split_once("/tid.")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_who_gets_a_timers_signal() {
        let text = "ID: 1\nsignal: 34/0\nnotify: signal/pid.7\nClockID: 1\n\
                    ID: 12\nsignal: 35/0\nnotify: signal/tid.9\nClockID: 0\n\
                    ID: 2\nsignal: 0/0\nnotify: none/pid.7\nClockID: 7\n";
        assert_eq!(thread_in(text, 1), None);
        assert_eq!(thread_in(text, 12), Some(9));
        assert_eq!(thread_in(text, 2), None);
        assert_eq!(thread_in(text, 3), None);
        assert_eq!(thread_in("", 0), None);
        assert_eq!(signals_in(text), 1 << 33 | 1 << 34);
    }
}
