/* A program in a state that its name tells; it prints what it knows of itself, one `key value` per
 * line (hexadecimal), then `ready`, and ends when its standard input ends.
 *
 *   states STATE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *key, uint64_t value) { printf("%s %lx\n", key, value); }
static void handler(int signal) { (void)signal; }

static int fds[2], pair[2], epoll_fd;
static uint32_t word;

/* Threads that stand in a call each. */
static void *in_read(void *x) {
    char c;
    syscall(SYS_read, fds[0], &c, 1);
    return x;
}
static void *in_epoll(void *x) {
    struct epoll_event e;
    syscall(SYS_epoll_wait, epoll_fd, &e, 1, 60000);
    return x;
}
static void *in_nanosleep(void *x) {
    struct timespec t = {60, 0};
    syscall(SYS_nanosleep, &t, NULL);
    return x;
}
static void *in_futex(void *x) {
    struct timespec t = {60, 0};
    for (;;) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, x ? &t : NULL, NULL, 0);
    return x;
}
static void *in_write(void *x) {
    static char block[1 << 20];
    syscall(SYS_write, pair[1], block, sizeof block);
    return x;
}
static void *in_computing(void *x) {
    for (volatile long n = 0;; n++) {}
    return x;
}
static void *in_sigtimedwait(void *x) {
    struct timespec t = {60, 0};
    uint64_t set = 1ull << (SIGUSR2 - 1);
    syscall(SYS_rt_sigtimedwait, &set, NULL, &t, 8);
    return x;
}

static void begin(void *(*body)(void *), void *x) {
    pthread_t t;
    if (pthread_create(&t, NULL, body, x)) abort();
}

static void calls(void) {
    if (pipe(fds) || pipe(pair)) abort();
    epoll_fd = epoll_create1(0);
    say("read.fd", fds[0]);
    say("write.fd", pair[1]);
    begin(in_read, NULL);
    begin(in_epoll, NULL);
    begin(in_nanosleep, NULL);
    begin(in_futex, NULL);
    begin(in_futex, &word);
    begin(in_write, NULL);
    begin(in_computing, NULL);
    begin(in_sigtimedwait, NULL);
}

static void known(void) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaddset(&a.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &a, NULL);
    signal(SIGUSR2, SIG_IGN);
    say("handler", (uint64_t)handler);
    stack_t s = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&s, NULL);
    say("altstack", (uint64_t)s.ss_sp);
    uint64_t mask = 1ull << (SIGQUIT - 1) | 1ull << (SIGTERM - 1);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
    say("mask", mask);
    void *address = NULL;
    prctl(PR_GET_TID_ADDRESS, &address);
    say("tid_address", (uint64_t)address);
    say("brk", (uint64_t)sbrk(0));
    say("rseq", __rseq_size ? (uint64_t)__builtin_thread_pointer() + __rseq_offset : 0);
    prctl(PR_SET_NAME, "a name (x) 1");
    char *m = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(m + 4096, 4096, PROT_NONE);
    madvise(m + 8 * 4096, 8 * 4096, MADV_DONTFORK);
    madvise(m + 32 * 4096, 8 * 4096, MADV_WIPEONFORK);
    say("mapping", (uint64_t)m);
    int fd = open("/proc/self/exe", O_RDONLY);
    say("file", (uint64_t)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
    struct rlimit l = {123, 456};
    setrlimit(RLIMIT_NOFILE, &l);
    say("handler_page", *(unsigned char *)handler);
}

/* Threads come and go all the time; children too. */
static void *brief(void *x) { return x; }
static volatile long made;
static void *maker(void *x) {
    for (;;) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&t[i], NULL, brief, (void *)(long)i)) abort();
        for (long i = 0; i < 4; i++) {
            void *got;
            if (pthread_join(t[i], &got) || got != (void *)i) abort();
        }
        made++;
    }
    return x;
}
static void storm(void) {
    begin(maker, NULL);
    begin(maker, NULL);
}
static void *forker(void *x) {
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) _exit(7);
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7) abort();
        made++;
    }
    return x;
}
static void forks(void) { begin(forker, NULL); }
static void vforked(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        const char text[] = "ready\n";
        if (write(1, text, 6) != 6) _exit(1);
        struct timespec t = {0, 700000000};
        nanosleep(&t, NULL);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    say("after", 1);
}

static void shared_anonymous(void) {
    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
static void system_v(void) {
    int id = shmget(IPC_PRIVATE, 4096, 0600);
    if (shmat(id, NULL, 0) == (void *)-1) abort();
    shmctl(id, IPC_RMID, NULL);
}
static void seccomp(void) {
    struct { unsigned short code; unsigned char jt, jf; unsigned int k; } allow = {6, 0, 0, 0x7fff0000};
    struct { unsigned short length; void *filter; } program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) abort();
}
static void real_time(void) {
    struct sched_param p = {1};
    if (sched_setscheduler(0, SCHED_RR, &p)) say("refused", errno);
}
static void locked(void) {
    char *m = mmap(NULL, 80 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mlock2(m, 80 << 20, MLOCK_ONFAULT)) say("refused", errno);
    memset(m, 1, 80 << 20);
}
static void userfault(void) {
    if (syscall(SYS_userfaultfd, O_CLOEXEC) < 0) say("refused", errno);
}
static void sealed(void) {
    char *m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (syscall(462, m, 4096, 0)) say("refused", errno);
}
static void io_uring(void) {
    char parameters[256] = {0};
    if (syscall(425, 4, parameters) < 0) say("refused", errno);
}
static void aio(void) {
    unsigned long context = 0;
    if (syscall(SYS_io_setup, 4, &context)) say("refused", errno);
}
static void *own_files(void *x) {
    if (unshare(CLONE_FILES)) abort();
    pause();
    return x;
}
static void split(void) {
    begin(own_files, NULL);
}
static void plain(void) {}

