//! Files of the state directory: private, and always with either the whole old content or the whole
//! new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The most bytes of a file of the state directory. The list of members is the longest; inside of
/// another JSON text, each of its quotes takes two bytes.
pub const FILE_MAX: u64 = 32 << 20;

#[derive(Debug, Error)]
pub enum FileError {
    #[error(
        "The disk that holds {path} is full: free some space there and try again; nothing was changed"
    )]
    DiskFull { path: PathBuf },
    #[error("{path} exists already and is never overwritten: give another name")]
    Exists { path: PathBuf },
    #[error("{path} is not there")]
    Missing { path: PathBuf },
    #[error(
        "{path} is {length} bytes long, which no file of ours is: it was damaged, restore it from a backup"
    )]
    TooLong { path: PathBuf, length: u64 },
    #[error(
        "{path} would be {length} bytes long, more than a file of ours may be: nothing was changed"
    )]
    WouldBeTooLong { path: PathBuf, length: usize },
    #[error(
        "{path} can be read or changed by others (mode {mode:o}, uid {uid}): make it yours and private with chmod and chown"
    )]
    Exposed { path: PathBuf, mode: u32, uid: u32 },
    #[error("Failed to {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> FileError {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileError::DiskFull { path },
        io::ErrorKind::AlreadyExists => FileError::Exists { path },
        io::ErrorKind::NotFound => FileError::Missing { path },
        _ => FileError::Io {
            action,
            path,
            source,
        },
    }
}

/// Makes a private directory (0700), with its parents; an existing one is made private.
///
/// # Errors
/// Whatever the file system says.
pub fn make_private_directory(path: &Path) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|e| failed("make the directory", path, e))
}

/// Writes a file (0600) as a whole: after a crash at any moment it holds the old or the new bytes.
///
/// # Errors
/// [`FileError::DiskFull`] is told apart, since that is what an operator meets. Also if the file is
/// longer than we would read. The old file stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    replace(path, bytes, Lasting::BeyondPower)
}

/// As [`write_atomically`], but no disk is waited for: what is of use in this boot alone is as whole as that after
/// a crash of the program, and need not be after a loss of power.
///
/// # Errors
/// As [`write_atomically`].
pub fn write_for_this_boot(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    replace(path, bytes, Lasting::ThisBoot)
}

/// What a file has to outlast.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lasting {
    ThisBoot,
    BeyondPower,
}

fn replace(path: &Path, bytes: &[u8], lasting: Lasting) -> Result<(), FileError> {
    if bytes.len() as u64 > FILE_MAX {
        return Err(FileError::WouldBeTooLong {
            path: path.to_path_buf(),
            length: bytes.len(),
        });
    }
    let temporary = path.with_extension("new");
    let removed = match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let written = removed
        .and_then(|()| write_new(&temporary, bytes, lasting))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| match lasting {
            Lasting::ThisBoot => Ok(()),
            Lasting::BeyondPower => sync_directory_of(path),
        });
    written.map_err(|e| {
        // Best effort: a left-over is overwritten by the next attempt.
        let _ = fs::remove_file(&temporary);
        failed("write", path, e)
    })
}

/// Creates a file (0600) that must not exist yet.
///
/// # Errors
/// [`FileError::Exists`]; a full disk leaves no partial file.
pub fn write_once(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_new(path, bytes, Lasting::BeyondPower).map_err(|e| {
        if e.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(path);
        }
        failed("write", path, e)
    })?;
    sync_directory_of(path).map_err(|e| failed("sync the directory of", path, e))
}

fn write_new(path: &Path, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
    // create_new never follows a link that somebody put in the way.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    match lasting {
        Lasting::ThisBoot => Ok(()),
        Lasting::BeyondPower => file.sync_all(),
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Reads a file of the state directory, bounded.
///
/// # Errors
/// Missing, too long, or whatever the file system says.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_checked(path, false)
}

/// Reads a file that holds a key: refused when group or others could read it.
///
/// # Errors
/// As [`read`], and [`FileError::Exposed`].
pub fn read_secret(path: &Path) -> Result<Vec<u8>, FileError> {
    read_checked(path, true)
}

fn read_checked(path: &Path, secret: bool) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(|e| failed("open", path, e))?;
    let about = file.metadata().map_err(|e| failed("look at", path, e))?;
    if secret && about.mode() & 0o077 != 0 {
        let (mode, uid) = (about.mode() & 0o7777, about.uid());
        return Err(FileError::Exposed {
            path: path.to_path_buf(),
            mode,
            uid,
        });
    }
    if about.len() > FILE_MAX {
        return Err(FileError::TooLong {
            path: path.to_path_buf(),
            length: about.len(),
        });
    }
    let mut bytes = Vec::new();
    // The limit holds even if the file grows meanwhile.
    file.take(FILE_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| failed("read", path, e))?;
    Ok(bytes)
}

/// Removes a file; it is no error if the file does not exist.
///
/// # Errors
/// Whatever else the file system says.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_and_whole() {
        let directory = tempfile::tempdir().expect("directory");
        let inner = directory.path().join("a/b");
        make_private_directory(&inner).expect("made");
        assert_eq!(fs::metadata(&inner).expect("there").mode() & 0o777, 0o700);
        let path = inner.join("x.json");
        write_atomically(&path, b"one").expect("written");
        write_for_this_boot(&path, b"two").expect("written");
        assert_eq!(read_secret(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert!(matches!(
            write_once(&path, b"three"),
            Err(FileError::Exists { .. })
        ));
        assert_eq!(read(&path).expect("read"), b"two");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        assert!(matches!(
            read_secret(&path),
            Err(FileError::Exposed { mode: 0o640, .. })
        ));
    }

    #[test]
    fn files_are_read_and_written_up_to_their_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("x.json");
        let mut bytes = vec![b'x'; usize::try_from(FILE_MAX).expect("small")];
        write_atomically(&path, &bytes).expect("written");
        assert!(read(&path).expect("read") == bytes);
        bytes.push(b'x');
        let error = write_atomically(&path, &bytes).expect_err("one byte more");
        assert!(matches!(error, FileError::WouldBeTooLong { .. }), "{error}");
        assert_eq!(fs::metadata(&path).expect("there").len(), FILE_MAX);
        let file = File::options().append(true).open(&path);
        file.and_then(|mut file| file.write_all(b"x"))
            .expect("longer");
        let error = read(&path).expect_err("one byte more");
        let sentence = format!("{} bytes long, which no file of ours is", FILE_MAX + 1);
        assert!(error.to_string().contains(&sentence), "{error}");
    }

    #[test]
    fn a_full_disk_is_named() {
        // /dev/full refuses every write with ENOSPC.
        let error = File::options()
            .write(true)
            .open("/dev/full")
            .and_then(|mut f| f.write_all(b"x"));
        let error = failed("write", Path::new("/dev/full"), error.expect_err("full"));
        assert!(matches!(error, FileError::DiskFull { .. }), "{error}");
    }
}
