/* Does nothing but cause faults that it handles, so that nearly every stop finds one on its way to its handler: it reads
 * where nothing is, executes what is no instruction, divides by zero, has breakpoints, asks the kernel's own code (vDSO)
 * for the time where it cannot be written, and steps through that code by the processor's trap flag. Prints `ready PID`,
 * and at a line on standard input how many faults its handlers did not get: `N wrong`.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { NUMBERS = 65 };

static volatile long got[NUMBERS];
/* How long the instruction is that the handler steps over; negative: it goes back to where it was before. */
static volatile int length;
static sigjmp_buf before;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)info;
    got[signal]++;
    if (length < 0)
        siglongjmp(before, 1);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += length;
}

static long all(void)
{
    return got[SIGSEGV] + got[SIGILL] + got[SIGFPE] + got[SIGTRAP];
}

/* How many traps there are on the way through the kernel's own code. */
static long steps(void)
{
    struct timespec now;
    long first = got[SIGTRAP];
    length = 0;
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    return got[SIGTRAP] - first;
}

/* One of each, but for the steps; how many were not got. */
static long faults(void)
{
    const long first = all();
    length = 3;
    __asm__ volatile("xorl %%ecx, %%ecx; movq (%%rcx), %%rax" ::: "rax", "rcx", "memory");
    length = 2;
    __asm__ volatile("ud2" ::: "memory");
    length = 3;
    __asm__ volatile("xorl %%edx, %%edx; movl $1, %%eax; xorq %%rcx, %%rcx; divq %%rcx" ::: "rax", "rcx", "rdx", "memory");
    length = 0;
    __asm__ volatile("int3" ::: "memory");
    length = -1;
    if (sigsetjmp(before, 1) == 0)
        clock_gettime(CLOCK_MONOTONIC, (struct timespec *)8);
    return 5 - (all() - first);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    const int signals[] = {SIGSEGV, SIGILL, SIGFPE, SIGTRAP};
    for (unsigned at = 0; at < sizeof signals / sizeof *signals; at++)
        sigaction(signals[at], &action, NULL);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    /* Without the way to it for the first time (lazy binding). */
    steps();
    const long usual = steps();
    long wrong = 0, rounds = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (rounds++ % 16 != 0 || poll(&input, 1, 0) == 0) {
        const long missed = faults(), stepped = steps();
        if (missed != 0 || stepped < usual / 2)
            printf("%ld missed, %ld steps instead of %ld\n", missed, stepped, usual);
        wrong += (missed != 0) + (stepped < usual / 2);
    }
    printf("%ld wrong\n", wrong);
    return 0;
}
