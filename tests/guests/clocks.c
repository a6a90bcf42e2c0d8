/* Time goes forward, at its usual pace, on every clock and by every way of asking, whatever happens.
 * CPU time: see compare_cpu.
 *
 *   clocks COUNT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
/* No stop takes longer, and a clock of another machine is further away. */
#define LEAP (20 * SECOND)

/* The last two measure CPU time, of which home's kernel knows only what was used at home. */
static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
                                   CLOCK_MONOTONIC_COARSE, CLOCK_PROCESS_CPUTIME_ID,
                                   CLOCK_THREAD_CPUTIME_ID};
enum { CLOCKS = sizeof clocks / sizeof *clocks, CPU_CLOCKS = CLOCKS - 2 };

static long count;
static int64_t shared_last;

static int64_t nanoseconds(struct timespec time)
{
    return time.tv_sec * SECOND + time.tv_nsec;
}

static int64_t ask(clockid_t clock, int direct)
{
    struct timespec time;
    int failed = direct ? syscall(SYS_clock_gettime, clock, &time) : clock_gettime(clock, &time);
    if (failed) {
        fprintf(stderr, "fault: clock %d: %d\n", clock, errno);
        _exit(1);
    }
    return nanoseconds(time);
}

static void compare(const char *what, int64_t before, int64_t now, long at)
{
    if (now >= before && now - before < LEAP)
        return;
    fprintf(stderr, "fault: %s went from %ld to %ld at %ld\n", what, before, now, at);
    _exit(1);
}

/* A CPU clock goes forward, at home and away, and does not jump when the program leaves home. Only
 * where it comes home may the clock step back: to what home's kernel has counted, which is never less
 * than what it was at home before. */
static void compare_cpu(int64_t *floor, int64_t before, int64_t now, long at)
{
    if (now < before) {
        compare("a CPU clock at home", *floor, now, at);
        *floor = now;
    } else {
        compare("a CPU clock", before, now, at);
    }
}

/* Threads compare with what other threads have seen. */
static void *watch(void *argument)
{
    (void)argument;
    for (long i = 0; i < count * 2000; i++) {
        int64_t before = __atomic_load_n(&shared_last, __ATOMIC_SEQ_CST);
        int64_t now = ask(CLOCK_MONOTONIC, 0);
        compare("the clock seen by another thread", before, now, i);
        while (before < now && !__atomic_compare_exchange_n(&shared_last, &before, now, 0,
                                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    count = argc == 2 ? atol(argv[1]) : 0;
    pthread_t threads[2];
    shared_last = ask(CLOCK_MONOTONIC, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, watch, NULL);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    int64_t last[CLOCKS], floors[CLOCKS], begun = ask(CLOCK_MONOTONIC, 1);
    int64_t real_begun = ask(CLOCK_REALTIME, 1);
    for (int i = 0; i < CLOCKS; i++)
        last[i] = floors[i] = ask(clocks[i], 0);
    for (long i = 0; i < count; i++) {
        for (int j = 0; j < 2 * CLOCKS; j++) {
            int64_t now = ask(clocks[j / 2], j % 2);
            if (j / 2 >= CPU_CLOCKS)
                compare_cpu(&floors[j / 2], last[j / 2], now, j);
            else
                compare("a clock", last[j / 2], now, j);
            last[j / 2] = now;
        }
        /* An absolute time in the future is waited for, and not much longer. */
        int64_t wanted = ask(CLOCK_MONOTONIC, 0) + 2000000;
        struct timespec until = {wanted / SECOND, wanted % SECOND};
        int error;
        while ((error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) == EINTR)
            ;
        int64_t woken = ask(CLOCK_MONOTONIC, 0);
        if (error)
            compare("clock_nanosleep", error, 0, i);
        compare("a sleeper's clock", wanted, woken, i);
        if (i % 16 == 0) {
            int64_t before = ask(CLOCK_MONOTONIC, 0);
            struct itimerspec in = {.it_value = {(before + 3000000) / SECOND, (before + 3000000) % SECOND}};
            uint64_t expired;
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &in, NULL);
            if (read(timer, &expired, sizeof expired) != sizeof expired || expired != 1)
                compare("a timer's count", 1, 0, i);
            compare("a timer's clock", before + 3000000, ask(CLOCK_MONOTONIC, 0), i);
        }
        if (i % 200 == 0)
            printf("%ld\n", i);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    /* However long it took: not less than all its sleeps, and as long by the time of day. */
    int64_t took = ask(CLOCK_MONOTONIC, 1) - begun, real = ask(CLOCK_REALTIME, 1) - real_begun;
    if (took < count * 2000000)
        compare("the whole run", count * 2000000, took, 0);
    compare("the whole run by two clocks", real, took + LEAP / 2, 0);
    printf("ended\n");
    return 0;
}
