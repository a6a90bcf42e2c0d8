/* Blocks signals, sends itself some, works for a while, and looks for them: they wait, by each way to look, and come in
 * their order as soon as they may. Ends at a line on standard input, and prints how often it was otherwise.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NUMBERS = 4, EACH = 3 };

/* The values that were sent and that have come, by number. */
static int sent[65], came[65];
static volatile int wrong;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    wrong += info->si_value.sival_int != came[number] + 1 || info->si_pid != getpid();
    came[number] = info->si_value.sival_int;
}

static void on_standard(int number)
{
    came[number]++;
}

static void send(int number, int round)
{
    union sigval value = {.sival_int = ++sent[number]};
    siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = value;
    /* Of one number all in the same queue: that of the thread comes first. */
    if ((round + number) % 2 == 0)
        sigqueue(getpid(), number, value);
    else
        syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, &info);
}

int main(void)
{
    const struct timespec no_time = {0};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    struct sigaction standard = {.sa_handler = on_standard};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    sigset_t set, waits;
    /* One handler after the other, and not each on top of the one before. */
    sigfillset(&action.sa_mask);
    sigfillset(&standard.sa_mask);
    sigemptyset(&set);
    for (int number = SIGRTMIN; number < SIGRTMIN + NUMBERS; number++) {
        sigaction(number, &action, NULL);
        sigaddset(&set, number);
    }
    sigaction(SIGUSR1, &standard, NULL);
    sigaddset(&set, SIGUSR1);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (int round = 0; round % 64 != 0 || poll(&input, 1, 0) == 0; round++) {
        sigprocmask(SIG_BLOCK, &set, NULL);
        for (int each = 0; each < EACH; each++)
            for (int number = SIGRTMIN; number < SIGRTMIN + NUMBERS; number++)
                send(number, round);
        kill(getpid(), SIGUSR1);
        sent[SIGUSR1]++;
        /* Most moves find it here. It makes no call, so nothing delays what it looks for. */
        for (volatile int work = 0; work < 300000; work++)
            ;
        if (round % 2 == 0) {
            sigpending(&waits);
            for (int number = SIGRTMIN; number < SIGRTMIN + NUMBERS; number++)
                wrong += !sigismember(&waits, number);
            wrong += !sigismember(&waits, SIGUSR1);
        }
        /* One of the real-time signals is received: the standard one comes first. */
        for (int number, some = 0; some < 2 && round % 3 == 0; some++) {
            siginfo_t info;
            number = sigtimedwait(&set, &info, &no_time);
            if (number == SIGUSR1)
                on_standard(number);
            else if (number > 0)
                on_signal(number, &info, NULL);
            else
                wrong++;
        }
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        for (int number = 1; number <= SIGRTMAX; number++)
            wrong += came[number] != sent[number];
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
