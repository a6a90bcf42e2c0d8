//! The metrics themselves: the name and meaning of each, and what sets it.

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use whim_journey::cause::Cause;
use whim_journey::job::Phase;

use crate::exposition::{self, Format};
use crate::labels::{GuestState, Order, Place, Reach, Refusal, State, Unadmitted, Verdict};
use crate::snapshot::Snapshot;

/// Upper ends of the histograms' buckets, in seconds. A freeze of a small process takes some milliseconds; a
/// whole move of a large process over a slow link takes minutes.
const FREEZE_BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
const MOVE_BUCKETS: [f64; 12] = [
    0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

type Number = Gauge<f64, AtomicU64>;
/// A gauge whose value may be unknown: it has no series then.
#[derive(Clone, Debug, Default)]
struct Maybe(Arc<Mutex<Option<f64>>>);

impl Maybe {
    fn set(&self, value: Option<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    fn value(&self) -> Option<f64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for Maybe {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        match self.value() {
            Some(value) => encoder.encode_gauge(&value),
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.value().is_none()
    }
}

macro_rules! label_sets {
    ($($name:ident { $($field:ident: $kind:ty),+ })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($field: $kind),+ }
    )+};
}

label_sets! {
    OfVersion { version: String }
    OfCause { cause: &'static str }
    OfPhase { phase: &'static str }
    OfRefusal { reason: Refusal }
    OfUnadmitted { reason: Unadmitted }
    OfVerdict { verdict: Verdict }
    OfGuest { state: GuestState }
    OfProcess { state: State, place: Place }
    OfMember { reach: Reach }
    OfOrder { order: Order }
}

impl From<Cause> for OfCause {
    fn from(cause: Cause) -> Self {
        Self {
            cause: cause.name(),
        }
    }
}

impl From<Phase> for OfPhase {
    fn from(phase: Phase) -> Self {
        Self {
            phase: phase.name(),
        }
    }
}

/// Registers metrics one after the other.
struct Register<'a>(&'a mut Registry);

impl Register<'_> {
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, unit: &str, help: &str) -> M {
        self.keep(M::default(), name, unit, help)
    }

    fn keep<M: Metric + Clone>(&mut self, metric: M, name: &str, unit: &str, help: &str) -> M {
        if unit.is_empty() {
            self.0.register(name, help, metric.clone());
        } else {
            let unit = Unit::Other(unit.to_owned());
            self.0.register_with_unit(name, help, unit, metric.clone());
        }
        metric
    }

    /// A counter for each value of a label, so that all of them exist from the beginning. A counter that only
    /// appears with the first failure would show no increase.
    fn counts<L>(
        &mut self,
        all: impl Iterator<Item = L>,
        name: &str,
        help: &str,
    ) -> Family<L, Counter>
    where
        L: Clone + Hash + Eq + EncodeLabelSet + Send + Sync + std::fmt::Debug + 'static,
    {
        let family: Family<L, Counter> = self.add(name, "", help);
        all.for_each(|labels| drop(family.get_or_create(&labels)));
        family
    }
}

/// Moves of this node's processes, as they happen.
#[derive(Clone, Debug)]
struct MoveCounters {
    begun: Family<OfCause, Counter>,
    done: Family<OfCause, Counter>,
    failed: Family<OfCause, Counter>,
    failed_in: Family<OfPhase, Counter>,
    refused: Family<OfRefusal, Counter>,
    bytes: Counter,
    freeze: Histogram,
    duration: Histogram,
}

impl MoveCounters {
    fn register(registry: &mut Register<'_>) -> Self {
        let causes = || Cause::ALL.into_iter().map(OfCause::from);
        let phases = Phase::ALL.into_iter().map(OfPhase::from);
        let refusals = Refusal::ALL.iter();
        let refusals = refusals.map(|reason| OfRefusal { reason: *reason });
        Self {
            begun: registry.counts(
                causes(),
                "moves_begun",
                "Moves of this node's processes that were begun",
            ),
            done: registry.counts(
                causes(),
                "moves_done",
                "Moves of this node's processes that were done",
            ),
            failed: registry.counts(
                causes(),
                "moves_failed",
                "Moves of this node's processes that failed; each process is where it was",
            ),
            failed_in: registry.counts(
                phases,
                "moves_failed_in_phase",
                "The same moves, by the phase in which they failed",
            ),
            refused: registry.counts(
                refusals,
                "moves_refused",
                "Requests to move that were refused before a move began",
            ),
            bytes: registry.add(
                "move_sent",
                "bytes",
                "What the moves that were done have carried, as home counts it",
            ),
            freeze: registry.keep(
                Histogram::new(FREEZE_BUCKETS),
                "move_freeze",
                "seconds",
                "How long a process stood still in a move that was done",
            ),
            duration: registry.keep(
                Histogram::new(MOVE_BUCKETS),
                "move_duration",
                "seconds",
                "How long a move took that was done",
            ),
        }
    }
}

