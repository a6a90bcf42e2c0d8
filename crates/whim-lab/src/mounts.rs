//! What a node sees of the machine's files: everything as it is, but for the places that are a
//! machine's own: /tmp, /run, /dev/shm, /proc, a few files of /etc, and the daemon's state.
//!
//! All of it is mounted in the node's private mount namespace and ends with it; the machine's own
//! directories are never written.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use whim_sys::namespace::{self, NamespaceError};

use crate::role::NodeTask;

/// Directories that each machine has for itself, with their permissions.
pub(crate) const PRIVATE: [(&str, u32); 3] =
    [("/tmp", 0o1777), ("/run", 0o755), ("/dev/shm", 0o1777)];
/// Largest file that is copied rather than bound where there is no overlayfs.
const COPY_BYTES_MAX: u64 = 1 << 20;
/// Where the daemon keeps its state.
const STATE: &str = "/var/lib/whim";

/// Lays out the caller's mount namespace, which has to be new and private, as a node's.
pub(crate) fn lay_out(task: &NodeTask) -> Result<(), String> {
    let stage = &task.stage;
    tmpfs(stage, 0o755)?;
    let etc = Additions {
        directory: Path::new("/etc"),
        files: etc_files(task),
        directories: Vec::new(),
    };
    etc.mount(stage)?;
    if !Path::new(STATE).is_dir() {
        let var = Additions {
            directory: Path::new("/var/lib"),
            files: Vec::new(),
            directories: vec!["whim"],
        };
        var.mount(stage)?;
    }
    said(namespace::bind(&task.state_directory, Path::new(STATE)))?;
    cover_private_directories(stage, &task.shares)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    said(namespace::mount_new("proc", Path::new("/proc"), flags, ""))?;
    let queues = Path::new("/dev/mqueue");
    if queues.is_dir() {
        // Not every kernel has message queues; without them there is nothing to keep apart.
        let _ = namespace::mount_new("mqueue", queues, flags, "");
    }
    Ok(())
}

fn etc_files(task: &NodeTask) -> Vec<(&'static str, String)> {
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let node = format!(
        "node {} of lab {}\nsecret {}\n",
        task.name, task.lab, task.secret
    );
    vec![
        ("whim-node", node),
        ("hostname", format!("{}\n", task.name)),
        ("hosts", format!("{}\n{}", hosts.trim_end(), task.hosts)),
        ("machine-id", format!("{}\n", task.machine_id)),
    ]
}

fn said<T>(result: Result<T, NamespaceError>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

fn tmpfs(at: &Path, mode: u32) -> Result<(), String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    said(namespace::mount_new(
        "tmpfs",
        at,
        flags,
        &format!("mode={mode:o}"),
    ))
}

fn make_directory(path: &Path) -> Result<(), String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|e| format!("Cannot make {}: {e}", path.display()))
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("Cannot write {}: {e}", path.display());
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(failed)
}

/// Entries that a directory of the machine gets in this node alone.
struct Additions {
    directory: &'static Path,
    files: Vec<(&'static str, String)>,
    directories: Vec<&'static str>,
}

impl Additions {
    fn mount(&self, stage: &Path) -> Result<(), String> {
        match self.mount_overlay(stage) {
            Ok(()) => Ok(()),
            // A kernel without overlayfs, or a lower file system that it does not take.
            Err(overlay) => self
                .mount_farm(stage)
                .map_err(|farm| format!("{farm} (and before: {overlay})")),
        }
    }

    fn mount_overlay(&self, stage: &Path) -> Result<(), String> {
        let place = stage.join(format!("overlay{}", self.directory.display()).replace('/', "-"));
        let (upper, work) = (place.join("upper"), place.join("work"));
        make_directory(&upper)?;
        make_directory(&work)?;
        self.add_to(&upper)?;
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.directory.display(),
            upper.display(),
            work.display()
        );
        let flags = MsFlags::empty();
        said(
            namespace::mount_new("overlay", self.directory, flags, &layers).or_else(|_| {
                // What a user namespace needs: attributes that it may write.
                let layers = format!("{layers},userxattr");
                namespace::mount_new("overlay", self.directory, flags, &layers)
            }),
        )
    }

    /// The same without overlayfs: a new directory with every entry of the old one shown in it.
    fn mount_farm(&self, stage: &Path) -> Result<(), String> {
        let place = stage.join(format!("farm{}", self.directory.display()).replace('/', "-"));
        make_directory(&place)?;
        tmpfs(&place, 0o755)?;
        let failed = |e: std::io::Error| format!("Cannot read {}: {e}", self.directory.display());
        for entry in fs::read_dir(self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let added = |name: &&str| entry.file_name() == **name;
            if self.files.iter().any(|(name, _)| added(name)) {
                continue;
            }
            show(&entry.path(), &place.join(entry.file_name()))?;
        }
        self.add_to(&place)?;
        said(namespace::move_mount(&place, self.directory))
    }

    fn add_to(&self, directory: &Path) -> Result<(), String> {
        for (name, text) in &self.files {
            write_file(&directory.join(name), text)?;
        }
        for name in &self.directories {
            make_directory(&directory.join(name))?;
        }
        Ok(())
    }
}

/// Makes `target` show what `source` is: a copy, or for what is no small file a bind mount.
fn show(source: &Path, target: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("Cannot show {}: {e}", source.display());
    let found = fs::symlink_metadata(source).map_err(failed)?;
    if found.is_symlink() {
        let to = fs::read_link(source).map_err(failed)?;
        return std::os::unix::fs::symlink(to, target).map_err(failed);
    }
    // Copied, so that a node cannot change the machine's; what a plain user may not read he may
    // not change either.
    if found.is_file() && found.len() <= COPY_BYTES_MAX && fs::copy(source, target).is_ok() {
        let _ = std::os::unix::fs::chown(target, Some(found.uid()), Some(found.gid()));
        return Ok(());
    }
    if found.is_dir() {
        make_directory(target)?;
    } else {
        fs::File::create(target).map_err(failed)?;
    }
    said(namespace::bind(source, target))
}

/// Puts new file systems over the private directories, the shares bound into them beforehand,
/// while their old paths still lead somewhere.
fn cover_private_directories(stage: &Path, shares: &[PathBuf]) -> Result<(), String> {
    let mut covers = Vec::new();
    for (directory, mode) in PRIVATE {
        let Ok(directory) = fs::canonicalize(directory) else {
            continue;
        };
        let cover = stage.join(format!("cover{}", directory.display()).replace('/', "-"));
        make_directory(&cover)?;
        tmpfs(&cover, mode)?;
        for share in shares {
            let Ok(below) = share.strip_prefix(&directory) else {
                continue;
            };
            let target = cover.join(below);
            make_directory(&target)?;
            said(namespace::bind(share, &target))?;
        }
        if directory == Path::new("/run") {
            make_directory(&cover.join("whim"))?;
            make_directory(&cover.join("lock"))?;
        }
        covers.push((cover, directory));
    }
    // The stage itself is below one of them, which hides it and so has to be the last.
    covers.sort_by_key(|(_, directory)| stage.starts_with(directory));
    for (cover, directory) in covers {
        said(namespace::move_mount(&cover, &directory))?;
    }
    Ok(())
}
