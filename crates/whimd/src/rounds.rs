//! What this node does each second, and what it does once.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use whim_machine::sensors::Report;
use whim_machine::sensors::speed::{self, Idle, Speed};

use crate::balancing;
use crate::daemon::Daemon;
use crate::host::Host;
use crate::host::hosting;
use crate::host::share;
use crate::line::directories::{self, Aside};
use crate::members::pulse::OwnNode;
use crate::moves::watching;

impl OwnNode for Daemon {
    fn report(&self) -> Report {
        self.host().report()
    }

    fn decides(&self) -> bool {
        !self.moves().candidates().is_empty()
    }
}

/// Measures this node's speed as soon as it has nothing else to do, unless the speed is known.
pub(crate) async fn learn_speed(host: Arc<Host>) {
    let mut idle = Idle::default();
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while host.sensors().speed().estimated {
        interval.tick().await;
        let load = host.sensors().own_load();
        if !idle.sample(load) {
            continue;
        }
        let Ok(value) = tokio::task::spawn_blocking(speed::measure).await else {
            return;
        };
        host.ground()
            .settings()
            .save(speed::FILE, &speed::note(&speed::cpu(), value));
        let estimated = false;
        host.sensors().set_speed(Speed { value, estimated });
        tracing::info!(value, "the speed of a core was measured");
    }
}

/// Runs for ever: each second it sees to sensors, processes and supervisors.
pub(crate) async fn each_second(daemon: Arc<Daemon>, looked: Arc<Notify>) {
    // Supervisors' directories that are left aside, and removed bit by bit.
    let aside = Arc::new(Aside::default());
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let (shared, aside) = (Arc::clone(&daemon), Arc::clone(&aside));
        let seen = tokio::task::spawn_blocking(move || {
            shared.sensors().sample(shared.clock_ms());
            share::hold(shared.settings(), share::of_guests(&shared.config()));
            shared.moves().census().refresh();
            let directory = shared.settings().supervisors();
            aside.clear(&directory, directories::STEP_MAX);
        });
        if let Err(error) = seen.await {
            tracing::error!(%error, "looking at the processes failed");
        }
        watching::refresh_all(daemon.moves()).await;
        balancing::round(&daemon).await;
        looked.notify_one();
        hosting::sweep(daemon.host()).await;
    }
}
