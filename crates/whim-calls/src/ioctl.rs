//! The requests of ioctl that programs make on descriptors, which stay at home.

use crate::builder::{Builder, Flow, go_home};
use crate::types::{Direction, Returned, half, word};
use whim_model::Syscall;

use Io::{Change, Get, None, Put};

/// What the third argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Io {
    /// Not a pointer.
    None,
    /// A structure that the kernel reads.
    Get(u64),
    /// A structure that the kernel fills.
    Put(u64),
    /// A structure that the kernel reads and changes.
    Change(u64),
}

/// Requests, with their names, mostly in the order of their numbers.
const TERMINAL: &[(u32, &str, Io)] = &[
    (0x5401, "TCGETS", Put(36)),
    (0x5402, "TCSETS", Get(36)),
    (0x5403, "TCSETSW", Get(36)),
    (0x5404, "TCSETSF", Get(36)),
    (0x5405, "TCGETA", Put(18)),
    (0x5406, "TCSETA", Get(18)),
    (0x5407, "TCSETAW", Get(18)),
    (0x5408, "TCSETAF", Get(18)),
    (0x5409, "TCSBRK", None),
    (0x540a, "TCXONC", None),
    (0x540b, "TCFLSH", None),
    (0x540c, "TIOCEXCL", None),
    (0x540d, "TIOCNXCL", None),
    (0x540e, "TIOCSCTTY", None),
    (0x540f, "TIOCGPGRP", Put(4)),
    (0x5410, "TIOCSPGRP", Get(4)),
    (0x5411, "TIOCOUTQ", Put(4)),
    (0x5413, "TIOCGWINSZ", Put(8)),
    (0x5414, "TIOCSWINSZ", Get(8)),
    (0x5415, "TIOCMGET", Put(4)),
    (0x5416, "TIOCMBIS", Get(4)),
    (0x5417, "TIOCMBIC", Get(4)),
    (0x5418, "TIOCMSET", Get(4)),
    (0x5419, "TIOCGSOFTCAR", Put(4)),
    (0x541a, "TIOCSSOFTCAR", Get(4)),
    (0x541b, "FIONREAD", Put(4)),
    (0x541e, "TIOCGSERIAL", Put(72)),
    (0x541f, "TIOCSSERIAL", Get(72)),
    (0x5420, "TIOCPKT", Get(4)),
    (0x5421, "FIONBIO", Get(4)),
    (0x5422, "TIOCNOTTY", None),
    (0x5424, "TIOCGETD", Put(4)),
    (0x5425, "TCSBRKP", None),
    (0x5427, "TIOCSBRK", None),
    (0x5428, "TIOCCBRK", None),
    (0x5429, "TIOCGSID", Put(4)),
    (0x542e, "TIOCGRS485", Put(32)),
    (0x542f, "TIOCSRS485", Change(32)),
    (0x5437, "TIOCVHANGUP", None),
    (0x5441, "TIOCGPTPEER", None),
    (0x5450, "FIONCLEX", None),
    (0x5451, "FIOCLEX", None),
    (0x5452, "FIOASYNC", Get(4)),
    (0x5456, "TIOCGLCKTRMIOS", Put(36)),
    (0x5457, "TIOCSLCKTRMIOS", Get(36)),
    (0x5459, "TIOCSERGETLSR", Put(4)),
    (0x545c, "TIOCMIWAIT", None),
    (0x545d, "TIOCGICOUNT", Put(80)),
    (0x5460, "FIOQSIZE", Put(8)),
    (0x4004_5431, "TIOCSPTLCK", Get(4)),
    (0x4004_5436, "TIOCSIG", None),
    (0x402c_542b, "TCSETS2", Get(44)),
    (0x402c_542c, "TCSETSW2", Get(44)),
    (0x402c_542d, "TCSETSF2", Get(44)),
    (0x8004_5430, "TIOCGPTN", Put(4)),
    (0x8004_5432, "TIOCGDEV", Put(4)),
    (0x8004_5438, "TIOCGPKT", Put(4)),
    (0x8004_5439, "TIOCGPTLCK", Put(4)),
    (0x8004_5440, "TIOCGEXCL", Put(4)),
    (0x802c_542a, "TCGETS2", Put(44)),
    (0x4b2f, "KIOCSOUND", None),
    (0x4b30, "KDMKTONE", None),
    (0x4b31, "KDGETLED", Put(1)),
    (0x4b32, "KDSETLED", None),
    (0x4b33, "KDGKBTYPE", Put(1)),
    (0x4b3a, "KDSETMODE", None),
    (0x4b3b, "KDGETMODE", Put(4)),
    (0x4b44, "KDGKBMODE", Put(4)),
    (0x4b45, "KDSKBMODE", None),
    (0x4b62, "KDGKBMETA", Put(4)),
    (0x4b63, "KDSKBMETA", None),
    (0x4b64, "KDGKBLED", Put(1)),
    (0x4b65, "KDSKBLED", None),
    (0x5600, "VT_OPENQRY", Put(4)),
    (0x5601, "VT_GETMODE", Put(8)),
    (0x5602, "VT_SETMODE", Get(8)),
    (0x5603, "VT_GETSTATE", Put(6)),
    (0x5605, "VT_RELDISP", None),
    (0x5606, "VT_ACTIVATE", None),
    (0x5607, "VT_WAITACTIVE", None),
    (0x5608, "VT_DISALLOCATE", None),
];

