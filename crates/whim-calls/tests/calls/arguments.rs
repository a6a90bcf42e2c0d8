//! Calls whose class depends on their arguments.

use crate::common::*;
use syscalls::Sysno;
use whim_calls::{
    Context, Decision, Disposition, GuestMemory, MaskChange, Returned, Special, resolve, rows,
    signal_action,
};
use whim_model::Syscall;

const RW: u64 = 0x10000;
const OWN: u64 = PID as u64;

fn is_process_times(decision: &Decision) -> bool {
    matches!(decision, Decision::Special(Special::ProcessTimes(_)))
}

#[test]
fn mappings() {
    let memory = pages();
    let map = |address, length, flags: u64| {
        decide(&memory, Sysno::mmap, &[address, length, 3, flags, 5, 0])
    };
    let reserved = Decision::Special(Special::ReservedMemory);
    assert_eq!(map(0, 4096, 0x22), Decision::Continue);
    assert_eq!(map(0, 4096, 0x02), Decision::Special(Special::MapFile));
    assert!(matches!(map(0, 4096, 0x21), Decision::GoHome(_)));
    assert!(matches!(map(0, 4096, 0x01), Decision::GoHome(_)));
    assert!(matches!(map(0, 4096, 0x03), Decision::GoHome(_)));
    assert!(matches!(map(0, 4096, 0x4_0022), Decision::GoHome(_)));
    // A mere wish for an address is harmless; MAP_FIXED is not.
    assert_eq!(map(RESERVED.0, 4096, 0x22), Decision::Continue);
    assert_eq!(map(RESERVED.0, 4096, 0x32), reserved);
    assert_eq!(map(RESERVED.0 - 4096, 4097, 0x32), reserved);
    assert_eq!(map(RESERVED.0 - 4096, 4096, 0x32), Decision::Continue);
    assert_eq!(map(RESERVED.1 - 1, 4096, 0x10_0022), reserved);
    assert_eq!(map(RESERVED.1, 4096, 0x32), Decision::Continue);
    assert_eq!(map(0x1000, 1 << 46, 0x32), reserved);
    assert_eq!(map(0, 1 << 46, 0x22), Decision::Continue);
}

#[test]
fn memory_calls_near_the_reserved_range() {
    let memory = pages();
    let reserved = Decision::Special(Special::ReservedMemory);
    for sysno in [
        Sysno::munmap,
        Sysno::mprotect,
        Sysno::madvise,
        Sysno::msync,
        Sysno::pkey_mprotect,
    ] {
        // Without a key.
        let near = |address, length| decide(&memory, sysno, &[address, length, 0, u64::MAX]);
        assert_eq!(near(RESERVED.0 - 4096, 4096), Decision::Continue);
        assert_eq!(near(RESERVED.0 - 4096, 4097), reserved);
        assert_eq!(near(RESERVED.1 - 4096, 4096), reserved);
        assert_eq!(near(0, u64::MAX), reserved);
    }
    assert_eq!(decide(&memory, Sysno::brk, &[RESERVED.0]), reserved);
    assert_eq!(decide(&memory, Sysno::brk, &[RW]), Decision::Continue);
    let moved = [RW, 4096, 4096, 3, RESERVED.0];
    assert_eq!(decide(&memory, Sysno::mremap, &moved), reserved);
    let free = [RW, 4096, 4096, 1, RESERVED.0];
    assert_eq!(decide(&memory, Sysno::mremap, &free), Decision::Continue);
}

