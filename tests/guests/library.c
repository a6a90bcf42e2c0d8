/* Calls functions of which the C library has variants for several kinds of CPU, and shows what they give.
 *
 * Prints `ready PID`, waits for a line on standard input (so that it can be moved meanwhile), and does
 * it all once more; it stops at the end of its input. All lines of `gave` have to be equal.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "meet.h"

#define SIZE 20000

static uint64_t digest;

static void note(uint64_t value)
{
    digest = (digest ^ value) * 0x100000001b3ULL;
    digest ^= digest >> 29;
}

static void strings(size_t size)
{
    static char from[SIZE + 64], to[SIZE + 64];
    static wchar_t wide[SIZE / 4 + 64];
    for (size_t at = 0; at < 40; at += 13) {
        memset(from, 'a' + size % 26, sizeof from);
        from[at + size] = 0;
        memset(wide, 1, sizeof wide);
        wide[size / 4] = 0;
        note(strlen(from + at));
        note(strnlen(from + at, size / 2));
        note(wcslen(wide));
        memcpy(to + 7, from + at, size + 1);
        memmove(to + 9, to + 7, size + 1);
        note(strcmp(to + 9, from + at) == 0);
        note(strncmp(to + 9, from + at, size) == 0);
        note(strcasecmp(to + 9, from + at) == 0);
        note(memcmp(to + 9, from + at, size + 1) == 0);
        to[9 + size / 3] = '!';
        note(strchrnul(to + 9, '!') - to);
        note((uintptr_t)(strrchr(from + at, 'z') == NULL));
        note((char *)rawmemchr(to + 9, '!') - to);
        note(strcspn(to + 9, "!?"));
        note(strspn(from + at, "abcdefghijklmnopqrstuvwxyz"));
        note(strstr(to + 9, "!") - to);
        note(memrchr(from, 0, at + size + 1) != NULL);
        note(strlen(strcpy(to, from + at)));
        note(stpcpy(to, from + at) - to);
        note(strlen(strcat(to, "end")));
    }
}

static void numbers(void)
{
    for (double x = 0.1; x < 30; x *= 1.37) {
        volatile double y = x;
        double all[] = {sin(y),  cos(y),   tan(y),  exp(y),       log(y),  pow(y, 1.7),
                        atan(y), floor(y), rint(y), fma(y, y, 1), exp2(y), trunc(y)};
        float few[] = {sinf(y), expf(y), logf(y), powf(y, 1.7f), floorf(y)};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            uint64_t bits;
            memcpy(&bits, &all[i], sizeof bits);
            note(bits);
        }
        for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
            uint32_t bits;
            memcpy(&bits, &few[i], sizeof bits);
            note(bits);
        }
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (met()) {
        digest = 0xcbf29ce484222325ULL;
        for (size_t size = 1; size < SIZE; size = size * 3 / 2 + 1)
            strings(size);
        numbers();
        printf("gave %016lx\n", (unsigned long)digest);
    }
    return 0;
}
