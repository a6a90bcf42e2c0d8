//! The daemon's command line, from which its help and man page are made.

use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// home supervisor, the next guest supervisor and this daemon end
    #[arg(long, value_name = "PATH", hide = true)]
    pub crash_plan: Option<PathBuf>,
}
