//! `whimd`: the daemon of a node.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use whimd::cluster::Cluster;
use whimd::config::{CONFIG_FILE, Config};
use whimd::control::{RUN_DIRECTORY, STATE_DIRECTORY};
use whimd::daemon::Daemon;
use whimd::sensors::Class;
use whimd::settings::Settings;
use whimd::{hosting, membership, port, server, watching};

/// The daemon of a Whimbrel node: membership, admission and the journeys of this node's processes.
#[derive(Debug, Parser)]
#[command(name = "whimd", version)]
struct Arguments {
    /// Identity, journals and logs
    #[arg(long, value_name = "DIR", default_value = STATE_DIRECTORY)]
    state: PathBuf,
    /// Control socket and the sockets of supervisors
    #[arg(long, value_name = "DIR", default_value = RUN_DIRECTORY)]
    run: PathBuf,
    /// Configuration; the default one need not exist
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port on which other nodes are heard
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// HOST:PORT under which other nodes reach this one (may be repeated)
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<String>,
    /// Directory of whim-home and whim-guest (default: that of whimd)
    #[arg(long, value_name = "DIR")]
    libexec: Option<PathBuf>,
    /// Defaults of a lab's node: leases of 2 s, and root's processes may move
    #[arg(long)]
    lab: bool,
    /// Let processes of uid 0 move
    #[arg(long)]
    allow_root: bool,
    /// For the fault tests: home supervisors end at this crash point
    #[arg(long, value_name = "N", hide = true)]
    crash_home: Option<u32>,
    /// For the fault tests: guests' supervisors end at this crash point
    #[arg(long, value_name = "N", hide = true)]
    crash_guest: Option<u32>,
}

impl Arguments {
    fn settings(self) -> Result<Settings> {
        let path = self
            .config
            .clone()
            .unwrap_or_else(|| PathBuf::from(CONFIG_FILE));
        let base = if self.lab {
            Config::lab()
        } else {
            Config::default()
        };
        let mut config = match Config::load_over(&path, base.clone())? {
            Some(config) => config,
            None if self.config.is_some() => {
                bail!("The configuration {} is not there", path.display())
            }
            None => base,
        };
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        if !self.advertise.is_empty() {
            config.advertise = self.advertise;
        }
        config.allow_root |= self.allow_root;
        config.check().map_err(anyhow::Error::msg)?;
        let own = std::env::current_exe().context("whimd does not know where it lies")?;
        let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Settings {
            state: std::path::absolute(self.state)?,
            run: std::path::absolute(self.run)?,
            config,
            libexec: self.libexec.unwrap_or(beside),
            lab: self.lab,
            root: nix::unistd::geteuid().is_root(),
            crash_home: self.crash_home,
            crash_guest: self.crash_guest,
        })
    }
}

/// Others pass through to what is theirs below, but cannot list it.
fn make_directory(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)))
        .with_context(|| format!("The directory {} cannot be made", path.display()))
}

fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("WHIM_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let settings = Arguments::parse().settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("No threads can be started")?;
    runtime.block_on(run(settings))
}

async fn run(settings: Settings) -> Result<()> {
    // Where others may pass: supervisors with their owners' rights reach their files by name.
    make_directory(&settings.state, 0o711)?;
    make_directory(&settings.journeys(), 0o711)?;
    make_directory(&settings.state.join("log"), 0o700)?;
    make_directory(&settings.run, 0o755)?;
    make_directory(&settings.supervisors(), 0o711)?;
    let cluster = Cluster::open(
        settings.identity(),
        settings.config.advertise.clone(),
        Class::here().to_string(),
    )?;
    let control_path = settings.control_socket();
    let control = server::open(&control_path).with_context(|| {
        format!(
            "The control socket {} cannot be opened",
            control_path.display()
        )
    })?;
    let listen = settings.config.listen;
    let listener = port::open(listen).await.with_context(|| {
        format!("{listen} cannot be opened: another program listens there, or it takes root")
    })?;
    cluster.set_port(
        listener
            .local_addr()
            .map_or(listen.port(), |address| address.port()),
    );
    let daemon = Daemon::new(settings, cluster);
    watching::refresh_all(&daemon).await;
    hosting::take_up(&daemon).await;
    tokio::spawn(Arc::clone(&daemon).tick());
    tokio::spawn(membership::beat(Arc::clone(&daemon)));
    tokio::spawn(port::serve(Arc::clone(&daemon), listener));
    tokio::spawn(server::serve(Arc::clone(&daemon), control));
    tracing::info!(node = daemon.cluster.node(), "ready");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // Supervisors and their guests go on: a new daemon finds them again.
    let _ = std::fs::remove_file(control_path);
    tracing::info!("ended");
    Ok(())
}
