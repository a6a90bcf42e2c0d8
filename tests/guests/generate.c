/* Writes a file of lines of pseudo-random words and numbers: compressible, and the same everywhere.
 *
 *   generate BYTES FILE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 42;

static uint64_t next(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int main(int argc, char **argv)
{
    static const char *words[] = {"node",  "home",  "guest", "deputy", "host",   "journey", "epoch",
                                  "lease", "attic", "lab",   "window", "reason", "class",   "page"};
    if (argc != 3)
        return 2;
    uint64_t wanted = strtoull(argv[1], NULL, 10);
    FILE *file = fopen(argv[2], "w");
    if (!file)
        return 1;
    for (uint64_t written = 0; written < wanted;) {
        char line[256];
        int length = snprintf(line, sizeof line, "%llu", (unsigned long long)(next() % 1000000000));
        for (unsigned count = 1 + next() % 8; count > 0; count--)
            length += snprintf(line + length, sizeof line - length, " %s",
                               words[next() % (sizeof words / sizeof *words)]);
        line[length++] = '\n';
        if (written + length > wanted)
            length = wanted - written;
        if (fwrite(line, 1, length, file) != (size_t)length)
            return 1;
        written += length;
    }
    return fclose(file) != 0;
}
