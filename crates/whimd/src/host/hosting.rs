//! This node as a host: guests are admitted, their supervisors started and cleaned up after.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use whim_journey::job::{GuestJob, Slot};
use whim_net::name::{JourneyId, NodeName, stay_server_name};
use whim_net::{Channel, PeerExpectation, Role};
use whim_sys::credentials::Launch;

use crate::blocking::blocking;
use crate::host::Host;
use crate::host::guests::{AdmitError, Guest, StayId, about_file};
use crate::host::share;
use crate::line::conversation;
use crate::line::conversation::SupervisorError;
use crate::line::directories;
use crate::line::supervisor::Start;
use crate::members::cluster::{Cluster, ClusterError};
use crate::members::peers::AdmitRequest;
use crate::settings::socket_in;
use whim_machine::cgroup;
use whim_machine::process::{self, Process};
use whim_metrics::labels;

/// How often, and how long apart, the removal of a guest's control groups is tried again.
const REMOVALS: u32 = 500;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// The guest supervisor.
const PROGRAM: &str = "whim-guest";

/// How many connections at a time are told that nobody is there; further ones are closed.
static FAREWELLS: Semaphore = Semaphore::const_new(8);
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Error)]
pub(crate) enum HostError {
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
pub(crate) async fn admit(
    host: &Arc<Host>,
    asker: &str,
    request: AdmitRequest,
) -> Result<(Slot, i32), HostError> {
    let admitted = take_in(host, asker, request).await;
    let counters = host.ground().metrics().counters();
    match &admitted {
        Ok(_) => counters.guest_admitted(),
        Err(error) => counters.guest_refused(label(error)),
    }
    admitted
}

/// Why a guest was not admitted, as the metrics count it.
fn label(error: &HostError) -> labels::Unadmitted {
    let HostError::Admit(error) = error else {
        return labels::Unadmitted::Other;
    };
    match error {
        AdmitError::Draining { .. } => labels::Unadmitted::Draining,
        AdmitError::Shut { .. } => labels::Unadmitted::Blocked,
        AdmitError::Guests { .. } => labels::Unadmitted::Guests,
        AdmitError::User { .. } => labels::Unadmitted::User,
        AdmitError::Class { .. } => labels::Unadmitted::Kind,
        AdmitError::Memory { .. } => labels::Unadmitted::Memory,
        AdmitError::Threads { .. } => labels::Unadmitted::Threads,
        AdmitError::Twice { .. } | AdmitError::NoUid { .. } => labels::Unadmitted::Other,
    }
}

async fn take_in(
    host: &Arc<Host>,
    asker: &str,
    request: AdmitRequest,
) -> Result<(Slot, i32), HostError> {
    if request.home != asker {
        return Err(HostError::NotItself(
            request.home.chars().take(80).collect(),
        ));
    }
    let id = JourneyId::new(request.journey.as_str())?;
    let home = NodeName::new(request.home.as_str())?;
    let node = host.ground().cluster().node();
    let report = host.report();
    let config = host.ground().config();
    let limits = &config.guests;
    let used = cgroup::guests_use(&host.ground().settings().group_prefix()).unwrap_or(0);
    host.guests()
        .reserve(&request, &report, used, &node, limits)?;
    host.ground().settings().faults.point("room-reserved");
    let started = start(host, &request, &node).await;
    let slot = Slot {
        node,
        addresses: host.ground().cluster().addresses(),
        server_name: stay_server_name(&home, &id, request.epoch),
        epoch: request.epoch,
    };
    match started {
        Ok(guest) => {
            let pid = guest.supervisor_pid;
            let text = format!(
                "Process {} of {}, by supervisor {pid}",
                request.pid, request.home
            );
            host.ground().events().add(None, "admitted", text);
            host.ground().settings().faults.point("guest-logged");
            Ok((slot, pid))
        }
        Err(error) => {
            host.guests().settle(&request, None);
            Err(error)
        }
    }
}

/// The uid under which this guest runs; `None` if we cannot become another user.
fn private_id(host: &Host, request: &AdmitRequest) -> Result<Option<u32>, HostError> {
    let config = host.ground().config();
    let limits = &config.guests;
    if !host.ground().settings().root || !is_mapped(limits.uid_start) {
        return Ok(None);
    }
    let id = blocking(|| host.private_id(&request.home, request.uid, limits));
    let none = || AdmitError::NoUid {
        node: host.ground().cluster().node(),
    };
    Ok(Some(id.ok_or_else(none)?))
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

async fn start(host: &Arc<Host>, request: &AdmitRequest, node: &str) -> Result<Guest, HostError> {
    let ground = host.ground();
    let share = share::of_guests(&ground.config());
    let settings = ground.settings();
    let private_id = private_id(host, request)?;
    let credentials = ground
        .cluster()
        .journey_credentials(&request.journey, Role::Guest)?;
    settings.faults.point("before-groups-made");
    let stay = request.stay();
    let name = stay.name();
    let cgroups = blocking(|| make_groups(host, &name, share));
    let directory = settings.guest_directory(&name);
    let job = |listener| GuestJob {
        journey: request.journey.clone(),
        epoch: request.epoch,
        node: node.to_string(),
        home: request.home.clone(),
        source: request.source.clone(),
        listener,
        credentials,
        lease_ms: request.lease_ms,
        private_id,
        cgroups: cgroups.iter().map(|d| d.display().to_string()).collect(),
        memory_limit_bytes: Some(share),
        memory_share: Some(settings.guests_share().display().to_string()),
        own_vdso: ground.config().guests.own_vdso,
        crash_at: settings.faults.of_guest(),
    };
    let launch = Launch {
        new_session: true,
        enter_cgroups: host.supervisor_groups().to_vec(),
        ..Launch::default()
    };
    let start = Start {
        program: settings.libexec.join(PROGRAM),
        job,
        directory: &directory,
        inherited: Vec::new(),
        launch,
        log: settings.log(&format!("{name}.guest")),
        faults: &settings.faults,
    };
    settings.faults.point("before-guest-started");
    let child = start.run().await.map_err(|source| {
        remove_groups(&cgroups);
        HostError::Supervisor {
            node: node.to_string(),
            source,
        }
    })?;
    let (supervisor_pid, supervisor_start_time) = number_of(&child);
    let guest = Guest {
        request: request.clone(),
        private_id,
        cgroups,
        supervisor_pid,
        supervisor_start_time,
        boot: process::boot_id().to_owned(),
        directory,
        is_named: true,
    };
    settings.faults.point("after-guest-started");
    write_about(&guest);
    settings.faults.point("guest-noted");
    host.guests().settle(request, Some(guest.clone()));
    tokio::spawn(wait_for(Arc::clone(host), guest.clone(), child));
    Ok(guest)
}

/// pid and start time of our own child. Nobody else waits for it, so its pid is its own until we do.
fn number_of(child: &tokio::process::Child) -> (i32, u64) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let supervisor = pid.and_then(|pid| Process::open(pid).ok());
    let start_time = supervisor.map_or(0, |supervisor| supervisor.start_time());
    (pid.unwrap_or(0), start_time)
}

/// Makes the control groups of a guest, below that of all guests, which may use this share of the memory together.
fn make_groups(host: &Host, name: &str, share: u64) -> Vec<PathBuf> {
    let settings = host.ground().settings();
    share::hold(settings, share);
    let pids = host.ground().config().guests.pids;
    let prefix = settings.group_prefix();
    let groups = cgroup::make_guest(&prefix, name, Some(share), pids);
    for missing in &groups.missing {
        tracing::debug!(missing, "a limit of a guest cannot be set");
    }
    groups.directories
}

/// Waits for the end of a supervisor, and cleans up after it.
async fn wait_for(host: Arc<Host>, guest: Guest, mut child: tokio::process::Child) {
    let status = child
        .wait()
        .await
        .map_or_else(|e| e.to_string(), |s| s.to_string());
    tracing::debug!(
        journey = guest.request.journey,
        status,
        "a guest's supervisor has ended"
    );
    blocking(|| clean(&host, &guest));
}

fn write_about(guest: &Guest) {
    let Ok(bytes) = serde_json::to_vec(guest) else {
        return;
    };
    let path = about_file(&guest.directory);
    if let Err(error) = blocking(|| whim_secret::files::write_atomically(&path, &bytes)) {
        tracing::warn!(%error, "a guest was not noted: a restarted daemon will not know it");
    }
}

/// Ends what lives in these groups and removes them. The kernel keeps a group until the last of its
/// processes is really gone, a moment after its supervisor, so it may take more than one try.
fn remove_groups(groups: &[PathBuf]) {
    let mut left = blocking(|| cgroup::remove_guest(groups));
    if left.is_empty() {
        return;
    }
    tokio::spawn(async move {
        for _ in 0..REMOVALS {
            tokio::time::sleep(REMOVAL_PAUSE).await;
            left = blocking(|| cgroup::remove_guest(&left));
            if left.is_empty() {
                return;
            }
        }
        tracing::warn!(?left, "control groups of guests stay");
    });
}

/// Removes what was made for a guest that is gone.
fn clean(host: &Host, guest: &Guest) {
    let stay = guest.request.stay();
    if host.guests().by_key.remove(&stay).is_none() {
        return;
    }
    host.ground()
        .settings()
        .faults
        .point("before-groups-removed");
    remove_groups(&guest.cgroups);
    host.ground().settings().faults.point("groups-removed");
    directories::discard(&guest.directory);
    host.ground()
        .settings()
        .faults
        .point("guest-directory-removed");
    let _ = fs::remove_file(about_file(&guest.directory));
    host.ground().settings().faults.point("guest-forgotten");
    let text = format!("Process {} of {}", guest.request.pid, guest.request.home);
    host.ground().events().add(None, "left", text);
}

/// Ends whatever waits or runs here under that epoch, because home says that the process is not here, or
/// not any more. Only the node that is its home may say so.
pub(crate) fn release(host: &Host, asker: &str, journey: &str, epoch: u32) {
    let stay = StayId {
        home: asker.to_owned(),
        journey: journey.to_owned(),
        epoch,
    };
    let guest = host.guests().by_key.get(&stay).cloned();
    let Some(guest) = guest else { return };
    host.ground()
        .settings()
        .faults
        .point("before-guest-released");
    if let Some(supervisor) = guest.supervisor() {
        // It may have ended meanwhile.
        let _ = supervisor.signal(nix::sys::signal::Signal::SIGTERM);
    }
}

/// Completes a guest that an older daemon noted without the start time of its supervisor: the process
/// that listens at its socket is the supervisor.
async fn recognize(guest: &mut Guest) {
    if !guest.boot.is_empty() {
        return;
    }
    let Ok(stream) = UnixStream::connect(socket_in(&guest.directory)).await else {
        return;
    };
    let listens = stream.peer_cred().ok().and_then(|peer| peer.pid());
    if listens == Some(guest.supervisor_pid)
        && let Ok(supervisor) = Process::open(guest.supervisor_pid)
    {
        guest.supervisor_start_time = supervisor.start_time();
        process::boot_id().clone_into(&mut guest.boot);
    }
}

/// Takes over guests that an earlier daemon admitted, and removes what is left of those that are gone.
pub(crate) async fn take_up(host: &Arc<Host>) {
    let entries = fs::read_dir(host.ground().settings().supervisors())
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries.filter(|e| e.path().extension().is_some_and(|e| e == "json")) {
        let Some(mut guest) = fs::read(entry.path())
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Guest>(&bytes).ok())
        else {
            continue;
        };
        recognize(&mut guest).await;
        host.guests().by_key.insert(guest.request.stay(), guest);
    }
    share::hold(
        host.ground().settings(),
        share::of_guests(&host.ground().config()),
    );
    sweep(host).await;
    let known: Vec<_> = host
        .guests()
        .by_key
        .values()
        .flat_map(|guest| guest.cgroups.clone())
        .collect();
    let mut strays = cgroup::guests(&host.ground().settings().group_prefix());
    strays.retain(|path| !known.contains(path));
    remove_groups(&strays);
}

