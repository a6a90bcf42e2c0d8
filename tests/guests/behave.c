/* Single behaviours that a move could spoil, one per run:
 *
 *   behave CASE
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile), does
 * what the case says, and prints what it saw: the same wherever it happens. `done` comes last.
 * Times go to standard error as `took MICROSECONDS WHAT`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

static void fail(const char *what)
{
    printf("fault: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void need(int good, const char *what)
{
    if (!good)
        fail(what);
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static void took(int64_t begun, const char *what)
{
    fprintf(stderr, "took %ld %s\n", (long)(now() - begun), what);
}

static void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* --- a thread blocked in a call --- */

/* An address where nothing is; the compiler does not know. */
static char *volatile nowhere = (char *)16;

static int ends[2], listener, waiter;
static volatile int entered, cleaned, handled;
static volatile pthread_t handled_by;
static volatile int64_t handled_at;

static void on_signal(int number)
{
    (void)number;
    handled_at = now();
    handled_by = pthread_self();
    handled++;
}

static void on_cancel(void *argument)
{
    (void)argument;
    cleaned++;
}

static long block(const char *where)
{
    char byte;
    struct epoll_event event;
    if (strcmp(where, "read") == 0)
        return read(ends[0], &byte, 1);
    if (strcmp(where, "accept") == 0)
        return accept(listener, NULL, NULL);
    if (strcmp(where, "epoll_wait") == 0)
        return epoll_wait(waiter, &event, 1, -1);
    if (strcmp(where, "recv") == 0)
        return recv(listener, &byte, 1, 0);
    if (strcmp(where, "poll") == 0) {
        struct pollfd one = {.fd = ends[0], .events = POLLIN};
        return poll(&one, 1, -1);
    }
    return -2;
}

static void *blocked(void *argument)
{
    long result = -1;
    pthread_cleanup_push(on_cancel, NULL);
    entered = 1;
    result = block(argument);
    if (result < 0)
        result = -errno;
    pthread_cleanup_pop(0);
    return (void *)result;
}

static void open_all(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    need(pipe(ends) == 0, "pipe");
    listener = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    need(listen(listener, 1) == 0, "listen");
    waiter = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(waiter, EPOLL_CTL_ADD, ends[0], &event) == 0, "epoll_ctl");
}

static pthread_t begin_blocked(const char *where)
{
    pthread_t thread;
    open_all();
    need(pthread_create(&thread, NULL, blocked, (void *)where) == 0, "pthread_create");
    while (!entered)
        nap(1);
    nap(50);
    return thread;
}

static pthread_t three[3];

static void begin_three_blocked(void)
{
    static const char *calls[] = {"read", "accept", "epoll_wait"};
    open_all();
    for (int i = 0; i < 3; i++)
        need(pthread_create(&three[i], NULL, blocked, (void *)calls[i]) == 0, "pthread_create");
    nap(50);
}

static void cancel(const char *where)
{
    pthread_t thread = begin_blocked(where);
    meet();
    nap(50);
    void *result;
    int64_t begun = now();
    need(pthread_cancel(thread) == 0, "pthread_cancel");
    need(pthread_join(thread, &result) == 0, "pthread_join");
    took(begun, where);
    printf("%s: cancelled %d, cleaned %d\n", where, result == PTHREAD_CANCELED, cleaned);
}

static void catch(const char *where, int flags, int whole_process)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    need(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    pthread_t thread = begin_blocked(where);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    if (whole_process)
        pthread_sigmask(SIG_BLOCK, &mask, NULL);
    meet();
    nap(50);
    int64_t begun = now();
    if (whole_process)
        need(kill(getpid(), SIGUSR1) == 0, "kill");
    else
        need(pthread_kill(thread, SIGUSR1) == 0, "pthread_kill");
    while (!handled && now() - begun < 20000000)
        nap(1);
    fprintf(stderr, "took %ld %s\n", (long)(handled_at - begun), where);
    printf("%s: handled %d, by the blocked thread %d\n", where, handled,
           pthread_equal(handled_by, thread));
    /* With SA_RESTART the call goes on: only now does it get what it waits for. */
    need(write(ends[1], "x", 1) == 1, "write");
    if (strcmp(where, "accept") == 0 && flags & SA_RESTART) {
        struct sockaddr_in address;
        socklen_t length = sizeof address;
        getsockname(listener, (struct sockaddr *)&address, &length);
        int peer = socket(AF_INET, SOCK_STREAM, 0);
        need(connect(peer, (struct sockaddr *)&address, length) == 0, "connect");
    }
    void *result;
    need(pthread_join(thread, &result) == 0, "pthread_join");
    long value = (long)result;
    printf("%s: %s\n", where, value < 0 ? strerrorname_np(-value) : "a result");
}

