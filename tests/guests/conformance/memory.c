/* Conformance: memory, futexes, and calls that no kernel implements. */
#include "common.h"
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/mempolicy.h>

enum { PAGE = 4096, PAGES = 8 };

static unsigned char *room;
static int file = -1;

/* A range of pages at an address of its own: page 3 is only readable, page 5 has no rights. */
static void map_room(void)
{
    room = mmap((void *)0x500000000000, PAGES * PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    need(room != MAP_FAILED, "mmap");
    for (int i = 0; i < PAGES; i++)
        memset(room + i * PAGE, 'A' + i, PAGE);
    mprotect(room + 3 * PAGE, PAGE, PROT_READ);
    mprotect(room + 5 * PAGE, PAGE, PROT_NONE);
    close(file);
    file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 3; i++)
        need(write(file, room + i * PAGE, PAGE) == PAGE, "write");
    need(write(file, "end", 3) == 3, "write");
}

/* The first byte of each page, as far as it can be read. */
static void tell_room(long result)
{
    char bytes[PAGES + 1] = "";
    for (int i = 0; i < PAGES; i++) {
        int ends[2];
        need(pipe(ends) == 0, "pipe");
        long count = RAW(write, ends[1], room + i * PAGE, 1, 0, 0, 0);
        bytes[i] = count == 1 && read(ends[0], bytes + i, 1) == 1 && bytes[i] ? bytes[i] : '-';
        close(ends[0]), close(ends[1]);
    }
    tell("  room: %s\n", bytes);
    (void)result;
}

#define AT(page) V(room + (page) * PAGE)

