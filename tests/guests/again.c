/* Threads whose number was that of another thread before. Prints `ready PID`, and for a line of its input
 * `again` if a thread has got the number of one that has ended.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 3 };

static int numbers[THREADS];
static pthread_barrier_t all;

static void need(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(3);
}

static void *tell(void *number)
{
    *(int *)number = syscall(SYS_gettid);
    pthread_barrier_wait(&all);
    return NULL;
}

static void make(int count)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, count);
    for (int one = 0; one < count; one++)
        need(pthread_create(&threads[one], NULL, tell, &numbers[one]) == 0, "pthread_create");
    for (int one = 0; one < count; one++)
        pthread_join(threads[one], NULL);
}

int main(void)
{
    char line[16];
    printf("ready %d\n", getpid());
    fflush(stdout);
    need(fgets(line, sizeof line, stdin) != NULL, "fgets");
    make(THREADS);
    int wanted = numbers[1];
    FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
    need(last != NULL && fprintf(last, "%d", wanted - 1) > 0 && fclose(last) == 0, "ns_last_pid");
    make(1);
    printf("%s\n", numbers[0] == wanted ? "again" : "another");
    fflush(stdout);
    make(THREADS);
    need(fgets(line, sizeof line, stdin) != NULL, "fgets");
    return 0;
}
