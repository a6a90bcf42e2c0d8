/* Processes in a pid namespace within a pid namespace:
 *
 *     main ---- A (1 of the outer one) ---- B (3 there, 1 of the inner one) ---- C (2 there), D (3 there)
 *
 * A line "X COMMAND" on standard input is for process X; it answers with one line. What they say is the same
 * whenever the program runs, because all numbers are those of the namespaces.
 *
 * Each process has a thread that holds two mutexes, one that inherits priorities and one that is robust, until
 * the process is told to "tell": their words hold the owner's number, and the kernel compares it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { A, B, C, D, COUNT };

static int lines[COUNT][2];
static int gate[2];
static volatile int *volatile nowhere = (volatile int *)8;
static char name = 'M';

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %c: %s: %s\n", name, what, strerror(errno));
    exit(3);
}

static void say(const char *format, ...)
{
    char text[512];
    int length = snprintf(text, sizeof text, "%c: ", name);
    va_list values;
    va_start(values, format);
    length += vsnprintf(text + length, sizeof text - length - 1, format, values);
    va_end(values);
    text[length++] = '\n';
    need(write(1, text, length) == length, "write");
}

static void wait_a_little(void)
{
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* The thread that holds. */
static pthread_mutex_t inherits, robust;
static sem_t held, release_it;
static atomic_int holder;
static pthread_t thread;

static unsigned word(pthread_mutex_t *mutex)
{
    return __atomic_load_n((unsigned *)mutex, __ATOMIC_ACQUIRE);
}

static void *hold(void *unused)
{
    atomic_store(&holder, (int)syscall(SYS_gettid));
    need(pthread_mutex_lock(&inherits) == 0, "the mutex that inherits");
    need(pthread_mutex_lock(&robust) == 0, "the robust mutex");
    sem_post(&held);
    while (sem_wait(&release_it) != 0)
        ;
    /* The other one waits in the kernel, which hands the mutex over. */
    while (!(word(&inherits) & FUTEX_WAITERS))
        sched_yield();
    need(pthread_mutex_unlock(&inherits) == 0, "unlock");
    return unused; /* The robust one has lost its owner. */
}

static void begin_to_hold(void)
{
    need(pthread_create(&thread, NULL, hold, NULL) == 0, "pthread_create");
    while (sem_wait(&held) != 0)
        ;
}

static void prepare(void)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherits, &kind);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    sem_init(&held, 0, 0);
    sem_init(&release_it, 0, 0);
    begin_to_hold();
}

static void tell(void)
{
    int pid = getpid(), own = (int)syscall(SYS_gettid), other = atomic_load(&holder);
    int alive = (int)syscall(SYS_tgkill, pid, other, 0);
    int stranger = (int)syscall(SYS_tgkill, pid, 4000000, 0) ? errno : 0;
    int busy = pthread_mutex_trylock(&inherits);
    int right = (int)(word(&inherits) & FUTEX_TID_MASK) == other;
    int robust_right = (int)(word(&robust) & FUTEX_TID_MASK) == other;
    sem_post(&release_it);
    int handed = pthread_mutex_lock(&inherits);
    int mine = (int)(word(&inherits) & FUTEX_TID_MASK) == own;
    pthread_mutex_unlock(&inherits);
    int dead = pthread_mutex_lock(&robust);
    pthread_mutex_consistent(&robust);
    pthread_mutex_unlock(&robust);
    pthread_join(thread, NULL);
    begin_to_hold();
    say("pid %d thread %d parent %d group %d session %d; holder %d %d, stranger %d; inherits %d %d %d %d; robust %d %d",
        pid, own, getppid(), getpgid(0), getsid(0), alive, other != own, stranger, busy, right, handed, mine,
        robust_right, dead);
}

/* The last signal that came. */
static volatile sig_atomic_t number, sender, user, code;

static void comes(int signal, siginfo_t *info, void *context)
{
    (void)context;
    sender = info->si_pid;
    user = (int)info->si_uid;
    code = info->si_code;
    number = signal;
}

static void got(void)
{
    for (int round = 0; round < 20000 && number == 0; round++)
        wait_a_little();
    say("signal %d of %d, user %d, code %d", (int)number, (int)sender, (int)user, (int)code);
    number = 0;
}

/* A timer of one thread: its signals come to that thread alone. */
static atomic_int timed, ticks, astray;
static sem_t begun;

static void tick(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    if ((int)syscall(SYS_gettid) != atomic_load(&timed))
        atomic_fetch_add(&astray, 1);
    atomic_fetch_add(&ticks, 1);
}

