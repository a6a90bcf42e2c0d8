/* Works when it is told to, and says how long that took.
 *
 *   bench_speed MEGABYTES
 *
 * Reads "NAME COUNT" from standard input, does COUNT million steps of that kind and prints the
 * elapsed nanoseconds. The memory is in huge pages where the kernel gives them.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t state = 88172645463325252u;
static volatile double result;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void integers(long steps)
{
    uint64_t sum = 0;
    for (long i = 0; i < steps; i++)
        sum += next() % 1000003;
    result = (double)sum;
}

static void numbers(long steps)
{
    double x = 0.5, y = 0.25;
    for (long i = 0; i < steps; i++) {
        x = x * 1.0000001 + y / (x + 1.5);
        y = y * 0.9999999 + 1e-9;
        if (x > 1e6)
            x = 0.5;
    }
    result = x + y;
}

static void writes(uint64_t *memory, size_t length, long steps)
{
    for (long i = 0; i < steps; i++)
        memory[next() & (length - 1)] += (uint64_t)i;
}

int main(int count, char **words)
{
    char name[32];
    long millions;
    size_t bytes = (size_t)(count > 1 ? atol(words[1]) : 1024) << 20;
    size_t length = bytes / sizeof(uint64_t);
    if (length & (length - 1))
        return 2;
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < length; i++)
        memory[i] = next();
    printf("pid %d\n", getpid());
    fflush(stdout);
    while (scanf("%31s %ld", name, &millions) == 2) {
        int64_t begun = now_ns();
        if (strcmp(name, "integers") == 0)
            integers(millions * 1000000);
        else if (strcmp(name, "numbers") == 0)
            numbers(millions * 1000000);
        else if (strcmp(name, "writes") == 0)
            writes(memory, length, millions * 1000000);
        else
            return 2;
        printf("%lld\n", (long long)(now_ns() - begun));
        fflush(stdout);
    }
    return 0;
}
