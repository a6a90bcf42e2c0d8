/* Threads that split and join mappings all the time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 16, PAGE = 4096 };

static void *remap(void *unused)
{
    (void)unused;
    for (;;) {
        char *room = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            abort();
        for (int page = 0; page < PAGES; page += 2)
            mprotect(room + page * PAGE, PAGE, PROT_READ);
        for (int page = 0; page < PAGES; page += 2)
            mprotect(room + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
        munmap(room, PAGES * PAGE);
    }
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread, NULL, remap, NULL) != 0)
            abort();
    puts("ready");
    fflush(stdout);
    pause();
}
