/* Conformance: descriptors, pipes, waiting for many of them, queues and semaphores. */
#include "common.h"
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/timerfd.h>

static int ends[2] = {-1, -1}, more[2] = {-1, -1}, file = -1;

static void open_pipes(void)
{
    for (int i = 0; i < 2; i++)
        close(ends[i]), close(more[i]);
    close(file);
    need(pipe(ends) == 0 && pipe2(more, O_NONBLOCK) == 0, "pipe");
    file = open("file", O_RDWR | O_CREAT, 0644);
    need(write(file, "0123456789", 10) == 10, "write");
}

static void drain(int fd)
{
    char bytes[70000];
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
    fcntl(fd, F_SETFL, flags);
}

static void fill(void)
{
    drain(ends[0]), drain(more[0]);
    need(write(ends[1], "in the pipe", 11) == 11, "write");
}

static void full(void)
{
    static char bytes[70000];
    drain(more[0]);
    while (write(more[1], bytes, sizeof bytes) > 0)
        ;
}

static void drained(void) { drain(ends[0]); }

static void interrupt_soon(void)
{
    drain(ends[0]);
    alarm_in(20);
}

/* What the pipe holds now. */
static void tell_pipe(long result)
{
    char bytes[4096];
    int flags = fcntl(ends[0], F_GETFL);
    fcntl(ends[0], F_SETFL, flags | O_NONBLOCK);
    long count = read(ends[0], bytes, sizeof bytes);
    fcntl(ends[0], F_SETFL, flags);
    tell("  pipe: %ld %.*s\n", count, count > 0 && count < 40 ? (int)count : 0, bytes);
    (void)result;
}

CASE(pipes, "pipe pipe2 dup dup2 dup3 close_range", open_pipes)
{
    static char text[8000] = "text";
    TRY(pipe, .b = {O(8)}, .flags = STARTS);
    TRY(pipe2, .b = {O(8), V(O_CLOEXEC | O_NONBLOCK)}, .flags = STARTS);
    TRY(pipe2, .note = "flags", .b = {O(8), V(-1)}, .flags = STARTS);
    TRY(read, .note = "pipe", .b = {V(ends[0]), O(100), V(100)}, .before = fill, .after = tell_pipe);
    TRY(read, .note = "part", .b = {V(ends[0]), O(4), V(4)}, .before = fill, .after = tell_pipe);
    TRY(readv, .note = "pipe", .b = {V(ends[0]), IL(0, 3, 0, 20), V(2), [6] = O(3), O(20)},
        .r = {{1, 0, 6}, {1, 16, 7}}, .before = fill, .after = tell_pipe);
    TRY(write, .note = "pipe", .b = {V(ends[1]), I("twelve bytes", 12), V(12)}, .after = tell_pipe);
    TRY(write, .note = "large", .b = {V(ends[1]), I(text, 8000), V(8000)}, .after = tell_pipe);
    TRY(writev, .note = "pipe", .b = {V(ends[1]), IL(0, 3, 0, 20), V(2), [6] = I(text, 3), I(text, 20)},
        .r = {{1, 0, 6}, {1, 16, 7}}, .before = fill, .after = tell_pipe);
    TRY(read, .note = "again", .b = {V(more[0]), O(10), V(10)}, .before = fill);
    TRY(write, .note = "again", .b = {V(more[1]), I(text, 8000), V(8000)}, .before = full);
    TRY(read, .note = "interrupted", .b = {V(ends[0]), O(10), V(10)}, .before = interrupt_soon,
        .flags = ONCE);
    TRY(lseek, .note = "pipe", .b = {V(ends[0]), V(0), V(0)});
    int broken[2];
    need(pipe(broken) == 0, "pipe");
    close(broken[0]);
    TRY(write, .note = "broken", .b = {V(broken[1]), I("x", 1), V(1)});
    close(broken[1]);
    TRY(ioctl, .note = "FIONREAD", .b = {V(ends[0]), V(FIONREAD), O(4)}, .before = fill);
    TRY(fcntl, .note = "GETPIPE_SZ", .b = {V(ends[0]), V(F_GETPIPE_SZ)});
    TRY(fcntl, .note = "SETPIPE_SZ", .b = {V(ends[0]), V(F_SETPIPE_SZ), V(8192)});
    TRY(dup, .b = {V(ends[0])}, .flags = CLOSES);
    TRY(dup, .note = "closed", .b = {V(99)});
    TRY(dup2, .b = {V(ends[0]), V(50)});
    TRY(dup2, .note = "same", .b = {V(ends[0]), V(ends[0])});
    TRY(dup2, .note = "limit", .b = {V(ends[0]), V(1 << 29)});
    TRY(dup3, .b = {V(ends[0]), V(51), V(O_CLOEXEC)});
    TRY(dup3, .note = "same", .b = {V(ends[0]), V(ends[0]), V(0)});
    TRY(close_range, .b = {V(50), V(60), V(0)});
    TRY(close_range, .note = "wrong", .b = {V(60), V(50), V(0)});
    TRY(close_range, .note = "flags", .b = {V(50), V(60), V(64)});
}

