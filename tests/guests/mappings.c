/* Takes as many mappings as the kernel gives, gives them back, and ends: each at a line on standard input. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH = 8192, MOST = 1 << 20 };

static void *taken[MOST];

int main(void)
{
    char line[16];
    int count = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    if (read(0, line, sizeof line) <= 0)
        return 2;
    for (; count < MOST; count++) {
        /* Neighbours differ, so that the kernel does not make one of them. */
        int protection = count % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        taken[count] = mmap(NULL, LENGTH, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (taken[count] == MAP_FAILED)
            break;
        if (count % 2 == 0)
            *(int *)taken[count] = count;
    }
    printf("taken %d\n", count);
    if (read(0, line, sizeof line) <= 0)
        return 2;
    /* From the last on: to cut a piece out of two neighbours takes a mapping more. */
    int wrong = 0;
    while (count-- > 0) {
        wrong += count % 2 == 0 && *(int *)taken[count] != count;
        wrong += munmap(taken[count], LENGTH) != 0;
    }
    printf("wrong %d\n", wrong);
    return read(0, line, sizeof line) <= 0;
}
