//! What Prometheus asks this node, over HTTP: `GET /metrics`, and nothing else.
//!
//! There is a listener only where the configuration names an address. Anybody who reaches it may ask,
//! because the answer holds numbers of this node, never a process, a user or a command. So the Host
//! header is not checked either: a page in a browser that is led here by a false name can read those
//! numbers, but there is no cookie, and no request that changes anything. A client that asks slowly, or
//! often, gets a few connections for a few seconds, and a text that is made once a second at most.

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use whim_journey::job;
use whim_metrics::labels::{Place, State};
use whim_metrics::{Format, Guests, Members, Processes, Snapshot, negotiate};

use crate::daemon::Daemon;
use crate::members::cluster;
use crate::members::cluster::Cluster;
use crate::members::membership::Membership;
use crate::moves::journeys::Journey;
use whim_control::protocol::NodeState;
use whim_machine::sensors::float;

/// Connections at a time; more wait until they are accepted.
pub(crate) const CONNECTIONS_MAX: usize = 16;
/// Longest head of a request, in bytes, and its header lines.
pub(crate) const HEAD_MAX: usize = 8 << 10;
pub(crate) const HEADER_LINES_MAX: usize = 64;
/// The head of a request has to come within the first of these times, and all is over within the other.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const ALL_WITHIN: Duration = Duration::from_secs(10);
/// How long a text is told again: the sensors take samples once a second.
const FRESH: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The only path that there is.
const PATH: &str = "/metrics";

/// Opens the listener that the configuration names, and answers there for ever. If the address is taken,
/// the daemon runs without it.
pub(crate) async fn start(daemon: &Arc<Daemon>) {
    let Some(address) = daemon.config().metrics.listen else {
        return;
    };
    match TcpListener::bind(address).await {
        Ok(listener) => {
            tracing::info!(%address, "metrics are told");
            tokio::spawn(serve(Arc::clone(daemon), listener));
        }
        Err(error) => tracing::warn!(
            %address,
            %error,
            "metrics are not told: name another address as listen below [metrics] in the configuration"
        ),
    }
}

/// One text for all who ask.
struct Teller {
    daemon: Arc<Daemon>,
    told: Mutex<HashMap<Format, (Instant, String)>>,
}

async fn serve(daemon: Arc<Daemon>, listener: TcpListener) {
    let told = Mutex::default();
    let teller = Arc::new(Teller { daemon, told });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(Arc::clone(&teller), stream, place));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One question, and its answer.
