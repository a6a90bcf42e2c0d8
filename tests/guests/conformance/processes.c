/* Conformance: the process, its rights, limits and children. */
#include "common.h"
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static int self, children[32], count;

static void know_self(void) { self = getpid(); }

CASE(ids, "getuid geteuid getgid getegid getppid getresuid getresgid getgroups setgroups setuid setgid "
          "setreuid setregid setresuid setresgid setfsuid setfsgid getpid gettid", know_self)
{
    TRY(getuid, .b = {V(0)});
    TRY(geteuid, .b = {V(0)});
    TRY(getgid, .b = {V(0)});
    TRY(getegid, .b = {V(0)});
    TRY(getpid, .b = {V(0)}, .flags = IDENTITY);
    TRY(gettid, .b = {V(0)}, .flags = IDENTITY);
    TRY(getppid, .b = {V(0)}, .flags = IDENTITY);
    TRY(setgroups, .b = {V(3), II(7, 9, 11)});
    TRY(setgroups, .note = "too_many", .b = {V(70000), II(7, 9, 11)});
    TRY(getgroups, .b = {V(10), O(40)});
    TRY(getgroups, .note = "short", .b = {V(2), O(8)});
    TRY(getgroups, .note = "count", .b = {V(0), V(0)});
    TRY(getgroups, .note = "negative", .b = {V(-1), O(8)});
    TRY(setgid, .b = {V(0)});
    TRY(setregid, .b = {V(-1), V(5)});
    TRY(setresgid, .b = {V(-1), V(0), V(6)});
    TRY(setfsgid, .b = {V(8)});
    TRY(getresgid, .b = {O(4), O(4), O(4)});
    TRY(setresgid, .note = "back", .b = {V(0), V(0), V(0)});
    TRY(setuid, .b = {V(0)});
    TRY(setreuid, .b = {V(-1), V(-1)});
    TRY(setresuid, .b = {V(-1), V(-1), V(0)});
    TRY(setfsuid, .b = {V(0)});
    TRY(setfsuid, .note = "asks", .b = {V(-1)});
    TRY(getresuid, .b = {O(4), O(4), O(4)});
}

static void make_secret(void)
{
    know_self();
    close(open("secret", O_CREAT | O_WRONLY, 0600));
    need(geteuid() != 0 || chown("secret", 0, 0) == 0, "chown");
}

/* As another user for the time of the case. */
CASE(without_rights, "", make_secret)
{
    TRY(setresgid, .note = "other", .b = {V(-1), V(4321), V(-1)});
    TRY(setresuid, .note = "other", .b = {V(-1), V(4321), V(-1)});
    TRY(open, .note = "secret", .b = {S("secret"), V(O_RDONLY)}, .flags = CLOSES | ONCE);
    TRY(access, .note = "secret", .b = {S("secret"), V(R_OK)}, .flags = ONCE);
    TRY(faccessat2, .note = "secret", .b = {V(AT_FDCWD), S("secret"), V(R_OK), V(AT_EACCESS)}, .flags = ONCE);
    TRY(chown, .note = "secret", .b = {S("secret"), V(4321), V(4321)}, .flags = ONCE);
    TRY(unlink, .note = "system", .b = {S("/etc/passwd")}, .flags = ONCE);
    TRY(setgroups, .note = "other", .b = {V(1), II(7)});
    TRY(sched_setaffinity, .note = "other", .b = {V(1), V(8), IL(1)});
    TRY(kill, .note = "other", .b = {V(1), V(0)});
    TRY(setpriority, .note = "other", .b = {V(PRIO_PROCESS), V(0), V(-20)});
    TRY(chroot, .note = "other", .b = {S("/")});
    TRY(setresuid, .note = "back", .b = {V(-1), V(0), V(-1)});
    TRY(setresgid, .note = "back", .b = {V(-1), V(0), V(-1)});
}

