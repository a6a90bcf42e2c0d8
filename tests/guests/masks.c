/* Threads wait in calls that let through no signal but one, which they also receive otherwise. For each line
 * on standard input, until "end":
 *   wait      they begin to wait
 *   default   from now on SIGTERM ends the program; before it has a handler
 *   send      each of them is sent SIGTERM, which is to come after its call
 *   look      nothing; whoever moves the program looks whether it lives
 *   wake      each of them is sent the signal that it waits for; what came, in which order and under which
 *             masks is told
 * "wait" and "send" are answered when all of it has happened, as the kernel shows it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { KINDS = 5 };

static const char *const names[KINDS] = {"sigsuspend", "ppoll", "pselect", "epoll_pwait", "sigtimedwait"};

struct waiter {
    pthread_t thread;
    int kind;
    pid_t tid;
    char told[256];
};

static struct waiter waiters[KINDS];
static __thread struct waiter *own;
static int epoll, pipes[2];

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static unsigned long word(const sigset_t *set)
{
    unsigned long word;
    memcpy(&word, set, sizeof word);
    return word;
}

/* Notes the signal, the mask of its handler, and that which is put back behind it. */
static void handle(int signal, siginfo_t *info, void *context)
{
    sigset_t now;
    ucontext_t *before = context;
    sigprocmask(SIG_SETMASK, NULL, &now);
    size_t length = strlen(own->told);
    snprintf(own->told + length, sizeof own->told - length, " %d from %d (%lx, then %lx)", signal,
             info->si_pid == getpid(), word(&now), word(&before->uc_sigmask));
}

static void *wait_for_it(void *argument)
{
    sigset_t mask, taken;
    struct epoll_event event;
    struct pollfd poll = {.fd = pipes[0], .events = POLLIN};
    struct timespec long_time = {.tv_sec = 1000};
    int result = 0;
    own = argument;
    sigfillset(&mask);
    sigdelset(&mask, SIGUSR1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    sigemptyset(&taken);
    sigaddset(&taken, SIGUSR1);
    __atomic_store_n(&own->tid, gettid(), __ATOMIC_RELEASE);
    switch (own->kind) {
    case 0:
        result = sigsuspend(&mask);
        break;
    case 1:
        result = ppoll(&poll, 1, NULL, &mask);
        break;
    case 2:
        result = pselect(pipes[0] + 1, &set, NULL, NULL, NULL, &mask);
        break;
    case 3:
        result = epoll_pwait(epoll, &event, 1, -1, &mask);
        break;
    case 4:
        result = sigtimedwait(&taken, NULL, &long_time);
        break;
    }
    int error = result < 0 ? errno : 0;
    size_t length = strlen(own->told);
    snprintf(own->told + length, sizeof own->told - length, "; %d %d", result, error);
    return NULL;
}

/* The kernel's word on a signal of a thread: "SigBlk", "SigPnd". */
static int shows(const struct waiter *waiter, const char *field, int signal)
{
    char path[64], line[256];
    unsigned long set = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", waiter->tid);
    FILE *file = fopen(path, "r");
    need(file != NULL, path);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            set = strtoul(line + strlen(field) + 1, NULL, 16);
    fclose(file);
    return set >> (signal - 1) & 1;
}

static int sleeps(const struct waiter *waiter)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter->tid);
    FILE *file = fopen(path, "r");
    need(file != NULL, path);
    need(fgets(line, sizeof line, file) != NULL, path);
    fclose(file);
    return strtol(line, NULL, 10) == SYS_rt_sigtimedwait;
}

static void begin(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    need(pipe(pipes) == 0, "pipe");
    epoll = epoll_create1(0);
    need(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0, "epoll");
    for (int kind = 0; kind < KINDS; kind++) {
        struct waiter *waiter = &waiters[kind];
        waiter->kind = kind;
        need(pthread_create(&waiter->thread, NULL, wait_for_it, waiter) == 0, "pthread_create");
        while (__atomic_load_n(&waiter->tid, __ATOMIC_ACQUIRE) == 0)
            sched_yield();
        while (!(kind == 4 ? sleeps(waiter) : shows(waiter, "SigBlk", SIGTERM)))
            sched_yield();
    }
}

/* To all but the one that blocks nothing. */
static void send_early(void)
{
    for (int kind = 0; kind < KINDS - 1; kind++)
        need(pthread_kill(waiters[kind].thread, SIGTERM) == 0, "pthread_kill");
}

static void wake(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        need(pthread_kill(waiters[kind].thread, SIGUSR1) == 0, "pthread_kill");
    for (int kind = 0; kind < KINDS; kind++) {
        need(pthread_join(waiters[kind].thread, NULL) == 0, "pthread_join");
        printf("%s:%s. ", names[kind], waiters[kind].told);
    }
}

int main(void)
{
    char line[64];
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGUSR2);
    need(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0, "sigaction");
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (strcmp(line, "wait\n") == 0)
            begin();
        else if (strcmp(line, "default\n") == 0)
            need(signal(SIGTERM, SIG_DFL) != SIG_ERR, "signal");
        else if (strcmp(line, "send\n") == 0)
            send_early();
        else if (strcmp(line, "wake\n") == 0)
            wake();
        printf("%.*s done\n", (int)strcspn(line, "\n"), line);
        fflush(stdout);
    }
    return 0;
}
