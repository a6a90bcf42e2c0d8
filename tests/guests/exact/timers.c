/* Exactness: every timer, set at home and away, and what its signals tell. */
#include "common.h"
#include <sys/timerfd.h>

#define SOON (SIGRTMIN + 3)
#define MILLION 1000000

static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI};
static const struct itimerspec off;

static struct itimerspec in(long milliseconds, long every)
{
    return (struct itimerspec){{every / 1000, every % 1000 * MILLION},
                               {milliseconds / 1000, milliseconds % 1000 * MILLION}};
}

static struct itimerval after(long milliseconds, long every)
{
    return (struct itimerval){{every / 1000, every % 1000 * 1000}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
}

static void tell_left(const char *what, int result, long seconds)
{
    printf("%s: %d %s, %s\n", what, result, result ? wrong() : "",
           seconds == 0 ? "off" : seconds > 900 && seconds <= 1000 ? "going" : "wrong");
}

CASE(interval, AWAY)
{
    catch(SIGALRM, 0), catch(SIGVTALRM, 0), catch(SIGPROF, 0);
    static const int kinds[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    int wanted = 0;
    for (int turn = 0; turn < 3; turn++) {
        meet();
        for (int i = 0; i < 3; i++) {
            struct itimerval timer = after(20, 10), none = after(0, 0), left;
            need(setitimer(kinds[i], &timer, NULL) == 0, "setitimer");
            wanted += 3;
            for (int64_t begun = now(); caught < wanted && now() - begun < 10000000;)
                ;
            await_caught(wanted);
            need(setitimer(kinds[i], &none, &left) == 0, "setitimer");
            printf("every %ld\n", (long)left.it_interval.tv_usec);
            wanted = caught;
            timer = after(999000, 0);
            setitimer(kinds[i], &timer, NULL);
            int result = getitimer(kinds[i], &left);
            tell_left("left", result, left.it_value.tv_sec);
            setitimer(kinds[i], &none, NULL);
        }
        unsigned before = alarm(1000);
        printf("alarms %u %d\n", before, alarm(0) > 990);
    }
}

/* CPU time goes by only where somebody computes. */
CASE(of_cpu_time, AWAY)
{
    catch(SIGVTALRM, 0), catch(SIGPROF, 0);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        struct itimerval timer = after(30, 0);
        setitimer(turn ? ITIMER_PROF : ITIMER_VIRTUAL, &timer, NULL);
        nap(100);
        printf("asleep: %d\n", caught - turn);
        for (int64_t begun = now(); caught == turn && now() - begun < 10000000;)
            ;
        tell_caught();
    }
}

/* Armed in one place, they go off in another. */
CASE(on_the_way, AWAY)
{
    timer_t posix;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SOON, .sigev_value.sival_int = 12};
    catch(SIGALRM, 0), catch(SOON, 0);
    need(timer_create(CLOCK_MONOTONIC, &event, &posix) == 0, "timer_create");
    int fd = timerfd_create(CLOCK_BOOTTIME, 0);
    for (int turn = 0; turn < 4; turn++) {
        struct itimerval timer = after(30, 0);
        struct itimerspec spec = in(40, 0), left;
        uint64_t times = 0;
        int done = caught;
        setitimer(ITIMER_REAL, &timer, NULL);
        timer_settime(posix, 0, &spec, NULL), timerfd_settime(fd, 0, &spec, NULL);
        meet();
        await_caught(done + 2);
        need(read(fd, &times, 8) == 8, "timerfd");
        timer_gettime(posix, &left);
        printf("went off %d, times %ld, left %ld\n", caught, (long)times, left.it_value.tv_nsec);
    }
    timer_delete(posix);
}

