/* Exactness: what a handler is told, and in which order; where it runs; who takes a signal without
 * one. */
#include "common.h"
#include <sys/signalfd.h>

#define LATE (SIGRTMIN + 2)

static void block(int how, const int *signals)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *signals; signals++)
        sigaddset(&set, *signals);
    need(pthread_sigmask(how, &set, NULL) == 0, "pthread_sigmask");
}

CASE(from_others, AWAY)
{
    catch(SIGUSR1, 0), catch(LATE, 0);
    make_friend();
    for (int turn = 0; turn < 3; turn++) {
        meet();
        for (int deed = KILL; deed <= TGQUEUE; deed++)
            for (int i = 0; i < 2; i++) {
                ask_friend(deed, i ? LATE : SIGUSR1, 70 + i, getpid());
                await_caught(turn * 8 + (deed - KILL) * 2 + i + 1);
            }
        tell_caught();
    }
}

CASE(from_itself, AWAY)
{
    catch(SIGUSR1, 0), catch(LATE, 0);
    meet();
    raise(SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 5});
    pthread_kill(pthread_self(), LATE);
    pthread_sigqueue(pthread_self(), LATE, (union sigval){.sival_int = 6});
    kill(0, 0);
    tell_caught();
    printf("at once: %d\n", caught);
}

/* Nested handlers run in the order that their frames were pushed. */
static void in_order(int flags, int nested)
{
    int all[] = {SIGUSR1, SIGUSR2, SIGRTMIN, SIGRTMIN + 1, LATE, SIGRTMAX, 0};
    for (int *signal = all; *signal; signal++) {
        catch(*signal, flags);
        struct sigaction action;
        sigaction(*signal, NULL, &action);
        if (nested)
            sigemptyset(&action.sa_mask);
        sigaction(*signal, &action, NULL);
    }
    block(SIG_BLOCK, all);
    make_friend();
    for (int i = 0; i < 3; i++)
        ask_friend(QUEUE, LATE, i, 0);
    meet();
    static const int sent[] = {3, 1, 4, 1, 5, 0, 2, 5, 3, 2};
    for (int i = 0; i < 10; i++)
        if (i % 2)
            ask_friend(QUEUE, all[sent[i]], 10 + i, 0);
        else
            sigqueue(getpid(), all[sent[i]], (union sigval){.sival_int = 10 + i});
    for (int i = 0; i < 3; i++)
        ask_friend(TGKILL, SIGRTMIN + 1, 0, getpid());
    nap(50);
    sigset_t waiting;
    sigpending(&waiting);
    for (int *signal = all; *signal; signal++)
        printf("%d", sigismember(&waiting, *signal));
    printf(" pending\n");
    meet();
    ask_friend(QUEUE, SIGRTMIN, 40, 0);
    nap(50);
    block(SIG_UNBLOCK, all);
    tell_caught();
}

CASE(order, AWAY) { in_order(0, 0); }
CASE(order_of_frames, AWAY) { in_order(SA_RESTART, 1); }

static volatile int alarms;

static void count_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* How many of some calls, made until so many signals have come, say that a signal has interrupted them. */
static void interrupted(const char *name, long (*call)(int))
{
    int count = 0, until = alarms + 60;
    int file = open("file", O_RDWR | O_CREAT, 0600);
    need(file >= 0, "open");
    while (alarms < until)
        if (call(file) < 0 && errno == EINTR)
            count++;
    close(file);
    printf("%s: %d interrupted\n", name, count);
}

static long duplicates(int file)
{
    int copy = fcntl(file, F_DUPFD_CLOEXEC, 100);
    return copy < 0 ? copy : close(copy);
}

static long reads(int file)
{
    char bytes[64];
    return pread(file, bytes, sizeof bytes, 0);
}

static long writes(int file) { return lseek(file, 0, SEEK_SET) < 0 ? -1 : write(file, "written", 7); }
static long looks(int file) { struct stat status; return fstat(file, &status); }

