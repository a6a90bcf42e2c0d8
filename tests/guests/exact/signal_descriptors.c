/* Exactness: signals that are read from a descriptor (signalfd), and those of them that it does not get. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/signalfd.h>

#define LATE (SIGRTMIN + 2)

static sigset_t set_of(const int *signals)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *signals; signals++)
        sigaddset(&set, *signals);
    return set;
}

static void mask(int how, const int *signals)
{
    sigset_t set = set_of(signals);
    need(pthread_sigmask(how, &set, NULL) == 0, "pthread_sigmask");
}

/* A descriptor of all of them, which this thread blocks. */
static int blocked(int flags)
{
    int all[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPIPE, SIGTERM, SIGRTMIN, LATE, 0};
    sigset_t set = set_of(all);
    mask(SIG_BLOCK, all);
    int fd = signalfd(-1, &set, flags);
    need(fd >= 0, "signalfd");
    return fd;
}

static void tell(const struct signalfd_siginfo *info)
{
    printf("  %d errno %d code %d from %s uid %d fd %d timer %d band %u overrun %u trap %u status %d int %d "
           "ptr %llx addr %llx\n",
           info->ssi_signo, info->ssi_errno, info->ssi_code, who(info->ssi_pid), info->ssi_uid, info->ssi_fd,
           info->ssi_tid, info->ssi_band, info->ssi_overrun, info->ssi_trapno, info->ssi_status, info->ssi_int,
           (unsigned long long)info->ssi_ptr, (unsigned long long)info->ssi_addr);
}

/* Reads up to so many; says how many there are. */
static int read_some(int fd, int count)
{
    struct signalfd_siginfo infos[16];
    ssize_t got = read(fd, infos, count * sizeof infos[0]);
    if (got < 0) {
        printf("  none: %s\n", wrong());
        return 0;
    }
    for (int i = 0; i < got / (ssize_t)sizeof infos[0]; i++)
        tell(&infos[i]);
    return got / sizeof infos[0];
}

static void read_all(const char *when, int fd)
{
    printf("%s:\n", when);
    while (read_some(fd, 5) > 0)
        ;
}

static int readable(int fd, int milliseconds)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, milliseconds);
}

/* Signals that wait as it leaves, and as it comes home. */
CASE(pending, AWAY)
{
    int fd = blocked(SFD_NONBLOCK), away[2];
    make_friend();
    for (int turn = 0; turn < 3; turn++) {
        ask_friend(KILL, SIGUSR1, 0, 0);
        for (int i = 0; i < 3; i++)
            ask_friend(QUEUE, LATE, 10 * turn + i, 0);
        ask_friend(TGQUEUE, SIGUSR2, 7 + turn, getpid());
        meet();
        printf("readable %d\n", readable(fd, 0));
        read_some(fd, 2);
        ask_friend(QUEUE, LATE, 10 * turn + 5, 0);
        ask_friend(TGQUEUE, LATE, 10 * turn + 6, getpid());
    }
    read_all("in the end", fd);
    need(pipe(away) == 0, "pipe");
    meet();
    /* The action of both is the default one, which is set again on the way home. */
    ask_friend_later(END, 0, 3, 0, 1);
    need(readable(fd, 5000) == 1, "the friend's end");
    close(away[0]);
    printf("write %zd %s\n", write(away[1], "x", 1), wrong());
    meet();
    read_all("of a child and a pipe", fd);
    waitpid(friend_pid, NULL, 0);
}

static void by_itself(int fd)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = LATE, .sigev_value.sival_int = 31};
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    struct itimerval alarm = {.it_value.tv_usec = 2000};
    raise(SIGUSR1);
    kill(getpid(), SIGUSR2);
    sigqueue(getpid(), LATE, (union sigval){.sival_int = 5});
    pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = 6});
    kill(getpid(), SIGTERM);
    read_all("sent to itself", fd);
    setitimer(ITIMER_REAL, &alarm, NULL);
    printf("the alarm comes: %d\n", readable(fd, 5000));
    read_all("of an alarm", fd);
    need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    timer_settime(timer, 0, &soon, NULL);
    printf("the timer ends: %d\n", readable(fd, 5000));
    read_all("of a timer", fd);
    soon.it_interval = soon.it_value;
    timer_settime(timer, 0, &soon, NULL);
    nap(20);
    struct signalfd_siginfo info = {0};
    ssize_t got = read(fd, &info, sizeof info);
    printf("again and again: %zd, %d counted %d\n", got, info.ssi_signo, info.ssi_overrun > 5);
    timer_delete(timer);
    read_all("of no timer", fd);
}

CASE(from_itself, AWAY)
{
    int fd = blocked(SFD_NONBLOCK);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        by_itself(fd);
    }
}

/* In each way in which one waits for a descriptor. */
CASE(waits, AWAY)
{
    int fd = blocked(0), both = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 4};
    need(epoll_ctl(both, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        ask_friend_later(QUEUE, LATE, 1, 0, 20);
        read_some(fd, 3);
        ask_friend_later(KILL, SIGUSR1, 0, 0, 20);
        printf("polled %d\n", readable(fd, 5000));
        read_some(fd, 3);
        ask_friend_later(TGQUEUE, SIGUSR2, 2, getpid(), 20);
        printf("epoll %d", epoll_wait(both, &event, 1, 5000));
        printf(" %u\n", event.data.u32);
        read_some(fd, 3);
        printf("epoll %d\n", epoll_wait(both, &event, 1, 0));
    }
}

