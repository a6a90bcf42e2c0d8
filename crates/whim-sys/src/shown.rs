//! A file as /proc shows it in mappings: by a device and an inode that the kernel knows by itself. What stat(2)
//! says may be something else (btrfs, overlayfs), and is asked of the file system, which may ask a server.

use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Any length makes a mapping of one page.
const LENGTH: usize = 1;

/// A mapping of the beginning of a file, which nobody reads: its line in /proc/self/maps tells of the file.
#[derive(Debug)]
pub struct ShownFile {
    base: *mut libc::c_void,
}

impl ShownFile {
    /// # Errors
    /// errno of `mmap`: it is no file that can be mapped.
    pub fn of(file: &File) -> Result<Self, Errno> {
        // JUSTIFICATION: nothing but a mapping has a line in /proc/self/maps.
        // SAFETY: a fresh mapping at an address the kernel chooses, never read; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LENGTH,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self { base })
    }

    /// Where it is mapped.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }
}

impl Drop for ShownFile {
    fn drop(&mut self) {
        // JUSTIFICATION: the mapping is ours to give back.
        // SAFETY: `base` is that of `of`, and nothing points into it.
        unsafe { libc::munmap(self.base, LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_line_as_long_as_it_is_shown() {
        let file = File::open("/proc/self/exe").expect("this program");
        let begins = |address: u64| {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
            let begin = format!("{address:x}-");
            maps.lines().any(|line| line.starts_with(&begin))
        };
        let shown = ShownFile::of(&file).expect("mapped");
        assert!(begins(shown.address()));
    }
}
