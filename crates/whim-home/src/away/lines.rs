//! How a line is watched, whichever connections it runs over.

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use whim_net::Line;

/// Watches a line and the door by which its new connections come.
pub(super) fn begin(epoll: &Epoll, line: &mut Line, token: u64) -> Result<()> {
    line.take_renewed();
    add(epoll, line.door(), token)?;
    add(epoll, line.as_fd(), token)
}

/// For a line without a connection, its own descriptor is that of its door.
fn add(epoll: &Epoll, descriptor: impl AsFd, token: u64) -> Result<()> {
    match epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, token)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn end(epoll: &Epoll, line: &Line) {
    let _ = epoll.delete(line);
    let _ = epoll.delete(line.door());
}

/// Maintains a line; true if it runs over another connection than before. (The kernel forgets a
/// descriptor that was watched when it is closed.)
pub(super) fn keep(epoll: Option<&Epoll>, line: &mut Line, token: u64) -> Result<bool> {
    line.tick()?;
    let renewed = line.take_renewed();
    if let (true, Some(epoll)) = (renewed, epoll) {
        add(epoll, line.as_fd(), token)?;
    }
    Ok(renewed)
}
