/* Sets and tells what the kernel keeps for a process, its threads and its memory: each line on standard
 * input, until "end", is the name of something below, which is done in the first thread, or after "other"
 * in a second one; a line of what the kernel says answers it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/mempolicy.h>
#include <linux/securebits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE, SET_MDWE = 65, GET_MDWE = 66 };

static __thread char said[1024];

static void say(const char *how, ...)
{
    va_list arguments;
    size_t length = strlen(said);
    va_start(arguments, how);
    vsnprintf(said + length, sizeof said - length, how, arguments);
    va_end(arguments);
}

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* 0, or the error. */
static int error_of(long result)
{
    return result < 0 ? errno : 0;
}

static long option(int number, long argument, long more)
{
    return prctl(number, argument, more, 0L, 0L);
}

static void *map(int protection, int how)
{
    void *found = mmap(NULL, SIZE, protection, how | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(found != MAP_FAILED, "mmap");
    return found;
}

/* ---- where memory lies ---- */

static char *areas[3];
/* Of the program's own file. */
static char *file_area;

static int set_policy(int mode, unsigned long nodes)
{
    return error_of(syscall(SYS_set_mempolicy, mode, nodes ? &nodes : NULL, nodes ? 64 : 0));
}

static int bind_area(char *area, int mode, unsigned long nodes)
{
    return error_of(syscall(SYS_mbind, area, SIZE, mode, nodes ? &nodes : NULL, nodes ? 64 : 0, 0));
}

static void policy_1(void)
{
    say("%d", set_policy(MPOL_INTERLEAVE, 1));
    say(" %d", bind_area(areas[0], MPOL_BIND | MPOL_F_STATIC_NODES, 1 | 1 << 5));
    say(" %d", bind_area(areas[1] + PAGE, MPOL_LOCAL, 0));
    say(" %d", bind_area(file_area, MPOL_PREFERRED, 1));
}

static void policy_2(void)
{
    say("%d", set_policy(MPOL_BIND, 1));
    say(" %d", bind_area(areas[0], MPOL_DEFAULT, 0));
    say(" %d", bind_area(areas[2], MPOL_INTERLEAVE, 1));
    say(" %d", bind_area(file_area, MPOL_DEFAULT, 0));
}

/* Of a node that nobody has. */
static void policy_wrong(void)
{
    say("%d", set_policy(MPOL_BIND, 1UL << 40));
    say(" %d", bind_area(areas[2], MPOL_BIND, 1UL << 40));
    say(" %d", set_policy(MPOL_BIND | MPOL_F_STATIC_NODES, 1 | 1 << 6));
}

static void policy_default(void)
{
    say("%d", set_policy(MPOL_DEFAULT, 0));
}

static void tell_policy(void *address, int how)
{
    int mode = -1;
    unsigned long nodes[16] = {0};
    int error = error_of(syscall(SYS_get_mempolicy, &mode, nodes, 1024, address, how));
    say(" %d:%x:%lx", error, mode, nodes[0]);
}

static void policies(void)
{
    tell_policy(NULL, 0);
    for (int area = 0; area < 3; area++)
        tell_policy(areas[area], MPOL_F_ADDR), tell_policy(areas[area] + PAGE, MPOL_F_ADDR);
    tell_policy(file_area, MPOL_F_ADDR);
    tell_policy(NULL, MPOL_F_MEMS_ALLOWED);
}

/* ---- what is denied ---- */

static char *code;

static void deny_memory(void)
{
    say("%d", error_of(option(SET_MDWE, 1, 0)));
}

static void memory(void)
{
    void *got = mmap(NULL, PAGE, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("denied=%ld both=%d", option(GET_MDWE, 0, 0), got == MAP_FAILED ? errno : 0);
    void *plain = map(PROT_READ | PROT_WRITE, 0);
    say(" gain=%d", error_of(mprotect(plain, PAGE, PROT_READ | PROT_EXEC)));
    munmap(plain, SIZE);
    if (got != MAP_FAILED)
        munmap(got, PAGE);
    got = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say(" execute=%d", got == MAP_FAILED ? errno : munmap(got, PAGE));
    int file = open("/proc/self/exe", O_RDONLY);
    got = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    say(" file=%d", got == MAP_FAILED ? errno : 0);
    /* What is executable it may write when it can no longer be executed, and that is for good. */
    say(" lose=%d", error_of(mprotect(got, PAGE, PROT_READ | PROT_WRITE)));
    say(" regain=%d", error_of(mprotect(got, PAGE, PROT_READ | PROT_EXEC)));
    munmap(got, PAGE);
    close(file);
    say(" code=%d", ((int (*)(void))code)());
}

static void deny_stamps(void)
{
    say("%d", error_of(option(PR_SET_TSC, PR_TSC_SIGSEGV, 0)));
}

static void allow_stamps(void)
{
    say("%d", error_of(option(PR_SET_TSC, PR_TSC_ENABLE, 0)));
}

static __thread sigjmp_buf back;

static void fault(int number)
{
    siglongjmp(back, number);
}

static void stamps(void)
{
    int mode = 0;
    prctl(PR_GET_TSC, &mode);
    say("mode=%d ", mode);
    if (sigsetjmp(back, 1) == 0) {
        unsigned low, high;
        __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
        say("ticks");
    } else {
        say("fault");
    }
}

/* ---- memory that is executed: whether it is read as well is the kernel's to say ---- */

static void executed(void)
{
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    if (sigsetjmp(back, 1) == 0)
        say("read %d", *(volatile unsigned char *)code);
    else
        say("fault");
    say(", written %d", error_of(write(ends[1], code, 1)));
    close(ends[0]), close(ends[1]);
}

/* What is no right here (PROT_SEM) makes it another one than PROT_EXEC alone. */
static void executed_readable(void)
{
    say("%d", error_of(mprotect(code, SIZE, PROT_EXEC | 8)));
}

static void executed_only(void)
{
    say("%d", error_of(mprotect(code, SIZE, PROT_EXEC)));
}

/* ---- many signals that wait ---- */

enum { SIGNALS = 8000, NUMBERS = 20 };

static void queue_up_to(int count)
{
    for (int i = 0; i < count; i++)
        need(sigqueue(getpid(), SIGRTMIN + i % NUMBERS, (union sigval){.sival_int = i}) == 0, "sigqueue");
    say("queued");
}

static void queue_some(void)
{
    queue_up_to(500);
}

static void queue_many(void)
{
    queue_up_to(SIGNALS);
}

/* How many there are, and whether they are those that were sent, in their order. */
static void take_all(void)
{
    static char seen[SIGNALS];
    int count = 0, wrong = 0, last[65];
    struct timespec at_once = {0};
    siginfo_t info;
    sigset_t all;
    memset(last, -1, sizeof last), memset(seen, 0, sizeof seen), sigfillset(&all);
    for (int number; (number = sigtimedwait(&all, &info, &at_once)) > 0; count++) {
        int value = info.si_value.sival_int;
        wrong += value < 0 || value >= SIGNALS || seen[value]++ || value <= last[number] ||
                 number != SIGRTMIN + value % NUMBERS;
        last[number] = value;
    }
    say("%d, wrong %d", count, wrong);
}

/* ---- alternate stacks ---- */

static void serve(const char *until);
static char *stacks[2];
static uintptr_t stood;

static void on_stack(int number)
{
    char here;
    stood = (uintptr_t)&here;
    if (number == SIGUSR1)
        serve("leave");
}

static void enter(void)
{
    struct sigaction act = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
    stack_t first = {.ss_sp = stacks[0] = map(PROT_READ | PROT_WRITE, 0), .ss_size = SIZE};
    need(sigaltstack(&first, NULL) == 0 && sigaction(SIGUSR1, &act, NULL) == 0 &&
         sigaction(SIGUSR2, &act, NULL) == 0, "alternate stack");
    puts("in the handler");
    raise(SIGUSR1);
    said[0] = 0;
    say("out of it");
}

static void second_stack(void)
{
    stack_t second = {.ss_sp = stacks[1] = map(PROT_READ | PROT_WRITE, 0), .ss_size = SIZE};
    say("%d ", error_of(sigaltstack(&second, NULL)));
    say("%d", error_of(munmap(stacks[0], SIZE)));
}

static void which_stack(void)
{
    stack_t now;
    need(sigaltstack(NULL, &now) == 0, "sigaltstack");
    raise(SIGUSR2);
    for (int which = 0; which < 2; which++)
        if (now.ss_sp == (void *)stacks[which])
            say("stack %d, stood on it: %d", which, stood - (uintptr_t)stacks[which] < SIZE);
}

/* ---- limits ---- */

static void limit(int resource, long soft, long less)
{
    struct rlimit about;
    need(getrlimit(resource, &about) == 0, "getrlimit");
    about.rlim_cur = soft;
    about.rlim_max = about.rlim_max == RLIM_INFINITY ? RLIM_INFINITY : about.rlim_max - less;
    say(" %d", error_of(setrlimit(resource, &about)));
}

static void limits_1(void)
{
    limit(RLIMIT_NOFILE, 333, 1), limit(RLIMIT_CORE, 4096, 0), limit(RLIMIT_FSIZE, 1 << 30, 0);
    limit(RLIMIT_DATA, 4L << 30, 0), limit(RLIMIT_CPU, 4000, 0);
}

static void limits_2(void)
{
    limit(RLIMIT_NOFILE, 222, 2), limit(RLIMIT_CORE, 0, 0), limit(RLIMIT_FSIZE, 1 << 29, 0);
    limit(RLIMIT_SIGPENDING, 99, 0), limit(RLIMIT_MSGQUEUE, 4096, 0);
}

static void limits(void)
{
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        struct rlimit about;
        /* The page of the lab's program and an unmoved one may lock different amounts. */
        if (resource == RLIMIT_MEMLOCK || getrlimit(resource, &about) != 0)
            continue;
        say(" %ld", (long)about.rlim_cur);
    }
}

/* Bytes of its address space that are mapped, and locked. */
static long mapped(const char *which)
{
    char line[256];
    long bytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    need(file != NULL, "status");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, which, strlen(which)) == 0)
            bytes = atol(line + strlen(which)) * 1024;
    fclose(file);
    need(bytes >= 0, which);
    return bytes;
}