/// Events that are counted as they happen.
#[derive(Clone, Debug)]
pub struct Counters {
    moves: MoveCounters,
    admitted: Counter,
    unadmitted: Family<OfUnadmitted, Counter>,
    looks: Counter,
    verdicts: Family<OfVerdict, Counter>,
    links_lost: Counter,
    links_healed: Counter,
    history_lost: Counter,
}

impl Counters {
    fn register(registry: &mut Register<'_>) -> Self {
        let unadmitted = Unadmitted::ALL.iter();
        let unadmitted = unadmitted.map(|reason| OfUnadmitted { reason: *reason });
        let verdicts = Verdict::ALL.iter();
        let verdicts = verdicts.map(|verdict| OfVerdict { verdict: *verdict });
        Self {
            moves: MoveCounters::register(registry),
            admitted: registry.add("guests_admitted", "", "Guests that this node admitted"),
            unadmitted: registry.counts(
                unadmitted,
                "guests_refused",
                "Guests that this node did not admit",
            ),
            looks: registry.add(
                "balancer_looks",
                "",
                "Looks of the balancer, one each second",
            ),
            verdicts: registry.counts(
                verdicts,
                "balancer_decisions",
                "What the balancer decided, about each program at each look",
            ),
            links_lost: registry.add(
                "links_lost",
                "",
                "Times that another member was no longer reached",
            ),
            links_healed: registry.add("links_healed", "", "Times that a member was reached again"),
            history_lost: registry.add(
                "history_writes_failed",
                "",
                "Minutes of history that could not be written",
            ),
        }
    }

    /// A move begins: a host is asked for room, or the process is called home.
    pub fn move_begun(&self, cause: Cause) {
        self.moves.begun.get_or_create(&cause.into()).inc();
    }

    /// A move was done.
    pub fn move_done(&self, cause: Cause, bytes: u64, freeze_seconds: f64, seconds: f64) {
        self.moves.done.get_or_create(&cause.into()).inc();
        self.moves.bytes.inc_by(bytes);
        self.moves.freeze.observe(freeze_seconds);
        self.moves.duration.observe(seconds);
    }

    /// A move that had begun failed.
    pub fn move_failed(&self, cause: Cause, phase: Phase) {
        self.moves.failed.get_or_create(&cause.into()).inc();
        self.moves.failed_in.get_or_create(&phase.into()).inc();
    }

    /// A move did not begin.
    pub fn move_refused(&self, reason: Refusal) {
        self.moves
            .refused
            .get_or_create(&OfRefusal { reason })
            .inc();
    }

    pub fn guest_admitted(&self) {
        self.admitted.inc();
    }

    pub fn guest_refused(&self, reason: Unadmitted) {
        self.unadmitted
            .get_or_create(&OfUnadmitted { reason })
            .inc();
    }

    /// The balancer has looked at all programs, and has decided this about each.
    pub fn looked(&self, verdicts: impl Iterator<Item = Verdict>) {
        self.looks.inc();
        for verdict in verdicts {
            self.verdicts.get_or_create(&OfVerdict { verdict }).inc();
        }
    }

    pub fn link_lost(&self) {
        self.links_lost.inc();
    }

    pub fn link_healed(&self) {
        self.links_healed.inc();
    }

    /// A minute of history was lost.
    pub fn history_lost(&self) {
        self.history_lost.inc();
    }
}

/// Values that are set at each scrape.
#[derive(Debug)]
struct Gauges {
    load: Number,
    cpus: Number,
    throttled: Number,
    speed: Number,
    memory_total: Number,
    memory_available: Number,
    memory_promised: Number,
    cpu_pressure: Maybe,
    memory_pressure: Maybe,
    orders: Family<OfOrder, Number>,
    guests: Family<OfGuest, Number>,
    processes: Family<OfProcess, Number>,
    members: Family<OfMember, Number>,
    certificate: Maybe,
    balances: Number,
    daemon_cpu: Counter<f64, AtomicU64>,
    daemon_resident: Number,
    daemon_start: Number,
}

