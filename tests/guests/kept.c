/* Sets what the kernel keeps for a process, its threads and its mappings, and tells it: for each line on
 * standard input, "set N" or "tell" until "end", a line of what the kernel says of all of it, in two
 * threads; at "map" the flags of its mappings.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MERGE_SET = 67, MERGE_GET = 68, FUTEX_HASH = 78, SLOTS_GET = 2 };

/* 6 GiB */
#define LOW 0x180000000UL

/* Barriers for which a process registers, and which then work. */
static const int registers[] = {1 << 2, 1 << 4, 1 << 6, 1 << 8};
static const int barriers[] = {1 << 1, 1 << 3, 1 << 5, 1 << 7};

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static int option(int number, long argument, long more)
{
    return prctl(number, argument, more, 0L, 0L);
}

static int barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* Of the calling thread; `which` differs from set to set and from thread to thread. */
static void set_thread(int which)
{
    need(option(PR_SET_TIMERSLACK, 100001 + which, 0) == 0, "PR_SET_TIMERSLACK");
    need(option(PR_MCE_KILL, PR_MCE_KILL_SET, which % 3) == 0, "PR_MCE_KILL");
    need(option(PR_SET_PDEATHSIG, SIGUSR1 + which % 2, 0) == 0, "PR_SET_PDEATHSIG");
    char name[16];
    snprintf(name, sizeof name, "kept-%d", which);
    need(option(PR_SET_NAME, (long)name, 0) == 0, "PR_SET_NAME");
}

static void set_process(int which)
{
    need(option(PR_SET_THP_DISABLE, which % 2, 0) == 0, "PR_SET_THP_DISABLE");
    /* Not every kernel merges pages; for this a program comes home. */
    if (which < 3)
        option(MERGE_SET, 1, 0);
    /* Of the ways to be registered each set adds one, the last first: of the last two the kernel says that they are the
       plain one, too. */
    for (int way = 0; way < which && way < 4; way++)
        need(barrier(registers[3 - way]), "membarrier");
}

static int tell_thread(char *text, size_t size)
{
    int death = 0;
    char name[16] = "";
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_NAME, name);
    return snprintf(text, size, " slack=%d errors=%d death=%d name=%s", option(PR_GET_TIMERSLACK, 0, 0),
                    option(PR_MCE_KILL_GET, 0, 0), death, name);
}

static int tell_process(char *text, size_t size)
{
    int length = snprintf(text, size, "thp=%d merge=%d slots=%d barriers=",
                          option(PR_GET_THP_DISABLE, 0, 0), option(MERGE_GET, 0, 0),
                          option(FUTEX_HASH, SLOTS_GET, 0));
    for (int way = 0; way < 4; way++)
        length += snprintf(text + length, size - length, "%d", barrier(barriers[way]));
    return length;
}

enum { MAPS = 6, SIZE = 16 * 4096, APART = 4 << 20, DROPPABLE = 8 };

static char *maps[MAPS];

/* Mappings with a property each; not every kernel has every one. They lie far from each other and from what the
 * loader mapped: a kernel may make one mapping of two neighbours that have the same properties. */
static void map_all(void)
{
    static const int advice[MAPS] = {MADV_MERGEABLE, MADV_WIPEONFORK, MADV_DONTFORK, MADV_HUGEPAGE};
    char *room = mmap(NULL, (MAPS + 1) * APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(room != MAP_FAILED && munmap(room, (MAPS + 1) * APART) == 0, "mmap");
    for (int kind = 0; kind < MAPS; kind++) {
        int how = MAP_ANONYMOUS | (kind == MAPS - 1 ? DROPPABLE : MAP_PRIVATE);
        how |= kind == MAPS - 2 ? MAP_GROWSDOWN : 0;
        /* At low addresses all calls that begin there are looked at, and those with no address. */
        char *place = kind == MAPS - 2 ? (char *)LOW : room + (kind + 1) * APART;
        maps[kind] = mmap(place, SIZE, PROT_READ | PROT_WRITE, how, -1, 0);
        if (maps[kind] == MAP_FAILED)
            continue;
        if (kind < MAPS - 2)
            madvise(maps[kind], SIZE, advice[kind]);
        maps[kind][0] = 1;
    }
}

/* The kernel's word on each of them. */
static void tell_maps(void)
{
    char line[1024];
    unsigned long start = 0, from, to;
    FILE *file = fopen("/proc/self/smaps", "r");
    need(file != NULL, "smaps");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            start = from;
        for (int kind = 0; kind < MAPS; kind++)
            if (start == (unsigned long)maps[kind] && strncmp(line, "VmFlags:", 8) == 0)
                printf("%d:%.*s", kind, (int)strlen(line + 8) - 1, line + 8);
    }
    fclose(file);
    printf("\n");
}

static pthread_barrier_t begin, end;
static char told[256];
/* Which set the other thread takes next; 0: it tells. */
static int task;

static void *other(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&begin);
        if (task > 0)
            set_thread(task + 1);
        else
            tell_thread(told, sizeof told);
        pthread_barrier_wait(&end);
    }
    return unused;
}

static void let_other(int number)
{
    task = number;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
}

int main(void)
{
    char line[64], text[512];
    pthread_t thread;
    pthread_barrier_init(&begin, NULL, 2);
    pthread_barrier_init(&end, NULL, 2);
    need(pthread_create(&thread, NULL, other, NULL) == 0, "pthread_create");
    map_all();
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        int which = 0;
        if (strcmp(line, "end\n") == 0)
            break;
        if (strcmp(line, "map\n") == 0) {
            tell_maps();
            continue;
        }
        if (sscanf(line, "set %d", &which) == 1) {
            set_process(which);
            set_thread(which);
            let_other(which);
        }
        let_other(0);
        int length = tell_process(text, sizeof text);
        tell_thread(text + length, sizeof text - length);
        printf("%s;%s\n", text, told);
    }
    return 0;
}
