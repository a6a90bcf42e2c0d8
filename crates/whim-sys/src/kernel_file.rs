//! Files of /proc, /sys and control groups, which the kernel makes while they are read.
//!
//! `std::fs::read` asks for the length first, which is 0 for all of these, and then feels its way in small
//! pieces: ten calls where four do, in the midst of a freeze.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most of these files are not longer, in bytes.
const USUAL: usize = 4096;
/// The longest text that is taken, in bytes.
const MAX: u64 = 256 << 20;

/// The whole file.
///
/// # Errors
/// It cannot be opened or read.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The whole of an open file, as it is now: the kernel makes it anew for each reader of its beginning.
///
/// # Errors
/// It cannot be read any more.
pub fn read_again(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; USUAL];
    loop {
        let read = file.read_at(&mut piece, bytes.len() as u64)?;
        bytes.extend_from_slice(&piece[..read]);
        if read == 0 || bytes.len() as u64 >= MAX {
            return Ok(bytes);
        }
    }
}

/// The whole file, as text.
///
/// # Errors
/// As [`read`]; it is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_files_are_whole() {
        for path in ["/proc/self/mounts", "/proc/filesystems", "/proc/kallsyms"] {
            let expected = std::fs::read(path).expect("readable");
            assert_eq!(read(path).expect("readable"), expected, "{path}");
            let file = File::open(path).expect("opened");
            for _ in 0..2 {
                assert_eq!(read_again(&file).expect("readable"), expected, "{path}");
            }
        }
        assert!(read("/proc/self/no-such-file").is_err());
    }
}