CASE(capabilities, "capget capset", know_self)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0}, old = {0x19980330, 0};
    struct __user_cap_header_struct odd = {77, 0}, other = {_LINUX_CAPABILITY_VERSION_3, 0x3fffffff};
    struct __user_cap_data_struct sets[2];
    TRY(capget, .b = {C(&head, 8), O(24)});
    TRY(capget, .note = "old", .b = {C(&old, 8), O(12)});
    TRY(capget, .note = "odd", .b = {C(&odd, 8), O(24)});
    TRY(capget, .note = "missing", .b = {C(&other, 8), O(24)});
    need(RAW(capget, &head, sets, 0, 0, 0, 0) == 0, "capget");
    TRY(capset, .b = {I(&head, 8), I(sets, 24)});
    sets[0].inheritable = ~0u;
    sets[1].permitted = ~0u;
    TRY(capset, .note = "more", .b = {I(&head, 8), I(sets, 24)});
}

CASE(limits, "getrlimit setrlimit prlimit64", know_self)
{
    struct rlimit64 files = {500, 1000}, odd = {1000, 500};
    for (int resource = 0; resource < 17; resource++)
        TRY(getrlimit, .b = {V(resource), O(16)}, .flags = resource == 7 ? 0 : ONCE);
    TRY(setrlimit, .b = {V(RLIMIT_NOFILE), I(&files, 16)});
    TRY(setrlimit, .note = "odd", .b = {V(RLIMIT_NOFILE), I(&odd, 16)});
    TRY(prlimit64, .b = {V(0), V(RLIMIT_NPROC), V(0), O(16)});
    TRY(prlimit64, .note = "set", .b = {V(0), V(RLIMIT_NOFILE), I(&files, 16), O(16)});
    TRY(prlimit64, .note = "unknown", .b = {V(0), V(99), V(0), O(16)});
    TRY(prlimit64, .note = "missing", .b = {V(0x3fffffff), V(RLIMIT_NOFILE), V(0), O(16)});
    TRY(prlimit64, .note = "memory", .b = {V(0), V(RLIMIT_AS), V(0), O(16)});
    TRY(getrlimit, .note = "stack", .b = {V(RLIMIT_STACK), O(16)});
}

CASE(about, "uname sysinfo personality syslog", know_self)
{
    TRY(uname, .b = {O(390)});
    /* Of sysinfo: uptime, loads, memory and processes change. */
    TRY(sysinfo, .b = {OH(112, "0+32,32+48,80+2,88+16")});
    TRY(personality, .b = {V(-1)});
    TRY(syslog, .note = "size", .b = {V(10), V(0), V(0)}, .flags = HIDDEN);
    TRY(syslog, .note = "unknown", .b = {V(99), V(0), V(0)});
    TRY(syslog, .note = "negative", .b = {V(3), O(10), V(-1)});
    TRY(syslog, .note = "read_all", .b = {V(3), OH(2000, "0+2000"), V(2000)}, .flags = HIDDEN);
}

CASE(priorities, "getpriority setpriority ioprio_get ioprio_set", know_self)
{
    TRY(getpriority, .b = {V(PRIO_PROCESS), V(0)});
    TRY(getpriority, .note = "unknown", .b = {V(9), V(0)});
    TRY(getpriority, .note = "missing", .b = {V(PRIO_PROCESS), V(0x3fffffff)});
    TRY(setpriority, .b = {V(PRIO_PROCESS), V(0), V(1)});
    TRY(getpriority, .note = "after", .b = {V(PRIO_PROCESS), V(0)});
    TRY(setpriority, .note = "back", .b = {V(PRIO_PROCESS), V(self), V(0)});
    TRY(ioprio_get, .b = {V(1), V(0)});
    TRY(ioprio_set, .b = {V(1), V(0), V(2 << 13 | 5)});
    TRY(ioprio_get, .note = "after", .b = {V(1), V(self)});
    TRY(ioprio_set, .note = "odd", .b = {V(1), V(0), V(9 << 13)});
    TRY(ioprio_get, .note = "unknown", .b = {V(9), V(0)});
}

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
};

