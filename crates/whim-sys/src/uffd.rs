//! userfaultfd: faults of another process's memory, served by us.

use libc::{c_int, c_ulong};
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `ioctl` on `/dev/userfaultfd` that makes a userfaultfd for the *caller's* memory.
pub const IOC_NEW: u64 = 0xaa00;
/// Flag of `userfaultfd(2)`: only faults of user mode are handled, which needs no privilege.
pub const USER_MODE_ONLY: u64 = 1;

const API_VERSION: u64 = 0xaa;
const IOC_API: c_ulong = 0xc018_aa3f;
const IOC_REGISTER: c_ulong = 0xc020_aa00;
const IOC_WAKE: c_ulong = 0x8010_aa02;
const IOC_COPY: c_ulong = 0xc028_aa03;
const IOC_ZEROPAGE: c_ulong = 0xc020_aa04;
const IOC_WRITE_PROTECT: c_ulong = 0xc018_aa06;
const IOC_CONTINUE: c_ulong = 0xc020_aa07;
const IOC_POISON: c_ulong = 0xc020_aa08;

const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;
const MESSAGE_LENGTH: usize = 32;
/// Messages taken by one read.
const BATCH: usize = 16;

/// Feature: [`Event::Remap`] is reported.
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
/// Feature: [`Event::Unmap`] is reported.
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;

/// Which accesses of a registered range are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Accesses to missing pages.
    Missing,
    /// The same, and writes to pages that [`Uffd::protect`] protects.
    MissingAndProtected,
}

impl Mode {
    fn bits(self) -> u64 {
        match self {
            Self::Missing => 1,
            Self::MissingAndProtected => 3,
        }
    }
}

/// What a userfaultfd reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread waits for the page at this address (page aligned), or, if that is `protected`, to
    /// write to it.
    Fault {
        address: u64,
        write: bool,
        protected: bool,
    },
    /// `mremap` has moved `length` bytes.
    Remap { from: u64, to: u64, length: u64 },
    /// `madvise` has dropped the pages of the range.
    Remove { start: u64, end: u64 },
    /// The range has been unmapped.
    Unmap { start: u64, end: u64 },
    /// The process has forked, and this is its child's descriptor number in our table.
    Fork { descriptor: i32 },
}

/// What became of pages that were to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// All bytes were placed.
    Whole,
    /// So many bytes from the beginning were placed; the page behind them is there already.
    UntilPresent(u64),
    /// The address is not registered any more.
    Gone,
    /// The address space is changing just now: try again after reading events.
    Again(u64),
}

/// An open `/dev/userfaultfd`: its holder may make userfaultfds that serve kernel mode too.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// # Errors
    /// Before Linux 6.1, or without the right to open it.
    pub fn open() -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")?;
        Ok(Self { file })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A userfaultfd.
#[derive(Debug)]
pub struct Uffd {
    descriptor: OwnedFd,
    user_mode_only: bool,
}

#[repr(C)]
struct Range {
    start: u64,
    length: u64,
}

impl Uffd {
    /// Makes one for this process; with `user_mode_only` no privilege is needed. The handshake
    /// asks for `features` (FEATURE_*).
    ///
    /// # Errors
    /// EPERM, EMFILE, ENOSYS.
    pub fn create(user_mode_only: bool, features: u64) -> Result<Self, Errno> {
        let mode = if user_mode_only { USER_MODE_ONLY } else { 0 };
        let flags = mode | u64::from((libc::O_CLOEXEC | libc::O_NONBLOCK).cast_unsigned());
        // JUSTIFICATION: libc has no wrapper.
        // SAFETY: the call takes one integer and gives a descriptor or -1.
        let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let raw = c_int::try_from(Errno::result(made)?).map_err(|_| Errno::EBADF)?;
        // JUSTIFICATION: a descriptor that the kernel made becomes an owned one.
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Self::initialize(descriptor, features, user_mode_only)
    }