#[test]
fn more_of_a_file_is_shown_by_home() {
    let mut memory = pages();
    memory.files.push((RW, RW + 4 * PAGE));
    let remap = |address, old, new, flags: u64| {
        decide(
            &memory,
            Sysno::mremap,
            &[address, old, new, flags, 0x7000_0000],
        )
    };
    let more = Decision::Special(Special::RemapFile);
    for flags in [0, 1, 3] {
        assert_eq!(remap(RW, 4 * PAGE, 5 * PAGE, flags), more, "{flags}");
    }
    assert_eq!(remap(RW, 2 * PAGE, 2 * PAGE, 5), more);
    assert_eq!(remap(RW, 2 * PAGE, 2 * PAGE - 1, 7), more);
    // What is no longer, no file, or refused by any kernel is this host's kernel's.
    assert_eq!(remap(RW, 4 * PAGE, 4 * PAGE, 1), Decision::Continue);
    assert_eq!(remap(RW, PAGE - 7, PAGE, 0), Decision::Continue);
    assert_eq!(remap(RW + 8 * PAGE, PAGE, 2 * PAGE, 1), Decision::Continue);
    for (address, old, new, flags) in [
        (RW + 1, PAGE, 2 * PAGE, 1),
        (RW, 0, PAGE, 1),
        (RW, PAGE, 2 * PAGE, 2),
        (RW, PAGE, 2 * PAGE, 4),
        (RW, PAGE, 2 * PAGE, 5),
        (RW, PAGE, 2 * PAGE, 9),
        (RW, PAGE, u64::MAX, 1),
        (RW, PAGE, 1 << 50, 1),
    ] {
        let found = remap(address, old, new, flags);
        assert_ne!(found, more, "{address:#x} {old:#x} {new:#x} {flags}");
    }
}

#[test]
fn only_home_knows_what_the_mapping_of_a_file_may_become() {
    let mut memory = pages();
    memory.files.push((RW, RW + 4 * PAGE));
    let home =
        |sysno, arguments: &[u64]| matches!(decide(&memory, sysno, arguments), Decision::GoHome(_));
    for sysno in [Sysno::mprotect, Sysno::pkey_mprotect] {
        assert!(home(sysno, &[RW, PAGE, 5, u64::MAX]));
        assert!(!home(sysno, &[RW, PAGE, 3, u64::MAX]));
        assert!(!home(sysno, &[RW + 4 * PAGE, PAGE, 7, u64::MAX]));
    }
    for (key, goes) in [(0, true), (15, true), (16, false), (u64::MAX - 1, false)] {
        let found = home(Sysno::pkey_mprotect, &[RW + 4 * PAGE, PAGE, 3, key]);
        assert_eq!(found, goes, "{key}");
    }
    // A second one of the same, and more than one at once.
    assert!(home(Sysno::mremap, &[RW, 0, PAGE, 1, 0]));
    assert!(home(
        Sysno::mremap,
        &[RW, 5 * PAGE, 5 * PAGE, 3, 0x7000_0000]
    ));
    assert!(!home(
        Sysno::mremap,
        &[RW, 4 * PAGE, 4 * PAGE, 3, 0x7000_0000]
    ));
    for advice in [3, 8, 9, 18] {
        assert!(home(Sysno::madvise, &[RW, 5 * PAGE, advice]), "{advice}");
        assert!(!home(Sysno::madvise, &[RW, 4 * PAGE, advice]), "{advice}");
    }
}

#[test]
fn room_below_a_mapping_is_no_memory() {
    let memory = pages();
    let home =
        |sysno, arguments: &[u64]| matches!(decide(&memory, sysno, arguments), Decision::GoHome(_));
    let (start, end) = ROOM;
    for sysno in [
        Sysno::mprotect,
        Sysno::munmap,
        Sysno::mincore,
        Sysno::madvise,
    ] {
        assert!(home(sysno, &[start, PAGE, 1]), "{sysno}");
        assert!(home(sysno, &[start - PAGE, 2 * PAGE, 1]), "{sysno}");
        assert!(!home(sysno, &[end, PAGE, 1]), "{sysno}");
    }
    assert!(home(Sysno::mmap, &[start, PAGE, 3, 0x10_0022, u64::MAX, 0]));
    assert!(home(Sysno::mremap, &[RW, PAGE, PAGE, 3, start]));
    assert!(
        home(Sysno::mmap, &[0, PAGE, 3, 0x122, u64::MAX, 0]),
        "it grows"
    );
}

