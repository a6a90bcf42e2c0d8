/* A parent that looks at its child: its command line, name and memory, from outside.
 *
 * observed: prints `ready PID`, the PID of the child, which writes its title again and again and says
 * then which one it has written. For each line of its input it prints one line:
 *   title   `fresh` if the command line is at least the one that the child has last said, else `stale ...`
 *   comm    the child's name, as /proc shows it
 *   name N  the child takes the name N; `done`
 *   vm      what process_vm_readv finds of a word of the child's memory
 *   mem     the same by /proc/PID/mem
 *   trace   what PTRACE_ATTACH of the child says
 *   end     it ends, and its child too
 * A word that was read is said as `found`, another one than the child's as `wrong`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE 16
#define WORD 0x4712

static volatile long *word;

static void be_observed(char *title, int says, int hears)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int step = 0;; step = (step + 1) % 100000) {
        char text[MESSAGE] = "", name[MESSAGE];
        snprintf(text, sizeof text, "step %05d", step);
        strcpy(title, text);
        if (write(says, text, sizeof text) != sizeof text)
            _exit(1);
        struct pollfd asked = {.fd = hears, .events = POLLIN};
        if (poll(&asked, 1, 20) == 1) {
            if (read(hears, name, sizeof name) != sizeof name || prctl(PR_SET_NAME, name) != 0)
                _exit(1);
            memcpy(text, "named", 6);
            if (write(says, text, sizeof text) != sizeof text)
                _exit(1);
        }
    }
}

static const char *file_of(int pid, const char *name)
{
    static char text[4096];
    snprintf(text, sizeof text, "/proc/%d/%s", pid, name);
    int fd = open(text, O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void tell(ssize_t got, long value)
{
    if (got != sizeof value)
        printf("errno %d\n", errno);
    else
        printf("%s\n", value == WORD ? "found" : "wrong");
}

/* The last title that the child has said, of those that wait, or the next one. */
static int last_said(int heard)
{
    struct pollfd more = {.fd = heard, .events = POLLIN};
    char text[MESSAGE];
    int said = -1;
    while (said < 0 || poll(&more, 1, 0) == 1) {
        if (read(heard, text, sizeof text) != sizeof text)
            exit(1);
        sscanf(text, "step %d", &said);
    }
    return said;
}

static void answer(const char *line, int child, int heard, int asks)
{
    char name[MESSAGE] = "", mem[32];
    long value = 0;
    struct iovec here = {&value, sizeof value}, there = {(void *)word, sizeof value};
    if (strcmp(line, "title") == 0) {
        int said = last_said(heard), shown = -1;
        const char *line_shown = file_of(child, "cmdline");
        sscanf(line_shown, "step %d", &shown);
        if (shown >= said)
            printf("fresh\n");
        else
            printf("stale %s, and it has said %d\n", line_shown, said);
    } else if (strcmp(line, "comm") == 0) {
        printf("%s\n", file_of(child, "comm"));
    } else if (sscanf(line, "name %15s", name) == 1) {
        char text[MESSAGE];
        if (write(asks, name, sizeof name) != sizeof name)
            exit(1);
        do {
            if (read(heard, text, sizeof text) != sizeof text)
                exit(1);
        } while (strcmp(text, "named") != 0);
        printf("done\n");
    } else if (strcmp(line, "vm") == 0) {
        ssize_t got = process_vm_readv(child, &here, 1, &there, 1, 0);
        tell(got, value);
    } else if (strcmp(line, "mem") == 0) {
        snprintf(mem, sizeof mem, "/proc/%d/mem", child);
        int fd = open(mem, O_RDONLY);
        ssize_t got = pread(fd, &value, sizeof value, (off_t)word);
        int error = errno;
        close(fd);
        errno = error;
        tell(got, value);
    } else if (strcmp(line, "trace") == 0) {
        if (ptrace(PTRACE_ATTACH, child, NULL, NULL) == 0) {
            waitpid(child, NULL, 0);
            ptrace(PTRACE_DETACH, child, NULL, NULL);
            printf("traced\n");
        } else {
            printf("errno %d\n", errno);
        }
    }
    fflush(stdout);
}

int main(int count, char **words)
{
    int said[2], asked[2];
    (void)count;
    if (pipe(said) != 0 || pipe(asked) != 0)
        return 1;
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *word = WORD;
    int child = fork();
    if (child == 0)
        be_observed(words[0], said[1], asked[0]);
    printf("ready %d\n", child);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
        line[strcspn(line, "\n")] = 0;
        answer(line, child, said[0], asked[1]);
    }
    kill(child, SIGKILL);
    return 0;
}
