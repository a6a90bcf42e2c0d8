//! Each kind of shape, against a guest's memory.

use crate::common::*;
use syscalls::Sysno;
use whim_calls::{
    Decision, Direction, NATIVE, Returned, Special, TimeoutArgument, TimeoutFormat, resolve,
};
use whim_model::Syscall;

const RESULT: Returned = Returned::ByResult { skip: 0 };
const RW: u64 = 0x10000;
const RO: u64 = 0x20000;
const NOWHERE: u64 = 0x5000_0000;

#[test]
fn read_and_write_have_their_buffer() {
    let mut memory = pages();
    memory.store(RW + 8, b"hello");
    let read = forward(&memory, Sysno::read, &[3, RW, 100]);
    assert_eq!(read.regions, [region_out(RW, 100, RESULT)]);
    assert!(read.may_block && !read.may_fault);
    assert_eq!(read.args, [3, RW, 100, 0, 0, 0]);
    let write = forward(&memory, Sysno::write, &[1, RW + 8, 5]);
    assert_eq!(write.regions, [region_in(RW + 8, b"hello")]);
    let empty = forward(&memory, Sysno::read, &[3, NOWHERE, 0]);
    assert!(empty.regions.is_empty() && !empty.may_fault);
}

#[test]
fn buffers_end_where_the_guest_s_pages_end() {
    let mut memory = pages();
    memory.store(RW + 4 * PAGE - 3, b"end");
    let write = forward(&memory, Sysno::write, &[1, RW + 4 * PAGE - 3, 5000]);
    assert_eq!(write.regions[0].length, 5000);
    assert_eq!(write.regions[0].data, b"end");
    assert!(write.may_fault);
    let read = forward(&memory, Sysno::read, &[3, RW + 100, 10 * PAGE]);
    // What the kernel writes before it meets the end comes back even with EFAULT.
    let there = memory_bytes(&memory, RW + 100, 4 * 4096 - 100);
    let partial = region_both(RW + 100, &there, Returned::WholeAlways);
    assert_eq!(read.regions, [partial]);
    assert!(read.may_fault);
    // Whatever the kernel makes of it: nothing is there.
    let lost = forward(&memory, Sysno::read, &[3, NOWHERE, 10]);
    assert!(lost.regions.is_empty() && lost.may_fault);
}

#[test]
fn what_may_only_be_read_is_protected() {
    let mut memory = pages();
    memory.store(RO, b"read only");
    let protected = |address: u64, data: &[u8]| whim_calls::Region {
        direction: whim_calls::Direction::Protected,
        ..region_in(address, data)
    };
    // Else what is read would be taken away and lost.
    for sysno in [Sysno::read, Sysno::recvfrom, Sysno::fstat] {
        let read = forward(&memory, sysno, &[3, RO, 9]);
        assert_eq!(read.regions[0].direction, whim_calls::Direction::Protected);
        assert!(read.regions.len() == 1 && read.may_fault);
    }
    let read = forward(&memory, Sysno::read, &[3, RO, 9]);
    assert_eq!(read.regions, [protected(RO, b"read only")]);
    let long = forward(&memory, Sysno::read, &[3, RO + 100, 10 * PAGE]);
    assert_eq!(long.regions[0].length, PAGE - 100);
    // The kernel reads it first: all of it is there.
    memory.store(RO, &[0; 9]);
    let poll = forward(&memory, Sysno::poll, &[RO, 700]);
    assert_eq!(poll.regions[0].length, 5600);
    memory.words(RW, &[16]);
    let accept = forward(&memory, Sysno::accept, &[3, RO, RW]);
    assert_eq!(accept.regions[1], protected(RO, &[0; 16]));
}

