//! The configuration as it is written; a key that is missing keeps its earlier value.

use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Balance, Config, Cpu, Guests, History, Lease, Metrics, Owner, Web};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    listen: Option<SocketAddr>,
    advertise: Option<Vec<String>>,
    lease: Option<Lease>,
    allow_root: Option<bool>,
    guests: Option<WrittenGuests>,
    cpu: Option<WrittenCpu>,
    labels: Option<Vec<String>>,
    balance: Option<WrittenBalance>,
    discover: Option<bool>,
    web: Option<WrittenWeb>,
    metrics: Option<Metrics>,
    history: Option<History>,
    owner: Option<bool>,
    owner_idle: Option<u64>,
    owner_terminals: Option<Vec<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGuests {
    max: Option<u32>,
    per_user: Option<u32>,
    memory_percent: Option<u8>,
    pids: Option<u32>,
    own_vdso: Option<bool>,
    uid_start: Option<u32>,
    uid_count: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCpu {
    speed: Option<f64>,
    hide: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBalance {
    enabled: Option<bool>,
    uid_min: Option<u32>,
    sessions: Option<Vec<String>>,
    beyond_job: Option<bool>,
    fair: Option<bool>,
    ask_above: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenWeb {
    enabled: Option<bool>,
    listen: Option<SocketAddr>,
    names: Option<Vec<String>>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl WrittenWeb {
    fn over(self, base: Web) -> Web {
        Web {
            enabled: self.enabled.unwrap_or(base.enabled),
            listen: self.listen.or(base.listen),
            names: self.names.unwrap_or(base.names),
            certificate: self.certificate.or(base.certificate),
            key: self.key.or(base.key),
        }
    }
}

impl WrittenGuests {
    fn over(self, base: Guests) -> Guests {
        Guests {
            max: self.max.unwrap_or(base.max),
            per_user: self.per_user.unwrap_or(base.per_user),
            memory_percent: self.memory_percent.unwrap_or(base.memory_percent),
            pids: self.pids.unwrap_or(base.pids),
            own_vdso: self.own_vdso.unwrap_or(base.own_vdso),
            uid_start: self.uid_start.unwrap_or(base.uid_start),
            uid_count: self.uid_count.unwrap_or(base.uid_count),
        }
    }
}

impl WrittenBalance {
    fn over(self, base: Balance) -> Balance {
        Balance {
            enabled: self.enabled.unwrap_or(base.enabled),
            uid_min: self.uid_min.unwrap_or(base.uid_min),
            sessions: self.sessions.unwrap_or(base.sessions),
            beyond_job: self.beyond_job.unwrap_or(base.beyond_job),
            fair: self.fair.unwrap_or(base.fair),
            ask_above: self.ask_above.unwrap_or(base.ask_above),
        }
    }
}

impl Written {
    /// The values that are written, and those of `base` for the rest.
    pub(super) fn over(self, base: Config) -> Config {
        Config {
            listen: self.listen.unwrap_or(base.listen),
            advertise: self.advertise.unwrap_or(base.advertise),
            lease: self.lease.unwrap_or(base.lease),
            allow_root: self.allow_root.unwrap_or(base.allow_root),
            guests: match self.guests {
                Some(guests) => guests.over(base.guests),
                None => base.guests,
            },
            cpu: match self.cpu {
                Some(cpu) => Cpu {
                    speed: cpu.speed.or(base.cpu.speed),
                    hide: cpu.hide.unwrap_or(base.cpu.hide),
                },
                None => base.cpu,
            },
            labels: self.labels.unwrap_or(base.labels),
            discover: self.discover.unwrap_or(base.discover),
            balance: match self.balance {
                Some(balance) => balance.over(base.balance),
                None => base.balance,
            },
            web: match self.web {
                Some(web) => web.over(base.web),
                None => base.web,
            },
            metrics: self.metrics.unwrap_or(base.metrics),
            history: self.history.unwrap_or(base.history),
            owner: Owner {
                enabled: self.owner.unwrap_or(base.owner.enabled),
                idle: self.owner_idle.unwrap_or(base.owner.idle),
                terminals: self.owner_terminals.unwrap_or(base.owner.terminals),
            },
        }
    }
}
