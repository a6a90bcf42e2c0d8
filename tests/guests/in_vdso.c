/* Is interrupted in the middle of asking for the time, and moves while a handler still runs.
 *
 *   in_vdso
 *
 * Again and again it says `outside PID` and waits for a line; asks for the time until a signal has met
 * it within the kernel's own code (vDSO); says `ready PID` in the handler, waits there for a line, goes
 * on where it was met, and says `on PID`. If no signal meets it there for a second, it says `never PID`
 * instead. Ends with status 1 if the time has ever gone back.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define VDSO_LENGTH 0x2000
/* A signal travels from home: at one a millisecond a slow machine does nothing else. */
#define TICK_US 4000
#define TICKS_MAX 250

static volatile sig_atomic_t met, ticks;

static void say(const char *what)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%s %d\n", what, getpid());
    if (write(1, text, length) != length)
        _exit(3);
}

static void wait_for_line(void)
{
    char byte;
    do
        if (read(0, &byte, 1) != 1)
            _exit(3);
    while (byte != '\n');
}

static void on_tick(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    uint64_t rip = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    uint64_t start = getauxval(AT_SYSINFO_EHDR);
    if (met)
        return;
    ticks++;
    if (rip - start >= VDSO_LENGTH)
        return;
    met = 1;
    say("ready");
    wait_for_line();
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval tick = {{0, TICK_US}, {0, TICK_US}};
    struct timespec last = {0, 0}, now;
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &tick, NULL))
        return 3;
    for (;;) {
        met = 1;
        say("outside");
        wait_for_line();
        ticks = 0;
        met = 0;
        for (int more = 1000; more > 0 && ticks < TICKS_MAX; more -= met) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            int64_t passed = (now.tv_sec - last.tv_sec) * 1000000000LL + now.tv_nsec - last.tv_nsec;
            if (passed < 0) {
                fprintf(stderr, "fault: the time has gone back\n");
                return 1;
            }
            last = now;
        }
        say(met ? "on" : "never");
    }
}
