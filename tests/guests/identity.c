/* Who am I, and where? The answers have to be the same all the time.
 *
 *   identity COUNT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static void add_file(char **to, char *end, const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, *to, end - *to - 1);
    if (file >= 0)
        close(file);
    *to += got > 0 ? got : 0;
    *to += snprintf(*to, end - *to, "%s: %ld\n", path, (long)got);
}

static void add_link(char **to, char *end, const char *path)
{
    char target[512] = "";
    if (readlink(path, target, sizeof target - 1) < 0)
        snprintf(target, sizeof target, "errno %d", errno);
    *to += snprintf(*to, end - *to, "%s -> %s\n", path, target);
}

/* What depends on the process and is not printed, then what is. Some of it brings a program home
 * that is away; that is looked at when `all` is set. */
static size_t look(char *text, size_t room, int all)
{
    char *to = text, *end = text + room;
    struct utsname name;
    char directory[512];
    gid_t groups[64];
    uname(&name);
    to += snprintf(to, end - to, "pid %d %ld, parent %d, group %d, session %d, thread %ld\n", getpid(),
                   syscall(SYS_getpid), getppid(), getpgrp(), getsid(0), syscall(SYS_gettid));
    if (all) {
        add_link(&to, end, "/proc/self");
        add_link(&to, end, "/proc/self/ns/pid");
        add_link(&to, end, "/proc/self/ns/net");
        add_link(&to, end, "/proc/self/ns/user");
    }
    size_t printed = to - text;
    to += snprintf(to, end - to, "node %s, release %s\n", name.nodename, name.release);
    to += snprintf(to, end - to, "user %d %d, group %d %d, groups %d, mask %o\n", getuid(), geteuid(),
                   getgid(), getegid(), getgroups(64, groups), (unsigned)umask(umask(0)));
    to += snprintf(to, end - to, "directory %s, terminal %d %d %d\n",
                   getcwd(directory, sizeof directory) ? "known" : "none",
                   isatty(0), isatty(1), isatty(2));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    to += snprintf(to, end - to, "files %ld, priority %d\n", (long)limit.rlim_cur,
                   getpriority(PRIO_PROCESS, 0));
    if (all) {
        add_link(&to, end, "/proc/self/root");
        add_link(&to, end, "/proc/self/fd/0");
        add_file(&to, end, "/proc/self/comm");
    }
    add_file(&to, end, "/etc/hostname");
    add_file(&to, end, "/proc/sys/kernel/hostname");
    add_file(&to, end, "/etc/machine-id");
    add_file(&to, end, "/etc/whim-node");
    struct stat about;
    to += snprintf(to, end - to, "tmp %d, own %d\n", stat("/tmp", &about) == 0 ? (int)about.st_uid : -1,
                   stat(".", &about) == 0 ? (int)about.st_mode : -1);
    *to = 0;
    return printed;
}

int main(int argc, char **argv)
{
    static char first[2][16384], now[16384], cwd[512], cwd_now[512];
    long count = argc == 2 ? atol(argv[1]) : 0;
    size_t printed = look(first[1], sizeof first[1], 1);
    look(first[0], sizeof first[0], 0);
    if (!getcwd(cwd, sizeof cwd))
        return 1;
    printf("%s", first[1] + printed);
    unsigned long work = 1;
    for (long i = 0; i < count; i++) {
        int all = i % 40 == 39;
        look(now, sizeof now, all);
        if (strcmp(first[all], now) != 0) {
            fprintf(stderr, "fault at %ld: it was\n%sand is\n%s", i, first[all], now);
            return 1;
        }
        if (!getcwd(cwd_now, sizeof cwd_now) || strcmp(cwd, cwd_now) != 0) {
            fprintf(stderr, "fault at %ld: directory %s became %s\n", i, cwd, cwd_now);
            return 1;
        }
        for (int j = 0; j < 3000000; j++)
            work = work * 6364136223846793005u + 1;
        if (i % 50 == 0)
            printf("%ld %lu\n", i, work);
    }
    printf("the same %ld times\n", count);
    return 0;
}
