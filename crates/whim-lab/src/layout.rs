//! Where a lab's files are.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Uid, geteuid};

use crate::error::LabError;
use crate::options::check_name;

/// How long a verb waits for another one that changes the same lab.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The directory of root's labs.
const OF_ROOT: &str = "/run/whim-lab";
/// Where directories of users' labs are; each is called `whim-lab`, or in /tmp `whim-lab-UID`.
const RUNTIME: &str = "/run/user";
const TEMPORARY: &str = "/tmp";

/// The directories of labs that there may be on this machine, whoever's they are.
pub(crate) fn directories_of_all() -> Vec<PathBuf> {
    let entries = |path: &str| std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = vec![labs_directory(), PathBuf::from(OF_ROOT)];
    found.extend(entries(RUNTIME).map(|entry| entry.path().join("whim-lab")));
    let temporary = entries(TEMPORARY).filter(|entry| {
        let name = entry.file_name();
        let uid = name
            .to_str()
            .and_then(|name| name.strip_prefix("whim-lab-"));
        let uid = uid.and_then(|uid| uid.parse().ok()).map(Uid::from_raw);
        uid.is_some_and(|uid| owned_by(&entry.path(), uid))
    });
    found.extend(temporary.map(|entry| entry.path()));
    found.sort();
    found.dedup();
    found
}

/// The directory of this user's labs.
pub(crate) fn labs_directory() -> PathBuf {
    let user = geteuid();
    if user.is_root() {
        return PathBuf::from(OF_ROOT);
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() && owned_by(&runtime, user) => {
            runtime.join("whim-lab")
        }
        _ => PathBuf::from(format!("/tmp/whim-lab-{user}")),
    }
}

fn owned_by(path: &Path, user: Uid) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == user.as_raw())
}

/// Makes the directory of labs if it is missing.
fn make_directory(path: &Path) -> Result<(), LabError> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(LabError::file("make", path)(e)),
        _ => Ok(()),
    }
}

/// Refuses a directory that somebody else has laid out (in /tmp anyone may).
fn check_directory(path: &Path) -> Result<(), LabError> {
    let found = std::fs::symlink_metadata(path).map_err(LabError::file("look at", path))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(LabError::ForeignDirectory {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    Ok(())
}

/// The paths of one lab.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    labs: PathBuf,
    name: String,
}

impl Layout {
    pub(crate) fn new(name: &str) -> Result<Layout, LabError> {
        check_name(name)?;
        Ok(Layout {
            labs: labs_directory(),
            name: name.to_owned(),
        })
    }

    /// A lab of this name among those of `labs`.
    pub(crate) fn below(labs: &Path, name: &str) -> Result<Layout, LabError> {
        check_name(name)?;
        Ok(Layout {
            labs: labs.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The lab whose directory this is.
    pub(crate) fn from_directory(directory: &Path) -> Option<Layout> {
        let name = directory.file_name()?.to_str()?;
        check_name(name).ok()?;
        Some(Layout {
            labs: directory.parent()?.to_owned(),
            name: name.to_owned(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Everything of the lab but its lock.
    pub(crate) fn directory(&self) -> PathBuf {
        self.labs.join(&self.name)
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.directory().join("lab.json")
    }

    /// Seen by all nodes at the same path.
    pub(crate) fn share(&self) -> PathBuf {
        self.directory().join("share")
    }

    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.directory().join(node)
    }

    /// What the node sees as /var/lib/whim.
    pub(crate) fn node_state(&self, node: &str) -> PathBuf {
        self.node(node).join("var")
    }

    /// Where the node's private file systems are put together.
    pub(crate) fn node_stage(&self, node: &str) -> PathBuf {
        self.node(node).join("stage")
    }

    pub(crate) fn daemon_log(&self, node: &str) -> PathBuf {
        self.node(node).join("daemon.log")
    }

    /// What a helper process has to say, by the name of what it does.
    pub(crate) fn helper_log(&self, what: &str) -> PathBuf {
        self.directory().join(format!("{what}.log"))
    }

    pub(crate) fn wire_counters(&self, wire: &str) -> PathBuf {
        self.directory().join(format!("{wire}.json"))
    }

    fn lock_file(&self) -> PathBuf {
        self.labs.join(format!("{}.lock", self.name))
    }

    /// Whether somebody changes this lab, or was killed while at it.
    pub(crate) fn is_locked_or_was(&self) -> bool {
        self.lock_file().exists()
    }

    /// Removes the directory of all labs when it is empty.
    pub(crate) fn remove_labs_directory(&self) {
        let _ = std::fs::remove_dir(&self.labs);
    }

    /// The right to change a lab that is to be: makes the directory of all labs. Somebody whose last lab goes down
    /// takes it away as long as it is empty, also between our making it and our putting the first file there.
    pub(crate) fn lock_new(&self) -> Result<LabLock, LabError> {
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            // No retry mends this: what it would be in is missing.
            make_directory(&self.labs)?;
            match check_directory(&self.labs).and_then(|()| self.lock()) {
                Err(LabError::File { source, .. })
                    if source.kind() == ErrorKind::NotFound && Instant::now() < deadline => {}
                locked => return locked,
            }
        }
    }

    /// Waits for the right to change this lab.
    pub(crate) fn lock(&self) -> Result<LabLock, LabError> {
        let path = self.lock_file();
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)
                .map_err(LabError::file("open", &path))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // The holder before us may have removed the file that we opened.
                Ok(held) if same_file(&held, &path) => return Ok(LabLock { path, _held: held }),
                Ok(_) | Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(LabError::file("lock", &path)(errno.into())),
            }
            if Instant::now() >= deadline {
                return Err(LabError::Busy(self.name.clone(), LOCK_LIMIT.as_secs()));
            }
            std::thread::sleep(LOCK_RETRY);
        }
    }
}

fn same_file(held: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (held.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// The right to change a lab, until dropped.
#[derive(Debug)]
pub(crate) struct LabLock {
    path: PathBuf,
    _held: Flock<File>,
}

impl LabLock {
    /// Takes the lock's file away as well, when the lab is no more.
    pub(crate) fn remove(self) {
        // Done while the lock is held; whoever waits for the old file notices and starts over.
        let _ = std::fs::remove_file(&self.path);
        if let Some(labs) = self.path.parent() {
            let _ = std::fs::remove_dir(labs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn without_a_place_for_labs_nobody_waits() {
        let directory = tempfile::tempdir().expect("a directory");
        let layout = Layout {
            labs: directory.path().join("missing/labs"),
            name: "one".to_owned(),
        };
        let begun = Instant::now();
        let error = layout.lock_new().expect_err("no place");
        assert!(
            matches!(error, LabError::File { what: "make", .. }),
            "{error}"
        );
        assert!(begun.elapsed() < LOCK_LIMIT / 2);
    }

    #[test]
    fn a_lab_comes_up_while_the_last_other_one_goes_down() {
        let directory = tempfile::tempdir().expect("a directory");
        let layout = |name: &str| Layout {
            labs: directory.path().join("labs"),
            name: name.to_owned(),
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    layout("other").remove_labs_directory();
                    std::thread::yield_now();
                }
            });
            let mut locked = (0..500).map(|_| layout("one").lock_new().map(LabLock::remove));
            let failed = locked.find_map(Result::err);
            done.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }
}
