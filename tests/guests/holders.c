/* Twenty threads that hold what is easily lost when a thread is taken apart and put together again:
 * locks of all kinds, vector and mask registers, rounding modes, signal stacks, restartable
 * sequences. Each checks itself in every iteration. The first fault ends the program with 1.
 *
 *   holders SIZE
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/rseq.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 16, CPUS_MAX = 4096 };

static long size;

static void fault(const char *what, long one, long two)
{
    fprintf(stderr, "fault: %s (%ld, %ld)\n", what, one, two);
    _exit(1);
}

static uint64_t step(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void nap(long microseconds)
{
    struct timespec time = {0, microseconds * 1000};
    while (nanosleep(&time, &time) != 0)
        if (errno != EINTR)
            fault("nanosleep", errno, 0);
}

/* --- mutexes: money is moved between cells, none is made or lost --- */

static pthread_mutex_t cell_lock[CELLS];
static long cell[CELLS];

static void *mover(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    for (long i = 0; i < size * 400; i++) {
        unsigned from = step(&state) % CELLS, to = step(&state) % CELLS;
        if (from == to)
            continue;
        unsigned low = from < to ? from : to, high = from < to ? to : from;
        pthread_mutex_lock(&cell_lock[low]);
        pthread_mutex_lock(&cell_lock[high]);
        long before = cell[from] + cell[to], amount = step(&state) % 10;
        cell[from] -= amount;
        if (i % 100 == 0)
            nap(50);
        cell[to] += amount;
        if (cell[from] + cell[to] != before)
            fault("two cells", before, cell[from] + cell[to]);
        pthread_mutex_unlock(&cell_lock[high]);
        pthread_mutex_unlock(&cell_lock[low]);
    }
    return NULL;
}

/* --- a mutex with priority inheritance: the kernel knows its owner by thread id --- */

static pthread_mutex_t inherit_lock;
static long inherit_count;

static void *inheritor(void *argument)
{
    (void)argument;
    for (long i = 0; i < size * 100; i++) {
        int error = pthread_mutex_lock(&inherit_lock);
        if (error)
            fault("priority inheritance", error, i);
        long before = inherit_count++;
        if (i % 50 == 0)
            nap(50);
        if (inherit_count != before + 1)
            fault("inheritance count", before, inherit_count);
        pthread_mutex_unlock(&inherit_lock);
    }
    return NULL;
}

/* --- a robust mutex whose holders die --- */

static pthread_mutex_t robust_lock;
static long robust_recovered;

static void *dies_holding(void *argument)
{
    (void)argument;
    int error = pthread_mutex_lock(&robust_lock);
    if (error == EOWNERDEAD)
        pthread_mutex_consistent(&robust_lock);
    else if (error)
        fault("lock of the dying", error, 0);
    return NULL;
}

static void *survivor(void *argument)
{
    (void)argument;
    for (long i = 0; i < size / 2 + 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, dies_holding, NULL))
            fault("pthread_create", errno, i);
        pthread_join(thread, NULL);
        int error = pthread_mutex_lock(&robust_lock);
        if (error != EOWNERDEAD)
            fault("robust mutex without the mark of the dead", error, i);
        pthread_mutex_consistent(&robust_lock);
        robust_recovered++;
        pthread_mutex_unlock(&robust_lock);
        for (int j = 0; j < 40; j++) {
            if (pthread_mutex_lock(&robust_lock))
                fault("robust mutex", j, i);
            nap(500);
            pthread_mutex_unlock(&robust_lock);
        }
    }
    return NULL;
}

/* --- a condition: two threads take turns --- */

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static long turn;

static void *player(void *argument)
{
    long own = (intptr_t)argument;
    for (long i = 0; i < size * 50; i++) {
        pthread_mutex_lock(&turn_lock);
        while (turn % 2 != own)
            pthread_cond_wait(&turn_changed, &turn_lock);
        if (turn / 2 != i)
            fault("turn", turn, i);
        turn++;
        pthread_cond_signal(&turn_changed);
        pthread_mutex_unlock(&turn_lock);
    }
    return NULL;
}

