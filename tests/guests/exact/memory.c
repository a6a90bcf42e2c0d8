/* Exactness: memory and what bounds it. */
#include "common.h"
#include <sys/prctl.h>

enum { PAGE = 4096 };
static sigjmp_buf back;
static siginfo_t fault;
static char other_stack[64 << 10];

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    fault = *info;
    siglongjmp(back, signal);
}

static void catch_faults(void)
{
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* '.' where it can be read, and 's' or 'b' where that is a fault. */
static char reach(const volatile char *place)
{
    int signal = sigsetjmp(back, 1);
    if (signal)
        return signal == SIGSEGV ? 's' : 'b';
    (void)*place;
    return '.';
}

static char *room(size_t pages)
{
    char *place = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(place != MAP_FAILED, "mmap");
    return place;
}

static long descend(int level, int until)
{
    volatile char part[PAGE];
    part[level % PAGE] = level;
    return level < until ? descend(level + 1, until) + part[level % PAGE] : 0;
}

CASE(stack_grows, AWAY)
{
    for (int turn = 0; turn < 3; turn++) {
        meet();
        printf("%ld\n", descend(0, 400 << turn));
    }
}

static void *overflows(void *stack)
{
    stack_t own = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&own, NULL);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        int signal = sigsetjmp(back, 1);
        if (signal == 0)
            printf("fault: %ld\n", descend(0, 1 << 20));
        else
            printf("signal %d code %d, below the stack %d\n", signal, fault.si_code,
                   (char *)fault.si_addr < (char *)stack && (char *)fault.si_addr >= (char *)stack - 4 * PAGE);
    }
    return NULL;
}

CASE(guard_of_a_thread, AWAY)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char *stack = room(70) + 6 * PAGE;
    catch_faults();
    need(mprotect(stack - 4 * PAGE, 4 * PAGE, PROT_NONE) == 0, "mprotect");
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, 64 * PAGE);
    need(pthread_create(&thread, &attributes, overflows, stack) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

/* Code that is made, run and made anew, as by a compiler at run time. */
CASE(made_code, AWAY)
{
    static const unsigned char body[] = {0xb8, 0, 0, 0, 0, 0x05, 1, 0, 0, 0, 0xc3}; /* eax = n + 1 */
    char *code = room(16);
    long sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        meet();
        for (int i = 0; i < 3000; i++) {
            char *page = code + i % 16 * PAGE;
            need(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
            memcpy(page, body, sizeof body);
            memcpy(page + 1, &i, 4);
            need(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0, "mprotect");
            sum += ((int (*)(void))(uintptr_t)page)();
        }
        printf("%ld\n", sum);
    }
}

/* MADV_SOFT_OFFLINE and MADV_HWPOISON (100, 101) are for nobody to try. */
CASE(each_advice, AWAY)
{
    catch_faults();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (int advice = -1; advice < 105; advice++) {
            char *place = room(4);
            if (advice == 100 || advice == 101 || (advice > 26 && advice < 100))
                continue;
            /* For merging the program comes home. */
            if (advice == MADV_MERGEABLE || advice == MADV_UNMERGEABLE)
                continue;
            memset(place, 'a', 4 * PAGE);
            int result = madvise(place + PAGE, 2 * PAGE, advice);
            /* MADV_FREE (8) leaves it to the kernel. */
            printf("%d: %d %s %c%c%c%c", advice, result, result ? wrong() : "", reach(place), reach(place + PAGE),
                   reach(place + 2 * PAGE), reach(place + 3 * PAGE));
            if (advice != 8 && reach(place + PAGE) == '.')
                printf(" %d%d", place[PAGE], place[3 * PAGE]);
            int odd = madvise(place + PAGE + 1, PAGE, advice);
            printf(", odd %d", odd);
            munmap(place + PAGE, PAGE);
            int hole = madvise(place, 4 * PAGE, advice);
            printf(", over a hole %d %s\n", hole, hole ? wrong() : "");
            munmap(place, 4 * PAGE);
        }
    }
}

static void tell_flags(const char *place, const char *what)
{
    char line[512], *end;
    int inside = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    need(maps != NULL, "smaps");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start = strtoul(line, &end, 16);
        if (*end == '-')
            inside = start <= (uintptr_t)place && (uintptr_t)place < strtoul(end + 1, NULL, 16);
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            printf("%s %s", what, line);
    }
    fclose(maps);
}

/* What was said of memory stays said, wherever it was said. */
CASE(advice_stays, HOME)
{
    static const int advices[] = {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP, MADV_RANDOM, MADV_SEQUENTIAL,
                                  MADV_HUGEPAGE, MADV_NOHUGEPAGE};
    enum { COUNT = sizeof advices / sizeof advices[0] };
    char *places[3 * COUNT];
    for (int i = 0; i < 3 * COUNT; i++) {
        places[i] = room(3) + PAGE;
        memset(places[i], 'a', PAGE);
        need(mprotect(places[i] - PAGE, PAGE, PROT_NONE) == 0 && mprotect(places[i] + PAGE, PAGE, PROT_NONE) == 0, "mprotect");
        if (i < COUNT)
            need(madvise(places[i], PAGE, advices[i]) == 0, "madvise");
    }
    for (int turn = 1; turn < 3; turn++) {
        meet();
        for (int i = 0; i < COUNT; i++)
            need(madvise(places[turn * COUNT + i], PAGE, advices[i]) == 0, "madvise");
        for (int i = 0; i <= turn * COUNT + COUNT - 1; i++) {
            char what[32];
            snprintf(what, sizeof what, "%d of turn %d:", advices[i % COUNT], i / COUNT);
            tell_flags(places[i], what);
        }
        fflush(stdout);
        if (fork() == 0) {
            catch_faults();
            for (int i = 0; i <= turn * COUNT + COUNT - 1; i++)
                printf("%c%d ", reach(places[i]), reach(places[i]) == '.' ? *places[i] : 0);
            printf("in a child\n");
            fflush(stdout);
            _exit(0);
        }
        wait(NULL);
    }
}

