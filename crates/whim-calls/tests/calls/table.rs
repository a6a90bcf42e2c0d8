//! The table is complete.

use std::collections::BTreeSet;

use syscalls::Sysno;
use whim_calls::{CallClass, home_may_execute, row, rows};

/// The highest number of the kernels that the table was written against.
const LAST: u32 = 470;

#[test]
fn every_number_has_exactly_one_row() {
    let known: BTreeSet<u64> = (0..=LAST)
        .filter_map(|number| Sysno::new(usize::try_from(number).unwrap()))
        .map(|sysno| sysno as u64)
        .collect();
    let listed: Vec<u64> = rows().iter().map(|row| row.number()).collect();
    let unique: BTreeSet<u64> = listed.iter().copied().collect();
    assert_eq!(listed.len(), unique.len(), "a number stands twice");
    let missing: Vec<_> = known.difference(&unique).collect();
    assert!(missing.is_empty(), "numbers without a row: {missing:?}");
    assert!(listed.is_sorted(), "rows are ordered by number");
}

#[test]
fn rows_are_found_by_number_and_carry_the_kernel_s_names() {
    for known in rows() {
        let found = row(known.number()).expect("a row that is listed is found");
        assert_eq!(found.name(), known.name());
        let sysno = Sysno::new(usize::try_from(known.number()).unwrap()).unwrap();
        assert_eq!(found.name(), sysno.name());
    }
    for number in [337, 423, u64::from(LAST) + 1, 1 << 30, u64::MAX] {
        assert!(row(number).is_none(), "{number}");
    }
}

#[test]
fn calls_that_go_home_say_why_and_are_never_executed_for_a_guest() {
    for row in rows() {
        if row.class() == CallClass::Home {
            assert!(!row.reason().is_empty(), "{}", row.name());
            assert!(!home_may_execute(row.number()), "{}", row.name());
        }
        if row.class() == CallClass::Local {
            assert!(!home_may_execute(row.number()), "{}", row.name());
        }
    }
}

/// Written out by hand, so that a slip in the table cannot open the door.
const NEVER_FOR_A_GUEST: &[Sysno] = {
    use Sysno::*;
    &[
        mount,
        umount2,
        pivot_root,
        open_tree,
        open_tree_attr,
        move_mount,
        fsopen,
        fsconfig,
        fsmount,
        fspick,
        mount_setattr,
        init_module,
        finit_module,
        delete_module,
        kexec_load,
        kexec_file_load,
        swapon,
        swapoff,
        acct,
        add_key,
        request_key,
        keyctl,
        ptrace,
        bpf,
        perf_event_open,
        process_vm_readv,
        process_vm_writev,
        process_madvise,
        userfaultfd,
        io_uring_setup,
        io_uring_enter,
        io_uring_register,
        unshare,
        setns,
        execve,
        execveat,
        fork,
        vfork,
        clone,
        clone3,
        seccomp,
        reboot,
        sethostname,
        setdomainname,
        settimeofday,
        clock_settime,
        iopl,
        ioperm,
        modify_ldt,
        quotactl,
        quotactl_fd,
        mmap,
        munmap,
        mprotect,
        mremap,
        brk,
        madvise,
        exit,
        exit_group,
        rt_sigaction,
        rt_sigprocmask,
        shmat,
        shmget,
    ]
};

#[test]
fn home_executes_nothing_that_changes_the_machine() {
    for sysno in NEVER_FOR_A_GUEST {
        assert!(!home_may_execute(*sysno as u64), "{sysno}");
    }
    use Sysno::*;
    for sysno in [read, write, openat, kill, prctl, getrusage, ioctl, ppoll] {
        assert!(home_may_execute(sysno as u64), "{sysno}");
    }
    assert!(!home_may_execute(u64::MAX));
}
