/* Has many threads, and later more of them; all of them answer when they are asked.
 *
 *   crowd FIRST THEN
 *
 * A line on standard input asks FIRST threads, a second one makes it THEN and asks them, a third one
 * ends it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static int question, answers, threads = 1;

static void *listen(void *first)
{
    int heard = *(int *)first;
    free(first);
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (question == heard)
            pthread_cond_wait(&asked, &mutex);
        heard = question;
        answers++;
        pthread_cond_signal(&answered);
    }
    return NULL;
}

static int grow(int wanted)
{
    for (; threads < wanted; threads++) {
        pthread_t thread;
        int *heard = malloc(sizeof *heard);
        *heard = question;
        if (pthread_create(&thread, NULL, listen, heard) != 0)
            return 3;
    }
    return 0;
}

static void ask(void)
{
    pthread_mutex_lock(&mutex);
    question++;
    answers = 1;
    pthread_cond_broadcast(&asked);
    while (answers < threads)
        pthread_cond_wait(&answered, &mutex);
    pthread_mutex_unlock(&mutex);
    printf("answers %d\n", answers);
}

int main(int argc, char **argv)
{
    char line[16];
    if (argc != 3 || grow(atoi(argv[1])) != 0)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    if (read(0, line, sizeof line) <= 0)
        return 4;
    ask();
    if (read(0, line, sizeof line) <= 0)
        return 4;
    if (grow(atoi(argv[2])) != 0)
        return 3;
    ask();
    if (read(0, line, sizeof line) <= 0)
        return 4;
    return 0;
}