CASE(scheduling, "sched_setparam sched_getparam sched_setscheduler sched_getscheduler "
                 "sched_rr_get_interval sched_setaffinity sched_getaffinity sched_setattr sched_getattr "
                 "sched_get_priority_max sched_get_priority_min sched_yield getcpu", know_self)
{
    struct attributes batch = {.size = 48, .policy = SCHED_BATCH, .nice = 0}, odd = {.size = 20};
    struct attributes large = {.size = 9000};
    unsigned long cpus[16] = {0};
    TRY(sched_getscheduler, .b = {V(0)});
    TRY(sched_getscheduler, .note = "missing", .b = {V(0x3fffffff)});
    TRY(sched_setscheduler, .b = {V(0), V(SCHED_BATCH), II(0)});
    TRY(sched_setscheduler, .note = "unknown", .b = {V(0), V(77), II(0)});
    TRY(sched_setscheduler, .note = "priority", .b = {V(0), V(SCHED_OTHER), II(3)});
    TRY(sched_getscheduler, .note = "after", .b = {V(self)});
    TRY(sched_setparam, .b = {V(0), II(0)});
    TRY(sched_getparam, .b = {V(0), O(4)});
    TRY(sched_getparam, .note = "negative", .b = {V(-1), O(4)});
    TRY(sched_rr_get_interval, .b = {V(0), OH(16, "8+8")});
    TRY(sched_setattr, .b = {V(0), I(&batch, 48), V(0)});
    TRY(sched_setattr, .note = "odd", .b = {V(0), C(&odd, 48), V(0)});
    TRY(sched_setattr, .note = "large", .b = {V(0), C(&large, 48), V(0)});
    TRY(sched_setattr, .note = "flags", .b = {V(0), I(&batch, 48), V(9)});
    TRY(sched_getattr, .b = {V(0), O(56), V(56), V(0)});
    TRY(sched_getattr, .note = "short", .b = {V(0), O(48), V(48), V(0)});
    TRY(sched_getattr, .note = "large", .b = {V(0), O(200), V(200), V(0)});
    TRY(sched_getattr, .note = "small", .b = {V(0), O(20), V(20), V(0)});
    TRY(sched_setscheduler, .note = "back", .b = {V(0), V(SCHED_OTHER), II(0)});
    TRY(sched_getaffinity, .b = {V(0), V(128), O(128)});
    TRY(sched_getaffinity, .note = "short", .b = {V(0), V(4), O(4)});
    TRY(sched_getaffinity, .note = "odd", .b = {V(0), V(9), O(9)});
    need(RAW(sched_getaffinity, 0, sizeof cpus, cpus, 0, 0, 0) > 0, "sched_getaffinity");
    TRY(sched_setaffinity, .b = {V(0), V(128), I(cpus, 128)});
    TRY(sched_setaffinity, .note = "none", .b = {V(0), V(8), IL(0)});
    TRY(sched_get_priority_max, .b = {V(SCHED_FIFO)});
    TRY(sched_get_priority_min, .b = {V(99)});
    TRY(sched_yield, .b = {V(0)});
    TRY(getcpu, .b = {OH(4, "0+4"), OH(4, "0+4"), V(0)});
}

/* Children that have ended, by exit 5. */
static void make_children(void)
{
    siginfo_t info;
    know_self();
    for (count = 0; count < 30; count++) {
        children[count] = fork();
        if (children[count] == 0)
            _exit(5);
        name_identity(children[0], "child");
        need(waitid(P_PID, children[count], &info, WEXITED | WNOWAIT) == 0, "waitid");
    }
    /* The one that waits is ended by a signal, later. */
    children[count] = fork();
    if (children[count] == 0)
        for (;;)
            pause();
}

#define USAGE "0+144"

