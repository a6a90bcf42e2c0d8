//! Breaks connections from outside, while their owners use them.

use std::fs;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::socket::{SockaddrStorage, getpeername};
use std::os::fd::AsRawFd;
use whim_sys::pidfd::Pidfd;

use crate::cluster::Cluster;

/// Breaks the connections of one program on one node.
#[derive(Clone, Debug)]
pub struct Cutter {
    network: PathBuf,
    program: &'static str,
}

impl Cutter {
    /// `program` is `whim-home` or `whim-guest`.
    ///
    /// # Errors
    /// When the node does not say which network it has.
    pub fn new(cluster: &Cluster, node: &str, program: &'static str) -> Result<Self> {
        let network = cluster.run(node, &["readlink", "/proc/self/ns/net"])?;
        Ok(Self {
            network: network.trim().into(),
            program,
        })
    }

    /// Ends every TCP connection that the program has just now, as a reset on the way would; how
    /// many there were. Processes and connections that go meanwhile are not counted.
    ///
    /// # Errors
    /// When the processes cannot be listed.
    pub fn cut(&self) -> Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            if self.is_ours(&path) {
                count += cut_all(&path).unwrap_or(0);
            }
        }
        Ok(count)
    }

    fn is_ours(&self, process: &Path) -> bool {
        let is_named = |name: String| name.trim() == self.program;
        fs::read_to_string(process.join("comm")).is_ok_and(is_named)
            && fs::read_link(process.join("ns/net")).is_ok_and(|link| link == self.network)
    }
}

fn cut_all(process: &Path) -> Result<usize> {
    let number = |path: &Path| -> Option<i32> { path.file_name()?.to_str()?.parse().ok() };
    let pid = Pidfd::open(number(process).context("No process")?)?;
    let mut count = 0;
    for entry in fs::read_dir(process.join("fd"))? {
        let path = entry?.path();
        let is_socket =
            fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let Some(number) = number(&path).filter(|_| is_socket) else {
            continue;
        };
        let Ok(descriptor) = pid.take(number) else {
            continue;
        };
        let peer = getpeername::<SockaddrStorage>(descriptor.as_raw_fd());
        let is_tcp = peer
            .is_ok_and(|peer| peer.as_sockaddr_in().is_some() || peer.as_sockaddr_in6().is_some());
        if is_tcp && TcpStream::from(descriptor).shutdown(Shutdown::Both).is_ok() {
            count += 1;
        }
    }
    Ok(count)
}
