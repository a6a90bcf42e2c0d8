/* Private mappings of a file that change their shape, and a file that changes below them. Each line on
 * standard input is a list of commands, which are separated by semicolons; its answer is what all
 * mappings show: the first byte of each page, '!' beyond the end of the file, '.' where nothing is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PAGE = 4096, SLOTS = 4, DONTUNMAP = 4, CROWD = 256, ROUNDS = 6, WRITERS = 2 };

static struct {
    char *base;
    long pages;
} slots[SLOTS];
static int file, other;
static __thread sigjmp_buf back;

static void need(long good, const char *what)
{
    if (good)
        return;
    printf("fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void faulted(int signal)
{
    siglongjmp(back, signal);
}

static char *place(int slot)
{
    return (char *)(0x100000000000 + slot * 0x1000000000);
}

/* What a page shows, without a call of the kernel's. */
static int shown(const volatile char *page)
{
    int signal = sigsetjmp(back, 0);
    if (signal == 0)
        return *page ? *page : '0';
    return signal == SIGBUS ? '!' : '.';
}

static void show(void)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        if (slots[slot].pages == 0)
            continue;
        printf(" %d:", slot);
        for (long page = 0; page < slots[slot].pages; page++)
            putchar(shown(slots[slot].base + page * PAGE));
    }
    printf("\n");
}

static void map(int slot, long pages, long from)
{
    char *wanted = place(slot);
    if (slots[slot].pages)
        munmap(slots[slot].base, slots[slot].pages * PAGE);
    slots[slot].base = mmap(wanted, pages * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_FIXED, file, from * PAGE);
    need(slots[slot].base == wanted, "mmap");
    slots[slot].pages = pages;
}

/* More of the file, right behind what is there. */
static void map_beside(int slot, long pages, long from)
{
    char *wanted = slots[slot].base + slots[slot].pages * PAGE;
    char *mapped = mmap(wanted, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                        file, from * PAGE);
    need(mapped == wanted, "mmap beside");
    slots[slot].pages += pages;
}

/* `how` is that of mremap; a fixed place is that of another slot, and so is what is left behind. */
static void move(int slot, long pages, long how, int to)
{
    char *base = slots[slot].base;
    long before = slots[slot].pages;
    char *moved = mremap(base, before * PAGE, pages * PAGE, how, slots[to].base);
    if (moved == MAP_FAILED) {
        printf(" error %d", errno);
        return;
    }
    if (how & MREMAP_FIXED)
        slots[to].pages = 0;
    if (how & DONTUNMAP) {
        slots[to].base = base;
        slots[to].pages = before;
    }
    if (how == 0)
        need(moved == base, "it moved");
    slots[slot].base = moved;
    slots[slot].pages = pages;
}

static void copy(const char *how, long page, char byte)
{
    off_t from = 0, to = page * PAGE;
    struct iovec piece = {&byte, 1};
    int ends[2];
    if (strcmp(how, "pwrite") == 0)
        need(pwrite(file, &byte, 1, to) == 1, how);
    if (strcmp(how, "pwritev") == 0)
        need(pwritev2(file, &piece, 1, to, 0) == 1, how);
    if (strcmp(how, "write") == 0)
        need(lseek(file, to, SEEK_SET) == to && write(file, &byte, 1) == 1, how);
    if (strcmp(how, "writev") == 0)
        need(lseek(file, to, SEEK_SET) == to && writev(file, &piece, 1) == 1, how);
    if (strcmp(how, "range") == 0) {
        need(pwrite(other, &byte, 1, 0) == 1, how);
        need(copy_file_range(other, &from, file, &to, 1, 0) == 1, how);
    }
    if (strcmp(how, "sendfile") == 0) {
        need(pwrite(other, &byte, 1, 0) == 1, how);
        need(lseek(file, to, SEEK_SET) == to && sendfile(file, other, &from, 1) == 1, how);
    }
    if (strcmp(how, "splice") == 0) {
        need(pipe(ends) == 0 && write(ends[1], &byte, 1) == 1, how);
        need(splice(ends[0], NULL, file, &to, 1, 0) == 1, how);
        close(ends[0]);
        close(ends[1]);
    }
    if (strcmp(how, "hole") == 0)
        need(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, to, PAGE) == 0, how);
}

