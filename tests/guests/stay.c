/* Has a reason to stay, on request.
 *
 *   stay REASON
 *
 * Prints `ready PID` with the reason in force; at the next line on standard input it takes the
 * reason away, where that can be done, and prints `free` (or `kept`); then it ends at the line
 * after that, with 0 if all its checks held. Between two lines it counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <asm/ldt.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <linux/perf_event.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static char *memory;
static unsigned long ring_entries = 4;
static int signals;
static int opened = -1;

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void shared(int file)
{
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    need(memory != MAP_FAILED, "mmap");
    memset(memory, 's', SIZE);
}

static int new_file(void)
{
    int file = open("stay-file", O_RDWR | O_CREAT, 0600);
    need(file >= 0 && ftruncate(file, SIZE) == 0, "a file");
    return file;
}

/* Memory in which the kernel would show what a socket receives (TCP_ZEROCOPY_RECEIVE). */
static void map_socket(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *there = (struct sockaddr *)&address;
    socklen_t length = sizeof address;
    int hears = socket(AF_INET, SOCK_STREAM, 0), calls = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(hears, there, length) == 0 && listen(hears, 1) == 0, "listen");
    need(getsockname(hears, there, &length) == 0 && connect(calls, there, length) == 0, "connect");
    int answers = accept(hears, NULL, NULL);
    memory = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, answers, 0);
    need(memory != MAP_FAILED, "mmap of a socket");
}

static void filter_calls(void)
{
    /* Forbids what nobody calls; allows the rest. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

static pid_t tracer;

static void have_tracer(void)
{
    int said[2];
    char byte;
    need(pipe(said) == 0, "pipe");
    tracer = fork();
    if (tracer == 0) {
        pid_t parent = getppid();
        if (ptrace(PTRACE_SEIZE, parent, 0, 0) != 0)
            _exit(1);
        need(write(said[1], "x", 1) == 1, "write");
        for (;;)
            pause();
    }
    prctl(PR_SET_PTRACER, tracer);
    close(said[1]);
    need(read(said[0], &byte, 1) == 1, "the tracer");
}

/* A process with our memory, which counts there. */
static volatile long beats;
static volatile int stop_beats;
static char stacks[2][1 << 16] __attribute__((aligned(16)));
static pid_t partner;

static int beat(void *nothing)
{
    struct timespec pause = {0, 1000000};
    (void)nothing;
    while (!stop_beats) {
        beats++;
        syscall(SYS_nanosleep, &pause, NULL);
    }
    stop_beats = 2;
    return 7;
}

/* One more, whose maker ends: it is nobody's child that we would know of. */
static int make_orphan(void *nothing)
{
    (void)nothing;
    return clone(beat, stacks[1] + sizeof stacks[1], CLONE_VM, NULL) < 0;
}

/* A thread of its own, and no first thread. */
static int make_thread(void *nothing)
{
    int flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM;
    (void)nothing;
    clone(beat, stacks[1] + sizeof stacks[1], flags, NULL);
    syscall(SYS_exit, 0);
    return 0;
}

static void share_memory(int (*made)(void *))
{
    int status;
    partner = clone(made, stacks[0] + sizeof stacks[0], CLONE_VM | SIGCHLD, NULL);
    need(partner > 0, "clone");
    if (made == make_orphan)
        need(waitpid(partner, &status, 0) == partner && status == 0, "the maker");
    while (made == make_thread) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", partner);
        int file = open(path, O_RDONLY);
        need(file >= 0 && read(file, text, sizeof text - 1) > 0, "the first thread");
        close(file);
        if (strstr(text, ") Z"))
            break;
    }
    while (beats == 0)
        ;
}

/* It counts yet, and ends when it is told. */
static int end_sharing(int is_child)
{
    long before = beats;
    for (int i = 0; i < 5000 && beats == before; i++)
        usleep(1000);
    need(beats != before, "the process with our memory stands still");
    stop_beats = 1;
    for (int i = 0; i < 5000 && stop_beats != 2; i++)
        usleep(1000);
    need(stop_beats == 2, "the process with our memory does not end");
    return !is_child || waitpid(partner, NULL, 0) == partner;
}

