//! What needs a TLS session: keys, and descriptions of nodes. Few sessions run at a time, and a pause follows
//! each in which keys were agreed on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use whim_net::NodeName;

use crate::ground::Ground;
use crate::members::cluster::CallError;
use crate::members::gossip::About;

/// Sessions at the same time.
const SESSIONS_MAX: usize = 16;
/// After keys were agreed on with a node, no new ones are agreed on for this long, whatever asks for them.
/// Each further time that no datagram followed, the pause is twice as long.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// After this time a node that was not reached is tried again; each further pause is twice as long.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// How many times keys are agreed on in vain before that is worth a warning.
const IN_VAIN: u32 = 3;

/// How a session ended.
#[derive(Debug)]
pub(super) enum Upshot {
    Keys {
        node: NodeName,
        result: Result<(), CallError>,
    },
    About {
        digest: u64,
        result: Result<About, CallError>,
    },
}

#[derive(Debug, Default)]
struct Setup {
    running: bool,
    /// Not before this time.
    next: Duration,
    /// How many sessions have ended since a datagram came from the node.
    tried: u32,
}

pub(super) struct Setups {
    ground: Arc<Ground>,
    upshots: mpsc::UnboundedSender<Upshot>,
    sessions: Arc<Semaphore>,
    by_node: HashMap<NodeName, Setup>,
    /// Digests whose descriptions were asked for, and have not come.
    asked: HashSet<u64>,
}

impl Setups {
    pub(super) fn new(ground: Arc<Ground>, upshots: mpsc::UnboundedSender<Upshot>) -> Self {
        Self {
            ground,
            upshots,
            sessions: Arc::new(Semaphore::new(SESSIONS_MAX)),
            by_node: HashMap::new(),
            asked: HashSet::new(),
        }
    }

    /// Agrees on keys with a node, unless that is being done or was done just now.
    pub(super) fn want(&mut self, node: &NodeName) {
        let setup = self.by_node.entry(node.clone()).or_default();
        if setup.running || self.ground.clock() < setup.next {
            return;
        }
        setup.running = true;
        let (ground, node) = (Arc::clone(&self.ground), node.clone());
        let (sessions, upshots) = (Arc::clone(&self.sessions), self.upshots.clone());
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _permit = sessions.acquire_owned().await;
            let result = ground.membership().agree(&node).await;
            // Without a receiver the daemon has ended.
            let _ = upshots.send(Upshot::Keys { node, result });
        });
    }

    pub(super) fn done(&mut self, node: &NodeName, succeeded: bool) {
        let Some(setup) = self.by_node.get_mut(node) else {
            return;
        };
        setup.running = false;
        setup.tried += 1;
        let (first, most) = if succeeded {
            (PAUSE, PAUSE_MAX)
        } else {
            (RETRY, RETRY_MAX)
        };
        // The others refuse us, but a later list may name us again.
        let (first, most) = match self.ground.cluster().removed() {
            Some(_) => (PAUSE_MAX, PAUSE_MAX),
            None => (first, most),
        };
        let doublings = (setup.tried - 1).min(8);
        setup.next = self.ground.clock() + (first * (1 << doublings)).min(most);
        if succeeded && setup.tried == IN_VAIN {
            tracing::warn!(
                %node,
                "it is reached by TCP, but none of its datagrams comes: is the port open for UDP, too?"
            );
        }
    }

    /// A datagram came from the node: new keys, if they are wanted, need not wait longer than a first time.
    pub(super) fn heard(&mut self, node: &NodeName) {
        if let Some(setup) = self.by_node.get_mut(node)
            && setup.tried > 0
        {
            setup.tried = 0;
            setup.next = setup.next.min(self.ground.clock() + PAUSE);
        }
    }

    pub(super) fn forget(&mut self, node: &NodeName) {
        self.by_node.remove(node);
    }

    /// Asks a node for the description that has this digest.
    pub(super) fn ask_about(&mut self, node: &NodeName, digest: u64) {
        if !self.asked.insert(digest) {
            return;
        }
        let (ground, node) = (Arc::clone(&self.ground), node.clone());
        let (sessions, upshots) = (Arc::clone(&self.sessions), self.upshots.clone());
        tokio::spawn(async move {
            let _permit = sessions.acquire_owned().await;
            let result = ground.membership().about(node.as_str()).await;
            let _ = upshots.send(Upshot::About { digest, result });
        });
    }

    /// The description came, or not; after the next word of a node we ask again if need be.
    pub(super) fn told(&mut self, digest: u64) {
        self.asked.remove(&digest);
    }
}
