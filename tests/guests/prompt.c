/* Sends itself signals that it handles, again and again, by each call that can. The handler has to have run when the call
 * returns. Ends at a line on standard input, and prints how often it had not.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

int main(void)
{
    const int signals[] = {SIGCONT, SIGUSR1, SIGCONT, SIGCHLD, SIGCONT};
    struct sigaction action = {.sa_handler = on_signal};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    int late = 0;
    sigaction(SIGCONT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (int round = 0; round % 64 != 0 || poll(&input, 1, 0) == 0; round++) {
        int before = handled, number = signals[round % 5];
        if (round % 3 == 0)
            sigqueue(getpid(), number, (union sigval){.sival_int = round});
        else if (round % 3 == 1)
            kill(getpid(), number);
        else
            syscall(SYS_tgkill, getpid(), gettid(), number);
        late += handled != before + 1;
        while (handled == before)
            ;
    }
    printf("%d late\n", late);
    return late != 0;
}
