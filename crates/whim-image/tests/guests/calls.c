/* A program that makes one kind of system call again and again and checks every answer.
 *
 *   calls CASE SECONDS
 *
 * It prints `ready`, then one line per wrong answer, then `done GOOD BAD`. A peer process, where a
 * case needs one, is a child of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 40
#define EARLY_MS 1.0
#define LATE_MS 200.0
#define BIG (1 << 20)

static long good, bad, late;
static unsigned char *buffer, *other;
static char directory[64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void wrong(const char *what, long got, int error, double ms) {
    if (++bad > 20) exit(5);
    printf("bad %s: %ld (errno %d) after %.2f ms\n", what, got, got < 0 ? error : 0, ms);
    fflush(stdout);
}

/* The call must give `want` (or -1 with errno -want), not before `least` ms. */
static void expect(const char *what, long got, long want, double began, double least) {
    int error = errno;
    double ms = now() - began;
    long answer = got < 0 ? -error : got;
    if (answer != want || ms < least - EARLY_MS) wrong(what, got, error, ms);
    /* A loaded machine makes a call late now and then, a timeout that begins anew always. */
    else if (least > 0 && ms > least + LATE_MS && ++late > 5 + good / 2) wrong(what, got, error, ms);
    else good++;
}

static pid_t child(void) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
    }
    return pid;
}

static void nap(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0) {}
}

static struct timespec span(void) { return (struct timespec){0, TIMEOUT_MS * 1000000L}; }

/* --- waits with a timeout --- */
static int epoll_fd;
static void one_epoll_wait(void) {
    struct epoll_event e;
    double t = now();
    expect("epoll_wait", syscall(SYS_epoll_wait, epoll_fd, &e, 1, TIMEOUT_MS), 0, t, TIMEOUT_MS);
}
/* One wait directly behind another, and the second looks through many descriptors before it sleeps:
 * a stop often meets it awake, and the first one's sleep is not its own. */
