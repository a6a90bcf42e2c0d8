/* What the guests of exactness stand on: see common.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "../meet.h"

/* Whether what a case does away may bring it home: never, always, or as it comes. */
enum where { AWAY, HOME, ANYWHERE };

struct test {
    const char *name;
    enum where where;
    void (*run)(void);
    struct test *next;
};
void add(struct test *test);

#define CASE(title, place)                                              \
    static void title(void);                                            \
    static struct test test_##title = {#title, (place), title, NULL};   \
    __attribute__((constructor)) static void add_##title(void) { add(&test_##title); } \
    static void title(void)

/* Ends the program unless this holds. */
void need(int good, const char *what);
void nap(long milliseconds);
int64_t now(void);
/* The name of errno, or of the error that a negative result stands for. */
const char *wrong(void);
/* Who has this pid: "self", "friend", "parent", or "other". */
const char *who(pid_t pid);

/* A child that acts at home, where it never moves, on our word; it has done so on return. */
extern pid_t friend_pid;
enum deed { KILL, QUEUE, TGKILL, TGQUEUE, WRITE, END };
void make_friend(void);
/* To this thread or, 0, to this process; `value` also is a descriptor, an exit code. */
void ask_friend(int deed, int signal, int value, pid_t thread);
/* The same, and then `after` milliseconds later. */
void ask_friend_later(int deed, int signal, int value, pid_t thread, int after);
/* What the friend does, if it is asked for this deed, END + 1 and up. */
extern int (*friend_skill)(int deed, int value);

/* Handlers that note what comes, and what has come since the last time. */
void catch(int signal, int flags);
extern volatile int caught;
void await_caught(int count);
void tell_caught(void);
