//! How the daemon begins: its configuration, its limits, and the tasks that it consists of.

use crate::daemon::Daemon;
use crate::faces::metrics;
use crate::faces::port;
use crate::faces::server;
use crate::faults::Faults;
use crate::host::hosting;
use crate::leaving::{changes, owner};
use crate::members::cluster::Cluster;
use crate::members::pulse;
use crate::moves::watching;
use crate::past::history_task;
use crate::rounds;
use crate::settings::Settings;
use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use whim_control::arguments::Arguments;
use whim_control::config::Config;
use whim_control::places::{PlaceError, Places, make_directory};
use whim_machine::class::Class;

/// Every connection and every supervisor takes descriptors, but the soft limit is made for programs that
/// use select(2). Guests have the soft limits of their homes, so our hard limits must not be lower: root
/// may lift those that it was started with.
fn raise_limits() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
    for resource in [
        Resource::RLIMIT_STACK,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_AS,
    ] {
        let raised = getrlimit(resource).and_then(|(soft, hard)| {
            // A plain user may not lift a limit. Where there is none, nobody needs to.
            let needed = hard != RLIM_INFINITY && nix::unistd::geteuid().is_root();
            if needed {
                setrlimit(resource, soft, RLIM_INFINITY)
            } else {
                Ok(())
            }
        });
        if let Err(error) = raised {
            tracing::warn!(%error, ?resource, "guests are held by the limit that this daemon was started with");
        }
    }
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// More threads than there can be clients.
const BLOCKING_MAX: usize = 2048;

/// This daemon and its supervisors have keys and pages of programs in their memory: a crash must not write
/// these down, wherever this system keeps cores.
fn forbid_cores() {
    use nix::sys::resource::{Resource, setrlimit};
    // Too little for a file; and the only limit at which the kernel runs no handler (`|` in core_pattern).
    const NO_CORE: u64 = 1;
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, NO_CORE, NO_CORE) {
        tracing::warn!(%error, "a crash may leave a core file");
    }
}

