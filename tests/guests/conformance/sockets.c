/* Conformance: sockets of the internet and of the machine. */
#include "common.h"
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

static int stream[2] = {-1, -1}, grams[2] = {-1, -1}, listener = -1, client = -1, server = -1;
static int udp = -1, other = -1;
static struct sockaddr_in udp_name, other_name, tcp_name;

/* The port's two bytes are hidden, and each alone when a name is cut: neither is the pattern's. */
static int bound(int type, struct sockaddr_in *name)
{
    for (;;) {
        int fd = socket(AF_INET, type, 0);
        socklen_t length = sizeof *name;
        *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        need(fd >= 0 && bind(fd, (void *)name, sizeof *name) == 0, "bind");
        need(getsockname(fd, (void *)name, &length) == 0, "getsockname");
        if ((name->sin_port & 0xff) != PATTERN && name->sin_port >> 8 != PATTERN)
            return fd;
        close(fd);
    }
}

static void open_sockets(void)
{
    int *all[] = {&stream[0], &stream[1], &grams[0], &grams[1], &listener, &client, &server, &udp, &other};
    for (int i = 0; i < 9; i++)
        close(*all[i]);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0, "socketpair");
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, grams) == 0, "socketpair");
    udp = bound(SOCK_DGRAM, &udp_name);
    other = bound(SOCK_DGRAM, &other_name);
    listener = bound(SOCK_STREAM, &tcp_name);
    need(listen(listener, 200) == 0, "listen");
    struct sockaddr_in client_name;
    client = bound(SOCK_STREAM, &client_name);
    need(connect(client, (void *)&tcp_name, sizeof tcp_name) == 0, "connect");
    server = accept(listener, NULL, NULL);
    need(server >= 0, "accept");
}