#[test]
fn with_future_locks_only_home_maps_memory() {
    let memory = pages();
    let context = Context {
        locks_future: true,
        ..context()
    };
    let home = |sysno: Sysno, arguments: [u64; 6]| {
        let call = Syscall {
            number: sysno as u64,
            args: arguments,
        };
        matches!(resolve(&call, &context, &memory), Decision::GoHome(_))
    };
    assert!(home(Sysno::mmap, [0, PAGE, 3, 0x22, u64::MAX, 0]));
    assert!(home(Sysno::brk, [RW, 0, 0, 0, 0, 0]));
    assert!(!home(Sysno::brk, [0; 6]));
    assert!(home(Sysno::mremap, [RW, PAGE, 2 * PAGE, 1, 0, 0]));
    assert!(!home(Sysno::mremap, [RW, 2 * PAGE, PAGE, 1, 0, 0]));
}

#[test]
fn home_is_asked_for_locks_of_others_and_for_no_other_word() {
    let asked = |word: u32, command: u64| {
        let mut memory = pages();
        // The same word where each command looks.
        memory.words(RW, &[u64::from(word), u64::from(word)]);
        let decision = decide(&memory, Sysno::futex, &[RW, command, 0, 0, RW + 8, 0]);
        matches!(decision, Decision::GoHome(_))
    };
    let own = PID.cast_unsigned();
    // WAIT, WAKE, REQUEUE, WAKE_OP, UNLOCK_PI, WAIT_BITSET: what stands in the word is the program's own.
    for command in [0, 1, 3, 5, 7, 9, 128, 129, 265] {
        assert!(!asked(77, command), "{command}");
    }
    // LOCK_PI, TRYLOCK_PI, CMP_REQUEUE_PI, LOCK_PI2, each of the process alone as well.
    for command in [6, 8, 12, 13, 134, 136, 140, 141, 269, 397] {
        assert!(asked(77, command), "{command}");
        // With the bits for those who wait, and for a holder that has ended.
        assert!(asked(77 | 0xc000_0000, command), "{command}");
        for held_by in [0, own, own + 1, own | 0x8000_0000] {
            assert!(!asked(held_by, command), "{command}");
        }
    }
}

#[test]
fn signals_to_the_own_process_are_carried() {
    let memory = pages();
    let signal = |sysno, arguments: &[u64]| match decide(&memory, sysno, arguments) {
        Decision::Special(Special::Signal(signal)) => {
            Some((signal.tgid, signal.tid, signal.signal, signal.info))
        }
        _ => None,
    };
    let own = Some(PID);
    let thread = Some(PID + 1);
    assert_eq!(signal(Sysno::kill, &[OWN, 10]), Some((own, None, 10, 0)));
    assert_eq!(
        signal(Sysno::tkill, &[OWN + 1, 10]),
        Some((None, thread, 10, 0))
    );
    let found = signal(Sysno::tgkill, &[OWN, OWN + 1, 10]);
    assert_eq!(found, Some((own, thread, 10, 0)));
    let found = signal(Sysno::rt_sigqueueinfo, &[OWN, 34, RW]);
    assert_eq!(found, Some((own, None, 34, RW)));
    let found = signal(Sysno::rt_tgsigqueueinfo, &[OWN, OWN + 1, 34, RW]);
    assert_eq!(found, Some((own, thread, 34, RW)));
    // Others, groups and everybody: the deputy does it.
    for target in [1, 0, u64::MAX, u64::from((-500i32).cast_unsigned())] {
        assert!(
            forward(&memory, Sysno::kill, &[target, 15])
                .regions
                .is_empty()
        );
    }
    assert!(forward(&memory, Sysno::tkill, &[7, 15]).regions.is_empty());
    let foreign = forward(&memory, Sysno::rt_sigqueueinfo, &[7, 15, RW]);
    assert_eq!(foreign.regions[0].length, 128);
    // Signal 0 only asks.
    assert_eq!(decide(&memory, Sysno::kill, &[OWN, 0]), Decision::Answer(0));
    let absent = decide(&memory, Sysno::tgkill, &[OWN, 9999, 0]);
    assert_eq!(absent, Decision::Answer(-3));
    // A wrong number: the kernel at home says EINVAL.
    forward(&memory, Sysno::kill, &[OWN, 65]);
}

