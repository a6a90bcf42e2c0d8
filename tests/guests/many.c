/* Has many mappings: of a page each, every second one a page of a file of its own. It has written every
 * STEPth, or all.
 *
 *   many MAPPINGS [STEP]
 *
 * Prints `ready PID`. At each line on standard input it looks at all that it has written and prints `ready PID` once
 * more; `fault ...` and status 1 if one is not as it was. It ends at the end of the input.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void check(int good, const char *what, long number)
{
    if (good)
        return;
    printf("fault: %s %ld\n", what, number);
    fflush(stdout);
    _exit(1);
}

static int file(void)
{
    char name[] = "/var/tmp/many-XXXXXX";
    int made = mkstemp(name);
    check(made >= 0 && ftruncate(made, PAGE) == 0 && unlink(name) == 0, "file", made);
    return made;
}

int main(int words, char **word)
{
    check(words == 2 || words == 3, "usage: many MAPPINGS [STEP]", words);
    long mappings = atol(word[1]), step = words == 3 ? atol(word[2]) : 1;
    int shown = file();
    char *base = mmap(NULL, (size_t)(mappings + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(base != MAP_FAILED, "range", mappings);
    for (long i = 0; i < mappings; i++) {
        int from = i % 2 ? shown : -1, flags = i % 2 ? 0 : MAP_ANONYMOUS;
        char *page = mmap(base + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | flags, from, 0);
        check(page != MAP_FAILED, "mapping", i);
        if (i % step == 0)
            *(long *)page = i;
    }
    char line[64];
    do {
        for (long i = 0; i < mappings; i += step)
            check(*(long *)(base + i * PAGE) == i, "page", i);
        printf("ready %d\n", getpid());
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    return 0;
}