/* A thread that may make few calls answers each byte, and ends at a q. */
static int to_thread[2], from_thread[2];
static pthread_t confined;
static volatile int is_confined;

/* Until a q. */
static void answer(void)
{
    char byte;
    is_confined = 1;
    while (read(to_thread[0], &byte, 1) == 1 && write(from_thread[1], &byte, 1) == 1 && byte != 'q')
        ;
    syscall(SYS_exit, 0);
}

static void make_confined(void *(*begun)(void *), void *argument)
{
    need(pipe(to_thread) == 0 && pipe(from_thread) == 0, "pipes");
    need(pthread_create(&confined, NULL, begun, argument) == 0, "a thread");
    while (!is_confined)
        ;
}

static void *confine(void *strict)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (strict)
        need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0, "strict mode");
    else
        need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                 prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
             "a filter");
    answer();
    return NULL;
}

/* The user and the group that own nothing. */
enum { NOBODY = 65534 };

/* By calls of this thread alone: the C library would have all others drop their rights as well. Of the
 * one that is named the thread keeps what root has. */
static int drop_rights(const char *kept)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    return (!strcmp(kept, "thread-groups") || syscall(SYS_setgroups, 0, NULL) == 0) &&
           (!strcmp(kept, "thread-gids") || syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0) &&
           prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0 &&
           (!strcmp(kept, "thread-capabilities") || syscall(SYS_capset, &header, none) == 0);
}

static void *keep(void *kept)
{
    need(drop_rights(kept), "the thread's rights");
    answer();
    return NULL;
}

/* The first thread is nobody's, and lets itself be looked at; the other has kept some right of root's. */
static int keep_in_thread(const char *kept)
{
    gid_t groups[] = {NOBODY, 4711};
    if (geteuid() != 0 || setgroups(2, groups) != 0)
        return 0;
    make_confined(keep, (void *)kept);
    need(drop_rights("") && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0, "the first thread's rights");
    return 1;
}

