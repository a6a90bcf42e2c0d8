//! This node as a host: guests are admitted, their supervisors started and cleaned up after.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;
use tokio::net::UnixStream;
use whim_journey::job::{GuestJob, Slot};
use whim_net::Role;
use whim_net::name::{JourneyId, journey_server_name};
use whim_sys::credentials::Launch;

use crate::cgroup;
use crate::cluster::ClusterError;
use crate::daemon::Daemon;
use crate::guests::{AdmitError, AdmitRequest, Guest, about_file};
use crate::settings::socket_in;
use crate::supervisor::{self, Start, SupervisorError};

/// A supervisor's own memory beside its guest's, in bytes, and what a guest may grow by.
const GROWTH_FLOOR: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum HostError {
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error("Node {node} cannot take a guest: {source}")]
    Supervisor {
        node: String,
        source: SupervisorError,
    },
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("The journey's name is not usable: {0}")]
    Name(#[from] whim_net::name::NameError),
    #[error("A node asked for room in the name of {0}: it may speak for itself only")]
    NotItself(String),
}

/// Admits a guest that `asker` announces: reserves room, starts its supervisor, and says where it
/// is to be sent.
///
/// # Errors
/// Why not, as a sentence for the user at the other node.
pub async fn admit(
    daemon: &Arc<Daemon>,
    asker: &str,
    request: AdmitRequest,
) -> Result<(Slot, i32), HostError> {
    if request.home != asker {
        return Err(HostError::NotItself(
            request.home.chars().take(80).collect(),
        ));
    }
    let id = JourneyId::new(request.journey.as_str())?;
    let node = daemon.cluster.node();
    let report = daemon.report();
    let limits = &daemon.settings.config.guests;
    daemon.guests().reserve(&request, &report, &node, limits)?;
    let started = start(daemon, &request, &node).await;
    let slot = Slot {
        node,
        addresses: daemon.cluster.addresses(),
        server_name: journey_server_name(&id, Role::Guest),
        epoch: request.epoch,
    };
    match started {
        Ok(guest) => {
            let pid = guest.supervisor_pid;
            let text = format!(
                "Process {} of {}, by supervisor {pid}",
                request.pid, request.home
            );
            daemon.events.add(None, "admitted", text);
            Ok((slot, pid))
        }
        Err(error) => {
            daemon.guests().settle(&request, None);
            Err(error)
        }
    }
}

/// The uid under which this guest runs; `None` where we cannot become somebody else.
fn private_id(daemon: &Daemon, request: &AdmitRequest) -> Result<Option<u32>, HostError> {
    let limits = &daemon.settings.config.guests;
    if !daemon.settings.root || !is_mapped(limits.uid_start) {
        return Ok(None);
    }
    let mut guests = daemon.guests();
    let id = guests.ids.give(&request.home, request.uid, limits);
    let id = id.ok_or_else(|| AdmitError::NoUid {
        node: daemon.cluster.node(),
    })?;
    if let Ok(bytes) = serde_json::to_vec(&guests.ids) {
        daemon.save("uids.json", &bytes);
    }
    Ok(Some(id))
}

/// Whether our user namespace knows this uid: a lab of a plain user knows only some.
fn is_mapped(uid: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut fields = line
            .split_whitespace()
            .filter_map(|field| field.parse::<u64>().ok());
        let (Some(inside), Some(_), Some(count)) = (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        (inside..inside + count).contains(&u64::from(uid))
    })
}

async fn start(
    daemon: &Arc<Daemon>,
    request: &AdmitRequest,
    node: &str,
) -> Result<Guest, HostError> {
    let settings = &daemon.settings;
    let private_id = private_id(daemon, request)?;
    let credentials = daemon
        .cluster
        .journey_credentials(&request.journey, Role::Guest)?;
    let name = format!("{}-{}", request.journey, request.epoch);
    let memory_limit = memory_limit(daemon, request);
    let cgroups = make_groups(daemon, &name, memory_limit);
    let directory = settings.guest_directory(&request.journey, request.epoch);
    let job = GuestJob {
        journey: request.journey.clone(),
        epoch: request.epoch,
        node: node.to_string(),
        home: request.home.clone(),
        socket: socket_in(&directory).display().to_string(),
        credentials,
        lease_ms: request.lease_ms,
        private_id,
        cgroups: cgroups.iter().map(|d| d.display().to_string()).collect(),
        memory_limit_bytes: Some(memory_limit),
        crash_at: settings.crash_guest,
    };
    let launch = Launch {
        new_session: true,
        enter_cgroups: daemon.supervisor_groups.clone(),
        ..Launch::default()
    };
    let start = Start {
        program: settings.libexec.join("whim-guest"),
        job: &job,
        directory: &directory,
        owner: private_id.map(|id| (id, id)),
        launch,
        log: settings.log(&format!("{name}.guest")),
    };
    let child = start.run().await.map_err(|source| {
        cgroup::remove_guest(&cgroups);
        HostError::Supervisor {
            node: node.to_string(),
            source,
        }
    })?;
    let guest = Guest {
        request: request.clone(),
        private_id,
        cgroups,
        supervisor_pid: child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .unwrap_or(0),
        directory,
    };
    write_about(&guest);
    daemon.guests().settle(request, Some(guest.clone()));
    tokio::spawn(wait_for(Arc::clone(daemon), guest.clone(), child));
    Ok(guest)
}

