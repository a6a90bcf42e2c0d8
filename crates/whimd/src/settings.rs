//! What one daemon was started with, and where its files are.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use whim_sys::credentials::Capability;

use crate::faults::Faults;
use whim_control::config::Config;
use whim_control::protocol::{NODE_FILE, SOCKET_NAME};
use whim_secret::files::FileError;

/// Connections of one user to the control socket at a time. Each costs the daemon a descriptor, and a task.
pub const CLIENTS_OF_USER_MAX: usize = 128;
/// Longest path of a unix socket, in bytes, without its final zero.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Directories, configuration and rights of a daemon; fixed while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub state: PathBuf,
    pub run: PathBuf,
    /// The configuration at the start. The one in force is [`crate::ground::Ground::config`].
    pub configured: Config,
    /// Directory of `whim-home` and `whim-guest`.
    pub libexec: PathBuf,
    /// Whether we may become other users.
    pub root: bool,
    /// Crash points of the fault tests.
    pub faults: Faults,
}

impl Settings {
    /// Whether our supervisors can open whatever a program maps (/proc/PID/map_files):
    /// CAP_CHECKPOINT_RESTORE counts for that only in the first user namespace.
    #[must_use]
    pub(crate) fn opens_mapped_files(&self) -> bool {
        // Inode of the first user namespace, fixed in the kernel (PROC_USER_INIT_INO).
        let first = "user:[4026531837]";
        let ours = std::fs::read_link("/proc/self/ns/user").unwrap_or_default();
        let capable = whim_sys::credentials::effective_capabilities();
        ours.as_os_str() == first && capable & (1 << Capability::CHECKPOINT_RESTORE.0) != 0
    }

    /// Whether our supervisors can live in another time namespace, provided that it belongs to our
    /// user namespace or one below.
    #[must_use]
    pub(crate) fn enters_time(&self) -> bool {
        let capable = whim_sys::credentials::effective_capabilities();
        self.root && capable & (1 << Capability::SYS_ADMIN.0) != 0
    }

    /// Whether our supervisors can read the seccomp filters of programs: CAP_SYS_ADMIN counts for that only in
    /// the first user namespace.
    #[must_use]
    pub(crate) fn reads_filters(&self) -> bool {
        self.opens_mapped_files() && self.enters_time()
    }

    #[must_use]
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.run.join(SOCKET_NAME)
    }

    /// Notes, for everybody who can reach the control socket, how this node is called.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note_node(&self, name: &str) -> std::io::Result<()> {
        let path = self.run.join(NODE_FILE);
        let new = path.with_extension("new");
        std::fs::write(&new, name)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644))?;
        std::fs::rename(&new, &path)
    }

    /// Holds one directory for each live supervisor. These are ours: see [`crate::line::directories`].
    #[must_use]
    pub(crate) fn supervisors(&self) -> PathBuf {
        self.run.join("journeys")
    }

    #[must_use]
    pub(crate) fn home_directory(&self, journey: &str) -> PathBuf {
        self.supervisors().join(format!("{journey}.home"))
    }

    #[must_use]
    pub(crate) fn guest_directory(&self, stay: &str) -> PathBuf {
        self.supervisors().join(format!("{stay}.guest"))
    }

    /// Replaces a file of the state directory; a failure is logged: what is kept there is only
    /// needed by the next daemon.
    pub(crate) fn save(&self, name: &str, bytes: &[u8]) {
        if let Err(error) = self.write(name, bytes) {
            tracing::warn!(%error, "state was not saved");
        }
    }

    /// As [`Self::save`], for what is of use in this boot alone: no disk is waited for.
    pub(crate) fn save_for_this_boot(&self, name: &str, bytes: &[u8]) {
        let written = whim_secret::files::write_for_this_boot(&self.state.join(name), bytes);
        if let Err(error) = written {
            tracing::warn!(%error, "state was not saved");
        }
    }

    /// As [`Self::save`], for what somebody has to hear of.
    ///
    /// # Errors
    /// A full disk, mostly; the file is as it was.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        whim_secret::files::write_atomically(&self.state.join(name), bytes)
    }

    /// Journals, and what we note about their journeys.
    #[must_use]
    pub(crate) fn journeys(&self) -> PathBuf {
        self.state.join("journeys")
    }

    #[must_use]
    pub(crate) fn journal(&self, journey: &str) -> PathBuf {
        self.journeys().join(format!("{journey}.journal"))
    }

    /// Tells supervisors what all guests may use together; they lock it when they make room.
    #[must_use]
    pub(crate) fn guests_share(&self) -> PathBuf {
        self.run.join("guests.share")
    }

    /// Prefix of the names of the control groups of this daemon's guests: several daemons may share the
    /// groups that they live in, and each cleans up only after itself.
    #[must_use]
    pub(crate) fn group_prefix(&self) -> String {
        format!(
            "{:016x}-",
            xxhash_rust::xxh3::xxh3_64(self.run.as_os_str().as_encoded_bytes())
        )
    }

    #[must_use]
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state.join("log").join(format!("{name}.log"))
    }

    /// Directory of certificates, keys and members.
    #[must_use]
    pub(crate) fn identity(&self) -> PathBuf {
        self.state.join("identity")
    }
}

/// Socket of a supervisor in its directory.
pub(crate) const SOCKET_FILE: &str = "sock";

#[must_use]
pub(crate) fn socket_in(directory: &Path) -> PathBuf {
    directory.join(SOCKET_FILE)
}