#define LOOKED_AT 2000
static int looks_fd, looked_at[LOOKED_AT];
static void set_epoll_second(void) {
    looks_fd = epoll_create1(0);
    for (int i = 0; i < LOOKED_AT; i++) {
        struct epoll_event e = {.events = EPOLLIN};
        looked_at[i] = eventfd(0, 0);
        epoll_ctl(looks_fd, EPOLL_CTL_ADD, looked_at[i], &e);
    }
}
static void one_epoll_second(void) {
    struct epoll_event e;
    uint64_t one = 1;
    for (int i = 0; i < LOOKED_AT; i++)
        if (write(looked_at[i], &one, 8) != 8 || read(looked_at[i], &one, 8) != 8) wrong("eventfd", 0, errno, 0);
    if (syscall(SYS_epoll_wait, epoll_fd, &e, 1, 4) != 0) wrong("first epoll_wait", 0, errno, 0);
    double t = now();
    expect("second epoll_wait", syscall(SYS_epoll_wait, looks_fd, &e, 1, 6), 0, t, 6);
}
static void one_epoll_pwait(void) {
    struct epoll_event e;
    double t = now();
    expect("epoll_pwait", syscall(SYS_epoll_pwait, epoll_fd, &e, 1, TIMEOUT_MS, NULL, 8), 0, t, TIMEOUT_MS);
}
static void one_epoll_pwait2(void) {
    struct epoll_event e;
    struct timespec s = span();
    double t = now();
    expect("epoll_pwait2", syscall(SYS_epoll_pwait2, epoll_fd, &e, 1, &s, NULL, 8), 0, t, TIMEOUT_MS);
    if (s.tv_sec != 0 || s.tv_nsec != TIMEOUT_MS * 1000000L) wrong("epoll_pwait2 timespec", s.tv_nsec, 0, 0);
}
static void one_sigtimedwait(void) {
    uint64_t set = 1ull << (SIGUSR1 - 1);
    struct timespec s = span();
    double t = now();
    expect("rt_sigtimedwait", syscall(SYS_rt_sigtimedwait, &set, NULL, &s, 8), -EAGAIN, t, TIMEOUT_MS);
}
static int sem_id;
static void one_semtimedop(void) {
    struct sembuf op = {0, -1, 0};
    struct timespec s = span();
    double t = now();
    expect("semtimedop", syscall(SYS_semtimedop, sem_id, &op, 1, &s), -EAGAIN, t, TIMEOUT_MS);
}
static aio_context_t aio;
static void set_aio(void) {
    if (syscall(SYS_io_setup, 4, &aio) != 0) aio = 0;
}
static void one_io_getevents(void) {
    struct io_event e;
    struct timespec s = span();
    double t = now();
    expect("io_getevents", syscall(SYS_io_getevents, aio, 1, 1, &e, &s), 0, t, TIMEOUT_MS);
}
static void one_io_pgetevents(void) {
    struct io_event e;
    struct timespec s = span();
    double t = now();
    expect("io_pgetevents", syscall(SYS_io_pgetevents, aio, 1, 1, &e, &s, NULL), 0, t, TIMEOUT_MS);
}
static void one_nanosleep(void) {
    struct timespec s = span(), rest = {9, 9};
    double t = now();
    expect("nanosleep", syscall(SYS_nanosleep, &s, &rest), 0, t, TIMEOUT_MS);
}
static void one_clock_nanosleep(void) {
    struct timespec s = span();
    double t = now();
    expect("clock_nanosleep", syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &s, NULL), 0, t, TIMEOUT_MS);
}
static void one_clock_nanosleep_absolute(void) {
    struct timespec s;
    double t = now();
    clock_gettime(CLOCK_MONOTONIC, &s);
    s.tv_nsec += TIMEOUT_MS * 1000000L;
    if (s.tv_nsec >= 1000000000) s.tv_sec++, s.tv_nsec -= 1000000000;
    expect("clock_nanosleep absolute",
           syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &s, NULL), 0, t, TIMEOUT_MS);
}
static uint32_t word;
static void one_futex(void) {
    struct timespec s = span();
    double t = now();
    expect("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &s, NULL, 0), -ETIMEDOUT, t, TIMEOUT_MS);
}
/* As everybody has to use it: a wait for a futex may end for no reason. */
static void one_futex_woken(void) {
    struct timespec s = span();
    double t = now();
    long got = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &s, NULL, 0);
    if (got == 0) good++;
    else expect("futex", got, -ETIMEDOUT, t, TIMEOUT_MS);
}
static void one_futex_absolute(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    s.tv_nsec += TIMEOUT_MS * 1000000L;
    if (s.tv_nsec >= 1000000000L) s.tv_sec++, s.tv_nsec -= 1000000000L;
    double t = now();
    expect("futex absolute", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &s, NULL, ~0u), -ETIMEDOUT, t, TIMEOUT_MS);
}
static void one_poll(void) {
    double t = now();
    expect("poll", syscall(SYS_poll, NULL, 0, TIMEOUT_MS), 0, t, TIMEOUT_MS);
}
static void one_ppoll(void) {
    struct timespec s = span();
    double t = now();
    expect("ppoll", syscall(SYS_ppoll, NULL, 0, &s, NULL, 8), 0, t, TIMEOUT_MS);
}
static void one_select(void) {
    struct timeval v = {0, TIMEOUT_MS * 1000};
    double t = now();
    expect("select", syscall(SYS_select, 0, NULL, NULL, NULL, &v), 0, t, TIMEOUT_MS);
}
static void one_pselect(void) {
    struct timespec s = span();
    double t = now();
    expect("pselect6", syscall(SYS_pselect6, 0, NULL, NULL, NULL, &s, NULL), 0, t, TIMEOUT_MS);
}

