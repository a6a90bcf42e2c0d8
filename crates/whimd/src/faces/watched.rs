//! What all who watch this cluster from here see: one picture for all of them.

use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, watch};
use whim_control::protocol::{NodeRow, ProcessRow};

use crate::locks::lock;

/// All rows at one moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) time_ms: u64,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) processes: Vec<ProcessRow>,
}

/// Who watches, and what they are told.
#[derive(Debug)]
pub(crate) struct Watched {
    /// `None`: nobody watches.
    picture: Mutex<Option<watch::Sender<Arc<Picture>>>>,
    /// Rung when something has changed that should be seen at once: a move has ended.
    again: Arc<Notify>,
}

impl Watched {
    #[must_use]
    pub(crate) fn new(again: Arc<Notify>) -> Self {
        let picture = Mutex::default();
        Self { picture, again }
    }

    /// The pictures from now on. True if nobody has watched before, so somebody has to gather them.
    pub(super) fn watch(&self) -> (watch::Receiver<Arc<Picture>>, bool) {
        let mut picture = lock(&self.picture);
        if let Some(sender) = &*picture {
            let mut receiver = sender.subscribe();
            if receiver.borrow().time_ms > 0 {
                // There is a picture already: it is told at once.
                receiver.mark_changed();
            }
            return (receiver, false);
        }
        let (sender, receiver) = watch::channel(Arc::default());
        *picture = Some(sender);
        (receiver, true)
    }

    /// Waits until something has changed that should be seen at once.
    pub(super) async fn news(&self) {
        self.again.notified().await;
    }

    /// Tells those who watch; false when nobody does any more.
    pub(super) fn tell(&self, picture: Picture) -> bool {
        let mut sender = lock(&self.picture);
        let told = sender
            .as_ref()
            .is_some_and(|sender| sender.send(Arc::new(picture)).is_ok());
        if !told {
            *sender = None;
        }
        told
    }
}