#[test]
fn a_signal_of_its_own_making_to_what_may_be_a_thread_is_sent_at_home() {
    let memory = pages();
    let home = |args: &[u64]| goes_home(&memory, Sysno::pidfd_send_signal, args);
    assert!(home(&[3, 10, RW, 0]));
    // PIDFD_SIGNAL_THREAD, and flags that no kernel knows.
    assert!(home(&[3, 10, RW, 1]));
    assert!(home(&[3, 10, RW, 8]));
    // To groups, without a siginfo, and no signal at all.
    assert!(!home(&[3, 10, RW, 2]));
    assert!(!home(&[3, 10, RW, 4]));
    assert!(!home(&[3, 10, 0, 1]));
    assert!(!home(&[3, 0, RW, 0]));
}

#[test]
fn signal_actions_are_read_for_home() {
    let mut memory = pages();
    memory.words(RW, &[0x40_0000, 0x1000_0004, 0, 0xff]);
    let call = call(Sysno::rt_sigaction, &[17, RW, 0, 8]);
    let decision = resolve(&call, &context(), &memory);
    assert_eq!(decision, Decision::Special(Special::SignalAction));
    let action = signal_action(&call, &memory).expect("an action is set");
    assert_eq!(
        (action.signal, action.disposition),
        (17, Disposition::Caught)
    );
    assert_eq!((action.flags, action.mask), (0x1000_0004, 0xff));
    for (handler, class) in [(0, Disposition::Default), (1, Disposition::Ignored)] {
        memory.words(RW, &[handler]);
        assert_eq!(
            signal_action(&call, &memory).map(|a| a.disposition),
            Some(class)
        );
    }
    let asks = crate::common::call(Sysno::rt_sigaction, &[17, 0, RW, 8]);
    assert_eq!(resolve(&asks, &context(), &memory), Decision::Continue);
    assert_eq!(signal_action(&asks, &memory), None);
    let wrong = crate::common::call(Sysno::rt_sigaction, &[17, 0x5000_0000, 0, 8]);
    assert_eq!(signal_action(&wrong, &memory), None);
}