async fn converse(teller: Arc<Teller>, stream: TcpStream, _place: OwnedSemaphorePermit) {
    let service = service_fn(move |request: Request<Incoming>| {
        let teller = Arc::clone(&teller);
        async move { Ok::<_, Infallible>(teller.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_headers(HEADER_LINES_MAX)
        .max_header_size(HEAD_MAX)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong here is the client's affair.
    let _ = tokio::time::timeout(ALL_WITHIN, connection).await;
}

/// An answer without metrics.
fn plain(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

impl Teller {
    async fn answer<B>(&self, request: &Request<B>) -> Response<String> {
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "Only /metrics is told here\n");
        }
        if request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered\n");
            let allowed = HeaderValue::from_static("GET");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let accept: Vec<&str> = (request.headers().get_all(ACCEPT).iter())
            .filter_map(|value| value.to_str().ok())
            .collect();
        let accept = (!accept.is_empty()).then(|| accept.join(","));
        let format = negotiate(accept.as_deref());
        let Some(text) = self.text(format).await else {
            let text = "The node could not be looked at; see the daemon's log\n";
            return plain(StatusCode::INTERNAL_SERVER_ERROR, text);
        };
        let mut response = Response::new(text);
        let kind = HeaderValue::from_static(format.content_type());
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// The text as it is now. One of the tasks that wait for it makes it.
    async fn text(&self, format: Format) -> Option<String> {
        let mut told = self.told.lock().await;
        if let Some((at, text)) = told.get(&format)
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let daemon = Arc::clone(&self.daemon);
        let made = tokio::task::spawn_blocking(move || {
            let now = snapshot(&daemon);
            daemon.metrics().text(&now, format)
        });
        let text = made
            .await
            .inspect_err(|error| tracing::error!(%error, "metrics could not be made"))
            .ok()?;
        told.insert(format, (Instant::now(), text.clone()));
        Some(text)
    }
}

/// What is measured of this node now.
#[must_use]
pub(crate) fn snapshot(daemon: &Daemon) -> Snapshot {
    let report = daemon.report();
    let ratio = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
    let guests = daemon.guests();
    let guests = Guests {
        starting: guests.starting(),
        started: guests.count(),
    };
    let (daemon_cpu_seconds, daemon_resident_bytes) = own_use();
    Snapshot {
        load_ratio: report.load / report.cpus.max(0.01),
        cpus: report.cpus,
        throttled_cpus: report.throttled_cpus,
        speed_ratio: report.speed.value,
        memory_total_bytes: float(report.memory_total_bytes),
        memory_available_bytes: float(report.memory_available_bytes),
        memory_promised_bytes: float(report.memory_promised_bytes),
        cpu_pressure_ratio: ratio(report.pressure.cpu_some),
        memory_pressure_ratio: ratio(report.pressure.memory_full),
        blocked: report.blocked,
        stays: report.stays,
        draining: report.draining,
        guests,
        processes: processes(daemon),
        members: members(daemon.membership(), report.draining),
        certificate_remaining_seconds: remaining(daemon.cluster()),
        balances: daemon.config().balance.enabled && daemon.cluster().is_member(),
        daemon_cpu_seconds,
        daemon_resident_bytes: float(daemon_resident_bytes),
        daemon_start_seconds: float(cluster::now()) - daemon.clock().as_secs_f64(),
    }
}

/// Seconds until the certificate ends; negative if it has ended.
fn remaining(cluster: &Cluster) -> Option<f64> {
    let until = float(cluster.expires()?);
    Some(until - float(cluster::now()))
}

/// CPU seconds and resident bytes of this daemon.
fn own_use() -> (f64, u64) {
    let used = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        (usage.user_time() + usage.system_time()).num_microseconds()
    });
    let seconds = float(u64::try_from(used).unwrap_or(0)) / 1e6;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse().ok());
    (seconds, pages.unwrap_or(0_u64).saturating_mul(4096))
}

fn members(membership: &Membership, draining: bool) -> Members {
    let own = membership.cluster().node();
    let all = membership.cluster().members();
    let peers = membership.peers();
    let mut members = Members::default();
    for member in all {
        let state = match member.name == own {
            true if draining => NodeState::Draining,
            true => NodeState::Up,
            false => peers.state(&member.name),
        };
        match state {
            NodeState::Up => members.up += 1,
            NodeState::Suspect => members.suspect += 1,
            NodeState::Down => members.down += 1,
            NodeState::Draining => members.draining += 1,
        }
    }
    members
}

/// Processes as the daemon's last scan found them: no supervisor is asked.
fn processes(daemon: &Daemon) -> Processes {
    let own = daemon.cluster().node();
    let candidates = daemon.moves().candidates().sorted();
    let journeys = daemon.moves().journeys().live();
    let mut processes = Processes::default();
    for stat in candidates.iter().filter_map(|candidate| candidate.stat()) {
        let journey = journeys.iter().find(|journey| journey.is_of(&stat));
        let at_home = journey.is_none_or(|journey| journey.location() == own);
        let state = match journey.map(Journey::state) {
            _ if daemon.moves().under_way().contains(stat.pid) => State::Moving,
            None | Some(job::State::Home) if matches!(stat.state, 'T' | 't') => State::Stopped,
            None | Some(job::State::Home) => State::Home,
            Some(job::State::Away) => State::Away,
            Some(job::State::Moving) => State::Moving,
            Some(job::State::Stopped) => State::Stopped,
            Some(job::State::InDoubt) => State::InDoubt,
            Some(job::State::Ended) => continue,
        };
        let place = if at_home {
            Place::Here
        } else {
            Place::Elsewhere
        };
        processes.add(state, place);
    }
    processes
}

#[cfg(test)]
mod tests;
