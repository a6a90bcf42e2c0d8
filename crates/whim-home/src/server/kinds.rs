//! What it is that the guest maps. The guest shows pages of files; memory of devices, of sockets, and of the
//! kernel's own file systems is no file's, and only home's kernel can show it.

use super::{ServeError, Server};
use nix::errno::Errno;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use whim_model::Syscall;

/// Bytes of the kernel's `struct stat` and of its `struct statfs`.
const STAT_BYTES: usize = 144;
const STATFS_BYTES: usize = 120;

/// Memory that is a file's though its descriptor is a device's: `/dev/zero`, mapped privately, is plain memory.
const ZERO: (u32, u32) = (1, 5);

/// File systems whose files are no pages of a cache, by their magic numbers: sysfs, procfs, debugfs, tracefs,
/// configfs, securityfs, BPF, both of cgroups, SELinux, Smack, EFI variables, resctrl, descriptors without a
/// file, secret memory, buffers for DMA, memory of virtual machines, hugetlbfs.
const OF_THE_KERNEL: [u32; 18] = [
    0x6265_6572,
    0x0000_9fa0,
    0x6462_6720,
    0x7472_6163,
    0x6265_6570,
    0x7363_6673,
    0xcafe_4a11,
    0x0027_e0eb,
    0x6367_7270,
    0xf97c_ff8c,
    0x4341_5d53,
    0xde5e_81e4,
    0x0765_5821,
    0x0904_1934,
    0x5345_434d,
    0x444d_4142,
    0x474d_454d,
    0x9584_58f6,
];
/// Files of hugetlbfs have blocks of at least this size, and may have some; those of the others have none.
const HUGE_BLOCK: u64 = 1 << 21;

/// What a descriptor is, as far as it matters here.
#[derive(Clone, Copy, Debug)]
struct About {
    mode: u32,
    device: u64,
    of_device: u64,
    block: u64,
    blocks: u64,
}

impl About {
    /// Whether its memory is no file's; none if that depends on the file system.
    fn is_special(self) -> Option<bool> {
        match self.mode & libc::S_IFMT {
            libc::S_IFSOCK | libc::S_IFBLK => Some(true),
            libc::S_IFCHR => {
                let number = (libc::major(self.of_device), libc::minor(self.of_device));
                Some(number != ZERO)
            }
            // Home's kernel has no memory of these to map, and says so.
            libc::S_IFIFO | libc::S_IFDIR | libc::S_IFLNK => Some(false),
            // A file system on a disk, or of other machines, is not asked: it may take its time to answer.
            _ => {
                let may_be = self.blocks == 0 || self.block >= HUGE_BLOCK;
                (libc::major(self.device) != 0 || !may_be).then_some(false)
            }
        }
    }

    fn parse(stat: &[u8; STAT_BYTES]) -> Self {
        let word = |at: usize| {
            let bytes: [u8; 8] = std::array::from_fn(|index| stat[at + index]);
            u64::from_le_bytes(bytes)
        };
        let low = |at: usize| u32::try_from(word(at) & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            mode: low(24),
            device: word(0),
            of_device: word(40),
            block: word(56),
            blocks: word(64),
        }
    }
}

fn is_of_the_kernel(kind: i64) -> bool {
    u32::try_from(kind).is_ok_and(|kind| OF_THE_KERNEL.contains(&kind))
}

impl Server {
    /// Whether a mapping by this descriptor would show memory that is no file's.
    pub(super) fn is_special(&mut self, seat: usize, fd: i32) -> Result<bool, ServeError> {
        if fd < 0 {
            return Ok(false);
        }
        let path = format!("/proc/{}/fd/{fd}", self.deputy.pid());
        match special(Path::new(&path)) {
            Ok(found) => Ok(found),
            // It has no such descriptor.
            Err(Errno::ENOENT) => Ok(false),
            // The deputy cannot be inspected from outside any more, so it looks at the descriptor itself.
            Err(_) => self.ask_of_kind(seat, fd),
        }
    }

