/* Timers that are home's, seen by the clock of wherever it runs: none is ever early, and the clock never
 * goes back.
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile), and does
 * it all once more; it stops at the end of its input.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
/* Clocks of other machines and namespaces are further away than this, and no stop takes as long. */
#define LEAP (600 * SECOND)

static int64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

int main(void)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    int64_t last[2] = {now(clocks[0]), now(clocks[1])};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        char byte;
        printf("ready %d\n", getpid());
        do {
            if (read(0, &byte, 1) != 1)
                return 0;
        } while (byte != '\n');
        for (int i = 0; i < 4; i++) {
            int64_t before = now(clocks[i / 2]), until = before + 3000000;
            int timer = timerfd_create(clocks[i / 2], 0);
            struct itimerspec in = {.it_value = {until / SECOND, until % SECOND}};
            uint64_t expired = 0;
            if (before < last[i / 2])
                printf("fault: the clock went from %ld to %ld\n", last[i / 2], before);
            if (before - last[i / 2] > LEAP)
                printf("fault: the clock leapt from %ld to %ld\n", last[i / 2], before);
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &in, NULL);
            if (read(timer, &expired, sizeof expired) != sizeof expired || expired != 1)
                printf("fault: the timer counts %lu\n", expired);
            last[i / 2] = now(clocks[i / 2]);
            if (last[i / 2] < until)
                printf("fault: a timer is %ld ns early\n", until - last[i / 2]);
            close(timer);
        }
        printf("tried\n");
    }
}