/* --- sockets with a timeout of their own --- */
static int pair[2], listener;
static void timeouts(int fd, int option) {
    struct timeval v = {0, TIMEOUT_MS * 1000};
    setsockopt(fd, SOL_SOCKET, option, &v, sizeof v);
}
static void set_receive(void) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    timeouts(pair[0], SO_RCVTIMEO);
}
static void one_recv_timeout(void) {
    double t = now();
    expect("recvfrom SO_RCVTIMEO", syscall(SYS_recvfrom, pair[0], buffer, 10, 0, NULL, NULL), -EAGAIN, t, TIMEOUT_MS);
}
static void one_read_timeout(void) {
    double t = now();
    expect("read SO_RCVTIMEO", syscall(SYS_read, pair[0], buffer, 10), -EAGAIN, t, TIMEOUT_MS);
}
static void one_recvmsg_timeout(void) {
    struct iovec v = {buffer, 10};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    double t = now();
    expect("recvmsg SO_RCVTIMEO", syscall(SYS_recvmsg, pair[0], &m, 0), -EAGAIN, t, TIMEOUT_MS);
}
static void set_recv_data(void) {
    struct timeval v = {30, 0};
    set_receive();
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &v, sizeof v);
    if (child() == 0)
        for (unsigned char c = 0;; c++) {
            nap(25000);
            if (send(pair[1], &c, 1, 0) != 1) _exit(0);
        }
}
static void one_recv_data(void) {
    static unsigned char next;
    double t = now();
    expect("recvfrom with data", syscall(SYS_recvfrom, pair[0], buffer, 1, 0, NULL, NULL), 1, t, 0);
    if (buffer[0] != next++) wrong("recvfrom data", buffer[0], 0, 0);
}
static void set_accept(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", directory);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, 5)) abort();
    timeouts(listener, SO_RCVTIMEO);
}
static void one_accept_timeout(void) {
    double t = now();
    expect("accept SO_RCVTIMEO", syscall(SYS_accept, listener, NULL, NULL), -EAGAIN, t, TIMEOUT_MS);
}
static void set_send(void) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    while (send(pair[0], buffer, 1, 0) > 0) {}
    fcntl(pair[0], F_SETFL, 0);
    timeouts(pair[0], SO_SNDTIMEO);
}
static void one_send_timeout(void) {
    double t = now();
    expect("sendto SO_SNDTIMEO", syscall(SYS_sendto, pair[0], buffer, 10, 0, NULL, 0), -EAGAIN, t, TIMEOUT_MS);
}