#[test]
fn too_large_goes_home_before_anything_is_read() {
    let memory = pages();
    assert!(goes_home(&memory, Sysno::write, &[1, RW, (32 << 20) + 1]));
    assert!(goes_home(&memory, Sysno::write, &[1, RW, u64::MAX]));
    assert_eq!(memory.longest.get(), 0);
    let mut large = Pages::default();
    large.map(0x100_0000, (33 << 20) / PAGE, true);
    assert!(goes_home(&large, Sysno::read, &[0, 0x100_0000, 33 << 20]));
    let fits = forward(&large, Sysno::read, &[0, 0x100_0000, 32 << 20]);
    assert_eq!(fits.regions[0].length, 32 << 20);
    // Announced as endless, but the guest has only 33 MiB: still too much.
    assert!(goes_home(&large, Sysno::read, &[0, 0x100_0000, 1 << 40]));
}

#[test]
fn reserved_addresses_never_reach_the_deputy() {
    let memory = pages();
    for address in [RESERVED.0, RESERVED.0 - 8, RESERVED.1 - 1] {
        assert!(goes_home(&memory, Sysno::read, &[0, address, 16]));
        assert!(goes_home(
            &memory,
            Sysno::stat,
            &[address.max(RESERVED.0), RW]
        ));
        assert!(goes_home(&memory, Sysno::fstat, &[0, address]));
    }
    assert!(goes_home(&memory, Sysno::ioctl, &[0, 0xdead, RESERVED.0]));
    let beside = forward(&memory, Sysno::read, &[0, RESERVED.1, 16]);
    assert!(beside.regions.is_empty());
}

#[test]
fn paths_are_read_to_their_end() {
    let mut memory = pages();
    memory.store(RW + 10, b"/etc/passwd\0junk");
    let open = forward(&memory, Sysno::openat, &[0xffff_ff9c, RW + 10, 0]);
    assert_eq!(open.regions, [region_in(RW + 10, b"/etc/passwd\0")]);
    // Longer than the first read.
    let long = [b'a'; 1000];
    memory.store(RW + 100, &long);
    let open = forward(&memory, Sysno::open, &[RW + 100]);
    assert_eq!(open.regions[0].length, 1001);
    // Without an end: what the kernel reads before it says ENAMETOOLONG.
    memory.store(RW, &[b'a'; 8192]);
    let endless = forward(&memory, Sysno::open, &[RW]);
    assert_eq!(endless.regions[0].length, 4096);
    assert!(!endless.may_fault);
    // It runs out of the guest's memory: the next page must stay absent.
    memory.store(RW + 4 * PAGE - 4, b"/abc");
    let cut = forward(&memory, Sysno::open, &[RW + 4 * PAGE - 4]);
    assert_eq!((cut.regions[0].length, cut.regions[0].data.len()), (5, 4));
    assert!(cut.may_fault);
    let two = forward(&memory, Sysno::rename, &[RW + 10, NOWHERE]);
    assert_eq!(two.regions.len(), 2);
    assert!(two.regions[1].data.is_empty() && two.may_fault);
}

#[test]
fn the_own_proc_goes_home() {
    let mut memory = pages();
    for (path, home) in [
        ("/proc/self/maps\0", true),
        ("/proc/500/status\0", true),
        ("/proc/501/stat\0", true),
        ("/proc/self/fd/3\0", false),
        ("/proc/self/exe\0", false),
        ("/proc/1/maps\0", false),
    ] {
        memory.store(RW, path.as_bytes());
        assert_eq!(goes_home(&memory, Sysno::open, &[RW]), home, "{path}");
        assert_eq!(
            goes_home(&memory, Sysno::readlinkat, &[0, RW, RW + 99, 9]),
            home
        );
    }
}

