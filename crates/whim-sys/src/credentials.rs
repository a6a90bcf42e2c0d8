//! Who a process is: peers of unix sockets, changes of uid, capabilities, dumpability.

use nix::unistd::{Gid, Uid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use thiserror::Error;

use crate::pidfd::Pidfd;

#[derive(Debug, Error)]
pub enum CredentialError {
    #[error("The kernel does not say who is at the other end of a unix socket ({0})")]
    Peer(#[source] nix::Error),
    #[error("This process cannot become uid {uid}, gid {gid} ({error}); that takes root")]
    Identity {
        uid: u32,
        gid: u32,
        error: io::Error,
    },
    #[error("The capabilities of this process cannot be changed ({0})")]
    Capabilities(#[source] io::Error),
    #[error("prctl failed ({0}); the kernel is older than Whimbrel needs")]
    Prctl(#[source] io::Error),
}

/// Who is at the other end of a unix socket, as the kernel saw it at connect time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// In our own pid namespace; 0 when the peer lives outside of it.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// Reads SO_PEERCRED.
///
/// # Errors
/// When the descriptor is not a connected unix socket.
pub fn peer(socket: &impl AsFd) -> Result<Peer, CredentialError> {
    let found = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials)
        .map_err(CredentialError::Peer)?;
    Ok(Peer {
        pid: found.pid(),
        uid: found.uid(),
        gid: found.gid(),
    })
}

/// SO_PEERPIDFD of `asm-generic/socket.h`, from Linux 6.5 on.
const SO_PEERPIDFD: i32 = 77;

/// The process at the other end of a unix socket at connect time, as a pidfd, so that no later
/// process with its number is mistaken for it. `None` if the kernel cannot tell (before Linux 6.5).
///
/// # Errors
/// The process has ended, or the descriptor is not a connected unix socket.
pub fn peer_process(socket: &impl AsFd) -> Result<Option<Pidfd>, CredentialError> {
    let mut raw: i32 = -1;
    let mut length = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(4);
    // JUSTIFICATION: neither std nor nix offers SO_PEERPIDFD.
    // SAFETY: `raw` is writable for `length` bytes, and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut raw).cast(),
            &raw mut length,
        )
    };
    match nix::errno::Errno::result(result) {
        Err(nix::errno::Errno::ENOPROTOOPT) => Ok(None),
        Err(errno) => Err(CredentialError::Peer(errno)),
        Ok(_) => {
            // JUSTIFICATION: the kernel gives a raw descriptor.
            // SAFETY: it has just given us this one, and nobody else owns it.
            let owned = unsafe { OwnedFd::from_raw_fd(raw) };
            Ok(Some(Pidfd::from_descriptor(owned)))
        }
    }
}

/// Reads SO_PEERGROUPS: the supplementary groups of the peer at connect time.
///
/// # Errors
/// When the descriptor is not a connected unix socket.
pub fn peer_groups(socket: &impl AsFd) -> Result<Vec<u32>, CredentialError> {
    // A member of more groups than the kernel's own limit (65,536) cannot exist.
    let mut groups = vec![0u32; 65_536];
    let mut length = libc::socklen_t::try_from(groups.len() * 4).unwrap_or(libc::socklen_t::MAX);
    // JUSTIFICATION: neither std nor nix offers SO_PEERGROUPS.
    // SAFETY: `groups` is writable for `length` bytes, and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    nix::errno::Errno::result(result).map_err(CredentialError::Peer)?;
    groups.truncate(usize::try_from(length).unwrap_or(0) / 4);
    Ok(groups)
}

/// A capability, by its number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(pub u8);

impl Capability {
    pub const KILL: Self = Self(5);
    pub const SYS_PTRACE: Self = Self(19);
    pub const SYS_RESOURCE: Self = Self(24);
    pub const SYS_ADMIN: Self = Self(21);
    pub const CHECKPOINT_RESTORE: Self = Self(40);
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// Highest capability that has ever been numbered is 40; the kernel refuses unknown ones.
const CAPABILITY_COUNT: u8 = 64;

fn prctl(option: i32, second: u64, third: u64) -> io::Result<i32> {
    // JUSTIFICATION: nix wraps only some prctl options; those used here take plain numbers.
    // SAFETY: none of the options passed by this module takes a pointer.
    let result = unsafe { libc::prctl(option, second, third, 0u64, 0u64) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn set_capability_sets(mask: u64) -> io::Result<()> {
    set_capabilities(mask, mask)
}

/// `held` is both the effective and the permitted set.
fn set_capabilities(held: u64, inheritable: u64) -> io::Result<()> {
    let header = CapabilityHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let low = |mask: u64| u32::try_from(mask & u64::from(u32::MAX)).unwrap_or(0);
    let half = |held: u64, inheritable: u64| CapabilityData {
        effective: low(held),
        permitted: low(held),
        inheritable: low(inheritable),
    };
    let data = [half(held, inheritable), half(held >> 32, inheritable >> 32)];
    // JUSTIFICATION: libc offers no function for capset.
    // SAFETY: header and data have the layout of version 3 of capset and outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The effective capabilities of this process, bit n for capability n.
#[must_use]
pub fn effective_capabilities() -> u64 {
    std::fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// Gives up every capability but `keep` (effective, permitted, inheritable, ambient; where possible
/// the bounding set too). To keep a capability that is not held is an error.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only_capabilities(keep: &[Capability]) -> Result<(), CredentialError> {
    restrict(keep).map_err(CredentialError::Capabilities)
}

fn mask_of(capabilities: &[Capability]) -> u64 {
    let add = |mask, capability: &Capability| mask | 1 << capability.0;
    capabilities.iter().fold(0, add)
}

/// Empties the bounding set while we still may. Capabilities that are to be kept become inheritable
/// first, because only those in the bounding set can.
fn unbound(keep: &[Capability]) -> io::Result<()> {
    set_capabilities(effective_capabilities(), mask_of(keep))?;
    for capability in 0..CAPABILITY_COUNT {
        // As in `restrict`.
        let _ = prctl(libc::PR_CAPBSET_DROP, u64::from(capability), 0);
    }
    Ok(())
}

fn restrict(keep: &[Capability]) -> io::Result<()> {
    let mask = mask_of(keep);
    for capability in 0..CAPABILITY_COUNT {
        if mask & (1 << capability) == 0 {
            // Fails with EPERM without CAP_SETPCAP and with EINVAL beyond the kernel's last one:
            // the sets below decide what this process can do, the bounding set is a second wall.
            let _ = prctl(libc::PR_CAPBSET_DROP, u64::from(capability), 0);
        }
    }
    let _ = prctl(
        libc::PR_CAP_AMBIENT,
        u64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned()),
        0,
    );
    set_capability_sets(mask)?;
    for capability in keep {
        prctl(
            libc::PR_CAP_AMBIENT,
            u64::from(libc::PR_CAP_AMBIENT_RAISE.cast_unsigned()),
            u64::from(capability.0),
        )?;
    }
    Ok(())
}

/// Gives up every capability of the calling thread. Other threads keep theirs.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_all_capabilities() -> Result<(), CredentialError> {
    keep_only_capabilities(&[])
}

/// Forbids the calling thread to gain rights by executing a program.
///
/// # Errors
/// When the kernel refuses.
pub fn gain_nothing_by_exec() -> Result<(), CredentialError> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)
        .map(drop)
        .map_err(CredentialError::Prctl)
}

fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    let gid = Gid::from_raw(gid);
    let uid = Uid::from_raw(uid);
    nix::unistd::setgroups(&groups)?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    Ok(())
}

