/* Makes system calls in all variations and tells, byte by byte, what came of them.
 *
 *   FAMILY          runs the cases of a family, one after the other
 *   FAMILY NAME     runs one
 *
 * Before and after each case it prints `ready PID` and waits for a line, so that it can be moved.
 * Everything else that it prints is the transcript: it must not depend on where the case ran. What
 * differs by nature from run to run is made equal here, and only here: ids of processes (identity),
 * the working directory (in shown bytes), and what a buffer's `hide` names.
 *
 * Each buffer has an area of its own between two pages that nobody may touch. The variations:
 * buffers in the middle of a page; with their last byte on a second page (a shape that is too short
 * shows as EFAULT or a short count); at the very end of what is mapped (one that is too long); and
 * for each buffer alone a null pointer, one to a page without rights, one to the kernel's half, one
 * that becomes invalid half-way, and for outputs one to a page that is only readable.
 *
 * All bytes around a buffer are a pattern, and every change of any byte in any area is told.
 */
#include "common.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>

enum { PAGE = 4096, SHOWN = 40, GAP = 4, TRANSCRIPT = 4 << 20 };

static struct test *first, **last = &first;
static char transcript[TRANSCRIPT];
static size_t told;
static char base[PATH_MAX];

void add(struct test *test)
{
    *last = test;
    last = &test->next;
}

long raw(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

void need(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fault: %s: %s\n", what, strerror(errno));
    exit(3);
}

void tell(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(transcript + told, TRANSCRIPT - told, format, list);
    va_end(list);
    need(length >= 0 && told + length < TRANSCRIPT, "room for the transcript");
    told += length;
}

static void flush(void)
{
    size_t at = 0;
    while (at < told) {
        ssize_t done = write(1, transcript + at, told - at);
        need(done > 0, "write the transcript");
        at += done;
    }
    told = 0;
}

/* ---- what differs by nature ---- */

static struct {
    long id;
    const char *name;
} identities[32];
static int known;

void name_identity(long id, const char *name)
{
    for (int i = 0; i < known; i++)
        if (identities[i].id == id) {
            identities[i].name = name;
            return;
        }
    need(known < 32, "room for a name");
    identities[known].id = id;
    identities[known++].name = name;
}

const char *identity(long id)
{
    static char other[32];
    if (id <= 0) {
        snprintf(other, sizeof other, "%ld", id);
        return other;
    }
    for (int i = 0; i < known; i++)
        if (identities[i].id == id)
            return identities[i].name;
    return "another";
}

static int is_hidden(const char *hide, size_t at)
{
    while (hide && *hide) {
        char *end;
        size_t from = strtoul(hide, &end, 10);
        size_t length = strtoul(end + 1, &end, 10);
        if (at >= from && at < from + length)
            return 1;
        hide = *end ? end + 1 : end;
    }
    return 0;
}

/* ---- signals ---- */

static volatile struct note {
    int signal, code;
    long from, value;
} notes[64];
static volatile int noted;
static int armed;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int place = __atomic_fetch_add(&noted, 1, __ATOMIC_SEQ_CST);
    if (place >= 64)
        return;
    notes[place].signal = signal;
    notes[place].code = info->si_code;
    int has_pid = info->si_code <= 0 && info->si_code != SI_TIMER && info->si_code != SI_SIGIO;
    has_pid |= signal == SIGCHLD;
    notes[place].from = has_pid ? info->si_pid : -1;
    int has_value = info->si_code == SI_QUEUE || info->si_code == SI_TIMER || info->si_code == SI_MESGQ;
    notes[place].value = has_value ? info->si_value.sival_int : 0;
}

void catch_signals(int flags)
{
    for (int signal = 1; signal < 65; signal++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
        if (signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33)
            continue;
        /* Faults of the program itself have to end it. */
        if (signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL)
            continue;
        sigaction(signal, &action, NULL);
    }
}

void tell_signals(void)
{
    int count = noted < 64 ? noted : 64;
    for (int i = 0; i < count; i++) {
        if (i > 0 && notes[i].signal == SIGALRM && notes[i - 1].signal == SIGALRM)
            continue;
        tell(" !%d(%d", notes[i].signal, notes[i].code);
        if (notes[i].from >= 0)
            tell(",%s", identity(notes[i].from));
        if (notes[i].value)
            tell(",%ld", notes[i].value);
        tell(")");
    }
    noted = 0;
}

