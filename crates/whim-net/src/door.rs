//! Where a line gets a new connection from when its connection is lost.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use whim_journey::message::Resume;

use crate::channel::{Channel, ChannelError};

/// The most connections that wait to be taken; the oldest gives way to a new one.
pub const WAITING_MAX: usize = 4;
/// Pauses between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(320);

/// A connection that may take the place of a lost one.
#[derive(Debug)]
pub struct Fresh {
    pub channel: Channel,
    /// The other side's request to resume, if it has dialed.
    pub resume: Option<Resume>,
}

/// Fresh connections on their way from the thread that made them.
#[derive(Debug)]
pub struct Door {
    fresh: Mutex<VecDeque<Fresh>>,
    waiting: AtomicBool,
    /// The other side will not come back.
    gone: AtomicBool,
    closed: AtomicBool,
    wake: EventFd,
}

/// Makes one connection, within the time given.
pub type Connect = Arc<dyn Fn(Duration) -> Result<Channel, ChannelError> + Send + Sync>;

impl Door {
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> Result<Arc<Self>, Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Arc::new(Self {
            fresh: Mutex::default(),
            waiting: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: EventFd::from_value_and_flags(0, flags)?,
        }))
    }

    /// Brings a connection for the line that waits for it.
    pub fn bring(&self, fresh: Fresh) {
        let mut list = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= WAITING_MAX {
            list.pop_front();
        }
        list.push_back(fresh);
        self.waiting.store(true, Ordering::Release);
        drop(list);
        self.ring();
    }

    fn ring(&self) {
        // This can only fail when the counter is at its limit, and then nobody sleeps.
        let _ = self.wake.write(1);
    }

    /// Whether the other side has ended, as its node says.
    #[must_use]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether a connection waits to be taken.
    #[must_use]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The connections that wait.
    #[must_use]
    pub fn take(&self) -> VecDeque<Fresh> {
        let mut list = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.store(false, Ordering::Release);
        let _ = self.wake.read();
        std::mem::take(&mut list)
    }

    /// Tells the dialing thread that nobody waits for a connection any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Tries to connect until that works, the other side is gone, or nobody waits for it any more. It does so
    /// in a thread of its own, because the line has other work. The first try may take `first`; later tries may
    /// take longer, up to `longest`. Returns false if no thread can be started.
    pub(crate) fn dial(
        self: &Arc<Self>,
        connect: &Connect,
        (first, longest): (Duration, Duration),
    ) -> bool {
        let (door, connect) = (Arc::clone(self), Arc::clone(connect));
        let run = move || {
            let (mut within, mut pause) = (first, PAUSE_MIN);
            while !door.closed.load(Ordering::Acquire) {
                match connect(within) {
                    Ok(channel) => {
                        let resume = None;
                        return door.bring(Fresh { channel, resume });
                    }
                    Err(ChannelError::Gone) => {
                        door.gone.store(true, Ordering::Release);
                        door.waiting.store(true, Ordering::Release);
                        return door.ring();
                    }
                    Err(error) => tracing::debug!(%error, "no new connection yet"),
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
                within = (within * 2).min(longest);
            }
        };
        let thread = std::thread::Builder::new().name("dialing".into());
        thread.spawn(run).is_ok()
    }
}

impl AsFd for Door {
    /// Readable while a connection waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
