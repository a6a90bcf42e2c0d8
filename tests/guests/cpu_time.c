/* Uses CPU time at each place, and says what the kernel says about it.
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile), and
 * prints `begun` and `ended` with six times in microseconds: the CPU clocks of the process, of this
 * thread and of another thread, getrusage for the process and for the thread, and times. It stops at
 * the end of its input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>

/* Used by each thread at each place, in microseconds. */
#define WORK 150000

static pthread_barrier_t barrier;
static clockid_t of_other;

static int64_t clock_us(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) {
        printf("fault: clock %d\n", clock);
        exit(1);
    }
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int64_t usage_us(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

static void show(const char *when)
{
    struct tms ticks;
    times(&ticks);
    printf("%s %ld %ld %ld %ld %ld %ld\n", when, clock_us(CLOCK_PROCESS_CPUTIME_ID),
           clock_us(CLOCK_THREAD_CPUTIME_ID), clock_us(of_other), usage_us(RUSAGE_SELF),
           usage_us(RUSAGE_THREAD), (ticks.tms_utime + ticks.tms_stime) * 10000L);
}

static void work(void)
{
    int64_t begun = clock_us(CLOCK_THREAD_CPUTIME_ID);
    while (clock_us(CLOCK_THREAD_CPUTIME_ID) - begun < WORK)
        for (volatile int i = 0; i < 1000000; i++)
            ;
}

static void *other(void *argument)
{
    for (;;) {
        pthread_barrier_wait(&barrier);
        work();
        pthread_barrier_wait(&barrier);
    }
    return argument;
}

int main(void)
{
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_getcpuclockid(thread, &of_other);
    for (;;) {
        char byte;
        printf("ready %d\n", getpid());
        do {
            if (read(0, &byte, 1) != 1 || byte == 'e')
                return 0;
        } while (byte != '\n');
        show("begun");
        pthread_barrier_wait(&barrier);
        work();
        pthread_barrier_wait(&barrier);
        show("ended");
    }
}
