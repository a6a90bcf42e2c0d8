/* Descriptors that send their signals to its second thread alone. All signals are blocked: the first thread looks for a
 * while whether it gets any, then the second one takes what it has to have. Ends at a line on standard input, and prints how
 * often it was otherwise.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SENDERS = 3 };

/* Of a pipe and a pair of sockets; the last one says of no descriptor that it comes from it. */
static int signals[SENDERS];
static pid_t second;
static pthread_barrier_t turn;
static volatile int wrong, over;

static sigset_t only(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static void *take(void *unused)
{
    (void)unused;
    second = gettid();
    pthread_barrier_wait(&turn);
    for (;;) {
        pthread_barrier_wait(&turn);
        if (over)
            return NULL;
        for (int at = 0; at < SENDERS; at++) {
            const struct timespec patience = {.tv_sec = 10};
            sigset_t set = only(signals[at]);
            wrong += sigtimedwait(&set, NULL, &patience) != signals[at];
        }
        pthread_barrier_wait(&turn);
    }
}

static void own(int descriptor, int signal)
{
    struct f_owner_ex owner = {F_OWNER_TID, second};
    fcntl(descriptor, F_SETOWN_EX, &owner);
    if (signal != SIGIO)
        fcntl(descriptor, F_SETSIG, signal);
    fcntl(descriptor, F_SETFL, O_ASYNC | O_NONBLOCK);
}

/* For 20 ms of its own time. */
static void look(void)
{
    const struct timespec no_time = {0};
    clock_t end = clock() + CLOCKS_PER_SEC / 50;
    while (clock() < end)
        for (int at = 0; at < SENDERS; at++) {
            sigset_t set = only(signals[at]);
            wrong += sigtimedwait(&set, NULL, &no_time) == signals[at];
        }
}

int main(void)
{
    int ends[SENDERS][2];
    struct pollfd input = {.fd = 0, .events = POLLIN};
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&thread, NULL, take, NULL);
    pthread_barrier_wait(&turn);
    for (int at = 0; at < SENDERS; at++) {
        signals[at] = at == SENDERS - 1 ? SIGIO : SIGRTMIN + at;
        if (at == 0 ? pipe(ends[at]) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[at]))
            return 1;
        own(ends[at][0], signals[at]);
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        char byte = 0;
        for (int at = 0; at < SENDERS; at++)
            wrong += write(ends[at][1], &byte, 1) != 1;
        look();
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        for (int at = 0; at < SENDERS; at++)
            wrong += read(ends[at][0], &byte, 1) != 1;
    }
    over = 1;
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    printf("%d wrong\n", wrong);
    return 0;
}
