/* An echo server with one epoll, edge-triggered, that ends when all its clients have left.
 *
 *   echo_server CLIENTS
 *
 * It writes its port into the file `port`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 1 << 16 };

struct client {
    int socket;
    size_t begin, end;
    char data[ROOM];
};

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* Echoes until nothing can be read or nothing be written; false when the client has left. */
static int serve(struct client *client, long long *bytes)
{
    for (;;) {
        if (client->begin < client->end) {
            ssize_t sent = send(client->socket, client->data + client->begin,
                                client->end - client->begin, MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN)
                return 1;
            check(sent >= 0, "send");
            client->begin += sent;
            *bytes += sent;
            continue;
        }
        ssize_t got = recv(client->socket, client->data, ROOM, 0);
        if (got < 0 && errno == EAGAIN)
            return 1;
        check(got >= 0, "recv");
        if (got == 0)
            return 0;
        client->begin = 0;
        client->end = got;
    }
}

int main(int argc, char **argv)
{
    int wanted = argc == 2 ? atoi(argv[1]) : 0;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 128) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    FILE *port = fopen("port.draft", "w");
    fprintf(port, "%d\n", ntohs(address.sin_port));
    fclose(port);
    check(rename("port.draft", "port") == 0, "rename");

    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[64];
    check(epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event) == 0, "epoll_ctl");
    long long bytes = 0;
    int came = 0, left = 0;
    while (left < wanted) {
        int count = epoll_wait(poll, events, 64, -1);
        check(count > 0, "epoll_wait");
        for (int i = 0; i < count; i++) {
            struct client *client = events[i].data.ptr;
            if (client) {
                if (!serve(client, &bytes)) {
                    close(client->socket);
                    free(client);
                    left++;
                }
                continue;
            }
            int peer;
            while ((peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                client = calloc(1, sizeof *client);
                client->socket = peer;
                event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                event.data.ptr = client;
                check(epoll_ctl(poll, EPOLL_CTL_ADD, peer, &event) == 0, "epoll_ctl");
                came++;
            }
            check(errno == EAGAIN, "accept4");
        }
    }
    printf("%d came, %d left, %lld bytes\n", came, left, bytes);
    return unlink("port") != 0;
}
