/* Conformance: terminals and job control. */
#include "common.h"
#include <poll.h>
#include <pty.h>
#include <termios.h>

static int master = -1, slave = -1;

static void open_terminal(void)
{
    struct winsize size = {24, 80, 640, 480};
    close(master), close(slave);
    need(openpty(&master, &slave, NULL, NULL, &size) == 0, "openpty");
}

static void type_line(void)
{
    tcflush(slave, TCIOFLUSH);
    tcflush(master, TCIOFLUSH);
    need(write(master, "a typed line\n", 13) == 13, "write");
    struct pollfd ready = {slave, POLLIN, 0};
    poll(&ready, 1, 1000);
}

static void flushed(void) { tcflush(slave, TCIOFLUSH); }

static void nothing_typed(void)
{
    flushed();
    alarm_in(20);
}

/* What the other side sees. The kernel hands it over in pieces if it is busy. */
static void tell_master(long result)
{
    char bytes[200];
    long count = -1;
    struct pollfd ready = {master, POLLIN, 0};
    int wait = result > 0 ? 1000 : 0;
    for (long more = 0; more >= 0; wait = 50) {
        poll(&ready, 1, wait);
        fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
        long begun = count > 0 ? count : 0;
        more = read(master, bytes + begun, sizeof bytes - begun);
        fcntl(master, F_SETFL, O_RDWR);
        if (more >= 0)
            count = begun + more;
        if (more == 0)
            break;
    }
    tell("  master: %ld", count);
    for (long i = 0; i < count; i++)
        tell("%02x", (unsigned char)bytes[i]);
    tell("\n");
}

#define CONTROL(fd, request, ...) TRY(ioctl, .note = #request, .b = {V(fd), V(request), __VA_ARGS__})

CASE(attributes, "ioctl", open_terminal)
{
    struct termios now;
    unsigned char kernels[44] = {0};
    tcgetattr(slave, &now);
    RAW(ioctl, slave, 0x802c542a, kernels, 0, 0, 0);
    CONTROL(slave, TCGETS, O(36));
    CONTROL(slave, 0x802c542a /* TCGETS2 */, O(44));
    CONTROL(slave, TCGETA, O(18));
    CONTROL(slave, TCSETS, I(kernels, 36));
    CONTROL(slave, TCSETSW, I(kernels, 36));
    CONTROL(slave, TCSETSF, I(kernels, 36));
    CONTROL(slave, 0x402c542b /* TCSETS2 */, I(kernels, 44));
    CONTROL(slave, TCSBRK, V(1));
    CONTROL(slave, TCSBRKP, V(0));
    CONTROL(slave, TCXONC, V(1));
    CONTROL(slave, TCXONC, V(99));
    CONTROL(slave, TCFLSH, V(2));
    CONTROL(slave, TIOCGWINSZ, O(8));
    CONTROL(slave, TIOCSWINSZ, I("\30\0\120\0\1\0\2\0", 8));
    CONTROL(master, TIOCGWINSZ, O(8));
    CONTROL(slave, TIOCOUTQ, O(4));
    CONTROL(slave, FIONREAD, O(4));
    CONTROL(slave, TIOCGETD, O(4));
    CONTROL(slave, TIOCEXCL, V(0));
    CONTROL(slave, 0x80045440 /* TIOCGEXCL */, O(4));
    CONTROL(slave, TIOCNXCL, V(0));
    CONTROL(slave, TIOCGSOFTCAR, O(4));
    CONTROL(slave, TIOCSSOFTCAR, II(0));
    CONTROL(slave, TIOCMGET, O(4));
    CONTROL(slave, TIOCGSERIAL, O(72));
    CONTROL(slave, TIOCGICOUNT, O(80));
    CONTROL(master, 0x80045430 /* TIOCGPTN */, OH(4, "0+4"));
    CONTROL(master, 0x40045431 /* TIOCSPTLCK */, II(0));
    CONTROL(master, 0x80045439 /* TIOCGPTLCK */, O(4));
    CONTROL(master, TIOCPKT, II(0));
    CONTROL(master, 0x80045438 /* TIOCGPKT */, O(4));
    CONTROL(slave, TIOCGDEV, OH(4, "0+4"));
}

CASE(home_of_others, "", open_terminal)
{
    CONTROL(slave, TIOCSTI, I("x", 1));
    CONTROL(slave, TIOCSETD, II(77));
}

CASE(lines, "", open_terminal)
{
    TRY(read, .note = "line", .b = {V(slave), O(40), V(40)}, .before = type_line, .after = tell_master);
    TRY(read, .note = "part", .b = {V(slave), O(5), V(5)}, .before = type_line, .after = tell_master);
    TRY(read, .note = "interrupted", .b = {V(slave), O(5), V(5)}, .before = nothing_typed, .flags = ONCE);
    TRY(write, .note = "slave", .b = {V(slave), I("two\nlines\n", 10), V(10)}, .before = flushed,
        .after = tell_master);
    TRY(write, .note = "master", .b = {V(master), I("typed\n", 6), V(6)}, .after = tell_master);
    struct pollfd fds[] = {{slave, POLLIN | POLLOUT, 0}, {master, POLLIN | POLLOUT, 0}};
    TRY(poll, .note = "terminal", .b = {C(fds, 16), V(2), V(100)}, .before = type_line);
    struct termios raw;
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 1;
    tcsetattr(slave, TCSANOW, &raw);
    TRY(read, .note = "raw", .b = {V(slave), O(5), V(5)}, .before = type_line, .after = tell_master);
    alarm_in(0);
    tcflush(slave, TCIOFLUSH);
    TRY(read, .note = "time", .b = {V(slave), O(5), V(5)}, .flags = ONCE);
}

static void hang_up(void)
{
    open_terminal();
    close(master);
    master = -1;
}

CASE(hung_up, "", hang_up)
{
    TRY(read, .b = {V(slave), O(5), V(5)});
    TRY(write, .b = {V(slave), I("x", 1), V(1)});
    CONTROL(slave, TCGETS, O(36));
    CONTROL(slave, TIOCGWINSZ, O(8));
}

static void no_terminal(void)
{
    open_terminal();
}

CASE(sessions, "setsid getsid setpgid getpgid getpgrp", no_terminal)
{
    TRY(getsid, .b = {V(0)}, .flags = IDENTITY);
    TRY(getsid, .note = "own", .b = {V(getpid())}, .flags = IDENTITY);
    TRY(getsid, .note = "none", .b = {V(0x3fffffff)}, .flags = IDENTITY);
    TRY(getpgid, .b = {V(0)}, .flags = IDENTITY);
    TRY(getpgid, .note = "negative", .b = {V(-3)}, .flags = IDENTITY);
    TRY(getpgrp, .b = {V(0)}, .flags = IDENTITY);
    TRY(setpgid, .b = {V(0), V(0)});
    TRY(setpgid, .note = "none", .b = {V(0x3fffffff), V(0)});
    TRY(setpgid, .note = "negative", .b = {V(0), V(-3)});
    TRY(setpgid, .note = "another", .b = {V(1), V(0)});
    CONTROL(slave, TIOCGPGRP, OH(4, "0+4"));
    CONTROL(slave, TIOCGSID, OH(4, "0+4"));
    CONTROL(slave, TIOCSPGRP, II(getpid()));
    CONTROL(slave, TIOCSCTTY, V(0));
    CONTROL(slave, TIOCNOTTY, V(0));
    TRY(setsid, .b = {V(0)}, .flags = IDENTITY);
    TRY(setsid, .note = "again", .b = {V(0)}, .flags = IDENTITY);
}