async fn listens(directory: &Path) -> bool {
    UnixStream::connect(socket_in(directory)).await.is_ok()
}

/// Cleans up after guests whose supervisors are gone and were not our children.
pub(crate) async fn sweep(host: &Arc<Host>) {
    let guests: Vec<Guest> = host.guests().by_key.values().cloned().collect();
    for guest in guests {
        // Without a start time its pid may be that of another process.
        let unknown = guest.boot.is_empty();
        if guest.supervisor().is_none() && !(unknown && listens(&guest.directory).await) {
            blocking(|| clean(host, &guest));
        }
    }
    remove_unknown(host).await;
}

/// Removes the directories of supervisors that an earlier daemon started, but could not note before it
/// ended. Nobody was told of these supervisors, so they end by themselves.
async fn remove_unknown(host: &Host) {
    let entries = fs::read_dir(host.ground().settings().supervisors());
    for entry in entries.into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".guest")) else {
            continue;
        };
        // An older daemon gave its guests' directories other names.
        let known = || {
            let guests = host.guests();
            let older = guests.by_key.values().any(|guest| guest.directory == path);
            older || guests.knows_name(name)
        };
        // We ask before and after, because a guest may be admitted, or leave, in between.
        if !known() && !listens(&path).await && !known() {
            directories::discard(&path);
        }
    }
}

