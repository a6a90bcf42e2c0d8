//! Signals that a process reads from descriptors (signalfd).

use crate::stay::DESCRIPTORS_MAX;
use std::fs;
use std::io;
use std::path::Path;
use whim_sys::kernel_file;

/// The signals that do not wait at home, as a set: one that a deputy's supervisor sends for a stop (64), those of
/// job control, which act when they are sent, SIGTRAP, by which a deputy's thread says that it is done, and those
/// that the host's kernel sends for CPU time.
const ELSEWHERE: u64 = bit(64)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGCONT)
    | bit(libc::SIGTSTP)
    | bit(libc::SIGTTIN)
    | bit(libc::SIGTTOU)
    | bit(libc::SIGXCPU)
    | bit(libc::SIGVTALRM)
    | bit(libc::SIGPROF);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether descriptors that read these signals work while their process is away.
#[must_use]
pub fn all_wait_at_home(signals: u64) -> bool {
    signals & ELSEWHERE == 0
}

/// The signals that the descriptor at this path (`/proc/PID/fd/N`) reads; none if it is another one by now.
///
/// # Errors
/// What the kernel tells of it cannot be read.
pub(crate) fn read_by(path: &Path) -> io::Result<u64> {
    let number = path.file_name().unwrap_or_default();
    let process = path.parent().and_then(Path::parent);
    let about = process.unwrap_or(path).join("fdinfo").join(number);
    Ok(signals_in(&kernel_file::read_text(about)?).unwrap_or(0))
}

/// All signals that descriptors of a process read. It must not make any meanwhile.
///
/// # Errors
/// Its descriptors cannot be read, or are more than are looked at.
pub fn read_by_all(pid: i32) -> io::Result<u64> {
    let mut signals = 0;
    for (number, entry) in fs::read_dir(format!("/proc/{pid}/fd"))?.enumerate() {
        if number >= DESCRIPTORS_MAX {
            return Err(io::Error::other("there are too many"));
        }
        let path = entry?.path();
        let name = fs::read_link(&path);
        // Whoever shares its descriptors may have closed one meanwhile.
        if name.is_ok_and(|name| name.as_os_str() == "anon_inode:[signalfd]") {
            signals |= read_by(&path)?;
        }
    }
    Ok(signals)
}

fn signals_in(about: &str) -> Option<u64> {
    let set = about.lines().find_map(|line| line.strip_prefix("sigmask:"));
    u64::from_str_radix(set?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;
    use nix::sys::signalfd::{SigSet, SignalFd};

    #[test]
    fn the_kernel_tells_which_signals_a_descriptor_reads() {
        let about = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t1057\nsigmask:\t0000000000010200\n";
        assert_eq!(
            signals_in(about),
            Some(bit(libc::SIGUSR1) | bit(libc::SIGCHLD))
        );
        assert_eq!(signals_in("pos:\t0\n"), None);
    }

    #[test]
    fn signals_of_all_descriptors_are_found() {
        let reading = |signal| {
            let set: SigSet = [signal].into_iter().collect();
            SignalFd::new(&set).expect("a descriptor")
        };
        let own = std::process::id().cast_signed();
        let _two = (reading(Signal::SIGUSR1), reading(Signal::SIGWINCH));
        let found = read_by_all(own).expect("our own descriptors");
        let both = bit(libc::SIGUSR1) | bit(libc::SIGWINCH);
        assert_eq!(found & both, both);
    }

    #[test]
    fn signals_that_act_where_threads_run_do_not_wait_at_home() {
        assert!(all_wait_at_home(
            bit(libc::SIGCHLD) | bit(libc::SIGTERM) | bit(63)
        ));
        for signal in [64, libc::SIGCONT, libc::SIGPROF] {
            assert!(
                !all_wait_at_home(bit(libc::SIGCHLD) | bit(signal)),
                "{signal}"
            );
        }
    }
}
