//! Read leases on files: as long as one is held, nobody can write to the file unseen.

use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum LeaseError {
    #[error("{path} cannot be opened: {source}")]
    Open {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "No read lease is to be had on {path} ({errno}): somebody has it open for writing, or this user may not take leases on it"
    )]
    Refused { path: String, errno: Errno },
}

/// A read lease (F_RDLCK). The kernel sends SIGIO to this process when somebody wants to write, and
/// lets that writer wait until the lease is dropped, /proc/sys/fs/lease-break-time at most.
#[derive(Debug)]
pub struct ReadLease {
    _file: File,
}

impl ReadLease {
    /// Takes a lease. The file is named by a path of /proc/PID/map_files, so that it is exactly the
    /// one that is mapped.
    ///
    /// # Errors
    /// The file has a writer, or we lack CAP_LEASE and are not its owner.
    pub fn take(path: &Path) -> Result<Self, LeaseError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| LeaseError::Open {
            path: name.clone(),
            source,
        })?;
        // JUSTIFICATION: no library wraps F_SETLEASE.
        // SAFETY: fcntl with an open descriptor and an integer touches no memory of ours.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
        match Errno::result(result) {
            Ok(_) => Ok(Self { _file: file }),
            Err(errno) => Err(LeaseError::Refused { path: name, errno }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_gives_no_lease() {
        let path = std::env::temp_dir().join(format!("whim-lease-{}", std::process::id()));
        let writer = File::create(&path).expect("a temporary file");
        assert!(matches!(
            ReadLease::take(&path),
            Err(LeaseError::Refused { .. })
        ));
        drop(writer);
        let lease = ReadLease::take(&path).expect("nobody writes now");
        drop(lease);
        std::fs::remove_file(&path).expect("ours");
    }
}