static long opens(int file)
{
    (void)file;
    int again = open("file", O_RDONLY);
    return again < 0 ? again : close(again);
}

static long maps(int file)
{
    void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    return at == MAP_FAILED ? -1 : munmap(at, 4096);
}

static long acts(int file)
{
    (void)file;
    struct sigaction action = {.sa_handler = count_alarm};
    return sigaction(SIGUSR2, &action, NULL);
}

/* Handlers come between such calls, and are seen by none. */
CASE(calls_without_end_by_signals, AWAY)
{
    struct sigaction action = {.sa_handler = count_alarm};
    struct itimerval often = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        setitimer(ITIMER_REAL, &often, NULL);
        interrupted("duplicates", duplicates);
        interrupted("reads", reads);
        interrupted("writes", writes);
        interrupted("looks", looks);
        interrupted("opens", opens);
        interrupted("maps", maps);
        interrupted("acts", acts);
        setitimer(ITIMER_REAL, &never, NULL);
    }
}

static int ends[2];
static pid_t sleeper_tid;

static void *sleeper(void *unused)
{
    (void)unused;
    char byte;
    sleeper_tid = gettid();
    while (read(ends[0], &byte, 1) < 0)
        ;
    return NULL;
}

/* Signals to a thread wait in its own queue. */
CASE(to_threads, AWAY)
{
    int all[] = {LATE, SIGUSR1, 0};
    pthread_t thread;
    catch(LATE, 0), catch(SIGUSR1, 0);
    block(SIG_BLOCK, all);
    need(pipe(ends) == 0, "pipe");
    pthread_create(&thread, NULL, sleeper, NULL);
    while (!sleeper_tid)
        nap(1);
    make_friend();
    meet();
    /* One that another process queues (rt_tgsigqueueinfo) looks like one for the process. */
    for (int i = 0; i < 3; i++) {
        ask_friend(TGKILL, LATE, 0, sleeper_tid);
        pthread_sigqueue(thread, LATE, (union sigval){.sival_int = i});
    }
    ask_friend(TGKILL, SIGUSR1, 0, sleeper_tid);
    ask_friend(QUEUE, LATE, 9, 0);
    nap(50);
    sigset_t waiting;
    sigpending(&waiting);
    printf("here %d %d\n", sigismember(&waiting, LATE), sigismember(&waiting, SIGUSR1));
    meet();
    block(SIG_UNBLOCK, all);
    nap(20);
    tell_caught();
    need(write(ends[1], "x", 1) == 1, "write");
    pthread_join(thread, NULL);
    printf("after its end: %d\n", caught);
}

/* --- faults --- */

static sigjmp_buf back;
static siginfo_t fault;
static ucontext_t machine;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    fault = *info;
    memcpy(&machine, context, sizeof machine);
    siglongjmp(back, signal);
}

static char *volatile bad;
static volatile int zero;

static void do_fault(int kind)
{
    switch (kind) {
    case 0: case 1: case 2: case 3: case 4: *bad = 1; break;
    case 5: __asm__ volatile("xorl %%ecx, %%ecx; idivl %%ecx" ::: "eax", "ecx", "edx"); break;
    case 6: __asm__ volatile("ud2"); break;
    case 7: __asm__ volatile("int3"); break;
    case 8: ((void (*)(void))(uintptr_t)bad)(); break;
    case 9: __asm__ volatile("hlt"); break;
    case 10: __asm__ volatile("pushf; orl $0x100, (%%rsp); popf; nop" ::: "memory"); break;
    case 11: __asm__ volatile("int $0x77"); break;
    case 12: zero = *bad; break;
    }
}

