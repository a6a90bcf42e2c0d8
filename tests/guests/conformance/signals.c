/* Conformance: signals, timers and clocks. */
#include "common.h"
#include <poll.h>
#include <sys/times.h>
#include <sys/timex.h>

static siginfo_t queued;
static int ends[2] = {-1, -1}, self, child, thread;

static void wait_for_word(void *unused)
{
    char byte;
    (void)unused;
    if (read(ends[0], &byte, 1) < 0)
        tell("fault\n");
}

static void prepare(void)
{
    catch_signals(0);
    close(ends[0]), close(ends[1]);
    need(pipe(ends) == 0, "pipe");
    self = getpid();
}

static void prepare_child(void)
{
    prepare();
    child = fork();
    if (child == 0) {
        for (int signal = 1; signal < 32; signal++)
            sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        for (;;)
            pause();
    }
    name_identity(child, "child");
}

static void end_child(void)
{
    RAW(kill, child, SIGKILL, 0, 0, 0, 0);
    RAW(wait4, child, NULL, 0, NULL, 0, 0);
}

#define BIT(signal) (1ul << ((signal) - 1))

CASE(own, "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo", prepare)
{
    TRY(kill, .b = {V(self), V(SIGUSR1)});
    TRY(kill, .note = "none", .b = {V(self), V(0)});
    TRY(kill, .note = "number", .b = {V(self), V(65)});
    TRY(kill, .note = "negative", .b = {V(self), V(-1)});
    TRY(kill, .note = "missing", .b = {V(0x3fffffff), V(SIGUSR1)});
    TRY(tkill, .b = {V(self), V(SIGUSR2)});
    TRY(tkill, .note = "zero", .b = {V(0), V(SIGUSR2)});
    TRY(tkill, .note = "missing", .b = {V(0x3fffffff), V(SIGUSR2)});
    TRY(tgkill, .b = {V(self), V(self), V(40)});
    TRY(tgkill, .note = "missing", .b = {V(self), V(0x3fffffff), V(40)});
    TRY(tgkill, .note = "other", .b = {V(1), V(self), V(40)});
    TRY(tgkill, .note = "number", .b = {V(self), V(self), V(99)});
    queued = (siginfo_t){.si_signo = SIGRTMIN + 3, .si_code = SI_QUEUE};
    queued.si_pid = self, queued.si_value.sival_int = 12345;
    TRY(rt_sigqueueinfo, .b = {V(self), V(SIGRTMIN + 3), I(&queued, 128)});
    TRY(rt_sigqueueinfo, .note = "number", .b = {V(self), V(99), I(&queued, 128)});
    TRY(rt_sigqueueinfo, .note = "none", .b = {V(self), V(0), I(&queued, 128)});
    TRY(rt_tgsigqueueinfo, .b = {V(self), V(self), V(SIGRTMIN + 3), I(&queued, 128)});
    TRY(rt_tgsigqueueinfo, .note = "missing", .b = {V(self), V(0x3fffffff), V(SIGRTMIN + 3), I(&queued, 128)});
    queued.si_code = SI_USER;
    TRY(rt_sigqueueinfo, .note = "as_user", .b = {V(self), V(SIGRTMIN + 3), I(&queued, 128)});
}

