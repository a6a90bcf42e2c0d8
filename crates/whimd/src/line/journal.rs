//! The journal of a journey, which its home supervisor writes. As its user may have made it up, it is bounded.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use whim_journey::job::{Event, MoveReport};
use whim_model::CpuTime;
use whim_monitor::plain;
use whim_sys::foreign::Limit;

use crate::line::hearsay;

/// No journal is read beyond this, in bytes.
pub(crate) const JOURNAL_MAX: u64 = 16 << 20;
/// Different calls, and different reasons to come home, that are kept of one journal.
const CALLS_MAX: usize = 1024;
const REASONS_MAX: usize = 64;
/// Limits that a supervisor raises.
const RAISED_MAX: usize = 16;

/// A limit of the process that was raised for its departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raised {
    pub before: Limit,
    pub raised: Limit,
}

/// What a journal says when its supervisor is gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JournalSummary {
    pub ended: Option<(String, Option<i32>)>,
    pub commits: u32,
    pub acknowledged: u32,
    pub done: u32,
    pub last_host: Option<String>,
    /// Why the process came home, if nobody asked for it.
    pub came_home_for: Option<String>,
    pub last_move: Option<MoveReport>,
    pub epoch: u32,
    /// Forwarded calls by name, of the stays away that have ended.
    pub calls: BTreeMap<String, u64>,
    /// Limits of the process that its supervisor had raised and not yet put back when it ended.
    pub raised: Vec<Raised>,
    /// CPU time that the process has used away. The last line about it counts, as it holds the sum.
    pub cpu_away: CpuTime,
    /// What called the process home, and how often.
    pub homeward: BTreeMap<String, u32>,
}

/// Reads a journal; damaged lines (a full disk, a crash in the middle) are passed over. Its user decides how
/// long it is, up to the limit, so it is read on a thread where it holds up nothing that is done for others.
pub(crate) async fn read_journal(path: PathBuf) -> JournalSummary {
    let read = tokio::task::spawn_blocking(move || read_now(&path));
    read.await.unwrap_or_default()
}

fn read_now(path: &Path) -> JournalSummary {
    fs::File::open(path).map_or_else(
        |_| JournalSummary::default(),
        |file| summarize(BufReader::new(file.take(JOURNAL_MAX))),
    )
}

pub(crate) fn summarize(journal: impl BufRead) -> JournalSummary {
    let mut read = JournalSummary::default();
    for line in journal.split(b'\n').map_while(Result::ok) {
        if let Ok(event) = serde_json::from_slice(&line) {
            read.take(event);
        }
    }
    read
}

impl JournalSummary {
    /// Takes in one line: the journey's user may have made it up, as everything that a supervisor says.
    fn take(&mut self, event: Event) {
        match event {
            Event::Commit { epoch, to } => {
                self.commits = self.commits.saturating_add(1);
                self.epoch = self.epoch.max(epoch);
                self.last_host = hearsay::node(&to);
            }
            Event::Raised {
                resource,
                before,
                raised,
            } if self.raised.len() < RAISED_MAX => {
                let limit = |(soft, hard)| Limit {
                    resource,
                    soft,
                    hard,
                };
                self.raised.push(Raised {
                    before: limit(before),
                    raised: limit(raised),
                });
            }
            // The supervisor puts the limits back before it notes either of these events.
            Event::Acknowledged { .. } => {
                self.acknowledged = self.acknowledged.saturating_add(1);
                self.raised.clear();
            }
            Event::Refused { .. } => self.raised.clear(),
            Event::Done { report } => {
                let report = hearsay::report(report);
                self.done = self.done.saturating_add(1);
                self.last_host = Some(report.to.clone());
                self.came_home_for.clone_from(&report.reason);
                self.last_move = Some(report);
            }
            Event::Calls { calls } => self.add_calls(calls),
            Event::CpuAway { time } => self.cpu_away = time,
            Event::Homeward { reason } => {
                let reason = plain::sentence(&reason);
                if self.homeward.len() < REASONS_MAX || self.homeward.contains_key(&reason) {
                    let times = self.homeward.entry(reason).or_default();
                    *times = times.saturating_add(1);
                }
            }
            Event::Ended { reason, status } => {
                self.ended = Some((plain::sentence(&reason), status));
            }
            _ => {}
        }
    }

    /// Adds forwarded calls.
    pub(crate) fn add_calls(&mut self, calls: Vec<(String, u64)>) {
        for (call, count) in calls {
            let call = hearsay::call(&call);
            if self.calls.len() < CALLS_MAX || self.calls.contains_key(&call) {
                let sum = self.calls.entry(call).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_journal_makes_up_is_bounded() {
        let mut read = JournalSummary::default();
        let calls = |count: usize| (0..count).map(|n| (format!("call{n}"), u64::MAX)).collect();
        read.take(Event::Calls {
            calls: calls(CALLS_MAX),
        });
        assert_eq!(read.calls.len(), CALLS_MAX);
        read.take(Event::Calls {
            calls: calls(CALLS_MAX + 1),
        });
        assert_eq!(read.calls.len(), CALLS_MAX);
        assert_eq!(read.calls["call0"], u64::MAX);
        for number in 0..=REASONS_MAX {
            let reason = format!("{number}\u{1b}[2J");
            read.take(Event::Homeward { reason });
        }
        assert_eq!(read.homeward.len(), REASONS_MAX);
        assert_eq!(read.homeward["0 [2J"], 1);
        for _ in 0..=RAISED_MAX {
            read.take(Event::Raised {
                resource: 7,
                before: (1, 1),
                raised: (2, 2),
            });
        }
        assert_eq!(read.raised.len(), RAISED_MAX);
        let to = "n2 \u{7}".to_owned();
        read.take(Event::Commit { epoch: 1, to });
        assert_eq!(read.last_host, None, "no node is called that");
    }

    #[test]
    fn a_journal_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("j1.journal");
        let ended = Event::Ended {
            reason: "It ended".into(),
            status: Some(0),
        };
        let last = serde_json::to_vec(&ended).expect("encoded");
        let limit = usize::try_from(JOURNAL_MAX).expect("small");
        let end = |length: usize| {
            let damaged = vec![b'x'; length - last.len() - 1];
            let bytes = [&damaged[..], b"\n", &last].concat();
            fs::write(&path, bytes).expect("written");
            read_now(&path).ended
        };
        assert_eq!(end(limit), Some(("It ended".into(), Some(0))));
        assert_eq!(end(limit + 1), None);
    }
}
