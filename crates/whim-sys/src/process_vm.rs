//! Reading and writing another process's memory.

use crate::{crash, opened};
use libc::{c_ulong, c_void, iovec, pid_t};
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Pieces that one process_vm call takes (the kernel's UIO_MAXIOV).
const PIECES_MAX: usize = 1024;

/// A piece of the other process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePiece {
    pub address: u64,
    /// In bytes.
    pub length: usize,
}

enum Way {
    Read,
    Write,
}

fn transfer(way: &Way, pid: pid_t, local: &[iovec], remote: &[iovec]) -> Result<usize, Errno> {
    let (local_count, remote_count) = (local.len() as c_ulong, remote.len() as c_ulong);
    // JUSTIFICATION: nix's wrappers take slices per local piece only by allocating a vector, and
    // offer no partial counts across batches.
    // SAFETY: every local piece lies in a live slice that the callers borrow for this call
    // (mutably for `Read`); remote pieces are checked by the kernel.
    let done = unsafe {
        match way {
            Way::Read => libc::process_vm_readv(
                pid,
                local.as_ptr(),
                local_count,
                remote.as_ptr(),
                remote_count,
                0,
            ),
            Way::Write => libc::process_vm_writev(
                pid,
                local.as_ptr(),
                local_count,
                remote.as_ptr(),
                remote_count,
                0,
            ),
        }
    };
    usize::try_from(done).map_err(|_| Errno::last())
}

fn remote_vector(pieces: &[RemotePiece]) -> Vec<iovec> {
    let address = |piece: &RemotePiece| {
        let address = usize::try_from(piece.address).unwrap_or(usize::MAX);
        std::ptr::without_provenance_mut::<c_void>(address)
    };
    pieces
        .iter()
        .map(|piece| iovec {
            iov_base: address(piece),
            iov_len: piece.length,
        })
        .collect()
}

fn transfer_pieces(
    way: &Way,
    pid: pid_t,
    local: *mut u8,
    length: usize,
    remote: &[RemotePiece],
) -> Result<usize, Errno> {
    let mut done = 0;
    for batch in remote.chunks(PIECES_MAX) {
        let wanted: usize = batch.iter().map(|piece| piece.length).sum();
        let wanted = wanted.min(length - done);
        if wanted == 0 {
            break;
        }
        let local = [iovec {
            iov_base: local.wrapping_add(done).cast(),
            iov_len: wanted,
        }];
        let transferred = match transfer(way, pid, &local, &remote_vector(batch)) {
            // The process may no longer be looked at, or we have lost the right to. The open file
            // still works.
            Err(Errno::EPERM) => by_file(way, pid, &local[0], batch).unwrap_or(Err(Errno::EPERM)),
            other => other,
        };
        match transferred {
            Ok(count) => {
                done += count;
                if count < wanted {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// As [`transfer`], through the memory file that was opened before; `None` if there is none.
fn by_file(
    way: &Way,
    pid: pid_t,
    local: &iovec,
    remote: &[RemotePiece],
) -> Option<Result<usize, Errno>> {
    let mut left = local.iov_len;
    let pieces = remote.iter().map_while(|piece| {
        let length = piece.length.min(left);
        left -= length;
        (length > 0).then_some((piece.address, length))
    });
    opened::transfer(pid, pieces, |file, address, done, length| {
        let at = local.iov_base.cast::<u8>().wrapping_add(done).cast();
        let address = i64::try_from(address).map_err(|_| Errno::EFAULT)?;
        let file = file.as_raw_fd();
        // JUSTIFICATION: the callers share one buffer of raw parts for both directions.
        // SAFETY: `pieces` add up to no more than `iov_len` bytes, all within the live slice that the
        // callers borrow for this call (mutably for `Read`).
        let moved = unsafe {
            match way {
                Way::Read => libc::pread(file, at, length, address),
                Way::Write => libc::pwrite(file, at, length, address),
            }
        };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    })
}

/// Copies memory of process `pid` from `address`; returns the number of bytes copied, fewer than
/// asked when an unreadable page comes first.
///
/// # Errors
/// EFAULT when not even the first byte can be read, EPERM, ESRCH.
pub fn read(pid: pid_t, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let length = into.len();
    read_ranges(pid, &[RemotePiece { address, length }], into)
}

/// As [`read`], all or nothing.
///
/// # Errors
/// EFAULT when a byte cannot be read, EPERM, ESRCH.
pub fn read_exact(pid: pid_t, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    if read(pid, address, into)? == into.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Copies `from` into memory of process `pid`; returns the number of bytes copied.
///
/// # Errors
/// EFAULT when not even the first byte can be written, EPERM, ESRCH.
pub fn write(pid: pid_t, address: u64, from: &[u8]) -> Result<usize, Errno> {
    write_ranges(
        pid,
        &[RemotePiece {
            address,
            length: from.len(),
        }],
        from,
    )
}

/// As [`write()`], but a partial write is an error (the bytes before the first bad page are
/// written).
///
/// # Errors
/// EFAULT when a byte cannot be written, EPERM, ESRCH.
pub fn write_exact(pid: pid_t, address: u64, from: &[u8]) -> Result<(), Errno> {
    if write(pid, address, from)? == from.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Gathers the pieces one behind the other in `into`. The count ends at the first byte that cannot
/// be read.
///
/// # Errors
/// As [`read`].
pub fn read_ranges(pid: pid_t, remote: &[RemotePiece], into: &mut [u8]) -> Result<usize, Errno> {
    transfer_pieces(&Way::Read, pid, into.as_mut_ptr(), into.len(), remote)
}

/// Scatters `from` over the pieces. The count ends at the first byte that cannot be written.
///
/// # Errors
/// As [`write()`].
pub fn write_ranges(pid: pid_t, remote: &[RemotePiece], from: &[u8]) -> Result<usize, Errno> {
    crash::point("process_vm_writev");
    let local = from.as_ptr().cast_mut();
    let result = transfer_pieces(&Way::Write, pid, local, from.len(), remote);
    crash::point("process_vm_writev");
    result
}

/// `/proc/PID/mem`: reads and writes pages whatever their protection (FOLL_FORCE); a write to a
/// private file or kernel page makes a private copy.
#[derive(Debug)]
pub struct MemFile {
    file: File,
}

impl MemFile {
    /// # Errors
    /// When the process is gone or not ours to trace.
    pub fn open(pid: pid_t) -> io::Result<Self> {
        let file = opened::memory(pid)?;
        Ok(Self { file })
    }

    /// # Errors
    /// EIO when nothing is mapped there.
    pub fn read_exact(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, address)
    }

    /// Bytes read; fewer than asked when an unmapped page comes first.
    ///
    /// # Errors
    /// EIO when nothing is mapped at `address`.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(into, address)
    }

    /// # Errors
    /// EIO when nothing is mapped there.
    pub fn write_all(&self, address: u64, from: &[u8]) -> io::Result<()> {
        crash::point("write /proc/PID/mem");
        let result = self.file.write_all_at(from, address);
        crash::point("write /proc/PID/mem");
        result
    }
}
