/* Lets a test program of CRIU's zdtm be moved: preloaded into it.
 *
 * Such a program forks itself into the background, and the two processes share a page by which the first
 * one learns that the test is ready. It keeps that page to its end, though nobody looks at it any more, and
 * shared memory would keep it where it is. So the page is private here, and the first process, which only
 * waits, is told through a pipe instead, of which nothing is left when the test is ready.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* As the library has them; out of the way of descriptors that tests count on. */
enum { STAGE_OF_FAILURE = 3, AWAY_FROM_OTHERS = 900 };

__attribute__((used, visibility("hidden"))) volatile uint32_t *stage;
__attribute__((used, visibility("hidden"))) int told = -1;
static int forked;

/* Whether the library is about to fork the test: it has set its handlers right before. */
static int is_setting_up(void)
{
    struct sigaction now;
    return sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    int is_stage = !stage && !address && length == 4096 && flags == (MAP_SHARED | MAP_ANONYMOUS) && is_setting_up();
    if (is_stage)
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *place = real(address, length, protection, flags, fd, offset);
    if (is_stage && place != MAP_FAILED)
        stage = place;
    return place;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

/* Until the test is ready, or gone, or the handler of SIGCHLD has set the stage. */
static void hear(int fd)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    uint32_t heard = STAGE_OF_FAILURE;
    while (*stage == 0) {
        int found = poll(&wait, 1, 1000);
        if (found == 0 || (found < 0 && errno == EINTR))
            continue;
        if (found > 0 && read(fd, &heard, sizeof heard) != sizeof heard)
            heard = STAGE_OF_FAILURE;
        *stage = heard;
    }
    close(fd);
}

pid_t fork(void)
{
    static pid_t (*real)(void);
    int ends[2];
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (!stage || forked)
        return real();
    forked = 1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        _exit(98);
    pid_t pid = real();
    int kept = errno;
    if (pid == 0) {
        told = fcntl(ends[1], F_DUPFD_CLOEXEC, AWAY_FROM_OTHERS);
        close(ends[0]);
        close(ends[1]);
    } else {
        close(ends[1]);
        if (pid > 0)
            hear(ends[0]);
    }
    errno = kept;
    return pid;
}

/* Tests hold values in vector registers over this, as the library's own function lets them: nothing here may
 * touch any. When the test wakes those who wait for its stage, the stage goes to the first process, once. */
__asm__(".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    cmp $202, %rdi\n" /* futex */
        "    jne 1f\n"
        "    cmpl $1, %edx\n" /* FUTEX_WAKE */
        "    jne 1f\n"
        "    cmpl $0, told(%rip)\n"
        "    jl 1f\n"
        "    cmp stage(%rip), %rsi\n"
        "    jne 1f\n"
        "    push %rdi\n"
        "    push %rdx\n"
        "    mov told(%rip), %edi\n"
        "    mov $4, %edx\n"
        "    mov $1, %eax\n" /* write */
        "    syscall\n"
        "    mov $3, %eax\n" /* close */
        "    syscall\n"
        "    movl $-1, told(%rip)\n"
        "    pop %rdx\n"
        "    pop %rdi\n"
        "1:  mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmp $-4095, %rax\n"
        "    jae 2f\n"
        "    ret\n"
        "2:  neg %eax\n"
        "    push %rax\n"
        "    call __errno_location@PLT\n"
        "    pop %rcx\n"
        "    mov %ecx, (%rax)\n"
        "    mov $-1, %rax\n"
        "    ret\n"
        ".size syscall, . - syscall\n");