#[test]
fn vectors_count_through_their_pieces() {
    let mut memory = pages();
    memory.words(RW, &[RW + 0x100, 10, RW + 0x200, 0, RW + 0x300, 20]);
    let read = forward(&memory, Sysno::readv, &[3, RW, 3]);
    let second = Returned::ByResult { skip: 10 };
    assert_eq!(read.regions.len(), 3);
    assert_eq!(read.regions[0].length, 48);
    assert_eq!(read.regions[1], region_out(RW + 0x100, 10, RESULT));
    assert_eq!(read.regions[2], region_out(RW + 0x300, 20, second));
    assert_eq!(second.bytes(20, 25), 15);
    assert_eq!(second.bytes(20, 5), 0);
    assert_eq!(second.bytes(20, -14), 0);
    let write = forward(&memory, Sysno::pwritev2, &[3, RW, 3, 0, 0, 0]);
    assert_eq!(write.regions.len(), 3);
    // The kernel refuses these before it reads a piece.
    memory.words(RW, &[RW, u64::MAX]);
    assert_eq!(forward(&memory, Sysno::readv, &[3, RW, 1]).regions.len(), 1);
    assert!(
        forward(&memory, Sysno::readv, &[3, RW, 1025])
            .regions
            .is_empty()
    );
    // A piece that cannot be written ends the transfer.
    memory.words(RW, &[RW + 0x100, 10, RO, 10]);
    let ends = forward(&memory, Sysno::readv, &[3, RW, 2]);
    assert_eq!(ends.regions[2].direction, whim_calls::Direction::Protected);
}

#[test]
fn messages_are_followed() {
    let mut memory = pages();
    memory.words(RW + 0x200, &[RW + 0x400, 4, RW + 0x500, 6]);
    memory.words(RW, &[RW + 0x100, 200, RW + 0x200, 2, RW + 0x300, 24, 0]);
    let sent = forward(&memory, Sysno::sendmsg, &[3, RW, 0]);
    let seen: Vec<(u64, u64)> = sent.regions.iter().map(|r| (r.address, r.length)).collect();
    let expected = [
        (RW, 56),
        (RW + 0x100, 128),
        (RW + 0x300, 24),
        (RW + 0x200, 32),
        (RW + 0x400, 4),
        (RW + 0x500, 6),
    ];
    assert_eq!(seen, expected);
    assert!(sent.regions.iter().all(|r| r.direction == Direction::In));
    let received = forward(&memory, Sysno::recvmsg, &[3, RW, 0]);
    let ways: Vec<Direction> = received.regions.iter().map(|r| r.direction).collect();
    use Direction::*;
    assert_eq!(ways, [InOut, InOut, InOut, In, Out, Out]);
    assert_eq!(received.regions[5].returned, Returned::ByResult { skip: 4 });
    assert!(goes_home(&memory, Sysno::sendmsg, &[3, RW, 0x400_0000]));
    memory.words(RW + 40, &[2 << 20]);
    assert!(goes_home(&memory, Sysno::sendmsg, &[3, RW, 0]));
}

#[test]
fn several_messages_are_followed() {
    let mut memory = pages();
    memory.words(RW + 0x200, &[RW + 0x400, 4]);
    let header = [0, 0, RW + 0x200, 1, 0, 0, 0, 0];
    memory.words(RW, &header);
    memory.words(RW + 64, &header);
    let sent = forward(&memory, Sysno::sendmmsg, &[3, RW, 2, 0]);
    assert_eq!(sent.regions.len(), 5);
    assert_eq!(sent.regions[0].length, 128);
    assert_eq!(sent.regions[0].direction, Direction::InOut);
    let received = forward(&memory, Sysno::recvmmsg, &[3, RW, 2, 0, RW + 0x800]);
    // The result counts messages, not bytes, so the pieces travel both ways.
    assert_eq!(received.regions[2].direction, Direction::InOut);
    assert_eq!(received.regions[5].returned, Returned::WholeAlways);
}