/* --- what our own work in its threads must not change --- */

static void trap_ignored(void)
{
    begin_three_blocked();
    signal(SIGTRAP, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        meet();
        raise(SIGTRAP);
        printf("a trap is ignored\n");
    }
    signal(SIGTRAP, on_signal);
    meet();
    raise(SIGTRAP);
    printf("a trap is caught: %d\n", handled);
}

/* --- what home's kernel asks of the deputy's signal state --- */

static void child_ignored(void)
{
    signal(SIGCHLD, SIG_IGN);
    meet();
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    int status;
    errno = 0;
    pid_t got = wait(&status);
    printf("wait: %d %s\n", got, strerrorname_np(errno));
    signal(SIGCHLD, SIG_DFL);
    child = fork();
    if (child == 0)
        _exit(3);
    got = wait(&status);
    printf("wait: %d, status %d\n", got == child, WEXITSTATUS(status));
}

/* The disposition changes while away, the child was born before. */
static void child_ignored_away(void)
{
    need(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 1 ? 3 : 4);
    }
    close(ends[0]);
    meet();
    signal(SIGCHLD, SIG_IGN);
    need(write(ends[1], "x", 1) == 1, "write");
    int status;
    errno = 0;
    pid_t got = wait(&status);
    printf("wait: %d %s\n", got, strerrorname_np(errno));
}

static void *write_to_nobody(void *argument)
{
    long result = write(ends[1], "x", 1);
    printf("in a thread: %ld %s, handled there %d\n", result, strerrorname_np(errno),
           handled_by && pthread_equal(handled_by, pthread_self()));
    return argument;
}