CASE(others, "pidfd_open pidfd_send_signal", prepare_child)
{
    queued = (siginfo_t){.si_signo = SIGWINCH, .si_code = SI_QUEUE};
    int fd = RAW(pidfd_open, child, 0, 0, 0, 0, 0);
    TRY(pidfd_open, .b = {V(child), V(0)}, .flags = CLOSES);
    TRY(pidfd_open, .note = "own", .b = {V(self), V(0)}, .flags = CLOSES);
    TRY(pidfd_open, .note = "missing", .b = {V(0x3fffffff), V(0)}, .flags = CLOSES);
    TRY(pidfd_open, .note = "flags", .b = {V(child), V(-1)}, .flags = CLOSES);
    /* To the process (PIDFD_SIGNAL_THREAD_GROUP): for what may be a thread a program comes home. */
    TRY(pidfd_send_signal, .b = {V(fd), V(SIGWINCH), I(&queued, 128), V(2)});
    TRY(pidfd_send_signal, .note = "plain", .b = {V(fd), V(SIGWINCH), V(0), V(0)});
    TRY(pidfd_send_signal, .note = "flags", .b = {V(fd), V(SIGWINCH), V(0), V(-1)});
    TRY(kill, .note = "child", .b = {V(child), V(SIGWINCH)});
    TRY(kill, .note = "child_none", .b = {V(child), V(0)});
    TRY(tkill, .note = "child", .b = {V(child), V(SIGWINCH)});
    TRY(tgkill, .note = "child", .b = {V(child), V(child), V(SIGWINCH)});
    TRY(rt_sigqueueinfo, .note = "child", .b = {V(child), V(SIGWINCH), I(&queued, 128)});
    TRY(rt_tgsigqueueinfo, .note = "child", .b = {V(child), V(child), V(SIGWINCH), I(&queued, 128)});
    /* When the child dies is its own affair: its signal is let through when it has. */
    unsigned long mask = BIT(SIGCHLD);
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    TRY(kill, .note = "stop", .b = {V(child), V(SIGSTOP)});
    TRY(wait4, .note = "stopped", .b = {V(child), O(4), V(WUNTRACED), V(0)}, .flags = IDENTITY | ONCE);
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
    tell_signals();
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    TRY(kill, .note = "ends", .b = {V(child), V(SIGKILL)});
    TRY(waitid, .note = "ended", .b = {V(P_PIDFD), V(fd), OH(128, "16+4"), V(WEXITED | WNOWAIT), V(0)},
        .flags = ONCE);
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
    tell_signals();
    tell("\n");
    end_child();
    close(fd);
}

struct kernel_action { long handler; unsigned long flags, restorer, mask; };

CASE(actions, "rt_sigaction rt_sigprocmask rt_sigpending sigaltstack", prepare)
{
    struct kernel_action ignore = {1, 0, 0, 0}, once = {0, 0, 0, 0};
    TRY(rt_sigaction, .b = {V(SIGUSR2), I(&ignore, 32), OH(32, "0+8,16+8"), V(8)});
    TRY(rt_sigaction, .note = "ask", .b = {V(SIGUSR2), V(0), OH(32, "0+8,16+8"), V(8)});
    TRY(rt_sigaction, .note = "kill", .b = {V(SIGKILL), I(&ignore, 32), V(0), V(8)});
    TRY(rt_sigaction, .note = "number", .b = {V(65), I(&ignore, 32), V(0), V(8)});
    TRY(rt_sigaction, .note = "size", .b = {V(SIGUSR2), I(&ignore, 32), V(0), V(4)});
    TRY(rt_sigaction, .note = "default", .b = {V(SIGURG), I(&once, 32), OH(32, "0+8,16+8"), V(8)});
    TRY(kill, .note = "ignored", .b = {V(self), V(SIGUSR2)});
    unsigned long mask = BIT(SIGUSR1) | BIT(45);
    TRY(rt_sigprocmask, .b = {V(SIG_BLOCK), I(&mask, 8), O(8), V(8)});
    TRY(rt_sigprocmask, .note = "how", .b = {V(9), I(&mask, 8), O(8), V(8)});
    TRY(rt_sigprocmask, .note = "size", .b = {V(SIG_BLOCK), I(&mask, 8), O(8), V(7)});
    TRY(kill, .note = "blocked", .b = {V(self), V(SIGUSR1)});
    for (int i = 0; i < 3; i++) {
        queued = (siginfo_t){.si_signo = 45, .si_code = SI_QUEUE};
        queued.si_pid = self, queued.si_value.sival_int = 100 + i;
        TRY(rt_sigqueueinfo, .note = "blocked", .b = {V(self), V(45), I(&queued, 128)}, .flags = ONCE);
    }
    TRY(rt_sigpending, .b = {O(8), V(8)});
    TRY(rt_sigpending, .note = "size", .b = {O(8), V(9)});
    TRY(rt_sigprocmask, .note = "opens", .b = {V(SIG_UNBLOCK), I(&mask, 8), O(8), V(8)}, .flags = ONCE);
    tell_signals();
    static char stack[20000];
    stack_t alternate = {stack, 0, sizeof stack};
    TRY(sigaltstack, .b = {I(&alternate, 24), O(24)}, .flags = ONCE);
    TRY(sigaltstack, .note = "ask", .b = {V(0), OH(24, "0+8")});
    alternate.ss_size = 10;
    TRY(sigaltstack, .note = "small", .b = {I(&alternate, 24), V(0)});
    alternate.ss_flags = SS_DISABLE;
    TRY(sigaltstack, .note = "off", .b = {I(&alternate, 24), V(0)});
    catch_signals(0);
}