static void soft(int resource, long bytes)
{
    struct rlimit about;
    need(getrlimit(resource, &about) == 0, "getrlimit");
    about.rlim_cur = bytes;
    say("%d", error_of(setrlimit(resource, &about)));
}

static void narrow(void)
{
    soft(RLIMIT_AS, mapped("VmSize:") + 10 * SIZE);
}

static void narrow_data(void)
{
    soft(RLIMIT_DATA, mapped("VmData:") + 10 * SIZE);
}

/* A limit on locked memory means something to a program without this right. */
static void no_lock_right(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[2];
    need(syscall(SYS_capget, &header, rights) == 0, "capget");
    rights[0].effective &= ~(1u << CAP_IPC_LOCK);
    rights[0].permitted &= ~(1u << CAP_IPC_LOCK);
    say("%d", error_of(syscall(SYS_capset, &header, rights)));
}

static void narrow_locks(void)
{
    soft(RLIMIT_MEMLOCK, mapped("VmLck:") + 20 * SIZE);
    say(" %d", error_of(mlockall(MCL_FUTURE)));
}

/* How often it can map some memory. */
static void room(void)
{
    char *areas[64];
    int count = 0;
    while (count < 64) {
        areas[count] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (areas[count] == MAP_FAILED)
            break;
        count++;
    }
    say("%d %s", count, count < 64 ? strerror(errno) : "");
    while (count > 0)
        munmap(areas[--count], SIZE);
}