/* --- waits that a peer ends --- */
static void set_semop(void) {
    if (child() == 0)
        for (;;) {
            struct sembuf op = {0, 1, 0};
            nap(30000);
            if (semop(sem_id, &op, 1)) _exit(0);
        }
}
static void one_semop(void) {
    struct sembuf op = {0, -1, 0};
    double t = now();
    expect("semop", syscall(SYS_semop, sem_id, &op, 1), 0, t, 0);
}
static void set_signals(void) {
    pid_t parent = getpid();
    if (child() == 0)
        for (;;) {
            nap(30000);
            if (kill(parent, SIGUSR1)) _exit(0);
        }
}
static void one_sigwaitinfo(void) {
    uint64_t set = 1ull << (SIGUSR1 - 1);
    double t = now();
    expect("rt_sigwaitinfo", syscall(SYS_rt_sigtimedwait, &set, NULL, NULL, 8), SIGUSR1, t, 0);
}
static int queue_id;
static void set_msgrcv(void) {
    queue_id = msgget(IPC_PRIVATE, 0600);
    if (child() == 0)
        for (;;) {
            struct { long type; char text[4]; } m = {1, "abc"};
            nap(20000);
            if (msgsnd(queue_id, &m, 4, 0)) _exit(0);
        }
}
static void one_msgrcv(void) {
    struct { long type; char text[4]; } m;
    double t = now();
    expect("msgrcv", syscall(SYS_msgrcv, queue_id, &m, 4, 0, 0), 4, t, 0);
}
static int fds[2];
static void set_eventfd(void) {
    fds[0] = eventfd(0, 0);
    if (child() == 0)
        for (uint64_t v = 1;;) {
            nap(20000);
            if (write(fds[0], &v, 8) != 8) _exit(0);
        }
}
static void one_eventfd(void) {
    uint64_t v = 0;
    double t = now();
    expect("read eventfd", syscall(SYS_read, fds[0], &v, 8), 8, t, 0);
}
static void set_timerfd(void) {
    struct itimerspec i = {{0, 20000000}, {0, 20000000}};
    fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(fds[0], 0, &i, NULL);
}
static void set_inotify(void) {
    fds[0] = inotify_init();
    inotify_add_watch(fds[0], directory, IN_CREATE);
    if (child() == 0)
        for (int n = 0;; n++) {
            char path[128];
            nap(20000);
            snprintf(path, sizeof path, "%s/%d", directory, n);
            int fd = open(path, O_CREAT | O_WRONLY, 0600);
            if (fd < 0) _exit(0);
            close(fd);
            unlink(path);
        }
}
static void one_inotify(void) {
    double t = now();
    long got = syscall(SYS_read, fds[0], buffer, 4096);
    expect("read inotify", got > 0 ? 1 : got, 1, t, 0);
}
static void set_flock(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/lock", directory);
    fds[0] = open(path, O_CREAT | O_RDWR, 0600);
    if (child() == 0) {
        int fd = open(path, O_RDWR);
        for (;;) {
            flock(fd, LOCK_EX);
            nap(20000);
            flock(fd, LOCK_UN);
            nap(2000);
        }
    }
}
static void one_flock(void) {
    double t = now();
    expect("flock", syscall(SYS_flock, fds[0], LOCK_EX), 0, t, 0);
    flock(fds[0], LOCK_UN);
    nap(3000);
}
static void set_setlkw(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/lock", directory);
    fds[0] = open(path, O_CREAT | O_RDWR, 0600);
    if (child() == 0)
        for (;;) {
            struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            fcntl(fds[0], F_SETLKW, &l);
            nap(20000);
            l.l_type = F_UNLCK;
            fcntl(fds[0], F_SETLK, &l);
            nap(2000);
        }
}
static void one_setlkw(void) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    double t = now();
    expect("fcntl F_SETLKW", syscall(SYS_fcntl, fds[0], F_SETLKW, &l), 0, t, 0);
    l.l_type = F_UNLCK;
    fcntl(fds[0], F_SETLK, &l);
    nap(3000);
}
static void one_wait4(void) {
    pid_t pid = child();
    if (pid == 0) {
        nap(20000);
        _exit(7);
    }
    int status = 0;
    double t = now();
    expect("wait4", syscall(SYS_wait4, pid, &status, 0, NULL), pid, t, 0);
    if (WEXITSTATUS(status) != 7) wrong("wait4 status", status, 0, 0);
}
static mqd_t mq;
static void set_mq(void) {
    struct mq_attr a = {.mq_maxmsg = 4, .mq_msgsize = 8};
    char name[64];
    snprintf(name, sizeof name, "/whim-%d", getpid());
    mq = mq_open(name, O_CREAT | O_RDWR, 0600, &a);
    mq_unlink(name);
    if (child() == 0)
        for (;;) {
            nap(20000);
            if (mq_send(mq, "x", 1, 0)) _exit(0);
        }
}
static void one_mq(void) {
    double t = now();
    expect("mq_timedreceive", syscall(SYS_mq_timedreceive, mq, buffer, 8, NULL, NULL), 1, t, 0);
}
static int terminal;
static void set_tty(void) {
    int master;
    if (openpty(&master, &terminal, NULL, NULL, NULL)) abort();
    if (child() == 0)
        for (;;) {
            nap(20000);
            if (write(master, "hello\n", 6) != 6) _exit(0);
            char echo[64];
            if (read(master, echo, sizeof echo) <= 0) _exit(0);
        }
}
static void one_tty(void) {
    double t = now();
    expect("read tty", syscall(SYS_read, terminal, buffer, 6), 6, t, 0);
}
static void set_pipe_read(void) {
    if (pipe(fds)) abort();
    if (child() == 0)
        for (unsigned char c = 0;; c++) {
            nap(15000);
            if (write(fds[1], &c, 1) != 1) _exit(0);
        }
}
static void one_pipe_read(void) {
    static unsigned char next;
    double t = now();
    expect("read pipe", syscall(SYS_read, fds[0], buffer, 1), 1, t, 0);
    if (buffer[0] != next++) wrong("read pipe data", buffer[0], 0, 0);
}
static void one_open_fifo(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/fifo", directory);
    mkfifo(path, 0600);
    pid_t pid = child();
    if (pid == 0) {
        nap(20000);
        int fd = open(path, O_WRONLY);
        nap(1000);
        _exit(fd < 0);
    }
    double t = now();
    int fd = syscall(SYS_open, path, O_RDONLY);
    expect("open fifo", fd >= 0 ? 1 : fd, 1, t, 0);
    close(fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}
static void one_epoll_event(void) {
    struct epoll_event e;
    static unsigned char next;
    double t = now();
    expect("epoll_wait with event", syscall(SYS_epoll_wait, epoll_fd, &e, 1, -1), 1, t, 0);
    if (read(fds[0], buffer, 1) != 1 || buffer[0] != next++) wrong("epoll data", buffer[0], 0, 0);
}
static void set_epoll_event(void) {
    set_pipe_read();
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[0], &e);
}