#[test]
fn socket_addresses_carry_what_is_there() {
    let mut memory = pages();
    memory.words(RW, &[200]);
    memory.store(RW + 0x100, b"old address");
    let accept = forward(&memory, Sysno::accept4, &[3, RW + 0x100, RW, 0]);
    assert_eq!(accept.regions[0].length, 4);
    let address = &accept.regions[1];
    assert_eq!((address.length, address.direction), (128, Direction::InOut));
    assert_eq!(&address.data[..11], b"old address");
    assert!(
        forward(&memory, Sysno::accept, &[3, 0, RW])
            .regions
            .is_empty()
    );
    let connect = forward(&memory, Sysno::connect, &[3, RW + 0x100, 11]);
    assert_eq!(connect.regions, [region_in(RW + 0x100, b"old address")]);
    let wrong = forward(&memory, Sysno::connect, &[3, RW + 0x100, 0xffff_ffff]);
    assert!(wrong.regions.is_empty());
    let sent = forward(
        &memory,
        Sysno::sendto,
        &[3, RW + 0x100, 3, 0, RW + 0x104, 7],
    );
    assert_eq!(sent.regions[1], region_in(RW + 0x104, b"address"));
}

#[test]
fn socket_options() {
    let mut memory = pages();
    memory.words(RW, &[4]);
    let got = forward(&memory, Sysno::getsockopt, &[3, 1, 4, RW + 0x100, RW]);
    assert_eq!(got.regions[1].length, 4);
    // A filter program is followed.
    memory.words(RW + 0x100, &[2, RW + 0x200]);
    let set = forward(&memory, Sysno::setsockopt, &[3, 1, 26, RW + 0x100, 16]);
    assert_eq!(set.regions[1], region_in(RW + 0x200, &[0; 16]));
    let pointers = [
        (6, 35),
        (0, 64),
        (41, 64),
        (263, 22),
        (284, 4),
        (132, 111),
        (9999, 1),
    ];
    for (level, option) in pointers {
        let arguments = [3, level, option, RW + 0x100, 8];
        assert!(goes_home(&memory, Sysno::setsockopt, &arguments));
    }
    for (level, option) in [(6, 1), (0, 80), (41, 67), (263, 1), (284, 1)] {
        let arguments = [3, level, option, RW + 0x100, 4];
        assert!(!goes_home(&memory, Sysno::setsockopt, &arguments));
    }
}

#[test]
fn waiting_calls_tell_their_time_and_hide_their_mask() {
    let mut memory = pages();
    memory.words(RW, &[0x1234]);
    memory.words(RW + 0x10, &[1, 5]);
    memory.words(RW + 0x20, &[RW, 8]);
    let milliseconds = |index| {
        let format = TimeoutFormat::Milliseconds;
        Some(TimeoutArgument { index, format })
    };
    let spec = |index| {
        let format = TimeoutFormat::Timespec;
        Some(TimeoutArgument { index, format })
    };
    let poll = forward(&memory, Sysno::poll, &[RW + 0x100, 2, 100]);
    assert_eq!(poll.timeout, milliseconds(2));
    let poll = forward(&memory, Sysno::poll, &[RW + 0x100, 2, 0xffff_ffff]);
    assert_eq!((poll.timeout, poll.may_block), (None, true));
    assert_eq!(poll.regions[0].returned, Returned::WholeAlways);
    let ppoll = forward(&memory, Sysno::ppoll, &[RW + 0x100, 2, RW + 0x10, RW, 8]);
    assert_eq!((ppoll.timeout, ppoll.wait_mask), (spec(2), Some(0x1234)));
    assert_eq!(ppoll.args[3], 0);
    let set = [RW + 0x100, RW + 0x180, 0];
    let select = [65, set[0], set[1], set[2], RW + 0x10, RW + 0x20];
    let pselect = forward(&memory, Sysno::pselect6, &select);
    assert_eq!(
        (pselect.timeout, pselect.wait_mask),
        (spec(4), Some(0x1234))
    );
    assert_eq!((pselect.args[5], pselect.regions[0].length), (0, 16));
    let epoll = forward(&memory, Sysno::epoll_pwait, &[3, RW + 0x100, 5, 7, RW, 8]);
    assert_eq!(
        (epoll.timeout, epoll.wait_mask),
        (milliseconds(3), Some(0x1234))
    );
    let events = Returned::ByResultTimes { unit: 12 };
    assert_eq!(epoll.regions, [region_out(RW + 0x100, 60, events)]);
    assert_eq!(events.bytes(60, 2), 24);
    // The kernel itself refuses a mask of another size, when it comes to it.
    let odd = forward(&memory, Sysno::ppoll, &[RW + 0x100, 2, 0, RW, 4]);
    assert_eq!((odd.args[3], odd.wait_mask), (RW, None));
    // A timeout in read-only memory is no error: the kernel does not insist on the rest.
    let constant = forward(&memory, Sysno::ppoll, &[RW + 0x100, 1, RO]);
    assert_eq!(constant.regions[1], region_in(RO, &[0; 16]));
}