static void masked_pipe(void)
{
    need(pipe(ends) == 0, "pipe");
    close(ends[0]);
    meet();
    signal(SIGPIPE, SIG_IGN);
    errno = 0;
    long result = write(ends[1], "x", 1);
    printf("ignored: %ld %s\n", result, strerrorname_np(errno));
    signal(SIGPIPE, on_signal);
    sigset_t mask, waiting;
    sigemptyset(&mask);
    sigaddset(&mask, SIGPIPE);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    result = write(ends[1], "x", 1);
    sigpending(&waiting);
    printf("blocked: %ld, pending %d, handled %d\n", result, sigismember(&waiting, SIGPIPE), handled);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    printf("unblocked: handled %d\n", handled);
    result = write(ends[1], "x", 1);
    printf("caught: %ld %s, handled %d\n", result, strerrorname_np(errno), handled);
    pthread_t thread;
    need(pthread_create(&thread, NULL, write_to_nobody, NULL) == 0, "pthread_create");
    need(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void timers(void)
{
    sigset_t mask, before_mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    signal(SIGALRM, on_signal);
    sigprocmask(SIG_BLOCK, &mask, &before_mask);
    meet();
    for (int i = 0; i < 5; i++) {
        int64_t begun = now();
        ualarm(30000, 0);
        sigsuspend(&before_mask);
        took(begun, "alarm");
    }
    printf("alarms: %d\n", handled);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    struct itimerspec every = {{0, 10000000}, {0, 10000000}};
    need(timer_settime(timer, 0, &every, NULL) == 0, "timer_settime");
    handled = 0;
    while (handled < 10)
        sigsuspend(&before_mask);
    timer_delete(timer);
    printf("ticks: %d\n", handled >= 10);
}

static void queued(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    for (int i = 0; i < 5; i++)
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
    meet();
    for (int i = 5; i < 10; i++)
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
    for (int i = 0; i < 10; i++) {
        siginfo_t info;
        int number = sigwaitinfo(&mask, &info);
        printf("%d: value %d, code %d, own %d\n", number == SIGRTMIN, info.si_value.sival_int,
               info.si_code, info.si_pid == getpid());
    }
    struct timespec none = {0, 20000000};
    siginfo_t info;
    long result = sigtimedwait(&mask, &info, &none);
    printf("no more: %ld %s\n", result, strerrorname_np(errno));
}

/* --- memory that a forwarded call has to see as it is --- */

static char *map_file(const char *name, int protection, int flags)
{
    int file = open(name, O_RDWR | O_CREAT, 0600);
    need(file >= 0, name);
    char *page = malloc(16384);
    memset(page, 'f', 16384);
    need(pwrite(file, page, 16384, 0) == 16384, "pwrite");
    char *mapped = mmap(NULL, 16384, protection, flags, file, 0);
    need(mapped != MAP_FAILED, "mmap");
    close(file);
    free(page);
    return mapped;
}

static void show(const char *what, const char *from, size_t count)
{
    char back[64];
    need(pipe(ends) == 0, "pipe");
    long sent = write(ends[1], from, count);
    long got = read(ends[0], back, sizeof back - 1);
    back[got < 0 ? 0 : got] = 0;
    printf("%s: %ld %s\n", what, sent, back);
    close(ends[0]);
    close(ends[1]);
}

static void changed_file_page(void)
{
    char *before = map_file("before", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    char *moved = map_file("moved", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    before[5] = 'B';
    meet();
    char *place = mmap(NULL, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(mremap(moved, 16384, 16384, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place, "mremap");
    long waited = syscall(SYS_futex, place + 64, FUTEX_WAIT, 0, NULL, NULL, 0);
    printf("a futex there: %ld %s\n", waited, strerrorname_np(errno));
    printf("moved before it was touched: %.4s\n", place);
    show("changed before", before, 10);
    before[6] = 'A';
    before[4096 + 1] = 'C';
    show("changed away", before, 10);
    show("second page", before + 4096, 10);
    char *away = map_file("away", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    show("mapped away", away, 10);
    away[2] = 'W';
    show("mapped and changed away", away, 10);
    show("across pages", away + 4090, 12);
    meet();
    show("home again", before, 10);
    show("moved", place + 8192, 4);
    show("its second page", before + 4096, 10);
    show("mapped away", away, 10);
}

static void dropped_file_page(void)
{
    char *before = map_file("before", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    before[0] = 'X';
    meet();
    printf("%.4s\n", before);
    need(madvise(before, 4096, MADV_DONTNEED) == 0, "madvise");
    printf("%.4s\n", before);
    before[1] = 'Y';
    char *away = map_file("away", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    away[0] = 'Z';
    need(madvise(away, 8192, MADV_DONTNEED) == 0, "madvise");
    printf("%.4s %.4s\n", before, away);
    char *nothing = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(nothing, 'n', 8192);
    need(madvise(nothing, 4096, MADV_DONTNEED) == 0, "madvise");
    printf("%d %c\n", nothing[0], nothing[4096]);
    meet();
    printf("%.4s %.4s %d %c\n", before, away, nothing[0], nothing[4096]);
    need(madvise(before, 4096, MADV_DONTNEED) == 0, "madvise");
    printf("%.4s\n", before);
}

static sigjmp_buf back;

static void on_bus(int signal)
{
    siglongjmp(back, signal);
}

/* Whether there is anything. */
static int reaches(const volatile char *place)
{
    if (sigsetjmp(back, 1) != 0)
        return 0;
    return *place >= 0;
}

/* A mapping that is longer than its file: behind the end there is nothing, wherever one looks. */
static void short_file(void)
{
    int file = open("short", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need(write(file, "end", 3) == 3, "write");
    char *mapped[3];
    for (int i = 0; i < 3; i++) {
        mapped[i] = mmap(NULL, 16 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        need(mapped[i] != MAP_FAILED, "mmap");
    }
    signal(SIGBUS, on_bus);
    for (int turn = 0; turn < 3; turn++) {
        meet();
        for (int page = 0; page < 16; page += 5)
            printf("%d", reaches(mapped[turn] + page * 4096));
        mapped[turn][7] = 'x';
        /* A page that nobody has looked for yet. */
        need(ftruncate(file, (turn + 2) << 12) == 0, "ftruncate");
        printf(" %s %d\n", mapped[turn], reaches(mapped[turn] + ((turn + 1) << 12)));
    }
}

/* At any address that the process may choose, those of the attic included. */
static void fixed_addresses(void)
{
    meet();
    for (uintptr_t place = 1L << 40; place < 0x7f0000000000; place += 1L << 40) {
        char *mapped = mmap((void *)place, 8192, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        need(mapped == (char *)place, "mmap at a fixed address");
        snprintf(mapped + 4090, 20, "at %lx", place);
        show("written", mapped + 4090, 18);
        need(munmap(mapped, 4096) == 0, "munmap");
        printf("%s\n", mapped + 4096);
    }
    int64_t distance = 0;
    for (int i = 0; i < 200; i++) {
        /* The kernel's own choice, often and large. */
        char *mapped = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        need(mapped != MAP_FAILED, "mmap");
        mapped[i * 4096] = 'x';
        distance += mapped[i * 4096];
    }
    show("after them", "fine", 4);
    printf("%ld\n", (long)distance);
}

static void memory_calls(void)
{
    char *one = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(one, '1', 1 << 20);
    meet();
    char *moved = mremap(one, 1 << 20, 4 << 20, MREMAP_MAYMOVE);
    need(moved != MAP_FAILED, "mremap");
    moved[3 << 20] = '3';
    show("moved", moved + 100, 4);
    need(mprotect(moved, 4096, PROT_NONE) == 0, "mprotect");
    need(pipe(ends) == 0, "pipe");
    errno = 0;
    long result = write(ends[1], moved, 10);
    printf("no access: %ld %s\n", result, strerrorname_np(errno));
    need(mprotect(moved, 4096, PROT_READ) == 0, "mprotect");
    need(write(ends[1], moved, 10) == 10, "write from a page that is read-only");
    errno = 0;
    result = read(ends[0], moved, 10);
    printf("read-only: %ld %s\n", result, strerrorname_np(errno));
    char back[20] = "";
    result = read(ends[0], back, sizeof back - 1);
    printf("nothing was lost: %ld %s\n", result, back);
    result = write(ends[1], nowhere, 10);
    printf("nowhere: %ld %s\n", result, strerrorname_np(errno));
    need(munmap(moved + 4096, 4096) == 0, "munmap");
    result = write(ends[1], moved, 8192);
    printf("into a hole: %ld %s\n", result, result < 0 ? strerrorname_np(errno) : "");
    meet();
    errno = 0;
    result = write(ends[1], moved + 4096, 10);
    printf("the hole at home: %ld %s\n", result, strerrorname_np(errno));
    show("the rest", moved + (3 << 20), 1);
    char *top = sbrk(0);
    need(sbrk(1 << 20) == top, "sbrk");
    top[1000] = 's';
    show("the heap", top + 1000, 1);
}

/* One buffer of several pages in many pieces; results that cross pages. */
static void large_transfers(void)
{
    size_t room = 3 << 20;
    char *out = malloc(room), *in = calloc(1, room);
    for (size_t i = 0; i < room; i++)
        out[i] = 'a' + i * 7 % 23;
    meet();
    int file = open("large", O_RDWR | O_CREAT, 0600);
    need(write(file, out, room) == (ssize_t)room, "write");
    struct iovec pieces[64];
    size_t at = 0;
    for (int i = 0; i < 64; i++) {
        size_t length = 1 + (i * 4099) % 60000;
        pieces[i] = (struct iovec){in + at, length};
        at += length;
    }
    need(preadv(file, pieces, 64, 0) == (ssize_t)at, "preadv");
    printf("in pieces: %d\n", memcmp(in, out, at));
    need(pread(file, in, room, 0) == (ssize_t)room, "pread");
    printf("in one: %d\n", memcmp(in, out, room));
    printf("beyond the end: %zd\n", pread(file, in, room, room - 10));
    printf("changed there: %d\n", memcmp(in, out + room - 10, 10));
    struct stat about;
    need(fstat(file, &about) == 0, "fstat");
    printf("size %ld, mode %o\n", (long)about.st_size, about.st_mode);
}

/* A child that stops, goes on and dies, as its parent sees it. */
static void family(void)
{
    need(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        while (read(ends[0], &byte, 1) == 1)
            ;
        _exit(0);
    }
    meet();
    int status;
    need(kill(child, SIGSTOP) == 0, "SIGSTOP");
    need(waitpid(child, &status, WUNTRACED) == child, "waitpid");
    printf("stopped %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status));
    need(kill(child, SIGCONT) == 0, "SIGCONT");
    need(waitpid(child, &status, WCONTINUED) == child, "waitpid");
    printf("continued %d\n", WIFCONTINUED(status));
    siginfo_t info = {0};
    need(waitid(P_PID, child, &info, WEXITED | WNOHANG) == 0, "waitid");
    printf("still there: %d\n", info.si_pid == 0);
    need(kill(child, SIGKILL) == 0, "SIGKILL");
    need(waitid(P_PID, child, &info, WEXITED) == 0, "waitid");
    printf("killed: code %d, status %d\n", info.si_code, info.si_status);
    need(kill(child, 0) < 0, "a reaped child");
    printf("%s\n", strerrorname_np(errno));
}

/* A signal that this thread sends ends the process by way of another one: nobody is left to take it. */
static void dies_by_another(int how)
{
    struct timespec second = {.tv_sec = 1};
    sigset_t all;
    sigfillset(&all);
    need(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0, "pthread_sigmask");
    if (how == 6)
        kill(getpid(), SIGTERM);
    if (how == 7)
        sigqueue(getpid(), SIGRTMIN + 20, (union sigval){.sival_int = 1});
    if (how == 8)
        pthread_kill(three[1], SIGTERM);
    printf("goes on\n");
    printf("takes %d\n", sigtimedwait(&all, NULL, &second));
    _exit(9);
}

/* The end: by a signal of its own, or by exit in the middle of other threads' calls. */
static void dies(int how)
{
    begin_three_blocked();
    meet();
    printf("dying\n");
    fflush(stdout);
    if (how == 0)
        exit(42);
    if (how == 1)
        raise(SIGTERM);
    if (how == 2)
        *nowhere = 1;
    if (how == 3)
        abort();
    if (how == 4)
        kill(getpid(), SIGKILL);
    if (how == 5)
        syscall(SYS_exit_group, 7);
    if (how >= 6)
        dies_by_another(how);
}

/* Waits that the kernel has continued once already when the program is moved. syscall(2) leaves no trace
 * of the number of a call in the code before it. */
static int word;

static void *waits_for_word(void *operation)
{
    struct timespec time = {30, 0};
    while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST))
        if (syscall(SYS_futex, &word, (long)operation, 0, &time, NULL, 0) && errno != EAGAIN)
            return strerror(errno);
    return "woken";
}

static void *sleeps(void *rest)
{
    struct timespec time = {1, 0}, *left = rest;
    int64_t begun = now();
    if (syscall(SYS_nanosleep, &time, left))
        return strerror(errno);
    return now() - begun < 1000000 ? "slept too short" : "slept";
}

static void *polls(void *unused)
{
    (void)unused;
    int64_t begun = now();
    if (syscall(SYS_poll, NULL, 0, 1000))
        return strerror(errno);
    return now() - begun < 1000000 ? "polled too short" : "polled";
}

static void *polls_a_pipe(void *pipe)
{
    struct pollfd list[2] = {{*(int *)pipe, POLLIN, 0}, {-1, 0, 0}};
    return syscall(SYS_poll, list, 2, 30000) == 1 && list[0].revents == POLLIN ? "heard" : "not heard";
}

/* Memory that was mapped before a program asked that what it may read it may execute stays as it was. */
static int executable(void)
{
    char line[512], right;
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += sscanf(line, "%*s %*c%*c%c", &right) == 1 && right == 'x';
    fclose(maps);
    return count;
}

static void reads_and_executes(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(page != MAP_FAILED, "mmap");
    page[0] = 1;
    executable();
    need(personality(personality(0xffffffff) | READ_IMPLIES_EXEC) >= 0, "personality");
    int before = executable();
    for (int part = 0; part < 3; part++) {
        meet();
        page[0]++;
        printf("%d more, %d\n", executable() - before, (personality(0xffffffff) & READ_IMPLIES_EXEC) != 0);
    }
}

static void noted(int signal)
{
    (void)signal;
}

/* What is left of their time is told to calls that a handler ends. */
static void rest_of_time(void)
{
    struct sigaction action = {.sa_handler = noted};
    struct itimerval timer = {{0}, {0, 200000}};
    struct timespec brief;
    struct timeval time;
    sigset_t none;
    int ends[2];
    need(sigaction(SIGALRM, &action, NULL) == 0 && pipe(ends) == 0, "sigaction, pipe");
    sigemptyset(&none);
    meet();
    for (int call = 0; call < 3; call++) {
        struct pollfd list = {ends[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        brief = (struct timespec){1, 0};
        time = (struct timeval){1, 0};
        need(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
        long result = call == 0   ? syscall(SYS_select, ends[0] + 1, &set, NULL, NULL, &time)
                      : call == 1 ? syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, &brief, NULL)
                                  : syscall(SYS_ppoll, &list, 1, &brief, &none, 8);
        long left = call == 0 ? time.tv_sec * 1000 + time.tv_usec / 1000 : brief.tv_sec * 1000 + brief.tv_nsec / 1000000;
        printf("%ld %s, %s left, set %d\n", result, strerrorname_np(errno), left < 900 && left > 0 ? "some" : "not some",
               FD_ISSET(ends[0], &set) != 0);
    }
}

static char state_of(pid_t process, pid_t thread)
{
    char path[64], state = 0;
    sprintf(path, "/proc/%d/task/%d/stat", process, thread);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        _exit(3);
    fclose(file);
    return state;
}

/* Has a child stop the threads of this process once each of them sleeps, and let them go on. (A stop by SIGSTOP would be seen, and joined, by
 * whoever has started it.) */
static void stop_for_a_moment(void)
{
    int order[2];
    need(pipe(order) == 0, "pipe");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (!child) {
        char path[64], byte;
        pid_t parent = getppid();
        sprintf(path, "/proc/%d/task", parent);
        DIR *tasks = opendir(path);
        if (read(order[0], &byte, 1) != 1 || !tasks)
            _exit(1);
        for (struct dirent *task; (task = readdir(tasks));) {
            pid_t thread = atoi(task->d_name);
            while (thread > 0 && state_of(parent, thread) != 'S')
                ;
            if (thread > 0 && (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0) ||
                               waitpid(thread, NULL, __WALL) != thread || ptrace(PTRACE_DETACH, thread, 0, 0)))
                _exit(2);
        }
        _exit(0);
    }
    int status;
    prctl(PR_SET_PTRACER, child, 0, 0, 0);
    need(write(order[1], "", 1) == 1, "write");
    need(waitpid(child, &status, 0) == child && !status, "stopping");
    close(order[0]);
    close(order[1]);
}

static void restarted(void)
{
    static struct timespec left;
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    struct {
        void *(*work)(void *);
        void *argument;
        pthread_t thread;
    } threads[] = {
        {waits_for_word, (void *)FUTEX_WAIT_PRIVATE, 0},
        {waits_for_word, (void *)FUTEX_WAIT, 0},
        {sleeps, NULL, 0},
        {sleeps, &left, 0},
        {polls, NULL, 0},
        {polls_a_pipe, &ends[0], 0},
    };
    enum { COUNT = sizeof threads / sizeof *threads };
    for (int i = 0; i < COUNT; i++)
        need(!pthread_create(&threads[i].thread, NULL, threads[i].work, threads[i].argument), "pthread_create");
    stop_for_a_moment();
    meet();
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    for (int flag = 0; flag <= FUTEX_PRIVATE_FLAG; flag += FUTEX_PRIVATE_FLAG)
        syscall(SYS_futex, &word, FUTEX_WAKE | flag, COUNT, NULL, NULL, 0);
    need(write(ends[1], "", 1) == 1, "write");
    for (int i = 0; i < COUNT; i++) {
        void *said;
        need(!pthread_join(threads[i].thread, &said), "pthread_join");
        printf("%s\n", (char *)said);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc >= 2 ? argv[1] : "", *where = argc >= 3 ? argv[2] : "read";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(name, "cancel"))
        cancel(where);
    else if (!strcmp(name, "pthread_kill"))
        catch(where, 0, 0);
    else if (!strcmp(name, "pthread_kill_restart"))
        catch(where, SA_RESTART, 0);
    else if (!strcmp(name, "kill"))
        catch(where, 0, 1);
    else if (!strcmp(name, "trap_ignored"))
        trap_ignored();
    else if (!strcmp(name, "child_ignored"))
        child_ignored();
    else if (!strcmp(name, "child_ignored_away"))
        child_ignored_away();
    else if (!strcmp(name, "masked_pipe"))
        masked_pipe();
    else if (!strcmp(name, "timers"))
        timers();
    else if (!strcmp(name, "queued"))
        queued();
    else if (!strcmp(name, "changed_file_page"))
        changed_file_page();
    else if (!strcmp(name, "dropped_file_page"))
        dropped_file_page();
    else if (!strcmp(name, "short_file"))
        short_file();
    else if (!strcmp(name, "fixed_addresses"))
        fixed_addresses();
    else if (!strcmp(name, "memory_calls"))
        memory_calls();
    else if (!strcmp(name, "large_transfers"))
        large_transfers();
    else if (!strcmp(name, "family"))
        family();
    else if (!strcmp(name, "rest_of_time"))
        rest_of_time();
    else if (!strcmp(name, "reads_and_executes"))
        reads_and_executes();
    else if (!strcmp(name, "restarted"))
        restarted();
    else if (!strcmp(name, "dies"))
        dies(atoi(where));
    else
        return 2;
    meet();
    printf("done\n");
    return 0;
}
