/* Three threads block some signals, and send each other and the process many of them, with numbers as
 * values. At each line on standard input each thread takes what waits for it, and tells it in the order
 * in which it came; what waits for the process comes last.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, KINDS = 4 };

static pthread_t threads[THREADS];
static sigset_t blocked;
static pthread_barrier_t begin, end;
/* Whose turn it is to tell. */
static int turn;
static int round_number;

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static int kind(int number)
{
    return number == 0 ? SIGUSR1 : SIGRTMIN + number;
}

/* Backwards, so that the order in which they are taken is not that in which they came. */
static void send_all(void)
{
    for (int number = KINDS - 1; number >= 0; number--)
        for (int count = 0; count < 3; count++) {
            union sigval value = {.sival_int = 1000 * round_number + 10 * number + count};
            for (int thread = 0; thread < THREADS; thread++) {
                value.sival_int += 100;
                need(pthread_sigqueue(threads[thread], kind(number), value) == 0, "pthread_sigqueue");
            }
            value.sival_int += 100;
            need(sigqueue(getpid(), kind(number), value) == 0, "sigqueue");
        }
}

static void tell(int thread)
{
    struct timespec none = {0, 0};
    siginfo_t info;
    printf(" %d:", thread);
    while (sigtimedwait(&blocked, &info, &none) > 0)
        printf(" %d", info.si_value.sival_int);
    need(errno == EAGAIN, "sigtimedwait");
}

static void *run(void *argument)
{
    int own = (int)(long)argument;
    for (;;) {
        pthread_barrier_wait(&begin);
        if (turn == own)
            tell(own);
        pthread_barrier_wait(&end);
    }
    return NULL;
}

int main(void)
{
    char line[16];
    sigemptyset(&blocked);
    for (int number = 0; number < KINDS; number++)
        sigaddset(&blocked, kind(number));
    need(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0, "pthread_sigmask");
    pthread_barrier_init(&begin, NULL, THREADS);
    pthread_barrier_init(&end, NULL, THREADS);
    threads[0] = pthread_self();
    for (int thread = 1; thread < THREADS; thread++)
        need(pthread_create(&threads[thread], NULL, run, (void *)(long)thread) == 0, "pthread_create");
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    send_all();
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        /* The others first: the first thread takes what is left, which is for the process. */
        for (turn = THREADS - 1; turn >= 0; turn--) {
            pthread_barrier_wait(&begin);
            if (turn == 0)
                tell(0);
            pthread_barrier_wait(&end);
        }
        printf("\n");
        fflush(stdout);
        round_number++;
        send_all();
    }
    return 0;
}