CASE(children_waited_for, "wait4 waitid", make_children)
{
    TRY(waitid, .b = {V(P_PID), V(children[0]), OH(128, "16+4"), V(WEXITED | WNOWAIT), OH(144, USAGE)});
    TRY(waitid, .note = "not_yet", .b = {V(P_PID), V(children[count]), OH(128, "16+4"), V(WEXITED | WNOHANG), V(0)});
    TRY(waitid, .note = "stranger", .b = {V(P_PID), V(1), OH(128, "16+4"), V(WEXITED), V(0)});
    TRY(waitid, .note = "options", .b = {V(P_PID), V(children[0]), OH(128, "16+4"), V(0), V(0)});
    TRY(waitid, .note = "kind", .b = {V(77), V(children[0]), OH(128, "16+4"), V(WEXITED), V(0)});
    TRY(wait4, .note = "stranger", .b = {V(1), O(4), V(0), O(144)});
    TRY(wait4, .note = "not_yet", .b = {V(children[count]), O(4), V(WNOHANG), O(144)});
    TRY(wait4, .note = "options", .b = {V(-1), O(4), V(-1), O(144)});
    TRY(wait4, .b = {V(-1), O(4), V(WNOHANG), OH(144, USAGE)}, .flags = HIDDEN);
    alarm_in(20);
    TRY(wait4, .note = "interrupted", .b = {V(children[count]), O(4), V(0), V(0)}, .flags = ONCE);
    unsigned long mask = 1ul << (SIGCHLD - 1);
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    TRY(kill, .note = "child", .b = {V(children[count]), V(SIGUSR1)}, .flags = ONCE);
    RAW(kill, children[count], SIGKILL, 0, 0, 0, 0);
    TRY(wait4, .note = "killed", .b = {V(children[count]), O(4), V(0), V(0)}, .flags = HIDDEN | ONCE);
    while (RAW(wait4, -1, 0, WNOHANG, 0, 0, 0) > 0)
        ;
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
    tell_signals();
    tell("\n");
    TRY(wait4, .note = "none", .b = {V(-1), O(4), V(0), V(0)});
}

static void make_one(void)
{
    know_self();
    children[0] = fork();
    if (children[0] == 0)
        for (;;)
            pause();
    name_identity(children[0], "child");
}

static void end_one(void)
{
    unsigned long mask = 1ul << (SIGCHLD - 1);
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    RAW(kill, children[0], SIGKILL, 0, 0, 0, 0);
    RAW(wait4, children[0], 0, 0, 0, 0, 0);
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
}

CASE(other_process, "kcmp get_robust_list", make_one)
{
    TRY(kcmp, .b = {V(self), V(children[0]), V(KCMP_FILE), V(1), V(1)});
    TRY(kcmp, .note = "memory", .b = {V(self), V(self), V(KCMP_VM), V(0), V(0)});
    TRY(kcmp, .note = "kind", .b = {V(self), V(self), V(77), V(0), V(0)});
    struct kcmp_epoll_slot slot = {0, 1, 0};
    TRY(kcmp, .note = "epoll", .b = {V(self), V(self), V(KCMP_EPOLL_TFD), V(1), I(&slot, 12)});
    TRY(get_robust_list, .b = {V(0), OH(8, "0+8"), O(8)});
    TRY(get_robust_list, .note = "own", .b = {V(self), OH(8, "0+8"), O(8)});
    TRY(get_robust_list, .note = "child", .b = {V(children[0]), OH(8, "0+8"), O(8)});
    TRY(get_robust_list, .note = "missing", .b = {V(0x3fffffff), O(8), O(8)});
    TRY(setpgid, .note = "child", .b = {V(children[0]), V(children[0])});
    TRY(getpgid, .note = "child", .b = {V(children[0])}, .flags = IDENTITY);
    TRY(getsid, .note = "child", .b = {V(children[0])}, .flags = IDENTITY);
    TRY(getpriority, .note = "child", .b = {V(PRIO_PROCESS), V(children[0])});
    TRY(sched_getparam, .note = "child", .b = {V(children[0]), O(4)});
    TRY(prlimit64, .note = "child", .b = {V(children[0]), V(RLIMIT_NPROC), V(0), O(16)});
    end_one();
}

