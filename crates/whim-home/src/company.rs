//! What a host hears of us while we wait for a thread of the deputy, whose control group may be frozen.

use crate::connections::{Connections, clocks};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};
use whim_journey::lease::heartbeat_interval;
use whim_journey::message::ToGuest;
use whim_net::ChannelError;

/// The connections to the host of a guest, while a thread of the deputy is waited for.
#[derive(Debug)]
pub(crate) struct Company {
    connections: Connections,
    every: Duration,
    beaten: Instant,
}

impl Company {
    fn new(connections: Connections, lease: Option<Duration>) -> Self {
        Self {
            connections,
            every: heartbeat_interval(lease),
            beaten: Instant::now(),
        }
    }

    /// Lets the host hear of us and us of it; has the guest stand still if the group is `frozen`. What the
    /// guest asks for meanwhile is kept until we are back in the loop.
    ///
    /// # Errors
    /// The host breaks the protocol.
    pub(crate) fn keep(&mut self, frozen: bool) -> Result<(), ChannelError> {
        let is_news = frozen && !self.connections.told_frozen;
        let frozen = is_news.then_some(ToGuest::Frozen { frozen: true });
        let calls = &self.connections.calls;
        let beat = self.beaten.elapsed() >= self.every && calls.is_connected();
        let beat = beat.then(|| ToGuest::Heartbeat { clocks: clocks() });
        for message in frozen.into_iter().chain(beat) {
            let queued = self.connections.queue(&message, &[]);
            queued.map_err(|error| ChannelError::Protocol(error.to_string()))?;
            self.connections.told_frozen |= is_news;
            self.beaten = Instant::now();
        }
        let Connections { calls, pages, .. } = &mut self.connections;
        for line in [calls, pages] {
            line.keep();
            line.flush()?;
        }
        Ok(())
    }
}

/// The connections of a stay. They are the deputy's while it is waited for, and nobody else uses them
/// then.
#[derive(Debug)]
pub(crate) struct Lent(Option<Box<Company>>);

impl Lent {
    #[must_use]
    pub(crate) fn new(connections: Connections, lease: Option<Duration>) -> Self {
        Self(Some(Box::new(Company::new(connections, lease))))
    }

    pub(crate) fn lend(&mut self) -> Option<Box<Company>> {
        self.0.take()
    }

    pub(crate) fn give_back(&mut self, company: Option<Box<Company>>) {
        self.0 = company.or(self.0.take());
    }

    /// Notes whether the guest knows of a frozen group; returns whether it knew before.
    pub(crate) fn told_frozen(&mut self, frozen: bool) -> bool {
        self.0
            .as_mut()
            .is_some_and(|company| std::mem::replace(&mut company.connections.told_frozen, frozen))
    }

    /// Whether the guest was told to stand still because the group is frozen.
    #[must_use]
    pub(crate) fn is_told_frozen(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|company| company.connections.told_frozen)
    }
}

impl Deref for Lent {
    type Target = Connections;

    fn deref(&self) -> &Connections {
        // `Away::accompanied` alone lends them, and takes them back before anything else happens.
        &self.0.as_ref().expect("not lent now").connections
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Connections {
        // As in `deref`.
        &mut self.0.as_mut().expect("not lent now").connections
    }
}