/* ---- what the mapping of a file may become, and what is beside memory that grows ---- */

static char *shared_file, *both, *growing;

/* Two pages of a file that may only be read; one page of memory and one of that file beside each other, and one
 * of memory behind a hole; and memory that grows downwards, with nothing below it. */
static void asks_prepare(void)
{
    char path[64];
    int made = open("/tmp", O_RDWR | O_TMPFILE, 0644);
    need(made >= 0 && ftruncate(made, 2 * PAGE) == 0, "its file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", made);
    int file = open(path, O_RDONLY);
    close(made);
    shared_file = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    both = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *second = mmap(both + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    char *room = mmap(NULL, 4096 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(shared_file != MAP_FAILED && second == both + PAGE && room != MAP_FAILED, "mmap");
    need(munmap(both + 2 * PAGE, PAGE) == 0 && munmap(room, 4096 * PAGE) == 0, "munmap");
    growing = mmap(room + 4000 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    need(growing != MAP_FAILED, "MAP_GROWSDOWN");
    close(file);
    say("prepared");
}

static void asks_write(void)
{
    say("%d", error_of(mprotect(shared_file, PAGE, PROT_READ | PROT_WRITE)));
    say(" %d", error_of(mprotect(shared_file, PAGE, PROT_READ)));
}

static void asks_second(void)
{
    char *second = mremap(shared_file, 0, PAGE, MREMAP_MAYMOVE);
    say("%d", second == MAP_FAILED ? errno : second[0]);
    if (second != MAP_FAILED)
        munmap(second, PAGE);
}

static void asks_several(void)
{
    char *to = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(both, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    say("%d", moved == MAP_FAILED ? errno : 0);
    if (moved != MAP_FAILED) {
        say(" %d", mremap(moved, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, both) == both);
        munmap(to, 2 * PAGE);
    }
}

/* Four pages of a file, of which another file has the second, and what mremap says to the whole of `old` of them. */
static int asks_seams(long old, long new, int how)
{
    char *place = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int files[2];
    for (int index = 0; index < 2; index++) {
        files[index] = open("/tmp", O_RDWR | O_TMPFILE, 0600);
        need(files[index] >= 0 && ftruncate(files[index], 16 * PAGE) == 0, "its file");
    }
    char *first = mmap(place, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, files[0], 0);
    char *second = mmap(place + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, files[1], 0);
    need(first == place && second == place + PAGE, "mmap");
    char *moved = mremap(place, old * PAGE, new * PAGE, how, place + 8 * PAGE);
    int error = moved == MAP_FAILED ? errno : 0;
    if (moved != MAP_FAILED)
        munmap(moved, new * PAGE);
    munmap(place, 16 * PAGE);
    close(files[0]);
    close(files[1]);
    return error;
}

static void asks_shorter(void)
{
    say("%d", asks_seams(2, 1, MREMAP_MAYMOVE | MREMAP_FIXED));
}

static void asks_longer(void)
{
    say("%d", asks_seams(3, 5, MREMAP_MAYMOVE));
}

/* Signals whose action is no handler, but was set with all that belongs to one; */
static const int unhandled[] = {SIGUSR1, SIGWINCH, SIGTRAP, SIGHUP, 35};

static void actions_set(void)
{
    for (int index = 0; index < 5; index++) {
        struct sigaction act = {.sa_handler = index < 3 ? SIG_IGN : SIG_DFL,
                                .sa_flags = SA_RESTART | SA_ONSTACK | (index % 2 ? SA_NODEFER : SA_SIGINFO)};
        sigaddset(&act.sa_mask, SIGTERM + index);
        need(sigaction(unhandled[index], &act, NULL) == 0, "sigaction");
    }
    say("set");
}

static void actions(void)
{
    for (int index = 0; index < 5; index++) {
        unsigned long act[4];
        need(syscall(SYS_rt_sigaction, unhandled[index], NULL, act, 8) == 0, "sigaction");
        say(" %lx %lx %d %lx", act[0], act[1], act[2] != 0, act[3]);
    }
}

/* What a wait lets through that signals have waited for: those that are ignored are dropped by it, and do not end it;
 * a handler ends it, whatever is dropped before. */
static volatile int handled;

static void on_wait(int number)
{
    (void)number;
    handled++;
}

static void wait_through(int ignored, int caught)
{
    struct sigaction act = {.sa_handler = on_wait, .sa_flags = SA_RESTART};
    struct timespec soon = {0, 1000};
    sigset_t block, none;
    sigfillset(&act.sa_mask);
    sigemptyset(&none);
    sigemptyset(&block);
    if (ignored)
        sigaddset(&block, ignored);
    if (caught)
        sigaddset(&block, caught);
    need(sigprocmask(SIG_BLOCK, &block, NULL) == 0, "sigprocmask");
    need(ignored == 0 || signal(ignored, ignored == SIGWINCH ? SIG_DFL : SIG_IGN) != SIG_ERR, "signal");
    need(caught == 0 || sigaction(caught, &act, NULL) == 0, "sigaction");
    need(ignored == 0 || syscall(SYS_tgkill, getpid(), gettid(), ignored) == 0, "tgkill");
    need(caught == 0 || syscall(SYS_tgkill, getpid(), gettid(), caught) == 0, "tgkill");
    handled = 0;
    int result = ppoll(NULL, 0, &soon, &none);
    say(" %d %d %d", result, result < 0 ? errno : 0, handled);
    sigpending(&none);
    say(" %d%d", ignored && sigismember(&none, ignored) == 1, caught && sigismember(&none, caught) == 1);
    need(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0, "sigprocmask");
    if (caught)
        signal(caught, SIG_DFL);
}

static int to_waiter[2];

/* Sends the process a signal that is ignored until one does not wait, and lets the first thread go on. */
static void *send_ignored(void *nothing)
{
    struct timespec none = {0, 0}, soon = {0, 1000000};
    sigset_t set;
    int waits = 1;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int round = 0; waits && round < 2000; round++) {
        kill(getpid(), SIGUSR1);
        waits = sigtimedwait(&set, NULL, &none) == SIGUSR1;
        nanosleep(&soon, NULL);
    }
    need(write(to_waiter[1], waits ? "1" : "0", 1) == 1, "write");
    return nothing;
}

/* The same while a thread is in its wait. */
static void wait_meanwhile(void)
{
    sigset_t block, none;
    char waits;
    pthread_t sender;
    sigemptyset(&none);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    need(sigprocmask(SIG_BLOCK, &block, NULL) == 0 && pipe(to_waiter) == 0, "pipe");
    need(pthread_create(&sender, NULL, send_ignored, NULL) == 0, "pthread_create");
    struct pollfd end = {.fd = to_waiter[0], .events = POLLIN};
    int result = ppoll(&end, 1, NULL, &none);
    need(read(to_waiter[0], &waits, 1) == 1 && pthread_join(sender, NULL) == 0, "its end");
    say(" %d %c", result, waits);
    close(to_waiter[0]);
    close(to_waiter[1]);
    need(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0, "sigprocmask");
}

static void waits_through(void)
{
    wait_through(SIGUSR1, 0);
    wait_through(SIGWINCH, 0);
    wait_through(0, 34);
    wait_through(SIGUSR1, 34);
    wait_through(35, 34);
    wait_meanwhile();
}

/* One wait of each kind under an empty mask, while a signal waits that it lets through. */
static long one_wait(int kind, int descriptor, int epoll, struct timespec *time)
{
    struct pollfd one = {.fd = descriptor, .events = POLLIN, .revents = 0x55};
    struct epoll_event event = {0};
    fd_set set;
    sigset_t none;
    long result;
    FD_ZERO(&set);
    FD_SET(descriptor, &set);
    sigemptyset(&none);
    uint64_t pair[2] = {(uintptr_t)&none, 8};
    switch (kind) {
    case 0:
        result = syscall(SYS_ppoll, &one, 1, time, &none, 8);
        say(" [%x]", one.revents);
        break;
    case 1:
        result = syscall(SYS_pselect6, descriptor + 1, &set, NULL, NULL, time, pair);
        say(" [%d %d]", FD_ISSET(descriptor, &set) != 0, pair[1] == 8);
        break;
    case 2:
        result = syscall(SYS_epoll_pwait, epoll, &event, 1, time ? (int)(time->tv_nsec / 1000000) : -1, &none, 8);
        say(" [%x]", event.events);
        break;
    default:
        result = syscall(SYS_epoll_pwait2, epoll, &event, 1, time, &none, 8);
        say(" [%x]", event.events);
        if (result < 0 && errno == ENOSYS)
            result = 0, say(" none");
    }
    return result;
}

static void waits_ready(void)
{
    const struct timespec times[] = {{0, 0}, {0, 20000000}, {0, 2000000000}, {-1, 0}};
    struct sigaction act = {.sa_handler = on_wait, .sa_flags = SA_RESTART};
    struct epoll_event event = {.events = EPOLLIN};
    int pipes[2], epoll = epoll_create1(0);
    sigset_t block, pending;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    need(sigaction(SIGUSR1, &act, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, NULL) == 0, "signals");
    need(pipe(pipes) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0, "pipe");
    for (int ready = 0; ready < 2; ready++) {
        need(!ready || write(pipes[1], "x", 1) == 1, "write");
        for (int kind = 0; kind < 4; kind++)
            for (int which = 0; which < 5; which++) {
                struct timespec time = times[which & 3];
                if (kind == 2 && which > 1 && which < 4)
                    continue;
                need(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1) == 0, "tgkill");
                handled = errno = 0;
                long result = one_wait(kind, pipes[0], epoll, which == 4 ? NULL : &time);
                int error = result < 0 ? errno : 0;
                sigpending(&pending);
                say("%ld %d %d%d", result, error, handled, sigismember(&pending, SIGUSR1));
                sigprocmask(SIG_UNBLOCK, &block, NULL);
                sigprocmask(SIG_BLOCK, &block, NULL);
            }
    }
    need(sigprocmask(SIG_UNBLOCK, &block, NULL) == 0 && signal(SIGUSR1, SIG_DFL) != SIG_ERR, "signals");
    close(epoll), close(pipes[0]), close(pipes[1]);
}

static volatile pid_t other_thread, who_handled;

static void on_own(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    handled = info->si_value.sival_int;
    who_handled = gettid();
}

static void *until_handled(void *nothing)
{
    struct timespec soon = {0, 1000000};
    other_thread = gettid();
    for (int round = 0; handled == 0 && round < 2000; round++)
        nanosleep(&soon, NULL);
    return nothing;
}

/* A signal with a siginfo of the program's own, by the descriptor of a thread (there are none before Linux 6.9). */
static void asks_thread(void)
{
    struct sigaction act = {.sa_sigaction = on_own, .sa_flags = SA_SIGINFO | SA_RESTART};
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    pthread_t other;
    handled = other_thread = 0;
    info.si_value.sival_int = 42;
    need(sigaction(SIGUSR1, &act, NULL) == 0, "sigaction");
    need(pthread_create(&other, NULL, until_handled, NULL) == 0, "pthread_create");
    while (other_thread == 0)
        sched_yield();
    int descriptor = syscall(SYS_pidfd_open, other_thread, O_EXCL);
    if (descriptor < 0)
        handled = -1;
    else
        say("%d ", error_of(syscall(SYS_pidfd_send_signal, descriptor, SIGUSR1, &info, 0)));
    pthread_join(other, NULL);
    say("%d %d", handled, who_handled == other_thread);
    close(descriptor);
    signal(SIGUSR1, SIG_DFL);
}

static void asks_advice(void)
{
    say("%d", error_of(madvise(both, 4 * PAGE, MADV_WILLNEED)));
    say(" %d", error_of(madvise(both, 2 * PAGE, MADV_REMOVE)));
}

static void asks_room(void)
{
    unsigned char found;
    char *below = growing - 300 * PAGE;
    say("%d", error_of(mincore(below, PAGE, &found)));
    say(" %d", error_of(mprotect(below, PAGE, PROT_READ)));
    say(" %d", error_of(madvise(below, PAGE, MADV_DONTNEED)));
    char *made = mmap(below, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    say(" %d", made == below ? 0 : errno);
    say(" %d", error_of(munmap(below, PAGE)));
}

static void asks_growing(void)
{
    char *made = mmap(growing - 3000 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    int file = open("/proc/self/exe", O_RDONLY);
    say("%d", made == growing - 3000 * PAGE);
    say(" %ld", (long)pread(file, made - PAGE, 4, 0));
    close(file);
    munmap(made - PAGE, 2 * PAGE);
}

static void asks_locked(void)
{
    need(mlockall(MCL_FUTURE) == 0, "mlockall");
    say("locks");
}

static void asks_dropped(void)
{
    char *made = map(PROT_READ | PROT_WRITE, 0);
    made[0] = 7;
    say("%d", error_of(madvise(made, PAGE, MADV_DONTNEED)));
    say(" %d", made[0]);
    munmap(made, SIZE);
}

/* ---- shares ---- */

struct attributes {
    unsigned size, policy;
    unsigned long flags;
    int nice;
    unsigned priority;
    unsigned long runtime, deadline, period;
    unsigned least, most;
};

static void share(int policy, int nice, int level)
{
    struct sched_param none = {0};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    say("%d", error_of(sched_setscheduler(0, policy | SCHED_RESET_ON_FORK, &none)));
    say(" %d", error_of(setpriority(PRIO_PROCESS, 0, nice)));
    /* IOPRIO_WHO_PROCESS, IOPRIO_CLASS_BE */
    say(" %d", error_of(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | level)));
    say(" %d", error_of(sched_setaffinity(0, sizeof first, &first)));
    /* SCHED_FLAG_RESET_ON_FORK | KEEP_ALL | UTIL_CLAMP; not every kernel clamps. */
    struct attributes clamp = {.size = sizeof clamp, .flags = 1 | 0x18 | 0x60, .least = 100, .most = 500};
    say(" %d", error_of(syscall(SYS_sched_setattr, 0, &clamp, 0)));
}

static void share_1(void)
{
    share(SCHED_BATCH, 3, 5);
}

static void share_2(void)
{
    share(SCHED_OTHER, 7, 2);
}

static void shares(void)
{
    struct attributes all = {0};
    struct sched_param parameter = {0};
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    need(syscall(SYS_sched_getattr, 0, &all, sizeof all, 0) == 0, "sched_getattr");
    need(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
    sched_getparam(0, &parameter);
    errno = 0;
    say("policy=%x nice=%d io=%lx", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
        syscall(SYS_ioprio_get, 1, 0));
    say(" attributes=%x,%lx,%d,%u,%u,%u", all.policy, all.flags, all.nice, all.priority, all.least, all.most);
    say(" parameter=%d cpus=%d,%d", parameter.sched_priority, CPU_COUNT(&allowed), CPU_ISSET(0, &allowed));
}

static void *shares_of_thread(void *into)
{
    shares();
    strcpy(into, said);
    return NULL;
}

/* What a thread takes over from the one that makes it. */
static void shares_of_new(void)
{
    pthread_t thread;
    char found[sizeof said];
    need(pthread_create(&thread, NULL, shares_of_thread, found) == 0, "pthread_create");
    pthread_join(thread, NULL);
    say("%s", found);
}

static void slack_1(void)
{
    say("%d", error_of(option(PR_SET_TIMERSLACK, 123456, 0)));
}

static void slack_first(void)
{
    say("%d", error_of(option(PR_SET_TIMERSLACK, 0, 0)));
    say(" %ld", option(PR_GET_TIMERSLACK, 0, 0));
}

/* A thread has first what the one that makes it has. */
static void *tell_slack(void *into)
{
    option(PR_SET_TIMERSLACK, 0, 0);
    *(long *)into = option(PR_GET_TIMERSLACK, 0, 0);
    return NULL;
}

static void slack_of_new(void)
{
    pthread_t thread;
    long found = 0;
    need(pthread_create(&thread, NULL, tell_slack, &found) == 0, "pthread_create");
    pthread_join(thread, NULL);
    say("%ld", found);
}

/* ---- rights, and what else is the process's own ---- */

static void own_1(void)
{
    say("%d", error_of(option(PR_SET_NO_NEW_PRIVS, 1, 0)));
    say(" %d", error_of(option(PR_SET_KEEPCAPS, 1, 0)));
    say(" %d", error_of(option(PR_SET_SECUREBITS, SECBIT_NO_CAP_AMBIENT_RAISE, 0)));
    say(" %d", error_of(option(PR_SET_CHILD_SUBREAPER, 1, 0)));
    say(" %d", error_of(option(PR_SET_IO_FLUSHER, 1, 0)));
    say(" %d", error_of(option(PR_CAPBSET_DROP, 5, 0)));
    say(" %d", error_of(option(PR_SET_PDEATHSIG, SIGUSR2, 0)));
    umask(027);
    need(chdir("/usr") == 0, "chdir");
}

static void own_2(void)
{
    say("%d", error_of(option(PR_SET_DUMPABLE, 0, 0)));
    say(" %d", error_of(option(PR_SET_IO_FLUSHER, 0, 0)));
    say(" %d", error_of(option(PR_SET_PDEATHSIG, SIGUSR1, 0)));
    umask(071);
    need(chdir("/usr/bin") == 0, "chdir");
}

static void own(void)
{
    int death = 0, reaper = 0;
    char place[256] = "";
    mode_t mask = umask(0);
    umask(mask);
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    need(getcwd(place, sizeof place) != NULL, "getcwd");
    say("privileges=%ld keep=%ld bits=%lx", option(PR_GET_NO_NEW_PRIVS, 0, 0), option(PR_GET_KEEPCAPS, 0, 0),
        option(PR_GET_SECUREBITS, 0, 0));
    say(" reaper=%d flusher=%ld dumpable=%ld", reaper, option(PR_GET_IO_FLUSHER, 0, 0),
        option(PR_GET_DUMPABLE, 0, 0));
    say(" bound=%ld death=%d mask=%o at=%s", option(PR_CAPBSET_READ, 5, 0), death, mask, place);
}

/* It may read files below /usr, and touch no others. */
static void sandbox(void)
{
    struct landlock_ruleset_attr all = {.handled_access_fs =
        LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG};
    int rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) {
        say("none");
        return;
    }
    struct landlock_path_beneath_attr usr = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
                                             .parent_fd = open("/usr", O_PATH)};
    need(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &usr, 0) == 0, "landlock_add_rule");
    need(option(PR_SET_NO_NEW_PRIVS, 1, 0) == 0, "PR_SET_NO_NEW_PRIVS");
    say("%d", error_of(syscall(SYS_landlock_restrict_self, rules, 0)));
    close(rules);
    close(usr.parent_fd);
}

static void try_open(const char *path, int how)
{
    int file = open(path, how, 0600);
    say(" %d", error_of(file));
    if (file >= 0)
        close(file);
}

static void files(void)
{
    try_open("/usr/bin/env", O_RDONLY), try_open("/etc/passwd", O_RDONLY), try_open("/etc", O_RDONLY);
    try_open("/etc/passwd", O_WRONLY), try_open("/var/tmp/whim-keeps-makes", O_WRONLY | O_CREAT);
    unlink("/var/tmp/whim-keeps-makes");
}

static void *files_of_new(void *into)
{
    files();
    strcpy(into, said);
    return NULL;
}

static void files_in_new_thread(void)
{
    pthread_t thread;
    char found[sizeof said];
    need(pthread_create(&thread, NULL, files_of_new, found) == 0, "pthread_create");
    pthread_join(thread, NULL);
    say("%s", found);
}

/* ---- memory that is locked, grows, or has a name ---- */

static char *locked[2], *grows;

static void lock_1(void)
{
    say("%d", error_of(syscall(SYS_mlock2, locked[0], SIZE, MLOCK_ONFAULT)));
    say(" %d", error_of(mlock(locked[1], SIZE)));
}

static void lock_2(void)
{
    say("%d", error_of(munlock(locked[1], SIZE)));
    say(" %d", error_of(mlockall(MCL_FUTURE | MCL_ONFAULT)));
}

/* Whether memory is locked (lo), on fault (lf), as the kernel has it. */
static void flags_of(const char *area)
{
    char line[1024];
    unsigned long start = 0, end = 0, from, to;
    FILE *file = fopen("/proc/self/smaps", "r");
    need(file != NULL, "smaps");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            start = from, end = to;
        if ((unsigned long)area >= start && (unsigned long)area < end && strncmp(line, "VmFlags:", 8) == 0)
            say(" %d%d", strstr(line, " lo") != NULL, strstr(line, " lf") != NULL);
    }
    fclose(file);
}