static void block_some(void)
{
    unsigned long mask = BIT(SIGUSR1) | BIT(45) | BIT(SIGALRM);
    prepare();
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
}

static void send_one(void)
{
    RAW(kill, self, 45, 0, 0, 0, 0);
}

CASE(waiting, "rt_sigtimedwait rt_sigsuspend pause", block_some)
{
    unsigned long wanted = BIT(SIGUSR1) | BIT(45), empty = 0, all = BIT(SIGUSR1) | BIT(45) | BIT(SIGALRM);
    long little[] = {0, 3000000}, odd[] = {0, -3};
    TRY(rt_sigtimedwait, .b = {I(&wanted, 8), OH(128, "16+4"), I(little, 16), V(8)}, .before = send_one);
    TRY(rt_sigtimedwait, .note = "time", .b = {I(&wanted, 8), OH(128, "16+4"), I(little, 16), V(8)}, .flags = ONCE);
    TRY(rt_sigtimedwait, .note = "odd", .b = {I(&wanted, 8), O(128), I(odd, 16), V(8)}, .flags = ONCE);
    TRY(rt_sigtimedwait, .note = "size", .b = {I(&wanted, 8), O(128), I(little, 16), V(4)}, .flags = ONCE);
    RAW(rt_sigtimedwait, &wanted, 0, little, 8, 0, 0);
    TRY(kill, .note = "pending", .b = {V(self), V(SIGUSR1)}, .flags = ONCE);
    TRY(rt_sigsuspend, .b = {I(&empty, 8), V(8)}, .flags = ONCE);
    TRY(rt_sigsuspend, .note = "size", .b = {I(&empty, 8), V(4)});
    alarm_in(20);
    TRY(rt_sigsuspend, .note = "alarm", .b = {I(&empty, 8), V(8)}, .flags = ONCE);
    RAW(rt_sigprocmask, SIG_UNBLOCK, &all, 0, 8, 0, 0);
    alarm_in(20);
    TRY(pause, .b = {V(0)});
}

CASE(restarting, "", prepare)
{
    catch_signals(SA_RESTART);
    long second[] = {0, 60000000};
    /* Only a second alarm's handler, without SA_RESTART, ends these. */
    alarm_in(20);
    TRY(nanosleep, .b = {I(second, 16), OH(16, "0+16")}, .flags = ONCE);
    alarm_in(20);
    struct pollfd fd = {ends[0], POLLIN, 0};
    TRY(poll, .note = "not_restarted", .b = {C(&fd, 8), V(1), V(500)}, .flags = ONCE);
    catch_signals(0);
    TRY(nanosleep, .note = "whole", .b = {IL(0, 1000000), O(16)}, .flags = ONCE);
}

static void thread_waits(void)
{
    prepare();
    thread = start_thread(wait_for_word, NULL);
}

CASE(to_a_thread, "", thread_waits)
{
    TRY(tgkill, .note = "thread", .b = {V(self), V(thread), V(SIGUSR1)});
    TRY(rt_sigpending, .note = "thread", .b = {O(8), V(8)});
    TRY(tgkill, .note = "main", .b = {V(self), V(self), V(SIGUSR1)});
    need(write(ends[1], "x", 1) == 1, "write");
    await_thread();
}

