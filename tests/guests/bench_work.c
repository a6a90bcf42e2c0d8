/* About a second of everything: arithmetic, memory, page faults, small calls, a few children.
 *
 *   bench_work ROUNDS
 *
 * Prints the user and system time of this process, in microseconds. What ran before exec in the same
 * process is in it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 4 << 20, MAPPED = 1 << 20 };

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void check(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static double compute(void)
{
    double sum = 0;
    for (int i = 1; i < 300000; i++)
        sum += 1.0 / ((double)i * i) + (double)(next() & 7);
    return sum;
}

static void remember(uint64_t *memory)
{
    for (int i = 0; i < 300000; i++)
        memory[next() % (MEMORY / sizeof *memory)] += i;
}

static void map(void)
{
    char *fresh = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(fresh != MAP_FAILED, "mmap");
    for (int i = 0; i < MAPPED; i += 4096)
        fresh[i] = 1;
    check(munmap(fresh, MAPPED) == 0, "munmap");
}

static void small_calls(int zero, int null)
{
    char buffer[256];
    for (int i = 0; i < 3000; i++) {
        check(syscall(SYS_getppid) >= 0, "getppid");
        check(read(zero, buffer, sizeof buffer) == sizeof buffer, "read");
        check(write(null, buffer, sizeof buffer) == sizeof buffer, "write");
    }
}

static void child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    check(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}

static long us(struct timeval time)
{
    return time.tv_sec * 1000000 + time.tv_usec;
}

int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : 100;
    uint64_t *memory = calloc(1, MEMORY);
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    check(memory && zero >= 0 && null >= 0, "start");
    double sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += compute();
        remember(memory);
        map();
        small_calls(zero, null);
        if (i % 10 == 0)
            child();
    }
    struct rusage own;
    check(getrusage(RUSAGE_SELF, &own) == 0 && sum > 0, "getrusage");
    printf("%ld\n", us(own.ru_utime) + us(own.ru_stime));
    return 0;
}
