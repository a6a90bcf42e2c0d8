/* Looks at the clock all the while and says when it has not been able to: what a program sees of
 * its own moves.
 *
 *   bench_stamps MEGABYTES
 *
 * Prints "pid P", then "gap MICROSECONDS" for each gap of more than 2 ms, and "tick" at times: what
 * it saw before that is known then.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SHOWN_US = 2000, SLEEP_US = 250, TICK_US = 20000 };

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int64_t now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

int main(int count, char **words)
{
    size_t length = (size_t)(count > 1 ? atol(words[1]) : 10) << 17;
    uint64_t *memory = malloc(length * sizeof *memory);
    if (!memory)
        return 1;
    for (size_t i = 0; i < length; i++)
        memory[i] = next();
    printf("pid %d\n", getpid());
    fflush(stdout);
    struct timespec pause = {0, SLEEP_US * 1000};
    for (int64_t last = now_us(), tick = last;;) {
        nanosleep(&pause, NULL);
        for (int i = 0; i < 100; i++)
            memory[next() % length]++;
        int64_t now = now_us();
        int shown = now - last > SHOWN_US;
        if (shown)
            printf("gap %ld\n", (long)(now - last));
        if (now - tick > TICK_US) {
            tick = now;
            shown = 1;
            puts("tick");
        }
        if (shown) {
            fflush(stdout);
            now = now_us();
        }
        last = now;
    }
}