#[test]
fn what_concerns_signals_of_descriptors_is_looked_at() {
    let mut memory = pages();
    memory.words(RW, &[1 << 9 | 1 << 22, 1 << 22]);
    let (read, other) = (RW, RW + 8);
    let decide = |descriptor_signals: u64, sysno: Sysno, arguments: &[u64]| {
        let context = Context {
            descriptor_signals,
            ..context()
        };
        resolve(&call(sysno, arguments), &context, &memory)
    };
    let change = |how, set| Decision::Special(Special::SignalMask(MaskChange { how, set }));
    let with = |sysno, arguments: &[u64]| decide(1 << 9, sysno, arguments);
    for (how, number) in [
        (libc::SIG_BLOCK, 0),
        (libc::SIG_UNBLOCK, 1),
        (libc::SIG_SETMASK, 2),
    ] {
        let found = with(Sysno::rt_sigprocmask, &[number, read, 0, 8]);
        assert_eq!(found, change(how, 1 << 9 | 1 << 22));
    }
    let set_mask = change(libc::SIG_SETMASK, 1 << 22);
    assert_eq!(with(Sysno::rt_sigprocmask, &[2, other, 0, 8]), set_mask);
    assert_eq!(with(Sysno::rt_sigsuspend, &[other, 8]), set_mask);
    let home = |decision| matches!(decision, Decision::GoHome(_));
    assert!(home(with(Sysno::rt_sigtimedwait, &[read, 0, 0, 8])));
    assert!(home(with(Sysno::rt_sigpending, &[RW, 8])));
    // Others, questions, and what the kernel refuses.
    for (sysno, arguments) in [
        (Sysno::rt_sigprocmask, [0, other, 0, 8]),
        (Sysno::rt_sigprocmask, [1, other, 0, 8]),
        (Sysno::rt_sigprocmask, [2, 0, RW, 8]),
        (Sysno::rt_sigprocmask, [2, read, 0, 4]),
        (Sysno::rt_sigprocmask, [2, 0x5000_0000, 0, 8]),
        (Sysno::rt_sigsuspend, [read, 16, 0, 0]),
        (Sysno::rt_sigtimedwait, [other, 0, 0, 8]),
    ] {
        assert_eq!(
            with(sysno, &arguments),
            Decision::Continue,
            "{sysno} {arguments:?}"
        );
    }
    for (sysno, arguments) in [
        (Sysno::rt_sigprocmask, [2, read, 0, 8]),
        (Sysno::rt_sigsuspend, [read, 8, 0, 0]),
        (Sysno::rt_sigtimedwait, [read, 0, 0, 8]),
        (Sysno::rt_sigpending, [RW, 8, 0, 0]),
    ] {
        assert_eq!(decide(0, sysno, &arguments), Decision::Continue, "{sysno}");
    }
}

#[test]
fn a_change_of_a_mask_is_what_the_kernel_makes_of_it() {
    let of = |how, blocked| MaskChange { how, set: 0b0110 }.of(blocked);
    assert_eq!(of(libc::SIG_BLOCK, 0b1010), 0b1110);
    assert_eq!(of(libc::SIG_UNBLOCK, 0b1010), 0b1000);
    assert_eq!(of(libc::SIG_SETMASK, 0b1010), 0b0110);
    assert_eq!(of(7, 0b1010), 0b1010, "the kernel refuses it");
}

#[test]
fn clocks_and_cpu_time() {
    let memory = pages();
    let gettime = |id: i32| {
        let id = u64::from(id.cast_unsigned());
        decide(&memory, Sysno::clock_gettime, &[id, RW])
    };
    assert_eq!(gettime(1), Decision::Continue);
    assert!(is_process_times(&gettime(2)));
    assert!(is_process_times(&gettime(3)));
    let encoded = |id: i32, thread: i32| (!id << 3) | thread | 2;
    assert!(is_process_times(&gettime(encoded(0, 0))));
    assert!(is_process_times(&gettime(encoded(PID, 0))));
    assert!(is_process_times(&gettime(encoded(PID + 1, 4))));
    assert!(matches!(gettime(encoded(77, 0)), Decision::Forward(_)));
    let descriptor = (!5 << 3) | 3;
    assert!(matches!(gettime(descriptor), Decision::Forward(_)));
    assert!(goes_home(&memory, Sysno::clock_nanosleep, &[2, 0, RW, 0]));
    assert!(goes_home(&memory, Sysno::timer_create, &[2, 0, RW]));
    assert_eq!(
        forward(&memory, Sysno::timer_create, &[1, 0, RW]).regions,
        [region_both(RW, &[0; 4], Returned::WholeAlways)]
    );
    assert!(is_process_times(&decide(
        &memory,
        Sysno::getrusage,
        &[0, RW]
    )));
    forward(&memory, Sysno::getrusage, &[0xffff_ffff, RW]);
    assert!(is_process_times(&decide(&memory, Sysno::times, &[RW])));
    forward(&memory, Sysno::setitimer, &[0, RW, 0]);
    assert_eq!(
        decide(&memory, Sysno::setitimer, &[2, RW, 0]),
        Decision::Continue
    );
    forward(&memory, Sysno::adjtimex, &[RW]);
}

