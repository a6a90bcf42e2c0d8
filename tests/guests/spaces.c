/* Enters a namespace of its own, and tells what it sees there: `spaces KIND [there [group]]`. For each line on standard input
 * until "end" a line: "enter", "leave" (back by setns), "tell". The numbers that it says are the same whenever
 * it runs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
enum { MONOTONIC_AHEAD = 500000, BOOTTIME_AHEAD = 900000, KEY = 0x7768696d };

static char answer[4096];

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void add(const char *format, ...)
{
    size_t length = strlen(answer);
    va_list values;
    va_start(values, format);
    vsnprintf(answer + length, sizeof answer - length, format, values);
    va_end(values);
}

static void put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    need(file >= 0, path);
    need(write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(file);
}

/* A file's text, with its white space as single blanks. */
static void add_file(const char *path)
{
    char text[512] = "";
    int file = open(path, O_RDONLY);
    if (file < 0) {
        add(" %s: %d;", path, errno);
        return;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    add(" %s:", path);
    text[length > 0 ? length : 0] = 0;
    for (char *word = strtok(text, " \t\n"); word; word = strtok(NULL, " \t\n"))
        add(" %s", word);
    add(";");
}

static volatile sig_atomic_t sender_uid = -1;

static void comes(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    sender_uid = (int)info->si_uid;
}

static void enter_user(void)
{
    char map[64];
    int uid = (int)getuid(), gid = (int)getgid();
    need(unshare(CLONE_NEWUSER) == 0, "unshare");
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "5 %d 1", uid);
    put("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "6 %d 1", gid);
    put("/proc/self/gid_map", map);
    need(setresuid(5, 5, 5) == 0, "setresuid");
}

static void tell_user(void)
{
    unsigned real, effective, saved;
    struct stat file, root;
    struct sigaction action = {.sa_sigaction = comes, .sa_flags = SA_SIGINFO};
    int pair[2];
    struct ucred peer;
    socklen_t length = sizeof peer;
    getresuid(&real, &effective, &saved);
    add(" uid %u %u %u", real, effective, saved);
    getresgid(&real, &effective, &saved);
    add(" gid %u %u %u", real, effective, saved);
    put("of-mine", "x");
    need(stat("of-mine", &file) == 0 && stat("/", &root) == 0, "stat");
    add(" files %u %u, %u", file.st_uid, file.st_gid, root.st_uid);
    sigaction(SIGUSR1, &action, NULL);
    sender_uid = -1;
    kill(getpid(), SIGUSR1);
    add(" kill %d", (int)sender_uid);
    sender_uid = -1;
    raise(SIGUSR1);
    add(" raise %d", (int)sender_uid);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    need(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0, "SO_PEERCRED");
    add(" peer %u %u;", peer.uid, peer.gid);
    close(pair[0]);
    close(pair[1]);
    add_file("/proc/self/uid_map");
    add_file("/proc/self/gid_map");
    add(" setuid(0) %d", setuid(0) ? errno : 0);
}

static void enter_mount(void)
{
    need(unshare(CLONE_NEWNS) == 0, "unshare");
    need(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
    mkdir("own", 0755);
    need(mount("own", "own", "tmpfs", 0, "size=1m") == 0, "mount");
    put("own/there", "mine alone");
}

static void tell_mount(void)
{
    struct statfs of;
    struct stat there;
    static int number;
    char path[64];
    need(statfs("own", &of) == 0, "statfs");
    add(" type %lx;", (long)of.f_type);
    add_file("own/there");
    snprintf(path, sizeof path, "own/%d", number++);
    put(path, path);
    add_file(path);
    add(" stat %d;", stat("own/there", &there) ? errno : 0);
}

static void enter_net(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    need(unshare(CLONE_NEWNET) == 0, "unshare");
    int end = socket(AF_INET, SOCK_DGRAM, 0);
    need(ioctl(end, SIOCGIFFLAGS, &request) == 0, "flags");
    request.ifr_flags |= IFF_UP;
    need(ioctl(end, SIOCSIFFLAGS, &request) == 0, "up");
    close(end);
}

static void tell_net(void)
{
    struct if_nameindex *names = if_nameindex();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80)};
    char text[8] = "";
    int count = 0, yes = 1;
    for (struct if_nameindex *one = names; one && one->if_name; one++)
        count++;
    if_freenameindex(names);
    /* Whoever has a network of its own finds only its own device, and a free port. */
    add(" devices %s", count == 1 ? "one" : "some");
    if (count != 1)
        return;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), end = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    need(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "listen");
    need(connect(end, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    int other = accept(listener, NULL, NULL);
    need(other >= 0 && write(end, "hello", 5) == 5 && read(other, text, 5) == 5, "talk");
    add(" heard %s", text);
    close(listener), close(end), close(other);
}

static void enter_uts(void)
{
    need(unshare(CLONE_NEWUTS) == 0, "unshare");
    need(sethostname("own", 3) == 0 && setdomainname("of-own", 6) == 0, "name");
}

static void tell_uts(void)
{
    struct utsname of;
    char host[65];
    static int number;
    need(uname(&of) == 0 && gethostname(host, sizeof host) == 0, "uname");
    int own = strncmp(of.nodename, "own", 3) == 0;
    add(" %s %s %s;", own ? of.nodename : "another", own ? host : "another", own ? of.domainname : "another");
    if (own)
        add_file("/proc/sys/kernel/hostname");
    snprintf(host, sizeof host, "own-%d", ++number);
    if (own)
        need(sethostname(host, strlen(host)) == 0, "sethostname");
}

static void enter_ipc(void)
{
    need(unshare(CLONE_NEWIPC) == 0, "unshare");
    struct { long kind; char text[8]; } note = {7, "note"};
    int queue = msgget(KEY, IPC_CREAT | IPC_EXCL | 0600), set = semget(KEY, 1, IPC_CREAT | IPC_EXCL | 0600);
    need(queue >= 0 && set >= 0, "queue, set");
    need(msgsnd(queue, &note, sizeof note.text, 0) == 0, "msgsnd");
    need(semctl(set, 0, SETVAL, 3) == 0, "SETVAL");
    mqd_t named = mq_open("/whim-own", O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
    need(named >= 0 && mq_send(named, "posix", 6, 1) == 0, "mq_send");
    mq_close(named);
}

static void tell_ipc(void)
{
    struct { long kind; char text[8]; } note = {0, ""};
    struct sembuf less = {0, -1, 0}, more = {0, 1, 0};
    char text[8192] = "";
    int queue = msgget(KEY, 0), set = semget(KEY, 1, 0);
    if (queue < 0 || set < 0) {
        add(" none: %d", errno);
        return;
    }
    need(msgrcv(queue, &note, sizeof note.text, 7, 0) >= 0, "msgrcv");
    need(msgsnd(queue, &note, sizeof note.text, 0) == 0, "msgsnd");
    need(semop(set, &less, 1) == 0, "semop");
    add(" queue %d set %d: %s, %d", queue, set, note.text, semctl(set, 0, GETVAL));
    need(semop(set, &more, 1) == 0, "semop");
    mqd_t named = mq_open("/whim-own", O_RDWR);
    need(named >= 0, "mq_open");
    need(mq_receive(named, text, sizeof text, NULL) > 0 && mq_send(named, text, strlen(text) + 1, 1) == 0, "mq");
    add(", %s", text);
    mq_close(named);
}

static void enter_cgroup(void)
{
    need(unshare(CLONE_NEWCGROUP) == 0, "unshare");
}

static void tell_cgroup(void)
{
    char path[64];
    struct stat own;
    /* All that it is in are the roots that it sees. */
    FILE *list = fopen("/proc/self/cgroup", "r");
    char line[512];
    int roots = 0, others = 0;
    while (fgets(line, sizeof line, list))
        strcmp(strrchr(line, ':'), ":/\n") == 0 ? roots++ : others++;
    fclose(list);
    add(" roots %s, others %s", roots ? "some" : "none", others ? "some" : "none");
    snprintf(path, sizeof path, "/proc/self/ns/cgroup");
    add(", %d", stat(path, &own) ? errno : 0);
}

/* The clocks are those of children; the parent only waits. */
static void enter_time(void)
{
    char text[128];
    int status;
    need(unshare(CLONE_NEWTIME) == 0, "unshare");
    snprintf(text, sizeof text, "monotonic %d 0\nboottime %d 0\n", MONOTONIC_AHEAD, BOOTTIME_AHEAD);
    put("/proc/self/timens_offsets", text);
    int child = fork();
    need(child >= 0, "fork");
    if (child > 0) {
        waitpid(child, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
    }
}

static long long since(int which, int raw)
{
    struct timespec time;
    if (raw ? syscall(SYS_clock_gettime, which, &time) : clock_gettime(which, &time))
        return -1;
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void tell_time(void)
{
    static long long last;
    long long raw = since(CLOCK_MONOTONIC, 1), quick = since(CLOCK_MONOTONIC, 0);
    long long boot = since(CLOCK_BOOTTIME, 1), boot_quick = since(CLOCK_BOOTTIME, 0);
    struct timespec until;
    /* That the clocks are far apart shows whose they are; that machines have slept is not of interest. */
    long long apart = (BOOTTIME_AHEAD - MONOTONIC_AHEAD) * 1000LL;
    add(" apart %d %d", boot - raw >= apart, boot_quick - quick >= apart);
    add(" alike %d %d", quick - raw >= 0 && quick - raw < 5000, boot_quick - boot >= 0 && boot_quick - boot < 5000);
    add(" forward %d ahead %d", quick >= last, raw > MONOTONIC_AHEAD * 1000LL);
    add(" coarse %d", since(CLOCK_MONOTONIC_COARSE, 0) + 1000 > raw);
    last = since(CLOCK_MONOTONIC, 0);
    /* 20 ms from now by its own clock. */
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 20000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    add(" sleep %d", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
    long long slept = since(CLOCK_MONOTONIC, 0) - last;
    add(" %d", slept >= 20 && slept < 20000);
}

/* Its children are in the namespace; the first one is its first process, and its end is that of the others. */
static void enter_pid(void)
{
    need(unshare(CLONE_NEWPID) == 0, "unshare");
}

static void tell_pid(void)
{
    int status = -1;
    int child = fork();
    if (child == 0)
        _exit(getpid() == 1 ? 1 : 2);
    if (child > 0) {
        waitpid(child, &status, 0);
        add(" first %d", WEXITSTATUS(status));
    } else
        add(" none %d", errno);
}

static const struct kind {
    const char *name, *file;
    void (*enter)(void), (*tell)(void);
} kinds[] = {
    {"user", NULL, enter_user, tell_user},
    {"mount", "mnt", enter_mount, tell_mount},
    {"net", "net", enter_net, tell_net},
    {"uts", "uts", enter_uts, tell_uts},
    {"ipc", "ipc", enter_ipc, tell_ipc},
    {"cgroup", "cgroup", enter_cgroup, tell_cgroup},
    {"time", NULL, enter_time, tell_time},
    {"pid", NULL, enter_pid, tell_pid},
};

int main(int count, char **words)
{
    const struct kind *kind = NULL;
    char line[64], path[64];
    int before = -1;
    for (size_t one = 0; one < sizeof kinds / sizeof *kinds; one++)
        if (count > 1 && strcmp(words[1], kinds[one].name) == 0)
            kind = &kinds[one];
    need(kind != NULL, "which kind");
    /* The time namespace is that of a child, which is the program then. */
    int begins_there = count > 2 || strcmp(kind->name, "time") == 0;
    if (begins_there)
        kind->enter();
    /* Who is in a group of his own, below a shell, can be stopped. */
    if (count > 3)
        setpgid(0, 0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3) != 0) {
        strcpy(answer, kind->name);
        if (strncmp(line, "enter", 5) == 0) {
            if (kind->file) {
                snprintf(path, sizeof path, "/proc/self/ns/%s", kind->file);
                before = open(path, O_RDONLY | O_CLOEXEC);
                need(before >= 0, path);
            }
            kind->enter();
            add(" entered");
        } else if (strncmp(line, "leave", 5) == 0) {
            need(setns(before, 0) == 0, "setns");
            close(before);
            add(" left");
        } else
            kind->tell();
        puts(answer);
        fflush(stdout);
    }
    return 0;
}
