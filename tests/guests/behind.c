/* A write whose signal ends the program: to a pipe that nobody reads ("pipe"), or behind the limit of the length of files
 * ("size"). Or a signal that one of several threads sends to the process ("others"). Whatever comes behind it would stand
 * in the file "behind".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int opened(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        perror(name);
        exit(3);
    }
    return fd;
}

static void *reads(void *pipe)
{
    char byte;
    read(*(int *)pipe, &byte, 1);
    return NULL;
}

static void *computes(void *unused)
{
    for (;;)
        __asm__ volatile("");
    return unused;
}

static int go[2];

static void *ends_all(void *file)
{
    char byte;
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    read(go[0], &byte, 1);
    syscall(SYS_pidfd_send_signal, self, SIGTERM, NULL, 0);
    for (int at = 0; at < 60; at++)
        pwrite(*(int *)file, "x", 1, at);
    _exit(42);
}

/* The first thread waits for one that sends the signal. It is the one that is given it, and gets the processor behind
 * those that compute. */
static int with_others(int behind)
{
    pthread_t threads[8];
    int empty[2];
    if (pipe(empty) != 0 || pipe(go) != 0 || pthread_create(&threads[7], NULL, ends_all, &behind) != 0)
        return 3;
    for (int one = 0; one < 7; one++)
        if (pthread_create(&threads[one], NULL, one < 4 ? computes : reads, empty) != 0)
            return 3;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
    write(go[1], "g", 1);
    pthread_join(threads[7], NULL);
    return 43;
}

int main(int count, char **words)
{
    int ends[2], before = opened("before"), behind = opened("behind");
    const char *how = count > 1 ? words[1] : "size";
    int to_pipe = strcmp(how, "pipe") == 0;
    char line[64];

    if (pipe(ends) != 0 || close(ends[0]) != 0)
        return 3;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    if (strcmp(how, "others") == 0) {
        pwrite(before, "b", 1, 0);
        return with_others(behind);
    }
    if (!to_pipe) {
        struct rlimit limit = {1000, 1000};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    pwrite(before, "b", 1, 0);
    if (to_pipe)
        write(ends[1], "x", 1);
    else
        pwrite(before, "x", 1, 1000);
    for (int at = 0; at < 60; at++)
        pwrite(behind, "x", 1, at);
    return 42;
}