CASE(faults, AWAY)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, 0};
    int file = open("short", O_RDWR | O_CREAT, 0600);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *beyond = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *places[] = {(char *)16, page + 8, none + 5, beyond + 7, (char *)0x8000000000001234, 0, 0, 0,
                      page, 0, 0, 0, none + 9};
    for (const int *signal = signals; *signal; signal++) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        sigaction(*signal, &action, NULL);
    }
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (volatile int kind = 0; kind < 13; kind++) {
            bad = places[kind], zero = page[8];
            int signal = sigsetjmp(back, 1);
            if (signal == 0) {
                do_fault(kind);
                printf("fault: %d did nothing\n", kind);
                continue;
            }
            long at = (char *)fault.si_addr - bad;
            int code = kind == 5 || kind == 6 || kind == 7 || kind >= 9;
            greg_t *regs = machine.uc_mcontext.gregs;
            if (code && kind != 12)
                at = fault.si_addr ? (long)fault.si_addr - regs[REG_RIP] : 0;
            printf("%d: SIG%s code %d at %ld, trap %lld error %lld cr2 %ld\n", kind, sigabbrev_np(signal),
                   fault.si_code, kind == 4 ? (long)fault.si_addr : at, regs[REG_TRAPNO], regs[REG_ERR],
                   regs[REG_TRAPNO] == 14 ? (long)(regs[REG_CR2] - (long)bad) : 0);
        }
    }
}

/* --- another stack --- */

static char other_stack[64 << 10];
static volatile int depth;

static void on_other_stack(int signal, siginfo_t *info, void *context)
{
    char here;
    stack_t now_used;
    ucontext_t *state = context;
    sigaltstack(NULL, &now_used);
    printf("SIG%s code %d, on the other stack %d, flags %d, saved flags %d\n", sigabbrev_np(signal),
           info->si_code, &here >= other_stack && &here < other_stack + sizeof other_stack,
           now_used.ss_flags, state->uc_stack.ss_flags);
    if (signal == SIGUSR1) {
        meet();
        stack_t small = {.ss_sp = other_stack, .ss_size = 16384};
        int result = sigaltstack(&small, NULL);
        printf("changed meanwhile: %d %s\n", result, result ? wrong() : "");
        if (depth++ == 0)
            raise(SIGUSR1);
        meet();
    } else
        siglongjmp(back, 1);
}

static void use_other_stack(unsigned flags)
{
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack, .ss_flags = flags};
    struct sigaction action = {.sa_sigaction = on_other_stack};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    need(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
}

static void tell_stack(void)
{
    stack_t now_used;
    sigaltstack(NULL, &now_used);
    printf("afterwards: flags %d size %zu\n", now_used.ss_flags, now_used.ss_size);
}

CASE(on_another_stack, AWAY)
{
    use_other_stack(0);
    meet();
    raise(SIGUSR1);
    tell_stack();
}

CASE(disarmed_stack, AWAY)
{
    use_other_stack(1u << 31 /* SS_AUTODISARM */);
    depth = 1;
    meet();
    raise(SIGUSR1);
    tell_stack();
}

static int dive(int level)
{
    volatile char room[4096];
    room[0] = level;
    return level < 100000 ? dive(level + 1) + room[0] : 0;
}

CASE(stack_overflow, AWAY)
{
    setrlimit(RLIMIT_STACK, &(struct rlimit){1 << 20, RLIM_INFINITY});
    use_other_stack(0);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        if (sigsetjmp(back, 1) == 0)
            printf("%d\n", dive(0));
        tell_stack();
    }
}

/* --- taken without a handler --- */

