/* Exactness: parents, children and groups, and how each learns of the others' stops and ends. */
#include "common.h"
#include <sys/prctl.h>

static const char *name_of(int signal) { return sigabbrev_np(signal) ? sigabbrev_np(signal) : "?"; }

static void tell_status(const char *what, int status)
{
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: SIG%s core %d\n", what, name_of(WTERMSIG(status)), WCOREDUMP(status));
    else if (WIFSTOPPED(status))
        printf("%s: stopped SIG%s\n", what, name_of(WSTOPSIG(status)));
    else
        printf("%s: continued %d\n", what, WIFCONTINUED(status));
}

/* --- children of a program that is away --- */

static int ends[2];

static pid_t child(void (*body)(void))
{
    need(pipe(ends) == 0, "pipe");
    fflush(stdout);
    pid_t pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0) {
        char byte;
        for (int signal = 1; signal < 32; signal++)
            sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1)
            body();
        _exit(9);
    }
    return pid;
}

static void exits(void) { _exit(3); }
static void aborts(void) { abort(); }
static void is_stopped(void) { raise(SIGSTOP), nap(200), _exit(4); }
static void is_killed(void) { raise(SIGKILL); }

static void tell_child(const char *what, pid_t pid, int options)
{
    siginfo_t info = {0};
    int result = waitid(P_PID, pid, &info, options);
    printf("%s: %d code %d status %d, the same %d\n", what, result, info.si_code, info.si_status,
           info.si_pid == pid);
}

CASE(children, AWAY)
{
    void (*bodies[])(void) = {exits, aborts, is_killed, is_stopped};
    pid_t children[4];
    int words[4];
    sigset_t set;
    siginfo_t info;
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    sigemptyset(&set), sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 4; i++) {
        children[i] = child(bodies[i]);
        close(ends[0]);
        words[i] = ends[1];
    }
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0)
            meet();
        need(write(words[i], "x", 1) == 1, "write");
        int number = sigwaitinfo(&set, &info);
        printf("SIG%s code %d status %d uid %d, its %d\n", name_of(number), info.si_code, info.si_status,
               info.si_uid, info.si_pid == children[i]);
        if (i == 3) {
            tell_child("stopped", children[i], WSTOPPED);
            kill(children[i], SIGCONT);
            sigwaitinfo(&set, &info);
            printf("code %d status %d\n", info.si_code, info.si_status);
            tell_child("continued", children[i], WCONTINUED | WNOHANG);
        }
        tell_child("looked at", children[i], WEXITED | WNOWAIT);
        tell_child("taken", children[i], WEXITED);
        tell_child("again", children[i], WEXITED);
        while (sigtimedwait(&set, NULL, &(struct timespec){0, 1000000}) > 0)
            ;
    }
}

CASE(unwanted_children, AWAY)
{
    pid_t pid = child(exits);
    close(ends[0]);
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    meet();
    sigaction(SIGCHLD, &action, NULL);
    need(write(ends[1], "x", 1) == 1, "write");
    int result = waitpid(pid, NULL, 0);
    printf("%d %s\n", result, wrong());
    result = waitpid(-1, NULL, 0);
    printf("%d %s\n", result, wrong());
}

/* --- a program that is away, as its parent sees it: the child meets, the parent looks --- */

static pid_t mover;

static void look_at(int count)
{
    for (int i = 0, status; i < count; i++) {
        need(waitpid(mover, &status, WUNTRACED | WCONTINUED) == mover, "waitpid");
        tell_status("parent", status);
        if (WIFSTOPPED(status)) {
            nap(30);
            kill(mover, SIGCONT);
        }
        if (WIFEXITED(status) || WIFSIGNALED(status))
            return;
    }
}

static void begin_mover(void (*body)(void), int looks)
{
    fflush(stdout);
    mover = fork();
    need(mover >= 0, "fork");
    if (mover == 0) {
        body();
        fflush(stdout);
        _exit(17);
    }
    look_at(looks);
    printf("done\n");
    exit(0);
}