#[test]
fn options_of_prctl() {
    let mut memory = pages();
    memory.store(RW, b"worker\0");
    let Decision::Special(Special::Both(name)) = decide(&memory, Sysno::prctl, &[15, RW]) else {
        panic!("PR_SET_NAME acts on both sides");
    };
    assert_eq!(&name.regions[0].data[..7], b"worker\0");
    assert_eq!(decide(&memory, Sysno::prctl, &[16, RW]), Decision::Continue);
    assert!(forward(&memory, Sysno::prctl, &[4, 1]).regions.is_empty());
    let signal = forward(&memory, Sysno::prctl, &[2, RW]);
    assert_eq!(signal.regions, [region_out(RW, 4, Returned::Whole)]);
    for option in [22, 35, 59, 65, 4711] {
        assert!(goes_home(&memory, Sysno::prctl, &[option]));
    }
    assert_eq!(decide(&memory, Sysno::prctl, &[26, 1]), Decision::Continue);
    assert!(goes_home(&memory, Sysno::prctl, &[26, 2]));
    // Its first timer slack is known at home alone.
    assert!(goes_home(&memory, Sysno::prctl, &[29, 0]));
    assert_eq!(
        decide(&memory, Sysno::arch_prctl, &[0x1002, RW]),
        Decision::Continue
    );
    assert!(goes_home(&memory, Sysno::arch_prctl, &[0x1023, 18]));
}

#[test]
fn memory_policies() {
    let mut memory = pages();
    let set = |memory: &Pages, bits| decide(memory, Sysno::set_mempolicy, &[2, RW, bits]);
    memory.words(RW, &[1, 0]);
    assert_eq!(set(&memory, 129), Decision::Continue);
    memory.words(RW, &[1, 1]);
    assert!(matches!(set(&memory, 129), Decision::GoHome(_)));
    // The second word is not asked for, and a set of no bits is none.
    assert_eq!(set(&memory, 65), Decision::Continue);
    memory.words(RW, &[2, 0]);
    assert!(matches!(set(&memory, 65), Decision::GoHome(_)));
    assert_eq!(set(&memory, 1), Decision::Continue);
    let bind = |start| decide(&memory, Sysno::mbind, &[start, 4096, 2, RW, 65, 0]);
    assert!(matches!(bind(0x1000), Decision::GoHome(_)));
    assert_eq!(bind(RESERVED.0), Decision::Special(Special::ReservedMemory));
    let local = [0x1000, 4096, 4, 0, 0, 0];
    assert_eq!(decide(&memory, Sysno::mbind, &local), Decision::Continue);
    let ask = |how| decide(&memory, Sysno::get_mempolicy, &[RW, RW + 64, 129, 0, how]);
    assert_eq!(ask(2), Decision::Continue);
    let Decision::Forward(allowed) = ask(4) else {
        panic!("home knows which nodes it may use");
    };
    let lengths: Vec<u64> = allowed.regions.iter().map(|region| region.length).collect();
    assert_eq!(lengths, [4, 16]);
}