CASE(mapping, "mmap", map_room)
{
    enum { fixed = MAP_PRIVATE | MAP_FIXED, empty = fixed | MAP_ANONYMOUS };
    TRY(mmap, .b = {AT(1), V(PAGE), V(3), V(empty), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "length", .b = {AT(1), V(0), V(3), V(empty), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "odd", .b = {V(room + 5), V(PAGE), V(3), V(empty), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "huge", .b = {AT(1), V(-1), V(3), V(empty), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "noreplace", .b = {AT(1), V(PAGE), V(3), V(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE), V(-1), V(0)});
    TRY(mmap, .note = "file", .b = {AT(2), V(2 * PAGE), V(3), V(fixed), V(file), V(0)}, .after = tell_room);
    TRY(mmap, .note = "offset", .b = {AT(2), V(PAGE), V(1), V(fixed), V(file), V(PAGE)}, .after = tell_room);
    TRY(mmap, .note = "beyond", .b = {AT(6), V(2 * PAGE), V(3), V(fixed), V(file), V(3 * PAGE)}, .after = tell_room);
    TRY(mmap, .note = "odd_offset", .b = {AT(2), V(PAGE), V(1), V(fixed), V(file), V(5)}, .after = tell_room);
    TRY(mmap, .note = "closed", .b = {AT(2), V(PAGE), V(1), V(fixed), V(99), V(0)}, .after = tell_room);
    TRY(mmap, .note = "nothing", .b = {AT(2), V(0), V(1), V(fixed), V(file), V(0)}, .after = tell_room);
    int reads = open("file", O_RDONLY), writes = open("file", O_WRONLY), directory = open(".", O_RDONLY);
    TRY(mmap, .note = "read_only", .b = {AT(2), V(PAGE), V(3), V(fixed), V(reads), V(0)}, .after = tell_room);
    TRY(mmap, .note = "write_only", .b = {AT(2), V(PAGE), V(3), V(fixed), V(writes), V(0)}, .after = tell_room);
    TRY(mmap, .note = "directory", .b = {AT(2), V(PAGE), V(1), V(fixed), V(directory), V(0)}, .after = tell_room);
    close(reads), close(writes), close(directory);
    /* A private page is the program's own once it has written to it. */
    mmap(room, PAGE, PROT_READ | PROT_WRITE, fixed, file, 0);
    room[1] = 'x';
    need(pwrite(file, "changed", 7, 0) == 7, "pwrite");
    tell("own page: %.8s\n", room);
    TRY(pwrite64, .note = "from_mapping", .b = {V(file), V(room + PAGE), V(100), V(0)});
}

CASE(changing, "mprotect munmap mremap madvise mincore msync brk", map_room)
{
    TRY(mprotect, .b = {AT(1), V(PAGE), V(PROT_NONE)}, .after = tell_room);
    TRY(mprotect, .note = "back", .b = {AT(1), V(PAGE), V(PROT_READ)}, .after = tell_room);
    TRY(mprotect, .note = "odd", .b = {V(room + 5), V(PAGE), V(PROT_READ)});
    TRY(mprotect, .note = "rights", .b = {AT(1), V(PAGE), V(0x1000)});
    TRY(madvise, .note = "DONTNEED", .b = {AT(1), V(PAGE), V(MADV_DONTNEED)}, .after = tell_room);
    TRY(madvise, .note = "WILLNEED", .b = {AT(1), V(PAGE), V(MADV_WILLNEED)});
    TRY(madvise, .note = "unknown", .b = {AT(1), V(PAGE), V(77)});
    TRY(madvise, .note = "odd", .b = {V(room + 5), V(PAGE), V(MADV_DONTNEED)});
    TRY(mremap, .b = {AT(7), V(PAGE), V(PAGE), V(0)}, .after = tell_room);
    TRY(mremap, .note = "fixed", .b = {AT(7), V(PAGE), V(PAGE), V(3), AT(1)}, .after = tell_room);
    TRY(mremap, .note = "missing", .b = {AT(7), V(PAGE), V(PAGE), V(0)}, .after = tell_room);
    TRY(munmap, .b = {AT(2), V(PAGE)}, .after = tell_room);
    TRY(munmap, .note = "again", .b = {AT(2), V(PAGE)}, .after = tell_room);
    TRY(munmap, .note = "odd", .b = {V(room + 5), V(PAGE)});
    TRY(munmap, .note = "nothing", .b = {AT(2), V(0)});
    TRY(mincore, .b = {AT(3), V(PAGE), OH(1, "0+1")});
    TRY(mincore, .note = "missing", .b = {AT(2), V(PAGE), O(1)});
    TRY(msync, .b = {AT(3), V(PAGE), V(MS_SYNC)});
    TRY(msync, .note = "flags", .b = {AT(3), V(PAGE), V(99)});
    TRY(msync, .note = "missing", .b = {AT(2), V(PAGE), V(MS_SYNC)});
    long end = RAW(brk, 0, 0, 0, 0, 0, 0);
    tell("brk: grows %d\n", RAW(brk, end + PAGE, 0, 0, 0, 0, 0) == end + PAGE);
    tell("brk: shrinks %d\n", RAW(brk, end, 0, 0, 0, 0, 0) == end);
}

/* Every flag and every protection, of memory and of a file. */
CASE(flags, "mmap mprotect mremap", map_room)
{
    static const int all[] = {MAP_LOCKED, MAP_POPULATE, MAP_NORESERVE, MAP_NONBLOCK, MAP_STACK, MAP_32BIT,
                              MAP_DENYWRITE, MAP_EXECUTABLE, MAP_SYNC, 1 << 26, 1 << 27,
                              MAP_FIXED_NOREPLACE};
    char note[64];
    for (size_t which = 0; which < sizeof all / sizeof *all; which++) {
        int how = MAP_PRIVATE | MAP_FIXED | all[which];
        snprintf(note, sizeof note, "memory_%x", all[which]);
        TRY(mmap, .note = note, .b = {AT(1), V(PAGE), V(3), V(how | MAP_ANONYMOUS), V(-1), V(0)}, .after = tell_room);
        snprintf(note, sizeof note, "file_%x", all[which]);
        TRY(mmap, .note = note, .b = {AT(2), V(PAGE), V(3), V(how), V(file), V(0)}, .after = tell_room);
        munmap(room + 2 * PAGE, PAGE);
    }
    for (int rights = 0; rights < 16; rights++) {
        snprintf(note, sizeof note, "rights_%d", rights);
        TRY(mmap, .note = note, .b = {AT(2), V(PAGE), V(rights), V(MAP_PRIVATE | MAP_FIXED), V(file), V(0)}, .after = tell_room);
        TRY(mprotect, .note = note, .b = {AT(1), V(2 * PAGE), V(rights)}, .after = tell_room);
    }
    TRY(mprotect, .note = "grows_down", .b = {AT(1), V(PAGE), V(3 | PROT_GROWSDOWN)});
    TRY(mprotect, .note = "grows_up", .b = {AT(1), V(PAGE), V(3 | PROT_GROWSUP)});
    TRY(mprotect, .note = "both", .b = {AT(1), V(PAGE), V(3 | PROT_GROWSDOWN | PROT_GROWSUP)});
    for (int how = 0; how < 16; how++) {
        /* MAYMOVE and DONTUNMAP without FIXED: the kernel chooses a place. */
        if ((how & 7) == 5)
            continue;
        snprintf(note, sizeof note, "flags_%d", how);
        mmap(room, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        TRY(mremap, .note = note, .b = {AT(1), V(PAGE), V(PAGE), V(how), AT(4)}, .after = tell_room);
        snprintf(note, sizeof note, "longer_%d", how);
        TRY(mremap, .note = note, .b = {AT(1), V(PAGE), V(3 * PAGE), V(how & ~1), AT(5)}, .after = tell_room);
    }
}

/* All advice but that on broken memory, on memory, a file, what is neither, and a mixture. */
CASE(advice, "madvise", map_room)
{
    static const int all[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED,
                              MADV_FREE, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, MADV_HUGEPAGE,
                              MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK,
                              MADV_KEEPONFORK, MADV_COLD, MADV_PAGEOUT, 22, 23, 24, 102, 103, 104};
    enum { fixed = MAP_PRIVATE | MAP_FIXED };
    char note[64];
    for (size_t which = 0; which < sizeof all / sizeof *all; which++) {
        mmap(room + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, fixed, file, 0);
        room[2 * PAGE] = 'x';
        munmap(room + 6 * PAGE, PAGE);
        snprintf(note, sizeof note, "memory_%d", all[which]);
        TRY(madvise, .note = note, .b = {AT(0), V(PAGE), V(all[which])});
        snprintf(note, sizeof note, "file_%d", all[which]);
        TRY(madvise, .note = note, .b = {AT(2), V(2 * PAGE), V(all[which])});
        snprintf(note, sizeof note, "nothing_%d", all[which]);
        TRY(madvise, .note = note, .b = {AT(6), V(PAGE), V(all[which])});
        snprintf(note, sizeof note, "no_rights_%d", all[which]);
        TRY(madvise, .note = note, .b = {AT(5), V(PAGE), V(all[which])});
        snprintf(note, sizeof note, "odd_%d", all[which]);
        TRY(madvise, .note = note, .b = {V(room + 2 * PAGE + 5), V(PAGE), V(all[which])});
        snprintf(note, sizeof note, "empty_%d", all[which]);
        TRY(madvise, .note = note, .b = {AT(2), V(0), V(all[which])});
    }
    tell_room(0);
}

CASE(policies, "mbind get_mempolicy set_mempolicy migrate_pages move_pages set_mempolicy_home_node "
               "pkey_mprotect", map_room)
{
    TRY(get_mempolicy, .b = {OH(4, "0+4"), V(0), V(0), V(0), V(0)});
    TRY(get_mempolicy, .note = "flags", .b = {O(4), V(0), V(0), V(0), V(-1)});
    TRY(set_mempolicy, .b = {V(MPOL_DEFAULT), V(0), V(0)});
    TRY(set_mempolicy, .note = "unknown", .b = {V(77), V(0), V(0)});
    TRY(mbind, .b = {AT(0), V(PAGE), V(MPOL_DEFAULT), V(0), V(0), V(0)});
    TRY(mbind, .note = "unknown", .b = {AT(0), V(PAGE), V(77), V(0), V(0), V(0)});
    TRY(migrate_pages, .b = {V(0), V(64), IL(1), IL(1)}, .flags = GOOD);
    TRY(move_pages, .b = {V(0), V(1), V(0), V(0), V(0), V(-1)});
    TRY(set_mempolicy_home_node, .b = {AT(0), V(PAGE), V(0), V(9)});
    TRY(pkey_mprotect, .b = {AT(0), V(PAGE), V(3), V(-1)});
    TRY(pkey_mprotect, .note = "key", .b = {AT(0), V(PAGE), V(3), V(99)});
}

static int word;
static void reset_word(void) { word = 5; }

CASE(futexes, "futex futex_waitv futex_wake futex_wait futex_requeue", map_room)
{
    long little[] = {0, 2000000};
    struct { uint64_t value, address; uint32_t flags, spare; } waits = {5, (uint64_t)&word, 2 | 128, 0};
    TRY(futex, .note = "wake", .b = {II(5), V(FUTEX_WAKE_PRIVATE), V(1)}, .flags = ALIGNED);
    TRY(futex, .note = "other", .b = {II(5), V(FUTEX_WAIT_PRIVATE), V(6), V(0)}, .flags = ALIGNED);
    TRY(futex, .note = "time", .b = {II(5), V(FUTEX_WAIT_PRIVATE), V(5), I(little, 16)}, .flags = ONCE);
    TRY(futex, .note = "odd", .b = {V((long)&word + 1), V(FUTEX_WAKE_PRIVATE), V(1)});
    TRY(futex, .note = "unknown", .b = {II(5), V(77), V(1)}, .flags = ALIGNED);
    TRY(futex, .note = "lock", .b = {CH("\0\0\0\0", 4, "0+4"), V(FUTEX_TRYLOCK_PI_PRIVATE)}, .flags = ONCE | ALIGNED);
    alarm_in(20);
    TRY(futex, .note = "interrupted", .b = {II(5), V(FUTEX_WAIT_PRIVATE), V(5), V(0)}, .flags = ONCE);
    reset_word();
    TRY(futex_waitv, .note = "none", .b = {I(&waits, 24), V(0), V(0), V(0), V(0)});
    waits.value = 6;
    TRY(futex_waitv, .b = {I(&waits, 24), V(1), V(0), V(0), V(0)});
    TRY(futex_wake, .b = {II(5), V(-1), V(1), V(2 | 128)}, .flags = ALIGNED);
    TRY(futex_wait, .b = {II(5), V(6), V(-1), V(2 | 128), V(0), V(0)}, .flags = ALIGNED);
    TRY(futex_requeue, .b = {V(0), V(0), V(0), V(0)});
}

CASE(threads, "getrandom membarrier rseq set_robust_list set_tid_address rt_sigreturn", map_room)
{
    TRY(getrandom, .b = {OH(30, "0+30"), V(30), V(0)});
    TRY(getrandom, .note = "flags", .b = {O(30), V(30), V(99)});
    TRY(membarrier, .note = "query", .b = {V(MEMBARRIER_CMD_QUERY), V(0), V(0)});
    TRY(membarrier, .note = "unknown", .b = {V(3), V(0), V(0)});
    TRY(rseq, .b = {V(0), V(7), V(0), V(0)});
    TRY(set_robust_list, .note = "size", .b = {V(0), V(7)});
    /* Every handler ends with rt_sigreturn. */
    TRY(kill, .note = "rt_sigreturn", .b = {V(getpid()), V(SIGUSR1)});
    tell("rt_sigreturn: returned\n");
    long id = RAW(set_tid_address, &word, 0, 0, 0, 0, 0);
    tell("set_tid_address: %s\n", identity(id));
}

#define GONE(call) TRY(call, .b = {V(0), V(0), V(0), V(0), V(0), V(0)})

CASE(not_implemented, "uselib _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg "
                      "afs_syscall tuxcall security set_thread_area get_thread_area epoll_ctl_old "
                      "epoll_wait_old vserver", NULL)
{
    GONE(uselib);
    GONE(_sysctl);
    GONE(create_module);
    GONE(get_kernel_syms);
    GONE(query_module);
    GONE(nfsservctl);
    GONE(getpmsg);
    GONE(putpmsg);
    GONE(afs_syscall);
    GONE(tuxcall);
    GONE(security);
    GONE(set_thread_area);
    GONE(get_thread_area);
    GONE(epoll_ctl_old);
    GONE(epoll_wait_old);
    GONE(vserver);
}

/* What brings a program home runs there, with its results. */
CASE(home_shared, "", map_room)
{
    TRY(mmap, .note = "shared", .b = {AT(1), V(PAGE), V(3), V(MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED), V(-1), V(0)},
        .after = tell_room);
    TRY(munmap, .note = "shared", .b = {AT(1), V(PAGE)});
}

CASE(home_merging, "", map_room)
{
    TRY(madvise, .note = "mergeable", .b = {AT(0), V(PAGE), V(MADV_MERGEABLE)}, .after = tell_room);
    TRY(madvise, .note = "unmergeable", .b = {AT(0), V(PAGE), V(MADV_UNMERGEABLE)}, .after = tell_room);
}

/* Below memory that grows the kernel keeps a distance. */
CASE(home_growing, "", map_room)
{
    TRY(mmap, .note = "growing", .b = {AT(4), V(PAGE), V(3), V(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "growing_file", .b = {AT(5), V(PAGE), V(3), V(MAP_PRIVATE | MAP_FIXED | MAP_GROWSDOWN), V(file), V(0)}, .after = tell_room);
    munmap(room, 4 * PAGE);
    TRY(mmap, .note = "below_growing", .b = {AT(3), V(PAGE), V(3), V(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE), V(-1), V(0)}, .after = tell_room);
    TRY(mmap, .note = "far_below", .b = {AT(0), V(PAGE), V(3), V(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE), V(-1), V(0)}, .after = tell_room);
}

CASE(home_keys, "", map_room)
{
    TRY(pkey_mprotect, .note = "key_0", .b = {AT(0), V(PAGE), V(3), V(0)});
    TRY(pkey_mprotect, .note = "key_15", .b = {AT(0), V(PAGE), V(3), V(15)});
    TRY(mbind, .note = "all", .b = {AT(0), V(PAGE), V(MPOL_DEFAULT), V(0), V(0), V(MPOL_MF_MOVE_ALL)});
}

CASE(home_locked, "", map_room)
{
    TRY(mlock, .b = {AT(0), V(PAGE)});
    TRY(munlock, .b = {AT(0), V(PAGE)});
}

CASE(home_own_maps, "", map_room)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    TRY(read, .note = "maps", .b = {V(fd), OH(60, "0+60"), V(60)}, .flags = GOOD);
    close(fd);
}

/* Private memory of this device is plain memory. */
CASE(zeros, "", map_room)
{
    int fd = open("/dev/zero", O_RDWR);
    TRY(mmap, .note = "zeros", .b = {AT(1), V(2 * PAGE), V(3), V(MAP_PRIVATE | MAP_FIXED), V(fd), V(0)}, .after = tell_room);
    room[PAGE] = 'z';
    tell_room(0);
    close(fd);
}

CASE(home_no_file, "", map_room)
{
    int device = open("/dev/null", O_RDONLY), other = socket(AF_UNIX, SOCK_STREAM, 0);
    int kernel = open("/proc/version", O_RDONLY);
    TRY(mmap, .note = "device", .b = {AT(1), V(PAGE), V(1), V(MAP_PRIVATE | MAP_FIXED), V(device), V(0)}, .after = tell_room);
    TRY(mmap, .note = "socket", .b = {AT(1), V(PAGE), V(1), V(MAP_PRIVATE | MAP_FIXED), V(other), V(0)}, .after = tell_room);
    TRY(mmap, .note = "kernel", .b = {AT(1), V(PAGE), V(1), V(MAP_PRIVATE | MAP_FIXED), V(kernel), V(0)}, .after = tell_room);
    close(device), close(other), close(kernel);
}

static char *shown;

/* A file of memory alone, mapped privately. */
static void map_memory_file(void)
{
    close(file);
    file = memfd_create("file", 0);
    need(file >= 0 && ftruncate(file, 2 * PAGE) == 0 && pwrite(file, "made", 4, 0) == 4, "a file");
    shown = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    need(shown != MAP_FAILED, "mmap");
}

static void write_and_tell(const char *text)
{
    char before[5] = "";
    memcpy(before, shown, 4);
    need(pwrite(file, text, 4, 0) == 4, "pwrite");
    tell("  it had %s, %s is written: %.4s\n", before, text, shown);
}

/* What the program writes shows in what it has mapped, at once and again. */
CASE(memory_files, "", map_memory_file)
{
    write_and_tell("away"), write_and_tell("more"), write_and_tell("next");
    need(ftruncate(file, 0) == 0 && ftruncate(file, 2 * PAGE) == 0, "ftruncate");
    tell("  truncated: %d\n", *shown);
    write_and_tell("once");
    munmap(shown, 2 * PAGE);
    map_memory_file();
    write_and_tell("last"), write_and_tell("then");
    shown[0] = 'X';
    write_and_tell("none");
    munmap(shown, 2 * PAGE);
}
