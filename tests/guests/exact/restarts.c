/* Exactness: what a handler does to the call that waits, with and without SA_RESTART. All calls wait
 * at once, each in a thread of its own. The first signal's handler has SA_RESTART or not; a call that
 * it does not end is ended by the second signal, whose handler never has. */
#include "common.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/timerfd.h>
#include <termios.h>

static __thread volatile int handled;
static int empty[2], full[2], pair[2], packets[2], slow[2], listener, waiter, events, timer, notes, terminal,
    locked, semaphore, queue, full_queue, word;
static mqd_t messages, full_messages;
static char bulk[1 << 20];
static struct timespec hour = {3600, 0};
static struct { long type; char text[64]; } letter = {1, ""};

static void on_signal(int number) { (void)number, handled++; }

static long flocked(void)
{
    int own = open("locked", O_RDWR);
    return flock(own, LOCK_EX);
}

static long locked_range(int command)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    int own = open("locked", O_RDWR);
    return fcntl(own, command, &lock);
}

static long selected(int with_mask)
{
    fd_set files;
    sigset_t mask;
    sigemptyset(&mask);
    FD_ZERO(&files);
    FD_SET(empty[0], &files);
    if (with_mask)
        return pselect(empty[0] + 1, &files, NULL, NULL, &hour, &mask);
    return select(empty[0] + 1, &files, NULL, NULL, &(struct timeval){3600, 0});
}

static long polled(int with_mask)
{
    struct pollfd one = {empty[0], POLLIN, 0};
    sigset_t mask;
    sigemptyset(&mask);
    return with_mask ? ppoll(&one, 1, &hour, &mask) : poll(&one, 1, 3600000);
}

static long waited(int which)
{
    struct epoll_event event;
    sigset_t mask;
    sigemptyset(&mask);
    if (which == 2)
        return syscall(SYS_epoll_pwait2, waiter, &event, 1, &hour, &mask, 8);
    return which ? epoll_pwait(waiter, &event, 1, 3600000, &mask) : epoll_wait(waiter, &event, 1, -1);
}

static long suspended(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    return sigsuspend(&mask);
}

static long taken(int timed)
{
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGALRM);
    return timed ? sigtimedwait(&mask, NULL, &hour) : sigwaitinfo(&mask, NULL);
}

static long received(int flags)
{
    struct iovec piece = {bulk, 10};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    struct mmsghdr headers[2] = {{header, 0}, {header, 0}};
    if (flags == -1)
        return recvmsg(pair[0], &header, 0);
    if (flags == -2)
        return recvmmsg(pair[0], headers, 2, 0, NULL);
    return recv(pair[0], bulk, 10, flags);
}

static long sent(int kind)
{
    struct iovec piece = {bulk, sizeof bulk};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    if (kind == 0)
        return send(pair[0], bulk, sizeof bulk, 0);
    return kind == 1 ? sendmsg(pair[0], &header, 0) : send(packets[0], bulk, 100, 0);
}

static long locked_futex(int kind)
{
    if (kind == 1)
        return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 1);
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, kind ? NULL : &hour, NULL, 0);
}

static long locked_wait(void)
{
    struct { uint64_t value, address; uint32_t flags, spare; } one = {0, (uintptr_t)&word, 2 | 128, 0};
    return syscall(449, &one, 1, 0, NULL, 0);
}

static long slept(int kind)
{
    struct timespec rest = {-7, -7}, end;
    clock_gettime(CLOCK_MONOTONIC, &end), end.tv_sec += 3600;
    long result = kind == 0   ? nanosleep(&hour, &rest)
                  : kind == 1 ? -clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, &rest)
                              : -clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &end, &rest);
    if (result < -1)
        errno = -result, result = -1;
    return result * 10 - (rest.tv_sec > 3500 ? 1 : rest.tv_sec == -7 ? 2 : 3);
}

static long child_waited(int kind)
{
    siginfo_t info;
    int status;
    return kind == 0   ? waitpid(friend_pid, &status, 0)
           : kind == 1 ? wait(&status)
                       : waitid(P_PID, friend_pid, &info, WEXITED);
}