static void no_alarm(void) { RAW(alarm, 0, 0, 0, 0, 0, 0); }

CASE(interval_timers, "alarm getitimer setitimer", prepare)
{
    long later[] = {0, 0, 1000, 0}, odd[] = {0, 0, 0, 2000000}, never[] = {0, 0, 0, 0};
    TRY(alarm, .b = {V(100)}, .before = no_alarm);
    TRY(alarm, .note = "before", .b = {V(0)}, .flags = HIDDEN);
    for (int which = 0; which < 3; which++) {
        TRY(setitimer, .b = {V(which), I(later, 32), OH(32, "16+16")});
        TRY(getitimer, .b = {V(which), OH(32, "16+16")});
        TRY(setitimer, .note = "odd", .b = {V(which), I(odd, 32), OH(32, "16+16")});
        TRY(setitimer, .note = "never", .b = {V(which), I(never, 32), OH(32, "16+16")}, .flags = NO_NULL);
    }
    TRY(getitimer, .note = "unknown", .b = {V(7), OH(32, "16+16")});
    TRY(setitimer, .note = "unknown", .b = {V(7), I(later, 32), OH(32, "16+16")});
    no_alarm();
}

/* Newer than the distribution's headers. */
#define PR_TIMER_IDS 77

static int timer = -1;
static void delete_timer(void) { RAW(timer_delete, timer, 0, 0, 0, 0, 0), timer = -1; }
static void keep_timer(long result)
{
    if (result == 0)
        for (int id = 0; id < 64; id++)
            RAW(timer_delete, id, 0, 0, 0, 0, 0);
}

CASE(timers, "timer_create timer_settime timer_gettime timer_getoverrun timer_delete", prepare)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 44, .sigev_value.sival_int = 9};
    struct sigevent odd = {.sigev_notify = 77};
    long later[] = {0, 0, 1000, 0}, bad[] = {0, 0, 0, -1}, soon[] = {0, 0, 0, 1000000};
    TRY(timer_create, .b = {V(CLOCK_MONOTONIC), I(&event, 64), OH(4, "0+4")}, .after = keep_timer);
    TRY(timer_create, .note = "clock", .b = {V(99), I(&event, 64), OH(4, "0+4")}, .after = keep_timer);
    TRY(timer_create, .note = "odd", .b = {V(CLOCK_MONOTONIC), I(&odd, 64), OH(4, "0+4")}, .after = keep_timer);
    /* Who restores a program says which number a timer has, where the kernel lets it (6.15). */
    int wanted = 41;
    int numbered = prctl(PR_TIMER_IDS, 1, 0, 0, 0) == 0;
    TRY(timer_create, .note = "number", .b = {V(CLOCK_MONOTONIC), I(&event, 64), CH(&wanted, 4, numbered ? NULL : "0+4")},
        .after = keep_timer);
    prctl(PR_TIMER_IDS, 0, 0, 0, 0);
    need(RAW(timer_create, CLOCK_MONOTONIC, &event, &timer, 0, 0, 0) == 0, "timer_create");
    TRY(timer_settime, .b = {V(timer), V(0), I(later, 32), OH(32, "16+16")});
    TRY(timer_settime, .note = "bad", .b = {V(timer), V(0), I(bad, 32), OH(32, "16+16")});
    TRY(timer_settime, .note = "unknown", .b = {V(999), V(0), I(later, 32), OH(32, "16+16")});
    TRY(timer_gettime, .b = {V(timer), OH(32, "16+16")});
    TRY(timer_gettime, .note = "unknown", .b = {V(999), OH(32, "16+16")});
    /* The timer may expire before the call that waits for it: it has to find the signal then. */
    unsigned long mask = BIT(44), empty = 0;
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    RAW(timer_settime, timer, 0, soon, 0, 0, 0);
    TRY(rt_sigsuspend, .note = "timer", .b = {I(&empty, 8), V(8)}, .flags = ONCE);
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
    TRY(timer_getoverrun, .b = {V(timer)});
    TRY(timer_getoverrun, .note = "unknown", .b = {V(999)});
    TRY(timer_delete, .b = {V(timer)});
    TRY(timer_delete, .note = "again", .b = {V(timer)});
    delete_timer();
}

