/* Attacks the supervisor that serves it. Before each attack, and within those that may make it go
 * home, it prints `ready PID` and waits for a line. Each attack ends with a line: its name, and
 * `refused`, or how often it has succeeded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "meet.h"

#define TIB (1UL << 40)
#define PAGE 4096UL

static sigjmp_buf back;
static volatile sig_atomic_t handled;

static void result(const char *name, int bad)
{
    if (bad)
        printf("%s: %d have succeeded\n", name, bad);
    else
        printf("%s: refused\n", name);
}

static void on_fault(int number)
{
    siglongjmp(back, number);
}

static void count(int number)
{
    (void)number;
    handled++;
}

/* Addresses at which a supervisor might fall over: every buffer of a few calls is placed there. */
static void pointers(void)
{
    uint64_t wild[] = {0, 1, PAGE - 1, 1UL << 47, (1UL << 47) - PAGE, (1UL << 47) - 1, 1UL << 60,
                       0xffff800000000000UL, UINT64_MAX - 4095, UINT64_MAX - 7, UINT64_MAX};
    int bad = 0, null = open("/dev/null", O_RDWR), pipes[2];
    if (pipe2(pipes, O_NONBLOCK) < 0)
        exit(3);
    for (unsigned i = 0; i < sizeof wild / sizeof *wild; i++) {
        void *at = (void *)wild[i];
        struct iovec own[2] = {{at, 64}, {at, UINT64_MAX / 2}};
        meet();
        struct msghdr message = {.msg_name = at, .msg_namelen = 128, .msg_iov = at, .msg_iovlen = 1024};
        bad += write(pipes[1], at, 64) > 0;
        bad += writev(pipes[1], at, 2) > 0;
        bad += syscall(SYS_writev, pipes[1], own, -1L) > 0;
        bad += readv(pipes[0], at, 1024) > 0;
        bad += sendmsg(pipes[1], &message, 0) > 0;
        bad += open(at, O_RDONLY) >= 0;
        bad += syscall(SYS_readlink, "/proc/self/exe", at, -1L) > 0;
        bad += syscall(SYS_getcwd, at, UINT64_MAX / 2) > 0;
        bad += syscall(SYS_poll, at, 1UL << 40, 0) > 0;
        bad += at && syscall(SYS_select, 1024, at, at, at, at) > 0;
        bad += syscall(SYS_epoll_pwait, null, at, -1, 0, at, 8) > 0;
        bad += syscall(SYS_getdents64, null, at, UINT64_MAX) > 0;
        bad += syscall(SYS_fcntl, null, F_SETLK, at) == 0;
        bad += syscall(SYS_ioctl, 0, 0x5401, at) == 0;
        bad += syscall(SYS_rt_sigaction, SIGUSR2, at, NULL, 8) == 0 && at != NULL;
        /* The last, because it is too long to be forwarded. */
        bad += writev(pipes[1], own, 2) > 0;
    }
    close(null);
    close(pipes[0]);
    close(pipes[1]);
    result("crafted pointers", bad);
}

/* A vector and a path that change while the supervisor looks at them. */
static struct iovec vector[16];
static char path[64] = "/dev/null";
static volatile int racing, over;

static void *change(void *unused)
{
    static char data[64];
    for (unsigned i = 0; !over; i++) {
        if (!racing) {
            usleep(1000);
            continue;
        }
        struct iovec *at = &vector[i % 16];
        __atomic_store_n((uint64_t *)&at->iov_len, i % 3 ? 4 : 1UL << 61, __ATOMIC_RELAXED);
        __atomic_store_n((uint64_t *)&at->iov_base,
                         i % 5 ? (uint64_t)data : i % 2 ? 0xffff800000000000UL : 16 * TIB, __ATOMIC_RELAXED);
        path[9] = i % 2 ? 0 : 'x';
        if (i % 64 == 0)
            munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE);
    }
    return unused;
}

