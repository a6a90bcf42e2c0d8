/* Makes threads all the time, from several threads at once, and looks whether each is what it was
 * asked to be: its stack, thread-local memory, signal mask, number, name, and end.
 *
 *   makers ROUNDS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAKERS = 4, BROOD = 3, STACK = 128 << 10 };

static __thread uint64_t own = 77;
static pthread_key_t key;
static uint64_t sums[MAKERS], destroyed[MAKERS];

static void fault(const char *what, long got, long wanted)
{
    printf("fault: %s: %ld, not %ld\n", what, got, wanted);
    fflush(stdout);
    _exit(9);
}

static void same(const char *what, long got, long wanted)
{
    if (got != wanted)
        fault(what, got, wanted);
}

struct task {
    int maker, round, kind;
    uint64_t result;
    pthread_mutex_t robust;
    int pipe[2];
    volatile int heard;
    sem_t began;
};

static void hear(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    ((struct task *)info->si_value.sival_ptr)->heard++;
}

static void destroy(void *value)
{
    __atomic_add_fetch((uint64_t *)value, 1, __ATOMIC_RELAXED);
}

static uint64_t work(int seed)
{
    uint64_t sum = (uint64_t)seed + 1;
    for (int i = 0; i < 3000; i++)
        sum = sum * 6364136223846793005u + 1442695040888963407u;
    return sum >> 20;
}

/* What every thread finds at its beginning. */
static void look_around(struct task *task)
{
    char here, name[16], wanted[16];
    sigset_t mask;
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    same("thread-local memory", (long)own, 77);
    own = (uint64_t)task->round;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    same("mask of SIGUSR2", sigismember(&mask, SIGUSR2), 1);
    same("mask of SIGUSR1", sigismember(&mask, SIGUSR1), 0);
    same("pthread_getattr_np", pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstack(&attributes, &stack, &size);
    same("stack", &here > (char *)stack && &here < (char *)stack + size, 1);
    pthread_attr_destroy(&attributes);
    same("tgkill", syscall(SYS_tgkill, getpid(), gettid(), 0), 0);
    snprintf(wanted, sizeof wanted, "maker %d.%d", task->maker, task->kind);
    prctl(PR_SET_NAME, wanted);
    same("pthread_getname_np", pthread_getname_np(pthread_self(), name, sizeof name), 0);
    same("name", strcmp(name, wanted), 0);
    pthread_setspecific(key, &destroyed[task->maker]);
}

static void *joined(void *argument)
{
    struct task *task = argument;
    look_around(task);
    task->result = work(task->round * 10 + task->maker);
    same("thread-local memory afterwards", (long)own, task->round);
    return task;
}

static void *detached(void *argument)
{
    struct task *task = argument;
    look_around(task);
    task->result = work(task->round * 20 + task->maker);
    sem_post(&task->began);
    return NULL;
}

static void *cancelled(void *argument)
{
    struct task *task = argument;
    char byte;
    look_around(task);
    sem_post(&task->began);
    for (;;)
        if (read(task->pipe[0], &byte, 1) < 0 && errno != EINTR)
            fault("read", errno, 0);
    return NULL;
}

static void *signalled(void *argument)
{
    struct task *task = argument;
    look_around(task);
    sem_post(&task->began);
    while (!task->heard)
        usleep(500);
    return NULL;
}

static void *dies_holding(void *argument)
{
    struct task *task = argument;
    look_around(task);
    pthread_mutex_lock(&task->robust);
    return NULL;
}

static pthread_t make(struct task *task, int kind, void *(*body)(void *), int is_detached)
{
    pthread_t thread;
    pthread_attr_t attributes;
    task->kind = kind;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (is_detached)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    same("pthread_create", pthread_create(&thread, &attributes, body, task), 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

static uint64_t round_of(int maker, int round)
{
    struct task tasks[BROOD], other = {.maker = maker, .round = round}, free = other;
    pthread_t threads[BROOD];
    union sigval value = {.sival_ptr = &other};
    uint64_t sum = 0;
    void *end;
    for (int i = 0; i < BROOD; i++) {
        tasks[i] = (struct task){.maker = maker, .round = round * BROOD + i};
        threads[i] = make(&tasks[i], i, joined, 0);
    }
    for (int i = 0; i < BROOD; i++) {
        same("pthread_join", pthread_join(threads[i], &end), 0);
        same("its result", end == &tasks[i], 1);
        sum += tasks[i].result;
    }
    sem_init(&free.began, 0, 0);
    make(&free, 4, detached, 1);
    sem_wait(&free.began);
    sum += free.result;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&other.robust, &kind);
    pthread_t thread = make(&other, 5, dies_holding, 0);
    pthread_join(thread, NULL);
    same("robust lock", pthread_mutex_lock(&other.robust), EOWNERDEAD);
    pthread_mutex_consistent(&other.robust);
    pthread_mutex_unlock(&other.robust);
    sem_init(&other.began, 0, 0);
    thread = make(&other, 6, signalled, 0);
    sem_wait(&other.began);
    same("pthread_sigqueue", pthread_sigqueue(thread, SIGUSR1, value), 0);
    pthread_join(thread, NULL);
    same("signals", other.heard, 1);
    same("pipe", pipe(other.pipe), 0);
    thread = make(&other, 7, cancelled, 0);
    sem_wait(&other.began);
    same("pthread_cancel", pthread_cancel(thread), 0);
    same("pthread_join of the cancelled", pthread_join(thread, &end), 0);
    same("its end", end == PTHREAD_CANCELED, 1);
    close(other.pipe[0]), close(other.pipe[1]);
    return sum;
}

static int rounds;

/* The last detached thread has said that it began, and may still have its end before it. */
static uint64_t all_destroyed(int maker)
{
    enum { EACH_ROUND = BROOD + 4, LOOKS = 20000 };
    uint64_t all = (uint64_t)rounds * EACH_ROUND, seen = 0;
    for (int i = 0; i < LOOKS && seen < all; i++) {
        seen = __atomic_load_n(&destroyed[maker], __ATOMIC_RELAXED);
        if (seen < all)
            usleep(1000);
    }
    return seen;
}

static void *maker(void *number)
{
    int me = (int)(intptr_t)number;
    for (int round = 0; round < rounds; round++)
        sums[me] += round_of(me, round);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t makers[MAKERS];
    struct sigaction action = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t mask;
    if (argc != 2 || (rounds = atoi(argv[1])) <= 0)
        return 2;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    pthread_key_create(&key, destroy);
    for (intptr_t i = 0; i < MAKERS; i++)
        same("pthread_create", pthread_create(&makers[i], NULL, maker, (void *)i), 0);
    for (int i = 0; i < MAKERS; i++) {
        pthread_join(makers[i], NULL);
        printf("maker %d: %llu, %llu destroyed\n", i, (unsigned long long)sums[i],
               (unsigned long long)all_destroyed(i));
    }
    return 0;
}