#[test]
fn attributes_of_the_process() {
    let mut memory = pages();
    assert!(goes_home(&memory, Sysno::setrlimit, &[9, RW]));
    forward(&memory, Sysno::setrlimit, &[7, RW]);
    let asks = forward(&memory, Sysno::prlimit64, &[0, 7, 0, RW]);
    assert_eq!(
        asks.regions,
        [region_both(RW, &[0; 16], Returned::WholeAlways)]
    );
    assert!(goes_home(&memory, Sysno::prlimit64, &[OWN, 3, RW, 0]));
    forward(&memory, Sysno::prlimit64, &[1, 3, RW, 0]);
    for ask in [[OWN, 9, 0, RW], [0, 2, 0, RW]] {
        let decision = decide(&memory, Sysno::prlimit64, &ask);
        assert!(matches!(decision, Decision::Special(Special::Limit(_))));
    }
    let decision = decide(&memory, Sysno::getrlimit, &[9, RW]);
    assert!(matches!(decision, Decision::Special(Special::Limit(_))));
    forward(&memory, Sysno::getrlimit, &[7, RW]);
    forward(&memory, Sysno::prlimit64, &[1, 9, 0, RW]);
    forward(&memory, Sysno::personality, &[0xffff_ffff]);
    assert!(goes_home(&memory, Sysno::personality, &[0]));
    forward(&memory, Sysno::close_range, &[3, 9, 4]);
    assert!(goes_home(&memory, Sysno::close_range, &[3, 9, 2]));
    assert!(goes_home(&memory, Sysno::sched_setscheduler, &[0, 1, RW]));
    forward(&memory, Sysno::sched_setscheduler, &[0, 3, RW]);
    memory.words(RW, &[48 | 1 << 32]);
    assert!(goes_home(&memory, Sysno::sched_setattr, &[0, RW, 0]));
    memory.words(RW, &[56]);
    let attributes = forward(&memory, Sysno::sched_setattr, &[0, RW, 0]);
    assert_eq!(attributes.regions[0].length, 56);
    let own = decide(&memory, Sysno::get_robust_list, &[OWN + 1, RW, RW + 8]);
    assert_eq!(own, Decision::Continue);
    assert_eq!(
        forward(&memory, Sysno::get_robust_list, &[7, RW, RW + 8])
            .regions
            .len(),
        2
    );
    assert_eq!(
        decide(&memory, Sysno::move_pages, &[OWN]),
        Decision::Continue
    );
    assert!(goes_home(&memory, Sysno::move_pages, &[7]));
    memory.words(RW, &[0x2008_0522]);
    let capabilities = forward(&memory, Sysno::capget, &[RW, RW + 0x10]);
    assert_eq!(capabilities.regions[1].length, 24);
}

#[test]
fn the_end_is_acknowledged() {
    let memory = pages();
    assert_eq!(
        decide(&memory, Sysno::exit, &[3]),
        Decision::Special(Special::ThreadExit)
    );
    assert_eq!(
        decide(&memory, Sysno::exit_group, &[3]),
        Decision::Special(Special::ProcessExit)
    );
}

/// Calls whose effect cannot be split between two machines.
#[test]
fn what_cannot_be_split_goes_home() {
    let memory = pages();
    for sysno in [
        Sysno::fork,
        Sysno::vfork,
        Sysno::clone,
        Sysno::clone3,
        Sysno::execve,
        Sysno::execveat,
        Sysno::unshare,
        Sysno::setns,
        Sysno::ptrace,
        Sysno::seccomp,
        Sysno::shmat,
        Sysno::userfaultfd,
        Sysno::memfd_secret,
        Sysno::signalfd4,
        Sysno::perf_event_open,
        Sysno::bpf,
        Sysno::io_setup,
        Sysno::io_uring_setup,
        Sysno::process_vm_readv,
        Sysno::modify_ldt,
        Sysno::iopl,
        Sysno::mount,
    ] {
        assert!(goes_home(&memory, sysno, &[]), "{sysno}");
    }
}

/// Every row answers to arguments of zero, and to pointers into nothing.
#[test]
fn every_row_decides() {
    let memory = pages();
    let mut buffer = [0];
    assert_eq!(memory.read(0x5000_0000, &mut buffer), 0);
    for row in rows() {
        for value in [0, RW, 0x5000_0000, u64::MAX, RESERVED.0] {
            let call = whim_model::Syscall {
                number: row.number(),
                args: [value; 6],
            };
            resolve(&call, &context(), &memory);
        }
    }
}
