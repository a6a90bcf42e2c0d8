/* A program of many threads, each of which checks that nobody disturbs it.
 *
 * It prints `ready`. For each line that it reads it waits until every thread has gone on, and prints
 * `alive`, or which thread has not. A failed check prints `bad ...` and ends it with status 5. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define THREADS 12
static atomic_long progress[THREADS];
static atomic_int halt, halted;

static void bad(const char *what, long value) {
    printf("bad %s: %ld\n", what, value);
    fflush(stdout);
    _exit(5);
}

static uint64_t mask_now(void) {
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
    return mask;
}

/* Vector registers, general registers, carry and red zone over a spin without a call. */
__attribute__((target("avx512f"), noinline)) static void wide(unsigned seed) {
    static _Thread_local unsigned char in[64 * 4] __attribute__((aligned(64)));
    static _Thread_local unsigned char out[64 * 4] __attribute__((aligned(64)));
    uint64_t mask_out = 0;
    for (int i = 0; i < 256; i++) in[i] = seed + i * 7;
    __asm__ volatile(
        "vmovdqa64 (%1), %%zmm3\n vmovdqa64 64(%1), %%zmm17\n"
        "vmovdqa64 128(%1), %%zmm30\n vmovdqa64 192(%1), %%zmm31\n"
        "movq %3, %%rax\n kmovw %%eax, %%k5\n"
        "movl $200000, %%ecx\n 1: decl %%ecx\n jnz 1b\n"
        "vmovdqa64 %%zmm3, (%2)\n vmovdqa64 %%zmm17, 64(%2)\n"
        "vmovdqa64 %%zmm30, 128(%2)\n vmovdqa64 %%zmm31, 192(%2)\n"
        "kmovw %%k5, %%eax\n movq %%rax, %0\n"
        : "=r"(mask_out)
        : "r"(in), "r"(out), "r"((uint64_t)(seed & 0xffff))
        : "rax", "rcx", "memory", "cc", "xmm3", "xmm17", "xmm30", "xmm31");
    if (memcmp(in, out, 256) != 0) bad("vector registers", seed);
    if (mask_out != (seed & 0xffff)) bad("mask register", (long)mask_out);
}

__attribute__((noinline)) static void narrow(uint64_t seed) {
    uint64_t sum = 0, carry = 0;
    __asm__ volatile(
        "movq %2, -8(%%rsp)\n movq %2, -120(%%rsp)\n movq %2, %%xmm9\n"
        "leaq 1(%2), %%r8\n leaq 2(%2), %%r9\n leaq 3(%2), %%r10\n leaq 4(%2), %%r11\n"
        "leaq 5(%2), %%r12\n leaq 6(%2), %%r13\n leaq 7(%2), %%r14\n leaq 8(%2), %%r15\n"
        "leaq 9(%2), %%rdi\n leaq 10(%2), %%rsi\n leaq 11(%2), %%rbx\n"
        "movl $200000, %%ecx\n stc\n 1: decl %%ecx\n jnz 1b\n"
        "setc %b1\n movzbq %b1, %1\n"
        "movq %%xmm9, %0\n addq -8(%%rsp), %0\n addq -120(%%rsp), %0\n"
        "addq %%r8, %0\n addq %%r9, %0\n addq %%r10, %0\n addq %%r11, %0\n addq %%r12, %0\n"
        "addq %%r13, %0\n addq %%r14, %0\n addq %%r15, %0\n addq %%rdi, %0\n addq %%rsi, %0\n"
        "addq %%rbx, %0\n"
        : "=&a"(sum), "=&d"(carry)
        : "r"(seed)
        : "rcx", "rbx", "rdi", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm9",
          "memory", "cc");
    if (sum != 14 * seed + 66) bad("general registers", (long)(sum - 14 * seed - 66));
    if (carry != 1) bad("carry", 0);
}

static void *computing(void *which) {
    long me = (long)which;
    int has = __builtin_cpu_supports("avx512f");
    for (unsigned seed = 1;; seed++) {
        if (has && me == 0) wide(seed);
        narrow(seed * 0x9e3779b97f4a7c15ull);
        if (me < 2) {
            struct timespec t = {0, 0};
            clock_gettime(CLOCK_MONOTONIC, &t);
        }
        progress[me]++;
    }
    return NULL;
}

/* sigsuspend, woken by a one-shot timer: must not miss it, must find its mask again. */
static __thread volatile int alarms;
static void on_timer(int signal) { alarms += signal != 0; }
static void *suspended(void *which) {
    long me = (long)which;
    uint64_t block = 1ull << (SIGUSR1 - 1), none = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &block, NULL, 8);
    struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    e._sigev_un._tid = gettid();
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &e, &timer)) bad("timer_create", errno);
    for (;;) {
        struct itimerspec s = {{0, 0}, {0, 3000000}};
        int before = alarms;
        timer_settime(timer, 0, &s, NULL);
        long got = syscall(SYS_rt_sigsuspend, &none, 8);
        if (got != -1 || errno != EINTR) bad("sigsuspend", errno);
        if (alarms != before + 1) bad("timer signals", alarms - before);
        if (mask_now() != block) bad("mask", (long)mask_now());
        progress[me]++;
    }
    return NULL;
}

/* A blocked signal stays pending until it is unblocked, and then runs once. */
static __thread volatile int taken;
static void on_usr2(int signal) { taken += signal != 0; }
static void *pending(void *which) {
    long me = (long)which;
    uint64_t block = 1ull << (SIGUSR2 - 1);
    for (;;) {
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &block, NULL, 8);
        int before = taken;
        syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2);
        for (volatile int i = 0; i < 100000; i++) {}
        if (taken != before) bad("blocked signal ran", taken - before);
        if ((mask_now() & block) == 0) bad("mask lost", (long)mask_now());
        syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &block, NULL, 8);
        if (taken != before + 1) bad("pending signal", taken - before);
        progress[me]++;
    }
    return NULL;
}