static void locks(void)
{
    char *fresh = map(PROT_READ | PROT_WRITE, 0);
    flags_of(locked[0]), flags_of(locked[1]), flags_of(fresh);
    munmap(fresh, SIZE);
}

/* As far as it has grown. */
static volatile char *lowest;

/* How many pages it grows by before there is no room. */
static void grow(void)
{
    volatile int pages = 0;
    if (lowest == NULL)
        lowest = grows;
    if (sigsetjmp(back, 1) == 0)
        for (; pages < 150; pages++)
            lowest -= PAGE, *lowest = 1;
    say("%d", pages);
}

static void bind_grown(void)
{
    unsigned long node = 1, length = grows + PAGE - lowest;
    say("%d", error_of(syscall(SYS_mbind, lowest, length, MPOL_PREFERRED, &node, 64, 0)));
}

static void policy_grown(void)
{
    tell_policy((void *)lowest, MPOL_F_ADDR), tell_policy(grows, MPOL_F_ADDR);
}

static void name(void)
{
    /* PR_SET_VMA_ANON_NAME; not every kernel has names. */
    say("%d", error_of(prctl(PR_SET_VMA, 0L, areas[0], (long)SIZE, "a name")));
}

static void names(void)
{
    char line[1024];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    need(file != NULL, "maps");
    while (fgets(line, sizeof line, file))
        found += strstr(line, "[anon:a name]") != NULL;
    fclose(file);
    say("%d", found);
}