#define WITHOUT(body) ((void)k, (body))
#define C(title, body) static long c_##title(int k) { return WITHOUT(body); }
C(read, read(empty[0], bulk, 10))
C(readv, readv(empty[0], &(struct iovec){bulk, 10}, 1))
C(write, write(full[1], bulk, sizeof bulk))
C(writev, writev(full[1], &(struct iovec){bulk, 100}, 1))
C(splice, splice(empty[0], NULL, full[1], NULL, 10, 0))
C(tee, tee(empty[0], full[1], 10, 0))
C(accept, accept(listener, NULL, NULL))
C(accept4, accept4(listener, NULL, NULL, SOCK_CLOEXEC))
C(slow_recv, recv(slow[0], bulk, 10, 0))
C(slow_send, send(slow[0], bulk, sizeof bulk, 0))
C(event, read(events, bulk, 8))
C(timer, read(timer, bulk, 8))
C(notes, read(notes, bulk, 300))
C(terminal, read(terminal, bulk, 10))
C(fifo, open("fifo", O_RDONLY))
C(creat, syscall(SYS_creat, "unread", 0600))
C(semop, semop(semaphore, &(struct sembuf){0, -1, 0}, 1))
C(semtimedop, semtimedop(semaphore, &(struct sembuf){0, -1, 0}, 1, &hour))
C(msgrcv, msgrcv(queue, &letter, 64, 0, 0))
C(msgsnd, msgsnd(full_queue, &letter, 64, 0))
C(mq_receive, mq_receive(messages, bulk, 8192, NULL))
C(mq_timedreceive, mq_timedreceive(messages, bulk, 8192, NULL, &(struct timespec){4000000000, 0}))
C(mq_send, mq_send(full_messages, bulk, 8, 0))
C(pause, pause())
C(suspend, suspended())
C(flock, flocked())
C(waitv, locked_wait())

static struct { const char *name; long (*call)(int); int argument; } kinds[] = {
    {"read", c_read, 0}, {"readv", c_readv, 0}, {"write", c_write, 0}, {"writev", c_writev, 0},
    {"splice", c_splice, 0}, {"tee", c_tee, 0}, {"accept", c_accept, 0}, {"accept4", c_accept4, 0},
    {"recv", received, 0}, {"recv all", received, MSG_WAITALL}, {"recvmsg", received, -1},
    {"recvmmsg", received, -2}, {"recv with a limit", c_slow_recv, 0}, {"send", sent, 0}, {"sendmsg", sent, 1},
    {"send a packet", sent, 2}, {"send with a limit", c_slow_send, 0}, {"eventfd", c_event, 0},
    {"timerfd", c_timer, 0}, {"inotify", c_notes, 0}, {"terminal", c_terminal, 0}, {"fifo", c_fifo, 0},
    {"creat of a fifo", c_creat, 0},
    {"flock", c_flock, 0}, {"F_SETLKW", locked_range, F_SETLKW}, {"F_OFD_SETLKW", locked_range, F_OFD_SETLKW},
    {"semop", c_semop, 0}, {"semtimedop", c_semtimedop, 0}, {"msgrcv", c_msgrcv, 0}, {"msgsnd", c_msgsnd, 0},
    {"mq_receive", c_mq_receive, 0}, {"mq_timedreceive", c_mq_timedreceive, 0}, {"mq_send", c_mq_send, 0},
    {"poll", polled, 0}, {"ppoll", polled, 1}, {"select", selected, 0}, {"pselect", selected, 1},
    {"epoll_wait", waited, 0}, {"epoll_pwait", waited, 1}, {"epoll_pwait2", waited, 2}, {"pause", c_pause, 0},
    {"sigsuspend", c_suspend, 0}, {"sigwaitinfo", taken, 0}, {"sigtimedwait", taken, 1},
    {"nanosleep", slept, 0}, {"clock_nanosleep", slept, 1}, {"clock_nanosleep until", slept, 2},
    {"futex", locked_futex, 0}, {"futex for ever", locked_futex, 3}, {"futex bitset", locked_futex, 1},
    {"futex_waitv", c_waitv, 0}, {"waitpid", child_waited, 0},
    {"wait", child_waited, 1}, {"waitid", child_waited, 2},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct result { pid_t tid; long result; int error, handled; volatile int ended; } results[KINDS];
static pthread_barrier_t begin, end;

static void *wait_in(void *argument)
{
    struct result *own = argument;
    int kind = own - results;
    own->tid = gettid();
    for (;;) {
        pthread_barrier_wait(&begin);
        handled = errno = 0;
        own->result = kinds[kind].call(kinds[kind].argument);
        own->error = errno, own->handled = handled, own->ended = 1;
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void fill(int fd)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, bulk, sizeof bulk) > 0 || write(fd, bulk, 1) > 0)
        ;
    fcntl(fd, F_SETFL, 0);
}

