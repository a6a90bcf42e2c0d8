/* Tries everything that a guest must not be able to do on its host.
 *
 *   escape FROM TO STEP   all system call numbers in this range, with arguments that harm nobody
 *   escape ways           ways to files, processes and sockets of the host
 *
 * Before each STEP numbers, and before the ways, it prints `ready PID` and waits for a line on
 * standard input. Each number gets a line: the number, and `ok` or the error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meet.h"

static sigjmp_buf back;
static const char *const secret = "/etc/whim-node";

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* What these do even with senseless arguments is no attempt but an end of the attempts. */
static int ends_the_attempts(long number)
{
    switch (number) {
    case SYS_exit:
    case SYS_exit_group:
    case SYS_fork:          /* has no arguments: it would succeed */
    case SYS_vfork:
    case SYS_pause:
    case SYS_rt_sigreturn:  /* takes its arguments from the stack */
    case SYS_vhangup:
    case SYS_set_tid_address:
    case SYS_munlockall:
    case 335:               /* uretprobe and uprobe are answered by a fatal signal */
    case 336:
        return 1;
    default:
        return 0;
    }
}

/* Makes one call; false when it raised a signal. */
static int attempt(long number)
{
    int fault = sigsetjmp(back, 1);
    if (fault) {
        printf("%ld signal %d\n", number, fault);
        return 0;
    }
    errno = 0;
    long result = syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
    int error = errno;
    alarm(0);
    umask(022);
    if (number == SYS_msgget && result >= 0)
        syscall(SYS_msgctl, result, 0, NULL);
    if (result == -1 && error != 0)
        printf("%ld %s\n", number, strerrorname_np(error) ? strerrorname_np(error) : "?");
    else
        printf("%ld ok\n", number);
    return 1;
}

static void numbers(long from, long to, long step)
{
    sigset_t none;
    sigemptyset(&none);
    for (long number = from; number < to; number++) {
        if ((number - from) % step == 0)
            meet();
        if (ends_the_attempts(number))
            printf("%ld left out\n", number);
        else
            attempt(number);
        sigprocmask(SIG_SETMASK, &none, NULL);
    }
}

static void say(const char *what, long result, const char *text)
{
    printf("%s: %s%s%s\n", what, result < 0 ? strerrorname_np(errno) : "ok", *text ? ", " : "", text);
}

static void read_file(const char *what, int file)
{
    char text[4096] = "";
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    text[got < 0 ? 0 : got] = 0;
    for (char *at = text; *at; at++)
        if (*at == '\n')
            *at = '|';
    say(what, got, text);
    if (file >= 0)
        close(file);
}

static void list(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    while (directory && readdir(directory))
        count++;
    printf("%s: %s\n", path, directory ? (count > 2 ? "entries" : "empty") : strerrorname_np(errno));
    if (directory)
        closedir(directory);
}

static void dial(const char *what, const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    int stream = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    long result = connect(stream, (struct sockaddr *)&to, sizeof to);
    if (result < 0 && errno == EINPROGRESS)
        result = 0;
    say(what, result, "");
    close(stream);
}

/* By the 32-bit gate, whose numbers are others, and by those of x32. */
static void other_gates(void)
{
    int result;
    int fault = sigsetjmp(back, 0);
    if (fault) {
        printf("int 0x80: signal %d\n", fault);
    } else {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
        printf("int 0x80 getpid: %d\n", result == getpid());
        char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        strcpy(low, secret);
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(5), "b"(low), "c"(0), "d"(0) : "memory", "r8", "r9", "r10", "r11");
        errno = result < 0 ? -result : 0;
        read_file("int 0x80 open", result < 0 ? -1 : result);
    }
    long pid = syscall(0x40000000 + SYS_getpid);
    say("x32 getpid", pid, "");
    long file = syscall(0x40000000 + SYS_open, secret, O_RDONLY);
    read_file("x32 open", file);
    long huge = syscall(1L << 40 | SYS_getpid);
    say("a number beyond all", huge, "");
}

static void ways(void)
{
    struct utsname name;
    struct stat about;
    char text[256] = "";
    meet();
    read_file("open", open(secret, O_RDONLY));
    read_file("openat", openat(AT_FDCWD, secret, O_RDONLY));
    struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
    read_file("openat2", syscall(437, AT_FDCWD, secret, &how, sizeof how));
    int etc = open("/etc", O_RDONLY | O_DIRECTORY);
    read_file("openat below a directory", openat(etc, "whim-node", O_RDONLY));
    close(etc);
    say("stat", stat(secret, &about), "");
    uname(&name);
    say("uname", 0, name.nodename);
    gethostname(text, sizeof text);
    say("gethostname", 0, text);
    meet();
    read_file("the own root", open("/proc/self/root/etc/whim-node", O_RDONLY));
    meet();
    read_file("the first process's root", open("/proc/1/root/etc/whim-node", O_RDONLY));
    meet();
    read_file("the thread's root", open("/proc/thread-self/root/etc/whim-node", O_RDONLY));
    meet();
    read_file("the host name's file", open("/proc/sys/kernel/hostname", O_RDONLY));
    list("/proc/self/fd");
    list("/proc/self/task");
    list("/");
    list("/tmp");
    list("/run/whim");
    meet();
    dial("the own node's port", "127.0.0.1", 7946);
    dial("a port where nobody listens", "127.0.0.1", 1);
    struct sockaddr_un control = {.sun_family = AF_UNIX, .sun_path = "/run/whim/control.sock"};
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    say("the control socket", connect(stream, (struct sockaddr *)&control, sizeof control), "");
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    say("its peer", getsockopt(stream, SOL_SOCKET, SO_PEERCRED, &peer, &length), "");
    close(stream);
    meet();
    say("ptrace of the parent", ptrace(PTRACE_PEEKDATA, getppid(), 0, 0), "");
    meet();
    say("kill of a process that is not", kill(4194303, 0), "");
    for (pid_t pid = 2, found = 0; pid < 300 && found < 3; pid++)
        /* In the guest's own namespace there is nobody; at home there are some. */
        found += kill(pid, 0) == 0;
    meet();
    say("mount", mount("none", "/mnt", "tmpfs", 0, ""), "");
    umount2("/mnt", MNT_DETACH);
    meet();
    say("unshare", unshare(CLONE_NEWNS), "");
    meet();
    say("setns", setns(0, 0), "");
    meet();
    say("mknod", mknod("null-device", S_IFCHR | 0600, 1 << 8 | 3), "");
    unlink("null-device");
    meet();
    say("process_vm_readv", syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0), "");
    meet();
    other_gates();
    meet();
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int file = open(secret, O_RDONLY);
        _exit(file >= 0 && read(file, text, 1) == 1 ? 5 : 6);
    }
    say("a child", waitpid(child, &status, 0) == child ? 0 : -1, WEXITSTATUS(status) == 5 ? "read" : "");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sigaction action = {.sa_handler = on_fault};
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP && number != SIGCHLD && number != SIGALRM)
            sigaction(number, &action, NULL);
    signal(SIGALRM, SIG_IGN);
    if (argc == 4)
        numbers(atol(argv[1]), atol(argv[2]), atol(argv[3]));
    else if (argc == 2 && strcmp(argv[1], "ways") == 0)
        ways();
    else
        return 2;
    meet();
    printf("done\n");
    return 0;
}