/* ---- descriptors without a file ---- */

enum { EVENT, POLL, TIMER, WATCH, PERMISSION, PROCESS, RULES, MEMORY, SECRET, KINDS };
static int opened[KINDS];

static void open_all(void)
{
    struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
    opened[EVENT] = eventfd(3, EFD_NONBLOCK);
    opened[POLL] = epoll_create1(0);
    opened[TIMER] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    opened[WATCH] = inotify_init1(IN_NONBLOCK);
    opened[PERMISSION] = fanotify_init(FAN_NONBLOCK, O_RDONLY);
    opened[PROCESS] = syscall(SYS_pidfd_open, getpid(), 0);
    opened[RULES] = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    opened[MEMORY] = memfd_create("keeps", 0);
    opened[SECRET] = syscall(SYS_memfd_secret, 0);
    for (int kind = 0; kind < KINDS; kind++)
        say(" %d", opened[kind] < 0 ? errno : 0);
}

static void use_all(void)
{
    char byte[512] = "x";
    unsigned long count = 0;
    struct epoll_event event = {.events = EPOLLIN};
    struct itimerspec soon = {.it_value.tv_nsec = 1}, left;
    say("%zd", read(opened[EVENT], &count, sizeof count));
    say(",%lu", count);
    count = 5;
    say(" %zd", write(opened[EVENT], &count, sizeof count));
    say(" %d", error_of(epoll_ctl(opened[POLL], EPOLL_CTL_ADD, opened[EVENT], &event)));
    say(",%d", epoll_wait(opened[POLL], &event, 1, 0));
    say(" %d", error_of(timerfd_settime(opened[TIMER], 0, &soon, NULL)));
    say(",%d", error_of(timerfd_gettime(opened[TIMER], &left)));
    say(" %d", inotify_add_watch(opened[WATCH], "/usr", IN_CREATE));
    say(",%zd", read(opened[WATCH], byte, sizeof byte));
    say(" %zd", read(opened[PERMISSION], byte, sizeof byte));
    say(" %d", error_of(syscall(SYS_pidfd_send_signal, opened[PROCESS], 0, NULL, 0)));
    say(" %d", error_of(syscall(SYS_landlock_add_rule, opened[RULES], 1, NULL, 0)));
    say(" %zd", pwrite(opened[MEMORY], "memory", 6, 0));
    say(",%zd", pread(opened[MEMORY], byte, 6, 0));
    say(" %zd", read(opened[SECRET], byte, 1));
    say(",%d", error_of(ftruncate(opened[SECRET], 0)));
}