    fn ask_of_kind(&mut self, seat: usize, fd: i32) -> Result<bool, ServeError> {
        let fd = u64::from(fd.unsigned_abs());
        let stat = self.deputy.address(self.deputy.deck().data_offset());
        let statfs = stat + STAT_BYTES as u64;
        let results = self.deputy.run(
            seat,
            &[
                Syscall::new(libc::SYS_fstat, &[fd, stat]),
                Syscall::new(libc::SYS_fstatfs, &[fd, statfs]),
            ],
        )?;
        let mut about = [0; STAT_BYTES];
        self.deputy.deck().read_data(0, &mut about);
        let mut of = [0; STATFS_BYTES];
        self.deputy.deck().read_data(STAT_BYTES, &mut of);
        let kind = i64::from_le_bytes(std::array::from_fn(|index| of[index]));
        let by_file_system = results[1] == 0 && is_of_the_kernel(kind);
        let about = About::parse(&about);
        Ok(results[0] == 0 && about.is_special().unwrap_or(by_file_system))
    }
}

/// As [`Server::is_special`], of a path that leads to an open file.
fn special(path: &Path) -> Result<bool, Errno> {
    let about = fs::metadata(path)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let about = About {
        mode: about.st_mode(),
        device: about.st_dev(),
        of_device: about.st_rdev(),
        block: about.st_blksize(),
        blocks: about.st_blocks(),
    };
    if let Some(found) = about.is_special() {
        return Ok(found);
    }
    let of = nix::sys::statfs::statfs(path)?;
    Ok(is_of_the_kernel(of.filesystem_type().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};

    fn is_special(file: impl AsFd) -> bool {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        special(Path::new(&path)).expect("it is open")
    }

    #[test]
    fn memory_that_is_no_file_s_is_known() {
        for name in ["/proc/self/maps", "/sys/kernel/profiling", "/dev/null"] {
            let Ok(file) = File::open(name) else {
                println!("{name}: skipped, this machine does not have it");
                continue;
            };
            assert!(is_special(file), "{name}");
        }
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        assert!(is_special(socket));
        for name in ["/dev/zero", "/proc/self/exe", "/", "/etc/passwd"] {
            assert!(
                !is_special(File::open(name).expect("it is there")),
                "{name}"
            );
        }
        let name = std::env::temp_dir().join(format!("whim-empty-{}", std::process::id()));
        assert!(!is_special(File::create(&name).expect("a temporary file")));
        fs::remove_file(&name).expect("ours");
        let (end, _other) = nix::unistd::pipe().expect("a pipe");
        assert!(!is_special(end));
        assert_eq!(special(Path::new("/proc/self/fd/-1")), Err(Errno::ENOENT));
    }

    #[test]
    fn the_kernel_s_own_words_are_understood() {
        let mut stat = [0; STAT_BYTES];
        stat[24..28].copy_from_slice(&libc::S_IFCHR.to_le_bytes());
        let numbers = |major, minor| libc::makedev(major, minor).to_le_bytes();
        stat[40..48].copy_from_slice(&numbers(1, 5));
        assert_eq!(About::parse(&stat).is_special(), Some(false));
        stat[40..48].copy_from_slice(&numbers(10, 200));
        assert_eq!(About::parse(&stat).is_special(), Some(true));
        stat[24..28].copy_from_slice(&libc::S_IFREG.to_le_bytes());
        assert_eq!(About::parse(&stat).is_special(), None);
        stat[64..72].copy_from_slice(&u64::to_le_bytes(8));
        assert_eq!(About::parse(&stat).is_special(), Some(false));
        stat[56..64].copy_from_slice(&u64::to_le_bytes(HUGE_BLOCK));
        assert_eq!(About::parse(&stat).is_special(), None);
        stat[0..8].copy_from_slice(&numbers(8, 1));
        assert_eq!(About::parse(&stat).is_special(), Some(false));
    }
}