/* --- registers: all are loaded, live through a long wait, and are stored and compared --- */

static int has_avx512(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX512F) || !(b & bit_AVX512BW))
        return 0;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0xe6) == 0xe6;
}

#define EACH32(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) \
    X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) \
    X(31)
#define EACH16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH7(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ZMM_IN(n) "vmovdqu64 64*" #n "(%[in]), %%zmm" #n "\n"
#define ZMM_OUT(n) "vmovdqu64 %%zmm" #n ", 64*" #n "(%[out])\n"
#define YMM_IN(n) "vmovdqu 32*" #n "(%[in]), %%ymm" #n "\n"
#define YMM_OUT(n) "vmovdqu %%ymm" #n ", 32*" #n "(%[out])\n"
#define K_IN(n) "kmovq 2048+8*" #n "(%[in]), %%k" #n "\n"
#define K_OUT(n) "kmovq %%k" #n ", 2048+8*" #n "(%[out])\n"
/* A loop that touches no other register. */
#define WAIT "1: pause\n dec %[count]\n jnz 1b\n"

struct registers {
    uint64_t zmm[32][8];
    uint64_t k[8];
} __attribute__((aligned(64)));

#ifdef __AVX512F__
#error compile without AVX-512: the compiler shall not use the registers itself
#endif