CASE(polling, "poll ppoll select pselect6", open_pipes)
{
    struct pollfd fds[] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {99, POLLIN, 0}, {-1, POLLIN, 0}};
    long second[] = {1, 0}, little[] = {0, 1000000}, micro[] = {0, 1000}, odd[] = {0, -5};
    uint64_t mask = 1ul << (SIGUSR1 - 1);
    TRY(poll, .b = {C(fds, sizeof fds), V(4), V(-1)}, .before = fill);
    TRY(poll, .note = "none", .b = {C(fds, 8), V(1), V(5)}, .before = full, .flags = ONCE);
    TRY(poll, .note = "empty", .b = {V(0), V(0), V(1)});
    TRY(poll, .note = "many", .b = {C(fds, sizeof fds), V(-1), V(0)});
    TRY(poll, .note = "interrupted", .b = {C(fds, 8), V(1), V(-1)}, .before = interrupt_soon, .flags = ONCE);
    TRY(ppoll, .b = {C(fds, sizeof fds), V(4), CH(second, 16, "0+16"), I(&mask, 8), V(8)}, .before = fill);
    TRY(ppoll, .note = "time", .b = {C(fds, 8), V(1), CH(little, 16, "0+16"), V(0), V(8)},
        .before = drained, .flags = ONCE);
    TRY(ppoll, .note = "odd_time", .b = {C(fds, 8), V(1), C(odd, 16), V(0), V(8)}, .before = fill);
    TRY(ppoll, .note = "odd_mask", .b = {C(fds, 8), V(1), CH(second, 16, "0+16"), I(&mask, 8), V(4)},
        .before = fill);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    fd_set out;
    FD_ZERO(&out);
    FD_SET(ends[1], &out);
    TRY(select, .b = {V(64), C(&set, 8), C(&out, 8), C(&out, 8), CH(second, 16, "0+16")}, .before = fill);
    TRY(select, .note = "wide", .b = {V(1000), C(&set, 128), C(&out, 128), V(0), CH(second, 16, "0+16")},
        .before = fill);
    TRY(select, .note = "time", .b = {V(64), C(&set, 8), V(0), V(0), CH(micro, 16, "0+16")},
        .before = drained, .flags = ONCE);
    TRY(select, .note = "negative", .b = {V(-1), C(&set, 8), V(0), V(0), CH(micro, 16, "0+16")});
    fd_set closed;
    FD_ZERO(&closed);
    FD_SET(60, &closed);
    TRY(select, .note = "closed", .b = {V(64), C(&closed, 8), V(0), V(0), CH(micro, 16, "0+16")});
    TRY(pselect6, .b = {V(64), C(&set, 8), C(&out, 8), V(0), CH(second, 16, "0+16"), IL(0, 8), [6] = I(&mask, 8)},
        .r = {{5, 0, 6}}, .before = fill);
    TRY(pselect6, .note = "odd_mask", .b = {V(64), C(&set, 8), V(0), V(0), CH(second, 16, "0+16"), IL(0, 5), [6] = I(&mask, 8)},
        .r = {{5, 0, 6}}, .before = fill);
    TRY(pselect6, .note = "interrupted", .b = {V(64), C(&set, 8), V(0), V(0), V(0), V(0)},
        .before = interrupt_soon, .flags = ONCE);
}