static void tell_taken(int number, const siginfo_t *info)
{
    if (number < 0)
        printf("taken: %s\n", wrong());
    else
        printf("taken: %d code %d from %s uid %d value %d\n", number - SIGRTMIN, info->si_code,
               who(info->si_pid), info->si_uid, info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
}

CASE(waited_for, AWAY)
{
    int all[] = {LATE, SIGUSR1, 0};
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set), sigaddset(&set, LATE), sigaddset(&set, SIGUSR1);
    block(SIG_BLOCK, all);
    catch(SIGUSR2, SA_RESTART), catch(LATE, 0);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (int deed = KILL; deed <= TGQUEUE; deed++) {
            ask_friend_later(deed, deed % 2 ? LATE : SIGUSR1, deed, getpid(), 40);
            tell_taken(sigwaitinfo(&set, &info), &info);
        }
        ask_friend_later(KILL, SIGUSR2, 0, 0, 40);
        tell_taken(sigwaitinfo(&set, &info), &info);
        ask_friend_later(KILL, SIGUSR2, 0, 0, 40);
        tell_taken(sigtimedwait(&set, &info, &(struct timespec){5, 0}), &info);
        tell_taken(sigtimedwait(&set, &info, &(struct timespec){0, 20000000}), &info);
        tell_taken(sigtimedwait(&set, &info, &(struct timespec){0, 0}), &info);
        ask_friend(QUEUE, LATE, 8, 0), ask_friend(KILL, SIGUSR1, 0, 0);
        nap(50);
        for (int i = 0; i < 2; i++)
            tell_taken(sigwaitinfo(&set, &info), &info);
        tell_caught();
    }
}

/* A signal that comes at the very moment when the program begins to wait for it: one that would be
 * ignored, one that would end it, one with a handler. Each is taken, with its sender. */
CASE(as_the_wait_begins, AWAY)
{
    int all[] = {SIGCHLD, SIGUSR1, SIGUSR2, 0}, words[2];
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    for (int i = 0; all[i]; i++)
        sigaddset(&set, all[i]);
    block(SIG_BLOCK, all);
    catch(SIGUSR2, 0);
    need(pipe(words) == 0, "pipe");
    fflush(stdout);
    pid_t sender = fork();
    need(sender >= 0, "fork");
    if (sender == 0) {
        int number;
        close(words[1]);
        while (read(words[0], &number, sizeof number) == sizeof number)
            kill(getppid(), number);
        _exit(0);
    }
    close(words[0]);
    meet();
    int good = 0;
    for (int i = 0; i < 900; i++) {
        need(write(words[1], &all[i % 3], sizeof(int)) == sizeof(int), "write");
        for (int64_t begun = now(); now() - begun < i % 100 * 5;)
            ;
        int number = sigtimedwait(&set, &info, &(struct timespec){5, 0});
        if (number == all[i % 3] && info.si_code == SI_USER && info.si_pid == sender)
            good++;
        else
            tell_taken(number, &info);
    }
    printf("%d taken\n", good);
    tell_caught();
    // Its end is a signal, too.
    close(words[1]);
    tell_taken(sigtimedwait(&set, &info, &(struct timespec){5, 0}), &info);
}

/* One thread waits for all signals of the process, as many programs do it. Of two that are queued it
 * takes the smaller number first: each is sent when the one before it has been taken. */
static siginfo_t taken[4];
static volatile int taken_count;

static void *taker(void *argument)
{
    sleeper_tid = gettid();
    for (int i = 0; i < 4; taken_count = ++i)
        while (sigwaitinfo(argument, &taken[i]) < 0)
            ;
    return NULL;
}

static void until_taken(int count)
{
    while (taken_count < count)
        nap(1);
}

CASE(taken_by_a_thread, AWAY)
{
    int all[] = {LATE, SIGUSR1, 0};
    sigset_t set;
    pthread_t thread;
    sigemptyset(&set), sigaddset(&set, LATE), sigaddset(&set, SIGUSR1);
    block(SIG_BLOCK, all);
    need(pthread_create(&thread, NULL, taker, &set) == 0, "pthread_create");
    while (!sleeper_tid)
        nap(1);
    make_friend();
    meet();
    ask_friend(QUEUE, LATE, 1, 0);
    until_taken(1);
    kill(getpid(), SIGUSR1);
    meet();
    until_taken(2);
    ask_friend(KILL, SIGUSR1, 0, 0);
    until_taken(3);
    sigqueue(getpid(), LATE, (union sigval){.sival_int = 4});
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        tell_taken(taken[i].si_signo, &taken[i]);
}

