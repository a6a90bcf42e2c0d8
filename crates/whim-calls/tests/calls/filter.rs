//! The guest's seccomp program, run by a small interpreter.

use crate::common::RESERVED;
use syscalls::Sysno;
use whim_calls::{CallClass, Instruction, NATIVE, Places, cautious_filter, guest_filter, rows};

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
/// The kernel takes no longer program.
const INSTRUCTIONS_MAX: usize = 4096;

/// Classic BPF, as far as the program uses it.
fn run(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    run_at(program, 0x40_0000, (arch, number, args))
}

/// The same for a call that is made at this address.
fn run_at(
    program: &[Instruction],
    pointer: u64,
    (arch, number, args): (u32, u32, [u64; 6]),
) -> u32 {
    let mut data = Vec::with_capacity(64);
    data.extend(number.to_le_bytes());
    data.extend(arch.to_le_bytes());
    data.extend(pointer.to_le_bytes());
    data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
    let mut accumulator = 0u32;
    let mut kept = 0u32;
    let mut counter = 0;
    loop {
        let Instruction { code, jt, jf, k } = program[counter];
        counter += 1;
        let holds = match code {
            0x20 => {
                let at = usize::try_from(k).unwrap();
                assert_eq!(at % 4, 0, "seccomp loads aligned words only");
                accumulator = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
                continue;
            }
            0x54 => {
                accumulator &= k;
                continue;
            }
            0x07 => {
                kept = accumulator;
                continue;
            }
            0x06 => return k,
            0x1d => accumulator == kept,
            0x2d => accumulator > kept,
            0x15 => accumulator == k,
            0x25 => accumulator > k,
            0x35 => accumulator >= k,
            0x45 => accumulator & k != 0,
            other => panic!("unexpected instruction {other:#x}"),
        };
        counter += usize::from(if holds { jt } else { jf });
    }
}

fn places() -> Places {
    Places {
        reserved: RESERVED,
        ..Places::default()
    }
}

fn verdict(sysno: Sysno, arguments: &[u64]) -> u32 {
    let mut args = [0; 6];
    args[..arguments.len()].copy_from_slice(arguments);
    let number = u32::try_from(sysno as u64).unwrap();
    run(&guest_filter(&places()), NATIVE, number, args)
}

#[test]
fn the_program_is_one_that_the_kernel_takes() {
    let program = guest_filter(&places());
    assert!(program.len() <= INSTRUCTIONS_MAX, "{}", program.len());
    for (place, instruction) in program.iter().enumerate() {
        let far = usize::from(instruction.jt.max(instruction.jf));
        if instruction.code & 7 == 5 {
            assert!(place + 1 + far < program.len(), "jump out of the program");
        }
    }
    assert_eq!(program.last().map(|last| last.code), Some(0x06));
}

#[test]
fn a_cautious_host_traps_local_calls_that_have_pointers() {
    let program = cautious_filter(&places());
    assert!(program.len() <= INSTRUCTIONS_MAX, "{}", program.len());
    let verdict = |sysno: Sysno, arch| {
        let number = u32::try_from(sysno as u64).unwrap();
        run(&program, arch, number, [0x1000; 6])
    };
    for sysno in [Sysno::futex, Sysno::getrandom, Sysno::rt_sigprocmask] {
        assert_eq!(verdict(sysno, NATIVE), NOTIFY, "{sysno}");
    }
    for sysno in [Sysno::sched_yield, Sysno::munmap, Sysno::rt_sigreturn] {
        assert_eq!(verdict(sysno, NATIVE), ALLOW, "{sysno}");
        assert_eq!(verdict(sysno, 0x4000_0003), NOTIFY, "{sysno} of 32 bits");
    }
    assert_eq!(verdict(Sysno::write, NATIVE), NOTIFY);
    let futex = u32::try_from(Sysno::futex as u64).unwrap();
    let at = |pointer| run_at(&program, pointer, (NATIVE, futex, [0x1000; 6]));
    let (start, end) = RESERVED;
    for pointer in [start, end - 1] {
        assert_eq!(at(pointer), ALLOW, "the supervisor's code");
    }
    for pointer in [start - 1, end, 0, u64::MAX] {
        assert_eq!(at(pointer), NOTIFY, "{pointer:#x}");
    }
    let write = u32::try_from(Sysno::write as u64).unwrap();
    let own = (NATIVE, write, [0x1000; 6]);
    assert_eq!(run_at(&program, start, own), NOTIFY);
}