static int epoll = -1;
static void open_epoll(void)
{
    open_pipes();
    close(epoll);
    epoll = epoll_create1(0);
}

static void watch(void)
{
    struct epoll_event event = {EPOLLIN, {.u64 = 0x1122334455667788}};
    fill();
    RAW(epoll_ctl, epoll, EPOLL_CTL_DEL, ends[0], 0, 0, 0);
    RAW(epoll_ctl, epoll, EPOLL_CTL_DEL, ends[1], 0, 0, 0);
    RAW(epoll_ctl, epoll, EPOLL_CTL_ADD, ends[0], &event, 0, 0);
    event = (struct epoll_event){EPOLLOUT | EPOLLET, {.u64 = 7}};
    RAW(epoll_ctl, epoll, EPOLL_CTL_ADD, ends[1], &event, 0, 0);
}

static void forget(void) { RAW(epoll_ctl, epoll, EPOLL_CTL_DEL, ends[0], 0, 0, 0); }
static void forget_all(void) { forget(), RAW(epoll_ctl, epoll, EPOLL_CTL_DEL, ends[1], 0, 0, 0); }
static void forget_soon(void) { forget_all(), alarm_in(20); }

CASE(epolling, "epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2", open_epoll)
{
    struct epoll_event event = {EPOLLIN, {.u64 = 5}};
    long little[] = {0, 1000000};
    uint64_t mask = 1ul << (SIGUSR1 - 1);
    TRY(epoll_create, .b = {V(5)}, .flags = CLOSES);
    TRY(epoll_create, .note = "none", .b = {V(0)}, .flags = CLOSES);
    TRY(epoll_create1, .b = {V(EPOLL_CLOEXEC)}, .flags = CLOSES);
    TRY(epoll_create1, .note = "flags", .b = {V(1)}, .flags = CLOSES);
    TRY(epoll_ctl, .b = {V(epoll), V(EPOLL_CTL_ADD), V(ends[0]), I(&event, 12)}, .before = forget);
    TRY(epoll_ctl, .note = "change", .b = {V(epoll), V(EPOLL_CTL_MOD), V(ends[0]), I(&event, 12)});
    TRY(epoll_ctl, .note = "file", .b = {V(epoll), V(EPOLL_CTL_ADD), V(file), I(&event, 12)});
    TRY(epoll_ctl, .note = "itself", .b = {V(epoll), V(EPOLL_CTL_ADD), V(epoll), I(&event, 12)});
    TRY(epoll_ctl, .note = "closed", .b = {V(epoll), V(EPOLL_CTL_DEL), V(99), V(0)});
    TRY(epoll_ctl, .note = "unknown", .b = {V(epoll), V(9), V(ends[0]), I(&event, 12)});
    TRY(epoll_wait, .b = {V(epoll), O(48), V(4), V(-1)}, .before = watch);
    TRY(epoll_wait, .note = "one", .b = {V(epoll), O(12), V(1), V(0)}, .before = watch);
    TRY(epoll_wait, .note = "none", .b = {V(epoll), O(12), V(0), V(0)}, .before = watch);
    TRY(epoll_wait, .note = "pipe", .b = {V(ends[0]), O(12), V(1), V(0)}, .before = watch);
    TRY(epoll_wait, .note = "time", .b = {V(epoll), O(12), V(1), V(3)}, .before = forget_all, .flags = ONCE);
    TRY(epoll_wait, .note = "interrupted", .b = {V(epoll), O(12), V(1), V(-1)}, .before = forget_soon,
        .flags = ONCE);
    TRY(epoll_pwait, .b = {V(epoll), O(48), V(4), V(-1), I(&mask, 8), V(8)}, .before = watch);
    TRY(epoll_pwait, .note = "odd_mask", .b = {V(epoll), O(48), V(4), V(-1), I(&mask, 8), V(9)}, .before = watch);
    TRY(epoll_pwait2, .b = {V(epoll), O(48), V(4), I(little, 16), V(0), V(8)}, .before = watch);
    TRY(epoll_pwait2, .note = "time", .b = {V(epoll), O(48), V(4), I(little, 16), I(&mask, 8), V(8)},
        .before = forget_all, .flags = ONCE);
}

