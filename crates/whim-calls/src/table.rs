//! The table: one row per number, ordered by number.
//!
//! `local` runs natively and is not trapped; `local_but` is trapped for rare arguments, and
//! `memory` where its addresses may touch the reserved range. `forward` lists the arguments up to
//! the last pointer. `nested` is a forward whose buffers a function finds. `decided` and `here`
//! let the arguments decide. `home` is the safety net, and says why.
//!
//! `at_stop`, `time`, `expires` and `short` say what a supervisor has to hide when a stop
//! interrupts the call while it waits; without them the kernel hides the stop itself (see
//! [`crate::stopped`]). `own_mask` and `waits_for_signals` say which signals may interrupt it,
//! `asked` how it is asked for what is ready ([`crate::at_once()`]).
//!
//! `points` stands in the row of each call that runs in the guest and has pointers (see [`crate::touched`]).
//! `opens` and `changes_priority` say what home has to look at when it succeeds, `advises` and `binds` what a guest has
//! to note.

use crate::control::{fcntl, msgctl, semctl};
use crate::decide;
use crate::ioctl::ioctl;
use crate::nested;
use crate::prctl;
use crate::shape::{
    ENDS, Gate, ON_RECEIVE, ON_SEND, PATH, Row, Size, TEXT, V, change_sized, decided, flat,
    forward, get, get_sized, here, home, int, local, local_but, long, long_most, memory, nested,
    put, put_elements, put_sized, receives_all, sends, unsigned,
};
use crate::signal_masks;
use crate::sockopt::{getsockopt, setsockopt};
use crate::stopped::{Asked, AtStop, Buffer, End, Only, Time};
use crate::types::{Direction, Returned};
use syscalls::Sysno;

/// The largest extended attribute, and the largest list of their names.
const XATTR_MAX: u64 = 65536;
const PATH_MAX: u64 = 4096;
/// `struct stat`, `struct statfs`, `struct statx`, `struct itimerspec`, `struct timespec`.
const STAT: u64 = 144;
const STATFS: u64 = 120;
const STATX: u64 = 256;
const ITIMERSPEC: u64 = 32;
const TIMESPEC: u64 = 16;
/// The cpu sets of the largest kernels.
const CPU_SET_MAX: u64 = 1024;
/// More bits than any machine has nodes.
const NODES_MAX: u64 = 4096;
/// Pages of which a call that runs in the guest may be asked.
const PAGES_MAX: u64 = 1 << 20;
/// What `move_pages` reads and writes: addresses, nodes, and where the pages are.
const MOVED: &[(usize, Size)] = &[(2, PAGES_OF), (3, PAGES_OF), (4, PAGES_OF)];
const PAGES_OF: Size = Size::Long {
    index: 1,
    unit: 8,
    most: 8 * PAGES_MAX,
};
/// The longest structures whose size is an argument.
const STRUCTURE_MAX: u64 = 4096;
const SOCKET_ADDRESS_MAX: u64 = 128;
const RW: u64 = crate::shape::MAX_RW_COUNT;

const MOUNTS: &str = "it changes mounts";
const MODULES: &str = "it changes the kernel";
const KEYS: &str = "it uses keyrings";
const MACHINE: &str = "it changes the machine";
const AIO: &str = "it uses asynchronous I/O rings";
const RING: &str = "it uses io_uring";
const SHARED: &str = "it uses System V shared memory";
const CHILD: &str = "it starts a process";
const SPACES: &str = "it changes namespaces";
const OTHERS: &str = "it works on the memory of another process";
const SIGNAL_FD: &str = "it reads signals from a descriptor";
const WITH_SIGNAL_FD: &str = "of signals that a descriptor reads: home";
const GONE: &str = "no kernel implements it";
const EXECUTE: &str = "it executes another program";
const LOCKS: &str = "it locks or unlocks memory, which counts against the limit at home";
const PORTS: &str = "it uses I/O ports";
const KEY: &str = "it uses memory protection keys";
const PROBES: &str = "it uses kernel probes";
const LABELS: &str = "it uses security modules";