/* --- transfers that a stop could leave short; the peer checks every byte --- */
static void pattern(void) {
    static unsigned char next;
    for (long i = 0; i < BIG; i++) buffer[i] = next++ ^ (i >> 9);
}
/* Reads blocks of BIG bytes slowly; a byte out of place ends it, and the writer gets EPIPE. */
static void slow_reader(int fd, long total) {
    unsigned char *got = malloc(65536);
    unsigned char next = 0;
    long at = 0;
    for (;;) {
        long n = read(fd, got, 20000);
        if (n <= 0) _exit(n != 0);
        for (long i = 0; i < n; i++) {
            if (got[i] != (unsigned char)(next++ ^ (at >> 9))) {
                fprintf(stderr, "byte %ld is wrong\n", at);
                _exit(1);
            }
            at = (at + 1) % total;
        }
        nap(300);
    }
}
static void set_pipe_write(void) {
    if (pipe(fds)) abort();
    if (child() == 0) {
        close(fds[1]);
        slow_reader(fds[0], BIG);
    }
    close(fds[0]);
}
static void one_pipe_write(void) {
    pattern();
    double t = now();
    expect("write pipe", syscall(SYS_write, fds[1], buffer, BIG), BIG, t, 0);
}
static void split(struct iovec *v) {
    long cut[] = {0, 1000, 100000, 100000, 700001, BIG};
    for (int i = 0; i < 5; i++) v[i] = (struct iovec){buffer + cut[i], cut[i + 1] - cut[i]};
}
static void one_pipe_writev(void) {
    struct iovec v[5];
    pattern();
    split(v);
    double t = now();
    expect("writev pipe", syscall(SYS_writev, fds[1], v, 5), BIG, t, 0);
}
static void set_stream(void) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (child() == 0) {
        close(pair[0]);
        slow_reader(pair[1], BIG);
    }
    close(pair[1]);
}
static void one_send(void) {
    pattern();
    double t = now();
    expect("sendto", syscall(SYS_sendto, pair[0], buffer, BIG, 0, NULL, 0), BIG, t, 0);
}
static void one_sendmsg(void) {
    struct iovec v[5];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 5};
    pattern();
    split(v);
    double t = now();
    expect("sendmsg", syscall(SYS_sendmsg, pair[0], &m, 0), BIG, t, 0);
}
static int file;
static void set_sendfile(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/file", directory);
    file = open(path, O_CREAT | O_RDWR, 0600);
    for (long i = 0; i < BIG; i++) buffer[i] = (unsigned char)i ^ (i >> 9); /* as pattern() */
    if (write(file, buffer, BIG) != BIG) abort();
    set_stream();
}
static void one_sendfile(void) {
    off_t from = 0;
    double t = now();
    expect("sendfile", syscall(SYS_sendfile, pair[0], file, &from, BIG), BIG, t, 0);
    if (from != BIG) wrong("sendfile offset", from, 0, 0);
}
static void set_waitall(void) {
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (child() == 0) {
        unsigned char next = 0, part[100];
        close(pair[0]);
        for (;;) {
            for (int i = 0; i < 100; i++) part[i] = next++;
            nap(1000);
            if (send(pair[1], part, 100, 0) != 100) _exit(0);
        }
    }
    close(pair[1]);
}
static void check_waitall(const char *what, long length) {
    static unsigned char next;
    for (long i = 0; i < length; i++)
        if (buffer[i] != next++) {
            wrong(what, i, 0, 0);
            next = buffer[i] + 1;
        }
}
static void one_waitall(void) {
    double t = now();
    expect("recvfrom MSG_WAITALL", syscall(SYS_recvfrom, pair[0], buffer, 3000, MSG_WAITALL, NULL, NULL), 3000, t, 0);
    check_waitall("MSG_WAITALL data", 3000);
}
static void one_recvmsg_waitall(void) {
    struct iovec v = {buffer, 3000};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    double t = now();
    expect("recvmsg MSG_WAITALL", syscall(SYS_recvmsg, pair[0], &m, MSG_WAITALL), 3000, t, 0);
    check_waitall("recvmsg data", 3000);
}
static void one_getrandom(void) {
    double t = now();
    expect("getrandom", syscall(SYS_getrandom, other, 8 * BIG, 0), 8 * BIG, t, 0);
}
static void set_urandom(void) { file = open("/dev/urandom", O_RDONLY); }
static void one_urandom(void) {
    double t = now();
    expect("read /dev/urandom", syscall(SYS_read, file, other, 8 * BIG), 8 * BIG, t, 0);
}