static const struct {
    const char *name;
    void (*what)(void);
} all[] = {
    {"policy 1", policy_1}, {"policy 2", policy_2}, {"policy wrong", policy_wrong},
    {"policy default", policy_default}, {"policies", policies},
    {"deny memory", deny_memory}, {"memory", memory},
    {"deny stamps", deny_stamps}, {"allow stamps", allow_stamps}, {"stamps", stamps},
    {"executed", executed}, {"executed readable", executed_readable}, {"executed only", executed_only},
    {"queue some", queue_some}, {"queue many", queue_many}, {"take all", take_all},
    {"enter", enter}, {"second stack", second_stack}, {"which stack", which_stack},
    {"limits 1", limits_1}, {"limits 2", limits_2}, {"limits", limits},
    {"asks prepare", asks_prepare}, {"asks write", asks_write}, {"asks second", asks_second},
    {"waits through", waits_through}, {"waits ready", waits_ready}, {"actions set", actions_set}, {"actions", actions},
    {"asks several", asks_several}, {"asks shorter", asks_shorter}, {"asks longer", asks_longer},
    {"asks advice", asks_advice}, {"asks thread", asks_thread}, {"asks room", asks_room},
    {"asks growing", asks_growing}, {"asks locked", asks_locked}, {"asks dropped", asks_dropped},
    {"narrow", narrow}, {"narrow data", narrow_data}, {"no lock right", no_lock_right}, {"narrow locks", narrow_locks}, {"room", room},
    {"share 1", share_1}, {"share 2", share_2}, {"shares", shares},
    {"shares of new", shares_of_new},
    {"slack 1", slack_1}, {"slack first", slack_first}, {"slack of new", slack_of_new},
    {"own 1", own_1}, {"own 2", own_2}, {"own", own},
    {"sandbox", sandbox}, {"files", files}, {"files in new thread", files_in_new_thread},
    {"lock 1", lock_1}, {"lock 2", lock_2}, {"locks", locks}, {"grow", grow},
    {"bind grown", bind_grown}, {"policy grown", policy_grown},
    {"name", name}, {"names", names}, {"open", open_all}, {"use", use_all},
};

