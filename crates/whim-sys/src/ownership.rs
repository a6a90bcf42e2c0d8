//! Which users own a user namespace.

use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `linux/nsfs.h`: `_IO(0xb7, 2)`, `_IO(0xb7, 4)`.
const NS_GET_PARENT: u64 = 0xb702;
const NS_GET_OWNER_UID: u64 = 0xb704;
/// The kernel nests no more user namespaces.
const LEVELS_MAX: usize = 33;

fn parent(namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // JUSTIFICATION: neither std nor nix asks namespaces for anything.
    // SAFETY: this request takes no argument and gives a new descriptor, which becomes ours alone.
    unsafe {
        let raw = Errno::result(libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT))?;
        Ok(OwnedFd::from_raw_fd(raw))
    }
}

fn owner(namespace: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut uid: libc::uid_t = 0;
    // JUSTIFICATION: as above.
    // SAFETY: this request writes one uid_t to where its argument points, a live local.
    Errno::result(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) })?;
    Ok(uid)
}

/// The users that have made this user namespace and those around it, up to ours, which does not
/// count. Each of these users has all rights in the namespace. The list is empty for our own
/// namespace and for those that are not below it.
///
/// # Errors
/// The descriptor is not that of a user namespace.
pub fn owners(namespace: File) -> io::Result<Vec<u32>> {
    let identity = |file: &File| file.metadata().map(|about| (about.dev(), about.ino()));
    let own = identity(&File::open("/proc/self/ns/user")?)?;
    let mut found = Vec::new();
    let mut namespace = namespace;
    for _ in 0..LEVELS_MAX {
        if identity(&namespace)? == own {
            return Ok(found);
        }
        found.push(owner(namespace.as_fd())?);
        match parent(namespace.as_fd()) {
            Ok(around) => namespace = File::from(around),
            // It is not below ours.
            Err(Errno::EPERM) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn our_own_namespace_has_no_owner_below_us() {
        let own = File::open("/proc/self/ns/user").expect("opened");
        assert_eq!(owners(own).expect("asked"), Vec::<u32>::new());
    }

    #[test]
    fn whoever_makes_a_namespace_owns_it() {
        // Where namespaces are forbidden there are none to own.
        let mut child = Command::new("unshare")
            .args([
                "-U",
                "-r",
                "unshare",
                "-U",
                "sh",
                "-c",
                "echo made; read end",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("read");
        if line.trim() == "made" {
            let path = format!("/proc/{}/ns/user", child.id());
            let namespace = File::open(path).expect("opened");
            let own = nix::unistd::getuid().as_raw();
            assert_eq!(owners(namespace).expect("asked"), [own, own]);
        }
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
