//! What the page asks of the daemon.

use serde::{Deserialize, Serialize};
use std::future::Future;
use tokio::sync::mpsc::Receiver;
use whim_monitor::feed::Update;

/// The user of the page, as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Greeting {
    /// The node that serves the page: the home of the processes that may be moved from here.
    pub node: String,
    pub uid: u32,
    pub user: String,
    /// Whether this user may drain nodes and move everybody's processes.
    pub admin: bool,
}

/// What the page may order. Each order corresponds to a command, and needs the rights of that command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    Migrate {
        pid: i32,
        to: String,
    },
    Bring {
        pid: i32,
        hold: bool,
    },
    Go {
        pid: i32,
    },
    Drain {
        node: String,
    },
    Undrain {
        node: String,
    },
    Why {
        pid: i32,
    },
    /// How the node that serves the page was in the last hours, at most [`HOURS_MAX`].
    Past {
        hours: u32,
    },
}

/// Nothing is kept for longer than a year.
pub const HOURS_MAX: u32 = 366 * 24;

/// How a node was over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Past {
    /// The middle of the period, in milliseconds since 1970.
    pub time_ms: u64,
    /// Threads that ran or waited for a CPU, as a part of its CPUs, on average.
    pub load: f64,
    /// Memory in use, as a part of all memory, on average.
    pub memory: f64,
}

/// The result of an order: sentences for the user, and the past if that was asked for, the earliest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Told {
    pub sentences: Vec<String>,
    pub past: Vec<Past>,
}

/// The daemon, as the page sees it.
pub trait Backend: Send + Sync + 'static {
    /// One user, with all of the user's rights.
    type Who: Clone + Send + Sync + 'static;

    fn greeting(&self, who: &Self::Who) -> Greeting;

    /// All rows, and from then on their changes, in batches that end with a tick. It ends when the receiver is
    /// dropped.
    fn follow(&self, who: Self::Who) -> Receiver<Vec<Update>>;

    /// Carries out an order with this user's rights; an error is a sentence for the user.
    fn order(
        &self,
        who: Self::Who,
        order: Order,
    ) -> impl Future<Output = Result<Told, String>> + Send;
}
