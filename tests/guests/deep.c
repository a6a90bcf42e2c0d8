/* Grows its stack, as deep as it is told.
 *
 * Prints `ready PID`, reads a line with a number of KiB from standard input (so that it can be moved
 * meanwhile), goes so deep, says `was KIB deep`, and does it all once more; it stops at the end of its
 * input. With a second number it waits so many microseconds after each KiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static unsigned pause_us;

static int below(long kib, unsigned char seed)
{
    volatile unsigned char frame[1024];
    memset((void *)frame, seed, sizeof frame);
    if (pause_us)
        usleep(pause_us);
    int found = kib > 1 ? below(kib - 1, seed + 1) : 0;
    return found + (frame[kib % 1024] == seed);
}

int main(void)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (;;) {
        struct rlimit limit;
        getrlimit(RLIMIT_STACK, &limit);
        printf("limit %ld\n", (long)limit.rlim_cur);
        printf("ready %d\n", getpid());
        if (!fgets(line, sizeof line, stdin))
            return 0;
        long kib = 0;
        pause_us = 0;
        sscanf(line, "%ld %u", &kib, &pause_us);
        printf("was %d deep\n", below(kib, (unsigned char)kib));
    }
}
