/* Two processes with one memory, of which one is another user's.
 *
 *   halves UID
 *
 * As root: makes a process that shares its memory, becomes UID and lets itself be traced. That one
 * prints `ready PID` and counts in the memory until a line comes on standard input; both end with 0
 * if the first one has seen it count.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[1 << 17] __attribute__((aligned(16)));
static volatile long beats;
static volatile int over;
static int uid;

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    _exit(3);
}

static int other(void *nothing)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    (void)nothing;
    /* The calls themselves: the library's would set the ids of threads that are not ours. */
    need(syscall(SYS_setgroups, 0, NULL) == 0, "setgroups");
    need(syscall(SYS_setresgid, uid, uid, uid) == 0, "setresgid");
    need(syscall(SYS_setresuid, uid, uid, uid) == 0, "setresuid");
    need(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0, "dumpable");
    printf("ready %d\n", getpid());
    while (poll(&input, 1, 1) == 0)
        beats++;
    over = 1;
    return 0;
}

int main(int argc, char **argv)
{
    int status;
    uid = argc == 2 ? atoi(argv[1]) : 0;
    need(uid > 0, "a uid");
    setvbuf(stdout, NULL, _IOLBF, 0);
    pid_t made = clone(other, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
    need(made > 0, "clone");
    while (!over) {
        long before = beats;
        usleep(500000);
        need(over || beats != before, "the other one stands still");
    }
    need(waitpid(made, &status, 0) == made && status == 0, "the other one");
    return 0;
}