/// The share of all guests, or a little more than what this one has.
fn memory_limit(daemon: &Daemon, request: &AdmitRequest) -> u64 {
    let share = u64::from(daemon.settings.config.guests.memory_percent);
    let all = (daemon.report().memory_total_bytes / 100).saturating_mul(share);
    all.max(request.memory_bytes.saturating_add(GROWTH_FLOOR))
}

fn make_groups(daemon: &Daemon, name: &str, memory_limit: u64) -> Vec<std::path::PathBuf> {
    let settings = &daemon.settings;
    let name = format!("{}{name}", settings.group_prefix());
    let groups = cgroup::make_guest(&name, Some(memory_limit), settings.config.guests.pids);
    for missing in &groups.missing {
        tracing::debug!(missing, "a limit of a guest cannot be set");
    }
    groups.directories
}

/// Waits for the end of a supervisor, and cleans up after it.
async fn wait_for(daemon: Arc<Daemon>, guest: Guest, mut child: tokio::process::Child) {
    let status = child
        .wait()
        .await
        .map_or_else(|e| e.to_string(), |s| s.to_string());
    tracing::debug!(
        journey = guest.request.journey,
        status,
        "a guest's supervisor has ended"
    );
    clean(&daemon, &guest);
}

fn write_about(guest: &Guest) {
    let Ok(bytes) = serde_json::to_vec(guest) else {
        return;
    };
    if let Err(error) = whim_net::files::write_atomically(&about_file(&guest.directory), &bytes) {
        tracing::warn!(%error, "a guest was not noted: a restarted daemon will not know it");
    }
}

/// Removes what was made for a guest that is gone.
fn clean(daemon: &Daemon, guest: &Guest) {
    let key = (guest.request.journey.clone(), guest.request.epoch);
    if daemon.guests().by_key.remove(&key).is_none() {
        return;
    }
    cgroup::remove_guest(&guest.cgroups);
    let _ = fs::remove_dir_all(&guest.directory);
    let _ = fs::remove_file(about_file(&guest.directory));
    let text = format!("Process {} of {}", guest.request.pid, guest.request.home);
    daemon.events.add(None, "left", text);
}

/// Home says that the guest will not come. Only its own node may say so, and only a supervisor
/// that nobody has called yet is ended by that; any other one ends by its own rules.
pub fn release(daemon: &Daemon, asker: &str, journey: &str, epoch: u32) {
    let key = (journey.to_string(), epoch);
    let guest = daemon
        .guests()
        .by_key
        .get(&key)
        .filter(|g| g.request.home == asker)
        .cloned();
    let Some(guest) = guest else { return };
    if guest.supervisor_pid > 0 {
        let pid = nix::unistd::Pid::from_raw(guest.supervisor_pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    }
}

/// Takes up guests that an earlier daemon admitted; what is left of gone ones is removed.
pub async fn take_up(daemon: &Arc<Daemon>) {
    let entries = fs::read_dir(daemon.settings.supervisors())
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries.filter(|e| e.path().extension().is_some_and(|e| e == "json")) {
        let Some(guest) = fs::read(entry.path())
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Guest>(&bytes).ok())
        else {
            continue;
        };
        let key = (guest.request.journey.clone(), guest.request.epoch);
        daemon.guests().by_key.insert(key, guest);
    }
    sweep(daemon).await;
    let known: Vec<_> = daemon
        .guests()
        .by_key
        .values()
        .flat_map(|guest| guest.cgroups.clone())
        .collect();
    let prefix = daemon.settings.group_prefix();
    let strays = cgroup::guests()
        .into_iter()
        .filter(|(name, path)| name.starts_with(&prefix) && !known.contains(path))
        .map(|(_, path)| path);
    cgroup::remove_guest(&strays.collect::<Vec<_>>());
}

async fn listens(directory: &Path) -> bool {
    UnixStream::connect(socket_in(directory)).await.is_ok()
}

/// Looks for guests whose supervisors are gone and are not our children.
pub async fn sweep(daemon: &Arc<Daemon>) {
    let guests: Vec<Guest> = daemon.guests().by_key.values().cloned().collect();
    for guest in guests {
        let pid = guest.supervisor_pid;
        if crate::processes::stat(pid).is_err() && !listens(&guest.directory).await {
            clean(daemon, &guest);
        }
    }
}

/// Hands a connection for a journey to the supervisor here that carries it.
///
/// # Errors
/// There is none, or it is hung.
pub async fn route(
    daemon: &Daemon,
    id: &JourneyId,
    role: Role,
    connection: std::net::TcpStream,
) -> Result<(), SupervisorError> {
    let directory = match role {
        Role::Home => daemon.settings.home_directory(id.as_str()),
        Role::Guest => match daemon.guests().of_journey(id.as_str()).first() {
            Some(guest) => guest.directory.clone(),
            None => {
                let gone = daemon.settings.guest_directory(id.as_str(), 0);
                return Err(SupervisorError::Gone(gone));
            }
        },
    };
    supervisor::pass(socket_in(&directory), connection).await
}