__attribute__((noinline)) static void hold_512(const struct registers *in, struct registers *out, long count)
{
    __asm__ volatile(EACH32(ZMM_IN) EACH7(K_IN) WAIT EACH32(ZMM_OUT) EACH7(K_OUT) "vzeroupper\n"
                     : [count] "+r"(count)
                     : [in] "r"(in), [out] "r"(out)
                     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

__attribute__((noinline)) static void hold_256(const struct registers *in, struct registers *out, long count)
{
    __asm__ volatile(EACH16(YMM_IN) WAIT EACH16(YMM_OUT) "vzeroupper\n"
                     : [count] "+r"(count)
                     : [in] "r"(in), [out] "r"(out)
                     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void *keeper(void *argument)
{
    int wide = has_avx512();
    uint64_t state = (uintptr_t)argument * 77 + 5;
    struct registers *in = aligned_alloc(64, sizeof *in), *out = aligned_alloc(64, sizeof *out);
    for (long i = 0; i < size * 10; i++) {
        for (size_t word = 0; word < sizeof *in / 8; word++)
            ((uint64_t *)in)[word] = step(&state) << 32 | step(&state);
        memset(out, 0, sizeof *out);
        if (wide) {
            hold_512(in, out, 20000);
            in->k[0] = 0;
            if (memcmp(in, out, sizeof *in))
                fault("AVX-512 registers", i, (uintptr_t)argument);
        } else {
            hold_256(in, out, 20000);
            if (memcmp(in, out, 16 * 32))
                fault("AVX registers", i, (uintptr_t)argument);
        }
    }
    return NULL;
}

/* --- rounding modes of both floating point units --- */

static void *rounder(void *argument)
{
    long own = (intptr_t)argument;
    int mode = own ? FE_UPWARD : FE_DOWNWARD;
    fesetround(mode);
    volatile double three = 3.0, one = 1.0, thin = 0;
    volatile long double thick = 0;
    for (long i = 0; i < size * 5000; i++) {
        thin = one / three;
        thick = (long double)one / three;
        int exact = own ? thin * 3.0 > 1.0 && thick * 3 > 1 : thin * 3.0 < 1.0 && thick * 3 < 1;
        if (!exact || fegetround() != mode)
            fault("rounding mode", fegetround(), mode);
    }
    return NULL;
}

/* --- handlers on stacks of their own --- */

static _Thread_local char *own_stack;
static _Thread_local volatile long handled;
enum { STACK = 128 * 1024 };

static void on_signal(int number)
{
    char here;
    if (&here < own_stack || &here >= own_stack + STACK)
        fault("handler on the wrong stack", number, 0);
    handled++;
}

static void *handler(void *argument)
{
    (void)argument;
    own_stack = malloc(STACK);
    stack_t stack = {.ss_sp = own_stack, .ss_size = STACK};
    if (sigaltstack(&stack, NULL))
        fault("sigaltstack", errno, 0);
    for (long i = 0; i < size * 20; i++) {
        long before = handled;
        pthread_kill(pthread_self(), SIGUSR1);
        if (handled != before + 1)
            fault("a signal to the thread itself", before, handled);
        nap(100);
    }
    return NULL;
}

/* --- restartable sequences: one counter per CPU, no lock, no atomic instruction --- */

static struct { long value; char rest[56]; } per_cpu[CPUS_MAX] __attribute__((aligned(64)));

static int add_here(volatile struct rseq *area, int cpu, long *value)
{
    __asm__ goto volatile(
        ".pushsection __rseq_cs, \"aw\"\n"
        ".balign 32\n"
        "3: .long 0, 0\n"
        ".quad 1f, 2f - 1f, 4f\n"
        ".popsection\n"
        "leaq 3b(%%rip), %%rax\n"
        "movq %%rax, 8(%[area])\n"
        "1: cmpl %[cpu], 4(%[area])\n"
        "jnz %l[elsewhere]\n"
        "addq $1, (%[value])\n"
        "2:\n"
        ".pushsection __rseq_failure, \"ax\"\n"
        ".byte 0x0f, 0xb9, 0x3d\n"
        ".long %c[signature]\n"
        "4: jmp %l[elsewhere]\n"
        ".popsection\n"
        :
        : [area] "r"(area), [cpu] "r"(cpu), [value] "r"(value), [signature] "i"(RSEQ_SIG)
        : "memory", "cc", "rax"
        : elsewhere);
    return 1;
elsewhere:
    return 0;
}

static atomic_long added;

static void *counter(void *argument)
{
    (void)argument;
    if (__rseq_size == 0)
        return NULL;
    volatile struct rseq *area =
        (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    for (long i = 0; i < size * 100000; i++) {
        int cpu;
        do
            cpu = area->cpu_id_start;
        while (cpu >= CPUS_MAX || !add_here(area, cpu, &per_cpu[cpu].value));
        added++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    size = atol(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_mutexattr_t inherit, robust;
    pthread_mutexattr_init(&inherit);
    pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherit_lock, &inherit);
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust_lock, &robust);
    for (int i = 0; i < CELLS; i++) {
        pthread_mutex_init(&cell_lock[i], NULL);
        cell[i] = 1000;
    }

    static const struct { const char *name; void *(*body)(void *); int count; } kinds[] = {
        {"movers", mover, 4},     {"inheritors", inheritor, 2}, {"survivor", survivor, 1},
        {"players", player, 2},   {"keepers", keeper, 5},       {"rounders", rounder, 2},
        {"handlers", handler, 2}, {"counters", counter, 2},
    };
    pthread_t threads[20];
    int started = 0;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int i = 0; i < kinds[kind].count; i++)
            if (pthread_create(&threads[started++], NULL, kinds[kind].body, (void *)(intptr_t)i))
                fault("pthread_create", errno, started);
    started = 0;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (int i = 0; i < kinds[kind].count; i++)
            pthread_join(threads[started++], NULL);
        printf("%d %s ended\n", kinds[kind].count, kinds[kind].name);
    }
    long money = 0, counted = 0;
    for (int i = 0; i < CELLS; i++)
        money += cell[i];
    for (int i = 0; i < CPUS_MAX; i++)
        counted += per_cpu[i].value;
    if (counted != added)
        fault("per-CPU counters", counted, added);
    printf("%d threads, money %ld, inherited %ld, recovered %ld, turns %ld, counted %ld\n", started,
           money, inherit_count, robust_recovered, turn, counted);
    return 0;
}
