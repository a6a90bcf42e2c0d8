/* What home's kernel decides by the state of a process in the background of a terminal.
 *
 *   tty
 *
 * The foreground process starts a child in a process group of its own. At `ready PID`, where PID is
 * the child, the child may be moved; then the foreground reads a line and the child tries to take
 * the terminal: with SIGTTOU blocked, ignored, and as it is by default, which stops it until the
 * terminal is its own. At the end the foreground itself may be moved, and shows who it is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void need(int good, const char *what)
{
    if (good)
        return;
    printf("fault: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wait_for_line(void)
{
    char byte;
    do {
        ssize_t got = read(0, &byte, 1);
        need(got == 1 || (got < 0 && errno == EINTR), "a line");
    } while (byte != '\n');
}

static void child(int words, int answers)
{
    char how;
    while (read(words, &how, 1) == 1) {
        sigset_t mask;
        sigemptyset(&mask);
        signal(SIGTTOU, how == 'i' ? SIG_IGN : SIG_DFL);
        sigaddset(&mask, SIGTTOU);
        sigprocmask(how == 'b' ? SIG_BLOCK : SIG_UNBLOCK, &mask, NULL);
        char answer = tcsetpgrp(0, getpgrp()) == 0 ? 'y' : 'n';
        need(write(answers, &answer, 1) == 1, "an answer");
    }
    _exit(0);
}

static void ask(int words, int answers, char how, const char *title)
{
    char answer;
    need(write(words, &how, 1) == 1, "a word");
    need(read(answers, &answer, 1) == 1, "an answer");
    pid_t owner = tcgetpgrp(0);
    printf("%s: %c, the terminal is %s\n", title, answer, owner == getpgrp() ? "ours" : "the child's");
    need(tcsetpgrp(0, getpgrp()) == 0, "tcsetpgrp");
}

int main(void)
{
    int words[2], answers[2], status;
    setvbuf(stdout, NULL, _IOLBF, 0);
    need(pipe(words) == 0 && pipe(answers) == 0, "pipe");
    signal(SIGTTOU, SIG_IGN);
    pid_t other = fork();
    if (other == 0) {
        setpgid(0, 0);
        close(words[1]);
        child(words[0], answers[1]);
    }
    setpgid(other, other);
    printf("ready %d\n", other);
    wait_for_line();
    ask(words[1], answers[0], 'b', "blocked");
    ask(words[1], answers[0], 'i', "ignored");
    need(write(words[1], "d", 1) == 1, "a word");
    need(waitpid(other, &status, WUNTRACED) == other, "waitpid");
    printf("by default: stopped %d by SIGTTOU %d\n", WIFSTOPPED(status),
           WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
    /* In the foreground it makes its call again, and never learns that it was stopped. */
    char answer;
    need(tcsetpgrp(0, other) == 0, "tcsetpgrp");
    kill(other, SIGCONT);
    need(read(answers[0], &answer, 1) == 1, "an answer");
    printf("continued: %c\n", answer);
    need(tcsetpgrp(0, getpgrp()) == 0, "tcsetpgrp");
    kill(other, SIGKILL);
    need(waitpid(other, &status, 0) == other, "waitpid");

    printf("ready %d\n", getpid());
    wait_for_line();
    struct winsize size;
    struct termios state;
    need(ioctl(0, TIOCGWINSZ, &size) == 0, "TIOCGWINSZ");
    need(tcgetattr(0, &state) == 0, "tcgetattr");
    printf("%d by %d, echo %d, on %s, foreground %d, session leader %d\n", size.ws_row, size.ws_col,
           (state.c_lflag & ECHO) != 0, ttyname(0) ? "a terminal" : strerror(errno),
           tcgetpgrp(0) == getpgrp(), getsid(0) == getpid());
    state.c_lflag &= ~ECHO;
    need(tcsetattr(0, TCSADRAIN, &state) == 0, "tcsetattr");
    printf("quiet\n");
    wait_for_line();
    state.c_lflag |= ECHO;
    need(tcsetattr(0, TCSADRAIN, &state) == 0, "tcsetattr");
    printf("done\n");
    return 0;
}