static int shared, made, stage;

static void reach(int number)
{
    __atomic_store_n(&stage, number, __ATOMIC_SEQ_CST);
}

static void await_stage(int number)
{
    while (__atomic_load_n(&stage, __ATOMIC_SEQ_CST) < number)
        nap(1);
}

/* It lets SIGUSR1 through, and reads others for itself. */
static void *other(void *of)
{
    int one[] = {SIGUSR1, 0};
    (void)of;
    mask(SIG_UNBLOCK, one);
    made = gettid();
    for (int turn = 0; turn < 2; turn++) {
        reach(3 * turn + 1);
        await_stage(3 * turn + 2);
        read_all("the other", shared);
        reach(3 * turn + 3);
    }
    return NULL;
}

CASE(threads, AWAY)
{
    pthread_t thread;
    shared = blocked(SFD_NONBLOCK);
    catch(SIGUSR1, 0);
    make_friend();
    pthread_create(&thread, NULL, other, NULL);
    await_stage(1);
    for (int turn = 0; turn < 2; turn++) {
        await_stage(3 * turn + 1);
        ask_friend(TGQUEUE, LATE, 1, made);
        meet();
        ask_friend(TGQUEUE, LATE, 2, made);
        ask_friend(KILL, SIGUSR1, 0, 0);
        await_caught(2 * turn + 1);
        pthread_kill(pthread_self(), SIGUSR1);
        pthread_sigqueue(thread, SIGRTMIN, (union sigval){.sival_int = 3});
        kill(getpid(), SIGUSR1);
        await_caught(2 * turn + 2);
        read_all("the first", shared);
        reach(3 * turn + 2);
        await_stage(3 * turn + 3);
        ask_friend(QUEUE, LATE, 4, 0);
        read_all("for both", shared);
    }
    pthread_join(thread, NULL);
    tell_caught();
}

static void *reads_once(void *of)
{
    (void)of;
    made = gettid();
    reach(1);
    await_stage(2);
    read_all("the new one", shared);
    return NULL;
}

/* A thread that is made away blocks what its maker blocks; other signals are blocked and let through there. */
CASE(made_away, AWAY)
{
    int others[] = {SIGURG, SIGHUP, 0};
    shared = blocked(SFD_NONBLOCK);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        reach(0);
        meet();
        mask(SIG_BLOCK, others);
        pthread_create(&thread, NULL, reads_once, NULL);
        await_stage(1);
        ask_friend(TGQUEUE, LATE, 1, made);
        ask_friend(TGQUEUE, LATE, 2, getpid());
        reach(2);
        pthread_join(thread, NULL);
        mask(SIG_UNBLOCK, others);
        read_all("its maker", shared);
    }
}

/* A signal that nobody blocks is for its handler; one whose action is to ignore it is gone. */
CASE(not_read, AWAY)
{
    int none[] = {SIGHUP, 0};
    sigset_t set = set_of(none);
    int open = signalfd(-1, &set, SFD_NONBLOCK), fd = blocked(SFD_NONBLOCK);
    catch(SIGHUP, 0);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        ask_friend(KILL, SIGHUP, 0, 0);
        await_caught(2 * turn + 1);
        raise(SIGHUP);
        printf("readable %d, caught %d\n", readable(open, 0), caught);
        ask_friend(KILL, SIGTERM, 0, 0);
        ask_friend(QUEUE, LATE, 1, 0);
        signal(SIGTERM, SIG_IGN);
        read_all("not ignored", fd);
        ask_friend(KILL, SIGTERM, 0, 0);
        read_all("blocked although ignored", fd);
        signal(SIGTERM, SIG_DFL);
    }
    tell_caught();
}

/* What takes such signals otherwise is done at home. */
CASE(without_the_descriptor, HOME)
{
    int fd = blocked(SFD_NONBLOCK), two[] = {SIGUSR1, LATE, 0};
    sigset_t set = set_of(two), empty;
    siginfo_t info;
    sigemptyset(&empty);
    catch(SIGUSR1, 0), catch(LATE, 0);
    make_friend();
    meet();
    ask_friend(KILL, SIGUSR1, 0, 0);
    printf("waited %d", sigwaitinfo(&set, &info));
    printf(" code %d\n", info.si_code);
    meet();
    meet();
    ask_friend(QUEUE, LATE, 5, 0);
    sigpending(&set);
    printf("pending %d %d\n", sigismember(&set, LATE), sigismember(&set, SIGUSR1));
    meet();
    meet();
    mask(SIG_UNBLOCK, two);
    printf("caught %d\n", caught);
    mask(SIG_BLOCK, two);
    read_all("still", fd);
    meet();
    meet();
    ask_friend(QUEUE, LATE, 6, 0);
    ask_friend(KILL, SIGUSR2, 0, 0);
    struct timespec none = {0};
    struct pollfd one = {.fd = fd, .events = POLLIN};
    sigaddset(&empty, SIGUSR2);
    int ready = ppoll(&one, 1, &none, &empty);
    printf("ppoll %d %s, caught %d\n", ready, wrong(), caught);
    read_all("and others", fd);
    meet();
    meet();
    ask_friend(QUEUE, LATE, 7, 0);
    printf("suspended %d, caught %d\n", sigsuspend(&empty), caught);
    tell_caught();
}
