/* Timers that are home's, seen by the clock of wherever it runs: none is ever early, and the clock never
 * goes back.
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile) and looks at
 * the clocks all the time, and does it all once more; it stops at the end of its input.
 */
#include <poll.h>
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

static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};
static int64_t last[2];

/* What a clock says now, which is not less than what it said before. */
static int64_t look(int i)
{
    int64_t before = last[i];
    last[i] = now(clocks[i]);
    if (last[i] < before)
        printf("fault: the clock went from %ld to %ld\n", before, last[i]);
    if (last[i] - before > LEAP)
        printf("fault: the clock leapt from %ld to %ld\n", before, last[i]);
    return last[i];
}

int main(void)
{
    struct pollfd in = {.events = POLLIN};
    last[0] = now(clocks[0]), last[1] = now(clocks[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        char byte;
        printf("ready %d\n", getpid());
        do {
            while (poll(&in, 1, 1) == 0)
                look(0), look(1);
            if (read(0, &byte, 1) != 1)
                return 0;
        } while (byte != '\n');
        for (int i = 0; i < 4; i++) {
            int64_t until = look(i / 2) + 3000000;
            int timer = timerfd_create(clocks[i / 2], 0);
            struct itimerspec when = {.it_value = {until / SECOND, until % SECOND}};
            uint64_t expired = 0;
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
            if (read(timer, &expired, sizeof expired) != sizeof expired || expired != 1)
                printf("fault: the timer counts %lu\n", expired);
            if (look(i / 2) < until)
                printf("fault: a timer is %ld ns early\n", until - last[i / 2]);
            close(timer);
        }
        printf("tried\n");
    }
}