#[test]
fn where_descriptors_read_signals_calls_that_concern_them_are_trapped() {
    let with = Places {
        reads_signals: true,
        ..places()
    };
    for (program, expected) in [
        (guest_filter(&with), NOTIFY),
        (guest_filter(&places()), ALLOW),
    ] {
        for sysno in [
            Sysno::rt_sigprocmask,
            Sysno::rt_sigpending,
            Sysno::rt_sigtimedwait,
            Sysno::rt_sigsuspend,
        ] {
            let number = u32::try_from(sysno as u64).unwrap();
            assert_eq!(
                run(&program, NATIVE, number, [0x1000; 6]),
                expected,
                "{sysno}"
            );
            let ours = run_at(&program, RESERVED.0, (NATIVE, number, [0x1000; 6]));
            assert_eq!(ours, ALLOW, "{sysno} from the supervisor's code");
        }
        let number = u32::try_from(Sysno::rt_sigreturn as u64).unwrap();
        assert_eq!(run(&program, NATIVE, number, [0x1000; 6]), ALLOW);
    }
}

#[test]
fn local_calls_pass_and_all_others_are_trapped() {
    let program = guest_filter(&places());
    for row in rows() {
        let number = u32::try_from(row.number()).unwrap();
        let found = run(&program, NATIVE, number, [0x1000; 6]);
        match row.class() {
            CallClass::Local => assert_eq!(found, ALLOW, "{}", row.name()),
            CallClass::Forward | CallClass::Home => assert_eq!(found, NOTIFY, "{}", row.name()),
            CallClass::ByArgument => {}
        }
    }
    for number in [337, 423, 470, 1000, 0x4000_0000, 0x4000_0027, 0x7fff_ffff] {
        assert_eq!(run(&program, NATIVE, number, [0; 6]), NOTIFY);
    }
    // getpid of a 32-bit call has the number of another 64-bit call.
    for number in [20, 24, 39] {
        assert_eq!(run(&program, 0x4000_0003, number, [0; 6]), NOTIFY);
    }
}

#[test]
fn numbers_of_no_call_are_left_to_the_kernel() {
    for program in [guest_filter(&places()), cautious_filter(&places())] {
        for arch in [NATIVE, 0x4000_0003] {
            assert_eq!(
                run(&program, arch, u32::MAX, [0x1000; 6]),
                ALLOW,
                "{arch:#x}"
            );
        }
    }
}

#[test]
fn memory_calls_are_trapped_where_they_may_touch_the_reserved_range() {
    const TEBIBYTE: u64 = 1 << 40;
    let (start, end) = RESERVED;
    for sysno in [
        Sysno::munmap,
        Sysno::mprotect,
        Sysno::madvise,
        Sysno::mincore,
        Sysno::msync,
    ] {
        for (address, length, expected) in [
            (0, 0, ALLOW),
            (start - TEBIBYTE - 1, TEBIBYTE - 1, ALLOW),
            (start - TEBIBYTE, 1, NOTIFY),
            (start - 1, 1, NOTIFY),
            (start, 1, NOTIFY),
            (end - 1, 1, NOTIFY),
            (end, TEBIBYTE - 1, ALLOW),
            (0x7fff_0000_0000, 4096, ALLOW),
            (0x1000, TEBIBYTE, NOTIFY),
            (0x1000, u64::MAX, NOTIFY),
        ] {
            let found = verdict(sysno, &[address, length]);
            assert_eq!(found, expected, "{sysno} {address:#x} {length:#x}");
        }
    }
    assert_eq!(verdict(Sysno::brk, &[0x5555_0000_0000]), ALLOW);
    assert_eq!(verdict(Sysno::brk, &[start]), NOTIFY);
    let plain = [0x1000, 8192, 4096, 1, 0];
    assert_eq!(verdict(Sysno::mremap, &plain), ALLOW);
    for (place, value) in [(0, start), (1, TEBIBYTE), (2, TEBIBYTE), (4, end - 1)] {
        let mut arguments = plain;
        arguments[place] = value;
        assert_eq!(verdict(Sysno::mremap, &arguments), NOTIFY);
    }
}

