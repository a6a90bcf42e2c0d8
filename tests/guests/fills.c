/* Fills a file system, again and again, and tells what each call says when it is full.
 *
 *   fills DIRECTORY
 *
 * Prints `ready PID`, then waits for a line before each round. A round fills a file by write, by
 * pwrite, by writev, by fallocate and by a copy within the kernel; how much there was room for may
 * differ from file to file, so only errors are told, and that what was written can be read again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECE 65536

static char piece[PIECE], back[PIECE];

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static int fresh(void)
{
    unlink("fill");
    sync();
    int file = open("fill", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need(file >= 0, "a file");
    return file;
}

static ssize_t by_write(int file, off_t at)
{
    (void)at;
    return write(file, piece, PIECE);
}

static ssize_t by_pwrite(int file, off_t at)
{
    return pwrite(file, piece, PIECE, at);
}

static ssize_t by_writev(int file, off_t at)
{
    (void)at;
    struct iovec two[2] = {{piece, PIECE / 2}, {piece + PIECE / 2, PIECE / 2}};
    return writev(file, two, 2);
}

static void check(int file, off_t length)
{
    off_t at = 0;
    while (at < length) {
        ssize_t got = pread(file, back, PIECE, at);
        need(got > 0, "reading it again");
        for (ssize_t i = 0; i < got; i++)
            need(back[i] == piece[(at + i) % PIECE], "what was written");
        at += got;
    }
}

/* To the last byte: a call that finds no room at all has to say so. */
static void fill(const char *name, ssize_t (*call)(int, off_t))
{
    int file = fresh();
    off_t length = 0;
    ssize_t done;
    int shorter = 0;
    while ((done = call(file, length)) > 0) {
        shorter += done < PIECE;
        length += done;
    }
    printf("%s: %s, %s\n", name, done < 0 ? strerror(errno) : "nothing",
           shorter <= 1 ? "after it was full" : "after many short ones");
    struct stat about;
    need(fstat(file, &about) == 0 && about.st_size == length, "its length");
    printf("%s: closed %d, synced %d\n", name, dup2(file, file) == file ? 0 : errno,
           fsync(file) == 0 ? 0 : errno);
    check(file, length);
    /* Some file systems need room even for that. */
    (void)!ftruncate(file, 0);
    close(file);
    file = fresh();
    fsync(file);
    printf("%s: room again: %zd\n", name, pwrite(file, piece, 100, 0));
    close(file);
}

static void allocate(void)
{
    int file = fresh();
    int result = fallocate(file, 0, 0, 1L << 30);
    printf("fallocate: %s\n", result < 0 ? strerror(errno) : "it had room");
    close(file);
}

static void append(void)
{
    int file = fresh();
    while (write(file, piece, PIECE) > 0)
        ;
    int other = open("other", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (other < 0) {
        printf("other: %s\n", strerror(errno));
    } else {
        ssize_t done = write(other, piece, PIECE);
        printf("other: %s\n", done < 0 ? strerror(errno) : "it had room");
        close(other);
    }
    close(file);
    unlink("other");
    unlink("fill");
}

int main(int argc, char **argv)
{
    need(argc == 2 && chdir(argv[1]) == 0, "a directory");
    for (int i = 0; i < PIECE; i++)
        piece[i] = (char)(i * 31 + i / 251);
    for (;;) {
        char line[16];
        printf("ready %d\n", getpid());
        fflush(stdout);
        if (read(0, line, sizeof line) <= 0 || line[0] == 'e')
            break;
        fill("write", by_write);
        fill("pwrite", by_pwrite);
        fill("writev", by_writev);
        allocate();
        append();
        printf("end\n");
    }
    return 0;
}
