//! The mappings of another process: all of them as text, or the one at an address by
//! PROCMAP_QUERY (Linux 6.11).

use libc::c_ulong;
use nix::errno::Errno;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use thiserror::Error;

const QUERY: c_ulong = 0xc068_6611;
const FLAG_COVERING_OR_NEXT: u64 = 0x10;
/// More lines are not read; the kernel's own default limit is 65,530 mappings.
const LINES_MAX: usize = 1 << 20;

#[derive(Debug, Error)]
pub enum ProcmapError {
    #[error("The mappings of process {pid} cannot be read: {source}")]
    Unreadable { pid: i32, source: io::Error },
    #[error("A line of /proc/{pid}/maps has an unknown form: {line}")]
    Form { pid: i32, line: String },
    #[error("Process {pid} has more than {LINES_MAX} mappings")]
    TooMany { pid: i32 },
}

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// Byte offset in the file.
    pub offset: u64,
    pub device: (u32, u32),
    /// 0 for memory without a file.
    pub inode: u64,
    /// Path or bracketed name; empty in answers of [`Maps::covering_or_next`].
    pub name: String,
}

#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device_major: u32,
    device_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name_address: u64,
    build_id_address: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// `/proc/PID/maps`, kept open.
#[derive(Debug)]
pub struct Maps {
    pid: i32,
    file: File,
    /// False once the kernel has refused the query.
    queries: Cell<bool>,
}

impl Maps {
    /// # Errors
    /// When the process is gone or not ours to look at.
    pub fn open(pid: i32) -> Result<Self, ProcmapError> {
        let file = File::open(format!("/proc/{pid}/maps"))
            .map_err(|source| ProcmapError::Unreadable { pid, source })?;
        Ok(Self {
            pid,
            file,
            queries: Cell::new(true),
        })
    }

    /// The mapping that contains `address`, or else the first one above it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn covering_or_next(&self, address: u64) -> Result<Option<Entry>, ProcmapError> {
        if self.queries.get() {
            match self.query(address) {
                Err(Errno::ENOTTY | Errno::EINVAL) => self.queries.set(false),
                Err(errno) => {
                    return Err(ProcmapError::Unreadable {
                        pid: self.pid,
                        source: errno.into(),
                    });
                }
                Ok(found) => return Ok(found),
            }
        }
        let mut all = self.all()?;
        let at = all.partition_point(|entry| entry.end <= address);
        Ok((at < all.len()).then(|| all.swap_remove(at)))
    }

    fn query(&self, address: u64) -> Result<Option<Entry>, Errno> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: FLAG_COVERING_OR_NEXT,
            address,
            ..Query::default()
        };
        // JUSTIFICATION: the kernel's interface is ioctl.
        // SAFETY: `query` is live, its size field tells the kernel how much of it there is, and
        // both buffer sizes in it are zero.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), QUERY, std::ptr::from_mut(&mut query)) };
        match Errno::result(result) {
            Ok(_) => Ok(Some(Entry {
                start: query.start,
                end: query.end,
                readable: query.vma_flags & 1 != 0,
                writable: query.vma_flags & 2 != 0,
                executable: query.vma_flags & 4 != 0,
                shared: query.vma_flags & 8 != 0,
                offset: query.offset,
                device: (query.device_major, query.device_minor),
                inode: query.inode,
                name: String::new(),
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// All mappings, ascending.
    ///
    /// # Errors
    /// When the process is gone, or a line cannot be read.
    pub fn all(&self) -> Result<Vec<Entry>, ProcmapError> {
        let unreadable = |source| ProcmapError::Unreadable {
            pid: self.pid,
            source,
        };
        let mut text = Vec::with_capacity(64 << 10);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        file.read_to_end(&mut text).map_err(unreadable)?;
        let mut entries = Vec::new();
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            if entries.len() >= LINES_MAX {
                return Err(ProcmapError::TooMany { pid: self.pid });
            }
            // A path may hold any byte; whoever prints it wants text.
            let line = String::from_utf8_lossy(line);
            let entry = parse(&line).ok_or_else(|| ProcmapError::Form {
                pid: self.pid,
                line: line.to_string(),
            })?;
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Reads one line: `start-end rwxp offset major:minor inode    name`.
fn parse(line: &str) -> Option<Entry> {
    let mut rest = line;
    let mut field = || {
        let (field, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind;
        field
    };
    let (start, end) = field().split_once('-')?;
    let bits = field().as_bytes();
    let offset = field();
    let (major, minor) = field().split_once(':')?;
    let inode = field();
    if bits.len() != 4 {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Entry {
        start: hex(start)?,
        end: hex(end)?,
        readable: bits[0] == b'r',
        writable: bits[1] == b'w',
        executable: bits[2] == b'x',
        shared: bits[3] == b's',
        offset: hex(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
        name: rest.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_in_its_path_is_read() {
        let line = "7f00-8f00 r-xp 00001000 08:1a 77                         /tmp/a file";
        let entry = parse(line).expect("a line");
        assert_eq!((entry.start, entry.end), (0x7f00, 0x8f00));
        assert!(entry.readable && !entry.writable && entry.executable && !entry.shared);
        assert_eq!(entry.device, (8, 0x1a));
        assert_eq!(entry.inode, 77);
        assert_eq!(entry.name, "/tmp/a file");
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn question_and_text_agree_about_our_own_memory() {
        let maps = Maps::open(std::process::id().cast_signed()).expect("open");
        let address = std::ptr::from_ref(&maps).expose_provenance() as u64;
        let asked = maps
            .covering_or_next(address)
            .expect("query")
            .expect("an entry");
        let all = maps.all().expect("maps");
        let listed = all.iter().find(|e| e.start <= address && address < e.end);
        let listed = listed.expect("our own stack");
        assert_eq!(
            (asked.start, asked.writable),
            (listed.start, listed.writable)
        );
        assert!(
            maps.covering_or_next(u64::MAX - 4096)
                .expect("query")
                .is_none()
        );
    }
}
