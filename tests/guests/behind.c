/* A write whose signal ends the program: to a pipe that nobody reads ("pipe"), or behind the limit of the length of files
 * ("size"). Whatever comes behind it would stand in the file "behind".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int opened(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        perror(name);
        exit(3);
    }
    return fd;
}

int main(int count, char **words)
{
    int ends[2], before = opened("before"), behind = opened("behind");
    int to_pipe = count > 1 && strcmp(words[1], "pipe") == 0;
    char line[64];

    if (pipe(ends) != 0 || close(ends[0]) != 0)
        return 3;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    if (!to_pipe) {
        struct rlimit limit = {1000, 1000};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    pwrite(before, "b", 1, 0);
    if (to_pipe)
        write(ends[1], "x", 1);
    else
        pwrite(before, "x", 1, 1000);
    for (int at = 0; at < 60; at++)
        pwrite(behind, "x", 1, at);
    return 42;
}