/// Becomes `uid`, `gid` with the given supplementary groups, real, effective and saved, and keeps
/// only `keep` of the capabilities.
///
/// # Errors
/// Without the right to change the identity.
pub fn become_identity(
    uid: u32,
    gid: u32,
    groups: &[u32],
    keep: &[Capability],
) -> Result<(), CredentialError> {
    prctl(libc::PR_SET_KEEPCAPS, 1, 0).map_err(CredentialError::Prctl)?;
    become_user(uid, gid, groups).map_err(|error| CredentialError::Identity { uid, gid, error })?;
    prctl(libc::PR_SET_KEEPCAPS, 0, 0).map_err(CredentialError::Prctl)?;
    keep_only_capabilities(keep)
}

/// Forbids (or allows) other processes of the same user to trace this one or to read its memory.
///
/// # Errors
/// When the kernel refuses.
pub fn set_dumpable(dumpable: bool) -> Result<(), CredentialError> {
    prctl(libc::PR_SET_DUMPABLE, u64::from(dumpable), 0)
        .map(drop)
        .map_err(CredentialError::Prctl)
}

/// Variables of our environment that a supervisor gets. The rest may hold secrets of whoever
/// started us, and the supervisor's owner can read its environment in /proc.
const ENVIRONMENT: [&str; 4] = ["PATH", "RUST_BACKTRACE", "WHIM_LOG", crate::crash::VARIABLE];

/// How a supervisor is started: as which user, with which rights, limits and descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// uid, gid, supplementary groups; `None`: keep ours.
    pub identity: Option<(u32, u32, Vec<u32>)>,
    /// Capabilities that survive the change of identity and the exec (as ambient ones); only with
    /// `identity`.
    pub keep: Vec<Capability>,
    /// Leave our session and terminal, so that neither a hangup nor our end affects the child.
    pub new_session: bool,
    /// Files `cgroup.procs` into which the child writes itself before anything else. A cgroup that
    /// cannot be entered is not an error: limits are then those of the caller.
    pub enter_cgroups: Vec<std::path::PathBuf>,
    /// Enter the time namespace of the process with this pid, so that the child has the same
    /// clocks.
    pub clocks_of: Option<i32>,
    /// Descriptors that the child inherits, under the numbers that they have here. The caller keeps
    /// them open until the child has started.
    pub inherit: Vec<RawFd>,
    /// Longest file that the child can write, in bytes. A write beyond it fails, as on a full disk.
    pub file_max: Option<u64>,
}

