//! Accepts requests and connections from the daemon. This is done in a thread of its own, because
//! the main thread may be in the middle of a long step, and a connection that takes the place of a
//! lost one may be just what that step waits for.

use crate::connections::{ConnectionError, Next, Parties};
use crate::control::{self, Request};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use thiserror::Error;
use whim_journey::job::Command;
use whim_journey::message::ChannelRole;
use whim_net::{Channel, Door, Fresh};

/// Most connections whose handshakes go on at the same time.
const GREETINGS_MAX: usize = 8;
/// When no connection can be accepted, for want of descriptors, it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
pub enum ReceptionError {
    #[error("No descriptor for the reception is to be had: {0}")]
    Descriptor(#[from] Errno),
    #[error("The reception's thread cannot be made: {0}")]
    Thread(#[from] std::io::Error),
}

/// What has come for the main thread.
#[derive(Debug)]
pub(crate) enum Visit {
    Request(Request),
    /// The first connection of its kind.
    Connection(ChannelRole, Box<Fresh>),
    /// The connection to the next host that [`Reception::connect_onward`] was asked for.
    Onward(Next, Result<Box<Channel>, ConnectionError>),
}

/// Brings visits to the main thread, from any other thread.
#[derive(Clone, Debug)]
struct Teller {
    visits: Sender<Visit>,
    wake: Arc<EventFd>,
}

impl Teller {
    fn tell(&self, visit: Visit) {
        // Nobody listens any more when the supervisor ends.
        let _ = self.visits.send(visit);
        let _ = self.wake.write(1);
    }
}

/// The main thread's end.
#[derive(Debug)]
pub(crate) struct Reception {
    visits: Receiver<Visit>,
    teller: Teller,
    listener: UnixListener,
    /// New connections for the lines of calls and of pages.
    pub calls: Arc<Door>,
    pub pages: Arc<Door>,
}

/// State of the thread that accepts connections.
struct Porter {
    parties: Parties,
    teller: Teller,
    calls: Entrance,
    pages: Entrance,
    greetings: AtomicUsize,
}

/// Where connections for one line come in.
struct Entrance {
    door: Arc<Door>,
    /// The main thread has been told of the first connection.
    opened: AtomicBool,
}

impl Entrance {
    fn new(door: &Arc<Door>) -> Self {
        Self {
            door: Arc::clone(door),
            opened: AtomicBool::new(false),
        }
    }
}

impl Reception {
    /// Starts to accept what comes by this socket.
    ///
    /// # Errors
    /// No descriptor or thread to be had.
    pub(crate) fn open(listener: UnixListener, parties: Parties) -> Result<Self, ReceptionError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (sender, visits) = channel();
        let teller = Teller {
            visits: sender,
            wake,
        };
        listener.set_nonblocking(false)?;
        let reception = Self {
            visits,
            teller: teller.clone(),
            listener: listener.try_clone()?,
            calls: Door::new()?,
            pages: Door::new()?,
        };
        let porter = Arc::new(Porter {
            parties,
            teller,
            calls: Entrance::new(&reception.calls),
            pages: Entrance::new(&reception.pages),
            greetings: AtomicUsize::new(0),
        });
        let thread = std::thread::Builder::new().name("reception".into());
        thread.spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => porter.open(stream),
                    Err(error) if has_retired(&error) => return,
                    Err(error) => {
                        tracing::warn!(%error, "a connection of the daemon could not be taken");
                        std::thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        })?;
        Ok(reception)
    }

    /// Stops listening. A client that connects now is refused at once, and need not wait for our
    /// end to see that.
    pub(crate) fn retire(&self) {
        whim_sys::inherited::retire(&self.listener);
    }

    /// Connects to the next host, and brings the outcome as a visit. This is done in a thread of
    /// its own, because a next host that does not answer must not keep us from answering home.
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn connect_onward(
        &self,
        parties: &Parties,
        next: Next,
    ) -> Result<(), ReceptionError> {
        let (parties, teller) = (parties.clone(), self.teller.clone());
        let thread = std::thread::Builder::new().name("onward".into());
        thread.spawn(move || {
            let connected = parties.connect_onward(&next).map(Box::new);
            teller.tell(Visit::Onward(next, connected));
        })?;
        Ok(())
    }

    /// What has come since the last call.
    pub(crate) fn visits(&self) -> impl Iterator<Item = Visit> {
        let _ = self.teller.wake.read();
        std::iter::from_fn(|| self.visits.try_recv().ok())
    }
}

/// Whether we have stopped listening: then `accept` fails at once, and never waits for a
/// connection.
fn has_retired(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, WouldBlock};
    matches!(error.kind(), InvalidInput | WouldBlock)
}

impl AsFd for Reception {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.teller.wake.as_fd()
    }
}

impl Porter {
    fn open(self: &Arc<Self>, stream: UnixStream) {
        match control::read(stream) {
            Ok(request) => self.request(request),
            Err(error) => tracing::warn!(%error, "a command was refused"),
        }
    }

    fn request(self: &Arc<Self>, mut request: Request) {
        if request.command != Command::Channel {
            return self.teller.tell(Visit::Request(request));
        }
        let Some(stream) = request.connection.take() else {
            tracing::warn!("a connection was announced and did not come");
            return;
        };
        if self.greetings.fetch_add(1, Ordering::AcqRel) >= GREETINGS_MAX {
            self.greetings.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("a connection was refused: too many are being greeted");
            return;
        }
        // A peer that connects and says nothing keeps only itself waiting.
        let porter = Arc::clone(self);
        let thread = std::thread::Builder::new().name("greeting".into());
        let greeting = thread.spawn(move || {
            porter.greet(stream);
            porter.greetings.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = greeting {
            self.greetings.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!(%error, "a connection was refused: no thread is to be had");
        }
    }

    fn greet(&self, stream: TcpStream) {
        let (role, fresh) = match self.parties.accept(stream) {
            Ok((role, resume, channel)) => (role, Fresh { channel, resume }),
            Err(error) => {
                tracing::warn!(%error, "a connection was refused");
                return;
            }
        };
        let entrance = match role {
            ChannelRole::Calls => &self.calls,
            ChannelRole::Pages => &self.pages,
            ChannelRole::Source => {
                return self.teller.tell(Visit::Connection(role, Box::new(fresh)));
            }
        };
        // A connection that takes the place of another one may be the first to get here.
        if !entrance.opened.swap(true, Ordering::AcqRel) || fresh.resume.is_none() {
            self.teller.tell(Visit::Connection(role, Box::new(fresh)));
        } else {
            entrance.door.bring(fresh);
        }
    }
}
