/* What the conformance guests stand on: see common.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* PATTERN: the bytes around and in a buffer before a call. A byte that is written with the same value
 * is not seen to change. */
enum { BUFFERS = 12, REFERENCES = 16, PATTERN = 0xa5 };

enum kind { NONE, VALUE, BUFFER };

/* An argument (0 to 5), or a buffer that another one leads to (6 and up). */
struct buffer {
    enum kind kind;
    long value;
    const void *data; /* its first bytes before the call; the rest is the pattern */
    size_t given;
    size_t size;
    int is_output;    /* the kernel writes it: also tried on a read-only page */
    const char *hide; /* "OFFSET+LENGTH,...": differs by nature, only shown as changed */
};

/* The address of buffer `to` stands at offset `at` of buffer `in`. */
struct reference {
    int in;
    size_t at;
    int to;
};

enum flag {
    ONCE = 1,        /* one layout, no bad pointers */
    GOOD = 2,        /* no bad pointers */
    CLOSES = 4,      /* the result is a descriptor, closed again */
    IDENTITY = 8,    /* the result is an id of a process */
    HIDDEN = 16,     /* the result differs by nature */
    NO_NULL = 32,    /* a null pointer means something else, which is not wanted here */
    ALIGNED = 64,    /* no layout that breaks alignment */
    STARTS = 128,    /* a pipe's two descriptors come in buffer 0, and are closed again */
};

struct spec {
    long number;
    const char *name;
    const char *note;
    struct buffer b[BUFFERS];
    struct reference r[REFERENCES];
    unsigned flags;
    void (*before)(void);
    void (*after)(long result);
};

#define V(x) {.kind = VALUE, .value = (long)(x)}
/* Bytes that the kernel reads; a string; bytes that it fills; bytes that it reads and changes. */
#define I(pointer, bytes) {.kind = BUFFER, .data = (pointer), .given = (bytes), .size = (bytes)}
#define S(text) {.kind = BUFFER, .data = (text), .given = strlen(text) + 1, .size = strlen(text) + 1}
#define O(bytes) {.kind = BUFFER, .size = (bytes), .is_output = 1}
#define C(pointer, bytes) \
    {.kind = BUFFER, .data = (pointer), .given = (bytes), .size = (bytes), .is_output = 1}
#define OH(bytes, ranges) {.kind = BUFFER, .size = (bytes), .is_output = 1, .hide = (ranges)}
#define CH(pointer, bytes, ranges) \
    {.kind = BUFFER, .data = (pointer), .given = (bytes), .size = (bytes), .is_output = 1, \
     .hide = (ranges)}
#define INTS(...) ((int[]){__VA_ARGS__})
#define LONGS(...) ((long[]){__VA_ARGS__})
#define IL(...) I(LONGS(__VA_ARGS__), sizeof LONGS(__VA_ARGS__))
#define II(...) I(INTS(__VA_ARGS__), sizeof INTS(__VA_ARGS__))
#define CI(...) C(INTS(__VA_ARGS__), sizeof INTS(__VA_ARGS__))

/* Makes a call in all variations and tells what came of each. */
void try(const struct spec *spec);
#define TRY(call, ...) try(&(struct spec){.number = SYS_##call, .name = #call, __VA_ARGS__})

struct test {
    const char *name;
    const char *covers;
    void (*prepare)(void);
    void (*run)(void);
    struct test *next;
};
void add(struct test *test);

/* A case: its name, the calls that it covers (read by `cargo xtask conformance`), and what has to
 * be done before the move, or NULL. Cases whose names begin with home_ have to go home. */
#define CASE(title, covers, before)                                             \
    static void title(void);                                                    \
    static struct test test_##title = {#title, covers, (before), title, NULL};         \
    __attribute__((constructor)) static void add_##title(void) { add(&test_##title); } \
    static void title(void)

long raw(long number, long a, long b, long c, long d, long e, long f);
#define RAW(call, a, b, c, d, e, f) \
    raw(SYS_##call, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* Ends the program unless this holds. */
void need(int good, const char *what);
/* One more line of the transcript. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An id as it is told: own ids and those that were given a name have their names. */
const char *identity(long id);
void name_identity(long id, const char *name);
/* Interrupts the next call, if it waits so many milliseconds. */
void alarm_in(long milliseconds);
/* A line of the driver: "go". */
void stop_here(void);
/* Handlers for all signals, that only note what came; with these flags. */
void catch_signals(int flags);
/* Tells which signals came since the last call. */
void tell_signals(void);
/* A thread that runs this, and its end. */
int start_thread(void (*body)(void *), void *argument);
void await_thread(void);

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_futex_wake
#define SYS_futex_wake 454
#define SYS_futex_wait 455
#define SYS_futex_requeue 456
#endif
#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#define SYS_file_setattr 469
#endif
