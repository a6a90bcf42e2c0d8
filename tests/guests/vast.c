/* Much of everything: memory, threads, mappings and open files, each of which is known again.
 *
 *   vast MIB THREADS MAPPINGS FILES
 *
 * Prints `ready PID`. At each line on standard input it looks at all of it and prints `ready PID` once
 * more; `fault ...` and status 1 if something is not as it was. It ends at the end of the input.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 64 << 10 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static long question, answers;

static void check(int good, const char *what, long number)
{
    if (good)
        return;
    printf("fault: %s %ld\n", what, number);
    fflush(stdout);
    _exit(1);
}

static void *listen(void *unused)
{
    long heard = 0;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (question == heard)
            pthread_cond_wait(&asked, &mutex);
        heard = question;
        answers++;
        pthread_cond_signal(&answered);
    }
    return unused;
}

static void ask(long threads)
{
    pthread_mutex_lock(&mutex);
    answers = 0;
    question++;
    pthread_cond_broadcast(&asked);
    while (answers < threads)
        pthread_cond_wait(&answered, &mutex);
    pthread_mutex_unlock(&mutex);
}

static uint64_t word(uint64_t at)
{
    uint64_t x = at * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static uint64_t *fill(uint64_t words)
{
    uint64_t *memory = mmap(NULL, words * 8 + 1, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(memory != MAP_FAILED, "memory", (long)words);
    for (uint64_t at = 0; at < words; at++)
        memory[at] = word(at);
    return memory;
}

/* Every second page may only be read: each is a mapping of its own. */
static char *map(long count)
{
    char *base = mmap(NULL, (size_t)(count + 1) * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(base != MAP_FAILED, "mappings", count);
    for (long i = 0; i < count; i++) {
        *(long *)(base + i * PAGE) = i;
        if (i % 2)
            check(mprotect(base + i * PAGE, PAGE, PROT_READ) == 0, "mapping", i);
    }
    return base;
}

static int *open_files(long count)
{
    struct rlimit limit = {(rlim_t)count + 64, (rlim_t)count + 64};
    check(count == 0 || setrlimit(RLIMIT_NOFILE, &limit) == 0, "limit of files", count);
    int *files = calloc((size_t)count + 1, sizeof *files);
    for (long i = 0; i < count; i++) {
        files[i] = open("/bin/sh", O_RDONLY | O_CLOEXEC);
        check(files[i] >= 0 && lseek(files[i], i, SEEK_SET) == i, "file", i);
    }
    return files;
}

int main(int count, char **words)
{
    check(count == 5, "usage: vast MIB THREADS MAPPINGS FILES", count);
    uint64_t size = strtoull(words[1], NULL, 10) << 17;
    long threads = atol(words[2]), mappings = atol(words[3]), opened = atol(words[4]);
    int *files = open_files(opened);
    uint64_t *memory = fill(size);
    char *base = map(mappings);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        check(pthread_create(&thread, &small, listen, NULL) == 0, "thread", i);
    }
    char line[64];
    do {
        for (uint64_t at = 0; at < size; at++)
            check(memory[at] == word(at), "word", (long)at);
        for (long i = 0; i < mappings; i++)
            check(*(long *)(base + i * PAGE) == i, "page", i);
        // One that may not be written is not written by the kernel either.
        check(mappings < 2 || read(files[0], base + PAGE, 1) == -1, "protection", 1);
        for (long i = 0; i < opened; i++)
            check(lseek(files[i], 0, SEEK_CUR) == i, "offset", i);
        ask(threads);
        printf("ready %d\n", getpid());
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    return 0;
}