static void read_signals(int fd, int count)
{
    struct signalfd_siginfo infos[4];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < count; i++) {
        int ready = poll(&one, 1, 5000);
        ssize_t got = read(fd, infos, sizeof infos);
        printf("polled %d, read %zd\n", ready, got / (ssize_t)sizeof infos[0]);
        for (int j = 0; j < got / (ssize_t)sizeof infos[0]; j++)
            printf("  %d code %d from %s uid %d value %d\n", infos[j].ssi_signo, infos[j].ssi_code,
                   who(infos[j].ssi_pid), infos[j].ssi_uid, infos[j].ssi_int);
    }
}

/* The descriptor is made at home. */
CASE(from_a_descriptor, HOME)
{
    int all[] = {LATE, SIGUSR1, 0};
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, LATE), sigaddset(&set, SIGUSR1);
    block(SIG_BLOCK, all);
    make_friend();
    meet();
    ask_friend(KILL, SIGUSR1, 0, 0);
    nap(20);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    read_signals(fd, 1);
    ask_friend(QUEUE, LATE, 5, 0);
    read_signals(fd, 1);
    ask_friend_later(QUEUE, LATE, 6, 0, 50);
    read_signals(fd, 1);
    kill(getpid(), SIGUSR1), sigqueue(getpid(), LATE, (union sigval){.sival_int = 7});
    read_signals(fd, 1);
    ssize_t nothing = read(fd, other_stack, 128);
    printf("no more: %zd %s\n", nothing, wrong());
    close(fd);
}

/* --- signals of descriptors --- */

CASE(of_descriptors, AWAY)
{
    int pair[2];
    catch(SIGIO, 0), catch(LATE, 0), catch(SIGURG, 0), catch(SIGPIPE, 0);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    make_friend();
    need(pipe(ends) == 0, "pipe");
    meet();
    fcntl(pair[0], F_SETOWN, getpid());
    fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK);
    ask_friend(WRITE, 0, pair[1], 0);
    await_caught(1);
    fcntl(pair[0], F_SETSIG, LATE);
    ask_friend(WRITE, 0, pair[1], 0);
    await_caught(2);
    meet();
    ask_friend(WRITE, 0, pair[1], 0);
    await_caught(3);
    struct f_owner_ex owner = {F_OWNER_TID, gettid()};
    need(fcntl(pair[0], F_SETOWN_EX, &owner) == 0, "F_SETOWN_EX");
    ask_friend(WRITE, 0, pair[1], 0);
    await_caught(4);
    close(ends[0]);
    ssize_t result = write(ends[1], "x", 1);
    printf("%zd %s\n", result, wrong());
    tell_caught();
}

/* --- flags of actions --- */

static void tell_mask(int signal)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    printf("in the handler of %s: USR1 %d USR2 %d TERM %d\n", sigabbrev_np(signal), sigismember(&set, SIGUSR1),
           sigismember(&set, SIGUSR2), sigismember(&set, SIGTERM));
    if (signal == SIGUSR2 && depth++ == 0)
        raise(SIGUSR2);
}

CASE(flags, AWAY)
{
    struct sigaction once = {.sa_handler = tell_mask, .sa_flags = SA_RESETHAND}, asked;
    struct sigaction nested = {.sa_handler = tell_mask, .sa_flags = SA_NODEFER};
    sigaddset(&once.sa_mask, SIGTERM);
    sigaction(SIGUSR1, &once, NULL);
    make_friend();
    meet();
    sigaction(SIGUSR2, &nested, NULL);
    sigaction(SIGTERM, &once, NULL);
    ask_friend(KILL, SIGUSR2, 0, 0);
    nap(30);
    raise(SIGUSR1);
    for (int signal = 1; signal < 32; signal++) {
        sigaction(signal, NULL, &asked);
        printf("%d%lx ", asked.sa_handler == SIG_DFL, (unsigned long)asked.sa_flags);
    }
    printf("\n");
    meet();
    /* Its handler is gone: it ends. */
    ask_friend(KILL, SIGUSR1, 0, 0);
    nap(5000);
    printf("fault: it goes on\n");
}
