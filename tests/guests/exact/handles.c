/* Exactness: what hangs on descriptors: locks and who holds them, watches, descriptors that are sent,
 * processes as descriptors, queues and leases that send signals. */
#include "common.h"
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/un.h>

enum skill { LOCK = END + 1, UNLOCK, LOCK_SOON, CHANGE, SEND, TAKE, TELL, OPEN };

static int file, other, pair[2], friends_file = -1;
static mqd_t queue;

static struct flock range(int type, int start, int length)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

/* What the friend sees of our locks. */
static int see_locks(void)
{
    struct flock lock = range(F_WRLCK, 0, 0);
    int own = open("locked", O_RDWR);
    printf("friend: flock %d,", flock(own, LOCK_EX | LOCK_NB));
    for (int at = 0; at < 30; at += 10) {
        lock = range(F_WRLCK, at, 10);
        fcntl(own, F_GETLK, &lock);
        printf(" %s by %s", lock.l_type == F_UNLCK ? "free" : lock.l_type == F_RDLCK ? "read" : "write",
               lock.l_type == F_UNLCK ? "nobody" : lock.l_pid == -1 ? "a file" : who(lock.l_pid));
    }
    printf("\n");
    close(own);
    return 0;
}

static int send_file(void)
{
    int one = open("sent", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char control[CMSG_SPACE(sizeof one)] = {0};
    struct iovec piece = {"word", 4};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&header);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof one), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &one, sizeof one);
    need(write(one, "of the friend", 13) == 13, "write");
    return sendmsg(pair[1], &header, 0) != 4;
}

static int skills(int deed, int value)
{
    struct flock lock = range(F_WRLCK, 20, 10);
    char name[32], text[64] = "";
    switch (deed) {
    case TELL:
        return see_locks();
    case LOCK:
        if (friends_file < 0)
            friends_file = open("locked", O_RDWR);
        return value ? flock(friends_file, LOCK_EX | LOCK_NB) : fcntl(friends_file, F_SETLK, &lock);
    case UNLOCK:
        lock = range(F_UNLCK, 0, 0);
        return value ? flock(friends_file, LOCK_UN) : fcntl(friends_file, F_SETLK, &lock);
    case LOCK_SOON:
        lock = range(F_WRLCK, value, 10);
        return fcntl(friends_file, F_SETLKW, &lock);
    case CHANGE:
        snprintf(name, sizeof name, "watched/%d", value);
        close(open(name, O_RDWR | O_CREAT, 0600));
        rename(name, "watched/moved");
        return unlink("watched/moved");
    case SEND:
        return send_file();
    case TAKE: {
        int taken;
        char control[CMSG_SPACE(sizeof taken)];
        struct iovec piece = {text, sizeof text};
        struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        need(recvmsg(pair[1], &header, 0) == 3, "recvmsg");
        memcpy(&taken, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof taken);
        ssize_t got = pread(taken, name, sizeof name, 0);
        printf("friend: %s with %zd bytes\n", text, got);
        return close(taken);
    }
    case OPEN:
        close(open("leased", value));
        return 0;
    }
    return mq_send(queue, "letter", 6, value);
}

