/* Executes a program of other rights, which is this one again under another name.
 *
 *   elevate once OTHER           prints `ready PID`, waits for a line, executes OTHER report
 *   elevate report               prints what it is, prints `ready PID`, waits for a line, prints it again
 *   elevate storm OTHER COUNT    executes OTHER, which gives its rights up and executes this one, COUNT times;
 *                                prints how often it had other rights, and how often a tracer meanwhile
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int tracer(void)
{
    char line[256];
    int pid = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "TracerPid: %d", &pid) == 1)
            break;
    if (status)
        fclose(status);
    return pid;
}

static void wait_for_line(void)
{
    char byte = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (byte != '\n' && read(0, &byte, 1) == 1)
        ;
}

static void report(void)
{
    printf("elevated %d traced %d\n", geteuid() != getuid(), tracer() != 0);
    fflush(stdout);
}

/* Its own file stands in place of the other one's after each exec. */
static void storm(char **argv, const char *own)
{
    char counts[4][16];
    int left = atoi(argv[3]), seen = argv[4] ? atoi(argv[4]) : 0, traced = argv[4] ? atoi(argv[5]) : 0;
    if (geteuid() != getuid()) {
        seen++;
        for (int look = 0; look < 3; look++)
            if (tracer() != 0) {
                traced++;
                break;
            }
        if (setresgid(getgid(), getgid(), getgid()) || setresuid(getuid(), getuid(), getuid()))
            _exit(3);
    } else if (left-- == 0) {
        printf("seen %d traced %d\n", seen, traced);
        return;
    }
    snprintf(counts[0], 16, "%d", left);
    snprintf(counts[1], 16, "%d", seen);
    snprintf(counts[2], 16, "%d", traced);
    execl(argv[2], argv[2], "storm", own, counts[0], counts[1], counts[2], (char *)NULL);
    _exit(4);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "once") == 0) {
        wait_for_line();
        execl(argv[2], argv[2], "report", (char *)NULL);
        return 4;
    }
    if (strcmp(argv[1], "report") == 0) {
        report();
        wait_for_line();
        report();
    } else {
        if (!argv[4])
            wait_for_line();
        storm(argv, argv[0]);
    }
    return 0;
}
