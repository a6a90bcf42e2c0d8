/* Locks memory in one way, then maps more of it twice, each time after a line on standard input.
 *
 *   locks one|on-fault|future|future-on-fault
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static char *map(void)
{
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    return memory;
}

/* Computes until a line comes: it is not in a call that goes home. */
static void count_until_line(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char line[16];
    while (poll(&input, 1, 10) == 0)
        ;
    need(read(0, line, sizeof line) > 0, "a line");
}

int main(int argc, char **argv)
{
    const char *kind = argc == 2 ? argv[1] : "";
    char *first = map();
    memset(first, 'f', SIZE / 2);
    if (!strcmp(kind, "one"))
        need(mlock(first, SIZE) == 0, "mlock");
    else if (!strcmp(kind, "on-fault"))
        need(mlock2(first, SIZE, MLOCK_ONFAULT) == 0, "mlock2");
    else if (!strcmp(kind, "future"))
        need(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    else if (!strcmp(kind, "future-on-fault"))
        need(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0, "mlockall");
    else
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    for (int i = 0; i < 2; i++) {
        count_until_line();
        char *more = map();
        memset(more, 'm', SIZE);
        printf("mapped\n");
    }
    count_until_line();
    for (int i = 0; i < SIZE / 2; i++)
        need(first[i] == 'f', "the contents");
    return 0;
}