static void append(long pages, char byte)
{
    char bytes[PAGE];
    int end = open("f", O_WRONLY | O_APPEND);
    memset(bytes, byte, sizeof bytes);
    for (long page = 0; page < pages; page++)
        need(write(end, bytes, PAGE) == PAGE, "append");
    close(end);
}

static volatile int writing;

static void *write_half(void *first)
{
    for (long page = 0; page < CROWD; page += WRITERS) {
        for (volatile int pause = 0; pause < 400000; pause++)
            ;
        ((volatile char *)first)[page * PAGE + 8] = 'w';
    }
    __atomic_sub_fetch(&writing, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static volatile long beyond, probing;

static void *probe(void *page)
{
    while (probing) {
        for (volatile int pause = 0; pause < 100000; pause++)
            ;
        beyond += shown(page) == '!';
    }
    return NULL;
}

/* Whoever touches the new end of a mapping at once finds the file there, or nothing yet. */
static void probe_growth(int slot, long rounds)
{
    pthread_t thread;
    char *base = slots[slot].base;
    long pages = slots[slot].pages;
    probing = 1;
    need(pthread_create(&thread, NULL, probe, base + pages * PAGE) == 0, "pthread_create");
    for (long round = 0; round < rounds; round++) {
        need(mremap(base, pages * PAGE, (pages + 1) * PAGE, 0) == base, "mremap");
        need(mremap(base, (pages + 1) * PAGE, pages * PAGE, 0) == base, "mremap");
    }
    probing = 0;
    pthread_join(thread, NULL);
    printf(" beyond %ld", beyond);
}

/* Nothing that a thread writes is lost while the file changes under another one. There are two: one of them
 * may have to stand still for that. */
static void race(int slot)
{
    long lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[WRITERS];
        map(slot, CROWD, 0);
        char *base = slots[slot].base;
        for (long page = 0; page < CROWD; page++)
            shown(base + page * PAGE);
        writing = WRITERS;
        for (int writer = 0; writer < WRITERS; writer++)
            need(pthread_create(&threads[writer], NULL, write_half, base + writer * PAGE) == 0,
                 "pthread_create");
        for (int more = 0; writing > 0; more++)
            copy("pwrite", CROWD - 1, 'a' + more % 26);
        for (int writer = 0; writer < WRITERS; writer++)
            pthread_join(threads[writer], NULL);
        for (long page = 0; page < CROWD; page++)
            lost += base[page * PAGE + 8] != 'w';
        need(munmap(base, CROWD * PAGE) == 0, "munmap");
        slots[slot].pages = 0;
    }
    printf(" lost %ld", lost);
}

static volatile long wrong;

static void expect_page(char *at, long page)
{
    if (shown(at) != 'a' + page)
        __atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
}

static char *map_pages(long page, long count)
{
    char *base = mmap(NULL, count * PAGE, PROT_READ, MAP_PRIVATE, file, page * PAGE);
    need(base != MAP_FAILED, "mmap");
    return base;
}

/* Four pages with one of memory in their midst, at a place, or longer. Returns where they are. */
static char *change_shape(char *base, long how)
{
    long whole = 4 * PAGE;
    char *to = NULL;
    switch (how) {
    case 0:
        to = mmap(base + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        need(to == base + PAGE && *to == 0, "memory over a file");
        return base;
    case 1:
        to = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        to = mremap(base, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        break;
    case 2:
        to = mremap(base, whole, 6 * PAGE, MREMAP_MAYMOVE);
        need(to == MAP_FAILED || munmap(to + whole, 2 * PAGE) == 0, "munmap of what is new");
        break;
    default:
        return base;
    }
    need(to != MAP_FAILED, "mremap");
    return to;
}

static void *turn_over(void *rounds)
{
    for (long round = 0; round < (long)rounds; round++) {
        long page = (round * 7 + pthread_self() / PAGE) % 12;
        char *base = map_pages(page, 4), *second = map_pages(page, 3);
        if (round % 2)
            expect_page(base + 2 * PAGE, page + 2);
        base = change_shape(base, (round + pthread_self() / PAGE) % 4);
        expect_page(base, page);
        expect_page(base + 3 * PAGE, page + 3);
        need(munmap(base, 4 * PAGE) == 0, "munmap");
        expect_page(second + PAGE, page + 1);
        need(munmap(second, 3 * PAGE) == 0, "munmap");
    }
    return NULL;
}

/* Threads that map, change and unmap parts of the file, each where another one has just unmapped one. */
static void turn_over_together(long threads, long rounds)
{
    pthread_t all[8];
    for (long one = 0; one < threads; one++)
        need(pthread_create(&all[one], NULL, turn_over, (void *)rounds) == 0, "pthread_create");
    for (long one = 0; one < threads; one++)
        pthread_join(all[one], NULL);
    printf(" wrong %ld", wrong);
}

/* A mapping that is longer than most of what is there, again and again. */
static void vast(long rounds)
{
    for (long round = 0; round < rounds; round++) {
        size_t length = 100UL << 30;
        char *base = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file, PAGE);
        need(base != MAP_FAILED, "mmap of much");
        need(shown(base) == shown(slots[0].base + PAGE), "another file");
        need(munmap(base, length) == 0, "munmap of much");
    }
}

/* Waits for a byte of a page without a call of the kernel's. */
static void await(int slot, long page, char byte)
{
    while (shown(slots[slot].base + page * PAGE) != byte)
        ;
}

/* A file system for scratch files, of ten megabytes. */
static void mount_scratch(void)
{
    need(unshare(CLONE_NEWNS) == 0, "unshare");
    need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    need(mkdir("scratch", 0700) == 0, "mkdir");
    need(mount("none", "scratch", "tmpfs", 0, "size=10m") == 0, "mount");
}

/* Writes eight megabytes, maps, reads and removes them, again and again: there is room each time if nothing holds
 * what is removed. */
static void scratch(long rounds)
{
    size_t all = 8 << 20;
    char *bytes = calloc(1, all);
    need(bytes != NULL, "calloc");
    for (long round = 0; round < rounds; round++) {
        int fd = open("scratch/f", O_RDWR | O_CREAT | O_EXCL, 0600);
        need(fd >= 0, "open");
        need(write(fd, bytes, all) == (ssize_t)all, "write");
        const volatile char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        need(map != MAP_FAILED && map[all - 1] == 0, "mmap");
        need(munmap((void *)map, all) == 0 && close(fd) == 0 && unlink("scratch/f") == 0, "munmap");
        struct statfs about;
        need(statfs("scratch", &about) == 0, "statfs");
        printf(" %ld of %ld", (long)about.f_bfree, (long)about.f_blocks);
    }
    free(bytes);
}

/* Files of memory alone that are mapped, read and given up: nothing is left of them. */
static void memory_files(long rounds)
{
    for (long round = 0; round < rounds; round++) {
        int fd = memfd_create("scratch", MFD_CLOEXEC);
        need(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0, "memfd_create");
        need(pwrite(fd, "m", 1, PAGE) == 1, "write");
        const volatile char *map = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        need(map != MAP_FAILED && map[PAGE] == 'm', "mmap");
        need(munmap((void *)map, 4 * PAGE) == 0 && close(fd) == 0, "munmap");
    }
    printf(" %d", getppid() > 0);
}

/* Maps a scratch file and gives up all else of it, or gives that up as well, and looks whether it is in use. */
static void keep_scratch(int keeps)
{
    static char *map;
    if (keeps) {
        int fd = open("scratch/kept", O_RDWR | O_CREAT | O_EXCL, 0600);
        need(fd >= 0 && write(fd, "k", 1) == 1, "kept");
        map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        need(map != MAP_FAILED && *map == 'k', "mmap");
        need(close(fd) == 0, "close");
    } else {
        need(munmap(map, PAGE) == 0, "munmap");
    }
    int result = umount("scratch");
    printf(" umount %s", result == 0 ? "done" : strerror(errno));
}

static void command(const char *line)
{
    char word[16] = "", byte = 0;
    int slot = 0, to = 0;
    long one = 0, two = 0;
    if (sscanf(line, " map %d %ld %ld", &slot, &one, &two) == 3)
        map(slot, one, two);
    else if (sscanf(line, " beside %d %ld %ld", &slot, &one, &two) == 3)
        map_beside(slot, one, two);
    else if (sscanf(line, " move %d %ld %ld %d", &slot, &one, &two, &to) == 4)
        move(slot, one, two, to);
    else if (sscanf(line, " put %d %ld %c", &slot, &one, &byte) == 3)
        slots[slot].base[one * PAGE] = byte;
    else if (sscanf(line, " drop %d %ld %ld", &slot, &one, &two) == 3)
        need(madvise(slots[slot].base + one * PAGE, two * PAGE, MADV_DONTNEED) == 0, "madvise");
    else if (sscanf(line, " protect %d %ld", &slot, &one) == 2)
        need(mprotect(slots[slot].base + one * PAGE, PAGE, PROT_READ) == 0, "mprotect");
    else if (sscanf(line, " unmap %d %ld %ld", &slot, &one, &two) == 3)
        need(munmap(slots[slot].base + one * PAGE, two * PAGE) == 0, "munmap");
    else if (sscanf(line, " copy %15s %ld %c", word, &one, &byte) == 3)
        copy(word, one, byte);
    else if (sscanf(line, " append %ld %c", &one, &byte) == 2)
        append(one, byte);
    else if (sscanf(line, " length %ld", &one) == 1)
        need(ftruncate(file, one * PAGE) == 0, "ftruncate");
    else if (sscanf(line, " path %ld", &one) == 1)
        need(truncate("f", one * PAGE) == 0, "truncate");
    else if (sscanf(line, " race %d", &slot) == 1)
        race(slot);
    else if (sscanf(line, " turnover %ld %ld", &one, &two) == 2)
        turn_over_together(one, two);
    else if (sscanf(line, " probe %d %ld", &slot, &one) == 2)
        probe_growth(slot, one);
    else if (sscanf(line, " await %d %ld %c", &slot, &one, &byte) == 3)
        await(slot, one, byte);
    else if (strstr(line, "empty"))
        need(close(open("f", O_WRONLY | O_TRUNC)) == 0, "O_TRUNC");
    else if (strstr(line, "remove"))
        need(unlink("f") == 0, "unlink");
    else if (strstr(line, "mount"))
        mount_scratch();
    else if (sscanf(line, " scratch %ld", &one) == 1)
        scratch(one);
    else if (sscanf(line, " memory %ld", &one) == 1)
        memory_files(one);
    else if (sscanf(line, " keeps %ld", &one) == 1)
        keep_scratch(one != 0);
    else if (sscanf(line, " vast %ld", &one) == 1)
        vast(one);
    else if (!strstr(line, "show"))
        need(0, line);
}

int main(void)
{
    char *line = NULL, *rest;
    size_t room = 0;
    struct sigaction action = {.sa_handler = faulted, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    file = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    other = open("g", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need(file >= 0 && other >= 0, "open");
    char bytes[PAGE];
    for (int page = 0; page < 16; page++) {
        memset(bytes, 'a' + page, PAGE);
        need(write(file, bytes, PAGE) == PAGE, "write");
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    while (getline(&line, &room, stdin) > 0 && strcmp(line, "end\n") != 0) {
        for (char *part = strtok_r(line, ";\n", &rest); part; part = strtok_r(NULL, ";\n", &rest))
            command(part);
        show();
    }
    return 0;
}