static int event_fd = -1, timer_fd = -1, notify = -1;
static void open_events(void)
{
    open_pipes();
    close(event_fd), close(timer_fd), close(notify);
    event_fd = eventfd(3, EFD_NONBLOCK);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    notify = inotify_init1(IN_NONBLOCK);
    mkdir("watched", 0755);
}

static void set_event(void)
{
    long value = 5;
    need(write(event_fd, &value, 8) == 8, "eventfd");
}

static void touch(void)
{
    drain(notify);
    close(open("watched/name", O_CREAT | O_WRONLY, 0644));
    unlink("watched/name");
}

CASE(events, "eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime inotify_init "
             "inotify_init1 inotify_add_watch inotify_rm_watch memfd_create", open_events)
{
    long later[] = {0, 0, 1000, 0}, odd[] = {0, 0, 0, -1}, interval[] = {7, 0, 0, 1};
    TRY(eventfd, .b = {V(1)}, .flags = CLOSES);
    TRY(eventfd2, .b = {V(1), V(EFD_CLOEXEC)}, .flags = CLOSES);
    TRY(eventfd2, .note = "flags", .b = {V(1), V(99)}, .flags = CLOSES);
    TRY(read, .note = "eventfd", .b = {V(event_fd), O(8), V(8)}, .before = set_event);
    TRY(read, .note = "short", .b = {V(event_fd), O(4), V(4)});
    TRY(write, .note = "eventfd", .b = {V(event_fd), IL(2), V(8)});
    TRY(write, .note = "most", .b = {V(event_fd), IL(-1), V(8)});
    TRY(timerfd_create, .b = {V(CLOCK_MONOTONIC), V(0)}, .flags = CLOSES);
    TRY(timerfd_create, .note = "clock", .b = {V(99), V(0)}, .flags = CLOSES);
    TRY(timerfd_settime, .b = {V(timer_fd), V(0), I(later, 32), OH(32, "16+16")});
    TRY(timerfd_settime, .note = "odd", .b = {V(timer_fd), V(0), I(odd, 32), OH(32, "16+16")});
    TRY(timerfd_gettime, .b = {V(timer_fd), OH(32, "16+16")});
    TRY(timerfd_settime, .note = "now", .b = {V(timer_fd), V(0), I(interval, 32), V(0)}, .flags = ONCE);
    struct pollfd ready = {timer_fd, POLLIN, 0};
    poll(&ready, 1, 1000);
    TRY(read, .note = "timerfd", .b = {V(timer_fd), O(8), V(8)}, .flags = ONCE);
    TRY(timerfd_gettime, .note = "pipe", .b = {V(ends[0]), OH(32, "16+16")});
    TRY(inotify_init, .b = {V(0)}, .flags = CLOSES);
    TRY(inotify_init1, .b = {V(IN_CLOEXEC)}, .flags = CLOSES);
    TRY(inotify_add_watch, .b = {V(notify), S("watched"), V(IN_CREATE | IN_DELETE)});
    TRY(inotify_add_watch, .note = "missing", .b = {V(notify), S("missing"), V(IN_CREATE)});
    TRY(read, .note = "inotify", .b = {V(notify), O(300), V(300)}, .before = touch);
    TRY(read, .note = "inotify_short", .b = {V(notify), O(10), V(10)}, .before = touch);
    TRY(ioctl, .note = "FIONREAD", .b = {V(notify), V(FIONREAD), O(4)}, .before = touch);
    TRY(inotify_rm_watch, .b = {V(notify), V(1)});
    TRY(inotify_rm_watch, .note = "again", .b = {V(notify), V(1)});
    TRY(memfd_create, .b = {S("name"), V(0)}, .flags = CLOSES);
    TRY(memfd_create, .note = "flags", .b = {S("name"), V(-1)}, .flags = CLOSES);
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    TRY(fcntl, .note = "ADD_SEALS", .b = {V(fd), V(F_ADD_SEALS), V(F_SEAL_GROW)});
    TRY(fcntl, .note = "GET_SEALS", .b = {V(fd), V(F_GET_SEALS)});
    TRY(write, .note = "sealed", .b = {V(fd), I("x", 1), V(1)});
    close(fd);
}