/* --- calls that a handler of the program must end --- */
static volatile sig_atomic_t handled;
static void handler(int signal) { handled += signal != 0; }
static void set_handler(int flags) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &a, NULL);
}
static void set_interrupted(void) { set_handler(0); }
/* Again and again: the first signal may come before the call begins. */
static void arm(long us) {
    struct itimerval i = {{0, us ? 500000 : 0}, {0, us}};
    setitimer(ITIMER_REAL, &i, NULL);
}
static void disarm(int before) {
    arm(0);
    if (handled <= before) wrong("handler", handled - before, 0, 0);
}
static void one_interrupted_epoll(void) {
    struct epoll_event e;
    int before = handled;
    arm(20000);
    double t = now();
    expect("epoll_wait ended by a handler", syscall(SYS_epoll_wait, epoll_fd, &e, 1, 20000), -EINTR, t, 0);
    disarm(before);
}
static void one_interrupted_read(void) {
    int before = handled;
    arm(20000);
    double t = now();
    expect("read ended by a handler", syscall(SYS_read, fds[0], buffer, 1), -EINTR, t, 0);
    disarm(before);
}
static void set_interrupted_read(void) {
    set_handler(0);
    if (pipe(fds)) abort();
}
static void one_interrupted_nanosleep(void) {
    struct timespec s = {20, 0}, rest = {0, 0};
    int before = handled;
    arm(20000);
    double t = now();
    expect("nanosleep ended by a handler", syscall(SYS_nanosleep, &s, &rest), -EINTR, t, 0);
    double left = rest.tv_sec * 1e3 + rest.tv_nsec / 1e6;
    disarm(before);
    /* What is left of a sleep that has just begun has the timer's slack (50 us) in it. */
    if (left > 20000.1 || left < 19999 - (now() - t)) wrong("nanosleep rest", (long)left, 0, now() - t);
}
static void one_sigsuspend(void) {
    uint64_t block = 1ull << (SIGALRM - 1), none = 0;
    int before = handled;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &block, NULL, 8);
    arm(20000);
    double t = now();
    expect("rt_sigsuspend", syscall(SYS_rt_sigsuspend, &none, 8), -EINTR, t, 0);
    disarm(before);
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
    if (mask != (block | 1ull << (SIGUSR1 - 1))) wrong("mask after rt_sigsuspend", (long)mask, 0, 0);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &block, NULL, 8);
}
static void set_restarting(void) {
    struct itimerval i = {{0, 7000}, {0, 7000}};
    set_handler(SA_RESTART);
    set_pipe_read();
    setitimer(ITIMER_REAL, &i, NULL);
}

/* A timer whose signal is blocked most of the time: each of its expirations is told, in the signal's overruns. */
#define PERIOD_MS 5
#define MISSING_MAX 8
static double counted_from;
static long counted;
static void count(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    counted += 1 + info->si_overrun;
}
static void count_timer(int number) {
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    struct itimerspec period = {{0, PERIOD_MS * 1000000L}, {0, PERIOD_MS * 1000000L}};
    uint64_t block = 1ull << (number - 1);
    timer_t timer;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &block, NULL, 8);
    if (sigaction(number, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer)) abort();
    counted_from = now();
    if (timer_settime(timer, 0, &period, NULL)) abort();
}
static void set_overruns(void) { count_timer(SIGRTMIN + 3); }
/* A standard signal waits once only: whoever queues a second one loses what it would tell. */
static void set_overruns_standard(void) { count_timer(SIGUSR2); }
static void one_overruns(void) {
    /* What is late is missing for a while; what is lost is missing in every round from then on. */
    static double least = 1e9;
    static int rounds;
    uint64_t none = 0;
    nap(3 * PERIOD_MS * 1000);
    double t = now();
    expect("rt_sigsuspend ended by a timer", syscall(SYS_rt_sigsuspend, &none, 8), -EINTR, t, 0);
    double missing = (now() - counted_from) / PERIOD_MS - counted;
    if (missing < least) least = missing;
    if (++rounds < 40) return;
    if (least > MISSING_MAX || least < -MISSING_MAX) {
        wrong("expirations of a timer that are missing", (long)least, 0, now() - counted_from);
        counted += (long)least;
    }
    rounds = 0;
    least = 1e9;
}

