//! Calls whose buffers hold pointers, or whose buffers depend on each other.

use crate::builder::{Builder, Flow, go_home};
use crate::shape::MAX_RW_COUNT;
use crate::types::{Direction, Returned, TimeoutFormat, half, low, word};

const IOVEC: u64 = 16;
const IOVEC_COUNT_MAX: u64 = 1024;
const HEADER: u64 = 56;
const MULTI_HEADER: u64 = 64;
const SOCKET_ADDRESS_MAX: u64 = 128;
/// More control data than any kernel accepts by default; a message with more goes home.
const CONTROL_MAX: u64 = 1 << 20;
const FD_SET_WORD_BITS: u64 = 64;

use Direction::{In, InOut, Out};

/// What comes back of the pieces of a vector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pieces {
    /// The kernel reads them.
    Sent,
    /// The result counts through them.
    Counted,
    /// The result does not tell how much is filled: they travel in both directions.
    Whole,
}

impl Builder<'_> {
    /// An array of iovec and its pieces.
    fn vector(&mut self, address: u64, count: u64, pieces: Pieces) -> Flow {
        if count > IOVEC_COUNT_MAX {
            // The kernel refuses it before it reads the array.
            return Ok(());
        }
        let array = self.region_with_bytes(address, count * IOVEC, In, Returned::Nothing)?;
        let entries: Vec<(u64, u64)> = array
            .chunks_exact(16)
            .map(|entry| (word(entry, 0), word(entry, 8)))
            .collect();
        if entries.iter().any(|(_, length)| length.cast_signed() < 0) {
            return Ok(());
        }
        let mut skip = 0;
        for (base, length) in entries {
            let length = length.min(MAX_RW_COUNT - skip);
            match pieces {
                Pieces::Sent => self.region(base, length, In, Returned::Nothing)?,
                Pieces::Counted => self.region(base, length, Out, Returned::ByResult { skip })?,
                Pieces::Whole => self.region(base, length, InOut, Returned::Whole)?,
            }
            skip += length;
        }
        Ok(())
    }

    /// A msghdr and what it leads to.
    fn message(&mut self, header: &[u8], pieces: Pieces) -> Flow {
        if header.len() < 56 {
            return Ok(());
        }
        let (name, name_length) = (word(header, 0), half(header, 8).cast_signed());
        let (control, control_length) = (word(header, 32), word(header, 40));
        let way = if pieces == Pieces::Sent { In } else { InOut };
        let back = match way {
            In => Returned::Nothing,
            _ => Returned::Whole,
        };
        if name != 0 {
            let length = u64::try_from(name_length).unwrap_or(0);
            self.region(name, length.min(SOCKET_ADDRESS_MAX), way, back)?;
        }
        if control != 0 && control_length <= u64::from(u32::MAX >> 1) {
            if control_length > CONTROL_MAX {
                return go_home("the control data of this message is too large to be forwarded");
            }
            self.region(control, control_length, way, back)?;
        }
        self.vector(word(header, 16), word(header, 24), pieces)
    }

    /// A socket address buffer and its value-result length.
    fn socket_address(&mut self, address: u64, length: u64) -> Flow {
        let bytes = self.region_with_bytes(length, 4, InOut, Returned::Whole)?;
        let size = u64::try_from(half(&bytes, 0).cast_signed()).unwrap_or(0);
        let size = size.min(SOCKET_ADDRESS_MAX);
        self.region(address, size, InOut, Returned::Whole)
    }

    /// Zero-copy sending uses the pages after the call has returned; the window has given them up
    /// by then.
    fn refuse_zerocopy(&mut self, flags: usize) -> Flow {
        if self.int(flags) & libc::MSG_ZEROCOPY != 0 {
            return go_home("zero-copy sending keeps the program's pages");
        }
        Ok(())
    }

    fn receive_flags(&mut self, flags: usize) {
        if self.int(flags) & libc::MSG_DONTWAIT != 0 {
            self.may_block = false;
        }
    }

    fn descriptor_sets(&mut self) -> Flow {
        let count = u64::try_from(self.int(0)).unwrap_or(0);
        let bytes = count.div_ceil(FD_SET_WORD_BITS) * 8;
        for index in 1..4 {
            if self.value(index) != 0 {
                self.region(self.value(index), bytes, InOut, Returned::Whole)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn readv(builder: &mut Builder<'_>) -> Flow {
    builder.vector(builder.value(1), builder.value(2), Pieces::Counted)
}

pub(crate) fn writev(builder: &mut Builder<'_>) -> Flow {
    builder.vector(builder.value(1), builder.value(2), Pieces::Sent)
}

pub(crate) fn sendmsg(builder: &mut Builder<'_>) -> Flow {
    builder.refuse_zerocopy(2)?;
    let header = builder.region_with_bytes(builder.value(1), HEADER, In, Returned::Nothing)?;
    builder.message(&header, Pieces::Sent)
}

pub(crate) fn recvmsg(builder: &mut Builder<'_>) -> Flow {
    builder.receive_flags(2);
    let header = builder.region_with_bytes(builder.value(1), HEADER, InOut, Returned::Whole)?;
    builder.message(&header, Pieces::Counted)
}

fn messages(builder: &mut Builder<'_>, pieces: Pieces) -> Flow {
    let count = u64::from(builder.unsigned(2)).min(IOVEC_COUNT_MAX);
    let bytes = count * MULTI_HEADER;
    let headers = builder.region_with_bytes(builder.value(1), bytes, InOut, Returned::Whole)?;
    for header in headers.chunks_exact(64) {
        builder.message(&header[..56], pieces)?;
    }
    Ok(())
}

pub(crate) fn sendmmsg(builder: &mut Builder<'_>) -> Flow {
    builder.refuse_zerocopy(3)?;
    messages(builder, Pieces::Sent)
}

pub(crate) fn recvmmsg(builder: &mut Builder<'_>) -> Flow {
    builder.receive_flags(3);
    messages(builder, Pieces::Whole)?;
    builder.timeout_at(4, TimeoutFormat::Timespec);
    if builder.value(4) != 0 {
        builder.region(builder.value(4), 16, InOut, Returned::WholeAlways)?;
    }
    Ok(())
}

pub(crate) fn sendto(builder: &mut Builder<'_>) -> Flow {
    builder.refuse_zerocopy(3)?;
    let length = builder.value(2).min(MAX_RW_COUNT);
    builder.region(builder.value(1), length, In, Returned::Nothing)?;
    if builder.value(4) != 0 {
        let length = u64::try_from(builder.int(5)).unwrap_or(0);
        let length = length.min(SOCKET_ADDRESS_MAX);
        builder.region(builder.value(4), length, In, Returned::Nothing)?;
    }
    Ok(())
}

pub(crate) fn recvfrom(builder: &mut Builder<'_>) -> Flow {
    builder.receive_flags(3);
    if builder.value(4) != 0 {
        builder.socket_address(builder.value(4), builder.value(5))?;
    }
    let length = builder.value(2).min(MAX_RW_COUNT);
    let returned = Returned::ByResult { skip: 0 };
    builder.region(builder.value(1), length, Out, returned)
}

pub(crate) fn accept(builder: &mut Builder<'_>) -> Flow {
    if builder.value(1) != 0 {
        builder.socket_address(builder.value(1), builder.value(2))?;
    }
    Ok(())
}

pub(crate) fn socket_name(builder: &mut Builder<'_>) -> Flow {
    builder.socket_address(builder.value(1), builder.value(2))
}

pub(crate) fn poll(builder: &mut Builder<'_>) -> Flow {
    let length = u64::from(builder.unsigned(1)) * 8;
    // revents are written even when a signal ends the call.
    builder.region(builder.value(0), length, InOut, Returned::WholeAlways)?;
    builder.milliseconds(2);
    builder.may_block = builder.int(2) != 0;
    Ok(())
}

pub(crate) fn ppoll(builder: &mut Builder<'_>) -> Flow {
    builder.mask(3, builder.value(3), builder.value(4));
    let length = u64::from(builder.unsigned(1)) * 8;
    builder.region(builder.value(0), length, InOut, Returned::WholeAlways)?;
    remaining_time(builder, 2, TimeoutFormat::Timespec)
}

/// The kernel writes the time that is left, and does not mind if it cannot.
fn remaining_time(builder: &mut Builder<'_>, index: usize, format: TimeoutFormat) -> Flow {
    builder.timeout_at(index, format);
    if builder.value(index) != 0 {
        builder.tolerant(builder.value(index), 16, Returned::WholeAlways)?;
    }
    Ok(())
}

pub(crate) fn select(builder: &mut Builder<'_>) -> Flow {
    builder.descriptor_sets()?;
    remaining_time(builder, 4, TimeoutFormat::Timeval)
}

pub(crate) fn pselect6(builder: &mut Builder<'_>) -> Flow {
    if builder.value(5) != 0 {
        let pair = builder.peek(builder.value(5), 16);
        if pair.len() != 16 || !builder.mask(5, word(&pair, 0), word(&pair, 8)) {
            // The kernel itself finds the fault, when it comes to it.
            builder.region(builder.value(5), 16, In, Returned::Nothing)?;
        }
    }
    builder.descriptor_sets()?;
    remaining_time(builder, 4, TimeoutFormat::Timespec)
}

fn epoll_events(builder: &mut Builder<'_>) -> Flow {
    let length = u64::try_from(builder.int(2)).unwrap_or(0) * 12;
    let returned = Returned::ByResultTimes { unit: 12 };
    builder.region(builder.value(1), length, Out, returned)
}

pub(crate) fn epoll_wait(builder: &mut Builder<'_>) -> Flow {
    epoll_events(builder)?;
    builder.milliseconds(3);
    builder.may_block = builder.int(3) != 0;
    Ok(())
}

pub(crate) fn epoll_pwait(builder: &mut Builder<'_>) -> Flow {
    builder.mask(4, builder.value(4), builder.value(5));
    epoll_wait(builder)
}

pub(crate) fn epoll_pwait2(builder: &mut Builder<'_>) -> Flow {
    builder.mask(4, builder.value(4), builder.value(5));
    epoll_events(builder)?;
    builder.timeout_at(3, TimeoutFormat::Timespec);
    if builder.value(3) != 0 {
        builder.region(builder.value(3), 16, In, Returned::Nothing)?;
    }
    Ok(())
}

pub(crate) fn epoll_ctl(builder: &mut Builder<'_>) -> Flow {
    if builder.int(1) == libc::EPOLL_CTL_DEL {
        return Ok(());
    }
    builder.region(builder.value(3), 12, In, Returned::Nothing)
}

pub(crate) fn semtimedop(builder: &mut Builder<'_>) -> Flow {
    let length = u64::from(builder.unsigned(2)).min(1 << 16) * 6;
    builder.region(builder.value(1), length, In, Returned::Nothing)?;
    builder.timeout_at(3, TimeoutFormat::Timespec);
    if builder.value(3) != 0 {
        builder.region(builder.value(3), 16, In, Returned::Nothing)?;
    }
    Ok(())
}

pub(crate) fn msgsnd(builder: &mut Builder<'_>) -> Flow {
    // The kernel refuses a negative length before it reads the text.
    let length = u64::try_from(builder.value(2).cast_signed()).unwrap_or(0);
    let length = length.saturating_add(8);
    builder.region(builder.value(1), length, In, Returned::Nothing)
}

pub(crate) fn msgrcv(builder: &mut Builder<'_>) -> Flow {
    let (address, length) = (builder.value(1), builder.value(2).min(MAX_RW_COUNT));
    builder.region(address, 8, Out, Returned::Whole)?;
    let returned = Returned::ByResult { skip: 0 };
    builder.region(address.saturating_add(8), length, Out, returned)
}

pub(crate) fn mq_open(builder: &mut Builder<'_>) -> Flow {
    builder.text(0)?;
    if builder.int(1) & libc::O_CREAT != 0 && builder.value(3) != 0 {
        builder.region(builder.value(3), 64, In, Returned::Nothing)?;
    }
    Ok(())
}

/// A SIGEV_THREAD notification names a cookie of 32 bytes that the kernel reads.
pub(crate) fn mq_notify(builder: &mut Builder<'_>) -> Flow {
    if builder.value(1) == 0 {
        return Ok(());
    }
    let event = builder.region_with_bytes(builder.value(1), 64, In, Returned::Nothing)?;
    if event.len() == 64 && half(&event, 12).cast_signed() == libc::SIGEV_THREAD {
        builder.region(word(&event, 0), 32, In, Returned::Nothing)?;
    }
    Ok(())
}

/// setxattrat: a pointer and a size in a structure.
pub(crate) fn setxattrat(builder: &mut Builder<'_>) -> Flow {
    xattr_arguments(builder, In, Returned::Nothing)
}

/// getxattrat: the same, filled.
pub(crate) fn getxattrat(builder: &mut Builder<'_>) -> Flow {
    xattr_arguments(builder, Out, Returned::ByResult { skip: 0 })
}

fn xattr_arguments(builder: &mut Builder<'_>, way: Direction, back: Returned) -> Flow {
    if builder.value(1) != 0 {
        builder.path(1)?;
    }
    builder.text(3)?;
    let size = builder.value(5).min(4096);
    let structure = builder.region_with_bytes(builder.value(4), size, In, Returned::Nothing)?;
    let length = u64::from(half(&structure, 8)).min(65536);
    if structure.len() >= 16 && word(&structure, 0) != 0 {
        builder.region(word(&structure, 0), length, way, back)?;
    }
    Ok(())
}

const HANDLE_MAX: u64 = 128;

pub(crate) fn name_to_handle_at(builder: &mut Builder<'_>) -> Flow {
    builder.path(1)?;
    let handle = builder.value(2);
    let header = builder.region_with_bytes(handle, 8, InOut, Returned::WholeAlways)?;
    let length = u64::from(half(&header, 0)).min(HANDLE_MAX);
    builder.region(handle.saturating_add(8), length, InOut, Returned::Whole)?;
    // AT_HANDLE_MNT_ID_UNIQUE makes the mount id 64 bits wide.
    let id = if builder.int(4) & 1 == 1 { 8 } else { 4 };
    builder.region(builder.value(3), id, InOut, Returned::WholeAlways)
}

pub(crate) fn open_by_handle_at(builder: &mut Builder<'_>) -> Flow {
    let handle = builder.value(1);
    let header = builder.region_with_bytes(handle, 8, In, Returned::Nothing)?;
    let length = u64::from(half(&header, 0)).min(HANDLE_MAX);
    let body = handle.saturating_add(8);
    builder.region(body, length, In, Returned::Nothing)
}

/// A structure whose first 32 bits are its size. The kernel reads it. If it does not accept this
/// size, it writes the size that it knows there, if it can.
pub(crate) fn sized_structure(builder: &mut Builder<'_>, index: usize) -> Flow {
    let address = builder.value(index);
    let size = half(&builder.peek(address, 4), 0);
    let length = u64::from(size).clamp(48, 4096);
    builder.region(address, length, In, Returned::Nothing)?;
    builder.tolerant(address, 4, Returned::WholeAlways)
}

pub(crate) fn statmount(builder: &mut Builder<'_>) -> Flow {
    mount_request(builder)?;
    let length = builder.value(2);
    builder.region(builder.value(1), length, InOut, Returned::Whole)
}

pub(crate) fn listmount(builder: &mut Builder<'_>) -> Flow {
    mount_request(builder)?;
    let length = builder.value(2).saturating_mul(8);
    let returned = Returned::ByResultTimes { unit: 8 };
    builder.region(builder.value(1), length, Out, returned)
}

fn mount_request(builder: &mut Builder<'_>) -> Flow {
    let size = half(&builder.peek(builder.value(0), 4), 0);
    let length = u64::from(size).clamp(24, 4096);
    builder.region(builder.value(0), length, In, Returned::Nothing)
}

/// capget and capset: version 1 has one set of three words, the others two.
pub(crate) fn capabilities(builder: &mut Builder<'_>) -> Flow {
    const VERSION_1: u32 = 0x1998_0330;
    let header = builder.region_with_bytes(builder.value(0), 8, InOut, Returned::WholeAlways)?;
    let length = if half(&header, 0) == VERSION_1 {
        12
    } else {
        24
    };
    if builder.value(1) == 0 {
        return Ok(());
    }
    let reads = builder.call.number == syscalls::Sysno::capset as u64;
    let (way, back) = if reads {
        (In, Returned::Nothing)
    } else {
        (InOut, Returned::Whole)
    };
    builder.region(builder.value(1), length, way, back)
}

/// waitid writes its siginfo even when it fails; only these 28 bytes of it.
pub(crate) fn waitid(builder: &mut Builder<'_>) -> Flow {
    if builder.value(2) != 0 {
        builder.region(builder.value(2), 28, InOut, Returned::WholeAlways)?;
    }
    if builder.value(4) != 0 {
        builder.region(builder.value(4), 144, InOut, Returned::Whole)?;
    }
    builder.may_block = builder.int(3) & libc::WNOHANG == 0;
    Ok(())
}

pub(crate) fn wait4(builder: &mut Builder<'_>) -> Flow {
    for (index, length) in [(1, 4), (3, 144)] {
        if builder.value(index) != 0 {
            let returned = Returned::ByResultTimes { unit: length };
            builder.region(builder.value(index), length, Out, returned)?;
        }
    }
    builder.may_block = builder.int(2) & libc::WNOHANG == 0;
    Ok(())
}

/// kcmp of an epoll target names a structure.
pub(crate) fn kcmp(builder: &mut Builder<'_>) -> Flow {
    const EPOLL_TARGET: u32 = 7;
    if low(builder.value(2)) == EPOLL_TARGET {
        builder.region(builder.value(4), 12, In, Returned::Nothing)?;
    }
    Ok(())
}

/// Only reading the log fills a buffer.
pub(crate) fn syslog(builder: &mut Builder<'_>) -> Flow {
    const READ: i32 = 2;
    const READ_CLEAR: i32 = 4;
    builder.may_block = builder.int(0) == READ;
    if (READ..=READ_CLEAR).contains(&builder.int(0)) {
        let length = u64::try_from(builder.int(2)).unwrap_or(0);
        let returned = Returned::ByResult { skip: 0 };
        builder.region(builder.value(1), length, Out, returned)?;
    }
    Ok(())
}
