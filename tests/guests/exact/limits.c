/* Exactness: every limit: what it says, and that it holds. */
#include "common.h"
#include <sys/eventfd.h>

static const char *const names[] = {"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK",
                                    "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME"};
enum { PAGE = 4096, MEGA = 1 << 20 };

static void tell(int resource)
{
    struct rlimit old, other;
    need(getrlimit(resource, &old) == 0 && prlimit(0, resource, NULL, &other) == 0, "getrlimit");
    printf("%s %ld %ld %d\n", names[resource], (long)old.rlim_cur, (long)old.rlim_max,
           memcmp(&old, &other, sizeof old) == 0);
}

CASE(asked_for, AWAY)
{
    for (int turn = 0; turn < 2; turn++) {
        meet();
        for (int resource = 0; resource < 16; resource++)
            tell(resource);
        struct rlimit none;
        int result = getrlimit(77, &none);
        printf("%d %s\n", result, wrong());
    }
}

CASE(set, ANYWHERE)
{
    static const long values[] = {500, 1 << 30, 1l << 35, 4 << 20, 77 << 10, 1 << 30, 900, 300, 8 << 20,
                                  1l << 36, 40, 50, 4000, 5, 6, 100000};
    for (int turn = 0; turn < 2; turn++)
        for (int resource = 0; resource < 16; resource++) {
            struct rlimit limit = {values[resource], RLIM_INFINITY}, odd;
            if (resource % 4 == 0)
                meet();
            getrlimit(resource, &odd);
            limit.rlim_max = odd.rlim_max;
            if (limit.rlim_cur > limit.rlim_max)
                limit.rlim_cur = limit.rlim_max;
            limit.rlim_cur -= turn;
            int result = resource % 2 ? setrlimit(resource, &limit) : prlimit(0, resource, &limit, NULL);
            printf("set %d: ", result);
            tell(resource);
            odd = (struct rlimit){10, 5};
            result = setrlimit(resource, &odd);
            printf("odd: %d %s\n", result, wrong());
        }
}

CASE(of_files, AWAY)
{
    char text[3 * PAGE] = "";
    int file = open("limited", O_RDWR | O_CREAT, 0600);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){5000, RLIM_INFINITY});
    catch(SIGXFSZ, 0);
    for (int turn = 0; turn < 2; turn++) {
        meet();
        ssize_t result = pwrite(file, text, sizeof text, 0);
        printf("wrote %zd\n", result);
        result = pwrite(file, text, 10, 4995);
        printf("wrote %zd\n", result);
        result = pwrite(file, text, 10, 5000);
        printf("wrote %zd %s\n", result, wrong());
        result = ftruncate(file, 5001);
        printf("made longer %zd %s\n", result, wrong());
        tell_caught();
    }
    signal(SIGXFSZ, SIG_IGN);
    ssize_t result = pwrite(file, text, 10, 6000);
    printf("ignored: %zd %s\n", result, wrong());
}

CASE(of_descriptors, AWAY)
{
    struct pollfd many[40] = {{0}};
    int ends[2];
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){20, 4096});
    for (int turn = 0; turn < 2; turn++) {
        meet();
        int fd, last = -1;
        while ((fd = open("/dev/null", O_RDONLY)) >= 0)
            last = fd;
        printf("the last %d, %s", last, wrong());
        int result = pipe(ends);
        printf(", pipe %d %s", result, wrong());
        result = dup2(0, 20);
        printf(", dup2 %d %s", result, wrong());
        result = poll(many, 40, 0);
        printf(", poll %d %s", result, wrong());
        result = eventfd(0, 0);
        printf(", eventfd %d %s\n", result, wrong());
        for (fd = 3; fd <= last; fd++)
            close(fd);
    }
}

static long used(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    need(fscanf(statm, "%ld", &pages) == 1, "statm");
    fclose(statm);
    return pages * PAGE;
}

static int fits(size_t size)
{
    char *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        return 0;
    memset(place, 'm', size / 64);
    return munmap(place, size) == 0;
}

static void bounded(int resource)
{
    setrlimit(resource, &(struct rlimit){used() + 64 * MEGA, RLIM_INFINITY});
    for (int turn = 0; turn < 3; turn++) {
        meet();
        printf("a little: %d,", fits(16 * MEGA));
        printf(" too much: %d %s,", fits(200 * MEGA), wrong());
        char *top = sbrk(0);
        printf(" break: %d", sbrk(200 * MEGA) == (void *)-1);
        printf(" %d %s,", sbrk(0) == top, wrong());
        char *some = mmap(NULL, MEGA, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *more = mremap(some, MEGA, 200 * MEGA, MREMAP_MAYMOVE);
        printf(" longer: %d %s\n", more != MAP_FAILED, wrong());
        munmap(more == MAP_FAILED ? some : more, more == MAP_FAILED ? MEGA : 200 * MEGA);
    }
}

CASE(of_the_address_space, AWAY) { bounded(RLIMIT_AS); }
CASE(of_data, AWAY) { bounded(RLIMIT_DATA); }

CASE(of_a_core, ANYWHERE)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    meet();
    raise(SIGQUIT);
}
