//! The history of this node, as far as it is known, and where it is kept.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use whim_control::history::{Keep, MoveRow};

use crate::locks::lock;
use crate::past::history_file::HistoryFile;
use crate::past::recorder::Recorder;

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "history.redb";

/// What is known, and where it is kept.
#[derive(Debug)]
pub(crate) struct History {
    pub(super) keep: Keep,
    pub(super) recorder: Mutex<Recorder>,
    pub(super) file: Mutex<HistoryFile>,
    /// Whether the last write failed, which was reported then.
    pub(super) failing: AtomicBool,
}

impl History {
    /// The history in this state directory; the file is opened when there is something to write.
    #[must_use]
    pub(crate) fn new(state: &std::path::Path, keep: Option<Keep>) -> Self {
        let usual = || Keep::usual(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
        let keep = keep.unwrap_or_else(usual);
        Self {
            keep,
            recorder: Mutex::default(),
            file: Mutex::new(HistoryFile::new(state.join(FILE), keep)),
            failing: AtomicBool::new(false),
        }
    }

    /// Notes a move that has ended.
    pub(crate) fn note(&self, row: MoveRow) {
        if self.keep != Keep::Off && !lock(&self.recorder).note(row) {
            tracing::debug!("more moves in a minute than the history takes");
        }
    }
}