const FILE: &[(u32, &str, Io)] = &[
    (0x0000_0001, "FIBMAP", Change(4)),
    (0x0000_0002, "FIGETBSZ", Put(4)),
    (0x0000_0301, "HDIO_GETGEO", Put(16)),
    (0x0000_125d, "BLKROSET", Get(4)),
    (0x0000_125e, "BLKROGET", Put(4)),
    (0x0000_125f, "BLKRRPART", None),
    (0x0000_1260, "BLKGETSIZE", Put(8)),
    (0x0000_1261, "BLKFLSBUF", None),
    (0x0000_1262, "BLKRASET", None),
    (0x0000_1263, "BLKRAGET", Put(8)),
    (0x0000_1264, "BLKFRASET", None),
    (0x0000_1265, "BLKFRAGET", Put(8)),
    (0x0000_1267, "BLKSECTGET", Put(2)),
    (0x0000_1268, "BLKSSZGET", Put(4)),
    (0x0000_1277, "BLKDISCARD", Get(16)),
    (0x0000_1278, "BLKIOMIN", Put(4)),
    (0x0000_1279, "BLKIOOPT", Put(4)),
    (0x0000_127a, "BLKALIGNOFF", Put(4)),
    (0x0000_127b, "BLKPBSZGET", Put(4)),
    (0x0000_127c, "BLKDISCARDZEROES", Put(4)),
    (0x0000_127d, "BLKSECDISCARD", Get(16)),
    (0x0000_127e, "BLKROTATIONAL", Put(2)),
    (0x0000_127f, "BLKZEROOUT", Get(16)),
    (0x0000_b701, "NS_GET_USERNS", None),
    (0x0000_b702, "NS_GET_PARENT", None),
    (0x0000_b703, "NS_GET_NSTYPE", None),
    (0x0000_b704, "NS_GET_OWNER_UID", Put(4)),
    (0x4004_9409, "FICLONE", None),
    (0x4008_5400, "TFD_IOC_SET_TICKS", Get(8)),
    (0x4008_6602, "FS_IOC_SETFLAGS", Get(8)),
    (0x4008_7602, "FS_IOC_SETVERSION", Get(8)),
    (0x4008_8a01, "EPIOCSPARAMS", Get(8)),
    (0x401c_5820, "FS_IOC_FSSETXATTR", Get(28)),
    (0x4020_940d, "FICLONERANGE", Get(32)),
    (0x4030_5828, "FS_IOC_RESVSP", Get(48)),
    (0x4030_5829, "FS_IOC_UNRESVSP", Get(48)),
    (0x4030_582a, "FS_IOC_RESVSP64", Get(48)),
    (0x4030_582b, "FS_IOC_UNRESVSP64", Get(48)),
    (0x4030_5839, "FS_IOC_ZERO_RANGE", Get(48)),
    (0x4100_9432, "FS_IOC_SETFSLABEL", Get(256)),
    (0x8004_5200, "RNDGETENTCNT", Put(4)),
    // Their argument is an id, not a pointer.
    (0x8004_b706, "NS_GET_PID_FROM_PIDNS", None),
    (0x8004_b707, "NS_GET_TGID_FROM_PIDNS", None),
    (0x8004_b708, "NS_GET_PID_IN_PIDNS", None),
    (0x8004_b709, "NS_GET_TGID_IN_PIDNS", None),
    (0x8008_1272, "BLKGETSIZE64", Put(8)),
    (0x8008_1280, "BLKGETDISKSEQ", Put(8)),
    // The kernel writes 32 bits where the number says 64; some file systems differ.
    (0x8008_6601, "FS_IOC_GETFLAGS", Change(8)),
    (0x8008_7601, "FS_IOC_GETVERSION", Change(8)),
    (0x8008_8a02, "EPIOCGPARAMS", Put(8)),
    (0x8008_b705, "NS_GET_MNTNS_ID", Put(8)),
    (0x8011_1500, "FS_IOC_GETFSUUID", Change(17)),
    (0x801c_581f, "FS_IOC_FSGETXATTR", Put(28)),
    (0x8024_7008, "RTC_ALM_READ", Put(36)),
    (0x8024_7009, "RTC_RD_TIME", Put(36)),
    (0x8081_1501, "FS_IOC_GETFSSYSFSPATH", Change(129)),
    (0x8100_9431, "FS_IOC_GETFSLABEL", Change(256)),
    (0xc004_5877, "FIFREEZE", None),
    (0xc004_5878, "FITHAW", None),
    (0xc018_5879, "FITRIM", Change(24)),
];