static void open_descriptors(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {3600, 0};
    need(pipe(empty) == 0 && pipe(full) == 0, "pipe");
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, packets) == 0, "socketpair");
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, slow) == 0, "socketpair");
    setsockopt(slow[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(slow[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    fill(full[1]), fill(pair[0]), fill(slow[0]);
    fcntl(packets[0], F_SETFL, O_NONBLOCK);
    while (send(packets[0], bulk, 100, 0) > 0)
        ;
    fcntl(packets[0], F_SETFL, 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0, "listen");
    waiter = epoll_create1(0);
    epoll_ctl(waiter, EPOLL_CTL_ADD, empty[0], &(struct epoll_event){.events = EPOLLIN});
    events = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), notes = inotify_init();
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    need(unlockpt(terminal) == 0, "unlockpt");
    need(open(ptsname(terminal), O_RDWR | O_NOCTTY) >= 0, "a terminal");
    need(mkfifo("fifo", 0600) == 0 && mkfifo("unread", 0600) == 0, "mkfifo");
}

static void open_queues(void)
{
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[32];
    snprintf(name, sizeof name, "/restarts-%d", getpid());
    messages = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
    need(messages >= 0 && mq_unlink(name) == 0, "mq_open");
    full_messages = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
    need(full_messages >= 0 && mq_unlink(name) == 0, "mq_open");
    need(mq_send(full_messages, bulk, 8, 0) == 0, "mq_send");
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600), full_queue = msgget(IPC_PRIVATE, 0600);
    while (msgsnd(full_queue, &letter, 64, IPC_NOWAIT) == 0)
        ;
    locked = open("locked", O_RDWR | O_CREAT, 0600);
}

static int hold(int deed, int value)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    (void)deed, (void)value;
    int own = open("locked", O_RDWR);
    return flock(own, LOCK_EX) || fcntl(own, F_SETLK, &lock);
}

static int all_have_ended(void)
{
    int count = 0;
    for (int i = 0; i < KINDS; i++)
        count += results[i].ended;
    return count == KINDS;
}

static void send_all(int number, int by_friend)
{
    for (int i = 0; i < KINDS; i++)
        if (!results[i].ended || number == SIGUSR1) {
            if (by_friend)
                ask_friend(TGKILL, number, 0, results[i].tid);
            else
                syscall(SYS_tgkill, getpid(), results[i].tid, number);
        }
}

static void turn(int flags, int by_friend)
{
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = flags}, NULL);
    for (int i = 0; i < KINDS; i++)
        results[i].ended = 0;
    pthread_barrier_wait(&begin);
    nap(500);
    send_all(SIGUSR1, by_friend);
    nap(250);
    for (int64_t begun = now(); !all_have_ended() && now() - begun < 20000000; nap(20))
        send_all(SIGUSR2, by_friend);
    for (int i = 0; i < KINDS; i++) {
        printf("%s%s: ", kinds[i].name, flags ? " restarts" : "");
        if (!results[i].ended)
            printf("fault: not ended\n");
        else
            printf("%ld %s, %s\n", results[i].result,
                   results[i].result < 0 ? strerrorname_np(results[i].error) : "",
                   results[i].handled > 1 ? "by the second" : "by the first");
    }
    fflush(stdout);
    pthread_barrier_wait(&end);
}

static void matrix(int by_friend, int rounds)
{
    open_descriptors(), open_queues();
    friend_skill = hold;
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_signal}, NULL);
    make_friend();
    ask_friend(END + 1, 0, 0, 0);
    pthread_barrier_init(&begin, NULL, KINDS + 1), pthread_barrier_init(&end, NULL, KINDS + 1);
    for (int i = 0; i < KINDS; i++) {
        pthread_t thread;
        need(pthread_create(&thread, NULL, wait_in, &results[i]) == 0, "pthread_create");
    }
    nap(100);
    for (int round = 0; round < rounds; round++) {
        meet();
        turn(round ? 0 : SA_RESTART, by_friend);
        turn(round ? SA_RESTART : 0, by_friend);
    }
    semctl(semaphore, 0, IPC_RMID), msgctl(queue, IPC_RMID, NULL), msgctl(full_queue, IPC_RMID, NULL);
}

CASE(by_others, AWAY) { matrix(1, 2); }
CASE(by_itself, AWAY) { matrix(0, 1); }
