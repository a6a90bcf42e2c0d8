//! What `ps` at home shows of the program: its arguments and environment, which some programs write over
//! (`setproctitle`).
//!
//! Home keeps these pages in the deputy's memory. A change is told before the next call that is forwarded
//! after it, so that who hears of that call's effect finds it in /proc/PID/cmdline. A program that makes many
//! calls is not looked at for each of them, and one that makes none is with each heartbeat. Write protection
//! of these pages instead was rejected: they are the first ones of the stack, and a local call whose buffer
//! is there would fail.

use std::time::{Duration, Instant};
use whim_journey::message::TITLE_MAX;
use whim_model::MemoryLayout;
use whim_sys::process_vm;

/// To look takes a part of a call's time, so in such a time it is done for so many calls at most.
const SPAN: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 4;

/// What home was told.
#[derive(Debug)]
pub(crate) struct Title {
    address: u64,
    length: usize,
    told: Vec<u8>,
    /// When the present span of time has begun, and how many looks were for calls since then.
    span: Instant,
    looks: u32,
}

impl Title {
    #[must_use]
    pub(crate) fn of(layout: &MemoryLayout) -> Self {
        let address = layout.arg_start;
        let end = if layout.env_start >= layout.arg_end {
            layout.env_end.max(layout.arg_end)
        } else {
            layout.arg_end
        };
        let length = usize::try_from(end.saturating_sub(address)).unwrap_or(0);
        Self {
            address,
            length: length.min(TITLE_MAX),
            told: Vec::new(),
            span: Instant::now(),
            looks: 0,
        }
    }

    /// Whether another call may be looked for.
    pub(crate) fn may_look(&mut self) -> bool {
        if self.span.elapsed() >= SPAN {
            (self.span, self.looks) = (Instant::now(), 0);
        }
        self.looks += 1;
        self.looks <= LOOKS_MAX
    }

    /// What home has to be told: where the program has changed its arguments and environment since it was looked at last,
    /// and to what.
    pub(crate) fn look(&mut self, process: i32) -> Option<(u64, Vec<u8>)> {
        if self.length == 0 {
            return None;
        }
        let mut now = vec![0; self.length];
        // Memory that it has unmapped shows nothing at home either.
        let read = process_vm::read(process, self.address, &mut now).unwrap_or(0);
        now.truncate(read);
        self.change(now)
    }

    /// Where the bytes that are there now differ from those that home was told of, and which these are.
    fn change(&mut self, now: Vec<u8>) -> Option<(u64, Vec<u8>)> {
        let pairs = || now.iter().zip(&self.told);
        let same = |(now, told): &(&u8, &u8)| now == told;
        let begin = pairs().take_while(same).count();
        let longer = now.len() > self.told.len();
        let end = match longer {
            true => now.len(),
            false => pairs()
                .rposition(|pair| !same(&pair))
                .map_or(0, |last| last + 1),
        };
        let change = (begin < end).then(|| (self.address + begin as u64, now[begin..end].to_vec()));
        if change.is_some() {
            self.told = now;
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_and_nothing_else() {
        let layout = MemoryLayout {
            arg_start: 100,
            arg_end: 104,
            env_start: 104,
            env_end: 108,
            ..MemoryLayout::default()
        };
        let mut title = Title::of(&layout);
        assert_eq!(title.length, 8);
        let whole = title.change(b"ab\0cd\0e\0".to_vec());
        assert_eq!(whole, Some((100, b"ab\0cd\0e\0".to_vec())));
        assert_eq!(title.change(b"ab\0cd\0e\0".to_vec()), None);
        let part = title.change(b"ab\0xy\0e\0".to_vec());
        assert_eq!(part, Some((103, b"xy".to_vec())));
        assert_eq!(title.change(b"ab".to_vec()), None);
        let endless = MemoryLayout {
            env_end: u64::MAX,
            ..layout
        };
        assert_eq!(Title::of(&endless).length, TITLE_MAX);
    }
}
