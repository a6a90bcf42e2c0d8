//! The daemon's command line, from which its help and man page are made.

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::faults::Faults;
use crate::places::{PlaceError, Places};
use crate::settings::Settings;

/// The daemon of a Whimbrel node: membership, admission and the journeys of this node's processes.
#[derive(Debug, Parser)]
#[command(name = "whimd", version)]
pub struct Arguments {
    /// Identity, journals and logs (default: /var/lib/whim; without root ~/.local/state/whim)
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Control socket and the sockets of supervisors (default: /run/whim; without root
    /// $XDG_RUNTIME_DIR/whim)
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// Configuration (default: /etc/whim/config.toml, without root ~/.config/whim/config.toml, which
    /// need not exist)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port on which other nodes are heard
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// HOST:PORT under which other nodes reach this one (may be repeated)
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Vec<String>,
    /// Directory of whim-home and whim-guest (default: that of whimd)
    #[arg(long, value_name = "DIR")]
    pub libexec: Option<PathBuf>,
    /// Defaults of a lab's node: leases of 2 s, and root's processes may move
    #[arg(long)]
    pub lab: bool,
    /// Let processes of uid 0 move
    #[arg(long)]
    pub allow_root: bool,
    /// Move nothing that nobody asks for, whatever the configuration says
    #[arg(long)]
    pub no_balance: bool,
    /// For the fault tests: PATH.home, PATH.guest and PATH.whimd say at which crash points the next
    /// home supervisor, the next guest's supervisor and this daemon end
    #[arg(long, value_name = "PATH", hide = true)]
    pub crash_plan: Option<PathBuf>,
}

impl Arguments {
    /// Puts arguments, configuration and defaults together.
    ///
    /// # Errors
    /// A configuration that is not valid, that others may change, or that is not there although named.
    pub fn settings(self) -> Result<Settings> {
        let places = Places::here();
        let path = self.config.clone().unwrap_or(places.config);
        let base = if self.lab {
            Config::lab()
        } else {
            Config::default()
        };
        let mut config = match Config::load_own(&path, base.clone())? {
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
        config.balance.enabled &= !self.no_balance;
        config.check().map_err(|odd| anyhow!(odd.reason))?;
        let own = std::env::current_exe().context("whimd does not know where it lies")?;
        let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
        let state = self.state.or(places.state).ok_or(PlaceError::NoHome)?;
        Ok(Settings {
            state: std::path::absolute(state)?,
            run: std::path::absolute(self.run.unwrap_or(places.run))?,
            config,
            libexec: self.libexec.unwrap_or(beside),
            lab: self.lab,
            root: nix::unistd::geteuid().is_root(),
            faults: Faults::new(self.crash_plan),
        })
    }
}
