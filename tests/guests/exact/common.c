/* What the guests of exactness share.
 *
 *   exact-FAMILY              lists the cases, as `NAME WHERE`
 *   exact-FAMILY CASE         runs one
 *
 * A case prints `ready PID` and waits for a line on standard input wherever it may be moved, and
 * otherwise what it has seen: the same wherever it happens. `done` comes last.
 */
#include "common.h"

static struct test *tests, **last = &tests;
pid_t friend_pid;
int (*friend_skill)(int, int);
static int orders[2], answers[2];
static pid_t self, parent;
volatile int caught;

void add(struct test *test)
{
    *last = test;
    last = &test->next;
}

void need(int good, const char *what)
{
    if (good)
        return;
    printf("fault: %s: %s\n", what, strerror(errno));
    exit(1);
}

void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

const char *wrong(void)
{
    return strerrorname_np(errno) ? strerrorname_np(errno) : "no error's number";
}

const char *who(pid_t pid)
{
    if (pid == self)
        return "self";
    if (pid == friend_pid)
        return "friend";
    return pid == parent ? "parent" : pid == 0 ? "nobody" : "other";
}

/* --- the friend --- */

struct order { int deed, signal, value, thread, after; };

static int obey(struct order *order)
{
    union sigval value = {.sival_int = order->value};
    siginfo_t info = {.si_signo = order->signal, .si_code = SI_QUEUE};
    info.si_pid = getpid(), info.si_uid = getuid(), info.si_value = value;
    nap(order->after);
    switch (order->deed) {
    case KILL:
        return kill(self, order->signal);
    case QUEUE:
        return sigqueue(self, order->signal, value);
    case TGKILL:
        return syscall(SYS_tgkill, self, order->thread, order->signal);
    case TGQUEUE:
        return syscall(SYS_rt_tgsigqueueinfo, self, order->thread, order->signal, &info);
    case WRITE:
        return write(order->value, "x", 1) - 1;
    case END:
        _exit(order->value);
    }
    return friend_skill ? friend_skill(order->deed, order->value) : -1;
}

void make_friend(void)
{
    need(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
    fflush(stdout);
    friend_pid = fork();
    need(friend_pid >= 0, "fork");
    if (friend_pid != 0) {
        close(orders[0]), close(answers[1]);
        return;
    }
    close(orders[1]), close(answers[0]);
    struct order order;
    while (read(orders[0], &order, sizeof order) == sizeof order) {
        char good = order.after > 0;
        if (good)
            need(write(answers[1], &good, 1) == 1, "an answer");
        good = obey(&order) == 0;
        if (order.after == 0)
            need(write(answers[1], &good, 1) == 1, "an answer");
    }
    _exit(0);
}

static void ask(struct order order)
{
    char good = 1;
    need(write(orders[1], &order, sizeof order) == sizeof order, "an order");
    if (order.deed == END)
        return;
    while (read(answers[0], &good, 1) != 1)
        need(errno == EINTR, "the friend's answer");
    need(good, "the friend's help");
}

void ask_friend(int deed, int signal, int value, pid_t thread)
{
    ask((struct order){deed, signal, value, thread, 0});
}

void ask_friend_later(int deed, int signal, int value, pid_t thread, int after)
{
    ask((struct order){deed, signal, value, thread, after});
}

/* --- signals as they come --- */

static siginfo_t seen[256];
static int told;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    int at = __atomic_fetch_add(&caught, 1, __ATOMIC_SEQ_CST);
    if (at < 256)
        seen[at] = *info;
}

void catch(int signal, int flags)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = flags | SA_SIGINFO};
    sigfillset(&action.sa_mask);
    need(sigaction(signal, &action, NULL) == 0, "sigaction");
}

void await_caught(int count)
{
    for (int64_t begun = now(); caught < count; nap(1))
        if (now() - begun > 20000000) {
            printf("fault: %d of %d signals have come\n", caught, count);
            exit(1);
        }
}

static void tell_info(const siginfo_t *info)
{
    int number = info->si_signo;
    const char *name = sigabbrev_np(number);
    if (name)
        printf("SIG%s", name);
    else
        printf("SIGRTMIN+%d", number - SIGRTMIN);
    printf(" code %d errno %d", info->si_code, info->si_errno);
    if (info->si_code == SI_TIMER)
        printf(" value %d overruns %s", info->si_value.sival_int, info->si_overrun ? "some" : "none");
    else if (info->si_code == SI_QUEUE || info->si_code == SI_MESGQ)
        printf(" from %s uid %d value %d", who(info->si_pid), info->si_uid, info->si_value.sival_int);
    else if (info->si_code <= 0)
        printf(" from %s uid %d", who(info->si_pid), info->si_uid);
    else if (number == SIGCHLD)
        printf(" from %s uid %d status %d", who(info->si_pid), info->si_uid, info->si_status);
    else if (number == SIGIO || number >= SIGRTMIN)
        printf(" band %lx fd %d", info->si_band, info->si_fd);
    printf("\n");
}

void tell_caught(void)
{
    while (told < caught && told < 256)
        tell_info(&seen[told++]);
}

int main(int argc, char **argv)
{
    static const char *places[] = {"away", "home", "anywhere"};
    setvbuf(stdout, NULL, _IOLBF, 0);
    self = getpid(), parent = getppid();
    for (struct test *test = tests; test; test = test->next) {
        if (argc < 2)
            printf("%s %s\n", test->name, places[test->where]);
        else if (strcmp(argv[1], test->name) == 0) {
            test->run();
            meet();
            printf("done\n");
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