#[test]
fn descriptors_and_terminals() {
    let mut memory = pages();
    let lock = forward(&memory, Sysno::fcntl, &[3, 7, RW]);
    assert_eq!(lock.regions, [region_in(RW, &[0; 32])]);
    assert!(lock.may_block);
    assert!(forward(&memory, Sysno::fcntl, &[3, 3]).regions.is_empty());
    assert!(goes_home(&memory, Sysno::fcntl, &[3, 4711, RW]));
    let unknown = forward(&memory, Sysno::fcntl, &[3, 4711, 5]);
    assert!(unknown.regions.is_empty());
    let size = forward(&memory, Sysno::ioctl, &[1, 0x5413, RW]);
    assert_eq!(size.regions, [region_out(RW, 8, Returned::Whole)]);
    let group = forward(&memory, Sysno::ioctl, &[1, 0x5410, RW]);
    assert_eq!(group.regions, [region_in(RW, &[0; 4])]);
    assert!(
        forward(&memory, Sysno::ioctl, &[1, 0x4004_9409, 5])
            .regions
            .is_empty()
    );
    // Unknown: home if it may lead to memory, else harmless.
    assert!(goes_home(&memory, Sysno::ioctl, &[1, 0xdead, RW]));
    assert!(
        forward(&memory, Sysno::ioctl, &[1, 0xdead, 7])
            .regions
            .is_empty()
    );
    memory.words(RW, &[80, RW + 0x100]);
    let interfaces = forward(&memory, Sysno::ioctl, &[1, 0x8912, RW]);
    assert_eq!(interfaces.regions[1].length, 80);
    memory.words(RW + 24, &[3]);
    let extents = forward(&memory, Sysno::ioctl, &[1, 0xc020_660b, RW]);
    assert_eq!(extents.regions[1].length, 3 * 56);
}

#[test]
fn files_and_attributes() {
    let mut memory = pages();
    memory.store(RW, b"/f\0");
    memory.store(RW + 0x10, b"user.a\0");
    let set = forward(&memory, Sysno::setxattr, &[RW, RW + 0x10, RW + 0x20, 3, 0]);
    assert_eq!(set.regions.len(), 3);
    let get = forward(&memory, Sysno::getxattr, &[RW, RW + 0x10, RW + 0x20, 0]);
    assert_eq!(get.regions.len(), 2);
    memory.words(RW + 0x40, &[RW + 0x60, 5]);
    let at = [3, RW, 0, RW + 0x10, RW + 0x40, 16];
    let nested = forward(&memory, Sysno::getxattrat, &at);
    assert_eq!(nested.regions[3], region_out(RW + 0x60, 5, RESULT));
    let entries = forward(&memory, Sysno::getdents64, &[3, RW, 32768]);
    assert_eq!(entries.regions[0].length, 4 * PAGE);
    let sent = forward(&memory, Sysno::sendfile, &[1, 3, RW, 100]);
    let offset = region_both(RW, &memory_bytes(&memory, RW, 8), Returned::WholeAlways);
    assert_eq!(sent.regions, [offset]);
    let empty = forward(&memory, Sysno::newfstatat, &[3, 0, RW, 0x1000]);
    let about = region_both(RW, &memory_bytes(&memory, RW, 144), Returned::WholeAlways);
    assert_eq!(empty.regions, [about]);
    memory.words(RW + 0x80, &[8]);
    let handle = forward(
        &memory,
        Sysno::name_to_handle_at,
        &[3, RW, RW + 0x80, RW + 0xc0, 0],
    );
    let lengths: Vec<u64> = handle.regions.iter().map(|region| region.length).collect();
    assert_eq!(lengths, [3, 8, 8, 4]);
}

