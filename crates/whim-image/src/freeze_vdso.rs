//! Threads that a stop finds in the middle of the kernel's own code in them (vDSO).
//!
//! Between two instructions of it a thread may have chosen the page from which it is about to read a clock, or read the
//! time and not yet added how far its process's clocks are apart. Both are others where it goes. It is let run on until
//! a stop finds it elsewhere; to step it there would end it by SIGTRAP if the tracer died at that moment.

use crate::vdso;
use std::cell::OnceCell;
use std::time::{Duration, Instant};
use whim_model::{Range, Registers};
use whim_sys::kernel_file;

/// How often a thread is let run on. What does nothing but read clocks is found there nine times of ten, and is then
/// taken as it stands: it is between two such instructions once in a hundred times.
const RUNS_MAX: u32 = 40;
/// How long it runs at first, and at most. It has to be scheduled first.
const RUN_MIN: Duration = Duration::from_micros(20);
const RUN_MAX: Duration = Duration::from_micros(320);
/// `AT_SYSINFO_EHDR`: where the vDSO begins.
const AT_VDSO: u64 = 33;

/// The vDSO of a process: it is looked for when somebody asks.
#[derive(Debug)]
pub(crate) struct Vdso {
    pid: i32,
    place: OnceCell<Option<Range>>,
}

impl Vdso {
    pub(crate) fn new(pid: i32) -> Self {
        let place = OnceCell::new();
        Self { pid, place }
    }

    /// Whether a thread with these registers is reading a clock.
    fn is_read_by(&self, registers: &Registers) -> bool {
        if registers.orig_rax.cast_signed() >= 0 {
            return false;
        }
        let place = *self.place.get_or_init(|| place(self.pid));
        let doing = place.and_then(|place| vdso::doing_of(self.pid, place, registers));
        doing == Some(vdso::Doing::Clock)
    }
}

/// Where the vDSO of a process is; `None` if it has none, or it cannot be told.
fn place(pid: i32) -> Option<Range> {
    let words = kernel_file::read(format!("/proc/{pid}/auxv")).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let entries = words.chunks_exact(16);
    let mut pairs = entries.filter_map(|entry| Some((word(&entry[..8])?, word(&entry[8..])?)));
    let (_, start) = pairs.find(|(name, _)| *name == AT_VDSO)?;
    let length = vdso::own().ok()?.len() as u64;
    let end = start.checked_add(length)?;
    Some(Range { start, end })
}

/// How one thread is let run on.
#[derive(Debug, Default)]
pub(crate) struct RunsOn {
    runs: u32,
    since: Option<Instant>,
}

impl RunsOn {
    /// Whether a thread that was stopped with these registers has to run on.
    pub(crate) fn has_to(&self, registers: &Registers, vdso: &Vdso) -> bool {
        self.runs < RUNS_MAX && vdso.is_read_by(registers)
    }

    /// It runs on now.
    pub(crate) fn begins(&mut self) {
        self.runs += 1;
        self.since = Some(Instant::now());
    }

    /// Whether it has run for long enough, and is to be stopped again. Said once.
    pub(crate) fn is_over(&mut self) -> bool {
        let long = (RUN_MIN * self.runs).min(RUN_MAX);
        let over = self.since.is_some_and(|since| since.elapsed() >= long);
        if over {
            self.since = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_vdso_is_where_its_functions_are() {
        let own = std::process::id().cast_signed();
        let found = place(own).expect("there is one");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
        let line = maps.lines().find(|line| line.ends_with("[vdso]"));
        let begins = line.expect("mapped").split(' ').next().expect("a range");
        assert_eq!(begins, format!("{:x}-{:x}", found.start, found.end));
    }

    #[test]
    fn what_computes_inside_runs_on_for_a_while() {
        let place = Range {
            start: 0x1000,
            end: 0x3000,
        };
        let of = |place: Option<Range>| Vdso {
            pid: 0,
            place: OnceCell::from(place),
        };
        let (vdso, none) = (of(Some(place)), of(None));
        let at = |rip: u64, orig_rax: u64| Registers {
            rip,
            orig_rax,
            ..Registers::default()
        };
        let mut one = RunsOn::default();
        assert!(!one.is_over());
        assert!(one.has_to(&at(0x1001, u64::MAX), &vdso));
        assert!(!one.has_to(&at(0x1001, u64::MAX), &none));
        assert!(!one.has_to(&at(0x1001, 228), &vdso), "it is in a call");
        assert!(!one.has_to(&at(0x3000, u64::MAX), &vdso));
        for _ in 0..RUNS_MAX {
            assert!(one.has_to(&at(0x1000, u64::MAX), &vdso));
            one.begins();
        }
        assert!(!one.has_to(&at(0x1000, u64::MAX), &vdso), "not for ever");
        while !one.is_over() {
            std::thread::yield_now();
        }
        assert!(!one.is_over(), "said once");
    }
}
