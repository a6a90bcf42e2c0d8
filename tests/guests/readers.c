/* Threads that do nothing but read clocks, one way each, so that nearly every stop finds them in the kernel's own code
 * (vDSO). Prints `ready PID`, and at a line on standard input how often a clock stepped back or leapt: `N wrong`.
 *
 *   readers [machine] [interrupted | ignoring]
 *
 * machine: it has the clocks of the namespace that descriptor 9 shows, which is closed then. interrupted: a handler that
 * lasts interrupts one of the threads every few milliseconds. ignoring: it ignores SIGTRAP, and has to do so at the end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Clocks of other machines and namespaces are further away than this, and no stop takes as long. */
static const long long FAR = 60000000000LL;

static volatile int over;
static volatile long wrong;

static long long nanoseconds(struct timespec at)
{
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static long long of(clockid_t clock)
{
    struct timespec at = {-1, -1};
    clock_gettime(clock, &at);
    return nanoseconds(at);
}

static long long monotonic(void) { return of(CLOCK_MONOTONIC); }
static long long since_boot(void) { return of(CLOCK_BOOTTIME); }
static long long coarse(void) { return of(CLOCK_MONOTONIC_COARSE); }
static long long seconds(void) { return time(NULL) * 1000000000LL; }

static long long of_day(void)
{
    struct timeval at = {-1, -1};
    gettimeofday(&at, NULL);
    return at.tv_sec * 1000000000LL + at.tv_usec * 1000LL;
}

static struct reader {
    const char *name;
    long long (*read)(void);
} readers[] = {
    {"CLOCK_MONOTONIC", monotonic},
    {"CLOCK_BOOTTIME", since_boot},
    {"CLOCK_MONOTONIC_COARSE", coarse},
    {"time", seconds},
    {"gettimeofday", of_day},
};
enum { READERS = sizeof readers / sizeof readers[0] };

static void *reads(void *which)
{
    struct reader *reader = which;
    long long last = reader->read();
    if (reader->read == seconds) {
        /* In a handler that has interrupted it at home nobody sees where it stands ("What cannot be hidden"). */
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    }
    while (!over) {
        long long now = reader->read();
        if (now < last || now - last > FAR) {
            __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
            printf("%s from %lld to %lld\n", reader->name, last, now);
        }
        last = now;
    }
    return NULL;
}

/* For a millisecond of its thread's time, without a look at a clock of the kernel's own code. */
static void lasts(int signal)
{
    (void)signal;
    struct timespec begun, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (nanoseconds(now) - nanoseconds(begun) < 1000000);
}

int main(int count, char **words)
{
    if (count < 2)
        return 2;
    const char *how = words[count - 1];
    if (strcmp(words[1], "machine") == 0 && setns(9, CLONE_NEWTIME) != 0) {
        perror("setns");
        return 1;
    }
    close(9);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int ignoring = strcmp(how, "ignoring") == 0;
    if (ignoring)
        signal(SIGTRAP, SIG_IGN);
    struct sigaction action = {.sa_handler = lasts, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    pthread_t threads[READERS];
    for (int at = 0; at < READERS; at++)
        pthread_create(&threads[at], NULL, reads, &readers[at]);
    /* It interrupts the readers alone. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    struct itimerval every = {{0, 7000}, {0, 7000}};
    if (strcmp(how, "interrupted") == 0)
        setitimer(ITIMER_REAL, &every, NULL);
    printf("ready %d\n", getpid());
    char line[64];
    if (fgets(line, sizeof line, stdin) == NULL)
        return 2;
    over = 1;
    for (int at = 0; at < READERS; at++)
        pthread_join(threads[at], NULL);
    struct sigaction found;
    sigaction(SIGTRAP, NULL, &found);
    wrong += ignoring != (found.sa_handler == SIG_IGN);
    printf("%ld wrong\n", wrong);
    return 0;
}