/* Those on CPU time go along with whoever uses it. */
CASE(on_cpu_time_on_the_way, AWAY)
{
    struct itimerval left, once = after(300, 0), often = after(200, 100);
    catch(SIGVTALRM, 0), catch(SIGPROF, 0);
    setitimer(ITIMER_VIRTUAL, &once, NULL), setitimer(ITIMER_PROF, &often, NULL);
    for (int turn = 0; turn < 4; turn++) {
        meet();
        getitimer(ITIMER_PROF, &left);
        printf("every %ld", (long)left.it_interval.tv_usec);
        getitimer(ITIMER_VIRTUAL, &left);
        printf(", once %ld, caught %d\n", (long)left.it_interval.tv_usec, caught);
        for (struct timespec used = {0, 0}, begun = {0, 0}; caught < (turn ? turn * 2 : 0);) {
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            begun = begun.tv_sec ? begun : used;
            need(used.tv_sec - begun.tv_sec < 20, "a signal");
        }
    }
    struct itimerval none = after(0, 0);
    setitimer(ITIMER_PROF, &none, NULL);
}

static pid_t worker_tid;
static volatile int worker_took, stop;

static void note_thread(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    worker_took += gettid() == worker_tid && info->si_value.sival_int == 21;
    __atomic_add_fetch(&caught, 1, __ATOMIC_SEQ_CST);
}

static void *worker(void *unused)
{
    worker_tid = gettid();
    while (!stop)
        nap(1);
    return unused;
}

CASE(to_a_thread, AWAY)
{
    pthread_t thread;
    struct sigaction action = {.sa_sigaction = note_thread, .sa_flags = SA_SIGINFO};
    sigaction(SOON, &action, NULL);
    pthread_create(&thread, NULL, worker, NULL);
    while (!worker_tid)
        nap(1);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SOON, .sigev_value.sival_int = 21};
    event._sigev_un._tid = worker_tid;
    timer_t timer;
    need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    for (int turn = 0; turn < 3; turn++) {
        struct itimerspec spec = in(5, 5), none = off;
        meet();
        if (turn == 1) {
            timer_delete(timer);
            need(timer_create(CLOCK_REALTIME, &event, &timer) == 0, "timer_create");
        }
        timer_settime(timer, 0, &spec, NULL);
        await_caught((turn + 1) * 10);
        timer_settime(timer, 0, &none, NULL);
        nap(20);
        printf("all by the thread: %d\n", worker_took == caught);
        worker_took = caught = (turn + 1) * 10;
    }
    stop = 1;
    pthread_join(thread, NULL);
}

CASE(on_each_clock, AWAY)
{
    catch(SOON, 0), catch(SIGALRM, 0);
    int wanted = 0;
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (int i = 0; i < 4; i++)
            for (int absolute = 0; absolute < 2; absolute++) {
                struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SOON};
                struct itimerspec spec = in(20, 0), left;
                struct timespec time;
                timer_t timer;
                event.sigev_value.sival_int = 100 + i * 10 + absolute;
                need(timer_create(clocks[i], absolute ? &event : NULL, &timer) == 0, "timer_create");
                if (absolute) {
                    clock_gettime(clocks[i], &time);
                    time.tv_nsec += 20 * MILLION;
                    spec.it_value = (struct timespec){time.tv_sec + time.tv_nsec / 1000000000, time.tv_nsec % 1000000000};
                }
                need(timer_settime(timer, absolute ? TIMER_ABSTIME : 0, &spec, NULL) == 0, "timer_settime");
                await_caught(++wanted);
                int result = timer_gettime(timer, &left);
                tell_left("after it", result, left.it_value.tv_sec);
                spec = in(1000000, 0);
                timer_settime(timer, 0, &spec, NULL);
                result = timer_gettime(timer, &left);
                tell_left("set again", result, left.it_value.tv_sec);
                timer_delete(timer);
            }
        struct sigevent silent = {.sigev_notify = SIGEV_NONE};
        struct itimerspec spec = in(5, 1000000), left;
        timer_t timer;
        need(timer_create(CLOCK_MONOTONIC, &silent, &timer) == 0, "timer_create");
        timer_settime(timer, 0, &spec, NULL);
        nap(20);
        int result = timer_gettime(timer, &left);
        tell_left("silent", result, left.it_value.tv_sec);
        timer_delete(timer);
    }
    /* Without a sigevent the value is the timer's own number. */
    printf("%d signals\n", caught);
}

