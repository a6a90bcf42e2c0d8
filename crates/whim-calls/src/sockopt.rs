//! Socket options: nearly all are flat; those that are not go home.

use crate::builder::{Builder, Flow, go_home};
use crate::types::{Direction, Returned, half, word};

use Direction::{In, InOut};

/// No flat option is longer.
const OPTION_MAX: u64 = 1 << 20;
/// A classic BPF program has at most this many instructions of 8 bytes.
const FILTER_COUNT_MAX: u64 = 4096;

const NOT_KNOWN: &str = "this socket option is not in the table";

const SOL_SOCKET: i32 = 1;
const SOL_IP: i32 = 0;
const SOL_TCP: i32 = 6;
const SOL_IPV6: i32 = 41;

/// Levels whose options are flat: UDP, ICMPv6, CAN (base and raw), UDP-Lite, raw IP, netlink,
/// TIPC, crypto (ALG), TLS, vsock (AF_VSOCK and SOL_VSOCK).
const FLAT_LEVELS: &[i32] = &[17, 58, 100, 101, 136, 255, 270, 271, 279, 282, 40, 287];

const SOL_PACKET: i32 = 263;
const SOL_MPTCP: i32 = 284;

const SO_ATTACH_FILTER: i32 = 26;
const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
const TCP_ZEROCOPY_RECEIVE: i32 = 35;
/// A program of BPF, in the fanout mode that takes one.
const PACKET_FANOUT_DATA: i32 = 22;
/// Holds pointers to two arrays.
const MPTCP_FULL_INFO: i32 = 4;
/// From here on IPv4 options belong to netfilter, whose structures hold pointers.
const NETFILTER_FIRST: i32 = 64;
/// Netfilter's one flat option, which proxies ask for.
const SO_ORIGINAL_DST: i32 = 80;
/// ip6tables: SET_REPLACE, ADD_COUNTERS and the revision queries, between ordinary options.
const IP6_TABLES: &[i32] = &[64, 65, 68, 69];

fn is_flat(level: i32, option: i32) -> bool {
    match level {
        SOL_SOCKET => true,
        SOL_IP => option < NETFILTER_FIRST || option == SO_ORIGINAL_DST,
        SOL_TCP => option != TCP_ZEROCOPY_RECEIVE,
        SOL_IPV6 => !IP6_TABLES.contains(&option),
        SOL_PACKET => option != PACKET_FANOUT_DATA,
        SOL_MPTCP => option != MPTCP_FULL_INFO,
        _ => FLAT_LEVELS.contains(&level),
    }
}

pub(crate) fn getsockopt(builder: &mut Builder<'_>) -> Flow {
    let (level, option) = (builder.int(1), builder.int(2));
    if !is_flat(level, option) {
        return go_home(NOT_KNOWN);
    }
    let bytes = builder.region_with_bytes(builder.value(4), 4, InOut, Returned::Whole)?;
    let mut length = u64::try_from(half(&bytes, 0).cast_signed()).unwrap_or(0);
    if level == SOL_SOCKET && option == SO_ATTACH_FILTER {
        // SO_GET_FILTER counts instructions, not bytes.
        length = length.min(FILTER_COUNT_MAX) * 8;
    }
    if length > OPTION_MAX {
        return go_home("the buffer of this socket option is too large to be forwarded");
    }
    builder.region(builder.value(3), length, InOut, Returned::Whole)
}

pub(crate) fn setsockopt(builder: &mut Builder<'_>) -> Flow {
    let (level, option) = (builder.int(1), builder.int(2));
    if !is_flat(level, option) {
        return go_home(NOT_KNOWN);
    }
    let length = u64::try_from(builder.int(4)).unwrap_or(0);
    if length > OPTION_MAX {
        return go_home("the buffer of this socket option is too large to be forwarded");
    }
    let value = builder.region_with_bytes(builder.value(3), length, In, Returned::Nothing)?;
    let program =
        level == SOL_SOCKET && (option == SO_ATTACH_FILTER || option == SO_ATTACH_REUSEPORT_CBPF);
    if program && value.len() >= 16 {
        let count = u64::from(half(&value, 0) & 0xffff).min(FILTER_COUNT_MAX);
        builder.region(word(&value, 8), count * 8, In, Returned::Nothing)?;
    }
    Ok(())
}
