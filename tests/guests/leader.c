/* A program whose first thread has ended: the other one says "ready" then, and ends at a line on standard
 * input.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int first_has_ended(void)
{
    char text[512] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL || fread(text, 1, sizeof text - 1, file) == 0)
        exit(3);
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

static void *go_on(void *unused)
{
    char line[16];
    (void)unused;
    while (!first_has_ended())
        usleep(1000);
    printf("ready %d\n", getpid());
    fflush(stdout);
    exit(fgets(line, sizeof line, stdin) == NULL);
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_on, NULL) != 0)
        return 3;
    pthread_exit(NULL);
}