/* Signals are counted where the test can look while everything stands still. */
static volatile uint64_t handled;
static void count(int signal) {
    (void)signal;
    handled++;
}
static void handles(void) {
    /* The program ends when its last wait does. */
    struct sigaction a = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, NULL);
    say("handled", (uint64_t)&handled);
}

/* Computes for ever within a restartable sequence; that it was told to abort is counted. */
static volatile uint64_t aborted;
static void *in_sequence(void *x) {
    uint64_t rseq = (uint64_t)__builtin_thread_pointer() + __rseq_offset;
    __asm__ volatile(
        ".pushsection __rseq_cs, \"aw\"\n"
        ".balign 32\n"
        "3: .long 0, 0\n"
        ".quad 1f, 2f - 1f, 4f\n"
        ".popsection\n"
        ".pushsection __rseq_failure, \"ax\"\n"
        ".byte 0x0f, 0xb9, 0x3d\n"
        ".long %c[signature]\n"
        "4: lock incq %[aborted]\n"
        "jmp 5f\n"
        ".popsection\n"
        "5: lea 3b(%%rip), %%rax\n"
        "mov %%rax, 8(%[rseq])\n"
        "1: jmp 1b\n"
        "2:\n"
        : [aborted] "+m"(aborted)
        : [rseq] "r"(rseq), [signature] "i"(RSEQ_SIG)
        : "rax", "memory", "cc");
    return x;
}
static void sequence(void) {
    if (!__rseq_size) say("refused", ENOSYS);
    else begin(in_sequence, NULL);
    say("aborted", (uint64_t)&aborted);
}

/* A thread that ends when somebody asks. */
static volatile int asked;
static void *until_asked(void *x) {
    while (!asked) usleep(1000);
    made += 2;
    return x;
}
static void leaves(void) { begin(until_asked, NULL); }

/* A process comes to share our memory when somebody asks. */
static char stack[1 << 16] __attribute__((aligned(16)));
static int shares(void *x) {
    (void)x;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    made += 2;
    for (;;) pause();
    return 0;
}
static void *joined_when_asked(void *x) {
    while (!asked) usleep(1000);
    if (clone(shares, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) < 0) abort();
    /* The other one would end with this thread. */
    for (;;) pause();
    return x;
}
static void joined(void) { begin(joined_when_asked, NULL); }

/* A thread sleeps that may not go on by restart_syscall. */
static void *confined_sleep(void *x) {
    struct { unsigned short code; unsigned char jt, jf; unsigned int k; } filter[] = {
        {0x20, 0, 0, 0}, {0x15, 0, 1, SYS_restart_syscall}, {6, 0, 0, 0x80000000}, {6, 0, 0, 0x7fff0000}};
    struct { unsigned short length; void *filter; } program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) abort();
    made = 1;
    struct timespec t = {60, 0};
    syscall(SYS_nanosleep, &t, NULL);
    return x;
}
static void confined(void) {
    begin(confined_sleep, NULL);
    while (!made) usleep(1000);
}

/* Kernels before 6.3 know of no such thing. */
static void denies_memory(void) {
    if (prctl(65, 1, 0, 0, 0)) say("refused", 1);
}
/* A thread of its own, for each has a mode of its own. */
static void *in_denial(void *x) {
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)) abort();
    made = 1;
    return in_read(x);
}
static void denies_time_stamps(void) {
    if (pipe(fds)) abort();
    begin(in_denial, NULL);
    while (!made) usleep(1000);
}

struct state { const char *name; void (*set)(void); };
static const struct state states[] = {
    {"calls", calls}, {"known", known}, {"storm", storm}, {"forks", forks}, {"vfork", vforked},
    {"shared", shared_anonymous}, {"sysv", system_v}, {"seccomp", seccomp}, {"realtime", real_time},
    {"locked", locked}, {"userfault", userfault}, {"sealed", sealed}, {"io_uring", io_uring},
    {"aio", aio}, {"split", split}, {"plain", plain},
    {"handles", handles}, {"sequence", sequence}, {"leaves", leaves},
    {"joined", joined}, {"confined", confined},
    {"denies_memory", denies_memory}, {"denies_time_stamps", denies_time_stamps},
};

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; count == 2 && i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i].name, arguments[1]) == 0) {
            states[i].set();
            puts("ready");
            char c;
            while (read(0, &c, 1) == 1) {
                long before = made;
                asked = 1;
                for (int tries = 0; tries < 5000 && made <= before + 1; tries++) usleep(1000);
                say("more", made > before + 1);
            }
            return 0;
        }
    return 2;
}
