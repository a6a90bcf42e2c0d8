/* Leaves almost no address free, as ThreadSanitizer and its like do.
 *
 *   crammed GIB
 *
 * Of each hole in its address space only a GiB is left at either end, where stack and heap grow and the kernel finds
 * room, and GIB in the middle of the largest one. Prints `ready PID`, or `impossible` and why. At each line on standard
 * input it looks whether all of that is still taken, fills new memory, and prints `sum NUMBER`. It ends at the end of
 * the input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { HOLES = 4096, FILLED = 16 << 20, PAGE = 4096 };

static const uint64_t GIB = 1ull << 30, FIRST = 0x10000, LAST = 0x7ffffffff000;
static struct { uint64_t start, end; } holes[HOLES], taken[HOLES];
static int hole_count, taken_count;

static void find_holes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start, end;
    uint64_t at = FIRST;
    char line[8192];
    while (fgets(line, sizeof line, maps) != NULL && hole_count < HOLES) {
        if (sscanf(line, "%lx-%lx", &start, &end) != 2 || start >= LAST)
            continue;
        holes[hole_count].start = at;
        holes[hole_count].end = start;
        hole_count += start > at;
        at = end;
    }
    fclose(maps);
}

/* 1: it is ours now. */
static int take(uint64_t start, uint64_t end, int again)
{
    void *wanted = (void *)start;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (end <= start)
        return 1;
    if (mmap(wanted, again ? PAGE : end - start, PROT_NONE, flags, -1, 0) != wanted)
        return 0;
    taken[taken_count].start = start;
    taken[taken_count++].end = end;
    return 1;
}

static int cram(uint64_t left)
{
    int largest = 0;
    find_holes();
    for (int i = 0; i < hole_count; i++)
        if (holes[i].end - holes[i].start > holes[largest].end - holes[largest].start)
            largest = i;
    for (int i = 0; i < hole_count; i++) {
        uint64_t start = holes[i].start + GIB, end = holes[i].end - GIB;
        if (holes[i].end - holes[i].start < 2 * GIB)
            continue;
        uint64_t middle = i == largest ? (start + (end - start) / 2) & ~(4 * GIB - 1) : end;
        if (!take(start, middle, 0) || (i == largest && !take(middle + left, end, 0)))
            return 0;
    }
    return 1;
}

static uint64_t work(void)
{
    uint64_t sum = 0;
    int count = taken_count;
    for (int i = 0; i < count; i++) {
        uint64_t middle = taken[i].start + (taken[i].end - taken[i].start) / 2;
        if (take(taken[i].start, taken[i].end, 1) || take(middle & ~(uint64_t)(PAGE - 1), taken[i].end, 1)) {
            printf("free again: %lx\n", (unsigned long)taken[i].start);
            exit(1);
        }
    }
    unsigned char *memory = mmap(NULL, FILLED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    for (int i = 0; i < FILLED; i++)
        memory[i] = (unsigned char)(i * 7 + (i >> 9));
    for (int i = 0; i < FILLED; i += 3)
        sum = sum * 31 + memory[i];
    munmap(memory, FILLED);
    return sum;
}

int main(int count, char **words)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count != 2 || !cram(strtoull(words[1], NULL, 10) * GIB)) {
        printf("impossible %s\n", strerror(errno));
        return 0;
    }
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin) != NULL)
        printf("sum %lu\n", (unsigned long)work());
    return 0;
}