CASE(locks, AWAY)
{
    struct flock lock = range(F_WRLCK, 0, 10), other_range = range(F_RDLCK, 10, 10);
    friend_skill = skills;
    file = open("locked", O_RDWR | O_CREAT, 0600), other = open("locked", O_RDWR);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        need(flock(file, LOCK_EX) == 0 && fcntl(file, F_SETLK, &lock) == 0, "locks");
        meet();
        ask_friend(TELL, 0, 0, 0);
        need(fcntl(other, F_OFD_SETLK, &other_range) == 0, "a lock of the file");
        ask_friend(TELL, 0, 0, 0);
        flock(file, LOCK_UN);
        ask_friend(LOCK, 0, 1, 0);
        int result = flock(file, LOCK_SH | LOCK_NB);
        printf("flock %d %s\n", result, wrong());
        ask_friend_later(UNLOCK, 0, 1, 0, 40);
        printf("flock %d\n", flock(file, LOCK_EX));
        ask_friend(LOCK, 0, 0, 0);
        struct flock asked = range(F_WRLCK, 0, 0);
        fcntl(file, F_GETLK, &asked);
        printf("lock %d at %ld by %s\n", asked.l_type, (long)asked.l_start, who(asked.l_pid));
        /* The friend waits for us: we must not wait for it. */
        ask_friend_later(LOCK_SOON, 0, 0, 0, 1);
        nap(50);
        struct flock wanted = range(F_WRLCK, 20, 10);
        result = fcntl(file, F_SETLKW, &wanted);
        printf("lock %d %s\n", result, wrong());
        struct flock freed = range(F_UNLCK, 0, 10);
        fcntl(file, F_SETLK, &freed);
        nap(50);
        ask_friend(UNLOCK, 0, 0, 0);
        freed = range(F_UNLCK, 0, 0);
        fcntl(other, F_OFD_SETLK, &freed);
        /* Any descriptor of the file that is closed takes the process's locks along. */
        wanted = range(F_WRLCK, 10, 5);
        printf("lock %d\n", fcntl(file, F_SETLK, &wanted));
        ask_friend(TELL, 0, 0, 0);
        close(open("locked", O_RDONLY));
        ask_friend(TELL, 0, 0, 0);
    }
}

CASE(watches, AWAY)
{
    char events[4096];
    friend_skill = skills;
    mkdir("watched", 0700);
    int notes = inotify_init1(IN_NONBLOCK), waiter = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got[4];
    need(inotify_add_watch(notes, "watched", IN_ALL_EVENTS) == 1, "inotify_add_watch");
    epoll_ctl(waiter, EPOLL_CTL_ADD, notes, &event);
    make_friend();
    for (int turn = 0; turn < 3; turn++) {
        meet();
        ask_friend(CHANGE, 0, turn, 0);
        int count = epoll_wait(waiter, got, 4, 5000);
        printf("waited: %d %d\n", count, epoll_wait(waiter, got, 4, 0));
        ssize_t length = read(notes, events, sizeof events);
        uint32_t pairing = 0;
        for (ssize_t at = 0; at < length;) {
            struct inotify_event *one = (void *)(events + at);
            printf("  %x %s paired %d\n", one->mask, one->len ? one->name : "-", one->cookie && one->cookie == pairing);
            pairing = one->cookie;
            at += sizeof *one + one->len;
        }
    }
}

CASE(sent_descriptors, AWAY)
{
    friend_skill = skills;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int yes = 1;
    setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        for (int room = 0; room < 3; room++) {
            char control[256], text[32] = "";
            struct iovec piece = {text, sizeof text};
            struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
            header.msg_controllen = room == 0 ? sizeof control : room == 1 ? CMSG_SPACE(sizeof(struct ucred)) : 0;
            if (room == 0)
                meet();
            ask_friend(SEND, 0, 0, 0);
            ssize_t got = recvmsg(pair[0], &header, room == 0 ? MSG_CMSG_CLOEXEC : 0);
            printf("got %zd flags %x, %zu of control\n", got, header.msg_flags, (size_t)header.msg_controllen);
            for (struct cmsghdr *head = CMSG_FIRSTHDR(&header); head; head = CMSG_NXTHDR(&header, head)) {
                struct ucred from;
                int taken;
                if (head->cmsg_type == SCM_CREDENTIALS) {
                    memcpy(&from, CMSG_DATA(head), sizeof from);
                    printf("  from %s %d %d\n", who(from.pid), from.uid, from.gid);
                } else {
                    memcpy(&taken, CMSG_DATA(head), sizeof taken);
                    ssize_t count = pread(taken, text, sizeof text, 0);
                    printf("  a file: %zd %.13s, %x\n", count, text, fcntl(taken, F_GETFD));
                    char back[CMSG_SPACE(sizeof taken)] = {0};
                    struct iovec word = {"yes", 3};
                    struct msghdr answer = {.msg_iov = &word, .msg_iovlen = 1, .msg_control = back, .msg_controllen = sizeof back};
                    *CMSG_FIRSTHDR(&answer) = (struct cmsghdr){CMSG_LEN(sizeof taken), SOL_SOCKET, SCM_RIGHTS};
                    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&answer)), &taken, sizeof taken);
                    need(pwrite(taken, "more and more", 13, 13) == 13, "pwrite");
                    need(sendmsg(pair[0], &answer, 0) == 3, "sendmsg");
                    close(taken);
                    ask_friend(TAKE, 0, 0, 0);
                }
            }
        }
    }
}