static unsigned held;

/* A lock that the program inherited, and whose holder is another process. */
CASE(home_lock_of_another, "", make_one)
{
    long past[] = {1, 0};
    held = children[0];
    TRY(futex, .note = "try", .b = {V((long)&held), V(FUTEX_TRYLOCK_PI_PRIVATE)}, .flags = ONCE);
    TRY(futex, .note = "lock", .b = {V((long)&held), V(FUTEX_LOCK_PI_PRIVATE), V(0), I(past, 16)}, .flags = ONCE);
    end_one();
}

CASE(home_descriptors_of_another, "pidfd_getfd", make_one)
{
    int fd = RAW(pidfd_open, children[0], 0, 0, 0, 0, 0);
    TRY(pidfd_getfd, .b = {V(fd), V(1), V(0)}, .flags = CLOSES);
    TRY(pidfd_getfd, .note = "closed", .b = {V(fd), V(77), V(0)}, .flags = CLOSES);
    TRY(pidfd_getfd, .note = "flags", .b = {V(fd), V(1), V(5)}, .flags = CLOSES);
    end_one();
    close(fd);
}

CASE(controls, "prctl arch_prctl", know_self)
{
    TRY(prctl, .note = "SET_NAME", .b = {V(PR_SET_NAME), S("a new name")});
    TRY(prctl, .note = "GET_NAME", .b = {V(PR_GET_NAME), O(16)});
    TRY(prctl, .note = "long_name", .b = {V(PR_SET_NAME), S("a name that is too long for it")});
    TRY(prctl, .note = "GET_NAME", .b = {V(PR_GET_NAME), O(16)}, .flags = ONCE);
    TRY(prctl, .note = "SET_PDEATHSIG", .b = {V(PR_SET_PDEATHSIG), V(SIGUSR1)});
    TRY(prctl, .note = "SET_PDEATHSIG_odd", .b = {V(PR_SET_PDEATHSIG), V(99)});
    TRY(prctl, .note = "GET_PDEATHSIG", .b = {V(PR_GET_PDEATHSIG), O(4)});
    TRY(prctl, .note = "no_PDEATHSIG", .b = {V(PR_SET_PDEATHSIG), V(0)});
    TRY(prctl, .note = "GET_DUMPABLE", .b = {V(PR_GET_DUMPABLE)});
    TRY(prctl, .note = "GET_KEEPCAPS", .b = {V(PR_GET_KEEPCAPS)});
    TRY(prctl, .note = "SET_KEEPCAPS", .b = {V(PR_SET_KEEPCAPS), V(1)});
    TRY(prctl, .note = "GET_SECUREBITS", .b = {V(PR_GET_SECUREBITS)});
    TRY(prctl, .note = "CAPBSET_READ", .b = {V(PR_CAPBSET_READ), V(21)});
    TRY(prctl, .note = "CAPBSET_READ_odd", .b = {V(PR_CAPBSET_READ), V(99)});
    TRY(prctl, .note = "SET_CHILD_SUBREAPER", .b = {V(PR_SET_CHILD_SUBREAPER), V(1)});
    TRY(prctl, .note = "GET_CHILD_SUBREAPER", .b = {V(PR_GET_CHILD_SUBREAPER), O(4)});
    TRY(prctl, .note = "no_CHILD_SUBREAPER", .b = {V(PR_SET_CHILD_SUBREAPER), V(0)});
    TRY(prctl, .note = "GET_TIMERSLACK", .b = {V(PR_GET_TIMERSLACK)});
    TRY(prctl, .note = "SET_TIMERSLACK", .b = {V(PR_SET_TIMERSLACK), V(60000)});
    TRY(prctl, .note = "GET_TIMERSLACK", .b = {V(PR_GET_TIMERSLACK)});
    TRY(prctl, .note = "GET_SECCOMP", .b = {V(PR_GET_SECCOMP)});
    TRY(prctl, .note = "GET_NO_NEW_PRIVS", .b = {V(PR_GET_NO_NEW_PRIVS), V(0), V(0), V(0), V(0)});
    TRY(prctl, .note = "GET_TSC", .b = {V(PR_GET_TSC), O(4)});
    TRY(prctl, .note = "GET_THP_DISABLE", .b = {V(PR_GET_THP_DISABLE), V(0), V(0), V(0), V(0)});
    TRY(prctl, .note = "GET_SPECULATION_CTRL", .b = {V(PR_GET_SPECULATION_CTRL), V(0), V(0), V(0), V(0)});
    TRY(prctl, .note = "GET_TID_ADDRESS", .b = {V(40), OH(8, "0+8")});
    TRY(prctl, .note = "CAP_AMBIENT", .b = {V(PR_CAP_AMBIENT), V(PR_CAP_AMBIENT_IS_SET), V(3), V(0), V(0)});
    TRY(arch_prctl, .note = "GET_FS", .b = {V(0x1003), OH(8, "0+8")});
    TRY(arch_prctl, .note = "GET_GS", .b = {V(0x1004), O(8)});
    TRY(arch_prctl, .note = "GET_CPUID", .b = {V(0x1011), V(0)});
}

