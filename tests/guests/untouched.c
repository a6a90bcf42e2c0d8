/* Has the kernel read and write memory that this program has never touched: pages of a file, mapped
 * privately.
 *
 * Prints `ready PID`, waits for a line, makes the calls, each on pages of its own, and prints what
 * came of them; then once more `ready PID`, and ends after a line.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Further apart than what is fetched along. */
#define STEP (1 << 20)
#define PLACES 48

static char *memory;
static int used;

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* A place that nobody has touched; zeros. */
static void *fresh(void)
{
    need(used < PLACES, "more places");
    return memory + (size_t)STEP * used++ + 512;
}

static void tell(const char *name, long result)
{
    printf("%s: %ld%s%s\n", name, result, result < 0 ? " " : "", result < 0 ? strerror(errno) : "");
}

static void wait_for_line(void)
{
    char line[16];
    printf("ready %d\n", getpid());
    fflush(stdout);
    need(read(0, line, sizeof line) > 0, "a line");
}

static void locks(void)
{
    tell("futex wake", syscall(SYS_futex, fresh(), FUTEX_WAKE_PRIVATE, 1));
    tell("futex wait", syscall(SYS_futex, fresh(), FUTEX_WAIT_PRIVATE, 77, NULL));
    tell("futex wait a moment", syscall(SYS_futex, fresh(), FUTEX_WAIT_PRIVATE, 0, fresh()));
    tell("futex requeue", syscall(SYS_futex, fresh(), FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, fresh(), 0));
    tell("futex wake op", syscall(SYS_futex, fresh(), FUTEX_WAKE_OP_PRIVATE, 1, 1, fresh(), 0));
    struct {
        uint64_t value, address;
        uint32_t flags, reserved;
    } entry = {77, (uintptr_t)fresh(), 2 | FUTEX_PRIVATE_FLAG, 0};
    tell("futex_waitv", syscall(449, &entry, 1, 0, NULL, 0));
    tell("futex_waitv of zeros", syscall(449, fresh(), 1, 0, NULL, 0));
}

static void times(void)
{
    tell("clock_gettime", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, fresh()));
    tell("clock_getres", syscall(SYS_clock_getres, CLOCK_MONOTONIC, fresh()));
    tell("gettimeofday", syscall(SYS_gettimeofday, fresh(), fresh()));
    tell("nanosleep", syscall(SYS_nanosleep, fresh(), NULL));
    tell("clock_nanosleep", syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, fresh(), NULL));
    tell("getitimer", syscall(SYS_getitimer, 1, fresh()));
    tell("setitimer", syscall(SYS_setitimer, 1, fresh(), fresh()));
}

static void signals(void)
{
    tell("rt_sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, fresh(), fresh(), 8));
    tell("rt_sigaction", syscall(SYS_rt_sigaction, SIGUSR1, fresh(), fresh(), 8));
    tell("rt_sigaction alone", syscall(SYS_rt_sigaction, SIGUSR1, NULL, fresh(), 8));
    tell("rt_sigpending", syscall(SYS_rt_sigpending, fresh(), 8));
    tell("rt_sigtimedwait", syscall(SYS_rt_sigtimedwait, fresh(), fresh(), fresh(), 8));
    tell("sigaltstack", syscall(SYS_sigaltstack, NULL, fresh()));
}

static void others(void)
{
    tell("getrandom", syscall(SYS_getrandom, fresh(), 40000, 0));
    tell("getcpu", syscall(SYS_getcpu, fresh(), fresh(), NULL));
    tell("arch_prctl", syscall(SYS_arch_prctl, ARCH_GET_FS, fresh()));
    tell("prctl", syscall(SYS_prctl, PR_GET_PDEATHSIG, fresh(), 0, 0, 0));
    tell("mincore", syscall(SYS_mincore, memory, 8 * 4096, fresh()));
    tell("get_robust_list", syscall(SYS_get_robust_list, 0, fresh(), fresh()));
}

int main(void)
{
    int file = open("untouched", O_RDWR | O_CREAT, 0600);
    need(file >= 0, "a file");
    need(ftruncate(file, (off_t)STEP * PLACES) == 0, "its length");
    memory = mmap(NULL, (size_t)STEP * PLACES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    need(memory != MAP_FAILED, "mmap");
    wait_for_line();
    locks();
    times();
    signals();
    others();
    wait_for_line();
    return 0;
}
