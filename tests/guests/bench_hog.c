/* A fixed amount of computing, with so much memory.
 *
 *   bench_hog ROUNDS MEGABYTES
 *
 * Prints a sum that is the same on every run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    size_t words = (size_t)(argc > 2 ? atol(argv[2]) : 0) * (1 << 20) / sizeof(uint64_t) + 1;
    uint64_t *memory = malloc(words * sizeof *memory);
    if (!memory) {
        perror("malloc");
        return 1;
    }
    for (size_t i = 0; i < words; i++)
        memory[i] = i;
    uint64_t state = 88172645463325252u, sum = 0;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 1000000; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += state & 1;
        }
        /* All of it is used, by and by. */
        memory[(size_t)round * 4099 % words] += sum;
    }
    for (size_t i = 0; i < words; i++)
        sum += memory[i];
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