/// Hands a connection for the guest of a stay to its supervisor. Home is told if there is no supervisor:
/// one that was killed said no goodbye, and home would wait for it until the end of the lease.
///
/// # Errors
/// There is no supervisor, or it is hung.
pub(crate) async fn route_to_stay(
    host: &Host,
    (home, id, epoch): (&NodeName, &JourneyId, u32),
    connection: TcpStream,
) -> Result<(), SupervisorError> {
    let stay = StayId {
        home: home.to_string(),
        journey: id.to_string(),
        epoch,
    };
    let directory = {
        let guests = host.guests();
        let guest = guests.by_key.get(&stay);
        guest.map(|guest| guest.directory.clone())
    };
    let directory = directory.ok_or_else(|| host.ground().settings().guest_directory(&stay.name()));
    pass_on(host, directory, (id, Some(home)), connection).await
}

/// The same for a connection that names only a journey: it is for the journey's home supervisor, or for
/// a guest that an older daemon has admitted.
///
/// # Errors
/// As [`route_to_stay`].
pub(crate) async fn route(
    host: &Host,
    id: &JourneyId,
    role: Role,
    connection: TcpStream,
) -> Result<(), SupervisorError> {
    if role == Role::Home {
        let directory = host.ground().settings().home_directory(id.as_str());
        host.ground()
            .settings()
            .faults
            .point("before-connection-passed");
        let passed = conversation::pass(socket_in(&directory), Arc::new(connection)).await;
        host.ground()
            .settings()
            .faults
            .point("after-connection-passed");
        return passed;
    }
    let directory = {
        let guests = host.guests();
        let guest = guests.unnamed(id.as_str());
        guest.map(|guest| guest.directory.clone())
    };
    let directory =
        directory.ok_or_else(|| host.ground().settings().supervisors().join(id.as_str()));
    pass_on(host, directory, (id, None), connection).await
}