CASE(clocks, "clock_gettime clock_getres gettimeofday time times getrusage adjtimex clock_adjtime", prepare)
{
    for (int clock = -1; clock < 13; clock++) {
        TRY(clock_gettime, .b = {V(clock), OH(16, "0+16")}, .flags = clock == 2 ? 0 : GOOD);
        TRY(clock_getres, .b = {V(clock), O(16)}, .flags = GOOD);
    }
    int child_clock = (~1u << 3) | 2, own_thread = (~(unsigned)self << 3) | 6;
    TRY(clock_gettime, .note = "other", .b = {V(child_clock), OH(16, "0+16")});
    TRY(clock_gettime, .note = "thread", .b = {V(own_thread), OH(16, "0+16")});
    TRY(clock_gettime, .note = "descriptor", .b = {V((~5u << 3) | 3), OH(16, "0+16")});
    TRY(clock_getres, .note = "other", .b = {V(child_clock), O(16)});
    TRY(clock_getres, .note = "descriptor", .b = {V((~5u << 3) | 3), O(16)});
    TRY(gettimeofday, .b = {OH(16, "0+16"), O(8)});
    TRY(time, .b = {OH(8, "0+8")}, .flags = HIDDEN);
    TRY(times, .b = {OH(32, "0+32")}, .flags = HIDDEN);
    /* Times, faults, switches: what else there is the kernel leaves 0. */
    TRY(getrusage, .b = {V(RUSAGE_SELF), OH(144, "0+40,64+24,88+56")});
    TRY(getrusage, .note = "thread", .b = {V(RUSAGE_THREAD), OH(144, "0+40,64+24,88+56")});
    TRY(getrusage, .note = "children", .b = {V(RUSAGE_CHILDREN), OH(144, "0+40,64+24,88+56")});
    TRY(getrusage, .note = "unknown", .b = {V(9), O(144)});
    struct timex ask = {0};
    TRY(adjtimex, .b = {CH(&ask, 208, "8+200")}, .flags = HIDDEN);
    TRY(clock_adjtime, .b = {V(CLOCK_REALTIME), CH(&ask, 208, "8+200")}, .flags = HIDDEN);
    TRY(clock_adjtime, .note = "clock", .b = {V(CLOCK_MONOTONIC), C(&ask, 208)});
}

CASE(sleeping, "nanosleep clock_nanosleep restart_syscall", prepare)
{
    long little[] = {0, 1000000}, odd[] = {0, 2000000000}, long_one[] = {1000, 0};
    TRY(nanosleep, .b = {I(little, 16), O(16)});
    TRY(nanosleep, .note = "odd", .b = {I(odd, 16), O(16)});
    TRY(clock_nanosleep, .b = {V(CLOCK_MONOTONIC), V(0), I(little, 16), O(16)});
    TRY(clock_nanosleep, .note = "past", .b = {V(CLOCK_REALTIME), V(TIMER_ABSTIME), I(little, 16), V(0)});
    TRY(clock_nanosleep, .note = "clock", .b = {V(99), V(0), I(little, 16), V(0)});
    alarm_in(20);
    TRY(nanosleep, .note = "interrupted", .b = {I(long_one, 16), OH(16, "0+16")}, .flags = ONCE);
    alarm_in(20);
    TRY(clock_nanosleep, .note = "interrupted", .b = {V(CLOCK_MONOTONIC), V(0), I(long_one, 16), OH(16, "0+16")},
        .flags = ONCE);
    TRY(restart_syscall, .b = {V(0)});
}