CASE(fanotify, "fanotify_init fanotify_mark", open_events)
{
    TRY(fanotify_init, .b = {V(FAN_CLASS_NOTIF | FAN_NONBLOCK), V(O_RDONLY)}, .flags = CLOSES);
    TRY(fanotify_init, .note = "flags", .b = {V(-1), V(O_RDONLY)}, .flags = CLOSES);
    int fd = RAW(fanotify_init, FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY, 0, 0, 0, 0);
    TRY(fanotify_mark, .b = {V(fd), V(FAN_MARK_ADD), V(FAN_OPEN), V(AT_FDCWD), S("file")});
    TRY(fanotify_mark, .note = "missing", .b = {V(fd), V(FAN_MARK_ADD), V(FAN_OPEN), V(AT_FDCWD), S("missing")});
    TRY(fanotify_mark, .note = "remove", .b = {V(fd), V(FAN_MARK_REMOVE), V(FAN_OPEN), V(AT_FDCWD), S("file")});
    close(fd);
}

static void fill_and_rewind(void)
{
    fill();
    lseek(file, 0, SEEK_SET);
}

CASE(splicing, "splice tee", open_pipes)
{
    TRY(splice, .b = {V(ends[0]), V(0), V(more[1]), V(0), V(5), V(0)}, .before = fill, .after = tell_pipe);
    TRY(splice, .note = "offset", .b = {V(file), CI(2, 0), V(more[1]), V(0), V(5), V(0)},
        .before = fill_and_rewind, .flags = NO_NULL);
    TRY(splice, .note = "out", .b = {V(ends[0]), V(0), V(file), CI(3, 0), V(5), V(0)},
        .before = fill_and_rewind, .after = tell_pipe, .flags = NO_NULL);
    TRY(splice, .note = "files", .b = {V(file), V(0), V(file), V(0), V(5), V(0)});
    TRY(splice, .note = "flags", .b = {V(ends[0]), V(0), V(more[1]), V(0), V(5), V(-1)}, .before = fill);
    TRY(splice, .note = "again", .b = {V(more[0]), V(0), V(file), V(0), V(5), V(SPLICE_F_NONBLOCK)},
        .before = fill);
    TRY(tee, .b = {V(ends[0]), V(more[1]), V(5), V(0)}, .before = fill, .after = tell_pipe);
    TRY(tee, .note = "file", .b = {V(ends[0]), V(file), V(5), V(0)}, .before = fill);
}