/// Runs the daemon until it is told to end.
///
/// # Errors
/// The configuration is not valid, or a port or a directory is not to be had.
pub fn main() -> Result<()> {
    // Supervisors belong to other users: the descriptors that the daemon was started with are not for them.
    whim_sys::startup::keep_descriptors()?;
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("WHIM_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(|| crate::past::logs::Lines)
        // It would report a full disk on standard error, which is on that disk, and panic.
        .log_internal_errors(false)
        .with_ansi(false)
        .init();
    whim_sys::heap::share();
    let settings = settings(Arguments::parse())?;
    // The daemon has the node's key in its memory, and perhaps the cluster's.
    whim_sys::credentials::set_dumpable(false)?;
    raise_limits();
    forbid_cores();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // State is written with fsync: one slow disk must not hold up heartbeats.
        .worker_threads(4)
        // Each client may wait for a look on a thread of its own (`crate::line::probes`).
        .max_blocking_threads(BLOCKING_MAX)
        .enable_all()
        .build()
        .context("No threads can be started")?;
    runtime.block_on(run(settings))
}

/// Puts arguments, configuration and defaults together.
///
/// # Errors
/// The configuration is not valid, or others may change it, or it is not there although it was named.
fn settings(arguments: Arguments) -> Result<Settings> {
    let places = Places::here();
    let path = arguments.config.clone().unwrap_or(places.config);
    let base = if arguments.lab {
        Config::lab()
    } else {
        Config::default()
    };
    let mut config = match Config::load_own(&path, base.clone())? {
        Some(config) => config,
        None if arguments.config.is_some() => {
            bail!("The configuration {} is not there", path.display())
        }
        None => base,
    };
    if let Some(listen) = arguments.listen {
        config.listen = listen;
    }
    if !arguments.advertise.is_empty() {
        config.advertise = arguments.advertise;
    }
    config.allow_root |= arguments.allow_root;
    config.balance.enabled &= !arguments.no_balance;
    config.check().map_err(|odd| anyhow!(odd.reason))?;
    let own = std::env::current_exe().context("whimd does not know where it lies")?;
    let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
    let state = arguments.state.or(places.state).ok_or(PlaceError::NoHome)?;
    Ok(Settings {
        state: std::path::absolute(state)?,
        run: std::path::absolute(arguments.run.unwrap_or(places.run))?,
        configured: config,
        libexec: arguments.libexec.unwrap_or(beside),
        root: nix::unistd::geteuid().is_root(),
        faults: Faults::new(arguments.crash_plan),
    })
}

/// Only the daemon reaches anything below these directories by name: supervisors are handed descriptors of
/// what is theirs. (Supervisors of an older daemon have it open.)
fn make_directories(settings: &Settings) -> Result<(), PlaceError> {
    for (path, mode) in [
        (&settings.state, 0o711),
        (&settings.journeys(), 0o700),
        (&settings.state.join("log"), 0o700),
        (&settings.run, 0o755),
        (&settings.supervisors(), 0o700),
    ] {
        make_directory(path, mode, settings.root)?;
    }
    Ok(())
}

async fn run(settings: Settings) -> Result<()> {
    make_directories(&settings)?;
    let cluster = Cluster::open(
        settings.identity(),
        settings.configured.advertise.clone(),
        Class::here(&settings.configured.cpu.hide).describe(),
    )?;
    let control_path = settings.control_socket();
    let control = server::open(&control_path).with_context(|| {
        format!(
            "The control socket {} cannot be opened",
            control_path.display()
        )
    })?;
    let listen = settings.configured.listen;
    let (listener, socket) = port::open(listen).await.with_context(|| {
        let port = listen.port();
        format!(
            "{listen} cannot be opened: if another program listens there, such as the daemon of \
             another user, take another port (--listen '[::]:{other}', or listen in the \
             configuration); others then name this node HOST:{other}",
            other = port.wrapping_add(1)
        )
    })?;
    let heard = listener.local_addr().unwrap_or(listen);
    cluster.set_port(heard.port());
    let daemon = Daemon::new(settings, cluster);
    watching::take_over(daemon.moves());
    watching::refresh_all(daemon.moves()).await;
    hosting::take_up(daemon.host()).await;
    watching::remove_leftovers(daemon.moves());
    let looked = Arc::new(Notify::new());
    tokio::spawn(rounds::each_second(
        Arc::clone(&daemon),
        Arc::clone(&looked),
    ));
    tokio::spawn(rounds::learn_speed(Arc::clone(daemon.host())));
    let moves = Arc::clone(daemon.moves());
    tokio::spawn(async move { moves.census().keep_saved().await });
    tokio::spawn(owner::watch(Arc::clone(daemon.moves())));
    tokio::spawn(changes::watch(Arc::clone(daemon.moves())));
    tokio::spawn(pulse::run(
        Arc::clone(daemon.ground()),
        Arc::<Daemon>::clone(&daemon),
        socket,
        looked,
    ));
    tokio::spawn(port::serve(Arc::clone(&daemon), listener));
    tokio::spawn(server::serve(Arc::clone(&daemon), control));
    let host = Arc::clone(daemon.host());
    let ground = Arc::clone(daemon.ground());
    tokio::spawn(history_task::run(ground, move || host.sample()));
    metrics::start(&daemon).await;
    tracing::info!(node = daemon.cluster().node(), address = %heard, "ready");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    history_task::end(daemon.ground()).await;
    // What has been started a moment ago is known to the next daemon, too.
    daemon.moves().census().refresh();
    daemon.moves().census().save(&daemon.moves().candidates());
    // Supervisors and their guests go on: a new daemon finds them again.
    let _ = std::fs::remove_file(control_path);
    tracing::info!("ended");
    Ok(())
}
