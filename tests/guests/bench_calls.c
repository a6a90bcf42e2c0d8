/* Makes calls when it is told to, and says how long each took.
 *
 *   bench_calls [MEGABYTES]
 *
 * Reads "NAME COUNT" from standard input and prints COUNT times in nanoseconds on one line.
 * "block N" starts N threads that wait in read for ever and prints "blocked N".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_MAX = 20000, BLOCK = 65536, LINE = 12 };

extern char **environ;

static char buffer[BLOCK];
static int file;
static int waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void check(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static void *wait_for_ever(void *end)
{
    char byte;
    pthread_mutex_lock(&lock);
    waiting++;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
    check(read(*(int *)end, &byte, 1) == 1, "read");
    return NULL;
}

static void block(int threads)
{
    static int ends[2];
    check(pipe(ends) == 0, "pipe");
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, wait_for_ever, ends) == 0, "pthread_create");
    }
    pthread_mutex_lock(&lock);
    while (waiting < threads)
        pthread_cond_wait(&more, &lock);
    pthread_mutex_unlock(&lock);
    printf("blocked %d\n", threads);
}

static void fork_once(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    check(child > 0 && waitpid(child, NULL, 0) == child, "fork");
}

static void spawn_once(void)
{
    char *words[] = {"true", NULL};
    pid_t child;
    check(posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) == 0, "posix_spawn");
    check(waitpid(child, NULL, 0) == child, "waitpid");
}

static void *end_at_once(void *unused)
{
    return unused;
}

static void thread_once(void)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, end_at_once, NULL) == 0, "pthread_create");
    check(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void call(const char *name)
{
    struct stat status;
    if (strcmp(name, "getppid") == 0)
        check(syscall(SYS_getppid) >= 0, name);
    else if (strcmp(name, "write_64") == 0)
        check(pwrite(file, buffer, 64, 0) == 64, name);
    else if (strcmp(name, "write_4096") == 0)
        check(pwrite(file, buffer, 4096, 0) == 4096, name);
    else if (strcmp(name, "read_4096") == 0)
        check(pread(file, buffer, 4096, 0) == 4096, name);
    else if (strcmp(name, "read_65536") == 0)
        check(pread(file, buffer, BLOCK, 0) == BLOCK, name);
    else if (strcmp(name, "fstat") == 0)
        check(fstat(file, &status) == 0, name);
    else if (strcmp(name, "fork") == 0)
        fork_once();
    else if (strcmp(name, "spawn") == 0)
        spawn_once();
    else if (strcmp(name, "thread") == 0)
        thread_once();
    else
        check(0, name);
}

static void measure(const char *name, int count)
{
    static int64_t took[COUNT_MAX];
    static char text[COUNT_MAX * LINE];
    check(count <= COUNT_MAX, "too many");
    for (int i = 0; i < count; i++) {
        int64_t begun = now_ns();
        call(name);
        took[i] = now_ns() - begun;
    }
    char *to = text;
    for (int i = 0; i < count; i++)
        to += sprintf(to, "%lld ", (long long)(took[i] < 9999999999 ? took[i] : 9999999999));
    to[-1] = '\n';
    check(fwrite(text, 1, to - text, stdout) == (size_t)(to - text), "fwrite");
}

int main(int count, char **words)
{
    char name[32];
    int times;
    size_t length = (size_t)(count > 1 ? atol(words[1]) : 1) << 20;
    char *memory = malloc(length);
    check(memory != NULL, "malloc");
    for (size_t i = 0; i < length; i++)
        memory[i] = (char)(i * 2654435761u >> 13);
    file = open("calls.data", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(file >= 0 && pwrite(file, buffer, BLOCK, 0) == BLOCK, "calls.data");
    printf("pid %d\n", getpid());
    fflush(stdout);
    while (scanf("%31s %d", name, &times) == 2) {
        if (strcmp(name, "block") == 0)
            block(times);
        else
            measure(name, times);
        fflush(stdout);
    }
    return 0;
}
