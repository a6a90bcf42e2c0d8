/* Grows to a size, page by page, then checks every page.
 *
 *   grow MEGABYTES MICROSECONDS [fork]
 *
 * MICROSECONDS are waited, computing, between two megabytes. It begins at a line on standard input,
 * and ends at another one; with `fork` it has a child then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20, PAGE = 4096 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    char line[16];
    if (argc < 3)
        return 2;
    size_t size = strtoul(argv[1], NULL, 10) * MEGABYTE;
    double pause = strtod(argv[2], NULL);
    unsigned char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    if (read(0, line, sizeof line) <= 0)
        return 4;
    for (size_t at = 0; at < size; at += PAGE) {
        memset(memory + at, 1 + at / PAGE % 251, PAGE);
        if (at % MEGABYTE == 0)
            for (double begin = now(); now() < begin + pause;)
                ;
    }
    unsigned long sum = 0;
    for (size_t at = 0; at < size; at++)
        sum = sum * 31 + memory[at];
    printf("sum %lx\n", sum);
    if (read(0, line, sizeof line) <= 0)
        return 4;
    if (argc > 3) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(memory[0]);
        if (waitpid(child, &status, 0) != child)
            return 5;
        printf("child %d\n", WEXITSTATUS(status));
    }
    return 0;
}