static void *sleeping(void *which) {
    long me = (long)which;
    for (;;) {
        struct timespec t = {0, 4000000}, a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (syscall(SYS_nanosleep, &t, NULL) != 0) bad("nanosleep", errno);
        clock_gettime(CLOCK_MONOTONIC, &b);
        if ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < 3900000) bad("early", 0);
        progress[me]++;
    }
    return NULL;
}

/* Bare SETREGS of a tracer that died may leave the full timeout, never an error. */
static void *polling(void *which) {
    long me = (long)which;
    int fd = epoll_create1(0);
    for (;;) {
        struct epoll_event e;
        long got = syscall(SYS_epoll_wait, fd, &e, 1, 5);
        if (got != 0 && errno != EINTR) bad("epoll_wait", errno);
        progress[me]++;
    }
    return NULL;
}

static void *allocating(void *which) {
    long me = (long)which;
    for (unsigned n = 1;; n++) {
        size_t size = n * 7919 % 300000 + 16;
        unsigned char *p = malloc(size);
        memset(p, (int)n, size);
        if (p[size - 1] != (unsigned char)n || p[0] != (unsigned char)n) bad("memory", n);
        free(p);
        progress[me]++;
    }
    return NULL;
}

/* Handlers on an alternate stack, again and again. */
static __thread volatile int on_stack;
static void on_segment(int signal) {
    char here = (char)signal;
    stack_t s;
    sigaltstack(NULL, &s);
    if (!(s.ss_flags & SS_ONSTACK)) bad("not on the alternate stack", here);
    on_stack++;
}
static void *alternate(void *which) {
    long me = (long)which;
    stack_t s = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&s, NULL);
    for (;;) {
        int before = on_stack;
        syscall(SYS_tgkill, getpid(), gettid(), SIGTRAP);
        if (on_stack != before + 1) bad("SIGTRAP handler", on_stack - before);
        stack_t now;
        sigaltstack(NULL, &now);
        if (now.ss_sp != s.ss_sp || now.ss_size != s.ss_size) bad("alternate stack", 0);
        progress[me]++;
    }
    return NULL;
}

/* Restartable sequences: increments per CPU that are lost if a stop breaks one without an abort. */
static struct { volatile uint64_t value; char pad[120]; } counters[4096];
static int add_here(void) {
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    uint32_t cpu = area->cpu_id_start;
    volatile uint64_t *counter = &counters[cpu].value;
    int done = 0;
    __asm__ volatile(
        ".pushsection .data\n .balign 32\n 3: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
        "leaq 3b(%%rip), %%rax\n movq %%rax, %[section]\n"
        "1: cmpl %[cpu], %[cpu_id]\n jnz 4f\n"
        "movq (%[counter]), %%rax\n incq %%rax\n"
        "movl $300, %%ecx\n 6: decl %%ecx\n jnz 6b\n"
        "movq %%rax, (%[counter])\n"
        "2: movl $1, %[done]\n jmp 5f\n"
        ".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
        "4: nop\n"
        "5:\n"
        : [done] "+r"(done), [section] "=m"(area->rseq_cs)
        : [cpu] "r"(cpu), [cpu_id] "m"(area->cpu_id), [counter] "r"(counter)
        : "rax", "rcx", "memory", "cc");
    return done;
}
static atomic_ulong added;
static void *sequences(void *which) {
    long me = (long)which;
    if (__rseq_size == 0) {
        halted++;
        for (;; progress[me]++) usleep(1000);
    }
    for (;;) {
        unsigned long mine = 0;
        for (int i = 0; i < 1000; i++) mine += add_here();
        added += mine;
        progress[me]++;
        if (halt) {
            halted++;
            while (halt) usleep(100);
        }
    }
    return NULL;
}
static void check_sequences(void) {
    if (__rseq_size == 0) return;
    halted = 0;
    halt = 1;
    while (halted < 2) usleep(100);
    unsigned long sum = 0;
    for (int i = 0; i < 4096; i++) sum += counters[i].value;
    if (sum != added) bad("sequences", (long)(added - sum));
    halt = 0;
}

static int alive(void) {
    long before[THREADS];
    for (int i = 0; i < THREADS; i++) before[i] = progress[i];
    for (int tries = 0; tries < 20000; tries++) {
        int ahead = 0;
        for (int i = 0; i < THREADS; i++) ahead += progress[i] > before[i] + 1;
        if (ahead == THREADS) return -1;
        usleep(500);
    }
    for (int i = 0; i < THREADS; i++)
        if (progress[i] <= before[i] + 1) return i;
    return -1;
}

int main(void) {
    void *(*bodies[THREADS])(void *) = {computing, computing, suspended, suspended, pending, sleeping,
                                        polling, allocating, allocating, alternate, sequences, sequences};
    struct sigaction a = {.sa_handler = on_timer};
    sigaction(SIGUSR1, &a, NULL);
    a.sa_handler = on_usr2;
    sigaction(SIGUSR2, &a, NULL);
    a = (struct sigaction){.sa_handler = on_segment, .sa_flags = SA_ONSTACK};
    sigaction(SIGTRAP, &a, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long i = 0; i < THREADS; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, bodies[i], (void *)i)) return 3;
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        check_sequences();
        int stuck = alive();
        if (stuck < 0) puts("alive");
        else printf("stuck %d\n", stuck);
        fflush(stdout);
    }
    return 0;
}
