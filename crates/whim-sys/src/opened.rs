//! The files of /proc/PID that a supervisor opens for its process while it may.
//!
//! The kernel checks permissions when such a file is opened, and not again. So an open file can be
//! used as long as the process lives, whatever becomes of our capabilities, of the process's ids
//! and of its dumpability. It belongs to the address space that the process had when the file was
//! opened, so it is of use only until the process executes another program.

use crate::kernel_file;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a text that are read at once.
const PIECE: usize = 64 << 10;

#[derive(Debug)]
struct Opened {
    pid: i32,
    memory: File,
    pagemap: File,
    maps: File,
    smaps: File,
}

/// A supervisor has one process.
static OPENED: RwLock<Option<Arc<Opened>>> = RwLock::new(None);

/// Opens the files of `pid` that are needed from now on, and keeps them in place of those kept
/// before.
///
/// # Errors
/// The process is gone, or not ours to trace.
pub fn keep(pid: i32) -> io::Result<()> {
    let path = |name: &str| format!("/proc/{pid}/{name}");
    let opened = Opened {
        pid,
        memory: OpenOptions::new()
            .read(true)
            .write(true)
            .open(path("mem"))?,
        pagemap: File::open(path("pagemap"))?,
        maps: File::open(path("maps"))?,
        smaps: File::open(path("smaps"))?,
    };
    *OPENED.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(opened));
    Ok(())
}

/// Whether the files kept of `pid` belong to an address space that it no longer has, because it has
/// executed another program meanwhile or has ended.
#[must_use]
pub fn is_outdated(pid: i32) -> bool {
    let text = |opened: Arc<Opened>| opened.maps.read_at(&mut [0], 0);
    of(pid).is_some_and(|opened| !matches!(text(opened), Ok(1)))
}

fn of(pid: i32) -> Option<Arc<Opened>> {
    let opened = OPENED.read().unwrap_or_else(PoisonError::into_inner);
    opened.clone().filter(|opened| opened.pid == pid)
}

/// `/proc/PID/mem`, to read and write.
pub(crate) fn memory(pid: i32) -> io::Result<File> {
    match of(pid) {
        Some(opened) => opened.memory.try_clone(),
        None => OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem")),
    }
}

/// `/proc/PID/pagemap`.
pub(crate) fn pagemap(pid: i32) -> io::Result<File> {
    match of(pid) {
        Some(opened) => opened.pagemap.try_clone(),
        None => File::open(format!("/proc/{pid}/pagemap")),
    }
}

/// The text of `/proc/PID/maps` or `smaps`, as it is now.
///
/// # Errors
/// The process is gone, or not ours to look at.
pub fn text(pid: i32, name: &str) -> io::Result<Vec<u8>> {
    let opened = of(pid);
    let kept = opened.as_ref().and_then(|opened| match name {
        "maps" => Some(&opened.maps),
        "smaps" => Some(&opened.smaps),
        _ => None,
    });
    let Some(file) = kept else {
        return kernel_file::read(format!("/proc/{pid}/{name}"));
    };
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let got = file.read_at(&mut piece, bytes.len() as u64)?;
        if got == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece[..got]);
    }
}

/// Copies between the kept memory file of `pid` and a buffer of ours, in place of a call of
/// process_vm that the kernel has refused. `None` if no files of this process are kept.
pub(crate) fn transfer(
    pid: i32,
    pieces: impl Iterator<Item = (u64, usize)>,
    mut one: impl FnMut(&File, u64, usize, usize) -> io::Result<usize>,
) -> Option<Result<usize, Errno>> {
    let opened = of(pid)?;
    let mut done = 0;
    for (address, length) in pieces {
        let mut here = 0;
        while here < length {
            match one(&opened.memory, address + here as u64, done, length - here) {
                Ok(0) => return Some(at_end(done, Errno::EFAULT)),
                Ok(count) => {
                    here += count;
                    done += count;
                }
                Err(error) => return Some(at_end(done, errno_of(&error))),
            }
        }
    }
    Some(Ok(done))
}

fn at_end(done: usize, errno: Errno) -> Result<usize, Errno> {
    if done > 0 { Ok(done) } else { Err(errno) }
}

/// Where nothing is mapped, these files give EIO, and process_vm gives EFAULT.
fn errno_of(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        None | Some(libc::EIO) => Errno::EFAULT,
        Some(number) => Errno::from_raw(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_vm;

    #[test]
    fn another_program_has_another_address_space() {
        use std::io::{BufRead, BufReader, Write};
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line; exec cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let pid = child.id().cast_signed();
        let before = OPENED
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        keep(pid).expect("our child");
        assert!(!is_outdated(pid));
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"go\nagain\n").expect("read");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("cat runs");
        assert!(is_outdated(pid), "{line}");
        *OPENED.write().unwrap_or_else(PoisonError::into_inner) = before;
        drop(input);
        child.wait().expect("it ends");
    }

    #[test]
    fn what_is_open_serves_a_process_that_may_not_be_looked_at_any_more() {
        let us = std::process::id().cast_signed();
        let marked = Box::new(*b"a mark in memory");
        let address = marked.as_ptr().expose_provenance() as u64;
        keep(us).expect("our own");
        let maps = text(us, "maps").expect("kept");
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let own = std::fs::read_to_string("/proc/self/maps").expect("our own");
        let first = |text: &str| text.lines().next().map(str::to_owned);
        assert_eq!(first(&maps), first(&own));
        let mut bytes = [0; 16];
        let whole = transfer(us, std::iter::once((address, 16)), |file, at, done, _| {
            file.read_at(&mut bytes[done..], at)
        });
        assert_eq!(whole, Some(Ok(16)));
        assert_eq!(&bytes, b"a mark in memory");
        let nothing = transfer(us, std::iter::once((8, 16)), |file, at, done, _| {
            file.read_at(&mut bytes[done..], at)
        });
        assert_eq!(nothing, Some(Err(Errno::EFAULT)));
        let file = process_vm::MemFile::open(us).expect("kept");
        file.read_exact(address, &mut bytes).expect("ours");
        assert_eq!(&bytes, b"a mark in memory");
        assert!(transfer(us + 1, std::iter::empty(), |_, _, _, _| Ok(0)).is_none());
        drop(marked);
    }
}
