/* Starts a program, plainly and by a wrapper in turn, and says how long each took until its end.
 *
 *   bench_starts PROGRAM WRAPPER...
 *
 * Reads a number of pairs from standard input, and prints for each the time of the plain start and that of the other,
 * in nanoseconds, all on one line.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS_MAX = 1000 };

extern char **environ;

static void check(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t start_ns(char **words)
{
    pid_t child;
    int status;
    int64_t begun = now_ns();
    check(posix_spawn(&child, words[0], NULL, NULL, words, environ) == 0, "posix_spawn");
    check(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    return now_ns() - begun;
}

int main(int argc, char **argv)
{
    int pairs;
    check(argc > 2, "bench_starts PROGRAM WRAPPER...");
    char *plain[] = {argv[1], NULL};
    char **wrapped = calloc((size_t)argc + 1, sizeof *wrapped);
    check(wrapped != NULL, "calloc");
    for (int i = 2; i < argc; i++)
        wrapped[i - 2] = argv[i];
    wrapped[argc - 2] = argv[1];
    printf("pid %d\n", getpid());
    fflush(stdout);
    while (scanf("%d", &pairs) == 1) {
        check(0 < pairs && pairs <= PAIRS_MAX, "a number of pairs");
        for (int i = 0; i < pairs; i++) {
            /* Each of the two is the first as often as the other. */
            int64_t times[2];
            int first = i & 1;
            times[first] = start_ns(first ? wrapped : plain);
            times[!first] = start_ns(first ? plain : wrapped);
            printf("%s%lld %lld", i ? " " : "", (long long)times[0], (long long)times[1]);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
