//! Opens a configuration only where it is a file: the name may be that of anything, and opening a FIFO waits for who
//! writes to it, and opening a device may do something.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

use super::ConfigError;

/// What is there is opened, if it is a regular file; `None`: nothing is there.
///
/// # Errors
/// It is something else, or cannot be opened.
pub(super) fn open(path: &Path) -> Result<Option<File>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    let is_regular = |kind: FileType| match other(kind) {
        Some(kind) => Err(ConfigError::NoFile {
            path: path.to_path_buf(),
            kind,
        }),
        None => Ok(()),
    };
    let absent = |error: &Error| error.kind() == ErrorKind::NotFound;
    match fs::metadata(path) {
        Err(error) if absent(&error) => return Ok(None),
        about => is_regular(about.map_err(unreadable)?.file_type())?,
    }
    // It may have become something else meanwhile.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match file {
        Err(error) if absent(&error) => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    is_regular(file.metadata().map_err(unreadable)?.file_type())?;
    Ok(Some(file))
}

/// What something other than a file is called.
fn other(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        return None;
    }
    Some(if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "no file"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_files_are_opened_and_nothing_waits() {
        let room = tempfile::tempdir().expect("directory");
        let at = |name: &str| room.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let _socket = UnixListener::bind(at("socket")).expect("a socket");
        std::os::unix::fs::symlink("fifo", at("link")).expect("a link");
        for (path, kind) in [
            (at("fifo"), "a FIFO"),
            (at("link"), "a FIFO"),
            (at("socket"), "a socket"),
            (room.path().to_owned(), "a directory"),
            ("/dev/zero".into(), "a device"),
        ] {
            let refused = open(&path).expect_err(kind).to_string();
            let expected = format!("{} is {kind}, which is never read", path.display());
            assert!(refused.contains(&expected), "{refused}");
        }
        assert!(open(&at("nothing")).expect("asked").is_none());
        fs::write(at("file"), "").expect("written");
        assert!(open(&at("file")).expect("opened").is_some());
    }
}
