/* order take COUNT: takes signals that are blocked, in bursts, and tells how many came behind a later one.
 * order send PID COUNT: sends them, with numbers as values, faster than they are taken.
 * order beside COUNT: takes them in a second thread, while the first one has a handler for others.
 * order both PID COUNT [FIRST]: sends both kinds, with numbers from FIRST on.
 * order cause: makes calls that send it signals, until it is asked to end (SIGUSR2), and tells how many of these had
 * not been handled when the call that sent them had returned.
 * order wait: signals that wait for the process while its first thread reads standard input. At each line a second
 * thread takes them, tells which there were, and sends them anew.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void nap(long milliseconds)
{
    struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

static int take(int count)
{
    sigset_t set;
    siginfo_t info;
    int last = -1, late = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    sigprocmask(SIG_BLOCK, &set, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (int taken = 0; taken < count; taken++) {
        if (taken % 8 == 0)
            nap(30);
        if (sigwaitinfo(&set, &info) < 0)
            return 3;
        if (info.si_value.sival_int < last)
            late++;
        else
            last = info.si_value.sival_int;
    }
    printf("%d taken, %d late\n", count, late);
    return 0;
}

static int send_all(int pid, int count)
{
    for (int number = 0; number < count; number++) {
        union sigval value = {.sival_int = number};
        while (sigqueue(pid, SIGRTMIN + 4, value) < 0)
            if (errno != EAGAIN)
                return 3;
        nap(3);
    }
    return 0;
}

static volatile sig_atomic_t handled, ends, last_handled = -1, late_handled;

static void handle(int signal)
{
    if (signal == SIGUSR2)
        ends = 1;
    else
        handled++;
}

static void handle_value(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    late_handled += info->si_value.sival_int <= last_handled;
    last_handled = info->si_value.sival_int;
    handled++;
}

static void *take_beside(void *argument)
{
    int *count = argument, taken = 0, last = -1, odd = 0;
    struct timespec patience = {.tv_sec = 5};
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    while (taken < *count && sigtimedwait(&set, &info, &patience) > 0) {
        taken++;
        odd += info.si_value.sival_int <= last;
        last = info.si_value.sival_int;
    }
    if (taken < *count)
        printf("%s: ", strerror(errno));
    printf("%d taken, %d late; ", taken, odd);
    ends = 1;
    return NULL;
}

static int beside(int expected)
{
    struct sigaction action = {.sa_sigaction = handle_value, .sa_flags = SA_RESTART | SA_SIGINFO};
    pthread_t taker;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaddset(&set, SIGRTMIN + 5);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&taker, NULL, take_beside, &expected) != 0)
        return 3;
    sigaction(SIGRTMIN + 5, &action, NULL);
    sigdelset(&set, SIGRTMIN + 4);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (!ends || (handled < expected && ends++ < 1000))
        nap(5);
    pthread_join(taker, NULL);
    printf("%d handled, %d late\n", handled, late_handled);
    fflush(stdout);
    return getchar() == 'e' ? 0 : 3;
}

static int send_both(int pid, int count, int first)
{
    for (int number = first; number < first + count; number++) {
        union sigval value = {.sival_int = number};
        for (int kind = 4; kind <= 5; kind++)
            while (sigqueue(pid, SIGRTMIN + kind, value) < 0)
                if (errno != EAGAIN)
                    return 3;
        nap(4);
    }
    return 0;
}

static int cause(void)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    int pipes[2];
    long late = 0;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
    if ((getpgrp() != getpid() && setpgid(0, 0) < 0) || pipe(pipes) < 0 || close(pipes[0]) < 0)
        return 3;
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (!ends) {
        handled = 0;
        if (kill(0, SIGUSR1) < 0)
            return 3;
        late += handled == 0;
        while (handled == 0)
            ;
        handled = 0;
        if (write(pipes[1], "x", 1) >= 0 || errno != EPIPE)
            return 3;
        late += handled == 0;
        while (handled == 0)
            ;
    }
    printf("%ld late\n", late);
    return 0;
}

static sigset_t waiting;

static void *take_those(void *nothing)
{
    struct timespec none = {0, 0};
    int number;
    while ((number = sigtimedwait(&waiting, NULL, &none)) > 0)
        printf(" %d", number);
    printf("\n");
    fflush(stdout);
    return nothing;
}

static int wait_for(void)
{
    char line[16];
    sigemptyset(&waiting);
    sigaddset(&waiting, SIGPIPE);
    sigaddset(&waiting, SIGXFSZ);
    sigaddset(&waiting, SIGCONT);
    sigprocmask(SIG_BLOCK, &waiting, NULL);
    printf("ready %d\n", getpid());
    fflush(stdout);
    do {
        pthread_t other;
        kill(getpid(), SIGPIPE);
        kill(getpid(), SIGXFSZ);
        kill(getpid(), SIGCONT);
        if (!fgets(line, sizeof line, stdin))
            return 3;
        if (pthread_create(&other, NULL, take_those, NULL) != 0)
            return 3;
        pthread_join(other, NULL);
    } while (strcmp(line, "end\n") != 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "take") == 0)
        return take(atoi(argv[2]));
    if (argc == 4 && strcmp(argv[1], "send") == 0)
        return send_all(atoi(argv[2]), atoi(argv[3]));
    if (argc == 3 && strcmp(argv[1], "beside") == 0)
        return beside(atoi(argv[2]));
    if (argc >= 4 && strcmp(argv[1], "both") == 0)
        return send_both(atoi(argv[2]), atoi(argv[3]), argc > 4 ? atoi(argv[4]) : 0);
    if (argc == 2 && strcmp(argv[1], "cause") == 0)
        return cause();
    if (argc == 2 && strcmp(argv[1], "wait") == 0)
        return wait_for();
    return 2;
}