#[test]
fn whatever_may_show_more_of_a_file_is_reported() {
    const LONG: u64 = 1 << 32;
    for (old, new, flags, expected) in [
        (8192, 4096, 1, ALLOW),
        (8192, 8192, 1, ALLOW),
        (8192, 8192, 3, NOTIFY),
        (0, 0, 0, ALLOW),
        (8192, 8193, 0, NOTIFY),
        (4096, LONG, 1, NOTIFY),
        (LONG, 4096, 1, ALLOW),
        (LONG + 4096, LONG + 8192, 3, NOTIFY),
        (LONG + 8192, LONG + 4096, 1, ALLOW),
        (LONG - 1, LONG, 1, NOTIFY),
        (LONG, LONG - 1, 1, ALLOW),
        (8192, 8192, 5, NOTIFY),
        (8192, 4096, 7, NOTIFY),
    ] {
        let found = verdict(Sysno::mremap, &[0x1000, old, new, flags, 0x9000]);
        assert_eq!(found, expected, "{old:#x} {new:#x} {flags}");
    }
}

#[test]
fn what_is_to_become_executable_is_reported() {
    for (protection, expected) in [(0, ALLOW), (1, ALLOW), (3, ALLOW), (5, NOTIFY), (7, NOTIFY)] {
        let arguments = [0x1000, 4096, protection];
        assert_eq!(verdict(Sysno::mprotect, &arguments), expected);
        assert_eq!(verdict(Sysno::pkey_mprotect, &arguments), NOTIFY);
    }
}

#[test]
fn other_places_are_watched_and_more_than_a_few_together() {
    const GIBIBYTES: u64 = 1 << 32;
    let verdict = |others: &[(u64, u64)], sysno: Sysno, arguments: [u64; 6]| {
        let places = Places {
            others: others.to_vec(),
            ..places()
        };
        let number = u32::try_from(sysno as u64).unwrap();
        run(&guest_filter(&places), NATIVE, number, arguments)
    };
    let at = |number: u64| (number * GIBIBYTES, number * GIBIBYTES + 4096);
    let few = [at(9), at(3), at(4)];
    let many: Vec<(u64, u64)> = (0..40).map(|number| at(100 + 3 * number)).collect();
    for sysno in [
        Sysno::mprotect,
        Sysno::munmap,
        Sysno::mincore,
        Sysno::madvise,
        Sysno::mremap,
    ] {
        for (number, expected) in [
            (1, ALLOW),
            (2, NOTIFY),
            (3, NOTIFY),
            (4, NOTIFY),
            (5, ALLOW),
            (8, NOTIFY),
            (9, NOTIFY),
            (10, ALLOW),
        ] {
            let arguments = [number * GIBIBYTES + 4096, 4096, 0, 0, 0, 0];
            assert_eq!(
                verdict(&few, sysno, arguments),
                expected,
                "{sysno} {number}"
            );
        }
        for (number, expected) in [(98, ALLOW), (101, NOTIFY), (217, NOTIFY), (218, ALLOW)] {
            let arguments = [number * GIBIBYTES, 4096, 0, 0, 0, 0];
            assert_eq!(
                verdict(&many, sysno, arguments),
                expected,
                "{sysno} {number}"
            );
        }
    }
}

