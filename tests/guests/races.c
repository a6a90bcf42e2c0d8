/* Threads that count together, and compute alone: for ThreadSanitizer, which looks at every access.
 *
 * Prints `ready PID`; at each line on standard input `sum NUMBER`. It ends at the end of the input.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 20000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t together;

static void *count(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed, table[64] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 6364136223846793005u + 1;
        table[state >> 58] += state;
        if (i % 16 == 0) {
            pthread_mutex_lock(&mutex);
            together += table[state >> 58];
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

int main(void)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin) != NULL) {
        pthread_t threads[THREADS];
        together = 0;
        for (intptr_t i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, count, (void *)(i + 1));
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        printf("sum %lu\n", (unsigned long)together);
    }
    return 0;
}