void alarm_in(long milliseconds)
{
    /* Again and again until the call is over: the first may come before the call has begun. */
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    struct itimerval timer = {time, time};
    armed = milliseconds > 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

void stop_here(void)
{
    char line[16];
    alarm_in(0);
    noted = 0;
    tell("ready %d\n", getpid());
    flush();
    need(read(0, line, sizeof line) > 0, "a line");
}

/* ---- areas ---- */

static struct area {
    unsigned char *start; /* of what may be used */
    unsigned char *copy;  /* of it before the call */
    size_t pages;
    size_t used;          /* by the present call */
} areas[BUFFERS];

enum layout { MIDDLE, SPLIT, EDGE };
static const char *const layouts[] = {"middle", "split", "edge"};
enum bad { FINE, NULL_POINTER, NO_RIGHTS, KERNEL, CUT, READ_ONLY };
static const char *const bads[] = {"fine", "null", "no_rights", "kernel", "cut", "read_only"};

static struct area *area_of(int index, size_t size)
{
    struct area *area = &areas[index];
    size_t pages = 2 * ((size + PAGE - 1) / PAGE);
    if (pages < 2)
        pages = 2;
    if (area->pages < pages) {
        if (area->start) {
            munmap(area->start - PAGE, (area->pages + 2) * PAGE);
            munmap(area->copy, area->pages * PAGE);
        }
        unsigned char *all = mmap(NULL, (pages + 2) * PAGE, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        area->copy = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(all != MAP_FAILED && area->copy != MAP_FAILED, "mmap");
        area->start = all + PAGE;
        area->pages = pages;
        need(mprotect(area->start, pages * PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    }
    /* The used part lies at the end, before the page without rights. */
    area->used = pages * PAGE;
    return area;
}

static unsigned char *begin_of(const struct area *area)
{
    return area->start + area->pages * PAGE - area->used;
}

static unsigned char *place(const struct area *area, size_t size, enum layout layout, enum bad bad)
{
    unsigned char *begin = begin_of(area), *end = begin + area->used;
    switch (bad) {
    case NULL_POINTER: return NULL;
    case NO_RIGHTS: return end + 8;
    case KERNEL: return (unsigned char *)0xffff888000001000;
    case CUT: return end - size / 2;
    default: break;
    }
    switch (layout) {
    case SPLIT: return begin + area->used / 2 - (size ? size - 1 : 0);
    case EDGE: return end - size;
    default: return begin + 64;
    }
}

/* The bytes as they are shown: without the working directory's name. */
static void show_bytes(unsigned char *bytes, size_t length)
{
    size_t root = strlen(base);
    unsigned char *found = bytes;
    while ((found = memmem(found, bytes + length - found, base, root)))
        memset(found, 'B', root);
    size_t shown = length > SHOWN ? SHOWN / 2 : length;
    for (size_t i = 0; i < shown; i++)
        tell("%02x", bytes[i]);
    if (shown == length)
        return;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    tell("..%016lx", hash);
}

/* Tells every change in an area; offsets count from the buffer's begin. */
static void tell_changes(int index, const struct buffer *buffer, const unsigned char *where)
{
    const struct area *area = &areas[index];
    unsigned char *begin = begin_of(area);
    unsigned char *before = area->copy + area->pages * PAGE - area->used;
    unsigned char shown[4 * PAGE];
    size_t at = 0;
    int hidden = 0;
    while (at < area->used) {
        if (begin[at] == before[at]) {
            at++;
            continue;
        }
        size_t offset = begin + at - where;
        if (begin + at >= where && is_hidden(buffer->hide, offset)) {
            hidden = 1;
            at++;
            continue;
        }
        size_t end = at + 1, same = 0;
        for (size_t i = end; i < area->used && same < GAP && end - at < sizeof shown; i++) {
            if (is_hidden(buffer->hide, begin + i - where))
                break;
            same = begin[i] == before[i] ? same + 1 : 0;
            if (!same)
                end = i + 1;
        }
        size_t length = end - at < sizeof shown ? end - at : sizeof shown;
        memcpy(shown, begin + at, length);
        tell(" %d%+ld+%zu:", index, (long)(begin + at - where), length);
        show_bytes(shown, length);
        at += length;
    }
    if (hidden)
        tell(" %d~", index);
}

static void tell_result(const struct spec *spec, long result)
{
    if (result < 0 && result >= -4095) {
        const char *name = strerrorname_np(-result);
        tell(" = -%s", name ? name : "errno?");
        if (!name)
            tell("%ld", -result);
    } else if (spec->flags & IDENTITY) {
        tell(" = %s", identity(result));
    } else if (spec->flags & HIDDEN) {
        tell(" = done");
    } else {
        tell(" = %ld", result);
    }
}

static void clean_up(const struct spec *spec, long result, const unsigned char *first_buffer)
{
    if (result >= 0 && spec->flags & CLOSES)
        RAW(close, result, 0, 0, 0, 0, 0);
    int ends[2];
    if (result >= 0 && spec->flags & STARTS) {
        memcpy(ends, first_buffer, sizeof ends);
        RAW(close, ends[0], 0, 0, 0, 0, 0);
        RAW(close, ends[1], 0, 0, 0, 0, 0);
    }
}

static void vary(const struct spec *spec, enum layout layout, int odd, enum bad bad)
{
    unsigned char *where[BUFFERS] = {0};
    if (spec->before)
        spec->before();
    noted = 0;
    for (int i = 0; i < BUFFERS; i++) {
        const struct buffer *buffer = &spec->b[i];
        if (buffer->kind != BUFFER)
            continue;
        struct area *area = area_of(i, buffer->size);
        enum bad how = i == odd ? bad : FINE;
        where[i] = place(area, buffer->size, layout, how);
        memset(begin_of(area), PATTERN, area->used);
        unsigned char *end = begin_of(area) + area->used;
        if (where[i] >= begin_of(area) && where[i] < end && buffer->given) {
            size_t room = end - where[i];
            memcpy(where[i], buffer->data, buffer->given < room ? buffer->given : room);
        }
    }
    for (int i = 0; i < REFERENCES; i++) {
        const struct reference *link = &spec->r[i];
        if (link->in == 0 && link->to == 0)
            break;
        unsigned char *end = begin_of(&areas[link->in]) + areas[link->in].used;
        unsigned char *at = where[link->in] + link->at;
        if (at >= begin_of(&areas[link->in]) && at + 8 <= end)
            memcpy(at, &where[link->to], 8);
    }
    long arguments[6];
    for (int i = 0; i < 6; i++)
        arguments[i] = spec->b[i].kind == BUFFER ? (long)where[i] : spec->b[i].value;
    for (int i = 0; i < BUFFERS; i++) {
        struct area *area = &areas[i];
        if (spec->b[i].kind != BUFFER)
            continue;
        memcpy(area->copy + area->pages * PAGE - area->used, begin_of(area), area->used);
        if (i == odd && bad == READ_ONLY)
            mprotect(begin_of(area), area->used, PROT_READ);
    }
    long result = raw(spec->number, arguments[0], arguments[1], arguments[2], arguments[3],
                      arguments[4], arguments[5]);
    if (armed)
        alarm_in(0);
    if (odd >= 0 && bad == READ_ONLY)
        mprotect(begin_of(&areas[odd]), areas[odd].used, PROT_READ | PROT_WRITE);
    tell("%s%s%s ", spec->name, spec->note ? ":" : "", spec->note ? spec->note : "");
    if (bad == FINE)
        tell("%s", layouts[layout]);
    else
        tell("%d.%s", odd, bads[bad]);
    tell_result(spec, result);
    for (int i = 0; i < BUFFERS; i++)
        if (spec->b[i].kind == BUFFER)
            tell_changes(i, &spec->b[i], where[i]);
    tell_signals();
    tell("\n");
    int bad_first = odd == 0 && bad != FINE;
    if (!bad_first)
        clean_up(spec, result, where[0]);
    if (spec->after)
        spec->after(result);
}

void try(const struct spec *spec)
{
    vary(spec, MIDDLE, -1, FINE);
    if (spec->flags & ONCE)
        return;
    int has_buffer = 0;
    for (int i = 0; i < BUFFERS; i++)
        has_buffer |= spec->b[i].kind == BUFFER;
    if (!has_buffer)
        return;
    if (!(spec->flags & ALIGNED))
        vary(spec, SPLIT, -1, FINE);
    vary(spec, EDGE, -1, FINE);
    if (spec->flags & GOOD)
        return;
    for (int i = 0; i < BUFFERS; i++) {
        if (spec->b[i].kind != BUFFER)
            continue;
        if (!(spec->flags & NO_NULL))
            vary(spec, MIDDLE, i, NULL_POINTER);
        vary(spec, MIDDLE, i, NO_RIGHTS);
        vary(spec, MIDDLE, i, KERNEL);
        if (spec->b[i].size > 1 && !(spec->flags & ALIGNED))
            vary(spec, MIDDLE, i, CUT);
        if (spec->b[i].is_output)
            vary(spec, MIDDLE, i, READ_ONLY);
    }
}

/* ---- threads ---- */

static pthread_t thread;
static struct {
    void (*body)(void *);
    void *argument;
} work;
static volatile int thread_id;

static void *work_on(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    thread_id = gettid();
    work.body(work.argument);
    return unused;
}

int start_thread(void (*body)(void *), void *argument)
{
    work.body = body;
    work.argument = argument;
    thread_id = 0;
    need(pthread_create(&thread, NULL, work_on, NULL) == 0, "pthread_create");
    while (!thread_id)
        sched_yield();
    name_identity(thread_id, "thread");
    return thread_id;
}

void await_thread(void)
{
    pthread_join(thread, NULL);
}

/* ---- the driver ---- */

static void name_own(void)
{
    name_identity(getppid(), "parent");
    name_identity(getpgrp(), "group");
    name_identity(getsid(0), "session");
    name_identity(getpid(), "self");
}

int main(int argc, char **argv)
{
    RAW(close_range, 3, ~0u, 0, 0, 0, 0);
    need(getcwd(base, sizeof base) != NULL, "getcwd");
    umask(022);
    catch_signals(0);
    for (struct test *test = first; test; test = test->next) {
        if (argc > 1 && strcmp(argv[1], test->name) != 0)
            continue;
        name_own();
        if (test->prepare)
            test->prepare();
        tell("case %s\n", test->name);
        stop_here();
        test->run();
        tell("covers %s\n", test->covers);
        tell("end %s\n", test->name);
        stop_here();
    }
    flush();
    raw(SYS_exit_group, 7, 0, 0, 0, 0, 0);
}
