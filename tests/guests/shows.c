/* Has its own status in /proc open for half of the time, and reads it then: it blocks all signals, and that is to be
 * there. Ends at a line on standard input, and prints how often it was otherwise.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void compute(void)
{
    clock_t end = clock() + CLOCKS_PER_SEC / 50;
    while (clock() < end)
        continue;
}

int main(void)
{
    static char text[1 << 14];
    struct pollfd input = {.fd = 0, .events = POLLIN};
    sigset_t all;
    int wrong = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        int status = open("/proc/self/status", O_RDONLY);
        compute();
        ssize_t length = read(status, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        close(status);
        char *blocked = strstr(text, "SigBlk:");
        wrong += !blocked || strtoul(blocked + 7, NULL, 16) == 0;
        compute();
    }
    printf("%d wrong\n", wrong);
    return 0;
}