CASE(mounts, "statmount listmount", know_self)
{
    struct { uint32_t size, spare; uint64_t id, parameter; } request = {24, 0, -1, 0}, odd = {8, 0, -1, 0};
    struct statx about = {0};
    RAW(statx, AT_FDCWD, "/", 0, 0x4000, &about, 0);
    struct { uint32_t size, spare; uint64_t id, parameter; } root = {24, 0, about.stx_mnt_id, 3};
    TRY(listmount, .b = {I(&request, 24), OH(800, "0+800"), V(100), V(0)}, .flags = HIDDEN);
    TRY(listmount, .note = "odd", .b = {I(&odd, 24), O(80), V(10), V(0)});
    TRY(statmount, .b = {I(&root, 24), OH(512, "8+504"), V(512), V(0)});
    TRY(statmount, .note = "short", .b = {I(&root, 24), O(8), V(8), V(0)});
}

CASE(landlock, "landlock_create_ruleset landlock_add_rule landlock_restrict_self", know_self)
{
    struct landlock_ruleset_attr attributes = {LANDLOCK_ACCESS_FS_MAKE_CHAR};
    TRY(landlock_create_ruleset, .note = "version", .b = {V(0), V(0), V(1)});
    TRY(landlock_create_ruleset, .b = {I(&attributes, 8), V(8), V(0)}, .flags = CLOSES);
    TRY(landlock_create_ruleset, .note = "large", .b = {I(&attributes, 8), V(5000), V(0)}, .flags = CLOSES);
    int rules = RAW(landlock_create_ruleset, &attributes, 8, 0, 0, 0, 0);
    int place = open("/", O_PATH);
    struct { uint64_t allowed; int fd; } __attribute__((packed)) below = {LANDLOCK_ACCESS_FS_MAKE_CHAR, place};
    TRY(landlock_add_rule, .b = {V(rules), V(1), I(&below, 12), V(0)});
    TRY(landlock_add_rule, .note = "kind", .b = {V(rules), V(77), I(&below, 12), V(0)});
    TRY(landlock_restrict_self, .note = "flags", .b = {V(rules), V(-1)});
    TRY(landlock_restrict_self, .note = "closed", .b = {V(99), V(0)});
    close(rules), close(place);
}

static int ends[2];

static void end_thread(void *unused)
{
    char byte;
    (void)unused;
    RAW(read, ends[0], &byte, 1, 0, 0, 0);
    raw(SYS_exit, 3, 0, 0, 0, 0, 0);
}

static void make_thread(void)
{
    know_self();
    need(pipe(ends) == 0, "pipe");
    start_thread(end_thread, NULL);
}

