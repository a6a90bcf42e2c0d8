/* Keeps guard pages (MADV_GUARD_INSTALL) in memory of three kinds, and checks after every line on
 * standard input that each page is what it has to be; then it changes some of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, KINDS = 3, INSTALL = 102, REMOVE = 103 };

static const char *names[KINDS] = {"anonymous", "file", "locked"};
static volatile char *memory[KINDS];
/* What is at the beginning of each page; 0: zeros, -1: a guard. */
static int expected[KINDS][PAGES];
static sigjmp_buf back;

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void fault(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static int look(volatile char *page)
{
    if (sigsetjmp(back, 1))
        return -1;
    return *page;
}

static void check(int stage)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int page = 0; page < PAGES; page++) {
            int found = look(memory[kind] + page * PAGE);
            if (found != expected[kind][page]) {
                fprintf(stderr, "fault: stage %d, %s, page %d: %d, not %d\n", stage, names[kind],
                        page, found, expected[kind][page]);
                exit(4);
            }
        }
}

static void advise(int kind, int page, int how)
{
    need(madvise((void *)(memory[kind] + page * PAGE), PAGE, how) == 0, "madvise");
}

static void guard(int kind, int page)
{
    advise(kind, page, INSTALL);
    expected[kind][page] = -1;
}

static void uncover(int kind, int page)
{
    advise(kind, page, REMOVE);
    /* What was written there is gone. */
    expected[kind][page] = kind == 1 ? 'f' : 0;
}

static void count_until_line(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char line[16];
    while (poll(&input, 1, 10) == 0)
        ;
    need(read(0, line, sizeof line) > 0, "a line");
}

int main(void)
{
    char filling[PAGE];
    int file = open("guards-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need(file >= 0, "a file");
    memset(filling, 'f', PAGE);
    for (int page = 0; page < PAGES; page++)
        need(write(file, filling, PAGE) == PAGE, "write");
    for (int kind = 0; kind < KINDS; kind++) {
        int flags = MAP_PRIVATE | (kind == 1 ? 0 : MAP_ANONYMOUS);
        memory[kind] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, kind == 1 ? file : -1, 0);
        need(memory[kind] != MAP_FAILED, "mmap");
        for (int page = 0; page < PAGES; page++) {
            expected[kind][page] = kind == 1 ? 'f' : 0;
            if (page % 2) {
                memory[kind][page * PAGE] = 'a' + page;
                expected[kind][page] = 'a' + page;
            }
        }
    }
    if (madvise((void *)memory[0], PAGE, INSTALL) != 0) {
        printf("impossible %s\n", strerror(errno));
        return 0;
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int page = 0; page < 8; page++)
            if (page != 5 && page != 6)
                guard(kind, page);
    need(mlock((void *)memory[2], PAGES * PAGE) == 0 || errno == EFAULT || errno == ENOMEM, "mlock");
    signal(SIGSEGV, fault);
    check(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    for (int stage = 1; stage <= 4; stage++) {
        count_until_line();
        check(stage);
        for (int kind = 0; kind < 2; kind++) {
            uncover(kind, 2 * stage - 2 < 5 ? 2 * stage - 2 : 7);
            guard(kind, 7 + stage);
        }
        check(stage);
        printf("checked %d\n", stage);
    }
    count_until_line();
    check(5);
    return 0;
}