/* Takes everything out of a socket without waiting; tells how much there was. */
static long empty(int fd)
{
    static char bytes[100000];
    long all = 0, count;
    while ((count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        all += count;
    return all;
}

static void tell_rest(long result)
{
    tell("  rest: stream %ld %ld grams %ld %ld tcp %ld %ld udp %ld %ld\n", empty(stream[0]), empty(stream[1]),
         empty(grams[0]), empty(grams[1]), empty(client), empty(server), empty(udp), empty(other));
    (void)result;
}

static void fill_stream(void)
{
    empty(stream[1]);
    need(send(stream[0], "a stream of bytes", 17, 0) == 17, "send");
}

static void fill_grams(void)
{
    empty(grams[1]);
    need(send(grams[0], "datagram", 8, 0) == 8, "send");
    need(send(grams[0], "another one", 11, 0) == 11, "send");
}

static void fill_udp(void)
{
    empty(udp);
    for (int i = 0; i < 3; i++)
        need(sendto(other, "udp datagram", 12 - i, 0, (void *)&udp_name, sizeof udp_name) > 0, "sendto");
    struct pollfd ready = {udp, POLLIN, 0};
    poll(&ready, 1, 1000);
}

static void fill_tcp(void)
{
    empty(server);
    need(send(client, "over the net", 12, 0) == 12, "send");
    struct pollfd ready = {server, POLLIN, 0};
    poll(&ready, 1, 1000);
}

static void interrupt_soon(void)
{
    empty(stream[1]);
    alarm_in(20);
}

CASE(making, "socket socketpair bind listen connect accept accept4 getsockname getpeername shutdown",
     open_sockets)
{
    TRY(socket, .b = {V(AF_INET), V(SOCK_STREAM), V(0)}, .flags = CLOSES);
    TRY(socket, .note = "unknown", .b = {V(77), V(SOCK_STREAM), V(0)}, .flags = CLOSES);
    TRY(socket, .note = "protocol", .b = {V(AF_INET), V(SOCK_STREAM), V(77)}, .flags = CLOSES);
    TRY(socketpair, .b = {V(AF_UNIX), V(SOCK_STREAM), V(0), O(8)});
    RAW(close_range, 20, 200, 0, 0, 0, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    TRY(bind, .b = {V(fd), I(&any, sizeof any), V(16)});
    TRY(bind, .note = "short", .b = {V(fd), I(&any, sizeof any), V(5)});
    TRY(bind, .note = "long", .b = {V(fd), I(&any, sizeof any), V(500)});
    TRY(bind, .note = "negative", .b = {V(fd), I(&any, sizeof any), V(-1)});
    TRY(bind, .note = "used", .b = {V(udp), I(&tcp_name, sizeof any), V(16)});
    TRY(listen, .b = {V(fd), V(5)});
    TRY(listen, .note = "udp", .b = {V(udp), V(5)});
    close(fd);
    struct sockaddr_un name = {AF_UNIX, "socket"}, missing = {AF_UNIX, "missing"};
    unlink("socket");
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(bind, .note = "unix", .b = {V(fd), I(&name, 10), V(10)}, .flags = ONCE);
    TRY(getsockname, .note = "unix", .b = {V(fd), O(110), CI(110)});
    TRY(getsockname, .note = "short", .b = {V(fd), O(5), CI(5)});
    TRY(getsockname, .note = "negative", .b = {V(fd), O(5), CI(-5)});
    TRY(getsockname, .note = "file", .b = {V(0), O(5), CI(5)});
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    TRY(connect, .b = {V(fd), I(&missing, 110), V(110)});
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    TRY(connect, .note = "tcp", .b = {V(fd), I(&tcp_name, 16), V(16)}, .flags = ONCE);
    struct pollfd ready = {listener, POLLIN, 0};
    poll(&ready, 1, 1000);
    TRY(accept, .b = {V(listener), OH(16, "2+2"), CI(16)}, .flags = CLOSES | ONCE);
    TRY(connect, .note = "again", .b = {V(fd), I(&tcp_name, 16), V(16)}, .flags = ONCE);
    close(fd);
    TRY(getpeername, .b = {V(client), OH(16, "2+2"), CI(16)});
    TRY(getpeername, .note = "none", .b = {V(udp), OH(16, "2+2"), CI(16)});
    TRY(getsockname, .b = {V(client), OH(16, "2+2"), CI(16)});
    TRY(shutdown, .b = {V(stream[0]), V(SHUT_WR)});
    TRY(shutdown, .note = "how", .b = {V(stream[0]), V(7)});
    TRY(shutdown, .note = "udp", .b = {V(udp), V(SHUT_RD)});
    TRY(read, .note = "ended", .b = {V(stream[1]), O(10), V(10)});
    TRY(write, .note = "ended", .b = {V(stream[0]), I("x", 1), V(1)});
}

static void one_more(void)
{
    struct pollfd ready = {listener, POLLIN, 0};
    struct sockaddr_in name;
    int fd = bound(SOCK_STREAM, &name);
    int left;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    while ((left = accept(listener, NULL, NULL)) >= 0)
        close(left);
    fcntl(listener, F_SETFL, 0);
    need(connect(fd, (void *)&tcp_name, sizeof tcp_name) == 0, "connect");
    poll(&ready, 1, 1000);
    close(fd);
}

static void none_soon(void)
{
    int left;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    while ((left = accept(listener, NULL, NULL)) >= 0)
        close(left);
    fcntl(listener, F_SETFL, 0);
    alarm_in(20);
}

CASE(accepting, "", open_sockets)
{
    TRY(accept, .b = {V(listener), OH(16, "2+2"), CI(16)}, .before = one_more, .flags = CLOSES);
    TRY(accept, .note = "short", .b = {V(listener), OH(5, "2+2"), CI(5)}, .before = one_more, .flags = CLOSES);
    TRY(accept4, .b = {V(listener), OH(16, "2+2"), CI(16), V(SOCK_CLOEXEC)}, .before = one_more, .flags = CLOSES);
    TRY(accept4, .note = "flags", .b = {V(listener), OH(16, "2+2"), CI(16), V(-1)}, .before = one_more,
        .flags = CLOSES);
    TRY(accept, .note = "interrupted", .b = {V(listener), V(0), V(0)}, .before = none_soon, .flags = ONCE);
    TRY(accept, .note = "udp", .b = {V(udp), V(0), V(0)});
}

CASE(sending, "sendto recvfrom", open_sockets)
{
    static char large[9000] = "large";
    TRY(sendto, .b = {V(stream[0]), I("0123456789", 10), V(10), V(0), V(0), V(0)}, .after = tell_rest);
    TRY(sendto, .note = "large", .b = {V(stream[0]), I(large, 9000), V(9000), V(0), V(0), V(0)},
        .after = tell_rest);
    TRY(sendto, .note = "grams", .b = {V(grams[0]), I("0123456789", 10), V(10), V(0), V(0), V(0)},
        .after = tell_rest);
    TRY(sendto, .note = "too_large", .b = {V(udp), I(large, 9000), V(70000), V(0), I(&other_name, 16), V(16)},
        .flags = ONCE);
    TRY(sendto, .note = "udp", .b = {V(udp), I("0123456789", 10), V(10), V(0), I(&other_name, 16), V(16)},
        .after = tell_rest);
    TRY(sendto, .note = "nowhere", .b = {V(udp), I("0123456789", 10), V(10), V(0), V(0), V(0)});
    TRY(sendto, .note = "length", .b = {V(udp), I("0123456789", 10), V(10), V(0), I(&other_name, 16), V(-1)});
    TRY(sendto, .note = "file", .b = {V(0), I("0123456789", 10), V(10), V(0), V(0), V(0)});
    TRY(recvfrom, .b = {V(stream[1]), O(10), V(10), V(0), V(0), V(0)}, .before = fill_stream, .after = tell_rest);
    TRY(recvfrom, .note = "peek", .b = {V(stream[1]), O(10), V(10), V(MSG_PEEK), V(0), V(0)},
        .before = fill_stream, .after = tell_rest);
    TRY(recvfrom, .note = "grams", .b = {V(grams[1]), O(10), V(10), V(0), V(0), V(0)}, .before = fill_grams,
        .after = tell_rest);
    TRY(recvfrom, .note = "truncated", .b = {V(grams[1]), O(3), V(3), V(MSG_TRUNC), V(0), V(0)},
        .before = fill_grams, .after = tell_rest);
    TRY(recvfrom, .note = "udp", .b = {V(udp), O(20), V(20), V(0), OH(16, "2+2"), CI(16)}, .before = fill_udp,
        .after = tell_rest);
    TRY(recvfrom, .note = "name_short", .b = {V(udp), O(20), V(20), V(0), OH(7, "2+2"), CI(7)},
        .before = fill_udp, .after = tell_rest);
    TRY(recvfrom, .note = "tcp", .b = {V(server), O(20), V(20), V(0), O(16), CI(16)}, .before = fill_tcp,
        .after = tell_rest);
    TRY(recvfrom, .note = "none", .b = {V(udp), O(20), V(20), V(MSG_DONTWAIT), V(0), V(0)});
    TRY(recvfrom, .note = "interrupted", .b = {V(stream[1]), O(20), V(20), V(0), V(0), V(0)},
        .before = interrupt_soon, .flags = ONCE);
    struct timeval little = {0, 5000};
    setsockopt(stream[1], SOL_SOCKET, SO_RCVTIMEO, &little, sizeof little);
    TRY(recvfrom, .note = "time", .b = {V(stream[1]), O(20), V(20), V(0), V(0), V(0)}, .flags = ONCE);
}

/* struct msghdr: name 0, its length 8, pieces 16, their number 24, control 32, its length 40,
 * flags 48. */
#define HEADER(name, names, pieces, count, controls) LONGS(0, names, 0, count, 0, controls, 0)

static char control[64];
static size_t with_descriptors(int count)
{
    struct cmsghdr *head = (void *)control;
    *head = (struct cmsghdr){CMSG_LEN(4 * count), SOL_SOCKET, SCM_RIGHTS};
    for (int i = 0; i < count; i++)
        memcpy(CMSG_DATA(head) + 4 * i, &udp, 4);
    return CMSG_SPACE(4 * count);
}

static void fill_rights(void)
{
    struct iovec piece = {"with rights", 11};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = with_descriptors(2);
    empty(stream[1]);
    need(sendmsg(stream[0], &message, 0) == 11, "sendmsg");
}

/* Received descriptors are the next free ones, everywhere the same. */
static void close_received(long result)
{
    RAW(close_range, 20, 200, 0, 0, 0, 0);
    tell_rest(result);
}

CASE(messages, "sendmsg recvmsg", open_sockets)
{
    long plain[7] = {0, 0, 0, 2, 0, 0, 0}, named[7] = {0, 16, 0, 2, 0, 0, 0}, wrong[7] = {0, -1, 0, 2, 0, 0, 0};
    long right[7] = {0, 0, 0, 1, 0, with_descriptors(2), 0}, room[7] = {0, 0, 0, 1, 0, 64, 0};
    long many[7] = {0, 0, 0, 2000, 0, 0, 0}, little[7] = {0, 0, 0, 1, 0, 20, 0};
    TRY(sendmsg, .b = {V(stream[0]), I(plain, 56), V(0), [6] = IL(0, 5, 0, 4), I("01234", 5), I("5678", 4)},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}}, .after = tell_rest);
    TRY(sendmsg, .note = "named", .b = {V(udp), I(named, 56), V(0), [6] = IL(0, 5, 0, 4), I("01234", 5), I("5678", 4), I(&other_name, 16)},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}, {1, 0, 9}}, .after = tell_rest);
    TRY(sendmsg, .note = "wrong", .b = {V(udp), I(wrong, 56), V(0), [6] = IL(0, 5, 0, 4), I("01234", 5), I("5678", 4), I(&other_name, 16)},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}, {1, 0, 9}}, .after = tell_rest);
    TRY(sendmsg, .note = "many", .b = {V(stream[0]), I(many, 56), V(0), [6] = IL(0, 5)}, .r = {{1, 16, 6}});
    TRY(sendmsg, .note = "rights", .b = {V(stream[0]), I(right, 56), V(0), [6] = IL(0, 5), I("01234", 5), I(control, right[5])},
        .r = {{1, 16, 6}, {6, 0, 7}, {1, 32, 8}}, .after = tell_rest);
    TRY(recvmsg, .b = {V(stream[1]), C(plain, 56), V(0), [6] = IL(0, 5, 0, 40), O(5), O(40)},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}}, .before = fill_stream, .after = tell_rest);
    TRY(recvmsg, .note = "grams", .b = {V(grams[1]), C(plain, 56), V(0), [6] = IL(0, 5, 0, 2), O(5), O(2)},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}}, .before = fill_grams, .after = tell_rest);
    TRY(recvmsg, .note = "udp", .b = {V(udp), C(named, 56), V(0), [6] = IL(0, 5, 0, 40), O(5), O(40), OH(16, "2+2")},
        .r = {{1, 16, 6}, {6, 0, 7}, {6, 16, 8}, {1, 0, 9}}, .before = fill_udp, .after = tell_rest);
    TRY(recvmsg, .note = "rights", .b = {V(stream[1]), C(room, 56), V(0), [6] = IL(0, 40), O(40), O(64)},
        .r = {{1, 16, 6}, {6, 0, 7}, {1, 32, 8}}, .before = fill_rights, .after = close_received);
    TRY(recvmsg, .note = "little_room", .b = {V(stream[1]), C(little, 56), V(0), [6] = IL(0, 40), O(40), O(20)},
        .r = {{1, 16, 6}, {6, 0, 7}, {1, 32, 8}}, .before = fill_rights, .after = close_received);
    TRY(recvmsg, .note = "none", .b = {V(stream[1]), C(room, 56), V(MSG_DONTWAIT), [6] = IL(0, 40), O(40), O(64)},
        .r = {{1, 16, 6}, {6, 0, 7}, {1, 32, 8}});
    int on = 1;
    setsockopt(stream[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    TRY(recvmsg, .note = "credentials", .b = {V(stream[1]), C(room, 56), V(0), [6] = IL(0, 40), O(40), OH(64, "16+4")},
        .r = {{1, 16, 6}, {6, 0, 7}, {1, 32, 8}}, .before = fill_stream, .after = tell_rest);
}

CASE(many_messages, "sendmmsg recvmmsg", open_sockets)
{
    long two[16] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, second[] = {1, 0};
    TRY(sendmmsg, .b = {V(grams[0]), C(two, 128), V(2), V(0), [6] = IL(0, 5), IL(0, 4), I("01234", 5), I("5678", 4)},
        .r = {{1, 16, 6}, {1, 80, 7}, {6, 0, 8}, {7, 0, 9}}, .after = tell_rest);
    TRY(recvmmsg, .b = {V(grams[1]), C(two, 128), V(2), V(0), V(0), [6] = IL(0, 5), IL(0, 40), O(5), O(40)},
        .r = {{1, 16, 6}, {1, 80, 7}, {6, 0, 8}, {7, 0, 9}}, .before = fill_grams, .after = tell_rest);
    TRY(recvmmsg, .note = "time", .b = {V(grams[1]), C(two, 128), V(2), V(0), CH(second, 16, "0+16"), [6] = IL(0, 5), IL(0, 40), O(5), O(40)},
        .r = {{1, 16, 6}, {1, 80, 7}, {6, 0, 8}, {7, 0, 9}}, .before = fill_grams, .after = tell_rest);
    TRY(recvmmsg, .note = "none", .b = {V(grams[1]), C(two, 128), V(2), V(MSG_DONTWAIT), V(0), [6] = IL(0, 5), IL(0, 40), O(5), O(40)},
        .r = {{1, 16, 6}, {1, 80, 7}, {6, 0, 8}, {7, 0, 9}}, .after = tell_rest);
}

#define GET(fd, level, option, size, hide)                                               \
    TRY(getsockopt, .note = #option, .b = {V(fd), V(level), V(option), OH(size, hide), CI(size)})
#define SET(fd, level, option, ...)                                                      \
    TRY(setsockopt, .note = #option, .b = {V(fd), V(level), V(option), II(__VA_ARGS__), V(sizeof INTS(__VA_ARGS__))})

CASE(options, "getsockopt setsockopt", open_sockets)
{
    GET(client, SOL_SOCKET, SO_TYPE, 4, "");
    GET(client, SOL_SOCKET, SO_ERROR, 4, "");
    GET(client, SOL_SOCKET, SO_RCVTIMEO, 16, "");
    GET(client, SOL_SOCKET, SO_LINGER, 8, "");
    GET(client, SOL_SOCKET, SO_RCVBUF, 4, "0+4");
    GET(client, SOL_SOCKET, SO_ACCEPTCONN, 4, "");
    GET(client, SOL_SOCKET, SO_PROTOCOL, 4, "");
    GET(client, SOL_SOCKET, SO_DOMAIN, 4, "");
    GET(client, SOL_SOCKET, SO_COOKIE, 8, "0+8");
    GET(stream[0], SOL_SOCKET, SO_PEERCRED, 12, "0+4");
    GET(client, SOL_SOCKET, SO_BINDTODEVICE, 16, "");
    GET(client, IPPROTO_TCP, TCP_NODELAY, 4, "");
    GET(client, IPPROTO_TCP, TCP_INFO, 240, "0+240");
    GET(client, IPPROTO_TCP, TCP_CONGESTION, 16, "");
    GET(client, IPPROTO_IP, IP_TTL, 4, "");
    GET(client, IPPROTO_IP, IP_MTU, 4, "");
    GET(client, IPPROTO_IP, IP_OPTIONS, 40, "");
    GET(client, SOL_SOCKET, SO_TYPE, 2, "");
    GET(client, SOL_SOCKET, 999, 4, "");
    TRY(getsockopt, .note = "negative", .b = {V(client), V(SOL_SOCKET), V(SO_TYPE), O(4), CI(-1)});
    TRY(getsockopt, .note = "file", .b = {V(0), V(SOL_SOCKET), V(SO_TYPE), O(4), CI(4)});
    SET(client, SOL_SOCKET, SO_KEEPALIVE, 1);
    SET(client, SOL_SOCKET, SO_REUSEADDR, 1);
    SET(client, SOL_SOCKET, SO_SNDBUF, 20000);
    SET(client, SOL_SOCKET, SO_LINGER, 1, 0);
    SET(client, IPPROTO_TCP, TCP_NODELAY, 1);
    SET(client, IPPROTO_TCP, TCP_KEEPIDLE, 100);
    SET(client, IPPROTO_TCP, TCP_KEEPIDLE, -100);
    SET(udp, IPPROTO_IP, IP_TTL, 9);
    SET(udp, IPPROTO_IP, IP_TTL, 900);
    SET(udp, IPPROTO_IP, IP_RECVTTL, 1);
    struct ip_mreqn member = {{htonl(0xe0000102)}, {htonl(INADDR_LOOPBACK)}, 0};
    TRY(setsockopt, .note = "IP_MULTICAST_IF", .b = {V(udp), V(IPPROTO_IP), V(IP_MULTICAST_IF), I(&member, 12), V(12)});
    TRY(setsockopt, .note = "congestion", .b = {V(client), V(IPPROTO_TCP), V(TCP_CONGESTION), I("reno", 4), V(4)});
    TRY(setsockopt, .note = "short", .b = {V(client), V(SOL_SOCKET), V(SO_KEEPALIVE), I("x", 1), V(1)});
    struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 0xffff}};
    long program[] = {1, 0};
    TRY(setsockopt, .note = "SO_ATTACH_FILTER", .b = {V(udp), V(SOL_SOCKET), V(SO_ATTACH_FILTER), I(program, 16), V(16), [6] = I(code, 8)},
        .r = {{3, 8, 6}});
    TRY(getsockopt, .note = "SO_GET_FILTER", .b = {V(udp), V(SOL_SOCKET), V(SO_GET_FILTER), O(80), CI(10)});
    TRY(setsockopt, .note = "SO_DETACH_FILTER", .b = {V(udp), V(SOL_SOCKET), V(SO_DETACH_FILTER), II(0), V(4)});
    struct timeval odd = {0, 2000000};
    TRY(setsockopt, .note = "SO_RCVTIMEO", .b = {V(udp), V(SOL_SOCKET), V(SO_RCVTIMEO), I(&odd, 16), V(16)});
}

#define CONTROL(fd, request, ...) TRY(ioctl, .note = #request, .b = {V(fd), V(request), __VA_ARGS__})

CASE(controls, "", open_sockets)
{
    struct ifreq lo = {.ifr_name = "lo"}, none = {.ifr_name = "none"};
    long list[] = {400, 0};
    CONTROL(stream[1], FIONREAD, O(4));
    CONTROL(stream[1], FIONBIO, II(1));
    CONTROL(stream[1], FIOASYNC, II(0));
    CONTROL(client, 0x8905 /* SIOCATMARK */, O(4));
    CONTROL(client, 0x5411 /* SIOCOUTQ */, OH(4, "0+4"));
    CONTROL(client, 0x8902 /* SIOCSPGRP */, II(getpid()));
    CONTROL(client, 0x8904 /* SIOCGPGRP */, OH(4, "0+4"));
    CONTROL(udp, 0x8906 /* SIOCGSTAMP */, O(16));
    CONTROL(udp, 0x8913 /* SIOCGIFFLAGS */, C(&lo, 40));
    CONTROL(udp, 0x8915 /* SIOCGIFADDR */, C(&lo, 40));
    CONTROL(udp, 0x891b /* SIOCGIFNETMASK */, C(&lo, 40));
    CONTROL(udp, 0x8921 /* SIOCGIFMTU */, C(&lo, 40));
    CONTROL(udp, 0x8927 /* SIOCGIFHWADDR */, C(&lo, 40));
    CONTROL(udp, 0x8933 /* SIOCGIFINDEX */, C(&lo, 40));
    CONTROL(udp, 0x8933 /* SIOCGIFINDEX of none */, C(&none, 40));
    lo.ifr_ifindex = 1;
    CONTROL(udp, 0x8910 /* SIOCGIFNAME */, C(&lo, 40));
    TRY(ioctl, .note = "SIOCGIFCONF", .b = {V(udp), V(0x8912), C(list, 16), [6] = O(400)}, .r = {{2, 8, 6}});
    TRY(ioctl, .note = "SIOCGIFCONF_length", .b = {V(udp), V(0x8912), C(list, 16)});
}
