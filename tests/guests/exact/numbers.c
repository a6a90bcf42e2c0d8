/* Exactness: numbers that are no system call's. */
#include "common.h"

static void make(long number)
{
    errno = 0;
    long result = syscall(number, 1, 2, 3, 4, 5, 6);
    printf("%ld: %ld %d\n", number, result, errno);
}

/* Programs look in this way whether their kernel has a call. It was 513 once, which no program shall see. */
CASE(of_no_call, AWAY)
{
    for (int turn = 0; turn < 3; turn++) {
        meet();
        make(-1);
        make(-2);
        make(-1000);
        make(1l << 31);
    }
}

CASE(beyond_the_table, ANYWHERE)
{
    static const long numbers[] = {600, 1000, 100000, 0x40000000, 0x400003ff, 0x7fffffff};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        meet();
        make(numbers[i]);
    }
}