CASE(kinds_of_mappings, AWAY)
{
    static const int flags[] = {0, MAP_NORESERVE, MAP_POPULATE, MAP_STACK, MAP_32BIT, MAP_LOCKED,
                                MAP_NONBLOCK, MAP_DENYWRITE, MAP_EXECUTABLE, 0x4000000 /* MAP_UNINITIALIZED */};
    catch_faults();
    char *held = room(8);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
            char *place = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags[i], -1, 0);
            int low = place != MAP_FAILED && (uintptr_t)place < 1ul << 32;
            printf("%x: %d %d", flags[i], place != MAP_FAILED, low);
            if (place != MAP_FAILED) {
                place[PAGE] = 'w';
                printf(" %d%c", place[0], place[PAGE]);
                munmap(place, 4 * PAGE);
            }
            printf("\n");
        }
        char *again = mmap(held, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        printf("in its place: %d %s\n", again != MAP_FAILED, wrong());
        again = mmap((char *)1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        printf("odd: %d %s\n", again != MAP_FAILED, wrong());
        again = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("nothing: %d %s\n", again != MAP_FAILED, wrong());
        again = mmap(NULL, 1ul << 44, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        printf("huge: %d\n", again != MAP_FAILED);
        if (again != MAP_FAILED)
            munmap(again, 1ul << 44);
        again = mmap(NULL, 1ul << 62, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        printf("too large: %d %s\n", again != MAP_FAILED, wrong());
    }
}

CASE(remapping, AWAY)
{
    catch_faults();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        char *one = room(8), *two = room(8);
        for (int i = 0; i < 8; i++)
            one[i * PAGE] = 'a' + i;
        char *same = mremap(one, 8 * PAGE, 4 * PAGE, 0);
        printf("shrunk: %d %c%c\n", same == one, reach(one + 3 * PAGE), reach(one + 5 * PAGE));
        /* Something of another kind is right behind. */
        need(mmap(one + 4 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap");
        same = mremap(one, 4 * PAGE, 1 << 30, 0);
        int fails = same == MAP_FAILED;
        printf("in place: %d %s\n", fails, fails ? wrong() : "");
        same = mremap(one, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, two);
        printf("over another: %d %c %c%c\n", same == two, two[3 * PAGE], reach(one), reach(two + 7 * PAGE));
        same = mremap(two, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */);
        printf("left behind: %d %c %d\n", same != MAP_FAILED, same[2 * PAGE], two[2 * PAGE]);
        char *twice = mremap(same, 0, PAGE, MREMAP_MAYMOVE);
        printf("twice: %d %s\n", twice != MAP_FAILED, wrong());
        twice = mremap(same, 4 * PAGE, 2 * PAGE, MREMAP_FIXED, two);
        printf("wrong: %d %s\n", twice != MAP_FAILED, wrong());
        munmap(same, 4 * PAGE), munmap(two, 8 * PAGE);
    }
}

CASE(break_, AWAY)
{
    catch_faults();
    for (int turn = 0; turn < 3; turn++) {
        meet();
        char *top = sbrk(0);
        need(sbrk(10 * PAGE) == top, "sbrk");
        memset(top, 'x', 10 * PAGE);
        printf("up: %d", sbrk(0) == top + 10 * PAGE);
        need(sbrk(-5 * PAGE) == top + 10 * PAGE, "sbrk");
        printf(" down: %c%c", reach(top + 4 * PAGE), reach(top + 5 * PAGE + PAGE));
        need(sbrk(5 * PAGE) == top + 5 * PAGE, "sbrk");
        printf(" anew: %d", top[6 * PAGE]);
        int result = brk((void *)16);
        printf(" too low: %d %s\n", result, wrong());
    }
}

static void tell_locked(const char *what)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "VmLck", 5) == 0)
            printf("%s: %s", what, line);
    fclose(status);
}

CASE(locked, HOME)
{
    char *place = room(16);
    need(mlock(place, 4 * PAGE) == 0, "mlock");
    for (int turn = 0; turn < 2; turn++) {
        meet();
        tell_locked("after a move");
        need(mlock2(place + 8 * PAGE, 2 * PAGE, MLOCK_ONFAULT) == 0, "mlock2");
        need(munlock(place, PAGE) == 0, "munlock");
        tell_locked("changed");
        int result = munlock((void *)(1ul << 46), PAGE);
        printf("nothing there: %d %s\n", result, wrong());
        munlock(place, 16 * PAGE);
        mlockall(MCL_FUTURE | MCL_ONFAULT);
        char *later = room(2);
        tell_locked("from now on");
        munlockall();
        munmap(later, 2 * PAGE);
        need(mlock(place, 4 * PAGE) == 0, "mlock");
    }
}
