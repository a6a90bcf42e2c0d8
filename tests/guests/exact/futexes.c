/* Exactness: locks whose owner ends, and locks that lend priority. */
#include "common.h"

static pthread_mutex_t one, two;
static pthread_barrier_t barrier;
static volatile int turn_of, order[8], count;

static void make(pthread_mutex_t *mutex, int robust, int lends)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    if (robust)
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (lends)
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    need(pthread_mutex_init(mutex, &attributes) == 0, "pthread_mutex_init");
}

static const char *result(int error) { return error ? strerrorname_np(error) : "0"; }

/* Takes both and ends with them, when it is its turn. */
static void *dies_with_both(void *unused)
{
    pthread_mutex_lock(&one), pthread_mutex_lock(&two);
    pthread_barrier_wait(&barrier);
    while (turn_of != 1)
        nap(1);
    return unused;
}

static void *takes(void *argument)
{
    pthread_barrier_wait(&barrier);
    int error = pthread_mutex_lock(argument);
    order[__atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST)] = error;
    if (error == EOWNERDEAD)
        pthread_mutex_consistent(argument);
    return pthread_mutex_unlock(argument) ? NULL : argument;
}

static void with_owner(int lends)
{
    pthread_t owner, waiters[3];
    make(&one, 1, lends), make(&two, 1, lends);
    pthread_barrier_init(&barrier, NULL, 5);
    pthread_create(&owner, NULL, dies_with_both, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&waiters[i], NULL, takes, &one);
    pthread_barrier_wait(&barrier);
    nap(100);
    meet();
    printf("held: %s\n", result(pthread_mutex_trylock(&one)));
    turn_of = 1;
    pthread_join(owner, NULL);
    int died = 0;
    for (int i = 0; i < 3; i++) {
        void *good;
        pthread_join(waiters[i], &good);
        printf("unlocked %d\n", good == &one);
    }
    for (int i = 0; i < 3; i++)
        died += order[i] == EOWNERDEAD;
    printf("told of the death: %d, of %d\n", died, count);
    meet();
    printf("again: %s", result(pthread_mutex_lock(&one)));
    printf(" %s\n", result(pthread_mutex_unlock(&one)));
    printf("the other: %s", result(pthread_mutex_lock(&two)));
    printf(" %s", result(pthread_mutex_unlock(&two)));
    printf(" %s\n", result(pthread_mutex_lock(&two)));
}

CASE(owner_dies, ANYWHERE) { with_owner(0); }
CASE(lending_owner_dies, ANYWHERE) { with_owner(1); }

/* Waiters are there before, during and after a move; everybody gets the lock in the end. */
static void *counts(void *argument)
{
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&one);
        (*(volatile int *)argument)++;
        if (i % 50 == 0)
            nap(1);
        pthread_mutex_unlock(&one);
    }
    return NULL;
}

CASE(lending, AWAY)
{
    pthread_t threads[4];
    static int sum;
    make(&one, 0, 1);
    pthread_mutex_lock(&one);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, counts, &sum);
    nap(50);
    meet();
    printf("mine: %s\n", result(pthread_mutex_lock(&one)));
    pthread_mutex_unlock(&one);
    nap(1);
    pthread_mutex_lock(&one);
    meet();
    printf("mine: %s\n", result(pthread_mutex_lock(&one)));
    printf("unlock: %s\n", result(pthread_mutex_unlock(&one)));
    meet();
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("sum %d, unlock again: %s\n", sum, result(pthread_mutex_unlock(&one)));
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    printf("timed: %s\n", result(pthread_mutex_timedlock(&one, &soon)));
    printf("timed, mine: %s\n", result(pthread_mutex_timedlock(&one, &soon)));
}

/* A robust list by hand: the kernel walks it when the thread ends. */
CASE(by_hand, AWAY)
{
    void *head;
    size_t length;
    need(syscall(SYS_get_robust_list, 0, &head, &length) == 0, "get_robust_list");
    meet();
    void *again;
    syscall(SYS_get_robust_list, 0, &again, &length);
    printf("the same %d, length %zu\n", head == again, length);
    printf("other length: %ld", syscall(SYS_set_robust_list, head, 23));
    printf(" %s\n", wrong());
    unsigned word = 0;
    long taken = syscall(SYS_futex, &word, (6 | 128), 0, NULL, NULL, 0);
    printf("taken %ld, by me %d", taken, (int)word == gettid());
    taken = syscall(SYS_futex, &word, (6 | 128), 0, NULL, NULL, 0);
    printf(", again %ld %s", taken, wrong());
    taken = syscall(SYS_futex, &word, (7 | 128), 0, NULL, NULL, 0);
    printf(", freed %ld %u\n", taken, word);
}