const IFREQ: u64 = 40;

const SOCKET: &[(u32, &str, Io)] = &[
    (0x8901, "FIOSETOWN", Get(4)),
    (0x8902, "SIOCSPGRP", Get(4)),
    (0x8903, "FIOGETOWN", Put(4)),
    (0x8904, "SIOCGPGRP", Put(4)),
    (0x8905, "SIOCATMARK", Put(4)),
    (0x8906, "SIOCGSTAMP", Put(16)),
    (0x8907, "SIOCGSTAMPNS", Put(16)),
    (0x8910, "SIOCGIFNAME", Change(IFREQ)),
    (0x8911, "SIOCSIFLINK", Change(IFREQ)),
    (0x8913, "SIOCGIFFLAGS", Change(IFREQ)),
    (0x8914, "SIOCSIFFLAGS", Change(IFREQ)),
    (0x8915, "SIOCGIFADDR", Change(IFREQ)),
    (0x8916, "SIOCSIFADDR", Change(IFREQ)),
    (0x8917, "SIOCGIFDSTADDR", Change(IFREQ)),
    (0x8918, "SIOCSIFDSTADDR", Change(IFREQ)),
    (0x8919, "SIOCGIFBRDADDR", Change(IFREQ)),
    (0x891a, "SIOCSIFBRDADDR", Change(IFREQ)),
    (0x891b, "SIOCGIFNETMASK", Change(IFREQ)),
    (0x891c, "SIOCSIFNETMASK", Change(IFREQ)),
    (0x891d, "SIOCGIFMETRIC", Change(IFREQ)),
    (0x891e, "SIOCSIFMETRIC", Change(IFREQ)),
    (0x8921, "SIOCGIFMTU", Change(IFREQ)),
    (0x8922, "SIOCSIFMTU", Change(IFREQ)),
    (0x8923, "SIOCSIFNAME", Change(IFREQ)),
    (0x8924, "SIOCSIFHWADDR", Change(IFREQ)),
    (0x8927, "SIOCGIFHWADDR", Change(IFREQ)),
    (0x8933, "SIOCGIFINDEX", Change(IFREQ)),
    (0x8931, "SIOCADDMULTI", Change(IFREQ)),
    (0x8932, "SIOCDELMULTI", Change(IFREQ)),
    (0x8935, "SIOCGIFPFLAGS", Change(IFREQ)),
    (0x8938, "SIOCGIFCOUNT", Change(IFREQ)),
    (0x8942, "SIOCGIFTXQLEN", Change(IFREQ)),
    (0x8943, "SIOCSIFTXQLEN", Change(IFREQ)),
    (0x894b, "SIOCOUTQNSD", Put(4)),
    (0x894c, "SIOCGSKNS", None),
    (0x8947, "SIOCGMIIPHY", Change(IFREQ)),
    (0x8948, "SIOCGMIIREG", Change(IFREQ)),
    (0x8953, "SIOCDARP", Change(68)),
    (0x8954, "SIOCGARP", Change(68)),
    (0x8955, "SIOCSARP", Change(68)),
    (0x8970, "SIOCGIFMAP", Change(IFREQ)),
    (0x89e0, "SIOCUNIXFILE", None),
    (0x8b01, "SIOCGIWNAME", Change(32)),
    (0x400454ca, "TUNSETIFF", Change(IFREQ)),
    (0x400454cb, "TUNSETPERSIST", None),
    (0x800454cf, "TUNGETFEATURES", Put(4)),
    (0x800454d2, "TUNGETIFF", Change(IFREQ)),
    (0x8010_8906, "SIOCGSTAMP_NEW", Put(16)),
    (0x8010_8907, "SIOCGSTAMPNS_NEW", Put(16)),
];

