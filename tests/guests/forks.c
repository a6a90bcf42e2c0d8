/* Starts children one after the other, from memory so large that most of the time goes into fork, and
 * looks whether each is one child with the memory of that moment.
 *
 *   forks CHILDREN
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 24 << 20, PAGE = 4096 };

int main(int argc, char **argv)
{
    int children = argc == 2 ? atoi(argv[1]) : 0, status;
    char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (children <= 0 || memory == MAP_FAILED)
        return 2;
    /* Small pages: there are more of them to be copied. */
    madvise(memory, MEMORY, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < MEMORY; at += PAGE)
        memory[at] = 1;
    for (int i = 0; i < children; i++) {
        memory[(size_t)(i % (MEMORY / PAGE)) * PAGE] = (char)i;
        pid_t child = fork();
        if (child < 0) {
            printf("fork %d: %s\n", i, strerror(errno));
            return 3;
        }
        if (child == 0)
            _exit(memory[(size_t)(i % (MEMORY / PAGE)) * PAGE] & 63);
        if (waitpid(-1, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != (i & 63)) {
            printf("child %d: status %x\n", i, status);
            return 4;
        }
    }
    if (waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD) {
        printf("a child too many\n");
        return 5;
    }
    printf("%d children\n", children);
    return 0;
}