static mqd_t queue = -1;
static char queue_name[64];
static void open_queue(void)
{
    snprintf(queue_name, sizeof queue_name, "whim-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 50};
    RAW(mq_unlink, queue_name, 0, 0, 0, 0, 0);
    queue = RAW(mq_open, queue_name, O_CREAT | O_RDWR, 0600, &attributes, 0, 0);
}

static void one_message(void)
{
    static char bytes[50];
    unsigned priority;
    fcntl(queue, F_SETFL, O_RDWR | O_NONBLOCK);
    while (RAW(mq_timedreceive, queue, bytes, 50, &priority, 0, 0) > 0)
        ;
    need(RAW(mq_timedsend, queue, "a message", 9, 3, 0, 0) == 0, "mq_timedsend");
    fcntl(queue, F_SETFL, O_RDWR);
}

static void no_message(void)
{
    unsigned priority;
    char bytes[50];
    one_message();
    RAW(mq_timedreceive, queue, bytes, 50, &priority, 0, 0);
}

static void no_message_soon(void) { no_message(), alarm_in(20); }

CASE(message_queues, "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr", open_queue)
{
    long past[] = {1, 0}, later[] = {time(NULL) + 1000, 0}, odd[] = {1, -1};
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 50}, flags = {.mq_flags = O_NONBLOCK};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1,
                             .sigev_value.sival_int = 77};
    TRY(mq_open, .b = {S(queue_name), V(O_RDWR), V(0), V(0)}, .flags = CLOSES);
    TRY(mq_open, .note = "name", .b = {S("whim/bad"), V(O_RDWR | O_CREAT), V(0600), I(&attributes, 64)},
        .flags = CLOSES);
    TRY(mq_open, .note = "exists", .b = {S(queue_name), V(O_RDWR | O_CREAT), V(0600), I(&attributes, 64)},
        .flags = CLOSES);
    TRY(mq_timedsend, .b = {V(queue), I("to be sent", 10), V(10), V(1), I(later, 16)}, .before = one_message);
    TRY(mq_timedsend, .note = "long", .b = {V(queue), I("to be sent", 10), V(51), V(1), I(later, 16)});
    TRY(mq_timedreceive, .b = {V(queue), O(50), V(50), O(4), I(later, 16)}, .before = one_message);
    TRY(mq_timedreceive, .note = "short", .b = {V(queue), O(40), V(40), O(4), V(0)}, .before = one_message);
    TRY(mq_timedreceive, .note = "past", .b = {V(queue), O(50), V(50), V(0), I(past, 16)}, .before = no_message,
        .flags = ONCE);
    TRY(mq_timedreceive, .note = "odd", .b = {V(queue), O(50), V(50), V(0), I(odd, 16)}, .before = no_message,
        .flags = ONCE);
    TRY(mq_timedreceive, .note = "interrupted", .b = {V(queue), O(50), V(50), V(0), V(0)},
        .before = no_message_soon, .flags = ONCE);
    TRY(mq_getsetattr, .b = {V(queue), I(&flags, 64), O(64)});
    TRY(mq_getsetattr, .note = "pipe", .b = {V(0), I(&flags, 64), O(64)});
    TRY(mq_notify, .b = {V(queue), I(&event, 64)});
    TRY(mq_notify, .note = "none", .b = {V(queue), V(0)});
    TRY(mq_notify, .note = "again", .b = {V(queue), I(&event, 64)}, .flags = ONCE);
    no_message();
    alarm_in(0);
    TRY(mq_timedsend, .note = "notifies", .b = {V(queue), I("x", 1), V(1), V(0), V(0)}, .flags = ONCE);
    TRY(mq_unlink, .b = {S(queue_name)});
    TRY(mq_unlink, .note = "missing", .b = {S("whim-missing")});
    close(queue);
}

static int set = -1, messages = -1;
static void open_sets(void)
{
    set = semget(IPC_PRIVATE, 3, 0600);
    messages = msgget(IPC_PRIVATE, 0600);
    need(set >= 0 && messages >= 0, "semget");
}

static void reset(void)
{
    unsigned short values[] = {2, 0, 5};
    semctl(set, 0, SETVAL, values[0]);
    semctl(set, 1, SETVAL, values[1]);
    semctl(set, 2, SETVAL, values[2]);
}

static void reset_soon(void) { reset(), alarm_in(20); }

CASE(semaphores, "semget semop semtimedop semctl", open_sets)
{
    struct sembuf take[] = {{0, -1, 0}, {2, 1, IPC_NOWAIT}}, wait[] = {{1, -1, 0}}, none[] = {{1, -1, IPC_NOWAIT}};
    struct sembuf far[] = {{9, 1, 0}};
    long little[] = {0, 3000000};
    TRY(semget, .b = {V(0x77aa1234), V(1), V(0)}, .flags = ONCE);
    TRY(semop, .b = {V(set), I(take, 12), V(2)}, .before = reset);
    TRY(semop, .note = "again", .b = {V(set), I(none, 6), V(1)}, .before = reset);
    TRY(semop, .note = "far", .b = {V(set), I(far, 6), V(1)}, .before = reset);
    TRY(semop, .note = "none", .b = {V(set), I(far, 6), V(0)}, .before = reset);
    TRY(semop, .note = "interrupted", .b = {V(set), I(wait, 6), V(1)}, .before = reset_soon, .flags = ONCE);
    TRY(semtimedop, .b = {V(set), I(take, 12), V(2), I(little, 16)}, .before = reset);
    TRY(semtimedop, .note = "time", .b = {V(set), I(wait, 6), V(1), I(little, 16)}, .before = reset,
        .flags = ONCE);
    reset();
    alarm_in(0);
    TRY(semctl, .note = "GETVAL", .b = {V(set), V(2), V(GETVAL)});
    TRY(semctl, .note = "SETVAL", .b = {V(set), V(2), V(SETVAL), V(4)});
    TRY(semctl, .note = "GETPID", .b = {V(set), V(2), V(GETPID)}, .flags = IDENTITY);
    TRY(semctl, .note = "GETNCNT", .b = {V(set), V(2), V(GETNCNT)});
    TRY(semctl, .note = "GETZCNT", .b = {V(set), V(2), V(GETZCNT)});
    TRY(semctl, .note = "STAT", .b = {V(set), V(0), V(IPC_STAT), OH(104, "24+2,48+32")});
    struct semid_ds about;
    semctl(set, 0, IPC_STAT, &about);
    TRY(semctl, .note = "SET", .b = {V(set), V(0), V(IPC_SET), I(&about, 104)});
    TRY(semctl, .note = "GETALL", .b = {V(set), V(0), V(GETALL), O(6)});
    TRY(semctl, .note = "SETALL", .b = {V(set), V(0), V(SETALL), I("\1\0\2\0\3\0", 6)});
    TRY(semctl, .note = "GETALL", .b = {V(set), V(0), V(GETALL), O(6)});
    TRY(semctl, .note = "unknown", .b = {V(set), V(0), V(5), V(0)});
    TRY(semctl, .note = "INFO", .b = {V(0), V(0), V(IPC_INFO), OH(40, "0+40")}, .flags = HIDDEN);
    TRY(semctl, .note = "remove", .b = {V(set), V(0), V(IPC_RMID)});
    TRY(semctl, .note = "removed", .b = {V(set), V(0), V(GETVAL)});
}