static void answer(const char *line)
{
    said[0] = 0;
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        if (strcmp(line, all[index].name) == 0) {
            all[index].what();
            return;
        }
    need(0, line);
}

static pthread_barrier_t begin, finish;
static char task[64], result[sizeof said];

static void *other(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&begin);
        answer(task);
        memcpy(result, said, sizeof said);
        pthread_barrier_wait(&finish);
    }
    return unused;
}

static void prepare(void)
{
    static const unsigned char returns_42[] = {0xb8, 42, 0, 0, 0, 0xc3};
    for (int area = 0; area < 3; area++)
        areas[area] = map(PROT_READ | PROT_WRITE, 0), areas[area][PAGE] = 1, locked[area % 2] = map(PROT_READ | PROT_WRITE, 0);
    code = map(PROT_READ | PROT_WRITE, 0);
    memcpy(code, returns_42, sizeof returns_42);
    need(mprotect(code, SIZE, PROT_READ | PROT_EXEC) == 0, "mprotect");
    int file = open("/proc/self/exe", O_RDONLY);
    file_area = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
    need(file >= 0 && file_area != MAP_FAILED, "its own file");
    close(file);
    /* Room for it to grow into, and a neighbour below. */
    char *room = mmap(NULL, 1024 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(room != MAP_FAILED && munmap(room + PAGE, 1023 * PAGE) == 0, "room");
    grows = mmap(room + 600 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    need(grows != MAP_FAILED, "MAP_GROWSDOWN");
    stack_t own = {.ss_sp = map(PROT_READ | PROT_WRITE, 0), .ss_size = SIZE};
    struct sigaction act = {.sa_handler = fault, .sa_flags = SA_ONSTACK};
    need(sigaltstack(&own, NULL) == 0 && sigaction(SIGSEGV, &act, NULL) == 0, "sigaction");
}

static void serve(const char *until)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, until) == 0)
            break;
        if (strncmp(line, "other ", 6) == 0) {
            strcpy(task, line + 6);
            pthread_barrier_wait(&begin);
            pthread_barrier_wait(&finish);
            puts(result);
            continue;
        }
        answer(line);
        puts(said);
    }
}

int main(void)
{
    pthread_t thread;
    prepare();
    pthread_barrier_init(&begin, NULL, 2);
    pthread_barrier_init(&finish, NULL, 2);
    /* In all threads, or one of them ends the program. */
    sigset_t many;
    sigemptyset(&many);
    for (int number = 0; number < NUMBERS; number++)
        sigaddset(&many, SIGRTMIN + number);
    need(pthread_sigmask(SIG_BLOCK, &many, NULL) == 0, "sigmask");
    /* The first slack of a thread is that of the one that makes it. */
    need(option(PR_SET_TIMERSLACK, 77777, 0) == 0, "PR_SET_TIMERSLACK");
    need(pthread_create(&thread, NULL, other, NULL) == 0, "pthread_create");
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    serve("end");
    return 0;
}
