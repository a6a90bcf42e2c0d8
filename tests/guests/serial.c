/* Appends serial numbers to a file, a pipe and a socket, one call each; reads what went through the
 * latter two and checks that nothing came twice and nothing is missing.
 *
 *   serial COUNT
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void check(int good, const char *what, long number)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s at %ld\n", what, number);
    _exit(1);
}

int main(int argc, char **argv)
{
    long count = argc == 2 ? atol(argv[1]) : 0;
    int file = open("serial", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int written = open("offsets", O_RDWR | O_CREAT, 0600);
    int ends[2], pair[2];
    check(file >= 0 && written >= 0 && count > 0, "open", file);
    check(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "pipe", 0);
    unsigned long work = 1;
    for (long i = 0; i < count; i++) {
        char text[32], back[64];
        int length = snprintf(text, sizeof text, "%ld\n", i);
        check(write(file, text, length) == length, "append", i);
        struct iovec parts[2] = {{text, 1}, {text + 1, length - 1}};
        check(writev(written, parts, 2) == length, "writev", i);
        check(write(ends[1], text, length) == length, "pipe write", i);
        check(send(pair[0], text, length, 0) == length, "send", i);
        ssize_t got = read(ends[0], back, sizeof back);
        check(got == length && memcmp(text, back, length) == 0, "pipe read", i);
        got = recv(pair[1], back, sizeof back, 0);
        check(got == length && memcmp(text, back, length) == 0, "recv", i);
        check(lseek(written, 0, SEEK_CUR) == lseek(file, 0, SEEK_END), "offsets", i);
        for (int j = 0; j < 1000000; j++)
            work = work * 6364136223846793005u + 1;
        if (i % 100 == 0)
            printf("%ld %lu\n", i, work);
    }
    return 0;
}