/// Requests that home executes for no host, though the program's user may make them: typing into a
/// terminal, where others read as commands what was typed (TIOCSTI, TIOCLINUX), taking the
/// console's messages (TIOCCONS), and having a line discipline loaded into the kernel (TIOCSETD).
/// The program makes them itself, at home.
const REFUSED: &[u32] = &[0x5412, 0x541c, 0x541d, 0x5423];

/// Whether home never executes this request for a guest.
pub(crate) fn is_refused(request: u32) -> bool {
    REFUSED.contains(&request)
}

/// Requests that may wait: for a line to drain, a modem line, or a disk.
const WAITING: &[u32] = &[
    0x5403,
    0x5404,
    0x5407,
    0x5408,
    0x5409,
    0x5425,
    0x545c,
    0x5607,
    0x402c_542c,
    0x402c_542d,
    0x1261,
    0x1277,
    0x127d,
    0x127f,
    0x4004_9409,
    0x4020_940d,
    0x4030_5828,
    0x4030_5829,
    0x4030_582a,
    0x4030_582b,
    0x4030_5839,
    0xc004_5877,
    0xc004_5878,
    0xc018_5879,
];

const SIOCGIFCONF: u32 = 0x8912;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
const FIDEDUPERANGE: u32 = 0xc018_9436;
/// `_IO(0xff, 1..=10)`: namespaces of a pidfd; no pointer.
const PIDFD_NAMESPACES: std::ops::RangeInclusive<u32> = 0xff01..=0xff0a;
/// `_IOWR(0xff, 11, structure)`: the size is in the number.
const PIDFD_GET_INFO: u32 = 0xc000_ff0b;
const SIZE_MASK: u32 = 0x3fff_0000;

pub(crate) fn ioctl(builder: &mut Builder<'_>) -> Flow {
    let (request, address) = (builder.unsigned(1), builder.value(2));
    if let Some(io) = lookup(request) {
        builder.may_block = WAITING.contains(&request);
        let (length, way, back) = match io {
            None => return Ok(()),
            Get(length) => (length, Direction::In, Returned::Nothing),
            Put(length) => (length, Direction::Out, Returned::Whole),
            Change(length) => (length, Direction::InOut, Returned::Whole),
        };
        return builder.region(address, length, way, back);
    }
    if is_refused(request) {
        return go_home("this ioctl request types for others, or changes the kernel");
    }
    match request {
        SIOCGIFCONF => interface_list(builder, address),
        FS_IOC_FIEMAP => counted(builder, address, 32, 24, u64::from(u32::MAX), 56),
        FIDEDUPERANGE => counted(builder, address, 24, 16, 0xffff, 32),
        // An argument that is no address in the guest cannot lead the kernel to a buffer.
        _ if builder.is_no_address(2) => Ok(()),
        _ => go_home("this ioctl request is not in the table"),
    }
}

