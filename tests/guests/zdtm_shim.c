/* Lets a test program of CRIU's zdtm be moved: preloaded into it.
 *
 * Such a program forks itself into the background, and the two processes share a page by which the first
 * one learns that the test is ready. It keeps that page to its end, though nobody looks at it any more, and
 * shared memory would keep it where it is. So the page is private here, and the first process, which only
 * waits, is told through a pipe instead, of which nothing is left when the test is ready.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As the library has them; out of the way of descriptors that tests count on. */
enum { STAGE_OF_FAILURE = 3, AWAY_FROM_OTHERS = 900 };

static volatile uint32_t *stage;
static int told = -1, forked;

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    int is_stage = !stage && !forked && !address && length == 4096 && flags == (MAP_SHARED | MAP_ANONYMOUS);
    if (is_stage)
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *place = real(address, length, protection, flags, fd, offset);
    if (is_stage && place != MAP_FAILED)
        stage = place;
    return place;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

/* Until the test is ready, or gone, or the handler of SIGCHLD has set the stage. */
static void hear(int fd)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    uint32_t heard = STAGE_OF_FAILURE;
    while (*stage == 0) {
        int found = poll(&wait, 1, 1000);
        if (found == 0 || (found < 0 && errno == EINTR))
            continue;
        if (found > 0 && read(fd, &heard, sizeof heard) != sizeof heard)
            heard = STAGE_OF_FAILURE;
        *stage = heard;
    }
    close(fd);
}

pid_t fork(void)
{
    static pid_t (*real)(void);
    int ends[2];
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (!stage || forked)
        return real();
    forked = 1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        _exit(98);
    pid_t pid = real();
    int kept = errno;
    if (pid == 0) {
        told = fcntl(ends[1], F_DUPFD_CLOEXEC, AWAY_FROM_OTHERS);
        close(ends[0]);
        close(ends[1]);
    } else {
        close(ends[1]);
        if (pid > 0)
            hear(ends[0]);
    }
    errno = kept;
    return pid;
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list arguments;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_futex && told >= 0 && (void *)a[0] == (void *)stage && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
        uint32_t now = *stage;
        if (write(told, &now, sizeof now) != sizeof now)
            _exit(97);
        close(told);
        told = -1;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