fn memory_bytes(memory: &Pages, address: u64, length: usize) -> Vec<u8> {
    use whim_calls::GuestMemory;
    let mut bytes = vec![0; length];
    assert_eq!(memory.read(address, &mut bytes), length);
    bytes
}

#[test]
fn queues_semaphores_and_children() {
    let mut memory = pages();
    let got = forward(&memory, Sysno::msgrcv, &[1, RW, 50, 0, 0]);
    assert_eq!(got.regions[0], region_out(RW, 8, Returned::Whole));
    assert_eq!(got.regions[1], region_out(RW + 8, 50, RESULT));
    let sent = forward(&memory, Sysno::msgsnd, &[1, RW, 50, 0]);
    assert_eq!(sent.regions[0].length, 58);
    let wait = forward(&memory, Sysno::semtimedop, &[1, RW, 2, RW + 0x40]);
    assert_eq!(wait.regions[0].length, 12);
    assert_eq!(wait.timeout.map(|timeout| timeout.index), Some(3));
    // How many values there are only home knows.
    let values = forward(&memory, Sysno::semctl, &[1, 0, 13, RW + 6]);
    let there = memory_bytes(&memory, RW + 6, 4 * 4096 - 6);
    let changed = region_both(RW + 6, &there, Returned::Changed);
    assert_eq!(values.regions, [changed]);
    assert!(values.may_fault);
    assert!(
        forward(&memory, Sysno::semctl, &[1, 0, 16, 7])
            .regions
            .is_empty()
    );
    let child = forward(&memory, Sysno::wait4, &[u64::MAX, RW, 1, 0]);
    let status = Returned::ByResultTimes { unit: 4 };
    assert_eq!(child.regions, [region_out(RW, 4, status)]);
    assert!(!child.may_block);
    // With WNOHANG and no child nothing was written.
    assert_eq!((status.bytes(4, 0), status.bytes(4, 77)), (0, 4));
    let info = forward(&memory, Sysno::waitid, &[0, 0, RW, 4, 0]);
    assert_eq!(info.regions[0].returned, Returned::WholeAlways);
    memory.words(RW, &[RW + 0x100, 2 << 32]);
    let notify = forward(&memory, Sysno::mq_notify, &[3, RW]);
    assert_eq!(notify.regions[1].length, 32);
}

#[test]
fn numbers_without_a_row_and_other_architectures_go_home() {
    let memory = pages();
    for number in [337, 1 << 30, u64::from(u32::MAX), u64::MAX] {
        let call = Syscall {
            number,
            args: [0; 6],
        };
        let decision = resolve(&call, &context(), &memory);
        assert!(matches!(decision, Decision::GoHome(_)), "{number}");
    }
    let foreign = whim_calls::notified(0x4000_0003, 20, [0; 6]);
    assert!(matches!(
        resolve(&foreign, &context(), &memory),
        Decision::GoHome(_)
    ));
    let native = whim_calls::notified(NATIVE, 39, [0; 6]);
    assert_eq!(resolve(&native, &context(), &memory), Decision::Continue);
    let waiting = Syscall {
        number: whim_calls::AWAIT_NUMBER,
        args: [0; 6],
    };
    assert_eq!(
        resolve(&waiting, &context(), &memory),
        Decision::Special(Special::Await)
    );
}
