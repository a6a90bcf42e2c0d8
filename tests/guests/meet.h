/* How a guest and the test that moves it come together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Says that it may be moved, and waits until that is done. */
static inline void meet(void)
{
    char byte = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (byte != '\n') {
        ssize_t got = read(0, &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            printf("fault: the word to go on: %s\n", got == 0 ? "it ends" : strerror(errno));
            exit(1);
        }
    }
}