/* Not before the parent has seen that it goes on: the next stop would hide that. */
static void go_on_after(int count)
{
    await_caught(count);
    nap(100);
}

static void stops_in_all_ways(void)
{
    catch(SIGCONT, 0), catch(SIGTSTP, 0);
    setpgid(0, 0);
    meet();
    raise(SIGSTOP);
    go_on_after(1);
    kill(getpid(), SIGSTOP);
    go_on_after(2);
    raise(SIGTSTP);
    go_on_after(3);
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    go_on_after(4);
    kill(0, SIGTTIN);
    go_on_after(5);
    meet();
    killpg(getpgrp(), SIGTTOU);
    go_on_after(6);
    tell_caught();
}

CASE(stops, ANYWHERE) { begin_mover(stops_in_all_ways, 40); }

static void dies_in_a_call(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    meet();
    alarm(1);
    pause();
}

CASE(dies_waiting, ANYWHERE) { begin_mover(dies_in_a_call, 1); }

/* --- a group that nobody looks after any more --- */

static void waits_for_orphanage(void)
{
    char byte;
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    catch(SIGHUP, 0), catch(SIGCONT, 0);
    meet();
    close(ends[1]);
    /* The parent ends when it sees this stop. */
    raise(SIGSTOP);
    await_caught(2);
    tell_caught();
    ssize_t got = read(ends[0], &byte, 1);
    printf("the parent is gone: %zd, another one %d\n", got, getppid() != mover);
    raise(SIGTSTP);
    printf("an orphan does not stop\n");
    meet();
    raise(SIGTTIN);
    printf("nor now\ndone\n");
    fflush(stdout);
    _exit(0);
}

CASE(orphans, ANYWHERE)
{
    int life[2], status;
    char byte;
    need(pipe(ends) == 0 && pipe(life) == 0, "pipe");
    fflush(stdout);
    mover = fork();
    if (mover == 0) {
        mover = getpid();
        pid_t orphan = fork();
        if (orphan == 0)
            waits_for_orphanage();
        close(life[1]);
        waitpid(orphan, &status, WUNTRACED);
        _exit(WIFSTOPPED(status) ? 0 : 1);
    }
    close(ends[1]), close(life[1]);
    waitpid(mover, &status, 0);
    /* Only the orphan has the other end. */
    need(read(life[0], &byte, 1) == 0, "its end");
    exit(WEXITSTATUS(status));
}

CASE(parents_death, AWAY)
{
    need(pipe(ends) == 0, "pipe");
    fflush(stdout);
    pid_t middle = fork();
    if (middle != 0) {
        int status;
        waitpid(middle, &status, 0);
        char byte;
        close(ends[1]);
        need(read(ends[0], &byte, 1) == 0, "the end");
        _exit(0);
    }
    pid_t last = fork();
    if (last != 0) {
        char byte;
        close(ends[1]);
        need(read(ends[0], &byte, 1) == 1, "the word");
        _exit(0);
    }
    catch(SIGUSR1, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    meet();
    need(write(ends[1], "x", 1) == 1, "write");
    await_caught(1);
    printf("its parent has ended: %d\n", caught);
    meet();
    printf("done\n");
    fflush(stdout);
    _exit(0);
}

/* --- another program in the same process --- */

static void *executes(void *unused)
{
    (void)unused;
    if (getenv("EXACT_THREAD"))
        nap(20);
    char value[32];
    snprintf(value, sizeof value, "%d", getpid());
    setenv("EXACT_PID", value, 1);
    execl("/proc/self/exe", "exact-family", "by_a_thread", NULL);
    need(0, "execl");
    return NULL;
}

CASE(by_a_thread, HOME)
{
    const char *before = getenv("EXACT_PID");
    if (before) {
        printf("the same process %d, the leader %d\n", atoi(before) == getpid(), gettid() == getpid());
        return;
    }
    pthread_t thread;
    meet();
    pthread_create(&thread, NULL, executes, NULL);
    for (;;)
        pause();
}
