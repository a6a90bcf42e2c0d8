/* A thread gives itself one name after the other, and looks whether it has it.
 *
 *   names
 *
 * Answers six lines on standard input, each by how many names were wrong until then.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ANSWERS 6

static volatile long given, wrong;

static void *rename_for_ever(void *argument)
{
    for (;;) {
        char wanted[16], found[16];
        /* Not all of it is text. */
        snprintf(wanted, sizeof wanted, "name \xff\n%ld", given);
        prctl(PR_SET_NAME, wanted);
        prctl(PR_GET_NAME, found);
        wrong += strcmp(wanted, found) != 0;
        given++;
    }
    return argument;
}

int main(void)
{
    char line[16];
    pthread_t thread;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pthread_create(&thread, NULL, rename_for_ever, NULL) != 0)
        return 2;
    printf("ready %d\n", getpid());
    for (int i = 0; i < ANSWERS && read(0, line, sizeof line) > 0; i++) {
        for (long before = given; given < before + 2;)
            usleep(1000);
        printf("wrong %ld\n", wrong);
    }
    return 0;
}
