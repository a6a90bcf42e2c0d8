/* Two threads that notice whatever is done to them: signal mask, general and vector registers.
 *
 * The first appends serial numbers to the file `serial`, one a round; the other one computes. Prints
 * `ready PID`, and `ended` with status 7 once the file `stop` is there. A check that fails prints
 * `fault` and ends it with status 5.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_ulong turns;

static void check(int good, const char *what, unsigned long number)
{
    if (good)
        return;
    printf("fault: %s at %lu\n", what, number);
    fflush(stdout);
    _exit(5);
}

static void set_mask(uint64_t mask)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
}

static uint64_t mask(void)
{
    uint64_t now = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
    return now;
}

/* Over a spin without a call: half of the vector registers there are, and a mask register. */
__attribute__((target("avx512f"), noinline)) static void wide(uint64_t seed)
{
    uint64_t in[32] __attribute__((aligned(64))), out[32] __attribute__((aligned(64)));
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        in[i] = seed * (i + 3);
    __asm__ volatile("vmovdqa64 (%1), %%zmm3\n vmovdqa64 64(%1), %%zmm15\n"
                     "vmovdqa64 128(%1), %%zmm16\n vmovdqa64 192(%1), %%zmm31\n"
                     "kmovw %3, %%k5\n movl $100000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
                     "vmovdqa64 %%zmm3, (%2)\n vmovdqa64 %%zmm15, 64(%2)\n"
                     "vmovdqa64 %%zmm16, 128(%2)\n vmovdqa64 %%zmm31, 192(%2)\n kmovw %%k5, %0\n"
                     : "=&r"(bits)
                     : "r"(in), "r"(out), "r"((unsigned)(seed & 0xffff))
                     : "rcx", "memory", "cc", "xmm3", "xmm15", "xmm16", "xmm31", "k5");
    check(memcmp(in, out, sizeof in) == 0, "vector registers", seed);
    check(bits == (seed & 0xffff), "mask register", seed);
}

__attribute__((target("avx"), noinline)) static void middle(uint64_t seed)
{
    uint64_t in[8] __attribute__((aligned(32))), out[8] __attribute__((aligned(32)));
    for (int i = 0; i < 8; i++)
        in[i] = seed * (i + 3);
    __asm__ volatile("vmovdqa (%0), %%ymm3\n vmovdqa 32(%0), %%ymm15\n"
                     "movl $100000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
                     "vmovdqa %%ymm3, (%1)\n vmovdqa %%ymm15, 32(%1)\n"
                     :
                     : "r"(in), "r"(out)
                     : "rcx", "memory", "cc", "xmm3", "xmm15");
    check(memcmp(in, out, sizeof in) == 0, "vector registers", seed);
}

__attribute__((noinline)) static void general(uint64_t seed)
{
    uint64_t sum = 0;
    __asm__ volatile("movq %1, %%r8\n leaq 1(%1), %%r9\n leaq 2(%1), %%r12\n leaq 3(%1), %%r13\n"
                     "leaq 4(%1), %%r14\n leaq 5(%1), %%r15\n movq %1, -100(%%rsp)\n"
                     "movl $100000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
                     "movq -100(%%rsp), %0\n addq %%r8, %0\n addq %%r9, %0\n addq %%r12, %0\n"
                     "addq %%r13, %0\n addq %%r14, %0\n addq %%r15, %0\n"
                     : "=&a"(sum)
                     : "d"(seed)
                     : "rcx", "r8", "r9", "r12", "r13", "r14", "r15", "memory", "cc");
    check(sum == 7 * seed + 15, "general registers", seed);
}

static void registers(uint64_t seed)
{
    if (__builtin_cpu_supports("avx512f"))
        wide(seed);
    else if (__builtin_cpu_supports("avx"))
        middle(seed);
    general(seed);
}

static void *compute(void *unused)
{
    uint64_t blocked = 1ul << (SIGUSR2 - 1) | 1ul << (SIGWINCH - 1);
    set_mask(blocked);
    for (unsigned long turn = 1;; turn++) {
        registers(turn * 0x9e3779b97f4a7c15u);
        check(mask() == blocked, "signal mask of the second thread", turn);
        turns = turn;
    }
    return unused;
}

int main(void)
{
    int file = open("serial", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    check(file >= 0, "open", 0);
    pthread_t other;
    check(pthread_create(&other, NULL, compute, NULL) == 0, "pthread_create", 0);
    uint64_t blocked = 1ul << (SIGUSR1 - 1) | 1ul << (SIGTERM - 1);
    set_mask(blocked);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (unsigned long i = 0;; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "%lu\n", i);
        check(write(file, text, length) == length, "append", i);
        registers(i * 0xd1342543de82ef95u);
        check(mask() == blocked, "signal mask", i);
        usleep(10000);
        struct stat stop;
        if (stat("stop", &stop) == 0) {
            unsigned long before = turns;
            while (turns == before)
                ;
            printf("ended\n");
            return 7;
        }
    }
}
