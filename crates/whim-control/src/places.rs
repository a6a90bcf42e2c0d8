//! Where a daemon keeps its files and is found: root's in the system's directories, a plain user's in the
//! user's own.

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

use crate::config::CONFIG_FILE;
use crate::owned::{self, OwnedError};
use crate::protocol::{RUN_DIRECTORY, SOCKET_NAME, STATE_DIRECTORY};

#[derive(Debug, Error)]
pub enum PlaceError {
    #[error("It is not known where your files are: set HOME, or name a directory with --state")]
    NoHome,
    #[error("The directory {path} cannot be made ({source})")]
    Make {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{path} is not a directory of your own (it belongs to uid {owner}): remove it, or name another one with --run and --state"
    )]
    Foreign { path: PathBuf, owner: u32 },
    #[error(
        "{0}: the daemon's files are not kept there; name another place with --run and --state"
    )]
    Exposed(#[from] OwnedError),
}

/// What decides where the places are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub uid: u32,
    pub home: Option<PathBuf>,
    /// The user's directory for sockets, if it exists and belongs to the user.
    pub runtime: Option<PathBuf>,
    pub state_home: Option<PathBuf>,
    pub config_home: Option<PathBuf>,
}

/// Directories and configuration of a daemon for which no others were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    pub state: Option<PathBuf>,
    pub run: PathBuf,
    pub config: PathBuf,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn here() -> Self {
        let uid = nix::unistd::geteuid();
        // The XDG base directory specification: relative paths are not valid.
        let path = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let of_login = || PathBuf::from(format!("/run/user/{uid}"));
        // After `su` the directory may belong to somebody else.
        let ours = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid.as_raw())
        };
        let in_passwd = || nix::unistd::User::from_uid(uid).ok().flatten();
        Self {
            uid: uid.as_raw(),
            home: path("HOME").or_else(|| in_passwd().map(|user| user.dir)),
            runtime: path("XDG_RUNTIME_DIR")
                .filter(ours)
                .or_else(|| Some(of_login()).filter(ours)),
            state_home: path("XDG_STATE_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
        }
    }
}

impl Places {
    /// The places of root or of this user.
    #[must_use]
    pub fn of(environment: &Environment) -> Self {
        if environment.uid == 0 {
            return Self {
                state: Some(STATE_DIRECTORY.into()),
                run: RUN_DIRECTORY.into(),
                config: CONFIG_FILE.into(),
            };
        }
        let below_home = |name: &str| environment.home.as_ref().map(|home| home.join(name));
        let state = environment.state_home.clone();
        let config = environment.config_home.clone();
        let config = config.or_else(|| below_home(".config")).unwrap_or_default();
        let shared = || PathBuf::from(format!("/tmp/whim-{}", environment.uid));
        let runtime = environment.runtime.as_ref();
        Self {
            state: state
                .or_else(|| below_home(".local/state"))
                .map(|path| path.join("whim")),
            run: runtime.map_or_else(shared, |path| path.join("whim")),
            config: config.join("whim/config.toml"),
        }
    }

    /// The places of this process's user.
    #[must_use]
    pub fn here() -> Self {
        Self::of(&Environment::here())
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join(SOCKET_NAME)
    }
}

/// Makes a directory for the daemon, where nobody else can put another in its place. A plain user's directory
/// is for that user alone. An existing one must belong to the daemon's user: in /tmp, somebody else may have
/// been quicker.
///
/// # Errors
/// [`PlaceError::Make`], [`PlaceError::Foreign`], [`PlaceError::Exposed`]
pub fn make_directory(path: &Path, mode: u32, root: bool) -> Result<(), PlaceError> {
    let failed = |source| PlaceError::Make {
        path: path.to_path_buf(),
        source,
    };
    let mode = if root { mode } else { 0o700 };
    owned::check_above(path)?;
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(failed)?;
    // The checks and the change go to the same open directory, since the name could lead to another one in
    // between.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let itself = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let found = fs::metadata(&itself).map_err(failed)?;
    let own = nix::unistd::geteuid().as_raw();
    if found.uid() != own || !found.is_dir() {
        let owner = found.uid();
        let path = path.to_path_buf();
        return Err(PlaceError::Foreign { path, owner });
    }
    fs::set_permissions(&itself, fs::Permissions::from_mode(mode)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> Environment {
        Environment {
            uid: 1000,
            home: Some("/users/me".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn roots_things_are_the_systems() {
        let root = Environment { uid: 0, ..user() };
        let places = Places::of(&root);
        assert_eq!(places.socket(), Path::new("/run/whim/control.sock"));
        assert_eq!(places.config, Path::new("/etc/whim/config.toml"));
        assert_eq!(places.state, Some("/var/lib/whim".into()));
    }

    #[test]
    fn a_users_things_are_the_users() {
        let places = Places::of(&user());
        assert_eq!(places.state, Some("/users/me/.local/state/whim".into()));
        assert_eq!(places.run, Path::new("/tmp/whim-1000"));
        assert_eq!(
            places.config,
            Path::new("/users/me/.config/whim/config.toml")
        );
        let told = Environment {
            runtime: Some("/run/user/1000".into()),
            state_home: Some("/s".into()),
            config_home: Some("/c".into()),
            ..user()
        };
        let places = Places::of(&told);
        assert_eq!(places.state, Some("/s/whim".into()));
        assert_eq!(
            places.socket(),
            Path::new("/run/user/1000/whim/control.sock")
        );
        assert_eq!(places.config, Path::new("/c/whim/config.toml"));
        let homeless = Environment {
            home: None,
            ..user()
        };
        assert_eq!(Places::of(&homeless).state, None);
    }

    #[test]
    fn a_directory_behind_a_link_or_of_another_user_is_not_taken() {
        let room = tempfile::tempdir().expect("directory");
        let link = room.path().join("link");
        std::os::unix::fs::symlink(room.path(), &link).expect("link");
        let refused = make_directory(&link, 0o755, false);
        assert!(matches!(refused, Err(PlaceError::Foreign { .. })));
        let own = room.path().join("a/b");
        make_directory(&own, 0o755, false).expect("ours");
        let mode = fs::metadata(&own).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
