/* Does one thing at home over and over, on request, so that something can happen meanwhile.
 *
 *   patient counts [MB]   counts, and appends each thousandth number to the file `log`; it may have so
 *                         much memory beside
 *   patient holds MB      has so much memory, written, and waits
 *   patient CALL          makes one call forever: create, append, pipe, getdents, rename, pread,
 *                         write_large, recv, nanosleep
 *
 * Prints `ready PID` first. `holds` waits for a line, checks its memory, and ends; the others end
 * when the file `stop` appears, or never.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

static uint64_t *filled(size_t size)
{
    uint64_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    for (size_t i = 0; i < size / 8; i++)
        memory[i] = i * 0x9e3779b97f4a7c15u;
    return memory;
}

static void holds(size_t megabytes)
{
    size_t size = megabytes << 20;
    uint64_t *memory = filled(size);
    char line[16];
    for (int round = 0;; round++) {
        printf("ready %d\n", getpid());
        fflush(stdout);
        need(read(0, line, sizeof line) > 0, "a line");
        for (size_t i = 0; i < size / 8; i++)
            need(memory[i] == i * 0x9e3779b97f4a7c15u + round, "the memory");
        if (line[0] == 'e')
            break;
        for (size_t i = 0; i < size / 8; i++)
            memory[i]++;
    }
    printf("intact\n");
}

int main(int argc, char **argv)
{
    const char *call = argc >= 2 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(call, "holds")) {
        holds(atol(argv[2]));
        return 0;
    }
    int ends[2], pair[2];
    static char buffer[1 << 20];
    need(mkdir("place", 0755) == 0 || errno == EEXIST, "mkdir");
    int log = open("place/log", O_RDWR | O_CREAT | O_APPEND, 0644);
    int large = open("place/large", O_RDWR | O_CREAT, 0644);
    mkfifo("place/fifo", 0644);
    need(log >= 0 && large >= 0 && pipe(ends) == 0, "open");
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int fifo = open("place/fifo", O_RDWR);
    need(fifo >= 0, "the fifo");
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "place/entry-%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    need(write(large, buffer, sizeof buffer) == sizeof buffer, "write");
    if (!strcmp(call, "counts") && argc > 2)
        filled((size_t)atol(argv[2]) << 20);
    printf("ready %d\n", getpid());
    for (unsigned long i = 0;; i++) {
        char name[64], data[64];
        if (!strcmp(call, "counts")) {
            if (i % 1000 == 0) {
                int length = snprintf(data, sizeof data, "%lu\n", i / 1000);
                need(write(log, data, length) == length, "append");
                if (access("stop", F_OK) == 0) {
                    printf("ended\n");
                    return 0;
                }
            }
            for (volatile int j = 0; j < 10000; j++)
                ;
        } else if (!strcmp(call, "create")) {
            snprintf(name, sizeof name, "place/new-%lu", i % 10);
            int file = openat(AT_FDCWD, name, O_CREAT | O_WRONLY, 0600);
            need(file >= 0, "create");
            close(file);
            unlink(name);
        } else if (!strcmp(call, "append")) {
            need(write(log, buffer, 65536) == 65536, "append");
            if (i % 100 == 99)
                need(ftruncate(log, 0) == 0, "ftruncate");
        } else if (!strcmp(call, "pipe")) {
            need(write(fifo, buffer, 4096) == 4096, "fifo");
            need(read(fifo, buffer, 4096) > 0, "fifo");
        } else if (!strcmp(call, "getdents")) {
            int directory = open("place", O_RDONLY | O_DIRECTORY);
            while (syscall(SYS_getdents64, directory, buffer, 32768) > 0)
                ;
            close(directory);
        } else if (!strcmp(call, "rename")) {
            need(rename("place/entry-1", "place/entry-x") == 0, "rename");
            need(rename("place/entry-x", "place/entry-1") == 0, "rename");
        } else if (!strcmp(call, "pread")) {
            need(pread(large, buffer, sizeof buffer, 0) == sizeof buffer, "pread");
        } else if (!strcmp(call, "write_large")) {
            need(pwrite(large, buffer, sizeof buffer, 0) == sizeof buffer, "pwrite");
        } else if (!strcmp(call, "recv")) {
            need(send(pair[0], buffer, 65536, 0) > 0, "send");
            need(recv(pair[1], buffer, 65536, 0) > 0, "recv");
        } else if (!strcmp(call, "nanosleep")) {
            struct timespec time = {0, 1000000};
            nanosleep(&time, NULL);
        } else {
            return 2;
        }
    }
}
