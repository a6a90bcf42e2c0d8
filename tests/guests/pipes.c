/* A thread writes to a pipe that nobody reads, again and again, and blocks the signal that this brings. The signal
 * has to wait for that thread, and not for the process, whose other thread looks for it each time. Ends at a line on
 * standard input, and prints for how many writes that was not so, and how many brought no signal or a second one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE, LOOK, END };
static int turn, ends[2];
static sigset_t broken;

static int step(void)
{
    return __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
}

static void next(int what)
{
    __atomic_store_n(&turn, what, __ATOMIC_SEQ_CST);
}

static int waits(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

static void *writes(void *nothing)
{
    struct timespec none = {0, 0};
    long none_came = 0, second = 0;
    while (step() != END) {
        if (write(ends[1], "x", 1) != -1 || errno != EPIPE)
            printf("write: %d\n", errno);
        int expected = WRITE;
        if (__atomic_compare_exchange_n(&turn, &expected, LOOK, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            while (step() == LOOK)
                sched_yield();
        none_came += sigtimedwait(&broken, NULL, &none) != SIGPIPE;
        while (waits()) {
            second++;
            sigtimedwait(&broken, NULL, &none);
        }
    }
    printf("no signal %ld, a second one %ld\n", none_came, second);
    return nothing;
}

int main(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    long looks = 0, of_process = 0;
    pthread_t writer;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigprocmask(SIG_BLOCK, &broken, NULL);
    if (pipe(ends) != 0 || close(ends[0]) != 0 || pthread_create(&writer, NULL, writes, NULL) != 0)
        return 3;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) {
        if (step() != LOOK) {
            sched_yield();
            continue;
        }
        of_process += waits();
        if (++looks % 64 == 0 && poll(&input, 1, 0) == 1)
            break;
        next(WRITE);
    }
    next(END);
    pthread_join(writer, NULL);
    printf("for the process %ld\n", of_process);
    return 0;
}