    /// Takes over a userfaultfd that was made in (and may have been taken from) another process,
    /// and does the handshake, asking for `features` (FEATURE_*). `user_mode_only` says how it was
    /// made.
    ///
    /// # Errors
    /// EINVAL when the kernel lacks a feature.
    pub fn initialize(
        descriptor: OwnedFd,
        features: u64,
        user_mode_only: bool,
    ) -> Result<Self, Errno> {
        #[repr(C)]
        struct Api {
            version: u64,
            features: u64,
            ioctls: u64,
        }
        let uffd = Self {
            descriptor,
            user_mode_only,
        };
        let mut api = Api {
            version: API_VERSION,
            features,
            ioctls: 0,
        };
        uffd.control(IOC_API, &mut api)?;
        Ok(uffd)
    }

    /// Whether faults in kernel mode are not served: a system call that meets a missing page then
    /// gives EFAULT.
    #[must_use]
    pub fn is_user_mode_only(&self) -> bool {
        self.user_mode_only
    }

    fn control<T>(&self, code: c_ulong, argument: &mut T) -> Result<(), Errno> {
        // JUSTIFICATION: the kernel's interface is ioctl.
        // SAFETY: `argument` is live, exclusively borrowed and of the type that `code` demands
        // (each caller in this module pairs them).
        let result = unsafe {
            libc::ioctl(
                self.descriptor.as_raw_fd(),
                code,
                std::ptr::from_mut(argument),
            )
        };
        Errno::result(result).map(drop)
    }

    /// From now on a missing page of the range is reported instead of read as zeros.
    ///
    /// # Errors
    /// EINVAL when a part is not mapped, EBUSY when another userfaultfd has it.
    pub fn register(&self, start: u64, length: u64, mode: Mode) -> Result<(), Errno> {
        #[repr(C)]
        struct Register {
            range: Range,
            mode: u64,
            ioctls: u64,
        }
        let mut argument = Register {
            range: Range { start, length },
            mode: mode.bits(),
            ioctls: 0,
        };
        self.control(IOC_REGISTER, &mut argument)
    }

    /// Whether a thread has unmapped or moved registered memory, and that has not been read yet
    /// ([`Event::Unmap`], [`Event::Remap`]), or its thread does not go on yet.
    ///
    /// The kernel looks at that first whenever memory is to be changed, and refuses this change, which is
    /// none, only then (`mmap_changing` in fs/userfaultfd.c).
    #[must_use]
    pub fn is_changing(&self) -> bool {
        #[repr(C)]
        struct Continue {
            range: Range,
            mode: u64,
            mapped: i64,
        }
        let range = Range {
            start: 0,
            length: 0,
        };
        let mut argument = Continue {
            range,
            mode: 0,
            mapped: 0,
        };
        self.control(IOC_CONTINUE, &mut argument) == Err(Errno::EAGAIN)
    }

    /// Wakes threads that wait for pages of the range, so that they try again.
    ///
    /// # Errors
    /// EINVAL for a range that is not page aligned.
    pub fn wake(&self, start: u64, length: u64) -> Result<(), Errno> {
        let mut range = Range { start, length };
        self.control(IOC_WAKE, &mut range)
    }

    /// Turns an errno and the kernel's partial count into what it means for the caller.
    fn placed(result: Result<(), Errno>, count: i64) -> Result<Placed, Errno> {
        let whole_pages = u64::try_from(count).unwrap_or(0);
        match result {
            Ok(()) => Ok(Placed::Whole),
            Err(Errno::EEXIST) => Ok(Placed::UntilPresent(0)),
            Err(Errno::EAGAIN) if whole_pages > 0 => Ok(Placed::UntilPresent(whole_pages)),
            Err(Errno::EAGAIN) => Ok(Placed::Again(0)),
            Err(Errno::ENOENT | Errno::ESRCH | Errno::EINVAL) => Ok(Placed::Gone),
            Err(other) => Err(other),
        }
    }

    /// Places `bytes` (whole pages) at `address` and wakes the threads that wait there.
    ///
    /// # Errors
    /// ENOMEM and the like; an occupied or vanished page is not an error, see [`Placed`].
    pub fn copy(&self, address: u64, bytes: &[u8]) -> Result<Placed, Errno> {
        #[repr(C)]
        struct Copy {
            destination: u64,
            source: u64,
            length: u64,
            mode: u64,
            copied: i64,
        }
        let mut argument = Copy {
            destination: address,
            source: bytes.as_ptr().expose_provenance() as u64,
            length: bytes.len() as u64,
            mode: 0,
            copied: 0,
        };
        let result = self.control(IOC_COPY, &mut argument);
        Self::placed(result, argument.copied)
    }

