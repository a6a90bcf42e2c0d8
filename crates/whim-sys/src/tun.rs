//! TUN devices: the kernel's IP packets as reads and writes of a descriptor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

const DEVICE: &str = "/dev/net/tun";

/// Longest interface name, without the final NUL.
pub const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// What can fail here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The control device is missing or forbidden.
    #[error(
        "Cannot open {DEVICE}: {0}; the kernel needs CONFIG_TUN, and the caller read and write permission on it"
    )]
    Open(io::Error),
    /// The name cannot be that of an interface.
    #[error("Cannot name a TUN device '{0}': 1 to {NAME_MAX} letters, digits, '-' or '.'")]
    Name(String),
    /// The kernel refused the device.
    #[error(
        "Cannot make the TUN device {0}: {1}; CAP_NET_ADMIN over this network namespace is needed, and the name must be free"
    )]
    Attach(String, Errno),
}

/// One TUN device, queue 0, without the packet information header. It disappears from its
/// network namespace when this value is dropped or the process ends in any way.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes the device in the caller's network namespace. It starts down and without addresses.
    pub fn create(name: &str) -> Result<Tun, TunError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(legal) {
            return Err(TunError::Name(name.to_owned()));
        }
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(DEVICE)
            .map_err(TunError::Open)?;
        attach(&file, name).map_err(|errno| TunError::Attach(name.to_owned(), errno))?;
        Ok(Tun {
            file,
            name: name.to_owned(),
        })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next whole packet that the kernel routed to the device into `buffer`. Returns its
    /// length in bytes, or `None` when there is no packet now. A packet longer than `buffer` is cut
    /// off.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Hands one whole IP packet to the kernel as if it had arrived on the device.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn attach(file: &File, name: &str) -> Result<(), Errno> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: libc::c_short::try_from(flags).map_err(|_| Errno::EINVAL)?,
        },
    };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::try_from(from).map_err(|_| Errno::EINVAL)?;
    }
    // JUSTIFICATION: TUNSETIFF is an ioctl, for which there is no safe wrapper.
    // SAFETY: the descriptor is open; `request` is a complete ifreq that outlives the call, its
    // name ends in NUL because `name` is at most NAME_MAX bytes (checked by the caller).
    let done = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETIFF,
            std::ptr::from_mut(&mut request),
        )
    };
    Errno::result(done).map(drop)
}