/* A thread without a C library: what it finds it leaves in memory. */
static struct { volatile int id, parent, child, ends; volatile long mask, local; } found;
static char room[16384] __attribute__((aligned(16)));
static long block[64] __attribute__((aligned(64)));

static void look(void)
{
    long local = 0, mask = 0;
    found.id = (int)RAW(gettid, 0, 0, 0, 0, 0, 0);
    RAW(rt_sigprocmask, 0, 0, &mask, 8, 0, 0);
    RAW(arch_prctl, 0x1003, &local, 0, 0, 0, 0);
    found.mask = mask;
    found.local = local;
}

/* The call of a new thread, which runs look() on its stack and ends. */
static long call_of_thread(long number, long a, long b, long c, long d, long e)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tpop %%rax\n\t"
                     "call *%%rax\n\tmov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

static void tell_thread(const char *call, const char *note, long id, int ends)
{
    if (ends)
        for (int at; (at = found.child) != 0;)
            RAW(futex, &found.child, FUTEX_WAIT, at, 0, 0, 0);
    tell("%s: %s: %s, parent %d, child %d, mask %lx, local %d\n", call, note,
         id < 0 ? strerror((int)-id) : found.id == id ? "itself" : "another", found.parent == id,
         found.child == id, found.mask, found.local == (long)block);
}

static void *prepare_thread(void)
{
    void **top = (void **)(room + sizeof room - 64);
    memset(&found, 0, sizeof found);
    found.child = -1;
    *top = (void *)look;
    return top;
}

CASE(threads_made, "clone clone3", know_self)
{
    long mask = 1L << (SIGUSR2 - 1), all = THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID
                                          | CLONE_CHILD_CLEARTID | CLONE_SETTLS;
    block[0] = (long)block;
    RAW(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0, 0);
    for (int round = 0; round < 3; round++) {
        void *stack = prepare_thread();
        long id = call_of_thread(SYS_clone, all, (long)stack, (long)&found.parent, (long)&found.child,
                                 (long)block);
        tell_thread("clone", "all", id, 1);
    }
    long arguments[11] = {all, 0, (long)&found.child, (long)&found.parent, 0, (long)room, 0, (long)block};
    for (int size = 64; size <= 88; size += 8) {
        char *stack = prepare_thread();
        arguments[6] = stack - room;
        tell_thread("clone3", "all", call_of_thread(SYS_clone3, (long)arguments, size, 0, 0, 0), 1);
    }
    RAW(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, 8, 0, 0);
}

/* What the kernel refuses, home's refuses. */
CASE(home_threads_refused, "", know_self)
{
    long arguments[11] = {THREAD, 0, 0, 0, SIGCHLD, 0, 0, 0};
    tell("clone: without memory: %ld\n", RAW(clone, CLONE_THREAD, 0, 0, 0, 0, 0));
    tell("clone: without handlers: %ld\n", RAW(clone, CLONE_THREAD | CLONE_VM, 0, 0, 0, 0, 0));
    tell("clone3: with a signal: %ld\n", RAW(clone3, arguments, 88, 0, 0, 0, 0));
    arguments[4] = 0;
    arguments[6] = 4096;
    tell("clone3: size without stack: %ld\n", RAW(clone3, arguments, 88, 0, 0, 0, 0));
    tell("clone3: short: %ld\n", RAW(clone3, arguments, 8, 0, 0, 0, 0));
    tell("clone3: long: %ld\n", RAW(clone3, arguments, 5000, 0, 0, 0, 0));
    tell("clone3: bad pointer: %ld\n", RAW(clone3, 8, 88, 0, 0, 0, 0));
}

/* How the process ends (exit_group) the driver looks at. */
CASE(ending, "exit exit_group", make_thread)
{
    need(write(ends[1], "x", 1) == 1, "write");
    await_thread();
    tell("exit: the thread has ended\n");
    tell("exit_group: comes after the last case\n");
}
