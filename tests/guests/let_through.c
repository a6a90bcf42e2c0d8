/* Sends itself a signal that only a wait with a mask of its own lets through, and waits so, again and again, by each of
 * the calls that can. Each wait has to end with EINTR and one handler. Ends at a line on standard input, and prints how
 * many did not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static volatile int handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static int one_wait(int kind, int descriptor, const sigset_t *mask)
{
    struct timespec time = {0, 500000000};
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    struct epoll_event event;
    fd_set set;
    switch (kind) {
    case 0:
        return epoll_pwait(descriptor, &event, 1, 500, mask);
    case 1:
        return ppoll(NULL, 0, &time, mask);
    case 2:
        return ppoll(&one, 1, &time, mask);
    case 3:
        return sigsuspend(mask);
    default:
        FD_ZERO(&set);
        FD_SET(descriptor, &set);
        return pselect(descriptor + 1, &set, NULL, NULL, &time, mask);
    }
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    int descriptor = epoll_create1(0), wrong = 0;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, &usual, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (int round = 0; round % 64 != 0 || poll(&input, 1, 0) == 0; round++) {
        int before = handled;
        kill(getpid(), SIGUSR1);
        int result = one_wait(round % 5, descriptor, &none);
        if (result == -1 && errno == EINTR && handled == before + 1)
            continue;
        sigset_t pending;
        sigpending(&pending);
        printf("wait %d: %d, %d handled, pending %d\n", round % 5, result, handled - before,
               sigismember(&pending, SIGUSR1));
        sigprocmask(SIG_UNBLOCK, &usual, NULL);
        sigprocmask(SIG_BLOCK, &usual, NULL);
        wrong++;
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