static void put_message(void)
{
    struct { long type; char text[20]; } message = {3, "text of a message"};
    struct { long type; char text[100]; } any;
    while (msgrcv(messages, &any, 100, 0, IPC_NOWAIT) >= 0)
        ;
    need(msgsnd(messages, &message, 17, 0) == 0, "msgsnd");
}

static void take_messages(void)
{
    struct { long type; char text[100]; } any;
    while (msgrcv(messages, &any, 100, 0, IPC_NOWAIT) >= 0)
        ;
    alarm_in(20);
}

CASE(messages_of_system_v, "msgget msgsnd msgrcv msgctl", open_sets)
{
    struct { long type; char text[10]; } message = {5, "0123456789"}, bad = {0, "x"};
    TRY(msgget, .b = {V(0x77aa1234), V(0)}, .flags = ONCE);
    TRY(msgsnd, .b = {V(messages), I(&message, 18), V(10), V(0)}, .before = put_message);
    TRY(msgsnd, .note = "type", .b = {V(messages), I(&bad, 18), V(10), V(0)});
    TRY(msgsnd, .note = "length", .b = {V(messages), I(&bad, 18), V(-1), V(0)});
    TRY(msgrcv, .b = {V(messages), O(28), V(20), V(0), V(0)}, .before = put_message);
    TRY(msgrcv, .note = "short", .b = {V(messages), O(13), V(5), V(0), V(0)}, .before = put_message);
    TRY(msgrcv, .note = "cut_off", .b = {V(messages), O(13), V(5), V(0), V(MSG_NOERROR)}, .before = put_message);
    TRY(msgrcv, .note = "none", .b = {V(messages), O(13), V(5), V(9), V(IPC_NOWAIT)}, .before = put_message);
    TRY(msgrcv, .note = "interrupted", .b = {V(messages), O(13), V(5), V(0), V(0)}, .before = take_messages,
        .flags = ONCE);
    alarm_in(0);
    TRY(msgctl, .note = "STAT", .b = {V(messages), V(IPC_STAT), OH(120, "24+2,48+24,88+16")}, .flags = 0);
    struct msqid_ds about;
    msgctl(messages, IPC_STAT, &about);
    TRY(msgctl, .note = "SET", .b = {V(messages), V(IPC_SET), I(&about, 120)});
    TRY(msgctl, .note = "INFO", .b = {V(0), V(IPC_INFO), OH(32, "0+32")}, .flags = HIDDEN);
    TRY(msgctl, .note = "unknown", .b = {V(messages), V(99), V(0)});
    TRY(msgctl, .note = "remove", .b = {V(messages), V(IPC_RMID)});
    TRY(msgctl, .note = "removed", .b = {V(messages), V(IPC_RMID)});
    semctl(set, 0, IPC_RMID);
}
