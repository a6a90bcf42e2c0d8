/* Makes calls with buffers that lie, wholly or with their end, in memory that the kernel does not let the program
 * touch: each line on standard input, until "end", names a kind of such memory; a line of what the calls said, and of
 * what they left where they had read, answers it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, LENGTH = 4 * PAGE, INSTALL = 102, REMOVE = 103, READ = 22, WRITE = 23 };

static char said[1024], filling[3 * PAGE];
static int source, target, cut;

static void say(const char *how, ...)
{
    va_list arguments;
    size_t length = strlen(said);
    va_start(arguments, how);
    vsnprintf(said + length, sizeof said - length, how, arguments);
    va_end(arguments);
}

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void tell(const char *what, long result)
{
    say(result < 0 ? " %s e%ld" : " %s %ld", what, result < 0 ? (long)errno : result);
}

/* Of anonymous memory, or of a file. */
static char *area(int file)
{
    int how = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0);
    char *found = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, how, file, 0);
    need(found != MAP_FAILED, "mmap");
    if (file < 0)
        memset(found, 'm', LENGTH);
    return found;
}

/* What is before the edge may be touched, and a page behind it not. */
static void probe(char *edge)
{
    char into[512];
    int ends[2], pair[2];
    tell("read", pread(source, edge, 200, 0));
    tell("part", pread(source, edge - 96, 200, 0));
    struct iovec both[2] = {{into, 10}, {edge, 10}};
    tell("vector", preadv(source, both, 2, 0));
    tell("write", pwrite(target, edge, 100, 0));
    tell("part", pwrite(target, edge - 96, 200, 0));
    tell("vector", pwritev(target, both, 2, 0));
    tell("fstat", fstat(source, (struct stat *)edge));
    tell("half", fstat(source, (struct stat *)(edge - 64)));
    tell("cwd", syscall(SYS_getcwd, edge, 1000) < 0 ? -1 : 0);
    tell("link", readlink("/proc/self/cwd", edge, 10) < 0 ? -1 : 0);
    int opened = open(edge, O_RDONLY);
    tell("open", opened < 0 ? -1 : close(opened));
    need(pipe2(ends, O_NONBLOCK) == 0 && write(ends[1], "abcdef", 6) == 6, "a pipe");
    tell("pipe", read(ends[0], edge, 3));
    tell("waiting", ioctl(ends[0], FIONREAD, edge));
    tell("pipes", pipe(((int *)edge) - 1));
    tell("left", read(ends[0], into, sizeof into));
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "a pair of sockets");
    tell("send", send(pair[0], edge - 96, 200, 0));
    need(send(pair[0], filling, 200, 0) == 200, "send");
    tell("receive", recv(pair[1], edge - 96, 200, MSG_DONTWAIT));
    tell("left", recv(pair[1], into, sizeof into, MSG_DONTWAIT));
    for (int end = 0; end < 2; end++)
        close(ends[end]), close(pair[end]);
}

enum { KINDS = 8 };
static char *kinds[KINDS];

static int file(void)
{
    char name[] = "/tmp/buffers-XXXXXX";
    int made = mkstemp(name);
    need(made >= 0 && unlink(name) == 0, "a file");
    return made;
}

static void prepare(void)
{
    memset(filling, 'f', sizeof filling);
    source = file(), target = file(), cut = file();
    need(write(source, filling, sizeof filling) == sizeof filling, "write");
    need(write(cut, filling, PAGE) == PAGE, "write");
    for (int kind = 0; kind < KINDS; kind++)
        kinds[kind] = area(kind == 0 || kind == 6 ? cut : -1) + PAGE;
    /* Kernels before 6.13 have no guard pages. */
    madvise(kinds[1], PAGE, INSTALL);
    madvise(kinds[7], PAGE, INSTALL);
    for (int kind = 6; kind < KINDS; kind++)
        need(mprotect(kinds[kind] - PAGE, LENGTH, PROT_WRITE) == 0, "mprotect");
    need(mprotect(kinds[2], PAGE, PROT_READ) == 0, "mprotect");
    need(mprotect(kinds[3], PAGE, PROT_NONE) == 0, "mprotect");
    need(munmap(kinds[4], PAGE) == 0, "munmap");
}

/* A page that calls have just used is closed, and opened again. */
static void new_guard(void)
{
    char *edge = area(-1) + PAGE;
    tell("before", pread(source, edge, 200, 0));
    tell("guard", madvise(edge, PAGE, INSTALL));
    probe(edge);
    tell("open", madvise(edge, PAGE, REMOVE));
    tell("after", pread(source, edge, 200, 0));
    say(" %c", edge[199]);
    munmap(edge - PAGE, LENGTH);
}

static void populate(char *edge)
{
    tell("read", madvise(edge, PAGE, READ));
    tell("write", madvise(edge, PAGE, WRITE));
    tell("all", madvise(edge - PAGE, LENGTH, READ));
    tell("before", madvise(edge - PAGE, PAGE, WRITE));
    tell("wrong", madvise(edge + 1, PAGE, READ));
}

/* The file is as long as the mapping for a while. */
static void longer(void)
{
    need(ftruncate(cut, LENGTH) == 0, "ftruncate");
    tell("populate", madvise(kinds[0], PAGE, READ));
    tell("read", pread(source, kinds[0], 200, 0));
    say(" %c", kinds[0][199]);
    need(ftruncate(cut, PAGE) == 0, "ftruncate");
}

/* Memory that may be written and not read, before and behind memory that may be read. */
static void unread(void)
{
    char *start = area(-1), copy[LENGTH];
    for (long page = 0; page < 4; page += 2)
        need(mprotect(start + page * PAGE, PAGE, PROT_WRITE) == 0, "mprotect");
    tell("write", pwrite(target, start, LENGTH, 0));
    tell("part", pwrite(target, start + PAGE - 96, 200, 0));
    tell("back", pread(target, copy, LENGTH, 0));
    tell("read", pread(source, start, sizeof filling, 0));
    munmap(start, LENGTH);
}

int main(void)
{
    static const char *names[] = {"end of file", "guard", "read only", "closed", "hole", "open",
                                  "unread end of file", "unread guard"};
    char line[64];
    prepare();
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        line[strcspn(line, "\n")] = said[0] = 0;
        for (int kind = 0; kind < KINDS; kind++)
            if (strcmp(line, names[kind]) == 0)
                probe(kinds[kind]);
        if (strcmp(line, "new guard") == 0)
            new_guard();
        if (strcmp(line, "unread") == 0)
            unread();
        if (strcmp(line, "populate") == 0)
            populate(kinds[0]);
        if (strcmp(line, "longer") == 0)
            longer();
        puts(said);
    }
    return 0;
}
