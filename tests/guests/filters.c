/* A program with seccomp filters of its own, which tells what they answer.
 *
 * The first word says which; with a second word there is a second process. It prints `ready PID`. Each line that it then reads has it make the calls that its
 * filters concern, and print one line of results. `become PROGRAM` has it execute that, with the word `waits`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARGUMENT(index) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[index]))
#define PLACE BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer))
#define IS(value, behind) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, behind)
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, action)
#define LENGTH(code) (sizeof(code) / sizeof *(code))

static int is_confined;

static void need(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(3);
}

static void install_code(struct sock_filter *code, size_t length, unsigned flags)
{
    struct sock_fprog program = {length, code};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) >= 0, "seccomp");
}

#define INSTALL(code) install_code(code, LENGTH(code), 0)

/* One call gets an answer, all others are allowed. */
static void answer(unsigned number, unsigned action)
{
    struct sock_filter code[] = {NUMBER, IS(number, 1), ANSWER(action), ANSWER(SECCOMP_RET_ALLOW)};
    INSTALL(code);
}

/* As container engines do it: what is not in the list has an error, and some arguments decide. Local calls
 * (sched_yield, madvise of one kind) and calls for home (getppid, socket, userfaultfd) are among them. */
static void confine(void)
{
    struct sock_filter code[] = {
        NUMBER,
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1000, 0, 1),
        ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
        IS(SYS_userfaultfd, 1),
        ANSWER(SECCOMP_RET_ERRNO | EPERM),
        IS(SYS_modify_ldt, 1),
        ANSWER(SECCOMP_RET_ERRNO | EPERM),
        IS(SYS_get_mempolicy, 1),
        ANSWER(SECCOMP_RET_ERRNO | EPERM),
        IS(SYS_sched_yield, 1),
        ANSWER(SECCOMP_RET_ERRNO | ENOTNAM),
        IS(SYS_getppid, 1),
        ANSWER(SECCOMP_RET_ERRNO | EXFULL),
        IS(SYS_socket, 3),
        ARGUMENT(0),
        IS(AF_INET6, 1),
        ANSWER(SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    INSTALL(code);
    /* Of two errors that of the newer filter counts. */
    answer(SYS_getpgid, SECCOMP_RET_ERRNO | EBADE);
    answer(SYS_getpgid, SECCOMP_RET_ERRNO | EBADR);
    answer(SYS_getpriority, SECCOMP_RET_KILL_PROCESS);
    answer(SYS_gettid, SECCOMP_RET_KILL_PROCESS);
}

static void listen_to_calls(void)
{
    struct sock_filter code[] = {NUMBER, IS(SYS_getpriority, 1), ANSWER(SECCOMP_RET_USER_NOTIF), ANSWER(SECCOMP_RET_ALLOW)};
    install_code(code, LENGTH(code), 0);
}

static void look_at_place(void)
{
    struct sock_filter code[] = {PLACE, IS(7, 1), ANSWER(SECCOMP_RET_ERRNO | EPERM), ANSWER(SECCOMP_RET_ALLOW)};
    INSTALL(code);
}

static void *other(void *nothing)
{
    answer(SYS_getpriority, SECCOMP_RET_ERRNO | EPERM);
    need(write(*(int *)nothing, "x", 1) == 1, "write");
    pause();
    return NULL;
}

static void differ(void)
{
    static int ends[2];
    pthread_t thread;
    char byte;
    answer(SYS_getppid, SECCOMP_RET_ERRNO | EPERM);
    need(pipe(ends) == 0 && pthread_create(&thread, NULL, other, ends + 1) == 0, "a thread");
    need(read(ends[0], &byte, 1) == 1, "read");
}

/* As systemd's MemoryDenyWriteExecute= was before kernels could do it. */
static void make_nothing_executable(unsigned action)
{
    struct sock_filter code[] = {
        NUMBER,
        IS(SYS_mprotect, 3),
        ARGUMENT(2),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        ANSWER(action),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    INSTALL(code);
}

static void *wait_long(void *descriptor)
{
    struct epoll_event event;
    epoll_wait(*(int *)descriptor, &event, 1, 600000);
    return NULL;
}

/* Executable memory ends it, while a thread waits for some time: to let go of it takes calls in it. */
static void map_nothing_executable(void)
{
    static int descriptor;
    pthread_t thread;
    descriptor = epoll_create1(0);
    need(descriptor >= 0, "epoll_create1");
    struct sock_filter code[] = {
        NUMBER,
        IS(SYS_mmap, 3),
        ARGUMENT(2),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    INSTALL(code);
    need(pthread_create(&thread, NULL, wait_long, &descriptor) == 0, "a thread");
}

/* A thread waits for some time, under whatever filters there are. */
static void begin_wait(void)
{
    static int descriptor;
    pthread_t thread;
    descriptor = epoll_create1(0);
    need(descriptor >= 0, "epoll_create1");
    need(pthread_create(&thread, NULL, wait_long, &descriptor) == 0, "a thread");
}

static void install(const char *which)
{
    is_confined = !strcmp(which, "confined");
    if (!strcmp(which, "none"))
        return;
    if (!strcmp(which, "waits"))
        begin_wait();
    else if (is_confined)
        confine();
    else if (!strcmp(which, "log"))
        answer(SYS_getpriority, SECCOMP_RET_LOG);
    else if (!strcmp(which, "trace"))
        answer(SYS_getpriority, SECCOMP_RET_TRACE);
    else if (!strcmp(which, "trap"))
        answer(SYS_getpriority, SECCOMP_RET_TRAP);
    else if (!strcmp(which, "listener"))
        listen_to_calls();
    else if (!strcmp(which, "place"))
        look_at_place();
    else if (!strcmp(which, "differ"))
        differ();
    else if (!strcmp(which, "no-mremap"))
        answer(SYS_mremap, SECCOMP_RET_ERRNO | EPERM);
    else if (!strcmp(which, "no-execution"))
        make_nothing_executable(SECCOMP_RET_ERRNO | EPERM);
    else if (!strcmp(which, "deadly"))
        map_nothing_executable();
    else if (!strcmp(which, "no-policy"))
        answer(SYS_set_mempolicy, SECCOMP_RET_KILL_PROCESS);
    else if (!strcmp(which, "no-barriers"))
        answer(SYS_membarrier, SECCOMP_RET_KILL_PROCESS);
    else if (!strcmp(which, "no-restart"))
        answer(SYS_restart_syscall, SECCOMP_RET_KILL_PROCESS);
    else
        need(0, "which filter");
}

/* The result of a call: 0, or its error. */
static int said(long result)
{
    return result < 0 ? errno : 0;
}

/* The same of one that opens something, which is not kept. */
static int opened(long descriptor)
{
    int result = said(descriptor);
    if (result == 0)
        close((int)descriptor);
    return result;
}

static void tell(void)
{
    int yields = said(syscall(SYS_sched_yield));
    int parent = said(syscall(SYS_getppid));
    int group = said(syscall(SYS_getpgid, 0));
    /* Where it is allowed, it brings the program home. */
    int faults = is_confined ? opened(syscall(SYS_userfaultfd, 0)) : 0;
    int six = opened(socket(AF_INET6, SOCK_DGRAM, 0));
    int local = socket(AF_UNIX, SOCK_DGRAM, 0);
    need(local >= 0, "socket");
    close(local);
    void *place = malloc(1 << 20);
    memset(place, 1, 1 << 20);
    free(place);
    printf("answers %d %d %d %d %d, mode %d\n", yields, parent, group, faults, six, prctl(PR_GET_SECCOMP));
}

/* A second process, which asks its filter again and again until it is killed. */
static pid_t begin_second(void)
{
    int first = said(syscall(SYS_sched_yield));
    pid_t second = fork();
    need(second >= 0, "fork");
    while (second == 0) {
        if (said(syscall(SYS_sched_yield)) != first)
            _exit(9);
        usleep(1000);
    }
    return second;
}

static void end_second(pid_t second)
{
    int status;
    need(kill(second, SIGTERM) == 0 && waitpid(second, &status, 0) == second, "the second");
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) {
        printf("the second process ended with %#x\n", status);
        exit(4);
    }
}

int main(int count, char **words)
{
    char line[4096];
    need(count > 1, "a word");
    setvbuf(stdout, NULL, _IOLBF, 0);
    install(words[1]);
    pid_t second = count > 2 ? begin_second() : 0;
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "become ", 7))
            need(execl(line + 7, line + 7, "waits", NULL) == 0, "execl");
        else if (!strcmp(line, "killed at home"))
            syscall(SYS_getpriority, 0, 0);
        else if (!strcmp(line, "killed here"))
            syscall(SYS_gettid);
        else if (!strcmp(line, "end"))
            break;
        tell();
    }
    if (second)
        end_second(second);
    return 0;
}
