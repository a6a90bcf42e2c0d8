/* Dies and leaves a core behind: in a function that a debugger can name, with values that it can find.
 *
 *   core HOW      0: writes where nothing is; 1: abort; 2: a signal sent to itself
 *
 * Prints `ready PID` and waits for a line on standard input, so that it can be moved meanwhile.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

char marker[32] = "set at the beginning";
char *heap, *volatile nowhere = (char *)16;
static int ends[2];
static volatile int waits;

static void *waiting_thread(void *unused)
{
    char byte;
    waits = 1;
    while (read(ends[0], &byte, 1) < 0)
        ;
    return unused;
}

__attribute__((noinline, noclone)) void innermost(int how)
{
    strcpy(marker, "set before the end");
    __asm__ volatile("mov $0x1111, %%r12; mov $0x2222, %%r13; mov $0x3333, %%r14; movq %%r13, %%xmm7" ::
                         : "r12", "r13", "r14", "xmm7");
    if (how == 0)
        *nowhere = 1;
    else if (how == 1)
        abort();
    else
        kill(getpid(), SIGQUIT);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline, noclone)) void middle(int how)
{
    innermost(how);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    char byte = 0;
    pthread_t thread;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (argc != 2 || setrlimit(RLIMIT_CORE, &all) != 0 || pipe(ends) != 0)
        return 2;
    signal(SIGQUIT, SIG_DFL);
    heap = malloc(1 << 20);
    pthread_create(&thread, NULL, waiting_thread, NULL);
    while (!waits)
        usleep(1000);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (byte != '\n' && read(0, &byte, 1) == 1)
        ;
    strcpy(heap + 500000, "in the heap");
    middle(atoi(argv[1]));
    return 0;
}