static void nothing(void) {}
struct test { const char *name; void (*set)(void), (*one)(void); };
static const struct test tests[] = {
    {"epoll_wait", nothing, one_epoll_wait},
    {"epoll_second", set_epoll_second, one_epoll_second},
    {"epoll_pwait", nothing, one_epoll_pwait},
    {"epoll_pwait2", nothing, one_epoll_pwait2},
    {"epoll_event", set_epoll_event, one_epoll_event},
    {"sigtimedwait", nothing, one_sigtimedwait},
    {"sigwaitinfo", set_signals, one_sigwaitinfo},
    {"semtimedop", nothing, one_semtimedop},
    {"semop", set_semop, one_semop},
    {"io_getevents", set_aio, one_io_getevents},
    {"io_pgetevents", set_aio, one_io_pgetevents},
    {"recv_timeout", set_receive, one_recv_timeout},
    {"read_timeout", set_receive, one_read_timeout},
    {"recvmsg_timeout", set_receive, one_recvmsg_timeout},
    {"recv_data", set_recv_data, one_recv_data},
    {"accept_timeout", set_accept, one_accept_timeout},
    {"send_timeout", set_send, one_send_timeout},
    {"nanosleep", nothing, one_nanosleep},
    {"clock_nanosleep", nothing, one_clock_nanosleep},
    {"clock_nanosleep_absolute", nothing, one_clock_nanosleep_absolute},
    {"futex", nothing, one_futex},
    {"futex_woken", nothing, one_futex_woken},
    {"futex_absolute", nothing, one_futex_absolute},
    {"poll", nothing, one_poll},
    {"ppoll", nothing, one_ppoll},
    {"select", nothing, one_select},
    {"pselect", nothing, one_pselect},
    {"msgrcv", set_msgrcv, one_msgrcv},
    {"eventfd", set_eventfd, one_eventfd},
    {"timerfd", set_timerfd, one_eventfd},
    {"inotify", set_inotify, one_inotify},
    {"flock", set_flock, one_flock},
    {"setlkw", set_setlkw, one_setlkw},
    {"wait4", nothing, one_wait4},
    {"mq", set_mq, one_mq},
    {"tty", set_tty, one_tty},
    {"pipe_read", set_pipe_read, one_pipe_read},
    {"open_fifo", nothing, one_open_fifo},
    {"pipe_write", set_pipe_write, one_pipe_write},
    {"pipe_writev", set_pipe_write, one_pipe_writev},
    {"send", set_stream, one_send},
    {"sendmsg", set_stream, one_sendmsg},
    {"sendfile", set_sendfile, one_sendfile},
    {"waitall", set_waitall, one_waitall},
    {"recvmsg_waitall", set_waitall, one_recvmsg_waitall},
    {"getrandom", nothing, one_getrandom},
    {"urandom", set_urandom, one_urandom},
    {"interrupted_epoll", set_interrupted, one_interrupted_epoll},
    {"interrupted_read", set_interrupted_read, one_interrupted_read},
    {"interrupted_nanosleep", set_interrupted, one_interrupted_nanosleep},
    {"sigsuspend", set_interrupted, one_sigsuspend},
    {"restarting_read", set_restarting, one_pipe_read},
    {"overruns", set_overruns, one_overruns},
    {"overruns_standard", set_overruns_standard, one_overruns},
};

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "list") == 0) {
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) puts(tests[i].name);
        return 0;
    }
    /* With a third argument the time begins when a byte comes on standard input. */
    if (count != 3 && count != 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    uint64_t block = 1ull << (SIGUSR1 - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &block, NULL, 8);
    snprintf(directory, sizeof directory, "/tmp/whim-calls-XXXXXX");
    if (!mkdtemp(directory)) return 3;
    buffer = malloc(BIG);
    other = malloc(8 * BIG);
    epoll_fd = epoll_create1(0);
    sem_id = semget(IPC_PRIVATE, 1, 0600);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, arguments[1]) != 0) continue;
        tests[i].set();
        puts("ready");
        fflush(stdout);
        char begins;
        if (count == 4 && read(0, &begins, 1) != 1) return 5;
        double end = now() + atof(arguments[2]) * 1e3;
        while (now() < end) tests[i].one();
        printf("done %ld %ld\n", good, bad);
        fflush(stdout);
        semctl(sem_id, 0, IPC_RMID);
        if (queue_id) msgctl(queue_id, IPC_RMID, NULL);
        char command[128];
        snprintf(command, sizeof command, "rm -rf %s", directory);
        return system(command) != 0;
    }
    return 4;
}