/* A timer whose signal is blocked sends it once, and counts. */
CASE(overruns, AWAY)
{
    sigset_t set;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SOON, .sigev_value.sival_int = 3};
    catch(SOON, 0);
    sigemptyset(&set), sigaddset(&set, SOON);
    sigprocmask(SIG_BLOCK, &set, NULL);
    need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    for (int turn = 0; turn < 3; turn++) {
        struct itimerspec spec = in(5, 5), none = off;
        meet();
        timer_settime(timer, 0, &spec, NULL);
        nap(200);
        sigset_t nothing;
        sigemptyset(&nothing);
        sigsuspend(&nothing);
        timer_settime(timer, 0, &none, NULL);
        /* What has come since is for nobody. */
        signal(SOON, SIG_IGN);
        catch(SOON, 0);
        printf("turn %d\n", turn);
        tell_caught();
    }
}

/* Its function runs in threads that the library makes: that takes it home. */
static volatile int called;
static void call(union sigval value) { called += value.sival_int; }

CASE(by_a_function, ANYWHERE)
{
    timer_t timer;
    struct itimerspec spec = in(10, 10), none = off;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = call, .sigev_value.sival_int = 7};
    /* Ignored, but taken by `sigwait`: so it is in all programs that posix_spawn has started. */
    struct { long handler; unsigned long flags, restorer, mask; } ignored = {1, 0, 0, 0};
    syscall(SYS_rt_sigaction, 32, &ignored, NULL, 8);
    need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    for (int turn = 0; turn < 2; turn++) {
        meet();
        called = 0;
        timer_settime(timer, 0, &spec, NULL);
        for (int64_t begun = now(); called < 21 && now() - begun < 20000000;)
            nap(5);
        timer_settime(timer, 0, &none, NULL);
        nap(100);
        printf("called %d\n", called >= 21 && called % 7 == 0);
    }
    timer_delete(timer);
}

static void one_descriptor(clockid_t clock, int absolute, int fd)
{
    struct itimerspec spec = in(100, absolute ? 0 : 10), left;
    struct pollfd one = {fd, POLLIN, 0};
    uint64_t times = 0;
    if (absolute) {
        clock_gettime(clock, &spec.it_value);
        spec.it_value.tv_nsec += 100 * MILLION;
        spec.it_value.tv_sec += spec.it_value.tv_nsec / 1000000000, spec.it_value.tv_nsec %= 1000000000;
    }
    need(timerfd_settime(fd, absolute ? TFD_TIMER_ABSTIME : 0, &spec, NULL) == 0, "timerfd_settime");
    ssize_t early = read(fd, &times, 8);
    const char *why = wrong();
    int ready = poll(&one, 1, 5000);
    ssize_t got = read(fd, &times, 8);
    timerfd_gettime(fd, &left);
    printf("early %zd %s, ready %d, got %zd, times %d, every %ld, left %d\n", early, why, ready, got,
           absolute ? (int)times : times >= 1, left.it_interval.tv_nsec, left.it_value.tv_nsec != 0);
    spec = off;
    timerfd_settime(fd, 0, &spec, &left);
}

CASE(descriptors, AWAY)
{
    static const clockid_t those[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    int before[3];
    for (int i = 0; i < 3; i++)
        before[i] = timerfd_create(those[i], TFD_NONBLOCK);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (int i = 0; i < 3; i++)
            for (int absolute = 0; absolute < 2; absolute++) {
                one_descriptor(those[i], absolute, before[i]);
                int fd = timerfd_create(those[i], TFD_NONBLOCK);
                one_descriptor(those[i], absolute, fd);
                close(fd);
            }
    }
}