    /// Places pages of zeros and wakes the threads that wait there.
    ///
    /// # Errors
    /// As [`Uffd::copy`].
    pub fn zero(&self, address: u64, length: u64) -> Result<Placed, Errno> {
        #[repr(C)]
        struct Zero {
            range: Range,
            mode: u64,
            zeroed: i64,
        }
        let mut argument = Zero {
            range: Range {
                start: address,
                length,
            },
            mode: 0,
            zeroed: 0,
        };
        let result = self.control(IOC_ZEROPAGE, &mut argument);
        Self::placed(result, argument.zeroed)
    }

    /// Protects the present pages of the range from writes, or allows writes again.
    ///
    /// # Errors
    /// ENOENT when the range is not registered for it.
    pub fn protect(&self, address: u64, length: u64, is_protected: bool) -> Result<(), Errno> {
        #[repr(C)]
        struct Protect {
            range: Range,
            mode: u64,
        }
        let mut argument = Protect {
            range: Range {
                start: address,
                length,
            },
            mode: u64::from(is_protected),
        };
        loop {
            match self.control(IOC_WRITE_PROTECT, &mut argument) {
                // The address space is changing just now.
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Makes every access to the range a SIGBUS, as behind the end of a mapped file (Linux 6.6).
    ///
    /// # Errors
    /// EINVAL on older kernels.
    pub fn poison(&self, address: u64, length: u64) -> Result<Placed, Errno> {
        #[repr(C)]
        struct Poison {
            range: Range,
            mode: u64,
            updated: i64,
        }
        let mut argument = Poison {
            range: Range {
                start: address,
                length,
            },
            mode: 0,
            updated: 0,
        };
        match self.control(IOC_POISON, &mut argument) {
            Err(Errno::EINVAL) => Err(Errno::EINVAL),
            result => Self::placed(result, argument.updated),
        }
    }

    /// Reads the messages that are there, without waiting for one; the descriptor must be
    /// non-blocking.
    ///
    /// # Errors
    /// EBADF and the like, or a message of unknown form.
    pub fn read_events(&self, events: &mut Vec<Event>) -> Result<(), Errno> {
        let mut bytes = [0u8; MESSAGE_LENGTH * BATCH];
        loop {
            let count = match nix::unistd::read(&self.descriptor, &mut bytes) {
                Ok(count) => count,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            if count == 0 || count % MESSAGE_LENGTH != 0 {
                return Err(Errno::EBADMSG);
            }
            let messages = bytes[..count].chunks_exact(MESSAGE_LENGTH);
            events.extend(messages.filter_map(decode));
            if count < bytes.len() {
                return Ok(());
            }
        }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Reads one `struct uffd_msg`; `None` for an event that was never asked for.
fn decode(message: &[u8]) -> Option<Event> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&message[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    match message[0] {
        EVENT_PAGEFAULT => Some(Event::Fault {
            address: word(16) & !4095,
            write: word(8) & 1 != 0,
            protected: word(8) & 2 != 0,
        }),
        EVENT_REMAP => Some(Event::Remap {
            from: word(8),
            to: word(16),
            length: word(24),
        }),
        EVENT_REMOVE => Some(Event::Remove {
            start: word(8),
            end: word(16),
        }),
        EVENT_UNMAP => Some(Event::Unmap {
            start: word(8),
            end: word(16),
        }),
        EVENT_FORK => Some(Event::Fork {
            descriptor: i32::from_ne_bytes([message[8], message[9], message[10], message[11]]),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;

    const PAGE: usize = 4096;

    #[test]
    fn a_page_is_placed_once_and_a_second_try_says_so() {
        let fault = Uffd::create(true, 0).expect("userfaultfd");
        let length = NonZeroUsize::new(4 * PAGE).expect("length");
        // JUSTIFICATION: the test needs memory whose pages are missing.
        // SAFETY: a fresh private mapping, touched by nobody else.
        let place = unsafe {
            mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE,
            )
        }
        .expect("mmap");
        let start = place.as_ptr().expose_provenance() as u64;
        fault
            .register(start, 4 * PAGE as u64, Mode::Missing)
            .expect("register the range");
        let bytes = [7u8; PAGE];
        assert_eq!(fault.copy(start, &bytes), Ok(Placed::Whole));
        assert_eq!(fault.copy(start, &bytes), Ok(Placed::UntilPresent(0)));
        assert_eq!(
            fault.copy(start + PAGE as u64, &[1u8; 3 * PAGE]),
            Ok(Placed::Whole)
        );
        assert_eq!(
            fault
                .copy(start - (1 << 30), &bytes)
                .map(|p| p == Placed::Gone),
            Ok(true)
        );
        // JUSTIFICATION: the compiler must not assume what the page holds.
        // SAFETY: the page was placed above.
        let read = unsafe { place.cast::<u8>().as_ptr().read_volatile() };
        assert_eq!(read, 7);
        // JUSTIFICATION: the test gives back what it mapped.
        // SAFETY: the mapping made above, used no more.
        unsafe { munmap(place, 4 * PAGE) }.expect("munmap");
    }

    #[test]
    fn who_unmaps_memory_is_seen_until_that_is_read() {
        const PAGES: usize = 4;
        let uffd = Uffd::create(true, FEATURE_EVENT_UNMAP).expect("userfaultfd");
        // JUSTIFICATION: memory that a thread unmaps.
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let place = unsafe {
            mmap_anonymous(
                None,
                NonZeroUsize::new(PAGES * PAGE).expect("not zero"),
                ProtFlags::PROT_READ,
                MapFlags::MAP_PRIVATE,
            )
        };
        let place = place.expect("mmap");
        let start = place.as_ptr().expose_provenance();
        let length = (PAGES * PAGE) as u64;
        uffd.register(start as u64, length, Mode::Missing)
            .expect("registered");
        assert!(!uffd.is_changing());
        let unmaps = std::thread::spawn(move || {
            let hole = std::ptr::with_exposed_provenance_mut::<std::ffi::c_void>(start + PAGE);
            let hole = NonNull::new(hole).expect("not null");
            // JUSTIFICATION: as above.
            // SAFETY: nobody uses the page.
            unsafe { munmap(hole, PAGE) }.expect("munmap");
        });
        let mut set = [PollFd::new(uffd.as_fd(), PollFlags::POLLIN)];
        poll(&mut set, PollTimeout::from(10_000u16)).expect("poll");
        assert!(uffd.is_changing());
        let mut events = Vec::new();
        uffd.read_events(&mut events).expect("read");
        let (start, end) = ((start + PAGE) as u64, (start + 2 * PAGE) as u64);
        assert_eq!(events, [Event::Unmap { start, end }]);
        unmaps.join().expect("it ends");
        assert!(!uffd.is_changing());
        // What is not registered is unmapped at once.
        drop(uffd);
        // JUSTIFICATION: as above.
        // SAFETY: nobody uses the rest.
        unsafe { munmap(place, PAGES * PAGE) }.expect("munmap");
    }

    #[test]
    fn events_are_decoded_field_by_field() {
        let mut message = [0u8; MESSAGE_LENGTH];
        message[0] = EVENT_PAGEFAULT;
        message[8] = 1;
        message[16..24].copy_from_slice(&0x1234_5678u64.to_ne_bytes());
        let fault = |protected| Event::Fault {
            address: 0x1234_5000,
            write: true,
            protected,
        };
        assert_eq!(decode(&message), Some(fault(false)));
        message[8] = 3;
        assert_eq!(decode(&message), Some(fault(true)));
        message[0] = EVENT_UNMAP;
        message[8..16].copy_from_slice(&0x1000u64.to_ne_bytes());
        message[16..24].copy_from_slice(&0x3000u64.to_ne_bytes());
        let unmap = Event::Unmap {
            start: 0x1000,
            end: 0x3000,
        };
        assert_eq!(decode(&message), Some(unmap));
        message[0] = 0x77;
        assert_eq!(decode(&message), None);
    }
}