#[test]
fn with_future_locks_whatever_maps_memory_is_reported() {
    let places = Places {
        locks_future: true,
        ..places()
    };
    let program = guest_filter(&places);
    let verdict = |sysno: Sysno, arguments| {
        let number = u32::try_from(sysno as u64).unwrap();
        run(&program, NATIVE, number, arguments)
    };
    assert_eq!(
        verdict(Sysno::mmap, [0, 4096, 3, 0x22, u64::MAX, 0]),
        NOTIFY
    );
    assert_eq!(
        verdict(Sysno::brk, [0x5555_0000_0000, 0, 0, 0, 0, 0]),
        NOTIFY
    );
    assert_eq!(verdict(Sysno::brk, [0; 6]), ALLOW);
    assert_eq!(verdict(Sysno::munmap, [0x1000, 4096, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn memory_policies_are_trapped_where_they_name_nodes() {
    assert_eq!(verdict(Sysno::mbind, &[0x1000, 4096, 0, 0, 0, 0]), NOTIFY);
    assert_eq!(verdict(Sysno::set_mempolicy, &[0, 0, 0]), ALLOW);
    assert_eq!(verdict(Sysno::set_mempolicy, &[2, 0x1000, 65]), NOTIFY);
    for (how, expected) in [(0, ALLOW), (2, ALLOW), (4, NOTIFY)] {
        let found = verdict(Sysno::get_mempolicy, &[0x1000, 0x2000, 65, 0, how]);
        assert_eq!(found, expected, "{how}");
    }
}

#[test]
fn only_private_anonymous_mappings_pass() {
    let map = |address, length, flags| verdict(Sysno::mmap, &[address, length, 3, flags]);
    for flags in [0x22, 0x32, 0x4022, 0x2_0022, 0x10_0022, 0x8022] {
        assert_eq!(map(0x1000, 4096, flags), ALLOW, "{flags:#x}");
        assert_eq!(map(RESERVED.0, 4096, flags), NOTIFY);
        assert_eq!(map(0, 1 << 40, flags), NOTIFY);
    }
    for flags in [0x02, 0x01, 0x21, 0x03, 0x23, 0x20, 0x28, 0x4_0022, 0x122, 0] {
        assert_eq!(map(0x1000, 4096, flags), NOTIFY, "{flags:#x}");
    }
    // The kernel looks at the whole word of flags, and so does the program at its low half.
    assert_eq!(map(0x1000, 4096, 0xffff_ffff_0000_0022), ALLOW);
}

#[test]
fn clocks_options_and_actions() {
    let negative = u64::from((-6i32).cast_unsigned());
    for (id, expected) in [
        (0, ALLOW),
        (1, ALLOW),
        (7, ALLOW),
        (2, NOTIFY),
        (3, NOTIFY),
        (negative, NOTIFY),
        (u64::MAX, NOTIFY),
        (1 << 32, ALLOW),
        ((1 << 32) | 2, NOTIFY),
    ] {
        assert_eq!(verdict(Sysno::clock_gettime, &[id]), expected, "{id:#x}");
    }
    assert_eq!(verdict(Sysno::clock_nanosleep, &[1]), ALLOW);
    assert_eq!(verdict(Sysno::clock_nanosleep, &[2]), NOTIFY);
    assert_eq!(verdict(Sysno::prctl, &[16]), ALLOW);
    assert_eq!(verdict(Sysno::prctl, &[0x5356_4d41]), ALLOW);
    for option in [15, 4, 22, 26, 38, 65, 4711] {
        assert_eq!(verdict(Sysno::prctl, &[option]), NOTIFY);
    }
    assert_eq!(verdict(Sysno::rt_sigaction, &[17, 0]), ALLOW);
    assert_eq!(verdict(Sysno::rt_sigaction, &[17, 1]), NOTIFY);
    assert_eq!(verdict(Sysno::rt_sigaction, &[17, 1 << 32]), NOTIFY);
    assert_eq!(verdict(Sysno::setitimer, &[0]), NOTIFY);
    assert_eq!(verdict(Sysno::setitimer, &[2]), ALLOW);
    assert_eq!(verdict(Sysno::get_robust_list, &[0]), ALLOW);
    assert_eq!(verdict(Sysno::get_robust_list, &[9]), NOTIFY);
    assert_eq!(verdict(Sysno::arch_prctl, &[0x1002]), ALLOW);
    assert_eq!(verdict(Sysno::arch_prctl, &[0x1023]), NOTIFY);
}

/// A guest without a reserved range, and one whose range lies at the very bottom or top.
#[test]
fn odd_ranges() {
    let munmap = u32::try_from(Sysno::munmap as u64).unwrap();
    let at = |reserved, address: u64| {
        let places = Places {
            reserved,
            ..Places::default()
        };
        let arguments = [address, 1, 0, 0, 0, 0];
        run(&guest_filter(&places), NATIVE, munmap, arguments)
    };
    assert_eq!(at((0, 0), 0x1000), ALLOW);
    assert_eq!(at((0, 1 << 40), 0x1000), NOTIFY);
    assert_eq!(at((0, 1 << 40), 1 << 40), ALLOW);
    assert_eq!(
        at((0x7f00_0000_0000, 0x8000_0000_0000), 0x7fff_ffff_f000),
        NOTIFY
    );
    assert_eq!(
        at((0x7f00_0000_0000, 0x8000_0000_0000), 0x7dff_ffff_f000),
        ALLOW
    );
}