impl Gauges {
    fn register(registry: &mut Register<'_>) -> Self {
        Self {
            load: registry.add("node_load", "ratio", "Threads that run or wait for a CPU, for each CPU that this node may use"),
            cpus: registry.add("node_cpus", "", "CPUs that this node may use, and really gets"),
            throttled: registry.add("node_throttled_cpus", "", "CPUs that its tasks would have used in the last second, had a limit not kept them from it"),
            speed: registry.add("node_speed", "ratio", "Speed of one core; 1 is an ordinary one"),
            memory_total: registry.add("node_memory_total", "bytes", "Memory of this node, within its limits"),
            memory_available: registry.add("node_memory_available", "bytes", "Memory that programs can still take"),
            memory_promised: registry.add("node_memory_promised", "bytes", "What of it guests will need that have not come, or not all of them"),
            cpu_pressure: registry.add("node_cpu_pressure", "ratio", "Part of the last ten seconds in which some task waited for a CPU"),
            memory_pressure: registry.add("node_memory_pressure", "ratio", "Part of the last ten seconds in which no task could go on for want of memory"),
            orders: registry.add("node_orders", "", "1 where this node was told so: block, stay, drain"),
            guests: registry.add("guests", "", "Guests on this node"),
            processes: registry.add("processes", "", "Processes that may move and have their home here"),
            members: registry.add("members", "", "Members of the cluster, this node among them, as this node reaches them"),
            certificate: registry.add("certificate_remaining", "seconds", "Time until this node's certificate ends"),
            balances: registry.add("balancer_enabled", "", "1 where the balancer looks at this node's programs"),
            daemon_cpu: registry.add("daemon_cpu", "seconds", "CPU time of the daemon itself"),
            daemon_resident: registry.add("daemon_resident_memory", "bytes", "Memory of the daemon itself"),
            daemon_start: registry.add("daemon_start_time", "seconds", "When the daemon began, in seconds since 1970"),
        }
    }

    fn set(&self, now: &Snapshot) {
        self.load.set(now.load_ratio);
        self.cpus.set(now.cpus);
        self.throttled.set(now.throttled_cpus);
        self.speed.set(now.speed_ratio);
        self.memory_total.set(now.memory_total_bytes);
        self.memory_available.set(now.memory_available_bytes);
        self.memory_promised.set(now.memory_promised_bytes);
        self.cpu_pressure.set(now.cpu_pressure_ratio);
        self.memory_pressure.set(now.memory_pressure_ratio);
        self.certificate.set(now.certificate_remaining_seconds);
        self.balances.set(f64::from(u8::from(now.balances)));
        self.daemon_cpu
            .inner()
            .store(now.daemon_cpu_seconds.to_bits(), Ordering::Relaxed);
        self.daemon_resident.set(now.daemon_resident_bytes);
        self.daemon_start.set(now.daemon_start_seconds);
        self.set_counts(now);
    }

    fn set_counts(&self, now: &Snapshot) {
        for (order, told) in [
            (Order::Block, now.blocked),
            (Order::Stay, now.stays),
            (Order::Drain, now.draining),
        ] {
            let told = f64::from(u8::from(told));
            self.orders.get_or_create(&OfOrder { order }).set(told);
        }
        for (state, count) in [
            (GuestState::Starting, now.guests.starting),
            (GuestState::Started, now.guests.started),
        ] {
            self.guests
                .get_or_create(&OfGuest { state })
                .set(count.into());
        }
        for (reach, count) in [
            (Reach::Up, now.members.up),
            (Reach::Suspect, now.members.suspect),
            (Reach::Down, now.members.down),
            (Reach::Draining, now.members.draining),
        ] {
            self.members
                .get_or_create(&OfMember { reach })
                .set(count.into());
        }
        for (state, place) in (State::ALL.iter())
            .flat_map(|state| Place::ALL.iter().map(move |place| (*state, *place)))
        {
            let count = now.processes.count(state, place);
            self.processes
                .get_or_create(&OfProcess { state, place })
                .set(count.into());
        }
    }
}

/// All metrics of a node.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    gauges: Gauges,
    counters: Counters,
}

impl Metrics {
    /// `version` is that of the daemon.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::with_prefix("whim");
        let mut register = Register(&mut registry);
        let build: Family<OfVersion, Number> = register.add(
            "build_info",
            "",
            "1, with the version of the daemon as a label",
        );
        let version = version.to_owned();
        build.get_or_create(&OfVersion { version }).set(1.0);
        let gauges = Gauges::register(&mut register);
        let counters = Counters::register(&mut register);
        Self {
            registry,
            gauges,
            counters,
        }
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All metrics, with their present values.
    #[must_use]
    pub fn text(&self, now: &Snapshot, format: Format) -> String {
        self.gauges.set(now);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        match format {
            Format::OpenMetrics => text,
            Format::Plain => exposition::plain(&text),
        }
    }
}

#[cfg(test)]
mod tests;