static void races(void)
{
    int bad = 0, null = open("/dev/null", O_RDWR);
    racing = 1;
    for (int i = 0; i < 1500; i++) {
        ssize_t sent = writev(null, vector, 16);
        bad += sent > 16 * 4 * 16;
        int file = open(path, O_RDONLY);
        if (file >= 0)
            close(file);
        else
            bad += errno != ENOENT;
    }
    racing = 0;
    close(null);
    result("memory that changes while it is read", bad);
}

/* Signals to itself, faster than they can be carried. */
static void storm(void)
{
    struct sigaction action = {.sa_handler = count};
    sigset_t old, all;
    int sent = 0;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    for (int i = 0; i < 1000; i++) {
        union sigval value = {.sival_int = i};
        sent += sigqueue(getpid(), SIGRTMIN + 1, value) == 0;
        kill(getpid(), SIGUSR1);
        syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    for (int i = 0; i < 300; i++)
        raise(SIGUSR1);
    result("a storm of signals", handled < sent + 301);
}

/* More calls in flight than anybody has. */
#define WAITERS 200
static int doors[2];

static void *wait_in_a_call(void *unused)
{
    char byte;
    (void)unused;
    return read(doors[0], &byte, 1) == 1 ? NULL : (void *)1;
}

static void in_flight(void)
{
    pthread_t threads[WAITERS];
    pthread_attr_t small;
    int made = 0, bad = 0;
    pid_t parent = getppid();
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pipe(doors) < 0)
        exit(3);
    while (made < WAITERS && pthread_create(&threads[made], &small, wait_in_a_call, NULL) == 0)
        made++;
    printf("%d wait\n", made);
    meet();
    /* The supervisor answers others while all of them wait. */
    for (int i = 0; i < 50; i++)
        bad += getppid() != parent;
    char bytes[WAITERS] = {0};
    bad += write(doors[1], bytes, made) != made;
    for (int i = 0; i < made; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        bad += failed != NULL;
    }
    result("calls in flight", bad);
}

/* True if a word can be read there, or written. */
static int reaches(uint64_t at, int writes)
{
    if (sigsetjmp(back, 1))
        return 0;
    if (writes)
        *(volatile uint64_t *)at = 0x0f05;
    else
        (void)*(volatile uint64_t *)at;
    return 1;
}

/* The page of code that its supervisor has in it, and the lists behind: below the end of a range of
 * whole TiB. The code cannot be written; the lists can, and nobody relies on them. */
#define BELOW (6UL << 20)
#define LISTS (4UL << 20)

static void pages(void)
{
    int bad = 0, found = 0;
    struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &fault, NULL);
    sigaction(SIGBUS, &fault, NULL);
    for (uint64_t end = TIB; end < 128 * TIB; end += TIB) {
        uint64_t code = end - BELOW;
        if (!reaches(code, 0))
            continue;
        found++;
        bad += reaches(code, 1);
        for (uint64_t at = code + PAGE; at < code + PAGE + LISTS; at += PAGE)
            if (reaches(at, 1))
                memset((void *)at, 0xff, PAGE);
    }
    printf("%d places are found\n", found);
    meet();
    /* By calls: at most they take it home, where this memory is nobody's. */
    for (uint64_t end = TIB; end < 128 * TIB; end += TIB) {
        void *code = (void *)(end - BELOW);
        bad += mprotect(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
        bad += mremap(code, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED;
    }
    result("the supervisor's pages", bad);
}

/* Calls that only its supervisor makes: the number that asks for the call in flight, and others. */
static void numbers(void)
{
    long own[] = {0x5748494d, -1, 1L << 32 | 0x5748494d, 0x40000000 | 59};
    int bad = 0;
    for (int i = 0; i < 400; i++)
        bad += syscall(own[i % 4], i, -1L, 1L << 60, 7L, 8L, 9L) != -1;
    result("the supervisor's own numbers", bad);
}

int main(void)
{
    pthread_t racer;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Made here: a thread that is made away takes the process home. */
    if (pthread_create(&racer, NULL, change, NULL))
        return 3;
    meet();
    pointers();
    meet();
    races();
    meet();
    storm();
    meet();
    in_flight();
    meet();
    pages();
    meet();
    numbers();
    meet();
    over = 1;
    pthread_join(racer, NULL);
    printf("done\n");
    return 0;
}
