/* How a guest and the test that moves it come together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Says that it may be moved, and waits until that is done; false when nobody will say so any more. */
static inline int met(void)
{
    char byte = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (byte != '\n') {
        ssize_t got = read(0, &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR))
            return 0;
    }
    return 1;
}

/* The same where the guest cannot do without. */
static inline void meet(void)
{
    if (met())
        return;
    printf("fault: no word to go on\n");
    exit(1);
}