/// `directory`: that of the guest supervisor or, if there is none, where it would be.
async fn pass_on(
    host: &Host,
    directory: Result<PathBuf, PathBuf>,
    (id, home): (&JourneyId, Option<&NodeName>),
    connection: TcpStream,
) -> Result<(), SupervisorError> {
    let connection = Arc::new(connection);
    host.ground()
        .settings()
        .faults
        .point("before-connection-passed");
    let passed = match directory {
        Ok(directory) => conversation::pass(socket_in(&directory), Arc::clone(&connection)).await,
        Err(missing) => Err(SupervisorError::Gone(missing)),
    };
    host.ground()
        .settings()
        .faults
        .point("after-connection-passed");
    if let (Err(SupervisorError::Gone(_)), Some(connection)) =
        (&passed, Arc::into_inner(connection))
    {
        bid_farewell(host.ground().cluster(), id, home, connection).await;
    }
    passed
}

/// Answers in the name of a guest supervisor that is gone. The node may do that because it signs its
/// supervisors' certificates.
async fn bid_farewell(
    cluster: &Cluster,
    id: &JourneyId,
    home: Option<&NodeName>,
    connection: TcpStream,
) {
    let Ok(_permit) = FAREWELLS.try_acquire() else {
        return;
    };
    let credentials = match cluster.answering_for(id, Role::Guest) {
        Ok(credentials) => credentials,
        Err(error) => return tracing::debug!(%error, "nobody is told that a guest is gone"),
    };
    let expect = PeerExpectation::Journey {
        id: id.clone(),
        node: home.cloned(),
        role: Role::Home,
    };
    let task = tokio::task::spawn_blocking(move || {
        Channel::bid_farewell(connection, &credentials, &expect, FAREWELL_TIMEOUT)
    });
    if let Ok(Err(error)) = task.await {
        tracing::debug!(%error, "a farewell was not heard");
    }
}