static void *be_timed(void *unused)
{
    atomic_store(&timed, (int)syscall(SYS_gettid));
    sem_post(&begun);
    for (;;)
        pause();
    return unused;
}

static void timer(void)
{
    static timer_t one;
    struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerspec often = {{0, 5000000}, {0, 5000000}}, never = {{0, 0}, {0, 0}};
    if (atomic_load(&timed) == 0) {
        pthread_t other;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
        sem_init(&begun, 0, 0);
        sigaction(SIGUSR2, &action, NULL);
        need(pthread_create(&other, NULL, be_timed, NULL) == 0, "pthread_create");
        while (sem_wait(&begun) != 0)
            ;
        event._sigev_un._tid = atomic_load(&timed);
        need(timer_create(CLOCK_MONOTONIC, &event, &one) == 0, "timer_create");
    }
    int before = atomic_load(&ticks);
    need(timer_settime(one, 0, &often, NULL) == 0, "timer_settime");
    for (int round = 0; round < 20000 && atomic_load(&ticks) < before + 3; round++)
        wait_a_little();
    need(timer_settime(one, 0, &never, NULL) == 0, "timer_settime");
    say("timer %d, astray %d", atomic_load(&ticks) >= before + 3, atomic_load(&astray));
}

static void status_of(int pid)
{
    int status = 0;
    int found = waitpid(pid, &status, 0);
    if (found < 0)
        say("no child: %d", errno);
    else
        say("child %d ended with %x", pid < 0 ? 0 : found, status);
}

/* A grandchild whose parent ends goes to the first process of its namespace. */
static void orphan(void)
{
    int pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0) {
        if (fork() == 0) {
            while (getppid() != 1)
                wait_a_little();
            _exit(5);
        }
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    say("left behind: %x", status);
}

static void obey(char *line)
{
    int to = 0, which = 0;
    if (strcmp(line, "tell") == 0)
        tell();
    else if (strcmp(line, "got") == 0)
        got();
    else if (strcmp(line, "timer") == 0)
        timer();
    else if (strcmp(line, "orphan") == 0)
        orphan();
    else if (strcmp(line, "fault") == 0)
        *nowhere = 1;
    else if (sscanf(line, "kill %d %d", &to, &which) == 2)
        say("kill %d %d: %d", to, which, kill(to, which) ? errno : 0);
    else if (sscanf(line, "raise %d", &which) == 1)
        say("raise %d: %d", which, raise(which) ? errno : 0);
    else if (sscanf(line, "wait %d", &to) == 1)
        status_of(to);
    else if (sscanf(line, "exit %d", &which) == 1)
        exit(which);
    else
        need(0, line);
}

static void live(int role)
{
    name = (char)('A' + role);
    struct sigaction action = {.sa_sigaction = comes, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    close(gate[1]);
    char none;
    need(read(gate[0], &none, 1) == 0, "gate");
    prepare();
    FILE *in = fdopen(lines[role][0], "r");
    char line[128];
    for (int other = 0; other < COUNT; other++)
        close(lines[other][1]);
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        obey(line);
    }
    exit(0);
}

static int start(void)
{
    int pid = fork();
    need(pid >= 0, "fork");
    return pid;
}

int main(void)
{
    for (int role = 0; role < COUNT; role++)
        need(pipe(lines[role]) == 0, "pipe");
    need(unshare(CLONE_NEWPID) == 0, "unshare");
    if (start() == 0) {
        /* Whoever has made a namespace for its children makes no threads: so a child makes it, and leaves B to A. */
        int maker = start();
        if (maker == 0) {
            need(unshare(CLONE_NEWPID) == 0, "unshare");
            if (start() != 0)
                _exit(0);
            /* In this order they have the numbers 2 and 3, because none of them makes threads before. */
            need(pipe(gate) == 0, "pipe");
            if (start() == 0)
                live(C);
            if (start() == 0)
                live(D);
            live(B);
        }
        need(waitpid(maker, NULL, 0) == maker, "waitpid");
        need(pipe(gate) == 0, "pipe");
        live(A);
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    char line[128];
    while (fgets(line, sizeof line, stdin) && line[0] != 'M') {
        size_t length = strlen(line);
        need(write(lines[line[0] - 'A'][1], line + 2, length - 2) == (ssize_t)(length - 2), "write");
    }
    int status = 0;
    wait(&status);
    say("A ended with %x", status);
    return 0;
}
