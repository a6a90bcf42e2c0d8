/* Calls that wait for a time, each in a thread of its own, all at once: none may end early or late, or
 * with another result, whatever happens meanwhile.
 *
 *   waits MILLISECONDS
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile), prints
 * `waiting`, and for each call its result and its time in ms, as `NAME RESULT ERRNO` and, on standard
 * error, `took MICROSECONDS NAME`. It stops at the end of its input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

enum { REST, USLEEP, NANOSLEEP, CLOCK, REALTIME, ABSOLUTE, FUTEX, SIGNAL, POLL, PPOLL, SELECT, PSELECT,
       EPOLL, EPOLL2, SEMAPHORE, RECEIVE, CONDITION, KINDS };
static const char *names[KINDS] = {
    "nanosleep_rest", "usleep", "nanosleep", "clock_nanosleep", "clock_realtime", "absolute", "futex",
    "sigtimedwait", "poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait2", "semtimedop",
    "recv", "condition"};

static long milliseconds;
static struct timespec limit;
static int sockets[2], semaphore, results[KINDS], errors[KINDS];
static int64_t times[KINDS];
static pthread_barrier_t barrier;

static int64_t by(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int64_t now(void)
{
    return by(CLOCK_MONOTONIC);
}

static int wait_for(int kind)
{
    struct timespec time = limit, rest = {0, 0};
    struct timeval brief = {limit.tv_sec, limit.tv_nsec / 1000};
    struct pollfd one = {.fd = sockets[0], .events = POLLIN};
    struct epoll_event event;
    struct sembuf less = {0, -1, 0};
    sigset_t set;
    fd_set files;
    static int word;
    char byte;
    int result;
    switch (kind) {
    case REST:
        return nanosleep(&time, &rest);
    case USLEEP:
        return nanosleep(&time, &time);
    case NANOSLEEP:
        return nanosleep(&time, NULL);
    case CLOCK:
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    case REALTIME:
        return clock_nanosleep(CLOCK_REALTIME, 0, &time, NULL);
    case ABSOLUTE:
        clock_gettime(CLOCK_MONOTONIC, &rest);
        rest.tv_sec += time.tv_sec + (rest.tv_nsec + time.tv_nsec) / 1000000000;
        rest.tv_nsec = (rest.tv_nsec + time.tv_nsec) % 1000000000;
        return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &rest, NULL);
    case FUTEX:
        /* It may wake for nothing at any time: then it waits for the rest. */
        for (int64_t end = now() + milliseconds * 1000;;) {
            result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
            int64_t left = end - now();
            if (result != 0 && errno != EINTR)
                return result;
            left = left > 0 ? left : 0;
            time = (struct timespec){left / 1000000, left % 1000000 * 1000};
        }
    case SIGNAL:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        return sigtimedwait(&set, NULL, &time);
    case POLL:
        return poll(&one, 1, milliseconds);
    case PPOLL:
        return ppoll(&one, 1, &time, NULL);
    case SELECT:
    case PSELECT:
        FD_ZERO(&files);
        FD_SET(sockets[0], &files);
        return kind == SELECT ? select(sockets[0] + 1, &files, NULL, NULL, &brief)
                              : pselect(sockets[0] + 1, &files, NULL, NULL, &time, NULL);
    case EPOLL:
    case EPOLL2:
        result = epoll_create1(0);
        epoll_ctl(result, EPOLL_CTL_ADD, sockets[0], &(struct epoll_event){.events = EPOLLIN});
        if (kind == EPOLL)
            return epoll_wait(result, &event, 1, milliseconds);
        return syscall(SYS_epoll_pwait2, result, &event, 1, &time, NULL, 0);
    case SEMAPHORE:
        return semtimedop(semaphore, &less, 1, &time);
    case RECEIVE:
        setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief);
        return recv(sockets[0], &byte, 1, 0);
    default: {
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
        clock_gettime(CLOCK_REALTIME, &rest);
        rest.tv_sec += time.tv_sec + (rest.tv_nsec + time.tv_nsec) / 1000000000;
        rest.tv_nsec = (rest.tv_nsec + time.tv_nsec) % 1000000000;
        pthread_mutex_lock(&mutex);
        do
            result = pthread_cond_timedwait(&condition, &mutex, &rest);
        while (result == 0);
        return result;
    }
    }
}

static void *waiter(void *argument)
{
    int kind = (int)(intptr_t)argument;
    /* The clock by which it waits: two nodes' monotonic clocks are told apart to some microseconds only. */
    clockid_t clock = kind == CONDITION ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    for (;;) {
        pthread_barrier_wait(&barrier);
        int64_t begun = by(clock);
        errno = 0;
        results[kind] = wait_for(kind);
        errors[kind] = errno;
        times[kind] = by(clock) - begun;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    sigset_t set;
    milliseconds = argc == 2 ? atol(argv[1]) : 100;
    limit = (struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000};
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || semaphore < 0)
        return 1;
    pthread_barrier_init(&barrier, NULL, KINDS + 1);
    for (int i = 0; i < KINDS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, waiter, (void *)(intptr_t)i);
    }
    while (met()) {
        pthread_barrier_wait(&barrier);
        printf("waiting\n");
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < KINDS; i++) {
            printf("%s %d %d\n", names[i], results[i], errors[i]);
            fprintf(stderr, "took %ld %s\n", (long)times[i], names[i]);
        }
        printf("waited\n");
    }
    semctl(semaphore, 0, IPC_RMID);
    return 0;
}