CASE(process_descriptors, AWAY)
{
    siginfo_t info = {0};
    make_friend();
    int before = syscall(SYS_pidfd_open, friend_pid, 0);
    meet();
    int fd = syscall(SYS_pidfd_open, friend_pid, 0), own = syscall(SYS_pidfd_open, getpid(), 0);
    struct pollfd both[] = {{fd, POLLIN, 0}, {before, POLLIN, 0}, {own, POLLIN, 0}};
    printf("poll %d\n", poll(both, 3, 0));
    catch(SIGUSR1, 0);
    info.si_code = SI_QUEUE, info.si_signo = SIGUSR1, info.si_pid = getpid(), info.si_value.sival_int = 44;
    /* It names the process's group of threads (PIDFD_SIGNAL_THREAD_GROUP, Linux 6.9): for what may be a thread it would go
     * home. */
    int result = syscall(SYS_pidfd_send_signal, own, SIGUSR1, &info, 2);
    await_caught(1);
    printf("sent %d\n", result);
    result = syscall(SYS_pidfd_send_signal, own, SIGUSR1, NULL, 0);
    await_caught(2);
    tell_caught();
    result = waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG);
    printf("wait %d %d\n", result, info.si_signo == SIGUSR1 ? 0 : info.si_pid);
    ask_friend(END, 0, 6, 0);
    result = poll(both, 2, 5000);
    printf("poll %d, %x %x\n", result, both[0].revents, both[1].revents);
    result = waitid(P_PIDFD, fd, &info, WEXITED);
    printf("wait %d %s code %d status %d\n", result, who(info.si_pid), info.si_code, info.si_status);
    result = syscall(SYS_pidfd_send_signal, before, 0, NULL, 0);
    printf("gone: %d %s\n", result, wrong());
}

CASE(letters, AWAY)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 4, .sigev_value.sival_int = 8};
    char name[32], text[8192];
    unsigned priority;
    snprintf(name, sizeof name, "/handles-%d", getpid());
    queue = mq_open(name, O_RDWR | O_CREAT | O_NONBLOCK, 0600, NULL);
    need(queue >= 0 && mq_unlink(name) == 0, "mq_open");
    friend_skill = skills;
    catch(SIGRTMIN + 4, 0);
    make_friend();
    need(mq_notify(queue, &event) == 0, "mq_notify");
    for (int turn = 0; turn < 3; turn++) {
        meet();
        for (int i = 0; i < 3; i++)
            ask_friend(OPEN + 1, 0, i * 3 % 4, 0);
        await_caught(turn + 1);
        tell_caught();
        for (int i = 0; i < 4; i++) {
            ssize_t got = mq_receive(queue, text, sizeof text, &priority);
            printf("%zd %s %u\n", got, got < 0 ? wrong() : "", got < 0 ? 0 : priority);
        }
        int result = mq_notify(queue, &event);
        printf("notify %d, again ", result);
        result = mq_notify(queue, &event);
        printf("%d %s\n", result, wrong());
    }
}

CASE(leases, AWAY)
{
    friend_skill = skills;
    file = open("leased", O_RDWR | O_CREAT, 0600);
    catch(SIGIO, 0), catch(SIGRTMIN + 5, 0);
    make_friend();
    for (int turn = 0; turn < 2; turn++) {
        meet();
        fcntl(file, F_SETSIG, turn ? SIGRTMIN + 5 : 0);
        int result = fcntl(file, F_SETLEASE, F_WRLCK);
        printf("lease %d, %d\n", result, fcntl(file, F_GETLEASE));
        ask_friend_later(OPEN, 0, O_RDONLY, 0, 1);
        await_caught(turn + 1);
        printf("asked for: %d\n", fcntl(file, F_GETLEASE));
        tell_caught();
        printf("given up: %d\n", fcntl(file, F_SETLEASE, F_UNLCK));
        nap(20);
    }
}