impl Launch {
    /// Arranges for `command` to be started this way.
    pub fn apply(self, command: &mut Command) {
        command.env_clear();
        command.envs(
            ENVIRONMENT
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        );
        let child_side = move || self.in_child();
        // JUSTIFICATION: std cannot set groups, ambient capabilities, sessions or cgroups.
        // SAFETY: the closure runs between fork and exec of a process that may have had other
        // threads. It makes system calls and opens files; its only allocations are short vectors
        // and paths, which glibc's malloc (whose locks are reset in the child by fork) allows.
        unsafe {
            command.pre_exec(child_side);
        }
    }

    fn in_child(&self) -> io::Result<()> {
        for procs in &self.enter_cgroups {
            let _ = std::fs::write(procs, b"0");
        }
        if let Some(pid) = self.clocks_of {
            let namespace = std::fs::File::open(format!("/proc/{pid}/ns/time"))?;
            nix::sched::setns(namespace, crate::namespace::Set::TIME.flags())?;
        }
        if self.new_session {
            nix::unistd::setsid()?;
        }
        for number in &self.inherit {
            crate::inherited::hand_over(*number)?;
        }
        if let Some(bytes) = self.file_max {
            limit_files(bytes)?;
        }
        if let Some((uid, gid, groups)) = &self.identity {
            // The bounding set is emptied before CAP_SETPCAP goes.
            unbound(&self.keep)?;
            prctl(libc::PR_SET_KEEPCAPS, 1, 0)?;
            become_user(*uid, *gid, groups)?;
            prctl(libc::PR_SET_KEEPCAPS, 0, 0)?;
            restrict(&self.keep)?;
        }
        Ok(())
    }
}

/// From now on no file that this process writes can become longer than this. A write beyond the
/// limit fails; it does not end the process.
///
/// # Errors
/// When the kernel refuses.
pub fn limit_files(bytes: u64) -> io::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    use nix::sys::signal::{SigHandler, Signal, signal};
    // JUSTIFICATION: there is no safe way to ignore a signal.
    // SAFETY: to ignore one installs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
    setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_that_is_too_long_is_as_a_full_disk() {
        let path = std::env::temp_dir().join(format!("whim-limit-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file");
        let mut command = Command::new("head");
        command.args(["-c", "5000", "/dev/zero"]).stdout(file);
        let launch = Launch {
            file_max: Some(4096),
            ..Launch::default()
        };
        launch.apply(&mut command);
        let output = command.output().expect("head runs");
        assert_eq!(
            output.status.code(),
            Some(1),
            "it is told so, and not ended"
        );
        let written = std::fs::metadata(&path).expect("there").len();
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(written, 4096);
    }

    #[test]
    fn a_socket_pair_names_this_process() {
        let (ours, _theirs) = UnixStream::pair().expect("socket pair");
        let peer = peer(&ours).expect("peer");
        assert_eq!(u32::try_from(peer.pid).ok(), Some(std::process::id()));
        assert_eq!(peer.uid, Uid::current().as_raw());
        // Older kernels cannot tell.
        if let Some(process) = peer_process(&ours).expect("asked") {
            assert_eq!(process.pid().expect("alive"), peer.pid);
        }
    }

    #[test]
    fn groups_of_a_peer_are_read() {
        let (ours, _theirs) = UnixStream::pair().expect("socket pair");
        let mine: Vec<u32> = nix::unistd::getgroups()
            .expect("groups")
            .into_iter()
            .map(Gid::as_raw)
            .collect();
        assert_eq!(peer_groups(&ours).expect("peer groups"), mine);
    }

    #[test]
    fn a_launched_child_has_the_identity_and_only_the_kept_capability() {
        if !Uid::effective().is_root() {
            return;
        }
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        Launch {
            identity: Some((4711, 4712, vec![4713])),
            keep: vec![Capability::SYS_PTRACE],
            new_session: true,
            ..Launch::default()
        }
        .apply(&mut command);
        let output = command.output().expect("cat runs");
        let status = String::from_utf8(output.stdout).expect("text");
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect("field");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(field("Uid:"), "4711 4711 4711 4711");
        assert_eq!(field("Gid:"), "4712 4712 4712 4712");
        assert_eq!(field("Groups:"), "4713");
        assert_eq!(
            u64::from_str_radix(&field("CapEff:"), 16).ok(),
            Some(1 << 19)
        );
        assert_eq!(
            u64::from_str_radix(&field("CapPrm:"), 16).ok(),
            Some(1 << 19)
        );
        assert_eq!(u64::from_str_radix(&field("CapBnd:"), 16).ok(), Some(0));
    }
}