/// What calls answer when their time is over.
const AGAIN: i64 = -11;
const TIMED_OUT: i64 = -110;
const IN_PROGRESS: i64 = -115;
/// The command of `futex` whose timeout is relative.
const FUTEX_WAIT: Only = Only {
    index: 1,
    mask: 0x7f,
    value: 0,
};
/// Without TIMER_ABSTIME.
const NOT_ABSOLUTE: Only = Only {
    index: 1,
    mask: 1,
    value: 0,
};

const OFFSET: crate::shape::Argument =
    crate::shape::Argument::Buffer(Size::Bytes(8), Direction::InOut, Returned::WholeAlways);

macro_rules! table {
    ($($name:ident => $row:expr;)*) => {
        /// Every row.
        pub(crate) static TABLE: &[Row] = &[$(Row {
            number: syscalls::Sysno::$name as u64,
            name: stringify!($name),
            ..$row
        }),*];
    };
}

table! {
    read => forward(&[V, put_sized(long(2))]).waits()
        .at_stop(ON_RECEIVE).short(End::RandomDevice, flat(1, 2), Sysno::read);
    write => forward(&[V, get_sized(long(2))]).waits()
        .at_stop(ON_SEND).short(End::Stream, flat(1, 2), Sysno::write);
    open => forward(&[PATH]).waits().opens();
    close => forward(&[]);
    stat => forward(&[PATH, put(STAT)]);
    fstat => forward(&[V, put(STAT)]);
    lstat => forward(&[PATH, put(STAT)]);
    poll => nested(nested::poll, "array of pollfd").waits();
    lseek => forward(&[]);
    mmap => here(decide::mmap, "anonymous: local; private file: from the attic; shared: home")
        .gate(Gate::Map);
    mprotect => local_but(decide::mprotect, "a right that the file there may not give: home")
        .gate(Gate::Protect);
    munmap => memory(&[0], &[1]);
    brk => local_but(decide::brk, "with MCL_FUTURE: home").gate(Gate::Break);
    rt_sigaction => here(decide::rt_sigaction, "a new action is mirrored at home, then local")
        .gate(Gate::AllowNull { index: 1 })
        .points(&[]);
    rt_sigprocmask => local_but(signal_masks::rt_sigprocmask, WITH_SIGNAL_FD).gate(Gate::Allow)
        .points(&[]);
    rt_sigreturn => local();
    ioctl => nested(ioctl, "by request; unknown ones with a pointer: home");
    pread64 => forward(&[V, put_sized(long(2))]);
    pwrite64 => forward(&[V, get_sized(long(2))]);
    readv => nested(nested::readv, "iovec array and its pieces").waits()
        .at_stop(ON_RECEIVE);
    writev => nested(nested::writev, "iovec array and its pieces").waits()
        .at_stop(ON_SEND).short(End::Stream, Buffer::Vector { address: 1, count: 2 }, Sysno::write);
    access => forward(&[PATH]);
    pipe => forward(&[put(8)]);
    select => nested(nested::select, "three descriptor sets, timeval").waits();
    sched_yield => local();
    mremap => local_but(decide::mremap, "file made longer, or left where it was: from the attic")
        .gate(Gate::Remap);
    msync => memory(&[0], &[1]).note("nothing in a guest is shared");
    mincore => memory(&[0], &[1])
        .points(&[(2, Size::BytePerPage { index: 1, most: PAGES_MAX })]);
    madvise => local_but(decide::madvise, "merging of equal pages: home; on files: as home answers")
        .gate(Gate::Advice { trapped: decide::ADVICE_TRAPPED })
        .advises();
    shmget => home(SHARED);
    shmat => home(SHARED);
    shmctl => home(SHARED);
    dup => forward(&[]);
    dup2 => forward(&[]);
    pause => local();
    nanosleep => local()
        .time(Time::Timespec(0), 0).rest(1)
        .points(&[]);
    getitimer => decided(decide::getitimer, "ITIMER_REAL: forwarded; others: local")
        .gate(Gate::TrapIf { index: 0, values: &[0], negative: false })
        .points(&[]);
    alarm => forward(&[]);
    setitimer => decided(decide::setitimer, "ITIMER_REAL: forwarded; others: local")
        .gate(Gate::TrapIf { index: 0, values: &[0], negative: false })
        .points(&[]);
    getpid => local();
    sendfile => forward(&[V, V, OFFSET]).waits()
        .at_stop(ON_SEND).short(End::Socket, Buffer::Count(3), Sysno::sendfile);
    socket => forward(&[]);
    connect => forward(&[V, get_sized(int(2, 1, SOCKET_ADDRESS_MAX))]).waits()
        .at_stop(ON_SEND).expires(IN_PROGRESS);
    accept => nested(nested::accept, "address and its length").waits()
        .at_stop(ON_RECEIVE);
    sendto => nested(nested::sendto, "buffer, address; MSG_ZEROCOPY: home").waits()
        .at_stop(ON_SEND).short(End::Stream, flat(1, 2), Sysno::sendto).waits_if(sends(3));
    recvfrom => nested(nested::recvfrom, "buffer, address and its length").waits()
        .at_stop(ON_RECEIVE).short(End::Socket, flat(1, 2), Sysno::recvfrom).waits_if(receives_all(3));
    sendmsg => nested(nested::sendmsg, "header, address, control data, pieces; MSG_ZEROCOPY: home")
        .waits()
        .at_stop(ON_SEND).short(End::Stream, Buffer::Message { address: 1 }, Sysno::sendto).waits_if(sends(2));
    recvmsg => nested(nested::recvmsg, "header, address, control data, pieces").waits()
        .at_stop(ON_RECEIVE).short(End::Socket, Buffer::Message { address: 1 }, Sysno::recvfrom).waits_if(receives_all(2));
    shutdown => forward(&[]);
    bind => forward(&[V, get_sized(int(2, 1, SOCKET_ADDRESS_MAX))]);
    listen => forward(&[]);
    getsockname => nested(nested::socket_name, "address and its length");
    getpeername => nested(nested::socket_name, "address and its length");
    socketpair => forward(&[V, V, V, put(8)]);
    setsockopt => nested(setsockopt, "flat options and socket filters; others: home");
    getsockopt => nested(getsockopt, "flat options; others: home");
    clone => here(decide::clone, "a thread is made here and at home; a process: home")
        .waits_for_child();
    fork => home(CHILD);
    vfork => home(CHILD)
        .waits_for_child();
    execve => home(EXECUTE);
    exit => here(decide::exit, "the thread ends on both sides");
    wait4 => nested(nested::wait4, "status, rusage").waits();
    kill => decided(decide::kill, "own process: carried; else forwarded").signals();
    uname => forward(&[put(390)]);
    semget => forward(&[]);
    semop => forward(&[V, get_sized(unsigned(2, 6, 6 << 16))]).waits()
        .at_stop(ENDS);
    semctl => nested(semctl, "by command");
    shmdt => home(SHARED);
    msgget => forward(&[]);
    msgsnd => nested(nested::msgsnd, "type and text").waits();
    msgrcv => nested(nested::msgrcv, "type and text").waits();
    msgctl => nested(msgctl, "by command");
    fcntl => nested(fcntl, "by command");
    flock => forward(&[]).waits();
    fsync => forward(&[]).waits();
    fdatasync => forward(&[]).waits();
    truncate => forward(&[PATH]);
    ftruncate => forward(&[]);
    getdents => forward(&[V, put_sized(unsigned(2, 1, RW))]);
    getcwd => forward(&[put_sized(long_most(1, PATH_MAX))]);
    chdir => forward(&[PATH]);
    fchdir => forward(&[]);
    rename => forward(&[PATH, PATH]);
    mkdir => forward(&[PATH]);
    rmdir => forward(&[PATH]);
    creat => forward(&[PATH]).waits().opens();
    link => forward(&[PATH, PATH]);
    unlink => forward(&[PATH]);
    symlink => forward(&[TEXT, PATH]);
    readlink => forward(&[PATH, put_sized(int(2, 1, PATH_MAX))]);
    chmod => forward(&[PATH]);
    fchmod => forward(&[]);
    chown => forward(&[PATH]);
    fchown => forward(&[]);
    lchown => forward(&[PATH]);
    umask => forward(&[]);
    gettimeofday => local().points(&[]);
    getrlimit => decided(decide::getrlimit, "2: out 16 bytes; of its own memory: the program's");
    getrusage => decided(decide::getrusage, "own: both sides are added; children: forwarded");
    sysinfo => forward(&[put(112)]);
    times => decided(decide::times, "both sides are added");
    ptrace => home("it traces another process");
    getuid => forward(&[]);
    syslog => nested(nested::syslog, "buffer, when it reads");
    getgid => forward(&[]);
    setuid => forward(&[]);
    setgid => forward(&[]);
    geteuid => forward(&[]);
    getegid => forward(&[]);
    setpgid => forward(&[]);
    getppid => forward(&[]);
    getpgrp => forward(&[]);
    setsid => forward(&[]);
    setreuid => forward(&[]);
    setregid => forward(&[]);
    getgroups => forward(&[V, put_elements(int(0, 4, RW), 4)]);
    setgroups => forward(&[V, get_sized(int(0, 4, 4 << 16))]);
    setresuid => forward(&[]);
    getresuid => forward(&[put(4), put(4), put(4)]);
    setresgid => forward(&[]);
    getresgid => forward(&[put(4), put(4), put(4)]);
    getpgid => forward(&[]);
    setfsuid => forward(&[]);
    setfsgid => forward(&[]);
    getsid => forward(&[]);
    capget => nested(nested::capabilities, "header, sets");
    capset => nested(nested::capabilities, "header, sets");
    rt_sigpending => local_but(signal_masks::rt_sigpending, WITH_SIGNAL_FD).gate(Gate::Allow)
        .points(&[]);
    rt_sigtimedwait => local_but(signal_masks::rt_sigtimedwait, WITH_SIGNAL_FD).gate(Gate::Allow)
        .at_stop(ENDS).time(Time::Timespec(2), AGAIN)
        .points(&[])
        .waits_for_signals();
    rt_sigqueueinfo => decided(decide::rt_sigqueueinfo, "own process: carried; else forwarded").signals();
    rt_sigsuspend => local_but(signal_masks::rt_sigsuspend, WITH_SIGNAL_FD).gate(Gate::Allow)
        .points(&[])
        .waits_for_signals();
    sigaltstack => local().points(&[]);
    utime => forward(&[PATH, get(16)]);
    mknod => forward(&[PATH]);
    uselib => local().note(GONE);
    personality => decided(decide::personality, "asking: forwarded; changing: home");
    ustat => forward(&[V, put(32)]);
    statfs => forward(&[PATH, put(STATFS)]);
    fstatfs => forward(&[V, put(STATFS)]);
    sysfs => home("it is obsolete");
    getpriority => forward(&[]);
    setpriority => forward(&[]).changes_priority();
    sched_setparam => forward(&[V, get(4)]).changes_priority();
    sched_getparam => forward(&[V, put(4)]);
    sched_setscheduler => decided(decide::sched_setscheduler, "real-time: home; else forwarded").changes_priority();
    sched_getscheduler => forward(&[]);
    sched_get_priority_max => local();
    sched_get_priority_min => local();
    sched_rr_get_interval => forward(&[V, put(TIMESPEC)]);
    mlock => home(LOCKS);
    munlock => home(LOCKS);
    mlockall => home(LOCKS);
    munlockall => home(LOCKS);
    vhangup => home(MACHINE);
    modify_ldt => home("it changes segment descriptors");
    pivot_root => home(MOUNTS);
    _sysctl => local().note(GONE);
    prctl => decided(prctl::decide, "by option: local, forwarded, both or home (see below)")
        .gate(Gate::AllowIf { index: 0, values: prctl::PRCTL_HERE })
        .points(&[]);
    arch_prctl => here(prctl::decide_arch, "by option: local or home (see below)")
        .gate(Gate::AllowIf { index: 0, values: prctl::ARCH_PRCTL_HERE })
        .points(&[]);
    adjtimex => decided(decide::adjtimex, "asking: forwarded; setting: home");
    setrlimit => decided(decide::setrlimit, "limits on memory or CPU time: home; else forwarded");
    chroot => forward(&[PATH]);
    sync => forward(&[]).waits();
    acct => home(MACHINE);
    settimeofday => home("it sets the clock");
    mount => home(MOUNTS);
    umount2 => home(MOUNTS);
    swapon => home(MACHINE);
    swapoff => home(MACHINE);
    reboot => home(MACHINE);
    sethostname => home(MACHINE);
    setdomainname => home(MACHINE);
    iopl => home(PORTS);
    ioperm => home(PORTS);
    create_module => local().note(GONE);
    init_module => home(MODULES);
    delete_module => home(MODULES);
    get_kernel_syms => local().note(GONE);
    query_module => local().note(GONE);
    quotactl => home(MACHINE);
    nfsservctl => local().note(GONE);
    getpmsg => local().note(GONE);
    putpmsg => local().note(GONE);
    afs_syscall => local().note(GONE);
    tuxcall => local().note(GONE);
    security => local().note(GONE);
    gettid => local();
    readahead => forward(&[]);
    setxattr => forward(&[PATH, TEXT, get_sized(long_most(3, XATTR_MAX))]);
    lsetxattr => forward(&[PATH, TEXT, get_sized(long_most(3, XATTR_MAX))]);
    fsetxattr => forward(&[V, TEXT, get_sized(long_most(3, XATTR_MAX))]);
    getxattr => forward(&[PATH, TEXT, put_sized(long_most(3, XATTR_MAX))]);
    lgetxattr => forward(&[PATH, TEXT, put_sized(long_most(3, XATTR_MAX))]);
    fgetxattr => forward(&[V, TEXT, put_sized(long_most(3, XATTR_MAX))]);
    listxattr => forward(&[PATH, put_sized(long_most(2, XATTR_MAX))]);
    llistxattr => forward(&[PATH, put_sized(long_most(2, XATTR_MAX))]);
    flistxattr => forward(&[V, put_sized(long_most(2, XATTR_MAX))]);
    removexattr => forward(&[PATH, TEXT]);
    lremovexattr => forward(&[PATH, TEXT]);
    fremovexattr => forward(&[V, TEXT]);
    tkill => decided(decide::tkill, "own thread: carried; others: forwarded").signals();
    time => local().points(&[]);
    futex => local_but(decide::futex, "a lock that another process holds: home")
        .gate(Gate::TrapIf { index: 1, values: decide::FUTEX_TRAPPED, negative: false })
        .at_stop(AtStop::GoesOnHere).time(Time::Timespec(3), TIMED_OUT).relative_if(FUTEX_WAIT).restarts_here()
        .ends_for_nothing()
        .points(&[]);
    sched_setaffinity => forward(&[V, V, get_sized(unsigned(1, 1, CPU_SET_MAX))]);
    sched_getaffinity => forward(&[V, V, put_sized(unsigned(1, 1, CPU_SET_MAX))]);
    set_thread_area => local().note(GONE);
    io_setup => home(AIO);
    io_destroy => home(AIO);
    io_getevents => home(AIO)
        .at_stop(ENDS).time(Time::Timespec(4), 0);
    io_submit => home(AIO);
    io_cancel => home(AIO);
    get_thread_area => local().note(GONE);
    lookup_dcookie => home("it is obsolete");
    epoll_create => forward(&[]);
    epoll_ctl_old => local().note(GONE);
    epoll_wait_old => local().note(GONE);
    remap_file_pages => home("it maps a file as shared");
    getdents64 => forward(&[V, put_sized(unsigned(2, 1, RW))]);
    set_tid_address => local();
    restart_syscall => local();
    semtimedop => nested(nested::semtimedop, "operations, timespec").waits()
        .at_stop(ENDS).time(Time::Timespec(3), AGAIN);
    fadvise64 => forward(&[]);
    timer_create => decided(decide::timer_create, "sigevent, id; CPU clocks: home");
    timer_settime => forward(&[V, V, get(ITIMERSPEC), put(ITIMERSPEC)]);
    timer_gettime => forward(&[V, put(ITIMERSPEC)]);
    timer_getoverrun => forward(&[]);
    timer_delete => forward(&[]);
    clock_settime => home("it sets the clock");
    clock_gettime => decided(decide::clock_gettime, "CPU clocks: both sides are added; else local")
        .gate(Gate::TrapIf { index: 0, values: &[2, 3], negative: true })
        .points(&[]);
    clock_getres => decided(decide::clock_getres, "behind descriptors: forwarded; else local")
        .gate(Gate::TrapIf { index: 0, values: &[], negative: true })
        .points(&[]);
    clock_nanosleep => local_but(decide::clock_nanosleep, "goes home for CPU and alarm clocks")
        .gate(Gate::TrapIf { index: 0, values: &[2, 3, 8, 9], negative: true })
        .time(Time::Timespec(2), 0).relative_if(NOT_ABSOLUTE).rest(3)
        .points(&[]);
    exit_group => here(decide::exit_group, "the process ends on both sides, acknowledged");
    epoll_wait => nested(nested::epoll_wait, "events").waits()
        .at_stop(ENDS).time(Time::Milliseconds(3), 0);
    epoll_ctl => nested(nested::epoll_ctl, "event, unless it deletes");
    tgkill => decided(decide::tgkill, "own process: carried; else forwarded").signals();
    utimes => forward(&[PATH, get(32)]);
    vserver => local().note(GONE);
    mbind => here(decide::mbind, "names other memory nodes than the first, or moves what others have as well: home; else local")
        .points(&[(3, long_most(4, NODES_MAX))])
        .binds();
    set_mempolicy => here(decide::set_mempolicy, "names other memory nodes than the first: home; else local")
        .gate(Gate::AllowNull { index: 1 })
        .points(&[]);
    get_mempolicy => decided(decide::get_mempolicy, "nodes that it may use: forwarded; else local")
        .gate(Gate::TrapIf { index: 4, values: &[decide::NODES_ALLOWED], negative: false })
        .points(&[]);
    mq_open => nested(nested::mq_open, "name, attributes when it creates");
    mq_unlink => forward(&[TEXT]);
    mq_timedsend => forward(&[V, get_sized(long(2)), V, V, get(TIMESPEC)]).waits().signals();
    mq_timedreceive => forward(&[V, put_sized(long(2)), V, put(4), get(TIMESPEC)])
        .waits();
    mq_notify => nested(nested::mq_notify, "sigevent, cookie").signals();
    mq_getsetattr => forward(&[V, get(64), put(64)]);
    kexec_load => home(MODULES);
    waitid => nested(nested::waitid, "siginfo, rusage").waits();
    add_key => home(KEYS);
    request_key => home(KEYS);
    keyctl => home(KEYS);
    ioprio_set => forward(&[]);
    ioprio_get => forward(&[]);
    inotify_init => forward(&[]);
    inotify_add_watch => forward(&[V, PATH]);
    inotify_rm_watch => forward(&[]);
    migrate_pages => here(decide::own_here_else_home, "own pages: local; others: home")
        .gate(Gate::AllowIf { index: 0, values: &[0] })
        .points(&[(2, long_most(1, NODES_MAX)), (3, long_most(1, NODES_MAX))]);
    openat => forward(&[V, PATH]).waits().opens();
    mkdirat => forward(&[V, PATH]);
    mknodat => forward(&[V, PATH]);
    fchownat => forward(&[V, PATH]);
    futimesat => forward(&[V, PATH, get(32)]);
    newfstatat => forward(&[V, PATH, put(STAT)]);
    unlinkat => forward(&[V, PATH]);
    renameat => forward(&[V, PATH, V, PATH]);
    linkat => forward(&[V, PATH, V, PATH]);
    symlinkat => forward(&[TEXT, V, PATH]);
    readlinkat => forward(&[V, PATH, put_sized(int(3, 1, PATH_MAX))]);
    fchmodat => forward(&[V, PATH]);
    faccessat => forward(&[V, PATH]);
    pselect6 => nested(nested::pselect6, "three descriptor sets, timespec; the mask acts here")
        .waits()
        .own_mask(5).asked(Asked::Select);
    ppoll => nested(nested::ppoll, "array of pollfd, timespec; the mask acts here").waits()
        .own_mask(3).asked(Asked::Poll);
    unshare => home(SPACES);
    set_robust_list => local();
    get_robust_list => decided(decide::get_robust_list, "own thread: local; others: forwarded")
        .gate(Gate::AllowIf { index: 0, values: &[0] })
        .points(&[]);
    splice => forward(&[V, OFFSET, V, OFFSET]).waits();
    tee => forward(&[]).waits();
    sync_file_range => forward(&[]).waits();
    vmsplice => home("it lends pages to a pipe");
    move_pages => here(decide::move_pages, "own pages: local; others, also those that others have as well: home")
        .points(MOVED);
    utimensat => forward(&[V, PATH, get(32)]);
    epoll_pwait => nested(nested::epoll_pwait, "events; the mask acts here").waits()
        .at_stop(ENDS).time(Time::Milliseconds(3), 0)
        .own_mask(4).asked(Asked::Epoll);
    signalfd => home(SIGNAL_FD);
    timerfd_create => forward(&[]);
    eventfd => forward(&[]);
    fallocate => forward(&[]).waits();
    timerfd_settime => forward(&[V, V, get(ITIMERSPEC), put(ITIMERSPEC)]);
    timerfd_gettime => forward(&[V, put(ITIMERSPEC)]);
    accept4 => nested(nested::accept, "address and its length").waits()
        .at_stop(ON_RECEIVE);
    signalfd4 => home(SIGNAL_FD);
    eventfd2 => forward(&[]);
    epoll_create1 => forward(&[]);
    dup3 => forward(&[]);
    pipe2 => forward(&[put(8)]);
    inotify_init1 => forward(&[]);
    preadv => nested(nested::readv, "iovec array and its pieces");
    pwritev => nested(nested::writev, "iovec array and its pieces");
    rt_tgsigqueueinfo => decided(decide::rt_tgsigqueueinfo, "own process: carried; else forwarded").signals();
    perf_event_open => home("it measures with hardware counters");
    recvmmsg => nested(nested::recvmmsg, "headers, addresses, control data, pieces, timespec")
        .waits()
        .at_stop(ON_RECEIVE).time(Time::Timespec(4), AGAIN);
    fanotify_init => forward(&[]);
    fanotify_mark => forward(&[V, V, V, V, PATH]);
    prlimit64 => decided(decide::prlimit64, "own memory and CPU limits: home; else forwarded");
    name_to_handle_at => nested(nested::name_to_handle_at, "path, handle, mount id");
    open_by_handle_at => nested(nested::open_by_handle_at, "handle").waits().opens();
    clock_adjtime => decided(decide::clock_adjtime, "asking: forwarded; setting: home");
    syncfs => forward(&[]).waits();
    sendmmsg => nested(nested::sendmmsg, "headers, addresses, control data, pieces").waits()
        .at_stop(ON_SEND);
    setns => home(SPACES);
    getcpu => local().points(&[]);
    process_vm_readv => home(OTHERS);
    process_vm_writev => home(OTHERS);
    kcmp => nested(nested::kcmp, "epoll target");
    finit_module => home(MODULES);
    sched_setattr => decided(decide::sched_setattr, "attributes; real-time: home").changes_priority();
    sched_getattr => forward(&[V, change_sized(unsigned(2, 1, STRUCTURE_MAX))]);
    renameat2 => forward(&[V, PATH, V, PATH]);
    seccomp => home("it installs a seccomp filter");
    getrandom => local()
        .short(End::Random, flat(0, 1), Sysno::getrandom)
        .points(&[(0, long_most(1, PAGES_MAX))]);
    memfd_create => forward(&[TEXT]);
    kexec_file_load => home(MODULES);
    bpf => home("it uses BPF");
    execveat => home(EXECUTE);
    userfaultfd => home("it handles its own page faults");
    membarrier => local();
    mlock2 => home(LOCKS);
    copy_file_range => forward(&[V, OFFSET, V, OFFSET]).waits();
    preadv2 => nested(nested::readv, "iovec array and its pieces").waits();
    pwritev2 => nested(nested::writev, "iovec array and its pieces").waits();
    pkey_mprotect => here(decide::pkey_mprotect, "with a key: home; else as mprotect");
    pkey_alloc => home(KEY);
    pkey_free => home(KEY);
    statx => forward(&[V, PATH, V, V, put(STATX)]);
    io_pgetevents => home(AIO)
        .at_stop(AtStop::WaitsAnew).time(Time::Timespec(4), 0);
    rseq => local().points(&[]);
    uretprobe => home(PROBES);
    uprobe => home(PROBES);
    pidfd_send_signal => decided(decide::pidfd_send_signal, "with a siginfo, and not to a group: home").signals();
    io_uring_setup => home(RING);
    io_uring_enter => home(RING);
    io_uring_register => home(RING);
    open_tree => home(MOUNTS);
    move_mount => home(MOUNTS);
    fsopen => home(MOUNTS);
    fsconfig => home(MOUNTS);
    fsmount => home(MOUNTS);
    fspick => home(MOUNTS);
    pidfd_open => forward(&[]);
    clone3 => here(decide::clone3, "a thread is made here and at home; a process: home")
        .waits_for_child();
    close_range => decided(decide::close_range, "forwarded; CLOSE_RANGE_UNSHARE: home");
    openat2 => forward(&[V, PATH, get_sized(long_most(3, STRUCTURE_MAX))]).waits().opens();
    pidfd_getfd => home("it takes a descriptor of another process");
    faccessat2 => forward(&[V, PATH]);
    process_madvise => home(OTHERS);
    epoll_pwait2 => nested(nested::epoll_pwait2, "events, timespec; the mask acts here")
        .waits()
        .at_stop(ENDS).time(Time::Timespec(3), 0)
        .own_mask(4).asked(Asked::EpollByTimespec);
    mount_setattr => home(MOUNTS);
    quotactl_fd => home(MACHINE);
    landlock_create_ruleset => forward(&[get_sized(long_most(1, STRUCTURE_MAX))]);
    landlock_add_rule => forward(&[V, V, get(16)]);
    landlock_restrict_self => forward(&[]);
    memfd_secret => home("it makes secret memory");
    process_mrelease => home(OTHERS);
    futex_waitv => local()
        .restarts_here()
        .points_to_waiters();
    set_mempolicy_home_node => memory(&[0], &[1]);
    cachestat => forward(&[V, get(16), put(40)]);
    fchmodat2 => forward(&[V, PATH]);
    map_shadow_stack => home("it uses a shadow stack");
    futex_wake => local().points(&[]);
    futex_wait => local()
        .restarts_here()
        .points(&[]);
    futex_requeue => local().points(&[]);
    statmount => nested(nested::statmount, "request, buffer");
    listmount => nested(nested::listmount, "request, ids");
    lsm_get_self_attr => home(LABELS);
    lsm_set_self_attr => home(LABELS);
    lsm_list_modules => home(LABELS);
    mseal => home("it seals memory, which can then not be moved");
    setxattrat => nested(nested::setxattrat, "path, name, value");
    getxattrat => nested(nested::getxattrat, "path, name, value");
    listxattrat => forward(&[V, PATH, V, put_sized(long_most(4, XATTR_MAX))]);
    removexattrat => forward(&[V, PATH, V, TEXT]);
    open_tree_attr => home(MOUNTS);
    file_getattr => forward(&[V, PATH, change_sized(long_most(3, STRUCTURE_MAX))]);
    file_setattr => forward(&[V, PATH, get_sized(long_most(3, STRUCTURE_MAX))]);
}