/// Requests that the kernel grants to a process of the background only if it blocks or ignores
/// SIGTTOU (`tty_check_change`): all that change the terminal.
const CONTROL: &[u32] = &[
    0x5402,
    0x5403,
    0x5404,
    0x5406,
    0x5407,
    0x5408,
    0x5409,
    0x540a,
    0x540b,
    0x5410,
    0x5425,
    0x5427,
    0x5428,
    0x402c_542b,
    0x402c_542c,
    0x402c_542d,
];

/// Whether the kernel looks at the caller's signal mask for this call.
#[must_use]
pub fn is_terminal_control(call: &Syscall) -> bool {
    request_of(call).is_some_and(|request| CONTROL.contains(&request))
}

/// Whether a terminal sends a signal for this call.
pub(crate) fn is_signal_of_terminal(call: &Syscall) -> bool {
    const TIOCSIG: u32 = 0x4004_5436;
    request_of(call) == Some(TIOCSIG)
}

/// What an `ioctl` asks for; none if the call is no `ioctl`.
fn request_of(call: &Syscall) -> Option<u32> {
    let request = u32::try_from(call.args[1] & u64::from(u32::MAX)).ok();
    request.filter(|_| call.number == libc::SYS_ioctl.cast_unsigned())
}

fn lookup(request: u32) -> Option<Io> {
    for group in [TERMINAL, FILE, SOCKET] {
        if let Some((_, _, io)) = group.iter().find(|(number, _, _)| *number == request) {
            return Some(*io);
        }
    }
    if PIDFD_NAMESPACES.contains(&request) {
        return Some(None);
    }
    if request & !SIZE_MASK == PIDFD_GET_INFO {
        return Some(Change(u64::from((request & SIZE_MASK) >> 16)));
    }
    Option::None
}

/// struct ifconf: a length and a pointer.
fn interface_list(builder: &mut Builder<'_>, address: u64) -> Flow {
    let bytes = builder.region_with_bytes(address, 16, Direction::InOut, Returned::Whole)?;
    let length = u64::try_from(half(&bytes, 0).cast_signed()).unwrap_or(0);
    let list = word(&bytes, 8);
    if list == 0 {
        return Ok(());
    }
    builder.region(list, length, Direction::InOut, Returned::Whole)
}

/// A header that holds a count, and that many elements behind it.
fn counted(
    builder: &mut Builder<'_>,
    address: u64,
    header: u64,
    at: usize,
    mask: u64,
    element: u64,
) -> Flow {
    builder.may_block = true;
    let bytes = builder.region_with_bytes(address, header, Direction::InOut, Returned::Whole)?;
    let count = u64::from(half(&bytes, at)) & mask;
    let body = address.saturating_add(header);
    builder.region(body, count * element, Direction::InOut, Returned::Whole)
}

/// The requests that are forwarded, by name, for the documentation.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = [TERMINAL, FILE, SOCKET]
        .iter()
        .flat_map(|group| group.iter().map(|(_, name, _)| *name))
        .chain([
            "SIOCGIFCONF",
            "FS_IOC_FIEMAP",
            "FIDEDUPERANGE",
            "PIDFD_GET_INFO",
        ])
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_stands_twice() {
        let mut numbers: Vec<u32> = [TERMINAL, FILE, SOCKET]
            .iter()
            .flat_map(|group| group.iter().map(|(number, _, _)| *number))
            .collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }

    /// If the number of a request encodes a size, the table must not place less.
    #[test]
    fn sizes_agree_with_the_numbers() {
        for (number, name, io) in [TERMINAL, FILE, SOCKET].concat() {
            let encoded = u64::from((number & SIZE_MASK) >> 16);
            let placed = match io {
                None => continue,
                Get(length) | Put(length) | Change(length) => length,
            };
            assert!(placed >= encoded, "{name}: {placed} of {encoded} bytes");
        }
    }
}
