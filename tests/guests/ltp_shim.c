/* Lets a test program of the Linux Test Project be moved before it begins: preloaded into it.
 *
 * Such a program consists of a process that looks after it and of a child that does the test. The two
 * share a page in which the child counts its results, and shared memory would keep it where it is. So
 * the child gets the page for itself; what its own children count it learns by a file when they have
 * ended. Whether a test passes is told by what it prints.
 *
 * The child prints `ready PID` and waits for a line on standard input before it begins. Programs that
 * test in their first process (WHIM_LTP_OLD is set) do so there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where the counters are in the page: behind its mark, the context with its two pids, time, runtime and
 * flags. They are found by their place from one build to the next of the same layout. */
enum { COUNTERS_AT = 56, COUNTERS = 5 };

static int *page;
static size_t page_length;
static int depth, counts = -1, before[COUNTERS];
static off_t known;

static void meet(void)
{
    char text[32], byte = 0;
    int length = snprintf(text, sizeof text, "ready %d\n", getpid());
    if (write(1, text, length) != length)
        _exit(99);
    while (byte != '\n' && read(0, &byte, 1) == 1)
        ;
}

static void *(*real_mmap(void))(void *, size_t, int, int, int, off_t)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    return real;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    static const char kind[] = "/dev/shm/ltp_";
    char link[64], name[256] = "";
    void *place = real_mmap()(address, length, protection, flags, fd, offset);
    if (place == MAP_FAILED || !(flags & MAP_SHARED) || fd < 0 || depth > 0)
        return place;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) > 0 && strncmp(name, kind, sizeof kind - 1) == 0)
        page = place, page_length = length;
    return place;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

static int *counters(void) { return page + COUNTERS_AT / sizeof *page; }

static void own_page(void)
{
    int kept = errno;
    void *copy = malloc(page_length);
    memcpy(copy, page, page_length);
    if (real_mmap()(page, page_length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
        _exit(98);
    memcpy(page, copy, page_length);
    free(copy);
    errno = kept;
}

pid_t fork(void)
{
    static pid_t (*real)(void);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (page && depth == 0) {
        char name[] = "/tmp/ltp-counts-XXXXXX";
        counts = mkostemp(name, O_APPEND | O_CLOEXEC);
        unlink(name);
        if (counts >= 0)
            counts = fcntl(counts, F_DUPFD_CLOEXEC, 900), known = 0;
    }
    pid_t pid = real();
    if (pid != 0 || !page)
        return pid;
    if (depth++ == 0) {
        own_page();
        meet();
    }
    memcpy(before, counters(), sizeof before);
    known = lseek(counts, 0, SEEK_END);
    return pid;
}

/* Only children of the test have somebody who reads this. */
__attribute__((destructor)) static void leave_counts(void)
{
    int more[COUNTERS], sum = 0;
    if (!page || depth < 2)
        return;
    for (int i = 0; i < COUNTERS; i++)
        sum += more[i] = counters()[i] - before[i];
    if (sum != 0 && write(counts, more, sizeof more) < 0)
        _exit(97);
}

static void take_counts(void)
{
    int kept = errno, more[COUNTERS];
    while (page && depth > 0 && pread(counts, more, sizeof more, known) == sizeof more) {
        known += sizeof more;
        for (int i = 0; i < COUNTERS; i++)
            counters()[i] += more[i];
    }
    errno = kept;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    static pid_t (*real)(pid_t, int *, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "waitpid");
    pid_t found = real(pid, status, options);
    take_counts();
    return found;
}

pid_t wait(int *status)
{
    static pid_t (*real)(int *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "wait");
    pid_t found = real(status);
    take_counts();
    return found;
}

__attribute__((constructor)) static void begin(void)
{
    if (!getenv("WHIM_LTP_OLD"))
        return;
    unsetenv("WHIM_LTP_OLD");
    meet();
}