/* The listener of a filter that a child has installed, and that ends without it. */
static int listener_of_child(void)
{
    int ready[2], number = -1, found = -1;
    need(pipe(ready) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog program = {1, &allow};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        number = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
        need(write(ready[1], &number, sizeof number) == sizeof number, "write");
        pause();
    }
    need(read(ready[0], &number, sizeof number) == sizeof number, "read");
    int process = syscall(SYS_pidfd_open, child, 0);
    if (number >= 0 && process >= 0)
        found = syscall(SYS_pidfd_getfd, process, number, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(process), close(ready[0]), close(ready[1]);
    return found;
}

/* Layout and compatibility are each thread's own, too. */
static void *change_personality(void *nothing)
{
    (void)nothing;
    need(personality(ADDR_NO_RANDOMIZE) != -1, "personality");
    answer();
    return NULL;
}

static int end_confined(void)
{
    struct pollfd answer = {.fd = from_thread[0], .events = POLLIN};
    char byte;
    for (const char *said = "aq"; *said; said++) {
        need(write(to_thread[1], said, 1) == 1, "write");
        need(poll(&answer, 1, 5000) == 1 && read(from_thread[0], &byte, 1) == 1 && byte == *said,
             "the thread with few calls does not answer");
    }
    return pthread_join(confined, NULL) == 0;
}

/* 0 if the kernel gives none. */
static int unmap_vdso(void)
{
    unsigned long start = 0, end = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    need(maps != NULL, "maps");
    while (fgets(line, sizeof line, maps) != NULL && strstr(line, "[vdso]") == NULL)
        ;
    fclose(maps);
    return strstr(line, "[vdso]") != NULL && sscanf(line, "%lx-%lx", &start, &end) == 2 &&
           munmap((void *)start, end - start) == 0;
}

/* 1: in force; 0: not possible on this machine. */
static int begin(const char *reason)
{
    if (!strcmp(reason, "shared-anonymous")) {
        shared(-1);
    } else if (!strcmp(reason, "shared-file")) {
        shared(new_file());
    } else if (!strcmp(reason, "shared-memfd")) {
        int file = memfd_create("stay", 0);
        need(ftruncate(file, SIZE) == 0, "ftruncate");
        shared(file);
    } else if (!strcmp(reason, "shared-read-only-written")) {
        /* Somebody has it open for writing: home cannot hold a lease on it. */
        int file = new_file();
        memory = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
        need(memory != MAP_FAILED, "mmap");
    } else if (!strcmp(reason, "shared-read-only-writer")) {
        opened = new_file();
        int reads = open("stay-file", O_RDONLY);
        memory = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, reads, 0);
        need(memory != MAP_FAILED && close(reads) == 0, "mmap");
    } else if (!strcmp(reason, "shared-sealed")) {
        int file = memfd_create("sealed", MFD_ALLOW_SEALING);
        need(ftruncate(file, SIZE) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0, "seals");
        /* Before Linux 6.7 none such can be mapped. */
        memory = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED)
            return 0;
    } else if (!strcmp(reason, "socket-memory")) {
        map_socket();
    } else if (!strcmp(reason, "kernel-file")) {
        int file = open("/sys/kernel/btf/vmlinux", O_RDONLY);
        memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
        if (memory == MAP_FAILED)
            return 0;
    } else if (!strcmp(reason, "sysv-shm")) {
        int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
        memory = shmat(id, NULL, 0);
        need(memory != (void *)-1, "shmat");
        shmctl(id, IPC_RMID, NULL);
    } else if (!strcmp(reason, "aio")) {
        memory = NULL;
        if (syscall(SYS_io_setup, 8, &memory) != 0)
            return 0;
    } else if (!strcmp(reason, "io-uring")) {
        struct io_uring_params parameters = {0};
        int ring = syscall(SYS_io_uring_setup, ring_entries, &parameters);
        if (ring < 0)
            return 0;
        memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
        need(memory != MAP_FAILED, "mmap of a ring");
        close(ring);
    } else if (!strcmp(reason, "signal-descriptor")) {
        sigset_t set;
        sigemptyset(&set);
        /* The kernel of the place where it computes sends this one. */
        sigaddset(&set, SIGPROF);
        signals = signalfd(-1, &set, 0);
        need(signals >= 0, "signalfd");
    } else if (!strcmp(reason, "traced")) {
        have_tracer();
    } else if (!strcmp(reason, "seccomp")) {
        filter_calls();
    } else if (!strcmp(reason, "locked")) {
        struct rlimit limit;
        getrlimit(RLIMIT_MEMLOCK, &limit);
        memory = mmap(NULL, 64 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mlock(memory, 64 * SIZE) != 0)
            return 0;
    } else if (!strcmp(reason, "device")) {
        int file = open("/dev/zero", O_RDWR);
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        need(memory != MAP_FAILED, "mmap of /dev/zero");
        int net = open("/dev/net/tun", O_RDWR);
        (void)net;
    } else if (!strcmp(reason, "hugetlb")) {
        memory = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return 0;
    } else if (!strcmp(reason, "sealed")) {
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (syscall(462, memory, SIZE, 0) != 0)
            return 0;
    } else if (!strcmp(reason, "real-time")) {
        struct sched_param parameter = {.sched_priority = 1};
        if (sched_setscheduler(0, SCHED_FIFO, &parameter) != 0)
            return 0;
    } else if (!strcmp(reason, "dispatch")) {
        static char selector;
        if (prctl(59, 1, 0, 0, &selector) != 0)
            return 0;
    } else if (!strcmp(reason, "segments")) {
        struct user_desc entry = {.limit = 1, .seg_32bit = 1};
        if (syscall(SYS_modify_ldt, 1, &entry, sizeof entry) != 0)
            return 0;
    } else if (!strcmp(reason, "clone-vm")) {
        share_memory(beat);
    } else if (!strcmp(reason, "clone-vm-orphan")) {
        share_memory(make_orphan);
    } else if (!strcmp(reason, "clone-vm-thread")) {
        share_memory(make_thread);
    } else if (!strcmp(reason, "thread-filter") || !strcmp(reason, "thread-strict")) {
        make_confined(confine, !strcmp(reason, "thread-strict") ? "" : NULL);
    } else if (!strcmp(reason, "thread-gids") || !strcmp(reason, "thread-groups") ||
               !strcmp(reason, "thread-capabilities")) {
        return keep_in_thread(reason);
    } else if (!strcmp(reason, "thread-personality")) {
        make_confined(change_personality, NULL);
    } else if (!strcmp(reason, "speculation")) {
        /* PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE */
        if (prctl(53, 0, 4, 0, 0) != 0)
            return 0;
    } else if (!strcmp(reason, "core")) {
        /* PR_SCHED_CORE, PR_SCHED_CORE_CREATE, of the process */
        if (prctl(62, 1, 0, 1, 0) != 0)
            return 0;
    } else if (!strcmp(reason, "cpuid")) {
        /* ARCH_SET_CPUID */
        if (syscall(SYS_arch_prctl, 0x1012, 0) != 0)
            return 0;
    } else if (!strcmp(reason, "own-memory")) {
        opened = open("/proc/self/mem", O_RDWR);
        need(opened >= 0, "open");
    } else if (!strcmp(reason, "own-directory")) {
        opened = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
        need(opened >= 0, "open");
    } else if (!strcmp(reason, "bpf")) {
        /* A map of one int, by BPF_MAP_CREATE. */
        struct { unsigned type, key, value, entries, flags, more[32]; } map = {2, 4, 4, 1, 0, {0}};
        opened = syscall(SYS_bpf, 0, &map, sizeof map);
        if (opened < 0)
            return 0;
    } else if (!strcmp(reason, "mount-context")) {
        opened = syscall(SYS_fsopen, "tmpfs", 0);
        if (opened < 0)
            return 0;
    } else if (!strcmp(reason, "user-fault")) {
        opened = syscall(SYS_userfaultfd, 1);
        if (opened < 0)
            return 0;
    } else if (!strcmp(reason, "secret")) {
        opened = syscall(SYS_memfd_secret, 0);
        if (opened < 0)
            return 0;
        need(ftruncate(opened, SIZE) == 0, "ftruncate");
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
        need(memory != MAP_FAILED, "mmap of secret memory");
    } else if (!strcmp(reason, "filter-listener")) {
        opened = listener_of_child();
        if (opened < 0)
            return 0;
    } else if (!strcmp(reason, "counts")) {
        struct perf_event_attr what = {.type = PERF_TYPE_SOFTWARE, .size = sizeof what,
                                       .config = PERF_COUNT_SW_TASK_CLOCK};
        opened = syscall(SYS_perf_event_open, &what, 0, -1, -1, 0);
        if (opened < 0)
            return 0;
    } else if (!strcmp(reason, "mdwe")) {
        /* PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN. What is mapped already stays as it is. */
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(memory != MAP_FAILED, "mmap");
        if (prctl(65, 1, 0, 0, 0) != 0)
            return 0;
    } else if (!strcmp(reason, "tiles")) {
        /* ARCH_REQ_XCOMP_PERM, of the tile data. */
        if (syscall(SYS_arch_prctl, 0x1023, 18) != 0)
            return 0;
    } else if (!strcmp(reason, "address-tags")) {
        /* ARCH_ENABLE_TAGGED_ADDR */
        if (syscall(SYS_arch_prctl, 0x4002, 6) != 0)
            return 0;
    } else if (!strcmp(reason, "no-vdso")) {
        /* The C library calls the kernel itself after that. */
        if (!unmap_vdso())
            return 0;
    } else if (!strcmp(reason, "page-zero")) {
        memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (memory == MAP_FAILED)
            return 0;
        *(volatile unsigned char *)memory = 1;
    } else if (strcmp(reason, "none") != 0 && strcmp(reason, "vfork") != 0 &&
               strcmp(reason, "tiles-away") != 0 && strcmp(reason, "map-away") != 0) {
        exit(2);
    }
    return 1;
}

