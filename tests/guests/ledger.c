/* Two parties and an account: what one pays, the other has to get, once.
 *
 * The payer (this process, which moves) appends a number to `debits` and sends it by TCP; the payee (its
 * child, which stays at home) appends it to `serial` and answers. So whatever happens to the payer,
 * all that is in `serial` is in `debits`, and at most one more. Prints `ready PID`, and `ended` with
 * status 7 once the file `stop` is there. A check that fails prints `fault` and ends it with status 5.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char *what, unsigned long number)
{
    if (good)
        return;
    printf("fault: %s at %lu\n", what, number);
    fflush(stdout);
    _exit(5);
}

static int book(const char *name)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    check(file >= 0, name, 0);
    return file;
}

static void enter(int book, unsigned long number)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%lu\n", number);
    check(write(book, text, length) == length, "append", number);
}

static void receive(int from, unsigned long *number)
{
    check(recv(from, number, sizeof *number, MSG_WAITALL) == sizeof *number, "receive", *number);
}

static int payee(int listener)
{
    int credits = book("serial"), payer = accept(listener, NULL, NULL);
    check(payer >= 0, "accept", 0);
    close(listener);
    unsigned long number, due = 0;
    // Until the payer has ended, in whatever way.
    while (recv(payer, &number, sizeof number, MSG_WAITALL) == sizeof number) {
        check(number == due, "order", number);
        enter(credits, number);
        due++;
        if (send(payer, &number, sizeof number, MSG_NOSIGNAL) != sizeof number)
            break;
    }
    return 0;
}

static int to_payee(struct sockaddr_in *address)
{
    int one = 1, payee = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(payee, (struct sockaddr *)address, sizeof *address) == 0, "connect", 0);
    setsockopt(payee, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return payee;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&address, length) == 0, "bind", 0);
    check(listen(listener, 1) == 0, "listen", 0);
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname", 0);
    pid_t child = fork();
    check(child >= 0, "fork", 0);
    if (child == 0)
        return payee(listener);
    close(listener);
    int debits = book("debits"), account = to_payee(&address);
    printf("ready %d\n", getpid());
    fflush(stdout);
    struct stat stop;
    for (unsigned long number = 0; stat("stop", &stop) != 0; number++) {
        unsigned long answer = number;
        enter(debits, number);
        check(send(account, &number, sizeof number, MSG_NOSIGNAL) == sizeof number, "send", number);
        receive(account, &answer);
        check(answer == number, "answer", number);
        usleep(5000);
    }
    close(account);
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "payee", 0);
    printf("ended\n");
    return 7;
}
