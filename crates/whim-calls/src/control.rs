//! Calls with a command argument: fcntl, semctl, msgctl.

use crate::builder::{Builder, Flow, go_home};
use crate::types::{Direction, Returned};

use Direction::{In, InOut, Out};

const FLOCK: u64 = 32;

/// Commands without a pointer: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_SETOWN, F_GETOWN,
/// F_SETSIG, F_GETSIG, F_SETLEASE, F_GETLEASE, F_NOTIFY, F_DUPFD_QUERY, F_CREATED_QUERY,
/// F_CANCELLK, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS.
const PLAIN: &[i32] = &[
    0, 1, 2, 3, 4, 8, 9, 10, 11, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032, 1033, 1034,
];

pub(crate) fn fcntl(builder: &mut Builder<'_>) -> Flow {
    let (length, way, back) = match builder.int(1) {
        command if PLAIN.contains(&command) => return Ok(()),
        // F_GETLK, F_OFD_GETLK
        5 | 36 => (FLOCK, InOut, Returned::Whole),
        // F_SETLK, F_OFD_SETLK
        6 | 37 => (FLOCK, In, Returned::Nothing),
        // F_SETLKW, F_OFD_SETLKW
        7 | 38 => {
            builder.may_block = true;
            (FLOCK, In, Returned::Nothing)
        }
        // F_SETOWN_EX, F_SET_RW_HINT, F_SET_FILE_RW_HINT
        15 | 1036 | 1038 => (8, In, Returned::Nothing),
        // F_GETOWN_EX, F_GETOWNER_UIDS, F_GET_RW_HINT, F_GET_FILE_RW_HINT
        16 | 17 | 1035 | 1037 => (8, Out, Returned::Whole),
        _ if builder.is_no_address(2) => return Ok(()),
        _ => return go_home("this fcntl command is not in the table"),
    };
    builder.region(builder.value(2), length, way, back)
}

const SEMID_DS: u64 = 104;
const SEMINFO: u64 = 40;

pub(crate) fn semctl(builder: &mut Builder<'_>) -> Flow {
    let (length, way) = match builder.int(2) {
        // IPC_RMID, GETPID, GETVAL, GETNCNT, GETZCNT, SETVAL
        0 | 11 | 12 | 14 | 15 | 16 => return Ok(()),
        // IPC_SET
        1 => (SEMID_DS, In),
        // IPC_STAT, SEM_STAT, SEM_STAT_ANY
        2 | 18 | 20 => (SEMID_DS, Out),
        // IPC_INFO, SEM_INFO
        3 | 19 => (SEMINFO, Out),
        // GETALL, SETALL
        13 => return semaphore_values(builder, InOut, Returned::Changed),
        17 => return semaphore_values(builder, In, Returned::Nothing),
        _ if builder.is_no_address(3) => return Ok(()),
        _ => return go_home("this semctl command is not in the table"),
    };
    structure(builder, 3, length, way)
}

/// Only home knows how many semaphores a set has. The kernel touches two bytes for each, and a set
/// has at most this many (`SEMMSL`).
const SEMAPHORES_MAX: u64 = 32000;

fn semaphore_values(builder: &mut Builder<'_>, way: Direction, back: Returned) -> Flow {
    let address = builder.value(3);
    let there = u64::try_from(builder.peek(address, 2 * SEMAPHORES_MAX).len()).unwrap_or(0);
    // Memory behind the array is not part of it, so it is no fault by itself if that memory ends.
    builder.region(address, there.max(2), way, back)?;
    builder.may_fault();
    Ok(())
}

const MSQID_DS: u64 = 120;
const MSGINFO: u64 = 32;

pub(crate) fn msgctl(builder: &mut Builder<'_>) -> Flow {
    let (length, way) = match builder.int(1) {
        // IPC_RMID
        0 => return Ok(()),
        // IPC_SET
        1 => (MSQID_DS, In),
        // IPC_STAT, MSG_STAT, MSG_STAT_ANY
        2 | 11 | 13 => (MSQID_DS, Out),
        // IPC_INFO, MSG_INFO
        3 | 12 => (MSGINFO, Out),
        _ if builder.is_no_address(2) => return Ok(()),
        _ => return go_home("this msgctl command is not in the table"),
    };
    structure(builder, 2, length, way)
}

fn structure(builder: &mut Builder<'_>, index: usize, length: u64, way: Direction) -> Flow {
    let back = match way {
        In => Returned::Nothing,
        _ => Returned::Whole,
    };
    builder.region(builder.value(index), length, way, back)
}