static int end(const char *reason)
{
    struct sched_param ordinary = {0};
    if (!strcmp(reason, "sysv-shm"))
        return shmdt(memory) == 0;
    if (!strcmp(reason, "aio"))
        return syscall(SYS_io_destroy, memory) == 0;
    if (!strcmp(reason, "io-uring"))
        return munmap(memory, 4096) == 0;
    if (!strcmp(reason, "signal-descriptor"))
        return close(signals) == 0;
    if (!strcmp(reason, "traced"))
        return kill(tracer, SIGKILL) == 0 && waitpid(tracer, NULL, 0) == tracer;
    if (!strcmp(reason, "locked"))
        return munlock(memory, 64 * SIZE) == 0;
    if (!strcmp(reason, "hugetlb"))
        return munmap(memory, 2 << 20) == 0;
    if (!strcmp(reason, "real-time"))
        return sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0;
    if (!strcmp(reason, "dispatch"))
        return prctl(59, 0, 0, 0, 0) == 0;
    if (!strncmp(reason, "clone-vm", 8))
        return end_sharing(strcmp(reason, "clone-vm-orphan") != 0);
    if (!strncmp(reason, "thread-", 7))
        return end_confined();
    if (!strcmp(reason, "secret"))
        return munmap(memory, SIZE) == 0 && close(opened) == 0;
    if (opened >= 0)
        return close(opened) == 0;
    if (!strcmp(reason, "speculation"))
        return prctl(53, 0, 2, 0, 0) == 0;
    if (!strcmp(reason, "cpuid"))
        return syscall(SYS_arch_prctl, 0x1012, 1) == 0;
    if (!strcmp(reason, "mdwe")) {
        void *refused = mmap(NULL, SIZE, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(refused == MAP_FAILED && errno == EACCES, "what it denied itself it was given");
        return 0;
    }
    if (!strcmp(reason, "tiles") || !strcmp(reason, "tiles-away") ||
        !strcmp(reason, "address-tags") || !strcmp(reason, "seccomp") || !strcmp(reason, "sealed") ||
        !strcmp(reason, "segments") || !strcmp(reason, "core") || !strcmp(reason, "no-vdso") || !strcmp(reason, "none"))
        return 0;
    return munmap(memory, SIZE) == 0;
}

/* Computes and checks until a line comes. */
static void count_until_line(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned long state = 1, check = 1;
    char line[16];
    while (poll(&input, 1, 0) == 0) {
        for (int i = 0; i < 100000; i++)
            state = state * 6364136223846793005u + 1;
        for (int i = 0; i < 100000; i++)
            check = check * 6364136223846793005u + 1;
        need(state == check, "the count");
    }
    need(read(0, line, sizeof line) > 0, "a line");
}

/* Maps a file of the kernel's own that is no page of a cache, and tells whether it shows what it holds. */
static void map_kernel_file(void)
{
    unsigned char bytes[2] = "";
    int file = open("/sys/kernel/btf/vmlinux", O_RDONLY);
    memory = MAP_FAILED;
    if (file >= 0 && pread(file, bytes, 2, 0) == 2)
        memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) {
        memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("impossible %s\n", strerror(errno));
    } else {
        printf("mapped %d\n", memcmp(memory, bytes, 2) == 0);
    }
    close(file);
    count_until_line();
}

int main(int argc, char **argv)
{
    const char *reason = argc == 2 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!begin(reason)) {
        printf("impossible %s\n", strerror(errno));
        return 0;
    }
    printf("ready %d\n", getpid());
    count_until_line();
    if (!strcmp(reason, "vfork")) {
        pid_t child = vfork();
        if (child == 0) {
            printf("child %d\n", getpid());
            count_until_line();
            _exit(5);
        }
        int status;
        need(waitpid(child, &status, 0) == child && status == 5 << 8, "the child of vfork");
    }
    if (!strcmp(reason, "tiles-away")) {
        long parts = 0;
        int refused = syscall(SYS_arch_prctl, 0x1023, 18) != 0;
        printf("tiles %d\n", !refused);
        count_until_line();
        syscall(SYS_arch_prctl, 0x1022, &parts);
        need(refused || parts >> 18 & 1, "the permission is lost");
    }
    if (!strcmp(reason, "map-away"))
        map_kernel_file();
    printf(end(reason) ? "free\n" : "kept\n");
    count_until_line();
    return 0;
}
