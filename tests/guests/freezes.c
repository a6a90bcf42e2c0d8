/* A program that notices how long it stood still, and keeps home busy with what home does at once.
 *
 * freezes [THREADS [filtered | waits]]: takes a filter that refuses userfaultfd, or has threads that wait for a
 * futex again and again, if so told; prints `ready PID`; then, for each line of its input:
 *   gap   the longest time, in milliseconds, in which a thread that computes did not get on
 *   busy  how many rounds the THREADS have made, each of which maps a file, sets what is done about
 *         a signal, writes, and now and then makes a thread
 *   end   it ends
 * A round or a wait whose outcome is wrong prints `fault` and ends it with status 5.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long longest, turns, rounds;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("fault: %s\n", what);
    fflush(stdout);
    _exit(5);
}

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void *compute(void *unused)
{
    for (long last = now_ms();;) {
        long now = now_ms();
        if (now - last > atomic_load(&longest))
            atomic_store(&longest, now - last);
        last = now;
        atomic_fetch_add(&turns, 1);
    }
    return unused;
}

static void *nothing(void *argument)
{
    return argument;
}

static void caught(int signal)
{
    (void)signal;
}

static void *keep_busy(void *argument)
{
    char name[32], found[24];
    snprintf(name, sizeof name, "file-%ld", (long)argument);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0, "open");
    for (long round = 0;; round++) {
        char text[24];
        snprintf(text, sizeof text, "%022ld", round);
        check(pwrite(fd, text, sizeof text, 0) == sizeof text, "pwrite");
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        check(map != MAP_FAILED, "mmap");
        check(munmap(map, 4096) == 0, "munmap");
        check(pread(fd, found, sizeof found, 0) == sizeof found, "pread");
        check(memcmp(found, text, sizeof text) == 0, "contents");
        struct sigaction action = {.sa_handler = round % 2 ? SIG_IGN : caught};
        check(sigaction(SIGUSR2, &action, NULL) == 0, "sigaction");
        pthread_t one;
        void *result = NULL;
        if (round % 8 == 0) {
            check(pthread_create(&one, NULL, nothing, name) == 0, "pthread_create");
            check(pthread_join(one, &result) == 0 && result == name, "pthread_join");
        }
        atomic_fetch_add(&rounds, 1);
    }
    return argument;
}

/* Waits for so many milliseconds, for what nobody wakes: a wait ends when its time is over, or for no reason. */
static void *keep_waiting(void *milliseconds)
{
    long time = (long)milliseconds;
    struct timespec length = {time / 1000, time % 1000 * 1000000};
    for (int word = 0;;) {
        long begun = now_ms();
        long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &length, NULL, 0);
        if (result != 0) {
            check(errno == ETIMEDOUT, strerror(errno));
            check(now_ms() - begun >= time - 1, "a wait that is too short");
        }
        atomic_fetch_add(&rounds, 1);
    }
    return milliseconds;
}

static void take_filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count > 2 && strcmp(words[2], "filtered") == 0)
        take_filter();
    if (count > 2 && strcmp(words[2], "waits") == 0)
        /* Some end before the next move, some live through several. */
        for (long time = 3; time < 3000; time *= 2)
            pthread_create(&thread, NULL, keep_waiting, (void *)time);
    pthread_create(&thread, NULL, compute, NULL);
    for (long busy = count > 1 ? atol(words[1]) : 0; busy > 0; busy--)
        pthread_create(&thread, NULL, keep_busy, (void *)busy);
    printf("ready %d\n", getpid());
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "gap\n") == 0) {
            /* The thread that computes may go on later than this one. */
            for (long turn = atomic_load(&turns); atomic_load(&turns) < turn + 2;)
                sched_yield();
            printf("%ld\n", atomic_exchange(&longest, 0));
        } else {
            printf("%ld\n", atomic_load(&rounds));
        }
        fflush(stdout);
    }
    return 0;
}
